package caddymodule

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/gatehouse-gateway/gatehouse/internal/tracing"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// dataService sends requests to the addresses of one upstream and buffers each response.
//
// The upstream is configured, provisioned and actively health-checked as Caddy's reverse_proxy. Requests do not go through its
// ServeHTTP, which streams responses and costs more (docs/performance.md). dataService itself selects an address by the
// policy, counts requests and failures for policies and passive health checks, and retries.
type dataService struct {
	proxy     *reverseproxy.Handler
	transport *reverseproxy.HTTPTransport
	headerOps []*headers.HeaderOps // the transport's and the operator's, in the order in which they apply
	plain     bool                 // each address has an upstream.Client, used instead of transport
	static    []*backend           // parallel to proxy.Upstreams; nil if addresses have placeholders or are dynamic
	policy    selectionPolicy
	ctx       caddy.Context // of the configuration: retries end with it
	logger    *zap.Logger

	mu      sync.Mutex
	dynamic map[string]*backend // by dial address, if static is nil
}

// backend is an address of a data service.
type backend struct {
	upstream *reverseproxy.Upstream
	dial     reverseproxy.DialInfo
	client   *upstream.Client // nil: exchanges use the transport

	inFlight atomic.Int64
	fails    atomic.Int64 // recent failures, for passive health checks
}

// Defaults of reverse_proxy's options that are not Caddy's.
const (
	// With several addresses, a failed GET is retried at another one, and a failed address is avoided for a while.
	defaultRetries      = 2
	defaultTryDuration  = 5 * time.Second
	defaultFailDuration = 10 * time.Second
)

// maxDynamicBackends is the number of dynamic addresses above which idle ones are removed.
const maxDynamicBackends = 256

// loadDataService loads the reverse_proxy handler raw, which is the given field of a module's struct.
func loadDataService(ctx caddy.Context, structPointer any, field string, raw *json.RawMessage) (*dataService, error) {
	var err error
	if *raw, err = withDefaults(*raw); err != nil {
		return nil, fmt.Errorf("loading the upstream: %w", err)
	}
	mod, err := ctx.LoadModule(structPointer, field)
	if err != nil {
		return nil, fmt.Errorf("loading the upstream: %w", err)
	}
	proxy, ok := mod.(*reverseproxy.Handler)
	if !ok {
		return nil, fmt.Errorf("loading the upstream: must be a reverse_proxy, not %T", mod)
	}
	if err := checkProxy(proxy); err != nil {
		return nil, fmt.Errorf("loading the upstream: %w", err)
	}
	transport, ok := proxy.Transport.(*reverseproxy.HTTPTransport)
	if !ok {
		return nil, errors.New("loading the upstream: transport must be http")
	}
	s := &dataService{
		proxy: proxy, transport: transport, plain: speaksPlainHTTP1(transport), policy: selectionPolicy{proxy: proxy},
		ctx: ctx, logger: ctx.Logger(), dynamic: map[string]*backend{},
	}
	if ops := transport.RequestHeaderOps(); ops != nil {
		if err := ops.Provision(ctx); err != nil {
			return nil, fmt.Errorf("provisioning the transport's header operations: %w", err)
		}
		s.headerOps = append(s.headerOps, ops)
	}
	if proxy.Headers != nil && proxy.Headers.Request != nil {
		s.headerOps = append(s.headerOps, proxy.Headers.Request)
	}
	hasPlaceholder := func(u *reverseproxy.Upstream) bool { return strings.Contains(u.Dial, "{") }
	if proxy.DynamicUpstreams == nil && !slices.ContainsFunc(proxy.Upstreams, hasPlaceholder) {
		for _, u := range proxy.Upstreams {
			b, err := s.newBackend(u, u.Dial)
			if err != nil {
				return nil, err
			}
			s.static = append(s.static, b)
		}
	}
	app, err := appOf(ctx)
	if err != nil {
		return nil, err
	}
	app.services = append(app.services, s)
	return s, nil
}

// withDefaults returns the configuration of a reverse_proxy handler with defaults for what it does not set. When the handler is
// loaded, it is too late, because health checks use the transport already.
func withDefaults(raw json.RawMessage) (json.RawMessage, error) {
	var handler map[string]any
	if err := json.Unmarshal(raw, &handler); err != nil {
		return nil, fmt.Errorf("decoding the handler: %w", err)
	}
	transport := objectIn(handler, "transport")
	setDefault(transport, "protocol", "http") // Caddy's default
	if transport["protocol"] == "http" {      // others are rejected
		setDefault(transport, "max_response_header_size", upstream.DefaultMaxResponseHeader)
		setDefault(objectIn(transport, "keep_alive"), "max_idle_conns_per_host", upstream.DefaultMaxIdleConns)
	}
	if addresses, _ := handler[spelling(handler, "upstreams")].([]any); len(addresses) > 1 {
		lb := objectIn(handler, "load_balancing")
		if lb[spelling(lb, "retries")] == nil && lb[spelling(lb, "try_duration")] == nil {
			setDefault(lb, "retries", defaultRetries)
			setDefault(lb, "try_duration", defaultTryDuration)
		}
		setDefault(objectIn(handler, "health_checks"), "passive", map[string]any{"fail_duration": defaultFailDuration})
	}
	encoded, err := json.Marshal(handler)
	if err != nil {
		return nil, fmt.Errorf("encoding the handler: %w", err)
	}
	return encoded, nil
}

// spelling returns the name by which an object has a member. Like encoding/json, it ignores case.
func spelling(object map[string]any, name string) string {
	for given := range object {
		if strings.EqualFold(given, name) {
			return given
		}
	}
	return name
}

// setDefault sets a member that an object does not have, or that is null.
func setDefault(object map[string]any, name string, value any) {
	if name = spelling(object, name); object[name] == nil {
		object[name] = value
	}
}

// objectIn returns a member that is an object, and adds it if necessary. If it is something else, loading the handler fails.
func objectIn(object map[string]any, name string) map[string]any {
	setDefault(object, name, map[string]any{})
	member, ok := object[spelling(object, name)].(map[string]any)
	if !ok {
		return map[string]any{}
	}
	return member
}

// connections returns the numbers of idle connections, which only cleartext HTTP/1.1 knows, and of exchanges in progress.
func (s *dataService) connections() (idle, inUse int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, backends := range [...]iter.Seq[*backend]{slices.Values(s.static), maps.Values(s.dynamic)} {
		for b := range backends {
			inUse += int(b.inFlight.Load())
			if b.client != nil {
				idle += b.client.Idle()
			}
		}
	}
	return idle, inUse
}

// speaksPlainHTTP1 reports whether an upstream.Client can replace the transport: cleartext HTTP/1.1 directly to the addresses,
// and only settings that the client has. TLS and HTTP/2 use Caddy's transport, because they need a reader on each idle
// connection to notice unsolicited data inside records and frames.
func speaksPlainHTTP1(t *reverseproxy.HTTPTransport) bool {
	forwardProxy := len(t.NetworkProxyRaw) > 0
	for _, name := range []string{"HTTP_PROXY", "http_proxy"} { // as http.ProxyFromEnvironment
		forwardProxy = forwardProxy || os.Getenv(name) != ""
	}
	return t.TLS == nil && !slices.Contains(t.Versions, "h2c") && !slices.Contains(t.Versions, "3") &&
		!forwardProxy && t.MaxConnsPerHost == 0 && t.ReadTimeout == 0 && t.WriteTimeout == 0 &&
		(t.KeepAlive == nil || t.KeepAlive.MaxIdleConns == 0)
}

func (s *dataService) newBackend(u *reverseproxy.Upstream, address string) (*backend, error) {
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
	if s.plain {
		keepAlive := s.transport.KeepAlive
		b.client = &upstream.Client{
			Dial: func(ctx context.Context) (net.Conn, error) {
				return s.transport.Transport.DialContext(ctx, b.dial.Network, b.dial.Address)
			},
			MaxIdleConns:          keepAlive.MaxIdleConnsPerHost,
			IdleTimeout:           time.Duration(keepAlive.IdleConnTimeout),
			MaxResponseHeader:     s.transport.Transport.MaxResponseHeaderBytes,
			ResponseHeaderTimeout: time.Duration(s.transport.ResponseHeaderTimeout),
		}
		if s.transport.Transport.DisableKeepAlives {
			b.client.MaxIdleConns = -1
		}
	}
	return b, nil
}

// close closes idle connections. Caddy's transport closes its own.
func (s *dataService) close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.static {
		b.close()
	}
	for _, b := range s.dynamic {
		b.close()
	}
}

func (b *backend) close() {
	if b.client != nil {
		_ = b.client.Close()
	}
}

// do sends a request and reads the response into res. The deadline includes retries. A request that may have reached a data
// service is retried only if it is a GET.
func (s *dataService) do(req *http.Request, deadline time.Time, res *upstreamResponse) error {
	var (
		start   = time.Now()
		lastErr error
	)
	for retries := 0; ; retries++ {
		err := s.try(req, deadline, res, retries, lastErr)
		if err == nil {
			return nil
		}
		if !s.retry(req, start, deadline, retries, err) {
			return err
		}
		lastErr = err
	}
}

// errNoBackend means that every address is unhealthy or at its maximum of requests.
var errNoBackend = errors.New("no address of the data service is available")

func (s *dataService) try(req *http.Request, deadline time.Time, res *upstreamResponse, retries int, lastErr error) error {
	backends, err := s.backends(req, retries)
	if err != nil {
		return err
	}
	b := s.policy.acquire(req, backends)
	if b == nil {
		if lastErr != nil {
			return lastErr // more specific than errNoBackend
		}
		return errNoBackend
	}
	defer b.inFlight.Add(-1)
	res.address = b.dial.Address
	ctx, span := tracing.Start(req.Context(), req.Method, trace.SpanKindClient)
	tracing.Inject(ctx, req.Header)
	start := time.Now()
	status, err := s.exchange(req, deadline, b, res)
	took := time.Since(start)
	s.endSpan(span, req, b, status, retries, err)
	if err != nil {
		if !errors.Is(err, context.Canceled) && !errors.Is(err, errResponseTooLarge) { // not failures of the address
			s.countFailure(b)
		}
		if e := s.logger.Check(zap.DebugLevel, "request to data service failed"); e != nil {
			e.Write(zap.String("upstream_address", b.dial.Address), zap.Duration("duration", took), zap.Error(err))
		}
		return err
	}
	if checks := s.proxy.HealthChecks; checks != nil && checks.Passive != nil {
		for _, bad := range checks.Passive.UnhealthyStatus {
			if caddyhttp.StatusCodeMatches(status, bad) {
				s.countFailure(b)
			}
		}
		if limit := time.Duration(checks.Passive.UnhealthyLatency); limit > 0 && took >= limit {
			s.countFailure(b)
		}
	}
	return nil
}

// endSpan ends the span of an exchange (OpenTelemetry's semantic conventions for HTTP clients). It has no query.
func (s *dataService) endSpan(span trace.Span, req *http.Request, b *backend, status, retries int, err error) {
	if !span.IsRecording() {
		return
	}
	scheme := "http://"
	if s.transport.TLS != nil {
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

// exchange sends a request to an address and reads the response.
func (s *dataService) exchange(req *http.Request, deadline time.Time, b *backend, res *upstreamResponse) (status int, err error) {
	if len(s.headerOps) > 0 {
		req = s.applyHeaderOps(req, b)
	}
	var got *http.Response
	if b.client != nil {
		got, err = b.client.Exchange(req, deadline)
	} else {
		ctx, cancel := context.WithDeadline(req.Context(), deadline)
		defer cancel()
		got, err = s.transport.RoundTrip(b.addressed(req.WithContext(ctx)))
	}
	if err != nil {
		return 0, &exchangeError{err}
	}
	defer func() { _ = got.Body.Close() }()
	if got.StatusCode == http.StatusSwitchingProtocols {
		return 0, &exchangeError{upstream.ErrUnexpectedInformational}
	}
	return got.StatusCode, res.read(req.Context(), deadline, got)
}

// addressed returns the request with its URL pointing at the backend, for Caddy's transport.
func (b *backend) addressed(req *http.Request) *http.Request {
	// Caddy's transport reads the network from this context key, whose name Caddy does not export.
	ctx := context.WithValue(req.Context(), caddy.CtxKey("reverse_proxy.dial_info"), b.dial)
	out := req.WithContext(ctx)
	u := *req.URL
	u.Scheme, u.Host = "", b.dial.Address
	out.URL = &u
	return out
}

// applyHeaderOps returns a copy of the request with the header operations of header_up and of the transport applied.
func (s *dataService) applyHeaderOps(req *http.Request, b *backend) *http.Request {
	outer, ok := req.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		outer = caddy.NewReplacer()
	}
	repl := caddy.NewEmptyReplacer() // concurrent requests may share outer
	repl.Set("http.reverse_proxy.upstream.address", b.dial.String())
	repl.Set("http.reverse_proxy.upstream.hostport", b.dial.Address)
	repl.Set("http.reverse_proxy.upstream.host", b.dial.Host)
	repl.Set("http.reverse_proxy.upstream.port", b.dial.Port)
	repl.Map(outer.Get)
	req = req.WithContext(context.WithValue(req.Context(), caddy.ReplacerCtxKey, repl))
	req.Header = req.Header.Clone()
	for _, ops := range s.headerOps {
		ops.ApplyToRequest(req)
	}
	return req
}

// backends returns the addresses that a request may be sent to.
func (s *dataService) backends(req *http.Request, retries int) ([]*backend, error) {
	if s.static != nil {
		return s.static, nil
	}
	upstreams := []*reverseproxy.Upstream(s.proxy.Upstreams)
	if dynamic := s.proxy.DynamicUpstreams; dynamic != nil {
		if cache, ok := dynamic.(reverseproxy.CachingUpstreamSource); ok && retries > 0 {
			if err := cache.ResetCache(req); err != nil {
				s.logger.Error("clearing the cache of dynamic upstreams failed", zap.Error(err))
			}
		}
		found, err := dynamic.GetUpstreams(req)
		if err != nil {
			s.logger.Error("getting dynamic upstreams failed, using static ones", zap.Error(err))
		} else {
			upstreams = found
		}
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

// dynamicBackend returns the backend of a dynamic address. Backends are kept, so that counts and connections outlive a request.
func (s *dataService) dynamicBackend(u *reverseproxy.Upstream, address string) (*backend, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.dynamic[address]; b != nil {
		return b, nil
	}
	if len(s.dynamic) >= maxDynamicBackends {
		for name, b := range s.dynamic {
			if b.inFlight.Load() == 0 && b.fails.Load() == 0 {
				b.close()
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

// countFailure counts a failure for FailDuration of the passive health checks.
func (s *dataService) countFailure(b *backend) {
	if s.proxy.HealthChecks == nil || s.proxy.HealthChecks.Passive == nil {
		return
	}
	if d := time.Duration(s.proxy.HealthChecks.Passive.FailDuration); d > 0 {
		b.fails.Add(1)
		time.AfterFunc(d, func() { b.fails.Add(-1) })
	}
}

// retry reports whether to retry a failed request. It waits for the retry interval.
func (s *dataService) retry(req *http.Request, start, deadline time.Time, retries int, err error) bool {
	lb := s.proxy.LoadBalancing
	switch {
	case lb.TryDuration == 0 && lb.Retries == 0,
		lb.TryDuration > 0 && time.Since(start) >= time.Duration(lb.TryDuration),
		lb.Retries > 0 && retries >= lb.Retries,
		req.Context().Err() != nil,
		time.Now().Add(time.Duration(lb.TryInterval)).After(deadline),
		errors.Is(err, errResponseTooLarge):
		return false
	}
	_, unsent := errors.AsType[reverseproxy.DialError](err)
	if req.Method != http.MethodGet && !unsent && !errors.Is(err, errNoBackend) {
		return false // it may have reached the data service
	}
	if lb.TryInterval == 0 {
		return true
	}
	select {
	case <-time.After(time.Duration(lb.TryInterval)):
		return true
	case <-req.Context().Done():
	case <-s.ctx.Done():
	}
	return false
}

// exchangeError is the error of a failed exchange with a data service. Its text is safe to log: net/http quotes malformed
// responses in its errors, so the text is hidden unless the error is known to come from the gateway, the network or TLS.
type exchangeError struct{ err error }

func (e *exchangeError) Error() string {
	for _, known := range []error{
		io.EOF, io.ErrUnexpectedEOF, context.Canceled, context.DeadlineExceeded,
		upstream.ErrResponseHeaderTooLarge, upstream.ErrUnexpectedInformational, upstream.ErrResponseHeaderTimeout,
	} {
		if errors.Is(e.err, known) {
			return e.err.Error()
		}
	}
	var (
		dial        reverseproxy.DialError
		network     net.Error
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
	)
	if errors.As(e.err, &dial) || errors.As(e.err, &network) || errors.As(e.err, &certificate) || errors.As(e.err, &record) {
		return e.err.Error()
	}
	return "the data service's response is not valid HTTP (details are not logged because they may quote the response)"
}

func (e *exchangeError) Unwrap() error { return e.err }

// upstreamResponse is a buffered response of a data service.
type upstreamResponse struct {
	address string // that was asked last; "" if there was none
	status  int
	header  http.Header
	body    bytes.Buffer

	maxSize int64               // of the body, in bytes
	large   *semaphore.Weighted // limits the number of concurrent large bodies; nil: no limit
	isLarge bool                // holds the semaphore

	limited io.LimitedReader // scratch
}

const (
	// Of responses above largeResponse bytes, only so many are read at a time that they fit into largeResponsesBytes. A page
	// of records is much smaller. Without this limit, a data service that sends large responses to all requests could
	// exhaust the memory.
	largeResponse       = 256 << 10
	largeResponsesBytes = 64 << 20

	// maxPooledBody is the largest capacity, in bytes, of a body's buffer that is reused.
	maxPooledBody = 32 << 10
)

// read reads a response into r. After an error, r has no body.
func (r *upstreamResponse) read(ctx context.Context, deadline time.Time, res *http.Response) error {
	r.status, r.header = res.StatusCode, res.Header
	r.body.Reset()
	if n := res.ContentLength; n > r.maxSize {
		return errResponseTooLarge
	} else if n > 0 && n <= largeResponse {
		r.body.Grow(int(n) + bytes.MinRead) // to read it without growing
	}
	// Grow to the next limit in one step: doubling the buffer would take four times as much memory.
	n, err := r.readUpTo(res.Body, min(r.maxSize, maxPooledBody)+1)
	if limit := min(r.maxSize, largeResponse); err == nil && n > maxPooledBody && n <= limit {
		r.body.Grow(int(limit+1-n) + bytes.MinRead)
		n, err = r.readUpTo(res.Body, limit+1-n)
	}
	if err == nil && n > largeResponse && n <= r.maxSize {
		if err = r.acquireLarge(ctx, deadline); err == nil {
			rest := r.maxSize + 1 - n
			if res.ContentLength > n {
				rest = res.ContentLength + 1 - n
			}
			r.body.Grow(int(rest) + bytes.MinRead)
			n, err = r.readUpTo(res.Body, rest)
		}
	}
	switch {
	case err != nil && ctx.Err() != nil:
		err = context.Cause(ctx)
	case err != nil:
		err = fmt.Errorf("%w: %w", errResponseTruncated, &exchangeError{err})
	case n > r.maxSize:
		err = errResponseTooLarge
	default:
		return nil
	}
	r.release()
	return err
}

// readUpTo reads up to n more bytes and returns the length of the body.
func (r *upstreamResponse) readUpTo(body io.Reader, n int64) (int64, error) {
	r.limited = io.LimitedReader{R: body, N: n}
	_, err := r.body.ReadFrom(&r.limited)
	r.limited.R = nil
	return int64(r.body.Len()), err
}

// acquireLarge waits until another large response may be read.
func (r *upstreamResponse) acquireLarge(ctx context.Context, deadline time.Time) error {
	if r.isLarge || r.large == nil {
		return nil
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	if err := r.large.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("waiting for other large responses: %w", err)
	}
	r.isLarge = true
	return nil
}

// release drops the body, frees a large buffer, and releases the semaphore of large responses.
func (r *upstreamResponse) release() {
	r.body.Reset()
	if r.body.Cap() > maxPooledBody {
		r.body = bytes.Buffer{}
	}
	if r.isLarge {
		r.isLarge = false
		r.large.Release(1)
	}
}
