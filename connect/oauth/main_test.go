package oauth_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
	"github.com/gatehouse-gateway/gatehouse/internal/test/leaktest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/oauthtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

const issuer = "https://gateway.example.com"

// shared is one Redis for all tests that neither stop nor count what is in it: each has a prefix of its own.
var shared *redistest.Server

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "oauth")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if shared, err = redistest.Launch(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = shared.Kill() }()
	code := m.Run()
	_ = shared.Kill()
	return leaktest.Check(code)
}

// patience is how long tests wait for what comes by itself.
const patience = 30 * time.Second

// clock is the time of day of a Redis, which a test sets forward.
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

// Until is how long it is by this clock until a time.
func (c *clock) Until(at time.Time) time.Duration { return time.Until(at) - c.offset }

// accounts is an accounts service: owners of "biz-1" and "biz-2".
type accounts struct {
	mu   sync.Mutex
	all  map[string]account.Account
	down bool
}

func newAccounts() *accounts {
	a := &accounts{all: map[string]account.Account{}}
	for id, business := range map[string]string{"acc-1": "biz-1", "acc-2": "biz-1", "acc-3": "biz-2"} {
		owner := oauthtest.Owner()
		owner.ID, owner.BusinessID = id, business
		a.all[id] = owner
	}
	return a
}

func (a *accounts) Account(_ context.Context, id string) (account.Account, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down {
		return account.Account{}, fmt.Errorf("%w: made up", account.ErrUnavailable)
	}
	if found, ok := a.all[id]; ok {
		return found, nil
	}
	return account.Account{}, account.ErrUnknown
}

// change changes what is known.
func (a *accounts) change(apply func(all map[string]account.Account)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	apply(a.all)
}

func (a *accounts) setDown(down bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down = down
}

// prefixOf is a prefix that no other test has.
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

// newServer makes a server on the shared Redis.
func newServer(t testing.TB, change ...func(*oauth.Options)) *oauth.Server {
	t.Helper()
	o := oauth.Options{Issuer: issuer, Prefix: prefixOf(t), Timeout: 10 * time.Second}
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

// recorded is what the audit log says of the connections of "biz-1", the oldest first: the action without "connection.",
// and the outcome unless it is ok.
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

// entries is what the audit log has of "biz-1", the oldest first.
func entries(t testing.TB, s *oauth.Server) []audit.Entry {
	t.Helper()
	list, _, err := s.Audit().List(t.Context(), "biz-1", "", 100)
	require.NoError(t, err)
	slices.Reverse(list)
	return list
}

// What the audit log says of connections that ended by themselves.
const (
	replayed   = "revoked: Its authorization code was used twice"
	reused     = "revoked: An old refresh token of it was used"
	givenBack  = "revoked: The app has revoked it"
	unknown    = "revoked: The account that approved it does not exist any more or may not sign in"
	moved      = "revoked: The account that approved it does not belong to the business any more"
	notAnOwner = "revoked: The account that approved it is not an owner of the business any more"
)

func scopes(t testing.TB, s string) scope.Set {
	t.Helper()
	set, err := scope.Parse(s)
	require.NoError(t, err)
	return set
}
