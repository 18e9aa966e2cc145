package authsigner

import "sync"

// sourceHealth is what the look-ups of all keys together say about the source.
//
// One key's failures say little: a policy may deny just that one. So the source is away when two different keys have
// failed with no answer between. A failure counts until the source answers for any key, and for window at most after
// the last failure or the last look-up that was made to see whether it goes on. A source that answers is not away,
// however slow it is.
type sourceHealth struct {
	window int64 // ns; set before use

	mu       sync.Mutex
	away     bool
	failed   string // the key that failed last; "" once the source has answered
	until    int64  // when that no longer counts
	answered int64  // when it last answered, for any key
	nextAsk  int64  // while away: when the next look-up may be made
}

// noteFailure reports whether the source has just become away.
func (h *sourceHealth) noteFailure(publicKey string, now int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.awayLocked(now)
	h.away = was || h.failsLocked(now) && h.failed != publicKey
	h.failed, h.until = publicKey, now+h.window
	return h.away && !was
}

// noteAnswer reports whether the source was away until now.
func (h *sourceHealth) noteAnswer(now int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.away
	h.away, h.failed, h.answered = false, "", now
	return was
}

// isAway says whether look-ups are expected to fail.
func (h *sourceHealth) isAway(now int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.awayLocked(now)
}

// stillFails says whether failures are recent, and the source has not answered for any key since failedAt.
func (h *sourceHealth) stillFails(failedAt, now int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return failedAt > h.answered && h.failsLocked(now)
}

// mayAsk says whether a look-up may be made now: always, but while the source is away only every retry nanoseconds.
func (h *sourceHealth) mayAsk(now, retry int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.awayLocked(now) {
		if now < h.nextAsk && h.nextAsk-now <= retry {
			return false
		}
		h.nextAsk = now + retry
	}
	if h.failsLocked(now) {
		h.until = now + h.window
	}
	return true
}

func (h *sourceHealth) awayLocked(now int64) bool { return h.away && h.failsLocked(now) }

func (h *sourceHealth) failsLocked(now int64) bool {
	left := h.until - now
	return h.failed != "" && left > 0 && left <= h.window
}
