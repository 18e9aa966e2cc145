package ratelimit

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gatehouse-gateway/gatehouse/ratelimit/internal/breaker"
)

// sweepInterval is how often idle local windows are removed.
const sweepInterval = 5 * time.Second

// exact is the Limiter of Algorithm Exact.
type exact struct {
	*tasks
	o           Options
	backend     backend
	windows     *localWindows
	shards      []*shard
	epoch       atomic.Uint32 // how often Redis was found to have lost data
	maxCallTime int64         // microseconds within which a call is built, run and its reply read
	began       time.Time
	numbers     atomic.Uint64
	requests    sync.Pool
	stats       stats
	overload    overload
}

type stats struct {
	roundTrips       atomic.Uint64
	byRedis, byLocal atomic.Uint64 // decisions while Redis was available
}

var _ Limiter = (*exact)(nil)

func newExact(b backend, o Options) *exact {
	l := &exact{tasks: newTasks(), o: o, backend: b, began: o.Now(), maxCallTime: 4 * o.Timeout.Microseconds()}
	l.windows = newLocalWindows(o.MaxEntries, l.clock)
	l.requests.New = func() any { return new(request) }
	shards := 1
	if b.cluster {
		shards = clusterShards
	}
	for i := range shards {
		l.shards = append(l.shards, newShard(l, i))
	}
	l.spawn(l.housekeeping)
	return l
}

// Allow implements Limiter. An allowed request waits for one round trip to Redis, which it shares with concurrent requests.
// While Redis is unavailable it does not wait.
func (l *exact) Allow(ctx context.Context, group string, counters ...Counter) (Result, error) {
	return l.decide(ctx, group, counters, true, Once{})
}

// AllowOnce implements Limiter, in the same round trip.
func (l *exact) AllowOnce(ctx context.Context, group string, once Once, counters ...Counter) (Result, error) {
	return l.decide(ctx, group, counters, true, once)
}

// Forget implements Limiter.
func (l *exact) Forget(ctx context.Context, group string, once Once) error {
	ctx, cancel := context.WithTimeout(ctx, l.o.Timeout)
	defer cancel()
	if err := l.backend.forget(ctx, markKey(l.o.Prefix, hashGroup(group), &once.MAC), once.ID[:]); err != nil {
		return fmt.Errorf("forgetting a request: %w", err)
	}
	return nil
}

// Peek implements Limiter.
func (l *exact) Peek(ctx context.Context, group string, counters ...Counter) (Result, error) {
	return l.decide(ctx, group, counters, false, Once{})
}

func (l *exact) decide(ctx context.Context, group string, counters []Counter, count bool, once Once) (Result, error) {
	if l.ctx.Err() != nil {
		return Result{}, ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return Result{}, fmt.Errorf("checking a rate limit: %w", err)
	}
	r, _ := l.requests.Get().(*request)
	if err := r.prepare(l.windows, group, counters, count); err != nil {
		return Result{}, err
	}
	r.once = once
	res := Result{States: make([]State, len(counters))}
	r.states = res.States
	s := l.shards[l.shardOf(r.tag)]
	cause := s.breaker.Cause()

	// With OnOutageAllow, earlier denials do not apply during an outage.
	if r.denyOrMarkPending(l.o.OnOutage != OnOutageAllow || cause == nil && !s.breaker.Failing()) {
		res.finish(ByMemory)
		l.requests.Put(r)
		return res, nil
	}
	if cause != nil {
		s.decideOnOutage(r, cause, false)
	} else if err := s.batcher.Do(ctx, r); err != nil { // r was not flushed, and never will be
		if ctx.Err() != nil { // cancelled by the caller, not a failure of Redis
			r.cancel()
			return Result{}, fmt.Errorf("checking a rate limit: %w", err)
		}
		s.decideOnOutage(r, fmt.Errorf("%w after %v", err, l.o.Timeout), false)
		l.stats.byLocal.Add(1)
	}
	by, err, accepted := r.by, r.err, r.call.Accepted
	r.counters, r.states = nil, nil
	l.requests.Put(r)
	switch {
	case by != ByRedis && l.ctx.Err() != nil:
		return Result{}, ErrClosed
	case by != ByRedis && l.o.OnOutage == OnOutageDeny:
		return Result{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	res.finish(by)
	if by == ByRedis && res.Allowed && once != (Once{}) {
		res.Accepted = accepted
	}
	return res, nil
}

// Ping implements Limiter. It probes the shards at the same time, because the shards of a distant Cluster would add up their round trips.
func (l *exact) Ping(ctx context.Context) error {
	var shards errgroup.Group
	for _, s := range l.shards {
		shards.Go(func() error {
			select {
			case s.syncing <- struct{}{}:
				defer func() { <-s.syncing }()
			case <-ctx.Done():
				return ctx.Err()
			}
			if err := s.probeOnce(ctx); err != nil {
				return err
			}
			return s.sync(s.breaker.State() == breaker.Shared) //nolint:contextcheck // sets its own deadlines
		})
	}
	if err := shards.Wait(); err != nil {
		return fmt.Errorf("probing Redis: %w", err)
	}
	return nil
}

// Unavailable implements Limiter.
func (l *exact) Unavailable() error {
	for _, s := range l.shards {
		if err := s.breaker.Cause(); err != nil {
			return err
		}
	}
	return nil
}

// Stats implements Limiter.
func (l *exact) Stats() Stats {
	st := Stats{RoundTrips: l.stats.roundTrips.Load()}
	for _, s := range l.shards {
		b := s.batcher.Stats()
		st.Queue += b.Queue
		st.Waited += b.Waited
		st.Waits += b.Calls
	}
	return st
}

// shardOf returns the index of a tag's shard.
func (l *exact) shardOf(t groupTag) int {
	if !l.backend.cluster {
		return 0
	}
	return t.slot() * clusterShards / slots
}

// nextNumber returns the number of the next call of the script.
func (l *exact) nextNumber() uint64 { return 2 * l.numbers.Add(1) }

// clock returns the time since the limiter was created, in microseconds.
func (l *exact) clock() int64 { return max(0, l.o.Now().Sub(l.began).Microseconds()) }

func (l *exact) housekeeping() {
	sweep := time.NewTicker(sweepInterval)
	defer sweep.Stop()
	probe := time.NewTicker(l.o.ProbeInterval)
	defer probe.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-sweep.C:
			l.windows.sweep()
		case <-probe.C:
			for _, s := range l.shards {
				s.syncInBackground()
			}
			if e, changed := l.overload.update(l.stats.byRedis.Load(), l.stats.byLocal.Load()); changed {
				l.o.emit(e)
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
		return Event{Kind: EventOverloaded}, true
	}
	return Event{Kind: EventOverloadEnded}, true
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
