package data

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Filters are also the arguments of search tools: their tags are keywords of the input schemas. Empty members are not sent.

// List is the arguments of every list.
type List struct {
	Limit  int    `json:"limit,omitzero" minimum:"1" maximum:"100" default:"25" jsonschema:"How many to return at most."`
	Cursor string `json:"cursor,omitzero" minLength:"1" maxLength:"512" pattern:"^[\\x21-\\x7e]+$"` // Page.Next
}

// Search is the arguments of a list with a full-text query.
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

// list reads a page of a list. is reports whether a record may be in it; nil: any record of the business.
func list[T record](
	ctx context.Context, c *Client, by Caller, name string, filter any, is func(T) bool, path ...string,
) (Page[T], error) {
	response := page[T]{name: name, is: is}
	if err := c.do(ctx, by, request{method: http.MethodGet, path: path, query: values(filter)}, &response); err != nil {
		return Page[T]{}, err
	}
	return Page[T]{Items: response.items, Next: response.next}, nil
}

// one reads a record. is reports whether it is the one that the path names; nil if a business has only one.
func one[T record](
	ctx context.Context, c *Client, by Caller, name string, is func(T) bool, path ...string,
) (T, error) {
	return change(ctx, c, by, name, http.MethodGet, nil, Write{}, is, path...)
}

// change creates or changes a record and decodes it; is as in one.
func change[T record](
	ctx context.Context, c *Client, by Caller, name, method string, body any, w Write, is func(T) bool, path ...string,
) (T, error) {
	response := single[T]{name: name, is: is}
	if err := c.do(ctx, by, request{method: method, path: path, body: body, write: w}, &response); err != nil {
		var none T
		return none, err
	}
	return response.record, nil
}

// remove deletes the record that the path names.
func remove[ID comparable](ctx context.Context, c *Client, by Caller, w Write, id ID, path ...string) error {
	return c.do(ctx, by, request{method: http.MethodDelete, path: path, write: w}, &gone[ID]{id: id})
}

// Patch is a JSON merge patch (RFC 7396).
type Patch map[string]any

// Business returns the business.
func (c *Client) Business(ctx context.Context, by Caller) (Business, error) {
	return one(ctx, c, by, "business", by.owns, "business")
}

// UpdateBusiness changes the business: name, email, phone, website_url, time_zone.
func (c *Client) UpdateBusiness(ctx context.Context, by Caller, w Write, p Patch) (Business, error) {
	return change(ctx, c, by, "business", http.MethodPatch, p, w, by.owns, "business")
}

// owns returns a check whether a business is the caller's.
func (by Caller) owns(b Business) bool { return b.ID == by.BusinessID }

// Hours returns the opening hours.
func (c *Client) Hours(ctx context.Context, by Caller) (Hours, error) {
	return one[Hours](ctx, c, by, "", nil, "business", "hours")
}

// SetHours replaces the opening hours.
func (c *Client) SetHours(ctx context.Context, by Caller, w Write, hours []Span) (Hours, error) {
	body := map[string]any{"hours": orEmpty(hours)}
	return change[Hours](ctx, c, by, "", http.MethodPut, body, w, nil, "business", "hours")
}

// ServiceAreas returns where the business works.
func (c *Client) ServiceAreas(ctx context.Context, by Caller) (ServiceAreas, error) {
	return one[ServiceAreas](ctx, c, by, "", nil, "business", "service-areas")
}

// SetServiceAreas replaces where the business works.
func (c *Client) SetServiceAreas(ctx context.Context, by Caller, w Write, areas []ServiceArea) (ServiceAreas, error) {
	body := map[string]any{"service_areas": orEmpty(areas)}
	return change[ServiceAreas](ctx, c, by, "", http.MethodPut, body, w, nil, "business", "service-areas")
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// ContactFilter filters contacts.
type ContactFilter struct {
	Query  string        `json:"query,omitzero" minLength:"1" maxLength:"200" example:"halvorsen"`
	Status ContactStatus `json:"status,omitzero"`
	Type   ContactType   `json:"type,omitzero"`
	List
}

// Contacts finds contacts, newest first.
func (c *Client) Contacts(ctx context.Context, by Caller, f ContactFilter) (Page[Contact], error) {
	return list[Contact](ctx, c, by, "contacts", f, nil, "contacts")
}

// Contact returns a contact.
func (c *Client) Contact(ctx context.Context, by Caller, id int64) (Contact, error) {
	is := func(r Contact) bool { return r.ID == id }
	return one(ctx, c, by, "contact", is, "contacts", strconv.FormatInt(id, 10))
}

// CreateContact adds a contact.
func (c *Client) CreateContact(ctx context.Context, by Caller, w Write, p Patch) (Contact, error) {
	return change[Contact](ctx, c, by, "contact", http.MethodPost, p, w, nil, "contacts")
}

// UpdateContact changes a contact.
func (c *Client) UpdateContact(ctx context.Context, by Caller, w Write, id int64, p Patch) (Contact, error) {
	is := func(r Contact) bool { return r.ID == id }
	return change(ctx, c, by, "contact", http.MethodPatch, p, w, is, "contacts", strconv.FormatInt(id, 10))
}

// DeleteContact deletes a contact.
func (c *Client) DeleteContact(ctx context.Context, by Caller, w Write, id int64) error {
	return remove(ctx, c, by, w, id, "contacts", strconv.FormatInt(id, 10))
}

// ConversationFilter filters conversations.
type ConversationFilter struct {
	Query   string    `json:"query,omitzero" minLength:"1" maxLength:"200" example:"water heater"`
	Channel Channel   `json:"channel,omitzero"`
	Since   time.Time `json:"since,omitzero" jsonschema:"Only conversations that began at this instant or later." example:"2026-03-01T00:00:00-06:00"`
	Until   time.Time `json:"until,omitzero" jsonschema:"Only conversations that began before this instant."`
	List
}

// Conversations finds conversations, newest first.
func (c *Client) Conversations(ctx context.Context, by Caller, f ConversationFilter) (Page[Conversation], error) {
	return list[Conversation](ctx, c, by, "conversations", f, nil, "conversations")
}

// Conversation returns a conversation with its messages.
func (c *Client) Conversation(ctx context.Context, by Caller, id string) (Conversation, error) {
	is := func(r Conversation) bool { return r.ID == id }
	return one(ctx, c, by, "conversation", is, "conversations", id)
}

// Calendars returns the calendars in the order of their names.
func (c *Client) Calendars(ctx context.Context, by Caller, l List) (Page[Calendar], error) {
	return list[Calendar](ctx, c, by, "calendars", l, nil, "calendars")
}

// AppointmentFilter filters appointments.
type AppointmentFilter struct {
	From       time.Time         `json:"from,omitzero" jsonschema:"Only appointments that start at this instant or later." example:"2026-03-10T00:00:00-05:00"`
	To         time.Time         `json:"to,omitzero" jsonschema:"Only appointments that start before this instant."`
	CalendarID string            `json:"calendar_id,omitzero" minLength:"1" maxLength:"128" pattern:"^[\\x21-\\x7e]+$"`
	ContactID  int64             `json:"contact_id,omitzero" minimum:"1" maximum:"9007199254740991" example:"10403"`
	Status     AppointmentStatus `json:"status,omitzero"`
	List
}

// Appointments finds appointments, the earliest first.
func (c *Client) Appointments(ctx context.Context, by Caller, f AppointmentFilter) (Page[Appointment], error) {
	return list[Appointment](ctx, c, by, "appointments", f, nil, "appointments")
}

// Appointment returns an appointment.
func (c *Client) Appointment(ctx context.Context, by Caller, id string) (Appointment, error) {
	return one(ctx, c, by, "appointment", func(r Appointment) bool { return r.ID == id }, "appointments", id)
}

// Receptionist returns the receptionist's personality and rules.
func (c *Client) Receptionist(ctx context.Context, by Caller) (Receptionist, error) {
	return one[Receptionist](ctx, c, by, "receptionist", nil, "receptionist")
}

// UpdatePersonality changes the receptionist's personality.
func (c *Client) UpdatePersonality(ctx context.Context, by Caller, w Write, p Patch) (Receptionist, error) {
	return change[Receptionist](
		ctx, c, by, "receptionist", http.MethodPatch, p, w, nil, "receptionist", "personality",
	)
}

// SetRules replaces the receptionist's rules. Rules with the ID of an existing rule keep it.
func (c *Client) SetRules(ctx context.Context, by Caller, w Write, rules []Rule) (Receptionist, error) {
	body := map[string]any{"rules": orEmpty(rules)}
	return change[Receptionist](ctx, c, by, "receptionist", http.MethodPut, body, w, nil, "receptionist", "rules")
}

// FAQs finds questions that the receptionist can answer.
func (c *Client) FAQs(ctx context.Context, by Caller, s Search) (Page[FAQ], error) {
	return list[FAQ](ctx, c, by, "faqs", s, nil, "receptionist", "faqs")
}

// FAQ returns an FAQ.
func (c *Client) FAQ(ctx context.Context, by Caller, id string) (FAQ, error) {
	return one(ctx, c, by, "faq", func(r FAQ) bool { return r.ID == id }, "receptionist", "faqs", id)
}

// CreateFAQ adds an FAQ.
func (c *Client) CreateFAQ(ctx context.Context, by Caller, w Write, p Patch) (FAQ, error) {
	return change[FAQ](ctx, c, by, "faq", http.MethodPost, p, w, nil, "receptionist", "faqs")
}

// ReplaceFAQ replaces an FAQ.
func (c *Client) ReplaceFAQ(ctx context.Context, by Caller, w Write, id string, p Patch) (FAQ, error) {
	is := func(r FAQ) bool { return r.ID == id }
	return change(ctx, c, by, "faq", http.MethodPut, p, w, is, "receptionist", "faqs", id)
}

// DeleteFAQ deletes an FAQ.
func (c *Client) DeleteFAQ(ctx context.Context, by Caller, w Write, id string) error {
	return remove(ctx, c, by, w, id, "receptionist", "faqs", id)
}

// Services finds services that the receptionist can offer.
func (c *Client) Services(ctx context.Context, by Caller, s Search) (Page[Offering], error) {
	return list[Offering](ctx, c, by, "services", s, nil, "receptionist", "services")
}

// Service returns a service.
func (c *Client) Service(ctx context.Context, by Caller, id string) (Offering, error) {
	is := func(r Offering) bool { return r.ID == id }
	return one(ctx, c, by, "service", is, "receptionist", "services", id)
}

// CreateService adds a service.
func (c *Client) CreateService(ctx context.Context, by Caller, w Write, p Patch) (Offering, error) {
	return change[Offering](ctx, c, by, "service", http.MethodPost, p, w, nil, "receptionist", "services")
}

// ReplaceService replaces a service.
func (c *Client) ReplaceService(ctx context.Context, by Caller, w Write, id string, p Patch) (Offering, error) {
	is := func(r Offering) bool { return r.ID == id }
	return change(ctx, c, by, "service", http.MethodPut, p, w, is, "receptionist", "services", id)
}

// DeleteService deletes a service.
func (c *Client) DeleteService(ctx context.Context, by Caller, w Write, id string) error {
	return remove(ctx, c, by, w, id, "receptionist", "services", id)
}

// InvoiceFilter filters invoices.
type InvoiceFilter struct {
	Query  string        `json:"query,omitzero" minLength:"1" maxLength:"200"`
	Status InvoiceStatus `json:"status,omitzero"`
	List
}

// EstimateFilter filters estimates.
type EstimateFilter struct {
	Query         string         `json:"query,omitzero" minLength:"1" maxLength:"200"`
	Status        EstimateStatus `json:"status,omitzero"`
	PaymentStatus PaymentStatus  `json:"payment_status,omitzero"`
	List
}

// JobFilter filters jobs.
type JobFilter struct {
	Query  string    `json:"query,omitzero" minLength:"1" maxLength:"200"`
	Status JobStatus `json:"status,omitzero" jsonschema:"The work's status."`
	List
}

// Invoices finds invoices, newest first.
func (c *Client) Invoices(ctx context.Context, by Caller, f InvoiceFilter) (Page[Invoice], error) {
	return list[Invoice](ctx, c, by, "invoices", f, nil, "invoices")
}

// Invoice returns an invoice.
func (c *Client) Invoice(ctx context.Context, by Caller, id string) (Invoice, error) {
	return one(ctx, c, by, "invoice", func(r Invoice) bool { return r.ID == id }, "invoices", id)
}

// Estimates finds estimates, newest first.
func (c *Client) Estimates(ctx context.Context, by Caller, f EstimateFilter) (Page[Estimate], error) {
	return list[Estimate](ctx, c, by, "estimates", f, nil, "estimates")
}

// Estimate returns an estimate.
func (c *Client) Estimate(ctx context.Context, by Caller, id string) (Estimate, error) {
	return one(ctx, c, by, "estimate", func(r Estimate) bool { return r.ID == id }, "estimates", id)
}

// Jobs finds jobs, newest first.
func (c *Client) Jobs(ctx context.Context, by Caller, f JobFilter) (Page[Job], error) {
	return list[Job](ctx, c, by, "jobs", f, nil, "jobs")
}

// Job returns a job.
func (c *Client) Job(ctx context.Context, by Caller, id string) (Job, error) {
	return one(ctx, c, by, "job", func(r Job) bool { return r.ID == id }, "jobs", id)
}

// Automations returns the automations, by name.
func (c *Client) Automations(ctx context.Context, by Caller, l List) (Page[Automation], error) {
	return list[Automation](ctx, c, by, "automations", l, nil, "automations")
}

// StartRun starts a run of an automation. The input is a JSON object; nil is an empty one.
func (c *Client) StartRun(
	ctx context.Context, by Caller, w Write, automationID string, input jsontext.Value,
) (Run, error) {
	if input == nil {
		input = jsontext.Value("{}")
	}
	body := map[string]any{"input": input}
	is := func(r Run) bool { return r.AutomationID == automationID }
	return change(ctx, c, by, "run", http.MethodPost, body, w, is, "automations", automationID, "runs")
}

// Run returns a run.
func (c *Client) Run(ctx context.Context, by Caller, id string) (Run, error) {
	return one(ctx, c, by, "run", func(r Run) bool { return r.ID == id }, "automation-runs", id)
}

// ObjectTypes returns the types of custom objects without their schemas, by name.
func (c *Client) ObjectTypes(ctx context.Context, by Caller, l List) (Page[ObjectType], error) {
	return list[ObjectType](ctx, c, by, "object_types", l, nil, "object-types")
}

// ObjectType returns a type of custom objects with its schema.
func (c *Client) ObjectType(ctx context.Context, by Caller, name string) (DescribedType, error) {
	is := func(t DescribedType) bool { return t.Name == name }
	return one(ctx, c, by, "object_type", is, "object-types", name)
}

// Objects finds custom objects of a type, newest first.
func (c *Client) Objects(ctx context.Context, by Caller, objectType string, s Search) (Page[Object], error) {
	is := func(o Object) bool { return o.Type == objectType }
	return list(ctx, c, by, "objects", s, is, "objects", objectType)
}

// Object returns a custom object.
func (c *Client) Object(ctx context.Context, by Caller, objectType, id string) (Object, error) {
	is := func(o Object) bool { return o.Type == objectType && o.ID == id }
	return one(ctx, c, by, "object", is, "objects", objectType, id)
}

// CreateObject adds a custom object. The fields are a JSON object.
func (c *Client) CreateObject(
	ctx context.Context, by Caller, w Write, objectType string, fields jsontext.Value,
) (Object, error) {
	body := map[string]any{"fields": fields}
	is := func(o Object) bool { return o.Type == objectType }
	return change(ctx, c, by, "object", http.MethodPost, body, w, is, "objects", objectType)
}

// UpdateObject changes fields of a custom object by a JSON merge patch.
func (c *Client) UpdateObject(
	ctx context.Context, by Caller, w Write, objectType, id string, fields jsontext.Value,
) (Object, error) {
	body := map[string]any{"fields": fields}
	is := func(o Object) bool { return o.Type == objectType && o.ID == id }
	return change(ctx, c, by, "object", http.MethodPatch, body, w, is, "objects", objectType, id)
}

// DeleteObject deletes a custom object.
func (c *Client) DeleteObject(ctx context.Context, by Caller, w Write, objectType, id string) error {
	return remove(ctx, c, by, w, id, "objects", objectType, id)
}
