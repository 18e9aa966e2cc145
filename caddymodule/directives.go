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
	caddy.RegisterModule(new(Drain))

	httpcaddyfile.RegisterGlobalOption(appName, parseAppOption)

	// The probes, the keys and the connection server come before what else a site answers; the API comes last, as it answers all that is left.
	httpcaddyfile.RegisterHandlerDirective("gatehouse_health", parseHealth)
	httpcaddyfile.RegisterDirectiveOrder("gatehouse_health", httpcaddyfile.Before, "respond")
	httpcaddyfile.RegisterDirective("gatehouse_jwks", parseJWKS)
	httpcaddyfile.RegisterDirectiveOrder("gatehouse_jwks", httpcaddyfile.Before, "respond")
	httpcaddyfile.RegisterHandlerDirective("gatehouse_connect", parseConnect)
	httpcaddyfile.RegisterDirectiveOrder("gatehouse_connect", httpcaddyfile.Before, "respond")
	httpcaddyfile.RegisterDirective("gatehouse_api", parseAPI)
	httpcaddyfile.RegisterDirectiveOrder("gatehouse_api", httpcaddyfile.After, "file_server")
	httpcaddyfile.RegisterHandlerDirective("gatehouse_errors", parseErrors)
	httpcaddyfile.RegisterDirectiveOrder("gatehouse_errors", httpcaddyfile.After, "file_server")

	registerCommands()
	if caddy.CustomBinaryName == "" { // a build that has not stamped it
		caddy.CustomBinaryName = "gatehouse"
	}
}
