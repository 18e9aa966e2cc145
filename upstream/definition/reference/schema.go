package reference

import (
	"html/template"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// side is who sends a body. Members that the other side alone sends are left out.
type side string

const (
	caller  side = "readOnly"
	gateway side = "writeOnly"
)

// field describes a parameter, a header, a member of an object, or a whole body.
type field struct {
	Name       string
	Type       string
	Of         *link  // of the object that the type is, or is made of
	Presence   string // required, optional or "": always there
	Deprecated bool
	Text       template.HTML
	Facts      []fact
	Values     []string
	Growing    bool // other values may be added
	Fields     []field
	Choices    []field
}

type fact struct{ Name, Value string }

// shape is what a schema says together with what it refers to and is made of (allOf).
type shape struct {
	ref      string // the component that it is, if it is one
	keywords map[string]node
	members  []entry
	required []string
	choices  []node
}

// shape returns the shape of a schema. What stands nearest wins.
func (p *page) shape(schema node) *shape {
	if s := p.shapes[schema.Node]; s != nil {
		return s
	}
	s := &shape{keywords: map[string]node{}}
	p.shapes[schema.Node] = s
	seen, named := map[string]bool{}, map[string]bool{}
	var add func(n node)
	add = func(n node) {
		for _, e := range n.entries() {
			switch e.name {
			case "properties":
				for _, m := range e.value.entries() {
					if !named[m.name] {
						named[m.name] = true
						s.members = append(s.members, m)
					}
				}
			case "required":
				s.required = append(s.required, e.value.texts()...)
			case "oneOf", "anyOf":
				s.choices = append(s.choices, e.value.items()...)
			default:
				if s.keywords[e.name].Node == nil {
					s.keywords[e.name] = e.value
				}
			}
		}
		for _, part := range n.get("allOf").items() {
			add(part)
		}
		if ref := n.get("$ref").text(); ref != "" && !seen[ref] {
			seen[ref] = true
			add(p.resolve(n))
		}
	}
	add(schema)
	ref := schema.get("$ref").text()
	if all := schema.get("allOf").items(); ref == "" && len(all) == 1 && schema.get("properties").Node == nil { // with a description or null
		ref = all[0].get("$ref").text()
	}
	if ref != "" {
		s.ref = component(ref)
	}
	return s
}

func (p *page) resolve(n node) node {
	for range 64 { // more is a cycle
		ref, ok := strings.CutPrefix(n.get("$ref").text(), "#/")
		if !ok {
			break
		}
		n = p.root.get(strings.Split(ref, "/")...)
	}
	return n
}

// below returns the schemas of what a value is made of.
func (s *shape) below(from side) (all []node) {
	for _, m := range s.seenBy(from) {
		all = append(all, m.value)
	}
	return append(append(all, s.choices...), s.keywords["items"], s.keywords["additionalProperties"])
}

// seenBy returns the members that a side sends.
func (s *shape) seenBy(from side) []entry {
	return slices.DeleteFunc(slices.Clone(s.members), func(m entry) bool { return m.value.get(string(from)).isTrue() })
}

// types returns the JSON types but for null, and whether null is one.
func (s *shape) types() (types []string, null bool) {
	all := s.keywords["type"].texts()
	if one := s.keywords["type"].text(); one != "" {
		all = []string{one}
	}
	types = slices.DeleteFunc(slices.Clone(all), func(t string) bool { return t == "null" })
	return types, len(types) < len(all)
}

// impliedType returns the type of a schema that does not say it, or "".
func (s *shape) impliedType() string {
	value := s.keywords["const"]
	if enum := s.keywords["enum"].items(); len(enum) > 0 {
		value = enum[0]
	}
	switch {
	case len(s.members) > 0:
		return "object"
	case value.Node == nil || value.Kind != yaml.ScalarNode:
		return ""
	}
	return map[string]string{"!!int": "integer", "!!float": "number", "!!bool": "boolean", "!!str": "string"}[value.ShortTag()]
}

// place is a schema where it stands, for one side.
type place struct {
	*yaml.Node
	from side
}

// object is a component that is described once, for one side.
type object struct {
	name string
	from side
}

// count counts how often objects are referred to.
func (p *page) count(schema node, from side) {
	if schema.Node == nil {
		return
	}
	s, at := p.shape(schema), place{schema.Node, from}
	if o := (object{s.ref, from}); s.ref != "" {
		if p.references[o]++; p.references[o] > 1 {
			return
		}
	}
	if p.counted[at] { // a schema within itself, by allOf
		return
	}
	p.counted[at] = true
	for _, n := range s.below(from) {
		p.count(n, from)
	}
}

// field describes a schema. An object that is referred to more than once has a place of its own, which is also where recursion ends.
func (p *page) field(name string, schema node, from side) field {
	f := field{Name: name}
	s := p.shape(schema)
	f.describe(p, s)
	structured := len(s.members)+len(s.choices) > 0 || s.keywords["items"].Node != nil || len(s.keywords["additionalProperties"].entries()) > 0
	if o := (object{s.ref, from}); s.ref != "" && structured && p.references[o] > 1 {
		f.Of = p.object(o)
		f.Type = strings.Replace(f.Type, "object", "", 1)
		return f
	}
	if at := (place{schema.Node, from}); !p.open[at] { // a schema within itself, by allOf, is not described again
		p.open[at] = true
		defer delete(p.open, at)
		f.inside(p, s, from)
	}
	return f
}

// whole describes a schema where it stands, with what it is made of.
func (p *page) whole(schema node, from side) (f field) {
	s := p.shape(schema)
	f.describe(p, s)
	f.inside(p, s, from)
	return f
}

// object returns the link to an object, which will be described.
func (p *page) object(o object) *link {
	if p.objects[o] == nil {
		title := o.name
		if o.from == caller && p.references[object{o.name, gateway}] > 0 {
			title += " in requests"
		}
		p.objects[o] = &link{title, p.id("object-" + title)}
		p.queue = append(p.queue, o)
	}
	return p.objects[o]
}

// inside describes what a value is made of.
func (f *field) inside(p *page, s *shape, from side) {
	for _, m := range s.seenBy(from) {
		member := p.field(m.name, m.value, from)
		member.Presence = presence(slices.Contains(s.required, m.name), from)
		f.Fields = append(f.Fields, member)
	}
	for _, choice := range s.choices {
		if types, null := p.shape(choice).types(); null && len(types) == 0 {
			f.Type += " or null"
			continue
		}
		f.Choices = append(f.Choices, p.field(p.shape(choice).keywords["title"].text(), choice, from))
	}
	if len(f.Choices) == 1 && len(f.Fields) == 0 { // a schema or null
		one := f.Choices[0]
		f.Choices, f.Of, f.Fields, f.Choices = nil, one.Of, one.Fields, one.Choices
		f.Type = strings.TrimSpace(one.Type + f.Type)
	}
	for _, part := range []string{"items", "additionalProperties"} {
		n := s.keywords[part]
		if n.Node == nil || len(n.entries()) == 0 {
			continue
		}
		item := p.field("", n, from)
		kind := "array of "
		if part != "items" {
			kind = "map of texts to "
		}
		f.Type = strings.Replace(strings.Replace(f.Type, "array", kind+item.Type, 1), "object", kind+item.Type, 1)
		f.Facts, f.Of = append(f.Facts, item.Facts...), item.Of
		f.Values, f.Growing = append(f.Values, item.Values...), f.Growing || item.Growing
		f.Fields, f.Choices = append(f.Fields, item.Fields...), append(f.Choices, item.Choices...)
	}
}

// presence says what is not usual: what callers must send, and what the gateway does not always send.
func presence(required bool, from side) string {
	switch {
	case required && from == caller:
		return "required"
	case !required && from == gateway:
		return "optional"
	}
	return ""
}

// describe says what is known of a value without what it is made of.
func (f *field) describe(p *page, s *shape) {
	get := func(name string) string { return s.keywords[name].text() }
	types, null := s.types()
	if f.Type = strings.Join(types, " or "); f.Type == "" {
		f.Type = s.impliedType()
	}
	if format := get("format"); format != "" {
		f.Type = strings.TrimSpace(f.Type + " (" + format + ")")
	}
	if null {
		f.Type += " or null"
	}
	f.Deprecated = get("deprecated") == "true"
	if text := get("description"); text != "" {
		f.Text = p.text(text, 6, nil)
	}
	add := func(name, value string) {
		if value != "" {
			f.Facts = append(f.Facts, fact{name, value})
		}
	}
	bounds := func(unit string, low, high string) {
		switch {
		case get(low) != "" && get(high) != "":
			add("", get(low)+" to "+get(high)+unit)
		case get(low) == "1" && unit != "":
			add("", "not empty")
		case get(low) != "":
			add("", "at least "+get(low)+unit)
		case get(high) != "":
			add("", "at most "+get(high)+unit)
		}
	}
	bounds("", "minimum", "maximum")
	add("more than", get("exclusiveMinimum"))
	add("less than", get("exclusiveMaximum"))
	bounds(" characters", "minLength", "maxLength")
	bounds(" items", "minItems", "maxItems")
	bounds(" members", "minProperties", "maxProperties")
	if get("uniqueItems") == "true" {
		add("", "no item twice")
	}
	add("pattern", get("pattern"))
	for _, name := range []string{"const", "default"} {
		if n := s.keywords[name]; n.Node != nil {
			add(map[string]string{"const": "always", "default": "default"}[name], plain(n))
		}
	}
	for _, name := range []string{"enum", "x-extensible-enum"} {
		f.Growing = f.Growing || name != "enum" && s.keywords[name].Node != nil
		for _, value := range s.keywords[name].items() {
			f.Values = append(f.Values, plain(value))
		}
	}
}
