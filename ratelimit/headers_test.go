package ratelimit_test

import (
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

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
			want: [6]string{`"ip";q=10;w=60`, `"ip";r=0;t=1`, "10", "0", "102", "1"},
		},
		"tightest of two counters": {
			now: now,
			result: ratelimit.Result{Allowed: true, States: []ratelimit.State{
				{Limit: perKey, Remaining: 59, Reset: time.Minute},
				{Limit: perIP, Remaining: 3, Reset: 2 * time.Second},
			}},
			want: [6]string{`"unverified-key";q=60;w=60, "unverified-ip";q=120;w=60`, `"unverified-key";r=59;t=60, "unverified-ip";r=3;t=2`, "120", "3", "102", ""},
		},
		"longer of two denials": {
			now: now.Add(1),
			result: ratelimit.Result{RetryAfter: 30 * time.Second, States: []ratelimit.State{
				{Limit: perKey, Reset: 30 * time.Second, RetryAfter: 30 * time.Second},
				{Limit: perIP, Reset: 2 * time.Second, RetryAfter: 2 * time.Second},
			}},
			want: [6]string{`"unverified-key";q=60;w=60, "unverified-ip";q=120;w=60`, `"unverified-key";r=0;t=30, "unverified-ip";r=0;t=2`, "60", "0", "131", "30"},
		},
		"quotes in a name, short windows": {
			now: now,
			result: ratelimit.Result{Allowed: true, States: []ratelimit.State{
				{Limit: ratelimit.Limit{Name: `a "b" \ c`, Requests: 7, Window: 1500 * time.Millisecond}, Remaining: 6, Reset: time.Microsecond},
				{Limit: ratelimit.Limit{Name: "plain", Requests: 1, Window: time.Millisecond}},
			}},
			want: [6]string{`"a \"b\" \\ c";q=7;w=2, "plain";q=1;w=1`, `"a \"b\" \\ c";r=6;t=1, "plain";r=0;t=0`, "1", "0", "100", ""},
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
			assert.Equal(t, c.want, got)
			assert.Empty(t, h, "other headers")
		})
	}
}

// FuzzSetHeadersWritesStructuredFields compares the headers with what a library for structured fields reads in them.
func FuzzSetHeadersWritesStructuredFields(f *testing.F) {
	f.Add("key", 60, int64(time.Minute), 59, int64(11*time.Second), true)
	f.Add(`"\~ `, ratelimit.MaxRequests, int64(ratelimit.MaxWindow), 0, int64(1), false)
	f.Fuzz(func(t *testing.T, name string, requests int, window int64, remaining int, reset int64, allowed bool) {
		if requests < 1 || window < 1 || remaining < 0 || reset < 0 || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) {
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
		require.Equal(t, int64(requests), structuredField(t, h, "RateLimit-Policy", name, "q"))
		require.Equal(t, int64(remaining), structuredField(t, h, "RateLimit", name, "r"))
		wait := time.Duration(structuredField(t, h, "RateLimit", name, "t")) * time.Second
		at, err := strconv.ParseInt(h.Get("X-RateLimit-Reset"), 10, 64)
		require.NoError(t, err)
		for _, until := range []time.Time{time.Unix(at, 0), now.Add(wait)} {
			require.False(t, until.Before(now.Add(r.States[0].Reset)), "a client that waits until then must not be early")
		}
		require.Equal(t, allowed, h.Get("Retry-After") == "")
		require.NotEqual(t, "0", h.Get("Retry-After"))
	})
}

// structuredField returns an integer parameter of the only item in a header, which must be the string name.
func structuredField(t *testing.T, h http.Header, header, name, parameter string) int64 {
	t.Helper()
	list, err := httpsfv.UnmarshalList(h.Values(header))
	require.NoError(t, err)
	require.Len(t, list, 1)
	item := list[0].(httpsfv.Item)
	require.Equal(t, name, item.Value)
	n, _ := item.Params.Get(parameter)
	require.IsType(t, int64(0), n)
	return n.(int64)
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
