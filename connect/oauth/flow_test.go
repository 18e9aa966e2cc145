package oauth_test

import (
	"context"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/internal/test/oauthtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

func TestConnectAndRevoke(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newServer(t)
	c := oauthtest.Register(t, s)
	verifier, challenge := oauthtest.PKCE()
	callback := url.Values{"redirect_uri": {"http://127.0.0.1:4711/callback"}}

	id := c.Request(challenge, url.Values{"scope": {"mcp:use"}, "redirect_uri": callback["redirect_uri"]})
	request := pending(t, s, id)
	require.Equal(t, "Test Assistant", request.Client.Name)
	require.Equal(t, c.ID, request.Client.ID)
	require.Empty(t, request.Client.Host, "nobody vouches for a client that registered itself")
	require.True(t, request.Client.LocalOnly)
	require.True(t, request.RedirectLocal)
	require.Equal(t, "127.0.0.1:4711", request.RedirectHost)
	require.Equal(t, "mcp:use", request.Scopes.String())
	require.InDelta(t, oauth.RequestLifetime, request.ExpiresIn, float64(time.Minute))

	redirect := c.Approve(id, oauthtest.Owner(), scopes(t, "mcp:read contacts:write"))
	require.Empty(t, grants(t, s), "a connection begins when its code is redeemed")
	tokens := c.Exchange(oauthtest.CodeOf(t, redirect), verifier, callback)
	require.Equal(t, http.StatusOK, tokens.Status, tokens.ErrorDescription)
	_, err := s.Pending(ctx, id)
	require.ErrorIs(t, err, oauth.ErrNoRequest)

	grant := authenticate(t, s, tokens.Access)
	require.Equal(t, "contacts:write mcp:read", grant.Scopes.String())
	require.Equal(t, c.ID, grant.ClientID)
	require.Equal(t, "Test Assistant", grant.ClientName)
	require.Equal(t, "127.0.0.1:4711", grant.ClientHost)
	require.Equal(t, "acc-1", grant.AccountID)
	require.Equal(t, "biz-1", grant.BusinessID)
	require.WithinDuration(t, time.Now().Add(oauth.RefreshIdle), grant.ExpiresAt, time.Minute)
	require.Equal(t, []oauth.Grant{grant}, grants(t, s))

	rival := oauthtest.Owner()
	rival.BusinessID = "biz-2"
	require.ErrorIs(t, s.Revoke(ctx, grant.ID, rival), oauth.ErrNoGrant, "another business's")
	require.ErrorIs(t, s.Revoke(ctx, "nonsense", oauthtest.Owner()), oauth.ErrNoGrant)
	require.ErrorIs(t, s.Revoke(ctx, grant.ID, account.Account{}), oauth.ErrNoGrant)
	require.True(t, valid(t, s, tokens.Access))
	require.NoError(t, s.Revoke(ctx, grant.ID, oauthtest.Owner()))
	assert.False(t, valid(t, s, tokens.Access), "the next call is rejected")
	assert.Equal(t, "invalid_grant", c.Refresh(tokens.Refresh, nil).Error)
	require.ErrorIs(t, s.Revoke(ctx, grant.ID, oauthtest.Owner()), oauth.ErrNoGrant)
	assert.Empty(t, grants(t, s))
	assert.Equal(t, []string{"approved", "started", "revoked"}, recorded(t, s))
}

func TestTheNewestDecisionCounts(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newServer(t)
	c := oauthtest.Register(t, s)
	verifier, challenge := oauthtest.PKCE()
	id := c.Request(challenge, nil)
	first, err := s.Deny(ctx, id, oauthtest.Owner())
	require.NoError(t, err)
	again, err := s.Deny(ctx, id, oauthtest.Owner())
	require.NoError(t, err)
	require.Equal(t, first, again, "a second submit changes nothing")
	require.Equal(t, []string{"denied/denied"}, recorded(t, s), "one entry")
	pending(t, s, id)
	_, err = s.Approve(ctx, id, oauthtest.Owner(), scopes(t, "mcp:read"))
	require.ErrorIs(t, err, oauth.ErrNoRequest, "a denied request cannot be approved")

	id = c.Request(challenge, nil)
	redirect := c.Approve(id, oauthtest.Owner(), scopes(t, "mcp:read"))
	pending(t, s, id)
	require.Equal(t, redirect, c.Approve(id, oauthtest.Owner(), scopes(t, "mcp:read")))
	colleague := oauthtest.Owner()
	colleague.ID = "acc-2"
	_, err = s.Approve(ctx, id, colleague, scopes(t, "mcp:read"))
	require.ErrorIs(t, err, oauth.ErrNoRequest, "the code is not shown to another account")
	_, err = s.Deny(ctx, id, colleague)
	require.ErrorIs(t, err, oauth.ErrNoRequest, "nor may another account end the connection here")
	require.Equal(t, []string{"denied/denied", "approved"}, recorded(t, s))
	require.Equal(t, redirect, c.Approve(id, oauthtest.Owner(), scopes(t, "contacts:read")), "another choice in the same form")
	require.Equal(t, []string{"denied/denied", "approved", "approved"}, recorded(t, s))
	tokens := c.Exchange(oauthtest.CodeOf(t, redirect), verifier, nil)
	require.Equal(t, "contacts:read", tokens.Scope)
	require.Equal(t, "contacts:read", authenticate(t, s, tokens.Access).Scopes.String())
	_, err = s.Approve(ctx, id, oauthtest.Owner(), scopes(t, "mcp:read"))
	require.ErrorIs(t, err, oauth.ErrNoRequest)
	_, err = s.Deny(ctx, id, oauthtest.Owner())
	require.ErrorIs(t, err, oauth.ErrNoRequest, "the connection has begun")
	require.True(t, valid(t, s, tokens.Access))

	id = c.Request(challenge, nil)
	redirect = c.Approve(id, oauthtest.Owner(), scopes(t, "mcp:read"))
	denied, err := s.Deny(ctx, id, oauthtest.Owner())
	require.NoError(t, err)
	require.Contains(t, denied, "error=access_denied")
	again, err = s.Deny(ctx, id, oauthtest.Owner())
	require.NoError(t, err)
	require.Equal(t, denied, again)
	require.Equal(t, "invalid_grant", c.Exchange(oauthtest.CodeOf(t, redirect), verifier, nil).Error)
	require.Len(t, grants(t, s), 1)
	require.Equal(t, []string{"approved", "denied/denied"}, recorded(t, s)[4:])
}

// The response names the scopes that were read before; a refresh may name them, too.
func TestCodeIsApprovedAgainWhileItIsRedeemed(t *testing.T) {
	t.Parallel()
	var before atomic.Pointer[func()] // called before the next script
	prefix := prefixOf(t)
	s := newServer(t, func(o *oauth.Options) {
		o.Prefix, o.Redis, o.Audit = prefix, clientOf(t, shared.Options()), newLog(t, clientOf(t, shared.Options()), prefix)
		o.Redis.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if _, ok := cmd.(*redis.Cmd); ok {
				if do := before.Swap(nil); do != nil {
					(*do)()
				}
			}
			return next(ctx, cmd)
		}))
	})
	c := oauthtest.Register(t, s)
	verifier, challenge := oauthtest.PKCE()
	id := c.Request(challenge, url.Values{"scope": {"mcp:write"}})
	code := oauthtest.CodeOf(t, c.Approve(id, oauthtest.Owner(), scopes(t, "mcp:write")))
	again := func() { c.Approve(id, oauthtest.Owner(), scopes(t, "mcp:read")) }
	before.Store(&again)
	tokens := c.Exchange(code, verifier, nil)
	require.Equal(t, "mcp:write", tokens.Scope)
	require.Equal(t, "mcp:read", authenticate(t, s, tokens.Access).Scopes.String())
	require.Equal(t, "mcp:read", c.Refresh(tokens.Refresh, url.Values{"scope": {tokens.Scope}}).Scope)
}

func TestOnlyOwnersApproveAndOnlyRequestedScopes(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newServer(t)
	c := oauthtest.Register(t, s)
	id := c.Request(challenge(), url.Values{"scope": {"mcp:write"}})
	member := oauthtest.Owner()
	member.Role = account.RoleMember
	for _, by := range []account.Account{member, {Role: account.RoleOwner}} {
		_, err := s.Approve(ctx, id, by, scopes(t, "mcp:read"))
		require.ErrorIs(t, err, oauth.ErrNotOwner)
	}
	for _, granted := range []string{"", "mcp:use", "mcp:write automations:run"} {
		_, err := s.Approve(ctx, id, oauthtest.Owner(), scopes(t, granted))
		require.ErrorIs(t, err, oauth.ErrScopes, granted)
	}
	for _, unknown := range []string{"", "x", id + "x", id[:len(id)-1], "grq_" + id, id[:26] + "." + id[4:26] + id[4:25]} {
		_, err := s.Approve(ctx, unknown, oauthtest.Owner(), scopes(t, "mcp:read"))
		require.ErrorIs(t, err, oauth.ErrNoRequest, unknown)
		_, err = s.Pending(ctx, unknown)
		require.ErrorIs(t, err, oauth.ErrNoRequest)
		_, err = s.Deny(ctx, unknown, oauthtest.Owner())
		require.ErrorIs(t, err, oauth.ErrNoRequest)
	}
	c.Approve(id, oauthtest.Owner(), scopes(t, "mcp:write"))
}

func TestScopeAndStateAreOptional(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := oauthtest.Register(t, s)
	for asked, want := range map[string]string{
		"":                                "mcp:read",
		"openid offline_access":           "mcp:read",
		"mcp:write offline_access":        "mcp:write",
		"contacts:write mcp:read email":   "contacts:write mcp:read",
		" mcp:read  mcp:write profile":    "mcp:read mcp:write",
		"mcp:use address phone mcp:write": "mcp:use mcp:write",
	} {
		request := pending(t, s, c.Request(challenge(), url.Values{"scope": {asked}, "state": nil}))
		require.Equal(t, want, request.Scopes.String())
		response := parse(t, c.Approve(request.ID, oauthtest.Owner(), request.Scopes)).Query()
		assert.False(t, response.Has("state"))
		assert.Equal(t, issuer, response.Get("iss"))
	}
}

func TestLifetimes(t *testing.T) {
	t.Parallel()
	now := newClock(t) // of Redis
	s := newServer(t, withClock(now))
	c := oauthtest.Register(t, s)
	verifier, challenge := oauthtest.PKCE()
	const soon = 10 * time.Second // longer than any step of the test

	id := c.Request(challenge, nil)
	now.Add(oauth.RequestLifetime - soon)
	pending(t, s, id)
	now.Add(2 * soon)
	_, err := s.Pending(t.Context(), id)
	require.ErrorIs(t, err, oauth.ErrNoRequest)
	_, err = s.Approve(t.Context(), id, oauthtest.Owner(), scopes(t, "mcp:read"))
	require.ErrorIs(t, err, oauth.ErrNoRequest)

	code := c.Code(oauthtest.Owner(), challenge, nil)
	now.Add(oauth.CodeLifetime + soon)
	require.Equal(t, "invalid_grant", c.Exchange(code, verifier, nil).Error)

	code = c.Code(oauthtest.Owner(), challenge, nil)
	now.Add(oauth.CodeLifetime - soon)
	tokens := c.Exchange(code, verifier, nil)
	require.Equal(t, http.StatusOK, tokens.Status)

	now.Add(oauth.AccessLifetime - soon)
	require.True(t, valid(t, s, tokens.Access))
	now.Add(2 * soon)
	require.False(t, valid(t, s, tokens.Access))

	// Use extends the refresh token, but not beyond the end of the connection.
	require.Len(t, grants(t, s), 1)
	last := grants(t, s)[0].CreatedAt.Add(oauth.GrantLifetime)
	for now.Until(last) > oauth.RefreshIdle {
		now.Add(oauth.RefreshIdle - 2*time.Hour)
		tokens = c.Refresh(tokens.Refresh, nil)
		require.Equal(t, http.StatusOK, tokens.Status, tokens.ErrorDescription)
	}
	require.Len(t, grants(t, s), 1)
	require.Equal(t, last, grants(t, s)[0].ExpiresAt)
	now.Add(now.Until(last) - time.Minute)
	tokens = c.Refresh(tokens.Refresh, nil)
	require.Equal(t, http.StatusOK, tokens.Status)
	require.LessOrEqual(t, tokens.ExpiresIn, 60)
	now.Add(time.Minute + soon)
	require.Equal(t, "invalid_grant", c.Refresh(tokens.Refresh, nil).Error)
	require.False(t, valid(t, s, tokens.Access))
	require.Empty(t, grants(t, s))

	c = oauthtest.Register(t, s) // the first client's registration has expired
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
			grant := authenticate(t, s, second.Access)
			assert.Equal(t, []oauth.Grant{grant}, grants(t, s))
			require.NoError(t, s.Revoke(t.Context(), grant.ID, oauthtest.Owner()))
			assert.Equal(t, []string{"approved", "started", "revoked"}, recorded(t, s))
		})
	}
}

func TestConnectionWithoutRefreshTokenEndsWithItsAccessToken(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := register(t, s, `{"redirect_uris":["http://127.0.0.1/callback"],"grant_types":["authorization_code"]}`)
	grant := authenticate(t, s, c.Connect(oauthtest.Owner(), "").Access)
	require.WithinDuration(t, time.Now().Add(oauth.AccessLifetime), grant.ExpiresAt, time.Minute)
}

func TestLastUsedIsRecordedAtFirstUseAndThenPerMinute(t *testing.T) {
	t.Parallel()
	now := newClock(t)
	s := newServer(t, withClock(now))
	_, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "")
	used := func() time.Time {
		all := grants(t, s)
		require.Len(t, all, 1)
		return all[0].LastUsedAt
	}
	began := used()
	now.Add(2 * time.Second)
	authenticate(t, s, tokens.Access)
	first := used()
	require.GreaterOrEqual(t, first.Sub(began), 2*time.Second)
	now.Add(20 * time.Second)
	authenticate(t, s, tokens.Access)
	require.Equal(t, first, used())
	now.Add(40 * time.Second)
	grant := authenticate(t, s, tokens.Access)
	assert.GreaterOrEqual(t, used().Sub(first), time.Minute)
	assert.Equal(t, grant.LastUsedAt, used())
}

func TestGrantsListsOnlyTheConnectionsOfABusiness(t *testing.T) {
	t.Parallel()
	now := newClock(t)
	known := newAccounts()
	s := newServer(t, withClock(now), func(o *oauth.Options) { o.Accounts = known })
	var tokens []oauthtest.Tokens
	for _, id := range []string{"acc-1", "acc-2", "acc-3", "acc-1"} {
		by, err := known.Account(t.Context(), id)
		require.NoError(t, err)
		_, own := oauthtest.Connect(t, s, by, "")
		tokens = append(tokens, own)
		now.Add(time.Second)
	}
	all := grants(t, s)
	require.Len(t, all, 3)
	require.True(t, all[0].CreatedAt.After(all[1].CreatedAt), "the newest first")

	known.Remove("acc-1")
	for i, status := range []int{http.StatusUnauthorized, http.StatusNotFound, http.StatusNotFound, http.StatusUnauthorized} {
		assert.Equal(t, status, call(s, tokens[i].Access).Code)
	}
	all = grants(t, s)
	require.Len(t, all, 1)
	require.Equal(t, "acc-2", all[0].AccountID)
	none, err := s.Grants(t.Context(), "biz-unknown")
	require.NoError(t, err)
	assert.Empty(t, none)
}

func TestConnectionsOfABusinessAreLimited(t *testing.T) {
	t.Parallel()
	ctx, known, prefix := t.Context(), newAccounts(), prefixOf(t)
	sharing := func(o *oauth.Options) { o.Accounts, o.Prefix = known, prefix; unlimited(o) }
	s, other := newServer(t, sharing), newServer(t, sharing, func(o *oauth.Options) { o.Issuer = "https://other.example.com" })
	_, elsewhere := oauthtest.Connect(t, other, oauthtest.Owner(), "")
	c, first := oauthtest.Connect(t, s, oauthtest.Owner(), "")
	for range oauth.MaxGrants - 2 {
		c.Connect(oauthtest.Owner(), "")
	}
	verifier, challenged := oauthtest.PKCE()
	late := c.Code(oauthtest.Owner(), challenged, nil)
	colleague, err := known.Account(ctx, "acc-2")
	require.NoError(t, err)
	c.Connect(colleague, "")
	require.Len(t, grants(t, s), oauth.MaxGrants)

	refused := c.Exchange(late, verifier, nil)
	require.Equal(t, "invalid_grant", refused.Error)
	assert.Equal(t, "the business has reached the maximum number of connections", refused.ErrorDescription)
	id := c.Request(challenge(), nil)
	_, err = s.Approve(ctx, id, oauthtest.Owner(), scopes(t, "mcp:read"))
	require.ErrorIs(t, err, oauth.ErrTooManyGrants)
	last := entries(t, s)[len(entries(t, s))-1]
	assert.Equal(t, "connection.approved denied: The business has reached the maximum number of connected apps", last.Action+" "+last.Outcome+": "+last.Detail)
	rival, err := known.Account(ctx, "acc-3")
	require.NoError(t, err)
	c.Connect(rival, "")
	require.True(t, valid(t, other, elsewhere.Access))

	require.NoError(t, s.Revoke(ctx, grantID(first), oauthtest.Owner()))
	require.Equal(t, http.StatusOK, c.Exchange(late, verifier, nil).Status, "the refused code was not used")
}
