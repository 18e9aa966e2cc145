package connect_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/internal/demo" //nolint:depguard // a service that the definition describes
	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/conform"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition/reference"
)

// Package mcp compares the document with the client's requests, and with the responses that it accepts.

const file = "definition.yaml"

// load loads the document without the operations of some tags.
func load(t *testing.T, except ...string) *definition.Definition {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	d, err := definition.Load(definition.File{Name: file, Text: text}, definition.Options{Except: except})
	require.NoError(t, err)
	return d
}

func TestTheDefinitionLoadsAndIsPublished(t *testing.T) {
	t.Parallel()
	d := load(t)
	for _, w := range d.Warnings {
		assert.Equal(t, "any JSON leaves here, and is not checked for its tenant", w.Message, "%s", w)
	}
	assert.Len(t, d.Warnings, 2)
	published, err := d.Published()
	require.NoError(t, err)
	requests, err := reference.Requests(published)
	require.NoError(t, err)
	operations := 0
	for _, r := range requests {
		m, ok := d.API.Match(r.Target)
		require.True(t, ok, r.Target)
		if op := m.Path.Operation(r.Method); op != nil {
			operations++
		}
	}
	assert.GreaterOrEqual(t, operations, len(d.API.Operations()))
}

// An example is the response of the operation whose response has its name as a member, or an error.
func TestExamplesMatchTheDefinition(t *testing.T) {
	t.Parallel()
	d := load(t)
	files, err := filepath.Glob("../examples/connect/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		found := 0
		for _, op := range d.API.Operations() {
			for i := range op.Responses {
				res := &op.Responses[i]
				isError := res.Status == http.StatusUnprocessableEntity && op.Tenant != upstream.TenantNone
				if res.Body.Property(name) != nil && (res.Status/100 == 2 || isError) {
					found++
					checkExample(t, d.API, op, res, name, text)
				}
			}
		}
		assert.Positive(t, found, name)
	}
}

func checkExample(t *testing.T, api *upstream.API, op *upstream.Operation, res *upstream.DocumentedResponse, name string, text []byte) {
	t.Helper()
	target, of := op.Sample(), map[string]map[string]any{}
	_ = json.Unmarshal(text, &of) // the record, if there is one
	if res.Records != nil && res.Records.Is != "" {
		id := asText(of[name][res.Records.Is])
		target = strings.Replace(op.Path, "{"+res.Records.IsFrom+"}", id, 1)
		target = strings.Replace(target, "{type}", asText(of[name]["type"]), 1)
	}
	m, ok := api.Match(target)
	require.True(t, ok, target)
	q, err := op.CleanQuery(m)
	require.NoError(t, err)
	business := "biz_7f3a9c21"
	_, err = new(upstream.Contract).Check(new(bytes.Buffer), op, res, q, business, text)
	require.NoError(t, err, "%s: %s", op.ID, name)
	for _, removed := range new(upstream.Contract).Removed(op, res, q, business, text) {
		assert.Equal(t, "/run/started_by", removed.Pointer, "%s: %s", op.ID, name) // which the client does not read
	}
	if bytes.Contains(text, []byte("business_id")) {
		_, err = new(upstream.Contract).Check(new(bytes.Buffer), op, res, q, "biz_other", text)
		require.ErrorIs(t, err, upstream.ErrCrossTenantRecord, "%s: %s", op.ID, name)
	}
}

func asText(v any) string {
	if n, ok := v.(float64); ok {
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	s, _ := v.(string)
	return s
}

// document is the text of the definition.
type document struct {
	*testing.T
	schemas map[string]map[string]any
	named   map[string]bool // schemas that have been compared with a Go type
}

// resolve returns a schema with what it refers to.
func (d *document) resolve(schema map[string]any) map[string]any {
	reference, ok := schema["$ref"].(string)
	if !ok {
		return schema
	}
	merged := maps.Clone(d.resolve(d.schemas[strings.TrimPrefix(reference, "#/components/schemas/")]))
	maps.Copy(merged, schema)
	return merged
}

// members returns the members of an object, and which are required.
func (d *document) members(schema map[string]any) (properties map[string]any, required []any) {
	schema = d.resolve(schema)
	properties = map[string]any{}
	all, _ := schema["allOf"].([]any)
	for _, part := range all {
		p, r := d.members(part.(map[string]any))
		maps.Copy(properties, p)
		required = append(required, r...)
	}
	own, _ := schema["properties"].(map[string]any)
	maps.Copy(properties, own)
	names, _ := schema["required"].([]any)
	return properties, append(required, names...)
}

// The schemas of records have the names of the Go types, and the same members with the same types, enumerations and bounds.
func TestRecordsOfTheDefinitionAreTheGoTypes(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var whole struct {
		Components struct {
			Schemas map[string]map[string]any `yaml:"schemas"`
		} `yaml:"components"`
	}
	require.NoError(t, yaml.Unmarshal(text, &whole))
	d := &document{t, whole.Components.Schemas, map[string]bool{}}
	client, record := reflect.TypeFor[*data.Client](), reflect.TypeFor[data.Record]()
	for method := range client.Methods() {
		result := method.Type.Out(0)
		if get, ok := result.MethodByName("Get"); ok { // of a collection
			result = get.Type.Out(0)
		}
		if items, ok := result.FieldByName("Items"); ok { // of a page
			result = items.Type.Elem()
		}
		require.True(t, result.Implements(record), "%s", result)
		d.compare(result)
	}
	for name, schema := range d.schemas {
		properties, _ := d.members(schema)
		if properties["business_id"] != nil {
			assert.True(t, d.named[name], "no Go type is called %s", name)
		}
	}
}

// compare compares a struct with the schema of its name.
func (d *document) compare(t reflect.Type) {
	d.Helper()
	if d.named[t.Name()] {
		return
	}
	d.named[t.Name()] = true
	if !assert.NotNil(d, d.schemas[t.Name()], "no schema is called %s", t.Name()) {
		return
	}
	properties, required := d.members(d.schemas[t.Name()])
	var members, needed []string
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous {
			continue
		}
		members = append(members, name)
		optional := options == "omitzero" && f.Tag.Get("required") != "true" && f.Type != reflect.TypeFor[data.Owner]()
		if f.Tag.Get("required") != "false" && !optional {
			needed = append(needed, name)
		}
		if schema, ok := properties[name].(map[string]any); assert.True(d, ok, "%s.%s", t.Name(), name) {
			d.compareMember(t.Name()+"."+name, f, d.resolve(schema))
		}
	}
	assert.ElementsMatch(d, members, slices.Collect(maps.Keys(properties)), t.Name())
	assert.ElementsMatch(d, needed, required, t.Name())
}

// compareMember compares a member with its schema. Whether it may be null follows from what the client does with null.
func (d *document) compareMember(name string, f reflect.StructField, schema map[string]any) {
	d.Helper()
	of := f.Type
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	kind := map[reflect.Kind]string{
		reflect.String: "string", reflect.Int: "integer", reflect.Int64: "integer", reflect.Float64: "number", reflect.Bool: "boolean",
		reflect.Struct: "object", reflect.Slice: "array",
	}[of.Kind()]
	switch of {
	case reflect.TypeFor[time.Time]():
		kind = "string"
		assert.Equal(d, "date-time", schema["format"], name)
	case reflect.TypeFor[jsontext.Value]():
		kind = "object"
		assert.Equal(d, true, schema["additionalProperties"], name)
	default:
		switch of.Kind() {
		case reflect.Struct:
			d.compare(of)
		case reflect.Slice:
			d.compare(of.Elem())
		}
	}
	types, ok := schema["type"].([]any)
	if !ok {
		types = []any{schema["type"]}
	}
	assert.Equal(d, kind, types[0], name)
	if f.Type.Kind() == reflect.Pointer {
		assert.Contains(d, types, "null", name)
	}
	values, _ := schema["enum"].([]any)
	assert.Equal(d, data.Enumerations()[of], slices.DeleteFunc(values, func(v any) bool { return v == nil }), name)
	if strings.HasPrefix(name, "Conversation.") || strings.HasPrefix(name, "Message.") {
		return // the tools of conversations have types of their own with their bounds
	}
	for _, keyword := range []string{"minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "maxItems", "pattern"} {
		want, given := f.Tag.Lookup(keyword)
		got, documented := schema[keyword]
		if assert.Equal(d, given, documented, "%s: %s", name, keyword) && given {
			assert.Equal(d, want, asTag(got), "%s: %s", name, keyword)
		}
	}
}

func asTag(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	text, _ := json.Marshal(v)
	return string(text)
}

// The demo's data service is held to the document as gatehouse conform holds any service. It names no user, which the test adds.
func TestTheDemoConformsToTheDefinition(t *testing.T) {
	t.Parallel()
	d := load(t, "accounts")
	s, err := demo.Open(t.Context(), demo.Memory, demo.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	accounts := map[string]string{}
	var businesses []string
	for _, a := range demo.Accounts() {
		if a.Role == demo.RoleOwner {
			accounts[a.BusinessID] = a.ID
			businesses = append(businesses, a.BusinessID)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set(data.HeaderAccountID, accounts[r.Header.Get(upstream.HeaderBusinessID)])
		s.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	report, err := conform.Run(t.Context(), conform.Options{
		Definition: d, URL: server.URL, A: businesses[0], B: businesses[1], Write: true, Seed: 1,
	})
	require.NoError(t, err)
	var found []string
	for _, f := range slices.Concat(report.Faults, report.Hints) {
		if found = append(found, f.Rule+" "+f.Operation); f.Rule == "precondition" {
			assert.Equal(t, "the ETag of a record that was created", f.Expected)
		}
	}
	// The automations of the businesses have the same ids, and the version for If-Match is in the record, and not in ETag.
	// started_by of a run is not read.
	assert.ElementsMatch(t, []string{
		"isolation listAutomations", "isolation startRun", "undocumented startRun",
		"precondition getContact", "precondition getFaq", "precondition getService", "precondition getObject",
	}, found)
	assert.Greater(t, report.Requests, 300)
}
