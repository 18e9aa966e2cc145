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

// App holds what all routes of a gateway share: the credentials and their cache, Redis and the limits, and the key
// that signs the hop assertion. Stores that are away do not keep it from starting; settings that are wrong do.
type App struct {
	// Redis is the store of the rate limits. Default: none; the signed API then does not start.
	Redis *RedisConfig `json:"redis,omitempty"`

	// CredentialsRaw is the source of credentials: a module of the namespace gatehouse.credentials, named by "source".
	// Default: none; the signed API then does not start.
	CredentialsRaw json.RawMessage `json:"credentials,omitempty" caddy:"namespace=gatehouse.credentials inline_key=source"`

	// Cache says how long credentials are used without asking their source.
	Cache CacheConfig `json:"cache,omitzero"`

	// Limits are the rate limits. Default: the contract's.
	Limits LimitsConfig `json:"limits,omitzero"`

	// Assertion lets data services verify that a request came through this gateway. Default: none, and no assertion.
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
	sinkBefore  [2]*sink                   // of credentials and limits
	servers     map[*caddyhttp.Server]bool // that pass "OPTIONS *" on to their routes
}

// CacheConfig bounds the use of cached credentials. Zero means the default everywhere.
type CacheConfig struct {
	// TTL is how long a credential is used without asking again: the time within which a revoked key stops working
	// even if the push over Redis is lost. Default: 1m.
	TTL caddy.Duration `json:"ttl,omitempty"`

	// NegativeTTL is how long "no such key" is remembered. Default: 10s.
	NegativeTTL caddy.Duration `json:"negative_ttl,omitempty"`

	// RefreshBefore is how long before its TTL ends a credential in use is refreshed, off the request's path.
	// Default: 15s, or a quarter of a shorter TTL.
	RefreshBefore caddy.Duration `json:"refresh_before,omitempty"`

	// StaleIfError is how long a known credential goes on working while its source is away. While the source answers, none is
	// used past its TTL. Default: 1h.
	StaleIfError caddy.Duration `json:"stale_if_error,omitempty"`

	// LoadTimeout bounds one look-up, and so how long a request waits for the source. Default: 2s.
	LoadTimeout caddy.Duration `json:"load_timeout,omitempty"`

	// MaxEntries bounds the number of cached credentials. Default: 100000.
	MaxEntries int `json:"max_entries,omitempty"`
}

// LimitsConfig is what a minute admits. Zero means the contract's number everywhere.
type LimitsConfig struct {
	// PerKey is the number of requests a minute for each public key, unless its credential says otherwise. Default: 60.
	PerKey int `json:"per_key,omitempty"`

	// PerIP is the number of requests a minute without a public key, for each client IP. Default: 10.
	PerIP int `json:"per_ip,omitempty"`

	// Algorithm is "exact" (no minute ever holds more than the limit) or "gcra" (smoother; a full burst and the
	// refill can pass within the first minute: up to 119 for 60). Default: exact.
	Algorithm string `json:"algorithm,omitempty"`

	// OnOutage says what a gateway does while Redis is away: "local" (each gateway enforces the limits by itself),
	// "deny" (503) or "allow" (no limits). Default: local.
	OnOutage string `json:"on_outage,omitempty"`

	// Shadow only reports: nobody is refused, headers, logs and metrics say who would have been. Default: false.
	Shadow bool `json:"shadow,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  appName,
		New: func() caddy.Module { return new(App) },
	}
}

// Provision opens the shared clients, or takes the running ones if their settings have not changed.
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

// Validate checks the numbers.
func (a *App) Validate() error {
	l := a.Limits
	if l.PerKey < 0 || l.PerKey > ratelimit.MaxRequests || l.PerIP < 0 || l.PerIP > ratelimit.MaxRequests {
		return fmt.Errorf("limits: a limit must be between 1 and %d requests a minute", ratelimit.MaxRequests)
	}
	c := a.Cache
	if c.TTL < 0 || c.NegativeTTL < 0 || c.RefreshBefore < 0 || c.StaleIfError < 0 || c.LoadTimeout < 0 || c.MaxEntries < 0 {
		return errors.New("cache: a bound must not be negative")
	}
	return nil
}

// Start makes this app the one that the shared clients report to.
func (a *App) Start() error {
	if a.credentials != nil {
		a.sinkBefore[0] = a.credentials.sink.Swap(a.sink)
	}
	if a.pooledLimit != nil {
		a.sinkBefore[1] = a.pooledLimit.start(a.sink)
	}
	return nil
}

// Stop implements caddy.App. If another app of this configuration failed to start, the configuration before goes on, and
// is reported to again. What is held is released in Cleanup, which also runs when a later app failed to start.
func (a *App) Stop() error {
	a.sink.over.Store(true)
	if a.credentials != nil {
		a.credentials.sink.giveBack(a.sink, a.sinkBefore[0])
	}
	if a.pooledLimit != nil {
		a.pooledLimit.sink.giveBack(a.sink, a.sinkBefore[1])
	}
	return nil
}

// Cleanup releases what Provision took, and only that: it also runs after a Provision that stopped half-way.
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

// appInForce returns the app of the configuration that is running, whichever was loaded or tried since: one that failed
// leaves its admin API behind.
func appInForce() (*App, error) {
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

// limits turns callers into buckets.
type limits struct {
	perKey     int
	perAddress ratelimit.Limit
}

func (c LimitsConfig) limits() limits {
	return limits{perKey: c.PerKey, perAddress: ratelimit.IPLimit(c.PerIP)}
}

// key is the bucket of a verified caller.
func (l *limits) key(c *authsigner.Credential) (string, ratelimit.Bucket) {
	requests := l.perKey
	if c.Limit > 0 {
		requests = min(c.Limit, ratelimit.MaxRequests)
	}
	return ratelimit.ForKey(c.PublicKey, ratelimit.KeyLimit(requests))
}

// address is the bucket of a caller who names no key.
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
