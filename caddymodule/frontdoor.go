package caddymodule

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// frontDoor is the outermost handler of all of Gatehouse's routes. Each handler module embeds it and has no ServeHTTP of its
// own (TestEveryHandlerEmbedsTheFrontDoor).
//
// It assigns the request ID; closes HTTP/1 connections after requests with ambiguous framing; limits the size, duration and memory
// of request bodies; sends early responses without waiting for the body; rejects other hosts and early data; turns errors and
// panics into responses in the operation's format; aborts responses that could not be written whole; writes one log line and records
// metrics.
type frontDoor struct {
	name   string // of the route in logs and metrics
	route  route
	app    *App
	logger *zap.Logger
}

// route is implemented by handler modules.
type route interface {
	// match returns the operation that a request is for, or nil if the request is not for this route. It may set
	// req.target and req.matched.
	match(r *http.Request, req *request) *operation
}

// operation serves one path, or several with the same settings.
type operation struct {
	// name identifies the operation in logs and metrics: one of a small fixed set.
	name    string
	metrics *operationMetrics // set by frontDoor.withMetrics

	// hosts are the allowed values of Host, in lower case. The host of an absolute-form target takes precedence (RFC 9112,
	// section 3.2.2). Default: every host that Caddy routes here.
	hosts []string

	// maxBody is the maximum size of a request body in bytes. Zero means that the operation does not read a body.
	maxBody int64

	// bodyTimeout limits the time from the first read of a request body to its end. Zero means defaultBodyTimeout.
	bodyTimeout time.Duration

	// quiet logs successful requests at debug level, for probes.
	quiet bool

	// streams ends the duration in metrics with the response's header, because responses may take hours.
	streams bool

	// handle responds to a request, or returns an error before it has written anything. It must not keep w or req.
	handle func(w http.ResponseWriter, r *http.Request, req *request) error

	// docs is a URL that the default of fail has in its member "docs". Default: the member is omitted.
	docs string

	// fail responds with an error. Default: the contract's JSON.
	fail func(w http.ResponseWriter, r *http.Request, req *request, p problem)
}

// request is the state of one request.
type request struct {
	id       string
	headers  [2]string // backing array of response header values
	start    time.Time
	target   string         // the request target in origin form as sent, after match without the base path
	matched  upstream.Match // the path and query of an API, if match has set it
	clientIP netip.Addr
	code     string        // the error's code, for log and metrics
	cause    error         // the error, for the log
	level    zapcore.Level // of the log line, at least
	next     caddyhttp.Handler

	// details adds the operation's fields to the log line. It may be nil.
	details interface {
		appendLogFields(fields []zap.Field) []zap.Field
	}

	writer responseWriter
	body   requestBody
}

// defaultBodyTimeout is the default of operation.bodyTimeout.
const defaultBodyTimeout = 10 * time.Second

// http2Window is how many bytes of request bodies an HTTP/2 connection holds that no operation has read: a client can block the responses
// meanwhile. Nothing else bounds them. By default, it is 1 MiB.
//
// A connection receives at most a window in a round trip. With a round trip of 50 ms, a body of 1 MiB takes 0.3 s (0.1 s with 1 MiB, 0.9 s
// with 64 KiB), and with one of 200 ms, 8 MiB take 6.7 s, less than defaultBodyTimeout (26 s with 64 KiB). A response that is blocked takes
// about 75 KiB itself, and a connection may have 250 of them, so that a smaller window would save little.
const http2Window = 256 << 10

// errMisdirected becomes a 421 (RFC 9110, section 15.5.20).
var errMisdirected = errors.New("the route is not served for this host")

func (d *frontDoor) provision(ctx caddy.Context, name string, route route) (err error) {
	if d.app, err = appOf(ctx); err != nil {
		return err
	}
	d.name, d.route, d.logger = name, route, ctx.Logger()
	d.app.configureServer(ctx)
	return nil
}

// withMetrics returns op with its metrics.
func (d *frontDoor) withMetrics(op operation) *operation {
	op.metrics = d.app.metrics.operation(d.name, op.name)
	return &op
}

// configureServer sets what Caddy has no option for. The server passes "OPTIONS *" to its routes like any other request: net/http would
// otherwise respond itself, wait for the body, and keep the connection even if the framing is ambiguous. Ambiguous requests end their
// connections, also in handlers that are not ours. Connections of HTTP/2 have a smaller window than by default, and the write timeout also
// ends those whose client reads nothing: net/http ends a stream with a frame, which it cannot write to such a client.
func (a *App) configureServer(ctx caddy.Context) {
	server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok || a.servers[server] {
		return
	}
	if a.servers == nil {
		a.servers = map[*caddyhttp.Server]bool{}
	}
	a.servers[server] = true
	server.RegisterConnState(func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			a.conns.Add(1)
		case http.StateClosed, http.StateHijacked:
			a.conns.Add(-1)
			a.releaseUnused()
		}
	})
	// The connection's context is the only way to Caddy's net/http server. ConnContext runs before the first request.
	var once sync.Once
	server.RegisterConnContext(func(ctx context.Context, _ net.Conn) context.Context {
		once.Do(func() {
			if srv, ok := ctx.Value(http.ServerContextKey).(*http.Server); ok {
				srv.DisableGeneralOptionsHandler = true
				srv.HTTP2 = &http.HTTP2Config{
					WriteByteTimeout: srv.WriteTimeout, MaxReceiveBufferPerConnection: http2Window, MaxReceiveBufferPerStream: http2Window,
				}
				srv.Handler = closeAmbiguous(srv.Handler)
			}
		})
		return ctx
	})
}

// ServeHTTP implements caddyhttp.MiddlewareHandler. It returns an error only from the next handler; otherwise, the response is
// complete.
func (d *frontDoor) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	req := &request{target: originForm(wireTarget(r))}
	op := d.route.match(r, req)
	if op == nil {
		return next.ServeHTTP(w, r)
	}
	d.app.requests.Add(1)
	defer d.app.requestEnded()
	dropQuotes()
	req.next = next
	req.id, req.start, req.clientIP = uuid.NewString(), time.Now(), clientAddr(r)
	req.headers = [...]string{req.id, "nosniff"}
	h := w.Header()
	h["X-Request-Id"], h["X-Content-Type-Options"] = req.headers[0:1:1], req.headers[1:2:2]
	delete(h, "Server")
	req.frame(w, r, op, &d.app.bodies)

	status := d.respond(r, req, op)
	if r.ProtoMajor == 3 && req.writer.status != 0 {
		_ = req.writer.FlushError() // quic-go would ignore errors of its own flush after the handler
	}
	failed := req.writer.err
	if failed != nil && req.cause == nil {
		req.cause = fmt.Errorf("writing the response: %w", failed)
	}
	took := time.Since(req.start)
	toHeader := took
	if op.streams && !req.writer.began.IsZero() {
		toHeader = req.writer.began.Sub(req.start)
	}
	op.metrics.count(r.Context(), status, req.code, toHeader)
	d.log(r, req, op, status, took)
	d.describe(trace.SpanFromContext(r.Context()), req, op)
	if failed != nil {
		// quic-go would end the response as if it were complete, and so would net/http one whose length the client does not know.
		panic(http.ErrAbortHandler)
	}
	req.body.linger()
	return nil
}

// respond runs the operation and writes its error response. It returns the status for log and metrics.
func (d *frontDoor) respond(r *http.Request, req *request, op *operation) int {
	err := d.run(r, req, op)
	w := &req.writer
	if err == nil {
		if w.status == 0 {
			w.WriteHeader(http.StatusOK)
		}
		// The status of a connection server's response that nobody will receive, or of reverse_proxy. That of a service stays.
		if r.Context().Err() != nil && (w.status == statusClientClosed || w.status > http.StatusInternalServerError && !op.streams) {
			req.code, req.cause = codeClientClosed, cmp.Or(req.cause, clientGone(r.Context()))
			return statusClientClosed
		}
		return w.status
	}
	req.cause = err
	if w.status != 0 { // the response has begun
		w.err = err
		return w.status
	}
	if errors.Is(err, http.ErrAbortHandler) {
		w.err, req.code = err, codeClientClosed
		return statusClientClosed
	}
	p := problemOf(err, req.start)
	status := p.Status
	if req.code = p.Code; errors.Is(err, errClientGone) || status == statusClientClosed {
		status, req.code = statusClientClosed, codeClientClosed
	}
	if op.fail != nil {
		op.fail(w, r, req, p)
	} else {
		p.write(w, req.id, op.docs)
	}
	return status
}

// run checks host and early data, calls the operation, and turns a panic into an error. It returns the error of a body that was
// refused, whatever the operation makes of it.
func (d *frontDoor) run(r *http.Request, req *request, op *operation) (err error) {
	defer func() {
		refused := req.body.release()
		switch v := recover(); {
		case v == nil:
		case v == http.ErrAbortHandler: //nolint:errorlint // net/http compares it like this too
			err = http.ErrAbortHandler
		default:
			d.logger.Error("panic in a handler", zap.String("request_id", req.id), zap.Any("panic", v), zap.ByteString("stack", debug.Stack()))
			err = fmt.Errorf("panic: %v", v)
		}
		if refused != nil && err == nil && req.writer.status == 0 {
			delete(req.writer.Header(), "Content-Length") // of the operation's response
			err = refused
		}
	}()
	if op.hosts != nil && !slices.Contains(op.hosts, strings.ToLower(r.Host)) {
		return errMisdirected
	}
	if r.TLS != nil && !r.TLS.HandshakeComplete {
		// HTTP/3 early data (0-RTT) can be replayed, and its client IP is not validated: it could count against anybody's limit.
		return errEarlyData
	}
	return op.handle(&req.writer, r, req)
}

// describe adds the request ID, the operation and the error code to the span of Caddy's directive "tracing", to find its log line.
func (d *frontDoor) describe(span trace.Span, req *request, op *operation) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String("gatehouse.request_id", req.id), attribute.String("gatehouse.route", d.name),
		attribute.String("gatehouse.operation", op.name))
	if req.code != "" {
		span.SetAttributes(attribute.String("gatehouse.error_code", req.code))
	}
}

// log writes the request's log line. It has the operation's name instead of the path, and no query.
func (d *frontDoor) log(r *http.Request, req *request, op *operation, status int, took time.Duration) {
	level := req.level
	switch {
	case op.quiet && status >= http.StatusInternalServerError: // of a gateway that stops, for example
		level = zapcore.WarnLevel
	case status >= http.StatusInternalServerError:
		level = zapcore.ErrorLevel
	case op.quiet && status < http.StatusBadRequest:
		level = zapcore.DebugLevel
	}
	entry := d.logger.Check(level, "request")
	if entry == nil {
		return
	}
	method := r.Method
	if len(method) > 16 {
		method = method[:16] + "…"
	}
	fields := make([]zap.Field, 0, 16)
	fields = append(fields,
		zap.String("request_id", req.id), zap.String("method", method), zap.String("route", d.name), zap.String("operation", op.name),
		zap.Int("status", status), zap.String("client_ip", req.clientIP.String()), zap.Duration("duration", took),
	)
	if req.code != "" {
		fields = append(fields, zap.String("code", req.code))
	}
	if req.details != nil {
		fields = req.details.appendLogFields(fields)
	}
	if span := trace.SpanContextFromContext(r.Context()); span.IsValid() {
		fields = append(fields, zap.Stringer("trace_id", span.TraceID()))
	}
	if req.cause != nil {
		cause := req.cause.Error()
		if strings.Contains(r.RemoteAddr, ":") { // not on a Unix socket; errors of the connection have it, which ip_mask cannot mask
			cause = strings.ReplaceAll(cause, r.RemoteAddr, "client")
		}
		fields = append(fields, zap.String("cause", cause))
	}
	entry.Write(fields...)
}

// wireTarget returns the request target as the client sent it, before any rewrite handler.
func wireTarget(r *http.Request) string {
	if original, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request); ok {
		return original.RequestURI
	}
	return r.RequestURI
}

// originForm strips scheme and authority from an absolute-form target (RFC 9112, section 3.2.2). Nothing is decoded or
// normalised. Other targets are returned unchanged: those without a path, and those such as http:/a?://x/b, whose path is /a for net/http.
func originForm(target string) string {
	if strings.HasPrefix(target, "/") {
		return target
	}
	scheme, rest, ok := strings.Cut(target, "://")
	if !ok || strings.ContainsAny(scheme, ":/?#") {
		return target
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 && rest[i] == '/' {
		return rest[i:]
	}
	return target
}

// clientAddr returns the client IP that Caddy determined: the peer's, or the one that a trusted proxy sent. It is the zero Addr
// for a peer without an IP, such as an untrusted Unix socket.
func clientAddr(r *http.Request) netip.Addr {
	server, _ := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if byProxy, _ := caddyhttp.GetVar(r.Context(), caddyhttp.TrustedProxyVarKey).(bool); byProxy && server != nil && server.TrustedProxiesStrict > 0 {
		if h := legible(r.Header, server.ClientIPHeaders); h != nil {
			again := r.WithContext(r.Context())
			again.Header = h
			r = caddyhttp.PrepareRequest(again, caddy.NewReplacer(), nil, server)
		}
	}
	s, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	if a, err := netip.ParseAddr(s); err == nil {
		return a
	}
	ap, _ := netip.ParseAddrPort(s)
	return ap.Addr()
}

// legible returns the headers that list client IPs, from the end to the first entry that is not an address, in the form that Caddy reads;
// nil if it reads all of them as they are. Caddy skips what it cannot read, such as an IPv6 address with a port after a space, or
// "unknown", and would take an entry further left, which callers write.
func legible(h http.Header, names []string) http.Header {
	lists, changed := http.Header{}, false
	for _, name := range names {
		entries := strings.Split(strings.Join(h.Values(name), ","), ",")
		for i, entry := range slices.Backward(entries) {
			host := strings.TrimSpace(entry)
			if host == "" {
				continue
			}
			if before, _, err := net.SplitHostPort(host); err == nil {
				host = before
			}
			host, _, _ = strings.Cut(strings.Trim(host, "[ ]"), "%")
			if _, err := netip.ParseAddr(host); err != nil {
				lists.Set(name, strings.Join(entries[i+1:], ","))
				return lists
			}
			changed = changed || strings.Contains(entry, "[")
			entries[i] = host
		}
		lists.Set(name, strings.Join(entries, ","))
	}
	if !changed {
		return nil
	}
	return lists
}

// frame limits the request's body and decides whether an HTTP/1 connection can serve another request.
func (req *request) frame(w http.ResponseWriter, r *http.Request, op *operation, all *bodies) {
	b := &req.body
	req.writer.ResponseWriter, req.writer.body = w, b
	hasBody := r.ContentLength != 0 // not r.Body, because Caddy wraps absent bodies too
	// net/http accepts "PRI * HTTP/2.0" with header fields as an HTTP/1 request.
	if r.ProtoMajor == 1 || r.Method == "PRI" {
		b.http1 = true
		b.unread = hasBody
		// net/http silently ignores Transfer-Encoding in HTTP/1.0 requests, and does not tell whether a chunked request also had a
		// Content-Length. RFC 9112, section 6.1 requires closing the connection in both cases.
		b.mustClose = r.ProtoMajor != 1 || r.ProtoMinor != 1 || r.ContentLength < 0 || r.Context().Value(ambiguous{}) != nil
	}
	if !hasBody {
		return
	}
	b.inner = r.Body
	b.rc = http.NewResponseController(w)
	if b.http1 {
		// net/http reads the rest of a request's body before it sends the response, unless full duplex is enabled.
		_ = b.rc.EnableFullDuplex()
	}
	if op.maxBody == 0 {
		r.Body = http.NoBody
		return
	}
	b.timeout = op.bodyTimeout
	if b.timeout == 0 {
		b.timeout = defaultBodyTimeout
	}
	b.all, b.client = all, keysOf(req.clientIP)
	r.Body = http.MaxBytesReader(w, b, op.maxBody)
}

// ambiguous is the key in the contexts of HTTP/1 requests whose framing is ambiguous.
type ambiguous struct{}

// closeAmbiguous ends the connections of these requests, whichever handler responds, and marks them for frame. It runs before Caddy, and
// handlers such as request_header, remove the header fields by which such requests are known.
func closeAmbiguous(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 && ambiguousFraming(r) {
			w.Header()["Connection"] = []string{"close"}
			r = r.WithContext(context.WithValue(r.Context(), ambiguous{}, true))
		}
		next.ServeHTTP(w, r)
	})
}

// ambiguousFraming reports whether a header field's value contains the name of a framing header field. net/http joins a folded field with
// the line before it (RFC 9112, section 5.2), which a proxy in front may have read as a field of its own: without a body here, with one
// there. If the target has a host, net/http drops the field Host, whatever it was.
func ambiguousFraming(r *http.Request) bool {
	if r.URL.Host != "" || namesFraming(r.Host) {
		return true
	}
	for _, values := range r.Header {
		if namesFraming(values...) {
			return true
		}
	}
	return false
}

func namesFraming(values ...string) bool {
	for _, v := range values {
		for before, after, ok := strings.Cut(v, "-"); ok; before, after, ok = strings.Cut(after, "-") {
			if endsWithFold(before, "content") && startsWithFold(after, "length") ||
				endsWithFold(before, "transfer") && startsWithFold(after, "encoding") {
				return true
			}
		}
	}
	return false
}

func endsWithFold(s, end string) bool {
	return len(s) >= len(end) && strings.EqualFold(s[len(s)-len(end):], end)
}

func startsWithFold(s, start string) bool {
	return len(s) >= len(start) && strings.EqualFold(s[:len(start)], start)
}

// The limits of linger.
const (
	lingerTimeout = 2 * time.Second
	lingerBytes   = 8 << 20
)

// requestBody is a request body with a read deadline, whose bytes count against those that its client IP may have in progress.
type requestBody struct {
	inner   io.ReadCloser
	rc      *http.ResponseController
	timeout time.Duration
	reading bool // the deadline is set

	all     *bodies
	client  bodyKeys
	held    int64 // bytes counted in all
	refused error // of all

	// For HTTP/1 connections:
	http1     bool
	mustClose bool // the connection must close after the response
	unread    bool // the body has not been read to its end
	closing   bool // the connection closes after the response
}

// Read implements io.Reader. The first read sets the deadline for the whole body; the end of the body clears it. After an error of
// all, nothing is read.
func (b *requestBody) Read(p []byte) (int, error) {
	if b.refused != nil {
		return 0, b.refused
	}
	if !b.reading {
		b.reading = true
		_ = b.rc.SetReadDeadline(time.Now().Add(b.timeout))
	}
	n, err := b.inner.Read(p)
	if err != nil {
		b.unread = err != io.EOF // not errors.Is: a wrapped EOF is a failure
		// At the end of a body over HTTP/1, net/http removes the deadline itself, and reads on to notice a client that leaves. To remove the
		// handler's deadline then would set that of Caddy's read_body, at which such a read, and with it the request, would be canceled.
		if b.unread || !b.http1 {
			_ = b.rc.SetReadDeadline(time.Time{})
		}
	}
	if n > 0 {
		b.held += int64(n)
		if b.refused = b.all.add(b.client, int64(n)); b.refused != nil {
			return 0, b.refused
		}
	}
	return n, err
}

// release stops counting the body. It returns why the body was refused, if it was.
func (b *requestBody) release() (refused error) {
	if b.held > 0 {
		b.all.remove(b.client, b.held)
	}
	refused, b.held, b.refused = b.refused, 0, nil
	return refused
}

// Close implements io.Closer.
func (b *requestBody) Close() error { return b.inner.Close() }

// endConnection makes an HTTP/1 connection close after the response if the end of the request is ambiguous, or if an
// unauthenticated request had a body.
func (b *requestBody) endConnection(h http.Header, status int) {
	if b.mustClose || b.unread || b.inner != nil && status == http.StatusUnauthorized {
		h["Connection"] = []string{"close"}
		b.closing = true
	}
}

// linger flushes the response and keeps reading for a while if the connection closes and the client may still be sending.
// Otherwise the connection could be reset before the client has read the response.
func (b *requestBody) linger() {
	if !b.closing || b.inner == nil {
		return
	}
	// errors do not matter, because the connection closes next
	_ = b.rc.Flush()
	_ = b.rc.SetReadDeadline(time.Now().Add(lingerTimeout))
	_, _ = io.CopyN(io.Discard, b.inner, lingerBytes)
}

// responseWriter records the response's status and whether it could be written, and closes ambiguous connections. It drops what an
// operation responds to a refused body.
type responseWriter struct {
	http.ResponseWriter
	status int
	began  time.Time // when the status was set
	err    error     // why the response could not be written whole
	body   *requestBody

	// Of an operation that passes requests on:
	own http.Header // the gateway's response headers, which the next handler's must not join
	end time.Time   // of the response, or of a hijacked connection
}

// drops reports whether the response is to a refused body.
func (w *responseWriter) drops() bool { return w.body.refused != nil && w.status == 0 }

// fail records an error of a write. A body that the status does not allow is not part of the response.
func (w *responseWriter) fail(err error) {
	if err != nil && w.err == nil && !errors.Is(err, http.ErrBodyNotAllowed) {
		w.err = err
	}
}

// WriteHeader records the first final status.
func (w *responseWriter) WriteHeader(status int) {
	if w.drops() {
		return
	}
	if w.status == 0 && status >= http.StatusOK {
		w.status, w.began = status, time.Now()
		maps.Copy(w.Header(), w.own)
		if w.own != nil {
			keepPrivate(w.Header())
		}
		if w.body.http1 {
			w.body.endConnection(w.Header(), status)
		} else {
			// A Connection header makes a response over HTTP/2 and HTTP/3 malformed (RFC 9113, section 8.2.2; RFC 9114, 4.2).
			delete(w.Header(), "Connection")
		}
	}
	if status == http.StatusSwitchingProtocols {
		maps.Copy(w.Header(), w.own)
	}
	w.ResponseWriter.WriteHeader(status)
}

// allows and forbids match the directives by which a service decides itself whether shared caches may store a response. The form
// private="Set-Cookie" decides about these fields only.
var (
	allows  = regexp.MustCompile(`(?i)(?:^|,)[ \t]*(?:public|s-maxage=[^,]*)[ \t]*(?:,|$)`)
	forbids = regexp.MustCompile(`(?i)(?:^|,)[ \t]*(?:private|no-store)[ \t]*(?:,|$)`)
)

// keepPrivate keeps shared caches from storing a response to a signed request. RFC 9111, section 3.5 does so for Authorization, but no
// cache knows that the signature is a credential, too. The slices may be others' and are not appended to.
func keepPrivate(h http.Header) {
	if said := strings.Join(h["Cache-Control"], ","); !allows.MatchString(said) {
		maps.DeleteFunc(h, func(name string, _ []string) bool { // the caches that these are for obey them instead (RFC 9213, section 2.2)
			return strings.HasSuffix(name, "-Cache-Control") || slices.Contains([]string{"Surrogate-Control", "Edge-Control", "X-Accel-Expires"}, name)
		})
		if !forbids.MatchString(said) {
			h["Cache-Control"] = slices.Concat(h["Cache-Control"], []string{"private"})
		}
	}
	h["Vary"] = slices.Concat(h["Vary"], []string{authsigner.HeaderPublicKey})
}

// Write implements io.Writer.
func (w *responseWriter) Write(b []byte) (int, error) {
	if w.drops() {
		return len(b), nil
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.end.IsZero() && time.Now().After(w.end) {
		w.fail(context.DeadlineExceeded) // of a handler that does not notice by its context
		return 0, context.DeadlineExceeded
	}
	n, err := w.ResponseWriter.Write(b)
	if n < len(b) && err == nil {
		err = io.ErrShortWrite
	}
	w.fail(err)
	return n, err
}

// Flush implements http.Flusher, for handlers that do not use http.ResponseController.
func (w *responseWriter) Flush() { _ = w.FlushError() }

// FlushError is for http.ResponseController.
func (w *responseWriter) FlushError() error {
	if w.drops() {
		return nil
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	err := http.NewResponseController(w.ResponseWriter).Flush()
	if errors.Is(err, http.ErrNotSupported) {
		return nil // a writer that cannot flush does not buffer
	}
	w.fail(err)
	return err
}

// Hijack implements http.Hijacker for operations that pass requests on. The connection is closed at end.
func (w *responseWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.end.IsZero() || w.status != 0 {
		return nil, nil, http.ErrNotSupported
	}
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.status, w.began = http.StatusSwitchingProtocols, time.Now()
	return &hijackedConn{Conn: conn, end: time.AfterFunc(time.Until(w.end), func() { _ = conn.Close() })}, rw, nil
}

// hijackedConn is a connection that is closed at the end of its lifetime.
type hijackedConn struct {
	net.Conn
	end *time.Timer
}

// Close implements net.Conn.
func (c *hijackedConn) Close() error {
	c.end.Stop()
	return c.Conn.Close()
}

// CloseWrite closes one direction, if the connection can.
func (c *hijackedConn) CloseWrite() error {
	if conn, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return conn.CloseWrite()
	}
	return c.Close()
}

// SetWriteDeadline is for http.ResponseController. Caddy takes the server's write timeout for an upper limit of what handlers set, so that it is
// replaced.
func (w *responseWriter) SetWriteDeadline(deadline time.Time) error {
	for inner := w.ResponseWriter; !deadline.IsZero(); {
		if idle, ok := inner.(*caddyhttp.IdleTimeoutWriter); ok && !idle.Deadline.HardDeadline.IsZero() {
			idle.Deadline.HardDeadline = deadline
		}
		wrapper, ok := inner.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		inner = wrapper.Unwrap()
	}
	return http.NewResponseController(w.ResponseWriter).SetWriteDeadline(deadline) //nolint:wrapcheck // handlers compare it with what http.ResponseController documents
}

// Unwrap is for http.ResponseController.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
