package ratelimit_test

import (
	"testing"
	"time"

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
