package caddymodule

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
)

// Health answers load balancers, outside the limits: /healthz says that the process serves requests, /readyz that it
// can serve signed ones. Other paths go on to the next handler.
type Health struct {
	app    *App
	logger *zap.Logger
}

// CaddyModule returns the Caddy module information.
func (Health) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.gateway_health",
		New: func() caddy.Module { return new(Health) },
	}
}

// Provision finds the app.
func (h *Health) Provision(ctx caddy.Context) error {
	app, err := appOf(ctx)
	if err != nil {
		return err
	}
	h.app, h.logger = app, ctx.Logger()
	return nil
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	path, _, _ := strings.Cut(wireTarget(r), "?") // some probes add a query against caches
	if path != "/healthz" && path != "/readyz" {
		return next.ServeHTTP(w, r)
	}
	w.Header().Del("Server") // no banner
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		refuseOutside(w, r, errMethodNotAllowed, "", h.logger)
		return nil
	}
	if path == "/healthz" {
		return writeJSON(w, []byte(`{"status":"ok"}`))
	}
	status, state := http.StatusOK, h.app.readiness()
	if state.Status == stateUnavailable {
		status = http.StatusServiceUnavailable
	}
	body, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("encoding readiness: %w", err)
	}
	setJSONHeaders(w.Header(), len(body))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the prober may be gone: nobody is left to tell
	return nil
}

// UnmarshalCaddyfile reads the directive. Syntax:
//
//	gateway_health
func (h *Health) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // consume the directive's name
	if d.CountRemainingArgs() > 0 {
		return d.Err("gateway_health takes no argument: it answers /healthz and /readyz")
	}
	return noBlock(d, "gateway_health")
}

func parseHealth(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	m := new(Health)
	return m, m.UnmarshalCaddyfile(h.Dispenser)
}

// The states of a part, and of the whole.
const (
	stateOK          = "ok"
	stateDegraded    = "degraded"
	stateUnavailable = "unavailable"
)

// readiness is the state of the gateway and of what it leans on, without names or addresses.
type readiness struct {
	// Status is "ok"; "degraded" while a store is away that the gateway can do without for a time; or "unavailable"
	// when signed requests cannot be served.
	Status string            `json:"status"`
	Checks map[string]string `json:"checks"`
}

// readiness asks nobody: it says what the last requests and the background renewals have found.
func (a *App) readiness() readiness {
	s := readiness{Status: stateOK, Checks: map[string]string{}}
	if a.pooledLimit != nil {
		s.Checks["limits"] = stateOK
		if a.pooledLimit.down() != nil {
			s.Checks["limits"], s.Status = stateDegraded, stateDegraded
			if a.Limits.OnOutage == "refuse" {
				s.Checks["limits"], s.Status = stateUnavailable, stateUnavailable
			}
		}
	}
	if a.credentials != nil {
		s.Checks["secrets"] = stateOK
		if err := a.credentials.ready(); err != nil {
			// known keys go on from the cache, so that a gateway in use is not taken out of service
			if a.credentials.cache.Stats().Credentials > 0 {
				s.Checks["secrets"] = stateDegraded
				if s.Status == stateOK {
					s.Status = stateDegraded
				}
			} else {
				s.Checks["secrets"], s.Status = stateUnavailable, stateUnavailable
			}
		}
	}
	return s
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Health)(nil)
	_ caddyhttp.MiddlewareHandler = (*Health)(nil)
	_ caddyfile.Unmarshaler       = (*Health)(nil)
)
