package authsigner_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

const benchTarget = "/api/v1/invoices?page=2&per_page=50&status=paid"

// fixedSource is the best cache there can be: what is measured is the verification.
type fixedSource struct{ cred *authsigner.Credential }

func (s fixedSource) Lookup(_ context.Context, publicKey string) (*authsigner.Credential, error) {
	if publicKey != s.cred.PublicKey {
		return nil, authsigner.ErrUnknownKey
	}
	return s.cred, nil
}

// BenchmarkBareHMAC is the yardstick: the same message, signed and written as hex with crypto/hmac alone.
func BenchmarkBareHMAC(b *testing.B) {
	key := []byte(testSecret)
	message := authsigner.SigningString(testClock, http.MethodGet, benchTarget, nil)
	var out [2 * sha256.Size]byte
	b.ReportAllocs()
	for b.Loop() {
		h := hmac.New(sha256.New, key)
		h.Write(message)
		hex.Encode(out[:], h.Sum(nil))
	}
}

// BenchmarkVerify must stay within 3 times BenchmarkBareHMAC and, but for the body, must not allocate.
func BenchmarkVerify(b *testing.B) {
	get := func(cred *authsigner.Credential, secret authsigner.Secret) *http.Request {
		return signedRequest(cred.PublicKey, secret, http.MethodGet, benchTarget, nil)
	}
	active, rotating := newCredential(nil), newCredential(map[string]any{
		"previous_private_key": testPreviousSecret, "previous_expires_at": "2100-01-01T00:00:00Z",
	})
	stranger := get(active, testSecret)
	stranger.Header.Set(authsigner.HeaderPublicKey, "pk_live_nobody_has_this_one")
	malformed := get(active, testSecret)
	malformed.Header.Set(authsigner.HeaderSignature, "rubbish")
	for _, bench := range []struct {
		name string
		cred *authsigner.Credential
		r    *http.Request
		want error
	}{
		{"Cached", active, get(active, testSecret), nil},
		{"CachedPreviousSecret", rotating, get(rotating, testPreviousSecret), nil},
		{"WrongSignature", active, get(active, "another secret"), authsigner.ErrInvalidCredentials},
		{"MalformedSignature", active, malformed, authsigner.ErrInvalidCredentials},
		{"UnknownKey", active, stranger, authsigner.ErrInvalidCredentials},
	} {
		b.Run(bench.name, func(b *testing.B) {
			v := newVerifier(bench.cred)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Verify(bench.r, benchTarget); err != bench.want { //nolint:errorlint // is bare
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkVerifyParallel shares one credential among all processors.
func BenchmarkVerifyParallel(b *testing.B) {
	cred := newCredential(nil)
	v := newVerifier(cred)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		r := signedRequest(cred.PublicKey, testSecret, http.MethodGet, benchTarget, nil)
		for pb.Next() {
			if _, err := v.Verify(r, benchTarget); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkVerifyBody shows what a signed body costs.
func BenchmarkVerifyBody(b *testing.B) {
	cred := newCredential(nil)
	v := newVerifier(cred)
	for _, size := range []int{1 << 10, 1 << 16, 1 << 20} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			body := []byte(strings.Repeat("a", size))
			r := signedRequest(cred.PublicKey, testSecret, http.MethodPost, benchTarget, body)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				r.Body = readCloser{bytes.NewReader(body)}
				if _, err := v.Verify(r, benchTarget); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
