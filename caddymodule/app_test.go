package caddymodule

import (
	"context"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// withRedis returns an app that has a Redis client, and whether that is open.
func withRedis(t *testing.T, url string) (a *App, open func() bool) {
	t.Helper()
	a = &App{Redis: &RedisConfig{URLs: []string{url}}, logger: zap.NewNop()}
	require.NoError(t, a.OpenRedis())
	return a, func() bool {
		_, exists := resources.References(a.acquired[0])
		return exists
	}
}

func TestLastRequestReleasesTheClientsOfAReplacedConfiguration(t *testing.T) {
	t.Parallel()
	a, open := withRedis(t, "redis://127.0.0.1:1/7") // refuses connections
	a.conns.Add(1)
	a.requests.Add(1)
	require.NoError(t, a.Cleanup())
	require.True(t, open())
	a.requestEnded()
	require.True(t, open())
	a.conns.Add(-1)
	a.releaseUnused()
	require.Eventually(t, func() bool { return !open() }, time.Minute, time.Millisecond)
	a.requests.Add(1) // of a connection that was not yet closed
	a.requestEnded()
}

// An event stream of another handler may be open for hours.
func TestConnectionsKeepTheClientsOfAReplacedConfigurationForAWhileOnly(t *testing.T) {
	t.Parallel()
	a, open := withRedis(t, "redis://127.0.0.1:1/8")
	a.conns.Add(1)
	a.requests.Add(1)
	require.NoError(t, a.Cleanup())
	a.late.Store(true)
	a.releaseUnused()
	require.True(t, open(), "a request of ours is in progress")
	a.requestEnded()
	require.Eventually(t, func() bool { return !open() }, time.Minute, time.Millisecond)
}

// Every reload would otherwise give each key its in_flight again, and large responses their memory.
func TestCallsInProgressCountAfterAReload(t *testing.T) {
	t.Parallel()
	provision := func(inFlight int) *App {
		ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
		a := &App{Limits: LimitsConfig{InFlight: inFlight}}
		t.Cleanup(func() {
			assert.NoError(t, a.Cleanup())
			cancel()
		})
		require.NoError(t, a.Provision(ctx))
		return a
	}
	before, after, changed := provision(1), provision(1), provision(2)
	require.NoError(t, before.shares.Begin(t.Context(), "key", time.Time{}))
	ctx, leave := context.WithCancel(t.Context())
	leave() // it would wait
	require.ErrorIs(t, after.shares.Begin(ctx, "key", time.Time{}), upstream.ErrTooManyCalls)
	require.NoError(t, changed.shares.Begin(ctx, "key", time.Time{}))
	before.shares.End("key")
	require.NoError(t, after.shares.Begin(ctx, "key", time.Time{}))
}
