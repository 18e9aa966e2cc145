package upstream

import (
	"errors"
	"fmt"
	"strconv"
)

// The errors of this package. Every error that Check, CheckHead, CleanQuery, PrepareRequest or VerifyAssertion
// returns is one of these in the sense of errors.Is.
var (
	// ErrInvalidParameter is under every ParameterError: the contract's 400 INVALID_PARAMETER.
	ErrInvalidParameter = errors.New("invalid query parameter")

	// ErrNotContract says that a data service's answer is not what the contract asks for: 502 UPSTREAM_FAILED.
	ErrNotContract = errors.New("upstream answer is not the contract")

	// ErrForeignRecord says that an answer held another business's record. It is also an ErrNotContract, and worth
	// an alarm: the data service's own isolation has failed.
	ErrForeignRecord = fmt.Errorf("%w: a record of another business", ErrNotContract)

	// ErrUnmarkedRecord says that a record does not name the business that it belongs to. It is also an
	// ErrNotContract.
	ErrUnmarkedRecord = fmt.Errorf("%w: a record without business_id", ErrNotContract)

	// ErrUpstreamUnavailable says that a data service asked callers to come back later, by 503 with Retry-After:
	// 503 SERVICE_UNAVAILABLE.
	ErrUpstreamUnavailable = errors.New("upstream is not available")

	// ErrIdentity says that a request cannot be prepared, because the business or the request id is empty or
	// cannot stand in a header. It is a fault of the gateway: 500 INTERNAL.
	ErrIdentity = errors.New("unusable identity")

	// ErrInvalidAssertion says that a hop assertion does not verify. A data service answers it with 401.
	ErrInvalidAssertion = errors.New("invalid gateway assertion")

	// ErrUnknownAssertionKey says that a KeySource knows for certain that it has no such key.
	ErrUnknownAssertionKey = errors.New("unknown assertion key")

	// ErrAssertionKeys says that a signing key or a published key set cannot be used.
	ErrAssertionKeys = errors.New("unusable assertion keys")
)

// ParameterError is a query parameter that cannot be read: the contract's 400 INVALID_PARAMETER. It never holds what
// the caller sent.
type ParameterError struct {
	Parameter string // the parameter's name, one of the table's: "count"
	Reason    string // a sentence for people, without a full stop: "count must be a whole number"
}

// Error returns the reason.
func (e *ParameterError) Error() string { return e.Reason }

// Unwrap makes errors.Is(err, ErrInvalidParameter) hold.
func (e *ParameterError) Unwrap() error { return ErrInvalidParameter }

// ContractError says where an answer left the contract and what was expected there, for the operator's log. It holds
// nothing that the data service sent: no value, and no name but the documented ones.
type ContractError struct {
	Kind     error  // ErrNotContract, ErrForeignRecord, ErrUnmarkedRecord or ErrUpstreamUnavailable
	Resource string // the resource's name, "events"; empty where no resource is known
	Record   int    // index in the list as sent, from 0; -1 when the fault is not in a record of a list
	Field    string // the documented name, nested ones with a dot: "schedule.date"; empty when it is none of them
	Expected string // what the contract asks for: "a date (YYYY-MM-DD)"
}

// Error is one line: "upstream answer is not the contract: events: record 3: schedule.date: expected a date".
func (e *ContractError) Error() string {
	b := append([]byte(nil), e.Kind.Error()...)
	if e.Resource != "" {
		b = append(append(b, ": "...), e.Resource...)
	}
	if e.Record >= 0 {
		b = strconv.AppendInt(append(b, ": record "...), int64(e.Record), 10)
	}
	if e.Field != "" {
		b = append(append(b, ": "...), e.Field...)
	}
	if e.Expected != "" {
		b = append(append(b, ": expected "...), e.Expected...)
	}
	return string(b)
}

// Unwrap returns Kind.
func (e *ContractError) Unwrap() error { return e.Kind }
