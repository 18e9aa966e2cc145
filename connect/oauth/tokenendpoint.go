package oauth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
)

// tokenResponse is a successful response of the token endpoint (RFC 6749, section 5.1).
type tokenResponse struct {
	AccessToken  string `json:"access_token"`
	TokenType    string `json:"token_type"`
	ExpiresIn    int64  `json:"expires_in"`
	RefreshToken string `json:"refresh_token,omitempty"`
	Scope        string `json:"scope"`
}

func (s *Server) serveToken(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	f, err := readForm(w, r)
	if err != nil {
		return err
	}
	clientID, grantType := f.Get("client_id"), f.Get("grant_type")
	exchange := map[string]func(context.Context, url.Values) (tokenResponse, error){grantCode: s.redeemCode, grantRefresh: s.useRefreshToken}[grantType]
	switch {
	case clientID == "":
		return badRequest(codeInvalidRequest, "client_id is missing")
	case grantType == "":
		return badRequest(codeInvalidRequest, "grant_type is missing")
	case exchange == nil:
		return badRequest(codeUnsupportedGrant, "grant_type must be authorization_code or refresh_token")
	}
	requestlog.From(ctx).Add(func(f *requestlog.Fields) { f.GrantType = grantType })
	response, err := exchange(ctx, f)
	if p, ok := errors.AsType[*problem](err); ok && p.code == codeInvalidGrant {
		// A client whose registration has expired needs invalid_client in order to register again.
		exists, err := s.clientExists(ctx, clientID)
		if err != nil {
			return err
		}
		if !exists {
			return badRequest(codeInvalidClient, "the client is not registered, or its registration has expired")
		}
	}
	if err != nil {
		return err
	}
	s.extendRegistration(ctx, clientID)
	writeJSON(w, http.StatusOK, response)
	return nil
}

// redeemCode exchanges an authorization code for tokens (OAuth 2.1 draft, section 4.1.3).
func (s *Server) redeemCode(ctx context.Context, f url.Values) (tokenResponse, error) {
	switch {
	case f.Get("code") == "":
		return tokenResponse{}, badRequest(codeInvalidRequest, "code is missing")
	case f.Get("code_verifier") == "":
		return tokenResponse{}, badRequest(codeInvalidRequest, "code_verifier is missing")
	case !validVerifier(f.Get("code_verifier")):
		return tokenResponse{}, badRequest(codeInvalidRequest, "code_verifier must be 43 to 128 unreserved characters")
	}
	invalid := badRequest(codeInvalidGrant, "the code is invalid, used or expired, or was issued for a different client_id, "+
		"redirect_uri or code_verifier")
	id, secret, ok := parseToken(kindCode, f.Get("code"), secretBytes)
	if !ok {
		return tokenResponse{}, invalid
	}
	rec, ok, err := s.loadRecord(ctx, id)
	if err != nil {
		return tokenResponse{}, err
	}
	// Check the verifier before reuse: only the client has it, and whoever else learns the code must not end the connection.
	sum := sha256.Sum256([]byte(f.Get("code_verifier")))
	redirect := cmp.Or(f.Get("redirect_uri"), rec.redirect) // may be absent (OAuth 2.1 draft, section 10.2)
	if !ok || !constantTimeEqual(rec.code, digest(secret)) || rec.resource != s.resource ||
		!constantTimeEqual(rec.ClientID, f.Get("client_id")) ||
		!constantTimeEqual(rec.challenge, encoding().EncodeToString(sum[:])) || redirect != rec.redirect {
		return tokenResponse{}, invalid
	}
	logGrant(ctx, rec.Grant)
	if err := s.checkResource(f); err != nil {
		return tokenResponse{}, err
	}
	if rec.state != stateCode {
		return tokenResponse{}, s.endMisused(ctx, rec, "The authorization code was reused", invalid)
	}
	if rec.Scopes.IsZero() {
		return tokenResponse{}, errNoScopeLeft()
	}
	if err := s.checkRoom(ctx, rec.BusinessID); errors.Is(err, ErrTooManyGrants) {
		return tokenResponse{}, badRequest(codeInvalidGrant, err.Error())
	} else if err != nil {
		return tokenResponse{}, err
	}

	access := randomBytes(secretBytes)
	refresh := refreshToken{family: randomBytes(familyBytes), own: randomBytes(secretBytes)}
	lifetime := accessLifetime
	var fields []any
	if rec.refreshes {
		lifetime = refreshIdle
		fields = []any{fieldFamily, digest(refresh.family), fieldCurrent, digest(refresh.own)}
	}
	if err := s.addToIndex(ctx, rec.BusinessID, id); err != nil {
		return tokenResponse{}, err
	}
	args := append([]any{
		newID(), rec.code, accessField(digest(access)), accessLifetime.Milliseconds(), lifetime.Milliseconds(), rec.granted,
	}, fields...)
	var outcome string
	_, err = s.change(ctx, s.entry(ctx, rec.Grant, audit.ConnectionStarted, recorded(rec.Scopes)), audit.OutcomeOK,
		func() (redeemed bool, err error) {
			outcome, err = s.runText(ctx, []string{outcomeRedeemed, outcomeUsed, outcomeGone}, "redeem", s.grantKeys(id), args...)
			return outcome == outcomeRedeemed, err
		})
	switch {
	case err != nil:
		return tokenResponse{}, err
	case outcome == outcomeUsed: // by a concurrent request
		return tokenResponse{}, s.endMisused(ctx, rec, "The authorization code was reused", invalid)
	case outcome == outcomeGone:
		return tokenResponse{}, invalid
	}
	response := tokenResponse{format(kindAccess, id, access), "Bearer", int64(accessLifetime / time.Second), "", rec.Scopes.String()}
	if rec.refreshes {
		response.RefreshToken = refresh.format(id)
	}
	return response, nil
}

// endMisused ends a connection whose code or refresh token was reused, because it may have been stolen, and returns invalid.
func (s *Server) endMisused(ctx context.Context, rec record, how string, invalid error) error {
	if err := s.endWithoutAccount(ctx, rec.Grant, how); err != nil {
		return err
	}
	return invalid
}

// errOutdated is returned if another request has used the refresh token or changed the connection since it was read.
var errOutdated = errors.New("the connection was refreshed or changed concurrently")

// useRefreshToken exchanges a refresh token for new tokens (OAuth 2.1 draft, section 4.3).
func (s *Server) useRefreshToken(ctx context.Context, f url.Values) (tokenResponse, error) {
	if f.Get("refresh_token") == "" {
		return tokenResponse{}, badRequest(codeInvalidRequest, "refresh_token is missing")
	}
	const attempts = 4 // other requests may use the token or change the connection
	for range attempts {
		response, err := s.refreshOnce(ctx, f)
		if !errors.Is(err, errOutdated) {
			return response, err
		}
	}
	return tokenResponse{}, unavailable("refreshing", errOutdated)
}

// refreshOnce makes one attempt to use a refresh token. Its error is errOutdated if another attempt may succeed.
func (s *Server) refreshOnce(ctx context.Context, f url.Values) (tokenResponse, error) {
	invalid := badRequest(codeInvalidGrant, "the refresh token is invalid, used, revoked or expired, or was issued to another client")
	id, token, ok := parseRefresh(f.Get("refresh_token"))
	if !ok {
		return tokenResponse{}, invalid
	}
	rec, ok, err := s.loadRecord(ctx, id)
	if err != nil {
		return tokenResponse{}, err
	}
	if !ok || rec.state != stateLive || !constantTimeEqual(rec.family, digest(token.family)) || rec.resource != s.resource ||
		!constantTimeEqual(rec.ClientID, f.Get("client_id")) {
		return tokenResponse{}, invalid
	}
	logGrant(ctx, rec.Grant)
	if err := s.checkResource(f); err != nil {
		return tokenResponse{}, err
	}
	asked, err := s.requestedScopes(f.Get("scope"), rec.Scopes, rec.granted+" "+rec.told+" "+rec.wasTold)
	if err != nil {
		return tokenResponse{}, err
	}
	// Some clients send in each refresh the scope of the last token response. That does not limit the access token, even if
	// the connection has changed since. A repetition may send the scope of the response before the token's first use.
	scopes, stored, told := rec.Scopes, wholeGrant, []scope.Set{rec.Scopes, s.o.Areas.Unpin(rec.told)}
	if constantTimeEqual(digest(token.own), rec.previous) {
		told = append(told, s.o.Areas.Unpin(rec.wasTold))
	}
	switch {
	case slices.ContainsFunc(told, asked.Equals):
	case slices.ContainsFunc(told, func(each scope.Set) bool { return each.Contains(asked) }):
		scopes = asked.Narrow(rec.Scopes.Includes)
		stored = scopes.Pin()
	default:
		return tokenResponse{}, badRequest(codeInvalidScope, "scope exceeds the granted scopes")
	}
	if scopes.IsZero() {
		return tokenResponse{}, errNoScopeLeft()
	}
	switch _, err := s.checkAccount(ctx, rec.Grant); {
	case errors.Is(err, errAccount):
		return tokenResponse{}, invalid
	case err != nil:
		return tokenResponse{}, err
	}
	response, outcome, err := s.rotate(ctx, rec, token, scopes, stored)
	if err != nil {
		return tokenResponse{}, err
	}
	switch outcome {
	case outcomeRefreshed:
		return response, nil
	case outcomeOutdated:
		return tokenResponse{}, errOutdated
	case outcomeOverused:
		return tokenResponse{}, &problem{ // not invalid_grant: clients would discard good tokens; no retry: they would repeat this one
			status: http.StatusTooManyRequests, code: codeTooManyRequests,
			description: "the refresh token was used too often at the same time, use the newest one",
		}
	case outcomeReused:
		return tokenResponse{}, s.endMisused(ctx, rec, "A rotated refresh token was reused", invalid)
	case outcomeGone:
		return tokenResponse{}, invalid
	}
	return tokenResponse{}, unexpectedReply("refresh", outcome)
}

// rotate uses a refresh token and returns the outcome, and the response if that is outcomeRefreshed. The new tokens are derived
// from the current token with a new nonce, or from the previous token with the nonce of its first use. stored is what the access
// token's field has for scopes: wholeGrant or fewer scopes.
func (s *Server) rotate(
	ctx context.Context, rec record, token refreshToken, scopes scope.Set, stored string,
) (response tokenResponse, outcome string, err error) {
	presented, nonce := digest(token.own), rec.nonce
	if !constantTimeEqual(presented, rec.previous) {
		nonce = encoding().EncodeToString(randomBytes(secretBytes))
	}
	if constantTimeEqual(presented, rec.current) {
		if err := s.addToIndex(ctx, rec.BusinessID, rec.ID); err != nil {
			return tokenResponse{}, "", err
		}
	}
	next, access := token.next(nonce), token.access(nonce, stored)
	reply, err := s.run(ctx, "refresh", []string{s.grantKey(rec.ID), s.attemptsKey(rec.ID)},
		newID(), presented, nonce, digest(next.own), accessField(digest(access)), stored, accessLifetime.Milliseconds(),
		refreshIdle.Milliseconds(), grantLifetime.Milliseconds(), refreshGrace.Milliseconds(), maxRepeats, maxAccessTokens, rec.granted)
	if err != nil {
		return tokenResponse{}, "", err
	}
	values, _ := reply.([]any)
	outcome = texts(values)(0)
	if outcome != outcomeRefreshed {
		return tokenResponse{}, outcome, nil
	}
	left, ok := values[len(values)-1].(int64)
	if !ok {
		return tokenResponse{}, "", unexpectedReply("refresh", reply)
	}
	expires := max(1, left/int64(time.Second/time.Millisecond)) // some clients take 0 for a token that never expires
	return tokenResponse{format(kindAccess, rec.ID, access), "Bearer", expires, next.format(rec.ID), scopes.String()}, outcome, nil
}
