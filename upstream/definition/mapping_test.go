package definition_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// mapped loads an operation with a mapping, and the document's.
func mapped(all, own, more string) (*definition.Definition, error) {
	return load(mappedText(all, own, more), definition.Options{})
}

func mappedText(all, own, more string) string {
	return `{openapi: 3.1.0, info: {title: x, version: "1"}, servers: [{url: /v1}], x-gatehouse-tenant: request, ` + all + ` paths: {"/orders/{id}/lines": {get: {` + more + `
		x-gatehouse-upstream: ` + own + `, parameters: [{name: id, in: path, required: true, schema: {type: string}},
		{name: page, in: query, schema: {type: integer, minimum: 1, default: 1}}, {name: per_page, in: query, schema: {type: integer, minimum: 1, maximum: 100, default: 20}},
		{name: status, in: query, schema: {type: string}}, {name: "tag[]", in: query, schema: {type: array, items: {type: string}}}, {name: sort, in: query, schema: {type: string, default: name}}],
		responses: {"200": {description: "", x-gatehouse-records: {at_most: per_page}, content: {application/json: {schema: {type: array, maxItems: 100, items: {type: object, properties: {a: {type: integer}}}}}}}}}},
		/status: {get: {x-gatehouse-tenant: none, x-gatehouse-public: true, responses: {"204": {description: ""}}}}}}`
}

func callOf(t *testing.T, d *definition.Definition, target, business string) (upstream.Call, error) {
	t.Helper()
	m, ok := d.API.Match(target)
	require.True(t, ok)
	op := m.Path.Operation(http.MethodGet)
	q, err := op.CleanQuery(m)
	require.NoError(t, err)
	call := upstream.NewCall(&http.Request{Host: "x"}, op, q, business, "r")
	_, err = call.NewRequest(context.Background(), "")
	return call, err
}

func TestCallsAreMapped(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ all, own, target, path, query, header string }{
		"the path":                       {"", `{path: "/v2/accounts/{business}/orders/{id}.json"}`, "/v1/orders/o-1/lines", "/v2/accounts/17/orders/o-1.json", "page=1&per_page=20&sort=name", ""},
		"a path without placeholders":    {"", `{path: /legacy}`, "/v1/orders/o-1/lines?page=2", "/legacy", "page=2&per_page=20&sort=name", ""},
		"offset, names and texts":        {"", `{query: {offset: "{page.offset}", limit: "{per_page}", state: "{status}", expand: "lines & more"}}`, "/v1/orders/o-1/lines?page=3&status=a%20b%26c", "/v1/orders/o-1/lines", "offset=40&limit=20&state=a%20b%26c&expand=lines%20%26%20more&sort=name", ""},
		"what was not sent":              {"", `{query: {q: "state:{status}", account: "{business}"}}`, "/v1/orders/o-1/lines", "/v1/orders/o-1/lines", "account=17&page=1&per_page=20&sort=name", ""},
		"parts of a value":               {"", `{query: {q: "{status}/{id}:{per_page}", account: "a/{business}"}}`, "/v1/orders/o-1/lines?status=%2F", "/v1/orders/o-1/lines", "q=%2F%2Fo-1%3A20&account=a%2F17&page=1&sort=name", ""},
		"a parameter that is repeated":   {"", `{query: {label: "{tag[]}"}}`, "/v1/orders/o-1/lines?tag[]=a&tag%5B%5D=b%3D", "/v1/orders/o-1/lines", "label=a&label=b%3D&page=1&per_page=20&sort=name", ""},
		"the first page":                 {"", `{query: {offset: "{page.offset}"}}`, "/v1/orders/o-1/lines", "/v1/orders/o-1/lines", "offset=0&sort=name", ""},
		"a page beyond all numbers":      {"", `{query: {offset: "{page.offset}"}}`, "/v1/orders/o-1/lines?page=999999999999999999&per_page=100", "/v1/orders/o-1/lines", "offset=9223372036854775807&sort=name", ""},
		"headers of the document":        {`x-gatehouse-upstream: {headers: {X-Account: "acc {business}"}, query: {v: 2}},`, `{headers: {x-order: "{id}"}}`, "/v1/orders/o-1/lines", "/v1/orders/o-1/lines", "v=2&page=1&per_page=20&sort=name", "X-Account: acc 17, X-Order: o-1"},
		"those of the operation win":     {`x-gatehouse-upstream: {headers: {X-Account: "a {business}", X-Order: a}, query: {v: 2}},`, `{headers: {x-account: "{business}", x-order: "{id}"}, query: {v: "3"}}`, "/v1/orders/o-1/lines", "/v1/orders/o-1/lines", "v=3&page=1&per_page=20&sort=name", "X-Account: 17, X-Order: o-1"},
		"names with brackets":            {"", `{query: {"search[account_id]": "{business}", "search[state]": "{status}", "page[offset]": "{page.offset}", "page[limit]": "{per_page}", "search[by][name]": a}}`, "/v1/orders/o-1/lines?status=a", "/v1/orders/o-1/lines", "search%5Baccount_id%5D=17&search%5Bstate%5D=a&page%5Boffset%5D=0&page%5Blimit%5D=20&search%5Bby%5D%5Bname%5D=a&sort=name", ""},
		"a parameter in place of a text": {`x-gatehouse-upstream: {query: {sort: up, status: all}},`, `{query: {sort: "{sort}", state: "{status}"}}`, "/v1/orders/o-1/lines?status=a", "/v1/orders/o-1/lines", "sort=name&status=all&state=a&page=1&per_page=20", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := mapped(c.all, c.own, "")
			require.NoError(t, err)
			call, err := callOf(t, d, c.target, "17")
			require.NoError(t, err)
			require.Equal(t, c.path, call.Path)
			require.Equal(t, c.query, call.Query)
			var headers []string
			for _, name := range []string{"X-Account", "X-Order"} {
				if call.Header[name] != nil {
					headers = append(headers, name+": "+call.Header.Get(name))
				}
			}
			require.Equal(t, c.header, strings.Join(headers, ", "))
		})
	}
}

func TestABusinessCannotLeaveItsPlaceInAPath(t *testing.T) {
	t.Parallel()
	d, err := mapped(`x-gatehouse-upstream: {headers: {X-Account: "{business}"}},`, `{path: "/v2/{business}/orders", query: {account: "{business}"}}`, "")
	require.NoError(t, err)
	for _, business := range []string{"a/b", "..", ".", "a%2Fb", "a?b", "a#b", "a;b", `a\b`, "a b", "ü", "a&b=c", "\r\nX: y", strings.Repeat("a", 129)} {
		_, err := callOf(t, d, "/v1/orders/o-1/lines", business)
		require.ErrorIs(t, err, upstream.ErrIdentity, business)
	}
	d, err = mapped("", `{query: {account: "{business}"}}`, "")
	require.NoError(t, err)
	call, err := callOf(t, d, "/v1/orders/o-1/lines?account=18&ACCOUNT=18&account[]=18", "a&b=c#d+e%2F")
	require.NoError(t, err)
	require.Equal(t, "account=a%26b%3Dc%23d%2Be%252F&page=1&per_page=20&sort=name", call.Query)
}

// What is between a gateway and a service may decode a path before it is matched.
func TestAnArgumentCannotLeaveItsPlace(t *testing.T) {
	t.Parallel()
	d, err := mapped("", `{path: "/accounts/{business}/lines/{id}", query: {order: "{id}", account: "{business}"}, headers: {X-Order: "{id}"}}`, "")
	require.NoError(t, err)
	op := d.API.Operations()[0]
	for id, query := range map[string]string{"o-1": "o-1", "urn:o:1@~...": "urn%3Ao%3A1%40~...", strings.Repeat("a", 128): strings.Repeat("a", 128)} {
		q, err := op.Fill([]string{id}, "", "17")
		require.NoError(t, err)
		call := upstream.NewCall(&http.Request{Host: "x"}, op, q, "17", "r")
		require.Equal(t, "/accounts/17/lines/"+id, call.Path)
		require.Equal(t, "order="+query+"&account=17&page=1&per_page=20&sort=name", call.Query)
		require.Equal(t, id, call.Header.Get("X-Order"))
	}
	for _, id := range []string{
		"", ".", "..", "../18", `..\18`, "../../18/lines/9", "%2e%2e%2f18", "1%", "1/payments", "1;account=18", "1&account=18", "1+18", "1?account=18", "1#",
		"1\x00", "1\r\nX-Account: 18", "1 2", "ö", "．．／18", strings.Repeat("a", 129),
	} {
		_, err := op.Fill([]string{id}, "", "17")
		require.ErrorContains(t, err, "id must be 1 to 128 letters, digits and -._~:@, and neither . nor ..", "%q", id)
	}
}

func TestMappingsThatCannotBeEnforcedDoNotLoad(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ all, own, want string }{
		"an unknown placeholder":          {"", `{path: "/a/{company}"}`, "{company} is not a placeholder here"},
		"a query's parameter in a path":   {"", `{path: "/a/{status}"}`, "{status} is not a placeholder here"},
		"an offset in a path":             {"", `{path: "/a/{page.offset}"}`, "{page.offset} is not a placeholder here"},
		"a query's parameter in a header": {"", `{headers: {X-Status: "{status}"}}`, "{status} is not a placeholder here"},
		"the offset of a text":            {"", `{query: {o: "{status.offset}"}}`, "{status.offset} needs a parameter that is an integer"},
		"a parameter after {business}":    {"", `{path: "/a/{business}{id}"}`, "{business} must be the only placeholder of a segment"},
		"one beside it in a header":       {"", `{headers: {X-Account: "{business}-{id}"}}`, "{business} must be the only placeholder"},
		"one beside it in a query":        {"", `{query: {filter: "account={business};status={status}"}}`, "{business} must be the only placeholder"},
		"one beside it in all queries":    {`x-gatehouse-upstream: {query: {filter: "{page}{business}"}},`, "", "{business} must be the only placeholder"},
		"a path without a slash":          {"", `{path: "a"}`, "must begin with a slash"},
		"an empty segment":                {"", `{path: "/a//b"}`, "must begin with a slash; each segment"},
		"two slashes at the end":          {"", `{path: "/a//"}`, "must begin with a slash; each segment"},
		"dots":                            {"", `{path: "/a/../b"}`, "each segment must be"},
		"dots with a placeholder":         {"", `{path: "/a/.{business}"}`, "each segment must be"},
		"an escape":                       {"", `{path: "/a%2Fb"}`, "each segment must be"},
		"a query in the path":             {"", `{path: "/a?b=c"}`, "each segment must be"},
		"a brace alone":                   {"", `{query: {a: "{business"}}`, "unmatched brace"},
		"a path that is a number":         {"", `{path: 1}`, "must begin with a slash"},
		"a value that is a list":          {"", `{query: {a: [b]}}`, "must be a string"},
		"null":                            {"", `{query: {a: null}}`, "must be a string"},
		"an unknown member":               {"", `{body: x}`, "body cannot be enforced here"},
		"a path for all operations":       {`x-gatehouse-upstream: {path: /a},`, `{}`, "path cannot be enforced here"},
		"the gateway's own header":        {"", `{headers: {x-business-id: "18"}}`, "the header x-business-id cannot be set by a definition"},
		"another spelling of it":          {"", `{headers: {X_Business_Id: "18"}}`, "cannot be set by a definition"},
		"a password":                      {"", `{headers: {Authorization: "Basic x"}}`, "cannot be set by a definition"},
		"the length":                      {"", `{headers: {Content-Length: "1"}}`, "cannot be set by a definition"},
		"no name":                         {"", `{headers: {"a b": "1"}}`, "cannot be set by a definition"},
		"another method":                  {"", `{headers: {X-HTTP-Method-Override: DELETE}}`, "the header X-HTTP-Method-Override cannot be set by a definition"},
		"another method, without HTTP":    {"", `{headers: {x-method-override: DELETE}}`, "cannot be set by a definition"},
		"an account":                      {"", `{headers: {X-Account-Id: "{id}"}}`, "cannot be set by a definition"},
		"a client IP":                     {"", `{headers: {X-Real-IP: 192.0.2.1}}`, "cannot be set by a definition"},
		"a proxy":                         {"", `{headers: {Proxy: "http://192.0.2.1"}}`, "cannot be set by a definition"},
		"a method in the query":           {"", `{query: {_method: DELETE}}`, "services may take the parameter _method for the method, and this operation only reads"},
		"a method in all queries":         {"x-gatehouse-upstream: {query: {X-HTTP-Method-Override: PUT}},", "", "services may take the parameter X-HTTP-Method-Override for the method"},
		"a line break in a header":        {"", `{headers: {X-A: "a\r\nb"}}`, "must be visible ASCII and spaces"},
		"a media type with parameters":    {"", `{content_type: "text/html; charset=utf-8"}`, "must be a media type without parameters"},
		"a parameter beside its name":     {"", `{query: {sort: "{business}"}}`, "the parameter sort of callers would come beside a value of this name"},
		"in another case":                 {"", `{query: {Sort: "{business}"}}`, "the parameter sort of callers would come beside a value of this name"},
		"as an array":                     {"", `{query: {tag: "{business}"}}`, "the parameter tag[] of callers would come beside a value of this name"},
		"two names that are one":          {"", `{query: {a.b: "{business}", a_b: "{status}"}}`, "services may take two names of the query for one"},
		"a query without the business":    {`x-gatehouse-upstream: {query: {account: "{business}"}},`, `{query: {account: "{status}"}}`, "would replace {business}"},
		"a header without the business":   {`x-gatehouse-upstream: {headers: {X-Account: "{business}"}},`, `{headers: {x-account: none}}`, "would replace {business}"},
		"two spellings of a header":       {"", `{headers: {X-Account: "{business}", x-account: "{id}"}}`, "would replace {business}"},
		"a parameter beside all queries":  {`x-gatehouse-upstream: {query: {sort: up}},`, `{query: {v: "2"}}`, "the parameter sort of callers would come beside a value of this name"},
		"two names in brackets":           {"", `{query: {"s[account_id]": "{business}", "S[Account.Id]": a}}`, "services may take two names of the query for one: S[Account.Id]"},
		"a name and one in its brackets":  {"", `{query: {"s": "{business}", "s[a]": a}}`, "services may take two names of the query for one: s[a]"},
		"brackets in brackets":            {"", `{query: {"s[a][b]": "{business}", "s[a]": a}}`, "services may take two names of the query for one: s[a]"},
		"an item and a name in brackets":  {"", `{query: {"s[][a]": "{business}", "s[0][a]": a}}`, "services may take two names of the query for one: s[0][a]"},
		"text after brackets":             {"", `{query: {"s[a]": "{business}", "s[a]b": a}}`, "services may take two names of the query for one: s[a]b"},
		"a bracket that is not closed":    {"", `{query: {"s[a]": "{business}", "s[a": a}}`, "services may take two names of the query for one: s[a"},
		"a parameter in its brackets":     {"", `{query: {"tag[account]": "{business}"}}`, "the parameter tag[] of callers would come beside a value of this name"},
		"a part of what is repeated":      {"", `{query: {a: "x{tag[]}"}}`, "a parameter that may be repeated must be the whole value"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := mapped(c.all, c.own, "")
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err := mapped(`x-gatehouse-upstream: {headers: {X-Account: "{business}"}},`, `{headers: {x-account: none}}`, "x-gatehouse-tenant: none,")
	require.NoError(t, err, "no business's records are selected")
	t.Run("the business of an unsigned request", func(t *testing.T) {
		t.Parallel()
		_, err := mapped("", `{query: {account: "{business}"}}`, "x-gatehouse-public: true, x-gatehouse-tenant: none,")
		require.ErrorContains(t, err, "the business of an unsigned request is not known")
		_, err = mapped(`x-gatehouse-upstream: {headers: {X-Account: "{business}"}},`, `{}`, "x-gatehouse-public: true, x-gatehouse-tenant: none,")
		require.NoError(t, err, "what is said of all operations is left out")
	})
	for page, want := range map[string]bool{"minimum: 0, default: 1": false, "default: 0": false, "default: 1": true, "default: 1, format: int32": true, "exclusiveMinimum: 0, default: 1": true, "minimum: -1, default: 1": true, "exclusiveMinimum: -1, default: 1": true, "minimum: 2, default: 2": true} {
		text := strings.Replace(mappedText("", `{query: {offset: "{page.offset}"}}`, ""), "minimum: 1, default: 1", page, 1)
		if d, err := load(text, definition.Options{}); want {
			require.NoError(t, err, page)
			for _, invalid := range []string{"0", "-1"} { // it would be the first page
				m, _ := d.API.Match("/v1/orders/o-1/lines?page=" + invalid)
				_, err := m.Path.Operation(http.MethodGet).CleanQuery(m)
				require.ErrorContains(t, err, "page", page)
			}
		} else {
			require.ErrorContains(t, err, "{page.offset} needs pages that are counted from 1", page)
		}
	}
}

// A service that finds the business in its own paths and names need not know X-Business-Id.
func TestAnOperationThatDoesNotNameTheBusinessIsReported(t *testing.T) {
	t.Parallel()
	const want = "only X-Business-Id tells the service the business"
	other := func(more string) string {
		return `/lines: {get: {` + more + ` responses: {"204": {description: ""}}}}, /status:`
	}
	for paths, reported := range map[string]bool{
		other(`x-gatehouse-upstream: {path: /Lines},`): true, other(""): true, other("x-gatehouse-tenant: none,"): false,
		other(`x-gatehouse-upstream: {headers: {X-Account: "{business}"}},`): false,
	} {
		d, err := load(strings.Replace(mappedText("", `{path: "/a/{business}"}`, ""), "/status:", paths, 1), definition.Options{})
		require.NoError(t, err)
		require.Equal(t, reported, strings.Contains(warnings(d), want), paths)
		d, err = load(strings.Replace(mappedText("", `{path: "/a"}`, ""), "/status:", other(""), 1), definition.Options{})
		require.NoError(t, err)
		require.NotContains(t, warnings(d), want, "no operation has {business}")
	}
}

// A list would have the records of all parents, and a DELETE would reach the list.
func TestAParameterThatDoesNotReachTheServiceIsReported(t *testing.T) {
	t.Parallel()
	for own, reported := range map[string]bool{
		`{path: "/a/{business}"}`: true, `{path: "/a/{id}"}`: false, `{path: "/a", query: {order: "o-{id}"}}`: false, `{path: "/a", headers: {X-Order: "{id}"}}`: false,
		`{query: {a: b}}`: false,
	} {
		d, err := mapped("", own, "")
		require.NoError(t, err)
		require.Equal(t, reported, strings.Contains(warnings(d), "the parameter id of the path does not reach the service"), own)
	}
}

// Documents of services that are called with a header for the customer declare it as required.
func TestARequiredHeaderThatTheGatewaySendsIsNotACallersParameter(t *testing.T) {
	t.Parallel()
	const parameters = `parameters: [{name: x-account, in: header, required: true, schema: {type: string}}, {name: X-Business-Id, in: header, required: true, schema: {type: string}}],`
	document := func(root, operation string) string {
		return `{openapi: 3.1.0, info: {title: x, version: "1"}, servers: [{url: /v1}], x-gatehouse-tenant: none, ` + root + `
			paths: {/a: {get: {operationId: a, ` + operation + parameters + ` responses: {"204": {description: x}}}}}}`
	}
	const sent = `x-gatehouse-upstream: {headers: {X-Account: "{business}"}},`
	for name, in := range map[string][2]string{"for the document": {sent, ""}, "for the operation": {"", sent}, "a constant of a public one": {`x-gatehouse-upstream: {headers: {X-Account: "1"}},`, "x-gatehouse-public: true,"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := load(document(in[0], in[1]), definition.Options{})
			require.NoError(t, err)
			require.Empty(t, d.Warnings)
			require.Empty(t, d.API.Operations()[0].Headers)
			published, err := d.Published(definition.PublishOptions{})
			require.NoError(t, err)
			require.NotContains(t, strings.ToLower(string(published)), `"x-account"`)
		})
	}
	for name, in := range map[string][2]string{"nothing sends it": {}, "the business of a public operation": {sent, "x-gatehouse-public: true,"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(document(in[0], in[1]), definition.Options{})
			require.ErrorContains(t, err, "the header x-account is required, but only these are forwarded: Idempotency-Key, If-Match, If-None-Match, Accept-Language. If the service needs it, set it with x-gatehouse-upstream")
		})
	}
}

func TestAServiceMayCallItsJSONAnything(t *testing.T) {
	t.Parallel()
	d, err := mapped("", `{content_type: text/html}`, "")
	require.NoError(t, err)
	m, _ := d.API.Match("/v1/orders/o-1/lines")
	op := m.Path.Operation(http.MethodGet)
	for contentType, ok := range map[string]bool{"text/html": true, "Text/HTML; charset=UTF-8": true, "application/json": true, "text/html; charset=latin1": false, "text/plain": false} {
		res, err := op.CheckHeader(http.StatusOK, http.Header{"Content-Type": {contentType}}, false)
		if require.Equal(t, ok, err == nil, contentType); ok {
			require.Equal(t, "application/json", res.MediaType(contentType))
		}
	}
}

// A service says where a record is by its own path.
func TestLocationIsThePathUnderWhichCallersFindTheRecord(t *testing.T) {
	t.Parallel()
	d, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(`{openapi: 3.1.0, info: {title: x, version: "1"}, servers: [{url: /v1}], x-gatehouse-tenant: request, paths: {
		/orders: {post: {x-gatehouse-upstream: {path: "/a/{business}/Orders"}, responses: {"201": {description: "", headers: {Location: {schema: {type: string}}}}}}},
		"/orders/{id}": {get: {x-gatehouse-upstream: {path: "/a/{business}/Order/{id}.json"}, parameters: [{name: id, in: path, required: true, schema: {type: string}}],
			responses: {"204": {description: ""}}}},
		"/list/": {get: {x-gatehouse-upstream: {path: "/a/{business}/List/"}, parameters: [{name: page, in: query, schema: {type: integer}}], responses: {"204": {description: ""}}}},
		"/rows": {get: {x-gatehouse-upstream: {query: {n: "{page}", all: "1"}}, parameters: [{name: page, in: query, schema: {type: integer}}, {name: of, in: query, schema: {type: string}}],
			responses: {"204": {description: ""}}}},
		"/page": {get: {x-gatehouse-upstream: {path: "/a/{business}/Page", query: {from: "{page}"}}, parameters: [{name: page, in: query, schema: {type: integer}}], responses: {"204": {description: ""}}}},
		"/lines/{id}": {get: {x-gatehouse-upstream: {query: {line: "{id}", account: "a-{business}"}}, parameters: [{name: id, in: path, required: true, schema: {type: string}}],
			responses: {"204": {description: ""}}}}}}`)}, definition.Options{})
	require.NoError(t, err)
	m, _ := d.API.Match("/v1/orders")
	res := &m.Path.Operation(http.MethodPost).Responses[0]
	for location, want := range map[string]string{
		"/a/17/Order/9.json":                   "/gw/v1/orders/9",
		"http://legacy:8080/a/17/Order/9.json": "/gw/v1/orders/9",
		"/v1/orders/9":                         "/gw/v1/orders/9",
		"/a/18/Order/9.json":                   "", // another business's
		"/a/17/Order/9":                        "",
		"/a/17/Order/9.json?x=1":               "",
		"/a/18/Order/9.json?x=1":               "",
		"/a/17/Orders?x=1":                     "", // of a POST
		"/a/17/List/?page=2":                   "/gw/v1/list/?page=2",
		"/a/17/List/?page=2&acct=18":           "",
		"/a/18/List/?page=2":                   "",
		"/a/17/List/?page=a":                   "",
		"/a/17/List/?page=2;":                  "",
		"/a/17/Page?from=2":                    "", // the service has other names in the query
		"/a/17/Order/..%2f9.json":              "",
		"//legacy:8080/a/17/Order/9.json":      "",
		"http://other/a/17/Order/9.json":       "",
		"Order/9.json":                         "",
		"/v1/lines/9":                          "/gw/v1/lines/9",
		"/v1/lines/9?account=%61-17&line=9":    "/gw/v1/lines/9", // the gateway adds both
		"/v1/lines/9?account=%61-17&n=2":       "/gw/v1/lines/9",
		"/v1/rows?all=1&of=a":                  "/gw/v1/rows?of=a",
		"/v1/rows?n=9":                         "", // what callers know as page
		"/v1/list/?page=2":                     "/gw/v1/list/?page=2",
		"/v1/list/?page=2&%24skiptoken=ID-2":   "", // without it, the link would lead to another page
		"/v1/list/?cursor=%zz":                 "",
		"/v1/list/?":                           "/gw/v1/list/",
		"/v1/lines/9?account=a-18":             "", // another business's
		"/v1/lines/9?Account=a-18":             "",
		"/v1/lines/9?account=a-17&account=18":  "",
		"/v1/lines/9?account=a-18;":            "",
	} {
		_, got := res.Headers(d.API, "/gw", "17", http.Header{"Location": {location}}, "legacy:8080")
		require.Equal(t, want, got, location)
	}
}

// Frameworks leave out a default port, and may write a host in lower case.
func TestLocationMayHaveEachHostOfTheCallInEachSpelling(t *testing.T) {
	t.Parallel()
	d, err := definition.Load(definition.File{Name: "api.yaml", Text: []byte(`{openapi: 3.1.0, info: {title: x, version: "1"}, servers: [{url: /v1}], x-gatehouse-tenant: request, paths: {
		/orders: {post: {responses: {"201": {description: "", headers: {Location: {schema: {type: string}}}}}}}}}`)}, definition.Options{})
	require.NoError(t, err)
	m, _ := d.API.Match("/v1/orders")
	res := &m.Path.Operation(http.MethodPost).Responses[0]
	for host, passes := range map[string]bool{
		"https://shop.internal": true, "https://shop.internal:443": true, "https://SHOP.internal": true, "https://shop.internal:80": false,
		"http://shop.internal:443": true, "http://shop.internal": false, "https://shop.internal:4433": false, "https://shop.internal.": false,
		"http://api.example.com": true, "http://api.example.com:80": true, "https://api.example.com": true, "https://api.example.com:443": true,
		"https://api.example.com:80": false, "https://api.example.com:8443": false, "https://x.api.example.com": false,
		"http://[2001:db8::1]:8080": true, "http://[2001:db8::1]": false,
		"https://evil.example": false, "http://": false, "http://:80": false, "https://:443": false, "ftp://api.example.com": false,
		"https://x@api.example.com": false, "//api.example.com": false,
	} {
		_, got := res.Headers(d.API, "", "17", http.Header{"Location": {host + "/v1/orders"}}, "shop.internal:443", "Api.example.com", "[2001:db8::1]:8080", "")
		require.Equal(t, passes, got == "/v1/orders", host)
		require.Equal(t, passes, got != "", host)
	}
}

// A service could take such a parameter for the business that it is told otherwise.
func TestParametersNameTheOwnBusiness(t *testing.T) {
	t.Parallel()
	const text = `{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: business_id, paths: {"/firms/{Business-Id}/orders": {
		parameters: [{name: Business-Id, in: path, required: true, schema: {type: string}}],
		delete: {operationId: own, responses: {"204": {description: x}}}},
		"/firms/{account}/lines": {parameters: [{name: account, in: path, required: true, schema: {type: integer}}],
		delete: {operationId: mapped, x-gatehouse-tenant: request, x-gatehouse-upstream: {query: {ACCOUNT: "{business}"}}, responses: {"204": {description: x}}}},
		/orders: {parameters: [{name: "business_id[]", in: query, schema: {type: array, items: {type: string}}}, {name: business.id, in: query, explode: false, schema: {type: array, items: {type: string}}},
		{name: of, in: query, schema: {type: string}}, {name: id, in: query, schema: {type: string}}],
		post: {operationId: query, x-gatehouse-upstream: {query: {Business-ID: "{of}", list: "{business_id[]}", one: "{business.id}"}}, TENANT responses: {"204": {description: x}}}}}}`
	for tenant, checked := range map[string]bool{"": true, "x-gatehouse-tenant: request,": true, "x-gatehouse-tenant: none,": false, "x-gatehouse-tenant: none, x-gatehouse-public: true,": false} {
		d, err := load(strings.Replace(text, "TENANT", tenant, 1), definition.Options{})
		require.NoError(t, err)
		for target, name := range map[string]string{
			"DELETE /firms/a,17/orders": "404", "DELETE /firms/17/orders": "", "DELETE /firms/18/orders": "Business-Id", "DELETE /firms/17/lines": "", "DELETE /firms/18/lines": "account",
			"POST /orders?id=18": "", "POST /orders?of=17": "", "POST /orders?o%66=18": "of", "POST /orders?of=": "",
			"POST /orders?business_id[]=17": "", "POST /orders?business_id%5B%5D=17&business_id[]=18": "business_id[]",
			"POST /orders?business.id=17": "", "POST /orders?business.id=17,18": "business.id", "POST /orders?business.id=17%2C18": "business.id",
		} {
			method, target, _ := strings.Cut(target, " ")
			m, ok := d.API.Match(target)
			if require.Equal(t, name != "404", ok); !ok {
				continue
			}
			op := m.Path.Operation(method)
			q, err := op.CleanQuery(m)
			require.NoError(t, err)
			if err = op.CheckBusiness(q, "17"); name == "" || !checked && op.ID == "query" {
				require.NoError(t, err, target)
			} else {
				require.EqualError(t, err, name+" is not your own business", target)
			}
		}
		_, err = d.API.Operations()[1].Fill([]string{"18"}, "", "17")
		require.EqualError(t, err, "account is not your own business")
	}
}

// A service may accept the business in a parameter that has the name of its own member, too.
func TestParametersWithTheServicesNameForTheTenantNameTheOwnBusiness(t *testing.T) {
	t.Parallel()
	const text = `{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: customer, paths: {"/bookings": {get: {operationId: list, TENANT
		parameters: [{name: KundenNr, in: query, schema: {type: string}}],
		x-gatehouse-upstream: {path: "/kunden/{business}/bookings"},
		responses: {"200": {description: x, content: {application/json: {schema: {type: array, maxItems: 9, items: {$ref: "#/components/schemas/Booking"}}}}}}}}},
		components: {schemas: {Booking: {type: object, properties: {customer: {type: string, x-gatehouse-from: KundenNr}}}}}}`
	for _, c := range []struct {
		tenant, from, name string
		names              bool
	}{
		{"", "KundenNr", "KundenNr", true},
		{"x-gatehouse-tenant: request,", "KundenNr", "kunden-nr", true},
		{"", "/client/id", "client_id", true},
		{"", "/client/code", "code", false}, // of anything
		{"", "ID", "id", false},
	} {
		names := strings.NewReplacer("TENANT", c.tenant, "x-gatehouse-from: KundenNr", "x-gatehouse-from: "+c.from, "KundenNr", c.name)
		d, err := load(names.Replace(text), definition.Options{})
		require.NoError(t, err)
		for query, refused := range map[string]bool{c.name + "=17": false, c.name + "=18": c.names, "other=18": false} {
			m, _ := d.API.Match("/bookings?" + query)
			op := m.Path.Operation("GET")
			q, err := op.CleanQuery(m)
			require.NoError(t, err)
			require.Equal(t, refused, op.CheckBusiness(q, "17") != nil, query)
		}
	}
}

// Requests without the parameter would get 400.
func TestAParameterThatNamesTheBusinessHasNoDefault(t *testing.T) {
	t.Parallel()
	for c, refused := range map[[3]string]bool{
		{"business_id", "schema: {type: string, default: me}", ""}:                                                                    true,
		{"business_id", "schema: {type: array, items: {type: string}, default: [me]}", ""}:                                            true,
		{"of", "schema: {type: string, default: me}", "x-gatehouse-upstream: {query: {account: '{business}', Business-Id: '{of}'}},"}: true,
		{"business_id", "schema: {type: string}", ""}:                                                                                 false,
		{"business_id", "schema: {type: string, default: ''}", ""}:                                                                    false,
		{"business_id", "required: true, schema: {type: string, default: me}", ""}:                                                    false, // is never used
		{"of", "schema: {type: string, default: me}", ""}:                                                                             false,
		{"business_id", "schema: {type: string, default: me}", "x-gatehouse-tenant: none,"}:                                           false,
	} {
		_, err := load(`{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: business_id, paths: {/orders: {get: {`+c[2]+`
			parameters: [{name: `+c[0]+`, in: query, `+c[1]+`}], responses: {"204": {description: x}}}}}}`, definition.Options{})
		if !refused {
			require.NoError(t, err, c)
			continue
		}
		require.ErrorContains(t, err, "the parameter "+c[0]+" must be the caller's own business, so it cannot have a default", c)
	}
}

// Services bind more than one spelling to a name, and read filters from inside brackets.
func TestOtherSpellingsOfTheBusinessAreChecked(t *testing.T) {
	t.Parallel()
	for c, checked := range map[[3]string]bool{ // the parameter, the operation's tenant, and the service's name of the business
		{"businessId"}: true, {"businessID"}: true, {"BusinessId[]"}: true, {"businessid"}: true, {"business__id"}: true, {"businessId[eq]"}: true,
		{"filter[business_id]"}: true, {"where[Business-Id]"}: true, {"filter[businessId][]"}: true, {"q[filter][business.id]"}: true,
		{"accountId", "account_id"}: true, {"business_id", "account_id"}: true, {"filter[businessId]", "account_id"}: true,
		{"filter[businessId]", "request"}: true, {"filter[firmNo]", "request", "filter[firm_no]"}: true, {"filter[firm]", "request", "firm[]"}: true,
		{"id"}: false, {"business"}: false, {"business_ids"}: false, {"filter[id]"}: false, {"_"}: false, {"filter[_]"}: false,
		{"business_id[x]"}: true, {"id", "request", "firm[id]"}: false, {"filter[status]", "request", "filter[firm]"}: false, {"accountId"}: false,
		{"businessId", "none"}: false,
	} {
		extensions := ""
		if c[1] != "" {
			extensions += "x-gatehouse-tenant: " + c[1] + ","
		}
		if c[2] != "" {
			extensions += `x-gatehouse-upstream: {query: {"` + c[2] + `": "{business}"}},`
		}
		d, err := load(`{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: business_id, paths: {/orders: {delete: {`+extensions+`
			parameters: [{name: "`+c[0]+`", in: query, schema: {type: string}}], responses: {"204": {description: x}}}}}}`, definition.Options{})
		require.NoError(t, err, c)
		require.Equal(t, checked, d.API.Operations()[0].Params[0].Business, c)
	}
}

// A link must not lead a caller to another business, or to an operation that is left out.
func TestLinksToOtherBusinessesAreLeftOut(t *testing.T) {
	t.Parallel()
	const firm = `parameters: [{name: firm, in: path, required: true, schema: {type: string}}], `
	d, err := load(`{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: firm, paths: {
		"/firms/{firm}/orders": {`+firm+`get: {parameters: [{name: n, in: query, required: true, schema: {type: integer}}], responses: {"204": {description: x}}}},
		"/firms/{firm}/close": {`+firm+`post: {x-gatehouse-tenant: none, responses: {"204": {description: x}}}, delete: {responses: {"204": {description: x}}}},
		"/firms/{firm}/logo": {`+firm+`get: {x-gatehouse-tenant: none, responses: {"204": {description: x}}}, delete: {responses: {"204": {description: x}}}},
		"/files/{firm}": {`+firm+`get: {x-gatehouse-upstream: {path: "/Data/{firm}.bin"}, responses: {"204": {description: x}}}},
		/files/secret: {get: {operationId: secret, x-gatehouse-tenant: none, responses: {"204": {description: x}}}},
		/orders: {get: {parameters: [{name: firm, in: query, schema: {type: string}}], responses: {"204": {description: x}}}},
		"/lines/{id}": {parameters: [{name: id, in: path, required: true, schema: {type: integer}}], get: {responses: {"204": {description: x}}},
			post: {responses: {"201": {description: "", headers: {Location: {schema: {type: string}}}}}}}}}`, definition.Options{Except: []string{"secret"}})
	require.NoError(t, err)
	m, _ := d.API.Match("/lines/1")
	res := &m.Path.Operation(http.MethodPost).Responses[0]
	for location, want := range map[string]struct{ own, public string }{
		"/firms/17/orders":     {"/firms/17/orders", "/firms/17/orders"}, // as it is: parameters of the query are the caller's
		"/firms/17/orders?n=1": {"/firms/17/orders?n=1", "/firms/17/orders?n=1"},
		"/firms/18/orders":     {"", "/firms/18/orders"},
		"/firms/18/orders?n=1": {"", "/firms/18/orders?n=1"},
		"/firms/18/orders?x=1": {"", ""},
		"/firms/17/close":      {"/firms/17/close", "/firms/17/close"},
		"/firms/18/close":      {"", "/firms/18/close"},
		"/firms/18/close?a=b":  {"", "/firms/18/close"},
		"/firms/18/logo":       {"/firms/18/logo", "/firms/18/logo"}, // anyone's
		"/Data/17.bin":         {"/files/17", "/files/17"},
		"/Data/18.bin":         {"", "/files/18"},
		"/Data/secret.bin":     {"", ""},
		"/orders?firm=17":      {"/orders?firm=17", "/orders?firm=17"},
		"/orders?firm=18":      {"", "/orders?firm=18"},
		"/orders":              {"/orders", "/orders"},
		"/lines/a":             {"/lines/a", "/lines/a"},
	} {
		for business, want := range map[string]string{"17": want.own, "-": want.public} {
			_, got := res.Headers(d.API, "", business, http.Header{"Location": {location}})
			require.Equal(t, want, got, "%s for %s", location, business)
		}
	}
}
