package pages_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/pages"
)

// connected returns a world with connections of two businesses.
func connected(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	now := w.clock.now()
	w.oauth.grants = []oauth.Grant{
		grant(t, "gr_1", owner, "claude", "mcp:read contacts:write", now.Add(-48*time.Hour), now.Add(-3*time.Hour)),
		grant(t, "gr_2", member, "cursor", "contacts:read", now.Add(-time.Hour), now.Add(-time.Hour)),
		grant(t, "gr_9", rival, "chatgpt", "mcp:use", now.Add(-time.Hour), now),
	}
	return w
}

func TestConnectedAppsShowsScopes(t *testing.T) {
	t.Parallel()
	w := connected(t)
	created := w.oauth.grants[0].CreatedAt.In(owner.Location()).Format("2 January 2006, 15:04 MST")
	p := w.signIn(ownerEmail).get(pages.ConnectionsPath).requires(http.StatusOK,
		"claude claude.example Change what it may do (claude, connected "+created+") Disconnect (claude, connected "+created+") Connected "+created+" by Ada Okafor Last used 3 hours ago Can see Business profile, Contacts,",
		"Can change Add, change and delete contacts",
		"cursor cursor.example Change what it may do (cursor, connected ",
		"by Ben Ruiz Last used Never Can see Contacts Can change Nothing",
		w.url+"/mcp",
	)
	p.lacks("chatgpt") // another business's
	w.oauth.grants = nil
	w.signIn(ownerEmail).get(pages.ConnectionsPath).requires(http.StatusOK, "Nothing is connected yet")
}

func TestOwnerDisconnectsAnApp(t *testing.T) {
	t.Parallel()
	w := connected(t)
	b := w.signIn(ownerEmail)
	p := b.get(pages.ConnectionsPath)
	require.Contains(t, p.body, `href="/settings/connected-apps?revoke=gr_1"`)
	p = b.get(pages.ConnectionsPath+"?revoke=gr_1").requires(http.StatusOK, "Disconnect claude ? The next request with this connection will be rejected.")
	require.Len(t, w.oauth.grants, 3, "looking changes nothing")

	form := p.form(pages.ConnectionsPath)
	p = b.post(pages.ConnectionsPath, form)
	require.Equal(t, pages.ConnectionsPath, p.Header.Get("Location"))
	b.follow(p).requires(http.StatusOK, "Disconnected. If the app is still listed below, it has another connection.").lacks("claude")
	require.Len(t, w.oauth.grants, 2)
	b.follow(b.post(pages.ConnectionsPath, form)).requires(http.StatusOK, "This app is not connected. It may already have been disconnected.")
	require.Equal(t, http.StatusSeeOther, b.get(pages.ConnectionsPath+"?revoke=gr_1").StatusCode)
}

func TestDisconnectingWithoutReplyIsNotReportedAsFailed(t *testing.T) {
	t.Parallel()
	w := connected(t)
	b := w.signIn(ownerEmail)
	form := b.get(pages.ConnectionsPath + "?revoke=gr_1").form(pages.ConnectionsPath)
	w.oauth.lost = true
	b.post(pages.ConnectionsPath, form).
		requires(http.StatusServiceUnavailable, "This change could not be confirmed", "Check Connected apps in a moment.").
		lacks("Nothing was changed", "made up")
	b.get(pages.ConnectionsPath).requires(http.StatusOK).lacks("claude")
}

func TestConnectionOfAnotherBusinessIsInaccessible(t *testing.T) {
	t.Parallel()
	w := connected(t)
	b := w.signIn(ownerEmail)
	form := b.get(pages.ConnectionsPath + "?revoke=gr_1").form(pages.ConnectionsPath)
	for _, id := range []string{"gr_9", "", "gr_nobody", "../gr_9", "gr_1 gr_9", strings.Repeat("g", 300)} {
		form.Set("connection", id)
		b.follow(b.post(pages.ConnectionsPath, form)).requires(http.StatusOK, "This app is not connected. It may already have been disconnected.").lacks("chatgpt")
		b.follow(b.get(pages.ConnectionsPath + "?revoke=" + url.QueryEscape(id))).lacks("chatgpt")
	}
	require.Len(t, w.oauth.grants, 3)
}

func TestMemberCannotDisconnectApps(t *testing.T) {
	t.Parallel()
	w := connected(t)
	b := w.signIn(memberEmail)
	p := b.get(pages.ConnectionsPath).requires(http.StatusOK, "claude", "Only an owner of the business can connect, change or disconnect apps.")
	require.NotContains(t, p.body, "?revoke=")
	require.Equal(t, http.StatusForbidden, b.get(pages.ConnectionsPath+"?revoke=gr_1").StatusCode)
	form := p.form(pages.SignOutPath)
	form.Set("connection", "gr_1")
	assert.Equal(t, http.StatusForbidden, b.post(pages.ConnectionsPath, form).StatusCode)
	require.Zero(t, w.oauth.refused)
	form.Set("csrf", b.token("connections"))
	b.post(pages.ConnectionsPath, form).requires(http.StatusForbidden, "Only an owner can change and disconnect apps")
	require.Equal(t, 1, w.oauth.refused, "the authorization server records it")
	require.Len(t, w.oauth.grants, 3)
}

func TestPrivateKeyIsShownOnceAndNotCached(t *testing.T) {
	t.Parallel()
	w := withKeys(t)
	b := w.signIn(ownerEmail)
	form := b.keyForm("issue", "")
	require.Equal(t, "live", form.Get("kind"))
	p := b.post(pages.KeysPath, form).requires(http.StatusOK)
	all := w.keys.all()
	require.Len(t, all, 3)
	issued := all[2]
	require.Equal(t, owner.BusinessID, issued.business)
	require.Equal(t, owner.ID, issued.account)
	require.Contains(t, p.body, issued.private)
	require.Contains(t, p.body, issued.PublicKey)
	require.Contains(t, p.text(), "It is shown only once")
	require.Equal(t, "no-store", p.Header.Get("Cache-Control"))
	require.Empty(t, p.Header.Get("ETag"))
	require.Empty(t, p.Header.Get("Location"), "it is in no address")

	for _, path := range []string{pages.KeysPath, pages.ActivityPath, pages.KeysPath + "?rotate=" + issued.PublicKey} {
		assert.NotContains(t, b.get(path).body, issued.private)
	}
	for _, line := range w.logs.All() {
		assert.NotContains(t, fmt.Sprint(line.Message, line.ContextMap()), issued.private)
	}
	keys, err := w.redis.Keys(t.Context(), "*"+w.prefix+"*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		dump, err := w.redis.Dump(t.Context(), key).Result()
		require.NoError(t, err)
		assert.NotContains(t, dump, issued.private)
	}
	got := w.actions(owner.BusinessID)[0]
	require.Equal(t, audit.KeyIssued, got.Action)
	require.Equal(t, issued.PublicKey, got.Target)

	// Reloading the page sends the form again.
	p = b.post(pages.KeysPath, form).requires(http.StatusConflict)
	require.NotContains(t, p.body, issued.private)
	require.Contains(t, p.text(), "Already done")
	require.Len(t, w.keys.all(), 3, "no second key")

	form = b.keyForm("issue", "")
	form.Set("kind", "test")
	require.Contains(t, b.post(pages.KeysPath, form).body, "pk_test_0000")
}

func TestKeyRotationUsesTheChosenGrace(t *testing.T) {
	t.Parallel()
	for value, length := range map[string]time.Duration{"1h": time.Hour, "24h": 24 * time.Hour, "168h": 168 * time.Hour, "0": 0} {
		t.Run(value, func(t *testing.T) {
			t.Parallel()
			w := withKeys(t)
			b := w.signIn(ownerEmail)
			form := b.keyForm("rotate", "pk_live_saltbush")
			require.Equal(t, "24h", form.Get("grace"), "the default choice")
			form.Set("grace", value)
			p := b.post(pages.KeysPath, form).requires(http.StatusOK)
			key := w.keys.all()[0]
			require.Contains(t, p.body, key.private)
			require.NotEqual(t, "sk_old", key.private)
			require.Equal(t, "no-store", p.Header.Get("Cache-Control"))
			got := w.actions(owner.BusinessID)[0]
			require.Equal(t, audit.KeyRotated, got.Action)
			if length == 0 {
				p.requires(http.StatusOK, "The old private key no longer works.")
				require.Equal(t, "The old private key stopped working immediately", got.Detail)
				return
			}
			until := key.PreviousUntil.In(owner.Location()).Format("2 January 2006, 15:04 MST")
			require.WithinDuration(t, time.Now().Add(length), key.PreviousUntil, time.Minute)
			require.Contains(t, p.text(), "The old private key works until "+until)
			require.Equal(t, "The old private key works until "+until, got.Detail)
			require.Contains(t, b.get(pages.KeysPath).text(), "Rotated. The old private key works until "+until)
			w.clock.advance(length)
			require.NotContains(t, w.signIn(ownerEmail).get(pages.KeysPath).text(), "Rotated.")
		})
	}
}

// A double click on "Rotate key" loses the page with the new private key. What production uses keeps working all the same.
func TestKeyThatNobodyHasSeenIsReplacedDuringGrace(t *testing.T) {
	t.Parallel()
	w := withKeys(t)
	b := w.signIn(ownerEmail)
	lost := b.keyForm("rotate", "pk_live_saltbush")
	b.post(pages.KeysPath, lost).requires(http.StatusOK)
	unseen := w.keys.all()[0]
	b.post(pages.KeysPath, lost).requires(http.StatusConflict, "If you did not see the newest one, rotate the key again. If the one before still works, replace only the newest one.")

	p := b.get(pages.KeysPath+"?rotate=pk_live_saltbush").requires(http.StatusOK, "This key was rotated recently", "Only the newest one", "Both")
	p.lacks("For 1 hour", "Not at all")
	form := p.form(pages.KeysPath)
	require.Equal(t, "keep", form.Get("grace"), "what is preselected ends nothing that is in use")
	until := unseen.PreviousUntil.In(owner.Location()).Format("2 January 2006, 15:04 MST")
	b.post(pages.KeysPath, form).requires(http.StatusOK, "Your new private key", "The newest private key was replaced and stopped working immediately; the one before works until "+until)
	require.Equal(t, "The newest private key was replaced and stopped working immediately; the one before works until "+until, w.actions(owner.BusinessID)[0].Detail)
	replaced := w.keys.all()[0]
	require.NotEqual(t, unseen.private, replaced.private)
	require.Equal(t, unseen.PreviousUntil, replaced.PreviousUntil)

	form = b.keyForm("rotate", "pk_live_saltbush")
	form.Set("grace", "0")
	b.post(pages.KeysPath, form).requires(http.StatusOK, "The old private key no longer works.")
	require.True(t, w.keys.all()[0].PreviousUntil.IsZero())
}

func TestRotationFormOfAnotherStateChangesNothing(t *testing.T) {
	t.Parallel()
	w := withKeys(t)
	b := w.signIn(ownerEmail)
	form := b.keyForm("rotate", "pk_live_saltbush")
	form.Set("grace", "keep")
	b.post(pages.KeysPath, form).requires(http.StatusConflict, "or the private key before the newest one has stopped working.")
	w.keys.keys[0].PreviousUntil = w.clock.now().Add(time.Hour)
	form.Set("grace", "24h")
	b.post(pages.KeysPath, form).requires(http.StatusConflict, "Already done")
	w.unchanged()
	require.Empty(t, w.actions(owner.BusinessID))
}

func TestKeyIsRevokedAfterConfirmation(t *testing.T) {
	t.Parallel()
	w := withKeys(t)
	b := w.signIn(ownerEmail)
	form := b.keyForm("revoke", "pk_live_saltbush")
	require.Len(t, w.keys.all(), 2, "looking changes nothing")
	p := b.follow(b.post(pages.KeysPath, form))
	require.Contains(t, p.text(), "The key is revoked.")
	require.Len(t, w.keys.all(), 1)
	require.Equal(t, audit.KeyRevoked, w.actions(owner.BusinessID)[0].Action)
	b.follow(b.post(pages.KeysPath, form)).requires(http.StatusOK, "The key is revoked.")
	require.Len(t, w.actions(owner.BusinessID), 1, "by the first of the two")
	form.Set("key", "pk_live_never")
	b.follow(b.post(pages.KeysPath, form)).requires(http.StatusOK, "Key not found. It may already have been revoked.")
	assert.Equal(t, http.StatusNotFound, b.get(pages.KeysPath+"?revoke=pk_live_saltbush").StatusCode)
	assert.Contains(t, b.get(pages.KeysPath).text(), "Your business has no keys yet.")
}

func TestKeyOfAnotherBusinessIsInaccessible(t *testing.T) {
	t.Parallel()
	w := withKeys(t)
	b := w.signIn(ownerEmail)
	require.NotContains(t, b.get(pages.KeysPath).body, "pk_test_kestrel")
	for _, action := range []string{"rotate", "revoke"} {
		require.Equal(t, http.StatusNotFound, b.get(pages.KeysPath+"?"+action+"=pk_test_kestrel").StatusCode)
		form := b.keyForm(action, "pk_live_saltbush")
		form.Set("key", "pk_test_kestrel")
		p := b.post(pages.KeysPath, form)
		assert.Contains(t, []int{http.StatusNotFound, http.StatusSeeOther}, p.StatusCode)
		assert.NotContains(t, p.body, "sk_")
	}
	w.unchanged()
	require.Empty(t, w.actions(rival.BusinessID))
}

func TestMemberCannotUseKeysAndActivity(t *testing.T) {
	t.Parallel()
	w := withKeys(t)
	ownerForm := w.signIn(ownerEmail).keyForm("issue", "")
	b := w.signIn(memberEmail)
	for _, path := range []string{pages.KeysPath, pages.KeysPath + "?rotate=pk_live_saltbush", pages.ActivityPath} {
		b.get(path).requires(http.StatusForbidden, "You are signed in as Ben Ruiz, a member of Saltbush Plumbing.").lacks("pk_live_saltbush")
	}
	own := b.get(pages.ConnectionsPath).form(pages.SignOutPath)
	for _, action := range []string{"issue", "rotate", "revoke"} {
		for _, token := range []string{ownerForm.Get("csrf"), own.Get("csrf")} {
			form := url.Values{"csrf": {token}, "action": {action}, "key": {"pk_live_saltbush"}, "grace": {"0"}}
			assert.Equal(t, http.StatusForbidden, b.post(pages.KeysPath, form).StatusCode)
		}
	}
	require.Len(t, w.keys.all(), 2)
	assert.NotContains(t, b.get(pages.ConnectionsPath).body, pages.KeysPath, "nor a link to it")
}

func TestCrossSiteChangesAreRejected(t *testing.T) {
	t.Parallel()
	w := withKeys(t)
	w.oauth.grants = []oauth.Grant{grant(t, "gr_1", owner, "claude", "mcp:read", w.clock.now(), w.clock.now())}
	b, attacker := w.signIn(ownerEmail), w.signIn(rivalEmail)
	otherForm := b.get(pages.ConnectionsPath).form(pages.SignOutPath).Get("csrf")
	for _, token := range []string{"", "x", attacker.keyForm("issue", "").Get("csrf"), attacker.get(pages.ConnectionsPath).form(pages.SignOutPath).Get("csrf"), otherForm} {
		for _, action := range []string{"issue", "rotate", "revoke"} {
			form := url.Values{"csrf": {token}, "action": {action}, "key": {"pk_live_saltbush"}, "grace": {"0"}, "kind": {"live"}}
			b.post(pages.KeysPath, form).requires(http.StatusForbidden)
		}
		b.post(pages.ConnectionsPath, url.Values{"connection": {"gr_1"}, "csrf": {token}}).requires(http.StatusForbidden)
		if token != otherForm {
			b.post(pages.SignOutPath, url.Values{"csrf": {token}}).requires(http.StatusForbidden)
		}
	}
	good := b.keyForm("revoke", "pk_live_saltbush")
	b.do(http.MethodPost, pages.KeysPath, good, http.Header{"Origin": {"https://evil.example"}, "Sec-Fetch-Site": {"cross-site"}}).
		requires(http.StatusForbidden)
	w.unchanged()
	require.Len(t, w.oauth.grants, 1)
	assert.True(t, b.signedIn())
}

func TestInvalidKeyFormsChangeNothing(t *testing.T) {
	t.Parallel()
	w := withKeys(t)
	b := w.signIn(ownerEmail)
	for _, test := range []struct {
		field  string
		values []string
		status int
	}{
		{"action", []string{"steal", ""}, http.StatusBadRequest},
		{"grace", []string{"", "8760h", "-1h"}, http.StatusBadRequest},
		{"version", []string{""}, http.StatusBadRequest},
		{"key", []string{"", "pk_live_nobody", "../x", strings.Repeat("k", 5000), "pk_live_saltbush\x00"}, http.StatusNotFound},
	} {
		for _, value := range test.values {
			form := b.keyForm("rotate", "pk_live_saltbush")
			form.Set(test.field, value)
			assert.Equal(t, test.status, b.post(pages.KeysPath, form).StatusCode, "%s=%s", test.field, value)
		}
	}
	w.unchanged()
}

func TestKeyChangesAreRateLimited(t *testing.T) {
	t.Parallel()
	w := withKeys(t)
	b := w.signIn(ownerEmail)
	for range 20 {
		assert.Equal(t, http.StatusOK, b.post(pages.KeysPath, b.keyForm("issue", "")).StatusCode)
	}
	p := b.post(pages.KeysPath, b.keyForm("issue", "")).requires(http.StatusTooManyRequests)
	require.NotEmpty(t, p.Header.Get("Retry-After"))
	require.Len(t, w.keys.all(), 22)
}

func TestNoKeysPageWithoutKeyStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *pages.Options) { o.Keys = nil })
	b := w.signIn(ownerEmail)
	assert.Equal(t, http.StatusNotFound, b.get(pages.KeysPath).StatusCode)
	assert.NotContains(t, b.get(pages.ConnectionsPath).body, pages.KeysPath)
}

func TestPrivateKeyIsRedactedInLogs(t *testing.T) {
	t.Parallel()
	k := pages.IssuedKey{PrivateKey: "sk_live_secret"}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		assert.NotContains(t, fmt.Sprintf(format, k), "secret")
		assert.NotContains(t, fmt.Sprintf(format, k.PrivateKey), "secret")
	}
	text, err := k.PrivateKey.MarshalText()
	require.NoError(t, err)
	assert.Equal(t, "[redacted]", string(text))
	assert.Equal(t, "sk_live_secret", k.PrivateKey.Reveal())
}

func TestActivityPageDescribesEntries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	for _, e := range []audit.Entry{
		{Action: audit.ConnectionApproved, ClientName: "Claude", Target: "claude.ai", Detail: "mcp:read contacts:write automations:run"},
		{Action: audit.ConnectionApproved, ClientName: "Narrow", Target: "narrow.example", Detail: "contacts:read sales:read"},
		{Action: audit.ConnectionStarted, ClientName: "Claude"},
		{Action: audit.ConnectionDenied, ClientName: "Nosy", Outcome: audit.OutcomeDenied},
		{Action: audit.ConnectionRevoked, ClientName: "Old"},
		{Action: audit.KeyIssued, Target: "pk_live_1"},
		{Action: audit.KeyRotated, Target: "pk_live_1"},
		{Action: audit.KeyRevoked, Target: "pk_live_1"},
		{Action: audit.ToolCalled, ClientName: "Claude", Target: "contacts_update", Outcome: audit.OutcomeFailed, Detail: "<b>No</b>"},
		{Action: audit.ToolCalled, ClientName: "Nosy", Target: "contacts_create", Outcome: audit.OutcomeDenied, Detail: "INSUFFICIENT_SCOPE"},
		{Action: audit.ToolCalled, ClientName: "My Assistant", Target: "contacts_delete", Detail: "contact 7", Sentence: "Deleted the contact Rufus Colfax"},
		{Action: audit.ToolCalled, ClientName: "Ada Lovelace declined. Support", Target: "contacts_update", Sentence: "Changed the contact \u05d0\u05d1 Ek"},
		{Action: audit.SessionEnded},
	} {
		e.BusinessID, e.AccountName = owner.BusinessID, "Ada Okafor"
		require.NoError(t, w.audit.Record(ctx, e))
	}
	require.NoError(t, w.audit.Record(ctx, audit.Entry{Action: audit.ConnectionRevoked, BusinessID: owner.BusinessID, ClientName: "Twin", Detail: "The authorization code was reused"}))
	require.NoError(t, w.audit.Record(ctx, audit.Entry{Action: audit.ConnectionStarted, BusinessID: owner.BusinessID, ClientName: "Hal", AccountID: member.ID}))
	require.NoError(t, w.audit.Record(ctx, audit.Entry{Action: audit.KeyIssued, BusinessID: rival.BusinessID, Target: "pk_rival"}))
	entries := w.entries(owner.BusinessID)
	at := entries[len(entries)-1].Time.In(owner.Location())
	require.Equal(t, "Pacific/Kiritimati", at.Location().String())
	p := w.signIn(ownerEmail).get(pages.ActivityPath).requires(http.StatusOK,
		at.Format("2 January 2006"), at.Format("15:04")+" Connected an app Claude · claude.ai · Ada Okafor May see everything; may change Contacts; may run Automations",
		"Times are in the time zone Pacific/Kiritimati", "Deleted the contact Rufus Colfax through My Assistant · Ada Okafor",
		"May see Contacts and Invoices, estimates and jobs", "Issued a key pk_live_1 · Ada Okafor", "Rotated a key", "Revoked a key",
		"An app tried to make a change Failed Claude · contacts_update · Ada Okafor <b>No</b>", "Disconnected an app Old", "Signed in",
		"An app tried to make a change Denied Nosy · contacts_create · Ada Okafor It may not do this", "A connection ended Twin The authorization code was reused",
		"The app started using its connection Hal · "+member.Name, "Declined to connect an app Nosy", "The app started using its connection Claude", "Signed out",
	).lacks("pk_rival", "<b>")
	require.Contains(t, p.body, `<time datetime="`+at.Format(time.DateOnly)+`">`, "the day of the business, also where clocks change at midnight")
	// A client's name is not the subject of a sentence, and neither it nor that of a record changes the direction of what is around.
	require.Contains(t, p.body, "<strong><bdi>Changed the contact \u05d0\u05d1 Ek</bdi></strong>")
	require.Contains(t, p.body, "through <bdi>Ada Lovelace declined. Support</bdi> · <bdi>Ada Okafor</bdi>")
}

func TestActivityPageIsPaginated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.signIn(ownerEmail)
	for i := range 120 {
		require.NoError(t, w.audit.Record(t.Context(),
			audit.Entry{BusinessID: owner.BusinessID, Action: audit.ToolCalled, Target: fmt.Sprintf("tool-%03d.", i)}))
	}
	seen := 0
	path := pages.ActivityPath
	for n := 0; path != ""; n++ {
		require.Less(t, n, 5)
		p := b.get(path).requires(http.StatusOK)
		seen += strings.Count(p.body, "<code>tool-")
		path = ""
		if _, after, ok := strings.Cut(p.body, `href="`+pages.ActivityPath+`?before=`); ok {
			cursor, _, _ := strings.Cut(after, `"`)
			path = pages.ActivityPath + "?before=" + cursor
		}
	}
	require.Equal(t, 120, seen)

	p := b.get(pages.ActivityPath + "?show=sign-ins")
	assert.NotContains(t, p.body, "<code>tool-")
	assert.Contains(t, p.text(), "Signed in")
	assert.Contains(t, p.body, `<a href="/settings/activity?show=sign-ins" aria-current="true">Sign-ins</a>`)
	assert.Regexp(t, `href="/settings/activity\?before=[0-9.-]+&amp;show=changes"`, b.get(pages.ActivityPath+"?show=changes").body,
		"the next page is of the same kind")
	assert.Contains(t, b.get(pages.ActivityPath+"?show=keys").text(), "No such activity yet.")
	assert.Equal(t, pages.ActivityPath, b.get(pages.ActivityPath+"?show=secrets").Header.Get("Location"))
	assert.Equal(t, http.StatusSeeOther, b.get(pages.ActivityPath+"?before=x").StatusCode, "an invalid cursor redirects to the first page")
}

func TestKeyListShowsWhatTheOperatorHasSet(t *testing.T) {
	t.Parallel()
	w := withKeys(t)
	key := &w.keys.keys[0]
	key.Name, key.Limit, key.Resources, key.ExpiresAt = "Till <b>", 5, []string{"contacts", "jobs"}, w.clock.now().Add(time.Hour)
	b := w.signIn(ownerEmail)
	b.get(pages.KeysPath).requires(http.StatusOK, "Till <b>", "Up to 5 requests a minute.", "Only for contacts and jobs.", "Expires on").lacks("Expired")
	key.ExpiresAt = w.clock.now()
	b.get(pages.KeysPath).requires(http.StatusOK, "Expired on").lacks("Expires on")
}
