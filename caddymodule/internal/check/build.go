package check

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/intercept"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

// builtConfig has the modules of a configuration that have been provisioned, but not started.
type builtConfig struct {
	app      caddy.App                     // nil: not configured
	handlers []caddyhttp.MiddlewareHandler // parallel to those of the checker
}

// build provisions a configuration, and returns the error as a [configfile.Error]. Its modules may write to the directory.
func (c *checker) build(raw json.RawMessage, dir string) (*builtConfig, error) {
	var cfg *caddy.Config
	if err := caddy.StrictUnmarshalJSON(raw, &cfg); err != nil {
		return nil, c.DecodeError(err)
	}
	// "tls internal" creates a certificate authority while it is built.
	cfg.StorageRaw = caddyconfig.JSON(map[string]string{"module": "file_system", "root": dir}, nil)
	cfg.Logging = cmp.Or(cfg.Logging, new(caddy.Logging))
	// The modules' logs would be about a gateway that starts, which this one does not.
	cfg.Logging.Logs = map[string]*caddy.CustomLog{"default": {BaseLog: caddy.BaseLog{WriterRaw: []byte(`{"output":"discard"}`)}}}
	ctx, err := caddy.ProvisionContext(cfg)
	if err != nil {
		return nil, c.LoadError(err)
	}
	b := new(builtConfig)
	if mod, err := ctx.AppIfConfigured(appName); err == nil {
		b.app, _ = mod.(caddy.App)
	}
	mod, err := ctx.AppIfConfigured("http")
	if err != nil {
		return b, nil //nolint:nilerr // it is not configured
	}
	app, _ := mod.(*caddyhttp.App)
	for _, name := range slices.Sorted(maps.Keys(c.servers)) { // as Config.Handlers
		b.collect(app.Servers[name], app.Servers[name].Routes, app.Servers[name].Errors, nil)
	}
	return b, nil
}

// collect adds the handlers of a server's routes, once each. Those that Caddy has added, such as redirects to HTTPS, are left out.
func (b *builtConfig) collect(s *caddyhttp.Server, routes caddyhttp.RouteList, errors *caddyhttp.HTTPErrorConfig, invoked []string) {
	for _, route := range routes {
		for _, handler := range route.Handlers {
			switch h := handler.(type) {
			case *caddyhttp.Subroute:
				b.collect(s, h.Routes, h.Errors, invoked)
			case *caddyhttp.Invoke:
				if named := s.NamedRoutes[h.Name]; named != nil && !slices.Contains(invoked, h.Name) {
					b.collect(s, caddyhttp.RouteList{*named}, nil, append(slices.Clip(invoked), h.Name))
				}
			case *reverseproxy.Handler:
				b.collectResponses(s, h.HandleResponse, invoked)
			case *intercept.Intercept:
				b.collectResponses(s, h.HandleResponse, invoked)
			case caddy.Module:
				if slices.Contains([]string{apiName, connectName, authName}, h.CaddyModule().ID.Name()) && !slices.Contains(b.handlers, handler) {
					b.handlers = append(b.handlers, handler)
				}
			}
		}
	}
	if errors != nil {
		b.collect(s, errors.Routes, nil, invoked)
	}
}

func (b *builtConfig) collectResponses(s *caddyhttp.Server, responses []caddyhttp.ResponseHandler, invoked []string) {
	for _, response := range responses {
		b.collect(s, response.Routes, nil, invoked)
	}
}

// close releases the clients, which Caddy does only for a configuration that runs.
func (b *builtConfig) close() error {
	var errs []error
	for _, h := range b.handlers {
		if h, ok := h.(caddy.CleanerUpper); ok {
			errs = append(errs, h.Cleanup())
		}
	}
	if app, ok := b.app.(caddy.CleanerUpper); ok {
		errs = append(errs, app.Cleanup())
	}
	return errors.Join(errs...)
}
