package caddymodule

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// pooledLimiter is a limiter shared by configurations. It must survive reloads, because this gateway enforces the limits by
// its local windows while Redis is unavailable.
type pooledLimiter struct {
	ratelimit.Limiter

	onOutage ratelimit.OnOutage
	pingErr  atomic.Pointer[error] // why Redis does not respond to pings; nil if it does, or has not been pinged
	logged   atomic.Bool           // the first pingErr was logged
	cancel   context.CancelFunc    // of watch
	watching sync.WaitGroup
}

// acquireLimiter sets a.limiter.
func (a *App) acquireLimiter() (err error) {
	c, timeout := a.Limits, time.Duration(a.Redis.Timeout)
	a.limiter, err = acquire(a, func() (*pooledLimiter, error) {
		p := &pooledLimiter{onOutage: cmp.Or(ratelimit.OnOutage(c.OnOutage), ratelimit.OnOutageLocal)}
		limiter, err := ratelimit.New(a.redis.client, ratelimit.Options{
			Algorithm: ratelimit.Algorithm(c.Algorithm), OnOutage: p.onOutage,
			Timeout: timeout, MaxEntries: c.MaxLocalWindows, OnEvent: p.event,
		})
		if err != nil {
			return nil, err
		}
		p.Limiter = limiter
		p.warmUp()
		return p, nil
	}, a.redis.settings, c.Algorithm, c.OnOutage, c.MaxLocalWindows)
	return err
}

const (
	pingTimeout  = 500 * time.Millisecond // also limits how long startup waits for Redis
	pingInterval = 5 * time.Second
	pingRetry    = time.Second
)

// warmUp opens connections, so that the first requests need not. An unavailable Redis does not prevent startup.
func (p *pooledLimiter) warmUp() {
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	if err := p.ping(ctx); err != nil {
		p.pingErr.Store(&err)
	}
	p.watching.Go(func() { p.watch(ctx) })
}

// watch pings Redis until it responds, and whenever no request has asked it for a while: readiness and alerts must not depend on requests. After
// startup, one ping that fails says nothing.
func (p *pooledLimiter) watch(ctx context.Context) {
	var asked uint64
	for failed := p.pingErr.Load() != nil; ; {
		wait := pingInterval
		if failed {
			wait = pingRetry
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		before := asked
		if asked = p.Stats().RoundTrips; p.Unavailable() != nil || !failed && asked != before {
			failed = false // requests have found out, and so will the limiter when Redis responds
			p.pingErr.Store(nil)
			continue
		}
		switch err := p.ping(ctx); {
		case ctx.Err() != nil:
			return
		case err == nil:
			failed = false
			if p.pingErr.Swap(nil) != nil {
				activeLogger().Info("redis responds, rate limits are shared by the fleet")
			}
		case !failed:
			failed = true
		case p.pingErr.Swap(&err) == nil:
			p.logged.Store(true)
			activeLogger().Warn("redis unavailable, applying on_outage", zap.String("on_outage", string(p.onOutage)), zap.Error(err))
		}
	}
}

func (p *pooledLimiter) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	return p.Ping(ctx)
}

func (p *pooledLimiter) event(e ratelimit.Event) {
	sharedMetrics().limiterEvents.WithLabelValues(string(e.Kind)).Inc()
	logger := activeLogger()
	switch e.Kind {
	case ratelimit.EventUnavailable:
		logger.Warn("redis unavailable, applying on_outage",
			zap.String("on_outage", string(p.onOutage)), zap.Error(e.Cause), zap.Int("shard", e.Shard), zap.Int("shards", e.Shards))
	case ratelimit.EventShared:
		logger.Info("redis available again, rate limits are shared by the fleet",
			zap.Duration("outage", e.Duration), zap.Int("synced", e.Synced), zap.Int("shard", e.Shard), zap.Int("shards", e.Shards))
	case ratelimit.EventDataLost:
		logger.Warn("redis lost data, resyncing the requests that this gateway allowed")
	case ratelimit.EventOverloaded:
		logger.Warn("redis, the network or the gateway is overloaded, deciding rate limits locally", zap.Int("queue", p.Stats().Queue))
	case ratelimit.EventOverloadEnded:
		logger.Info("redis responds in time again")
	}
}

// warn logs once if Redis was unavailable at startup.
func (p *pooledLimiter) warn(logger *zap.Logger) {
	if err := p.pingErr.Load(); err != nil && !p.logged.Swap(true) {
		logger.Warn("redis unavailable at startup, applying on_outage", zap.String("on_outage", string(p.onOutage)), zap.Error(*err))
	}
}

// down returns why the limits are not shared by the fleet, or nil if they are.
func (p *pooledLimiter) down() error {
	if err := p.Unavailable(); err != nil {
		return err
	}
	if err := p.pingErr.Load(); err != nil {
		return *err
	}
	return nil
}

// Destruct implements caddy.Destructor: the last configuration has released the limiter.
func (p *pooledLimiter) Destruct() error {
	p.cancel()
	p.watching.Wait()
	return p.Close()
}
