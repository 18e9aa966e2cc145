package definition

import (
	"cmp"
	"maps"
	"reflect"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// schemaKeywords are the keywords that a schema may have.
//
//nolint:gochecknoglobals // a constant
var schemaKeywords = []string{
	"$ref", "type", "nullable", "format", "enum", "const", "x-extensible-enum", "minLength", "maxLength", "pattern", "minimum", "maximum",
	"exclusiveMinimum", "exclusiveMaximum", "items", "minItems", "maxItems", "uniqueItems", "properties", "required", "minProperties",
	"maxProperties", "additionalProperties", "allOf", "oneOf", "anyOf", "discriminator", "default", "readOnly", "writeOnly", "deprecated",
	"contentEncoding", "contentMediaType", "$defs", "definitions", extTenant, extVisible, extInternal, extFrom, extUntrusted,
}

// otherKeywords are those of JSON Schema that are not enforced.
//
//nolint:gochecknoglobals // a constant
var otherKeywords = strings.Fields(`not if then else multipleOf patternProperties propertyNames contains minContains maxContains prefixItems
	unevaluatedProperties unevaluatedItems dependentSchemas dependentRequired dependencies`)

// annotations are keywords that do not restrict values, or are about the member that has the schema.
//
//nolint:gochecknoglobals // a constant
var annotations = []string{"default", "readOnly", "writeOnly", "deprecated", "x-extensible-enum", "discriminator", "contentEncoding", "contentMediaType", "$defs", "definitions", extInternal, extFrom, extUntrusted}

const (
	// maxPattern is the maximum length of a regular expression in bytes, and maxProgram that of its compiled form in instructions.
	maxPattern, maxProgram = 1000, 2000

	// maxPrograms is the maximum length of all compiled patterns of a document together.
	maxPrograms = 500_000

	// maxEnum is the maximum number of values of an enum.
	maxEnum = 10_000

	// maxChain is the maximum number of schemas that refer to each other in a row, and maxNested that of choices that are alternatives
	// of each other.
	maxChain, maxNested = 5000, 8

	// maxPostponed is how often merging may wait for another merge before it counts as a circle.
	maxPostponed = 32

	// maxTried is the maximum number of alternatives that are tried along a nesting of choices.
	maxTried = 64

	misplaced       = "is for the place of the member, and not for all references to a schema"
	besideReference = "is ignored, because OpenAPI 3.0 ignores members beside $ref: put both into allOf"
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

// schemaInfo is what only the compiler needs to know of a schema.
type schemaInfo struct {
	node      node
	of        string          // " of m", if members m of two objects are merged
	view      view            // what it is compiled for
	active    bool            // it has no content yet
	postponed int             // how many merges it waits for
	typed     bool            // a keyword says which types it has
	shaped    bool            // keywords say which members an object has
	null      bool            // a choice is nullable
	required  map[string]node // names
	closed    bool            // additionalProperties is false
	further   node            // additionalProperties, if its values are hidden
	finished  bool
	level     int // of a choice: 1 more than the levels of choices in its alternatives; 0: its types are not known yet

	// Of a choice: the references to its alternatives, its discriminator, and how many alternatives are tried at most.
	names         []string
	discriminator node
	tried         int
}

// describe registers about for a new schema.
func (c *compiler) describe(s *upstream.Schema, info schemaInfo) *schemaInfo {
	info.view = c.view
	c.infos[s] = &info
	return &info
}

// clone returns a copy of a schema that can be changed.
func (c *compiler) clone(s *upstream.Schema) *upstream.Schema {
	own, info := *s, *c.infos[s]
	info.finished = false
	c.infos[&own] = &info
	return &own
}

// brokenSchema returns a schema in place of one that has a fault.
func (c *compiler) brokenSchema() *upstream.Schema {
	s := upstream.AnyJSON()
	c.broken[s] = true
	return s
}

// schema compiles a schema, once for each view. Schemas that it refers to may still be incomplete when it returns.
func (c *compiler) schema(n node) *upstream.Schema {
	if c.faultIf(n.Node == nil, n, "the schema is missing") || c.faultIf(!n.isObject(), n, "a schema must be an object") {
		return c.brokenSchema()
	}
	var target node
	for i := 0; n.get("$ref").Node != nil; i++ { // follow references that have nothing beside them
		if target = c.follow(n); target.Node == nil || i == maxReferences {
			c.faultIf(target.Node != nil, n, circularReference)
			return c.brokenSchema()
		}
		c.checkPlacement(target)
		if !c.hasKeywordsBesideRef(n) {
			n, target = target, node{}
			continue
		}
		break
	}
	key := schemaKey{n.Node, c.view}
	if s := c.schemas[key]; s != nil {
		return s
	}
	if c.faultIf(c.depth == maxChain, n, "more than %d schemas refer to each other in a row", maxChain) || !c.spend(20+len(n.Content)) {
		return c.brokenSchema()
	}
	c.depth++
	defer func() { c.depth-- }()
	s := new(upstream.Schema)
	info := c.describe(s, schemaInfo{node: n, active: true})
	c.schemas[key] = s
	compiled := c.keywords(n)
	if target.Node != nil {
		if compiled = c.merge(n, c.schema(target), compiled); c.flag(n.get("nullable")) { // nullable holds for the target, too
			compiled = c.newChoice(n, compiled)
			c.infos[compiled].null = true
		}
	}
	from := c.infos[compiled]
	switch {
	case compiled == s:
		c.fault(n, "allOf is circular: the schema contains itself")
		s.Types = upstream.TypeAny
	case from == nil: // any JSON
		*s, *info = *compiled, schemaInfo{node: n, view: c.view, typed: true, shaped: true}
	default:
		if from.active { // it has no content yet
			compiled = c.newChoice(n, compiled)
			from = c.infos[compiled]
		}
		*s, *info = *compiled, *from
	}
	if s.Choice != nil {
		c.choices = append(c.choices, s)
	}
	info.node, info.active = n, false
	return s
}

// checkPlacement reports a fault if a schema that is not only that of a member says what is about the member.
func (c *compiler) checkPlacement(n node) {
	for _, name := range []string{extInternal, extFrom, extUntrusted} {
		c.faultIf(n.get(name).Node != nil, n.get(name), misplaced)
	}
}

// hasKeywordsBesideRef reports whether keywords beside a reference must hold, too.
func (c *compiler) hasKeywordsBesideRef(n node) bool {
	found := false
	for _, e := range n.entries() {
		switch {
		case (e.name == extInternal || e.name == extFrom || e.name == extUntrusted) && !c.memberNodes[n.Node]:
			c.fault(e.value, misplaced)
		case e.name == "readOnly" || e.name == "writeOnly":
			if c.flag(e.value) && c.isOpenAPI30 && e.name == hidingKeyword(c.view.request) { // for members, hides has obeyed it already
				c.fault(e.value, besideReference)
			}
		case e.name == "$ref" || isRemark(e.name) || slices.Contains(annotations, e.name):
		case !c.isOpenAPI30:
			found = true
		case strings.HasPrefix(e.name, extPrefix):
			c.fault(e.value, besideReference)
		default:
			c.warn(e.value, "is ignored, because OpenAPI 3.0 ignores members beside $ref")
		}
	}
	return found
}

// resolvePostponed completes merges that had to wait for other schemas, and finds the types of choices.
func (c *compiler) resolvePostponed() {
	for len(c.postponed) > 0 {
		next := c.postponed[0]
		c.postponed = c.postponed[1:]
		next()
	}
	for _, s := range c.choices {
		c.unwrap(s, 0)
	}
	c.choices = slices.DeleteFunc(c.choices, func(s *upstream.Schema) bool { return s.Choice == nil })
	for _, s := range c.choices {
		c.choiceTypes(s)
	}
}

// unwrap replaces a choice with its only alternative, besides null.
func (c *compiler) unwrap(s *upstream.Schema, depth int) {
	if s.Choice == nil {
		return
	}
	isNull := func(a *upstream.Schema) bool { return a.Choice == nil && a.Types == upstream.TypeNull }
	others := slices.DeleteFunc(slices.Clone(s.Choice.Alternatives), isNull)
	if len(others) != 1 {
		return
	}
	only, null := others[0], len(s.Choice.Alternatives) > 1
	if depth > maxReferences || only == s {
		c.fault(c.infos[s].node, "allOf is circular: the schema contains itself")
		s.Choice = nil
		return
	}
	c.unwrap(only, depth+1)
	info, withheld := *c.infos[s], s.Withheld
	info.null = info.null || null
	if *s = *only; c.infos[only] != nil {
		*c.infos[s] = *c.infos[only]
	}
	s.Withheld = s.Withheld || withheld
	own := c.infos[s]
	if own.node, own.view, own.null = info.node, info.view, own.null || info.null; info.null && s.Choice == nil {
		s.Types |= upstream.TypeNull
	}
}

// finish completes and checks a schema, and the schemas in it, as soon as all schemas have their content.
func (c *compiler) finish(s *upstream.Schema) {
	if s == nil || c.infos[s] == nil || c.infos[s].finished || !c.spend(2+len(s.Properties)) {
		return
	}
	info := c.infos[s]
	info.finished = true
	s.Properties = slices.Clone(s.Properties)
	for i := range s.Properties {
		p := &s.Properties[i]
		p.Part = c.usesFrom && p.From == nil && c.hasPointers(p.Schema)
	}
	c.complete(s, info)
	c.inChoices += b2i(s.Choice != nil)
	s.Parts(c.finish)
	c.inChoices -= b2i(s.Choice != nil)
}

// complete checks one schema.
func (c *compiler) complete(s *upstream.Schema, info *schemaInfo) {
	if s.Choice != nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(info.required)) {
		if s.Types&upstream.TypeObject == 0 {
			c.warn(info.required[name], "does nothing, because the type is not object")
			continue
		}
		c.faultIf(s.Property(name) == nil, info.required[name], "%s is not declared: add it to properties, or remove it from required", name)
	}
	switch {
	case s.Withheld && (s.FreeJSON() || s.Additional != nil):
		c.fault(info.node, besideMap)
	case s.FreeJSON():
	case !info.typed && info.node.in.Anchor != "":
		c.fault(info.node, "only the overlay has this schema, and without a type. If the document has renamed or removed it, correct the overlay; if the "+
			"service has it undocumented, give its type")
	case !info.typed:
		c.fault(info.node, "the type is missing: give the one or, in OpenAPI 3.1, all that are possible, such as [string, integer]")
	case s.Types == 0 || isContradictory(s) || c.inChoices == 0 && hasNoValue(s): // with a choice, one of its alternatives may be excluded
		c.fault(info.node, "no value%s can be valid: its rules contradict each other", info.of)
	case s.Types == upstream.TypeNull && c.inChoices == 0 && (info.node.get("allOf").Node != nil || info.node.get("$ref").Node != nil):
		c.warn(info.node, "only null is possible: no other type is in all of its parts")
	case s.Types&upstream.TypeObject != 0 && !info.shaped:
		c.fault(info.node, "an object needs properties or additionalProperties: otherwise it would always be emptied. With additionalProperties: true, any JSON passes; with false, it has no members")
	case s.Types&upstream.TypeArray != 0 && s.Items == nil:
		c.fault(info.node, "an array needs items")
	}
	if s.Types&upstream.TypeArray != 0 && s.Items != nil && (s.Rules == nil || s.Rules.MaxItems < 0) && c.o.MaxItems < unbounded {
		c.rules(s).MaxItems = c.o.MaxItems
		c.warn(info.node, "has at most %d items, because it does not say how many", c.o.MaxItems)
	}
	switch {
	case s.Additional == nil || !s.Additional.FreeJSON():
	case info.view.request:
		c.warn(info.node, "callers may send any JSON here, and it is not checked")
	case tenantMember(info.view.tenant) != "":
		c.warn(info.node, "callers get any JSON here, and its tenant is not checked")
	}
	c.findTenant(s, info)
}

// isContradictory reports whether no value can satisfy the bounds of a schema.
func isContradictory(s *upstream.Schema) bool {
	r, order := cmp.Or(s.Rules, upstream.NewRules()), -1
	if r.Min != "" && r.Max != "" {
		order = upstream.CompareNumbers(r.Min, r.Max)
	}
	return r.MaxLength >= 0 && r.MinLength > r.MaxLength || r.MaxItems >= 0 && r.MinItems > r.MaxItems ||
		r.MaxMembers >= 0 && r.MinMembers > r.MaxMembers || order > 0 ||
		order == 0 && (r.MinOpen || r.MaxOpen) && s.Types&^(upstream.TypeInteger|upstream.TypeNumber) == 0
}

// hasNoValue reports whether none of the possible values is in all lists that must hold, such as enum and const.
func hasNoValue(s *upstream.Schema) bool {
	return s.Rules != nil && s.Rules.Enum != nil && len(s.Rules.Enum) == 0 && s.Types&upstream.TypeNull == 0
}

// tenantMember returns the member that names the business, or "" if records do not name it.
func tenantMember(tenant string) string {
	if tenant == upstream.TenantByService || tenant == upstream.TenantNone {
		return ""
	}
	return tenant
}

// findTenant finds the properties that name the business.
func (c *compiler) findTenant(s *upstream.Schema, info *schemaInfo) {
	tenant := tenantMember(info.view.tenant)
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
		if name == "" || p == nil || p.Schema.Refused != "" {
			continue
		}
		if c.infos[p.Schema] == nil || p.Schema.Types&(upstream.TypeString|upstream.TypeInteger) == 0 || p.Schema.Choice != nil {
			c.fault(info.node, "the tenant %s must be a string or an integer", name)
			continue
		}
		c.faultIf(p.From != nil && p.From.Param+p.From.Pages != "", info.node, "the tenant %s must be what the service sends, and not come from a parameter", name)
		p.Schema = c.clone(p.Schema)
		if !c.o.Tools || !info.view.request { // in the body of a tool, the gateway writes it as the service has it
			p.Schema.Types |= upstream.TypeString | upstream.TypeInteger
		}
		if c.o.Tools && !info.view.request { // assistants need not see it: all records are the connected business's
			p.Internal = true
			arrange(s, info)
		}
	}
	c.findBusiness(s, info)
	if s.Visible != "" && !info.view.request {
		p := s.Property(s.Visible)
		if p == nil || p.Schema.Types&upstream.TypeString == 0 || !p.Required && !p.Internal {
			c.fault(info.node, "%s: %s must be a declared member, required and a string", extVisible, s.Visible)
			return
		}
		never := s.VisibleValues != nil && !slices.ContainsFunc(s.VisibleValues, func(value string) bool {
			quoted, _ := jsontext.AppendQuote(nil, value) // it is UTF-8
			return p.Schema.IsValidScalar(string(quoted))
		})
		c.faultIf(never && c.inChoices == 0, info.node, "%s: no value of %s is one of these, so every object would be removed", extVisible, s.Visible)
	}
}

// findBusiness finds further members of a body that a service could take for the business.
func (c *compiler) findBusiness(s *upstream.Schema, info *schemaInfo) {
	const scalar = upstream.TypeString | upstream.TypeInteger | upstream.TypeNumber
	names := strings.Split(info.view.business, "\xff")[1:]
	for i := range s.Properties {
		p := &s.Properties[i]
		own, theirs := strings.ToLower(plainName(p.Name)), plainPath(sourcePath(p))
		switch {
		case !slices.ContainsFunc(names, func(name string) bool { return name == own || name == theirs }) || !c.spend(len(names)):
		case p.Name == s.Tenant || p.Name == s.AlsoTenant || p.Part || p.Schema.Refused != "" || p.Schema.Types&scalar == 0:
		case s.Tenant == "":
			s.Tenant = p.Name
		case s.AlsoTenant == "":
			s.AlsoTenant = p.Name
		default:
			c.fault(info.node, "the service could take %s, %s and %s for the business: remove one of them", s.Tenant, s.AlsoTenant, p.Name)
		}
	}
}

// rules returns the rules of a schema so that they can be changed: a copy, because schemas share rules.
func (c *compiler) rules(s *upstream.Schema) *upstream.Rules {
	own := *cmp.Or(s.Rules, upstream.NewRules())
	s.Rules = &own
	return s.Rules
}

// keywords compiles the keywords of one schema, without $ref.
func (c *compiler) keywords(n node) *upstream.Schema {
	c.allowOnly(n, schemaKeywords...)
	s := &upstream.Schema{Types: upstream.TypeAny}
	info := c.describe(s, schemaInfo{node: n})
	for _, name := range []string{"readOnly", "writeOnly"} {
		c.flag(n.get(name)) // for document.hidden
	}
	if !c.memberNodes[n.Node] {
		c.checkPlacement(n)
	}
	c.types(n, s, info)
	c.text(n, s)
	c.numbers(n, s)
	if items := n.get("items"); items.Node != nil {
		s.Items = c.schema(items)
	}
	c.object(n, s, info)
	c.bounds(n, s)
	whole := s
	all := n.get("allOf")
	c.faultIf(all.Node != nil && len(c.list(all)) == 0, all, "must have at least one schema")
	for _, part := range all.items() {
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
	switch nullable, known := c.flag(n.get("nullable")), c.infos[whole]; {
	case !nullable || known == nil:
	case whole == s:
		s.Types |= upstream.TypeNull
	case known.active || whole.Choice != nil:
		whole = c.newChoice(n, whole)
		c.infos[whole].null = true
	default:
		whole = c.clone(whole)
		whole.Types |= upstream.TypeNull
	}
	return whole
}

// types compiles type, enum and const.
func (c *compiler) types(n node, s *upstream.Schema, info *schemaInfo) {
	t := n.get("type")
	names := t.items()
	if t.Node != nil && t.Kind == yaml.ScalarNode {
		names = []node{t}
	} else if t.Node != nil && len(names) == 0 {
		c.fault(t, "must be a type or a list of types")
	}
	for i, name := range names {
		types, ok := typeNames[name.text()]
		if !ok {
			c.fault(name, "%q is not a type: must be one of string, integer, number, boolean, object, array, null", name.text())
			types = upstream.TypeString
		}
		if i == 0 {
			s.Types, info.typed = 0, true
		}
		s.Types |= types
	}
	if info.typed && c.flag(n.get("nullable")) { // null may be one of the possible values, and need not be
		s.Types |= upstream.TypeNull
	}
	for _, name := range []string{"enum", "const"} {
		value := n.get(name)
		if value.Node == nil {
			continue
		}
		values := []node{value}
		if name == "enum" {
			if values = c.list(value); len(values) == 0 || len(values) > maxEnum {
				c.fault(value, "must have 1 to %d values", maxEnum)
				continue
			}
		}
		c.values(n, s, info, values)
	}
	switch {
	case info.typed:
	case n.get("properties").Node != nil || n.get("additionalProperties").Node != nil:
		s.Types, info.typed = upstream.TypeObject, true
	case n.get("items").Node != nil:
		s.Types, info.typed = upstream.TypeArray, true
	}
}

// values compiles the possible values of enum or const.
func (c *compiler) values(n node, s *upstream.Schema, info *schemaInfo, values []node) {
	r := upstream.NewRules()
	r.Enum = []string{}
	var types upstream.Types
	for _, value := range values {
		of, text := upstream.TypeNull, ""
		switch {
		case value.Kind != yaml.ScalarNode:
			c.fault(value, "only strings, numbers, true, false and null can be compared")
			continue
		case value.Tag == "!!null":
		case value.Tag == "!!str":
			of, text = upstream.TypeString, `"`+value.Value
		case value.Tag == "!!bool":
			of, text = upstream.TypeBoolean, strings.ToLower(value.Value)
		default:
			of, text = upstream.TypeNumber|upstream.TypeInteger, c.number(value)
			if strings.Contains(text, ".") && !strings.ContainsAny(text, "eE") { // lists are compared by text, and 1.0 is 1
				text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
			}
		}
		switch types |= of; {
		case s.Types&of != 0:
		case of == upstream.TypeNull:
			c.warn(value, "null is not accepted, because the type does not have it")
		default:
			c.fault(value, "is not of the type of the schema: put a string in quotes")
		}
		if text != "" {
			r.Enum = append(r.Enum, text)
		}
	}
	slices.Sort(r.Enum)
	if !info.typed {
		s.Types, info.typed = cmp.Or(types, upstream.TypeString), true
	}
	switch {
	case types == upstream.TypeNull:
		s.Types &= upstream.TypeNull
	case types&upstream.TypeNull == 0 && s.Types&upstream.TypeNull != 0:
		c.warn(n, "null is accepted, because the type has it, though it is not one of the possible values")
	}
	if types != 0 {
		s.Types &^= upstream.TypeObject | upstream.TypeArray // none of them is one of the values
		s.Rules = mergeRules(s.Rules, r)
	}
}

// text compiles the keywords for strings, and the formats of numbers.
func (c *compiler) text(n node, s *upstream.Schema) {
	if format := n.get("format"); format.Node != nil {
		name := c.string(format)
		f, known := formats[name]
		switch numeric := s.Types&(upstream.TypeInteger|upstream.TypeNumber) != 0; {
		case known && s.Types&upstream.TypeString != 0:
			s.Format = f
		case name == "int32" && numeric:
			r := c.rules(s)
			r.Min, r.Max = "-2147483648", "2147483647"
		case slices.Contains([]string{"int64", "float", "double"}, name) && numeric:
		default:
			c.warn(format, "the format %s is not known for this type, and is not checked", name)
		}
	}
	for _, name := range []string{"contentEncoding", "contentMediaType"} { // JSON Schema says that they assert nothing
		if content := n.get(name); content.Node != nil {
			c.warn(content, "%s is not checked", name)
		}
	}
	s.Known = c.strings(n.get("x-extensible-enum"))
	if pattern := n.get("pattern"); pattern.Node != nil {
		if compiled := c.pattern(pattern); compiled != nil {
			c.rules(s).Patterns = []*regexp.Regexp{compiled}
		}
	}
}

// escape matches an escape of ECMA-262. RE2 writes \uXXXX as \x{XXXX}, and has no surrogates.
var escape = regexp.MustCompile(`(?s)\\u([0-9A-CEFa-cef][0-9A-Fa-f]{3}|[Dd][0-7][0-9A-Fa-f]{2})|\\.`)

// pattern compiles a regular expression, whose size is bounded because it is run on what data services send.
func (c *compiler) pattern(n node) *regexp.Regexp {
	text := c.string(n)
	if c.patterns[text] != nil {
		return c.patterns[text]
	}
	switch {
	case len(text) > maxPattern:
		c.fault(n, "the pattern is longer than %d bytes", maxPattern)
		return nil
	case c.programs > maxPrograms:
		c.fault(n, "the patterns of this document are too expensive together")
		return nil
	}
	expression := escape.ReplaceAllStringFunc(text, func(one string) string {
		if len(one) == len(`\uXXXX`) {
			return `\x{` + one[2:] + "}"
		}
		return one
	})
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if c.faultIf(err != nil, n, "the pattern is not one of RE2: %v", err) {
		return nil
	}
	program, _ := syntax.Compile(parsed.Simplify()) // it never fails
	c.programs += len(program.Inst)
	if c.faultIf(len(program.Inst) > maxProgram, n, "the pattern is too expensive: repetitions such as {1000} count") {
		return nil
	}
	c.patterns[text] = regexp.MustCompile(expression) // package regexp does the same
	return c.patterns[text]
}

// number returns a number as JSON.
func (c *compiler) number(n node) string {
	if c.faultIf(n.Kind != yaml.ScalarNode || n.Tag != "!!int" && n.Tag != "!!float" || !upstream.IsNumber(n.Value), n, "must be a number as in JSON") {
		return "0"
	}
	return n.Value
}

// numbers compiles the bounds of numbers.
func (c *compiler) numbers(n node, s *upstream.Schema) {
	for _, side := range []struct {
		inclusive, exclusive string
		lower                bool
	}{{"minimum", "exclusiveMinimum", true}, {"maximum", "exclusiveMaximum", false}} {
		inclusive, exclusive := n.get(side.inclusive), n.get(side.exclusive)
		open := c.isOpenAPI30 && c.flag(exclusive) // in OpenAPI 3.0, it is about the bound beside it
		if inclusive.Node != nil {
			tighten(c.rules(s), side.lower, c.number(inclusive), open)
		}
		if exclusive.Node != nil && !c.isOpenAPI30 {
			tighten(c.rules(s), side.lower, c.number(exclusive), true)
		}
	}
}

// tighten narrows the lower or the upper bound of numbers. open says that the bound itself is invalid.
func tighten(r *upstream.Rules, lower bool, bound string, open bool) {
	own, ownOpen, sign := &r.Max, &r.MaxOpen, -1
	if lower {
		own, ownOpen, sign = &r.Min, &r.MinOpen, 1
	}
	narrower := 1
	if *own != "" {
		narrower = sign * upstream.CompareNumbers(bound, *own)
	}
	if narrower > 0 || narrower == 0 && open {
		*own, *ownOpen = bound, open
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
		if c.faultIf(err != nil || number < 0 || value.Tag != "!!int" || !upstream.IsNumber(value.Value), value, "must be a whole number that is not negative") {
			continue
		}
		*bound.to(c.rules(s)) = number
	}
	if c.flag(n.get("uniqueItems")) {
		c.rules(s).Unique = true
	}
}

// object compiles the keywords for objects.
func (c *compiler) object(n node, s *upstream.Schema, info *schemaInfo) {
	additional, properties := n.get("additionalProperties"), n.get("properties")
	info.shaped = additional.Node != nil || len(properties.entries()) > 0
	switch {
	case additional.Node == nil:
	case c.hidden(additional, c.view.request):
		s.Withheld, info.further = true, additional
	case additional.Kind == yaml.ScalarNode:
		if info.closed = !c.flag(additional); !info.closed {
			s.Additional = upstream.AnyJSON()
		}
	case additional.isObject() && !slices.ContainsFunc(additional.entries(), func(e entry) bool { return !isRemark(e.name) }):
		s.Additional = upstream.AnyJSON()
	default:
		s.Additional = c.schema(additional)
	}
	for _, e := range c.members(properties) {
		c.memberNodes[e.value.Node] = true
		p := upstream.Property{Name: e.name, From: c.source(e.value.get(extFrom)), Description: c.description(e.value)}
		if initial := e.value.get("default"); initial.Node != nil && c.o.Tools && c.view.request {
			p.Default = c.encodeJSON(initial)
		}
		if c.flag(e.value.get(extUntrusted)) && c.o.Tools && !c.view.request {
			p.As = untrusted + e.name
		}
		switch internal := c.flag(e.value.get(extInternal)); {
		case internal && c.view.request:
			s.Concealed = c.appendConcealed(s.Concealed, &p, e.value)
			hide(&p, c.view, upstream.Undocumented)
		case c.hides(e.value):
			c.withhold(s, &p, e.value)
		default:
			p.Internal, p.Schema = internal, c.schema(e.value)
		}
		s.Properties = append(s.Properties, p)
	}
	info.required = map[string]node{}
	for _, required := range c.list(n.get("required")) {
		info.required[c.string(required)] = required
	}
	arrange(s, info)
	if tenant := n.get(extTenant); tenant.Node != nil {
		s.Tenant, s.TenantIsField = c.string(tenant), true
	}
	visible := n.get(extVisible)
	for _, e := range visible.entries() {
		s.Visible, s.VisibleValues = e.name, c.strings(e.value)
	}
	c.faultIf(visible.Node != nil && (len(s.VisibleValues) == 0 || len(visible.Content) != 2), visible, "must be one member with a list of values, such as {status: [published]}")
}

// arrange sets which properties are required, and puts internal members last.
func arrange(s *upstream.Schema, info *schemaInfo) {
	slices.SortStableFunc(s.Properties, func(a, b upstream.Property) int { return cmp.Compare(b2i(a.Internal), b2i(b.Internal)) })
	for i := range s.Properties {
		p := &s.Properties[i]
		_, required := info.required[p.Name]
		// If an internal member is missing, the checks of tenant and visibility decide about the record.
		p.Required = required && !p.Internal && p.Schema.Refused == ""
	}
}

// hides reports whether a member does not occur in this view: it is writeOnly in a response, or readOnly in a request.
func (c *compiler) hides(member node) bool {
	readOnly, writeOnly := c.flag(member.get("readOnly")), c.flag(member.get("writeOnly"))
	c.faultIf(readOnly && writeOnly, member, "cannot be readOnly and writeOnly: no request and no response would have it")
	return c.view.request && readOnly || !c.view.request && writeOnly || c.hidden(member, c.view.request)
}

// withhold hides a member of s that n declares readOnly or writeOnly.
func (c *compiler) withhold(s *upstream.Schema, p *upstream.Property, n node) {
	s.Concealed = c.appendConcealed(s.Concealed, p, n)
	hide(p, c.view, upstream.ReadOnly)
}

// hide makes a member internal in responses, and refused with a reason in requests.
func hide(p *upstream.Property, v view, reason string) {
	if p.Schema = upstream.AnyJSON(); v.request {
		p.Schema = &upstream.Schema{Refused: reason}
	}
	p.Internal, p.WriteOnly = !v.request, !v.request
	switch {
	case p.From == nil:
	case p.From.Names == nil:
		p.From = nil
	default: // its value is not used, so it is not converted
		p.From = &upstream.Source{Names: p.From.Names, Pointer: p.From.Pointer}
	}
}

// choice compiles oneOf or anyOf of n.
func (c *compiler) choice(n, list node) *upstream.Schema {
	alternatives := c.list(list)
	if s := c.constants(list, alternatives); s != nil && n.get("discriminator").Node == nil {
		return s
	}
	if len(alternatives) == 0 || len(alternatives) > upstream.MaxAlternatives {
		c.fault(list, "must have 1 to %d alternatives", upstream.MaxAlternatives)
		s := &upstream.Schema{Types: upstream.TypeAny, Items: upstream.AnyJSON()} // prevents further faults
		c.describe(s, schemaInfo{node: list, typed: true, shaped: true})
		return s
	}
	s := c.newChoice(list)
	shown := c.shown(alternatives, c.view.request)
	switch {
	case len(shown) == len(alternatives):
	case n.get("discriminator").Node != nil:
		c.fault(n.get("discriminator"), "all alternatives must be readOnly or writeOnly, or none")
	default:
		alternatives, s.Withheld = shown, true
	}
	for _, alternative := range alternatives {
		c.infos[s].names = append(c.infos[s].names, alternative.get("$ref").text())
		s.Choice.Alternatives = append(s.Choice.Alternatives, c.schema(alternative))
	}
	c.infos[s].discriminator = n.get("discriminator")
	return s
}

// constants returns an enum's schema for a choice between constants, which some documents use to describe each of them. Otherwise, it returns nil.
func (c *compiler) constants(list node, alternatives []node) *upstream.Schema {
	isValue := func(n node) bool {
		return n.isObject() && (n.get("const").Node != nil || n.get("enum").Node != nil || n.get("type").text() == "null") &&
			!slices.ContainsFunc(n.entries(), func(e entry) bool {
				return !slices.Contains([]string{"type", "const", "enum", "deprecated"}, e.name) && !isRemark(e.name)
			})
	}
	if len(alternatives) == 0 || len(alternatives) > maxEnum || slices.ContainsFunc(alternatives, func(n node) bool { return !isValue(n) }) {
		return nil
	}
	s := &upstream.Schema{Rules: upstream.NewRules()}
	s.Rules.Enum = []string{}
	for _, alternative := range alternatives {
		value := c.schema(alternative)
		if s.Types |= value.Types; value.Rules != nil {
			s.Rules.Enum = append(s.Rules.Enum, value.Rules.Enum...)
		}
	}
	slices.Sort(s.Rules.Enum)
	c.describe(s, schemaInfo{node: list, typed: true})
	return s
}

func (c *compiler) newChoice(n node, alternatives ...*upstream.Schema) *upstream.Schema {
	s := &upstream.Schema{Types: upstream.TypeAny, Choice: &upstream.Choice{Alternatives: alternatives}}
	c.describe(s, schemaInfo{node: n, typed: true, shaped: true})
	c.choices = append(c.choices, s)
	return s
}

// restricts reports whether a schema restricts values. One without content yet counts as if it did.
func (c *compiler) restricts(s *upstream.Schema) bool {
	info := c.infos[s]
	return info != nil && (info.active || info.typed || info.shaped || len(info.required) > 0 || s.Rules != nil ||
		s.Format != 0 || s.Items != nil || s.Tenant != "" || s.Visible != "")
}

// merge returns a schema for values for which both schemas hold. If one of them has no content yet, the result gets its content in resolvePostponed.
func (c *compiler) merge(n node, a, b *upstream.Schema) *upstream.Schema {
	switch {
	case a == b, a.Refused != "":
		return a
	case b.Refused != "":
		return b
	case !c.restricts(b):
		return a
	case !c.restricts(a):
		return b
	}
	key := [2]*upstream.Schema{a, b}
	if m := c.merged[key]; m != nil {
		return m
	}
	infoA, infoB := c.infos[a], c.infos[b]
	if !infoA.active && !infoB.active {
		return c.mergeContent(n, a, b)
	}
	m := new(upstream.Schema)
	info := c.describe(m, schemaInfo{node: n, active: true, postponed: 1 + max(infoA.postponed, infoB.postponed)})
	c.merged[key] = m
	if circular := info.postponed > maxPostponed; circular || !c.spend(50) {
		c.faultIf(circular, n, "allOf is circular: the schema contains itself")
		*m, *info = upstream.Schema{Types: upstream.TypeAny}, schemaInfo{node: n, typed: true, shaped: true}
		return m
	}
	c.postponed = append(c.postponed, func() {
		v := c.view
		c.view = info.view
		if infoA.active || infoB.active { // they wait for each other
			c.fault(n, "allOf is circular: the schema contains itself")
			m.Types = upstream.TypeAny
		} else {
			whole := c.mergeContent(n, a, b)
			if *m, *info = *whole, *c.infos[whole]; m.Choice != nil {
				c.choices = append(c.choices, m)
			}
		}
		c.view, info.active = v, false
	})
	return m
}

// mergeContent merges two schemas with content.
func (c *compiler) mergeContent(n node, a, b *upstream.Schema) *upstream.Schema {
	key := [2]*upstream.Schema{a, b}
	if !c.spend(50 + len(a.Properties) + len(b.Properties)) {
		return a
	}
	if a.Choice != nil || b.Choice != nil {
		return c.distribute(n, a, b)
	}
	infoA, infoB := c.infos[a], c.infos[b]
	m := &upstream.Schema{Types: a.Types & b.Types, Format: cmp.Or(a.Format, b.Format), Rules: mergeRules(a.Rules, b.Rules)}
	info := c.describe(m, schemaInfo{
		node: n, typed: infoA.typed || infoB.typed, shaped: infoA.shaped || infoB.shaped, closed: infoA.closed || infoB.closed,
		further: cmp.Or(infoA.further, infoB.further), required: map[string]node{},
	})
	maps.Copy(info.required, infoA.required)
	maps.Copy(info.required, infoB.required)
	if c.merged[key] == nil {
		c.merged[key] = m
	}
	c.faultIf(a.Format != 0 && b.Format != 0 && a.Format != b.Format, n, "two formats cannot hold at once")
	either := func(a, b *upstream.Schema) *upstream.Schema {
		if a != nil && b != nil {
			return c.merge(n, a, b)
		}
		return cmp.Or(a, b)
	}
	m.Items = either(a.Items, b.Items)
	if m.Additional = either(a.Additional, b.Additional); info.closed || info.further.Node != nil {
		m.Additional = nil
	}
	m.Withheld = a.Withheld || b.Withheld
	m.Known, m.Concealed = slices.Concat(a.Known, b.Known), slices.Concat(a.Concealed, b.Concealed)
	m.Properties = slices.Clone(a.Properties)
	positions := make(map[string]int, len(m.Properties))
	further := func(p *upstream.Property, other *upstream.Schema) { // the property is a further member of the other schema
		if other.Additional != nil {
			p.Schema = c.merge(n, p.Schema, other.Additional)
		} else if hidden := c.infos[other].further; hidden.Node != nil {
			c.withhold(m, p, hidden)
		}
	}
	for i := range m.Properties {
		p := &m.Properties[i]
		if positions[p.Name] = i; b.Property(p.Name) == nil {
			further(p, b)
		}
	}
	for _, p := range b.Properties {
		i, ok := positions[p.Name]
		if !ok {
			further(&p, a)
			m.Properties = append(m.Properties, p)
			continue
		}
		own := &m.Properties[i]
		own.Schema, own.Internal = c.merge(n, own.Schema, p.Schema), own.Internal || p.Internal
		if merged := c.infos[own.Schema]; merged != nil && merged.node == n {
			merged.of = " of " + p.Name
		}
		c.faultIf(own.From != nil && p.From != nil && !reflect.DeepEqual(own.From, p.From), n, "two schemas of allOf have different x-gatehouse-from for %s", p.Name)
		own.From, own.As, own.Description = cmp.Or(own.From, p.From), cmp.Or(own.As, p.As), cmp.Or(own.Description, p.Description)
	}
	arrange(m, info)
	m.Tenant, m.TenantIsField = cmp.Or(a.Tenant, b.Tenant), a.TenantIsField || b.TenantIsField
	switch m.Visible, m.VisibleValues = cmp.Or(a.Visible, b.Visible), a.VisibleValues; {
	case a.Visible == "":
		m.VisibleValues = b.VisibleValues
	case b.Visible != "":
		m.VisibleValues = slices.DeleteFunc(slices.Clone(a.VisibleValues), func(value string) bool { return !slices.Contains(b.VisibleValues, value) })
	}
	if a.Tenant != "" && b.Tenant != "" && a.Tenant != b.Tenant || a.Visible != "" && b.Visible != "" && a.Visible != b.Visible {
		c.fault(n, "two schemas of allOf have different members as %s or %s", extTenant, extVisible)
	}
	return m
}

// distribute merges schemas of which at least one is a choice, by merging their alternatives.
func (c *compiler) distribute(n node, a, b *upstream.Schema) *upstream.Schema {
	s := c.newChoice(n)
	s.Withheld = a.Choice != nil && a.Withheld || b.Choice != nil && b.Withheld
	if key := [2]*upstream.Schema{a, b}; c.merged[key] == nil {
		c.merged[key] = s
	}
	allowsNull := func(s *upstream.Schema) bool { return s.Choice == nil && s.Types&upstream.TypeNull != 0 } // the types of a choice are not known yet
	alternativesOf := func(s *upstream.Schema) ([]*upstream.Schema, *schemaInfo, bool) {
		info := c.infos[s]
		if s.Choice == nil {
			return []*upstream.Schema{s}, info, allowsNull(s)
		}
		return s.Choice.Alternatives, info, info.null || slices.ContainsFunc(s.Choice.Alternatives, allowsNull)
	}
	first, ofA, nullA := alternativesOf(a)
	second, ofB, nullB := alternativesOf(b)
	info := c.infos[s]
	info.null = nullA && nullB
	if a.Choice != nil && b.Choice != nil && (ofA.discriminator.Node != nil || ofB.discriminator.Node != nil) {
		c.fault(n, "two oneOf or anyOf that allOf combines cannot have a discriminator")
	} else if info.discriminator = ofA.discriminator; info.discriminator.Node == nil {
		info.discriminator = ofB.discriminator
	}
	names := slices.Concat(ofA.names, ofB.names) // with a discriminator, only one of them is a choice with names
	for i, x := range first {
		for j, y := range second {
			m := c.merge(n, x, y)
			if m.Types == 0 && !c.infos[m].active {
				continue // it is never valid
			}
			s.Choice.Alternatives = append(s.Choice.Alternatives, m)
			if len(names) > 0 {
				info.names = append(info.names, names[min(max(i, j), len(names)-1)])
			}
		}
	}
	if len(s.Choice.Alternatives) == 0 && !info.null { // an outer choice leaves it out
		s.Choice, s.Types = nil, 0
		return s
	}
	if len(s.Choice.Alternatives) > upstream.MaxAlternatives {
		c.fault(n, "oneOf and anyOf that allOf combines have more than %d alternatives together", upstream.MaxAlternatives)
		s.Choice.Alternatives = s.Choice.Alternatives[:upstream.MaxAlternatives]
	}
	return s
}

// mergeRules returns the rules that values must satisfy for both.
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
	if b.Min != "" {
		tighten(&m, true, b.Min, b.MinOpen)
	}
	if b.Max != "" {
		tighten(&m, false, b.Max, b.MaxOpen)
	}
	if m.Enum == nil {
		m.Enum = b.Enum
	} else if b.Enum != nil {
		m.Enum = slices.DeleteFunc(slices.Clone(m.Enum), func(value string) bool {
			_, both := slices.BinarySearch(b.Enum, value)
			return !both
		})
	}
	return &m
}

// choiceTypes sets the types of a choice to those of its alternatives.
func (c *compiler) choiceTypes(s *upstream.Schema) {
	info := c.infos[s]
	if s.Choice == nil || info == nil || info.level > 0 {
		return
	}
	info.level = maxNested + 1 // while it is not known
	var types upstream.Types
	level := 0
	for _, alternative := range s.Choice.Alternatives {
		if c.choiceTypes(alternative); alternative.Choice != nil {
			level = max(level, c.infos[alternative].level)
		}
		types |= alternative.Types
	}
	c.faultIf(level >= maxNested, info.node, "oneOf and anyOf are nested more than %d deep, or are circular", maxNested)
	if info.level = 1 + level; info.null {
		types |= upstream.TypeNull
	}
	s.Types = types
}

const besideMap = "what is readOnly or writeOnly would pass as further members, or as any JSON, of the alternative beside it: list the members of that"

// decide finds out how to decide between the alternatives of a choice.
func (c *compiler) decide(s *upstream.Schema) {
	info := c.infos[s]
	fitting := func(t upstream.Types) []*upstream.Schema {
		return slices.DeleteFunc(slices.Clone(s.Choice.Alternatives), func(a *upstream.Schema) bool { return a.Types&t == 0 })
	}
	objects, overlap := fitting(upstream.TypeObject), 0
	for _, t := range []upstream.Types{upstream.TypeString, upstream.TypeInteger, upstream.TypeNumber, upstream.TypeBoolean, upstream.TypeArray} {
		overlap = max(overlap, len(fitting(t)))
	}
	if d := info.discriminator; d.Node != nil {
		c.compileDiscriminator(s, d)
	} else if len(objects) > 1 {
		discriminateByConstant(s, objects)
	}
	if s.Choice.Discriminator == "" {
		overlap = max(overlap, len(objects))
	}
	faults := len(c.faults)
	c.compareAlternatives(info, c.leaves(s.Choice.Alternatives, upstream.TypeObject), s.Choice.Discriminator == "")
	for i, lists := 0, c.leaves(s.Choice.Alternatives, upstream.TypeArray); len(lists) > 1 && i < maxNames; i++ {
		var items []*upstream.Schema
		for _, list := range lists {
			items = append(items, list.Items)
		}
		c.compareAlternatives(info, c.leaves(items, upstream.TypeObject), true)
		lists = c.leaves(items, upstream.TypeArray)
	}
	if s.Withheld && s.Choice.Discriminator == "" && slices.ContainsFunc(objects, func(a *upstream.Schema) bool { return a.FreeJSON() || a.Additional != nil }) {
		c.fault(info.node, besideMap)
	}
	f, seen := &sourceChecker{compiler: c, compares: len(c.faults) == faults && !info.view.request}, map[[2]*upstream.Schema]bool{}
	for i, a := range s.Choice.Alternatives { // what does not fit a may pass in b
		for j, b := range s.Choice.Alternatives {
			if f.differs = ""; i != j && (s.Choice.Discriminator == "" || a.Types&b.Types&upstream.TypeObject == 0) && f.reveals(b, a, seen) {
				c.fault(info.node, "%s, or add a discriminator or a constant that is required",
					cmp.Or(f.differs, "one alternative has further members, or any JSON, where another one hides something that would pass: list its members"))
			}
		}
	}
	if info.tried = overlap; overlap > upstream.MaxTried {
		c.fault(info.node, "more than %d alternatives would be tried: add a discriminator, or a member that is required and has other values in each", upstream.MaxTried)
	}
}

// compareAlternatives reports a fault if objects, which may be the items of lists, differ in what decides whose they are or whether they may be seen,
// and warns of those that others become.
// tried says that no member of them decides between them.
func (c *compiler) compareAlternatives(info *schemaInfo, all []*upstream.Schema, tried bool) {
	if info.view.request {
		return
	}
	owned := func(o *upstream.Schema) bool { return o.Tenant != "" }
	if slices.ContainsFunc(all, owned) && slices.ContainsFunc(all, func(o *upstream.Schema) bool { return !owned(o) }) {
		c.fault(info.node, "every alternative must declare the tenant, or none: one without it would hide whose object it is")
	}
	differs := func(o *upstream.Schema) bool {
		return o.Visible != all[0].Visible || !slices.Equal(o.VisibleValues, all[0].VisibleValues)
	}
	c.faultIf(tried && slices.ContainsFunc(all, differs), info.node, "every alternative must have the same %s, or none: one without it would show what another hides. "+
		"Or add a discriminator, or a constant that is required", extVisible)
	names := map[string]bool{}
	for _, o := range all {
		for _, p := range o.Properties {
			names[p.Name] = true
		}
	}
	for _, o := range all {
		if tried && !o.FreeJSON() && o.Additional == nil && len(c.infos[o].required) == 0 && len(o.Properties) < len(names) {
			c.warn(c.infos[o].node, "requires nothing: an object that fits no other alternative becomes this one, and loses what only others have. Require a member, or add a discriminator")
		}
	}
}

// leaves returns the schemas that allow a type, and instead of a choice those in it.
func (c *compiler) leaves(of []*upstream.Schema, t upstream.Types) (all []*upstream.Schema) {
	for _, s := range of {
		switch {
		case s == nil || s.Types&t == 0 || !c.spend(1):
		case s.Choice != nil && c.infos[s].level <= maxNested:
			all = append(all, c.leaves(s.Choice.Alternatives, t)...)
		default:
			all = append(all, s)
		}
	}
	return all
}

// compileDiscriminator compiles a discriminator.
func (c *compiler) compileDiscriminator(s *upstream.Schema, d node) {
	c.allowOnly(d, "propertyName", "mapping")
	info := c.infos[s]
	s.Choice.Discriminator, s.Choice.Values = c.string(d.get("propertyName")), map[string]*upstream.Schema{}
	mapping := c.members(d.get("mapping"))
	for i, alternative := range s.Choice.Alternatives {
		if alternative.Types&upstream.TypeObject == 0 {
			continue
		}
		p := alternative.Property(s.Choice.Discriminator)
		switch {
		case alternative.Choice != nil:
		case p == nil || p.Schema.Types&upstream.TypeString == 0:
			c.fault(d, "every alternative must have the member %q, which is a string", s.Choice.Discriminator)
		case !p.Required:
			c.warn(c.infos[alternative].node, "values without %s are not accepted where it decides what they are, although it is not required", s.Choice.Discriminator)
		}
		name, mapped := info.names[i], false
		for _, e := range mapping {
			if to := e.value.text(); to == name || name == "#/components/schemas/"+to {
				s.Choice.Values[e.name], mapped = alternative, true
			}
		}
		values := constants(p) // no others are valid, whatever the schema's name and the mapping
		if short := name[strings.LastIndexByte(name, '/')+1:]; values == nil && !mapped {
			c.faultIf(short == "", d, "every alternative must be a reference")
			values = []string{short}
		}
		for _, value := range values {
			if s.Choice.Values[value] == nil {
				s.Choice.Values[value] = alternative
			}
		}
	}
	for _, e := range mapping {
		c.faultIf(s.Choice.Values[e.name] == nil, e.value, "is not one of the alternatives")
	}
}

// constants returns the possible values of a member that is a string, or nil if these are not listed.
func constants(p *upstream.Property) (values []string) {
	if p != nil && p.Schema.Types&upstream.TypeString != 0 && p.Schema.Rules != nil {
		for _, value := range p.Schema.Rules.Enum {
			if text, ok := strings.CutPrefix(value, `"`); ok {
				values = append(values, text)
			}
		}
	}
	return values
}

// discriminateByConstant looks for a member that decides: a required one that has other values in every alternative, strings or integers.
func discriminateByConstant(s *upstream.Schema, objects []*upstream.Schema) {
	for _, p := range objects[0].Properties {
		values := map[string]*upstream.Schema{}
		if !slices.ContainsFunc(objects, func(o *upstream.Schema) bool { return !addConstants(values, o, p.Name) }) {
			s.Choice.Discriminator, s.Choice.Values = p.Name, values
			return
		}
	}
}

// addConstants adds the values of a member of an alternative, and reports whether the member is required and has none of the others'.
func addConstants(values map[string]*upstream.Schema, o *upstream.Schema, name string) bool {
	p := o.Property(name)
	if p == nil || o.Choice != nil || !p.Required || p.Schema.Rules == nil {
		return false
	}
	for _, value := range p.Schema.Rules.Enum {
		switch {
		case p.Schema.Types == upstream.TypeString:
			value = value[1:]
		case p.Schema.Types != upstream.TypeInteger || strings.Trim(value, "0123456789") != "": // compared as it stands in a body
			return false
		}
		if other := values[value]; other != nil && other != o {
			return false
		}
		values[value] = o
	}
	return len(p.Schema.Rules.Enum) > 0
}

// checkNesting reports a fault if too many alternatives would be tried along nested choices below a schema. tried is the product for the choices above it.
func (c *compiler) checkNesting(s *upstream.Schema, tried int) {
	if s == nil || c.infos[s] == nil || tried <= c.tried[s] || !c.spend(1) {
		return
	}
	c.tried[s] = tried
	if n := c.infos[s].tried; n > 1 {
		if tried *= n; tried > maxTried {
			c.fault(c.infos[s].node, "more than %d alternatives would be tried along this nesting of choices: add a discriminator, or constants that are required", maxTried)
			return
		}
	}
	s.Parts(func(part *upstream.Schema) { c.checkNesting(part, tried) })
}
