package caddymodule

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2"
)

// Admin adds a route to Caddy's admin API:
//
//	GET /gatehouse/ready   200 or 503, as /readyz, with the causes of failing checks
type Admin struct{}

// CaddyModule returns the Caddy module information.
func (Admin) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "admin.api.gatehouse",
		New: func() caddy.Module { return new(Admin) },
	}
}

// Provision registers the metrics with the registry that this admin API serves. The app does so too, but a configuration can
// fail to load before its app is provisioned, and its admin API then keeps running.
func (a *Admin) Provision(ctx caddy.Context) error {
	_, err := registerMetrics(ctx.GetMetricsRegistry())
	return err
}

// Routes implements caddy.AdminRouter.
func (a *Admin) Routes() []caddy.AdminRoute {
	return []caddy.AdminRoute{{Pattern: "/gatehouse/ready", Handler: caddy.AdminHandlerFunc(a.serveReady)}}
}

// adminReadiness extends readiness with details for operators.
type adminReadiness struct {
	readiness
	// Causes has the reason of each check that is not ok, by the check's name.
	Causes map[string]string `json:"causes,omitempty"`
	// Credentials is the number of cached credentials.
	Credentials int `json:"credentials_cached"`
}

func (a *Admin) serveReady(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return caddy.APIError{HTTPStatus: http.StatusMethodNotAllowed, Err: errMethodNotAllowed}
	}
	app, err := activeApp()
	if err != nil {
		return caddy.APIError{HTTPStatus: http.StatusNotFound, Err: errors.New("no gateway is configured")}
	}
	state := adminReadiness{readiness: app.readiness(), Causes: map[string]string{}}
	if app.credentials != nil {
		state.Credentials = app.credentials.cache.Stats().Credentials
		if err := app.credentials.ready(); err != nil {
			state.Causes["credentials"] = err.Error()
		}
	}
	if app.pooledLimit != nil {
		if err := app.pooledLimit.down(); err != nil {
			state.Causes["limits"] = err.Error()
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if state.Status == stateUnavailable {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	if err := json.NewEncoder(w).Encode(state); err != nil {
		return caddy.APIError{HTTPStatus: http.StatusInternalServerError, Err: err}
	}
	return nil
}

// Interface guards
var (
	_ caddy.Provisioner = (*Admin)(nil)
	_ caddy.AdminRouter = (*Admin)(nil)
)
