package mcp_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/redis/go-redis/v9"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/connect/mcp"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
	"github.com/gatehouse-gateway/gatehouse/internal/demo" //nolint:depguard // the service that the tools are for
	"github.com/gatehouse-gateway/gatehouse/internal/test/accounttest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/calltest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/connecttest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/leaktest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/netfault"
)

// The newest revision of the protocol, and one before it.
const (
	modern = "2026-07-28"
	legacy = "2025-11-25"
)

// shared is the data service of most tests, each of which uses records of its own.
var shared *demo.Service

// silent discards go-redis's log, which reports each connection that a test closes.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	redis.SetLogger(silent{})
	var err error
	shared, err = demo.Open(context.Background(), demo.Memory, demo.Options{Pace: 20 * time.Millisecond})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := shared.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(leaktest.Check(code))
}

// setup is a server with its dependencies.
type setup struct {
	t        testing.TB
	server   *mcp.Server
	url      string
	audit    *audit.Log
	accounts *accounttest.Service
	redis    *miniredis.Miniredis
	owner    demo.Account // of the business that the connection "bearer" belongs to
	other    demo.Account // an owner of another business

	upstream *upstream
	lost     *netfault.Handler // in front of the data service

	mu       sync.Mutex
	grants   map[string]oauth.Grant // by token
	logs     []*requestlog.Entry    // of all requests
	requests []context.Context      // of all requests
}

// upstream is the transport to the data service. It records requests and can be replaced.
type upstream struct {
	mu      sync.Mutex
	seen    []*http.Request
	instead func(*http.Request) (*http.Response, error) // if it returns nil and nil, the request is sent
}

func (u *upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	u.mu.Lock()
	u.seen = append(u.seen, r)
	instead := u.instead
	u.mu.Unlock()
	if instead != nil {
		if res, err := instead(r); res != nil || err != nil {
			return res, err
		}
	}
	return http.DefaultTransport.RoundTrip(r)
}

func (u *upstream) breakWith(f func(*http.Request) (*http.Response, error)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.instead = f
}

// count returns how many requests had the method and a path that contains part.
func (u *upstream) count(method, part string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := 0
	for _, r := range u.seen {
		if r.Method == method && strings.Contains(r.URL.Path, part) {
			n++
		}
	}
	return n
}

func response(status int, contentType, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(strings.NewReader(body)),
	}
}

// respond makes the data service respond to everything with the body, with connecttest.Business replaced by the owner's business.
func (s *setup) respond(status int, contentType, body string) {
	s.upstream.breakWith(func(*http.Request) (*http.Response, error) {
		return response(status, contentType, strings.ReplaceAll(body, connecttest.Business, s.owner.BusinessID)), nil
	})
}

func owners(t testing.TB) (first, second demo.Account) {
	t.Helper()
	var found []demo.Account
	for _, a := range demo.Accounts() {
		if a.Role == "owner" {
			found = append(found, a)
		}
	}
	require.GreaterOrEqual(t, len(found), 2)
	return found[0], found[1]
}

// newSetup starts a server for a data service.
func newSetup(t testing.TB, service *demo.Service, change ...func(*mcp.Options)) *setup {
	t.Helper()
	s := &setup{
		t: t, accounts: accounttest.New(), redis: miniredis.RunT(t),
		upstream: &upstream{}, grants: map[string]oauth.Grant{},
	}
	s.owner, s.other = owners(t)
	for _, a := range demo.Accounts() {
		s.accounts.Put(account.Account{ID: a.ID, Email: a.Email, Name: a.Name, Role: account.Role(a.Role), Business: account.Business{BusinessID: a.BusinessID}})
	}
	s.lost = netfault.NewHandler(service.Handler())
	backend := httptest.NewServer(s.lost)
	t.Cleanup(backend.Close)
	client, err := data.New(data.Options{Host: backend.Listener.Addr().String(), Do: calltest.Over(s.upstream), Log: zap.NewNop()})
	require.NoError(t, err)
	rdb := patient(t, &redis.Options{Addr: s.redis.Addr()})

	log, err := audit.New(audit.Options{Redis: rdb, Log: zap.NewNop()})
	require.NoError(t, err)

	var handler http.Handler
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	t.Cleanup(front.Close)
	s.url = front.URL + "/mcp"
	areas := connecttest.Areas(t)
	authorization, err := oauth.New(oauth.Options{Issuer: front.URL, Redis: rdb, Accounts: s.accounts, Audit: log, Areas: areas})
	require.NoError(t, err)
	o := mcp.Options{
		Origin: front.URL, Data: client, Audit: log, InsufficientScope: authorization.InsufficientScope, Log: zap.NewNop(),
		Redis: rdb, Version: "test", Definition: connecttest.Definition(t), Areas: areas,
	}
	for _, f := range change {
		f(&o)
	}
	s.audit = o.Audit
	s.server, err = mcp.New(o)
	require.NoError(t, err)
	s.server.SetRate(100_000)
	handler = s.server.Guard(s.protect(s.server.Handler()))
	s.allow("bearer", s.owner, "mcp:use")
	return s
}

// entries returns the audit log of the owner's business, oldest first.
func (s *setup) entries() []audit.Entry {
	s.t.Helper()
	entries, next, err := s.audit.List(context.Background(), s.owner.BusinessID, "", 100)
	require.NoError(s.t, err)
	require.Empty(s.t, next)
	slices.Reverse(entries)
	return entries
}

// patient returns a Redis client without the server's deadline, which a busy machine would exceed, and without retries.
func patient(t testing.TB, o *redis.Options) *redis.Client {
	t.Helper()
	o.ReadTimeout, o.WriteTimeout, o.DialTimeout, o.PoolTimeout = patience, patience, patience, patience
	o.MaxRetries, o.DialerRetries = -1, 1
	client := redis.NewClient(o)
	client.AddHook(undated{})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// undated removes the deadlines of commands, but not their cancellation.
type undated struct{}

func (undated) DialHook(next redis.DialHook) redis.DialHook { return next }

func (undated) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := ctx.Err(); errors.Is(err, context.Canceled) {
			cmd.SetErr(err)
			return err
		}
		return next(context.WithoutCancel(ctx), cmd)
	}
}

func (undated) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := ctx.Err(); errors.Is(err, context.Canceled) {
			return err
		}
		return next(context.WithoutCancel(ctx), cmds)
	}
}

// protect stands in for the authorization server.
func (s *setup) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		g, ok := s.grants[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
		s.mu.Unlock()
		if !ok {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		ctx, log := requestlog.With(r.Context(), rand.Text())
		s.mu.Lock()
		s.logs = append(s.logs, log)
		s.requests = append(s.requests, ctx)
		s.mu.Unlock()
		a, err := s.accounts.Account(ctx, g.AccountID)
		next.ServeHTTP(w, r.WithContext(oauth.WithAuthorization(ctx, g, a, err)))
	})
}

// logged returns the log entry of the i-th request, from 0.
func (s *setup) logged(i int) requestlog.Fields {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i >= len(s.logs) {
		return requestlog.Fields{}
	}
	return s.logs[i].Fields()
}

// allow adds a connection.
func (s *setup) allow(token string, by demo.Account, scopes string) {
	set, err := connecttest.Areas(s.t).Parse(scopes)
	require.NoError(s.t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grants[token] = oauth.Grant{
		ID: "grant-" + token, ClientName: "Test client", AccountID: by.ID, BusinessID: by.BusinessID, Scopes: set,
	}
}

// bearer adds a token to requests.
type bearer struct {
	token string
	edit  func(*http.Request)
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	if b.edit != nil {
		b.edit(r)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// connect returns a session of the SDK's client.
func (s *setup) connect(revision, token string, o *sdk.ClientOptions) *sdk.ClientSession {
	s.t.Helper()
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, o)
	session, err := client.Connect(s.t.Context(), &sdk.StreamableClientTransport{
		Endpoint: s.url, HTTPClient: &http.Client{Transport: bearer{token: token}}, MaxRetries: -1,
		DisableStandaloneSSE: true,
	}, &sdk.ClientSessionOptions{ProtocolVersion: revision})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = session.Close() })
	return session
}

type object = map[string]any

// call calls a tool, which must succeed, and returns the structured content.
func call(t *testing.T, session *sdk.ClientSession, name string, arguments object) object {
	t.Helper()
	res, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: arguments})
	require.NoError(t, err)
	require.False(t, res.IsError, "%s: %s", name, textOf(res))
	content, ok := res.StructuredContent.(object)
	require.True(t, ok, "%s returned %T", name, res.StructuredContent)
	requireDeclared(t, name, content)
	return content
}

// outputSchemas are the compiled output schemas of the tools, by name.
var outputSchemas sync.Map

// requireDeclared requires that a result has the tool's output schema. Clients reject other ones.
func requireDeclared(t *testing.T, name string, content object) {
	t.Helper()
	compiled, ok := outputSchemas.Load(name)
	if !ok {
		all, err := mcp.OutputSchemas(connecttest.Definition(t))
		require.NoError(t, err)
		compiled, _ = outputSchemas.LoadOrStore(name, compileSchema(t, name, all[name]))
	}
	require.NoError(t, compiled.(*jsonschema.Schema).Validate(content), "%s: %v", name, content)
}

func compileSchema(t *testing.T, name string, schema any) *jsonschema.Schema {
	t.Helper()
	encoded, err := json.Marshal(schema)
	require.NoError(t, err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(encoded))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource(name, doc))
	compiled, err := compiler.Compile(name)
	require.NoError(t, err)
	return compiled
}

// fails calls a tool, which must return an error that contains the parts, and returns the text of the error.
func fails(t *testing.T, session *sdk.ClientSession, name string, arguments object, parts ...string) string {
	t.Helper()
	res, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: arguments})
	require.NoError(t, err)
	require.True(t, res.IsError, "%s did not fail: %s", name, textOf(res))
	require.Nil(t, res.StructuredContent)
	for _, part := range parts {
		require.Contains(t, textOf(res), part, "%s %v", name, arguments)
	}
	return textOf(res)
}

// confirmed calls a tool twice, as an assistant does whose client cannot ask, and returns the structured content of the second result.
func confirmed(t *testing.T, session *sdk.ClientSession, name string, arguments object) object {
	t.Helper()
	arguments = maps.Clone(arguments)
	arguments["confirm"] = tokenIn(t, fails(t, session, name, arguments, "CONFIRMATION_NEEDED", "Nothing was changed"))
	return call(t, session, name, arguments)
}

var confirmToken = regexp.MustCompile(`"confirm": "([^"]+)"`)

// tokenIn returns the token of an error that asks for a confirmation.
func tokenIn(t *testing.T, text string) string {
	t.Helper()
	found := confirmToken.FindStringSubmatch(strings.ReplaceAll(text, `\"`, `"`))
	require.Len(t, found, 2, text)
	return found[1]
}

func textOf(res *sdk.CallToolResult) string {
	var b strings.Builder
	for _, c := range res.Content {
		if text, ok := c.(*sdk.TextContent); ok {
			b.WriteString(text.Text)
		}
	}
	return b.String()
}

// first returns the first record of a list.
func first(t *testing.T, content object, name string) object {
	t.Helper()
	items, ok := content[name].([]any)
	require.True(t, ok)
	require.NotEmpty(t, items, "no %s", name)
	return items[0].(object)
}

// reply is an HTTP response.
type reply struct {
	StatusCode int
	Header     http.Header
	Text       string
}

// post sends a message unchanged.
func (s *setup) post(token, revision, body string, edit ...func(*http.Request)) reply {
	s.t.Helper()
	b := bearer{token: token}
	if len(edit) > 0 {
		b.edit = edit[0]
	}
	res, err := (&http.Client{Transport: b}).Do(s.message(s.t.Context(), revision, body))
	require.NoError(s.t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	require.NoError(s.t, err)
	return reply{StatusCode: res.StatusCode, Header: res.Header, Text: string(text)}
}

// message returns a request with the body.
func (s *setup) message(ctx context.Context, revision, body string) *http.Request {
	s.t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader(body))
	require.NoError(s.t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Mcp-Protocol-Version", revision)
	if revision == modern {
		var m struct {
			Method string
			Params struct{ Name string }
		}
		_ = json.Unmarshal([]byte(body), &m)
		r.Header.Set("Mcp-Method", m.Method)
		if m.Params.Name != "" {
			r.Header.Set("Mcp-Name", m.Params.Name)
		}
	}
	return r
}

// callMessage returns a tools/call of a revision.
func callMessage(revision, name string, arguments object) string {
	params := object{"name": name, "arguments": arguments}
	if revision == modern {
		params["_meta"] = object{
			"io.modelcontextprotocol/protocolVersion":    modern,
			"io.modelcontextprotocol/clientInfo":         object{"name": "test", "version": "1"},
			"io.modelcontextprotocol/clientCapabilities": object{},
		}
	}
	body, err := json.Marshal(object{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params})
	if err != nil {
		panic(err)
	}
	return string(body)
}

var errBroken = errors.New("broken on purpose")

func eachRevision(t *testing.T, test func(t *testing.T, revision string)) {
	t.Helper()
	for _, revision := range []string{modern, legacy} {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			test(t, revision)
		})
	}
}

// create creates a contact and returns its id.
func create(t *testing.T, s *setup, name string) any {
	t.Helper()
	return call(t, s.connect(modern, "bearer", nil), "contacts_create", object{"first_name": name})["contact"].(object)["id"]
}

// found returns how many contacts a search finds.
func found(t *testing.T, s *setup, query string) int {
	t.Helper()
	return len(call(t, s.connect(modern, "bearer", nil), "contacts_search", object{"query": query})["contacts"].([]any))
}

// filledDatabase returns the file of a new database. Filling one takes seconds under the race detector.
var filledDatabase = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "mcp")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "demo.db")
	service, err := demo.Open(context.Background(), path, demo.Options{})
	if err != nil {
		return nil, err
	}
	if err := service.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

func fresh(t *testing.T, o demo.Options) *demo.Service {
	t.Helper()
	path := filepath.Join(t.TempDir(), "demo.db")
	filled, err := filledDatabase()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, filled, 0o600))
	service, err := demo.Open(t.Context(), path, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, service.Close()) })
	return service
}

const (
	patience = time.Minute
	tick     = 10 * time.Millisecond
)
