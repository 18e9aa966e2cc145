package oauth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"strings"
)

// Tokens, codes and request IDs consist of a prefix for their kind, the ID of the connection or request, a dot and a secret. ID and
// secret are in base64url, so that nothing needs escaping in headers, forms and URLs.
//
//	gat_<22 characters>.<43 characters>   access token
//	grt_<22 characters>.<64 characters>   refresh token
//	gac_<22 characters>.<43 characters>   authorization code
//	grq_<22 characters>.<43 characters>   authorization request
const (
	kindAccess  = "gat_"
	kindRefresh = "grt_"
	kindCode    = "gac_"
	kindRequest = "grq_"

	idBytes     = 16
	idChars     = 22 // idBytes in base64url
	secretBytes = 32
	familyBytes = 16
)

// encoding returns strict base64url without padding, in which every secret has exactly one encoding.
func encoding() *base64.Encoding { return base64.RawURLEncoding.Strict() }

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}

func newID() string { return encoding().EncodeToString(randomBytes(idBytes)) }

func format(kind, id string, secret []byte) string {
	return kind + id + "." + encoding().EncodeToString(secret)
}

// parseToken parses a token of a kind with a secret of size bytes.
func parseToken(kind, token string, size int) (id string, secret []byte, ok bool) {
	rest, ok := strings.CutPrefix(token, kind)
	if !ok || len(rest) != idChars+1+encoding().EncodedLen(size) || rest[idChars] != '.' {
		return "", nil, false
	}
	id = rest[:idChars]
	secret, err := encoding().DecodeString(rest[idChars+1:])
	if err != nil || len(secret) != size || !validID(id) {
		return "", nil, false
	}
	return id, secret, true
}

// validID reports whether id has the form of newID's results.
func validID(id string) bool {
	_, err := encoding().DecodeString(id)
	return err == nil && len(id) == idChars
}

// digest returns the SHA-256 of a secret, for storage. Secrets have at least 128 random bits, so need neither salt nor stretching.
func digest(secret []byte) string {
	sum := sha256.Sum256(secret)
	return encoding().EncodeToString(sum[:])
}

// derive derives a secret from another one and a stored nonce. A response can thus be repeated although its tokens are not stored,
// and neither input alone reveals the result.
func derive(secret []byte, purpose, nonce string) []byte {
	mac := hmac.New(sha256.New, secret)
	_, _ = mac.Write([]byte(purpose + "\x00" + nonce))
	return mac.Sum(nil)
}

func constantTimeEqual(a, b string) bool {
	return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}

// refreshToken is the secret of a refresh token. All refresh tokens of a connection share the family, by which a reused one is
// recognised without a list of old tokens.
type refreshToken struct {
	family []byte
	own    []byte
}

func parseRefresh(token string) (id string, t refreshToken, ok bool) {
	id, secret, ok := parseToken(kindRefresh, token, familyBytes+secretBytes)
	if !ok {
		return "", refreshToken{}, false
	}
	return id, refreshToken{family: secret[:familyBytes], own: secret[familyBytes:]}, true
}

func (t refreshToken) format(id string) string {
	return format(kindRefresh, id, append(append(make([]byte, 0, familyBytes+secretBytes), t.family...), t.own...))
}

// next returns the token's successor.
func (t refreshToken) next(nonce string) refreshToken {
	return refreshToken{family: t.family, own: derive(t.own, "refresh", nonce)}
}

// access returns the secret of the access token that is issued with the successor.
func (t refreshToken) access(nonce, scopes string) []byte {
	return derive(t.own, "access", nonce+"\x00"+scopes)
}
