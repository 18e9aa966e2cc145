package ratelimit

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/redistest"
)

// cpuTime is what this process and Redis have used of the processors.
func cpuTime(ctx context.Context, b *testing.B, client redis.UniversalClient) time.Duration {
	b.Helper()
	var own syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &own))
	total := time.Duration(own.Utime.Nano() + own.Stime.Nano())
	for line := range strings.Lines(client.Info(ctx, "cpu").Val()) {
		var sec float64
		for _, name := range []string{"used_cpu_sys", "used_cpu_user"} {
			if n, _ := fmt.Sscanf(line, name+":%g", &sec); n == 1 {
				total += time.Duration(sec * float64(time.Second))
			}
		}
	}
	return total
}

// runParallel makes b.N takes of 1,000 keys by so many goroutines, and reports
// the processor time of both sides for each.
func runParallel(ctx context.Context, b *testing.B, parallel int, client redis.UniversalClient, take func(key string) error) {
	b.Helper()
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprint("pk_live_", i)
	}
	var next, failed atomic.Int64
	var wg sync.WaitGroup
	before := cpuTime(ctx, b, client)
	b.ReportAllocs()
	b.ResetTimer()
	for range parallel {
		wg.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				if take(keys[n%int64(len(keys))]) != nil {
					failed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64((cpuTime(ctx, b, client)-before).Microseconds())/float64(b.N), "cpu-us/op")
	require.Zero(b, failed.Load())
}

func benchClient(b *testing.B, s *redistest.Server, parallel int) redis.UniversalClient {
	b.Helper()
	o := s.Options()
	o.PoolSize = parallel
	o.ReadTimeout, o.WriteTimeout = 10*time.Second, 10*time.Second
	TuneClient(o)
	client := redis.NewUniversalClient(o)
	b.Cleanup(func() { require.NoError(b, client.Close()) })
	return client
}

// BenchmarkTakeAdmitted is a request that passes, against a real Redis on the
// same machine. On two cores that had other work too (load 8), processor time of
// the gateway and Redis together for each take, in microseconds:
//
//	              one at a time   8 at once   64 at once
//	exact, 60        82, 22 allocs   30, 7        23, 5      7.6 and 30 takes a round trip
//	gcra, 60         76, 29 allocs   74, 29       89, 30     1
//
//	go test -run '^$' -bench 'TakeAdmitted' ./ratelimit
func BenchmarkTakeAdmitted(b *testing.B) {
	ctx := context.Background()
	s := redistest.Start(b)
	for _, alg := range []Algorithm{Exact, GCRA} {
		for _, requests := range []int{DefaultKeyRequests, 10_000_000} {
			for _, parallel := range []int{1, 8, 64} {
				b.Run(fmt.Sprintf("%s/limit=%d/parallel=%d", alg, requests, parallel), func(b *testing.B) {
					client := benchClient(b, s, parallel)
					require.NoError(b, client.FlushAll(ctx).Err())
					f, err := New(client, Options{Algorithm: alg, Timeout: 10 * time.Second})
					require.NoError(b, err)
					defer func() { require.NoError(b, f.Close()) }()
					require.NoError(b, f.Ping(ctx))
					l := KeyLimit(requests)
					if requests == DefaultKeyRequests {
						l.Window = 10 * time.Millisecond // nobody reaches it
					}
					runParallel(ctx, b, parallel, client, func(key string) error {
						group, bucket := ForKey(key, l)
						r, err := f.Take(ctx, group, bucket)
						if err == nil && (!r.Allowed || r.By != ByRedis) {
							err = fmt.Errorf("%+v", r)
						}
						return err
					})
					stats := f.Stats()
					b.ReportMetric(float64(stats.Asked)/float64(max(1, stats.RoundTrips)), "takes/trip")
				})
			}
		}
	}
}

// BenchmarkWaysToRedis compares the ways in which 64 requests at a time can put
// the script's question: each by itself, by go-redis's AutoPipeline (which keeps
// no deadline of a request), in pipelines of scripts (what a Cluster has to use)
// and in one script for all that wait (what a single server is asked). In one run
// on the same two busy cores: 68, 34, 36 and 21 microseconds of processor time of
// both sides.
//
//	go test -run '^$' -bench WaysToRedis ./ratelimit
func BenchmarkWaysToRedis(b *testing.B) {
	const parallel = 64
	ctx := context.Background()
	s := redistest.Start(b)
	sha := redis.NewScript(exactScript).Hash()
	args := func(key string) []any {
		return []any{"evalsha", sha, 1, key, 4, 10_000_000, time.Minute.Microseconds()}
	}
	prepare := func(b *testing.B) *redis.Client {
		b.Helper()
		client, ok := benchClient(b, s, parallel).(*redis.Client)
		require.True(b, ok)
		require.NoError(b, client.FlushAll(ctx).Err())
		require.NoError(b, client.ScriptLoad(ctx, exactScript).Err())
		return client
	}
	b.Run("each", func(b *testing.B) {
		client := prepare(b)
		runParallel(ctx, b, parallel, client, func(key string) error {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			return client.Process(ctx, redis.NewIntSliceCmd(ctx, args(key)...))
		})
	})
	b.Run("autopipeline", func(b *testing.B) {
		client := prepare(b)
		ap, err := client.AutoPipeline()
		require.NoError(b, err)
		defer func() { require.NoError(b, ap.Close()) }()
		runParallel(ctx, b, parallel, client, func(key string) error {
			cmd := redis.NewIntSliceCmd(ctx, args(key)...)
			_ = ap.Process(ctx, cmd)
			return cmd.Err()
		})
	})
	for name, cluster := range map[string]bool{"pipelines": true, "scripts": false} {
		b.Run(name, func(b *testing.B) {
			client := prepare(b)
			f, err := New(client, Options{Timeout: 10 * time.Second})
			require.NoError(b, err)
			defer func() { require.NoError(b, f.Close()) }()
			require.NoError(b, f.Ping(ctx))
			f.cluster = cluster
			runParallel(ctx, b, parallel, client, func(key string) error {
				c := f.getCall()
				c.n, c.keys[0], c.limits[0], c.spans[0] = 1, key, 10_000_000, time.Minute.Microseconds()
				if err := f.lanes[0].do(ctx, c); err != nil {
					return err
				}
				f.putCall(c)
				return nil
			})
		})
	}
}

// BenchmarkTakeRefused is a request over its limit, answered from memory: 1.1
// microseconds, 2 allocations (the states, and the caller's buckets).
func BenchmarkTakeRefused(b *testing.B) {
	s := redistest.Start(b)
	f, err := New(benchClient(b, s, 1), Options{Timeout: time.Second})
	require.NoError(b, err)
	defer func() { require.NoError(b, f.Close()) }()
	group, bucket := ForKey("pk_live_abcdefgh", Limit{Name: "key", Requests: 1, Window: 24 * time.Hour})
	ctx := context.Background()
	_, err = f.Take(ctx, group, bucket)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if r, err := f.Take(ctx, group, bucket); err != nil || r.By != ByMemory {
			b.Fatal(r, err)
		}
	}
}
