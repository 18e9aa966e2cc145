package e2e_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

func TestStatusIsAnsweredToAnyone(t *testing.T) {
	t.Parallel()
	g := newWorld(t, nil).gateway(t)
	a := anonymous().Get(t, g.URL, "/api/v1/status")
	require.Equal(t, http.StatusOK, a.Status)
	require.JSONEq(t, `{"status":"ok","api_version":"v1"}`, a.Body)
	require.Equal(t, "10", a.Header.Get("X-RateLimit-Limit"))
	require.Equal(t, "9", a.Header.Get("X-RateLimit-Remaining"))
	require.NotEmpty(t, a.Header.Get("RateLimit"))
	require.NotEmpty(t, a.Header.Get("RateLimit-Policy"))
}

func TestMeIsAnsweredWhileTheDataServiceIsDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.dataURL = "http://" + gatewaytest.FreeAddr(t) // nobody listens there
	g := w.gateway(t)
	v := requireJSON(t, w.acme.Get(t, g.URL, "/api/v1/me"))
	b, _ := v["business"].(map[string]any)
	require.Equal(t, w.acmeID, b["id"])
	require.Len(t, b, 3)

	a := w.acme.Get(t, g.URL, "/api/v1/business")
	p := requireProblem(t, a, http.StatusServiceUnavailable, "SERVICE_UNAVAILABLE")
	require.NotEmpty(t, a.Header.Get("Retry-After"))
	require.Positive(t, p.RetryAfter)
}

func TestEveryListIsAnsweredWithItsPagination(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := w.roomy(t)
	for _, name := range []string{"contacts", "equipment", "estimates", "invoices", "jobs", "offerings"} {
		v := requireJSON(t, w.acme.Get(t, g.URL, "/api/v1/"+name))
		list, ok := v[name].([]any)
		require.True(t, ok, name)
		require.NotEmpty(t, list, name)
		require.LessOrEqual(t, len(list), 25)
		p, _ := v["pagination"].(map[string]any)
		require.EqualValues(t, 1, p["current_page"])
		require.EqualValues(t, 25, p["per_page"])
		require.Len(t, v, 2)

		for query, want := range map[string]float64{"per_page=0": 1, "per_page=-3": 1, "per_page=1000": 100, "per_page=99999999999999999999999": 100, "per_page=7": 7} {
			v := requireJSON(t, w.acme.Get(t, g.URL, "/api/v1/"+name+"?"+query))
			p, _ := v["pagination"].(map[string]any)
			require.InDelta(t, want, p["per_page"], 0, query)
		}
		v = requireJSON(t, w.acme.Get(t, g.URL, "/api/v1/"+name+"?page=999999"))
		require.Empty(t, v[name])
		require.NotNil(t, v[name])
	}
	v := requireJSON(t, w.acme.Get(t, g.URL, "/api/v1/business"))
	b, _ := v["business"].(map[string]any)
	require.Equal(t, w.acmeID, b["id"])
	require.Len(t, b, 8)
}

func TestEventsAreClampedToCountAndPublished(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := w.roomy(t)
	for query, most := range map[string]int{
		"": 10, "?count=3": 3, "?count=0": 1, "?count=-5": 1, "?count=101": 100, "?count=100": 100,
		"?count=99999999999999999999999999999999999999": 100, "?count=-99999999999999999999999999999": 1, "?count=007": 7,
		"?page=two&count=2": 2, // events know no page
	} {
		v := requireJSON(t, w.acme.Get(t, g.URL, "/api/v1/events"+query))
		list, ok := v["events"].([]any)
		require.True(t, ok)
		require.LessOrEqual(t, len(list), most, query)
		require.NotEmpty(t, list, query)
		require.Len(t, v, 1, "no pagination")
		for _, e := range list {
			event, _ := e.(map[string]any)
			require.NotContains(t, event, "status")
			require.NotContains(t, event, "business_id")
			require.Len(t, event, 13)
		}
	}
}

func TestParametersThatCannotBeReadAreRefusedByName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := w.roomy(t)
	for target, parameter := range map[string]string{
		"/api/v1/events?count=abc":             "count",
		"/api/v1/events?count=1.5":             "count",
		"/api/v1/events?count=":                "count",
		"/api/v1/events?count":                 "count",
		"/api/v1/events?count=1&count=2":       "count",
		"/api/v1/events?count=1&%63ount=1":     "count",
		"/api/v1/events?count=%EF%BC%91":       "count", // a full-width digit
		"/api/v1/events?count=1%20":            "count",
		"/api/v1/contacts?page=two":            "page",
		"/api/v1/contacts?per_page=ten":        "per_page",
		"/api/v1/contacts?status=a&status=b":   "status",
		"/api/v1/contacts?status=%FF":          "status",
		"/api/v1/jobs?status=draft&status=":    "status",
		"/api/v1/estimates?payment_status=%00": "payment_status",
	} {
		p := requireProblem(t, w.acme.Get(t, g.URL, target), http.StatusBadRequest, "INVALID_PARAMETER")
		require.Equal(t, parameter, p.Parameter, target)
		require.Contains(t, strings.ToLower(p.Error), parameter, target)
	}
}

func TestPathsAreMatchedExactlyAsSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := w.roomy(t)
	for _, target := range []string{
		"/", "/api", "/api/v1", "/api/v1/", "/api/v2/status", "/api/v1/Status", "/API/v1/status", "/api/v1/status/",
		"/api//v1/status", "//api/v1/status", "/api/v1//status", "/api/v1/./status", "/api/v1/x/../status",
		"/api/v1/%73tatus", "/api/v1/status%2f", "/api/v1/status%00", "/api/v1/status;x=1", "/api/v1/status.", "/api/v1/statuses",
		"/api/v1/events%3Fcount=1", "/api/v1/contacts/1", "/api%2fv1/status", "/api/v1%2fstatus", `/api/v1\status`, "/healthz/",
	} {
		for _, c := range []gatewaytest.Caller{anonymous(), w.acme} {
			requireProblem(t, c.Get(t, g.URL, target), http.StatusNotFound, "NOT_FOUND")
		}
	}
}

func TestOtherMethodsAreRefusedWithAllow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := w.roomy(t)
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "get"} {
		for _, path := range []string{"/api/v1/status", "/api/v1/events", "/api/v1/me"} {
			a := w.acme.Do(t, method, g.URL, path, nil)
			requireProblem(t, a, http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED")
			require.Equal(t, "GET, HEAD", a.Header.Get("Allow"))
		}
		requireProblem(t, w.acme.Do(t, method, g.URL, "/api/v1/nothing", nil), http.StatusNotFound, "NOT_FOUND")
	}
}

func TestHeadIsAnsweredAsGetWithoutABody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := w.roomy(t)
	for _, target := range []string{"/api/v1/status", "/api/v1/me", "/api/v1/events?count=2", "/api/v1/jobs"} {
		get := w.acme.Get(t, g.URL, target)
		head := w.acme.Do(t, http.MethodHead, g.URL, target, nil)
		require.Equal(t, http.StatusOK, head.Status)
		require.Empty(t, head.Body)
		require.Equal(t, strconv.Itoa(len(get.Body)), head.Header.Get("Content-Length"))
	}
	// the signature covers the method
	now := time.Now().Unix()
	header := http.Header{
		authsigner.HeaderPublicKey: {w.acme.PublicKey},
		authsigner.HeaderTimestamp: {strconv.FormatInt(now, 10)},
		authsigner.HeaderSignature: {authsigner.Sign(w.acme.PrivateKey, now, "GET", "/api/v1/me", nil)},
	}
	a, err := anonymous().Send(t.Context(), http.MethodHead, g.URL, "/api/v1/me", header, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusUnauthorized, a.Status)
	require.Empty(t, a.Body)
}

func TestEveryCredentialErrorHasItsStatusAndCode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := w.roomy(t)
	const target = "/api/v1/me"
	now := time.Now().Unix()
	sign := func(ts int64) string { return authsigner.Sign(w.acme.PrivateKey, ts, "GET", target, nil) }
	good := func() http.Header {
		return http.Header{
			authsigner.HeaderPublicKey: {w.acme.PublicKey},
			authsigner.HeaderTimestamp: {strconv.FormatInt(now, 10)},
			authsigner.HeaderSignature: {sign(now)},
		}
	}
	for name, tc := range map[string]struct {
		change func(http.Header)
		code   string
	}{
		"no key":            {func(h http.Header) { h.Del(authsigner.HeaderPublicKey) }, "MISSING_CREDENTIALS"},
		"no timestamp":      {func(h http.Header) { h.Del(authsigner.HeaderTimestamp) }, "MISSING_CREDENTIALS"},
		"no signature":      {func(h http.Header) { h.Del(authsigner.HeaderSignature) }, "MISSING_CREDENTIALS"},
		"key twice":         {func(h http.Header) { h.Add(authsigner.HeaderPublicKey, w.acme.PublicKey) }, "MISSING_CREDENTIALS"},
		"signature twice":   {func(h http.Header) { h.Add(authsigner.HeaderSignature, sign(now)) }, "MISSING_CREDENTIALS"},
		"timestamp twice":   {func(h http.Header) { h.Add(authsigner.HeaderTimestamp, strconv.FormatInt(now, 10)) }, "MISSING_CREDENTIALS"},
		"expired":           {func(h http.Header) { at(h, now-400, sign) }, "REQUEST_EXPIRED"},
		"from the future":   {func(h http.Header) { at(h, now+400, sign) }, "REQUEST_EXPIRED"},
		"milliseconds":      {func(h http.Header) { at(h, now*1000, sign) }, "REQUEST_EXPIRED"},
		"signed timestamp":  {func(h http.Header) { h.Set(authsigner.HeaderTimestamp, "+"+strconv.FormatInt(now, 10)) }, "INVALID_CREDENTIALS"},
		"unknown key":       {func(h http.Header) { h.Set(authsigner.HeaderPublicKey, "pk_live_nobody_has_this_one") }, "INVALID_CREDENTIALS"},
		"key with a path":   {func(h http.Header) { h.Set(authsigner.HeaderPublicKey, "../../sys/health") }, "INVALID_CREDENTIALS"},
		"wrong signature":   {func(h http.Header) { h.Set(authsigner.HeaderSignature, strings.Repeat("0", 64)) }, "INVALID_CREDENTIALS"},
		"short signature":   {func(h http.Header) { h.Set(authsigner.HeaderSignature, sign(now)[:62]) }, "INVALID_CREDENTIALS"},
		"another's key":     {func(h http.Header) { h.Set(authsigner.HeaderPublicKey, w.other.PublicKey) }, "INVALID_CREDENTIALS"},
		"upper case passes": {func(h http.Header) { h.Set(authsigner.HeaderSignature, strings.ToUpper(sign(now))) }, ""},
		"nothing changed":   {func(http.Header) {}, ""},
	} {
		h := good()
		tc.change(h)
		a, err := anonymous().Send(t.Context(), "GET", g.URL, target, h, nil)
		require.NoError(t, err)
		if tc.code == "" {
			require.Equal(t, http.StatusOK, a.Status, name)
			continue
		}
		p := requireProblem(t, a, http.StatusUnauthorized, tc.code)
		require.NotEmpty(t, a.Header.Get("WWW-Authenticate"), name)
		if tc.code == "REQUEST_EXPIRED" {
			require.InDelta(t, time.Now().Unix(), p.ServerTime, 60, name)
		}
	}
	requireProblem(t, anonymous().Get(t, g.URL, target), http.StatusUnauthorized, "MISSING_CREDENTIALS")
	requireProblem(t, w.inactive.Get(t, g.URL, target), http.StatusForbidden, "ACCOUNT_INACTIVE")
}

func at(h http.Header, ts int64, sign func(int64) string) {
	h.Set(authsigner.HeaderTimestamp, strconv.FormatInt(ts, 10))
	h.Set(authsigner.HeaderSignature, sign(ts))
}

func TestSignedBodiesAreReadUpToTheLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := w.roomy(t)
	requireJSON(t, w.acme.Do(t, "GET", g.URL, "/api/v1/me", []byte("a body on a GET")))
	requireJSON(t, w.acme.Do(t, "GET", g.URL, "/api/v1/events", make([]byte, 1<<20)))
	requireProblem(t, w.acme.Do(t, "GET", g.URL, "/api/v1/me", make([]byte, 1<<20+1)), http.StatusRequestEntityTooLarge, "BODY_TOO_LARGE")

	now := time.Now().Unix()
	a, err := anonymous().Send(t.Context(), "GET", g.URL, "/api/v1/me", http.Header{
		authsigner.HeaderPublicKey: {w.acme.PublicKey},
		authsigner.HeaderTimestamp: {strconv.FormatInt(now, 10)},
		authsigner.HeaderSignature: {authsigner.Sign(w.acme.PrivateKey, now, "GET", "/api/v1/me", []byte("what was signed"))},
	}, []byte("what was sent"))
	require.NoError(t, err)
	requireProblem(t, a, http.StatusUnauthorized, "INVALID_CREDENTIALS")
}
