package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// Caller says who is calling and charges whose budget; the two are one step, because neither is safe without the
// other: who has used up the budget for unverified requests must cause no look-up, and whose budget is charged hangs
// on the signature. It refuses nobody for a bad signature: that is the resource's business, as /status needs none.
type Caller struct {
	// MaxBody is the largest body that is read to verify its signature, in bytes. Default: 1 MiB. Zero means the default.
	MaxBody int64 `json:"max_body,omitempty"`

	// BodyTimeout bounds the time in which a signed body must arrive. Default: 10s. Zero means the default.
	BodyTimeout caddy.Duration `json:"body_timeout,omitempty"`

	verifier *authsigner.Verifier
	app      *App
	metrics  *metrics
	logger   *zap.Logger
}

const defaultBodyTimeout = 10 * time.Second

// CaddyModule returns the Caddy module information.
func (Caller) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.gateway_caller",
		New: func() caddy.Module { return new(Caller) },
	}
}

// Provision takes the credentials and the limiter from the app.
func (h *Caller) Provision(ctx caddy.Context) error {
	app, err := appOf(ctx)
	if err != nil {
		return err
	}
	if app.credentials == nil {
		return errors.New(`the signed API needs credentials: set "secrets" in the global option "gateway"`)
	}
	if app.limiter == nil {
		return errors.New(`the signed API needs a store for its rate limits: set "redis" in the global option "gateway"`)
	}
	if h.MaxBody == 0 {
		h.MaxBody = authsigner.DefaultMaxBody
	}
	if h.BodyTimeout == 0 {
		h.BodyTimeout = caddy.Duration(defaultBodyTimeout)
	}
	h.app, h.metrics, h.logger = app, app.metrics, ctx.Logger()
	h.verifier = &authsigner.Verifier{Source: app.credentials.cache, MaxBody: h.MaxBody, Now: time.Now}
	return nil
}

// Validate checks the bounds.
func (h *Caller) Validate() error {
	if h.MaxBody < 0 || h.BodyTimeout < 0 {
		return errors.New("max_body and body_timeout must not be negative")
	}
	return nil
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Caller) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	c, err := callOf(r.Context())
	if err != nil {
		return err
	}
	if !c.counted {
		return errNotFound
	}
	if isEarlyData(r) {
		return caddyhttp.Error(http.StatusTooEarly, errEarlyData)
	}
	start := time.Now()
	keys := r.Header[authsigner.HeaderPublicKey]
	named := len(keys) > 0 && (len(keys) > 1 || keys[0] != "")
	if named {
		if err := h.verify(w, r, c, keys[0]); err != nil {
			return err
		}
	} else {
		c.verdict = authsigner.ErrMissingCredentials
	}
	c.verifyTime = time.Since(start)

	start = time.Now()
	ctx := r.Context()
	if c.credential == nil {
		// Who cannot sign pays whether or not it waits for the answer, or else naming a key and breaking off would be
		// a look-up for nothing.
		ctx = context.WithoutCancel(ctx)
	}
	err = h.charge(ctx, w, c, named, keys)
	c.limitTime = time.Since(start)
	c.identified = true
	if err != nil {
		return err
	}
	if gone(r.Context(), c.verdict) {
		return fmt.Errorf("%w: %w", errClientGone, context.Cause(r.Context()))
	}
	return next.ServeHTTP(w, r)
}

// isEarlyData says if a request came as early data of HTTP/3 (0-RTT), before anything has proved that its sender is at its
// address. Whoever can write any address there would spend the budgets of others, and have one for each that it can think
// of; and what others have sent can be sent again.
func isEarlyData(r *http.Request) bool { return r.TLS != nil && !r.TLS.HandshakeComplete }

// gone says if the caller has closed the connection before there was a verdict. net/http ends the request's context
// with the first read of the connection that fails; one that failed because of its deadline says nothing of the kind:
// that caller is there, and slow.
func gone(ctx context.Context, verdict error) bool {
	return verdict != nil && ctx.Err() != nil && !errors.Is(verdict, os.ErrDeadlineExceeded)
}

// verify fills in the credential, or the verdict that kept it from being known. The error it returns is a refusal
// that comes before any verdict.
func (h *Caller) verify(w http.ResponseWriter, r *http.Request, c *call, key string) error {
	if authsigner.ValidPublicKey(key) && !h.app.credentials.cache.Known(key) {
		// An address that has used up its budget for unverified requests causes no look-up.
		address := ratelimit.AddressKey(c.addr)
		res, err := h.app.limiter.Peek(r.Context(), address, ratelimit.UnverifiedAddress(address))
		if err == nil && !res.Allowed {
			if err := h.refuse(w, c, res); err != nil { // none in shadow mode
				return err
			}
		}
	}
	if r.Body != nil && r.Body != http.NoBody {
		rc := http.NewResponseController(w)
		_ = rc.SetReadDeadline(time.Now().Add(time.Duration(h.BodyTimeout)))
		defer func() { _ = rc.SetReadDeadline(time.Time{}) }()
	}
	c.credential, c.verdict = h.verifier.Verify(r, c.target)
	return nil
}

// charge takes the request from the budget of whoever pays for it (contract, section 4).
func (h *Caller) charge(ctx context.Context, w http.ResponseWriter, c *call, named bool, keys []string) error {
	var (
		group   string
		buckets []ratelimit.Bucket
		one     [1]ratelimit.Bucket
	)
	switch {
	case c.credential != nil:
		group, one[0] = h.app.limits.key(c.credential)
		buckets = one[:]
	case named:
		key := keys[0]
		if len(keys) > 1 {
			key = "several" // no public key: it is too short
		}
		group, buckets = ratelimit.ForUnverified(key, ratelimit.AddressKey(c.addr))
	default:
		group, one[0] = h.app.limits.address(c.addr)
		buckets = one[:]
	}
	res, err := h.app.limiter.Take(ctx, group, buckets...)
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", errClientGone, context.Cause(ctx))
		}
		return fmt.Errorf("%w: %w", errLimitUnavailable, err)
	}
	h.metrics.limited(res)
	if !res.Allowed {
		return h.refuse(w, c, res)
	}
	c.limit = res
	res.SetHeaders(w.Header(), time.Now())
	return nil
}

// refuse answers for a used-up budget, or, in shadow mode, only says that it would have.
func (h *Caller) refuse(w http.ResponseWriter, c *call, res ratelimit.Result) error {
	c.limit = res
	res.SetHeaders(w.Header(), time.Now())
	if h.app.Limits.Shadow {
		w.Header().Del("Retry-After") // the request is served
		h.metrics.shadowed(res)
		if e := h.logger.Check(zap.InfoLevel, "limit used up, not enforced in shadow mode"); e != nil {
			e.Write(zap.String("request_id", c.id), zap.String("limit", res.Tightest().Limit.Name))
		}
		return nil
	}
	return &rateLimitedError{retryAfter: res.RetryAfter, limit: res.Tightest().Limit.Name}
}

// verdictName is the verdict in a log line or a label: one of a fixed few.
func verdictName(c *call) string {
	switch {
	case c.credential != nil && c.verdict == nil:
		return "verified"
	case c.verdict == nil:
		return "none"
	case errors.Is(c.verdict, authsigner.ErrAccountInactive):
		return "inactive"
	case errors.Is(c.verdict, authsigner.ErrMissingCredentials):
		return "missing"
	case errors.Is(c.verdict, authsigner.ErrExpired):
		return "expired"
	case errors.Is(c.verdict, authsigner.ErrInvalidCredentials):
		return "invalid"
	case errors.Is(c.verdict, authsigner.ErrUnavailable):
		return "unavailable"
	default:
		return "unreadable"
	}
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Caller)(nil)
	_ caddy.Validator             = (*Caller)(nil)
	_ caddyhttp.MiddlewareHandler = (*Caller)(nil)
)
