package ratelimit

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// The response headers, as net/http spells them.
const (
	headerPolicy    = "Ratelimit-Policy"
	headerState     = "Ratelimit"
	headerLimit     = "X-Ratelimit-Limit"
	headerRemaining = "X-Ratelimit-Remaining"
	headerReset     = "X-Ratelimit-Reset"
	headerRetry     = "Retry-After"
)

// SetHeaders sets the response headers for the decision, replacing earlier ones:
//
//	RateLimit-Policy: "key";q=60;w=60
//	RateLimit: "key";r=59;t=12
//	X-RateLimit-Limit: 60
//	X-RateLimit-Remaining: 59
//	X-RateLimit-Reset: 1764000012
//	Retry-After: 12
//
// The first two follow draft-ietf-httpapi-ratelimit-headers (revision 08 and later: lists of structured field strings), with an
// item for each counter. The X- headers describe Tightest. X-RateLimit-Reset is a Unix time by the clock of now: after a denial,
// when the next request is allowed, otherwise when Remaining next increases. Retry-After is set only for denials and is at least
// 1. All seconds are rounded up, so that clients that wait as told are not too early.
func (r Result) SetHeaders(h http.Header, now time.Time) {
	if len(r.States) == 0 {
		return
	}
	policies, states := make([]byte, 0, 128), make([]byte, 0, 128) // enough for two states
	for i, s := range r.States {
		if i > 0 {
			policies, states = append(policies, ", "...), append(states, ", "...)
		}
		// For printable ASCII, Go and structured fields (RFC 9651) quote alike.
		policies = fmt.Appendf(policies, "%+q;q=%d;w=%d", s.Limit.Name, s.Limit.Requests, max(1, seconds(s.Limit.Window)))
		states = fmt.Appendf(states, "%+q;r=%d;t=%d", s.Limit.Name, s.Remaining, seconds(s.Reset))
	}
	h[headerPolicy], h[headerState] = []string{string(policies)}, []string{string(states)}

	tightest := r.Tightest()
	reset := tightest.Reset
	if !r.Allowed {
		reset = r.RetryAfter
		h[headerRetry] = []string{strconv.FormatInt(max(1, seconds(reset)), 10)}
	}
	at := now.Add(reset + time.Second - 1).Unix() // rounded up
	h[headerLimit] = []string{strconv.Itoa(tightest.Limit.Requests)}
	h[headerRemaining] = []string{strconv.Itoa(tightest.Remaining)}
	h[headerReset] = []string{strconv.FormatInt(at, 10)}
}

// seconds returns d in whole seconds, rounded up; 0 if d is not positive.
func seconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}
