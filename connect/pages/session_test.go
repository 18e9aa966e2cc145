package pages_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/pages"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

func (b *browser) signedIn() bool {
	b.w.tb.Helper()
	p := b.get(pages.ConnectionsPath)
	if p.StatusCode == http.StatusOK {
		return true
	}
	require.Equal(b.w.tb, http.StatusSeeOther, p.StatusCode, p.body)
	require.Equal(b.w.tb, pages.SignInPath, p.Header.Get("Location"))
	return false
}

// sessionKeys returns the Redis keys of all sessions.
func (w *world) sessionKeys() []string {
	w.tb.Helper()
	keys, err := w.redis.Keys(w.tb.Context(), w.prefix+"session:*").Result()
	require.NoError(w.tb, err)
	return keys
}

func TestUseExtendsASession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.signIn(ownerEmail)
	keys := w.sessionKeys()
	require.Len(t, keys, 1)
	ctx := t.Context()
	require.NoError(t, w.redis.PExpire(ctx, keys[0], time.Minute).Err())
	require.True(t, b.signedIn())
	left, err := w.redis.PTTL(ctx, keys[0]).Result()
	require.NoError(t, err)
	assert.Greater(t, left, 50*time.Minute)
	assert.LessOrEqual(t, left, pages.DefaultSessionIdle)
}

func TestSessionEndsAtMaximumAge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.signIn(ownerEmail)
	w.clock.advance(pages.DefaultSessionMax - 10*time.Minute)
	require.True(t, b.signedIn())
	left, err := w.redis.PTTL(t.Context(), w.sessionKeys()[0]).Result()
	require.NoError(t, err)
	require.LessOrEqual(t, left, 10*time.Minute, "Redis forgets it at its end, too")
	w.clock.advance(10 * time.Minute)
	assert.False(t, b.signedIn())
	assert.Empty(t, w.sessionKeys())
}

func TestFormOfAnEndedSessionSaysThatNothingWasChanged(t *testing.T) {
	t.Parallel()
	w := withKeys(t)
	w.request("grq_1", "mcp:read")
	w.oauth.grants = []oauth.Grant{grant(t, "gr_1", owner, "claude", "mcp:read", w.clock.now(), w.clock.now())}
	b := w.signIn(ownerEmail)
	forms := map[string]url.Values{
		"disconnect": b.get(pages.ConnectionsPath + "?revoke=gr_1").form(pages.ConnectionsPath), "change": b.changeForm("gr_1"),
		"approve": b.decision("grq_1", "approve"),
	}
	maps.Copy(forms, keyForms(b))
	b.signOut("everywhere").requires(http.StatusSeeOther)
	b.get(pages.SignInPath)
	b.get(pages.ConnectionsPath).requires(http.StatusSeeOther)
	b.get(pages.SignInPath).requires(http.StatusOK).lacks("nothing was changed")
	for name, form := range forms {
		path := map[string]string{"disconnect": pages.ConnectionsPath, "change": pages.ConnectionsPath, "approve": pages.ApprovePath}[name]
		p := b.follow(b.post(cmp.Or(path, pages.KeysPath), form))
		p.requires(http.StatusOK, "Your session had ended, so nothing was changed. Sign in and try again.", "Password")
	}
	w.unchanged()
	require.Len(t, w.oauth.grants, 1)
	require.Empty(t, w.oauth.approved)
}

func TestSessionInALaterFormatIsNeitherUsedNorEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.signIn(ownerEmail)
	ctx, key := t.Context(), w.sessionKeys()[0]
	stored := w.redis.Get(ctx, key).Val()
	require.Contains(t, stored, `"format":1`)
	require.NoError(t, w.redis.Set(ctx, key, strings.Replace(stored, `"format":1`, `"format":2`, 1), time.Hour).Err())
	b.get(pages.ConnectionsPath).requires(http.StatusServiceUnavailable)
	require.NoError(t, w.redis.Set(ctx, key, stored, time.Hour).Err())
	require.True(t, b.signedIn())
}

func TestSessionIsValidAtItsIssuerOnly(t *testing.T) {
	t.Parallel()
	w, other := newWorld(t), newWorld(t) // on the same Redis, and with accounts of the same IDs
	b, elsewhere := w.signIn(ownerEmail), other.browser()
	elsewhere.setCookie("gatehouse_session", b.cookie("gatehouse_session"))
	assert.False(t, elsewhere.signedIn())
	elsewhere.get(pages.SignOutPath).requires(http.StatusSeeOther)
	assert.True(t, b.signedIn(), "the session has not ended")
	ctx, key := t.Context(), w.sessionKeys()[0]
	stored := w.redis.Get(ctx, key).Val()
	require.Contains(t, stored, `"issuer":"`+w.url+`"`)
	require.NoError(t, w.redis.Set(ctx, key, strings.Replace(stored, `"issuer":"`+w.url+`",`, "", 1), time.Hour).Err())
	assert.True(t, b.signedIn(), "a gateway of an earlier version has stored it")
}

func TestSignOutInvalidatesTheSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b, other := w.signIn(ownerEmail), w.signIn(ownerEmail)
	id := b.cookie("gatehouse_session")
	form := b.get(pages.ConnectionsPath).form(pages.SignOutPath)
	p := b.post(pages.SignOutPath, form)
	require.Equal(t, pages.SignInPath, p.Header.Get("Location"))
	require.Empty(t, b.cookie("gatehouse_session"))
	require.Equal(t, pages.SignInPath, b.post(pages.SignOutPath, form).Header.Get("Location"), "signing out twice is harmless")
	b.follow(p).requires(http.StatusOK, "You are signed out.")
	require.NotContains(t, b.get(pages.SignInPath).text(), "You are signed out.", "it is said once")

	thief := w.browser()
	thief.setCookie("gatehouse_session", id)
	assert.False(t, thief.signedIn())
	assert.True(t, other.signedIn(), "the session in another browser continues")
}

func TestSignOutEverywhereEndsAllSessions(t *testing.T) {
	t.Parallel()
	for name, outage := range map[string]bool{"accounts service up": false, "accounts service down": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			b, phone, colleague := w.signIn(ownerEmail), w.signIn(ownerEmail), w.signIn(memberEmail)
			w.accounts.SetDown(outage)
			b.follow(b.signOut("everywhere")).requires(http.StatusOK, "You are signed out, here and everywhere else.")
			w.accounts.SetDown(false)
			assert.False(t, b.signedIn())
			assert.False(t, phone.signedIn())
			require.True(t, colleague.signedIn())
			assert.Equal(t, audit.SessionEnded, w.entries(owner.BusinessID)[0].Action)
			assert.Equal(t, owner.ID, w.entries(owner.BusinessID)[0].AccountID)
			assert.True(t, w.signIn(ownerEmail).signedIn(), "signing in again works")
		})
	}
}

func TestSignOutEverywhereRemovesKnownDevices(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b, phone, colleague := w.signIn(ownerEmail), w.signIn(ownerEmail), w.signIn(memberEmail)
	w.browser().trySignIn(strings.ToUpper(ownerEmail), ownerPassword) // another spelling
	devices := func() []string {
		keys, err := w.redis.Keys(t.Context(), w.prefix+"devices:*").Result()
		require.NoError(t, err)
		return keys
	}
	require.Len(t, devices(), 2)
	w.accounts.SetDown(true)
	b.signOut("everywhere").requires(http.StatusSeeOther)
	w.accounts.SetDown(false)
	require.Len(t, devices(), 1, "the colleague's")
	for i := range 10 {
		assert.Equal(t, http.StatusForbidden, w.guess(i, ownerEmail))
	}
	sameDevice(phone).trySignIn(ownerEmail, ownerPassword).requires(http.StatusTooManyRequests)
	sameDevice(colleague).trySignIn(memberEmail, ownerPassword).requires(http.StatusSeeOther)
}

// failing fails a command on keys that contain a text.
type failing struct{ name, key string }

func (f *failing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *failing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (f *failing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if f.name != "" && cmd.Name() == f.name && strings.Contains(fmt.Sprint(cmd.Args()[1]), f.key) {
			cmd.SetErr(errors.New("made up"))
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

func TestFailedSignOutEverywhereCanBeRepeated(t *testing.T) {
	t.Parallel()
	for _, fault := range []failing{{"del", ":devices:"}, {"del", ":sessions:"}} {
		t.Run(fault.key, func(t *testing.T) {
			t.Parallel()
			f := &failing{}
			client := redis.NewClient(&redis.Options{Addr: shared.Options().Addrs[0]})
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			client.AddHook(f)
			w := newWorld(t, func(o *pages.Options) { o.Redis = client })
			b, phone := w.signIn(ownerEmail), w.signIn(ownerEmail)
			*f = fault
			b.signOut("everywhere").requires(http.StatusServiceUnavailable, "Sign out again in a moment.")
			*f = failing{}
			require.True(t, b.signedIn())
			b.signOut("everywhere").requires(http.StatusSeeOther)
			assert.False(t, phone.signedIn())
			devices, err := w.redis.Keys(t.Context(), w.prefix+"devices:*").Result()
			require.NoError(t, err)
			assert.Empty(t, devices)
		})
	}
}

func TestSigningOutAndRevokingWorkWhileRedisIsFull(t *testing.T) {
	t.Parallel()
	ctx, server := t.Context(), redistest.Start(t)
	w := newWorld(t, func(o *pages.Options) {
		o.Redis = server.Client(t)
		var err error
		o.Audit, err = audit.New(audit.Options{Redis: o.Redis, Prefix: o.Prefix, Log: o.Log})
		require.NoError(t, err)
	})
	w.keys.keys = []fakeKey{{Key: pages.Key{PublicKey: "pk_live_saltbush", Version: "v0", Active: true}, business: owner.BusinessID}}
	w.oauth.grants = []oauth.Grant{{ID: "gr_1", ClientName: "Assistant", BusinessID: owner.BusinessID, AccountID: owner.ID}}
	b, here, phone, colleague := w.signIn(ownerEmail), w.signIn(ownerEmail), w.signIn(ownerEmail), w.signIn(memberEmail)
	require.NoError(t, server.SetFull(ctx, true))
	b.follow(b.post(pages.KeysPath, b.keyForm("revoke", "pk_live_saltbush"))).requires(http.StatusOK, "The key is revoked.")
	assert.Empty(t, w.keys.all())
	form := b.get(pages.ConnectionsPath + "?revoke=gr_1").form(pages.ConnectionsPath)
	form.Set("connection", "gr_1")
	b.post(pages.ConnectionsPath, form).requires(http.StatusSeeOther)
	assert.Empty(t, w.oauth.grants)
	here.follow(here.signOut("here")).requires(http.StatusOK, "You are signed out.")
	assert.False(t, here.signedIn())
	require.True(t, phone.signedIn())
	b.follow(b.signOut("everywhere")).requires(http.StatusOK, "You are signed out, here and everywhere else.")
	assert.False(t, b.signedIn())
	assert.False(t, phone.signedIn())
	assert.True(t, colleague.signedIn())
	w.browser().trySignIn(ownerEmail, ownerPassword).requires(http.StatusServiceUnavailable)

	require.NoError(t, server.SetFull(ctx, false))
	assert.False(t, phone.signedIn())
	assert.True(t, w.signIn(ownerEmail).signedIn())
	assert.False(t, phone.signedIn(), "a later sign-in does not restore the session")
}

func TestSessionsWorkOnEveryRedis(t *testing.T) {
	t.Parallel()
	// a slow node must not be considered failed
	cluster := redistest.StartCluster(t)
	embedded := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { require.NoError(t, embedded.Close()) })
	for name, client := range map[string]redis.UniversalClient{"embedded": embedded, "cluster": cluster.Client(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(o *pages.Options) { o.Redis = client })
			b, phone := w.signIn(ownerEmail), w.signIn(ownerEmail)
			require.True(t, b.signedIn())
			require.Equal(t, http.StatusOK, b.post(pages.KeysPath, b.keyForm("issue", "")).StatusCode)
			b.signOut("everywhere").requires(http.StatusSeeOther)
			require.False(t, b.signedIn())
			require.False(t, phone.signedIn())
			for range 10 {
				assert.Equal(t, http.StatusForbidden, w.browser().trySignIn(memberEmail, "guess").StatusCode)
			}
			require.Equal(t, http.StatusTooManyRequests, w.browser().trySignIn(memberEmail, "guess").StatusCode)
		})
	}
}

func TestRoleChangeTakesEffectAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.signIn(ownerEmail)
	require.Equal(t, http.StatusOK, b.get(pages.KeysPath).StatusCode)
	form := b.get(pages.KeysPath).form(pages.KeysPath)
	demoted := owner
	demoted.Role = account.RoleMember
	w.accounts.Put(demoted)
	require.Equal(t, http.StatusForbidden, b.get(pages.KeysPath).StatusCode)
	require.Equal(t, http.StatusForbidden, b.post(pages.KeysPath, form).StatusCode, "nor with an earlier form")
	require.Empty(t, w.keys.all())
	w.accounts.Put(owner)
	require.Equal(t, http.StatusOK, b.get(pages.KeysPath).StatusCode)
}

func TestSessionEndsWithItsAccount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.signIn(ownerEmail)
	w.accounts.Remove(owner.ID)
	require.False(t, b.signedIn())
	w.accounts.Put(owner)
	require.False(t, b.signedIn(), "the session stays ended")

	b = w.signIn(ownerEmail)
	elsewhere := owner
	elsewhere.BusinessID, elsewhere.BusinessName = rival.BusinessID, rival.BusinessName
	w.accounts.Put(elsewhere)
	require.False(t, b.signedIn())
}

func TestOutageIs503WithRetryAfter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.signIn(ownerEmail)
	w.accounts.SetDown(true)
	p := b.get(pages.ActivityPath).requires(http.StatusServiceUnavailable, "This page is temporarily unavailable").lacks("made up")
	require.NotEmpty(t, p.Header.Get("Retry-After"))
	require.Contains(t, p.body, `href="`+pages.ActivityPath+`"`, "a link back to the page")
	w.accounts.SetDown(false)
	require.True(t, b.signedIn(), "an outage ends no session")

	closed := shared.Client(t)
	require.NoError(t, closed.Close())
	unavailable := newWorld(t, func(o *pages.Options) { o.Redis = closed })
	lost := unavailable.browser()
	require.Equal(t, http.StatusServiceUnavailable, lost.trySignIn(ownerEmail, ownerPassword).StatusCode)
	require.Zero(t, unavailable.accounts.SignIns(), "no password is checked without counting the attempt")
	lost.setCookie("gatehouse_session", strings.Repeat("A", 43))
	require.Equal(t, http.StatusServiceUnavailable, lost.get(pages.ConnectionsPath).StatusCode)
}

func TestRedisContainsNoCookieValue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.signIn(ownerEmail)
	ctx := t.Context()
	keys, err := w.redis.Keys(ctx, "*"+w.prefix+"*").Result()
	require.NoError(t, err)
	require.NotEmpty(t, keys)
	for _, cookie := range []string{"gatehouse_session", "gatehouse_visit", "gatehouse_device"} {
		value := b.cookie(cookie)
		require.NotEmpty(t, value, cookie)
		for _, key := range keys {
			require.NotContains(t, key, value)
			dump, err := w.redis.Dump(ctx, key).Result()
			require.NoError(t, err)
			assert.NotContains(t, dump, value)
		}
	}
	for _, key := range keys {
		left, err := w.redis.PTTL(ctx, key).Result()
		require.NoError(t, err)
		assert.Positive(t, left, "%s does not expire", key)
	}
}

func TestForgedCookieIsRejected(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.signIn(ownerEmail).cookie("gatehouse_session")
	for _, value := range []string{
		"", "x", id[:42], id + "A", strings.ToLower(id), strings.Repeat("A", 43), strings.Repeat("A", 4000), "../" + id[3:],
		"*" + id[1:],
	} {
		if value == id {
			continue
		}
		b := w.browser()
		b.setCookie("gatehouse_session", value)
		assert.False(t, b.signedIn(), value)
	}
	// Two cookies of the same name are ambiguous.
	valid, other := "gatehouse_session="+id, "gatehouse_session="+strings.Repeat("A", 43)
	for _, both := range []string{other + "; " + valid, valid + "; " + other} {
		w.browser().do(http.MethodGet, pages.ConnectionsPath, nil, http.Header{"Cookie": {both}}).requires(http.StatusSeeOther)
	}
}

func TestSessionsOnHTTPSStayOnHTTPSAndOnTheirHost(t *testing.T) {
	t.Parallel()
	const issuer = "https://api.example.com"
	w := newWorld(t, func(o *pages.Options) { o.OAuth.(*fakeOAuth).issuer = issuer })
	rec := httptest.NewRecorder()
	req := httptest.NewRequest(http.MethodGet, issuer+pages.SignInPath, http.NoBody)
	w.pages.Handler().ServeHTTP(rec, req)
	visit := rec.Result().Cookies()
	require.Len(t, visit, 1)
	assert.Equal(t, "max-age=31536000", rec.Header().Get("Strict-Transport-Security"), "browsers come back over https only")
	misdirected := httptest.NewRecorder()
	w.pages.Fail(misdirected, req, http.StatusMisdirectedRequest, "")
	assert.Empty(t, misdirected.Header().Get("Strict-Transport-Security"), "other hosts may be served without https, on other ports")
	form := (&page{tb: t, body: rec.Body.String()}).signInForm(ownerEmail, ownerPassword)
	req = httptest.NewRequest(http.MethodPost, issuer+pages.SignInPath, strings.NewReader(form.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Origin", issuer)
	req.AddCookie(visit[0])
	rec = httptest.NewRecorder()
	w.pages.Handler().ServeHTTP(rec, req)
	require.Equal(t, http.StatusSeeOther, rec.Code)
	cookies := slices.Concat(visit, rec.Result().Cookies())
	require.Len(t, cookies, 3)
	for _, c := range cookies {
		require.True(t, strings.HasPrefix(c.Name, "__Host-gatehouse_"), c.Name)
		require.True(t, c.Secure)
		require.True(t, c.HttpOnly)
		assert.Equal(t, http.SameSiteLaxMode, c.SameSite)
		assert.Equal(t, "/", c.Path)
		assert.Empty(t, c.Domain)
	}
	// The name without the prefix, which a subdomain could set, is ignored.
	req = httptest.NewRequest(http.MethodGet, issuer+pages.ConnectionsPath, http.NoBody)
	for _, c := range cookies {
		req.AddCookie(&http.Cookie{Name: strings.TrimPrefix(c.Name, "__Host-"), Value: c.Value})
	}
	rec = httptest.NewRecorder()
	w.pages.Handler().ServeHTTP(rec, req)
	require.Equal(t, http.StatusSeeOther, rec.Code)
}
