package ratelimit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/ratelimit/internal/script"
)

func TestUnsyncedRequestsAreTracked(t *testing.T) {
	t.Parallel()
	var s syncState
	for range 5 {
		s.allowed()
	}
	require.EqualValues(t, 5, s.unsynced(0))
	s.confirm(3, 0)
	require.EqualValues(t, 2, s.unsynced(0))
	s.allowed()
	require.EqualValues(t, 3, s.unsynced(0))
	s.confirm(9, 0)
	require.Zero(t, s.unsynced(0), "Redis may have run a call whose reply was lost")

	require.EqualValues(t, 6, s.unsynced(1), "each of them may be lost")
	s.confirm(6, 0)
	require.EqualValues(t, 6, s.unsynced(1), "a reply of the earlier epoch")
	s.confirm(2, 1)
	require.EqualValues(t, 4, s.unsynced(1))
}

// interruptedRunner calls beforeSync before each call that only syncs requests.
type interruptedRunner struct {
	runner
	beforeSync func()
}

func (r interruptedRunner) Run(ctx context.Context, calls []*script.Call) {
	if !calls[0].Count {
		r.beforeSync()
	}
	r.runner.Run(ctx, calls)
}

// TestRequestsDuringSyncAreSyncedToo: requests are decided locally until limits are shared again.
func TestRequestsDuringSyncAreSyncedToo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		busy   int           // syncs during which a request is allowed
		within time.Duration // after limits are shared again
	}{
		"during the first sync": {busy: 1},
		"during each sync":      {busy: 100, within: 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				redis := newSimRedis(1)
				defer redis.state.Close()
				redis.links[0] = new(simLink)
				allowed, limited := 0, counterOf("k", 60, time.Hour)
				events := make(chan Event, 2)
				newLimiter := func(beforeSync func()) *exact {
					l := newExact(backend{
						newRunner: func() runner {
							return interruptedRunner{&simRunner{node: func(string) *simRedis { return redis }, one: true}, beforeSync}
						},
						node:   func(string) string { return "" },
						random: func(int) func(int64) int64 { return func(int64) int64 { return 0 } },
					}, mustComplete(Options{ProbeInterval: time.Minute, OnEvent: func(e Event) { events <- e }}))
					t.Cleanup(func() { require.NoError(t, l.Close()) })
					return l
				}
				var l *exact
				allow := func() {
					r, err := l.Allow(t.Context(), "k", limited)
					require.NoError(t, err)
					require.True(t, r.Allowed)
					allowed++
				}
				l = newLimiter(func() {
					if c.busy > 0 {
						c.busy--
						allow()
					}
				})
				redis.down = true
				for l.Unavailable() == nil {
					allow()
				}
				require.Equal(t, EventUnavailable, (<-events).Kind)
				redis.mu.Lock()
				redis.down = false
				redis.mu.Unlock()
				require.Equal(t, EventShared, (<-events).Kind)
				<-time.After(c.within)
				synctest.Wait()
				other := newLimiter(func() {})
				r, err := other.Peek(t.Context(), "k", limited)
				require.NoError(t, err)
				require.Equal(t, ByRedis, r.By)
				assert.Equal(t, 60-allowed, r.States[0].Remaining)
				assert.Greater(t, allowed, 3)
			})
		})
	}
}
