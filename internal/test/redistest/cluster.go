package redistest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/porttest"
)

const (
	slots       = 16384
	nodeTimeout = "60000" // milliseconds until a silent node counts as failed; a busy machine must not reach it
)

// Cluster is a Redis Cluster on loopback. Masters come first, each with a third
// (or its share) of the slots; the replica of master i is node len(masters)+i.
type Cluster struct {
	Nodes   []*Server
	masters int
}

// StartCluster starts a cluster of three masters without replicas, whose other
// slots keep working when a node is lost (cluster-require-full-coverage no).
func StartCluster(tb testing.TB, options ...Option) *Cluster {
	tb.Helper()
	return startCluster(tb, 3, 0, options)
}

// StartClusterWithReplicas is StartCluster with a replica for each master, which
// takes over once its master counts as failed (SetNodeTimeout).
func StartClusterWithReplicas(tb testing.TB, options ...Option) *Cluster {
	tb.Helper()
	return startCluster(tb, 3, 1, options)
}

func startCluster(tb testing.TB, masters, replicas int, options []Option) *Cluster {
	tb.Helper()
	c := &Cluster{masters: masters}
	for range masters * (1 + replicas) {
		bus, held, err := porttest.Reserve()
		require.NoError(tb, err)
		node := Start(tb, append([]Option{
			WithConfig("cluster-enabled", "yes"),
			WithConfig("cluster-port", strconv.Itoa(bus)),
			WithConfig("cluster-node-timeout", nodeTimeout),
			WithConfig("cluster-require-full-coverage", "no"),
			WithConfig("cluster-replica-validity-factor", "0"),
			WithConfig("repl-diskless-sync-delay", "0"),
			// A replica is listed once it has received something from its master.
			WithConfig("repl-ping-replica-period", "1"),
		}, options...)...)
		node.busPort = bus
		node.reserved = append(node.reserved, held)
		c.Nodes = append(c.Nodes, node)
	}
	c.join(tb)
	return c
}

// Addrs are the nodes' addresses.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		addrs[i] = n.Addr
	}
	return addrs
}

// Options are client options for the cluster, with go-redis's timeouts: after them, a client asks another node for the slots.
func (c *Cluster) Options() *redis.UniversalOptions {
	o := c.Nodes[0].Options()
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = 0, 0, 0
	o.Addrs = c.Addrs()
	o.IsClusterMode = true
	return o
}

// Client returns a plain cluster client for the test itself. It is closed with
// the test.
func (c *Cluster) Client(tb testing.TB) *redis.ClusterClient {
	tb.Helper()
	client := redis.NewClusterClient(c.Options().Cluster())
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// Owner is the index of the master that a slot was given to at the start.
func (c *Cluster) Owner(slot int) int {
	for i := range c.masters {
		if first, last := c.share(i); slot >= first && slot <= last {
			return i
		}
	}
	return -1
}

func (c *Cluster) share(i int) (first, last int) {
	return i * slots / c.masters, (i+1)*slots/c.masters - 1
}

// MoveSlot moves one slot with its keys from the node that has it to Nodes[to],
// as redis-cli's reshard does, so that clients meet ASK and then MOVED.
func (c *Cluster) MoveSlot(ctx context.Context, slot, to int) error {
	target := c.Nodes[to]
	from, targetID, err := c.openSlot(ctx, slot, target)
	if err != nil || from == target {
		return err
	}
	if err := from.migrate(ctx, slot, target); err != nil {
		return err
	}
	for _, n := range []*Server{target, from} {
		if _, err := n.command(ctx, "CLUSTER", "SETSLOT", slot, "NODE", targetID); err != nil {
			return err
		}
	}
	return nil
}

// OpenSlot begins to move one slot to Nodes[to], as redis-cli's reshard does. MoveSlot completes it.
func (c *Cluster) OpenSlot(ctx context.Context, slot, to int) error {
	_, _, err := c.openSlot(ctx, slot, c.Nodes[to])
	return err
}

func (c *Cluster) openSlot(ctx context.Context, slot int, target *Server) (from *Server, targetID string, err error) {
	if from, err = c.master(ctx, target, slot); err != nil || from == target {
		return from, "", err
	}
	fromID, err := from.command(ctx, "CLUSTER", "MYID")
	if err != nil {
		return nil, "", err
	}
	if targetID, err = target.command(ctx, "CLUSTER", "MYID"); err != nil {
		return nil, "", err
	}
	if _, err := target.command(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID); err != nil {
		return nil, "", err
	}
	_, err = from.command(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", targetID)
	return from, targetID, err
}

// master returns the master of a slot according to a node.
func (c *Cluster) master(ctx context.Context, node *Server, slot int) (*Server, error) {
	client := redis.NewClient(node.Options().Simple())
	defer func() { _ = client.Close() }()
	table, err := client.ClusterSlots(ctx).Result() //nolint:staticcheck // deprecated since Redis 7, but go-redis itself uses it
	if err != nil {
		return nil, fmt.Errorf("asking for the slots: %w", err)
	}
	for _, s := range table {
		for _, n := range c.Nodes {
			if slot >= s.Start && slot <= s.End && n.Addr == s.Nodes[0].Addr {
				return n, nil
			}
		}
	}
	return nil, fmt.Errorf("nobody has slot %d", slot)
}

// migrate moves the keys of a slot.
func (s *Server) migrate(ctx context.Context, slot int, to *Server) error {
	client := redis.NewClient(s.Options().Simple())
	defer func() { _ = client.Close() }()
	args := []any{"MIGRATE", loopback, to.settings.port, "", 0, 5000}
	if u := to.settings.users; u != nil {
		args = append(args, "AUTH2", u[0].name, u[0].password)
	}
	args = append(args, "KEYS")
	for {
		keys, err := client.ClusterGetKeysInSlot(ctx, slot, 100).Result()
		if err != nil {
			return fmt.Errorf("listing the keys of slot %d: %w", slot, err)
		}
		if len(keys) == 0 {
			return nil
		}
		batch := slices.Clone(args)
		for _, k := range keys {
			batch = append(batch, k)
		}
		if err := client.Do(ctx, batch...).Err(); err != nil {
			return fmt.Errorf("moving the keys of slot %d: %w", slot, err)
		}
	}
}

// SetNodeTimeout sets, on the nodes that run, for how long a node has to be silent before it counts as failed and its
// replica takes over. It is a minute at the start, so that no slow node is replaced before the test wants it.
func (c *Cluster) SetNodeTimeout(tb testing.TB, silent time.Duration) {
	tb.Helper()
	for _, n := range c.Nodes {
		if n.Pid() != 0 {
			_, err := n.command(tb.Context(), "CONFIG", "SET", "cluster-node-timeout", silent.Milliseconds())
			require.NoError(tb, err)
		}
	}
}

func (c *Cluster) join(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 2*startTimeout)
	defer cancel()
	run := func(n *Server, args ...any) string {
		reply, err := n.command(ctx, args...)
		require.NoError(tb, err)
		return reply
	}
	for i, n := range c.Nodes {
		// Distinct epochs spare the nodes an election.
		run(n, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		if i < c.masters {
			first, last := c.share(i)
			run(n, "CLUSTER", "ADDSLOTSRANGE", first, last)
		}
	}
	// Each node meets each other node, because gossip would take seconds.
	for _, n := range c.Nodes {
		for _, other := range c.Nodes {
			if other != n {
				run(other, "CLUSTER", "MEET", loopback, n.settings.port, n.busPort)
			}
		}
	}
	for _, n := range c.Nodes {
		awaitReply(ctx, tb, n, []any{"CLUSTER", "INFO"}, "cluster_known_nodes:"+strconv.Itoa(len(c.Nodes)), "cluster_state:ok")
	}
	for i, n := range c.Nodes[c.masters:] {
		run(n, "CLUSTER", "REPLICATE", run(c.Nodes[i%c.masters], "CLUSTER", "MYID"))
	}
	for _, n := range c.Nodes[c.masters:] {
		awaitReply(ctx, tb, n, []any{"INFO", "replication"}, "master_link_status:up")
	}
	// Every node must know the final slots, or the first clients get the old ones.
	for _, n := range c.Nodes {
		client := redis.NewClient(n.Options().Simple())
		err := await(ctx, func() (bool, error) {
			table, err := client.ClusterSlots(ctx).Result() //nolint:staticcheck // deprecated since Redis 7, but go-redis itself uses it
			nodes := 0
			for _, s := range table {
				nodes += len(s.Nodes)
			}
			return len(table) == c.masters && nodes == len(c.Nodes), err
		})
		_ = client.Close()
		require.NoError(tb, err, "waiting for the slot table of %s", n.Addr)
	}
}

// awaitReply waits until a command's reply contains the given texts.
func awaitReply(ctx context.Context, tb testing.TB, s *Server, args []any, want ...string) {
	tb.Helper()
	err := await(ctx, func() (bool, error) {
		reply, err := s.command(ctx, args...)
		for _, text := range want {
			if !strings.Contains(reply, text) {
				return false, err
			}
		}
		return true, nil
	})
	require.NoError(tb, err, "waiting for %q in %v of %s", want, args, s.Addr)
}

// await calls condition until it returns true or ctx is done; the last error of
// condition is only returned then.
func await(ctx context.Context, condition func() (bool, error)) error {
	for {
		ok, err := condition()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(pollInterval):
		}
	}
}
