package mcp

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
)

const (
	requestsPerMinute = 120 // of a connection
	limiterTimeout    = 500 * time.Millisecond
)

// limit counts a request of a connection and returns 0 if it is allowed, or else how long to wait, which it also sets as Retry-After. If
// Redis is unavailable or full, this gateway counts by itself. A request whose client has disconnected is counted too, because it may
// still be executed.
func (s *Server) limit(ctx context.Context, h http.Header, grantID string) time.Duration {
	start := time.Now()
	counting, cancel := context.WithTimeout(context.WithoutCancel(ctx), limiterTimeout)
	defer cancel()
	result, err := s.limiter.Allow(counting, s.o.Prefix+"mcp:{"+grantID+"}", s.rate)
	requestlog.From(ctx).Add(func(f *requestlog.Fields) { f.Limit += time.Since(start) })
	if err != nil {
		s.o.Log.Warn("counting a request in Redis failed, counting it locally", zap.String("request_id", requestlog.ID(ctx)),
			zap.String("grant_id", grantID), zap.Error(err))
		interval := s.rate.Period / time.Duration(s.rate.Rate)
		local, _ := s.local.ComputeIfAbsent(grantID, func() (*rate.Limiter, bool) {
			return rate.NewLimiter(rate.Every(interval), s.rate.Burst), false
		})
		result = &redis_rate.Result{RetryAfter: interval}
		if local.Allow() {
			return 0
		}
	}
	if result.Allowed > 0 {
		return 0
	}
	wait := max(result.RetryAfter, time.Millisecond)
	h.Set("Retry-After", strconv.Itoa(wholeSeconds(wait)))
	return wait
}

func wholeSeconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }
