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
// item for each counter. The X- headers describe Tightest. X-RateLimit-Reset is a Unix time by the clock of now: after a denial,
// when the next request is allowed, otherwise when Remaining next increases. Retry-After is set only for denials and is at least
// 1. All seconds are rounded up, so that clients that wait as told are not too early.
func (r Result) SetHeaders(h http.Header, now time.Time) {
	if len(r.States) == 0 {
		return
	}
	items := make([]byte, 0, 256) // enough for two states
	for i, s := range r.States {
		items = appendItem(items, i, s.Limit.Name, 'q', int64(s.Limit.Requests), 'w', max(1, seconds(s.Limit.Window)))
	}
	policies := len(items)
	for i, s := range r.States {
		items = appendItem(items, i, s.Limit.Name, 'r', int64(s.Remaining), 't', seconds(s.Reset))
	}
	text, values := string(items), make([]string, 6) // one allocation each for all headers
	set := func(i int, name, value string) { values[i], h[name] = value, values[i:i+1:i+1] }
	set(0, headerPolicy, text[:policies])
	set(1, headerState, text[policies:])

	tightest := r.Tightest()
	reset := tightest.Reset
	if !r.Allowed {
		reset = r.RetryAfter
		set(2, headerRetry, strconv.FormatInt(max(1, seconds(reset)), 10))
	}
	at := now.Add(reset + time.Second - 1).Unix() // rounded up
	set(3, headerLimit, strconv.Itoa(tightest.Limit.Requests))
	set(4, headerRemaining, strconv.Itoa(tightest.Remaining))
	set(5, headerReset, strconv.FormatInt(at, 10))
}

// appendItem appends the i-th item of a list, with two parameters, such as "key";r=59;t=12. For printable ASCII, which names are,
// Go and structured fields (RFC 9651) quote alike.
func appendItem(b []byte, i int, name string, parameter byte, value int64, second byte, other int64) []byte {
	if i > 0 {
		b = append(b, ", "...)
	}
	b = append(strconv.AppendQuoteToASCII(b, name), ';', parameter, '=')
	b = append(strconv.AppendInt(b, value, 10), ';', second, '=')
	return strconv.AppendInt(b, other, 10)
}

// seconds returns d in whole seconds, rounded up; 0 if d is not positive.
func seconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}
