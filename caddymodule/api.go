package caddymodule

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/tracing"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// API serves the signed API: it authenticates requests, enforces rate limits, calls the data services, and returns the parts of
// their responses that the contract defines. It responds to every request that reaches it; paths outside the API get 404.
type API struct {
	frontDoor

	// BasePath is the path under which the API is mounted, such as "/gw" for https://example.com/gw/api/v1.
	// Signatures do not cover it. Default: the API is mounted at the root.
	BasePath string `json:"base_path,omitempty"`

	// Docs is a URL that every error response has in its member "docs". Default: the member is omitted.
	Docs string `json:"docs,omitempty"`

	// MaxBody is the maximum size of a request body in bytes; a larger one gets 413. Default: 1 MiB. Zero means the default.
	MaxBody int64 `json:"max_body,omitempty"`

	// BodyTimeout is the time in which a request body must arrive. Default: 10s. Zero means the default.
	BodyTimeout caddy.Duration `json:"body_timeout,omitempty"`

	// Timeout limits the exchange with a data service, retries included. Default: 10s. Zero means the default.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// MaxResponseSize is the maximum size of a data service's response in bytes; a larger one becomes a 502. At most 64 MiB
	// divided by MaxResponseSize responses above 256 KiB are read at a time; others wait, up to Timeout. Default: 8 MiB.
	// Zero means the default.
	MaxResponseSize int64 `json:"max_response_size,omitempty"`

	// PassUnknownFields lists the resources whose records may keep fields that the contract does not define. Default: none;
	// such fields are stripped.
	PassUnknownFields []string `json:"pass_unknown_fields,omitempty"`

	// AllowMissingTenant accepts records without a tenant field. The gateway can then not detect cross-tenant records: the
	// data service alone keeps tenants apart. Default: false.
	AllowMissingTenant bool `json:"allow_missing_tenant,omitempty"`

	// Deprecated holds the deprecated resources, by name. Default: none.
	Deprecated map[string]Deprecation `json:"deprecated,omitempty"`

	// Upstreams are the data services. Each resource must be served by exactly one of them. Required.
	Upstreams []*APIUpstream `json:"upstreams,omitempty"`

	app       *App
	verifier  *authsigner.Verifier
	contract  *upstream.Contract
	large     *semaphore.Weighted
	endpoints map[*upstream.Resource]*endpoint
	notFound  [2]*endpoint // outside the API, and below /api/v1
	exchanges sync.Pool    // of *exchange
}

// APIUpstream is a data service.
type APIUpstream struct {
	// Resources are the names of the resources that it serves. Default: all resources that no other upstream names.
	Resources []string `json:"resources,omitempty"`

	// HandlerRaw is a reverse_proxy handler. Its options for addresses, selection policies, health checks, retries,
	// header_up and the transport http are supported. Required.
	HandlerRaw json.RawMessage `json:"handler" caddy:"namespace=http.handlers inline_key=handler"`

	service *dataService
}

// Deprecation announces that a resource will be removed.
type Deprecation struct {
	// Since is when the resource became, or will become, deprecated: the Deprecation header (RFC 9745). Required.
	Since time.Time `json:"since"`

	// Sunset is when the resource will be removed: the Sunset header (RFC 8594). Default: no such header.
	Sunset time.Time `json:"sunset,omitzero"`

	// Link is the URL of a page about the deprecation: the Link header. Default: no such header.
	Link string `json:"link,omitempty"`
}

const (
	apiName = "gatehouse_api"

	// apiPrefix is the prefix of the API's paths.
	apiPrefix = "/api/v1"

	defaultUpstreamTimeout = 10 * time.Second
)

// CaddyModule returns the Caddy module information.
func (*API) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers." + apiName,
		New: func() caddy.Module { return new(API) },
	}
}

// Provision sets defaults and loads the upstreams.
func (h *API) Provision(ctx caddy.Context) error {
	app, err := appOf(ctx)
	if err != nil {
		return err
	}
	if app.credentials == nil {
		return errors.New(`the signed API needs credentials: set "credentials" in the global option "gatehouse"`)
	}
	if app.limiter == nil {
		return errors.New(`the signed API needs Redis for its rate limits: set "redis" in the global option "gatehouse"`)
	}
	h.app = app
	h.MaxBody = cmp.Or(h.MaxBody, authsigner.DefaultMaxBody)
	h.BodyTimeout = cmp.Or(h.BodyTimeout, caddy.Duration(defaultBodyTimeout))
	h.Timeout = cmp.Or(h.Timeout, caddy.Duration(defaultUpstreamTimeout))
	h.MaxResponseSize = cmp.Or(h.MaxResponseSize, upstream.DefaultMaxResponseSize)
	h.verifier = &authsigner.Verifier{Source: tracedLookups{app.credentials.cache}, MaxBody: h.MaxBody, Now: time.Now}
	h.large = semaphore.NewWeighted(max(1, largeResponsesBytes/h.MaxResponseSize))
	h.contract = &upstream.Contract{AllowMissingTenant: h.AllowMissingTenant, PassUnknownFields: map[string]bool{}}
	for _, name := range h.PassUnknownFields {
		h.contract.PassUnknownFields[name] = true
	}
	h.exchanges.New = func() any {
		return &exchange{response: response{maxSize: h.MaxResponseSize, large: h.large}}
	}
	for _, u := range h.Upstreams {
		if u.service, err = loadDataService(ctx, u, "HandlerRaw", &u.HandlerRaw); err != nil {
			return err
		}
	}
	served, err := h.served()
	if err != nil {
		return err
	}
	h.endpoints = map[*upstream.Resource]*endpoint{}
	for _, res := range upstream.Resources() {
		op := &operation{resource: res, headers: h.Deprecated[res.Name].headers()}
		if u := cmp.Or(served[res.Name], served[""]); u != nil && !res.ByGateway {
			op.service, op.metrics = u.service, app.metrics.resource(res.Name)
		}
		h.endpoints[res] = h.endpoint(op)
	}
	h.notFound = [2]*endpoint{h.endpoint(nil), h.endpoint(&operation{})}
	return h.provision(ctx, h)
}

// Validate implements caddy.Validator.
func (h *API) Validate() error {
	if h.MaxBody < 0 || h.BodyTimeout < 0 || h.Timeout < 0 || h.MaxResponseSize < 0 {
		return errors.New("max_body, body_timeout, timeout and max_response_size must not be negative")
	}
	if h.BasePath != "" && (!strings.HasPrefix(h.BasePath, "/") || strings.HasSuffix(h.BasePath, "/") ||
		strings.ContainsAny(h.BasePath, "?#%*{} ")) {
		return fmt.Errorf("invalid base_path %q: must begin with a slash, must not end with one, and must not contain spaces or any of ?#%%*{}",
			h.BasePath)
	}
	for _, name := range h.PassUnknownFields {
		if err := checkResource("pass_unknown_fields", name, proxiedNames()); err != nil {
			return err
		}
	}
	for name, d := range h.Deprecated {
		if err := checkResource("deprecated", name, resourceNames()); err != nil {
			return err
		}
		if !d.Sunset.IsZero() && d.Sunset.Before(d.Since) {
			return fmt.Errorf("invalid deprecation of %q: the sunset must not be before the deprecation", name)
		}
	}
	served, err := h.served()
	if err != nil {
		return err
	}
	for _, name := range proxiedNames() {
		if served[name] == nil && served[""] == nil {
			return fmt.Errorf("gatehouse_api: no upstream serves %q: add it to an upstream, or add an upstream without resources, which serves all others", name)
		}
	}
	return nil
}

// served returns the upstreams by the names of their resources; "" is the upstream without resources. Each may occur once.
func (h *API) served() (map[string]*APIUpstream, error) {
	served := map[string]*APIUpstream{}
	for _, u := range h.Upstreams {
		if len(u.Resources) == 0 {
			if served[""] != nil {
				return nil, errors.New("upstream: more than one upstream without resources: at most one may serve all resources that no other names")
			}
			served[""] = u
		}
		for _, name := range u.Resources {
			if err := checkResource("upstream", name, proxiedNames()); err != nil {
				return nil, err
			}
			if served[name] != nil {
				return nil, fmt.Errorf("upstream: more than one upstream serves %q: each resource must have exactly one", name)
			}
			served[name] = u
		}
	}
	return served, nil
}

func checkResource(option, name string, names []string) error {
	if slices.Contains(names, name) {
		return nil
	}
	return fmt.Errorf("%s: unknown resource %q: must be one of %s", option, name, strings.Join(names, ", "))
}

func resourceNames() []string {
	var names []string
	for _, res := range upstream.Resources() {
		names = append(names, res.Name)
	}
	return names
}

// proxiedNames returns the names of the resources that data services serve.
func proxiedNames() []string {
	return slices.DeleteFunc(resourceNames(), func(name string) bool { return upstream.ByName(name).ByGateway })
}

// Cleanup closes idle connections to data services.
func (h *API) Cleanup() error {
	for _, u := range h.Upstreams {
		u.service.close()
	}
	return nil
}

func (d Deprecation) headers() http.Header {
	if d.Since.IsZero() {
		return nil
	}
	h := http.Header{"Deprecation": {fmt.Sprintf("@%d", d.Since.Unix())}}
	if !d.Sunset.IsZero() {
		h["Sunset"] = []string{d.Sunset.UTC().Format(http.TimeFormat)}
	}
	if d.Link != "" {
		h["Link"] = []string{"<" + d.Link + `>; rel="deprecation"; type="text/html"`}
	}
	return h
}

// operation is how a path of the API is served.
type operation struct {
	resource *upstream.Resource // nil: the path is unknown
	service  *dataService       // nil: the gateway responds itself
	metrics  *resourceMetrics   // of the service's responses
	headers  http.Header        // of a deprecated resource
}

// apiRequest is one API request and what the steps of serve know of it.
type apiRequest struct {
	*request
	op *operation

	credential *authsigner.Credential // set if and only if the signature verified
	authErr    error                  // why authentication failed
	denial     denial                 // more about that
	endLookup  func()                 // releases this request's place in the lookupLimiter; nil if it has none
	limited    bool                   // the rate limiter was asked
	counter    [1]ratelimit.Counter   // scratch

	verifyTime, limitTime, upstreamTime, checkTime time.Duration

	upstreamAddress string // of the data service
}

// endpoint returns the endpoint of an operation. A nil operation stands for all paths outside /api/v1.
func (h *API) endpoint(op *operation) *endpoint {
	e := &endpoint{
		name: "none", metrics: h.app.metrics.route("none"), maxBody: h.MaxBody, bodyTimeout: time.Duration(h.BodyTimeout), docs: h.Docs,
		serve: func(w http.ResponseWriter, r *http.Request, req *request) error {
			return h.serve(w, r, &apiRequest{request: req, op: op})
		},
	}
	switch {
	case op == nil:
		e.maxBody = 0
		e.serve = func(http.ResponseWriter, *http.Request, *request) error { return errNotFound }
	case op.resource != nil:
		e.name, e.metrics = op.resource.Name, h.app.metrics.route(op.resource.Name)
	}
	return e
}

// match implements route. The path is matched byte for byte: nothing is decoded or normalised.
func (h *API) match(_ *http.Request, req *request) *endpoint {
	target, ok := signedTarget(req.target, h.BasePath)
	if !ok {
		return h.notFound[0]
	}
	res, query, ok := upstream.Match(target)
	req.target, req.query = target, query
	if !ok {
		return h.notFound[1]
	}
	return h.endpoints[res]
}

// signedTarget strips the base path from a target in origin form, and reports whether the result is below /api/v1.
func signedTarget(target, basePath string) (string, bool) {
	target, ok := strings.CutPrefix(target, basePath)
	if !ok {
		return target, false
	}
	rest, ok := strings.CutPrefix(target, apiPrefix)
	return target, ok && (rest == "" || rest[0] == '/' || rest[0] == '?')
}

// serve responds to a request below /api/v1 in seven steps. Nothing travels in a context value from one to another.
func (h *API) serve(w http.ResponseWriter, r *http.Request, req *apiRequest) error {
	req.details = req
	defer req.releaseLookup()

	// 1. Route: match has set req.op. Unknown paths and methods are denied after step 3, because they count against a limit too.

	// 2. Authenticate.
	if err := h.authenticate(w, r, req); err != nil {
		return err
	}

	// 3. Rate limit.
	if err := h.rateLimit(w, r, req); err != nil {
		return err
	}
	if err := h.authorize(r, req); err != nil {
		return err
	}

	// 4. Clean the request.
	query, err := req.op.resource.CleanQuery(req.query)
	if err != nil {
		return err
	}
	maps.Copy(w.Header(), req.op.headers)
	if req.op.service == nil {
		return h.respondItself(w, req)
	}
	out, err := h.prepare(r, req, query)
	if err != nil {
		return err
	}

	// 5. Call the data service.
	x, _ := h.exchanges.Get().(*exchange)
	defer h.release(x)
	if err := h.call(out, req, x); err != nil {
		return err
	}

	// 6. Check the response.
	if err := h.check(r.Context(), req, query, x); err != nil {
		return err
	}

	// 7. Respond.
	upstream.ForwardHeaders(w.Header(), x.response.header)
	writeJSON(w, http.StatusOK, x.checked.Bytes())
	return nil
}

// authenticate sets req.credential if the signature verifies, and otherwise req.authErr. It returns an error, without a
// lookup, if the key is not cached and the client IP has exhausted its limit for unauthenticated requests. A client IP may have
// only a few lookups of uncached keys in progress; each ends when its request has been counted, so that concurrent requests
// cannot all pass the check of the limit.
func (h *API) authenticate(w http.ResponseWriter, r *http.Request, req *apiRequest) (err error) {
	start := time.Now()
	ctx, span := tracing.Start(r.Context(), "authenticate", trace.SpanKindInternal)
	if span.IsRecording() {
		r = r.WithContext(ctx)
		defer func() {
			span.SetAttributes(attribute.String("gatehouse.authentication", req.authResult()))
			tracing.End(span, err)
		}()
	}
	key, named := namedKey(r)
	switch {
	case !named:
		req.authErr = authsigner.ErrMissingCredentials
	case authsigner.ValidPublicKey(key) && !h.app.credentials.cache.Known(key):
		if req.authErr, err = h.awaitLookup(w, r, req, key); err != nil {
			return err
		}
	}
	if req.authErr == nil {
		req.credential, req.authErr = h.verifier.Verify(r, req.target)
	}
	if req.authErr != nil && req.credential == nil {
		req.denial = h.denialOf(r, req.authErr)
		if req.denial.malformed != "" {
			req.authErr = &malformedHeaderError{header: req.denial.malformed, err: req.authErr}
		}
	}
	req.verifyTime = time.Since(start)
	return nil
}

// awaitLookup makes sure that a request may cause a lookup of its key, and waits for its turn.
func (h *API) awaitLookup(w http.ResponseWriter, r *http.Request, req *apiRequest, key string) (authErr, err error) {
	ip, counter := ratelimit.UnverifiedIP(req.clientIP)
	check := func(ctx context.Context) error {
		if res, err := h.app.limiter.Peek(ctx, ip, counter); err == nil && !res.Allowed {
			return h.deny(w, req, res) // nil in shadow mode
		}
		return nil // also if the limit is not known
	}
	if h.app.credentials.cache.Peek(key) != nil {
		return nil, check(r.Context())
	}
	if r.ContentLength != 0 {
		// A body that arrives slowly must neither delay a denial nor take up a lookup.
		if err := check(r.Context()); err != nil {
			return nil, err
		}
		if err := h.verifier.ReadBody(r); err != nil {
			return err, nil
		}
	}
	if req.endLookup, authErr = h.app.credentials.lookups.acquire(r.Context(), ip); authErr != nil {
		return authErr, nil
	}
	if h.app.credentials.cache.Known(key) { // another request has looked it up in the meantime
		req.releaseLookup()
	}
	return nil, check(r.Context())
}

// privateKeyPrefix begins every private key that the gateway issues.
const privateKeyPrefix = "sk_"

// denial says why the credentials of a request are invalid. Apart from malformed, it is for the log only.
type denial struct {
	reason    string // one of a fixed set; "" if it is not about credentials
	malformed string // header that no key could make valid
	key       string // the claimed public key, if it can be logged
	late      int64  // seconds from the timestamp to the clock, if the request has expired
}

func (h *API) denialOf(r *http.Request, err error) denial {
	var d denial
	key := r.Header.Get(authsigner.HeaderPublicKey)
	if authsigner.ValidPublicKey(key) && !strings.HasPrefix(key, privateKeyPrefix) { // a private key that was sent by mistake
		d.key = key
	}
	switch {
	case errors.Is(err, authsigner.ErrExpired):
		d.reason = "expired"
		if timestamp, err := strconv.ParseInt(r.Header.Get(authsigner.HeaderTimestamp), 10, 64); err == nil {
			d.late = time.Now().Unix() - timestamp
		}
		return d
	case !errors.Is(err, authsigner.ErrInvalidCredentials):
		return d
	}
	switch d.malformed = authsigner.MalformedHeader(r.Header); d.malformed {
	case authsigner.HeaderPublicKey:
		d.reason = "malformed_key"
	case authsigner.HeaderTimestamp:
		d.reason = "malformed_timestamp"
	case authsigner.HeaderSignature:
		d.reason = "malformed_signature"
	default:
		d.reason = "wrong_signature"
		if cred := h.app.credentials.cache.Peek(key); cred == nil {
			d.reason = "unknown_key"
		} else if cred.Expired(time.Now()) {
			d.reason = "expired_key"
		}
	}
	return d
}

// malformedHeaderError adds to an authentication error which header is malformed.
type malformedHeaderError struct {
	header string
	err    error
}

func (e *malformedHeaderError) Error() string { return e.err.Error() }
func (e *malformedHeaderError) Unwrap() error { return e.err }

// releaseLookup releases the request's place in the lookupLimiter, if it has one.
func (req *apiRequest) releaseLookup() {
	if req.endLookup != nil {
		req.endLookup()
	}
}

// namedKey returns the public key in the request's header, and whether there is one.
func namedKey(r *http.Request) (string, bool) {
	switch keys := r.Header[authsigner.HeaderPublicKey]; len(keys) {
	case 0:
		return "", false
	case 1:
		return keys[0], keys[0] != ""
	default:
		return "several", true // too short to be a valid public key
	}
}

// rateLimit counts the request against its rate limit key and sets the RateLimit response headers.
func (h *API) rateLimit(w http.ResponseWriter, r *http.Request, req *apiRequest) error {
	defer req.releaseLookup()
	start := time.Now()
	var (
		ctx      = r.Context()
		group    string
		counters []ratelimit.Counter
	)
	if req.credential == nil {
		// An unauthenticated request counts even if the client closes the connection, or else it could cause lookups without
		// ever reaching its limit.
		ctx = context.WithoutCancel(ctx)
	}
	switch key, named := namedKey(r); {
	case req.credential != nil:
		group, req.counter[0] = h.app.Limits.forKey(req.credential)
		counters = req.counter[:]
	case named:
		group, counters = ratelimit.ForUnverified(key, req.clientIP)
	default:
		group, req.counter[0] = h.app.Limits.forIP(req.clientIP)
		counters = req.counter[:]
	}
	ctx, span := tracing.Start(ctx, "rate limit", trace.SpanKindClient)
	res, err := h.app.limiter.Allow(ctx, group, counters...)
	if span.IsRecording() {
		span.SetAttributes(semconv.DBSystemNameRedis, attribute.String("gatehouse.limit.decided_by", string(res.By)),
			attribute.Bool("gatehouse.limit.allowed", res.Allowed))
	}
	tracing.End(span, err)
	req.limited, req.limitTime = true, time.Since(start)
	h.app.metrics.authentications.WithLabelValues(req.authResult()).Inc()
	if err != nil {
		if ctx.Err() != nil {
			return clientGone(ctx)
		}
		return fmt.Errorf("%w: %w", errLimitUnavailable, err)
	}
	h.app.metrics.limited(res)
	if !res.Allowed {
		return h.deny(w, req, res)
	}
	res.SetHeaders(w.Header(), time.Now())
	return nil
}

// deny returns the error of a request over its limit. In shadow mode it reports the request and returns nil.
func (h *API) deny(w http.ResponseWriter, req *apiRequest, res ratelimit.Result) error {
	limit := res.Tightest().Limit.Name
	res.SetHeaders(w.Header(), time.Now())
	if h.app.Limits.Shadow {
		w.Header().Del("Retry-After") // the request is served
		h.app.metrics.shadow.WithLabelValues(limit).Inc()
		if e := h.logger.Check(zap.InfoLevel, "rate limit exceeded, not enforced in shadow mode"); e != nil {
			e.Write(zap.String("request_id", req.id), zap.String("limit", limit))
		}
		return nil
	}
	return &rateLimitedError{retryAfter: res.RetryAfter, limit: limit}
}

// authorize returns why a request that has been counted is denied, or nil.
func (h *API) authorize(r *http.Request, req *apiRequest) error {
	if req.denial.reason != "" {
		h.app.credentials.denials.add(r, req, h.BasePath)
	}
	res := req.op.resource
	switch {
	case req.authErr != nil && r.Context().Err() != nil && !errors.Is(req.authErr, os.ErrDeadlineExceeded):
		// net/http cancels the request's context when a read from the connection fails. A read that failed because of its
		// deadline means a slow client instead.
		return clientGone(r.Context())
	case res == nil:
		return errNotFound
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		return errMethodNotAllowed
	case req.authErr != nil && !res.Public:
		return req.authErr
	case req.op.service != nil && !req.credential.MayCall(res.Name):
		return errForbidden
	}
	return nil
}

func clientGone(ctx context.Context) error {
	return fmt.Errorf("%w: %w", errClientGone, context.Cause(ctx))
}

// respondItself responds without a data service: to /status, and to /me from the credential, so that callers can check their
// keys while data services are down.
func (h *API) respondItself(w http.ResponseWriter, req *apiRequest) error {
	if req.op.resource.Public {
		writeJSON(w, http.StatusOK, []byte(`{"status":"ok","api_version":"v1"}`))
		return nil
	}
	type business struct {
		ID   string `json:"id"`
		Name string `json:"name"`
		Slug string `json:"slug"`
	}
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	c := req.credential
	if err := enc.Encode(struct {
		Business business `json:"business"`
	}{business{c.BusinessID, c.BusinessName, c.BusinessSlug}}); err != nil {
		return fmt.Errorf("encoding the credential's business: %w", err)
	}
	writeJSON(w, http.StatusOK, bytes.TrimSuffix(body.Bytes(), []byte("\n")))
	return nil
}

// prepare returns the request for the data service.
func (h *API) prepare(r *http.Request, req *apiRequest, query upstream.Query) (*http.Request, error) {
	id := upstream.Identity{BusinessID: req.credential.BusinessID, RequestID: req.id}
	if h.app.asserter != nil {
		assertion, err := h.app.asserter.Assert(req.op.resource.Name, id.BusinessID, id.RequestID)
		if err != nil {
			return nil, fmt.Errorf("signing the hop assertion: %w", err)
		}
		id.Assertion = assertion
	}
	out, err := upstream.PrepareRequest(r, req.op.resource, query, id)
	if err != nil {
		return nil, fmt.Errorf("preparing the request for the data service: %w", err)
	}
	setForwarded(out, req.clientIP)
	return out, nil
}

// setForwarded sets X-Forwarded-*, Via and User-Agent as reverse_proxy does. X-Forwarded-For lists a trusted proxy behind the
// client's IP.
func setForwarded(out *http.Request, clientIP netip.Addr) {
	const name = "X-Forwarded-For"
	peer, _, err := net.SplitHostPort(out.RemoteAddr)
	peer, _, _ = strings.Cut(peer, "%")
	trusted, _ := caddyhttp.GetVar(out.Context(), caddyhttp.TrustedProxyVarKey).(bool)
	// The values are not shared with other requests, because header operations may change them in place.
	values := []string{peer, out.Host, "http", viaCaddy(out.ProtoMajor), ""}
	switch {
	case trusted && clientIP.IsValid() && err == nil:
		values[0] = clientIP.String() + ", " + peer
	case trusted && clientIP.IsValid():
		values[0] = clientIP.String()
	}
	if values[0] != "" {
		out.Header[name] = values[:1:1]
	}
	if err == nil || trusted {
		if out.TLS != nil {
			values[2] = "https"
		}
		out.Header["X-Forwarded-Host"], out.Header["X-Forwarded-Proto"] = values[1:2:2], values[2:3:3]
	}
	out.Header["Via"] = values[3:4:4]
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = values[4:5:5] // keeps net/http from sending its own
	}
}

// viaCaddy returns the value of Via (RFC 9110, section 7.6.3) as reverse_proxy sends it.
func viaCaddy(protoMajor int) string {
	switch protoMajor {
	case 2:
		return "2.0 Caddy"
	case 3:
		return "3.0 Caddy"
	}
	return "1.1 Caddy"
}

// exchange holds the buffers of one exchange with a data service. It is pooled.
type exchange struct {
	response response
	checked  bytes.Buffer
}

// maxPooledChecked is the largest capacity, in bytes, of a buffer that returns to the pool.
const maxPooledChecked = 256 << 10

// release returns an exchange to the pool.
func (h *API) release(x *exchange) {
	x.response.release()
	x.response.header, x.response.address = nil, ""
	x.checked.Reset()
	if x.checked.Cap() > maxPooledChecked {
		x.checked = bytes.Buffer{}
	}
	h.exchanges.Put(x)
}

// call sends the request to the data service and reads the response into x.response.
func (h *API) call(out *http.Request, req *apiRequest, x *exchange) error {
	ctx, start := out.Context(), time.Now()
	err := req.op.service.do(out, start.Add(time.Duration(h.Timeout)), &x.response)
	req.upstreamTime, req.upstreamAddress = time.Since(start), x.response.address
	observe(ctx, req.op.metrics.duration, req.upstreamTime)
	if err != nil && ctx.Err() != nil {
		return clientGone(ctx)
	}
	return err
}

// check checks a response against the contract, writes the body for the caller to x.checked, and frees the response.
func (h *API) check(ctx context.Context, req *apiRequest, query upstream.Query, x *exchange) (err error) {
	start := time.Now()
	_, span := tracing.Start(ctx, "check response", trace.SpanKindInternal)
	defer func() {
		req.checkTime = time.Since(start)
		tracing.End(span, err)
	}()
	res := req.op.resource
	if err := upstream.CheckHeader(res, x.response.status, x.response.header); err != nil {
		req.op.metrics.checked(upstream.Report{}, err)
		if d, ok := upstream.RetryAfter(x.response.header, time.Now()); ok {
			return &retryLaterError{after: d, err: err}
		}
		return err
	}
	report, err := h.contract.Check(&x.checked, res, query, req.credential.BusinessID, x.response.body.Bytes())
	req.op.metrics.checked(report, err)
	if err != nil {
		return err
	}
	x.response.release() // before the response is written, because the client may read slowly
	if report.CrossTenant > 0 {
		h.logger.Error("removed cross-tenant records from a data service's response",
			zap.String("request_id", req.id), zap.String("resource", res.Name),
			zap.String("business", req.credential.BusinessID), zap.Int("records", report.CrossTenant))
	}
	return nil
}

// appendLogFields adds the caller and the durations of the steps to the request's log line.
func (req *apiRequest) appendLogFields(fields []zap.Field) []zap.Field {
	if c := req.credential; c != nil {
		fields = append(fields, zap.String("business", c.BusinessID), zap.String("public_key", c.PublicKey))
	}
	if req.denial.key != "" {
		fields = append(fields, zap.String("claimed_public_key", req.denial.key))
	}
	if req.denial.reason != "" {
		fields = append(fields, zap.String("reason", req.denial.reason))
	}
	if req.denial.late != 0 {
		fields = append(fields, zap.Int64("seconds_late", req.denial.late))
	}
	if req.limited {
		fields = append(fields, zap.String("authentication", req.authResult()), zap.Duration("verify", req.verifyTime),
			zap.Duration("limit", req.limitTime))
	}
	if req.upstreamTime > 0 {
		fields = append(fields, zap.Duration("upstream", req.upstreamTime))
	}
	if req.upstreamAddress != "" {
		fields = append(fields, zap.String("upstream_address", req.upstreamAddress))
	}
	if req.checkTime > 0 {
		fields = append(fields, zap.Duration("check", req.checkTime))
	}
	return fields
}

// authResult returns the result of authentication as a log field and metric label: one of a fixed set.
func (req *apiRequest) authResult() string {
	switch {
	case req.credential != nil && req.authErr == nil:
		return "verified"
	case req.authErr == nil:
		return "none"
	case errors.Is(req.authErr, authsigner.ErrAccountInactive):
		return "inactive"
	case errors.Is(req.authErr, authsigner.ErrMissingCredentials):
		return "missing"
	case errors.Is(req.authErr, authsigner.ErrExpired):
		return "expired"
	case errors.Is(req.authErr, authsigner.ErrInvalidCredentials):
		return "invalid"
	case errors.Is(req.authErr, authsigner.ErrUnavailable):
		return "unavailable"
	default:
		return "unreadable"
	}
}

// Interface guards
var (
	_ caddy.Provisioner           = (*API)(nil)
	_ caddy.Validator             = (*API)(nil)
	_ caddy.CleanerUpper          = (*API)(nil)
	_ caddyhttp.MiddlewareHandler = (*API)(nil)
)
