package dataservice

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"github.com/stretchr/testify/require"
)

// writingPolicy selects the last address and writes a response, which Caddy's interface allows.
type writingPolicy struct{}

func (writingPolicy) Select(pool reverseproxy.UpstreamPool, _ *http.Request, w http.ResponseWriter) *reverseproxy.Upstream {
	w.Header().Set("Set-Cookie", "lb=1")
	w.WriteHeader(http.StatusTeapot)
	_, _ = w.Write([]byte("a body"))
	return pool[len(pool)-1]
}

func TestSelectionPolicyMayWriteToItsResponse(t *testing.T) {
	t.Parallel()
	policy := selectionPolicy{maxFails: 1, proxy: &reverseproxy.Handler{LoadBalancing: &reverseproxy.LoadBalancing{SelectionPolicy: writingPolicy{}}}}
	backends := []*backend{{upstream: &reverseproxy.Upstream{Host: new(reverseproxy.Host)}}, {upstream: &reverseproxy.Upstream{Host: new(reverseproxy.Host)}}}
	require.Same(t, backends[1], policy.choose(httptest.NewRequest(http.MethodGet, "/", http.NoBody), backends, ""))
}

// busyPolicy selects the first address. In the meantime, another request is sent to one.
type busyPolicy struct{ busy *backend }

func (p busyPolicy) Select(pool reverseproxy.UpstreamPool, _ *http.Request, _ http.ResponseWriter) *reverseproxy.Upstream {
	p.busy.inFlight.Store(1)
	return pool[0]
}

func TestConcurrentRequestsDoNotExceedTheMaximum(t *testing.T) {
	t.Parallel()
	limited := &backend{upstream: &reverseproxy.Upstream{Host: new(reverseproxy.Host), MaxRequests: 1}}
	other := &backend{upstream: &reverseproxy.Upstream{Host: new(reverseproxy.Host)}}
	policy := selectionPolicy{maxFails: 1, proxy: &reverseproxy.Handler{LoadBalancing: &reverseproxy.LoadBalancing{SelectionPolicy: busyPolicy{limited}}}}
	require.Same(t, other, policy.acquire(httptest.NewRequest(http.MethodGet, "/", http.NoBody), []*backend{limited, other}, ""))
	require.EqualValues(t, 1, limited.inFlight.Load())
	require.EqualValues(t, 1, other.inFlight.Load())
}
