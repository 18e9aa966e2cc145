package mcp

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"

	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
	"github.com/gatehouse-gateway/gatehouse/internal/tracing"
)

// Limits.
const (
	MaxBody = 256 << 10 // maximum size of a request body in bytes

	toolListTTL = 5 * time.Minute
)

// instructions tell an assistant how to work with the tools as a whole. {areas} stands for the areas; nothing else names an area or
// a tool, which may be switched off.
//
//go:embed instructions.txt
var instructions string

func instructionsFor(areas scope.Areas) string {
	var nouns []string
	for _, a := range areas.List() {
		nouns = append(nouns, a.Noun)
	}
	return strings.TrimSpace(strings.Replace(instructions, "{areas}", strings.Join(nouns, ", "), 1))
}

// Options of a [Server].
type Options struct {
	// Origin is the origin of the endpoint as browsers send it, such as "https://api.example.com". Required.
	Origin string

	// Title and Version are in the serverInfo. Default: "Gatehouse", "0".
	Title, Version string

	// Areas are the areas whose tools the server has. Default: all.
	Areas scope.Areas

	Data  *data.Client // required
	Audit *audit.Log   // required
	Log   *zap.Logger  // required

	// InsufficientScope responds to a call that needs more scopes; [oauth.Server] has it. Required.
	InsufficientScope func(w http.ResponseWriter, required ...string)

	Redis  redis.UniversalClient // required
	Prefix string                // of the keys in Redis; default: oauth.DefaultPrefix
}

// Server is the MCP server. It is safe for concurrent use.
type Server struct {
	o              Options
	log            *zap.Logger
	tools          map[string]*tool
	store          *store
	limiter        *redis_rate.Limiter
	rate           redis_rate.Limit // of a connection's requests
	implementation *sdk.Implementation
	handler        http.Handler // the SDK's
	unsupported    []string     // first parts of the names of methods
	acceptsTraces  bool         // _meta may name the caller's span
}

// New returns a server.
func New(o Options) (*Server, error) {
	err := o.complete()
	if err != nil {
		return nil, err
	}
	s := &Server{
		o: o, log: o.Log, store: newStore(o.Redis, o.Prefix), limiter: redis_rate.NewLimiter(o.Redis), rate: redis_rate.PerMinute(requestsPerMinute),
		acceptsTraces: tracing.AcceptsRemote(),
	}
	s.implementation = &sdk.Implementation{Name: "gatehouse", Title: o.Title, Version: o.Version}
	if s.tools, err = newTools(o.Areas); err != nil {
		return nil, err
	}
	s.unsupported = []string{"prompts", "resources", "completion", "logging", "subscriptions"}
	options := sdk.ServerOptions{
		Instructions: instructionsFor(o.Areas),
		Logger:       sdkLogger(o.Log),
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}},
		SetCacheable: setCacheable,
	}
	server := s.newSDKServer(options)
	// It is stateless, because the gateways of a fleet share nothing but Redis.
	s.handler = sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{
		Stateless:                    true,
		PropagateRequestCancellation: true,
		DisableLocalhostProtection:   true, // the caller checks the Host header
		MaxRequestBodyBytes:          MaxBody,
	})
	s.addFixtures(options)
	return s, nil
}

// newSDKServer returns the SDK's server, which serves everything but calls of tools.
func (s *Server) newSDKServer(o sdk.ServerOptions) *sdk.Server {
	server := sdk.NewServer(s.implementation, &o)
	for _, t := range s.tools {
		server.AddTool(t.declaration(), func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "the call cannot be read"} // serveCall serves all valid calls
		})
	}
	server.AddReceivingMiddleware(s.receivingMiddleware)
	return server
}

// sdkLogger returns the SDK's logger. It drops level info, at which the SDK logs each request: the gateway does that already.
func sdkLogger(log *zap.Logger) *slog.Logger {
	if log.Core().Enabled(zap.InfoLevel) { // zap reports an error if the level would decrease
		log = log.WithOptions(zap.IncreaseLevel(zap.WarnLevel))
	}
	return slog.New(zapslog.NewHandler(log.Core(), zapslog.WithName("mcp.sdk"), zapslog.AddStacktraceAt(slog.LevelError+1)))
}

func (o *Options) complete() error {
	if o.Origin == "" || o.Data == nil || o.Audit == nil || o.InsufficientScope == nil || o.Log == nil || o.Redis == nil {
		return errors.New("MCP server: Origin, Data, Audit, InsufficientScope, Log and Redis are required")
	}
	o.Prefix = cmp.Or(o.Prefix, oauth.DefaultPrefix)
	o.Title, o.Version = cmp.Or(o.Title, "Gatehouse"), cmp.Or(o.Version, "0")
	return nil
}

// ToolNames returns the names of the tools.
func (s *Server) ToolNames() []string { return slices.Sorted(maps.Keys(s.tools)) }

// Handler returns the endpoint's handler. It must be wrapped by oauth.Server.Protect, which puts the grant into the
// request's context, and that by [Server.Guard]. It takes the request's ID and log entry from the context too (package
// requestlog).
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// setCacheable sets how long clients may cache a list. It is private, because it depends on the connection's scopes.
func setCacheable(_ context.Context, _ sdk.Request, c *sdk.Cacheable) {
	c.TTLMs = int(toolListTTL.Milliseconds())
	c.CacheScope = "private"
}

// requiredScopes returns the tool's scope and those that the connection has: a client that requests them must not lose any.
func (t *tool) requiredScopes(g oauth.Grant) []string {
	names := slices.Clone(g.Scopes.Names())
	if !slices.Contains(names, t.Scope) {
		names = append(names, t.Scope)
	}
	return names
}
