// Package batch joins concurrent calls into one run: calls that come while a run is under way wait in a queue, and the next
// run takes them all. When the queue is long, two runs are under way at once, each for one lane, so that calls of the same
// lane are run in the order in which they came. It knows nothing of Redis.
package batch

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// ErrTimeout is returned for a call that has waited for Options.Timeout without being part of a run.
var ErrTimeout = errors.New("timed out in the queue")

// Options configure a Batch. All fields are required.
type Options[C any] struct {
	// Max is how many calls one run takes.
	Max int
	// Timeout is how long a call may wait in the queue.
	Timeout time.Duration
	// Lane is the lane of a call: 0 or 1.
	Lane func(call *C) int
	// Run answers calls. It may be called for both lanes at once; slot, 0 or 1, is not that of another run under way. Calls
	// are in the order in which they came; oldest is when the first of them did.
	Run func(slot int, calls []*C, oldest time.Time)
	// Go runs a function on another goroutine.
	Go func(func())
}

// Batch is a queue and its runs.
type Batch[C any] struct {
	o     Options[C]
	items sync.Pool

	mu      sync.Mutex
	queue   []*item[C]
	running lanes

	slots  [2]slot[C]   // of the runs under way, by their first lane
	length atomic.Int64 // of the queue
	runs   atomic.Uint64
	taken  atomic.Uint64
	waited atomic.Int64 // nanoseconds that calls have spent in the queue
}

// Stats are figures since the beginning, and the queue's length now.
type Stats struct {
	Queue       int
	Runs, Calls uint64
	Waited      time.Duration // by all calls together, before their runs
}

// lanes is a set of lanes.
type lanes uint8

const (
	noLane    lanes = 0
	bothLanes lanes = 1<<0 | 1<<1
	// splitAt is from which length of the queue on a run takes one lane only.
	splitAt = 32
)

// slot is the scratch memory of a run.
type slot[C any] struct {
	items []*item[C]
	calls []*C
}

type item[C any] struct {
	call  *C
	lane  lanes
	since time.Time
	state state // under Batch.mu
	done  chan struct{}
	timer *time.Timer
}

type state int

const (
	queued state = iota
	taken        // by a run, which answers it
	gone         // the caller has: it will not be part of a run
)

// New returns a Batch.
func New[C any](o Options[C]) *Batch[C] {
	b := &Batch[C]{o: o}
	b.items.New = func() any {
		i := &item[C]{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
		i.timer.Stop()
		return i
	}
	return b
}

// Do has a call answered. It returns an error, ErrTimeout or the cause of ctx's end, only if the call was not part of any run
// and will not be. A call that is part of a run waits for its end.
//
// A call that finds no run under way makes one on its own goroutine: it need not wait for another to be scheduled.
func (b *Batch[C]) Do(ctx context.Context, call *C) error {
	i, _ := b.items.Get().(*item[C])
	i.call, i.lane, i.since, i.state = call, 1<<b.o.Lane(call), time.Now(), queued
	b.mu.Lock()
	b.queue = append(b.queue, i)
	b.length.Add(1)
	mine := b.claim(i.lane)
	b.mu.Unlock()
	if mine != noLane {
		b.runAll(mine, true)
	}
	err := b.wait(ctx, i)
	if err == nil { // otherwise the queue still has it
		i.call = nil
		b.items.Put(i)
	}
	return err
}

func (b *Batch[C]) wait(ctx context.Context, i *item[C]) error {
	select {
	case <-i.done:
		return nil
	default:
	}
	i.timer.Reset(b.o.Timeout)
	defer i.timer.Stop()
	var err error
	select {
	case <-i.done:
		return nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-i.timer.C:
		err = ErrTimeout
	}
	b.mu.Lock()
	left := i.state == queued
	if left {
		i.state = gone
	}
	b.mu.Unlock()
	if left {
		return err
	}
	<-i.done
	return nil
}

// claim returns the lanes that a run may take now, with the given one among them; none if that is under way. b is locked.
func (b *Batch[C]) claim(lane lanes) lanes {
	free := bothLanes &^ b.running
	switch {
	case free&lane == noLane:
		return noLane
	case free != bothLanes || len(b.queue) >= splitAt:
		free = lane
	}
	b.running |= free
	return free
}

// runAll makes runs until nobody waits. With own, the first is on this goroutine and the others are on another one.
func (b *Batch[C]) runAll(mine lanes, own bool) {
	for mine != noLane {
		next, other := b.run(mine)
		if other != noLane {
			b.o.Go(func() { b.runAll(other, false) })
		}
		if own && next != noLane {
			b.o.Go(func() { b.runAll(next, false) })
			return
		}
		mine = next
	}
}

// run makes one run, and returns the lanes to run next: for this goroutine and, if the queue is long, for another one.
func (b *Batch[C]) run(mine lanes) (next, other lanes) {
	// On a busy machine others are about to join: they get the processor first. On an idle one this costs nothing.
	runtime.Gosched()
	n := 0
	if mine == 1<<1 {
		n = 1
	}
	s := &b.slots[n]
	b.take(s, mine)
	ended := false
	defer func() {
		for _, i := range s.items {
			i.done <- struct{}{}
		}
		clear(s.items)
		clear(s.calls)
		s.items, s.calls = s.items[:0], s.calls[:0]
		b.mu.Lock()
		b.running &^= mine
		for _, i := range b.queue {
			if lane := b.claim(i.lane); lane != noLane && next == noLane {
				next = lane
			} else if lane != noLane {
				other = lane
			}
			if b.running == bothLanes {
				break
			}
		}
		b.mu.Unlock()
		if !ended { // Run has panicked, and others may wait
			for _, l := range []lanes{next, other} {
				if l != noLane {
					b.o.Go(func() { b.runAll(l, false) })
				}
			}
		}
	}()
	if len(s.items) > 0 {
		now := time.Now()
		for _, i := range s.items {
			b.waited.Add(int64(now.Sub(i.since)))
		}
		b.runs.Add(1)
		b.taken.Add(uint64(len(s.items)))
		b.o.Run(n, s.calls, s.items[0].since)
	}
	ended = true
	return next, other
}

// take moves calls of the lanes from the queue to s.
func (b *Batch[C]) take(s *slot[C], mine lanes) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rest := b.queue[:0]
	for _, i := range b.queue {
		switch {
		case i.state == gone:
		case i.lane&mine != noLane && len(s.items) < b.o.Max:
			i.state = taken
			s.items, s.calls = append(s.items, i), append(s.calls, i.call)
		default:
			rest = append(rest, i)
		}
	}
	clear(b.queue[len(rest):])
	b.queue = rest
	b.length.Store(int64(len(rest)))
}

// Stats returns the figures.
func (b *Batch[C]) Stats() Stats {
	return Stats{
		Queue: int(b.length.Load()), Runs: b.runs.Load(), Calls: b.taken.Load(),
		Waited: time.Duration(b.waited.Load()),
	}
}
