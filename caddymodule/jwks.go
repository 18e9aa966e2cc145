package caddymodule

import (
	"cmp"
	"errors"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// JWKS serves the public keys of the hop assertion as a JSON Web Key Set (RFC 7517).
type JWKS struct {
	frontDoor

	// Path is the path of the key set. Default: /.well-known/gatehouse-jwks.json.
	Path string `json:"path,omitempty"`

	keySet *operation
}

const (
	jwksName = "gatehouse_jwks"

	// JWKSPath is the default path of gatehouse_jwks.
	JWKSPath = "/.well-known/gatehouse-jwks.json"
)

// CaddyModule returns the Caddy module information.
func (*JWKS) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers." + jwksName,
		New: func() caddy.Module { return new(JWKS) },
	}
}

// Provision implements caddy.Provisioner.
func (h *JWKS) Provision(ctx caddy.Context) error {
	if err := h.provision(ctx, "jwks", h); err != nil {
		return err
	}
	if h.app.asserter == nil {
		return errors.New(`gatehouse_jwks has no keys to publish: set "assertion" in the global option "gatehouse"`)
	}
	h.Path = cmp.Or(h.Path, JWKSPath)
	h.keySet = h.withMetrics(operation{name: "jwks", handle: readOnly(h.app.asserter.ServeHTTP)})
	return nil
}

// Validate implements caddy.Validator.
func (h *JWKS) Validate() error { return checkPath("path", h.Path) }

// match implements route.
func (h *JWKS) match(_ *http.Request, req *request) *operation {
	path, _, _ := strings.Cut(req.target, "?") // clients may add a query against caches
	if path != h.Path {
		return nil
	}
	return h.keySet
}

// UnmarshalCaddyfile parses the directive. Syntax:
//
//	gatehouse_jwks [<path>]
//
// The path is not a matcher; the directive takes none.
func (h *JWKS) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // consume the directive's name
	if d.NextArg() {
		if h.Path = d.Val(); h.Path == "" {
			return d.Err("gatehouse_jwks: the path is empty")
		}
		if err := h.Validate(); err != nil {
			return d.WrapErr(err)
		}
	}
	if d.CountRemainingArgs() > 0 {
		return d.Err("gatehouse_jwks takes at most one path")
	}
	return noBlock(d, jwksName)
}

func parseJWKS(h httpcaddyfile.Helper) ([]httpcaddyfile.ConfigValue, error) {
	m := new(JWKS)
	if err := m.UnmarshalCaddyfile(h.Dispenser); err != nil {
		return nil, err
	}
	return h.NewRoute(nil, m), nil
}

// Interface guards
var (
	_ caddy.Provisioner           = (*JWKS)(nil)
	_ caddy.Validator             = (*JWKS)(nil)
	_ caddyhttp.MiddlewareHandler = (*JWKS)(nil)
	_ caddyfile.Unmarshaler       = (*JWKS)(nil)
)
