package check_test

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/caddymodule"
	"github.com/gatehouse-gateway/gatehouse/caddymodule/internal/check"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// knownBusiness is the only business that soundService knows.
const knownBusiness = "biz_7f3a9c21"

// soundResponse responds as docs/data-services.md describes.
func soundResponse(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	name, isPublic := strings.CutPrefix(r.URL.Path, definition.Public().Base()+"/")
	business := r.Header.Get(upstream.HeaderBusinessID)
	status, body := http.StatusOK, fmt.Sprintf(`{%q:[],"pagination":{"current_page":1,"per_page":25,"total_items":0,"total_pages":0}}`, name)
	switch {
	case r.URL.Path == "/healthz":
	case isPublic && name == "business" && business != knownBusiness:
		status, body = http.StatusNotFound, "{}"
	case isPublic && name == "business":
		body = fmt.Sprintf(`{"business":{"id":%q}}`, business)
	case strings.HasPrefix(r.URL.Path, "/connect/v1/accounts/"):
		status, body = http.StatusNotFound, `{"error":"There is no such account.","code":"NOT_FOUND"}`
	case !isPublic:
		status, body = http.StatusForbidden, `{"error":"There is no such account.","code":"UNKNOWN_ACCOUNT"}`
	}
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

func startService(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func soundService(t *testing.T) string {
	t.Helper()
	return startService(t, soundResponse)
}

// statusOr responds with a status instead of soundResponse to requests that match.
func statusOr(status int, matches func(*http.Request) bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if matches(r) {
			w.WriteHeader(status)
			return
		}
		soundResponse(w, r)
	}
}

func always(*http.Request) bool { return true }

func isAsserted(r *http.Request) bool { return r.Header.Get(upstream.HeaderAssertion) != "" }

func isUnasserted(r *http.Request) bool { return !isAsserted(r) }

func isPath(path string) func(*http.Request) bool {
	return func(r *http.Request) bool { return r.URL.Path == path }
}

// bodyFor responds with a body to requests for a path.
func bodyFor(path, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path {
			soundResponse(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(body))
	}
}

// oneKey is a source of assertion keys with one key.
type oneKey struct{ ed25519.PublicKey }

func (k oneKey) Key(context.Context, string) (ed25519.PublicKey, error) { return k.PublicKey, nil }

// verifying responds with 401 to requests without a valid assertion of the issuer.
func verifying(t *testing.T, keyFile, issuer string) http.HandlerFunc {
	t.Helper()
	text, err := os.ReadFile(keyFile)
	require.NoError(t, err)
	block, _ := pem.Decode(text)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	require.NoError(t, err)
	private, ok := key.(ed25519.PrivateKey)
	require.True(t, ok)
	public, ok := private.Public().(ed25519.PublicKey)
	require.True(t, ok)
	return func(w http.ResponseWriter, r *http.Request) {
		v := &upstream.AssertionVerifier{Issuer: issuer, Audience: upstream.ConnectAudience, Keys: oneKey{public}}
		if name, ok := strings.CutPrefix(r.URL.Path, definition.Public().Base()+"/"); ok {
			v.Audience = name
		}
		if _, err := v.VerifyRequest(r); err != nil && r.URL.Path != "/healthz" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		soundResponse(w, r)
	}
}

// apiPaths are the resources that data services serve.
func apiPaths() (paths []string) {
	for _, res := range definition.Public().Operations() {
		if !res.ByGateway {
			paths = append(paths, res.Path)
		}
	}
	return paths
}

// Every resource is requested from each address of its data service, as the gateway does, and the response is checked like its.
func TestCheckProbesDataServices(t *testing.T) {
	redis := "redis " + redistest.Start(t, redistest.WithConfig("appendonly", "yes")).URL()
	file := filepath.Join(t.TempDir(), "hop")
	writeCertificate(t, file, "example.com", time.Hour)
	assertion := "assertion " + file + ".key"
	tls := httptest.NewTLSServer(http.HandlerFunc(soundResponse))
	t.Cleanup(tls.Close)
	const contacts, events, s3cret = "/api/v1/contacts", "/api/v1/events", "s3cret-0123"
	page := func(name, record string) string {
		return fmt.Sprintf(`{%q:[%s],"pagination":{"current_page":1,"per_page":25,"total_items":1,"total_pages":1}}`, name, record)
	}
	for name, c := range map[string]struct {
		app, options string
		service      http.HandlerFunc
		address      string // instead of service
		connect      string
		want         []string
		says         []string
	}{
		"without assertion":       {service: soundResponse},
		"verifying":               {app: assertion, service: verifying(t, file+".key", "gatehouse"), connect: "name x"},
		"ignoring the assertion":  {app: assertion, service: soundResponse, want: []string{"GH051"}, says: append(apiPaths(), "without an assertion")},
		"ignoring it in one path": {app: assertion, service: statusOr(401, func(r *http.Request) bool { return isUnasserted(r) && r.URL.Path != events }), want: []string{"GH051"}, says: []string{"to requests without an assertion: " + events + `"`}},
		"ignoring it for assistants": {
			app: assertion, service: statusOr(401, func(r *http.Request) bool { return isUnasserted(r) && strings.HasPrefix(r.URL.Path, "/api") }),
			connect: "name x", want: []string{"GH051"}, says: []string{"/connect/v1/contacts", "/connect/v1/accounts/gatehouse-check"},
		},
		"refusing with 403": {
			app: assertion, connect: "name x", service: func(w http.ResponseWriter, r *http.Request) {
				if isAsserted(r) {
					soundResponse(w, r)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusForbidden)
				_, _ = w.Write([]byte(`{"error":"There is no assertion.","code":"FORBIDDEN"}`))
			},
		},
		"rejecting the assertion": {app: assertion, service: statusOr(401, always), connect: "name x", want: []string{"GH052"}, says: append(apiPaths(), "rejects the assertion", "/connect/v1/jobs")},
		"another issuer":          {app: assertion, service: verifying(t, file+".key", "https://other.example.com"), connect: "name x", want: []string{"GH052"}, says: append(apiPaths(), "rejects the assertion")},
		"another audience":        {app: assertion + " {\naudience_prefix x-\n}", service: verifying(t, file+".key", "gatehouse"), want: []string{"GH052"}, says: apiPaths()},
		"no assertion":            {service: verifying(t, file+".key", "gatehouse"), want: []string{"GH052"}, says: append(apiPaths(), "no assertion is configured")},
		"404 to everything":       {app: assertion, service: http.NotFound, connect: "name x", want: []string{"GH053"}, says: append(apiPaths(), "responds with 404", "/connect/v1/contacts", "/connect/v1/accounts/gatehouse-check", "/connect/v1/receptionist/faqs")},
		"404 to one":              {service: statusOr(404, isPath(events)), want: []string{"GH053"}, says: []string{"responds with 404 to " + events + " for"}},
		"no accounts":             {service: statusOr(404, isPath("/connect/v1/accounts/gatehouse-check")), connect: "name x", want: []string{"GH053"}, says: []string{"responds with 404 to /connect/v1/accounts/gatehouse-check for"}},
		"no automations":          {service: statusOr(404, isPath("/connect/v1/automations")), connect: "name x", want: []string{"GH053"}, says: []string{"responds with 404 to /connect/v1/automations for"}},
		"none, and switched off":  {service: statusOr(404, isPath("/connect/v1/automations")), connect: "except_areas automations"},
		"a redirect":              {service: statusOr(302, isPath(contacts)), want: []string{"GH053"}, says: []string{"responds with 302 to " + contacts}},
		"broken":                  {service: statusOr(500, always), want: []string{"GH050"}, says: append(apiPaths(), "responds with 500")},
		"overloaded": {service: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "5")
			w.WriteHeader(http.StatusServiceUnavailable)
		}, want: []string{"GH050"}, says: []string{"responds with 503"}},
		"another member":              {service: bodyFor(contacts, `{"people":["`+s3cret+`"]}`), want: []string{"GH053"}, says: []string{contacts + " is invalid", "the member contacts"}},
		"another kind":                {service: bodyFor(contacts, page("contacts", `{"id":"`+s3cret+`","business_id":"`+knownBusiness+`"}`)), want: []string{"GH053"}, says: []string{"contacts: record 0: id: expected an integer"}},
		"another business's record":   {service: bodyFor(contacts, page("contacts", `{"id":1,"business_id":"`+s3cret+`"}`)), want: []string{"GH053"}, says: []string{"cross-tenant record"}},
		"another business's event":    {service: bodyFor(events, `{"events":[{"id":"0190f3a2-7c4b-7d11-9e55-0000000003e8","business_id":"`+s3cret+`","status":"published","created_at":"2026-01-01T00:00:00Z"}]}`), want: []string{"GH053"}, says: []string{events, "cross-tenant record"}},
		"no tenant":                   {service: bodyFor(contacts, page("contacts", `{"id":1}`)), want: []string{"GH053"}, says: []string{"record without its tenant"}},
		"no tenant, which is allowed": {service: bodyFor(contacts, page("contacts", `{"id":1}`)), options: "allow_missing_tenant"},
		"too large":                   {service: bodyFor(contacts, page("contacts", `{"id":1,"business_id":"`+strings.Repeat("x", 5000)+`"}`)), options: "max_response_size 4KiB", want: []string{"GH050"}, says: []string{contacts + " fail: upstream response violates the contract: larger than the maximum size"}},
		"HTML":                        {service: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>" + s3cret)) }, connect: "name x", want: []string{"GH053"}, says: append(apiPaths(), "Content-Type", "/connect/v1/contacts is invalid")},
		"another business, connected": {service: bodyFor("/connect/v1/contacts", `{"contacts":[{"id":1,"business_id":"`+s3cret+`"}],"next_cursor":null}`), connect: "name x", want: []string{"GH053"}, says: []string{"/connect/v1/contacts is invalid"}},
		"hanging":                     {service: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, options: "timeout 50ms", want: []string{"GH050"}, says: []string{"fail: "}},
		"stopped":                     {address: "http://127.0.0.1:1", want: []string{"GH050"}, says: []string{"connection refused"}},
		"not in DNS":                  {address: "http://data.invalid:80", want: []string{"GH050"}, says: []string{"data.invalid"}},
		"not trusted":                 {address: tls.URL, want: []string{"GH050"}, says: []string{"certificate"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := probed{redis: redis, app: c.app, connect: c.connect, service: c.address}
			if p.service == "" {
				p.service = startService(t, c.service)
			}
			p.api = "upstream " + p.service + "\n" + c.options
			report, text, status := probeWith(t, p, "--business", knownBusiness)
			var ids []string
			for _, f := range report.Findings {
				ids = append(ids, f.Rule)
			}
			assert.Equal(t, c.want, slices.Compact(ids), text)
			for _, says := range c.says {
				assert.Contains(t, text, says)
			}
			assert.NotContains(t, text, s3cret, "nothing of a response is printed")
			assert.Empty(t, report.Skipped)
			assert.Equal(t, map[bool]string{true: "1", false: "0"}[c.want != nil], status)
		})
	}
}

// A service of an API of one's own may reject a business that it does not know, as `gatehouse conform` asks, and what a business may not see.
// One that serves nothing is another service.
func TestCheckAsksOnlyKnownBusinessesOfOwnAPIs(t *testing.T) {
	redis := "redis " + redistest.Start(t).URL()
	dir := t.TempDir()
	writeCertificate(t, filepath.Join(dir, "hop"), "example.com", time.Hour)
	const document = `{openapi: 3.1.0, info: {title: Library, version: "1"}, servers: [{url: /v1}], x-gatehouse-tenant: branch_id, paths: {
		/books: {get: {operationId: listBooks, responses: {"200": {$ref: "#/components/responses/Books"}, default: {$ref: "#/components/responses/Problem"}}}},
		/loans: {get: {operationId: listLoans, responses: {"200": {$ref: "#/components/responses/Books"}}}},
		/hours: {get: {operationId: getHours, x-gatehouse-tenant: none, x-gatehouse-public: true, responses: {
			"200": {description: x, content: {application/json: {schema: {type: object, properties: {today: {type: string}}}}}}}}}},
	components: {responses: {
		Books: {description: x, content: {application/json: {schema: {type: array, maxItems: 100, items: {type: object, properties: {
			id: {type: string}, branch_id: {type: string, x-gatehouse-internal: true}}}}}}},
		Problem: {description: x, content: {application/problem+json: {schema: {type: object, properties: {title: {type: string}}}}}}}}}`
	file := filepath.Join(dir, "library.yaml")
	require.NoError(t, os.WriteFile(file, []byte(document), 0o600))
	problem := func(w http.ResponseWriter, status int) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"title":"No."}`)
	}
	library := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch business := r.Header.Get(upstream.HeaderBusinessID); {
		case r.URL.Path == "/v1/hours" && business == "-":
			_, _ = io.WriteString(w, `{"today":"9 to 5"}`)
		case r.URL.Path == "/v1/hours":
			problem(w, http.StatusBadRequest)
		case business != "17":
			problem(w, http.StatusForbidden)
		default:
			_, _ = io.WriteString(w, "[]")
		}
	}
	const assertion = "assertion DIR/hop.key"
	for name, c := range map[string]struct {
		app, business string
		service       http.HandlerFunc
		want          []string
		says          []string
		skipped       []string
	}{
		"known":         {business: "17", service: library},
		"not known":     {service: library, skipped: []string{"/v1/books, /v1/loans of the data service", "responds with 403 to the business gatehouse-check", "--business"}},
		"another named": {business: "18", service: library, want: []string{"GH053"}, says: []string{"responds with 403 to /v1/loans for the business 18"}, skipped: []string{"/v1/books of", "403 to the business 18, which the definition documents"}},
		"documented, for one list": {business: "17", skipped: []string{"/v1/books of", "404"}, service: func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/books" {
				problem(w, http.StatusNotFound)
				return
			}
			library(w, r)
		}},
		"another service": {
			business: "17", service: func(w http.ResponseWriter, _ *http.Request) { problem(w, http.StatusNotFound) },
			want: []string{"GH053"}, says: []string{"responds with 404 to /v1/books, /v1/loans for the business 17", "responds with 404 to /v1/hours for the business -"},
		},
		"another service, and no business": {
			service: func(w http.ResponseWriter, _ *http.Request) { problem(w, http.StatusNotFound) },
			want:    []string{"GH053"}, says: []string{"responds with 404 to /v1/hours"}, skipped: []string{"/v1/books, /v1/loans of"},
		},
		"which rejects the assertion": {app: assertion, service: func(w http.ResponseWriter, _ *http.Request) { problem(w, http.StatusUnauthorized) }, want: []string{"GH052"}, says: []string{"/v1/books, /v1/loans"}},
		"which fails for it":          {service: func(w http.ResponseWriter, _ *http.Request) { problem(w, http.StatusInternalServerError) }, want: []string{"GH050"}, says: []string{"for the business gatehouse-check"}},
		"without an assertion, 403": {app: assertion, business: "17", service: func(w http.ResponseWriter, r *http.Request) {
			if isUnasserted(r) {
				problem(w, http.StatusForbidden)
				return
			}
			library(w, r)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"--business", c.business}
			if c.business == "" {
				args = nil
			}
			report, text, status := probeWith(t, probed{redis: redis, app: strings.ReplaceAll(c.app, "DIR", dir), api: "definition " + file + "\nupstream " + startService(t, c.service)}, args...)
			var ids []string
			for _, f := range report.Findings {
				ids = append(ids, f.Rule)
			}
			assert.Equal(t, c.want, slices.Compact(ids), text)
			for _, says := range append(c.says, c.skipped...) {
				assert.Contains(t, text, says)
			}
			assert.Len(t, report.Skipped, min(len(c.skipped), 1), text)
			assert.Equal(t, map[bool]string{true: "1", false: map[bool]string{true: "2", false: "0"}[c.skipped != nil]}[c.want != nil], status)
		})
	}
}

// A service without such an operation could be down, or another one, although everything seems to be checked.
func TestCheckNamesServicesOfWhichItCanCallNoOperation(t *testing.T) {
	redis := "redis " + redistest.Start(t, redistest.WithConfig("appendonly", "yes")).URL()
	file := filepath.Join(t.TempDir(), "shop.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`{openapi: 3.1.0, info: {title: Shop, version: "1"}, servers: [{url: /v1}], x-gatehouse-tenant: request, paths: {
		/days: {get: {operationId: listDays, responses: {"200": {description: x, content: {application/json: {schema: {type: array, maxItems: 9, items: {type: string}}}}}}}},
		"/refunds/{id}": {get: {operationId: getRefund, parameters: [{name: id, in: path, required: true, schema: {type: string}}], responses: {"204": {description: x}}}},
		/ping: {get: {operationId: ping, x-gatehouse-public: true, x-gatehouse-answer: {status: ok}, responses: {"200": {description: x, content: {application/json: {schema: {
			type: object, required: [status], properties: {status: {type: string}}}}}}}}},
		/claims: {post: {operationId: makeClaim, responses: {"204": {description: x}}}}}}`), 0o600))
	live := startService(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "[]")
	})
	app := "assertion " + filepath.Join(filepath.Dir(file), "hop.key")
	writeCertificate(t, filepath.Join(filepath.Dir(file), "hop"), "example.com", time.Hour)
	for name, c := range map[string]struct {
		options string
		want    []string
		skipped int
	}{
		"beside others":       {"\nupstream " + live, nil, 0},
		"of a service":        {"\nupstream " + live + "\nupstream refunds " + live, nil, 1},
		"that serves none":    {" {\nonly ping\n}\nupstream http://127.0.0.1:1", nil, 0},
		"of one that is down": {"\nupstream " + live + "\nupstream refunds http://127.0.0.1:1", []string{"GH050"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			report, text, _ := probeWith(t, probed{redis: redis, app: app, api: "definition " + file + c.options}, "--business", "17")
			var ids []string
			for _, f := range report.Findings {
				if f.Rule != "GH051" { // it looks at no assertion
					ids = append(ids, f.Rule)
				}
			}
			assert.Equal(t, c.want, ids, text)
			assert.Len(t, report.Skipped, c.skipped, text)
			assert.Equal(t, c.skipped > 0, strings.Contains(text, "each operation, such as /v1/refunds/1, requires a parameter, or writes"), text)
		})
	}
}

// A call that ends because all probes must end says nothing about the data service.
func TestCheckDoesNotBlameServicesForItsOwnLimit(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	probes := apiPaths()
	require.LessOrEqual(t, len(probes), 16, "all are made at the same time")
	var inFlight sync.WaitGroup
	inFlight.Add(len(probes))
	go func() {
		inFlight.Wait()
		cancel()
	}()
	service := startService(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/api/v1/contacts" {
			w.WriteHeader(http.StatusOK) // and the body is late
			_ = http.NewResponseController(w).Flush()
		}
		inFlight.Done()
		<-r.Context().Done()
	})
	path := filepath.Join(t.TempDir(), "Caddyfile")
	require.NoError(t, os.WriteFile(path, []byte(`{
	admin off
	gatehouse {
		redis `+redistest.Start(t).URL()+`
		credentials file `+path+`.keys
	}
}
http://127.0.0.1:0 {
	gatehouse_api {
		upstream `+service+`
	}
}
`), 0o600))
	require.NoError(t, os.WriteFile(path+".keys", []byte(`{"keys":{}}`), 0o600))
	o := caddymodule.CheckOptions()
	o.Progress = io.Discard
	report, err := check.Run(ctx, path, "", o)
	require.NoError(t, err)
	require.NotEmpty(t, report.Skipped)
	for _, path := range probes {
		assert.Contains(t, report.Skipped[0].What, path)
	}
	for _, f := range report.Findings {
		assert.NotRegexp(t, "GH05", f.Rule, f.Message)
	}
}

// The findings name the address, and an upstream is asked for its own resources only.
func TestCheckAsksEachAddressForItsResources(t *testing.T) {
	var mu sync.Mutex
	requests := map[string][]*http.Request{}
	recorded := func(name string, respond http.HandlerFunc) string {
		return startService(t, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			requests[name] = append(requests[name], r)
			mu.Unlock()
			respond(w, r)
		})
	}
	first, second, others := recorded("first", soundResponse), recorded("second", http.NotFound), recorded("others", soundResponse)
	report, text, _ := probeWith(t, probed{
		redis: "redis " + redistest.Start(t).URL(),
		api:   "upstream events jobs " + first + " " + second + "\nupstream " + others,
	}, "--business", knownBusiness)
	require.Len(t, report.Findings, 1, text)
	assert.Equal(t, "GH053", report.Findings[0].Rule)
	assert.Contains(t, report.Findings[0].Message, strings.TrimPrefix(second, "http://")+" responds with 404 to /api/v1/jobs, /api/v1/events for")
	own := []string{"/api/v1/events?count=10", "/api/v1/jobs?page=1&per_page=25"}
	for name, all := range requests {
		var targets []string
		for _, r := range all {
			targets = append(targets, r.RequestURI)
			assert.Equal(t, http.MethodGet, r.Method)
			assert.Equal(t, []string{knownBusiness}, r.Header[upstream.HeaderBusinessID])
			assert.Len(t, r.Header[upstream.HeaderRequestID], 1)
			assert.Equal(t, []string{"identity"}, r.Header["Accept-Encoding"])
			assert.Equal(t, []string{"application/json"}, r.Header["Accept"])
		}
		slices.Sort(targets)
		if name == "others" {
			assert.Len(t, targets, len(apiPaths())-len(own))
			continue
		}
		assert.Equal(t, own, targets, name)
	}
}

func TestCheckProbesServicesOfNamedRoutes(t *testing.T) {
	report, text, _ := probeWith(t, probed{
		redis: "redis " + redistest.Start(t).URL(),
		api: "upstream " + soundService(t) + "\n}\ninvoke /gw/* gw\n}\n" +
			"&(gw) {\ngatehouse_api {\nbase_path /gw\nupstream " + startService(t, statusOr(500, always)),
	}, "--business", knownBusiness)
	require.Len(t, report.Findings, 1, text)
	assert.Equal(t, "GH050", report.Findings[0].Rule)
}

// Without --business, data services are asked for the business of a key in the credential file. If there is none, a data service
// cannot know the business, and the report says what that leaves open.
func TestCheckChoosesTheBusiness(t *testing.T) {
	redis, service := "redis "+redistest.Start(t).URL(), soundService(t)
	report, text, status := probeWith(t, probed{redis: redis, service: service})
	require.Empty(t, report.Findings, text)
	require.Len(t, report.Skipped, 1, text)
	require.Contains(t, report.Skipped[0].What, "/api/v1/business of the data service at 127.0.0.1:")
	require.Contains(t, report.Skipped[0].Why, "--business")
	require.Equal(t, "2", status)

	record := `{"private_key":"s3cret-0123456789abcdef0123456789abcdef","business_id":"BUSINESS","business_name":"B","business_slug":"b","status":"STATUS"}`
	file := filepath.Join(t.TempDir(), "keys.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"keys":{"pk_live_0123456789":`+strings.NewReplacer("BUSINESS", "closed", "STATUS", "inactive").Replace(record)+
		`,"pk_live_1234567890":`+strings.NewReplacer("BUSINESS", knownBusiness, "STATUS", "active").Replace(record)+`}}`), 0o600))
	p := probed{redis: redis, service: service, credentials: "credentials file " + file}
	report, text, status = probeWith(t, p)
	require.Empty(t, report.Findings, text)
	require.Empty(t, report.Skipped, text)
	require.Equal(t, "0", status)

	report, text, status = probeWith(t, p, "--business", "another")
	require.Len(t, report.Findings, 1, text)
	require.Contains(t, report.Findings[0].Message, "responds with 404 to /api/v1/business for the business another")
	require.Equal(t, "1", status)

	stdout, stderr, status := runCheck(t, "--config", "check.go", "--business", "two words")
	assert.Equal(t, "3", status, stdout)
	assert.Contains(t, stderr, `invalid business ID "two words"`)
}

func TestCheckProbesHealthURI(t *testing.T) {
	redis := "redis " + redistest.Start(t).URL()
	file := filepath.Join(t.TempDir(), "hop")
	writeCertificate(t, file, "example.com", time.Hour)
	for name, c := range map[string]struct {
		service       http.HandlerFunc
		options, want string
		skipped       string
	}{
		"healthy":        {verifying(t, file+".key", "gatehouse"), "", "", ""},
		"unhealthy":      {statusOr(503, isPath("/healthz")), "", "GH050", ""},
		"another status": {statusOr(418, isPath("/healthz")), "health_status 4xx", "", ""},
		"another request": {func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if r.URL.Path == "/healthz" && (r.Method != http.MethodPost || r.Host != "health.internal" || r.Header.Get("X-Probe") != "yes" || string(body) != "ping") {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			soundResponse(w, r)
		}, "health_method POST\nhealth_request_body ping\nhealth_headers {\nhost health.internal\nX-Probe yes\n}", "", ""},
		"another body":    {soundResponse, "health_body UP", "GH050", ""},
		"on another port": {soundResponse, "health_port 9", "", "health_uri /healthz"},
	} {
		t.Run(name, func(t *testing.T) {
			service := func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/healthz" {
					assert.Empty(t, strings.Trim(r.Header.Get(upstream.HeaderAssertion)+r.Header.Get(upstream.HeaderBusinessID), "-"), "health checks name no business")
				}
				if r.URL.Path != "/healthz" && isUnasserted(r) {
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				c.service(w, r)
			}
			report, text, _ := probeWith(t, probed{
				redis: redis, app: "assertion " + file + ".key",
				service: startService(t, service) + " {\nhealth_uri /healthz\n" + c.options + "\n}",
			}, "--business", knownBusiness)
			if c.want != "" {
				require.Len(t, report.Findings, 1, text)
				require.Equal(t, c.want, report.Findings[0].Rule)
				require.Contains(t, report.Findings[0].Message, "health_uri /healthz")
			} else {
				require.Empty(t, report.Findings, text)
			}
			if c.skipped != "" {
				require.Len(t, report.Skipped, 1, text)
				require.Contains(t, report.Skipped[0].What, c.skipped)
			}
		})
	}
}

// What was skipped is in each format.
func TestReportNamesWhatWasSkipped(t *testing.T) {
	t.Parallel()
	report := check.Report{Skipped: []check.Skip{{What: "the version of Redis", Why: "made up"}}}
	for name, write := range map[string]func(*strings.Builder) error{
		"text":  func(b *strings.Builder) error { return report.Print(b) },
		"JSON":  func(b *strings.Builder) error { return report.EncodeJSON(b) },
		"SARIF": func(b *strings.Builder) error { return report.EncodeSARIF(b) },
	} {
		var b strings.Builder
		require.NoError(t, write(&b))
		want := map[string]string{
			"text":  "Not checked: the version of Redis: made up\n0 errors, 0 warnings, 1 not checked\n",
			"JSON":  `{"findings":[],"skipped":[{"what":"the version of Redis","why":"made up"}]}` + "\n",
			"SARIF": `"invocations":[{"executionSuccessful":true,"toolExecutionNotifications":[{"level":"warning","message":{"text":"Not checked: the version of Redis: made up"}}]}]`,
		}[name]
		if name == "SARIF" {
			assert.Contains(t, b.String(), want)
		} else {
			assert.Equal(t, want, b.String())
		}
	}
}
