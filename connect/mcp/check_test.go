package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	fast "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	gschema "github.com/google/jsonschema-go/jsonschema"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
)

// Clients reject a result that violates the tool's output schema, so the check must reject the same results as the schema. Each
// value of each tool's result is made invalid in each way that a data service could.
func TestResultCheckAgreesWithTheSchema(t *testing.T) {
	t.Parallel()
	for name, tool := range tools(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := tool.input()
			require.NoError(t, err)
			output, err := compile(tool.out)
			require.NoError(t, err)
			for _, full := range []bool{true, false} {
				result := reflect.New(tool.resultType).Elem()
				fill(result, tool.out, full)
				require.NoError(t, tool.check(result))
				require.NoError(t, validate(t, output, result))
				tried := 0
				invalidate(result, tool.out, func(how string) {
					tried++
					err := validate(t, output, result)
					require.Error(t, err, how)
					require.Error(t, tool.check(result), "%s: %v", how, err)
				})
				assert.Positive(t, tried)
			}
		})
	}
}

func validate(t *testing.T, s *jsonschema.Schema, v reflect.Value) error {
	t.Helper()
	written, err := fast.Marshal(v.Interface())
	require.NoError(t, err)
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(written)))
	require.NoError(t, err)
	return s.Validate(doc)
}

// fill sets a value that meets a schema, of the maximum or of the minimum size.
func fill(v reflect.Value, s *gschema.Schema, full bool) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2026, 3, 5, 14, 30, 0, 0, time.UTC)))
		return
	case jsontext.Value:
		v.SetBytes([]byte(`{"a":[1]}`))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if full {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), s, full)
		}
	case reflect.Slice:
		if full {
			v.Set(reflect.MakeSlice(v.Type(), 2, 2))
			fill(v.Index(0), s.Items, full)
			fill(v.Index(1), s.Items, full)
		}
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(v.Type()) {
			if of := s.Properties[memberName(f)]; of != nil && !f.Anonymous {
				fill(v.FieldByIndex(f.Index), of, full)
			}
		}
	case reflect.String:
		switch {
		case s.Enum != nil:
			v.SetString(fmt.Sprint(s.Enum[0]))
		case s.Pattern != "":
			v.SetString(fmt.Sprint(s.Examples[0]))
		case full:
			v.SetString(strings.Repeat("ß", orZero(s.MaxLength)))
		default:
			v.SetString(strings.Repeat("ß", orZero(s.MinLength)))
		}
	case reflect.Int, reflect.Int64:
		n := int64(*s.Minimum)
		if full {
			n = int64(*s.Maximum)
		}
		v.SetInt(n)
	case reflect.Float64:
		v.SetFloat(*s.Maximum)
	default:
	}
}

// invalidate makes one part of a value invalid at a time, and calls try for each.
func invalidate(v reflect.Value, s *gschema.Schema, try func(how string)) {
	was := reflect.New(v.Type()).Elem()
	was.Set(v)
	set := func(wrong any) {
		v.Set(reflect.ValueOf(wrong).Convert(v.Type()))
		try(fmt.Sprintf("%.80v in %s", wrong, v.Type()))
		v.Set(was)
	}
	if v.Type() == reflect.TypeFor[jsontext.Value]() {
		set([]byte(`[]`))
		set([]byte(`"{}"`))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			invalidate(v.Elem(), s, try)
		}
	case reflect.Slice:
		if v.Len() > 0 {
			invalidate(v.Index(0), s.Items, try)
			invalidate(v.Index(1), s.Items, try)
		}
		most := reflect.MakeSlice(v.Type(), orZero(s.MaxItems)+1, orZero(s.MaxItems)+1)
		for i := range most.Len() {
			fill(most.Index(i), s.Items, false)
		}
		set(most.Interface())
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(v.Type()) {
			if of := s.Properties[memberName(f)]; of != nil && !f.Anonymous {
				invalidate(v.FieldByIndex(f.Index), of, try)
			}
		}
	case reflect.String:
		if s.MaxLength != nil {
			set(strings.Repeat("ß", *s.MaxLength+1))
		}
		if orZero(s.MinLength) > 0 {
			set("")
		}
		if s.Enum != nil || s.Pattern != "" {
			set("Sonntag")
		}
	case reflect.Int, reflect.Int64, reflect.Float64:
		if s.Minimum != nil {
			set(int64(*s.Minimum) - 1)
		}
		if s.ExclusiveMinimum != nil {
			set(*s.ExclusiveMinimum)
		}
		set(int64(*s.Maximum) + 1)
	default:
	}
}

// A misspelled or unknown keyword in a tag would be a bound that is not enforced.
func TestEveryFieldTagIsASchemaKeyword(t *testing.T) {
	t.Parallel()
	known := map[string]bool{"json": true, "jsonschema": true, "required": true, "example": true}
	for _, keyword := range []string{
		"minLength", "maxLength", "minItems", "maxItems", "minProperties", "minimum", "maximum", "exclusiveMinimum", "default",
		"pattern", "format",
	} {
		known[keyword] = true
	}
	seen := 0
	var visit func(reflect.Type)
	visit = func(of reflect.Type) {
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice:
			visit(of.Elem())
		case reflect.Struct:
			for f := range of.Fields() {
				for tag := range strings.SplitSeq(string(f.Tag), `" `) {
					if name, _, ok := strings.Cut(tag, ":"); ok {
						seen++
						require.True(t, known[name], "%s of %s.%s", name, of, f.Name)
					}
				}
				visit(f.Type)
			}
		default:
		}
	}
	for _, tool := range tools(t) {
		visit(tool.argumentsType)
		visit(tool.resultType)
	}
	require.Greater(t, seen, 500)
}

func TestInvalidFieldTagIsAnError(t *testing.T) {
	t.Parallel()
	for _, of := range []any{
		struct {
			A string `json:"a" maxLength:"many"`
		}{},
		struct {
			A []struct {
				B int `json:"b" minimum:""`
			} `json:"a"`
		}{},
		struct {
			A string `json:"a" default:"yes"`
		}{},
	} {
		_, err := schemaOf(reflect.TypeOf(of))
		require.ErrorContains(t, err, "reading the tags of")
	}
	nothing := handle(func(context.Context, *toolCall, struct{}) (struct{}, error) { return struct{}{}, nil })
	require.ErrorContains(t, (&tool{function: nothing, Arguments: map[string]string{"id": "b"}}).prepare(), `unknown argument "id"`)
	require.ErrorContains(t, (&tool{}).prepare(), "no implementation")
}

// BenchmarkOutputCheck checks 25 contacts, by their type and by the schema in JSON.
func BenchmarkOutputCheck(b *testing.B) {
	var page contactPage
	for i := range 25 {
		when := time.Date(2026, 3, 5, 14, 30, 0, 0, time.UTC)
		page.Contacts = append(page.Contacts, data.Contact{
			ID: 10_403 + int64(i), FirstName: "Ines", LastName: new("Halvorsen"), Email: new("ines@example.com"),
			PhoneNumber: new("6085550123"), CountryCode: new("+1"), ContactType: "customer", ContactStatus: "active",
			Notes: new("Gate on the north side sticks."), DateCreated: when, DateModified: when, Version: 1,
		})
	}
	schema, err := schemaOf(reflect.TypeFor[contactPage]())
	require.NoError(b, err)
	b.Run("type", func(b *testing.B) {
		check, err := checkOf(schema, reflect.TypeFor[contactPage]())
		require.NoError(b, err)
		b.ReportAllocs()
		for b.Loop() {
			if err := check(reflect.ValueOf(page)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("JSON", func(b *testing.B) {
		compiled, err := compile(schema)
		require.NoError(b, err)
		written, err := fast.Marshal(page)
		require.NoError(b, err)
		b.ReportAllocs()
		for b.Loop() {
			var doc any
			if err := json.Unmarshal(written, &doc); err != nil {
				b.Fatal(err)
			}
			if err := compiled.Validate(doc); err != nil {
				b.Fatal(err)
			}
		}
	})
}
