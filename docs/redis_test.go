package docs_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// TestTheRightsInRedisOnThePageSuffice gives a user on real servers the rights that the page names, and does what a
// gateway does: limits of both algorithms, and changes of keys by publish and subscribe.
func TestTheRightsInRedisOnThePageSuffice(t *testing.T) {
	t.Parallel()
	line := strings.Fields(under(t, blocks(t, "operating.md"), "Redis", "redis").text)
	require.Equal(t, []string{"user", "gateway", "on", ">…"}, line[:4])
	rules := line[4:]

	single := redistest.Start(t)
	require.NoError(t, addUser(t.Context(), single.Client(t), rules))
	holds(t, redis.NewClient(asUser(single.Options()).Simple()))

	// A node that does not get to run for a second is not to be given up by the others: this is about rights.
	cluster := redistest.StartCluster(t, redistest.WithConfig("cluster-node-timeout", "60000"))
	rules = append(rules, "+cluster|slots")
	require.NoError(t, cluster.Client(t).ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		return addUser(ctx, node, rules)
	}))
	holds(t, redis.NewClusterClient(asUser(cluster.Options()).Cluster()))
}

// addUser makes the user on a server.
func addUser(ctx context.Context, admin *redis.Client, rules []string) error {
	words := append([]string{"ACL", "SETUSER", "gateway", "reset", "on", ">made-up"}, rules...)
	args := make([]any, len(words))
	for i, word := range words {
		args[i] = word
	}
	return admin.Do(ctx, args...).Err()
}

// redisPatience is how long an answer is waited for. A right that is missing is said at once.
const redisPatience = time.Minute

// asUser lets the options sign in as the user.
func asUser(o *redis.UniversalOptions) *redis.UniversalOptions {
	o.Username, o.Password = "gateway", "made-up"
	o.ContextTimeoutEnabled, o.MaxRetries = true, -1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = redisPatience, redisPatience, redisPatience
	return o
}

// holds tries all that a gateway needs.
func holds(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	for _, algorithm := range []ratelimit.Algorithm{ratelimit.Exact, ratelimit.GCRA} {
		fleet, err := ratelimit.New(client, ratelimit.Options{
			Algorithm: algorithm, OnOutage: ratelimit.Deny, Prefix: "gatehouse:limit:", Timeout: redisPatience,
		})
		require.NoError(t, err)
		require.NoError(t, fleet.Ping(t.Context()))
		for _, key := range []string{"a", "b", "c", "d", "e", "f"} { // on several nodes of a Cluster
			group, bucket := ratelimit.ForKey(key, ratelimit.KeyLimit(1))
			res, err := fleet.Allow(t.Context(), group, bucket)
			require.NoError(t, err)
			require.True(t, res.Allowed)
		}
		require.NoError(t, fleet.Close())
	}
	sub := client.Subscribe(t.Context(), "gatehouse:credentials")
	defer func() { require.NoError(t, sub.Close()) }()
	_, err := sub.Receive(t.Context())
	require.NoError(t, err)
	require.NoError(t, sub.Ping(t.Context()))
	require.NoError(t, client.Publish(t.Context(), "gatehouse:credentials", "pk_live_3f8Zk1q0").Err())
}
