package authsigner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// lookupAttempts is the number of attempts of a Lookup whose key is invalidated meanwhile.
const lookupAttempts = 3

var (
	// errInvalidated is the result of a lookup whose key was invalidated in the meantime.
	errInvalidated = fmt.Errorf("%w: the key was changed during the lookup", ErrUnavailable)

	errClosed = fmt.Errorf("%w: the cache is closed", ErrUnavailable)
)

// pendingLookup is a lookup in progress.
type pendingLookup struct {
	ctx      context.Context // with the lookup's deadline
	cached   bool            // there is a cached credential
	outdated bool            // the key was invalidated, so the result must be discarded; guarded by Cache.mu
	done     chan struct{}
	cred     *Credential // set before done is closed, like err
	err      error
}

// result waits for the result of a lookup, which is nil if the cache is closed.
func (c *Cache) result(ctx context.Context, publicKey string, p *pendingLookup) (*Credential, error) {
	if p == nil {
		return nil, errClosed
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	case <-p.ctx.Done():
		// A source that respects its deadline returns now. Do not wait for one that ignores it.
		select {
		case <-p.done:
		case <-time.After(c.o.LookupTimeout/4 + time.Millisecond):
			err := fmt.Errorf("%w: no response within %s", ErrUnavailable, c.o.LookupTimeout)
			now := c.now()
			if e, ok := c.entries.GetIfPresent(publicKey); ok {
				e.retryAt.Store(now + int64(retryAfterFailure))
			}
			c.lookupFailed(publicKey, now, err)
			return nil, err
		}
	}
	return p.cred, p.err
}

// start starts a lookup of the key, or joins the one in progress. It returns nil if the cache is closed.
func (c *Cache) start(publicKey string, cached bool) *pendingLookup {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.pending[publicKey]; ok {
		return p
	}
	if c.closed {
		return nil
	}
	publicKey = strings.Clone(publicKey) // may reference a larger buffer of the request
	ctx, cancel := context.WithTimeout(c.ctx, c.o.LookupTimeout)
	p := &pendingLookup{ctx: ctx, cached: cached, done: make(chan struct{})}
	c.pending[publicKey] = p
	c.wg.Go(func() {
		defer cancel()
		c.fetch(publicKey, p)
	})
	return p
}

// fetch performs the lookup, stores the result, and wakes the waiting requests.
func (c *Cache) fetch(publicKey string, p *pendingLookup) {
	places := c.uncachedLookups
	if p.cached {
		places = c.cachedLookups
	}
	// Half of the timeout is reserved for the source, or else a long queue would look like an outage.
	queued := time.Now()
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
	case <-p.ctx.Done():
		c.finish(publicKey, p, func() { p.err = errClosed })
		return
	case <-time.After(c.o.LookupTimeout / 2):
		err := fmt.Errorf("%w: too many concurrent lookups", ErrUnavailable)
		c.finish(publicKey, p, func() { p.err = err })
		c.event(CacheEvent{Kind: CacheFailed, PublicKey: publicKey, Err: err, Took: time.Since(queued)})
		return
	}

	began, started, generation := time.Now(), c.now(), c.generation.Load()
	cred, err := c.query(p.ctx, publicKey)
	took, now := time.Since(began), c.now()
	kind := kindOf(err)
	if kind == CacheFailed && c.ctx.Err() != nil {
		// It failed because the cache is being closed: do not record it as a failure of the source.
		c.finish(publicKey, p, func() { p.err = err })
		return
	}

	c.finish(publicKey, p, func() {
		if p.outdated {
			p.err = errInvalidated
			return
		}
		p.cred, p.err = cred, err
		switch kind {
		case CacheFound:
			c.keyErrors.Invalidate(publicKey)
			c.entries.Set(publicKey, &cacheEntry{cred: cred, confirmed: started, generation: generation})
		case CacheUnknown:
			c.entries.Invalidate(publicKey)
			c.keyErrors.Set(publicKey, keyError{at: started, ttl: int64(c.o.NegativeTTL), generation: generation, err: err})
		case CacheMalformed:
			c.entries.Invalidate(publicKey)
			c.keyErrors.Set(publicKey, keyError{at: now, ttl: int64(retryAfterFailure), generation: generation, err: err})
		default:
			if e, ok := c.entries.GetIfPresent(publicKey); ok && c.usable(e, now) {
				e.retryAt.Store(now + int64(retryAfterFailure))
				return
			}
			c.keyErrors.Set(publicKey, keyError{at: now, ttl: int64(retryAfterFailure), generation: generation, err: err})
		}
	})

	if kind == CacheFailed && !errors.Is(err, ErrDenied) {
		c.lookupFailed(publicKey, now, err)
	} else if c.breaker.lookupSucceeded() {
		c.event(CacheEvent{Kind: CacheAvailable, PublicKey: publicKey})
	}
	c.event(CacheEvent{Kind: kind, PublicKey: publicKey, Err: err, Took: took})
}

// finish ends a lookup. store runs under c.mu.
func (c *Cache) finish(publicKey string, p *pendingLookup, store func()) {
	c.mu.Lock()
	if c.pending[publicKey] == p {
		delete(c.pending, publicKey)
	}
	store()
	c.mu.Unlock()
	close(p.done)
}

// query looks up the key in the source, and recovers from its panics.
func (c *Cache) query(ctx context.Context, publicKey string) (cred *Credential, err error) {
	defer func() {
		if reason := recover(); reason != nil { // nothing else on this goroutine recovers
			cred, err = nil, fmt.Errorf("%w: the source panicked: %v", ErrUnavailable, reason)
		}
	}()
	return checkedLookup(ctx, c.source, publicKey)
}

// kindOf classifies the error of query.
func kindOf(err error) CacheEventKind {
	switch {
	case err == nil:
		return CacheFound
	case errors.Is(err, ErrUnknownKey):
		return CacheUnknown
	case errors.Is(err, ErrMalformedCredential):
		return CacheMalformed
	default:
		return CacheFailed
	}
}

func (c *Cache) lookupFailed(publicKey string, now int64, err error) {
	if c.breaker.lookupFailed(publicKey, now) {
		c.event(CacheEvent{Kind: CacheUnavailable, PublicKey: publicKey, Err: err})
	}
}
