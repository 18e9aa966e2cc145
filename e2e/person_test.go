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
	"golang.org/x/net/html"

	"github.com/gatehouse-gateway/gatehouse/internal/demo"
)

// person uses the pages as a browser without JavaScript does: keeps cookies, follows redirects on the gateway, and sends
// forms with what is in them.
type person struct {
	t      *testing.T
	base   string
	client *http.Client
	// address is where a proxy in front says that the person is, "" for nothing.
	address string
}

// page is what a person sees.
type page struct {
	Status int
	URL    *url.URL // where it is, after redirects
	Text   string
	forms  []form
	// Away is where the last redirect led, if away from the gateway.
	Away *url.URL
}

type form struct {
	action string
	values url.Values
}

func newPerson(t *testing.T, base string) *person {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	home, err := url.Parse(base)
	require.NoError(t, err)
	return &person{t: t, base: base, client: &http.Client{
		Jar: jar, Timeout: patience,
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if req.URL.Host != home.Host || len(via) > 10 {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}}
}

// open goes to a path or URL.
func (p *person) open(target string) page {
	p.t.Helper()
	if strings.HasPrefix(target, "/") {
		target = p.base + target
	}
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, target, nil)
	require.NoError(p.t, err)
	return p.do(req)
}

// send sends the one form of a page that has a field, with some values changed; "" takes a value out.
func (p *person) send(on page, field string, change url.Values) page {
	p.t.Helper()
	i := slices.IndexFunc(on.forms, func(f form) bool { return f.values.Has(field) })
	require.GreaterOrEqual(p.t, i, 0, "no form with %q on %s: %s", field, on.URL, on.Text)
	values := url.Values{}
	for name, v := range on.forms[i].values {
		values[name] = slices.Clone(v)
	}
	for name, v := range change {
		if values[name] = v; len(v) == 0 {
			delete(values, name)
		}
	}
	action, err := on.URL.Parse(on.forms[i].action)
	require.NoError(p.t, err)
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, action.String(), strings.NewReader(values.Encode()))
	require.NoError(p.t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Origin", p.base)
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	return p.do(req)
}

func (p *person) do(req *http.Request) page {
	p.t.Helper()
	if p.address != "" {
		req.Header.Set("X-Forwarded-For", p.address)
	}
	res, err := p.client.Do(req)
	require.NoError(p.t, err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	require.NoError(p.t, err)
	out := page{Status: res.StatusCode, URL: res.Request.URL, Text: string(body)}
	if res.StatusCode/100 == 3 {
		out.Away, err = res.Location()
		require.NoError(p.t, err)
	}
	root, err := html.Parse(strings.NewReader(out.Text))
	require.NoError(p.t, err)
	out.read(root)
	return out
}

// read collects the forms below a node, with the values that a browser would send if nobody touched them. Boxes that are
// not ticked are noted with no value, so that a form can be found by them.
func (p *page) read(n *html.Node) {
	if n.Type == html.ElementNode {
		switch n.Data {
		case "form":
			p.forms = append(p.forms, form{action: attribute(n, "action"), values: url.Values{}})
		case "input":
			if name := attribute(n, "name"); name != "" && len(p.forms) > 0 {
				values := p.forms[len(p.forms)-1].values
				kind := attribute(n, "type")
				if kind != "checkbox" && kind != "radio" || has(n, "checked") {
					values.Add(name, attribute(n, "value"))
				} else if !values.Has(name) {
					values[name] = nil
				}
			}
		}
	}
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		p.read(c)
	}
}

func has(n *html.Node, name string) bool {
	return slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == name })
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// accountOf is the demo's account of a business with a role.
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

// signIn signs a person in and leaves them on Connected apps.
func (p *person) signIn(a demo.Account) page {
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

// register makes an assistant known.
func register(t *testing.T, base, name string) *assistant {
	t.Helper()
	a := &assistant{base: base, redirect: "http://127.0.0.1:5599/callback", verifier: rand.Text() + rand.Text()}
	var answer struct {
		ClientID string `json:"client_id"`
	}
	body, err := json.Marshal(map[string]any{
		"client_name": name, "redirect_uris": []string{a.redirect}, "token_endpoint_auth_method": "none",
		"grant_types": []string{"authorization_code", "refresh_token"},
	})
	require.NoError(t, err)
	status := postJSON(t, base+"/oauth/register", "", string(body), &answer)
	require.Equal(t, http.StatusCreated, status)
	a.clientID = answer.ClientID
	return a
}

// ask is where an assistant sends the person.
func (a *assistant) ask(scope string) string {
	sum := sha256.Sum256([]byte(a.verifier))
	return "/oauth/authorize?" + url.Values{
		"response_type": {"code"}, "client_id": {a.clientID}, "redirect_uri": {a.redirect}, "state": {"state-of-" + a.clientID},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
		"scope": {scope}, "resource": {a.base + "/mcp"},
	}.Encode()
}

// connect has a signed-in person approve everything that the assistant asks for, with these areas' changes switched on,
// and redeems the code.
func (a *assistant) connect(t *testing.T, p *person, scope string, allow ...string) {
	t.Helper()
	at := p.open(a.ask(scope))
	require.Equal(t, http.StatusOK, at.Status, at.Text)
	ticked := at.forms[slices.IndexFunc(at.forms, func(f form) bool { return f.values.Has("request") })].values["allow"]
	at = p.send(at, "request", url.Values{"allow": append(slices.Clone(ticked), allow...), "decision": {"approve"}})
	require.NotNil(t, at.Away, "%d %s", at.Status, at.Text)
	q := at.Away.Query()
	require.Equal(t, a.base, q.Get("iss"))
	require.Equal(t, "state-of-"+a.clientID, q.Get("state"))
	status, err := a.token(t, url.Values{
		"grant_type": {"authorization_code"}, "code": {q.Get("code")}, "redirect_uri": {a.redirect}, "client_id": {a.clientID},
		"code_verifier": {a.verifier}, "resource": {a.base + "/mcp"},
	})
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
}

// token asks the token endpoint and keeps what it gives.
func (a *assistant) token(t *testing.T, form url.Values) (int, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.base+"/oauth/token", strings.NewReader(form.Encode()))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := onceClient().Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err
	}
	if res.StatusCode != http.StatusOK {
		return res.StatusCode, errors.New(string(body))
	}
	return res.StatusCode, json.Unmarshal(body, a)
}

// toolAnswer is what a tool call was answered with.
type toolAnswer struct {
	Result struct {
		IsError           bool            `json:"isError"`
		StructuredContent json.RawMessage `json:"structuredContent"`
		Content           []struct {
			Text string `json:"text"`
		} `json:"content"`
	} `json:"result"`
	Error json.RawMessage `json:"error"` // JSON-RPC's object, or an OAuth error's code
}

// call calls a tool in the revision without sessions.
func (a *assistant) call(t *testing.T, tool, arguments string) (int, toolAnswer) {
	t.Helper()
	var out toolAnswer
	status := postJSON(t, a.base+"/mcp", a.Access, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+
		`","arguments":`+arguments+`}}`, &out)
	return status, out
}

// raw calls a tool over a client's connections and returns the answer as it is.
func (a *assistant) raw(ctx context.Context, client *http.Client, tool, arguments string) (string, error) {
	return a.post(ctx, client, "2025-11-25", tool, `{"name":"`+tool+`","arguments":`+arguments+`}`)
}

// modern is raw in the revision 2026-07-28.
func (a *assistant) modern(ctx context.Context, client *http.Client, tool, arguments string) (string, error) {
	return a.post(ctx, client, "2026-07-28", tool, `{"name":"`+tool+`","arguments":`+arguments+`,"_meta":{`+
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},`+
		`"io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"}}}`)
}

func (a *assistant) post(ctx context.Context, client *http.Client, revision, tool, params string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.base+"/mcp", strings.NewReader(
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+params+`}`))
	if err != nil {
		return "", err
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": revision,
		"Mcp-Method": "tools/call", "Mcp-Name": tool, "Authorization": "Bearer " + a.Access,
	} {
		req.Header.Set(name, value)
	}
	res, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	return string(text), err
}

// onceClient makes a connection for each request: one that is kept, and that a reload closes just when a POST is sent on it, is
// an error of HTTP/1.1, and not what is tried here.
func onceClient() *http.Client {
	return &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
}

// postJSON posts JSON and decodes the answer, whether it comes as JSON or as one event.
func postJSON(t *testing.T, target, bearer, body string, out any) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	res, err := onceClient().Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	answer := string(text)
	for line := range strings.Lines(answer) {
		if data, ok := strings.CutPrefix(line, "data: "); ok && strings.TrimSpace(data) != "" {
			answer = data
		}
	}
	if strings.TrimSpace(answer) != "" {
		require.NoError(t, json.Unmarshal([]byte(answer), out), "%d %s", res.StatusCode, text)
	}
	return res.StatusCode
}
