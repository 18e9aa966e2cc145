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

	adapterHint = ": what this cannot do is for an adapter in front of the service"
	ownHint     = "; if the service has such an object, say so by an x-gatehouse-from of its own"

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
		c.allowOnly(n, "member", "parameter", "pages", "as", "values")
		member = n.get("member")
	}
	pages, parameter := n.get("pages"), n.get("parameter")
	if c.faultIf(b2i(member.Node != nil)+b2i(pages.Node != nil)+b2i(parameter.Node != nil) != 1, n, "must be one of a member, a pointer, a parameter and pages"+adapterHint) {
		return nil
	}
	if pages.Node != nil {
		of := c.list(pages)
		if c.faultIf(len(of) != 2, pages, "must be the place of a number of records, and the parameter with the size of a page: [/meta/total, per_page]") {
			return nil
		}
		member, f.Pages = of[0], c.string(of[1])
	}
	f.Param = c.string(parameter)
	if f.Param == "" {
		f.Names, f.Pointer = c.memberPath(member)
	}
	if as := n.get("as"); as.Node != nil {
		if f.As = upstream.Conversion(max(0, slices.Index(upstream.Conversions(), c.string(as)))); f.As == upstream.ConvertNone { //nolint:gosec // G115: an index
			c.fault(as, "must be one of %s%s", strings.Join(upstream.Conversions()[1:], ", "), adapterHint)
		}
	}
	if values := n.get("values"); values.Node != nil {
		f.Values, f.ReverseValues = map[string]string{}, map[string]string{}
		for i := 0; values.isObject() && i < len(values.Content); i += 2 {
			c.addValue(f, values, values.Content[i], values.Content[i+1])
		}
		c.faultIf(len(f.Values) == 0, values, "must be an object: the service's values, and ours")
	}
	if b2i(f.As != upstream.ConvertNone)+b2i(f.Values != nil)+b2i(f.Pages != "")+b2i(f.Param != "") > 1 {
		c.fault(n, "only one of parameter, pages, as and values is possible"+adapterHint)
	}
	c.sources[f], c.usesFrom = n, true
	return f
}

// addValue adds a value of the data service, theirs, which becomes ours. In bodies, theirs is sent as a number or a boolean if it is one without
// quotes.
func (c *compiler) addValue(f *upstream.Source, n node, theirs, ours *yaml.Node) {
	quoted := func(text string) string {
		encoded, _ := jsontext.AppendQuote(nil, text) // it is UTF-8
		return string(encoded)
	}
	sent := quoted(theirs.Value)
	if theirs.Style == 0 && (upstream.IsNumber(theirs.Value) || theirs.Value == "true" || theirs.Value == "false") {
		sent = theirs.Value
	}
	value := ours.Value
	var encoded string
	switch at := n.child(ours, theirs.Value); {
	case ours.Kind != yaml.ScalarNode:
		c.fault(at, "must be a string, a number, true, false or null")
		return
	case theirs.Style == 0 && (theirs.Value == "null" || theirs.Value == "~"):
		c.fault(at, "null stays null, and cannot become another value"+adapterHint)
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

// memberPath returns the path to a member: the names of a JSON Pointer, or one name.
func (c *compiler) memberPath(n node) (names []string, pointer bool) {
	text := c.string(n)
	if !strings.HasPrefix(text, "/") {
		return []string{text}, false
	}
	if names = namesIn(text); slices.Contains(names, "") || len(names) > maxNames {
		c.fault(n, "a pointer must have 1 to %d names, none of them empty", maxNames)
	}
	return names, true
}

// hasPointers reports whether members of an object have pointers or parameters as their source. The data service then has no such object.
func (c *compiler) hasPointers(s *upstream.Schema) bool {
	if s == nil || s.Choice != nil || s.Types&upstream.TypeObject == 0 {
		return false
	}
	if known, ok := c.pointerResults[s]; ok {
		return known
	}
	c.pointerResults[s] = false // in a circle
	c.pointerResults[s] = s.Concealed != nil || slices.ContainsFunc(s.Properties, func(p upstream.Property) bool {
		return p.From != nil && (p.From.Pointer || p.From.Param != "") || p.From == nil && c.hasPointers(p.Schema)
	})
	return c.pointerResults[s]
}

// appendConcealed appends all pointers in the schema n of a hidden member, if the data service does not have that as one object. Its members there must
// not pass as undocumented.
func (c *compiler) appendConcealed(pointers []string, p *upstream.Property, n node) []string {
	if p.From != nil {
		return pointers
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
				pointers, c.usesFrom = append(pointers, from.text()), true
			}
		}
	}
	visit(n)
	return pointers
}

// mapResponse sets where the data service has the body or the records of a response, checks all sources, and returns the schema of the body.
func (c *compiler) mapResponse(op *upstream.Operation, r *upstream.DocumentedResponse, n node) *upstream.Schema {
	var names []string
	if from := n.get("from"); from.Node != nil {
		names, _ = c.memberPath(from)
		c.usesFrom = true
	}
	if !c.usesFrom || r.Body == nil {
		return r.Body
	}
	body := r.Body
	r.Mapped = true
	if r.Records != nil && r.Records.In == "" {
		r.From = names
	} else if r.Records != nil {
		own := *r.Body
		body, own.Properties = &own, slices.Clone(own.Properties)
		c.infos[body] = c.infos[r.Body]
		if p := body.Property(r.Records.In); p != nil {
			if p.HoldsRecords, p.Part = true, false; names != nil {
				p.From = &upstream.Source{Names: names, Pointer: true}
				p.Required = p.Required || p.Schema.Types&upstream.TypeNull == 0 // without them, it is another response, such as an error
			}
		}
	}
	c.checkSources(op, body)
	return body
}

// sourceChecker checks the sources of the members of an operation's objects.
type sourceChecker struct {
	*compiler
	op   *upstream.Operation
	seen map[schemaVisit]bool

	compares bool   // reveals also compares whose objects are and whether they may be seen, because a service chooses between the schemas
	differs  string // what it has found then
}

// schemaVisit is a schema, and whether it is in a choice of several objects or arrays.
type schemaVisit struct {
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
	places  *[]memberPlace
}

// memberPlace is the place of a member at the data service. schema is nil if the member is hidden.
type memberPlace struct {
	name   string
	path   []string
	schema *upstream.Schema
	node   node
}

// checkSources checks the sources of all objects below a schema.
func (c *compiler) checkSources(op *upstream.Operation, s *upstream.Schema) {
	(&sourceChecker{compiler: c, op: op, seen: map[schemaVisit]bool{}}).checkBelow(s, false)
}

// checkBelow checks the objects below a schema. chosen says whether it is in a choice of several objects or arrays.
func (c *sourceChecker) checkBelow(s *upstream.Schema, chosen bool) {
	if s == nil || c.infos[s] == nil || c.seen[schemaVisit{s, chosen}] || !c.spend(1+len(s.Properties)) {
		return
	}
	c.seen[schemaVisit{s, chosen}] = true
	if s.Choice != nil {
		objects, arrays := 0, 0
		for _, alternative := range s.Choice.Alternatives {
			objects += b2i(alternative.Types&upstream.TypeObject != 0)
			arrays += b2i(alternative.Types&upstream.TypeArray != 0)
			if p := alternative.Property(s.Choice.Discriminator); p != nil && p.From != nil {
				c.fault(c.sources[p.From], "decides which of several objects it is, and must be where it is published"+adapterHint)
			}
		}
		for _, alternative := range s.Choice.Alternatives {
			if c.hasPointers(alternative) {
				c.fault(c.infos[alternative].node, "is one of several schemas, and pointers of its members begin outside"+adapterHint)
			}
			c.checkBelow(alternative, chosen || objects > 1 || arrays > 1)
		}
		return
	}
	var all []memberPlace
	c.checkMembers(frame{s, c.infos[s].node, c.infos[s].view.request, chosen, map[string]bool{}, &all}, s, 0)
	c.checkEnclosed(all)
	c.checkBelow(s.Items, chosen)
	c.checkBelow(s.Additional, chosen)
}

// checkMembers checks the members of an object in a frame. depth is the number of objects around it that the data service does not have.
func (c *sourceChecker) checkMembers(in frame, s *upstream.Schema, depth int) {
	if !c.spend(1 + len(s.Properties)) {
		return
	}
	for _, pointer := range s.Concealed {
		*in.places = append(*in.places, memberPlace{"a hidden member", append(namesIn(pointer), ""), nil, in.node})
	}
	for i := range s.Properties {
		p, n := &s.Properties[i], in.node
		f := cmp.Or(p.From, &upstream.Source{})
		if p.Schema.Refused != "" {
			*in.places = append(*in.places, memberPlace{p.Name, f.Names, nil, n})
			continue
		}
		if c.sources[f].Node != nil {
			n = c.sources[f]
		}
		elsewhere := f.Pointer || f.Param != ""
		switch {
		case in.chosen && (elsewhere || p.Part || in.request && p.From != nil):
			c.fault(n, "is in one of several objects, where members can only have other names, and in a body not even that"+adapterHint)
		case in.request && (f.Param != "" || f.Pages != "" || f.As == upstream.ConvertURL):
			c.fault(n, "is for responses: in a body, the member must be readOnly"+adapterHint)
		case depth > maxNames:
			c.fault(n, "more than %d objects in each other that the data service does not have, or a circle of them", maxNames)
			return
		case depth > 0 && p.From == nil && !p.Part && p.Internal && p.Schema.FreeJSON(): // hidden, without a place: see hide
			continue
		case depth > 0 && !elsewhere && !p.Part:
			c.fault(c.infos[s].node, "of an object that the data service does not have, every member must come from a pointer or a parameter: %s does not%s%s", p.Name, ownHint, adapterHint)
		case p.From != nil:
			c.checkConversion(c.op, p, n)
		}
		if p.Part {
			c.faultIf(p.Schema.Additional != nil, c.infos[p.Schema].node, "an object that the data service does not have cannot have further members")
			n := len(*in.places)
			for c.checkMembers(in, p.Schema, depth+1); p.Internal && n < len(*in.places); n++ {
				(*in.places)[n].schema = nil
			}
			continue
		}
		if in.request && slices.ContainsFunc(in.schema.Properties, func(p upstream.Property) bool { return p.From != nil || p.Part }) {
			c.checkCollision(p, n, in.taken)
		}
		member := memberPlace{p.Name, sourcePath(p), p.Schema, n}
		if p.Internal {
			member.schema = nil
		}
		*in.places = append(*in.places, member)
		c.checkBelow(p.Schema, in.chosen)
	}
}

// checkEnclosed reports a fault if a hidden member would pass inside of another member, among its further members.
func (c *sourceChecker) checkEnclosed(all []memberPlace) {
	seen := map[[2]*upstream.Schema]bool{}
	for i, inner := range all {
		if !c.spend(1 + len(all)/64) {
			return
		}
		for j, m := range all {
			n := min(len(m.path), len(inner.path))
			if i == j || m.schema == nil || !slices.Equal(m.path[:n], inner.path[:n]) {
				continue
			}
			if slices.ContainsFunc(c.schemasAt(m.schema, inner.path[n:], 0), func(s *upstream.Schema) bool {
				if inner.schema == nil {
					return len(inner.path) > n && s.FreeJSON()
				}
				return slices.ContainsFunc(c.schemasAt(inner.schema, m.path[n:], 0), func(of *upstream.Schema) bool { return c.reveals(s, of, seen) })
			}) {
				c.fault(inner.node, "%s would be among the further members of %s, and not be hidden: give that the members that it has, and no further ones", inner.name, m.name)
			}
		}
	}
}

// reveals reports whether something that is hidden in inner would pass in s, which is at the same place, as a further member or in free JSON. inner
// is nil if it is hidden itself.
func (c *sourceChecker) reveals(s, inner *upstream.Schema, seen map[[2]*upstream.Schema]bool) bool {
	key := [2]*upstream.Schema{s, inner}
	if inner == nil || s == inner || c.broken[s] || seen[key] || !c.spend(1) {
		return inner == nil && s.FreeJSON() && !c.broken[s]
	}
	seen[key] = true
	passes := func(inner *upstream.Schema, at ...string) bool {
		return slices.ContainsFunc(c.schemasAt(s, at, 0), func(own *upstream.Schema) bool { return c.reveals(own, inner, seen) })
	}
	whole := s.FreeJSON() || s.Additional != nil
	switch {
	case s.Choice != nil:
		return slices.ContainsFunc(s.Choice.Alternatives, func(a *upstream.Schema) bool { return c.reveals(a, inner, seen) })
	case inner.Choice != nil:
		return inner.Withheld && whole || slices.ContainsFunc(inner.Choice.Alternatives, func(a *upstream.Schema) bool { return passes(a) })
	}
	if c.compares && !whole {
		if c.differs = difference(s, inner); c.differs != "" {
			return true
		}
	}
	return inner.Visible != "" && whole || inner.Withheld && passes(nil, anyName) ||
		slices.ContainsFunc(inner.Concealed, func(pointer string) bool { return passes(nil, append(namesIn(pointer), "")...) }) ||
		inner.Items != nil && passes(inner.Items, anItem) || inner.Additional != nil && passes(inner.Additional, anyName) ||
		slices.ContainsFunc(inner.Properties, func(p upstream.Property) bool {
			switch {
			case p.Part:
				return passes(p.Schema)
			case p.Internal || p.Schema.Refused != "":
				return passes(nil, sourcePath(&p)...)
			}
			return passes(p.Schema, sourcePath(&p)...)
		})
}

// difference returns what is wrong with two schemas in the same place of alternatives if an object of s could be one that inner rejects or removes. One
// that lacks the member by which inner removes objects is not: what inner has removed, no other alternative shows.
func difference(s, inner *upstream.Schema) string {
	filter := inner.Property(inner.Visible)
	switch {
	case s.Types&inner.Types&upstream.TypeObject == 0:
	case inner.Tenant != "" && s.Tenant == "":
		return "an object in one alternative declares the tenant, and the one in its place in another alternative does not: it would hide whose object it is. Declare it in both"
	case inner.Visible != "" && filter != nil && (s.Visible != inner.Visible || !slices.Equal(s.VisibleValues, inner.VisibleValues)) &&
		slices.ContainsFunc(s.Properties, func(p upstream.Property) bool { return sourcePath(&p)[0] == sourcePath(filter)[0] }):
		return "an object in one alternative has another " + extVisible + " than the one in its place in another alternative, which would show what it hides. Let both have the same"
	}
	return ""
}

// schemasAt returns the schemas with which the data service's member at a path below s leaves, or parts of it. A further member, and a part, counts as
// free JSON, too. depth is the number of schemas around s.
func (c *sourceChecker) schemasAt(s *upstream.Schema, path []string, depth int) (all []*upstream.Schema) {
	switch {
	case s == nil || depth > 2*maxNames || !c.spend(1): // a circle is a fault already
		return nil
	case s.FreeJSON() || len(path) == 0:
		return []*upstream.Schema{s}
	case s.Choice != nil:
		for _, alternative := range s.Choice.Alternatives {
			all = append(all, c.schemasAt(alternative, path, depth+1)...)
		}
		return all
	case path[0] == anItem:
		return c.schemasAt(s.Items, path[1:], depth+1)
	}
	known := false
	for i := range s.Properties {
		p := &s.Properties[i]
		place := sourcePath(p)
		if p.Part {
			place = nil // its members begin here, too
		}
		known = known || !p.Part && place[0] == path[0]
		switch n := len(place); {
		case p.Internal || p.Schema.Refused != "":
		case n > len(path) && slices.Equal(place[:len(path)], path) && p.Schema.Types&(upstream.TypeObject|upstream.TypeArray) != 0: // a part leaves
			all = append(all, upstream.AnyJSON())
		case n <= len(path) && slices.Equal(place, path[:n]), n == 1 && path[0] == anyName:
			all = append(all, c.schemasAt(p.Schema, path[n:], depth+1)...)
		}
	}
	if !known && s.Additional != nil {
		all = append(append(all, c.schemasAt(s.Additional, path[1:], depth+1)...), upstream.AnyJSON())
	}
	return all
}

// sourcePath returns the path to the data service's member from which a property is made.
func sourcePath(p *upstream.Property) []string {
	if p.From != nil && p.From.Names != nil {
		return p.From.Names
	}
	return []string{p.Name}
}

// checkCollision reports a fault if two members of a body would be sent as one, or one inside the other.
func (c *compiler) checkCollision(p *upstream.Property, n node, taken map[string]bool) {
	at := pointerOf(sourcePath(p)...)
	for other := range taken {
		if c.faultIf(other == at || strings.HasPrefix(other, at+"/") || strings.HasPrefix(at, other+"/"), n, "two members of a body would be sent at %s%s", at, adapterHint) {
			return
		}
	}
	taken[at] = true
}

// checkConversion checks that values from a member's source can be valid for the member.
func (c *compiler) checkConversion(op *upstream.Operation, p *upstream.Property, n node) {
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
	if c.faultIf(expected != "", n, "must be %s", expected) {
		return
	}
	for theirs, ours := range f.Values {
		c.faultIf(!s.IsValidScalar(ours), n, "%s becomes %s, which is not valid here", strconv.Quote(theirs), ours)
	}
}
