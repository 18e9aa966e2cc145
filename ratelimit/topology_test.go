package ratelimit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// keysOf returns n keys for each of the cluster's masters, whose buckets it stores.
func keysOf(t testing.TB, cl *redistest.Cluster, f ratelimit.Limiter, client *redis.ClusterClient, n int, l ratelimit.Limit) [][]string {
	t.Helper()
	keys := make([][]string, len(cl.Nodes))
	full := 0
	for i := 0; full < 3; i++ {
		key := fmt.Sprint("key", i)
		slot := int(client.ClusterKeySlot(context.Background(), f.KeyName(key, ratelimit.Bucket{Key: key, Limit: l})).Val())
		owner := cl.Owner(slot)
		if len(keys[owner]) < n {
			keys[owner] = append(keys[owner], key)
			if len(keys[owner]) == n {
				full++
			}
		}
	}
	return keys
}

func TestClusterEnforcesLimitDuringSlotMigrationAndNodeFailure(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	cl := redistest.StartCluster(t)
	// There are no replicas. A long node timeout keeps slow nodes from being marked as failed.
	require.NoError(t, cl.SetNodeTimeout(ctx, time.Minute))
	client := cl.Client(t)
	limiters := newLimiters(t, 3, cl.Options, withLongTimeout())
	for _, f := range limiters {
		require.NoError(t, f.Ping(ctx))
	}
	l := limit(30, time.Hour)
	keys := keysOf(t, cl, limiters[0], client, 3, l)

	// 200 concurrent requests for each node.
	for _, k := range keys {
		require.Equal(t, 30, allowConcurrently(t, limiters, 200, k[0], l))
	}
	// Several buckets of one group.
	group, buckets := ratelimit.ForUnverified("pk_live_abcdefgh", "192.0.2.1")
	r, err := limiters[0].Allow(ctx, group, buckets...)
	require.NoError(t, err)
	require.True(t, r.Allowed)
	require.Equal(t, ratelimit.ByRedis, r.By)

	// A bucket's slot migrates while it is in use: no request is lost or counted twice.
	moving := keys[0][1]
	slot := int(client.ClusterKeySlot(ctx, limiters[0].KeyName(moving, ratelimit.Bucket{Key: moving, Limit: l})).Val())
	moved := make(chan error, 1)
	go func() { moved <- cl.MoveSlot(ctx, slot, 1) }()
	allowed := 0
	for i := range 28 {
		r := allow(t, limiters[i%3], moving, l)
		require.True(t, r.Allowed)
		require.Equal(t, ratelimit.ByRedis, r.By)
		require.Equal(t, 29-i, r.States[0].Remaining)
		allowed++
	}
	require.NoError(t, <-moved)
	require.Equal(t, 30-allowed, allowConcurrently(t, limiters, 60, moving, l))
	require.False(t, allow(t, limiters[0], keys[0][0], l).Allowed)

	// A node fails: limits of its slots are enforced locally, the others by Redis.
	require.NoError(t, cl.Nodes[2].Kill())
	dead, alive := keys[2][2], keys[1][2]
	require.Equal(t, 30, allowConcurrently(t, limiters[:1], 100, dead, l))
	require.Eventually(t, func() bool {
		r := allow(t, limiters[1], alive, limit(ratelimit.MaxRequests, time.Minute))
		return r.By == ratelimit.ByRedis
	}, longTimeout, time.Millisecond)
	require.Equal(t, 30, allowConcurrently(t, limiters, 100, keys[1][1], l))
	require.Eventually(t, func() bool { allow(t, limiters[0], keys[2][1], l); return limiters[0].Unavailable() != nil }, longTimeout, time.Millisecond)
	down := limiters[0].Stats()
	require.Equal(t, 16, down.Shards)
	require.LessOrEqual(t, down.UnavailableShards, 6, "only the failed node's slots may become unavailable")

	// It restarts empty (a Cluster node keeps its slots).
	require.NoError(t, cl.Nodes[2].Restart())
	require.Eventually(t, func() bool { return limiters[0].Unavailable() == nil }, 2*longTimeout, 10*time.Millisecond)
	// The key's shard need not have become unavailable. Then its requests are synced in the background. Peek waits for that
	// without counting.
	fresh := newLimiter(t, cl.Options(), withLongTimeout())
	require.Eventually(t, func() bool {
		r, err := fresh.Peek(ctx, dead, ratelimit.Bucket{Key: dead, Limit: l})
		return err == nil && r.By == ratelimit.ByRedis && !r.Allowed
	}, longTimeout, 10*time.Millisecond, "what was allowed during the outage must be synced")
}

func TestClusterFailoverKeepsCounts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	cl := redistest.StartClusterWithReplicas(t)
	require.NoError(t, cl.SetNodeTimeout(ctx, time.Minute))
	client := cl.Client(t)
	limiters := newLimiters(t, 2, cl.Options, withLongTimeout())
	for _, f := range limiters {
		require.NoError(t, f.Ping(ctx))
	}
	l := limit(30, 10*time.Minute)
	key := keysOf(t, cl, limiters[0], client, 1, l)[0][0]
	require.Equal(t, 20, allowConcurrently(t, limiters, 20, key, l))
	redistest.AwaitReplica(t, cl.Nodes[0], cl.Nodes[3])
	require.NoError(t, cl.Nodes[0].Kill())
	require.NoError(t, cl.SetNodeTimeout(ctx, time.Second))
	replica := cl.Nodes[3].Client(t)
	require.Eventually(t, func() bool {
		info, err := replica.Info(ctx, "replication").Result()
		return err == nil && strings.Contains(info, "role:master")
	}, 2*longTimeout, 20*time.Millisecond)
	require.NoError(t, cl.SetNodeTimeout(ctx, time.Minute))
	promoted := time.Now()
	for _, f := range limiters {
		require.Eventually(t, func() bool {
			r, err := f.Peek(ctx, key, ratelimit.Bucket{Key: key, Limit: l})
			return err == nil && r.By == ratelimit.ByRedis && f.Unavailable() == nil
		}, longTimeout, 10*time.Millisecond)
	}
	t.Logf("shared again %v after the failover", time.Since(promoted).Round(time.Millisecond))
	require.Equal(t, 10, allowConcurrently(t, limiters, 60, key, l))
}

func TestSentinelFailoverKeepsCounts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := redistest.StartSentinel(t)
	require.NoError(t, s.ReplaceAfter(ctx, 10*time.Minute))
	limiters := newLimiters(t, 2, s.Options, withLongTimeout())
	for _, f := range limiters {
		require.NoError(t, f.Ping(ctx))
	}
	l := limit(30, 10*time.Minute)
	require.Equal(t, 20, allowConcurrently(t, limiters, 20, "k", l))
	redistest.AwaitReplica(t, s.Master, s.Replica)
	require.NoError(t, s.Master.Kill())
	// The failover starts after both limiters have noticed the outage.
	for _, f := range limiters {
		awaitUnavailable(t, f)
	}
	// Meanwhile each gateway continues from its local window.
	require.Equal(t, 2, allowConcurrently(t, limiters, 2, "k", l))
	require.NoError(t, s.ReplaceAfter(ctx, 500*time.Millisecond))
	require.Eventually(t, func() bool {
		addr, err := s.MasterAddr(ctx)
		return err == nil && addr == s.Replica.Addr
	}, 2*longTimeout, 10*time.Millisecond)
	promoted := time.Now()
	for _, f := range limiters {
		awaitDecisionBy(t, f, ratelimit.ByRedis)
		require.Eventually(t, func() bool { return f.Unavailable() == nil }, longTimeout, time.Millisecond)
	}
	t.Logf("shared again %v after the failover", time.Since(promoted).Round(time.Millisecond))
	require.Equal(t, 8, allowConcurrently(t, limiters, 60, "k", l))
	require.Zero(t, limiters[0].Stats().DataLosses)
}
