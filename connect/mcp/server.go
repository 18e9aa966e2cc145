package mcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"

	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
)

// Defaults and bounds.
const (
	DefaultMaxBody        = 256 << 10 // bytes
	DefaultConfirmTimeout = 5 * time.Minute

	toolListTTL = 5 * time.Minute
)

// Challenger refuses a call whose connection has too few scopes. *oauth.Server is one.
type Challenger interface {
	InsufficientScope(w http.ResponseWriter, required ...string)
}

var _ Challenger = (*oauth.Server)(nil)

// Options of a [Server].
type Options struct {
	// Resource is the URL of the endpoint, "https://api.example.com/mcp". Required.
	Resource string

	// Origins are web origins whose pages may call, beside the resource's own. Default: none.
	Origins []string

	// Name, Title and Version are what the server calls itself. Default: "gatehouse", "Gatehouse", "0".
	Name, Title, Version string

	Data      *data.Client // required
	Audit     *audit.Log   // required
	Challenge Challenger   // required
	Log       *zap.Logger  // required

	Redis  redis.UniversalClient // holds idempotency keys and questions; see [Store]. Required
	Prefix string                // of the keys in Redis; default: oauth.DefaultPrefix

	// Limiter bounds the calls of a connection. Default: NewLimiter(Redis, Prefix, DefaultRate).
	Limiter Limiter

	// RequestID gives an HTTP request's id, for logs, the audit log and the data service. Default: a random one.
	RequestID func(*http.Request) string

	// MaxBody bounds a request's body. Default: DefaultMaxBody.
	MaxBody int64

	// ConfirmTimeout is how long a person may think about a question. Default: DefaultConfirmTimeout.
	ConfirmTimeout time.Duration
}

// Extension adds to a server what is not the product's: the fixtures that conformance tests call. Nothing but a test build
// makes one.
type Extension struct {
	Options  func(*sdk.ServerOptions) // changes the SDK's options before the server is made
	Register func(*sdk.Server)        // adds tools, prompts and resources
	Sessions bool                     // serve older revisions with the SDK's sessions
}

// Server is the MCP server. It is safe for concurrent use.
type Server struct {
	o         Options
	log       *zap.Logger
	tools     map[string]*tool
	store     *Store
	about     *sdk.Implementation
	sdk       *sdk.Server
	handler   http.Handler // the SDK's
	origins   []string
	extension *Extension
}

// New makes a server.
func New(o Options, extensions ...Extension) (*Server, error) {
	u, err := url.Parse(o.Resource)
	if err != nil {
		return nil, fmt.Errorf("reading the resource's URL: %w", err)
	}
	if u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, fmt.Errorf("the resource %q is not an absolute http or https URL", o.Resource)
	}
	if err := o.complete(); err != nil {
		return nil, err
	}
	if len(extensions) > 1 {
		return nil, errors.New("a server takes one extension")
	}
	s := &Server{o: o, log: o.Log, tools: map[string]*tool{}, store: NewStore(o.Redis, o.Prefix)}
	origin := u.Scheme + "://" + canonicalHost(u.Scheme, u.Host)
	s.origins = append([]string{origin}, o.Origins...)
	options := &sdk.ServerOptions{
		Instructions: instructions,
		Logger:       logOfSDK(o.Log),
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}},
		GetSessionID: rand.Text,
		SetCacheable: setCacheable,
	}
	if len(extensions) == 1 {
		s.extension = &extensions[0]
		if s.extension.Options != nil {
			s.extension.Options(options)
		}
	}
	s.about = &sdk.Implementation{Name: o.Name, Title: o.Title, Version: o.Version}
	s.sdk = sdk.NewServer(s.about, options)
	for _, t := range allTools() {
		if err := t.prepare(); err != nil {
			return nil, fmt.Errorf("preparing the tool %s: %w", t.name, err)
		}
		s.tools[t.name] = t
		s.sdk.AddTool(t.declaration(), func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "the call cannot be read"} // see message.go
		})
	}
	if s.extension != nil && s.extension.Register != nil {
		s.extension.Register(s.sdk)
	}
	s.sdk.AddReceivingMiddleware(s.receive)
	s.handler = s.transport()
	return s, nil
}

// logOfSDK is the SDK's log. It tells of each request at level info, which is the gateway's own line's to do.
func logOfSDK(log *zap.Logger) *slog.Logger {
	if log.Core().Enabled(zap.InfoLevel) { // of a log of less, zap would complain
		log = log.WithOptions(zap.IncreaseLevel(zap.WarnLevel))
	}
	return slog.New(zapslog.NewHandler(log.Core(), zapslog.WithName("mcp.sdk"), zapslog.AddStacktraceAt(slog.LevelError+1)))
}

func (o *Options) complete() error {
	switch {
	case o.Data == nil, o.Audit == nil, o.Challenge == nil, o.Log == nil:
		return errors.New("the MCP server needs Data, Audit, Challenge and Log")
	case o.Redis == nil:
		return errors.New("the MCP server needs Redis")
	}
	o.Prefix = orElse(o.Prefix, oauth.DefaultPrefix)
	if o.Limiter == nil {
		o.Limiter = NewLimiter(o.Redis, o.Prefix, DefaultRate)
	}
	if o.RequestID == nil {
		o.RequestID = func(*http.Request) string { return rand.Text() }
	}
	o.Name, o.Title, o.Version = orElse(o.Name, "gatehouse"), orElse(o.Title, "Gatehouse"), orElse(o.Version, "0")
	if o.ConfirmTimeout == 0 {
		o.ConfirmTimeout = DefaultConfirmTimeout
	}
	if o.MaxBody <= 0 {
		o.MaxBody = DefaultMaxBody
	}
	return nil
}

// Handler serves the endpoint, whatever its path. In front of it stands oauth.Server.Protect, which puts the connection
// into the request's context; and in front of that [Server.Guard], if pages of other origins may call.
func (s *Server) Handler() http.Handler { return s.Guard(http.HandlerFunc(s.serve)) }

// Close ends what the server keeps in memory.
func (s *Server) Close() error {
	var errs []error
	for session := range s.sdk.Sessions() {
		errs = append(errs, session.Close())
	}
	return errors.Join(errs...)
}

// setCacheable says for how long clients may keep a list: what is in it depends on the connection.
func setCacheable(_ context.Context, _ sdk.Request, c *sdk.Cacheable) {
	c.TTLMs = int(toolListTTL.Milliseconds())
	c.CacheScope = "private"
}

// grantOf is what a request knows about its connection; it travels in the token's info, which is each request's own,
// while a context of the SDK may be that of the request that began the session.
type grantOf struct {
	oauth.Grant

	requestID string
}

const extraGrant = "gatehouse/grant"

func callerOf(r sdk.Request) (grantOf, bool) {
	extra := r.GetExtra()
	if extra == nil || extra.TokenInfo == nil {
		return grantOf{}, false
	}
	g, ok := extra.TokenInfo.Extra[extraGrant].(grantOf)
	return g, ok
}

// needs returns all the scopes that a call of the tool needs to be granted, beside those that the connection has: a
// client that asks for them anew must not lose the others.
func (t *tool) needs(g oauth.Grant) []string {
	names := slices.Clone(g.Scopes.Names())
	if !slices.Contains(names, t.scope) {
		names = append(names, t.scope)
	}
	return names
}

func canonicalHost(scheme, host string) string {
	host = strings.ToLower(host)
	switch scheme {
	case "https":
		return strings.TrimSuffix(host, ":443")
	case "http":
		return strings.TrimSuffix(host, ":80")
	}
	return host
}
