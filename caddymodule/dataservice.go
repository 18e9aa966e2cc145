package caddymodule

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// dataService sends requests to the addresses of one upstream and reads each response whole.
//
// The upstream is configured, provisioned and actively health-checked as Caddy's reverse_proxy. The requests do not go
// through its handler, which is made for streams: it hands a response on as it comes, and has work for each request that is
// not needed here (docs/performance.md). What it would do with a request is here: it chooses an address by the selection
// policy, counts requests and failures for policies and passive health checks, and retries.
type dataService struct {
	proxy     *reverseproxy.Handler
	transport *reverseproxy.HTTPTransport
	headerOps []*headers.HeaderOps // the transport's and the operator's, in the order in which they apply
	plain     bool                 // exchanges use an upstream.Client for each address, not transport
	fixed     []*target            // parallel to proxy.Upstreams; nil if addresses hold placeholders or are dynamic
	policy    selectionPolicy
	ctx       caddy.Context // of the configuration: retries end with it
	logger    *zap.Logger

	mu    sync.Mutex
	found map[string]*target // by dial address, where they are not fixed
}

// target is an address of a data service.
type target struct {
	upstream *reverseproxy.Upstream
	dial     reverseproxy.DialInfo
	client   *upstream.Client // nil: exchanges use the transport

	inFlight atomic.Int64
	fails    atomic.Int64 // recent ones, for passive health checks
}

const (
	// defaultMaxResponseHeader is how many bytes a response's header may have, where the operator has not said. net/http
	// would take 10 MiB, which many times that are in memory.
	defaultMaxResponseHeader = upstream.DefaultMaxResponseHeader

	// maxFound is how many addresses are remembered that are not fixed in the configuration. Idle ones make room.
	maxFound = 256
)

// loadDataService provisions an upstream: a reverse_proxy handler in the field of a module's struct.
func loadDataService(ctx caddy.Context, structPointer any, field string) (*dataService, error) {
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
	if transport.Transport.MaxResponseHeaderBytes == 0 {
		transport.Transport.MaxResponseHeaderBytes = defaultMaxResponseHeader
	}
	s := &dataService{
		proxy: proxy, transport: transport, plain: speaksPlainHTTP1(transport), policy: selectionPolicy{proxy: proxy},
		ctx: ctx, logger: ctx.Logger(), found: map[string]*target{},
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
	if proxy.DynamicUpstreams == nil && !slices.ContainsFunc(proxy.Upstreams, hasPlaceholder) {
		for _, u := range proxy.Upstreams {
			t, err := s.newTarget(u, u.Dial)
			if err != nil {
				return nil, err
			}
			s.fixed = append(s.fixed, t)
		}
	}
	return s, nil
}

func hasPlaceholder(u *reverseproxy.Upstream) bool { return strings.Contains(u.Dial, "{") }

// speaksPlainHTTP1 reports whether a transport makes cleartext HTTP/1.1 connections to the addresses themselves, with no
// setting that upstream.Client does not have. Such exchanges use an upstream.Client. All others use Caddy's transport: TLS
// and HTTP/2 need readers of their own on each connection, as what a data service sends unasked is hidden in their records
// and frames.
func speaksPlainHTTP1(t *reverseproxy.HTTPTransport) bool {
	forwardProxy := len(t.NetworkProxyRaw) > 0
	for _, name := range []string{"HTTP_PROXY", "http_proxy"} { // as http.ProxyFromEnvironment
		forwardProxy = forwardProxy || os.Getenv(name) != ""
	}
	return t.TLS == nil && !slices.Contains(t.Versions, "h2c") && !slices.Contains(t.Versions, "3") &&
		!forwardProxy && t.MaxConnsPerHost == 0 && t.ReadTimeout == 0 && t.WriteTimeout == 0
}

func (s *dataService) newTarget(u *reverseproxy.Upstream, address string) (*target, error) {
	addr, err := caddy.ParseNetworkAddress(address)
	if err != nil {
		return nil, fmt.Errorf("upstream %s: invalid address %q: %w", u.Dial, address, err)
	}
	if addr.PortRangeSize() != 1 {
		return nil, fmt.Errorf("upstream %s: address %q must have exactly one port", u.Dial, address)
	}
	t := &target{upstream: u, dial: reverseproxy.DialInfo{
		Upstream: u, Network: addr.Network, Address: addr.JoinHostPort(0), Host: addr.Host, Port: fmt.Sprint(addr.StartPort),
	}}
	if s.plain {
		keepAlive := s.transport.KeepAlive
		t.client = &upstream.Client{
			Dial: func(ctx context.Context) (net.Conn, error) {
				return s.transport.Transport.DialContext(ctx, t.dial.Network, t.dial.Address)
			},
			MaxIdleConns:          keepAlive.MaxIdleConnsPerHost,
			IdleTimeout:           time.Duration(keepAlive.IdleConnTimeout),
			MaxResponseHeader:     s.transport.Transport.MaxResponseHeaderBytes,
			ResponseHeaderTimeout: time.Duration(s.transport.ResponseHeaderTimeout),
		}
		if s.transport.Transport.DisableKeepAlives {
			t.client.MaxIdleConns = -1
		}
	}
	return t, nil
}

// close closes idle connections. Caddy's own transport closes its own.
func (s *dataService) close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.fixed {
		t.close()
	}
	for _, t := range s.found {
		t.close()
	}
}

func (t *target) close() {
	if t.client != nil {
		_ = t.client.Close()
	}
}

// do sends a request and reads the response whole into res. It gives up at the deadline, retries included. A request that
// may have reached a data service is repeated only if it is a GET.
func (s *dataService) do(req *http.Request, deadline time.Time, res *response) error {
	var (
		start   = time.Now()
		lastErr error
	)
	for retries := 0; ; retries++ {
		err := s.try(req, deadline, res, retries, lastErr)
		if err == nil {
			return nil
		}
		if !s.tryAgain(req, start, deadline, retries, err) {
			return err
		}
		lastErr = err
	}
}

// errNoTarget says that every address is unhealthy or has too many requests.
var errNoTarget = errors.New("no address of the data service is available")

func (s *dataService) try(req *http.Request, deadline time.Time, res *response, retries int, lastErr error) error {
	targets, err := s.targets(req, retries)
	if err != nil {
		return err
	}
	t := s.policy.choose(req, targets)
	if t == nil {
		if lastErr != nil {
			return lastErr // it says more
		}
		return errNoTarget
	}
	t.inFlight.Add(1)
	defer t.inFlight.Add(-1)
	start := time.Now()
	status, err := s.exchange(req, deadline, t, res)
	took := time.Since(start)
	if err != nil {
		if !errors.Is(err, context.Canceled) && !errors.Is(err, errResponseTooLarge) { // the caller's, or no failure to answer
			s.countFailure(t)
		}
		if e := s.logger.Check(zap.DebugLevel, "request to data service failed"); e != nil {
			e.Write(zap.String("upstream", t.dial.Address), zap.Duration("duration", took), zap.Error(err))
		}
		return err
	}
	if checks := s.proxy.HealthChecks; checks != nil && checks.Passive != nil {
		for _, bad := range checks.Passive.UnhealthyStatus {
			if caddyhttp.StatusCodeMatches(status, bad) {
				s.countFailure(t)
			}
		}
		if limit := time.Duration(checks.Passive.UnhealthyLatency); limit > 0 && took >= limit {
			s.countFailure(t)
		}
	}
	return nil
}

// exchange sends a request to an address and reads the response.
func (s *dataService) exchange(req *http.Request, deadline time.Time, t *target, res *response) (status int, err error) {
	if len(s.headerOps) > 0 {
		req = s.applyHeaderOps(req, t)
	}
	var got *http.Response
	if t.client != nil {
		got, err = t.client.Exchange(req, deadline)
	} else {
		ctx, cancel := context.WithDeadline(req.Context(), deadline)
		defer cancel()
		got, err = s.transport.RoundTrip(t.addressed(req.WithContext(ctx)))
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

// addressed returns the request with its URL pointing at the target, for Caddy's transport.
func (t *target) addressed(req *http.Request) *http.Request {
	// The transport finds the network in the context; it is not in the URL. Caddy exports the key's type and the value's.
	ctx := context.WithValue(req.Context(), caddy.CtxKey("reverse_proxy.dial_info"), t.dial)
	out := req.WithContext(ctx)
	u := *req.URL
	u.Scheme, u.Host = "", t.dial.Address
	out.URL = &u
	return out
}

// applyHeaderOps returns the request with the changes of header_up and of the transport.
func (s *dataService) applyHeaderOps(req *http.Request, t *target) *http.Request {
	repl, ok := req.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		repl = caddy.NewReplacer()
		req = req.WithContext(context.WithValue(req.Context(), caddy.ReplacerCtxKey, repl))
	} else {
		req = req.WithContext(req.Context()) // a shallow copy
	}
	repl.Set("http.reverse_proxy.upstream.address", t.dial.String())
	repl.Set("http.reverse_proxy.upstream.hostport", t.dial.Address)
	repl.Set("http.reverse_proxy.upstream.host", t.dial.Host)
	repl.Set("http.reverse_proxy.upstream.port", t.dial.Port)
	req.Header = req.Header.Clone()
	for _, ops := range s.headerOps {
		ops.ApplyToRequest(req)
	}
	return req
}

// targets lists the addresses that a request may be sent to.
func (s *dataService) targets(req *http.Request, retries int) ([]*target, error) {
	if s.fixed != nil {
		return s.fixed, nil
	}
	upstreams := []*reverseproxy.Upstream(s.proxy.Upstreams)
	if dynamic := s.proxy.DynamicUpstreams; dynamic != nil {
		if cache, ok := dynamic.(reverseproxy.CachingUpstreamSource); ok && retries > 0 {
			if err := cache.ResetCache(req); err != nil {
				s.logger.Error("clearing the cache of dynamic upstreams", zap.Error(err))
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
	targets := make([]*target, 0, len(upstreams))
	for _, u := range upstreams {
		t, err := s.find(u, repl.ReplaceAll(u.Dial, ""))
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// find returns the target of an address that is not fixed, so that its counts and connections outlast a request.
func (s *dataService) find(u *reverseproxy.Upstream, address string) (*target, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.found[address]; t != nil {
		return t, nil
	}
	if len(s.found) >= maxFound {
		for name, t := range s.found {
			if t.inFlight.Load() == 0 && t.fails.Load() == 0 {
				t.close()
				delete(s.found, name)
			}
		}
	}
	if u.Host == nil { // of a dynamic source, and not provisioned: Caddy's policies read it
		u.Host = new(reverseproxy.Host)
	}
	t, err := s.newTarget(u, address)
	if err != nil {
		return nil, err
	}
	s.found[address] = t
	return t, nil
}

// countFailure remembers a failure for as long as passive health checks say.
func (s *dataService) countFailure(t *target) {
	if s.proxy.HealthChecks == nil || s.proxy.HealthChecks.Passive == nil {
		return
	}
	if d := time.Duration(s.proxy.HealthChecks.Passive.FailDuration); d > 0 {
		t.fails.Add(1)
		time.AfterFunc(d, func() { t.fails.Add(-1) })
	}
}

// tryAgain reports whether a failed request is to be sent again, and waits until it is time to.
func (s *dataService) tryAgain(req *http.Request, start, deadline time.Time, retries int, err error) bool {
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
	var dial reverseproxy.DialError
	if req.Method != http.MethodGet && !errors.As(err, &dial) && !errors.Is(err, errNoTarget) {
		return false // it may have reached the data service
	}
	if lb.TryInterval == 0 {
		return true
	}
	wait := time.NewTimer(time.Duration(lb.TryInterval))
	defer wait.Stop()
	select {
	case <-wait.C:
		return true
	case <-req.Context().Done():
	case <-s.ctx.Done():
	}
	return false
}

// exchangeError is a failed exchange with a data service. Its text is fit for the log: net/http puts what it cannot read
// into its errors, a banner for instance, so of those that are not known to come from this side, from the network or
// from TLS, the text is withheld.
type exchangeError struct{ err error }

func (e *exchangeError) Error() string {
	for _, known := range []error{
		io.EOF, io.ErrUnexpectedEOF, context.Canceled, context.DeadlineExceeded, errUpstreamTimeout,
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
	return "the data service's response could not be read as HTTP (what it sent is withheld)"
}

func (e *exchangeError) Unwrap() error { return e.err }

// response is a data service's response, read whole.
type response struct {
	status int
	header http.Header
	body   bytes.Buffer

	maxSize int64               // of the body, in bytes
	large   *semaphore.Weighted // bounds how many large bodies there are at once; nil: nothing does
	isLarge bool                // counts among them

	limited io.LimitedReader // scratch
}

const (
	// largeResponse is the size, in bytes, above which a response waits for its turn, and largeResponsesBytes the size of
	// all that have theirs. A page of the contract's records is far smaller; a data service that sends large responses to
	// everybody at once would otherwise take as much memory as there are requests.
	largeResponse       = 256 << 10
	largeResponsesBytes = 64 << 20

	// keptBody is the capacity, in bytes, of a body's buffer that is kept for the next response.
	keptBody = 32 << 10
)

// read reads a response into r, or leaves no body and says why.
func (r *response) read(ctx context.Context, deadline time.Time, res *http.Response) error {
	r.status, r.header = res.StatusCode, res.Header
	r.body.Reset()
	if n := res.ContentLength; n > r.maxSize {
		return errResponseTooLarge
	} else if n > 0 && n <= largeResponse {
		r.body.Grow(int(n) + bytes.MinRead) // so that it is read in one piece
	}
	// Each step takes the memory of the next at once: growing by doubling takes four times as much.
	n, err := r.readUpTo(res.Body, min(r.maxSize, keptBody)+1)
	if limit := min(r.maxSize, largeResponse); err == nil && n > keptBody && n <= limit {
		r.body.Grow(int(limit+1-n) + bytes.MinRead)
		n, err = r.readUpTo(res.Body, limit+1-n)
	}
	if err == nil && n > largeResponse && n <= r.maxSize {
		if err = r.takeTurn(ctx, deadline); err == nil {
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
		err = fmt.Errorf("%w: %w", errResponseBrokenOff, &exchangeError{err})
	case n > r.maxSize:
		err = errResponseTooLarge
	default:
		return nil
	}
	r.release()
	return err
}

// readUpTo reads at most so many bytes more, and returns how many there are now.
func (r *response) readUpTo(body io.Reader, bytes int64) (int64, error) {
	r.limited = io.LimitedReader{R: body, N: bytes}
	_, err := r.body.ReadFrom(&r.limited)
	r.limited.R = nil
	return int64(r.body.Len()), err
}

// takeTurn waits until the response may be a large one.
func (r *response) takeTurn(ctx context.Context, deadline time.Time) error {
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

// release forgets the body, and its memory unless it is small, and lets the next large response have its turn.
func (r *response) release() {
	r.body.Reset()
	if r.body.Cap() > keptBody {
		r.body = bytes.Buffer{}
	}
	if r.isLarge {
		r.isLarge = false
		r.large.Release(1)
	}
}
