package mcp

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// Codes of tool errors, with which their texts begin.
const (
	codeArguments   = "INVALID_ARGUMENTS"
	codeNotFound    = "NOT_FOUND"
	codeConflict    = "CONFLICT"
	codeChanged     = "CHANGED_MEANWHILE"
	codeKeyReused   = "IDEMPOTENCY_KEY_REUSED"
	codeForbidden   = "NOT_ALLOWED"
	codeScope       = "INSUFFICIENT_SCOPE"
	codeAccount     = "ACCOUNT_NOT_ALLOWED"
	codeConfirm     = "CONFIRMATION_NEEDED"
	codeRate        = "RATE_LIMITED"
	codeUnavailable = "DATA_SERVICE_UNAVAILABLE"
	codeTimeout     = "DATA_SERVICE_TIMEOUT"
	codeInvalid     = "DATA_SERVICE_INVALID_RESPONSE"
	codeRunFailed   = "RUN_FAILED"
	codeStore       = "GATEWAY_UNAVAILABLE"
	codeInternal    = "INTERNAL"
)

// toolError is an error for the assistant: what is wrong, what is allowed, what was done, and whether to call again.
type toolError struct {
	code       string
	message    string         // logged if there is no cause, so it must not contain users' text then
	violations []data.Detail  // Field is an argument
	effect     string         // what was and was not done
	advice     string         // what to do now
	cause      error          // for the log only
	data       jsontext.Value // more JSON for the assistant
}

func (e *toolError) Error() string {
	return e.code + ": " + cmp.Or(e.cause, errors.New(e.message)).Error()
}

func (e *toolError) Unwrap() error { return e.cause }

// result returns the error as a tool result. It has no structured content, which would have to match the output schema.
func (e *toolError) result(requestID string) *callResult {
	var b strings.Builder
	fmt.Fprintf(&b, "Error %s: %s", e.code, e.message)
	for _, d := range e.violations {
		fmt.Fprintf(&b, "\n- %s %s", d.Field, d.Problem)
		if d.Allowed != "" {
			fmt.Fprintf(&b, " (allowed: %s)", d.Allowed)
		}
	}
	lines := []string{e.effect, e.advice, string(e.data)}
	if requestID != "" {
		lines = append(lines, "Request id, for support: "+requestID)
	}
	for _, line := range lines {
		if line != "" {
			b.WriteString("\n" + line)
		}
	}
	res := textResult(b.String())
	res.IsError = true
	return res
}

const (
	nothingDone    = "Nothing was changed."
	nothingRead    = "Nothing was read."
	callAgainLater = "Calling again later with the same arguments is safe."
	correctAndCall = "Correct the arguments and call again."
)

// badArguments returns the error for invalid arguments.
func (t *tool) badArguments(violations ...data.Detail) *toolError {
	return &toolError{
		code: codeArguments, message: "Invalid arguments for " + t.Name + ".", violations: violations, effect: t.notDone(), advice: correctAndCall,
	}
}

// newToolError converts an error of a tool call.
func newToolError(err error, t *tool) *toolError {
	if failed, ok := errors.AsType[*toolError](err); ok {
		return failed
	}
	if bad, ok := errors.AsType[*upstream.ParameterError](err); ok {
		failed := t.badArguments(data.Detail{Field: t.argument(bad.Parameter), Problem: strings.TrimPrefix(bad.Reason, bad.Parameter+" ")})
		failed.cause = err
		return failed
	}
	failed := &toolError{cause: err, effect: t.notDone()}
	e, ok := errors.AsType[*data.Error](err)
	if !ok {
		failed.code, failed.message = codeInternal, "The gateway failed. Your arguments are not the cause."
		failed.effect = ""
		if t.writes() {
			failed.effect = "Something may have changed. Check the record before you call again."
		}
		return failed
	}
	if e.Uncertain {
		failed.effect = "The change may or may not have been made, because the response was lost. " +
			"Check the record before you say that it was or was not."
	}
	says := func(code, message, advice string) { failed.code, failed.message, failed.advice = code, message, advice }
	const final = "Calling again will not help: "
	switch {
	case errors.Is(err, data.ErrNotFound) && t.Kind == definition.KindDelete:
		says(codeNotFound, "This business has no such "+t.namedBy()+".", "If it was deleted before, there is nothing left to do.")
	case errors.Is(err, data.ErrNotFound):
		says(codeNotFound, "This business has no such "+t.namedBy()+".", "Find the right id with the search or list tool of this area.")
	case errors.Is(err, data.ErrInvalid):
		says(codeArguments, strings.TrimSpace("The business's data service rejected these arguments. "+e.Message), correctAndCall)
		failed.violations = slices.Clone(e.Details)
		for i, d := range e.Details { // an assistant knows no headers
			if strings.EqualFold(d.Field, "If-Match") && t.takes(argIfVersion) {
				failed.violations[i] = data.Detail{Field: argIfVersion, Problem: "is not a version of this record"}
			}
		}
	case errors.Is(err, data.ErrVersion):
		advice := "Read it again, check that your change still makes sense, and call again"
		if t.takes(argIfVersion) {
			advice += " with its new version"
		}
		says(codeChanged, "This has changed since you read it.", advice+".")
	case errors.Is(err, data.ErrConflict):
		says(codeConflict, cmp.Or(e.Message, "The state of the record, or of one that refers to it, does not allow this."), "")
		failed.violations = e.Details
	case errors.Is(err, data.ErrKeyReused):
		says(codeKeyReused, "This idempotency_key was already used with other arguments.",
			"To repeat the earlier call, send its arguments again. For a new call, send a new key.")
	case errors.Is(err, data.ErrNoAccount):
		says(codeAccount, "The account that approved this connection, or its business, is no longer active.",
			final+"an owner of the business has to connect again.")
	case errors.Is(err, data.ErrForbidden):
		says(codeForbidden, cmp.Or(e.Message, "The user who approved this connection may not do this in the business."),
			final+"someone with more permissions in the business has to do it.")
	case errors.Is(err, data.ErrBusy):
		says(codeUnavailable, "The business's data service is busy.", t.again(e))
	case errors.Is(err, data.ErrTimeout):
		says(codeTimeout, "The business's data service did not respond in time.", t.again(e))
	case errors.Is(err, data.ErrUnavailable):
		says(codeUnavailable, "The business's data service is temporarily unavailable.", t.again(e))
	case errors.Is(err, upstream.ErrResponseTooLarge) && t.Operation.Success().IsList():
		says(codeInvalid, "The list is larger than 1 MiB.", "Call again for fewer records: with a smaller limit, or a narrower search.")
	default:
		says(codeInvalid, "The business's data service sent an invalid response. Your arguments are not the cause.",
			"Calling again is unlikely to help. Tell the user, with the request id.")
	}
	return failed
}

// again returns advice on whether to call again after the data service was busy or did not respond.
func (t *tool) again(e *data.Error) string {
	advice := retryIn(e.RetryAfter)
	switch {
	case !e.Uncertain || t.Idempotent:
		return advice
	case t.key:
		return fmt.Sprintf("%s until %.0f minutes after the first of these calls. After that, it may do it twice: read or list the records first.",
			strings.TrimSuffix(advice, "."), IdempotencyWindow.Minutes())
	}
	return "Calling again may do it twice. Read or list the records first, and call again only if it was not done."
}

func retryIn(d time.Duration) string {
	if d <= 0 {
		return callAgainLater
	}
	return fmt.Sprintf("Calling again after %d seconds with the same arguments is safe.", wholeSeconds(d))
}
