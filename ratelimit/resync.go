package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/gatehouse-gateway/gatehouse/ratelimit/internal/breaker"
	"github.com/gatehouse-gateway/gatehouse/ratelimit/internal/script"
)

const (
	// maxSync bounds the calls, by weight, of a script run that only syncs requests.
	maxSync = 256
	// syncTimeout is the timeout of such a run if Options.Timeout is less, because no request waits for it.
	syncTimeout = time.Second
)

// syncState tracks which requests of a local window are stored in Redis. The later ones are unsynced. Requests are numbered, so
// Redis adds each of them once, even if it is sent twice.
//
// Data loss begins a new epoch, in which every request stored before is unsynced again.
type syncState struct {
	writer  uint64 // identifies the window in Redis; see newWriter
	seq     uint64 // number of the last request that this gateway has allowed
	missing uint32 // how many of the newest requests were not stored according to the last reply
	epoch   uint32 // in which that reply's call was sent
}

// allowed numbers one more request, which is unsynced.
func (s *syncState) allowed() {
	s.seq++
	s.missing++
}

// confirm records a reply of Redis to a call sent in epoch: requests up to number stored are stored.
func (s *syncState) confirm(stored uint64, epoch uint32) {
	s.missing, s.epoch = uint32(min(s.seq-min(stored, s.seq), math.MaxUint32)), epoch
}

// unsynced returns how many of the newest requests may be missing in Redis: all, if none were confirmed in epoch.
func (s *syncState) unsynced(epoch uint32) uint64 {
	if s.epoch != epoch {
		return s.seq
	}
	return uint64(s.missing)
}

// newWriter returns a random number from 1 to 1<<40 - 1. It only has to differ from the few other writers of the same
// counter.
func newWriter() uint64 { return 1 + rand.Uint64N(1<<40-1) } //nolint:gosec // need not be secret

// confirmed returns the number of the last request that Redis is known to have, and to keep for at least maxCallTime: Redis
// removes a writer when its last request expires. If it does so earlier than expected, the requests are sent again.
func (w *localWindow) confirmed(now, maxCallTime int64, epoch uint32) uint64 {
	unsynced := w.unsynced(epoch)
	if unsynced >= uint64(w.Total()) { //nolint:gosec // not negative
		return 0
	}
	if at, ok := w.Before(int(unsynced)); !ok || at+w.length <= now+min(maxCallTime, w.length/4) { //nolint:gosec // below Total
		return 0
	}
	return w.seq - unsynced
}

// fillCounter sets the fields of b that describe the window's requests.
func (w *localWindow) fillCounter(b *script.Counter, now, maxCallTime int64, epoch uint32) {
	b.Writer, b.Seq, b.Confirmed = w.writer, w.seq, w.confirmed(now, maxCallTime, epoch)
	b.Unsynced = b.Unsynced[:0]
	n := int(min(b.Seq-b.Confirmed, uint64(w.Total()))) //nolint:gosec // not negative
	for _, e := range w.Last(n) {
		b.Unsynced = append(b.Unsynced, script.Unsynced{Count: e.Count, Age: min(max(0, now-e.At), w.length)})
	}
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

// applyDataLoss records that Redis has fewer requests of the counters than expected.
func (r *request) applyDataLoss() {
	now := r.lock()
	for i := range r.counters {
		if w := r.find(i, now); w != nil && w.writer == r.call.Counters[i].Writer {
			w.confirm(r.call.Replies[i].Stored, r.epoch)
		}
	}
	r.unlock()
}

// dataLost begins a new epoch because data that was stored in epoch is missing, and syncs what may have been lost. It does
// nothing if epoch has ended already.
func (l *exact) dataLost(epoch uint32) {
	if !l.epoch.CompareAndSwap(epoch, epoch+1) {
		return
	}
	l.spawn(func() { l.o.emit(Event{Kind: EventDataLost}) })
	for _, s := range l.shards {
		s.unsynced.Store(true)
		s.syncInBackground()
	}
}

// syncInBackground checks for data loss and syncs unsynced requests, in the background.
func (s *shard) syncInBackground() {
	if s.breaker.State() != breaker.Shared || s.checkpoints.empty() && !s.unsynced.Load() {
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

// addCheckpoints makes the last window of each node in which something was stored a checkpoint, and those after it that were resent.
func (s *shard) addCheckpoints(requests []*request) {
	var nodes map[string]bool
	for _, r := range slices.Backward(requests) {
		i, newest := r.stored()
		if i < 0 {
			continue
		}
		node := s.limiter.backend.node(r.call.Counters[i].Key)
		if nodes[node] {
			continue
		}
		s.checkpoints.add(node, newest)
		if newest.resent {
			continue
		}
		if !s.limiter.backend.cluster {
			return
		}
		if nodes == nil {
			nodes = make(map[string]bool)
		}
		nodes[node] = true
	}
}

// stored returns a counter in which the script stored something, this request or unsynced ones, and its checkpoint; or -1.
func (r *request) stored() (counter int, c checkpoint) {
	if r.err != nil {
		return -1, c
	}
	allowed := r.count
	for i := range r.counters {
		allowed = allowed && r.call.Replies[i].Retry == 0
	}
	for i := range r.counters {
		b, at := &r.call.Counters[i], r.sent // the request is not newer than the call
		if last := len(b.Unsynced) - 1; last >= 0 && !allowed {
			at -= b.Unsynced[last].Age
		} else if !allowed {
			continue
		}
		return i, checkpoint{r.stripes[i], r.counters[i].Limit.Name, r.ids[i], at + b.Window, !allowed && b.Confirmed == 0}
	}
	return -1, c
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
		if w.unsynced(epoch) == 0 || s.limiter.shardOf(w.tag) != s.index {
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
				s.checkpoints.add(s.limiter.backend.node(b.Key), checkpoint{c.stripe, c.policy, c.id, until, b.Confirmed == 0})
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
		if w := c.stripe.windows[c.id]; w != nil && w.writer == b.Writer {
			w.confirm(c.Replies[0].Stored, epoch)
		}
		c.stripe.mu.Unlock()
	}
	if lost {
		s.limiter.dataLost(epoch) //nolint:contextcheck // continues in the background
	}
	return err
}
