package oauth_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
	"github.com/gatehouse-gateway/gatehouse/internal/test/accounttest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/connecttest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/oauthtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

const issuer = "https://gateway.example.com"

// shared is the Redis of all tests that neither stop it nor count its keys. Each test has its own prefix.
var shared *redistest.Server

func TestMain(m *testing.M) { redistest.Main(m, &shared) }

// patience limits each wait.
const patience = time.Minute

// clock is the clock of a Redis, which a test can advance.
type clock struct {
	t      testing.TB
	server *redistest.Server
	offset time.Duration
}

func newClock(t testing.TB) *clock {
	t.Helper()
	return &clock{t: t, server: redistest.Start(t, redistest.WithClock())}
}

func (c *clock) Add(d time.Duration) {
	c.t.Helper()
	c.offset += d
	require.NoError(c.t, c.server.StepClock(c.offset))
}

// Until returns the time until at by this clock.
func (c *clock) Until(at time.Time) time.Duration { return time.Until(at) - c.offset }

// newAccounts returns an accounts service with owners of "biz-1" and "biz-2".
func newAccounts() *accounttest.Service {
	colleague, rival := oauthtest.Owner(), oauthtest.Owner()
	colleague.ID = "acc-2"
	rival.ID, rival.BusinessID = "acc-3", "biz-2"
	return accounttest.New(oauthtest.Owner(), colleague, rival)
}

// prefixOf returns a prefix that no other test has.
func prefixOf(t testing.TB) string {
	t.Helper()
	return strings.NewReplacer("{", "", "}", "").Replace(t.Name()) + fmt.Sprint(time.Now().UnixNano()) + ":"
}

func clientOf(t testing.TB, o *redis.UniversalOptions) redis.UniversalClient {
	t.Helper()
	o.ContextTimeoutEnabled = true
	client := redis.NewUniversalClient(o)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// newServer returns a server on the shared Redis.
func newServer(t testing.TB, change ...func(*oauth.Options)) *oauth.Server {
	t.Helper()
	o := oauth.Options{Issuer: issuer, Prefix: prefixOf(t), Areas: connecttest.Areas(t)}
	o.SetTimeout(patience)
	for _, c := range change {
		c(&o)
	}
	if o.Redis == nil {
		o.Redis = clientOf(t, shared.Options())
	}
	if o.Accounts == nil {
		o.Accounts = newAccounts()
	}
	if o.Audit == nil {
		o.Audit = newLog(t, o.Redis, o.Prefix)
	}
	s, err := oauth.New(o)
	require.NoError(t, err)
	return s
}

func newLog(t testing.TB, client redis.UniversalClient, prefix string) *audit.Log {
	t.Helper()
	log, err := audit.New(audit.Options{Redis: client, Prefix: prefix, Log: zap.NewNop()})
	require.NoError(t, err)
	return log
}

func withClock(c *clock) func(*oauth.Options) {
	return func(o *oauth.Options) { o.Redis = clientOf(c.t, c.server.Options()) }
}

// recorded returns the entries for the connections of "biz-1", oldest first, as "action/outcome: detail" without "connection."
// and without an outcome of ok.
func recorded(t testing.TB, s *oauth.Server) []string {
	t.Helper()
	var all []string
	for _, e := range entries(t, s) {
		text := strings.TrimPrefix(e.Action, "connection.")
		if e.Outcome != audit.OutcomeOK {
			text += "/" + e.Outcome
		}
		if e.Action == audit.ConnectionRevoked && e.Detail != "" {
			text += ": " + e.Detail
		}
		all = append(all, text)
	}
	return all
}

// entries returns the audit log of "biz-1", oldest first.
func entries(t testing.TB, s *oauth.Server) []audit.Entry {
	t.Helper()
	list, _, err := s.Audit().List(t.Context(), "biz-1", "", 100)
	require.NoError(t, err)
	slices.Reverse(list)
	return list
}

// The entries of connections that no owner ended.
const (
	replayed     = "revoked: The authorization code was reused"
	reused       = "revoked: A rotated refresh token was reused"
	revokedByApp = "revoked: Revoked by the app"
	unknown      = "revoked: The approving account no longer exists or may not sign in"
	moved        = "revoked: The approving account no longer belongs to the business"
	notAnOwner   = "revoked: The approving account is no longer an owner of the business"
)

func scopes(t testing.TB, s string) scope.Set {
	t.Helper()
	set, err := connecttest.Areas(t).Parse(s)
	require.NoError(t, err)
	return set
}

// grants returns the connections of "biz-1".
func grants(t testing.TB, s *oauth.Server) []oauth.Grant {
	t.Helper()
	list, err := s.Grants(context.Background(), "biz-1")
	require.NoError(t, err)
	return list
}

// authenticate returns the connection of an access token, which must be valid.
func authenticate(t testing.TB, s *oauth.Server, access string) oauth.Grant {
	t.Helper()
	grant, err := s.Authenticate(context.Background(), access)
	require.NoError(t, err)
	return grant
}

// valid reports whether an access token is valid.
func valid(t testing.TB, s *oauth.Server, access string) bool {
	t.Helper()
	_, err := s.Authenticate(context.Background(), access)
	if err != nil {
		require.ErrorIs(t, err, oauth.ErrInvalidToken)
	}
	return err == nil
}

// call sends a request with an access token to a protected resource, which responds with 404.
func call(s *oauth.Server, access string) *httptest.ResponseRecorder {
	return send(s.Protect(http.NotFoundHandler()), http.MethodPost, "/mcp", "", "Authorization: Bearer "+access)
}

// send sends a request with headers such as "Accept: text/html".
func send(h http.Handler, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// Content types as headers.
const (
	isForm = "Content-Type: application/x-www-form-urlencoded"
	isJSON = "Content-Type: application/json; charset=utf-8"
)

func postRegistration(c *oauthtest.Client, body string) *httptest.ResponseRecorder {
	return send(c.Handler, http.MethodPost, "/oauth/register", body, isJSON)
}

func clientWithID(t testing.TB, s *oauth.Server, id string) *oauthtest.Client {
	t.Helper()
	return &oauthtest.Client{TB: t, Server: s, Handler: s.Handler(), ID: id}
}

// register registers a client with the metadata.
func register(t testing.TB, s *oauth.Server, metadata string) *oauthtest.Client {
	t.Helper()
	c := clientWithID(t, s, "")
	w := postRegistration(c, metadata)
	require.Equal(t, http.StatusCreated, w.Code, "%s", w.Body)
	var registered struct {
		ClientID string `json:"client_id"`
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &registered))
	c.ID = registered.ClientID
	return c
}

// pending returns the request, which must be pending.
func pending(t testing.TB, s *oauth.Server, id string) oauth.Request {
	t.Helper()
	request, err := s.Pending(context.Background(), id)
	require.NoError(t, err)
	return request
}

// oauthError returns the status and the error code of a response, such as "400 invalid_request".
func oauthError(t testing.TB, w *httptest.ResponseRecorder) string {
	t.Helper()
	var body struct{ Error string }
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body), "%s", w.Body)
	return fmt.Sprint(w.Code, " ", body.Error)
}

// location returns the target of a redirect.
func location(t testing.TB, w *httptest.ResponseRecorder) *url.URL {
	t.Helper()
	return parse(t, w.Header().Get("Location"))
}

func parse(t testing.TB, raw string) *url.URL {
	t.Helper()
	u, err := url.Parse(raw)
	require.NoError(t, err)
	return u
}

func challenge() string {
	_, c := oauthtest.PKCE()
	return c
}

func limit(n int, period time.Duration) redis_rate.Limit {
	return redis_rate.Limit{Rate: n, Burst: n, Period: period}
}

// unlimited raises all rate limits.
func unlimited(o *oauth.Options) {
	l := o.Limits()
	for _, each := range []*redis_rate.Limit{
		&l.Registrations, &l.AllRegistrations, &l.PageRegistrations, &l.Authorizations, &l.AllAuthorizations, &l.Fetches, &l.AllFetches,
	} {
		*each = limit(1<<20, time.Minute)
	}
}
