package oauth_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/internal/test/connecttest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/oauthtest"
)

// vectors are the redirect URIs of testdata/redirect_uris.json.
type vectors struct {
	Tricks        map[string][]string `json:"not the registered one"` // by kind
	Never         []string            `json:"never registered"`
	OtherScheme   []string            `json:"not an allowed scheme"`
	AllowedScheme []string            `json:"allowed scheme"`
	NeverOption   []string            `json:"never an option"` // for client schemes
	Registered    map[string]registeredURI
}

type registeredURI struct {
	Display string
	Local   bool
}

func redirectURIs(t testing.TB) vectors {
	t.Helper()
	raw, err := os.ReadFile("testdata/redirect_uris.json")
	require.NoError(t, err)
	var v vectors
	require.NoError(t, json.Unmarshal(raw, &v))
	return v
}

func TestManipulatedRedirectURIIsRejected(t *testing.T) {
	t.Parallel()
	s := newServer(t, unlimited)
	registered := []string{"https://app.example.org/cb", "http://127.0.0.1/callback", "cursor://anysphere.cursor/cb"}
	c := oauthtest.Register(t, s, registered...)
	for kind, uris := range redirectURIs(t).Tricks {
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
		assert.Equal(t, http.StatusBadRequest, c.Authorize(challenge(), twice).Code, twice)
	}
	for _, good := range append(registered, "http://127.0.0.1:1/callback", "http://127.0.0.1:65535/callback", "http://127.0.0.1:080/callback") {
		assert.NotEmpty(t, c.Request(challenge(), url.Values{"redirect_uri": {good}}))
	}
	others := oauthtest.Register(t, s, "http://localhost:3000/cb", "http://[::1]:3000/cb")
	for _, good := range []string{"http://localhost/cb", "http://localhost:4000/cb", "http://[::1]/cb", "http://[::1]:4000/cb"} {
		assert.NotEmpty(t, others.Request(challenge(), url.Values{"redirect_uri": {good}}))
	}
	for _, bad := range []string{"http://127.0.0.1:3000/cb", "http://LOCALHOST:3000/cb", "http://[0:0:0:0:0:0:0:1]:3000/cb", "http://sub.localhost:3000/cb"} {
		assert.Empty(t, others.Authorize(challenge(), url.Values{"redirect_uri": {bad}}).Header().Get("Location"), bad)
	}
}

func TestUnsafeRedirectURICannotBeRegistered(t *testing.T) {
	t.Parallel()
	uris := redirectURIs(t)
	label := strings.Repeat("a", 63)
	for _, bad := range append(uris.Never, "https://app.example.org/"+strings.Repeat("a", 1024), "https://a"+label+".example/cb",
		"https://"+strings.Repeat(label+".", 3)+label[:62]+".example/cb",
		// for browsers, addresses of the user's own machine
		"https://127.1/cb", "https://127.1:8443/cb", "https://2130706433/cb", "https://0x7f.1/cb", "https://0X7F000001/cb", "https://0177.0.0.1/cb",
		"https://127.0.0.0x1/cb", "https://127.0x/cb", "https://127.1./cb", "https://app.example.1/cb", "https://256.0.0.1/cb") {
		_, _, err := oauth.CheckRedirectURI(bad)
		assert.Error(t, err, "%q", bad)
	}
	uris.Registered["https://"+strings.Repeat(label+".", 3)+label[:53]+".example:8443/cb"] = registeredURI{
		Display: strings.Repeat(label+".", 3) + label[:53] + ".example:8443",
	}
	for good, want := range uris.Registered {
		display, local, err := oauth.CheckRedirectURI(good)
		require.NoError(t, err, good)
		assert.Equal(t, want.Display, display)
		assert.Equal(t, want.Local, local, good)
	}
}

// Anyone can register a client. If its errors were sent to its redirect URI, the gateway would be an open redirector, also to
// applications.
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
			assert.True(t, strings.HasPrefix(denied, uri+"?error=access_denied&"), "after a decision: %s", denied)
		})
	}
}

func TestOnlyAllowedPrivateUseSchemesAreAccepted(t *testing.T) {
	t.Parallel()
	uris := redirectURIs(t)
	for _, bad := range uris.OtherScheme {
		_, _, err := oauth.CheckRedirectURI(bad)
		assert.Error(t, err, bad)
	}
	for _, good := range uris.AllowedScheme {
		_, local, err := oauth.CheckRedirectURI(good)
		require.NoError(t, err, good)
		assert.True(t, local, good)
	}
	_, _, err := oauth.CheckRedirectURI("acme-desk://cb", "acme-desk")
	require.NoError(t, err)
	_, _, err = oauth.CheckRedirectURI("cursor://cb", "acme-desk")
	require.Error(t, err, "a configured list replaces the default one")
	for _, never := range uris.NeverOption {
		_, err := oauth.New(oauth.Options{
			Issuer: issuer, Redis: clientOf(t, shared.Options()), Accounts: newAccounts(), Areas: connecttest.Areas(t),
			Audit: newLog(t, clientOf(t, shared.Options()), "x:"), ClientSchemes: []string{never},
		})
		assert.ErrorContains(t, err, "invalid client scheme", never)
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
	assert.Equal(t, http.StatusOK, tokens.Status, "the attempts do not harm the client")
	assert.Equal(t, "invalid_grant", attacker.Exchange(code, other, nil).Error)
	assert.Equal(t, "invalid_grant", attacker.Refresh(tokens.Refresh, nil).Error)
	require.True(t, valid(t, s, tokens.Access), "an attempt that could not redeem the code does not end the connection")

	assert.Equal(t, "invalid_grant", victim.Exchange(code, verifier, nil).Error, "a replay")
	assert.False(t, valid(t, s, tokens.Access), "a replay ends the connection")
	assert.Equal(t, []string{"approved", "started", replayed}, recorded(t, s))
}

// The code contains the id of the request, which the initiator of the request knows.
func TestRequestIDDoesNotRevealTheCode(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := oauthtest.Register(t, s)
	verifier, challenged := oauthtest.PKCE()
	id := c.Request(challenged, nil)
	code := oauthtest.CodeOf(t, c.Approve(id, oauthtest.Owner(), scopes(t, "mcp:read")))
	assert.NotContains(t, code, id[27:])
	assert.Equal(t, "invalid_grant", c.Exchange("gac_"+id[4:], verifier, nil).Error)
	assert.Equal(t, http.StatusOK, c.Exchange(code, verifier, nil).Status)
}

func TestTokenForAnotherAudienceIsRejected(t *testing.T) {
	t.Parallel()
	prefix := prefixOf(t)
	on := func(issuer string) *oauth.Server {
		return newServer(t, func(o *oauth.Options) { o.Issuer, o.Prefix = issuer, prefix })
	}
	mine := on(issuer)
	c, tokens := oauthtest.Connect(t, mine, oauthtest.Owner(), "")
	verifier, challenged := oauthtest.PKCE()
	code := c.Code(oauthtest.Owner(), challenged, nil)
	waiting := c.Request(challenged, nil)
	other := on("https://other.example.com")
	require.False(t, valid(t, other, tokens.Access))
	require.Equal(t, http.StatusUnauthorized, call(other, tokens.Access).Code)
	there := clientWithID(t, other, c.ID)
	require.Equal(t, "invalid_grant", there.Refresh(tokens.Refresh, nil).Error)
	require.Equal(t, "invalid_grant", there.Exchange(code, verifier, nil).Error)
	_, err := other.Approve(t.Context(), waiting, oauthtest.Owner(), scopes(t, "mcp:read"))
	require.ErrorIs(t, err, oauth.ErrNoRequest)
	assert.Empty(t, grants(t, other))
	assert.Equal(t, http.StatusOK, c.Exchange(code, verifier, nil).Status)
	assert.True(t, valid(t, mine, tokens.Access))
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
		assert.Equal(t, test.status, send(test.handler, http.MethodPost, test.target, test.body, test.header).Code, name)
	}
	require.True(t, valid(t, s, tokens.Access))
}

// The pages show the ids of connections.
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
		assert.Equal(t, byte(other) == last, valid(t, s, all+string(other)), "%c", other)
	}
}
