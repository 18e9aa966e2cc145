package caddymodule

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

// selectionPolicy selects the address for a request by lb_policy. It implements least_conn, random_choose and
// weighted_round_robin itself, because they need counters that Caddy does not export, or positions in the whole list. For all
// other policies, it passes the available addresses to Caddy's implementation.
type selectionPolicy struct {
	proxy *reverseproxy.Handler
	turn  atomic.Uint64 // counter of weighted_round_robin
}

// acquire chooses a backend and counts the request there. It returns nil if no backend is available.
func (p *selectionPolicy) acquire(req *http.Request, all []*backend) *backend {
	for {
		b := p.choose(req, all)
		if b == nil || b.acquire() {
			return b
		}
	}
}

// acquire counts a request, unless the backend has reached its maximum since it was chosen.
func (b *backend) acquire() bool {
	for {
		n, limit := b.inFlight.Load(), int64(b.upstream.MaxRequests)
		if limit > 0 && n >= limit {
			return false
		}
		if b.inFlight.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// choose returns nil if no backend is available.
func (p *selectionPolicy) choose(req *http.Request, all []*backend) *backend {
	if len(all) == 1 {
		if !p.available(all[0]) {
			return nil
		}
		return all[0]
	}
	switch policy := p.proxy.LoadBalancing.SelectionPolicy.(type) {
	case *reverseproxy.LeastConnSelection:
		return leastBusy(p.onlyAvailable(all))
	case *reverseproxy.RandomChoiceSelection:
		some := p.onlyAvailable(all)
		rand.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] }) //nolint:gosec // G404: not security-relevant
		return leastBusy(some[:min(len(some), policy.Choose)])
	case *reverseproxy.WeightedRoundRobinSelection:
		return p.weighted(all, policy.Weights)
	default:
		backends := p.onlyAvailable(all)
		pool := make(reverseproxy.UpstreamPool, len(backends))
		for i, b := range backends {
			pool[i] = b.upstream
		}
		chosen := p.proxy.LoadBalancing.SelectionPolicy.Select(pool, req, discard{})
		if i := slices.Index(pool, chosen); i >= 0 {
			return backends[i]
		}
		return nil
	}
}

// available reports whether a backend is healthy, by active and passive checks, and below its maximum of requests.
func (p *selectionPolicy) available(b *backend) bool {
	if limit := b.upstream.MaxRequests; limit > 0 && b.inFlight.Load() >= int64(limit) {
		return false
	}
	if checks := p.proxy.HealthChecks; checks != nil && checks.Passive != nil && b.fails.Load() >= int64(checks.Passive.MaxFails) {
		return false
	}
	return b.upstream.Healthy()
}

func (p *selectionPolicy) onlyAvailable(all []*backend) []*backend {
	return slices.DeleteFunc(slices.Clone(all), func(b *backend) bool { return !p.available(b) })
}

// leastBusy returns a backend with the fewest requests in flight, at random if there are several.
func leastBusy(backends []*backend) *backend {
	var (
		best  *backend
		least int64
		ties  int
	)
	for _, b := range backends {
		n := b.inFlight.Load()
		if best == nil || n < least {
			best, least, ties = b, n, 0
		}
		if n == least {
			if ties++; rand.IntN(ties) == 0 { //nolint:gosec // G404: as above
				best = b
			}
		}
	}
	return best
}

// weighted returns the backends in turn, each as often as its weight. A backend without a weight is never chosen.
func (p *selectionPolicy) weighted(all []*backend, weights []int) *backend {
	if len(weights) < 2 { // like Caddy
		weights = []int{1}
	}
	var (
		total     int
		effective []int // weights, 0 for a backend that is not available
	)
	for i, b := range all {
		weight := 0
		if i < len(weights) && p.available(b) {
			weight = weights[i]
		}
		effective = append(effective, weight)
		total += weight
	}
	if total == 0 {
		return nil
	}
	at := int(p.turn.Add(1) % uint64(total)) //nolint:gosec // G115: total is a positive int
	i := 0
	for at >= effective[i] {
		at -= effective[i]
		i++
	}
	return all[i]
}

// discard is a response writer that keeps nothing. Policies may set cookies or write a response, which callers must not see.
type discard struct{}

// Header implements http.ResponseWriter.
func (discard) Header() http.Header { return http.Header{} }

// Write implements http.ResponseWriter.
func (discard) Write(b []byte) (int, error) { return len(b), nil }

// WriteHeader implements http.ResponseWriter.
func (discard) WriteHeader(int) {}
