package mcp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
)

// toolCall is one call of a tool. Validation, the audit log and the request to the data service all use these values, so that
// they cannot disagree about what the client sent.
type toolCall struct {
	server *Server
	tool   *tool
	grant  requestGrant

	id            jsontext.Value // of the JSON-RPC message
	modern        bool           // of revision 2026-07-28
	arguments     jsontext.Value // an object
	progressToken jsontext.Value // nil if the client did not ask for progress notifications
	traceparent   string         // the caller's span, if _meta names one
	canElicit     bool           // the client supports form elicitation
	elicitResult  *elicitResult  // the person's response to a question, nil if there is none
	requestState  string         // identifies the question that elicitResult answers

	account account.Account
	by      data.Caller
	stream  *eventStream

	// Set while the tool runs.
	target        string      // the affected record, for the audit log
	declined      bool        // the person declined and nothing was changed
	inputRequired *callResult // set if the person has to confirm first
}

func (c *toolCall) data() *data.Client { return c.server.o.Data }

// receivingMiddleware wraps every method that the SDK serves.
func (s *Server) receivingMiddleware(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, r sdk.Request) (result sdk.Result, err error) {
		g, ok := grantFromRequest(r)
		defer func() {
			if v := recover(); v != nil {
				s.log.Error("panic while serving a request", zap.String("method", method),
					zap.String("request_id", g.requestID), zap.Any("panic", v), zap.Stack("stack"))
				result, err = nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "internal error"}
				logFault(g.log, errPanic)
			}
		}()
		switch {
		case !ok:
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "internal error"}
		case !s.supportsMethod(method):
			g.log.Fail(codeName(codeMethodNotFound), errUnknownMethod)
			return nil, &jsonrpc.Error{
				Code: jsonrpc.CodeMethodNotFound, Message: "this server does not offer " + method,
			}
		}
		if wait := s.limit(ctx, g); wait > 0 && !strings.HasPrefix(method, "notifications/") {
			g.log.Fail(codeRate, errTooManyCalls)
			return nil, &jsonrpc.Error{Code: codeRateLimited, Message: "too many calls. " + retryIn(wait)}
		}
		if result, err = next(ctx, method, r); err != nil {
			logError(g.log, method, err)
		}
		if listed, ok := result.(*sdk.ListToolsResult); ok && listed != nil {
			listed.Tools = s.filterTools(listed.Tools, g)
		}
		return result, err
	}
}

// codeRateLimited is the JSON-RPC error code for rate limited requests other than tool calls. The specification defines none.
const codeRateLimited = -32050

// filterTools returns the tools that the connection's scopes allow, and all tools of extensions.
func (s *Server) filterTools(tools []*sdk.Tool, g requestGrant) []*sdk.Tool {
	kept := make([]*sdk.Tool, 0, len(tools))
	for _, declared := range tools {
		if t, ok := s.tools[declared.Name]; !ok || g.Scopes.Allows(t.Scope) {
			kept = append(kept, declared)
		}
	}
	return kept
}

// limit counts a request and returns 0 if it is allowed, or else how long to wait. A request whose client has disconnected is
// counted too, because it may still be executed.
func (s *Server) limit(ctx context.Context, g requestGrant) time.Duration {
	start := time.Now()
	wait, err := s.o.Limiter.Allow(detached(ctx), g.ID)
	g.log.Add(func(f *requestlog.Fields) { f.Limit = time.Since(start) })
	if err != nil {
		s.log.Warn("rate limiter failed, allowing the request", zap.String("request_id", g.requestID), zap.String("grant_id", g.ID),
			zap.Error(err))
		return 0
	}
	return wait
}

// refuseScope responds with the scope challenge that lets the client request the missing scope (step-up authorization).
func (s *Server) refuseScope(w http.ResponseWriter, r *http.Request, c *toolCall) {
	ctx := r.Context()
	c.log(&toolError{code: codeScope, cause: errScope}, 0)
	if c.tool.writes() && s.limit(ctx, c.grant) == 0 {
		e := c.auditEntry()
		e.Outcome, e.Detail = audit.OutcomeDenied, strings.TrimSpace(e.Detail+" "+codeScope)
		_ = s.o.Audit.Record(ctx, e) // logs its own failures
	}
	s.o.InsufficientScope(w, c.tool.requiredScopes(c.grant.Grant)...)
}

// execute checks and makes the call and logs its outcome.
func (c *toolCall) execute(ctx context.Context) *callResult {
	began := time.Now()
	c.by = data.Caller{BusinessID: c.grant.BusinessID, AccountID: c.grant.AccountID, RequestID: c.grant.requestID}
	var result *callResult
	content, err := c.run(ctx)
	switch {
	case err != nil:
	case c.inputRequired != nil:
		result = c.inputRequired
	default:
		result, err = c.tool.success(content)
	}
	var p *toolError
	if err != nil {
		p = newToolError(err, c.tool)
		result = p.result(c.grant.requestID)
	}
	c.log(p, time.Since(began))
	return result
}

// run checks whether the call may be made, and makes it.
func (c *toolCall) run(ctx context.Context) (content any, err error) {
	defer c.recoverPanic(&err)
	if wait := c.server.limit(ctx, c.grant); wait > 0 {
		return nil, &toolError{
			code: codeRate, sentence: "This connection makes too many calls.", done: c.tool.notDone(),
			next: retryIn(time.Duration(math.Ceil(wait.Seconds())) * time.Second),
		}
	}
	if p := c.tool.checkArguments(c.arguments); p != nil {
		return nil, p
	}
	if c.arguments, err = c.tool.withDefaults(c.arguments); err != nil {
		return nil, err
	}
	if c.account, err = oauth.AccountFrom(ctx); err != nil {
		return nil, &toolError{
			code: codeUnavailable, sentence: "The accounts service cannot be reached at the moment.",
			done: c.tool.notDone(), next: retrySoon, cause: err,
		}
	}
	if !c.tool.writes() {
		return c.work(ctx)
	}
	change, err := c.server.o.Audit.Begin(detached(ctx), c.auditEntry())
	if err != nil {
		return nil, c.unavailable("The gateway cannot record changes at the moment, and makes no change without a record.", err)
	}
	content, err = c.work(ctx)
	c.resolveAudit(ctx, change, err)
	return content, err
}

// work runs the tool. It recovers panics itself, so that run still resolves the audit entry.
func (c *toolCall) work(ctx context.Context) (content any, err error) {
	defer c.recoverPanic(&err)
	return c.tool.run(ctx, c)
}

// recoverPanic turns a panic into an error.
func (c *toolCall) recoverPanic(err *error) {
	if v := recover(); v != nil {
		c.server.log.Error("panic in a tool", zap.String("tool", c.tool.Name),
			zap.String("request_id", c.grant.requestID), zap.Any("panic", v), zap.Stack("stack"))
		*err = errors.New("panic in a tool")
	}
}

// detached returns ctx without its cancellation: a change that has begun must not be interrupted when the client disconnects.
// The clients of Redis and of the data service set their own timeouts.
func detached(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }

// auditEntry returns the call's entry for the audit log.
func (c *toolCall) auditEntry() audit.Entry {
	return audit.Entry{
		BusinessID: c.grant.BusinessID, AccountID: c.grant.AccountID, AccountName: c.account.DisplayName(), GrantID: c.grant.ID,
		ClientName: c.grant.ClientName, Action: audit.ToolCalled, Target: c.tool.Name, Detail: c.recordName(),
		RequestID: c.grant.requestID,
	}
}

// resolveAudit records how a change ended.
func (c *toolCall) resolveAudit(ctx context.Context, change *audit.Change, err error) {
	if c.target != "" {
		change.Detail = c.target
	}
	if err == nil {
		switch {
		case c.inputRequired != nil: // nothing was changed yet
			change.Drop(ctx)
		case c.declined:
			change.Resolve(ctx, audit.OutcomeDenied)
		default:
			change.Resolve(ctx, audit.OutcomeOK)
		}
		return
	}
	p := newToolError(err, c.tool)
	change.Detail = strings.TrimSpace(change.Detail + " " + p.code)
	f, _ := errors.AsType[*data.Error](p.cause)
	switch {
	case p.code == codeArguments && f == nil, p.code == codeConfirm, p.code == codeStore:
		change.Drop(ctx) // the change was not attempted
	case f != nil && f.Uncertain, p.code == codeInternal:
		change.Resolve(ctx, audit.OutcomeUnknown)
	case p.code == codeForbidden, p.code == codeAccount:
		change.Resolve(ctx, audit.OutcomeDenied)
	default:
		change.Resolve(ctx, audit.OutcomeFailed)
	}
}

// recordName returns the record that the arguments name, for the audit log.
func (c *toolCall) recordName() string {
	var named struct {
		ID         any    `json:"id"`
		Type       string `json:"type"`
		Automation string `json:"automation_id"`
	}
	if json.Unmarshal(c.arguments, &named) != nil {
		return ""
	}
	var parts []string
	for _, s := range []string{named.Type, named.Automation} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	switch id := named.ID.(type) {
	case string:
		parts = append(parts, id)
	case float64:
		parts = append(parts, fmt.Sprintf("%.0f", id))
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.TrimSpace(c.tool.About + " " + strings.Join(parts, " "))
}
