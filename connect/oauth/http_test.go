package oauth_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/internal/test/oauthtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/transcript"
)

func TestTranscripts(t *testing.T) {
	t.Parallel()
	s := newServer(t, unlimited, func(o *oauth.Options) { o.ResourceName = "Example business" })
	mux := http.NewServeMux()
	mux.Handle("/", s.Handler())
	// The approval page's form, sent by an owner. Without a scope it denies the request.
	mux.HandleFunc("POST /oauth/approve", func(w http.ResponseWriter, r *http.Request) {
		id, granted := r.FormValue("request"), scopes(t, r.FormValue("scope"))
		redirect, err := s.Approve(r.Context(), id, oauthtest.Owner(), granted)
		if granted.IsZero() {
			redirect, err = s.Deny(r.Context(), id, oauthtest.Owner())
		}
		assert.NoError(t, err)
		http.Redirect(w, r, redirect, http.StatusSeeOther)
	})
	mux.Handle("/mcp", s.Protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		grant, _ := oauth.GrantFrom(r.Context())
		if r.Method == http.MethodPost && !grant.Scopes.Allows("contacts:read") {
			s.InsufficientScope(w.Header(), "contacts:read", "business:read", "no such scope")
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = fmt.Fprintf(w, "%s may use %s\n", grant.ClientName, grant.Scopes)
	})))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	transcript.RunAll(t, "testdata/transcripts/*.txtar", server.Listener.Addr().String(), map[string]string{
		"verifier": "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk", "challenge": "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
	})
}

func TestMethodsAndCORS(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	do := func(method, path string) *httptest.ResponseRecorder {
		return send(s.Handler(), method, path, "", "Origin: https://inspector.example", "Access-Control-Request-Method: POST")
	}
	allow := map[string]string{
		"/.well-known/oauth-authorization-server":   "GET, HEAD, OPTIONS",
		"/.well-known/openid-configuration":         "GET, HEAD, OPTIONS",
		"/.well-known/oauth-protected-resource":     "GET, HEAD, OPTIONS",
		"/.well-known/oauth-protected-resource/mcp": "GET, HEAD, OPTIONS",
		"/oauth/authorize":                          "GET, HEAD, POST, OPTIONS",
		"/oauth/token":                              "POST, OPTIONS",
		"/oauth/revoke":                             "POST, OPTIONS",
		"/oauth/register":                           "POST, OPTIONS",
	}
	require.Len(t, s.Paths(), len(allow))
	for _, path := range s.Paths() {
		w := do(http.MethodOptions, path)
		require.Equal(t, http.StatusNoContent, w.Code)
		require.Equal(t, allow[path], w.Header().Get("Allow"))
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, "BREW"} {
			w := do(method, path)
			if strings.Contains(allow[path], method) {
				require.NotEqual(t, http.StatusMethodNotAllowed, w.Code, "%s %s", method, path)
			} else {
				require.Equal(t, http.StatusMethodNotAllowed, w.Code, "%s %s", method, path)
				require.Equal(t, allow[path], w.Header().Get("Allow"))
				require.Contains(t, w.Body.String(), `"error":"invalid_request"`)
			}
			if path == "/oauth/authorize" {
				require.Empty(t, w.Header().Get("Access-Control-Allow-Origin"), "a user's browser goes there, no script does")
				continue
			}
			assert.Equal(t, "*", w.Header().Get("Access-Control-Allow-Origin"), "%s %s", method, path)
			assert.Contains(t, w.Header().Get("Access-Control-Expose-Headers"), "WWW-Authenticate")
			assert.Empty(t, w.Header().Get("Access-Control-Allow-Credentials"))
		}
		if path != "/oauth/authorize" {
			require.Equal(t, allow[path], w.Header().Get("Access-Control-Allow-Methods"))
			require.Contains(t, w.Header().Get("Access-Control-Allow-Headers"), "Content-Type")
			require.Contains(t, w.Header().Get("Access-Control-Allow-Headers"), "MCP-Protocol-Version")
		}
	}
	for _, path := range []string{
		"/", "/oauth", "/oauth/token/", "/oauth//token", "/OAuth/token", "/oauth/tok%65n", "/oauth/../oauth/token",
		"/.well-known/oauth-protected-resource/other", "/.well-known/oauth-authorization-server/mcp", "/oauth/introspect",
	} {
		assert.Equal(t, http.StatusNotFound, do(http.MethodGet, path).Code, path)
	}
}

func TestInvalidTokenRequests(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := oauthtest.Register(t, s)
	verifier, challenge := oauthtest.PKCE()
	code := c.Code(oauthtest.Owner(), challenge, nil)
	good := url.Values{
		"grant_type": {"authorization_code"}, "client_id": {c.ID}, "redirect_uri": {oauthtest.Callback}, "code": {code},
		"code_verifier": {verifier},
	}
	requireNotCached := func(w *httptest.ResponseRecorder) {
		require.Equal(t, "application/json", w.Header().Get("Content-Type"))
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
		require.Equal(t, "no-cache", w.Header().Get("Pragma"))
	}
	for name, test := range map[string]struct {
		change url.Values
		want   string
	}{
		"no grant_type":                    {url.Values{"grant_type": nil}, "400 invalid_request"},
		"an empty grant_type":              {url.Values{"grant_type": {""}}, "400 invalid_request"},
		"another grant_type":               {url.Values{"grant_type": {"password"}}, "400 unsupported_grant_type"},
		"client credentials":               {url.Values{"grant_type": {"client_credentials"}}, "400 unsupported_grant_type"},
		"no client_id":                     {url.Values{"client_id": nil}, "400 invalid_request"},
		"an unknown client":                {url.Values{"client_id": {"gcl_AAAAAAAAAAAAAAAAAAAAAA"}}, "400 invalid_client"},
		"a client that is none":            {url.Values{"client_id": {"x"}}, "400 invalid_client"},
		"a URL that is no client":          {url.Values{"client_id": {"https://example.com/"}}, "400 invalid_client"},
		"another document's client":        {url.Values{"client_id": {"https://example.com/c.json"}}, "400 invalid_grant"},
		"a secret":                         {url.Values{"client_secret": {"s"}}, "400 invalid_client"},
		"no code":                          {url.Values{"code": nil}, "400 invalid_request"},
		"no verifier":                      {url.Values{"code_verifier": nil}, "400 invalid_request"},
		"a short verifier":                 {url.Values{"code_verifier": {"abc"}}, "400 invalid_request"},
		"a long verifier":                  {url.Values{"code_verifier": {strings.Repeat("a", 129)}}, "400 invalid_request"},
		"a verifier with other characters": {url.Values{"code_verifier": {strings.Repeat("a", 43) + "+"}}, "400 invalid_request"},
		"another verifier":                 {url.Values{"code_verifier": {strings.Repeat("a", 43)}}, "400 invalid_grant"},
		"another redirect_uri":             {url.Values{"redirect_uri": {"http://127.0.0.1:1/callback"}}, "400 invalid_grant"},
		"another resource":                 {url.Values{"resource": {"https://other.example/mcp"}}, "400 invalid_target"},
		"one resource of two":              {url.Values{"resource": {issuer + "/mcp", "https://other.example/mcp"}}, "400 invalid_target"},
		"the code twice":                   {url.Values{"code": {code, code}}, "400 invalid_request"},
		"an unknown parameter twice":       {url.Values{"foo": {"1", "2"}}, "400 invalid_request"},
		"the challenge as a plain verifier": {
			url.Values{"code_verifier": {challenge}, "code_challenge_method": {"plain"}}, "400 invalid_grant",
		},
	} {
		values := maps.Clone(good)
		maps.Copy(values, test.change)
		w := c.Post("/oauth/token", values)
		assert.Equal(t, test.want, oauthError(t, w), name)
		requireNotCached(w)
	}
	for name, test := range map[string]struct{ query, body, contentType string }{
		"no content type": {"", good.Encode(), "X-None: "},
		"in the query":    {"?" + good.Encode(), "", isForm},
		"JSON":            {"", `{"grant_type":"authorization_code"}`, isJSON},
		"multipart":       {"", "--x--", "Content-Type: multipart/form-data; boundary=x"},
		"not a form":      {"", "a=%zz", isForm},
		"semicolons":      {"", "a=1;b=2", isForm},
	} {
		w := send(c.Handler, http.MethodPost, "/oauth/token"+test.query, test.body, test.contentType)
		assert.Equal(t, "400 invalid_request", oauthError(t, w), name)
		requireNotCached(w)
	}
	broken := httptest.NewRequest(http.MethodPost, "/oauth/token", io.MultiReader(strings.NewReader("grant_type=x"), iotest.ErrReader(errors.New("gone"))))
	broken.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	require.Equal(t, "400 invalid_request", oauthError(t, c.Do(broken)))
	large := c.Post("/oauth/token", url.Values{"grant_type": {"authorization_code"}, "code": {strings.Repeat("a", 100<<10)}})
	require.Equal(t, http.StatusRequestEntityTooLarge, large.Code)
	basic := send(c.Handler, http.MethodPost, "/oauth/token", good.Encode(), isForm, "Authorization: Basic Og==")
	require.Equal(t, http.StatusUnauthorized, basic.Code)
	require.Contains(t, basic.Header().Get("WWW-Authenticate"), "Basic")

	// The code is still unused.
	w := c.Post("/oauth/token", good)
	require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
	requireNotCached(w)
}

func TestResourceIsOptionalAndMayBeRepeated(t *testing.T) {
	t.Parallel()
	c := oauthtest.Register(t, newServer(t))
	for _, resource := range [][]string{nil, {""}, {issuer + "/mcp"}, {issuer + "/mcp", issuer + "/mcp"}, {"HTTPS://Gateway.Example.com/mcp/"}} {
		verifier, challenge := oauthtest.PKCE()
		code := c.Code(oauthtest.Owner(), challenge, url.Values{"resource": resource})
		tokens := c.Exchange(code, verifier, url.Values{"resource": resource})
		assert.Equal(t, http.StatusOK, tokens.Status, "%v: %s", resource, tokens.ErrorDescription)
	}
}

func TestInvalidAuthorizationRequests(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := oauthtest.Register(t, s)
	challenge := challenge()
	for name, test := range map[string]struct {
		change url.Values
		code   string
	}{
		"no response_type":                      {url.Values{"response_type": nil}, "invalid_request"},
		"the implicit grant":                    {url.Values{"response_type": {"token"}}, "unsupported_response_type"},
		"the hybrid flow":                       {url.Values{"response_type": {"code id_token"}}, "unsupported_response_type"},
		"the fragment":                          {url.Values{"response_mode": {"fragment"}}, "invalid_request"},
		"no PKCE":                               {url.Values{"code_challenge": nil, "code_challenge_method": nil}, "invalid_request"},
		"PKCE without a method, which is plain": {url.Values{"code_challenge_method": nil}, "invalid_request"},
		"PKCE plain":                            {url.Values{"code_challenge_method": {"plain"}}, "invalid_request"},
		"PKCE s256":                             {url.Values{"code_challenge_method": {"s256"}}, "invalid_request"},
		"a challenge of a wrong length":         {url.Values{"code_challenge": {"abc"}}, "invalid_request"},
		"a padded challenge":                    {url.Values{"code_challenge": {challenge + "="}}, "invalid_request"},
		"an unknown scope":                      {url.Values{"scope": {"mcp:read mcp:admin"}}, "invalid_scope"},
		"another resource":                      {url.Values{"resource": {"https://other.example/mcp"}}, "invalid_target"},
		"the bare origin":                       {url.Values{"resource": {issuer}}, "invalid_target"},
		"another path":                          {url.Values{"resource": {issuer + "/MCP"}}, "invalid_target"},
		"one resource of two":                   {url.Values{"resource": {issuer + "/mcp", issuer + "/api"}}, "invalid_target"},
		"a request object":                      {url.Values{"request": {"eyJ"}}, "request_not_supported"},
		"a request_uri":                         {url.Values{"request_uri": {"https://app.example.org/r"}}, "request_uri_not_supported"},
		"scope twice":                           {url.Values{"scope": {"mcp:read", "mcp:read"}}, "invalid_request"},
		"a challenge twice":                     {url.Values{"code_challenge": {challenge, challenge}}, "invalid_request"},
		"an unknown parameter twice":            {url.Values{"foo": {"1", "1"}}, "invalid_request"},
		"an empty challenge":                    {url.Values{"code_challenge": {""}}, "invalid_request"},
		"an iss of another server":              {url.Values{"code_challenge": {"x"}, "iss": {"https://evil.example"}}, "invalid_request"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := c.Authorize(challenge, test.change)
			require.Equal(t, http.StatusSeeOther, w.Code, "%s", w.Body)
			require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
			u := location(t, w)
			require.Equal(t, "127.0.0.1", u.Host, "this is the user's own machine")
			require.NotEmpty(t, u.Query().Get("error_description"))
			got := u.Query()
			got.Del("error_description")
			// iss is in every authorization response, against mix-up attacks (RFC 9207).
			require.Equal(t, url.Values{"error": {test.code}, "iss": {issuer}, "state": {"state-1"}}, got)
		})
	}
	for name, state := range map[string][]string{"state twice": {"a", "b"}, "a long state": {strings.Repeat("a", 5000)}} {
		got := location(t, c.Authorize(challenge, url.Values{"state": state})).Query()
		assert.Equal(t, "invalid_request", got.Get("error"), name)
		assert.False(t, got.Has("state"), name)
	}
}

func TestAuthorizationRequestCanBePosted(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := oauthtest.Register(t, s)
	w := c.Post("/oauth/authorize", parse(t, c.AuthorizeURL(challenge(), nil)).Query())
	assert.Equal(t, http.StatusSeeOther, w.Code)
	require.True(t, strings.HasPrefix(w.Header().Get("Location"), "/oauth/approve?request=grq_"))
	assert.Equal(t, "no-referrer", w.Header().Get("Referrer-Policy"))
	assert.Equal(t, http.StatusBadRequest, send(c.Handler, http.MethodPost, "/oauth/authorize", "{}", isJSON).Code)
}

func TestErrorIsAPageForBrowsersAndJSONOtherwise(t *testing.T) {
	t.Parallel()
	const target = "/oauth/authorize?client_id=%3Cscript%3E&redirect_uri=https://evil.example"
	s := newServer(t)
	s.SetErrorPage(func(w http.ResponseWriter, _ *http.Request, status int, title, detail string) {
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, "%s: %s", title, detail)
	})
	page := send(s.Handler(), http.MethodGet, target, "", "Accept: text/html,application/xhtml+xml,*/*;q=0.8")
	assert.Equal(t, http.StatusBadRequest, page.Code)
	assert.Regexp(t, "^This app cannot be connected: .+", page.Body.String())
	assert.NotContains(t, page.Body.String(), "script")
	assert.Equal(t, "400 invalid_client", oauthError(t, send(s.Handler(), http.MethodGet, target, "", "Accept: application/json")))

	// The page does not quote parameters of the link.
	c := oauthtest.Register(t, s, "https://app.example.org/callback")
	for name, sentence := range map[string]url.Values{
		"duplicate parameter": {"Your account is locked. Call +1 555 0100": {"1", "1"}},
		"unknown scope":       {"scope": {"Your_account_is_locked.Call_+1_555_0100"}},
	} {
		sentence.Set("redirect_uri", "https://app.example.org/callback")
		link := c.AuthorizeURL(challenge(), sentence)
		page = send(s.Handler(), http.MethodGet, link, "", "Accept: text/html")
		assert.Equal(t, "This app cannot be connected: The app sent an invalid request: "+name+". Nothing was connected. "+
			"Go back to the app and try again. If it happens again, tell the maker of the app.", page.Body.String())
		plain := send(s.Handler(), http.MethodGet, link, "", "Accept: application/json")
		assert.Regexp(t, name+" 'Your.account.is.locked.+Call.+1.555.0100'", plain.Body.String())
	}
}

func TestInvalidAccessTokensAreRejected(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	_, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "mcp:read")
	for name, token := range map[string]string{
		"nonsense": "x", "another's": tokens.Access[:30] + strings.Repeat("A", 40), "empty": "", "refresh token": tokens.Refresh,
		"altered": tokens.Access + "A",
	} {
		w := call(s, token)
		assert.Equal(t, "401 invalid_token", oauthError(t, w), name)
		assert.True(t, strings.HasPrefix(w.Header().Get("WWW-Authenticate"), `Bearer error="invalid_token", error_description="`), name)
	}
	for _, scheme := range []string{"Bearer", "bearer", "BEARER"} {
		w := send(s.Protect(http.NotFoundHandler()), http.MethodPost, "/mcp", "", "Authorization: "+scheme+" "+tokens.Access)
		assert.Equal(t, http.StatusNotFound, w.Code, scheme)
	}
	basic := send(s.Protect(http.NotFoundHandler()), http.MethodPost, "/mcp", "", "Authorization: Basic "+tokens.Access)
	require.Equal(t, http.StatusUnauthorized, basic.Code)
}

func TestClientRevokesItsTokens(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "")
	other := oauthtest.Register(t, s)
	next := c.Refresh(tokens.Refresh, nil)
	revoke := func(token string) *httptest.ResponseRecorder {
		return c.Post("/oauth/revoke", url.Values{"token": {token}})
	}

	// The response does not reveal whether a token existed.
	unknown := revoke("gat_" + strings.Repeat("A", 22) + "." + strings.Repeat("A", 43))
	require.Equal(t, http.StatusOK, unknown.Code)
	requireSame := func(w *httptest.ResponseRecorder) {
		require.Equal(t, unknown.Code, w.Code)
		require.Equal(t, unknown.Body.String(), w.Body.String())
		require.Equal(t, unknown.Header(), w.Header())
	}
	for _, token := range []string{
		"x", "gat_x", "grt_" + strings.Repeat("A", 22) + "." + strings.Repeat("A", 64),
		tokens.Refresh[:27] + strings.Repeat("A", 64), tokens.Access[:27] + strings.Repeat("A", 43),
	} {
		requireSame(c.Post("/oauth/revoke", url.Values{"token": {token}, "token_type_hint": {"whatever"}}))
	}
	require.Equal(t, http.StatusBadRequest, other.Revoke(tokens.Access))
	require.Equal(t, http.StatusBadRequest, other.Revoke(tokens.Refresh))
	require.True(t, valid(t, s, tokens.Access))

	requireSame(revoke(tokens.Access))
	requireSame(revoke(tokens.Access))
	require.False(t, valid(t, s, tokens.Access))
	require.True(t, valid(t, s, next.Access), "other access tokens stay valid")

	require.Equal(t, http.StatusOK, c.Revoke(next.Refresh))
	require.False(t, valid(t, s, next.Access))
	require.Equal(t, "invalid_grant", c.Refresh(next.Refresh, nil).Error)
	require.Empty(t, grants(t, s))
	require.Equal(t, http.StatusOK, c.Revoke(next.Refresh))
	require.Equal(t, []string{"approved", "started", revokedByApp}, recorded(t, s))

	again := c.Connect(oauthtest.Owner(), "")
	c.Refresh(again.Refresh, nil)
	require.Equal(t, http.StatusOK, c.Revoke(again.Refresh), "an old refresh token ends the connection as well")
	require.False(t, valid(t, s, again.Access))

	for name, values := range map[string]url.Values{
		"no token": {}, "twice": {"token": {"a", "b"}}, "a secret": {"token": {"a"}, "client_secret": {"s"}},
	} {
		assert.GreaterOrEqual(t, c.Post("/oauth/revoke", values).Code, 400, name)
	}
}
