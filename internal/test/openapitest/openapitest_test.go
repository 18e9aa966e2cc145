package openapitest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/openapitest"
)

const requestID = "9f4f2a52-6d8e-4c0b-9a35-0e6c1d1c7a10"

// exchange is a request and its answer, both as they are on the wire but for the line ends.
type exchange struct {
	method, target string
	unsigned       bool
	status         int
	header         map[string]string // on top of the headers of every answer; empty takes one away
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
	pagination = `"pagination":{"current_page":1,"per_page":25,"total_items":1,"total_pages":1}`
)

// TestAnswersThatTheDocumentDescribesPass has an answer of each kind.
func TestAnswersThatTheDocumentDescribesPass(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]exchange{
		"status, unsigned": {
			method: "GET", target: "/api/v1/status", unsigned: true, status: 200, body: `{"status":"ok","api_version":"v1"}`,
			header: map[string]string{"RateLimit-Policy": `"address";q=10;w=60`, "RateLimit": `"address";r=9;t=7`},
		},
		"below another path": {method: "GET", target: "/gw/api/v1/me", status: 200, body: me},
		"HEAD":               {method: "HEAD", target: "/api/v1/me", status: 200, header: map[string]string{"Content-Length": "66"}},
		"events":             {method: "GET", target: "/api/v1/events?count=1", status: 200, body: `{"events":[` + event + `]}`},
		"a value that an enumeration does not name yet": {
			method: "GET", target: "/api/v1/contacts", status: 200, body: `{"contacts":[` + contact + `],` + pagination + `}`,
		},
		"deprecated": {
			method: "GET", target: "/api/v1/events", status: 200, body: `{"events":[]}`,
			header: map[string]string{
				"Deprecation": "@1801440000", "Sunset": "Sat, 31 Jul 2027 00:00:00 GMT",
				"Link": `<https://docs.example.com/events>; rel="deprecation"; type="text/html"`,
			},
		},
		"400": {
			method: "GET", target: "/api/v1/events?count=abc", status: 400,
			body: problem("INVALID_PARAMETER", `,"parameter":"count"`),
		},
		"401": {
			method: "GET", target: "/api/v1/me", unsigned: true, status: 401, body: problem("MISSING_CREDENTIALS"),
			header: map[string]string{"WWW-Authenticate": `HMAC-SHA256 realm="gatehouse"`},
		},
		"429 of two limits": {
			method: "GET", target: "/api/v1/me", status: 429,
			body: problem("RATE_LIMITED", `,"message":"Wait.","retry_after":17`),
			header: map[string]string{
				"Retry-After": "17", "RateLimit-Policy": `"unverified-key";q=60;w=60, "unverified-address";q=120;w=60`,
				"RateLimit": `"unverified-key";r=0;t=17, "unverified-address";r=3;t=20`,
			},
		},
		"503 without limits": {
			method: "GET", target: "/api/v1/me", status: 503, body: problem("SERVICE_UNAVAILABLE", `,"retry_after":5`),
			header: map[string]string{
				"Retry-After": "5", "RateLimit-Policy": "", "RateLimit": "",
				"X-RateLimit-Limit": "", "X-RateLimit-Remaining": "", "X-RateLimit-Reset": "",
			},
		},
		"with a page of the operator's": {
			method: "GET", target: "/api/v1/jobs", status: 502, body: problem("UPSTREAM_FAILED", `,"docs":"https://docs.example.com"`),
		},
		"an unknown path":      {method: "POST", target: "/api/v1/Me", status: 404, body: problem("NOT_FOUND")},
		"the prefix and a '/'": {method: "GET", target: "/api/v1/", status: 404, body: problem("NOT_FOUND")},
		"another method": {
			method: "POST", target: "/api/v1/me", status: 405, body: problem("METHOD_NOT_ALLOWED"),
			header: map[string]string{"Allow": "GET, HEAD"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, e.check(t))
		})
	}
}

// TestAnswersThatTheDocumentDoesNotDescribeFail has an answer for each way to leave the document.
func TestAnswersThatTheDocumentDoesNotDescribeFail(t *testing.T) {
	t.Parallel()
	get := func(target string, status int, body string) exchange {
		return exchange{method: "GET", target: target, status: status, body: body}
	}
	with := func(e exchange, name, value string) exchange {
		e.header = map[string]string{name: value}
		return e
	}
	good := get("/api/v1/me", 200, me)
	for name, tc := range map[string]struct {
		exchange
		says string
	}{
		"an undocumented member":        {get("/api/v1/me", 200, strings.Replace(me, `"id"`, `"secret":1,"id"`, 1)), "'secret'"},
		"an undocumented member on top": {get("/api/v1/me", 200, strings.Replace(me, `{`, `{"more":1,`, 1)), "'more'"},
		"an undocumented member in a list": {
			get("/api/v1/events", 200, `{"events":[`+strings.Replace(event, `"title"`, `"status":"published","title"`, 1)+`]}`), "'status'",
		},
		"an undocumented member of an error": {get("/api/v1/x", 404, problem("NOT_FOUND", `,"stack":"main.go:1"`)), "'stack'"},
		"a missing member":                   {get("/api/v1/me", 200, strings.Replace(me, `,"slug":null`, ``, 1)), "'slug'"},
		"an id that is null":                 {get("/api/v1/me", 200, strings.Replace(me, `"b1"`, `null`, 1)), "got null"},
		"a member twice":                     {get("/api/v1/me", 200, strings.Replace(me, `"id"`, `"id":"b2","id"`, 1)), "duplicate"},
		"something after the body":           {get("/api/v1/me", 200, me+"{}"), "follows"},
		"HTML":                               {get("/api/v1/me", 200, "<html>"), "not JSON"},
		"no body":                            {get("/api/v1/me", 200, ""), "not JSON"},
		"an id that is no UUID": {
			get("/api/v1/events", 200, `{"events":[`+strings.Replace(event, "6b7f0f63-", "6b7f0f6-", 1)+`]}`), "uuid",
		},
		"a day that does not exist": {
			get("/api/v1/events", 200, `{"events":[`+strings.Replace(event, "2026-06-12", "2026-02-30", 1)+`]}`), "date",
		},
		"a time of 24:00": {
			get("/api/v1/events", 200, `{"events":[`+strings.Replace(event, "16:00", "24:00", 1)+`]}`), "pattern",
		},
		"an instant in another zone": {
			get("/api/v1/contacts", 200, `{"contacts":[`+strings.Replace(contact, ":00Z", ":00+02:00", 1)+`],`+pagination+`}`), "pattern",
		},
		"money as a number": {
			get("/api/v1/jobs", 200, `{"jobs":[{"id":"6b7f0f63-1b0c-4b63-8a8f-0f6f7d1d2e55","job_number":"J-1","name":null,`+
				`"description":null,"work_status":"sent","total_amount":12.5,"outstanding_balance":"0","lead_source":null,`+
				`"created_at":null,"updated_at":null}],`+pagination+`}`), "got number",
		},
		"a list without pagination":      {get("/api/v1/contacts", 200, `{"contacts":[]}`), "'pagination'"},
		"a page of 101":                  {get("/api/v1/contacts", 200, `{"contacts":[],`+strings.Replace(pagination, "25", "101", 1)+`}`), "101"},
		"a status of another path":       {get("/api/v1/status", 502, problem("UPSTREAM_FAILED")), "no status 502"},
		"a redirect":                     {get("/api/v1/me", 301, ""), "no status 301"},
		"404 for a path that is there":   {get("/api/v1/me", 404, problem("NOT_FOUND")), "BAD_REQUEST"},
		"200 for a path that is not":     {get("/api/v1/me/", 200, me), "no status 200"},
		"200 for another method":         {exchange{method: "POST", target: "/api/v1/me", status: 200, body: me}, "no status 200"},
		"200 for an unsigned request":    {exchange{method: "GET", target: "/api/v1/me", unsigned: true, status: 200, body: me}, "X-Signature"},
		"another target":                 {get("/healthz", 200, `{"status":"ok"}`), "not below"},
		"a longer prefix":                {get("/api/v10/me", 200, me), "not below"},
		"another code than the status's": {get("/api/v1/me", 403, problem("NOT_FOUND")), "ACCOUNT_INACTIVE"},
		"an error without its parameter": {get("/api/v1/events", 400, problem("INVALID_PARAMETER")), "parameter"},
		"a 401 without a challenge":      {get("/api/v1/me", 401, problem("INVALID_CREDENTIALS")), "WWW-Authenticate is missing"},
		"a 405 without Allow": {
			exchange{method: "PUT", target: "/api/v1/me", status: 405, body: problem("METHOD_NOT_ALLOWED")}, "Allow is missing",
		},
		"a 429 without Retry-After": {
			get("/api/v1/me", 429, problem("RATE_LIMITED", `,"message":"Wait.","retry_after":17`)), "Retry-After is missing",
		},
		"a Retry-After that contradicts the body": {
			with(get("/api/v1/me", 429, problem("RATE_LIMITED", `,"message":"Wait.","retry_after":17`)), "Retry-After", "16"), "retry_after",
		},
		"a Retry-After of 0": {
			with(get("/api/v1/me", 429, problem("RATE_LIMITED", `,"message":"Wait.","retry_after":17`)), "Retry-After", "0"), "minimum",
		},
		"another request's id":            {with(get("/api/v1/x", 404, problem("NOT_FOUND")), "X-Request-Id", "1f4f2a52-6d8e-4c0b-9a35-0e6c1d1c7a10"), "request_id"},
		"no request id":                   {with(good, "X-Request-Id", ""), "X-Request-Id is missing"},
		"no limits":                       {with(good, "RateLimit", ""), "RateLimit is missing"},
		"limits in another syntax":        {with(good, "RateLimit", "limit=60, remaining=59, reset=60"), "pattern"},
		"a policy of an unknown name":     {with(good, "RateLimit-Policy", `"pk_live_3f8Zk1q0";q=60;w=60`), "pattern"},
		"limits that are no integers":     {with(good, "X-RateLimit-Remaining", "59.5"), "no integer"},
		"an INVALID_PARAMETER, no limits": {with(get("/api/v1/events", 400, problem("INVALID_PARAMETER", `,"parameter":"count"`)), "RateLimit", ""), "RateLimit is missing"},
		"a banner":                        {with(good, "Server", "Caddy"), "Server"},
		"an upstream's header":            {with(good, "X-Powered-By", "demo"), "X-Powered-By"},
		"a cookie":                        {with(good, "Set-Cookie", "a=b"), "Set-Cookie"},
		"a body that may be kept":         {with(good, "Cache-Control", "max-age=60"), "Cache-Control"},
		"another content type":            {with(good, "Content-Type", "application/json; charset=utf-8"), "Content-Type"},
		"a length that is not the body's": {with(good, "Content-Length", "3"), "Content-Length"},
		"a deprecation in another syntax": {with(good, "Deprecation", "true"), "pattern"},
		"a body to HEAD":                  {exchange{method: "HEAD", target: "/api/v1/me", status: 200, body: me}, "HEAD"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := tc.check(t)
			require.Error(t, err)
			require.Contains(t, err.Error(), tc.says)
		})
	}
}

// TestCheckFailsTheTest holds the helper that other tests call.
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

// TestADocumentThatIsNoneIsRefused holds the loader.
func TestADocumentThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no YAML":             "{",
		"an older version":    "openapi: 3.0.3\ninfo: {title: x, version: v1}\npaths: {}\n",
		"without a title":     "openapi: 3.1.1\ninfo: {version: v1}\npaths: {}\n",
		"without other paths": "openapi: 3.1.1\ninfo: {title: x, version: v1}\npaths: {}\n",
	} {
		_, err := openapitest.Load([]byte(text))
		require.Error(t, err, name)
	}
}
