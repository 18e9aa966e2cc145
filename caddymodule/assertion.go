package caddymodule

import (
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

// AssertionConfig says how the hop assertion is signed. All gateways of a fleet need the same keys.
type AssertionConfig struct {
	// KeyFiles hold an Ed25519 private key each (PEM, PKCS #8). The first signs, all are published: a key is rotated
	// by adding the new one behind the old, putting it in front once the data services have it (they may keep the
	// published keys for 5 minutes), and taking the old one away after the lifetime. Placeholders are resolved.
	KeyFiles []string `json:"key_files"`

	// Issuer is the claim "iss". Default: gatehouse.
	Issuer string `json:"issuer,omitempty"`

	// AudiencePrefix stands before the resource's name in the claim "aud". Default: none.
	AudiencePrefix string `json:"audience_prefix,omitempty"`

	// Lifetime is how long an assertion is good, at most 60s. Default: 30s.
	Lifetime caddy.Duration `json:"lifetime,omitempty"`
}

const (
	defaultAssertionIssuer = "gatehouse"
	// JWKSPath is where gatehouse_jwks publishes the keys, unless it is told otherwise.
	JWKSPath = "/.well-known/gatehouse-jwks.json"
)

func (c *AssertionConfig) asserter(repl *caddy.Replacer) (*upstream.Asserter, error) {
	o := upstream.AsserterOptions{
		Issuer: c.Issuer, AudiencePrefix: c.AudiencePrefix, TTL: time.Duration(c.Lifetime), Now: time.Now,
	}
	if err := resolve(repl, &o.Issuer, &o.AudiencePrefix); err != nil {
		return nil, err
	}
	if o.Issuer == "" {
		o.Issuer = defaultAssertionIssuer
	}
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

// JWKS publishes the public keys of the hop assertion, for data services that verify it.
type JWKS struct {
	frontDoor

	// Path is where. Default: /.well-known/gatehouse-jwks.json.
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

// Provision takes the keys from the app.
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
	h.endpoint = &endpoint{name: "jwks", serve: readOnly(app.asserter.ServeHTTP)}
	return h.provision(ctx, h)
}

// match implements route.
func (h *JWKS) match(_ *http.Request, req *request) *endpoint {
	if req.target != h.Path {
		return nil
	}
	return h.endpoint
}

// UnmarshalCaddyfile reads the directive. Syntax:
//
//	gatehouse_jwks [<path>]
//
// As a path, and not a matcher, follows the directive's name, it takes no matcher.
func (h *JWKS) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // consume the directive's name
	if d.NextArg() {
		h.Path = d.Val()
		if h.Path == "" || h.Path[0] != '/' {
			return d.Errf("gatehouse_jwks: %q is no path", h.Path)
		}
	}
	if d.CountRemainingArgs() > 0 {
		return d.Err("gatehouse_jwks takes one path at most")
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
