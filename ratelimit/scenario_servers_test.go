package ratelimit

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/linktest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

// realEnvironment has a real Redis and real connections.
type realEnvironment struct {
	t      *testing.T
	server *redistest.Server
	links  []*linktest.Link // by gateway
}

// supports reports whether the environment can inject all faults of a scenario.
func (w *realEnvironment) supports(s *scenario) bool {
	for _, f := range s.faults {
		switch f.kind {
		case slowRedis, loseReplies, stall, failover:
			return false
		}
	}
	return s.nodes == 1
}

func (w *realEnvironment) snapshot() string { return filepath.Join(w.server.Dir, "dump.rdb") }

func (w *realEnvironment) save(int) {
	o := w.server.Options().Simple()
	o.ReadTimeout = time.Minute
	c := redis.NewClient(o)
	defer func() { _ = c.Close() }()
	assert.NoError(w.t, c.Save(context.Background()).Err())
}

func (w *realEnvironment) begin(f fault) {
	switch f.kind {
	case slowLink:
		w.links[f.gateway].Slow(f.by, f.by)
	case cutLink:
		w.links[f.gateway].Cut()
	case freezeRedis:
		assert.NoError(w.t, w.server.Pause())
	case stopRedis:
		w.save(0)
		assert.NoError(w.t, w.server.Kill())
	case emptyRedis:
		assert.NoError(w.t, w.server.Kill())
		assert.NoError(w.t, os.RemoveAll(w.snapshot()))
	case oldRedis:
		assert.NoError(w.t, w.server.Kill())
	case clockForward:
		assert.NoError(w.t, w.server.StepClock(f.by))
	case clockBack:
		assert.NoError(w.t, w.server.StepClock(-f.by))
	}
}

func (w *realEnvironment) end(f fault) {
	switch f.kind {
	case slowLink:
		w.links[f.gateway].Slow(0, 0)
	case cutLink:
		w.links[f.gateway].Mend()
	case freezeRedis:
		assert.NoError(w.t, w.server.Resume())
	case stopRedis, emptyRedis, oldRedis:
		assert.NoError(w.t, w.server.Restart())
	case clockForward, clockBack:
		assert.NoError(w.t, w.server.StepClock(0))
	}
}

// TestScenariosOnRealRedis plays some of the simulation's scenarios on real servers, in real time and concurrently, because
// they mostly wait.
func TestScenariosOnRealRedis(t *testing.T) {
	t.Parallel()
	scenarios := 4
	if os.Getenv("GATEHOUSE_CHAOS") == "1" {
		scenarios = 24
	}
	var work sync.WaitGroup
	for seed := uint64(1); scenarios > 0; seed++ {
		s := makeScenario(seed)
		w := &realEnvironment{t: t}
		if len(s.faults) == 0 || !w.supports(s) {
			continue
		}
		scenarios--
		s.timeout = 500 * time.Millisecond // tolerates a busy machine
		s.length = s.repaired + s.recovery() + 2*s.window
		w.server = redistest.Start(t, redistest.WithClock())
		limiters := make([]Limiter, s.gateways)
		for g := range limiters {
			w.links = append(w.links, linktest.Start(t, w.server.Addr))
			o := w.server.Options()
			o.Addrs = []string{w.links[g].Addr}
			TuneClient(o)
			client := redis.NewUniversalClient(o)
			l, err := New(client, Options{Timeout: s.timeout, ProbeInterval: s.probe})
			require.NoError(t, err)
			t.Cleanup(func() {
				require.NoError(t, l.Close())
				require.NoError(t, client.Close())
			})
			require.NoError(t, l.Ping(t.Context()))
			limiters[g] = l
		}
		work.Go(func() {
			began := time.Now()
			loaded := make(chan history, 1)
			go func() { loaded <- s.load(limiters, began) }()
			s.play(w, began)
			all := <-loaded
			for _, l := range limiters {
				assert.Eventually(t, func() bool { return l.Unavailable() == nil }, 20*time.Second, 10*time.Millisecond)
			}
			t.Logf("%d requests\n%s", len(all), s)
			assert.NoError(t, s.checkBounds(all), "%s", s)
		})
	}
	work.Wait()
}
