// Package connect assembles the connection server from the authorization server (package oauth), the MCP server (mcp) and the web
// pages (pages), which share one Redis and one data service. Each [Operation] is an [http.Handler].
package connect

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/connect/mcp"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/pages"
	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

//go:embed definition.yaml
var definitionText []byte

// Definition returns the embedded definition of the data service's calls and the MCP tools.
//
//nolint:gochecknoglobals // compiled once
var Definition = sync.OnceValue(func() *definition.Definition {
	d, err := definition.Load(definition.File{Name: "connect/definition.yaml", Text: definitionText}, definition.Options{Tools: true})
	if err != nil {
		panic(err) // the document is part of the program
	}
	return d
})

// Options configure a [Server].
type Options struct {
	// Issuer is the public origin, byte for byte as clients see it, such as "https://api.example.com". http is allowed for
	// loopback names and addresses only. Required.
	Issuer string

	Redis redis.UniversalClient // holds grants, sessions and the audit log. Must be durable; see package oauth. Required

	// Do makes a call to the data service, of which it knows the address, and adds the hop assertion. Its errors must be safe
	// to log. Required.
	Do       func(context.Context, upstream.Call) (*upstream.Response, error)
	Timeout  time.Duration   // of one call to the data or accounts service. Default: data.DefaultTimeout
	Stopping <-chan struct{} // closed when the server stops; tool calls that wait for the end of a run then respond. Default: never

	// OnResponse is called with the result of checking each response of the data service to a tool call (see data.Options), and each
	// of the accounts service: account.ErrWrongAccount if it is about an account other than the requested one. Default: none.
	OnResponse func(error)

	// Pages are the options of the web pages; New sets OAuth, Accounts, Audit, Redis and Log. Name is also in the metadata of MCP
	// and OAuth; its default is the issuer's host, without the port. OAuth uses ClientAddr too.
	Pages pages.Options

	Version     string                 // of the server, in MCP's serverInfo. Default: "0"
	Definition  *definition.Definition // of the calls to the data service and the tools. Default: Definition()
	ExceptAreas []string               // names of areas of the definition to switch off. Default: none

	// ClientSchemes are the private-use URI schemes allowed in redirect URIs, in addition to reverse domain names. Default:
	// oauth.DefaultClientSchemes.
	ClientSchemes []string

	Log *zap.Logger // gets the audit log too; required
}

// Server is the connection server.
type Server struct {
	hosts      []string
	operations map[string]*Operation // by path, or by path prefix, which ends with a slash
	tools      *mcp.Server
	accounts   *account.Cache
}

// Operation serves one path, or all paths with a prefix. The caller must check Host (see [Server.Hosts]), limit the request body to
// MaxBody and put a [requestlog.Entry] into the request's context, which the handler completes. It rejects requests with Fail.
type Operation struct {
	http.Handler

	Name    string // for logs and metrics: mcp, metadata, authorize, token, revoke, register, pages or assets
	MaxBody int64  // maximum size of a request body in bytes. Zero: no body is read

	// Fail responds with an error in the operation's format: JSON-RPC, the JSON of RFC 6749, or a page. detail is a sentence
	// for the user. Headers that are already set are kept.
	Fail func(w http.ResponseWriter, r *http.Request, status int, detail string)
}

// New returns a server, which the caller must close. It contacts neither Redis nor the data service.
func New(o Options) (_ *Server, err error) {
	if o.Log == nil || o.Redis == nil || o.Do == nil {
		return nil, errors.New("connection server: Redis, Do and Log are required")
	}
	issuer, err := url.Parse(o.Issuer)
	if err != nil || issuer.Host == "" {
		return nil, fmt.Errorf("invalid issuer %q: must be an origin, such as https://api.example.com", o.Issuer)
	}
	if o.Definition == nil {
		o.Definition = Definition()
	}
	areas, err := scope.New(o.Definition.Areas).Without(o.ExceptAreas...)
	if err != nil {
		return nil, fmt.Errorf("except_areas: %w", err)
	}
	o.Pages.Name = cmp.Or(o.Pages.Name, issuer.Hostname())
	o.Timeout = cmp.Or(o.Timeout, data.DefaultTimeout)
	auditLog, err := audit.New(audit.Options{Redis: o.Redis, Log: o.Log.Named("audit")})
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	do := func(ctx context.Context, call upstream.Call) (*upstream.Response, error) {
		start := time.Now()
		res, err := o.Do(ctx, call)
		logCall(ctx, time.Since(start), res, err)
		return res, err
	}
	service := data.Options{Host: issuer.Host, Do: do, API: o.Definition.API, Timeout: o.Timeout, OnResponse: o.OnResponse, Log: o.Log.Named("data")}
	calls, err := data.New(service)
	if err != nil {
		return nil, err
	}
	service.Log = o.Log.Named("accounts")
	accounts, err := account.NewClient(service)
	if err != nil {
		return nil, err
	}
	cached := account.NewCache(accounts.Account)
	defer func() {
		if err != nil {
			cached.Close()
		}
	}()
	auth, err := oauth.New(oauth.Options{
		Issuer: o.Issuer, Redis: o.Redis, ResourceName: o.Pages.Name, ClientAddr: o.Pages.ClientAddr,
		ClientSchemes: o.ClientSchemes, Areas: areas, Accounts: cached, Audit: auditLog,
	})
	if err != nil {
		return nil, err
	}
	o.Pages.OAuth, o.Pages.Accounts, o.Pages.Audit, o.Pages.Redis, o.Pages.Log = auth, accounts, auditLog, o.Redis, o.Log.Named("pages")
	web, err := pages.New(o.Pages)
	if err != nil {
		return nil, err
	}
	auth.SetErrorPage(web.Error)
	tools, err := mcp.New(mcp.Options{
		Origin: o.Issuer, Title: o.Pages.Name, Version: o.Version, Definition: o.Definition, Areas: areas,
		Data: calls, Timeout: o.Timeout, Stopping: o.Stopping, Audit: auditLog, InsufficientScope: auth.InsufficientScope, Redis: o.Redis,
		Log: o.Log.Named("mcp"),
	})
	if err != nil {
		return nil, err
	}
	return &Server{hosts: hosts(issuer), operations: operations(auth, web, tools), tools: tools, accounts: cached}, nil
}

// logCall adds the duration and the address of a call to the data service to the request's log entry.
func logCall(ctx context.Context, took time.Duration, res *upstream.Response, err error) {
	requestlog.From(ctx).Add(func(f *requestlog.Fields) {
		f.Upstream += took
		if failed, ok := errors.AsType[*upstream.CallError](err); ok {
			f.UpstreamAddress = failed.Address
		} else if err == nil {
			f.UpstreamAddress = res.Address
		}
	})
}

// operations returns the operations by path.
func operations(auth *oauth.Server, web *pages.Pages, tools *mcp.Server) map[string]*Operation {
	all := map[string]*Operation{
		pages.AssetsPrefix:       {Handler: web.Handler(), Name: "assets", Fail: web.Fail},
		pages.SettingsPath + "/": {Handler: web.Handler(), Name: "pages", Fail: web.Fail}, // only the 404 page
		// Guard comes first, so that requests from other origins get no token challenge.
		oauth.ResourcePath: {Handler: tools.Guard(web.Explain(auth.Protect(tools.Handler()))), Name: "mcp", MaxBody: mcp.MaxBody, Fail: mcp.Fail},
	}
	for _, path := range auth.Paths() {
		all[path] = &Operation{Handler: auth.Handler(), Name: "metadata", Fail: oauth.Fail}
		if name, ok := strings.CutPrefix(path, "/oauth/"); ok {
			all[path].Name, all[path].MaxBody = name, oauth.MaxBody
		}
	}
	all[oauth.AuthorizePath].Fail = func(w http.ResponseWriter, r *http.Request, status int, detail string) {
		if oauth.WantsPage(r) {
			web.Fail(w, r, status, detail)
			return
		}
		oauth.Fail(w, r, status, detail)
	}
	for _, path := range web.Paths() {
		all[path] = &Operation{Handler: web.Handler(), Name: "pages", MaxBody: pages.MaxBody, Fail: web.Fail}
	}
	return all
}

// Hosts returns the allowed values of the Host header, in lower case: the issuer's host, with and without a default port. The
// caller must reject requests for other hosts, to prevent DNS rebinding and tokens that are issued under another name.
func (s *Server) Hosts() []string { return slices.Clone(s.hosts) }

// Operations returns all operations.
func (s *Server) Operations() []*Operation { return slices.Collect(maps.Values(s.operations)) }

// Operation returns the operation that serves a path, or nil. It does not normalise the path.
func (s *Server) Operation(path string) *Operation {
	if op, ok := s.operations[path]; ok {
		return op
	}
	for _, prefix := range []string{pages.AssetsPrefix, pages.SettingsPath + "/"} {
		if strings.HasPrefix(path, prefix) {
			return s.operations[prefix]
		}
	}
	return nil
}

func hosts(issuer *url.URL) []string {
	host := strings.ToLower(issuer.Host)
	if issuer.Port() != "" {
		return []string{host}
	}
	return []string{host, host + map[string]string{"http": ":80", "https": ":443"}[issuer.Scheme]}
}

// Close stops the account cache. Requests in progress continue.
func (s *Server) Close() { s.accounts.Close() }

// Reads returns the GET operations that the tools call and that need no parameters, in the order of the definition.
func (s *Server) Reads() []*upstream.Operation { return s.tools.Reads() }

// Tools returns the names of the MCP tools, sorted.
func (s *Server) Tools() []string { return s.tools.ToolNames() }
