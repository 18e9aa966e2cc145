package mcp

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/internal/test/connecttest"
)

// Calls of an older and of the newest revision.
const (
	older = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"contacts_search","arguments":{"limit":2}}}`
	newer = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"contacts_search","arguments":{"limit":2},"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"a","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}`
)

// prepared are the tools of the embedded definition.
var prepared struct {
	sync.Once

	tools map[string]*tool
	err   error
}

func tools(tb testing.TB) map[string]*tool {
	tb.Helper()
	prepared.Do(func() { prepared.tools, prepared.err = newTools(connecttest.Definition(tb), connecttest.Areas(tb)) })
	tools, err := prepared.tools, prepared.err
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

func TestErrorNamesTheMemberAtFault(t *testing.T) {
	t.Parallel()
	const members = `must be one of jsonrpc, id, method, params, result, error`
	for _, tt := range []struct {
		from, to string
		code     int
		text     string
	}{
		{`"id":7`, `"id":7,"Method":"ping"`, jsonrpc.CodeInvalidRequest, `the member "Method" is unknown: ` + members},
		{`"id":7`, `"id":7,"m\u00e9thode":1`, jsonrpc.CodeInvalidRequest, `the member "m\u00e9thode" is unknown: ` + members},
		{`"id":7`, `"id":7,"` + strings.Repeat("y", 50) + `":1`, jsonrpc.CodeInvalidRequest, `the member "` + strings.Repeat("y", 40) + `" is unknown: ` + members},
		{`"id":7`, `"id":7,"id":8`, jsonrpc.CodeInvalidRequest, `the member "id" is given more than once`},
		{`{"limit":2}`, `{"limit":2,"limit":3}`, jsonrpc.CodeInvalidRequest, `the member "limit" is given more than once`},
		{`"tools/call"`, `7`, jsonrpc.CodeInvalidRequest, `the member "method" has the wrong type`},
		{`"id":7`, `"id":null`, jsonrpc.CodeInvalidRequest, `id must be a string or a number of at most 256 bytes`},
		{`"2.0"`, `"1.0"`, jsonrpc.CodeInvalidRequest, `jsonrpc must be "2.0"`},
		{`"2.0"`, `"2.0"x`, jsonrpc.CodeParseError, `the body must be one JSON value in UTF-8`},
		{`"2.0"`, "\"2.0\xff\"", jsonrpc.CodeParseError, `the body must be one JSON value in UTF-8`},
		{older, `7`, jsonrpc.CodeInvalidRequest, `the message must be a JSON object`},
		{`"contacts_search"`, `7`, jsonrpc.CodeInvalidParams, `the member "name" has the wrong type`},
		{`"name"`, `"Name"`, jsonrpc.CodeInvalidParams, `the parameter "Name" of tools/call has the wrong case`},
		{`{"name":"contacts_search","arguments":{"limit":2}}`, `[]`, jsonrpc.CodeInvalidParams, `params must be a JSON object`},
		{`,"params":{"name":"contacts_search","arguments":{"limit":2}}`, ``, jsonrpc.CodeInvalidParams, `params must be a JSON object`},
		{`{"limit":2}`, `[]`, jsonrpc.CodeInvalidParams, `arguments must be an object`},
		{`"arguments"`, `"inputResponses":7,"arguments"`, jsonrpc.CodeInvalidParams, `the member "inputResponses" has the wrong type`},
	} {
		t.Run(tt.to, func(t *testing.T) {
			t.Parallel()
			changed := strings.Replace(older, tt.from, tt.to, 1)
			require.NotEqual(t, older, changed)
			_, err := read(t, callRequest("2025-11-25"), changed)
			rejected, ok := errors.AsType[*protocolError](err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, tt.code, rejected.code)
			assert.Equal(t, tt.text, rejected.message())
			if rejected.name != "" {
				assert.NotContains(t, rejected.Error(), strconv.QuoteToASCII(rejected.name), "the log")
			}
		})
	}
}

func TestNameInBase64IsAccepted(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{
		"contacts_search":                   true,
		"=?base64?Y29udGFjdHNfc2VhcmNo?=":   true,
		"=?BASE64?Y29udGFjdHNfc2VhcmNo?=":   false, // the markers are case-sensitive
		"=?base64?Y29udGFjdHNfc2VhcmNo":     false,
		"=?base64?Y29udGFjdHNfc2Vhcm?=":     false, // without padding
		"=?base64?Y29udGFjdHNfc2VhcmNo==?=": false,
		"=?base64?am9ic19zZWFyY2g=?=":       false, // jobs_search
		"=?base64?*?=":                      false,
		"=?base64??=":                       false,
		"=?base64?=":                        false,
		"Y29udGFjdHNfc2VhcmNo":              false,
	} {
		t.Run(value, func(t *testing.T) {
			t.Parallel()
			r := callRequest(revisionModern)
			r.Header.Set(headerName, value)
			_, err := read(t, r, newer)
			assert.Equal(t, want, err == nil, "%v", err)
		})
	}
}

func TestProgressIncreasesWithEveryNotification(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	c := &toolCall{server: &Server{o: Options{Log: zap.NewNop()}}, progressToken: jsontext.Value("7"), stream: &eventStream{w: w}}
	for _, step := range []struct {
		progress      int
		status, about string
	}{
		{0, "queued", ""},
		{0, "running", ""},
		{0, "running", ""}, // nothing new
		{50, "running", "Half"},
		{50, "running", "Half, still"},
		{40, "running", "Half, still"}, // nothing new but less progress
		{40, "running", "Back"},
		{60, "running", "On"},
		{100, "running", "Cleaning up"},
		{100, "succeeded", ""}, // the result follows
	} {
		c.progress(&run{Progress: step.progress, Status: step.status, Message: step.about})
	}
	var sent []string
	for event := range strings.SplitSeq(strings.TrimSpace(w.Body.String()), "\n\n") {
		var n struct{ Params progressParams }
		require.NoError(t, stdjson.Unmarshal([]byte(strings.TrimPrefix(event, "event: message\ndata: ")), &n))
		assert.Equal(t, 100, n.Params.Total)
		sent = append(sent, fmt.Sprintf("%.2f %s", n.Params.Progress, n.Params.Message))
	}
	assert.Equal(t, []string{
		"0.00 queued", "0.10 running", "50.00 Half", "50.05 Half, still", "50.10 Back", "60.00 On", "100.00 Cleaning up",
	}, sent)
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
	for _, body := range []string{older, newer, strings.Replace(older, "7", `"seven"`, 1), strings.Replace(older, `{"limit":2}`, `{"a":{"b":[1.0,1e999,"\u00e9"]}}`, 1)} {
		f.Add(body, "2025-11-25")
		f.Add(body, revisionModern)
	}
	read := func(t *testing.T, text []byte, into any) {
		t.Helper()
		d := stdjson.NewDecoder(bytes.NewReader(text))
		d.UseNumber() // not all of them fit into a float64
		require.NoError(t, d.Decode(into))
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
		read(t, []byte(body), &other)
		require.Equal(t, methodToolsCall, other.Method)
		require.Equal(t, other.Params.Name, c.tool.Name)
		require.Equal(t, string(other.ID), string(c.id))
		var arguments map[string]any
		read(t, c.arguments, &arguments)
		if len(arguments)+len(other.Params.Arguments) > 0 {
			require.True(t, reflect.DeepEqual(other.Params.Arguments, arguments), "%s\n%s", body, c.arguments)
		}
	})
}
