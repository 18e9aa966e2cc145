package ratelimit

import (
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"sync"
	"sync/atomic"

	"github.com/gatehouse-gateway/gatehouse/ratelimit/internal/window"
)

const (
	// stripeCount is the number of stripes, each with a lock of its own, that the local windows of a policy are spread over.
	stripeCount = 32
	// maxPolicies bounds the number of policies. Their names come from the operator.
	maxPolicies = 64
	// evictionSample is how many windows of a full stripe are examined, twice, to find the one whose loss matters least.
	evictionSample = 8
)

// localWindows is a gateway's own view of recent requests: those that it allowed, and for how long Redis has denied a
// counter. Each policy has its own, so that a flood of client IPs cannot evict the windows of keys.
type localWindows struct {
	seed      maphash.Seed
	perStripe int // maximum number of windows of a stripe
	clock     func() int64

	byPolicy atomic.Pointer[map[string]*policyWindows]
	mu       sync.Mutex // serializes adding a policy
}

// policyWindows holds the local windows of one policy.
type policyWindows struct {
	name    string
	stripes [stripeCount]stripe
}

type stripe struct {
	mu      sync.Mutex
	order   int // in which stripes are locked
	windows map[counterID]*localWindow
}

// localWindow is the local window of one counter. It is removed as soon as it is idle.
type localWindow struct {
	window.Window
	syncState
	length      int64 // the limit's window in microseconds
	tag         groupTag
	deniedUntil int64 // by Redis
	deniedReset int64 // when the oldest request expires, by the same reply
	deniedLimit int32 // the limit that was denied
	limit       int32 // of the latest request
	pending     int32 // requests waiting for a reply of Redis
}

func newLocalWindows(maxEntries int, clock func() int64) *localWindows {
	l := &localWindows{
		seed:      maphash.MakeSeed(),
		perStripe: max(1, (maxEntries+stripeCount-1)/stripeCount),
		clock:     clock,
	}
	l.byPolicy.Store(&map[string]*policyWindows{})
	return l
}

// ofPolicy returns a policy's windows, and adds the policy if necessary.
func (l *localWindows) ofPolicy(policy string) (*policyWindows, error) {
	if t := (*l.byPolicy.Load())[policy]; t != nil {
		return t, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	old := *l.byPolicy.Load()
	if t := old[policy]; t != nil {
		return t, nil
	}
	if len(old) >= maxPolicies {
		return nil, fmt.Errorf("%w %q: there must be at most %d policies", ErrInvalid, policy, maxPolicies)
	}
	t := &policyWindows{name: policy}
	for i := range t.stripes {
		t.stripes[i].order = len(old)*stripeCount + i
		t.stripes[i].windows = make(map[counterID]*localWindow)
	}
	policies := maps.Clone(old)
	policies[policy] = t
	l.byPolicy.Store(&policies)
	return t, nil
}

// stripe returns the stripe of a counter. The hash is seeded, so that callers cannot overload a single stripe.
func (l *localWindows) stripe(t *policyWindows, i *counterID) *stripe {
	return &t.stripes[maphash.Bytes(l.seed, i[:])%stripeCount]
}

// window returns a counter's window, pruned, and creates it if necessary. The caller holds the stripe's lock.
func (l *localWindows) window(s *stripe, i *counterID, now int64, c *Counter, t groupTag) *localWindow {
	w := s.windows[*i]
	if w == nil {
		if len(s.windows) >= l.perStripe {
			l.evict(s, now)
		}
		w = &localWindow{length: c.Limit.Window.Microseconds(), tag: t, syncState: syncState{writer: newWriter()}}
		s.windows[*i] = w
	}
	w.limit = int32(c.Limit.Requests) //nolint:gosec // at most MaxRequests
	w.Prune(now, w.length)
	return w
}

// evict removes a window: of a few candidates an idle one, otherwise the one with the lowest share of its limit in use.
// While Redis is available nothing is lost. During an outage, that share becomes available to its caller again.
func (l *localWindows) evict(s *stripe, now int64) {
	var victim counterID
	least := math.Inf(1)
	// Map iteration starts at a random place but then visits neighbours, which are of similar age: hence two iterations.
	for range 2 {
		seen := 0
		for i, w := range s.windows {
			w.Prune(now, w.length)
			if w.idle(now) {
				delete(s.windows, i)
				return
			}
			used := float64(w.Total()) / float64(max(1, w.limit))
			if w.deniedUntil > now {
				used = max(used, 1)
			}
			// Pending requests would recreate their window.
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
}

// sweep removes idle windows.
func (l *localWindows) sweep() {
	for _, t := range *l.byPolicy.Load() {
		for i := range t.stripes {
			s := &t.stripes[i]
			s.mu.Lock()
			now := l.clock()
			for i, w := range s.windows {
				w.Prune(now, w.length)
				if w.idle(now) {
					delete(s.windows, i)
				}
			}
			s.mu.Unlock()
		}
	}
}

// idle reports whether the window has no effect on further decisions.
func (w *localWindow) idle(now int64) bool {
	return w.Total() == 0 && w.pending == 0 && w.deniedUntil <= now
}

// add counts one request.
func (w *localWindow) add(now int64) {
	w.Add(now, int(w.limit), w.length)
	w.allowed()
}

// state returns the state of the counter according to the local window alone. w may be nil.
func (w *localWindow) state(limit Limit, now int64) State {
	s := State{Limit: limit, Remaining: limit.Requests, Reset: limit.Window}
	if w == nil {
		return s
	}
	s.Remaining = max(0, limit.Requests-w.Total())
	s.Reset = microseconds(w.Reset(now, w.length))
	s.RetryAfter = microseconds(w.Retry(now, limit.Requests, w.length))
	// A denial of a lower limit does not apply to this one.
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
