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

// pooledLimiter is a limiter that several configurations may hold. It must survive reloads: in its memory is what this
// gateway has admitted, which is what keeps the limits while Redis is away.
type pooledLimiter struct {
	key   string
	fleet *ratelimit.Fleet
	sink  sinkRef

	// startErr is why the store could not be tried out when the limiter was made; nil once it was.
	startErr atomic.Pointer[error]
	said     atomic.Bool // a log has it
	cancel   context.CancelFunc
	trying   sync.WaitGroup
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

const (
	warmUpTimeout = 500 * time.Millisecond // bounds how long a start waits for the store
	warmUpRetry   = time.Second
)

// warmUp opens the connections, so that the first requests do not pay for them. A store that is away is no reason not to
// start. It is then tried again until it answers: readiness must not hang on requests that a load balancer may not send
// before it.
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
			out.logger.Info("limits: the store that was away at the start answers, the fleet's shared limits are in force")
		}
	})
}

// tryOut says if the store answered, and keeps why it did not.
func (p *pooledLimiter) tryOut(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, warmUpTimeout)
	defer cancel()
	err := p.fleet.Ping(ctx)
	if err != nil {
		p.startErr.Store(&err)
		return false
	}
	p.startErr.Store(nil)
	return true
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

// start makes s the sink, says there what the start has found, and returns the sink before.
func (p *pooledLimiter) start(s *sink) (before *sink) {
	before = p.sink.Swap(s)
	if err := p.startErr.Load(); err != nil && !p.said.Swap(true) {
		s.logger.Warn("limits: the store was away at the start, this gateway goes on as on_outage says", zap.Error(*err))
	}
	return before
}

// down is why the fleet's shared limits are not in force, or nil.
func (p *pooledLimiter) down() error {
	if err := p.fleet.Down(); err != nil {
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
	return p.fleet.Close()
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
