package data

import (
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Owner is the business that a record belongs to. It is decoded and checked but never encoded, because assistants must not see
// it.
type Owner string

// IsZero returns true, so that "omitzero" always omits the owner.
func (Owner) IsZero() bool { return true }

// Owned is embedded in every record.
type Owned struct {
	BusinessID Owner `json:"business_id,omitzero"`
}

func (o Owned) owner() Owner { return o.BusinessID }

// RecordID implements [Record].
func (Owned) RecordID() string { return "" }

// values returns the members of a record that are passed on as raw JSON.
func (Owned) values() []jsontext.Value { return nil }

// Identified is embedded in records whose id is a text.
type Identified struct {
	Owned

	ID string `json:"id" maxLength:"255"`
}

// RecordID implements [Record].
func (r Identified) RecordID() string { return r.ID }

// Record is a record of a business.
type Record interface {
	// RecordID returns the record's id, or "" if a business has only one such record.
	RecordID() string

	owner() Owner
	values() []jsontext.Value
}

// The tags of records are JSON Schema keywords: package mcp derives the output schemas of tools from these types, and records
// that violate them do not reach an assistant.

// Business is the business itself.
type Business struct {
	Identified

	Name          string    `json:"name" maxLength:"255"`
	Slug          string    `json:"slug" maxLength:"255"`
	Email         *string   `json:"email" maxLength:"254"`
	Phone         *string   `json:"phone" maxLength:"40" jsonschema:"E.164."`
	WebsiteURL    *string   `json:"website_url" maxLength:"2000"`
	TimeZone      string    `json:"time_zone" maxLength:"64" jsonschema:"An IANA time zone." example:"America/Chicago"`
	AccountStatus string    `json:"account_status" maxLength:"40"`
	Version       int64     `json:"version" minimum:"0" maximum:"9007199254740991" jsonschema:"For if_version."`
	UpdatedAt     time.Time `json:"updated_at"`
}

// Hours are the opening hours of a business, in its time zone.
type Hours struct {
	Owned

	Hours     []Span    `json:"hours" maxItems:"42"`
	Version   int64     `json:"version" minimum:"0" maximum:"9007199254740991" jsonschema:"For if_version."`
	UpdatedAt time.Time `json:"updated_at"`
}

// Span is a span of time on one day of the week.
type Span struct {
	Day   Day    `json:"day"`
	Open  string `json:"open" pattern:"^([01][0-9]|2[0-3]):[0-5][0-9]$" jsonschema:"HH:MM in the business's time zone." example:"09:00"`
	Close string `json:"close" pattern:"^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$" jsonschema:"HH:MM, after open; 24:00 is the end of the day." example:"17:00"`
}

// ServiceAreas are where a business works.
type ServiceAreas struct {
	Owned

	ServiceAreas []ServiceArea `json:"service_areas" maxItems:"100"`
	Version      int64         `json:"version" minimum:"0" maximum:"9007199254740991" jsonschema:"For if_version."`
	UpdatedAt    time.Time     `json:"updated_at"`
}

// ServiceArea is a place or region in which a business works.
type ServiceArea struct {
	Name     string   `json:"name" minLength:"1" maxLength:"120" example:"Madison"`
	Kind     AreaKind `json:"kind"`
	RadiusKm *float64 `json:"radius_km" required:"false" exclusiveMinimum:"0" maximum:"500" jsonschema:"How far around it the business works; null or absent for a region."`
}

// Contact is a customer, lead or vendor of the business.
type Contact struct {
	Owned

	ID            int64         `json:"id" minimum:"1" maximum:"9007199254740991"`
	FirstName     string        `json:"first_name" maxLength:"255"`
	LastName      *string       `json:"last_name" maxLength:"255"`
	Email         *string       `json:"email" maxLength:"254"`
	PhoneNumber   *string       `json:"phone_number" maxLength:"40"`
	CountryCode   *string       `json:"country_code" maxLength:"8"`
	ContactType   ContactType   `json:"contact_type"`
	ContactStatus ContactStatus `json:"contact_status"`
	Notes         *string       `json:"notes" maxLength:"20000"`
	DateCreated   time.Time     `json:"date_created"`
	DateModified  time.Time     `json:"date_modified"`
	Version       int64         `json:"version" minimum:"0" maximum:"9007199254740991" jsonschema:"For if_version."`
}

// RecordID implements [Record].
func (c Contact) RecordID() string { return strconv.FormatInt(c.ID, 10) }

// Conversation is a conversation of the receptionist. Messages, callers' names and the summary are untrusted.
type Conversation struct {
	Identified

	Channel       Channel             `json:"channel"`
	ContactID     *int64              `json:"contact_id"`
	CallerName    *string             `json:"caller_name"`
	CallerAddress *string             `json:"caller_address"`
	StartedAt     time.Time           `json:"started_at"`
	EndedAt       *time.Time          `json:"ended_at"`
	Outcome       ConversationOutcome `json:"outcome"`
	Summary       *string             `json:"summary"`
	MessageCount  int                 `json:"message_count"`
	Messages      []Message           `json:"messages,omitzero"` // only from Client.Conversation
}

// Message is what was said.
type Message struct {
	ID   string    `json:"id"`
	At   time.Time `json:"at"`
	From Speaker   `json:"from"`
	Text string    `json:"text"`
}

// Calendar is a calendar of appointments.
type Calendar struct {
	Identified

	Name      string  `json:"name" maxLength:"255"`
	OwnerName *string `json:"owner_name" maxLength:"255"`
	TimeZone  string  `json:"time_zone" maxLength:"64"`
}

// Appointment is an appointment in a calendar.
type Appointment struct {
	Identified

	CalendarID   string            `json:"calendar_id" maxLength:"255"`
	CalendarName string            `json:"calendar_name" maxLength:"255"`
	ContactID    *int64            `json:"contact_id" minimum:"1" maximum:"9007199254740991"`
	ContactName  *string           `json:"contact_name" maxLength:"512"`
	Title        string            `json:"title" maxLength:"1000"`
	Notes        *string           `json:"notes" maxLength:"20000"`
	Location     *string           `json:"location" maxLength:"1000"`
	StartsAt     time.Time         `json:"starts_at"`
	EndsAt       time.Time         `json:"ends_at"`
	Status       AppointmentStatus `json:"status"`
	BookedBy     BookedBy          `json:"booked_by"`
	CreatedAt    time.Time         `json:"created_at"`
	UpdatedAt    time.Time         `json:"updated_at"`
}

// Receptionist is how the AI receptionist is set up.
type Receptionist struct {
	Owned

	Personality Personality `json:"personality"`
	Rules       []Rule      `json:"rules" maxItems:"100" jsonschema:"In the order in which they apply."`
	Version     int64       `json:"version" minimum:"0" maximum:"9007199254740991" jsonschema:"For if_version."`
	UpdatedAt   time.Time   `json:"updated_at"`
}

// Personality is how the receptionist speaks.
type Personality struct {
	Name         string  `json:"name" maxLength:"255"`
	Tone         Tone    `json:"tone"`
	Greeting     string  `json:"greeting" maxLength:"2000"`
	Language     string  `json:"language" maxLength:"40"`
	Instructions *string `json:"instructions" maxLength:"20000"`
}

// Rule is what the receptionist does in a certain case.
type Rule struct {
	ID      string `json:"id,omitzero" required:"true" maxLength:"255"`
	When    string `json:"when" maxLength:"2000"`
	Then    string `json:"then" maxLength:"2000"`
	Enabled bool   `json:"enabled"`
}

// FAQ is a question that the receptionist can answer.
type FAQ struct {
	Identified

	Question  string    `json:"question" maxLength:"2000"`
	Answer    string    `json:"answer" maxLength:"20000"`
	Enabled   bool      `json:"enabled"`
	Version   int64     `json:"version" minimum:"0" maximum:"9007199254740991" jsonschema:"For if_version."`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Offering is a service that the receptionist can offer.
type Offering struct {
	Identified

	Name            string    `json:"name" maxLength:"255"`
	Description     *string   `json:"description" maxLength:"20000"`
	DurationMinutes *int      `json:"duration_minutes" minimum:"0" maximum:"100000"`
	Price           *string   `json:"price" maxLength:"32" example:"9471.88" jsonschema:"null: on request."`
	Bookable        bool      `json:"bookable"`
	Version         int64     `json:"version" minimum:"0" maximum:"9007199254740991" jsonschema:"For if_version."`
	CreatedAt       time.Time `json:"created_at"`
	UpdatedAt       time.Time `json:"updated_at"`
}

// Invoice is an invoice of the business. Money is decimal text.
type Invoice struct {
	Identified

	InvoiceNumber string        `json:"invoice_number" maxLength:"64"`
	Title         *string       `json:"title" maxLength:"1000"`
	Status        InvoiceStatus `json:"status"`
	ContactID     *int64        `json:"contact_id" minimum:"1" maximum:"9007199254740991"`
	ContactName   *string       `json:"contact_name" maxLength:"512"`
	JobID         *string       `json:"job_id" maxLength:"255"`
	Subtotal      *string       `json:"subtotal" maxLength:"32" example:"9471.88"`
	DiscountType  *string       `json:"discount_type" maxLength:"40"`
	DiscountValue *string       `json:"discount_value" maxLength:"32" example:"9471.88"`
	TaxRate       *string       `json:"tax_rate" maxLength:"32" example:"9471.88" jsonschema:"Per cent."`
	TaxAmount     *string       `json:"tax_amount" maxLength:"32" example:"9471.88"`
	TotalAmount   *string       `json:"total_amount" maxLength:"32" example:"9471.88"`
	PaidAmount    *string       `json:"paid_amount" maxLength:"32" example:"9471.88" jsonschema:"Paid so far; the rest of total_amount is outstanding."`
	DueAt         *time.Time    `json:"due_at"`
	IssuedAt      *time.Time    `json:"issued_at"`
	SentAt        *time.Time    `json:"sent_at"`
	PaidAt        *time.Time    `json:"paid_at"`
	CreatedAt     time.Time     `json:"created_at"`
	UpdatedAt     time.Time     `json:"updated_at"`
}

// Estimate is an estimate of the business. Money is decimal text.
type Estimate struct {
	Identified

	EstimateNumber  string         `json:"estimate_number" maxLength:"64"`
	Title           *string        `json:"title" maxLength:"1000"`
	Status          EstimateStatus `json:"status"`
	PaymentStatus   *PaymentStatus `json:"payment_status"`
	ContactID       *int64         `json:"contact_id" minimum:"1" maximum:"9007199254740991"`
	ContactName     *string        `json:"contact_name" maxLength:"512"`
	JobID           *string        `json:"job_id" maxLength:"255"`
	Subtotal        *string        `json:"subtotal" maxLength:"32" example:"9471.88"`
	DiscountType    *string        `json:"discount_type" maxLength:"40"`
	DiscountValue   *string        `json:"discount_value" maxLength:"32" example:"9471.88"`
	TaxRate         *string        `json:"tax_rate" maxLength:"32" example:"9471.88" jsonschema:"Per cent."`
	TaxAmount       *string        `json:"tax_amount" maxLength:"32" example:"9471.88"`
	TotalAmount     *string        `json:"total_amount" maxLength:"32" example:"9471.88"`
	DepositRequired *bool          `json:"deposit_required"`
	DepositAmount   *string        `json:"deposit_amount" maxLength:"32" example:"9471.88"`
	AmountPaid      *string        `json:"amount_paid" maxLength:"32" example:"9471.88"`
	ExpiresAt       *time.Time     `json:"expires_at"`
	SentAt          *time.Time     `json:"sent_at"`
	ApprovedAt      *time.Time     `json:"approved_at"`
	CreatedAt       time.Time      `json:"created_at"`
	UpdatedAt       time.Time      `json:"updated_at"`
}

// Job is a piece of work. Money is decimal text.
type Job struct {
	Identified

	JobNumber          string    `json:"job_number" maxLength:"64"`
	Name               *string   `json:"name" maxLength:"1000"`
	Description        *string   `json:"description" maxLength:"20000"`
	WorkStatus         JobStatus `json:"work_status"`
	ContactID          *int64    `json:"contact_id" minimum:"1" maximum:"9007199254740991"`
	ContactName        *string   `json:"contact_name" maxLength:"512"`
	TotalAmount        *string   `json:"total_amount" maxLength:"32" example:"9471.88"`
	OutstandingBalance *string   `json:"outstanding_balance" maxLength:"32" example:"9471.88"`
	LeadSource         *string   `json:"lead_source" maxLength:"255"`
	CreatedAt          time.Time `json:"created_at"`
	UpdatedAt          time.Time `json:"updated_at"`
}

// Automation is an automation of the business.
type Automation struct {
	Identified

	Name        string         `json:"name" maxLength:"255"`
	Description *string        `json:"description" maxLength:"4000"`
	Enabled     bool           `json:"enabled" jsonschema:"Only an enabled automation can be run."`
	InputSchema jsontext.Value `json:"input_schema"` // JSON Schema
	LastRun     *LastRun       `json:"last_run"`
}

func (a Automation) values() []jsontext.Value { return []jsontext.Value{a.InputSchema} }

// LastRun is the last run of an automation.
type LastRun struct {
	ID         string     `json:"id" maxLength:"255"`
	Status     RunStatus  `json:"status"`
	FinishedAt *time.Time `json:"finished_at"`
}

// The states of a run that has ended.
const (
	RunSucceeded RunStatus = "succeeded"
	RunFailed    RunStatus = "failed"
)

// Run is a run of an automation.
type Run struct {
	Identified

	AutomationID string         `json:"automation_id" maxLength:"255"`
	Status       RunStatus      `json:"status"`
	Progress     int            `json:"progress" minimum:"0" maximum:"100" jsonschema:"Per cent."`
	Message      *string        `json:"message" maxLength:"2000"`
	Steps        []Step         `json:"steps" maxItems:"200"`
	Input        jsontext.Value `json:"input,omitzero"`
	CreatedAt    *time.Time     `json:"created_at"`
	StartedAt    *time.Time     `json:"started_at"`
	FinishedAt   *time.Time     `json:"finished_at"`
	Result       jsontext.Value `json:"result,omitzero"`
	Error        *RunError      `json:"error"`
}

// Ended reports whether the run has succeeded or failed.
func (r Run) Ended() bool { return r.Status == RunSucceeded || r.Status == RunFailed }

func (r Run) values() []jsontext.Value { return []jsontext.Value{r.Input, r.Result} }

// Step is a step of a run.
type Step struct {
	Name       string     `json:"name" maxLength:"255"`
	Status     StepStatus `json:"status"`
	Message    *string    `json:"message" maxLength:"2000"`
	StartedAt  *time.Time `json:"started_at"`
	FinishedAt *time.Time `json:"finished_at"`
}

// RunError is why a run failed.
type RunError struct {
	Code    string `json:"code" maxLength:"64"`
	Message string `json:"message" maxLength:"2000"`
}

// ObjectType is a type of custom objects.
type ObjectType struct {
	Owned

	Name        string  `json:"name" maxLength:"60"`
	Title       string  `json:"title" maxLength:"255"`
	Description *string `json:"description" maxLength:"4000"`
	ObjectCount int     `json:"object_count" minimum:"0" maximum:"9007199254740991"`
}

// RecordID implements [Record].
func (t ObjectType) RecordID() string { return t.Name }

// DescribedType is an object type with the JSON Schema of its fields.
type DescribedType struct {
	ObjectType

	Schema jsontext.Value `json:"schema"`
}

func (t DescribedType) values() []jsontext.Value { return []jsontext.Value{t.Schema} }

// Object is a custom object.
type Object struct {
	Identified

	Type      string         `json:"type" maxLength:"60"`
	Fields    jsontext.Value `json:"fields" jsonschema:"As the type's schema describes them."`
	Version   int64          `json:"version" minimum:"0" maximum:"9007199254740991" jsonschema:"For if_version."`
	CreatedAt time.Time      `json:"created_at"`
	UpdatedAt time.Time      `json:"updated_at"`
}

func (o Object) values() []jsontext.Value { return []jsontext.Value{o.Fields} }
