package pages_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/pages"
	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
)

func TestPagesAreAccessibleAndForbidFramingCachingAndScripts(t *testing.T) {
	t.Parallel()
	w := withKeys(t)
	w.request("grq_1", "mcp:use")
	b := w.signIn(ownerEmail)
	stranger := w.browser()
	for name, p := range map[string]*page{
		"sign-in":    stranger.get(pages.SignInPath),
		"rejected":   stranger.trySignIn(ownerEmail, "wrong"),
		"redirect":   stranger.get(pages.KeysPath),
		"sign-out":   b.get(pages.SignOutPath),
		"approve":    b.get(pages.ApprovePath + "?request=grq_1"),
		"apps":       b.get(pages.ConnectionsPath),
		"keys":       b.get(pages.KeysPath),
		"rotate":     b.get(pages.KeysPath + "?rotate=pk_live_saltbush"),
		"revoke":     b.get(pages.KeysPath + "?revoke=pk_live_saltbush"),
		"activity":   b.get(pages.ActivityPath),
		"not found":  b.get("/settings/nothing"),
		"method":     b.do(http.MethodDelete, pages.KeysPath, nil, nil),
		"forged":     b.post(pages.KeysPath, url.Values{}),
		"no request": b.get(pages.ApprovePath),
	} {
		csp := p.Header.Get("Content-Security-Policy")
		for _, directive := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"} {
			assert.Contains(t, csp, directive, name)
		}
		require.NotContains(t, csp, "unsafe", name)
		require.NotContains(t, csp, "script-src", name)
		if name != "approve" {
			require.Contains(t, csp, "form-action 'self'", name)
		}
		for header, value := range map[string]string{
			"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin", "Cache-Control": "no-store",
		} {
			assert.Equal(t, value, p.Header.Get(header), name)
		}
		assert.NotContains(t, p.Header, "Strict-Transport-Security", "the issuer is http")
		p.lacks("<script", " style=")
		require.NotRegexp(t, `(?i)(src|href)="(https?:)?//`, p.body, name)
		if strings.Contains(p.body, "<html") {
			requireAccessible(p)
		}
	}
	assert.Equal(t, "same-origin", b.get(pages.KeysPath).Header.Get("Cross-Origin-Opener-Policy"))
	assert.Empty(t, b.get(pages.ApprovePath+"?request=grq_1").Header.Get("Cross-Origin-Opener-Policy"),
		"the client's window that opened this one needs the result")
}

// In a box, Enter presses the form's first button, in Chromium the first that is not disabled. It must decide nothing: a person who toggles
// a box with Enter has not chosen "Connect".
func TestEnterInABoxPressesNoButtonThatDecides(t *testing.T) {
	t.Parallel()
	w := withKeys(t)
	w.request("grq_1", "mcp:use")
	w.oauth.grants = []oauth.Grant{grant(t, "gr_1", owner, "claude", "mcp:read", w.clock.now(), w.clock.now())}
	b := w.signIn(ownerEmail)
	for _, path := range []string{
		pages.ApprovePath + "?request=grq_1", changePath + "gr_1", pages.KeysPath, pages.KeysPath + "?rotate=pk_live_saltbush",
	} {
		forms := 0
		for form := range strings.SplitSeq(b.get(path).requires(http.StatusOK).body, "<form ") {
			if strings.Contains(form, `type="checkbox"`) || strings.Contains(form, `type="radio"`) {
				forms++
				first := regexp.MustCompile(`<button[^>]*>`).FindString(form)
				assert.Contains(t, first, `formmethod="dialog"`, "%s: outside of a dialog, this does nothing", path)
				assert.Contains(t, first, `tabindex="-1" aria-hidden="true"`, path)
			}
		}
		assert.Equal(t, 1, forms, path)
	}
}

func TestHEADEqualsGETWithoutBody(t *testing.T) {
	t.Parallel()
	w := withKeys(t)
	b := w.signIn(ownerEmail)
	sheet := stylesheet(b.get(pages.ConnectionsPath))
	for _, path := range []string{pages.SignOutPath, pages.ConnectionsPath, pages.KeysPath, pages.ActivityPath, "/nothing", sheet} {
		get, head := b.get(path), b.do(http.MethodHead, path, nil, nil)
		assert.Equal(t, get.StatusCode, head.StatusCode, path)
		assert.Empty(t, head.body)
		assert.Equal(t, strconv.Itoa(len(get.body)), head.Header.Get("Content-Length"), path)
		assert.Equal(t, get.Header.Get("Content-Type"), head.Header.Get("Content-Type"))
	}
}

func TestUnsupportedMethodIs405WithAllow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.signIn(ownerEmail)
	for path, allow := range map[string]string{
		pages.SignInPath: "GET, HEAD, POST", pages.ApprovePath: "GET, HEAD, POST", pages.ActivityPath: "GET, HEAD",
		pages.SettingsPath: "GET, HEAD", stylesheet(b.get(pages.ConnectionsPath)): "GET, HEAD",
	} {
		for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions, http.MethodTrace} {
			assert.Equal(t, allow, b.do(method, path, nil, nil).requires(http.StatusMethodNotAllowed).Header.Get("Allow"), path)
		}
	}
	require.Equal(t, http.StatusMethodNotAllowed, b.post(pages.ActivityPath, url.Values{}).StatusCode)
}

func TestUnknownPathIs404(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.signIn(ownerEmail)
	require.Equal(t, pages.ConnectionsPath, b.get(pages.SettingsPath).Header.Get("Location"))
	for _, path := range []string{
		"/", "/settings/", "/Settings/api", "/settings/api/", "//settings/api", "/sign-in/x", "/assets/", "/assets/pages.css",
		"/assets/../templates/base/page.html", "/templates/base/page.html", "/oauth/authorize", "/settings/./api",
	} {
		b.get(path).requires(http.StatusNotFound, "Page not found")
	}
}

func TestErrorForAnotherHostLinksToTheIssuer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		rec := httptest.NewRecorder()
		req := httptest.NewRequest(method, "http://rebound.example"+pages.SignInPath, http.NoBody)
		w.pages.Fail(rec, req, http.StatusMisdirectedRequest, "This host is not served here.")
		assert.Equal(t, http.StatusMisdirectedRequest, rec.Code)
		assert.Contains(t, rec.Body.String(), w.url)
		assert.NotContains(t, rec.Body.String(), "rebound.example")
		assert.Empty(t, rec.Result().Cookies())
	}
}

func TestFormsAndQueriesAreLimited(t *testing.T) {
	t.Parallel()
	w := withKeys(t)
	b := w.signIn(ownerEmail)
	form := b.keyForm("rotate", "pk_live_saltbush")
	form.Set("padding", strings.Repeat("x", 17<<10))
	require.Equal(t, http.StatusRequestEntityTooLarge, b.post(pages.KeysPath, form).StatusCode)
	require.Equal(t, "sk_old", w.keys.all()[0].private)
	require.Equal(t, http.StatusBadRequest, b.get(pages.KeysPath+"?x="+strings.Repeat("x", 5<<10)).StatusCode)
	req, err := http.NewRequest(http.MethodPost, w.url+pages.KeysPath, strings.NewReader("a=%zz"))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := b.http.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusBadRequest, resp.StatusCode)
}

func TestAssetsAreImmutableUnderHashedNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.browser().get(pages.SignInPath)
	sheet := w.browser().get(stylesheet(p))
	require.Equal(t, http.StatusOK, sheet.StatusCode)
	require.Equal(t, "text/css; charset=utf-8", sheet.Header.Get("Content-Type"))
	require.Equal(t, "public, max-age=31536000, immutable", sheet.Header.Get("Cache-Control"))
	require.Contains(t, sheet.body, "prefers-color-scheme: dark")
	require.NotContains(t, sheet.body, "url(", "nothing is loaded from anywhere")
	require.NotContains(t, sheet.body, "@import")
	icon := regexp.MustCompile(`href="(/assets/[^"]+\.svg)"`).FindStringSubmatch(p.body)
	require.Len(t, icon, 2)
	got := w.browser().get(icon[1])
	assert.Equal(t, "image/svg+xml", got.Header.Get("Content-Type"))
	assert.Contains(t, got.Header.Get("Content-Security-Policy"), "default-src 'none'")
}

// During a rolling update, a page of one gateway has the style sheet of another, which knows only its own version.
func TestPageOfAnotherVersionHasAStyleSheet(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.browser()
	own := stylesheet(b.get(pages.SignInPath))
	other := regexp.MustCompile("[0-9a-f]{16}").ReplaceAllString(own, "0123456789abcdef")
	require.NotEqual(t, own, other)
	sheet := b.get(other).requires(http.StatusOK)
	assert.Equal(t, b.get(own).body, sheet.body)
	assert.Equal(t, "text/css; charset=utf-8", sheet.Header.Get("Content-Type"))
	assert.Equal(t, "no-store", sheet.Header.Get("Cache-Control"), "it is not what the address says")
	for _, path := range []string{"/assets/other-0123456789abcdef.css", "/assets/pages-0123456789abcdef.svg", "/assets/pages-0123456789abcdef"} {
		b.get(path).requires(http.StatusNotFound)
	}
}

func TestErrorsOfTheAuthorizationServerAreReadable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rec := httptest.NewRecorder()
	ctx, _ := requestlog.With(t.Context(), "req-1")
	req := httptest.NewRequestWithContext(ctx, http.MethodGet, "https://elsewhere.example/oauth/authorize", http.NoBody)
	w.pages.Error(rec, req, http.StatusBadRequest, "This app cannot be connected",
		"It asks to be sent back to <script>evil</script>\u202e.example, which it has not named before.")
	require.Equal(t, http.StatusBadRequest, rec.Code)
	p := &page{tb: t, body: rec.Body.String()}
	assert.Contains(t, p.text(), "This app cannot be connected It asks to be sent back to <script>evil</script>.example")
	assert.NotContains(t, p.body, "<script")
	assert.NotContains(t, p.body, "\u202e")
	assert.Contains(t, p.text(), "Error 400 · request req-1")
	assert.Equal(t, "no-store", rec.Header().Get("Cache-Control"))
	assert.Equal(t, "DENY", rec.Header().Get("X-Frame-Options"))
}

// requireAccessible requires a language, one heading, a link to the content, and a label for each control.
func requireAccessible(p *page) {
	p.tb.Helper()
	require.Contains(p.tb, p.body, `<html lang="en">`)
	require.Equal(p.tb, 1, strings.Count(p.body, "<h1"))
	require.Equal(p.tb, 1, strings.Count(p.body, "<main"))
	require.Contains(p.tb, p.body, `href="#main"`)
	for _, id := range regexp.MustCompile(`<input[^>]* id="([^"]+)"`).FindAllStringSubmatch(p.body, -1) {
		require.Contains(p.tb, p.body, `for="`+id[1]+`"`)
	}
}

func stylesheet(p *page) string {
	p.tb.Helper()
	found := regexp.MustCompile(`<link rel="stylesheet" href="([^"]+)">`).FindStringSubmatch(p.body)
	require.Len(p.tb, found, 2)
	return found[1]
}
