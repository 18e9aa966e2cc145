package mcp

import (
	"context"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
)

const (
	requestsPerMinute    = 120 // of a connection
	deniedEntriesPerHour = 20  // in the audit log, of a connection, about tools whose scope it lacks
	limiterTimeout       = 500 * time.Millisecond
)

// limit counts a request of a connection and returns 0 if it is allowed, or else how long to wait. If Redis is unavailable, all
// requests are allowed, because an owner has approved the connection.
func (s *Server) limit(ctx context.Context, grantID string) time.Duration {
	wait, err := s.allow(ctx, "mcp", grantID, s.rate)
	if err != nil {
		s.log.Warn("counting a request failed, allowing it", zap.String("request_id", requestlog.ID(ctx)),
			zap.String("grant_id", grantID), zap.Error(err))
	}
	return wait
}

// allow counts a request against a limit of a connection and returns 0 if it is allowed or an error occurs, or else how long to
// wait. A request whose client has disconnected is counted too, because it may still be executed.
func (s *Server) allow(ctx context.Context, name, grantID string, limit redis_rate.Limit) (time.Duration, error) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limiterTimeout)
	defer cancel()
	result, err := s.limiter.Allow(ctx, s.o.Prefix+name+":{"+grantID+"}", limit)
	requestlog.From(ctx).Add(func(f *requestlog.Fields) { f.Limit += time.Since(start) })
	if err != nil || result.Allowed > 0 {
		return 0, err
	}
	return max(result.RetryAfter, time.Millisecond), nil
}
