package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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

// supported reports whether a realEnvironment can inject all faults of a scenario.
func supported(s *scenario) bool {
	return s.nodes == 1 && !slices.ContainsFunc(s.faults, func(f fault) bool {
		return slices.Contains([]faultKind{slowRedis, loseReplies, stall, failover}, f.kind)
	})
}

func (w *realEnvironment) save(int) {
	o := w.server.Options().Simple()
	o.ReadTimeout = time.Minute
	c := redis.NewClient(o)
	defer func() { _ = c.Close() }()
	assert.NoError(w.t, c.Save(context.Background()).Err())
}

func (w *realEnvironment) change(f fault, on bool) {
	if !on {
		f.by = 0
	}
	var err error
	switch f.kind {
	case slowLink:
		w.links[f.gateway].Slow(f.by, f.by)
	case cutLink:
		if on {
			w.links[f.gateway].Cut()
		} else {
			w.links[f.gateway].Restore()
		}
	case freezeRedis:
		if on {
			err = w.server.Pause()
		} else {
			err = w.server.Resume()
		}
	case stopRedis, emptyRedis, oldRedis:
		if !on {
			err = w.server.Restart()
			break
		}
		if f.kind == stopRedis {
			w.save(0)
		}
		err = w.server.Kill()
		if f.kind == emptyRedis {
			err = errors.Join(err, os.RemoveAll(filepath.Join(w.server.Dir, "dump.rdb")))
		}
	case clockForward:
		err = w.server.StepClock(f.by)
	case clockBack:
		err = w.server.StepClock(-f.by)
	}
	assert.NoError(w.t, err)
}

// fixedScenario returns a scenario in which three gateways exhaust the limits of all keys.
func fixedScenario(requests, keys int, window time.Duration, faults ...fault) *scenario {
	s := &scenario{seed: uint64(requests), gateways: 3, nodes: 1, window: window, timeout: 20 * time.Second, probe: 300 * time.Millisecond, rate: 3, length: 4 * window}
	for i := range keys {
		name := fmt.Sprint("key", i)
		s.keys = append(s.keys, scenarioKey{name: name, group: name, limits: []int{requests, requests, requests}, wide: -1})
	}
	if len(faults) > 0 {
		last := faults[len(faults)-1]
		s.faults, s.repaired = faults, last.at+last.lasts
	}
	return s
}

// TestScenariosOnRealRedis plays scenarios on real servers, in real time and concurrently, because they mostly wait: without
// faults, with Redis killed and paused, and some of the simulation's.
func TestScenariosOnRealRedis(t *testing.T) {
	t.Parallel()
	var scenarios []*scenario
	for _, requests := range []int{1, 7, 60, 400} {
		scenarios = append(scenarios, fixedScenario(requests, 2, 700*time.Millisecond))
	}
	const ms = time.Millisecond
	scenarios = append(scenarios, fixedScenario(25, 3, 800*ms,
		fault{kind: emptyRedis, at: 500 * ms, lasts: 300 * ms}, fault{kind: freezeRedis, at: 1400 * ms, lasts: 2500 * ms},
		fault{kind: emptyRedis, at: 4500 * ms, lasts: 300 * ms}, fault{kind: freezeRedis, at: 5400 * ms, lasts: 2500 * ms}))
	random := 4
	if os.Getenv("GATEHOUSE_CHAOS") == "1" {
		random = 24
	}
	for seed := uint64(1); random > 0; seed++ {
		if s := makeScenario(seed); len(s.faults) > 0 && supported(s) {
			scenarios = append(scenarios, s)
			random--
		}
	}
	var work sync.WaitGroup
	for _, s := range scenarios {
		if len(s.faults) > 0 {
			s.timeout = 500 * time.Millisecond // tolerates a busy machine
			s.length = s.repaired + s.recovery() + 2*s.window
		}
		w := &realEnvironment{t: t, server: redistest.Start(t, redistest.WithClock())}
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
			if len(s.faults) == 0 {
				s.checkTotals(t, all)
			}
		})
	}
	work.Wait()
}

// checkTotals checks how many requests were allowed without faults, and that low limits were exhausted. A busy machine may send
// less than a high limit.
func (s *scenario) checkTotals(t *testing.T, all history) {
	t.Helper()
	for k, key := range s.keys {
		allowed, denied := 0, 0
		for _, m := range all {
			switch {
			case m.key != k:
			case m.allowed:
				allowed++
			default:
				denied++
			}
		}
		windows := int(all[len(all)-1].to/s.window) + 1
		assert.LessOrEqual(t, allowed, windows*key.limits[0], "%s of %s", key.name, s)
		if key.limits[0] <= 7 {
			assert.Positive(t, denied, "%s of %s", key.name, s)
		}
	}
}
