package oauth

import "net/http"

// serveRevoke revokes an access token, or ends the connection of a refresh token, current or not (RFC 7009). It responds in the
// same way to unknown tokens.
func (s *Server) serveRevoke(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	f, err := readForm(w, r)
	if err != nil {
		return err
	}
	token := f.Get("token")
	if token == "" {
		return badRequest(codeInvalidRequest, "token is missing")
	}
	var rec record
	var known bool
	id, secret, isAccess := parseToken(kindAccess, token, secretBytes)
	access := accessField(digest(secret))
	if isAccess {
		rec, known, err = s.loadRecord(ctx, id, access)
		known = known && rec.access != ""
	} else if id, refresh, ok := parseRefresh(token); ok {
		rec, known, err = s.loadRecord(ctx, id)
		known = known && constantTimeEqual(rec.family, digest(refresh.family))
	}
	if err != nil {
		return err
	}
	if known {
		logGrant(ctx, rec.Grant)
		// Whoever has the token may revoke it. client_id is optional, but must match.
		if named := f.Get("client_id"); named != "" && named != rec.ClientID {
			return badRequest(codeInvalidGrant, "the token was issued to another client")
		}
		if isAccess {
			_, err = s.runText(ctx, []string{"revoked"}, "revoke", []string{s.grantKey(id)}, access)
		} else {
			err = s.endWithoutAccount(ctx, rec.Grant, "Revoked by the app")
		}
		if err != nil {
			return err
		}
	}
	writeJSON(w, http.StatusOK, struct{}{})
	return nil
}
