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

// chosen loads a definition whose response has a member x with this schema.
func chosen(x string, step upstream.Enforcement) (*definition.Definition, error) {
	return load(`{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: business_id, paths: {/x: {get: {responses: {"200": {description: "",
		content: {application/json: {schema: {type: object, required: [business_id], properties: {business_id: {type: string, x-gatehouse-internal: true}, x: `+x+`}}}}}}}}},
		components: {schemas: {
			Post: {type: object, required: [status, title], properties: {status: {type: string}, title: {type: string}, by: {$ref: "#/components/schemas/Author"}}, x-gatehouse-visible: {status: [published]}},
			Teaser: {type: object, required: [title], properties: {title: {type: string}}},
			Author: {type: object, properties: {business_id: {type: string}, name: {type: string}}}}}}`, definition.Options{Enforce: step})
}

func TestCauseNamesTheMemberThatDecidesWhichAlternativeItIs(t *testing.T) {
	t.Parallel()
	const schema = `{oneOf: [{type: object, required: [k], properties: {k: {const: a}}}, {type: object, required: [k], properties: {k: {const: b}}}]}`
	for name, c := range map[string]struct{ x, cause string }{
		"another value": {`{"k":"c"}`, "x: x.k: expected one of the documented values"},
		"null":          {`{"k":null}`, "x: x.k: expected one of the documented values"},
		"missing":       {`{"j":1}`, "x: x.k: expected the member k"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := chosen(schema, upstream.EnforceMembers)
			require.NoError(t, err)
			_, err = answer(t, d, "/x", 200, `{"business_id":"b","x":`+c.x+`}`)
			require.EqualError(t, err, "upstream response violates the contract: "+c.cause)
			d, err = chosen(schema, upstream.EnforceTenant)
			require.NoError(t, err)
			op, q := operationOf(t, d, http.MethodGet, "/x")
			report, err := new(upstream.Contract).Check(new(bytes.Buffer), op, &op.Responses[0], q, "b", []byte(`{"business_id":"b","x":`+c.x+`}`))
			require.NoError(t, err)
			require.Equal(t, []upstream.Deviation{{Pointer: "/x/k", Rule: "choice", Count: 1}}, report.Deviations)
		})
	}
}

// Which alternative a response is, the service decides: another one must not show what does not fit because something was removed.
func TestNoAlternativeShowsWhatAnotherOneHides(t *testing.T) {
	t.Parallel()
	const (
		post, teaser = `{$ref: "#/components/schemas/Post"}`, `{$ref: "#/components/schemas/Teaser"}`
		draft, shown = `{"status":"draft","title":"SECRET"}`, `{"status":"published","title":"a"}`
		foreign      = `{"status":"published","title":"SECRET","by":{"business_id":"8","name":"SECRET"}}`
		member       = `{oneOf: [{type: object, required: [post], properties: {post: ` + post + `}}, {type: object, required: [post], properties: {post: ` + teaser + `}}]}`
		list         = `{oneOf: [{type: object, properties: {posts: {type: array, items: ` + post + `}}}, {type: object, properties: {posts: {type: array, items: ` + teaser + `}, n: {type: integer}}}]}`
		nested       = `{anyOf: [{type: object, required: [in], properties: {in: ` + member + `}}, {type: object, properties: {in: {type: object, properties: {post: ` + teaser + `}}}}]}`
		entries      = `{anyOf: [{type: object, minProperties: 2, additionalProperties: ` + post + `}, {type: object, properties: {a: ` + teaser + `, b: ` + teaser + `}, required: [a]}]}`
		pages        = `{oneOf: [{type: object, required: [next, posts], properties: {next: {type: string}, posts: {type: array, items: ` + post + `}}},
			{type: object, required: [prev, posts], properties: {prev: {type: string}, posts: {type: array, items: ` + post + `}}}]}`
		reverse = `{oneOf: [{type: object, required: [post], properties: {post: ` + teaser + `}}, {type: object, required: [post], properties: {post: ` + post + `}}]}`
		without = `{oneOf: [{type: object, required: [post], properties: {post: ` + post + `}}, {type: object, required: [n], properties: {n: {type: integer}}}]}`
		decided = `{oneOf: [{type: object, required: [k, post], properties: {k: {const: a}, post: ` + post + `}}, {type: object, required: [k, post], properties: {k: {const: b}, post: ` + teaser + `}}]}`
	)
	for name, c := range map[string]struct {
		schema, body, want string // no want: the response is rejected
	}{
		"a hidden member that is required":        {member, `{"post":` + draft + `}`, ""},
		"one of the second alternative":           {reverse, `{"post":` + draft + `}`, ""},
		"one with an undocumented member":         {member, `{"z":1,"post":{"status":"draft","title":"SECRET","z":1}}`, ""},
		"one of another business":                 {member, `{"post":` + foreign + `}`, ""},
		"an item of another business":             {list, `{"posts":[` + foreign + `,` + shown + `],"n":1}`, `{"posts":[` + shown + `]}`},
		"one that is published":                   {member, `{"post":` + shown + `}`, `{"post":` + shown + `}`},
		"one that only the second can be":         {member, `{"post":{"title":"a"}}`, `{"post":{"title":"a"}}`},
		"an item beside one that does not fit":    {list, `{"posts":[` + draft + `,{"title":"a"}]}`, ""},
		"an item beside an undocumented member":   {list, `{"posts":[` + draft + `,` + shown + `],"n":1}`, `{"posts":[` + shown + `]}`},
		"an item of a list that fits":             {list, `{"posts":[` + shown + `,` + draft + `]}`, `{"posts":[` + shown + `]}`},
		"items that only the second can be":       {list, `{"posts":[{"title":"a"}]}`, `{"posts":[{"title":"a"}]}`},
		"a choice in an alternative":              {nested, `{"in":{"post":` + draft + `}}`, ""},
		"a choice in an alternative that fits":    {nested, `{"in":{"post":` + shown + `},"z":1}`, `{"in":{"post":` + shown + `}}`},
		"the value of a map":                      {entries, `{"a":` + draft + `}`, ""},
		"the value of a map that fits":            {entries, `{"a":` + draft + `,"b":` + shown + `}`, `{"b":` + shown + `}`},
		"an alternative that hides the same":      {pages, `{"posts":[` + draft + `,` + shown + `],"prev":"p"}`, `{"prev":"p","posts":[` + shown + `]}`},
		"an alternative that hides the same, too": {pages, `{"posts":[` + draft + `],"prev":"p","z":1}`, `{"prev":"p","posts":[]}`},
		"an alternative without the member":       {without, `{"post":` + draft + `,"n":1}`, `{"n":1}`},
		"another business's without the member":   {without, `{"post":` + foreign + `,"n":1}`, `{"n":1}`},
		"alternatives that a member decides":      {decided, `{"k":"b","post":{"title":"a","status":"draft"}}`, `{"k":"b","post":{"title":"a"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, step := range []upstream.Enforcement{upstream.EnforceAll, upstream.EnforceMembers, upstream.EnforceTenant} {
				d, err := chosen(c.schema, step)
				require.NoError(t, err)
				op, q := operationOf(t, d, http.MethodGet, "/x")
				var out bytes.Buffer
				report, err := new(upstream.Contract).Check(&out, op, &op.Responses[0], q, "7", []byte(`{"business_id":"7","x":`+c.body+`}`))
				require.Equal(t, strings.Count(c.body, "business_id"), report.CrossTenant, "each record counts once")
				if report.CrossTenant > 0 {
					listed, _ := new(upstream.Contract).Violations(op, &op.Responses[0], q, "7", []byte(`{"business_id":"7","x":`+c.body+`}`))
					require.NotEmpty(t, listed, step)
				}
				if c.want == "" {
					require.ErrorIs(t, err, upstream.ErrContractViolation, "%s: %s", step, out.String())
					continue
				}
				require.NoError(t, err, step)
				if step != upstream.EnforceTenant { // what is undocumented may stay
					require.Equal(t, `{"x":`+c.want+`}`, out.String(), step)
				}
				require.NotContains(t, out.String(), "SECRET", step)
			}
		})
	}
}

// What a choice removes may leave by another property that is made from the same member.
func TestPropertiesFromOneMemberHideForThemselves(t *testing.T) {
	t.Parallel()
	const kinds = `{type: array, x-gatehouse-from: tickets, maxItems: 9, items: {anyOf: [{type: object, required: [status, title], properties: {status: {type: string}, title: {type: string}},
		x-gatehouse-visible: {status: [STATUS]}}, {type: object, required: [status, n], properties: {status: {type: string}, n: {type: integer}}, x-gatehouse-visible: {status: [STATUS]}}]}}`
	d, err := chosen(`{type: object, properties: {open: `+strings.ReplaceAll(kinds, "STATUS", "open")+`, closed: `+strings.ReplaceAll(kinds, "STATUS", "closed")+`}}`, upstream.EnforceAll)
	require.NoError(t, err)
	op, q := operationOf(t, d, http.MethodGet, "/x")
	var out bytes.Buffer
	const tickets = `{"business_id":"7","x":{"tickets":[{"status":"open","title":"a"},{"status":"closed","title":"b"},{"status":"closed","n":1}]}}`
	_, err = new(upstream.Contract).Check(&out, op, &op.Responses[0], q, "7", []byte(tickets))
	require.NoError(t, err)
	require.Equal(t, `{"x":{"open":[{"status":"open","title":"a"}],"closed":[{"status":"closed","title":"b"},{"status":"closed","n":1}]}}`, out.String())
}
