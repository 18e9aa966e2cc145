package caddymodule

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/tracing"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// rateLimit counts the request against its rate limit key and sets the RateLimit response headers. The request counts even if the
// client has canceled it. Otherwise a client could cause lookups and verifications without ever reaching its limit. The limiter
// does not wait longer than its timeout.
func (h *signed) rateLimit(w http.ResponseWriter, r *http.Request, req *signedRequest) error {
	start := time.Now()
	var (
		group    string
		counters []ratelimit.Counter
	)
	switch key, count := publicKeyHeader(r); {
	case req.credential != nil:
		group, counters = h.app.Limits.forKey(req.credential)
	case count > 0:
		group, counters = ratelimit.ForUnverified(key, req.clientIP)
	default:
		group, counters = h.app.Limits.forIP(req.clientIP)
	}
	ctx, span := tracing.Start(r.Context(), "rate limit", trace.SpanKindClient)
	var (
		res  ratelimit.Result
		err  error
		once bool
		mark ratelimit.Once
	)
	switch single := req.once != nil && req.credential != nil; {
	case single && h.exhausted(ctx, req, group, counters, &res):
	case single && req.once():
		once, mark = true, onceOf(r, req.id)
		res, err = h.app.limiter.AllowOnce(context.WithoutCancel(ctx), group, mark, counters...)
	default:
		res, err = h.app.limiter.Allow(context.WithoutCancel(ctx), group, counters...)
	}
	if span.IsRecording() {
		span.SetAttributes(semconv.DBSystemNameRedis, attribute.String("gatehouse.limit.decided_by", string(res.By)),
			attribute.Bool("gatehouse.limit.allowed", res.Allowed))
	}
	tracing.End(span, err)
	req.limited, req.limitTime = true, time.Since(start)
	if err != nil {
		return fmt.Errorf("%w: %w", errLimitUnavailable, err)
	}
	h.app.metrics.limited(res)
	if !res.Allowed {
		if err := h.overLimit(w, req, res); err != nil {
			return err
		}
		if once { // in shadow mode, it is served and must be remembered
			beyond := ratelimit.Counter{Key: counters[0].Key + "\x00shadow", Limit: ratelimit.KeyLimit(ratelimit.MaxRequests)}
			if res, err = h.app.limiter.AllowOnce(context.WithoutCancel(ctx), group, mark, beyond); err != nil {
				return fmt.Errorf("%w: %w", errLimitUnavailable, err)
			}
		}
	} else {
		res.SetHeaders(w.Header(), time.Now())
	}
	switch first := uuid.UUID(res.Accepted); {
	case !once:
		return nil
	case first == mark.ID:
		req.mark = mark
		return nil
	case first != uuid.Nil:
		return &replayedError{first: first.String(), repeatable: req.repeatable}
	case h.app.Limits.AllowReplayedWrites:
		return nil
	default:
		return &replayUnknownError{req.repeatable}
	}
}

// forget lets a write that reached no service be sent again. While Redis is unavailable, which is logged once, it stays remembered.
func (h *signed) forget(r *http.Request, req *signedRequest) {
	if req.mark == (ratelimit.Once{}) {
		return
	}
	group, _ := h.app.Limits.forKey(req.credential)
	if err := h.app.limiter.Forget(context.WithoutCancel(r.Context()), group, req.mark); err != nil && h.app.limiter.down() == nil {
		h.logger.Warn("a write that reached no service stays remembered: sent again, it gets 409",
			zap.String("request_id", req.id), zap.Error(err))
	}
}

// largeBody is the size in bytes from which on checking a body may cost more than asking the limiter twice.
const largeBody = 16 << 10

// exhausted reports whether the limit denies a request with a large body, which is then not checked: who is over the limit could keep
// the gateway busy otherwise. It sets res if it is.
func (h *signed) exhausted(ctx context.Context, req *signedRequest, group string, counters []ratelimit.Counter, res *ratelimit.Result) bool {
	if len(req.body) < largeBody || h.app.Limits.Shadow {
		return false
	}
	peeked, err := h.app.limiter.Peek(context.WithoutCancel(ctx), group, counters...)
	if err != nil || peeked.Allowed {
		return false
	}
	*res = peeked
	return true
}

// rememberedFor is the time from a write's timestamp to the moment from which it is neither remembered nor accepted: the difference that is
// allowed between caller and gateway, as much for a body that arrives slowly, and a minute for clocks that differ.
const rememberedFor = 2*authsigner.MaxSkew + time.Minute

// onceOf identifies a write by its signature, of which the case of digits does not matter. It has been verified.
func onceOf(r *http.Request, id string) ratelimit.Once {
	once := ratelimit.Once{ID: uuid.MustParse(id)}
	_, _ = hex.Decode(once.MAC[:], []byte(r.Header.Get(authsigner.HeaderSignature)[:2*len(once.MAC)]))
	timestamp, _ := strconv.ParseInt(r.Header.Get(authsigner.HeaderTimestamp), 10, 64)
	once.Until = time.Unix(timestamp, 0).Add(rememberedFor)
	return once
}

// overLimit returns nil in shadow mode, after it has reported the request once, and otherwise the error of a request over its
// limit.
func (h *signed) overLimit(w http.ResponseWriter, req *signedRequest, res ratelimit.Result) error {
	limit := res.Tightest().Limit.Name
	res.SetHeaders(w.Header(), time.Now())
	if h.app.Limits.Shadow {
		w.Header().Del("Retry-After") // the request is served
		if req.shadowed {
			return nil
		}
		req.shadowed = true
		h.app.metrics.shadow.WithLabelValues(limit).Inc()
		if e := h.logger.Check(zap.InfoLevel, "rate limit exceeded, not enforced in shadow mode"); e != nil {
			e.Write(zap.String("request_id", req.id), zap.String("policy", limit))
		}
		return nil
	}
	return &rateLimitedError{retryAfter: res.RetryAfter, limit: limit}
}
