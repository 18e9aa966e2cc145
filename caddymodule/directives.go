package caddymodule

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
)

// Everything that this package registers with Caddy is registered here.
func init() {
	caddy.RegisterModule(App{})
	caddy.RegisterModule(VaultSource{})
	caddy.RegisterModule(FileSource{})
	caddy.RegisterModule(new(API))
	caddy.RegisterModule(new(Errors))
	caddy.RegisterModule(new(Connect))
	caddy.RegisterModule(new(Health))
	caddy.RegisterModule(new(JWKS))
	caddy.RegisterModule(Admin{})
	caddy.RegisterModule(new(Handover))

	httpcaddyfile.RegisterGlobalOption(appName, parseAppOption)

	// The probes, the keys and the connection server come before what else a site answers; the API comes last, as it answers all that is left.
	httpcaddyfile.RegisterHandlerDirective("gateway_health", parseHealth)
	httpcaddyfile.RegisterDirectiveOrder("gateway_health", httpcaddyfile.Before, "respond")
	httpcaddyfile.RegisterDirective("gateway_jwks", parseJWKS)
	httpcaddyfile.RegisterDirectiveOrder("gateway_jwks", httpcaddyfile.Before, "respond")
	httpcaddyfile.RegisterHandlerDirective("gateway_connect", parseConnect)
	httpcaddyfile.RegisterDirectiveOrder("gateway_connect", httpcaddyfile.Before, "respond")
	httpcaddyfile.RegisterDirective("gateway_api", parseAPI)
	httpcaddyfile.RegisterDirectiveOrder("gateway_api", httpcaddyfile.After, "file_server")
	httpcaddyfile.RegisterHandlerDirective("gateway_errors", parseErrors)
	httpcaddyfile.RegisterDirectiveOrder("gateway_errors", httpcaddyfile.After, "file_server")

	registerCommands()
	if caddy.CustomBinaryName == "" { // a build that has not stamped it
		caddy.CustomBinaryName = "gatehouse"
	}
}
