package vault_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
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
	"github.com/gatehouse-gateway/gatehouse/internal/test/vaulttest"
)

func TestKeysAreManagedInBothKVVersions(t *testing.T) {
	t.Parallel()
	for _, mount := range []string{"kv", "kv1"} {
		t.Run(mount, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, setup{policy: vaulttest.ManagePolicy, change: func(_ *vaulttest.Server, o *vault.Options) { o.Mount = mount }})
			ctx := t.Context()

			keys, err := b.List(ctx)
			require.NoError(t, err)
			require.Empty(t, keys)
			b.requireUnknown(t, testKey)
			_, err = b.Update(ctx, testKey, func(*authsigner.Credential) error { return nil })
			require.ErrorIs(t, err, authsigner.ErrUnknownKey)
			require.ErrorIs(t, b.Delete(ctx, testKey), authsigner.ErrUnknownKey)

			require.NoError(t, b.Create(ctx, credential(t, testKey)))
			require.ErrorIs(t, b.Create(ctx, credential(t, testKey)), authsigner.ErrKeyExists)
			require.NoError(t, b.Create(ctx, credential(t, otherKey)))
			_, err = b.Update(ctx, testKey, func(c *authsigner.Credential) error {
				c.PrivateKey = ""
				return nil
			})
			require.ErrorIs(t, err, authsigner.ErrMalformedCredential)
			b.requireFound(t, testKey)
			keys, err = b.List(ctx)
			require.NoError(t, err)
			require.Equal(t, []string{testKey, otherKey}, keys)

			until := time.Date(2100, 1, 2, 3, 4, 5, 0, time.UTC)
			updated, err := b.Update(ctx, testKey, func(c *authsigner.Credential) error {
				c.Limit, c.Status, c.PreviousPrivateKey, c.PreviousExpiresAt = 120, authsigner.StatusInactive, "old-secret", until
				return nil
			})
			require.NoError(t, err)
			found, err := b.Lookup(ctx, testKey)
			require.NoError(t, err)
			require.Equal(t, updated.Record(), found.Record())
			require.Equal(t, 120, found.Limit)
			require.Equal(t, until, found.PreviousExpiresAt)

			require.NoError(t, b.Delete(ctx, testKey))
			b.requireUnknown(t, testKey)
			left, err := b.Client(t).Logical().ReadWithContext(ctx, "kv/metadata/gateway/keys/"+testKey)
			require.NoError(t, err)
			require.Nil(t, left, "no earlier version and no metadata")
			require.ErrorIs(t, b.Delete(ctx, testKey), authsigner.ErrUnknownKey)
			b.requireFound(t, otherKey)
		})
	}
}

func TestDeletedAndDestroyedVersionsAreUnknownKeys(t *testing.T) {
	t.Parallel()
	b := newBench(t, setup{policy: vaulttest.ManagePolicy})
	root := b.Client(t).KVv2("kv")
	path := "gateway/keys/" + testKey
	b.store(t, testKey, nil)

	require.NoError(t, root.Delete(t.Context(), path))
	b.requireUnknown(t, testKey)
	require.ErrorIs(t, b.Create(t.Context(), credential(t, testKey)), authsigner.ErrKeyExists,
		"it can still be undeleted")
	require.NoError(t, root.Undelete(t.Context(), path, []int{1}))
	b.requireFound(t, testKey)

	require.NoError(t, root.Destroy(t.Context(), path, []int{1}))
	b.requireUnknown(t, testKey)
	require.NoError(t, b.Delete(t.Context(), testKey))
	require.NoError(t, b.Create(t.Context(), credential(t, testKey)))
	b.requireFound(t, testKey)
}

func TestMalformedEntryAffectsNoOtherKey(t *testing.T) {
	t.Parallel()
	b := newBench(t, setup{})
	b.store(t, otherKey, nil)
	b.store(t, testKey, map[string]any{"status": "fine"})
	_, err := b.Lookup(t.Context(), testKey)
	requireUnavailable(t, err)
	require.ErrorIs(t, err, authsigner.ErrMalformedCredential)
	require.NotContains(t, err.Error(), testSecret)
	require.NoError(t, b.Ready(), "Vault is available")
	b.requireFound(t, otherKey)
	b.store(t, testKey, nil)
	b.requireFound(t, testKey)
}

func TestConcurrentChangesAreNotLost(t *testing.T) {
	t.Parallel()
	b := newBench(t, setup{policy: vaulttest.ManagePolicy})
	var created atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			err := b.Create(t.Context(), credential(t, testKey))
			if err == nil {
				created.Add(1)
			} else if !assert.ErrorIs(t, err, authsigner.ErrKeyExists) {
				return
			}
			for changed := 0; changed < 5; {
				_, err := b.Update(t.Context(), testKey, func(c *authsigner.Credential) error {
					c.Limit++
					return nil
				})
				if err == nil {
					changed++
				} else if !assert.ErrorIs(t, err, authsigner.ErrConflict) {
					return
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, created.Load())
	cred, err := b.Lookup(t.Context(), testKey)
	require.NoError(t, err)
	assert.Equal(t, 20, cred.Limit)
}

func TestInvalidPublicKeysAreNeverSentToVault(t *testing.T) {
	t.Parallel()
	var proxy recorder
	b := newBench(t, setup{policy: vaulttest.ManagePolicy, proxy: proxy.record})
	before := len(proxy.all())
	for _, key := range []string{
		"", "short", "../../../sys/raw", "pk_live_../../secret", "pk_live_%2e%2e%2fsecret", "pk_live_x?version=1",
		"pk_live_\x00\x00\x00", strings.Repeat("a", 129), "sk_live_sent_by_mistake",
	} {
		b.requireUnknown(t, key)
		require.ErrorIs(t, b.Delete(t.Context(), key), authsigner.ErrUnknownKey)
		_, err := b.Update(t.Context(), key, nil)
		require.ErrorIs(t, err, authsigner.ErrUnknownKey)
		require.ErrorIs(t, b.Create(t.Context(), &authsigner.Credential{PublicKey: key}), authsigner.ErrMalformedCredential)
	}
	require.Len(t, proxy.all(), before)

	b.requireUnknown(t, otherKey)
	for _, r := range proxy.all() {
		assert.NotContains(t, r.Header, "X-Vault-Namespace", "none is configured")
	}
}

func TestMissingMountIsAnOutageNotUnknownKeys(t *testing.T) {
	t.Parallel()
	b := newBench(t, setup{})
	b.store(t, testKey, nil)
	b.requireFound(t, testKey)
	require.NoError(t, b.Client(t).Sys().UnmountWithContext(t.Context(), "kv"))
	b.requireUnavailable(t)
	require.Error(t, b.Ready())
	assert.NotContains(t, b.Ready().Error(), testKey, "readiness does not reveal who has called")
}

func TestMismatchedMountIsReported(t *testing.T) {
	t.Parallel()
	server := vaulttest.Start(t, vaulttest.Options{})
	for name, try := range map[string]struct {
		change func(o *vault.Options)
		want   string
	}{
		"version 1 for 2": {func(o *vault.Options) { o.KVVersion = 1 }, "has version 2, but version 1 is configured"},
		"version 2 for 1": {func(o *vault.Options) { o.Mount, o.KVVersion = "kv1", 2 }, "has version 1, but version 2 is configured"},
		"no such mount":   {func(o *vault.Options) { o.Mount = "nowhere" }, "nowhere"},
		"not a KV mount":  {func(o *vault.Options) { o.Mount = "transit" }, "is transit: must be kv"},
		"below the mount": {func(o *vault.Options) { o.Mount = "kv/team" }, "no secrets engine at kv/team/, but at kv/"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := vault.Options{
				Address: server.Addr, Auth: vault.Auth{Token: authsigner.Secret(server.RootToken)}, Timeout: patience,
			}
			try.change(&o)
			source := newSource(t, o)
			_, err := source.Lookup(t.Context(), testKey)
			requireUnavailable(t, err)
			require.ErrorContains(t, err, try.want)
			require.ErrorContains(t, source.Ready(), try.want)
			assert.NotContains(t, source.Ready().Error(), testKey)
		})
	}
}

// vault kv enable-versioning changes the paths of a KV engine in use. The token stays valid, and a configured one is that of each login.
func TestEngineMayGetVersionsWhileInUse(t *testing.T) {
	t.Parallel()
	for name, configured := range map[string]bool{"AppRole": false, "token": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const slowKey = "pk_live_slow0123456789"
			asked, release := make(chan struct{}), make(chan struct{})
			b := newBench(t, setup{
				policy: vaulttest.ReadPolicy + `path "kv1/data/gateway/keys/*" { capabilities = ["read"] }`,
				change: func(s *vaulttest.Server, o *vault.Options) {
					if o.Mount = "kv1"; configured {
						o.Auth = vault.Auth{Token: authsigner.Secret(newToken(t, s, "1h", nil))}
					}
				},
				proxy: func(next http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if r.URL.Path == "/v1/kv1/gateway/keys/"+slowKey {
							close(asked)
							<-release
						}
						next.ServeHTTP(w, r)
					})
				},
			})
			for _, key := range []string{testKey, slowKey} {
				_, err := b.Client(t).Logical().WriteWithContext(t.Context(), "kv1/gateway/keys/"+key, record(nil))
				require.NoError(t, err)
			}
			b.requireFound(t, testKey)
			slow := make(chan error, 1)
			go func() {
				_, err := b.Lookup(t.Context(), slowKey)
				slow <- err
			}()
			<-asked
			_, err := b.Client(t).Logical().WriteWithContext(t.Context(), "sys/mounts/kv1/tune", map[string]any{"options": map[string]any{"version": "2"}})
			require.NoError(t, err)
			b.eventuallyFound(t)
			close(release)
			require.NoError(t, <-slow, "it was in progress meanwhile")
			b.requireUnknown(t, otherKey)
		})
	}
}

// A KV engine of version 1 takes the path of an entry in version 2 for another name.
func TestEngineRebuiltWithoutVersionsMakesNoKeyUnknown(t *testing.T) {
	t.Parallel()
	for name, configured := range map[string]int{"detected": 0, "configured": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, setup{
				policy: vaulttest.ReadPolicy + `path "kv/gateway/keys/*" { capabilities = ["read"] }`,
				change: func(_ *vaulttest.Server, o *vault.Options) { o.KVVersion = configured },
			})
			b.store(t, testKey, nil)
			b.requireFound(t, testKey)
			require.NoError(t, b.Client(t).Sys().UnmountWithContext(t.Context(), "kv"))
			require.NoError(t, b.Client(t).Sys().MountWithContext(t.Context(), "kv", &api.MountInput{Type: "kv"}))
			_, err := b.Client(t).Logical().WriteWithContext(t.Context(), "kv/gateway/keys/"+testKey, record(nil))
			require.NoError(t, err)
			if configured != 0 {
				b.requireUnavailable(t)
				return
			}
			b.requireFound(t, testKey)
			b.requireUnknown(t, otherKey)
		})
	}
}

// A load balancer or another program in Vault's place cannot make a key unknown.
func TestOnlyVaultsResponseMakesAKeyUnknown(t *testing.T) {
	t.Parallel()
	for name, try := range map[string]struct {
		status  int
		body    string
		unknown bool
	}{
		"of Vault":                 {404, `{"errors":[]}`, true},
		"of Vault, deleted":        {404, `{"data":{"data":null,"metadata":{"version":3,"deletion_time":"2026-01-01T00:00:00Z","destroyed":false}}}`, true},
		"of Vault, destroyed":      {404, `{"data":{"data":null,"metadata":{"version":3,"deletion_time":"","destroyed":true}}}`, true},
		"no route":                 {404, `{"errors":["no handler for route \"kv/data/x\". route entry not found."]}`, false},
		"not the engine's path":    {404, `{"request_id":"x","data":null,"warnings":["Invalid path for a versioned K/V secrets engine."]}`, false},
		"a web server":             {404, `<html><h1>404 Not Found</h1></html>`, false},
		"nothing":                  {404, ``, false},
		"another API":              {404, `{"error":"not found","code":"NOT_FOUND"}`, false},
		"another API, empty":       {404, `{}`, false},
		"metadata, not deleted":    {404, `{"data":{"data":null,"metadata":{"version":3,"deletion_time":"","destroyed":false}}}`, false},
		"200 of a web server":      {200, `<html>It works!</html>`, false},
		"200 of another API":       {200, `{"status":"ok"}`, false},
		"200 without the entry":    {200, `{"data":{"metadata":{"version":1}}}`, false},
		"200 without the version":  {200, `{"data":{"data":{"private_key":"x"}}}`, false},
		"204":                      {204, ``, false},
		"sealed":                   {503, `{"errors":["Vault is sealed"]}`, false},
		"too many requests":        {429, `{"errors":["rate limit quota exceeded"]}`, false},
		"internal error":           {500, `{"errors":["1 error occurred"]}`, false},
		"a secret in an HTML page": {502, `<html>canary-private-key-of-a-business</html>`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !strings.Contains(r.URL.Path, "/data/") {
					w.WriteHeader(http.StatusForbidden) // the token may only read keys
					return
				}
				w.WriteHeader(try.status)
				_, _ = w.Write([]byte(try.body))
			}))
			t.Cleanup(server.Close)
			source := newSource(t, vault.Options{Address: server.URL, KVVersion: 2, Auth: vault.Auth{Token: "t"}, Timeout: patience})
			_, err := source.Lookup(t.Context(), testKey)
			if try.unknown {
				require.ErrorIs(t, err, authsigner.ErrUnknownKey)
				require.NotErrorIs(t, err, authsigner.ErrUnavailable)
				return
			}
			requireUnavailable(t, err)
			require.NotErrorIs(t, err, authsigner.ErrMalformedCredential, "only an entry of Vault can be malformed")
			assert.NotContains(t, err.Error(), testSecret)
			assert.NotContains(t, err.Error(), "<html>")
		})
	}
}

// An endless response fails long before it has filled the memory.
func TestResponsesOfVaultAreLimited(t *testing.T) {
	t.Parallel()
	lookup := func(s *vault.Source) error { _, err := s.Lookup(t.Context(), testKey); return err }
	list := func(s *vault.Source) error { _, err := s.List(t.Context()); return err }
	for name, try := range map[string]struct {
		get    func(*vault.Source) error
		status int
		limit  int32 // in MiB, with what the buffers of connections hold: up to 36 MiB with some kernels
	}{
		"an entry":            {lookup, http.StatusOK, 64},
		"an entry, not found": {lookup, http.StatusNotFound, 64},
		"a list":              {list, http.StatusOK, 160},
		"a list, refused":     {list, http.StatusBadRequest, 64},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var written atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !strings.HasPrefix(r.URL.Path, "/v1/kv/") {
					w.WriteHeader(http.StatusForbidden) // the token may only read keys
					return
				}
				w.WriteHeader(try.status)
				_, err := w.Write([]byte(`{"data":{"data":"`))
				for part := bytes.Repeat([]byte("a"), 1<<20); err == nil && written.Load() < try.limit; written.Add(1) {
					_, err = w.Write(part)
				}
				if err == nil {
					<-r.Context().Done()
				}
			}))
			t.Cleanup(server.Close)
			source := newSource(t, vault.Options{Address: server.URL, KVVersion: 2, Auth: vault.Auth{Token: "t"}, Timeout: patience})
			requireUnavailable(t, try.get(source))
			require.Less(t, written.Load(), try.limit)
		})
	}
}

func TestRequestsHaveTheNamespaceAndIgnoreTheEnvironment(t *testing.T) {
	for name, value := range map[string]string{
		api.EnvVaultAddress: "http://192.0.2.1:1", api.EnvVaultToken: "hvs.of-the-environment", api.EnvVaultNamespace: "of-the-environment",
		api.EnvVaultWrapTTL: "60s", api.EnvVaultHeaders: `{"X-From":"environment"}`, api.EnvVaultSkipVerify: "true",
		api.EnvVaultMaxRetries: "0", api.EnvVaultClientTimeout: "1ns", api.EnvRateLimit: "0.001", api.EnvVaultAgentAddr: "http://192.0.2.1:1",
	} {
		t.Setenv(name, value)
	}
	var proxy recorder
	b := newBench(t, setup{policy: vaulttest.ManagePolicy, proxy: proxy.record, change: func(_ *vaulttest.Server, o *vault.Options) {
		o.Namespace = "team-a/gateway"
	}})
	require.NoError(t, b.Create(t.Context(), credential(t, testKey)))
	b.requireFound(t, testKey)
	require.NoError(t, b.Delete(t.Context(), testKey))
	_, err := b.List(t.Context())
	require.NoError(t, err)
	require.NoError(t, b.Close())

	requests := proxy.all()
	require.Greater(t, len(requests), 6)
	for _, r := range requests {
		assert.Equal(t, []string{"team-a/gateway"}, r.Header.Values("X-Vault-Namespace"), r.URL.Path)
		assert.Equal(t, "true", r.Header.Get("X-Vault-Request"))
		assert.Empty(t, r.Header.Get("X-From"))
		assert.Empty(t, r.Header.Get("X-Vault-Wrap-TTL"))
		assert.NotContains(t, fmt.Sprint(r.Header, r.URL), "of-the-environment")
		assert.NotContains(t, r.URL.String(), "hvs.")
	}
	require.Equal(t, 1, proxy.count("PUT auth/token/revoke-self"))
}

func TestInspectionWorksInANamespace(t *testing.T) {
	t.Parallel()
	b := newBench(t, setup{
		change: func(_ *vaulttest.Server, o *vault.Options) { o.Namespace = "team-a" },
		proxy: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.URL.Path, "/v1/sys/health") && r.Header.Get(api.NamespaceHeaderName) != "" {
					http.Error(w, `{"errors":["unsupported path"]}`, http.StatusNotFound) // as Vault Enterprise responds
					return
				}
				next.ServeHTTP(w, r)
			})
		},
	})
	found, err := b.Inspect(t.Context(), false)
	require.NoError(t, err)
	require.Empty(t, found.Missing)
	require.False(t, found.Hidden)
}

func TestRedirectOfAStandbyIsFollowed(t *testing.T) {
	t.Parallel()
	b := newBench(t, setup{
		server: vaulttest.Options{Standby: true}, policy: vaulttest.ManagePolicy,
		change: func(s *vaulttest.Server, o *vault.Options) { o.Address = s.StandbyAddr },
	})
	require.NoError(t, b.Create(t.Context(), credential(t, testKey)))
	b.requireFound(t, testKey)
}

func TestVaultsRateLimitIsATemporaryOutage(t *testing.T) {
	t.Parallel()
	b := newBench(t, setup{})
	b.store(t, testKey, nil)
	root := b.Client(t).Logical()
	_, err := root.WriteWithContext(t.Context(), "sys/quotas/rate-limit/all", map[string]any{"path": "kv", "rate": 0.001})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := b.Lookup(t.Context(), testKey)
		return err != nil
	}, patience, time.Millisecond)
	b.requireUnavailable(t)
	_, err = root.DeleteWithContext(t.Context(), "sys/quotas/rate-limit/all")
	require.NoError(t, err)
	b.requireFound(t, testKey)
}

func TestCanceledLookupReturnsTheContextsError(t *testing.T) {
	t.Parallel()
	b := newBench(t, setup{})
	b.store(t, testKey, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Lookup(ctx, testKey)
	requireUnavailable(t, err)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, b.Ready())
	b.requireFound(t, testKey)
}
