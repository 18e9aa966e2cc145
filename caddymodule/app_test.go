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
	a.users.Add(2)
	require.NoError(t, a.Cleanup())
	require.True(t, open())
	a.userEnded()
	require.True(t, open())
	a.userEnded()
	require.Eventually(t, func() bool { return !open() }, time.Minute, time.Millisecond)
	a.users.Add(1) // of a connection that was not yet closed
	a.userEnded()
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
