// Package requestlog lets the packages of the connection server add fields to a request's log line and metrics, which the server
// around them writes when the request ends.
package requestlog

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap/zapcore"
)

// Entry collects the fields of one request. It is safe for concurrent use, because a call may continue after its request has
// ended; fields that are added then are lost. Methods of a nil *Entry do nothing.
type Entry struct {
	requestID string

	mu     sync.Mutex
	fields Fields
}

// Fields of an [Entry]. They must not contain secrets, tokens, arguments of tools or personal data.
type Fields struct {
	MCPMethod  string // one that this server serves
	GrantType  string // one that the token endpoint supports
	Page       string // the path of a page of this server
	Tool       string // the name of a tool of this server
	Outcome    string // of the tool call: one of the Outcome constants
	SignIn     string // outcome of a sign-in: one of the SignIn constants
	BusinessID string
	GrantID    string // the connection
	ClientID   string // of a known client, without a query
	ClientName string // from the client's metadata

	Code  string        // of the error; one of a fixed set
	Cause error         // of the error
	Level zapcore.Level // the log line's minimum level

	Verify          time.Duration // checking the access token
	Limit           time.Duration // checking the rate limit
	Upstream        time.Duration // all calls to the data service
	UpstreamAddress string        // of the last call
	ToolTime        time.Duration // the tool call
}

// Outcomes of tool calls.
const (
	OutcomeOK            = "ok"
	OutcomeDeclined      = "declined"       // the user declined
	OutcomeInputRequired = "input_required" // the user has to confirm first
	OutcomeRejected      = "rejected"       // an error of the caller
	OutcomeFailed        = "failed"         // an error of the gateway or the data service
)

// Outcomes returns all outcomes of tool calls.
func Outcomes() []string {
	return []string{OutcomeOK, OutcomeDeclined, OutcomeInputRequired, OutcomeRejected, OutcomeFailed}
}

// Outcomes of sign-ins.
const (
	SignInOK               = "ok"
	SignInWrongCredentials = "wrong_credentials" //nolint:gosec // a label
	SignInRateLimited      = "rate_limited"
	SignInInvalidForm      = "invalid_form" // incomplete, or without a valid CSRF token
	SignInUnavailable      = "unavailable"  // Redis or the accounts service
)

// SignIns returns all outcomes of sign-ins.
func SignIns() []string {
	return []string{SignInOK, SignInWrongCredentials, SignInRateLimited, SignInInvalidForm, SignInUnavailable}
}

type contextKey struct{}

// With returns a context with a new entry for a request, and the entry.
func With(ctx context.Context, requestID string) (context.Context, *Entry) {
	e := &Entry{requestID: requestID}
	return context.WithValue(ctx, contextKey{}, e), e
}

// From returns the context's entry, or nil.
func From(ctx context.Context) *Entry {
	e, _ := ctx.Value(contextKey{}).(*Entry)
	return e
}

// ID returns the ID of the context's request, or "".
func ID(ctx context.Context) string {
	if e := From(ctx); e != nil {
		return e.requestID
	}
	return ""
}

// Add calls change with the fields, under the entry's lock.
func (e *Entry) Add(change func(*Fields)) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	change(&e.fields)
}

// Fail sets Code and Cause unless an earlier error has: the first one is the most specific. An empty code stands for that of the
// response's status.
func (e *Entry) Fail(code string, cause error) {
	e.Add(func(f *Fields) {
		if f.Code == "" && f.Cause == nil {
			f.Code, f.Cause = code, cause
		}
	})
}

// Fields returns a copy of the fields.
func (e *Entry) Fields() (f Fields) {
	e.Add(func(now *Fields) { f = *now })
	return f
}
