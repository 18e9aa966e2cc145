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
	// clusterShards is the number of slot ranges that a Cluster is divided into.
	clusterShards = 16
	// maxCalls bounds the requests of one script run, and thereby for how long it blocks Redis.
	maxCalls = 256
	// maxSync bounds the calls, by weight, of a script run that only syncs requests.
	maxSync = 256
	// syncTimeout is the timeout of such a run if Options.Timeout is less, because no request waits for it.
	syncTimeout = time.Second
)

// shard is a part of Redis that can fail independently: a single server, or a range of a Cluster's slots. When a Cluster
// loses a node, only requests for its slots are affected.
type shard struct {
	limiter *exact
	index   int
	probe   script.Counter // counts probes
	breaker *resync.Breaker
	batcher *batch.Batcher[request]
	workers [2]worker

	random     func(n int64) int64 // spreads the load of a fleet's gateways over time
	unsynced   atomic.Bool         // whether there may be unsynced requests
	synced     atomic.Int64        // number of requests synced since the last outage began
	syncing    chan struct{}       // held to probe, check or sync, and thereby to use syncRunner
	syncRunner runner

	checkpoints checkpoints
}

// worker is the state of one of the batcher's two workers.
type worker struct {
	runner runner
	calls  []*script.Call
}

// runner runs the script; see script.Runner.
type runner interface {
	Run(ctx context.Context, calls []*script.Call)
}

var errPanicked = errors.New("the Redis client panicked")

func newShard(l *exact, index int) *shard {
	s := &shard{limiter: l, index: index, syncRunner: l.backend.newRunner(), syncing: make(chan struct{}, 1), random: l.backend.random(index)}
	t := groupTag(0)
	for l.shardOf(t) != index {
		t++
	}
	s.probe = script.Counter{
		Key: l.o.Prefix + "{" + string(t.append(nil)) + "}probe", Limit: MaxRequests, Window: MinWindow.Microseconds(), Writer: newWriter(),
	}
	s.breaker = resync.NewBreaker(l.o.MaxFailures)
	for i := range s.workers {
		s.workers[i].runner = l.backend.newRunner()
	}
	s.batcher = batch.New(batch.Options[request]{
		Max: maxCalls, Timeout: l.o.Timeout, Flush: s.flush, Go: l.spawn,
		Partition: func(r *request) int { return int(r.tag & 1) },
	})
	return s
}

// flush decides a batch of requests: by Redis if it is available, otherwise locally.
func (s *shard) flush(worker int, requests []*request, oldest time.Time) {
	if cause := s.breaker.Cause(); cause != nil {
		for _, r := range requests {
			s.decideOnOutage(r, cause, false)
		}
		return
	}
	// As soon as round trips fail, no request waits longer than Timeout in total.
	began := time.Now()
	if s.breaker.Failing() {
		began = oldest
	}
	ctx, cancel := context.WithDeadline(s.limiter.ctx, began.Add(s.limiter.o.Timeout))
	defer cancel()
	toSend := requests
	for try := 1; try <= 2 && len(toSend) > 0; try++ {
		epoch := s.limiter.epoch.Load()
		s.sendRequests(ctx, &s.workers[worker], toSend, epoch)
		toSend = s.handleDataLoss(toSend, epoch)
	}
	for _, r := range requests {
		if r.call.Err != nil { // first clear all of them: the decisions below count pending requests
			r.applyFailure()
		}
	}
	failed, err := 0, error(nil)
	for _, r := range requests {
		if r.call.Err == nil {
			r.applyReplies()
			s.limiter.stats.byRedis.Add(1)
			continue
		}
		s.decideOnOutage(r, r.call.Err, !r.call.NotRun)
		s.limiter.stats.byLocal.Add(1)
		if !errors.Is(r.err, script.ErrStale) && !errors.Is(r.err, script.ErrLost) {
			failed, err = failed+1, r.err
		}
	}
	s.addCheckpoints(requests)
	if 2*failed < len(requests) { // in a Cluster, another node may be available
		err = nil
	}
	if s.limiter.ctx.Err() == nil && s.breaker.FlushDone(time.Now(), err) {
		s.limiter.spawn(s.recoverFromOutage)
	}
}

// decideOnOutage decides about a request as OnOutage says. With mayBeCounted, Redis may have counted it.
func (s *shard) decideOnOutage(r *request, cause error, mayBeCounted bool) {
	r.err = cause
	if s.limiter.o.OnOutage == OnOutageDeny && !mayBeCounted {
		r.cancel()
		return
	}
	r.decideLocally(s.limiter.o.OnOutage == OnOutageAllow, mayBeCounted, s.limiter.o.Timeout)
	s.unsynced.Store(true)
}

// sendRequests runs the script for requests.
func (s *shard) sendRequests(ctx context.Context, w *worker, requests []*request, epoch uint32) {
	w.calls = w.calls[:0]
	for _, r := range requests {
		r.buildCall(s.limiter.nextNumber(), s.limiter.o.Prefix, s.limiter.maxCallTime, epoch)
		r.call.Err = errPanicked
		w.calls = append(w.calls, &r.call)
	}
	s.limiter.stats.roundTrips.Add(1)
	runScript(ctx, w.runner, w.calls)
	clear(w.calls)
}

// runScript runs the script. A panic of the client becomes the error of all calls.
func runScript(ctx context.Context, r runner, calls []*script.Call) {
	defer func() {
		if v := recover(); v != nil {
			for _, c := range calls {
				c.Err = fmt.Errorf("%w: %v", errPanicked, v)
			}
		}
	}()
	r.Run(ctx, calls)
}

// handleDataLoss returns the requests to send again because Redis had lost data.
func (s *shard) handleDataLoss(requests []*request, epoch uint32) (retry []*request) {
	for _, r := range requests {
		if errors.Is(r.call.Err, script.ErrLost) {
			r.applyDataLoss()
			retry = append(retry, r)
		}
	}
	if len(retry) > 0 {
		s.limiter.dataLost(epoch)
	}
	return retry
}

// addCheckpoints makes the last window of each node in which something was stored a checkpoint.
func (s *shard) addCheckpoints(requests []*request) {
	var nodes map[string]bool
	for _, r := range slices.Backward(requests) {
		i, stored := r.stored()
		if !stored {
			continue
		}
		node := s.limiter.backend.node(r.call.Counters[i].Key)
		if nodes[node] {
			continue
		}
		// Its last request is not newer than the call.
		until := r.sent + r.counters[i].Limit.Window.Microseconds()
		s.checkpoints.add(node, checkpoint{r.stripes[i], r.counters[i].Limit.Name, r.ids[i], until})
		if !s.limiter.backend.cluster {
			return
		}
		if nodes == nil {
			nodes = make(map[string]bool)
		}
		nodes[node] = true
	}
}

// recoverFromOutage probes Redis until it is available and all requests are synced.
func (s *shard) recoverFromOutage() {
	l := s.limiter
	began, cause := time.Now(), s.breaker.Cause()
	s.synced.Store(0)
	s.emit(Event{Kind: EventUnavailable, Cause: cause})
	for s.breaker.State() != resync.Shared {
		// Jitter keeps the fleet's gateways from reconnecting at the same moment.
		wait := l.o.ProbeInterval * time.Duration(90+s.random(20)) / 100
		if l.backend.refresh != nil {
			// Refused connections do not make the client look for a node's replacement. The refresh runs in the background,
			// so start it some time before the probe.
			early := wait / 5
			if !l.sleep(wait - early) {
				return
			}
			l.backend.refresh(l.ctx)
			wait = early
		}
		if !l.sleep(wait) {
			return
		}
		s.syncing <- struct{}{}
		ctx, cancel := context.WithTimeout(l.ctx, l.o.Timeout)
		err := s.probeOnce(ctx)
		cancel()
		s.breaker.ProbeDone(err)
		if err == nil {
			err = s.sync(false)
			s.breaker.SyncDone(err)
			if err == nil {
				s.emit(Event{Kind: EventShared, Cause: cause, Duration: time.Since(began), Synced: int(s.synced.Load())})
			}
		}
		<-s.syncing
	}
}

func (s *shard) emit(e Event) {
	e.Shard, e.Shards = s.index, len(s.limiter.shards)
	s.limiter.o.emit(e)
}

// probeOnce checks that Redis can count requests, which a read-only replica, a lack of memory or a missing permission
// prevents. Then it checks for data loss.
func (s *shard) probeOnce(ctx context.Context) error {
	c := &script.Call{Number: s.limiter.nextNumber(), Count: true, N: 1}
	c.Counters[0] = s.probe
	runScript(ctx, s.syncRunner, []*script.Call{c})
	if c.Err != nil {
		return fmt.Errorf("running the script: %w", c.Err)
	}
	return s.checkForDataLoss(ctx)
}

// checkForDataLoss detects whether Redis has lost data by syncing the windows of the checkpoints.
func (s *shard) checkForDataLoss(ctx context.Context) error {
	epoch := s.limiter.epoch.Load()
	now := s.limiter.clock()
	var calls []*syncCall
	checked := make(map[counterID]bool)
	s.checkpoints.visit(func(c checkpoint) (alive bool) {
		c.stripe.mu.Lock()
		defer c.stripe.mu.Unlock()
		w := c.stripe.windows[c.id]
		if w == nil {
			return false
		}
		if w.Prune(now, w.length); w.Total() == 0 {
			return false
		}
		if w.pending == 0 { // otherwise the pending request detects the loss
			if !checked[c.id] {
				calls = append(calls, s.syncCall(c.stripe, c.policy, c.id, w, epoch))
			}
			checked[c.id] = true
		}
		return true
	})
	err := s.sendSyncCalls(ctx, calls, epoch)
	if err == nil {
		s.checkpoints.markChecked(checked)
	}
	return err
}

// syncInBackground checks for data loss and syncs unsynced requests, in the background.
func (s *shard) syncInBackground() {
	if s.breaker.State() != resync.Shared || s.checkpoints.empty() && !s.unsynced.Load() {
		return
	}
	s.limiter.spawn(func() {
		if !s.limiter.sleep(time.Duration(s.random(int64(s.limiter.o.ProbeInterval) / 10))) {
			return
		}
		select {
		case s.syncing <- struct{}{}:
			defer func() { <-s.syncing }()
		default:
			return
		}
		ctx, cancel := context.WithTimeout(s.limiter.ctx, s.limiter.o.Timeout)
		err := s.checkForDataLoss(ctx)
		cancel()
		if err == nil {
			_ = s.sync(true) // on error they stay unsynced
		}
	})
}

// syncCall is a call that only syncs a window's unsynced requests.
type syncCall struct {
	script.Call
	stripe *stripe
	policy string
	id     counterID
}

// syncCall returns the call for a window. The caller holds the stripe's lock.
func (s *shard) syncCall(st *stripe, policy string, i counterID, w *localWindow, epoch uint32) *syncCall {
	c := &syncCall{stripe: st, policy: policy, id: i}
	c.Number, c.N = s.limiter.nextNumber(), 1
	b := &c.Counters[0]
	b.Key, b.Limit, b.Window = redisKey(s.limiter.o.Prefix, w.tag, policy, &i), int(w.limit), w.length
	w.fillCounter(b, s.limiter.clock(), s.limiter.maxCallTime, epoch)
	return c
}

// sync sends all unsynced requests to Redis. With shared, while Redis decides about requests, windows with pending requests
// are skipped, because those requests sync them.
func (s *shard) sync(shared bool) error {
	if !s.unsynced.Swap(false) {
		return nil
	}
	epoch := s.limiter.epoch.Load()
	var calls []*syncCall
	weight := 0
	send := func() error {
		// No request waits for this, so it may take longer than Options.Timeout.
		ctx, cancel := context.WithTimeout(s.limiter.ctx, max(s.limiter.o.Timeout, syncTimeout))
		defer cancel()
		err := s.sendSyncCalls(ctx, calls, epoch)
		if err != nil {
			s.unsynced.Store(true)
		}
		calls, weight = calls[:0], 0
		return err
	}
	for _, t := range *s.limiter.windows.byPolicy.Load() {
		for i := range t.stripes {
			for _, c := range s.syncCalls(t, &t.stripes[i], shared, epoch) {
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

// syncCalls returns the calls for a stripe's unsynced windows in this shard.
func (s *shard) syncCalls(t *policyWindows, st *stripe, shared bool, epoch uint32) (calls []*syncCall) {
	st.mu.Lock()
	defer st.mu.Unlock()
	now := s.limiter.clock()
	for i, w := range st.windows {
		if w.Unsynced(epoch) == 0 || s.limiter.shardOf(w.tag) != s.index {
			continue
		}
		w.Prune(now, w.length)
		switch {
		case w.Total() == 0:
		case shared && w.pending > 0:
			s.unsynced.Store(true)
		default:
			calls = append(calls, s.syncCall(st, t.name, i, w, epoch))
		}
	}
	return calls
}

// sendSyncCalls runs the script for calls and records the replies.
func (s *shard) sendSyncCalls(ctx context.Context, calls []*syncCall, epoch uint32) (err error) {
	if len(calls) == 0 {
		return nil
	}
	// Map order is random: sort, so that simulations are deterministic.
	slices.SortFunc(calls, func(a, b *syncCall) int { return strings.Compare(a.Counters[0].Key, b.Counters[0].Key) })
	batch := make([]*script.Call, len(calls))
	for i, c := range calls {
		batch[i] = &c.Call
	}
	runScript(ctx, s.syncRunner, batch)
	lost := false
	for _, c := range calls {
		b := &c.Counters[0]
		switch {
		case c.Err == nil:
			for _, u := range b.Unsynced {
				s.synced.Add(int64(u.Count))
			}
			if last := len(b.Unsynced) - 1; last >= 0 {
				until := s.limiter.clock() - b.Unsynced[last].Age + b.Window
				s.checkpoints.add(s.limiter.backend.node(b.Key), checkpoint{c.stripe, c.policy, c.id, until})
			}
		case errors.Is(c.Err, script.ErrLost):
			lost = true
		case errors.Is(c.Err, script.ErrStale):
			continue
		default:
			err = fmt.Errorf("syncing requests: %w", c.Err)
			continue
		}
		c.stripe.mu.Lock()
		if w := c.stripe.windows[c.id]; w != nil && w.Writer == b.Writer {
			w.Confirm(c.Replies[0].Stored, epoch)
		}
		c.stripe.mu.Unlock()
	}
	if lost {
		s.limiter.dataLost(epoch) //nolint:contextcheck // continues in the background
	}
	return err
}

// backend is what a limiter needs to know about its Redis.
type backend struct {
	cluster   bool
	newRunner func() runner
	node      func(key string) string   // identifies the node that stores a key
	refresh   func(ctx context.Context) // makes a Cluster client reload the cluster's topology
	random    func(shard int) func(n int64) int64
}

// backendOf returns the backend of a client.
func backendOf(client redis.UniversalClient) backend {
	_, single := client.(*redis.Client)
	s := backend{
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
				return key // treat the key as a node of its own
			}
			return node.Options().Addr
		}
	}
	return s
}
