package ratelimit

import (
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"sync"
	"sync/atomic"
)

const (
	// shardCount spreads the callers over locks.
	shardCount = 32
	// maxPolicies bounds the tables: policies are the operator's, and few.
	maxPolicies = 64
	// evictionSample is how many entries a full shard looks at, in each of two
	// places, for the one whose loss costs least.
	evictionSample = 8
	// sizeable is from how many entries on a shard's map is made anew when it is
	// all but empty: maps do not shrink.
	sizeable = 256
)

// The ledger is what a gateway knows by itself: its own admissions in each
// bucket's window, and until when Redis has refused a bucket. Each policy has a
// table of its own, so that a flood of addresses cannot push out what is known of
// keys.
type ledger struct {
	seed    maphash.Seed
	perPart int // entries a shard may hold
	clock   func() int64

	tables  atomic.Pointer[map[string]*table]
	mu      sync.Mutex // held to add a table
	evicted atomic.Uint64
}

type table struct {
	policy string
	shards [shardCount]shard
}

type shard struct {
	mu      sync.Mutex
	order   int // shards are locked in this order
	entries map[id]*entry
	grown   bool // the map was sizeable once
}

// An entry is one bucket. It goes when nothing in it matters any more.
type entry struct {
	window
	span         int64 // the limit's window in microseconds
	tag          tag
	refusedUntil int64
	refusedLimit int // the limit that refusal was about
	limit        int // the latest limit
	pending      int // takes that Redis is being asked about
	debt         int // newest admissions that Redis does not know of
}

func newLedger(maxEntries int, clock func() int64) *ledger {
	l := &ledger{
		seed:    maphash.MakeSeed(),
		perPart: max(1, (maxEntries+shardCount-1)/shardCount),
		clock:   clock,
	}
	l.tables.Store(&map[string]*table{})
	return l
}

// table finds or makes a policy's table.
func (l *ledger) table(policy string) (*table, error) {
	if t := (*l.tables.Load())[policy]; t != nil {
		return t, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	old := *l.tables.Load()
	if t := old[policy]; t != nil {
		return t, nil
	}
	if len(old) >= maxPolicies {
		return nil, fmt.Errorf("%w %q: there are %d policies already", ErrInvalid, policy, maxPolicies)
	}
	t := &table{policy: policy}
	for i := range t.shards {
		t.shards[i].order = len(old)*shardCount + i
		t.shards[i].entries = make(map[id]*entry)
	}
	tables := maps.Clone(old)
	tables[policy] = t
	l.tables.Store(&tables)
	return t, nil
}

func (l *ledger) shard(t *table, i *id) *shard {
	// Seeded, so that nobody can aim at one shard.
	return &t.shards[maphash.Bytes(l.seed, i[:])%shardCount]
}

// entry finds or makes an entry. The shard is locked.
func (l *ledger) entry(s *shard, i *id, now int64, b *Bucket, t tag) *entry {
	e := s.entries[*i]
	if e == nil {
		if len(s.entries) >= l.perPart {
			l.evict(s, now)
		}
		e = &entry{span: b.Limit.Window.Microseconds(), tag: t}
		s.entries[*i] = e
		s.grown = s.grown || len(s.entries) >= sizeable
	}
	e.limit = b.Limit.Requests
	return e
}

// evict makes room: of a few entries it forgets one that does not matter any
// more, else the one that has used the least of its limit. While Redis answers
// nothing is lost with it; in an outage its caller gets that little once more.
func (l *ledger) evict(s *shard, now int64) {
	var victim id
	least := math.Inf(1)
	// A map is ranged over from a random place, but then in order, and entries of
	// one time lie side by side: hence two places.
	for range 2 {
		seen := 0
		for i, e := range s.entries {
			e.prune(now, e.span)
			if e.idle(now) {
				delete(s.entries, i)
				return
			}
			used := float64(e.total) / float64(max(1, e.limit))
			if e.refusedUntil > now {
				used = max(used, 1)
			}
			// Takes under way come back for their entry.
			used += float64(e.pending)
			if used < least {
				victim, least = i, used
			}
			if seen++; seen == evictionSample {
				break
			}
		}
	}
	delete(s.entries, victim)
	l.evicted.Add(1)
}

// sweep forgets what does not matter any more.
func (l *ledger) sweep() {
	for _, t := range *l.tables.Load() {
		for i := range t.shards {
			s := &t.shards[i]
			s.mu.Lock()
			now := l.clock()
			for i, e := range s.entries {
				e.prune(now, e.span)
				if e.idle(now) {
					delete(s.entries, i)
				}
			}
			if s.grown && len(s.entries) < sizeable/8 {
				kept := make(map[id]*entry, len(s.entries))
				maps.Copy(kept, s.entries)
				s.entries, s.grown = kept, false
			}
			s.mu.Unlock()
		}
	}
}

// size is the number of entries.
func (l *ledger) size() int {
	n := 0
	for _, t := range *l.tables.Load() {
		for i := range t.shards {
			s := &t.shards[i]
			s.mu.Lock()
			n += len(s.entries)
			s.mu.Unlock()
		}
	}
	return n
}

func (e *entry) idle(now int64) bool {
	return e.total == 0 && e.pending == 0 && e.refusedUntil <= now
}

// takeDebts hands out what Redis does not know of, oldest first: what it was never
// told, and what came before it lost its memory, if it has (0 if not).
func (e *entry) takeDebts(now, lost int64) []debt {
	if e.debt == 0 && lost == 0 {
		return nil
	}
	if lost != 0 {
		// An entry that was open then holds requests from before.
		lost += width(e.limit, e.span) - 1
	}
	list := e.debts(now, lost, e.debt)
	e.debt = 0
	return list
}

// giveBack takes debts back that could not be settled.
func (e *entry) giveBack(list []debt) {
	for _, d := range list {
		e.debt += d.count
	}
	e.debt = min(e.debt, e.total)
}

// An op is one Take's or Peek's dealings with the ledger. It locks the shards of
// all its buckets at once: all or nothing holds here too.
type op struct {
	ledger  *ledger
	buckets []Bucket
	tag     tag
	ids     [MaxBuckets]id
	tables  [MaxBuckets]*table
	shards  [MaxBuckets]*shard
	order   [MaxBuckets]*shard // distinct, in locking order
	locks   int
	began   int64
}

// prepare hashes the buckets and finds their shards.
func (o *op) prepare(l *ledger, a Algorithm, group string, buckets []Bucket) error {
	if len(buckets) == 0 || len(buckets) > MaxBuckets {
		return fmt.Errorf("%w: %d buckets, allowed are 1 to %d", ErrInvalid, len(buckets), MaxBuckets)
	}
	o.ledger, o.buckets, o.tag = l, buckets, hashGroup(group)
	for i := range buckets {
		b := &buckets[i]
		if err := b.Limit.validate(); err != nil {
			return err
		}
		o.ids[i] = hashBucket(a, o.tag, b)
		for j := range i {
			if o.ids[j] == o.ids[i] {
				return fmt.Errorf("%w %q: the same bucket twice", ErrInvalid, b.Limit.Name)
			}
		}
		var err error
		if o.tables[i], err = l.table(b.Limit.Name); err != nil {
			return err
		}
		s := l.shard(o.tables[i], &o.ids[i])
		o.shards[i] = s
		at := o.locks
		for at > 0 && o.order[at-1].order > s.order {
			at--
		}
		if at > 0 && o.order[at-1] == s {
			continue
		}
		copy(o.order[at+1:o.locks+1], o.order[at:o.locks])
		o.order[at] = s
		o.locks++
	}
	return nil
}

// lock takes the locks and reads the clock under them.
func (o *op) lock() int64 {
	for _, s := range o.order[:o.locks] {
		s.mu.Lock()
	}
	return o.ledger.clock()
}

func (o *op) unlock() {
	for _, s := range o.order[:o.locks] {
		s.mu.Unlock()
	}
}

// find is the bucket's entry, or nil; pruned.
func (o *op) find(i int, now int64) *entry {
	e := o.shards[i].entries[o.ids[i]]
	if e != nil {
		e.prune(now, e.span)
	}
	return e
}

// make is the bucket's entry, a new one if need be; pruned.
func (o *op) make(i int, now int64) *entry {
	e := o.ledger.entry(o.shards[i], &o.ids[i], now, &o.buckets[i], o.tag)
	e.prune(now, e.span)
	return e
}

// drop forgets the bucket's entry if it does not matter any more.
func (o *op) drop(i int, e *entry, now int64) {
	if e.idle(now) {
		delete(o.shards[i].entries, o.ids[i])
	}
}

// state is what the ledger alone knows of a bucket; e may be nil. With strict,
// what this gateway itself has admitted can refuse.
func (o *op) state(i int, e *entry, now int64, strict bool) State {
	limit := o.buckets[i].Limit
	s := State{Limit: limit, Remaining: limit.Requests, Reset: limit.Window}
	if e == nil {
		return s
	}
	s.Remaining = max(0, limit.Requests-e.total)
	s.Reset = microseconds(e.reset(now, e.span))
	if strict {
		s.RetryAfter = microseconds(e.retry(now, limit.Requests, e.span))
	}
	// A verdict about a lower limit says nothing about this one.
	if e.refusedUntil > now && limit.Requests <= e.refusedLimit {
		s.Remaining = 0
		s.RetryAfter = max(s.RetryAfter, microseconds(e.refusedUntil-now))
		if e.total == 0 {
			s.Reset = s.RetryAfter
		}
	}
	return s
}

// refuse says whether the buckets are refused from memory, and fills in their
// states if so. Otherwise it leaves the locks held.
func (o *op) refuse(states []State, strict bool) (refused bool, now int64) {
	now = o.lock()
	o.began = now
	for i := range o.buckets {
		if e := o.find(i, now); e != nil && o.state(i, e, now, strict).RetryAfter > 0 {
			refused = true
			break
		}
	}
	if !refused {
		return false, now
	}
	for i := range o.buckets {
		states[i] = o.state(i, o.find(i, now), now, strict)
	}
	o.unlock()
	return true, now
}

// begin refuses from memory, unless forced not to, or marks every bucket as being
// asked about. With settle it hands out the debts of the buckets, to go along
// with the question.
func (o *op) begin(states []State, strict, settle, force bool) (refused bool, debts *[MaxBuckets][]debt) {
	var now int64
	if force {
		now = o.lock()
		o.began = now
	} else if refused, now = o.refuse(states, strict); refused {
		return true, nil
	}
	for i := range o.buckets {
		e := o.make(i, now)
		e.pending++
		if settle && e.debt > 0 {
			if debts == nil {
				debts = new([MaxBuckets][]debt)
			}
			debts[i] = e.takeDebts(now, 0)
		}
	}
	o.unlock()
	return false, debts
}

// end is the end of asking about one bucket. The entry may have been
// evicted meanwhile.
func (o *op) end(i int, now int64, debts *[MaxBuckets][]debt) *entry {
	e := o.make(i, now)
	e.pending = max(0, e.pending-1)
	if debts != nil {
		e.giveBack(debts[i])
	}
	return e
}

// cancel ends a take without a verdict.
func (o *op) cancel(debts *[MaxBuckets][]debt) {
	now := o.lock()
	for i := range o.buckets {
		o.drop(i, o.end(i, now, debts), now)
	}
	o.unlock()
}

// admitted records an admission of Redis's. It can still turn it down: if Redis
// has lost what it knew, this gateway alone does not admit more than the limit.
func (o *op) admitted(states []State, strict bool) bool {
	now := o.lock()
	defer o.unlock()
	var entries [MaxBuckets]*entry
	full := false
	for i := range o.buckets {
		entries[i] = o.end(i, now, nil)
		full = full || strict && entries[i].total >= o.buckets[i].Limit.Requests
	}
	for i, e := range entries[:len(o.buckets)] {
		if full {
			states[i] = o.state(i, e, now, strict)
			o.drop(i, e, now)
			continue
		}
		e.add(now, o.buckets[i].Limit.Requests, e.span)
		// What this gateway knows may be more than what Redis still knows.
		if own := o.state(i, e, now, false); strict && own.Remaining < states[i].Remaining {
			states[i].Remaining, states[i].Reset = own.Remaining, own.Reset
		}
	}
	return !full
}

// refusedBy records a refusal of Redis's: its buckets need not be asked about
// before their time. It counts from when the question was put, which is never
// longer than Redis meant.
func (o *op) refusedBy(states []State, pending bool) {
	now := o.lock()
	for i := range o.buckets {
		if !pending && states[i].RetryAfter == 0 {
			continue
		}
		e := o.make(i, now)
		if pending {
			e.pending = max(0, e.pending-1)
		}
		if states[i].RetryAfter > 0 {
			e.refusedUntil = o.began + states[i].RetryAfter.Microseconds()
			e.refusedLimit = o.buckets[i].Limit.Requests
		}
		o.drop(i, e, now)
	}
	o.unlock()
}

// local decides without Redis. Takes that are still being asked about count as
// if they were admitted. With force it admits whatever is used already.
func (o *op) local(states []State, debts *[MaxBuckets][]debt, force, owe bool, soon int64) bool {
	now := o.lock()
	defer o.unlock()
	var entries [MaxBuckets]*entry
	full := false
	for i := range o.buckets {
		e := o.end(i, now, debts)
		entries[i] = e
		s := o.state(i, e, now, true)
		if s.RetryAfter == 0 && e.total+e.pending >= s.Limit.Requests {
			// Whether there is room is known when those have their verdict.
			s.Remaining, s.RetryAfter = 0, microseconds(soon)
		}
		full = full || s.RetryAfter > 0
		states[i] = s //nolint:gosec // there is one for each bucket
	}
	for i, e := range entries[:len(o.buckets)] {
		if full && !force {
			o.drop(i, e, now)
			continue
		}
		e.add(now, o.buckets[i].Limit.Requests, e.span)
		if owe {
			e.debt++
		}
		states[i] = o.state(i, e, now, false)
		states[i].RetryAfter = 0
	}
	return !full || force
}

// look is local for a Peek.
func (o *op) look(states []State, strict bool) {
	now := o.lock()
	for i := range o.buckets {
		states[i] = o.state(i, o.find(i, now), now, strict)
	}
	o.unlock()
}
