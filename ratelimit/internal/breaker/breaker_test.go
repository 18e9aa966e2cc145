package breaker_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/ratelimit/internal/breaker"
)

var errDown = errors.New("down")

func TestBreakerTransitions(t *testing.T) {
	t.Parallel()
	now := time.Unix(1, 0)
	b := breaker.New(3)
	require.Equal(t, breaker.Shared, b.State())
	require.NoError(t, b.Cause())
	for range 5 { // methods of other states change nothing
		b.ProbeDone(nil)
		b.SyncDone(errDown)
		assert.False(t, b.FlushDone(now, errDown))
		require.True(t, b.Failing())
		assert.False(t, b.FlushDone(now, errDown))
		assert.False(t, b.FlushDone(now, nil), "two consecutive failures are not three")
		assert.False(t, b.Failing())
	}
	require.False(t, b.FlushDone(now, errDown))
	require.False(t, b.FlushDone(now, errDown))
	require.True(t, b.FlushDone(now, errDown))
	require.Equal(t, breaker.Unavailable, b.State())
	require.ErrorIs(t, b.Cause(), errDown)
	require.False(t, b.FlushDone(now, errDown), "a flush that began before")
	require.False(t, b.FlushDone(now, nil))
	require.Equal(t, breaker.Unavailable, b.State())

	errLoading := errors.New("loading")
	b.ProbeDone(errLoading)
	require.Equal(t, breaker.Unavailable, b.State())
	require.ErrorIs(t, b.Cause(), errLoading)
	b.SyncDone(nil)
	require.Equal(t, breaker.Unavailable, b.State())
	b.ProbeDone(nil)
	require.Equal(t, breaker.Resyncing, b.State())
	require.Error(t, b.Cause(), "not shared before all requests are synced")
	b.SyncDone(errDown)
	require.Equal(t, breaker.Unavailable, b.State())
	b.ProbeDone(nil)
	b.SyncDone(nil)
	assert.Equal(t, breaker.Shared, b.State())
	assert.False(t, b.Failing())
	assert.False(t, b.FlushDone(now, errDown), "failures must be counted from 0 again")
}

func TestBreakerTripsOnFailureRatio(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		every int           // successful flushes after each failure
		pause time.Duration // between flushes
		want  bool
	}{
		"every other one":         {1, time.Millisecond, true},
		"one of three":            {2, time.Millisecond, false},
		"every other one, slowly": {1, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now, b, unavailable := time.Unix(1, 0), breaker.New(3), false
			for i := range 60 {
				now = now.Add(c.pause)
				err := errDown
				if i%(c.every+1) > 0 {
					err = nil
				}
				unavailable = b.FlushDone(now, err) || unavailable
			}
			require.Equal(t, c.want, unavailable)
		})
	}
}
