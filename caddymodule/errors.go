package caddymodule

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/google/uuid"
	"go.uber.org/zap"
)

// Errors answers errors that were raised outside the API's own route in the contract's shape: what Caddy refuses
// before any route (a missing Host, an overlong method) and what other handlers of the site return. It belongs in
// handle_errors; gateway_api brings it along for its own site. Reached as an ordinary handler, it answers 404.
type Errors struct {
	// Docs is a URL that every error names in its member "docs". Default: none.
	Docs string `json:"docs,omitempty"`

	logger *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (Errors) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.gateway_errors",
		New: func() caddy.Module { return new(Errors) },
	}
}

// Provision sets the logger.
func (h *Errors) Provision(ctx caddy.Context) error {
	h.logger = ctx.Logger()
	return nil
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Errors) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	err, ok := r.Context().Value(caddyhttp.ErrorCtxKey).(error)
	if !ok {
		err = errNotFound
	}
	refuseOutside(w, r, err, h.Docs, h.logger)
	return nil
}

// refuseOutside answers for an error outside the API's own route. Handlers that know their error use it instead of
// returning it to Caddy, whose debug log would write down all of the request's headers.
func refuseOutside(w http.ResponseWriter, r *http.Request, err error, docs string, logger *zap.Logger) {
	id := uuid.NewString()
	w.Header().Set(headerRequestID, id)
	w.Header().Del("Server") // no banner
	p := problemOf(err, time.Now())
	if e := logger.Check(zap.InfoLevel, "request refused outside the API"); e != nil {
		e.Write(zap.String("request_id", id), zap.String("method", loggableMethod(r.Method)),
			zap.Int("status", p.Status), zap.String("code", p.Code), zap.NamedError("cause", err))
	}
	p.write(w, id, docs)
}

// UnmarshalCaddyfile reads the directive. Syntax:
//
//	gateway_errors [<matcher>] {
//	    docs <url>
//	}
func (h *Errors) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // consume the directive's name
	if d.CountRemainingArgs() > 0 {
		return d.Err("gateway_errors takes no argument but a matcher")
	}
	return parseBlock(d, "gateway_errors", map[string]option{"docs": stringOption("docs", &h.Docs)}, []string{"docs"})
}

// errorsRoute is the error route that gateway_api brings along.
func errorsRoute(docs string) (*caddyhttp.Subroute, error) {
	raw, err := moduleJSON(&Errors{Docs: docs}, "gateway_errors")
	if err != nil {
		return nil, fmt.Errorf("building the error route: %w", err)
	}
	return &caddyhttp.Subroute{Routes: caddyhttp.RouteList{{HandlersRaw: []json.RawMessage{raw}}}}, nil
}

func parseErrors(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	m := new(Errors)
	return m, m.UnmarshalCaddyfile(h.Dispenser)
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Errors)(nil)
	_ caddyhttp.MiddlewareHandler = (*Errors)(nil)
	_ caddyfile.Unmarshaler       = (*Errors)(nil)
)
