package pages

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
)

// Sizes of random secrets, in bytes and in characters of base64url.
const (
	randomBytes = 32
	randomChars = 43
)

func newRandom() string {
	var b [randomBytes]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// wellFormed reports whether s has the form of newRandom's results.
func wellFormed(s string) bool {
	_, err := base64.RawURLEncoding.DecodeString(s)
	return err == nil && len(s) == randomChars
}

// digest returns the SHA-256 of a secret in hex, for keys in Redis.
func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// A form token (against CSRF) is a nonce and the HMAC of nonce and purpose, keyed with the session ID or, before sign-in, the visit
// cookie. The nonce makes each token different, against BREACH attacks on compressed responses.
const (
	nonceBytes = 16
	tokenBytes = nonceBytes + sha256.Size
)

func newToken(secret, purpose string) string {
	var nonce [nonceBytes]byte
	_, _ = rand.Read(nonce[:])
	return base64.RawURLEncoding.EncodeToString(append(nonce[:], tokenMAC(secret, purpose, nonce[:])...))
}

func checkToken(secret, purpose, token string) bool {
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	return err == nil && len(b) == tokenBytes && secret != "" && hmac.Equal(b[nonceBytes:], tokenMAC(secret, purpose, b[:nonceBytes]))
}

func tokenMAC(secret, purpose string, nonce []byte) []byte {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte("gatehouse form\x00" + purpose + "\x00"))
	m.Write(nonce)
	return m.Sum(nil)
}
