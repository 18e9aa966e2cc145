package ratelimit_test

import (
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

func TestSetHeadersOneBucket(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_764_000_000, 0)
	allowed := ratelimit.Result{
		Allowed: true,
		States:  []ratelimit.State{{Limit: ratelimit.KeyLimit(0), Remaining: 59, Reset: 11*time.Second + 1}},
	}
	h := http.Header{}
	allowed.SetHeaders(h, now)
	require.Equal(t, http.Header{
		"Ratelimit-Policy":      {`"key";q=60;w=60`},
		"Ratelimit":             {`"key";r=59;t=12`},
		"X-Ratelimit-Limit":     {"60"},
		"X-Ratelimit-Remaining": {"59"},
		"X-Ratelimit-Reset":     {"1764000012"},
	}, h)

	denied := ratelimit.Result{
		RetryAfter: 300 * time.Millisecond,
		States: []ratelimit.State{{
			Limit: ratelimit.IPLimit(0), Reset: 300 * time.Millisecond, RetryAfter: 300 * time.Millisecond,
		}},
	}
	denied.SetHeaders(h, now.Add(900*time.Millisecond))
	require.Equal(t, http.Header{
		"Ratelimit-Policy":      {`"address";q=10;w=60`},
		"Ratelimit":             {`"address";r=0;t=1`},
		"X-Ratelimit-Limit":     {"10"},
		"X-Ratelimit-Remaining": {"0"},
		"X-Ratelimit-Reset":     {"1764000002"},
		"Retry-After":           {"1"},
	}, h)
}

func TestSetHeadersUsesTightestBucket(t *testing.T) {
	t.Parallel()
	_, buckets := ratelimit.ForUnverified("pk_live_abcdefgh", "192.0.2.1")
	perKey, perAddress := buckets[0].Limit, buckets[1].Limit
	h := http.Header{}
	ratelimit.Result{Allowed: true, States: []ratelimit.State{
		{Limit: perKey, Remaining: 59, Reset: time.Minute},
		{Limit: perAddress, Remaining: 3, Reset: 2 * time.Second},
	}}.SetHeaders(h, time.Unix(100, 0))
	require.Equal(t, []string{`"unverified-key";q=60;w=60, "unverified-address";q=120;w=60`}, h.Values("RateLimit-Policy"))
	require.Equal(t, []string{`"unverified-key";r=59;t=60, "unverified-address";r=3;t=2`}, h.Values("RateLimit"))
	require.Equal(t, "120", h.Get("X-RateLimit-Limit"))
	require.Equal(t, "3", h.Get("X-RateLimit-Remaining"))
	require.Equal(t, "102", h.Get("X-RateLimit-Reset"))
	require.Empty(t, h.Values("Retry-After"))

	// Two denials: the longer one counts. Headers of an earlier response do not remain.
	denied := ratelimit.Result{RetryAfter: 30 * time.Second, States: []ratelimit.State{
		{Limit: perKey, Reset: 30 * time.Second, RetryAfter: 30 * time.Second},
		{Limit: perAddress, Reset: 2 * time.Second, RetryAfter: 2 * time.Second},
	}}
	denied.SetHeaders(h, time.Unix(100, 1))
	require.Equal(t, "60", h.Get("X-RateLimit-Limit"))
	require.Equal(t, "131", h.Get("X-RateLimit-Reset"))
	require.Equal(t, "30", h.Get("Retry-After"))
	require.EqualValues(t, 30, denied.RetryAfterSeconds())
}

// structured matches a list of strings with integer parameters as of RFC 9651.
var structured = regexp.MustCompile(`^"(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*"(?:;[a-z]+=(?:0|[1-9][0-9]{0,14}))*` +
	`(?:, "(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*"(?:;[a-z]+=(?:0|[1-9][0-9]{0,14}))*)*$`)

func TestSetHeadersWritesStructuredFields(t *testing.T) {
	t.Parallel()
	h := http.Header{}
	ratelimit.Result{Allowed: true, States: []ratelimit.State{
		{Limit: ratelimit.Limit{Name: "a \"b\" \\ c\r\nX: é", Requests: 7, Window: 1500 * time.Millisecond}, Remaining: 6, Reset: time.Microsecond},
		{Limit: ratelimit.Limit{Name: "plain", Requests: 1, Window: time.Millisecond}, Remaining: 0, Reset: 0},
	}}.SetHeaders(h, time.Unix(100, 0))
	require.Equal(t, `"a \"b\" \\ c??X: ??";q=7;w=2, "plain";q=1;w=1`, h.Get("RateLimit-Policy"), "a window must not be 0 seconds")
	require.Equal(t, `"a \"b\" \\ c??X: ??";r=6;t=1, "plain";r=0;t=0`, h.Get("RateLimit"))
	require.Regexp(t, structured, h.Get("RateLimit-Policy"))
	require.Regexp(t, structured, h.Get("RateLimit"))
}

func FuzzSetHeadersWritesStructuredFields(f *testing.F) {
	f.Add("key", 60, int64(time.Minute), 59, int64(11*time.Second), true)
	f.Add("\"\\\r\n\x00\xff", ratelimit.MaxRequests, int64(ratelimit.MaxWindow), 0, int64(1), false)
	f.Fuzz(func(t *testing.T, name string, requests int, window int64, remaining int, reset int64, allowed bool) {
		if requests < 1 || window < 1 || remaining < 0 || reset < 0 {
			return
		}
		requests, remaining = min(requests, ratelimit.MaxRequests), min(remaining, ratelimit.MaxRequests)
		r := ratelimit.Result{Allowed: allowed, States: []ratelimit.State{{
			Limit:     ratelimit.Limit{Name: name, Requests: requests, Window: min(time.Duration(window), ratelimit.MaxWindow)},
			Remaining: remaining, Reset: min(time.Duration(reset), ratelimit.MaxWindow),
		}}}
		if !allowed {
			r.RetryAfter = r.States[0].Reset
			r.States[0].RetryAfter = r.States[0].Reset
		}
		h := http.Header{}
		now := time.Unix(1_764_000_000, 500)
		r.SetHeaders(h, now)
		require.Regexp(t, structured, h.Get("RateLimit-Policy"))
		require.Regexp(t, structured, h.Get("RateLimit"))
		at, err := strconv.ParseInt(h.Get("X-RateLimit-Reset"), 10, 64)
		require.NoError(t, err)
		require.False(t, time.Unix(at, 0).Before(now.Add(r.States[0].Reset)), "a client that waits until then must not be early")
		require.Equal(t, allowed, h.Get("Retry-After") == "")
		require.NotEqual(t, "0", h.Get("Retry-After"))
	})
}

func TestSetHeadersWithoutStates(t *testing.T) {
	t.Parallel()
	h := http.Header{}
	ratelimit.Result{}.SetHeaders(h, time.Now())
	require.Empty(t, h)
	require.Zero(t, ratelimit.Result{}.Tightest())
}

func TestSecondsRoundsUp(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int64{
		-time.Second: 0, 0: 0, 1: 1, time.Second: 1, time.Second + 1: 2, time.Minute: 60,
	} {
		require.Equal(t, want, ratelimit.Seconds(d), d)
	}
	require.EqualValues(t, 1, ratelimit.Result{RetryAfter: 0}.RetryAfterSeconds(), "a denied request must not be retried immediately")
	require.EqualValues(t, 0, ratelimit.Result{Allowed: true}.RetryAfterSeconds())
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
