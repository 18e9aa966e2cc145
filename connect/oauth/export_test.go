package oauth

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-gateway/gatehouse/connect/audit"
)

var (
	PublicDialer     = publicDialer
	PublicClient     = publicClient
	Freshness        = freshness
	MatchRedirect    = matchRedirect
	CleanName        = cleanName
	ValidDocumentURL = validDocumentURL
	WithParameters   = withParameters
)

// CheckRedirectURI checks a redirect URI. schemes are Options.ClientSchemes.
func CheckRedirectURI(raw string, schemes ...string) (display string, local bool, err error) {
	if schemes == nil {
		schemes = DefaultClientSchemes()
	}
	s := &Server{o: Options{ClientSchemes: schemes}}
	u, err := s.redirectURI(raw)
	return u.display(), u.local(), err
}

// GrantKey and RequestKey are the names of keys in Redis.
func (s *Server) GrantKey(id string) string    { return s.store.grantKey(id) }
func (s *Server) RequestKey(id string) string  { return s.store.requestKey(id) }
func (s *Server) BusinessKey(id string) string { return s.store.businessKey(id) }
func (s *Server) AttemptsKey(id string) string { return s.store.attemptsKey(id) }
func (s *Server) ClientKey(id string) string   { return s.store.clientKey(id) }

// Audit is the server's audit log.
func (s *Server) Audit() *audit.Log { return s.o.Audit }

// LoadScripts loads the scripts into Redis.
func (s *Server) LoadScripts(ctx context.Context) error {
	t := s.store
	for _, script := range []*redis.Script{t.approve, t.deny, t.redeem, t.refresh, t.end, t.revoke, t.authenticate} {
		if err := script.Load(ctx, s.o.Redis).Err(); err != nil {
			return err
		}
	}
	return nil
}

// Limits are the server's limits.
func (s *Server) Limits() Limits { return s.o.Limits }
