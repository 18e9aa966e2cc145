package authsigner

import "sync"

// sourceHealth is what the look-ups of all keys together say about the source.
//
// One key's failures say little: a policy may deny just that one. So the source is away when two different keys have
// failed with no answer between, and slow when two have kept a request waiting. What was seen is believed for window.
type sourceHealth struct {
	window int64 // ns; set before use

	mu       sync.Mutex
	away     bool
	failed   string // the key that failed last
	failedAt int64
	slow     bool
	waited   string // the key that was last waited for in vain
	waitedAt int64
	answered int64 // when it last answered, for any key
	nextAsk  int64 // while away: when the next look-up may be made
}

// noteFailure reports whether the source has just become away.
func (h *sourceHealth) noteFailure(publicKey string, now int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.awayLocked(now)
	h.away = was || h.failed != "" && h.failed != publicKey && now-h.failedAt < h.window
	h.failed, h.failedAt = publicKey, now
	return h.away && !was
}

// noteSlow says that a request has waited for StaleWait.
func (h *sourceHealth) noteSlow(publicKey string, now int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	recent := now-h.waitedAt < h.window
	h.slow = recent && (h.slow || h.waited != "" && h.waited != publicKey)
	h.waited, h.waitedAt = publicKey, now
}

// noteAnswer reports whether the source was away until now.
func (h *sourceHealth) noteAnswer(quick bool, now int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.away
	h.away, h.failed, h.answered = false, "", now
	switch {
	case quick:
		h.slow, h.waited = false, ""
	case h.slow:
		h.waitedAt = now
	}
	return was
}

// isAway says whether look-ups are expected to fail.
func (h *sourceHealth) isAway(now int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.awayLocked(now)
}

// isSlow says whether look-ups are expected to fail or to take longer than a request should wait.
func (h *sourceHealth) isSlow(now int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.awayLocked(now) || h.slow && now-h.waitedAt < h.window
}

// stillFails says whether a key's failure is recent, and the source has not answered for any key since.
func (h *sourceHealth) stillFails(failedAt, now int64) bool {
	if !failedWithin(failedAt, now, h.window) {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return failedAt > h.answered
}

// mayAsk says whether a look-up may be made now: always, but while the source is away only every retry nanoseconds.
func (h *sourceHealth) mayAsk(now, retry int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.awayLocked(now) {
		return true
	}
	if now < h.nextAsk && h.nextAsk-now <= retry {
		return false
	}
	h.nextAsk = now + retry
	return true
}

func (h *sourceHealth) awayLocked(now int64) bool {
	return h.away && now-h.failedAt < h.window
}
