package caddymodule

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// limiterPrefix begins the names of all keys that the limits use in Redis.
const limiterPrefix = "gatehouse:limit:"

// pooledLimiter is a limiter that several configurations may hold. It must survive reloads: its local windows are what this
// gateway enforces the limits by while Redis is unavailable.
type pooledLimiter struct {
	key     string
	limiter ratelimit.Limiter
	sink    sinkRef

	// startErr is why the store could not be tried out when the limiter was made; nil once it was.
	startErr atomic.Pointer[error]
	said     atomic.Bool // a log has it
	cancel   context.CancelFunc
	trying   sync.WaitGroup
}

func acquireLimiter(r *pooledRedis, c LimitsConfig, timeout time.Duration) (*pooledLimiter, error) {
	key, err := poolKey(r.key, c.Algorithm, c.OnOutage, c.MaxLocalWindows, timeout)
	if err != nil {
		return nil, err
	}
	v, loaded, err := limiterPool.LoadOrNew(key, func() (caddy.Destructor, error) {
		p := &pooledLimiter{key: key}
		limiter, err := ratelimit.New(r.client, ratelimit.Options{
			Algorithm: ratelimit.Algorithm(c.Algorithm), OnOutage: ratelimit.Policy(c.OnOutage),
			Prefix: limiterPrefix, Timeout: timeout, MaxEntries: c.MaxLocalWindows, OnEvent: p.event,
		})
		if err != nil {
			return nil, err
		}
		p.limiter = limiter
		return p, nil
	})
	if err != nil {
		return nil, err
	}
	p, _ := v.(*pooledLimiter)
	if !loaded {
		p.warmUp()
	}
	return p, nil
}

const (
	warmUpTimeout = 500 * time.Millisecond // bounds how long a start waits for the store
	warmUpRetry   = time.Second
)

// warmUp opens the connections, so that the first requests need not. An unavailable Redis does not prevent startup. It is tried
// again until it answers: readiness must not depend on requests, which a load balancer may not send before it.
func (p *pooledLimiter) warmUp() {
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	if p.tryOut(ctx) {
		return
	}
	p.trying.Go(func() {
		for !p.tryOut(ctx) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(warmUpRetry):
			}
		}
		if out := p.sink.Load(); out != nil {
			out.logger.Info("rate limits: Redis was unavailable at startup and is available now, the limits are shared by the fleet")
		}
	})
}

// tryOut says if the store answered, and keeps why it did not.
func (p *pooledLimiter) tryOut(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, warmUpTimeout)
	defer cancel()
	err := p.limiter.Ping(ctx)
	if err != nil {
		p.startErr.Store(&err)
		return false
	}
	p.startErr.Store(nil)
	return true
}

func (p *pooledLimiter) event(e ratelimit.Event) {
	out := p.sink.Load()
	if out == nil {
		return
	}
	out.metrics.limiterEvents.WithLabelValues(string(e.Kind)).Inc()
	switch e.Kind {
	case ratelimit.Unavailable:
		out.logger.Warn("rate limits: Redis is unavailable, this gateway decides as on_outage says",
			zap.Error(e.Cause), zap.Int("shard", e.Shard), zap.Int("shards", e.Shards))
	case ratelimit.Shared:
		out.logger.Info("rate limits: Redis is available again, the limits are shared by the fleet",
			zap.Duration("outage", e.Duration), zap.Int("synced", e.Synced), zap.Int("shard", e.Shard), zap.Int("shards", e.Shards))
	case ratelimit.DataLost:
		out.logger.Warn("rate limits: Redis has lost data, this gateway resyncs the requests that it allowed")
	case ratelimit.Overloaded:
		out.logger.Warn("rate limits: Redis does not respond to most requests in time, this gateway decides locally. "+
			"Redis, the network or the gateway is overloaded", zap.Int("queue", p.limiter.Stats().Queue))
	case ratelimit.OverloadEnded:
		out.logger.Info("rate limits: Redis responds in time again")
	}
}

// start makes s the sink, says there what the start has found, and returns the sink before.
func (p *pooledLimiter) start(s *sink) (before *sink) {
	before = p.sink.Swap(s)
	if err := p.startErr.Load(); err != nil && !p.said.Swap(true) {
		s.logger.Warn("rate limits: Redis was unavailable at startup, this gateway decides as on_outage says", zap.Error(*err))
	}
	return before
}

// down is why the fleet's shared limits are not in force, or nil.
func (p *pooledLimiter) down() error {
	if err := p.limiter.Unavailable(); err != nil {
		return err
	}
	if err := p.startErr.Load(); err != nil {
		return *err
	}
	return nil
}

// Destruct ends the limiter's background work when the last configuration has let go of it.
func (p *pooledLimiter) Destruct() error {
	p.cancel()
	p.trying.Wait()
	return p.limiter.Close()
}

func (p *pooledLimiter) release() error {
	if p == nil {
		return nil
	}
	_, err := limiterPool.Delete(p.key)
	return err
}

// Interface guard.
var _ caddy.Destructor = (*pooledLimiter)(nil)
