package redistest_test

import (
	"context"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

// patience limits each wait. It is long because other tests use the processors too.
const patience = time.Minute

func TestStopKillPauseAndRestart(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := redistest.Start(t)
	c := s.Client(t)
	require.NoError(t, c.Set(ctx, "a", "1", 0).Err())

	require.NoError(t, s.Pause())
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	o := s.Options().Simple()
	o.ContextTimeoutEnabled = true
	impatient := redis.NewClient(o)
	defer func() { _ = impatient.Close() }()
	require.Error(t, impatient.Ping(short).Err())
	require.NoError(t, s.Resume())
	require.NoError(t, c.Ping(ctx).Err())

	for _, end := range []func() error{s.Stop, s.Kill} {
		pid := s.Pid()
		require.NoError(t, end())
		require.Zero(t, s.Pid())
		require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
		require.Error(t, end(), "a server that is not running cannot be ended")
		require.NoError(t, s.Restart())
		require.ErrorContains(t, s.Restart(), "still running")
		require.ErrorIs(t, c.Get(ctx, "a").Err(), redis.Nil)
	}
}

func TestRestartLoadingRepliesLoading(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := redistest.Start(t)
	c := s.Client(t)
	require.NoError(t, c.Set(ctx, "a", "1", 0).Err())
	require.NoError(t, s.RestartLoading(4*time.Second))
	o := s.Options().Simple()
	o.MaxRetries = -1
	once := redis.NewClient(o)
	defer func() { _ = once.Close() }()
	require.True(t, redis.IsLoadingError(once.Get(ctx, "a").Err()))
	require.Eventually(t, func() bool { return c.Get(ctx, "a").Val() == "1" }, patience, 50*time.Millisecond)
	require.NoError(t, s.Kill())
	require.NoError(t, s.Restart(), "the next start does not delay loading")
	require.Equal(t, "1", c.Get(ctx, "a").Val(), "the saved data is loaded")
}

func TestUserAndTLS(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := redistest.Start(t, redistest.WithTLS(), redistest.WithUser("gateway", "s3cret", "~gh:* +@all"))
	c := s.Client(t)
	require.NoError(t, c.Set(ctx, "gh:a", "1", 0).Err())
	require.ErrorContains(t, c.Set(ctx, "other", "1", 0).Err(), "NOPERM")
	parsed, err := redis.ParseURL(s.URL())
	require.NoError(t, err)
	require.Equal(t, "gateway", parsed.Username)
	require.NotNil(t, parsed.TLSConfig)
	require.FileExists(t, s.CAFile)

	o := s.Options().Simple()
	o.Username, o.Password = "", ""
	anonymous := redis.NewClient(o)
	defer func() { _ = anonymous.Close() }()
	require.ErrorContains(t, anonymous.Ping(ctx).Err(), "NOAUTH")
}

func TestInvalidDirectiveIsReported(t *testing.T) {
	t.Parallel()
	_, err := redistest.Launch(t.TempDir(), redistest.WithConfig("no-such-directive", "1"))
	require.ErrorContains(t, err, "no-such-directive")
}

func TestMissingRedisIsReported(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := redistest.Launch(t.TempDir())
	require.ErrorIs(t, err, redistest.ErrNoRedis)
}

func TestClusterMovesSlot(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	cl := redistest.StartCluster(t)
	c := cl.Client(t)
	for _, k := range []string{"a", "b", "c", "d", "{x}1", "{x}2"} {
		require.NoError(t, c.Set(ctx, k, k, 0).Err())
	}
	slot := int(c.ClusterKeySlot(ctx, "{x}1").Val())
	from := cl.Owner(slot)
	require.NotEqual(t, -1, from)
	to := (from + 1) % len(cl.Nodes)
	require.NoError(t, cl.MoveSlot(ctx, slot, to))
	require.Equal(t, "{x}1", c.Get(ctx, "{x}1").Val())
	require.Equal(t, "{x}1", cl.Nodes[to].Client(t).Get(ctx, "{x}1").Val())
}

func TestClusterReplicaTakesOver(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	cl := redistest.StartClusterWithReplicas(t)
	cl.SetNodeTimeout(t, time.Minute)
	c := cl.Client(t)
	require.NoError(t, c.Set(ctx, "a", "1", 0).Err())
	owner := cl.Owner(int(c.ClusterKeySlot(ctx, "a").Val()))
	redistest.AwaitReplica(t, cl.Nodes[owner], cl.Nodes[owner+3])
	require.NoError(t, cl.Nodes[owner].Kill())
	cl.SetNodeTimeout(t, time.Second)
	require.Eventually(t, func() bool {
		// After a refused connection alone, the client does not look for the new master.
		c.ReloadState(ctx)
		return c.Get(ctx, "a").Val() == "1"
	}, patience, 50*time.Millisecond)
}

func TestSentinelFailsOver(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := redistest.StartSentinel(t)
	s.ReplaceAfter(t, time.Minute)
	addr, err := s.MasterAddr(ctx)
	require.NoError(t, err)
	require.Equal(t, s.Master.Addr, addr)
	c := redis.NewUniversalClient(s.Options())
	defer func() { _ = c.Close() }()
	require.NoError(t, c.Set(ctx, "a", "1", 0).Err())
	redistest.AwaitReplica(t, s.Master, s.Replica)
	require.NoError(t, s.Master.Kill())
	s.ReplaceAfter(t, 500*time.Millisecond)
	require.Eventually(t, func() bool { return c.Set(ctx, "b", "1", 0).Err() == nil }, patience, 50*time.Millisecond)
	require.Eventually(t, func() bool {
		addr, err := s.MasterAddr(ctx) // the first Sentinel may be the last to know
		return err == nil && addr == s.Replica.Addr
	}, patience, 10*time.Millisecond)
	require.Equal(t, "1", c.Get(ctx, "a").Val(), "the data of the replica")
}

// TestPortStaysReservedWhileServerIsDown asks the kernel for more ports than it has at random before it repeats one.
func TestPortStaysReservedWhileServerIsDown(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	require.NoError(t, s.Kill())
	var lc net.ListenConfig
	for range 20_000 {
		l, err := lc.Listen(t.Context(), "tcp4", "127.0.0.1:0")
		require.NoError(t, err)
		require.NotEqual(t, s.Addr, l.Addr().String())
		require.NoError(t, l.Close())
	}
	require.NoError(t, s.Restart())
}

func TestFilesStayInDirectory(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	require.NoError(t, s.Client(t).Save(context.Background()).Err())
	_, err := os.Stat(s.Dir + "/dump.rdb")
	require.NoError(t, err)
}

func TestClockStepsBothWays(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithClock())
	c := s.Client(t)
	for _, offset := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute, 0} {
		require.NoError(t, s.StepClock(offset))
		now, err := c.Time(t.Context()).Result()
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(offset), now, time.Minute)
	}
	require.Error(t, redistest.Start(t).StepClock(0))
}
