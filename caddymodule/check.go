package caddymodule

import (
	"cmp"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/gatehouse-gateway/gatehouse/authsigner/vault"
	"github.com/gatehouse-gateway/gatehouse/caddymodule/internal/check"
	"github.com/gatehouse-gateway/gatehouse/caddymodule/internal/dataservice"
	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// CheckOptions returns what `gatehouse check` must know of the modules.
func CheckOptions() check.Options {
	return check.Options{
		Defaults: check.Defaults{
			Timeout: defaultUpstreamTimeout, BodyTimeout: defaultBodyTimeout, JWKSPath: JWKSPath, InFlight: dataservice.DefaultInFlight,
			API: func(handler any) *upstream.API {
				api, err := apiOf(definitionOf(handler))
				if err != nil { // loading the configuration fails with it
					return nil
				}
				return api
			},
		},
		Live: live,
	}
}

// live returns what live checks use of the modules of a configuration.
func live(mod caddy.App, handlers []caddyhttp.MiddlewareHandler) check.Live {
	l := check.Live{Channel: invalidationChannel}
	app, _ := mod.(*App)
	if app == nil {
		return l
	}
	if app.redis != nil {
		l.Redis = app.redis.client
	}
	if app.credentials != nil {
		l.Vault, _ = app.credentials.store.(*vault.Source)
	}
	for _, handler := range handlers {
		var services []check.Service
		switch m := handler.(type) {
		case *API:
			served, _ := m.served() // it was valid when it was built
			for _, u := range m.Upstreams {
				s := liveService(app, u.service, m.MaxResponseSize)
				s.Contract = m.contract
				for _, op := range m.api.Operations() {
					if cmp.Or(served[bare(m.api, op.Resource)], served[""]) == u && !op.ByGateway {
						if s.Sample = op.Sample(); op.NeedsNoParams() {
							s.Operations = append(s.Operations, op)
						}
					}
				}
				services = append(services, s)
			}
		case *Connect:
			s := liveService(app, m.service, data.MaxResponseSize)
			s.Operations = m.server.Reads()
			services = []check.Service{s}
		}
		l.Services = append(l.Services, services)
	}
	return l
}

func liveService(app *App, service *dataservice.Service, maxResponse int64) check.Service {
	return check.Service{Asserted: app.asserter != nil, MaxResponse: maxResponse, Addresses: service.Addresses, Do: service.DoAt}
}
