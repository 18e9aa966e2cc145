package ratelimit

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/redisclient"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

func benchClient(b *testing.B, s *redistest.Server, parallel int) redis.UniversalClient {
	b.Helper()
	o := s.Options()
	o.PoolSize = parallel
	o.ReadTimeout, o.WriteTimeout = 10*time.Second, 10*time.Second
	client := redisclient.New(o)
	b.Cleanup(func() { require.NoError(b, client.Close()) })
	return client
}

// BenchmarkAllowed measures allowed requests for 1,000 keys by concurrent callers, with a real Redis on the same machine.
func BenchmarkAllowed(b *testing.B) {
	ctx := context.Background()
	s := redistest.Start(b)
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprint("pk_live_", i)
	}
	for _, alg := range []Algorithm{Exact, GCRA} {
		for _, requests := range []int{keyRequests, 10_000_000} {
			for _, parallel := range []int{1, 8, 64} {
				b.Run(fmt.Sprintf("%s/limit=%d/parallel=%d", alg, requests, parallel), func(b *testing.B) {
					client := benchClient(b, s, parallel)
					require.NoError(b, client.FlushAll(ctx).Err())
					f, err := New(client, Options{Algorithm: alg, Timeout: 10 * time.Second}) //nolint:contextcheck // its background work has a context of its own
					require.NoError(b, err)
					defer func() { require.NoError(b, f.Close()) }()
					require.NoError(b, f.Ping(ctx))
					l := KeyLimit(requests)
					if requests == keyRequests {
						l.Window = 10 * time.Millisecond // so short that the limit is never reached
					}
					var next atomic.Int64
					var wg sync.WaitGroup
					b.ReportAllocs()
					b.ResetTimer()
					for range parallel {
						wg.Go(func() {
							for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
								group, counters := ForKey(keys[n%int64(len(keys))], l)
								if r, err := f.Allow(ctx, group, counters...); err != nil || !r.Allowed || r.By != ByRedis {
									b.Errorf("%+v %v", r, err)
								}
							}
						})
					}
					wg.Wait()
					b.ReportMetric(float64(b.N)/float64(f.Stats().RoundTrips), "requests/trip")
				})
			}
		}
	}
}

// BenchmarkDeniedLocally measures requests that are denied without asking Redis.
func BenchmarkDeniedLocally(b *testing.B) {
	s := redistest.Start(b)
	f, err := New(benchClient(b, s, 1), Options{Timeout: time.Second})
	require.NoError(b, err)
	defer func() { require.NoError(b, f.Close()) }()
	group, counters := ForKey("pk_live_abcdefgh", Limit{Name: "key", Requests: 1, Window: 24 * time.Hour})
	ctx := context.Background()
	_, err = f.Allow(ctx, group, counters...)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if r, err := f.Allow(ctx, group, counters...); err != nil || r.By != ByMemory {
			b.Fatal(r, err)
		}
	}
}
