package mcp

import (
	stdjson "encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/scope"
)

// Calls of an older and of the newest revision.
const (
	older = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"contacts_search","arguments":{"limit":2}}}`
	newer = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"contacts_search","arguments":{"limit":2},"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"a","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}`
)

var preparedTools = sync.OnceValues(func() (map[string]*tool, error) { return newTools(scope.All()) })

func tools(tb testing.TB) map[string]*tool {
	tb.Helper()
	tools, err := preparedTools()
	require.NoError(tb, err)
	return tools
}

func callRequest(revision string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/mcp", http.NoBody)
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", headerProtocolVersion: revision,
		headerMethod: methodToolsCall, headerName: "contacts_search",
	} {
		r.Header.Set(name, value)
	}
	return r
}

func read(tb testing.TB, r *http.Request, body string) (*toolCall, error) {
	tb.Helper()
	m, err := readMessage([]byte(body))
	if err != nil {
		return nil, err
	}
	return (&Server{tools: tools(tb)}).readCall(r, m)
}

type change struct{ from, to string }

func TestToolCallIsReadInEveryValidForm(t *testing.T) {
	t.Parallel()
	for revision, body := range map[string]string{"2025-06-18": older, "2025-11-25": older, revisionModern: newer} {
		for _, form := range []change{
			{"", ""},
			{`"id":7`, `"id":"a string"`},
			{`"id":7`, `"id":0`},
			{`"id":7`, `"id":-7`},
			{`"id":7`, `"id":1.5`},
			{`"id":7`, `"id":1e308`},
			{`"id":7`, `"id":1000000000000000000000000000000`},
			{`,"arguments":{"limit":2}`, ``},
			{`{"limit":2}`, `null`},
			{`"params":{`, `"params":{"of a later revision":[{}],`},
			{`{"limit":2}`, `{"limit":"[[{{\""}`},
		} {
			changed := strings.Replace(body, form.from, form.to, 1)
			c, err := read(t, callRequest(revision), changed)
			require.NoError(t, err, changed)
			assert.Equal(t, "contacts_search", c.tool.Name)
			assert.Equal(t, revision == revisionModern, c.modern)
			assert.Equal(t, revision == revisionModern, c.canElicit)
			assert.Contains(t, changed, `"id":`+string(c.id), "byte for byte")
		}
	}
	c, err := read(t, callRequest("2025-11-25"), strings.Replace(older, `{"limit":2}`, `{},"_meta":{"progressToken":1.50,"x/y":1e999}`, 1))
	require.NoError(t, err)
	assert.Equal(t, "1.50", string(c.progressToken))
}

func TestAmbiguousMessageIsRejected(t *testing.T) {
	t.Parallel()
	for revision, body := range map[string]string{"2025-11-25": older, revisionModern: newer} {
		for _, form := range []change{
			{`"2.0"`, `"1.0"`},
			{`"jsonrpc":"2.0",`, ``},
			{`"id":7,`, ``},
			{`"id":7`, `"id":null`},
			{`"id":7`, `"id":[7]`},
			{`"id":7`, `"id":true`},
			{`"id":7`, `"id":7,"id":8`},
			{`"id":7`, `"id":7,"ID":8`},
			{`"id":7`, `"id":"\ud800"`},
			{`"id":7`, `"id":"` + strings.Repeat("x", 300) + `"`},
			{`"id":7`, `"id":7,"result":{}`},
			{`"id":7`, `"id":7,"error":{"code":1,"message":""}`},
			{`"id":7`, `"id":7,"Method":"ping"`},
			{`"name":"contacts_search"`, `"name":"contacts_search","name":"contacts_search"`},
			{`"name":"contacts_search"`, `"name":"contacts_search","Name":"jobs_search"`},
			{`"name":"contacts_search"`, `"name":["contacts_search"]`},
			{`"arguments":`, `"Arguments":{},"arguments":`},
			{`"params":{`, `"Params":{"name":"jobs_search"},"params":{`},
			{`{"limit":2}`, `[{"limit":2}]`},
			{`{"limit":2}`, `"limit"`},
			{`{"limit":2}`, `{"limit":2,"limit":3}`},
			{`{"limit":2}`, `{"query":{"a":1,"\u0061":2}}`},
			{`{"limit":2}`, "{\"limit\":\"\xff\"}"},
			{`{"limit":2}`, `{"limit":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`},
			{`"params":{`, `"params":{"_meta":{"progressToken":[]},"_META":{},`},
			{`"2.0"`, `"2.0"` + "\x00"},
		} {
			changed := strings.Replace(body, form.from, form.to, 1)
			require.NotEqual(t, body, changed)
			_, err := read(t, callRequest(revision), changed)
			require.Error(t, err, changed)
		}
		for _, other := range []string{"[" + body + "]", " [" + body + "]", body + body, body + "x", "", "null", "7", `"x"`} {
			_, err := read(t, callRequest(revision), other)
			require.Error(t, err, other)
		}
	}
}

func TestCallWithMismatchedHeadersIsRejected(t *testing.T) {
	t.Parallel()
	for _, form := range []change{
		{`"2026-07-28"`, `"2025-11-25"`},
		{`"2026-07-28"`, `7`},
		{`"io.modelcontextprotocol/protocolVersion":"2026-07-28",`, ``},
		{`"io.modelcontextprotocol/clientCapabilities"`, `"io.modelcontextprotocol/clientcapabilities"`},
		{`{"elicitation":{}}`, `null`},
		{`{"elicitation":{}}`, `["elicitation"]`},
		{`{"elicitation":{}}`, `{"elicitation":7}`},
		{`{"name":"a","version":"1"}`, `null`},
		{`{"name":"a","version":"1"}`, `{"name":7}`},
		{`"_meta":{`, `"_meta":{"progressToken":{},`},
	} {
		changed := strings.Replace(newer, form.from, form.to, 1)
		require.NotEqual(t, newer, changed)
		_, err := read(t, callRequest(revisionModern), changed)
		require.Error(t, err, changed)
	}
	for _, edit := range []func(h http.Header){
		func(h http.Header) { h.Del(headerMethod) },
		func(h http.Header) { h.Set(headerMethod, "tools/list") },
		func(h http.Header) { h.Del(headerName) },
		func(h http.Header) { h.Set(headerName, "jobs_search") },
	} {
		r := callRequest(revisionModern)
		edit(r.Header)
		_, err := read(t, r, newer)
		require.Error(t, err, "%v", r.Header)
	}
	_, err := read(t, callRequest("2025-11-25"), newer)
	require.Error(t, err, "a call of 2026-07-28 as one of an older revision")
}

func TestOtherMessagesAreLeftToTheSDK(t *testing.T) {
	t.Parallel()
	for _, form := range []change{
		{`tools/call`, `tools/list`},
		{`tools/call`, `Tools/call`},
		{`contacts_search`, `no_such_tool`},
	} {
		_, err := read(t, callRequest("2025-11-25"), strings.Replace(older, form.from, form.to, 1))
		require.ErrorIs(t, err, errNotToolCall)
	}
}

func TestInvalidTransportHeadersAreNotServed(t *testing.T) {
	t.Parallel()
	for name, values := range map[string]map[string]bool{
		"Content-Type": {"application/json": true, "application/json; charset=utf-8": true, "text/plain": false, "": false, "application/jsonx": false},
		"Accept": {
			"text/event-stream;q=0.5, application/json": true, "*/*": true, "application/*, text/*": true, "application/json": false,
			"text/event-stream": false, "": false, "application/ json, text/event-stream": false,
		},
		headerProtocolVersion: {"": true, "2024-11-05": true, "2025-03-26": true, "2099-01-01": false, "x": false},
		"Last-Event-Id":       {"": true, "1": false},
	} {
		for value, want := range values {
			r := callRequest("2025-11-25")
			r.Header.Set(name, value)
			if value == "" {
				r.Header.Del(name)
			}
			assert.Equal(t, want, validTransport(r.Header), "%s: %q", name, value)
		}
	}
}

// FuzzCalls requires that encoding/json reads the same call.
func FuzzCalls(f *testing.F) {
	s := &Server{tools: tools(f)}
	for _, body := range []string{older, newer, strings.Replace(older, "7", `"seven"`, 1), strings.Replace(older, `{"limit":2}`, `{"a":{"b":[1.0,"\u00e9"]}}`, 1)} {
		f.Add(body, "2025-11-25")
		f.Add(body, revisionModern)
	}
	f.Fuzz(func(t *testing.T, body, revision string) {
		m, err := readMessage([]byte(body))
		if err != nil {
			return
		}
		r := callRequest("")
		r.Header.Set(headerProtocolVersion, revision)
		c, err := s.readCall(r, m)
		if err != nil {
			return
		}
		var other struct {
			ID     stdjson.RawMessage
			Method string
			Params struct {
				Name      string
				Arguments map[string]any
			}
		}
		require.NoError(t, stdjson.Unmarshal([]byte(body), &other))
		require.Equal(t, methodToolsCall, other.Method)
		require.Equal(t, other.Params.Name, c.tool.Name)
		require.Equal(t, string(other.ID), string(c.id))
		var arguments map[string]any
		require.NoError(t, stdjson.Unmarshal(c.arguments, &arguments))
		if len(arguments)+len(other.Params.Arguments) > 0 {
			require.True(t, reflect.DeepEqual(other.Params.Arguments, arguments), "%s\n%s", body, c.arguments)
		}
	})
}
