package ratelimit_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/redistest"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// BenchmarkTakeAdmitted is a request that passes, against a real Redis on the
// same machine, at several parallelisms; over 1,000 keys.
func BenchmarkTakeAdmitted(b *testing.B) {
	s := redistest.Start(b)
	for _, alg := range []ratelimit.Algorithm{ratelimit.Exact, ratelimit.GCRA} {
		for _, parallel := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("%s/parallel=%d", alg, parallel), func(b *testing.B) {
				o := s.Options()
				o.PoolSize = parallel
				f := newFleet(b, o, ratelimit.Options{Algorithm: alg, Timeout: time.Second})
				require.NoError(b, f.Ping(context.Background()))
				l := ratelimit.KeyLimit(10_000_000)
				keys := make([]string, 1000)
				for i := range keys {
					keys[i] = fmt.Sprint("pk_live_", i)
				}
				var next, others atomic.Int64
				work := make(chan struct{})
				b.ReportAllocs()
				b.ResetTimer()
				for range parallel {
					go func() {
						ctx := context.Background()
						for {
							n := next.Add(1)
							if n > int64(b.N) {
								work <- struct{}{}
								return
							}
							group, bucket := ratelimit.ForKey(keys[n%int64(len(keys))], l)
							if r, err := f.Take(ctx, group, bucket); err != nil || !r.Allowed || r.By != ratelimit.ByRedis {
								others.Add(1)
							}
						}
					}()
				}
				for range parallel {
					<-work
				}
				b.StopTimer()
				require.Zero(b, others.Load())
				stats := f.Stats()
				b.ReportMetric(float64(stats.Asked)/float64(max(1, stats.RoundTrips)), "takes/trip")
			})
		}
	}
}

// BenchmarkTakeRefused is a request over its limit: answered from memory.
func BenchmarkTakeRefused(b *testing.B) {
	s := redistest.Start(b)
	f := newFleet(b, s.Options(), ratelimit.Options{Timeout: time.Second})
	group, bucket := ratelimit.ForKey("pk_live_abcdefgh", ratelimit.Limit{Name: "key", Requests: 1, Window: 24 * time.Hour})
	ctx := context.Background()
	_, err := f.Take(ctx, group, bucket)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if r, err := f.Take(ctx, group, bucket); err != nil || r.By != ratelimit.ByMemory {
			b.Fatal(r, err)
		}
	}
}
