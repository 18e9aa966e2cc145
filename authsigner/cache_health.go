package authsigner

import "sync"

// sourceHealth tracks whether the source is available, from the lookups of all keys.
//
// The source is considered unavailable after lookups of two different keys have failed with no success in between; a single key
// may fail because of a policy. A failure counts until any lookup succeeds, but for at most window after the last failure or
// the last lookup allowed since.
type sourceHealth struct {
	window int64 // ns; set before use

	mu          sync.Mutex
	unavailable bool
	failed      string // the key that failed last; "" after a success
	until       int64  // when that failure stops counting
	succeeded   int64  // time of the last success, for any key
	nextLookup  int64  // while unavailable: when the next lookup is allowed
}

// noteFailure records a failed lookup. It reports whether the source has just become unavailable.
func (h *sourceHealth) noteFailure(publicKey string, now int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.unavailableLocked(now)
	h.unavailable = was || h.failsLocked(now) && h.failed != publicKey
	h.failed, h.until = publicKey, now+h.window
	return h.unavailable && !was
}

// noteSuccess records a successful lookup. It reports whether the source was unavailable until now.
func (h *sourceHealth) noteSuccess(now int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.unavailable
	h.unavailable, h.failed, h.succeeded = false, "", now
	return was
}

// isUnavailable reports whether the source is considered unavailable.
func (h *sourceHealth) isUnavailable(now int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.unavailableLocked(now)
}

// stillFails reports whether a failure counts and no lookup has succeeded since failedAt.
func (h *sourceHealth) stillFails(failedAt, now int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return failedAt > h.succeeded && h.failsLocked(now)
}

// allowLookup reports whether a lookup may begin: always while the source is available, otherwise every retry nanoseconds.
func (h *sourceHealth) allowLookup(now, retry int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unavailableLocked(now) {
		if now < h.nextLookup && h.nextLookup-now <= retry {
			return false
		}
		h.nextLookup = now + retry
	}
	if h.failsLocked(now) {
		h.until = now + h.window
	}
	return true
}

func (h *sourceHealth) unavailableLocked(now int64) bool { return h.unavailable && h.failsLocked(now) }

func (h *sourceHealth) failsLocked(now int64) bool {
	left := h.until - now
	return h.failed != "" && left > 0 && left <= h.window
}
