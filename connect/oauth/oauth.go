package oauth

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"golang.org/x/sync/singleflight"

	"github.com/gatehouse-gateway/gatehouse/connect/scope"
)

// What the methods of a [Server] have to say beside success.
var (
	// ErrUnavailable says that Redis could not be asked. It wraps the cause, which may name Redis's address: for the
	// log, not for a caller. Nothing is known of what was asked for; a caller may try again.
	ErrUnavailable = errors.New("the store of connections is unavailable")

	// ErrNoRequest says that there is no such authorization request, or none any more: never there, run out, decided
	// otherwise, or its code was redeemed.
	ErrNoRequest = errors.New("no such authorization request")

	// ErrNotOwner says that the account may not approve connections.
	ErrNotOwner = errors.New("only an owner of the business may approve connections")

	// ErrScopes says that nothing was granted, or more than was asked for.
	ErrScopes = errors.New("granted scopes are not some of those asked for")

	// ErrInvalidToken says that a token is unknown, malformed, past its time, revoked or for another audience: never
	// which of them.
	ErrInvalidToken = errors.New("invalid access token")

	// ErrNoGrant says that the business has no such connection.
	ErrNoGrant = errors.New("no such connection")
)

// ClientKind is how a client became known.
type ClientKind string

// The kinds of clients.
const (
	// KindMetadata is a client whose id is the https URL of its metadata document: what it says of itself is what that
	// host says.
	KindMetadata ClientKind = "metadata document"

	// KindRegistered is a client that registered itself (RFC 7591): nobody vouches for what it says.
	KindRegistered ClientKind = "registered"
)

// Client is an application that asks for a connection. Name, URI and LogoURI are its own words, cleaned of control and
// invisible characters and bounded in length.
type Client struct {
	ID           string     `json:"id"`
	Kind         ClientKind `json:"kind"`
	Name         string     `json:"name"`               // never empty: at least the host of its id or of a redirect URI
	Host         string     `json:"host,omitempty"`     // of KindMetadata: the host of its id, which vouches for it
	URI          string     `json:"uri,omitempty"`      // https, or ""
	LogoURI      string     `json:"logo_uri,omitempty"` // https, or ""; not fetched, and not to be loaded by a page
	RedirectURIs []string   `json:"redirect_uris,omitempty"`
	// LocalOnly says that every redirect URI leads to the person's own machine (a loopback address, or a scheme that an
	// application there has claimed): whoever runs something on it can pose as this client.
	LocalOnly bool `json:"local_only,omitempty"`
	// Refreshes says that the client uses refresh tokens.
	Refreshes bool `json:"refreshes,omitempty"`
}

// Request is an authorization request that was found to be in order and waits for a person's decision.
type Request struct {
	ID          string // of the request, unguessable; good for nothing but Pending, Approve and Deny
	Client      Client // without URI, LogoURI and RedirectURIs
	RedirectURI string
	// RedirectHost is where the person will be sent back to, for people: the host with its port, or, of a scheme that an
	// application has claimed, the scheme and a colon ("cursor:").
	RedirectHost string
	// RedirectLocal says that the redirect URI leads to the person's own machine.
	RedirectLocal bool
	Scopes        scope.Set
	Resource      string
	ExpiresIn     time.Duration
}

// Grant is a connection: what a person has approved, from the moment that the client redeemed its code. Its times are of
// Redis's clock.
type Grant struct {
	ID         string
	ClientID   string
	ClientName string
	ClientHost string // where the person was sent back to, as Request.RedirectHost
	AccountID  string // who approved it
	BusinessID string
	// Scopes is what was granted; of a Grant that Authenticate returns, what its access token allows, which may be less.
	Scopes     scope.Set
	CreatedAt  time.Time
	LastUsedAt time.Time // to a minute; CreatedAt if never
	ExpiresAt  time.Time // unless it is refreshed before
}

// Server is the authorization server. Its methods may be called from many goroutines.
type Server struct {
	o         Options
	resource  string
	store     *store
	limiter   *redis_rate.Limiter
	fetcher   *fetcher
	fetches   singleflight.Group
	endpoints map[string]*endpoint
}

// New makes a server. It asks Redis nothing yet, and holds nothing that would have to be closed.
func New(o Options) (*Server, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("authorization server: %w", err)
	}
	s := &Server{
		o:        o,
		resource: o.Issuer + o.ResourcePath,
		store:    newStore(&o),
		limiter:  redis_rate.NewLimiter(o.Redis),
		fetcher:  newFetcher(o.HTTPClient),
	}
	reading := []string{http.MethodGet, http.MethodHead}
	headers := []string{"Authorization", "Content-Type", "MCP-Protocol-Version"}
	post := func(serve http.HandlerFunc) *endpoint {
		return &endpoint{methods: []string{http.MethodPost}, cors: true, headers: headers, serve: serve}
	}
	metadata := func(document any) *endpoint {
		return &endpoint{methods: reading, cors: true, headers: headers, serve: serveMetadata(document)}
	}
	s.endpoints = map[string]*endpoint{
		pathResourceMetadata:                  metadata(s.resourceMetadata()),
		pathResourceMetadata + o.ResourcePath: metadata(s.resourceMetadata()),
		pathServerMetadata:                    metadata(s.serverMetadata()),
		pathOpenIDAlias:                       metadata(s.serverMetadata()),
		pathAuthorize:                         {methods: append(slices.Clone(reading), http.MethodPost), serve: s.serveAuthorize},
		pathToken:                             post(s.serveToken),
		pathRevoke:                            post(s.serveRevoke),
		pathRegister:                          post(s.serveRegister),
	}
	return s, nil
}

// Issuer is the issuer's identifier, the origin.
func (s *Server) Issuer() string { return s.o.Issuer }

// Resource is the identifier of what the tokens are for: the audience.
func (s *Server) Resource() string { return s.resource }
