// Package connect puts the connection server together: the authorization server (oauth), the MCP server with its tools
// (mcp), and what people see of it (pages), over one Redis and one data service. It knows nothing of
// Caddy: its endpoints are [http.Handler]s.
package connect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/connect/mcp"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/pages"
)

// DefaultPrefix begins the name of every key in Redis.
const DefaultPrefix = "gatehouse:connect:"

// MCPPath is where the MCP server answers: the resource of every token is the issuer with this path.
const MCPPath = "/mcp"

// Options of a [Server].
type Options struct {
	// Issuer is the public origin, byte for byte as clients see it: "https://api.example.com". http is for loopback names
	// and addresses only. Required.
	Issuer string

	// Redis holds grants, sessions and the audit log. Required. What it loses is lost: see the package oauth.
	Redis redis.UniversalClient

	// Prefix begins the name of every key in Redis. Default: DefaultPrefix.
	Prefix string

	// Upstream is the origin of the data service, "http://data.internal:8080", whose calls under /connect/v1 these are.
	// Required.
	Upstream string

	// Transport carries the calls to the data service, and puts the gateway's own identity on them. Default:
	// http.DefaultTransport.
	Transport http.RoundTripper

	// Timeout bounds one call to the data service, those about accounts included. Default: data.DefaultTimeout.
	Timeout time.Duration

	// Keys manages the keys of the public API. Default: none, and no page for it.
	Keys pages.Keys

	// Name is what assistants call this server. Default: "Gatehouse".
	Name string

	// Version is the server's own. Default: "".
	Version string

	// SessionIdle and SessionMax end a person's session: unused for so long, or so long after signing in. Defaults:
	// pages.DefaultSessionIdle and pages.DefaultSessionMax.
	SessionIdle, SessionMax time.Duration

	// ClientAddr gives a request's sender, the zero Addr if it has no IP address. Default: the peer.
	ClientAddr func(*http.Request) netip.Addr

	// ClientDocuments fetches the metadata documents of clients. Default: a client that reaches public addresses only.
	ClientDocuments *http.Client

	// ClientSchemes are the private-use URI schemes that clients may be sent back to beside reverse domain names. Default:
	// those of oauth.DefaultClientSchemes.
	ClientSchemes []string

	// Extensions add to the MCP server what a test suite asks of it. Default: nothing; only test builds set it.
	Extensions []mcp.Extension

	Log *zap.Logger      // required: half of the audit log is here
	Now func() time.Time // default: time.Now
}

// Server is the connection server.
type Server struct {
	hosts     []string
	endpoints map[string]*Endpoint // by exact path
	assets    *Endpoint
	settings  *Endpoint
	tools     *mcp.Server
	accounts  *account.Cache
}

// Endpoint serves one path, or all below one. The server in front of it checks Host (see [Server.Hosts]) and bounds
// request bodies; Fail is for what that refuses.
type Endpoint struct {
	http.Handler

	// Name is for logs and metrics: mcp, metadata, authorize, token, revoke, register, pages or assets.
	Name string

	// MaxBody is how large a request body may be, in bytes. Zero: none is read.
	MaxBody int64

	// Fail responds with an error in the endpoint's format: JSON-RPC, the JSON of RFC 6749, or a page. detail is a sentence
	// for people. It adds to the header that is there.
	Fail func(w http.ResponseWriter, r *http.Request, status int, detail string)
}

// New makes a server. It asks neither Redis nor the data service anything yet.
func New(o Options) (_ *Server, err error) {
	if o.Log == nil || o.Redis == nil {
		return nil, errors.New("the connection server needs both Redis and a log")
	}
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if o.Name == "" {
		o.Name = "Gatehouse"
	}
	if o.ClientAddr == nil {
		o.ClientAddr = peer
	}
	if o.Timeout <= 0 {
		o.Timeout = data.DefaultTimeout
	}
	auditLog, err := audit.New(audit.Options{Redis: o.Redis, Prefix: o.Prefix, Log: o.Log.Named("audit")})
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	accounts, err := account.NewClient(account.ClientOptions{
		BaseURL: o.Upstream, Transport: o.Transport, Timeout: o.Timeout, RequestID: RequestID,
	})
	if err != nil {
		return nil, err
	}
	calls, err := data.New(data.Options{BaseURL: o.Upstream, Transport: o.Transport, Timeout: o.Timeout, Log: o.Log.Named("data")})
	if err != nil {
		return nil, err
	}
	cached, err := account.NewCache(accounts.Account)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			cached.Close()
		}
	}()
	var p *pages.Pages // the authorization server shows its errors with them
	auth, err := oauth.New(oauth.Options{
		Issuer: o.Issuer, Redis: o.Redis, Prefix: o.Prefix, ResourcePath: MCPPath, ResourceName: o.Name,
		ApprovePath: pages.ApprovePath, HTTPClient: o.ClientDocuments,
		ErrorPage: func(w http.ResponseWriter, r *http.Request, status int, title, detail string) {
			p.Error(w, r, status, title, detail)
		},
		ClientAddress: func(r *http.Request) string { return sender(o.ClientAddr(r)) },
		ClientSchemes: o.ClientSchemes, Accounts: cached, Audit: auditLog, RequestID: RequestID, Log: o.Log.Named("oauth"),
	})
	if err != nil {
		return nil, err
	}
	p, err = pages.New(pages.Options{
		Issuer: o.Issuer, OAuth: auth, Accounts: accounts, Audit: auditLog, Redis: o.Redis, Keys: o.Keys, Prefix: o.Prefix,
		SessionIdle: o.SessionIdle, SessionMax: o.SessionMax, ClientAddr: o.ClientAddr, RequestID: RequestID,
		Log: o.Log.Named("pages"), Now: o.Now,
	})
	if err != nil {
		return nil, err
	}
	tools, err := mcp.New(mcp.Options{
		Resource: auth.Resource(), Title: o.Name, Version: o.Version,
		Data: calls, Audit: auditLog, Challenge: auth, Redis: o.Redis, Prefix: o.Prefix,
		RequestID: func(r *http.Request) string { return RequestID(r.Context()) },
		Log:       o.Log.Named("mcp"),
	}, o.Extensions...)
	if err != nil {
		return nil, err
	}
	issued, err := url.Parse(o.Issuer)
	if err != nil {
		return nil, fmt.Errorf("reading the issuer: %w", err)
	}
	s := &Server{hosts: hosts(issued), tools: tools, accounts: cached}
	// a call from another origin is refused before anything is said of tokens
	s.endpoints = map[string]*Endpoint{
		MCPPath: {tools.Guard(auth.Protect(tools.Handler())), "mcp", mcp.DefaultMaxBody, mcp.Fail},
	}
	for _, path := range auth.Paths() {
		e := &Endpoint{auth.Handler(), nameOf(path), 0, oauth.Fail}
		switch e.Name {
		case "metadata":
		case "authorize":
			e.MaxBody = oauth.MaxBody
			e.Fail = func(w http.ResponseWriter, r *http.Request, status int, detail string) {
				if strings.Contains(r.Header.Get("Accept"), "text/html") { // a person's browser, as in package oauth
					p.Fail(w, r, status, detail)
					return
				}
				oauth.Fail(w, r, status, detail)
			}
		default:
			e.MaxBody = oauth.MaxBody
		}
		s.endpoints[path] = e
	}
	paths := []string{
		pages.SignInPath, pages.SignOutPath, pages.ApprovePath, pages.SettingsPath, pages.ConnectionsPath, pages.ActivityPath,
	}
	if o.Keys != nil {
		paths = append(paths, pages.KeysPath)
	}
	for _, path := range paths {
		s.endpoints[path] = &Endpoint{p.Handler(), "pages", pages.MaxBody, p.Fail}
	}
	s.assets = &Endpoint{p.Handler(), "assets", 0, p.Fail}
	s.settings = &Endpoint{p.Handler(), "pages", 0, p.Fail} // a page says that there is none
	return s, nil
}

// nameOf names an endpoint of the authorization server for logs and metrics: authorize, token, revoke, register, or
// metadata.
func nameOf(path string) string {
	if name, ok := strings.CutPrefix(path, "/oauth/"); ok {
		return name
	}
	return "metadata"
}

// Hosts are the values of Host that the server is for, in lower case: the issuer's, also with its scheme's default port.
// Every endpoint is for the issuer's host alone, so that no page of another name that leads here can act for a person (DNS
// rebinding), and no client gets a token from a name that is not the issuer's.
func (s *Server) Hosts() []string { return slices.Clone(s.hosts) }

// Endpoints lists the endpoints.
func (s *Server) Endpoints() []*Endpoint {
	return append(slices.Collect(maps.Values(s.endpoints)), s.assets, s.settings)
}

// Endpoint returns what serves a path, exactly as it was sent; nil for a path that is not this server's.
func (s *Server) Endpoint(path string) *Endpoint {
	if e, ok := s.endpoints[path]; ok {
		return e
	}
	switch {
	case strings.HasPrefix(path, pages.AssetsPrefix):
		return s.assets
	case strings.HasPrefix(path, pages.SettingsPath+"/"):
		return s.settings
	}
	return nil
}

func hosts(issuer *url.URL) []string {
	host := strings.ToLower(issuer.Host)
	if issuer.Port() != "" {
		return []string{host}
	}
	port := ":443"
	if issuer.Scheme == "http" {
		port = ":80"
	}
	return []string{host, host + port}
}

// Close ends the sessions that assistants of older revisions have here; their next requests are served without one. What
// is under way goes on.
func (s *Server) Close() error {
	s.accounts.Close()
	return s.tools.Close()
}

// sender is whose budget a request is counted in: an address, or of IPv6 the /64 that a subscriber has. "" is everybody
// without an IP address.
func sender(addr netip.Addr) string {
	addr = addr.Unmap().WithZone("")
	if !addr.Is6() {
		if !addr.IsValid() {
			return ""
		}
		return addr.String()
	}
	prefix, err := addr.Prefix(64)
	if err != nil { // 64 bits are not too many
		return addr.String()
	}
	return prefix.String()
}

// peer is the address of the connection's other end.
func peer(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}

type requestIDKey struct{}

// WithRequestID returns a context whose request has an id, for logs, the audit log and the data service.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// RequestID is the request's id, "" if it has none.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}
