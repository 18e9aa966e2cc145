package ratelimit

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-gateway/gatehouse/ratelimit/internal/resync"
)

// sweepInterval is how often local windows are forgotten that do not matter any more.
const sweepInterval = 5 * time.Second

// exact is the Limiter that never admits more than a limit's requests in any span of its window.
type exact struct {
	*background
	o        Options
	store    store
	locals   *locals
	shards   []*shard
	losses   resync.Losses
	slack    int64 // microseconds for which a script run may be under way, and its reply unread
	began    time.Time
	numbers  atomic.Uint64
	requests sync.Pool
	stats    counters
	overload overload
}

type counters struct {
	runs, asked, outages, losses atomic.Uint64
	byRedis, byLocal             atomic.Uint64 // while Redis could be asked
}

var _ Limiter = (*exact)(nil)

func newExact(s store, o Options) *exact {
	x := &exact{background: newBackground(), o: o, store: s, began: o.Now(), slack: 4 * o.Timeout.Microseconds()}
	x.locals = newLocals(o.MaxEntries, x.clock)
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

// Allow implements Limiter. A request that is allowed costs one round trip to Redis, shared with others that come at the same
// time, and waits for it as Options.Timeout says; while Redis is unavailable it does not wait at all.
func (x *exact) Allow(ctx context.Context, group string, buckets ...Bucket) (Result, error) {
	return x.decide(ctx, group, buckets, true)
}

// Peek implements Limiter.
func (x *exact) Peek(ctx context.Context, group string, buckets ...Bucket) (Result, error) {
	return x.decide(ctx, group, buckets, false)
}

func (x *exact) decide(ctx context.Context, group string, buckets []Bucket, charge bool) (Result, error) {
	if x.ctx.Err() != nil {
		return Result{}, ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return Result{}, fmt.Errorf("checking a rate limit: %w", err)
	}
	r, _ := x.requests.Get().(*request)
	if err := r.prepare(x.locals, group, buckets, charge); err != nil {
		return Result{}, err
	}
	res := Result{States: make([]State, len(buckets))}
	r.states = res.States
	s := x.shards[x.shardOf(r.tag)]
	cause := s.machine.Cause()

	// What is known from before is not certain if Redis may have been replaced. That matters to who would rather allow.
	if r.begin(x.o.OnOutage != Allow || cause == nil && !s.machine.Failing()) {
		res.finish(ByMemory)
		x.requests.Put(r)
		return res, nil
	}
	if cause != nil {
		s.decide(r, cause, false)
	} else if err := s.batch.Do(ctx, r); err != nil { // the queue has it, and another one is to go on with
		r = r.again()
		if ctx.Err() != nil { // the caller has gone: that is nobody's failure
			r.cancel()
			return Result{}, fmt.Errorf("checking a rate limit: %w", err)
		}
		s.decide(r, fmt.Errorf("%w after %v", err, x.o.Timeout), false)
		x.stats.byLocal.Add(1)
	}
	by, err := r.by, r.err
	r.buckets, r.states = nil, nil
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

// again is a copy of a request to go on with, without the question to the script.
func (r *request) again() *request {
	return &request{
		locals: r.locals, buckets: r.buckets, states: r.states, charge: r.charge, pending: r.pending, tag: r.tag,
		ids: r.ids, tables: r.tables, stripes: r.stripes, order: r.order, locks: r.locks,
	}
}

// Ping implements Limiter.
func (x *exact) Ping(ctx context.Context) error {
	for _, s := range x.shards {
		select {
		case s.busy <- struct{}{}:
		case <-ctx.Done():
			return fmt.Errorf("trying out Redis: %w", ctx.Err())
		}
		err := s.try(ctx)
		if err == nil {
			err = s.sync(s.machine.State() == resync.Shared) //nolint:contextcheck // its round trips have deadlines of their own
		}
		<-s.busy
		if err != nil {
			return fmt.Errorf("trying out Redis: %w", err)
		}
	}
	return nil
}

// Unavailable implements Limiter.
func (x *exact) Unavailable() error {
	for _, s := range x.shards {
		if err := s.machine.Cause(); err != nil {
			return err
		}
	}
	return nil
}

// Stats implements Limiter.
func (x *exact) Stats() Stats {
	st := Stats{
		Asked: x.stats.asked.Load(), RoundTrips: x.stats.runs.Load(),
		Outages: x.stats.outages.Load(), Losses: x.stats.losses.Load(),
		Parts: len(x.shards), Entries: x.locals.size(), Evicted: x.locals.evicted.Load(),
	}
	for _, s := range x.shards {
		if s.machine.State() != resync.Shared {
			st.Down++
		}
		b := s.batch.Stats()
		st.Queue += b.Queue
		st.Waited += b.Waited
		st.Waits += b.Calls
	}
	return st
}

// KeyName implements Limiter.
func (x *exact) KeyName(group string, b Bucket) string {
	t := hashGroup(group)
	i := hashBucket(Exact, t, &b)
	return redisKey(x.o.Prefix, t, b.Limit.Name, &i)
}

// shardOf is the index of the shard of a tag.
func (x *exact) shardOf(t tag) int {
	if !x.store.cluster {
		return 0
	}
	return t.slot() * clusterShards / slots
}

// number is the number of the next call of the script.
func (x *exact) number() uint64 { return 2 * x.numbers.Add(1) }

// found records that Redis has lost data, unless that is known since losses was counted, and has every shard tell it what it
// may have lost.
func (x *exact) found(losses uint32) {
	if !x.losses.Found(losses) {
		return
	}
	x.stats.losses.Add(1)
	x.spawn(func() { x.tell(Event{Kind: DataLost}) })
	for _, s := range x.shards {
		s.unsynced.Store(true)
		s.lookAround()
	}
}

func (x *exact) tell(e Event) {
	if x.o.OnEvent != nil {
		x.o.OnEvent(e)
	}
}

// clock is the time since the limiter began, in microseconds.
func (x *exact) clock() int64 { return max(0, x.o.Now().Sub(x.began).Microseconds()) }

func (x *exact) housekeeping() {
	sweep := time.NewTicker(sweepInterval)
	defer sweep.Stop()
	look := time.NewTicker(x.o.ProbeInterval)
	defer look.Stop()
	for {
		select {
		case <-x.ctx.Done():
			return
		case <-sweep.C:
			x.locals.sweep()
		case <-look.C:
			for _, s := range x.shards {
				s.lookAround()
			}
			if e, changed := x.overload.look(x.stats.byRedis.Load(), x.stats.byLocal.Load()); changed {
				x.tell(e)
			}
		}
	}
}

// overload finds out when most decisions are local although Redis answers.
type overload struct {
	redis, local uint64 // counted so far
	on           bool
}

// overloadDecisions is how many decisions there must be between two looks.
const overloadDecisions = 20

func (o *overload) look(redis, local uint64) (e Event, changed bool) {
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
