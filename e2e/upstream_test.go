package e2e_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

func TestHopAssertionVerifiesWithPublishedKeys(t *testing.T) {
	t.Parallel()
	data := &recorder{}
	w := newEnvironment(t, data)
	o := w.options("assertion "+writeAssertionKey(t)+" {\n\t\t\tissuer https://api.example.com\n\t\t}", "")
	o.Site = "gatehouse_jwks\n\t" + o.Site
	g := gatewaytest.Start(t, o)
	a := w.acme.Get(t, g.URL, eventsPath)
	require.Equal(t, http.StatusOK, a.Status)
	verifier := &upstream.AssertionVerifier{
		Issuer: "https://api.example.com", Audience: "events",
		Keys: &upstream.RemoteKeys{URL: g.URL + "/.well-known/gatehouse-jwks.json"},
	}
	received := data.last(t).WithContext(t.Context()) // its own context has ended with the response
	claims, err := verifier.VerifyRequest(received)
	require.NoError(t, err)
	require.Equal(t, w.acmeID, claims.BusinessID)
	require.Equal(t, a.Header.Get("X-Request-Id"), claims.RequestID)
	verifier.Audience = "invoices"
	_, err = verifier.VerifyRequest(received)
	require.ErrorIs(t, err, upstream.ErrInvalidAssertion)

	require.Equal(t, http.StatusOK, anonymous().Get(t, g.URL, "/.well-known/gatehouse-jwks.json?t=1").Status, "clients add queries against caches")
	a = anonymous().Do(t, http.MethodPost, g.URL, "/.well-known/gatehouse-jwks.json", nil)
	requireProblem(t, a, http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED")
	require.Equal(t, "GET, HEAD", a.Header.Get("Allow"))
}

func TestEventsAreFilteredByTheContract(t *testing.T) {
	t.Parallel()
	data := &recorder{}
	w := newEnvironment(t, data)
	g := w.unlimited(t)
	event := func(business, status, id, at string) string {
		return fmt.Sprintf(`{"id":"00000000-0000-4000-8000-%012s","business_id":%q,"status":%q,"published_at":%q,"title":"t","secret_field":"x"}`,
			id, business, status, at)
	}
	data.setResponse(respondWith(200, "application/json", `{"events":[`+strings.Join([]string{
		event(w.acmeID, "published", "1", "2026-01-01T00:00:00Z"),
		event(w.acmeID, "draft", "2", "2026-01-09T00:00:00Z"),
		event(w.otherID, "published", "3", "2026-01-08T00:00:00Z"),
		event(w.acmeID, "published", "4", "2026-01-03T00:00:00Z"),
		event(w.acmeID, "archived", "5", "2026-01-07T00:00:00Z"),
		event(w.acmeID, "published", "6", "2026-01-02T00:00:00Z"),
	}, ",")+`],"next_cursor":"abc"}`))
	v := requireJSON(t, w.acme.Get(t, g.URL, "/api/v1/events?count=2"))
	require.Len(t, v, 1)
	var ids []string
	list, _ := v["events"].([]any)
	for _, e := range list {
		m, _ := e.(map[string]any)
		require.Len(t, m, 13)
		require.NotContains(t, m, "secret_field")
		require.Nil(t, m["venue"], "a field without a value is null, not missing")
		id, _ := m["id"].(string)
		ids = append(ids, id[35:])
	}
	require.Equal(t, []string{"4", "6"}, ids)
	requireLogged(t, g, `"event":"cross_tenant","rejected":false`)
}

func TestUpstreamPerResource(t *testing.T) {
	t.Parallel()
	rest := &recorder{}
	w := newEnvironment(t, rest)
	events, address := backends(t, 1)
	g := w.start(t, "", "upstream events "+address[0])
	rest.setResponse(respondWith(200, "application/json", `{"jobs":[],"pagination":{"current_page":1,"per_page":25,"total_items":0,"total_pages":0}}`))
	requireJSON(t, w.acme.Get(t, g.URL, eventsPath))
	requireJSON(t, w.acme.Get(t, g.URL, "/api/v1/jobs"))
	assert.Equal(t, 1, events[0].count())
	assert.Equal(t, 1, rest.count())
}

func TestReloadClosesUpstreamConnections(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	var open atomic.Int64
	srv := httptest.NewUnstartedServer(&recorder{})
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		open.Add(map[http.ConnState]int64{http.StateNew: 1, http.StateClosed: -1}[s])
	}
	srv.Start()
	t.Cleanup(srv.Close)
	w.dataURL = srv.URL
	g := w.gateway(t)
	requireJSON(t, w.acme.Get(t, g.URL, eventsPath))
	require.EqualValues(t, 1, open.Load())
	g.Reload(t)
	require.Eventually(t, func() bool { return open.Load() == 0 }, patience, 20*time.Millisecond, "connections of the old configuration")
}
