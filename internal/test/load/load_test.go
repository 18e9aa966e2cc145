package load

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

func TestWrongResponsesAreFound(t *testing.T) {
	t.Parallel()
	request := httptest.NewRequest(http.MethodGet, "/", nil)
	request.URL.Opaque = "/api/v1/contacts?per_page=2"
	request.Header.Set("X-Business-Id", "b1")
	request.Header.Set("X-Request-Id", "r1")
	data := httptest.NewRecorder()
	request.URL.Path = "/api/v1/contacts"
	Data().ServeHTTP(data, request)
	success := gatewaytest.Response{Status: 200, Request: request, Body: data.Body.String(), Header: http.Header{
		"X-Request-Id": {"r1"}, "Content-Type": {"application/json"},
		"X-Ratelimit-Limit": {"60"}, "Ratelimit-Policy": {"p"}, "Ratelimit": {"r"},
	}}
	failure := gatewaytest.Response{Status: 401, Body: `{"error":"no","code":"MISSING_CREDENTIALS","request_id":"r1"}`, Header: http.Header{
		"X-Request-Id": {"r1"}, "Content-Type": {"application/json"},
	}}
	code, err := Check(&success, "b1")
	require.NoError(t, err)
	require.Empty(t, code)
	code, err = Check(&failure, "")
	require.NoError(t, err)
	require.Equal(t, "MISSING_CREDENTIALS", code)

	for name, test := range map[string]struct {
		of     gatewaytest.Response
		change func(*gatewaytest.Response)
		want   string
	}{
		"another business": {success, func(a *gatewaytest.Response) { a.Body = strings.ReplaceAll(a.Body, "b1 ", "b2 ") }, "CROSS-TENANT RECORD"},
		"another request":  {success, func(a *gatewaytest.Response) { a.Body = strings.ReplaceAll(a.Body, "r1", "r2") }, "CROSS-TENANT RECORD"},
		"no limit":         {success, func(a *gatewaytest.Response) { a.Header.Del("Ratelimit") }, "rate limit"},
		"another status":   {failure, func(a *gatewaytest.Response) { a.Status = 500 }, "contract"},
		"HTML":             {failure, func(a *gatewaytest.Response) { a.Body = "<html>" }, "JSON"},
		"twice":            {failure, func(a *gatewaytest.Response) { a.Body += a.Body }, "more than one"},
		"a banner":         {failure, func(a *gatewaytest.Response) { a.Header.Set("Server", "Caddy") }, "banner"},
		"no ID":            {failure, func(a *gatewaytest.Response) { a.Header.Del("X-Request-Id") }, "request ID"},
		"another ID":       {failure, func(a *gatewaytest.Response) { a.Header.Set("X-Request-Id", "r2") }, "another request"},
		"another type":     {failure, func(a *gatewaytest.Response) { a.Header.Set("Content-Type", "text/html") }, "type"},
		"503 without a delay": {failure, func(a *gatewaytest.Response) {
			a.Status, a.Body = 503, strings.Replace(a.Body, "MISSING_CREDENTIALS", "SERVICE_UNAVAILABLE", 1)
		}, "Retry-After"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := test.of
			a.Header = a.Header.Clone()
			test.change(&a)
			_, err := Check(&a, "b1")
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestRevealedSecretsAreFound(t *testing.T) {
	t.Parallel()
	l := &Load{o: Options{Hide: []string{"10.9.8.7"}}, private: []string{"private"}}
	require.NoError(t, l.revealed(&gatewaytest.Response{Body: "harmless"}))
	require.Error(t, l.revealed(&gatewaytest.Response{Body: "… private"}))
	require.Error(t, l.revealed(&gatewaytest.Response{Header: http.Header{"X": {"10.9.8.7"}}}))
	require.Error(t, l.revealed(&gatewaytest.Response{Body: "goroutine 1"}))
}

func TestExceededLimitIsFound(t *testing.T) {
	t.Parallel()
	r := &Report{}
	for i := range 70 {
		at := time.Now().Add(time.Duration(i) * time.Second)
		r.samples = append(r.samples, &Sample{Key: "k", Status: http.StatusOK, Sent: at, Done: at.Add(time.Millisecond)})
	}
	require.Equal(t, KeyLimit, r.Allowed(ByFleet, nil))
	require.Zero(t, r.OverLimit())
	r.samples = append(r.samples, &Sample{Key: "k", Status: http.StatusOK, Sent: r.samples[30].Sent, Done: r.samples[30].Done})
	require.Equal(t, 1, r.OverLimit())
}

func TestLoadCountsOutcomesThatAreNotAllowed(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Request-Id", "r1")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"error":"no","code":"NOT_FOUND","request_id":"r1"}`))
	}))
	t.Cleanup(s.Close)
	l := Start(t, Options{
		Gateways: []*gatewaytest.Gateway{{URL: s.URL}}, Callers: Callers(NewKeys(4, 2)), Rate: 200,
		Allow: func(s *Sample) bool { return s.Code == "NOT_FOUND" && s.Phase == "before" },
	})
	require.Eventually(t, func() bool { return l.Report().Phase("before").Requests > 30 }, timeout, time.Millisecond)
	l.Phase("after")
	require.Eventually(t, func() bool { return l.Report().Phase("after").Wrong > 3 }, timeout, time.Millisecond)
	l.end()
	r := l.Report()
	assert.Zero(t, r.Phase("before").Wrong)
	assert.Equal(t, r.Phase("after").Requests, r.Phase("after").By["404 NOT_FOUND"])
}
