package dataservice

import (
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

// selectionPolicy selects the address for a request by lb_policy. It implements least_conn, random_choose and
// weighted_round_robin itself, because they need counters that Caddy does not export, or the position of each address. For all
// other policies, it passes the available addresses to Caddy's implementation.
type selectionPolicy struct {
	proxy      *reverseproxy.Handler
	maxFails   int64         // the number of failures at which passive checks rule out a backend
	roundRobin atomic.Uint64 // counter of weighted_round_robin
}

// acquire chooses a backend and counts the request there. tried is the address of the attempt before. It returns nil if no backend is available.
func (p *selectionPolicy) acquire(req *http.Request, all []*backend, tried string) *backend {
	for {
		b := p.choose(req, all, tried)
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

// choose returns nil if no backend is available. If passive checks rule out all backends that are otherwise available, the requests
// rather than the addresses are at fault. Then choose takes one of the backends with the fewest failures; after a failed attempt, of the others,
// because an address that is down has the fewest while others fail more often.
func (p *selectionPolicy) choose(req *http.Request, all []*backend, tried string) *backend {
	if len(all) == 1 {
		if !all[0].isAvailable(math.MaxInt64) {
			return nil
		}
		return all[0]
	}
	if b := p.chooseFrom(onlyAvailable(all, p.maxFails), req, all); b != nil {
		return b
	}
	some := onlyAvailable(all, math.MaxInt64)
	if slices.ContainsFunc(some, func(b *backend) bool { return b.dial.Address != tried }) {
		some = slices.DeleteFunc(some, func(b *backend) bool { return b.dial.Address == tried })
	}
	fewest := int64(math.MaxInt64)
	for _, b := range some {
		fewest = min(fewest, b.fails.Load())
	}
	return p.chooseFrom(slices.DeleteFunc(some, func(b *backend) bool { return b.fails.Load() > fewest }), req, all)
}

// chooseFrom chooses one of the available backends.
func (p *selectionPolicy) chooseFrom(available []*backend, req *http.Request, all []*backend) *backend {
	switch policy := p.proxy.LoadBalancing.SelectionPolicy.(type) {
	case *reverseproxy.LeastConnSelection:
		return leastBusy(available)
	case *reverseproxy.RandomChoiceSelection:
		rand.Shuffle(len(available), func(i, j int) { available[i], available[j] = available[j], available[i] }) //nolint:gosec // G404: not security-relevant
		return leastBusy(available[:min(len(available), policy.Choose)])
	case *reverseproxy.WeightedRoundRobinSelection:
		return p.chooseWeighted(available, all, policy.Weights)
	default:
		pool := make(reverseproxy.UpstreamPool, len(available))
		for i, b := range available {
			pool[i] = b.upstream
		}
		chosen := p.proxy.LoadBalancing.SelectionPolicy.Select(pool, req, discardWriter{})
		if i := slices.Index(pool, chosen); i >= 0 {
			return available[i]
		}
		return nil
	}
}

// isAvailable reports whether a backend is healthy by active checks, has had fewer failures than fails, and is below its maximum
// of requests.
func (b *backend) isAvailable(fails int64) bool {
	limit := int64(b.upstream.MaxRequests)
	return (limit <= 0 || b.inFlight.Load() < limit) && b.fails.Load() < fails && b.upstream.Healthy()
}

func onlyAvailable(all []*backend, fails int64) []*backend {
	return slices.DeleteFunc(slices.Clone(all), func(b *backend) bool { return !b.isAvailable(fails) })
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

// chooseWeighted returns the backends in turn, each as often as its weight. A backend without a weight is never chosen.
func (p *selectionPolicy) chooseWeighted(available, all []*backend, weights []int) *backend {
	if len(weights) < 2 { // like Caddy
		weights = []int{1}
	}
	var (
		total     int
		effective []int // weights, 0 for a backend that is not available
	)
	for i, b := range all {
		weight := 0
		if i < len(weights) && slices.Contains(available, b) {
			weight = weights[i]
		}
		effective = append(effective, weight)
		total += weight
	}
	if total == 0 {
		return nil
	}
	at := int(p.roundRobin.Add(1) % uint64(total)) //nolint:gosec // G115: total is a positive int
	i := 0
	for at >= effective[i] {
		at -= effective[i]
		i++
	}
	return all[i]
}

// discardWriter is a response writer that keeps nothing. Policies may set cookies or write a response, which callers must not see.
type discardWriter struct{}

// Header implements http.ResponseWriter.
func (discardWriter) Header() http.Header { return http.Header{} }

// Write implements http.ResponseWriter.
func (discardWriter) Write(b []byte) (int, error) { return len(b), nil }

// WriteHeader implements http.ResponseWriter.
func (discardWriter) WriteHeader(int) {}
