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
	"github.com/maypok86/otter/v2"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"
	"golang.org/x/time/rate"

	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
	"github.com/gatehouse-gateway/gatehouse/internal/redisrate"
	"github.com/gatehouse-gateway/gatehouse/internal/tracing"
	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// Limits.
const (
	MaxBody = 256 << 10 // maximum size of a request body in bytes

	// listTTL and announceTime are for clients that have a list of tools from before an owner changed the connection's scopes. Those
	// of revision 2026-07-28 list again after listTTL. Others get tools/list_changed with tool calls, until announceTime has passed.
	listTTL      = time.Minute
	announceTime = 10 * time.Minute
)

// instructions tell an assistant how to use the tools. {areas} stands for the areas, {connection} for what is only for a connection, and
// {more} for the definition's instructions. Clients may cut what is longer than 2,048 characters. Nothing else names an area or a tool,
// because they may be switched off.
//
//go:embed instructions.txt
var instructions string

func instructionsFor(areas scope.Areas, more string) string {
	var nouns []string
	for _, a := range areas.List() {
		nouns = append(nouns, a.Noun)
	}
	return strings.TrimSpace(strings.NewReplacer("{areas}", strings.Join(nouns, ", "), "{more}", more).Replace(instructions))
}

// restrictions returns what a connection may not do, such as "change contacts; run automations". It is limited to one scope unless of is "".
func (s *Server) restrictions(g oauth.Grant, of string) string {
	words := map[string]string{scope.VerbRead: "see", scope.VerbWrite: "change", scope.VerbRun: "run"}
	var all []string
	for _, verb := range scope.Verbs() {
		var nouns []string
		for _, a := range s.o.Areas.List() {
			if name := a.Scope(verb); name != "" && (of == "" || of == name) && !g.Scopes.Allows(name) {
				nouns = append(nouns, a.Noun)
			}
		}
		if nouns != nil {
			all = append(all, words[verb]+" "+strings.Join(nouns, ", "))
		}
	}
	return strings.Join(all, "; ")
}

// instructionsOf returns the part of the instructions that is only for a connection.
func (s *Server) instructionsOf(ctx context.Context, g oauth.Grant) (own string) {
	if a, err := oauth.AccountFrom(ctx); err == nil && a.TimeZone != "" && a.Location().String() == a.TimeZone {
		own = " The business's time zone is " + a.TimeZone + "."
	}
	if denied := s.restrictions(g, ""); denied != "" {
		own += "\n\nThis connection may not: " + denied + ". " + s.whereAllowed() +
			" It then works at once; if tools for it do not appear, the user has to reconnect."
	}
	return own
}

// whereAllowed tells an assistant who can allow more, and where.
func (s *Server) whereAllowed() string {
	return "An owner of the business can allow it under " + s.o.Origin + "/settings/connected-apps."
}

// Options of a [Server].
type Options struct {
	Origin         string                 // of the endpoint, as in the header Origin, such as "https://api.example.com"; required
	Title, Version string                 // in serverInfo; default: none, "0"
	Definition     *definition.Definition // of the tools; required
	Areas          scope.Areas            // areas of the definition whose tools the server has; required
	Data           *data.Client           // required
	Timeout        time.Duration          // that Data has for one call, to extend the write timeout
	Stopping       <-chan struct{}        // closed when calls that wait for a run should respond; default: never
	Audit          *audit.Log             // required
	Log            *zap.Logger            // required

	// InsufficientScope sets the challenge of a response to a call that needs more scopes: see [oauth.Server]. Required.
	InsufficientScope func(h http.Header, required ...string)

	Redis  redis.UniversalClient // required
	Prefix string                // of the keys in Redis; default: audit.DefaultPrefix
}

// Server is the MCP server. It is safe for concurrent use.
type Server struct {
	o              Options
	tools          map[string]*tool
	store          *store
	limiter        redisrate.Limiter
	rate           redis_rate.Limit                    // of a connection's requests
	local          *otter.Cache[string, *rate.Limiter] // by connection, of requests that Redis does not count
	implementation *sdk.Implementation
	handler        http.Handler // of the SDK
	allMethods     bool         // serve all methods of the SDK, for conformance tests
	acceptsTraces  bool         // use the caller's span in _meta as parent
	lists          *otter.Cache[listKey, []byte]
}

// New returns a server. It does not contact Redis. Its errors are missing options and those of Check.
func New(o Options) (*Server, error) {
	if o.Origin == "" || o.Definition == nil || o.Data == nil || o.Audit == nil || o.InsufficientScope == nil || o.Log == nil || o.Redis == nil {
		return nil, errors.New("MCP server: Origin, Definition, Data, Audit, InsufficientScope, Log and Redis are required")
	}
	o.Prefix, o.Version = cmp.Or(o.Prefix, audit.DefaultPrefix), cmp.Or(o.Version, "0")
	tools, err := newTools(o.Definition, o.Areas)
	if err != nil {
		return nil, err
	}
	s := &Server{
		o: o, tools: tools, store: newStore(o.Redis, o.Prefix), limiter: redisrate.New(o.Redis), rate: redis_rate.PerMinute(requestsPerMinute),
		acceptsTraces: tracing.AcceptsRemote(), lists: otter.Must(&otter.Options[listKey, []byte]{MaximumSize: maxLists}),
		local: otter.Must(&otter.Options[string, *rate.Limiter]{MaximumSize: 10_000}),
	}
	s.implementation = &sdk.Implementation{Name: "gatehouse", Title: o.Title, Version: o.Version}
	options := sdk.ServerOptions{
		Instructions: instructionsFor(o.Areas, o.Definition.Instructions),
		Logger:       sdkLogger(o.Log),
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}},
		SetCacheable: func(_ context.Context, _ sdk.Request, c *sdk.Cacheable) {
			c.TTLMs, c.CacheScope = int(listTTL.Milliseconds()), "private" // it depends on the connection's scopes
		},
	}
	server := s.newSDKServer(options)
	// It is stateless, because the gateways of a fleet share no sessions.
	s.handler = sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{
		Stateless:                    true,
		JSONResponse:                 true,
		PropagateRequestCancellation: true,
		DisableLocalhostProtection:   true, // the caller checks the Host header
		MaxRequestBodyBytes:          MaxBody,
	})
	s.addFixtures(options)
	return s, nil
}

// newSDKServer returns the SDK's server, which serves everything except tool calls and the content of the list of tools.
func (s *Server) newSDKServer(o sdk.ServerOptions) *sdk.Server {
	server := sdk.NewServer(s.implementation, &o)
	server.AddReceivingMiddleware(s.receivingMiddleware)
	return server
}

// receivingMiddleware wraps every method that the SDK serves.
func (s *Server) receivingMiddleware(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, r sdk.Request) (result sdk.Result, err error) {
		g, _ := oauth.GrantFrom(ctx)
		entry := requestlog.From(ctx)
		defer func() { // the SDK calls this in a goroutine of its own
			if v := recover(); v != nil {
				s.o.Log.Error("panic while serving a request", zap.String("method", method),
					zap.String("request_id", requestlog.ID(ctx)), zap.Any("panic", v), zap.Stack("stack"))
				result, err = nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "internal error"}
				logFault(entry, errPanic)
			}
		}()
		if result, err = next(ctx, method, r); err != nil {
			logError(entry, method, err)
			return result, err
		}
		switch result := result.(type) {
		case *sdk.InitializeResult:
			result.Instructions = strings.Replace(result.Instructions, "{connection}", s.instructionsOf(ctx, g), 1)
			result.Capabilities.Tools = &sdk.ToolCapabilities{ListChanged: true}
		case *sdk.DiscoverResult: // without listChanged: the revision announces changes in streams, which this server does not have
			result.Instructions = strings.Replace(result.Instructions, "{connection}", s.instructionsOf(ctx, g), 1)
		}
		return result, nil
	}
}

// sdkLogger returns the SDK's logger. It drops levels below warn, because at info the SDK logs each request, as the gateway does.
func sdkLogger(log *zap.Logger) *slog.Logger {
	if log.Core().Enabled(zap.InfoLevel) { // zap reports an error if the level would decrease
		log = log.WithOptions(zap.IncreaseLevel(zap.WarnLevel))
	}
	return slog.New(zapslog.NewHandler(log.Core(), zapslog.WithName("mcp.sdk"), zapslog.AddStacktraceAt(slog.LevelError+1)))
}

// Reads returns the GET operations that the tools call and that need no parameters, in the order of the definition.
func (s *Server) Reads() (all []*upstream.Operation) {
	for _, op := range s.o.Definition.API.Operations() {
		if op.NeedsNoParams() && slices.ContainsFunc(slices.Collect(maps.Values(s.tools)), func(t *tool) bool {
			return t.Operation == op || slices.Contains(t.With, op)
		}) {
			all = append(all, op)
		}
	}
	return all
}

// ToolNames returns the names of the tools.
func (s *Server) ToolNames() []string { return slices.Sorted(maps.Keys(s.tools)) }

// Handler returns the endpoint's handler. It must be wrapped in oauth.Server.Protect, which puts the grant into the request's context,
// and that in [Server.Guard]. The context must also have the request's ID and log entry: see package requestlog.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }
