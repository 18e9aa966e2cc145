package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// recorder is a data service that keeps what it received and answers with what the test says.
type recorder struct {
	mu       sync.Mutex
	requests []*http.Request
	answer   http.HandlerFunc
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.requests = append(r.requests, req.Clone(req.Context()))
	answer := r.answer
	r.mu.Unlock()
	if answer != nil {
		answer(w, req)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"events":[]}`)
}

func (r *recorder) will(answer http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

func (r *recorder) last(t *testing.T) *http.Request {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	require.NotEmpty(t, r.requests)
	return r.requests[len(r.requests)-1]
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.requests)
}

func jsonAnswer(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	}
}

func TestTheDataServiceReceivesTheGatewaysWordAndNoneOfTheCallers(t *testing.T) {
	t.Parallel()
	data := &recorder{}
	w := newWorld(t, data)
	g := w.roomy(t)
	const target = "/api/v1/events?count=500&business_id=2&x=%00&%63ursor=1"
	now := time.Now().Unix()
	header := http.Header{
		authsigner.HeaderPublicKey: {w.acme.PublicKey},
		authsigner.HeaderTimestamp: {strconv.FormatInt(now, 10)},
		authsigner.HeaderSignature: {authsigner.Sign(w.acme.PrivateKey, now, "GET", target, nil)},
		"X-Business-Id":            {w.otherID}, "X_business_id": {w.otherID}, "X.Business.Id": {w.otherID},
		"X-Request-Id":        {"forged"},
		"X-Gateway-Assertion": {"forged"}, "X-Business-Slug": {"forged"},
		"Authorization": {"Bearer secret"}, "Cookie": {"session=1"},
		"X-Http-Method-Override": {"DELETE"}, "X-Original-Url": {"/admin"}, "X-Rewrite-Url": {"/admin"},
		"Range": {"bytes=0-1"}, "If-None-Match": {"*"}, "Te": {"trailers"}, "Accept-Encoding": {"gzip"},
		"X-Forwarded-For": {"198.51.100.1"}, "Forwarded": {"for=198.51.100.1"}, "X-Real-Ip": {"198.51.100.1"},
		"Accept-Language": {"de"}, "User-Agent": {"test/1"},
	}
	a, err := anonymous().Send(t.Context(), "GET", g.URL, target, header, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, a.Status, a.Body)

	got := data.last(t)
	require.Equal(t, "/api/v1/events?count=100", got.RequestURI)
	require.Equal(t, []string{w.acmeID}, got.Header["X-Business-Id"])
	require.Equal(t, []string{a.Header.Get("X-Request-Id")}, got.Header["X-Request-Id"])
	require.Equal(t, []string{"127.0.0.1"}, got.Header["X-Forwarded-For"])
	require.Equal(t, "de", got.Header.Get("Accept-Language"))
	require.Equal(t, "test/1", got.Header.Get("User-Agent"))
	var names []string
	for name := range got.Header {
		names = append(names, name)
	}
	require.ElementsMatch(t, []string{
		"Accept", "Accept-Encoding", "Accept-Language", "User-Agent", "Via",
		"X-Business-Id", "X-Request-Id", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
	}, names)
}

// raw sends bytes as they stand and reads one answer.
func raw(t *testing.T, addr, request string) gatewaytest.Answer {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(conn, request)
	require.NoError(t, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, res.Body.Close()) }()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return gatewaytest.Answer{Status: res.StatusCode, Header: res.Header, Body: string(body)}
}

// signedLines are the three headers for a raw request.
func signedLines(c gatewaytest.Caller, method, target, body string) string {
	now := time.Now().Unix()
	return fmt.Sprintf("X-Public-Key: %s\r\nX-Timestamp: %d\r\nX-Signature: %s\r\n",
		c.PublicKey, now, authsigner.Sign(c.PrivateKey, now, method, target, []byte(body)))
}

func TestConnectionHeaderCannotTakeTheGatewaysHeadersAway(t *testing.T) {
	t.Parallel()
	data := &recorder{}
	w := newWorld(t, data)
	key := writeAssertionKey(t)
	g := gatewaytest.Start(t, w.options("assertion "+key, ""))
	for _, nominated := range []string{
		"X-Business-Id", "x-business-id, X-Request-Id, X-Gateway-Assertion, X-Forwarded-For", "close, X-Business-Id",
		"X-Business-Id\r\nConnection: X-Gateway-Assertion",
	} {
		a := raw(t, g.Addr, "GET /api/v1/events HTTP/1.1\r\nHost: x\r\nConnection: "+nominated+"\r\nX-Business-Id: "+w.otherID+"\r\n"+
			signedLines(w.acme, "GET", "/api/v1/events", "")+"\r\n")
		require.Equal(t, http.StatusOK, a.Status, a.Body)
		got := data.last(t)
		require.Equal(t, []string{w.acmeID}, got.Header["X-Business-Id"], nominated)
		require.NotEmpty(t, got.Header.Get("X-Request-Id"))
		require.NotEmpty(t, got.Header.Get("X-Gateway-Assertion"))
		require.Equal(t, "127.0.0.1", got.Header.Get("X-Forwarded-For"))
	}
}

func TestTheHopAssertionVerifiesWithThePublishedKeys(t *testing.T) {
	t.Parallel()
	data := &recorder{}
	w := newWorld(t, data)
	key := writeAssertionKey(t)
	o := w.options("assertion "+key+" {\n\t\t\tissuer https://api.example.com\n\t\t}", "")
	o.Site = "gatehouse_jwks\n\t" + o.Site
	g := gatewaytest.Start(t, o)
	a := w.acme.Get(t, g.URL, "/api/v1/events")
	require.Equal(t, http.StatusOK, a.Status)
	verifier := &upstream.AssertionVerifier{
		Issuer: "https://api.example.com", Audience: "events",
		Keys: &upstream.RemoteKeys{URL: g.URL + "/.well-known/gatehouse-jwks.json"},
	}
	received := data.last(t).WithContext(t.Context()) // its own context ended with the answer
	claims, err := verifier.VerifyRequest(received)
	require.NoError(t, err)
	require.Equal(t, w.acmeID, claims.BusinessID)
	require.Equal(t, a.Header.Get("X-Request-Id"), claims.RequestID)
	verifier.Audience = "invoices"
	_, err = verifier.VerifyRequest(received)
	require.ErrorIs(t, err, upstream.ErrInvalidAssertion)
}

func event(business, status, id, at string) string {
	return fmt.Sprintf(`{"id":"00000000-0000-4000-8000-%012s","business_id":%q,"status":%q,"published_at":%q,"title":"t","secret_field":"x"}`,
		id, business, status, at)
}

func TestEventsAreHeldToTheContractWhateverTheDataServiceSends(t *testing.T) {
	t.Parallel()
	data := &recorder{}
	w := newWorld(t, data)
	g := w.roomy(t)
	data.will(jsonAnswer(`{"events":[` + strings.Join([]string{
		event(w.acmeID, "published", "1", "2026-01-01T00:00:00Z"),
		event(w.acmeID, "draft", "2", "2026-01-09T00:00:00Z"),
		event(w.otherID, "published", "3", "2026-01-08T00:00:00Z"),
		event(w.acmeID, "published", "4", "2026-01-03T00:00:00Z"),
		event(w.acmeID, "archived", "5", "2026-01-07T00:00:00Z"),
		event(w.acmeID, "published", "6", "2026-01-02T00:00:00Z"),
	}, ",") + `],"next_cursor":"abc"}`))
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
	requireLogged(t, g, "removed cross-tenant records")
}

func TestAnotherBusinesssRecordStopsTheWholeList(t *testing.T) {
	t.Parallel()
	data := &recorder{}
	w := newWorld(t, data)
	g := w.roomy(t)
	const page = `,"pagination":{"current_page":1,"per_page":25,"total_items":1,"total_pages":1}}`
	data.will(jsonAnswer(`{"contacts":[{"id":1,"business_id":"` + w.otherID + `","first_name":"Canary"}]` + page))
	a := w.acme.Get(t, g.URL, "/api/v1/contacts")
	requireProblem(t, a, http.StatusBadGateway, "UPSTREAM_FAILED")
	requireNowhere(t, a.Body+g.Output(), "Canary")
	data.will(jsonAnswer(`{"contacts":[{"id":1,"business_id":"` + w.acmeID + `","first_name":"Mine"}]` + page))
	requireJSON(t, w.acme.Get(t, g.URL, "/api/v1/contacts"))
}

func TestWhatIsNoContractAnswerBecomesTheContractsError(t *testing.T) {
	t.Parallel()
	data := &recorder{}
	w := newWorld(t, data)
	const limits = "limits {\n\t\t\tper_key 1000000\n\t\t}"
	g := gatewaytest.Start(t, w.options(limits, "max_response_size 64KiB"))
	// for those who stall: on a busy machine, others may take a second too
	impatient := gatewaytest.Start(t, w.options(limits, "timeout 1s\n\t\tmax_response_size 64KiB"))
	typed := func(status int, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.Header().Set("Server", "canary-banner/1.0")
			w.Header().Set("X-Internal-Host", "canary-host")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		status int
		code   string
	}{
		"html":         {typed(200, "text/html", "<h1>canary-body</h1>"), 502, "UPSTREAM_FAILED"},
		"html error":   {typed(500, "text/html", "<h1>canary-body at 10.1.2.3</h1>"), 502, "UPSTREAM_FAILED"},
		"json error":   {typed(500, "application/json", `{"trace":"canary-body"}`), 502, "UPSTREAM_FAILED"},
		"not found":    {typed(404, "application/json", `{"error":"canary-body"}`), 502, "UPSTREAM_FAILED"},
		"unauthorised": {typed(401, "application/json", `{}`), 502, "UPSTREAM_FAILED"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://canary-host/", http.StatusFound)
		}, 502, "UPSTREAM_FAILED"},
		"nothing":        {typed(200, "application/json", ""), 502, "UPSTREAM_FAILED"},
		"no content":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, 502, "UPSTREAM_FAILED"},
		"broken json":    {typed(200, "application/json", `{"events":[{]}`), 502, "UPSTREAM_FAILED"},
		"an array":       {typed(200, "application/json", `[]`), 502, "UPSTREAM_FAILED"},
		"another shape":  {typed(200, "application/json", `{"data":[]}`), 502, "UPSTREAM_FAILED"},
		"trailing data":  {typed(200, "application/json", `{"events":[]}{}`), 502, "UPSTREAM_FAILED"},
		"deep":           {typed(200, "application/json", `{"events":[],"x":`+strings.Repeat("[", 10000)+strings.Repeat("]", 10000)+`}`), 502, "UPSTREAM_FAILED"},
		"too large":      {typed(200, "application/json", `{"events":[],"x":"`+strings.Repeat("x", 100<<10)+`"}`), 502, "UPSTREAM_FAILED"},
		"stalls":         {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, 504, "UPSTREAM_TIMEOUT"},
		"stalls in body": {stallInBody, 504, "UPSTREAM_TIMEOUT"},
		"reset":          {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 502, "UPSTREAM_FAILED"},
		"reset in body":  {resetInBody, 502, "UPSTREAM_FAILED"},
		"come back later": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusServiceUnavailable)
		}, 503, "SERVICE_UNAVAILABLE"},
	} {
		data.will(tc.answer)
		start, asked := time.Now(), g
		if tc.status == http.StatusGatewayTimeout {
			asked = impatient
		}
		a := w.acme.Get(t, asked.URL, "/api/v1/events")
		require.Equal(t, tc.status, a.Status, "%s: %s", name, a.Body)
		requireProblem(t, a, tc.status, tc.code)
		if asked == impatient {
			require.Less(t, time.Since(start), 9*time.Second, "%s: sooner than by default", name)
		}
		if tc.status == 503 {
			require.Equal(t, "7", a.Header.Get("Retry-After"))
		}
		requireNowhere(t, a.Body+fmt.Sprint(a.Header), "canary-body", "canary-host", "canary-banner", "127.0.0.1")
	}
	requireNowhere(t, g.Output()+impatient.Output(), "canary-body")
	data.will(jsonAnswer(`{"events":[]}`))
	requireJSON(t, w.acme.Get(t, g.URL, "/api/v1/events"))
}

func stallInBody(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"events":[`)
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

func resetInBody(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"events":[`)
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func TestEachResourceCanHaveADataServiceOfItsOwn(t *testing.T) {
	t.Parallel()
	events, rest := &recorder{}, &recorder{}
	w := newWorld(t, rest)
	srv := httptest.NewServer(events)
	t.Cleanup(srv.Close)
	g := gatewaytest.Start(t, w.options("", "upstream events "+srv.URL))
	rest.will(jsonAnswer(`{"jobs":[],"pagination":{"current_page":1,"per_page":25,"total_items":0,"total_pages":0}}`))
	requireJSON(t, w.acme.Get(t, g.URL, "/api/v1/events"))
	requireJSON(t, w.acme.Get(t, g.URL, "/api/v1/jobs"))
	require.Equal(t, 1, events.count())
	require.Equal(t, 1, rest.count())
}

func TestOneOfTwoDataServicesMayDie(t *testing.T) {
	t.Parallel()
	a, b := httptest.NewServer(&recorder{}), httptest.NewServer(&recorder{})
	t.Cleanup(a.Close)
	w := newWorld(t, &recorder{})
	g := gatewaytest.Start(t, w.options("", "upstream events "+a.URL+" "+b.URL))
	for i := range 20 {
		if i == 5 {
			b.CloseClientConnections()
			b.Close()
		}
		requireJSON(t, w.acme.Get(t, g.URL, "/api/v1/events"))
	}
}

func TestDeprecationIsAnnounced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := gatewaytest.Start(t, w.options("", "deprecated jobs 2027-01-31 2027-07-31 https://docs.example.com/jobs"))
	a := w.acme.Get(t, g.URL, "/api/v1/jobs")
	require.Equal(t, "@1801353600", a.Header.Get("Deprecation"))
	require.Equal(t, "Sat, 31 Jul 2027 00:00:00 GMT", a.Header.Get("Sunset"))
	require.Contains(t, a.Header.Get("Link"), "https://docs.example.com/jobs")
	require.Empty(t, w.acme.Get(t, g.URL, "/api/v1/events").Header.Get("Deprecation"))
}

func TestTwoBusinessesNeverSeeEachOthersRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := w.roomy(t)
	seen := map[string]string{}
	for who, c := range map[string]gatewaytest.Caller{"acme": w.acme, "other": w.other} {
		for _, name := range []string{"contacts", "equipment", "estimates", "invoices", "jobs", "offerings", "events"} {
			query := "?per_page=100"
			if name == "events" {
				query = "?count=100"
			}
			var v map[string][]map[string]any
			a := c.Get(t, g.URL, "/api/v1/"+name+query)
			require.Equal(t, http.StatusOK, a.Status)
			var all map[string]json.RawMessage
			require.NoError(t, json.Unmarshal([]byte(a.Body), &all))
			v = map[string][]map[string]any{}
			var list []map[string]any
			require.NoError(t, json.Unmarshal(all[name], &list))
			v[name] = list
			for _, record := range v[name] {
				id := name + fmt.Sprint(record["id"])
				require.Contains(t, []string{"", who}, seen[id])
				seen[id] = who
			}
		}
	}
	require.Greater(t, len(seen), 100)
}
