package ratelimit

import (
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
// item for each bucket. The X- headers describe Tightest. X-RateLimit-Reset is a Unix time by the clock of now: after a denial,
// when the next request is allowed, otherwise when Remaining next increases. Retry-After is set only for denials and is at least
// 1. All seconds are rounded up, so that clients that wait as told are not too early.
func (r Result) SetHeaders(h http.Header, now time.Time) {
	if len(r.States) == 0 {
		return
	}
	const perState = 96
	buf := make([]byte, 0, 64+perState*len(r.States))
	var ends [6]int
	mark := func(i int) { ends[i] = len(buf) }

	for i, s := range r.States {
		if i > 0 {
			buf = append(buf, ", "...)
		}
		buf = appendString(buf, s.Limit.Name)
		buf = append(buf, ";q="...)
		buf = strconv.AppendInt(buf, int64(s.Limit.Requests), 10)
		buf = append(buf, ";w="...)
		buf = strconv.AppendInt(buf, max(1, seconds(s.Limit.Window)), 10)
	}
	mark(0)
	for i, s := range r.States {
		if i > 0 {
			buf = append(buf, ", "...)
		}
		buf = appendString(buf, s.Limit.Name)
		buf = append(buf, ";r="...)
		buf = strconv.AppendInt(buf, int64(s.Remaining), 10)
		buf = append(buf, ";t="...)
		buf = strconv.AppendInt(buf, seconds(s.Reset), 10)
	}
	mark(1)
	tightest := r.Tightest()
	buf = strconv.AppendInt(buf, int64(tightest.Limit.Requests), 10)
	mark(2)
	buf = strconv.AppendInt(buf, int64(tightest.Remaining), 10)
	mark(3)
	reset := tightest.Reset
	if !r.Allowed {
		reset = r.RetryAfter
	}
	at := now.Add(reset)
	unix := at.Unix()
	if at.Nanosecond() > 0 {
		unix++
	}
	buf = strconv.AppendInt(buf, unix, 10)
	mark(4)
	if !r.Allowed {
		buf = strconv.AppendInt(buf, max(1, seconds(r.RetryAfter)), 10)
	}
	mark(5)

	// All values share one string and one slice to save allocations.
	text, values, from := string(buf), make([]string, len(ends)), 0
	for i, name := range [...]string{headerPolicy, headerState, headerLimit, headerRemaining, headerReset, headerRetry} {
		if from < ends[i] {
			values[i] = text[from:ends[i]]
			h[name] = values[i : i+1 : i+1]
		}
		from = ends[i]
	}
}

// seconds returns d in whole seconds, rounded up; 0 if d is not positive.
func seconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}

// appendString appends a structured field string (RFC 9651). Characters other than printable ASCII, which it cannot
// represent, become question marks.
func appendString(buf []byte, s string) []byte {
	buf = append(buf, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			buf = append(buf, '\\', c)
		case c < ' ' || c > '~':
			buf = append(buf, '?')
		default:
			buf = append(buf, c)
		}
	}
	return append(buf, '"')
}
