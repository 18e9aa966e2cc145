package caddymodule

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// maxLookupsPerIP is how many requests of one client IP may look up keys at once that the cache does not hold: an eighth of
// the lookups that the cache makes at once for such keys, so that no client IP takes the room of all others.
const maxLookupsPerIP = authsigner.DefaultMaxLoads / 8

// lookupLimiter bounds how many requests of each client IP look up keys at once. It lives as long as the cache of
// credentials. What it holds is bounded by the requests under way.
type lookupLimiter struct {
	timeout time.Duration // bounds the wait of acquire

	mu   sync.Mutex
	byIP map[string]*ipLookups
}

// ipLookups are those of one client IP.
type ipLookups struct {
	*semaphore.Weighted
	requests int // that hold it or wait for it; under lookupLimiter.mu
}

func newLookupLimiter(timeout time.Duration) *lookupLimiter {
	return &lookupLimiter{timeout: timeout, byIP: map[string]*ipLookups{}}
}

// acquire waits until fewer than maxLookupsPerIP requests of the client IP look up keys, and returns the function that ends
// the caller's own. It wraps authsigner.ErrUnavailable if ctx or the timeout ends first.
func (l *lookupLimiter) acquire(ctx context.Context, ip string) (release func(), err error) {
	l.mu.Lock()
	own := l.byIP[ip]
	if own == nil {
		own = &ipLookups{Weighted: semaphore.NewWeighted(maxLookupsPerIP)}
		l.byIP[ip] = own
	}
	own.requests++
	l.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	if err := own.Acquire(ctx, 1); err != nil {
		l.leave(ip, own)
		return nil, fmt.Errorf("%w: waiting for other lookups of this client IP: %w", authsigner.ErrUnavailable, context.Cause(ctx))
	}
	return sync.OnceFunc(func() {
		own.Release(1)
		l.leave(ip, own)
	}), nil
}

// leave forgets the client IP with its last request.
func (l *lookupLimiter) leave(ip string, own *ipLookups) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if own.requests--; own.requests == 0 {
		delete(l.byIP, ip)
	}
}
