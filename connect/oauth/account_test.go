package oauth_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/internal/test/oauthtest"
)

func TestConnectionEndsWithItsAccount(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(all map[string]account.Account)
		entry  string
	}{
		"it is gone": {func(all map[string]account.Account) { delete(all, "acc-1") }, unknown},
		"it has moved to another business": {func(all map[string]account.Account) {
			a := all["acc-1"]
			a.BusinessID = "biz-2"
			all["acc-1"] = a
		}, moved},
		"it is not an owner any more": {func(all map[string]account.Account) {
			a := all["acc-1"]
			a.Role = account.RoleMember
			all["acc-1"] = a
		}, notAnOwner},
	} {
		for way, use := range map[string]func(t *testing.T, s *oauth.Server, c *oauthtest.Client, tokens oauthtest.Tokens){
			"a call": func(t *testing.T, s *oauth.Server, _ *oauthtest.Client, tokens oauthtest.Tokens) {
				t.Helper()
				w := call(s.Protect(http.NotFoundHandler()), "Bearer "+tokens.Access)
				require.Equal(t, http.StatusUnauthorized, w.Code)
				require.Contains(t, w.Header().Get("WWW-Authenticate"), `error="invalid_token"`)
			},
			"a refresh": func(t *testing.T, _ *oauth.Server, c *oauthtest.Client, tokens oauthtest.Tokens) {
				t.Helper()
				require.Equal(t, "invalid_grant", c.Refresh(tokens.Refresh, nil).Error)
			},
		} {
			t.Run(name+", "+way, func(t *testing.T) {
				t.Parallel()
				known := newAccounts()
				s := newServer(t, func(o *oauth.Options) { o.Accounts = known })
				client, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "")
				protected := s.Protect(http.NotFoundHandler())
				require.Equal(t, http.StatusNotFound, call(protected, "Bearer "+tokens.Access).Code, "let through")
				known.change(c.change)
				use(t, s, client, tokens)

				known.change(func(all map[string]account.Account) { all["acc-1"] = oauthtest.Owner() })
				require.Equal(t, http.StatusUnauthorized, call(protected, "Bearer "+tokens.Access).Code, "it does not come back")
				require.Equal(t, "invalid_grant", client.Refresh(tokens.Refresh, nil).Error)
				grants, err := s.Grants(t.Context(), "biz-1")
				require.NoError(t, err)
				require.Empty(t, grants)
				require.Equal(t, []string{"approved", "started", c.entry}, recorded(t, s))
			})
		}
	}
}

func TestAccountsServiceOutageEndsNoConnection(t *testing.T) {
	t.Parallel()
	known := newAccounts()
	s := newServer(t, func(o *oauth.Options) { o.Accounts = known })
	c, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "")
	var found account.Account
	var err error
	protected := s.Protect(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		found, err = oauth.AccountFrom(r.Context())
	}))
	require.Equal(t, http.StatusOK, call(protected, "Bearer "+tokens.Access).Code)
	require.NoError(t, err)
	require.Equal(t, oauthtest.Owner(), found)

	known.setDown(true)
	require.Equal(t, http.StatusOK, call(protected, "Bearer "+tokens.Access).Code, "what does not need the account works on")
	require.ErrorIs(t, err, account.ErrUnavailable)
	refused := c.Refresh(tokens.Refresh, nil)
	require.Equal(t, http.StatusServiceUnavailable, refused.Status)
	require.Equal(t, "temporarily_unavailable", refused.Error)

	known.setDown(false)
	require.Equal(t, http.StatusOK, c.Refresh(tokens.Refresh, nil).Status)
	require.Equal(t, []string{"approved", "started"}, recorded(t, s))
}

func TestConnectionChangesAreAudited(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newServer(t, func(o *oauth.Options) { o.RequestID = func(context.Context) string { return "req-7" } })
	c := oauthtest.Register(t, s)
	verifier, challenged := oauthtest.PKCE()
	id := c.Request(challenged, map[string][]string{"scope": {"mcp:use"}})
	member, second := oauthtest.Owner(), oauthtest.Owner()
	member.Role, second.ID = account.RoleMember, "acc-2"
	_, err := s.Approve(ctx, id, member, scopes(t, "mcp:use"))
	require.ErrorIs(t, err, oauth.ErrNotOwner)
	first, err := s.Approve(ctx, id, oauthtest.Owner(), scopes(t, "contacts:read"))
	require.NoError(t, err)
	require.True(t, first.Decided)
	other, err := s.Approve(ctx, id, oauthtest.Owner(), scopes(t, "mcp:use")) // in another tab
	require.NoError(t, err)
	require.Equal(t, oauth.Decision{Redirect: first.Redirect, GrantID: first.GrantID, Scopes: scopes(t, "contacts:read")}, other,
		"the second decision says what holds, and that it has not decided")
	require.Equal(t, http.StatusOK, c.Exchange(oauthtest.CodeOf(t, first.Redirect), verifier, nil).Status)
	require.NoError(t, s.Revoke(ctx, first.GrantID, second))

	all := entries(t, s)
	for i := range all {
		require.False(t, all[i].Time.IsZero())
		all[i].Time = time.Time{}
	}
	entry := func(action, outcome string, by account.Account, name, detail, grant string) audit.Entry {
		return audit.Entry{
			BusinessID: "biz-1", AccountID: by.ID, AccountName: name, GrantID: grant, ClientName: "Test Assistant",
			Action: action, Target: "127.0.0.1", Outcome: outcome, Detail: detail, RequestID: "req-7",
		}
	}
	require.Equal(t, []audit.Entry{
		entry(audit.ConnectionApproved, audit.OutcomeDenied, member, "Olive Owner", "Not an owner", ""),
		entry(audit.ConnectionApproved, audit.OutcomeOK, oauthtest.Owner(), "Olive Owner", "contacts:read", first.GrantID),
		entry(audit.ConnectionStarted, audit.OutcomeOK, oauthtest.Owner(), "", "contacts:read", first.GrantID),
		entry(audit.ConnectionRevoked, audit.OutcomeOK, second, "Olive Owner", "", first.GrantID),
	}, all)
}
