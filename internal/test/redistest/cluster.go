package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-gateway/gatehouse/internal/test/porttest"
)

const (
	slots       = 16384
	nodeTimeout = "1000" // milliseconds until a silent node counts as failed
)

// Cluster is a Redis Cluster on loopback. Masters come first, each with a third
// (or its share) of the slots; the replica of master i is node len(masters)+i.
type Cluster struct {
	Nodes   []*Server
	masters int
}

// StartCluster starts a cluster of three masters without replicas, whose other
// slots go on working when a node is lost (cluster-require-full-coverage no).
func StartCluster(tb testing.TB, options ...Option) *Cluster {
	tb.Helper()
	return startCluster(tb, 3, 0, options)
}

// StartClusterWithReplicas is StartCluster with a replica for each master, which
// takes over about two seconds after its master was lost.
func StartClusterWithReplicas(tb testing.TB, options ...Option) *Cluster {
	tb.Helper()
	return startCluster(tb, 3, 1, options)
}

func startCluster(tb testing.TB, masters, replicas int, options []Option) *Cluster {
	tb.Helper()
	c, err := LaunchCluster(tb.TempDir(), masters, replicas, options...)
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	for _, n := range c.Nodes {
		tb.Cleanup(func() { n.cleanup(tb) })
	}
	return c
}

// LaunchCluster is StartCluster for callers without a test: they have to Kill
// every node and to remove dir.
func LaunchCluster(dir string, masters, replicas int, options ...Option) (c *Cluster, err error) {
	c = &Cluster{masters: masters}
	defer func() {
		if err != nil {
			c.killAll()
		}
	}()
	for i := range masters * (1 + replicas) {
		nodeDir := filepath.Join(dir, "node"+strconv.Itoa(i))
		if err := os.Mkdir(nodeDir, 0o700); err != nil {
			return nil, fmt.Errorf("making a node's directory: %w", err)
		}
		bus, held, err := porttest.Reserve()
		if err != nil {
			return nil, err
		}
		node, err := Launch(nodeDir, append([]Option{
			WithConfig("cluster-enabled", "yes"),
			WithConfig("cluster-port", strconv.Itoa(bus)),
			WithConfig("cluster-node-timeout", nodeTimeout),
			WithConfig("cluster-require-full-coverage", "no"),
			WithConfig("cluster-replica-validity-factor", "0"),
			WithConfig("repl-diskless-sync-delay", "0"),
			// A replica is listed once it has received something from its master.
			WithConfig("repl-ping-replica-period", "1"),
		}, options...)...)
		if err != nil {
			return nil, err
		}
		node.busPort = bus
		node.reserved = append(node.reserved, held)
		c.Nodes = append(c.Nodes, node)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*startTimeout)
	defer cancel()
	if err := c.join(ctx, replicas); err != nil {
		return nil, fmt.Errorf("forming the cluster: %w", err)
	}
	return c, nil
}

// Addrs are the nodes' addresses.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		addrs[i] = n.Addr
	}
	return addrs
}

// Options are client options for the cluster.
func (c *Cluster) Options() *redis.UniversalOptions {
	o := c.Nodes[0].Options()
	o.Addrs = c.Addrs()
	o.IsClusterMode = true
	return o
}

// Client is a plain cluster client for the test's own questions; it ends with
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

// MoveSlot moves one slot with its keys from the node that has it to Nodes[to],
// as redis-cli's reshard does, so that clients meet ASK and then MOVED.
func (c *Cluster) MoveSlot(ctx context.Context, slot, to int) error {
	from := -1
	clients, closeAll := c.clients()
	defer closeAll()
	ids := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		if n.Pid() == 0 {
			continue
		}
		id, err := clients[i].Do(ctx, "CLUSTER", "MYID").Text()
		if err != nil {
			return fmt.Errorf("asking node %d for its id: %w", i, err)
		}
		ids[i] = id
	}
	shards, err := clients[to].ClusterSlots(ctx).Result() //nolint:staticcheck // what go-redis's own clients ask
	if err != nil {
		return fmt.Errorf("asking for the slots: %w", err)
	}
	for _, s := range shards {
		if slot < s.Start || slot > s.End || len(s.Nodes) == 0 {
			continue
		}
		for i, id := range ids {
			if id == s.Nodes[0].ID {
				from = i
			}
		}
	}
	switch from {
	case -1:
		return fmt.Errorf("nobody has slot %d", slot)
	case to:
		return nil
	}
	host, port, err := net.SplitHostPort(c.Nodes[to].Addr)
	if err != nil {
		return fmt.Errorf("splitting the address: %w", err)
	}
	if err := clients[to].Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[from]).Err(); err != nil {
		return fmt.Errorf("importing slot %d: %w", slot, err)
	}
	if err := clients[from].Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[to]).Err(); err != nil {
		return fmt.Errorf("migrating slot %d: %w", slot, err)
	}
	for {
		keys, err := clients[from].ClusterGetKeysInSlot(ctx, slot, 100).Result()
		if err != nil {
			return fmt.Errorf("listing the keys of slot %d: %w", slot, err)
		}
		if len(keys) == 0 {
			break
		}
		args := []any{"MIGRATE", host, port, "", 0, 5000}
		if c.Nodes[to].settings.users != nil {
			u := c.Nodes[to].settings.users[0]
			args = append(args, "AUTH2", u.name, u.password)
		}
		args = append(args, "KEYS")
		for _, k := range keys {
			args = append(args, k)
		}
		if err := clients[from].Do(ctx, args...).Err(); err != nil {
			return fmt.Errorf("moving the keys of slot %d: %w", slot, err)
		}
	}
	for _, i := range []int{to, from} {
		if err := clients[i].Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", ids[to]).Err(); err != nil {
			return fmt.Errorf("handing slot %d over: %w", slot, err)
		}
	}
	return nil
}

// SetNodeTimeout sets, on the nodes that run, for how long a node has to be silent before it counts as failed and its
// replica takes over. It says when a test is ready for that, and keeps a node that just does not get to run from being
// given up meanwhile.
func (c *Cluster) SetNodeTimeout(ctx context.Context, silent time.Duration) error {
	clients, closeAll := c.clients()
	defer closeAll()
	for i, n := range c.Nodes {
		if n.Pid() == 0 {
			continue
		}
		if err := clients[i].ConfigSet(ctx, "cluster-node-timeout", strconv.FormatInt(silent.Milliseconds(), 10)).Err(); err != nil {
			return fmt.Errorf("setting up node %d: %w", i, err)
		}
	}
	return nil
}

// clients is a client for each node.
func (c *Cluster) clients() (clients []*redis.Client, closeAll func()) {
	for _, n := range c.Nodes {
		clients = append(clients, redis.NewClient(n.Options().Simple()))
	}
	return clients, func() {
		for _, cl := range clients {
			_ = cl.Close()
		}
	}
}

func (c *Cluster) killAll() {
	for _, n := range c.Nodes {
		_ = n.Kill()
	}
}

func (c *Cluster) share(i int) (first, last int) {
	return i * slots / c.masters, (i+1)*slots/c.masters - 1
}

func (c *Cluster) join(ctx context.Context, replicas int) error {
	clients, closeAll := c.clients()
	defer closeAll()
	for i := range c.Nodes {
		// Distinct epochs spare the nodes an election about who is right.
		if err := clients[i].Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return fmt.Errorf("setting node %d's epoch: %w", i, err)
		}
		if i < c.masters {
			first, last := c.share(i)
			if err := clients[i].ClusterAddSlotsRange(ctx, first, last).Err(); err != nil {
				return fmt.Errorf("giving node %d its slots: %w", i, err)
			}
		}
	}
	// Everyone is introduced to everyone: gossip would take seconds.
	for i, n := range c.Nodes {
		host, port, err := net.SplitHostPort(n.Addr)
		if err != nil {
			return fmt.Errorf("splitting the address: %w", err)
		}
		for j, cl := range clients {
			if i == j {
				continue
			}
			if err := cl.Do(ctx, "CLUSTER", "MEET", host, port, n.busPort).Err(); err != nil {
				return fmt.Errorf("introducing node %d to node %d: %w", i, j, err)
			}
		}
	}
	ids := make([]string, len(clients))
	for i, cl := range clients {
		id, err := cl.Do(ctx, "CLUSTER", "MYID").Text()
		if err != nil {
			return fmt.Errorf("asking node %d for its id: %w", i, err)
		}
		ids[i] = id
		if err := await(ctx, func() (bool, error) {
			info, err := cl.ClusterInfo(ctx).Result()
			return strings.Contains(info, "cluster_known_nodes:"+strconv.Itoa(len(clients))) &&
				strings.Contains(info, "cluster_state:ok"), err
		}); err != nil {
			return fmt.Errorf("waiting for node %d to know the others: %w", i, err)
		}
	}
	for i := c.masters; i < c.masters*(1+replicas); i++ {
		if err := clients[i].ClusterReplicate(ctx, ids[(i-c.masters)%c.masters]).Err(); err != nil {
			return fmt.Errorf("making node %d a replica: %w", i, err)
		}
	}
	for i := c.masters; i < c.masters*(1+replicas); i++ {
		if err := await(ctx, func() (bool, error) {
			info, err := clients[i].Info(ctx, "replication").Result()
			return strings.Contains(info, "master_link_status:up"), err
		}); err != nil {
			return fmt.Errorf("waiting for replica %d: %w", i, err)
		}
	}
	// Every node has to see the final table, or the first clients get the old one.
	for i, cl := range clients {
		if err := await(ctx, func() (bool, error) {
			table, err := cl.ClusterSlots(ctx).Result() //nolint:staticcheck // what go-redis's own clients ask
			nodes := 0
			for _, s := range table {
				nodes += len(s.Nodes)
			}
			return len(table) == c.masters && nodes == len(clients), err
		}); err != nil {
			return fmt.Errorf("waiting for node %d's slot table: %w", i, err)
		}
	}
	return nil
}

// await asks until the answer is yes or ctx is done; a question's own error is
// only reported when time is up.
func await(ctx context.Context, ask func() (bool, error)) error {
	for {
		ok, err := ask()
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
