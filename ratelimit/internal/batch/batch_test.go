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

type call struct{ partition, n, flushes int }

const timeout = 50 * time.Millisecond

func newBatcher(most int, timeout time.Duration, flush func(calls []*call)) *batch.Batcher[call] {
	return batch.New(batch.Options[call]{
		Max: most, Timeout: timeout, Go: func(f func()) { go f() }, Partition: func(c *call) int { return c.partition },
		Flush: func(_ int, calls []*call, _ time.Time) { flush(calls) },
	})
}

// start returns a Batcher whose flushes take duration, and the sizes of its flushes.
func start(duration time.Duration, most int) (*batch.Batcher[call], *[]int) {
	sizes := new([]int)
	return newBatcher(most, timeout, func(calls []*call) {
		*sizes = append(*sizes, len(calls))
		<-time.After(duration)
		for _, c := range calls {
			c.flushes++
		}
	}), sizes
}

func TestCallsDuringFlushShareTheNext(t *testing.T) {
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
			assert.Equal(t, 1, calls[i].flushes)
		}
		require.Equal(t, batch.Stats{Calls: 100, Waited: 64*9*time.Millisecond + 35*19*time.Millisecond}, b.Stats())
	})
}

// TestTimedOutCallIsNeverFlushed: flushes stay at full size and the queue does not grow, however many calls time out.
func TestTimedOutCallIsNeverFlushed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = 4
		b, sizes := start(40*time.Millisecond, most) // 100 calls per second; 1,000 arrive
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
			assert.Less(t, b.Stats().Queue, 100)
		}
		wg.Wait()
		synctest.Wait()
		flushed := 0
		for i, err := range errs {
			if err == nil {
				flushed++
				require.Equal(t, 1, calls[i].flushes)
				continue
			}
			require.ErrorIs(t, err, batch.ErrTimeout)
			assert.Zero(t, calls[i].flushes)
		}
		require.Greater(t, flushed, 190)
		for _, size := range (*sizes)[2:50] {
			assert.Equal(t, most, size)
		}
		require.Zero(t, b.Stats().Queue)
	})
}

func TestCancelDropsQueuedCallAndAwaitsRunningFlush(t *testing.T) {
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
		require.Equal(t, 1, first.flushes)
		require.Zero(t, second.flushes)
	})
}

func TestPanickingFlushDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := true
		b := newBatcher(1, timeout, func([]*call) {
			if broken {
				broken = false
				<-time.After(time.Millisecond)
				panic("panic in a client hook")
			}
		})
		var wg sync.WaitGroup
		wg.Go(func() { assert.Panics(t, func() { _ = b.Do(t.Context(), new(call)) }) })
		synctest.Wait()
		assert.NoError(t, b.Do(t.Context(), new(call)))
		wg.Wait()
		assert.NoError(t, b.Do(t.Context(), new(call)))
	})
}

// TestLongQueueFlushesBothPartitionsConcurrently, and keeps the order of each partition. A short queue is flushed at once.
func TestLongQueueFlushesBothPartitionsConcurrently(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		atOnce, most, both := 0, 0, 0
		last := map[int]int{} // by partition
		b := newBatcher(20, time.Second, func(calls []*call) {
			mu.Lock()
			atOnce++
			most = max(most, atOnce)
			if calls[0].partition != calls[len(calls)-1].partition {
				both++
			}
			for _, c := range calls {
				assert.Greater(t, c.n, last[c.partition])
				last[c.partition] = c.n
			}
			mu.Unlock()
			<-time.After(5 * time.Millisecond)
			mu.Lock()
			atOnce--
			mu.Unlock()
		})
		var wg sync.WaitGroup
		come := func(n int, pause time.Duration) {
			for i := range n {
				wg.Go(func() { assert.NoError(t, b.Do(t.Context(), &call{partition: i % 2, n: i/2 + 1})) })
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
