// Package dataservice is the only way to a data service. [Service.Do] makes one call: it chooses an address, adds the hop
// assertion and the headers of the call, sends the request, reads the response whole, and retries what may be retried. The signed
// API, tool calls and sign-in all use it, so its guarantees hold for each of them.
//
// A data service is configured, provisioned and actively health-checked as Caddy's reverse_proxy, but requests do not go
// through its ServeHTTP, which streams responses and costs more (docs/performance.md), nor through net/http's Transport, which
// shares and reads ahead connections (docs/design/0010-data-service-client.md).
package dataservice

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/internal/tracing"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// Options are what the data services of a gateway have in common.
type Options struct {
	// Asserter signs the hop assertion. Default: none is sent.
	Asserter *upstream.Asserter

	// Shares are shared by all data services. Required.
	Shares *Shares

	// Observe is called with the duration of each call, retries included. Required.
	Observe func(ctx context.Context, resource string, took time.Duration)
}

// Service is a data service: one upstream of the configuration, with one or more addresses. It is safe for concurrent use.
type Service struct {
	proxy     *reverseproxy.Handler
	transport *reverseproxy.HTTPTransport
	headerOps *headers.HeaderOps // the operator's; nil if there are none
	policy    selectionPolicy
	settings  connectionSettings
	ctx       caddy.Context // of the configuration: retries end with it
	logger    *zap.Logger
	asserter  *upstream.Asserter
	shares    *Shares
	observe   func(ctx context.Context, resource string, took time.Duration)
	responses sync.Pool         // of *response
	server    *caddyhttp.Server // an empty one, which Caddy's policies and replacer need in a context without one

	static  []*backend // parallel to proxy.Upstreams; nil if addresses have placeholders or are dynamic
	mu      sync.Mutex
	dynamic map[string]*backend // by dial address, if static is nil

	// Of dynamic addresses:
	found         []*reverseproxy.Upstream // by the last lookup that succeeded, or the static ones
	lookup        chan struct{}            // closed at the end of the current lookup; nil if there is none
	lookupBegan   time.Time
	lookupFailed  bool // the last one
	lookupTimeout time.Duration
}

// Load loads the reverse_proxy handler raw, which is the given field of a module's struct. The caller must close the service.
func Load(ctx caddy.Context, structPointer any, field string, raw *json.RawMessage, o Options) (*Service, error) {
	s, err := load(ctx, structPointer, field, raw, o)
	if err != nil {
		return nil, fmt.Errorf("loading the upstream: %w", err)
	}
	return s, nil
}

func load(ctx caddy.Context, structPointer any, field string, raw *json.RawMessage, o Options) (*Service, error) {
	var plain reverseproxy.Handler
	if err := json.Unmarshal(*raw, &plain); err != nil {
		return nil, fmt.Errorf("decoding the handler: %w", err)
	}
	if err := checkOptions(&plain); err != nil {
		return nil, err
	}
	settings, err := settingsOf(&plain)
	if err != nil {
		return nil, err
	}
	if *raw, err = withDefaults(*raw); err != nil {
		return nil, err
	}
	mod, err := ctx.LoadModule(structPointer, field)
	if err != nil {
		return nil, err
	}
	proxy, ok := mod.(*reverseproxy.Handler)
	if !ok {
		return nil, fmt.Errorf("must be a reverse_proxy, not %T", mod)
	}
	transport, ok := proxy.Transport.(*reverseproxy.HTTPTransport)
	if !ok {
		return nil, errors.New("transport must be http")
	}
	s := &Service{
		proxy: proxy, transport: transport, policy: selectionPolicy{proxy: proxy}, ctx: ctx, logger: ctx.Logger(), settings: settings,
		asserter: o.Asserter, shares: o.Shares, observe: o.Observe, server: new(caddyhttp.Server), dynamic: map[string]*backend{},
		lookupTimeout: defaultLookupTimeout,
	}
	s.policy.maxFails = math.MaxInt64
	if proxy.HealthChecks != nil && proxy.HealthChecks.Passive != nil {
		s.policy.maxFails = settings.maxFails
	}
	s.responses.New = func() any { return s.newResponse() }
	if proxy.Headers != nil {
		s.headerOps = proxy.Headers.Request
	}
	if err := s.prepareAddresses(); err != nil {
		return nil, err
	}
	s.shares.open(s)
	return s, nil
}

// Close closes idle connections at once, and the others when their exchanges end.
func (s *Service) Close() {
	if s == nil {
		return
	}
	s.shares.close(s)
	s.each(func(b *backend) { _ = b.client.Close() })
}

// Connections returns the numbers of idle connections and of exchanges in progress.
func (s *Service) Connections() (idle, inUse int) {
	s.each(func(b *backend) {
		inUse += int(b.inFlight.Load())
		idle += b.client.Idle()
	})
	return idle, inUse
}

// Availability returns how many of the static addresses are called, and how many are avoided because they failed or are unhealthy.
func (s *Service) Availability() (available, avoided int) {
	for _, b := range s.static {
		if b.fails.Load() < s.policy.maxFails && b.upstream.Healthy() {
			available++
		} else {
			avoided++
		}
	}
	return available, avoided
}

// Do makes a call and reads the response whole. The caller must release the response.
//
// A call that may have reached a data service is retried only if it is a GET. The error is safe to log. It is
// upstream.ErrTooManyCalls, one of this package's, or the context's; a *upstream.CallError says which address was tried last.
func (s *Service) Do(ctx context.Context, call upstream.Call) (*upstream.Response, error) {
	began := time.Now()
	if err := s.shares.Begin(ctx, call.Share, call.Deadline); err != nil {
		return nil, err
	}
	defer s.shares.End(call.Share)
	req, err := s.request(ctx, &call, s.asserter) // the assertion's lifetime begins after the wait
	if err != nil {
		return nil, fmt.Errorf("preparing the call: %w", err)
	}
	start := time.Now()
	res, _ := s.responses.Get().(*response)
	res.maxSize, res.business, res.fairTime = call.MaxResponse, call.BusinessID, call.Deadline.Sub(began)/2
	if res.business == "-" {
		res.business = anyone + call.Share
	}
	done := false
	defer func() {
		if !done { // also after a panic: otherwise, its memory would be lost
			res.Release()
		}
	}()
	err = s.do(req, &call, res)
	s.observe(ctx, call.Resource, time.Since(start))
	if err != nil {
		if res.Address != "" {
			err = &upstream.CallError{Address: res.Address, Err: err}
		}
		return nil, err
	}
	done = true
	return &res.Response, nil
}

// Addresses returns the service's addresses.
func (s *Service) Addresses(ctx context.Context) ([]string, error) {
	req, err := s.request(ctx, &upstream.Call{BusinessID: "-", RequestID: "-", Path: "/"}, nil)
	if err != nil {
		return nil, err
	}
	backends, err := s.backends(req, time.Time{}, 0)
	var addresses []string
	for _, b := range backends {
		addresses = append(addresses, b.dial.Address)
	}
	return addresses, err
}

// DoAt makes a call to one address, once, with or without a hop assertion. The caller must release the response. It is for
// `gatehouse check`, so it ignores Shares and the health of addresses.
func (s *Service) DoAt(ctx context.Context, address string, call upstream.Call, asserted bool) (*upstream.Response, error) {
	asserter := s.asserter
	if !asserted {
		asserter = nil
	}
	req, err := s.request(ctx, &call, asserter)
	if err != nil {
		return nil, err
	}
	backends, err := s.backends(req, call.Deadline, 0)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(backends, func(b *backend) bool { return b.dial.Address == address })
	if i < 0 {
		return nil, ErrUnreachable
	}
	res, _ := s.responses.Get().(*response)
	res.maxSize, res.business = call.MaxResponse, call.BusinessID
	if err := s.exchange(req, call.Deadline, backends[i], res); err != nil {
		res.Release()
		return nil, err
	}
	return &res.Response, nil
}

// request returns the request of a call.
func (s *Service) request(ctx context.Context, call *upstream.Call, asserter *upstream.Asserter) (*http.Request, error) {
	var assertion string
	if asserter != nil {
		var err error
		if assertion, err = asserter.Assert(call.Resource, call.Operation, call.BusinessID, call.RequestID); err != nil {
			return nil, fmt.Errorf("signing the hop assertion: %w", err)
		}
	}
	req, err := call.NewRequest(ctx, assertion)
	if err != nil {
		return nil, err
	}
	if _, ok := req.Header["Via"]; !ok {
		req.Header["Via"] = []string{"1.1 Caddy"}
	}
	if ctx.Value(caddy.ReplacerCtxKey) == nil { // not part of a request to this server
		return caddyhttp.PrepareRequest(req, caddy.NewReplacer(), discardWriter{}, s.server), nil
	}
	if inbound, ok := ctx.Value(caddyhttp.OriginalRequestCtxKey).(http.Request); ok {
		req.RemoteAddr, req.TLS = inbound.RemoteAddr, inbound.TLS
	}
	return req, nil
}

// do sends the request until an attempt succeeds or none is left.
func (s *Service) do(req *http.Request, call *upstream.Call, res *response) error {
	var (
		start   = time.Now()
		lastErr error
	)
	for retries := 0; ; retries++ {
		if call.Body != nil {
			req.Body = io.NopCloser(bytes.NewReader(call.Body))
		}
		err := s.try(req, call.Deadline, res, retries)
		if errors.Is(err, errNoBackend) && lastErr != nil {
			err = lastErr // more specific
		}
		if err == nil || !s.shouldRetry(req, start, call.Deadline, retries, err) {
			return err
		}
		lastErr = err
	}
}

// errNoBackend means that every address is unhealthy or at its maximum of requests.
var errNoBackend = fmt.Errorf("%w", ErrUnreachable)

// try sends the request to one address.
func (s *Service) try(req *http.Request, deadline time.Time, res *response, retries int) error {
	backends, err := s.backends(req, deadline, retries)
	if err != nil {
		return err
	}
	b := s.policy.acquire(req, backends, res.Address)
	if b == nil {
		return errNoBackend
	}
	defer b.inFlight.Add(-1)
	res.Address = b.dial.Address
	ctx, span := tracing.Start(req.Context(), req.Method, trace.SpanKindClient)
	tracing.Inject(ctx, req.Header)
	start := time.Now()
	err = s.exchange(req, deadline, b, res)
	took := time.Since(start)
	s.endSpan(span, req, b, res.Status, retries, err)
	s.countFailure(req.Context(), b, start, deadline, res, err)
	if err != nil {
		if e := s.logger.Check(zap.DebugLevel, "request to data service failed"); e != nil {
			e.Write(zap.String("upstream_address", b.dial.Address), zap.Duration("duration", took), zap.Error(err))
		}
	}
	return err
}

// exchange sends a request to an address and reads the response.
func (s *Service) exchange(req *http.Request, deadline time.Time, b *backend, res *response) error {
	res.Status = 0
	host := req.Host
	if s.transport.TLS != nil || host == "" { // HTTP/1.0 and HTTP/2 do not require one
		defer func(original *http.Request) { original.Host = host }(req) // for another address
		// As Caddy's transport sets it in RequestHeaderOps, which would cost a copy of the headers. A socket's path is not a host.
		if req.Host = b.dial.Address; b.dial.Network == "unix" {
			req.Host = "localhost"
		}
	}
	if s.headerOps != nil {
		req = s.applyHeaderOps(req, b)
	}
	res.Hosts = [...]string{b.dial.Address, host, req.Host, req.Header.Get("X-Forwarded-Host")}
	start := time.Now()
	got, err := b.client.Exchange(req, deadline)
	res.latency = time.Since(start)
	switch {
	case errors.Is(err, upstream.ErrInvalidRequest):
		return err
	case err != nil:
		return &exchangeError{err}
	}
	defer func() { _ = got.Body.Close() }()
	return res.read(req.Context(), deadline, got)
}

// shouldRetry reports whether to retry a failed request. It waits for the retry interval.
func (s *Service) shouldRetry(req *http.Request, start, deadline time.Time, retries int, err error) bool {
	lb := s.proxy.LoadBalancing
	switch {
	case lb.TryDuration == 0 && lb.Retries == 0,
		lb.TryDuration > 0 && time.Since(start) >= time.Duration(lb.TryDuration),
		lb.Retries > 0 && retries >= lb.Retries,
		req.Context().Err() != nil,
		time.Now().Add(time.Duration(lb.TryInterval)).After(deadline),
		errors.Is(err, upstream.ErrResponseTooLarge), errors.Is(err, errNoMemory), errors.Is(err, upstream.ErrInvalidRequest),
		errors.Is(err, upstream.ErrContentEncoding):
		return false
	}
	if req.Method != http.MethodGet && !Unsent(err) {
		return false // it may have reached the data service
	}
	if lb.TryInterval == 0 {
		return true
	}
	select {
	case <-time.After(time.Duration(lb.TryInterval)):
		return true
	case <-req.Context().Done():
	}
	return false
}

// applyHeaderOps returns a copy of the request with the header operations of header_up applied.
func (s *Service) applyHeaderOps(req *http.Request, b *backend) *http.Request {
	outer, ok := req.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		outer = caddy.NewReplacer()
	}
	repl := caddy.NewEmptyReplacer() // concurrent requests may share outer
	repl.Set("http.reverse_proxy.upstream.address", b.dial.String())
	repl.Set("http.reverse_proxy.upstream.hostport", b.dial.Address)
	repl.Set("http.reverse_proxy.upstream.host", b.dial.Host)
	repl.Set("http.reverse_proxy.upstream.port", b.dial.Port)
	repl.Set("http.request.uuid", req.Header.Get(upstream.HeaderRequestID)) // Caddy would store its own in a map that concurrent calls share
	repl.Map(outer.Get)
	req = req.WithContext(context.WithValue(req.Context(), caddy.ReplacerCtxKey, repl))
	req.Header = req.Header.Clone()
	s.headerOps.ApplyToRequest(req)
	return req
}

// tlsConfig returns the TLS configuration of a new connection to a host.
func (s *Service) tlsConfig(ctx context.Context, host string) *tls.Config {
	c := new(tls.Config)
	if configured := s.transport.Transport.TLSClientConfig; configured != nil { // nil without options
		c = configured.Clone()
	}
	c.NextProtos = []string{"http/1.1"}
	if c.ServerName == upstreamHost { // which in the request may be that of another reverse_proxy
		c.ServerName = ""
	}
	if repl, ok := ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok && strings.Contains(c.ServerName, "{") {
		c.ServerName = repl.ReplaceAll(c.ServerName, "")
	}
	c.ServerName = cmp.Or(c.ServerName, host)
	return c
}

// endSpan ends the span of an exchange (OpenTelemetry's semantic conventions for HTTP clients). The URL in it has no query.
func (s *Service) endSpan(span trace.Span, req *http.Request, b *backend, status, retries int, err error) {
	if !span.IsRecording() {
		return
	}
	scheme := "http://"
	if b.client.TLS != nil {
		scheme = "https://"
	}
	span.SetAttributes(semconv.HTTPRequestMethodKey.String(req.Method), semconv.URLFull(scheme+b.dial.Address+req.URL.EscapedPath()),
		semconv.ServerAddress(b.dial.Host))
	if port, err := strconv.Atoi(b.dial.Port); err == nil {
		span.SetAttributes(semconv.ServerPort(port))
	}
	if retries > 0 {
		span.SetAttributes(semconv.HTTPRequestResendCount(retries))
	}
	if status > 0 {
		span.SetAttributes(semconv.HTTPResponseStatusCode(status))
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		span.SetAttributes(semconv.ErrorTypeKey.String("timeout"))
	case err != nil:
		span.SetAttributes(semconv.ErrorTypeOther)
	case status >= http.StatusBadRequest:
		span.SetStatus(codes.Error, "")
		span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(status)))
	}
	tracing.End(span, err)
}
