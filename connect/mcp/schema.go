package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	gschema "github.com/google/jsonschema-go/jsonschema"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
)

// schemaOf derives a schema from a type with github.com/google/jsonschema-go. Field tags add JSON Schema keywords of the same
// name.
func schemaOf(t reflect.Type) (*gschema.Schema, error) {
	s, err := gschema.ForType(t, &gschema.ForOptions{TypeSchemas: typeSchemas()})
	if err != nil {
		return nil, err
	}
	return s, constrain(s, t)
}

// typeSchemas returns the schemas of types that cannot be inferred.
func typeSchemas() map[reflect.Type]*gschema.Schema {
	schemas := map[reflect.Type]*gschema.Schema{
		reflect.TypeFor[data.Owned]():     {Type: "object"}, // not encoded
		reflect.TypeFor[jsontext.Value](): {Type: "object"},
		reflect.TypeFor[time.Time]():      {Type: "string", Format: "date-time", MaxLength: new(40)},
	}
	for t, values := range data.Enumerations() {
		schemas[t] = &gschema.Schema{Type: "string", Enum: values}
	}
	return schemas
}

// constrain adds the keywords in the tags of a type's fields to its schema.
func constrain(s *gschema.Schema, t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	slices.Reverse(s.Types) // null last
	if s.Enum != nil && slices.Contains(s.Types, "null") {
		s.Enum = append(slices.Clone(s.Enum), nil)
	}
	switch {
	case s.Items != nil:
		s.Type, s.Types = "array", nil // lists are never null
		return constrain(s.Items, t.Elem())
	case t.Kind() != reflect.Struct || s.AdditionalProperties == nil:
		return nil
	case len(s.Properties) == 0:
		s.Properties = map[string]*gschema.Schema{} // some clients require it
	}
	for _, f := range reflect.VisibleFields(t) {
		name := memberName(f)
		of := s.Properties[name]
		if of == nil || f.Anonymous {
			continue
		}
		if err := constrain(of, f.Type); err != nil {
			return err
		}
		if err := keywords(of, f.Tag); err != nil {
			return fmt.Errorf("reading the tags of %s.%s: %w", t, f.Name, err)
		}
		switch f.Tag.Get("required") {
		case "true":
			s.Required = append(s.Required, name)
		case "false":
			s.Required = slices.DeleteFunc(s.Required, func(r string) bool { return r == name })
		}
	}
	return nil
}

// memberName returns the name of a field in JSON.
func memberName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// keywords reads the keywords in a field's tag.
func keywords(s *gschema.Schema, tag reflect.StructTag) error {
	for name, into := range map[string]any{
		"minLength": &s.MinLength, "maxLength": &s.MaxLength, "minItems": &s.MinItems, "maxItems": &s.MaxItems,
		"minProperties": &s.MinProperties, "minimum": &s.Minimum, "maximum": &s.Maximum, "exclusiveMinimum": &s.ExclusiveMinimum,
		"default": &s.Default,
	} {
		if v, ok := tag.Lookup(name); ok {
			if err := json.Unmarshal([]byte(v), into); err != nil {
				return fmt.Errorf("reading %s: %w", name, err)
			}
		}
	}
	if s.Default != nil && len(s.Types) == 2 {
		s.Type, s.Types = s.Types[0], nil // the pointer only distinguishes absent from zero
	}
	if v, ok := tag.Lookup("pattern"); ok {
		s.Pattern = v
	}
	if v, ok := tag.Lookup("format"); ok {
		s.Format = v
	}
	if v, ok := tag.Lookup("example"); ok {
		var example any = v
		if !slices.Contains(append(s.Types, s.Type), "string") {
			example = json.RawMessage(v)
		}
		s.Examples = []any{example}
	}
	return nil
}

// compile compiles a schema, with formats asserted.
func compile(schema *gschema.Schema) (*jsonschema.Schema, error) {
	written, err := json.Marshal(schema)
	if err != nil {
		return nil, err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(written))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("schema.json", doc); err != nil {
		return nil, err
	}
	return c.Compile("schema.json")
}
