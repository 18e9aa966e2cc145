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

// choose returns nil if no backend is available. If passive checks rule out all backends that are otherwise available, the requests
// rather than the addresses are at fault. Then choose takes one of the backends with the fewest failures.
func (p *selectionPolicy) choose(req *http.Request, all []*backend) *backend {
	if b := p.chooseBelow(p.maxFails, req, all); b != nil {
		return b
	}
	fewest := int64(math.MaxInt64)
	for _, b := range all {
		if b.isAvailable(math.MaxInt64) {
			fewest = min(fewest, b.fails.Load())
		}
	}
	if fewest == math.MaxInt64 {
		return nil
	}
	return p.chooseBelow(fewest+1, req, all)
}

// chooseBelow chooses among the available backends that have had fewer failures than fails.
func (p *selectionPolicy) chooseBelow(fails int64, req *http.Request, all []*backend) *backend {
	if len(all) == 1 {
		if !all[0].isAvailable(fails) {
			return nil
		}
		return all[0]
	}
	switch policy := p.proxy.LoadBalancing.SelectionPolicy.(type) {
	case *reverseproxy.LeastConnSelection:
		return leastBusy(onlyAvailable(all, fails))
	case *reverseproxy.RandomChoiceSelection:
		some := onlyAvailable(all, fails)
		rand.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] }) //nolint:gosec // G404: not security-relevant
		return leastBusy(some[:min(len(some), policy.Choose)])
	case *reverseproxy.WeightedRoundRobinSelection:
		return p.chooseWeighted(onlyAvailable(all, fails), all, policy.Weights)
	default:
		backends := onlyAvailable(all, fails)
		pool := make(reverseproxy.UpstreamPool, len(backends))
		for i, b := range backends {
			pool[i] = b.upstream
		}
		chosen := p.proxy.LoadBalancing.SelectionPolicy.Select(pool, req, discardWriter{})
		if i := slices.Index(pool, chosen); i >= 0 {
			return backends[i]
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
