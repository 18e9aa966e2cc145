package caddymodule

import (
	"context"
	"errors"
	"net/http"
	"os"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/tracing"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// authenticateAndCount is steps 2 and 3 of handle. What awaitLookup has acquired is released when the request has been counted, so
// that concurrent requests of a client IP cannot all pass the check of its limit.
func (h *API) authenticateAndCount(w http.ResponseWriter, r *http.Request, req *apiRequest) error {
	defer func() {
		if req.endLookup != nil {
			req.endLookup()
		}
	}()
	if err := h.authenticate(w, r, req); err != nil {
		return err
	}
	return h.rateLimit(w, r, req)
}

// authenticate sets req.credential if the signature verifies, and otherwise req.authErr. It returns an error if awaitLookup denies
// the request.
func (h *API) authenticate(w http.ResponseWriter, r *http.Request, req *apiRequest) (err error) {
	start := time.Now()
	ctx, span := tracing.Start(r.Context(), "authenticate", trace.SpanKindInternal)
	if span.IsRecording() {
		r = r.WithContext(ctx)
		defer func() {
			span.SetAttributes(attribute.String("gatehouse.authentication", req.authResult()))
			tracing.End(span, err)
		}()
	}
	switch key, count := publicKeyHeader(r); {
	case count == 0:
		req.authErr = authsigner.ErrMissingCredentials
	case count == 1 && authsigner.ValidPublicKey(key):
		err := h.awaitLookup(w, r, req, key)
		if _, limited := errors.AsType[*rateLimitedError](err); limited {
			return err
		}
		req.authErr = err
	}
	if req.authErr == nil {
		req.credential, req.authErr = h.verifier.Verify(r, req.target)
	}
	if req.authErr != nil && req.credential == nil {
		req.failure = h.authFailureOf(r, req.authErr)
		if req.failure.malformed != "" {
			req.authErr = &malformedHeaderError{header: req.failure.malformed, err: req.authErr}
		}
	}
	h.app.metrics.authentications.WithLabelValues(req.authResult()).Inc()
	req.verifyTime = time.Since(start)
	return nil
}

// awaitLookup waits until the request may look up its key. The error is a rateLimitedError, or says why the request cannot be
// authenticated. In this order:
//
//  1. If the key is cached, there is nothing to wait for, even if its credential is expired: the cache limits these lookups by
//     itself, and callers cannot invent such keys.
//  2. If the client IP has exhausted its limit for unauthenticated requests, the request is denied.
//  3. The body is read: one that arrives slowly must not take up a lookup.
//  4. The request waits for one of the few lookups of uncached keys that its client IP may have in progress, and gives it back if
//     another request has looked up the key in the meantime. The limit is checked again, because the requests before it have
//     been counted in the meantime.
//
// Step 2 is left to step 4 if the request has no body.
func (h *API) awaitLookup(w http.ResponseWriter, r *http.Request, req *apiRequest, key string) error {
	if cred, known := h.app.credentials.cache.Peek(key); known || cred != nil {
		return nil
	}
	ip, counters := ratelimit.UnverifiedIP(req.clientIP)
	checkLimit := func(ctx context.Context) error {
		if res, err := h.app.limiter.Peek(ctx, ip, counters...); err == nil && !res.Allowed {
			if err := h.overLimit(w, req, res); err != nil { // nil in shadow mode
				h.app.metrics.limited(res)
				return err
			}
		}
		return nil // also if the limit is not known
	}
	if r.ContentLength != 0 {
		if err := checkLimit(r.Context()); err != nil {
			return err
		}
		if err := h.verifier.ReadBody(r); err != nil {
			return err
		}
	}
	release, err := h.app.credentials.lookups.acquire(r.Context(), ip)
	if err != nil {
		return err
	}
	req.endLookup = release
	if _, known := h.app.credentials.cache.Peek(key); known {
		release()
	}
	return checkLimit(r.Context())
}

// publicKeyHeader returns the public key in the request's header, the first if there are several, and how many there are.
func publicKeyHeader(r *http.Request) (key string, count int) {
	keys := r.Header[authsigner.HeaderPublicKey]
	if len(keys) == 0 || len(keys) == 1 && keys[0] == "" {
		return "", 0
	}
	return keys[0], len(keys)
}

// authorize returns why a request that has been counted is denied, or nil.
func (h *API) authorize(r *http.Request, req *apiRequest) error {
	if req.failure.reason != "" {
		h.app.credentials.failures.add(r, req, h.BasePath)
	}
	res := req.op.resource
	switch {
	case req.authErr != nil && r.Context().Err() != nil && !errors.Is(req.authErr, os.ErrDeadlineExceeded):
		// net/http cancels the request's context when a read from the connection fails. A read that failed because of its
		// deadline means a slow client instead.
		return clientGone(r.Context())
	case res == nil:
		return errNotFound
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		return errMethodNotAllowed
	case req.authErr != nil && !res.Public:
		return req.authErr
	case req.op.service != nil && !req.credential.MayCall(res.Name):
		return errForbidden
	}
	return nil
}

// authResult returns the result of authentication as a log field and metric label: one of a fixed set.
func (req *apiRequest) authResult() string {
	switch {
	case req.credential != nil && req.authErr == nil:
		return "verified"
	case req.authErr == nil:
		return "none"
	case errors.Is(req.authErr, authsigner.ErrAccountInactive):
		return "inactive"
	case errors.Is(req.authErr, authsigner.ErrMissingCredentials):
		return "missing"
	case errors.Is(req.authErr, authsigner.ErrExpired):
		return "expired"
	case errors.Is(req.authErr, authsigner.ErrInvalidCredentials):
		return "invalid"
	case errors.Is(req.authErr, authsigner.ErrUnavailable):
		return "unavailable"
	default:
		return "unreadable"
	}
}
