package mcp_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/mcp"
)

// oddMessage is a request that a client should not send, or not in this form.
type oddMessage struct {
	revision, what, name, body string // what is odd; name is unique
	edit                       func(*http.Request)
}

// outcome is what a client can act on without reading texts.
type outcome struct {
	status int
	code   int  // of the JSON-RPC error; 0 if there is none
	result bool // there is a JSON-RPC result
}

func (o outcome) String() string {
	if o.result {
		return fmt.Sprintf("%d with a result", o.status)
	}
	return fmt.Sprintf("%d with %d", o.status, o.code)
}

// plainSDK returns the URL of a server of the SDK with the tools of s.
func plainSDK(t *testing.T, s *setup) *url.URL {
	t.Helper()
	listed, err := s.connect(modern, "bearer", nil).ListTools(t.Context(), nil)
	require.NoError(t, err)
	server := sdk.NewServer(&sdk.Implementation{Name: "plain"}, &sdk.ServerOptions{
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}},
	})
	for _, tool := range listed.Tools {
		server.AddTool(tool, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{}, nil
		})
	}
	front := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{
		Stateless: true, PropagateRequestCancellation: true, MaxRequestBodyBytes: mcp.MaxBody,
	}))
	t.Cleanup(front.Close)
	u, err := url.Parse(front.URL)
	require.NoError(t, err)
	return u
}

func (m oddMessage) send(t *testing.T, s *setup, host string) outcome {
	t.Helper()
	r := s.message(t.Context(), m.revision, m.body)
	r.Header.Set("Authorization", "Bearer bearer")
	if m.revision == "" {
		r.Header.Del("Mcp-Protocol-Version")
	}
	if m.edit != nil {
		m.edit(r)
	}
	r.URL.Host, r.Host = host, host
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	if events := strings.Split(string(text), "data: "); len(events) > 1 {
		text = []byte(events[len(events)-1])
	}
	var message struct {
		Result json.RawMessage
		Error  struct{ Code int }
	}
	_ = json.Unmarshal(text, &message) // errors of HTTP are a line of text
	return outcome{res.StatusCode, message.Error.Code, message.Result != nil}
}

// plainCall returns the call of a revision that the odd ones are made from.
func plainCall(revision string) string {
	meta := ""
	if revision >= modern {
		meta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"` + revision + `","io.modelcontextprotocol/clientInfo":{"name":"a","version":"1"},` +
			`"io.modelcontextprotocol/clientCapabilities":{}}`
	}
	return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"contacts_search","arguments":{"limit":2}` + meta + `}}`
}

func oddMessages() (all []oddMessage) {
	add := func(revision, what, body string, edit func(*http.Request)) {
		all = append(all, oddMessage{revision, what, fmt.Sprintf("%s: %.60q", cmp.Or(revision, "no revision"), what), body, edit})
	}
	change := func(revision, call string, change [2]string, edit func(*http.Request)) {
		if !strings.Contains(call, change[0]) {
			panic(change[0] + " is not in " + call)
		}
		add(revision, change[1], strings.Replace(call, change[0], change[1], 1), edit)
		all[len(all)-1].name += fmt.Sprintf(" (%d bytes) instead of %.60q", len(change[1]), change[0])
	}
	for _, revision := range []string{modern, legacy} {
		call := plainCall(revision)
		for _, c := range [][2]string{
			{`"2.0"`, `"1.0"`},
			{`"2.0"`, `2.0`},
			{`"2.0"`, `null`},
			{`"jsonrpc":"2.0",`, ``},
			{`"2.0"`, `"2.0","jsonrpc":"2.0"`},
			{`"jsonrpc"`, `"JSONRPC"`},
			{`"id":7`, `"id":"7"`},
			{`"id":7`, `"id":""`},
			{`"id":7`, `"id":0`},
			{`"id":7`, `"id":-1`},
			{`"id":7`, `"id":-0`},
			{`"id":7`, `"id":1.5`},
			{`"id":7`, `"id":1e3`},
			{`"id":7`, `"id":1e999`},
			{`"id":7`, `"id":9007199254740993`},
			{`"id":7`, `"id":123456789012345678901234567890`},
			{`"id":7`, `"id":null`},
			{`"id":7,`, ``},
			{`"id":7`, `"id":true`},
			{`"id":7`, `"id":[7]`},
			{`"id":7`, `"id":{}`},
			{`"id":7`, `"id":07`},
			{`"id":7`, `"id":+7`},
			{`"id":7`, `"id":NaN`},
			{`"id":7`, `"id":7,"id":8`},
			{`"id":7`, `"id":7,"ID":8`},
			{`"id":7`, `"id":"` + strings.Repeat("x", 256) + `"`},
			{`"id":7`, `"id":"\ud800"`},
			{`"id":7`, `"id":"\u0000"`},
			{`"tools/call"`, `"tools/Call"`},
			{`"tools/call"`, `"tools/call "`},
			{`"tools/call"`, `"tools\/call"`},
			{`"tools/call"`, `""`},
			{`"tools/call"`, `null`},
			{`"tools/call"`, `7`},
			{`"tools/call"`, `["tools/call"]`},
			{`"method":"tools/call",`, ``},
			{`"method"`, `"Method"`},
			{`"method"`, `"\u006dethod"`},
			{`"tools/call"`, `"tools/call","method":"ping"`},
			{`"tools/call"`, `"tools/call","result":{}`},
			{`"tools/call"`, `"tools/call","error":{"code":1,"message":"x"}`},
			{`"tools/call"`, `"tools/call","result":null`},
			{`"tools/call"`, `"tools/call","extra":1`},
			{`"params":{`, `"params":[{`},
			{`"params":{`, `"Params":{`},
			{`"params":{`, `"params":{},"params":{`},
			{`"contacts_search"`, `"no_such_tool"`},
			{`"contacts_search"`, `"Contacts_Search"`},
			{`"contacts_search"`, `""`},
			{`"contacts_search"`, `null`},
			{`"contacts_search"`, `7`},
			{`"contacts_search"`, `["contacts_search"]`},
			{`"name":"contacts_search",`, ``},
			{`"name":"contacts_search"`, `"name":"contacts_search","name":"jobs_search"`},
			{`"name":"contacts_search"`, `"Name":"contacts_search"`},
			{`"name":"contacts_search"`, `"name":"contacts_search","NAME":"jobs_search"`},
			{`"name":"contacts_search"`, `"name":"contacts_search","later":[{}]`},
			{`{"limit":2}`, `null`},
			{`,"arguments":{"limit":2}`, ``},
			{`{"limit":2}`, `[]`},
			{`{"limit":2}`, `[{"limit":2}]`},
			{`{"limit":2}`, `"limit"`},
			{`{"limit":2}`, `2`},
			{`{"limit":2}`, `true`},
			{`{"limit":2}`, `{}`},
			{`{"limit":2}`, `{"limit":"2"}`},
			{`{"limit":2}`, `{"limit":null}`},
			{`{"limit":2}`, `{"limit":2.0}`},
			{`{"limit":2}`, `{"limit":2.5}`},
			{`{"limit":2}`, `{"limit":-1}`},
			{`{"limit":2}`, `{"limit":1e400}`},
			{`{"limit":2}`, `{"limit":2,"limit":3}`},
			{`{"limit":2}`, `{"Limit":2}`},
			{`{"limit":2}`, `{"unknown":1}`},
			{`{"limit":2}`, `{"query":"\ud800"}`},
			{`{"limit":2}`, "{\"query\":\"\xff\"}"},
			{`{"limit":2}`, "{\"query\":\"\x01\"}"},
			{`{"limit":2}`, `{"query":"\u0000"}`},
			{`{"limit":2}`, `{"query":` + strings.Repeat("[", 900) + strings.Repeat("]", 900) + `}`},
			{`{"limit":2}`, `{"query":` + strings.Repeat("[", 1100) + strings.Repeat("]", 1100) + `}`},
			{`{"limit":2}`, `{"query":` + strings.Repeat("[", 90_000) + strings.Repeat("]", 90_000) + `}`},
			{`"arguments":`, `"Arguments":{},"arguments":`},
			{`"params":{`, `"params":{"inputResponses":7,`},
			{`"params":{`, `"params":{"inputResponses":{"q":7},`},
			{`"params":{`, `"params":{"requestState":7,`},
			{`"params":{`, `"params":{"inputResponses":{"q":{"action":"accept"}},"requestState":"x",`},
			{`{"limit":2}`, `{"query":"` + strings.Repeat("x", mcp.MaxBody) + `"}`},
			{`}}`, `}`},
			{`}}`, `}},`},
			{`:{`, `:{{`},
			{`,`, `,,`},
			{`"`, `'`},
			{`{"jsonrpc"`, "\ufeff{\"jsonrpc\""},
			{`{"jsonrpc"`, "\x00{\"jsonrpc\""},
			{`{"jsonrpc"`, ` {"jsonrpc"`},
			{`{"jsonrpc"`, `/**/{"jsonrpc"`},
		} {
			change(revision, call, c, func(r *http.Request) {
				if r.Header.Get("Mcp-Method") != "" || revision == modern {
					r.Header.Set("Mcp-Method", "tools/call")
					r.Header.Set("Mcp-Name", "contacts_search")
				}
			})
		}
		for name, body := range map[string]string{
			"nothing": "", "white space": " \n", "null": "null", "a number": "7", "a string": `"x"`, "an empty array": "[]", "an empty object": "{}",
			"a batch of two": "[" + call + "," + call + "]", "a batch after white space": " [" + call + "]",
			"two messages": call + call, "a message and a letter": call + "x", "a message and white space": call + "\n ", "half a message": call[:40],
			"XML": "<call/>", "a form": "jsonrpc=2.0&id=7",
			"a response": `{"jsonrpc":"2.0","id":7,"result":{}}`, "an error": `{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"x"}}`,
			"a response without an id": `{"jsonrpc":"2.0","result":{}}`, "only an id": `{"jsonrpc":"2.0","id":7}`, "an error with text": `{"jsonrpc":"2.0","id":7,"error":"x"}`,
		} {
			add(revision, name, body, nil)
		}
		for name, values := range map[string][]string{
			"Content-Type":         {"", "text/plain", "application/json; charset=utf-16", "application/jsonx", "application/json, application/json", "APPLICATION/JSON"},
			"Accept":               {"", "application/json", "text/event-stream", "*/*", "text/html", "application/json;q=0, text/event-stream"},
			"Mcp-Protocol-Version": {"", "1999-01-01", "2099-01-01", "x", modern + " ", "2025-11-25", modern, "2025-03-26"},
			"Mcp-Method":           {"", "tools/list", "Tools/call", "tools/call "},
			"Mcp-Name":             {"", "jobs_search", "Contacts_search", "=?base64?Y29udGFjdHNfc2VhcmNo?=", "=?BASE64?Y29udGFjdHNfc2VhcmNo?=", "=?base64?*?="},
			"Mcp-Session-Id":       {"x"},
			"Last-Event-Id":        {"", "1"},
			"Mcp-Param-Limit":      {"3"},
			"Content-Encoding":     {"gzip"},
		} {
			for _, value := range values {
				add(revision, fmt.Sprintf("%s: %q", name, value), call, func(r *http.Request) {
					r.Header.Set(name, value)
					if value == "" && name != "Last-Event-Id" {
						r.Header.Del(name)
					}
				})
			}
			add(revision, name+" twice", call, func(r *http.Request) {
				value := r.Header.Get(name)
				r.Header[http.CanonicalHeaderKey(name)] = []string{value, value}
			})
		}
		for name, header := range map[string]string{"no_such_tool": "no_such_tool", "größe": "=?base64?Z3LDtsOfZQ==?="} {
			add(revision, "the unknown tool "+name, strings.Replace(call, "contacts_search", name, 1), func(r *http.Request) {
				r.Header.Set("Mcp-Name", header)
			})
		}
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete, http.MethodPatch} {
			add(revision, method, call, func(r *http.Request) { r.Method = method })
		}
	}
	for _, c := range [][2]string{ // of _meta
		{`"_meta":{`, `"_meta":null,"x":{`},
		{`"_meta":{`, `"_meta":[],"x":{`},
		{`"_meta":{`, `"_meta":7,"x":{`},
		{`"_meta":{`, `"_META":{`},
		{`"_meta":{`, `"_meta":{},"x":{`},
		{`Version":"2026-07-28"`, `Version":"2025-11-25"`},
		{`Version":"2026-07-28"`, `Version":"2099-01-01"`},
		{`Version":"2026-07-28"`, `Version":7`},
		{`Version":"2026-07-28"`, `Version":null`},
		{`Version":"2026-07-28"`, `Version":""`},
		{`protocolVersion`, `protocolversion`},
		{`{"name":"a","version":"1"}`, `null`},
		{`{"name":"a","version":"1"}`, `7`},
		{`{"name":"a","version":"1"}`, `{}`},
		{`{"name":"a","version":"1"}`, `{"name":7}`},
		{`{"name":"a","version":"1"}`, `[]`},
		{`"io.modelcontextprotocol/clientInfo":{"name":"a","version":"1"},`, ``},
		{`Capabilities":{}`, `Capabilities":null`},
		{`Capabilities":{}`, `Capabilities":7`},
		{`Capabilities":{}`, `Capabilities":[]`},
		{`Capabilities":{}`, `Capabilities":{"elicitation":7}`},
		{`Capabilities":{}`, `Capabilities":{"later":7}`},
		{`,"io.modelcontextprotocol/clientCapabilities":{}`, ``},
		{`clientCapabilities`, `clientcapabilities`},
		{`"_meta":{`, `"_meta":{"io.modelcontextprotocol/logLevel":7,`},
		{`"_meta":{`, `"_meta":{"traceparent":7,`},
		{`"_meta":{`, `"_meta":{"":1,`},
	} {
		for _, method := range []string{"tools/call", "tools/list"} {
			change(modern, strings.Replace(plainCall(modern), "tools/call", method, 1), c, nil)
			all[len(all)-1].name += " of " + method
		}
	}
	for _, revision := range append(sdk.SupportedProtocolVersions(), "", "2099-01-01") {
		for _, token := range []string{`"p"`, `7`, `7.5`, `null`, `true`, `[]`, `{}`} {
			body := strings.Replace(plainCall(revision), `"params":{`, `"params":{"_meta":{"progressToken":`+token+`},`, 1)
			if revision >= modern {
				body = strings.Replace(plainCall(revision), `"_meta":{`, `"_meta":{"progressToken":`+token+`,`, 1)
			}
			add(revision, "progressToken "+token, body, nil)
		}
		for _, method := range []string{
			"initialize", "ping", "server/discover", "tools/list", "prompts/list", "prompts/get", "resources/list", "resources/read", "resources/subscribe",
			"completion/complete", "logging/setLevel", "subscriptions/listen", "tasks/list", "roots/list", "sampling/createMessage", "no/such", "",
			"notifications/initialized", "notifications/cancelled", "notifications/progress", "notifications/roots/list_changed", "notifications/none",
		} {
			body := strings.Replace(plainCall(revision), "tools/call", method, 1)
			edit := func(r *http.Request) {
				if revision >= modern {
					r.Header.Set("Mcp-Method", method)
				}
			}
			add(revision, method, body, edit)
			add(revision, method+" as a notification", strings.Replace(body, `"id":7,`, ``, 1), edit)
			if revision == modern || revision == legacy {
				for _, params := range []string{``, `,"params":null`, `,"params":[]`, `,"params":7`} {
					add(revision, method+" with only"+params, `{"jsonrpc":"2.0","id":7,"method":"`+method+`"`+params+`}`, edit)
				}
			}
		}
		add(revision, "a batch", "["+plainCall(revision)+"]", nil)
		add(revision, "the call as it should be", plainCall(revision), func(r *http.Request) {
			if revision >= modern {
				r.Header.Set("Mcp-Method", "tools/call")
				r.Header.Set("Mcp-Name", "contacts_search")
			}
		})
	}
	for _, params := range []string{`{}`, `{"protocolVersion":7}`, `{"protocolVersion":"x"}`, `{"protocolVersion":"2025-11-25","capabilities":7}`, `{"protocolVersion":"2025-11-25","clientInfo":[]}`} {
		add(legacy, "initialize with "+params, `{"jsonrpc":"2.0","id":7,"method":"initialize","params":`+params+`}`, nil)
	}
	for _, params := range []string{`{"cursor":7}`, `{"cursor":"x"}`, `{"cursor":null}`, `{"Cursor":"x"}`, `{"cursor":"x","cursor":"y"}`, `{"_meta":7}`, `{"_meta":{"progressToken":{}}}`} {
		add(legacy, "tools/list with "+params, `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":`+params+`}`, nil)
	}
	return all
}

func (m oddMessage) method() string {
	var v struct{ Method string }
	_ = json.Unmarshal([]byte(m.body), &v) // not all are JSON
	return v.Method
}

// sdkDifference is a difference between the gateway and the SDK that is meant.
type sdkDifference struct {
	why  string
	what []string // of the messages; nil: any
	is   func(m oddMessage, ours, sdks outcome) bool
	seen bool
}

func TestOddMessagesAreServedAsByTheSDK(t *testing.T) {
	t.Parallel()
	differences := []sdkDifference{
		{why: "What is not a JSON-RPC message gets a JSON-RPC error. The SDK responds with a line of text.", is: func(_ oddMessage, ours, sdks outcome) bool {
			return ours.status == sdks.status && (ours.code == -32600 || ours.code == -32700) && sdks.code == 0 && !sdks.result
		}},
		{why: "Unknown methods and those of undeclared capabilities are -32601, whatever else is wrong.", is: func(m oddMessage, ours, _ outcome) bool {
			return ours.code == -32601 && !slices.Contains([]string{"initialize", "ping", "server/discover", "tools/list", "tools/call"}, m.method())
		}},
		{why: "There are no batches.", is: func(m oddMessage, ours, sdks outcome) bool {
			return ours.code == -32600 && sdks.result && strings.HasPrefix(m.body, "[")
		}},
		{why: "A message is one JSON value in UTF-8.", is: func(_ oddMessage, ours, sdks outcome) bool {
			return ours.code == -32700 && (sdks.result || sdks.code == -32020)
		}, what: []string{`"id":"\ud800"`, `{"query":"\ud800"}`, "{\"query\":\"\xff\"}", "two messages", "a message and a letter"}},
		{why: "Members are known and unique, a message is not a request and a response, and ids have a maximum length.", is: func(_ oddMessage, ours, _ outcome) bool {
			return ours.status == http.StatusBadRequest && ours.code == -32600
		}, what: []string{
			`"2.0","jsonrpc":"2.0"`, `"Method"`, `"id":7,"id":8`, `"id":7,"ID":8`, `"id":"` + strings.Repeat("x", 256) + `"`, `"params":{},"params":{`,
			`"name":"contacts_search","name":"jobs_search"`, `"tools/call","method":"ping"`, `"tools/call","error":{"code":1,"message":"x"}`,
			`"tools/call","result":{}`, `"tools/call","result":null`, `"tools/call","extra":1`, `{"limit":2,"limit":3}`, `tools/list with {"cursor":"x","cursor":"y"}`,
		}},
		{why: "No header of the transport is given twice.", is: func(m oddMessage, ours, _ outcome) bool {
			return ours.code == -32020 && strings.HasSuffix(m.what, " twice")
		}},
		{why: "Mcp-Name may be encoded.", is: func(_ oddMessage, ours, sdks outcome) bool {
			return (ours.result || ours.code == -32602) && sdks.code == -32020
		}, what: []string{`Mcp-Name: "=?base64?Y29udGFjdHNfc2VhcmNo?="`, "the unknown tool größe"}},
		{why: "The arguments of a call are an object, parameters have the right case, and a progress token is a string or a number.", is: func(_ oddMessage, ours, sdks outcome) bool {
			return ours.code == -32602 && sdks.result
		}, what: []string{
			`2`, `true`, `"limit"`, `[]`, `[{"limit":2}]`, `"Arguments":{},"arguments":`, `"name":"contacts_search","NAME":"jobs_search"`,
			"progressToken []", "progressToken true", "progressToken {}",
		}},
		{why: "Parameters are checked before headers.", is: func(_ oddMessage, ours, sdks outcome) bool {
			return ours.code == -32602 && sdks.code == -32020
		}, what: []string{
			`7`, `["contacts_search"]`, `"Name":"contacts_search"`, `"params":{"inputResponses":7,`, `"params":{"requestState":7,`,
		}},
		{why: "Responses to what was not asked are ignored.", is: func(_ oddMessage, ours, sdks outcome) bool {
			return ours.result && !sdks.result
		}, what: []string{`"params":{"inputResponses":{"q":7},`}},
		{why: "Numbers need not be representable as floating point.", is: func(_ oddMessage, ours, sdks outcome) bool {
			return ours.result && !sdks.result
		}, what: []string{`"id":1e999`, `{"limit":1e400}`}},
	}
	s := newSetup(t, shared)
	ours, err := url.Parse(s.url)
	require.NoError(t, err)
	plain := plainSDK(t, s)
	messages := oddMessages()
	require.Greater(t, len(messages), 200)
	sent := map[string]bool{}
	for _, m := range messages {
		require.False(t, sent[m.name], "two messages have the name %s", m.name)
		sent[m.name] = true
		a, b := m.send(t, s, ours.Host), m.send(t, s, plain.Host)
		if a == b {
			continue
		}
		i := slices.IndexFunc(differences, func(d sdkDifference) bool {
			return d.is(m, a, b) && (d.what == nil || slices.Contains(d.what, m.what))
		})
		if assert.GreaterOrEqual(t, i, 0, "%s: %s, the SDK: %s", m.name, a, b) {
			differences[i].seen = true
		}
	}
	for _, d := range differences {
		assert.True(t, d.seen, "there is no such difference: %s", d.why)
	}
}
