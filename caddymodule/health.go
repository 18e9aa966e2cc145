package caddymodule

import (
	"errors"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// Health serves health checks, which do not count against rate limits: /healthz is 200 if the process serves requests, /readyz
// if it should get requests and is not about to stop. Requests for other paths go to the next handler.
type Health struct {
	frontDoor

	operations map[string]*operation // by path
}

const healthName = "gatehouse_health"

// CaddyModule returns the Caddy module information.
func (*Health) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers." + healthName,
		New: func() caddy.Module { return new(Health) },
	}
}

// Provision implements caddy.Provisioner.
func (h *Health) Provision(ctx caddy.Context) error {
	if err := h.provision(ctx, "health", h); err != nil {
		return err
	}
	h.operations = map[string]*operation{
		"/healthz": h.withMetrics(operation{name: "health", quiet: true, handle: readOnly(serveHealth)}),
		"/readyz":  h.withMetrics(operation{name: "ready", quiet: true, handle: readOnly(h.serveReady)}),
	}
	return nil
}

// match implements route. It ignores the query, because some probes add one against caches.
func (h *Health) match(_ *http.Request, req *request) *operation {
	path, _, _ := strings.Cut(req.target, "?")
	return h.operations[path]
}

// readOnly rejects methods other than GET and HEAD.
func readOnly(serve http.HandlerFunc) func(http.ResponseWriter, *http.Request, *request) error {
	return func(w http.ResponseWriter, r *http.Request, _ *request) error {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			return errMethodNotAllowed
		}
		serve(w, r)
		return nil
	}
}

func serveHealth(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, []byte(`{"status":"ok"}`))
}

// serveReady also tells load balancers to send no more requests once a shutdown is scheduled (Caddy's option shutdown_delay).
func (h *Health) serveReady(w http.ResponseWriter, r *http.Request) {
	state := h.app.readiness()
	if repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		if stopping, _ := repl.Get("http.shutting_down"); stopping == true {
			state.Status = stateStopping
		}
	}
	writeJSON(w, state.httpStatus(), encode(state))
}

// UnmarshalCaddyfile parses the directive. Syntax:
//
//	gatehouse_health
func (h *Health) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // consume the directive's name
	if d.CountRemainingArgs() > 0 {
		return d.Err("gatehouse_health takes no arguments: it serves /healthz and /readyz")
	}
	return noBlock(d, healthName)
}

// The states of a check and of the gateway.
const (
	stateOK          = "ok"
	stateDegraded    = "degraded"
	stateUnavailable = "unavailable"
	stateStopping    = "stopping" // of the gateway
)

// readiness is the public state of the gateway and its dependencies, without names or addresses.
type readiness struct {
	// Status is "ok"; "degraded" if a store is unavailable that the gateway can do without for a time, or for a part of its requests;
	// "unavailable" if it should get no requests; or "stopping" if the gateway is about to stop.
	Status string            `json:"status"`
	Checks map[string]string `json:"checks"`

	causes map[string]string // the reason of each check that is not ok
}

func (s readiness) httpStatus() int {
	if s.Status == stateUnavailable || s.Status == stateStopping {
		return http.StatusServiceUnavailable
	}
	return http.StatusOK
}

// readiness returns the state that recent requests and background tasks have found. It does not contact any store.
func (a *App) readiness() readiness {
	s := readiness{Status: stateOK, Checks: map[string]string{}, causes: map[string]string{}}
	if a.limiter != nil {
		s.Checks["limits"] = stateOK
		if err := a.limiter.down(); err != nil {
			s.causes["limits"] = err.Error()
			s.Checks["limits"], s.Status = stateDegraded, stateDegraded
			if a.limiter.onOutage == ratelimit.OnOutageDeny {
				s.Checks["limits"], s.Status = stateUnavailable, stateUnavailable
			}
		}
	}
	if a.credentials != nil {
		s.Checks["credentials"] = stateOK
		if err := a.credentials.store.Ready(); err == nil {
			a.credentials.reached.Store(true)
		} else {
			s.causes["credentials"] = err.Error()
			// Cached keys and those of an older file keep working, and so do assistants and public operations: a gateway that has them
			// must stay in service. One whose source has never responded may be misconfigured, and must stop a rollout.
			unsigned := (a.public || a.connectUpstream != nil) && a.credentials.reached.Load()
			if unsigned || a.credentials.cache.Len() > 0 || !errors.Is(err, authsigner.ErrUnavailable) {
				s.Checks["credentials"] = stateDegraded
				if s.Status == stateOK {
					s.Status = stateDegraded
				}
			} else {
				s.Checks["credentials"], s.Status = stateUnavailable, stateUnavailable
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
