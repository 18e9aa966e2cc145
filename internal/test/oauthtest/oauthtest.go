// Package oauthtest is a client of the authorization server for tests: it registers, requests and approves an authorization,
// and exchanges codes and refresh tokens.
package oauthtest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
)

// Callback is the default redirect URI.
const Callback = "http://127.0.0.1/callback"

// Owner is an account that may approve connections of the business "biz-1".
func Owner() account.Account {
	return account.Account{
		ID: "acc-1", Email: "owner@example.com", Name: "Olive Owner", Role: account.RoleOwner,
		Business: account.Business{BusinessID: "biz-1", BusinessName: "Example Plumbing", BusinessSlug: "example-plumbing"},
	}
}

// Client is a registered client of a server. Its methods fail the test if the response is not as expected.
type Client struct {
	TB      testing.TB
	Server  *oauth.Server
	Handler http.Handler // the server's, or one in front of it
	ID      string
}

// Tokens is a response of the token endpoint, successful or not.
type Tokens struct {
	Status           int    `json:"-"`
	Access           string `json:"access_token"`
	Type             string `json:"token_type"`
	ExpiresIn        int    `json:"expires_in"`
	Refresh          string `json:"refresh_token"`
	Scope            string `json:"scope"`
	Error            string `json:"error"`
	ErrorDescription string `json:"error_description"`
}

// Register registers a client. Without redirect URIs it has Callback.
func Register(tb testing.TB, server *oauth.Server, redirects ...string) *Client {
	tb.Helper()
	if len(redirects) == 0 {
		redirects = []string{Callback}
	}
	c := &Client{TB: tb, Server: server, Handler: server.Handler()}
	body, err := json.Marshal(map[string]any{"client_name": "Test Assistant", "redirect_uris": redirects})
	require.NoError(tb, err)
	r := httptest.NewRequest(http.MethodPost, "/oauth/register", strings.NewReader(string(body)))
	r.Header.Set("Content-Type", "application/json")
	w := c.Do(r)
	require.Equal(tb, http.StatusCreated, w.Code, "%s", w.Body)
	var registered struct {
		ClientID string `json:"client_id"`
	}
	require.NoError(tb, json.Unmarshal(w.Body.Bytes(), &registered))
	c.ID = registered.ClientID
	return c
}

// Connect registers a client and returns its tokens. The account grants all scopes, which are separated by spaces. "" requests
// the default.
func Connect(tb testing.TB, server *oauth.Server, by account.Account, scopes string) (*Client, Tokens) {
	tb.Helper()
	c := Register(tb, server)
	return c, c.Connect(by, scopes)
}

// Connect requests and approves an authorization and returns the tokens.
func (c *Client) Connect(by account.Account, scopes string) Tokens {
	c.TB.Helper()
	verifier, challenge := PKCE()
	code := c.Code(by, challenge, url.Values{"scope": {scopes}})
	t := c.Exchange(code, verifier, nil)
	require.Equal(c.TB, http.StatusOK, t.Status, "%s: %s", t.Error, t.ErrorDescription)
	return t
}

// PKCE returns a verifier and its challenge.
func PKCE() (verifier, challenge string) {
	verifier = rand.Text() + rand.Text()
	sum := sha256.Sum256([]byte(verifier))
	return verifier, base64.RawURLEncoding.EncodeToString(sum[:])
}

// AuthorizeURL returns the target of a valid authorization request with changed parameters. One without values is left out.
func (c *Client) AuthorizeURL(challenge string, parameters url.Values) string {
	values := url.Values{
		"response_type": {"code"}, "client_id": {c.ID}, "redirect_uri": {Callback}, "state": {"state-1"},
		"code_challenge": {challenge}, "code_challenge_method": {"S256"},
	}
	maps.Copy(values, parameters)
	return "/oauth/authorize?" + values.Encode()
}

// Authorize sends an authorization request.
func (c *Client) Authorize(challenge string, parameters url.Values) *httptest.ResponseRecorder {
	return c.Do(httptest.NewRequest(http.MethodGet, c.AuthorizeURL(challenge, parameters), http.NoBody))
}

// Request sends a valid authorization request and returns the id of the pending request.
func (c *Client) Request(challenge string, parameters url.Values) string {
	c.TB.Helper()
	w := c.Authorize(challenge, parameters)
	require.Equal(c.TB, http.StatusSeeOther, w.Code, "%s", w.Body)
	location, err := url.Parse(w.Header().Get("Location"))
	require.NoError(c.TB, err)
	id := location.Query().Get("request")
	require.Equal(c.TB, "/oauth/approve", location.Path)
	require.NotEmpty(c.TB, id, "no request waits: %s", location)
	return id
}

// Code sends a request, approves it with all requested scopes, and returns the code.
func (c *Client) Code(by account.Account, challenge string, parameters url.Values) string {
	c.TB.Helper()
	ctx := context.Background()
	id := c.Request(challenge, parameters)
	pending, err := c.Server.Pending(ctx, id)
	require.NoError(c.TB, err)
	return CodeOf(c.TB, c.Approve(id, by, pending.Scopes))
}

// Approve approves a request and returns the redirect.
func (c *Client) Approve(id string, by account.Account, granted scope.Set) string {
	c.TB.Helper()
	redirect, err := c.Server.Approve(context.Background(), id, by, granted)
	require.NoError(c.TB, err)
	return redirect
}

// CodeOf returns the code in an authorization response.
func CodeOf(tb testing.TB, redirect string) string {
	tb.Helper()
	u, err := url.Parse(redirect)
	require.NoError(tb, err)
	code := u.Query().Get("code")
	require.NotEmpty(tb, code, "no code: %s", redirect)
	return code
}

// Exchange exchanges a code. parameters change the request as those of AuthorizeURL do.
func (c *Client) Exchange(code, verifier string, parameters url.Values) Tokens {
	return c.token(url.Values{
		"grant_type": {"authorization_code"}, "client_id": {c.ID}, "redirect_uri": {Callback}, "code": {code},
		"code_verifier": {verifier},
	}, parameters)
}

// Refresh uses a refresh token.
func (c *Client) Refresh(refresh string, parameters url.Values) Tokens {
	return c.token(url.Values{
		"grant_type": {"refresh_token"}, "client_id": {c.ID}, "refresh_token": {refresh},
	}, parameters)
}

// Revoke revokes a token and returns the status of the response.
func (c *Client) Revoke(token string) int {
	return c.Post("/oauth/revoke", url.Values{"token": {token}, "client_id": {c.ID}}).Code
}

func (c *Client) token(values, parameters url.Values) Tokens {
	maps.Copy(values, parameters)
	w := c.Post("/oauth/token", values)
	t := Tokens{Status: w.Code}
	if err := json.Unmarshal(w.Body.Bytes(), &t); err != nil {
		c.TB.Errorf("the token endpoint did not return JSON: %s", w.Body)
	}
	return t
}

// Post sends a form.
func (c *Client) Post(path string, values url.Values) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(values.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return c.Do(r)
}

// Do sends a request.
func (c *Client) Do(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	c.Handler.ServeHTTP(w, r)
	return w
}
