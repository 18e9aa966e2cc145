package mcp

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/scope"
	"github.com/gatehouse-gateway/gatehouse/internal/test/connecttest"
	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// Every parameter and every member of a body that the definition allows is an argument of the tool, but for the tenant; and every argument
// is one of these, or explained in the instructions, or of a handler.
func TestArgumentsAreThoseOfTheOperation(t *testing.T) {
	t.Parallel()
	for name, tool := range tools(t) {
		want := map[string]bool{}
		path, body := tool.Operation.PathParams, tool.Operation.Body
		if tool.Replace != nil {
			path = tool.Replace.PathParams
		}
		for _, p := range slices.Concat(path, tool.Operation.Params) {
			want[tool.argument(p.Name)] = true
		}
		if body != nil {
			for _, p := range body.Kinds[0].Schema.Properties {
				want[p.Name] = true
			}
		}
		got := map[string]bool{}
		for _, argument := range tool.names {
			got[argument] = true
		}
		for argument := range want {
			assert.True(t, got[argument], "%s lacks %s", name, argument)
		}
		own := []string{argFields, argClear, argIfVersion, argIdempotencyKey, argConfirm}
		for _, p := range tool.handler.arguments {
			own = append(own, p.Name)
		}
		for argument := range got {
			assert.True(t, want[argument] || slices.Contains(own, argument), "%s has %s", name, argument)
			assert.NotContains(t, argument, "business_id", name)
		}
		assert.Len(t, got, len(tool.names), "%s has an argument twice", name)
		assert.Equal(t, tool.asks(), got[argConfirm], name)
		assert.Equal(t, tool.fields != nil || want[argFields], got[argFields], name)
		assert.Equal(t, tool.Kind == definition.KindUpdate && tool.Version != nil, got[argIfVersion], name)
	}
}

func TestUnusableDefinitionIsAnError(t *testing.T) {
	t.Parallel()
	d := connecttest.Definition(t)
	areas := scope.New(d.Areas)
	for _, test := range []struct {
		want   string
		change func(tool *definition.Tool)
	}{
		{"unknown handler \"nothing\": must be one of automations_run, conversations_get", func(tool *definition.Tool) { tool.Handler = "nothing" }},
		{"two arguments are called limit", func(tool *definition.Tool) { tool.Arguments = map[string]string{"query": "limit"} }},
		{"two arguments are called fields", func(tool *definition.Tool) { tool.Arguments = map[string]string{"query": argFields} }},
	} {
		changed := *d
		changed.Tools = slices.Clone(d.Tools)
		i := slices.IndexFunc(changed.Tools, func(tool *definition.Tool) bool { return tool.Name == "contacts_search" })
		tool := *changed.Tools[i]
		test.change(&tool)
		changed.Tools[i] = &tool
		_, err := newTools(&changed, areas)
		require.ErrorContains(t, err, "tool contacts_search: "+test.want)
	}
}

// The list is read by each assistant with each conversation.
func TestToolsAreListedWithoutWhatGoesWithoutSaying(t *testing.T) {
	t.Parallel()
	for name, tool := range tools(t) {
		listed := string(tool.declared[true])
		for _, no := range []string{"business_id", `"null","null"`, "maxLength", "$ref", `"additionalProperties":{`} {
			assert.NotContains(t, listed, no, name)
		}
		assert.Less(t, len(listed), 4_000, name)
		assert.False(t, strings.Contains(listed, `"destructiveHint":true`) || strings.Contains(listed, `"readOnlyHint":false`), name)
	}
}

// An enumeration is shown, and each of its values accepted.
func TestShownValuesAreAccepted(t *testing.T) {
	t.Parallel()
	all := tools(t)
	seen := 0
	for name, tool := range all {
		for _, p := range tool.arguments.Body.Kinds[0].Schema.Properties {
			s := p.Schema
			if s.Items != nil {
				s = s.Items
			}
			_, texts := enumOf(s)
			for _, value := range texts {
				seen++
				_, failed := tool.readArguments(encode(map[string]jsontext.Value{p.Name: jsontext.Value(`"` + value + `"`)}))
				if failed != nil { // another argument is required
					for _, v := range failed.violations {
						assert.NotEqual(t, p.Name, v.Field, "%s: %s", name, value)
						assert.Equal(t, "is required", v.Problem, name)
					}
				}
			}
		}
	}
	assert.Greater(t, seen, 50)
}

func TestUnknownSchemaTypesAreNotShown(t *testing.T) {
	t.Parallel()
	assert.Empty(t, shape(upstream.AnyJSON(), 0, true))
	assert.Empty(t, shape(upstream.AnyJSON(), 1, false))
}
