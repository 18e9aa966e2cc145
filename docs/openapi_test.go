package docs_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-gateway/gatehouse/docs"
	"github.com/gatehouse-gateway/gatehouse/internal/test/openapitest"
	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// Public also checks that the document is valid OpenAPI 3.1.
func TestOpenAPIExamplesMatchTheirSchemas(t *testing.T) {
	t.Parallel()
	doc, err := openapitest.Public()
	require.NoError(t, err)
	require.NoError(t, doc.Examples())
}

func TestOpenAPIPathsAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	doc, err := openapitest.Public()
	require.NoError(t, err)
	resources := definition.Public().Resources()
	want := make([]string, 0, 2*len(resources))
	for _, res := range resources {
		want = append(want, "GET /"+res.Name, "HEAD /"+res.Name)
	}
	slices.Sort(want)
	require.Equal(t, want, doc.Operations())
}

// It also compares which operations require a signature.
func TestOpenAPIParametersAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	doc := tree(t)
	for _, res := range definition.Public().Resources() {
		for _, method := range []string{"get", "head"} {
			op := doc.at(t, "paths", "/"+res.Name, method)
			_, unsigned := op["security"]
			require.Equal(t, res.Public, unsigned, "%s %s", method, res.Name)

			parameters, _ := op["parameters"].([]any)
			for i, p := range parameters {
				parameter := doc.follow(t, p)
				require.Equal(t, "query", parameter["in"])
				name, _ := parameter["name"].(string)
				schema, _ := parameter["schema"].(map[string]any)
				require.Less(t, i, len(res.Params))
				if want := res.Params[i]; want.MaxLength == 0 { // it is clamped, so the bounds are no bounds for callers
					require.Equal(t, map[string]any{"type": "integer", "default": want.Default}, schema)
				} else {
					require.Equal(t, "string", schema["type"])
					require.Equal(t, want.MaxLength, schema["maxLength"])
				}
				require.Equal(t, res.Params[i].Name, name)
			}
			require.Len(t, parameters, len(res.Params), "%s %s", method, res.Name)
		}
	}
}

func TestOpenAPIFieldsAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	doc := tree(t)
	for _, res := range definition.Public().Resources() {
		ok := doc.follow(t, doc.at(t, "paths", "/"+res.Name, "get", "responses")["200"])
		body := doc.follow(t, at(t, ok, "content", "application/json")["schema"])
		members, _ := body["properties"].(map[string]any)
		switch {
		case res.List != "":
			want := []string{res.List}
			if res.Envelope != "" {
				want = append(want, "pagination")
			}
			require.ElementsMatch(t, want, slices.Collect(maps.Keys(members)), res.Name)
			doc.hasFields(t, res.Name, at(t, members, res.List)["items"], res.Fields)
		case res.Object != "":
			require.Equal(t, []string{res.Object}, slices.Collect(maps.Keys(members)), res.Name)
			doc.hasFields(t, res.Name, members[res.Object], res.Fields)
		default:
			require.Len(t, members, len(res.Fields))
			for _, f := range res.Fields {
				assert.Equal(t, f.Values[0], at(t, members, f.Name)["const"])
			}
		}
	}
}

// openAPI is the document as a tree.
type openAPI map[string]any

func tree(t *testing.T) openAPI {
	t.Helper()
	var doc map[string]any // yaml would decode nested maps as openAPI, too
	require.NoError(t, yaml.Unmarshal(docs.OpenAPI, &doc))
	return doc
}

func at(t *testing.T, v map[string]any, path ...string) map[string]any {
	t.Helper()
	for i, name := range path {
		next, ok := v[name].(map[string]any)
		require.True(t, ok, "%s is missing", strings.Join(path[:i+1], " / "))
		v = next
	}
	return v
}

func (d openAPI) at(t *testing.T, path ...string) map[string]any {
	t.Helper()
	return at(t, d, path...)
}

// follow resolves a reference.
func (d openAPI) follow(t *testing.T, v any) map[string]any {
	t.Helper()
	m, ok := v.(map[string]any)
	require.True(t, ok, "%v is not an object", v)
	if ref, ok := m["$ref"].(string); ok {
		return d.at(t, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
	return m
}

// hasFields requires that the schema of an object has the fields of a resource.
func (d openAPI) hasFields(t *testing.T, where string, schema any, fields []upstream.Field) {
	t.Helper()
	object := d.follow(t, schema)
	properties := at(t, object, "properties")
	var names []any
	for _, f := range fields {
		names = append(names, f.Name)
		name := where + "." + f.Name
		property, ok := properties[f.Name].(map[string]any)
		require.True(t, ok, "%s is missing", name)

		if ref, ok := property["$ref"].(string); ok {
			want := map[upstream.Kind][]string{
				upstream.KindDecimal: {"Money", "Decimal"}, upstream.KindInstant: {"Instant"},
				upstream.KindDate: {"Date"}, upstream.KindTime: {"TimeOfDay"},
			}[f.Kind]
			require.Contains(t, want, strings.TrimPrefix(ref, "#/components/schemas/"), name)
			require.False(t, f.Required, name)
			continue
		}
		want := map[upstream.Kind][]any{
			upstream.KindText: {"string"}, upstream.KindKey: {"string", "integer"}, upstream.KindUUID: {"string"},
			upstream.KindInteger: {"integer"}, upstream.KindBool: {"boolean"}, upstream.KindTexts: {"array"},
			upstream.KindObjects: {"array"}, upstream.KindBusiness: {"string"},
		}[f.Kind]
		require.NotEmpty(t, want, name)
		if !f.Required {
			want = append(slices.Clone(want), "null")
		}
		types, list := property["type"].([]any)
		if !list {
			types = []any{property["type"]}
		}
		require.Equal(t, want, types, name)
		require.Equal(t, f.Kind == upstream.KindUUID, property["format"] == "uuid", name)

		var values []any
		for _, v := range f.Values {
			values = append(values, v)
		}
		known, _ := property["x-extensible-enum"].([]any)
		require.Equal(t, values, known, name)
		if f.Kind == upstream.KindObjects {
			d.hasFields(t, name, property["items"], f.Fields)
		}
	}
	require.Equal(t, names, object["required"], "%s: all fields are required, in the order of the contract", where)
	require.Len(t, properties, len(fields), "%s: no other fields", where)
}
