package caddymodule

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/google/uuid"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/gatehouse-gateway/gatehouse/connect"
	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/connect/mcp"
)

// Connect is the connection server for AI assistants: OAuth 2.0 with PKCE, MCP, and the pages on which people sign in,
// approve and end connections. It answers its own paths and leaves every other request to the next handler.
type Connect struct {
	// Issuer is the origin under which everybody reaches this site, byte for byte, without a slash at its end:
	// "https://api.example.com". It is the issuer of tokens; with /mcp behind it, it is what assistants connect to. http
	// is for loopback names and addresses only. Placeholders are resolved. Required.
	Issuer string `json:"issuer"`

	// UpstreamRaw is the handler that carries calls to the data service: a reverse_proxy with all of its options.
	// Required.
	UpstreamRaw json.RawMessage `json:"upstream" caddy:"namespace=http.handlers inline_key=handler"`

	// Name is what this server calls itself to assistants and people. Default: Gatehouse.
	Name string `json:"name,omitempty"`

	// ManageKeys lets owners issue, rotate and revoke their business's keys for the public API on a page. The gateway's
	// login at the credential source must be allowed to list, write and delete. Default: false, and no such page.
	ManageKeys bool `json:"manage_keys,omitempty"`

	// Timeout bounds one call to the data service, retries included. Default: 15s. Zero means the default.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// SessionIdle ends a person's session on the pages that was not used for so long. Default: 1h. Zero means the default.
	SessionIdle caddy.Duration `json:"session_idle,omitempty"`

	// SessionMax ends a person's session so long after signing in. Default: 12h. Zero means the default.
	SessionMax caddy.Duration `json:"session_max,omitempty"`

	// Extensions add to the MCP server what a test suite asks of it. No configuration sets them: a test build does, whose
	// own module embeds this one.
	Extensions []mcp.Extension `json:"-"`

	server  *connect.Server
	metrics *metrics
	logger  *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (Connect) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.gateway_connect",
		New: func() caddy.Module { return new(Connect) },
	}
}

// Provision puts the server together over the app's Redis, credentials and signing key.
func (h *Connect) Provision(ctx caddy.Context) error {
	app, err := appOf(ctx)
	if err != nil {
		return err
	}
	if app.redis == nil {
		return errors.New(`gateway_connect keeps connections in Redis: set "redis" in the global option "gateway"`)
	}
	h.logger, h.metrics = ctx.Logger(), app.metrics
	issuer := h.Issuer
	if err := resolve(caddy.NewReplacer(), &issuer); err != nil {
		return err
	}
	if h.UpstreamRaw == nil {
		return errors.New("gateway_connect has no upstream")
	}
	mod, err := ctx.LoadModule(h, "UpstreamRaw")
	if err != nil {
		return fmt.Errorf("loading the upstream: %w", err)
	}
	proxy, ok := mod.(caddyhttp.MiddlewareHandler)
	if !ok {
		return fmt.Errorf("loading the upstream: module %T is no handler", mod)
	}
	o := connect.Options{
		Issuer: issuer, Redis: app.redis.client, Name: h.Name, Version: caddy.CustomVersion,
		// reverse_proxy knows where the data service is; this is the Host that it sees, unless header_up says otherwise
		Upstream:  strings.Replace(issuer, "https://", "http://", 1),
		Transport: &proxyTransport{proxy: proxy, asserter: app.asserter, maxAnswer: data.DefaultMaxAnswer},
		Timeout:   time.Duration(h.Timeout), SessionIdle: time.Duration(h.SessionIdle), SessionMax: time.Duration(h.SessionMax),
		ClientAddr: func(r *http.Request) netip.Addr { return clientAddr(r.Context()) },
		Extensions: h.Extensions,
		Log:        h.logger,
	}
	if h.ManageKeys {
		if app.credentials == nil {
			return errors.New(`manage_keys needs a source of credentials: set "secrets" in the global option "gateway"`)
		}
		o.Keys = &businessKeys{credentials: app.credentials, redis: app.redis, logger: h.logger}
	}
	if h.server, err = connect.New(o); err != nil {
		return fmt.Errorf("gateway_connect: %w", err)
	}
	return nil
}

// Validate checks the bounds.
func (h *Connect) Validate() error {
	if h.Timeout < 0 || h.SessionIdle < 0 || h.SessionMax < 0 {
		return errors.New("timeout, session_idle and session_max must not be negative")
	}
	return nil
}

// Cleanup lets go of the server, if Provision got so far as to make one.
func (h *Connect) Cleanup() error {
	if h.server == nil {
		return nil
	}
	return h.server.Close()
}

// ServeHTTP implements caddyhttp.MiddlewareHandler. Paths are matched exactly as they were sent: what is encoded, doubled
// or in another case is somebody else's.
func (h *Connect) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	path, _, _ := strings.Cut(wireTarget(r), "?")
	endpoint := h.server.Endpoint(path)
	if endpoint == "" || r.URL.Path != path {
		return next.ServeHTTP(w, r)
	}
	id, start := uuid.NewString(), time.Now()
	w.Header().Set(headerRequestID, id)
	w.Header().Del("Server") // no banner
	rec := &statusWriter{ResponseWriterWrapper: &caddyhttp.ResponseWriterWrapper{ResponseWriter: w}}
	h.serve(rec, r.WithContext(connect.WithRequestID(r.Context(), id)))
	status := rec.status
	if status == 0 {
		status = http.StatusOK
	}
	took := time.Since(start)
	h.metrics.connected(endpoint, status, took)
	level := zapcore.InfoLevel
	if status >= 500 {
		level = zapcore.ErrorLevel
	}
	if e := h.logger.Check(level, "request"); e != nil {
		e.Write(zap.String("request_id", id), zap.String("method", loggableMethod(r.Method)), zap.String("endpoint", endpoint),
			zap.Int("status", status), zap.String("client_ip", clientAddr(r.Context()).String()), zap.Duration("duration", took))
	}
	return nil
}

// serve makes an error of a panic.
func (h *Connect) serve(w *statusWriter, r *http.Request) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if v == http.ErrAbortHandler { //nolint:errorlint,err113 // a panic's value, compared as net/http does
			panic(v)
		}
		h.logger.Error("panic in the connection server", zap.Any("panic", v), zap.ByteString("stack", debug.Stack()))
		if w.status != 0 {
			panic(http.ErrAbortHandler) // the answer has begun: a part must not be taken for the whole
		}
		problemOfStatus(http.StatusInternalServerError).write(w, w.Header().Get(headerRequestID), "")
	}()
	if isEarlyData(r) {
		problemOfStatus(http.StatusTooEarly).write(w, w.Header().Get(headerRequestID), "")
		return
	}
	h.server.ServeHTTP(w, r)
}

// ParseConnect reads the directive gateway_connect, as a *Connect, for a build whose own module embeds that.
func ParseConnect(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	return parseConnect(h)
}

// parseConnect reads the directive. Syntax:
//
//	gateway_connect [<matcher>] {
//	    issuer       <origin>
//	    upstream     <addresses...> {
//	        <options of reverse_proxy>
//	    }
//	    name         <name>
//	    manage_keys
//	    timeout      <duration>
//	    session_idle <duration>
//	    session_max  <duration>
//	}
func parseConnect(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	h.Next() // consume the directive's name
	if args := h.RemainingArgs(); len(args) > 0 {
		return nil, h.Errf("gateway_connect takes a block, and no argument but a matcher: %s", strings.Join(args, " "))
	}
	m := new(Connect)
	err := parseBlock(h.Dispenser, "gateway_connect", map[string]option{
		"issuer": stringOption("issuer", &m.Issuer),
		"upstream": func(d *caddyfile.Dispenser) error {
			raw, err := parseProxy(h.WithDispenser(d), d.NextSegment())
			m.UpstreamRaw = raw
			return err
		},
		"name":         stringOption("name", &m.Name),
		"manage_keys":  flagOption("manage_keys", &m.ManageKeys),
		"timeout":      durationOption("timeout", &m.Timeout),
		"session_idle": durationOption("session_idle", &m.SessionIdle),
		"session_max":  durationOption("session_max", &m.SessionMax),
	}, []string{"issuer", "upstream", "name", "manage_keys", "timeout", "session_idle", "session_max"})
	switch {
	case err != nil:
		return nil, err
	case m.Issuer == "":
		return nil, h.Err("gateway_connect needs its issuer, the origin of this site, such as https://api.example.com")
	case m.UpstreamRaw == nil:
		return nil, h.Err("gateway_connect needs an upstream, such as http://data.internal:8080")
	}
	return m, nil
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Connect)(nil)
	_ caddy.Validator             = (*Connect)(nil)
	_ caddy.CleanerUpper          = (*Connect)(nil)
	_ caddyhttp.MiddlewareHandler = (*Connect)(nil)
)
