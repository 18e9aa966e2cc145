package oauth_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
	"github.com/gatehouse-gateway/gatehouse/internal/leaktest"
	"github.com/gatehouse-gateway/gatehouse/internal/redistest"
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

// A clock that tests set forward.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Now()} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
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
	s, err := oauth.New(o)
	require.NoError(t, err)
	return s
}

func withClock(c *clock) func(*oauth.Options) { return func(o *oauth.Options) { o.Now = c.Now } }

// events collects what the server notifies of.
type events struct {
	mu   sync.Mutex
	list []oauth.Event
}

func (e *events) option(o *oauth.Options) {
	o.Notify = func(_ context.Context, event oauth.Event) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.list = append(e.list, event)
	}
}

func (e *events) actions() []oauth.Action {
	e.mu.Lock()
	defer e.mu.Unlock()
	var actions []oauth.Action
	for _, event := range e.list {
		actions = append(actions, event.Action)
	}
	return actions
}

func scopes(t testing.TB, s string) scope.Set {
	t.Helper()
	set, err := scope.Parse(s)
	require.NoError(t, err)
	return set
}
