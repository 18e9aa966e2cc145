package oauth_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
	"github.com/gatehouse-gateway/gatehouse/internal/test/accounttest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/oauthtest"
)

func TestConnectionEndsWithItsAccount(t *testing.T) {
	t.Parallel()
	elsewhere, member := oauthtest.Owner(), oauthtest.Owner()
	elsewhere.BusinessID, member.Role = "biz-2", account.RoleMember
	for name, test := range map[string]struct {
		change func(*accounttest.Service)
		entry  string
	}{
		"it is gone":                       {func(s *accounttest.Service) { s.Remove("acc-1") }, unknown},
		"it has moved to another business": {func(s *accounttest.Service) { s.Put(elsewhere) }, moved},
		"it is no longer an owner":         {func(s *accounttest.Service) { s.Put(member) }, notAnOwner},
	} {
		for _, use := range []string{"call", "refresh", "call with a new token"} {
			t.Run(name+", "+use, func(t *testing.T) {
				t.Parallel()
				known := newAccounts()
				s := newServer(t, func(o *oauth.Options) { o.Accounts = known })
				c := oauthtest.Register(t, s)
				verifier, challenge := oauthtest.PKCE()
				code := c.Code(oauthtest.Owner(), challenge, nil)
				if use == "call with a new token" {
					test.change(known)
				}
				tokens := c.Exchange(code, verifier, nil)
				test.change(known)
				if use == "refresh" {
					require.Equal(t, "invalid_grant", c.Refresh(tokens.Refresh, nil).Error)
				} else {
					w := call(s, tokens.Access)
					require.Equal(t, http.StatusUnauthorized, w.Code)
					require.Contains(t, w.Header().Get("WWW-Authenticate"), `error="invalid_token"`)
				}
				known.Put(oauthtest.Owner())
				assert.Equal(t, http.StatusUnauthorized, call(s, tokens.Access).Code, "it does not come back")
				assert.Equal(t, "invalid_grant", c.Refresh(tokens.Refresh, nil).Error)
				assert.Empty(t, grants(t, s))
				assert.Equal(t, []string{"approved", "started", test.entry}, recorded(t, s))
			})
		}
	}
}

func TestAccountsServiceOutageEndsNoConnection(t *testing.T) {
	t.Parallel()
	known := newAccounts()
	s := newServer(t, func(o *oauth.Options) { o.Accounts = known })
	c, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "")
	protected := s.Protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		found, err := oauth.AccountFrom(r.Context())
		_, _ = fmt.Fprint(w, found == oauthtest.Owner(), " ", errors.Is(err, account.ErrUnavailable))
	}))
	use := func() string {
		return send(protected, http.MethodPost, "/mcp", "", "Authorization: Bearer "+tokens.Access).Body.String()
	}
	require.Equal(t, "true false", use())

	known.SetDown(true)
	require.Equal(t, "false true", use(), "what does not need the account works on")
	rejected := c.Refresh(tokens.Refresh, nil)
	require.Equal(t, http.StatusServiceUnavailable, rejected.Status)
	require.Equal(t, "temporarily_unavailable", rejected.Error)

	known.SetDown(false)
	assert.Equal(t, http.StatusOK, c.Refresh(tokens.Refresh, nil).Status)
	assert.Equal(t, []string{"approved", "started"}, recorded(t, s))
}

func TestConnectionChangesAreAudited(t *testing.T) {
	t.Parallel()
	ctx, _ := requestlog.With(t.Context(), "req-7")
	s := newServer(t)
	c := oauthtest.Register(t, s)
	c.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.Handler().ServeHTTP(w, r.WithContext(ctx)) })
	verifier, challenged := oauthtest.PKCE()
	id := c.Request(challenged, map[string][]string{"scope": {"mcp:use"}})
	member, second := oauthtest.Owner(), oauthtest.Owner()
	member.Role, second.ID = account.RoleMember, "acc-2"
	_, err := s.Approve(ctx, id, member, scopes(t, "mcp:use"))
	require.ErrorIs(t, err, oauth.ErrNotOwner)
	first, err := s.Approve(ctx, id, oauthtest.Owner(), scopes(t, "contacts:read"))
	require.NoError(t, err)
	other, err := s.Approve(ctx, id, oauthtest.Owner(), scopes(t, "mcp:use")) // in another tab
	require.NoError(t, err)
	require.Equal(t, first, other)
	tokens := c.Exchange(oauthtest.CodeOf(t, first), verifier, nil)
	require.Equal(t, "mcp:use", tokens.Scope)
	grant := authenticate(t, s, tokens.Access).ID
	require.ErrorIs(t, s.Revoke(ctx, grant, member), oauth.ErrNotOwner)
	require.True(t, valid(t, s, tokens.Access))
	require.NoError(t, s.Revoke(ctx, grant, second))

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
		entry(audit.ConnectionApproved, audit.OutcomeOK, oauthtest.Owner(), "Olive Owner", "contacts:read", grant),
		entry(audit.ConnectionApproved, audit.OutcomeOK, oauthtest.Owner(), "Olive Owner", "mcp:use", grant),
		entry(audit.ConnectionStarted, audit.OutcomeOK, oauthtest.Owner(), "", "mcp:use", grant),
		entry(audit.ConnectionRevoked, audit.OutcomeDenied, member, "Olive Owner", "Not an owner", grant),
		entry(audit.ConnectionRevoked, audit.OutcomeOK, second, "Olive Owner", "", grant),
	}, all)
}
