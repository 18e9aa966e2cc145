package oauth

import (
	"context"
	"net/http"
	"time"

	"github.com/go-redis/redis_rate/v10"

	"github.com/gatehouse-gateway/gatehouse/internal/clientip"
)

const allIPs = "*" // the rate limit key of limits that all client IPs share

// allowIP counts a request of a kind against the limit of its client IP, and of its network.
func (s *Server) allowIP(ctx context.Context, r *http.Request, kind string, limit redis_rate.Limit) error {
	for key, times := range clientip.Keys(s.o.ClientAddr(r)) {
		own := redis_rate.Limit{Rate: times * limit.Rate, Burst: times * limit.Burst, Period: limit.Period}
		if err := s.allow(ctx, kind, key, own); err != nil {
			return err
		}
	}
	return nil
}

// allow counts a request of a kind against the limit of a rate limit key. Its errors are a problem with status 429 and ErrUnavailable.
func (s *Server) allow(ctx context.Context, kind, key string, limit redis_rate.Limit) error {
	var result *redis_rate.Result
	err := s.command(ctx, "checking a rate limit", func(ctx context.Context) (err error) {
		result, err = s.limiter.Allow(ctx, s.o.Prefix+kind+":"+key, limit)
		return err
	})
	if err != nil || result.Allowed > 0 {
		return err
	}
	return &problem{
		status: http.StatusTooManyRequests, code: codeTooManyRequests, retry: max(time.Second, result.RetryAfter),
		description: "too many requests, try again later",
	}
}
