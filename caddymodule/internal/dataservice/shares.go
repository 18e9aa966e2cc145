package dataservice

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

const (
	// DefaultInFlight is how many exchanges one key may have in progress on one gateway.
	DefaultInFlight = 32

	// inFlightWait is how long an exchange above that number waits for another to end.
	inFlightWait = 5 * time.Second

	// Responses above largeResponse bytes share largeResponsesBytes of memory; a page of records is much smaller. One business
	// may hold a quarter of it, or one response if that is more. So may one caller of public operations, and all of these together half of it.
	// Beside other data services, so may the responses of one, which could send them a byte at a time.
	largeResponse       = 256 << 10
	largeResponsesBytes = 64 << 20
	largeShares         = 4
	firstMemory         = 8 << 20 // what must be free before a response is read that may take more

	// stallTimeout is how long a data service may send nothing of a large response while other businesses' large responses need its
	// memory.
	stallTimeout = time.Second
)

// Shares limits the exchanges in progress of each key, business or client IP, and the memory that large responses of each business
// take, so that none can use up what others need. All data services of a configuration have the same Shares.
type Shares struct {
	inFlight int
	wait     time.Duration // for one more exchange of a key

	mu        sync.Mutex
	keys      map[string]*keyShare
	free      int64              // bytes of memory for large responses
	claimed   int64              // bytes that responses which are being read may take in all
	held      map[string]int64   // by business: what its responses have taken, or may take while they are being read; anyone: those of public operations
	services  map[*Service]int64 // the same by data service, of those that are open
	waiting   []*waiter          // for memory, the first come first
	exhausted bool               // one of them needs more than is free
}

// keyShare is the semaphore of one key's exchanges.
type keyShare struct {
	*semaphore.Weighted
	users int // exchanges that hold the semaphore or wait for it
}

// anyone is the business of all callers of public operations in Shares.held, and what those of each begin with.
const anyone = "- "

// memory is what a large response takes of the shared memory, in bytes.
type memory struct {
	service  *Service
	business string // or anyone and the caller
	claim    int64  // the most that it may take while it is being read; zero if it is not
	held     int64
}

type waiter struct {
	*memory

	size  int64         // the claim
	ready chan struct{} // closed when the waiter has the memory
}

// NewShares returns Shares with a maximum of exchanges in progress for each key. Zero means DefaultInFlight.
func NewShares(inFlight int) *Shares {
	return &Shares{
		inFlight: cmp.Or(inFlight, DefaultInFlight), wait: inFlightWait, keys: map[string]*keyShare{}, free: largeResponsesBytes, held: map[string]int64{},
		services: map[*Service]int64{},
	}
}

// open adds a data service.
func (s *Shares) open(service *Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.services[service] = 0
}

// close removes a data service. Its exchanges may still be in progress.
func (s *Shares) close(service *Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.services, service)
	s.grant()
}

// Begin waits until the key may have another exchange in progress, at most until the deadline, unless that is zero. The error wraps
// upstream.ErrTooManyCalls if it takes too long, or the context ends. After success, the caller must call End.
func (s *Shares) Begin(ctx context.Context, key string, deadline time.Time) error {
	if key == "" {
		return nil
	}
	s.mu.Lock()
	share := s.keys[key]
	if share == nil {
		share = &keyShare{Weighted: semaphore.NewWeighted(int64(s.inFlight))}
		s.keys[key] = share
	}
	share.users++
	s.mu.Unlock()
	if share.TryAcquire(1) {
		return nil
	}
	until := time.Now().Add(s.wait)
	if !deadline.IsZero() && deadline.Before(until) {
		until = deadline
	}
	wait, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if share.Acquire(wait, 1) == nil {
		return nil
	}
	s.leave(key, share)
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", upstream.ErrTooManyCalls, context.Cause(ctx))
	}
	return upstream.ErrTooManyCalls
}

// End ends an exchange of a key.
func (s *Shares) End(key string) {
	if key == "" {
		return
	}
	s.mu.Lock()
	share := s.keys[key]
	s.mu.Unlock()
	share.Release(1)
	s.leave(key, share)
}

// leave ends one use of a key's share, and deletes a share that is no longer used.
func (s *Shares) leave(key string, share *keyShare) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if share.users--; share.users == 0 {
		delete(s.keys, key)
	}
}

// acquireMemory waits for the memory of a response that may take size bytes. Until callers have read other responses, m may hold less. Then the response
// must call acquireMemory again before it takes more. After success, the caller must call releaseMemory.
func (s *Shares) acquireMemory(ctx context.Context, m *memory, size int64) error {
	w := &waiter{memory: m, size: size, ready: make(chan struct{})}
	s.mu.Lock()
	if m.claim > 0 {
		s.waiting = slices.Insert(s.waiting, 0, w) // what it holds cannot be given back before it has the rest
	} else {
		s.waiting = append(s.waiting, w)
	}
	s.grant()
	s.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting, w); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		s.grant() // others may have waited behind it
		return context.Cause(ctx)
	}
	return nil // granted at the last moment
}

// releaseMemory gives the memory of a response back, except for the bytes that it keeps until its caller has read it.
func (s *Shares) releaseMemory(m *memory, keep int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold(m, keep-max(m.claim, m.held))
	s.free += m.held - keep
	s.claimed -= m.claim
	m.claim, m.held = 0, keep
	s.grant()
}

// grant gives memory to waiters in their order, but passes over businesses and data services that hold their share already. Responses may be read
// at the same time if all of their claims fit into the memory: then each of them gets the rest of its claim when callers have read those that are
// not being read any more. The caller must hold mu.
func (s *Shares) grant() {
	s.exhausted = false // once it is true, nobody overtakes the waiter that does not fit
	s.waiting = slices.DeleteFunc(s.waiting, func(w *waiter) bool {
		isNew := w.claim == 0
		over := func(held, share int64) bool { return isNew && held > 0 && held+w.size > share }
		if s.exhausted || over(s.held[w.business], largeResponsesBytes/largeShares) ||
			over(s.held[anyone], largeResponsesBytes/2) && strings.HasPrefix(w.business, anyone) ||
			over(s.services[w.service], largeResponsesBytes/2) && len(s.services) > 1 {
			return false
		}
		if isNew {
			s.exhausted = s.claimed+w.size > largeResponsesBytes || s.free < min(w.size, firstMemory)
		} else {
			s.exhausted = s.free < w.claim-w.memory.held
		}
		if s.exhausted {
			return false
		}
		if isNew {
			w.claim = w.size
			s.claimed += w.size
			s.hold(w.memory, w.size)
		}
		n := min(w.claim-w.memory.held, s.free)
		w.memory.held += n
		s.free -= n
		close(w.ready)
		return true
	})
}

// hold adds to what the business and the data service of a response hold. The caller must hold mu.
func (s *Shares) hold(m *memory, n int64) {
	for _, account := range []string{m.business, anyone} {
		if account != m.business && !strings.HasPrefix(m.business, anyone) {
			continue
		}
		if s.held[account] += n; s.held[account] == 0 {
			delete(s.held, account)
		}
	}
	if _, isOpen := s.services[m.service]; isOpen {
		s.services[m.service] += n
	}
}

// isContended reports whether a large response waits although its business has not taken up its share. What waits for its own business's share
// does not count: no other business could help it.
func (s *Shares) isContended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exhausted
}
