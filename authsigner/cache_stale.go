package authsigner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// This file decides which keys are looked up while lookups fail, and when a credential is used past its TTL (RFC 5861's
// stale-if-error). Both follow from the states of the key and of the source.
//
// A cached credential is
//
//	fresh    within its TTL: it is used, and refreshed in the background before the TTL ends
//	expired  past its TTL: requests do what the last column of the next table says
//	failing  past its TTL, and a lookup of its key failed less than retryAfterFailure ago: it is used without a lookup
//
// The source is in one of three states ("-": no change). A lookup succeeds if the source responds, also if the key is unknown, its entry
// is malformed, or access to it is denied (ErrDenied). Quiet means that resetAfter has passed without a lookup and without a failure.
//
//	state        lookup succeeds  lookup fails                       quiet      requests for expired credentials
//	available    -                suspect                            -          wait for a lookup
//	suspect      available        unavailable, or - if it is of the  available  wait for a lookup; those for the key that failed
//	                              same key again                                use the credential and look up in the background
//	unavailable  available        -                                  available  use the credential; there is one lookup each
//	                                                                            retryAfterFailure, for all keys together
//
// A request that has waited for a lookup uses the expired credential if the lookup failed. A request without a cached credential
// waits for a lookup too; while the source is unavailable and no lookup is allowed, it gets ErrUnavailable instead. A single failing
// key does not make the source unavailable, because a policy may be the cause.
//
// CacheUnavailable reports that the source has become unavailable, and CacheAvailable the next success. A quiet time is not
// reported: if lookups fail after it, the outage continues.

// retryAfterFailure is the minimum time between a failed lookup of a key and the next one and, while the source is unavailable,
// between any two lookups.
const retryAfterFailure = time.Second

type sourceState int

const (
	sourceAvailable sourceState = iota
	sourceSuspect
	sourceUnavailable
)

// lookupMode is how a key that is not fresh is looked up.
type lookupMode int

const (
	lookUpAndWait lookupMode = iota
	lookUpInBackground
	skipLookup
)

// sourceBreaker keeps the state of the source.
type sourceBreaker struct {
	resetAfter int64 // ns; set before use

	mu         sync.Mutex
	state      sourceState
	reported   bool   // the source was reported unavailable, and no lookup has succeeded since
	failedKey  string // the key whose lookup failed last
	resetAt    int64  // when the state becomes available without a successful lookup
	nextLookup int64  // while unavailable: when the next lookup is allowed
}

// modeFor returns how the key is looked up now. While the source is unavailable, the caller must make the lookup that it allows.
func (b *sourceBreaker) modeFor(publicKey string, now int64) lookupMode {
	b.mu.Lock()
	defer b.mu.Unlock()
	mode := lookUpAndWait
	switch b.stateAt(now) {
	case sourceAvailable:
		return mode
	case sourceSuspect:
		if publicKey == b.failedKey {
			mode = lookUpInBackground
		}
	case sourceUnavailable:
		if before(now, b.nextLookup, int64(retryAfterFailure)) {
			return skipLookup
		}
		b.nextLookup = now + int64(retryAfterFailure)
		mode = lookUpInBackground
	}
	b.resetAt = now + b.resetAfter
	return mode
}

// lookupFailed returns whether to report that the source has become unavailable.
func (b *sourceBreaker) lookupFailed(publicKey string, now int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	previous := b.stateAt(now)
	b.state = sourceSuspect
	if previous == sourceUnavailable || previous == sourceSuspect && publicKey != b.failedKey {
		b.state = sourceUnavailable
	}
	b.failedKey, b.resetAt = publicKey, now+b.resetAfter
	report := b.state == sourceUnavailable && !b.reported
	b.reported = b.reported || report
	return report
}

// lookupSucceeded returns whether to report that the source has become available.
func (b *sourceBreaker) lookupSucceeded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	report := b.reported
	b.state, b.reported = sourceAvailable, false
	return report
}

// stateAt returns the current state. b.mu must be held.
func (b *sourceBreaker) stateAt(now int64) sourceState {
	if !before(now, b.resetAt, b.resetAfter) {
		return sourceAvailable
	}
	return b.state
}

// before reports whether now is before end, by at most longest: after a step of the clock it may not be.
func before(now, end, longest int64) bool { return now < end && end-now <= longest }

// failing reports whether a lookup of the entry's key has just failed.
func (e *cacheEntry) failing(now int64) bool {
	at := e.retryAt.Load()
	return at != 0 && before(now, at, int64(retryAfterFailure))
}

// cached returns the entry of the key if it may be used, at once or if lookups fail. known reports whether a request need not wait for
// a lookup. The error is why a known key has no credential, or errInvalidated if the entry was removed in the meantime.
func (c *Cache) cached(publicKey string) (e *cacheEntry, known bool, err error) {
	now := c.now()
	e, ok := c.entries.GetIfPresent(publicKey)
	if ok && c.fresh(e, now) {
		if now-e.confirmed >= c.refreshAge {
			c.refresh(publicKey, e, now)
		}
		return e, true, nil
	}
	if k, ok := c.keyErrors.GetIfPresent(publicKey); ok && c.current(k, now) {
		return nil, true, k.err
	}
	if !ValidPublicKey(publicKey) {
		return nil, true, ErrUnknownKey
	}
	if !ok || !c.usable(e, now) {
		return nil, false, nil
	}
	if !e.failing(now) {
		switch c.breaker.modeFor(publicKey, now) {
		case lookUpAndWait:
			return e, false, nil
		case lookUpInBackground:
			c.start(publicKey, true)
		case skipLookup:
		}
	}
	if err := c.useStale(publicKey, e); err != nil {
		return nil, false, err
	}
	return e, true, nil
}

// refresh looks up the key of a fresh credential in the background, unless lookups have just failed.
func (c *Cache) refresh(publicKey string, e *cacheEntry, now int64) {
	if !e.failing(now) && c.breaker.modeFor(publicKey, now) != skipLookup {
		c.start(publicKey, true)
	}
}

// lookUp waits for a lookup of a key. e is the entry that is used if the lookup fails; nil if there is none. It returns errInvalidated
// if the key was invalidated in the meantime.
func (c *Cache) lookUp(ctx context.Context, publicKey string, e *cacheEntry) (*Credential, error) {
	if e == nil && c.breaker.modeFor(publicKey, c.now()) == skipLookup {
		c.event(CacheEvent{Kind: CacheSkipped, PublicKey: publicKey})
		return nil, fmt.Errorf("%w: recent lookups have failed", ErrUnavailable)
	}
	cred, err := c.result(ctx, publicKey, c.start(publicKey, e != nil))
	if e == nil || kindOf(err) != CacheFailed || errors.Is(err, errInvalidated) || ctx.Err() != nil { // other kinds are about the key itself
		return cred, err
	}
	if err := c.useStale(publicKey, e); err != nil {
		return nil, err
	}
	return e.cred, nil
}

// useStale reports that a credential past its TTL is used. It returns errInvalidated if it was removed in the meantime.
func (c *Cache) useStale(publicKey string, e *cacheEntry) error {
	if current, ok := c.entries.GetIfPresent(publicKey); !ok || current != e {
		return errInvalidated
	}
	c.event(CacheEvent{Kind: CacheStale, PublicKey: publicKey, Age: time.Duration(c.now() - e.confirmed)})
	return nil
}
