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
	startErr atomic.Pointer[error] // why Redis has not responded since the limiter was created; nil once it has
	logged   atomic.Bool           // startErr was logged
	cancel   context.CancelFunc    // of warmUp
	warm     sync.WaitGroup
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
	warmUpTimeout = 500 * time.Millisecond // limits how long startup waits for Redis
	warmUpRetry   = time.Second
)

// warmUp opens connections, so that the first requests need not. An unavailable Redis does not prevent startup. It is pinged
// until it responds: readiness must not depend on requests, which a load balancer may not send before.
func (p *pooledLimiter) warmUp() {
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	if p.ping(ctx) {
		return
	}
	p.warm.Go(func() {
		for !p.ping(ctx) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(warmUpRetry):
			}
		}
		activeLogger().Info("redis available after startup, rate limits are shared by the fleet")
	})
}

// ping reports whether Redis responds, and sets startErr.
func (p *pooledLimiter) ping(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, warmUpTimeout)
	defer cancel()
	if err := p.Ping(ctx); err != nil {
		p.startErr.Store(&err)
		return false
	}
	p.startErr.Store(nil)
	return true
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
	if err := p.startErr.Load(); err != nil && !p.logged.Swap(true) {
		logger.Warn("redis unavailable at startup, applying on_outage", zap.String("on_outage", string(p.onOutage)), zap.Error(*err))
	}
}

// down returns why the limits are not shared by the fleet, or nil if they are.
func (p *pooledLimiter) down() error {
	if err := p.Unavailable(); err != nil {
		return err
	}
	if err := p.startErr.Load(); err != nil {
		return *err
	}
	return nil
}

// Destruct implements caddy.Destructor: the last configuration has released the limiter.
func (p *pooledLimiter) Destruct() error {
	p.cancel()
	p.warm.Wait()
	return p.Close()
}
