package data

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// Errors of a [Client]'s methods, besides those of package upstream for responses that the definition does not allow:
// ErrContractViolation, ErrCrossTenantRecord, ErrMissingTenant and ErrWrongRecord. Most are wrapped in an [*Error].
var (
	ErrNotFound = errors.New("no such record")                          // of the business
	ErrInvalid  = errors.New("rejected by the data service")            // the arguments; [Error.Details] name the fields
	ErrConflict = errors.New("conflicts with the record's state")       // or with that of a related record
	ErrVersion  = fmt.Errorf("%w: the record has changed", ErrConflict) // its version is not [Write.IfMatch]

	ErrKeyReused = errors.New("the idempotency key was used for another call")
	ErrForbidden = errors.New("not allowed for this account")

	// ErrNoAccount: the account does not exist, may not sign in or belongs to another business, or the business is inactive.
	ErrNoAccount = fmt.Errorf("%w: the account or its business is not active", ErrForbidden)

	ErrGatewayRejected = errors.New("the data service rejected the gateway or its assertion") // a configuration error
	ErrBusy            = errors.New("the data service is busy")                               // see [Error.RetryAfter]

	ErrUnavailable = fmt.Errorf("calling the data service: %w", upstream.ErrUpstreamUnavailable) // it cannot be reached, or failed
	ErrTimeout     = fmt.Errorf("%w: timeout", ErrUnavailable)
)

// Detail is what is wrong with one field of a request.
type Detail struct {
	Field   string `json:"field"` // path with dots
	Problem string `json:"problem"`
	Allowed string `json:"allowed,omitempty"`
}

// Error is the error of a failed call.
type Error struct {
	Kind    error    // one of the errors above
	Status  int      // of the response; 0 if there was none
	Code    string   // from the response, or ""
	Message string   // from the response, or "": one line of at most 500 bytes, for users
	Details []Detail // at most 32

	// Uncertain is true if a write may have changed something, because it was sent and no valid response came back. Retrying it
	// with the same idempotency key is safe.
	Uncertain bool

	RetryAfter time.Duration // from the response, as upstream.RetryAfter; 0 if absent

	cause error
}

// Error returns a text for logs. It contains the response's status and code, but no text from its body.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Kind.Error())
	if e.Status != 0 {
		fmt.Fprintf(&b, " (status %d", e.Status)
		if e.Code != "" {
			b.WriteString(", code " + e.Code)
		}
		b.WriteString(")")
	}
	if e.cause != nil {
		b.WriteString(": " + e.cause.Error())
	}
	return b.String()
}

// Unwrap returns the kind and the cause, which may be nil.
func (e *Error) Unwrap() []error { return []error{e.Kind, e.cause} }
