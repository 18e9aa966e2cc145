package oauth

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
)

// tokenResponse is the answer of the token endpoint (RFC 6749, section 5.1).
type tokenResponse struct {
	AccessToken  string `json:"access_token"`
	TokenType    string `json:"token_type"`
	ExpiresIn    int64  `json:"expires_in"`
	RefreshToken string `json:"refresh_token,omitempty"`
	Scope        string `json:"scope"`
}

func errInvalidGrant(description string) error { return refuse(codeInvalidGrant, description) }

func (s *Server) serveToken(w http.ResponseWriter, r *http.Request) {
	noStore(w)
	answer, err := s.token(w, r)
	if err != nil {
		p := s.problemOf("token request refused", err)
		if p.code == codeInvalidClient && r.Header.Get("Authorization") != "" {
			w.Header().Set("WWW-Authenticate", "Basic realm=\"public clients have no secret\"") // RFC 6749, section 5.2
		}
		writeProblem(w, p)
		return
	}
	writeJSON(w, http.StatusOK, answer)
}

func invalidClient(description string) error {
	return &problem{status: http.StatusUnauthorized, code: codeInvalidClient, description: description}
}

func (s *Server) token(w http.ResponseWriter, r *http.Request) (tokenResponse, error) {
	ctx := r.Context()
	f, err := readForm(w, r)
	if err != nil {
		return tokenResponse{}, err
	}
	if r.Header.Get("Authorization") != "" || f.get("client_secret") != "" {
		return tokenResponse{}, invalidClient("clients are public here: send the client_id and no secret")
	}
	clientID := f.get("client_id")
	if clientID == "" {
		return tokenResponse{}, refuse(codeInvalidRequest, "client_id is missing")
	}
	var answer tokenResponse
	switch f.get("grant_type") {
	case "":
		return tokenResponse{}, refuse(codeInvalidRequest, "grant_type is missing")
	case grantCode:
		answer, err = s.redeemCode(ctx, f)
	case grantRefresh:
		answer, err = s.useRefreshToken(ctx, f)
	default:
		return tokenResponse{}, refuse(codeUnsupportedGrant, "grant_type has to be authorization_code or refresh_token")
	}
	var p *problem
	if errors.As(err, &p) && p.code == codeInvalidGrant {
		// A client whose registration is gone has to learn that, or it would ask for an approval that it cannot get.
		known, unknowable := s.knows(ctx, clientID)
		if unknowable != nil {
			return tokenResponse{}, unknowable
		}
		if !known {
			return tokenResponse{}, invalidClient("the client is not registered, or not any more")
		}
	}
	if err == nil {
		s.useClient(ctx, clientID)
	}
	return answer, err
}

// redeemCode exchanges an authorization code (OAuth 2.1 draft, section 4.1.3).
func (s *Server) redeemCode(ctx context.Context, f form) (tokenResponse, error) {
	switch {
	case f.get("code") == "":
		return tokenResponse{}, refuse(codeInvalidRequest, "code is missing")
	case f.get("code_verifier") == "":
		return tokenResponse{}, refuse(codeInvalidRequest, "code_verifier is missing")
	case !validVerifier(f.get("code_verifier")):
		return tokenResponse{}, refuse(codeInvalidRequest, "code_verifier is malformed")
	}
	invalid := errInvalidGrant("the code is unknown, used or too old, or was issued for something else")
	id, secret, ok := parseToken(kindCode, f.get("code"), secretBytes)
	if !ok {
		return tokenResponse{}, invalid
	}
	rec, ok, err := s.store.load(ctx, id)
	if err != nil {
		return tokenResponse{}, err
	}
	// Only the client that the code was issued to has the verifier: without it a code does nothing, not even harm.
	sum := sha256.Sum256([]byte(f.get("code_verifier")))
	if !ok || !same(rec.code, digest(secret)) || rec.resource != s.resource ||
		!same(rec.ClientID, f.get("client_id")) ||
		!same(rec.challenge, encoding().EncodeToString(sum[:])) ||
		!sameRedirect(rec.redirect, f.get("redirect_uri")) {
		return tokenResponse{}, invalid
	}
	if err := s.checkResource(f); err != nil {
		return tokenResponse{}, err
	}
	if rec.state != stateCode {
		return tokenResponse{}, s.misused(ctx, rec, "Its authorization code was used twice", invalid)
	}

	access := randomBytes(secretBytes)
	refresh := refreshToken{family: newFamily(), own: randomBytes(secretBytes)}
	lifetime := AccessLifetime
	var fields []any
	if rec.refreshes {
		lifetime = RefreshIdle
		fields = []any{fieldFamily, digest(refresh.family), fieldCurrent, digest(refresh.own)}
	}
	if err := s.store.enter(ctx, rec.BusinessID, id); err != nil {
		return tokenResponse{}, err
	}
	var verdict any
	args := append([]any{
		newID(), rec.code, accessField(digest(access)), milliseconds(AccessLifetime), milliseconds(lifetime),
	}, fields...)
	redeemed, err := s.change(ctx, s.entry(ctx, rec.Grant, audit.ConnectionStarted, rec.Scopes.String()), audit.OutcomeOK,
		func() (_ bool, err error) {
			verdict, err = s.store.run(ctx, "redeeming a code", s.store.redeem, s.store.keys(id), args...)
			return verdict == "redeemed", err
		})
	switch {
	case err != nil:
		return tokenResponse{}, err
	case verdict == "used": // at the same time
		return tokenResponse{}, s.misused(ctx, rec, "Its authorization code was used twice", invalid)
	case !redeemed:
		return tokenResponse{}, invalid
	}
	answer := tokenResponse{
		AccessToken: format(kindAccess, id, access),
		TokenType:   "Bearer",
		ExpiresIn:   int64(AccessLifetime / time.Second),
		Scope:       rec.Scopes.String(),
	}
	if rec.refreshes {
		answer.RefreshToken = refresh.format(id)
	}
	return answer, nil
}

// misused ends a connection of which a code or a refresh token was used once too often: one of the users has stolen it.
func (s *Server) misused(ctx context.Context, rec record, how string, invalid error) error {
	if _, err := s.end(ctx, s.entry(ctx, rec.Grant, audit.ConnectionRevoked, how)); err != nil {
		return err
	}
	return invalid
}

// sameRedirect compares the redirect URI of the authorization request, "" if it named none, with that of the token
// request. The latter need not name it (OAuth 2.1 draft, section 10.2); if it does it has to be the same.
func sameRedirect(authorized, named string) bool {
	return named == "" || named == authorized
}

// useRefreshToken exchanges a refresh token (OAuth 2.1 draft, section 4.3).
func (s *Server) useRefreshToken(ctx context.Context, f form) (tokenResponse, error) {
	if f.get("refresh_token") == "" {
		return tokenResponse{}, refuse(codeInvalidRequest, "refresh_token is missing")
	}
	invalid := errInvalidGrant("the refresh token is unknown, used, revoked or too old, or was issued for something else")
	id, token, ok := parseRefresh(f.get("refresh_token"))
	if !ok {
		return tokenResponse{}, invalid
	}
	const attempts = 4 // others may be using the same token at the same time
	for range attempts {
		rec, ok, err := s.store.load(ctx, id)
		if err != nil {
			return tokenResponse{}, err
		}
		if !ok || rec.state != stateLive || !same(rec.family, digest(token.family)) || rec.resource != s.resource ||
			!same(rec.ClientID, f.get("client_id")) {
			return tokenResponse{}, invalid
		}
		if err := s.checkResource(f); err != nil {
			return tokenResponse{}, err
		}
		scopes, err := requestedScopes(f.get("scope"), rec.Scopes)
		if err != nil {
			return tokenResponse{}, err
		}
		if !rec.Scopes.Contains(scopes) {
			return tokenResponse{}, refuse(codeInvalidScope, "scope holds more than was granted")
		}
		switch _, err := s.checkAccount(ctx, rec.Grant); {
		case errors.Is(err, errAccount):
			return tokenResponse{}, invalid
		case errors.Is(err, account.ErrUnavailable):
			return tokenResponse{}, away(err)
		case err != nil:
			return tokenResponse{}, err
		}
		answer, verdict, err := s.rotate(ctx, rec, token, scopes)
		if err != nil {
			return tokenResponse{}, err
		}
		switch verdict {
		case "used":
			return answer, nil
		case "often":
			return tokenResponse{}, errInvalidGrant("the refresh token was used too often")
		case "reused":
			return tokenResponse{}, s.misused(ctx, rec, "An old refresh token of it was used", invalid)
		case "gone":
			return tokenResponse{}, invalid
		}
	}
	return tokenResponse{}, errInvalidGrant("the refresh token was used too often")
}

// rotate has the store use a refresh token. What it would answer is derived before: of the current token with a new
// nonce, of the one before with the nonce of its first use.
func (s *Server) rotate(
	ctx context.Context, rec record, token refreshToken, scopes scope.Set,
) (answer tokenResponse, verdict string, err error) {
	presented, nonce := digest(token.own), rec.nonce
	if !same(presented, rec.previous) {
		nonce = encoding().EncodeToString(randomBytes(secretBytes))
	}
	if same(presented, rec.current) {
		if err := s.store.enter(ctx, rec.BusinessID, rec.ID); err != nil {
			return tokenResponse{}, "", err
		}
	}
	next, access := token.next(nonce), token.access(nonce, scopes.String())
	values, _, err := s.store.runList(ctx, 1, "using a refresh token", s.store.refresh,
		[]string{s.store.grantKey(rec.ID), s.store.attemptsKey(rec.ID)},
		newID(), presented, nonce, digest(next.own), accessField(digest(access)), scopes.Pin(), milliseconds(AccessLifetime),
		milliseconds(RefreshIdle), milliseconds(GrantLifetime), milliseconds(RefreshGrace), MaxRepeats, MaxAccessTokens)
	if err != nil {
		return tokenResponse{}, "", err
	}
	verdict = texts(values)(0)
	if len(values) > 1 {
		good, _ := values[1].(int64)
		// Some clients take 0 for a token without an end.
		answer.ExpiresIn = max(1, good/int64(time.Second/time.Millisecond))
	}
	answer.AccessToken, answer.TokenType = format(kindAccess, rec.ID, access), "Bearer"
	answer.RefreshToken, answer.Scope = next.format(rec.ID), scopes.String()
	return answer, verdict, nil
}

// serveRevoke takes tokens back (RFC 7009). It says the same of a token that was never there as of one that was.
func (s *Server) serveRevoke(w http.ResponseWriter, r *http.Request) {
	noStore(w)
	if err := s.revokeToken(w, r); err != nil {
		writeProblem(w, s.problemOf("revocation refused", err))
		return
	}
	writeJSON(w, http.StatusOK, struct{}{})
}

func (s *Server) revokeToken(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	f, err := readForm(w, r)
	if err != nil {
		return err
	}
	token := f.get("token")
	if token == "" {
		return refuse(codeInvalidRequest, "token is missing")
	}
	if r.Header.Get("Authorization") != "" || f.get("client_secret") != "" {
		return invalidClient("clients are public here: send the client_id and no secret")
	}
	// Whoever holds a token may give it back; a client that names itself has to be the token's.
	mine := func(rec record) error {
		if named := f.get("client_id"); named != "" && named != rec.ClientID {
			return errInvalidGrant("the token was issued to another client")
		}
		return nil
	}
	if strings.HasPrefix(token, kindRefresh) {
		return s.revokeRefreshToken(ctx, token, mine)
	}
	id, secret, ok := parseToken(kindAccess, token, secretBytes)
	if !ok {
		return nil
	}
	rec, found, err := s.store.load(ctx, id, accessField(digest(secret)))
	if err != nil || !found || rec.access == "" {
		return err
	}
	if err := mine(rec); err != nil {
		return err
	}
	_, err = s.store.run(ctx, "revoking an access token", s.store.revoke, []string{s.store.grantKey(id)},
		accessField(digest(secret)))
	return err
}

// revokeRefreshToken ends the connection that a refresh token is of, current or not.
func (s *Server) revokeRefreshToken(ctx context.Context, token string, mine func(record) error) error {
	id, refresh, ok := parseRefresh(token)
	if !ok {
		return nil
	}
	rec, ok, err := s.store.load(ctx, id)
	if err != nil || !ok || !same(rec.family, digest(refresh.family)) {
		return err
	}
	if err := mine(rec); err != nil {
		return err
	}
	_, err = s.end(ctx, s.entry(ctx, rec.Grant, audit.ConnectionRevoked, "The app has revoked it"))
	return err
}
