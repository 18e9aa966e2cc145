package e2e_test

import (
	"compress/gzip"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// shopAPI is another platform's API, described by its own document, beside the public contract.
type shopAPI struct {
	*attack
	site          string
	all, orders   gatewaytest.Caller // keys of the business "17" for the shop, and for its orders
	none, foreign gatewaytest.Caller // a key without resources, and one of another business
	writer        gatewaytest.Caller // may write
}

const (
	shopDefinition = "testdata/shop/openapi.yaml {\n\t\t\toverlay testdata/shop/overlay.yaml\n\t\t\texcept deleteOrder\n\t\t}"

	goodOrder = `{"id":"o-1","account":"17","total":"9.50"}`
)

func serveShop(t *testing.T, app string) *shopAPI {
	t.Helper()
	s := &shopAPI{attack: &attack{data: &recorder{}}}
	s.environment = newEnvironment(t, s.data)
	s.all = s.issue(t, authsigner.IssueOptions{BusinessID: "17", Resources: []string{"shop"}})
	s.orders = s.issue(t, authsigner.IssueOptions{BusinessID: "17", Resources: []string{"shop/orders", "events"}})
	s.foreign = s.issue(t, authsigner.IssueOptions{BusinessID: "18", Resources: []string{"shop"}})
	s.writer = s.issue(t, authsigner.IssueOptions{BusinessID: "17", Resources: []string{"shop"}, Write: true})
	s.none = s.issue(t, authsigner.IssueOptions{BusinessID: "17"})
	o := s.options(app, "")
	s.site = o.Site
	o.Site = fmt.Sprintf("gatehouse_api /v1/* {\n\t\tdefinition shop %s\n\t\tupstream orders %s\n\t\tupstream %s\n\t}\n\t%s", shopDefinition, s.dataURL, s.dataURL, o.Site)
	s.serve(t, o)
	return s
}

// get sends a signed request over every HTTP version, and returns the last response. All must be the same.
func (s *shopAPI) get(t *testing.T, by gatewaytest.Caller, target string, more ...field) gatewaytest.Response {
	t.Helper()
	var last gatewaytest.Response
	for _, protocol := range []string{overHTTP1, overHTTP2, overHTTP3} {
		fields := more
		if by.PublicKey != "" {
			fields = append(signedFields(by, "GET", target, ""), more...)
		}
		a := s.over[protocol]("GET", target, fields)
		if last.Status != 0 && a.Status < 400 {
			require.Equal(t, last.Body, a.Body, protocol)
		}
		if last.Status != 0 {
			require.Equal(t, last.Status, a.Status, "%s: %s", protocol, a.Body)
		}
		last = a
	}
	return last
}

// Sites of one gateway can serve different documents, whose operations may have the same names.
func TestSitesServeTheirOwnDefinitions(t *testing.T) {
	t.Parallel()
	data := &recorder{}
	data.setResponse(respondWith(http.StatusOK, "application/json", `{"one":1,"two":2,"three":3}`))
	w := newEnvironment(t, data)
	callers := map[string]gatewaytest.Caller{}
	site := func(name string) string {
		callers[name] = w.issue(t, authsigner.IssueOptions{BusinessID: "17", Resources: []string{name}})
		document := filepath.Join(t.TempDir(), name+".yaml")
		require.NoError(t, os.WriteFile(document, []byte(`{openapi: 3.1.0, info: {title: Items, version: "1"}, servers: [{url: /v1}], x-gatehouse-tenant: request,
			paths: {/items: {get: {operationId: getItems, responses: {"200": {description: "", content: {application/json: {schema: {type: object, properties: {`+name+`: {type: integer}}}}}}}}}}}`), 0o600))
		return "gatehouse_api {\n\t\tdefinition " + name + " " + document + "\n\t\tupstream " + w.dataURL + "\n\t}"
	}
	second := gatewaytest.FreeAddr(t)
	third := strings.Replace(second, "127.0.0.1", "localhost", 1) // on the same server
	o := w.options(highLimits, "")
	o.Site, o.Extra = site("one"), "http://"+second+" {\n\t"+site("two")+"\n}\nhttp://"+third+" {\n\t"+site("three")+"\n}\n"
	g := gatewaytest.Start(t, o)
	for name, test := range map[string]struct{ url, body string }{
		"one": {g.URL, `{"one":1}`}, "two": {"http://" + second, `{"two":2}`}, "three": {"http://" + third, `{"three":3}`},
	} {
		for of, caller := range callers {
			a := caller.Get(t, test.url, "/v1/items")
			if of != name {
				requireProblem(t, a, http.StatusForbidden, "FORBIDDEN")
				continue
			}
			require.Equal(t, http.StatusOK, a.Status, a.Body)
			require.Equal(t, test.body, a.Body)
		}
		require.Eventually(t, func() bool {
			return g.Metric(t, "gatehouse_requests_total", `operation="`+name+`/getItems"`, `status="200"`) == 1
		}, patience, 10*time.Millisecond)
	}
}

// Also for what the gateway answers itself, a key needs an entry of an API with a name.
func TestKeyOfAnotherAPILearnsNothingFromTheGatewayItself(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	const object = "get:\n      responses: {'200': {description: x, content: {application/json: {schema: {type: object, properties: "
	document := filepath.Join(t.TempDir(), "shop.yaml")
	require.NoError(t, os.WriteFile(document, []byte("openapi: 3.1.0\ninfo: {title: Shop, version: '1'}\nservers: [{url: /v1}]\nx-gatehouse-tenant: request\npaths:\n"+
		"  /orders:\n    "+object+"{n: {type: string}}}}}}}\n"+
		"  /me:\n    "+object+"{business: {type: object, properties: {id: {type: string}, name: {type: string}, slug: {type: string}}}}}}}}}\n      x-gatehouse-answer: identity\n"+
		"  /terms:\n    "+object+"{fee: {type: string}}}}}}}\n      x-gatehouse-answer: {fee: '3 %'}\n"+
		"  /open:\n    "+object+"{fee: {type: string}}}}}}}\n      x-gatehouse-answer: {fee: '4 %'}\n      x-gatehouse-public: true\n"), 0o600))
	o := w.options(highLimits, "")
	o.Site = "gatehouse_api /v1/* {\n\t\tdefinition shop " + document + "\n\t\tupstream " + w.dataURL + "\n\t}\n\t" + o.Site
	issue := func(resources ...string) gatewaytest.Caller {
		return w.issue(t, authsigner.IssueOptions{BusinessID: "17", Resources: resources})
	}
	tests := map[string]struct {
		key    gatewaytest.Caller
		status int
	}{
		"a key of the API":            {issue("shop"), 200},
		"of a resource":               {issue("events", "shop/orders"), 200},
		"without resources":           {issue(), 403},
		"of resources without a name": {issue("events", "terms", "me"), 403},
		"of another API":              {issue("shopping", "sho", "another/shop", "orders"), 403},
	}
	g := gatewaytest.Start(t, o)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := test.key
			for _, path := range []string{"/v1/me", "/v1/terms"} {
				a := key.Get(t, g.URL, path)
				require.Equal(t, test.status, a.Status, a.Body)
				if test.status == 403 {
					requireProblem(t, a, http.StatusForbidden, "FORBIDDEN")
				}
			}
			require.Equal(t, 200, key.Get(t, g.URL, "/v1/open").Status)
			require.Equal(t, 200, key.Get(t, g.URL, "/api/v1/me").Status, "of the API without a name")
		})
	}
}

//nolint:tparallel // the subtests share a data service
func TestAnotherAPIIsServedFromItsOwnDocument(t *testing.T) {
	t.Parallel()
	s := serveShop(t, highLimits)
	json := func(body string) http.HandlerFunc { return respondWith(200, "application/json", body) }
	for name, c := range map[string]struct {
		target  string
		service http.HandlerFunc
		status  int
		body    string // of the response, or a part of an error
		asked   string // what the service was asked for
	}{
		"a list without what is undocumented": {"/v1/orders?x=1&limit=5", json(`{"data":[{"id":"o-1","account":17,"total":"9.50","secret":1,"payment":{"last4":"1234","iban":"x","kind":"card"}}],"next":null,"debug":true}`), 200, `{"data":[{"id":"o-1","total":"9.50","payment":{"kind":"card","last4":"1234"}}],"next":null}`, "/v1/orders?limit=5"},
		"defaults and arrays":                 {"/v1/orders?status[]=open&status%5B%5D=paid&fields=a,b", json(`{"data":[]}`), 200, `{"data":[]}`, "/v1/orders?limit=10&status%5B%5D=open&status%5B%5D=paid&fields=a,b"},
		"a value that is not possible":        {"/v1/orders?status[]=gone", nil, 400, "INVALID_PARAMETER", ""},
		"a parameter twice":                   {"/v1/orders?limit=5&limit=6", nil, 400, "INVALID_PARAMETER", ""},
		"a number out of bounds":              {"/v1/orders?limit=51", nil, 400, "INVALID_PARAMETER", ""},
		"no date":                             {"/v1/orders?since=2026-02-30", nil, 400, "INVALID_PARAMETER", ""},
		"too many fields":                     {"/v1/orders?fields=a,b,c,d", nil, 400, "INVALID_PARAMETER", ""},
		"another business's order":            {"/v1/orders", json(`{"data":[` + goodOrder + `,{"id":"o-2","account":"18","total":"1"}]}`), 502, "UPSTREAM_FAILED", ""},
		"another business's order within one": {"/v1/orders", json(`{"data":[{"id":"o-1","account":"17","total":"1","parent":{"id":"o-2","account":"18","total":"1"}}]}`), 502, "UPSTREAM_FAILED", ""},
		"an order without its business":       {"/v1/orders", json(`{"data":[{"id":"o-2","total":"1"}]}`), 502, "UPSTREAM_FAILED", ""},
		"more orders than asked for":          {"/v1/orders?limit=1", json(`{"data":[` + goodOrder + "," + goodOrder + `]}`), 502, "UPSTREAM_FAILED", ""},
		"an invalid total":                    {"/v1/orders", json(`{"data":[{"id":"o-1","account":"17","total":9.5}]}`), 502, "UPSTREAM_FAILED", ""},
		"null for everything":                 {"/v1/orders", json(`null`), 502, "UPSTREAM_FAILED", ""},
		"a choice that lies":                  {"/v1/orders", json(`{"data":[{"id":"o-1","account":"17","total":"1","payment":{"kind":"transfer","last4":"1234"}}]}`), 502, "UPSTREAM_FAILED", ""},
		"an unknown kind of choice":           {"/v1/orders", json(`{"data":[{"id":"o-1","account":"17","total":"1","payment":{"kind":"cash"}}]}`), 502, "UPSTREAM_FAILED", ""},
		"one record":                          {"/v1/orders/o-1", json(goodOrder), 200, `{"id":"o-1","total":"9.50"}`, "/v1/orders/o-1"},
		"another record than asked for":       {"/v1/orders/o-2", json(goodOrder), 502, "UPSTREAM_FAILED", ""},
		"a literal wins":                      {"/v1/orders/recent", json(`{"id":"o-9","account":"17","total":"1","note":"a"}`), 200, `{"id":"o-9","total":"1","note":"a"}`, "/v1/orders/recent"},
		"a parameter of another form":         {"/v1/orders/x-1", nil, 400, "INVALID_PARAMETER", ""},
		"an encoded parameter":                {"/v1/orders/o%2D1", nil, 404, "NOT_FOUND", ""},
		"a dot for a parameter":               {"/v1/orders/.", nil, 404, "NOT_FOUND", ""},
		"an empty parameter":                  {"/v1/orders/", nil, 404, "NOT_FOUND", ""},
		"an overlong parameter":               {"/v1/orders/o-" + strings.Repeat("1", 127), nil, 404, "NOT_FOUND", ""},
		"a slash in a parameter":              {"/v1/orders/o-1%2Finvoice", nil, 404, "NOT_FOUND", ""},
		"no such record":                      {"/v1/orders/o-1", respondWith(404, "text/html", "<b>secret</b>"), 404, "NOT_FOUND", ""},
		"404 documented without a body":       {"/v1/orders/recent", respondWith(404, "text/html", "<b>secret</b>"), 404, "NOT_FOUND", ""},
		"a status that is not documented":     {"/v1/orders/o-1", respondWith(418, "text/html", "secret"), 418, "BAD_REQUEST", ""},
		"401 of the service":                  {"/v1/orders/o-1", respondWith(401, "application/json", "{}"), 502, "UPSTREAM_FAILED", ""},
		"407 of the service":                  {"/v1/orders/o-1", respondWith(407, "application/json", "{}"), 502, "UPSTREAM_FAILED", ""},
		"a redirect":                          {"/v1/orders/o-1", respondWith(302, "application/json", "{}"), 502, "UPSTREAM_FAILED", ""},
		"a documented conflict":               {"/v1/orders/o-1", respondWith(409, "application/problem+json", `{"title":"Busy","order":`+goodOrder+`,"trace":"x"}`), 409, `{"title":"Busy","order":{"id":"o-1","total":"9.50"}}`, ""},
		"another business's in a conflict":    {"/v1/orders/o-1", respondWith(409, "application/problem+json", `{"title":"Busy","order":{"id":"o-1","account":"18","total":"1"}}`), 502, "UPSTREAM_FAILED", ""},
		"404 without a parameter in the path": {"/v1/orders", respondWith(404, "application/json", "{}"), 502, "UPSTREAM_FAILED", ""},
		"another media type":                  {"/v1/orders/o-1", respondWith(200, "text/html", goodOrder), 502, "UPSTREAM_FAILED", ""},
		"a PDF":                               {"/v1/orders/7/invoice", respondWith(200, "application/pdf", "%PDF"), 200, "%PDF", "/v1/orders/7/invoice"},
		"no PDF":                              {"/v1/orders/7/invoice", respondWith(200, "text/html", "<script>"), 502, "UPSTREAM_FAILED", ""},
		"a compressed list": {"/v1/orders", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = z.Write([]byte(`{"data":[` + goodOrder + `]}`))
			_ = z.Close()
		}, 200, `{"data":[{"id":"o-1","total":"9.50"}]}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s.data.setResponse(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Disposition", `attachment; filename="a.pdf"`)
				if c.service != nil {
					c.service(w, r)
				}
			})
			n := s.data.count()
			a := s.get(t, s.all, c.target)
			require.Equal(t, c.status, a.Status, a.Body)
			require.NotContains(t, a.Body, "secret")
			if c.service == nil {
				require.Equal(t, n, s.data.count(), "it must not reach the service")
			} else if c.asked != "" {
				require.Equal(t, c.asked, s.data.last(t).RequestURI)
				require.Equal(t, []string{"17"}, s.data.last(t).Header["X-Business-Id"])
			}
			if strings.ToUpper(c.body) == c.body && c.body != "%PDF" {
				requireProblem(t, a, c.status, c.body)
				return
			}
			require.Equal(t, c.body, a.Body)
			require.Equal(t, "no-store", a.Header.Get("Cache-Control"))
			media, disposition := "application/json", ""
			switch c.status {
			case 409:
				media = "application/problem+json"
			case 200:
				if c.body == "%PDF" {
					media, disposition = "application/pdf", `attachment; filename="a.pdf"`
					require.Contains(t, a.Header.Get("Content-Security-Policy"), "script-src 'none'; form-action 'none'")
				}
			}
			require.Equal(t, media, a.Header.Get("Content-Type"))
			require.Equal(t, disposition, a.Header.Get("Content-Disposition"))
		})
	}

	s.data.setResponse(json(`{"data":[]}`))
	t.Run("who may call", func(t *testing.T) {
		require.Equal(t, 200, s.get(t, s.orders, "/v1/orders").Status)
		requireProblem(t, s.get(t, s.none, "/v1/orders"), 403, "FORBIDDEN")
		requireProblem(t, s.get(t, gatewaytest.Caller{}, "/v1/orders"), 401, "MISSING_CREDENTIALS")
		requireProblem(t, s.get(t, s.all, eventsPath), 403, "FORBIDDEN")
		a := s.over[overHTTP1]("DELETE", "/v1/orders/o-1", signedFields(s.all, "DELETE", "/v1/orders/o-1", ""))
		requireProblem(t, a, 405, "METHOD_NOT_ALLOWED")
		require.Equal(t, "GET, HEAD, PATCH", a.Header.Get("Allow"))
	})
	t.Run("unknown parameters are named", func(t *testing.T) {
		a := s.get(t, s.all, "/v1/orders?a=1&b%3Cscript%3E=2&a=3&z%5A=4")
		require.Equal(t, "a, zZ", a.Header.Get("X-Ignored-Parameters"))
		require.Equal(t, "/v1/orders?limit=10", s.data.last(t).RequestURI)
	})
	t.Run("anyone may call what is public", func(t *testing.T) {
		s.data.setResponse(json(`[{"title":"Open","by":"x"}]`))
		a := s.get(t, gatewaytest.Caller{}, "/v1/news?a=1")
		require.Equal(t, `[{"title":"Open"}]`, a.Body)
		require.Empty(t, a.Header.Values("X-Ignored-Parameters"))
		require.Equal(t, []string{"-"}, s.data.last(t).Header["X-Business-Id"])
	})
	t.Run("entity tags", func(t *testing.T) {
		s.data.setResponse(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Etag", `"v1"`)
			if r.Header.Get("If-None-Match") == `"v1"` {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			json(`{"data":[]}`)(w, r)
		})
		a := s.get(t, s.all, "/v1/orders")
		require.Equal(t, `"v1"`, a.Header.Get("Etag"))
		require.Equal(t, "private, no-cache", a.Header.Get("Cache-Control"))
		varies := []string{"X-Public-Key, Accept-Language"}
		require.Equal(t, varies, a.Header["Vary"], "one cache may serve several businesses")
		a = s.get(t, s.all, "/v1/orders", field{"If-None-Match", `"v1"`})
		require.Equal(t, 304, a.Status)
		require.Empty(t, a.Body)
		require.Equal(t, varies, a.Header["Vary"])
	})
	t.Run("304 without an entity tag", func(t *testing.T) { // the caller's cache would drop what it has
		s.data.setResponse(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("If-None-Match") != "" {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			json(`{"data":[]}`)(w, r)
		})
		a := s.get(t, s.all, "/v1/orders", field{"If-None-Match", `"v1"`})
		require.Equal(t, 304, a.Status)
		require.Equal(t, `"v1"`, a.Header.Get("Etag"))
		require.Equal(t, "private, no-cache", a.Header.Get("Cache-Control"))
		a = s.get(t, s.all, "/v1/orders", field{"If-None-Match", `"v1", "v2"`})
		require.Equal(t, 304, a.Status)
		require.Empty(t, a.Header.Get("Etag"), "it is not known which")
		require.Equal(t, "private, no-cache", a.Header.Get("Cache-Control"))
		require.Equal(t, []string{"X-Public-Key, Accept-Language"}, a.Header["Vary"])
	})
	t.Run("more entity tags than can be forwarded are none", func(t *testing.T) { // RFC 9110, section 5.3
		for name, tags := range map[string][]field{
			"on two lines": {{"If-None-Match", `"v1"`}, {"If-None-Match", `"v2"`}},
			"too many":     {{"If-None-Match", `"v1"` + strings.Repeat(`, "v2"`, 50)}},
		} {
			a := s.get(t, s.all, "/v1/orders", tags...)
			require.Equal(t, 200, a.Status, name)
			require.Empty(t, s.data.last(t).Header["If-None-Match"], name)
		}
	})
	t.Run("304 says nothing of a record that is missing without If-None-Match", func(t *testing.T) {
		s.data.setResponse(func(w http.ResponseWriter, r *http.Request) {
			if w.Header().Set("Etag", `"v1"`); r.Header.Get("If-None-Match") != "" {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			respondWith(409, "application/problem+json", `{"title":"Busy"}`)(w, r)
		})
		a := s.get(t, s.all, "/v1/orders/o-1", field{"If-None-Match", "*"})
		require.NotEqual(t, 304, a.Status, "409 is documented")
		require.Empty(t, a.Header.Get("Etag"))
	})
	t.Run("304 says nothing of a record that the caller may not see", func(t *testing.T) {
		for _, tag := range []string{`"v1"`, "*"} {
			for whole, want := range map[string]int{`{"data":[]}`: 304, `{"data":[` + strings.Replace(goodOrder, "17", "18", 1) + `]}`: 502} {
				s.data.setResponse(func(w http.ResponseWriter, r *http.Request) {
					if w.Header().Set("Etag", `"v1"`); r.Header.Get("If-None-Match") != "" {
						w.WriteHeader(http.StatusNotModified)
						return
					}
					json(whole)(w, r)
				})
				a := s.get(t, s.all, "/v1/orders", field{"If-None-Match", tag})
				require.Equal(t, want, a.Status, "%s %s", tag, whole)
				require.Equal(t, want == 304, a.Header.Get("Etag") != "")
			}
		}
	})
	t.Run("headers that could mislead do not leave", func(t *testing.T) {
		for _, location := range []string{"https://shop.internal/v1/orders", "//evil/v1/orders", "/admin", "/v1/orders/o-1", "http://" + apiHost + "/v1/orders/o-1", s.dataURL + "/v1/orders/o-1", "http://x@" + apiHost + "/v1/orders/o-1", "ftp://" + apiHost + "/v1/orders/o-1", "http://" + apiHost + "/admin"} {
			s.data.setResponse(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Etag", "not quoted")
				w.Header().Set("Location", location)
				w.Header().Set("X-Internal", "secret")
				json(goodOrder)(w, r)
			})
			a := s.get(t, s.all, "/v1/orders/o-1")
			require.Equal(t, 200, a.Status)
			want := ""
			if slices.Contains([]string{"/v1/orders/o-1", "http://" + apiHost + "/v1/orders/o-1", s.dataURL + "/v1/orders/o-1"}, location) {
				want = "/v1/orders/o-1" // without the host that the service was asked by
			}
			require.Equal(t, want, a.Header.Get("Location"))
			require.Empty(t, a.Header.Values("X-Internal"))
			require.Empty(t, a.Header.Values("Etag"))
		}
	})
	t.Run("405 of the service has the methods of the document", func(t *testing.T) { // RFC 9110, section 15.5.6
		s.data.setResponse(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Allow", "PURGE")
			w.WriteHeader(http.StatusMethodNotAllowed)
		})
		a := s.get(t, s.all, "/v1/orders/o-1")
		require.Equal(t, 405, a.Status)
		require.Len(t, a.Header["Allow"], 1)
		require.Contains(t, a.Header.Get("Allow"), "GET")
		require.NotContains(t, a.Header.Get("Allow"), "PURGE")
	})
	t.Run("too many requests of the service", func(t *testing.T) {
		s.data.setResponse(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		})
		a := s.get(t, s.all, "/v1/orders")
		requireProblem(t, a, 429, "RATE_LIMITED")
		require.Equal(t, "7", a.Header.Get("Retry-After"))
	})
	require.Contains(t, s.g.Output(), `"route":"api","operation":"shop/listOrders"`)
	require.Positive(t, s.g.Metric(t, "gatehouse_upstream_responses_total", `resource="shop/orders"`, `outcome="cross_tenant"`))
	t.Run("the public contract stays", func(t *testing.T) {
		s.data.setResponse(nil)
		require.Equal(t, `{"events":[]}`, s.get(t, s.orders, eventsPath).Body)
		require.Equal(t, 200, s.get(t, s.all, "/api/v1/me").Status)
	})
}

// Data services make the URL of Location from the host that they see.
func TestLocationMayHaveEachHostUnderWhichTheServiceWasCalled(t *testing.T) {
	t.Parallel()
	data := &recorder{}
	w := newEnvironment(t, data)
	caller := w.issue(t, authsigner.IssueOptions{BusinessID: "17", Resources: []string{"shop"}})
	o := w.options(highLimits, "")
	o.Servers = trustLoopback
	o.Site = fmt.Sprintf("gatehouse_api /v1/* {\n\t\tdefinition shop %s\n\t\tupstream %s {\n\t\t\theader_up Host shop.internal\n\t\t}\n\t}", shopDefinition, w.dataURL)
	g := gatewaytest.Start(t, o)
	for host, passes := range map[string]bool{
		"https://api.example.com": true, "https://api.example.com:443": true, "http://shop.internal": true, "http://shop.internal:80": true,
		w.dataURL: true, g.URL: true, "https://evil.example": false, "https://shop.internal:8443": false,
	} {
		data.setResponse(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", host+"/v1/orders/o-1")
			respondWith(200, "application/json", goodOrder)(w, r)
		})
		header := headerOf(append(signedFields(caller, "GET", "/v1/orders/o-1", ""), field{"X-Forwarded-For", "198.51.100.7"}, field{"X-Forwarded-Host", "api.example.com"}))
		a := send(t, g, "/v1/orders/o-1", header)
		require.Equal(t, 200, a.Status, a.Body)
		require.Equal(t, "shop.internal", data.last(t).Host)
		require.Equal(t, []string{"api.example.com"}, data.last(t).Header["X-Forwarded-Host"])
		require.Equal(t, passes, a.Header.Get("Location") == "/v1/orders/o-1", host)
		require.Equal(t, passes, a.Header.Get("Location") != "", host)
	}
}

// A wrong definition never half-loads, and a reload with one keeps the old configuration.
func TestWrongDefinitionKeepsTheOldConfiguration(t *testing.T) {
	t.Parallel()
	data := &recorder{}
	w := newEnvironment(t, data)
	file := filepath.Join(t.TempDir(), "news.yaml")
	write := func(path string) {
		t.Helper()
		require.NoError(t, os.WriteFile(file, []byte("openapi: 3.1.0\ninfo: {title: News, version: '1'}\nservers: [{url: /v1}]\nx-gatehouse-tenant: request\npaths:\n  "+
			path+":\n    get:\n      responses: {'200': {description: News, content: {application/json: {schema: {type: array, items: {type: string}}}}}}\n"), 0o600))
	}
	write("/news")
	data.setResponse(respondWith(200, "application/json", `["a"]`))
	o := w.options(highLimits, "")
	o.Site = "gatehouse_api {\n\t\tdefinition " + file + "\n\t\tupstream " + w.dataURL + "\n\t}"
	g := gatewaytest.Start(t, o)
	require.Equal(t, `["a"]`, w.acme.Get(t, g.URL, "/v1/news").Body)

	write("/news/{id}")                // whose parameter is not declared
	reload := func() (string, error) { // not by force: as operators do
		return gatewaytest.Command(t, nil, "reload", "--config", g.Config, "--adapter", "caddyfile", "--address", strings.TrimPrefix(g.AdminURL, "http://"))
	}
	out, err := reload()
	require.Error(t, err)
	require.Contains(t, out, "news.yaml:8: /paths/~1news~1{id}/get: the parameter id of the path is not declared")
	require.Equal(t, `["a"]`, w.acme.Get(t, g.URL, "/v1/news").Body)

	write("/letters")
	require.Equal(t, http.StatusNotFound, w.acme.Get(t, g.URL, "/v1/letters").Status, "a changed file changes nothing until a reload")
	out, err = reload() // of the same Caddyfile
	require.NoError(t, err, out)
	g.AwaitReload(t)
	require.Equal(t, `["a"]`, w.acme.Get(t, g.URL, "/v1/letters").Body)
	assert.Equal(t, http.StatusNotFound, w.acme.Get(t, g.URL, "/v1/news").Status)
}

func TestNamesOfAPIsAreUnambiguous(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	const other = "definition testdata/shop/openapi.yaml {\n\t\t\toverlay testdata/shop/overlay.yaml\n\t\t\texcept deleteOrder\n\t\t\tonly letters\n\t\t}"
	file := filepath.Join(t.TempDir(), "devices.yaml")
	require.NoError(t, os.WriteFile(file, []byte("openapi: 3.1.0\ninfo: {title: Devices, version: '1'}\nservers: [{url: /v1}]\nx-gatehouse-tenant: request\npaths:\n  "+
		"/connect/devices:\n    get:\n      responses: {'200': {description: Devices, content: {application/json: {schema: {type: array, items: {type: string}}}}}}\n"), 0o600))
	connect := "gatehouse_connect {\n\t\tissuer http://localhost\n\t\tupstream " + w.dataURL + "\n\t}\n\t"
	for name, c := range map[string][2]string{
		"two APIs without a name": {
			"gatehouse_api /v1/* {\n\t\tdefinition " + shopDefinition + "\n\t\tupstream " + w.dataURL + "\n\t}\n\tgatehouse_api {\n\t\tupstream " + w.dataURL + "\n\t}",
			"only one API may have no name",
		},
		"a name of gatehouse_auth": {
			"gatehouse_api /v1/* {\n\t\tdefinition shop " + shopDefinition + "\n\t\tupstream " + w.dataURL + "\n\t}\n\tgatehouse_auth /x/* shop",
			`the name "shop" is used for`,
		},
		"a resource of the public contract": {
			"gatehouse_api /v1/* {\n\t\tdefinition jobs " + shopDefinition + "\n\t\tupstream " + w.dataURL + "\n\t}",
			`invalid name`,
		},
		"base paths within each other": {
			"gatehouse_api /v1/* {\n\t\tdefinition shop " + shopDefinition + "\n\t\tupstream " + w.dataURL + "\n\t}\n\tgatehouse_api /v1/x/* {\n\t\tbase_path /v1/x\n\t\tupstream " + w.dataURL + "\n\t}",
			"two APIs of one site have the base paths",
		},
		"a reference at another API's path": {
			"gatehouse_api /v1/* {\n\t\tdefinition shop " + shopDefinition + "\n\t\tupstream " + w.dataURL + "\n\t}\n\tgatehouse_api {\n\t\tdocs_path /v1/docs\n\t\tupstream " + w.dataURL + "\n\t}",
			"base paths or docs_path /v1/",
		},
		"a resource with the name of the connection server": {
			connect + "gatehouse_api /v1/* {\n\t\tdefinition " + file + "\n\t\tupstream " + w.dataURL + "\n\t}",
			`the name \"connect\" is used for gatehouse_connect and for a resource of ` + file,
		},
		"an audience with the name of the connection server": {
			"gatehouse_auth shop {\n\t\taudience connect\n\t}",
			`the audience connect is that of the connection server`,
		},
		"a tag that does not exist": {
			"gatehouse_api {\n\t\t" + other + "\n\t\tupstream " + w.dataURL + "\n\t}",
			`no operation or tag is called`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := w.options(highLimits, "")
			o.Site = c[0]
			g := gatewaytest.New(t, o)
			out, err := gatewaytest.Command(t, nil, "validate", "--config", g.Config, "--adapter", "caddyfile")
			require.Error(t, err)
			require.Contains(t, out, c[1])
		})
	}
}

// What is left out of the public contract is not there: no path, no resource, nothing in what is published, and its data service is not needed.
func TestAPartOfThePublicContractIsOffered(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, &recorder{})
	o := w.options("", "")
	o.Site = "gatehouse_api {\n\t\tdefinition {\n\t\t\texcept getStatus listJobs\n\t\t\tonly gateway listEvents listJobs\n\t\t}\n\t\tdocs_path /docs\n\t\tupstream events " + w.dataURL + "\n\t}"
	g := gatewaytest.Start(t, o)
	require.Equal(t, 200, w.acme.Get(t, g.URL, eventsPath).Status)
	require.Equal(t, 200, w.acme.Get(t, g.URL, "/api/v1/me").Status)
	for _, path := range []string{"/api/v1/status", "/api/v1/jobs", "/api/v1/contacts"} {
		requireProblem(t, w.acme.Get(t, g.URL, path), 404, "NOT_FOUND")
	}
	published := anonymous().Get(t, g.URL, "/docs/openapi.yaml").Body
	require.Contains(t, published, "listEvents")
	require.NotContains(t, published, "listJobs")
	require.NotContains(t, published, "Invoice")
	out, err := gatewaytest.Command(t, nil, "api", "publish", "--only", "gateway,listEvents", "--except", "getStatus")
	require.NoError(t, err)
	require.Contains(t, out, published)
}

// A service with other paths and names is asked by them, and no business leaves its place in a path.
func TestServicesAreAskedByTheirOwnPathsAndNames(t *testing.T) {
	t.Parallel()
	data := &recorder{}
	data.setResponse(respondWith(200, "text/html; charset=UTF-8", `[{"number":"i-1","secret":1}]`))
	w := newEnvironment(t, data)
	file := filepath.Join(t.TempDir(), "billing.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
openapi: 3.1.0
info: {title: Billing, version: "1"}
servers: [{url: /v1}]
x-gatehouse-tenant: request
x-gatehouse-upstream: {headers: {X-Account: "{business}"}, content_type: text/html}
paths:
  /invoices/{year}:
    get:
      operationId: listInvoices
      x-gatehouse-upstream: {path: "/legacy/accounts/{business}/{year}.php", query: {offset: "{page.offset}", limit: "{per_page}", fmt: json}}
      parameters:
      - {name: year, in: path, required: true, schema: {type: integer}}
      - {name: page, in: query, schema: {type: integer, minimum: 1, default: 1}}
      - {name: per_page, in: query, schema: {type: integer, minimum: 1, maximum: 50, default: 20}}
      - {name: x_account, in: query, schema: {type: string}}
      responses:
        "200":
          description: Invoices
          x-gatehouse-records: {at_most: per_page}
          content: {application/json: {schema: {type: array, maxItems: 50, items: {type: object, properties: {number: {type: string}}}}}}
`), 0o600))
	odd := w.issue(t, authsigner.IssueOptions{BusinessID: "../admin"})
	o := w.options(highLimits, "")
	o.Site = "gatehouse_api {\n\t\tdefinition " + file + "\n\t\tupstream " + w.dataURL + "\n\t}"
	g := gatewaytest.Start(t, o)
	a := w.acme.Get(t, g.URL, "/v1/invoices/2026?page=3&offset=0&account=18")
	require.Equal(t, `[{"number":"i-1"}]`, a.Body)
	require.Equal(t, "application/json", a.Header.Get("Content-Type"))
	require.Equal(t, "offset, account", a.Header.Get("X-Ignored-Parameters"))
	got := data.last(t)
	require.Equal(t, "/legacy/accounts/"+w.acmeID+"/2026.php?offset=40&limit=20&fmt=json", got.RequestURI)
	require.Equal(t, []string{w.acmeID}, got.Header["X-Account"])
	require.Equal(t, []string{w.acmeID}, got.Header["X-Business-Id"])
	require.Equal(t, 200, w.acme.Get(t, g.URL, "/v1/invoices/2026?x_account="+w.acmeID).Status)
	n := data.count()
	requireProblem(t, w.acme.Get(t, g.URL, "/v1/invoices/2026?x_account="+w.otherID), 400, "INVALID_PARAMETER")
	requireProblem(t, odd.Get(t, g.URL, "/v1/invoices/2026"), 500, "INTERNAL")
	require.Equal(t, n, data.count())
	require.Eventually(t, func() bool {
		return strings.Contains(g.Output(), "the business ID cannot be part of the path that the definition has for listInvoices")
	}, patience, 10*time.Millisecond)
}
