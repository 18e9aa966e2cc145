package ratelimit_test

import (
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// TestRedisClockStepsTenMinutesBothWays: a clock set back neither allows more requests nor denies them for longer than the
// window. A clock set forward ends the window, which allows at most one more limit, once.
func TestRedisClockStepsTenMinutesBothWays(t *testing.T) {
	t.Parallel()
	const step, window, requests = 10 * time.Minute, 5 * time.Minute, 20
	for _, algorithm := range algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, redistest.WithClock())
			l := limit(requests, window)
			// countAllowed sends n requests through a new limiter, which has no local windows, and returns how many were
			// allowed.
			countAllowed := func(key string, n int) int {
				t.Helper()
				f := newLimiter(t, s.Options(), ratelimit.Options{Algorithm: algorithm})
				defer func() { require.NoError(t, f.Close()) }() // or it would tell Redis again what it allowed when the step expires that
				allowed := 0
				for range n {
					r := allow(t, f, key, l)
					require.NotEqual(t, ratelimit.ByLocal, r.By)
					require.LessOrEqual(t, r.States[0].Reset, window)
					if r.Allowed {
						allowed++
						continue
					}
					require.LessOrEqual(t, r.RetryAfter, window, "a denial must not last until the clock has caught up")
					break
				}
				return allowed
			}
			// gcra refills one request every 15 s.
			slack := 0
			if algorithm == ratelimit.GCRA {
				slack = 2
			}
			require.InDelta(t, requests, countAllowed("full", 2*requests), float64(slack))
			require.Equal(t, requests/2, countAllowed("half", requests/2))
			for _, offset := range []time.Duration{-step, -2 * step} {
				require.NoError(t, s.StepClock(offset))
				assert.LessOrEqual(t, countAllowed("full", 2*requests), slack)
			}
			assert.LessOrEqual(t, countAllowed("half", 2*requests), requests/2+slack)

			require.NoError(t, s.StepClock(step))
			assert.InDelta(t, requests, countAllowed("full", 2*requests), float64(slack))
			require.NoError(t, s.StepClock(0))
			assert.LessOrEqual(t, countAllowed("full", 2*requests), slack)
		})
	}
}

// A write that Redis has accepted is not accepted again after its clock has stepped, nor by a replica with another clock, however
// long a gateway has kept the repetition back.
func TestNoClockMakesAWriteNewAgain(t *testing.T) {
	t.Parallel()
	const remembered = 11 * time.Minute
	signed := time.Now()
	l := limit(1_000_000, time.Minute)
	write := func(options *redis.UniversalOptions, mac, id byte) byte {
		t.Helper()
		f := newLimiter(t, options, ratelimit.Options{})
		defer func() { require.NoError(t, f.Close()) }()
		once := ratelimit.Once{MAC: [16]byte{mac}, ID: [ratelimit.IDSize]byte{id}, Until: signed.Add(remembered)}
		res, err := f.AllowOnce(t.Context(), "key", once, counter("key", l))
		require.NoError(t, err)
		require.True(t, res.Allowed)
		require.Equal(t, ratelimit.ByRedis, res.By)
		return res.Accepted[0]
	}
	s := redistest.Start(t, redistest.WithClock(), redistest.WithConfig("repl-diskless-sync-delay", "0"))
	replica := redistest.Start(t, redistest.WithClock())
	client := replica.Client(t)
	host, port, err := net.SplitHostPort(s.Addr)
	require.NoError(t, err)
	require.NoError(t, client.Do(t.Context(), "REPLICAOF", host, port).Err())
	require.EqualValues(t, 1, write(s.Options(), 1, 1))
	redistest.AwaitReplica(t, s, replica)
	require.NoError(t, client.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())

	for _, step := range []time.Duration{0, remembered - 2*time.Minute, -remembered, -time.Hour} {
		require.NoError(t, s.StepClock(step))
		assert.EqualValues(t, 1, write(s.Options(), 1, 2), "stepped by %v", step)
	}
	assert.EqualValues(t, 3, write(s.Options(), 2, 3), "a clock that is behind denies nothing")
	require.NoError(t, s.StepClock(remembered))
	assert.Zero(t, write(s.Options(), 1, 4), "its mark has expired")
	assert.Zero(t, write(s.Options(), 3, 5))

	require.NoError(t, replica.StepClock(remembered-2*time.Minute))
	assert.EqualValues(t, 1, write(replica.Options(), 1, 6))
	require.NoError(t, replica.StepClock(remembered))
	assert.Zero(t, write(replica.Options(), 1, 7))
}
