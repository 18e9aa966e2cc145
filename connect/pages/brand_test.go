package pages_test

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/pages"
)

func pngLogo(tb testing.TB, width, height int) string {
	tb.Helper()
	var b bytes.Buffer
	require.NoError(tb, png.Encode(&b, image.NewGray(image.Rect(0, 0, width, height))))
	return b.String()
}

func writeFile(tb testing.TB, name, content string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), name)
	require.NoError(tb, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func fullBrand(tb testing.TB) pages.Brand {
	tb.Helper()
	return pages.Brand{
		Logo: writeFile(tb, "logo", pngLogo(tb, 8, 8)), AccentColor: "#7a1fa2",
		SupportURL: "mailto:help@harbour.example?subject=Assistants", PrivacyURL: "https://harbour.example/privacy?a=1&b=2",
		TermsURL: "https://harbour.example/terms",
	}
}

// assetOf returns the asset that a page refers to with the pattern.
func (w *world) assetOf(p *page, pattern string) *page {
	w.tb.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(p.body)
	require.Len(w.tb, found, 2, p.body)
	return w.browser().get(found[1]).requires(http.StatusOK)
}

func TestEveryPageShowsThePlatformAndNotGatehouse(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		brand pages.Brand
		name  string
		shows []string
	}{
		"with everything": {fullBrand(t), "Harbour <b>& \"Söhne\"", []string{
			`<bdi>Harbour &lt;b&gt;&amp; &#34;Söhne&#34;</bdi>`, " · Harbour &lt;b&gt;&amp; &#34;Söhne&#34;</title>",
			`<img class="logo" src="/assets/logo-`, `<link rel="icon" href="/assets/logo-`,
			`<a href="mailto:help@harbour.example?subject=Assistants">Support</a>`,
			`<a href="https://harbour.example/privacy?a=1&amp;b=2">Privacy</a>`, `<a href="https://harbour.example/terms">Terms</a>`,
		}},
		"with a name only": {pages.Brand{}, "Harbour", []string{
			"<bdi>Harbour</bdi>", `<span class="initial" aria-hidden="true">H</span>`, `<link rel="icon" href="/assets/icon-`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := withKeys(t, func(o *pages.Options) { o.Name, o.Brand, o.HomePage = test.name, test.brand, true })
			w.request("grq_1", "mcp:use")
			b, stranger := w.signIn(ownerEmail), w.browser()
			fail := httptest.NewRecorder()
			w.pages.Error(fail, httptest.NewRequest(http.MethodGet, "/oauth/authorize", http.NoBody), http.StatusBadRequest, "No", "No.")
			for _, p := range []*page{
				stranger.get(pages.HomePath), stranger.get(pages.SignInPath), stranger.trySignIn(ownerEmail, "wrong"), stranger.get("/nothing"),
				b.get(pages.ApprovePath + "?request=grq_1"), w.signIn(memberEmail).get(pages.ApprovePath + "?request=grq_1"),
				b.get(pages.ApprovePath), b.get(pages.ConnectionsPath), b.get(pages.KeysPath), b.get(pages.KeysPath + "?rotate=pk_live_saltbush"),
				b.get(pages.KeysPath + "?revoke=pk_live_saltbush"), b.get(pages.ActivityPath), b.get(pages.SignOutPath),
				b.post(pages.KeysPath, url.Values{}),
				{tb: t, Response: b.get("/").Response, body: fail.Body.String()},
			} {
				for _, text := range test.shows {
					assert.Contains(t, p.body, text, p.Request.URL)
				}
				assert.NotContains(t, strings.ToLower(p.body), "gatehouse", p.Request.URL)
			}
			for _, pattern := range []string{`<link rel="icon" href="([^"]+)"`, `<link rel="stylesheet" href="([^"]+)"`} {
				assert.NotContains(t, strings.ToLower(w.assetOf(stranger.get(pages.SignInPath), pattern).body), "gatehouse")
			}
		})
	}
}

// The file's name says nothing about its type.
func TestLogoIsServedWithItsOwnType(t *testing.T) {
	t.Parallel()
	content := pngLogo(t, 2048, 1)
	w := newWorld(t, func(o *pages.Options) { o.Brand.Logo = writeFile(t, "logo.html", content) })
	logo := w.assetOf(w.browser().get(pages.SignInPath), `<img class="logo" src="([^"]+)"`)
	assert.Equal(t, content, logo.body)
	assert.Equal(t, "image/png", logo.Header.Get("Content-Type"))
	assert.Equal(t, "nosniff", logo.Header.Get("X-Content-Type-Options"))
	assert.Equal(t, "public, max-age=31536000, immutable", logo.Header.Get("Cache-Control"))
	assert.Equal(t, "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'", logo.Header.Get("Content-Security-Policy"))
}

func TestInvalidBrandIsRejected(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	logo := func(content string) func(*pages.Options) {
		return func(o *pages.Options) { o.Brand.Logo = writeFile(t, "logo.png", content) }
	}
	brand := func(b pages.Brand) func(*pages.Options) { return func(o *pages.Options) { o.Brand = b } }
	const image = "logo.png must be a PNG of at most 2048 by 2048 pixels"
	for name, test := range map[string]struct {
		change func(*pages.Options)
		want   string
	}{
		"no name":          {func(o *pages.Options) { o.Name = "" }, `invalid name "": must be one line of 1 to 64 visible characters`},
		"a long name":      {func(o *pages.Options) { o.Name = strings.Repeat("x", 65) }, "invalid name"},
		"two lines":        {func(o *pages.Options) { o.Name = "Harbour\nBank" }, "invalid name"},
		"a reversed name":  {func(o *pages.Options) { o.Name = "Harbour\u202eknaB" }, "invalid name"},
		"no file":          {brand(pages.Brand{Logo: "nowhere.png"}), "invalid logo: stat nowhere.png"},
		"a folder":         {brand(pages.Brand{Logo: t.TempDir()}), "must be a regular file of at most 256 KiB"},
		"a pipe":           {brand(pages.Brand{Logo: pipe}), "must be a regular file of at most 256 KiB"},
		"a large file":     {logo(pngLogo(t, 1, 1) + strings.Repeat("\x00", 256<<10)), "must be a regular file of at most 256 KiB"},
		"an empty file":    {logo(""), image},
		"a wide PNG":       {logo(pngLogo(t, 2049, 1)), image},
		"a high PNG":       {logo(pngLogo(t, 1, 2049)), image},
		"half a PNG":       {logo(pngLogo(t, 64, 64)[:60]), image},
		"a GIF":            {logo("GIF89a\x01\x00\x01\x00"), image},
		"HTML":             {logo("<!doctype html><script>alert(1)</script>"), image},
		"an SVG":           {logo(`<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>`), image},
		"a colour by name": {brand(pages.Brand{AccentColor: "teal"}), `invalid accent_color "teal": must be # and six hexadecimal digits`},
		"a short colour":   {brand(pages.Brand{AccentColor: "#000"}), "must be # and six hexadecimal digits"},
		"seven digits":     {brand(pages.Brand{AccentColor: "0000000"}), "must be # and six hexadecimal digits"},
		"CSS":              {brand(pages.Brand{AccentColor: "#000}*{"}), "must be # and six hexadecimal digits"},
		"a light accent": {
			brand(pages.Brand{AccentColor: "#63cfc6"}),
			`invalid accent_color "#63cfc6": its contrast with the background #f3f5f6 is 1.70:1, but links and buttons need at least 4.5:1: use a darker colour`,
		},
		"a dark accent for dark mode": {
			brand(pages.Brand{AccentColor: "#0b5f5c", AccentColorDark: "#0b5f5c"}),
			`invalid accent_color_dark "#0b5f5c": its contrast with the background #172027 is 2.20:1, but links and buttons need at least 4.5:1: use a lighter colour`,
		},
		"CSS for dark mode":     {brand(pages.Brand{AccentColorDark: "red;x:y"}), `invalid accent_color_dark "red;x:y"`},
		"a script as support":   {brand(pages.Brand{SupportURL: "javascript:alert(1)"}), "invalid support_url"},
		"no address to mail to": {brand(pages.Brand{SupportURL: "mailto:"}), "must be an https URL, or mailto: with an email address"},
		"terms by mail":         {brand(pages.Brand{TermsURL: "mailto:a@b.example"}), "must be an https URL"},
		"plain http":            {brand(pages.Brand{PrivacyURL: "http://harbour.example"}), "must be an https URL"},
		"a path":                {brand(pages.Brand{PrivacyURL: "/privacy"}), "must be an https URL"},
		"no host":               {brand(pages.Brand{PrivacyURL: "https:privacy"}), "must be an https URL"},
		"a user":                {brand(pages.Brand{PrivacyURL: "https://harbour.example@evil.example"}), "must be an https URL"},
		"a line feed":           {brand(pages.Brand{PrivacyURL: "https://harbour.example/\n"}), "must be an https URL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log, err := audit.New(audit.Options{Redis: shared.Client(t), Log: zap.NewNop()})
			require.NoError(t, err)
			o := pages.Options{OAuth: &fakeOAuth{}, Accounts: newWorld(t).accounts, Audit: log, Redis: shared.Client(t), Name: "Harbour"}
			test.change(&o)
			_, err = pages.New(o)
			require.ErrorContains(t, err, test.want)
		})
	}
}

// colours returns the variables of a style sheet, in light and dark mode.
func colours(css string) (light, dark map[string]string) {
	light, dark = map[string]string{}, map[string]string{}
	for _, rule := range regexp.MustCompile(`(@media \(prefers-color-scheme: dark\) \{\s*)?:root \{([^}]*)\}`).FindAllStringSubmatch(css, -1) {
		for _, v := range regexp.MustCompile(`(--[a-z-]+): ([^;]+);`).FindAllStringSubmatch(rule[2], -1) {
			dark[v[1]] = v[2]
			if rule[1] == "" {
				light[v[1]] = v[2]
			}
		}
	}
	return light, dark
}

// ratio is WCAG's, of two variables.
func ratio(tb testing.TB, of map[string]string, a, b string) float64 {
	tb.Helper()
	luminance := func(name string) float64 {
		value := of[name]
		if value == "var(--ink)" {
			value = of["--ink"]
		}
		n, err := strconv.ParseUint(strings.TrimPrefix(value, "#"), 16, 24)
		require.NoError(tb, err, name)
		linear := func(v uint64) float64 { return math.Pow((float64(v&255)/255+0.055)/1.055, 2.4) }
		return 0.2126*linear(n>>16) + 0.7152*linear(n>>8) + 0.0722*linear(n)
	}
	x, y := luminance(a)+0.05, luminance(b)+0.05
	return max(x, y) / min(x, y)
}

// Whatever accent is accepted, text has a contrast of 4.5 to 1 wherever the style sheet uses it, and borders of controls 3 to 1.
func TestEveryAcceptedAccentIsReadableInLightAndDarkMode(t *testing.T) {
	t.Parallel()
	accepted := 0
	for n := range 216 {
		accent := fmt.Sprintf("#%02x%02x%02x", n/36*51, n/6%6*51, n%6*51)
		for _, b := range []pages.Brand{{AccentColor: accent}, {AccentColorDark: accent}} {
			css, err := pages.AccentCSS(b)
			if err != nil {
				continue
			}
			accepted++
			light, dark := colours(css)
			for mode, of := range map[string]map[string]string{"light": light, "dark": dark} {
				for _, pair := range []struct {
					text, ground string
					least        float64
				}{
					{"--brand", "--ground", 4.5},
					{"--brand", "--surface", 4.5},
					{"--brand-deep", "--ground", 4.5},
					{"--brand-deep", "--surface", 4.5},
					{"--on-brand", "--brand", 4.5},
					{"--on-brand", "--brand-deep", 4.5},
					{"--on-tint", "--tint", 4.5},
					{"--brand", "--tint", 3},
				} {
					assert.GreaterOrEqual(t, ratio(t, of, pair.text, pair.ground), pair.least-0.01, "%s: %+v in %s mode: %v", accent, b, mode, pair)
				}
			}
		}
	}
	assert.Greater(t, accepted, 100)
}

// Programs never get the page, however they ask.
func TestOnlyABrowserThatOpensTheEndpointGetsAPage(t *testing.T) {
	t.Parallel()
	const browserAccept = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
	w := newWorld(t)
	handler := w.pages.Explain(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusTeapot) }))
	ask := func(method string, header http.Header) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, w.url+"/mcp", http.NoBody)
		r.Header = header
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, r)
		return rec
	}
	for name, test := range map[string]struct {
		method string
		header http.Header
		page   bool
	}{
		"a browser":            {http.MethodGet, http.Header{"Accept": {browserAccept}}, true},
		"a browser's HEAD":     {http.MethodHead, http.Header{"Accept": {"text/html"}}, true},
		"several lines":        {http.MethodGet, http.Header{"Accept": {"image/png", "Text/HTML"}}, true},
		"a form":               {http.MethodPost, http.Header{"Accept": {browserAccept}}, false},
		"DELETE":               {http.MethodDelete, http.Header{"Accept": {browserAccept}}, false},
		"a token":              {http.MethodGet, http.Header{"Accept": {browserAccept}, "Authorization": {"Bearer x"}}, false},
		"nothing accepted":     {http.MethodGet, http.Header{}, false},
		"anything":             {http.MethodGet, http.Header{"Accept": {"*/*"}}, false},
		"a stream":             {http.MethodGet, http.Header{"Accept": {"text/event-stream"}}, false},
		"a stream or a page":   {http.MethodGet, http.Header{"Accept": {"text/html", "text/event-stream"}}, false},
		"JSON or a page":       {http.MethodGet, http.Header{"Accept": {"application/json, text/html"}}, false},
		"JSON with parameters": {http.MethodGet, http.Header{"Accept": {"text/html;q=0.1, application/json;q=1"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec := ask(test.method, test.header)
			if !test.page {
				assert.Equal(t, http.StatusTeapot, rec.Code)
				assert.Empty(t, rec.Header())
				return
			}
			assert.Equal(t, http.StatusOK, rec.Code)
			assert.Equal(t, []string{"Accept, Authorization"}, rec.Header().Values("Vary"))
			assert.Equal(t, "no-store", rec.Header().Get("Cache-Control"))
			assert.Contains(t, rec.Header().Get("Content-Security-Policy"), "default-src 'none'")
			assert.Empty(t, rec.Result().Cookies())
		})
	}
	p := &page{tb: t, body: ask(http.MethodGet, http.Header{"Accept": {browserAccept}}).Body.String()}
	assert.Contains(t, p.text(), w.url+"/mcp")
	assert.Contains(t, p.body, `href="`+pages.ConnectionsPath+`"`)
	requireAccessible(p)
}

func TestHomePageIsServedOnRequestOnly(t *testing.T) {
	t.Parallel()
	newWorld(t).browser().get("/").requires(http.StatusNotFound, "Page not found")
	w := newWorld(t, func(o *pages.Options) { o.HomePage = true })
	p := w.browser().get("/").requires(http.StatusOK, "Connect an assistant", w.url+"/mcp", "Manage connections", "Harbour Platform")
	requireAccessible(p)
	assert.Equal(t, "GET, HEAD", w.browser().do(http.MethodPost, "/", nil, nil).requires(http.StatusMethodNotAllowed).Header.Get("Allow"))
}
