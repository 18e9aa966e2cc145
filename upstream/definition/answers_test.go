package definition_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// Each of these was found by a generated definition: see generated_test.go.
func TestAnswersAreCheckedByTheWholeDefinition(t *testing.T) {
	t.Parallel()
	const record = `{type: object, properties: {business_id: {type: string}, name: {type: string}}}`
	for name, c := range map[string]struct{ schema, records, body, want string }{
		"records in a map that two schemas describe": {
			schema: `{type: object, properties: {own: ` + record + `}, allOf: [
				{type: object, additionalProperties: ` + record + `},
				{type: object, additionalProperties: {type: object, properties: {since: {type: string}}}}]}`,
			body: `{"own":{"business_id":"biz"},"x":{"business_id":"FOREIGN","name":"x"}}`,
		},
		"a maximum beside an exclusive minimum that two schemas say": {
			schema: `{type: object, properties: {own: ` + record + `, n: {allOf: [{type: number, minimum: -1}, {type: number, exclusiveMinimum: 0, maximum: 10}]}}}`,
			body:   `{"own":{"business_id":"biz"},"n":10}`, want: `{"own":{"business_id":"biz"},"n":10}`,
		},
		"different whole numbers of 18 digits": {
			schema: `{type: object, properties: {own: ` + record + `, n: {type: array, uniqueItems: true, items: {type: integer}}}}`,
			body:   `{"own":{"business_id":"biz"},"n":[900000000000000001,900000000000000002]}`,
			want:   `{"own":{"business_id":"biz"},"n":[900000000000000001,900000000000000002]}`,
		},
		"different fractions": {
			schema: `{type: object, properties: {own: ` + record + `, n: {type: array, uniqueItems: true, items: {type: number}}}}`,
			body:   `{"own":{"business_id":"biz"},"n":[0.1,0.1000000000000000000001,1e400,2e400]}`,
			want:   `{"own":{"business_id":"biz"},"n":[0.1,0.1000000000000000000001,1e400,2e400]}`,
		},
		"zero and minus zero": {
			schema: `{type: object, properties: {own: ` + record + `, n: {type: array, uniqueItems: true, items: {type: number}}}}`,
			body:   `{"own":{"business_id":"biz"},"n":[0,-0]}`,
		},
		"the same number, written twice": {
			schema: `{type: object, properties: {own: ` + record + `, n: {type: array, uniqueItems: true, items: {type: object, additionalProperties: true}}}}`,
			body:   `{"own":{"business_id":"biz"},"n":[{"a\"":-1.50,"b":"\\"},{"b":"\\","a\"":-15e-1}]}`,
		},
		"more records than the list may have": {
			schema: `{type: array, maxItems: 2, items: ` + record + `}`, records: `{at_most: per_page}`,
			body: `[{"business_id":"biz"},{"business_id":"biz"},{"business_id":"biz"}]`,
		},
		"fewer records than the list must have": {
			schema: `{type: array, minItems: 2, items: ` + record + `}`, records: `{at_most: per_page}`, body: `[{"business_id":"biz"}]`,
		},
		"the same record twice": {
			schema: `{type: array, uniqueItems: true, items: ` + record + `}`, records: `{at_most: per_page}`, body: `[{"business_id":"biz"},{"business_id":"biz"}]`,
		},
		"what two schemas let be seen": {
			schema: `{type: array, items: {allOf: [{$ref: "#/components/schemas/Seen"}, {type: object, properties: {}, x-gatehouse-visible: {status: [published, draft]}}]}}`,
			body:   `[{"business_id":"biz","status":"published"},{"business_id":"biz","status":"draft"}]`, want: `[{"business_id":"biz","status":"published"}]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := `{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: business_id, paths: {/x: {get: {
				parameters: [{name: per_page, in: query, schema: {type: integer, default: 5}}],
				responses: {"200": {description: "", content: {application/json: {schema: ` + c.schema + `}}` + map[bool]string{true: ", x-gatehouse-records: " + c.records}[c.records != ""] + `}}}}},
				components: {schemas: {
				Seen: {type: object, required: [status], properties: {business_id: {type: string}, status: {type: string}}, x-gatehouse-visible: {status: [published]}}}}}`
			d, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(text)}, definition.Options{})
			require.NoError(t, err)
			m, ok := d.API.Match("/x")
			require.True(t, ok)
			op := m.Path.Operation(http.MethodGet)
			q, err := op.CleanQuery(m)
			require.NoError(t, err)
			res, err := op.CheckHeader(http.StatusOK, http.Header{"Content-Type": {"application/json"}}, false)
			require.NoError(t, err)
			var out bytes.Buffer
			_, err = new(upstream.Contract).Check(&out, op, res, q, "biz", []byte(c.body))
			if c.want == "" {
				require.Error(t, err, out.String())
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, out.String())
		})
	}
}

// What a caller may spell in several ways, a data service need not spell as the caller did. What may not be seen does not exist, in an
// envelope or without one.
func TestOneRecordIsTheOneThatWasAskedFor(t *testing.T) {
	t.Parallel()
	d, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(`{openapi: 3.1.0, info: {title: x, version: "1"}, servers: [{url: /v1}], x-gatehouse-tenant: request, paths: {
		"/uuids/{id}": {get: {parameters: [{name: id, in: path, required: true, schema: {type: string, format: uuid}}], responses: {"200": {description: "", x-gatehouse-records: {is: {id: id}},
			content: {application/json: {schema: {type: object, properties: {id: {type: string, format: uuid}}}}}}}}},
		"/numbers/{no}": {get: {parameters: [{name: no, in: path, required: true, schema: {type: number}}], responses: {"200": {description: "", x-gatehouse-records: {in: row, is: {no: no}},
			content: {application/json: {schema: {type: object, properties: {row: {type: object, properties: {no: {type: number}}}}}}}}}}},
		"/events/{id}": {get: {parameters: [{name: id, in: path, required: true, schema: {type: string}}], responses: {"200": {description: "", x-gatehouse-records: {in: event, is: {id: id}},
			content: {application/json: {schema: {type: object, required: [event, n], properties: {n: {type: integer}, event: {type: object, required: [status], x-gatehouse-visible: {status: [published]},
			properties: {id: {type: string}, status: {type: string}, extra: {type: object, additionalProperties: true}}}}}}}}}}}}}`)}, definition.Options{})
	require.NoError(t, err)
	const id = "0190f3a2-7c1e-7b6a-9d51-0123456789ab"
	large := strings.Repeat(`\"a\":1,`, 1500)
	for name, c := range map[string]struct {
		target, body string
		want         error
	}{
		"a UUID in capitals":                     {"/v1/uuids/" + strings.ToUpper(id), `{"id":"` + id + `"}`, nil},
		"another UUID":                           {"/v1/uuids/" + strings.ToUpper(id), `{"id":"` + strings.Replace(id, "ab", "ac", 1) + `"}`, upstream.ErrWrongRecord},
		"a number in another notation":           {"/v1/numbers/7.0", `{"row":{"no":7}}`, nil},
		"another number":                         {"/v1/numbers/7.0", `{"row":{"no":70}}`, upstream.ErrWrongRecord},
		"a text in capitals":                     {"/v1/events/A", `{"n":1,"event":{"id":"a","status":"published"}}`, upstream.ErrWrongRecord},
		"a record that may not be seen":          {"/v1/events/a", `{"n":1,"event":{"id":"a","status":"draft"}}`, upstream.ErrNotVisible},
		"an invalid one that may not be seen":    {"/v1/events/a", `{"event":{"id":1,"status":"draft"},"n":1}`, upstream.ErrNotVisible},
		"one that may not be seen, after faults": {"/v1/events/a", `{"n":"x","event":{"id":"a","status":"draft"}}`, upstream.ErrContractViolation},
		"a text that looks like many members":    {"/v1/events/a", `{"n":1,"event":{"id":"a","status":"published","extra":{"x":{"json":"` + large + `"}}}}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			op, q := operationOf(t, d, http.MethodGet, c.target)
			var out bytes.Buffer
			_, err := new(upstream.Contract).Check(&out, op, &op.Responses[0], q, "17", []byte(c.body))
			require.ErrorIs(t, err, c.want)
			require.Equal(t, err == nil, out.Len() > 0)
		})
	}
}
