package upstream

import (
	"slices"
	"strings"
)

// MaxParams is the maximum number of parameters of a resource. It lets CleanQuery keep its state on the stack.
const MaxParams = 4

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

// Param is a query parameter: a whole number, which is set to the nearest bound if it is outside, or UTF-8 text without control
// characters; empty text means absent.
type Param struct {
	Name      string
	MaxLength int // of decoded text, in bytes; 0: it is a number

	Default, Min, Max int // of a number
}

// PageCheck says that a member of the envelope must be what a parameter asked for.
type PageCheck struct {
	Param  int    // index into Params
	Member string // of Envelope
}

// Resource is a resource of an API. It is shared by all requests and must not be changed once it is part of an API.
type Resource struct {
	Name      string  // the last segment of the path, such as "events"; also used in logs, metrics and assertions
	Path      string  // "/api/v1/events"
	Public    bool    // anyone may call it; otherwise, requests must be signed by an active business
	ByGateway bool    // the gateway responds itself, without an upstream
	Answer    []byte  // with ByGateway: the JSON of every response; nil: the business of the credential
	Params    []Param // the query parameters, in the order in which they are forwarded
	List      string  // the top-level member with the records; empty if there is no list
	Object    string  // the top-level member with the single record; empty if there is none
	Fields    []Field // the documented members of a record, in the order of the response
	Internal  []Field // members that the data service sends only for the gateway, the tenant's among them

	Tenant   string      // the internal member with the ID of the business that a record belongs to
	Order    []string    // the members by which a list is sorted, newest first; the first that is not null is used
	AtMost   int         // index of the parameter that bounds the number of records in the list
	Visible  string      // the internal member that says whether a record of the list may be seen; empty: all may
	Shown    []string    // the values of Visible with which a record may be seen
	Envelope string      // the top-level member beside the list, with numbers about it; empty if there is none
	Numbers  []Field     // the members of the envelope: required integers that are not negative
	Pages    []PageCheck // of the envelope

	schema   *schema // compiled from the above; nil if ByGateway
	envelope *schema // compiled from Numbers
}

// API is what may be called, and what may come back. It is immutable.
type API struct {
	base      string // "/api/v1"
	resources []*Resource
	byName    map[string]*Resource
}

// NewAPI compiles resources whose paths are below a base path such as "/api/v1".
func NewAPI(base string, resources []Resource) *API {
	a := &API{base: base, byName: make(map[string]*Resource, len(resources))}
	for i := range resources {
		r := &resources[i]
		r.Path = base + "/" + r.Name
		if !r.ByGateway {
			r.schema = compileSchema(r)
		}
		if r.Envelope != "" {
			r.envelope = compileFields(r.Envelope+".", r.Numbers, nil)
			r.envelope.guess = 2 * maxMembers // after those of all records
		}
		a.resources = append(a.resources, r)
		a.byName[r.Name] = r
	}
	return a
}

// Base returns the path below which all resources are, such as "/api/v1".
func (a *API) Base() string { return a.base }

// Match returns the resource and the raw query of a request target in origin form, as sent. The path must equal that of a
// resource byte for byte: nothing is decoded or normalised.
func (a *API) Match(target string) (res *Resource, rawQuery string, ok bool) {
	path, rawQuery, _ := strings.Cut(target, "?")
	if len(path) <= len(a.base) || path[:len(a.base)] != a.base || path[len(a.base)] != '/' {
		return nil, "", false
	}
	res = a.byName[path[len(a.base)+1:]]
	// A request target must not have a fragment (RFC 9112, section 3.2). Parsers disagree about targets with one.
	if res == nil || strings.IndexByte(rawQuery, '#') >= 0 {
		return nil, "", false
	}
	return res, rawQuery, true
}

// Resources returns all resources in the order of the definition.
func (a *API) Resources() []*Resource { return slices.Clone(a.resources) }

// ByName returns the resource with a name such as "events", or nil.
func (a *API) ByName(name string) *Resource { return a.byName[name] }
