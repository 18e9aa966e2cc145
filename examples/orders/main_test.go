package main

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/leaktest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/referencetest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// shop is a directory with the files of the example, changed only in their addresses, and the programs that use them.
type shop struct {
	dir     string
	gateway *gatewaytest.Gateway
	prelude string // of each script
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{dir: t.TempDir(), gateway: gatewaytest.New(t, gatewaytest.Options{})}
	s.prelude = "export HOME=" + s.dir + " PATH=" + s.dir + ":$PATH\ncd " + s.dir + "\n"
	service := httptest.NewServer(handler(s.gateway.URL))
	t.Cleanup(service.Close)
	require.NoError(t, os.Symlink(gatewaytest.Binary(t), filepath.Join(s.dir, "gatehouse")))
	changes := strings.NewReplacer(
		"{\n\tgatehouse {", "{\n\tadmin "+strings.TrimPrefix(s.gateway.AdminURL, "http://")+"\n\tgatehouse {",
		"localhost:6379", redistest.Start(t).Addr, "http://localhost:8080", s.gateway.URL, "http://localhost:8081", service.URL,
	)
	for _, name := range []string{"orders.openapi.yaml", "orders.gatehouse.yaml", "Caddyfile"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, name), []byte(changes.Replace(string(text))), 0o600))
	}
	return s
}

// sh runs a script in the directory, and returns what it prints.
func (s *shop) sh(t *testing.T, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", s.prelude+strings.ReplaceAll(script, "http://localhost:8080", s.gateway.URL))
	out, err := cmd.CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); !failed { // as grep and curl may
		require.NoError(t, err)
	}
	return string(out)
}

// issue issues a key to a business, and returns it with what is printed.
func (s *shop) issue(t *testing.T, command string) (gatewaytest.Caller, string) {
	t.Helper()
	out := s.sh(t, command)
	public, private := regexp.MustCompile(`pk_live_\S+`).FindString(out), regexp.MustCompile(`sk_live_\S+`).FindString(out)
	require.NotEmpty(t, public, out)
	require.NotEmpty(t, private, out)
	return gatewaytest.Caller{PublicKey: public, PrivateKey: authsigner.Secret(private)}, out
}

// run starts the gateway.
func (s *shop) run(t *testing.T) {
	t.Helper()
	caddyfile, err := os.ReadFile(filepath.Join(s.dir, "Caddyfile"))
	require.NoError(t, err)
	absolute := regexp.MustCompile(`\b(keys\.json|hop\.pem|orders\.\w+\.yaml)`).ReplaceAllString(string(caddyfile), s.dir+"/$1")
	s.gateway.Write(t, gatewaytest.WaitForRedis(absolute))
	s.gateway.Run(t)
	t.Cleanup(func() { s.gateway.Stop(t) })
}

// Each command of the page prints what the page shows. … stands for any text, and alone on a line for any lines.
func TestYourOwnAPIInFifteenMinutes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/your-own-api.md")
	require.NoError(t, err)
	s := newShop(t)
	var caller gatewaytest.Caller
	scripts, commands := 0, 0
	for _, block := range regexp.MustCompile("(?s)```(sh|console)\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		if block[1] == "sh" {
			switch scripts++; scripts {
			case 1:
				require.Equal(t, "make build\nexport PATH=$PWD/bin:$PATH\ncd examples/orders\n", block[2])
			case 2:
				require.Equal(t, "go run . &\ngatehouse run 2> gatehouse.log &\n", block[2])
				s.run(t)
			default:
				s.prelude += strings.NewReplacer("pk_live_…", caller.PublicKey, "sk_live_…", caller.PrivateKey.Reveal()).Replace(block[2])
			}
			continue
		}
		for _, part := range strings.Split("\n"+block[2], "\n$ ")[1:] {
			command, want, _ := strings.Cut(strings.TrimSpace(part), "\n")
			var got string
			if strings.Contains(command, "keys issue") {
				caller, got = s.issue(t, command)
			} else {
				got = s.sh(t, command)
			}
			pattern := strings.ReplaceAll(regexp.QuoteMeta(want), "…", `[^\n]*`)
			pattern = strings.ReplaceAll(pattern, "\n[^\\n]*\n", "\n(?s:.*)\n")
			require.Regexp(t, "^"+pattern+"$", strings.TrimSpace(got), command)
			commands++
		}
	}
	require.Equal(t, 3, scripts)
	require.Equal(t, 20, commands)
}

func TestBusinessesAreKeptApart(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.sh(t, "openssl genpkey -algorithm ed25519 -out hop.pem")
	const issue = "gatehouse keys issue --file keys.json --business-name x --business-slug x --business-id "
	other, _ := s.issue(t, issue+"18 --write")
	reader, _ := s.issue(t, issue+"17")
	s.run(t)
	published, err := openapi3.NewLoader().LoadFromData([]byte(s.sh(t, "gatehouse api publish orders.openapi.yaml --overlay orders.gatehouse.yaml")))
	require.NoError(t, err)
	published.Servers = nil
	for _, response := range published.Components.Responses {
		response.Value.Headers = nil // kin-openapi cannot read those whose schema is a constant
	}
	for _, c := range []struct {
		caller               gatewaytest.Caller
		method, target, body string
		header               http.Header
		status               int
		contains             string
	}{
		{other, "GET", "/v1/orders", "", nil, 200, `{"orders":[{"id":"o-2",`},
		{other, "GET", "/v1/orders/o-1", "", nil, 404, "no such order"},
		{other, "PATCH", "/v1/orders/o-1", `{"note":"x"}`, http.Header{"Content-Type": {"application/merge-patch+json"}, "If-Match": {`"1"`}}, 404, "no such order"},
		{other, "PATCH", "/v1/orders/o-2", `{"note":"x"}`, http.Header{"Content-Type": {"application/merge-patch+json"}, "If-Match": {`"1"`}}, 200, `"note":"x"`},
		{other, "PATCH", "/v1/orders/o-2", `{"note":null}`, http.Header{"Content-Type": {"application/merge-patch+json"}, "If-Match": {`"2"`}}, 200, `"note":null`},
		{other, "PATCH", "/v1/orders/o-2", `{"account":"17"}`, http.Header{"Content-Type": {"application/merge-patch+json"}, "If-Match": {`"3"`}}, 400, "not a documented member"},
		{other, "GET", "/v1/orders/o-1/shipments", "", nil, 404, "no such order"},
		{other, "POST", "/v1/orders/o-2/shipments", `{"carrier":"post","tracking_number":"RR12"}`, http.Header{"Idempotency-Key": {"a"}}, 409, "not paid"},
		{other, "GET", "/v1/customers/c-1", "", nil, 404, "no such customer"},
		{other, "POST", "/v1/customers", `{"name":"Kim","email":"kim@example.com"}`, http.Header{"Idempotency-Key": {"a"}}, 201, `"id":"c-4"`},
		{other, "POST", "/v1/customers", `{"name":"Kim","email":"kim@example.org"}`, http.Header{"Idempotency-Key": {"a"}}, 409, "something else"},
		{other, "GET", "/v1/customers?per_page=1&page=2", "", nil, 200, `{"customers":[{"id":"c-3","name":"Maud"`},
		{other, "GET", "/v1/orders/o-2", "", http.Header{"If-None-Match": {`"3"`}}, 304, ""},
		{reader, "GET", "/v1/orders?cursor=o-3&status=paid", "", nil, 200, `{"orders":[{"id":"o-1"`},
		{reader, "GET", "/v1/orders/o-1/shipments", "", nil, 200, `{"shipments":[]}`},
		{reader, "POST", "/v1/quotes", `{"lines":[{"sku":"A-1","quantity":3}]}`, nil, 200, `{"total":"59.70"}`},
		{reader, "POST", "/v1/quotes", `{"lines":[{"sku":"A-9","quantity":3}]}`, nil, 422, "no article A-9"},
		{reader, "POST", "/v1/customers", `{"name":"Kim","email":"kim@example.com"}`, http.Header{"Idempotency-Key": {"a"}}, 403, "WRITE_NOT_ALLOWED"},
	} {
		header := http.Header{"Content-Type": {"application/json"}}
		maps.Copy(header, c.header)
		now := time.Now().Unix()
		header.Set(authsigner.HeaderPublicKey, c.caller.PublicKey)
		header.Set(authsigner.HeaderTimestamp, strconv.FormatInt(now, 10))
		header.Set(authsigner.HeaderSignature, authsigner.Sign(c.caller.PrivateKey, now, c.method, c.target, []byte(c.body)))
		a, err := c.caller.Send(t.Context(), c.method, s.gateway.URL, c.target, header, []byte(c.body))
		require.NoError(t, err)
		assert.Equal(t, c.status, a.Status, "%s %s: %s", c.method, c.target, a.Body)
		assert.Contains(t, a.Body, c.contains, "%s %s", c.method, c.target)
		requireDocumented(t, published, c.method, c.target, header, c.body, a)
		for _, internal := range []string{"account", "margin"} {
			assert.NotContains(t, a.Body, `"`+internal+`"`)
		}
	}
}

// requireDocumented checks that a response, and the request if it was successful, are as the published document says.
func requireDocumented(t *testing.T, doc *openapi3.T, method, target string, header http.Header, body string, a gatewaytest.Response) {
	t.Helper()
	router, err := legacy.NewRouter(doc)
	require.NoError(t, err)
	r := httptest.NewRequest(method, strings.TrimPrefix(target, "/v1"), strings.NewReader(body))
	r.Header = header
	route, parameters, err := router.FindRoute(r)
	require.NoError(t, err)
	input := &openapi3filter.RequestValidationInput{
		Request: r, PathParams: parameters, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true},
	}
	if a.Status < http.StatusBadRequest {
		require.NoError(t, openapi3filter.ValidateRequest(t.Context(), input), "%s %s", method, target)
	}
	if a.Status == http.StatusNotModified {
		return
	}
	response := &openapi3filter.ResponseValidationInput{RequestValidationInput: input, Status: a.Status, Header: a.Header, Options: input.Options}
	require.NoError(t, openapi3filter.ValidateResponse(t.Context(), response.SetBodyBytes([]byte(a.Body))), "%s %s: %d %s", method, target, a.Status, a.Body)
}

// The document has no examples of parameters and bodies: they are made from its schemas.
//
//nolint:tparallel // what one writes, another changes
func TestSamplesOfTheReferenceAreAccepted(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.sh(t, "openssl genpkey -algorithm ed25519 -out hop.pem && sed -i 's/gatehouse_api {/&\\ndocs_path \\/docs/' Caddyfile")
	callers := map[string]gatewaytest.Caller{}
	for _, language := range referencetest.Languages() { // one key each: the same write twice within a second is a replay
		callers[language], _ = s.issue(t, "gatehouse keys issue --file keys.json --business-name x --business-slug x --business-id 17 --write")
	}
	s.run(t)
	page := gatewaytest.Caller{}.Get(t, s.gateway.URL, "/docs")
	require.Equal(t, http.StatusOK, page.Status, page.Body)
	samples := referencetest.Samples(t, page.Body)
	require.Len(t, samples, 10*len(callers))
	for _, sample := range samples {
		t.Run(sample.Operation+"/"+sample.Language, func(t *testing.T) {
			out, err := sample.Run(t, s.gateway.URL, callers[sample.Language])
			if sample.Operation == "changeOrder" { // nobody can guess the version that it changes
				require.Error(t, err)
				require.Contains(t, out, "changed in the meantime")
				return
			}
			require.NoError(t, err, "%s\n%s", sample.Code, out)
			require.Regexp(t, "^\\{", out)
		})
	}
}

func TestOnlyGatewaysAreServed(t *testing.T) {
	t.Parallel()
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/jwk-set+json")
		_, _ = w.Write([]byte(`{"keys":[]}`))
	}))
	t.Cleanup(gateway.Close)
	r := httptest.NewRequest(http.MethodGet, "/v1/orders?limit=1", http.NoBody)
	r.Header.Set("X-Business-Id", "17")
	w := httptest.NewRecorder()
	handler(gateway.URL).ServeHTTP(w, r)
	require.Equal(t, http.StatusUnauthorized, w.Code)
}

// The document is one as platforms have it, and the overlay is short.
func TestDocumentKnowsNothingOfGatehouse(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("orders.openapi.yaml")
	require.NoError(t, err)
	require.NotContains(t, string(document), "x-")
	overlay, err := os.ReadFile("orders.gatehouse.yaml")
	require.NoError(t, err)
	require.LessOrEqual(t, strings.Count(string(overlay), "\n"), 40)
}
