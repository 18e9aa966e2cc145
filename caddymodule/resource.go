package caddymodule

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// Resource decides what a request asks for: it refuses what the contract does not have, answers what the gateway
// answers itself, rewrites the rest for the data service behind the next handler, and holds what comes back to the
// contract.
type Resource struct {
	// Timeout bounds the whole exchange with a data service, retries included. Default: 10s. Zero means the default.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// MaxAnswer is the largest answer of a data service that is accepted, in bytes. Default: 8 MiB.
	// Zero means the default. Answers above 256 KiB are read a few at a time, as many as the largest of them fill 64 MiB;
	// others wait, and no longer than Timeout.
	MaxAnswer int64 `json:"max_answer,omitempty"`

	// PassUnknownFields names the resources whose answers may bear fields that the contract does not know.
	// Default: none.
	PassUnknownFields []string `json:"pass_unknown_fields,omitempty"`

	// AllowUnmarked accepts records that do not say which business they belong to. Then nothing but the data
	// service keeps one business's records from another. Default: false.
	AllowUnmarked bool `json:"allow_unmarked,omitempty"`

	// Deprecated announces the end of resources, by name (contract, section 6). Default: none.
	Deprecated map[string]Deprecation `json:"deprecated,omitempty"`

	contract *upstream.Contract
	large    *semaphore.Weighted
	headers  map[string]http.Header
	asserter *upstream.Asserter
	metrics  *metrics
	logger   *zap.Logger
}

// Deprecation is what a caller of a resource on its way out is told.
type Deprecation struct {
	// Since is when the resource became, or will become, deprecated: the Deprecation header (RFC 9745).
	Since time.Time `json:"since"`

	// Sunset is when it will be gone: the Sunset header (RFC 8594). Default: none.
	Sunset time.Time `json:"sunset,omitzero"`

	// Link is a page that says what to use instead. Default: none.
	Link string `json:"link,omitempty"`
}

const (
	defaultUpstreamTimeout       = 10 * time.Second
	defaultMaxAnswer       int64 = 8 << 20
)

// CaddyModule returns the Caddy module information.
func (Resource) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.gateway_resource",
		New: func() caddy.Module { return new(Resource) },
	}
}

// Provision sets the defaults and takes the hop assertion from the app.
func (h *Resource) Provision(ctx caddy.Context) error {
	app, err := appOf(ctx)
	if err != nil {
		return err
	}
	if h.Timeout == 0 {
		h.Timeout = caddy.Duration(defaultUpstreamTimeout)
	}
	if h.MaxAnswer == 0 {
		h.MaxAnswer = defaultMaxAnswer
	}
	h.large = semaphore.NewWeighted(max(1, largeAnswersBytes/h.MaxAnswer))
	h.contract = &upstream.Contract{AllowUnmarked: h.AllowUnmarked, PassUnknownFields: map[string]bool{}}
	for _, name := range h.PassUnknownFields {
		h.contract.PassUnknownFields[name] = true
	}
	h.headers = make(map[string]http.Header, len(h.Deprecated))
	for name, d := range h.Deprecated {
		h.headers[name] = d.headers()
	}
	h.asserter, h.metrics, h.logger = app.asserter, app.metrics, ctx.Logger()
	return nil
}

// Validate checks the bounds and the names of resources.
func (h *Resource) Validate() error {
	if h.Timeout < 0 || h.MaxAnswer < 0 {
		return errors.New("timeout and max_answer must not be negative")
	}
	for _, name := range h.PassUnknownFields {
		if !isProxied(name) {
			return fmt.Errorf("pass_unknown_fields: no data service answers %q: allowed are %s", name, proxiedNames())
		}
	}
	for name, d := range h.Deprecated {
		if !isResource(name) {
			return fmt.Errorf("deprecated: there is no resource %q: allowed are %s", name, resourceNames())
		}
		if !d.Sunset.IsZero() && d.Sunset.Before(d.Since) {
			return fmt.Errorf("deprecated %s: the sunset is before the deprecation", name)
		}
	}
	return nil
}

func (d Deprecation) headers() http.Header {
	h := http.Header{"Deprecation": {fmt.Sprintf("@%d", d.Since.Unix())}}
	if !d.Sunset.IsZero() {
		h["Sunset"] = []string{d.Sunset.UTC().Format(http.TimeFormat)}
	}
	if d.Link != "" {
		h["Link"] = []string{"<" + d.Link + `>; rel="deprecation"; type="text/html"`}
	}
	return h
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Resource) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	c, err := callOf(r.Context())
	if err != nil {
		return err
	}
	res := c.resource
	if res == nil {
		return errNotFound
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return errMethodNotAllowed
	}
	if res.Auth == upstream.AuthSigned {
		switch {
		case !c.identified:
			return errNoCall
		case c.verdict != nil:
			return c.verdict
		case c.credential == nil:
			return authsigner.ErrInvalidCredentials
		}
	}
	query, err := res.CleanQuery(c.rawQuery)
	if err != nil {
		return err
	}
	maps.Copy(w.Header(), h.headers[res.Name])
	switch res.Name {
	case "status":
		return writeJSON(w, []byte(`{"status":"ok","api_version":"v1"}`))
	case "me":
		return h.serveMe(w, c)
	default:
		return h.serveProxied(w, r, c, query, next)
	}
}

// serveMe answers from the credential record, so that keys can be checked while the data services are down.
func (h *Resource) serveMe(w http.ResponseWriter, c *call) error {
	type business struct {
		ID   string `json:"id"`
		Name string `json:"name"`
		Slug string `json:"slug"`
	}
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false) // it is no HTML
	if err := enc.Encode(struct {
		Business business `json:"business"`
	}{business{c.credential.BusinessID, c.credential.BusinessName, c.credential.BusinessSlug}}); err != nil {
		return fmt.Errorf("encoding the credential's business: %w", err)
	}
	return writeJSON(w, bytes.TrimSuffix(body.Bytes(), []byte("\n")))
}

// exchange is the working memory of one proxied request, pooled.
type exchange struct {
	answer  captureWriter
	checked bytes.Buffer
}

const (
	// maxPooledBuffer is the capacity, in bytes, above which a buffer is left to the garbage collector, so that one large
	// answer does not hold its memory for ever.
	maxPooledBuffer = 256 << 10

	// largeAnswer is the size, in bytes, above which an answer waits for its turn, and largeAnswersBytes the size of all
	// that have theirs. A page of the contract's records is far smaller; a data service that sends large answers to
	// everybody at once would otherwise take as much memory as there are requests.
	largeAnswer       = 256 << 10
	largeAnswersBytes = 64 << 20

	// smallAnswer is the capacity, in bytes, of a body that is kept while its caller reads what has become of it.
	smallAnswer = 32 << 10
)

//nolint:gochecknoglobals // a pool of scratch memory: no state that anybody could observe
var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// serveProxied asks the data service behind next, and answers with what of its answer the contract lets through.
func (h *Resource) serveProxied(w http.ResponseWriter, r *http.Request, c *call, query upstream.Query, next caddyhttp.Handler) error {
	ctx, cancel := context.WithTimeoutCause(r.Context(), time.Duration(h.Timeout), errUpstreamTimeout)
	defer cancel()
	out, err := h.prepare(r.WithContext(ctx), c, query)
	if err != nil {
		return err
	}

	x, _ := exchanges.Get().(*exchange)
	x.answer.reset(ctx, h.MaxAnswer, h.large)
	x.checked.Reset()
	defer func() {
		x.answer.release()
		if max(x.answer.body.Cap(), x.checked.Cap()) <= maxPooledBuffer {
			exchanges.Put(x)
		}
	}()

	start := time.Now()
	err = ask(next, &x.answer, out)
	c.upstreamTime = time.Since(start)
	switch {
	case r.Context().Err() != nil:
		return fmt.Errorf("%w: %w", errClientGone, context.Cause(r.Context()))
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%w: %w", errUpstreamTimeout, err)
	case err != nil:
		return err
	}
	if x.answer.status == 0 {
		return errAnswerBrokenOff
	}
	if err := upstream.CheckHead(c.resource, x.answer.status, x.answer.header); err != nil {
		h.metrics.checked(c.resource.Name, upstream.Report{}, err)
		if d, ok := upstream.RetryAfter(x.answer.header, time.Now()); ok {
			return &retryLaterError{after: d, err: err}
		}
		return err
	}
	report, err := h.contract.Check(&x.checked, c.resource, query, c.credential.BusinessID, x.answer.body.Bytes())
	h.metrics.checked(c.resource.Name, report, err)
	if err != nil {
		return err
	}
	if report.Foreign > 0 {
		h.logger.Error("the data service sent records of another business, they were left out",
			zap.String("request_id", c.id), zap.String("resource", c.resource.Name),
			zap.String("business", c.credential.BusinessID), zap.Int("records", report.Foreign))
	}
	x.answer.release() // what is left is this caller's, who may be slow to read it
	upstream.ScrubResponse(x.answer.header, x.checked.Len())
	for name, values := range x.answer.header {
		if _, own := w.Header()[name]; !own {
			w.Header()[name] = values
		}
	}
	return writeJSON(w, x.checked.Bytes())
}

// prepare makes of the caller's request the one that the data service gets.
func (h *Resource) prepare(r *http.Request, c *call, query upstream.Query) (*http.Request, error) {
	id := upstream.Identity{BusinessID: c.credential.BusinessID, RequestID: c.id}
	if h.asserter != nil {
		assertion, err := h.asserter.Assert(c.resource, id.BusinessID, id.RequestID)
		if err != nil {
			return nil, fmt.Errorf("signing the hop assertion: %w", err)
		}
		id.Assertion = assertion
	}
	out, err := upstream.PrepareRequest(r, c.resource, query, id)
	if err != nil {
		return nil, fmt.Errorf("preparing the request for the data service: %w", err)
	}
	if trusted, _ := caddyhttp.GetVar(r.Context(), caddyhttp.TrustedProxyVarKey).(bool); trusted && c.addr.IsValid() {
		// reverse_proxy appends the peer, which is the proxy: the caller's address is ours to say
		out.Header.Set("X-Forwarded-For", c.addr.String())
	}
	return out, nil
}

// ask runs the next handler. With another transport than ours, reverse_proxy panics with http.ErrAbortHandler when an answer
// breaks off in its body, which is right for a stream; here nothing has left for the caller yet, so that it can be told.
func ask(next caddyhttp.Handler, w *captureWriter, r *http.Request) (err error) {
	defer func() {
		if v := recover(); v != nil {
			if v != http.ErrAbortHandler { //nolint:errorlint,err113 // a panic's value, compared as net/http does
				panic(v)
			}
			err = errAnswerBrokenOff
			if w.tooLarge {
				err = errAnswerTooLarge
			}
		}
	}()
	err = next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), answerKey{}, w)))
	var handler caddyhttp.HandlerError
	switch {
	case err == nil:
		return w.failed
	case errors.As(err, &handler) && handler.StatusCode == http.StatusBadGateway:
		return withheld(err)
	default:
		return err
	}
}

// withheld takes the text out of an error that may quote what a data service sent. net/http puts what it cannot read into
// its errors, a banner for instance, and those end up in the log. What is known to come from this side, from the network
// or from TLS, stays.
func withheld(err error) error {
	var (
		dial        reverseproxy.DialError
		network     net.Error
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
	)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.Canceled) ||
		errors.As(err, &dial) || errors.As(err, &network) || errors.As(err, &certificate) || errors.As(err, &record) {
		return err
	}
	return &withheldError{err}
}

// withheldError is an error whose text is not for the log.
type withheldError struct{ err error }

func (e *withheldError) Error() string {
	return "the data service's answer could not be read as HTTP (what it said is withheld)"
}

func (e *withheldError) Unwrap() error { return e.err }

// captureWriter holds a data service's answer back until it has been checked.
type captureWriter struct {
	header   http.Header
	status   int
	body     bytes.Buffer
	limit    int64
	tooLarge bool

	whole  bool  // Transport has put the body there
	failed error // why it could not

	ctx   context.Context     // of the one exchange, for Write, which has no other
	large *semaphore.Weighted // nil: whoever reads the answer bounds how many there are
	turn  bool                // among the large answers
}

func (w *captureWriter) reset(ctx context.Context, limit int64, large *semaphore.Weighted) {
	w.header = make(http.Header, 8)
	w.status, w.limit, w.tooLarge, w.whole, w.failed = 0, limit, false, false, nil
	w.ctx, w.large = ctx, large
	w.body.Reset()
}

// takeTurn waits until the answer may be a large one.
func (w *captureWriter) takeTurn() error {
	if w.turn || w.large == nil {
		return nil
	}
	if err := w.large.Acquire(w.ctx, 1); err != nil {
		return fmt.Errorf("waiting for other large answers: %w", err)
	}
	w.turn = true
	return nil
}

// release forgets the body, unless it is a small one, and lets the next large answer have its turn.
func (w *captureWriter) release() {
	w.ctx = nil
	if w.body.Cap() > smallAnswer {
		w.body = bytes.Buffer{}
	}
	if w.turn {
		w.turn = false
		w.large.Release(1)
	}
}

// Header implements http.ResponseWriter.
func (w *captureWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. Informational answers are dropped.
func (w *captureWriter) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
}

// Write implements io.Writer.
func (w *captureWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.whole { // the operator's handle_response has another
		w.whole = false
		w.body.Reset()
	}
	if int64(w.body.Len())+int64(len(b)) > w.limit {
		w.tooLarge = true
		return 0, errAnswerTooLarge
	}
	if w.body.Len()+len(b) > largeAnswer {
		if err := w.takeTurn(); err != nil {
			return 0, err
		}
	}
	return w.body.Write(b)
}

// writeJSON sends a complete answer.
func writeJSON(w http.ResponseWriter, body []byte) error {
	setJSONHeaders(w.Header(), len(body))
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(body) // the caller may be gone: nobody is left to tell
	return nil
}

func isResource(name string) bool { return upstream.ByName(name) != nil }

func isProxied(name string) bool {
	res := upstream.ByName(name)
	return res != nil && !res.ByGateway
}

func resourceNames() string { return joinNames(func(*upstream.Resource) bool { return true }) }

func proxiedNames() string {
	return joinNames(func(res *upstream.Resource) bool { return !res.ByGateway })
}

func joinNames(want func(*upstream.Resource) bool) string {
	var names []string
	for _, res := range upstream.Resources() {
		if want(res) {
			names = append(names, res.Name)
		}
	}
	return strings.Join(names, ", ")
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Resource)(nil)
	_ caddy.Validator             = (*Resource)(nil)
	_ caddyhttp.MiddlewareHandler = (*Resource)(nil)
	_ http.ResponseWriter         = (*captureWriter)(nil)
)
