package e2e_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/vault/api"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/load"
	"github.com/gatehouse-gateway/gatehouse/internal/test/vaulttest"
)

// A brokenVault is a Vault that a test takes away under load and gives back.
type brokenVault struct {
	options vaulttest.Options
	// role are further parameters of the role that gateways sign in with.
	role map[string]any
	// prepare, if set, changes the world before there is a gateway.
	prepare func(w *vaultWorld)
	// away breaks Vault, back mends it.
	away, back func(w *vaultWorld)
	// gateway is the one under load, once there is one.
	gateway *gatewaytest.Gateway
	// answers says that look-ups may work all the same, so that no gateway need take Vault for away.
	answers bool
}

// The streams of a load on gateways with Vault. Known keys, which were called with before the fault, are the load's own.
const (
	unseen   = "never seen"           // they are in Vault, and no gateway has asked for them yet
	invented = "invented"             // they are nowhere
	told     = "revoked and told"     // deleted in Vault before the fault, which gateways are told during it
	untold   = "revoked and not told" // deleted in Vault before the fault, which nobody tells them
)

// vaultCache is how long gateways keep credentials in these tests, and how long they wait for Vault: in the short form, beside
// many other tests, one that takes longer than by default need not be broken.
func vaultCache(c chaos) (option string, ttl time.Duration) {
	ttl, loadTimeout := time.Second, 5*time.Second
	if c.long {
		ttl, loadTimeout = 3*time.Second, authsigner.DefaultLoadTimeout
	}
	return fmt.Sprintf("cache {\n\t\t\tttl %s\n\t\t\tnegative_ttl 1s\n\t\t\tload_timeout %s\n\t\t}", ttl, loadTimeout), ttl
}

// newVaultLoadWorld is a world for loads whose credentials are in Vault.
func newVaultLoadWorld(t *testing.T, v *brokenVault) *vaultWorld {
	t.Helper()
	w := vaultIn(t, newWorld(t, load.Data()), v.options)
	if v.role != nil {
		w.vault.AppRole(t, "gateway", gatewayPolicy, v.role)
	}
	if v.prepare != nil {
		v.prepare(w)
	}
	return w
}

// direct starts a gateway without the recording proxy before Vault, so that what happens to Vault happens to its
// connections.
func (w *vaultWorld) direct(t *testing.T, c chaos, cache string) *gatewaytest.Gateway {
	t.Helper()
	o := w.options(cache)
	o.Global = strings.ReplaceAll(strings.Replace(o.Global, w.redisLine(), c.redis(w.redis.URL()), 1), w.proxy.URL, w.vault.Addr)
	g := gatewaytest.Start(t, o)
	requireReady(t, g)
	return g
}

// addKeys makes n keys of several businesses in Vault.
func (w *vaultWorld) addKeys(t *testing.T, n, businesses int) []load.Caller {
	t.Helper()
	keys := load.NewKeys(n, businesses)
	for _, k := range keys {
		w.put(t, k.PublicKey, k.Record())
	}
	return load.Callers(keys)
}

func (w *vaultWorld) put(t *testing.T, key string, record map[string]any) {
	t.Helper()
	_, err := w.vault.Client(t).KVv2("kv").Put(t.Context(), "gateway/keys/"+key, record)
	require.NoError(t, err)
}

// holdTheKeys has a gateway under load while Vault is away and after it. There is nothing but successes for known keys.
// Keys not seen yet are refused for a while, and never as unknown; a revoked one is not used once the gateway was told.
func holdTheKeys(t *testing.T, c chaos, v *brokenVault) {
	t.Helper()
	w := newVaultLoadWorld(t, v)
	cache, ttl := vaultCache(c)
	g := w.direct(t, c, cache)
	v.gateway = g
	known, fresh, late, nowhere := w.addKeys(t, 2*c.rate, 5), w.addKeys(t, 40, 5), w.addKeys(t, 20, 5), load.Callers(load.NewKeys(20, 2))
	revoked := w.addKeys(t, 2, 2)
	for _, k := range append(slices.Clone(known), revoked...) {
		spend(t, g, k.Caller, 1)
	}
	l := load.Start(t, load.Options{
		Gateways: []*gatewaytest.Gateway{g}, Callers: known, Rate: c.rate, Targets: signedTargets(),
		Hide: w.hidden(),
		Allow: func(s *load.Sample) bool {
			unavailable := s.Status == http.StatusServiceUnavailable && s.During("outage", "back")
			unauthorized := s.Status == http.StatusUnauthorized
			if s.Status == http.StatusTooManyRequests && s.Stream != "" {
				return true // the unauthenticated limit, as the test may take long
			}
			switch s.Stream {
			case unseen:
				return s.Status == http.StatusOK && (v.answers || s.Ended != "outage") || unavailable
			case invented:
				return unauthorized && (v.answers || !s.During("outage") || s.Ended != "outage") || unavailable
			case told, untold:
				return s.Status == http.StatusOK || unauthorized || unavailable
			}
			return s.Status == http.StatusOK // a known key goes on
		},
	})
	l.Run(c.before)

	for _, k := range revoked {
		require.NoError(t, w.vault.Client(t).KVv2("kv").DeleteMetadata(t.Context(), "gateway/keys/"+k.PublicKey))
	}
	v.away(w)
	// what was looked up before is a success of that time
	l.Phase("outage")
	began := time.Now()
	endUntold := l.Also(untold, revoked[1:], 1, "/api/v1/me")
	endUnseen := l.Also(unseen, fresh, 2, "/api/v1/me")
	endInvented := l.Also(invented, nowhere, 1, "/api/v1/me")
	if !v.answers {
		require.Eventually(t, func() bool { return g.Metric(t, "gatehouse_credentials_ready") == 0 }, 2*patience, 25*time.Millisecond)
	}
	noticed := time.Since(began)
	require.NoError(t, w.redis.Client(t).Publish(t.Context(), "gatehouse:credentials", revoked[0].PublicKey).Err())
	toldAt := time.Now()
	endTold := l.Also(told, revoked[:1], 1, "/api/v1/me")
	l.Run(max(c.away, 4*ttl)) // far past the TTL
	ready := anonymous().Get(t, g.URL, "/readyz")
	require.Equal(t, http.StatusOK, ready.Status, "a gateway that serves its callers stays in service")
	if !v.answers {
		require.Contains(t, ready.Body, `"status":"degraded","checks":{"credentials":"degraded"`)
		require.NotContains(t, ready.Body, "causes")
		require.Contains(t, anonymous().Get(t, g.AdminURL, "/gatehouse/ready").Body, `"causes":{"credentials":`)
	}

	v.back(w)
	l.Phase("back")
	mended := time.Now()
	requireReady(t, g)
	requireSoon(t, http.StatusOK, late[0].Caller, g)
	took := time.Since(mended)
	endUnseen()
	endInvented()
	endTold()
	l.Phase("healthy")
	l.Also("", late, 1)
	a := requireSoon(t, http.StatusUnauthorized, revoked[1].Caller, g)
	requireProblem(t, a, http.StatusUnauthorized, "INVALID_CREDENTIALS")
	untoldFor := time.Since(mended)
	endUntold()
	for _, k := range append(fresh[:5:5], revoked[0]) {
		status := http.StatusOK
		if k.PublicKey == revoked[0].PublicKey {
			status = http.StatusUnauthorized
		}
		requireSoon(t, status, k.Caller, g)
	}
	l.Run(c.back)
	report := l.Stop()
	gatewaytest.RequireNowhere(t, g.Everything(t), w.secretID, w.vault.RootToken)

	require.Zero(t, report.OverLimit())
	require.Positive(t, report.Phase("outage").By["200"], "%s", report)
	refusedAt := requireOnceRefused(t, report, told)
	requireOnceRefused(t, report, untold)
	unseenAway := func(status int) int {
		return len(report.Some(func(s *load.Sample) bool { return s.Stream == unseen && s.Phase == "outage" && s.Status == status }))
	}
	report.Figure(t,
		"ttl="+ttl.String(),
		fmt.Sprintf("noticed_after=%s", noticed.Round(time.Millisecond)),
		fmt.Sprintf("healthy_after=%s", took.Round(time.Millisecond)),
		fmt.Sprintf("unseen_served_outage=%d", unseenAway(http.StatusOK)),
		fmt.Sprintf("unseen_unavailable_outage=%d", unseenAway(http.StatusServiceUnavailable)),
		fmt.Sprintf("revoked_rejected_after_push=%s", max(0, refusedAt.Sub(toldAt)).Round(time.Millisecond)),
		fmt.Sprintf("revoked_rejected_after_back=%s", untoldFor.Round(time.Millisecond)))
}

// hidden are texts that no caller may learn.
func (w *vaultWorld) hidden() []string {
	return []string{strings.TrimPrefix(w.vault.Addr, "http://"), w.vault.RootToken, w.secretID, w.redis.Addr}
}

// signedTargets are those of loadTargets that need a key: /status is answered whether or not it can be verified.
func signedTargets() []string {
	return slices.DeleteFunc(load.Targets(), func(target string) bool { return strings.HasSuffix(target, "/status") })
}

// requireOnceRefused holds a revoked key to staying refused, and returns when the first refusal was answered; zero if
// there was none.
func requireOnceRefused(t *testing.T, r *load.Report, stream string) (at time.Time) {
	t.Helper()
	list := r.Some(func(s *load.Sample) bool { return s.Stream == stream })
	for _, s := range list {
		if s.Status != http.StatusOK && s.Status != http.StatusTooManyRequests && (at.IsZero() || s.Done.Before(at)) {
			at = s.Done
		}
	}
	for _, s := range list {
		require.False(t, !at.IsZero() && s.Status == http.StatusOK && s.Sent.After(at), "a key that was refused is served again\n%s", r)
	}
	return at
}

// stepDown has the active node, which the gateway calls, step down, and waits until the other one has taken over.
func (w *vaultWorld) stepDown(t *testing.T) (other *api.Client) {
	t.Helper()
	client, other := w.vault.Client(t), w.vault.Client(t)
	require.NoError(t, other.SetAddress(w.vault.StandbyAddr))
	require.NoError(t, client.Sys().StepDownWithContext(t.Context()))
	requireStandby(t, client, true)
	return other
}

func requireStandby(t *testing.T, node *api.Client, standby bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		health, err := node.Sys().HealthWithContext(t.Context())
		return err == nil && health.Standby == standby
	}, patience, 20*time.Millisecond)
}

// shortLived are parameters of a role whose tokens can be renewed for 8 s in all. They are replaced a third of their time
// before they end, which has to suffice on a busy machine.
func shortLived() map[string]any { return map[string]any{"token_ttl": "4s", "token_max_ttl": "8s"} }

// liveLong has tokens live longer than a test from the gateway's next sign-in or renewal on. All is well again only with those: a
// busy machine may be too slow for one that lives for seconds.
func (w *vaultWorld) liveLong(t *testing.T) {
	t.Helper()
	_, err := w.vault.Client(t).Logical().WriteWithContext(t.Context(), "auth/approle/role/gateway",
		map[string]any{"token_ttl": "1h", "token_max_ttl": "1h"})
	require.NoError(t, err)
}

// secretIDExpires lets the secret ID with which the gateway signs in expire, and then its token. A new secret ID in the file is
// all that it takes, in a Vault as deploy/vault-setup.sh prepares it: by default Vault would refuse the role for a quarter of an
// hour.
func secretIDExpires(t *testing.T) *brokenVault {
	t.Helper()
	var roleID string
	v := &brokenVault{prepare: func(w *vaultWorld) {
		client := w.vault.Client(t)
		require.NoError(t, client.Sys().DisableAuthWithContext(t.Context(), "approle"))
		login := t.TempDir()
		root, err := gatewaytest.Root()
		require.NoError(t, err)
		cmd := exec.CommandContext(t.Context(), "sh", filepath.Join(root, "deploy", "vault-setup.sh"))
		cmd.Env = append(os.Environ(), "VAULT_ADDR="+w.vault.Addr, "VAULT_TOKEN="+w.vault.RootToken, "LOGIN="+login,
			"GATEWAY_UID="+strconv.Itoa(os.Getuid()))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		_, err = client.Logical().WriteWithContext(t.Context(), "auth/approle/role/gateway", shortLived())
		require.NoError(t, err)
		read, err := os.ReadFile(filepath.Join(login, "gateway", "role-id"))
		require.NoError(t, err)
		roleID = string(read)
		w.env[0] = "TEST_ROLE_ID=" + roleID
		w.secretIDFile = filepath.Join(login, "gateway", "secret-id")
	}}
	v.away = func(w *vaultWorld) {
		answer, err := w.vault.Client(t).Logical().WriteWithContext(t.Context(), "auth/approle/role/gateway/secret-id",
			map[string]any{"ttl": "1s"})
		require.NoError(t, err)
		secretID := answer.Data["secret_id"].(string)
		require.NoError(t, os.WriteFile(w.secretIDFile, []byte(secretID), 0o600))
		require.Eventually(t, func() bool {
			// Vault lets go of what has expired when it tidies up: once a minute, or when told to
			_, err := w.vault.Client(t).Logical().WriteWithContext(t.Context(), "auth/approle/tidy/secret-id", nil)
			require.NoError(t, err)
			_, err = w.vault.ClientWithToken(t, "").Logical().WriteWithContext(t.Context(), "auth/approle/login",
				map[string]any{"role_id": roleID, "secret_id": secretID})
			return err != nil
		}, patience, 100*time.Millisecond, "it has not expired")
		// the token that was made with the one before is good for a while
		require.Eventually(t, func() bool { return v.gateway.Metric(t, "gatehouse_credentials_ready") == 0 }, 2*patience, 25*time.Millisecond)
	}
	v.back = func(w *vaultWorld) {
		w.liveLong(t)
		require.NoError(t, os.WriteFile(w.secretIDFile, []byte(w.vault.SecretID(t, "gateway")), 0o600))
	}
	return v
}

// standbyOnly seals the node that has taken over, so that there is no active one. The one that has stepped down takes over again by
// itself, after 10 s.
func standbyOnly(t *testing.T) *brokenVault {
	t.Helper()
	v := &brokenVault{options: vaulttest.Options{Standby: true}, answers: true}
	v.away = func(w *vaultWorld) {
		other := w.stepDown(t)
		requireStandby(t, other, false)
		require.NoError(t, other.Sys().SealWithContext(t.Context()))
		require.Eventually(t, func() bool { return v.gateway.Metric(t, "gatehouse_credentials_ready") == 0 }, patience, 25*time.Millisecond)
	}
	v.back = func(w *vaultWorld) { requireStandby(t, w.vault.Client(t), false) }
	return v
}

// tokensRevoked revokes every token of the gateway's role.
func tokensRevoked(t *testing.T) *brokenVault {
	t.Helper()
	return &brokenVault{
		answers: true,
		away: func(w *vaultWorld) {
			client := w.vault.Client(t)
			list, err := client.Logical().ListWithContext(t.Context(), "auth/token/accessors")
			require.NoError(t, err)
			revoked := 0
			for _, accessor := range list.Data["keys"].([]any) {
				token, err := client.Auth().Token().LookupAccessorWithContext(t.Context(), accessor.(string))
				require.NoError(t, err)
				if token.Data["path"] == "auth/approle/login" {
					require.NoError(t, client.Auth().Token().RevokeAccessorWithContext(t.Context(), accessor.(string)))
					revoked++
				}
			}
			require.Positive(t, revoked)
		},
		back: func(*vaultWorld) {},
	}
}

// tokensEnd has tokens end again and again; the gateway signs in anew before that.
func tokensEnd(t *testing.T) *brokenVault {
	t.Helper()
	v := &brokenVault{role: shortLived(), answers: true}
	await := func(n float64, events ...string) {
		t.Helper()
		seen := func() (n float64) {
			for _, e := range events {
				n += v.gateway.Metric(t, "gatehouse_credential_events_total", `event="`+e+`"`)
			}
			return n
		}
		before := seen()
		require.Eventually(t, func() bool { return seen() >= before+n }, 2*patience, 50*time.Millisecond)
	}
	v.away = func(*vaultWorld) { await(2, "login") }
	v.back = func(w *vaultWorld) {
		w.liveLong(t)
		await(1, "login", "renewed")
	}
	return v
}

// quotaUsedUp gives the mount of the keys a quota that is used up at once: Vault responds 429.
func quotaUsedUp(t *testing.T) *brokenVault {
	t.Helper()
	return &brokenVault{
		answers: true, // a few look-ups are within the quota
		away: func(w *vaultWorld) {
			_, err := w.vault.Client(t).Logical().WriteWithContext(t.Context(), "sys/quotas/rate-limit/keys",
				map[string]any{"path": "kv/", "rate": 1, "interval": "1h"})
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				_, err := w.vault.Client(t).KVv2("kv").Get(t.Context(), "gateway/keys/nothing")
				answer := (*api.ResponseError)(nil)
				return errors.As(err, &answer) && answer.StatusCode == http.StatusTooManyRequests
			}, patience, 10*time.Millisecond)
		},
		back: func(w *vaultWorld) {
			_, err := w.vault.Client(t).Logical().DeleteWithContext(t.Context(), "sys/quotas/rate-limit/keys")
			require.NoError(t, err)
		},
	}
}

func TestFaultVault(t *testing.T) {
	t.Parallel()
	// between breaks and mends Vault with methods of its own.
	between := func(away, back func(*vaulttest.Server, testing.TB)) func(*testing.T) *brokenVault {
		return func(t *testing.T) *brokenVault {
			t.Helper()
			return &brokenVault{
				options: vaulttest.Options{Persistent: true},
				away:    func(w *vaultWorld) { away(w.vault, t) },
				back:    func(w *vaultWorld) { back(w.vault, t) },
			}
		}
	}
	for name, fault := range map[string]func(*testing.T) *brokenVault{
		"killed":  between((*vaulttest.Server).Kill, (*vaulttest.Server).Restart),
		"stopped": between((*vaulttest.Server).Pause, (*vaulttest.Server).Resume),
		"sealed":  between((*vaulttest.Server).Seal, (*vaulttest.Server).Unseal),
		// The gateway's node redirects to the one that takes over.
		"standby": func(t *testing.T) *brokenVault {
			t.Helper()
			var other *api.Client
			return &brokenVault{
				options: vaulttest.Options{Standby: true}, answers: true,
				away: func(w *vaultWorld) { other = w.stepDown(t) },
				back: func(*vaultWorld) { requireStandby(t, other, false) },
			}
		},
		"standby without an active node": standbyOnly,
		"token revoked":                  tokensRevoked,
		"token's maximum reached":        tokensEnd,
		"secret ID expired":              secretIDExpires,
		"policy denied": func(t *testing.T) *brokenVault {
			t.Helper()
			policy := func(rules string) func(*vaultWorld) {
				return func(w *vaultWorld) {
					require.NoError(t, w.vault.Client(t).Sys().PutPolicyWithContext(t.Context(), "gateway", rules))
				}
			}
			return &brokenVault{away: policy(`path "kv/data/elsewhere/*" { capabilities = ["read"] }`), back: policy(gatewayPolicy)}
		},
		"too many requests": quotaUsedUp,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			holdTheKeys(t, chaosScale(t), fault(t))
		})
	}
}

// spoilKeys has a gateway under load while the entries of a few keys are spoilt, and mended. While they are, their keys
// are refused in one way; no other key is affected.
func spoilKeys(t *testing.T, c chaos, status int, code string, spoil func(w *vaultWorld, key string)) {
	t.Helper()
	w := newVaultLoadWorld(t, &brokenVault{})
	cache, ttl := vaultCache(c)
	g := w.direct(t, c, cache)
	known := w.addKeys(t, 2*c.rate, 5)
	victims := load.NewKeys(3, 2)
	for _, k := range victims {
		w.put(t, k.PublicKey, k.Record())
	}
	// once they are known, they go on however long Vault takes
	for _, k := range append(slices.Clone(known), load.Callers(victims)...) {
		requireSoon(t, http.StatusOK, k.Caller, g)
	}
	l := load.Start(t, load.Options{
		Gateways: []*gatewaytest.Gateway{g}, Callers: known, Rate: c.rate, Targets: signedTargets(),
		Hide: w.hidden(),
		Allow: func(s *load.Sample) bool {
			return s.Status == http.StatusOK || s.Stream != "" && s.Status == status && s.Code == code && s.During("outage", "back")
		},
	})
	l.Also("spoilt", load.Callers(victims), 3, "/api/v1/me")
	l.Run(c.before)
	l.Phase("outage")
	began := time.Now()
	for _, k := range victims {
		spoil(w, k.PublicKey)
	}
	for _, k := range load.Callers(victims) {
		requireProblem(t, requireSoon(t, status, k.Caller, g), status, code)
	}
	noticed := time.Since(began)
	l.Run(c.away)
	l.Phase("back")
	mended := time.Now()
	for _, k := range victims {
		w.put(t, k.PublicKey, k.Record())
	}
	for _, k := range load.Callers(victims) {
		requireSoon(t, http.StatusOK, k.Caller, g)
	}
	took := time.Since(mended)
	l.Phase("healthy")
	l.Run(c.back)
	report := l.Stop()
	require.Zero(t, report.OverLimit())
	report.Figure(t, "ttl="+ttl.String(), fmt.Sprintf("rejected_after=%s", noticed.Round(time.Millisecond)),
		fmt.Sprintf("served_again_after=%s", took.Round(time.Millisecond)))
}

func TestFaultVaultEntries(t *testing.T) {
	t.Parallel()
	// The keys of malformed entries may be valid, so they are unavailable, not unknown.
	t.Run("malformed", func(t *testing.T) {
		t.Parallel()
		n := 0
		spoilKeys(t, chaosScale(t), http.StatusServiceUnavailable, "SERVICE_UNAVAILABLE", func(w *vaultWorld, key string) {
			n++
			w.put(t, key, []map[string]any{
				{"private_key": map[string]any{"canary-of-an-entry": "canary-of-an-entry"}},
				{"canary-of-an-entry": "canary-of-an-entry"},
				{"private_key": "canary-of-an-entry\n", "business_id": "b", "business_name": "b", "business_slug": "b", "status": "active"},
			}[n%3])
		})
	})
	// Destroying all versions of an entry is one way to revoke a key.
	t.Run("version destroyed", func(t *testing.T) {
		t.Parallel()
		spoilKeys(t, chaosScale(t), http.StatusUnauthorized, "INVALID_CREDENTIALS", func(w *vaultWorld, key string) {
			require.NoError(t, w.vault.Client(t).KVv2("kv").Destroy(t.Context(), "gateway/keys/"+key, []int{1}))
		})
	})
}

// TestFaultVaultOutageLongerThanStaleIfError is the stated worst case: a gateway that can reach neither Vault nor whoever
// tells it of revocations goes on for stale_if_error, and not for longer.
func TestFaultVaultOutageLongerThanStaleIfError(t *testing.T) {
	t.Parallel()
	c := chaosScale(t)
	const staleIfError = 3 * time.Second
	w := newVaultLoadWorld(t, &brokenVault{options: vaulttest.Options{Persistent: true}})
	g := w.direct(t, c, fmt.Sprintf("cache {\n\t\t\tttl 1s\n\t\t\tstale_if_error %s\n\t\t\t%s\n\t\t}", staleIfError, patientWithVault))
	known := w.addKeys(t, 2*c.rate, 5)
	for _, k := range known {
		spend(t, g, k.Caller, 1)
	}
	l := load.Start(t, load.Options{
		Gateways: []*gatewaytest.Gateway{g}, Callers: known, Rate: c.rate, Targets: signedTargets(),
		// from one address, they would use up its budget for what cannot be verified
		Addresses: len(known),
		Hide:      w.hidden(),
		Allow: func(s *load.Sample) bool {
			return s.Status == http.StatusOK && (s.Phase != "too long" || s.Ended != "too long") ||
				s.Status == http.StatusServiceUnavailable && (s.Phase != "before" || s.Ended != "before")
		},
	})
	l.Run(c.before)
	l.Phase("outage")
	w.vault.Kill(t)
	killed := time.Now()
	l.Run(staleIfError)
	last := time.Time{}
	for _, s := range l.Report().Some(func(s *load.Sample) bool { return s.Status == http.StatusOK && s.Phase == "outage" }) {
		if s.Done.After(last) {
			last = s.Done
		}
	}
	l.Phase("too long")
	l.Run(c.before)
	w.vault.Restart(t)
	mended := time.Now()
	l.Phase("back")
	requireReady(t, g)
	requireSoon(t, http.StatusOK, known[0].Caller, g)
	took := time.Since(mended)
	report := l.Stop()
	require.Zero(t, report.OverLimit())
	report.Figure(t, "stale_if_error="+staleIfError.String(), fmt.Sprintf("last_served_after=%s", last.Sub(killed).Round(time.Millisecond)),
		fmt.Sprintf("healthy_after=%s", took.Round(time.Millisecond)))
}
