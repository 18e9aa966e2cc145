package data

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Owner is the business that a record belongs to. It is read and checked; it is never written, so that it does not travel
// on to an assistant, which knows one business only.
type Owner string

// IsZero is always true: "omitzero" leaves the owner out of everything that is written.
func (Owner) IsZero() bool { return true }

// Owned is embedded in every record.
type Owned struct {
	BusinessID Owner `json:"business_id,omitzero"`
}

func (o Owned) owner() Owner { return o.BusinessID }

// values are the members of a record that the client passes on as JSON.
func (Owned) values() []jsontext.Value { return nil }

type record interface {
	owner() Owner
	values() []jsontext.Value
}

// check compares a record with the call: ErrForeign, ErrWrongRecord, ErrUnexpected.
func check[T record](r T, business string, is func(T) bool) error {
	switch {
	case string(r.owner()) != business:
		return ErrForeign
	case is != nil && !is(r):
		return ErrWrongRecord
	}
	for _, v := range r.values() {
		if !readable(v) {
			return ErrUnexpected
		}
	}
	return nil
}

// readable reports whether a parser may be expected to read v: it is not nested deeper than maxDepth, and its numbers are within
// the range of a double (RFC 7493, section 2.2).
func readable(v jsontext.Value) bool {
	d := jsontext.NewDecoder(bytes.NewReader(v))
	for {
		token, err := d.ReadToken()
		if err != nil {
			return errors.Is(err, io.EOF) // the whole value has been read as JSON before
		}
		if token.Kind() == jsontext.KindNumber {
			_, err = token.Float()
		}
		if err != nil || d.StackDepth() > maxDepth {
			return false
		}
	}
}

// Page is a part of a list.
type Page[T any] struct {
	Items []T
	Next  string // the cursor of the next part; "" at the end
}

// page reads {"<name>":[…],"next_cursor":…}.
type page[T record] struct {
	name  string
	is    func(T) bool
	items []T
	next  string
}

// UnmarshalJSONFrom reads the list in one go.
func (p *page[T]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	p.items, p.next = nil, ""
	err := eachMember(d, func(name string) error {
		switch name {
		case p.name:
			return json.UnmarshalDecode(d, &p.items)
		case "next_cursor":
			return json.UnmarshalDecode(d, &p.next)
		}
		return d.SkipValue()
	})
	switch {
	case err != nil:
		return err
	case p.items == nil:
		return fmt.Errorf("there is no list %q", p.name)
	case !validCursor(p.next):
		return errors.New("next_cursor is no cursor")
	}
	return nil
}

func (p *page[T]) check(business string) error {
	for _, r := range p.items {
		if err := check(r, business, p.is); err != nil {
			return err
		}
	}
	return nil
}

// eachMember reads an object and calls read for the value of each of its members.
func eachMember(d *jsontext.Decoder, read func(name string) error) error {
	token, err := d.ReadToken()
	if err != nil {
		return err
	}
	if token.Kind() != jsontext.KindBeginObject {
		return errors.New("it is no object")
	}
	for d.PeekKind() != jsontext.KindEndObject {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		if err := read(name.String()); err != nil {
			return err
		}
	}
	_, err = d.ReadToken()
	return err
}

func validCursor(s string) bool {
	if len(s) > 512 {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// single reads {"<name>":{…}}, or a record that stands for itself if there is no name.
type single[T record] struct {
	name   string
	is     func(T) bool
	record T
}

// UnmarshalJSONFrom reads the record in one go.
func (s *single[T]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	var none T
	s.record = none
	if s.name == "" {
		return json.UnmarshalDecode(d, &s.record)
	}
	return eachMember(d, func(name string) error {
		if name == s.name {
			return json.UnmarshalDecode(d, &s.record)
		}
		return d.SkipValue()
	})
}

func (s *single[T]) check(business string) error { return check(s.record, business, s.is) }

// gone reads the response to a DELETE, {"deleted":true,"id":…}.
type gone[ID comparable] struct {
	id   ID
	same bool // the response is about the record with this id
}

// UnmarshalJSONFrom reads the response, which has to say that the record was deleted.
func (g *gone[ID]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	var said struct {
		Deleted bool `json:"deleted"`
		ID      ID   `json:"id"`
	}
	if err := json.UnmarshalDecode(d, &said); err != nil {
		return err
	}
	if !said.Deleted {
		return errors.New("it does not say that anything was deleted")
	}
	g.same = said.ID == g.id
	return nil
}

func (g *gone[ID]) check(string) error {
	if !g.same {
		return ErrWrongRecord
	}
	return nil
}

// Business is the business itself.
type Business struct {
	Owned

	ID            string    `json:"id"`
	Name          string    `json:"name"`
	Slug          string    `json:"slug"`
	Email         *string   `json:"email"`
	Phone         *string   `json:"phone"`
	WebsiteURL    *string   `json:"website_url"`
	TimeZone      string    `json:"time_zone"`
	AccountStatus string    `json:"account_status"`
	Version       int64     `json:"version"`
	UpdatedAt     time.Time `json:"updated_at"`
}

// Hours are when a business is open, on its own clocks.
type Hours struct {
	Owned

	Hours     []Span    `json:"hours"`
	Version   int64     `json:"version"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Span is a time on one day of the week: Day "monday" to "sunday", Open and Close "HH:MM", Close up to "24:00".
type Span struct {
	Day   string `json:"day"`
	Open  string `json:"open"`
	Close string `json:"close"`
}

// ServiceAreas are where a business works.
type ServiceAreas struct {
	Owned

	ServiceAreas []ServiceArea `json:"service_areas"`
	Version      int64         `json:"version"`
	UpdatedAt    time.Time     `json:"updated_at"`
}

// ServiceArea is one of them: Kind is "city", "postal_code" or "region".
type ServiceArea struct {
	Name     string   `json:"name"`
	Kind     string   `json:"kind"`
	RadiusKm *float64 `json:"radius_km"`
}

// Contact is a person whom the business knows.
type Contact struct {
	Owned

	ID            int64     `json:"id"`
	FirstName     string    `json:"first_name"`
	LastName      *string   `json:"last_name"`
	Email         *string   `json:"email"`
	PhoneNumber   *string   `json:"phone_number"`
	CountryCode   *string   `json:"country_code"`
	ContactType   string    `json:"contact_type"`
	ContactStatus string    `json:"contact_status"`
	Notes         *string   `json:"notes"`
	DateCreated   time.Time `json:"date_created"`
	DateModified  time.Time `json:"date_modified"`
	Version       int64     `json:"version"`
}

// Conversation is one that the receptionist had. What callers said, their names and the summary are strangers' texts.
type Conversation struct {
	Owned

	ID            string     `json:"id"`
	Channel       string     `json:"channel"`
	ContactID     *int64     `json:"contact_id"`
	CallerName    *string    `json:"caller_name"`
	CallerAddress *string    `json:"caller_address"`
	StartedAt     time.Time  `json:"started_at"`
	EndedAt       *time.Time `json:"ended_at"`
	Outcome       string     `json:"outcome"`
	Summary       *string    `json:"summary"`
	MessageCount  int        `json:"message_count"`
	Messages      []Message  `json:"messages,omitzero"` // only where one conversation was asked for
}

// Message is what was said: From is "caller", "receptionist" or "staff".
type Message struct {
	ID   string    `json:"id"`
	At   time.Time `json:"at"`
	From string    `json:"from"`
	Text string    `json:"text"`
}

// Calendar is one that appointments stand in.
type Calendar struct {
	Owned

	ID        string  `json:"id"`
	Name      string  `json:"name"`
	OwnerName *string `json:"owner_name"`
	TimeZone  string  `json:"time_zone"`
}

// Appointment is one in a calendar.
type Appointment struct {
	Owned

	ID           string    `json:"id"`
	CalendarID   string    `json:"calendar_id"`
	CalendarName string    `json:"calendar_name"`
	ContactID    *int64    `json:"contact_id"`
	ContactName  *string   `json:"contact_name"`
	Title        string    `json:"title"`
	Notes        *string   `json:"notes"`
	Location     *string   `json:"location"`
	StartsAt     time.Time `json:"starts_at"`
	EndsAt       time.Time `json:"ends_at"`
	Status       string    `json:"status"`
	BookedBy     string    `json:"booked_by"`
	CreatedAt    time.Time `json:"created_at"`
	UpdatedAt    time.Time `json:"updated_at"`
}

// Receptionist is how the AI receptionist is set up.
type Receptionist struct {
	Owned

	Personality Personality `json:"personality"`
	Rules       []Rule      `json:"rules"`
	Version     int64       `json:"version"`
	UpdatedAt   time.Time   `json:"updated_at"`
}

// Personality is how the receptionist speaks.
type Personality struct {
	Name         string  `json:"name"`
	Tone         string  `json:"tone"`
	Greeting     string  `json:"greeting"`
	Language     string  `json:"language"`
	Instructions *string `json:"instructions"`
}

// Rule is what the receptionist does in a certain case.
type Rule struct {
	ID      string `json:"id,omitzero"`
	When    string `json:"when"`
	Then    string `json:"then"`
	Enabled bool   `json:"enabled"`
}

// FAQ is a question that the receptionist can answer.
type FAQ struct {
	Owned

	ID        string    `json:"id"`
	Question  string    `json:"question"`
	Answer    string    `json:"answer"`
	Enabled   bool      `json:"enabled"`
	Version   int64     `json:"version"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Offering is a service that the receptionist can offer.
type Offering struct {
	Owned

	ID              string    `json:"id"`
	Name            string    `json:"name"`
	Description     *string   `json:"description"`
	DurationMinutes *int      `json:"duration_minutes"`
	Price           *string   `json:"price"`
	Bookable        bool      `json:"bookable"`
	Version         int64     `json:"version"`
	CreatedAt       time.Time `json:"created_at"`
	UpdatedAt       time.Time `json:"updated_at"`
}

// Invoice is one that the business has written. Money is decimal text.
type Invoice struct {
	Owned

	ID            string     `json:"id"`
	InvoiceNumber string     `json:"invoice_number"`
	Title         *string    `json:"title"`
	Status        string     `json:"status"`
	ContactID     *int64     `json:"contact_id"`
	ContactName   *string    `json:"contact_name"`
	JobID         *string    `json:"job_id"`
	Subtotal      *string    `json:"subtotal"`
	DiscountType  *string    `json:"discount_type"`
	DiscountValue *string    `json:"discount_value"`
	TaxRate       *string    `json:"tax_rate"`
	TaxAmount     *string    `json:"tax_amount"`
	TotalAmount   *string    `json:"total_amount"`
	PaidAmount    *string    `json:"paid_amount"`
	DueAt         *time.Time `json:"due_at"`
	IssuedAt      *time.Time `json:"issued_at"`
	SentAt        *time.Time `json:"sent_at"`
	PaidAt        *time.Time `json:"paid_at"`
	CreatedAt     time.Time  `json:"created_at"`
	UpdatedAt     time.Time  `json:"updated_at"`
}

// Estimate is one that the business has made. Money is decimal text.
type Estimate struct {
	Owned

	ID              string     `json:"id"`
	EstimateNumber  string     `json:"estimate_number"`
	Title           *string    `json:"title"`
	Status          string     `json:"status"`
	PaymentStatus   *string    `json:"payment_status"`
	ContactID       *int64     `json:"contact_id"`
	ContactName     *string    `json:"contact_name"`
	JobID           *string    `json:"job_id"`
	Subtotal        *string    `json:"subtotal"`
	DiscountType    *string    `json:"discount_type"`
	DiscountValue   *string    `json:"discount_value"`
	TaxRate         *string    `json:"tax_rate"`
	TaxAmount       *string    `json:"tax_amount"`
	TotalAmount     *string    `json:"total_amount"`
	DepositRequired *bool      `json:"deposit_required"`
	DepositAmount   *string    `json:"deposit_amount"`
	AmountPaid      *string    `json:"amount_paid"`
	ExpiresAt       *time.Time `json:"expires_at"`
	SentAt          *time.Time `json:"sent_at"`
	ApprovedAt      *time.Time `json:"approved_at"`
	CreatedAt       time.Time  `json:"created_at"`
	UpdatedAt       time.Time  `json:"updated_at"`
}

// Job is a piece of work. Money is decimal text.
type Job struct {
	Owned

	ID                 string    `json:"id"`
	JobNumber          string    `json:"job_number"`
	Name               *string   `json:"name"`
	Description        *string   `json:"description"`
	WorkStatus         string    `json:"work_status"`
	ContactID          *int64    `json:"contact_id"`
	ContactName        *string   `json:"contact_name"`
	TotalAmount        *string   `json:"total_amount"`
	OutstandingBalance *string   `json:"outstanding_balance"`
	LeadSource         *string   `json:"lead_source"`
	CreatedAt          time.Time `json:"created_at"`
	UpdatedAt          time.Time `json:"updated_at"`
}

// Automation is something that the business can have done.
type Automation struct {
	Owned

	ID          string         `json:"id"`
	Name        string         `json:"name"`
	Description *string        `json:"description"`
	Enabled     bool           `json:"enabled"`
	InputSchema jsontext.Value `json:"input_schema"` // JSON Schema
	LastRun     *LastRun       `json:"last_run"`
}

func (a Automation) values() []jsontext.Value { return []jsontext.Value{a.InputSchema} }

// LastRun is what an automation did last.
type LastRun struct {
	ID         string     `json:"id"`
	Status     string     `json:"status"`
	FinishedAt *time.Time `json:"finished_at"`
}

// The states of a run.
const (
	RunQueued    = "queued"
	RunRunning   = "running"
	RunSucceeded = "succeeded"
	RunFailed    = "failed"
)

// Run is an automation at work, or what it did.
type Run struct {
	Owned

	ID           string         `json:"id"`
	AutomationID string         `json:"automation_id"`
	Status       string         `json:"status"`
	Progress     int            `json:"progress"` // 0 to 100
	Message      *string        `json:"message"`
	Steps        []Step         `json:"steps"`
	Input        jsontext.Value `json:"input,omitzero"`
	CreatedAt    *time.Time     `json:"created_at"`
	StartedAt    *time.Time     `json:"started_at"`
	FinishedAt   *time.Time     `json:"finished_at"`
	Result       jsontext.Value `json:"result,omitzero"` // an object
	Error        *RunError      `json:"error"`
}

// Ended reports whether nothing more will happen in the run.
func (r Run) Ended() bool { return r.Status == RunSucceeded || r.Status == RunFailed }

func (r Run) values() []jsontext.Value { return []jsontext.Value{r.Input, r.Result} }

// Step is a part of a run: Status is "pending", "running", "succeeded", "failed" or "skipped".
type Step struct {
	Name       string     `json:"name"`
	Status     string     `json:"status"`
	Message    *string    `json:"message"`
	StartedAt  *time.Time `json:"started_at"`
	FinishedAt *time.Time `json:"finished_at"`
}

// RunError is why a run failed.
type RunError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// ObjectType is a kind of records that a business has made up itself.
type ObjectType struct {
	Owned

	Name        string         `json:"name"`
	Title       string         `json:"title"`
	Description *string        `json:"description"`
	ObjectCount int            `json:"object_count"`
	Schema      jsontext.Value `json:"schema,omitzero"` // JSON Schema of the fields; only where one type was asked for
}

func (t ObjectType) values() []jsontext.Value { return []jsontext.Value{t.Schema} }

// Object is a record of such a kind.
type Object struct {
	Owned

	ID        string         `json:"id"`
	Type      string         `json:"type"`
	Fields    jsontext.Value `json:"fields"` // an object
	Version   int64          `json:"version"`
	CreatedAt time.Time      `json:"created_at"`
	UpdatedAt time.Time      `json:"updated_at"`
}

func (o Object) values() []jsontext.Value { return []jsontext.Value{o.Fields} }
