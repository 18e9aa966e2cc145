package oauth

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"strings"
	"time"

	"go.uber.org/zap"

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
	now := s.o.Now()
	if rec.state == stateCode && !now.Before(rec.ExpiresAt) {
		return tokenResponse{}, invalid
	}
	if err := s.checkResource(f); err != nil {
		return tokenResponse{}, err
	}

	access := randomBytes(secretBytes)
	refresh := refreshToken{family: newFamily(), own: randomBytes(secretBytes)}
	ends := now.Add(AccessLifetime)
	fields := []any{accessField(digest(access)), millis(ends) + " " + rec.Scopes.String()}
	if rec.refreshes {
		ends = now.Add(RefreshIdle)
		fields = append(fields, fieldFamily, digest(refresh.family), fieldCurrent, digest(refresh.own))
	}
	fields = append(fields, fieldEnds, millis(ends))
	if rec.state == stateCode {
		if err := s.store.enter(ctx, rec.BusinessID, id, now, ends); err != nil {
			return tokenResponse{}, err
		}
	}
	verdict, err := s.store.runText(ctx, "redeeming a code", s.store.redeem,
		[]string{s.store.grantKey(id), s.store.requestKey(id)},
		append([]any{rec.code, newID(), milliseconds(ends.Sub(now))}, fields...)...)
	if err != nil {
		return tokenResponse{}, err
	}
	rec.ExpiresAt = ends
	switch verdict {
	case "redeemed":
		s.notify(ctx, ActionConnected, rec.Grant)
	case "replayed":
		s.store.leave(ctx, rec.BusinessID, id)
		s.notify(ctx, ActionCodeReplayed, rec.Grant)
		return tokenResponse{}, invalid
	default:
		s.store.leave(ctx, rec.BusinessID, id)
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
		now := s.o.Now()
		if !ok || rec.state != stateLive || !same(rec.family, digest(token.family)) || rec.resource != s.resource ||
			!same(rec.ClientID, f.get("client_id")) || !now.Before(rec.ExpiresAt) {
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
		answer, verdict, err := s.rotate(ctx, rec, token, scopes, now)
		if err != nil {
			return tokenResponse{}, err
		}
		switch verdict {
		case "rotated":
			return answer, nil
		case "repeated":
			// The access token is as old as the first answer; how old is not worth knowing more exactly.
			answer.ExpiresIn = max(1, answer.ExpiresIn-int64(RefreshGrace/time.Second))
			return answer, nil
		case "often":
			return tokenResponse{}, errInvalidGrant("the refresh token was used too often")
		case "reused":
			s.store.leave(ctx, rec.BusinessID, id)
			s.notify(ctx, ActionRefreshReused, rec.Grant)
			return tokenResponse{}, invalid
		case "gone":
			return tokenResponse{}, invalid
		}
	}
	return tokenResponse{}, errInvalidGrant("the refresh token was used too often")
}

// rotate has the store use a refresh token. What it would answer is derived before: of the current token with a new
// nonce, of the one before with the nonce of its first use.
func (s *Server) rotate(
	ctx context.Context, rec record, token refreshToken, scopes scope.Set, now time.Time,
) (answer tokenResponse, verdict string, err error) {
	presented := digest(token.own)
	nonce := rec.nonce
	ends := rec.ExpiresAt
	if !same(presented, rec.previous) {
		nonce = encoding().EncodeToString(randomBytes(secretBytes))
		if ends = now.Add(RefreshIdle); ends.After(rec.CreatedAt.Add(GrantLifetime)) {
			ends = rec.CreatedAt.Add(GrantLifetime)
		}
		if same(presented, rec.current) {
			if err := s.store.enter(ctx, rec.BusinessID, rec.ID, now, ends); err != nil {
				return tokenResponse{}, "", err
			}
		}
	}
	accessEnds := now.Add(AccessLifetime)
	if accessEnds.After(ends) {
		accessEnds = ends
	}
	next, access := token.next(nonce), token.access(nonce, scopes.String())
	verdict, err = s.store.runText(ctx, "using a refresh token", s.store.refresh, []string{s.store.grantKey(rec.ID)},
		presented, nonce, digest(next.own), digest(access), millis(now), millis(accessEnds), scopes.String(), millis(ends),
		milliseconds(RefreshGrace), MaxRepeats, MaxAccessTokens, milliseconds(ends.Sub(now)))
	if err != nil {
		return tokenResponse{}, "", err
	}
	return tokenResponse{
		AccessToken:  format(kindAccess, rec.ID, access),
		TokenType:    "Bearer",
		ExpiresIn:    int64(accessEnds.Sub(now) / time.Second),
		RefreshToken: next.format(rec.ID),
		Scope:        scopes.String(),
	}, verdict, nil
}

// notify tells what nobody on a page has decided.
func (s *Server) notify(ctx context.Context, action Action, g Grant) {
	log := s.o.Log.Info
	if action == ActionCodeReplayed || action == ActionRefreshReused {
		log = s.o.Log.Warn
	}
	log("connection "+string(action), zap.String("grant_id", g.ID), zap.String("business_id", g.BusinessID),
		zap.String("client_id", g.ClientID))
	s.o.Notify(context.WithoutCancel(ctx), Event{Time: s.o.Now(), Action: action, Grant: g})
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
	rec, _, ok, err := s.findAccess(ctx, id, secret)
	if err != nil || !ok {
		return err
	}
	if err := mine(rec); err != nil {
		return err
	}
	return s.store.ask(ctx, "revoking an access token", func(ctx context.Context) error {
		return s.o.Redis.HDel(ctx, s.store.grantKey(id), accessField(digest(secret))).Err()
	})
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
	ended, err := s.store.endIf(ctx, id, fieldFamily, rec.family)
	if err != nil || !ended {
		return err
	}
	s.store.leave(ctx, rec.BusinessID, id)
	s.notify(ctx, ActionRevoked, rec.Grant)
	return nil
}
