package caddymodule

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/clientip"
)

// lookupLimiter limits the concurrent lookups of uncached keys for each client IP to an eighth of the cache's limit, and for the client IPs of an IPv6 /48
// together to half of it, so that one client cannot use it up. It lives as long as the credential cache and holds only client IPs with requests in progress.
type lookupLimiter struct {
	timeout time.Duration // of acquire
	perIP   int64

	mu   sync.Mutex
	byIP map[string]*ipLookups // by its keys: see clientip.Keys
}

// ipLookups is the semaphore of one client IP, or of its /48.
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

// acquire waits until the client IP has fewer than perIP lookups in progress, and its /48 fewer than four times as many. The caller must call
// release when its lookup is done. The error wraps authsigner.ErrUnavailable if ctx or the timeout ends first.
func (l *lookupLimiter) acquire(ctx context.Context, ip netip.Addr) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	var releases []func()
	release = sync.OnceFunc(func() {
		for _, f := range releases {
			f()
		}
	})
	for key, times := range clientip.Keys(ip) {
		l.mu.Lock()
		own := l.byIP[key]
		if own == nil {
			own = &ipLookups{Weighted: semaphore.NewWeighted(int64(times) * l.perIP)}
			l.byIP[key] = own
		}
		own.requests++
		l.mu.Unlock()
		if own.Acquire(ctx, 1) != nil {
			l.leave(key, own)
			release()
			return nil, fmt.Errorf("%w: waiting for other lookups of this client IP: %w", authsigner.ErrUnavailable, context.Cause(ctx))
		}
		releases = append(releases, func() {
			own.Release(1)
			l.leave(key, own)
		})
	}
	return release, nil
}

// leave removes the client IP after its last request.
func (l *lookupLimiter) leave(ip string, own *ipLookups) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if own.requests--; own.requests == 0 {
		delete(l.byIP, ip)
	}
}
