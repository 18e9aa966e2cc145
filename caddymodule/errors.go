package caddymodule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/dustin/go-humanize/english"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/caddymodule/internal/dataservice"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// The handlers' sentinel errors. problemOf maps them, and those of other packages, to responses.
var (
	errNotFound         = errors.New("no such path")
	errMethodNotAllowed = &methodNotAllowedError{"GET, HEAD"}
	errForbidden        = errors.New("the key may not call this resource")
	errLimitUnavailable = errors.New("checking the rate limit failed")
	errClientGone       = errors.New("the client closed the connection before the response")
	errEarlyData        = errors.New("the request arrived as early data, before its client IP was validated")
)

// methodNotAllowedError means that the path has other methods.
type methodNotAllowedError struct{ allow string }

func (e *methodNotAllowedError) Error() string { return "method not allowed, only " + e.allow }

// rateLimitedError means that a request exceeds a rate limit.
type rateLimitedError struct {
	retryAfter time.Duration
	limit      string
}

func (e *rateLimitedError) Error() string {
	return fmt.Sprintf("rate limit %q exceeded, retry after %s", e.limit, e.retryAfter)
}

// replayUnknownError means that it is not known whether a write was received before.
type replayUnknownError struct {
	repeatable bool // with the same Idempotency-Key
}

func (e *replayUnknownError) Error() string {
	return "it is not known whether this write was received before: Redis did not respond in time, the timestamp is too old by Redis's clock, or algorithm is gcra"
}

// replayedError means that a write was received before.
type replayedError struct {
	first      string // request ID of the first time
	repeatable bool   // with the same Idempotency-Key
}

func (e *replayedError) Error() string { return "the write was received before, as request " + e.first }

func clientGone(ctx context.Context) error {
	return fmt.Errorf("%w: %w", errClientGone, context.Cause(ctx))
}

// retryLaterError is an error response of a data service with Retry-After.
type retryLaterError struct {
	after time.Duration
	err   error
}

func (e *retryLaterError) Error() string { return e.err.Error() }

func (e *retryLaterError) Unwrap() error { return e.err }

const (
	// codeBadRequest is the code of client errors that have none of their own.
	codeBadRequest = "BAD_REQUEST"

	// codeClientClosed and statusClientClosed are only in the log and metrics, because the client has closed the connection.
	codeClientClosed   = "CLIENT_CLOSED_REQUEST"
	statusClientClosed = 499
)

// problem is the body of an error response. It never contains the cause, which is only logged.
type problem struct {
	Status     int    `json:"-"`
	Allow      string `json:"-"`
	Error      string `json:"error"`
	Code       string `json:"code"`
	RequestID  string `json:"request_id"`
	Detail     string `json:"detail,omitempty"`
	Parameter  string `json:"parameter,omitempty"`
	Message    string `json:"message,omitempty"`
	RetryAfter int    `json:"retry_after,omitempty"`
	ServerTime int64  `json:"server_time,omitempty"`
	OriginalID string `json:"original_request_id,omitempty"`
	Docs       string `json:"docs,omitempty"`

	Violations []upstream.Violation `json:"violations,omitempty"`
}

// unavailableRetryAfter is the Retry-After, in seconds, of an outage of unknown length.
const unavailableRetryAfter = 5

// problemOf maps an error to its response. It is the only function that does.
func problemOf(err error, now time.Time) problem {
	if uncertain, ok := errors.AsType[*uncertainError](err); ok {
		p := problemOf(uncertain.err, now)
		if errors.Is(uncertain.err, upstream.ErrNotVisible) {
			p.Detail = "The change may have been made. You cannot see the record."
		} else if p.Status > http.StatusInternalServerError {
			p.Detail = "The change may have been made. Find out before you send it again."
			if uncertain.repeatable {
				p.Detail = "The change may have been made. Find out before you send it again, or repeat it with the same Idempotency-Key."
			}
		}
		return p
	}
	var (
		param     *upstream.ParameterError
		limited   *rateLimitedError
		later     *retryLaterError
		handler   caddyhttp.HandlerError
		maxBody   *http.MaxBytesError
		network   net.Error
		malformed *malformedHeaderError
		replayed  *replayedError
		unknown   *replayUnknownError
		method    *methodNotAllowedError
		passed    *upstream.StatusError
		body      *upstream.BodyError
		media     *upstream.MediaTypeError
	)
	switch {
	case errors.Is(err, errClientGone):
		return unavailable() // it may have closed only its sending side, and would take no response for an empty 200
	// What a handler made of them does not matter.
	case errors.Is(err, errClientBodies):
		return problemOf(&rateLimitedError{retryAfter: defaultBodyTimeout}, now)
	case errors.Is(err, errAllBodies):
		return unavailable()
	case errors.As(err, &param):
		return problem{Status: http.StatusBadRequest, Code: "INVALID_PARAMETER", Error: sentence(param.Reason), Parameter: param.Parameter}
	case errors.As(err, &body):
		return problem{Status: http.StatusBadRequest, Code: "INVALID_BODY", Error: "The request body is not valid.", Violations: body.Violations}
	case errors.As(err, &media):
		return problem{Status: http.StatusUnsupportedMediaType, Code: "UNSUPPORTED_MEDIA_TYPE", Error: sentence(media.Error())}
	case errors.Is(err, authsigner.ErrMissingCredentials):
		return problem{
			Status: http.StatusUnauthorized, Code: "MISSING_CREDENTIALS",
			Error: "The headers X-Public-Key, X-Timestamp and X-Signature are required, each exactly once.",
		}
	case errors.Is(err, authsigner.ErrExpired):
		return problem{
			Status: http.StatusUnauthorized, Code: "REQUEST_EXPIRED", ServerTime: now.Unix(),
			Error: "X-Timestamp is more than 5 minutes from the server's clock.",
		}
	case errors.Is(err, authsigner.ErrInvalidCredentials):
		p := problem{Status: http.StatusUnauthorized, Code: "INVALID_CREDENTIALS", Error: "The public key or the signature is not valid."}
		if errors.As(err, &malformed) {
			p.Detail = validForm(malformed.header)
		}
		return p
	case errors.Is(err, authsigner.ErrAccountInactive):
		return problem{Status: http.StatusForbidden, Code: "ACCOUNT_INACTIVE", Error: "The account is not active."}
	case errors.Is(err, errForbidden):
		return problem{Status: http.StatusForbidden, Code: "FORBIDDEN", Error: "This key may not call this resource."}
	case errors.As(err, &replayed):
		advice := "Find out first; then sign again with a new timestamp."
		if replayed.repeatable {
			advice = "Sign again with a new timestamp, and repeat the Idempotency-Key."
		}
		return problem{
			Status: http.StatusConflict, Code: "REPLAYED", OriginalID: replayed.first, Error: "This request was received before.",
			Detail: "It was received as original_request_id; whether it was carried out is not known here. " + advice,
		}
	case errors.As(err, &unknown):
		p := unavailable() // without a Detail: that of a 503 says that the change may have been made
		p.Error = "This request was not carried out: it is not known whether it was received before. Sign it again later, with a new timestamp"
		if unknown.repeatable {
			p.Error += " and the same Idempotency-Key"
		}
		p.Error += "."
		return p
	case errors.Is(err, errWriteNotAllowed):
		return problem{Status: http.StatusForbidden, Code: "WRITE_NOT_ALLOWED", Error: "This key may only read."}
	case errors.Is(err, errUnsafePath):
		return problem{
			Status: http.StatusBadRequest, Code: codeBadRequest,
			Error: "The path must not have empty or dot segments, backslashes, semicolons, malformed escapes, or escaped slashes, dots, backslashes or NULs.",
		}
	case errors.Is(err, errNotPassedOn):
		return problem{Status: http.StatusBadRequest, Code: codeBadRequest, Error: "gRPC, CONNECT, TRACE, and WebSocket handshakes with a body are not possible here."}
	case errors.Is(err, errNotFound):
		return problem{Status: http.StatusNotFound, Code: "NOT_FOUND", Error: "Path not found."}
	case errors.As(err, &method):
		methods := strings.Split(method.allow, ", ")
		return problem{
			Status: http.StatusMethodNotAllowed, Code: "METHOD_NOT_ALLOWED", Allow: method.allow,
			Error: "Only " + english.WordSeries(methods, "and") + english.PluralWord(len(methods), " is", " are") + " allowed on this path.",
		}
	case errors.Is(err, upstream.ErrNotVisible):
		return problem{Status: http.StatusNotFound, Code: "NOT_FOUND", Error: "Not found."}
	case errors.As(err, &passed):
		if errors.As(err, &later) && passed.Status == http.StatusTooManyRequests {
			return problemOf(&rateLimitedError{retryAfter: later.after}, now)
		}
		return problemOfDataService(passed.Status)
	case errors.Is(err, authsigner.ErrBodyTooLarge), errors.As(err, &maxBody):
		return problem{
			Status: http.StatusRequestEntityTooLarge, Code: "BODY_TOO_LARGE",
			Error: "The request body is larger than the gateway accepts.",
		}
	case errors.Is(err, authsigner.ErrBodyUnreadable):
		return problem{Status: http.StatusRequestTimeout, Code: "REQUEST_TIMEOUT", Error: "The request body was not received completely in time."}
	case errors.As(err, &limited):
		s := ceilSeconds(limited.retryAfter)
		return problem{
			Status: http.StatusTooManyRequests, Code: "RATE_LIMITED", RetryAfter: s,
			Error:   "Rate limit exceeded.",
			Message: "Rate limit exceeded. Try again in " + strconv.Itoa(s) + " seconds.",
		}
	case errors.Is(err, upstream.ErrTooManyCalls):
		return problem{
			Status: http.StatusTooManyRequests, Code: "RATE_LIMITED", RetryAfter: 1,
			Error:   "Too many requests in progress.",
			Message: "Too many of your requests are in progress. Wait for some of them to end.",
		}
	case errors.Is(err, errMisdirected):
		return problem{Status: http.StatusMisdirectedRequest, Code: codeBadRequest, Error: "This host is not served here."}
	case errors.Is(err, errEarlyData):
		return problemOfStatus(http.StatusTooEarly)
	case errors.Is(err, authsigner.ErrUnavailable), errors.Is(err, errLimitUnavailable), errors.Is(err, dataservice.ErrUnreachable):
		return unavailable()
	case errors.Is(err, upstream.ErrUpstreamUnavailable):
		p := unavailable()
		if errors.As(err, &later) {
			p.RetryAfter = ceilSeconds(later.after)
		}
		return p
	case errors.Is(err, upstream.ErrResponseHeaderTimeout), errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &network) && network.Timeout():
		return problem{Status: http.StatusGatewayTimeout, Code: "UPSTREAM_TIMEOUT", Error: "The data service did not respond in time."}
	case errors.Is(err, upstream.ErrContractViolation), errors.Is(err, dataservice.ErrExchange):
		return problem{Status: http.StatusBadGateway, Code: "UPSTREAM_FAILED", Error: "The data service did not return a valid response."}
	case errors.As(err, &handler):
		return problemOfStatus(handler.StatusCode)
	default:
		return problemOfStatus(http.StatusInternalServerError)
	}
}

// validForm says what the value of one of the three headers must be.
func validForm(header string) string {
	switch header {
	case authsigner.HeaderPublicKey:
		return header + " must be 8 to 128 letters, digits, hyphens and underscores"
	case authsigner.HeaderTimestamp:
		return header + " must be Unix time in whole seconds, decimal digits only"
	}
	return header + " must be 64 hexadecimal digits"
}

func unavailable() problem {
	return problem{
		Status: http.StatusServiceUnavailable, Code: "SERVICE_UNAVAILABLE", RetryAfter: unavailableRetryAfter,
		Error: "The service is not available at the moment.",
	}
}

// problemOfDataService returns the response for a data service's error response that the gateway passes on with a body of its own.
func problemOfDataService(status int) problem {
	switch status {
	case http.StatusNotFound:
		return problem{Status: status, Code: "NOT_FOUND", Error: "Not found."}
	case http.StatusTooManyRequests:
		return problemOf(&rateLimitedError{retryAfter: unavailableRetryAfter * time.Second}, time.Time{})
	}
	return problem{Status: status, Code: codeBadRequest, Error: "The data service responded with status " + strconv.Itoa(status) + "."}
}

// problemOfStatus returns the response for errors with only a status: those of Caddy and its handlers.
func problemOfStatus(status int) problem {
	if err, ok := map[int]error{
		http.StatusNotFound:              errNotFound,
		http.StatusRequestEntityTooLarge: authsigner.ErrBodyTooLarge,
		http.StatusRequestTimeout:        authsigner.ErrBodyUnreadable,
		http.StatusTooManyRequests:       &rateLimitedError{retryAfter: time.Minute},
		http.StatusBadGateway:            upstream.ErrContractViolation,
		http.StatusServiceUnavailable:    authsigner.ErrUnavailable,
		http.StatusGatewayTimeout:        context.DeadlineExceeded,
	}[status]; ok {
		return problemOf(err, time.Time{})
	}
	switch {
	case status == http.StatusMethodNotAllowed: // Allow is that of the handler that knows the methods
		return problem{Status: status, Code: "METHOD_NOT_ALLOWED", Error: "The method is not allowed on this path."}
	case status >= 400 && status < 500:
		return problem{Status: status, Code: codeBadRequest, Error: "The request cannot be served."}
	}
	return problem{Status: http.StatusInternalServerError, Code: "INTERNAL", Error: "Something went wrong inside the gateway."}
}

// write sends p as the response. It removes the body headers that earlier handlers may have set.
func (p problem) write(w http.ResponseWriter, requestID, docs string) {
	p.RequestID = requestID
	p.Docs = docs
	h := w.Header()
	h.Del("Content-Encoding")
	h.Del("Etag")
	h.Del("Last-Modified")
	p.setHeaders(h)
	if p.Status == http.StatusUnauthorized && h["Www-Authenticate"] == nil { // not that of basic_auth, for example
		// required by RFC 9110, section 15.5.2
		h.Set("Www-Authenticate", `HMAC-SHA256 realm="gatehouse", headers="X-Public-Key X-Timestamp X-Signature"`)
	}
	writeJSON(w, p.Status, encode(p))
}

// setHeaders sets the headers that are the same in every format.
func (p problem) setHeaders(h http.Header) {
	if p.Allow != "" {
		h.Set("Allow", p.Allow)
	}
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
}

// encode encodes a value that has only strings and integers, which cannot fail.
func encode(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return body
}

// writeJSON sends a complete response.
func writeJSON(w http.ResponseWriter, status int, body []byte) {
	writeBody(w, status, "application/json", body, "")
}

// writeBody sends a complete response, without a body if contentType is empty, and with an entity tag unless that is empty.
func writeBody(w http.ResponseWriter, status int, contentType string, body []byte, etag string) {
	h := w.Header()
	// The values are not shared with other responses, because Caddy's header directive replaces text in place.
	values := []string{contentType, strconv.Itoa(len(body)), "no-store", etag}
	if contentType != "" {
		h["Content-Type"] = values[0:1:1]
	}
	if status != http.StatusNoContent && status != http.StatusNotModified {
		h["Content-Length"] = values[1:2:2]
	}
	if etag != "" || status == http.StatusNotModified { // the client may keep it, if it asks before each use; no cache knows that the key decides whose the response is
		values[2] = "private, no-cache"
		h["Vary"] = slices.Concat(h["Vary"], []string{authsigner.HeaderPublicKey + ", Accept-Language"})
	}
	if etag != "" {
		h["Etag"] = values[3:4:4]
	}
	h["Cache-Control"] = values[2:3:3]
	w.WriteHeader(status)
	_, _ = w.Write(body) //nolint:gosec,nolintlint // G705: JSON, or a media type that the definition names. Found only when all packages are analysed at once
}

// ceilSeconds rounds up to whole seconds, at least 1.
func ceilSeconds(d time.Duration) int { return max(1, int(math.Ceil(d.Seconds()))) }

// sentence capitalises s and adds a full stop.
func sentence(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:] + "."
}
