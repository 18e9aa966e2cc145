package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/data"
)

// call is one call of a tool, on its way.
type call struct {
	server  *Server
	tool    *tool
	grant   grantOf
	account account.Account
	request *sdk.CallToolRequest
	by      data.Caller
}

func (c *call) data() *data.Client { return c.server.o.Data }

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
		if method == methodCall {
			return next(ctx, method, r) // counted in callTool, where the answer is one that an assistant reads
		}
		if wait := s.limit(ctx, g); wait > 0 && !strings.HasPrefix(method, "notifications/") {
			return nil, &jsonrpc.Error{Code: codeTooMany, Message: "too many calls; " + retryIn(wait)}
		}
		result, err = next(ctx, method, r)
		switch result := result.(type) {
		case *sdk.InitializeResult:
			if session, ok := r.GetSession().(*sdk.ServerSession); ok && session.ID() != "" && err == nil &&
				!s.sessions.add(g.ID, session) {
				go func() { _ = session.Close() }() // which waits for this very request to end
				return nil, &jsonrpc.Error{Code: codeTooMany, Message: "too many sessions; " + retrySoon}
			}
		case *sdk.ListToolsResult:
			if result != nil {
				result.Tools = s.allowed(result.Tools, g)
			}
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

// callTool takes a call through everything that it has to pass.
func (s *Server) callTool(ctx context.Context, t *tool, g grantOf, r *sdk.CallToolRequest) *sdk.CallToolResult {
	began := s.now()
	c := &call{
		server: s, tool: t, grant: g, request: r,
		by: data.Caller{BusinessID: g.BusinessID, AccountID: g.AccountID, RequestID: g.requestID},
	}
	o, err := c.admitted(ctx)
	var result *sdk.CallToolResult
	if err == nil {
		if o.input != nil {
			return o.input.result()
		}
		result, err = t.success(o)
	}
	var p *toolError
	if err != nil {
		p = toolErrorOf(err, t, t.about)
		result = p.result(g.requestID)
	}
	c.log(p, s.now().Sub(began))
	c.record(ctx, o, p)
	return result
}

// admitted checks whether the call may be made, and makes it.
func (c *call) admitted(ctx context.Context) (o *outcome, err error) {
	defer func() {
		if v := recover(); v != nil {
			c.server.log.Error("panic in a tool", zap.String("tool", c.tool.name),
				zap.String("request_id", c.grant.requestID), zap.Any("panic", v), zap.Stack("stack"))
			o, err = nil, errors.New("panic in a tool")
		}
	}()
	if !c.grant.Scopes.Allows(c.tool.scope) {
		return nil, &toolError{
			code:     codeScope,
			sentence: fmt.Sprintf("This connection does not include %s.", c.tool.scope),
			done:     c.tool.untouched(),
			next:     "The person can allow it by connecting again, under Settings, Connected apps.",
		}
	}
	if wait := c.server.limit(ctx, c.grant); wait > 0 {
		return nil, &toolError{
			code: codeRate, sentence: "This connection makes too many calls.", done: c.tool.untouched(),
			next: retryIn(time.Duration(math.Ceil(wait.Seconds())) * time.Second),
		}
	}
	if p := c.tool.checkArguments(c.request.Params.Arguments); p != nil {
		return nil, p
	}
	var p *toolError
	if c.account, p = c.server.accounts.check(ctx, c.grant); p != nil {
		p.done = c.tool.untouched()
		return nil, p
	}
	return c.tool.run(ctx, c, c.request.Params.Arguments)
}

// write is the context of a call that changes something: once it is on its way it does not end because nobody waits for
// the answer any more. The data service's client bounds it.
func write(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }

func (c *call) log(p *toolError, took time.Duration) {
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

// record leaves an entry in the audit trail for a tool that changes something, unless nothing was tried.
func (c *call) record(ctx context.Context, o *outcome, p *toolError) {
	if !c.tool.writes() {
		return
	}
	e := audit.Entry{
		BusinessID: c.grant.BusinessID, AccountID: c.grant.AccountID,
		AccountName: c.account.DisplayName(), GrantID: c.grant.ID, ClientName: c.grant.ClientName,
		Action: audit.ToolCalled, Target: c.tool.name, Outcome: audit.OutcomeOK, RequestID: c.grant.requestID,
	}
	if o != nil && o.refused {
		e.Outcome = audit.OutcomeRefused
	}
	if o != nil && o.target != "" {
		e.Detail = o.target
	} else {
		e.Detail = c.target()
	}
	if p != nil {
		e.Outcome = audit.OutcomeFailed
		e.Detail = strings.TrimSpace(e.Detail + " " + p.code)
		switch p.code {
		case codeArguments, codeRate, codeConfirm:
			return
		case codeScope, codeForbidden, codeAccount:
			e.Outcome = audit.OutcomeRefused
		}
		if f, ok := errors.AsType[*data.Error](p.cause); ok && f.Uncertain {
			e.Detail += " (it is not known whether it was done)"
		}
	}
	if err := c.server.o.Audit.Record(ctx, e); err != nil {
		c.server.log.Error("audit entry not kept", zap.String("tool", c.tool.name),
			zap.String("request_id", c.grant.requestID), zap.Error(err))
	}
}

// target is the record that the arguments name, for the audit trail.
func (c *call) target() string {
	var named struct {
		ID         any    `json:"id"`
		Type       string `json:"type"`
		Automation string `json:"automation_id"`
	}
	if json.Unmarshal(c.request.Params.Arguments, &named) != nil {
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
