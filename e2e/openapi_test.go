package e2e_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/openapitest"
	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// requireDocumented requires that a response matches docs/openapi.yaml.
func requireDocumented(t *testing.T, a gatewaytest.Response) gatewaytest.Response {
	t.Helper()
	openapitest.Check(t, a.Request, &http.Response{StatusCode: a.Status, Header: a.Header}, []byte(a.Body))
	require.False(t, t.Failed(), "%s %s", a.Request.Method, a.Request.URL.Opaque)
	return a
}

// Every resource with all records of two businesses, neither of which gets a record of the other.
func TestSuccessesMatchTheOpenAPIDocument(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	g := w.start(t, highLimits, "deprecated jobs 2027-01-31 2027-07-31 https://docs.example.com/jobs")
	valued := map[string]bool{}   // fields with a value in some record: of others, the type is not checked
	owners := map[string]string{} // public keys by record
	for _, c := range []gatewaytest.Caller{w.acme, w.other} {
		for _, res := range definition.Public().Operations() {
			queries := []string{"", "?unknown=1"}
			switch {
			case res.Resource == "events":
				queries = append(queries, "?count=1", "?count=100", "?count=0", "?count=-1", "?count=999999999999999999999999")
			case res.Responses[0].Records != nil && res.Responses[0].IsList():
				queries = append(queries, "?page=2&per_page=3", "?page=999999", "?per_page=100", "?per_page=0", "?status=active", "?status=no-such-status")
				for page := range 4 { // every record of the demo's data
					queries = append(queries, "?per_page=100&page="+strconv.Itoa(page+1))
				}
			}
			for _, query := range queries {
				list, _ := requireJSON(t, requireDocumented(t, c.Get(t, g.URL, res.Path+query)))[recordsOf(res)].([]any)
				for _, record := range list {
					fields, _ := record.(map[string]any)
					id := res.Resource + fmt.Sprint(fields["id"])
					require.Contains(t, []string{"", c.PublicKey}, owners[id], "a record of another business")
					owners[id] = c.PublicKey
					for name, v := range fields {
						valued[res.Resource+"."+name] = valued[res.Resource+"."+name] || v != nil
					}
				}
			}
			head := requireDocumented(t, c.Do(t, http.MethodHead, g.URL, res.Path, nil))
			assert.Equal(t, http.StatusOK, head.Status)
			assert.Empty(t, head.Body)
			require.Eventually(t, func() bool { // other tests may add a record between the two requests
				length := c.Do(t, http.MethodHead, g.URL, res.Path, nil).Header.Get("Content-Length")
				return length == strconv.Itoa(len(c.Get(t, g.URL, res.Path).Body))
			}, patience, 10*time.Millisecond, res.Path)
		}
	}
	require.Greater(t, len(owners), 100)
	for _, res := range definition.Public().Operations() {
		if r := res.Responses[0]; r.Records != nil && r.IsList() {
			for _, f := range r.Body.Property(r.Records.In).Schema.Items.Properties {
				assert.True(t, f.Internal || valued[res.Resource+"."+f.Name], "the demo has no value for %s.%s", res.Resource, f.Name)
			}
		}
	}
	requireJSON(t, requireDocumented(t, w.acme.Do(t, http.MethodGet, g.URL, eventsPath, make([]byte, 1<<20)))) // the largest body
	assert.Equal(t, http.StatusOK, requireDocumented(t, anonymous().Get(t, g.URL, "/api/v1/status")).Status)
	assert.Equal(t, http.StatusOK, requireDocumented(t, anonymous().Do(t, http.MethodHead, g.URL, "/api/v1/status", nil)).Status)
}

// recordsOf returns the name of the member with the records, or "".
func recordsOf(op *upstream.Operation) string {
	if r := op.Responses[0].Records; r != nil {
		return r.In
	}
	return ""
}

// Every error of the contract, from each kind of resource that can return it.
func TestErrorsMatchTheOpenAPIDocument(t *testing.T) {
	t.Parallel()
	data := &recorder{}
	w := newEnvironment(t, data)
	restricted := w.addKey(t, authsigner.IssueOptions{Resources: []string{"other"}})
	spent := w.addKeys(t, 2*windowAttempts, 1)
	from := new(clientIPs)
	seen := map[string]int{}
	expect := func(a gatewaytest.Response, status int, code string) {
		t.Helper()
		requireDocumented(t, a)
		require.Equal(t, status, a.Status, "%s %s: %s", a.Request.Method, a.Request.URL.Opaque, a.Body)
		if a.Request.Method != http.MethodHead {
			requireProblem(t, a, status, code)
		}
		seen[code]++
	}
	send := func(g *gatewaytest.Gateway, method, target string, h http.Header, body []byte) gatewaytest.Response {
		t.Helper()
		if h == nil {
			h = http.Header{}
		}
		if from != nil {
			h.Set("X-Forwarded-For", from.address())
		}
		a, err := anonymous().Send(t.Context(), method, g.URL, target, h, body)
		require.NoError(t, err)
		return a
	}
	const docs = "docs https://docs.example.com/errors"
	g := w.behindProxy(t, highLimits, docs)
	// only for timeouts: on a busy machine, other requests may take half a second too
	shortTimeout := w.behindProxy(t, highLimits, "timeout 500ms\n\t\tbody_timeout 500ms\n\t\t"+docs)
	var proxied []string
	for _, res := range definition.Public().Operations() {
		if res.Public {
			continue
		}
		if !res.ByGateway {
			proxied = append(proxied, res.Path)
			expect(restricted.Get(t, g.URL, res.Path), 403, "FORBIDDEN")
			expect(restricted.Do(t, "HEAD", g.URL, res.Path, nil), 403, "FORBIDDEN")
		}
		for _, method := range []string{"GET", "HEAD"} {
			expect(send(g, method, res.Path, nil, nil), 401, "MISSING_CREDENTIALS")
			expect(send(g, method, res.Path, invalidSignature(w.acme.PublicKey), nil), 401, "INVALID_CREDENTIALS")
			expect(send(g, method, res.Path, headerOf(signedAt(w.acme, time.Now().Add(-1000*time.Second), "GET", res.Path, "")), nil), 401, "REQUEST_EXPIRED")
			expect(w.inactive.Do(t, method, g.URL, res.Path, nil), 403, "ACCOUNT_INACTIVE")
			expect(w.acme.Do(t, method, g.URL, res.Path, make([]byte, 1<<20+1)), 413, "BODY_TOO_LARGE")
		}
	}
	for _, method := range []string{"POST", "OPTIONS", "DELETE", "TRACE"} {
		expect(send(g, method, "/api/v1/status", nil, nil), 405, "METHOD_NOT_ALLOWED")
		expect(w.acme.Do(t, method, g.URL, "/api/v1/jobs", nil), 405, "METHOD_NOT_ALLOWED")
		expect(w.acme.Do(t, method, g.URL, "/api/v1/nothing", nil), 404, "NOT_FOUND")
	}
	for _, target := range []string{"/api/v1", "/api/v1/", "/api/v1/nothing", "/api/v1/Status", "/api/v1/status/"} {
		expect(anonymous().Get(t, g.URL, target), 404, "NOT_FOUND")
		expect(w.acme.Get(t, g.URL, target), 404, "NOT_FOUND")
	}
	expect(w.acme.Get(t, g.URL, "/api/v1/events?count=x"), 400, "INVALID_PARAMETER")
	expect(w.acme.Get(t, g.URL, "/api/v1/contacts?page=1&page=2"), 400, "INVALID_PARAMETER")
	expect(w.acme.Get(t, g.URL, "/api/v1/estimates?payment_status=%00"), 400, "INVALID_PARAMETER")

	// rejected by Caddy before routing
	a := raw(t, g.Addr, "GET /api/v1/status HTTP/1.1\r\nHost: ..\r\nConnection: close\r\n\r\n")
	a.Request = anonymous().Get(t, g.URL, "/api/v1/status").Request
	expect(a, 400, "BAD_REQUEST")

	// a body that does not arrive
	d := dial(t, shortTimeout.Addr, "GET /api/v1/me HTTP/1.1\r\nHost: x\r\n"+signedLines(w.acme, "GET", "/api/v1/me", "")+"Content-Length: 5\r\n\r\n1")
	a, err := readResponse(d.r, "GET")
	require.NoError(t, err)
	a.Request = w.acme.Get(t, g.URL, "/api/v1/me").Request
	expect(a, 408, "REQUEST_TIMEOUT")

	// data services
	for _, path := range proxied {
		data.setResponse(respondWith(200, "application/json", `[]`))
		expect(w.acme.Get(t, g.URL, path), 502, "UPSTREAM_FAILED")
		data.setResponse(busy)
		expect(w.acme.Get(t, g.URL, path), 503, "SERVICE_UNAVAILABLE")
		expect(w.acme.Do(t, "HEAD", g.URL, path, nil), 503, "SERVICE_UNAVAILABLE")
		data.setResponse(stalls)
		expect(w.acme.Get(t, shortTimeout.URL, path), 504, "UPSTREAM_TIMEOUT")
	}

	// limits, each kind
	small := w.gateway(t)
	from = nil
	for range 10 {
		requireDocumented(t, anonymous().Get(t, small.URL, "/api/v1/status"))
	}
	for _, target := range []string{"/api/v1/status", "/api/v1/me", "/api/v1/nothing"} {
		expect(anonymous().Get(t, small.URL, target), 429, "RATE_LIMITED")
	}
	expect(send(small, "POST", "/api/v1/status", nil, nil), 429, "RATE_LIMITED")
	expect(send(small, "HEAD", "/api/v1/status", nil, nil), 429, "RATE_LIMITED")
	withinWindow(t, func(attempt int) func() {
		key, unverified := spent[2*attempt].Caller, invalidSignature(spent[2*attempt+1].PublicKey)
		for range 60 {
			requireDocumented(t, key.Get(t, small.URL, "/api/v1/me"))
			requireDocumented(t, send(small, "GET", "/api/v1/me", unverified, nil))
		}
		limited := []gatewaytest.Response{key.Get(t, small.URL, "/api/v1/events"), send(small, "GET", "/api/v1/me", unverified, nil)}
		return func() {
			for _, a := range limited {
				expect(a, 429, "RATE_LIMITED")
			}
		}
	})

	// unavailable stores
	denying := w.start(t, "limits {\n\t\t\ton_outage deny\n\t\t}", "")
	require.NoError(t, w.redis.Kill())
	for _, target := range []string{"/api/v1/status", "/api/v1/me", "/api/v1/jobs", "/api/v1/nothing"} {
		expect(w.acme.Get(t, denying.URL, target), 503, "SERVICE_UNAVAILABLE")
	}
	w.dataURL = "http://" + gatewaytest.FreeAddr(t) // nobody listens there
	noData := w.gateway(t)
	expect(w.acme.Get(t, noData.URL, "/api/v1/jobs"), 503, "SERVICE_UNAVAILABLE")

	// INTERNAL is missing: a request that causes it would have found a defect.
	require.ElementsMatch(t, []string{
		"INVALID_PARAMETER", "BAD_REQUEST", "MISSING_CREDENTIALS", "REQUEST_EXPIRED", "INVALID_CREDENTIALS", "ACCOUNT_INACTIVE", "FORBIDDEN", "NOT_FOUND",
		"METHOD_NOT_ALLOWED", "BODY_TOO_LARGE", "REQUEST_TIMEOUT", "RATE_LIMITED", "UPSTREAM_FAILED", "SERVICE_UNAVAILABLE", "UPSTREAM_TIMEOUT",
	}, slices.Collect(maps.Keys(seen)))
}
