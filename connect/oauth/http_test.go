package oauth_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/internal/test/oauthtest"
)

func limit(n int, period time.Duration) redis_rate.Limit {
	return redis_rate.Limit{Rate: n, Burst: n, Period: period}
}

// call sends a request with the given Authorization headers.
func call(h http.Handler, authorization ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/mcp", http.NoBody)
	for _, a := range authorization {
		r.Header.Add("Authorization", a)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestMetadataAgreesWithTheServer(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *oauth.Options) {
		o.ResourceName, o.Documentation = "Example business", "https://docs.example.com/connect"
	})
	get := func(path string) (*httptest.ResponseRecorder, map[string]any) {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		require.Equal(t, http.StatusOK, w.Code, path)
		require.Equal(t, "application/json", w.Header().Get("Content-Type"))
		require.Equal(t, "*", w.Header().Get("Access-Control-Allow-Origin"))
		require.Equal(t, "public, max-age=300", w.Header().Get("Cache-Control"))
		var body map[string]any
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body))
		return w, body
	}
	list := func(values ...any) []any { return values }
	_, server := get("/.well-known/oauth-authorization-server")
	require.Equal(t, map[string]any{
		"issuer":                                         issuer,
		"authorization_endpoint":                         issuer + "/oauth/authorize",
		"token_endpoint":                                 issuer + "/oauth/token",
		"revocation_endpoint":                            issuer + "/oauth/revoke",
		"registration_endpoint":                          issuer + "/oauth/register",
		"scopes_supported":                               list("mcp:read", "mcp:write", "mcp:use"),
		"response_types_supported":                       list("code"),
		"response_modes_supported":                       list("query"),
		"grant_types_supported":                          list("authorization_code", "refresh_token"),
		"token_endpoint_auth_methods_supported":          list("none"),
		"revocation_endpoint_auth_methods_supported":     list("none"),
		"code_challenge_methods_supported":               list("S256"),
		"authorization_response_iss_parameter_supported": true,
		"client_id_metadata_document_supported":          true,
		"protected_resources":                            list(issuer + "/mcp"),
		"service_documentation":                          "https://docs.example.com/connect",
	}, server)
	_, alias := get("/.well-known/openid-configuration")
	require.Equal(t, server, alias)
	_, resource := get("/.well-known/oauth-protected-resource/mcp")
	require.Equal(t, map[string]any{
		"resource":                 issuer + "/mcp",
		"authorization_servers":    list(issuer),
		"scopes_supported":         list("mcp:read", "mcp:write", "mcp:use"),
		"bearer_methods_supported": list("header"),
		"resource_name":            "Example business",
		"resource_documentation":   "https://docs.example.com/connect",
	}, resource)
	_, root := get("/.well-known/oauth-protected-resource")
	require.Equal(t, resource, root)
}

func TestMethodsAndCORS(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	do := func(method, path string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, http.NoBody)
		r.Header.Set("Origin", "https://inspector.example")
		r.Header.Set("Access-Control-Request-Method", "POST")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		return w
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
				require.Empty(t, w.Header().Get("Access-Control-Allow-Origin"), "a person's browser goes there, no script does")
				continue
			}
			require.Equal(t, "*", w.Header().Get("Access-Control-Allow-Origin"), "%s %s", method, path)
			require.Contains(t, w.Header().Get("Access-Control-Expose-Headers"), "WWW-Authenticate")
			require.Empty(t, w.Header().Get("Access-Control-Allow-Credentials"))
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
		require.Equal(t, http.StatusNotFound, do(http.MethodGet, path).Code, path)
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
	for _, bad := range []struct {
		name   string
		change url.Values
		status int
		code   string
	}{
		{"no grant_type", url.Values{"grant_type": nil}, 400, "invalid_request"},
		{"an empty grant_type", url.Values{"grant_type": {""}}, 400, "invalid_request"},
		{"another grant_type", url.Values{"grant_type": {"password"}}, 400, "unsupported_grant_type"},
		{"client credentials", url.Values{"grant_type": {"client_credentials"}}, 400, "unsupported_grant_type"},
		{"no client_id", url.Values{"client_id": nil}, 400, "invalid_request"},
		{"an unknown client", url.Values{"client_id": {"gcl_AAAAAAAAAAAAAAAAAAAAAA"}}, 401, "invalid_client"},
		{"a client that is none", url.Values{"client_id": {"x"}}, 401, "invalid_client"},
		{"a URL that is no client", url.Values{"client_id": {"https://example.com/"}}, 401, "invalid_client"},
		{"another document's client", url.Values{"client_id": {"https://example.com/c.json"}}, 400, "invalid_grant"},
		{"a secret", url.Values{"client_secret": {"s"}}, 401, "invalid_client"},
		{"no code", url.Values{"code": nil}, 400, "invalid_request"},
		{"no verifier", url.Values{"code_verifier": nil}, 400, "invalid_request"},
		{"a short verifier", url.Values{"code_verifier": {"abc"}}, 400, "invalid_request"},
		{"a long verifier", url.Values{"code_verifier": {strings.Repeat("a", 129)}}, 400, "invalid_request"},
		{"a verifier with other characters", url.Values{"code_verifier": {strings.Repeat("a", 43) + "+"}}, 400, "invalid_request"},
		{"another verifier", url.Values{"code_verifier": {strings.Repeat("a", 43)}}, 400, "invalid_grant"},
		{"another redirect_uri", url.Values{"redirect_uri": {"http://127.0.0.1:1/callback"}}, 400, "invalid_grant"},
		{"another resource", url.Values{"resource": {"https://other.example/mcp"}}, 400, "invalid_target"},
		{"one resource of two", url.Values{"resource": {issuer + "/mcp", "https://other.example/mcp"}}, 400, "invalid_target"},
		{"the code twice", url.Values{"code": {code, code}}, 400, "invalid_request"},
		{"an unknown parameter twice", url.Values{"foo": {"1", "2"}}, 400, "invalid_request"},
	} {
		values := url.Values{}
		for _, from := range []url.Values{good, bad.change} {
			maps.Copy(values, from)
		}
		w := c.Post("/oauth/token", values)
		require.Equal(t, bad.status, w.Code, "%s: %s", bad.name, w.Body)
		require.Contains(t, w.Body.String(), `"error":"`+bad.code+`"`, bad.name)
		requireToken(t, w)
	}
	for name, r := range map[string]*http.Request{
		"no content type": httptest.NewRequest(http.MethodPost, "/oauth/token", strings.NewReader(good.Encode())),
		"in the query":    httptest.NewRequest(http.MethodPost, "/oauth/token?"+good.Encode(), http.NoBody),
		"JSON":            withType(httptest.NewRequest(http.MethodPost, "/oauth/token", strings.NewReader(`{"grant_type":"authorization_code"}`)), "application/json"),
		"multipart":       withType(httptest.NewRequest(http.MethodPost, "/oauth/token", strings.NewReader("--x--")), "multipart/form-data; boundary=x"),
		"not a form":      withType(httptest.NewRequest(http.MethodPost, "/oauth/token", strings.NewReader("a=%zz")), "application/x-www-form-urlencoded"),
		"semicolons":      withType(httptest.NewRequest(http.MethodPost, "/oauth/token", strings.NewReader("a=1;b=2")), "application/x-www-form-urlencoded"),
		"broken off": withType(httptest.NewRequest(http.MethodPost, "/oauth/token",
			io.MultiReader(strings.NewReader("grant_type=x"), iotest.ErrReader(errors.New("gone")))), "application/x-www-form-urlencoded"),
	} {
		w := c.Do(r)
		require.Equal(t, http.StatusBadRequest, w.Code, name)
		require.Contains(t, w.Body.String(), `"error":"invalid_request"`, name)
		requireToken(t, w)
	}
	large := c.Post("/oauth/token", url.Values{"grant_type": {"authorization_code"}, "code": {strings.Repeat("a", 100<<10)}})
	require.Equal(t, http.StatusRequestEntityTooLarge, large.Code)
	basic := withType(httptest.NewRequest(http.MethodPost, "/oauth/token", strings.NewReader(good.Encode())), "application/x-www-form-urlencoded")
	basic.SetBasicAuth(c.ID, "secret")
	w := c.Do(basic)
	require.Equal(t, http.StatusUnauthorized, w.Code)
	require.Contains(t, w.Header().Get("WWW-Authenticate"), "Basic")

	// None of that was a use of the code.
	for _, resource := range [][]string{nil, {""}, {issuer + "/mcp"}, {issuer + "/mcp", issuer + "/mcp"}, {"HTTPS://Gateway.Example.com/mcp/"}} {
		verifier, challenge := oauthtest.PKCE()
		own := c.Code(oauthtest.Owner(), challenge, url.Values{"resource": resource})
		answer := c.Exchange(own, verifier, url.Values{"resource": resource})
		require.Equal(t, http.StatusOK, answer.Status, "%v: %s", resource, answer.ErrorDescription)
	}
	w = c.Post("/oauth/token", good)
	require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
	requireToken(t, w)
}

func withType(r *http.Request, contentType string) *http.Request {
	r.Header.Set("Content-Type", contentType)
	return r
}

func requireToken(t testing.TB, w *httptest.ResponseRecorder) {
	t.Helper()
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	require.Equal(t, "no-cache", w.Header().Get("Pragma"))
}

func TestInvalidAuthorizationRequests(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := oauthtest.Register(t, s)
	_, challenge := oauthtest.PKCE()
	for _, bad := range []struct {
		name   string
		change url.Values
		code   string
	}{
		{"no response_type", url.Values{"response_type": nil}, "invalid_request"},
		{"the implicit grant", url.Values{"response_type": {"token"}}, "unsupported_response_type"},
		{"the hybrid flow", url.Values{"response_type": {"code id_token"}}, "unsupported_response_type"},
		{"the fragment", url.Values{"response_mode": {"fragment"}}, "invalid_request"},
		{"no PKCE", url.Values{"code_challenge": nil, "code_challenge_method": nil}, "invalid_request"},
		{"PKCE without a method, which is plain", url.Values{"code_challenge_method": nil}, "invalid_request"},
		{"PKCE plain", url.Values{"code_challenge_method": {"plain"}}, "invalid_request"},
		{"PKCE s256", url.Values{"code_challenge_method": {"s256"}}, "invalid_request"},
		{"a challenge that is no SHA-256", url.Values{"code_challenge": {"abc"}}, "invalid_request"},
		{"a padded challenge", url.Values{"code_challenge": {challenge + "="}}, "invalid_request"},
		{"an unknown scope", url.Values{"scope": {"mcp:read mcp:admin"}}, "invalid_scope"},
		{"another resource", url.Values{"resource": {"https://other.example/mcp"}}, "invalid_target"},
		{"the bare origin", url.Values{"resource": {issuer}}, "invalid_target"},
		{"another path", url.Values{"resource": {issuer + "/MCP"}}, "invalid_target"},
		{"one resource of two", url.Values{"resource": {issuer + "/mcp", issuer + "/api"}}, "invalid_target"},
		{"a request object", url.Values{"request": {"eyJ"}}, "request_not_supported"},
		{"a request_uri", url.Values{"request_uri": {"https://app.example.org/r"}}, "request_uri_not_supported"},
		{"scope twice", url.Values{"scope": {"mcp:read", "mcp:read"}}, "invalid_request"},
		{"a challenge twice", url.Values{"code_challenge": {challenge, challenge}}, "invalid_request"},
		{"an unknown parameter twice", url.Values{"foo": {"1", "1"}}, "invalid_request"},
	} {
		w := c.Authorize(challenge, bad.change)
		require.Equal(t, http.StatusSeeOther, w.Code, "%s: %s", bad.name, w.Body)
		u, err := url.Parse(w.Header().Get("Location"))
		require.NoError(t, err)
		require.Equal(t, "127.0.0.1", u.Host, "this is the person's own machine")
		require.Equal(t, bad.code, u.Query().Get("error"), bad.name)
		require.NotEmpty(t, u.Query().Get("error_description"))
		require.Equal(t, issuer, u.Query().Get("iss"), "iss is in every authorization response (RFC 9207)")
		require.Equal(t, "state-1", u.Query().Get("state"))
		require.False(t, u.Query().Has("code"))
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	}
	for name, state := range map[string][]string{"state twice": {"a", "b"}, "a long state": {strings.Repeat("a", 5000)}} {
		w := c.Authorize(challenge, url.Values{"state": state})
		u, err := url.Parse(w.Header().Get("Location"))
		require.NoError(t, err)
		require.Equal(t, "invalid_request", u.Query().Get("error"), name)
		require.False(t, u.Query().Has("state"), name)
	}
}

func TestAuthorizationRequestCanBePosted(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := oauthtest.Register(t, s)
	_, challenge := oauthtest.PKCE()
	target, err := url.Parse(c.AuthorizeURL(challenge, nil))
	require.NoError(t, err)
	w := c.Post("/oauth/authorize", target.Query())
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.True(t, strings.HasPrefix(w.Header().Get("Location"), "/oauth/approve?request=grq_"))
	require.Equal(t, "no-referrer", w.Header().Get("Referrer-Policy"))
	w = c.Do(withType(httptest.NewRequest(http.MethodPost, "/oauth/authorize", strings.NewReader("{}")), "application/json"))
	require.Equal(t, http.StatusBadRequest, w.Code)
}

func TestErrorIsHTMLForBrowsersAndJSONOtherwise(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := oauthtest.Register(t, s)
	r := httptest.NewRequest(http.MethodGet, "/oauth/authorize?client_id=%3Cscript%3E&redirect_uri=https://evil.example", http.NoBody)
	r.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	page := c.Do(r)
	require.Equal(t, http.StatusBadRequest, page.Code)
	require.Equal(t, "text/html; charset=utf-8", page.Header().Get("Content-Type"))
	require.Contains(t, page.Body.String(), "<h1>This app cannot be connected</h1>")
	require.NotContains(t, page.Body.String(), "script")
	require.Contains(t, page.Header().Get("Content-Security-Policy"), "frame-ancestors 'none'")
	r.Header.Set("Accept", "application/json")
	machine := c.Do(r)
	require.Equal(t, http.StatusBadRequest, machine.Code)
	require.Contains(t, machine.Body.String(), `"error":"invalid_client"`)

	var title, detail string
	s = newServer(t, func(o *oauth.Options) {
		o.ErrorPage = func(w http.ResponseWriter, _ *http.Request, status int, t, d string) {
			title, detail = t, d
			w.WriteHeader(status)
		}
	})
	r.Header.Set("Accept", "text/html")
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.NotEmpty(t, title)
	require.NotEmpty(t, detail)
}

func TestChallenges(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	_, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "mcp:read")
	var served int
	h := s.Protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served++
		if r.Method == http.MethodOptions {
			return
		}
		grant, ok := oauth.GrantFrom(r.Context())
		if !ok {
			t.Error("there is no connection in the context")
		}
		if !grant.Scopes.Allows("contacts:write") {
			s.InsufficientScope(w, "contacts:write", "mcp:read", "no such scope")
		}
	}))
	const where = `resource_metadata="` + issuer + `/.well-known/oauth-protected-resource/mcp"`
	none := call(h)
	require.Equal(t, http.StatusUnauthorized, none.Code)
	require.Equal(t, "Bearer "+where+`, scope="mcp:use"`, none.Header().Get("WWW-Authenticate"),
		"no error code for a request without any authentication (RFC 6750, section 3.1)")
	for name, header := range map[string]string{
		"nonsense": "Bearer x", "another's": "Bearer " + tokens.Access[:30] + strings.Repeat("A", 40), "empty": "Bearer ",
		"refresh token": "Bearer " + tokens.Refresh, "altered": "Bearer " + tokens.Access + "A",
	} {
		w := call(h, header)
		require.Equal(t, http.StatusUnauthorized, w.Code, name)
		require.True(t, strings.HasPrefix(w.Header().Get("WWW-Authenticate"), `Bearer error="invalid_token", error_description="`), name)
		require.Contains(t, w.Header().Get("WWW-Authenticate"), where)
		require.Contains(t, w.Header().Get("WWW-Authenticate"), `scope="mcp:use"`)
		require.Equal(t, "WWW-Authenticate", w.Header().Get("Access-Control-Expose-Headers"))
		require.Contains(t, w.Body.String(), `"error":"invalid_token"`)
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	}
	require.Equal(t, http.StatusUnauthorized, call(h, "Basic "+tokens.Access).Code)
	twice := call(h, "Bearer "+tokens.Access, "Bearer "+tokens.Access)
	require.Equal(t, http.StatusBadRequest, twice.Code)
	require.Contains(t, twice.Header().Get("WWW-Authenticate"), `error="invalid_request"`)
	require.Zero(t, served)

	for _, scheme := range []string{"Bearer", "bearer", "BEARER"} {
		w := call(h, scheme+" "+tokens.Access)
		require.Equal(t, http.StatusForbidden, w.Code)
		require.Contains(t, w.Header().Get("WWW-Authenticate"), `error="insufficient_scope"`)
		require.Contains(t, w.Header().Get("WWW-Authenticate"), `scope="contacts:write mcp:read"`)
		require.Contains(t, w.Header().Get("WWW-Authenticate"), where)
		require.Contains(t, w.Body.String(), `"error":"insufficient_scope"`)
	}
	require.Equal(t, 3, served)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodOptions, "/mcp", http.NoBody))
	require.Equal(t, http.StatusOK, w.Code, "a preflight carries no token")
}

func TestRateLimitedErrorHasRetryAfter(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *oauth.Options) { o.Limits.Authorizations = limit(2, time.Hour) })
	c := oauthtest.Register(t, s)
	_, challenge := oauthtest.PKCE()
	c.Request(challenge, nil)
	c.Request(challenge, nil)
	w := c.Authorize(challenge, nil)
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.NotEmpty(t, w.Header().Get("Retry-After"))
	require.Empty(t, w.Header().Get("Location"))
}

func TestClientRevokesItsTokens(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newServer(t)
	c, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "")
	other := oauthtest.Register(t, s)
	next := c.Refresh(tokens.Refresh, nil)

	// It cannot be learned whether a token was ever there.
	unknown := c.Post("/oauth/revoke", url.Values{"token": {"gat_" + strings.Repeat("A", 22) + "." + strings.Repeat("A", 43)}, "client_id": {c.ID}})
	require.Equal(t, http.StatusOK, unknown.Code)
	for _, token := range []string{
		"x", "gat_x", "grt_" + strings.Repeat("A", 22) + "." + strings.Repeat("A", 64),
		tokens.Refresh[:27] + strings.Repeat("A", 64), tokens.Access[:27] + strings.Repeat("A", 43),
	} {
		w := c.Post("/oauth/revoke", url.Values{"token": {token}, "token_type_hint": {"whatever"}})
		require.Equal(t, unknown.Code, w.Code)
		require.Equal(t, unknown.Body.String(), w.Body.String())
		require.Equal(t, unknown.Header(), w.Header())
	}
	require.Equal(t, http.StatusBadRequest, other.Revoke(tokens.Access))
	require.Equal(t, http.StatusBadRequest, other.Revoke(tokens.Refresh))
	_, err := s.Authenticate(ctx, tokens.Access)
	require.NoError(t, err)

	revoked := c.Post("/oauth/revoke", url.Values{"token": {tokens.Access}, "client_id": {c.ID}})
	require.Equal(t, unknown.Code, revoked.Code)
	require.Equal(t, unknown.Body.String(), revoked.Body.String())
	require.Equal(t, unknown.Header(), revoked.Header())
	require.Equal(t, http.StatusOK, c.Revoke(tokens.Access), "a second time")
	_, err = s.Authenticate(ctx, tokens.Access)
	require.ErrorIs(t, err, oauth.ErrInvalidToken)
	_, err = s.Authenticate(ctx, next.Access)
	require.NoError(t, err, "an access token takes no other with it")

	require.Equal(t, http.StatusOK, c.Revoke(next.Refresh))
	_, err = s.Authenticate(ctx, next.Access)
	require.ErrorIs(t, err, oauth.ErrInvalidToken)
	require.Equal(t, "invalid_grant", c.Refresh(next.Refresh, nil).Error)
	grants, err := s.Grants(ctx, "biz-1")
	require.NoError(t, err)
	require.Empty(t, grants)
	require.Equal(t, http.StatusOK, c.Revoke(next.Refresh))
	require.Equal(t, []string{"approved", "started", givenBack}, recorded(t, s))

	again := c.Connect(oauthtest.Owner(), "")
	c.Refresh(again.Refresh, nil)
	require.Equal(t, http.StatusOK, c.Revoke(again.Refresh), "an old refresh token is one of the connection as well")
	_, err = s.Authenticate(ctx, again.Access)
	require.ErrorIs(t, err, oauth.ErrInvalidToken)

	for name, values := range map[string]url.Values{
		"no token": {}, "twice": {"token": {"a", "b"}}, "a secret": {"token": {"a"}, "client_secret": {"s"}},
	} {
		require.GreaterOrEqual(t, c.Post("/oauth/revoke", values).Code, 400, name)
	}
}

func TestPeerIPKeys(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"192.0.2.7:1234": "192.0.2.7", "[2001:db8:1:2:3::4]:80": "2001:db8:1:2::/64", "[::ffff:192.0.2.7]:80": "192.0.2.7",
		"[fe80::1%eth0]:80": "fe80::/64", "@": "unknown",
	} {
		require.Equal(t, want, oauth.PeerIPKey(&http.Request{RemoteAddr: remote}))
	}
}
