package ratelimit

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/maypok86/otter/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-gateway/gatehouse/internal/redisrate"
	"github.com/gatehouse-gateway/gatehouse/ratelimit/internal/breaker"
)

// gcra is the Limiter of Algorithm GCRA, on redis_rate. Each counter of a request takes its own round trip. With several
// counters, all are checked first and counted only if each would allow the request. A concurrent request can interfere
// between the two steps; then the counters before the denying one have been counted.
//
// During an outage each gateway applies the same algorithm to its own requests.
type gcra struct {
	*tasks
	o          Options
	limiter    redisrate.Limiter
	breaker    *breaker.Breaker
	roundTrips atomic.Uint64

	mu    sync.Mutex
	local *otter.Cache[counterID, gcraLocal]
}

// gcraLocal is what a gateway knows of one counter by itself.
type gcraLocal struct {
	full        time.Time // when the counter is unused again, considering only this gateway's requests
	deniedUntil time.Time // by Redis
	limit       int       // the limit that was denied
}

var _ Limiter = (*gcra)(nil)

func newGCRA(client redis.UniversalClient, o Options) *gcra {
	return &gcra{
		tasks: newTasks(), o: o, limiter: redisrate.New(client), breaker: breaker.New(o.MaxFailures),
		local: otter.Must(&otter.Options[counterID, gcraLocal]{MaximumSize: o.MaxEntries}),
	}
}

// recoverFromOutage probes Redis until it is available.
func (g *gcra) recoverFromOutage() {
	began, cause := time.Now(), g.breaker.Cause()
	g.o.emit(Event{Kind: EventUnavailable, Cause: cause, Shards: 1})
	for g.sleep(g.o.ProbeInterval) {
		ctx, cancel := context.WithTimeout(g.ctx, g.o.Timeout)
		g.breaker.ProbeDone(g.Ping(ctx))
		cancel()
		g.breaker.SyncDone(nil) // there is nothing to sync
		if g.breaker.State() == breaker.Shared {
			g.o.emit(Event{Kind: EventShared, Cause: cause, Shards: 1, Duration: time.Since(began)})
			return
		}
	}
}

// Allow implements Limiter.
func (g *gcra) Allow(ctx context.Context, group string, counters ...Counter) (Result, error) {
	return g.decide(ctx, group, counters, 1)
}

// AllowOnce implements Limiter. It never knows whether the request was accepted before.
func (g *gcra) AllowOnce(ctx context.Context, group string, _ Once, counters ...Counter) (Result, error) {
	return g.decide(ctx, group, counters, 1)
}

// Forget implements Limiter. There is nothing to forget.
func (g *gcra) Forget(context.Context, string, Once) error { return nil }

// Peek implements Limiter.
func (g *gcra) Peek(ctx context.Context, group string, counters ...Counter) (Result, error) {
	return g.decide(ctx, group, counters, 0)
}

func (g *gcra) decide(ctx context.Context, group string, counters []Counter, n int) (Result, error) {
	switch {
	case g.ctx.Err() != nil:
		return Result{}, ErrClosed
	case ctx.Err() != nil:
		return Result{}, fmt.Errorf("checking a rate limit: %w", ctx.Err())
	}
	q := gcraRequest{g: g, counters: counters, states: make([]State, len(counters))}
	var err error
	if q.tag, err = hashCounters(GCRA, group, counters, &q.ids); err != nil {
		return Result{}, err
	}
	res := Result{States: q.states}
	// With OnOutageAllow, earlier denials do not apply during an outage.
	useLocal := g.o.OnOutage != OnOutageAllow || g.breaker.Cause() == nil && !g.breaker.Failing()
	if useLocal && q.denied() {
		res.finish(ByMemory)
		return res, nil
	}
	if err = q.allowInRedis(ctx, n); err == nil {
		res.finish(ByRedis)
		q.recordLocally(n == 1 && res.Allowed)
		return res, nil
	}
	switch {
	case ctx.Err() != nil:
		return Result{}, fmt.Errorf("checking a rate limit: %w", context.Cause(ctx))
	case g.ctx.Err() != nil:
		return Result{}, ErrClosed
	case g.o.OnOutage == OnOutageDeny:
		return Result{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	q.allowLocally(n, g.o.OnOutage == OnOutageAllow)
	res.finish(ByLocal)
	return res, nil
}

// Ping implements Limiter.
func (g *gcra) Ping(ctx context.Context) error {
	probe := redis_rate.Limit{Rate: 1, Burst: 1, Period: MinWindow}
	if _, err := g.limiter.Allow(ctx, g.o.Prefix+"probe", probe); err != nil {
		return fmt.Errorf("probing Redis: %w", err)
	}
	return nil
}

// Unavailable implements Limiter.
func (g *gcra) Unavailable() error { return g.breaker.Cause() }

// Stats implements Limiter.
func (g *gcra) Stats() Stats { return Stats{RoundTrips: g.roundTrips.Load()} }

// Close implements Limiter.
func (g *gcra) Close() error {
	_ = g.tasks.Close()
	g.local.StopAllGoroutines()
	return nil
}

// gcraRequest is one Allow or Peek.
type gcraRequest struct {
	g        *gcra
	tag      groupTag
	counters []Counter
	states   []State
	ids      [MaxCounters]counterID
}

// denied reports whether an earlier denial by Redis still applies. If so, it sets the states.
func (q *gcraRequest) denied() (denied bool) {
	now := q.g.o.Now()
	for i := range q.counters {
		w, _ := q.g.local.GetIfPresent(q.ids[i])
		limit := q.counters[i].Limit
		q.states[i] = stateGCRA(limit, 0)
		if left := w.deniedUntil.Sub(now); left > 0 && limit.Requests <= w.limit {
			q.states[i] = State{Limit: limit, Reset: left, RetryAfter: left}
			denied = true
		}
	}
	return denied
}

// allowInRedis decides by redis_rate, unless Redis is unavailable.
func (q *gcraRequest) allowInRedis(ctx context.Context, n int) error {
	if cause := q.g.breaker.Cause(); cause != nil {
		return cause
	}
	inner, cancel := context.WithTimeout(ctx, q.g.o.Timeout)
	defer cancel()
	err := q.allowAll(inner, n)
	canceled := err != nil && ctx.Err() != nil // by the caller, not a failure of Redis
	if !canceled && q.g.ctx.Err() == nil && q.g.breaker.FlushDone(time.Now(), err) {
		q.g.spawn(q.g.recoverFromOutage)
	}
	return err
}

func (q *gcraRequest) allowAll(ctx context.Context, n int) error {
	if len(q.counters) > 1 || n == 0 {
		denied := false
		for i := range q.counters {
			if err := q.allowOne(ctx, i, 0); err != nil {
				return err
			}
			denied = denied || q.states[i].RetryAfter > 0
		}
		if denied || n == 0 {
			return nil
		}
	}
	for i := range q.counters {
		if err := q.allowOne(ctx, i, 1); err != nil || q.states[i].RetryAfter > 0 {
			return err
		}
	}
	return nil
}

func (q *gcraRequest) allowOne(ctx context.Context, i, n int) error {
	limit := q.counters[i].Limit
	key := redisKey(q.g.o.Prefix, q.tag, limit.Name, &q.ids[i])
	rate := redis_rate.Limit{Rate: limit.Requests, Burst: limit.Requests, Period: limit.Window}
	interval := limit.Window / time.Duration(limit.Requests)
	q.g.roundTrips.Add(1)
	r, err := q.g.limiter.AllowN(ctx, key, rate, n)
	if err != nil {
		return err
	}
	q.states[i] = stateGCRA(limit, r.ResetAfter)
	if r.Allowed < n || n == 0 && q.states[i].Remaining == 0 {
		q.states[i].Remaining, q.states[i].RetryAfter = 0, max(time.Microsecond, r.ResetAfter-limit.Window+interval)
	}
	return nil
}

// recordLocally records the decision of Redis in the local windows.
func (q *gcraRequest) recordLocally(allowed bool) {
	now := q.g.o.Now()
	q.g.mu.Lock()
	defer q.g.mu.Unlock()
	for i, s := range q.states {
		if !allowed && s.RetryAfter == 0 {
			continue
		}
		w, _ := q.g.local.GetIfPresent(q.ids[i])
		if allowed {
			w.add(now, s.Limit)
		} else {
			w.deniedUntil, w.limit = now.Add(s.RetryAfter), s.Limit.Requests
		}
		q.g.local.Set(q.ids[i], w)
	}
}

// allowLocally decides during an outage. With force, it allows the request.
func (q *gcraRequest) allowLocally(n int, force bool) {
	now := q.g.o.Now()
	q.g.mu.Lock()
	defer q.g.mu.Unlock()
	var windows [MaxCounters]gcraLocal
	denied := false
	for i, c := range q.counters {
		w, _ := q.g.local.GetIfPresent(q.ids[i])
		windows[i] = w
		ahead := max(0, w.full.Sub(now))
		interval := c.Limit.Window / time.Duration(c.Limit.Requests)
		q.states[i] = stateGCRA(c.Limit, ahead)
		if retry := ahead + interval - c.Limit.Window; retry > 0 && !force {
			q.states[i].Remaining, q.states[i].RetryAfter, denied = 0, retry, true
		}
	}
	if denied || n == 0 {
		return
	}
	for i, c := range q.counters {
		windows[i].add(now, c.Limit)
		q.states[i] = stateGCRA(c.Limit, windows[i].full.Sub(now))
		q.g.local.Set(q.ids[i], windows[i])
	}
}

func (w *gcraLocal) add(now time.Time, limit Limit) {
	if w.full.Before(now) {
		w.full = now
	}
	w.full = w.full.Add(limit.Window / time.Duration(limit.Requests))
}

// stateGCRA derives the state from how far the counter is ahead of the clock: one interval for each unit in use, of which the
// newest has just begun.
func stateGCRA(limit Limit, ahead time.Duration) State {
	s := State{Limit: limit, Remaining: limit.Requests, Reset: limit.Window}
	interval := limit.Window / time.Duration(limit.Requests)
	// redis_rate calculates in floating point seconds.
	if ahead -= time.Microsecond; ahead > 0 {
		used := int(ahead / interval)
		s.Remaining = max(0, limit.Requests-used-1)
		s.Reset = ahead - time.Duration(used)*interval + time.Microsecond
	}
	return s
}
