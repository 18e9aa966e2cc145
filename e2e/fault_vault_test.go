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
	"github.com/gatehouse-gateway/gatehouse/internal/test/processtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/vaulttest"
)

// A vaultFault makes a Vault unavailable under load and restores it.
type vaultFault struct {
	options vaulttest.Options
	// role are further parameters of the gateways' AppRole.
	role map[string]any
	// prepare, if set, is called before the gateway starts.
	prepare func(w *vaultEnvironment)
	// fail starts the fault; restore ends it.
	fail, restore func(w *vaultEnvironment)
	// gateway is the gateway under load, once it runs.
	gateway *gatewaytest.Gateway
	// partial is set if some lookups succeed, so that gateways may not consider Vault unavailable.
	partial bool
}

// The load's streams. Its main stream uses known keys, which were used before the fault.
const (
	unseen      = "never seen"               // in Vault, but not looked up by a gateway yet
	invented    = "invented"                 // not in Vault
	notified    = "revoked and notified"     // deleted in Vault before the fault; gateways are notified during it
	notNotified = "revoked and not notified" // deleted in Vault before the fault; gateways are not notified
)

// vaultCache returns the option cache and its TTL. Besides other tests, Vault may take longer than the default lookup_timeout.
func vaultCache(c chaos) (option string, ttl time.Duration) {
	ttl, lookupTimeout := time.Second, 5*time.Second
	if c.long {
		ttl, lookupTimeout = 3*time.Second, authsigner.DefaultLookupTimeout
	}
	return fmt.Sprintf("cache {\n\t\t\tttl %s\n\t\t\tnegative_ttl 1s\n\t\t\tlookup_timeout %s\n\t\t}", ttl, lookupTimeout), ttl
}

// newVaultLoadEnvironment returns an environment for load tests whose credentials are in Vault.
func newVaultLoadEnvironment(t *testing.T, v *vaultFault) *vaultEnvironment {
	t.Helper()
	w := vaultIn(t, newEnvironment(t, load.Data()), v.options)
	if v.role != nil {
		w.vault.AppRole(t, "gateway", vaulttest.ReadPolicy, v.role)
	}
	if v.prepare != nil {
		v.prepare(w)
	}
	return w
}

// direct starts a gateway without the recording proxy in front of Vault, so that faults affect the gateway's connections.
func (w *vaultEnvironment) direct(t *testing.T, c chaos, cache string) *gatewaytest.Gateway {
	t.Helper()
	o := w.options(cache)
	o.Global = strings.ReplaceAll(strings.Replace(o.Global, w.redisLine(), c.redis(w.redis.URL()), 1), w.proxy.URL, w.vault.Addr)
	g := gatewaytest.Start(t, o)
	requireReady(t, g)
	return g
}

// addKeys adds n keys of several businesses to Vault.
func (w *vaultEnvironment) addKeys(t *testing.T, n, businesses int) []load.Caller {
	t.Helper()
	keys := load.NewKeys(n, businesses)
	for _, k := range keys {
		w.put(t, k.PublicKey, k.Record())
	}
	return load.Callers(keys)
}

func (w *vaultEnvironment) put(t *testing.T, key string, record map[string]any) {
	t.Helper()
	_, err := w.vault.Client(t).KVv2("kv").Put(t.Context(), "gateway/keys/"+key, record)
	require.NoError(t, err)
}

// testVaultOutage puts a gateway under load before, during and after an outage of Vault. Known keys get only successes. Keys not
// seen before may be unavailable, never unknown. A revoked key is rejected once the gateway was notified.
func testVaultOutage(t *testing.T, c chaos, v *vaultFault) {
	t.Helper()
	w := newVaultLoadEnvironment(t, v)
	cache, ttl := vaultCache(c)
	g := w.direct(t, c, cache)
	v.gateway = g
	known, fresh, late, nowhere := w.addKeys(t, 2*c.rate, 5), w.addKeys(t, 40, 5), w.addKeys(t, 20, 5), load.Callers(load.NewKeys(20, 2))
	revoked, greedy := w.addKeys(t, 2, 2), w.addKeys(t, 1, 1)
	for _, k := range slices.Concat(known, revoked, greedy) {
		requireServed(t, g, k.Caller, 1)
	}
	l := load.Start(t, load.Options{
		Gateways: []*gatewaytest.Gateway{g}, Callers: known, Rate: c.rate, Targets: signedTargets(),
		Hide: w.hidden(),
		Allow: func(s *load.Sample) bool {
			unavailable := s.Status == http.StatusServiceUnavailable && s.During("outage", "back")
			unauthorized := s.Status == http.StatusUnauthorized
			if s.Status == http.StatusTooManyRequests && s.Stream != "" {
				return true // the unverified limit, because the test may take long
			}
			switch s.Stream {
			case unseen:
				return s.Status == http.StatusOK && (v.partial || s.Ended != "outage") || unavailable
			case invented:
				return unauthorized && (v.partial || !s.During("outage") || s.Ended != "outage") || unavailable
			case notified, notNotified:
				return s.Status == http.StatusOK || unauthorized || unavailable
			}
			return s.Status == http.StatusOK // known keys
		},
	})
	l.Also("greedy", greedy, 20)
	l.Run(c.before)

	for _, k := range revoked {
		require.NoError(t, w.vault.Client(t).KVv2("kv").DeleteMetadata(t.Context(), "gateway/keys/"+k.PublicKey))
	}
	v.fail(w)
	l.Phase("outage")
	began := time.Now()
	endNotNotified := l.Also(notNotified, revoked[1:], 1, "/api/v1/me")
	endUnseen := l.Also(unseen, fresh, 2, "/api/v1/me")
	endInvented := l.Also(invented, nowhere, 1, "/api/v1/me")
	if !v.partial {
		requireCheck(t, g, "credentials", false)
	}
	noticed := time.Since(began)
	require.NoError(t, w.redis.Client(t).Publish(t.Context(), "gatehouse:credentials", revoked[0].PublicKey).Err())
	notifiedAt := time.Now()
	endNotified := l.Also(notified, revoked[:1], 1, "/api/v1/me")
	require.Eventually(t, func() bool {
		return len(l.Report().Some(func(s *load.Sample) bool {
			return s.Stream == notified && s.Status != http.StatusOK && s.Status != http.StatusTooManyRequests
		})) > 0
	}, patience, 50*time.Millisecond, "a revoked key is served after the gateway was notified")
	l.Run(max(c.outage, 4*ttl)) // far beyond the TTL
	ready := anonymous().Get(t, g.URL, "/readyz")
	require.Equal(t, http.StatusOK, ready.Status, "a degraded gateway stays in service")
	if !v.partial {
		require.Contains(t, ready.Body, `"status":"degraded","checks":{"credentials":"degraded"`)
		require.NotContains(t, ready.Body, "causes")
		require.Contains(t, anonymous().Get(t, g.AdminURL, "/gatehouse/ready").Body, `"causes":{"credentials":`)
	}

	l.Phase("back") // Vault may respond before restore returns
	v.restore(w)
	restored := time.Now()
	requireReady(t, g)
	waitForStatus(t, http.StatusOK, late[0].Caller, g)
	took := time.Since(restored)
	endUnseen()
	endInvented()
	endNotified()
	l.Phase("healthy")
	l.Also("", late, 1)
	a := waitForStatus(t, http.StatusUnauthorized, revoked[1].Caller, g)
	requireProblem(t, a, http.StatusUnauthorized, "INVALID_CREDENTIALS")
	notNotifiedFor := time.Since(restored)
	endNotNotified()
	for _, k := range append(fresh[:5:5], revoked[0]) {
		status := http.StatusOK
		if k.PublicKey == revoked[0].PublicKey {
			status = http.StatusUnauthorized
		}
		waitForStatus(t, status, k.Caller, g)
	}
	l.Run(c.after)
	report := l.Stop()
	gatewaytest.RequireNowhere(t, g.Everything(t), w.secretID, w.vault.RootToken)

	require.Zero(t, report.OverLimit())
	require.Positive(t, report.Phase("outage").By["200"], "%s", report)
	rejectedAt := requireStaysRejected(t, report, notified)
	requireStaysRejected(t, report, notNotified)
	unseenAway := func(status int) int {
		return len(report.Some(func(s *load.Sample) bool { return s.Stream == unseen && s.Phase == "outage" && s.Status == status }))
	}
	report.Figure(t,
		"ttl="+ttl.String(),
		fmt.Sprintf("noticed_after=%s", noticed.Round(time.Millisecond)),
		fmt.Sprintf("healthy_after=%s", took.Round(time.Millisecond)),
		fmt.Sprintf("unseen_served_outage=%d", unseenAway(http.StatusOK)),
		fmt.Sprintf("unseen_unavailable_outage=%d", unseenAway(http.StatusServiceUnavailable)),
		fmt.Sprintf("revoked_rejected_after_invalidation=%s", max(0, rejectedAt.Sub(notifiedAt)).Round(time.Millisecond)),
		fmt.Sprintf("revoked_rejected_after_back=%s", notNotifiedFor.Round(time.Millisecond)))
}

// hidden returns texts that must not appear in responses.
func (w *vaultEnvironment) hidden() []string {
	return []string{strings.TrimPrefix(w.vault.Addr, "http://"), w.vault.RootToken, w.secretID, w.redis.Addr}
}

// signedTargets returns the targets that need a signature.
func signedTargets() []string {
	return slices.DeleteFunc(load.Targets(), func(target string) bool { return strings.HasSuffix(target, "/status") })
}

// requireStaysRejected requires that a revoked key stays rejected, and returns the time of the first rejection, zero if there was none.
func requireStaysRejected(t *testing.T, r *load.Report, stream string) (at time.Time) {
	t.Helper()
	list := r.Some(func(s *load.Sample) bool { return s.Stream == stream })
	for _, s := range list {
		if s.Status != http.StatusOK && s.Status != http.StatusTooManyRequests && (at.IsZero() || s.Done.Before(at)) {
			at = s.Done
		}
	}
	for _, s := range list {
		require.False(t, !at.IsZero() && s.Status == http.StatusOK && s.Sent.After(at), "a rejected key is served again\n%s", r)
	}
	return at
}

// stepDown makes the active node step down and returns a client of the other node.
func (w *vaultEnvironment) stepDown(t *testing.T) (other *api.Client) {
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

// shortLivedTokens returns parameters of a role whose tokens can be renewed for 8 s in total.
func shortLivedTokens() map[string]any {
	return map[string]any{"token_ttl": "4s", "token_max_ttl": "8s"}
}

// useLongLivedTokens sets a long TTL from the gateway's next login or renewal on: a busy machine may be too slow for a TTL of seconds.
func (w *vaultEnvironment) useLongLivedTokens(t *testing.T) {
	t.Helper()
	_, err := w.vault.Client(t).Logical().WriteWithContext(t.Context(), "auth/approle/role/gateway",
		map[string]any{"token_ttl": "1h", "token_max_ttl": "1h"})
	require.NoError(t, err)
}

// secretIDExpires lets the gateway's secret ID expire, and then its token. A new secret ID in the file suffices in a Vault that
// deploy/vault-setup.sh has set up; by default, Vault would lock the role out for 15 minutes.
func secretIDExpires(t *testing.T) *vaultFault {
	t.Helper()
	var roleID string
	v := &vaultFault{prepare: func(w *vaultEnvironment) {
		client := w.vault.Client(t)
		require.NoError(t, client.Sys().DisableAuthWithContext(t.Context(), "approle"))
		login := t.TempDir()
		root, err := processtest.Root()
		require.NoError(t, err)
		cmd := exec.CommandContext(t.Context(), "sh", filepath.Join(root, "deploy", "vault-setup.sh"))
		cmd.Env = append(os.Environ(), "VAULT_ADDR="+w.vault.Addr, "VAULT_TOKEN="+w.vault.RootToken, "LOGIN="+login,
			"GATEWAY_UID="+strconv.Itoa(os.Getuid()))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		_, err = client.Logical().WriteWithContext(t.Context(), "auth/approle/role/gateway", shortLivedTokens())
		require.NoError(t, err)
		read, err := os.ReadFile(filepath.Join(login, "gateway", "vault-role-id"))
		require.NoError(t, err)
		roleID = string(read)
		w.env[0] = "TEST_ROLE_ID=" + roleID
		w.secretIDFile = filepath.Join(login, "gateway", "vault-secret-id")
	}}
	v.fail = func(w *vaultEnvironment) {
		response, err := w.vault.Client(t).Logical().WriteWithContext(t.Context(), "auth/approle/role/gateway/secret-id",
			map[string]any{"ttl": "1s"})
		require.NoError(t, err)
		secretID := response.Data["secret_id"].(string)
		require.NoError(t, os.WriteFile(w.secretIDFile, []byte(secretID), 0o600))
		require.Eventually(t, func() bool {
			// Vault removes expired secret IDs once a minute, or on request
			_, err := w.vault.Client(t).Logical().WriteWithContext(t.Context(), "auth/approle/tidy/secret-id", nil)
			require.NoError(t, err)
			_, err = w.vault.ClientWithToken(t, "").Logical().WriteWithContext(t.Context(), "auth/approle/login",
				map[string]any{"role_id": roleID, "secret_id": secretID})
			return err != nil
		}, patience, 100*time.Millisecond, "the secret ID has not expired")
		// the token of the last login is still valid for a while, also after readiness has noticed
		requireCheck(t, v.gateway, "credentials", false)
		require.Eventually(t, func() bool {
			return load.Callers(load.NewKeys(1, 1))[0].Get(t, v.gateway.URL, "/api/v1/me").Status == http.StatusServiceUnavailable
		}, patience, 500*time.Millisecond, "Vault still responds")
	}
	v.restore = func(w *vaultEnvironment) {
		w.useLongLivedTokens(t)
		require.NoError(t, os.WriteFile(w.secretIDFile, []byte(w.vault.SecretID(t, "gateway")), 0o600))
	}
	return v
}

// standbyOnly seals the node that has taken over, so that no node is active until the first takes over again, after 10 s.
func standbyOnly(t *testing.T) *vaultFault {
	t.Helper()
	v := &vaultFault{options: vaulttest.Options{Standby: true}, partial: true}
	v.fail = func(w *vaultEnvironment) {
		other := w.stepDown(t)
		requireStandby(t, other, false)
		require.NoError(t, other.Sys().SealWithContext(t.Context()))
		requireCheck(t, v.gateway, "credentials", false)
	}
	v.restore = func(w *vaultEnvironment) { requireStandby(t, w.vault.Client(t), false) }
	return v
}

// gatewayTokens returns the time that is left to each token of the gateway's role, by accessor.
func (w *vaultEnvironment) gatewayTokens(t *testing.T) map[string]time.Duration {
	t.Helper()
	client := w.vault.Client(t)
	list, err := client.Logical().ListWithContext(t.Context(), "auth/token/accessors")
	require.NoError(t, err)
	found := map[string]time.Duration{}
	for _, accessor := range list.Data["keys"].([]any) {
		token, err := client.Auth().Token().LookupAccessorWithContext(t.Context(), accessor.(string))
		if err != nil || token.Data["path"] != "auth/approle/login" {
			continue // it may have expired since
		}
		left, err := token.TokenTTL()
		require.NoError(t, err)
		found[accessor.(string)] = left
	}
	return found
}

// tokensRevoked revokes every token of the gateway's role.
func tokensRevoked(t *testing.T) *vaultFault {
	t.Helper()
	return &vaultFault{
		partial: true,
		fail: func(w *vaultEnvironment) {
			revoked := 0
			for accessor := range w.gatewayTokens(t) {
				require.NoError(t, w.vault.Client(t).Auth().Token().RevokeAccessorWithContext(t.Context(), accessor))
				revoked++
			}
			require.Positive(t, revoked)
		},
		restore: func(*vaultEnvironment) {},
	}
}

// tokensExpire uses short-lived tokens, which the gateway replaces before they expire.
func tokensExpire(t *testing.T) *vaultFault {
	t.Helper()
	v := &vaultFault{role: shortLivedTokens(), partial: true}
	v.fail = func(*vaultEnvironment) {
		logins := func() float64 { return v.gateway.Metric(t, "gatehouse_credential_events_total", `event="login"`) }
		before := logins()
		require.Eventually(t, func() bool { return logins() >= before+2 }, 2*patience, 250*time.Millisecond)
	}
	v.restore = func(w *vaultEnvironment) {
		w.useLongLivedTokens(t)
		require.Eventually(t, func() bool {
			for _, left := range w.gatewayTokens(t) {
				if left > time.Minute {
					return true
				}
			}
			return false
		}, 2*patience, 250*time.Millisecond)
	}
	return v
}

// quotaExceeded limits the rate of the mount with the keys, so that Vault responds 429.
func quotaExceeded(t *testing.T) *vaultFault {
	t.Helper()
	return &vaultFault{
		partial: true, // a few look-ups are within the quota
		fail: func(w *vaultEnvironment) {
			_, err := w.vault.Client(t).Logical().WriteWithContext(t.Context(), "sys/quotas/rate-limit/keys",
				map[string]any{"path": "kv/", "rate": 1, "interval": "1h"})
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				_, err := w.vault.Client(t).KVv2("kv").Get(t.Context(), "gateway/keys/nothing")
				response := (*api.ResponseError)(nil)
				return errors.As(err, &response) && response.StatusCode == http.StatusTooManyRequests
			}, patience, 10*time.Millisecond)
		},
		restore: func(w *vaultEnvironment) {
			_, err := w.vault.Client(t).Logical().DeleteWithContext(t.Context(), "sys/quotas/rate-limit/keys")
			require.NoError(t, err)
		},
	}
}

func TestFaultVault(t *testing.T) {
	t.Parallel()
	between := func(fail, restore func(*vaulttest.Server, testing.TB)) func(*testing.T) *vaultFault {
		return func(t *testing.T) *vaultFault {
			t.Helper()
			return &vaultFault{
				options: vaulttest.Options{Persistent: true},
				fail:    func(w *vaultEnvironment) { fail(w.vault, t) },
				restore: func(w *vaultEnvironment) { restore(w.vault, t) },
			}
		}
	}
	for name, fault := range map[string]func(*testing.T) *vaultFault{
		"killed":  between((*vaulttest.Server).Kill, (*vaulttest.Server).Restart),
		"stopped": between((*vaulttest.Server).Pause, (*vaulttest.Server).Resume),
		"sealed":  between((*vaulttest.Server).Seal, (*vaulttest.Server).Unseal),
		// The gateway's node redirects to the node that takes over.
		"standby": func(t *testing.T) *vaultFault {
			t.Helper()
			var other *api.Client
			return &vaultFault{
				options: vaulttest.Options{Standby: true}, partial: true,
				fail:    func(w *vaultEnvironment) { other = w.stepDown(t) },
				restore: func(*vaultEnvironment) { requireStandby(t, other, false) },
			}
		},
		"standby without an active node": standbyOnly,
		"token revoked":                  tokensRevoked,
		"token's maximum reached":        tokensExpire,
		"secret ID expired":              secretIDExpires,
		"policy denied": func(t *testing.T) *vaultFault {
			t.Helper()
			policy := func(rules string) func(*vaultEnvironment) {
				return func(w *vaultEnvironment) {
					require.NoError(t, w.vault.Client(t).Sys().PutPolicyWithContext(t.Context(), "gateway", rules))
				}
			}
			return &vaultFault{fail: policy(`path "kv/data/elsewhere/*" { capabilities = ["read"] }`), restore: policy(vaulttest.ReadPolicy)}
		},
		"too many requests": quotaExceeded,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testVaultOutage(t, chaosScale(t), fault(t))
		})
	}
}

// The documented worst case: a gateway without Vault and without notifications of revocations uses known keys until stale_if_error,
// and no longer.
func TestFaultVaultOutageLongerThanStaleIfError(t *testing.T) {
	t.Parallel()
	c := chaosScale(t)
	const staleIfError = 10 * time.Second
	w := newVaultLoadEnvironment(t, &vaultFault{options: vaulttest.Options{Persistent: true}})
	g := w.direct(t, c, fmt.Sprintf("cache {\n\t\t\tttl 1s\n\t\t\tstale_if_error %s\n\t\t\t%s\n\t\t}", staleIfError, longVaultTimeout))
	known, greedy := w.addKeys(t, 2*c.rate, 5), w.addKeys(t, 1, 1)
	for _, k := range slices.Concat(known, greedy) {
		requireServed(t, g, k.Caller, 1)
	}
	l := load.Start(t, load.Options{
		Gateways: []*gatewaytest.Gateway{g}, Callers: known, Rate: c.rate, Targets: signedTargets(),
		// from one client IP, they would exceed its unverified limit
		Addresses: len(known),
		Hide:      w.hidden(),
		Allow: func(s *load.Sample) bool {
			return s.Status == http.StatusOK && (s.Phase != "too long" || s.Ended != "too long") ||
				s.Status == http.StatusServiceUnavailable && (s.Phase != "before" || s.Ended != "before") ||
				s.Stream == "greedy" && s.Code == "RATE_LIMITED"
		},
	})
	endGreedy := l.Also("greedy", greedy, 20)
	l.Run(c.before)
	l.Phase("outage")
	w.vault.Kill(t)
	killed := time.Now()
	l.Run(staleIfError / 2)
	endGreedy() // its rejected requests would count against a client IP that it shares
	l.Run(staleIfError / 2)
	last := time.Time{}
	for _, s := range l.Report().Some(func(s *load.Sample) bool { return s.Status == http.StatusOK && s.Phase == "outage" }) {
		if s.Done.After(last) {
			last = s.Done
		}
	}
	require.Positive(t, g.Metric(t, "gatehouse_credential_events_total", `event="stale"`))
	l.Phase("too long")
	l.Run(c.before)
	l.Phase("back")
	w.vault.Restart(t)
	restored := time.Now()
	requireReady(t, g)
	waitForStatus(t, http.StatusOK, known[0].Caller, g)
	took := time.Since(restored)
	report := l.Stop()
	require.Zero(t, report.OverLimit())
	report.Figure(t, "stale_if_error="+staleIfError.String(), fmt.Sprintf("last_served_after=%s", last.Sub(killed).Round(time.Millisecond)),
		fmt.Sprintf("healthy_after=%s", took.Round(time.Millisecond)))
}
