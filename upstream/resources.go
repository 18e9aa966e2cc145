package upstream

import (
	"slices"
	"strings"
)

// Prefix is the prefix of all public paths.
const Prefix = "/api/v1/"

// The limits and defaults of query parameters. page, per_page and count are whole numbers from 1, which are clamped. The others
// are UTF-8 text without control characters; empty text means absent.
const (
	MaxPage        = 1<<31 - 1
	DefaultPerPage = 25
	MaxPerPage     = 100
	DefaultCount   = 10
	MaxCount       = 100
	MaxText        = 128 // bytes, decoded
)

// maxParams is the maximum number of parameters of a resource. It lets CleanQuery keep its state on the stack.
const maxParams = 4

// Kind is the type of a field. Every kind allows null unless the field is Required.
type Kind uint8

// The types of fields.
const (
	KindText     Kind = iota // a string
	KindKey                  // a non-empty string or an integer: an ID or number in the platform's own format
	KindUUID                 // a string, 8-4-4-4-12 hexadecimal digits
	KindInteger              // a number without fraction and exponent, at most 18 digits
	KindBool                 // true or false
	KindDecimal              // a string, "-12.50": money and rates; any number of decimals
	KindInstant              // a string, RFC 3339 in UTC ("Z" or "+00:00")
	KindDate                 // a string, YYYY-MM-DD
	KindTime                 // a string, HH:MM, 00:00 to 23:59
	KindTexts                // an array of strings
	KindObjects              // an array of objects with fields of their own
	KindBusiness             // the authenticated business's ID, as a string or an integer; callers get a string
)

// String returns the description of the kind in a ContractError.
func (k Kind) String() string {
	return [...]string{
		KindText:     "a string",
		KindKey:      "a non-empty string or an integer of at most 18 digits",
		KindUUID:     "a UUID",
		KindInteger:  "an integer of at most 18 digits",
		KindBool:     "true or false",
		KindDecimal:  `a decimal number in a string, such as "12.50"`,
		KindInstant:  "an instant, RFC 3339 in UTC",
		KindDate:     "a date, YYYY-MM-DD",
		KindTime:     "a time of day, HH:MM",
		KindTexts:    "an array of strings",
		KindObjects:  "an array of objects",
		KindBusiness: "the business ID as a string or an integer",
	}[k]
}

// Field is a documented member of a record.
type Field struct {
	Name     string
	Kind     Kind
	Required bool     // must be present and not null
	Values   []string // the documented values of an enumeration; others are allowed, as the contract may add values
	Fields   []Field  // the members of each object, for KindObjects
}

// Resource is a resource of the public API. The package's resources are shared by all requests: they must not be changed.
type Resource struct {
	Name      string   // the last segment of the path, such as "events"; also used in logs, metrics and assertions
	Path      string   // "/api/v1/events"
	Public    bool     // anyone may call it; otherwise, requests must be signed by an active business
	ByGateway bool     // the gateway responds itself, without an upstream
	Params    []string // the query parameters, in the order in which they are forwarded
	List      string   // the top-level member with the records; empty if there is no list
	Object    string   // the top-level member with the single record; empty if there is none
	Paginated bool     // the response has the member pagination
	Fields    []Field  // the documented members of a record, in the order of the response

	order    []string // the members by which a list is sorted, newest first; the first that is not null is used
	internal []Field  // members that the data service sends only for the gateway
	schema   *schema  // compiled from the above; nil if ByGateway
}

// Match returns the resource and the raw query of a request target in origin form, as sent. The path must equal that of a
// resource byte for byte: nothing is decoded or normalised.
func Match(target string) (res *Resource, rawQuery string, ok bool) {
	path, rawQuery, _ := strings.Cut(target, "?")
	if len(path) <= len(Prefix) || path[:len(Prefix)] != Prefix {
		return nil, "", false
	}
	res = byName[path[len(Prefix):]]
	// A request target must not have a fragment (RFC 9112, section 3.2). Parsers disagree about targets with one.
	if res == nil || strings.IndexByte(rawQuery, '#') >= 0 {
		return nil, "", false
	}
	return res, rawQuery, true
}

// Resources returns all resources in the order of the contract.
func Resources() []*Resource { return slices.Clone(resources) }

// ByName returns the resource with a name such as "events", or nil.
func ByName(name string) *Resource { return byName[name] }

//nolint:gochecknoglobals // read-only
var (
	resources = compile(contractResources())
	byName    = indexByName(resources)
)

func indexByName(rs []*Resource) map[string]*Resource {
	m := make(map[string]*Resource, len(rs))
	for _, r := range rs {
		m[r.Name] = r
	}
	return m
}

func compile(rs []Resource) []*Resource {
	out := make([]*Resource, len(rs))
	for i := range rs {
		r := &rs[i]
		r.Path = Prefix + r.Name
		if !r.ByGateway {
			r.schema = compileSchema(r)
		}
		out[i] = r
	}
	return out
}

// contractResources returns the resources of the contract.
func contractResources() []Resource {
	list := func(name string, filters []string, order string, fields ...Field) Resource {
		return Resource{
			Name: name, Params: append([]string{"page", "per_page"}, filters...), List: name, Paginated: true,
			Fields: fields, order: []string{order},
		}
	}
	text := func(name string) Field { return Field{Name: name, Kind: KindText} }
	enum := func(name string, values ...string) Field { return Field{Name: name, Kind: KindText, Values: values} }
	of := func(kind Kind, name string) Field { return Field{Name: name, Kind: kind} }
	id := func(kind Kind) Field { return Field{Name: "id", Kind: kind, Required: true} }
	money := func(name string) Field { return of(KindDecimal, name) }
	instant := func(name string) Field { return of(KindInstant, name) }
	integer := func(name string) Field { return of(KindInteger, name) }

	return []Resource{
		{
			Name: "status", Public: true, ByGateway: true,
			Fields: []Field{enum("status", "ok"), enum("api_version", "v1")},
		},
		{
			Name: "me", ByGateway: true, Object: "business",
			Fields: []Field{id(KindBusiness), text("name"), text("slug")},
		},
		{
			Name: "business", Object: "business",
			Fields: []Field{
				id(KindBusiness), text("name"), text("slug"), text("email"), text("phone"), text("website_url"),
				text("time_zone"), text("account_status"),
			},
		},
		list("contacts", []string{"status", "type"}, "date_created",
			id(KindInteger), text("first_name"), text("last_name"), text("email"), text("phone_number"),
			text("country_code"), enum("contact_type", "customer", "lead", "vendor"),
			enum("contact_status", "active", "inactive"), text("notes"), instant("date_created"),
			instant("date_modified")),
		list("equipment", []string{"status", "category"}, "created_at",
			id(KindKey), of(KindKey, "equipment_number"), text("name"), text("serial_number"), text("tracking_mode"),
			integer("quantity"), text("category"), text("model"), text("manufacturer"),
			enum("status", "available", "assigned", "maintenance", "retired"), of(KindDate, "purchase_date"),
			integer("maintenance_interval_days"), of(KindDate, "next_maintenance_date"), instant("created_at"),
			instant("updated_at")),
		list("estimates", []string{"status", "payment_status"}, "created_at",
			id(KindKey), of(KindKey, "estimate_number"), text("title"),
			enum("status", "draft", "sent", "approved", "declined", "expired"),
			enum("payment_status", "unpaid", "partial", "paid"), money("subtotal"), text("discount_type"),
			money("discount_value"), money("tax_rate"), money("tax_amount"), money("total_amount"),
			of(KindBool, "deposit_required"), money("deposit_amount"), money("amount_paid"), instant("expires_at"),
			instant("sent_at"), instant("approved_at"), instant("created_at"), instant("updated_at")),
		list("invoices", []string{"status"}, "created_at",
			id(KindKey), of(KindKey, "invoice_number"), text("title"),
			enum("status", "draft", "sent", "viewed", "paid", "overdue", "voided"), money("subtotal"),
			text("discount_type"), money("discount_value"), money("tax_rate"), money("tax_amount"),
			money("total_amount"), money("paid_amount"), instant("due_at"), instant("issued_at"), instant("sent_at"),
			instant("paid_at"), instant("created_at"), instant("updated_at")),
		list("jobs", []string{"status"}, "created_at",
			id(KindUUID), of(KindKey, "job_number"), text("name"), text("description"),
			enum("work_status", "draft", "sent", "scheduled", "in_progress", "completed", "cancelled"),
			money("total_amount"), money("outstanding_balance"), text("lead_source"), instant("created_at"),
			instant("updated_at")),
		list("offerings", []string{"status"}, "created_at",
			id(KindKey), text("name"), enum("type", "service", "product"), enum("status", "active", "inactive"),
			text("description"), of(KindTexts, "service_details"), of(KindBool, "dont_book_appointment"),
			integer("appointment_duration"), instant("created_at"), instant("updated_at")),
		{
			Name: "events", Params: []string{"count"}, List: "events",
			Fields: []Field{
				id(KindUUID), text("title"), text("description"), text("url"), enum("type", "multi-day"),
				{Name: "schedule", Kind: KindObjects, Fields: []Field{
					of(KindDate, "date"), of(KindTime, "start_time"), of(KindTime, "end_time"),
				}},
				enum("location_type", "in-person"), text("venue"), text("address"), text("virtual_link"),
				of(KindBool, "is_free"), text("image_url"),
				{Name: "media", Kind: KindObjects, Fields: []Field{
					text("url"), enum("file_type", "image"), text("caption"), of(KindBool, "featured"),
				}},
			},
			order:    []string{"published_at", "created_at"},
			internal: []Field{text(statusField), instant("published_at"), instant("created_at")},
		},
	}
}
