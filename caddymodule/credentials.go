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
)

// credentialsNamespace is where the modules live that know where credentials are kept.
const credentialsNamespace = "gatehouse.credentials"

// SecretsSource is a module of the namespace gatehouse.credentials. It opens the store in which credentials are kept.
type SecretsSource interface {
	// Settings are everything that makes two sources differ, with placeholders resolved. It may hold secrets: it is
	// only ever hashed. Configurations with equal settings share one open store.
	Settings() any

	// Open opens the store. One that is away opens all the same, and is tried again in the background; settings that
	// can never work are an error. What happens later is reported, from any goroutine.
	Open(ctx context.Context, report func(SourceEvent)) (CredentialStore, error)
}

// CredentialStore is an open source of credentials.
type CredentialStore interface {
	authsigner.KeyStore

	// Ready says why the store cannot answer at the moment, or nil.
	Ready() error

	// Close lets go of connections and background work.
	Close() error
}

// SourceEvent is something that an operator may want to know of a source.
type SourceEvent struct {
	// Kind is one of a fixed few words, fit for a metric's label.
	Kind string

	// Err is the cause, if something failed. It names no secret.
	Err error

	// Changed are public keys whose credentials have changed, if the source noticed.
	Changed []string
}

// sink is where shared parts report to: the logger and the metrics of the configuration in force. Shared parts outlive
// configurations, so they reach it through an atomic pointer that each start replaces.
type sink struct {
	logger  *zap.Logger
	metrics *metrics
	over    atomic.Bool // the configuration was stopped
}

// sinkRef is the pointer to the sink in force; before the first start there is none, and nothing is reported.
type sinkRef struct{ atomic.Pointer[sink] }

// giveBack puts the sink before in place of this one, if that is still the one in force and its configuration goes on.
func (s *sinkRef) giveBack(this, before *sink) {
	if before != nil && !before.over.Load() {
		s.CompareAndSwap(this, before)
	}
}

func (s *sinkRef) credentialEvent(level zapcore.Level, kind string, err error, fields ...zap.Field) {
	out := s.Load()
	if out == nil {
		return
	}
	out.metrics.credentialEvents.WithLabelValues(kind).Inc()
	if e := out.logger.Check(level, "credentials: "+kind); e != nil {
		e.Write(append(fields, zap.Error(err))...)
	}
}

// pooledCredentials is an open source with its cache and the subscription that keeps it current.
type pooledCredentials struct {
	key     string
	store   CredentialStore
	cache   *authsigner.Cache
	lookups *lookupLimiter
	listen  *invalidation
	sink    sinkRef
}

func acquireCredentials(source SecretsSource, c CacheConfig, r *pooledRedis) (*pooledCredentials, error) {
	redisKey := ""
	if r != nil {
		redisKey = r.key
	}
	key, err := poolKey(source.Settings(), c, redisKey)
	if err != nil {
		return nil, err
	}
	v, _, err := credentialsPool.LoadOrNew(key, func() (caddy.Destructor, error) {
		p := &pooledCredentials{key: key}
		if err := p.open(source, c, r); err != nil {
			return nil, errors.Join(err, p.Destruct())
		}
		return p, nil
	})
	if err != nil {
		return nil, err
	}
	p, _ := v.(*pooledCredentials)
	return p, nil
}

func (p *pooledCredentials) open(source SecretsSource, c CacheConfig, r *pooledRedis) error {
	var (
		cache atomic.Pointer[authsigner.Cache] // the store may report before the cache is made
		err   error
	)
	// the store lives as long as the pool's entry, and not as long as the configuration that came first
	p.store, err = source.Open(context.Background(), func(e SourceEvent) {
		level := zap.InfoLevel
		if e.Err != nil {
			level = zap.WarnLevel
		}
		p.sink.credentialEvent(level, e.Kind, e.Err)
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
		LoadTimeout: time.Duration(c.LoadTimeout), MaxEntries: c.MaxEntries,
		OnEvent: func(e authsigner.CacheEvent) {
			fields := []zap.Field{zap.String("public_key", e.PublicKey)}
			if e.Kind == authsigner.CacheAway || e.Kind == authsigner.CacheBack {
				fields = nil // it is about the source, and not about the key that happened to be asked for
			}
			p.sink.credentialEvent(cacheEventLevel(e.Kind), string(e.Kind), e.Err, fields...)
		},
	})
	if err != nil {
		return fmt.Errorf("making the credential cache: %w", err)
	}
	cache.Store(p.cache)
	p.lookups = newLookupLimiter(cmp.Or(time.Duration(c.LoadTimeout), authsigner.DefaultLoadTimeout))
	if r != nil {
		p.listen = listenForInvalidations(r.client, p.cache, func(kind string, err error) {
			p.sink.credentialEvent(zap.WarnLevel, kind, err)
		})
	}
	return nil
}

// cacheEventLevel is loud where an operator has something to do or to know, and quiet about what any caller can bring
// about by naming keys.
func cacheEventLevel(kind authsigner.CacheEventKind) zapcore.Level {
	switch kind {
	case authsigner.CacheMalformed, authsigner.CacheAway:
		return zap.WarnLevel
	case authsigner.CacheBack:
		return zap.InfoLevel
	default:
		return zap.DebugLevel
	}
}

// ready says why new keys cannot be looked up at the moment, or nil.
func (p *pooledCredentials) ready() error { return p.store.Ready() }

// Destruct closes everything when the last configuration has let go of it.
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

func (p *pooledCredentials) release() error {
	if p == nil {
		return nil
	}
	_, err := credentialsPool.Delete(p.key)
	return err
}

// loadSource loads the app's source without its cache, for commands.
func loadSource(ctx caddy.Context, a *App) (SecretsSource, error) {
	mod, err := ctx.LoadModule(a, "CredentialsRaw")
	if err != nil {
		return nil, fmt.Errorf("loading credential source: %w", err)
	}
	source, ok := mod.(SecretsSource)
	if !ok {
		return nil, fmt.Errorf("loading credential source: module %T is not a credential source", mod)
	}
	return source, nil
}

// Interface guard.
var _ caddy.Destructor = (*pooledCredentials)(nil)
