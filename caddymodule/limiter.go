package caddymodule

import (
	"context"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// limiterPrefix begins the names of all keys that the limits use in Redis.
const limiterPrefix = "gatehouse:limit:"

// pooledLimiter is a limiter that several configurations may hold. It must survive reloads: in its memory is what this
// gateway has admitted, which is what keeps the limits while Redis is away.
type pooledLimiter struct {
	key   string
	fleet *ratelimit.Fleet
	sink  sinkRef
	// startErr is why the store could not be reached when the limiter was made, or nil.
	startErr error
}

func acquireLimiter(r *pooledRedis, c LimitsConfig, timeout time.Duration) (*pooledLimiter, error) {
	key, err := poolKey(r.key, c.Algorithm, c.OnOutage, timeout)
	if err != nil {
		return nil, err
	}
	v, loaded, err := limiterPool.LoadOrNew(key, func() (caddy.Destructor, error) {
		p := &pooledLimiter{key: key}
		fleet, err := ratelimit.New(r.client, ratelimit.Options{
			Algorithm: ratelimit.Algorithm(c.Algorithm), OnOutage: ratelimit.Policy(c.OnOutage),
			Prefix: limiterPrefix, Timeout: timeout, OnEvent: p.event,
		})
		if err != nil {
			return nil, err
		}
		p.fleet = fleet
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

// warmUpTimeout bounds how long a start waits for the store.
const warmUpTimeout = 500 * time.Millisecond

// warmUp opens the connections, so that the first requests do not pay for them. A store that is away is no reason not to
// start: the requests will find out, and say so.
func (p *pooledLimiter) warmUp() {
	ctx, cancel := context.WithTimeout(context.Background(), warmUpTimeout)
	defer cancel()
	p.startErr = p.fleet.Ping(ctx)
}

func (p *pooledLimiter) event(e ratelimit.Event) {
	kind := "store_back"
	if e.Down {
		kind = "store_away"
	}
	out := p.sink.Load()
	if out == nil {
		return
	}
	out.metrics.limiterEvents.WithLabelValues(kind).Inc()
	if e.Down {
		out.logger.Warn("limits: the store is away, this gateway goes on as on_outage says",
			zap.Error(e.Cause), zap.Int("part", e.Part), zap.Int("parts", e.Parts))
		return
	}
	out.logger.Info("limits: the store is back, the fleet's shared limits are in force again",
		zap.Duration("away", e.Lasted), zap.Int("settled", e.Settled), zap.Int("part", e.Part), zap.Int("parts", e.Parts))
}

// shared says if the fleet's shared limits are in force.
func (p *pooledLimiter) shared() bool { return p.fleet.Down() == nil }

// Destruct ends the limiter's background work when the last configuration has let go of it.
func (p *pooledLimiter) Destruct() error { return p.fleet.Close() }

func (p *pooledLimiter) release() error {
	if p == nil {
		return nil
	}
	_, err := limiterPool.Delete(p.key)
	return err
}

// Interface guard
var _ caddy.Destructor = (*pooledLimiter)(nil)
