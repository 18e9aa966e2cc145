package oauth_test

import (
	"context"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/internal/test/oauthtest"
)

func TestConnectAndRevoke(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newServer(t)
	c := oauthtest.Register(t, s)
	verifier, challenge := oauthtest.PKCE()

	id := c.Request(challenge, url.Values{"scope": {"mcp:use"}, "redirect_uri": {"http://127.0.0.1:4711/callback"}})
	request, err := s.Pending(ctx, id)
	require.NoError(t, err)
	require.Equal(t, "Test Assistant", request.Client.Name)
	require.Equal(t, c.ID, request.Client.ID)
	require.Equal(t, oauth.KindRegistered, request.Client.Kind)
	require.True(t, request.Client.LocalOnly)
	require.True(t, request.RedirectLocal)
	require.Equal(t, "127.0.0.1:4711", request.RedirectHost)
	require.Equal(t, "mcp:use", request.Scopes.String())
	require.Equal(t, issuer+"/mcp", request.Resource)
	require.InDelta(t, oauth.RequestLifetime, request.ExpiresIn, float64(time.Minute))

	redirect := c.Approve(id, oauthtest.Owner(), scopes(t, "mcp:read contacts:write"))
	u, err := url.Parse(redirect)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:4711", u.Host)
	require.Equal(t, "/callback", u.Path)
	require.Equal(t, issuer, u.Query().Get("iss"))
	require.Equal(t, "state-1", u.Query().Get("state"))
	require.Len(t, u.Query(), 3)
	grants, err := s.Grants(ctx, "biz-1")
	require.NoError(t, err)
	require.Empty(t, grants, "a connection begins when its code is redeemed")

	tokens := c.Exchange(oauthtest.CodeOf(t, redirect), verifier, url.Values{"redirect_uri": {"http://127.0.0.1:4711/callback"}})
	require.Equal(t, http.StatusOK, tokens.Status, tokens.ErrorDescription)
	require.Equal(t, "Bearer", tokens.Type)
	require.Equal(t, 3600, tokens.ExpiresIn)
	require.Equal(t, "contacts:write mcp:read", tokens.Scope)
	require.NotEmpty(t, tokens.Refresh)
	_, err = s.Pending(ctx, id)
	require.ErrorIs(t, err, oauth.ErrNoRequest)

	grant, err := s.Authenticate(ctx, tokens.Access)
	require.NoError(t, err)
	require.Equal(t, "contacts:write mcp:read", grant.Scopes.String())
	require.Equal(t, c.ID, grant.ClientID)
	require.Equal(t, "Test Assistant", grant.ClientName)
	require.Equal(t, "127.0.0.1:4711", grant.ClientHost)
	require.Equal(t, "acc-1", grant.AccountID)
	require.Equal(t, "biz-1", grant.BusinessID)
	require.WithinDuration(t, time.Now().Add(oauth.RefreshIdle), grant.ExpiresAt, time.Minute)
	grants, err = s.Grants(ctx, "biz-1")
	require.NoError(t, err)
	require.Equal(t, []oauth.Grant{grant}, grants)

	rival := oauthtest.Owner()
	rival.BusinessID = "biz-2"
	require.ErrorIs(t, s.Revoke(ctx, grant.ID, rival), oauth.ErrNoGrant, "another business's")
	require.ErrorIs(t, s.Revoke(ctx, "nonsense", oauthtest.Owner()), oauth.ErrNoGrant)
	require.ErrorIs(t, s.Revoke(ctx, grant.ID, account.Account{}), oauth.ErrNoGrant)
	_, err = s.Authenticate(ctx, tokens.Access)
	require.NoError(t, err)
	require.NoError(t, s.Revoke(ctx, grant.ID, oauthtest.Owner()))
	_, err = s.Authenticate(ctx, tokens.Access)
	require.ErrorIs(t, err, oauth.ErrInvalidToken, "the next call is refused")
	require.Equal(t, "invalid_grant", c.Refresh(tokens.Refresh, nil).Error)
	require.ErrorIs(t, s.Revoke(ctx, grant.ID, oauthtest.Owner()), oauth.ErrNoGrant)
	grants, err = s.Grants(ctx, "biz-1")
	require.NoError(t, err)
	require.Empty(t, grants)
	require.Equal(t, []string{"approved", "started", "revoked"}, recorded(t, s))
}

func TestDeny(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newServer(t)
	c := oauthtest.Register(t, s, "https://app.example.org/cb?tenant=7")
	_, challenge := oauthtest.PKCE()
	id := c.Request(challenge, url.Values{"redirect_uri": {"https://app.example.org/cb?tenant=7"}, "state": {"a b&c=d"}})
	first, err := s.Deny(ctx, id, oauthtest.Owner())
	require.NoError(t, err)
	require.True(t, first.Decided)
	u, err := url.Parse(first.Redirect)
	require.NoError(t, err)
	require.Equal(t, "app.example.org", u.Host)
	require.Equal(t, url.Values{
		"tenant": {"7"}, "error": {"access_denied"}, "error_description": {"the person has denied the request"},
		"iss": {issuer}, "state": {"a b&c=d"},
	}, u.Query())
	again, err := s.Deny(ctx, id, oauthtest.Owner())
	require.NoError(t, err)
	require.Equal(t, oauth.Decision{Redirect: first.Redirect}, again, "a double submit is harmless")
	require.Equal(t, []string{"denied/denied"}, recorded(t, s), "and was recorded once")
	_, err = s.Pending(ctx, id)
	require.NoError(t, err, "a second submission finds the request")
	_, err = s.Approve(ctx, id, oauthtest.Owner(), scopes(t, "mcp:read"))
	require.ErrorIs(t, err, oauth.ErrNoRequest, "what was denied is not approved")
}

func TestOnlyOwnersApproveAndOnlyRequestedScopes(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newServer(t)
	c := oauthtest.Register(t, s)
	_, challenge := oauthtest.PKCE()
	id := c.Request(challenge, url.Values{"scope": {"mcp:write"}})
	member := oauthtest.Owner()
	member.Role = account.RoleMember
	_, err := s.Approve(ctx, id, member, scopes(t, "mcp:read"))
	require.ErrorIs(t, err, oauth.ErrNotOwner)
	nobody := account.Account{Role: account.RoleOwner}
	_, err = s.Approve(ctx, id, nobody, scopes(t, "mcp:read"))
	require.ErrorIs(t, err, oauth.ErrNotOwner)
	for _, granted := range []string{"", "mcp:use", "mcp:write automations:run"} {
		_, err = s.Approve(ctx, id, oauthtest.Owner(), scopes(t, granted))
		require.ErrorIs(t, err, oauth.ErrScopes, granted)
	}
	for _, unknown := range []string{"", "x", id + "x", id[:len(id)-1], "grq_" + id, id[:26] + "." + id[4:26] + id[4:25]} {
		_, err = s.Approve(ctx, unknown, oauthtest.Owner(), scopes(t, "mcp:read"))
		require.ErrorIs(t, err, oauth.ErrNoRequest, unknown)
		_, err = s.Pending(ctx, unknown)
		require.ErrorIs(t, err, oauth.ErrNoRequest)
		_, err = s.Deny(ctx, unknown, oauthtest.Owner())
		require.ErrorIs(t, err, oauth.ErrNoRequest)
	}
	_, err = s.Approve(ctx, id, oauthtest.Owner(), scopes(t, "mcp:write"))
	require.NoError(t, err)
}

func TestDoubleSubmitReturnsTheSameCode(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newServer(t)
	c := oauthtest.Register(t, s)
	verifier, challenge := oauthtest.PKCE()
	id := c.Request(challenge, nil)
	first := c.Approve(id, oauthtest.Owner(), scopes(t, "mcp:read"))
	_, err := s.Pending(ctx, id)
	require.NoError(t, err)
	require.Equal(t, first, c.Approve(id, oauthtest.Owner(), scopes(t, "mcp:read")))
	other := oauthtest.Owner()
	other.ID = "acc-2"
	_, err = s.Approve(ctx, id, other, scopes(t, "mcp:read"))
	require.ErrorIs(t, err, oauth.ErrNoRequest, "another account's code is nobody else's")
	_, err = s.Deny(ctx, id, oauthtest.Owner())
	require.ErrorIs(t, err, oauth.ErrNoRequest)
	require.Equal(t, http.StatusOK, c.Exchange(oauthtest.CodeOf(t, first), verifier, nil).Status)
	_, err = s.Approve(ctx, id, oauthtest.Owner(), scopes(t, "mcp:read"))
	require.ErrorIs(t, err, oauth.ErrNoRequest)
}

func TestScopeAndStateAreOptional(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newServer(t)
	c := oauthtest.Register(t, s)
	_, challenge := oauthtest.PKCE()
	for asked, want := range map[string]string{
		"":                                "mcp:read",
		"openid offline_access":           "mcp:read",
		"mcp:write offline_access":        "mcp:write",
		"contacts:write mcp:read email":   "contacts:write mcp:read",
		" mcp:read  mcp:write profile":    "mcp:read mcp:write",
		"mcp:use address phone mcp:write": "mcp:use mcp:write",
	} {
		request, err := s.Pending(ctx, c.Request(challenge, url.Values{"scope": {asked}, "state": nil}))
		require.NoError(t, err)
		require.Equal(t, want, request.Scopes.String())
		u, err := url.Parse(c.Approve(request.ID, oauthtest.Owner(), request.Scopes))
		require.NoError(t, err)
		require.False(t, u.Query().Has("state"))
		require.Equal(t, issuer, u.Query().Get("iss"))
	}
}

func TestRedirectURIIsOptionalIfOnlyOneIsRegistered(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	verifier, challenge := oauthtest.PKCE()
	one := oauthtest.Register(t, s, "https://app.example.org/cb")
	code := one.Code(oauthtest.Owner(), challenge, url.Values{"redirect_uri": nil})
	require.Equal(t, "invalid_grant", one.Exchange(code, verifier, url.Values{"redirect_uri": {"https://app.example.org/other"}}).Error)
	require.Equal(t, http.StatusOK, one.Exchange(code, verifier, url.Values{"redirect_uri": nil}).Status)

	two := oauthtest.Register(t, s, "https://app.example.org/cb", "https://app.example.org/other")
	w := two.Authorize(challenge, url.Values{"redirect_uri": nil})
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Contains(t, w.Body.String(), "redirect_uri is missing")
}

// The clock that is moved here is Redis's: the gateway's decides nothing.
func TestLifetimes(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	now := newClock(t)
	s := newServer(t, withClock(now))
	c := oauthtest.Register(t, s)
	verifier, challenge := oauthtest.PKCE()
	const soon = 10 * time.Second // more than what a test does in between takes

	id := c.Request(challenge, nil)
	now.Add(oauth.RequestLifetime - soon)
	_, err := s.Pending(ctx, id)
	require.NoError(t, err)
	now.Add(2 * soon)
	_, err = s.Pending(ctx, id)
	require.ErrorIs(t, err, oauth.ErrNoRequest)
	_, err = s.Approve(ctx, id, oauthtest.Owner(), scopes(t, "mcp:read"))
	require.ErrorIs(t, err, oauth.ErrNoRequest)

	code := c.Code(oauthtest.Owner(), challenge, nil)
	now.Add(oauth.CodeLifetime + soon)
	require.Equal(t, "invalid_grant", c.Exchange(code, verifier, nil).Error)

	code = c.Code(oauthtest.Owner(), challenge, nil)
	now.Add(oauth.CodeLifetime - soon)
	tokens := c.Exchange(code, verifier, nil)
	require.Equal(t, http.StatusOK, tokens.Status)

	now.Add(oauth.AccessLifetime - soon)
	_, err = s.Authenticate(ctx, tokens.Access)
	require.NoError(t, err)
	now.Add(2 * soon)
	_, err = s.Authenticate(ctx, tokens.Access)
	require.ErrorIs(t, err, oauth.ErrInvalidToken)

	// The refresh token lives as long as it is used, but not longer than the connection.
	grants, err := s.Grants(ctx, "biz-1")
	require.NoError(t, err)
	require.Len(t, grants, 1)
	last := grants[0].CreatedAt.Add(oauth.GrantLifetime)
	for now.Until(last) > oauth.RefreshIdle {
		now.Add(oauth.RefreshIdle - 2*time.Hour)
		tokens = c.Refresh(tokens.Refresh, nil)
		require.Equal(t, http.StatusOK, tokens.Status, tokens.ErrorDescription)
	}
	grants, err = s.Grants(ctx, "biz-1")
	require.NoError(t, err)
	require.Len(t, grants, 1)
	require.Equal(t, last, grants[0].ExpiresAt)
	now.Add(now.Until(last) - time.Minute)
	tokens = c.Refresh(tokens.Refresh, nil)
	require.Equal(t, http.StatusOK, tokens.Status)
	require.LessOrEqual(t, tokens.ExpiresIn, 60)
	now.Add(time.Minute + soon)
	require.Equal(t, "invalid_grant", c.Refresh(tokens.Refresh, nil).Error)
	_, err = s.Authenticate(ctx, tokens.Access)
	require.ErrorIs(t, err, oauth.ErrInvalidToken)
	grants, err = s.Grants(ctx, "biz-1")
	require.NoError(t, err)
	require.Empty(t, grants)

	c = oauthtest.Register(t, s) // the first one has not been used for too long, too
	idle := c.Connect(oauthtest.Owner(), "")
	now.Add(oauth.RefreshIdle + soon)
	require.Equal(t, "invalid_grant", c.Refresh(idle.Refresh, nil).Error)
}

func TestGatewayClockDoesNotMatter(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]time.Duration{
		"a minute behind": 61 * time.Second, "two minutes behind": 121 * time.Second, "two months behind": 61 * 24 * time.Hour,
		"a minute ahead": -61 * time.Second, "two minutes ahead": -121 * time.Second, "two months ahead": -61 * 24 * time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := newClock(t)
			now.Add(wrong)
			s := newServer(t, withClock(now))
			c, first := oauthtest.Connect(t, s, oauthtest.Owner(), "")
			require.Equal(t, 3600, first.ExpiresIn)
			second := c.Refresh(first.Refresh, nil)
			require.Equal(t, http.StatusOK, second.Status)
			require.InDelta(t, 3600, second.ExpiresIn, 60)
			require.Equal(t, second.Refresh, c.Refresh(first.Refresh, nil).Refresh)
			grant, err := s.Authenticate(t.Context(), second.Access)
			require.NoError(t, err)
			grants, err := s.Grants(t.Context(), "biz-1")
			require.NoError(t, err)
			require.Equal(t, []oauth.Grant{grant}, grants)
			require.NoError(t, s.Revoke(t.Context(), grant.ID, oauthtest.Owner()))
			require.Equal(t, []string{"approved", "started", "revoked"}, recorded(t, s))
		})
	}
}

func TestClientWithoutRefreshGrantGetsNoRefreshToken(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newServer(t)
	c := oauthtest.Register(t, s)
	c.ID = register(t, c, `{"redirect_uris":["http://127.0.0.1/callback"],"grant_types":["authorization_code","urn:example:new"]}`)
	tokens := c.Connect(oauthtest.Owner(), "")
	require.Empty(t, tokens.Refresh)
	grant, err := s.Authenticate(ctx, tokens.Access)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(oauth.AccessLifetime), grant.ExpiresAt, time.Minute)
}

func TestLastUsedIsRecordedAtFirstUseAndThenPerMinute(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	now := newClock(t)
	s := newServer(t, withClock(now))
	_, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "")
	used := func() time.Time {
		grants, err := s.Grants(ctx, "biz-1")
		require.NoError(t, err)
		require.Len(t, grants, 1)
		return grants[0].LastUsedAt
	}
	began := used()
	now.Add(2 * time.Second)
	_, err := s.Authenticate(ctx, tokens.Access)
	require.NoError(t, err)
	first := used()
	require.GreaterOrEqual(t, first.Sub(began), 2*time.Second)
	now.Add(20 * time.Second)
	_, err = s.Authenticate(ctx, tokens.Access)
	require.NoError(t, err)
	require.Equal(t, first, used())
	now.Add(40 * time.Second)
	grant, err := s.Authenticate(ctx, tokens.Access)
	require.NoError(t, err)
	require.GreaterOrEqual(t, used().Sub(first), time.Minute)
	require.Equal(t, grant.LastUsedAt, used())
}

func TestGrantsListsOnlyTheBusinesssConnections(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	now := newClock(t)
	known := newAccounts()
	s := newServer(t, withClock(now), func(o *oauth.Options) { o.Accounts = known })
	protected := s.Protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	mine, other := oauthtest.Owner(), oauthtest.Owner()
	other.ID = "acc-2"
	foreign := oauthtest.Owner()
	foreign.BusinessID, foreign.ID = "biz-2", "acc-3"
	var tokens []oauthtest.Tokens
	for _, by := range []account.Account{mine, other, foreign, mine} {
		_, own := oauthtest.Connect(t, s, by, "")
		tokens = append(tokens, own)
		now.Add(time.Second)
	}
	grants, err := s.Grants(ctx, "biz-1")
	require.NoError(t, err)
	require.Len(t, grants, 3)
	require.True(t, grants[0].CreatedAt.After(grants[1].CreatedAt), "the newest first")

	known.change(func(all map[string]account.Account) { delete(all, "acc-1") })
	for i, gone := range []bool{true, false, false, true} {
		require.Equal(t, gone, call(protected, "Bearer "+tokens[i].Access).Code == http.StatusUnauthorized)
	}
	grants, err = s.Grants(ctx, "biz-1")
	require.NoError(t, err)
	require.Len(t, grants, 1)
	require.Equal(t, "acc-2", grants[0].AccountID)
	none, err := s.Grants(ctx, "biz-unknown")
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestCodeEndsWithItsAccount(t *testing.T) {
	t.Parallel()
	known := newAccounts()
	s := newServer(t, func(o *oauth.Options) { o.Accounts = known })
	protected := s.Protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("let through") }))
	c := oauthtest.Register(t, s)
	verifier, challenge := oauthtest.PKCE()
	code := c.Code(oauthtest.Owner(), challenge, nil)
	known.change(func(all map[string]account.Account) { delete(all, "acc-1") })
	tokens := c.Exchange(code, verifier, nil)
	require.Equal(t, http.StatusUnauthorized, call(protected, "Bearer "+tokens.Access).Code)
	require.Equal(t, "invalid_grant", c.Refresh(tokens.Refresh, nil).Error)
	require.Equal(t, []string{"approved", "started", unknown}, recorded(t, s))
}

func TestRefreshRotatesAndNeverAddsScopes(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newServer(t)
	c, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "mcp:write")

	narrow := c.Refresh(tokens.Refresh, url.Values{"scope": {"contacts:read"}})
	require.Equal(t, http.StatusOK, narrow.Status)
	require.Equal(t, "contacts:read", narrow.Scope)
	require.NotEqual(t, tokens.Refresh, narrow.Refresh)
	grant, err := s.Authenticate(ctx, narrow.Access)
	require.NoError(t, err)
	require.Equal(t, "contacts:read", grant.Scopes.String())
	grants, err := s.Grants(ctx, "biz-1")
	require.NoError(t, err)
	require.Equal(t, "mcp:write", grants[0].Scopes.String(), "the connection still is what was granted")

	for _, more := range []string{"mcp:use", "mcp:write automations:run"} {
		refused := c.Refresh(narrow.Refresh, url.Values{"scope": {more}})
		require.Equal(t, "invalid_scope", refused.Error)
		require.Empty(t, refused.Access)
	}
	wide := c.Refresh(narrow.Refresh, url.Values{"scope": {"openid offline_access"}})
	require.Equal(t, "mcp:write", wide.Scope)
	_, err = s.Authenticate(ctx, tokens.Access)
	require.NoError(t, err, "an access token lives its time")
}
