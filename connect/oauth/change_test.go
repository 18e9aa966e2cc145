package oauth_test

import (
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/internal/test/oauthtest"
)

// change changes the only connection of "biz-1" as an owner who has just opened the page.
func change(t testing.TB, s *oauth.Server, granted string, unasked bool) {
	t.Helper()
	g := grants(t, s)[0]
	require.NoError(t, s.Change(t.Context(), g.ID, g.Version, oauthtest.Owner(), scopes(t, granted), unasked))
}

// may returns what an access token allows, or "" if it is invalid.
func may(t testing.TB, s *oauth.Server, access string) string {
	t.Helper()
	if !valid(t, s, access) {
		return ""
	}
	return authenticate(t, s, access).Scopes.String()
}

func TestChangeTakesEffectOnTheSameTokensAtOnce(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c, first := oauthtest.Connect(t, s, oauthtest.Owner(), "contacts:read sales:read")
	second := c.Refresh(first.Refresh, nil)
	narrow := c.Refresh(second.Refresh, url.Values{"scope": {"contacts:read"}})
	require.Equal(t, "contacts:read", narrow.Scope)
	for _, step := range []struct{ granted, whole, narrow string }{
		{"mcp:read contacts:write", "contacts:write mcp:read", "contacts:read"},
		{"sales:read contacts:write", "contacts:write sales:read", "contacts:read"},
		{"sales:read", "sales:read", ""}, // what the client asked for is no longer granted
		{"mcp:use", "mcp:use", "contacts:read"},
	} {
		change(t, s, step.granted, false)
		assert.Equal(t, step.whole, may(t, s, first.Access))
		assert.Equal(t, step.whole, may(t, s, second.Access))
		assert.Equal(t, step.narrow, may(t, s, narrow.Access))
		assert.Equal(t, step.whole, grants(t, s)[0].Scopes.String())
	}
	next := c.Refresh(narrow.Refresh, nil)
	assert.Equal(t, "mcp:use", next.Scope, "the response names what is granted now")
	assert.Equal(t, "mcp:use", may(t, s, next.Access))
	list := entries(t, s)
	assert.Equal(t, []string{"approved", "started", "changed", "changed", "changed", "changed"}, recorded(t, s))
	assert.Equal(t, "contacts:write mcp:read", list[2].Detail)
	assert.Equal(t, "Olive Owner", list[2].AccountName)
	assert.Equal(t, "Test Assistant", list[2].ClientName)
}

func TestRefreshAfterAChange(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		approved, changed, asked string
		want, later              string // the scope of the response, or the error; after mcp:read was granted
	}{
		"extended":                                     {"contacts:read", "contacts:write sales:read", "", "contacts:write sales:read", "mcp:read"},
		"extended, naming what it was told":            {"contacts:read", "contacts:write sales:read", "contacts:read", "contacts:write sales:read", "mcp:read"},
		"extended, asking for all":                     {"contacts:read", "contacts:write sales:read", "contacts:write sales:read", "contacts:write sales:read", "mcp:read"},
		"extended, asking for a part":                  {"contacts:read", "contacts:write sales:read", "sales:read", "sales:read", "sales:read"},
		"extended, asking for more":                    {"contacts:read", "contacts:write sales:read", "mcp:write", "invalid_scope", ""},
		"narrowed":                                     {"contacts:write sales:read", "contacts:read", "", "contacts:read", "mcp:read"},
		"narrowed, naming what it was told":            {"contacts:write sales:read", "contacts:read", "contacts:write sales:read", "contacts:read", "mcp:read"},
		"narrowed, asking for a part of it":            {"contacts:write sales:read", "contacts:read", "contacts:write", "contacts:read", "contacts:read"},
		"narrowed, asking for a part that is left":     {"mcp:write", "mcp:read", "sales:read", "sales:read", "sales:read"},
		"narrowed, asking for what is gone":            {"contacts:write sales:read", "contacts:read", "sales:read", "invalid_scope", ""},
		"narrowed, asking for more":                    {"contacts:write sales:read", "contacts:read", "mcp:use", "invalid_scope", ""},
		"replaced, naming what it was told and a part": {"contacts:read", "sales:read", "contacts:read sales:read", "invalid_scope", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			c, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), test.approved)
			change(t, s, test.changed, false)
			next := c.Refresh(tokens.Refresh, url.Values{"scope": {test.asked}})
			if next.Status != http.StatusOK {
				require.Equal(t, test.want, next.Error)
				assert.Equal(t, http.StatusOK, c.Refresh(tokens.Refresh, nil).Status, "the refresh token is not used up")
				return
			}
			require.Equal(t, test.want, next.Scope)
			assert.Equal(t, test.want, may(t, s, next.Access))
			repeat := func() []string {
				again := c.Refresh(tokens.Refresh, url.Values{"scope": {test.asked}})
				return []string{again.Error, again.Refresh, again.Access, again.Scope}
			}
			for range 2 { // the response is lost, and that to the repetition, too
				assert.Equal(t, []string{"", next.Refresh, next.Access, test.want}, repeat())
			}
			change(t, s, "mcp:read", false)
			assert.Equal(t, test.later, may(t, s, next.Access))
			if test.want != "contacts:read" || test.asked != "contacts:write" { // of that, nothing else is granted any more
				assert.Equal(t, []string{"", next.Refresh, next.Access, test.later}, repeat())
			}
		})
	}
}

func TestChangeIsRejected(t *testing.T) {
	t.Parallel()
	member, rival := oauthtest.Owner(), oauthtest.Owner()
	member.Role = account.RoleMember
	rival.ID, rival.BusinessID = "acc-3", "biz-2"
	all, s := reconfigured(t, "automations")
	_, tokens := oauthtest.Connect(t, all, oauthtest.Owner(), "contacts:read")
	g := grants(t, s)[0]
	waiting := oauthtest.Register(t, s)
	code := waiting.Code(oauthtest.Owner(), challenge(), nil) // which is not redeemed
	for name, test := range map[string]struct {
		id, version, scopes string
		by                  account.Account
		want                error
	}{
		"another business":         {g.ID, "", "mcp:read", rival, oauth.ErrNoGrant},
		"no business":              {g.ID, "", "mcp:read", account.Account{Role: account.RoleOwner}, oauth.ErrNoGrant},
		"a member":                 {g.ID, "", "mcp:read", member, oauth.ErrNotOwner},
		"no scope":                 {g.ID, "", "", oauthtest.Owner(), oauth.ErrScopes},
		"a switched-off area":      {g.ID, "", "contacts:read automations:run", oauthtest.Owner(), oauth.ErrScopes},
		"everything of all areas":  {g.ID, "", "mcp:use", oauthtest.Owner(), oauth.ErrScopes},
		"another version":          {g.ID, "made up", "contacts:write", oauthtest.Owner(), oauth.ErrChanged},
		"no such connection":       {"AAAAAAAAAAAAAAAAAAAAAA", "", "contacts:write", oauthtest.Owner(), oauth.ErrNoGrant},
		"another key of Redis":     {"x}:request", "", "contacts:write", oauthtest.Owner(), oauth.ErrNoGrant},
		"a code that is not used":  {code[4:26], "", "contacts:write", oauthtest.Owner(), oauth.ErrNoGrant},
		"an access token as an ID": {tokens.Access, "", "contacts:write", oauthtest.Owner(), oauth.ErrNoGrant},
	} {
		require.ErrorIs(t, s.Change(t.Context(), test.id, test.version, test.by, scopes(t, test.scopes), true), test.want, name)
		assert.Equal(t, "contacts:read", may(t, s, tokens.Access), name)
	}
	now := grants(t, s)[0]
	assert.Equal(t, []any{g.Scopes, false, ""}, []any{now.Scopes, now.Unasked, now.Version})
	log := recorded(t, s)
	assert.Equal(t, []string{"changed/denied"}, log[3:], "what a member tried")
	require.NoError(t, s.Revoke(t.Context(), g.ID, oauthtest.Owner()))
	require.ErrorIs(t, s.Change(t.Context(), g.ID, "", oauthtest.Owner(), scopes(t, "contacts:read"), false), oauth.ErrNoGrant)
	assert.Empty(t, grants(t, s))
}

// Two owners have opened the page of the same connection.
func TestStaleChangeIsRejectedAndARepeatedOneHarmless(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	_, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "contacts:read")
	g := grants(t, s)[0]
	do := func(granted string) error {
		return s.Change(t.Context(), g.ID, g.Version, oauthtest.Owner(), scopes(t, granted), false)
	}
	for range 3 {
		require.NoError(t, do("sales:read"))
	}
	require.ErrorIs(t, do("contacts:write"), oauth.ErrChanged)
	assert.Equal(t, "sales:read", may(t, s, tokens.Access))
	change(t, s, "contacts:read", false)
	require.ErrorIs(t, do("sales:read"), oauth.ErrChanged)
	assert.Equal(t, []string{"approved", "started", "changed", "changed"}, recorded(t, s))
}

func TestUnaskedNeedsARunScope(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	_, tokens := oauthtest.Connect(t, s, oauthtest.Owner(), "mcp:read")
	unasked := func() bool {
		g := authenticate(t, s, tokens.Access)
		assert.Equal(t, g.Unasked, grants(t, s)[0].Unasked)
		return g.Unasked
	}
	require.False(t, unasked())
	change(t, s, "mcp:write", true)
	require.False(t, unasked())
	change(t, s, "contacts:read automations:run", true)
	require.True(t, unasked())
	change(t, s, "contacts:read automations:run", false)
	require.False(t, unasked())
	change(t, s, "contacts:read automations:run", true)
	change(t, s, "contacts:read", true)
	change(t, s, "contacts:read automations:run", false)
	require.False(t, unasked(), "it does not return with the scope")
	var details []string
	for _, e := range entries(t, s) {
		if e.Action == audit.ConnectionChanged {
			details = append(details, e.Detail)
		}
	}
	assert.Equal(t, []string{
		"mcp:write", "automations:run contacts:read unasked", "automations:run contacts:read", "automations:run contacts:read unasked",
		"contacts:read", "automations:run contacts:read",
	}, details)
}

// What an owner does not see, because the area is switched off, does not return with the area.
func TestChangeForgetsSwitchedOffAreas(t *testing.T) {
	t.Parallel()
	all, reduced := reconfigured(t, "automations")
	_, tokens := oauthtest.Connect(t, all, oauthtest.Owner(), "automations:run contacts:read")
	change(t, reduced, "contacts:write", false)
	assert.Equal(t, "contacts:write", may(t, all, tokens.Access))
}

func TestRevocationWinsAgainstConcurrentChanges(t *testing.T) {
	t.Parallel()
	s := newServer(t, unlimited)
	c := oauthtest.Register(t, s)
	for range 20 {
		tokens := c.Connect(oauthtest.Owner(), "contacts:read")
		id := grantID(tokens)
		errs := atOnce(4, func(i int) error {
			if i == 0 {
				return s.Revoke(t.Context(), id, oauthtest.Owner())
			}
			return s.Change(t.Context(), id, "", oauthtest.Owner(), scopes(t, "mcp:use"), true)
		})
		require.NoError(t, errs[0])
		for _, err := range errs[1:] {
			if err != nil {
				require.ErrorIs(t, err, oauth.ErrNoGrant)
			}
		}
		require.False(t, valid(t, s, tokens.Access))
		require.Equal(t, "invalid_grant", c.Refresh(tokens.Refresh, nil).Error)
		require.Empty(t, grants(t, s))
		exists, err := s.Exists(t.Context(), id)
		require.NoError(t, err)
		require.False(t, exists, "a change restores nothing")
	}
}

func TestNoTokenSurvivesANarrowingWithMore(t *testing.T) {
	t.Parallel()
	s := newServer(t, unlimited)
	c := oauthtest.Register(t, s)
	for range 20 {
		tokens := c.Connect(oauthtest.Owner(), "mcp:use")
		id := grantID(tokens)
		issued := atOnce(6, func(i int) oauthtest.Tokens {
			switch i {
			case 0:
				assert.NoError(t, s.Change(t.Context(), id, "", oauthtest.Owner(), scopes(t, "contacts:read"), false))
				return tokens
			case 1:
				return c.Refresh(tokens.Refresh, url.Values{"scope": {"contacts:write sales:read"}})
			}
			return c.Refresh(tokens.Refresh, nil)
		})
		if e := issued[1].Error; e != "" { // it was told before that less is granted
			require.Equal(t, "invalid_scope", e)
			issued = slices.Delete(issued, 1, 2)
		}
		for _, each := range issued {
			require.Equal(t, http.StatusOK, each.Status, each.ErrorDescription)
			assert.Equal(t, "contacts:read", may(t, s, each.Access))
		}
		assert.Equal(t, "contacts:read", c.Refresh(issued[len(issued)-1].Refresh, nil).Scope)
		require.NoError(t, s.Revoke(t.Context(), id, oauthtest.Owner()))
	}
}
