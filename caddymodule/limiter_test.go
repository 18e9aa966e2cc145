package caddymodule

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// A gateway that serves only assistants, or nobody at night, would say that Redis responds.
func TestOutageOfRedisIsNoticedWithoutRequests(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a := &App{Redis: &RedisConfig{URLs: []string{server.URL()}}}
	t.Cleanup(func() { require.NoError(t, a.Cleanup()) })
	require.NoError(t, a.OpenRedis())
	require.NoError(t, a.acquireLimiter())
	isDown := func() bool { return a.limiter.down() != nil }
	require.False(t, isDown())
	require.NoError(t, server.Kill())
	require.Eventually(t, isDown, time.Minute, 10*time.Millisecond)
	require.NoError(t, server.Restart())
	require.Eventually(t, func() bool { return !isDown() }, time.Minute, 10*time.Millisecond)
}

func TestMaxLocalWindowsLimitsWhatAnOutageRemembers(t *testing.T) {
	t.Parallel()
	for maximum, evicts := range map[int]bool{0: false, 1: true} {
		t.Run(fmt.Sprint("max_local_windows ", maximum), func(t *testing.T) {
			t.Parallel()
			a := &App{
				Redis:  &RedisConfig{URLs: []string{"redis://127.0.0.1:1"}}, // refuses connections
				Limits: LimitsConfig{MaxLocalWindows: maximum},
			}
			t.Cleanup(func() { require.NoError(t, a.Cleanup()) })
			require.NoError(t, a.OpenRedis())
			require.NoError(t, a.acquireLimiter())
			allow := func() (allowed int) {
				for i := range 200 {
					group, counters := ratelimit.ForKey(fmt.Sprint("key ", i), ratelimit.KeyLimit(1))
					res, err := a.limiter.Allow(t.Context(), group, counters...)
					require.NoError(t, err)
					if res.Allowed {
						allowed++
					}
				}
				return allowed
			}
			assert.Equal(t, 200, allow())
			assert.Equal(t, evicts, allow() > 0, "a second request of a key is allowed if its window was evicted")
		})
	}
}
