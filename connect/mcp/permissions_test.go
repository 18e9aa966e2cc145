package mcp_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/mcp"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
)

// change changes a connection, as an owner does on its page.
func (s *setup) change(token string, change func(*oauth.Grant)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.grants[token]
	change(&g)
	s.grants[token] = g
}

func TestInstructionsNameWhatTheConnectionMayNotDo(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	where := " An owner of the business can allow it under " + strings.TrimSuffix(s.url, "/mcp") + "/settings/connected-apps. "
	for scopes, want := range map[string]string{
		"mcp:use":   "",
		"mcp:write": "This connection may not: run automations." + where,
		"mcp:read contacts:write automations:run": "This connection may not: change its profile, the setup of its AI receptionist, custom objects." + where,
		"contacts:write": "This connection may not: see its profile, the conversations of its AI receptionist, appointments, the setup of its AI " +
			"receptionist, invoices, estimates, jobs, automations, custom objects; change its profile, the setup of its AI receptionist, custom " +
			"objects; run automations." + where,
	} {
		s.allow("some", s.owner, scopes)
		for _, revision := range []string{modern, legacy} {
			told := s.connect(revision, "some", nil).InitializeResult().Instructions
			if want == "" {
				assert.NotContains(t, told, "may not")
			} else {
				assert.Contains(t, told, want)
			}
		}
	}
	everything := s.connect(modern, "bearer", nil).InitializeResult().Instructions
	assert.NotContains(t, everything, "connected-apps", "another connection's instructions are its own")
}

func TestMissingScopeIsExplained(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	s.allow("narrow", s.owner, "contacts:read")
	for _, revision := range []string{modern, legacy} {
		res := s.post("narrow", revision, callMessage(revision, "contacts_create", object{"first_name": "X"}))
		require.Equal(t, http.StatusForbidden, res.StatusCode)
		var body struct {
			ID    int
			Error struct {
				Code    int
				Message string
			}
		}
		require.NoError(t, json.Unmarshal([]byte(res.Text), &body), res.Text)
		assert.Equal(t, 7, body.ID)
		assert.Equal(t, -32600, body.Error.Code)
		for _, part := range []string{
			"INSUFFICIENT_SCOPE: This connection may not change contacts.", "Nothing was changed.",
			"An owner of the business can allow it under " + strings.TrimSuffix(s.url, "/mcp") + "/settings/connected-apps.", "it takes effect at once",
		} {
			assert.Contains(t, body.Error.Message, part)
		}
	}
	s.change("narrow", func(g *oauth.Grant) { g.Scopes = s.grants["bearer"].Scopes })
	assert.Equal(t, http.StatusOK, s.post("narrow", legacy, callMessage(legacy, "contacts_create", object{"first_name": "X"})).StatusCode)
}

func TestChangedConnectionIsAnnounced(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	const announcement = "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,"
	for _, test := range []struct {
		revision  string
		ago       time.Duration
		announced bool
	}{
		{legacy, time.Second, true},
		{"2025-03-26", mcp.AnnounceTime - time.Minute, true},
		{legacy, mcp.AnnounceTime + time.Second, false},
		{modern, time.Second, false}, // which announces in streams of their own only
	} {
		s.change("bearer", func(g *oauth.Grant) { g.ChangedAt = time.Now().Add(-test.ago) })
		res := s.post("bearer", test.revision, callMessage(test.revision, "calendars_list", object{}))
		assert.Equal(t, test.announced, strings.HasPrefix(res.Text, announcement), res.Text)
		assert.Equal(t, test.announced, res.Header.Get("Content-Type") == "text/event-stream")
		assert.Contains(t, res.Text, "calendars")
	}
	s.change("bearer", func(g *oauth.Grant) { g.ChangedAt = time.Time{} })
	res := s.post("bearer", legacy, callMessage(legacy, "calendars_list", object{}))
	assert.Equal(t, "application/json", res.Header.Get("Content-Type"))
}

func TestListMayBeCachedForAMinute(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	res := s.post("bearer", modern, strings.ReplaceAll(callMessage(modern, "x", nil), "tools/call", "tools/list"), func(r *http.Request) {
		r.Header.Set("Mcp-Method", "tools/list")
		r.Header.Del("Mcp-Name")
	})
	assert.Contains(t, res.Text, `"ttlMs":60000`)
	assert.Contains(t, res.Text, `"cacheScope":"private"`)
}

// A client that cannot ask the user starts what writes to people only if an owner has allowed that.
func TestRunWithoutAQuestionTakesTheOwnersPermission(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	c := s.connect(legacy, "bearer", nil)
	var automation any
	for _, a := range call(t, c, "automations_list", object{})["automations"].([]any) {
		if a := a.(object); a["enabled"] == true && a["writes_to_people"] == true && a["input_schema"].(object)["required"] == nil {
			automation = a["id"]
		}
	}
	fails(t, c, "automations_run", object{"automation_id": automation}, "CONFIRMATION_NEEDED")
	fails(t, c, "automations_run", object{"automation_id": automation}, "/settings/connected-apps")
	s.change("bearer", func(g *oauth.Grant) { g.Unasked = true })
	require.NotNil(t, confirmed(t, c, "automations_run", object{"automation_id": automation})["run"])
}
