package redisclient_test

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/redisclient"
	"github.com/gatehouse-gateway/gatehouse/internal/test/leaktest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// newClient returns a client whose timeouts a busy machine does not exceed.
func newClient(t *testing.T, cluster *redistest.Cluster) redis.UniversalClient {
	t.Helper()
	o := cluster.Options()
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = time.Minute, time.Minute, time.Minute
	client := redisclient.New(o)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// Without a reload of the slot table, each of these fails for up to a minute after the failover. They run alone, as nothing else
// would notice that the node is gone.
func TestClusterClientFollowsAFailover(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(ctx context.Context, c redis.UniversalClient, key string) error{
		"command": func(ctx context.Context, c redis.UniversalClient, key string) error {
			return c.Set(ctx, key, 1, 0).Err()
		},
		"pipeline": func(ctx context.Context, c redis.UniversalClient, key string) error {
			_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error { return p.Set(ctx, key, 1, 0).Err() })
			return err
		},
		"transaction": func(ctx context.Context, c redis.UniversalClient, key string) error {
			_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Set(ctx, key, 1, 0).Err() })
			return err
		},
		"subscription": func(ctx context.Context, c redis.UniversalClient, key string) error {
			sub := c.Subscribe(ctx, key)
			defer func() { _ = sub.Close() }()
			_, err := sub.ReceiveTimeout(ctx, 5*time.Second)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := redistest.StartClusterWithReplicas(t)
			client := newClient(t, cluster)
			key := keyOf(t, cluster, 0)
			require.NoError(t, use(t.Context(), client, key))
			redistest.AwaitReplica(t, cluster.Nodes[0], cluster.Nodes[3])
			require.NoError(t, cluster.Nodes[0].Kill())
			require.Error(t, use(t.Context(), client, key))
			cluster.SetNodeTimeout(t, time.Second)
			replica := cluster.Nodes[3].Client(t)
			require.Eventually(t, func() bool {
				info, err := replica.Info(t.Context(), "replication").Result()
				return err == nil && strings.Contains(info, "role:master")
			}, time.Minute, 20*time.Millisecond)
			cluster.SetNodeTimeout(t, time.Minute)
			promoted := time.Now()
			require.Eventually(t, func() bool { return use(t.Context(), client, key) == nil }, 25*time.Second, 20*time.Millisecond)
			t.Logf("works again %v after the failover", time.Since(promoted).Round(time.Millisecond))
		})
	}
}

// Commands that fail in a hurry, while nobody takes over, must not flood the other nodes.
func TestFailingCommandsReloadTheSlotTableAtMostTwiceASecond(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	client := newClient(t, cluster)
	key := keyOf(t, cluster, 0)
	require.NoError(t, client.Set(t.Context(), key, 1, 0).Err())
	reloads := func() int { return reloadsBy(t, cluster.Nodes[1:]) }
	require.NoError(t, cluster.Nodes[0].Kill())
	before, began, failed := reloads(), time.Now(), 0
	require.Eventually(t, func() bool {
		for range 10 {
			require.Error(t, client.Set(t.Context(), key, 1, 0).Err())
			failed++
		}
		return reloads()-before >= 3
	}, time.Minute, time.Millisecond)
	done := reloads() - before
	require.LessOrEqual(t, done, 2+int(time.Since(began)/(500*time.Millisecond)), "%d commands failed", failed)
}

// A reply that is an error is no reason to reload, and neither is a caller that leaves.
func TestErrorRepliesDoNotReloadTheSlotTable(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	client := newClient(t, cluster)
	key := keyOf(t, cluster, 0)
	require.NoError(t, client.Set(t.Context(), key, "text", 0).Err())
	before := reloadsBy(t, cluster.Nodes)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for range 10 {
		require.ErrorIs(t, client.Get(t.Context(), key+"x").Err(), redis.Nil)
		require.Error(t, client.Incr(t.Context(), key).Err())
		require.Error(t, client.EvalSha(t.Context(), strings.Repeat("0", 40), []string{key}).Err())
		require.ErrorIs(t, client.Get(cancelled, key).Err(), context.Canceled)
	}
	require.Equal(t, before, reloadsBy(t, cluster.Nodes))
}

// reloadsBy returns how often nodes were asked for the slot table.
func reloadsBy(t *testing.T, nodes []*redistest.Server) (n int) {
	t.Helper()
	for _, node := range nodes {
		client := redis.NewClient(node.Options().Simple())
		stats, err := client.Info(t.Context(), "commandstats").Result()
		_ = client.Close()
		require.NoError(t, err)
		if m := regexp.MustCompile(`cmdstat_cluster\|slots:calls=(\d+)`).FindStringSubmatch(stats); m != nil {
			calls, err := strconv.Atoi(m[1])
			require.NoError(t, err)
			n += calls
		}
	}
	return n
}

// keyOf returns a key in a slot of a master.
func keyOf(t *testing.T, cluster *redistest.Cluster, master int) string {
	t.Helper()
	client := cluster.Client(t)
	for i := 0; ; i++ {
		key := "key:" + strconv.Itoa(i)
		slot, err := client.ClusterKeySlot(t.Context(), key).Result()
		require.NoError(t, err)
		if cluster.Owner(int(slot)) == master {
			return key
		}
	}
}
