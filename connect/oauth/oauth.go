package oauth

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"github.com/gatehouse-gateway/gatehouse/connect/scope"
	"github.com/gatehouse-gateway/gatehouse/internal/redisrate"
)

// Errors of a [Server]'s methods.
var (
	// ErrUnavailable is returned if Redis is unavailable. It wraps the cause, which may contain Redis's address and is for the
	// log only.
	ErrUnavailable = errors.New("the store of connections is unavailable")

	ErrOutcomeUnknown = errors.New("unknown whether the change was made") // together with ErrUnavailable

	// ErrNoRequest is returned for an authorization request that does not exist, has expired, was decided differently, was
	// approved by another account, or whose code was redeemed.
	ErrNoRequest = errors.New("no such authorization request")

	ErrNotOwner      = errors.New("only an owner of the business may approve, change and end connections")
	ErrScopes        = errors.New("granted scopes are not a subset of the requested ones") // or there are none
	ErrInvalidToken  = errors.New("invalid access token")                                  // or one for another audience
	ErrNoGrant       = errors.New("no such connection")                                    // of the business
	ErrTooManyGrants = errors.New("the business has reached the maximum number of connections")
	ErrChanged       = errors.New("the connection was changed meanwhile") // its version is not the given one
)

// Client is an OAuth client.
type Client struct {
	ID string `json:"id"` // the https URL of its metadata document, or issued by the registration endpoint (RFC 7591)
	// Host is the host of the metadata document, which vouches for the metadata. It is "" for a client that registered itself:
	// its metadata are unverified.
	Host string `json:"host,omitempty"`
	// Name is client_name, without control and invisible characters and with at most 80 characters. The default is the host of
	// its ID or of a redirect URI.
	Name         string   `json:"name"`
	RedirectURIs []string `json:"redirect_uris,omitempty"`
	// LocalOnly is true if every redirect URI leads to the user's own machine (a loopback address or private-use scheme).
	// Any program there can impersonate such a client.
	LocalOnly bool `json:"local_only,omitempty"`
	Refreshes bool `json:"refreshes,omitempty"` // gets refresh tokens
}

// Request is a valid authorization request that waits for a user's decision.
type Request struct {
	ID          string `json:"-"`            // unguessable; for Pending, Approve and Deny only
	Client      Client `json:"client"`       // without RedirectURIs
	RedirectURI string `json:"redirect_uri"` // of the request; default: the client's only one
	// RedirectHost is the redirect target to show to the user: host and port, or a private-use scheme and a colon
	// ("cursor:").
	RedirectHost  string        `json:"-"`
	RedirectLocal bool          `json:"-"` // the redirect URI leads to the user's own machine
	Scopes        scope.Set     `json:"-"`
	ExpiresIn     time.Duration `json:"-"`
}

// Grant is a connection that a user has approved and whose code the client has redeemed. Its times are those of Redis's clock.
type Grant struct {
	ID         string
	ClientID   string
	ClientName string
	ClientHost string // Request.RedirectHost
	AccountID  string // of the account that approved it
	BusinessID string
	// Scopes are the granted scopes. In a Grant from Authenticate, they are fewer if the client asked for an access token with
	// fewer.
	Scopes     scope.Set
	Unasked    bool      // a client without elicitation may run tools that write to people
	Version    string    // of Scopes and Unasked, for Change; opaque
	ChangedAt  time.Time // when an owner last changed Scopes or Unasked; zero if never
	CreatedAt  time.Time
	LastUsedAt time.Time // accurate to a minute; CreatedAt if never used
	ExpiresAt  time.Time // unless a token is refreshed first
}

// Areas returns Options.Areas.
func (s *Server) Areas() scope.Areas { return s.o.Areas }

// Server is the authorization server. It is safe for concurrent use.
type Server struct {
	o         Options
	resource  string
	scripts   map[string]*redis.Script
	limiter   redisrate.Limiter
	documents *http.Client        // fetches metadata documents
	fetchSem  *semaphore.Weighted // limits concurrent fetches
	fetches   singleflight.Group  // by client ID
	endpoints map[string]endpoint // by path
	errorPage func(w http.ResponseWriter, r *http.Request, status int, title, detail string)
}

// New returns a server. It does not contact Redis, and the server need not be closed.
func New(o Options) (*Server, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("authorization server: %w", err)
	}
	s := &Server{
		o:        o,
		resource: o.Issuer + ResourcePath,
		scripts:  readScripts(),
		limiter:  redisrate.New(o.Redis),
		documents: &http.Client{
			Transport:     o.transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		fetchSem: semaphore.NewWeighted(maxConcurrentFetches),
	}
	post := func(serve handlerFunc) endpoint {
		return endpoint{methods: []string{http.MethodPost}, cors: true, serve: serve}
	}
	s.endpoints = map[string]endpoint{
		pathResourceMetadata:                serveMetadata(s.resourceMetadata()),
		pathResourceMetadata + ResourcePath: serveMetadata(s.resourceMetadata()),
		pathServerMetadata:                  serveMetadata(s.serverMetadata()),
		pathOpenIDAlias:                     serveMetadata(s.serverMetadata()),
		AuthorizePath:                       {methods: []string{http.MethodGet, http.MethodHead, http.MethodPost}, serve: s.serveAuthorize},
		pathToken:                           post(s.serveToken),
		pathRevoke:                          post(s.serveRevoke),
		pathRegister:                        post(s.serveRegister),
	}
	return s, nil
}

// Issuer returns the issuer identifier, an origin.
func (s *Server) Issuer() string { return s.o.Issuer }

// SetErrorPage sets the page with which /oauth/authorize responds to errors if the request accepts HTML; the default is JSON. It
// must be called before the first request. The caching headers are set before page is called.
func (s *Server) SetErrorPage(page func(w http.ResponseWriter, r *http.Request, status int, title, detail string)) {
	s.errorPage = page
}
