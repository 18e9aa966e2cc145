package ratelimit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/windowtest"
	"github.com/gatehouse-gateway/gatehouse/ratelimit/internal/script"
)

// fakeClock is set by the test, in microseconds.
type fakeClock struct{ us atomic.Int64 }

func (c *fakeClock) now() int64 { return c.us.Load() }

func counterOf(key string, requests int, w time.Duration) Counter {
	return Counter{Key: key, Limit: Limit{Name: "test", Requests: requests, Window: w}}
}

const sec = int64(1_000_000)

// decideLocally is Allow during an outage, without the rest of the limiter.
func decideLocally(t testing.TB, l *localWindows, group string, counters ...Counter) Result {
	t.Helper()
	var r request
	require.NoError(t, r.prepare(l, group, counters, true))
	res := Result{States: make([]State, len(counters))}
	r.states = res.States
	if !r.denyOrMarkPending(true) {
		r.decideLocally(false, false, 50*time.Millisecond)
	}
	res.finish(ByLocal)
	return res
}

// pend returns a request that waits for Redis's reply.
func pend(t *testing.T, l *localWindows, number uint64, b Counter) *request {
	t.Helper()
	r := new(request)
	require.NoError(t, r.prepare(l, "k", []Counter{b}, true))
	r.states = make([]State, 1)
	require.False(t, r.denyOrMarkPending(true))
	r.buildCall(number, "p", 0, 0)
	return r
}

// stateOf returns the state of a counter according to the model.
func stateOf(m *windowtest.Model, now int64, l Limit) State {
	s := m.State(now, l.Window.Microseconds(), l.Requests)
	return State{Limit: l, Remaining: s.Remaining, Reset: microseconds(s.Reset), RetryAfter: microseconds(s.Retry)}
}

// TestLocalWindowMatchesModel is the counterpart of the script's TestScriptMatchesModel.
func TestLocalWindowMatchesModel(t *testing.T) {
	t.Parallel()
	const length = 2 * sec
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 9))
		var clock fakeClock
		l := newLocalWindows(1000, clock.now)
		models := make([]windowtest.Model, 3)
		limits := []int{1 + r.IntN(3), 2 + r.IntN(10), 1 + r.IntN(256)}
		for step := range 400 {
			now := windowtest.NextTime(r, clock.now(), length, models)
			clock.us.Store(now)
			if r.IntN(20) == 0 {
				limits[r.IntN(3)] = 1 + r.IntN(20)
			}
			if r.IntN(50) == 0 {
				l.sweep()
			}
			which := r.Perm(3)[:1+r.IntN(3)]
			var counters []Counter
			allowed := true
			for _, b := range which {
				counters = append(counters, counterOf(fmt.Sprint(b), limits[b], 2*time.Second))
				allowed = allowed && len(models[b].Inside(now, length)) < limits[b]
			}
			res := decideLocally(t, l, "g", counters...)
			require.Equal(t, allowed, res.Allowed, "seed %d step %d", seed, step)
			for i, b := range which {
				if allowed {
					models[b].Add(now)
				}
				want := stateOf(&models[b], now, counters[i].Limit)
				if allowed {
					want.RetryAfter = 0
				}
				assert.Equal(t, want, res.States[i], "seed %d step %d", seed, step)
			}
		}
		clock.us.Add(2 * length)
		l.sweep()
		assert.Zero(t, l.size())
	}
}

// TestPendingRequestsCountDuringOutage: Redis may still allow them.
func TestPendingRequestsCountDuringOutage(t *testing.T) {
	t.Parallel()
	var clock fakeClock
	l := newLocalWindows(100, clock.now)
	b := counterOf("k", 3, time.Minute)
	first, second := pend(t, l, 2, b), pend(t, l, 4, b)
	require.True(t, decideLocally(t, l, "k", b).Allowed)
	r := decideLocally(t, l, "k", b)
	require.False(t, r.Allowed, "two are pending and one is allowed")
	require.Equal(t, 50*time.Millisecond, r.RetryAfter, "until they have their replies")
	first.cancel()
	second.call.Replies[0] = script.Reply{Remaining: 2, Reset: 60 * sec, Stored: 1}
	second.applyReplies()
	require.True(t, decideLocally(t, l, "k", b).Allowed)
	assert.False(t, decideLocally(t, l, "k", b).Allowed)
}

// TestRequestWithoutReplyCountsOnce: Redis may or may not have counted it.
func TestRequestWithoutReplyCountsOnce(t *testing.T) {
	t.Parallel()
	var clock fakeClock
	l := newLocalWindows(100, clock.now)
	b := counterOf("k", 3, time.Minute)
	for stored := range uint64(2) {
		r := pend(t, l, 2, b)
		r.decideLocally(false, true, time.Second)
		require.Equal(t, ByLocal, r.by)
		require.Zero(t, r.states[0].RetryAfter)
		require.Equal(t, 2-int(stored), r.states[0].Remaining)
		require.NoError(t, r.prepare(l, "k", []Counter{b}, true))
		r.buildCall(4, "p", 0, 0)
		assert.Equal(t, stored+1, r.call.Counters[0].Seq)
		assert.Zero(t, r.call.Counters[0].Confirmed)
		assert.Equal(t, []script.Unsynced{{Count: 1 + int(stored)}}, r.call.Counters[0].Unsynced)
	}
}

// TestOverloadWhenMostDecisionsAreLocal expects one event when it begins and one when it ends, and none for a few decisions.
func TestOverloadWhenMostDecisionsAreLocal(t *testing.T) {
	t.Parallel()
	var o overload
	redis, local := uint64(0), uint64(0)
	for i, step := range []struct {
		redis, local uint64
		want         EventKind
	}{
		{redis: 1000, local: 400},
		{redis: 0, local: 19},
		{redis: 9, local: 11, want: EventOverloaded},
		{redis: 100, local: 101},
		{redis: 0, local: 3},
		{redis: 5, local: 5, want: EventOverloadEnded},
		{redis: 0, local: 0},
		{redis: 0, local: 50, want: EventOverloaded},
		{redis: 0, local: 0, want: EventOverloadEnded},
	} {
		redis, local = redis+step.redis, local+step.local
		e, changed := o.update(redis, local)
		assert.Equal(t, step.want, e.Kind, "step %d", i)
		assert.Equal(t, step.want != "", changed)
	}
}

// TestLocalDenialsReturnRedisTimes: the times of Redis's reply, not those of the local window.
func TestLocalDenialsReturnRedisTimes(t *testing.T) {
	t.Parallel()
	var clock fakeClock
	l := newLocalWindows(100, clock.now)
	b := counterOf("k", 3, time.Minute)
	clock.us.Add(sec)
	require.True(t, decideLocally(t, l, "k", b).Allowed)
	r := pend(t, l, 2, b)
	r.call.Replies[0] = script.Reply{Reset: 20 * sec, Retry: 30 * sec, Stored: 1}
	r.applyReplies()
	for _, at := range []struct{ passed, reset, retry int64 }{{0, 20, 30}, {5, 15, 25}, {25, 5, 5}} {
		clock.us.Store((1 + at.passed) * sec)
		res := decideLocally(t, l, "k", b)
		assert.False(t, res.Allowed)
		assert.Equal(t, State{Limit: b.Limit, Reset: microseconds(at.reset * sec), RetryAfter: microseconds(at.retry * sec)}, res.States[0])
	}
	clock.us.Store(31 * sec)
	require.True(t, decideLocally(t, l, "k", b).Allowed)
}

func TestEvictionBoundsMemoryAndKeepsExhaustedLimits(t *testing.T) {
	t.Parallel()
	var clock fakeClock
	const maxEntries = 3200 // 100 per stripe
	l := newLocalWindows(maxEntries, clock.now)
	// 320 callers have exhausted their limit.
	for i := range 320 {
		for range 5 {
			assert.True(t, decideLocally(t, l, "g", counterOf(fmt.Sprint("full", i), 5, time.Minute)).Allowed)
		}
	}
	// A flood of client IPs with one request each.
	for i := range 30_000 {
		decideLocally(t, l, "g", counterOf(fmt.Sprint("flood", i), 5, time.Minute))
		if i%3000 == 0 {
			require.LessOrEqual(t, l.size(), maxEntries)
		}
	}
	require.LessOrEqual(t, l.size(), maxEntries)
	forgotten := 0
	for i := range 320 {
		if decideLocally(t, l, "g", counterOf(fmt.Sprint("full", i), 5, time.Minute)).Allowed {
			forgotten++
		}
	}
	require.LessOrEqual(t, forgotten, 3, "exhausted limits must be kept")
	// The flood does not affect another policy's windows.
	other := Counter{Key: "k", Limit: Limit{Name: "key", Requests: 2, Window: time.Minute}}
	require.True(t, decideLocally(t, l, "k", other).Allowed)
	require.Equal(t, 0, decideLocally(t, l, "k", other).States[0].Remaining)

	clock.us.Add(61 * sec)
	l.sweep()
	require.Zero(t, l.size())
}

// TestBytesPerCaller measures and bounds the memory of a local window.
func TestBytesPerCaller(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const callers = 3000
	for requests, limit := range map[int]uint64{1: 250, 10: 380, 60: 780} {
		before := heap()
		var clock fakeClock
		l := newLocalWindows(defaultMaxEntries, clock.now)
		for i := range callers {
			for range requests {
				clock.us.Add(1)
				decideLocally(t, l, "g", counterOf(fmt.Sprint(i), 100, time.Hour))
			}
		}
		require.Equal(t, callers, l.size())
		each := (heap() - before) / callers
		t.Logf("%d callers with %d requests: %d bytes each", callers, requests, each)
		require.LessOrEqual(t, each, limit)
		runtime.KeepAlive(l)
	}
}

func TestSlotMatchesClusterKeySlot(t *testing.T) {
	t.Parallel()
	// CLUSTER KEYSLOT of the tags' texts.
	client := redistest.Start(t, redistest.WithConfig("cluster-enabled", "yes")).Client(t)
	for _, tag := range []groupTag{0, 1, 2, 1 << 63, hashGroup("a"), hashGroup("b")} {
		want := client.ClusterKeySlot(context.Background(), "x{"+string(tag.append(nil))+"}y").Val()
		assert.EqualValues(t, want, tag.slot())
	}
}

// BenchmarkDecideLocally measures a decision during an outage, without the rest of the limiter.
func BenchmarkDecideLocally(b *testing.B) {
	var clock fakeClock
	l := newLocalWindows(defaultMaxEntries, clock.now)
	counters := []Counter{counterOf("k", 60, time.Minute)}
	var r request
	r.states = make([]State, 1)
	b.ReportAllocs()
	for b.Loop() {
		clock.us.Add(1_100_000)
		if err := r.prepare(l, "k", counters, true); err != nil {
			b.Fatal(err)
		}
		if r.denyOrMarkPending(true) {
			b.Fatal("denied")
		}
		if r.decideLocally(false, false, 0); r.states[0].RetryAfter > 0 {
			b.Fatal("denied")
		}
	}
}
