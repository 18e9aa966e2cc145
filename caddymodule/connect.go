package caddymodule

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/caddymodule/internal/dataservice"
	"github.com/gatehouse-gateway/gatehouse/connect"
	"github.com/gatehouse-gateway/gatehouse/connect/pages"
	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// Connect serves the connection server for AI assistants: OAuth 2.1 with PKCE, MCP, and the pages on which users sign in, and
// approve and end connections. Requests for other paths go to the next handler.
type Connect struct {
	frontDoor

	// Issuer is the public origin of this site, without a trailing slash, such as "https://api.example.com". It is the issuer
	// of tokens; assistants connect to its path /mcp. The scheme http is allowed for loopback hosts only. Placeholders are
	// resolved. Required.
	Issuer string `json:"issuer"`

	// UpstreamRaw is the reverse_proxy handler that sends calls to the data service. It supports the same options as an
	// upstream of gatehouse_api. Required.
	UpstreamRaw json.RawMessage `json:"upstream" caddy:"namespace=http.handlers inline_key=handler"`

	// Name is the platform's name that users and assistants see. Default: the issuer's host, without the port.
	Name string `json:"name,omitempty"`

	pages.Brand

	// HomePage serves a page at / that explains how to connect an assistant. Requests for other hosts go to the next handler.
	// Default: false.
	HomePage bool `json:"home_page,omitempty"`

	// ManageKeys adds a page on which owners issue, rotate and revoke their business's keys for the public API. The gateway
	// must have permission to list, write and delete in the credential source. Default: false.
	ManageKeys bool `json:"manage_keys,omitempty"`

	// Timeout limits one call to the data service, retries included. Default: 15s. Zero means the default.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// SessionIdle is how long a user's session on the pages may be unused before it ends. Default: 1h. Zero means the
	// default.
	SessionIdle caddy.Duration `json:"session_idle,omitempty"`

	// SessionMax is how long after sign-in a user's session ends. Default: 12h. Zero means the default.
	SessionMax caddy.Duration `json:"session_max,omitempty"`

	// ClientSchemes are the private-use URI schemes allowed in redirect URIs, in addition to reverse domain names such as
	// com.example.app (RFC 8252, section 7.1): lower case, without a colon. Default: oauth.DefaultClientSchemes.
	ClientSchemes []string `json:"client_schemes,omitempty"`

	// Definition is the document with the calls to the data service and the tools that make them: see
	// docs/definition.md#tools-for-assistants. Default: the embedded one.
	Definition *Definition `json:"definition,omitempty"`

	// ExceptAreas are the areas of a business's account that are switched off: their scopes and tools do not exist. Possible are
	// business, contacts, conversations, appointments, receptionist, sales, automations and objects, but not all of them.
	// Default: none.
	ExceptAreas []string `json:"except_areas,omitempty"`

	metrics    *connectMetrics
	server     *connect.Server
	service    *dataservice.Service
	operations map[*connect.Operation]*operation
}

const connectName = "gatehouse_connect"

// CaddyModule returns the Caddy module information.
func (*Connect) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers." + connectName,
		New: func() caddy.Module { return new(Connect) },
	}
}

// Provision creates the server with the app's Redis, credentials and signing key.
func (h *Connect) Provision(ctx caddy.Context) error {
	err := h.provision(ctx, "connect", h)
	if err != nil {
		return err
	}
	app := h.app
	if err := app.claim(upstream.ConnectAudience, connectName); err != nil {
		return err
	}
	if app.redis == nil {
		return errors.New(`gatehouse_connect needs Redis to store connections: set "redis" in the global option "gatehouse"`)
	}
	issuer := h.Issuer
	if err := resolve(caddy.NewReplacer(), &issuer, &h.Name); err != nil {
		return err
	}
	if h.UpstreamRaw == nil {
		return errors.New("gatehouse_connect needs an upstream")
	}
	if app.connectUpstream == nil {
		app.connectUpstream = h.UpstreamRaw
	} else if !bytes.Equal(app.connectUpstream, h.UpstreamRaw) {
		return errors.New("all gatehouse_connect must have the same upstream, because they share Redis and the credential source, " +
			"in which the same ID is the same business or account")
	}
	if h.service, err = app.loadService(ctx, h, "UpstreamRaw", &h.UpstreamRaw); err != nil {
		return err
	}
	tools, err := h.loadTools()
	if err != nil {
		return fmt.Errorf("gatehouse_connect: %w", err)
	}
	logger, resource := ctx.Logger(), app.metrics.resource(upstream.ConnectAudience)
	logDefinition(logger, tools)
	stopping := make(chan struct{})
	if server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); ok {
		server.RegisterOnShutdown(sync.OnceFunc(func() { close(stopping) }))
	}
	o := connect.Options{
		Definition: tools, ExceptAreas: h.ExceptAreas, ClientSchemes: h.ClientSchemes,
		Issuer: issuer, Redis: app.redis.client, Version: caddy.CustomVersion,
		Do: h.service.Do, Timeout: time.Duration(h.Timeout), Stopping: stopping, OnResponse: resource.checked,
		Pages: pages.Options{
			Name: h.Name, Brand: h.Brand, HomePage: h.HomePage,
			SessionIdle: time.Duration(h.SessionIdle), SessionMax: time.Duration(h.SessionMax),
			ClientAddr: clientAddr,
		},
		Log: logger,
	}
	if h.ManageKeys {
		if app.credentials == nil {
			return errors.New(`manage_keys needs a credential source: set "credentials" in the global option "gatehouse"`)
		}
		if o.Pages.Keys, err = newPageKeys(app, logger); err != nil {
			return err
		}
	}
	if h.server, err = connect.New(o); err != nil {
		return fmt.Errorf("gatehouse_connect: %w", err)
	}
	h.metrics = app.metrics.connect(h.server.Tools())
	h.operations = map[*connect.Operation]*operation{}
	for _, op := range h.server.Operations() {
		h.operations[op] = h.adapt(op)
	}
	return nil
}

// Validate implements caddy.Validator.
func (h *Connect) Validate() error {
	if h.Timeout < 0 || h.SessionIdle < 0 || h.SessionMax < 0 {
		return errors.New("timeout, session_idle and session_max must not be negative")
	}
	return nil
}

// Cleanup closes the server. It also runs if Provision failed before it created one.
func (h *Connect) Cleanup() error {
	h.service.Close()
	if h.server != nil {
		h.server.Close()
	}
	return nil
}

// match implements route. Paths are matched exactly as sent; nothing is decoded or normalised.
func (h *Connect) match(r *http.Request, req *request) *operation {
	path, _, _ := strings.Cut(req.target, "?")
	if r.URL.Path != path || path == pages.HomePath && !slices.Contains(h.server.Hosts(), strings.ToLower(r.Host)) {
		return nil
	}
	return h.operations[h.server.Operation(path)]
}

// adapt adapts an operation of the connection server to the front door.
func (h *Connect) adapt(op *connect.Operation) *operation {
	return h.withMetrics(operation{
		name: op.Name, hosts: h.server.Hosts(), maxBody: op.MaxBody,
		handle: func(w http.ResponseWriter, r *http.Request, req *request) error {
			ctx, entry := requestlog.With(r.Context(), req.id)
			defer func() {
				details := &connectDetails{entry.Fields()}
				details.complete(req)
				req.details = details
				h.metrics.count(ctx, &details.Fields)
			}()
			op.ServeHTTP(w, r.WithContext(withWriteTimeout(ctx)))
			return nil
		},
		fail: func(w http.ResponseWriter, r *http.Request, req *request, p problem) {
			p.setHeaders(w.Header())
			ctx, _ := requestlog.With(r.Context(), req.id) // the front door has the error
			op.Fail(w, r.WithContext(ctx), p.Status, p.Error)
		},
	})
}

// withWriteTimeout adds the server's write timeout, which slow calls extend, where net/http has it. Over HTTP/3, quic-go does not.
func withWriteTimeout(ctx context.Context) context.Context {
	server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok || ctx.Value(http.ServerContextKey) != nil {
		return ctx
	}
	return context.WithValue(ctx, http.ServerContextKey, &http.Server{WriteTimeout: time.Duration(server.WriteTimeout)}) //nolint:gosec // it is not started
}

// connectDetails are the connection server's fields of a request's log line.
type connectDetails struct {
	requestlog.Fields
}

// complete sets the request's error. An error response without a code of its own gets the one of its status.
func (d *connectDetails) complete(req *request) {
	req.code, req.cause, req.level = d.Code, d.Cause, d.Level
	if status := req.writer.status; req.code == "" && status >= http.StatusBadRequest {
		req.code = problemOfStatus(status).Code
	}
}

// appendLogFields adds the caller, what it called, and the durations of the steps to the request's log line.
func (d *connectDetails) appendLogFields(fields []zap.Field) []zap.Field {
	for _, f := range [...]struct{ name, value string }{
		{"mcp_method", d.MCPMethod},
		{"grant_type", d.GrantType},
		{"page", d.Page},
		{"tool", d.Tool},
		{"outcome", cmp.Or(d.Outcome, d.SignIn)},
		{"business", d.BusinessID},
		{"grant_id", d.GrantID},
		{"client_id", d.ClientID},
		{"client_name", d.ClientName},
		{"upstream_address", d.UpstreamAddress},
	} {
		if f.value != "" {
			fields = append(fields, zap.String(f.name, f.value))
		}
	}
	for _, f := range [...]struct {
		name  string
		value time.Duration
	}{
		{"verify", d.Verify},
		{"limit", d.Limit},
		{"upstream", d.Upstream},
	} {
		if f.value > 0 {
			fields = append(fields, zap.Duration(f.name, f.value))
		}
	}
	return fields
}

// parseConnect parses the directive. Syntax:
//
//	gatehouse_connect [<matcher>] {
//	    issuer       <origin>
//	    upstream     <addresses...> {
//	        <options of reverse_proxy>
//	    }
//	    name         <name>
//	    logo         <file>
//	    accent_color <colour> [<dark colour>]
//	    support_url  <url>
//	    privacy_url  <url>
//	    terms_url    <url>
//	    home_page
//	    manage_keys
//	    timeout      <duration>
//	    session_idle <duration>
//	    session_max  <duration>
//	    client_schemes <schemes...>
//	    definition   <file> { ... }
//	    except_areas <areas...>
//	}
func parseConnect(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	h.Next() // consume the directive's name
	if err := onlyMatcher(h.Dispenser); err != nil {
		return nil, err
	}
	m := new(Connect)
	parseUpstream := func(d *caddyfile.Dispenser) (err error) {
		m.UpstreamRaw, err = dataservice.Parse(h, d.NextSegment())
		return err
	}
	var err error
	name := h.Val()
	if m.Definition, err = parseDefinitionFirst(h, name); err != nil {
		return nil, err
	}
	tools, err := m.loadTools()
	if err != nil {
		return nil, h.WrapErr(err)
	}
	err = parseBlock(h.Dispenser, name,
		text("issuer", &m.Issuer),
		option{name: "upstream", parse: parseUpstream},
		text("name", &m.Name),
		text("logo", &m.Logo),
		option{name: "accent_color", parse: m.parseAccentColor},
		text("support_url", &m.SupportURL),
		text("privacy_url", &m.PrivacyURL),
		text("terms_url", &m.TermsURL),
		flag("home_page", &m.HomePage),
		flag("manage_keys", &m.ManageKeys),
		duration("timeout", &m.Timeout),
		duration("session_idle", &m.SessionIdle),
		duration("session_max", &m.SessionMax),
		texts("client_schemes", &m.ClientSchemes),
		option{name: "definition", parse: skip},
		option{name: "except_areas", parse: func(d *caddyfile.Dispenser) error {
			if err := texts(d.Val(), &m.ExceptAreas).parse(d); err != nil {
				return err
			}
			if _, err := scope.New(tools.Areas).Without(m.ExceptAreas...); err != nil {
				return d.Errf("except_areas: %v", err)
			}
			return nil
		}},
	)
	if err != nil {
		return nil, err
	}
	h.Reset()
	h.Next() // the errors are about the directive, not about the end of its block
	switch {
	case m.Issuer == "":
		return nil, h.Err("gatehouse_connect needs an issuer: must be the origin of this site, such as https://api.example.com")
	case m.UpstreamRaw == nil:
		return nil, h.Err("gatehouse_connect needs an upstream, such as http://data.internal:8080")
	}
	return m, nil
}

func (h *Connect) parseAccentColor(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) != 1 && len(args) != 2 {
		return d.Err(`accent_color takes one colour, and optionally another for dark mode, in quotation marks because # begins a comment`)
	}
	h.AccentColor, h.AccentColorDark = args[0], strings.Join(args[1:], "")
	return nil
}

// loadTools returns the definition of the tools.
func (h *Connect) loadTools() (*definition.Definition, error) {
	switch d := h.Definition; {
	case d == nil:
		builtIn := *connect.Definition()
		builtIn.Warnings = nil // operators cannot change it
		return &builtIn, nil
	case d.Name != "" || d.File == "" || d.Enforce != upstream.EnforceAll:
		return nil, errors.New("the definition of gatehouse_connect must name a file, and must have neither a name nor the option enforce")
	default:
		d.tools = true
		return loadDefinition(d)
	}
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Connect)(nil)
	_ caddy.Validator             = (*Connect)(nil)
	_ caddy.CleanerUpper          = (*Connect)(nil)
	_ caddyhttp.MiddlewareHandler = (*Connect)(nil)
)
