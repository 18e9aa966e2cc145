package vault_test

import (
	"context"
	"encoding/base64"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/vault/api"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/vault"
	"github.com/gatehouse-gateway/gatehouse/internal/test/leaktest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/recordtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/vaulttest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const (
	testKey  = "pk_live_0123456789abcdef"
	otherKey = "pk_live_another0123456789"
	// Must not be in any error or event.
	testSecret = "canary-private-key-of-a-business"

	// patience limits each wait of a test. It is long because the machine may be slow.
	patience = time.Minute
	tick     = 20 * time.Millisecond
)

// bench is a Vault with an AppRole, and a source that has logged in with it.
type bench struct {
	*vaulttest.Server
	*vault.Source
	events   *eventLog
	roleID   string
	secretID string
}

// setup is what differs from the default in a test.
type setup struct {
	server vaulttest.Options
	policy string         // default: vaulttest.ReadPolicy
	role   map[string]any // of the AppRole
	change func(s *vaulttest.Server, o *vault.Options)
	proxy  func(next http.Handler) http.Handler // in front of Vault
	absent bool                                 // do not wait until it is ready
}

func newBench(t *testing.T, s setup) *bench {
	t.Helper()
	server := vaulttest.Start(t, s.server)
	if s.policy == "" {
		s.policy = vaulttest.ReadPolicy
	}
	b := &bench{Server: server, events: new(eventLog)}
	b.roleID, b.secretID = server.AppRole(t, "gateway", s.policy, s.role)
	o := vault.Options{
		Address: server.Addr,
		Auth:    vault.Auth{AppRole: &vault.AppRole{RoleID: b.roleID, SecretID: authsigner.Secret(b.secretID)}},
		// Long, because the machine may be slow. Tests of timeouts set their own.
		Timeout: patience,
		OnEvent: b.events.Add,
	}
	if server.CA != nil {
		o.TLS.CA = server.CA.Path
	}
	if s.change != nil {
		s.change(server, &o)
	}
	if s.proxy != nil {
		o.Address = startProxy(t, server.Addr, s.proxy)
	}
	b.Source = newSource(t, o)
	t.Cleanup(func() { b.events.requireNoSecrets(t, b.secretID, server.RootToken, testSecret, "hvs.") })
	if !s.absent {
		b.waitReady(t)
	}
	return b
}

func newSource(t *testing.T, o vault.Options) *vault.Source {
	t.Helper()
	source, err := vault.New(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, source.Close()) })
	return source
}

func (b *bench) waitReady(t *testing.T) {
	t.Helper()
	var err error
	require.Eventually(t, func() bool { err = b.Ready(); return err == nil }, patience, tick, "%v", err)
}

func (b *bench) store(t *testing.T, key string, changes map[string]any) {
	t.Helper()
	store(t, b.Server, key, changes)
}

// store writes an entry as an operator would, with the root token.
func store(t *testing.T, s *vaulttest.Server, key string, changes map[string]any) {
	t.Helper()
	_, err := s.Client(t).Logical().WriteWithContext(t.Context(), "kv/data/gateway/keys/"+key,
		map[string]any{"data": record(changes)})
	require.NoError(t, err)
}

func (b *bench) requireFound(t *testing.T, key string) {
	t.Helper()
	cred, err := b.Lookup(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, key, cred.PublicKey)
	require.Equal(t, testSecret, cred.PrivateKey.Reveal())
}

// requireUnavailable requires that testKey is unavailable, not unknown, and that the error has no secret.
func (b *bench) requireUnavailable(t *testing.T) {
	t.Helper()
	_, err := b.Lookup(t.Context(), testKey)
	requireUnavailable(t, err)
	for _, secret := range []string{b.secretID, b.RootToken, testSecret, "hvs."} {
		require.NotContains(t, err.Error(), secret)
	}
}

func requireUnavailable(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, authsigner.ErrUnavailable)
	require.NotErrorIs(t, err, authsigner.ErrUnknownKey)
	require.NotContains(t, err.Error(), "\n")
}

func (b *bench) requireUnknown(t *testing.T, key string) {
	t.Helper()
	_, err := b.Lookup(t.Context(), key)
	require.ErrorIs(t, err, authsigner.ErrUnknownKey)
	require.NotErrorIs(t, err, authsigner.ErrUnavailable)
}

// eventuallyFound waits until the source has recovered and finds testKey. With a token that is still valid, it may find the key while its
// last login has failed.
func (b *bench) eventuallyFound(t *testing.T) {
	t.Helper()
	var err error
	require.Eventually(t, func() bool {
		_, err = b.Lookup(t.Context(), testKey)
		return err == nil && b.Ready() == nil
	}, patience, tick, "%v", err)
}

// revokeTokens revokes every token of the auth method at that mount.
func (b *bench) revokeTokens(t *testing.T, mount string) {
	t.Helper()
	require.NoError(t, b.Client(t).Sys().RevokePrefixWithContext(t.Context(), "auth/"+mount+"/login"))
}

func record(changes map[string]any) map[string]any {
	fields := map[string]any{
		"private_key": testSecret, "business_id": "biz_1", "business_name": "Zoë's Bakery",
		"business_slug": "zoes-bakery", "status": "active",
	}
	maps.Copy(fields, changes)
	maps.DeleteFunc(fields, func(_ string, value any) bool { return value == nil })
	return fields
}

func credential(t *testing.T, key string) *authsigner.Credential {
	t.Helper()
	cred, err := authsigner.DecodeCredential(key, record(nil))
	require.NoError(t, err)
	return cred
}

type eventLog struct {
	recordtest.Events[vault.Event]
}

func (l *eventLog) count(kind vault.EventKind) int {
	return l.Count(func(e vault.Event) bool { return e.Kind == kind })
}

func (l *eventLog) waitFor(t *testing.T, kind vault.EventKind, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return l.count(kind) >= n }, 2*patience, tick)
}

func (l *eventLog) lastError() string {
	for _, e := range slices.Backward(l.All()) {
		if e.Err != nil {
			return e.Err.Error()
		}
	}
	return ""
}

func (l *eventLog) requireNoSecrets(t *testing.T, secrets ...string) {
	t.Helper()
	for _, e := range l.All() {
		if e.Err == nil {
			continue
		}
		require.NotContains(t, e.Err.Error(), "\n")
		for _, secret := range secrets {
			require.NotContains(t, e.Err.Error(), secret)
		}
	}
}

// startProxy starts a reverse proxy of Vault in a handler and returns its URL. It removes the namespace, which the
// open-source Vault does not have.
func startProxy(t *testing.T, address string, wrap func(next http.Handler) http.Handler) string {
	t.Helper()
	target, err := url.Parse(address)
	require.NoError(t, err)
	server := httptest.NewServer(wrap(&httputil.ReverseProxy{
		Transport: &http.Transport{DisableKeepAlives: true},
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(target)
			p.Out.Header.Del(api.NamespaceHeaderName)
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// recorder records the requests to Vault.
type recorder struct {
	mu       sync.Mutex
	requests []*http.Request
}

func (r *recorder) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.requests = append(r.requests, req.Clone(context.WithoutCancel(req.Context())))
		r.mu.Unlock()
		next.ServeHTTP(w, req)
	})
}

func (r *recorder) all() []*http.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// count returns the number of requests with a method and path, such as "PUT auth/approle/login".
func (r *recorder) count(request string) int {
	n := 0
	for _, req := range r.all() {
		if req.Method+" "+strings.TrimPrefix(req.URL.Path, "/v1/") == request {
			n++
		}
	}
	return n
}

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// serviceAccountToken returns a JWT that Vault accepts. Kubernetes would check its signature.
func serviceAccountToken(id string) string {
	part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	return part(`{"alg":"RS256","typ":"JWT"}`) + "." + part(`{"jti":"`+id+`","iss":"kubernetes/serviceaccount",`+
		`"kubernetes.io/serviceaccount/namespace":"platform","kubernetes.io/serviceaccount/service-account.name":"gateway",`+
		`"kubernetes.io/serviceaccount/service-account.uid":"u-1","sub":"system:serviceaccount:platform:gateway"}`) +
		"." + part("signature-"+id)
}
