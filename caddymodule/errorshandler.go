package caddymodule

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Errors responds in the contract's format to errors raised outside Gatehouse's routes: by Caddy before any route (such as a
// missing Host) and by other handlers. It is for handle_errors; gatehouse_api adds it to its own site. Outside handle_errors
// it responds with 404.
type Errors struct {
	frontDoor

	// Docs is a URL that every error response has in its member "docs". Default: the member is omitted.
	Docs string `json:"docs,omitempty"`

	everything *operation
}

const errorsName = "gatehouse_errors"

// CaddyModule returns the Caddy module information.
func (*Errors) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers." + errorsName,
		New: func() caddy.Module { return new(Errors) },
	}
}

// Provision implements caddy.Provisioner.
func (h *Errors) Provision(ctx caddy.Context) error {
	if err := h.provision(ctx, "errors", h); err != nil {
		return err
	}
	if err := resolve(caddy.NewReplacer(), &h.Docs); err != nil {
		return err
	}
	h.everything = h.withMetrics(operation{
		name: "none",
		handle: func(_ http.ResponseWriter, r *http.Request, _ *request) error {
			if err, ok := r.Context().Value(caddyhttp.ErrorCtxKey).(error); ok {
				return quietError{err} // that Caddy is handling
			}
			return errNotFound
		},
		fail: func(w http.ResponseWriter, _ *http.Request, req *request, p problem) {
			if w.Header()["Retry-After"] != nil { // of the handler that failed
				p.RetryAfter = 0
			}
			p.write(w, req.id, h.Docs)
		},
	})
	return nil
}

// match implements route.
func (h *Errors) match(*http.Request, *request) *operation { return h.everything }

// UnmarshalCaddyfile parses the directive. Syntax:
//
//	gatehouse_errors [<matcher>] {
//	    docs <url>
//	}
func (h *Errors) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // consume the directive's name
	if err := onlyMatcher(d); err != nil {
		return err
	}
	return parseBlock(d, errorsName, text("docs", &h.Docs))
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Errors)(nil)
	_ caddyhttp.MiddlewareHandler = (*Errors)(nil)
	_ caddyfile.Unmarshaler       = (*Errors)(nil)
)
