package definition

import (
	"cmp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// parameter publishes a parameter that is forwarded.
func (p *publisher) parameter(n node) *yaml.Node {
	n = p.resolve(n)
	schema := p.resolve(n.get("schema"))
	publishers := p.valueMembers(n)
	clamped := n.get(extClamp).text() == "true"
	if clamped { // what is outside the bounds is accepted, so they are only described
		publishers["schema"] = func(out *yaml.Node, e entry) {
			put(out, e.name, p.schema(schema))
			remove(member(out, e.name), "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
		}
	}
	out := p.pick(n, "name in description required deprecated style explode", publishers)
	if n.get("in").text() == "path" && member(out, "required") == nil {
		put(out, "required", &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: "true"}) // OpenAPI requires it
	}
	has := func(name string) bool { return schema.get(name).Node != nil }
	narrow := slices.ContainsFunc([]string{"pattern", "format", "enum", "const"}, has)
	switch {
	case clamped:
		low, high, description := schema.get("minimum").text(), schema.get("maximum").text(), n.get("description").text()
		if !strings.Contains(description, low) || !strings.Contains(description, high) {
			added := strings.NewReplacer("{minimum}", low, "{maximum}", high).Replace(p.rules.get("clamped").text())
			put(out, "description", text(strings.TrimSpace(strings.TrimSpace(description)+" "+added)))
		}
	case n.get("in").text() == "path" && schema.get("type").text() == "string" && !narrow: // any text of one segment
		for _, e := range p.rules.get("segment").entries() {
			if !has(e.name) {
				put(member(out, "schema"), e.name, copyOf(e.value.Node))
			}
		}
	}
	return out
}

// valueMembers says how to publish the schema and the examples of a parameter, a header or a media type.
func (p *publisher) valueMembers(n node) memberPublishers {
	example := func(out *yaml.Node, e entry) { put(out, e.name, p.example(e.value, nil, n.get("schema"))) }
	return memberPublishers{
		"schema":  func(out *yaml.Node, e entry) { put(out, e.name, p.schema(e.value)) },
		"example": example,
		"examples": func(out *yaml.Node, e entry) {
			examples := object()
			for _, e := range e.value.entries() {
				if ref := e.value.get("$ref"); ref.Node != nil && !strings.HasPrefix(ref.text(), "#") {
					continue // it is in another file
				}
				put(examples, e.name, p.pick(p.resolve(e.value), "summary description", memberPublishers{"value": example}))
			}
			put(out, e.name, examples)
		},
	}
}

// mergeMedia returns a media type that allows the values of own and of ours. own may be nil.
func mergeMedia(own, ours *yaml.Node) *yaml.Node {
	if own == nil {
		return ours
	}
	schemas, examples := list(), object()
	for i, media := range []*yaml.Node{own, ours} {
		if schema := member(media, "schema"); schema != nil {
			schemas.Content = append(schemas.Content, schema)
		}
		if example := member(media, "example"); example != nil {
			put(examples, []string{"documented", "gateway"}[i], object("value", example))
		}
		for _, e := range rootNode(media).get("examples").entries() {
			put(examples, e.name, e.value.Node)
		}
	}
	return object("schema", object("anyOf", schemas), "examples", examples)
}

// schema publishes a schema without hidden members: its own, and those that a schema hides of which it is a part.
func (p *publisher) schema(n node, hidden ...string) *yaml.Node {
	if !n.isObject() {
		return copyOf(n.Node) // true or false
	}
	hidden = append(p.hiddenIn(n), hidden...)
	out := object()
	out.Style = n.Style
	// OpenAPI 3.0 ignores members beside $ref.
	alone := n.get("$ref").Node != nil && p.isOpenAPI30
	var pattern *yaml.Node // of the format, if the schema has one of its own, too
	for _, e := range n.entries() {
		if alone && !slices.Contains([]string{"$ref", "title", "description"}, e.name) {
			continue
		}
		if value := p.keyword(n, e, hidden); value != nil {
			put(out, e.name, value)
		}
		if types := append(n.get("type").texts(), n.get("type").text()); e.name == "format" {
			for _, rule := range p.rules.get("formats").get(e.value.text()).entries() {
				switch {
				case rule.name == "pattern" && n.get("type").Node != nil && !slices.Contains(types, "string"): // it is not known for this type
				case rule.name == "pattern" && n.get("pattern").Node != nil:
					pattern = object("pattern", copyOf(rule.value.Node))
				default:
					put(out, rule.name, copyOf(rule.value.Node))
				}
			}
		}
	}
	if name := p.requiredByChoice(n, hidden); name != "" {
		required := cmp.Or(member(out, "required"), &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle})
		required.Content = append(required.Content, text(name))
		put(out, "required", required)
	}
	if pattern != nil {
		all := cmp.Or(member(out, "allOf"), list())
		all.Content = append(all.Content, pattern)
		put(out, "allOf", all)
	}
	switch {
	case alone:
	case n.get("nullable").text() == "true" && isComposed(n):
		return orNull(out, n)
	default:
		addTypes(out, n, n.get("nullable").text() == "true")
	}
	return out
}

// isComposed reports whether a schema consists of others.
func isComposed(n node) bool {
	return slices.ContainsFunc([]string{"$ref", "allOf", "oneOf", "anyOf"}, func(name string) bool { return n.get(name).Node != nil })
}

// orNull returns a schema that allows null, too, as nullable means to the compiler. Null in its type would not suffice: its parts must allow it, too.
func orNull(out *yaml.Node, n node) *yaml.Node {
	outer := object()
	for _, name := range []string{"title", "description", "deprecated", "readOnly", "writeOnly", "default", "example", "examples"} {
		if value := member(out, name); value != nil {
			put(outer, name, value)
			remove(out, name)
		}
	}
	addTypes(out, n, false)
	put(outer, "anyOf", list(out, object("type", text("null"))))
	return outer
}

// keyword publishes a keyword of a schema, or returns nil. Only the keywords listed here, and format, are published.
func (p *publisher) keyword(n node, e entry, hidden []string) *yaml.Node {
	each := func(items []node, publish func(node) *yaml.Node) *yaml.Node {
		out := &yaml.Node{Kind: yaml.SequenceNode, Style: e.value.Style}
		for _, item := range items {
			out.Content = append(out.Content, publish(item))
		}
		return out
	}
	part := func(part node) *yaml.Node { return p.schema(part, hidden...) }
	switch e.name {
	case "title", "summary", "description", "deprecated", "readOnly", "writeOnly", "type", "x-extensible-enum", "pattern", "minLength", "maxLength",
		"minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties":
		return copyPlain(e.value)
	case "minimum", "maximum":
		if n.get("exclusiveM"+e.name[1:]).text() != "true" {
			return copyPlain(e.value)
		}
	case "exclusiveMinimum", "exclusiveMaximum": // in OpenAPI 3.0, true excludes the bound beside it
		switch bound := n.get("m" + e.name[len("exclusiveM"):]); {
		case e.value.text() != "true" && e.value.text() != "false":
			return copyPlain(e.value)
		case e.value.text() == "true" && bound.Node != nil:
			return copyPlain(bound)
		}
	case "example", "default", "const":
		return p.example(e.value, hidden, n)
	case "examples", "enum":
		return each(e.value.items(), func(value node) *yaml.Node { return p.example(value, hidden, n) })
	case "additionalProperties":
		if p.hidden(e.value, p.inRequest) {
			return nil
		}
		return p.schema(e.value)
	case "items":
		return p.schema(e.value)
	case "allOf":
		return each(e.value.items(), part)
	case "oneOf", "anyOf":
		return each(p.shown(e.value.items(), p.inRequest), part)
	case "properties":
		return p.properties(n, e.value, hidden)
	case "required":
		out := copyOf(e.value.Node)
		out.Content = slices.DeleteFunc(out.Content, func(name *yaml.Node) bool { return slices.Contains(hidden, name.Value) })
		if len(out.Content) > 0 {
			return out
		}
	case "discriminator":
		return p.discriminator(n, e.value, hidden)
	case "$ref":
		without := p.hiddenOnlyAround(e.value.text(), hidden)
		return member(reference(p.component("schemas", e.value.text(), func(n node) *yaml.Node { return p.schema(n, without...) }, without...)), "$ref")
	}
	return nil
}

// hiddenIn returns the names of the members that a schema, or one of those of which it consists, hides.
func (p *publisher) hiddenIn(n node) (names []string) {
	for _, part := range p.parts(false, n) {
		for _, e := range part.get("properties").entries() {
			if p.isHidden(e.value) {
				names = append(names, e.name)
			}
		}
	}
	return names
}

// hiddenOnlyAround returns those of the hidden names that a schema that is referred to declares or requires, and does not hide itself: its component
// would show them.
func (p *publisher) hiddenOnlyAround(ref string, hidden []string) []string {
	if len(hidden) == 0 {
		return nil
	}
	target := p.target(ref)
	own, parts := p.hiddenIn(target), p.parts(true, target)
	names := slices.DeleteFunc(slices.Clone(hidden), func(name string) bool {
		return slices.Contains(own, name) || !slices.ContainsFunc(parts, func(part node) bool {
			return part.get("properties").get(name).Node != nil || slices.Contains(part.get("required").texts(), name)
		})
	})
	slices.Sort(names)
	return slices.Compact(names)
}

func (p *publisher) properties(schema, n node, hidden []string) *yaml.Node {
	out := object()
	for _, e := range n.entries() {
		switch {
		case slices.Contains(hidden, e.name):
		case p.isTenant(schema, e.name):
			put(out, e.name, p.tenantID(e.value))
		default:
			put(out, e.name, p.schema(e.value))
		}
	}
	return out
}

// addTypes completes the type as the compiler understands it: with null if it is nullable, and as object or array if keywords for these stand alone.
// Null is then one of the possible values, too.
func addTypes(out *yaml.Node, n node, nullable bool) {
	types, has := n.get("type").texts(), func(name string) bool { return n.get(name).Node != nil }
	switch one := n.get("type").text(); {
	case one != "":
		types = []string{one}
	case types != nil || has("enum") || has("const"):
	case has("properties") || has("additionalProperties"):
		types = []string{"object"}
	case has("items"):
		types = []string{"array"}
	}
	if constant := member(out, "const"); constant != nil && constant.Tag != "!!null" && (nullable || slices.Contains(types, "null")) {
		remove(out, "const")
		put(out, "enum", &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle, Content: []*yaml.Node{constant}})
	}
	if nullable && types != nil && !slices.Contains(types, "null") {
		types = append(types, "null")
	}
	if len(types) == 1 {
		put(out, "type", text(types[0]))
	} else if len(types) > 1 {
		list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, name := range types {
			list.Content = append(list.Content, text(name))
		}
		put(out, "type", list)
	}
	isNull := func(value *yaml.Node) bool { return value.Tag == "!!null" }
	if enum := member(out, "enum"); enum != nil && (nullable || slices.Contains(types, "null")) && !slices.ContainsFunc(enum.Content, isNull) {
		enum.Content = append(enum.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"})
	}
}

// discriminator publishes the discriminator of a schema, with all of its values: components may be published under other names. If an alternative is
// not a reference, no discriminator is published: the constants decide. Nor is one that is hidden.
func (p *publisher) discriminator(schema, n node, hidden []string) *yaml.Node {
	name := n.get("propertyName").text()
	out, mapping := p.pick(n, "propertyName", nil), object()
	alternatives := slices.DeleteFunc(append(schema.get("oneOf").items(), schema.get("anyOf").items()...), p.isNull)
	if slices.ContainsFunc(alternatives, func(a node) bool {
		ref := a.get("$ref").text()
		return ref != "" && len(p.hiddenOnlyAround(ref, hidden)) > 0 || slices.Contains(append(p.hiddenIn(a), hidden...), name)
	}) {
		return nil
	}
	for _, alternative := range alternatives {
		ref := alternative.get("$ref").text()
		if ref == "" {
			return nil
		}
		published := p.component("schemas", ref, p.publishSchema)
		for _, value := range p.decidingValues(n, alternative) {
			if member(mapping, value) == nil {
				put(mapping, value, member(reference(published), "$ref"))
			}
		}
	}
	put(out, "mapping", mapping)
	return out
}

// decidingValues returns the values of a discriminator that decide for an alternative, which is a reference: those of its mapping and the constants of
// the alternative, or else its name.
func (p *publisher) decidingValues(discriminator, alternative node) (values []string) {
	ref := alternative.get("$ref").text()
	for _, e := range discriminator.get("mapping").entries() {
		if to := e.value.text(); to == ref || "#/components/schemas/"+to == ref {
			values = append(values, e.name)
		}
	}
	if values = append(values, p.constants(alternative, discriminator.get("propertyName").text())...); len(values) == 0 {
		return []string{ref[strings.LastIndexByte(ref, '/')+1:]}
	}
	return values
}

// requiredByChoice returns the discriminator of a schema, if it decides between objects of which some need not have it, or "".
func (p *publisher) requiredByChoice(n node, hidden []string) string {
	name := n.get("discriminator").get("propertyName").text()
	requires := func(part node) bool { return slices.Contains(part.get("required").texts(), name) }
	objects, optional := 0, false
	for _, a := range append(n.get("oneOf").items(), n.get("anyOf").items()...) {
		if slices.ContainsFunc(p.parts(true, a), func(part node) bool { return part.get("properties").get(name).Node != nil }) {
			objects, optional = objects+1, optional || !slices.ContainsFunc(p.parts(false, a), requires)
		}
		hidden = append(hidden, p.hiddenIn(a)...)
	}
	if name == "" || objects < 2 || !optional || requires(n) || slices.Contains(hidden, name) {
		return ""
	}
	return name
}

// constants returns the possible values of a member of a schema, or nil if these are not listed.
func (p *publisher) constants(schema node, name string) []string {
	for _, part := range p.parts(false, schema) {
		for _, part := range p.parts(false, part.get("properties").get(name)) {
			values := append(part.get("enum").texts(), part.get("const").text())
			if values = slices.DeleteFunc(values, func(value string) bool { return value == "" }); len(values) > 0 {
				return values
			}
		}
	}
	return nil
}

// isHidden reports whether a member is hidden from callers: they do not see it in a response, or must not send it in a body.
func (p *publisher) isHidden(member node) bool {
	return member.get(extInternal).text() == "true" || member.get(hidingKeyword(p.inRequest)).text() == "true" || p.hidden(member, p.inRequest)
}

// isTenant reports whether a member of an object names the business.
func (p *publisher) isTenant(n node, name string) bool {
	return name == p.tenant || name == n.get(extTenant).text()
}

// tenantID publishes the member that names the business: whatever the data service sends, the gateway sends a string.
func (p *publisher) tenantID(n node) *yaml.Node {
	out := object("type", text("string"))
	out.Style = n.Style
	for _, part := range []node{p.resolve(n), n} {
		for _, e := range part.entries() {
			if slices.Contains(strings.Fields("title description deprecated minLength maxLength pattern"), e.name) {
				if value := copyPlain(e.value); value != nil {
					put(out, e.name, value)
				}
			}
		}
	}
	return out
}

// parts returns schemas, with those that they refer to or have in allOf. If choices is true, it adds those in oneOf and anyOf.
func (p *publisher) parts(choices bool, schemas ...node) (all []node) {
	seen := map[*yaml.Node]bool{} // alternatives often have parts in common, so that their number would grow with each level
	for queue := schemas; len(queue) > 0; queue = queue[1:] {
		n := queue[0]
		if !n.isObject() || seen[n.Node] {
			continue
		}
		seen[n.Node], all = true, append(all, n)
		if ref := n.get("$ref"); ref.Node != nil {
			queue = append(queue, p.target(ref.text()))
		}
		queue = append(queue, n.get("allOf").items()...)
		if choices {
			queue = append(append(queue, n.get("oneOf").items()...), n.get("anyOf").items()...)
		}
	}
	return all
}

// example publishes an example of a value for which schemas hold, without members that callers do not see, and those that are hidden around it.
func (p *publisher) example(value node, hiddenAround []string, schemas ...node) *yaml.Node {
	parts := p.parts(true, schemas...)
	hasMembers := func(part node) bool { return part.get("properties").Node != nil || part.get("items").Node != nil }
	if text := jsontext.Value(value.text()); (text.Kind() == '{' || text.Kind() == '[') && slices.ContainsFunc(parts, hasMembers) {
		root, _ := parse("", text) // some tools have JSON in a text here
		value = rootNode(root)
	}
	if value.Node == nil || value.Kind == yaml.ScalarNode {
		return copyOf(value.Node)
	}
	out := &yaml.Node{Kind: value.Kind, Style: value.Style}
	for _, item := range value.items() {
		var of []node
		for _, part := range parts {
			of = append(of, part.get("items"))
		}
		out.Content = append(out.Content, p.example(item, nil, of...))
	}
	for _, e := range value.entries() {
		var of []node
		known, hidden, tenant := len(parts) == 0, slices.Contains(hiddenAround, e.name), false
		for _, part := range parts {
			property, more := part.get("properties").get(e.name), part.get("additionalProperties")
			switch {
			case property.Node != nil:
				known, hidden, tenant, of = true, hidden || p.isHidden(property), tenant || p.isTenant(part, e.name), append(of, property)
			case more.Node != nil && more.text() != "false":
				known, of = true, append(of, more)
			}
		}
		if !known || hidden {
			continue // the gateway would remove it
		}
		published := p.example(e.value, nil, of...)
		if tenant && published.Kind == yaml.ScalarNode {
			published.Tag = "!!str"
		}
		put(out, e.name, published)
	}
	return out
}
