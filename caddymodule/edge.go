package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/google/uuid"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// apiPrefix is where the contract's paths begin (contract, section 1).
const apiPrefix = "/api/v1"

// headerRequestID is the answer's header that names the request in the log.
const headerRequestID = "X-Request-Id"

// Edge is the outermost handler of the API. It gives each request an id, turns every error that a later handler
// returns, and every panic, into the contract's JSON, writes one log line and counts the answer.
type Edge struct {
	// BasePath is the path under which the API is mounted: "/gw" for https://example.com/gw/api/v1.
	// Signatures do not cover it. Default: none.
	BasePath string `json:"base_path,omitempty"`

	// Docs is a URL that every error names in its member "docs". Default: none, and no such member.
	Docs string `json:"docs,omitempty"`

	logger  *zap.Logger
	metrics *metrics
}

// CaddyModule returns the Caddy module information.
func (Edge) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.gateway_edge",
		New: func() caddy.Module { return new(Edge) },
	}
}

// Provision finds the app's metrics.
func (e *Edge) Provision(ctx caddy.Context) error {
	app, err := appOf(ctx)
	if err != nil {
		return err
	}
	e.logger = ctx.Logger()
	e.metrics = app.metrics
	return nil
}

// Validate checks the base path.
func (e *Edge) Validate() error {
	if e.BasePath != "" && (!strings.HasPrefix(e.BasePath, "/") || strings.HasSuffix(e.BasePath, "/") ||
		strings.ContainsAny(e.BasePath, "?#%*{} ")) {
		return fmt.Errorf("base_path %q: must begin with a slash, must not end with one, and must hold plain path characters only",
			e.BasePath)
	}
	return nil
}

// ServeHTTP implements caddyhttp.MiddlewareHandler. It never returns an error: the answer is complete.
func (e *Edge) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	c := &call{id: uuid.NewString(), start: time.Now()}
	c.target, c.counted = apiTarget(wireTarget(r), e.BasePath)
	if c.counted {
		c.resource, c.rawQuery, _ = upstream.Match(c.target)
	}
	c.addr = clientAddr(r.Context())
	h := w.Header()
	h.Set(headerRequestID, c.id)
	h.Del("Server") // no banner
	rec := &statusWriter{ResponseWriterWrapper: &caddyhttp.ResponseWriterWrapper{ResponseWriter: w}}
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		rec.body = &requestBody{
			body: r.Body, chunked: r.ContentLength < 0, call: c,
			rc: http.NewResponseController(w),
		}
		// net/http reads what is left of a request's body before it sends an answer. A caller who trickles the body
		// in could so hold back its own refusal; in full duplex the answer leaves at once.
		_ = rec.body.rc.EnableFullDuplex()
	}

	err := e.serveNext(rec, r.WithContext(context.WithValue(r.Context(), callKey{}, c)), next)
	var p problem
	if err != nil {
		switch {
		case errors.Is(err, errClientGone):
			p = problem{Status: 499, Code: "CLIENT_CLOSED_REQUEST"}
			if rec.status == 0 {
				// Perhaps it has closed its own side only, or net/http has taken a read deadline for its end. Whoever
				// is there after all would read an answer that nobody has written as an empty 200.
				unavailable().write(rec, c.id, e.Docs)
			}
		case rec.status != 0:
			// the answer has begun: the connection must end, or the caller would take a part for the whole
			e.log(c, r, rec.status, "", err)
			panic(http.ErrAbortHandler)
		default:
			p = problemOf(err, c.start)
			p.write(rec, c.id, e.Docs)
		}
	}
	status := rec.status
	if p.Status != 0 {
		status = p.Status
	} else if status == 0 {
		status = http.StatusOK
	}
	e.metrics.observe(c, status, p.Code, time.Since(c.start))
	e.log(c, r, status, p.Code, err)
	rec.body.linger()
	return nil
}

// serveNext runs the other handlers and makes an error of a panic.
func (e *Edge) serveNext(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) (err error) {
	defer func() {
		if v := recover(); v != nil {
			if v == http.ErrAbortHandler { //nolint:errorlint,err113 // a panic's value, compared as net/http does
				panic(v)
			}
			e.logger.Error("panic in a handler", zap.Any("panic", v), zap.ByteString("stack", debug.Stack()))
			err = caddyhttp.Error(http.StatusInternalServerError, fmt.Errorf("panic: %v", v))
		}
	}()
	return next.ServeHTTP(w, r)
}

// log writes the request's line: who, what, the verdict and where the time went. It names neither the query's
// values nor any header's, and of the path only what the contract knows.
func (e *Edge) log(c *call, r *http.Request, status int, code string, err error) {
	level := zapcore.InfoLevel
	if status >= 500 {
		level = zapcore.ErrorLevel
	}
	entry := e.logger.Check(level, "request")
	if entry == nil {
		return
	}
	fields := make([]zap.Field, 0, 16)
	fields = append(fields,
		zap.String("request_id", c.id),
		zap.String("method", loggableMethod(r.Method)),
		zap.String("resource", resourceName(c)),
		zap.Int("status", status),
		zap.String("client_ip", c.addr.String()),
		zap.Duration("duration", time.Since(c.start)),
	)
	if code != "" {
		fields = append(fields, zap.String("code", code))
	}
	if c.credential != nil {
		fields = append(fields, zap.String("business", c.credential.BusinessID), zap.String("public_key", c.credential.PublicKey))
	}
	if c.identified {
		fields = append(fields, zap.String("verdict", verdictName(c)), zap.Duration("verify", c.verifyTime),
			zap.Duration("limit", c.limitTime))
	}
	if c.upstreamTime > 0 {
		fields = append(fields, zap.Duration("upstream", c.upstreamTime))
	}
	if err != nil {
		fields = append(fields, zap.NamedError("cause", err))
	}
	entry.Write(fields...)
}

func loggableMethod(m string) string {
	if len(m) > 16 {
		return m[:16] + "…"
	}
	return m
}

// resourceName names what was asked for in a log line or a label: a name of the table, or "none".
func resourceName(c *call) string {
	if c.resource == nil {
		return "none"
	}
	return c.resource.Name
}

// apiTarget cuts the scheme and authority of an absolute-form target (RFC 9112, section 3.2.2) and the base path off,
// and says if what is left lies under /api/v1. Nothing is decoded or cleaned.
func apiTarget(target, basePath string) (string, bool) {
	if !strings.HasPrefix(target, "/") {
		_, rest, ok := strings.Cut(target, "://")
		if !ok {
			return target, false
		}
		i := strings.IndexAny(rest, "/?#")
		if i < 0 || rest[i] != '/' {
			return target, false
		}
		target = rest[i:]
	}
	target, ok := strings.CutPrefix(target, basePath)
	if !ok {
		return target, false
	}
	rest, ok := strings.CutPrefix(target, apiPrefix)
	return target, ok && (rest == "" || rest[0] == '/' || rest[0] == '?')
}

// How long, and for how many bytes, a connection that ends with the answer is read from behind it: who is still sending
// its body must be able to read the answer first, and an answer to unread bytes is lost when the connection is reset.
const (
	lingerTimeout = 2 * time.Second
	lingerBytes   = 8 << 20
)

// requestBody is the body of an HTTP/1 request. Where its end is not known for certain the connection ends with the
// answer, so that nothing in it is ever taken for the next request.
type requestBody struct {
	body    io.Reader
	chunked bool
	call    *call
	rc      *http.ResponseController
	ending  bool
}

// endConnection has the connection end with the answer, unless the body had a length and was read to its end, which it
// was if it verified. With chunks it ends in any case: net/http does not say if the request had a Content-Length as
// well, and after such a request the connection must end (RFC 9112, section 6.1).
func (b *requestBody) endConnection(h http.Header) {
	if !b.chunked && b.call.credential != nil {
		return
	}
	h.Set("Connection", "close")
	b.ending = true
}

// linger sends the answer off and reads on for a while.
func (b *requestBody) linger() {
	if b == nil || !b.ending {
		return
	}
	// whatever fails, the connection ends next
	_ = b.rc.Flush()
	_ = b.rc.SetReadDeadline(time.Now().Add(lingerTimeout))
	_, _ = io.CopyN(io.Discard, b.body, lingerBytes)
}

// statusWriter remembers the status of the answer.
type statusWriter struct {
	*caddyhttp.ResponseWriterWrapper
	status int
	body   *requestBody // nil without one, and over HTTP/2 and 3, where a stream ends by itself
}

// WriteHeader remembers the first final status.
func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
		if w.body != nil {
			w.body.endConnection(w.Header())
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer.
func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(b)
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Edge)(nil)
	_ caddy.Validator             = (*Edge)(nil)
	_ caddyhttp.MiddlewareHandler = (*Edge)(nil)
)
