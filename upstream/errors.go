package upstream

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Errors returned by Check, CheckHeader, CleanQuery, NewRequest and VerifyAssertion wrap one of these.
var (
	// ErrInvalidParameter is wrapped by every ParameterError. The API responds with 400 INVALID_PARAMETER.
	ErrInvalidParameter = errors.New("invalid query parameter")

	// ErrInvalidBody is wrapped by every BodyError. The API responds with 400 INVALID_BODY.
	ErrInvalidBody = errors.New("invalid request body")

	// ErrContractViolation means that a data service's response violates the contract. The API responds with 502 UPSTREAM_FAILED.
	ErrContractViolation = errors.New("upstream response violates the contract")

	// ErrCrossTenantRecord means that a response contains a record of another business. It wraps ErrContractViolation. It
	// should raise an alert, because the data service's tenant isolation has failed.
	ErrCrossTenantRecord = fmt.Errorf("%w: cross-tenant record", ErrContractViolation)

	// ErrMissingTenant means that a record has no tenant field. It wraps ErrContractViolation.
	ErrMissingTenant = fmt.Errorf("%w: record without its tenant", ErrContractViolation)

	// ErrWrongRecord means that a response is about another record than the one that was asked for. It wraps ErrContractViolation.
	ErrWrongRecord = fmt.Errorf("%w: another record than the one that was asked for", ErrContractViolation)

	// ErrResponseTooLarge means that the response's body is larger than the call allows. It wraps ErrContractViolation.
	ErrResponseTooLarge = fmt.Errorf("%w: larger than the maximum size", ErrContractViolation)

	// ErrUpstreamUnavailable means that a data service responded with 503 and Retry-After. The API responds with 503 SERVICE_UNAVAILABLE.
	ErrUpstreamUnavailable = errors.New("upstream is unavailable")

	// ErrNotVisible means that the only record of a response may not be seen by callers. The API responds with 404 NOT_FOUND.
	ErrNotVisible = errors.New("the record may not be seen")

	// ErrTooManyCalls means that a key, client IP or business has its maximum of calls in progress, and none ended while one more waited. The
	// API responds with 429 RATE_LIMITED.
	ErrTooManyCalls = errors.New("too many calls to data services in progress")

	// ErrIdentity means that the business ID or the request ID is empty or not valid in a header. It is a fault of the
	// gateway, which responds with 500 INTERNAL.
	ErrIdentity = errors.New("invalid identity")

	// ErrInvalidAssertion means that a hop assertion is invalid. A data service should respond with 401.
	ErrInvalidAssertion = errors.New("invalid gateway assertion")

	// ErrUnknownAssertionKey is returned by a KeySource if the key does not exist. It must not be used for outages.
	ErrUnknownAssertionKey = errors.New("unknown assertion key")

	// ErrAssertionKeys means that a signing key or a published key set is invalid.
	ErrAssertionKeys = errors.New("invalid assertion keys")
)

// StatusError is a data service's error response, from 400 to 499, that the gateway passes on with a body of its own.
type StatusError struct{ Status int }

// Error returns the status.
func (e *StatusError) Error() string {
	return "the data service responded with status " + strconv.Itoa(e.Status)
}

// ParameterError reports an invalid query parameter. It never contains the value.
type ParameterError struct {
	Parameter string // the name of the parameter, such as "count"
	Reason    string // for callers, without a full stop, such as "count must be a whole number"
}

// Error returns the reason.
func (e *ParameterError) Error() string { return e.Reason }

// Unwrap makes errors.Is(err, ErrInvalidParameter) hold.
func (e *ParameterError) Unwrap() error { return ErrInvalidParameter }

// BodyError reports what is invalid in a request's body. It contains no values of it.
type BodyError struct{ Violations []Violation }

// Violation is an invalid value.
type Violation struct {
	Pointer string `json:"pointer"` // JSON Pointer (RFC 6901); empty: the body itself
	Reason  string `json:"reason"`  // for callers, without a full stop, such as "is too long"

	// From is where the data service has the value, if that is another place: a name, or a JSON Pointer.
	From string `json:"-"`

	// Times is how many it stands for in a response, of items of one array. 0 means 1.
	Times int `json:"-"`
}

// Error returns the first violation for the log: with * for names that may be values, such as keys of maps.
func (e *BodyError) Error() string {
	v := e.Violations[0]
	names := strings.Split(v.Pointer, "/")
	for i, name := range names {
		if !isIdentifier(name) {
			names[i] = "*"
		}
	}
	return ErrInvalidBody.Error() + ": " + strings.TrimSpace(strings.Join(names, "/")+" "+v.Reason)
}

// Unwrap makes errors.Is(err, ErrInvalidBody) hold.
func (e *BodyError) Unwrap() error { return ErrInvalidBody }

// MediaTypeError reports a body whose media type, charset or encoding is not accepted. The API responds with 415 UNSUPPORTED_MEDIA_TYPE.
type MediaTypeError struct{ Accepted []string }

// Error returns the media types that are accepted.
func (e *MediaTypeError) Error() string {
	return "the body must be " + strings.Join(e.Accepted, " or ") + ", in UTF-8 and not compressed"
}

// ContractError reports where a response violates the contract, for the log. It contains no values that the data service sent,
// and only documented field names.
type ContractError struct {
	Kind     error  // ErrContractViolation, ErrCrossTenantRecord, ErrMissingTenant, ErrWrongRecord or ErrUpstreamUnavailable
	Resource string // the resource's name, such as "events"; empty if unknown
	Record   int    // index of the record in the list as sent, from 0; -1 if the error is not in a record of a list
	Field    string // the documented name of the field, such as "schedule.date"; empty if the error is not in one
	Expected string // what the contract requires, such as "a date (YYYY-MM-DD)"
}

// Error returns one line, such as "upstream response violates the contract: events: record 3: schedule.date: expected a date".
func (e *ContractError) Error() string {
	text := e.Kind.Error()
	if e.Resource != "" {
		text += ": " + e.Resource
	}
	if e.Record >= 0 {
		text += ": record " + strconv.Itoa(e.Record)
	}
	if e.Field != "" {
		text += ": " + e.Field
	}
	if e.Expected != "" {
		text += ": expected " + e.Expected
	}
	return text
}

// Unwrap returns Kind.
func (e *ContractError) Unwrap() error { return e.Kind }
