package pages_test

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/pages"
)

// decision returns the approval page's form with a decision and, if given, other scopes than the default.
func (b *browser) decision(id, decision string, allow ...string) map[string][]string {
	b.w.tb.Helper()
	p := b.get(pages.ApprovePath + "?request=" + id)
	require.Equal(b.w.tb, http.StatusOK, p.StatusCode, p.body)
	form := p.form(pages.ApprovePath)
	form.Set("decision", decision)
	if allow != nil {
		form["allow"] = allow
	}
	return form
}

func TestApprovePageShowsClientAndScopes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.request("grq_1", "mcp:write automations:run")
	p := w.signIn(ownerEmail).get(pages.ApprovePath+"?request=grq_1").requires(http.StatusOK,
		"Connect Assistant to Saltbush Plumbing ?", "Sends you back to assistant.example", "Name given by assistant.example",
		"Your account Ada Okafor ( ada@saltbush.example )", "What it may see", "Search and see your contacts",
		"What it may change", "Add, change and delete contacts", "Run your automations", "This request expires in 10 minutes.",
	)
	assert.NotContains(t, p.text(), "runs on the computer")
	assert.NotContains(t, p.Header.Get("Content-Security-Policy"), "form-action", "it would block the redirect to the client")
	assert.Contains(t, p.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'")
}

// Many programs ask for no scope, and so for reading only. Their owners look for a box that is not there.
func TestApprovePageSaysThatMoreCanBeAllowedLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.signIn(ownerEmail)
	const later = "There you can also allow it more than it asks for now."
	for id, scopes := range map[string]string{"grq_read": "mcp:read", "grq_part": "mcp:write"} {
		w.request(id, scopes)
		b.get(pages.ApprovePath+"?request="+id).requires(http.StatusOK, later)
	}
	w.request("grq_use", "mcp:use")
	b.get(pages.ApprovePath + "?request=grq_use").lacks(later)
}

func TestApprovePageGrantsReadOnlyByDefault(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for id, scopes := range map[string]string{"grq_use": "mcp:use", "grq_write": "mcp:write", "grq_read": "mcp:read"} {
		w.request(id, scopes)
		b := w.signIn(ownerEmail)
		p := b.post(pages.ApprovePath, b.decision(id, "approve")).requires(http.StatusSeeOther)
		assert.Equal(t, "https://assistant.example/callback?code=made-up&iss=x", p.Header.Get("Location"))
		assert.Equal(t, "mcp:read", w.oauth.approved[id].String(), scopes)
	}
	require.Empty(t, w.actions(owner.BusinessID), "the authorization server records decisions, the pages do not")
}

func TestOwnerCanRestrictScopesByArea(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for id, c := range map[string]struct {
		asked, granted string
		allow          []string
	}{
		"everything": {
			"mcp:use", "mcp:use",
			[]string{
				"business:read", "contacts:read", "conversations:read", "appointments:read", "receptionist:read", "sales:read",
				"automations:read", "objects:read", "business:write", "contacts:write", "receptionist:write", "automations:run",
				"objects:write",
			},
		},
		"one":            {"mcp:use", "contacts:read", []string{"contacts:read"}},
		"change is more": {"mcp:use", "contacts:write", []string{"contacts:read", "contacts:write"}},
		"run":            {"mcp:use", "automations:run appointments:read", []string{"automations:read", "automations:run", "appointments:read"}},
		"not asked for":  {"mcp:read", "contacts:read", []string{"contacts:read", "contacts:write", "automations:run", "mcp:use"}},
		"unknown":        {"contacts:read", "contacts:read", []string{"contacts:read", "admin:everything", "", "contacts:read"}},
	} {
		id = "grq_" + strings.ReplaceAll(id, " ", "-")
		w.request(id, c.asked)
		b := w.signIn(ownerEmail)
		b.post(pages.ApprovePath, b.decision(id, "approve", c.allow...)).requires(http.StatusSeeOther)
		assert.ElementsMatch(t, strings.Fields(c.granted), w.oauth.approved[id].Names(), id)
	}
}

// Changing and running include seeing. An owner who has unticked that does not grant it without knowing.
func TestAppDoesNotSeeWhatTheOwnerUnticked(t *testing.T) {
	t.Parallel()
	const problem = "An app can change or run only what it may see"
	for verb, asked := range map[string]string{"contacts:write": "mcp:use", "automations:run": "automations:run sales:read"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			w := connected(t)
			w.request("grq_1", asked)
			b := w.signIn(ownerEmail)
			p := b.post(pages.ApprovePath, b.decision("grq_1", "approve", "sales:read", verb)).requires(http.StatusUnprocessableEntity, problem)
			require.Empty(t, w.oauth.approved)
			form := p.form(pages.ApprovePath)
			area, _, _ := strings.Cut(verb, ":")
			assert.ElementsMatch(t, []string{"sales:read", area + ":read", verb}, form["allow"], "it is ticked again")
			form.Set("decision", "approve")
			b.post(pages.ApprovePath, form).requires(http.StatusSeeOther)
			assert.ElementsMatch(t, []string{"sales:read", verb}, w.oauth.approved["grq_1"].Names())

			change := b.changeForm("gr_2")
			change["allow"] = []string{verb}
			change.Set("unasked", "yes")
			p = b.post(pages.ConnectionsPath, change).requires(http.StatusUnprocessableEntity, problem)
			assert.Equal(t, "contacts:read", w.oauth.grants[1].Scopes.String())
			b.post(pages.ConnectionsPath, p.form(pages.ConnectionsPath)).requires(http.StatusSeeOther)
			assert.Equal(t, verb, w.oauth.grants[1].Scopes.String())
		})
	}
	w := connected(t)
	w.request("grq_1", "mcp:use")
	b := w.signIn(memberEmail)
	form := b.get(pages.ApprovePath + "?request=grq_1").form(pages.ApprovePath)
	form.Set("decision", "approve")
	form["allow"] = []string{"contacts:write"}
	b.post(pages.ApprovePath, form).requires(http.StatusForbidden, "Only an owner can connect apps")
	b.post(pages.ConnectionsPath, url.Values{"csrf": {b.token("change gr_2")}, "connection": {"gr_2"}, "version": {""}, "allow": {"contacts:write"}}).
		requires(http.StatusForbidden)
}

func TestApprovalWithoutScopesIsRejected(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.request("grq_1", "mcp:write")
	b := w.signIn(ownerEmail)
	form := b.decision("grq_1", "approve")
	delete(form, "allow")
	p := b.post(pages.ApprovePath, form).requires(http.StatusUnprocessableEntity, "Choose at least one thing")
	require.NotContains(t, p.body, " checked", "what was unchecked stays so")
	require.NotContains(t, w.oauth.approved, "grq_1")
	form["allow"] = []string{"admin:everything"}
	require.Equal(t, http.StatusUnprocessableEntity, b.post(pages.ApprovePath, form).StatusCode)
}

func TestTooManyConnectionsAreExplained(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.oauth.full = true
	w.request("grq_1", "mcp:read")
	b := w.signIn(ownerEmail)
	p := b.post(pages.ApprovePath, b.decision("grq_1", "approve", "contacts:read"))
	p.requires(http.StatusConflict, "reached the maximum number of connected apps. Disconnect one", "See connected apps")
	require.NotContains(t, w.oauth.approved, "grq_1")
}

func TestOwnerCanDeny(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.request("grq_1", "mcp:read")
	b := w.signIn(ownerEmail)
	p := b.post(pages.ApprovePath, b.decision("grq_1", "deny"))
	assert.Equal(t, "https://assistant.example/callback?error=access_denied&iss=x", p.Header.Get("Location"))
	require.True(t, w.oauth.denied["grq_1"])
	assert.NotContains(t, w.oauth.approved, "grq_1")
}

func TestMemberCannotApprove(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.request("grq_1", "mcp:write")
	b := w.signIn(memberEmail)
	p := b.get(pages.ApprovePath+"?request=grq_1").requires(http.StatusForbidden, "Only an owner can connect apps", "Ask an owner of the business")
	require.NotContains(t, p.body, `value="approve"`)

	form := p.form(pages.ApprovePath)
	form.Set("decision", "approve")
	form["allow"] = []string{"contacts:read"}
	require.Equal(t, http.StatusForbidden, b.post(pages.ApprovePath, form).StatusCode, "nor by a crafted form")
	require.NotContains(t, w.oauth.approved, "grq_1")

	form.Set("decision", "deny")
	require.Contains(t, b.post(pages.ApprovePath, form).Header.Get("Location"), "error=access_denied")

	// "Use another account" returns here after the sign-in.
	other := p.form(pages.SignOutPath)
	require.Equal(t, pages.SignInPath+"?return=%2Foauth%2Fapprove%3Frequest%3Dgrq_1", b.post(pages.SignOutPath, other).Header.Get("Location"))
}

func TestApprovalRequiresTheFormToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.request("grq_1", "mcp:use")
	w.request("grq_2", "mcp:use")
	victim, attacker := w.signIn(ownerEmail), w.signIn(rivalEmail)
	good := victim.decision("grq_1", "approve")
	with := func(name string, values ...string) map[string][]string {
		form := maps.Clone(good)
		if values == nil {
			delete(form, name)
		} else {
			form[name] = values
		}
		return form
	}
	for name, test := range map[string]struct {
		form   map[string][]string
		header http.Header
		status int
	}{
		"no token":                 {with("csrf"), nil, 403},
		"an empty token":           {with("csrf", ""), nil, 403},
		"a made-up token":          {with("csrf", strings.Repeat("A", 64)), nil, 403},
		"two tokens":               {with("csrf", "", good["csrf"][0]), nil, 400},
		"another user's token":     {with("csrf", attacker.decision("grq_1", "approve")["csrf"][0]), nil, 403},
		"another form's token":     {with("csrf", victim.get(pages.ConnectionsPath).form(pages.SignOutPath).Get("csrf")), nil, 403},
		"another request's token":  {with("request", "grq_2"), nil, 403},
		"no decision":              {with("decision"), nil, 400},
		"another decision":         {with("decision", "approve "), nil, 400},
		"another site":             {good, http.Header{"Sec-Fetch-Site": {"cross-site"}, "Origin": {"https://evil.example"}}, 403},
		"a hidden origin":          {good, http.Header{"Sec-Fetch-Site": nil, "Origin": {"null"}}, 403},
		"another host of the site": {good, http.Header{"Sec-Fetch-Site": {"same-site"}, "Origin": {"https://www.api.example.com"}}, 403},
		"an old browser":           {good, http.Header{"Sec-Fetch-Site": nil, "Origin": {"https://evil.example"}}, 403},
		"text":                     {good, http.Header{"Content-Type": {"text/plain"}}, 415},
		"JSON":                     {good, http.Header{"Content-Type": {"application/json"}}, 415},
		"multipart":                {good, http.Header{"Content-Type": {"multipart/form-data; boundary=x"}}, 415},
	} {
		assert.Equal(t, test.status, victim.do(http.MethodPost, pages.ApprovePath, test.form, test.header).StatusCode, name)
		assert.Empty(t, w.oauth.approved, name)
	}

	query := strings.NewReplacer("+", "%20").Replace(url.Values(good).Encode())
	victim.do(http.MethodPost, pages.ApprovePath+"?"+query, map[string][]string{}, nil).requires(http.StatusNotFound)
	assert.NotContains(t, w.oauth.approved, "grq_1")

	assert.Equal(t, http.StatusSeeOther, victim.post(pages.ApprovePath, good).StatusCode, "the page's own form works")
}

func TestApprovalRequiresSignIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.request("grq_1", "mcp:read")
	b := w.signIn(ownerEmail)
	form := b.decision("grq_1", "approve")
	for _, p := range []*page{
		w.browser().get(pages.ApprovePath + "?request=grq_1"),
		w.browser().post(pages.ApprovePath, form),
	} {
		p.requires(http.StatusSeeOther)
		assert.Equal(t, "/sign-in?return=%2Foauth%2Fapprove%3Frequest%3Dgrq_1", p.Header.Get("Location"))
	}
	require.NotContains(t, w.oauth.approved, "grq_1")
}

func TestExpiredRequestShowsAPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.signIn(ownerEmail)
	for _, id := range []string{"", "gone", "a/b", "a%20b", strings.Repeat("a", 201), "%00", "x&request=y"} {
		b.get(pages.ApprovePath+"?request="+id).requires(http.StatusNotFound, "This request is over", "start again from there")
	}
	assert.Equal(t, http.StatusNotFound, b.get(pages.ApprovePath).StatusCode)
	assert.Equal(t, http.StatusNotFound, w.browser().get(pages.ApprovePath+"?request=gone").StatusCode, "without a sign-in that would be useless")
}

// The owner goes back, or has the form open in another tab, and decides otherwise when the app has already used its code.
func TestTooLateRefusalSaysThatTheAppIsConnected(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.request("grq_1", "mcp:read")
	b := w.signIn(ownerEmail)
	form := b.decision("grq_1", "deny")
	b.post(pages.ApprovePath, b.decision("grq_1", "approve")).requires(http.StatusSeeOther)
	delete(w.oauth.requests, "grq_1")
	for _, p := range []*page{b.post(pages.ApprovePath, form), b.get(pages.ApprovePath + "?request=grq_1")} {
		p.requires(http.StatusNotFound, "If you chose Connect and the app is listed under Connected apps, it is connected.", "See connected apps")
	}
}

func TestApprovalDuringOutageIs503(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.request("grq_1", "mcp:read")
	b := w.signIn(ownerEmail)
	form := b.decision("grq_1", "approve")
	w.oauth.down = true
	for _, p := range []*page{b.get(pages.ApprovePath + "?request=grq_1"), b.post(pages.ApprovePath, form), b.get(pages.ConnectionsPath)} {
		p.requires(http.StatusServiceUnavailable)
		assert.NotContains(t, p.body, "made up")
	}
	w.oauth.down = false
	require.Equal(t, http.StatusSeeOther, b.post(pages.ApprovePath, form).StatusCode)
}

func TestDecisionWithoutReplyIsNotReportedAsFailed(t *testing.T) {
	t.Parallel()
	for _, decision := range []string{"approve", "deny"} {
		t.Run(decision, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.request("grq_1", "mcp:read")
			b := w.signIn(ownerEmail)
			form := b.decision("grq_1", decision)
			w.oauth.lost = true
			b.post(pages.ApprovePath, form).
				requires(http.StatusServiceUnavailable, "This change could not be confirmed", "Open the request again").
				lacks("Nothing was changed", "made up")
			w.oauth.lost = false
			require.Equal(t, http.StatusSeeOther, b.post(pages.ApprovePath, form).StatusCode)
		})
	}
}

func TestLocalClientShowsAWarning(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.signIn(ownerEmail)
	registered := func(host string) func(*oauth.Request) {
		return func(r *oauth.Request) {
			r.Client.Host, r.Client.LocalOnly = "", true
			r.RedirectHost, r.RedirectLocal = host, true
		}
	}
	w.request("grq_1", "mcp:read", registered("localhost:33418"))
	b.get(pages.ApprovePath+"?request=grq_1").requires(http.StatusOK, "This app runs on the computer or phone that you are using.",
		"Sends you back to localhost:33418", "the app itself (not verified)")

	w.request("grq_2", "mcp:read", registered("cursor:"))
	b.get(pages.ApprovePath+"?request=grq_2").requires(http.StatusOK, "Opens the app cursor", "This app runs on the computer or phone that you are using.")
}

// The end of a host says whose it is.
func TestHostsAreShownWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	label := strings.Repeat("a", 63)
	host := "claude.ai.oauth." + label + "." + label + "." + label + ".evil.example:44300"
	w.request("grq_1", "mcp:read", func(r *oauth.Request) {
		r.RedirectHost, r.Client.Host, r.Client.Name = host, strings.Replace(host, ":", ".other:", 1), ""
	})
	b := w.signIn(ownerEmail)
	p := b.get(pages.ApprovePath+"?request=grq_1").requires(http.StatusOK, "Connect "+host+" to", "Sends you back to "+host,
		"Name given by "+strings.Replace(host, ":", ".other:", 1))
	assert.Contains(t, b.get(stylesheet(p)).body, "overflow-wrap: anywhere", "it must not be cut by the window either")
	w.request("grq_2", "mcp:read", func(r *oauth.Request) { r.RedirectHost = "com.evil." + label + label + label + ":" })
	b.get(pages.ApprovePath+"?request=grq_2").requires(http.StatusOK, "Opens the app com.evil."+label+label+label+" ")

	g := grant(t, "g1", owner, "", "mcp:read", time.Now(), time.Now())
	g.ClientHost = host
	w.oauth.grants = []oauth.Grant{g}
	require.NoError(t, w.audit.Record(t.Context(), audit.Entry{
		BusinessID: owner.BusinessID, AccountName: owner.Name, Action: audit.ConnectionRevoked, Target: host,
	}))
	for _, path := range []string{pages.ConnectionsPath, pages.ConnectionsPath + "?revoke=g1", pages.ConnectionsPath + "?change=g1", pages.ActivityPath} {
		b.get(path).requires(http.StatusOK, host+" ")
	}
}

func TestClientNameCannotInjectPageText(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.signIn(ownerEmail)
	for i, c := range []struct{ name, want string }{ // how names are cleaned is tested in package cleantext
		{`<script>alert(1)</script>`, "Connect <script>alert(1)</script> to"},
		{`" onfocus="alert(1)" autofocus="`, `Connect " onfocus="alert(1)" autofocus=" to`},
		{"{{.Token}} ${x}", "Connect {{.Token}} ${x} to"},
		{"Good\u202Eelpmaxe.live\u202C", "Connect Goodelpmaxe.live to"},
		{"\u3164\u200b\u2800", "Connect evil.example to"},
		{strings.Repeat("long ", 100), strings.TrimSpace(strings.Repeat("long ", 13)) + "… to"},
		{"فارسی", "Connect فارسی to"},
	} {
		id := "grq_" + string(rune('a'+i))
		w.request(id, "mcp:read", func(r *oauth.Request) { r.Client.Name, r.RedirectHost = c.name, "evil.example" })
		p := b.get(pages.ApprovePath+"?request="+id).requires(http.StatusOK, c.want).lacks("<script", ` onfocus="`)
		p.lacks("\u202e", "\u202c", "\u200b", "\u3164", "\u2800")
		assert.Contains(t, p.body, "<bdi", "the name is isolated from the direction of the text")
	}
	w.request("grq_host", "mcp:read", func(r *oauth.Request) { r.RedirectHost = "evil.example\u202e<b>" })
	b.get(pages.ApprovePath+"?request=grq_host").requires(http.StatusOK, "Sends you back to evil.example<b>").lacks("<b>")
}

func TestClientNameIsCleanedOnAllPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now()
	g := grant(t, "g1", owner, "x", "mcp:read", now, now)
	g.ClientName, g.ClientHost = "<img src=x onerror=alert(1)>\u202e", `evil.example"><script>`
	w.oauth.grants = []oauth.Grant{g}
	b := w.signIn(ownerEmail)
	require.NoError(t, w.audit.Record(t.Context(), audit.Entry{
		BusinessID: owner.BusinessID, AccountName: owner.Name, Action: audit.ConnectionRevoked, ClientName: g.ClientName, Target: g.ClientHost,
	}))
	for _, path := range []string{pages.ConnectionsPath, pages.ConnectionsPath + "?revoke=g1", pages.ActivityPath} {
		b.get(path).requires(http.StatusOK, "<img src=x onerror=alert(1)>").lacks("<img", "<script", "\u202e")
	}
}
