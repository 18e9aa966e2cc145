package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// MasterName is the name under which the Sentinels know the master.
const MasterName = "gatehouse"

// Sentinel is a master and its replica watched by three Sentinels. A master that
// is silent for half a second is replaced, which takes one to three seconds.
type Sentinel struct {
	Master    *Server // the master at the start
	Replica   *Server
	Sentinels []*Server
}

// StartSentinel starts the five processes and waits until every Sentinel knows
// the replica and the other Sentinels. Options go to master and replica.
func StartSentinel(tb testing.TB, options ...Option) *Sentinel {
	tb.Helper()
	s, err := LaunchSentinel(tb.TempDir(), options...)
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	for _, p := range s.all() {
		tb.Cleanup(func() { p.cleanup(tb) })
	}
	return s
}

// LaunchSentinel is StartSentinel for callers without a test: they have to Kill
// every process and to remove dir.
func LaunchSentinel(dir string, options ...Option) (s *Sentinel, err error) {
	s = &Sentinel{}
	defer func() {
		if err != nil {
			for _, p := range s.all() {
				_ = p.Kill()
			}
		}
	}()
	launch := func(name string, o ...Option) (*Server, error) {
		d := filepath.Join(dir, name)
		if err := os.Mkdir(d, 0o700); err != nil {
			return nil, fmt.Errorf("making a directory: %w", err)
		}
		return Launch(d, o...)
	}
	options = append([]Option{WithConfig("repl-diskless-sync-delay", "0")}, options...)
	if s.Master, err = launch("master", options...); err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(s.Master.Addr)
	if err != nil {
		return nil, fmt.Errorf("splitting the address: %w", err)
	}
	if s.Replica, err = launch("replica", append(options, WithConfig("replicaof", host, port))...); err != nil {
		return nil, err
	}
	for i := range 3 {
		p, err := launch("sentinel"+strconv.Itoa(i), asSentinel,
			WithConfig("sentinel", "monitor", MasterName, host, port, "2"),
			WithConfig("sentinel", "down-after-milliseconds", MasterName, "500"),
			WithConfig("sentinel", "failover-timeout", MasterName, "3000"))
		if err != nil {
			return nil, err
		}
		s.Sentinels = append(s.Sentinels, p)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*startTimeout)
	defer cancel()
	if err := s.awaitAgreement(ctx); err != nil {
		return nil, fmt.Errorf("waiting for the Sentinels: %w", err)
	}
	return s, nil
}

// Options are client options that find the master through the Sentinels.
func (s *Sentinel) Options() *redis.UniversalOptions {
	o := s.Master.Options()
	o.MasterName = MasterName
	o.Addrs = nil
	for _, p := range s.Sentinels {
		o.Addrs = append(o.Addrs, p.Addr)
	}
	return o
}

// ReplaceAfter sets for how long a master has to be silent before it is replaced. It says when a test is ready for that,
// and keeps a master that just does not get to run from being replaced meanwhile.
func (s *Sentinel) ReplaceAfter(ctx context.Context, silent time.Duration) error {
	for _, p := range s.Sentinels {
		c := redis.NewSentinelClient(&redis.Options{Addr: p.Addr})
		err := c.Set(ctx, MasterName, "down-after-milliseconds", strconv.FormatInt(silent.Milliseconds(), 10)).Err()
		_ = c.Close()
		if err != nil {
			return fmt.Errorf("setting up %s: %w", p.Addr, err)
		}
	}
	return nil
}

// MasterAddr asks the first running Sentinel who the master is now.
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

func (s *Sentinel) all() []*Server {
	var all []*Server
	for _, p := range append([]*Server{s.Master, s.Replica}, s.Sentinels...) {
		if p != nil {
			all = append(all, p)
		}
	}
	return all
}

func (s *Sentinel) awaitAgreement(ctx context.Context) error {
	replica := redis.NewClient(s.Replica.Options().Simple())
	defer func() { _ = replica.Close() }()
	if err := await(ctx, func() (bool, error) {
		info, err := replica.Info(ctx, "replication").Result()
		return strings.Contains(info, "master_link_status:up"), err
	}); err != nil {
		return err
	}
	for _, p := range s.Sentinels {
		c := redis.NewSentinelClient(&redis.Options{Addr: p.Addr})
		err := await(ctx, func() (bool, error) {
			m, err := c.Master(ctx, MasterName).Result()
			return m["num-slaves"] == "1" && m["num-other-sentinels"] == strconv.Itoa(len(s.Sentinels)-1) &&
				m["flags"] == "master", err
		})
		_ = c.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func asSentinel(s *settings) { s.sentinel = true }
