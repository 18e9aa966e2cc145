package caddymodule

import (
	"cmp"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/gatehouse-gateway/gatehouse/authsigner/vault"
	"github.com/gatehouse-gateway/gatehouse/caddymodule/internal/check"
	"github.com/gatehouse-gateway/gatehouse/caddymodule/internal/dataservice"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// CheckOptions returns what `gatehouse check` must know of the modules.
func CheckOptions() check.Options {
	return check.Options{
		Defaults: check.Defaults{Timeout: defaultUpstreamTimeout, BodyTimeout: defaultBodyTimeout, JWKSPath: JWKSPath},
		Live:     live,
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
				name := ProxiedNames()[0]
				for _, other := range ProxiedNames() {
					if cmp.Or(served[other], served[""]) == u {
						name = other
					}
				}
				services = append(services, liveService(app, u.service, name, upstream.ByName(name).Path))
			}
		case *Connect:
			services = []check.Service{liveService(app, m.service, upstream.ConnectAudience, "/connect/v1/check")}
		}
		l.Services = append(l.Services, services)
	}
	return l
}

func liveService(app *App, service *dataservice.Service, resource, path string) check.Service {
	s := check.Service{Path: path, Backends: func(r *http.Request) ([]check.Backend, error) {
		addresses, err := service.Addresses(r.Context())
		var backends []check.Backend
		for _, address := range addresses {
			backends = append(backends, check.Backend{
				Address: address,
				Send: func(r *http.Request, deadline time.Time) (int, error) {
					res, err := service.DoAt(r.Context(), address, upstream.Call{
						BusinessID: r.Header.Get(upstream.HeaderBusinessID), RequestID: r.Header.Get(upstream.HeaderRequestID),
						Resource: resource, Method: r.Method, Path: r.URL.EscapedPath(), Host: r.Host,
						Deadline: deadline, MaxResponse: upstream.DefaultMaxResponseSize,
					}, r.Header.Get(upstream.HeaderAssertion) != "")
					if err != nil {
						return 0, err
					}
					defer res.Release()
					return res.Status, nil
				},
			})
		}
		return backends, err
	}}
	if app.asserter != nil {
		s.Assert = func(businessID, requestID string) (string, error) {
			return app.asserter.Assert(resource, businessID, requestID)
		}
	}
	return s
}
