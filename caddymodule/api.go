package caddymodule

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// API serves the signed API: it authenticates requests, enforces rate limits, asks the data services, and responds with what
// of their responses the contract defines. It responds to every request that reaches it, with 404 outside the API.
type API struct {
	frontDoor

	// BasePath is the path under which the API is mounted: "/gw" for https://example.com/gw/api/v1.
	// Signatures do not cover it. Default: none.
	BasePath string `json:"base_path,omitempty"`

	// Docs is a URL that every error names in its member "docs". Default: none, and no such member.
	Docs string `json:"docs,omitempty"`

	// MaxBody is the largest body that is read to verify its signature, in bytes. Default: 1 MiB. Zero means the default.
	MaxBody int64 `json:"max_body,omitempty"`

	// BodyTimeout bounds the time in which a signed body must arrive. Default: 10s. Zero means the default.
	BodyTimeout caddy.Duration `json:"body_timeout,omitempty"`

	// Timeout bounds the whole exchange with a data service, retries included. Default: 10s. Zero means the default.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// MaxResponseSize is the largest response of a data service that is accepted, in bytes. Default: 8 MiB.
	// Zero means the default. Responses above 256 KiB are read a few at a time, as many as the largest of them fill 64
	// MiB; others wait, and no longer than Timeout.
	MaxResponseSize int64 `json:"max_response_size,omitempty"`

	// PassUnknownFields names the resources whose records may have fields that the contract does not define.
	// Default: none.
	PassUnknownFields []string `json:"pass_unknown_fields,omitempty"`

	// AllowMissingTenant accepts records that do not say which business they belong to. Then nothing but the data
	// service keeps one business's records from another. Default: false.
	AllowMissingTenant bool `json:"allow_missing_tenant,omitempty"`

	// Deprecated announces the end of resources, by name (contract, section 6). Default: none.
	Deprecated map[string]Deprecation `json:"deprecated,omitempty"`

	// Upstreams are the data services. Every resource of a data service needs exactly one.
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
	// Resources are the names of the resources that it serves. Default: all that no other upstream names.
	Resources []string `json:"resources,omitempty"`

	// HandlerRaw is a reverse_proxy, whose options for addresses, selection policies, health checks, retries, header_up and
	// the transport http apply. Required.
	HandlerRaw json.RawMessage `json:"handler" caddy:"namespace=http.handlers inline_key=handler"`

	service *dataService
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
	apiName = "gatehouse_api"

	// apiPrefix is where the contract's paths begin (contract, section 1).
	apiPrefix = "/api/v1"

	defaultUpstreamTimeout       = 10 * time.Second
	defaultMaxResponseSize int64 = 8 << 20
)

// CaddyModule returns the Caddy module information.
func (*API) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers." + apiName,
		New: func() caddy.Module { return new(API) },
	}
}

// Provision sets the defaults, takes credentials and limits from the app, and loads the upstreams.
func (h *API) Provision(ctx caddy.Context) error {
	app, err := appOf(ctx)
	if err != nil {
		return err
	}
	if app.credentials == nil {
		return errors.New(`the signed API needs credentials: set "credentials" in the global option "gatehouse"`)
	}
	if app.limiter == nil {
		return errors.New(`the signed API needs a store for its rate limits: set "redis" in the global option "gatehouse"`)
	}
	h.app = app
	if h.MaxBody == 0 {
		h.MaxBody = authsigner.DefaultMaxBody
	}
	if h.BodyTimeout == 0 {
		h.BodyTimeout = caddy.Duration(defaultBodyTimeout)
	}
	if h.Timeout == 0 {
		h.Timeout = caddy.Duration(defaultUpstreamTimeout)
	}
	if h.MaxResponseSize == 0 {
		h.MaxResponseSize = defaultMaxResponseSize
	}
	h.verifier = &authsigner.Verifier{Source: app.credentials.cache, MaxBody: h.MaxBody, Now: time.Now}
	h.large = semaphore.NewWeighted(max(1, largeResponsesBytes/h.MaxResponseSize))
	h.contract = &upstream.Contract{AllowMissingTenant: h.AllowMissingTenant, PassUnknownFields: map[string]bool{}}
	for _, name := range h.PassUnknownFields {
		h.contract.PassUnknownFields[name] = true
	}
	h.exchanges.New = func() any {
		return &exchange{response: response{maxSize: h.MaxResponseSize, large: h.large}}
	}
	services := map[string]*dataService{}
	for _, u := range h.Upstreams {
		if u.service, err = loadDataService(ctx, u, "HandlerRaw"); err != nil {
			return err
		}
		for _, name := range u.Resources {
			services[name] = u.service
		}
		if len(u.Resources) == 0 {
			services[""] = u.service
		}
	}
	h.endpoints = map[*upstream.Resource]*endpoint{}
	for _, res := range upstream.Resources() {
		service := services[res.Name]
		if service == nil {
			service = services[""]
		}
		if res.ByGateway {
			service = nil
		}
		h.endpoints[res] = h.endpoint(&operation{resource: res, service: service, headers: h.Deprecated[res.Name].headers()})
	}
	h.notFound = [2]*endpoint{h.endpoint(nil), h.endpoint(&operation{})}
	return h.provision(ctx, h)
}

// Validate checks the bounds, the base path, the names of resources, and that each has its upstream.
func (h *API) Validate() error {
	if h.MaxBody < 0 || h.BodyTimeout < 0 || h.Timeout < 0 || h.MaxResponseSize < 0 {
		return errors.New("max_body, body_timeout, timeout and max_response_size must not be negative")
	}
	if h.BasePath != "" && (!strings.HasPrefix(h.BasePath, "/") || strings.HasSuffix(h.BasePath, "/") ||
		strings.ContainsAny(h.BasePath, "?#%*{} ")) {
		return fmt.Errorf("base_path %q: must begin with a slash, must not end with one, and must hold plain path characters only",
			h.BasePath)
	}
	for _, name := range h.PassUnknownFields {
		if !isProxied(name) {
			return fmt.Errorf("pass_unknown_fields: unknown resource %q: must be one of %s", name, proxiedNames())
		}
	}
	for name, d := range h.Deprecated {
		if !isResource(name) {
			return fmt.Errorf("deprecated: unknown resource %q: must be one of %s", name, resourceNames())
		}
		if !d.Sunset.IsZero() && d.Sunset.Before(d.Since) {
			return fmt.Errorf("deprecated %s: the sunset is before the deprecation", name)
		}
	}
	served, err := h.served()
	if err != nil {
		return err
	}
	for _, res := range upstream.Resources() {
		if !res.ByGateway && !served[res.Name] && !served[""] {
			return fmt.Errorf("gatehouse_api: no upstream serves %q: add an upstream without a resource, which serves all that is left", res.Name)
		}
	}
	return nil
}

// served returns the names of the resources that upstreams serve, "" for all that no other names. None may be there twice.
func (h *API) served() (map[string]bool, error) {
	served := map[string]bool{}
	for _, u := range h.Upstreams {
		names := u.Resources
		if len(names) == 0 {
			names = []string{""}
		}
		for _, name := range names {
			switch {
			case name != "" && !isProxied(name):
				return nil, fmt.Errorf("upstream: unknown resource %q: must be one of %s", name, proxiedNames())
			case served[name] && name == "":
				return nil, errors.New("upstream: there are two upstreams without a resource")
			case served[name]:
				return nil, fmt.Errorf("upstream: two upstreams serve %q", name)
			}
			served[name] = true
		}
	}
	return served, nil
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

// operation is what a path of the API names.
type operation struct {
	resource *upstream.Resource // nil: the path is unknown
	service  *dataService       // nil: the gateway responds itself
	headers  http.Header        // that announce its deprecation
}

// apiRequest is one API request and what the steps of serve know of it.
type apiRequest struct {
	*request
	op *operation

	credential *authsigner.Credential // set if and only if the signature verified
	authErr    error                  // why it did not, or why the account may not call
	endLookup  func()                 // lets others of the client IP look up keys; nil if this request need not
	limited    bool                   // a rate limit has decided
	bucket     [1]ratelimit.Bucket    // scratch

	verifyTime, limitTime, upstreamTime time.Duration
}

// endpoint is the front door's view of an operation. Nil stands for everything that is not below /api/v1.
func (h *API) endpoint(op *operation) *endpoint {
	e := &endpoint{
		name: "none", maxBody: h.MaxBody, bodyTimeout: time.Duration(h.BodyTimeout),
		serve: func(w http.ResponseWriter, r *http.Request, req *request) error {
			return h.serve(w, r, &apiRequest{request: req, op: op})
		},
		fail: func(w http.ResponseWriter, _ *http.Request, req *request, p problem) { p.write(w, req.id(), h.Docs) },
	}
	switch {
	case op == nil:
		e.maxBody = 0
		e.serve = func(http.ResponseWriter, *http.Request, *request) error { return errNotFound }
	case op.resource != nil:
		e.name = op.resource.Name
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

// signedTarget cuts the base path off a target in origin form, and reports whether what is left is below /api/v1.
func signedTarget(target, basePath string) (string, bool) {
	target, ok := strings.CutPrefix(target, basePath)
	if !ok {
		return target, false
	}
	rest, ok := strings.CutPrefix(target, apiPrefix)
	return target, ok && (rest == "" || rest[0] == '/' || rest[0] == '?')
}

// serve responds to a request below /api/v1. The front door has matched its path.
func (h *API) serve(w http.ResponseWriter, r *http.Request, req *apiRequest) error {
	req.details = req

	// 1. Route. A request for what does not exist counts against a rate limit like any other, so it is refused below.
	routeErr := req.op.allows(r.Method)

	// 2. Authenticate.
	defer req.leaveLookups()
	start := time.Now()
	authErr, err := h.authenticate(w, r, req)
	if err != nil {
		return err
	}
	req.verifyTime = time.Since(start)

	// 3. Rate limit.
	start = time.Now()
	err = h.rateLimit(w, r, req)
	req.leaveLookups() // now that it is counted
	req.limitTime = time.Since(start)
	switch {
	case err != nil:
		return err
	case clientGone(r.Context(), authErr):
		return fmt.Errorf("%w: %w", errClientGone, context.Cause(r.Context()))
	case routeErr != nil:
		return routeErr
	case authErr != nil && req.op.resource.Auth == upstream.AuthSigned:
		return authErr
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
	defer func() {
		x.release()
		h.exchanges.Put(x)
	}()
	start = time.Now()
	err = req.op.service.do(out, start.Add(time.Duration(h.Timeout)), &x.response)
	req.upstreamTime = time.Since(start)
	h.metrics.called(req.op.resource.Name, req.upstreamTime)
	if err != nil && r.Context().Err() != nil {
		return fmt.Errorf("%w: %w", errClientGone, context.Cause(r.Context()))
	} else if err != nil {
		return err
	}

	// 6. Check the response.
	if err := h.check(x, req, query); err != nil {
		return err
	}
	x.response.release() // what is left is this caller's, who may be slow to read it

	// 7. Respond.
	upstream.ForwardHeaders(w.Header(), x.response.header)
	writeJSON(w, http.StatusOK, x.checked.Bytes())
	return nil
}

// exchange is the working memory of one exchange with a data service, pooled.
type exchange struct {
	response response
	checked  bytes.Buffer
}

// keptChecked is the capacity, in bytes, of a checked body's buffer that is kept for the next exchange, so that one large
// response does not hold its memory for ever.
const keptChecked = 256 << 10

func (x *exchange) release() {
	x.response.release()
	x.response.header = nil
	x.checked.Reset()
	if x.checked.Cap() > keptChecked {
		x.checked = bytes.Buffer{}
	}
}

// allows reports an error unless the operation exists and has the method.
func (op *operation) allows(method string) error {
	switch {
	case op.resource == nil:
		return errNotFound
	case method != http.MethodGet && method != http.MethodHead:
		return errMethodNotAllowed
	default:
		return nil
	}
}

// authenticate sets the credential if the signature verifies, and returns why it does not otherwise. The second error is a
// refusal before anything was looked up: a client IP that has exhausted its limit for unauthenticated requests causes no
// lookup of unknown keys. Of one that has not, only a few requests at once may look up keys that are not cached. Each of them
// is counted before another takes its place, so that requests sent at once cannot all pass the check of the limit.
func (h *API) authenticate(w http.ResponseWriter, r *http.Request, req *apiRequest) (authErr, err error) {
	key, named := namedKey(r)
	switch {
	case !named:
		req.authErr = authsigner.ErrMissingCredentials
		return req.authErr, nil
	case authsigner.ValidPublicKey(key) && !h.app.credentials.cache.Known(key):
		ip := ratelimit.IPKey(req.clientIP)
		if !h.app.credentials.cache.Has(key) {
			if req.endLookup, req.authErr = h.app.credentials.lookups.acquire(r.Context(), ip); req.authErr != nil {
				return req.authErr, nil
			}
			if h.app.credentials.cache.Known(key) { // another request has looked it up meanwhile
				req.leaveLookups()
			}
		}
		res, err := h.app.limiter.Peek(r.Context(), ip, ratelimit.UnverifiedIP(ip))
		if err == nil && !res.Allowed {
			if err := h.deny(w, req, res); err != nil { // nil in shadow mode
				return nil, err
			}
		}
	}
	req.credential, req.authErr = h.verifier.Verify(r, req.target)
	return req.authErr, nil
}

// leaveLookups ends what acquire has begun, if it has.
func (req *apiRequest) leaveLookups() {
	if req.endLookup != nil {
		req.endLookup()
	}
}

// namedKey returns the public key that a request names, and whether it names one.
func namedKey(r *http.Request) (string, bool) {
	switch keys := r.Header[authsigner.HeaderPublicKey]; len(keys) {
	case 0:
		return "", false
	case 1:
		return keys[0], keys[0] != ""
	default:
		return "several", true // not a public key: it is too short
	}
}

// rateLimit counts the request against its rate limit key (contract, section 4), and sets the headers that tell of it.
func (h *API) rateLimit(w http.ResponseWriter, r *http.Request, req *apiRequest) error {
	var (
		ctx     = r.Context()
		group   string
		buckets []ratelimit.Bucket
	)
	if req.credential == nil {
		// A client that cannot sign is charged whether or not it waits for the response, or else naming a key and breaking
		// off would cause lookups at no cost.
		ctx = context.WithoutCancel(ctx)
	}
	switch key, named := namedKey(r); {
	case req.credential != nil:
		group, req.bucket[0] = h.app.limits.key(req.credential)
		buckets = req.bucket[:]
	case named:
		group, buckets = ratelimit.ForUnverified(key, ratelimit.IPKey(req.clientIP))
	default:
		group, req.bucket[0] = h.app.limits.address(req.clientIP)
		buckets = req.bucket[:]
	}
	res, err := h.app.limiter.Allow(ctx, group, buckets...)
	req.limited = true
	h.metrics.authenticated(req.authResult())
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", errClientGone, context.Cause(ctx))
		}
		return fmt.Errorf("%w: %w", errLimitUnavailable, err)
	}
	h.metrics.limited(res)
	if !res.Allowed {
		return h.deny(w, req, res)
	}
	res.SetHeaders(w.Header(), time.Now())
	return nil
}

// deny refuses a request over its limit. In shadow mode it only reports it.
func (h *API) deny(w http.ResponseWriter, req *apiRequest, res ratelimit.Result) error {
	res.SetHeaders(w.Header(), time.Now())
	if h.app.Limits.Shadow {
		w.Header().Del("Retry-After") // the request is served
		h.metrics.shadowed(res)
		if e := h.logger.Check(zap.InfoLevel, "limit used up, not enforced in shadow mode"); e != nil {
			e.Write(zap.String("request_id", req.id()), zap.String("limit", res.Tightest().Limit.Name))
		}
		return nil
	}
	return &rateLimitedError{retryAfter: res.RetryAfter, limit: res.Tightest().Limit.Name}
}

// clientGone reports whether the client closed the connection before it was authenticated. net/http ends the request's
// context with the first read of the connection that fails. One that failed because of its deadline does not mean that:
// that client is there, and slow.
func clientGone(ctx context.Context, authErr error) bool {
	return authErr != nil && ctx.Err() != nil && !errors.Is(authErr, os.ErrDeadlineExceeded)
}

// respondItself responds without a data service: to /status, and to /me from the credential record, so that keys can be
// checked while data services are down.
func (h *API) respondItself(w http.ResponseWriter, req *apiRequest) error {
	if req.op.resource.Auth == upstream.AuthNone {
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
	enc.SetEscapeHTML(false) // it is not HTML
	c := req.credential
	if err := enc.Encode(struct {
		Business business `json:"business"`
	}{business{c.BusinessID, c.BusinessName, c.BusinessSlug}}); err != nil {
		return fmt.Errorf("encoding the credential's business: %w", err)
	}
	writeJSON(w, http.StatusOK, bytes.TrimSuffix(body.Bytes(), []byte("\n")))
	return nil
}

// prepare makes the request that the data service gets.
func (h *API) prepare(r *http.Request, req *apiRequest, query upstream.Query) (*http.Request, error) {
	id := upstream.Identity{BusinessID: req.credential.BusinessID, RequestID: req.id()}
	if h.app.asserter != nil {
		assertion, err := h.app.asserter.Assert(req.op.resource, id.BusinessID, id.RequestID)
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

// setForwarded tells the data service of the client's side of the gateway. A trusted proxy between them is listed behind
// the client's IP, as a reverse proxy does.
func setForwarded(out *http.Request, clientIP netip.Addr) {
	const name = "X-Forwarded-For"
	peer, _, err := net.SplitHostPort(out.RemoteAddr)
	peer, _, _ = strings.Cut(peer, "%")
	trusted, _ := caddyhttp.GetVar(out.Context(), caddyhttp.TrustedProxyVarKey).(bool)
	// Not shared with other requests: whoever changes a header may do so in place.
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

// viaCaddy is a proxy's Via (RFC 9110, section 7.6.3), as reverse_proxy sends it.
func viaCaddy(protoMajor int) string {
	switch protoMajor {
	case 2:
		return "2.0 Caddy"
	case 3:
		return "3.0 Caddy"
	}
	return "1.1 Caddy"
}

// check writes to x.checked what of a response the contract defines for this tenant.
func (h *API) check(x *exchange, req *apiRequest, query upstream.Query) error {
	res := req.op.resource
	if err := upstream.CheckHead(res, x.response.status, x.response.header); err != nil {
		h.metrics.checked(res.Name, upstream.Report{}, err)
		if d, ok := upstream.RetryAfter(x.response.header, time.Now()); ok {
			return &retryLaterError{after: d, err: err}
		}
		return err
	}
	report, err := h.contract.Check(&x.checked, res, query, req.credential.BusinessID, x.response.body.Bytes())
	h.metrics.checked(res.Name, report, err)
	if err != nil {
		return err
	}
	if report.Foreign > 0 {
		h.logger.Error("the data service sent records of another business, they were left out",
			zap.String("request_id", req.id()), zap.String("resource", res.Name),
			zap.String("business", req.credential.BusinessID), zap.Int("records", report.Foreign))
	}
	return nil
}

// appendLogFields adds who called and where the time went to the request's log line.
func (req *apiRequest) appendLogFields(fields []zap.Field) []zap.Field {
	if c := req.credential; c != nil {
		fields = append(fields, zap.String("business", c.BusinessID), zap.String("public_key", c.PublicKey))
	}
	if req.limited {
		fields = append(fields, zap.String("authentication", req.authResult()), zap.Duration("verify", req.verifyTime),
			zap.Duration("limit", req.limitTime))
	}
	if req.upstreamTime > 0 {
		fields = append(fields, zap.Duration("upstream", req.upstreamTime))
	}
	return fields
}

// authResult is the result of authentication in a log line or a label: one of a fixed few.
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
	_ caddy.Provisioner           = (*API)(nil)
	_ caddy.Validator             = (*API)(nil)
	_ caddy.CleanerUpper          = (*API)(nil)
	_ caddyhttp.MiddlewareHandler = (*API)(nil)
	_ route                       = (*API)(nil)
)
