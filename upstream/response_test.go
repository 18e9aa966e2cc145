package upstream_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

func TestOnlyStatus200WithJSONIsAccepted(t *testing.T) {
	t.Parallel()
	res := byName("events")
	json := http.Header{"Content-Type": {"application/json"}}
	for _, contentType := range []string{
		"application/json", "application/json; charset=utf-8", `application/json;charset="UTF-8"`, "Application/JSON",
		"application/json; charset=utf8",
	} {
		h := http.Header{"Content-Type": {contentType}, "Content-Encoding": {"identity"}}
		require.NoError(t, res.checkHeader(200, h), contentType)
	}
	require.NoError(t, res.checkHeader(200, json))
	for _, contentType := range [][]string{
		nil,
		{""},
		{"text/html"},
		{"text/json"},
		{"application/json", "text/html"},
		{"application/problem+json"},
		{"application/json; charset=iso-8859-1"},
		{"application/jsonp"},
		{"application/json, text/html"},
		{"application/json;;"},
	} {
		err := res.checkHeader(200, http.Header{"Content-Type": contentType})
		require.ErrorIs(t, err, upstream.ErrContractViolation, contentType)
	}
	json["Location"] = []string{"http://10.0.0.7/"}
	for _, status := range []int{100, 201, 202, 204, 206, 301, 302, 304, 307, 400, 401, 403, 404, 405, 410, 422, 429, 500, 502, 503, 504, 599} {
		err := res.checkHeader(status, json)
		require.ErrorIs(t, err, upstream.ErrContractViolation, status)
		assert.NotContains(t, err.Error(), "10.0.0.7")
	}
	_, err := res.CheckHeader(304, http.Header{}, true)
	require.ErrorIs(t, err, upstream.ErrContractViolation, "the request had If-None-Match, but the service was not told")
	require.EqualError(t, res.checkHeader(404, nil), "upstream response violates the contract: events: expected status 200, not 404")
	require.ErrorContains(t, res.checkHeader(401, nil), "status 200, not 401: the data service rejects the gateway's assertion",
		"the log must name what a 401 is about")
}

func TestRetryAfterIsForwardedWithinBounds(t *testing.T) {
	t.Parallel()
	now := testClock()
	for value, want := range map[string]time.Duration{
		"0": time.Second, "1": time.Second, "30": 30 * time.Second, "3601": time.Hour, "99999999999999999999999": time.Hour,
		now.Add(90 * time.Second).Format(http.TimeFormat): 90 * time.Second,
		now.Add(-time.Hour).Format(http.TimeFormat):       time.Second,
		now.Add(48 * time.Hour).Format(http.TimeFormat):   time.Hour,
		"Fri, 31 Dec 9999 23:59:59 GMT":                   time.Hour,
	} {
		h := http.Header{"Retry-After": {value}}
		d, ok := upstream.RetryAfter(h, now)
		require.True(t, ok, value)
		require.Equal(t, want, d, value)
		err := byName("jobs").checkHeader(503, h)
		require.ErrorIs(t, err, upstream.ErrUpstreamUnavailable, value)
		require.NotErrorIs(t, err, upstream.ErrContractViolation)
		require.ErrorIs(t, byName("jobs").checkHeader(500, h), upstream.ErrContractViolation)
	}
	d, ok := upstream.RetryAfter(http.Header{"Retry-After": {now.Add(time.Minute).Format(http.TimeFormat)}}, now.Add(-500*time.Millisecond))
	require.True(t, ok)
	require.Equal(t, 61*time.Second, d, "rounded up")
	for _, values := range [][]string{nil, {""}, {"-1"}, {"1.5"}, {"soon"}, {"1", "2"}, {"+5"}, {" 5"}} {
		h := http.Header{"Retry-After": values}
		_, ok := upstream.RetryAfter(h, now)
		assert.False(t, ok, values)
		require.ErrorIs(t, byName("jobs").checkHeader(503, h), upstream.ErrContractViolation, values)
	}
}

func TestHeadersOfDataServicesAreRemoved(t *testing.T) {
	t.Parallel()
	h := http.Header{}
	for _, name := range []string{
		"Server", "X-Powered-By", "Via", "Set-Cookie", "Set-Cookie2", "Location", "Content-Location", "Link", "Refresh", "Etag",
		"Last-Modified", "Vary", "Date", "Age", "Expires", "Trailer", "Transfer-Encoding", "Connection", "Alt-Svc", "X-Request-Id",
		"X-Business-Id", "Access-Control-Allow-Origin", "Www-Authenticate", "Ratelimit", "X-Ratelimit-Remaining", "Retry-After",
		"Content-Encoding", "Content-Disposition", "Content-Range", "Strict-Transport-Security", "X-Debug", "Server-Timing",
		"deprecation", "SUNSET", "",
	} {
		h[name] = []string{"canary 10.0.0.7"}
	}
	h["Content-Type"], h["Content-Length"] = []string{"text/html"}, []string{"1"}
	h["Cache-Control"] = []string{"public, max-age=600"}
	own := http.Header{"X-Request-Id": {"own"}}
	upstream.ForwardHeaders(own, h)
	require.Equal(t, http.Header{"X-Request-Id": {"own"}}, own)
}

func TestDeprecationAndSunsetAreForwarded(t *testing.T) {
	t.Parallel()
	h := http.Header{"Deprecation": {"@1688169599"}, "Sunset": {"Sat, 31 Dec 2028 23:59:59 GMT"}}
	out := http.Header{}
	upstream.ForwardHeaders(out, h)
	require.Equal(t, h, out)
	out = http.Header{"Deprecation": {"@1"}}
	upstream.ForwardHeaders(out, h)
	require.Equal(t, []string{"@1"}, out["Deprecation"], "what the operator has announced counts")
	const end = "Sat, 31 Dec 2028 23:59:59 GMT"
	for name, invalid := range map[string][][]string{
		"Deprecation": {{"true"}, {"@"}, {"1688169599"}, {"@1;x=10.0.0.7"}, {"@1", "@2"}, {"@1234567890123456"}},
		"Sunset":      {{"@1688169599"}, {"soon"}, {end, end}, {}},
	} {
		for _, values := range invalid {
			out := http.Header{}
			upstream.ForwardHeaders(out, http.Header{name: values})
			assert.Empty(t, out, values)
		}
	}
}
