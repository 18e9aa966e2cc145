package mcp

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
)

// Causes that are logged instead of texts of responses, which may quote the client.
var (
	errUnknownTool  = errors.New("unknown tool, or unreadable arguments")
	errMessage      = errors.New("the message is invalid")
	errTooManyCalls = errors.New("rate limit of the connection exceeded")
	errUnasked      = errors.New("an owner has not allowed writing to people without asking")
	errScope        = errors.New("the connection lacks the tool's scope")
	errPanic        = errors.New("panic while serving a request")
	errTransport    = errors.New("the headers violate the rules of Streamable HTTP")
)

// logMessage adds the method of a message to the request's log entry. It omits unknown methods, which may be any text.
func logMessage(ctx context.Context, m message) {
	if offers(m.Method) || m.Method == "notifications/initialized" || m.Method == "notifications/cancelled" {
		requestlog.From(ctx).Add(func(f *requestlog.Fields) { f.MCPMethod = m.Method })
	}
}

// logError adds an error with which the SDK responds to the request's log entry, without its text, which may quote the client.
func logError(log *requestlog.Entry, method string, err error) {
	cause, code := errMessage, jsonrpc.CodeInternalError
	if method == methodToolsCall {
		cause = errUnknownTool
	}
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		code = int(e.Code)
	}
	if code == jsonrpc.CodeInternalError {
		logFault(log, err)
		return
	}
	log.Fail(codeName(code), cause)
}

// logFault adds an error of the gateway to the request's log entry, with level error although the response may have status 200.
func logFault(log *requestlog.Entry, cause error) {
	log.Add(func(f *requestlog.Fields) { f.Level = zapcore.ErrorLevel })
	log.Fail(codeInternal, cause)
}

// codeName returns the name of a JSON-RPC error code, for log and metrics.
func codeName(code int) string {
	return cmp.Or(map[int]string{
		jsonrpc.CodeParseError:                    "PARSE_ERROR",
		jsonrpc.CodeInvalidRequest:                "INVALID_REQUEST",
		jsonrpc.CodeMethodNotFound:                "METHOD_NOT_FOUND",
		jsonrpc.CodeInvalidParams:                 "INVALID_PARAMS",
		sdk.CodeHeaderMismatch:                    "HEADER_MISMATCH",
		sdk.CodeMissingRequiredClientCapabilities: "MISSING_CAPABILITY",
		jsonrpc.CodeInternalError:                 codeInternal,
	}[code], "JSONRPC_ERROR")
}

// logOutcome adds the call's outcome to the request's log entry.
func (c *toolCall) logOutcome(failed *toolError, took time.Duration) {
	outcome, level := requestlog.OutcomeOK, zapcore.InfoLevel
	switch {
	case failed == nil && c.inputRequired != nil:
		outcome = requestlog.OutcomeInputRequired
	case failed == nil && c.declined != "":
		outcome = requestlog.OutcomeDeclined
	case failed == nil:
	case failed.code == codeInternal, failed.code == codeInvalid:
		outcome, level = requestlog.OutcomeFailed, zapcore.ErrorLevel
	case failed.code == codeStore, failed.code == codeRunFailed, (failed.code == codeUnavailable || failed.code == codeTimeout) && !errors.Is(failed.cause, context.Canceled):
		outcome, level = requestlog.OutcomeFailed, zapcore.WarnLevel
	default:
		outcome = requestlog.OutcomeRejected
	}
	c.entry.Add(func(f *requestlog.Fields) {
		f.Tool, f.Outcome, f.Level, f.ToolTime = c.tool.Name, outcome, level, took
	})
	if failed != nil {
		c.entry.Fail(failed.code, cmp.Or(failed.cause, errors.New(failed.message)))
	}
}

// argumentsError returns what is wrong with the arguments for the log: without values, and without names that the schema does not have.
func (t *tool) argumentsError(details []data.Detail) error {
	problems := make([]string, 0, len(details))
	for _, d := range details {
		name, _, _ := strings.Cut(d.Field, ".")
		name, _, _ = strings.Cut(name, "[")
		switch {
		case slices.Contains(t.names, name):
			problems = append(problems, name+" "+d.Problem)
		case strings.HasPrefix(d.Problem, unknownArgument):
			problems = append(problems, "unknown argument")
		default:
			problems = append(problems, "an argument "+d.Problem)
		}
	}
	return errors.New(strings.Join(slices.Compact(problems), "; "))
}

// warn logs an error that does not fail the call, unless it is nil.
func (c *toolCall) warn(what string, err error) {
	if err != nil {
		c.server.o.Log.Warn(what, zap.String("tool", c.tool.Name), zap.String("request_id", c.requestID), zap.Error(err))
	}
}
