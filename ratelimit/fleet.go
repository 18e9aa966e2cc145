package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

// sweepInterval is how often the ledger forgets what does not matter any more.
const sweepInterval = 5 * time.Second

// Fleet is a Limiter for a fleet of gateways that share a Redis. Its methods may
// be called from many goroutines.
type Fleet struct {
	o       Options
	client  redis.UniversalClient
	cluster bool // anything but a single server, behind Sentinel or not
	sha     string
	gcra    *redis_rate.Limiter
	ledger  *ledger
	lanes   []*lane
	began   time.Time
	calls   sync.Pool
	stats   counters

	ctx    context.Context //nolint:containedctx // it ends the background work, not a request's
	cancel context.CancelFunc
	mu     sync.RWMutex // held to close
	closed bool
	work   sync.WaitGroup
}

type counters struct{ flights, asked, outages, losses atomic.Uint64 }

// Stats are a Fleet's figures since its beginning, and its state.
type Stats struct {
	// Asked is the number of takes that Redis was asked about, and RoundTrips in
	// how many round trips.
	Asked, RoundTrips uint64
	// Outages is how often Redis, or a part of it, was given up; Down how many of
	// its Parts are given up now.
	Outages     uint64
	Down, Parts int
	// Losses is how often Redis was found to have lost its memory.
	Losses uint64
	// Entries is the number of callers remembered, and Evicted how many were
	// forgotten for want of room.
	Entries int
	Evicted uint64
}

var _ Limiter = (*Fleet)(nil)

// New makes a Fleet on a client, which stays the caller's to close, after the
// Fleet. It asks nothing yet: an unreachable Redis is an outage like any other
// (see Ping). A client that does not obey the deadlines of contexts is an error;
// see TuneClient.
func New(client redis.UniversalClient, o Options) (*Fleet, error) {
	if client == nil {
		return nil, errors.New("rate limits need a Redis client")
	}
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("rate limits: %w", err)
	}
	if !obeysDeadlines(client) {
		return nil, errors.New("rate limits: the Redis client ignores the deadlines of contexts: set ContextTimeoutEnabled")
	}
	_, single := client.(*redis.Client)
	f := &Fleet{
		o:       o,
		client:  client,
		cluster: !single,
		sha:     redis.NewScript(exactScript).Hash(),
		began:   o.Now(),
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.ledger = newLedger(o.MaxEntries, f.clock)
	f.gcra = redis_rate.NewLimiter(client)
	f.calls.New = func() any {
		c := &call{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
		c.timer.Stop()
		return c
	}
	lanes := 1
	if f.cluster {
		lanes = clusterLanes
	}
	for i := range lanes {
		f.lanes = append(f.lanes, newLane(f, i))
	}
	f.spawn(f.janitor)
	return f, nil
}

// Close ends the background work and waits for it. It does not close the client.
func (f *Fleet) Close() error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.cancel()
	f.work.Wait()
	return nil
}

// Ping tries out every part of Redis, as it is done after an outage, and says
// what keeps the shared limits from working, if anything does. It waits until ctx
// is done or the client gives up, whatever Options.Timeout.
func (f *Fleet) Ping(ctx context.Context) error {
	for _, l := range f.lanes {
		if err := l.look(ctx); err != nil {
			return fmt.Errorf("trying out Redis: %w", err)
		}
		if l.forgotten() {
			if _, err := l.settle(); err != nil { //nolint:contextcheck // its round trips have deadlines of their own
				return fmt.Errorf("entering into Redis what it has lost: %w", err)
			}
		}
	}
	return nil
}

// Down is the cause of an outage that Redis, or a part of it, is in; nil if there
// is none.
func (f *Fleet) Down() error {
	for _, l := range f.lanes {
		if err := l.errDown(); err != nil {
			return err
		}
	}
	return nil
}

// Stats returns the figures.
func (f *Fleet) Stats() Stats {
	s := Stats{
		Asked:      f.stats.asked.Load(),
		RoundTrips: f.stats.flights.Load(),
		Outages:    f.stats.outages.Load(),
		Losses:     f.stats.losses.Load(),
		Parts:      len(f.lanes),
		Entries:    f.ledger.size(),
		Evicted:    f.ledger.evicted.Load(),
	}
	for _, l := range f.lanes {
		if l.down.Load() {
			s.Down++
		}
	}
	return s
}

// Take implements Limiter. A request that passes costs one round trip to Redis,
// shared with others that come at the same time, and waits for it as
// Options.Timeout says; while Redis is given up it does not wait at all. A
// cancelled context ends the wait at once, except for whoever makes the round trip.
func (f *Fleet) Take(ctx context.Context, group string, buckets ...Bucket) (Result, error) {
	return f.decide(ctx, group, buckets, true)
}

// Peek implements Limiter.
func (f *Fleet) Peek(ctx context.Context, group string, buckets ...Bucket) (Result, error) {
	return f.decide(ctx, group, buckets, false)
}

// Refused says, from memory and at no cost to Redis, whether Take is certain to
// refuse now, and how. It tells nothing about what Take would admit.
func (f *Fleet) Refused(group string, buckets ...Bucket) (Result, bool) {
	var o op
	if o.prepare(f.ledger, f.o.Algorithm, group, buckets) != nil {
		return Result{}, false
	}
	var states [MaxBuckets]State
	if refused, _ := o.refuse(states[:len(buckets)], f.strict()); !refused {
		o.unlock()
		return Result{}, false
	}
	res := Result{States: append([]State(nil), states[:len(buckets)]...)}
	res.finish(ByMemory)
	return res, true
}

// KeyName is the bucket's key in Redis, for who has to look one up.
func (f *Fleet) KeyName(group string, b Bucket) string {
	t := hashGroup(group)
	i := hashBucket(f.o.Algorithm, t, &b)
	name := redisKey(f.o.Prefix, t, b.Limit.Name, &i)
	if f.o.Algorithm == GCRA {
		return "rate:" + name // redis_rate's own prefix
	}
	return name
}

func (f *Fleet) decide(ctx context.Context, group string, buckets []Bucket, charge bool) (Result, error) {
	if f.ctx.Err() != nil {
		return Result{}, ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return Result{}, fmt.Errorf("taking from a rate limit: %w", err)
	}
	var o op
	if err := o.prepare(f.ledger, f.o.Algorithm, group, buckets); err != nil {
		return Result{}, err
	}
	res := Result{States: make([]State, len(buckets))}
	l := f.lanes[f.laneOf(o.tag)]
	cause := l.errDown()

	force := cause != nil && f.o.OnOutage == Allow
	var debts *[MaxBuckets][]debt
	var refused bool
	if charge {
		refused, debts = o.begin(res.States, f.strict(), f.strict() && cause == nil, force)
	} else if refused, _ = o.refuse(res.States, f.strict()); !refused {
		o.unlock()
	}
	if refused {
		res.finish(ByMemory)
		return res, nil
	}

	if cause == nil {
		if f.o.Algorithm == GCRA {
			cause = f.askGCRA(ctx, l, &o, res.States, charge)
		} else {
			cause = f.askExact(ctx, l, &o, res.States, debts, charge)
		}
		if cause != nil && ctx.Err() != nil {
			// The caller has gone: that is nobody's failure.
			if charge {
				o.cancel(debts)
			}
			return Result{}, fmt.Errorf("taking from a rate limit: %w", context.Cause(ctx))
		}
	}
	if cause != nil {
		return f.withoutRedis(l, &o, res, debts, charge, cause)
	}

	res.finish(ByRedis)
	switch {
	case !res.Allowed:
		o.refusedBy(res.States, charge)
	case charge:
		if !o.admitted(res.States, f.strict()) {
			res.finish(ByMemory)
		}
	}
	return res, nil
}

// withoutRedis decides in an outage.
func (f *Fleet) withoutRedis(l *lane, o *op, res Result, debts *[MaxBuckets][]debt, charge bool, cause error) (Result, error) {
	switch {
	case errors.Is(cause, ErrClosed) || f.ctx.Err() != nil:
		if charge {
			o.cancel(debts)
		}
		return Result{}, ErrClosed
	case f.o.OnOutage == Refuse:
		if charge {
			o.cancel(debts)
		}
		return Result{}, fmt.Errorf("%w: %w", ErrUnavailable, cause)
	case !charge:
		o.look(res.States, f.o.OnOutage == Local)
	default:
		if o.local(res.States, debts, f.o.OnOutage == Allow, f.strict(), f.o.Timeout.Microseconds()) {
			l.owing.Store(true)
		}
	}
	res.finish(ByLocal)
	return res, nil
}

// askExact asks the script.
func (f *Fleet) askExact(ctx context.Context, l *lane, o *op, states []State, debts *[MaxBuckets][]debt, charge bool) error {
	c := f.getCall()
	c.n, c.debts = len(o.buckets), debts
	if !charge {
		c.flags |= chargeNothing
	}
	if debts != nil {
		c.flags |= withDebts
	}
	for i := range o.buckets {
		b := &o.buckets[i]
		c.keys[i] = redisKey(f.o.Prefix, o.tag, b.Limit.Name, &o.ids[i])
		c.limits[i] = int64(b.Limit.Requests)
		c.spans[i] = b.Limit.Window.Microseconds()
	}
	if err := l.do(ctx, c); err != nil {
		return err
	}
	for i := range o.buckets {
		r := c.reply[1+3*i:]
		states[i] = State{
			Limit:      o.buckets[i].Limit,
			Remaining:  int(r[0]),
			Reset:      microseconds(r[1]),
			RetryAfter: microseconds(r[2]),
		}
	}
	f.putCall(c)
	return nil
}

// strict says whether what this gateway has admitted may refuse by itself: the
// exact rule is the fleet's rule only for the exact algorithm.
func (f *Fleet) strict() bool { return f.o.Algorithm == Exact }

// laneOf is the index of the lane to a tag's part of Redis.
func (f *Fleet) laneOf(t tag) int {
	if !f.cluster {
		return 0
	}
	return t.slot() * clusterLanes / slots
}

// clock is the time since the Fleet began, in microseconds.
func (f *Fleet) clock() int64 { return max(0, f.o.Now().Sub(f.began).Microseconds()) }

// spawn starts background work, unless the Fleet is closed.
func (f *Fleet) spawn(work func()) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if !f.closed {
		f.work.Go(work)
	}
}

// sleep waits in background work; false if the Fleet is closed meanwhile.
func (f *Fleet) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-f.ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (f *Fleet) janitor() {
	sweep := time.NewTicker(sweepInterval)
	defer sweep.Stop()
	look := time.NewTicker(f.o.ProbeInterval)
	defer look.Stop()
	for {
		select {
		case <-f.ctx.Done():
			return
		case <-sweep.C:
			f.ledger.sweep()
		case <-look.C:
			f.lookAround()
		}
	}
}

// lookAround has every lane look whether Redis has lost its memory: what a gateway
// without traffic has admitted is missing there too.
func (f *Fleet) lookAround() {
	if !f.strict() || f.ledger.size() == 0 {
		return
	}
	for _, l := range f.lanes {
		if !l.down.Load() {
			l.lookAround()
		}
	}
}

func (f *Fleet) getCall() *call {
	c, _ := f.calls.Get().(*call)
	return c
}

// putCall puts away a call that nobody else holds.
func (f *Fleet) putCall(c *call) {
	c.n, c.flags, c.debts, c.err = 0, 0, nil, nil
	clear(c.keys[:])
	c.state.Store(waiting)
	c.boarded.Store(false)
	f.calls.Put(c)
}

// answer hands a call its reply, or puts it away if its caller has gone.
func (f *Fleet) answer(c *call) {
	if c.state.CompareAndSwap(waiting, answered) {
		c.done <- struct{}{}
		return
	}
	f.putCall(c)
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
