package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/fcgi"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

// protected is a service behind gatehouse_auth shop, and keys of the business "17" for it.
type protected struct {
	*attack
	business                           string
	writes, reads, orders, other, none gatewaytest.Caller
}

// newProtected starts the service, without a gateway.
func newProtected(t *testing.T) *protected {
	t.Helper()
	p := &protected{attack: &attack{data: &recorder{}}, business: "17"}
	p.data.setResponse(respondWith(http.StatusOK, "text/plain", "hello"))
	p.environment = newEnvironment(t, p.data)
	issue := func(write bool, resources ...string) gatewaytest.Caller {
		return p.issue(t, authsigner.IssueOptions{BusinessID: p.business, Write: write, Resources: resources})
	}
	p.writes, p.reads, p.orders = issue(true, "shop"), issue(false, "shop"), issue(true, "shop/orders")
	p.other, p.none = issue(true, "sho", "orders", "shop2"), issue(true)
	return p
}

// protect starts a gateway with gatehouse_auth in front of the handlers of a site, by default a reverse_proxy to the recorder.
func protect(t *testing.T, app, before, options, behind string) *protected {
	t.Helper()
	p := newProtected(t)
	o := p.options(app, "")
	if behind == "" {
		behind = "reverse_proxy " + strings.TrimPrefix(p.dataURL, "http://")
	}
	o.Site = before + "\n\tgatehouse_auth shop {\n\t\t" + options + "\n\t}\n\t" + behind
	p.serve(t, o)
	return p
}

//nolint:tparallel // the subtests share a data service
func TestProtectedRouteServesWhomItsKeysAllow(t *testing.T) {
	t.Parallel()
	p := protect(t, highLimits, "", "", "")
	const order, refunds = "/orders/5?x=a%20b&x=c", "/refunds"
	for _, test := range []struct {
		name           string
		caller         gatewaytest.Caller
		method, target string
		status         int
		code           string
	}{
		{"a read", p.reads, "GET", order, 200, ""},
		{"HEAD", p.reads, "HEAD", order, 200, ""},
		{"OPTIONS", p.reads, "OPTIONS", order, 200, ""},
		{"one resource", p.orders, "GET", order, 200, ""},
		{"a write", p.writes, "POST", refunds, 200, ""},
		{"DELETE", p.writes, "DELETE", order, 200, ""},
		{"a write with a key that reads", p.reads, "POST", refunds, 403, "WRITE_NOT_ALLOWED"},
		{"a method in the query with a key that reads", p.reads, "GET", order + "&_method=DELETE", 403, "WRITE_NOT_ALLOWED"},
		{"in another spelling", p.reads, "GET", order + "&a=1;+%5Fmethod[]=DELETE", 403, "WRITE_NOT_ALLOWED"},
		{"with a dot", p.reads, "HEAD", order + "&.Method=DELETE", 403, ""},
		{"in the form of the header", p.reads, "GET", order + "&x-http-method-override=PUT", 403, "WRITE_NOT_ALLOWED"},
		{"a filter by method", p.reads, "GET", order + "&method=card&payment_method=x", 200, ""},
		{"TRACE, which shows what only the service may see", p.writes, "TRACE", order, 400, "BAD_REQUEST"},
		{"another resource", p.orders, "GET", refunds, 403, "FORBIDDEN"},
		{"a key of other APIs", p.other, "GET", order, 403, "FORBIDDEN"},
		{"a key without resources", p.none, "GET", order, 403, "FORBIDDEN"},
		{"no key", gatewaytest.Caller{}, "GET", order, 401, "MISSING_CREDENTIALS"},
		{"a wrong key", gatewaytest.Caller{PublicKey: p.reads.PublicKey, PrivateKey: p.writes.PrivateKey}, "GET", order, 401, "INVALID_CREDENTIALS"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for protocol, send := range p.over {
				target := test.target + "?wire=" + protocol[5:6] // each write needs a signature of its own
				if strings.Contains(test.target, "?") {
					target = test.target + "&wire=" + protocol[5:6]
				}
				var fields []field
				if test.caller.PublicKey != "" {
					fields = signedFields(test.caller, test.method, target, "")
				}
				n := p.data.count()
				a := send(test.method, target, fields)
				require.Equal(t, test.status, a.Status, "%s: %s", protocol, a.Body)
				if test.status != http.StatusOK {
					require.Equal(t, n, p.data.count(), "it must not reach the service")
					if test.method != "HEAD" {
						requireProblem(t, a, test.status, test.code)
					}
					continue
				}
				got := p.data.last(t)
				assert.Equal(t, target, got.RequestURI)
				assert.Equal(t, []string{p.business}, got.Header["X-Business-Id"])
				assert.Equal(t, a.Header["X-Request-Id"], got.Header["X-Request-Id"])
				assert.Len(t, a.Header["X-Request-Id"], 1)
				assert.NotEmpty(t, a.Header.Get("RateLimit"))
				for _, name := range []string{"X-Public-Key", "X-Timestamp", "X-Signature"} {
					assert.NotContains(t, got.Header, name)
				}
			}
		})
	}
	require.Positive(t, p.g.Metric(t, "gatehouse_requests_total", `route="shop"`, `status="200"`))
	requireLogged(t, p.g, `"route":"shop","operation":"any","status":200`)
}

// A key for the API "shop" is not one for a resource "shop" of what has no name.
func TestNameOfAnAPIIsNotAResourceOfAnother(t *testing.T) {
	t.Parallel()
	p := newProtected(t)
	o := p.options(highLimits, "")
	proxy := "reverse_proxy " + strings.TrimPrefix(p.dataURL, "http://")
	o.Site = "@new host new.example\n\thandle @new {\n\t\tgatehouse_auth shop\n\t\t" + proxy + "\n\t}\n\thandle {\n\t\tgatehouse_auth\n\t\t" + proxy + "\n\t}"
	auth := p.issue(t, authsigner.IssueOptions{BusinessID: p.business, Resources: []string{"auth"}})
	g := gatewaytest.Start(t, o)
	for _, test := range []struct {
		caller       gatewaytest.Caller
		host, target string
		status       int
	}{
		{p.reads, "new.example", "/shop/admin", 200},
		{p.reads, "legacy.example", "/shop/admin", 403},
		{p.reads, "legacy.example", "/shop", 403},
		{p.orders, "legacy.example", "/shop/orders", 403},
		{p.other, "legacy.example", "/orders/5", 200},
		{p.other, "legacy.example", "/shop2/5", 200},
		{p.other, "legacy.example", "/auth/5", 403},
		{auth, "legacy.example", "/auth/5", 200},
		{p.none, "legacy.example", "/shop/admin", 200},
		{p.none, "new.example", "/shop/admin", 403},
	} {
		a := raw(t, g.Addr, "GET "+test.target+" HTTP/1.1\r\nHost: "+test.host+"\r\n"+signedLines(test.caller, "GET", test.target, "")+"\r\n"+lastRequest)
		assert.Equal(t, test.status, a.Status, "%s%s: %s", test.host, test.target, a.Body)
	}
}

// A target in absolute form has a scheme before "://", and no path or query.
func TestPathThatIsSignedIsTheOneThatIsServed(t *testing.T) {
	t.Parallel()
	p := protect(t, highLimits, "", "", "")
	fields := linesOf(signedFields(p.orders, "GET", "/orders", ""))
	for _, target := range []string{
		"http:/refunds?://x/orders", "http:/orders/../refunds?://x/orders", "http:///refunds?://x/orders", "x:y://x/orders", "http:x://x/orders",
		"http://x/refunds?://x/orders", "/refunds?://x/orders", "http://x?://x/orders", "http://x#/orders", "http:/x/refunds://x/orders",
	} {
		a := raw(t, p.g.Addr, "GET "+target+" HTTP/1.1\r\nHost: x\r\n"+fields+"\r\n"+lastRequest)
		require.GreaterOrEqual(t, a.Status, 400, target)
		require.Less(t, a.Status, 500, target)
	}
	require.Zero(t, p.data.count())
	require.Equal(t, 200, raw(t, p.g.Addr, "GET http://x/orders HTTP/1.1\r\nHost: x\r\n"+fields+"\r\n"+lastRequest).Status)
}

// A recorded write is worth nothing, on this and every other gateway.
//
//nolint:tparallel // the subtests share a Redis, which the last one stops
func TestSignedWriteIsAcceptedOnce(t *testing.T) {
	t.Parallel()
	p := protect(t, highLimits, "", "", "")
	second := gatewaytest.Start(t, gatewaytest.Options{
		Global: p.options(highLimits, "").Global,
		Site:   "gatehouse_auth shop\n\treverse_proxy " + strings.TrimPrefix(p.dataURL, "http://"),
	})
	fields := signedFields(p.writes, "POST", "/orders", "")
	first := p.over[overHTTP1]("POST", "/orders", fields)
	require.Equal(t, 200, first.Status, first.Body)
	upper := append([]field(nil), fields...)
	for i := range upper {
		if strings.EqualFold(upper[i].name, "X-Signature") {
			upper[i].value = strings.ToUpper(upper[i].value)
		}
	}
	for name, a := range map[string]gatewaytest.Response{
		"again":            p.over[overHTTP1]("POST", "/orders", fields),
		"upper case":       p.over[overHTTP2]("POST", "/orders", upper),
		"HTTP/3":           p.over[overHTTP3]("POST", "/orders", fields),
		"on another one":   raw(t, second.Addr, "POST /orders HTTP/1.1\r\nHost: x\r\n"+linesOf(upper)+"\r\n"+lastRequest),
		"by absolute form": raw(t, p.g.Addr, "POST http://x/orders HTTP/1.1\r\nHost: x\r\n"+linesOf(fields)+"\r\n"+lastRequest),
	} {
		assert.NotContains(t, requireProblem(t, a, http.StatusConflict, "REPLAYED").Detail, "Idempotency-Key", "it had none")
		assert.Contains(t, a.Body, `"original_request_id":"`+first.Header.Get("X-Request-Id")+`"`, name)
	}
	require.Equal(t, 1, p.data.count())
	t.Run("a read may be repeated", func(t *testing.T) {
		fields := signedFields(p.reads, "GET", "/orders", "")
		for range 2 {
			require.Equal(t, 200, p.over[overHTTP1]("GET", "/orders", fields).Status)
		}
	})
	t.Run("a denied write leaves no mark", func(t *testing.T) {
		fields := signedFields(p.orders, "POST", "/refunds", "")
		for range 2 {
			requireProblem(t, p.over[overHTTP1]("POST", "/refunds", fields), http.StatusForbidden, "FORBIDDEN")
		}
	})
	t.Run("raced", func(t *testing.T) {
		n := p.data.count()
		fields := signedFields(p.writes, "POST", "/raced", "")
		var conns []*rawConn
		for i := range 16 {
			conns = append(conns, dial(t, []string{p.g.Addr, second.Addr}[i%2], "POST /raced HTTP/1.1\r\nHost: x\r\n"+linesOf(fields)))
		}
		for _, conn := range conns {
			_, err := io.WriteString(conn, "\r\n")
			require.NoError(t, err)
		}
		statuses := map[int]int{}
		for _, conn := range conns {
			a, err := readResponse(conn.r, http.MethodPost)
			require.NoError(t, err)
			statuses[a.Status]++
		}
		require.Equal(t, map[int]int{200: 1, 409: 15}, statuses)
		require.Equal(t, n+1, p.data.count())
	})
	t.Run("while Redis is down", func(t *testing.T) {
		n := p.data.count()
		require.NoError(t, p.redis.Stop())
		a := p.over[overHTTP1]("POST", "/down", signedFields(p.writes, "POST", "/down", ""))
		requireProblem(t, a, http.StatusServiceUnavailable, "SERVICE_UNAVAILABLE")
		require.Equal(t, n, p.data.count())
		require.Equal(t, 200, p.over[overHTTP1]("GET", "/up", signedFields(p.reads, "GET", "/up", "")).Status)
	})
}

// A write that reached no service, because too many of its key are in progress or no address can be reached, is not remembered.
func TestWriteThatWasNotSentLeavesNoMark(t *testing.T) {
	t.Parallel()
	const one = "limits {\n\t\t\tin_flight 1\n\t\t}"
	p, s := protect(t, one, "", "", ""), serveWriteShop(t, one)
	nowhere := s.options(highLimits, "")
	nowhere.Site = "gatehouse_api /v1/* {\n\t\tdefinition shop " + shopDefinition + "\n\t\tupstream http://" + gatewaytest.FreeAddr(t) + "\n\t}"
	unreachable := gatewaytest.Start(t, nowhere)
	for name, test := range map[string]struct {
		data                 *recorder
		by                   gatewaytest.Caller
		g                    *gatewaytest.Gateway
		target, body, answer string
	}{
		"gatehouse_auth": {p.data, p.writes, p.g, "/orders", "", ""},
		"gatehouse_api":  {s.data, s.writer, s.g, "/v1/orders", newOrder, goodOrder},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			release := make(chan struct{})
			proceed := sync.OnceFunc(func() { close(release) })
			t.Cleanup(proceed)
			test.data.setResponse(func(w http.ResponseWriter, r *http.Request) {
				<-release
				respondWith(201, "application/json", test.answer)(w, r)
			})
			sendUntil := func(ctx context.Context, at time.Time) gatewaytest.Response {
				h := headerOf(append(signedAt(test.by, at, "POST", test.target, test.body), field{"Content-Type", "application/json"}))
				a, _ := test.by.Send(ctx, "POST", test.g.URL, test.target, h, []byte(test.body)) // without a status after an error
				return a
			}
			send := func(at time.Time) gatewaytest.Response { return sendUntil(t.Context(), at) }
			now := time.Now()
			first := make(chan gatewaytest.Response, 1)
			go func() { first <- send(now.Add(-time.Second)) }()
			require.Eventually(t, func() bool { return test.data.count() == 1 }, patience, time.Millisecond)
			left := func() int { return strings.Count(test.g.Output(), `"code":"CLIENT_CLOSED_REQUEST"`) }
			before := left()
			ctx, leave := context.WithTimeout(t.Context(), time.Second) // it would wait for 5 s
			defer leave()
			sendUntil(ctx, now) // its caller leaves before its turn
			require.Eventually(t, func() bool { return left() > before }, patience, 10*time.Millisecond)
			requireProblem(t, send(now), 429, "RATE_LIMITED")
			proceed()
			require.Equal(t, 201, (<-first).Status)
			require.Equal(t, 201, send(now).Status)
			requireProblem(t, send(now), 409, "REPLAYED")
			require.Equal(t, 2, test.data.count())
		})
	}
	t.Run("no handler", func(t *testing.T) {
		t.Parallel()
		nothing := protect(t, highLimits, "", "", "respond /else OK")
		h := headerOf(signedAt(nothing.writes, time.Now().Add(-time.Minute), "POST", "/order", ""))
		a, err := nothing.writes.Send(t.Context(), "POST", nothing.g.URL, "/order", h, nil)
		require.NoError(t, err)
		requireProblem(t, a, 404, "NOT_FOUND")
	})
	// It may have been carried out, although no handler wrote a response.
	t.Run("no response", func(t *testing.T) {
		t.Parallel()
		silent := newProtected(t)
		o := silent.options(highLimits, "")
		o.Site = "gatehouse_auth shop\n\treverse_proxy " + strings.TrimPrefix(silent.dataURL, "http://") + " {\n\t\t@ok status 2xx\n\t\thandle_response @ok {\n\t\t\tcopy_response_headers {\n\t\t\t\tinclude Location\n\t\t\t}\n\t\t}\n\t}"
		g := gatewaytest.Start(t, o)
		h := headerOf(signedAt(silent.writes, time.Now().Add(-time.Minute), "POST", "/orders", ""))
		for _, want := range []int{404, 409} {
			a, err := silent.writes.Send(t.Context(), "POST", g.URL, "/orders", h, nil)
			require.NoError(t, err)
			require.Equal(t, want, a.Status, a.Body)
		}
		require.Equal(t, 1, silent.data.count())
	})
	t.Run("unreachable", func(t *testing.T) {
		t.Parallel()
		h := headerOf(append(signedAt(s.writer, time.Now().Add(-time.Minute), "POST", "/v1/orders", newOrder), field{"Content-Type", "application/json"}))
		for range 2 {
			a, err := s.writer.Send(t.Context(), "POST", unreachable.URL, "/v1/orders", h, []byte(newOrder))
			require.NoError(t, err)
			requireProblem(t, a, 503, "SERVICE_UNAVAILABLE")
		}
	})
}

// A write stays remembered if Redis refuses to forget it, for example to a user without the permission: an operator can find out why it is refused.
func TestWriteThatCannotBeForgottenIsLogged(t *testing.T) {
	t.Parallel()
	s := serveWriteShop(t, highLimits)
	s.redis = redistest.Start(t, redistest.WithUser("gateway", "made-up", "~* &* +@all -del"))
	o := s.options(highLimits, "")
	o.Site = "gatehouse_api /v1/* {\n\t\tdefinition shop " + shopDefinition + "\n\t\tupstream http://" + gatewaytest.FreeAddr(t) + "\n\t}"
	g := gatewaytest.Start(t, o)
	h := headerOf(append(signedAt(s.writer, time.Now(), "POST", "/v1/orders", newOrder), field{"Content-Type", "application/json"}))
	send := func() gatewaytest.Response {
		a, err := s.writer.Send(t.Context(), "POST", g.URL, "/v1/orders", h, []byte(newOrder))
		require.NoError(t, err)
		return a
	}
	first := send()
	requireProblem(t, first, 503, "SERVICE_UNAVAILABLE")
	requireProblem(t, send(), 409, "REPLAYED")
	require.Regexp(t, `"level":"warn",[^\n]*stays remembered[^\n]*"request_id":"`+first.Header.Get("X-Request-Id"), g.Output())
}

// A repetition whose headers arrive in time, and the last byte of its body when Redis has forgotten the write, is not new.
func TestWriteThatIsKeptBackIsNotAcceptedAgain(t *testing.T) {
	t.Parallel()
	p := newProtected(t)
	p.environment.redis = redistest.Start(t, redistest.WithClock())
	o := p.options(highLimits, "")
	o.Site = "gatehouse_auth shop {\n\t\tbody_timeout 12m\n\t}\n\treverse_proxy " + strings.TrimPrefix(p.dataURL, "http://")
	g := gatewaytest.Start(t, o)
	request := "POST /orders HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n" + signedLines(p.writes, "POST", "/orders", "{}") + "\r\n{"
	finish := func(conn *rawConn) gatewaytest.Response {
		_, err := io.WriteString(conn, "}")
		require.NoError(t, err)
		a, err := readResponse(conn.r, http.MethodPost)
		require.NoError(t, err)
		return a
	}
	first, soon, late := dial(t, g.Addr, request), dial(t, g.Addr, request), dial(t, g.Addr, request)
	require.Equal(t, 200, finish(first).Status)
	require.NoError(t, p.redis.StepClock(10*time.Minute))
	requireProblem(t, finish(soon), http.StatusConflict, "REPLAYED")
	require.NoError(t, p.redis.StepClock(11*time.Minute))
	requireProblem(t, finish(late), http.StatusServiceUnavailable, "SERVICE_UNAVAILABLE")
	require.Equal(t, 1, p.data.count())
}

//nolint:tparallel // the subtest has the last request
func TestProtectedServiceGetsNoForgedHeaders(t *testing.T) {
	t.Parallel()
	p := protect(t, highLimits, "", "", "")
	forged := []field{
		{"X-Business-Id", "18"},
		{"x-business-id", "18"},
		{"X_Business_Id", "18"},
		{"X-Business_Id", "18"},
		{"X-Gateway-Assertion", "a.b.c"},
		{"X_Gateway-Assertion", "a.b.c"},
		{"X-Account-Id", "1"},
		{"X_ACCOUNT_ID", "1"},
		{"X-Request-Id", "1"},
		{"X_Request_Id", "1"},
		{"X-HTTP-Method-Override", "DELETE"},
		{"X_HTTP_Method_Override", "DELETE"},
		{"X-Method-Override", "DELETE"},
		{"X-HTTP-Method", "DELETE"},
		{"X-Original-URL", "/admin"},
		{"X_Original_Url", "/admin"},
		{"X-Rewrite-URL", "/admin"},
		{"Proxy", "http://evil.example"},
		{"Forwarded", "for=192.0.2.7"},
		{"X-Real-IP", "192.0.2.7"},
		{"X-Forwarded-Port", "7"},
		{"X-Forwarded-User", "mallory"},
		{"X-Forwarded-Ssl", "on"},
		{"X-Forwarded-Prefix", "/admin"},
		{"X_Forwarded_Prefix", "/admin"},
		{"X-Business.Id", "18"},
		{"X.Business.Id", "18"},
		{"X-Business!Id", "18"},
		{"X-Business~Id", "18"},
		{"X-Account+Id", "1"},
		{"X-Gateway'Assertion", "a.b.c"},
		{"X-HTTP-Method~Override", "DELETE"},
		{"X_Forwarded_For", "192.0.2.7"},
		{"X-Forwarded*For", "192.0.2.7"},
		{"X_Forwarded_Host", "evil.example"},
		{"X-Forwarded!Proto", "gopher"},
	}
	connection := []field{{"Connection", "X-Business-Id"}, {"Connection", "close, x-request-id, X-Kept"}}
	lenient := &protected{attack: &attack{environment: p.environment, data: p.data}}
	o := p.options(highLimits, "")
	o.Servers = "expected_underscore_headers X_Business_Id X-Business_Id X_Forwarded_For X_Forwarded_Host\n\t\t" +
		"expected_dot_headers X-Business.Id X.Business.Id" // which Caddy drops otherwise
	o.Site = "gatehouse_auth shop\n\treverse_proxy " + strings.TrimPrefix(p.dataURL, "http://")
	lenient.serve(t, o)
	for protocol := range p.over {
		for _, f := range append([]field{{"X-Kept", "1"}}, forged...) {
			send := p.over[protocol]
			if strings.ContainsAny(f.name, "_.") {
				send = lenient.over[protocol]
			}
			fields := append(signedFields(p.reads, "GET", "/", ""), f)
			a := send("GET", "/", fields)
			require.Equal(t, 200, a.Status, "%s %v: %s", protocol, f, a.Body)
			got := p.data.last(t)
			require.Equal(t, []string{p.business}, got.Header["X-Business-Id"], "%s %v", protocol, f)
			require.Equal(t, a.Header["X-Request-Id"], got.Header["X-Request-Id"])
			for name, values := range got.Header {
				if name == "X-Kept" || name == "X-Business-Id" || name == "X-Request-Id" {
					continue
				}
				require.NotContains(t, values, f.value, "%s %v as %s", protocol, f, name)
			}
		}
	}
	a := p.over[overHTTP1]("GET", "/", append(append(signedFields(p.reads, "GET", "/", ""), field{"X-Kept", "1"}), connection...))
	require.Equal(t, 200, a.Status)
	got := p.data.last(t)
	require.Equal(t, []string{p.business}, got.Header["X-Business-Id"])
	require.NotEmpty(t, got.Header["X-Request-Id"])
	require.NotContains(t, got.Header, "X-Kept")

	t.Run("trailers", func(t *testing.T) {
		fields := signedFields(p.writes, "POST", "/t", "body")
		a := raw(t, p.g.Addr, "POST /t HTTP/1.1\r\nHost: x\r\nTrailer: X-Business-Id\r\nTransfer-Encoding: chunked\r\n"+linesOf(fields)+
			"\r\n4\r\nbody\r\n0\r\nX-Business-Id: 18\r\n\r\n")
		require.Equal(t, 200, a.Status, a.Body)
		got := p.data.last(t)
		require.Equal(t, []string{p.business}, got.Header["X-Business-Id"])
		require.Empty(t, got.Trailer)
		require.Equal(t, int64(4), got.ContentLength, "the body has a length now")
	})
}

func TestProtectedServiceGetsNoAmbiguousPaths(t *testing.T) {
	t.Parallel()
	for name, block := range map[string]string{
		"":             "%s",
		"handle":       "handle /a/* {\n%s\n}",
		"handle_path":  "handle_path /a/* {\n%s\n}",
		"rewrite":      "rewrite * /fixed\n%s",
		"strip_prefix": "uri strip_prefix /a\n%s",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProtected(t)
			site := fmt.Sprintf(block, "gatehouse_auth shop\nreverse_proxy "+strings.TrimPrefix(p.dataURL, "http://"))
			g := gatewaytest.Start(t, gatewaytest.Options{Global: p.options(highLimits, "").Global, Site: site})
			ask := func(target string) gatewaytest.Response {
				return raw(t, g.Addr, "GET "+target+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+linesOf(signedFields(p.reads, "GET", target, ""))+"\r\n")
			}
			for _, target := range []string{"/a/b", "/a/b%20c?x=../y//z", "/a/%e2%82%ac", "/a/b.", "/a/...", "/a/%41"} {
				require.Equal(t, 200, ask(target).Status, target)
			}
			n := p.data.count()
			for _, target := range []string{
				"/a/../b", "/a/./b", "/a/..", "/a/.", "//a/b", "/a//b", "/a/b;c", "/a/b\\c", "/a/%2e%2e/b", "/a/%2E/b", "/a/b%2fc", "/a/b%2Fc", "/a/%5c",
				"/a/b%00", "/a/%2e./b", "/a/.%2e/b", "/a/%252e%252e/b", "/a/b%25252Fc", "/a/%255C",
			} {
				if a := ask(target); !strings.HasPrefix(name, "handle") { // outside of handle, Caddy responds
					require.Equal(t, 400, a.Status, target)
				}
			}
			require.Equal(t, n, p.data.count())
		})
	}
}

//nolint:tparallel // the subtests share a data service
func TestProtectedServiceGetsNoRequestsThatCannotBeSigned(t *testing.T) {
	t.Parallel()
	p := protect(t, highLimits, "", "max_body 1KiB", "")
	n := p.data.count()
	t.Run("gRPC", func(t *testing.T) {
		a := p.over[overHTTP2]("POST", "/x", append(signedFields(p.writes, "POST", "/x", ""), field{"content-type", "application/grpc+proto"}))
		requireProblem(t, a, 400, "BAD_REQUEST")
	})
	t.Run("CONNECT", func(t *testing.T) {
		for protocol, send := range p.over {
			a := send("CONNECT", "/x", signedFields(p.writes, "CONNECT", "/x", ""))
			require.NotEqual(t, 200, a.Status, protocol)
		}
	})
	t.Run("extended CONNECT", func(t *testing.T) { // RFC 8441 and RFC 9220
		fields := lowerCase(signedFields(p.writes, "CONNECT", "/x", ""))
		extended := func(request []field) []field {
			return append(append([]field{{":protocol", "websocket"}}, request...), fields...)
		}
		require.NotEqual(t, 200, dialH2(t, p.g.Addr).do("", extended(h2Request("CONNECT", "/x"))...).Status)
		a := p.h3.do("", extended(h3Request("CONNECT", "/x"))...)
		requireProblem(t, a, 400, "BAD_REQUEST")
	})
	t.Run("a WebSocket handshake with a body", func(t *testing.T) {
		a := raw(t, p.g.Addr, "GET /x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n"+
			linesOf(signedFields(p.reads, "GET", "/x", "hi"))+"\r\nhi"+lastRequest)
		requireProblem(t, a, 400, "BAD_REQUEST")
	})
	t.Run("a body above max_body", func(t *testing.T) {
		body := strings.Repeat("x", 1025)
		requireProblem(t, p.writes.Do(t, "POST", p.g.URL, "/x", []byte(body)), 413, "BODY_TOO_LARGE")
	})
	t.Run("a body cut short", func(t *testing.T) {
		conn := dial(t, p.g.Addr, "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"+linesOf(signedFields(p.writes, "POST", "/x", "body"))+"\r\nbo")
		require.NoError(t, conn.Close())
	})
	require.Equal(t, n, p.data.count())
	p.data.setResponse(func(w http.ResponseWriter, r *http.Request) {
		got, _ := io.ReadAll(r.Body)
		_, _ = w.Write(got)
	})
	t.Run("a body of max_body", func(t *testing.T) {
		body := strings.Repeat("x", 1024)
		a := p.writes.Do(t, "POST", p.g.URL, "/x", []byte(body))
		require.Equal(t, 200, a.Status)
		require.Equal(t, body, a.Body)
	})
	t.Run("another upgrade is not one", func(t *testing.T) {
		a := raw(t, p.g.Addr, "GET /x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"+
			linesOf(signedFields(p.reads, "GET", "/x", ""))+"\r\n"+lastRequest)
		require.Equal(t, 200, a.Status)
		require.NotContains(t, p.data.last(t).Header, "Upgrade")
		require.NotContains(t, p.data.last(t).Header, "Http2-Settings")
	})
	t.Run("nor is it one with a body", func(t *testing.T) { // as Java's HttpClient sends every request over http
		a := raw(t, p.g.Addr, "POST /x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nContent-Length: 2\r\n"+
			linesOf(signedFields(p.writes, "POST", "/x", "hi"))+"\r\nhi"+lastRequest, "POST")
		require.Equal(t, 200, a.Status)
		require.Equal(t, "hi", a.Body)
		require.NotContains(t, p.data.last(t).Header, "Upgrade")
	})
}

// echo upgrades and returns what it gets.
func echo(w http.ResponseWriter, r *http.Request) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Request-Id: its own\r\nRateLimit: its own\r\nX-Was: %s\r\n\r\n", r.Header.Get("X-Business-Id"))
	_ = rw.Flush()
	_, _ = io.Copy(conn, rw)
}

func TestWebSocketEndsWithItsLifetime(t *testing.T) {
	t.Parallel()
	p := protect(t, highLimits, "", "max_lifetime 2s", "")
	p.data.setResponse(echo)
	conn := dial(t, p.g.Addr, "GET /socket HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"+linesOf(signedFields(p.reads, "GET", "/socket", ""))+"\r\n")
	res, err := http.ReadResponse(conn.r, nil)
	require.NoError(t, err)
	_ = res.Body.Close()
	require.Equal(t, http.StatusSwitchingProtocols, res.StatusCode)
	require.Equal(t, p.business, res.Header.Get("X-Was"))
	for _, name := range []string{"X-Request-Id", "Ratelimit"} {
		require.Len(t, res.Header[name], 1, name)
		require.NotEqual(t, "its own", res.Header.Get(name))
	}
	start := time.Now()
	for _, text := range []string{"ping", strings.Repeat("x", 64<<10)} {
		_, err = io.WriteString(conn, text)
		require.NoError(t, err)
		got := make([]byte, len(text))
		_, err = io.ReadFull(conn.r, got)
		require.NoError(t, err)
		require.Equal(t, text, string(got))
	}
	conn.requireClosed(t)
	require.Greater(t, time.Since(start), time.Second)
	require.Eventually(t, func() bool { return strings.Contains(p.g.Output(), `"route":"shop","operation":"any","status":101`) }, patience, 10*time.Millisecond)
}

// What a key that has been revoked can still read has a bound. The caller must not take what it got for the whole.
func TestResponseEndsWithItsLifetime(t *testing.T) {
	t.Parallel()
	respond := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/none" {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: x\n\n")
			_ = http.NewResponseController(w).Flush()
		}
		for r.URL.Path == "/endless" {
			if _, err := io.WriteString(w, "data: x\n\n"); err != nil {
				return
			}
		}
		<-r.Context().Done()
	})
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() { _ = fcgi.Serve(listener, respond) }() // ends with its listener
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "index.php"), []byte("x"), 0o600))
	for name, behind := range map[string]string{"reverse_proxy": "", "php_fastcgi": "root * " + dir + "\n\tphp_fastcgi " + listener.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := protect(t, highLimits, "", "max_lifetime 1s", behind)
			p.data.setResponse(respond)
			for wire, c := range p.callersFrom(t, "127.0.0.1") {
				c.PublicKey, c.PrivateKey = p.reads.PublicKey, p.reads.PrivateKey
				targets := []string{"/endless"} // Caddy's FastCGI does not notice by itself
				if behind == "" {
					targets = append(targets, "/silent")
					assert.Equal(t, http.StatusGatewayTimeout, c.stream(t, "GET", "/none", "").status, wire)
				}
				for _, target := range targets {
					r := bufio.NewReader(c.stream(t, "GET", target, "").body)
					line, err := r.ReadString('\n')
					require.NoError(t, err)
					require.Equal(t, "data: x\n", line)
					_, err = io.Copy(io.Discard, r)
					require.Error(t, err, "%s %s: it must not end as if it were whole", wire, target)
				}
			}
		})
	}
}
