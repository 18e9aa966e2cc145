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

// authenticateAndCount is steps 2 and 3 of handle. What lookUp has acquired is released when the request has been counted, so that
// concurrent requests of a client IP cannot all pass the check of its limit.
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

// authenticate sets req.credential if the signature verifies, and otherwise req.authErr. It returns an error if lookUp denies the
// request. Until the credential is known, it does the same for every key: the headers are checked and the body is read first, so
// that a slow body delays no lookup, and "Expect: 100-continue" does not tell which keys are cached.
func (h *API) authenticate(w http.ResponseWriter, r *http.Request, req *apiRequest) (err error) {
	start := time.Now()
	ctx, span := tracing.Start(r.Context(), "authenticate", trace.SpanKindInternal)
	if span.IsRecording() {
		defer func() {
			span.SetAttributes(attribute.String("gatehouse.authentication", req.authResult()))
			tracing.End(span, err)
		}()
	}
	var cred *authsigner.Credential
	claim, authErr := h.verifier.ReadClaim(r, req.target)
	if authErr == nil {
		cred, authErr = h.credentialOf(ctx, w, req, &claim)
	}
	if _, limited := errors.AsType[*rateLimitedError](authErr); limited {
		return authErr
	}
	if authErr == nil {
		req.credential, authErr = h.verifier.VerifyClaim(&claim, cred)
	}
	if authErr != nil && req.credential == nil {
		req.failure = authFailureOf(r, authErr, cred)
		if req.failure.malformed != "" {
			authErr = &malformedHeaderError{header: req.failure.malformed, err: authErr}
		}
	}
	req.authErr = authErr
	h.app.metrics.authentications.WithLabelValues(req.authResult()).Inc()
	req.verifyTime = time.Since(start)
	return nil
}

// credentialOf returns the credential of the claimed key, or nil if the key is unknown. It asks the cache once, and waits for a lookup
// only if the cache cannot tell.
func (h *API) credentialOf(
	ctx context.Context, w http.ResponseWriter, req *apiRequest, claim *authsigner.Claim,
) (*authsigner.Credential, error) {
	cred, known, err := h.app.credentials.cache.LookupCached(claim.PublicKey)
	if !known {
		cred, err = h.lookUp(ctx, w, req, claim, cred)
	}
	if errors.Is(err, authsigner.ErrUnknownKey) {
		return nil, nil
	}
	return cred, err
}

// lookUp looks up a key that is not cached, or whose cached credential is past its TTL (expired; else nil). The error is a
// rateLimitedError, or says why the request cannot be authenticated. In this order:
//
//  1. If the client IP has exhausted its limit for unverified requests, the key is not looked up. The request is denied with the work
//     and the response of a wrong signature, unless its signature verifies with the expired credential.
//  2. Callers can invent keys that are not cached. A request with one waits for one of the few lookups of such keys that its client
//     IP may have in progress. In the meantime, another request may have looked up the key, and others have been counted. Both are
//     therefore checked again.
//  3. The key is looked up.
func (h *API) lookUp(
	ctx context.Context, w http.ResponseWriter, req *apiRequest, claim *authsigner.Claim, expired *authsigner.Credential,
) (*authsigner.Credential, error) {
	ip, counters := ratelimit.ForUnverified(claim.PublicKey, req.clientIP)
	checkLimit := func() error {
		// Not canceled with the request, or else a client could cause lookups by resetting its requests.
		res, err := h.app.limiter.Peek(context.WithoutCancel(ctx), ip, counters...)
		if err == nil && res.States[1].RetryAfter > 0 { // of the client IP
			_, err := h.verifier.VerifyClaim(claim, expired)
			if !errors.Is(err, authsigner.ErrInvalidCredentials) {
				return nil
			}
			if err := h.overLimit(w, req, res); err != nil { // nil in shadow mode
				h.app.metrics.limited(res)
				return err
			}
		}
		return nil // also if the limit is not known
	}
	if err := checkLimit(); err != nil {
		return nil, err
	}
	if expired == nil {
		release, err := h.app.credentials.lookups.acquire(ctx, ip)
		if err != nil {
			return nil, err
		}
		req.endLookup = release
		if cred, known, err := h.app.credentials.cache.LookupCached(claim.PublicKey); known {
			release()
			return cred, err
		}
		if err := checkLimit(); err != nil {
			return nil, err
		}
	}
	ctx, span := tracing.Start(ctx, "credential lookup", trace.SpanKindClient)
	cred, err := h.app.credentials.cache.Lookup(ctx, claim.PublicKey)
	if errors.Is(err, authsigner.ErrUnknownKey) {
		tracing.End(span, nil) // the lookup succeeded
	} else {
		tracing.End(span, err)
	}
	return cred, err
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
	res := req.resource
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
	case res.service != nil && !req.credential.MayCall(res.Name):
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
