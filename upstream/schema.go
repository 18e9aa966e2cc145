package upstream

import (
	"cmp"
	"regexp"
	"strings"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"
)

// Types is a set of JSON types.
type Types uint8

// The JSON types.
const (
	TypeString  Types = 1 << iota
	TypeInteger       // a number without fraction and exponent, at most 18 digits
	TypeNumber        // any number
	TypeBoolean
	TypeObject
	TypeArray
	TypeNull

	TypeAny = TypeNull | TypeString | TypeInteger | TypeNumber | TypeBoolean | TypeObject | TypeArray
)

// Names returns the types as JSON Schema names them.
func (t Types) Names() (names []string) {
	for i, name := range [...]string{"string", "integer", "number", "boolean", "object", "array", "null"} {
		is := Types(1) << i
		if t&is != 0 && (is != TypeInteger || t&TypeNumber == 0) { // a number can be an integer
			names = append(names, name)
		}
	}
	return names
}

// Format is what a string must look like.
type Format uint8

// The formats of strings.
const (
	FormatText      Format = iota // anything
	FormatUUID                    // 8-4-4-4-12 hexadecimal digits
	FormatDate                    // YYYY-MM-DD
	FormatDateTime                // RFC 3339
	FormatInstant                 // RFC 3339 in UTC ("Z" or "+00:00")
	FormatTime                    // the time of RFC 3339, with its offset
	FormatTimeOfDay               // HH:MM, 00:00 to 23:59
	FormatDecimal                 // "-12.50": money and rates; any number of decimals
	FormatEmail                   // one @ between two texts without spaces
	FormatURI                     // RFC 3986, with a scheme
)

// Limits of definitions, and of the values that match them.
const (
	// MaxAlternatives is the maximum number of alternatives of a choice.
	MaxAlternatives = 256

	// MaxTried is the maximum number of alternatives that are tried, because nothing decides between them.
	MaxTried = 8

	// maxFree is the maximum number of members of a map, and of all objects in a value of free JSON, unless Rules.MaxMembers is larger.
	maxFree = 1000

	// maxUnique is the maximum number of items of an array whose items must differ.
	maxUnique = 1000

	// maxMatched is the maximum length in bytes of a string that must match a pattern.
	maxMatched = 64 << 10
)

// Schema says what a JSON value may be. It is shared by all requests and must not be changed once it is part of an [API].
type Schema struct {
	Types      Types
	Format     Format // of a string
	Rules      *Rules // nil: none
	Items      *Schema
	Properties []Property // those with Internal last; the others are written in this order
	Additional *Schema    // of further members of an object; nil: they are removed
	Choice     *Choice    // nil: none; otherwise, Types is set, and other rules only in the alternatives
	Known      []string   // the documented values of a string to which others may be added
	Refused    string     // not empty: no value is valid in a request, for this reason

	Withheld  bool     // in responses, further members, or values for which there is no alternative, are writeOnly and must not leave
	Concealed []string // pointers to the data service's members of which a hidden object is made: they never leave as undocumented

	Tenant        string   // the property that names the business to which an object belongs; empty: none
	AlsoTenant    string   // another one, which may be absent
	TenantIsField bool     // the schema itself names Tenant: a missing one is invalid, even with AllowMissingTenant
	Visible       string   // the property that says whether an object may be seen; empty: all may
	VisibleValues []string // the values of Visible with which it may be seen

	index                       map[string]int
	fields                      int // 1 more than the index of the last property that is not Internal
	tenant, alsoTenant, visible int // indexes, -1 if there is none
	free, nonEmpty              bool
	guarded                     bool            // in its values, a tenant is checked or something is removed
	hasTenant, filters          bool            // in its values, a tenant is checked, or a visibility
	reservedNames               map[string]bool // below a guarded choice: names in lower case that never pass as undocumented
	from                        *sources        // nil: the data service has all properties where they are published
	numbers                     bool            // a property has a Number
	follows                     []atomic.Uint32 // which property came after each one in the last object: a guess, as services usually keep one order
}

// Property is a member of an object.
type Property struct {
	// The fields that are used for every object come first, to be in one line of the processor's cache.
	label    string // the JSON before the value, without the comma: `"name":`
	head     string // the JSON before the value in the result, with the comma
	adjacent int    // the length of head if the data service has the same name there; otherwise 0

	Schema       *Schema
	Required     bool
	Internal     bool // it does not leave. It may be null or missing: the checks of tenant and visibility decide
	WriteOnly    bool // with Internal: only requests have it
	Part         bool // it is an object that the data service does not have: all of its properties have a Source
	HoldsRecords bool // its value is the record or the records of a response

	Name string
	From *Source // where the data service has it; nil: where it is published, or a Part

	// Number is 1 more than the index in Query.Numbers of the number that the value must equal. Default: 0, any.
	Number int

	As          string // its name for callers. Default: Name
	Description string // for people and models
	Default     []byte // JSON; nil: none. CheckBody does not add it
}

// Rules are rules beyond type and format. Each holds only for values of the type that it is about.
type Rules struct {
	MinLength, MaxLength int // of a string, in characters; MaxLength -1: any
	Patterns             []*regexp.Regexp
	Enum                 []string // JSON scalars, sorted; the strings decoded and preceded by a quote
	Min, Max             string   // JSON numbers; empty: none
	MinOpen, MaxOpen     bool     // Min or Max itself is invalid
	MinItems, MaxItems   int      // of an array; MaxItems -1: any
	Unique               bool     // the items of an array differ
	MinMembers           int      // of an object, counted as it was received
	MaxMembers           int      // -1: any

	numbers map[string]bool // the numbers of Enum in the canonical form of decimal.append
}

// NewRules returns rules that allow everything.
func NewRules() *Rules { return &Rules{MaxLength: -1, MaxItems: -1, MaxMembers: -1} }

// Choice is a value that is one of several alternatives. The JSON type of the value decides between them, and for objects the member Discriminator.
// If several are left, they are tried.
type Choice struct {
	Alternatives  []*Schema          // at most MaxAlternatives
	Discriminator string             // empty: no member decides
	Values        map[string]*Schema // by the value of Discriminator

	names map[string]bool // which members of an object an alternative publishes
}

// AnyJSON returns the schema of any JSON value. All objects in it have at most 1,000 members together.
func AnyJSON() *Schema { return &Schema{Types: TypeAny, free: true} }

// FreeJSON reports whether s comes from AnyJSON.
func (s *Schema) FreeJSON() bool { return s.free }

// maxFree returns the maximum number of members of a map, and of all objects in a value of free JSON.
func (s *Schema) maxFree() int {
	if s.Rules == nil {
		return maxFree
	}
	return max(maxFree, s.Rules.MaxMembers)
}

// Property returns the property with a name, or nil.
func (s *Schema) Property(name string) *Property {
	return find(s.Properties, func(p *Property) bool { return p.Name == name })
}

// At follows the names through nested objects, and returns the schema of the last member, or nil.
func (s *Schema) At(names []string) *Schema {
	for _, name := range names {
		if s == nil || s.Property(name) == nil {
			return nil
		}
		s = s.Property(name).Schema
	}
	return s
}

// compile prepares a schema and those it refers to.
func (s *Schema) compile() {
	if s == nil || s.index != nil {
		return
	}
	s.index = make(map[string]int, len(s.Properties))
	s.tenant, s.alsoTenant, s.visible = -1, -1, -1
	if r := s.Rules; r != nil {
		r.compile()
		s.nonEmpty = r.MinLength == 1 && r.MaxLength < 0 && r.Patterns == nil && r.Enum == nil
	}
	for i := range s.Properties {
		p := &s.Properties[i]
		p.label = label(p.Name)
		if p.head = "," + label(cmp.Or(p.As, p.Name)); p.head[1:] == p.label && p.From == nil {
			p.adjacent = len(p.head)
		}
		s.index[p.Name] = i
		if !p.Internal {
			s.fields = i + 1
		}
		s.numbers = s.numbers || p.Number > 0
		if p.Name == "" { // an empty name is possible; empty Tenant, AlsoTenant and Visible mean none
			continue
		}
		switch p.Name {
		case s.Tenant:
			s.tenant = i
		case s.AlsoTenant:
			s.alsoTenant = i
		}
		if p.Name == s.Visible {
			s.visible = i
		}
	}
	s.follows = make([]atomic.Uint32, len(s.Properties)+1)
	for i := range s.Properties {
		s.follows[i].Store(uint32(i))
	}
	s.Parts((*Schema).compile)
	if s.Choice != nil && s.Choice.names == nil {
		s.Choice.names = map[string]bool{}
		s.addNames(s.Choice.names)
	}
	s.compileSources()
}

// addNames adds the names that published members of an object have at the data service.
func (s *Schema) addNames(names map[string]bool) {
	for i := range s.Properties {
		if p := &s.Properties[i]; !p.Internal {
			names[p.serviceName()] = true
		}
	}
	if s.Choice != nil {
		for _, alternative := range s.Choice.Alternatives {
			alternative.addNames(names)
		}
	}
}

// Parts calls visit with the schemas that s is made of: of its members, items, further members (each nil if there is none) and alternatives.
func (s *Schema) Parts(visit func(*Schema)) {
	for i := range s.Properties {
		visit(s.Properties[i].Schema)
	}
	visit(s.Items)
	visit(s.Additional)
	if s.Choice != nil {
		for _, alternative := range s.Choice.Alternatives {
			visit(alternative)
		}
	}
}

// label returns a name and its colon.
func label(name string) string {
	quoted, _ := jsontext.AppendQuote(nil, name) // the document is UTF-8
	return string(quoted) + ":"
}

// expected describes valid values, for a ContractError.
func (s *Schema) expected() string {
	if s.Types&TypeString != 0 && s.Format != FormatText {
		return [...]string{
			FormatUUID: "a UUID", FormatDate: "a date, YYYY-MM-DD", FormatDateTime: "a date and time, RFC 3339",
			FormatInstant: "an instant, RFC 3339 in UTC", FormatTime: "a time, RFC 3339", FormatTimeOfDay: "a time of day, HH:MM",
			FormatDecimal: `a decimal number in a string, such as "12.50"`, FormatEmail: "an email address", FormatURI: "a URI",
		}[s.Format]
	}
	var words []string
	for _, name := range (s.Types &^ TypeNull).Names() {
		words = append(words, map[string]string{
			"string": "a string", "integer": "an integer of at most 18 digits", "number": "a number",
			"boolean": "true or false", "object": "an object", "array": "an array",
		}[name])
	}
	return cmp.Or(strings.Join(words, " or "), "null")
}
