package oauth

import (
	"context"
	"net/http"
	"time"

	"github.com/go-redis/redis_rate/v10"
)

// everybody is counted against the limits for all addresses together.
const everybody = "*"

// charge counts something against a budget. It refuses with 429 what the budget does not hold.
func (s *Server) charge(ctx context.Context, what, whose string, limit redis_rate.Limit) error {
	var result *redis_rate.Result
	err := s.store.ask(ctx, "counting", func(ctx context.Context) (err error) {
		result, err = s.limiter.Allow(ctx, s.o.Prefix+what+":"+whose, limit)
		return err
	})
	if err != nil {
		return err
	}
	if result.Allowed > 0 {
		return nil
	}
	return &problem{
		status: http.StatusTooManyRequests, code: codeTooMany, retry: max(time.Second, result.RetryAfter),
		description: "too many requests, please wait",
	}
}
