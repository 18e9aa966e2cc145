package oauth_test

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/internal/test/oauthtest"
)

// tricks are redirect URIs that look like a registered one and are not, by kind.
func tricks() map[string][]string {
	return map[string][]string{
		"prefix": {"https://app.example.org", "https://app.example.org/", "https://app.example.org/c"},
		"suffix": {
			"https://app.example.org/cb/", "https://app.example.org/cb/../evil", "https://app.example.org/cb/..",
			"https://app.example.org/cbx", "https://app.example.org/cb?x=1", "https://app.example.org/cb?",
		},
		"fragment":        {"https://app.example.org/cb#", "https://app.example.org/cb#x", "https://app.example.org/cb;x"},
		"equivalent path": {"https://app.example.org//cb", "https://app.example.org/./cb"},
		"encoding": {
			"https://app.example.org/%63b", "https://app.example.org/c%62", "https://app.example.org%2fcb",
			"https://app.example.org%00.evil.example/cb", "https://app.example.org%252fcb", "https://app%2eexample.org/cb",
		},
		"case": {"https://APP.example.org/cb", "HTTPS://app.example.org/cb", "https://app.example.org/CB"},
		"port": {"https://app.example.org:443/cb", "https://app.example.org:8443/cb", "https://app.example.org:/cb"},
		"userinfo": {
			"https://user@app.example.org/cb", "https://app.example.org@evil.example/cb",
			"https://app.example.org:pass@evil.example/cb",
		},
		"backslash": {
			"https://evil.example\\@app.example.org/cb", "https://evil.example/\\app.example.org/cb",
			"https://evil.example#@app.example.org/cb", "https://evil.example?@app.example.org/cb",
		},
		"longer host":   {"https://app.example.org.evil.example/cb", "https://evil-app.example.org/cb"},
		"subdomain":     {"https://evil.app.example.org/cb"},
		"absolute name": {"https://app.example.org./cb"},
		"scheme": {
			"http://app.example.org/cb", "//app.example.org/cb", "/cb", "app.example.org/cb", "https:/app.example.org/cb",
			"https:///app.example.org/cb", "https:app.example.org/cb",
		},
		"white space":      {" https://app.example.org/cb", "https://app.example.org/cb ", "https://app.example.org/cb\t"},
		"header injection": {"https://app.example.org/cb\r\nSet-Cookie: a=b", "https://app.example.org/cb\x00"},
		"Cyrillic letter":  {"https://аpp.example.org/cb"},
		"script and list": {
			"javascript:alert(1)//app.example.org/cb", "data:text/html,https://app.example.org/cb",
			"https://app.example.org/cb,https://evil.example/", "https://evil.example/https://app.example.org/cb",
			"https://evil.example/?u=https://app.example.org/cb",
		},
		"loopback": {
			"http://127.0.0.1:8000/callback/", "http://127.0.0.1:8000/callback?x", "http://127.0.0.1:8000/Callback",
			"http://127.0.0.1:8000", "http://127.0.0.2:8000/callback", "http://127.0.0.1.evil.example:8000/callback",
			"http://127.0.0.1@evil.example:8000/callback", "http://127.0.0.1:8000@evil.example/callback",
			"http://127.0.0.1:@evil.example/callback", "http://127.1:8000/callback", "http://2130706433:8000/callback",
			"http://0x7f.1:8000/callback", "http://0.0.0.0:8000/callback", "http://[::1]:8000/callback",
			"http://[::ffff:127.0.0.1]:8000/callback", "http://localhost:8000/callback", "http://127.0.0.1:99999/callback",
			"http://127.0.0.1:0/callback", "http://127.0.0.1:-1/callback", "http://127.0.0.1:80a/callback",
			"https://127.0.0.1:8000/callback", "http://127.0.0.1:8000/callback#x", "http://u:p@127.0.0.1:8000/callback",
		},
		"private-use scheme": {
			"cursor://anysphere.cursor/other", "cursor://anysphere.cursor:1/cb", "cursor://evil/anysphere.cursor/cb",
			"cursors://anysphere.cursor/cb", "Cursor://anysphere.cursor/cb", "cursor:anysphere.cursor/cb",
		},
	}
}

func TestManipulatedRedirectURIIsRejected(t *testing.T) {
	t.Parallel()
	s := newServer(t, unlimited)
	registered := []string{"https://app.example.org/cb", "http://127.0.0.1/callback", "cursor://anysphere.cursor/cb"}
	c := oauthtest.Register(t, s, registered...)
	for kind, uris := range tricks() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for _, uri := range uris {
				for _, accept := range []string{"text/html", "application/json"} {
					target := c.AuthorizeURL(challenge(), url.Values{"redirect_uri": {uri}})
					w := send(c.Handler, http.MethodGet, target, "", "Accept: "+accept)
					assert.Equal(t, http.StatusBadRequest, w.Code, "%q", uri)
					assert.Empty(t, w.Header().Get("Location"), "%q", uri)
					assert.NotContains(t, w.Body.String(), "evil", "%q", uri)
				}
			}
		})
	}
	for _, twice := range []url.Values{
		{"redirect_uri": {"https://app.example.org/cb", "https://evil.example/"}}, {"client_id": {c.ID, c.ID}},
	} {
		require.Equal(t, http.StatusBadRequest, c.Authorize(challenge(), twice).Code, twice)
	}
	for _, good := range append(registered, "http://127.0.0.1:1/callback", "http://127.0.0.1:65535/callback", "http://127.0.0.1:080/callback") {
		require.NotEmpty(t, c.Request(challenge(), url.Values{"redirect_uri": {good}}))
	}
	others := oauthtest.Register(t, s, "http://localhost:3000/cb", "http://[::1]:3000/cb")
	for _, good := range []string{"http://localhost/cb", "http://localhost:4000/cb", "http://[::1]/cb", "http://[::1]:4000/cb"} {
		require.NotEmpty(t, others.Request(challenge(), url.Values{"redirect_uri": {good}}))
	}
	for _, bad := range []string{"http://127.0.0.1:3000/cb", "http://LOCALHOST:3000/cb", "http://[0:0:0:0:0:0:0:1]:3000/cb", "http://sub.localhost:3000/cb"} {
		require.Empty(t, others.Authorize(challenge(), url.Values{"redirect_uri": {bad}}).Header().Get("Location"), bad)
	}
}

func TestUnsafeRedirectURICannotBeRegistered(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"", "x", "/cb", "//app.example.org/cb", "https://", "https:///cb", "https://:443/cb", "http://app.example.org/cb",
		"http://10.0.0.1/cb", "http://127.0.0.2/cb", "http://localhost.evil.example/cb", "https://app.example.org/cb#f",
		"https://u@app.example.org/cb", "https://u:p@app.example.org/cb", "https://app.example.org:x/cb", "https://app..org/cb",
		"https://.app.org/cb", "https://*.example.org/cb", "https://app.example.org/\u00e9", "https://app.example.org/c b",
		"https://app.example.org/\\", "https://[::1/cb", "https://[]/cb", "https://[fe80::1%25eth0]/cb", "https://app.example.org%2f/cb",
		"javascript:alert(1)", "javascript://app.example.org/%0aalert(1)", "data:text/html,x", "vbscript:x", "file:///etc/passwd",
		"blob:https://app.example.org/x", "about:blank", "view-source:https://app.example.org", "mailto:a@example.org", "tel:1",
		"ftp://app.example.org/cb", "ws://app.example.org/cb", "intent://x#Intent;end", "chrome-extension://x/cb", "urn:x:y",
		"ms-msdt:/id", "x:cb", "ab://cb", "JavaScript:alert(1)", "Cursor://x/cb", "cursor:", "cursor://u@x/cb", "%6aavascript:alert(1)",
		"https://app.example.org/" + strings.Repeat("a", 1024), "https://app.example.org/cb?iss=https://evil.example", "https://app.example.org/cb?x=1&st%61te=2", "cursor://x/cb?code=1",
		"\x01https://app.example.org/cb", "java\nscript:alert(1)",
	} {
		_, _, err := oauth.CheckRedirectURI(bad)
		require.Error(t, err, "%q", bad)
	}
	for good, want := range map[string]struct {
		display string
		local   bool
	}{
		"https://app.example.org/cb":              {"app.example.org", false},
		"https://app.example.org":                 {"app.example.org", false},
		"https://app.example.org?x=1":             {"app.example.org", false},
		"https://xn--bcher-kva.example:8443/cb":   {"xn--bcher-kva.example:8443", false},
		"https://[2001:db8::1]:8443/cb":           {"[2001:db8::1]:8443", false},
		"http://localhost/cb":                     {"localhost", true},
		"http://127.0.0.1:33418":                  {"127.0.0.1:33418", true},
		"http://[::1]:1/":                         {"[::1]:1", true},
		"cursor://anysphere.cursor-retrieval/a/b": {"cursor:", true},
		"com.example.app:/callback":               {"com.example.app:", true},
		"vscode://host.extension/cb":              {"vscode:", true},
	} {
		display, local, err := oauth.CheckRedirectURI(good)
		require.NoError(t, err, good)
		require.Equal(t, want.display, display)
		require.Equal(t, want.local, local, good)
	}
}

// Anybody can register a client. If its errors were sent to its redirect URI, a link to the gateway would redirect anywhere, or
// have a browser open an application.
func TestErrorsAreNotRedirectedBeforeADecision(t *testing.T) {
	t.Parallel()
	s := newServer(t, unlimited)
	for _, uri := range []string{
		"cursor://anysphere.cursor-mcp/oauth/callback", "vscode://host.extension/cb", "com.example.app:/callback", "https://phish.example/login",
	} {
		t.Run(uri, func(t *testing.T) {
			t.Parallel()
			c := oauthtest.Register(t, s, uri)
			for name, change := range map[string]url.Values{
				"response_type": {"response_type": {"x"}}, "no PKCE": {"code_challenge": nil}, "scope": {"scope": {"x"}},
				"resource": {"resource": {"https://phish.example"}}, "twice": {"state": {"a", "b"}},
				"prompt": {"prompt": {"none"}, "scope": {"x"}}, "request": {"request": {"x"}}, "mode": {"response_mode": {"form_post"}},
			} {
				change.Set("redirect_uri", uri)
				w := c.Authorize(challenge(), change)
				assert.Equal(t, http.StatusBadRequest, w.Code, name)
				assert.Empty(t, w.Header().Get("Location"), name)
				assert.NotContains(t, w.Body.String(), "phish.example", name)
			}
			denied, err := s.Deny(t.Context(), c.Request(challenge(), url.Values{"redirect_uri": {uri}}), oauthtest.Owner())
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(denied.Redirect, uri+"?error=access_denied&"), "after one: %s", denied.Redirect)
		})
	}
}

func TestOnlyAllowedPrivateUseSchemesAreAccepted(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"unheard-of://cb", "zoommtg://cb", "spotify:cb", "slack://cb", "ms-word:ofe|u|x", "ms-teams-x://cb", "x-apple.systempreferences:cb",
		"x.y:/cb", ".com.example:/cb", "com..example:/cb", "com.example.:/cb", "com.-example:/cb", "1com.example:/cb", "com.exam+ple:/cb",
	} {
		_, _, err := oauth.CheckRedirectURI(bad)
		require.Error(t, err, bad)
	}
	for _, good := range []string{
		"claude://cb", "cursor://cb", "raycast://oauth", "vscode://cb", "vscode-insiders://cb", "warp://mcp/oauth2callback", "windsurf://cb",
		"com.raycast:/oauth", "org.example.my-app:/cb", "com.example:/cb",
	} {
		_, local, err := oauth.CheckRedirectURI(good)
		require.NoError(t, err, good)
		require.True(t, local, good)
	}
	_, _, err := oauth.CheckRedirectURI("acme-desk://cb", "acme-desk")
	require.NoError(t, err)
	_, _, err = oauth.CheckRedirectURI("cursor://cb", "acme-desk")
	require.Error(t, err, "a configured list replaces the default one")
	for _, never := range []string{
		"", "ab", "Cursor", "cursor:", "cur sor", "1cursor", "http", "https", "javascript", "data", "vbscript", "file", "filesystem", "blob",
		"view-source", "chrome", "chrome-extension", "edge", "microsoft-edge", "moz-extension", "safari-web-extension", "web+app",
		"ext+app", "intent", "android-app", "market", "mailto", "tel", "sms", "facetime", "facetime-audio", "itms-services", "itms-apps",
		"ms-appinstaller", "ms-msdt", "ms-settings", "ms-officecmd", "ms-word", "ms-excel", "ms-powerpoint", "ms-its", "search-ms",
		"search", "shell", "ssh", "telnet", "smb", "webcal", "x-apple.systempreferences", "x-man-page", "applescript", "shortcuts",
	} {
		_, err := oauth.New(oauth.Options{
			Issuer: issuer, Redis: clientOf(t, shared.Options()), Accounts: newAccounts(),
			Audit: newLog(t, clientOf(t, shared.Options()), "x:"), ClientSchemes: []string{never},
		})
		require.ErrorContains(t, err, "invalid client scheme", never)
	}
}

// Code injection: a stolen code is redeemed in another session, by another client or with another redirect URI.
func TestStolenCodeIsUseless(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	victim, attacker := oauthtest.Register(t, s), oauthtest.Register(t, s)
	verifier, challenged := oauthtest.PKCE()
	other, _ := oauthtest.PKCE()
	code := victim.Code(oauthtest.Owner(), challenged, nil)
	altered := code[:30] + string(code[30]^1) + code[31:]
	elsewhere := url.Values{"redirect_uri": {"http://127.0.0.1:9/callback"}}

	require.Equal(t, "invalid_grant", attacker.Exchange(code, verifier, nil).Error, "another client, even with the verifier")
	require.Equal(t, "invalid_grant", attacker.Exchange(code, other, nil).Error)
	require.Equal(t, "invalid_grant", victim.Exchange(code, other, nil).Error, "another session of the same client")
	require.Equal(t, "invalid_grant", victim.Exchange(code, challenged+"x", nil).Error, "the challenge is not the verifier")
	require.Equal(t, "invalid_request", victim.Exchange(code, "", nil).Error, "no PKCE")
	require.Equal(t, "invalid_grant", victim.Exchange(code, verifier, elsewhere).Error)
	require.Equal(t, "invalid_grant", victim.Exchange(altered, verifier, nil).Error)

	tokens := victim.Exchange(code, verifier, nil)
	require.Equal(t, http.StatusOK, tokens.Status, "the attempts do not harm the client")
	require.Equal(t, "invalid_grant", attacker.Exchange(code, other, nil).Error)
	require.True(t, valid(t, s, tokens.Access), "an attempt that could not redeem the code does not end the connection")

	require.Equal(t, "invalid_grant", victim.Exchange(code, verifier, nil).Error, "a replay")
	require.False(t, valid(t, s, tokens.Access), "a replay ends the connection")
	require.Equal(t, []string{"approved", "started", replayed}, recorded(t, s))
}

// The code contains the id of the request, which whoever began the request knows.
func TestRequestIDDoesNotRevealTheCode(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := oauthtest.Register(t, s)
	verifier, challenged := oauthtest.PKCE()
	id := c.Request(challenged, nil)
	code := oauthtest.CodeOf(t, c.Approve(id, oauthtest.Owner(), scopes(t, "mcp:read")))
	require.NotContains(t, code, id[27:])
	require.Equal(t, "invalid_grant", c.Exchange("gac_"+id[4:], verifier, nil).Error)
	require.Equal(t, http.StatusOK, c.Exchange(code, verifier, nil).Status)
}

func TestTokenForAnotherAudienceIsRejected(t *testing.T) {
	t.Parallel()
	prefix := prefixOf(t)
	on := func(issuer, path string) *oauth.Server {
		return newServer(t, func(o *oauth.Options) { o.Issuer, o.Prefix, o.ResourcePath = issuer, prefix, path })
	}
	mine := on(issuer, "")
	c, tokens := oauthtest.Connect(t, mine, oauthtest.Owner(), "")
	verifier, challenged := oauthtest.PKCE()
	code := c.Code(oauthtest.Owner(), challenged, nil)
	waiting := c.Request(challenged, nil)
	for name, other := range map[string]*oauth.Server{"another host": on("https://other.example.com", ""), "another path": on(issuer, "/other")} {
		require.False(t, valid(t, other, tokens.Access), name)
		require.Equal(t, http.StatusUnauthorized, call(other, tokens.Access).Code, name)
		there := clientWithID(t, other, c.ID)
		require.Equal(t, "invalid_grant", there.Refresh(tokens.Refresh, nil).Error, name)
		require.Equal(t, "invalid_grant", there.Exchange(code, verifier, nil).Error, name)
		_, err := other.Approve(t.Context(), waiting, oauthtest.Owner(), scopes(t, "mcp:read"))
		require.ErrorIs(t, err, oauth.ErrNoRequest, name)
		require.Empty(t, grants(t, other), name)
	}
	require.Equal(t, http.StatusOK, c.Exchange(code, verifier, nil).Status)
	require.True(t, valid(t, mine, tokens.Access))
}

func TestTokenOutsideOfItsHeaderIsRejected(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "")
	protected := s.Protect(http.NotFoundHandler())
	access := "access_token=" + url.QueryEscape(tokens.Access)
	refresh := url.Values{"grant_type": {"refresh_token"}, "client_id": {c.ID}, "refresh_token": {tokens.Refresh}}.Encode()
	for name, test := range map[string]struct {
		handler              http.Handler
		target, body, header string
		status               int
	}{
		"access token in the query": {protected, "/mcp?" + access, "", isForm, http.StatusUnauthorized},
		"in the query and a header": {protected, "/mcp?" + access, "", "Authorization: Bearer " + tokens.Access, http.StatusBadRequest},
		"access token in the body":  {protected, "/mcp", access, isForm, http.StatusUnauthorized},
		"refresh in the query":      {c.Handler, "/oauth/token?" + refresh, "", isForm, http.StatusBadRequest},
		"revocation in the query":   {c.Handler, "/oauth/revoke?token=" + url.QueryEscape(tokens.Access), "", isForm, http.StatusBadRequest},
	} {
		require.Equal(t, test.status, send(test.handler, http.MethodPost, test.target, test.body, test.header).Code, name)
	}
	require.True(t, valid(t, s, tokens.Access))
}

func TestApprovalIsBoundToTheClient(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	trusted, rider := oauthtest.Register(t, s), oauthtest.Register(t, s)
	tokens := trusted.Connect(oauthtest.Owner(), "mcp:use")
	require.Equal(t, "invalid_grant", rider.Refresh(tokens.Refresh, nil).Error)
	require.NotEmpty(t, rider.Request(challenge(), url.Values{"scope": {"mcp:use"}}), "it has to ask for an approval")
	require.NotEmpty(t, trusted.Request(challenge(), url.Values{"scope": {"mcp:use"}}), "and so has the first, every time")
	require.Equal(t, http.StatusOK, trusted.Refresh(tokens.Refresh, nil).Status)
}

// The pages show ids of connections.
func TestConnectionIDAloneGrantsNoAccess(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "")
	id := authenticate(t, s, tokens.Access).ID
	secret := func(n int) string { return base64.RawURLEncoding.EncodeToString(make([]byte, n)) }
	require.False(t, valid(t, s, "gat_"+id+"."+secret(32)))
	require.Equal(t, "invalid_grant", c.Refresh("grt_"+id+"."+secret(48), nil).Error)
	require.Equal(t, "invalid_grant", c.Exchange("gac_"+id+"."+secret(32), strings.Repeat("a", 43), nil).Error)
	require.Equal(t, http.StatusOK, c.Revoke("grt_"+id+"."+secret(48)))
	_, err := s.Pending(t.Context(), "grq_"+id+"."+secret(32))
	require.ErrorIs(t, err, oauth.ErrNoRequest)
	require.True(t, valid(t, s, tokens.Access))
	require.Equal(t, http.StatusOK, c.Refresh(tokens.Refresh, nil).Status)
	// A second encoding of the same bytes is another token.
	all, last := tokens.Access[:len(tokens.Access)-1], tokens.Access[len(tokens.Access)-1]
	for _, other := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" {
		require.Equal(t, byte(other) == last, valid(t, s, all+string(other)), "%c", other)
	}
}
