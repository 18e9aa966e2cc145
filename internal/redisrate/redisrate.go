// Package redisrate is redis_rate for a Redis whose clock may be set back.
package redisrate

import (
	"context"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

// Limiter is a redis_rate.Limiter without its AllowAtMost. If a counter is further ahead of Redis's clock than possible, because the clock
// was set back, redis_rate would deny requests until the clock has caught up. Instead, the counter becomes a full one.
type Limiter struct {
	limiter *redis_rate.Limiter
	client  redis.UniversalClient
}

// New returns a Limiter.
func New(client redis.UniversalClient) Limiter {
	return Limiter{redis_rate.NewLimiter(client), client}
}

// fill makes a counter of redis_rate, whose time begins in 2017, a full one. It is one command, because a counter that is removed and filled
// allows requests in between.
//
//nolint:gochecknoglobals // a constant
var fill = redis.NewScript(`
local now = redis.call("TIME")
redis.call("SET", KEYS[1], string.format("%.6f", now[1] - 1483228800 + now[2] / 1000000 + ARGV[1]), "EX", math.ceil(ARGV[1]))
return ""`)

// Allow is AllowN for one request.
func (l Limiter) Allow(ctx context.Context, key string, limit redis_rate.Limit) (*redis_rate.Result, error) {
	return l.AllowN(ctx, key, limit, 1)
}

// AllowN counts n requests if the limit allows all of them.
func (l Limiter) AllowN(ctx context.Context, key string, limit redis_rate.Limit, n int) (*redis_rate.Result, error) {
	interval := limit.Period / time.Duration(limit.Rate)
	r, err := l.limiter.AllowN(ctx, key, limit, n)
	if err != nil || r.ResetAfter <= interval*time.Duration(limit.Burst+1) {
		return r, err
	}
	full := interval * time.Duration(limit.Burst)
	r.RetryAfter, r.ResetAfter = interval, full
	return r, fill.Run(ctx, l.client, []string{"rate:" + key}, full.Seconds()).Err()
}
