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

func TestLastRequestReleasesTheClientsOfAReplacedConfiguration(t *testing.T) {
	t.Parallel()
	a := &App{Redis: &RedisConfig{URLs: []string{"redis://127.0.0.1:1/7"}}, logger: zap.NewNop()} // refuses connections
	require.NoError(t, a.OpenRedis())
	open := func() bool {
		_, exists := resources.References(a.acquired[0])
		return exists
	}
	a.conns.Add(1)
	a.requests.Add(1)
	require.NoError(t, a.Cleanup())
	require.True(t, open())
	a.usedLess(&a.requests, 1)
	require.True(t, open())
	a.usedLess(&a.conns, 1)
	require.Eventually(t, func() bool { return !open() }, time.Minute, time.Millisecond)
	a.requests.Add(1) // of a connection that was not yet closed
	a.usedLess(&a.requests, 1)
}

// An event stream of another handler may be open for hours.
func TestConnectionsKeepTheClientsOfAReplacedConfigurationForAWhileOnly(t *testing.T) {
	t.Parallel()
	a := &App{Redis: &RedisConfig{URLs: []string{"redis://127.0.0.1:1/8"}}, logger: zap.NewNop()} // refuses connections
	require.NoError(t, a.OpenRedis())
	open := func() bool {
		_, exists := resources.References(a.acquired[0])
		return exists
	}
	a.conns.Add(1)
	a.requests.Add(1)
	require.NoError(t, a.Cleanup())
	a.late.Store(true)
	require.True(t, open(), "a request of ours is in progress")
	a.usedLess(&a.requests, 1)
	require.Eventually(t, func() bool { return !open() }, time.Minute, time.Millisecond)
	a.usedLess(&a.conns, 1)
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
