package oauth

import (
	"context"
	"net/http"
	"time"

	"github.com/gatehouse-gateway/gatehouse/connect/audit"
)

const (
	RequestLifetime      = requestLifetime
	CodeLifetime         = codeLifetime
	AccessLifetime       = accessLifetime
	RefreshIdle          = refreshIdle
	GrantLifetime        = grantLifetime
	RefreshGrace         = refreshGrace
	RegistrationLifetime = registrationLifetime
	UnusedLifetime       = unusedLifetime
	MaxRepeats           = maxRepeats
	MaxAccessTokens      = maxAccessTokens
	MaxGrants            = maxGrants
)

var (
	PublicDialer     = publicDialer
	PublicTransport  = publicTransport
	Freshness        = freshness
	MatchRedirect    = matchRedirect
	ValidDocumentURL = validDocumentURL
	WithParameters   = withParameters
)

// SetTimeout sets the timeout of one Redis call.
func (o *Options) SetTimeout(timeout time.Duration) { o.timeout = timeout }

// SetTransport sets the transport for metadata documents.
func (o *Options) SetTransport(transport http.RoundTripper) { o.transport = transport }

// Limits are the rate limits, to read and to change.
func (o *Options) Limits() *limits {
	if o.limits == (limits{}) {
		o.limits = defaultLimits()
	}
	return &o.limits
}

// CheckRedirectURI checks a redirect URI. schemes are Options.ClientSchemes.
func CheckRedirectURI(raw string, schemes ...string) (display string, local bool, err error) {
	if schemes == nil {
		schemes = DefaultClientSchemes()
	}
	s := &Server{o: Options{ClientSchemes: schemes}}
	u, err := s.redirectURI(raw)
	return u.display(), u.local(), err
}

// GrantKey and the others are the names of keys in Redis.
func (s *Server) GrantKey(id string) string    { return s.grantKey(id) }
func (s *Server) RequestKey(id string) string  { return s.requestKey(id) }
func (s *Server) BusinessKey(id string) string { return s.businessKey(id) }
func (s *Server) ClientKey(id string) string   { return s.clientKey(id) }

// Documents is the client for metadata documents.
func (s *Server) Documents() *http.Client { return s.documents }

// Audit is the server's audit log.
func (s *Server) Audit() *audit.Log { return s.o.Audit }

// LoadScripts loads the scripts into Redis.
func (s *Server) LoadScripts(ctx context.Context) error {
	for _, script := range s.scripts {
		if err := script.Load(ctx, s.o.Redis).Err(); err != nil {
			return err
		}
	}
	return nil
}

// Exists reports whether Redis has a connection.
func (s *Server) Exists(ctx context.Context, id string) (bool, error) {
	n, err := s.o.Redis.Exists(ctx, s.grantKey(id)).Result()
	return n == 1, err
}
