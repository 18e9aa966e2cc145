package caddymodule

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// appName is the app's module ID and the name of its global option in a Caddyfile.
const appName = "gatehouse"

// App holds what all routes share: the credential source and its cache, Redis, the rate limits, and the keys that sign the
// hop assertion. An unreachable store does not prevent startup; invalid settings do.
type App struct {
	// Redis stores rate limits and the connection server's data. Required by gatehouse_api and gatehouse_connect.
	Redis *RedisConfig `json:"redis,omitempty"`

	// CredentialsRaw is the credential source: a module in the namespace gatehouse.credentials, selected by "source".
	// Required by gatehouse_api.
	CredentialsRaw json.RawMessage `json:"credentials,omitempty" caddy:"namespace=gatehouse.credentials inline_key=source"`

	// Cache configures the credential cache.
	Cache CacheConfig `json:"cache,omitzero"`

	// Limits configures the rate limits.
	Limits LimitsConfig `json:"limits,omitzero"`

	// Assertion configures the hop assertion, with which data services verify that a request came through this gateway.
	// Default: no assertion is sent.
	Assertion *AssertionConfig `json:"assertion,omitempty"`

	logger      *zap.Logger
	metrics     *metrics
	redis       *pooledRedis
	credentials *pooledCredentials
	limiter     ratelimit.Limiter
	pooledLimit *pooledLimiter
	limits      limits
	asserter    *upstream.Asserter
	sink        *sink
	oldSinks    [2]*sink                   // the sinks of credentials and limits that this app's sink has replaced
	servers     map[*caddyhttp.Server]bool // servers that pass "OPTIONS *" to their routes
}

// CacheConfig configures the credential cache. In each field, zero means the default.
type CacheConfig struct {
	// TTL is how long a credential is used before it is looked up again. A revoked key stops working within this time
	// even if its invalidation message over Redis is lost. Default: 1m.
	TTL caddy.Duration `json:"ttl,omitempty"`

	// NegativeTTL is how long an unknown key is cached as unknown. Default: 10s.
	NegativeTTL caddy.Duration `json:"negative_ttl,omitempty"`

	// RefreshBefore is how long before the end of its TTL a credential in use is refreshed in the background.
	// Default: 15s, or a quarter of the TTL if that is less.
	RefreshBefore caddy.Duration `json:"refresh_before,omitempty"`

	// StaleIfError is how long a cached credential keeps working while the credential source is unavailable. Default: 1h.
	StaleIfError caddy.Duration `json:"stale_if_error,omitempty"`

	// LoadTimeout limits one lookup, and so how long a request waits for the credential source. Default: 2s.
	LoadTimeout caddy.Duration `json:"load_timeout,omitempty"`

	// MaxEntries is the maximum number of cached credentials. Default: 100000.
	MaxEntries int `json:"max_entries,omitempty"`
}

// LimitsConfig configures the rate limits. In each field, zero means the default.
type LimitsConfig struct {
	// PerKey is the limit of each public key in requests per minute. A limit in the key's credential overrides it.
	// Default: 60.
	PerKey int `json:"per_key,omitempty"`

	// PerIP is the limit of each client IP in requests per minute, for requests without a public key. Default: 10.
	PerIP int `json:"per_ip,omitempty"`

	// Algorithm is "exact" (a sliding window: no interval of one minute contains more than the limit) or "gcra"
	// (smoother, but allows up to 119 requests in the first minute of a limit of 60). Default: exact.
	Algorithm string `json:"algorithm,omitempty"`

	// OnOutage is what the gateway does while Redis is unavailable: "local" (each gateway enforces the limits on its
	// own), "deny" (respond with 503) or "allow" (no limits). Default: local.
	OnOutage string `json:"on_outage,omitempty"`

	// Shadow reports requests over a limit in headers, logs and metrics instead of denying them. Default: false.
	Shadow bool `json:"shadow,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  appName,
		New: func() caddy.Module { return new(App) },
	}
}

// Provision opens the shared clients, or reuses the running ones if their settings have not changed.
func (a *App) Provision(ctx caddy.Context) error {
	a.logger = ctx.Logger()
	m, err := registerMetrics(ctx.GetMetricsRegistry())
	if err != nil {
		return err
	}
	a.metrics = m
	a.sink = &sink{logger: a.logger, metrics: m}
	repl := caddy.NewReplacer()

	if a.Redis != nil {
		if a.redis, err = acquireRedis(a.Redis, repl); err != nil {
			return fmt.Errorf("setting up redis: %w", err)
		}
		if a.pooledLimit, err = acquireLimiter(a.redis, a.Limits, time.Duration(a.Redis.Timeout)); err != nil {
			return fmt.Errorf("setting up limits: %w", err)
		}
		a.limiter = a.pooledLimit.limiter
	}
	if a.CredentialsRaw != nil {
		source, err := loadSource(ctx, a)
		if err != nil {
			return err
		}
		if a.credentials, err = acquireCredentials(source, a.Cache, a.redis); err != nil {
			return fmt.Errorf("setting up credentials: %w", err)
		}
	}
	if a.Assertion != nil {
		if a.asserter, err = a.Assertion.asserter(repl); err != nil {
			return fmt.Errorf("setting up the hop assertion: %w", err)
		}
	}
	a.limits = a.Limits.limits()
	return nil
}

// Validate implements caddy.Validator.
func (a *App) Validate() error {
	l := a.Limits
	if l.PerKey < 0 || l.PerKey > ratelimit.MaxRequests || l.PerIP < 0 || l.PerIP > ratelimit.MaxRequests {
		return fmt.Errorf("invalid limits: per_key and per_ip must be from 1 to %d requests per minute, or 0 for the default", ratelimit.MaxRequests)
	}
	c := a.Cache
	if c.TTL < 0 || c.NegativeTTL < 0 || c.RefreshBefore < 0 || c.StaleIfError < 0 || c.LoadTimeout < 0 || c.MaxEntries < 0 {
		return errors.New("invalid cache: durations and max_entries must not be negative")
	}
	return nil
}

// Start makes the shared clients report to this app.
func (a *App) Start() error {
	if a.credentials != nil {
		a.oldSinks[0] = a.credentials.sink.Swap(a.sink)
	}
	if a.pooledLimit != nil {
		a.oldSinks[1] = a.pooledLimit.start(a.sink)
	}
	return nil
}

// Stop implements caddy.App. If another app of this configuration failed to start, the previous configuration keeps
// running, so the shared clients report to it again. Cleanup releases them.
func (a *App) Stop() error {
	a.sink.stopped.Store(true)
	if a.credentials != nil {
		a.credentials.sink.restore(a.sink, a.oldSinks[0])
	}
	if a.pooledLimit != nil {
		a.pooledLimit.sink.restore(a.sink, a.oldSinks[1])
	}
	return nil
}

// Cleanup releases the shared clients. It also runs after a Provision that failed, so it releases only what was acquired.
func (a *App) Cleanup() error {
	return errors.Join(a.credentials.release(), a.pooledLimit.release(), a.redis.release())
}

// appOf returns the app of the configuration that ctx belongs to.
func appOf(ctx caddy.Context) (*App, error) {
	mod, err := ctx.App(appName)
	if err != nil {
		return nil, fmt.Errorf("loading the app %q: %w", appName, err)
	}
	app, ok := mod.(*App)
	if !ok {
		return nil, fmt.Errorf("loading the app %q: it is a %T", appName, mod)
	}
	return app, nil
}

// activeApp returns the app of the running configuration. It is for the admin API and metrics: those of a configuration that
// failed to load stay registered, but must report on the running one.
func activeApp() (*App, error) {
	mod, err := caddy.ActiveContext().AppIfConfigured(appName)
	if err != nil {
		return nil, fmt.Errorf("finding the app %q: %w", appName, err)
	}
	app, ok := mod.(*App)
	if !ok {
		return nil, fmt.Errorf("finding the app %q: it is a %T", appName, mod)
	}
	return app, nil
}

// limits maps callers to rate limit keys.
type limits struct {
	perKey     int
	perAddress ratelimit.Limit
}

func (c LimitsConfig) limits() limits {
	return limits{perKey: c.PerKey, perAddress: ratelimit.IPLimit(c.PerIP)}
}

// key returns the rate limit key of an authenticated caller.
func (l *limits) key(c *authsigner.Credential) (string, ratelimit.Bucket) {
	requests := l.perKey
	if c.Limit > 0 {
		requests = min(c.Limit, ratelimit.MaxRequests)
	}
	return ratelimit.ForKey(c.PublicKey, ratelimit.KeyLimit(requests))
}

// address returns the rate limit key of a request without a public key.
func (l *limits) address(a netip.Addr) (string, ratelimit.Bucket) {
	return ratelimit.ForIP(ratelimit.IPKey(a), l.perAddress)
}

// Interface guards
var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.Validator    = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)
