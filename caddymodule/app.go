package caddymodule

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/caddymodule/internal/dataservice"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// AppName is the app's module ID and the name of its global option in a Caddyfile.
const AppName = "gatehouse"

// App holds what all routes share: the credential source and its cache, Redis, the rate limits, and the keys that sign the
// hop assertion. An unreachable store does not prevent startup; invalid settings do.
type App struct {
	// Redis stores rate limits and the connection server's data. Required by gatehouse_api, gatehouse_auth and gatehouse_connect.
	Redis *RedisConfig `json:"redis,omitempty"`

	// CredentialsRaw is the credential source: a module in the namespace gatehouse.credentials, selected by "source".
	// Required by gatehouse_api and gatehouse_auth.
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
	limiter     *pooledLimiter
	acquired    []string // keys in resources
	asserter    *upstream.Asserter
	claimed     map[string]string         // what the names in the resources of keys mean
	paths       map[any]map[string]string // the definitions' files, by list of routes and base path
	shares      *pooledShares
	services    []*dataservice.Service     // of all routes
	observed    []*observed                // of all APIs
	servers     map[*caddyhttp.Server]bool // servers that pass "OPTIONS *" to their routes

	connectUpstream json.RawMessage // of all gatehouse_connect
	public          bool            // data services serve operations that anyone may call

	bodies   bodies       // of all routes
	requests atomic.Int64 // in progress in our handlers
	conns    atomic.Int64 // of the servers, but for HTTP/3: their requests may be in handlers in front
	late     atomic.Bool  // conns do not count any more
	ended    atomic.Bool  // Cleanup was called
	released sync.Once
}

// pooledShares are shares that survive a reload, because requests of the old configuration may be in progress for long.
type pooledShares struct{ *dataservice.Shares }

// Destruct implements caddy.Destructor.
func (pooledShares) Destruct() error { return nil }

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

	// LookupTimeout limits one lookup, and so how long a request waits for the credential source. Default: 2s.
	LookupTimeout caddy.Duration `json:"lookup_timeout,omitempty"`

	// MaxEntries is the maximum number of cached credentials, and separately of keys cached as unknown. The least used are
	// evicted. Default: 100000.
	MaxEntries int `json:"max_entries,omitempty"`

	// MaxLookups is the maximum number of concurrent lookups of uncached keys, and separately of cached ones. A client IP may
	// cause an eighth of those of uncached keys. Default: 64.
	MaxLookups int `json:"max_lookups,omitempty"`
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

	// InFlight is the maximum number of calls to data services, and of requests through gatehouse_auth, that one public key, or
	// one business through assistants, may have in progress on each gateway. A call above it waits up to 5s for another to end, and then gets 429. Default: 32.
	InFlight int `json:"in_flight,omitempty"`

	// MaxLocalWindows is the maximum number of keys, and separately of client IPs, whose recent requests a gateway remembers
	// itself, to enforce their limits while Redis is unavailable. Default: 65536.
	MaxLocalWindows int `json:"max_local_windows,omitempty"`

	// AllowReplayedWrites accepts signed writes that may be repetitions, which somebody could have recorded, while Redis does not decide
	// about requests. Default: false; they get 503.
	AllowReplayedWrites bool `json:"allow_replayed_writes,omitempty"`

	// Shadow reports requests over a limit in headers, logs and metrics instead of denying them. Default: false.
	Shadow bool `json:"shadow,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  AppName,
		New: func() caddy.Module { return new(App) },
	}
}

// Provision opens the shared clients, or reuses the running ones if their settings have not changed.
func (a *App) Provision(ctx caddy.Context) error {
	dropQuotes()
	a.logger = ctx.Logger()
	m, err := registerMetrics(ctx.GetMetricsRegistry())
	if err != nil {
		return err
	}
	a.metrics = m
	if a.shares, err = acquire(a, func() (*pooledShares, error) {
		return &pooledShares{dataservice.NewShares(a.Limits.InFlight)}, nil
	}, a.Limits.InFlight); err != nil {
		return err
	}
	if a.Redis != nil {
		if err := a.OpenRedis(); err != nil {
			return fmt.Errorf("setting up redis: %w", err)
		}
		if err := a.acquireLimiter(); err != nil {
			return fmt.Errorf("setting up limits: %w", err)
		}
	}
	if a.CredentialsRaw != nil {
		source, err := a.LoadCredentialSource(ctx)
		if err != nil {
			return err
		}
		if err := a.acquireCredentials(source); err != nil {
			return fmt.Errorf("setting up credentials: %w", err)
		}
	}
	if a.Assertion != nil {
		if a.asserter, err = a.Assertion.asserter(caddy.NewReplacer()); err != nil {
			return fmt.Errorf("setting up the hop assertion: %w", err)
		}
	}
	return nil
}

// Validate implements caddy.Validator.
func (a *App) Validate() error {
	l := a.Limits
	if l.PerKey < 0 || l.PerKey > ratelimit.MaxRequests || l.PerIP < 0 || l.PerIP > ratelimit.MaxRequests {
		return fmt.Errorf("invalid limits: per_key and per_ip must be from 1 to %d requests per minute, or 0 for the default", ratelimit.MaxRequests)
	}
	if l.MaxLocalWindows < 0 || l.InFlight < 0 {
		return errors.New("invalid limits: max_local_windows and in_flight must not be negative")
	}
	c := a.Cache
	if c.TTL < 0 || c.NegativeTTL < 0 || c.RefreshBefore < 0 || c.StaleIfError < 0 || c.LookupTimeout < 0 || c.MaxEntries < 0 || c.MaxLookups < 0 {
		return errors.New("invalid cache: durations, max_entries and max_lookups must not be negative")
	}
	return nil
}

// Start implements caddy.App.
func (a *App) Start() error {
	if a.limiter != nil {
		a.limiter.warn(a.logger)
	}
	return nil
}

// Stop implements caddy.App. Cleanup releases the shared clients.
func (a *App) Stop() error { return nil }

// Cleanup releases the shared clients. It also runs after a Provision that failed, so it releases only what was acquired. After a
// reload, Caddy calls it while requests are in progress, some of them in handlers in front of ours, so the last of them releases the clients.
func (a *App) Cleanup() error {
	a.ended.Store(true)
	if (a.requests.Load() > 0 || a.conns.Load() > 0) && !caddy.Exiting() {
		time.AfterFunc(lateRequests, func() { // a connection may be open for long, without a request of ours
			a.late.Store(true)
			a.releaseUnused()
		})
		return nil
	}
	return a.release()
}

// lateRequests is how long after a reload a request that is in another handler in front may still reach ours.
const lateRequests = time.Minute

// requestEnded is called at the end of each request that was counted.
func (a *App) requestEnded() {
	a.requests.Add(-1)
	a.releaseUnused()
}

// releaseUnused releases the shared clients of a replaced configuration if nothing may need them any more.
func (a *App) releaseUnused() {
	if !a.ended.Load() || a.requests.Load() > 0 || a.conns.Load() > 0 && !a.late.Load() {
		return
	}
	go func() { // closing clients may take a while
		if err := a.release(); err != nil {
			a.logger.Error("releasing clients of the previous configuration failed", zap.Error(err))
		}
	}()
}

// release releases the shared clients once.
func (a *App) release() error {
	var errs []error
	a.released.Do(func() {
		for _, key := range slices.Backward(a.acquired) {
			_, err := resources.Delete(key)
			errs = append(errs, err)
		}
	})
	return errors.Join(errs...)
}

// appOf returns the app of the configuration that ctx belongs to.
func appOf(ctx caddy.Context) (*App, error) {
	mod, err := ctx.App(AppName)
	if err != nil {
		return nil, fmt.Errorf("loading the app %q: %w", AppName, err)
	}
	app, ok := mod.(*App)
	if !ok {
		return nil, fmt.Errorf("loading the app %q: unexpected type %T", AppName, mod)
	}
	return app, nil
}

// activeApp returns the app of the running configuration, or nil. It is for the admin API and metrics: those of a configuration
// that failed to load stay registered, but must report on the running one.
func activeApp() *App {
	mod, _ := caddy.ActiveContext().AppIfConfigured(AppName) // an error means that it is not configured
	app, _ := mod.(*App)
	return app
}

// loadService loads the reverse_proxy handler raw, which is the given field of a module's struct.
func (a *App) loadService(ctx caddy.Context, structPointer any, field string, raw *json.RawMessage) (*dataservice.Service, error) {
	service, err := dataservice.Load(ctx, structPointer, field, raw, dataservice.Options{
		Asserter: a.asserter, Shares: a.shares.Shares, Observe: a.metrics.observeCall,
	})
	if err != nil {
		return nil, err
	}
	a.services = append(a.services, service)
	return service, nil
}

// forKey returns the rate limit key of an authenticated caller.
func (c *LimitsConfig) forKey(cred *authsigner.Credential) (string, []ratelimit.Counter) {
	requests := c.PerKey
	if cred.Limit > 0 {
		requests = min(cred.Limit, ratelimit.MaxRequests)
	}
	return ratelimit.ForKey(cred.PublicKey, ratelimit.KeyLimit(requests))
}

// forIP returns the rate limit key of a request without a public key.
func (c *LimitsConfig) forIP(ip netip.Addr) (string, []ratelimit.Counter) {
	return ratelimit.ForIP(ip, ratelimit.IPLimit(c.PerIP))
}

// Interface guards
var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.Validator    = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)
