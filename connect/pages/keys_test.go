package pages_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/pages"
	"github.com/gatehouse-gateway/gatehouse/internal/test/netfault"
)

// keyForms returns the forms that change keys.
func keyForms(b *browser) map[string]url.Values {
	b.w.tb.Helper()
	return map[string]url.Values{
		"issue": b.keyForm("issue", ""), "rotate": b.keyForm("rotate", "pk_live_saltbush"), "revoke": b.keyForm("revoke", "pk_live_saltbush"),
	}
}

// requireDoneOnce requires that the form's change was made once, and that the form changes nothing when it is sent again.
func requireDoneOnce(t *testing.T, w *world, b *browser, action string, form url.Values) {
	t.Helper()
	before, entries := w.keys.all(), len(w.actions(owner.BusinessID))
	switch action {
	case "issue":
		require.Len(t, before, 3)
		b.post(pages.KeysPath, form).requires(http.StatusConflict, "issued the key "+before[2].PublicKey)
	case "rotate":
		require.Equal(t, "v1", before[0].Version)
		b.post(pages.KeysPath, form).requires(http.StatusConflict, "The key has been rotated since this form was opened")
	case "revoke":
		require.Len(t, before, 1)
		b.follow(b.post(pages.KeysPath, form)).requires(http.StatusOK, "The key is revoked.")
	}
	require.Equal(t, before, w.keys.all())
	require.Len(t, w.actions(owner.BusinessID), entries, "the repetition has no entry")
}

func TestFailedOrUnknownKeyChangeCanBeRepeated(t *testing.T) {
	t.Parallel()
	for action, unknown := range map[string]string{
		"issue":  "If pk_live_000000000000000000000001 is listed, it was issued; rotate it to get a private key.",
		"rotate": "Rotate the key again",
		"revoke": "Revoke the key again",
	} {
		t.Run(action+", outage", func(t *testing.T) {
			t.Parallel()
			w := withKeys(t)
			b := w.signIn(ownerEmail)
			form := keyForms(b)[action]
			w.keys.down = true
			b.post(pages.KeysPath, form).requires(http.StatusServiceUnavailable, "Nothing was changed.")
			require.Equal(t, audit.OutcomeFailed, w.actions(owner.BusinessID)[0].Outcome)
			b.get(pages.KeysPath).requires(http.StatusServiceUnavailable)

			w.keys.down = false
			b.follow(b.post(pages.KeysPath, form)).requires(http.StatusOK)
			require.Equal(t, audit.OutcomeOK, w.actions(owner.BusinessID)[0].Outcome)
			requireDoneOnce(t, w, b, action, form)
		})
		t.Run(action+", lost reply", func(t *testing.T) {
			t.Parallel()
			w := withKeys(t)
			b := w.signIn(ownerEmail)
			form := keyForms(b)[action]
			w.keys.lost = true
			// A private key that may not have been stored is not shown.
			b.post(pages.KeysPath, form).requires(http.StatusServiceUnavailable, "This change could not be confirmed", unknown).
				lacks("Nothing was changed", "sk_", "made up")
			require.Equal(t, audit.OutcomeUnknown, w.actions(owner.BusinessID)[0].Outcome)
			b.get(pages.ActivityPath).requires(http.StatusOK, "Outcome unknown")

			w.keys.lost = false
			requireDoneOnce(t, w, b, action, form)
		})
	}
}

func TestDeniedKeyChangesAreAudited(t *testing.T) {
	t.Parallel()
	for name, attempt := range map[string]struct {
		action, detail, shown string
		make                  func(*world) *page
	}{
		"by a member": {audit.KeyRevoked, "Not an owner", "", func(w *world) *page {
			form := w.signIn(ownerEmail).keyForm("revoke", "pk_live_saltbush")
			return w.signIn(memberEmail).post(pages.KeysPath, form)
		}},
		"beyond the bound": {audit.KeyIssued, "The business has reached the maximum number of keys", "Revoke one that you no longer use first.", func(w *world) *page {
			w.keys.most = 2
			b := w.signIn(ownerEmail)
			return b.post(pages.KeysPath, b.keyForm("issue", "")).requires(http.StatusConflict, "Error: API and integrations")
		}},
		"for an inactive account": {audit.KeyIssued, "The keys of the business are inactive", "your business's account is not active", func(w *world) *page {
			w.keys.inactive = true
			b := w.signIn(ownerEmail)
			return b.post(pages.KeysPath, b.keyForm("issue", "")).requires(http.StatusConflict, "See your keys")
		}},
		"of an inactive account": {audit.KeyRevoked, "The keys of the business are inactive", "your business's account is not active", func(w *world) *page {
			w.keys.inactive = true
			b := w.signIn(ownerEmail)
			return b.post(pages.KeysPath, b.keyForm("revoke", "pk_live_saltbush")).requires(http.StatusConflict, "See your keys")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := withKeys(t)
			before := len(w.keys.all())
			p := attempt.make(w)
			require.Contains(t, []int{http.StatusForbidden, http.StatusConflict}, p.StatusCode)
			require.Contains(t, p.text(), attempt.shown)
			require.Len(t, w.keys.all(), before)
			got := w.actions(owner.BusinessID)
			require.Len(t, got, 1)
			assert.Equal(t, attempt.action, got[0].Action)
			assert.Equal(t, audit.OutcomeDenied, got[0].Outcome)
			assert.Contains(t, got[0].Detail, attempt.detail)
		})
	}
}

// What members can do at will: denied attempts, and signing in and out. What owners did stays in the log, whatever its limit is.
func TestMemberCannotPushOutWhatOwnersDid(t *testing.T) {
	t.Parallel()
	w := withKeys(t, func(o *pages.Options) {
		var err error
		o.Audit, err = audit.New(audit.Options{Redis: o.Redis, Prefix: o.Prefix, Log: zap.NewNop(), MaxEntries: 10})
		require.NoError(t, err)
	})
	b := w.signIn(ownerEmail)
	b.post(pages.KeysPath, b.keyForm("issue", "")).requires(http.StatusOK)
	done, _, err := w.audit.List(t.Context(), owner.BusinessID, "", 1, audit.KeyIssued)
	require.NoError(t, err)
	require.Len(t, done, 1)
	member := w.signIn(memberEmail)
	for range 350 {
		require.Equal(t, http.StatusForbidden, member.post(pages.KeysPath, url.Values{"action": {"issue"}}).StatusCode)
	}
	var issued []audit.Entry
	for cursor, more := "", true; more; more = cursor != "" {
		var entries []audit.Entry
		entries, cursor, err = w.audit.List(t.Context(), owner.BusinessID, cursor, 100, audit.KeyIssued)
		require.NoError(t, err)
		issued = append(issued, entries...)
	}
	require.Contains(t, issued, done[0])
	require.Less(t, len(issued), 250, "Redis trims by nodes of a hundred entries")
}

func TestAuditOutagePreventsChanges(t *testing.T) {
	t.Parallel()
	lossy := netfault.NewRedisProxy(t, shared.Addr)
	w := withKeys(t, func(o *pages.Options) {
		client := redis.NewClient(&redis.Options{Addr: lossy.Addr, MaxRetries: -1})
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		log, err := audit.New(audit.Options{Redis: client, Prefix: o.Prefix, Log: o.Log})
		require.NoError(t, err)
		o.Audit = log
	})
	b := w.signIn(ownerEmail)
	forms := keyForms(b)
	lossy.LoseFrom(1)
	for _, form := range forms {
		b.post(pages.KeysPath, form).requires(http.StatusServiceUnavailable, "Nothing was changed.")
	}
	require.Len(t, w.keys.all(), 2)
	require.Equal(t, "sk_old", w.keys.all()[0].private)
	require.Equal(t, http.StatusServiceUnavailable, w.browser().trySignIn(ownerEmail, ownerPassword).StatusCode)
	b.signOut("here").requires(http.StatusServiceUnavailable)
	require.True(t, b.signedIn())
	lossy.Lose(0)
	require.Equal(t, http.StatusOK, b.post(pages.KeysPath, forms["issue"]).StatusCode, "the form is still valid")
}
