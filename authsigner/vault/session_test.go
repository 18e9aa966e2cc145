package vault_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/vault/api"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/vault"
	"github.com/gatehouse-gateway/gatehouse/internal/test/certtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/vaulttest"
)

// TTLs are long enough for Vault and the source to be late on a slow machine.
func TestNoLookupFailsWhileTokensEnd(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		role    map[string]any
		wait    vault.EventKind // until n of these events
		n       int
		renewed bool // whether tokens can be renewed
	}{
		"the token is renewed": {map[string]any{"token_ttl": "10s", "token_max_ttl": "1h"}, vault.EventRenewed, 2, true},
		// After 12 to 14 s, a renewal adds less than half a TTL, so a new token follows, with 6 s left at least.
		"maximum TTL":                {map[string]any{"token_ttl": "20s", "token_max_ttl": "21s"}, vault.EventLogin, 2, true},
		"a batch token":              {map[string]any{"token_type": "batch", "token_ttl": "10s"}, vault.EventLogin, 3, false},
		"without the default policy": {map[string]any{"token_no_default_policy": true, "token_ttl": "10s"}, vault.EventLogin, 3, false},
		// The second renewal comes after the secret ID has expired, at 12 s or later.
		"expired secret ID": {
			map[string]any{"secret_id_ttl": "10s", "token_ttl": "10s", "token_max_ttl": "1h"}, vault.EventRenewed, 2, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, setup{role: test.role})
			b.store(t, testKey, nil)
			looked, enough := 0, func() bool { return b.events.count(test.wait) >= test.n }
			for until := time.Now().Add(2 * patience); !enough() && time.Now().Before(until); looked++ {
				b.requireFound(t, testKey)
				<-time.After(tick)
			}
			require.True(t, enough())
			require.Greater(t, looked, 10)
			require.Equal(t, test.renewed, b.events.count(vault.EventRenewed) > 0)
			require.Zero(t, b.events.count(vault.EventDenied))
			if test.wait == vault.EventRenewed {
				require.Equal(t, 1, b.events.count(vault.EventLogin))
			}
			require.NoError(t, b.Ready())
		})
	}
}

func TestRevokedTokenIsReplacedOnceForAllLookups(t *testing.T) {
	t.Parallel()
	for _, lookups := range []int{1, 50} {
		t.Run(strconv.Itoa(lookups), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, setup{})
			b.store(t, testKey, nil)
			b.requireFound(t, testKey)
			b.revokeTokens(t, "approle")
			var wg sync.WaitGroup
			for range lookups {
				wg.Go(func() {
					_, err := b.Lookup(t.Context(), testKey)
					assert.NoError(t, err)
				})
			}
			wg.Wait()
			b.events.waitFor(t, vault.EventLogin, 2) // reported after the lookups have got the new token
			require.Equal(t, 2, b.events.count(vault.EventLogin))
			if lookups == 1 {
				require.Equal(t, 1, b.events.count(vault.EventDenied))
			}
		})
	}
}

func TestTokenWithLimitedUsesIsReplaced(t *testing.T) {
	t.Parallel()
	b := newBench(t, setup{role: map[string]any{"token_num_uses": 5}})
	b.store(t, testKey, nil)
	for range 6 {
		b.requireFound(t, testKey)
	}
	b.events.waitFor(t, vault.EventLogin, 2)
	require.Equal(t, 2, b.events.count(vault.EventLogin))
}

func TestDenialByPolicyCausesFewLogins(t *testing.T) {
	t.Parallel()
	b := newBench(t, setup{policy: `path "kv/data/somewhere/else" { capabilities = ["read"] }`})
	b.store(t, testKey, nil)
	began := time.Now()
	for range 50 {
		b.requireUnavailable(t)
	}
	logins := b.events.count(vault.EventLogin)
	require.LessOrEqual(t, logins, 2+int(time.Since(began)/(10*time.Second)), "the first one, one after the denial, and one every 10 s")
	require.Error(t, b.Ready())

	// A change of the policy takes effect without a new token.
	require.NoError(t, b.Client(t).Sys().PutPolicyWithContext(t.Context(), "gateway", vaulttest.ReadPolicy))
	b.eventuallyFound(t)
}

// A policy may deny keys that do not exist, or that have another prefix. Callers can send such keys.
func TestDeniedKeysAreNotAnOutage(t *testing.T) {
	t.Parallel()
	for name, try := range map[string]struct {
		policy string
		found  bool // whether testKey has been found before
	}{
		"keys with a prefix":           {`path "kv/data/gateway/keys/pk_live_*" { capabilities = ["read"] }`, true},
		"before any key was found":     {`path "kv/data/gateway/keys/pk_live_*" { capabilities = ["read"] }`, false},
		"no keys but those that exist": {`path "kv/data/gateway/keys/` + testKey + `" { capabilities = ["read"] }`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, setup{policy: try.policy})
			b.store(t, testKey, nil)
			if try.found {
				b.requireFound(t, testKey)
			}
			cache, err := authsigner.NewCache(b.Source, authsigner.CacheOptions{LookupTimeout: patience})
			require.NoError(t, err)
			defer cache.Close()
			for i := range 20 {
				_, err := cache.Lookup(t.Context(), fmt.Sprintf("pk_test_%08d", i))
				require.ErrorIs(t, err, authsigner.ErrDenied)
				requireUnavailable(t, err)
				require.NoError(t, b.Ready())
			}
			_, err = cache.Lookup(t.Context(), testKey)
			require.NoError(t, err)
			require.Equal(t, 1, b.events.count(vault.EventLogin))

			// A token that is not valid denies every key.
			b.revokeTokens(t, "approle")
			_, err = b.Lookup(t.Context(), "pk_test_00000000")
			require.ErrorIs(t, err, authsigner.ErrDenied)
			b.requireFound(t, testKey)
			b.events.waitFor(t, vault.EventLogin, 2)
		})
	}
}

func TestDenialWhileARenewalIsRetriedCausesALogin(t *testing.T) {
	t.Parallel()
	var renewalFailed atomic.Bool
	var logins atomic.Int64
	b := newBench(t, setup{
		role: map[string]any{"token_ttl": "5s", "token_max_ttl": "1h"},
		proxy: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch path := r.URL.Path; {
				case path == "/v1/auth/token/renew-self" && !renewalFailed.Swap(true):
					w.WriteHeader(http.StatusServiceUnavailable)
				case strings.HasPrefix(path, "/v1/kv/data/gateway/keys/") && logins.Load() < 2:
					w.WriteHeader(http.StatusForbidden)
				default:
					if strings.HasSuffix(path, "/login") {
						logins.Add(1)
					}
					next.ServeHTTP(w, r)
				}
			})
		},
	})
	b.store(t, testKey, nil)
	b.events.waitFor(t, vault.EventRenewalFailed, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := b.Lookup(ctx, testKey)
	require.NoError(t, err)
	b.events.waitFor(t, vault.EventLogin, 2)
}

func TestNewPolicyOfTheRoleTakesEffect(t *testing.T) {
	t.Parallel()
	b := newBench(t, setup{policy: `path "kv/data/somewhere/else" { capabilities = ["read"] }`})
	b.store(t, testKey, nil)
	root := b.Client(t)
	require.NoError(t, root.Sys().PutPolicyWithContext(t.Context(), "more", vaulttest.ReadPolicy))
	_, err := root.Logical().WriteWithContext(t.Context(), "auth/approle/role/gateway", map[string]any{"token_policies": "gateway,more"})
	require.NoError(t, err)
	b.requireFound(t, testKey) // with the token of the login that the denial caused
}

func TestOutageOfVaultPasses(t *testing.T) {
	t.Parallel()
	b := newBench(t, setup{server: vaulttest.Options{Persistent: true}})
	b.store(t, testKey, nil)
	b.requireFound(t, testKey)
	for i, outage := range []struct{ begin, end func(testing.TB) }{{b.Seal, b.Unseal}, {b.Kill, b.Restart}} {
		outage.begin(t)
		b.requireUnavailable(t)
		require.Error(t, b.Ready())
		outage.end(t)
		b.eventuallyFound(t)
		b.requireUnknown(t, otherKey)
		if i == 0 {
			require.Equal(t, 1, b.events.count(vault.EventLogin), "its token is still valid")
		}
	}
}

// A gateway with few requests would look ready for most of an outage.
func TestOutageIsReportedUntilItEndsAlsoWithoutRequests(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	var refused atomic.Int64
	b := newBench(t, setup{proxy: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if down.Load() {
				refused.Add(1)
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			next.ServeHTTP(w, r)
		})
	}})
	down.Store(true)
	b.requireUnavailable(t)
	before := refused.Load()
	require.Eventually(t, func() bool { return refused.Load() > before+2 }, patience, tick)
	require.ErrorIs(t, b.Ready(), authsigner.ErrUnavailable)
	down.Store(false)
	b.waitReady(t)
	require.Equal(t, 1, b.events.count(vault.EventLogin))
}

func TestOutageLongerThanTheTokenEndsInANewLogin(t *testing.T) {
	t.Parallel()
	b := newBench(t, setup{
		server: vaulttest.Options{Persistent: true}, role: map[string]any{"token_ttl": "5s", "token_max_ttl": "1h"},
	})
	b.store(t, testKey, nil)
	b.Kill(t)
	b.events.waitFor(t, vault.EventRenewalFailed, 1)
	b.events.waitFor(t, vault.EventLoginFailed, 2)
	b.requireUnavailable(t)
	require.Error(t, b.Ready())
	b.Restart(t)
	b.eventuallyFound(t)
}

func TestPausedVaultDelaysNoLookupBeyondItsDeadline(t *testing.T) {
	t.Parallel()
	b := newBench(t, setup{})
	b.store(t, testKey, nil)
	b.requireFound(t, testKey)
	b.Pause(t)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		began := time.Now()
		_, err := b.Lookup(ctx, testKey)
		cancel()
		requireUnavailable(t, err)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Less(t, time.Since(began), patience/2, "it took as long as the timeout of the source")
	}
	b.Resume(t)
	b.eventuallyFound(t)
}

func TestTimeoutLimitsALookupWithoutADeadline(t *testing.T) {
	t.Parallel()
	b := newBench(t, setup{change: func(_ *vaulttest.Server, o *vault.Options) { o.Timeout = 500 * time.Millisecond }})
	b.Pause(t)
	began := time.Now()
	_, err := b.Lookup(t.Context(), testKey)
	requireUnavailable(t, err)
	require.Less(t, time.Since(began), patience, "it would never return")
	b.Resume(t)
}

func TestCloseDoesNotWaitForAPausedVault(t *testing.T) {
	t.Parallel()
	b := newBench(t, setup{})
	b.Pause(t)
	began := time.Now()
	require.NoError(t, b.Close())
	require.Less(t, time.Since(began), patience/2, "it took as long as the timeout of the source")
	_, err := b.Lookup(t.Context(), testKey)
	requireUnavailable(t, err)
	require.Error(t, b.Ready())
	require.NoError(t, b.Close())
	b.Resume(t)
}

func TestVaultMayBeUnavailableAtStartup(t *testing.T) {
	t.Parallel()
	server := vaulttest.Start(t, vaulttest.Options{Persistent: true})
	roleID, secretID := server.AppRole(t, "gateway", vaulttest.ReadPolicy, nil)
	server.Stop(t)
	b := &bench{Server: server, events: new(eventLog), secretID: secretID}
	b.Source = newSource(t, vault.Options{
		Address: server.Addr, OnEvent: b.events.Add, Timeout: patience,
		Auth: vault.Auth{AppRole: &vault.AppRole{RoleID: roleID, SecretID: authsigner.Secret(secretID)}},
	})
	b.requireUnavailable(t)
	require.ErrorContains(t, b.Ready(), "connection refused")
	b.events.waitFor(t, vault.EventLoginFailed, 2)

	server.RestartSealed(t)
	b.events.waitFor(t, vault.EventLoginFailed, b.events.count(vault.EventLoginFailed)+1)
	b.requireUnavailable(t)
	server.Unseal(t)
	b.waitReady(t)
	b.store(t, testKey, nil)
	b.requireFound(t, testKey)
}

func TestNoTokensAreLeftInVault(t *testing.T) {
	t.Parallel()
	var proxy recorder
	b := newBench(t, setup{role: map[string]any{"token_ttl": "5s", "token_max_ttl": "5s"}, proxy: proxy.record})
	b.events.waitFor(t, vault.EventLogin, 3)
	require.NoError(t, b.Close())
	// Close does not wait for the revocations.
	logins := proxy.count("PUT auth/approle/login")
	assert.GreaterOrEqual(t, logins, 3)
	assert.Equal(t, logins, proxy.count("PUT auth/token/revoke-self"), "the source revokes each of its tokens")
	require.Eventually(t, func() bool {
		tokens, err := b.Client(t).Logical().ListWithContext(t.Context(), "auth/token/accessors")
		require.NoError(t, err)
		accessors, _ := tokens.Data["keys"].([]any)
		return len(accessors) == 1
	}, patience, tick, "only the root token is left")
}

func TestReplacedSecretIDFileIsReadWhenTheOldOneExpires(t *testing.T) {
	t.Parallel()
	var file string
	var proxy recorder
	b := newBench(t, setup{
		role: map[string]any{"secret_id_num_uses": 1, "token_ttl": "8s", "token_max_ttl": "9s"},
		change: func(s *vaulttest.Server, o *vault.Options) {
			store(t, s, testKey, nil) // before the login, because the token ends soon
			file = writeFile(t, "secret-id", s.SecretID(t, "gateway")+"\n")
			o.Auth.AppRole.SecretID, o.Auth.AppRole.SecretIDFile = "", file
		},
		proxy: proxy.record,
	})
	b.requireFound(t, testKey)
	// After five failed logins, Vault would lock the role and reject the new secret ID too.
	b.events.waitFor(t, vault.EventLoginFailed, 6)
	require.Equal(t, 2, proxy.count("PUT auth/approle/login"), "the expired secret ID is not sent again")
	require.Contains(t, b.events.lastError(), "the secret ID was rejected and must be replaced: vault responded with ")
	require.Eventually(t, func() bool {
		_, err := b.Lookup(t.Context(), testKey)
		return errors.Is(err, authsigner.ErrUnavailable)
	}, patience, tick, "its token has ended")
	require.Error(t, b.Ready())

	require.NoError(t, os.WriteFile(file, []byte(b.SecretID(t, "gateway")), 0o600))
	b.eventuallyFound(t)
}

// After a login that a passing denial has caused and that fails, the token is valid for as long as it can be renewed.
func TestTokenIsRenewedWhileLoginsFail(t *testing.T) {
	t.Parallel()
	var denied atomic.Bool
	b := newBench(t, setup{
		role: map[string]any{"secret_id_num_uses": 1, "token_ttl": "20s", "token_max_ttl": "1h"},
		proxy: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if denied.Load() && strings.HasPrefix(r.URL.Path, "/v1/kv/data/") {
					w.WriteHeader(http.StatusForbidden)
					return
				}
				next.ServeHTTP(w, r)
			})
		},
	})
	b.store(t, testKey, nil)
	denied.Store(true)
	b.requireUnavailable(t)
	b.events.waitFor(t, vault.EventLoginFailed, 1)
	denied.Store(false)
	for until := time.Now().Add(2 * patience); b.events.count(vault.EventRenewed) < 2; { // then, it would have ended
		require.Less(t, time.Now(), until)
		b.requireFound(t, testKey)
		<-time.After(tick)
	}
	require.Equal(t, 1, b.events.count(vault.EventLogin))
	require.NoError(t, b.Ready())
}

// A load balancer in front of Vault may respond in its place.
func TestPageWithStatus400DoesNotRejectTheSecretID(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	b := newBench(t, setup{proxy: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/auth/approle/login") && sent.Add(1) == 1 {
				http.Error(w, "<h1>400 The plain HTTP request was sent to HTTPS port</h1>", http.StatusBadRequest)
				return
			}
			next.ServeHTTP(w, r)
		})
	}, absent: true})
	b.waitReady(t)
	b.store(t, testKey, nil)
	b.requireFound(t, testKey)
}

func TestSecretIDThatNeverWorkedDoesNotLockTheRole(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "secret-id", "0f0e0d0c-0000-0000-0000-000000000000")
	var proxy recorder
	b := newBench(t, setup{
		change: func(_ *vaulttest.Server, o *vault.Options) {
			o.Auth.AppRole.SecretID, o.Auth.AppRole.SecretIDFile = "", file
		},
		proxy: proxy.record, absent: true,
	})
	b.events.waitFor(t, vault.EventLoginFailed, 6)
	require.Equal(t, 1, proxy.count("PUT auth/approle/login"))
	require.Contains(t, b.events.lastError(), "the secret ID was rejected and must be replaced: vault responded with ")
	require.Error(t, b.Ready())

	require.NoError(t, os.WriteFile(file, []byte(b.secretID), 0o600))
	b.store(t, testKey, nil)
	b.eventuallyFound(t)
	require.Equal(t, 2, proxy.count("PUT auth/approle/login"))
}

func TestGivenTokenIsRenewedAndNeverRevoked(t *testing.T) {
	t.Parallel()
	b, token := newTokenBench(t, "10s", 0)
	b.events.waitFor(t, vault.EventRenewed, 2) // it would have ended
	b.requireFound(t, testKey)
	require.NoError(t, b.Close())
	_, err := b.ClientWithToken(t, token).Auth().Token().LookupSelfWithContext(t.Context())
	require.NoError(t, err, "it is not the source's token to revoke")
}

func TestRevokedGivenTokenIsAnOutageNotUnknownKeys(t *testing.T) {
	t.Parallel()
	for _, version := range []int{0, 2} {
		t.Run(fmt.Sprintf("KVVersion %d", version), func(t *testing.T) {
			t.Parallel()
			b, token := newTokenBench(t, "1h", version)
			b.requireFound(t, testKey)
			require.NoError(t, b.Client(t).Auth().Token().RevokeTreeWithContext(t.Context(), token))
			b.requireUnavailable(t)
			require.ErrorContains(t, b.Ready(), "logging in to Vault: ", "until there is a valid token, not only for a while")
			require.Equal(t, 1, b.events.count(vault.EventLogin))

			// It cannot be told from a token without lookup-self, and nothing but a lookup shows that it is not valid.
			events := new(eventLog)
			restarted := newSource(t, vault.Options{
				Address: b.Addr, Auth: vault.Auth{Token: authsigner.Secret(token)}, KVVersion: version, Timeout: patience, OnEvent: events.Add,
			})
			events.waitFor(t, vault.EventLoginFailed, 2)
			require.Error(t, restarted.Ready())
			require.Zero(t, events.count(vault.EventLogin))
		})
	}
}

// newTokenBench is newBench with a token instead of an AppRole, and with testKey.
func newTokenBench(t *testing.T, ttl string, version int) (b *bench, token string) {
	t.Helper()
	b = newBench(t, setup{change: func(s *vaulttest.Server, o *vault.Options) {
		token = newToken(t, s, ttl, nil)
		o.Auth, o.KVVersion = vault.Auth{Token: authsigner.Secret(token)}, version
	}})
	b.store(t, testKey, nil)
	return b, token
}

func TestReplacedTokenFileIsReadAgain(t *testing.T) {
	t.Parallel()
	var file, token string
	b := newBench(t, setup{change: func(s *vaulttest.Server, o *vault.Options) {
		token = newToken(t, s, "1h", nil)
		file = writeFile(t, "token", token+"\n")
		o.Auth = vault.Auth{TokenFile: file}
	}})
	b.store(t, testKey, nil)
	b.requireFound(t, testKey)
	require.NoError(t, os.WriteFile(file, []byte(newToken(t, b.Server, "1h", nil)), 0o600))
	require.NoError(t, b.Client(t).Auth().Token().RevokeTreeWithContext(t.Context(), token))
	b.requireFound(t, testKey)
}

func TestTokenThatMayOnlyReadKeysNeedsKVVersion(t *testing.T) {
	t.Parallel()
	b := newBench(t, setup{change: func(s *vaulttest.Server, o *vault.Options) {
		token := newToken(t, s, "1h", func(r *api.TokenCreateRequest) { r.NoDefaultPolicy = true })
		o.Auth, o.KVVersion = vault.Auth{Token: authsigner.Secret(token)}, 2
	}})
	b.store(t, testKey, nil)
	b.requireFound(t, testKey)
	b.requireUnknown(t, otherKey)
}

func newToken(t *testing.T, s *vaulttest.Server, ttl string, change func(*api.TokenCreateRequest)) string {
	t.Helper()
	request := &api.TokenCreateRequest{Policies: []string{"gateway"}, TTL: ttl}
	if change != nil {
		change(request)
	}
	secret, err := s.Client(t).Auth().Token().CreateWithContext(t.Context(), request)
	require.NoError(t, err)
	return secret.Auth.ClientToken
}

func TestOnlyVaultsCertificateAuthorityIsTrusted(t *testing.T) {
	t.Parallel()
	server := vaulttest.Start(t, vaulttest.Options{TLS: true})
	another := certtest.NewCA(t)
	for name, try := range map[string]struct {
		tls vault.TLS
		ok  bool
	}{
		"its authority":                {vault.TLS{CA: server.CA.Path}, true},
		"another authority":            {vault.TLS{CA: another.Path}, false},
		"the system's authorities":     {vault.TLS{}, false},
		"the name in its certificate":  {vault.TLS{CA: server.CA.Path, ServerName: "localhost"}, true},
		"a name not in it":             {vault.TLS{CA: server.CA.Path, ServerName: "vault.example.com"}, false},
		"another authority, same name": {vault.TLS{CA: another.Path, ServerName: "localhost"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := newSource(t, vault.Options{
				Address: server.Addr, TLS: try.tls, Auth: vault.Auth{Token: authsigner.Secret(server.RootToken)}, Timeout: patience,
			})
			_, err := source.Lookup(t.Context(), testKey)
			if try.ok {
				require.ErrorIs(t, err, authsigner.ErrUnknownKey)
				return
			}
			requireUnavailable(t, err)
			require.ErrorContains(t, err, "certificate")
			assert.NotContains(t, err.Error(), server.RootToken)
		})
	}
}

// certSetup has the source log in with a certificate of that common name. Vault accepts gateway-1.
func certSetup(t *testing.T, commonName string) setup {
	t.Helper()
	return setup{server: vaulttest.Options{TLS: true}, change: func(s *vaulttest.Server, o *vault.Options) {
		ca, err := os.ReadFile(s.CA.Path)
		require.NoError(t, err)
		_, err = s.Client(t).Logical().WriteWithContext(t.Context(), "auth/cert/certs/gateway", map[string]any{
			"certificate": string(ca), "allowed_common_names": "gateway-1", "token_policies": "gateway", "token_ttl": "8s",
		})
		require.NoError(t, err)
		o.TLS.Cert, o.TLS.Key = s.CA.ClientCert(t, commonName)
		o.Auth = vault.Auth{Cert: &vault.Cert{Name: "gateway"}}
	}}
}

func TestCertLoginContinuesWithARenewedCertificate(t *testing.T) {
	t.Parallel()
	b := newBench(t, certSetup(t, "gateway-1"))
	b.store(t, testKey, nil)
	b.requireFound(t, testKey)
	b.events.waitFor(t, vault.EventRenewed, 1)

	// Vault binds a token to the certificate that it was issued for, so another one needs a new login.
	b.CA.ClientCert(t, "gateway-1")
	_, err := b.Lookup(t.Context(), testKey)
	require.NoError(t, err)
	b.revokeTokens(t, "cert")
	b.requireFound(t, testKey)
	b.events.waitFor(t, vault.EventRenewed, b.events.count(vault.EventRenewed)+1)
}

func TestCertificateOfAnotherNameDoesNotLogIn(t *testing.T) {
	t.Parallel()
	s := certSetup(t, "intruder")
	s.absent = true
	newBench(t, s).requireUnavailable(t)
}

func TestKubernetesLoginReadsAReplacedToken(t *testing.T) {
	t.Parallel()
	var jwt, reviewed atomic.Value // the JWT that Kubernetes accepts, and the last one that Vault asked about
	jwt.Store("first.jwt.x")
	// Kubernetes's TokenReview API.
	cluster := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct {
			Spec struct {
				Token string `json:"token"`
			} `json:"spec"`
		}
		if r.URL.Path != "/apis/authentication.k8s.io/v1/tokenreviews" || json.NewDecoder(r.Body).Decode(&review) != nil {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		reviewed.Store(review.Spec.Token)
		status := map[string]any{"authenticated": review.Spec.Token == jwt.Load()}
		if status["authenticated"] == true {
			status["user"] = map[string]any{"username": "system:serviceaccount:platform:gateway", "uid": "u-1"}
		}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status})
	}))
	t.Cleanup(cluster.Close)

	first, second := serviceAccountToken("1"), serviceAccountToken("2")
	jwt.Store(first)
	file := writeFile(t, "token", first+"\n")
	b := newBench(t, setup{change: func(s *vaulttest.Server, o *vault.Options) {
		root := s.Client(t).Logical()
		_, err := root.WriteWithContext(t.Context(), "auth/kubernetes/config", map[string]any{
			"kubernetes_host": cluster.URL, "disable_local_ca_jwt": true, "token_reviewer_jwt": serviceAccountToken("r"),
			"kubernetes_ca_cert":     string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cluster.Certificate().Raw})),
			"disable_iss_validation": true,
		})
		require.NoError(t, err)
		_, err = root.WriteWithContext(t.Context(), "auth/kubernetes/role/gateway", map[string]any{
			"bound_service_account_names": "gateway", "bound_service_account_namespaces": "platform", "token_policies": "gateway",
		})
		require.NoError(t, err)
		o.Auth = vault.Auth{Kubernetes: &vault.Kubernetes{Role: "gateway", JWTPath: file}}
	}})
	b.store(t, testKey, nil)
	b.requireFound(t, testKey)

	// Kubernetes replaces the token in the pod from time to time.
	require.NoError(t, os.WriteFile(file, []byte(second), 0o600))
	jwt.Store(second)
	b.revokeTokens(t, "kubernetes")
	b.requireFound(t, testKey)
	require.Equal(t, second, reviewed.Load())
}
