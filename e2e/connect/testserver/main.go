// Command testserver is gatehouse with one module more: gatehouse_connect_with_fixtures, which is gatehouse_connect with the
// tools, prompts and resources that the MCP conformance suite asks a server for.
package main

import (
	"fmt"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	"github.com/gatehouse-gateway/gatehouse/caddymodule"
	"github.com/gatehouse-gateway/gatehouse/connect/mcp"
	"github.com/gatehouse-gateway/gatehouse/e2e/connect/conformance"
)

const directive = "gatehouse_connect_with_fixtures"

// withFixtures is gatehouse_connect with the fixtures.
type withFixtures struct {
	caddymodule.Connect
}

// CaddyModule returns the Caddy module information.
func (withFixtures) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers." + directive,
		New: func() caddy.Module { return new(withFixtures) },
	}
}

// Provision adds the fixtures.
func (h *withFixtures) Provision(ctx caddy.Context) error {
	h.Extensions = []mcp.Extension{conformance.Fixtures()}
	return h.Connect.Provision(ctx)
}

func parse(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	handler, err := caddymodule.ParseConnect(h)
	if err != nil {
		return nil, err
	}
	m, ok := handler.(*caddymodule.Connect)
	if !ok {
		return nil, fmt.Errorf("gatehouse_connect is a %T", handler)
	}
	return &withFixtures{Connect: *m}, nil
}

func main() {
	caddy.RegisterModule(withFixtures{})
	httpcaddyfile.RegisterHandlerDirective(directive, parse)
	httpcaddyfile.RegisterDirectiveOrder(directive, httpcaddyfile.Before, "respond")
	caddymodule.Main()
}

// Interface guards
var (
	_ caddy.Provisioner           = (*withFixtures)(nil)
	_ caddy.Validator             = (*withFixtures)(nil)
	_ caddy.CleanerUpper          = (*withFixtures)(nil)
	_ caddyhttp.MiddlewareHandler = (*withFixtures)(nil)
)
