package caddymodule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/tracing"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// signed is the front door of a route for signed requests.
type signed struct {
	frontDoor
	verifier *authsigner.Verifier
	unsigned string // the base path, if signatures do not cover it
}

// provisionSigned sets the defaults of the options that these routes have in common.
func (h *signed) provisionSigned(ctx caddy.Context, name string, route route, maxBody *int64, bodyTimeout *caddy.Duration) error {
	if err := h.provision(ctx, name, route); err != nil {
		return err
	}
	if h.app.credentials == nil {
		return errors.New(`signed requests need credentials: set "credentials" in the global option "gatehouse"`)
	}
	if h.app.limiter == nil {
		return errors.New(`signed requests need Redis for their rate limits: set "redis" in the global option "gatehouse"`)
	}
	*maxBody = cmp.Or(*maxBody, authsigner.DefaultMaxBody)
	*bodyTimeout = cmp.Or(*bodyTimeout, caddy.Duration(defaultBodyTimeout))
	h.app.bodies.maxBody = max(h.app.bodies.maxBody, *maxBody)
	h.verifier = &authsigner.Verifier{MaxBody: *maxBody}
	return nil
}

// signedRequest is a signed request and what its handlers know of it.
type signedRequest struct {
	*request

	credential *authsigner.Credential // set if and only if the signature verified
	authErr    error                  // why authentication failed
	failure    authFailure            // more about that
	endLookup  func()                 // releases what lookUp has acquired; nil if it has not
	limited    bool                   // the rate limiter was asked
	shadowed   bool                   // reported as over a limit in shadow mode
	mark       ratelimit.Once         // by which it is remembered as accepted; zero if it is not
	once       func() bool            // reports, once it is authenticated, whether it must be accepted only once; may be nil
	repeatable bool                   // a write with an Idempotency-Key that the service gets
	body       []byte                 // if it was signed

	verifyTime, limitTime time.Duration
}

// appendLogFields adds the caller and the result of authentication to the request's log line.
func (req *signedRequest) appendLogFields(fields []zap.Field) []zap.Field {
	if c := req.credential; c != nil {
		fields = append(fields, zap.String("business", c.BusinessID), zap.String("public_key", c.PublicKey))
	}
	if req.failure.key != "" {
		fields = append(fields, zap.String("claimed_public_key", req.failure.key))
	}
	if req.failure.reason != "" {
		fields = append(fields, zap.String("reason", req.failure.reason))
	}
	if req.failure.late != 0 {
		fields = append(fields, zap.Int64("seconds_late", req.failure.late))
	}
	if req.limited {
		fields = append(fields, zap.String("authentication", req.authResult()), zap.Duration("verify", req.verifyTime),
			zap.Duration("limit", req.limitTime))
	}
	return fields
}

// authenticateAndCount authenticates a request and enforces its rate limit. What lookUp has acquired is released when the request has been counted, so that
// concurrent requests of a client IP cannot all pass the check of its limit.
func (h *signed) authenticateAndCount(w http.ResponseWriter, r *http.Request, req *signedRequest) error {
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
func (h *signed) authenticate(w http.ResponseWriter, r *http.Request, req *signedRequest) (err error) {
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
		req.body = claim.Body()
		cred, authErr = h.credentialOf(ctx, w, req, &claim)
	}
	if _, limited := errors.AsType[*rateLimitedError](authErr); limited {
		req.failure = authFailureOf(r, authErr, nil) // the key, for the log
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

// credentialOf returns the credential of the claimed key, or nil if the key is unknown. It waits for a lookup
// only if the cache cannot tell.
func (h *signed) credentialOf(
	ctx context.Context, w http.ResponseWriter, req *signedRequest, claim *authsigner.Claim,
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
func (h *signed) lookUp(
	ctx context.Context, w http.ResponseWriter, req *signedRequest, claim *authsigner.Claim, expired *authsigner.Credential,
) (*authsigner.Credential, error) {
	ip, counters := ratelimit.ForUnverified(claim.PublicKey, req.clientIP)
	checkLimit := func() error {
		// Not canceled with the request, or else a client could cause lookups by resetting its requests.
		res, err := h.app.limiter.Peek(context.WithoutCancel(ctx), ip, counters...)
		if errors.Is(err, ratelimit.ErrUnavailable) { // on_outage deny: a request that cannot be counted must not cause a lookup
			return fmt.Errorf("%w: %w", authsigner.ErrUnavailable, err)
		}
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
		release, err := h.app.credentials.lookups.acquire(ctx, req.clientIP)
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

// deny returns why a request that has been counted is denied for its credentials, and keeps those that are invalid for
// `gatehouse explain --id`.
func (h *signed) deny(r *http.Request, req *signedRequest) error {
	if req.failure.reason != "" {
		h.app.credentials.failures.add(r, req, h.unsigned)
	}
	if req.authErr != nil && r.Context().Err() != nil && !errors.Is(req.authErr, os.ErrDeadlineExceeded) {
		// net/http cancels the request's context when a read from the connection fails. A read that failed because of its
		// deadline means a slow client instead.
		return clientGone(r.Context())
	}
	return req.authErr
}

// authResult returns the result of authentication as a log field and metric label: one of a fixed set.
func (req *signedRequest) authResult() string {
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
