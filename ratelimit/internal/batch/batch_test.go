package batch_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/ratelimit/internal/batch"
)

type call struct{ lane, runs int }

func laneOf(c *call) int { return c.lane }

const timeout = 50 * time.Millisecond

// start returns a batch whose runs take so long, and the sizes of its runs.
func start(took time.Duration, most int) (*batch.Batch[call], *[]int) {
	sizes := new([]int)
	return batch.New(batch.Options[call]{
		Max: most, Timeout: timeout, Go: func(f func()) { go f() }, Lane: laneOf,
		Run: func(_ int, calls []*call, _ time.Time) {
			*sizes = append(*sizes, len(calls))
			<-time.After(took)
			for _, c := range calls {
				c.runs++
			}
		},
	}), sizes
}

func TestCallsThatComeDuringARunShareTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, sizes := start(10*time.Millisecond, 64)
		var wg sync.WaitGroup
		calls := make([]call, 100)
		for i := range calls {
			wg.Go(func() {
				<-time.After(time.Duration(min(i, 1)) * time.Millisecond)
				assert.NoError(t, b.Do(t.Context(), &calls[i]))
			})
		}
		wg.Wait()
		synctest.Wait()
		require.Equal(t, []int{1, 64, 35}, *sizes)
		for i := range calls {
			require.Equal(t, 1, calls[i].runs)
		}
		s := b.Stats()
		require.Equal(t, batch.Stats{Runs: 3, Calls: 100, Waited: 64*9*time.Millisecond + 35*19*time.Millisecond}, s)
	})
}

// TestACallThatTimesOutInTheQueueIsNeverRun: its caller has decided without it. Runs go on at full size, and the queue does
// not grow, however many callers give up.
func TestACallThatTimesOutInTheQueueIsNeverRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = 4
		b, sizes := start(40*time.Millisecond, most) // 100 a second; 1,000 come
		var wg sync.WaitGroup
		calls := make([]call, 2000)
		errs := make([]error, len(calls))
		for i := range calls {
			wg.Go(func() {
				<-time.After(time.Duration(i) * time.Millisecond)
				errs[i] = b.Do(t.Context(), &calls[i])
			})
		}
		for range 20 {
			<-time.After(100 * time.Millisecond)
			require.Less(t, b.Stats().Queue, 100)
		}
		wg.Wait()
		synctest.Wait()
		answered := 0
		for i, err := range errs {
			if err == nil {
				answered++
				require.Equal(t, 1, calls[i].runs)
				continue
			}
			require.ErrorIs(t, err, batch.ErrTimeout)
			require.Zero(t, calls[i].runs)
		}
		require.Greater(t, answered, 190)
		for _, size := range (*sizes)[2:50] {
			require.Equal(t, most, size)
		}
		require.Zero(t, b.Stats().Queue)
	})
}

func TestACancelledCallIsNotRunAndOneThatIsRunIsAwaited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, _ := start(10*time.Millisecond, 64)
		errLeft := errors.New("left")
		ctx, cancel := context.WithCancelCause(t.Context())
		var first, second call
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, b.Do(ctx, &first)) })
		synctest.Wait()
		wg.Go(func() { assert.ErrorIs(t, b.Do(ctx, &second), errLeft) })
		synctest.Wait()
		cancel(errLeft)
		wg.Wait()
		synctest.Wait()
		require.Equal(t, 1, first.runs)
		require.Zero(t, second.runs)
	})
}

func TestNobodyWaitsForEverForARunThatPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := true
		b := batch.New(batch.Options[call]{
			Max: 1, Timeout: timeout, Go: func(f func()) { go f() }, Lane: laneOf,
			Run: func(int, []*call, time.Time) {
				if broken {
					broken = false
					<-time.After(time.Millisecond)
					panic("a hook of the client's")
				}
			},
		})
		var wg sync.WaitGroup
		wg.Go(func() { assert.Panics(t, func() { _ = b.Do(t.Context(), new(call)) }) })
		synctest.Wait()
		assert.NoError(t, b.Do(t.Context(), new(call)))
		wg.Wait()
		assert.NoError(t, b.Do(t.Context(), new(call)))
	})
}

// TestALongQueueIsRunInTwoLanesAtOnce, and calls of one lane in the order in which they came; a short one in one run.
func TestALongQueueIsRunInTwoLanesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type numbered struct{ lane, n int }
		var mu sync.Mutex
		atOnce, most, both := 0, 0, 0
		last := map[int]int{}
		b := batch.New(batch.Options[numbered]{
			Max: 20, Timeout: time.Second, Go: func(f func()) { go f() }, Lane: func(c *numbered) int { return c.lane },
			Run: func(_ int, calls []*numbered, _ time.Time) {
				mu.Lock()
				atOnce++
				most = max(most, atOnce)
				if calls[0].lane != calls[len(calls)-1].lane {
					both++
				}
				for _, c := range calls {
					assert.Greater(t, c.n, last[c.lane])
					last[c.lane] = c.n
				}
				mu.Unlock()
				<-time.After(5 * time.Millisecond)
				mu.Lock()
				atOnce--
				mu.Unlock()
			},
		})
		var wg sync.WaitGroup
		come := func(n int, pause time.Duration) {
			for i := range n {
				wg.Go(func() { assert.NoError(t, b.Do(t.Context(), &numbered{i % 2, i/2 + 1})) })
				<-time.After(pause)
			}
			wg.Wait()
			synctest.Wait()
			clear(last)
		}
		come(20, time.Millisecond)
		require.Equal(t, 1, most)
		require.Positive(t, both)
		come(1000, 50*time.Microsecond)
		require.Equal(t, 2, most)
		require.Zero(t, b.Stats().Queue)
		come(20, time.Millisecond)
	})
}
