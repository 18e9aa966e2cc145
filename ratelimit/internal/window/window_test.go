package window_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/windowtest"
	"github.com/gatehouse-gateway/gatehouse/ratelimit/internal/window"
)

// FuzzWindowMatchesModel compares a Window with the naive implementation at times chosen by the fuzzer.
func FuzzWindowMatchesModel(f *testing.F) {
	f.Add([]byte{1, 0, 0, 1, 0, 1, 255, 2, 3}, uint8(2))
	f.Add([]byte("now and then the clock steps back, and forward again"), uint8(60))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0}, uint8(255))
	f.Fuzz(func(t *testing.T, steps []byte, requests uint8) {
		const length = 1000
		limit := int(requests) + 1 // at most 256, so that requests are not grouped
		var w window.Window
		var m windowtest.Model
		now := int64(1)
		for _, step := range steps[:min(len(steps), 4000)] {
			now += int64(step) * int64(step) / 64
			w.Prune(now, length)
			inside, want := m.Inside(now, length), m.State(now, length, limit)
			require.Equal(t, len(inside), w.Total())
			require.Equal(t, want.Retry, w.Retry(now, limit, length))
			require.Equal(t, want.Reset, w.Reset(now, length))
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
				w.Add(now, limit, length)
				m.Add(now)
				require.Equal(t, now, w.Newest())
			}
		}
	})
}

// TestGroupedRequestsNeverExpireEarly bounds a Window whose requests are grouped by the naive implementation on one side, and
// by a 256th of the length on the other.
func TestGroupedRequestsNeverExpireEarly(t *testing.T) {
	t.Parallel()
	const length = int64(256_000)
	for name, c := range map[string]struct {
		limit int
		above bool  // as in an outage with on_outage allow
		pause int64 // maximum time between requests
		most  int   // entries in the log
	}{
		"high limit":          {limit: 1000, pause: 300, most: 258},
		"far above the limit": {limit: 2, above: true, pause: 20, most: 1024},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var w window.Window
			var m windowtest.Model
			now := int64(1)
			for i := range int64(40_000) {
				now += i * 7919 % c.pause
				w.Prune(now, length)
				require.GreaterOrEqual(t, w.Total(), len(m.Inside(now, length)), "no request may expire early")
				require.LessOrEqual(t, w.Total(), len(m.Inside(now, length+length/256)))
				if i%64 == 0 {
					require.LessOrEqual(t, len(w.Last(w.Total())), c.most, "the log must be bounded")
				}
				if c.above || w.Retry(now, c.limit, length) == 0 {
					w.Add(now, c.limit, length)
					m.Add(now)
				}
			}
		})
	}
}

func TestClockSetBackCountsFromNewestRequest(t *testing.T) {
	t.Parallel()
	const length, limit = 60, 2
	var w window.Window
	w.Add(1000, limit, length)
	w.Add(400, limit, length)
	w.Prune(1059, length)
	require.Equal(t, int64(1), w.Retry(1059, limit, length))
	w.Prune(1060, length)
	assert.Zero(t, w.Total())
	assert.Zero(t, w.Retry(1060, limit, length))
}

func TestEntryCountDoesNotOverflow(t *testing.T) {
	t.Parallel()
	var w window.Window
	for range 1<<16 + 5 {
		w.Add(7, 1<<20, 60)
	}
	assert.Equal(t, 1<<16+5, w.Total())
	require.Len(t, w.Last(w.Total()), 2)
	assert.Equal(t, []window.Entry{{At: 7, Count: 3}}, w.Last(3))
}
