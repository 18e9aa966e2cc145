package caddymodule

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/caddymodule/internal/dataservice"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// API serves the signed API: it authenticates requests, enforces rate limits, calls the data services, and returns the parts of
// their responses that the contract defines. It responds to every request that reaches it; paths outside the API get 404.
type API struct {
	signed

	// Definition is the OpenAPI document of the API. Default: the public contract's, which is built in.
	Definition *Definition `json:"definition,omitempty"`

	// BasePath is the path under which the API is mounted, such as "/gw" for https://example.com/gw/api/v1.
	// Signatures do not cover it. Default: the API is mounted at the root.
	BasePath string `json:"base_path,omitempty"`

	// Docs is a URL that every error response has in its member "docs". Default: the member is omitted.
	Docs string `json:"docs,omitempty"`

	// DocsPath is the path of the reference for callers, such as /docs, an HTML page. The published document is below it, as openapi.yaml.
	// BasePath does not precede it. Default: neither is served.
	DocsPath string `json:"docs_path,omitempty"`

	// DocsBaseURL is the gateway's URL in the reference and the published document: the origin of the site, and BasePath. Default:
	// https://api.example.com, an example.
	DocsBaseURL string `json:"docs_base_url,omitempty"`

	// MaxBody is the maximum size of a request body in bytes; a larger one gets 413. Default: 1 MiB. Zero means the default.
	MaxBody int64 `json:"max_body,omitempty"`

	// BodyTimeout is the time in which a request body must arrive. Default: 10s. Zero means the default.
	BodyTimeout caddy.Duration `json:"body_timeout,omitempty"`

	// Timeout limits the exchange with a data service, retries included. Default: 10s. Zero means the default.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// MaxResponseSize is the maximum size of a data service's response in bytes; a larger one becomes a 502. Responses above
	// 256 KiB share 64 MiB of memory, of which one business may hold a quarter, or one response if that is more; others wait,
	// up to Timeout. Default: 8 MiB. Zero means the default.
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

	contract    *upstream.Contract
	api         *upstream.API
	operations  map[*upstream.Operation]*operation
	methods     map[*upstream.Path]*operation // for other methods
	unknownPath *operation                    // below the API's base path
	outsideAPI  *operation
	docs        map[string]*operation // by path
	buffers     sync.Pool             // of *bytes.Buffer, for checked responses
}

// APIUpstream is a data service.
type APIUpstream struct {
	// Resources are the names of the resources that it serves. Default: all resources that no other upstream names.
	Resources []string `json:"resources,omitempty"`

	// HandlerRaw is a reverse_proxy handler. Its options for addresses, selection policies, health checks, retries,
	// header_up and the transport http, over HTTP/1.1 and without a forward proxy, are supported. Defaults that are not
	// Caddy's: 256 idle connections to each address, response headers of 64 KiB; with several addresses, 2 retries within 5s
	// and a fail_duration of 10s. Required.
	HandlerRaw json.RawMessage `json:"handler" caddy:"namespace=http.handlers inline_key=handler"`

	service *dataservice.Service
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
	if slices.Contains(h.Upstreams, nil) { // in JSON
		h.Upstreams = nil // for Cleanup
		return errNullUpstream
	}
	if err := h.provisionSigned(ctx, "api", h, &h.MaxBody, &h.BodyTimeout); err != nil {
		return err
	}
	app := h.app
	if err := resolve(caddy.NewReplacer(), &h.Docs); err != nil {
		return err
	}
	h.Timeout = cmp.Or(h.Timeout, caddy.Duration(defaultUpstreamTimeout))
	h.MaxResponseSize = cmp.Or(h.MaxResponseSize, upstream.DefaultMaxResponseSize)
	h.unsigned = h.BasePath
	h.contract = &upstream.Contract{AllowMissingTenant: h.AllowMissingTenant, BasePath: h.BasePath, PassUnknownFields: map[string]bool{}}
	for _, name := range h.PassUnknownFields {
		h.contract.PassUnknownFields[name] = true
		if h.Definition != nil && h.Definition.Name != "" {
			h.contract.PassUnknownFields[h.Definition.Name+"/"+name] = true
		}
	}
	h.buffers.New = func() any { return new(bytes.Buffer) }
	loaded, err := loadDefinition(h.Definition)
	if err != nil {
		return err
	}
	h.api = loaded.API
	if err := cmp.Or(app.claimNames(h.api, h.Definition), app.claimPaths(ctx, h)); err != nil {
		return err
	}
	logDefinition(h.logger, loaded)
	if app.asserter != nil {
		app.asserter.AddAudiences(h.api.Resources(true)...)
	}
	for _, u := range h.Upstreams {
		if u.service, err = app.loadService(ctx, u, "HandlerRaw", &u.HandlerRaw); err != nil {
			return err
		}
	}
	served, err := h.served()
	if err != nil {
		return err
	}
	observed, err := h.observe()
	if err != nil {
		return err
	}
	h.operations, h.methods = map[*upstream.Operation]*operation{}, map[*upstream.Path]*operation{}
	for _, path := range h.api.Paths() {
		for _, op := range path.Operations {
			if app.Limits.Algorithm == string(ratelimit.GCRA) && !app.Limits.AllowReplayedWrites && !op.Read && !op.Public {
				return fmt.Errorf("%s would always respond with 503, because the algorithm gcra does not know which signed writes were received before:"+
					" use algorithm exact, or set allow_replayed_writes", op.ID)
			}
			res := &resource{Operation: op, name: bare(h.api, op.Resource), headers: op.Deprecated, observed: observed[op]}
			if d, ok := h.Deprecated[res.name]; ok {
				res.headers = d.headers()
			}
			if u := cmp.Or(served[res.name], served[""]); u != nil && !op.ByGateway {
				res.service, res.metrics = u.service, app.metrics.resource(op.Resource)
				app.public = app.public || op.Public
			}
			h.operations[op] = h.serve(label(h.api, op), path, res)
		}
		h.methods[path] = h.serve(label(h.api, path.Operations[0]), path, nil)
	}
	h.unknownPath = h.serve("none", nil, nil)
	h.outsideAPI = h.withMetrics(operation{
		name: "none", docs: h.Docs,
		handle: func(http.ResponseWriter, *http.Request, *request) error { return errNotFound },
	})
	return h.provisionDocs(loaded)
}

// logDefinition logs the warnings about a definition, and names the operations for which data services are trusted.
func logDefinition(logger *zap.Logger, d *definition.Definition) {
	for _, w := range d.Warnings {
		logger.Warn("warning about the definition", zap.Error(w))
	}
	var trusted, unchecked []string
	for _, op := range d.API.Operations() {
		if op.TrustsService() {
			trusted = append(trusted, label(d.API, op))
		}
		if op.Unchecked() {
			unchecked = append(unchecked, label(d.API, op))
		}
	}
	if trusted != nil {
		logger.Info("these operations trust the data service to respond only for the business in the request", zap.Strings("operations", trusted))
	}
	if unchecked != nil {
		logger.Info("bodies of some media types are passed on unchecked", zap.Strings("operations", unchecked))
	}
}

// Validate implements caddy.Validator.
func (h *API) Validate() error {
	if h.MaxBody < 0 || h.BodyTimeout < 0 || h.Timeout < 0 || h.MaxResponseSize < 0 {
		return errors.New("max_body, body_timeout, timeout and max_response_size must not be negative")
	}
	if err := checkPath("base_path", h.BasePath); err != nil {
		return err
	}
	if h.api == nil { // before Provision, for the Caddyfile and `gatehouse check`
		var err error
		if h.api, err = apiOf(h.Definition); err != nil {
			return err
		}
	}
	if err := h.checkDocsPath(); err != nil {
		return err
	}
	for _, name := range h.PassUnknownFields {
		if err := checkResource("pass_unknown_fields", name, resourcesOf(h.api)); err != nil {
			return err
		}
	}
	for name, d := range h.Deprecated {
		all := h.api.Resources(false)
		for i := range all {
			all[i] = bare(h.api, all[i])
		}
		if err := checkResource("deprecated", name, all); err != nil {
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
	for _, name := range resourcesOf(h.api) {
		if served[name] == nil && served[""] == nil {
			return fmt.Errorf("gatehouse_api: no upstream serves %q: add it to an upstream, or add an upstream without resources, which serves all others", name)
		}
	}
	return nil
}

func checkPath(option, path string) error {
	if path != "" && (!strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") || strings.ContainsAny(path, "?#%*{} ")) {
		return fmt.Errorf("invalid %s %q: must begin with a slash, must not end with one, and must not contain spaces or any of ?#%%*{}", option, path)
	}
	return nil
}

// Cleanup closes idle connections to data services.
func (h *API) Cleanup() error {
	for _, u := range h.Upstreams {
		u.service.Close()
	}
	return nil
}

// match implements route. The path is matched byte for byte: nothing is decoded or normalised.
func (h *API) match(r *http.Request, req *request) *operation {
	target, ok := h.signedTarget(req.target)
	if !ok {
		path, _, _ := strings.Cut(req.target, "?")
		return cmp.Or(h.docs[path], h.outsideAPI)
	}
	m, ok := h.api.Match(target)
	req.target, req.matched = target, m
	if !ok {
		return h.unknownPath
	}
	if op := m.Path.Operation(r.Method); op != nil {
		return h.operations[op]
	}
	return h.methods[m.Path]
}

// handle responds to a request below the API's base path in eight steps. Nothing travels in a context value from one to another.
func (h *API) handle(w http.ResponseWriter, r *http.Request, req *apiRequest) error {
	req.details = req

	// 1. Route: match has set req.resource. Unknown paths and methods are denied in step 4, because they count against a limit too.

	// 2. Authenticate, and 3. rate limit. A signed write that is denied for another reason leaves no mark there.
	if res := req.resource; res != nil && !res.Read {
		req.repeatable = res.Forwards("Idempotency-Key") && len(r.Header["Idempotency-Key"]) == 1
		if !res.Public {
			req.once = func() bool { return h.authorize(r, req) == nil && h.prepare(r, req) == nil }
		}
	}
	defer func() {
		if req.sent != nil {
			h.free(req.sent)
		}
	}()
	if err := h.authenticateAndCount(w, r, &req.signedRequest); err != nil {
		return err
	}

	// 4. Authorize.
	if err := h.authorize(r, req); err != nil {
		return err
	}

	// 5. Clean the request.
	if err := h.prepare(r, req); err != nil {
		return err
	}
	query := req.query
	for name, values := range req.resource.headers {
		w.Header()[name] = slices.Clone(values) // Caddy's header directive may change them in place
	}
	if query.Ignored != "" && !req.resource.Public {
		w.Header()["X-Ignored-Parameters"] = []string{query.Ignored}
	}
	if req.resource.service == nil {
		return h.respondLocally(w, req)
	}

	// 6. Call the data service.
	res, err := h.call(r, req, query)
	if err != nil {
		return req.uncertain(err)
	}
	defer res.Release()

	// 7. Check the response.
	checked, _ := h.buffers.Get().(*bytes.Buffer)
	defer h.free(checked)
	documented, err := h.check(r, req, query, res, checked)
	if err == nil && res.Status == http.StatusNotModified && req.resource.MayHide() {
		err = h.checkUnconditional(r, req, query)
	}
	if passed := new(upstream.StatusError); res.Status == http.StatusMethodNotAllowed && (err == nil || errors.As(err, &passed)) { // RFC 9110, section 15.5.6
		w.Header()["Allow"] = []string{req.path.Allow}
	}
	if err != nil {
		return req.uncertain(err)
	}

	// 8. Respond.
	upstream.ForwardHeaders(w.Header(), res.Header)
	h.respond(w, r, req, documented, res, checked.Bytes())
	return nil
}

// authorize returns why a request that has been counted is denied, or nil.
func (h *API) authorize(r *http.Request, req *apiRequest) error {
	res, path, denied := req.resource, req.path, h.deny(r, &req.signedRequest)
	switch {
	case errors.Is(denied, errClientGone):
		return denied
	case path == nil:
		return errNotFound
	case res == nil:
		return &methodNotAllowedError{path.Allow}
	case denied != nil && !res.Public:
		return denied
	case res.service != nil && !res.Public && !req.credential.MayCall(h.api.Name(), res.name),
		res.service == nil && !res.Public && h.api.Name() != "" && !req.credential.IsFor(h.api.Name()):
		return errForbidden
	case !res.Read && !res.Public && !req.credential.Write:
		return errWriteNotAllowed
	}
	return nil
}

// serve returns the operation of a resource, of other methods of a path if that is nil, or of unknown paths if both are.
func (h *API) serve(name string, path *upstream.Path, res *resource) *operation {
	return h.withMetrics(operation{
		name: name, maxBody: h.MaxBody, bodyTimeout: time.Duration(h.BodyTimeout), docs: h.Docs,
		handle: func(w http.ResponseWriter, r *http.Request, req *request) error {
			return h.handle(w, r, &apiRequest{signedRequest: signedRequest{request: req}, path: path, resource: res})
		},
	})
}

// resource is an operation and how it is served.
type resource struct {
	*upstream.Operation
	name     string               // of the resource, without the API's
	service  *dataservice.Service // nil: the gateway responds itself
	metrics  *resourceMetrics     // of the service's responses
	observed *observed            // nil: none may deviate
	headers  http.Header          // if it is deprecated
}

// apiRequest is one API request and what the steps of handle know of it.
type apiRequest struct {
	signedRequest
	path     *upstream.Path // nil: it is unknown
	resource *resource      // nil: it has no such method

	// What prepare has found.
	prepared  bool
	invalid   error
	query     upstream.Query
	sent      *bytes.Buffer // the body for the data service; nil: not checked
	mediaType string        // empty: there is none

	upstreamTime, checkTime time.Duration
	upstreamAddress         string // of the data service
}

// signedTarget strips the base path from a target in origin form, and reports whether the result is below that of the API.
func (h *API) signedTarget(target string) (string, bool) {
	target, ok := strings.CutPrefix(target, h.BasePath)
	if !ok {
		return target, false
	}
	rest, ok := strings.CutPrefix(target, h.api.Base())
	return target, ok && (rest == "" || rest[0] == '/' || rest[0] == '?')
}

// respond writes a data service's response that has been checked.
func (h *API) respond(w http.ResponseWriter, r *http.Request, req *apiRequest, documented *upstream.DocumentedResponse, res *upstream.Response, body []byte) {
	header, business := w.Header(), req.business()
	etag, location := documented.Headers(h.api, h.BasePath, business, res.Header, res.Hosts[:]...)
	if etag == "" && res.Status == http.StatusNotModified { // a cache would drop what it has with no-store
		etag, _ = documented.Headers(h.api, h.BasePath, business, http.Header{"Etag": r.Header["If-None-Match"]}, res.Hosts[:]...)
	}
	if location != "" {
		header["Location"] = []string{location}
	} else if documented.Location && res.Header["Location"] != nil {
		h.logger.Debug("removed from a response", zap.String("request_id", req.id), zap.String("operation", req.resource.ID),
			zap.Any("removed", []upstream.Violation{{Reason: "the header Location is removed: it does not lead to an operation for this caller"}}))
	}
	switch {
	case documented.Body != nil:
		writeBody(w, res.Status, documented.MediaType(res.Header.Get("Content-Type")), body, etag)
	case documented.Unchecked != nil:
		header["X-Content-Type-Options"] = []string{"nosniff"}
		if values := res.Header["Content-Disposition"]; len(values) > 0 { // what is a download must not open
			header["Content-Disposition"] = values[:1]
		}
		// an image or a page of a public operation opens on the same origin as the pages of a connection server
		header["Content-Security-Policy"] = []string{"script-src 'none'; form-action 'none'; base-uri 'none'"}
		writeBody(w, res.Status, res.Header.Get("Content-Type"), res.Body, etag)
	default:
		writeBody(w, res.Status, "", nil, etag)
	}
}

// respondLocally responds without a data service: with a constant, or from the credential, so that callers can check their keys while
// data services are down.
func (h *API) respondLocally(w http.ResponseWriter, req *apiRequest) error {
	answer := req.resource.StaticBody
	if answer == nil {
		c := req.credential
		answer = req.resource.Identity(map[string]string{"id": c.BusinessID, "name": c.BusinessName, "slug": c.BusinessSlug})
	}
	writeJSON(w, http.StatusOK, answer)
	return nil
}

// appendLogFields adds the caller, the data service and the durations of the steps to the request's log line.
func (req *apiRequest) appendLogFields(fields []zap.Field) []zap.Field {
	fields = req.signedRequest.appendLogFields(fields)
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

// Interface guards
var (
	_ caddy.Provisioner           = (*API)(nil)
	_ caddy.Validator             = (*API)(nil)
	_ caddy.CleanerUpper          = (*API)(nil)
	_ caddyhttp.MiddlewareHandler = (*API)(nil)
)
