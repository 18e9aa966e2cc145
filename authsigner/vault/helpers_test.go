package vault_test

import (
	"context"
	"encoding/base64"
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
	"github.com/gatehouse-gateway/gatehouse/internal/test/vaulttest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const (
	testKey  = "pk_live_0123456789abcdef"
	otherKey = "pk_live_another0123456789"
	// A secret that must turn up nowhere.
	testSecret = "canary-private-key-of-a-business"

	// patience bounds what a test waits for. It is long because other tests want the processors too.
	patience = 20 * time.Second
	tick     = 20 * time.Millisecond

	readPolicy = `
path "kv/data/gateway/keys/*" { capabilities = ["read"] }
path "kv1/gateway/keys/*"     { capabilities = ["read"] }`
	managePolicy = `
path "kv/data/gateway/keys/*"     { capabilities = ["create", "read", "update"] }
path "kv/metadata/gateway/keys/*" { capabilities = ["delete"] }
path "kv/metadata/gateway/keys"   { capabilities = ["list"] }
path "kv1/gateway/keys/*"         { capabilities = ["create", "read", "update", "delete"] }
path "kv1/gateway/keys"           { capabilities = ["list"] }`
)

// bench is a Vault with an AppRole, and a source that has signed in with it.
type bench struct {
	*vaulttest.Server
	*vault.Source
	events   *eventLog
	roleID   string
	secretID string
}

// setup is what a test wants to be different.
type setup struct {
	server vaulttest.Options
	policy string         // default: readPolicy
	role   map[string]any // of the AppRole
	change func(s *vaulttest.Server, o *vault.Options)
	absent bool // do not wait until it is ready
}

func newBench(t *testing.T, s setup) *bench {
	t.Helper()
	server := vaulttest.Start(t, s.server)
	if s.policy == "" {
		s.policy = readPolicy
	}
	b := &bench{Server: server, events: new(eventLog)}
	b.roleID, b.secretID = server.AppRole(t, "gateway", s.policy, s.role)
	o := vault.Options{
		Address: server.Addr,
		Auth:    vault.Auth{AppRole: &vault.AppRole{RoleID: b.roleID, SecretID: authsigner.Secret(b.secretID)}},
		// Tests share two processors with each other: what a test says about time it says by its contexts.
		Timeout: patience,
		OnEvent: b.events.add,
	}
	if server.CA != nil {
		o.TLS.CA = server.CA.Path
	}
	if s.change != nil {
		s.change(server, &o)
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

// store writes an entry as an operator would, with the root token.
func (b *bench) store(t *testing.T, key string, changes map[string]any) {
	t.Helper()
	_, err := b.Client(t).Logical().WriteWithContext(t.Context(), "kv/data/gateway/keys/"+key,
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

// requireUnavailable says of testKey that the key's absence is not claimed, and that nothing secret is told.
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

// eventuallyFound waits for testKey: until the source has recovered by itself.
func (b *bench) eventuallyFound(t *testing.T) {
	t.Helper()
	var err error
	require.Eventually(t, func() bool {
		_, err = b.Lookup(t.Context(), testKey)
		return err == nil
	}, patience, tick, "%v", err)
	require.NoError(t, b.Ready())
}

// revokeTokens revokes every token that the sign-in method at that mount has made.
func (b *bench) revokeTokens(t *testing.T, mount string) {
	t.Helper()
	require.NoError(t, b.Client(t).Sys().RevokePrefixWithContext(t.Context(), "auth/"+mount+"/login"))
}

// tokens counts the tokens there are, the root token among them.
func (b *bench) tokens(t *testing.T) int {
	t.Helper()
	answer, err := b.Client(t).Logical().ListWithContext(t.Context(), "auth/token/accessors")
	require.NoError(t, err)
	accessors, _ := answer.Data["keys"].([]any)
	return len(accessors)
}

func record(changes map[string]any) map[string]any {
	fields := map[string]any{
		"private_key": testSecret, "business_id": "biz_1", "business_name": "Zoë's Bakery",
		"business_slug": "zoes-bakery", "status": "active",
	}
	for name, value := range changes {
		if value == nil {
			delete(fields, name)
		} else {
			fields[name] = value
		}
	}
	return fields
}

func credential(t *testing.T, key string) *authsigner.Credential {
	t.Helper()
	cred, err := authsigner.DecodeCredential(key, record(nil))
	require.NoError(t, err)
	return cred
}

type eventLog struct {
	mu   sync.Mutex
	list []vault.Event
}

func (l *eventLog) add(e vault.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, e)
}

func (l *eventLog) count(kind vault.EventKind) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, e := range l.list {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

func (l *eventLog) waitFor(t *testing.T, kind vault.EventKind, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return l.count(kind) >= n }, 2*patience, tick)
}

func (l *eventLog) lastError() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range slices.Backward(l.list) {
		if e.Err != nil {
			return e.Err.Error()
		}
	}
	return ""
}

func (l *eventLog) requireNoSecrets(t *testing.T, secrets ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.list {
		if e.Err == nil {
			continue
		}
		require.NotContains(t, e.Err.Error(), "\n")
		for _, secret := range secrets {
			require.NotContains(t, e.Err.Error(), secret)
		}
	}
}

// recorder is a reverse proxy in front of Vault that notes what comes by. Namespaces are taken away, since the
// open-source Vault has none.
type recorder struct {
	*httptest.Server
	mu       sync.Mutex
	requests []*http.Request
}

func newRecorder(t *testing.T, address string) *recorder {
	t.Helper()
	target, err := url.Parse(address)
	require.NoError(t, err)
	r := &recorder{}
	transport := &http.Transport{DisableKeepAlives: true}
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(target)
			p.Out.Header.Del(api.NamespaceHeaderName)
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.requests = append(r.requests, req.Clone(context.WithoutCancel(req.Context())))
		r.mu.Unlock()
		proxy.ServeHTTP(w, req)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *recorder) all() []*http.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*http.Request(nil), r.requests...)
}

// count says how many requests there were with that method and path.
func (r *recorder) count(path string) int {
	n := 0
	for _, p := range r.paths() {
		if p == path {
			n++
		}
	}
	return n
}

func (r *recorder) paths() []string {
	requests := r.all()
	paths := make([]string, 0, len(requests))
	for _, req := range requests {
		paths = append(paths, req.Method+" "+strings.TrimPrefix(req.URL.Path, "/v1/"))
	}
	return paths
}

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	rewriteFile(t, path, content)
	return path
}

func rewriteFile(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

// serviceAccountToken is a JWT as Vault wants to see one; its signature is Kubernetes's matter.
func serviceAccountToken(id string) string {
	part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	return part(`{"alg":"RS256","typ":"JWT"}`) + "." + part(`{"jti":"`+id+`","iss":"kubernetes/serviceaccount",`+
		`"kubernetes.io/serviceaccount/namespace":"platform","kubernetes.io/serviceaccount/service-account.name":"gateway",`+
		`"kubernetes.io/serviceaccount/service-account.uid":"u-1","sub":"system:serviceaccount:platform:gateway"}`) +
		"." + part("signature-"+id)
}
