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
)

// toolCall is one call of a tool, as its message was read. What is validated, done, recorded and sent upstream comes from these
// values.
type toolCall struct {
	server *Server
	tool   *tool
	grant  grantOf

	id            jsontext.Value // of the JSON-RPC message
	modern        bool           // of a revision without initialization
	arguments     jsontext.Value // an object
	progressToken jsontext.Value // nil: the client wants no progress notifications
	asks          bool           // the client can put questions to the person
	response      *elicited      // the person's, nil if there is none
	state         string         // which question it answers

	account account.Account
	by      data.Caller
	stream  *eventStream

	// What came of it, beside a result or an error.
	target  string       // what it was done to, for the audit log
	refused bool         // the person said no: nothing was done
	input   *inputNeeded // the person has to be asked first: there is no result
}

func (c *toolCall) data() *data.Client { return c.server.o.Data }

// receive stands in front of all of the SDK's methods.
func (s *Server) receive(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, r sdk.Request) (result sdk.Result, err error) {
		g, ok := callerOf(r)
		defer func() {
			if v := recover(); v != nil {
				s.log.Error("panic while serving a request", zap.String("method", method),
					zap.String("request_id", g.requestID), zap.Any("panic", v), zap.Stack("stack"))
				result, err = nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "internal error"}
			}
		}()
		switch {
		case !ok:
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "internal error"}
		case !s.offers(method):
			return nil, &jsonrpc.Error{
				Code: jsonrpc.CodeMethodNotFound, Message: "this server does not offer " + method,
			}
		}
		if wait := s.limit(ctx, g); wait > 0 && !strings.HasPrefix(method, "notifications/") {
			return nil, &jsonrpc.Error{Code: codeTooMany, Message: "too many calls; " + retryIn(wait)}
		}
		result, err = next(ctx, method, r)
		if listed, ok := result.(*sdk.ListToolsResult); ok && listed != nil {
			listed.Tools = s.allowed(listed.Tools, g)
		}
		return result, err
	}
}

// codeTooMany is the JSON-RPC error of what is not a tool's call and comes too often. It is the server's own.
const codeTooMany = -32050

// allowed leaves the tools that the connection's scopes allow, and those that are not the product's.
func (s *Server) allowed(tools []*sdk.Tool, g grantOf) []*sdk.Tool {
	kept := make([]*sdk.Tool, 0, len(tools))
	for _, declared := range tools {
		if t, ok := s.tools[declared.Name]; !ok || g.Scopes.Allows(t.scope) {
			kept = append(kept, declared)
		}
	}
	return kept
}

// limit counts a call; it returns how long to wait if it is one too many.
func (s *Server) limit(ctx context.Context, g grantOf) time.Duration {
	wait, err := s.o.Limiter.Allow(write(ctx), g.ID) // of a client that has gone away, too: it may have its call made still
	if err != nil {
		s.log.Warn("a connection's calls cannot be counted", zap.String("grant_id", g.ID), zap.Error(err))
		return 0
	}
	return wait
}

// refuseScope refuses a call of a tool that the connection has no scope for, so that the client can ask the person for it.
func (s *Server) refuseScope(ctx context.Context, w http.ResponseWriter, c *toolCall) {
	if c.tool.writes() && s.limit(ctx, c.grant) == 0 {
		e := c.entry()
		e.Outcome, e.Detail = audit.OutcomeRefused, strings.TrimSpace(e.Detail+" "+codeScope)
		_ = s.o.Audit.Record(ctx, e) // has logged why
	}
	s.o.Challenge.InsufficientScope(w, c.tool.needs(c.grant.Grant)...)
}

// do takes a call through everything that it has to pass.
func (c *toolCall) do(ctx context.Context) *callResult {
	began := time.Now()
	c.by = data.Caller{BusinessID: c.grant.BusinessID, AccountID: c.grant.AccountID, RequestID: c.grant.requestID}
	var result *callResult
	content, err := c.run(ctx)
	switch {
	case err != nil:
	case c.input != nil:
		return c.input.result()
	default:
		result, err = c.tool.success(content)
	}
	var p *toolError
	if err != nil {
		p = toolErrorOf(err, c.tool, c.tool.about)
		result = p.result(c.grant.requestID)
	}
	c.log(p, time.Since(began))
	return result
}

// run checks whether the call may be made, and makes it.
func (c *toolCall) run(ctx context.Context) (content any, err error) {
	defer c.recovered(&err)
	if wait := c.server.limit(ctx, c.grant); wait > 0 {
		return nil, &toolError{
			code: codeRate, sentence: "This connection makes too many calls.", done: c.tool.untouched(),
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
			code: codeUnavailable, sentence: "The service that knows the business's accounts cannot be reached at the moment.",
			done: c.tool.untouched(), next: retrySoon, cause: err,
		}
	}
	if !c.tool.writes() {
		return c.work(ctx)
	}
	change, err := c.server.o.Audit.Begin(write(ctx), c.entry())
	if err != nil {
		return nil, c.unavailable("The gateway cannot record changes at the moment, and makes none without a record.", err)
	}
	content, err = c.work(ctx)
	c.resolve(ctx, change, err)
	return content, err
}

// work has the tool do its work.
func (c *toolCall) work(ctx context.Context) (content any, err error) {
	defer c.recovered(&err)
	return c.tool.run(ctx, c)
}

// recovered makes an error of a panic.
func (c *toolCall) recovered(err *error) {
	if v := recover(); v != nil {
		c.server.log.Error("panic in a tool", zap.String("tool", c.tool.name),
			zap.String("request_id", c.grant.requestID), zap.Any("panic", v), zap.Stack("stack"))
		*err = errors.New("panic in a tool")
	}
}

// write is the context of a call that changes something: once it is on its way it does not end because nobody waits for
// the answer any more. The data service's client bounds it.
func write(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }

func (c *toolCall) log(p *toolError, took time.Duration) {
	fields := []zap.Field{
		zap.String("tool", c.tool.name), zap.String("grant_id", c.grant.ID), zap.String("business_id", c.grant.BusinessID),
		zap.String("request_id", c.grant.requestID), zap.Duration("took", took),
	}
	if p == nil {
		if e := c.server.log.Check(zap.DebugLevel, "tool called"); e != nil {
			e.Write(fields...)
		}
		return
	}
	fields = append(fields, zap.String("code", p.code), zap.Error(p.cause))
	switch {
	case p.code == codeInternal, p.code == codeUnusable:
		c.server.log.Error("tool failed", fields...)
	case (p.code == codeUnavailable || p.code == codeTimeout) && !errors.Is(p.cause, context.Canceled):
		c.server.log.Warn("tool failed", fields...)
	default: // cancelled: the client has gone away
		if e := c.server.log.Check(zap.DebugLevel, "tool refused"); e != nil {
			e.Write(fields...)
		}
	}
}

// entry is the call in the audit log.
func (c *toolCall) entry() audit.Entry {
	return audit.Entry{
		BusinessID: c.grant.BusinessID, AccountID: c.grant.AccountID, AccountName: c.account.DisplayName(), GrantID: c.grant.ID,
		ClientName: c.grant.ClientName, Action: audit.ToolCalled, Target: c.tool.name, Detail: c.named(),
		RequestID: c.grant.requestID,
	}
}

// resolve says in the audit log how a call ended that changes something.
func (c *toolCall) resolve(ctx context.Context, change *audit.Change, err error) {
	if c.target != "" {
		change.Detail = c.target
	}
	if err == nil {
		switch {
		case c.input != nil: // the person is asked first
			change.Drop(ctx)
		case c.refused:
			change.Resolve(ctx, audit.OutcomeRefused)
		default:
			change.Resolve(ctx, audit.OutcomeOK)
		}
		return
	}
	p := toolErrorOf(err, c.tool, c.tool.about)
	change.Detail = strings.TrimSpace(change.Detail + " " + p.code)
	f, _ := errors.AsType[*data.Error](p.cause)
	switch {
	case p.code == codeArguments && f == nil, p.code == codeConfirm, p.code == codeStore:
		change.Drop(ctx) // nothing was tried
	case f != nil && f.Uncertain, p.code == codeInternal:
		change.Resolve(ctx, audit.OutcomeUnknown)
	case p.code == codeForbidden, p.code == codeAccount:
		change.Resolve(ctx, audit.OutcomeRefused)
	default:
		change.Resolve(ctx, audit.OutcomeFailed)
	}
}

// named is the record that the arguments name, for the audit log.
func (c *toolCall) named() string {
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
	return strings.TrimSpace(c.tool.about + " " + strings.Join(parts, " "))
}
