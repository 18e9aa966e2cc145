package redistest

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// MasterName is the name under which the Sentinels know the master.
const MasterName = "gatehouse"

// Sentinel is a master and its replica watched by three Sentinels, which replace
// a silent master (ReplaceAfter).
type Sentinel struct {
	Master    *Server // the master at the start
	Replica   *Server
	Sentinels []*Server
}

// StartSentinel starts the five processes and waits until every Sentinel knows
// the replica and the other Sentinels. Options go to master and replica.
func StartSentinel(tb testing.TB, options ...Option) *Sentinel {
	tb.Helper()
	options = append([]Option{WithConfig("repl-diskless-sync-delay", "0")}, options...)
	s := &Sentinel{Master: Start(tb, options...)}
	port := strconv.Itoa(s.Master.settings.port)
	s.Replica = Start(tb, append(options, WithConfig("replicaof", loopback, port))...)
	for range 3 {
		s.Sentinels = append(s.Sentinels, Start(tb, func(s *settings) { s.sentinel = true },
			WithConfig("sentinel", "monitor", MasterName, loopback, port, "2"),
			WithConfig("sentinel", "down-after-milliseconds", MasterName, "600000"),
			WithConfig("sentinel", "failover-timeout", MasterName, "3000")))
	}
	ctx, cancel := context.WithTimeout(tb.Context(), 2*startTimeout)
	defer cancel()
	awaitReply(ctx, tb, s.Replica, []any{"INFO", "replication"}, "master_link_status:up")
	for _, p := range s.Sentinels {
		c := redis.NewSentinelClient(&redis.Options{Addr: p.Addr})
		err := await(ctx, func() (bool, error) {
			m, err := c.Master(ctx, MasterName).Result()
			return m["num-slaves"] == "1" && m["num-other-sentinels"] == "2" && m["flags"] == "master", err
		})
		_ = c.Close()
		require.NoError(tb, err, "waiting for the Sentinel %s", p.Addr)
	}
	return s
}

// Options are client options that find the master through the Sentinels, with go-redis's timeouts: after them, a client asks another
// Sentinel.
func (s *Sentinel) Options() *redis.UniversalOptions {
	o := s.Master.Options()
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = 0, 0, 0
	o.MasterName = MasterName
	o.Addrs = nil
	for _, p := range s.Sentinels {
		o.Addrs = append(o.Addrs, p.Addr)
	}
	return o
}

// ReplaceAfter sets for how long a master has to be silent before it is replaced. It is ten minutes at the start, so that no
// slow master is replaced before the test wants it.
func (s *Sentinel) ReplaceAfter(tb testing.TB, silent time.Duration) {
	tb.Helper()
	for _, p := range s.Sentinels {
		_, err := p.command(tb.Context(), "SENTINEL", "SET", MasterName, "down-after-milliseconds", silent.Milliseconds())
		require.NoError(tb, err)
	}
}

// MasterAddr returns the current master according to the first running Sentinel.
func (s *Sentinel) MasterAddr(ctx context.Context) (string, error) {
	for _, p := range s.Sentinels {
		if p.Pid() == 0 {
			continue
		}
		c := redis.NewSentinelClient(&redis.Options{Addr: p.Addr})
		pair, err := c.GetMasterAddrByName(ctx, MasterName).Result()
		_ = c.Close()
		if err != nil {
			return "", fmt.Errorf("asking %s for the master: %w", p.Addr, err)
		}
		return net.JoinHostPort(pair[0], pair[1]), nil
	}
	return "", fmt.Errorf("no Sentinel is running")
}
