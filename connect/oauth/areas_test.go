package oauth_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/internal/test/connecttest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/oauthtest"
)

// reconfigured returns two servers on one store: one with all areas, and one without those named, as after a reload.
func reconfigured(t *testing.T, except ...string) (all, reduced *oauth.Server) {
	t.Helper()
	client, prefix := clientOf(t, shared.Options()), prefixOf(t)
	all = newServer(t, func(o *oauth.Options) { o.Redis, o.Prefix = client, prefix })
	areas, err := connecttest.Areas(t).Without(except...)
	require.NoError(t, err)
	reduced = newServer(t, func(o *oauth.Options) { o.Redis, o.Prefix, o.Areas = client, prefix, areas })
	return all, reduced
}

// at returns the client at another server.
func at(s *oauth.Server, c *oauthtest.Client) *oauthtest.Client {
	return &oauthtest.Client{TB: c.TB, Server: s, Handler: s.Handler(), ID: c.ID}
}

func TestScopesOfASwitchedOffAreaAreUnknown(t *testing.T) {
	t.Parallel()
	_, s := reconfigured(t, "automations", "conversations")
	c := register(t, s, `{"redirect_uris":["`+oauthtest.Callback+`"],"scope":"automations:run mcp:read"}`)

	t.Run("in metadata", func(t *testing.T) {
		t.Parallel()
		for _, path := range []string{
			"/.well-known/oauth-authorization-server", "/.well-known/openid-configuration",
			"/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp",
		} {
			w := c.Do(httptest.NewRequest(http.MethodGet, path, http.NoBody))
			var metadata struct {
				Scopes []string `json:"scopes_supported"`
			}
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &metadata))
			assert.Equal(t, []string{"mcp:read", "mcp:write"}, metadata.Scopes, "mcp:use would add nothing")
		}
	})
	t.Run("in a registration", func(t *testing.T) {
		t.Parallel()
		w := postRegistration(c, `{"redirect_uris":["`+oauthtest.Callback+`"],"scope":"automations:run"}`)
		require.Equal(t, http.StatusCreated, w.Code)
		assert.NotContains(t, w.Body.String(), "automations", "it is ignored, like any scope there")
	})
	t.Run("in an authorization request", func(t *testing.T) {
		t.Parallel()
		invented := location(t, c.Authorize(challenge(), url.Values{"scope": {"mcp:read invented:run"}})).Query()
		require.Equal(t, "invalid_scope", invented.Get("error"))
		for _, name := range []string{"automations:run", "automations:read", "conversations:read"} {
			q := location(t, c.Authorize(challenge(), url.Values{"scope": {"mcp:read " + name}})).Query()
			assert.Equal(t, "invalid_scope", q.Get("error"), name)
			assert.Equal(t, "unknown scope '"+name+"'", q.Get("error_description"), "the same as for one that never existed")
		}
		for asked, want := range map[string]string{"": "mcp:read", "mcp:use": "mcp:use", "contacts:write": "contacts:write"} {
			request := pending(t, s, c.Request(challenge(), url.Values{"scope": {asked}}))
			assert.Equal(t, want, request.Scopes.String())
			assert.False(t, request.Scopes.Allows("automations:read"))
			assert.False(t, request.Scopes.Allows("conversations:read"))
		}
	})
	t.Run("in an approval", func(t *testing.T) {
		t.Parallel()
		id := c.Request(challenge(), url.Values{"scope": {"mcp:use"}})
		for _, forged := range []string{"automations:run", "mcp:read automations:read", "mcp:use", "conversations:read"} {
			_, err := s.Approve(t.Context(), id, oauthtest.Owner(), scopes(t, forged)) // of all areas
			require.ErrorIs(t, err, oauth.ErrScopes, forged)
		}
	})
	t.Run("in challenges", func(t *testing.T) {
		t.Parallel()
		assert.Contains(t, call(s, "invented").Header().Get("WWW-Authenticate"), `scope="mcp:write"`)
		w := httptest.NewRecorder()
		s.InsufficientScope(w.Header(), "contacts:read", "automations:run")
		assert.Contains(t, w.Header().Get("WWW-Authenticate"), `scope="contacts:read"`)
	})
}

func TestConnectionLosesASwitchedOffAreaAtOnceAndNothingElse(t *testing.T) {
	t.Parallel()
	all, reduced := reconfigured(t, "automations")
	for _, approved := range []string{"mcp:use", "automations:run contacts:write", "automations:run mcp:write"} {
		t.Run(approved, func(t *testing.T) {
			t.Parallel()
			c, tokens := oauthtest.Connect(t, all, oauthtest.Owner(), approved)
			require.True(t, authenticate(t, all, tokens.Access).Scopes.Allows("automations:run"))

			grant := authenticate(t, reduced, tokens.Access)
			assert.NotContains(t, grant.Scopes.String(), "automations")
			assert.False(t, grant.Scopes.Allows("automations:run"))
			assert.False(t, grant.Scopes.Allows("automations:read"))
			assert.True(t, grant.Scopes.Allows("contacts:write"))
			assert.Contains(t, grants(t, reduced), grant)

			// Some clients name the granted scopes in each refresh.
			narrowed := at(reduced, c).Refresh(tokens.Refresh, url.Values{"scope": {tokens.Scope}})
			require.Equal(t, http.StatusOK, narrowed.Status, narrowed.ErrorDescription)
			assert.Equal(t, grant.Scopes.String(), narrowed.Scope)
			refreshed := at(reduced, c).Refresh(narrowed.Refresh, nil)
			require.Equal(t, http.StatusOK, refreshed.Status, refreshed.ErrorDescription)
			assert.Equal(t, grant.Scopes.String(), refreshed.Scope)

			// The area is switched on again.
			assert.True(t, authenticate(t, all, tokens.Access).Scopes.Allows("automations:run"))
			assert.True(t, authenticate(t, all, refreshed.Access).Scopes.Allows("automations:run"))
			assert.Equal(t, tokens.Scope, c.Refresh(refreshed.Refresh, nil).Scope)
		})
	}
}

func TestRefreshCannotAddASwitchedOffArea(t *testing.T) {
	t.Parallel()
	all, reduced := reconfigured(t, "automations", "sales")
	c, tokens := oauthtest.Connect(t, all, oauthtest.Owner(), "automations:read contacts:read")
	for asked, description := range map[string]string{
		"sales:read":                 "unknown scope 'sales:read'", // which was not granted
		"automations:run":            "unknown scope 'automations:run'",
		"contacts:read sales:read":   "unknown scope 'sales:read'",
		"invented:read":              "unknown scope 'invented:read'",
		"automations:read":           "the granted scopes are not available on this server", // and not all that is left
		"mcp:read":                   "scope exceeds the granted scopes",
		"automations:read objects:x": "unknown scope 'objects:x'",
	} {
		got := at(reduced, c).Refresh(tokens.Refresh, url.Values{"scope": {asked}})
		assert.Equal(t, "invalid_scope", got.Error, asked)
		assert.Equal(t, description, got.ErrorDescription, asked)
	}
	got := at(reduced, c).Refresh(tokens.Refresh, url.Values{"scope": {"automations:read contacts:read offline_access"}})
	assert.Equal(t, "contacts:read", got.Scope, "the token was not used up")
}

func TestConnectionWithoutAnAreaLeftIsRejectedButKept(t *testing.T) {
	t.Parallel()
	all, reduced := reconfigured(t, "automations")
	c := oauthtest.Register(t, all)
	tokens := c.Connect(oauthtest.Owner(), "automations:run")
	verifier, challenged := oauthtest.PKCE()
	code := c.Code(oauthtest.Owner(), challenged, url.Values{"scope": {"automations:read"}})

	assert.False(t, valid(t, reduced, tokens.Access))
	assert.Equal(t, http.StatusUnauthorized, call(reduced, tokens.Access).Code)
	for range 3 { // the client keeps its refresh token, which is not used up
		assert.Equal(t, "invalid_scope", at(reduced, c).Refresh(tokens.Refresh, nil).Error)
	}
	assert.Equal(t, "invalid_scope", at(reduced, c).Exchange(code, verifier, nil).Error)
	require.Len(t, grants(t, reduced), 1, "the owner sees it and may end it")
	assert.True(t, grants(t, reduced)[0].Scopes.IsZero())

	assert.True(t, valid(t, all, tokens.Access))
	assert.Equal(t, "automations:run", c.Refresh(tokens.Refresh, nil).Scope)
	assert.Equal(t, http.StatusOK, c.Exchange(code, verifier, nil).Status)
}

func TestAreaSwitchedOnLaterWasNotApproved(t *testing.T) {
	t.Parallel()
	all, reduced := reconfigured(t, "automations")
	c, tokens := oauthtest.Connect(t, reduced, oauthtest.Owner(), "mcp:use")
	require.Equal(t, "mcp:use", tokens.Scope)

	const approved = "appointments:read business:read business:write contacts:read contacts:write conversations:read " +
		"objects:read objects:write receptionist:read receptionist:write sales:read"
	assert.Equal(t, approved, authenticate(t, all, tokens.Access).Scopes.String())
	refreshed := at(all, c).Refresh(tokens.Refresh, nil)
	assert.Equal(t, approved, refreshed.Scope)
	assert.Equal(t, "invalid_scope", at(all, c).Refresh(refreshed.Refresh, url.Values{"scope": {"mcp:use"}}).Error)
	for _, e := range entries(t, all) {
		assert.Equal(t, approved, e.Detail, "%s: the audit log does not say more than was approved", e.Action)
	}
}

func TestPendingRequestFollowsTheConfiguration(t *testing.T) {
	t.Parallel()
	all, reduced := reconfigured(t, "automations")
	c := oauthtest.Register(t, all)
	for asked, left := range map[string]string{"mcp:use": "mcp:use", "contacts:read": "contacts:read"} {
		id := c.Request(challenge(), url.Values{"scope": {asked}})
		request := pending(t, reduced, id)
		assert.Equal(t, left, request.Scopes.String())
		assert.False(t, request.Scopes.Allows("automations:read"))
		_, err := reduced.Approve(t.Context(), id, oauthtest.Owner(), scopes(t, "automations:read"))
		require.ErrorIs(t, err, oauth.ErrScopes)
	}
	id := c.Request(challenge(), url.Values{"scope": {"contacts:read automations:run"}})
	_, err := reduced.Pending(t.Context(), id)
	require.ErrorIs(t, err, oauth.ErrNoRequest, "the app has to start again, and gets invalid_scope")
}
