package oauth_test

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/internal/test/oauthtest"
)

// tricks are redirect URIs that look like a registered one and are not.
func tricks() []string {
	return []string{
		"https://app.example.org",                            // prefix
		"https://app.example.org/",                           //
		"https://app.example.org/c",                          //
		"https://app.example.org/cb/",                        // suffixes
		"https://app.example.org/cb/../evil",                 //
		"https://app.example.org/cb/..",                      //
		"https://app.example.org/cbx",                        //
		"https://app.example.org/cb?x=1",                     //
		"https://app.example.org/cb?",                        //
		"https://app.example.org/cb#",                        // fragments
		"https://app.example.org/cb#x",                       //
		"https://app.example.org/cb;x",                       //
		"https://app.example.org//cb",                        // paths that servers may take for the same
		"https://app.example.org/./cb",                       //
		"https://app.example.org/%63b",                       // encoded
		"https://app.example.org/c%62",                       //
		"https://app.example.org%2fcb",                       //
		"https://app.example.org%00.evil.example/cb",         //
		"https://app.example.org%252fcb",                     //
		"https://app%2eexample.org/cb",                       //
		"https://APP.example.org/cb",                         // case
		"HTTPS://app.example.org/cb",                         //
		"https://app.example.org/CB",                         //
		"https://app.example.org:443/cb",                     // ports
		"https://app.example.org:8443/cb",                    //
		"https://app.example.org:/cb",                        //
		"https://user@app.example.org/cb",                    // userinfo
		"https://app.example.org@evil.example/cb",            //
		"https://app.example.org:pass@evil.example/cb",       //
		"https://evil.example\\@app.example.org/cb",          // backslashes
		"https://evil.example/\\app.example.org/cb",          //
		"https://evil.example#@app.example.org/cb",           //
		"https://evil.example?@app.example.org/cb",           //
		"https://app.example.org.evil.example/cb",            // suffix of the host
		"https://evil-app.example.org/cb",                    //
		"https://evil.app.example.org/cb",                    // subdomain
		"https://app.example.org./cb",                        // absolute name
		"http://app.example.org/cb",                          // scheme
		"//app.example.org/cb",                               //
		"/cb",                                                //
		"app.example.org/cb",                                 //
		"https:/app.example.org/cb",                          //
		"https:///app.example.org/cb",                        //
		"https:app.example.org/cb",                           //
		" https://app.example.org/cb",                        // white space
		"https://app.example.org/cb ",                        //
		"https://app.example.org/cb\t",                       //
		"https://app.example.org/cb\r\nSet-Cookie: a=b",      // header injection
		"https://app.example.org/cb\x00",                     //
		"https://аpp.example.org/cb",                         // a Cyrillic а
		"javascript:alert(1)//app.example.org/cb",            // schemes
		"data:text/html,https://app.example.org/cb",          //
		"https://app.example.org/cb,https://evil.example/",   //
		"https://evil.example/https://app.example.org/cb",    //
		"https://evil.example/?u=https://app.example.org/cb", //
		"http://127.0.0.1:8000/callback/",                    // loopback: the port is free and nothing else
		"http://127.0.0.1:8000/callback?x",                   //
		"http://127.0.0.1:8000/Callback",                     //
		"http://127.0.0.1:8000",                              //
		"http://127.0.0.2:8000/callback",                     //
		"http://127.0.0.1.evil.example:8000/callback",        //
		"http://127.0.0.1@evil.example:8000/callback",        //
		"http://127.0.0.1:8000@evil.example/callback",        //
		"http://127.0.0.1:@evil.example/callback",            //
		"http://127.1:8000/callback",                         //
		"http://2130706433:8000/callback",                    //
		"http://0x7f.1:8000/callback",                        //
		"http://0.0.0.0:8000/callback",                       //
		"http://[::1]:8000/callback",                         //
		"http://[::ffff:127.0.0.1]:8000/callback",            //
		"http://localhost:8000/callback",                     //
		"http://127.0.0.1:99999/callback",                    //
		"http://127.0.0.1:0/callback",                        //
		"http://127.0.0.1:-1/callback",                       //
		"http://127.0.0.1:80a/callback",                      //
		"https://127.0.0.1:8000/callback",                    //
		"http://127.0.0.1:8000/callback#x",                   //
		"http://u:p@127.0.0.1:8000/callback",                 //
		"cursor://anysphere.cursor/other",                    // claimed schemes are exact
		"cursor://anysphere.cursor:1/cb",                     //
		"cursor://evil/anysphere.cursor/cb",                  //
		"cursors://anysphere.cursor/cb",                      //
		"Cursor://anysphere.cursor/cb",                       //
		"cursor:anysphere.cursor/cb",                         //
	}
}

func TestManipulatedRedirectURIIsRejected(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *oauth.Options) { o.Limits.Authorizations = limit(1000, 1e9) })
	registered := []string{"https://app.example.org/cb", "http://127.0.0.1/callback", "cursor://anysphere.cursor/cb"}
	c := oauthtest.Register(t, s, registered...)
	for _, trick := range tricks() {
		for _, accept := range []string{"text/html", "application/json"} {
			r := httptest.NewRequest(http.MethodGet, c.AuthorizeURL(challenge(), url.Values{"redirect_uri": {trick}}), http.NoBody)
			r.Header.Set("Accept", accept)
			w := c.Do(r)
			require.Equal(t, http.StatusBadRequest, w.Code, "%q", trick)
			require.Empty(t, w.Header().Get("Location"), "%q", trick)
			require.NotContains(t, w.Body.String(), "evil", "%q", trick)
		}
	}
	both := c.Authorize(challenge(), url.Values{"redirect_uri": {"https://app.example.org/cb", "https://evil.example/"}})
	require.Equal(t, http.StatusBadRequest, both.Code)
	both = c.Authorize(challenge(), url.Values{"client_id": {c.ID, c.ID}})
	require.Equal(t, http.StatusBadRequest, both.Code)
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

// Anybody can register a client: if its errors were sent to wherever it likes, a link to the gateway would be a link to
// there.
func TestNoOpenRedirectBeforeApproval(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := oauthtest.Register(t, s, "https://phish.example/login")
	for name, change := range map[string]url.Values{
		"response_type": {"response_type": {"x"}}, "no PKCE": {"code_challenge": nil}, "scope": {"scope": {"x"}},
		"resource": {"resource": {"https://phish.example"}}, "twice": {"state": {"a", "b"}}, "prompt": {"prompt": {"none"}, "scope": {"x"}},
		"request": {"request": {"x"}}, "mode": {"response_mode": {"form_post"}},
	} {
		change.Set("redirect_uri", "https://phish.example/login")
		w := c.Authorize(challenge(), change)
		require.Equal(t, http.StatusBadRequest, w.Code, name)
		require.Empty(t, w.Header().Get("Location"), name)
		require.NotContains(t, w.Body.String(), "phish.example")
	}
	w := c.Authorize(challenge(), url.Values{"redirect_uri": {"https://phish.example/login"}})
	require.True(t, strings.HasPrefix(w.Header().Get("Location"), "/oauth/approve?request="), "in order: to the gateway's own page")
}

// An error is nobody's decision: it must not have a browser open an application, whichever has claimed the scheme.
func TestErrorsAreNotRedirectedBeforeADecision(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for _, uri := range []string{
		"cursor://anysphere.cursor-mcp/oauth/callback", "vscode://host.extension/cb", "com.example.app:/callback", "https://app.example.org/cb",
	} {
		c := oauthtest.Register(t, s, uri)
		for name, change := range map[string]url.Values{
			"scope": {"scope": {"x"}}, "no PKCE": {"code_challenge": nil}, "twice": {"state": {"a", "b"}},
		} {
			change.Set("redirect_uri", uri)
			w := c.Authorize(challenge(), change)
			require.Equal(t, http.StatusBadRequest, w.Code, "%s: %s", uri, name)
			require.Empty(t, w.Header().Get("Location"), "%s: %s", uri, name)
		}
		denied, err := s.Deny(t.Context(), c.Request(challenge(), url.Values{"redirect_uri": {uri}}), oauthtest.Owner())
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(denied.Redirect, uri+"?error=access_denied&"), "after one everything goes there: %s", denied.Redirect)
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
	require.Error(t, err, "a list of one's own takes the place of the default one")
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

// Code injection: a code that was stolen from one client's response is brought to another session, client or redirect.
func TestStolenCodeIsUseless(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newServer(t)
	victim, attacker := oauthtest.Register(t, s), oauthtest.Register(t, s)
	verifier, challenged := oauthtest.PKCE()
	other, _ := oauthtest.PKCE()
	code := victim.Code(oauthtest.Owner(), challenged, nil)

	require.Equal(t, "invalid_grant", attacker.Exchange(code, verifier, nil).Error, "another client, even with the verifier")
	require.Equal(t, "invalid_grant", attacker.Exchange(code, other, nil).Error)
	require.Equal(t, "invalid_grant", victim.Exchange(code, other, nil).Error, "another session of the same client")
	require.Equal(t, "invalid_grant", victim.Exchange(code, challenged+"x", nil).Error, "the challenge is not the verifier")
	require.Equal(t, "invalid_request", victim.Exchange(code, "", nil).Error, "no PKCE")
	require.Equal(t, "invalid_grant", victim.Exchange(code, verifier, url.Values{"redirect_uri": {"http://127.0.0.1:9/callback"}}).Error)
	altered := code[:30] + string(code[30]^1) + code[31:]
	require.Equal(t, "invalid_grant", victim.Exchange(altered, verifier, nil).Error)

	tokens := victim.Exchange(code, verifier, nil)
	require.Equal(t, http.StatusOK, tokens.Status, "none of that has harmed the client that it is for")
	require.Equal(t, "invalid_grant", attacker.Exchange(code, other, nil).Error)
	_, err := s.Authenticate(ctx, tokens.Access)
	require.NoError(t, err, "nor does it afterwards: who cannot redeem a code cannot end a connection with it")

	require.Equal(t, "invalid_grant", victim.Exchange(code, verifier, nil).Error, "a replay")
	_, err = s.Authenticate(ctx, tokens.Access)
	require.ErrorIs(t, err, oauth.ErrInvalidToken, "ends the connection")
	require.Equal(t, []string{"approved", "started", replayed}, recorded(t, s))
}

// Who began the request knows its id, and so half of what the code is made of. It is not enough.
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

// PKCE downgrade: whatever an attacker takes out of the authorization request, there is no flow without S256.
func TestPKCEIsRequired(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := oauthtest.Register(t, s)
	verifier, challenged := oauthtest.PKCE()
	for name, change := range map[string]url.Values{
		"nothing": {"code_challenge": nil, "code_challenge_method": nil},
		"plain":   {"code_challenge": {verifier}, "code_challenge_method": {"plain"}},
		"default": {"code_challenge": {challenged}, "code_challenge_method": nil},
		"empty":   {"code_challenge": {""}, "code_challenge_method": {"S256"}},
	} {
		u, err := url.Parse(c.Authorize(challenged, change).Header().Get("Location"))
		require.NoError(t, err)
		require.Equal(t, "invalid_request", u.Query().Get("error"), name)
	}
	code := c.Code(oauthtest.Owner(), challenged, nil)
	require.NotEqual(t, http.StatusOK, c.Exchange(code, challenged, url.Values{"code_challenge_method": {"plain"}}).Status)
}

// Mix-up: a client that talks to two servers can tell from iss whose response it got.
func TestEveryAuthorizationResponseHasIss(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := oauthtest.Register(t, s)
	denied, err := s.Deny(t.Context(), c.Request(challenge(), nil), oauthtest.Owner())
	require.NoError(t, err)
	for name, response := range map[string]string{
		"code":   c.Approve(c.Request(challenge(), nil), oauthtest.Owner(), scopes(t, "mcp:read")),
		"denied": denied.Redirect,
		"error":  c.Authorize("x", nil).Header().Get("Location"),
		"given":  c.Authorize("x", url.Values{"iss": {"https://evil.example"}}).Header().Get("Location"),
	} {
		u, err := url.Parse(response)
		require.NoError(t, err)
		require.Equal(t, []string{issuer}, u.Query()["iss"], name)
	}
}

func TestTokenForAnotherAudienceIsRejected(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	prefix := prefixOf(t)
	on := func(issuer, path string) *oauth.Server {
		return newServer(t, func(o *oauth.Options) { o.Issuer, o.Prefix, o.ResourcePath = issuer, prefix, path })
	}
	mine, host, path := on(issuer, ""), on("https://other.example.com", ""), on(issuer, "/other")
	c, tokens := oauthtest.Connect(t, mine, oauthtest.Owner(), "")
	verifier, challenged := oauthtest.PKCE()
	code := c.Code(oauthtest.Owner(), challenged, nil)
	waiting := c.Request(challenged, nil)
	for _, other := range []*oauth.Server{host, path} {
		_, err := other.Authenticate(ctx, tokens.Access)
		require.ErrorIs(t, err, oauth.ErrInvalidToken)
		w := call(other.Protect(http.NotFoundHandler()), "Bearer "+tokens.Access)
		require.Equal(t, http.StatusUnauthorized, w.Code)
		there := &oauthtest.Client{TB: t, Server: other, Handler: other.Handler(), ID: c.ID}
		require.Equal(t, "invalid_grant", there.Refresh(tokens.Refresh, nil).Error)
		require.Equal(t, "invalid_grant", there.Exchange(code, verifier, nil).Error)
		_, err = other.Approve(ctx, waiting, oauthtest.Owner(), scopes(t, "mcp:read"))
		require.ErrorIs(t, err, oauth.ErrNoRequest)
		grants, err := other.Grants(ctx, "biz-1")
		require.NoError(t, err)
		require.Empty(t, grants)
	}
	require.Equal(t, http.StatusOK, c.Exchange(code, verifier, nil).Status)
	_, err := mine.Authenticate(ctx, tokens.Access)
	require.NoError(t, err)
}

func TestTokenInQueryIsRejected(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "")
	h := s.Protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was let through") }))
	r := httptest.NewRequest(http.MethodPost, "/mcp?access_token="+url.QueryEscape(tokens.Access), http.NoBody)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, http.StatusUnauthorized, w.Code)
	r.Header.Set("Authorization", "Bearer "+tokens.Access)
	w = httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, http.StatusBadRequest, w.Code, "not even beside the one in the header")
	body := withType(httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader("access_token="+url.QueryEscape(tokens.Access))),
		"application/x-www-form-urlencoded")
	require.Equal(t, http.StatusUnauthorized, func() int { w := httptest.NewRecorder(); h.ServeHTTP(w, body); return w.Code }())

	refresh := url.Values{"grant_type": {"refresh_token"}, "client_id": {c.ID}, "refresh_token": {tokens.Refresh}}
	w = c.Do(withType(httptest.NewRequest(http.MethodPost, "/oauth/token?"+refresh.Encode(), http.NoBody), "application/x-www-form-urlencoded"))
	require.Equal(t, http.StatusBadRequest, w.Code, "nor at the token endpoint")
	w = c.Do(withType(httptest.NewRequest(http.MethodPost, "/oauth/revoke?token="+url.QueryEscape(tokens.Access), http.NoBody), "application/x-www-form-urlencoded"))
	require.Equal(t, http.StatusBadRequest, w.Code)
	_, err := s.Authenticate(t.Context(), tokens.Access)
	require.NoError(t, err)
}

// A consent is one client's: a second one cannot ride on it, whatever it knows.
func TestApprovalIsBoundToTheClient(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	trusted, rider := oauthtest.Register(t, s), oauthtest.Register(t, s)
	tokens := trusted.Connect(oauthtest.Owner(), "mcp:use")
	require.Equal(t, "invalid_grant", rider.Refresh(tokens.Refresh, nil).Error)
	w := rider.Authorize(challenge(), url.Values{"scope": {"mcp:use"}})
	require.True(t, strings.HasPrefix(w.Header().Get("Location"), "/oauth/approve?"), "it has to ask by itself")
	again := trusted.Authorize(challenge(), url.Values{"scope": {"mcp:use"}})
	require.True(t, strings.HasPrefix(again.Header().Get("Location"), "/oauth/approve?"), "and so has the first, every time")
	require.Equal(t, http.StatusOK, trusted.Refresh(tokens.Refresh, nil).Status)
}

// Ids of connections are seen on pages: who knows one can neither make a token of it nor end it.
func TestConnectionIDAloneGrantsNoAccess(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newServer(t)
	c, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "")
	grant, err := s.Authenticate(ctx, tokens.Access)
	require.NoError(t, err)
	secret := func(n int) string { return base64.RawURLEncoding.EncodeToString(make([]byte, n)) }
	_, err = s.Authenticate(ctx, "gat_"+grant.ID+"."+secret(32))
	require.ErrorIs(t, err, oauth.ErrInvalidToken)
	require.Equal(t, "invalid_grant", c.Refresh("grt_"+grant.ID+"."+secret(48), nil).Error)
	require.Equal(t, "invalid_grant", c.Exchange("gac_"+grant.ID+"."+secret(32), strings.Repeat("a", 43), nil).Error)
	require.Equal(t, http.StatusOK, c.Revoke("grt_"+grant.ID+"."+secret(48)))
	_, err = s.Pending(ctx, "grq_"+grant.ID+"."+secret(32))
	require.ErrorIs(t, err, oauth.ErrNoRequest)
	_, err = s.Authenticate(ctx, tokens.Access)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, c.Refresh(tokens.Refresh, nil).Status)
	// A second encoding of the same bytes is another token.
	last := tokens.Access[len(tokens.Access)-1]
	for _, other := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" {
		if byte(other) != last {
			_, err := s.Authenticate(ctx, tokens.Access[:len(tokens.Access)-1]+string(other))
			require.ErrorIs(t, err, oauth.ErrInvalidToken)
		}
	}
}
