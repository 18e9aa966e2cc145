package caddymodule

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
)

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

	// Health checks, JWKS and the connection server handle only their own paths. The API responds to every request, so it
	// comes last.
	httpcaddyfile.RegisterHandlerDirective("gatehouse_health", parseHealth)
	httpcaddyfile.RegisterDirectiveOrder("gatehouse_health", httpcaddyfile.Before, "respond")
	httpcaddyfile.RegisterDirective("gatehouse_jwks", parseJWKS)
	httpcaddyfile.RegisterDirectiveOrder("gatehouse_jwks", httpcaddyfile.Before, "respond")
	httpcaddyfile.RegisterHandlerDirective("gatehouse_connect", ParseConnect)
	httpcaddyfile.RegisterDirectiveOrder("gatehouse_connect", httpcaddyfile.Before, "respond")
	httpcaddyfile.RegisterDirective("gatehouse_api", parseAPI)
	httpcaddyfile.RegisterDirectiveOrder("gatehouse_api", httpcaddyfile.After, "file_server")
	httpcaddyfile.RegisterHandlerDirective("gatehouse_errors", parseErrors)
	httpcaddyfile.RegisterDirectiveOrder("gatehouse_errors", httpcaddyfile.After, "file_server")

	registerCommands()
	if caddy.CustomBinaryName == "" { // not set with -ldflags
		caddy.CustomBinaryName = "gatehouse"
	}
}
