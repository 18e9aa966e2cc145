package dataservice

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// backend is an address of a data service.
type backend struct {
	upstream *reverseproxy.Upstream
	dial     reverseproxy.DialInfo
	client   *upstream.Client

	inFlight    atomic.Int64
	fails       atomic.Int64 // recent failures, for passive health checks
	lastSuccess atomic.Int64 // when an exchange last succeeded, in Unix nanoseconds
}

// maxDynamicBackends is the number of dynamic addresses above which idle ones are removed.
const maxDynamicBackends = 256

const (
	defaultLookupTimeout = time.Minute // of dynamic addresses, with all retries
	slowLookup           = time.Second // how long calls wait for one if addresses are known
)

// prepareAddresses creates the backends of addresses that do not depend on the request.
func (s *Service) prepareAddresses() error {
	hasPlaceholder := func(u *reverseproxy.Upstream) bool { return strings.Contains(u.Dial, "{") }
	if s.proxy.DynamicUpstreams != nil || slices.ContainsFunc(s.proxy.Upstreams, hasPlaceholder) {
		s.found = s.proxy.Upstreams
		return nil
	}
	for _, u := range s.proxy.Upstreams {
		b, err := s.newBackend(u, u.Dial)
		if err != nil {
			return err
		}
		s.static = append(s.static, b)
	}
	return nil
}

func (s *Service) newBackend(u *reverseproxy.Upstream, address string) (*backend, error) {
	addr, err := caddy.ParseNetworkAddress(address)
	if err != nil {
		return nil, fmt.Errorf("upstream %s: invalid address %q: %w", u.Dial, address, err)
	}
	if addr.PortRangeSize() != 1 {
		return nil, fmt.Errorf("upstream %s: address %q must have exactly one port", u.Dial, address)
	}
	b := &backend{upstream: u, dial: reverseproxy.DialInfo{
		Upstream: u, Network: addr.Network, Address: addr.JoinHostPort(0), Host: addr.Host, Port: fmt.Sprint(addr.StartPort),
	}}
	transport, keepAlive := s.transport.Transport, s.transport.KeepAlive
	b.client = &upstream.Client{
		Dial: func(ctx context.Context) (net.Conn, error) {
			return transport.DialContext(ctx, b.dial.Network, b.dial.Address)
		},
		MaxConns:              s.transport.MaxConnsPerHost,
		MaxIdleConns:          keepAlive.MaxIdleConnsPerHost,
		IdleTimeout:           time.Duration(keepAlive.IdleConnTimeout),
		MaxResponseHeader:     transport.MaxResponseHeaderBytes,
		ResponseHeaderTimeout: time.Duration(s.transport.ResponseHeaderTimeout),
		ReadTimeout:           s.settings.readTimeout,
		WriteTimeout:          s.settings.writeTimeout,
		ReadBuffer:            s.transport.ReadBufferSize,
	}
	if !s.settings.reuse {
		b.client.MaxIdleConns = -1
	}
	if most := keepAlive.MaxIdleConns; most > 0 {
		b.client.AllowIdle = func() bool {
			idle, _ := s.Connections()
			return idle < most
		}
	}
	if t := s.transport.TLS; t != nil && !slices.Contains(t.ExceptPorts, b.dial.Port) {
		sessions := tls.NewLRUClientSessionCache(0)
		b.client.TLS = func(ctx context.Context) *tls.Config {
			c := s.tlsConfig(ctx, b.dial.Host)
			c.ClientSessionCache = sessions // without it, writes, which do not reuse connections, would need a full handshake each
			return c
		}
		b.client.TLSHandshakeTimeout = transport.TLSHandshakeTimeout
	}
	return b, nil
}

// each calls f with each backend.
func (s *Service) each(f func(*backend)) {
	for _, b := range s.static {
		f(b)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.dynamic {
		f(b)
	}
}

// backends returns the addresses that a request may be sent to.
func (s *Service) backends(req *http.Request, deadline time.Time, retries int) ([]*backend, error) {
	if s.static != nil {
		return s.static, nil
	}
	upstreams, err := s.lookUp(req.Context(), deadline, retries)
	if err != nil {
		return nil, fmt.Errorf("looking up the addresses: %w", err)
	}
	repl, ok := req.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		repl = caddy.NewReplacer()
	}
	backends := make([]*backend, 0, len(upstreams))
	for _, u := range upstreams {
		b, err := s.dynamicBackend(u, repl.ReplaceAll(u.Dial, ""))
		if err != nil {
			return nil, err
		}
		backends = append(backends, b)
	}
	return backends, nil
}

// lookUp returns the addresses, of which those that are dynamic are looked up. Caddy does so for one service after the other, and forgets addresses if it
// fails. So a lookup runs in the background, and calls share it. They wait until their deadlines, but at most slowLookup if addresses are known, and not
// at all after a lookup that failed. Then, the next one begins slowLookup after it at the earliest.
func (s *Service) lookUp(ctx context.Context, deadline time.Time, retries int) ([]*reverseproxy.Upstream, error) {
	if s.proxy.DynamicUpstreams == nil {
		return s.proxy.Upstreams, nil
	}
	s.mu.Lock()
	if s.lookup == nil && s.lookupFailed && len(s.found) > 0 && time.Since(s.lookupBegan) < slowLookup {
		defer s.mu.Unlock()
		return s.found, nil
	}
	if s.lookup == nil {
		s.lookup, s.lookupBegan = make(chan struct{}), time.Now()
		go s.runLookup(retries > 0) //nolint:contextcheck // it outlives the request
	}
	lookup, until := s.lookup, s.lookupBegan
	if !s.lookupFailed {
		until = until.Add(slowLookup)
	}
	if len(s.found) > 0 && (deadline.IsZero() || until.Before(deadline)) {
		deadline = until
	}
	s.mu.Unlock()
	wait, cancel := ctx, context.CancelFunc(func() {})
	if !deadline.IsZero() {
		wait, cancel = context.WithDeadline(ctx, deadline)
	}
	defer cancel()
	select {
	case <-lookup:
	case <-wait.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, context.Cause(ctx)) // nothing was sent
	case len(s.found) == 0 && wait.Err() != nil:
		return nil, upstream.ErrNoTimeLeft
	}
	return s.found, nil
}

// runLookup looks up the dynamic addresses, for s.lookup.
func (s *Service) runLookup(again bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), s.lookupTimeout) // after a reload, for requests in progress
	defer cancel()
	source := s.proxy.DynamicUpstreams
	var found []*reverseproxy.Upstream
	req, err := s.request(ctx, &upstream.Call{BusinessID: "-", RequestID: "-", Path: "/"}, nil)
	if cache, ok := source.(reverseproxy.CachingUpstreamSource); ok && again && err == nil {
		err = cache.ResetCache(req)
	}
	if err == nil {
		found, err = source.GetUpstreams(req)
	}
	failed := err != nil || len(found) == 0 // several sources log their errors themselves
	dns, ok := errors.AsType[*net.DNSError](err)
	removed := ok && dns.IsNotFound // an answer: other services may get the known addresses
	s.mu.Lock()
	defer s.mu.Unlock()
	if !failed {
		s.found = found
	} else if removed || len(s.proxy.Upstreams) > 0 {
		s.found = s.proxy.Upstreams
	}
	switch {
	case failed && !s.lookupFailed && s.ctx.Err() == nil:
		s.logger.Error("looking up the addresses of a data service failed", zap.Int("addresses_in_use", len(s.found)), zap.Error(err))
	case !failed && s.lookupFailed:
		s.logger.Info("looking up the addresses of a data service succeeds again")
	}
	s.lookupFailed = failed
	close(s.lookup)
	s.lookup = nil
}

// dynamicBackend returns the backend of a dynamic address. Backends are kept, so that counts and connections outlive a request.
func (s *Service) dynamicBackend(u *reverseproxy.Upstream, address string) (*backend, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.dynamic[address]; b != nil {
		return b, nil
	}
	if len(s.dynamic) >= maxDynamicBackends {
		for name, b := range s.dynamic {
			if b.inFlight.Load() == 0 && b.fails.Load() == 0 {
				_ = b.client.Close()
				delete(s.dynamic, name)
			}
		}
	}
	if u.Host == nil { // dynamic sources do not set it, but Caddy's policies read it
		u.Host = new(reverseproxy.Host)
	}
	b, err := s.newBackend(u, address)
	if err != nil {
		return nil, err
	}
	s.dynamic[address] = b
	return b, nil
}

// countFailure counts a failed exchange for the passive health checks, unless the failure says nothing about the address: the client left, the response
// was too large or has another encoding, the request could not be written, or the exchange waited for memory or for one of MaxConns, or had less than
// half of the call's time before the deadline. Nor does a timeout count if another exchange with the address has succeeded since start. Then only
// this request is slow, and if it counted, one business could make an address fail for all.
func (s *Service) countFailure(ctx context.Context, b *backend, start, deadline time.Time, res *response, err error) {
	failed, now := false, time.Now()
	switch {
	case err == nil:
		b.lastSuccess.Store(now.UnixNano())
		if checks := s.proxy.HealthChecks; checks != nil && checks.Passive != nil {
			limit := time.Duration(checks.Passive.UnhealthyLatency)
			failed = limit > 0 && res.latency >= limit || slices.ContainsFunc(checks.Passive.UnhealthyStatus, func(bad int) bool {
				return caddyhttp.StatusCodeMatches(res.Status, bad)
			})
		}
	case ctx.Err() != nil, errors.Is(err, upstream.ErrResponseTooLarge), errors.Is(err, errNoMemory), errors.Is(err, upstream.ErrMaxConns),
		errors.Is(err, upstream.ErrInvalidRequest), errors.Is(err, upstream.ErrContentEncoding), errors.Is(err, upstream.ErrNoTimeLeft),
		!now.Before(deadline) && now.Sub(start) < res.fairTime:
	case isTimeout(err) && !errors.Is(err, ErrUnreachable):
		failed = b.lastSuccess.Load() < start.UnixNano()
	default:
		failed = true
	}
	if !failed || s.proxy.HealthChecks == nil || s.proxy.HealthChecks.Passive == nil {
		return
	}
	if d := time.Duration(s.proxy.HealthChecks.Passive.FailDuration); d > 0 {
		if b.fails.Add(1) == s.policy.maxFails { // otherwise, nobody would notice while retries succeed
			s.logger.Warn("avoiding an address of a data service that failed", zap.String("upstream_address", b.dial.Address),
				zap.Duration("for", d), zap.Int("status", res.Status), zap.Error(err))
		}
		time.AfterFunc(d, func() { b.fails.Add(-1) })
	}
}

func isTimeout(err error) bool {
	network, ok := errors.AsType[net.Error](err)
	return ok && network.Timeout()
}
