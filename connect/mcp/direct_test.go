package mcp

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
)

// Ordinary calls of both revisions that tests change.
const (
	ordinary = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"contacts_search","arguments":{"limit":2}}}`
	inNewest = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"contacts_search","arguments":{"limit":2},"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"a","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}`
)

func ordinaryRequest(tb testing.TB, revision string) *http.Request {
	tb.Helper()
	r := httptest.NewRequest(http.MethodPost, "/mcp", http.NoBody)
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", headerProtocol: revision,
		headerMethod: methodCall, headerName: "contacts_search",
	} {
		r.Header.Set(name, value)
	}
	return r
}

// direct tells whether a server with all the tools answers a request itself.
func direct(t *testing.T, r *http.Request, body string) bool {
	t.Helper()
	s := &Server{tools: map[string]*tool{}}
	for _, tool := range allTools() {
		s.tools[tool.name] = tool
	}
	return s.direct(r, []byte(body)) != nil
}

func TestAnOrdinaryCallIsAnsweredWithoutTheSDK(t *testing.T) {
	t.Parallel()
	require.True(t, direct(t, ordinaryRequest(t, "2025-06-18"), ordinary))
	require.True(t, direct(t, ordinaryRequest(t, "2025-11-25"), ordinary))
	require.True(t, direct(t, ordinaryRequest(t, "2026-07-28"), inNewest))
	for _, change := range []struct{ from, to string }{
		{`"id":7`, `"id":"a string"`},
		{`"id":7`, `"id":0`},
		{`,"arguments":{"limit":2}`, ``},
		{`,"arguments":{"limit":2}`, `,"arguments":{"limit":"not what the tool takes","and":["more"]}`},
		{`{"limit":2}`, `{"limit":2},"_meta":{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}`},
		{`{"limit":2}`, `{"limit":2},"_meta":{"com.example/x":[1,2,{"progressToken":1}]}`},
	} {
		changed := strings.Replace(ordinary, change.from, change.to, 1)
		require.NotEqual(t, ordinary, changed)
		require.True(t, direct(t, ordinaryRequest(t, "2025-11-25"), changed), changed)
	}
	for _, tool := range []string{"contacts_create", "contacts_update", "objects_search"} {
		changed := strings.Replace(ordinary, "contacts_search", tool, 1)
		require.True(t, direct(t, ordinaryRequest(t, "2025-11-25"), changed), changed)
	}
	for name, value := range map[string]string{
		"Accept":       "text/event-stream;q=0.5, text/event-stream,application/json",
		"Content-Type": "application/json; charset=utf-8",
	} {
		r := ordinaryRequest(t, "2026-07-28")
		r.Header.Set(name, value)
		require.True(t, direct(t, r, inNewest), value)
	}
}

// Whatever the protocol could have something to say about is the SDK's to judge.
func TestWhatIsNotOrdinaryIsLeftToTheSDK(t *testing.T) {
	t.Parallel()
	for _, revision := range []struct{ name, body string }{{"2025-11-25", ordinary}, {"2026-07-28", inNewest}} {
		for _, change := range []struct{ from, to string }{
			{`"2.0"`, `"1.0"`},
			{`"jsonrpc":"2.0",`, ``},
			{`"id":7,`, ``},
			{`"id":7`, `"id":null`},
			{`"id":7`, `"id":7.0`},
			{`"id":7`, `"id":-7`},
			{`"id":7`, `"id":7e2`},
			{`"id":7`, `"id":1234567890123456789`},
			{`"id":7`, `"id":[7]`},
			{`"id":7`, `"id":true`},
			{`"id":7`, `"id":7,"id":8`},
			{`"id":7`, `"id":7,"ID":8`},
			{`"id":7`, `"id":"` + strings.Repeat("x", 300) + `"`},
			{`"id":7`, `"id":7,"result":{}`},
			{`tools/call`, `tools/list`},
			{`tools/call`, `Tools/call`},
			{`contacts_search`, `contacts_delete`},
			{`contacts_search`, `receptionist_faq_delete`},
			{`contacts_search`, `automations_run`},
			{`contacts_search`, `no_such_tool`},
			{`"name":"contacts_search"`, `"name":"contacts_search","name":"contacts_search"`},
			{`"name":"contacts_search"`, `"name":"contacts_search","Name":"jobs_search"`},
			{`"name":"contacts_search"`, `"name":["contacts_search"]`},
			{`{"limit":2}`, `[{"limit":2}]`},
			{`{"limit":2}`, `null`},
			{`{"limit":2}`, `{"limit":2,"limit":3}`},
			{`{"limit":2}`, `{"limit":2},"task":{}`},
			{`{"limit":2}`, `{"limit":2},"inputResponses":{}`},
			{`{"limit":2}`, `{"limit":2},"requestState":"x"`},
			{`{"limit":2}`, "{\"limit\":\"\xff\"}"},
			{`"2.0"`, `"2.0"` + "\x00"},
			{`"limit":2}`, `"limit":2`},
		} {
			changed := strings.Replace(revision.body, change.from, change.to, 1)
			require.NotEqual(t, revision.body, changed)
			require.False(t, direct(t, ordinaryRequest(t, revision.name), changed), changed)
		}
		for _, body := range []string{"[" + revision.body + "]", revision.body + revision.body, "", "null", "7", `"x"`} {
			require.False(t, direct(t, ordinaryRequest(t, revision.name), body), body)
		}
		for _, change := range []func(r *http.Request){
			func(r *http.Request) { r.Method = http.MethodGet },
			func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") },
			func(r *http.Request) { r.Header.Del("Content-Type") },
			func(r *http.Request) { r.Header.Add("Content-Type", "application/json") },
			func(r *http.Request) { r.Header.Set("Accept", "application/json") },
			func(r *http.Request) { r.Header.Set("Accept", "text/event-stream") },
			func(r *http.Request) { r.Header.Set("Accept", "*/*") },
			func(r *http.Request) { r.Header.Set("Accept", "application/ json, text/event-stream") },
			func(r *http.Request) { r.Header.Del("Accept") },
			func(r *http.Request) { r.Header.Set("Last-Event-Id", "1") },
			func(r *http.Request) { r.Header.Del(headerProtocol) },
			func(r *http.Request) { r.Header.Set(headerProtocol, "2099-01-01") },
			func(r *http.Request) { r.Header.Set(headerProtocol, "2025-03-26") },
			func(r *http.Request) { r.Header.Add(headerProtocol, revision.name) },
		} {
			r := ordinaryRequest(t, revision.name)
			change(r)
			require.False(t, direct(t, r, revision.body), "%v", r.Header)
		}
	}
	for _, meta := range []string{
		`{"progressToken":"p"}`, `{"progressToken":0}`, `{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`,
		`{"io.modelcontextprotocol/related-task":{"taskId":"x"}}`, `[]`, `"x"`, `{"a":1e999}`, `{"a":` + strings.Repeat(`[`, 1000) +
			strings.Repeat(`]`, 1000) + `}`,
	} {
		changed := strings.Replace(ordinary, `{"limit":2}`, `{"limit":2},"_meta":`+meta, 1)
		require.False(t, direct(t, ordinaryRequest(t, "2025-11-25"), changed), changed)
	}
	// of the newest revision
	require.False(t, direct(t, ordinaryRequest(t, "2026-07-28"), ordinary))
	for _, change := range []struct{ from, to string }{
		{`"2026-07-28"`, `"2025-11-25"`},
		{`"2026-07-28"`, `7`},
		{`"io.modelcontextprotocol/protocolVersion":"2026-07-28",`, ``},
		{`"io.modelcontextprotocol/clientCapabilities"`, `"io.modelcontextprotocol/clientcapabilities"`},
		{`{"elicitation":{}}`, `null`},
		{`{"elicitation":{}}`, `["elicitation"]`},
		{`{"elicitation":{}}`, `{"elicitation":7}`},
		{`{"name":"a","version":"1"}`, `null`},
		{`{"name":"a","version":"1"}`, `{"name":7}`},
		{`"_meta":{`, `"_meta":{"io.modelcontextprotocol/logLevel":"debug",`},
		{`"_meta":{`, `"_meta":{"progressToken":"p",`},
	} {
		changed := strings.Replace(inNewest, change.from, change.to, 1)
		require.NotEqual(t, inNewest, changed)
		require.False(t, direct(t, ordinaryRequest(t, "2026-07-28"), changed), changed)
	}
	for _, change := range []func(h http.Header){
		func(h http.Header) { h.Del(headerMethod) },
		func(h http.Header) { h.Set(headerMethod, "tools/list") },
		func(h http.Header) { h.Add(headerMethod, methodCall) },
		func(h http.Header) { h.Del(headerName) },
		func(h http.Header) { h.Set(headerName, "jobs_search") },
		func(h http.Header) { h.Add(headerName, "contacts_search") },
	} {
		r := ordinaryRequest(t, "2026-07-28")
		change(r.Header)
		require.False(t, direct(t, r, inNewest), "%v", r.Header)
	}
}

// FuzzOrdinaryCalls: what is answered without the SDK is what the SDK would have taken for the same call.
func FuzzOrdinaryCalls(f *testing.F) {
	type seen struct{ name, arguments string }
	calls := make(chan seen, 1)
	server := sdk.NewServer(&sdk.Implementation{Name: "test"}, nil)
	s := &Server{tools: map[string]*tool{}}
	for _, t := range allTools() {
		s.tools[t.name] = t
		server.AddTool(t.declaration(), func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			calls <- seen{r.Params.Name, string(r.Params.Arguments)}
			return &sdk.CallToolResult{}, nil
		})
	}
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true, DisableLocalhostProtection: true,
	})
	for _, body := range []string{ordinary, strings.Replace(ordinary, "7", `"seven"`, 1), strings.Replace(ordinary, `{"limit":2}`, `{}`, 1)} {
		f.Add(body, "2025-11-25", "contacts_search", "application/json", "application/json, text/event-stream")
	}
	f.Add(inNewest, "2026-07-28", "contacts_search", "application/json; charset=utf-8", "text/event-stream,application/json")
	for _, meta := range []string{`{"a":1e999}`, `{"a":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`} {
		f.Add(strings.Replace(ordinary, `{"limit":2}`, `{},"_meta":`+meta, 1), "2025-11-25", "", "application/json",
			"application/json, text/event-stream")
	}
	f.Add(ordinary, "2025-11-25", "", "application/json", "application/ json, text/event-stream")
	f.Fuzz(func(t *testing.T, body, revision, name, contentType, accept string) {
		r := ordinaryRequest(t, revision)
		r.Header.Set(headerName, name)
		r.Header.Set("Content-Type", contentType)
		r.Header.Set("Accept", accept)
		d := s.direct(r, []byte(body))
		if d == nil {
			return
		}
		r.Body = io.NopCloser(strings.NewReader(body))
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
		select {
		case called := <-calls:
			require.Equal(t, seen{d.tool.name, string(d.request.Params.Arguments)}, called)
		default:
			require.Fail(t, "the SDK has not made the call", "%s", w.Body)
		}
		var answer struct {
			ID     any
			Result any
		}
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
		require.NotNil(t, answer.Result)
		var id any
		require.NoError(t, json.Unmarshal(d.id, &id))
		require.Equal(t, answer.ID, id)
	})
}

// unwritable is a value whose writing panics.
type unwritable struct{}

func (unwritable) MarshalJSON() ([]byte, error) { panic("nobody expects this") }

type always struct{}

func (always) Allow(context.Context, string) (time.Duration, error) { return 0, nil }

func (always) Account(_ context.Context, id string) (account.Account, error) {
	return account.Account{ID: id, BusinessID: "b", Role: account.RoleOwner}, nil
}

// carriedOut is the answer to an ordinary call of a tool that does run and answers with fields of any kind.
func carriedOut(t *testing.T, run func() (*outcome, error)) *httptest.ResponseRecorder {
	t.Helper()
	accounts, err := newAccounts(always{}, -1)
	require.NoError(t, err)
	made := &tool{
		name: "contacts_search", scope: scope.Read, in: object(), out: object(must("fields", node{"type", "object"})),
		run: func(context.Context, *call, json.RawMessage) (*outcome, error) { return run() },
	}
	require.NoError(t, made.prepare())
	s := &Server{
		o: Options{Limiter: always{}}, log: zap.NewNop(), now: time.Now, accounts: accounts,
		tools: map[string]*tool{made.name: made},
	}
	r := ordinaryRequest(t, "2025-11-25")
	d := s.direct(r, []byte(strings.Replace(ordinary, `{"limit":2}`, `{}`, 1)))
	require.NotNil(t, d)
	w := httptest.NewRecorder()
	s.answer(w, r, grantOf{Grant: oauth.Grant{ID: "g", BusinessID: "b", AccountID: "a", Scopes: scope.Everything()}}, d)
	return w
}

func TestAPanicInAnOrdinaryCallIsAnswered(t *testing.T) {
	t.Parallel()
	w := carriedOut(t, func() (*outcome, error) { return &outcome{value: unwritable{}}, nil })
	require.JSONEq(t, `{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"internal error"}}`, w.Body.String())
}

func TestNamesThatOnlyWhatIsHiddenTellsApartAreAnswered(t *testing.T) {
	t.Parallel()
	w := carriedOut(t, func() (*outcome, error) {
		return &outcome{value: map[string]any{"fields": map[string]any{"a": 1, "a\u200b": 1}}}, nil
	})
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), `"structuredContent":{"fields":{"a":1,"a":1}}`)
}
