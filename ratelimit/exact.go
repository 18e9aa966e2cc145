package ratelimit

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-gateway/gatehouse/ratelimit/internal/resync"
)

// sweepInterval is how often idle local windows are removed.
const sweepInterval = 5 * time.Second

// exact is the Limiter of Algorithm Exact.
type exact struct {
	*background
	o        Options
	store    store
	windows  *localWindows
	shards   []*shard
	epoch    atomic.Uint32 // how often Redis was found to have lost data
	slack    int64         // microseconds within which a call is built, run and its reply read
	began    time.Time
	numbers  atomic.Uint64
	requests sync.Pool
	stats    stats
	overload overload
}

type stats struct {
	roundTrips       atomic.Uint64
	byRedis, byLocal atomic.Uint64 // decisions while Redis was available
}

var _ Limiter = (*exact)(nil)

func newExact(s store, o Options) *exact {
	x := &exact{background: newBackground(), o: o, store: s, began: o.Now(), slack: 4 * o.Timeout.Microseconds()}
	x.windows = newLocalWindows(o.MaxEntries, x.clock)
	x.requests.New = func() any { return new(request) }
	shards := 1
	if s.cluster {
		shards = clusterShards
	}
	for i := range shards {
		x.shards = append(x.shards, newShard(x, i))
	}
	x.spawn(x.housekeeping)
	return x
}

// Allow implements Limiter. An allowed request waits for one round trip to Redis, which it shares with concurrent requests.
// While Redis is unavailable it does not wait.
func (x *exact) Allow(ctx context.Context, group string, counters ...Counter) (Result, error) {
	return x.decide(ctx, group, counters, true)
}

// Peek implements Limiter.
func (x *exact) Peek(ctx context.Context, group string, counters ...Counter) (Result, error) {
	return x.decide(ctx, group, counters, false)
}

func (x *exact) decide(ctx context.Context, group string, counters []Counter, charge bool) (Result, error) {
	if x.ctx.Err() != nil {
		return Result{}, ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return Result{}, fmt.Errorf("checking a rate limit: %w", err)
	}
	r, _ := x.requests.Get().(*request)
	if err := r.prepare(x.windows, group, counters, charge); err != nil {
		return Result{}, err
	}
	res := Result{States: make([]State, len(counters))}
	r.states = res.States
	s := x.shards[x.shardOf(r.tag)]
	cause := s.breaker.Cause()

	// With OnOutage Allow, earlier denials do not apply during an outage.
	if r.denyOrMarkPending(x.o.OnOutage != Allow || cause == nil && !s.breaker.Failing()) {
		res.finish(ByMemory)
		x.requests.Put(r)
		return res, nil
	}
	if cause != nil {
		s.decideLocally(r, cause, false)
	} else if err := s.batcher.Do(ctx, r); err != nil { // r was not flushed, and never will be
		if ctx.Err() != nil { // cancelled by the caller, not a failure of Redis
			r.cancel()
			return Result{}, fmt.Errorf("checking a rate limit: %w", err)
		}
		s.decideLocally(r, fmt.Errorf("%w after %v", err, x.o.Timeout), false)
		x.stats.byLocal.Add(1)
	}
	by, err := r.by, r.err
	r.counters, r.states = nil, nil
	x.requests.Put(r)
	switch {
	case by != ByRedis && x.ctx.Err() != nil:
		return Result{}, ErrClosed
	case by != ByRedis && x.o.OnOutage == Deny:
		return Result{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	res.finish(by)
	return res, nil
}

// Ping implements Limiter.
func (x *exact) Ping(ctx context.Context) error {
	for _, s := range x.shards {
		select {
		case s.busy <- struct{}{}:
		case <-ctx.Done():
			return fmt.Errorf("probing Redis: %w", ctx.Err())
		}
		err := s.probeOnce(ctx)
		if err == nil {
			err = s.sync(s.breaker.State() == resync.Shared) //nolint:contextcheck // sets its own deadlines
		}
		<-s.busy
		if err != nil {
			return fmt.Errorf("probing Redis: %w", err)
		}
	}
	return nil
}

// Unavailable implements Limiter.
func (x *exact) Unavailable() error {
	for _, s := range x.shards {
		if err := s.breaker.Cause(); err != nil {
			return err
		}
	}
	return nil
}

// Stats implements Limiter.
func (x *exact) Stats() Stats {
	st := Stats{RoundTrips: x.stats.roundTrips.Load()}
	for _, s := range x.shards {
		b := s.batcher.Stats()
		st.Queue += b.Queue
		st.Waited += b.Waited
		st.Waits += b.Calls
	}
	return st
}

// shardOf returns the index of a tag's shard.
func (x *exact) shardOf(t tag) int {
	if !x.store.cluster {
		return 0
	}
	return t.slot() * clusterShards / slots
}

// nextNumber returns the number of the next call of the script.
func (x *exact) nextNumber() uint64 { return 2 * x.numbers.Add(1) }

// dataLost begins a new epoch because data that was stored in epoch is missing, and syncs what may have been lost. It does
// nothing if epoch has ended already.
func (x *exact) dataLost(epoch uint32) {
	if !x.epoch.CompareAndSwap(epoch, epoch+1) {
		return
	}
	x.spawn(func() { x.o.emit(Event{Kind: DataLost}) })
	for _, s := range x.shards {
		s.unsynced.Store(true)
		s.syncInBackground()
	}
}

// clock returns the time since the limiter was created, in microseconds.
func (x *exact) clock() int64 { return max(0, x.o.Now().Sub(x.began).Microseconds()) }

func (x *exact) housekeeping() {
	sweep := time.NewTicker(sweepInterval)
	defer sweep.Stop()
	probe := time.NewTicker(x.o.ProbeInterval)
	defer probe.Stop()
	for {
		select {
		case <-x.ctx.Done():
			return
		case <-sweep.C:
			x.windows.sweep()
		case <-probe.C:
			for _, s := range x.shards {
				s.syncInBackground()
			}
			if e, changed := x.overload.update(x.stats.byRedis.Load(), x.stats.byLocal.Load()); changed {
				x.o.emit(e)
			}
		}
	}
}

// overload detects when most decisions are local although Redis is available.
type overload struct {
	redis, local uint64 // counters at the last update
	on           bool
}

// overloadDecisions is the minimum number of decisions between two updates for an overload to begin.
const overloadDecisions = 20

func (o *overload) update(redis, local uint64) (e Event, changed bool) {
	byRedis, byLocal := redis-o.redis, local-o.local
	o.redis, o.local = redis, local
	was := o.on
	o.on = byLocal > byRedis && (was || byLocal+byRedis >= overloadDecisions)
	if o.on == was {
		return Event{}, false
	}
	if o.on {
		return Event{Kind: Overloaded}, true
	}
	return Event{Kind: OverloadEnded}, true
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
