package caddymodule

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// lookupLimiter limits the concurrent lookups of uncached keys for each client IP to an eighth of the cache's limit, so that one
// client IP cannot use it up. It lives as long as the credential cache and holds only client IPs with requests in progress.
type lookupLimiter struct {
	timeout time.Duration // of acquire
	perIP   int64

	mu   sync.Mutex
	byIP map[string]*ipLookups
}

// ipLookups is the semaphore of one client IP.
type ipLookups struct {
	*semaphore.Weighted
	requests int // that hold the semaphore or wait for it; guarded by lookupLimiter.mu
}

func newLookupLimiter(c CacheConfig) *lookupLimiter {
	return &lookupLimiter{
		timeout: cmp.Or(time.Duration(c.LookupTimeout), authsigner.DefaultLookupTimeout),
		perIP:   int64(max(1, cmp.Or(c.MaxLookups, authsigner.DefaultMaxLookups)/8)),
		byIP:    map[string]*ipLookups{},
	}
}

// acquire waits until the client IP has fewer than perIP lookups in progress. The caller must call release when its
// lookup is done. The error wraps authsigner.ErrUnavailable if ctx or the timeout ends first.
func (l *lookupLimiter) acquire(ctx context.Context, ip string) (release func(), err error) {
	l.mu.Lock()
	own := l.byIP[ip]
	if own == nil {
		own = &ipLookups{Weighted: semaphore.NewWeighted(l.perIP)}
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

// leave removes the client IP after its last request.
func (l *lookupLimiter) leave(ip string, own *ipLookups) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if own.requests--; own.requests == 0 {
		delete(l.byIP, ip)
	}
}
