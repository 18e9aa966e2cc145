package ratelimit

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// world is what faults happen to.
type world interface {
	begin(f fault)
	end(f fault)
	save(node int)
}

// play has the faults happen.
func (s *scenario) play(w world, began time.Time) {
	for _, f := range s.faults {
		if f.kind == oldRedis || f.kind == failover {
			<-time.After(f.at - f.by - time.Since(began))
			w.save(f.node)
		}
		<-time.After(f.at - time.Since(began))
		w.begin(f)
		<-time.After(f.lasts)
		w.end(f)
	}
}

// simulated is a world in virtual time.
type simulated struct {
	nodes []*simRedis
}

func simulate(s *scenario) *simulated {
	w := new(simulated)
	for i := range s.nodes {
		r := newSimRedis(s.seed*10 + uint64(i))
		for g := range s.gateways {
			r.links[g] = new(simLink)
		}
		w.nodes = append(w.nodes, r)
	}
	return w
}

// node is where a key is: slots are in the middle of a shard's, so that a shard spans two nodes.
func (w *simulated) node(t tag) *simRedis {
	return w.nodes[(t.slot()+slots/clusterShards/2)*len(w.nodes)/(slots+slots/clusterShards)]
}

func (w *simulated) limiter(s *scenario, gateway int, o Options) *exact {
	nodeOf := func(key string) *simRedis {
		if len(w.nodes) == 1 {
			return w.nodes[0]
		}
		raw, err := base64.RawURLEncoding.DecodeString(key[len(o.Prefix)+1 : len(o.Prefix)+12])
		if err != nil {
			panic(err)
		}
		return w.node(tag(binary.BigEndian.Uint64(raw)))
	}
	return newExact(store{
		cluster:   len(w.nodes) > 1,
		newRunner: func() runner { return &simRunner{gateway: gateway, node: nodeOf, one: len(w.nodes) == 1} },
		node:      func(key string) string { return fmt.Sprintf("%p", nodeOf(key)) },
		random: func(shard int) func(int64) int64 {
			r := rand.New(rand.NewPCG(s.seed, uint64(gateway*100+shard)+1000))
			var mu sync.Mutex
			return func(n int64) int64 {
				mu.Lock()
				defer mu.Unlock()
				return r.Int64N(n)
			}
		},
	}, o)
}

func (w *simulated) save(node int) {
	r := w.nodes[node]
	r.mu.Lock()
	r.save()
	r.mu.Unlock()
}

func (w *simulated) begin(f fault) { w.change(f, true) }

func (w *simulated) end(f fault) { w.change(f, false) }

func (w *simulated) change(f fault, on bool) {
	by, share := time.Duration(0), 0.0
	if on {
		by, share = f.by, f.share
	}
	for i, r := range w.nodes {
		r.mu.Lock()
		switch f.kind {
		case slowLink:
			r.links[f.gateway].slow = by
		case cutLink:
			r.links[f.gateway].cut = on
		case stall:
			r.links[f.gateway].stall = by
		}
		if i == f.node {
			r.change(f, on, by, share)
		}
		r.mu.Unlock()
	}
}

func (r *simRedis) change(f fault, on bool, by time.Duration, share float64) {
	switch f.kind {
	case slowRedis:
		r.slow = by
	case freezeRedis:
		if on {
			r.frozen = make(chan struct{})
		} else {
			close(r.frozen)
			r.frozen = nil
		}
	case stopRedis:
		r.down = on
	case emptyRedis, oldRedis:
		if r.down = on; !on {
			if f.kind == emptyRedis {
				r.saved = nil
			}
			r.restore()
		}
	case failover:
		if on {
			r.restore()
		}
	case loseAnswers:
		r.lose = share
	case clockForward:
		r.step = by
	case clockBack:
		r.step = -by
	}
}

// simulation runs a seed's scenario in virtual time and returns its history.
func simulation(t *testing.T, seed uint64) (all history, err error) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { all, err = simulateSeed(seed) })
	return all, err
}

func simulateSeed(seed uint64) (history, error) {
	s := makeScenario(seed)
	w := simulate(s)
	defer func() {
		for _, r := range w.nodes {
			r.close()
		}
	}()
	began := time.Now()
	limiters := make([]Limiter, s.gateways)
	fleet := make([]*exact, s.gateways)
	var outages outages
	for g := range limiters {
		<-time.After(time.Millisecond)
		fleet[g] = w.limiter(s, g, mustComplete(Options{
			Timeout: s.timeout, ProbeInterval: s.probe, MaxEntries: 1000,
			OnEvent: func(e Event) { outages.event(g, e, time.Since(began)) },
		}))
		limiters[g] = fleet[g]
	}
	faults := make(chan error, 1)
	go func() {
		s.play(w, began)
		<-time.After(s.recovery())
		var err error
		for g, x := range fleet {
			if e := x.Unavailable(); e != nil {
				err = fmt.Errorf("gateway %d does not share its limits again: %w", g, e)
			}
		}
		faults <- err
	}()
	watched := make(chan error, 1)
	go func() {
		var err error
		for err == nil && time.Since(began) < s.length {
			<-time.After(s.probe / 2)
			err = w.compare(fleet, s.spans(), time.Since(began))
		}
		watched <- err
	}()
	all := s.load(limiters, began)
	err := cmp.Or(<-faults, <-watched)
	if err == nil {
		err = s.check(all, 3*time.Millisecond)
	}
	if err == nil {
		err = outages.check(all, func(m moment) int { return fleet[m.gateway].shardOf(hashGroup(s.keys[m.key].group)) })
	}
	<-time.After(s.window + sweepInterval)
	for g, x := range fleet {
		if st := x.Stats(); err == nil && (st.Entries > 0 || st.Queue > 0) {
			err = fmt.Errorf("gateway %d remembers requests that have left: %+v", g, st)
		}
		_ = x.Close()
	}
	if err != nil {
		err = fmt.Errorf("%w\n%s\nrepeat it: GATEHOUSE_SIM_SEED=%d go test -run 'TestSimulation$' ./ratelimit", err, s, seed)
	}
	return all, err
}

// compare holds what Redis has stored against what gateways know of their requests: no more than they have allowed, and once
// losses of data are known no less than they take for certain.
func (w *simulated) compare(fleet []*exact, t spans, at time.Duration) error {
	known := t.steps == far && at > t.known
	for g, x := range fleet {
		losses := x.losses.Count()
		for _, table := range *x.locals.tables.Load() {
			for i := range table.stripes {
				st := &table.stripes[i]
				st.mu.Lock()
				for i, l := range st.windows {
					l.Prune(x.clock(), l.span)
					stored := w.node(l.tag).stored(redisKey(x.o.Prefix, l.tag, table.policy, &i), l.Writer)
					base := l.base(x.clock(), x.slack, losses)
					if l.pending == 0 && (stored > l.Seq || stored < base && known) {
						st.mu.Unlock()
						return fmt.Errorf("redis has %d requests of gateway %d, which has allowed %d and takes %d for stored", stored, g, l.Seq, base)
					}
				}
				st.mu.Unlock()
			}
		}
	}
	return nil
}

// outages are when gateways could not ask Redis, by what they told.
type outages struct {
	mu   sync.Mutex
	list []outage
}

type outage struct {
	gateway, part int
	from, to      time.Duration
}

func (o *outages) event(gateway int, e Event, at time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch e.Kind {
	case Unavailable:
		o.list = append(o.list, outage{gateway, e.Part, at, 1 << 62})
	case Shared:
		for i, one := range o.list {
			if one.gateway == gateway && one.part == e.Part {
				o.list[i].to = min(one.to, at)
			}
		}
	}
}

// check wants no decision of Redis's before it has been told what was allowed in the outage.
func (o *outages) check(all history, part func(moment) int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range all {
		for _, one := range o.list {
			if m.by == ByRedis && m.gateway == one.gateway && part(m) == one.part && m.from > one.from && m.from < one.to {
				return fmt.Errorf("gateway %d asked Redis at %v, and was not ready for that from %v to %v", m.gateway, m.from, one.from, one.to)
			}
		}
	}
	return nil
}

func mustComplete(o Options) Options {
	if err := o.complete(); err != nil {
		panic(err)
	}
	return o
}

// TestSimulation runs fleets in virtual time against simulated Redis servers that are slow, cut off, frozen, restarted and
// wrong, and holds every history against the plain rule. GATEHOUSE_SIM_SEEDS is how many (`make chaos`: 100,000), and
// GATEHOUSE_SIM_SEED one of them.
func TestSimulation(t *testing.T) {
	t.Parallel()
	if seed, err := strconv.ParseUint(os.Getenv("GATEHOUSE_SIM_SEED"), 10, 64); err == nil {
		_, err := simulation(t, seed)
		require.NoError(t, err)
		return
	}
	seeds, err := strconv.ParseUint(os.Getenv("GATEHOUSE_SIM_SEEDS"), 10, 64)
	if err != nil {
		seeds = 1000
	}
	const parts = 4
	for part := range uint64(parts) {
		t.Run(fmt.Sprintf("part %d", part), func(t *testing.T) {
			t.Parallel()
			requests := 0
			for seed := part; seed < seeds; seed += parts {
				all, err := simulation(t, seed)
				require.NoError(t, err)
				requests += len(all)
			}
			t.Logf("%d requests", requests)
		})
	}
}

// TestASeedRepeatsItsHistory, so that a failure can be looked at.
func TestASeedRepeatsItsHistory(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		first, _ := simulation(t, seed)
		second, _ := simulation(t, seed)
		require.NotEmpty(t, first)
		require.Len(t, second, len(first), "seed %d", seed)
		for i := range first {
			require.Equal(t, first[i], second[i], "seed %d, request %d", seed, i)
		}
	}
}
