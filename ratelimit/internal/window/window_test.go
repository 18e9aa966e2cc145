package window_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/ratelimit/internal/window"
)

// model is the naive implementation, which keeps the time of every request.
type model struct{ at []int64 }

func (r *model) inside(now, span int64) []int64 {
	for i, at := range r.at {
		if at+span > now {
			return r.at[i:]
		}
	}
	return nil
}

// FuzzWindowMatchesModel compares a Window with the naive implementation at times chosen by the fuzzer.
func FuzzWindowMatchesModel(f *testing.F) {
	f.Add([]byte{1, 0, 0, 1, 0, 1, 255, 2, 3}, uint8(2))
	f.Add([]byte("now and then the clock steps back, and forward again"), uint8(60))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0}, uint8(255))
	f.Fuzz(func(t *testing.T, steps []byte, requests uint8) {
		const span = 1000
		limit := int(requests) + 1 // up to 256, so that requests are not grouped
		var w window.Window
		var r model
		now := int64(1)
		for _, step := range steps[:min(len(steps), 4000)] {
			now += int64(step) * int64(step) / 64
			w.Prune(now, span)
			inside := r.inside(now, span)
			require.Equal(t, len(inside), w.Total())
			retry, reset := int64(0), int64(span)
			if len(inside) > 0 {
				reset = inside[0] + span - now
			}
			if excess := len(inside) - limit; excess >= 0 {
				retry = inside[excess] + span - now
			}
			require.Equal(t, retry, w.Retry(now, limit, span))
			require.Equal(t, reset, w.Reset(now, span))
			n := int(step) % 8
			listed := 0
			for i, e := range w.Last(n) {
				require.Positive(t, e.Count)
				if i == 0 {
					require.GreaterOrEqual(t, e.At, inside[max(0, len(inside)-n)])
				}
				listed += e.Count
			}
			require.Equal(t, min(n, len(inside)), listed)
			if len(inside) < limit || step%16 == 0 { // a gateway may have to count requests above the limit
				w.Add(now, limit, span)
				r.at = append(r.at, now)
				require.Equal(t, now, w.Newest())
			}
		}
	})
}

// TestGroupedRequestsNeverExpireEarly bounds windows of more than 256 requests by the naive implementation on one side, and
// by a 256th of the span on the other.
func TestGroupedRequestsNeverExpireEarly(t *testing.T) {
	t.Parallel()
	const span, limit = int64(256_000), 1000
	var w window.Window
	var r model
	now := int64(1)
	for i := range int64(20_000) {
		now += i * 7919 % 300
		w.Prune(now, span)
		require.GreaterOrEqual(t, w.Total(), len(r.inside(now, span)))
		require.LessOrEqual(t, w.Total(), len(r.inside(now, span+span/256)))
		require.LessOrEqual(t, len(w.Last(w.Total())), 258, "the log must be bounded")
		if w.Retry(now, limit, span) == 0 {
			w.Add(now, limit, span)
			r.at = append(r.at, now)
		}
	}
}

// TestLogIsBoundedAboveTheLimit: during an outage with on_outage allow, a window may contain far more requests than the
// limit.
func TestLogIsBoundedAboveTheLimit(t *testing.T) {
	t.Parallel()
	const span, limit = int64(1_000_000), 2
	var w window.Window
	var r model
	for now := int64(1); now < 3*span; now += 7 {
		w.Prune(now, span)
		w.Add(now, limit, span)
		r.at = append(r.at, now)
	}
	require.LessOrEqual(t, len(w.Last(w.Total())), 1024)
	now := 3 * span
	w.Prune(now, span)
	require.GreaterOrEqual(t, w.Total(), len(r.inside(now, span)), "no request may expire early")
	require.LessOrEqual(t, w.Total(), len(r.inside(now, span+span/256)))
}

func TestClockSetBackCountsFromNewestRequest(t *testing.T) {
	t.Parallel()
	const span, limit = 60, 2
	var w window.Window
	w.Add(1000, limit, span)
	w.Add(400, limit, span)
	w.Prune(1059, span)
	require.Equal(t, int64(1), w.Retry(1059, limit, span))
	w.Prune(1060, span)
	require.Zero(t, w.Total())
	require.Zero(t, w.Retry(1060, limit, span))
}

func TestEntryCountDoesNotOverflow(t *testing.T) {
	t.Parallel()
	var w window.Window
	for range 1<<16 + 5 {
		w.Add(7, 1<<20, 60)
	}
	require.Equal(t, 1<<16+5, w.Total())
	require.Len(t, w.Last(w.Total()), 2)
	require.Equal(t, []window.Entry{{At: 7, Count: 3}}, w.Last(3))
}
