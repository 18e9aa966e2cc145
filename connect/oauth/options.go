package oauth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
	"github.com/gatehouse-gateway/gatehouse/internal/clientip"
)

// Lifetimes.
const (
	requestLifetime      = 10 * time.Minute     // an authorization request that waits for a decision
	codeLifetime         = time.Minute          // an authorization code
	accessLifetime       = time.Hour            // an access token
	refreshIdle          = 60 * 24 * time.Hour  // an unused refresh token
	grantLifetime        = 365 * 24 * time.Hour // a connection, however much it is used
	refreshGrace         = 2 * time.Minute      // how long the previous refresh token stays valid
	registrationLifetime = 90 * 24 * time.Hour  // a dynamic registration since its last successful token request
	unusedLifetime       = 24 * time.Hour       // a dynamic registration that had none yet
)

const (
	// maxRepeats is how often the previous refresh token can be used again within refreshGrace, by clients that lost a response and by
	// programs that share it. Further uses get 429 and do not end the connection.
	maxRepeats      = 16
	maxAccessTokens = 32 // valid ones of a connection; another one replaces the oldest
	maxGrants       = 100
)

// Options configure a Server.
type Options struct {
	// Issuer is the gateway's public origin, byte for byte as clients see it, such as "https://api.example.com", without a
	// trailing slash. http is allowed for loopback names and addresses only. Required.
	Issuer string

	// Redis holds all data. Required; the caller closes it. It must obey context deadlines (ContextTimeoutEnabled) and read
	// from masters only (no ReadOnly, RouteByLatency or RouteRandomly), because a stale replica would accept revoked tokens.
	Redis redis.UniversalClient

	// Prefix begins every key in Redis, in those of redis_rate after "rate:". It must not contain braces and must be the same
	// for all gateways of a fleet. Default: audit.DefaultPrefix.
	Prefix string

	ResourceName string // the resource_name of the resource's metadata (RFC 9728). Default: none

	// ClientAddr returns the client's IP address, or the zero Addr if it is unknown. Default: the peer's address.
	ClientAddr func(*http.Request) netip.Addr

	// ClientSchemes are the private-use URI schemes allowed in redirect URIs, in lower case and without a colon, in addition
	// to reverse domain names such as com.example.app (RFC 8252, section 7.1). Schemes that browsers or operating systems
	// handle themselves are rejected. Default: DefaultClientSchemes.
	ClientSchemes []string

	// Areas are the areas for which connections can be approved. A connection that was approved for an area before it was
	// switched off has no rights there. Required.
	Areas scope.Areas

	// Accounts looks up the account that approved a connection, for each refresh and each request with a valid access token;
	// see account.Cache. Its errors are account.ErrUnknown and account.ErrUnavailable. Required.
	Accounts Accounts

	Audit *audit.Log // records connections being approved, denied, started, changed and ended, which fail without it. Required

	// Only tests set these. Defaults: 2 s for one Redis call, the limits of defaultLimits, and a transport for metadata
	// documents that connects to public addresses only.
	timeout   time.Duration
	limits    limits
	transport http.RoundTripper
}

// Accounts looks up accounts. [account.Cache] implements it.
type Accounts interface {
	Account(ctx context.Context, id string) (account.Account, error)
}

// DefaultClientSchemes returns the private-use redirect URI schemes of known MCP clients.
func DefaultClientSchemes() []string {
	return []string{"claude", "cursor", "raycast", "vscode", "vscode-insiders", "warp", "windsurf"}
}

// limits are the rate limits of unauthenticated requests that store data in Redis or fetch documents. docs/connect.md says how
// much memory that can take.
type limits struct {
	Registrations     redis_rate.Limit // dynamic registrations per client IP, by programs and by pages in browsers each
	AllRegistrations  redis_rate.Limit // dynamic registrations by programs in total
	PageRegistrations redis_rate.Limit // dynamic registrations by pages in browsers in total
	Authorizations    redis_rate.Limit // authorization requests per client IP
	AllAuthorizations redis_rate.Limit // authorization requests in total
	Fetches           redis_rate.Limit // metadata documents fetched per client IP
	AllFetches        redis_rate.Limit // metadata documents fetched in total
}

func defaultLimits() limits {
	return limits{
		Registrations:     redis_rate.PerHour(30),
		AllRegistrations:  redis_rate.PerHour(700),
		PageRegistrations: redis_rate.PerHour(300),
		Authorizations:    redis_rate.PerMinute(60),
		AllAuthorizations: redis_rate.PerMinute(1000),
		Fetches:           redis_rate.PerMinute(10),
		AllFetches:        redis_rate.PerMinute(300),
	}
}

func (o *Options) complete() error {
	o.Prefix = cmp.Or(o.Prefix, audit.DefaultPrefix)
	o.timeout = cmp.Or(o.timeout, 2*time.Second)
	o.limits = cmp.Or(o.limits, defaultLimits())
	o.transport = cmp.Or(o.transport, publicTransport(publicDialer()))
	if o.ClientAddr == nil {
		o.ClientAddr = clientip.Peer
	}
	if o.ClientSchemes == nil {
		o.ClientSchemes = DefaultClientSchemes()
	}
	switch {
	case o.Redis == nil || o.Accounts == nil || o.Audit == nil || len(o.Areas.List()) == 0:
		return errors.New("missing option: Redis, Accounts, Areas and Audit are required")
	case strings.ContainsAny(o.Prefix, "{}"):
		return fmt.Errorf("invalid prefix %q: must not contain braces, which select a Cluster slot", o.Prefix)
	}
	for _, scheme := range o.ClientSchemes {
		if err := checkClientScheme(scheme); err != nil {
			return err
		}
	}
	return checkIssuer(o.Issuer)
}

// checkIssuer checks that the issuer is a serialized origin (RFC 6454, section 6.2) with https, or http for loopback.
func checkIssuer(issuer string) error {
	u, err := url.Parse(issuer)
	switch {
	case err != nil || u.Host == "" || u.Scheme+"://"+u.Host != issuer || strings.ToLower(issuer) != issuer:
		return fmt.Errorf("invalid issuer %q: must be an origin in lower case, such as https://api.example.com", issuer)
	case u.Hostname() == "" || strings.HasSuffix(u.Host, ":"):
		return fmt.Errorf("invalid issuer %q: missing host", issuer)
	case u.Scheme == "https" && u.Port() == "443", u.Scheme == "http" && u.Port() == "80":
		return fmt.Errorf("invalid issuer %q: must not contain the default port", issuer)
	case u.Scheme == "https", u.Scheme == "http" && isLoopbackName(u.Hostname()):
		return nil
	}
	return fmt.Errorf("invalid issuer %q: must be https, except for loopback names and addresses", issuer)
}

// isLoopbackName reports whether a host is a loopback name (RFC 6761, section 6.3) or address, without resolving it.
func isLoopbackName(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && ip.IsLoopback()
}
