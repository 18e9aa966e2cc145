package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	fast "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// node is a JSON object whose members stand in the order in which they were written: assistants read schemas from the
// top. Its entries are names and values in turn.
type node []any

// MarshalJSON writes the members in their order.
func (n node) MarshalJSON() ([]byte, error) {
	b, err := fast.Marshal(n)
	if err != nil {
		return nil, fmt.Errorf("writing JSON: %w", err)
	}
	return b, nil
}

// MarshalJSONTo writes the members in their order, in one go.
func (n node) MarshalJSONTo(e *jsontext.Encoder) error {
	if err := e.WriteToken(jsontext.BeginObject); err != nil {
		return err
	}
	for _, v := range n {
		if err := fast.MarshalEncode(e, v); err != nil {
			return err
		}
	}
	return e.WriteToken(jsontext.EndObject)
}

// with returns the schema with more members.
func (n node) with(more ...any) node { return slices.Concat(n, node(more)) }

// because returns the schema with a description.
func (n node) because(description string) node { return n.with("description", description) }

// example returns the schema with examples.
func (n node) example(values ...any) node { return n.with("examples", values) }

// field is a member of an object's schema.
type field struct {
	name     string
	schema   node
	optional bool
}

func must(name string, schema node) field { return field{name: name, schema: schema} }
func may(name string, schema node) field  { return field{name: name, schema: schema, optional: true} }

// object is the schema of an object with these members and no others.
func object(fields ...field) node {
	properties, required := node{}, []string{}
	for _, f := range fields {
		properties = append(properties, f.name, f.schema)
		if !f.optional {
			required = append(required, f.name)
		}
	}
	n := node{"type", "object", "properties", properties}
	if len(required) > 0 {
		n = append(n, "required", required)
	}
	return append(n, "additionalProperties", false)
}

func list(items node, most int) node {
	return node{"type", "array", "items", items, "maxItems", most}
}

// text is a string of 1 to most characters.
func text(most int) node {
	return node{"type", "string", "minLength", 1, "maxLength", most}
}

func oneOf(values ...string) node { return node{"type", "string", "enum", values} }

func boolean() node { return node{"type", "boolean"} }

func integer(least, most int64) node {
	return node{"type", "integer", "minimum", least, "maximum", most}
}

func instant() node { return node{"type", "string", "format", "date-time", "maxLength", 40} }

// anything is the schema of an object that another schema describes.
func anything() node { return node{"type", "object"} }

// orNull lets a schema's value be null as well.
func (n node) orNull() node {
	m := slices.Clone(n)
	for i := 0; i+1 < len(m); i += 2 {
		switch m[i] {
		case "type":
			m[i+1] = []any{m[i+1], "null"}
		case "enum":
			values := []any{}
			for _, v := range m[i+1].([]string) { //nolint:forcetypeassert,errcheck // oneOf writes no others
				values = append(values, v)
			}
			m[i+1] = append(values, nil)
		}
	}
	return m
}

// compile makes a schema ready to validate with, formats included.
func compile(name string, n node) (*jsonschema.Schema, error) {
	written, err := json.Marshal(n)
	if err != nil {
		return nil, err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(written))
	if err != nil {
		return nil, fmt.Errorf("reading the schema %s: %w", name, err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource(name, doc); err != nil {
		return nil, fmt.Errorf("adding the schema %s: %w", name, err)
	}
	compiled, err := c.Compile(name)
	if err != nil {
		return nil, fmt.Errorf("compiling the schema %s: %w", name, err)
	}
	return compiled, nil
}
