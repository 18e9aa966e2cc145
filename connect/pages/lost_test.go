package pages_test

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/pages"
	"github.com/gatehouse-gateway/gatehouse/internal/test/netfault"
)

// Each reply of Redis is lost in turn. Each change that a page confirms must be made and audited exactly once.
func TestLostRedisReplyDoesNotChangeAnyPage(t *testing.T) {
	t.Parallel()
	lossy := netfault.NewRedisProxy(t, shared.Options().Addrs[0])
	client := redis.NewClient(&redis.Options{Addr: lossy.Addr})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	for n, loseReply := range netfault.LoseEach(t, lossy) {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			w := withKeys(t, func(o *pages.Options) {
				log, err := audit.New(audit.Options{Redis: client, Prefix: o.Prefix, Log: o.Log})
				require.NoError(t, err)
				o.Redis, o.Audit = client, log
			})
			b := w.browser()
			lose := func(what string, status int, f func() *page) (p *page) {
				t.Helper()
				loseReply(func() error { p = f(); return nil })
				require.Equal(t, status, p.StatusCode, "%s: %s", what, p.body)
				return p
			}
			entry := func(count int, action string) {
				t.Helper()
				got := w.entries(owner.BusinessID)
				require.Len(t, got, count)
				require.Equal(t, action, got[0].Action)
				require.Equal(t, audit.OutcomeOK, got[0].Outcome)
			}
			lose("a wrong password", http.StatusForbidden, func() *page { return b.trySignIn(ownerEmail, "guess") })
			attempts, err := w.redis.ZCard(t.Context(), w.prefix+"sign-in:account:"+pages.AccountDigest(ownerEmail)).Result()
			require.NoError(t, err)
			require.Equal(t, int64(1), attempts, "counted once")
			lose("sign in", http.StatusSeeOther, func() *page { return b.trySignIn(ownerEmail, ownerPassword) })
			entry(1, audit.SessionStarted)
			attempts, err = w.redis.ZCard(t.Context(), w.prefix+"sign-in:account:"+pages.AccountDigest(ownerEmail)).Result()
			require.NoError(t, err)
			require.Equal(t, int64(1), attempts, "and reset once")

			form := b.keyForm("issue", "")
			issued := lose("issue", http.StatusOK, func() *page { return b.post(pages.KeysPath, form) })
			require.Len(t, w.keys.all(), 3)
			require.Contains(t, issued.body, w.keys.all()[2].private)
			entry(2, audit.KeyIssued)
			form = b.keyForm("rotate", "pk_live_saltbush")
			rotated := lose("rotate", http.StatusOK, func() *page { return b.post(pages.KeysPath, form) })
			require.Contains(t, rotated.body, w.keys.all()[0].private)
			entry(3, audit.KeyRotated)
			form = b.keyForm("revoke", "pk_live_saltbush")
			lose("revoke", http.StatusSeeOther, func() *page { return b.post(pages.KeysPath, form) })
			require.Len(t, w.keys.all(), 2)
			entry(4, audit.KeyRevoked)

			for i, where := range []string{"here", "everywhere"} {
				lose("sign out "+where, http.StatusSeeOther, func() *page { return b.signOut(where) })
				require.False(t, b.signedIn())
				entry(5+2*i, audit.SessionEnded)
				assert.Equal(t, http.StatusSeeOther, b.trySignIn(ownerEmail, ownerPassword).StatusCode)
			}
			for _, path := range []string{pages.SignOutPath, pages.KeysPath, pages.ActivityPath} {
				lose(path, http.StatusOK, func() *page { return b.get(path) })
			}
			pending, err := w.redis.HLen(t.Context(), fmt.Sprintf("%saudit:{%s}:pending", w.prefix, owner.BusinessID)).Result()
			require.NoError(t, err)
			assert.Zero(t, pending)
		})
	}
}
