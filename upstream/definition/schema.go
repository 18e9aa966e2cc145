package definition

import (
	"cmp"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// The keywords of a schema.
//
//nolint:gochecknoglobals // a constant
var schemaKeywords = []string{
	"$ref", "type", "nullable", "format", "enum", "const", "x-extensible-enum", "minLength", "maxLength", "pattern", "minimum", "maximum",
	"exclusiveMinimum", "exclusiveMaximum", "items", "minItems", "maxItems", "uniqueItems", "properties", "required", "minProperties",
	"maxProperties", "additionalProperties", "allOf", "oneOf", "anyOf", "discriminator", "default", "readOnly", "writeOnly", "deprecated",
	extTenant, extVisible, extInternal,
}

// Keywords that say nothing about a value.
//
//nolint:gochecknoglobals // a constant
var annotations = []string{"default", "readOnly", "writeOnly", "deprecated", "x-extensible-enum", "discriminator", extInternal}

const (
	allTypes = upstream.TypeNull | upstream.TypeString | upstream.TypeInteger | upstream.TypeNumber | upstream.TypeBoolean |
		upstream.TypeObject | upstream.TypeArray

	// maxPattern is the maximum length of a regular expression, and maxProgram that of what it is compiled to.
	maxPattern, maxProgram = 1000, 2000

	// maxTried is the maximum number of alternatives that are tried along a nesting of choices.
	maxTried = 64
)

//nolint:gochecknoglobals // a constant
var typeNames = map[string]upstream.Types{
	"null": upstream.TypeNull, "string": upstream.TypeString, "integer": upstream.TypeInteger, "number": upstream.TypeNumber | upstream.TypeInteger,
	"boolean": upstream.TypeBoolean, "object": upstream.TypeObject, "array": upstream.TypeArray,
}

//nolint:gochecknoglobals // a constant
var formats = map[string]upstream.Format{
	"uuid": upstream.FormatUUID, "date": upstream.FormatDate, "date-time": upstream.FormatDateTime, "time": upstream.FormatTime,
	"email": upstream.FormatEmail, "uri": upstream.FormatURI, "utc-date-time": upstream.FormatInstant,
	"time-of-day": upstream.FormatTimeOfDay, "decimal": upstream.FormatDecimal,
}

// about is what the compiler knows of a schema beside what requests need.
type about struct {
	node     node
	active   bool            // it is being compiled
	typed    bool            // a keyword says what it may be
	shaped   bool            // it says which members an object has
	null     bool            // a choice is nullable
	required map[string]node // names that are not declared yet
	closed   bool            // additionalProperties is false
	used     bool

	// Of a choice: the references to its alternatives, its discriminator, and how many alternatives are tried at most.
	names         []string
	discriminator node
	tried         int
}

// schema compiles a schema, once for each tenant. What it refers to may still be compiled when it returns.
func (c *compiler) schema(n node) *upstream.Schema {
	ref := n.get("$ref")
	if ref.Node == nil {
		return c.target(n)
	}
	target := c.follow(n)
	if target.Node == nil {
		return upstream.AnyJSON()
	}
	s := c.target(target)
	beside := slices.DeleteFunc(n.entries(), func(e entry) bool {
		return e.name == "$ref" || isRemark(e.name) || slices.Contains(annotations, e.name)
	})
	if len(beside) == 0 {
		return s
	}
	if c.old {
		for _, e := range beside {
			c.warn(e.value, "is ignored, because OpenAPI 3.0 ignores members beside $ref")
		}
		return s
	}
	return c.merge(n, s, c.keywords(n))
}

// target compiles a schema that is not a reference.
func (c *compiler) target(n node) *upstream.Schema {
	key := schemaKey{n.Node, c.tenant}
	if s := c.schemas[key]; s != nil {
		return s
	}
	s := new(upstream.Schema)
	info := &about{node: n, active: true}
	c.schemas[key], c.about[s] = s, info
	compiled := c.keywords(n)
	from := c.about[compiled]
	switch {
	case compiled == s:
		c.fault(n, "the schemas that must hold lead in a circle")
	case from != nil && from.active: // it has no content yet
		compiled = c.newChoice(n, compiled)
		from = c.about[compiled]
	}
	if *s = *compiled; from != nil {
		*info = *from
	}
	if s.Choice != nil {
		c.choices = append(c.choices, s)
	}
	info.node, info.active = n, false
	return s
}

// used returns a schema that describes values, and not only a part of another one.
func (c *compiler) used(n node) *upstream.Schema {
	if n.Node == nil {
		c.fault(n, "a schema is missing")
		return upstream.AnyJSON()
	}
	s := c.schema(n)
	info := c.about[s]
	if info == nil || info.used {
		return s
	}
	info.used = true
	c.later = append(c.later, func() { c.complete(s, info) })
	return s
}

// complete checks what can be said of a schema only when it is complete.
func (c *compiler) complete(s *upstream.Schema, info *about) {
	for _, name := range slices.Sorted(maps.Keys(info.required)) {
		c.fault(info.required[name], "%s is not declared", name)
	}
	switch {
	case s.FreeJSON():
	case s.Choice != nil:
		for _, alternative := range s.Choice.Alternatives {
			if a := c.about[alternative]; a != nil && !a.used {
				a.used = true
				c.later = append(c.later, func() { c.complete(alternative, a) })
			}
		}
	case !info.typed:
		c.fault(info.node, "the type is missing")
	case s.Types == 0:
		c.fault(info.node, "no value can be valid: the schemas that must hold contradict each other")
	case s.Types&upstream.TypeObject != 0 && !info.shaped:
		c.fault(info.node, "an object needs properties or additionalProperties: otherwise it would always be emptied")
	case s.Types&upstream.TypeArray != 0 && s.Items == nil:
		c.fault(info.node, "an array needs items")
	}
	if s.Types&upstream.TypeArray != 0 && s.Items != nil && (s.Rules == nil || s.Rules.MaxItems < 0) && c.o.MaxItems < unbounded {
		c.rules(s).MaxItems = c.o.MaxItems
		c.warn(info.node, "has at most %d items, because it does not say how many", c.o.MaxItems)
	}
	c.owner(s, info)
}

// owner finds the properties that name the business.
func (c *compiler) owner(s *upstream.Schema, info *about) {
	tenant := c.tenant
	if tenant == upstream.TenantByService || tenant == upstream.TenantNone {
		tenant = ""
	}
	switch {
	case s.Tenant != "" && s.Property(s.Tenant) == nil:
		c.fault(info.node, "the tenant %s must be declared", s.Tenant)
	case s.Tenant != "" && s.Tenant != tenant && tenant != "" && s.Property(tenant) != nil:
		s.AlsoTenant = tenant
	case s.Tenant == "" && tenant != "" && s.Property(tenant) != nil:
		s.Tenant = tenant
	}
	for _, name := range []string{s.Tenant, s.AlsoTenant} {
		p := s.Property(name)
		if p == nil {
			continue
		}
		if p.Schema.Types&(upstream.TypeString|upstream.TypeInteger) == 0 || p.Schema.Choice != nil {
			c.fault(info.node, "the tenant %s must be a string or an integer", name)
		}
		either := *p.Schema
		either.Types |= upstream.TypeString | upstream.TypeInteger
		p.Schema = &either
	}
	if s.Visible != "" {
		if p := s.Property(s.Visible); p == nil || p.Schema.Types&upstream.TypeString == 0 {
			c.fault(info.node, "%s: %s must be a declared member and a string", extVisible, s.Visible)
		}
	}
}

// rules returns the rules of a schema, of its own.
func (c *compiler) rules(s *upstream.Schema) *upstream.Rules {
	if s.Rules == nil {
		s.Rules = upstream.NewRules()
	} else {
		own := *s.Rules
		s.Rules = &own
	}
	return s.Rules
}

// keywords compiles the keywords of one schema, without $ref.
func (c *compiler) keywords(n node) *upstream.Schema {
	c.only(n, schemaKeywords...)
	s := &upstream.Schema{Types: allTypes}
	info := &about{node: n}
	c.about[s] = info
	c.types(n, s, info)
	c.strings(n, s)
	c.numbers(n, s)
	if items := n.get("items"); items.Node != nil {
		s.Items = c.used(items)
	}
	c.object(n, s, info)
	c.bounds(n, s)
	whole := s
	for _, part := range n.get("allOf").items() {
		whole = c.merge(part, whole, c.schema(part))
	}
	for _, name := range []string{"oneOf", "anyOf"} {
		if choice := n.get(name); choice.Node != nil {
			whole = c.merge(choice, whole, c.choice(n, choice))
		}
	}
	if n.get("discriminator").Node != nil && n.get("oneOf").Node == nil && n.get("anyOf").Node == nil {
		c.warn(n.get("discriminator"), "does nothing without oneOf or anyOf: what only one kind has is removed")
	}
	switch nullable := c.flag(n.get("nullable")); {
	case nullable && whole == s:
		s.Types |= upstream.TypeNull
	case nullable:
		whole = c.newChoice(n, whole)
		c.about[whole].null = true
	}
	return whole
}

// types compiles type, enum and const.
func (c *compiler) types(n node, s *upstream.Schema, info *about) {
	names := n.get("type").items()
	if t := n.get("type"); t.text() != "" {
		names = []node{t}
	}
	var types upstream.Types
	for _, name := range names {
		if typeNames[name.text()] == 0 {
			c.fault(name, "%q is not a type: possible are string, integer, number, boolean, object, array and null", name.text())
		}
		types |= typeNames[name.text()]
	}
	values := n.get("enum").items()
	if constant := n.get("const"); constant.Node != nil {
		values = append(values, constant)
	}
	var of upstream.Types
	for _, value := range values {
		switch {
		case value.Kind != yaml.ScalarNode:
			c.fault(value, "only strings, numbers, true, false and null can be compared")
		case value.Tag == "!!null":
			of |= upstream.TypeNull
			continue
		case value.Tag == "!!str" || value.Tag == "!!timestamp":
			of |= upstream.TypeString
			c.rules(s).Enum = append(s.Rules.Enum, `"`+value.Value)
		case value.Tag == "!!bool":
			of |= upstream.TypeBoolean
			c.rules(s).Enum = append(s.Rules.Enum, strings.ToLower(value.Value))
		default:
			of |= upstream.TypeNumber | upstream.TypeInteger
			c.rules(s).Enum = append(s.Rules.Enum, c.number(value))
		}
	}
	switch {
	case len(names) > 0:
		s.Types, info.typed = types, true
	case len(values) > 0:
		s.Types, info.typed = of, true
	case n.get("properties").Node != nil || n.get("additionalProperties").Node != nil:
		s.Types, info.typed = upstream.TypeObject, true
	case n.get("items").Node != nil:
		s.Types, info.typed = upstream.TypeArray, true
	}
	if len(values) > 0 && of&upstream.TypeNull == 0 && s.Types&upstream.TypeNull != 0 {
		c.warn(n, "null is accepted, because the type has it, though it is not one of the possible values")
	}
}

// strings compiles what is about strings, and the formats of numbers.
func (c *compiler) strings(n node, s *upstream.Schema) {
	if format := n.get("format"); format.Node != nil {
		f, known := formats[format.text()]
		switch {
		case known && s.Types&upstream.TypeString != 0:
			s.Format = f
		case format.text() == "int32" && s.Types&(upstream.TypeInteger|upstream.TypeNumber) != 0:
			r := c.rules(s)
			r.Min, r.Max = "-2147483648", "2147483647"
		case slices.Contains([]string{"int64", "float", "double"}, format.text()) && s.Types&(upstream.TypeInteger|upstream.TypeNumber) != 0:
		default:
			c.warn(format, "the format %s is not known for this type, and is not checked", format.text())
		}
	}
	s.Known = n.get("x-extensible-enum").texts()
	if pattern := n.get("pattern"); pattern.Node != nil {
		if compiled := c.pattern(pattern); compiled != nil {
			c.rules(s).Patterns = []*regexp.Regexp{compiled}
		}
	}
}

// pattern compiles a regular expression, whose size is bounded because it is run on what data services send.
func (c *compiler) pattern(n node) *regexp.Regexp {
	if len(n.text()) > maxPattern {
		c.fault(n, "the pattern is longer than %d bytes", maxPattern)
		return nil
	}
	parsed, err := syntax.Parse(n.text(), syntax.Perl)
	if err != nil {
		c.fault(n, "the pattern is not one of RE2: %v", err)
		return nil
	}
	if program, err := syntax.Compile(parsed.Simplify()); err != nil || len(program.Inst) > maxProgram {
		c.fault(n, "the pattern is too expensive: repetitions such as {1000} count")
		return nil
	}
	compiled, err := regexp.Compile(n.text())
	if err != nil {
		c.fault(n, "the pattern is not one of RE2: %v", err)
		return nil
	}
	return compiled
}

// number returns a number as JSON.
func (c *compiler) number(n node) string {
	if text := n.text(); !upstream.IsNumber(text) {
		c.fault(n, "must be a number as in JSON")
		return "0"
	}
	return n.text()
}

// numbers compiles the bounds of numbers.
func (c *compiler) numbers(n node, s *upstream.Schema) {
	minimum, maximum := n.get("minimum"), n.get("maximum")
	if minimum.Node != nil {
		tighten(c.rules(s), c.number(minimum), "", false)
	}
	if maximum.Node != nil {
		tighten(c.rules(s), "", c.number(maximum), false)
	}
	for _, bound := range []struct {
		exclusive, inclusive node
		lower                bool
	}{{n.get("exclusiveMinimum"), minimum, true}, {n.get("exclusiveMaximum"), maximum, false}} {
		e := bound.exclusive
		switch {
		case e.Node == nil:
			continue
		case c.old:
			if !c.flag(e) || bound.inclusive.Node == nil {
				continue
			}
			e = bound.inclusive
		}
		if value := c.number(e); bound.lower {
			tighten(c.rules(s), value, "", true)
		} else {
			tighten(c.rules(s), "", value, true)
		}
	}
}

// tighten narrows the bounds of numbers.
func tighten(r *upstream.Rules, lower, upper string, open bool) {
	if lower != "" {
		if d := 1; r.Min == "" || func() bool { d = upstream.CompareNumbers(lower, r.Min); return d > 0 }() || d == 0 && open {
			r.Min, r.MinOpen = lower, open
		}
	}
	if upper != "" {
		if d := 1; r.Max == "" || func() bool { d = upstream.CompareNumbers(upper, r.Max); return d < 0 }() || d == 0 && open {
			r.Max, r.MaxOpen = upper, open
		}
	}
}

// bounds compiles lengths and counts.
func (c *compiler) bounds(n node, s *upstream.Schema) {
	for _, bound := range []struct {
		name string
		to   func(*upstream.Rules) *int
	}{
		{"minLength", func(r *upstream.Rules) *int { return &r.MinLength }},
		{"maxLength", func(r *upstream.Rules) *int { return &r.MaxLength }},
		{"minItems", func(r *upstream.Rules) *int { return &r.MinItems }},
		{"maxItems", func(r *upstream.Rules) *int { return &r.MaxItems }},
		{"minProperties", func(r *upstream.Rules) *int { return &r.MinMembers }},
		{"maxProperties", func(r *upstream.Rules) *int { return &r.MaxMembers }},
	} {
		value := n.get(bound.name)
		if value.Node == nil {
			continue
		}
		number, err := strconv.Atoi(value.text())
		if err != nil || number < 0 {
			c.fault(value, "must be a whole number that is not negative")
			continue
		}
		*bound.to(c.rules(s)) = number
	}
	if c.flag(n.get("uniqueItems")) {
		c.rules(s).Unique = true
	}
}

// object compiles what is about objects.
func (c *compiler) object(n node, s *upstream.Schema, info *about) {
	additional := n.get("additionalProperties")
	info.shaped = additional.Node != nil || len(n.get("properties").entries()) > 0
	switch {
	case additional.Node == nil:
	case additional.text() == "false":
		info.closed = true
	case additional.text() == "true" || additional.isObject() && len(additional.Content) == 0:
		s.Additional = upstream.AnyJSON()
		c.loose(additional)
	default:
		s.Additional = c.used(additional)
	}
	if properties := n.get("properties"); properties.Node != nil && !properties.isObject() {
		c.fault(properties, "must be an object")
	}
	for _, e := range n.get("properties").entries() {
		s.Properties = append(s.Properties, c.property(e))
	}
	for _, required := range n.get("required").items() {
		if info.required == nil {
			info.required = map[string]node{}
		}
		info.required[required.text()] = required
	}
	if r := n.get("required"); r.Node != nil && r.Kind != yaml.SequenceNode {
		c.fault(r, "must be a list of names")
	}
	arrange(s, info)
	if tenant := n.get(extTenant); tenant.Node != nil {
		s.Tenant, s.TenantIsField = tenant.text(), true
		if s.Tenant == "" {
			c.fault(tenant, "must be the name of a member")
		}
	}
	for i, e := range n.get(extVisible).entries() {
		if s.Visible, s.Shown = e.name, e.value.texts(); i > 0 || len(s.Shown) == 0 {
			c.fault(e.value, "must be one member with a list of values, such as {status: [published]}")
		}
	}
	if v := n.get(extVisible); v.Node != nil && s.Visible == "" {
		c.fault(v, "must be one member with a list of values, such as {status: [published]}")
	}
}

// property compiles a member of an object. Flags count beside a reference and behind it.
func (c *compiler) property(e entry) upstream.Property {
	p := upstream.Property{Name: e.name}
	target := c.follow(e.value)
	internal := e.value.get(extInternal)
	if internal.Node == nil && target.get(extInternal).Node != nil && target.Node != e.value.Node {
		c.fault(target.get(extInternal), "is for the place of the member, and not for all references to a schema")
	}
	p.Internal = c.flag(internal)
	if c.flag(e.value.get("writeOnly")) || c.flag(target.get("writeOnly")) {
		p.Internal, p.Schema = true, upstream.AnyJSON()
		return p
	}
	p.Schema = c.used(e.value)
	if p.Internal { // its absence decides what becomes of the record
		own := *p.Schema
		c.about[&own], p.Schema = c.about[p.Schema], &own
		own.Types |= upstream.TypeNull
	}
	return p
}

// arrange applies the names that are required, and puts internal members last.
func arrange(s *upstream.Schema, info *about) {
	slices.SortStableFunc(s.Properties, func(a, b upstream.Property) int {
		return cmp.Compare(map[bool]int{true: 1}[a.Internal], map[bool]int{true: 1}[b.Internal])
	})
	for i := range s.Properties {
		p := &s.Properties[i]
		if _, ok := info.required[p.Name]; ok {
			p.Required = !p.Internal // the absence of an internal member decides what becomes of the record
			info.required = maps.Clone(info.required)
			delete(info.required, p.Name)
		}
	}
}

// loose says that undocumented values leave.
func (c *compiler) loose(n node) {
	if c.tenant == upstream.TenantByService || c.tenant == upstream.TenantNone {
		return
	}
	c.warn(n, "any JSON leaves here, and is not checked for its tenant")
}

// choice compiles oneOf or anyOf of n.
func (c *compiler) choice(n, list node) *upstream.Schema {
	alternatives := list.items()
	if len(alternatives) == 0 || len(alternatives) > upstream.MaxAlternatives {
		c.fault(list, "must have 1 to %d alternatives", upstream.MaxAlternatives)
		return upstream.AnyJSON()
	}
	s := c.newChoice(list)
	for _, alternative := range alternatives {
		c.about[s].names = append(c.about[s].names, alternative.get("$ref").text())
		s.Choice.Alternatives = append(s.Choice.Alternatives, c.schema(alternative))
	}
	c.about[s].discriminator = n.get("discriminator")
	return s
}

func (c *compiler) newChoice(n node, alternatives ...*upstream.Schema) *upstream.Schema {
	s := &upstream.Schema{Types: allTypes, Choice: &upstream.Choice{Alternatives: alternatives}}
	c.about[s] = &about{node: n, typed: true, shaped: true}
	c.choices = append(c.choices, s)
	return s
}

// says reports whether a schema says anything. What may be active is taken to.
func (c *compiler) says(s *upstream.Schema) bool {
	info := c.about[s]
	return info != nil && (info.active || info.typed || info.shaped || len(info.required) > 0 || s.Rules != nil || s.Format != 0 || s.Items != nil ||
		s.Tenant != "" || s.Visible != "")
}

// merge returns a schema for values for which both schemas hold.
func (c *compiler) merge(n node, a, b *upstream.Schema) *upstream.Schema {
	key := [2]*upstream.Schema{a, b}
	switch {
	case a == b || !c.says(b):
		return a
	case !c.says(a):
		return b
	case c.about[a].active || c.about[b].active:
		c.fault(n, "the schemas that must hold lead in a circle")
		return a
	case c.merged[key] != nil:
		return c.merged[key]
	case a.Choice != nil || b.Choice != nil:
		c.merged[key] = c.distribute(n, a, b)
		return c.merged[key]
	}
	m := &upstream.Schema{Types: a.Types & b.Types, Format: cmp.Or(a.Format, b.Format)}
	info := &about{
		node: n, typed: c.about[a].typed || c.about[b].typed, shaped: c.about[a].shaped || c.about[b].shaped,
		closed: c.about[a].closed || c.about[b].closed, required: maps.Clone(c.about[a].required),
	}
	if info.required == nil {
		info.required = map[string]node{}
	}
	maps.Copy(info.required, c.about[b].required)
	c.merged[key], c.about[m] = m, info
	if a.Format != 0 && b.Format != 0 && a.Format != b.Format {
		c.fault(n, "two formats cannot hold at once")
	}
	m.Rules = mergeRules(a.Rules, b.Rules)
	if m.Items = a.Items; b.Items != nil {
		m.Items = b.Items
		if a.Items != nil {
			m.Items = c.merge(n, a.Items, b.Items)
		}
	}
	if m.Additional = a.Additional; b.Additional != nil {
		m.Additional = b.Additional
		if a.Additional != nil {
			m.Additional = c.merge(n, a.Additional, b.Additional)
		}
	}
	if info.closed {
		m.Additional = nil
	}
	m.Properties = slices.Clone(a.Properties)
	for _, p := range b.Properties {
		own := m.Property(p.Name)
		if own == nil {
			m.Properties = append(m.Properties, p)
			continue
		}
		own.Schema = c.merge(n, own.Schema, p.Schema)
		own.Required, own.Internal = own.Required || p.Required, own.Internal || p.Internal
	}
	arrange(m, info)
	m.Tenant, m.TenantIsField = cmp.Or(a.Tenant, b.Tenant), a.TenantIsField || b.TenantIsField
	m.Visible, m.Shown = a.Visible, a.Shown
	if b.Visible != "" {
		m.Visible, m.Shown = b.Visible, b.Shown
	}
	if a.Tenant != "" && b.Tenant != "" && a.Tenant != b.Tenant || a.Visible != "" && b.Visible != "" && a.Visible != b.Visible {
		c.fault(n, "two schemas that must hold name different members for %s or %s", extTenant, extVisible)
	}
	return m
}

// distribute merges schemas of which at least one is a choice.
func (c *compiler) distribute(n node, a, b *upstream.Schema) *upstream.Schema {
	if a.Choice == nil {
		a, b = b, a
	}
	s := c.newChoice(n)
	from := c.about[a]
	c.about[s].discriminator, c.about[s].names, c.about[s].null = from.discriminator, from.names, from.null && c.about[b].null
	others := []*upstream.Schema{b}
	if b.Choice != nil {
		others = b.Choice.Alternatives
		if from.discriminator.Node != nil || c.about[b].discriminator.Node != nil {
			c.fault(n, "two choices that must hold at once cannot have a discriminator")
		}
	}
	for _, alternative := range a.Choice.Alternatives {
		for _, other := range others {
			s.Choice.Alternatives = append(s.Choice.Alternatives, c.merge(n, alternative, other))
		}
	}
	if len(s.Choice.Alternatives) > upstream.MaxAlternatives {
		c.fault(n, "choices that must hold at once have more than %d alternatives together", upstream.MaxAlternatives)
		s.Choice.Alternatives = s.Choice.Alternatives[:upstream.MaxAlternatives]
	}
	return s
}

// mergeRules returns the rules of both.
func mergeRules(a, b *upstream.Rules) *upstream.Rules {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	least := func(x, y int) int { // -1 is none
		if x < 0 || y >= 0 && y < x {
			return y
		}
		return x
	}
	m := *a
	m.MinLength, m.MinItems, m.MinMembers = max(a.MinLength, b.MinLength), max(a.MinItems, b.MinItems), max(a.MinMembers, b.MinMembers)
	m.MaxLength, m.MaxItems, m.MaxMembers = least(a.MaxLength, b.MaxLength), least(a.MaxItems, b.MaxItems), least(a.MaxMembers, b.MaxMembers)
	m.Patterns, m.Unique = slices.Concat(a.Patterns, b.Patterns), a.Unique || b.Unique
	tighten(&m, b.Min, b.Max, false)
	tighten(&m, b.Min, b.Max, true && (b.MinOpen || b.MaxOpen))
	if m.Enum == nil {
		m.Enum = b.Enum
	} else if b.Enum != nil {
		m.Enum = slices.DeleteFunc(slices.Clone(m.Enum), func(e string) bool { return !slices.Contains(b.Enum, e) })
	}
	return &m
}

// settle completes the schemas of an operation, once what they refer to is compiled.
func (c *compiler) settle() {
	for _, s := range c.choices {
		c.choiceTypes(s, map[*upstream.Schema]bool{})
	}
	for len(c.later) > 0 {
		complete := c.later[0]
		c.later = c.later[1:]
		complete()
	}
	for _, s := range c.choices {
		c.decide(s)
	}
	c.choices = nil
}

// choiceTypes sets the types of a choice to those of its alternatives.
func (c *compiler) choiceTypes(s *upstream.Schema, visiting map[*upstream.Schema]bool) upstream.Types {
	if s.Choice == nil {
		return s.Types
	}
	if visiting[s] {
		c.fault(c.about[s].node, "the schemas lead in a circle")
		s.Choice = nil
		return s.Types
	}
	visiting[s] = true
	defer delete(visiting, s)
	var types upstream.Types
	for _, alternative := range s.Choice.Alternatives {
		types |= c.choiceTypes(alternative, visiting)
	}
	if s.Choice == nil {
		return s.Types
	}
	if c.about[s].null {
		types |= upstream.TypeNull
	}
	s.Types = types
	return types
}

// decide finds out what decides between the alternatives of a choice.
func (c *compiler) decide(s *upstream.Schema) {
	if s.Choice == nil {
		return
	}
	info := c.about[s]
	var objects []*upstream.Schema
	overlap := 0
	for t := upstream.TypeNull; t <= upstream.TypeArray; t <<= 1 {
		n := 0
		for _, alternative := range s.Choice.Alternatives {
			if alternative.Types&t == 0 {
				continue
			}
			if n++; t == upstream.TypeObject {
				objects = append(objects, alternative)
			}
		}
		if t != upstream.TypeObject && t != upstream.TypeNull {
			overlap = max(overlap, n)
		}
	}
	owned := 0
	for _, o := range objects {
		if o.Tenant != "" {
			owned++
		}
	}
	if owned > 0 && owned < len(objects) {
		c.fault(info.node, "every alternative must declare the tenant, or none: one without it would hide whose object it is")
	}
	if d := info.discriminator; d.Node != nil {
		c.byDiscriminator(s, d)
	} else if len(objects) > 1 {
		byConstant(s, objects)
	}
	if s.Choice.By == "" {
		overlap = max(overlap, len(objects))
	}
	info.tried = overlap
}

// byDiscriminator compiles a discriminator.
func (c *compiler) byDiscriminator(s *upstream.Schema, d node) {
	c.only(d, "propertyName", "mapping")
	info := c.about[s]
	s.Choice.By, s.Choice.Values = d.get("propertyName").text(), map[string]*upstream.Schema{}
	for i, alternative := range s.Choice.Alternatives {
		if alternative.Types&upstream.TypeObject == 0 {
			continue
		}
		p := alternative.Property(s.Choice.By)
		if alternative.Choice == nil && (p == nil || !p.Required || p.Schema.Types&upstream.TypeString == 0) {
			c.fault(d, "every alternative must have the member %q, which is required and a string", s.Choice.By)
		}
		name := info.names[min(i, len(info.names)-1)]
		mapped := false
		for _, e := range d.get("mapping").entries() {
			if to := e.value.text(); to == name || name == "#/components/schemas/"+to {
				s.Choice.Values[e.name], mapped = alternative, true
			}
		}
		switch short := name[strings.LastIndexByte(name, '/')+1:]; {
		case short == "" && !mapped:
			c.fault(d, "every alternative must be a reference")
		case s.Choice.Values[short] == nil && !mapped:
			s.Choice.Values[short] = alternative
		}
	}
	for _, e := range d.get("mapping").entries() {
		if s.Choice.Values[e.name] == nil {
			c.fault(e.value, "is not one of the alternatives")
		}
	}
}

// byConstant lets a required member decide that has another constant in every alternative.
func byConstant(s *upstream.Schema, objects []*upstream.Schema) {
	for _, p := range objects[0].Properties {
		values := map[string]*upstream.Schema{}
		for _, o := range objects {
			if own := o.Property(p.Name); own != nil && o.Choice == nil && own.Required && own.Schema.Types == upstream.TypeString &&
				own.Schema.Rules != nil && len(own.Schema.Rules.Enum) == 1 {
				values[own.Schema.Rules.Enum[0][1:]] = o
			}
		}
		if len(values) == len(objects) {
			s.Choice.By, s.Choice.Values = p.Name, values
			return
		}
	}
}

// nesting reports a fault if too many alternatives are tried along a nesting of choices below a schema, before which tried are.
func (c *compiler) nesting(s *upstream.Schema, tried int, best map[*upstream.Schema]int) {
	if s == nil || c.about[s] == nil || tried <= best[s] {
		return
	}
	best[s] = tried
	if n := c.about[s].tried; n > 1 {
		if tried *= n; tried > maxTried {
			c.fault(c.about[s].node, "more than %d alternatives would be tried along this nesting of choices: add a discriminator, or constants that are required", maxTried)
			return
		}
	}
	c.nesting(s.Items, tried, best)
	c.nesting(s.Additional, tried, best)
	for i := range s.Properties {
		c.nesting(s.Properties[i].Schema, tried, best)
	}
	if s.Choice != nil {
		for _, alternative := range s.Choice.Alternatives {
			c.nesting(alternative, tried, best)
		}
	}
}
