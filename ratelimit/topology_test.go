package ratelimit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/redistest"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// keysOf finds n keys whose buckets each of the cluster's masters has.
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

func TestClusterHoldsTheLimitWhileASlotMovesAndANodeDies(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	cl := redistest.StartCluster(t)
	// There is no replica to take over, and a node that just does not get to run is not to be given up by the others.
	require.NoError(t, cl.SetNodeTimeout(ctx, time.Minute))
	client := cl.Client(t)
	fleets := newFleets(t, 3, cl.Options, patient())
	for _, f := range fleets {
		require.NoError(t, f.Ping(ctx))
	}
	l := limit(30, time.Hour)
	keys := keysOf(t, cl, fleets[0], client, 3, l)

	// 200 at once on each node.
	for _, k := range keys {
		require.Equal(t, 30, takeAtOnce(t, fleets, 200, k[0], l))
	}
	// Several buckets of one group.
	group, buckets := ratelimit.ForUnverified("pk_live_abcdefgh", "192.0.2.1")
	r, err := fleets[0].Allow(ctx, group, buckets...)
	require.NoError(t, err)
	require.True(t, r.Allowed)
	require.Equal(t, ratelimit.ByRedis, r.By)

	// A bucket's slot moves while it is in use: nothing is lost or charged twice.
	moving := keys[0][1]
	slot := int(client.ClusterKeySlot(ctx, fleets[0].KeyName(moving, ratelimit.Bucket{Key: moving, Limit: l})).Val())
	moved := make(chan error, 1)
	go func() { moved <- cl.MoveSlot(ctx, slot, 1) }()
	admitted := 0
	for i := range 28 {
		r := take(t, fleets[i%3], moving, l)
		require.True(t, r.Allowed)
		require.Equal(t, ratelimit.ByRedis, r.By)
		require.Equal(t, 29-i, r.States[0].Remaining)
		admitted++
	}
	require.NoError(t, <-moved)
	require.Equal(t, 30-admitted, takeAtOnce(t, fleets, 60, moving, l))
	require.False(t, take(t, fleets[0], keys[0][0], l).Allowed)

	// A node dies: its slots are each gateway's own, the others' are the fleet's.
	require.NoError(t, cl.Nodes[2].Kill())
	dead, alive := keys[2][2], keys[1][2]
	require.Equal(t, 30, takeAtOnce(t, fleets[:1], 100, dead, l))
	require.Eventually(t, func() bool {
		r := take(t, fleets[1], alive, limit(ratelimit.MaxRequests, time.Minute))
		return r.By == ratelimit.ByRedis
	}, patience, time.Millisecond)
	require.Equal(t, 30, takeAtOnce(t, fleets, 100, keys[1][1], l))
	require.Eventually(t, func() bool { take(t, fleets[0], keys[2][1], l); return fleets[0].Unavailable() != nil }, patience, time.Millisecond)
	down := fleets[0].Stats()
	require.Equal(t, 16, down.Parts)
	require.LessOrEqual(t, down.Down, 6, "only the dead node's slots are given up")

	// It comes back empty (a Cluster's node remembers its slots).
	require.NoError(t, cl.Nodes[2].Restart())
	require.Eventually(t, func() bool { return fleets[0].Unavailable() == nil }, 2*patience, 10*time.Millisecond)
	// Too few round trips may have failed for the key's own slots to be given up: then its debts are entered when the
	// gateway next looks around. Who waits for that charges nothing.
	fresh := newFleet(t, cl.Options(), patient())
	require.Eventually(t, func() bool {
		r, err := fresh.Peek(ctx, dead, ratelimit.Bucket{Key: dead, Limit: l})
		return err == nil && r.By == ratelimit.ByRedis && !r.Allowed
	}, patience, 10*time.Millisecond, "what was admitted while the node was away has been entered")
}

func TestClusterReplicaTakesOverWithTheCounts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	cl := redistest.StartClusterWithReplicas(t)
	require.NoError(t, cl.SetNodeTimeout(ctx, time.Minute))
	client := cl.Client(t)
	fleets := newFleets(t, 2, cl.Options, patient())
	for _, f := range fleets {
		require.NoError(t, f.Ping(ctx))
	}
	l := limit(30, 10*time.Minute)
	key := keysOf(t, cl, fleets[0], client, 1, l)[0][0]
	require.Equal(t, 20, takeAtOnce(t, fleets, 20, key, l))
	redistest.AwaitReplica(t, cl.Nodes[0], cl.Nodes[3])
	require.NoError(t, cl.Nodes[0].Kill())
	require.NoError(t, cl.SetNodeTimeout(ctx, time.Second))
	replica := cl.Nodes[3].Client(t)
	require.Eventually(t, func() bool {
		info, err := replica.Info(ctx, "replication").Result()
		return err == nil && strings.Contains(info, "role:master")
	}, 2*patience, 20*time.Millisecond)
	require.NoError(t, cl.SetNodeTimeout(ctx, time.Minute))
	promoted := time.Now()
	for _, f := range fleets {
		require.Eventually(t, func() bool {
			r, err := f.Peek(ctx, key, ratelimit.Bucket{Key: key, Limit: l})
			return err == nil && r.By == ratelimit.ByRedis && f.Unavailable() == nil
		}, patience, 10*time.Millisecond)
	}
	t.Logf("shared again %v after the replica took over", time.Since(promoted).Round(time.Millisecond))
	require.Equal(t, 10, takeAtOnce(t, fleets, 60, key, l))
}

func TestSentinelFailoverKeepsTheCounts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := redistest.StartSentinel(t)
	require.NoError(t, s.ReplaceAfter(ctx, 10*time.Minute))
	fleets := newFleets(t, 2, s.Options, patient())
	for _, f := range fleets {
		require.NoError(t, f.Ping(ctx))
	}
	l := limit(30, 10*time.Minute)
	require.Equal(t, 20, takeAtOnce(t, fleets, 20, "k", l))
	redistest.AwaitReplica(t, s.Master, s.Replica)
	require.NoError(t, s.Master.Kill())
	// The master is not replaced before both have noticed, however long that takes.
	for _, f := range fleets {
		givenUp(t, f)
	}
	// Meanwhile each gateway counts on from what it has admitted itself.
	require.Equal(t, 2, takeAtOnce(t, fleets, 2, "k", l))
	require.NoError(t, s.ReplaceAfter(ctx, 500*time.Millisecond))
	require.Eventually(t, func() bool {
		addr, err := s.MasterAddr(ctx)
		return err == nil && addr == s.Replica.Addr
	}, 2*patience, 10*time.Millisecond)
	promoted := time.Now()
	for _, f := range fleets {
		eventuallyBy(t, f, ratelimit.ByRedis)
		require.Eventually(t, func() bool { return f.Unavailable() == nil }, patience, time.Millisecond)
	}
	t.Logf("shared again %v after the replica took over", time.Since(promoted).Round(time.Millisecond))
	require.Equal(t, 8, takeAtOnce(t, fleets, 60, "k", l))
	require.Zero(t, fleets[0].Stats().Losses)
}
