package reference

import (
	"cmp"
	"html/template"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// field describes a parameter, a header, a member of an object, or a whole body.
type field struct {
	Name       string
	Type       string
	Of         *link  // the section of an object in the type, after Type
	After      string // the rest of the type, after Of
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

// shape combines a schema with those that it refers to or has in allOf.
type shape struct {
	ref      string // the name of the component, if it is one
	keywords map[string]node
	members  []entry
	required []string
	choices  []node

	named map[string]int  // members by their names
	seen  map[string]bool // references
	first *shape          // of a value that is the first of choices; made when it is needed
}

// shape returns the shape of a schema. Of keywords that are given more than once, the one that allows less wins, or else the nearest one. Of a member
// that is given more than once, all schemas hold.
func (p *page) shape(schema node) *shape {
	if s := p.shapes[schema.Node]; s != nil {
		return s
	}
	s := &shape{keywords: map[string]node{}, named: map[string]int{}, seen: map[string]bool{}}
	p.shapes[schema.Node] = s
	s.add(p, schema)
	ref := schema.get("$ref").text()
	if all := schema.get("allOf").items(); ref == "" && len(all) == 1 && schema.get("properties").Node == nil { // with a description or null
		ref = all[0].get("$ref").text()
	}
	if ref != "" {
		s.ref = ref[strings.LastIndexByte(ref, '/')+1:]
	}
	return s
}

// add adds a schema to those that a shape combines.
func (s *shape) add(p *page, n node) {
	for _, e := range n.entries() {
		switch e.name {
		case "properties":
			for _, m := range e.value.entries() {
				if at, again := s.named[m.name]; again {
					s.members[at].value = p.both(m.value, s.members[at].value)
					continue
				}
				s.named[m.name] = len(s.members)
				s.members = append(s.members, m)
			}
		case "required":
			s.required = append(s.required, e.value.texts()...)
		case "oneOf", "anyOf":
			s.choices = append(s.choices, e.value.items()...)
		default:
			if before := s.keywords[e.name]; before.Node == nil || allowsLess(e.name, e.value, before) {
				s.keywords[e.name] = e.value
			}
		}
	}
	for _, part := range n.get("allOf").items() {
		s.add(p, part)
	}
	if ref := n.get("$ref").text(); ref != "" && !s.seen[ref] {
		s.seen[ref] = true
		s.add(p, p.resolve(n))
	}
}

// chosen returns the shape of a value that is the first of the alternatives.
func (s *shape) chosen(p *page) *shape {
	if s.first != nil {
		return s.first
	}
	of := &shape{keywords: maps.Clone(s.keywords), members: slices.Clone(s.members), required: slices.Clone(s.required), named: maps.Clone(s.named), seen: map[string]bool{}}
	delete(of.keywords, "discriminator") // the alternative may have one, too
	of.add(p, s.choices[0])
	if kinds := s.kinds(s.choices[0]); len(kinds) > 0 {
		kind := objectOf(s.keywords["discriminator"].get("propertyName").text(), objectOf("const", scalar("!!str", kinds[0])))
		of.add(p, objectOf("properties", kind))
	}
	s.first = of
	return of
}

// both returns a schema of the values for which two schemas hold. The same two have the same one, so that recursion ends.
func (p *page) both(a, b node) node {
	if a.Node == b.Node || toJSON(a, 0) == toJSON(b, 0) {
		return b
	}
	of := [2]*yaml.Node{a.Node, b.Node}
	if p.boths[of].Node == nil {
		p.boths[of] = objectOf("allOf", node{&yaml.Node{Kind: yaml.SequenceNode, Content: of[:]}})
	}
	return p.boths[of]
}

// allowsLess reports whether a value of a keyword allows less than another one.
func allowsLess(keyword string, value, than node) bool {
	a, _ := strconv.ParseFloat(value.text(), 64)
	b, _ := strconv.ParseFloat(than.text(), 64)
	isBound := func(name string) bool { return strings.Contains(strings.ToLower(keyword), name) }
	return isBound("min") && a > b || isBound("max") && a < b || keyword == "enum" && len(value.Content) < len(than.Content)
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

// types returns the JSON types without null, and whether null is one, too.
func (s *shape) types() (types []string, null bool) {
	all := s.keywords["type"].texts()
	if one := s.keywords["type"].text(); one != "" {
		all = []string{one}
	}
	types = slices.DeleteFunc(slices.Clone(all), func(t string) bool { return t == "null" })
	return types, len(types) < len(all)
}

// impliedType returns the type of a schema without the keyword type, or "".
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

// place is a schema where it stands, either as callers send it or as they receive it.
type place struct {
	*yaml.Node
	sent bool
}

// object is a schema among the components.
type object struct {
	references int
	sent       bool  // callers send it
	link       *link // to its section, if it has one
}

// count counts how often objects are referred to. sent means that callers send them.
func (p *page) count(schema node, sent bool) {
	if schema.Node == nil {
		return
	}
	s := p.shape(schema)
	if s.ref != "" {
		o := p.objects[s.ref]
		if o == nil {
			o = new(object)
			p.objects[s.ref] = o
		}
		o.references++
		if o.references > 1 && (o.sent || !sent) {
			return
		}
		o.sent = sent
	}
	if p.counted[place{schema.Node, sent}] { // a schema within itself, by allOf
		return
	}
	p.counted[place{schema.Node, sent}] = true
	for _, m := range s.members {
		p.count(m.value, sent)
	}
	for _, n := range append(slices.Clone(s.choices), s.keywords["items"], s.keywords["additionalProperties"]) {
		p.count(n, sent)
	}
}

// field describes a schema. An object that is referred to more than once has a place of its own, which is also where recursion ends.
func (p *page) field(name string, schema node, sent bool) field {
	f := field{Name: name}
	s := p.shape(schema)
	f.describe(p, s)
	structured := len(s.members)+len(s.choices) > 0 || s.keywords["items"].Node != nil || len(s.keywords["additionalProperties"].entries()) > 0
	if o := p.objects[s.ref]; o != nil && structured && o.references > 1 {
		if o.link == nil {
			o.link = &link{s.ref, p.id("object-" + s.ref)}
			p.queue = append(p.queue, s.ref)
		}
		f.replace("object", field{Of: o.link})
		if f.Type != "" && !strings.HasSuffix(f.Type, " ") {
			f.Type += " "
		}
		return f
	}
	if at := (place{schema.Node, sent}); !p.open[at] { // a schema within itself, by allOf, is not described again
		p.open[at] = true
		defer delete(p.open, at)
		f.inside(p, s, sent)
	}
	return f
}

// whole describes a schema where it stands, with its members, even if it is an object with a section of its own.
func (p *page) whole(schema node, sent bool) (f field) {
	s := p.shape(schema)
	f.describe(p, s)
	f.inside(p, s, sent)
	return f
}

// inside describes members, alternatives and items of a value.
func (f *field) inside(p *page, s *shape, sent bool) {
	for _, m := range s.members {
		member := p.field(m.name, m.value, sent)
		member.Presence = presence(slices.Contains(s.required, m.name), sent)
		f.Fields = append(f.Fields, member)
	}
	for _, choice := range s.choices {
		one, of := p.field("", choice, sent), p.shape(choice)
		if one.Name = of.keywords["title"].text(); one.Of == nil {
			one.Name = cmp.Or(one.Name, of.ref)
		}
		for i, kind := range s.kinds(choice) {
			name := "if " + s.keywords["discriminator"].get("propertyName").text() + " is"
			one.Facts = slices.Insert(one.Facts, i, fact{[]string{name, "or"}[min(i, 1)], kind})
		}
		if one.Type == "null" && (f.Type != "" || len(s.choices) == 2) {
			f.After = " or null"
		} else {
			f.Choices = append(f.Choices, one)
		}
	}
	if len(f.Choices) == 1 && len(f.Fields) == 0 { // a schema or null
		one := f.Choices[0]
		if one.Type == "" && one.Of == nil {
			one.Type = f.Type
		}
		if !strings.HasSuffix(one.After, " or null") {
			one.After += f.After
		}
		one.Name, one.Text = f.Name, cmp.Or(f.Text, one.Text)
		one.Facts, one.Values = append(one.Facts, f.Facts...), append(one.Values, f.Values...)
		one.Growing, one.Deprecated = one.Growing || f.Growing, one.Deprecated || f.Deprecated
		*f = one
	}
	for _, part := range []string{"items", "additionalProperties"} {
		n := s.keywords[part]
		if n.Node == nil || len(n.entries()) == 0 {
			continue
		}
		item := p.field("", n, sent)
		if strings.Contains(item.Type+item.After, " or ") {
			item.Type, item.After = "("+item.Type, item.After+")"
		}
		if part == "items" {
			item.Type = "array of " + item.Type
			f.replace("array", item)
		} else {
			item.Type = "map of texts to " + item.Type
			f.replace("object", item)
		}
		f.Facts = append(f.Facts, item.Facts...)
		f.Values, f.Growing = append(f.Values, item.Values...), f.Growing || item.Growing
		f.Fields, f.Choices = append(f.Fields, item.Fields...), append(f.Choices, item.Choices...)
	}
}

// kinds returns the values of the discriminator that decide for an alternative.
func (s *shape) kinds(choice node) (values []string) {
	for _, e := range s.keywords["discriminator"].get("mapping").entries() {
		if e.value.text() == choice.get("$ref").text() {
			values = append(values, e.name)
		}
	}
	return values
}

// replace puts another type in the place of a word of the type.
func (f *field) replace(word string, by field) {
	if before, after, found := strings.Cut(f.Type, word); found {
		f.Type, f.After = before+by.Type, by.After+after+f.After
	}
	f.Of = by.Of
}

// presence marks only the unusual: what callers must send, and what the gateway does not always send.
func presence(required, sent bool) string {
	switch {
	case required && sent:
		return "required"
	case !required && !sent:
		return "optional"
	}
	return ""
}

// describe describes a value without its members, alternatives and items.
func (f *field) describe(p *page, s *shape) {
	get := func(name string) string { return s.keywords[name].text() }
	types, null := s.types()
	f.Type = cmp.Or(strings.Join(types, ", "), s.impliedType())
	switch last := strings.LastIndex(f.Type, ", "); {
	case null && f.Type == "":
		f.Type = "null"
	case null:
		f.After = " or null"
	case last >= 0:
		f.Type = f.Type[:last] + " or " + f.Type[last+2:]
	}
	if format := get("format"); format != "" {
		f.Type = strings.TrimSpace(f.Type + " (" + format + ")")
	}
	f.Deprecated = get("deprecated") == "true"
	f.Text = p.text(get("description"), 6, nil)
	add := func(name, value string) {
		if value != "" {
			f.Facts = append(f.Facts, fact{name, value})
		}
	}
	bounds := func(unit, low, high string) {
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
