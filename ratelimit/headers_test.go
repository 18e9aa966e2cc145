package ratelimit_test

import (
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// structured matches a list of strings with integer parameters as of RFC 9651.
var structured = regexp.MustCompile(`^"(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*"(?:;[a-z]+=(?:0|[1-9][0-9]{0,14}))*` +
	`(?:, "(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*"(?:;[a-z]+=(?:0|[1-9][0-9]{0,14}))*)*$`)

func TestSetHeaders(t *testing.T) {
	t.Parallel()
	_, unverified := ratelimit.ForUnverified("pk_live_abcdefgh", netip.Addr{})
	perKey, perIP := unverified[0].Limit, unverified[1].Limit
	now := time.Unix(100, 0)
	for name, c := range map[string]struct {
		now    time.Time
		result ratelimit.Result
		want   [6]string // policies, states, limit, remaining, reset, Retry-After
	}{
		"allowed": {
			now: now,
			result: ratelimit.Result{Allowed: true, States: []ratelimit.State{
				{Limit: ratelimit.KeyLimit(0), Remaining: 59, Reset: 11*time.Second + 1},
			}},
			want: [6]string{`"key";q=60;w=60`, `"key";r=59;t=12`, "60", "59", "112", ""},
		},
		"denied": {
			now: now.Add(900 * time.Millisecond),
			result: ratelimit.Result{RetryAfter: 300 * time.Millisecond, States: []ratelimit.State{
				{Limit: ratelimit.IPLimit(0), Reset: 300 * time.Millisecond, RetryAfter: 300 * time.Millisecond},
			}},
			want: [6]string{`"address";q=10;w=60`, `"address";r=0;t=1`, "10", "0", "102", "1"},
		},
		"tightest of two buckets": {
			now: now,
			result: ratelimit.Result{Allowed: true, States: []ratelimit.State{
				{Limit: perKey, Remaining: 59, Reset: time.Minute},
				{Limit: perIP, Remaining: 3, Reset: 2 * time.Second},
			}},
			want: [6]string{`"unverified-key";q=60;w=60, "unverified-address";q=120;w=60`, `"unverified-key";r=59;t=60, "unverified-address";r=3;t=2`, "120", "3", "102", ""},
		},
		"longer of two denials": {
			now: now.Add(1),
			result: ratelimit.Result{RetryAfter: 30 * time.Second, States: []ratelimit.State{
				{Limit: perKey, Reset: 30 * time.Second, RetryAfter: 30 * time.Second},
				{Limit: perIP, Reset: 2 * time.Second, RetryAfter: 2 * time.Second},
			}},
			want: [6]string{`"unverified-key";q=60;w=60, "unverified-address";q=120;w=60`, `"unverified-key";r=0;t=30, "unverified-address";r=0;t=2`, "60", "0", "131", "30"},
		},
		"hostile name, short windows": {
			now: now,
			result: ratelimit.Result{Allowed: true, States: []ratelimit.State{
				{Limit: ratelimit.Limit{Name: "a \"b\" \\ c\r\nX: é", Requests: 7, Window: 1500 * time.Millisecond}, Remaining: 6, Reset: time.Microsecond},
				{Limit: ratelimit.Limit{Name: "plain", Requests: 1, Window: time.Millisecond}},
			}},
			want: [6]string{`"a \"b\" \\ c??X: ??";q=7;w=2, "plain";q=1;w=1`, `"a \"b\" \\ c??X: ??";r=6;t=1, "plain";r=0;t=0`, "1", "0", "100", ""},
		},
		"no states": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := http.Header{}
			if name != "no states" {
				h.Set("X-RateLimit-Remaining", "of an earlier response")
			}
			c.result.SetHeaders(h, c.now)
			var got [6]string
			for i, name := range []string{
				"RateLimit-Policy", "RateLimit", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After",
			} {
				got[i] = strings.Join(h.Values(name), " and ")
				h.Del(name)
			}
			require.Equal(t, c.want, got)
			require.Empty(t, h, "other headers")
			if name != "no states" {
				require.Regexp(t, structured, got[0])
				require.Regexp(t, structured, got[1])
			}
		})
	}
}

func BenchmarkSetHeaders(b *testing.B) {
	now := time.Now()
	r := ratelimit.Result{Allowed: true, States: []ratelimit.State{{Limit: ratelimit.KeyLimit(0), Remaining: 59, Reset: 11 * time.Second}}}
	h := make(http.Header, 8)
	b.ReportAllocs()
	for b.Loop() {
		r.SetHeaders(h, now)
	}
}
