package ratelimit

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// scenario describes a fleet, its limits, its load and its faults, for the simulation.
type scenario struct {
	seed     uint64
	gateways int
	nodes    int // 1: a single Redis; more: a Cluster
	window   time.Duration
	timeout  time.Duration
	probe    time.Duration
	keys     []scenarioKey
	rate     float64 // load of each key, relative to its limit
	faults   []fault
	repaired time.Duration // when the last fault is over
	length   time.Duration
}

// scenarioKey is a counter that requests count against.
type scenarioKey struct {
	name   string
	group  string
	limits []int // by gateway, which may disagree
	wide   int   // index of a second counter of every request; -1: none
}

// fault is an injected fault, from at on for lasts.
type fault struct {
	kind    faultKind
	at      time.Duration
	lasts   time.Duration
	gateway int // whose network; -1: all
	node    int
	by      time.Duration // delay, lag, age or step, by kind
	share   float64
}

type faultKind string

const (
	slowLink     faultKind = "slow link"      // delays one gateway
	cutLink      faultKind = "cut link"       // cuts off one gateway
	slowRedis    faultKind = "slow Redis"     // delays all gateways
	freezeRedis  faultKind = "freeze"         // calls that arrive meanwhile are run afterwards
	stopRedis    faultKind = "stop"           // and restart with all data
	emptyRedis   faultKind = "stop and empty" // and restart without any
	oldRedis     faultKind = "older snapshot" // stop, and restart with an older snapshot
	failover     faultKind = "failover"       // to a replica that lags
	loseReplies  faultKind = "lose replies"   // of a share of the calls, some of which are retried
	stall        faultKind = "stall"          // one gateway processes replies late
	clockForward faultKind = "clock forward"  // and back afterwards
	clockBack    faultKind = "clock back"
)

// losesData reports whether requests that Redis has counted may be missing from the beginning of the fault on. A clock that
// steps forward, even if only back to the correct time, expires them.
func (k faultKind) losesData() bool {
	return k == emptyRedis || k == oldRedis || k == failover || k.stepsClock()
}

func (k faultKind) stepsClock() bool { return k == clockForward || k == clockBack }

func (s *scenario) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d gateways, %d nodes, window %v, timeout %v, rate %.1f, keys", s.seed, s.gateways, s.nodes, s.window, s.timeout, s.rate)
	for _, k := range s.keys {
		fmt.Fprintf(&b, " %s%v", k.name, k.limits)
	}
	for _, f := range s.faults {
		fmt.Fprintf(&b, "\n  %v for %v: %s, gateway %d, node %d, by %v, share %.2f", f.at, f.lasts, f.kind, f.gateway, f.node, f.by, f.share)
	}
	return b.String()
}

// makeScenario returns the scenario of a seed.
func makeScenario(seed uint64) *scenario {
	r := rand.New(rand.NewPCG(seed, 11))
	s := &scenario{
		seed: seed, gateways: 2 + r.IntN(4), nodes: 1, window: time.Duration(1500+r.IntN(2500)) * time.Millisecond,
		timeout: 50 * time.Millisecond, probe: 500 * time.Millisecond, rate: 0.4 + 2.6*r.Float64(),
	}
	if seed%4 == 3 {
		s.nodes = 3
	}
	keys := 1 + r.IntN(3)
	if seed%7 == 6 { // rare callers, and failovers
		keys += 3
	}
	for i := range keys {
		k := scenarioKey{name: fmt.Sprint("key", i), wide: -1}
		k.group = k.name
		limit := 1 + r.IntN(12)
		for range s.gateways {
			l := limit
			if seed%5 == 4 { // gateways disagree on the limit
				l = 1 + r.IntN(12)
			}
			k.limits = append(k.limits, l)
		}
		s.keys = append(s.keys, k)
	}
	if seed%3 == 1 { // two counters, as for unverified requests
		wide := scenarioKey{name: "wide", group: s.keys[0].group, wide: -1}
		for range s.gateways {
			wide.limits = append(wide.limits, 8)
		}
		s.keys = append(s.keys, wide)
		s.keys[0].wide = len(s.keys) - 1
	}
	kinds := []faultKind{
		slowLink, cutLink, slowRedis, freezeRedis, stopRedis, emptyRedis, oldRedis, failover, loseReplies, stall, clockForward,
		clockBack,
	}
	if seed%7 == 6 {
		kinds = []faultKind{failover}
	}
	at := 2 * s.window
	if seed%6 > 0 { // the others have no faults
		for range 1 + r.IntN(4) {
			f := fault{
				kind: kinds[r.IntN(len(kinds))], at: at + time.Duration(r.Int64N(int64(s.window))),
				lasts: time.Duration(r.Int64N(int64(s.window))) + time.Millisecond, gateway: r.IntN(s.gateways), node: r.IntN(s.nodes),
				by: time.Duration(r.Int64N(int64(3 * s.timeout))), share: r.Float64() / 2,
			}
			switch f.kind {
			case oldRedis, failover:
				f.by = time.Duration(r.Int64N(int64(s.window)))
			case stall:
				f.by = time.Duration(r.Int64N(int64(2 * s.timeout)))
			case clockForward, clockBack:
				f.by = time.Duration(r.Int64N(int64(3 * s.window)))
			}
			if f.kind == failover {
				f.lasts = 0
			}
			s.faults = append(s.faults, f)
			at = f.at + f.lasts
			s.repaired = at
		}
	}
	s.length = s.repaired + s.recovery() + 3*s.window
	return s
}

// recovery returns the documented time within which the fleet shares its limits again: a probe fails at the last moment, the
// next one succeeds, and requests that are still unsynced then are synced in the background.
func (s *scenario) recovery() time.Duration { return 3*s.probe + 4*s.timeout }

// outcome is a request and the decision about it.
type outcome struct {
	gateway  int
	key      int
	from, to time.Duration
	allowed  bool
	by       Decider
	retry    time.Duration
	states   []State
	once     Once         // of a write
	accepted [IDSize]byte // with its MAC
}

// history lists the requests of a scenario in the order of their ends.
type history []outcome

// load sends requests until the scenario ends.
func (s *scenario) load(limiters []Limiter, began time.Time) history {
	var mu sync.Mutex
	var all history
	var work sync.WaitGroup
	for g, l := range limiters {
		for k, key := range s.keys {
			if key.name == "wide" {
				continue
			}
			r := rand.New(rand.NewPCG(s.seed, uint64(g*100+k)))
			counters := []Counter{{Key: key.name, Limit: Limit{Name: "key", Requests: key.limits[g], Window: s.window}}}
			if key.wide >= 0 {
				wide := s.keys[key.wide]
				counters = append(counters, Counter{Key: wide.name, Limit: Limit{Name: "wide", Requests: wide.limits[g], Window: s.window}})
			}
			// Some requests are writes. Those of a while are the same one, which several gateways get at the same time, and again later.
			writes := rand.New(rand.NewPCG(s.seed, uint64(g*100+k)+50))
			pause := float64(s.window) / s.rate * float64(s.gateways) / float64(key.limits[g])
			work.Go(func() {
				for time.Since(began) < s.length {
					<-time.After(time.Duration(r.ExpFloat64()*pause) + time.Duration(r.Int64N(int64(time.Millisecond))))
					for range 1 + r.IntN(2)*r.IntN(4) { // some concurrently
						var once Once
						if writes.IntN(2) == 0 {
							same := time.Since(began).Truncate(s.window)
							binary.BigEndian.PutUint64(once.MAC[:], uint64(k+1)<<32+uint64(same/s.window))
							once.Until = time.UnixMicro(simClock).Add(same + 11*time.Minute)
							binary.BigEndian.PutUint64(once.ID[:], writes.Uint64()|1)
						}
						work.Go(func() {
							from := time.Since(began)
							allow := l.Allow
							if once != (Once{}) {
								allow = func(ctx context.Context, group string, counters ...Counter) (Result, error) {
									return l.AllowOnce(ctx, group, once, counters...)
								}
							}
							res, err := allow(context.Background(), key.group, counters...)
							if err != nil {
								panic(err)
							}
							mu.Lock()
							defer mu.Unlock()
							all = append(all, outcome{g, k, from, time.Since(began), res.Allowed, res.By, res.RetryAfter, res.States, once, res.Accepted})
						})
						<-time.After(1 + time.Duration(r.Int64N(int64(time.Microsecond))))
					}
				}
			})
		}
	}
	work.Wait()
	slices.SortStableFunc(all, func(a, b outcome) int {
		return cmp.Or(cmp.Compare(a.to, b.to), cmp.Compare(a.gateway, b.gateway), cmp.Compare(a.key, b.key), cmp.Compare(a.from, b.from))
	})
	return all
}

const never = time.Duration(1 << 62)

// timeline says what a history may contain, and when.
type timeline struct {
	local  time.Duration // from when on decisions may be local
	shared time.Duration // until when they may be
	lossy  time.Duration // from when on data may be missing,
	calm   time.Duration // until when the fleet may exceed the limit
	fair   time.Duration // until what was counted during a fault has expired
	known  time.Duration // until every data loss has been detected
	steps  time.Duration // from when on Redis's clock may have stepped
	late   time.Duration // how long a call of the script may take
}

func (s *scenario) timeline() timeline {
	if len(s.faults) == 0 {
		return timeline{local: never, lossy: never, steps: never, late: time.Second}
	}
	back := s.repaired + s.recovery()
	t := timeline{local: never, shared: back, lossy: never, calm: back, fair: back + s.window, known: back, steps: never, late: time.Second}
	if !slices.ContainsFunc(s.faults, func(f fault) bool { return f.kind != failover }) {
		t.known = s.repaired + 2*s.probe // without an outage, the next background check detects it
	}
	for _, f := range s.faults {
		t.local = min(t.local, f.at)
		if f.kind.losesData() {
			t.lossy = min(t.lossy, f.at-f.by)
		}
		if f.kind == freezeRedis {
			t.late += f.lasts
		}
		if f.kind.stepsClock() {
			t.steps = min(t.steps, f.at)
			t.calm = back + s.window // what was counted before the step expires early
		}
	}
	return t
}

// check checks a history against the rule of the sliding window. slack is the tolerance of times.
func (s *scenario) check(all history, slack time.Duration) error {
	t := s.timeline()
	if err := cmp.Or(s.checkBounds(all), s.checkWrites(all)); err != nil {
		return err
	}
	counted := s.counted(all)
	for i := range all {
		m := &all[i]
		if m.to < t.steps {
			if err := s.checkReason(counted, m, t.late); err != nil {
				return err
			}
		}
		if m.by == ByLocal && (m.to < t.local || m.from > t.shared) {
			return fmt.Errorf("unexpected local decision of gateway %d at %v", m.gateway, m.from)
		}
		if m.allowed || m.to >= t.local && m.from < s.fair(counted, m, t)+slack {
			continue
		}
		if err := s.checkDenial(counted, m, slack); err != nil {
			return err
		}
	}
	return nil
}

// fair returns from when on a request must not be denied because of what was counted during a fault. If Redis's clock was
// set back, a counter's time continues only with its next request.
func (s *scenario) fair(counted [][]*outcome, m *outcome, t timeline) time.Duration {
	fair := t.fair
	for _, f := range s.faults {
		if !f.kind.stepsClock() {
			continue
		}
		for _, k := range s.counters(m) {
			next := never
			for _, o := range since(counted[k], s.repaired) {
				if o.by == ByRedis && o.from >= s.repaired {
					next = o.to
					break
				}
			}
			fair = max(fair, min(next, m.to)+s.window)
		}
	}
	return fair
}

// counters returns the keys that a request counts against.
func (s *scenario) counters(m *outcome) []int {
	if wide := s.keys[m.key].wide; wide >= 0 {
		return []int{m.key, wide}
	}
	return []int{m.key}
}

// counted returns the requests that count against each key, in the order of their ends.
func (s *scenario) counted(all history) [][]*outcome {
	counted := make([][]*outcome, len(s.keys))
	for i := range all {
		for _, k := range s.counters(&all[i]) {
			counted[k] = append(counted[k], &all[i])
		}
	}
	return counted
}

// since returns the requests that ended at a time or later.
func since(some []*outcome, at time.Duration) []*outcome {
	i, _ := slices.BinarySearchFunc(some, at, func(o *outcome, at time.Duration) int { return cmp.Compare(o.to, at) })
	return some[i:]
}

// checkBounds checks that no more was allowed than the documented bounds.
func (s *scenario) checkBounds(all history) error {
	t := s.timeline()
	for k, on := range s.counted(all) {
		for i, m := range on {
			limit := s.keys[k].limits[m.gateway]
			// Requests that were certainly allowed within the window that ends with m: earlier, or concurrently with the
			// same limit.
			sure := func(of func(o *outcome) bool) int {
				n := 0
				for _, o := range since(on[:i], m.to-s.window) {
					before := o.to < m.from || m.to < t.steps && limit == s.keys[k].limits[o.gateway]
					if o.allowed && before && o.from > m.to-s.window && of(o) {
						n++
					}
				}
				return n
			}
			own := func(o *outcome) bool { return o.gateway == m.gateway }
			redis := func(o *outcome) bool { return o.by == ByRedis }
			known := func(o *outcome) bool { return o.by == ByRedis || o.to < t.calm }
			switch {
			case !m.allowed:
				continue
			case sure(own) >= limit:
				return fmt.Errorf("gateway %d alone allowed more than %d of %s at %v", m.gateway, limit, s.keys[k].name, m.to)
			case m.by == ByRedis && (m.to < t.lossy || m.from > t.calm) && sure(redis) >= limit:
				return fmt.Errorf("redis allowed gateway %d more than %d of %s at %v", m.gateway, limit, s.keys[k].name, m.to)
			case m.by == ByRedis && m.from > t.calm && sure(known) >= limit:
				return fmt.Errorf("the fleet allowed gateway %d more than %d of %s at %v", m.gateway, limit, s.keys[k].name, m.to)
			}
		}
	}
	return nil
}

// checkWrites checks that each write was accepted once, unless Redis has lost data in between, and that none was refused because of one
// that was denied.
func (s *scenario) checkWrites(all history) error {
	writes := map[[16]byte][]outcome{}
	for _, m := range all {
		if m.once != (Once{}) {
			writes[m.once.MAC] = append(writes[m.once.MAC], m)
		}
	}
	for _, same := range writes {
		denied := map[[IDSize]byte]bool{}
		for _, m := range same {
			denied[m.once.ID] = m.by != ByLocal && !m.allowed
		}
		var before *outcome // the last one that was accepted
		for i := range same {
			m := &same[i]
			decided := m.by == ByRedis && m.allowed
			if wrong, known := denied[m.accepted]; decided != known || wrong {
				return fmt.Errorf("gateway %d at %v: allowed %v by %s, accepted %x", m.gateway, m.from, m.allowed, m.by, m.accepted)
			}
			if m.accepted != m.once.ID {
				continue
			}
			lost := func(f fault) bool {
				return f.kind.losesData() && !f.kind.stepsClock() && f.at <= m.to && f.at+f.lasts >= before.from
			}
			if before != nil && !slices.ContainsFunc(s.faults, lost) {
				return fmt.Errorf("gateway %d accepted a write at %v that gateway %d had accepted at %v", m.gateway, m.from, before.gateway, before.from)
			}
			before = m
		}
	}
	return nil
}

// checkReason checks that every denial has a reason, even during a fault: at least as many requests as the limit may have
// been counted. Each counts once, including those that were denied locally because Redis did not reply.
func (s *scenario) checkReason(counted [][]*outcome, m *outcome, late time.Duration) error {
	for b, k := range s.counters(m) {
		if m.states[b].RetryAfter == 0 {
			continue
		}
		n := 0
		for _, o := range since(counted[k], m.from-s.window-late+1) {
			if o == m || o.from > m.to {
				continue
			}
			if o.allowed || o.by == ByLocal || o.to >= m.from {
				n++
			}
		}
		if limit := s.keys[k].limits[m.gateway]; n < limit {
			return fmt.Errorf("gateway %d denied %s by %s at %v, but at most %d of %d can have been counted",
				m.gateway, s.keys[k].name, m.by, m.from, n, limit)
		}
	}
	return nil
}

// checkDenial checks that a denial has a reason and the correct RetryAfter.
func (s *scenario) checkDenial(counted [][]*outcome, m *outcome, slack time.Duration) error {
	counters := s.counters(m)
	least, most, full := time.Duration(0), time.Duration(0), false
	for i, k := range counters {
		limit := s.keys[k].limits[m.gateway]
		var sure, possible []*outcome
		for _, o := range since(counted[k], m.from-s.window-slack+1) { // the others have left the window
			if !o.allowed {
				continue
			}
			if o.to < m.from {
				sure = append(sure, o)
			}
			if o.from <= m.to {
				possible = append(possible, o) // in the order of their ends
			}
		}
		slices.SortFunc(sure, func(a, b *outcome) int { return cmp.Compare(a.from, b.from) })
		// A gateway with a lower limit than others does not learn what they allow meanwhile.
		if n := len(sure) - limit; n >= 0 && slices.Max(s.keys[k].limits) == limit {
			least = max(least, sure[n].from+s.window-m.to-slack)
		}
		if n := len(possible) - limit; n >= 0 {
			full = true
			most = max(most, possible[n].to+s.window-m.from+slack)
		} else if m.states[i].RetryAfter > 0 {
			return fmt.Errorf("gateway %d denied %s by %s at %v, but only %d of %d were used", m.gateway, s.keys[k].name, m.by, m.from, len(possible), limit)
		}
	}
	switch {
	case !full:
		return fmt.Errorf("gateway %d denied %s at %v for no reason", m.gateway, s.keys[m.key].name, m.from)
	case m.retry < least || m.retry > most:
		return fmt.Errorf("gateway %d denied %s by %s at %v for %v instead of %v to %v",
			m.gateway, s.keys[m.key].name, m.by, m.from, m.retry, least, most)
	}
	return nil
}
