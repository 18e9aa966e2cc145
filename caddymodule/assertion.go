package caddymodule

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// AssertionConfig configures the hop assertion. All gateways of a fleet need the same keys.
type AssertionConfig struct {
	// KeyFiles are files with one Ed25519 private key each (PEM, PKCS #8). The first key signs; all are published. To rotate
	// a key, append the new one; move it to the front once data services have fetched it (they may cache the published keys
	// for 5 minutes); remove the old one after Lifetime. Placeholders are resolved. Required.
	KeyFiles []string `json:"key_files"`

	// Issuer is the value of the claim "iss". Placeholders are resolved. Default: gatehouse.
	Issuer string `json:"issuer,omitempty"`

	// AudiencePrefix precedes the resource's name in the claim "aud". Placeholders are resolved. Default: no prefix.
	AudiencePrefix string `json:"audience_prefix,omitempty"`

	// Lifetime is how long an assertion is valid, in whole seconds, at most 60s. Default: 30s. Zero means the default.
	Lifetime caddy.Duration `json:"lifetime,omitempty"`
}

const (
	defaultAssertionIssuer = "gatehouse"
	// JWKSPath is the default path of gatehouse_jwks.
	JWKSPath = "/.well-known/gatehouse-jwks.json"
)

func (c *AssertionConfig) asserter(repl *caddy.Replacer) (*upstream.Asserter, error) {
	o := upstream.AsserterOptions{
		Issuer: c.Issuer, AudiencePrefix: c.AudiencePrefix, TTL: time.Duration(c.Lifetime), Now: time.Now,
	}
	if err := resolve(repl, &o.Issuer, &o.AudiencePrefix); err != nil {
		return nil, err
	}
	o.Issuer = cmp.Or(o.Issuer, defaultAssertionIssuer)
	for _, name := range c.KeyFiles {
		if err := resolve(repl, &name); err != nil {
			return nil, err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("reading a signing key: %w", err)
		}
		keys, err := upstream.ParseKeys(text)
		if err != nil {
			return nil, fmt.Errorf("reading the signing key %s: %w", name, err)
		}
		o.Keys = append(o.Keys, keys...)
	}
	return upstream.NewAsserter(o)
}

// JWKS serves the public keys of the hop assertion as a JSON Web Key Set (RFC 7517).
type JWKS struct {
	frontDoor

	// Path is the path of the key set. Default: /.well-known/gatehouse-jwks.json.
	Path string `json:"path,omitempty"`

	endpoint *endpoint
}

// CaddyModule returns the Caddy module information.
func (*JWKS) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.gatehouse_jwks",
		New: func() caddy.Module { return new(JWKS) },
	}
}

// Provision implements caddy.Provisioner.
func (h *JWKS) Provision(ctx caddy.Context) error {
	app, err := appOf(ctx)
	if err != nil {
		return err
	}
	if app.asserter == nil {
		return errors.New(`gatehouse_jwks has no keys to publish: set "assertion" in the global option "gatehouse"`)
	}
	if h.Path == "" {
		h.Path = JWKSPath
	}
	h.endpoint = &endpoint{name: "jwks", metrics: app.metrics.route("jwks"), serve: readOnly(app.asserter.ServeHTTP)}
	return h.provision(ctx, h)
}

// match implements route.
func (h *JWKS) match(_ *http.Request, req *request) *endpoint {
	if req.target != h.Path {
		return nil
	}
	return h.endpoint
}

// UnmarshalCaddyfile parses the directive. Syntax:
//
//	gatehouse_jwks [<path>]
//
// The path is not a matcher; the directive takes none.
func (h *JWKS) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // consume the directive's name
	if d.NextArg() {
		h.Path = d.Val()
		if h.Path == "" || h.Path[0] != '/' {
			return d.Errf("gatehouse_jwks: invalid path %q: must begin with a slash", h.Path)
		}
	}
	if d.CountRemainingArgs() > 0 {
		return d.Err("gatehouse_jwks takes at most one path")
	}
	return noBlock(d, "gatehouse_jwks")
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
	_ caddyhttp.MiddlewareHandler = (*JWKS)(nil)
	_ caddyfile.Unmarshaler       = (*JWKS)(nil)
)
