package ratelimit

import (
	"fmt"
	"time"

	"github.com/gatehouse-gateway/gatehouse/ratelimit/internal/script"
)

// request is one Allow or Peek: the buckets, where their local windows are, the question to the script, and the result. It
// locks the stripes of all its buckets at once, so that here too all of them are charged or none.
type request struct {
	locals  *locals
	buckets []Bucket
	states  []State // the result's, one for each bucket
	charge  bool
	pending bool // the windows count it as under way
	tag     tag
	ids     [MaxBuckets]id
	tables  [MaxBuckets]*table
	stripes [MaxBuckets]*stripe
	order   [MaxBuckets]*stripe // distinct, in locking order
	locks   int

	call   script.Call
	sent   int64  // when the script was run
	losses uint32 // known then
	by     Decider
	err    error // why there is no result of Redis's
}

// prepare hashes the buckets and finds their stripes.
func (r *request) prepare(l *locals, group string, buckets []Bucket, charge bool) error {
	if len(buckets) == 0 || len(buckets) > MaxBuckets {
		return fmt.Errorf("%w: %d buckets, must be 1 to %d", ErrInvalid, len(buckets), MaxBuckets)
	}
	r.locals, r.buckets, r.charge, r.tag = l, buckets, charge, hashGroup(group)
	r.locks, r.pending, r.by, r.err = 0, false, "", nil
	for i := range buckets {
		b := &buckets[i]
		if err := b.Limit.validate(); err != nil {
			return err
		}
		r.ids[i] = hashBucket(Exact, r.tag, b)
		for j := range i {
			if r.ids[j] == r.ids[i] {
				return fmt.Errorf("%w %q: the same bucket twice", ErrInvalid, b.Limit.Name)
			}
		}
		var err error
		if r.tables[i], err = l.table(b.Limit.Name); err != nil {
			return err
		}
		s := l.stripe(r.tables[i], &r.ids[i])
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

// lock takes the locks and reads the clock under them.
func (r *request) lock() int64 {
	for _, s := range r.order[:r.locks] {
		s.mu.Lock()
	}
	return r.locals.clock()
}

func (r *request) unlock() {
	for _, s := range r.order[:r.locks] {
		s.mu.Unlock()
	}
}

// find is the bucket's window, pruned, or nil.
func (r *request) find(i int, now int64) *local {
	w := r.stripes[i].windows[r.ids[i]]
	if w != nil {
		w.Prune(now, w.span)
	}
	return w
}

// make is the bucket's window, pruned; a new one if need be.
func (r *request) make(i int, now int64) *local {
	return r.locals.window(r.stripes[i], &r.ids[i], now, &r.buckets[i], r.tag)
}

// drop forgets the bucket's window if it does not matter any more.
func (r *request) drop(i int, w *local, now int64) {
	if w.idle(now) {
		delete(r.stripes[i].windows, r.ids[i])
	}
}

// begin denies the request from memory, unless certain is false, or marks its buckets as being asked about.
func (r *request) begin(certain bool) (denied bool) {
	now := r.lock()
	defer r.unlock()
	for i := range r.buckets {
		if !certain {
			break
		}
		if w := r.find(i, now); w != nil && w.state(r.buckets[i].Limit, now).RetryAfter > 0 {
			for j := range r.buckets {
				r.states[j] = r.find(j, now).state(r.buckets[j].Limit, now)
			}
			return true
		}
	}
	if r.charge {
		for i := range r.buckets {
			r.make(i, now).pending++
		}
		r.pending = true
	}
	return false
}

// end ends that its windows count the request as under way. They may have been evicted meanwhile. The stripes are locked.
func (r *request) end(now int64) {
	if !r.pending {
		return
	}
	r.pending = false
	for i := range r.buckets {
		w := r.make(i, now)
		w.pending = max(0, w.pending-1)
	}
}

// failed records that the script run has failed.
func (r *request) failed() {
	now := r.lock()
	r.end(now)
	r.unlock()
}

// cancel ends a request without a result, which Redis has not counted.
func (r *request) cancel() {
	now := r.lock()
	r.by = ByLocal
	r.end(now)
	for i := range r.buckets {
		if w := r.find(i, now); w != nil {
			r.drop(i, w, now)
		}
	}
	r.unlock()
}

// ask makes the question to the script, with what it must be told of the buckets. No request is longer under way than slack.
func (r *request) ask(number uint64, prefix string, slack int64, losses uint32) {
	c := &r.call
	c.Number, c.Charge, c.N = number, r.charge, len(r.buckets)
	now := r.lock()
	r.sent, r.losses = now, losses
	for i := range r.buckets {
		b := &r.buckets[i]
		to := &c.Buckets[i]
		to.Key = redisKey(prefix, r.tag, b.Limit.Name, &r.ids[i])
		to.Limit, to.Window = b.Limit.Requests, b.Limit.Window.Microseconds()
		if w := r.find(i, now); w != nil {
			w.tell(to, now, slack, losses)
		} else { // a Peek of a bucket that this gateway does not know
			to.Writer, to.Base, to.Seq, to.Unsynced = newWriter(), 0, 0, to.Unsynced[:0]
		}
	}
	r.unlock()
}

// tell puts into b what Redis must be told.
func (w *local) tell(b *script.Bucket, now, slack int64, losses uint32) {
	b.Writer, b.Seq, b.Base = w.Writer, w.Seq, w.base(now, slack, losses)
	b.Unsynced = b.Unsynced[:0]
	n := int(min(b.Seq-b.Base, uint64(w.Total()))) //nolint:gosec // not negative
	for _, e := range w.Last(n) {
		b.Unsynced = append(b.Unsynced, script.Unsynced{Count: e.Count, Age: min(max(0, now-e.At), w.span)})
	}
}

// answered records the script's reply.
func (r *request) answered() {
	now := r.lock()
	defer r.unlock()
	r.by = ByRedis
	r.end(now)
	allowed := true
	for i := range r.buckets {
		reply := &r.call.Replies[i]
		r.states[i] = State{
			Limit:      r.buckets[i].Limit,
			Remaining:  reply.Remaining,
			Reset:      microseconds(reply.Reset),
			RetryAfter: microseconds(reply.Retry),
		}
		allowed = allowed && reply.Retry == 0
	}
	for i := range r.buckets {
		reply := &r.call.Replies[i]
		w := r.find(i, now)
		if w == nil {
			if !r.charge && reply.Retry == 0 {
				continue
			}
			w = r.make(i, now)
		}
		if w.Writer != r.call.Buckets[i].Writer && w.Seq == 0 {
			w.Writer, w.Seq = r.call.Buckets[i].Writer, max(reply.Stored, 1)-1 // it was evicted meanwhile
		}
		if r.charge && allowed {
			w.allowed(now)
		}
		if w.Writer == r.call.Buckets[i].Writer {
			w.Confirm(reply.Stored, r.losses)
		}
		if reply.Retry > 0 {
			// From when the script was asked on, which is never longer than Redis meant.
			w.deniedUntil, w.deniedReset = r.sent+reply.Retry, r.sent+reply.Reset
			w.deniedLimit = int32(r.buckets[i].Limit.Requests) //nolint:gosec // at most MaxRequests
		}
		r.drop(i, w, now)
	}
}

// stored returns a bucket into which the script has entered something: this request, or unsynced ones.
func (r *request) stored() (bucket int, ok bool) {
	if r.err != nil {
		return 0, false
	}
	allowed := r.charge
	for i := range r.buckets {
		allowed = allowed && r.call.Replies[i].Retry == 0
	}
	for i := range r.buckets {
		if allowed || len(r.call.Buckets[i].Unsynced) > 0 {
			return i, true
		}
	}
	return 0, false
}

// lost records that Redis has less of the buckets than was known.
func (r *request) lost() {
	now := r.lock()
	for i := range r.buckets {
		if w := r.find(i, now); w != nil && w.Writer == r.call.Buckets[i].Writer {
			w.Confirm(r.call.Replies[i].Stored, r.losses)
		}
	}
	r.unlock()
}

// decide decides without Redis: by the local windows, or, with force, to allow. Requests that Redis is being asked about
// count as if they were allowed: a denial because of them lasts until they have their answers, which soon is. With unknown,
// Redis may have counted this request: then it is counted here in any case.
func (r *request) decide(force, unknown bool, soon time.Duration) {
	now := r.lock()
	defer r.unlock()
	r.by = ByLocal
	if !r.charge {
		for i := range r.buckets {
			r.states[i] = r.find(i, now).state(r.buckets[i].Limit, now)
			if force {
				r.states[i].RetryAfter = 0
			}
		}
		return
	}
	r.end(now)
	var windows [MaxBuckets]*local
	allowed := true
	for i := range r.buckets {
		w := r.make(i, now)
		windows[i] = w
		s := w.state(r.buckets[i].Limit, now)
		if s.RetryAfter == 0 && w.Total()+int(w.pending) >= s.Limit.Requests {
			s.Remaining, s.RetryAfter = 0, soon
		}
		allowed = allowed && s.RetryAfter == 0
		r.states[i] = s
	}
	allowed = allowed || force
	for i, w := range windows[:len(r.buckets)] {
		if allowed || unknown {
			w.allowed(now)
		}
		if allowed {
			r.states[i] = w.state(r.buckets[i].Limit, now)
			r.states[i].RetryAfter = 0
		}
		r.drop(i, w, now)
	}
}
