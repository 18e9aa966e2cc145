package mcp

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	schemakind "github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
)

// Codes that the errors of tools begin with.
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

// toolError is an error for the assistant: what was wrong, what is allowed, what was done, and whether to call again.
type toolError struct {
	code       string
	message    string        // for the log too if there is no cause, so it must not contain text of users
	violations []data.Detail // Field is an argument
	effect     string        // what was and was not done
	advice     string        // what to do now
	cause      error         // for the log only
	data       any           // further JSON for the assistant
}

func (e *toolError) Error() string {
	if e.cause != nil {
		return e.code + ": " + e.cause.Error()
	}
	return e.code + ": " + e.message
}

func (e *toolError) Unwrap() error { return e.cause }

// result returns the error as a tool result, without structured content, which would have to match the output schema.
func (e *toolError) result(requestID string) *callResult {
	var b strings.Builder
	fmt.Fprintf(&b, "Error %s: %s", e.code, e.message)
	for _, d := range e.violations {
		fmt.Fprintf(&b, "\n- %s %s", d.Field, d.Problem)
		if d.Allowed != "" {
			fmt.Fprintf(&b, " (allowed: %s)", d.Allowed)
		}
	}
	for _, s := range []string{e.effect, e.advice} {
		if s != "" {
			b.WriteString("\n" + s)
		}
	}
	if e.data != nil {
		if more, err := json.Marshal(e.data); err == nil {
			b.WriteString("\n")
			b.Write(more)
		}
	}
	if requestID != "" {
		b.WriteString("\nRequest id, for support: " + requestID)
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

// newToolError converts the error of a tool.
func newToolError(err error, t *tool) *toolError {
	if failed, ok := errors.AsType[*toolError](err); ok {
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
	switch {
	case errors.Is(err, data.ErrNotFound):
		failed.code = codeNotFound
		failed.message = fmt.Sprintf("This business has no such %s.", t.About)
		failed.advice = "Find the right id with the search or list tool of this area."
		if t.Kind == deletes {
			failed.advice = "If it was deleted before, there is nothing left to do."
		}
	case errors.Is(err, data.ErrInvalid):
		failed.code, failed.message = codeArguments, "The business's data service rejected these arguments."
		failed.violations, failed.advice = e.Details, correctAndCall
	case errors.Is(err, data.ErrVersion):
		failed.code = codeChanged
		failed.message = fmt.Sprintf("The %s has changed since you read it.", t.About)
		failed.advice = "Read it again, check that your change still makes sense, and call again with its new version."
	case errors.Is(err, data.ErrConflict):
		failed.code, failed.message, failed.violations = codeConflict, cmp.Or(e.Message, "The state of the record, or of one that refers to it, does not allow this."), e.Details
	case errors.Is(err, data.ErrKeyReused):
		failed.code = codeKeyReused
		failed.message = "This idempotency_key was already used with other arguments."
		failed.advice = "To repeat the earlier call, send its arguments again. For a new call, send a new key."
	case errors.Is(err, data.ErrNoAccount):
		failed.code = codeAccount
		failed.message = "The account that approved this connection, or its business, is no longer active."
		failed.advice = "Calling again will not help: an owner of the business has to connect again."
	case errors.Is(err, data.ErrForbidden):
		failed.code = codeForbidden
		failed.message = cmp.Or(e.Message, "The user who approved this connection may not do this in the business.")
		failed.advice = "Calling again will not help: someone with more permissions in the business has to do it."
	case errors.Is(err, data.ErrBusy):
		failed.code, failed.message = codeUnavailable, "The business's data service is busy."
		failed.advice = retryIn(e.RetryAfter)
	case errors.Is(err, data.ErrTimeout):
		failed.code, failed.message = codeTimeout, "The business's data service did not respond in time."
		failed.advice = retryIn(e.RetryAfter)
	case errors.Is(err, data.ErrUnavailable):
		failed.code, failed.message = codeUnavailable, "The business's data service is temporarily unavailable."
		failed.advice = retryIn(e.RetryAfter)
	default:
		failed.code = codeInvalid
		failed.message = "The business's data service sent an invalid response. Your arguments are not the cause."
		failed.advice = "Calling again is unlikely to help. Tell the user, with the request id."
	}
	return failed
}

func retryIn(d time.Duration) string {
	if d <= 0 {
		return callAgainLater
	}
	return fmt.Sprintf("Calling again after %d seconds with the same arguments is safe.", int(math.Ceil(d.Seconds())))
}

// checkArguments validates arguments against the input schema and reports every violation, up to maxDetails.
func (t *tool) checkArguments(arguments jsontext.Value) *toolError {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(arguments))
	if err != nil {
		return &toolError{
			code: codeArguments, message: "The arguments are not a JSON object.", effect: t.notDone(), advice: correctAndCall,
		}
	}
	schema, err := t.input()
	if err != nil {
		return newToolError(err, t)
	}
	err = schema.Validate(doc)
	if err == nil {
		return nil
	}
	failed := &toolError{
		code: codeArguments, message: "Invalid arguments for " + t.Name + ".", effect: t.notDone(), advice: correctAndCall,
	}
	invalid, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return failed
	}
	failed.violations = validationDetails(invalid, nil)
	slices.SortFunc(failed.violations, func(a, b data.Detail) int { return strings.Compare(a.Field, b.Field) })
	failed.violations = slices.Compact(failed.violations)
	failed.cause = t.argumentsError(failed.violations)
	if len(failed.violations) > maxDetails {
		failed.violations = failed.violations[:maxDetails]
	}
	for _, d := range failed.violations {
		if d.Problem == unknownArgument {
			failed.advice = "The arguments of " + t.Name + " are: " + strings.Join(t.in.PropertyOrder, ", ") + ". " + correctAndCall
			break
		}
	}
	return failed
}

const (
	maxDetails      = 20
	unknownArgument = "is not an argument"
)

// validationDetails appends the leaves of a validation error to all.
func validationDetails(e *jsonschema.ValidationError, all []data.Detail) []data.Detail {
	for _, c := range e.Causes {
		all = validationDetails(c, all)
	}
	if len(e.Causes) > 0 {
		return all
	}
	at := pathString(e.InstanceLocation)
	add := func(field, problem, allowed string) {
		all = append(all, data.Detail{Field: cmp.Or(field, "the call"), Problem: problem, Allowed: allowed})
	}
	switch k := e.ErrorKind.(type) {
	case *schemakind.Required:
		for _, name := range k.Missing {
			add(pathString(append(slices.Clone(e.InstanceLocation), name)), "is required", "")
		}
	case *schemakind.AdditionalProperties:
		for _, name := range k.Properties {
			add(pathString(append(slices.Clone(e.InstanceLocation), name)), unknownArgument, "")
		}
	case *schemakind.Enum:
		allowed := make([]string, 0, len(k.Want))
		for _, v := range k.Want {
			allowed = append(allowed, fmt.Sprint(cmp.Or(v, any("null"))))
		}
		add(at, "is not one of the allowed values", strings.Join(allowed, ", "))
	case *schemakind.Const:
		add(at, "is not the allowed value", fmt.Sprint(k.Want))
	case *schemakind.Type:
		add(at, "is "+article(k.Got), strings.Join(k.Want, " or "))
	case *schemakind.Format:
		add(at, "is not a valid "+formatName(k.Want), formatExample(k.Want))
	case *schemakind.Pattern:
		add(at, "has the wrong form", "text that matches "+k.Want)
	case *schemakind.MinLength:
		add(at, "is too short", fmt.Sprintf("at least %d characters", k.Want))
	case *schemakind.MaxLength:
		add(at, "is too long", fmt.Sprintf("at most %d characters", k.Want))
	case *schemakind.Minimum:
		add(at, "is too small", "at least "+k.Want.RatString())
	case *schemakind.Maximum:
		add(at, "is too large", "at most "+k.Want.RatString())
	case *schemakind.ExclusiveMinimum:
		add(at, "is too small", "more than "+k.Want.RatString())
	case *schemakind.MinItems:
		add(at, "has too few entries", fmt.Sprintf("at least %d", k.Want))
	case *schemakind.MaxItems:
		add(at, "has too many entries", fmt.Sprintf("at most %d", k.Want))
	case *schemakind.MinProperties:
		add(at, "contains no change", fmt.Sprintf("at least %d members", k.Want))
	case *schemakind.MaxProperties:
		add(at, "has too many members", fmt.Sprintf("at most %d", k.Want))
	default:
		add(at, "does not match the tool's input schema", "")
	}
	return all
}

func article(got string) string {
	switch got {
	case "null":
		return "null"
	case "array", "object", "integer":
		return "an " + got
	}
	return "a " + got
}

func formatName(format string) string {
	return cmp.Or(map[string]string{"date-time": "timestamp", "email": "email address", "uri": "URL"}[format], format)
}

func formatExample(format string) string {
	return map[string]string{
		"date-time": "RFC 3339 with an offset, such as 2026-03-05T09:30:00-05:00",
		"email":     "an address such as ines@example.com",
		"uri":       "a URL such as https://example.com/",
		"uuid":      "a UUID such as 77a0c1c5-7a43-4d0e-8b39-7a1f2f6a9c11",
	}[format]
}

// pathString formats an instance location: rules[2].when.
func pathString(path []string) string {
	var b strings.Builder
	for i, p := range path {
		if len(p) > 100 {
			p = strings.ToValidUTF8(p[:100], "") + "…"
		}
		switch {
		case i > 0 && strings.Trim(p, "0123456789") == "" && p != "":
			b.WriteString("[" + p + "]")
		case i > 0:
			b.WriteString("." + p)
		default:
			b.WriteString(p)
		}
	}
	return b.String()
}
