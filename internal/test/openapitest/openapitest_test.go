package openapitest_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/openapitest"
)

const requestID = "9f4f2a52-6d8e-4c0b-9a35-0e6c1d1c7a10"

// exchange is a request and its response.
type exchange struct {
	method, target string
	unsigned       bool
	status         int
	header         map[string]string // in addition to the usual ones; "" removes one
	body           string
}

func (e exchange) check(t *testing.T) error {
	t.Helper()
	doc, err := openapitest.Public()
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), e.method, "https://api.example.com"+e.target, http.NoBody)
	require.NoError(t, err)
	if !e.unsigned {
		for _, name := range []string{"X-Public-Key", "X-Timestamp", "X-Signature"} {
			req.Header.Set(name, "given")
		}
	}
	header := http.Header{
		"Content-Type": {"application/json"}, "Cache-Control": {"no-store"}, "X-Content-Type-Options": {"nosniff"},
		"X-Request-Id":     {requestID},
		"Ratelimit-Policy": {`"key";q=60;w=60`}, "Ratelimit": {`"key";r=59;t=60`},
		"X-Ratelimit-Limit": {"60"}, "X-Ratelimit-Remaining": {"59"}, "X-Ratelimit-Reset": {"1760000060"},
		"Date": {"Thu, 09 Oct 2025 08:53:20 GMT"},
	}
	for name, value := range e.header {
		header.Del(name)
		if value != "" {
			header.Set(name, value)
		}
	}
	return doc.Check(req, &http.Response{StatusCode: e.status, Header: header}, []byte(e.body))
}

func problem(code string, more ...string) string {
	return `{"error":"A sentence.","code":"` + code + `","request_id":"` + requestID + `"` + strings.Join(more, "") + `}`
}

const (
	me      = `{"business":{"id":"b1","name":"Fernhollow Plumbing","slug":null}}`
	session = `{"date":"2026-06-12","start_time":"10:00","end_time":"16:00"}`
	event   = `{"id":"6b7f0f63-1b0c-4b63-8a8f-0f6f7d1d2e55","title":"Open days","description":null,"url":null,` +
		`"type":"multi-day","schedule":[` + session + `],"location_type":"in-person","venue":null,"address":null,` +
		`"virtual_link":null,"is_free":true,"image_url":null,"media":[]}`
	contact = `{"id":1048,"first_name":"Ines","last_name":null,"email":null,"phone_number":null,"country_code":null,` +
		`"contact_type":"partner","contact_status":"active","notes":null,"date_created":"2026-03-05T14:30:00Z",` +
		`"date_modified":null}`
	limited = `{"error":"A sentence.","code":"RATE_LIMITED","request_id":"` + requestID + `","message":"Wait.","retry_after":17}`

	pagination = `"pagination":{"current_page":1,"per_page":25,"total_items":1,"total_pages":1}`
)

// get returns a GET of a target below the prefix, with pairs of headers that differ from the usual ones.
func get(target string, status int, body string, headers ...string) exchange {
	e := exchange{method: http.MethodGet, target: "/api/v1" + target, status: status, body: body, header: map[string]string{}}
	for pair := range slices.Chunk(headers, 2) {
		e.header[pair[0]] = pair[1]
	}
	return e
}

// by returns the exchange with another method.
func by(method string, e exchange) exchange {
	e.method = method
	return e
}

func unsigned(e exchange) exchange {
	e.unsigned = true
	return e
}

func TestDocumentedResponsesAreAccepted(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]exchange{
		"status, unsigned": unsigned(get("/status", 200, `{"status":"ok","api_version":"v1"}`,
			"RateLimit-Policy", `"ip";q=10;w=60`, "RateLimit", `"ip";r=9;t=7`)),
		"below another path":                 {method: "GET", target: "/gw/api/v1/me", status: 200, body: me},
		"HEAD":                               by("HEAD", get("/me", 200, "", "Content-Length", "66")),
		"events":                             get("/events?count=1", 200, `{"events":[`+event+`]}`),
		"an unknown value of an enumeration": get("/contacts", 200, `{"contacts":[`+contact+`],`+pagination+`}`),
		"deprecated": get("/events", 200, `{"events":[]}`, "Deprecation", "@1801440000", "Sunset", "Sat, 31 Jul 2027 00:00:00 GMT",
			"Link", `<https://docs.example.com/events>; rel="deprecation"; type="text/html"`),
		"400": get("/events?count=abc", 400, problem("INVALID_PARAMETER", `,"parameter":"count"`)),
		"401": unsigned(get("/me", 401, problem("MISSING_CREDENTIALS"), "WWW-Authenticate", `HMAC-SHA256 realm="gatehouse"`)),
		"429 of two limits": get("/me", 429, limited, "Retry-After", "17",
			"RateLimit-Policy", `"unverified-key";q=60;w=60, "unverified-ip";q=120;w=60`,
			"RateLimit", `"unverified-key";r=0;t=17, "unverified-ip";r=3;t=20`),
		"503 without limits": get("/me", 503, problem("SERVICE_UNAVAILABLE", `,"retry_after":5`), "Retry-After", "5", "RateLimit-Policy", "",
			"RateLimit", "", "X-RateLimit-Limit", "", "X-RateLimit-Remaining", "", "X-RateLimit-Reset", ""),
		"documentation of the operator": get("/jobs", 502, problem("UPSTREAM_FAILED", `,"docs":"https://docs.example.com"`)),
		"an unknown path":               by("POST", get("/Me", 404, problem("NOT_FOUND"))),
		"the prefix and a '/'":          get("/", 404, problem("NOT_FOUND")),
		"another method":                by("POST", get("/me", 405, problem("METHOD_NOT_ALLOWED"), "Allow", "GET, HEAD")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, e.check(t))
		})
	}
}

func TestUndocumentedResponsesAreRejected(t *testing.T) {
	t.Parallel()
	replaced := func(in, old, text string) string { return strings.Replace(in, old, text, 1) }
	events := func(old, text string) exchange {
		return get("/events", 200, `{"events":[`+replaced(event, old, text)+`]}`)
	}
	for name, tc := range map[string]struct {
		exchange
		want string
	}{
		"an undocumented member":             {get("/me", 200, replaced(me, `"id"`, `"secret":1,"id"`)), "'secret'"},
		"an undocumented top-level member":   {get("/me", 200, replaced(me, `{`, `{"more":1,`)), "'more'"},
		"an undocumented member in a list":   {events(`"title"`, `"status":"published","title"`), "'status'"},
		"an undocumented member of an error": {get("/x", 404, problem("NOT_FOUND", `,"stack":"main.go:1"`)), "'stack'"},
		"a missing member":                   {get("/me", 200, replaced(me, `,"slug":null`, ``)), "'slug'"},
		"an id that is null":                 {get("/me", 200, replaced(me, `"b1"`, `null`)), "got null"},
		"a member twice":                     {get("/me", 200, replaced(me, `"id"`, `"id":"b2","id"`)), "duplicate"},
		"something after the body":           {get("/me", 200, me+"{}"), "follows"},
		"HTML":                               {get("/me", 200, "<html>"), "not JSON"},
		"no body":                            {get("/me", 200, ""), "not JSON"},
		"an id that is not a UUID":           {events("6b7f0f63-", "6b7f0f6-"), "uuid"},
		"a day that does not exist":          {events("2026-06-12", "2026-02-30"), "date"},
		"a time of 24:00":                    {events("16:00", "24:00"), "pattern"},
		"an instant in another zone": {
			get("/contacts", 200, `{"contacts":[`+replaced(contact, ":00Z", ":00+02:00")+`],`+pagination+`}`), "pattern",
		},
		"money as a number": {
			get("/jobs", 200, `{"jobs":[{"id":"6b7f0f63-1b0c-4b63-8a8f-0f6f7d1d2e55","job_number":"J-1","name":null,`+
				`"description":null,"work_status":"sent","total_amount":12.5,"outstanding_balance":"0","lead_source":null,`+
				`"created_at":null,"updated_at":null}],`+pagination+`}`), "got number",
		},
		"a list without pagination":       {get("/contacts", 200, `{"contacts":[]}`), "'pagination'"},
		"a page of 101":                   {get("/contacts", 200, `{"contacts":[],`+replaced(pagination, "25", "101")+`}`), "101"},
		"a page before the first":         {get("/contacts", 200, `{"contacts":[],`+replaced(pagination, `"current_page":1`, `"current_page":0`)+`}`), "current_page is 0"},
		"a status of another path":        {get("/status", 502, problem("UPSTREAM_FAILED")), "no status 502"},
		"a redirect":                      {get("/me", 301, ""), "no status 301"},
		"404 for an existing path":        {get("/me", 404, problem("NOT_FOUND")), "BAD_REQUEST"},
		"200 for an unknown path":         {get("/me/", 200, me), "no status 200"},
		"200 for another method":          {by("POST", get("/me", 200, me)), "no status 200"},
		"200 for an unsigned request":     {unsigned(get("/me", 200, me)), "X-Signature"},
		"another target":                  {exchange{method: "GET", target: "/healthz", status: 200, body: `{"status":"ok"}`}, "not below"},
		"a longer prefix":                 {exchange{method: "GET", target: "/api/v10/me", status: 200, body: me}, "not below"},
		"another code than the status's":  {get("/me", 403, problem("NOT_FOUND")), "ACCOUNT_INACTIVE"},
		"an error without its parameter":  {get("/events", 400, problem("INVALID_PARAMETER")), "parameter"},
		"a 401 without a challenge":       {get("/me", 401, problem("INVALID_CREDENTIALS")), "WWW-Authenticate is missing"},
		"a 405 without Allow":             {by("PUT", get("/me", 405, problem("METHOD_NOT_ALLOWED"))), "Allow is missing"},
		"a 429 without Retry-After":       {get("/me", 429, limited), "Retry-After is missing"},
		"a Retry-After unlike the body's": {get("/me", 429, limited, "Retry-After", "16"), "retry_after"},
		"a Retry-After of 0":              {get("/me", 429, limited, "Retry-After", "0"), "minimum"},
		"another request's id":            {get("/x", 404, problem("NOT_FOUND"), "X-Request-Id", "1f4f2a52-6d8e-4c0b-9a35-0e6c1d1c7a10"), "request_id"},
		"no request id":                   {get("/me", 200, me, "X-Request-Id", ""), "X-Request-Id is missing"},
		"no limits":                       {get("/me", 200, me, "RateLimit", ""), "RateLimit is missing"},
		"limits in another syntax":        {get("/me", 200, me, "RateLimit", "limit=60, remaining=59, reset=60"), "pattern"},
		"a policy of an unknown name":     {get("/me", 200, me, "RateLimit-Policy", `"pk_live_3f8Zk1q0";q=60;w=60`), "pattern"},
		"limits that are not integers":    {get("/me", 200, me, "X-RateLimit-Remaining", "59.5"), "not an integer"},
		"an INVALID_PARAMETER, no limits": {get("/events", 400, problem("INVALID_PARAMETER", `,"parameter":"count"`), "RateLimit", ""), "RateLimit is missing"},
		"a banner":                        {get("/me", 200, me, "Server", "Caddy"), "Server"},
		"an upstream's header":            {get("/me", 200, me, "X-Powered-By", "demo"), "X-Powered-By"},
		"a cookie":                        {get("/me", 200, me, "Set-Cookie", "a=b"), "Set-Cookie"},
		"a cacheable response":            {get("/me", 200, me, "Cache-Control", "max-age=60"), "Cache-Control"},
		"another content type":            {get("/me", 200, me, "Content-Type", "application/json; charset=utf-8"), "Content-Type"},
		"a length that is not the body's": {get("/me", 200, me, "Content-Length", "3"), "Content-Length"},
		"a deprecation in another syntax": {get("/me", 200, me, "Deprecation", "true"), "pattern"},
		"a body to HEAD":                  {by("HEAD", get("/me", 200, me)), "HEAD"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, tc.check(t), tc.want)
		})
	}
}

func TestCheckFailsTheTest(t *testing.T) {
	t.Parallel()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example.com/api/v1/me", http.NoBody)
	require.NoError(t, err)
	spy := &spy{TB: t}
	openapitest.Check(spy, req, &http.Response{StatusCode: http.StatusTeapot, Header: http.Header{}}, []byte("I'm a teapot"))
	require.Equal(t, 1, spy.failures)
}

// spy counts failures instead of failing.
type spy struct {
	testing.TB
	failures int
}

func (s *spy) Errorf(string, ...any) { s.failures++ }

func TestInvalidDocumentIsRejected(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"invalid YAML":        "{",
		"an older version":    "openapi: 3.0.3\ninfo: {title: x, version: v1}\npaths: {}\n",
		"without a title":     "openapi: 3.1.1\ninfo: {version: v1}\npaths: {}\n",
		"without other paths": "openapi: 3.1.1\ninfo: {title: x, version: v1}\npaths: {}\n",
	} {
		_, err := openapitest.Load([]byte(text))
		require.Error(t, err, name)
	}
}
