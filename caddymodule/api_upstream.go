package caddymodule

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/internal/tracing"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// prepare returns the request for the data service.
func (h *API) prepare(r *http.Request, req *apiRequest, query upstream.Query) (*http.Request, error) {
	id := upstream.Identity{BusinessID: req.credential.BusinessID, RequestID: req.id}
	if h.app.asserter != nil {
		assertion, err := h.app.asserter.Assert(req.op.resource.Name, id.BusinessID, id.RequestID)
		if err != nil {
			return nil, fmt.Errorf("signing the hop assertion: %w", err)
		}
		id.Assertion = assertion
	}
	out, err := upstream.PrepareRequest(r, req.op.resource, query, id)
	if err != nil {
		return nil, fmt.Errorf("preparing the request for the data service: %w", err)
	}
	setForwarded(out, req.clientIP)
	return out, nil
}

// setForwarded sets X-Forwarded-*, Via and User-Agent as reverse_proxy does. X-Forwarded-For lists a trusted proxy behind the
// client's IP.
func setForwarded(out *http.Request, clientIP netip.Addr) {
	const name = "X-Forwarded-For"
	peer, _, err := net.SplitHostPort(out.RemoteAddr)
	peer, _, _ = strings.Cut(peer, "%")
	trusted, _ := caddyhttp.GetVar(out.Context(), caddyhttp.TrustedProxyVarKey).(bool)
	// The values are not shared with other requests, because header operations may change them in place.
	values := []string{peer, out.Host, "http", viaCaddy(out.ProtoMajor), ""}
	switch {
	case trusted && clientIP.IsValid() && err == nil:
		values[0] = clientIP.String() + ", " + peer
	case trusted && clientIP.IsValid():
		values[0] = clientIP.String()
	}
	if values[0] != "" {
		out.Header[name] = values[:1:1]
	}
	if err == nil || trusted {
		if out.TLS != nil {
			values[2] = "https"
		}
		out.Header["X-Forwarded-Host"], out.Header["X-Forwarded-Proto"] = values[1:2:2], values[2:3:3]
	}
	out.Header["Via"] = values[3:4:4]
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = values[4:5:5] // keeps net/http from sending its own
	}
}

// viaCaddy returns the value of Via (RFC 9110, section 7.6.3) as reverse_proxy sends it.
func viaCaddy(protoMajor int) string {
	switch protoMajor {
	case 2:
		return "2.0 Caddy"
	case 3:
		return "3.0 Caddy"
	}
	return "1.1 Caddy"
}

// responseBuffers holds the response of a data service, and the checked body for the caller. It is pooled.
type responseBuffers struct {
	response upstreamResponse
	checked  bytes.Buffer
}

// maxPooledChecked is the largest capacity, in bytes, of a buffer that returns to the pool.
const maxPooledChecked = 256 << 10

// release returns buffers to the pool.
func (h *API) release(buf *responseBuffers) {
	buf.response.release()
	buf.response.header, buf.response.address = nil, ""
	buf.checked.Reset()
	if buf.checked.Cap() > maxPooledChecked {
		buf.checked = bytes.Buffer{}
	}
	h.buffers.Put(buf)
}

// call sends the request to the data service and reads the response into res.
func (h *API) call(out *http.Request, req *apiRequest, res *upstreamResponse) error {
	ctx, start := out.Context(), time.Now()
	err := req.op.service.do(out, start.Add(time.Duration(h.Timeout)), res)
	req.upstreamTime, req.upstreamAddress = time.Since(start), res.address
	observe(ctx, req.op.metrics.duration, req.upstreamTime)
	if err != nil && ctx.Err() != nil {
		return clientGone(ctx)
	}
	return err
}

// check checks a response against the contract, writes the body for the caller to buf.checked, and frees the response.
func (h *API) check(ctx context.Context, req *apiRequest, query upstream.Query, buf *responseBuffers) (err error) {
	start := time.Now()
	_, span := tracing.Start(ctx, "check response", trace.SpanKindInternal)
	defer func() {
		req.checkTime = time.Since(start)
		tracing.End(span, err)
	}()
	res := req.op.resource
	if err := upstream.CheckHeader(res, buf.response.status, buf.response.header); err != nil {
		req.op.metrics.checked(err)
		if d, ok := upstream.RetryAfter(buf.response.header, time.Now()); ok {
			return &retryLaterError{after: d, err: err}
		}
		return err
	}
	report, err := h.contract.Check(&buf.checked, res, query, req.credential.BusinessID, buf.response.body.Bytes())
	req.op.metrics.checked(err)
	req.op.metrics.removed(report)
	if report.CrossTenant > 0 {
		h.logger.Error("data service sent another business's records", zap.String("event", "cross_tenant"),
			zap.Bool("rejected", err != nil), zap.String("request_id", req.id), zap.String("resource", res.Name),
			zap.String("business", req.credential.BusinessID), zap.Int("records", report.CrossTenant))
	}
	if err != nil {
		return err
	}
	buf.response.release() // before the response is written, because the client may read slowly
	return nil
}
