package oauth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"strings"
)

// Tokens, codes and request ids are a prefix that says what they are, the id of the connection, a dot and a secret, the
// latter two in base64url. They consist of characters that any header, form or URL carries unchanged.
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
	idChars     = 22
	secretBytes = 32
	familyBytes = 16
)

// encoding has one text for each value: no two tokens are the same secret.
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

// parseToken takes a token of a kind with a secret of size bytes apart.
func parseToken(kind, token string, size int) (id string, secret []byte, ok bool) {
	rest, ok := strings.CutPrefix(token, kind)
	if !ok || len(rest) != idChars+1+encoding().EncodedLen(size) || rest[idChars] != '.' {
		return "", nil, false
	}
	id = rest[:idChars]
	if !validID(id) {
		return "", nil, false
	}
	secret, err := encoding().DecodeString(rest[idChars+1:])
	if err != nil || len(secret) != size {
		return "", nil, false
	}
	return id, secret, true
}

// validID reports whether id has the form of a connection's.
func validID(id string) bool {
	if len(id) != idChars {
		return false
	}
	_, err := encoding().DecodeString(id)
	return err == nil
}

// digest is what is stored of a secret. Secrets have 256 random bits: no salt, no stretching.
func digest(secret []byte) string {
	sum := sha256.Sum256(secret)
	return encoding().EncodeToString(sum[:])
}

// derive makes a secret of another one and something that is stored: neither alone gives it away. It lets an answer be
// given again without having been stored.
func derive(secret []byte, purpose, nonce string) []byte {
	mac := hmac.New(sha256.New, secret)
	_, _ = mac.Write([]byte(purpose + "\x00" + nonce))
	return mac.Sum(nil)
}

// same compares in constant time.
func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// refreshToken is the secret of a refresh token: which family it belongs to, the same for all that follow one another,
// and which of them it is. By the first a token that was replaced long ago is known for what it is without a list of
// all there were.
type refreshToken struct {
	family []byte
	own    []byte
}

func newFamily() []byte { return randomBytes(familyBytes) }

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

// next is the token that takes its place.
func (t refreshToken) next(nonce string) refreshToken {
	return refreshToken{family: t.family, own: derive(t.own, "refresh", nonce)}
}

// access is the secret of the access token that comes with the next one.
func (t refreshToken) access(nonce, scopes string) []byte {
	return derive(t.own, "access", nonce+"\x00"+scopes)
}
