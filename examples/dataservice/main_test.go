package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/leaktest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// start runs a gateway with one of the example configurations, changed only in its addresses, and issues a key as
// README.md does. Requests to the data service of example 8081 go to data.
func start(t *testing.T, example string, data func(gateway string) http.Handler) (*gatewaytest.Gateway, gatewaytest.Caller) {
	t.Helper()
	config, err := os.ReadFile(filepath.Join("..", example))
	require.NoError(t, err)
	g := gatewaytest.New(t, gatewaytest.Options{})
	service := httptest.NewServer(data(g.URL))
	t.Cleanup(service.Close)
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	hop := filepath.Join(g.Dir, "hop.pem")
	require.NoError(t, os.WriteFile(hop, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
	g.Write(t, strings.NewReplacer(
		"{\n\tgatehouse {", "{\n\tadmin "+strings.TrimPrefix(g.AdminURL, "http://")+"\n\tgatehouse {",
		"{\n\tservers {", "{\n\tadmin "+strings.TrimPrefix(g.AdminURL, "http://")+"\n\tservers {",
		"localhost:6379", redistest.Start(t).Addr,
		"http://localhost:8080", g.URL, ":8080 {", g.URL[strings.LastIndex(g.URL, ":"):]+" {", "http://localhost:8081", service.URL, "http://localhost:8082", service.URL,
		"http://localhost:8083", service.URL, "keys.json", filepath.Join(g.Dir, "keys.json"), "hop.pem", hop,
	).Replace(string(config)))
	printed, err := gatewaytest.Command(t, nil, "keys", "issue", "--json", "--file", filepath.Join(g.Dir, "keys.json"),
		"--business-id", "biz_1", "--business-name", "Fernhollow", "--business-slug", "fernhollow")
	require.NoError(t, err, printed)
	var issued struct {
		PublicKey  string `json:"public_key"`
		PrivateKey string `json:"private_key"`
	}
	require.NoError(t, json.Unmarshal([]byte(printed), &issued), printed)
	g.Run(t)
	t.Cleanup(func() { g.Stop(t) })
	return g, gatewaytest.Caller{PublicKey: issued.PublicKey, PrivateKey: authsigner.Secret(issued.PrivateKey)}
}

// empty is a data service that has no records, and asks for no assertion.
func empty(string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/api/v1/")
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			name: []any{}, "pagination": map[string]int{"current_page": 1, "per_page": 25, "total_items": 0, "total_pages": 0},
		})
	})
}

func TestTheDataServiceServesEachBusinessItsOwnContactsThroughTheGateway(t *testing.T) {
	t.Parallel()
	g, caller := start(t, "first.Caddyfile", handler)
	for target, names := range map[string][]string{
		"/api/v1/contacts":                   {"Ravi", "Ines"},
		"/api/v1/contacts?type=lead":         {"Ravi"},
		"/api/v1/contacts?status=inactive":   {},
		"/api/v1/contacts?per_page=1&page=2": {"Ines"},
		"/api/v1/contacts?page=9":            {},
	} {
		a := caller.Get(t, g.URL, target)
		require.Equal(t, http.StatusOK, a.Status, a.Body)
		var page struct {
			Contacts []struct {
				FirstName string `json:"first_name"`
			} `json:"contacts"`
		}
		require.NoError(t, json.Unmarshal([]byte(a.Body), &page))
		got := []string{}
		for _, c := range page.Contacts {
			got = append(got, c.FirstName)
		}
		assert.Equal(t, names, got, target)
	}
}

func TestTheDataServiceAnswersOnlyGateways(t *testing.T) {
	t.Parallel()
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/jwk-set+json")
		_, _ = w.Write([]byte(`{"keys":[]}`))
	}))
	t.Cleanup(gateway.Close)
	r := httptest.NewRequest(http.MethodGet, "/api/v1/contacts?page=1&per_page=25", http.NoBody)
	r.Header.Set("X-Business-Id", "biz_1")
	w := httptest.NewRecorder()
	handler(gateway.URL).ServeHTTP(w, r)
	require.Equal(t, http.StatusUnauthorized, w.Code)
}

func TestEveryExampleConfigurationServesTheAPI(t *testing.T) {
	t.Parallel()
	for example, base := range map[string]string{
		"services.Caddyfile": "", "assistants.Caddyfile": "", "behind-a-proxy.Caddyfile": "/gateway",
	} {
		t.Run(example, func(t *testing.T) {
			t.Parallel()
			g, caller := start(t, example, empty)
			for _, path := range []string{"/api/v1/me", "/api/v1/contacts", "/api/v1/jobs"} {
				// Callers sign the API's own path, wherever the API is.
				now := time.Now().Unix()
				a, err := caller.Send(t.Context(), http.MethodGet, g.URL, base+path, http.Header{
					authsigner.HeaderPublicKey: {caller.PublicKey}, authsigner.HeaderTimestamp: {strconv.FormatInt(now, 10)},
					authsigner.HeaderSignature: {authsigner.Sign(caller.PrivateKey, now, http.MethodGet, path, nil)},
				}, nil)
				require.NoError(t, err)
				assert.Equal(t, http.StatusOK, a.Status, a.Body)
			}
			require.Equal(t, http.StatusOK, gatewaytest.Caller{}.Get(t, g.URL, "/healthz").Status)
		})
	}
	t.Run("each has a test", func(t *testing.T) {
		t.Parallel()
		files, err := filepath.Glob("../*.Caddyfile")
		require.NoError(t, err)
		require.Len(t, files, 4)
	})
}
