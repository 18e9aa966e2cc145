package authsigner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// lookupAttempts is how often a Lookup starts over because its key was invalidated while it was being looked up.
const lookupAttempts = 3

var (
	// errInvalidated is the outcome of a look-up whose key was invalidated meanwhile.
	errInvalidated = fmt.Errorf("%w: the key is being changed", ErrUnavailable)

	errClosed = fmt.Errorf("%w: the cache is closed", ErrUnavailable)
)

// flight is a look-up under way.
type flight struct {
	ctx      context.Context // ends with the look-up's deadline
	known    bool            // there is a credential to fall back on
	outdated bool            // invalidated meanwhile, so its answer is not to be used; under Cache.mu
	done     chan struct{}
	cred     *Credential // set before done is closed, as is err
	err      error
}

// refresh starts a look-up of a fresh entry in the background, unless one was started less than RetryAfterFailure ago.
func (c *Cache) refresh(publicKey string, e *cacheEntry, now int64) {
	at := e.refreshAt.Load()
	if now < at || !e.refreshAt.CompareAndSwap(at, now+int64(c.o.RetryAfterFailure)) {
		return
	}
	if c.health.mayAsk(now, int64(c.o.RetryAfterFailure)) {
		c.fly(publicKey, true)
	}
}

// load answers when nothing fresh is at hand.
func (c *Cache) load(ctx context.Context, publicKey string) (*Credential, error) {
	if !ValidPublicKey(publicKey) {
		return nil, ErrUnknownKey
	}
	for range lookupAttempts - 1 {
		cred, err := c.loadOnce(ctx, publicKey)
		if !errors.Is(err, errInvalidated) {
			return cred, err
		}
	}
	return c.loadOnce(ctx, publicKey)
}

// loadOnce returns errInvalidated if the key was invalidated meanwhile.
func (c *Cache) loadOnce(ctx context.Context, publicKey string) (*Credential, error) {
	now := c.now()
	e, ok := c.entries.GetIfPresent(publicKey)
	if ok && c.fresh(e, now) {
		return e.cred, nil
	}
	if !ok || !c.usable(e, now) {
		return c.loadUnknown(ctx, publicKey, now)
	}

	// There is a credential past its TTL. It is used only if a look-up has failed, or if the source is known to be
	// unavailable, and then look-ups go on in the background.
	if c.justFailed(e, now) {
		return c.stale(publicKey, e)
	}
	if c.health.isAway(now) || c.health.stillFails(e.failedAt.Load(), now) {
		if c.health.mayAsk(now, int64(c.o.RetryAfterFailure)) {
			c.fly(publicKey, true)
		}
		return c.stale(publicKey, e)
	}
	cred, err := c.await(ctx, publicKey, c.fly(publicKey, true))
	if definite(err) || errors.Is(err, errInvalidated) || ctx.Err() != nil {
		return cred, err
	}
	return c.stale(publicKey, e)
}

// loadUnknown answers for a key without a credential to fall back on.
func (c *Cache) loadUnknown(ctx context.Context, publicKey string, now int64) (*Credential, error) {
	if !c.health.mayAsk(now, int64(c.o.RetryAfterFailure)) {
		c.event(CacheEvent{Kind: CacheRefused, PublicKey: publicKey})
		return nil, fmt.Errorf("%w: it has not answered lately", ErrUnavailable)
	}
	return c.await(ctx, publicKey, c.fly(publicKey, false))
}

// await waits for a look-up, which is nil if the cache is closed.
func (c *Cache) await(ctx context.Context, publicKey string, f *flight) (*Credential, error) {
	if f == nil {
		return nil, errClosed
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	case <-f.ctx.Done():
		// A source that does not heed its deadline must not hold up whoever asks. One that does answers now.
		select {
		case <-f.done:
		case <-time.After(c.o.LoadTimeout/4 + time.Millisecond):
			err := fmt.Errorf("%w: no answer within %s", ErrUnavailable, c.o.LoadTimeout)
			if e, ok := c.entries.GetIfPresent(publicKey); ok {
				e.failedAt.Store(max(c.now(), 1))
			}
			c.noteFailure(publicKey, err)
			return nil, err
		}
	}
	return f.cred, f.err
}

// stale answers with an entry past its TTL, if it has not been taken away meanwhile.
func (c *Cache) stale(publicKey string, e *cacheEntry) (*Credential, error) {
	if current, ok := c.entries.GetIfPresent(publicKey); !ok || current != e {
		return nil, errInvalidated
	}
	c.event(CacheEvent{Kind: CacheStale, PublicKey: publicKey, Age: time.Duration(c.now() - e.confirmed)})
	return e.cred, nil
}

// fly returns the look-up of the key that is under way, or starts one. It returns nil if the cache is closed.
func (c *Cache) fly(publicKey string, known bool) *flight {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f, ok := c.flights[publicKey]; ok {
		return f
	}
	if c.closed {
		return nil
	}
	publicKey = strings.Clone(publicKey) // it may be part of a request's buffer
	ctx, cancel := context.WithTimeout(c.ctx, c.o.LoadTimeout)
	f := &flight{ctx: ctx, known: known, done: make(chan struct{})}
	c.flights[publicKey] = f
	c.wg.Go(func() {
		defer cancel()
		c.run(publicKey, f)
	})
	return f
}

// run does the look-up, stores what came of it, and tells who waits.
func (c *Cache) run(publicKey string, f *flight) {
	places := c.firstLoads
	if f.known {
		places = c.reloads
	}
	// Half of the time is the source's own, or else a crowd would make it look as if it did not answer.
	queued := time.Now()
	crowded := time.NewTimer(c.o.LoadTimeout / 2)
	defer crowded.Stop()
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
	case <-f.ctx.Done():
		c.land(publicKey, f, func() { f.err = errClosed })
		return
	case <-crowded.C:
		err := fmt.Errorf("%w: too many look-ups at once", ErrUnavailable)
		c.land(publicKey, f, func() { f.err = err })
		c.event(CacheEvent{Kind: CacheFailed, PublicKey: publicKey, Err: err, Took: time.Since(queued)})
		return
	}

	began, started, epoch := time.Now(), c.now(), c.epoch.Load()
	cred, err := c.ask(f.ctx, publicKey)
	took, now := time.Since(began), c.now()
	kind := kindOf(err)
	if kind == CacheFailed && c.ctx.Err() != nil {
		// It failed because the cache is being closed, which says nothing about the source.
		c.land(publicKey, f, func() { f.err = err })
		return
	}

	c.land(publicKey, f, func() {
		if f.outdated {
			f.err = errInvalidated
			return
		}
		f.cred, f.err = cred, err
		switch kind {
		case CacheLoaded:
			c.absent.Invalidate(publicKey)
			c.entries.Set(publicKey, &cacheEntry{cred: cred, confirmed: started, epoch: epoch})
		case CacheUnknown:
			c.entries.Invalidate(publicKey)
			c.absent.Set(publicKey, absence{at: started, ttl: int64(c.o.NegativeTTL), epoch: epoch, err: err})
		case CacheMalformed:
			c.entries.Invalidate(publicKey)
			c.absent.Set(publicKey, absence{at: now, ttl: int64(c.o.RetryAfterFailure), epoch: epoch, err: err})
		default:
			if e, ok := c.entries.GetIfPresent(publicKey); ok && c.usable(e, now) {
				e.failedAt.Store(max(now, 1))
				return
			}
			c.absent.Set(publicKey, absence{at: now, ttl: int64(c.o.RetryAfterFailure), epoch: epoch, err: err})
		}
	})

	if kind == CacheFailed {
		c.noteFailure(publicKey, err)
	} else if c.health.noteAnswer(now) {
		c.event(CacheEvent{Kind: CacheBack, PublicKey: publicKey})
	}
	c.event(CacheEvent{Kind: kind, PublicKey: publicKey, Err: err, Took: took})
}

// land ends a look-up. store runs under c.mu, after which nobody finds the look-up any more.
func (c *Cache) land(publicKey string, f *flight, store func()) {
	c.mu.Lock()
	if c.flights[publicKey] == f {
		delete(c.flights, publicKey)
	}
	store()
	c.mu.Unlock()
	close(f.done)
}

// ask asks the source and brings its answer into one of four forms: a credential, ErrUnknownKey, an error that wraps
// both ErrMalformedCredential and ErrUnavailable, or one that wraps ErrUnavailable.
func (c *Cache) ask(ctx context.Context, publicKey string) (cred *Credential, err error) {
	defer func() {
		if p := recover(); p != nil { // on this goroutine it would end the whole process
			cred, err = nil, fmt.Errorf("%w: the source panicked: %v", ErrUnavailable, p)
		}
	}()
	cred, err = c.src.Lookup(ctx, publicKey)
	switch {
	case err == nil && cred == nil:
		return nil, fmt.Errorf("%w: the source answered nothing", ErrUnavailable)
	case err == nil && cred.PublicKey != publicKey:
		return nil, fmt.Errorf("%w: the source answered with another key's credential", ErrUnavailable)
	case err == nil:
		return cred, nil
	case errors.Is(err, ErrMalformedCredential):
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	case errors.Is(err, ErrUnknownKey) && !errors.Is(err, ErrUnavailable):
		return nil, ErrUnknownKey
	case errors.Is(err, ErrUnknownKey):
		return nil, fmt.Errorf("%w: %s", ErrUnavailable, err.Error()) // whoever is not certain does not know
	case errors.Is(err, ErrUnavailable):
		return nil, err
	default:
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
}

// kindOf sorts what ask returned.
func kindOf(err error) CacheEventKind {
	switch {
	case err == nil:
		return CacheLoaded
	case errors.Is(err, ErrUnknownKey):
		return CacheUnknown
	case errors.Is(err, ErrMalformedCredential):
		return CacheMalformed
	default:
		return CacheFailed
	}
}

// definite says whether the error, one of ask's, is the source's word on the key, so that no earlier one counts.
func definite(err error) bool { return kindOf(err) != CacheFailed }

func (c *Cache) noteFailure(publicKey string, err error) {
	if c.health.noteFailure(publicKey, c.now()) {
		c.event(CacheEvent{Kind: CacheAway, PublicKey: publicKey, Err: err})
	}
}
