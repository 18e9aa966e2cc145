package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-gateway/gatehouse/ratelimit/internal/batch"
	"github.com/gatehouse-gateway/gatehouse/ratelimit/internal/breaker"
	"github.com/gatehouse-gateway/gatehouse/ratelimit/internal/script"
)

const (
	// clusterShards is the number of slot ranges that a Cluster is divided into.
	clusterShards = 16
	// maxCalls bounds the requests of one script run, and thereby for how long it blocks Redis.
	maxCalls = 256
)

// shard is a part of Redis that can fail independently: a single server, or a range of a Cluster's slots. When a Cluster
// loses a node, only requests for its slots are affected.
type shard struct {
	limiter *exact
	index   int
	probe   script.Counter // counts probes
	breaker *breaker.Breaker
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
	s.breaker = breaker.New(l.o.MaxFailures)
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
		// A Cluster refuses scripts with several keys for a slot that migrates: other keys of the shard are available.
		if !errors.Is(r.err, script.ErrStale) && !errors.Is(r.err, script.ErrLost) && !redis.IsTryAgainError(r.err) {
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

func (s *shard) emit(e Event) {
	e.Shard, e.Shards = s.index, len(s.limiter.shards)
	s.limiter.o.emit(e)
}

// backend is what a limiter needs to know about its Redis.
type backend struct {
	cluster   bool
	newRunner func() runner
	forget    func(ctx context.Context, mark string, id []byte) error
	node      func(key string) string // identifies the node that stores a key
	random    func(shard int) func(n int64) int64
}

// forgetMark deletes the mark of one request, and not that of a repetition that was accepted since.
var forgetMark = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end return 0`) //nolint:gochecknoglobals // constant

// backendOf returns the backend of a client.
func backendOf(client redis.UniversalClient) backend {
	_, single := client.(*redis.Client)
	s := backend{
		cluster:   !single,
		newRunner: func() runner { return script.NewRunner(client, !single) },
		forget: func(ctx context.Context, mark string, id []byte) error {
			return forgetMark.Run(ctx, client, []string{mark}, id).Err() //nolint:wrapcheck // Forget wraps it
		},
		node:   func(string) string { return "" },
		random: func(int) func(int64) int64 { return rand.Int64N },
	}
	if c, ok := client.(*redis.ClusterClient); ok {
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
