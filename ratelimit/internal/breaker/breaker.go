// Package breaker implements the circuit breaker of a shard, which decides when Redis may be asked for decisions. It contains no
// I/O, clock or goroutine.
//
//	         too many flushes fail
//	Shared ────────────────────────▶ Unavailable ◀─┐
//	  ▲                                │           │ a sync fails
//	  │                                │ a probe   │
//	  │ all unsynced                   ▼ succeeds  │
//	  └──────────────────────────── Resyncing ─────┘
//	    requests are stored
//
// Redis is asked only in state Shared. In the other states each gateway decides locally, and the requests that it allows are
// unsynced. Hence the first decision after an outage takes every request into account that this gateway allowed during it,
// except the few allowed while the last of them were sent. Those are synced right after the change to Shared.
package breaker

import (
	"sync"
	"sync/atomic"
	"time"
)

// State is the state of a Breaker.
type State int32

// The states of a Breaker.
const (
	Shared State = iota
	Unavailable
	Resyncing
)

const (
	// ratioInterval is the interval over which the ratio of failed flushes is measured.
	ratioInterval = 10 * time.Second
	// ratioFlushes is the minimum number of flushes for that ratio to count.
	ratioFlushes = 20
)

// Breaker is the circuit breaker of one shard. It is safe for concurrent use.
type Breaker struct {
	maxFailures int

	state   atomic.Int32
	failing atomic.Bool

	mu          sync.Mutex
	cause       error
	consecutive int // failures
	flushes     int
	failures    int
	since       time.Time // when counting flushes and failures began
}

// New returns a Breaker in state Shared. It becomes Unavailable after maxFailures consecutive failed flushes, or when at
// least half of 20 or more flushes within ten seconds failed.
func New(maxFailures int) *Breaker { return &Breaker{maxFailures: maxFailures} }

// State returns the state.
func (b *Breaker) State() State { return State(b.state.Load()) }

// Failing reports whether the last flush failed.
func (b *Breaker) Failing() bool { return b.failing.Load() }

// Cause returns why the state is not Shared; nil if it is.
func (b *Breaker) Cause() error {
	if b.State() == Shared {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cause
}

// FlushDone records the outcome of a flush. It reports whether the Breaker became Unavailable, in which case the caller must
// start to probe Redis.
func (b *Breaker) FlushDone(now time.Time, err error) (unavailable bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failing.Store(err != nil)
	if b.State() != Shared {
		return false
	}
	if now.Sub(b.since) > ratioInterval {
		b.since, b.flushes, b.failures = now, 0, 0
	}
	b.flushes++
	if err == nil {
		b.consecutive = 0
		return false
	}
	b.consecutive, b.failures, b.cause = b.consecutive+1, b.failures+1, err
	if b.consecutive < b.maxFailures && (b.flushes < ratioFlushes || 2*b.failures < b.flushes) {
		return false
	}
	b.enter(Unavailable)
	return true
}

// ProbeDone records the outcome of a probe in state Unavailable.
func (b *Breaker) ProbeDone(err error) { b.next(Unavailable, Resyncing, err) }

// SyncDone records the outcome of sending all unsynced requests in state Resyncing.
func (b *Breaker) SyncDone(err error) { b.next(Resyncing, Shared, err) }

func (b *Breaker) next(from, to State, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.State() != from {
		return
	}
	if err != nil {
		b.cause, to = err, Unavailable
	}
	b.enter(to)
}

func (b *Breaker) enter(s State) {
	if s == Shared {
		b.failing.Store(false)
	}
	b.consecutive, b.flushes, b.failures = 0, 0, 0
	b.state.Store(int32(s))
}
