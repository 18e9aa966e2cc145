// Package resync decides what Redis must be told, and when it may be asked, after an outage or a loss of data. It has no
// clock, no goroutine and no Redis.
//
// A Record is what a gateway knows of one window in Redis: how many of the requests that it allowed are stored there. The
// requests after those are unsynced. Redis enters each of them once, whatever is sent twice, because they are numbered.
//
// A Machine is the state of one part of Redis:
//
//	         too many runs fail
//	Shared ──────────────────────▶ Unavailable ◀─┐
//	  ▲                              │           │ a run fails
//	  │                              │ a probe   │
//	  │ all unsynced                 ▼ succeeds  │
//	  └────────────────────────── Resyncing ─────┘
//	    requests are stored
//
// Redis is asked about requests in state Shared only. In the other two each gateway decides by itself, and what it allows is
// unsynced. So the first request that Redis is asked about after an outage finds everything there that was allowed in it.
//
// A loss of data does not change the state: it makes every request unsynced that was stored before it (Losses), and the
// gateway sends them while it goes on asking.
package resync

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Record is what a gateway knows of one of its windows in Redis.
type Record struct {
	// Writer identifies the window in Redis: a random number of 40 bits, above 0.
	Writer uint64
	// Seq is the number of the last request that this gateway has allowed.
	Seq uint64

	unsynced uint32 // how many of the newest Redis did not have, by its last reply
	losses   uint32 // the losses of data that were known when that reply was asked for
}

// Allowed numbers one more request, which is unsynced.
func (r *Record) Allowed() {
	r.Seq++
	r.unsynced++
}

// Confirm records a reply of Redis: so many requests are stored. Losses is what Losses.Count was when Redis was asked.
func (r *Record) Confirm(stored uint64, losses uint32) {
	r.unsynced, r.losses = uint32(min(r.Seq-min(stored, r.Seq), math.MaxUint32)), losses
}

// Unsynced is how many of the newest requests Redis does not have for certain: all, after a loss of data.
func (r *Record) Unsynced(losses uint32) uint64 {
	if r.losses != losses {
		return r.Seq
	}
	return uint64(r.unsynced)
}

// Losses counts how often Redis was found to have lost data. It is for all windows of a gateway.
type Losses struct{ n atomic.Uint32 }

// Count is how many losses are known.
func (l *Losses) Count() uint32 { return l.n.Load() }

// Found records that a window is not stored as it was when known losses were known. It reports whether that is news.
func (l *Losses) Found(known uint32) bool { return l.n.CompareAndSwap(known, known+1) }

// State is whether a part of Redis may be asked.
type State int32

// The states.
const (
	Shared State = iota
	Unavailable
	Resyncing
)

// String implements fmt.Stringer.
func (s State) String() string { return [...]string{"shared", "unavailable", "resyncing"}[s] }

const (
	// ratioInterval is how long runs are counted for the second rule of Machine.Ran.
	ratioInterval = 10 * time.Second
	// ratioRuns is from how many runs on that rule applies.
	ratioRuns = 20
)

// Machine is the state of one part of Redis. Its methods may be called from many goroutines.
type Machine struct {
	maxFailures int

	state   atomic.Int32
	failing atomic.Bool

	mu       sync.Mutex
	cause    error
	inARow   int
	runs     int
	failures int
	since    time.Time // of runs and failures
}

// NewMachine returns a Machine in state Shared. It leaves that state after maxFailures failed runs in a row, or after at
// least 20 runs within ten seconds of which half have failed.
func NewMachine(maxFailures int) *Machine { return &Machine{maxFailures: maxFailures} }

// State returns the state.
func (m *Machine) State() State { return State(m.state.Load()) }

// Failing reports whether the last run failed.
func (m *Machine) Failing() bool { return m.failing.Load() }

// Cause is why the state is not Shared; nil if it is.
func (m *Machine) Cause() error {
	if m.State() == Shared {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cause
}

// Ran records how a run for requests ended. It reports whether Redis has become unavailable with it: then the caller probes it
// from now on.
func (m *Machine) Ran(now time.Time, err error) (unavailable bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failing.Store(err != nil)
	if m.State() != Shared {
		return false
	}
	if now.Sub(m.since) > ratioInterval {
		m.since, m.runs, m.failures = now, 0, 0
	}
	m.runs++
	if err == nil {
		m.inARow = 0
		return false
	}
	m.inARow, m.failures, m.cause = m.inARow+1, m.failures+1, err
	if m.inARow < m.maxFailures && (m.runs < ratioRuns || 2*m.failures < m.runs) {
		return false
	}
	m.enter(Unavailable)
	return true
}

// Probed records how a probe in state Unavailable ended.
func (m *Machine) Probed(err error) { m.next(Unavailable, Resyncing, err) }

// Synced records how it ended to send every unsynced request in state Resyncing.
func (m *Machine) Synced(err error) { m.next(Resyncing, Shared, err) }

func (m *Machine) next(from, to State, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.State() != from {
		return
	}
	if err != nil {
		m.cause, to = err, Unavailable
	}
	m.enter(to)
}

func (m *Machine) enter(s State) {
	if s == Shared {
		m.failing.Store(false)
	}
	m.inARow, m.runs, m.failures = 0, 0, 0
	m.state.Store(int32(s))
}
