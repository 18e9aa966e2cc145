package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/google/uuid"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// frontDoor is the outermost handler of every route of ours. Each handler module embeds it, and has no other ServeHTTP:
// a route without the front door does not compile into a handler (TestEveryHandlerIsBehindTheFrontDoor).
//
// It assigns the request ID; ends an HTTP/1 connection after a request whose framing could be read in two ways; bounds how
// large a request body may be and how long it may take; sends a response that comes before the end of the body at once;
// refuses hosts that the route is not served for, and early data; turns errors and panics into responses in the route's own
// format; writes one log line and records metrics.
type frontDoor struct {
	route   route
	logger  *zap.Logger
	metrics *metrics
}

// route is what a handler module has behind its front door.
type route interface {
	// match returns the endpoint that serves a request, nil if the request is not for this route. It may set
	// req.target and req.query.
	match(r *http.Request, req *request) *endpoint
}

// endpoint serves the requests for one path, or for paths that have everything below in common.
type endpoint struct {
	// name is the endpoint's in logs and metrics. Names are few and fixed.
	name string

	// hosts are the values of Host that the endpoint is served for, in lower case; of an absolute-form target its own host
	// counts (RFC 9112, section 3.2.2). Default: every host that Caddy routes here.
	hosts []string

	// maxBody is how large a request body may be, in bytes. Zero: the endpoint reads none.
	maxBody int64

	// bodyTimeout bounds the time from the first read of a request body to its end. Zero means defaultBodyTimeout.
	bodyTimeout time.Duration

	// quiet logs successful requests at level debug, for probes.
	quiet bool

	// serve responds to a request, or returns an error before it has begun to. It must not keep w or req.
	serve func(w http.ResponseWriter, r *http.Request, req *request) error

	// fail responds with an error. Default: the contract's JSON.
	fail func(w http.ResponseWriter, r *http.Request, req *request, p problem)
}

// request is what the front door knows of a request.
type request struct {
	requestID string
	headers   [2]string // values of the response header
	start     time.Time
	target    string // the request target in origin form, as it came over the wire; below a base path from there on
	query     string // the part of target behind the first '?', where match has set it
	clientIP  netip.Addr
	code      string // of the error that the response is, for log and metrics
	cause     error  // of it, for the log

	// details has what the endpoint knows of the request for its log line. Nil: nothing.
	details interface {
		appendLogFields(fields []zap.Field) []zap.Field
	}

	response responseWriter
	body     requestBody
}

// id is the request's ID.
func (req *request) id() string { return req.requestID }

// defaultBodyTimeout is the time in which a request body must arrive, unless the endpoint has another.
const defaultBodyTimeout = 10 * time.Second

// headerRequestID is the response header that names the request in the log.
const headerRequestID = "X-Request-Id"

// errMisdirected refuses a host that the route is not served for (RFC 9110, section 15.5.20).
var errMisdirected = errors.New("the route is not served for this host")

func (d *frontDoor) provision(ctx caddy.Context, route route) error {
	app, err := appOf(ctx)
	if err != nil {
		return err
	}
	d.route, d.logger, d.metrics = route, ctx.Logger(), app.metrics
	app.serveAsterisk(ctx)
	return nil
}

// serveAsterisk has the server of a route pass "OPTIONS *" on to its routes, like any other request. net/http would respond
// to it itself, wait for its body, and keep the connection whatever its framing is.
func (a *App) serveAsterisk(ctx caddy.Context) {
	server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok || a.servers[server] {
		return
	}
	if a.servers == nil {
		a.servers = map[*caddyhttp.Server]bool{}
	}
	a.servers[server] = true
	// Caddy shows the net/http server to nobody else. Every connection waits for the first one, and is served after this.
	var once sync.Once
	server.RegisterConnContext(func(ctx context.Context, _ net.Conn) context.Context {
		once.Do(func() {
			if srv, ok := ctx.Value(http.ServerContextKey).(*http.Server); ok {
				srv.DisableGeneralOptionsHandler = true
			}
		})
		return ctx
	})
}

// ServeHTTP implements caddyhttp.MiddlewareHandler. It returns an error only if the request is for another route: the
// response is complete otherwise.
func (d *frontDoor) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	req := &request{target: originForm(wireTarget(r))}
	e := d.route.match(r, req)
	if e == nil {
		return next.ServeHTTP(w, r)
	}
	req.requestID, req.start, req.clientIP = uuid.NewString(), time.Now(), clientAddr(r.Context())
	req.headers = [...]string{req.requestID, "nosniff"}
	h := w.Header()
	h[headerRequestID], h["X-Content-Type-Options"] = req.headers[0:1:1], req.headers[1:2:2]
	delete(h, "Server") // no banner
	req.frame(w, r, e)

	status := d.respond(r, req, e)
	took := time.Since(req.start)
	d.metrics.request(e.name, status, req.code, took)
	d.log(r, req, e, status, took)
	req.body.linger()
	return nil
}

// respond runs the endpoint and returns the status for log and metrics.
func (d *frontDoor) respond(r *http.Request, req *request, e *endpoint) int {
	err := d.serve(r, req, e)
	w := &req.response
	if err == nil {
		if w.status == 0 {
			w.WriteHeader(http.StatusOK)
		}
		return w.status
	}
	req.cause = err
	if w.status != 0 {
		// The response has begun: the connection must end, or the client would take a part of it for the whole.
		took := time.Since(req.start)
		d.metrics.request(e.name, w.status, req.code, took)
		d.log(r, req, e, w.status, took)
		panic(http.ErrAbortHandler)
	}
	p := problemOf(err, req.start)
	status := p.Status
	if errors.Is(err, errClientGone) {
		// It may have closed its own side only, or net/http has taken a read deadline for its end. Without a response, a
		// half-closed client would see an implicit empty 200.
		status, p = statusClientClosed, unavailable()
		req.code = codeClientClosed
	} else {
		req.code = p.Code
	}
	e.problem(w, r, req, p)
	return status
}

// problem responds with an error in the endpoint's format.
func (e *endpoint) problem(w http.ResponseWriter, r *http.Request, req *request, p problem) {
	if e.fail != nil {
		e.fail(w, r, req, p)
		return
	}
	p.write(w, req.id(), "")
}

// serve runs the endpoint unless the request is refused before it, and turns a panic into an error.
func (d *frontDoor) serve(r *http.Request, req *request, e *endpoint) (err error) {
	defer func() {
		if v := recover(); v != nil {
			if v == http.ErrAbortHandler { //nolint:errorlint // a panic's value, compared as net/http does
				panic(v)
			}
			d.logger.Error("panic in a handler", zap.String("request_id", req.id()), zap.Any("panic", v), zap.ByteString("stack", debug.Stack()))
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	if e.hosts != nil && !slices.Contains(e.hosts, strings.ToLower(r.Host)) {
		return errMisdirected
	}
	if isEarlyData(r) {
		return errEarlyData
	}
	return e.serve(&req.response, r, req)
}

// log writes the request's line. It has neither the query nor any header field, and of the path only the endpoint's name.
func (d *frontDoor) log(r *http.Request, req *request, e *endpoint, status int, took time.Duration) {
	level := zapcore.InfoLevel
	switch {
	case status >= http.StatusInternalServerError:
		level = zapcore.ErrorLevel
	case e.quiet && status < http.StatusBadRequest:
		level = zapcore.DebugLevel
	}
	entry := d.logger.Check(level, "request")
	if entry == nil {
		return
	}
	fields := make([]zap.Field, 0, 16)
	fields = append(fields,
		zap.String("request_id", req.id()), zap.String("method", loggableMethod(r.Method)), zap.String("route", e.name),
		zap.Int("status", status), zap.String("client_ip", req.clientIP.String()), zap.Duration("duration", took),
	)
	if req.code != "" {
		fields = append(fields, zap.String("code", req.code))
	}
	if req.details != nil {
		fields = req.details.appendLogFields(fields)
	}
	if req.cause != nil {
		fields = append(fields, zap.NamedError("cause", req.cause))
	}
	entry.Write(fields...)
}

func loggableMethod(m string) string {
	if len(m) > 16 {
		return m[:16] + "…"
	}
	return m
}

// isEarlyData reports whether a request came as early data of HTTP/3 (0-RTT), before anything has proved that its sender is
// at its address. Such a request would count against any client IP that its sender writes there; and what others have sent
// can be sent again.
func isEarlyData(r *http.Request) bool { return r.TLS != nil && !r.TLS.HandshakeComplete }

// wireTarget returns the request target as the client sent it, whatever rewrite handlers did to the request since.
func wireTarget(r *http.Request) string {
	if original, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request); ok {
		return original.RequestURI
	}
	return r.RequestURI
}

// originForm cuts the scheme and authority of an absolute-form target off (RFC 9112, section 3.2.2): the path, from its
// slash on, and the query are left. Nothing is decoded or normalised. Targets without a path stay as they are.
func originForm(target string) string {
	if strings.HasPrefix(target, "/") {
		return target
	}
	_, rest, ok := strings.Cut(target, "://")
	if !ok {
		return target
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 && rest[i] == '/' {
		return rest[i:]
	}
	return target
}

// clientAddr is the client's address as Caddy determined it: the peer's, or what a trusted proxy says.
// The zero Addr stands for a peer without an IP (a Unix socket that is not trusted).
func clientAddr(ctx context.Context) netip.Addr {
	s, _ := caddyhttp.GetVar(ctx, caddyhttp.ClientIPVarKey).(string)
	if a, err := netip.ParseAddr(s); err == nil {
		return a
	}
	ap, _ := netip.ParseAddrPort(s)
	return ap.Addr()
}

// frame puts the request's body behind its bounds, and decides whether an HTTP/1 connection can serve another request.
func (req *request) frame(w http.ResponseWriter, r *http.Request, e *endpoint) {
	req.response.ResponseWriter = w
	b := &req.body
	hasBody := r.ContentLength != 0 // Caddy wraps an absent body too
	// net/http takes "PRI * HTTP/2.0" with header fields for a request over HTTP/1.
	if r.ProtoMajor == 1 || r.Method == "PRI" {
		req.response.framing = b
		b.http1 = true
		// An HTTP/1.0 request may have had a Transfer-Encoding, which net/http ignores without saying so. RFC 9112, section
		// 6.1 has the connection end.
		b.mustClose = r.ProtoMajor != 1 || r.ProtoMinor != 1
		if hasBody {
			// net/http does not say whether a chunked request had a Content-Length as well, after which the connection must
			// end (RFC 9112, section 6.1).
			b.mustClose = b.mustClose || r.ContentLength < 0 || namesFraming(r.Header)
			b.unread = true
		}
	}
	if !hasBody {
		return
	}
	b.inner = r.Body
	b.rc = http.NewResponseController(w)
	if b.http1 {
		// net/http reads what is left of a request's body before it sends a response. A client could hold back its own
		// refusal so; in full duplex the response leaves at once.
		_ = b.rc.EnableFullDuplex()
	}
	if e.maxBody == 0 {
		r.Body = http.NoBody
		return
	}
	b.timeout = e.bodyTimeout
	if b.timeout == 0 {
		b.timeout = defaultBodyTimeout
	}
	r.Body = http.MaxBytesReader(w, b, e.maxBody)
}

// namesFraming reports whether a header field's value names a header field that frames a body. That is how one looks which
// was folded into the line before it (RFC 9112, section 5.2), so that a proxy in front may have read it as a field.
func namesFraming(h http.Header) bool {
	for _, values := range h {
		for _, v := range values {
			if len(v) < len("content-length") {
				continue
			}
			if v = strings.ToLower(v); strings.Contains(v, "transfer-encoding") || strings.Contains(v, "content-length") {
				return true
			}
		}
	}
	return false
}

// How long, and for how many bytes, a connection that ends with the response is read from after it: a client that is still
// sending its body must be able to read the response first, which is lost when the connection is reset.
const (
	lingerTimeout = 2 * time.Second
	lingerBytes   = 8 << 20
)

// requestBody is a request's body behind the front door.
type requestBody struct {
	inner   io.ReadCloser
	rc      *http.ResponseController
	timeout time.Duration
	reading bool // the deadline is set

	// Of an HTTP/1 connection:
	http1     bool
	mustClose bool // it ends with the response in any case
	unread    bool // the body has not been read to its end
	ending    bool // it ends with the response
}

// Read implements io.Reader. The first read sets the deadline of the whole body, its end or an error takes it away.
func (b *requestBody) Read(p []byte) (int, error) {
	if !b.reading {
		b.reading = true
		_ = b.rc.SetReadDeadline(time.Now().Add(b.timeout))
	}
	n, err := b.inner.Read(p)
	if err != nil {
		b.unread = err != io.EOF // itself: one that is wrapped is a failure
		_ = b.rc.SetReadDeadline(time.Time{})
	}
	return n, err
}

// Close implements io.Closer.
func (b *requestBody) Close() error { return b.inner.Close() }

// endConnection has an HTTP/1 connection end with the response if it is not certain where the request ended. Nor does a
// client that could not be authenticated get another request on the connection if this one had a body.
func (b *requestBody) endConnection(h http.Header, status int) {
	if b.mustClose || b.unread || b.inner != nil && status == http.StatusUnauthorized {
		h["Connection"] = []string{"close"}
		b.ending = true
	}
}

// linger sends the response off and reads on for a while if the connection ends and the client may still be sending.
func (b *requestBody) linger() {
	if !b.ending || b.inner == nil {
		return
	}
	// whatever fails, the connection ends next
	_ = b.rc.Flush()
	_ = b.rc.SetReadDeadline(time.Now().Add(lingerTimeout))
	_, _ = io.CopyN(io.Discard, b.inner, lingerBytes)
}

// responseWriter remembers the status of the response, and ends the connection where framing says so.
type responseWriter struct {
	http.ResponseWriter
	status  int
	framing *requestBody // nil over HTTP/2 and HTTP/3, where a stream ends by itself
}

// WriteHeader remembers the first final status.
func (w *responseWriter) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
		if w.framing != nil {
			w.framing.endConnection(w.Header(), status)
		} else {
			// A Connection header makes a response over HTTP/2 and HTTP/3 malformed (RFC 9113, section 8.2.2; RFC 9114, 4.2).
			delete(w.Header(), "Connection")
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer.
func (w *responseWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(b)
}

// Flush implements http.Flusher, for handlers that do not use http.ResponseController.
func (w *responseWriter) Flush() {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	_ = http.NewResponseController(w.ResponseWriter).Flush() // what cannot flush does not buffer either
}

// Unwrap is for http.ResponseController.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
