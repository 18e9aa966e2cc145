package oauth

import (
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
)

// Lifetimes. They are the same for everybody: what a person reads on the pages is what holds.
const (
	RequestLifetime      = 10 * time.Minute     // an authorization request that waits for a decision
	CodeLifetime         = time.Minute          // an authorization code
	AccessLifetime       = time.Hour            // an access token
	RefreshIdle          = 60 * 24 * time.Hour  // a refresh token that is not used
	GrantLifetime        = 365 * 24 * time.Hour // a connection, however much it is used
	RefreshGrace         = 2 * time.Minute      // how long the refresh token before the current one stays good
	RegistrationLifetime = 90 * 24 * time.Hour  // a dynamic registration since its last successful token request
	UnusedLifetime       = 24 * time.Hour       // a dynamic registration that had none yet
)

// Bounds.
const (
	// MaxRepeats is how often the refresh token before the current one is answered within RefreshGrace: more often, and
	// it is refused, without ending the connection.
	MaxRepeats = 8

	// MaxAccessTokens is how many access tokens of a connection are good at the same time: with one more, the oldest
	// ends.
	MaxAccessTokens = 32
)

// Defaults of Options.
const (
	DefaultPrefix      = "gatehouse:connect:"
	DefaultApprovePath = "/oauth/approve"
	DefaultTimeout     = 2 * time.Second
)

// Options configure a Server.
type Options struct {
	// Issuer is the gateway's public origin, byte for byte as clients see it: "https://api.example.com". Required; no
	// path, no slash at the end. http is for loopback names and addresses only.
	Issuer string

	// Redis holds everything. Required; it stays the caller's to close. It obeys the deadlines of contexts
	// (ContextTimeoutEnabled), and reads from masters only (no ReadOnly, RouteByLatency or RouteRandomly): a replica that
	// lags would accept what was revoked.
	Redis redis.UniversalClient

	// Prefix begins every key; "" means "gatehouse:connect:". It holds neither brace. The keys of redis_rate, which
	// count registrations, begin with "rate:" before it. Servers of one fleet have the same one.
	Prefix string

	// Timeout is how long one question to Redis may take; 0 means 2 s.
	Timeout time.Duration

	// ResourcePath is the path of what the tokens are for; "" means "/mcp".
	ResourcePath string

	// ResourceName is the resource's name for people in its metadata; "" leaves it out.
	ResourceName string

	// Documentation is the address of a page for developers that the metadata name; "" leaves it out.
	Documentation string

	// ApprovePath is the page that a person decides on: it gets ?request=<id> and answers with Pending, Approve and
	// Deny. "" means "/oauth/approve".
	ApprovePath string

	// ChallengeScopes is what the 401 challenge asks clients to ask for; empty means mcp:use. It gives nothing: the
	// person narrows it on the approval page, where writing is opt-in. Clients follow it, and would never see a tool
	// that writes if it said mcp:read.
	ChallengeScopes scope.Set

	// ErrorPage shows a person an error that must not be sent to the client; nil means a plain one. Headers that
	// concern caching are set before.
	ErrorPage func(w http.ResponseWriter, r *http.Request, status int, title, detail string)

	// HTTPClient fetches the metadata documents of clients; nil means one that reaches public addresses only, whatever
	// the names resolve to, and uses no proxy. Whatever is set here, redirects are not followed and the bounds of time
	// and size hold.
	HTTPClient *http.Client

	// ClientAddress is whose budget a request is counted in; nil means the address of the peer, for IPv6 its /64. Behind
	// a proxy it has to be the address that the proxy names.
	ClientAddress func(r *http.Request) string

	// ClientSchemes are the private-use URI schemes that clients may be sent back to beside reverse domain names such as
	// com.example.app (RFC 8252, section 7.1), which are always allowed: in lower case, without a colon, and none that
	// browsers or operating systems act on. nil means those of DefaultClientSchemes.
	ClientSchemes []string

	// Accounts finds the account that has approved a connection; errors are account.ErrUnknown and
	// account.ErrUnavailable. Required. It is asked for each request that Protect lets through: see account.Cache.
	Accounts Accounts

	// Audit has an entry of each connection that was approved, denied, begun or ended. Required: without a place for the
	// entry nothing of that is done.
	Audit *audit.Log

	// RequestID gives the id of a request for the audit log; nil means that there is none.
	RequestID func(ctx context.Context) string

	// Limits for each client address, and for all of them together; the zero value of each means its default.
	Limits Limits

	// Log gets what operators should know; nil means nowhere. It never gets a token, a code or a state.
	Log *zap.Logger
}

// Accounts is what a [Server] needs of the accounts service.
type Accounts interface {
	Account(ctx context.Context, id string) (account.Account, error)
}

// DefaultClientSchemes are the schemes of MCP clients that are known to be sent back to one.
func DefaultClientSchemes() []string {
	return []string{"claude", "cursor", "raycast", "vscode", "vscode-insiders", "warp", "windsurf"}
}

// Limits say how often clients may ask for what costs room or reaches out, and so what those whom nobody knows can have
// Redis hold: docs/connect.md has the figures. They are redis_rate's: a burst of Burst, refilled with Rate in Period.
type Limits struct {
	Registrations     redis_rate.Limit // dynamic registrations of an address; 30 an hour
	AllRegistrations  redis_rate.Limit // dynamic registrations of everybody; 1,000 an hour
	Authorizations    redis_rate.Limit // authorization requests of an address; 60 a minute
	AllAuthorizations redis_rate.Limit // authorization requests of everybody; 1,000 a minute
	Fetches           redis_rate.Limit // metadata documents fetched for an address; 10 a minute
	AllFetches        redis_rate.Limit // metadata documents fetched for everybody; 300 a minute
}

func (o *Options) complete() error {
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.ResourcePath == "" {
		o.ResourcePath = "/mcp"
	}
	if o.ApprovePath == "" {
		o.ApprovePath = DefaultApprovePath
	}
	if o.ChallengeScopes.IsZero() {
		o.ChallengeScopes = scope.Everything()
	}
	if o.ErrorPage == nil {
		o.ErrorPage = plainErrorPage
	}
	if o.HTTPClient == nil {
		o.HTTPClient = publicClient(publicDialer())
	}
	if o.ClientAddress == nil {
		o.ClientAddress = peerAddress
	}
	if o.ClientSchemes == nil {
		o.ClientSchemes = DefaultClientSchemes()
	}
	if o.RequestID == nil {
		o.RequestID = func(context.Context) string { return "" }
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
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
			return fmt.Errorf("limit %v: rate, burst and period must be above 0", limit)
		}
	}
	switch {
	case o.Redis == nil || o.Accounts == nil || o.Audit == nil:
		return errors.New("missing option: Redis, Accounts and Audit are required")
	case strings.ContainsAny(o.Prefix, "{}"):
		return fmt.Errorf("prefix %q: braces would decide the Cluster slot", o.Prefix)
	case o.Timeout < 0:
		return fmt.Errorf("timeout %v is negative", o.Timeout)
	case !strings.HasPrefix(o.ApprovePath, "/") || strings.ContainsAny(o.ApprovePath, "?#"):
		return fmt.Errorf("path of the approval page %q: want an absolute path", o.ApprovePath)
	case len(o.ResourcePath) < 2 || o.ResourcePath[0] != '/' || strings.ContainsAny(o.ResourcePath, "?#%\"\\ "):
		return fmt.Errorf("path of the resource %q: want an absolute path", o.ResourcePath)
	}
	for _, scheme := range o.ClientSchemes {
		if err := checkClientScheme(scheme); err != nil {
			return err
		}
	}
	return checkIssuer(o.Issuer)
}

// checkIssuer wants a bare origin in the form that browsers give it.
func checkIssuer(issuer string) error {
	u, err := url.Parse(issuer)
	switch {
	case err != nil || u.Host == "" || u.Scheme+"://"+u.Host != issuer || strings.ToLower(issuer) != issuer:
		return fmt.Errorf("issuer %q: want a bare origin in lower case, such as https://api.example.com", issuer)
	case u.Hostname() == "" || strings.HasSuffix(u.Host, ":"):
		return fmt.Errorf("issuer %q: it names no host", issuer)
	case u.Scheme == "https" && u.Port() == "443", u.Scheme == "http" && u.Port() == "80":
		return fmt.Errorf("issuer %q: the port is the scheme's own, leave it out", issuer)
	case u.Scheme == "https":
		return nil
	case u.Scheme == "http" && isLoopbackName(u.Hostname()):
		return nil
	}
	return fmt.Errorf("issuer %q: want https (http is for loopback names and addresses)", issuer)
}

// isLoopbackName reports whether a host is this machine by its very name.
func isLoopbackName(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
