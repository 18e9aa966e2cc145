package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/referencetest"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition/reference"
)

func TestSamplesOfTheReferenceRunAsTheyStand(t *testing.T) {
	t.Parallel()
	d := startDemo(t, "--no-rate-limit")
	page := anonymous().Get(t, d.url, "/docs")
	require.Equal(t, http.StatusOK, page.Status, page.Body)
	caller := d.caller(t)
	wrong := gatewaytest.Caller{PublicKey: caller.PublicKey, PrivateKey: "sk_test_another_key_that_is_wrong"}
	seen := map[string]int{}
	for _, s := range referencetest.Samples(t, page.Body) {
		seen[s.Operation]++
		t.Run(s.Operation+"/"+s.Language, func(t *testing.T) {
			t.Parallel()
			out, err := s.Run(t, d.url, caller)
			require.NoError(t, err, "%s\n%s", s.Code, out)
			require.True(t, json.Valid([]byte(out)), out)
			require.NotContains(t, out, `"error"`)
			if s.Operation == "getMe" {
				out, err := s.Run(t, d.url, wrong)
				require.Error(t, err, "it fails if the response is an error")
				assert.Contains(t, out, "INVALID_CREDENTIALS")
			}
		})
	}
	for operation := range strings.FieldsSeq("getStatus getMe getBusiness listContacts listEquipment listEstimates listInvoices listJobs listOfferings listEvents") {
		assert.Len(t, referencetest.Languages(), seen[operation], operation)
	}
	assert.Len(t, seen, 10)
}

// The texts of a document must not end the literals that they are in: what runs is only what the template has.
//
//nolint:tparallel // the subtests compare what they send
func TestSamplesSignWhatTheySendWhateverTheDocumentSays(t *testing.T) {
	t.Parallel()
	const attack = `'; touch attacked; ' "; touch attacked; " $(touch attacked) ${require('fs')} ` + "`touch attacked` \\' \\\" \\n %s ''' \"\"\" */ <?php ?> \u2028\u202e ü 🙂"
	text := fmt.Sprintf(`{"openapi": "3.1.1", "info": {"title": %[1]q}, "servers": [{"url": "{base_url}/v1"}],
		"security": [{"key": []}], "paths": {"/o'$(touch)/{id}": {"patch": {"operationId": "change",
		"parameters": [
			{"name": "id", "in": "path", "required": true, "schema": {"type": "string"}, "example": %[1]q},
			{"name": %[1]q, "in": "query", "required": true, "schema": {"type": "array", "items": {"type": "string"}}, "example": [%[1]q, "b"]},
			{"name": "flat", "in": "query", "required": true, "explode": false, "schema": {"type": "array", "items": {"type": "integer"}}, "example": [1, 2]},
			{"name": "Idempotency-Key", "in": "header", "schema": {"type": "string"}, "example": %[1]q}],
		"requestBody": {"required": true, "content": {"application/merge-patch+json": {"schema": {"type": "object", "required": [%[1]q, "n"], "properties": {
			%[1]q: {"type": "string", "example": %[1]q}, "id": {"type": "string", "readOnly": true}, "n": {"type": "integer", "minimum": 12345678901234567}}}}}},
		"responses": {"200": {"description": "Changed."}}}}}}`, attack)
	page := renderText(t, text)
	c := gatewaytest.Caller{PublicKey: "pk_live_0123456789", PrivateKey: "sk_live_8GmYwq3cVn5tB2xKzR7pLd0hJf4sWu6e"}
	verifier, bodies := &authsigner.Verifier{MaxBody: 1 << 20}, make(chan string, 4)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		claim, err := verifier.ReadClaim(r, r.RequestURI)
		if err == nil {
			_, err = verifier.VerifyClaim(&claim, &authsigner.Credential{PublicKey: c.PublicKey, PrivateKey: c.PrivateKey, Status: authsigner.StatusActive})
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		body, _ := io.ReadAll(r.Body)
		bodies <- fmt.Sprint(r.Method, " ", r.RequestURI, " ", r.Header.Get("Content-Type"), " ", r.Header.Get("Idempotency-Key"), " ", string(body))
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(server.Close)
	var first string
	samples := referencetest.Samples(t, string(page))
	require.Len(t, samples, len(referencetest.Languages()))
	for _, s := range samples {
		t.Run(s.Language, func(t *testing.T) {
			out, err := s.Run(t, server.URL, c)
			require.NoError(t, err, "%s\n%s", s.Code, out)
			assert.Equal(t, "{}", strings.TrimSpace(out))
			got := <-bodies
			if first == "" {
				first = got
			}
			assert.Equal(t, first, got, "all languages send the same")
		})
	}
	require.Contains(t, first, `"n": 12345678901234567`)
	require.Contains(t, first, "PATCH /v1/o'$(touch)/%27%3B%20touch")
	require.Contains(t, first, "flat=1,2")
	require.NotContains(t, first, `"id"`)
}

func TestSamplesPrintDownloadsByteForByte(t *testing.T) {
	t.Parallel()
	page := renderText(t, `{"openapi": "3.1.1", "info": {"title": "x"}, "servers": [{"url": "{base_url}/v1"}], "paths": {"/invoice": {"get": {"operationId": "download",
		"security": [], "responses": {"200": {"description": "An invoice.", "content": {"application/pdf": {}}}}}}}}`)
	var pdf strings.Builder
	for b := range 1 << 8 {
		pdf.WriteByte(byte(b))
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/pdf")
		_, _ = io.WriteString(w, pdf.String())
	}))
	t.Cleanup(server.Close)
	samples := referencetest.Samples(t, string(page))
	require.Len(t, samples, len(referencetest.Languages()))
	for _, s := range samples {
		t.Run(s.Language, func(t *testing.T) {
			t.Parallel()
			out, err := s.Run(t, server.URL, gatewaytest.Caller{})
			require.NoError(t, err, "%s\n%s", s.Code, out)
			assert.Equal(t, pdf.String(), out)
		})
	}
}

// renderText renders the page of a document.
func renderText(t *testing.T, text string) []byte {
	t.Helper()
	var document yaml.Node
	require.NoError(t, yaml.Unmarshal([]byte(text), &document))
	page, err := reference.Render(document.Content[0], "")
	require.NoError(t, err)
	return page
}

// The matcher of the directive is also the reference's, but for the path.
func TestReferenceIsOnlyServedWhereTheAPIIs(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	for address, served := range map[string]bool{"127.0.0.1": true, "192.0.2.1": false} {
		o := w.options("", "")
		o.Site = "@internal {\n\t\tpath /api/*\n\t\tremote_ip " + address + "\n\t}\n\tgatehouse_api @internal {\n\t\tdocs_path /docs\n\t\tupstream " + w.dataURL + "\n\t}"
		g := gatewaytest.Start(t, o)
		for _, path := range []string{"/docs", "/docs/openapi.yaml"} {
			require.Equal(t, served, anonymous().Get(t, g.URL, path).Body != "", "%s %s", address, path)
		}
	}
}

func TestReferenceIsServedUnsignedAndCounts(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	g := w.start(t, "limits {\n\t\t\tper_key 600\n\t\t}", "base_path /gw\n\t\tdocs_path /gw/docs https://api.shop.example/gw")
	page := anonymous().Get(t, g.URL, "/gw/docs?from=a-letter")
	require.Equal(t, http.StatusOK, page.Status, page.Body)
	assert.Equal(t, "text/html; charset=utf-8", page.Header.Get("Content-Type"))
	policy := page.Header.Get("Content-Security-Policy")
	assert.Contains(t, policy, "default-src 'none'")
	assert.Contains(t, policy, "frame-ancestors 'none'")
	assert.NotContains(t, policy, "unsafe")
	assert.NotContains(t, policy, "script-src")
	assert.Equal(t, "no-cache", page.Header.Get("Cache-Control"))
	assert.Equal(t, "9", page.Header.Get("X-RateLimit-Remaining"), "it counts against the client IP")
	assert.Contains(t, page.Body, `href="docs/openapi.yaml"`)
	assert.Contains(t, page.Body, "https://api.shop.example/gw/api/v1")
	assert.NotContains(t, page.Body, "api.example.com")
	assert.Contains(t, page.Body, "600 requests a minute for each public key, and without one 10 a minute")
	get := func(method, target string, header http.Header) gatewaytest.Response {
		a, err := anonymous().Send(t.Context(), method, g.URL, target, header, nil)
		require.NoError(t, err)
		return a
	}
	published, err := definition.PublicDefinition().Published(definition.PublishOptions{BaseURL: "https://api.shop.example/gw", PerKey: 600})
	require.NoError(t, err)
	document := get(http.MethodGet, "/gw/docs/openapi.yaml", nil)
	assert.Equal(t, string(published), document.Body)
	assert.Equal(t, "application/yaml", document.Header.Get("Content-Type"))
	head := get(http.MethodHead, "/gw/docs", nil)
	assert.Equal(t, http.StatusOK, head.Status)
	assert.Empty(t, head.Body)
	unchanged := get(http.MethodGet, "/gw/docs", http.Header{"If-None-Match": {page.Header.Get("ETag")}})
	assert.Equal(t, http.StatusNotModified, unchanged.Status)
	requireProblem(t, get(http.MethodPost, "/gw/docs", nil), http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED")
	for _, elsewhere := range []string{"/gw/docs/", "/gw/Docs", "/gw/docs/../docs", "/gw/d%6Fcs"} {
		requireProblem(t, get(http.MethodGet, elsewhere, nil), http.StatusNotFound, "NOT_FOUND")
	}
	counts := statuses(20, func(int) gatewaytest.Response { return get(http.MethodGet, "/gw/docs", nil) })
	assert.Equal(t, map[int]int{http.StatusOK: 5, http.StatusTooManyRequests: 15}, counts, "five of ten requests came before")
}
