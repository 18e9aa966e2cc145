package mcp

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// Maximum nesting depth of a schema in tools/list, but for arrays in arrays, and values of an enum there.
const maxShown, maxEnum = 6, 100

// shape returns the JSON Schema of a value for tools/list: its types, and for arguments (input) also enums, alternatives, descriptions
// and required members. Errors explain the other constraints. Several clients and models reject arguments with a list of types for null, arrays
// without items, and a long enum or one of other values than texts: arguments have anyOf for null, and none of these.
func shape(s *upstream.Schema, depth int, input bool) map[string]any {
	others := s.Types &^ upstream.TypeNull
	if !input || others == 0 || others == s.Types || s.FreeJSON() {
		return shapeOf(s, s.Types, depth, input)
	}
	shown := shapeOf(s, others, depth, input)
	all, isChoice := shown["anyOf"].([]map[string]any)
	switch {
	case len(shown) == 0: // a choice that is too deep
		return shown
	case !isChoice:
		all = []map[string]any{shown}
	}
	return map[string]any{"anyOf": append(all, typed("null"))}
}

// shapeOf returns the schema of the values of some types of a schema.
func shapeOf(s *upstream.Schema, types upstream.Types, depth int, input bool) map[string]any {
	shown := map[string]any{}
	if values, texts := enumOf(s); input && len(values) > 0 && len(values) <= maxEnum && types == upstream.TypeString && !slices.Contains(texts, "") {
		shown["enum"] = values
	}
	if s.Choice != nil && input && depth < maxShown {
		shown["anyOf"] = alternatives(s.Choice, depth+1)
	}
	if s.Choice != nil || s.FreeJSON() {
		return shown
	}
	if shown["type"] = types.Names(); len(types.Names()) == 1 {
		shown["type"] = types.Names()[0]
	}
	properties, required := map[string]any{}, []string{}
	for i := range s.Properties {
		p := &s.Properties[i]
		if p.Internal || p.Schema.Refused != "" || depth >= maxShown {
			continue
		}
		of := shape(p.Schema, depth+1, input)
		if input && p.Description != "" {
			of["description"] = p.Description
		}
		if input && p.Required {
			required = append(required, p.Name)
		}
		properties[nameOf(p)] = of
	}
	if len(properties) > 0 || (input || depth == 0) && types == upstream.TypeObject { // some clients require properties
		shown["properties"] = properties
	}
	if len(required) > 0 {
		shown["required"] = required
	}
	if s.Items != nil && (depth < maxShown || input && depth < 2*maxShown) {
		shown["items"] = shape(s.Items, depth+1, input)
	}
	switch tooDeep := depth >= maxShown && len(s.Properties) > 0; {
	case !input || s.Additional == nil && !tooDeep:
	case tooDeep, s.Additional.FreeJSON(), depth >= maxShown: // some clients would send an object without what is not in its schema
		shown["additionalProperties"] = true
	default:
		shown["additionalProperties"] = shape(s.Additional, depth+1, input)
	}
	return shown
}

// alternatives returns anyOf for a choice, also for a oneOf: its alternatives may differ only in what shape omits.
func alternatives(c *upstream.Choice, depth int) (all []map[string]any) {
	for _, a := range c.Alternatives {
		if a.Types == upstream.TypeNull { // shape adds it
			continue
		}
		of := shapeOf(a, a.Types&^upstream.TypeNull, depth, true)
		if members, ok := of["properties"].(map[string]any); ok && members[c.Discriminator] != nil && a.Property(c.Discriminator).Schema.Types&upstream.TypeString != 0 {
			others := func(value string) bool { return c.Values[value] != a }
			members[c.Discriminator] = map[string]any{"type": "string", "enum": slices.DeleteFunc(slices.Sorted(maps.Keys(c.Values)), others)}
		}
		all = append(all, of)
	}
	return all
}

func nameOf(p *upstream.Property) string { return cmp.Or(p.As, p.Name) }

// enumOf returns the values of an enum, or nil, and their texts, without quotes.
func enumOf(s *upstream.Schema) (values []jsontext.Value, texts []string) {
	if s.Rules == nil {
		return nil, nil
	}
	for _, v := range s.Rules.Enum {
		text, ok := strings.CutPrefix(v, `"`)
		value := jsontext.Value(v)
		if ok {
			value = encode(text)
		}
		values, texts = append(values, value), append(texts, text)
	}
	return values, texts
}

// outputSchema returns the schema of the tool's results. It describes a record only if no other tool's schema does yet.
func (t *tool) outputSchema(described map[*upstream.Schema]bool) map[string]any {
	properties := map[string]any{}
	if t.Kind == definition.KindDelete {
		properties["deleted"], properties["message"] = typed("boolean"), typed("string")
		return map[string]any{"type": "object", "properties": properties}
	}
	body, record := t.Operation.Success().Body, t.Operation.Record()
	switch isObject := body != nil && body.Types&upstream.TypeObject != 0; {
	case !isObject:
		properties["result"] = map[string]any{}
	case body != record || !described[record]:
		for i := range body.Properties {
			p, depth := &body.Properties[i], 1
			switch s := p.Schema; {
			case p.Internal:
				continue
			case s == record && described[record]:
				depth = maxShown
			case s.Items != nil && s.Items == record && (described[record] || t.fields != nil):
				depth = maxShown - 1
			}
			properties[nameOf(p)] = shape(p.Schema, depth, false)
		}
		described[record] = described[record] || t.fields == nil
	}
	for _, op := range t.With {
		properties[joinedName(op)] = map[string]any{}
		if body := op.Success().Body; body != nil {
			properties[joinedName(op)], described[op.Record()] = shape(body, 0, false), true
		}
	}
	if t.asks() { // a declined call has a text there
		delete(properties, "message")
	}
	if t.untrusted {
		properties["warning"] = typed("string")
	}
	if t.key {
		properties["repeated"], properties["idempotency_key"] = typed("boolean"), typed("string")
	}
	maps.Copy(properties, t.handler.result)
	return map[string]any{"type": "object", "properties": properties}
}

func typed(name string) map[string]any { return map[string]any{"type": name} }

// joinedName returns the name of the member with the result of one of Tool.With.
func joinedName(op *upstream.Operation) string {
	return strings.ReplaceAll(path.Base(op.Path), "-", "_")
}
