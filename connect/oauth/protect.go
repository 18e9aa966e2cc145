package oauth

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
)

// Protect passes requests with a valid access token to next, which gets the grant from [GrantFrom] and the account that approved
// it from [AccountFrom]. If the account may no longer have connections, Protect ends this one. Other requests get the challenges of
// RFC 6750 and RFC 9728 with a JSON body.
func (s *Server) Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		grant, err := s.authenticateRequest(r)
		requestlog.From(r.Context()).Add(func(f *requestlog.Fields) { f.Verify = time.Since(start) })
		if err != nil {
			s.rejectRequest(w, r, err)
			return
		}
		logGrant(r.Context(), grant)
		by, err := s.checkAccount(r.Context(), grant)
		if err != nil && !errors.Is(err, account.ErrUnavailable) { // next decides whether it needs the account
			s.rejectRequest(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(WithAuthorization(r.Context(), grant, by, err)))
	})
}

// errNoToken is returned for a request without a token.
var errNoToken = errors.New("no access token")

func (s *Server) authenticateRequest(r *http.Request) (Grant, error) {
	// A token in the query would end up in logs and browser histories. A request must not use two methods (RFC 6750, section 2).
	inQuery := r.URL.Query().Has("access_token")
	headers := r.Header.Values("Authorization")
	switch {
	case len(headers) == 0:
		return Grant{}, errNoToken
	case len(headers) > 1 || inQuery:
		return Grant{}, badRequest(codeInvalidRequest, "the access token must be in exactly one Authorization header and not in the query")
	}
	scheme, token, _ := strings.Cut(headers[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return Grant{}, errNoToken
	}
	return s.Authenticate(r.Context(), strings.Trim(token, " "))
}

func (s *Server) rejectRequest(w http.ResponseWriter, r *http.Request, err error) {
	p := &problem{status: http.StatusUnauthorized, code: codeInvalidToken, cause: err}
	var rejected *problem
	switch {
	case errors.Is(err, errNoToken):
		p.description = "an access token is required"
	case errors.Is(err, ErrInvalidToken), errors.Is(err, errAccount):
		p.description = "the access token is invalid, expired or revoked, or was issued for another resource"
	case errors.As(err, &rejected):
		p = rejected
	default:
		writeProblem(w, s.newProblem(r.Context(), err))
		return
	}
	p = s.newProblem(r.Context(), p)
	code := p.code
	if errors.Is(err, errNoToken) {
		code = "" // RFC 6750, section 3.1: no error code for a request without authentication
	}
	s.challenge(w.Header(), code, p.description, s.o.Areas.Everything().String())
	writeProblem(w, p)
}

// challenge sets WWW-Authenticate and exposes it to scripts. The values must not need escaping.
func (s *Server) challenge(h http.Header, code, description, scopes string) {
	challenge := "Bearer "
	if code != "" {
		challenge += `error="` + code + `", error_description="` + description + `", `
	}
	challenge += `resource_metadata="` + s.o.Issuer + pathResourceMetadata + ResourcePath + `"`
	if scopes != "" {
		challenge += `, scope="` + scopes + `"`
	}
	h.Set("WWW-Authenticate", challenge)
	h.Add("Access-Control-Expose-Headers", "WWW-Authenticate")
}

// InsufficientScope sets the challenge of a response with status 403, which names the required scopes (RFC 6750, section 3.1). It
// leaves out unknown scopes.
func (s *Server) InsufficientScope(h http.Header, required ...string) {
	var names []string
	for _, name := range required {
		if set, err := s.o.Areas.Parse(name); err == nil && !set.IsZero() {
			names = append(names, set.String())
		}
	}
	s.challenge(h, codeInsufficientScope, "the connection lacks the required scope", strings.Join(names, " "))
}

// authorization is the result of Protect's checks of a request.
type authorization struct {
	grant      Grant
	account    account.Account
	accountErr error // of the lookup of account
}

type authorizationKey struct{}

// WithAuthorization returns a context with the grant for [GrantFrom], and the account or the error for [AccountFrom].
func WithAuthorization(ctx context.Context, g Grant, by account.Account, err error) context.Context {
	return context.WithValue(ctx, authorizationKey{}, authorization{g, by, err})
}

// GrantFrom returns the grant that [Server.Protect] put into the context.
func GrantFrom(ctx context.Context) (Grant, bool) {
	a, ok := ctx.Value(authorizationKey{}).(authorization)
	return a.grant, ok
}

// AccountFrom returns the account that approved the request's grant, as it was at most [account.CacheTTL] ago. Its error is
// account.ErrUnavailable, if the lookup failed.
func AccountFrom(ctx context.Context) (account.Account, error) {
	a, ok := ctx.Value(authorizationKey{}).(authorization)
	if !ok {
		return account.Account{}, account.ErrUnavailable
	}
	return a.account, a.accountErr
}
