package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// gatewayHeaders are headers that the gateway sets or relies on, or that other software uses to identify callers.
var gatewayHeaders = []string{
	"X-Business-Id", "X-Request-Id", "X-Gateway-Assertion", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Via",
	"X-Public-Key", "X-Timestamp", "X-Signature", "Host", "Accept", "Accept-Encoding", "Accept-Language", "User-Agent", "Traceparent", "Tracestate",
	"Content-Length", "Transfer-Encoding", "Content-Type", "Expect", "Te", "Trailer", "Upgrade", "Connection", "Keep-Alive", "Proxy-Connection",
	"Date", "Cache-Control", "Retry-After", "RateLimit", "RateLimit-Policy", "X-RateLimit-Remaining", "X-Content-Type-Options",
	"Authorization", "Cookie", "Forwarded", "X-Real-Ip", "X-Business_Id", "x_business_id",
}

// nominations nominate each of gatewayHeaders alone, in a list, repeated, and in headers similar to Connection.
func nominations() [][]field {
	var all [][]field
	for _, name := range gatewayHeaders {
		all = append(all,
			[]field{{"Connection", name}},
			[]field{{"connection", "keep-alive, " + strings.ToLower(name)}},
			[]field{{"Connection", "close"}, {"Connection", name}},
			[]field{{"Connection", name}, {"Connection", name + "," + name}, {"CONNECTION", "\t" + strings.ToUpper(name) + " ,"}},
			[]field{{"Proxy-Connection", name}, {"Keep-Alive", name}, {"Connection", "Keep-Alive"}},
		)
	}
	return append(all,
		[]field{{"Connection", strings.Join(gatewayHeaders, ",")}},
		[]field{{"Connection", " ,, " + strings.Join(gatewayHeaders, " ,\t") + ","}},
		[]field{{"Connection", strings.Repeat("X-Business-Id,", 500)}},
		[]field{{"Connection", "*"}},
		[]field{{"Connection", "Upgrade, X-Business-Id"}, {"Upgrade", "websocket"}, {"Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="}, {"Sec-WebSocket-Version", "13"}},
		[]field{{"Connection", "Upgrade, HTTP2-Settings, X-Forwarded-For"}, {"Upgrade", "h2c"}, {"HTTP2-Settings", "AAMAAABkAAQAoAAAAAIAAAAA"}},
	)
}

func TestNominatedHeadersAreNotRemoved(t *testing.T) {
	t.Parallel()
	w := newAttack(t, "", "assertion "+writeAssertionKey(t), "")
	for i, n := range nominations() {
		forged := append([]field{{"X-Business-Id", w.otherID}, {"X-Gateway-Assertion", "forged"}, {"X-Forwarded-For", "198.51.100.1"}}, n...)
		before := w.data.count()
		a := w.over[overHTTP1]("GET", eventsPath, append(forged, signedFields(w.acme, "GET", eventsPath, "")...))
		require.Equal(t, http.StatusOK, a.Status, "%v: %s", n, a.Body)
		require.Equal(t, before+1, w.data.count())
		got := w.data.last(t)
		requireGatewayHeaders(t, w.environment, overHTTP1, got, a)
		require.NotEmpty(t, got.Header.Get("X-Gateway-Assertion"), "%v", n)
		require.NotEqual(t, "forged", got.Header.Get("X-Gateway-Assertion"))
		// the response keeps the gateway's headers too, and the request counts against the key
		require.Contains(t, a.Header.Get("RateLimit-Policy"), `"key"`, "%v", n)
		for _, name := range []string{"Date", "Cache-Control", "RateLimit", "X-RateLimit-Remaining", "X-Content-Type-Options"} {
			assert.NotEmpty(t, a.Header.Get(name), "%v: %s", n, name)
		}
		// the same without a signature
		if i%4 != 0 { // the limit is sixty a minute
			continue
		}
		a = w.over[overHTTP1]("GET", eventsPath, append(forged, field{"X-Public-Key", w.acme.PublicKey}))
		requireProblem(t, a, http.StatusUnauthorized, "MISSING_CREDENTIALS")
		assert.Equal(t, before+1, w.data.count())
	}
	// HTTP/2 and HTTP/3 have no such headers: a request with one is malformed (RFC 9113, section 8.2.2; RFC 9114, section 4.2)
	for _, protocol := range []string{overHTTP2, overHTTP3} {
		for _, header := range []string{"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "te"} {
			for _, value := range []string{"x-business-id", "x-forwarded-for, x-request-id", strings.Join(gatewayHeaders, ","), "chunked", "trailers"} {
				before := w.data.count()
				a := w.over[protocol]("GET", eventsPath, append([]field{{header, value}, {header, value}}, signedFields(w.acme, "GET", eventsPath, "")...))
				if a.Status == http.StatusOK {
					requireGatewayHeaders(t, w.environment, protocol, w.data.last(t), a)
					require.NotEmpty(t, w.data.last(t).Header.Get("X-Gateway-Assertion"))
					continue
				}
				assert.Contains(t, []int{0, http.StatusBadRequest}, a.Status, "%s %s: %s", protocol, header, value)
				assert.Equal(t, before, w.data.count())
			}
		}
		assert.Equal(t, http.StatusOK, w.over[protocol]("GET", eventsPath, signedFields(w.acme, "GET", eventsPath, "")).Status, "other requests are served")
	}
}

func TestErrorsOfOtherHandlersKeepRetryAfter(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	o := w.options("", "")
	o.Env = []string{"HELP=https://help.example"}
	o.Site = "header /maintenance Retry-After 3600\n\terror /maintenance 503\n\tgatehouse_api {\n\t\tdocs {env.HELP}/errors\n\t\tupstream " + w.dataURL + "\n\t}"
	g := gatewaytest.Start(t, o)
	a := anonymous().Get(t, g.URL, "/maintenance")
	requireProblem(t, a, http.StatusServiceUnavailable, "SERVICE_UNAVAILABLE")
	require.Equal(t, []string{"3600"}, a.Header["Retry-After"])
	require.NotContains(t, a.Body, "retry_after")
	require.Contains(t, a.Body, `"docs":"https://help.example/errors"`)
	require.Contains(t, anonymous().Get(t, g.URL, "/api/v1/me").Body, `"docs":"https://help.example/errors"`)
}

func TestNominatedResponseHeadersAreNotRemoved(t *testing.T) {
	t.Parallel()
	w := newAttack(t, "", "", "")
	w.data.setResponse(func(rw http.ResponseWriter, r *http.Request) {
		h := rw.Header()
		h["Connection"] = []string{strings.Join(gatewayHeaders, ", "), "close"}
		h.Set("Keep-Alive", "X-Request-Id")
		h.Set("X-Request-Id", r.Header.Get("X-Request-Id")) // another one is rejected
		h.Set("RateLimit-Policy", "forged")
		h.Set("Retry-After", "7")
		h.Set("Trailer", "X-Request-Id")
		h.Set("Content-Type", "application/json")
		_, _ = io.WriteString(rw, `{"events":[]}`)
		h.Set(http.TrailerPrefix+"X-Request-Id", "forged")
	})
	for protocol, send := range w.over {
		a := send("GET", eventsPath, signedFields(w.acme, "GET", eventsPath, ""))
		requireJSON(t, a)
		require.Len(t, a.Header["X-Request-Id"], 1, protocol)
		require.Contains(t, a.Header.Get("RateLimit-Policy"), `"key"`)
		require.Equal(t, "nosniff", a.Header.Get("X-Content-Type-Options"))
		require.Equal(t, "no-store", a.Header.Get("Cache-Control"))
		require.Empty(t, a.Header.Get("Retry-After"))
		gatewaytest.RequireNowhere(t, fmt.Sprint(a.Header, a.Body), "forged")
	}
}

// Caddy changes values in place, and each response has those of the configuration.
func TestReplacementInOneResponseDoesNotChangeTheNext(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	o := w.options(highLimits, "deprecated jobs 2027-01-31 2027-07-31 https://docs.example.com/jobs")
	o.Site = "header >Link docs old.docs\n\t" + o.Site
	g := gatewaytest.Start(t, o)
	for range 3 {
		require.Equal(t, "<https://old.docs.example.com/jobs>; rel=\"deprecation\"; type=\"text/html\"",
			w.acme.Get(t, g.URL, "/api/v1/jobs").Header.Get("Link"))
	}
}

func TestNominatedXForwardedForStillNamesTheClientIP(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	o := w.options("", "")
	o.Servers = trustLoopback
	g, h3 := startEverywhere(t, o)
	over := wires(t, g, h3)
	for protocol, address := range map[string]string{overHTTP1: "203.0.113.1", overHTTP2: "203.0.113.2", overHTTP3: "203.0.113.3"} {
		assert.Equal(t, map[int]int{http.StatusOK: 10, http.StatusTooManyRequests: 10}, statuses(20, func(i int) gatewaytest.Response {
			fields := []field{{"X-Forwarded-For", fmt.Sprintf("198.51.100.%d, %s", i, address)}}
			if protocol == overHTTP1 {
				fields = append(fields, []field{
					{"Connection", "X-Forwarded-For"},
					{"Connection", "close, x-forwarded-for, X-Real-Ip"},
					{"Connection", "X-Forwarded-For, X-Forwarded-For"},
					{"Keep-Alive", "X-Forwarded-For"},
				}[i%4])
			}
			return over[protocol](http.MethodGet, "/api/v1/status", fields)
		}), protocol)
	}
}

// requireGatewayHeaders requires that the data service received the gateway's values, and no other headers.
func requireGatewayHeaders(t *testing.T, w *environment, protocol string, got *http.Request, a gatewaytest.Response) {
	t.Helper()
	scheme := map[string]string{overHTTP1: "http", overHTTP2: "http", overHTTP3: "https"}[protocol]
	require.Equal(t, []string{w.acmeID}, got.Header["X-Business-Id"])
	require.Equal(t, a.Header["X-Request-Id"], got.Header["X-Request-Id"])
	require.Equal(t, []string{"127.0.0.1"}, got.Header["X-Forwarded-For"])
	require.Equal(t, []string{scheme}, got.Header["X-Forwarded-Proto"])
	require.Equal(t, []string{apiHost}, got.Header["X-Forwarded-Host"])
	require.Equal(t, []string{"application/json"}, got.Header["Accept"])
	require.Equal(t, []string{"identity"}, got.Header["Accept-Encoding"])
	require.Equal(t, "GET", got.Method)
	require.Equal(t, eventsPath+"?count=10", got.RequestURI)
	require.Zero(t, got.ContentLength)
	require.NotEmpty(t, got.Header["Via"])
	allowed := []string{
		"Accept", "Accept-Encoding", "Accept-Language", "User-Agent", "Via", "X-Business-Id", "X-Request-Id", "X-Gateway-Assertion",
		"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Traceparent", "Tracestate",
	}
	for name := range got.Header {
		require.Contains(t, allowed, name)
	}
}

func TestForgedHeadersAreNotForwarded(t *testing.T) {
	t.Parallel()
	w := newAttack(t, "", "", "")
	forged := []field{
		{"Proxy-Authorization", "Basic canary"},
		{"Authorization", "Bearer canary"},
		{"Cookie", "session=canary"},
		{"Referer", "https://evil.example.com/?secret=canary"},
		{"X-Forwarded-For", "198.51.100.2, 127.0.0.1"},
		{"X-Forwarded-Host", "evil.example.com"},
		{"X-Forwarded-Proto", "https"},
		{"X-Forwarded-Port", "443"},
		{"Forwarded", `for=198.51.100.1;host=evil.example.com;proto=https`},
		{"Via", "1.1 evil"},
		{"X-Sendfile", "/etc/passwd"},
		{"Accept", "text/html"},
		{"Accept-Encoding", "gzip, br"},
		{"Range", "bytes=0-1"},
		{"If-None-Match", "*"},
		{"If-Modified-Since", "Sat, 01 Jan 2050 00:00:00 GMT"},
		{"Content-Type", "text/html"},
		{"Content-Encoding", "gzip"},
		{"Destination", "http://evil.example.com/"},
		{"Max-Forwards", "0"},
		{"Early-Data", "1"},
		{"Priority", "u=0"},
		{"Origin", "https://evil.example.com"},
		{"Sec-Fetch-Site", "cross-site"},
		{"Traceparent", "00-zz-zz-00"},
		{"Accept-Language", "de"},
		{"User-Agent", "agent/1"},
	}
	for value, names := range map[string][]string{
		w.otherID: {"X-Business-Id", "X-Business-Id", "X_Business_Id", "X-Business_Id", "X.Business.Id", "X-Business-ID-"},
		"forged": {
			"X-Business-Name", "X-Business-Slug", "X-Request-Id", "X_Request_Id", "X-Gateway-Assertion", "X_Gateway_Assertion", "X-Forwarded-Server",
		},
		"198.51.100.1": {
			"X-Forwarded-For", "X_Forwarded_For", "X-Real-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "Client-Ip",
		},
		"DELETE": {"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"},
		"/admin": {"X-Forwarded-Prefix", "X-Original-Url", "X-Rewrite-Url", "X-Original-Uri", "X-Accel-Redirect"},
	} {
		for _, name := range names {
			forged = append(forged, field{name, value})
		}
	}
	for protocol, send := range w.over {
		before := w.data.count()
		a := send("GET", eventsPath, append(forged, signedFields(w.acme, "GET", eventsPath, "")...))
		require.Equal(t, http.StatusOK, a.Status, "%s: %s", protocol, a.Body)
		require.Equal(t, before+1, w.data.count())
		got := w.data.last(t)
		requireGatewayHeaders(t, w.environment, protocol, got, a)
		gatewaytest.RequireNowhere(t, fmt.Sprint(got.Header), "forged", "canary", "evil", w.otherID, "198.51.100", "DELETE", "/admin")
		require.NotContains(t, got.Header, "Traceparent", "it is malformed")
		require.Equal(t, "de", got.Header.Get("Accept-Language"))
		require.Equal(t, "agent/1", got.Header.Get("User-Agent"))

		// overrides do not change the method
		for _, method := range []string{"POST", "DELETE"} {
			a = send(method, eventsPath, append([]field{{"X-Http-Method-Override", "GET"}, {"X-Http-Method", "GET"}, {"X-Method-Override", "GET"}},
				signedFields(w.acme, method, eventsPath, "")...))
			requireProblem(t, a, http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED")
			a = send(method, "/api/v1/me", append([]field{{"X-Http-Method-Override", "GET"}}, signedFields(w.acme, "GET", "/api/v1/me", "")...))
			requireProblem(t, a, http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED")
		}
		assert.Equal(t, before+1, w.data.count())
	}
	gatewaytest.RequireNowhere(t, w.g.Output(), "canary")
}

func TestSigningHeadersMustBeGivenOnceUnderTheirOwnNames(t *testing.T) {
	t.Parallel()
	w := newAttack(t, trustLoopback, "", "")
	for protocol, over := range w.over {
		send := func(method, target string, fields []field) gatewaytest.Response {
			return over(method, target, w.from(fields))
		}
		good := func() []field { return signedFields(w.acme, "GET", eventsPath, "") }
		require.Equal(t, http.StatusOK, send("GET", eventsPath, good()).Status, protocol)
		before := w.data.count()
		for i, name := range []string{"X-Public-Key", "X-Timestamp", "X-Signature"} {
			for _, other := range []string{
				strings.ReplaceAll(name, "-", "_"), strings.ReplaceAll(name, "-", "."), strings.Replace(name, "-", "_", 1),
				name + "-", "X-" + name, strings.TrimPrefix(name, "X-"),
			} {
				fields := good()
				fields[i].name = other
				a := send("GET", eventsPath, fields)
				requireProblem(t, a, http.StatusUnauthorized, "MISSING_CREDENTIALS")
				// next to the right one, another spelling is another header
				require.Equal(t, http.StatusOK, send("GET", eventsPath, append(good(), field{other, "rubbish"})).Status, "%s %s", protocol, other)
				before++
			}
			for _, second := range []string{good()[i].value, "", "rubbish"} {
				a := send("GET", eventsPath, append(good(), field{name, second}))
				requireProblem(t, a, http.StatusUnauthorized, "MISSING_CREDENTIALS")
				a = send("GET", eventsPath, append([]field{{strings.ToLower(name), second}}, good()...))
				requireProblem(t, a, http.StatusUnauthorized, "MISSING_CREDENTIALS")
			}
			fields := good()
			fields[i].value += ", " + fields[i].value // a list
			requireProblem(t, send("GET", eventsPath, fields), http.StatusUnauthorized, "INVALID_CREDENTIALS")
		}
		assert.Equal(t, before, w.data.count(), protocol)
	}
}

// CR, LF and NUL in names and values: the request is rejected, or what follows them is not part of another header.
func TestControlCharactersCannotSplitHeaders(t *testing.T) {
	t.Parallel()
	w := newAttack(t, "", "", "")
	for protocol, send := range w.over {
		for _, f := range []field{
			{"X-Note", "a\r\n"},
			{"X-Note", "a\nX-Business-Id: " + w.otherID},
			{"X-Note", "a\rX-Business-Id: " + w.otherID},
			{"X-Note", "a\x00b"},
			{"X-Note", "a\x01\x1f\x7fb"},
			{"X-Note\x00", "a"},
			{"X-Note\n", "a"},
			{"X Note", "a"},
			{"X-Note ", "a"},
			{"X-Business-Id\x00", w.otherID},
			{"X-Business-Id ", w.otherID},
			{" X-Business-Id", w.otherID},
			{"X-Business-Id\t", w.otherID},
			{"X-Business-Id\r", w.otherID},
			{"", w.otherID},
			{":method", "DELETE"},
			{":path", "/admin"},
			{"Host", "evil.example.com"},
			{"User-Agent", "a\x00b"},
			{"Accept-Language", "de\nX-Business-Id: " + w.otherID},
		} {
			before := w.data.count()
			a := send("GET", eventsPath, append([]field{f}, signedFields(w.acme, "GET", eventsPath, "")...))
			if a.Status != http.StatusOK {
				require.Equal(t, before, w.data.count(), "%s %q: %d", protocol, f, a.Status)
				// 401: the headers ended there, before those of the signature
				require.Contains(t, []int{0, http.StatusBadRequest, http.StatusUnauthorized}, a.Status, "%s %q: %s", protocol, f, a.Body)
				continue
			}
			got := w.data.last(t)
			require.Equal(t, []string{w.acmeID}, got.Header["X-Business-Id"], "%s %q", protocol, f)
			require.Equal(t, eventsPath+"?count=10", got.RequestURI)
			gatewaytest.RequireNowhere(t, fmt.Sprint(got.Header), w.otherID, "evil")
		}
		// in the signing headers themselves
		for i := range 3 {
			for _, bad := range []string{"\x00", "\r", "\n", "\x7f", "\x01"} {
				for _, place := range []func(v string) string{
					func(v string) string { return v + bad },
					func(v string) string { return bad + v },
					func(v string) string { return v[:4] + bad + v[4:] },
				} {
					fields := signedFields(w.acme, "GET", eventsPath, "")
					fields[i].value = place(fields[i].value)
					before := w.data.count()
					a := send("GET", eventsPath, fields)
					if a.Status == http.StatusOK {
						// a bare LF ends a header line of HTTP/1.1, so the value was complete
						require.Equal(t, "HTTP/1.1", protocol)
						require.Equal(t, "\n", bad)
						continue
					}
					assert.Contains(t, []int{0, http.StatusBadRequest, http.StatusUnauthorized}, a.Status, "%s %q", protocol, fields[i])
					assert.Equal(t, before, w.data.count())
				}
			}
		}
	}
}

func TestFoldedHeaderIsOneHeader(t *testing.T) {
	t.Parallel()
	data := &recorder{}
	w := newEnvironment(t, data)
	g := w.unlimited(t)
	head := "GET " + eventsPath + " HTTP/1.1\r\nHost: api.example.com\r\n"
	for _, folded := range []string{
		"X-Note: a\r\n X-Business-Id: " + w.otherID + "\r\n",
		"X-Note: a\r\n\tX-Business-Id: " + w.otherID + "\r\n",
		"X-Note:\r\n X-Business-Id: " + w.otherID + "\r\n",
		"Connection: close,\r\n X-Business-Id\r\n",
		"X-Business-Id:\r\n " + w.otherID + "\r\n",
		"X-Note: a\r\n \r\n",
	} {
		before := data.count()
		a := raw(t, g.Addr, head+folded+signedLines(w.acme, "GET", eventsPath, "")+"\r\n"+lastRequest)
		if a.Status == http.StatusOK {
			requireGatewayHeaders(t, w, overHTTP1, data.last(t), a)
			continue
		}
		assert.Equal(t, http.StatusBadRequest, a.Status, "%q", folded)
		assert.Equal(t, before, data.count())
	}
	// a folded signature is not a signature
	lines := signedLines(w.acme, "GET", eventsPath, "")
	at := len(lines) - 2 - 32
	before := data.count()
	a := raw(t, g.Addr, head+lines[:at]+"\r\n "+lines[at:]+"\r\n"+lastRequest)
	require.Contains(t, []int{http.StatusBadRequest, http.StatusUnauthorized}, a.Status)
	// the first header line cannot be folded
	a = raw(t, g.Addr, "GET "+eventsPath+" HTTP/1.1\r\n Host: x\r\n"+lines+"\r\n"+lastRequest)
	assert.Equal(t, http.StatusBadRequest, a.Status)
	assert.Equal(t, before, data.count())
}

// Headers up to about 16 KiB are accepted; net/http rejects larger ones with 431 before any handler.
func TestManyAndLargeHeaders(t *testing.T) {
	t.Parallel()
	w := newAttack(t, "", "", "")
	fill := func(n int, name func(i int) string, value string) []field {
		fields := make([]field, n, n+3)
		for i := range fields {
			fields[i] = field{name(i), value}
		}
		return fields
	}
	numbered := func(i int) string { return "X-F-" + strconv.Itoa(i) }
	identity := func(int) string { return "X-Business-Id" }
	for protocol, send := range w.over {
		for name, tc := range map[string]struct {
			fields []field
			served bool
		}{
			"a hundred":          {fill(100, numbered, "v"), true},
			"a hundred the same": {fill(100, identity, w.otherID), true},
			// HTTP/2 counts 32 bytes more for each
			"a thousand":           {fill(1000, numbered, "v"), protocol == "HTTP/1.1"},
			"a thousand the same":  {fill(1000, identity, "2"), protocol == "HTTP/1.1"},
			"a megabyte in one":    {[]field{{"X-F", strings.Repeat("x", 1<<20)}}, false},
			"a megabyte of a name": {[]field{{strings.Repeat("x", 1<<20), "v"}}, false},
			"a megabyte in many":   {fill(200, numbered, strings.Repeat("x", 5000)), false},
		} {
			before := w.data.count()
			a := send("GET", eventsPath, append(tc.fields, signedFields(w.acme, "GET", eventsPath, "")...))
			if tc.served {
				require.Equal(t, http.StatusOK, a.Status, "%s, %s", protocol, name)
				require.Equal(t, before+1, w.data.count())
				requireGatewayHeaders(t, w.environment, protocol, w.data.last(t), a)
				continue
			}
			assert.Contains(t, []int{0, http.StatusRequestHeaderFieldsTooLarge}, a.Status, "%s, %s", protocol, name)
			assert.Equal(t, before, w.data.count(), "%s, %s", protocol, name)
		}
		assert.Equal(t, http.StatusOK, w.acme.Get(t, w.g.URL, eventsPath).Status, "other requests are served")
	}
}
