package caddymodule

import (
	"bytes"
	"cmp"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/caddymodule/internal/dataservice"
	"github.com/gatehouse-gateway/gatehouse/internal/clientip"
	"github.com/gatehouse-gateway/gatehouse/internal/tracing"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// call calls the data service.
func (h *API) call(r *http.Request, req *apiRequest, query upstream.Query) (*upstream.Response, error) {
	start := time.Now()
	call := upstream.NewCall(r, req.resource.Operation, query, req.business(), req.id)
	setForwarded(call.Header, r, req.clientIP)
	if call.Share = clientip.Key(req.clientIP); req.credential != nil {
		call.Share = req.credential.PublicKey
	}
	if req.sent != nil && req.mediaType != "" {
		call.Body, call.BodyType = req.sent.Bytes(), req.mediaType
	}
	call.Deadline, call.MaxResponse = start.Add(time.Duration(h.Timeout)), h.MaxResponseSize
	res, err := req.resource.service.Do(r.Context(), call)
	req.upstreamTime = time.Since(start)
	if err != nil {
		if failed, ok := errors.AsType[*upstream.CallError](err); ok {
			req.upstreamAddress = failed.Address
		}
		if dataservice.Unsent(err) {
			h.forget(r, &req.signedRequest)
		}
		if r.Context().Err() != nil {
			return nil, clientGone(r.Context())
		}
		return nil, err
	}
	req.upstreamAddress = res.Address
	return res, nil
}

// prepare checks the request: path, query, headers and body. It does so once.
func (h *API) prepare(r *http.Request, req *apiRequest) error {
	if req.prepared {
		return req.invalid
	}
	req.prepared = true
	op := req.resource.Operation
	if req.query, req.invalid = op.CleanQuery(req.matched); req.invalid == nil {
		req.invalid = cmp.Or(op.CheckBusiness(req.query, req.business()), op.CheckHeaders(r.Header))
	}
	if op.Method == http.MethodGet || req.invalid != nil { // the body of a GET means nothing
		return req.invalid
	}
	if req.credential == nil { // an operation that is public
		if req.body, req.invalid = h.verifier.ReadBody(r); req.invalid != nil {
			return req.invalid
		}
	}
	req.sent, _ = h.buffers.Get().(*bytes.Buffer)
	req.mediaType, req.invalid = h.contract.CheckBody(req.sent, op, r.Header, req.business(), req.body)
	return req.invalid
}

// uncertainError means that a write may have been carried out, although its response is an error.
type uncertainError struct {
	err        error
	repeatable bool // with the same Idempotency-Key
}

func (e *uncertainError) Error() string { return e.err.Error() }

func (e *uncertainError) Unwrap() error { return e.err }

// uncertain returns the error of a call or its response for the caller, who must know what may have become of a write.
func (req *apiRequest) uncertain(err error) error {
	if err == nil || req.resource.Read || dataservice.Unsent(err) {
		return err
	}
	return &uncertainError{err, req.repeatable}
}

// setForwarded sets X-Forwarded-* and Via as reverse_proxy does. X-Forwarded-For lists a trusted proxy behind the
// client's IP. The host and the scheme are those that a trusted proxy sent, because the client connected to it.
func setForwarded(h http.Header, r *http.Request, clientIP netip.Addr) {
	const name = "X-Forwarded-For"
	peer, _, err := net.SplitHostPort(r.RemoteAddr)
	peer, _, _ = strings.Cut(peer, "%")
	trusted, _ := caddyhttp.GetVar(r.Context(), caddyhttp.TrustedProxyVarKey).(bool)
	// The values are not shared with other requests, because header operations may change them in place.
	values := []string{peer, r.Host, "http", viaCaddy(r.ProtoMajor)}
	switch {
	case trusted && clientIP.IsValid() && err == nil:
		values[0] = clientIP.String() + ", " + peer
	case trusted && clientIP.IsValid():
		values[0] = clientIP.String()
	}
	if values[0] != "" {
		h[name] = values[:1:1]
	}
	if err == nil || trusted {
		if r.TLS != nil {
			values[2] = "https"
		}
		for i, name := range []string{"X-Forwarded-Host", "X-Forwarded-Proto"} {
			if sent := r.Header[name]; trusted && len(sent) > 0 && forwarded.MatchString(sent[len(sent)-1]) {
				values[1+i] = sent[len(sent)-1]
			}
		}
		h["X-Forwarded-Host"], h["X-Forwarded-Proto"] = values[1:2:2], values[2:3:3]
	}
	h["Via"] = values[3:4:4]
}

// forwarded matches a host or a scheme of a trusted proxy that can be sent on.
var forwarded = regexp.MustCompile(`^[[:graph:]][[:print:]]{0,255}$`)

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

// maxPooledChecked is the largest capacity, in bytes, of a buffer that returns to the pool.
const maxPooledChecked = 256 << 10

// free returns a buffer to the pool.
func (h *API) free(checked *bytes.Buffer) {
	if checked.Cap() <= maxPooledChecked {
		checked.Reset()
		h.buffers.Put(checked)
	}
}

// check checks a response against the contract and writes the body for the caller to checked.
func (h *API) check(
	r *http.Request, req *apiRequest, query upstream.Query, got *upstream.Response, checked *bytes.Buffer,
) (documented *upstream.DocumentedResponse, err error) {
	var report upstream.Report
	start := time.Now()
	_, span := tracing.Start(r.Context(), "check response", trace.SpanKindInternal)
	defer func() {
		req.checkTime = time.Since(start)
		if isRefusal(err) {
			tracing.End(span, nil)
			return
		}
		tracing.End(span, err)
		if err == nil {
			req.resource.observed.passed(report.Deviations)
		}
	}()
	res := req.resource
	documented, err = res.CheckHeader(got.Status, got.Header, r.Header["If-None-Match"] != nil)
	if err != nil {
		res.metrics.checked(err)
		if d, ok := upstream.RetryAfter(got.Header, time.Now()); ok {
			return nil, &retryLaterError{after: d, err: err}
		}
		return nil, err
	}
	if documented.Body == nil {
		switch {
		case len(got.Body) == 0 || documented.Unchecked != nil:
		case got.Status >= 400: // many documents describe errors without their bodies
			err = &upstream.StatusError{Status: got.Status}
		default:
			err = &upstream.ContractError{Kind: upstream.ErrContractViolation, Resource: res.Resource, Record: -1, Expected: "no body"}
		}
		res.metrics.checked(err)
		return documented, err
	}
	report, err = h.contract.Check(checked, res.Operation, documented, query, req.business(), got.Body)
	res.metrics.checked(err)
	res.metrics.removed(report)
	if len(report.Deviations) > 0 {
		if e := h.logger.Check(zap.DebugLevel, "response deviates from the definition"); e != nil {
			e.Write(zap.String("request_id", req.id), zap.String("operation", res.ID), zap.Any("deviations", report.Deviations))
		}
	}
	if e := h.logger.Check(zap.DebugLevel, "removed from a response"); e != nil && res.Enforce != upstream.EnforceTenant {
		if removed := h.contract.Removed(res.Operation, documented, query, req.business(), got.Body); len(removed) > 0 {
			e.Write(zap.String("request_id", req.id), zap.String("operation", res.ID), zap.Any("removed", removed))
		}
	}
	if report.CrossTenant > 0 {
		h.logger.Error("data service sent another business's records", zap.String("event", "cross_tenant"),
			zap.Bool("rejected", err != nil), zap.String("request_id", req.id), zap.String("resource", res.Resource),
			zap.String("business", req.business()), zap.Int("records", report.CrossTenant))
	}
	if err == nil {
		compact(got, checked)
	}
	return documented, err
}

// checkUnconditional checks the response without If-None-Match, because nobody can tell from a 304 whose record it is about.
func (h *API) checkUnconditional(r *http.Request, req *apiRequest, query upstream.Query) error {
	r = r.Clone(r.Context())
	r.Header.Del("If-None-Match")
	upstreamTime, checkTime := req.upstreamTime, req.checkTime
	defer func() {
		req.upstreamTime += upstreamTime
		req.checkTime += checkTime
	}()
	whole, err := h.call(r, req, query)
	if err != nil {
		return err
	}
	defer whole.Release()
	checked, _ := h.buffers.Get().(*bytes.Buffer)
	defer h.free(checked)
	if _, err = h.check(r, req, query, whole, checked); err == nil && whole.Status/100 != 2 {
		err = &upstream.StatusError{Status: whole.Status}
	}
	return err
}

// compact leaves one copy of a large response that has been checked: what leaves. A buffer for a response that is mapped has room for three.
func compact(got *upstream.Response, checked *bytes.Buffer) {
	if checked.Cap() <= maxPooledChecked {
		return
	}
	got.Body = nil
	if checked.Cap() > checked.Len()+checked.Len()/4 {
		*checked = *bytes.NewBuffer(bytes.Clone(checked.Bytes()))
	}
}

// business returns the ID of the caller's business, or "-" for an operation that is public: even if the request is signed, neither the
// right to make it nor its repetition was checked.
func (req *apiRequest) business() string {
	if req.credential == nil || req.resource.Public {
		return "-"
	}
	return req.credential.BusinessID
}
