// Package batch groups concurrent calls. Calls that arrive while a flush is in progress wait in a queue, and the next flush
// handles all of them. When the queue is long, two flushes run concurrently, one for each partition, so that calls of the same
// partition are handled in the order in which they arrived.
package batch

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"
)

// ErrTimeout is returned for a call that waited in the queue for Options.Timeout and was not flushed.
var ErrTimeout = errors.New("timed out in the queue")

// Options configure a Batcher. All fields are required.
type Options[C any] struct {
	// Max is the maximum number of calls in one flush.
	Max int
	// Timeout is how long a call may wait in the queue.
	Timeout time.Duration
	// Partition returns the partition of a call: 0 or 1.
	Partition func(call *C) int
	// Flush handles calls, in the order in which they arrived; oldest is when the first of them did. It may run concurrently
	// for the two partitions. worker, 0 or 1, differs between concurrent flushes.
	Flush func(worker int, calls []*C, oldest time.Time)
	// Go runs a function on another goroutine.
	Go func(func())
}

// Batcher queues calls and flushes them.
type Batcher[C any] struct {
	o     Options[C]
	items sync.Pool

	mu       sync.Mutex
	queue    []*item[C]
	flushing partitions
	stats    Stats

	scratch [2]scratch[C] // by worker
}

// Stats holds the current length of the queue, and counters since New.
type Stats struct {
	Queue  int
	Calls  uint64        // that have been flushed
	Waited time.Duration // total time that they spent in the queue
}

// partitions is a set of partitions.
type partitions uint8

const (
	noPartition    partitions = 0
	bothPartitions partitions = 1<<0 | 1<<1
	// splitAt is the queue length from which a flush handles only one partition.
	splitAt = 32
)

// scratch is the reusable memory of a worker.
type scratch[C any] struct {
	items []*item[C]
	calls []*C
}

type item[C any] struct {
	call      *C
	partition partitions
	since     time.Time
	state     state // guarded by Batcher.mu
	done      chan struct{}
	timer     *time.Timer
}

type state int

const (
	queued    state = iota
	dequeued        // by a flush, which will complete it
	abandoned       // by its caller: it must not be flushed
)

// New returns a Batcher.
func New[C any](o Options[C]) *Batcher[C] {
	b := &Batcher[C]{o: o}
	b.items.New = func() any {
		i := &item[C]{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
		i.timer.Stop()
		return i
	}
	return b
}

// Do queues a call and waits until a flush has handled it. It returns ErrTimeout or the cause of ctx's cancellation only if the
// call was not flushed and never will be. Once a flush has started, Do waits for its end.
//
// If no flush is in progress, Do flushes on its own goroutine, which saves waiting for another one to be scheduled.
func (b *Batcher[C]) Do(ctx context.Context, call *C) error {
	i, _ := b.items.Get().(*item[C])
	i.call, i.partition, i.since, i.state = call, 1<<b.o.Partition(call), time.Now(), queued
	b.mu.Lock()
	b.queue = append(b.queue, i)
	claimed := b.claim(i.partition)
	b.mu.Unlock()
	if claimed != noPartition {
		b.flushAll(claimed, true)
	}
	err := b.wait(ctx, i)
	if err == nil { // otherwise the item is still in the queue
		i.call = nil
		b.items.Put(i)
	}
	return err
}

func (b *Batcher[C]) wait(ctx context.Context, i *item[C]) error {
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
		i.state = abandoned
	}
	b.mu.Unlock()
	if left {
		return err
	}
	<-i.done
	return nil
}

// claim marks the partitions that a flush may handle now as being flushed and returns them. They include p, unless p is being
// flushed already: then it returns noPartition. The caller holds b.mu.
func (b *Batcher[C]) claim(p partitions) partitions {
	free := bothPartitions &^ b.flushing
	switch {
	case free&p == noPartition:
		return noPartition
	case free != bothPartitions || len(b.queue) >= splitAt:
		free = p
	}
	b.flushing |= free
	return free
}

// flushAll flushes until the queue is empty. With inline, only the first flush runs on the caller's goroutine.
func (b *Batcher[C]) flushAll(claimed partitions, inline bool) {
	for claimed != noPartition {
		next, other := b.flushOnce(claimed)
		if other != noPartition {
			b.o.Go(func() { b.flushAll(other, false) })
		}
		if inline && next != noPartition {
			b.o.Go(func() { b.flushAll(next, false) })
			return
		}
		claimed = next
	}
}

// flushOnce flushes once and claims the partitions to flush next: next for this goroutine, other for an additional one if the
// queue is long.
func (b *Batcher[C]) flushOnce(claimed partitions) (next, other partitions) {
	// On a busy machine, let callers that are about to queue calls run first. On an idle one this costs nothing.
	runtime.Gosched()
	worker := 0
	if claimed == 1<<1 {
		worker = 1
	}
	s := &b.scratch[worker]
	b.dequeue(s, claimed)
	ended := false
	defer func() {
		for _, i := range s.items {
			i.done <- struct{}{}
		}
		clear(s.items)
		clear(s.calls)
		s.items, s.calls = s.items[:0], s.calls[:0]
		b.mu.Lock()
		b.flushing &^= claimed
		for _, i := range b.queue {
			if p := b.claim(i.partition); p != noPartition && next == noPartition {
				next = p
			} else if p != noPartition {
				other = p
			}
			if b.flushing == bothPartitions {
				break
			}
		}
		b.mu.Unlock()
		if !ended { // Flush panicked: this goroutine does not flush again
			for _, p := range []partitions{next, other} {
				if p != noPartition {
					b.o.Go(func() { b.flushAll(p, false) })
				}
			}
		}
	}()
	if len(s.items) > 0 {
		b.o.Flush(worker, s.calls, s.items[0].since)
	}
	ended = true
	return next, other
}

// dequeue moves up to Options.Max calls of the claimed partitions from the queue to s, and removes abandoned ones.
func (b *Batcher[C]) dequeue(s *scratch[C], claimed partitions) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rest, now := b.queue[:0], time.Now()
	for _, i := range b.queue {
		switch {
		case i.state == abandoned:
		case i.partition&claimed != noPartition && len(s.items) < b.o.Max:
			i.state = dequeued
			s.items, s.calls = append(s.items, i), append(s.calls, i.call)
			b.stats.Calls++
			b.stats.Waited += now.Sub(i.since)
		default:
			rest = append(rest, i)
		}
	}
	clear(b.queue[len(rest):])
	b.queue = rest
}

// Stats returns the current figures.
func (b *Batcher[C]) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	stats := b.stats
	stats.Queue = len(b.queue)
	return stats
}
