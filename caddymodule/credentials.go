package caddymodule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/file"
	"github.com/gatehouse-gateway/gatehouse/authsigner/vault"
)

// credentialsNamespace is the module namespace of credential sources.
const credentialsNamespace = "gatehouse.credentials"

// CredentialSourceModule is a module in the namespace gatehouse.credentials.
type CredentialSourceModule interface {
	// Settings returns all settings, with placeholders resolved. Configurations with equal settings share one open store.
	// The value may hold secrets; it is only hashed.
	Settings() any

	// Open opens the store. If the store is unreachable, Open succeeds and the store retries in the background; invalid
	// settings are an error. report is called for later events, from any goroutine.
	Open(ctx context.Context, report func(SourceEvent)) (CredentialStore, error)
}

// CredentialStore is what a [CredentialSourceModule] opens.
type CredentialStore interface {
	authsigner.KeyStore

	// Ready returns an error if the store currently has a fault. The error wraps authsigner.ErrUnavailable if lookups are likely to fail:
	// then a gateway without cached credentials is not ready.
	Ready() error

	// Close closes connections and stops background work.
	Close() error
}

// SourceEvent is an event of a credential source, for logs and metrics.
type SourceEvent struct {
	// Kind is the value of a metric label: one of a small fixed set.
	Kind string

	// Err is the cause, if something failed. It must not contain secrets.
	Err error

	// Changed are the public keys whose credentials have changed.
	Changed []string
}

// credentialEvent counts and logs an event of a credential source or its cache.
func credentialEvent(level zapcore.Level, message, kind string, err error, fields ...zap.Field) {
	sharedMetrics().credentialEvents.WithLabelValues(kind).Inc()
	if e := activeLogger().Check(level, message); e != nil {
		e.Write(append(fields, zap.String("event", kind), zap.Error(err))...)
	}
}

// eventMessage returns the log message of an event of a credential source or its cache.
func eventMessage(kind string) string {
	return cmp.Or(map[string]string{
		string(vault.EventLogin):            "logged in to vault",
		string(vault.EventLoginFailed):      "vault login failed, retrying",
		string(vault.EventRenewed):          "vault token renewed",
		string(vault.EventRenewalFailed):    "vault token renewal failed, retrying",
		string(vault.EventDenied):           "vault denied a request, logging in again",
		string(file.EventReloaded):          "credential file reloaded",
		eventFileChanged:                    "credentials in the file changed",
		string(file.EventInvalid):           "credential file is invalid, using its last valid content",
		string(file.EventMalformed):         "malformed credential, its key cannot be used",
		string(authsigner.CacheMalformed):   "malformed credential, its key cannot be used",
		string(authsigner.CacheFound):       "credential looked up",
		string(authsigner.CacheUnknown):     "credential lookup found no such key",
		string(authsigner.CacheFailed):      "credential lookup failed",
		string(authsigner.CacheStale):       "credential lookup failed, using cached credential",
		string(authsigner.CacheSkipped):     "credential lookup skipped, source unavailable",
		string(authsigner.CacheUnavailable): "credential source unavailable",
		string(authsigner.CacheAvailable):   "credential source available again",
	}[kind], "credential event")
}

// pooledCredentials is an open credential source, its cache, and the subscription to invalidations.
type pooledCredentials struct {
	store    CredentialStore
	cache    *authsigner.Cache
	lookups  *lookupLimiter
	listen   *invalidationListener
	failures authFailures
	reached  atomic.Bool // a source was available since the gateway was started
}

// acquireCredentials sets a.credentials.
func (a *App) acquireCredentials(source CredentialSourceModule) (err error) {
	var redis []any
	if a.redis != nil {
		redis = a.redis.settings
	}
	a.credentials, err = acquire(a, func() (*pooledCredentials, error) {
		p := new(pooledCredentials)
		if old := activeApp(); old != nil && old.credentials != nil {
			p.reached.Store(old.credentials.reached.Load())
		}
		if err := p.open(source, a.Cache, a.redis); err != nil {
			return nil, errors.Join(err, p.Destruct())
		}
		return p, nil
	}, source.Settings(), a.Cache, redis)
	return err
}

func (p *pooledCredentials) open(source CredentialSourceModule, c CacheConfig, r *pooledRedis) error {
	var (
		cache atomic.Pointer[authsigner.Cache] // the store may report before the cache exists
		err   error
	)
	// context.Background, because the store lives as long as the pool's entry, which outlives the configuration
	p.store, err = source.Open(context.Background(), func(e SourceEvent) {
		level := zap.InfoLevel
		if e.Err != nil {
			level = zap.WarnLevel
		} else {
			p.reached.Store(true)
		}
		credentialEvent(level, eventMessage(e.Kind), e.Kind, e.Err)
		if c := cache.Load(); c != nil {
			for _, key := range e.Changed {
				c.Invalidate(key)
			}
		}
	})
	if err != nil {
		return err
	}
	p.cache, err = authsigner.NewCache(p.store, authsigner.CacheOptions{
		TTL: time.Duration(c.TTL), NegativeTTL: time.Duration(c.NegativeTTL),
		RefreshBefore: time.Duration(c.RefreshBefore), StaleIfError: time.Duration(c.StaleIfError),
		LookupTimeout: time.Duration(c.LookupTimeout), MaxEntries: c.MaxEntries, MaxLookups: c.MaxLookups,
		OnEvent: func(e authsigner.CacheEvent) {
			fields := []zap.Field{zap.String("public_key", e.PublicKey)}
			switch e.Kind {
			case authsigner.CacheUnavailable, authsigner.CacheAvailable:
				fields = nil // the event is about the source, not about the key
			case authsigner.CacheStale:
				fields = append(fields, zap.Duration("age", e.Age))
			case authsigner.CacheFound, authsigner.CacheUnknown, authsigner.CacheMalformed, authsigner.CacheFailed:
				fields = append(fields, zap.Duration("duration", e.Took))
			}
			credentialEvent(cacheEventLevel(e.Kind), eventMessage(string(e.Kind)), string(e.Kind), e.Err, fields...)
		},
	})
	if err != nil {
		return err
	}
	cache.Store(p.cache)
	p.lookups = newLookupLimiter(c)
	if r != nil {
		p.listen = listenForInvalidations(r.client, p.cache, func(kind string, err error) {
			credentialEvent(zap.WarnLevel, "subscription to credential changes lost, retrying", kind, err)
		})
	}
	return nil
}

// cacheEventLevel returns debug for events that any caller can cause by sending keys.
func cacheEventLevel(kind authsigner.CacheEventKind) zapcore.Level {
	switch kind {
	case authsigner.CacheMalformed, authsigner.CacheUnavailable:
		return zap.WarnLevel
	case authsigner.CacheAvailable:
		return zap.InfoLevel
	default:
		return zap.DebugLevel
	}
}

// Destruct implements caddy.Destructor: the last configuration has released the credentials.
func (p *pooledCredentials) Destruct() error {
	p.listen.stop()
	var errs []error
	if p.cache != nil {
		errs = append(errs, p.cache.Close())
	}
	if p.store != nil {
		errs = append(errs, p.store.Close())
	}
	return errors.Join(errs...)
}

// LoadCredentialSource loads the app's credential source, without a cache.
func (a *App) LoadCredentialSource(ctx caddy.Context) (CredentialSourceModule, error) {
	mod, err := ctx.LoadModule(a, "CredentialsRaw")
	if err != nil {
		return nil, fmt.Errorf("loading credential source: %w", err)
	}
	source, ok := mod.(CredentialSourceModule)
	if !ok {
		return nil, fmt.Errorf("loading credential source: module %T is not a credential source", mod)
	}
	return source, nil
}
