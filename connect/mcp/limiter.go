package mcp

import (
	"context"
	"fmt"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

// DefaultRate is the number of requests per minute that a connection may make.
const DefaultRate = 120

const limiterTimeout = 500 * time.Millisecond

// Limiter limits the rate of a connection's requests.
type Limiter interface {
	// Allow counts one request. It returns 0 if the request is allowed, or else how long to wait before the next try. If
	// it returns an error, the request is allowed, because a person has approved the connection.
	Allow(ctx context.Context, grantID string) (retryAfter time.Duration, err error)
}

type rateLimiter struct {
	limiter *redis_rate.Limiter
	prefix  string
	limit   redis_rate.Limit
}

// NewLimiter returns a limiter on Redis that allows each connection perMinute requests per minute, with a burst of as many.
func NewLimiter(client redis.UniversalClient, prefix string, perMinute int) Limiter {
	return &rateLimiter{
		limiter: redis_rate.NewLimiter(client), prefix: prefix, limit: redis_rate.PerMinute(perMinute),
	}
}

// Allow implements Limiter.
func (l *rateLimiter) Allow(ctx context.Context, grantID string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, limiterTimeout)
	defer cancel()
	result, err := l.limiter.Allow(ctx, l.prefix+"mcp:{"+grantID+"}", l.limit)
	if err != nil {
		return 0, fmt.Errorf("counting a request: %w", err)
	}
	if result.Allowed > 0 {
		return 0, nil
	}
	return max(result.RetryAfter, time.Millisecond), nil
}
