package pages_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/pages"
	"github.com/gatehouse-gateway/gatehouse/internal/test/accounttest"
)

func TestSignInStartsASession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.browser()
	p := b.trySignIn("  "+strings.ToUpper(ownerEmail)+" ", ownerPassword).requires(http.StatusSeeOther)
	require.Equal(t, pages.ConnectionsPath, p.Header.Get("Location"))
	b.follow(p).requires(http.StatusOK, "Saltbush Plumbing Ada Okafor , owner")

	require.Equal(t, pages.ConnectionsPath, b.get(pages.SignInPath).Header.Get("Location"), "signed in already")
	entries := w.entries(owner.BusinessID)
	require.Len(t, entries, 1)
	assert.Equal(t, audit.SessionStarted, entries[0].Action)
	assert.Equal(t, owner.ID, entries[0].AccountID)
	assert.Equal(t, "127.0.0.1", entries[0].Target)
}

// Pages name such an account by its address, but the audit log outlives it, and is in the process log, too.
func TestAuditLogHasNoAddressOfAnAccountWithoutAName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	nameless := owner
	nameless.Name = ""
	w.accounts.Put(nameless)
	b := w.browser()
	b.follow(b.trySignIn(ownerEmail, ownerPassword)).requires(http.StatusOK, ownerEmail)
	entries := w.entries(owner.BusinessID)
	require.Len(t, entries, 1)
	assert.Empty(t, entries[0].AccountName)
	assert.Equal(t, owner.ID, entries[0].AccountID)
	lines := w.logs.FilterMessage("audit").All()
	require.NotEmpty(t, lines)
	for _, line := range lines {
		assert.NotContains(t, fmt.Sprint(line.ContextMap()), "@")
	}
	b.get(pages.ActivityPath).requires(http.StatusOK, "Signed in 127.0.0.1 · "+ownerEmail).lacks(owner.ID)
}

func TestSignInErrorDoesNotRevealWhetherTheAccountExists(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := regexp.MustCompile(`name="csrf" value="[^"]*"`)
	same := func(p *page, email string) string {
		return strings.ReplaceAll(token.ReplaceAllString(p.body, ""), email, "…")
	}
	wrong := w.browser().trySignIn(ownerEmail, "not it")
	unknown := w.browser().trySignIn("nobody@saltbush.example", "not it")
	require.Equal(t, http.StatusForbidden, wrong.StatusCode)
	require.Equal(t, wrong.StatusCode, unknown.StatusCode)
	require.Equal(t, same(wrong, ownerEmail), same(unknown, "nobody@saltbush.example"))
	require.Contains(t, wrong.text(), "The email address or password is incorrect.")
	require.NotContains(t, wrong.body, "not it", "the response does not contain the password")
	require.Equal(t, 2, w.accounts.SignIns(), "both are checked by the accounts service")
	wrong.Header.Del("Set-Cookie") // differs by visit
	unknown.Header.Del("Set-Cookie")
	for _, p := range []*page{wrong, unknown} {
		p.Header.Del("Date")
		p.Header.Del("Content-Length")
	}
	require.Equal(t, wrong.Header, unknown.Header)
}

func TestFailedSignInIsAuditedWithoutTheInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.browser().trySignIn("my-password@typed.in.the.wrong.field", "s3cret-typed")
	lines := w.logs.FilterMessage("audit").All()
	require.Len(t, lines, 1)
	fields := lines[0].ContextMap()
	require.Equal(t, audit.SessionDenied, fields["action"])
	require.Equal(t, "127.0.0.1", fields["client_ip"])
	for _, line := range w.logs.All() {
		assert.NotContains(t, fmt.Sprint(line.Message, line.ContextMap()), "my-password")
		assert.NotContains(t, fmt.Sprint(line.Message, line.ContextMap()), "s3cret")
	}
}

func TestPasswordGuessingForOneAccountIsLimited(t *testing.T) {
	t.Parallel()
	for name, email := range map[string]string{"known": ownerEmail, "unknown": "nobody@saltbush.example"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			for i := range 10 {
				spelling := []string{email, strings.ToUpper(email)}[i%2]
				assert.Equal(t, http.StatusForbidden, w.guess(i, spelling))
			}
			b := w.browser()
			b.from = "203.0.113.99"
			p := b.trySignIn(email, ownerPassword).requires(http.StatusTooManyRequests, "Too many sign-in attempts.")
			wait, err := strconv.Atoi(p.Header.Get("Retry-After"))
			require.NoError(t, err)
			assert.Positive(t, wait)
			assert.Equal(t, 10, w.accounts.SignIns(), "the password was not checked")
			assert.Empty(t, b.cookie("gatehouse_session"))
			assert.Equal(t, 10, w.logs.FilterMessage("audit").Len(), "what has no limit would push other entries out of the audit log's file")

			assert.Equal(t, http.StatusSeeOther, w.browser().trySignIn(rivalEmail, ownerPassword).StatusCode, "other accounts can sign in")
		})
	}
}

func TestAddressSpellingsShareOneLimit(t *testing.T) {
	t.Parallel()
	const email = "ossian.diaz-lah@kilo.example"
	for name, spelling := range map[string]string{
		"upper case": "OSSIAN.Diaz-Lah@KILO.example", "a long s": "oſſian.diaz-lah@kilo.example", "a sharp s": "oßian.diaz-lah@kilo.example",
		"a Kelvin sign": "ossian.diaz-lah@\u212ailo.example", "a dotless i": "ossıan.diaz-lah@kilo.example",
		"a dotted I": "ossİan.diaz-lah@kilo.example", "accents": "össián.dïåz-låh@kilo.example",
		"combining marks": "o\u0308ssian.diaz\u0301-lah@kilo.example", "strokes": "øssian.điaz-łaħ@kilo.example",
		"full width": "ｏｓｓｉａｎ．ｄｉａｚ－ｌａｈ＠ｋｉｌｏ．ｅｘａｍｐｌｅ", "circled letters": "ⓞⓢⓢⓘⓐⓝ.diaz-lah@kilo.example",
		"mathematical letters": "𝐨𝐬𝐬𝐢𝐚𝐧.diaz-lah@kilo.example", "a soft hyphen": "os\u00adsian.diaz-lah@kilo.example",
		"a zero-width joiner": "os\u200dsian.diaz-lah@kilo.example", "a grapheme joiner": "os\u034fsian.diaz-lah@kilo.example",
		"a variation selector": "ossian.diaz-lah@kilo.example\ufe0f", "spaces": " os sian.diaz-lah@ kilo.example\u00a0",
		"a tag": "ossian.diaz-lah@kilo.example\U000e0061", "a control character": "ossian.diaz-lah@kilo.example\x01",
	} {
		assert.Equal(t, pages.AccountDigest(email), pages.AccountDigest(spelling), name)
	}
	for _, other := range []string{
		"ossian.diazlah@kilo.example", "ossiandiaz-lah@kilo.example", "ossian.diaz-lah@kilo.examples", "ossian.diaz+lah@kilo.example",
		"osian.diaz-lah@kilo.example", "ossian.diaz-lah2@kilo.example", "оssian.diaz-lah@kilo.example" /* Cyrillic */, "",
	} {
		assert.NotEqual(t, pages.AccountDigest(email), pages.AccountDigest(other), other)
	}

	w := newWorld(t)
	spellings := []string{"ada@saltbush.example", "adà@ſaltbush.example", "ÅDA@saltbuſh.example"}
	for i := range 10 {
		assert.Equal(t, http.StatusForbidden, w.guess(i, spellings[i%3]))
	}
	for i, spelling := range spellings {
		assert.Equal(t, http.StatusTooManyRequests, w.guess(10+i, spelling))
	}
}

func TestSimilarAddressGetsNoDeviceLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const similar = "adá@saltbush.example"
	other := rival
	other.ID, other.Email = "acc_similar", similar
	w.accounts.Put(other)
	attacker := w.signIn(similar)
	guess := func(i int) int {
		b := sameDevice(attacker)
		b.from = fmt.Sprintf("203.0.113.%d", i)
		return b.trySignIn(ownerEmail, "guess").StatusCode
	}
	for i := range 10 {
		assert.Equal(t, http.StatusForbidden, guess(i))
	}
	assert.Equal(t, http.StatusSeeOther, sameDevice(attacker).trySignIn(similar, ownerPassword).StatusCode, "from a known browser")
	assert.Equal(t, http.StatusTooManyRequests, guess(11), "the sign-in did not reset the attempts")
}

// docs/connect.md states the size.
func TestSignInAttemptsTakeLittleOfRedis(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.browser()
	for i := range 30 {
		require.Equal(t, http.StatusForbidden, b.trySignIn(fmt.Sprintf("nobody-%d@saltbush.example", i), "guess").StatusCode)
	}
	require.Equal(t, http.StatusTooManyRequests, b.trySignIn(ownerEmail, "guess").StatusCode)
	keys, err := w.redis.Keys(t.Context(), w.prefix+"sign-in:*").Result()
	require.NoError(t, err)
	require.Len(t, keys, 31)
	var total int64
	for _, key := range keys {
		n, err := w.redis.MemoryUsage(t.Context(), key, 0).Result()
		require.NoError(t, err)
		total += n + int64(len(audit.DefaultPrefix)-len(w.prefix))
	}
	t.Logf("%d bytes", total)
	assert.Less(t, total, int64(6e3))
}

func TestSignInLimitUsesASlidingWindow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	i := 0
	guess := func() int {
		i++
		return w.guess(i, ownerEmail)
	}
	// age backdates the newest n attempts.
	age := func(n int64, by time.Duration) {
		key := w.prefix + "sign-in:account:" + pages.AccountDigest(ownerEmail)
		newest, err := w.redis.ZRangeArgs(t.Context(), redis.ZRangeArgs{Key: key, Start: 0, Stop: n - 1, Rev: true}).Result()
		require.NoError(t, err)
		require.Len(t, newest, int(n))
		for _, id := range newest {
			require.NoError(t, w.redis.ZIncrBy(t.Context(), key, -float64(by.Milliseconds()), id).Err())
		}
	}
	require.Equal(t, http.StatusForbidden, guess())
	age(1, 2*time.Minute)
	for range 9 {
		assert.Equal(t, http.StatusForbidden, guess())
	}
	require.Equal(t, http.StatusTooManyRequests, guess())
	age(10, 10*time.Minute)
	require.Equal(t, http.StatusTooManyRequests, guess(), "the window does not refill gradually")
	age(10, 3*time.Minute+time.Second)
	assert.Equal(t, http.StatusForbidden, guess(), "the first was more than fifteen minutes ago")
	assert.Equal(t, http.StatusTooManyRequests, guess())

	age(10, -time.Hour) // Redis's clock is set back
	assert.Equal(t, http.StatusTooManyRequests, guess(), "nobody gains attempts")
	age(10, 15*time.Minute)
	assert.Equal(t, http.StatusForbidden, guess(), "nobody waits until the clock has caught up")
}

func TestAccountsServiceFailureIsNotCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.accounts.SetDown(true)
	p := w.browser().trySignIn(ownerEmail, ownerPassword).requires(http.StatusServiceUnavailable, "Signing in is temporarily unavailable.").lacks("made up")
	require.NotEmpty(t, p.Header.Get("Retry-After"))
	for i := range 12 {
		assert.Equal(t, http.StatusServiceUnavailable, w.guess(i, ownerEmail))
	}
	w.accounts.SetDown(false)
	for i := range 10 {
		assert.Equal(t, http.StatusForbidden, w.guess(i, ownerEmail))
	}
	require.Equal(t, http.StatusTooManyRequests, w.guess(11, ownerEmail))
}

// mixedUp is an accounts service whose responses to sign-ins are about another account.
type mixedUp struct{ *accounttest.Service }

func (s mixedUp) SignIn(ctx context.Context, email, password string) (account.Account, error) {
	if _, err := s.Service.SignIn(ctx, email, password); errors.Is(err, account.ErrUnavailable) {
		return account.Account{}, err
	}
	return account.Account{}, fmt.Errorf("signing in: %w", account.ErrWrongAccount)
}

func TestSignInAnsweredWithAnotherAccountLooksLikeAnOutageAndCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *pages.Options) { o.Accounts = mixedUp{o.Accounts.(*accounttest.Service)} })
	token := regexp.MustCompile(`name="csrf" value="[^"]*"`)
	try := func(i int) *page {
		b := w.browser()
		b.from = fmt.Sprintf("203.0.113.%d", i)
		p := b.trySignIn(ownerEmail, ownerPassword)
		require.Empty(t, b.cookie("gatehouse_session"))
		p.body = token.ReplaceAllString(p.body, "")
		return p
	}
	w.accounts.SetDown(true)
	outage := try(0)
	w.accounts.SetDown(false)
	for i := range 10 {
		p := try(i+1).requires(http.StatusServiceUnavailable, "Signing in is temporarily unavailable.")
		require.Equal(t, outage.body, p.body)
		require.Equal(t, outage.Header.Get("Retry-After"), p.Header.Get("Retry-After"))
	}
	require.Equal(t, http.StatusTooManyRequests, try(11).StatusCode, "each has counted")
	require.Empty(t, w.entries(owner.BusinessID))
}

func TestConcurrentSignInsAreCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var group sync.WaitGroup
	for i := range 40 {
		b := w.browser()
		b.from = fmt.Sprintf("203.0.113.%d", i)
		form := b.get(pages.SignInPath).signInForm(ownerEmail, "guess")
		group.Go(func() { b.post(pages.SignInPath, form) })
	}
	group.Wait()
	require.Equal(t, 10, w.accounts.SignIns())
}

func TestPasswordSprayingIsLimited(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		most   int
		sender func(i int) string
	}{
		"an address":           {30, func(int) string { return "198.51.100.7" }},
		"a mapped one":         {30, func(i int) string { return []string{"198.51.100.8", "::ffff:198.51.100.8"}[i%2] }},
		"an IPv6 network":      {30, func(i int) string { return fmt.Sprintf("2001:db8:0:1::%x", i+1) }},
		"a large IPv6 network": {120, func(i int) string { return fmt.Sprintf("2001:db8:1:%x::1", i+1) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			b := w.browser()
			for i := range test.most {
				b.from = test.sender(i)
				b.trySignIn(fmt.Sprintf("someone%d@saltbush.example", i), "Spring2026!").requires(http.StatusForbidden)
			}
			b.from = test.sender(test.most)
			require.Equal(t, http.StatusTooManyRequests, b.trySignIn("next@saltbush.example", "Spring2026!").StatusCode)
			require.Equal(t, http.StatusTooManyRequests, b.trySignIn(ownerEmail, ownerPassword).StatusCode)
			require.Equal(t, test.most, w.accounts.SignIns())
			other := w.browser()
			other.from = "2001:db8:0:2::1"
			require.Equal(t, http.StatusSeeOther, other.trySignIn(ownerEmail, ownerPassword).StatusCode)
		})
	}
}

func TestOthersGuessesDoNotLockOutAKnownBrowser(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	own := w.signIn(ownerEmail)
	own.post(pages.SignOutPath, own.get(pages.ConnectionsPath).form(pages.SignOutPath))
	for i := range 11 {
		w.guess(i, ownerEmail)
	}
	stranger := w.browser()
	require.Equal(t, http.StatusTooManyRequests, stranger.trySignIn(ownerEmail, ownerPassword).StatusCode)
	device := own.cookie("gatehouse_device")
	require.Equal(t, http.StatusSeeOther, own.trySignIn(ownerEmail, ownerPassword).StatusCode)
	require.NotEqual(t, device, own.cookie("gatehouse_device"))

	// A known browser has a limit of its own, and its old cookie is invalid.
	for range 10 {
		assert.Equal(t, http.StatusForbidden, sameDevice(own).trySignIn(ownerEmail, "guess").StatusCode)
	}
	require.Equal(t, http.StatusTooManyRequests, sameDevice(own).trySignIn(ownerEmail, ownerPassword).StatusCode)
	stranger.setCookie("gatehouse_device", device)
	require.Equal(t, http.StatusTooManyRequests, stranger.trySignIn(ownerEmail, ownerPassword).StatusCode)
}

// sameDevice returns a browser with the device cookie of another one, but not its session.
func sameDevice(b *browser) *browser {
	out := b.w.browser()
	out.setCookie("gatehouse_device", b.cookie("gatehouse_device"))
	return out
}

func TestSignInRedirectsOnlyToOwnPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	leads := map[string]string{
		"/settings/api":                         "/settings/api",
		"/settings/activity?before=1-1":         "/settings/activity",
		"/oauth/approve?request=grq_a-B.c~d":    "/oauth/approve?request=grq_a-B.c~d",
		"/oauth/approve?request=x&redirect=//e": "/oauth/approve?request=x",
		"/settings/api#@evil.example":           "/settings/api",
	}
	for _, elsewhere := range []string{
		"", "/oauth/approve", "/oauth/approve?request=a%0d%0aSet-Cookie", "https://evil.example/settings/api", "//evil.example/settings/api",
		"///evil.example", `/\evil.example`, `\\evil.example`, "/settings/api/../../evil", "/settings%2fapi", "/.evil.example",
		"javascript:alert(1)", "data:text/html,x", "/oauth/authorize?client_id=x", "/sign-out", w.url + "@evil.example/settings/api",
		"\t//evil.example", "%2f%2fevil.example",
	} {
		leads[elsewhere] = pages.ConnectionsPath
	}
	i := 0
	for back, want := range leads {
		// In the query of the page, and in the field of the form.
		form := w.browser().get(pages.SignInPath + "?return=" + url.QueryEscape(back)).form(pages.SignInPath)
		require.Equal(t, want, form.Get("return"), back)
		b := w.browser()
		b.from = fmt.Sprintf("2001:db8:%x::1", i) // avoids the limit per address
		i++
		form = b.get(pages.SignInPath).signInForm(ownerEmail, ownerPassword)
		form.Set("return", back)
		p := b.post(pages.SignInPath, form).requires(http.StatusSeeOther)
		assert.Equal(t, want, p.Header.Get("Location"), back)
	}
}

func TestLoginCSRFIsRejected(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	attacker, victim := w.browser(), w.browser()
	victim.get(pages.SignInPath)
	form := attacker.get(pages.SignInPath).signInForm(rivalEmail, ownerPassword)
	p := victim.post(pages.SignInPath, form).requires(http.StatusForbidden)
	require.Empty(t, victim.cookie("gatehouse_session"))
	require.Zero(t, w.accounts.SignIns())
	require.Contains(t, p.text(), "This page was open for too long")

	// The form of the error page works.
	again := p.signInForm(ownerEmail, ownerPassword)
	require.Equal(t, http.StatusSeeOther, victim.post(pages.SignInPath, again).StatusCode)
}

func TestSessionFixationIsPrevented(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	attacker := w.signIn(rivalEmail)
	fixed := attacker.cookie("gatehouse_session")
	for _, id := range []string{fixed, strings.Repeat("A", 43)} {
		victim := w.browser()
		form := victim.get(pages.SignInPath).signInForm(ownerEmail, ownerPassword)
		victim.setCookie("gatehouse_session", id)
		require.Equal(t, http.StatusSeeOther, victim.post(pages.SignInPath, form).StatusCode)
		own := victim.cookie("gatehouse_session")
		require.NotEqual(t, id, own)
		require.Len(t, own, 43)
		other := w.browser()
		other.setCookie("gatehouse_session", id)
		assert.Equal(t, http.StatusSeeOther, other.get(pages.ConnectionsPath).StatusCode, "the id is not that of a session")
	}
	require.Equal(t, http.StatusSeeOther, attacker.get(pages.ConnectionsPath).StatusCode, "the previous session of the browser has ended")
}

func TestSignInFormReportsMissingFields(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct{ email, password, want string }{
		{"", "", "Enter your email address."},
		{ownerEmail, "", "Enter your password."},
		{"ada", ownerPassword, "Enter a full email address"},
		{strings.Repeat("a", 250) + "@b.example", ownerPassword, "Enter a full email address"},
		{ownerEmail, strings.Repeat("p", 1025), "This password is too long."},
	} {
		p := w.browser().trySignIn(c.email, c.password).requires(http.StatusUnprocessableEntity, c.want)
		assert.Contains(t, p.body, `aria-invalid="true"`, c.want)
		assert.Contains(t, p.body, "<title>Error: Sign in", c.want)
	}
	for _, c := range []struct{ email, password string }{{"ada\xff@b.example", ownerPassword}, {ownerEmail, "p\xff"}} {
		w.browser().trySignIn(c.email, c.password).requires(http.StatusBadRequest, "text that is not valid UTF-8")
	}
	require.Zero(t, w.accounts.SignIns())
}

func TestSignInPageNamesTheClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.request("grq_1", "mcp:read")
	b := w.browser()
	p := b.follow(b.get(pages.ApprovePath + "?request=grq_1"))
	require.Contains(t, p.text(), "Sign in to decide whether assistant.example may connect.", "nobody vouches for what is in its name")
	form := p.signInForm(ownerEmail, ownerPassword)
	p = b.post(pages.SignInPath, form)
	require.Equal(t, pages.ApprovePath+"?request=grq_1", p.Header.Get("Location"))

	w.request("grq_2", "mcp:read", func(r *oauth.Request) {
		r.Client.Host, r.Client.Name = "", "Acme Support (call +1 555 0100). Until you call, nobody"
	})
	p = w.browser().get(pages.SignInPath + "?return=" + url.QueryEscape(pages.ApprovePath+"?request=grq_2"))
	require.Contains(t, p.text(), "Sign in to decide whether an app may connect.")
	require.NotContains(t, p.text(), "Acme")
}
