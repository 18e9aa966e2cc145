package data

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Collection is the records of one kind. connect/definition.yaml says which calls each has.
type Collection[T Record, F any] struct {
	client *Client
	name   string       // of a record in responses; a list has the plural
	path   []string     // escaped and joined
	has    func(T) bool // whether a record is in the collection; nil: any of the business
}

// List returns a page of the records that match the filter.
func (c Collection[T, F]) List(ctx context.Context, by Caller, filter F) (Page[T], error) {
	r := request{method: http.MethodGet, path: c.path, query: values(filter)}
	return do(ctx, c.client, by, r, func(response []byte) (Page[T], error) {
		return readPage(response, c.name+"s", by.BusinessID, c.has)
	})
}

// Get returns the record with the id.
func (c Collection[T, F]) Get(ctx context.Context, by Caller, id string) (T, error) {
	return c.one(ctx, by, id, request{method: http.MethodGet})
}

// Create adds a record.
func (c Collection[T, F]) Create(ctx context.Context, by Caller, w Write, p Patch) (T, error) {
	return one(ctx, c.client, by, c.name, c.has, request{method: http.MethodPost, path: c.path, body: p, write: w})
}

// Update changes the record with the id.
func (c Collection[T, F]) Update(ctx context.Context, by Caller, w Write, id string, p Patch) (T, error) {
	return c.one(ctx, by, id, request{method: http.MethodPatch, body: p, write: w})
}

// Replace replaces the record with the id.
func (c Collection[T, F]) Replace(ctx context.Context, by Caller, w Write, id string, p Patch) (T, error) {
	return c.one(ctx, by, id, request{method: http.MethodPut, body: p, write: w})
}

// Delete deletes the record with the id.
func (c Collection[T, F]) Delete(ctx context.Context, by Caller, w Write, id string) error {
	r := request{method: http.MethodDelete, path: c.at(id), write: w}
	_, err := do(ctx, c.client, by, r, func(response []byte) (any, error) { return nil, readDeleted(response, id) })
	return err
}

// one makes a call whose response is the record with the id.
func (c Collection[T, F]) one(ctx context.Context, by Caller, id string, r request) (T, error) {
	r.path = c.at(id)
	requested := func(found T) bool { return found.RecordID() == id && (c.has == nil || c.has(found)) }
	return one(ctx, c.client, by, c.name, requested, r)
}

func (c Collection[T, F]) at(id string) []string { return append(slices.Clone(c.path), id) }

// one makes a call whose response is one record. requested reports whether a record is the one that was asked for; nil if a
// business has only one.
func one[T Record](ctx context.Context, c *Client, by Caller, name string, requested func(T) bool, r request) (T, error) {
	return do(ctx, c, by, r, func(response []byte) (T, error) { return readOne(response, name, by.BusinessID, requested) })
}

// Patch is a JSON merge patch (RFC 7396), or a whole record.
type Patch map[string]any

// Filters are also the arguments of search tools: their tags are keywords of the input schemas. Empty members are not sent.

// List is the filter of a list that has no other.
type List struct {
	Limit  int    `json:"limit,omitzero" minimum:"1" maximum:"100" default:"25" jsonschema:"Maximum number of records to return."`
	Cursor string `json:"cursor,omitzero" minLength:"1" maxLength:"512" pattern:"^[\\x21-\\x7e]+$" jsonschema:"next_cursor of the previous result, to get the next page. Keep all other arguments the same."`
}

// Search is the filter of a list with a full-text query.
type Search struct {
	Query string `json:"query,omitzero" minLength:"1" maxLength:"200"`
	List
}

// values encodes a filter as query parameters.
func values(filter any) url.Values {
	v := url.Values{}
	r := reflect.ValueOf(filter)
	for _, f := range reflect.VisibleFields(r.Type()) {
		member := r.FieldByIndex(f.Index)
		if f.Anonymous || member.IsZero() {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch value := member.Interface().(type) {
		case time.Time:
			v.Set(name, value.UTC().Format(time.RFC3339))
		default:
			v.Set(name, fmt.Sprint(value))
		}
	}
	return v
}

// Business returns the business.
func (c *Client) Business(ctx context.Context, by Caller) (Business, error) {
	return one(ctx, c, by, "business", by.owns, request{method: http.MethodGet, path: []string{"business"}})
}

// UpdateBusiness changes the business: name, email, phone, website_url, time_zone.
func (c *Client) UpdateBusiness(ctx context.Context, by Caller, w Write, p Patch) (Business, error) {
	r := request{method: http.MethodPatch, path: []string{"business"}, body: p, write: w}
	return one(ctx, c, by, "business", by.owns, r)
}

// owns reports whether a business is the caller's.
func (by Caller) owns(b Business) bool { return b.ID == by.BusinessID }

// Hours returns the opening hours.
func (c *Client) Hours(ctx context.Context, by Caller) (Hours, error) {
	return one[Hours](ctx, c, by, "", nil, request{method: http.MethodGet, path: []string{"business", "hours"}})
}

// SetHours replaces the opening hours.
func (c *Client) SetHours(ctx context.Context, by Caller, w Write, hours []Span) (Hours, error) {
	r := request{method: http.MethodPut, path: []string{"business", "hours"}, body: Patch{"hours": hours}, write: w}
	return one[Hours](ctx, c, by, "", nil, r)
}

// ServiceAreas returns where the business works.
func (c *Client) ServiceAreas(ctx context.Context, by Caller) (ServiceAreas, error) {
	return one[ServiceAreas](ctx, c, by, "", nil, request{method: http.MethodGet, path: []string{"business", "service-areas"}})
}

// SetServiceAreas replaces where the business works.
func (c *Client) SetServiceAreas(ctx context.Context, by Caller, w Write, areas []ServiceArea) (ServiceAreas, error) {
	r := request{method: http.MethodPut, path: []string{"business", "service-areas"}, body: Patch{"service_areas": areas}, write: w}
	return one[ServiceAreas](ctx, c, by, "", nil, r)
}

// ContactFilter filters contacts.
type ContactFilter struct {
	Query  string        `json:"query,omitzero" minLength:"1" maxLength:"200" example:"halvorsen"`
	Status ContactStatus `json:"status,omitzero"`
	Type   ContactType   `json:"type,omitzero"`
	List
}

// Contacts are listed newest first.
func (c *Client) Contacts() Collection[Contact, ContactFilter] {
	return Collection[Contact, ContactFilter]{client: c, name: "contact", path: []string{"contacts"}}
}

// ConversationFilter filters conversations.
type ConversationFilter struct {
	Query   string    `json:"query,omitzero" minLength:"1" maxLength:"200" example:"water heater"`
	Channel Channel   `json:"channel,omitzero"`
	Since   time.Time `json:"since,omitzero" jsonschema:"Only conversations that began at this time or later." example:"2026-03-01T00:00:00-06:00"`
	Until   time.Time `json:"until,omitzero" jsonschema:"Only conversations that began before this time."`
	List
}

// Conversations are listed newest first, without their messages.
func (c *Client) Conversations() Collection[Conversation, ConversationFilter] {
	return Collection[Conversation, ConversationFilter]{client: c, name: "conversation", path: []string{"conversations"}}
}

// Calendars are listed in the order of their names.
func (c *Client) Calendars() Collection[Calendar, List] {
	return Collection[Calendar, List]{client: c, name: "calendar", path: []string{"calendars"}}
}

// AppointmentFilter filters appointments.
type AppointmentFilter struct {
	From       time.Time         `json:"from,omitzero" jsonschema:"Only appointments that start at this time or later." example:"2026-03-10T00:00:00-05:00"`
	To         time.Time         `json:"to,omitzero" jsonschema:"Only appointments that start before this time."`
	CalendarID string            `json:"calendar_id,omitzero" minLength:"1" maxLength:"128" pattern:"^[\\x21-\\x7e]+$"`
	ContactID  int64             `json:"contact_id,omitzero" minimum:"1" maximum:"9007199254740991" example:"10403"`
	Status     AppointmentStatus `json:"status,omitzero"`
	List
}

// Appointments are listed earliest first.
func (c *Client) Appointments() Collection[Appointment, AppointmentFilter] {
	return Collection[Appointment, AppointmentFilter]{client: c, name: "appointment", path: []string{"appointments"}}
}

// Receptionist returns the receptionist's personality and rules.
func (c *Client) Receptionist(ctx context.Context, by Caller) (Receptionist, error) {
	return one[Receptionist](ctx, c, by, "receptionist", nil, request{method: http.MethodGet, path: []string{"receptionist"}})
}

// UpdatePersonality changes the receptionist's personality.
func (c *Client) UpdatePersonality(ctx context.Context, by Caller, w Write, p Patch) (Receptionist, error) {
	r := request{method: http.MethodPatch, path: []string{"receptionist", "personality"}, body: p, write: w}
	return one[Receptionist](ctx, c, by, "receptionist", nil, r)
}

// SetRules replaces the receptionist's rules. Rules with the ID of an existing rule keep it.
func (c *Client) SetRules(ctx context.Context, by Caller, w Write, rules []Rule) (Receptionist, error) {
	r := request{method: http.MethodPut, path: []string{"receptionist", "rules"}, body: Patch{"rules": rules}, write: w}
	return one[Receptionist](ctx, c, by, "receptionist", nil, r)
}

// FAQs are the questions that the receptionist can answer.
func (c *Client) FAQs() Collection[FAQ, Search] {
	return Collection[FAQ, Search]{client: c, name: "faq", path: []string{"receptionist", "faqs"}}
}

// Services are the services that the receptionist can offer.
func (c *Client) Services() Collection[Offering, Search] {
	return Collection[Offering, Search]{client: c, name: "service", path: []string{"receptionist", "services"}}
}

// InvoiceFilter filters invoices.
type InvoiceFilter struct {
	Query  string        `json:"query,omitzero" minLength:"1" maxLength:"200"`
	Status InvoiceStatus `json:"status,omitzero"`
	List
}

// Invoices are listed newest first.
func (c *Client) Invoices() Collection[Invoice, InvoiceFilter] {
	return Collection[Invoice, InvoiceFilter]{client: c, name: "invoice", path: []string{"invoices"}}
}

// EstimateFilter filters estimates.
type EstimateFilter struct {
	Query         string         `json:"query,omitzero" minLength:"1" maxLength:"200"`
	Status        EstimateStatus `json:"status,omitzero"`
	PaymentStatus PaymentStatus  `json:"payment_status,omitzero"`
	List
}

// Estimates are listed newest first.
func (c *Client) Estimates() Collection[Estimate, EstimateFilter] {
	return Collection[Estimate, EstimateFilter]{client: c, name: "estimate", path: []string{"estimates"}}
}

// JobFilter filters jobs.
type JobFilter struct {
	Query  string    `json:"query,omitzero" minLength:"1" maxLength:"200"`
	Status JobStatus `json:"status,omitzero" jsonschema:"The work's status."`
	List
}

// Jobs are listed newest first.
func (c *Client) Jobs() Collection[Job, JobFilter] {
	return Collection[Job, JobFilter]{client: c, name: "job", path: []string{"jobs"}}
}

// Automations are listed by name.
func (c *Client) Automations() Collection[Automation, List] {
	return Collection[Automation, List]{client: c, name: "automation", path: []string{"automations"}}
}

// StartRun starts a run of an automation. The input is a JSON object.
func (c *Client) StartRun(ctx context.Context, by Caller, w Write, automationID string, input jsontext.Value) (Run, error) {
	requested := func(r Run) bool { return r.AutomationID == automationID }
	r := request{method: http.MethodPost, path: []string{"automations", automationID, "runs"}, body: Patch{"input": input}, write: w}
	return one(ctx, c, by, "run", requested, r)
}

// Run returns a run.
func (c *Client) Run(ctx context.Context, by Caller, id string) (Run, error) {
	return Collection[Run, List]{client: c, name: "run", path: []string{"automation-runs"}}.Get(ctx, by, id)
}

// ObjectTypes returns a page of the types of custom objects, without their schemas, by name.
func (c *Client) ObjectTypes(ctx context.Context, by Caller, l List) (Page[ObjectType], error) {
	return Collection[ObjectType, List]{client: c, name: "object_type", path: []string{"object-types"}}.List(ctx, by, l)
}

// ObjectType returns a type of custom objects with its schema.
func (c *Client) ObjectType(ctx context.Context, by Caller, name string) (DescribedType, error) {
	return Collection[DescribedType, List]{client: c, name: "object_type", path: []string{"object-types"}}.Get(ctx, by, name)
}

// Objects are the custom objects of a type, listed newest first.
func (c *Client) Objects(objectType string) Collection[Object, Search] {
	has := func(o Object) bool { return o.Type == objectType }
	return Collection[Object, Search]{client: c, name: "object", path: []string{"objects", objectType}, has: has}
}
