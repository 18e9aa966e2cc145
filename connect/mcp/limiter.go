package mcp

import (
	"context"
	"fmt"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

// DefaultRate is how many calls a connection may make in a minute.
const DefaultRate = 120

// redisTimeout is how long Redis is waited for. A call goes on without it where it can.
const redisTimeout = 500 * time.Millisecond

// Limiter bounds the calls of a connection.
type Limiter interface {
	// Allow counts one call. It returns 0 if the call may go on, or else how long to wait before the next try. With an
	// error the call goes on: an assistant that a person has let in is not the attack that a limit stops.
	Allow(ctx context.Context, grantID string) (retryAfter time.Duration, err error)
}

type rateLimiter struct {
	limiter *redis_rate.Limiter
	prefix  string
	limit   redis_rate.Limit
}

// NewLimiter makes a limiter for a whole fleet on Redis: perMinute calls a minute for each connection, with a burst of as
// many. Its keys are in the connection's slot.
func NewLimiter(client redis.UniversalClient, prefix string, perMinute int) Limiter {
	return &rateLimiter{
		limiter: redis_rate.NewLimiter(client), prefix: prefix, limit: redis_rate.PerMinute(perMinute),
	}
}

// Allow implements Limiter.
func (l *rateLimiter) Allow(ctx context.Context, grantID string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	result, err := l.limiter.Allow(ctx, l.prefix+"mcp:{"+grantID+"}", l.limit)
	if err != nil {
		return 0, fmt.Errorf("counting a call: %w", err)
	}
	if result.Allowed > 0 {
		return 0, nil
	}
	return max(result.RetryAfter, time.Millisecond), nil
}
