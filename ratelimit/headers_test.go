package ratelimit_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

func TestHeadersOfOneBucket(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_764_000_000, 0)
	admitted := ratelimit.Result{
		Allowed: true,
		States:  []ratelimit.State{{Limit: ratelimit.KeyLimit(0), Remaining: 59, Reset: 11*time.Second + 1}},
	}
	h := http.Header{}
	admitted.SetHeaders(h, now)
	require.Equal(t, http.Header{
		"Ratelimit-Policy":      {`"key";q=60;w=60`},
		"Ratelimit":             {`"key";r=59;t=12`},
		"X-Ratelimit-Limit":     {"60"},
		"X-Ratelimit-Remaining": {"59"},
		"X-Ratelimit-Reset":     {"1764000012"},
	}, h)

	refused := ratelimit.Result{
		RetryAfter: 300 * time.Millisecond,
		States: []ratelimit.State{{
			Limit: ratelimit.AddressLimit(0), Reset: 300 * time.Millisecond, RetryAfter: 300 * time.Millisecond,
		}},
	}
	refused.SetHeaders(h, now.Add(900*time.Millisecond))
	require.Equal(t, http.Header{
		"Ratelimit-Policy":      {`"address";q=10;w=60`},
		"Ratelimit":             {`"address";r=0;t=1`},
		"X-Ratelimit-Limit":     {"10"},
		"X-Ratelimit-Remaining": {"0"},
		"X-Ratelimit-Reset":     {"1764000002"},
		"Retry-After":           {"1"},
	}, h)
}

func TestHeadersOfSeveralBucketsSpeakOfTheTightest(t *testing.T) {
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

	// Of two that refuse, the one that does for longer; and an admission's
	// headers do not outlive a refusal, nor the other way round.
	refused := ratelimit.Result{RetryAfter: 30 * time.Second, States: []ratelimit.State{
		{Limit: perKey, Reset: 30 * time.Second, RetryAfter: 30 * time.Second},
		{Limit: perAddress, Reset: 2 * time.Second, RetryAfter: 2 * time.Second},
	}}
	refused.SetHeaders(h, time.Unix(100, 1))
	require.Equal(t, "60", h.Get("X-RateLimit-Limit"))
	require.Equal(t, "131", h.Get("X-RateLimit-Reset"))
	require.Equal(t, "30", h.Get("Retry-After"))
	require.EqualValues(t, 30, refused.RetryAfterSeconds())
}

func TestHeadersAreStructuredFields(t *testing.T) {
	t.Parallel()
	h := http.Header{}
	ratelimit.Result{Allowed: true, States: []ratelimit.State{
		{Limit: ratelimit.Limit{Name: "a \"b\" \\ c\r\nX: é", Requests: 7, Window: 1500 * time.Millisecond}, Remaining: 6, Reset: time.Microsecond},
		{Limit: ratelimit.Limit{Name: "plain", Requests: 1, Window: time.Millisecond}, Remaining: 0, Reset: 0},
	}}.SetHeaders(h, time.Unix(100, 0))

	policy, err := httpsfv.UnmarshalList(h.Values("RateLimit-Policy"))
	require.NoError(t, err)
	state, err := httpsfv.UnmarshalList(h.Values("RateLimit"))
	require.NoError(t, err)
	param := func(list httpsfv.List, i int, name string) any {
		item, ok := list[i].(httpsfv.Item)
		require.True(t, ok)
		v, ok := item.Params.Get(name)
		require.True(t, ok)
		return v
	}
	require.Len(t, policy, 2)
	require.Len(t, state, 2)
	item, ok := policy[0].(httpsfv.Item)
	require.True(t, ok)
	require.Equal(t, `a "b" \ c??X: ??`, item.Value)
	require.EqualValues(t, 7, param(policy, 0, "q"))
	require.EqualValues(t, 2, param(policy, 0, "w"))
	require.EqualValues(t, 1, param(policy, 1, "w"), "a window is never 0 seconds")
	require.EqualValues(t, 6, param(state, 0, "r"))
	require.EqualValues(t, 1, param(state, 0, "t"))
	require.EqualValues(t, 0, param(state, 1, "r"))
}

func TestNoStatesNoHeaders(t *testing.T) {
	t.Parallel()
	h := http.Header{}
	ratelimit.Result{}.SetHeaders(h, time.Now())
	require.Empty(t, h)
	require.Zero(t, ratelimit.Result{}.Tightest())
}

func TestSecondsAreRoundedUp(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int64{
		-time.Second: 0, 0: 0, 1: 1, time.Second: 1, time.Second + 1: 2, time.Minute: 60,
	} {
		require.Equal(t, want, ratelimit.Seconds(d), d)
	}
	require.EqualValues(t, 1, ratelimit.Result{RetryAfter: 0}.RetryAfterSeconds(), "a refusal is never retried at once")
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
