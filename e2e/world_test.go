package e2e_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/file"
	"github.com/gatehouse-gateway/gatehouse/internal/demo"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

// patience bounds what a test waits for.
const patience = time.Minute

// world is everything around a gateway: a Redis, a data service and the keys of two businesses and an inactive one.
type world struct {
	redis   *redistest.Server
	data    *httptest.Server
	dataURL string
	keyFile string

	acme, other, inactive gatewaytest.Caller
	acmeID, otherID       string
}

// newWorld starts the surroundings. A nil data service is the demo's.
func newWorld(t *testing.T, data http.Handler) *world {
	t.Helper()
	w := &world{redis: redistest.Start(t)}
	if data == nil {
		data = demoService(t).Handler()
	}
	srv := httptest.NewServer(data)
	t.Cleanup(srv.Close)
	w.data, w.dataURL = srv, srv.URL

	w.keyFile = filepath.Join(t.TempDir(), "keys.json")
	store, err := file.Open(w.keyFile, file.Options{Create: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	for i, b := range demo.Businesses() {
		cred, err := authsigner.Issue(t.Context(), store, authsigner.IssueOptions{
			BusinessID: b.ID, Name: b.Name, Slug: b.Slug, Test: true,
		})
		require.NoError(t, err)
		if b.AccountStatus != demo.AccountActive {
			cred, err = store.Update(t.Context(), cred.PublicKey, func(c *authsigner.Credential) (*authsigner.Credential, error) {
				next := c.Clone()
				next.Status = authsigner.StatusInactive
				return next, nil
			})
			require.NoError(t, err)
		}
		caller := gatewaytest.Caller{PublicKey: cred.PublicKey, PrivateKey: cred.PrivateKey}
		switch {
		case b.AccountStatus != demo.AccountActive:
			w.inactive = caller
		case i == 0:
			w.acme, w.acmeID = caller, b.ID
		default:
			w.other, w.otherID = caller, b.ID
		}
	}
	require.NotEmpty(t, w.acme.PublicKey)
	require.NotEmpty(t, w.other.PublicKey)
	require.NotEmpty(t, w.inactive.PublicKey)
	return w
}

// demoService is the demo's data service, one for all tests: nobody here writes to it, and to fill a database takes a second
// or two under the race detector.
func demoService(t *testing.T) *demo.Service {
	t.Helper()
	data, err := sharedDemo()
	require.NoError(t, err)
	return data
}

var sharedDemo = sync.OnceValues(func() (*demo.Service, error) {
	return demo.Open(context.Background(), demo.Memory, demo.Options{})
})

// options are the usual gateway in this world; app and api are put into the blocks gateway and gatehouse_api.
func (w *world) options(app, api string) gatewaytest.Options {
	return gatewaytest.Options{
		Global: fmt.Sprintf("gatehouse {\n\t\t%s\n\t\tcredentials file %s\n\t\t%s\n\t}", w.redisLine(), w.keyFile, app),
		Site:   fmt.Sprintf("gatehouse_health\n\tgatehouse_api {\n\t\tupstream %s\n\t\t%s\n\t}", w.dataURL, api),
	}
}

// redisLine is the usual gateway's option redis.
func (w *world) redisLine() string {
	return "redis " + w.redis.URL() + " {\n\t\t\t" + patientWithRedis + "\n\t\t}"
}

// patientWithRedis has a gateway wait for Redis. These tests run beside many others on few processors: what they hold is who
// is admitted, and not that Redis answers within the default 50 ms, which package ratelimit's tests do.
const patientWithRedis = "timeout 5s"

// gateway starts the usual gateway.
func (w *world) gateway(t *testing.T) *gatewaytest.Gateway {
	t.Helper()
	return gatewaytest.Start(t, w.options("", ""))
}

// roomy is a gateway whose limits nobody reaches.
func (w *world) roomy(t *testing.T) *gatewaytest.Gateway {
	t.Helper()
	return gatewaytest.Start(t, w.options("limits {\n\t\t\tper_key 1000000\n\t\t\tper_ip 1000000\n\t\t}", ""))
}

// problem is the body of an error.
type problem struct {
	Error      string `json:"error"`
	Code       string `json:"code"`
	RequestID  string `json:"request_id"`
	Parameter  string `json:"parameter"`
	Message    string `json:"message"`
	RetryAfter int    `json:"retry_after"`
	ServerTime int64  `json:"server_time"`
}

// requireProblem holds an answer to the shape of the contract's errors.
func requireProblem(t *testing.T, a gatewaytest.Answer, status int, code string) problem {
	t.Helper()
	require.Equal(t, status, a.Status, "body: %s", a.Body)
	require.Equal(t, "application/json", a.Header.Get("Content-Type"))
	var p problem
	require.NoError(t, json.Unmarshal([]byte(a.Body), &p), "body: %q", a.Body)
	require.Equal(t, code, p.Code)
	require.NotEmpty(t, p.Error)
	require.NotEmpty(t, p.RequestID)
	require.Equal(t, []string{p.RequestID}, a.Header["X-Request-Id"])
	require.Empty(t, a.Header.Get("Server"))
	return p
}

// requireJSON decodes a successful answer.
func requireJSON(t *testing.T, a gatewaytest.Answer) map[string]any {
	t.Helper()
	require.Equal(t, http.StatusOK, a.Status, "body: %s", a.Body)
	require.Equal(t, "application/json", a.Header.Get("Content-Type"))
	require.NotEmpty(t, a.Header.Get("X-Request-Id"))
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(a.Body), &v), "body: %q", a.Body)
	return v
}

// anonymous calls without a key.
func anonymous() gatewaytest.Caller { return gatewaytest.Caller{} }

// writeAssertionKey makes a signing key for the hop assertion and returns its file.
func writeAssertionKey(t *testing.T) string {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	name := filepath.Join(t.TempDir(), "hop.pem")
	require.NoError(t, os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
	return name
}

// requireNowhere searches what a gateway wrote for what must not be there.
func requireNowhere(t *testing.T, text string, canaries ...string) {
	t.Helper()
	for _, c := range canaries {
		require.NotEmpty(t, c)
		if i := strings.Index(text, c); i >= 0 {
			require.Fail(t, "a canary has leaked", "%q in …%s…", c, text[max(0, i-200):min(len(text), i+200)])
		}
	}
}

// requireLogged waits until a gateway has written a text: what it writes arrives a moment after its answer.
func requireLogged(t *testing.T, g *gatewaytest.Gateway, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(g.Output(), text) }, patience, 10*time.Millisecond, "%q is not in the log", text)
}
