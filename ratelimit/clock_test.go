package ratelimit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/redistest"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// TestRedissClockIsSteppedByTenMinutesBothWays: back, nobody gains anything and nobody is kept waiting for as long as the
// step; ahead, everybody's window is over, which is worth one more limit, once.
func TestRedissClockIsSteppedByTenMinutesBothWays(t *testing.T) {
	t.Parallel()
	const step, window, requests = 10 * time.Minute, 5 * time.Minute, 20
	for _, algorithm := range []ratelimit.Algorithm{ratelimit.Exact, ratelimit.GCRA} {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, redistest.WithClock())
			l := limit(requests, window)
			// of how many more than the limit; the gateway has just started and remembers nothing
			admitted := func(key string, n int) int {
				t.Helper()
				f := newFleet(t, s.Options(), ratelimit.Options{Algorithm: algorithm, Timeout: patience})
				allowed := 0
				for range n {
					r := take(t, f, key, l)
					require.NotEqual(t, ratelimit.ByLocal, r.By)
					require.LessOrEqual(t, r.States[0].Reset, window)
					if r.Allowed {
						allowed++
						continue
					}
					require.LessOrEqual(t, r.RetryAfter, window, "nobody waits for the clock to be right again")
					break
				}
				return allowed
			}
			// gcra gives a unit back every 15 s
			slack := 0
			if algorithm == ratelimit.GCRA {
				slack = 2
			}
			require.InDelta(t, requests, admitted("full", 2*requests), float64(slack))
			require.Equal(t, requests/2, admitted("half", requests/2))
			for _, offset := range []time.Duration{-step, -2 * step} {
				require.NoError(t, s.StepClock(offset))
				require.LessOrEqual(t, admitted("full", 2*requests), slack)
			}
			require.LessOrEqual(t, admitted("half", 2*requests), requests/2+slack)

			require.NoError(t, s.StepClock(step))
			require.InDelta(t, requests, admitted("full", 2*requests), float64(slack))
			require.NoError(t, s.StepClock(0))
			require.LessOrEqual(t, admitted("full", 2*requests), slack)
		})
	}
}
