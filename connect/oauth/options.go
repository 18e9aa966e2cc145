package oauth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
	"github.com/gatehouse-gateway/gatehouse/internal/clientip"
)

// Lifetimes.
const (
	RequestLifetime      = 10 * time.Minute     // an authorization request that waits for a decision
	CodeLifetime         = time.Minute          // an authorization code
	AccessLifetime       = time.Hour            // an access token
	RefreshIdle          = 60 * 24 * time.Hour  // a refresh token that is not used
	GrantLifetime        = 365 * 24 * time.Hour // a connection, however much it is used
	RefreshGrace         = 2 * time.Minute      // how long the previous refresh token stays valid
	RegistrationLifetime = 90 * 24 * time.Hour  // a dynamic registration since its last successful token request
	UnusedLifetime       = 24 * time.Hour       // a dynamic registration that had none yet
)

const (
	// MaxRepeats is how often the previous refresh token can be used within RefreshGrace. Further uses are refused but do
	// not end the connection.
	MaxRepeats = 8

	// MaxAccessTokens is the maximum number of valid access tokens per connection. One more invalidates the oldest.
	MaxAccessTokens = 32
)

// Defaults of Options.
const (
	DefaultPrefix      = audit.DefaultPrefix
	DefaultApprovePath = "/oauth/approve"
	DefaultTimeout     = 2 * time.Second
)

// Options configure a Server.
type Options struct {
	// Issuer is the gateway's public origin, byte for byte as clients see it, such as "https://api.example.com", without a
	// trailing slash. http is allowed for loopback names and addresses only. Required.
	Issuer string

	// Redis holds all data. Required; the caller closes it. It must obey context deadlines (ContextTimeoutEnabled) and read
	// from masters only (no ReadOnly, RouteByLatency or RouteRandomly), because a stale replica would accept revoked tokens.
	Redis redis.UniversalClient

	// Prefix begins every key, after the "rate:" of redis_rate's keys. It must not contain braces and must be the same for
	// all gateways of a fleet. Default: DefaultPrefix.
	Prefix string

	// Timeout is the timeout of one Redis call. Default: DefaultTimeout.
	Timeout time.Duration

	// ResourcePath is the path of the protected resource. Default: "/mcp".
	ResourcePath string

	// ResourceName is the resource_name of the resource's metadata (RFC 9728). Default: none.
	ResourceName string

	// Documentation is the URL of a page for developers in the metadata. Default: none.
	Documentation string

	// ApprovePath is the approval page, which gets ?request=<id>. Default: DefaultApprovePath.
	ApprovePath string

	// ChallengeScopes are the scopes of the 401 challenge, which clients then request. Default: mcp:use, so that clients
	// can get tools that write; the person opts in to writing on the approval page.
	ChallengeScopes scope.Set

	// ErrorPage shows a person an error that must not be redirected to the client. The caching headers are already set.
	// Default: a plain page.
	ErrorPage func(w http.ResponseWriter, r *http.Request, status int, title, detail string)

	// HTTPClient fetches the metadata documents of clients. Redirects are never followed and the limits of time and size
	// always apply. Default: a client that connects to public addresses only, without a proxy.
	HTTPClient *http.Client

	// ClientIPKey returns the rate limit key of the client IP. Default: the key of the peer's address, for IPv6 its /64.
	ClientIPKey func(r *http.Request) string

	// ClientSchemes are the private-use URI schemes allowed in redirect URIs, in lower case and without a colon, in addition
	// to reverse domain names such as com.example.app (RFC 8252, section 7.1). Schemes that browsers or operating systems
	// handle themselves are refused. Default: DefaultClientSchemes.
	ClientSchemes []string

	// Accounts looks up the account that approved a connection, for each request that Protect accepts; see account.Cache.
	// Its errors are account.ErrUnknown and account.ErrUnavailable. Required.
	Accounts Accounts

	// Audit records each connection that is approved, denied, started or ended; if it is unavailable, these fail. Required.
	Audit *audit.Log

	// RequestID returns the ID of a request for the audit log. Default: none.
	RequestID func(ctx context.Context) string

	// Limits are the rate limits. The zero value of each means its default.
	Limits Limits

	// Log never contains a token, a code or a state. Default: no log.
	Log *zap.Logger
}

// Accounts looks up accounts. [account.Cache] implements it.
type Accounts interface {
	Account(ctx context.Context, id string) (account.Account, error)
}

// DefaultClientSchemes returns the redirect URI schemes of known MCP clients.
func DefaultClientSchemes() []string {
	return []string{"claude", "cursor", "raycast", "vscode", "vscode-insiders", "warp", "windsurf"}
}

// Limits are the rate limits of unauthenticated requests that use memory in Redis or fetch documents. docs/connect.md says how
// much memory they bound.
type Limits struct {
	Registrations     redis_rate.Limit // dynamic registrations per client IP; default 30 an hour
	AllRegistrations  redis_rate.Limit // dynamic registrations in total; default 1,000 an hour
	Authorizations    redis_rate.Limit // authorization requests per client IP; default 60 a minute
	AllAuthorizations redis_rate.Limit // authorization requests in total; default 1,000 a minute
	Fetches           redis_rate.Limit // metadata documents fetched per client IP; default 10 a minute
	AllFetches        redis_rate.Limit // metadata documents fetched in total; default 300 a minute
}

func (o *Options) complete() error {
	o.Prefix = cmp.Or(o.Prefix, DefaultPrefix)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.ResourcePath = cmp.Or(o.ResourcePath, "/mcp")
	o.ApprovePath = cmp.Or(o.ApprovePath, DefaultApprovePath)
	if o.ChallengeScopes.IsZero() {
		o.ChallengeScopes = scope.Everything()
	}
	if o.ErrorPage == nil {
		o.ErrorPage = plainErrorPage
	}
	if o.HTTPClient == nil {
		o.HTTPClient = publicClient(publicDialer())
	}
	if o.ClientIPKey == nil {
		o.ClientIPKey = func(r *http.Request) string { return clientip.Key(clientip.Peer(r)) }
	}
	if o.ClientSchemes == nil {
		o.ClientSchemes = DefaultClientSchemes()
	}
	if o.RequestID == nil {
		o.RequestID = func(context.Context) string { return "" }
	}
	o.Log = cmp.Or(o.Log, zap.NewNop())
	for limit, fallback := range map[*redis_rate.Limit]redis_rate.Limit{
		&o.Limits.Registrations:     redis_rate.PerHour(30),
		&o.Limits.AllRegistrations:  redis_rate.PerHour(1000),
		&o.Limits.Authorizations:    redis_rate.PerMinute(60),
		&o.Limits.AllAuthorizations: redis_rate.PerMinute(1000),
		&o.Limits.Fetches:           redis_rate.PerMinute(10),
		&o.Limits.AllFetches:        redis_rate.PerMinute(300),
	} {
		if limit.IsZero() {
			*limit = fallback
		}
		if limit.Rate <= 0 || limit.Burst <= 0 || limit.Period <= 0 {
			return fmt.Errorf("invalid limit %v: rate, burst and period must be positive", limit)
		}
	}
	switch {
	case o.Redis == nil || o.Accounts == nil || o.Audit == nil:
		return errors.New("missing option: Redis, Accounts and Audit are required")
	case strings.ContainsAny(o.Prefix, "{}"):
		return fmt.Errorf("invalid prefix %q: must not contain braces, which select a Cluster slot", o.Prefix)
	case o.Timeout < 0:
		return fmt.Errorf("invalid timeout %v: must not be negative", o.Timeout)
	case !strings.HasPrefix(o.ApprovePath, "/") || strings.ContainsAny(o.ApprovePath, "?#"):
		return fmt.Errorf("invalid path of the approval page %q: must be absolute, without a query", o.ApprovePath)
	case len(o.ResourcePath) < 2 || o.ResourcePath[0] != '/' || strings.ContainsAny(o.ResourcePath, "?#%\"\\ "):
		return fmt.Errorf("invalid path of the resource %q: must be absolute, without escapes, query or spaces", o.ResourcePath)
	}
	for _, scheme := range o.ClientSchemes {
		if err := checkClientScheme(scheme); err != nil {
			return err
		}
	}
	return checkIssuer(o.Issuer)
}

// checkIssuer checks that the issuer is a serialized origin.
func checkIssuer(issuer string) error {
	u, err := url.Parse(issuer)
	switch {
	case err != nil || u.Host == "" || u.Scheme+"://"+u.Host != issuer || strings.ToLower(issuer) != issuer:
		return fmt.Errorf("invalid issuer %q: must be an origin in lower case, such as https://api.example.com", issuer)
	case u.Hostname() == "" || strings.HasSuffix(u.Host, ":"):
		return fmt.Errorf("invalid issuer %q: missing host", issuer)
	case u.Scheme == "https" && u.Port() == "443", u.Scheme == "http" && u.Port() == "80":
		return fmt.Errorf("invalid issuer %q: must not contain the default port", issuer)
	case u.Scheme == "https":
		return nil
	case u.Scheme == "http" && isLoopbackName(u.Hostname()):
		return nil
	}
	return fmt.Errorf("invalid issuer %q: must be https, except for loopback names and addresses", issuer)
}

// isLoopbackName reports whether a host is a loopback name or address, without resolving it.
func isLoopbackName(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
