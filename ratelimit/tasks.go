package ratelimit

import (
	"context"
	"sync"
	"time"
)

// tasks are the background goroutines of a Limiter.
type tasks struct {
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	mu     sync.RWMutex // guards closed
	closed bool
	work   sync.WaitGroup
}

func newTasks() *tasks {
	t := new(tasks)
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// spawn runs work on a goroutine, except after Close.
func (t *tasks) spawn(work func()) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.closed {
		t.work.Go(work)
	}
}

// sleep waits for d. It returns false if Close was called meanwhile.
func (t *tasks) sleep(d time.Duration) bool {
	select {
	case <-t.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Close implements Limiter.
func (t *tasks) Close() error {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.cancel()
	t.work.Wait()
	return nil
}
