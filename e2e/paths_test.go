package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// similarTargets returns targets that some server, proxy or file system treats as /api/v1/<name>, some of them by way of the unsigned
// /status.
func similarTargets(name string) []string {
	upper, title := strings.ToUpper(name), strings.ToUpper(name[:1])+name[1:]
	first := fmt.Sprintf("%%%02x%s", name[0], name[1:])
	return []string{
		// case
		"/API/v1/" + name, "/api/V1/" + name, "/Api/v1/" + name, "/api/v1/" + upper, "/api/v1/" + title,
		// doubled slashes
		"//api/v1/" + name, "///api/v1/" + name, "/api//v1/" + name, "/api/v1//" + name, "/api/v1///" + name, "//x/api/v1/" + name,
		// dot segments
		"/./api/v1/" + name, "/api/./v1/" + name, "/api/v1/./" + name, "/api/v1/" + name + "/.", "/../api/v1/" + name, "/x/../api/v1/" + name,
		"/api/x/../v1/" + name, "/api/v1/../v1/" + name, "/api/v1/x/../" + name, "/api/v1/" + name + "/..", "/api/v1/" + name + "/../" + name,
		"/api/v1/.../" + name, "/api/v1/.." + name,
		// the same encoded, once and twice, and half
		"/%2e/api/v1/" + name, "/api/v1/%2e/" + name, "/api/v1/%2E%2E/v1/" + name, "/api/v1/.%2e/v1/" + name, "/api/v1/x/%2e%2e/" + name,
		"/api/v1/%252e%252e/v1/" + name, "/api/v1/x/%2e%2e%2f" + name,
		// slashes
		"/api/v1%2f" + name, "/api%2fv1/" + name, "/api%2Fv1%2F" + name, "/api/v1/%2f" + name, "/api/v1/" + name + "%2f", "%2fapi/v1/" + name,
		"/api/v1%252f" + name, "/api/v1%c0%af" + name, "/api/v1%ef%bc%8f" + name, "/api/v1\xc0\xaf" + name,
		// backslashes
		`\api\v1\` + name, `/api\v1\` + name, `/api/v1\` + name, "/api/v1%5c" + name, "/api/v1/%5c" + name, "/api/v1/" + name + "%5c", `/api/v1/` + name + `\`,
		`/api/v1/x\..\` + name, "/api/v1/x%5c..%5c" + name,
		// path parameters
		"/api/v1/" + name + ";", "/api/v1/" + name + ";x=1", "/api/v1;x/" + name, "/api;x/v1/" + name, "/;/api/v1/" + name, "/api/v1/;/" + name,
		"/api/v1/" + name + ";jsessionid=1?count=1", "/api/v1/" + name + "%3b", "/api/v1/..;/v1/" + name, "/api/v1/x/..;/" + name,
		// suffixes
		"/api/v1/" + name + "/", "/api/v1/" + name + "//", "/api/v1/" + name + "/?", "/api/v1/" + name + ".", "/api/v1/" + name + "..", "/api/v1/" + name + "%2e",
		"/api/v1/" + name + "%20", "/api/v1/" + name + "%09", "/api/v1/" + name + "%00", "/api/v1/" + name + "%0a", "/api/v1/" + name + "%0d%0a",
		"/api/v1/" + name + ".json", "/api/v1/" + name + "~", "/api/v1/" + name + "*", "/api/v1/" + name + "::$DATA", "/api/v1/" + name + "/1", "/api/v1/" + name + "%7f",
		// prefixes
		"/api/v1/ " + name, "/api/v1/%20" + name, "/api/v1/%00" + name, "/ api/v1/" + name,
		// question marks and fragments
		"/api/v1?/" + name, "/api/v1/?" + name, "/api/v1/" + name + "%3f", "/api/v1/" + name + "%3Fcount=1", "/api/v1/" + name + "#", "/api/v1/" + name + "#x",
		"/api/v1/" + name + "?#", "/api/v1/" + name + "?count=1#x", "/api/v1/#/" + name, "/#/api/v1/" + name, "/api/v1/" + name + "%23", "#/api/v1/" + name,
		// encoded letters
		"/api/v1/" + first, "/%61pi/v1/" + name, "/api/%761/" + name, "/api/v1/%25" + first[1:], "/api/v1/%u0073" + name,
		// invalid UTF-8, and similar characters
		"/api/v1/\xff" + name, "/api/v1/" + name + "\xff", "/api/v1/" + name + "\xc0\x80", "/api/v1/" + name + "%ff", "/api/v1/" + name + "%c0%80", "/api/v1/" + name + "\u200b",
		"/\u0430pi/v1/" + name, "/api\u2215v1\u2215" + name,
		// invalid escapes, which net/http rejects in plain text before any handler
		"/api/v1/" + name + "%", "/api/v1/" + name + "%2", "/api/v1/" + name + "%zz", "/api/v1/%2/" + name,
		// from unsigned to signed paths
		"/api/v1/status/../" + name, "/api/v1/status/..;/" + name, "/api/v1/status;/../" + name, "/api/v1/status/%2e%2e/" + name, "/api/v1/status%2f..%2f" + name,
		`/api/v1/status\..\` + name, "/api/v1/status%5c..%5c" + name, "/api/v1/status//../" + name, "/api/v1/status/" + name, "/api/v1/status%00/../" + name,
		"/api/v1/status#/../" + name, "/api/v1/status%3f/../" + name, "/api/v1/status%23/../" + name, "/healthz/../api/v1/" + name, "/readyz/../api/v1/" + name,
		// other paths
		"/", "/api", "/api/v1", "/api/v1/", "/api/v2/" + name, "/api/v1/" + name + "es", "/api/v1/" + name + "/1", "/healthz/",
		// targets that are not paths
		"*", "api/v1/" + name, "api.example.com", "api.example.com:80", "api.example.com/api/v1/" + name, "?/api/v1/" + name, ":80/api/v1/" + name,
		"//api.example.com/api/v1/" + name, "http:/api/v1/" + name, "http:api/v1/" + name, "http:///api/v1/./" + name, "http://", "http://x", "http://x?/api/v1/" + name, "http://x#/api/v1/" + name,
		"http://x//api/v1/" + name, "http://x/./api/v1/" + name, "http://x/api/v1/x/../" + name, "http://x/api/v1/" + name + "/", "http://x/api/v1/" + upper, "http://x/api/v1%2f" + name,
		"http://x/http://x/api/v1/" + name, "http://x/api/v1/status/../" + name, "file:///api/v1/../" + name, "/http://x/api/v1/" + name,
	}
}

// requireRejected requires an error of the contract, a 400 of net/http in plain text, or no response.
func requireRejected(t *testing.T, a gatewaytest.Response, what string) {
	t.Helper()
	switch {
	case a.Status == 0: // the connection or the stream was ended
	case a.Status == http.StatusBadRequest && !strings.HasPrefix(a.Body, "{"):
	case a.Status == http.StatusBadRequest:
		requireProblem(t, a, http.StatusBadRequest, "BAD_REQUEST")
	default:
		require.Equal(t, http.StatusNotFound, a.Status, "%q: %s", what, a.Body)
		requireProblem(t, a, http.StatusNotFound, "NOT_FOUND")
	}
}

// Only the exact path is served: no other spelling is, whether unsigned, signed as sent, or signed as the path that it resembles.
func TestOnlyExactPathsAreServed(t *testing.T) {
	t.Parallel()
	w := newAttack(t, trustLoopback, "", "")
	reached := 0
	for protocol, send := range w.over {
		for _, name := range []string{"status", "me", "events"} {
			exact := "/api/v1/" + name
			for _, target := range similarTargets(name) {
				for _, fields := range [][]field{nil, signedFields(w.acme, "GET", target, ""), signedFields(w.acme, "GET", exact, "")} {
					requireRejected(t, send("GET", target, w.from(fields)), protocol+" "+target)
				}
			}
			assert.Equal(t, http.StatusOK, send("GET", exact, w.from(signedFields(w.acme, "GET", exact, ""))).Status, "the exact path is not served")
		}
		reached++
		assert.Equal(t, reached, w.data.count(), "over %s, only the exact path has reached the data service", protocol)
	}
}

// A query is not a path: /status responds the same whatever its query contains.
func TestStatusReachesNoSignedResource(t *testing.T) {
	t.Parallel()
	w := newAttack(t, "", "", "")
	for protocol, send := range w.over {
		for _, query := range []string{
			"", "?", "??", "?/../events", "?/api/v1/events", "?path=/api/v1/events", "?count=abc", "?count=1&count=2", "?%2e%2e/events", "?\\..\\events", "?;/../events",
			"?http://x/api/v1/events", "?%00", "?%zz", "?\xff", "?" + strings.Repeat("x", 8<<10),
		} {
			for _, method := range []string{"GET", "HEAD"} {
				a := send(method, "/api/v1/status"+query, []field{
					{"X-Original-Url", "/api/v1/events"},
					{"X-Rewrite-Url", "/api/v1/events"},
					{"X-Forwarded-Uri", "/api/v1/events"},
					{"X-Forwarded-Prefix", "/api/v1/events/.."},
				})
				require.Equal(t, http.StatusOK, a.Status, "%s %s /api/v1/status%.80q", protocol, method, query)
				if method == "GET" {
					require.JSONEq(t, `{"status":"ok","api_version":"v1"}`, a.Body)
				}
			}
		}
		// nor does a signature for another path change that
		a := send("GET", "/api/v1/status", signedFields(w.acme, "GET", "/api/v1/events", ""))
		require.JSONEq(t, `{"status":"ok","api_version":"v1"}`, a.Body)
	}
	require.Zero(t, w.data.count())
}

// The query is signed as sent, byte for byte; only known parameters are forwarded.
func TestQueryIsServedAsSigned(t *testing.T) {
	t.Parallel()
	w := newAttack(t, trustLoopback, "", "")
	for protocol, send := range w.over {
		for query, forwarded := range map[string]string{
			"": "?count=10", "?": "?count=10", "?count=500&x=%00&%63ursor=1": "?count=100", "?count=3": "?count=3", "?c%6funt=3": "?count=3", "?%63%6F%75%6E%74=%33": "?count=3", "?Count=3": "?count=10",
			"?count=3&": "?count=3", "?&&count=3": "?count=3", "?a=1;count=3": "?count=10", "?count=+3": "", "?x=%2e%2e/&count=4": "?count=4",
			"?business_id=" + w.otherID: "?count=10", "?/../contacts?count=3": "?count=10", "?x=%zz&count=5": "?count=5", "?x=\xff&count=6": "?count=6",
			"?x=/api/v1/contacts&count=7": "?count=7", "?count[]=3": "?count=10", "?count%00=3": "?count=10", "?count=3%26count=4": "",
			"?x=" + strings.Repeat("y", 8<<10) + "&count=8": "?count=8",
		} {
			target := eventsPath + query
			before := w.data.count()
			a := send("GET", target, w.from(signedFields(w.acme, "GET", target, "")))
			if forwarded == "" {
				requireProblem(t, a, http.StatusBadRequest, "INVALID_PARAMETER")
				require.Equal(t, before, w.data.count())
			} else {
				require.Equal(t, http.StatusOK, a.Status, "%s %.80q: %s", protocol, target, a.Body)
				require.Equal(t, before+1, w.data.count())
				require.Equal(t, eventsPath+forwarded, w.data.last(t).RequestURI, "%.80q", target)
			}
			before = w.data.count()
			for _, other := range []string{target + "&", target + "?", strings.ReplaceAll(target, "%", "%25"), strings.ToLower(target), eventsPath, "/api/v1/contacts" + query} {
				if other != target {
					requireProblem(t, send("GET", target, w.from(signedFields(w.acme, "GET", other, ""))), http.StatusUnauthorized, "INVALID_CREDENTIALS")
				}
			}
			assert.Equal(t, before, w.data.count())
		}
	}
}

// The absolute form (RFC 9112, section 3.2.2) is the same request, signed as the origin form.
func TestAbsoluteFormIsSignedAsOriginForm(t *testing.T) {
	t.Parallel()
	w := newAttack(t, trustLoopback, "", "")
	send := w.over[overHTTP1]
	for _, origin := range []string{"http://api.example.com", "http://other.example.com:8080", "http://127.0.0.1", "http://[::1]:80", "HTTP://API.EXAMPLE.COM", "https://api.example.com"} {
		for path, reaches := range map[string]int{"/api/v1/status": 0, "/api/v1/me": 0, eventsPath: 1, eventsPath + "?count=7&x=http://y/z": 1} {
			before := w.data.count()
			require.Equal(t, http.StatusOK, send("GET", origin+path, w.from(signedFields(w.acme, "GET", path, ""))).Status, "%s%s", origin, path)
			require.Equal(t, before+reaches, w.data.count())
			if path == "/api/v1/status" {
				continue
			}
			before = w.data.count()
			requireProblem(t, send("GET", origin+path, w.from(signedFields(w.acme, "GET", origin+path, ""))), http.StatusUnauthorized, "INVALID_CREDENTIALS")
			requireProblem(t, send("GET", origin+path, w.from(nil)), http.StatusUnauthorized, "MISSING_CREDENTIALS")
			assert.Equal(t, before, w.data.count())
		}
	}
	requireProblem(t, send("POST", "http://x/api/v1/me", w.from(signedFields(w.acme, "POST", "/api/v1/me", ""))), http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED")
}

// CONNECT and OPTIONS have their own target forms (authority-form and *). net/http would respond to OPTIONS * itself, whatever its
// framing.
func TestAuthorityAndAsteriskFormsReachNothing(t *testing.T) {
	t.Parallel()
	data := &recorder{}
	w := newEnvironment(t, data)
	g := w.unlimited(t)
	addr := strings.TrimPrefix(w.dataURL, "http://")
	for _, line := range []string{
		"CONNECT " + addr, "CONNECT api.example.com:443", "CONNECT /api/v1/events", "CONNECT *", "CONNECT http://" + addr + "/", "OPTIONS *", "OPTIONS /api/v1/nothing", "GET *", "HEAD *", "GET " + addr,
		"GET http://" + addr + "/api/v1/nothing", "GET http://" + addr + "/", "TRACE /", "PRI *",
	} {
		method, target, _ := strings.Cut(line, " ")
		for _, lines := range []string{"", signedLines(w.acme, method, target, ""), signedLines(w.acme, "GET", eventsPath, "")} {
			responses, closed := converse(t, g.Addr, line+" HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n"+lines+"\r\n", method)
			require.True(t, closed, line)
			require.LessOrEqual(t, len(responses), 1, line)
			for _, a := range responses {
				assert.GreaterOrEqual(t, a.Status, 400, line)
			}
		}
	}
	require.Zero(t, data.count())
}

// Request heads up to about 16 KiB are accepted; net/http rejects larger ones with 431 before any handler.
func TestOverlongTargetsAreRejected(t *testing.T) {
	t.Parallel()
	w := newAttack(t, "", "", "")
	for protocol, send := range w.over {
		for _, target := range []string{
			"/api/v1/" + strings.Repeat("e", 8<<10), "/api/v1/" + strings.Repeat("events/", 1000), eventsPath + strings.Repeat("/", 8<<10),
			eventsPath + strings.Repeat("%2f", 2000), "/api/v1/" + strings.Repeat("../", 2000) + "events", "http://" + strings.Repeat("x", 8<<10) + "/api/v1/./events",
		} {
			requireRejected(t, send("GET", target, signedFields(w.acme, "GET", target, "")), fmt.Sprintf("%s %.80q", protocol, target))
		}
		for _, target := range []string{"/api/v1/" + strings.Repeat("e", 64<<10), "/api/v1/" + strings.Repeat("e", 2<<20), eventsPath + "?" + strings.Repeat("x", 2<<20)} {
			a := send("GET", target, signedFields(w.acme, "GET", target, ""))
			assert.Contains(t, []int{0, http.StatusRequestHeaderFieldsTooLarge}, a.Status, "%s %.80q", protocol, target)
		}
	}
	assert.Zero(t, w.data.count())
	assert.Equal(t, http.StatusOK, w.acme.Get(t, w.g.URL, eventsPath).Status, "other requests are served")
}

// Every request below /api/v1 counts, however it is spelt; others reach nothing.
func TestEverySpellingBelowTheBasePathCounts(t *testing.T) {
	t.Parallel()
	data := &recorder{}
	w := newEnvironment(t, data)
	g := w.gateway(t)
	send := wires(t, g, nil)[overHTTP1]
	odd := []string{
		"/api/v1", "/api/v1/", "/api/v1?x", "/api/v1/Status", "/api/v1//status", "/api/v1/./status", "/api/v1/x/../status", "/api/v1/%73tatus", "/api/v1/status;x", "/api/v1/status/",
		"http://x/api/v1/status", "http://x/api/v1//status", "/api/v1/status?x", "/api/v1/status#x", "/api/v1/\xff",
	}
	counts := statuses(len(odd), func(i int) gatewaytest.Response { return send("GET", odd[i], nil) })
	require.Equal(t, 5, counts[http.StatusTooManyRequests], "%v", counts)
	for _, target := range []string{"//api/v1/status", "/API/v1/status", "/./api/v1/status", "/api%2fv1/status", "/api/v1;/status", "/api/v1%2fstatus"} {
		requireRejected(t, send("GET", target, nil), target)
	}
	// signed requests count against the key
	passed := 0
	for i := range 70 {
		target := odd[i%len(odd)]
		if strings.HasPrefix(target, "http:") {
			continue
		}
		if send("GET", target, signedFields(w.acme, "GET", target, "")).Status != http.StatusTooManyRequests {
			passed++
		}
	}
	assert.Equal(t, 60, passed)
	assert.Zero(t, data.count())
}
