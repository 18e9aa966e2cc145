package pages_test

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/pages"
)

const changePath = pages.ConnectionsPath + "?change="

// changeForm returns the form that changes a connection.
func (b *browser) changeForm(id string) url.Values {
	b.w.tb.Helper()
	return b.get(changePath + id).requires(http.StatusOK).form(pages.ConnectionsPath)
}

// token returns a form token that a page of the browser's session could have.
func (b *browser) token(purpose string) string {
	b.w.tb.Helper()
	return pages.NewToken(b.cookie("gatehouse_session"), purpose)
}

func TestOwnerChangesWhatAnAppMayDo(t *testing.T) {
	t.Parallel()
	w := connected(t)
	b := w.signIn(ownerEmail)
	require.Contains(t, b.get(pages.ConnectionsPath).body, `href="/settings/connected-apps?change=gr_2"`)
	p := b.get(changePath+"gr_2").requires(http.StatusOK, "Change what cursor may do", "What it may see", "Search and see your contacts",
		"What it may change", "Run your automations")
	p.lacks("Without asking", "It also asked for these")
	form := p.form(pages.ConnectionsPath)
	assert.Equal(t, []string{"contacts:read"}, form["allow"], "checked is what it may do")

	for _, step := range []struct {
		allow   []string
		unasked bool
		want    string
		shows   bool // the box for Unasked
	}{
		{[]string{"contacts:read", "contacts:write"}, false, "contacts:write", false},
		{[]string{"sales:read", "automations:read", "automations:run"}, false, "automations:run sales:read", true},
		{[]string{"sales:read", "automations:read", "automations:run"}, true, "automations:run sales:read", true},
		{[]string{"sales:read", "admin:everything", "mcp:use", ""}, true, "sales:read", false},
	} {
		form := b.changeForm("gr_2")
		form["allow"] = step.allow
		form.Del("unasked")
		if step.unasked {
			form.Set("unasked", "yes")
		}
		for range 2 { // a double click
			saved := b.post(pages.ConnectionsPath, form)
			require.Equal(t, changePath+"gr_2", saved.Header.Get("Location"))
			p := b.follow(saved).requires(http.StatusOK, "Saved. It takes effect with the app’s next request.")
			assert.Equal(t, step.shows, strings.Contains(p.text(), "Without asking"))
		}
		got := w.oauth.grants[1]
		assert.Equal(t, step.want, got.Scopes.String())
		unasked := step.unasked && step.shows
		assert.Equal(t, unasked, got.Unasked)
		assert.Equal(t, unasked, b.changeForm("gr_2").Has("unasked") && len(b.changeForm("gr_2")["unasked"]) > 0)
		assert.Equal(t, unasked, strings.Contains(b.get(pages.ConnectionsPath).text(),
			"Run your automations, which may write to your customers Start what writes to people (Automations) even if the app cannot ask you"))
	}
}

func TestChangeWithoutScopesIsRejected(t *testing.T) {
	t.Parallel()
	w := connected(t)
	w.oauth.grants[0].Scopes = w.oauth.areas.Everything()
	b := w.signIn(ownerEmail)
	form := b.changeForm("gr_1")
	form["allow"] = []string{"admin:everything"}
	b.post(pages.ConnectionsPath, form).requires(http.StatusUnprocessableEntity, "Choose at least one thing", "Without asking").lacks(" checked")
	assert.Equal(t, "mcp:use", w.oauth.grants[0].Scopes.String())
}

func TestStaleChangeShowsWhatTheAppMayDoNow(t *testing.T) {
	t.Parallel()
	w := connected(t)
	b := w.signIn(ownerEmail)
	stale, fresh := b.changeForm("gr_2"), b.changeForm("gr_2")
	fresh["allow"], stale["allow"] = []string{"sales:read"}, []string{"contacts:read", "contacts:write"}
	b.post(pages.ConnectionsPath, fresh).requires(http.StatusSeeOther)
	p := b.post(pages.ConnectionsPath, stale).requires(http.StatusConflict, "Nothing was saved")
	again := p.form(pages.ConnectionsPath)
	assert.Equal(t, []string{"sales:read"}, again["allow"])
	again["allow"] = []string{"contacts:read", "contacts:write"}
	b.post(pages.ConnectionsPath, again).requires(http.StatusSeeOther)
	assert.Equal(t, "contacts:write", w.oauth.grants[1].Scopes.String())

	w.oauth.grants = nil
	b.follow(b.post(pages.ConnectionsPath, again)).requires(http.StatusOK, "This app is not connected.")
	b.follow(b.get(changePath+"gr_2")).requires(http.StatusOK, "This app is not connected.")
}

func TestChangeRequiresAnOwnerOfTheBusinessAndItsForm(t *testing.T) {
	t.Parallel()
	w := connected(t)
	owner, rival, member := w.signIn(ownerEmail), w.signIn(rivalEmail), w.signIn(memberEmail)
	good := owner.changeForm("gr_2")
	good["allow"] = []string{"mcp:use", "contacts:read", "contacts:write"}
	with := func(name, value string) url.Values {
		form := maps.Clone(good)
		form.Set(name, value)
		return form
	}
	member.get(changePath+"gr_2").requires(http.StatusForbidden, "Only an owner can change and disconnect apps")
	rival.follow(rival.get(changePath+"gr_2")).requires(http.StatusOK, "This app is not connected.").lacks("cursor")
	for name, test := range map[string]struct {
		as     *browser
		form   url.Values
		header http.Header
		status int
	}{
		"no token":                    {owner, with("csrf", ""), nil, 403},
		"the token of another user":   {owner, with("csrf", rival.changeForm("gr_9").Get("csrf")), nil, 403},
		"the token of another app":    {owner, with("csrf", owner.changeForm("gr_1").Get("csrf")), nil, 403},
		"the token to disconnect":     {owner, with("csrf", owner.get(pages.ConnectionsPath+"?revoke=gr_2").form(pages.ConnectionsPath).Get("csrf")), nil, 403},
		"another app":                 {owner, with("connection", "gr_1"), nil, 403},
		"two versions":                {owner, url.Values{"version": {"", ""}, "csrf": good["csrf"], "connection": {"gr_2"}}, nil, 400},
		"another site":                {owner, good, http.Header{"Sec-Fetch-Site": {"cross-site"}, "Origin": {"https://evil.example"}}, 403},
		"another business's owner":    {rival, good, nil, 403},
		"a member with his own token": {member, with("csrf", member.token("change gr_2")), nil, 403},
		"nobody":                      {w.browser(), good, nil, 303},
	} {
		assert.Equal(t, test.status, test.as.do(http.MethodPost, pages.ConnectionsPath, test.form, test.header).StatusCode, name)
		assert.Equal(t, "contacts:read", w.oauth.grants[1].Scopes.String(), name)
	}
	// A rival's own token does not help either.
	form := rival.changeForm("gr_9")
	form.Set("connection", "gr_2")
	form.Set("csrf", rival.token("change gr_2"))
	rival.follow(rival.post(pages.ConnectionsPath, form)).requires(http.StatusOK, "This app is not connected.")
	assert.Equal(t, "contacts:read", w.oauth.grants[1].Scopes.String())
	owner.post(pages.ConnectionsPath, good).requires(http.StatusSeeOther)
	assert.Equal(t, "contacts:write", w.oauth.grants[1].Scopes.String())
}

func TestChangeLeavesOutSwitchedOffAreas(t *testing.T) {
	t.Parallel()
	w := connected(t)
	w.oauth.areas = withoutAutomations(t)
	w.oauth.grants[1].Scopes = w.oauth.areas.Unpin("automations:run contacts:read")
	b := w.signIn(ownerEmail)
	b.get(changePath+"gr_2").requires(http.StatusOK, "Contacts").lacks("utomations", "Without asking")
	form := b.changeForm("gr_2")
	form["allow"] = []string{"contacts:read", "sales:read", "automations:run", "automations:read"}
	form.Set("unasked", "yes")
	b.post(pages.ConnectionsPath, form).requires(http.StatusSeeOther)
	assert.Equal(t, "contacts:read sales:read", w.oauth.grants[1].Scopes.Pin())
	assert.False(t, w.oauth.grants[1].Unasked)
}

func TestChangeDuringAnOutage(t *testing.T) {
	t.Parallel()
	w := connected(t)
	b := w.signIn(ownerEmail)
	form := b.changeForm("gr_2")
	form["allow"] = []string{"sales:read"}
	w.oauth.down = true
	b.get(changePath + "gr_2").requires(http.StatusServiceUnavailable).lacks("made up")
	b.post(pages.ConnectionsPath, form).requires(http.StatusServiceUnavailable, "Nothing was changed").lacks("made up")
	w.oauth.down, w.oauth.lost = false, true
	b.post(pages.ConnectionsPath, form).requires(http.StatusServiceUnavailable, "This change could not be confirmed").lacks("Nothing was changed")
	w.oauth.lost = false
	b.post(pages.ConnectionsPath, form).requires(http.StatusSeeOther)
}

func TestActivityShowsChangedConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, e := range []audit.Entry{
		{Action: audit.ConnectionChanged, Detail: "automations:run contacts:write " + oauth.RecordedUnasked},
		{Action: audit.ConnectionChanged, Detail: "Not an owner", Outcome: audit.OutcomeDenied},
		{Action: audit.ConnectionRevoked, Detail: "Not an owner", Outcome: audit.OutcomeDenied},
	} {
		e.BusinessID, e.ClientName, e.AccountName = owner.BusinessID, "claude", owner.Name
		require.NoError(t, w.audit.Record(t.Context(), e))
	}
	for _, query := range []string{"", "?show=connections"} {
		w.signIn(ownerEmail).get(pages.ActivityPath+query).requires(http.StatusOK, "Changed what an app may do",
			"May see Contacts and Automations; may change Contacts; may run Automations; may write to people even if it cannot ask",
			"Tried to change what an app may do", "Tried to disconnect an app", "Not an owner")
	}
}
