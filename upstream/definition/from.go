package definition

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

const (
	// maxNames is the maximum number of names in a pointer into a data service's response.
	maxNames = 8

	adapter = ": what this cannot do is for an adapter in front of the service"

	// anItem and anyName stand for an item of an array, and for a further member of an object, in a path. No text of a document is like them.
	anItem, anyName = "\xff[]", "\xff{}"
)

// source compiles x-gatehouse-from: where the data service has a member, and how its value is converted.
func (c *compiler) source(n node) *upstream.Source {
	if n.Node == nil {
		return nil
	}
	f, member := new(upstream.Source), n
	if n.isObject() {
		c.only(n, "member", "parameter", "pages", "as", "values")
		member = n.get("member")
	}
	pages, parameter := n.get("pages"), n.get("parameter")
	if b2i(member.Node != nil)+b2i(pages.Node != nil)+b2i(parameter.Node != nil) != 1 {
		c.fault(n, "must be one of a member, a pointer, a parameter and pages"+adapter)
		return nil
	}
	if pages.Node != nil {
		of := c.list(pages)
		if len(of) != 2 {
			c.fault(pages, "must be the place of a number of records, and the parameter with the size of a page: [/meta/total, per_page]")
			return nil
		}
		member, f.Pages = of[0], c.string(of[1])
	}
	f.Param = c.string(parameter)
	if f.Param == "" {
		f.Names, f.Pointer = c.place(member)
	}
	if as := n.get("as"); as.Node != nil {
		if f.As = upstream.Conversion(max(0, slices.Index(upstream.Conversions(), c.string(as)))); f.As == upstream.ConvertNone { //nolint:gosec // G115: an index
			c.fault(as, "must be one of %s%s", strings.Join(upstream.Conversions()[1:], ", "), adapter)
		}
	}
	if values := n.get("values"); values.Node != nil {
		f.Values, f.ReverseValues = map[string]string{}, map[string]string{}
		for i := 0; values.isObject() && i < len(values.Content); i += 2 {
			c.pair(f, values, values.Content[i], values.Content[i+1])
		}
		if len(f.Values) == 0 {
			c.fault(values, "must be an object: the service's values, and ours")
		}
	}
	if b2i(f.As != upstream.ConvertNone)+b2i(f.Values != nil)+b2i(f.Pages != "")+b2i(f.Param != "") > 1 {
		c.fault(n, "only one of parameter, pages, as and values is possible"+adapter)
	}
	c.sources[f], c.maps = n, true
	return f
}

// pair adds a value of the data service, theirs, which becomes ours. In bodies, theirs is sent as a number if it is one without quotes.
func (c *compiler) pair(f *upstream.Source, n node, theirs, ours *yaml.Node) {
	quoted := func(text string) string {
		encoded, _ := jsontext.AppendQuote(nil, text) // it is UTF-8
		return string(encoded)
	}
	sent := quoted(theirs.Value)
	if theirs.Style == 0 && upstream.IsNumber(theirs.Value) {
		sent = theirs.Value
	}
	value := ours.Value
	var encoded string
	switch at := n.child(ours, theirs.Value); {
	case ours.Kind != yaml.ScalarNode:
		c.fault(at, "must be a text, a number, true, false or null")
		return
	case ours.Tag == "!!str":
		encoded = quoted(value)
	case ours.Tag == "!!null":
		encoded = "null"
	case ours.Tag == "!!bool":
		value = strings.ToLower(value)
		encoded = value
	default:
		encoded = c.number(at)
	}
	f.Values[theirs.Value] = encoded
	if _, ok := f.ReverseValues[value]; !ok { // if several become ours, the first one is sent
		f.ReverseValues[value] = sent
	}
}

// place returns the path to a member: the names of a JSON Pointer, or one name.
func (c *compiler) place(n node) (names []string, pointer bool) {
	text := c.string(n)
	if !strings.HasPrefix(text, "/") {
		return []string{text}, false
	}
	if names = namesIn(text); slices.Contains(names, "") || len(names) > maxNames {
		c.fault(n, "a pointer must have 1 to %d names, none of them empty", maxNames)
	}
	return names, true
}

// pointers reports whether members of an object have pointers or parameters as their source. The data service then has no such object.
func (c *compiler) pointers(s *upstream.Schema) bool {
	if s == nil || s.Choice != nil || s.Types&upstream.TypeObject == 0 {
		return false
	}
	if known, ok := c.elsewhere[s]; ok {
		return known
	}
	c.elsewhere[s] = false // in a circle
	c.elsewhere[s] = s.Concealed != nil || slices.ContainsFunc(s.Properties, func(p upstream.Property) bool {
		return p.From != nil && (p.From.Pointer || p.From.Param != "") || p.From == nil && c.pointers(p.Schema)
	})
	return c.elsewhere[s]
}

// concealed appends the first names of all pointers in the schema n of a hidden member, if the data service does not have that as one object. Its
// members of these names must not pass as undocumented.
func (c *compiler) concealed(names []string, p *upstream.Property, n node) []string {
	if p.From != nil {
		return names
	}
	seen := map[*yaml.Node]bool{}
	var visit func(n node)
	visit = func(n node) {
		if n.Node == nil || seen[n.Node] || !c.spend(1+len(n.Content)) {
			return
		}
		seen[n.Node] = true
		visit(c.lookup(n.get("$ref").text()))
		for _, part := range slices.Concat(n.get("allOf").items(), n.get("oneOf").items(), n.get("anyOf").items()) {
			visit(part)
		}
		for _, e := range n.get("properties").entries() {
			from := e.value.get(extFrom)
			switch pages := from.get("pages").items(); {
			case from.Node == nil:
				visit(e.value)
				continue
			case len(pages) > 0:
				from = pages[0]
			case from.isObject():
				from = from.get("member")
			}
			if strings.HasPrefix(from.text(), "/") {
				names, c.maps = append(names, namesIn(from.text())[0]), true
			}
		}
	}
	visit(n)
	return names
}

// mapped sets where the data service has the body or the records of a response, checks all sources, and returns the schema of the body.
func (c *compiler) mapped(op *upstream.Operation, r *upstream.DocumentedResponse, n node) *upstream.Schema {
	var names []string
	if from := n.get("from"); from.Node != nil {
		names, _ = c.place(from)
		c.maps = true
	}
	if !c.maps || r.Body == nil {
		return r.Body
	}
	body := r.Body
	r.Mapped = true
	if r.Records != nil && r.Records.In == "" {
		r.From = names
	} else if r.Records != nil {
		own := *r.Body
		body, own.Properties = &own, slices.Clone(own.Properties)
		c.about[body] = c.about[r.Body]
		if p := body.Property(r.Records.In); p != nil {
			if p.HoldsRecords, p.Part = true, false; names != nil {
				p.From = &upstream.Source{Names: names, Pointer: true}
			}
		}
	}
	c.frames(op, body)
	return body
}

// framer checks the sources of the members of an operation's objects.
type framer struct {
	*compiler
	op   *upstream.Operation
	seen map[placed]bool
}

// placed is a schema, and whether it is in a choice of several objects or arrays.
type placed struct {
	schema *upstream.Schema
	chosen bool
}

// frame is an object at which pointers begin, with all places of its members at the data service.
type frame struct {
	schema  *upstream.Schema
	node    node
	request bool
	chosen  bool            // it is in a choice of several objects or arrays
	taken   map[string]bool // places of members of a request body
	sent    *[]sent
}

// sent is the place of a member at the data service. schema is nil if the member is hidden.
type sent struct {
	name   string
	at     []string
	schema *upstream.Schema
	node   node
}

// frames checks the sources of all objects below a schema.
func (c *compiler) frames(op *upstream.Operation, s *upstream.Schema) {
	(&framer{c, op, map[placed]bool{}}).below(s, false)
}

// below checks the objects below a schema. chosen says whether it is in a choice of several objects or arrays.
func (c *framer) below(s *upstream.Schema, chosen bool) {
	if s == nil || c.about[s] == nil || c.seen[placed{s, chosen}] || !c.spend(1+len(s.Properties)) {
		return
	}
	c.seen[placed{s, chosen}] = true
	if s.Choice != nil {
		objects, arrays := 0, 0
		for _, alternative := range s.Choice.Alternatives {
			objects += b2i(alternative.Types&upstream.TypeObject != 0)
			arrays += b2i(alternative.Types&upstream.TypeArray != 0)
			if p := alternative.Property(s.Choice.Discriminator); p != nil && p.From != nil {
				c.fault(c.sources[p.From], "decides which of several objects it is, and must be where it is published"+adapter)
			}
		}
		for _, alternative := range s.Choice.Alternatives {
			if c.pointers(alternative) {
				c.fault(c.about[alternative].node, "is one of several schemas, and pointers of its members begin outside: for an object or null, write both as its type"+adapter)
			}
			c.below(alternative, chosen || objects > 1 || arrays > 1)
		}
		return
	}
	var all []sent
	c.members(frame{s, c.about[s].node, c.about[s].view.request, chosen, map[string]bool{}, &all}, s, 0)
	c.enclosed(all)
	c.below(s.Items, chosen)
	c.below(s.Additional, chosen)
}

// members checks the members of an object in a frame. depth is the number of objects around it that the data service does not have.
func (c *framer) members(in frame, s *upstream.Schema, depth int) {
	if !c.spend(1 + len(s.Properties)) {
		return
	}
	for _, name := range s.Concealed {
		*in.sent = append(*in.sent, sent{"a hidden member", []string{name, ""}, nil, in.node})
	}
	for i := range s.Properties {
		p, n := &s.Properties[i], in.node
		f := cmp.Or(p.From, &upstream.Source{})
		if p.Schema.Refused != "" {
			*in.sent = append(*in.sent, sent{p.Name, f.Names, nil, n})
			continue
		}
		if c.sources[f].Node != nil {
			n = c.sources[f]
		}
		elsewhere := f.Pointer || f.Param != ""
		switch {
		case in.chosen && (elsewhere || p.Part || in.request && p.From != nil):
			c.fault(n, "is in one of several objects, where members can only have other names, and in a body not even that"+adapter)
		case in.request && (f.Param != "" || f.Pages != "" || f.As == upstream.ConvertURL):
			c.fault(n, "is for responses: in a body, the member must be readOnly"+adapter)
		case depth > maxNames:
			c.fault(n, "more than %d objects in each other that the data service does not have, or a circle of them", maxNames)
			return
		case depth > 0 && p.From == nil && !p.Part && p.Internal && p.Schema.FreeJSON(): // hidden, without a place: see hide
			continue
		case depth > 0 && !elsewhere && !p.Part:
			c.fault(c.about[s].node, "of an object that the data service does not have, every member must come from a pointer or a parameter: %s does not%s", p.Name, adapter)
		case p.From != nil && !p.HoldsRecords && c.pointers(p.Schema):
			c.fault(n, "is where the data service has it, but pointers of its members begin outside: give them names, or all of them pointers"+adapter)
		case p.From != nil:
			c.conversion(c.op, p, n)
		}
		if p.Part {
			if p.Schema.Additional != nil {
				c.fault(c.about[p.Schema].node, "an object that the data service does not have cannot have further members")
			}
			n := len(*in.sent)
			for c.members(in, p.Schema, depth+1); p.Internal && n < len(*in.sent); n++ {
				(*in.sent)[n].schema = nil
			}
			continue
		}
		if in.request && c.hasSources(in.schema) {
			c.taken(p, n, in.taken)
		}
		member := sent{p.Name, placeOf(p), p.Schema, n}
		if p.Internal {
			member.schema = nil
		}
		*in.sent = append(*in.sent, member)
		c.below(p.Schema, in.chosen)
	}
}

// enclosed reports a fault if a hidden member would pass inside of another member, among its further members.
func (c *framer) enclosed(all []sent) {
	seen := map[[2]*upstream.Schema]bool{}
	for i, inner := range all {
		if !c.spend(1 + len(all)/64) {
			return
		}
		for j, m := range all {
			n := min(len(m.at), len(inner.at))
			if i == j || m.schema == nil || !slices.Equal(m.at[:n], inner.at[:n]) {
				continue
			}
			if slices.ContainsFunc(c.at(m.schema, inner.at[n:], 0), func(s *upstream.Schema) bool {
				if inner.schema == nil {
					return len(inner.at) > n && s.FreeJSON()
				}
				return slices.ContainsFunc(c.at(inner.schema, m.at[n:], 0), func(of *upstream.Schema) bool { return c.reveals(s, of, seen) })
			}) {
				c.fault(inner.node, "%s would be among the further members of %s, and not be hidden: give that the members that it has, and no further ones", inner.name, m.name)
			}
		}
	}
}

// reveals reports whether something that is hidden in inner would pass in s, which is at the same place, as a further member or in free JSON. inner
// is nil if it is hidden itself.
func (c *framer) reveals(s, inner *upstream.Schema, seen map[[2]*upstream.Schema]bool) bool {
	key := [2]*upstream.Schema{s, inner}
	if inner == nil || s == inner || c.broken[s] || seen[key] || !c.spend(1) {
		return inner == nil && s.FreeJSON() && !c.broken[s]
	}
	seen[key] = true
	passes := func(inner *upstream.Schema, at ...string) bool {
		return slices.ContainsFunc(c.at(s, at, 0), func(own *upstream.Schema) bool { return c.reveals(own, inner, seen) })
	}
	whole := s.FreeJSON() || s.Additional != nil
	switch {
	case s.Choice != nil:
		return slices.ContainsFunc(s.Choice.Alternatives, func(a *upstream.Schema) bool { return c.reveals(a, inner, seen) })
	case inner.Choice != nil:
		return inner.Withheld && whole || slices.ContainsFunc(inner.Choice.Alternatives, func(a *upstream.Schema) bool { return passes(a) })
	}
	return inner.Visible != "" && whole || inner.Withheld && passes(nil, anyName) ||
		slices.ContainsFunc(inner.Concealed, func(name string) bool { return passes(nil, name, "") }) ||
		inner.Items != nil && passes(inner.Items, anItem) || inner.Additional != nil && passes(inner.Additional, anyName) ||
		slices.ContainsFunc(inner.Properties, func(p upstream.Property) bool {
			switch {
			case p.Part:
				return passes(p.Schema)
			case p.Internal || p.Schema.Refused != "":
				return passes(nil, placeOf(&p)...)
			}
			return passes(p.Schema, placeOf(&p)...)
		})
}

// at returns the schemas with which the data service's member at a path below s leaves, or parts of it. A further member, and a part, counts as
// free JSON, too. depth is the number of schemas around s.
func (c *framer) at(s *upstream.Schema, at []string, depth int) (all []*upstream.Schema) {
	switch {
	case s == nil || depth > 2*maxNames || !c.spend(1): // a circle is a fault already
		return nil
	case s.FreeJSON() || len(at) == 0:
		return []*upstream.Schema{s}
	case s.Choice != nil:
		for _, alternative := range s.Choice.Alternatives {
			all = append(all, c.at(alternative, at, depth+1)...)
		}
		return all
	case at[0] == anItem:
		return c.at(s.Items, at[1:], depth+1)
	}
	known := false
	for i := range s.Properties {
		p := &s.Properties[i]
		place := placeOf(p)
		if p.Part {
			place = nil // its members begin here, too
		}
		known = known || !p.Part && place[0] == at[0]
		switch n := len(place); {
		case p.Internal || p.Schema.Refused != "":
		case n > len(at) && slices.Equal(place[:len(at)], at) && p.Schema.Types&(upstream.TypeObject|upstream.TypeArray) != 0: // a part leaves
			all = append(all, upstream.AnyJSON())
		case n <= len(at) && slices.Equal(place, at[:n]), n == 1 && at[0] == anyName:
			all = append(all, c.at(p.Schema, at[n:], depth+1)...)
		}
	}
	if !known && s.Additional != nil {
		all = append(append(all, c.at(s.Additional, at[1:], depth+1)...), upstream.AnyJSON())
	}
	return all
}

// placeOf returns the path to the data service's member from which a property is made.
func placeOf(p *upstream.Property) []string {
	if p.From != nil && p.From.Names != nil {
		return p.From.Names
	}
	return []string{p.Name}
}

// taken reports a fault if two members of a body would be sent as one, or one inside the other.
func (c *compiler) taken(p *upstream.Property, n node, taken map[string]bool) {
	at := pointerOf(placeOf(p)...)
	for other := range taken {
		if other == at || strings.HasPrefix(other, at+"/") || strings.HasPrefix(at, other+"/") {
			c.fault(n, "two members of a body would be sent at %s%s", at, adapter)
			return
		}
	}
	taken[at] = true
}

// hasSources reports whether a member of an object has a source.
func (c *compiler) hasSources(s *upstream.Schema) bool {
	return slices.ContainsFunc(s.Properties, func(p upstream.Property) bool { return p.From != nil || p.Part })
}

// conversion checks that values from a member's source can be valid for the member.
func (c *compiler) conversion(op *upstream.Operation, p *upstream.Property, n node) {
	f, s := p.From, p.Schema
	for _, name := range []string{f.Param, f.Pages} {
		if name != "" && numberOf(op, name) == 0 {
			c.fault(n, "%s must be a parameter of %s that is an integer, and required or with a default; one of the first %d", name, op.ID, upstream.MaxNumbers)
		}
	}
	if s.FreeJSON() || s.Refused != "" {
		return
	}
	is := func(types upstream.Types) bool { return s.Choice == nil && s.Types&types != 0 }
	expected := ""
	switch {
	case f.Param != "" || f.Pages != "":
		if !is(upstream.TypeInteger | upstream.TypeNumber) {
			expected = "an integer"
		}
	case f.As == upstream.ConvertCents:
		if !is(upstream.TypeString|upstream.TypeNumber) || s.Format != upstream.FormatText && s.Format != upstream.FormatDecimal {
			expected = "a string with the format decimal, or a number"
		}
	case f.As == upstream.ConvertUnix || f.As == upstream.ConvertUnixMilli:
		if !is(upstream.TypeString) || !slices.Contains([]upstream.Format{upstream.FormatInstant, upstream.FormatDateTime, upstream.FormatDate}, s.Format) {
			expected = "a string with the format utc-date-time, date-time or date"
		}
	case f.As == upstream.ConvertString && !is(upstream.TypeString):
		expected = "a string"
	case f.As == upstream.ConvertNumber && !is(upstream.TypeInteger|upstream.TypeNumber):
		expected = "a number"
	case f.As == upstream.ConvertURL && (!is(upstream.TypeString) || !is(upstream.TypeNull) || s.Format != upstream.FormatText):
		expected = "a string without a format, or null, which a URL becomes that is no operation's"
	case f.Values != nil && s.Choice != nil:
		expected = "of one schema"
	}
	if expected != "" {
		c.fault(n, "must be %s", expected)
		return
	}
	for theirs, ours := range f.Values {
		if !s.IsValidScalar(ours) {
			c.fault(n, "%s becomes %s, which is not valid here", strconv.Quote(theirs), ours)
		}
	}
}
