package ratelimit

import "github.com/gatehouse-gateway/gatehouse/ratelimit/internal/script"

// request is one Allow or Peek: its counters, their local windows, the call of the script, and the result. It locks the
// stripes of all its counters at once, so that a local decision also counts in all counters or in none.
type request struct {
	windows  *localWindows
	counters []Counter
	states   []State // of the Result
	count    bool    // Allow, not Peek
	pending  bool    // the local windows count it as pending
	tag      groupTag
	once     Once // zero: the request may be accepted again
	ids      [MaxCounters]counterID
	stripes  [MaxCounters]*stripe
	order    [MaxCounters]*stripe // without duplicates, in locking order
	locks    int

	call  script.Call
	sent  int64  // when the call was built
	epoch uint32 // in which the call was built
	by    Decider
	err   error // why Redis did not decide
}

// prepare validates and hashes the counters and finds their stripes.
func (r *request) prepare(l *localWindows, group string, counters []Counter, count bool) (err error) {
	r.windows, r.counters, r.count = l, counters, count
	r.locks, r.pending, r.by, r.err = 0, false, "", nil
	if r.tag, err = hashCounters(Exact, group, counters, &r.ids); err != nil {
		return err
	}
	for i := range counters {
		t, err := l.ofPolicy(counters[i].Limit.Name)
		if err != nil {
			return err
		}
		s := l.stripe(t, &r.ids[i])
		r.stripes[i] = s
		at := r.locks
		for at > 0 && r.order[at-1].order > s.order {
			at--
		}
		if at > 0 && r.order[at-1] == s {
			continue
		}
		copy(r.order[at+1:r.locks+1], r.order[at:r.locks])
		r.order[at] = s
		r.locks++
	}
	return nil
}

// lock locks the stripes and then reads the clock.
func (r *request) lock() int64 {
	for _, s := range r.order[:r.locks] {
		s.mu.Lock()
	}
	return r.windows.clock()
}

func (r *request) unlock() {
	for _, s := range r.order[:r.locks] {
		s.mu.Unlock()
	}
}

// find returns the counter's window, pruned, or nil.
func (r *request) find(i int, now int64) *localWindow {
	w := r.stripes[i].windows[r.ids[i]]
	if w != nil {
		w.Prune(now, w.length)
	}
	return w
}

// findOrCreate returns the counter's window, pruned.
func (r *request) findOrCreate(i int, now int64) *localWindow {
	return r.windows.window(r.stripes[i], &r.ids[i], now, &r.counters[i], r.tag)
}

// dropIfIdle removes the counter's window if it is idle.
func (r *request) dropIfIdle(i int, w *localWindow, now int64) {
	if w.idle(now) {
		delete(r.stripes[i].windows, r.ids[i])
	}
}

// denyOrMarkPending denies the request if the local windows suffice for that and useLocal is set. Otherwise it marks the
// request as pending.
func (r *request) denyOrMarkPending(useLocal bool) (denied bool) {
	now := r.lock()
	defer r.unlock()
	for i := range r.counters {
		if !useLocal {
			break
		}
		if w := r.find(i, now); w != nil && w.state(r.counters[i].Limit, now).RetryAfter > 0 {
			for j := range r.counters {
				r.states[j] = r.find(j, now).state(r.counters[j].Limit, now)
			}
			return true
		}
	}
	if r.count {
		for i := range r.counters {
			r.findOrCreate(i, now).pending++
		}
		r.pending = true
	}
	return false
}

// clearPending undoes the marking as pending. The caller holds the locks. A window may have been evicted meanwhile.
func (r *request) clearPending(now int64) {
	if !r.pending {
		return
	}
	r.pending = false
	for i := range r.counters {
		w := r.findOrCreate(i, now)
		w.pending = max(0, w.pending-1)
	}
}

// applyFailure records that the script run failed.
func (r *request) applyFailure() {
	now := r.lock()
	r.clearPending(now)
	r.unlock()
}

// cancel ends a request that was not counted and has no result.
func (r *request) cancel() {
	now := r.lock()
	r.by = ByLocal
	r.clearPending(now)
	for i := range r.counters {
		if w := r.find(i, now); w != nil {
			r.dropIfIdle(i, w, now)
		}
	}
	r.unlock()
}

// buildCall builds the call of the script, with the unsynced requests of the counters. The call takes at most maxCallTime.
func (r *request) buildCall(number uint64, prefix string, maxCallTime int64, epoch uint32) {
	c := &r.call
	c.Number, c.Count, c.N = number, r.count, len(r.counters)
	c.Mark, c.ID, c.Until = "", r.once.ID, r.once.Until.Unix()
	if r.once != (Once{}) {
		c.Mark = markKey(prefix, r.tag, &r.once.MAC)
	}
	now := r.lock()
	r.sent, r.epoch = now, epoch
	for i := range r.counters {
		b := &r.counters[i]
		to := &c.Counters[i]
		to.Key = redisKey(prefix, r.tag, b.Limit.Name, &r.ids[i])
		to.Limit, to.Window = b.Limit.Requests, b.Limit.Window.Microseconds()
		if w := r.find(i, now); w != nil {
			w.fillCounter(to, now, maxCallTime, epoch)
		} else { // a Peek of a counter without a local window
			to.Writer, to.Confirmed, to.Seq, to.Unsynced = newWriter(), 0, 0, to.Unsynced[:0]
		}
	}
	r.unlock()
}

// applyReplies records the script's replies.
func (r *request) applyReplies() {
	now := r.lock()
	defer r.unlock()
	r.by = ByRedis
	r.clearPending(now)
	allowed := true
	for i := range r.counters {
		reply := &r.call.Replies[i]
		r.states[i] = State{
			Limit:      r.counters[i].Limit,
			Remaining:  reply.Remaining,
			Reset:      microseconds(reply.Reset),
			RetryAfter: microseconds(reply.Retry),
		}
		allowed = allowed && reply.Retry == 0
	}
	for i := range r.counters {
		reply := &r.call.Replies[i]
		w := r.find(i, now)
		if w == nil {
			if !r.count && reply.Retry == 0 {
				continue
			}
			w = r.findOrCreate(i, now)
		}
		if w.writer != r.call.Counters[i].Writer && w.seq == 0 {
			w.writer, w.seq = r.call.Counters[i].Writer, max(reply.Stored, 1)-1 // the window was evicted meanwhile
		}
		if r.count && allowed {
			w.add(now)
		}
		if w.writer == r.call.Counters[i].Writer {
			w.confirm(reply.Stored, r.epoch)
		}
		if reply.Retry > 0 {
			// Counting from when the call was built, the denial never lasts longer than Redis intended.
			w.deniedUntil, w.deniedReset = r.sent+reply.Retry, r.sent+reply.Reset
			w.deniedLimit = int32(r.counters[i].Limit.Requests) //nolint:gosec // at most MaxRequests
		}
		r.dropIfIdle(i, w, now)
	}
}
