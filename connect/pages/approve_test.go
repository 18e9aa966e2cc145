package pages_test

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/pages"
)

// decision is the approval page's form with a decision, and what is allowed instead of what was checked.
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

func (w *world) entries(business string) []audit.Entry {
	w.tb.Helper()
	entries, _, err := w.audit.List(w.tb.Context(), business, "", 100)
	require.NoError(w.tb, err)
	return entries
}

// actions are a business's entries less those about sessions, the newest first.
func (w *world) actions(business string) []audit.Entry {
	w.tb.Helper()
	var out []audit.Entry
	for _, e := range w.entries(business) {
		if !strings.HasPrefix(e.Action, "session.") {
			out = append(out, e)
		}
	}
	return out
}

func TestApprovePageShowsClientAndScopes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.request("grq_1", "mcp:write automations:run")
	p := w.signIn(ownerEmail).get(pages.ApprovePath + "?request=grq_1")
	require.Equal(t, http.StatusOK, p.StatusCode)
	for _, want := range []string{
		"Connect Assistant to Saltbush Plumbing ?", "Sends you back to assistant.example", "Name given by assistant.example",
		"Your account Ada Okafor ( ada@saltbush.example )", "What it may see", "Search and see your contacts",
		"What it may change", "Add, change and delete contacts", "Run your automations", "This request ends in 10 minutes.",
	} {
		require.Contains(t, p.text(), want)
	}
	require.NotContains(t, p.text(), "runs on the computer")
	require.NotContains(t, p.Header.Get("Content-Security-Policy"), "form-action", "it would stop the way back to the client")
	require.Contains(t, p.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'")
}

func TestApprovePageGrantsReadOnlyByDefault(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for id, scopes := range map[string]string{"grq_use": "mcp:use", "grq_write": "mcp:write", "grq_read": "mcp:read"} {
		w.request(id, scopes)
		b := w.signIn(ownerEmail)
		p := b.post(pages.ApprovePath, b.decision(id, "approve"))
		require.Equal(t, http.StatusSeeOther, p.StatusCode)
		require.Equal(t, "https://assistant.example/callback?code=made-up&iss=x", p.Header.Get("Location"))
		a, ok := w.oauth.approval(id)
		require.True(t, ok)
		require.Equal(t, "mcp:read", a.granted.String(), scopes)
		require.Equal(t, owner, a.by)
	}
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
		"change is more": {"mcp:use", "contacts:write", []string{"contacts:write"}},
		"run":            {"mcp:use", "automations:run appointments:read", []string{"automations:run", "appointments:read"}},
		"not asked for":  {"mcp:read", "contacts:read", []string{"contacts:read", "contacts:write", "automations:run", "mcp:use"}},
		"unknown":        {"contacts:read", "contacts:read", []string{"contacts:read", "admin:everything", "", "contacts:read"}},
	} {
		id = "grq_" + strings.ReplaceAll(id, " ", "-")
		w.request(id, c.asked)
		b := w.signIn(ownerEmail)
		p := b.post(pages.ApprovePath, b.decision(id, "approve", c.allow...))
		require.Equal(t, http.StatusSeeOther, p.StatusCode, id)
		a, ok := w.oauth.approval(id)
		require.True(t, ok, id)
		for name := range strings.FieldsSeq(c.granted) {
			require.True(t, a.granted.Allows(name), "%s: %s in %s", id, name, a.granted)
		}
		require.Len(t, a.granted.Names(), len(strings.Fields(c.granted)), "%s: %s", id, a.granted)
	}
}

func TestApprovalWithoutScopesIsRejected(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.request("grq_1", "mcp:write")
	b := w.signIn(ownerEmail)
	form := b.decision("grq_1", "approve")
	delete(form, "allow")
	p := b.post(pages.ApprovePath, form)
	require.Equal(t, http.StatusUnprocessableEntity, p.StatusCode)
	require.Contains(t, p.text(), "Choose at least one thing")
	require.NotContains(t, p.body, " checked", "what was unchecked stays so")
	_, ok := w.oauth.approval("grq_1")
	require.False(t, ok)
	form["allow"] = []string{"admin:everything"}
	require.Equal(t, http.StatusUnprocessableEntity, b.post(pages.ApprovePath, form).StatusCode)
}

func TestOwnerCanDeny(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.request("grq_1", "mcp:read")
	b := w.signIn(ownerEmail)
	p := b.post(pages.ApprovePath, b.decision("grq_1", "deny"))
	require.Equal(t, "https://assistant.example/callback?error=access_denied&iss=x", p.Header.Get("Location"))
	require.True(t, w.oauth.wasDenied("grq_1"))
	_, ok := w.oauth.approval("grq_1")
	require.False(t, ok)
}

func TestDecisionCanBeSubmittedTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.request("grq_1", "mcp:read")
	b := w.signIn(ownerEmail)
	form := b.decision("grq_1", "approve")
	var group sync.WaitGroup
	answers := make(chan string, 8)
	for range cap(answers) {
		group.Go(func() { answers <- b.post(pages.ApprovePath, form).Header.Get("Location") })
	}
	group.Wait()
	close(answers)
	for to := range answers {
		require.Equal(t, "https://assistant.example/callback?code=made-up&iss=x", to)
	}
	require.Empty(t, w.actions(owner.BusinessID), "the authorization server records decisions, the pages do not")
}

func TestMemberCannotApprove(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.request("grq_1", "mcp:write")
	b := w.signIn(memberEmail)
	p := b.get(pages.ApprovePath + "?request=grq_1")
	require.Equal(t, http.StatusForbidden, p.StatusCode)
	require.Contains(t, p.text(), "Only an owner can connect apps")
	require.Contains(t, p.text(), "Ask an owner of the business")
	require.NotContains(t, p.body, `value="approve"`)

	form := p.form(pages.ApprovePath)
	form.Set("decision", "approve")
	form["allow"] = []string{"contacts:read"}
	require.Equal(t, http.StatusForbidden, b.post(pages.ApprovePath, form).StatusCode, "by a form of their own, either")
	_, ok := w.oauth.approval("grq_1")
	require.False(t, ok)

	form.Set("decision", "deny")
	require.Contains(t, b.post(pages.ApprovePath, form).Header.Get("Location"), "error=access_denied")

	// "Use another account" leads back here.
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
	refused := func(what string, form map[string][]string, header http.Header, status int) {
		t.Helper()
		p := victim.do(http.MethodPost, pages.ApprovePath, form, header)
		require.Equal(t, status, p.StatusCode, what)
		_, ok := w.oauth.approval("grq_1")
		require.False(t, ok, what)
		_, ok = w.oauth.approval("grq_2")
		require.False(t, ok, what)
	}
	refused("no token", with("csrf"), nil, http.StatusForbidden)
	refused("an empty token", with("csrf", ""), nil, http.StatusForbidden)
	refused("a made-up token", with("csrf", strings.Repeat("A", 64)), nil, http.StatusForbidden)
	refused("two tokens", with("csrf", "", good["csrf"][0]), nil, http.StatusBadRequest)
	refused("the attacker's token", with("csrf", attacker.decision("grq_1", "approve")["csrf"][0]), nil, http.StatusForbidden)
	refused("another form's token", with("csrf", victim.get(pages.ConnectionsPath).form(pages.SignOutPath).Get("csrf")), nil,
		http.StatusForbidden)
	refused("the token of another client's request", with("request", "grq_2"), nil, http.StatusForbidden)
	refused("no decision", with("decision"), nil, http.StatusBadRequest)
	refused("another decision", with("decision", "approve "), nil, http.StatusBadRequest)
	refused("another site", good, http.Header{"Sec-Fetch-Site": {"cross-site"}, "Origin": {"https://evil.example"}}, http.StatusForbidden)
	refused("another site that hides", good, http.Header{"Sec-Fetch-Site": nil, "Origin": {"null"}}, http.StatusForbidden)
	refused("a neighbour", good, http.Header{"Sec-Fetch-Site": {"same-site"}, "Origin": {"https://www.api.example.com"}},
		http.StatusForbidden)
	refused("an old browser's other site", good, http.Header{"Sec-Fetch-Site": nil, "Origin": {"https://evil.example"}},
		http.StatusForbidden)
	refused("contradicting headers", good, http.Header{"Sec-Fetch-Site": {"same-origin"}, "Origin": {"https://evil.example"}},
		http.StatusForbidden)
	refused("not a form", good, http.Header{"Content-Type": {"text/plain"}}, http.StatusUnsupportedMediaType)
	refused("JSON", good, http.Header{"Content-Type": {"application/json"}}, http.StatusUnsupportedMediaType)
	refused("another address of the server", good, http.Header{"Content-Type": {"multipart/form-data; boundary=x"}},
		http.StatusUnsupportedMediaType)

	query := strings.NewReplacer("+", "%20").Replace(url.Values(good).Encode())
	p := victim.do(http.MethodPost, pages.ApprovePath+"?"+query, map[string][]string{}, nil)
	require.Equal(t, http.StatusNotFound, p.StatusCode, "the address is not the form")
	_, ok := w.oauth.approval("grq_1")
	require.False(t, ok)

	require.Equal(t, http.StatusSeeOther, victim.post(pages.ApprovePath, good).StatusCode, "the page's own form works")
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
		require.Equal(t, http.StatusSeeOther, p.StatusCode)
		require.Equal(t, "/sign-in?return=%2Foauth%2Fapprove%3Frequest%3Dgrq_1", p.Header.Get("Location"))
	}
	_, ok := w.oauth.approval("grq_1")
	require.False(t, ok)
}

func TestExpiredRequestShowsAPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.signIn(ownerEmail)
	for _, id := range []string{"", "gone", "a/b", "a%20b", strings.Repeat("a", 201), "%00", "x&request=y"} {
		p := b.get(pages.ApprovePath + "?request=" + id)
		require.Equal(t, http.StatusNotFound, p.StatusCode, id)
		require.Contains(t, p.text(), "This request is over")
		require.Contains(t, p.text(), "start again from there")
	}
	require.Equal(t, http.StatusNotFound, b.get(pages.ApprovePath).StatusCode)
	require.Equal(t, http.StatusNotFound, w.browser().get(pages.ApprovePath+"?request=gone").StatusCode, "nobody signs in for nothing")
}

func TestApprovalDuringOutageIs503(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.request("grq_1", "mcp:read")
	b := w.signIn(ownerEmail)
	form := b.decision("grq_1", "approve")
	w.oauth.setDown(true)
	for _, p := range []*page{b.get(pages.ApprovePath + "?request=grq_1"), b.post(pages.ApprovePath, form), b.get(pages.ConnectionsPath)} {
		require.Equal(t, http.StatusServiceUnavailable, p.StatusCode)
		require.NotContains(t, p.body, "made up")
	}
	w.oauth.setDown(false)
	require.Equal(t, http.StatusSeeOther, b.post(pages.ApprovePath, form).StatusCode)
}

func TestLocalClientShowsAWarning(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.signIn(ownerEmail)
	registered := func(host string) func(*oauth.Request) {
		return func(r *oauth.Request) {
			r.Client.Kind, r.Client.Host, r.Client.LocalOnly = oauth.KindRegistered, "", true
			r.RedirectHost, r.RedirectLocal = host, true
		}
	}
	w.request("grq_1", "mcp:read", registered("localhost:33418"))
	p := b.get(pages.ApprovePath + "?request=grq_1")
	require.Contains(t, p.text(), "This app runs on the computer or phone that you are using.")
	require.Contains(t, p.text(), "Sends you back to localhost:33418")
	require.Contains(t, p.text(), "the app itself; nobody has checked it")

	w.request("grq_2", "mcp:read", registered("cursor:"))
	p = b.get(pages.ApprovePath + "?request=grq_2")
	require.Contains(t, p.text(), "Opens the app cursor")
	require.Contains(t, p.text(), "This app runs on the computer or phone that you are using.")
}

func TestClientNameCannotInjectPageText(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.signIn(ownerEmail)
	for i, c := range []struct{ name, host, want string }{
		{`<script>alert(1)</script>`, "evil.example", "Connect <script>alert(1)</script> to"},
		{`" onfocus="alert(1)" autofocus="`, "evil.example", `Connect " onfocus="alert(1)" autofocus=" to`},
		{"{{.Token}} ${x}", "evil.example", "Connect {{.Token}} ${x} to"},
		{"Good\u202Eelpmaxe.live\u202C", "evil.example", "Connect Goodelpmaxe.live to"},
		{"A\u2066B\u2069\u200FC\u061CD", "evil.example", "Connect ABCD to"},
		{"Two\nlines\r\n\ttabs\u2028and\u2029more", "evil.example", "Connect Two lines tabs and more to"},
		{"Z\u0300\u0301\u0302\u0303\u0304\u0305algo", "evil.example", "Connect Z\u0300\u0301algo to"},
		{"\u3164\u200b\u2800", "evil.example", "Connect evil.example to"},
		{"\x00\x1b[31mred\x7f", "evil.example", "Connect [31mred to"},
		{strings.Repeat("long ", 100), "evil.example", strings.TrimSpace(strings.Repeat("long ", 13)) + "… to"},
		{"\xff\xfe", "evil.example", "Connect \uFFFD to"},
		{"فارسی", "evil.example", "Connect فارسی to"},
	} {
		id := "grq_" + string(rune('a'+i))
		w.request(id, "mcp:read", func(r *oauth.Request) { r.Client.Name, r.RedirectHost = c.name, c.host })
		p := b.get(pages.ApprovePath + "?request=" + id)
		require.Equal(t, http.StatusOK, p.StatusCode)
		require.Contains(t, p.text(), c.want)
		require.NotContains(t, p.body, "<script")
		require.NotContains(t, p.body, ` onfocus="`)
		for _, bad := range "\u202e\u202c\u2066\u2069\u200f\u061c\u200b\u3164\u2800\x00\x1b\u2028" {
			require.NotContains(t, p.body, string(bad))
		}
		require.Contains(t, p.body, "<bdi", "its direction is its own")
	}
	w.request("grq_host", "mcp:read", func(r *oauth.Request) { r.RedirectHost = "evil.example\u202e<b>" })
	p := b.get(pages.ApprovePath + "?request=grq_host")
	require.Contains(t, p.text(), "Sends you back to evil.example<b>")
	require.NotContains(t, p.body, "<b>")
}

func TestClientNameIsCleanedOnAllPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now()
	g := grant("g1", owner, "x", "mcp:read", now, now)
	g.ClientName, g.ClientHost = "<img src=x onerror=alert(1)>\u202e", `evil.example"><script>`
	w.oauth.grants = []oauth.Grant{g}
	b := w.signIn(ownerEmail)
	require.NoError(t, w.audit.Record(t.Context(), audit.Entry{
		BusinessID: owner.BusinessID, AccountName: owner.Name, Action: audit.ConnectionRevoked, ClientName: g.ClientName, Target: g.ClientHost,
	}))
	for _, path := range []string{pages.ConnectionsPath, pages.ConnectionsPath + "?revoke=g1", pages.ActivityPath} {
		p := b.get(path)
		require.Equal(t, http.StatusOK, p.StatusCode)
		require.Contains(t, p.text(), "<img src=x onerror=alert(1)>", path)
		require.NotContains(t, p.body, "<img")
		require.NotContains(t, p.body, "<script")
		require.NotContains(t, p.body, "\u202e")
	}
}
