package caddymodule

import (
	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	caddy.RegisterModule(new(App))
	caddy.RegisterModule(new(VaultSource))
	caddy.RegisterModule(new(FileSource))
	caddy.RegisterModule(new(API))
	caddy.RegisterModule(new(Auth))
	caddy.RegisterModule(new(Errors))
	caddy.RegisterModule(new(Connect))
	caddy.RegisterModule(new(Health))
	caddy.RegisterModule(new(JWKS))
	caddy.RegisterModule(new(Admin))
	caddy.RegisterModule(new(Drain))

	httpcaddyfile.RegisterGlobalOption(AppName, parseAppOption)

	// Like basic_auth, it comes before the handlers that it protects and after those that change the path, which signatures do not see.
	httpcaddyfile.RegisterHandlerDirective(authName, parseHandler[Auth])
	httpcaddyfile.RegisterDirectiveOrder(authName, httpcaddyfile.Before, "basic_auth")

	// Health checks, JWKS and the connection server handle only their own paths. The API responds to every request, so it
	// comes last.
	httpcaddyfile.RegisterHandlerDirective(healthName, parseHandler[Health])
	httpcaddyfile.RegisterDirectiveOrder(healthName, httpcaddyfile.Before, "respond")
	httpcaddyfile.RegisterDirective(jwksName, parseJWKS)
	httpcaddyfile.RegisterDirectiveOrder(jwksName, httpcaddyfile.Before, "respond")
	httpcaddyfile.RegisterHandlerDirective(connectName, parseConnect)
	httpcaddyfile.RegisterDirectiveOrder(connectName, httpcaddyfile.Before, "respond")
	httpcaddyfile.RegisterDirective(apiName, parseAPI)
	httpcaddyfile.RegisterDirectiveOrder(apiName, httpcaddyfile.After, "file_server")
	httpcaddyfile.RegisterHandlerDirective(errorsName, parseHandler[Errors])
	httpcaddyfile.RegisterDirectiveOrder(errorsName, httpcaddyfile.After, "file_server")
}

// parseHandler parses the directive of a handler module.
func parseHandler[T any, M interface {
	*T
	caddyhttp.MiddlewareHandler
	caddyfile.Unmarshaler
}](h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	m := M(new(T))
	return m, m.UnmarshalCaddyfile(h.Dispenser)
}
