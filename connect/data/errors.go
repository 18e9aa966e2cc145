package data

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// What a call can end with. Every error of a [Client]'s methods is one of these in the sense of errors.Is; most of them
// are an [*Error], which says more.
var (
	// ErrNotFound says that the business has no such record.
	ErrNotFound = errors.New("no such record")

	// ErrInvalid says that the service does not take what it was given; [Error.Details] name the fields.
	ErrInvalid = errors.New("not accepted by the data service")

	// ErrConflict says that the record, or what it depends on, is in a state in which this cannot be done.
	ErrConflict = errors.New("in conflict with what is there")

	// ErrVersion says that the record has changed since the version that the caller knows. It is an ErrConflict as well.
	ErrVersion = fmt.Errorf("%w: the record has changed meanwhile", ErrConflict)

	// ErrKeyReused says that an idempotency key was used before, for something else.
	ErrKeyReused = errors.New("the idempotency key was used for something else")

	// ErrForbidden says that the account may not do this in its business.
	ErrForbidden = errors.New("not allowed for this account")

	// ErrNoAccount says that the account is gone, may not sign in any more or belongs to another business now; or that
	// the business is not active. It is an ErrForbidden as well.
	ErrNoAccount = fmt.Errorf("%w: the account or its business is not active", ErrForbidden)

	// ErrRefused says that the service does not accept the gateway itself: a fault of the installation.
	ErrRefused = errors.New("the data service refuses the gateway")

	// ErrBusy says that the service wants fewer calls; [Error.RetryAfter] says when to come back.
	ErrBusy = errors.New("the data service is busy")

	// ErrUnavailable says that the service could not be reached, or could not answer.
	ErrUnavailable = errors.New("the data service is unavailable")

	// ErrTimeout says that the service did not answer in time. It is an ErrUnavailable as well.
	ErrTimeout = fmt.Errorf("%w: it did not answer in time", ErrUnavailable)

	// ErrUnexpected says that the service's answer is not what docs/data-services.md describes.
	ErrUnexpected = errors.New("the data service's answer cannot be used")

	// ErrForeign says that the service's answer holds records of another business. None of it is returned, and it is
	// logged as an alarm. It is an ErrUnexpected as well.
	ErrForeign = fmt.Errorf("%w: it holds another business's records", ErrUnexpected)

	// ErrWrongRecord says that the service's response is about another record than the one that the call names. It is
	// not returned, and it is logged as an alarm. It is an ErrUnexpected as well.
	ErrWrongRecord = fmt.Errorf("%w: it is about another record", ErrUnexpected)
)

// Detail is what is wrong with one field of what was sent.
type Detail struct {
	Field   string `json:"field"`             // the member's name, dotted where nested
	Problem string `json:"problem"`           // for people
	Allowed string `json:"allowed,omitempty"` // what would be accepted, for people
}

// Error is a call that did not succeed.
type Error struct {
	Kind    error    // one of this package's sentinels
	Status  int      // of the answer; 0 if there was none
	Code    string   // the service's, if it gave one
	Message string   // the service's sentence for people, if it gave one: one line of at most 500 bytes
	Details []Detail // at most 32

	// Uncertain says that a call that changes something may have done so all the same: it was sent, and no answer that
	// can be used came back. Repeating it with the same idempotency key is safe.
	Uncertain bool

	RetryAfter time.Duration // 0 if the service said nothing

	cause error
}

// Error is a text for logs. It holds nothing of the service's answer but its status and code.
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

// Unwrap gives the kind, and the cause if there is one.
func (e *Error) Unwrap() []error {
	if e.cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.cause}
}
