package e2e_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/demo"
	"github.com/gatehouse-gateway/gatehouse/internal/test/formtest"
)

// browser uses the pages like a browser without JavaScript: it keeps cookies, follows redirects on the gateway and sends forms.
type browser struct {
	t      *testing.T
	base   string
	client *http.Client
	// address is sent as X-Forwarded-For, if not empty.
	address string
}

// page is a page that the browser shows.
type page struct {
	Status int
	URL    *url.URL // after redirects
	Text   string
	forms  []formtest.Form
	// Redirect is the target of a redirect to another host, or nil.
	Redirect *url.URL
}

func newBrowser(t *testing.T, base string) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	home, err := url.Parse(base)
	require.NoError(t, err)
	return &browser{t: t, base: base, client: &http.Client{
		Jar: jar, Timeout: 2 * patience,
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if req.URL.Host != home.Host || len(via) > 10 {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}}
}

// open opens a path or URL.
func (p *browser) open(target string) page {
	p.t.Helper()
	if strings.HasPrefix(target, "/") {
		target = p.base + target
	}
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, target, nil)
	require.NoError(p.t, err)
	return p.do(req)
}

// send submits the form that has a field, with some values changed; an empty list removes a value.
func (p *browser) send(on page, field string, change url.Values) page {
	p.t.Helper()
	i := slices.IndexFunc(on.forms, func(f formtest.Form) bool { return f.Values.Has(field) })
	require.GreaterOrEqual(p.t, i, 0, "no form with %q on %s: %s", field, on.URL, on.Text)
	values := url.Values{}
	for name, v := range on.forms[i].Values {
		values[name] = slices.Clone(v)
	}
	for name, v := range change {
		if values[name] = v; len(v) == 0 {
			delete(values, name)
		}
	}
	action, err := on.URL.Parse(on.forms[i].Action)
	require.NoError(p.t, err)
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, action.String(), strings.NewReader(values.Encode()))
	require.NoError(p.t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Origin", p.base)
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	return p.do(req)
}

func (p *browser) do(req *http.Request) page {
	p.t.Helper()
	if p.address != "" {
		req.Header.Set("X-Forwarded-For", p.address)
	}
	res, err := p.client.Do(req)
	require.NoError(p.t, err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	require.NoError(p.t, err)
	out := page{Status: res.StatusCode, URL: res.Request.URL, Text: string(body), forms: formtest.Forms(p.t, string(body))}
	if res.StatusCode/100 == 3 {
		out.Redirect, err = res.Location()
		require.NoError(p.t, err)
	}
	return out
}

// accountOf returns the demo account of a business with a role.
func accountOf(t *testing.T, businessID, role string) demo.Account {
	t.Helper()
	for _, a := range demo.Accounts() {
		if a.BusinessID == businessID && a.Role == role {
			return a
		}
	}
	require.Fail(t, "the demo has no such account")
	return demo.Account{}
}

// signIn signs in and returns the page Connected apps.
func (p *browser) signIn(a demo.Account) page {
	p.t.Helper()
	at := p.open("/settings/connected-apps")
	at = p.send(at, "password", url.Values{"email": {a.Email}, "password": {a.Password}})
	require.Equal(p.t, http.StatusOK, at.Status, at.Text)
	require.Equal(p.t, "/settings/connected-apps", at.URL.Path)
	return at
}

// assistant is a client of the connection server.
type assistant struct {
	base, clientID, redirect, verifier string

	Access  string `json:"access_token"`
	Refresh string `json:"refresh_token"`
	Scope   string `json:"scope"`
}

// register registers an assistant.
func register(t *testing.T, base, name string) *assistant {
	t.Helper()
	a := &assistant{base: base, redirect: "http://127.0.0.1:5599/callback", verifier: rand.Text() + rand.Text()}
	var response struct {
		ClientID string `json:"client_id"`
	}
	body, err := json.Marshal(map[string]any{
		"client_name": name, "redirect_uris": []string{a.redirect}, "token_endpoint_auth_method": "none",
		"grant_types": []string{"authorization_code", "refresh_token"},
	})
	require.NoError(t, err)
	status, text, err := post(t.Context(), onceClient(), base+"/oauth/register", string(body), http.Header{"Content-Type": {"application/json"}})
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status)
	require.NoError(t, json.Unmarshal([]byte(text), &response))
	a.clientID = response.ClientID
	return a
}

// authorizeURL returns the path of an authorization request.
func (a *assistant) authorizeURL(scope string) string {
	sum := sha256.Sum256([]byte(a.verifier))
	return "/oauth/authorize?" + url.Values{
		"response_type": {"code"}, "client_id": {a.clientID}, "redirect_uri": {a.redirect}, "state": {"state-of-" + a.clientID},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
		"scope": {scope}, "resource": {a.base + "/mcp"},
	}.Encode()
}

// connect has a signed-in user approve the requested scopes and the changes in allow, and redeems the code.
func (a *assistant) connect(t *testing.T, p *browser, scope string, allow ...string) {
	t.Helper()
	at := p.open(a.authorizeURL(scope))
	require.Equal(t, http.StatusOK, at.Status, at.Text)
	ticked := at.forms[slices.IndexFunc(at.forms, func(f formtest.Form) bool { return f.Values.Has("request") })].Values["allow"]
	at = p.send(at, "request", url.Values{"allow": append(slices.Clone(ticked), allow...), "decision": {"approve"}})
	require.NotNil(t, at.Redirect, "%d %s", at.Status, at.Text)
	q := at.Redirect.Query()
	require.Equal(t, a.base, q.Get("iss"))
	require.Equal(t, "state-of-"+a.clientID, q.Get("state"))
	a.redeem(t, q.Get("code"))
}

// redeem exchanges a code.
func (a *assistant) redeem(t *testing.T, code string) {
	t.Helper()
	status, err := a.token(t, url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {a.redirect}, "client_id": {a.clientID},
		"code_verifier": {a.verifier}, "resource": {a.base + "/mcp"},
	})
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
}

// token calls the token endpoint and keeps the tokens.
func (a *assistant) token(t *testing.T, form url.Values) (int, error) {
	t.Helper()
	status, body, err := post(t.Context(), onceClient(), a.base+"/oauth/token", form.Encode(), http.Header{
		"Content-Type": {"application/x-www-form-urlencoded"},
	})
	if err != nil {
		return 0, err
	}
	if status != http.StatusOK {
		return status, errors.New(body)
	}
	return status, json.Unmarshal([]byte(body), a)
}

// refresh redeems the refresh token.
func (a *assistant) refresh(t *testing.T) (int, error) {
	t.Helper()
	return a.token(t, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {a.Refresh}, "client_id": {a.clientID}})
}

// toolResponse is the response to a tool call.
type toolResponse struct {
	Result struct {
		IsError           bool            `json:"isError"`
		StructuredContent json.RawMessage `json:"structuredContent"`
		Content           []struct {
			Text string `json:"text"`
		} `json:"content"`
	} `json:"result"`
	Error json.RawMessage `json:"error"` // JSON-RPC's object, or an OAuth error's code
}

// call calls a tool with the revision 2025-11-25.
func (a *assistant) call(t *testing.T, tool, arguments string) (status int, out toolResponse) {
	t.Helper()
	status, text, err := a.post(t.Context(), onceClient(), "2025-11-25", tool, `{"name":"`+tool+`","arguments":`+arguments+`}`)
	require.NoError(t, err)
	for line := range strings.Lines(text) { // it may come as one event
		if data, ok := strings.CutPrefix(line, "data: "); ok && strings.TrimSpace(data) != "" {
			text = data
		}
	}
	if strings.TrimSpace(text) != "" {
		require.NoError(t, json.Unmarshal([]byte(text), &out), "%d %s", status, text)
	}
	return status, out
}

// raw calls a tool with an HTTP client and returns the raw response.
func (a *assistant) raw(ctx context.Context, client *http.Client, tool, arguments string) (string, error) {
	_, text, err := a.post(ctx, client, "2025-11-25", tool, `{"name":"`+tool+`","arguments":`+arguments+`}`)
	return text, err
}

// modern is raw with the revision 2026-07-28.
func (a *assistant) modern(ctx context.Context, client *http.Client, tool, arguments string) (string, error) {
	_, text, err := a.post(ctx, client, "2026-07-28", tool, `{"name":"`+tool+`","arguments":`+arguments+`,"_meta":{`+
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},`+
		`"io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"}}}`)
	return text, err
}

// tools returns the response to tools/list.
func (a *assistant) tools(t *testing.T) string {
	t.Helper()
	status, text, err := post(t.Context(), onceClient(), a.base+"/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {"2025-11-25"},
		"Authorization": {"Bearer " + a.Access},
	})
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, text)
	return text
}

func (a *assistant) post(ctx context.Context, client *http.Client, revision, tool, params string) (int, string, error) {
	return post(ctx, client, a.base+"/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+params+`}`, http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {revision},
		"Mcp-Method": {"tools/call"}, "Mcp-Name": {tool}, "Authorization": {"Bearer " + a.Access},
	})
}

// onceClient makes a connection for each request, as a reload may close an idle one when a POST is sent on it.
func onceClient() *http.Client {
	return &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
}

func post(ctx context.Context, client *http.Client, target, body string, header http.Header) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header = header
	res, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), err
}
