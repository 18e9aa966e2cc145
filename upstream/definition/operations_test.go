package definition_test

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// loaded loads a changed definition, which must have no faults.
func loaded(t testing.TB, o definition.Options, changes ...string) *definition.Definition {
	t.Helper()
	text := orders
	for i := 0; i < len(changes); i += 2 {
		require.Contains(t, text, changes[i])
		text = strings.Replace(text, changes[i], changes[i+1], 1)
	}
	d, err := load(text, o)
	require.NoError(t, err)
	_, err = d.Published(definition.PublishOptions{})
	require.NoError(t, err)
	return d
}

func warnings(d *definition.Definition) string {
	var all []string
	for _, w := range d.Warnings {
		all = append(all, w.Error())
	}
	return strings.Join(all, "\n")
}

// An overlay that updates servers appends one.
func TestFurtherServersWithAnotherPathCauseAWarning(t *testing.T) {
	t.Parallel()
	for servers, want := range map[string]bool{
		"[{url: /v1}, {url: /v2}]": true, "[{url: https://a.example/v1}, {url: https://b.example}]": true, "[{url: https://a.example/v1}, {url: https://b.example/v1/}, {url: /v1}]": false,
	} {
		d := loaded(t, definition.Options{}, "paths:", "servers: "+servers+"\npaths:")
		require.Equal(t, "/v1", d.API.Base())
		require.Equal(t, want, strings.Contains(warnings(d), "/servers/1: is ignored: the path of the first server holds"), warnings(d))
	}
}

func TestRecordsThatNeedNotHaveTheTenantCauseAWarning(t *testing.T) {
	t.Parallel()
	const customer = `{type: object, properties: {account: {type: string}}}`
	for name, c := range map[string]struct {
		schema string
		inside bool
	}{
		"a record":                        {customer, false},
		"a list":                          {`{type: array, items: ` + customer + `}`, false},
		"a list in an envelope":           {`{type: object, properties: {page: {type: integer}, data: {type: array, items: ` + customer + `}}}`, false},
		"a list in two envelopes":         {`{type: object, required: [result], properties: {result: {type: object, properties: {data: {type: array, items: ` + customer + `}}}}}`, false},
		"records by their names":          {`{type: object, additionalProperties: ` + customer + `}`, false},
		"a required object of the record": {`{type: object, required: [customer], properties: {customer: ` + customer + `}}`, false},
		"one of each alternative":         {`{oneOf: [` + customer + `, {type: array, items: ` + customer + `}]}`, false},
		"an object that may be missing":   {`{type: object, properties: {total: {type: string}, customer: ` + customer + `}}`, true},
		"an object that may be null":      {`{type: object, required: [customer], properties: {customer: {anyOf: [` + customer + `, {type: "null"}]}}}`, true},
		"lines of a record in a list":     {`{type: object, properties: {orders: {type: array, items: {type: object, properties: {lines: {type: array, items: ` + customer + `}}}}}}`, true},
		"a record that has itself inside": {`{type: object, required: [parent], properties: {parent: {$ref: "#/paths/~1a/get/responses/200/content/application~1json/schema"}, customer: ` + customer + `}}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := load(`{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: account, paths: {/a: {get: {responses: {"200": {description: x, content: {application/json: {schema: `+c.schema+`}}}}}}}}`, definition.Options{})
			require.NoError(t, err)
			require.Equal(t, c.inside, strings.Contains(warnings(d), "only objects inside the records declare the tenant account"), warnings(d))
			require.Equal(t, c.inside, d.API.Operations()[0].TenantInside)
		})
	}
}

// Of a response with a list whose items have the tenant, or with an object that has it, a reader could believe that all lists are checked.
func TestListsBesideTheTenantCauseAWarningIfTheirItemsDoNotHaveIt(t *testing.T) {
	t.Parallel()
	const (
		order    = `{type: object, properties: {id: {type: string}, account: {type: string}, lines: {type: array, items: {type: object, properties: {sku: {type: string}}}}}}`
		payments = `payments: {type: array, items: {type: object, properties: {id: {type: string}, secret: {type: string}}}}`
		meta     = `meta: {type: object, required: [account], properties: {account: {type: string}}}`
		optional = `{type: object, properties: {customer: {type: object, properties: {account: {type: string}}}}}`
	)
	for name, c := range map[string]struct{ records, schema, list string }{
		"a list beside the records":                {"orders", `{type: object, properties: {orders: {type: array, items: ` + order + `}, ` + payments + `}}`, "/payments"},
		"a list beside a list that has it":         {"", `{type: object, properties: {orders: {type: array, items: ` + order + `}, ` + payments + `}}`, "/payments"},
		"a list beside a required object":          {"", `{type: object, required: [meta], properties: {` + meta + `, ` + payments + `}}`, "/payments"},
		"a list in an envelope in the envelope":    {"", `{type: object, required: [meta], properties: {` + meta + `, data: {type: object, properties: {` + payments + `}}}}`, "/data/payments"},
		"a map beside the records":                 {"orders", `{type: object, properties: {orders: {type: array, items: ` + order + `}, by_id: {type: object, additionalProperties: {type: object, properties: {id: {type: string}}}}}}`, "/by_id"},
		"a list of lists":                          {"orders", `{type: object, properties: {orders: {type: array, items: ` + order + `}, rows: {type: array, items: {type: array, items: {type: object, properties: {id: {type: string}}}}}}}`, "/rows"},
		"items that need not have it":              {"orders", `{type: object, properties: {orders: {type: array, items: ` + order + `}, other: {type: array, items: ` + optional + `}}}`, "/other"},
		"a list of one alternative":                {"", `{type: object, required: [meta], properties: {` + meta + `, extra: {oneOf: [{type: object, properties: {` + payments + `}}, {type: string}]}}}`, "/extra/payments"},
		"free JSON beside the records":             {"orders", `{type: object, properties: {orders: {type: array, items: ` + order + `}, raw: {type: array, items: {type: object, additionalProperties: true}}}}`, "/raw"},
		"lists that have it":                       {"orders", `{type: object, properties: {orders: {type: array, items: ` + order + `}, drafts: {type: array, items: ` + order + `}}}`, ""},
		"lines of the records":                     {"orders", `{type: object, properties: {page: {type: integer}, orders: {type: array, items: ` + order + `}}}`, ""},
		"lines of the record":                      {"", order, ""},
		"lines of the record in an envelope":       {"order", `{type: object, required: [order], properties: {order: ` + order + `}}`, ""},
		"texts, and an object, beside the records": {"orders", `{type: object, properties: {orders: {type: array, items: ` + order + `}, tags: {type: array, items: {type: string}}, pagination: {type: object, properties: {page: {type: integer}}}}}`, ""},
		"a list that callers do not see":           {"orders", `{type: object, properties: {orders: {type: array, items: ` + order + `}, internal: {x-gatehouse-internal: true, type: array, items: {type: object, properties: {id: {type: string}}}}}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			records := ""
			if c.records != "" {
				records = `, x-gatehouse-records: {in: ` + c.records + `}`
			}
			d, err := load(`{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: account, paths: {/a: {get: {responses: {"200": {description: x`+records+`, content: {application/json: {schema: `+c.schema+`}}}}}}}}`, definition.Options{})
			require.NoError(t, err)
			require.Equal(t, c.list != "", strings.Contains(warnings(d), "the items of "+c.list+" do not declare the tenant account"), warnings(d))
			require.Equal(t, c.list != "", d.API.Operations()[0].TenantInside)
		})
	}
}

// The forwarded query is canonical and has only what the definition says; the rest is refused or named.
func TestParametersOfAQuery(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		parameter string
		good      map[string]string // queries as sent and as forwarded
		bad       map[string]string // the reason
	}{
		"a text":               {"{name: q, in: query, schema: {type: string, minLength: 2, maxLength: 3}}", map[string]string{"": "", "q=": "", "q=ab": "q=ab", "q=%C3%A4+": "q=%C3%A4%20", "q=a%26b": "q=a%26b"}, map[string]string{"q=a": "too short", "q=abcd": "too long", "q=ab&q=ab": "only once", "q=%zz": "invalid percent-encoding", "q=%ff%ff": "valid UTF-8", "q=a%00": "control characters"}},
		"a long text":          {"{name: q, in: query, schema: {type: string, maxLength: 2000}}", map[string]string{"q=" + strings.Repeat("a", 1024): "q=" + strings.Repeat("a", 1024)}, map[string]string{"q=" + strings.Repeat("a", 1025): "at most 1024 bytes"}},
		"a required text":      {"{name: q, in: query, required: true, schema: {type: string}}", map[string]string{"q=": "q=", "q=a": "q=a"}, map[string]string{"": "is required", "p=a": "is required"}},
		"an integer":           {"{name: q, in: query, schema: {type: integer, minimum: 1, maximum: 5}}", map[string]string{"": "", "q=3": "q=3"}, map[string]string{"q=0": "too small", "q=6": "too large", "q=1.0": "whole number", "q=": "whole number", "q=1e0": "whole number", "q=03": "without leading zeros"}},
		"an integer or truth":  {"{name: q, in: query, schema: {type: [integer, boolean]}}", map[string]string{"q=3": "q=3", "q=true": "q=true"}, map[string]string{"q=x": "whole number"}},
		"an integer or text":   {"{name: q, in: query, schema: {type: [integer, string], pattern: '^-?(?:0|[1-9][0-9]*)$', format: int32, minimum: 1}}", map[string]string{"q=5": "q=5"}, map[string]string{"q=-5": "too small", "q=99999999999": "too large", "q=a": "required form"}},
		"a number or values":   {"{name: q, in: query, schema: {type: [number, string], enum: [5, 'a', '6'], maximum: 7}}", map[string]string{"q=6": "q=6", "q=a": "q=a"}, map[string]string{"q=b": "possible values"}},
		"a number":             {"{name: q, in: query, schema: {type: number, maximum: 0.5}}", map[string]string{"q=0.50": "q=0.50", "q=-1e3": "q=-1e3"}, map[string]string{"q=0.51": "too large", "q=.5": "a number", "q=NaN": "a number", "q=-1e309": "at most 64 characters", "q=1e-999999999": "at most 64 characters", "q=0." + strings.Repeat("1", 63): "at most 64 characters"}},
		"a truth value":        {"{name: q, in: query, schema: {type: boolean}}", map[string]string{"q=true": "q=true"}, map[string]string{"q=1": "true or false", "q=": "true or false"}},
		"true alone":           {"{name: q, in: query, schema: {type: boolean, enum: [true]}}", map[string]string{"q=true": "q=true"}, map[string]string{"q=false": "not one of the possible values"}},
		"texts and others":     {"{name: q, in: query, schema: {enum: [all, true, 1, 2.5], default: 1}}", map[string]string{"q=all": "q=all", "q=true": "q=true", "q=1": "q=1", "q=2.5": "q=2.5", "": "q=1"}, map[string]string{"q=false": "not one of the possible values", "q=2": "not one of the possible values", "q=%221%22": "not one of the possible values"}},
		"texts and integers":   {"{name: q, in: query, schema: {type: [string, integer], enum: [all, 10]}}", map[string]string{"q=all": "q=all", "q=10": "q=10"}, map[string]string{"q=1e1": "not one of the possible values", "q=10.0": "not one of the possible values"}},
		"possible values":      {"{name: q, in: query, schema: {type: string, enum: [b, a]}}", map[string]string{"q=a": "q=a", "q=b": "q=b"}, map[string]string{"q=c": "not one of the possible values"}},
		"a pattern":            {"{name: q, in: query, schema: {type: string, pattern: '^[a-z]+$'}}", map[string]string{"q=a": "q=a"}, map[string]string{"q=A": "required form"}},
		"a format":             {"{name: q, in: query, schema: {type: string, format: date}}", map[string]string{"q=2026-02-01": "q=2026-02-01"}, map[string]string{"q=2026-02-30": "a date"}},
		"an instant":           {"{name: q, in: query, schema: {type: string, format: date-time}}", map[string]string{"q=2026-03-01T00:00:00%2B01:00": "q=2026-03-01T00%3A00%3A00%2B01%3A00"}, map[string]string{"q=2026-03-01T00:00:00+01:00": "RFC 3339, with + encoded as %2B", "q=2026-03-01+00:00:00": "RFC 3339"}},
		"a default":            {"{name: q, in: query, schema: {type: string, default: 'a b'}}", map[string]string{"": "q=a%20b", "q=": "q=a%20b", "q=c": "q=c"}, nil},
		"a default of an enum": {"{name: q, in: query, schema: {type: string, enum: [open, paid, cancelled], default: cancelled}}", map[string]string{"": "q=cancelled", "q=open": "q=open", "q=paid": "q=paid"}, map[string]string{"q=void": "possible values"}},
		"defaults of an enum":  {"{name: q, in: query, schema: {type: array, items: {enum: [9, 10, 1]}, default: [10, 9]}}", map[string]string{"": "q=10&q=9", "q=1&q=9": "q=1&q=9"}, map[string]string{"q=2": "possible values"}},
		"a default of null":    {"{name: q, in: query, schema: {type: [string, 'null'], default: null}}", map[string]string{"": "", "q=null": "q=null"}, nil},
		"a shared default":     {"{name: q, in: query, schema: {$ref: '#/components/schemas/Count'}}", map[string]string{"": "q=7", "q=3": "q=3"}, map[string]string{"q=10": "too large"}},
		"clamped":              {"{name: q, in: query, x-gatehouse-clamp: true, schema: {type: integer, minimum: 1, maximum: 5, default: 2}}", map[string]string{"": "q=2", "q=0": "q=1", "q=99999999999999999999": "q=5", "q=003": "q=3"}, map[string]string{"q=a": "whole number"}},
		"an array":             {"{name: q, in: query, schema: {type: array, maxItems: 2, items: {type: integer}}}", map[string]string{"q=1&q=2": "q=1&q=2", "q=1": "q=1", "": ""}, map[string]string{"q=1&q=2&q=3": "at most 2 values", "q=1,2": "whole number"}},
		"a long array":         {"{name: q, in: query, schema: {type: array, items: {type: integer}}}", map[string]string{"q=1" + strings.Repeat("&q=1", 49): "q=1" + strings.Repeat("&q=1", 49)}, map[string]string{"q=1" + strings.Repeat("&q=1", 50): "at most 50 values"}},
		"a longer array":       {"{name: q, in: query, explode: false, schema: {type: array, maxItems: 60, items: {type: integer}}}", map[string]string{"q=1" + strings.Repeat(",1", 49): "q=1" + strings.Repeat(",1", 49)}, map[string]string{"q=1" + strings.Repeat(",1", 50): "at most 50 values"}},
		"an array's name":      {"{name: 'q[]', in: query, schema: {type: array, minItems: 2, items: {type: string}}}", map[string]string{"q[]=a&q%5B%5D=b": "q%5B%5D=a&q%5B%5D=b"}, map[string]string{"q[]=a": "at least 2 values"}},
		"a list":               {"{name: q, in: query, explode: false, schema: {type: array, items: {type: string, enum: [a, b]}}}", map[string]string{"q=a,b": "q=a,b", "q=a%2Cb": "q=a,b", "q=": ""}, map[string]string{"q=a&q=b": "only once", "q=c": "not one of the possible values"}},
		"a list of texts":      {"{name: q, in: query, explode: false, schema: {type: array, maxItems: 2, uniqueItems: true, items: {type: string}}}", map[string]string{"q=a%2cb": "q=a,b", "q=a%252Cb": "q=a%252Cb"}, map[string]string{"q=a%2cb,c": "at most 2 values", "q=a%2Ca": "the same value twice"}},
		"an array's default":   {"{name: q, in: query, schema: {type: array, items: {type: string}, default: [a, b]}}", map[string]string{"": "q=a&q=b", "q=c": "q=c"}, nil},
		"a list's default":     {"{name: q, in: query, explode: false, schema: {type: array, items: {type: string}, default: [a, b]}}", map[string]string{"": "q=a,b", "q=": "q=a,b"}, nil},
		"different items":      {"{name: q, in: query, schema: {type: array, uniqueItems: true, items: {type: string}, default: [x, y]}}", map[string]string{"": "q=x&q=y", "q=a&q=b": "q=a&q=b", "q=a&q=A": "q=a&q=A", "q=1&q=1.0": "q=1&q=1.0"}, map[string]string{"q=a&q=b&q=%61": "the same value twice"}},
		"different numbers":    {"{name: q, in: query, explode: false, schema: {type: array, uniqueItems: true, items: {type: number}}}", map[string]string{"q=1,2": "q=1,2", "q=": ""}, map[string]string{"q=1,2,1.0": "the same value twice", "q=1e%2B1,10": "the same value twice"}},
		"an object":            {"{name: q, in: query, style: deepObject, schema: {properties: {a: {type: string}}}}", map[string]string{"q=1": "", "q[a]=1": ""}, nil},
		"a choice":             {"{name: q, in: query, schema: {oneOf: [{type: string}, {type: integer}]}}", map[string]string{"q=1": ""}, nil},
		"JSON":                 {"{name: q, in: query, content: {application/json: {schema: {type: string}}}}", map[string]string{"q=1": ""}, nil},
		"nullable allOf":       {"{name: q, in: query, schema: {nullable: true, allOf: [{$ref: '#/components/schemas/Count'}]}}", map[string]string{"q=3": "q=3"}, map[string]string{"q=10": "too large"}},
		"a nullable choice":    {"{name: q, in: query, schema: {anyOf: [{type: integer, maximum: 5}, {type: 'null'}], default: 2}}", map[string]string{"": "q=2", "q=3": "q=3"}, map[string]string{"q=6": "too large", "q=null": "whole number"}},
		"a nullable reference": {"{name: q, in: query, required: true, schema: {nullable: true, oneOf: [{$ref: '#/components/schemas/Count'}]}}", map[string]string{"q=3": "q=3"}, map[string]string{"": "is required", "q=10": "too large"}},
		"a nullable list":      {"{name: q, in: query, schema: {anyOf: [{type: array, maxItems: 2, items: {anyOf: [{type: integer}, {type: 'null'}]}}, {type: 'null'}]}}", map[string]string{"": "", "q=1&q=2": "q=1&q=2"}, map[string]string{"q=a": "whole number", "q=1&q=2&q=3": "at most 2 values"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := loaded(t, definition.Options{}, theParameter, test.parameter, "schemas:\n", "schemas:\n    Count: {type: integer, maximum: 9, default: 7}\n")
			for sent, want := range test.good {
				m, ok := d.API.Match("/orders/1?" + sent)
				require.True(t, ok)
				q, err := m.Path.Operation(http.MethodGet).CleanQuery(m)
				require.NoError(t, err, sent)
				require.Equal(t, want, q.Raw, sent)
				again, _ := d.API.Match("/orders/1?" + q.Raw)
				twice, err := m.Path.Operation(http.MethodGet).CleanQuery(again)
				require.NoError(t, err)
				require.Equal(t, q.Raw, twice.Raw, "what is canonical stays")
			}
			for sent, want := range test.bad {
				m, ok := d.API.Match("/orders/1?" + sent)
				require.True(t, ok)
				_, err := m.Path.Operation(http.MethodGet).CleanQuery(m)
				var perr *upstream.ParameterError
				require.ErrorAs(t, err, &perr, sent)
				require.Contains(t, perr.Reason, want, sent)
			}
		})
	}
}

func TestUnknownParametersAreNamed(t *testing.T) {
	t.Parallel()
	d := loaded(t, definition.Options{}, theParameter, "{name: filter, in: query, style: deepObject, schema: {properties: {a: {type: string}}}}")
	require.Contains(t, warnings(d), "api.yaml:10: "+operationAt+"/parameters/1: the parameter filter is treated as unknown")
	m, _ := d.API.Match("/orders/1?page=1&filter=x&%0d%0a=1&filter=y&a%2Eb=1&c%zz=1")
	q, err := m.Path.Operation(http.MethodGet).CleanQuery(m)
	require.NoError(t, err)
	require.Equal(t, "page, filter, a.b", q.Ignored)
	require.Empty(t, q.Raw)

	m, _ = d.API.Match("/orders/1?page[size]=3&filter%5Bx%5D=1&expand[]=c&$top=5&a:b=2&@type=c&x,y=1&x%0dy=1&x%22=1")
	q, err = m.Path.Operation(http.MethodGet).CleanQuery(m)
	require.NoError(t, err)
	require.Equal(t, "page[size], filter[x], expand[], $top, a:b, @type", q.Ignored, "the styles of JSON:API, OData and others")

	longest := strings.Repeat("n", 64)
	m, _ = d.API.Match("/orders/1?" + longest + "n=1&" + longest + "&a&b&c&d&e&f&g&h&i")
	q, err = m.Path.Operation(http.MethodGet).CleanQuery(m)
	require.NoError(t, err)
	require.Equal(t, longest+", a, b, c, d, e, f, g", q.Ignored, "at most 8 names of at most 64 bytes")
}

// A write without a parameter that its document has could change more than the caller wants: all sessions instead of those of a user.
func TestWritesAreRefusedRatherThanSentWithoutAParameter(t *testing.T) {
	t.Parallel()
	const extra = `{name: X-Version, in: header, schema: {type: string}},
        {name: filter, in: query, style: deepObject, schema: {properties: {user: {type: string}}}}, {name: only, in: query, schema: {oneOf: [{type: string}, {type: integer}]}}, {name: expand, in: query, style: deepObject, schema: {properties: {a: {type: string}}}},
        {name: range, in: query, schema: {anyOf: [{properties: {since: {type: string}, limit: {type: integer}}}, {properties: {until: {type: string}}}, {type: "null"}]}}, {name: limit, in: query, schema: {type: integer}}`
	d := loaded(t, definition.Options{}, "components:\n", `  /sessions:
    delete: {operationId: end, x-gatehouse-tenant: none, x-gatehouse-upstream: {query: {expand: lines}}, parameters: [`+extra+`], responses: {"204": {}}}
    post: {operationId: search, x-gatehouse-tenant: none, x-gatehouse-read: true, parameters: [`+extra+`], responses: {"204": {}}}
components:
`)
	for query, lost := range map[string]string{
		"": "", "limit=5": "", "other=1&user=7&filters=1&%zz=1": "", "expand=all": "",
		"filter[user]=7": "filter", "limit=5&filter%5Buser%5D=7": "filter", "filter=7": "filter", "only=": "only", "since=2026-01-01": "since", "until=2026-01-01": "until", "range=1": "range",
	} {
		m, ok := d.API.Match("/sessions?" + query)
		require.True(t, ok)
		_, err := m.Path.Operation(http.MethodPost).CleanQuery(m)
		require.NoError(t, err, "it changes nothing")
		var perr *upstream.ParameterError
		if _, err = m.Path.Operation(http.MethodDelete).CleanQuery(m); lost == "" {
			require.NoError(t, err, query)
		} else {
			require.ErrorAs(t, err, &perr, query)
			require.Equal(t, lost+" is not forwarded: without it, the operation would do something else", perr.Reason)
		}
	}
	m, _ := d.API.Match("/sessions")
	require.NoError(t, m.Path.Operation(http.MethodDelete).CheckHeaders(http.Header{"X-Version": {"2"}}), "programs send it on their own")
}

// A caller that repeats a write with the key of the first would make the change again.
func TestWritesAreRefusedRatherThanSentWithoutAnIdempotencyKey(t *testing.T) {
	t.Parallel()
	d := loaded(t, definition.Options{}, "components:\n", `  /sessions:
    delete: {operationId: end, x-gatehouse-tenant: none, responses: {"204": {}}}
    put: {operationId: replace, x-gatehouse-tenant: none, responses: {"204": {}}}
    patch: {operationId: change, x-gatehouse-tenant: none, responses: {"204": {}}}
    post: {operationId: begin, x-gatehouse-tenant: none, responses: {"204": {}}}
  /sessions/search:
    post: {operationId: search, x-gatehouse-tenant: none, x-gatehouse-read: true, responses: {"204": {}}}
  /sessions/paid:
    post: {operationId: pay, x-gatehouse-tenant: none, parameters: [{name: Idempotency-Key, in: header, schema: {type: string}}], responses: {"204": {}}}
components:
`)
	for request, refused := range map[string]bool{
		"POST /sessions": true, "PATCH /sessions": true, "PUT /sessions": false, "DELETE /sessions": false, "POST /sessions/search": false, "POST /sessions/paid": false,
	} {
		method, path, _ := strings.Cut(request, " ")
		m, ok := d.API.Match(path)
		require.True(t, ok, request)
		op := m.Path.Operation(method)
		require.NoError(t, op.CheckHeaders(http.Header{}), request)
		if err := op.CheckHeaders(http.Header{"Idempotency-Key": {"order-7"}}); refused {
			require.EqualError(t, err, "Idempotency-Key is not supported by this operation: leave it out", request)
		} else {
			require.NoError(t, err, request)
		}
	}
}

func TestParametersOfAPath(t *testing.T) {
	t.Parallel()
	declared := "{name: id, in: path, required: true, schema: {type: string}}"
	for name, test := range map[string]struct {
		schema           string
		good, bad, never []string // what matches and is valid, what matches only, what does not match
	}{
		"a text":     {"{type: string}", []string{"a", "A-._~9", strings.Repeat("a", 128)}, nil, []string{"", ".", "..", "a%20b", "%61", "a/b", "a;b", "a+b", strings.Repeat("a", 129)}},
		"a pattern":  {"{type: string, pattern: '^[a-z]{2}$'}", []string{"ab"}, []string{"a", "AB", "abc"}, nil},
		"an integer": {"{type: integer, minimum: 1, maximum: 5}", []string{"1", "5"}, []string{"0", "6", "a", "1.0", "1e0"}, nil},
		"a number":   {"{type: number}", []string{"0.5", "1e307", "-1"}, []string{"1e309", "1e999999999", strings.Repeat("1", 65), "x"}, nil},
		"a uuid":     {"{type: string, format: uuid}", []string{"0190f3a2-7c4b-7d11-9e55-000000000001"}, []string{"0190f3a2"}, nil},
		"values":     {"{type: string, enum: [all, mine]}", []string{"all", "mine"}, []string{"theirs"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := loaded(t, definition.Options{}, declared, strings.Replace(declared, "{type: string}", test.schema, 1))
			for _, value := range append(test.good, test.bad...) {
				m, ok := d.API.Match("/orders/" + value)
				require.True(t, ok, value)
				q, err := m.Path.Operation(http.MethodGet).CleanQuery(m)
				if len(test.bad) > 0 && strings.Contains(" "+strings.Join(test.bad, " ")+" ", " "+value+" ") {
					require.Error(t, err, value)
					continue
				}
				require.NoError(t, err, value)
				require.Equal(t, "/orders/"+value, q.Path)
			}
			for _, value := range test.never {
				_, ok := d.API.Match("/orders/" + value)
				require.False(t, ok, value)
			}
		})
	}
}

const recent = `  /orders/recent:
    get: {operationId: recent, x-gatehouse-tenant: none, responses: {"204": {}}}
  /orders/{id}/1:
    get: {operationId: first, x-gatehouse-tenant: none, parameters: [{name: id, in: path, schema: {type: string}}], responses: {"204": {}}}
  /orders/recent/{no}:
    get: {operationId: numbered, x-gatehouse-tenant: none, parameters: [{name: no, in: path, schema: {type: integer}}], responses: {"204": {}}}
components:
`

// Frameworks such as Django REST framework end all paths with a slash.
func TestPathsMayEndInASlash(t *testing.T) {
	t.Parallel()
	d, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(`openapi: 3.1.0
info: {title: Orders, version: "1"}
servers: [{url: /v1}]
x-gatehouse-tenant: request
x-gatehouse-upstream: {headers: {X-Account: "{business}"}}
paths:
  /orders/: {get: {operationId: list, responses: {"204": {description: None.}}}}
  /orders/{id}/:
    parameters: [{name: id, in: path, required: true, schema: {type: string}}]
    get: {operationId: get, responses: {"204": {description: It.}}}
    delete: {operationId: remove, x-gatehouse-upstream: {path: "/api/{business}/orders/{id}/"}, responses: {"204": {description: It is gone.}}}
  /orders/{id}/lines: {parameters: [{name: id, in: path, required: true, schema: {type: string}}], get: {operationId: lines, responses: {"204": {description: None.}}}}
`)}, definition.Options{})
	require.NoError(t, err)
	require.Empty(t, d.Warnings, "an empty segment is no value of a parameter")
	for target, want := range map[string]string{
		"/v1/orders/": "list", "/v1/orders/7/": "get", "/v1/orders/7/lines": "lines",
		"/v1/orders": "", "/v1/orders//": "", "/v1/orders/7": "", "/v1/orders/7//": "", "/v1/orders//7/": "", "/v1/orders//lines": "",
		"/v1/orders/7/lines/": "", "/v1/orders/./": "", "/v1/orders/7%2F": "", "/v1/": "", "/v1//": "",
	} {
		m, ok := d.API.Match(target)
		require.Equal(t, want != "", ok, target)
		if ok {
			require.Equal(t, want, m.Path.Operation(http.MethodGet).ID, target)
		}
	}
}

func TestLiteralPathWinsOverAParameter(t *testing.T) {
	t.Parallel()
	d := loaded(t, definition.Options{Name: "shop"}, "components:\n", recent, "paths:", "servers: [{url: https://a.example/api/v1/}]\npaths:")
	require.Contains(t, warnings(d), "the literal path wins where both match: /orders/recent")
	for target, id := range map[string]string{"recent": "recent", "recents": "getOrder", "x/1": "first", "recent/1": "numbered", "recent/2": "numbered"} {
		m, ok := d.API.Match("/api/v1/orders/" + target)
		require.True(t, ok, target)
		require.Equal(t, id, m.Path.Operation(http.MethodGet).ID, target)
	}
	_, ok := d.API.Match("/api/v1/orders/x/2")
	require.False(t, ok)
	for _, op := range d.API.Operations() {
		require.Equal(t, "shop/orders", op.Resource)
		m, ok := d.API.Match(op.Sample())
		require.True(t, ok)
		require.Same(t, op, m.Path.Operation(http.MethodGet), op.Sample())
	}
}

const orderList = `{content: {application/json: {schema: {properties: {orders: {type: array, items: {$ref: "#/components/schemas/Order"}}, page: {type: integer}}, required: [orders]}}}, `

func TestRecordsAreWhereTheDefinitionSays(t *testing.T) {
	t.Parallel()
	const order = `    Order:
      properties:
        business_id: {type: string}
        id: {type: integer}
        at: {type: string, format: utc-date-time, nullable: true}
        s: {type: string, x-gatehouse-internal: true}`
	for name, test := range map[string]struct {
		response, more, target string
		good, bad              []string
	}{
		"sorted": {orderList + "x-gatehouse-records: {in: orders, order: [at]}}", "", "/orders/1", []string{
			`{"orders":[{"business_id":"b","at":"2026-01-01T00:00:00Z"},{"business_id":"b"},{"business_id":"b","at":"2026-02-01T00:00:00Z"}]}=>{"orders":[{"business_id":"b","at":"2026-02-01T00:00:00Z"},{"business_id":"b","at":"2026-01-01T00:00:00Z"},{"business_id":"b"}]}`,
			`{"orders":[]}`,
		}, []string{"{}", `{"orders":null}`, `{"orders":{}}`, `{"orders":[1]}`, `{"orders":[{"business_id":"c"}]}`, `{"orders":[{}]}`}},
		"as many as were asked for":   {orderList + "x-gatehouse-records: {in: orders, at_most: page}}", "", "/orders/1?page=2", []string{`{"orders":[{"business_id":"b"},{"business_id":"b"}]}`}, []string{`{"orders":[{"business_id":"b"},{"business_id":"b"},{"business_id":"b"}]}`}},
		"the page that was asked for": {orderList + "x-gatehouse-page: [{request: page, response: /page}]}", "", "/orders/1?page=3", []string{`{"orders":[],"page":3}`, `{"orders":[]}`, `{"orders":[],"page":3.0}=>`}, []string{`{"orders":[],"page":2}`, `{"orders":[],"page":"3"}`}},
		"those that may be seen": {orderList + "x-gatehouse-records: {in: orders, at_most: page}}", "\n      x-gatehouse-visible: {s: [open]}", "/orders/1?page=1", []string{
			`{"orders":[{"business_id":"c","s":"open"},{"s":"shut","business_id":"b","id":"x"},{"business_id":"b","s":"open","id":1},{"business_id":"b","s":"open","id":2}]}=>{"orders":[{"business_id":"b","id":1}]}`,
		}, []string{`{"orders":[{"business_id":"b"}]}`, `{"orders":[{"business_id":"b","s":"open","id":"x"}]}`}},
		"the one that was asked for": {`{x-gatehouse-records: {is: {id: id}}, ` + theResponse + "}", "", "/orders/7", []string{`{"business_id":"b","id":7}`}, []string{`{"business_id":"b","id":8}`, `{"business_id":"b"}`, `{"business_id":"b","id":null}`}},
		"the whole response":         {`{x-gatehouse-records: {}, content: {application/json: {schema: {type: array, maxItems: 2, items: {$ref: "#/components/schemas/Order"}}}}}`, "", "/orders/1", []string{`[{"business_id":"b"}]`, "[]"}, []string{`[{"business_id":"c"}]`, "{}", "null", `[{"business_id":"b"},{"business_id":"b"},{"business_id":"b"}]`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := strings.Index(orders, "    Order:\n")
			d := loaded(t, definition.Options{}, orders[start:], order+test.more+"\n", theResponse, test.response)
			for _, value := range test.good {
				in, out, changed := strings.Cut(value, "=>")
				got, err := answer(t, d, test.target, 200, in)
				if changed && out == "" { // an integer has no fraction
					require.Error(t, err)
					continue
				}
				require.NoError(t, err, in)
				if !changed {
					out = in
				}
				require.Equal(t, out, got)
			}
			for _, value := range test.bad {
				_, err := answer(t, d, test.target, 200, value)
				require.ErrorIs(t, err, upstream.ErrContractViolation, value)
			}
		})
	}
}

// Spring, Rails and Django REST framework respond with 406 if they cannot send what is asked for.
func TestServicesAreAskedForWhatIsDocumented(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"{application/json: {schema: {type: string}}}":                      "application/json",
		"{application/json: {schema: {type: string}}, application/pdf: {}}": "application/json",
		"{application/pdf: {}}":                                             "application/pdf, application/json",
		"{application/hal+json: {schema: {type: string}}}":                  "application/hal+json, application/json",
		"{'*/*': {schema: {type: string}}}":                                 "application/json",
		// Others than the first would be checked against its schema.
		"{application/vnd.a.v1+json: {schema: {type: string}}, application/vnd.a.v2+json: {schema: {type: integer}}}": "application/vnd.a.v1+json, application/json",
		"{application/vnd.a.v1+json: {schema: {type: string}}, application/json: {schema: {type: integer}}}":          "application/vnd.a.v1+json, application/json",
	} {
		extension := "x-gatehouse-tenant: request"
		if strings.Contains(content, "pdf") {
			extension += "\n      x-gatehouse-unchecked: [application/pdf]"
		}
		d := loaded(t, definition.Options{}, theOperation, theOperation+"\n      "+extension,
			"\"200\":\n          "+theResponse, `"200": {content: `+content+`}
        "404": {content: {application/problem+json: {schema: {type: object, properties: {title: {type: string}}}}}}`)
		m, _ := d.API.Match("/orders/1")
		op := m.Path.Operation(http.MethodGet)
		for _, op := range []*upstream.Operation{op, op.WithProperties(nil)} {
			call := upstream.NewCall(&http.Request{}, op, upstream.Query{Path: "/orders/1"}, "b", "r")
			r, err := call.NewRequest(t.Context(), "")
			require.NoError(t, err)
			require.Equal(t, []string{want}, r.Header["Accept"], content)
		}
	}
}

func TestResponsesAreThoseOfTheDocument(t *testing.T) {
	t.Parallel()
	d := loaded(t, definition.Options{},
		"x-gatehouse-tenant: business_id", "x-gatehouse-tenant: request",
		theOperation, theOperation+"\n      x-gatehouse-unchecked: [application/pdf]",
		"\"200\":\n          "+theResponse, `"200": {content: {application/json: {schema: {type: array, maxItems: 2, items: {type: string}}}, application/pdf: {}}, headers: {ETag: {}, X-Other: {}, Content-Disposition: {}, retry-after: {}, x-request-id: {}}}
        "201": {content: {application/json: {schema: {type: integer}}}, headers: {location: {}}}
        "202": {content: {application/vnd.orders+json: {schema: {type: string}}}}
        "204": {}
        "2XX": {content: {application/json: {schema: {type: boolean}}}}
        "302": {}
        "401": {content: {text/html: {}}}
        "404": {content: {application/json: {schema: {properties: {code: {type: string}}}}}}
        "429": {headers: {Retry-After: {}}}
        default: {headers: {Retry-After: {}}, content: {application/problem+xml: {}, application/problem+json: {schema: {properties: {title: {type: string}}}}}}
        "503": {}`)
	op := d.API.Operations()[0]
	require.Contains(t, warnings(d), "the header X-Other does not reach callers: must be one of ETag, Location")
	require.NotContains(t, warnings(d), "x-request-id", "callers get the gateway's")
	require.NotContains(t, warnings(d), "Content-Disposition", "it is passed on with the PDF")
	require.Contains(t, warnings(d), "application~1pdf: the service is asked for application/json: it must choose application/pdf by something else, such as a parameter")
	require.Contains(t, warnings(d), "/responses/302: becomes 502: redirects do not reach callers. Let an adapter send what they lead to, or serve the path with gatehouse_auth")
	require.Equal(t, 1, strings.Count(warnings(d), "the header retry-after does not reach callers"), "it leaves with 429")
	require.NotContains(t, warnings(d), "the header Retry-After")
	for _, test := range []struct {
		status      int
		contentType string
		body, want  string
	}{
		{200, "application/json", `["a"]`, `["a"]`},
		{201, "application/json; charset=UTF-8", "1", "1"},
		{202, "application/vnd.orders+json", `"a"`, `"a"`},
		{206, "application/json", "true", "true"},
		{404, "application/json", `{"code":"a","secret":"b"}`, `{"code":"a"}`},
		{404, "application/problem+json; charset=utf-8", `{"code":"a","secret":"b"}`, `{"code":"a"}`},
		{409, "application/problem+json", `{"title":"a","secret":"b"}`, `{"title":"a"}`},
	} {
		res, err := op.CheckHeader(test.status, http.Header{"Content-Type": {test.contentType}}, false)
		require.NoError(t, err, test.status)
		require.NotNil(t, res.Body, test.status)
		got, err := answer(t, d, "/orders/1", test.status, test.body)
		if test.contentType != "application/json" && test.status != 201 {
			continue // answer sends application/json
		}
		require.NoError(t, err, test.status)
		require.Equal(t, test.want, got)
	}
	for status, contentType := range map[int]string{200: "text/html", 202: "application/problem+json", 201: "application/vnd.orders+json", 302: "", 401: "text/html", 407: "", 500: "", 301: ""} {
		_, err := op.CheckHeader(status, http.Header{"Content-Type": {contentType}}, false)
		require.ErrorIs(t, err, upstream.ErrContractViolation, status)
	}
	for status, expected := range map[int]string{200: "application/json or application/pdf", 404: "application/json", 409: "application/problem+json"} {
		_, err := op.CheckHeader(status, http.Header{"Content-Type": {"text/html"}}, false)
		require.ErrorContains(t, err, ": expected Content-Type "+expected)
	}
	for _, status := range []int{204, 205} { // 205 is in a range
		res, err := op.CheckHeader(status, http.Header{}, false)
		require.NoError(t, err)
		require.Nil(t, res.Body)
	}
	res, err := op.CheckHeader(200, http.Header{"Content-Type": {"application/pdf"}}, false)
	require.NoError(t, err)
	require.Nil(t, res.Body, "it leaves as it came")
	require.True(t, res.ETag)
	res, err = op.CheckHeader(201, http.Header{"Content-Type": {"application/json"}}, false)
	require.NoError(t, err)
	require.True(t, res.Location)
	require.False(t, res.ETag)
	_, location := res.Headers(d.API, "/gw", "17", http.Header{"Location": {d.API.Base() + "/orders/1?page=2"}})
	require.Equal(t, "/gw"+d.API.Base()+"/orders/1?page=2", location)
}

// Callers would send the request again by themselves (408, 425), or over another connection (421, 426), which changes nothing.
func TestStatusesAboutTheGatewaysConnectionDoNotPass(t *testing.T) {
	t.Parallel()
	d := loaded(t, definition.Options{}, theResponse, theResponse+"\n        \"408\": {description: x}")
	op := d.API.Operations()[0]
	require.NotEmpty(t, op.PathParams)
	for status, passes := range map[int]bool{404: true, 405: true, 409: true, 431: true, 407: false, 421: false, 425: false, 426: false} {
		_, err := op.CheckHeader(status, http.Header{}, false)
		_, passed := errors.AsType[*upstream.StatusError](err)
		require.Equal(t, passes, passed, status)
		require.Equal(t, !passes, errors.Is(err, upstream.ErrContractViolation), status)
	}
	_, err := op.CheckHeader(http.StatusRequestTimeout, http.Header{}, false)
	require.NoError(t, err, "it is documented")
}

// A media type range (RFC 9110, section 12.5.1) lets no JSON pass without a check.
func TestUncheckedMediaTypesMayBeARange(t *testing.T) {
	t.Parallel()
	for documented, types := range map[string]map[string]bool{
		"image/*":       {"image/png": true, "image/svg+xml": true, "image/x+json": false, "images/png": false, "application/json": false, "": false},
		"application/*": {"application/pdf": true, "application/json": false, "application/hal+json": false, "image/png": false},
		"image/png":     {"image/png": true, "image/png2": false, "image/gif": false},
	} {
		d := loaded(t, definition.Options{}, "x-gatehouse-tenant: business_id", "x-gatehouse-tenant: request",
			theOperation, theOperation+"\n      x-gatehouse-unchecked: [\""+documented+"\"]", theResponse, `content: {"`+documented+`": {}}`)
		for contentType, passes := range types {
			_, err := d.API.Operations()[0].CheckHeader(200, http.Header{"Content-Type": {contentType}}, false)
			require.Equal(t, passes, err == nil, "%s for %s", contentType, documented)
		}
	}
}

// What is not checked, or says of nobody whose it is, needs a word of the definition.
func TestWhatIsNotCheckedNeedsAnotherTenant(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"{application/pdf: {}}", "{application/pdf: {}, application/json: {schema: " + theSchema + "}}"} {
		text := strings.NewReplacer(theOperation, theOperation+"\n      x-gatehouse-unchecked: [application/pdf]", theResponse, "content: "+content).Replace(orders)
		_, err := load(text, definition.Options{})
		all := faultsOf(t, err)
		require.Len(t, all, 1, err)
		require.Equal(t, operationAt+"/x-gatehouse-unchecked", all[0].Pointer)
		require.Contains(t, all[0].Message, "needs x-gatehouse-tenant: request, or none")
		_, err = load(strings.Replace(text, "tenant: business_id", "tenant: request", 1), definition.Options{})
		require.NoError(t, err)
	}
}

func TestGatewayAnswersWhatTheDefinitionSays(t *testing.T) {
	t.Parallel()
	d := loaded(t, definition.Options{}, theOperation, theOperation+"\n      x-gatehouse-answer: {y: b, z: 1, x: a}")
	require.Equal(t, `{"x":"a","y":"b"}`, string(d.API.Operations()[0].StaticBody), "what the schema does not have does not leave")

	const me = `"404": {}
        "200": {content: {application/json: {schema: {properties: {me: {properties: {id: {type: string}, slug: {type: string}}}}}}}}`
	d = loaded(t, definition.Options{}, theOperation, theOperation+"\n      x-gatehouse-answer: identity", "\"200\":\n          "+theResponse, me)
	require.JSONEq(t, `{"me":{"id":"b","slug":"s"}}`, string(d.API.Operations()[0].Identity(map[string]string{"id": "b", "slug": "s", "name": "n"})))
}

func TestOverlaySaysWhatTheDocumentLacks(t *testing.T) {
	t.Parallel()
	text := strings.NewReplacer("x-gatehouse-tenant: business_id\n", "", theRecord, "company: {type: integer}\n        extra: {type: string, multipleOf: 3}").Replace(orders)
	_, err := load(text, definition.Options{})
	require.Error(t, err)
	overlay := definition.File{Name: "overlay.yaml", Text: []byte(`overlay: 1.0.0
info: {title: T, version: v1}
actions:
- {target: $, update: {x-gatehouse-tenant: company}}
- {target: $.components.schemas..multipleOf, remove: true}
- {target: "$.components.schemas[*].properties", update: {z: {type: boolean}}}
`)}
	d, err := load(asJSON(t, text), definition.Options{Overlays: []definition.File{overlay}})
	require.NoError(t, err)
	got, err := answer(t, d, "/orders/1", 200, `{"z":true,"company":"b"}`)
	require.NoError(t, err)
	require.JSONEq(t, `{"company":"b","z":true}`, got)
	_, err = answer(t, d, "/orders/1", 200, `{"z":true,"company":1}`)
	require.ErrorIs(t, err, upstream.ErrCrossTenantRecord)
}

// Ruby's generators write such lists.
func TestNamesThatAreRequiredOfOtherThanObjectsCauseAWarning(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{"{type: array, maxItems: 3, items: {type: string}, required: [id]}", "{allOf: [{type: string}, {required: [id]}]}"} {
		d := loaded(t, definition.Options{}, "x: {type: string}", "x: "+schema)
		require.Contains(t, warnings(d), "required/0: does nothing, because the type is not object", schema)
	}
}

func TestValuesThatNoPathCanHaveCauseAWarning(t *testing.T) {
	t.Parallel()
	for parameter, want := range map[string]string{
		"schema: {type: string, enum: [a b, ok, 'x:y']}":           `"a b" cannot be in a path: it gets 404`,
		"schema: {type: string}, example: acct:17/4":               `"acct:17/4" cannot be in a path`,
		"schema: {type: string, example: urn:1}":                   `"urn:1" cannot be in a path`,
		"schema: {type: string, format: uuid}":                     "",
		"schema: {type: string, enum: [a], minLength: 1}":          "",
		"schema: {type: integer, enum: [-1, 2]}":                   "",
		"schema: {type: [string, integer], format: utc-date-time}": "",
	} {
		d := loaded(t, definition.Options{}, "in: path, required: true, schema: {type: string}", "in: path, required: true, "+parameter)
		require.Equal(t, want != "", strings.Contains(warnings(d), "cannot be in a path"), parameter)
		require.Contains(t, warnings(d), want)
	}
}

func TestTypesOfWhichOnlyNullIsLeftCauseAWarning(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]bool{
		"{type: [object, 'null'], allOf: [{type: [string, 'null']}]}":                                true,
		"{type: object, nullable: true, allOf: [{$ref: '#/components/schemas/Order/properties/y'}]}": true,
		"{type: ['null']}":            false,
		"{enum: [null]}":              false,
		"{allOf: [{type: 'null'}]}":   true,
		"{type: string, allOf: [{}]}": false,
	} {
		d := loaded(t, definition.Options{}, "x: {type: string}", "x: "+schema, "y: {type: string}", "y: {type: [string, 'null']}")
		require.Equal(t, want, strings.Contains(warnings(d), "x: only null is possible: no other type is in all of its parts"), "%s\n%s", schema, warnings(d))
	}
}

// All that deviates from other alternatives fits one that requires nothing.
func TestAlternativesThatRequireNothingCauseAWarning(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]int{
		"{anyOf: [{properties: {vat: {type: string}}}, {properties: {first: {type: string}}, required: [first]}]}":                       1,
		"{anyOf: [{properties: {first: {type: string}}, required: [first]}, {properties: {vat: {type: string}}}]}":                       1,
		"{anyOf: [{type: array, items: {properties: {a: {type: string}}}}, {type: array, items: {properties: {b: {type: string}}}}]}":    2,
		"{anyOf: [{properties: {a: {type: string}}}, {properties: {a: {type: integer}, b: {type: string}}}]}":                            1,
		"{anyOf: [{properties: {a: {type: string}}}, {properties: {a: {type: integer}}}]}":                                               0,
		"{required: [id], properties: {id: {type: string}}, anyOf: [{properties: {a: {type: string}}}, {properties: {b: {enum: [1]}}}]}": 0,
		"{anyOf: [{properties: {a: {type: string}}}, {type: string}]}":                                                                   0,
		"{anyOf: [{properties: {a: {type: string}}, additionalProperties: true}, {properties: {b: {type: string}}, required: [b]}]}":     0,
	} {
		d := loaded(t, definition.Options{}, "x: {type: string}", "x: "+schema)
		require.Equal(t, want, strings.Count(warnings(d), "requires nothing: an object that fits no other alternative becomes this one"), "%s\n%s", schema, warnings(d))
	}
}

// The 412 of a read would tell that a record is there that the caller may not see.
func TestIfMatchReachesNoRead(t *testing.T) {
	t.Parallel()
	const operation = `parameters: [{name: If-Match, in: header, schema: {type: string}}], responses: {"204": {description: x}}`
	d, err := load(`{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: request, paths: {/x: {get: {`+operation+`}, put: {`+operation+`}}}}`, definition.Options{})
	require.NoError(t, err)
	for _, op := range d.API.Operations() {
		require.Equal(t, op.Method == http.MethodPut, op.Forwards("If-Match"), op.Method)
	}
	require.Contains(t, warnings(d), "/paths/~1x/get/parameters/0: the header If-Match is not forwarded: 412 would tell of a record that the caller may not see")
}

// RFC 9110, section 13.1.2: a cache may send several tags, weak ones and *.
func TestReadIgnoresAnIfNoneMatchThatCannotBeForwarded(t *testing.T) {
	t.Parallel()
	const operation = `parameters: [{name: If-None-Match, in: header, schema: {type: string, pattern: '^"[^"]*"$'}}], responses: {"204": {description: x}}`
	d, err := load(`{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: request, paths: {/x: {get: {`+operation+`}, put: {`+operation+`}}}}`, definition.Options{})
	require.NoError(t, err)
	for _, op := range d.API.Operations() {
		for _, tags := range [][]string{{`"1"`}, {`W/"1"`}, {"*"}, {`"1"`, `"2"`}, {""}, {`"` + strings.Repeat("1", 300) + `"`}} {
			header := http.Header{"If-None-Match": tags}
			err := op.CheckHeaders(header)
			if op.Method == http.MethodPut && tags[0] != `"1"` || op.Method == http.MethodPut && len(tags) > 1 {
				require.Error(t, err, tags)
				continue
			}
			require.NoError(t, err, tags)
			require.Equal(t, len(tags) == 1 && tags[0] == `"1"`, header["If-None-Match"] != nil, tags)
		}
	}
}

// What is said under 3.0 of a reference is ignored, as OpenAPI says, and what is ignored is listed.
func TestWhatIsLeftOutIsListed(t *testing.T) {
	t.Parallel()
	d := loaded(t, definition.Options{MaxItems: 5}, "3.1.0", "3.0.0", theParameter, "{name: X-Trace, in: header, schema: {type: string}}",
		"x: {type: string}", `x: {$ref: "#/components/schemas/Order/properties/y", maxLength: 3}`, "y: {type: string}", "y: {type: array, items: {type: string, format: phone}}\n        z: {properties: {k: {type: string}}, discriminator: {propertyName: k}}",
		theOperation, "requestBody: {content: {application/x-www-form-urlencoded: {schema: {type: object, properties: {}}}}}\n      servers: []")
	for _, want := range []string{
		"api.yaml:7: " + operationAt + "/requestBody: is ignored: GET has no body",
		"api.yaml:8: " + operationAt + "/servers: is ignored",
		"api.yaml:11: " + operationAt + "/parameters/1: the header X-Trace is not forwarded",
		"api.yaml:20: " + recordAt + "/properties/x/maxLength: is ignored, because OpenAPI 3.0",
		"api.yaml:21: " + recordAt + "/properties/y: has at most 5 items",
		"api.yaml:21: " + recordAt + "/properties/y/items/format: the format phone is not known",
		"api.yaml:22: " + recordAt + "/properties/z/discriminator: does nothing without oneOf or anyOf",
	} {
		require.Contains(t, warnings(d), want)
	}
	require.Len(t, d.Warnings, 7, warnings(d))
	require.Equal(t, "get_orders_id", d.API.Operations()[0].ID)
}

// A media type may be written with parameters and in another case: what stands beside JSON is left out, and no fault.
func TestJSONIsKnownByItsMediaTypeAlone(t *testing.T) {
	t.Parallel()
	d, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(`
openapi: 3.1.0
x-gatehouse-tenant: none
paths:
  /x:
    post:
      requestBody: {content: {Application/JSON: {schema: {type: string}}, text/plain: {}}}
      responses: {"200": {content: {application/json; charset=utf-8: {schema: {type: string}}, text/plain: {}}}}
`)}, definition.Options{})
	require.NoError(t, err)
	require.Contains(t, warnings(d), "text/plain is not accepted")
	require.Contains(t, warnings(d), "text/plain does not reach callers")
}

// ASP.NET's versions differ in a parameter of the media type, which the gateway does not compare.
func TestTheFirstOfTwoBodiesWithTheSameMediaTypeIsAcceptedAndPublished(t *testing.T) {
	t.Parallel()
	d := loaded(t, definition.Options{}, "    get:\n", `    put:
      x-gatehouse-tenant: none
      parameters: [{name: id, in: path, required: true, schema: {type: string}}]
      requestBody: {content: {application/json; v=1: {schema: {properties: {first: {type: string}}}}, application/json; v=2: {schema: {properties: {second: {type: string}}}}}}
      responses: {"204": {description: It is stored.}}
    get:
`)
	require.Contains(t, warnings(d), "is taken for the first application/json of this body")
	m, _ := d.API.Match("/orders/1")
	require.Len(t, m.Path.Operation(http.MethodPut).Body.Kinds, 1)
	published, err := d.Published(definition.PublishOptions{})
	require.NoError(t, err)
	require.Contains(t, string(published), "first: {type: string}")
	require.NotContains(t, string(published), "second: {type: string}")
}

// springdoc writes */* for the JSON of Spring's controllers.
func TestTheRangeOfAllMediaTypesIsReadAsJSON(t *testing.T) {
	t.Parallel()
	d, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(`
openapi: 3.1.0
info: {title: Orders, version: "1"}
x-gatehouse-tenant: none
paths:
  /x:
    get: {responses: {"200": {description: It., content: {"*/*": {schema: {type: object, properties: {x: {type: string}}}}}}}}
    post: {requestBody: {content: {"*/*": {schema: {type: string}}}}, responses: {"204": {description: It is stored.}}}
`)}, definition.Options{})
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(warnings(d), "*/* is read as application/json"))
	get, post := d.API.Operations()[0], d.API.Operations()[1]
	require.Equal(t, "application/json", post.Body.Kinds[0].Media)
	got, err := answer(t, d, "/x", 200, `{"x":"a","y":"b"}`)
	require.NoError(t, err)
	require.JSONEq(t, `{"x":"a"}`, got)
	_, err = get.CheckHeader(200, http.Header{"Content-Type": {"text/html"}}, false)
	require.ErrorIs(t, err, upstream.ErrContractViolation)
	published, err := d.Published(definition.PublishOptions{})
	require.NoError(t, err)
	require.NotContains(t, string(published), "*/*")
	require.Contains(t, string(published), "x: {type: string}")

	d = loaded(t, definition.Options{}, "x-gatehouse-tenant: business_id", "x-gatehouse-tenant: none",
		theResponse, `content: {"*/*": {schema: {type: string}}, application/json: {schema: {type: integer}}}`)
	require.Contains(t, warnings(d), "*/* does not reach callers", "JSON stands beside it")
	got, err = answer(t, d, "/orders/1", 200, "1")
	require.NoError(t, err)
	require.Equal(t, "1", got)
}

// 204 and 205 have no body (RFC 9110, sections 15.3.5 and 15.3.6), whatever a generator of documents writes there.
func TestContentOfAResponseThatHasNoneIsIgnored(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"204", "205"} {
		for name, content := range map[string]string{
			"an empty schema": "{application/json: {schema: {type: object}}}", "no schema": "{application/json: {}}", "a text": "{text/plain: {}}",
			"an object": "{application/json: {schema: {type: object, properties: {x: {type: string}}}}}",
		} {
			t.Run(status+"/"+name, func(t *testing.T) {
				t.Parallel()
				text := strings.NewReplacer("x-gatehouse-tenant: business_id", "x-gatehouse-tenant: none", `"200":`, `"`+status+`":`, theResponse, "content: "+content).Replace(orders)
				d, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(text)}, definition.Options{})
				require.NoError(t, err)
				require.Contains(t, warnings(d), "a response with status "+status+" has no body")
				code, err := strconv.Atoi(status)
				require.NoError(t, err)
				res, err := d.API.Operations()[0].CheckHeader(code, http.Header{}, false)
				require.NoError(t, err)
				require.Nil(t, res.Body)
			})
		}
	}
}

func TestDialectsOfSchemas(t *testing.T) {
	t.Parallel()
	for dialect, possible := range map[string]bool{
		"https://json-schema.org/draft/2020-12/schema": true, "https://spec.openapis.org/oas/3.1/dialect/base": true,
		"http://json-schema.org/draft-07/schema#": false, "{}": false,
	} {
		_, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte("jsonSchemaDialect: " + dialect + "\n" + orders)}, definition.Options{})
		if possible {
			require.NoError(t, err, dialect)
		} else {
			require.ErrorContains(t, err, "is not a possible dialect", dialect)
		}
	}
}

func TestNamesInAPointerAreUnescaped(t *testing.T) {
	t.Parallel()
	d, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(`
openapi: 3.1.0
x-gatehouse-tenant: none
paths:
  /x:
    get:
      parameters: [{name: page, in: query, schema: {type: integer, default: 1}}, {name: cursor, in: query, schema: {type: string}}]
      responses:
        "200":
          x-gatehouse-page: [{request: page, response: /current~1page}, {cursor: cursor, response: /a~0b/next~1page}]
          content:
            application/json:
              schema:
                properties:
                  current/page: {type: integer}
                  a~b: {properties: {next/page: {type: string}}}
`)}, definition.Options{})
	require.NoError(t, err)
	require.Equal(t, []string{"a~b", "next/page"}, d.API.Operations()[0].Responses[0].Next)
	_, err = answer(t, d, "/x?page=2", 200, `{"current/page":1}`)
	require.ErrorIs(t, err, upstream.ErrContractViolation, "another page than was asked for")
}

// 304 is about a record that is not sent.
func TestResponsesThatMayBeHiddenAreKnown(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		tenant, schema string
		want           bool
	}{
		{"request", "{properties: {a: {type: string}}}", false},
		{"none", "{properties: {a: {$ref: '#/components/schemas/A'}}}", false},
		{"business_id", "{properties: {business_id: {type: string}}}", true},
		{"request", "{type: array, items: {properties: {a: {type: string}}, required: [a], x-gatehouse-visible: {a: [open]}}}", true},
		{"none", "{oneOf: [{type: string}, {properties: {b: {properties: {c: {type: string}}, x-gatehouse-tenant: c}}}]}", true},
	} {
		d, err := load(`{openapi: 3.1.0, info: {title: x, version: "1"}, paths: {/x: {get: {x-gatehouse-tenant: `+test.tenant+`, responses: {"200": {description: x,
			content: {application/json: {schema: `+test.schema+`}}}}}}}, components: {schemas: {A: {properties: {a: {$ref: '#/components/schemas/A'}}}}}}`, definition.Options{})
		require.NoError(t, err)
		require.Equal(t, test.want, d.API.Operations()[0].MayHide(), test)
	}
}

// RFC 9110, section 15.4.5: a write whose condition does not hold is 412. The gateway repeats a read after 304, and no write.
func TestNotModifiedIsForReadsOnly(t *testing.T) {
	t.Parallel()
	const responses = `parameters: [{name: If-None-Match, in: header, schema: {type: string}}], responses: {"204": {description: x}}`
	d, err := load(`{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: request, paths: {/x: {get: {`+responses+`}, put: {`+responses+`}}}}`, definition.Options{})
	require.NoError(t, err)
	for _, op := range d.API.Operations() {
		res, err := op.CheckHeader(http.StatusNotModified, http.Header{}, true)
		if op.Method == http.MethodGet {
			require.NoError(t, err)
			require.Equal(t, http.StatusNotModified, res.Status)
			continue
		}
		require.ErrorIs(t, err, upstream.ErrContractViolation)
	}
}
