package definition_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// routed returns an API with 300 operations, most of them with parameters in their paths.
func routed(t testing.TB) *upstream.API {
	t.Helper()
	var text strings.Builder
	text.WriteString("openapi: 3.1.0\ninfo: {title: x, version: '1'}\nservers: [{url: /v1}]\nx-gatehouse-tenant: request\npaths:\n")
	for i := range 100 {
		for _, path := range []string{"", "/{id}", "/{id}/items/{item}"} {
			_, _ = fmt.Fprintf(&text, "  /resource%d%s:\n    get:\n      parameters: [", i, path)
			for _, name := range []string{"id", "item"} {
				if strings.Contains(path, "{"+name+"}") {
					_, _ = fmt.Fprintf(&text, "{name: %s, in: path, required: true, schema: {type: string}}, ", name)
				}
			}
			text.WriteString("]\n      responses: {'204': {description: x}}\n")
		}
	}
	d, err := definition.Load(definition.File{Name: "routed.yaml", Text: []byte(text.String())}, definition.Options{})
	require.NoError(t, err)
	require.Len(t, d.API.Operations(), 300)
	return d.API
}

func TestPathsWithParametersAreMatchedWithoutAllocation(t *testing.T) {
	api := routed(t)
	for target, want := range map[string]string{
		"/v1/resource7":               "/v1/resource7",
		"/v1/resource7/a-1?x=1":       "/v1/resource7/{id}",
		"/v1/resource99/a/items/b.c~": "/v1/resource99/{id}/items/{item}",
		"/v1/resource7/a/items":       "",
		"/v1/resource7/a/items/b/":    "",
		"/v1/resource7/a%41":          "",
		"/v1/resource7/..":            "",
		"/v1/resource7//items/b":      "",
		"/v1/resource100/a":           "",
	} {
		m, ok := api.Match(target)
		require.Equal(t, want != "", ok, target)
		if ok {
			require.Equal(t, want, m.Path.Operation(http.MethodHead).Path)
		}
		require.Zero(t, testing.AllocsPerRun(100, func() { api.Match(target) }), target)
	}
}

// What is left out is not served by the path of another operation that has a parameter there.
func TestPathsThatAreLeftOutMatchNothing(t *testing.T) {
	t.Parallel()
	operation := func(id, parameters string) string {
		return `{operationId: ` + id + `, ` + parameters + ` responses: {"204": {description: x}}}`
	}
	const id = `parameters: [{name: id, in: path, required: true, schema: {type: string}}],`
	text := `{openapi: 3.1.0, info: {title: x, version: "1"}, servers: [{url: /v1}], x-gatehouse-tenant: request, paths: {
		"/orders/{id}": {get: ` + operation("get", id) + `, delete: ` + operation("delete", id) + `}, "/orders/all": {delete: ` + operation("deleteAll", "") + `},
		"/orders/{order}.csv": {get: {operationId: csv}}, "/orders/1": {get: ` + operation("first", "") + `}, "/orders/{id}/{part}": {get: {operationId: part}}, "/{x}/{y}/{z}": {get: {operationId: any}},
		"/orders/{id}/lines": {get: ` + operation("lines", id) + `}}}`
	for _, o := range []definition.Options{{Except: []string{"deleteAll", "csv", "first", "part", "any"}}, {Only: []string{"get", "delete", "lines"}}} {
		d, err := load(text, o)
		require.NoError(t, err)
		require.Len(t, d.API.Paths(), 2)
		require.Equal(t, "/v1/orders/2", d.API.Operations()[0].Sample())
		for target, want := range map[string]bool{"/v1/orders/all": false, "/v1/orders/1": false, "/v1/orders/2": true, "/v1/orders/all/lines": true, "/v1/orders/2/parts": false, "/v1/a/b/c": false} {
			_, ok := d.API.Match(target)
			require.Equal(t, want, ok, target)
		}
		for id, want := range map[string]string{"all": "leads to another operation", "1": "leads to another operation", "a:1": "", "2": ""} {
			_, err := d.API.Operations()[0].Fill([]string{id}, "", "17")
			if want == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, "id "+want)
			}
		}
	}
	d, err := load(text, definition.Options{Except: []string{"csv", "part", "any"}})
	require.NoError(t, err)
	m, ok := d.API.Match("/v1/orders/all")
	require.True(t, ok)
	require.Nil(t, m.Path.Operation(http.MethodGet))
	require.Equal(t, "deleteAll", m.Path.Operation(http.MethodDelete).ID)
	_, err = d.API.Operations()[0].Fill([]string{"all"}, "", "17")
	require.EqualError(t, err, "id leads to another operation")
}

// Many services ignore the case of a path, or an extension such as .json at its end.
func TestNoSpellingLeadsToWhatIsLeftOut(t *testing.T) {
	operation := func(id, more string) string {
		return `{operationId: ` + id + `, ` + more + ` responses: {"204": {description: x}}}`
	}
	const id, name = `parameters: [{name: id, in: path, required: true, schema: {type: string}}],`, `parameters: [{name: name, in: path, required: true, schema: {type: string}}],`
	text := `{openapi: 3.1.0, info: {title: x, version: "1"}, servers: [{url: /v1}], x-gatehouse-tenant: request, paths: {
		"/sessions/{id}": {delete: ` + operation("served", id) + `}, "/sessions/all": {delete: {operationId: all}}, "/sessions/{id}.csv": {get: {operationId: csv}},
		"/sessions/{id}:end": {post: {operationId: end}}, "/sessions/New*?draft": {get: {operationId: new}}, "/sessions/me": {get: ` + operation("me", "") + `, delete: {operationId: deleteMe}},
		"/sessions/{id}/{name}": {get: {operationId: part}}, "/sessions/{id}/lines": {get: ` + operation("lines", id) + `}, "/sessions/old/{name}": {get: {operationId: old}},
		"/purge": {delete: {operationId: purge, x-gatehouse-upstream: {path: /v1/sessions/expired}}},
		"/files/{name}/": {get: ` + operation("file", name+`x-gatehouse-upstream: {path: "/api/{business}/files/f-{name}.json"},`) + `},
		"/files": {delete: {operationId: deleteFiles, x-gatehouse-upstream: {path: "/api/{business}/files/f-ALL"}}}}}`
	const served = "served me lines file"
	d, err := load(text, definition.Options{Only: strings.Fields(served)})
	require.NoError(t, err)
	for target, want := range map[string]bool{
		"all": false, "ALL": false, "aLL.json": false, "all.": false, "all.x.y": false, "alls": true, "al": true, "x.all": true, "all-1": true,
		"5.csv": false, "5.CSV": false, "5.csv.gz": false, "5.json": true, "5.csvs": true, "csv": true,
		"Expired": false, "expired.json": false, "me": true, "ME": false, "me.json": false, "new": true,
		"OLD/lines": false, "old/lines": false, "olds/lines": true, "old.json/lines": true, "all/lines": true,
	} {
		_, ok := d.API.Match("/v1/sessions/" + target)
		require.Equal(t, want, ok, target)
	}
	for target, want := range map[string]bool{"all": false, "All": false, "a": true, "all.x": false, "alls": true} {
		_, ok := d.API.Match("/v1/files/" + target + "/")
		require.Equal(t, want, ok, target)
	}
	op := d.API.Operations()[0]
	for id, want := range map[string]bool{"all": false, "All": false, "ALL.json": false, "5.csv": false, "5:END": false, "me": false, "expired": false, "a:1": true} {
		_, err := op.Fill([]string{id}, "", "17")
		require.Equal(t, want, err == nil, id)
	}
	for _, op := range d.API.Operations() {
		_, ok := d.API.Match(op.Sample())
		require.True(t, ok, op.Sample())
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { d.API.Match("/v1/sessions/5") }))
}

// The same holds for operations that are served, if callers need other rights for them.
func TestNoSpellingLeadsToOtherRights(t *testing.T) {
	operation := func(id, more string) string {
		return `{operationId: ` + id + `, ` + more + ` responses: {"204": {description: x}}}`
	}
	const id = `parameters: [{name: id, in: path, required: true, schema: {type: string}}], `
	at := func(path string) string { return `x-gatehouse-upstream: {path: "` + path + `"}, ` }
	text := `{openapi: 3.1.0, info: {title: x, version: "1"}, servers: [{url: /v1}], x-gatehouse-tenant: request, tags: [{name: sessions, description: sessions}], paths: {
		"/orders/{id}": {post: ` + operation("view", id+`x-gatehouse-read: true, `) + `, get: ` + operation("order", id) + `}, "/orders/import": {post: ` + operation("import", "") + `},
		"/orders/recent": {get: ` + operation("recent", "") + `}, "/orders/{id}/lines": {get: ` + operation("lines", id) + `}, "/orders/mine/{id}": {get: ` + operation("mine", id) + `},
		"/catalog/{id}": {get: ` + operation("page", id+`x-gatehouse-public: true, x-gatehouse-tenant: none, `) + `}, "/catalog/prices": {get: ` + operation("prices", `x-gatehouse-tenant: none, `) + `, post: ` + operation("price", "") + `},
		"/catalog/{id}/notes": {get: ` + operation("notes", id) + `}, "/catalog/prices/{id}": {get: ` + operation("old", id+`x-gatehouse-public: true, x-gatehouse-tenant: none, `) + `},
		"/lookups/{id}": {get: ` + operation("lookup", id+at("/api/{business}/{id}")) + `, delete: ` + operation("deleteLookup", id+at("/lookups/{business}/by/{id}")) + `},
		"/invoices": {get: ` + operation("invoices", at("/api/{business}/invoices")) + `, delete: ` + operation("deleteInvoices", at("/api/{business}/all")) + `},
		"/files/{id}": {get: ` + operation("file", id+at("/v1/f-{id}.json")) + `}, "/f-index": {get: ` + operation("index", "") + `},
		"/sessions/{id}": {delete: ` + operation("end", id+`tags: [sessions], x-gatehouse-tool: {}, `) + `}, "/sessions/bulk": {delete: ` + operation("endAll", `tags: [sessions], `) + `},
		"/sessions/{id}/end": {delete: ` + operation("endOne", id+`tags: [sessions], `) + `}}}`
	d, err := load(text, definition.Options{})
	require.NoError(t, err)
	for target, want := range map[string]string{
		"orders/import": "import", "orders/IMPORT": "", "orders/import.json": "", "orders/imports": "/orders/{id}", "orders/0190F3A2": "/orders/{id}",
		"orders/recent": "recent", "orders/Recent": "/orders/{id}", "orders/recent.json": "/orders/{id}", "orders/Mine/lines": "/orders/{id}/lines", "orders/mine/lines": "mine",
		"catalog/prices": "prices", "catalog/PRICES": "", "catalog/prices.html": "", "catalog/7": "/catalog/{id}", "catalog/Prices/notes": "", "catalog/prices/notes": "", "catalog/7/notes": "notes",
		"lookups/invoices": "", "lookups/Invoices.json": "", "lookups/all": "lookup", "lookups/colors": "lookup",
		"files/index": "", "files/INDEX": "", "files/indexes": "file", "f-index": "index", "sessions/Bulk": "/sessions/{id}",
	} {
		m, ok := d.API.Match("/v1/" + target)
		require.Equal(t, want != "", ok, target)
		if ok {
			require.Contains(t, []string{m.Path.Template, m.Path.Operations[0].ID}, want, target)
		}
	}
	for _, op := range d.API.Operations() {
		_, ok := d.API.Match(op.Sample())
		require.True(t, ok, op.Sample())
	}
	for _, target := range []string{"/v1/orders/0190f3a2", "/v1/orders/0190F3A2/lines", "/v1/sessions/0190F3A2", "/v1/orders/recent"} {
		require.Zero(t, testing.AllocsPerRun(100, func() { d.API.Match(target) }), target)
	}

	d, err = load(text, definition.Options{Tools: true})
	require.NoError(t, err)
	for id, want := range map[string]bool{"bulk": false, "Bulk": false, "bulk.json": false, "bulky": true, "a:1": true} {
		_, err := d.Tools[0].Operation.Fill([]string{id}, "", "17")
		require.Equal(t, want, err == nil, id)
	}
}

// However many paths overlap, a document loads in a time that is in proportion to them.
func TestManyOverlappingPathsLoad(t *testing.T) {
	t.Parallel()
	const head, param, end = `openapi: 3.1.0
info: {title: x, version: "1"}
servers: [{url: /v1}]
x-gatehouse-tenant: request
paths:
`, `parameters: [{name: a, in: path, schema: {type: string}}], `, `responses: {"204": {}}}}` + "\n"
	text := head + strings.Join(numbered("  /r/x%d/{a}: {post: {x-gatehouse-read: true, "+param+end, 1_000), "") + strings.Join(numbered("  /r/{a}/y%d: {post: {"+param+end, 1_000), "")
	d, err := load(text, definition.Options{})
	require.NoError(t, err)
	for target, want := range map[string]bool{"x7/y7": false, "X7/y7": false, "x7/Y7": false, "x7/y1000": true, "x1000/y7": true, "x7": false} {
		_, ok := d.API.Match("/v1/r/" + target)
		require.Equal(t, want, ok, target)
	}
}

func BenchmarkMatch300Operations(b *testing.B) {
	api := routed(b)
	for _, target := range []string{"/v1/resource7", "/v1/resource99/0190f3a2-7c4b-7d11-9e55-000000000001/items/17", "/v1/nothing/at/all"} {
		b.Run(target, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				api.Match(target)
			}
		})
	}
}
