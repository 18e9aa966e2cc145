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

func TestDocumentedRedisACLIsSufficient(t *testing.T) {
	t.Parallel()
	line := strings.Fields(under(t, blocks(t, "operating.md"), "Redis", "redis").text)
	require.Equal(t, []string{"user", "gateway", "on", ">…"}, line[:4])
	rules := line[4:]

	single := redistest.Start(t)
	require.NoError(t, addUser(t.Context(), single.Client(t), rules))
	requireSufficient(t, redis.NewClient(asUser(single.Options()).Simple()))

	// A slow node must not be considered failed.
	cluster := redistest.StartCluster(t)
	rules = append(rules, "+cluster|slots")
	require.NoError(t, cluster.Client(t).ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		return addUser(ctx, node, rules)
	}))
	requireSufficient(t, redis.NewClusterClient(asUser(cluster.Options()).Cluster()))
}

func TestDocumentedRedisUserCannotStopRedisOrOthers(t *testing.T) {
	t.Parallel()
	for file, heading := range map[string]string{"operating.md": "Redis", "connect.md": "Redis is the database here"} {
		server := redistest.Start(t)
		rules := strings.Fields(under(t, blocks(t, file), heading, "redis").text)[4:]
		require.NoError(t, addUser(t.Context(), server.Client(t), rules))
		client := redis.NewClient(asUser(server.Options()).Simple())
		for _, command := range []string{
			"CLIENT LIST", "CLIENT PAUSE 1", "CLIENT KILL TYPE normal", "CLIENT NO-EVICT on", "KEYS *", "FLUSHALL", "CONFIG GET *", "ACL LIST", "SHUTDOWN",
		} {
			var args []any
			for word := range strings.FieldsSeq(command) {
				args = append(args, word)
			}
			require.ErrorContains(t, client.Do(t.Context(), args...).Err(), "NOPERM", "%s: %s", file, command)
		}
		require.NoError(t, client.Close())
	}
}

// The password of a gateway without the connection server must not be enough to sign in as an owner, to connect an assistant, or to write the audit log.
func TestDocumentedRedisUserOfAnAPIHasNoPartInConnections(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	require.NoError(t, addUser(t.Context(), server.Client(t), strings.Fields(under(t, blocks(t, "operating.md"), "Redis", "redis").text)[4:]))
	client := redis.NewClient(asUser(server.Options()).Simple())
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	for _, key := range []string{"gatehouse:connect:session:0f", "gatehouse:connect:sessions:1", "gatehouse:connect:{0f}", "rate:gatehouse:connect:1", "gatehouse:1"} {
		require.ErrorContains(t, client.Set(t.Context(), key, "x", 0).Err(), "NOPERM", key)
		require.ErrorContains(t, client.Get(t.Context(), key).Err(), "NOPERM", key)
		require.Error(t, client.Eval(t.Context(), "return redis.call('SET', KEYS[1], 'x')", []string{key}).Err(), key)
		require.Error(t, client.Eval(t.Context(), "return redis.call('SET', '"+key+"', 'x')", nil).Err(), key)
	}
	require.Zero(t, server.Client(t).DBSize(t.Context()).Val())
}

// addUser creates the user on a server.
func addUser(ctx context.Context, admin *redis.Client, rules []string) error {
	words := append([]string{"ACL", "SETUSER", "gateway", "reset", "on", ">made-up"}, rules...)
	args := make([]any, len(words))
	for i, word := range words {
		args[i] = word
	}
	return admin.Do(ctx, args...).Err()
}

// redisPatience limits each wait for a reply.
const redisPatience = time.Minute

// asUser sets the credentials of the user.
func asUser(o *redis.UniversalOptions) *redis.UniversalOptions {
	o.Username, o.Password = "gateway", "made-up"
	o.ContextTimeoutEnabled, o.MaxRetries = true, -1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = redisPatience, redisPatience, redisPatience
	return o
}

// requireSufficient applies limits of both algorithms, accepts a write, forgets it and accepts it again, and publishes invalidations, as a gateway does.
func requireSufficient(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	for _, algorithm := range []ratelimit.Algorithm{ratelimit.Exact, ratelimit.GCRA} {
		fleet, err := ratelimit.New(client, ratelimit.Options{
			Algorithm: algorithm, OnOutage: ratelimit.OnOutageDeny, Timeout: redisPatience,
		})
		require.NoError(t, err)
		require.NoError(t, fleet.Ping(t.Context()))
		for _, key := range []string{"a", "b", "c", "d", "e", "f"} { // on several nodes of a Cluster
			group, counters := ratelimit.ForKey(key, ratelimit.KeyLimit(1))
			res, err := fleet.Allow(t.Context(), group, counters...)
			require.NoError(t, err)
			require.True(t, res.Allowed)
		}
		write := ratelimit.Once{ID: [ratelimit.IDSize]byte{1}, Until: time.Now().Add(time.Hour)}
		group, counters := ratelimit.ForKey("w", ratelimit.KeyLimit(2))
		for range 2 {
			res, err := fleet.AllowOnce(t.Context(), group, write, counters...)
			require.NoError(t, err)
			require.True(t, res.Allowed)
			if algorithm == ratelimit.Exact {
				require.Equal(t, write.ID, res.Accepted)
			}
			require.NoError(t, fleet.Forget(t.Context(), group, write))
			write.ID[0]++
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
