package upstream_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// requestFor returns the request for a data service that a caller's request leads to.
func requestFor(t testing.TB, r *http.Request, res *resource, q upstream.Query, assertion string) *http.Request {
	t.Helper()
	call := upstream.NewCall(r, res.Operation, q, mine, "req-1")
	out, err := call.NewRequest(r.Context(), assertion)
	require.NoError(t, err)
	return out
}

// forwarded returns which of a caller's headers a data service gets.
func forwarded(t *testing.T, h http.Header) http.Header {
	t.Helper()
	r := &http.Request{Method: http.MethodGet, URL: &url.URL{}, Header: h}
	out := requestFor(t, r, byName("business"), upstream.Query{Path: "/api/v1/business"}, "a.b.c")
	for name, value := range map[string]string{
		"Accept": "application/json", "Accept-Encoding": "identity",
		"X-Request-Id": "req-1", "X-Business-Id": mine, "X-Gateway-Assertion": "a.b.c",
	} {
		require.Equal(t, []string{value}, out.Header[name])
		delete(out.Header, name)
	}
	return out.Header
}

func TestFourHeadersOfTheCallerAreForwarded(t *testing.T) {
	t.Parallel()
	h := http.Header{
		"Accept-Language": {"sv, en;q=0.8"}, "User-Agent": {"Acme/1.0 (+https://acme.example)"},
		"Traceparent": {traceparent}, "Tracestate": {"a=1,\tb=2"},
	}
	require.Equal(t, h, forwarded(t, h))
}

func TestForgedAndCredentialHeadersAreRemoved(t *testing.T) {
	t.Parallel()
	h := http.Header{}
	for _, name := range []string{
		"X-Public-Key", "X-Timestamp", "X-Signature", "Authorization", "Proxy-Authorization", "Cookie", "Cookie2",
		"X-Business-Id", "x-business-id", "X_Business_Id", "X-Business_Id", "X.Business.Id", "X-BUSINESS-ID", "X-Business-Id ",
		"X-Business-Slug", "X-Gateway-Assertion", "x-gateway-assertion", "X-Request-Id", "X-User-Id", "X-Remote-User",
		"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Prefix",
		"X-Forwarded-User", "Forwarded", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "Client-Ip", "Via",
		"X-Http-Method", "X-Http-Method-Override", "X-Method-Override", "X-Original-Url", "X-Rewrite-Url", "X-Original-Uri",
		"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range", "Range", "Expect", "Te",
		"Trailer", "Transfer-Encoding", "Content-Length", "Content-Type", "Content-Encoding", "Upgrade", "Http2-Settings",
		"Connection", "Proxy-Connection", "Keep-Alive", "Accept", "Accept-Encoding", "Accept-Charset", "Origin", "Referer",
		"Cache-Control", "Pragma", "Host", "Early-Data", "Priority", "Dnt", "X-Anything", "", "\x00", "User-agent", "traceparent",
		"ACCEPT-LANGUAGE", "User_Agent", "B3", "X-B3-Traceid", "Baggage", "Proxy", "X-Amzn-Oidc-Data", "X-Goog-Iap-Jwt-Assertion",
		":path", "X-Envoy-Original-Path", "Server-Timing",
	} {
		h[name] = []string{"canary"}
	}
	require.Empty(t, forwarded(t, h))
}

func TestInvalidValuesOfForwardedHeadersAreRemoved(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 513)
	for name, invalid := range map[string][][]string{
		"User-Agent": {
			{"a", "b"}, {}, nil, {long[:257]}, {"a\r\nX-Business-Id: b2"}, {"a\x00"}, {"a\tb"}, {"n\xe4"}, {"ä"},
		},
		"Accept-Language": {{"sv", "en"}, {long}},
		"Traceparent": {
			{traceparent, traceparent},
			{"01" + traceparent[2:]},
			{strings.ToUpper(traceparent)},
			{traceparent + "-x"},
			{traceparent[:54]},
			{strings.Replace(traceparent, "-", "_", 1)},
			{"00-00000000000000000000000000000000-00f067aa0ba902b7-01"},
			{"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01"},
			{"00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01"},
			{"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0x"},
		},
		"Tracestate": {{"a=1"}}, // without a Traceparent
	} {
		for _, values := range invalid {
			assert.Empty(t, forwarded(t, http.Header{name: values}), "%s: %q", name, values)
		}
	}
	require.Equal(t, http.Header{"Traceparent": {traceparent}},
		forwarded(t, http.Header{"Traceparent": {traceparent}, "Tracestate": {long}}))
}

func TestDataServiceGetsTheGatewaysRequest(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodHead, "http://api.example.com/api/v1/events?x=1&count=500", strings.NewReader("body"))
	r.TransferEncoding = []string{"chunked"}
	r.Trailer = http.Header{"X-Business-Id": {theirs}}
	r.Form = url.Values{"business_id": {theirs}}
	for name, value := range map[string]string{
		"X-Business-Id": theirs, "X-Gateway-Assertion": "forged", "X-Request-Id": "forged", "Connection": "X-Business-Id, close",
		"Cookie": "a=b", "User-Agent": "Acme/1.0", "Accept": "text/html", "Accept-Encoding": "gzip", "Traceparent": traceparent,
	} {
		r.Header.Set(name, value)
	}
	before := r.Header.Clone()
	res := byName("events")
	q, err := res.CleanQuery(r.URL.RawQuery)
	require.NoError(t, err)
	out := requestFor(t, r, res, q, "a.b.c")

	require.Equal(t, http.MethodGet, out.Method)
	require.Equal(t, "/api/v1/events?count=100", out.URL.String())
	require.Equal(t, "/api/v1/events?count=100", out.RequestURI)
	require.Equal(t, "api.example.com", out.Host)
	require.Equal(t, http.Header{
		"Accept": {"application/json"}, "Accept-Encoding": {"identity"}, "X-Request-Id": {"req-1"}, "X-Business-Id": {mine},
		"X-Gateway-Assertion": {"a.b.c"}, "User-Agent": {"Acme/1.0"}, "Traceparent": {traceparent},
	}, out.Header)
	require.Nil(t, out.Body)
	require.Zero(t, out.ContentLength)
	require.Empty(t, out.TransferEncoding)
	require.Empty(t, out.Trailer)
	require.Empty(t, out.Form)

	require.Equal(t, http.MethodHead, r.Method, "the caller's request is the server's")
	require.Equal(t, before, r.Header)
	require.Equal(t, "x=1&count=500", r.URL.RawQuery)

	// A proxy that appends to one header does not change another.
	for _, name := range []string{"Accept", "Accept-Encoding", "X-Request-Id", "X-Business-Id", "X-Gateway-Assertion"} {
		out.Header[name] = append(out.Header[name], "appended")
	}
	assert.Equal(t, []string{mine, "appended"}, out.Header["X-Business-Id"])
	assert.Equal(t, []string{"a.b.c", "appended"}, out.Header["X-Gateway-Assertion"])
}

func TestForgedAssertionIsRemovedWithoutAnAsserter(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodGet, "/api/v1/business", http.NoBody)
	r.Header.Set("X-Gateway-Assertion", "forged")
	out := requestFor(t, r, byName("business"), upstream.Query{Path: "/api/v1/business"}, "")
	assert.NotContains(t, out.Header, "X-Gateway-Assertion")
	assert.Equal(t, "/api/v1/business", out.RequestURI)
	assert.Empty(t, out.URL.RawQuery)
}

func TestIdentityMustFitIntoAHeader(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", " ", "a b", "a\r\nX: y", "a\x00", "bé", "\x7f", strings.Repeat("a", 257)} {
		for _, call := range []upstream.Call{{BusinessID: bad, RequestID: "r", Path: "/"}, {BusinessID: "b", RequestID: bad, Path: "/"}} {
			out, err := call.NewRequest(t.Context(), "")
			require.ErrorIs(t, err, upstream.ErrIdentity, "%q", bad)
			assert.Nil(t, out)
		}
	}
}

// The standard library's reverse proxy removes the headers that Connection nominates.
func TestConnectionCannotRemoveTheGatewaysHeaders(t *testing.T) {
	t.Parallel()
	got := make(chan http.Header, 1)
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Clone() }))
	t.Cleanup(service.Close)
	to, err := url.Parse(service.URL)
	require.NoError(t, err)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	for _, connection := range [][]string{
		{"X-Business-Id"},
		{"close, X-Business-Id, X-Request-Id, X-Gateway-Assertion"},
		{"x-business-id", "X-GATEWAY-ASSERTION"},
		{"keep-alive", "X-Business-Id,,X-Request-Id"},
		{"Accept, Host, Content-Length, X-Business-Id;q=1"},
	} {
		r := httptest.NewRequest(http.MethodGet, "http://api.example.com/api/v1/business", http.NoBody)
		r.Header["Connection"] = connection
		out := requestFor(t, r, byName("business"), upstream.Query{Path: "/api/v1/business"}, "a.b.c")
		w := httptest.NewRecorder()
		proxy.ServeHTTP(w, out)
		require.Equal(t, http.StatusOK, w.Code)
		h := <-got
		for name, want := range map[string]string{
			"X-Business-Id": mine, "X-Request-Id": "req-1", "X-Gateway-Assertion": "a.b.c", "Accept": "application/json",
		} {
			assert.Equal(t, []string{want}, h[name], connection)
		}
	}
}

func BenchmarkNewRequest(b *testing.B) {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/events?count=5", http.NoBody)
	for i := range 12 {
		r.Header.Set(fmt.Sprintf("X-Other-%d", i), "value")
	}
	r.Header.Set("User-Agent", "Acme/1.0")
	res := byName("events")
	q, err := res.CleanQuery("count=5")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		call := upstream.NewCall(r, res.Operation, q, mine, "req-1")
		if _, err := call.NewRequest(b.Context(), "a.b.c"); err != nil {
			b.Fatal(err)
		}
	}
}
