package ratelimit

import (
	"context"
	"sync"
	"time"
)

// background runs goroutines until it is closed.
type background struct {
	ctx    context.Context // ends when the background is closed
	cancel context.CancelFunc
	mu     sync.RWMutex // guards closed
	closed bool
	work   sync.WaitGroup
}

func newBackground() *background {
	b := new(background)
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// spawn runs work on a goroutine, unless the background is closed.
func (b *background) spawn(work func()) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if !b.closed {
		b.work.Go(work)
	}
}

// sleep waits for d. It returns false if the background was closed meanwhile.
func (b *background) sleep(d time.Duration) bool {
	select {
	case <-b.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Close implements Limiter.
func (b *background) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	b.work.Wait()
	return nil
}
