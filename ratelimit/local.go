package ratelimit

import (
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/gatehouse-gateway/gatehouse/ratelimit/internal/resync"
	"github.com/gatehouse-gateway/gatehouse/ratelimit/internal/window"
)

const (
	// stripeCount spreads the local windows of a policy over locks.
	stripeCount = 32
	// maxPolicies bounds the tables: policies are the operator's, and few.
	maxPolicies = 64
	// evictionSample is how many windows a full stripe looks at, in each of two places, for the one whose loss costs least.
	evictionSample = 8
	// sizeable is from how many windows on a stripe's map is replaced when it is all but empty: maps do not shrink.
	sizeable = 256
)

// locals are a gateway's own view of recent requests: the ones that it allowed, and until when Redis has denied a bucket. Each
// policy has a table of its own, so that a flood of client IPs cannot push out what is known of keys.
type locals struct {
	seed      maphash.Seed
	perStripe int // windows a stripe may hold
	clock     func() int64

	tables  atomic.Pointer[map[string]*table]
	mu      sync.Mutex // held to add a table
	evicted atomic.Uint64
}

type table struct {
	policy  string
	stripes [stripeCount]stripe
}

type stripe struct {
	mu      sync.Mutex
	order   int // stripes are locked in this order
	windows map[id]*local
	grown   bool // the map was sizeable once
}

// local is the local window of one bucket. It goes when nothing in it matters any more.
type local struct {
	window.Window
	resync.Record
	span        int64 // the limit's window in microseconds
	tag         tag
	deniedUntil int64 // by Redis
	deniedReset int64 // when the first unit comes back, by the same reply
	deniedLimit int32 // the limit that this was about
	limit       int32 // the latest limit
	pending     int32 // requests that Redis is being asked about
}

func newLocals(maxEntries int, clock func() int64) *locals {
	l := &locals{
		seed:      maphash.MakeSeed(),
		perStripe: max(1, (maxEntries+stripeCount-1)/stripeCount),
		clock:     clock,
	}
	l.tables.Store(&map[string]*table{})
	return l
}

// table finds or makes a policy's table.
func (l *locals) table(policy string) (*table, error) {
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
	for i := range t.stripes {
		t.stripes[i].order = len(old)*stripeCount + i
		t.stripes[i].windows = make(map[id]*local)
	}
	tables := maps.Clone(old)
	tables[policy] = t
	l.tables.Store(&tables)
	return t, nil
}

// stripe is where a bucket's window is. It is seeded, so that nobody can aim at one.
func (l *locals) stripe(t *table, i *id) *stripe {
	return &t.stripes[maphash.Bytes(l.seed, i[:])%stripeCount]
}

// window finds or makes a bucket's window, pruned. The stripe is locked.
func (l *locals) window(s *stripe, i *id, now int64, b *Bucket, t tag) *local {
	w := s.windows[*i]
	if w == nil {
		if len(s.windows) >= l.perStripe {
			l.evict(s, now)
		}
		w = &local{span: b.Limit.Window.Microseconds(), tag: t, Record: resync.Record{Writer: newWriter()}}
		s.windows[*i] = w
		s.grown = s.grown || len(s.windows) >= sizeable
	}
	w.limit = int32(b.Limit.Requests) //nolint:gosec // at most MaxRequests
	w.Prune(now, w.span)
	return w
}

// newWriter returns a number of 40 bits above 0. It need not be secret: it is only unlike the few others of one bucket.
func newWriter() uint64 { return 1 + rand.Uint64N(1<<40-1) } //nolint:gosec // see above

// evict makes room: of a few windows it forgets one that does not matter any more, else the one that has used the least of
// its limit. While Redis answers nothing is lost with it; in an outage its caller gets that little once more.
func (l *locals) evict(s *stripe, now int64) {
	var victim id
	least := math.Inf(1)
	// A map is ranged over from a random place, but then in order, and windows of one time lie side by side: hence two places.
	for range 2 {
		seen := 0
		for i, w := range s.windows {
			w.Prune(now, w.span)
			if w.idle(now) {
				delete(s.windows, i)
				return
			}
			used := float64(w.Total()) / float64(max(1, w.limit))
			if w.deniedUntil > now {
				used = max(used, 1)
			}
			// Requests under way come back for their window.
			used += float64(w.pending)
			if used < least {
				victim, least = i, used
			}
			if seen++; seen == evictionSample {
				break
			}
		}
	}
	delete(s.windows, victim)
	l.evicted.Add(1)
}

// sweep forgets what does not matter any more.
func (l *locals) sweep() {
	for _, t := range *l.tables.Load() {
		for i := range t.stripes {
			s := &t.stripes[i]
			s.mu.Lock()
			now := l.clock()
			for i, w := range s.windows {
				w.Prune(now, w.span)
				if w.idle(now) {
					delete(s.windows, i)
				}
			}
			if s.grown && len(s.windows) < sizeable/8 {
				kept := make(map[id]*local, len(s.windows))
				maps.Copy(kept, s.windows)
				s.windows, s.grown = kept, false
			}
			s.mu.Unlock()
		}
	}
}

// size is the number of windows.
func (l *locals) size() int {
	n := 0
	for _, t := range *l.tables.Load() {
		for i := range t.stripes {
			s := &t.stripes[i]
			s.mu.Lock()
			n += len(s.windows)
			s.mu.Unlock()
		}
	}
	return n
}

func (w *local) idle(now int64) bool {
	return w.Total() == 0 && w.pending == 0 && w.deniedUntil <= now
}

// base is up to which of this window's requests Redis has stored for certain, still so after slack. It forgets a writer
// whose last request has left the window. (If it forgets earlier than expected, requests are told again that it had.)
func (w *local) base(now, slack int64, losses uint32) uint64 {
	unsynced := w.Unsynced(losses)
	if unsynced >= uint64(w.Total()) { //nolint:gosec // not negative
		return 0
	}
	if at, ok := w.Before(int(unsynced)); !ok || at+w.span <= now+min(slack, w.span/4) { //nolint:gosec // below Total
		return 0
	}
	return w.Seq - unsynced
}

// allowed counts one request.
func (w *local) allowed(now int64) {
	w.Add(now, int(w.limit), w.span)
	w.Record.Allowed()
}

// state is what the local window alone tells of its bucket. w may be nil.
func (w *local) state(limit Limit, now int64) State {
	s := State{Limit: limit, Remaining: limit.Requests, Reset: limit.Window}
	if w == nil {
		return s
	}
	s.Remaining = max(0, limit.Requests-w.Total())
	s.Reset = microseconds(w.Reset(now, w.span))
	s.RetryAfter = microseconds(w.Retry(now, limit.Requests, w.span))
	// That a lower limit was reached says nothing about this one.
	if w.deniedUntil > now && limit.Requests <= int(w.deniedLimit) {
		retry, reset := microseconds(w.deniedUntil-now), microseconds(w.deniedReset-now)
		s.Remaining = 0
		s.RetryAfter = max(s.RetryAfter, retry)
		if reset <= 0 {
			reset = retry
		}
		s.Reset = min(s.Reset, reset)
	}
	return s
}
