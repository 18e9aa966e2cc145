package caddymodule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"golang.org/x/net/http/httpguts"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// Auth protects any handler behind it: it verifies the signature, enforces the rate limits and the key's rights, and tells the handler
// for which business a request is. Responses are not looked at and may stream.
//
// A request's body is read whole before it is passed on, because signatures cover it. So requests cannot stream: gRPC and CONNECT,
// extended or not, get 400, and of protocols to upgrade to, only WebSocket over HTTP/1.1 is passed on.
type Auth struct {
	signed

	// Name is the name of the API behind the route. Only keys whose resources name it may call it: "shop", or "shop/orders" for what is
	// below the path segment "orders". It matches [a-z][a-z0-9_-]{0,62} and is not the name of a resource of the built-in API. Default:
	// the API has no name: keys without resources may call all of it, and others the resources that they name, without those that are the
	// names of other APIs.
	Name string `json:"name,omitempty"`

	// BasePath is the path below which the API is; the segment after it is the resource. Other paths get 404. Signatures cover it, unlike
	// that of gatehouse_api. Default: the root.
	BasePath string `json:"base_path,omitempty"`

	// MaxBody is the maximum size of a request body in bytes; a larger one gets 413. Default: 1 MiB. Zero means the default.
	MaxBody int64 `json:"max_body,omitempty"`

	// BodyTimeout is the time in which a request body must arrive. Default: 10s. Zero means the default.
	BodyTimeout caddy.Duration `json:"body_timeout,omitempty"`

	// Audience is the audience of the hop assertion, if the app signs one, after the app's audience_prefix. Default: Name, or "auth"
	// without a name. It must not be "connect", the connection server's.
	Audience string `json:"audience,omitempty"`

	// MaxLifetime is how long a request may take, with its response: an event stream, a download or a WebSocket is aborted then. Until
	// then, a key that has been revoked can still use it, and a reload waits for it if the handler does not close it. Default: 1h. Zero
	// means the default.
	MaxLifetime caddy.Duration `json:"max_lifetime,omitempty"`

	everything *operation
	audience   string // of the hop assertion; empty: no assertion is sent
}

const (
	authName = "gatehouse_auth"

	defaultMaxLifetime = time.Hour

	// routeOfAuth is the route of a gatehouse_auth without a name, in logs and metrics.
	routeOfAuth = "auth"
)

// Reasons for which gatehouse_auth denies requests. gatehouse_api has only the last one of them.
var (
	errUnsafePath      = errors.New("the path has segments or characters that servers understand differently")
	errNotPassedOn     = errors.New("the gateway does not pass on gRPC, CONNECT, TRACE, or a WebSocket handshake with a body")
	errWriteNotAllowed = errors.New("the key may not write")
)

// CaddyModule returns the Caddy module information.
func (*Auth) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers." + authName,
		New: func() caddy.Module { return new(Auth) },
	}
}

// Provision implements caddy.Provisioner.
func (h *Auth) Provision(ctx caddy.Context) error {
	name := cmp.Or(h.Name, routeOfAuth)
	if err := h.provisionSigned(ctx, name, h, &h.MaxBody, &h.BodyTimeout); err != nil {
		return err
	}
	if err := h.app.claim(name, authName+" "+name); err != nil {
		return err
	}
	h.MaxLifetime = cmp.Or(h.MaxLifetime, caddy.Duration(defaultMaxLifetime))
	if err := resolve(caddy.NewReplacer(), &h.Audience); err != nil {
		return err
	}
	if h.app.asserter != nil {
		h.audience = cmp.Or(h.Audience, name)
		h.app.asserter.AddAudiences(h.audience)
	} else if h.Audience != "" {
		return errors.New(`gatehouse_auth: "audience" needs "assertion" in the global option "gatehouse"`)
	}
	h.everything = h.withMetrics(operation{
		name: "any", maxBody: h.MaxBody, bodyTimeout: time.Duration(h.BodyTimeout), streams: true, handle: h.handle,
	})
	return nil
}

// Validate implements caddy.Validator.
func (h *Auth) Validate() error {
	if h.MaxBody < 0 || h.BodyTimeout < 0 || h.MaxLifetime < 0 {
		return errors.New("gatehouse_auth: max_body, body_timeout and max_lifetime must not be negative")
	}
	if h.Audience == upstream.ConnectAudience {
		return errors.New("gatehouse_auth: the audience connect is that of the connection server")
	}
	if err := checkAPIName(h.Name); err != nil {
		return fmt.Errorf("gatehouse_auth: %w", err)
	}
	return checkPath("base_path", h.BasePath)
}

// match implements route.
func (h *Auth) match(*http.Request, *request) *operation { return h.everything }

// handle authenticates a request, counts it and passes it on.
func (h *Auth) handle(w http.ResponseWriter, r *http.Request, req *request) error {
	s := &signedRequest{request: req}
	if isWrite(r.Method, s.target) {
		s.repeatable = r.Header["Idempotency-Key"] != nil
		s.once = func() bool { return s.authErr == nil && h.permit(r, s) == nil } // a write that is denied leaves no mark
	}
	req.details = s
	if r.Method == http.MethodConnect {
		r.Body = http.NoBody // it never ends
	}
	if err := h.authenticateAndCount(w, r, s); err != nil {
		return err
	}
	if err := h.authorize(r, s); err != nil {
		return err
	}
	if err := h.app.shares.Begin(r.Context(), s.credential.PublicKey, time.Time{}); err != nil {
		h.forget(r, s)
		if r.Context().Err() != nil {
			return clientGone(r.Context())
		}
		return err
	}
	defer h.app.shares.End(s.credential.PublicKey)
	if err := h.identify(r, s); err != nil {
		return err
	}
	req.writer.own, req.writer.end = ownHeaders(w.Header()), time.Now().Add(time.Duration(h.MaxLifetime))
	ctx, cancel := context.WithDeadline(r.Context(), req.writer.end)
	defer cancel()
	err := req.next.ServeHTTP(w, r.WithContext(ctx))
	req.writer.end = time.Time{} // an error can still be written
	unhandled, _ := caddyhttp.GetVar(r.Context(), "unhandled").(bool)
	switch {
	case err != nil:
		return quietError{err}
	case unhandled && req.writer.status == 0: // Caddy would respond with an empty 200
		return errNotFound // a service may have got the request, if handle_response wrote nothing, so it stays remembered
	}
	return nil
}

// ownHeaders returns those response headers that the gateway has set. What other handlers in front have set is not the gateway's.
func ownHeaders(h http.Header) http.Header {
	own := http.Header{}
	for name, values := range h {
		if name == "X-Request-Id" || name == "X-Content-Type-Options" || strings.HasPrefix(strings.TrimPrefix(name, "X-"), "Ratelimit") {
			own[name] = values
		}
	}
	return own
}

// authorize returns why a request that has been counted is denied, or nil.
func (h *Auth) authorize(r *http.Request, req *signedRequest) error {
	if err := h.deny(r, req); err != nil {
		return err
	}
	return h.permit(r, req)
}

// permit returns why an authenticated request is not passed on, or nil.
func (h *Auth) permit(r *http.Request, req *signedRequest) error {
	path, _, _ := strings.Cut(req.target, "?")
	if !safePath(path) {
		return errUnsafePath
	}
	below, ok := strings.CutPrefix(path, h.BasePath+"/")
	if !ok {
		return errNotFound
	}
	resource, _, _ := strings.Cut(below, "/")
	switch {
	case r.Method == http.MethodConnect, r.Method == http.MethodTrace, isGRPC(r.Header), len(req.body) > 0 && isWebSocket(r):
		return errNotPassedOn
	case !req.credential.MayCall(h.Name, resource),
		h.Name == "" && req.credential.Resources != nil && h.app.namesAPI(resource):
		return errForbidden
	case isWrite(r.Method, req.target) && !req.credential.Write:
		return errWriteNotAllowed
	}
	return nil
}

// isWrite reports whether a request may change data: by its method, or by another one that its query names.
func isWrite(method, target string) bool {
	if method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions {
		return true
	}
	_, query, _ := strings.Cut(target, "?")
	for pair := range strings.FieldsFuncSeq(query, func(c rune) bool { return c == '&' || c == ';' }) {
		name, _, _ := strings.Cut(pair, "=")
		if decoded, err := url.QueryUnescape(name); err == nil {
			name = decoded
		}
		if upstream.NamesMethod(name) {
			return true
		}
	}
	return false
}

func isGRPC(h http.Header) bool {
	for _, v := range h["Content-Type"] {
		if kind, _, _ := mime.ParseMediaType(v); strings.HasPrefix(kind, "application/grpc") {
			return true
		}
	}
	return false
}

// safePath reports whether Caddy's matchers and the service behind it read an escaped path alike: it has no empty or dot segments, no
// parameters and backslashes, and no slash, dot or backslash is escaped, once or more often. Caddy matches a cleaned path, but passes on
// the other.
func safePath(path string) bool {
	if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, `\;`) || strings.Contains(path, "//") {
		return false
	}
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return false
		}
	}
	for rest := path; ; {
		_, after, ok := strings.Cut(rest, "%")
		if !ok {
			return true
		}
		if len(after) < 2 || after[:2] == "00" {
			return false
		}
		encoded := after
		for strings.HasPrefix(encoded, "25") { // Caddy decodes what a rewrite inserts
			encoded = encoded[2:]
		}
		if len(encoded) >= 2 && slices.Contains([]string{"2e", "2f", "5c"}, strings.ToLower(encoded[:2])) {
			return false
		}
		rest = after[2:]
	}
}

// removed are the headers that do not reach the handler, by their names in lower case with hyphens: those by which services know for
// whom a request is, the signature's, those that change what a request means, and those of its framing.
var removed = map[string]bool{ //nolint:gochecknoglobals // constant
	strings.ToLower(upstream.HeaderBusinessID): true, strings.ToLower(upstream.HeaderAssertion): true,
	strings.ToLower(upstream.HeaderRequestID): true, strings.ToLower(data.HeaderAccountID): true,
	strings.ToLower(authsigner.HeaderPublicKey): true, strings.ToLower(authsigner.HeaderTimestamp): true,
	strings.ToLower(authsigner.HeaderSignature): true,
	"x-http-method-override":                    true, "x-http-method": true, "x-method-override": true,
	"x-original-url": true, "x-original-uri": true, "x-rewrite-url": true,
	"connection": true, "expect": true, "trailer": true, "te": true, "keep-alive": true, "proxy-connection": true,
	"content-length": true, "transfer-encoding": true, "upgrade": true, "http2-settings": true, "proxy": true,
}

// identify removes what a caller must not decide from a request that is passed on, and adds who calls.
func (h *Auth) identify(r *http.Request, req *signedRequest) error {
	byProxy, _ := caddyhttp.GetVar(r.Context(), caddyhttp.TrustedProxyVarKey).(bool) // may say for whom
	upgrade := ""
	if isWebSocket(r) {
		upgrade = "websocket"
	}
	for _, list := range r.Header["Connection"] { // hop by hop (RFC 9110, section 7.6.1)
		for name := range strings.SplitSeq(list, ",") {
			r.Header.Del(strings.TrimSpace(name))
		}
	}
	forwarded := []string{"x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"} // which Caddy sets
	if byProxy {
		forwarded = append(forwarded, "x-forwarded-port", "x-forwarded-prefix")
	}
	for name := range r.Header {
		known := strings.Map(func(c rune) rune { // CGI and many frameworks take other characters for -
			if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
				return c
			}
			return '-'
		}, strings.ToLower(name))
		respelled := name != http.CanonicalHeaderKey(known)
		if removed[known] || strings.HasPrefix(known, "x-forwarded-") && (respelled || !slices.Contains(forwarded, known)) ||
			!byProxy && (known == "forwarded" || known == "x-real-ip") {
			delete(r.Header, name)
		}
	}
	if upgrade != "" {
		r.Header["Connection"], r.Header["Upgrade"] = []string{"Upgrade"}, []string{upgrade}
	}
	r.ContentLength, r.TransferEncoding, r.Trailer = int64(len(req.body)), nil, nil
	if len(req.body) > 0 {
		r.Header["Content-Length"] = []string{strconv.Itoa(len(req.body))} // which FastCGI sends, also for a chunked body
	}
	id := req.credential.BusinessID
	r.Header[upstream.HeaderBusinessID], r.Header[upstream.HeaderRequestID] = []string{id}, []string{req.id}
	if h.audience != "" {
		assertion, err := h.app.asserter.Assert(h.audience, r.Method, id, req.id)
		if err != nil {
			return fmt.Errorf("signing the hop assertion: %w", err)
		}
		r.Header[upstream.HeaderAssertion] = []string{assertion}
	}
	return nil
}

// isWebSocket reports whether a request is the handshake of a WebSocket (RFC 6455, section 4.1).
func isWebSocket(r *http.Request) bool {
	return r.ProtoMajor == 1 && r.Method == http.MethodGet && len(r.Header["Upgrade"]) == 1 &&
		strings.EqualFold(r.Header["Upgrade"][0], "websocket") && httpguts.HeaderValuesContainsToken(r.Header["Connection"], "upgrade")
}

// UnmarshalCaddyfile parses the directive. Syntax:
//
//	gatehouse_auth [<matcher>] [<name>] {
//	    base_path    <path>
//	    max_body     <size>
//	    body_timeout <duration>
//	    audience     <audience>
//	    max_lifetime <duration>
//	}
func (h *Auth) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // consume the directive's name
	if d.NextArg() {
		if h.Name = d.Val(); h.Name == "" { // without one, it is for other keys
			return d.Err("gatehouse_auth: the name is empty")
		}
	}
	if d.CountRemainingArgs() > 0 {
		return d.Err("gatehouse_auth takes at most one name")
	}
	err := parseBlock(d, authName,
		text("base_path", &h.BasePath),
		size("max_body", &h.MaxBody),
		duration("body_timeout", &h.BodyTimeout),
		text("audience", &h.Audience),
		duration("max_lifetime", &h.MaxLifetime),
	)
	if err != nil {
		return err
	}
	if err := h.Validate(); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Auth)(nil)
	_ caddy.Validator             = (*Auth)(nil)
	_ caddyfile.Unmarshaler       = (*Auth)(nil)
	_ caddyhttp.MiddlewareHandler = (*Auth)(nil)
)
