package caddymodule

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/explain"
)

// Admin adds routes to Caddy's admin API:
//
//	GET /gatehouse/ready          200 or 503, as /readyz, with the causes of failing checks
//	GET /gatehouse/drift          how responses have deviated from the definitions
//	GET /gatehouse/explain/<id>   why a request's credentials were invalid, by its request ID
type Admin struct{}

// AdminReadyPath is the admin API's path of the gateway's readiness.
const AdminReadyPath = "/gatehouse/ready"

// AdminDriftPath is the admin API's path of Drift.
const AdminDriftPath = "/gatehouse/drift"

// AdminExplainPath is the admin API's path of explanations, followed by a request ID.
const AdminExplainPath = "/gatehouse/explain/"

// CaddyModule returns the Caddy module information.
func (*Admin) CaddyModule() caddy.ModuleInfo {
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
	return []caddy.AdminRoute{
		{Pattern: AdminReadyPath, Handler: caddy.AdminHandlerFunc(a.serveReady)},
		{Pattern: AdminDriftPath, Handler: caddy.AdminHandlerFunc(a.serveDrift)},
		{Pattern: AdminExplainPath, Handler: caddy.AdminHandlerFunc(a.serveExplain)},
	}
}

// adminReadiness extends readiness with details for operators.
type adminReadiness struct {
	readiness
	Causes map[string]string `json:"causes,omitempty"` // by the check's name
	// Credentials is the number of cached credentials.
	Credentials int    `json:"credentials_cached"`
	Version     string `json:"version"`
}

func (a *Admin) serveReady(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return caddy.APIError{HTTPStatus: http.StatusMethodNotAllowed, Err: errMethodNotAllowed}
	}
	app := activeApp()
	if app == nil {
		return caddy.APIError{HTTPStatus: http.StatusNotFound, Err: errors.New("no gateway is configured")}
	}
	state := adminReadiness{readiness: app.readiness()}
	state.Causes = state.causes
	state.Version, _ = caddy.Version()
	if app.credentials != nil {
		state.Credentials = app.credentials.cache.Len()
	}
	writeJSON(w, state.httpStatus(), append(encode(state), '\n'))
	return nil
}

func (a *Admin) serveDrift(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return caddy.APIError{HTTPStatus: http.StatusMethodNotAllowed, Err: errMethodNotAllowed}
	}
	app := activeApp()
	if app == nil {
		return caddy.APIError{HTTPStatus: http.StatusNotFound, Err: errors.New("no gateway is configured")}
	}
	writeJSON(w, http.StatusOK, append(encode(app.drift()), '\n'))
	return nil
}

// ExplainedFailure is the response of the admin API. It contains nothing that helps to sign a request.
type ExplainedFailure struct {
	RequestID string    `json:"request_id"`
	At        time.Time `json:"at"`
	PublicKey string    `json:"public_key,omitempty"`
	Reason    string    `json:"reason"`
	BodyLeft  bool      `json:"body_not_kept,omitempty"`
	explain.Result
}

// serveExplain explains a request with invalid credentials that this gateway still knows.
func (a *Admin) serveExplain(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet {
		return caddy.APIError{HTTPStatus: http.StatusMethodNotAllowed, Err: errMethodNotAllowed}
	}
	app := activeApp()
	if app == nil || app.credentials == nil {
		return caddy.APIError{HTTPStatus: http.StatusNotFound, Err: errors.New("no gateway is configured")}
	}
	id := strings.TrimPrefix(r.URL.Path, AdminExplainPath)
	failed, ok := app.credentials.failures.find(id)
	if !ok {
		return caddy.APIError{HTTPStatus: http.StatusNotFound, Err: fmt.Errorf(
			"request %q is not among the last %d that this gateway denied for invalid credentials", id, maxAuthFailures)}
	}
	out := ExplainedFailure{RequestID: failed.id, At: failed.at, Reason: failed.reason, BodyLeft: failed.attempt.BodyLeft}
	var cred *authsigner.Credential
	if out.PublicKey = failed.attempt.PublicKey; out.PublicKey != "" {
		var err error
		if cred, err = app.credentials.cache.Lookup(r.Context(), out.PublicKey); err != nil && !errors.Is(err, authsigner.ErrUnknownKey) {
			return caddy.APIError{HTTPStatus: http.StatusServiceUnavailable, Err: fmt.Errorf("looking up the credential: %w", err)}
		}
	}
	out.Result = failed.attempt.Explain(r.Context(), cred, failed.at)
	writeJSON(w, http.StatusOK, append(encode(out), '\n'))
	return nil
}

// Interface guards
var (
	_ caddy.Provisioner = (*Admin)(nil)
	_ caddy.AdminRouter = (*Admin)(nil)
)
