package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-gateway/gatehouse/ratelimit/internal/batch"
	"github.com/gatehouse-gateway/gatehouse/ratelimit/internal/resync"
	"github.com/gatehouse-gateway/gatehouse/ratelimit/internal/script"
)

const (
	// clusterShards is into how many ranges of slots a Cluster is divided.
	clusterShards = 16
	// maxCalls is how many requests one script run takes: it bounds for how long it keeps Redis from others, to some 2 ms.
	maxCalls = 256
	// maxSync is how many calls, by weight, a script run takes that only tells Redis of unsynced requests.
	maxSync = 256
	// syncTimeout bounds such a run if Options.Timeout is less: nobody waits for it.
	syncTimeout = time.Second
)

// A shard is the way to one part of Redis that fails by itself: all of a single server, or a range of a Cluster's slots. When
// a Cluster loses a node, only the callers on its slots notice.
type shard struct {
	x       *exact
	index   int
	probe   script.Bucket // which a probe charges
	machine *resync.Machine
	batch   *batch.Batch[request]
	ways    [2]way

	random   func(n int64) int64 // spreads what would otherwise happen at once
	unsynced atomic.Bool         // some window may be
	synced   atomic.Int64        // requests that Redis was told of, since the last outage began
	busy     chan struct{}       // has room for whoever probes, looks or syncs
	spare    runner              // for that

	canaries canaries
}

// A way is what the script runs of one slot of the batch use.
type way struct {
	runner runner
	calls  []*script.Call
}

// runner runs the script, as script.Runner does.
type runner interface {
	Run(ctx context.Context, calls []*script.Call)
}

var errPanicked = errors.New("the Redis client panicked")

func newShard(x *exact, index int) *shard {
	s := &shard{x: x, index: index, spare: x.store.newRunner(), busy: make(chan struct{}, 1), random: x.store.random(index)}
	t := tag(0)
	for x.shardOf(t) != index {
		t++
	}
	s.probe = script.Bucket{
		Key: x.o.Prefix + "{" + string(t.append(nil)) + "}probe", Limit: MaxRequests, Window: MinWindow.Microseconds(), Writer: newWriter(),
	}
	s.machine = resync.NewMachine(x.o.MaxFailures)
	for i := range s.ways {
		s.ways[i].runner = x.store.newRunner()
	}
	s.batch = batch.New(batch.Options[request]{
		Max: maxCalls, Timeout: x.o.Timeout, Run: s.run, Go: x.spawn,
		Lane: func(r *request) int { return int(r.tag & 1) },
	})
	return s
}

// run has a decision about each of the requests: Redis's, or without it.
func (s *shard) run(slot int, requests []*request, oldest time.Time) {
	if cause := s.machine.Cause(); cause != nil {
		for _, r := range requests {
			s.decide(r, cause, false)
		}
		return
	}
	// Once runs fail no request waits longer than Timeout in all.
	began := time.Now()
	if s.machine.Failing() {
		began = oldest
	}
	ctx, cancel := context.WithDeadline(s.x.ctx, began.Add(s.x.o.Timeout))
	defer cancel()
	asked := requests
	for first := true; len(asked) > 0; first = false {
		losses := s.x.losses.Count()
		s.ask(ctx, &s.ways[slot], asked, losses)
		asked = s.lost(asked, losses)
		if !first {
			break
		}
	}
	for _, r := range requests {
		if r.call.Err != nil { // none of them is under way any more
			r.failed()
		}
	}
	failed, err := 0, error(nil)
	for _, r := range requests {
		if r.call.Err == nil {
			r.answered()
			s.x.stats.byRedis.Add(1)
			continue
		}
		s.decide(r, r.call.Err, !r.call.NotRun)
		s.x.stats.byLocal.Add(1)
		if !errors.Is(r.err, script.ErrStale) && !errors.Is(r.err, script.ErrLost) {
			failed, err = failed+1, r.err
		}
	}
	s.remember(requests)
	if 2*failed < len(requests) { // of a Cluster, some part may answer
		err = nil
	}
	if s.x.ctx.Err() == nil && s.machine.Ran(time.Now(), err) {
		s.x.spawn(s.recover)
	}
}

// decide decides about a request without Redis, as OnOutage says. With unknown, Redis may have counted it.
func (s *shard) decide(r *request, cause error, unknown bool) {
	r.err = cause
	if s.x.o.OnOutage == Deny && !unknown {
		r.cancel()
		return
	}
	r.decide(s.x.o.OnOutage == Allow, unknown, s.x.o.Timeout)
	s.unsynced.Store(true)
}

// ask runs the script.
func (s *shard) ask(ctx context.Context, w *way, requests []*request, losses uint32) {
	w.calls = w.calls[:0]
	for _, r := range requests {
		r.ask(s.x.number(), s.x.o.Prefix, s.x.slack, losses)
		r.call.Err = errPanicked
		w.calls = append(w.calls, &r.call)
	}
	s.x.stats.runs.Add(1)
	s.x.stats.asked.Add(uint64(len(w.calls)))
	run(ctx, w.runner, w.calls)
	clear(w.calls)
}

// run has the runner answer the calls. A panic is an error of theirs.
func run(ctx context.Context, r runner, calls []*script.Call) {
	defer func() {
		if v := recover(); v != nil {
			for _, c := range calls {
				c.Err = fmt.Errorf("%w: %v", errPanicked, v)
			}
		}
	}()
	r.Run(ctx, calls)
}

// lost returns the requests to ask about again because Redis has lost data.
func (s *shard) lost(requests []*request, losses uint32) (again []*request) {
	for _, r := range requests {
		if errors.Is(r.call.Err, script.ErrLost) {
			r.lost()
			again = append(again, r)
		}
	}
	if len(again) > 0 {
		s.x.found(losses)
	}
	return again
}

// remember makes a canary of the last window of each node in which something was stored.
func (s *shard) remember(requests []*request) {
	var nodes map[string]bool
	for _, r := range slices.Backward(requests) {
		i, stored := r.stored()
		if !stored {
			continue
		}
		node := s.x.store.node(r.call.Buckets[i].Key)
		if nodes[node] {
			continue
		}
		// Its last request came now, at the latest.
		until := r.sent + r.buckets[i].Limit.Window.Microseconds()
		s.canaries.add(node, canary{r.stripes[i], r.buckets[i].Limit.Name, r.ids[i], until})
		if !s.x.store.cluster {
			return
		}
		if nodes == nil {
			nodes = make(map[string]bool)
		}
		nodes[node] = true
	}
}

// recover probes Redis until it can be asked again.
func (s *shard) recover() {
	x := s.x
	began, cause := time.Now(), s.machine.Cause()
	s.synced.Store(0)
	x.stats.outages.Add(1)
	s.tell(Event{Kind: Unavailable, Cause: cause})
	for s.machine.State() != resync.Shared {
		// Gateways that lost Redis together do not come back to it together.
		wait := x.o.ProbeInterval * time.Duration(90+s.random(20)) / 100
		if x.store.refresh != nil {
			// A node that refuses connections does not make the client look for the one that took over. It looks in the
			// background: ask early.
			early := wait / 5
			if !x.sleep(wait - early) {
				return
			}
			x.store.refresh(x.ctx)
			wait = early
		}
		if !x.sleep(wait) {
			return
		}
		s.busy <- struct{}{}
		ctx, cancel := context.WithTimeout(x.ctx, x.o.Timeout)
		err := s.try(ctx)
		cancel()
		s.machine.Probed(err)
		if err == nil {
			err = s.sync(false)
			s.machine.Synced(err)
			if err == nil {
				s.tell(Event{Kind: Shared, Cause: cause, Lasted: time.Since(began), Synced: int(s.synced.Load())})
			}
		}
		<-s.busy
	}
}

func (s *shard) tell(e Event) {
	e.Part, e.Parts = s.index, len(s.x.shards)
	s.x.tell(e)
}

// try finds out all that can keep a request from being charged: a replica, memory that is full, a missing permission. Then it
// looks.
func (s *shard) try(ctx context.Context) error {
	c := &script.Call{Number: s.x.number(), Charge: true, N: 1}
	c.Buckets[0] = s.probe
	run(ctx, s.spare, []*script.Call{c})
	if c.Err != nil {
		return fmt.Errorf("running the script: %w", c.Err)
	}
	return s.look(ctx)
}

// look finds out whether Redis has lost data: it looks at the canaries, and tells Redis of their unsynced requests.
func (s *shard) look(ctx context.Context) error {
	losses := s.x.losses.Count()
	now := s.x.clock()
	var calls []*syncCall
	asked := make(map[id]bool)
	s.canaries.visit(func(c canary) (alive bool) {
		c.stripe.mu.Lock()
		defer c.stripe.mu.Unlock()
		w := c.stripe.windows[c.id]
		if w == nil {
			return false
		}
		if w.Prune(now, w.span); w.Total() == 0 {
			return false
		}
		if w.pending == 0 { // otherwise a request finds out
			if !asked[c.id] {
				calls = append(calls, s.syncCall(c.stripe, c.policy, c.id, w, losses))
			}
			asked[c.id] = true
		}
		return true
	})
	err := s.send(ctx, calls, losses)
	if err == nil {
		s.canaries.seen(asked)
	}
	return err
}

// lookAround looks, in the background, whether Redis has lost data, and tells it of unsynced requests.
func (s *shard) lookAround() {
	if s.machine.State() != resync.Shared || s.canaries.none() && !s.unsynced.Load() {
		return
	}
	s.x.spawn(func() {
		if !s.x.sleep(time.Duration(s.random(int64(s.x.o.ProbeInterval) / 10))) {
			return
		}
		select {
		case s.busy <- struct{}{}:
			defer func() { <-s.busy }()
		default:
			return
		}
		ctx, cancel := context.WithTimeout(s.x.ctx, s.x.o.Timeout)
		err := s.look(ctx)
		cancel()
		if err == nil {
			_ = s.sync(true) // what is left stays unsynced
		}
	})
}

// A syncCall tells Redis of a window's unsynced requests.
type syncCall struct {
	script.Call
	stripe *stripe
	policy string
	id     id
}

// syncCall makes the call for a window. The stripe is locked.
func (s *shard) syncCall(st *stripe, policy string, i id, w *local, losses uint32) *syncCall {
	c := &syncCall{stripe: st, policy: policy, id: i}
	c.Number, c.N = s.x.number(), 1
	b := &c.Buckets[0]
	b.Key, b.Limit, b.Window = redisKey(s.x.o.Prefix, w.tag, policy, &i), int(w.limit), w.span
	w.tell(b, s.x.clock(), s.x.slack, losses)
	return c
}

// sync tells Redis of all requests that are unsynced. While requests go on being asked about, asking, those of windows with
// requests under way are left to them.
func (s *shard) sync(asking bool) error {
	if !s.unsynced.Swap(false) {
		return nil
	}
	losses := s.x.losses.Count()
	var calls []*syncCall
	weight := 0
	send := func() error {
		// It may take longer than a request would wait: nobody waits for it.
		ctx, cancel := context.WithTimeout(s.x.ctx, max(s.x.o.Timeout, syncTimeout))
		defer cancel()
		err := s.send(ctx, calls, losses)
		if err != nil {
			s.unsynced.Store(true)
		}
		calls, weight = calls[:0], 0
		return err
	}
	for _, t := range *s.x.locals.tables.Load() {
		for i := range t.stripes {
			for _, c := range s.pending(t, &t.stripes[i], asking, losses) {
				if calls, weight = append(calls, c), weight+c.Weight(); weight < maxSync {
					continue
				}
				if err := send(); err != nil {
					return err
				}
			}
		}
	}
	return send()
}

// pending makes the calls for a stripe's unsynced windows on this shard.
func (s *shard) pending(t *table, st *stripe, asking bool, losses uint32) (calls []*syncCall) {
	st.mu.Lock()
	defer st.mu.Unlock()
	now := s.x.clock()
	for i, w := range st.windows {
		if w.Unsynced(losses) == 0 || s.x.shardOf(w.tag) != s.index {
			continue
		}
		w.Prune(now, w.span)
		switch {
		case w.Total() == 0:
		case asking && w.pending > 0:
			s.unsynced.Store(true)
		default:
			calls = append(calls, s.syncCall(st, t.policy, i, w, losses))
		}
	}
	return calls
}

// send makes a script run for calls.
func (s *shard) send(ctx context.Context, calls []*syncCall, losses uint32) (err error) {
	if len(calls) == 0 {
		return nil
	}
	// Windows come in the order of maps: a simulation could not repeat itself.
	slices.SortFunc(calls, func(a, b *syncCall) int { return strings.Compare(a.Buckets[0].Key, b.Buckets[0].Key) })
	batch := make([]*script.Call, len(calls))
	for i, c := range calls {
		batch[i] = &c.Call
	}
	run(ctx, s.spare, batch)
	lost := false
	for _, c := range calls {
		b := &c.Buckets[0]
		switch {
		case c.Err == nil:
			for _, u := range b.Unsynced {
				s.synced.Add(int64(u.Count))
			}
			if last := len(b.Unsynced) - 1; last >= 0 {
				until := s.x.clock() - b.Unsynced[last].Age + b.Window
				s.canaries.add(s.x.store.node(b.Key), canary{c.stripe, c.policy, c.id, until})
			}
		case errors.Is(c.Err, script.ErrLost):
			lost = true
		case errors.Is(c.Err, script.ErrStale):
			continue
		default:
			err = fmt.Errorf("telling Redis of requests: %w", c.Err)
			continue
		}
		c.stripe.mu.Lock()
		if w := c.stripe.windows[c.id]; w != nil && w.Writer == b.Writer {
			w.Confirm(c.Replies[0].Stored, losses)
		}
		c.stripe.mu.Unlock()
	}
	if lost {
		s.x.found(losses) //nolint:contextcheck // what follows goes on in the background
	}
	return err
}

// store is what a limiter needs to know of its Redis.
type store struct {
	cluster   bool
	newRunner func() runner
	node      func(key string) string   // names the node that has a key
	refresh   func(ctx context.Context) // has a Cluster's client look at its nodes again
	random    func(shard int) func(n int64) int64
}

// storeOf is the store behind a client.
func storeOf(client redis.UniversalClient) store {
	_, single := client.(*redis.Client)
	s := store{
		cluster:   !single,
		newRunner: func() runner { return script.NewRunner(client, !single) },
		node:      func(string) string { return "" },
		random:    func(int) func(int64) int64 { return rand.Int64N },
	}
	if c, ok := client.(*redis.ClusterClient); ok {
		s.refresh = c.ReloadState
		s.node = func(key string) string {
			node, err := c.MasterForKey(context.Background(), key)
			if err != nil {
				return key // by itself
			}
			return node.Options().Addr
		}
	}
	return s
}
