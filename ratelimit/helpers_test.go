package ratelimit_test

import (
	"context"
	"math/rand/v2"
	"sort"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/leaktest"
	"github.com/gatehouse-gateway/gatehouse/internal/redistest"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const (
	// patience is how long the tests wait for Redis where no outage is what they are
	// about, and for whatever else has to come: they run on busy machines, which may
	// not get to an answer for seconds.
	patience = 20 * time.Second
	// haste is how long those about outages wait for a Redis that does not answer.
	// Three round trips in a row have to fail for an outage.
	haste = 2 * time.Second
)

func patient() ratelimit.Options { return ratelimit.Options{Timeout: patience} }

func hasty() ratelimit.Options { return ratelimit.Options{Timeout: haste} }

// A movedClock is the gateways' clock, moved ahead together with Redis's.
type movedClock struct {
	server *redistest.Server
	ahead  atomic.Int64
}

func (c *movedClock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// set moves both to so much ahead of the machine's.
func (c *movedClock) set(t testing.TB, ahead time.Duration) {
	t.Helper()
	c.ahead.Store(int64(ahead))
	require.NoError(t, c.server.StepClock(ahead))
}

// newFleet makes a gateway's limiter with a client of its own, which is as patient;
// both end with the test.
func newFleet(t testing.TB, options *redis.UniversalOptions, o ratelimit.Options) ratelimit.Limiter {
	t.Helper()
	for _, d := range []*time.Duration{&options.DialTimeout, &options.ReadTimeout, &options.WriteTimeout} {
		if *d == 0 && o.Timeout > time.Second {
			*d = o.Timeout
		}
	}
	ratelimit.TuneClient(options)
	client := redis.NewUniversalClient(options)
	f, err := ratelimit.New(client, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, f.Close())
		require.NoError(t, client.Close())
	})
	return f
}

// newFleets makes n gateways that share a Redis.
func newFleets(t testing.TB, n int, options func() *redis.UniversalOptions, o ratelimit.Options) []ratelimit.Limiter {
	t.Helper()
	fleets := make([]ratelimit.Limiter, n)
	for i := range fleets {
		fleets[i] = newFleet(t, options(), o)
	}
	return fleets
}

func limit(requests int, window time.Duration) ratelimit.Limit {
	return ratelimit.Limit{Name: "test", Requests: requests, Window: window}
}

func take(t testing.TB, f ratelimit.Limiter, key string, l ratelimit.Limit) ratelimit.Result {
	t.Helper()
	r, err := f.Allow(context.Background(), key, ratelimit.Bucket{Key: key, Limit: l})
	require.NoError(t, err)
	require.Len(t, r.States, 1)
	require.Equal(t, r.Allowed, r.RetryAfter == 0)
	return r
}

// takeAtOnce has n requests taken at the same moment, in turn by the gateways,
// and returns how many were admitted.
func takeAtOnce(t testing.TB, fleets []ratelimit.Limiter, n int, key string, l ratelimit.Limit) int {
	t.Helper()
	var admitted atomic.Int64
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			r, err := fleets[i%len(fleets)].Allow(context.Background(), key, ratelimit.Bucket{Key: key, Limit: l})
			if err != nil {
				t.Errorf("taking: %v", err)
			}
			if r.Allowed {
				admitted.Add(1)
			}
		})
	}
	close(start)
	wg.Wait()
	return int(admitted.Load())
}

// eventuallyBy waits until the gateway's verdicts are the decider's.
func eventuallyBy(t testing.TB, f ratelimit.Limiter, by ratelimit.Decider) {
	t.Helper()
	l := limit(ratelimit.MaxRequests, time.Millisecond)
	require.Eventually(t, func() bool {
		r, err := f.Allow(context.Background(), "eventually", ratelimit.Bucket{Key: "eventually", Limit: l})
		return err == nil && r.By == by
	}, patience, 5*time.Millisecond)
}

// An admission is some moment between the call and the answer.
type admission struct {
	from, to time.Time
	by       ratelimit.Decider
}

// A record is what a fleet has admitted, by key.
type record struct {
	mu         sync.Mutex
	admissions map[string][]admission
}

func (r *record) add(key string, a admission) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.admissions == nil {
		r.admissions = make(map[string][]admission)
	}
	r.admissions[key] = append(r.admissions[key], a)
}

// worst is the most that any window of any key certainly held.
func (r *record) worst(window time.Duration) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	worst := 0
	for _, list := range r.admissions {
		byStart := append([]admission(nil), list...)
		sort.Slice(byStart, func(i, j int) bool { return byStart[i].from.Before(byStart[j].from) })
		for i, first := range byStart {
			// Whoever began no earlier than the first and had ended before its
			// beginning and a window was within one window with it.
			n := 0
			for _, a := range byStart[i:] {
				if a.to.Before(first.from.Add(window)) {
					n++
				}
			}
			worst = max(worst, n)
		}
	}
	return worst
}

func (r *record) total(key string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.admissions[key])
}

// storm has workers take from random buckets through random gateways until done,
// and records what is admitted. Pauses between requests are up to pause.
func storm(t testing.TB, done <-chan struct{}, workers int, pause time.Duration, fleets []ratelimit.Limiter, keys []string, l ratelimit.Limit) *record {
	t.Helper()
	rec := &record{}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			for {
				select {
				case <-done:
					return
				case <-time.After(time.Duration(r.Int64N(int64(pause) + 1))):
				}
				key := keys[r.IntN(len(keys))]
				from := time.Now()
				res, err := fleets[r.IntN(len(fleets))].Allow(context.Background(), key, ratelimit.Bucket{Key: key, Limit: l})
				if err != nil {
					t.Errorf("taking: %v", err)
					return
				}
				if res.Allowed {
					rec.add(key, admission{from, time.Now(), res.By})
				}
			}
		})
	}
	wg.Wait()
	return rec
}

// after closes its channel after a time.
func after(d time.Duration) <-chan struct{} {
	ch := make(chan struct{})
	time.AfterFunc(d, func() { close(ch) })
	return ch
}
