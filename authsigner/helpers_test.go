package authsigner_test

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

const (
	testKey            = "pk_live_0123456789abcdef"
	testSecret         = "made_up_Zm9yIHRlc3RzIG9ubHksIG5ldmVyIGlzc3VlZA"
	testPreviousSecret = "made_up_dGhlIG9uZSBiZWZvcmUgdGhlIHJvdGF0aW9u"
	testClock          = int64(1_760_000_000)
)

// newCredential decodes a record of testKey with the fields changed or, if nil, removed.
func newCredential(fields map[string]any) *authsigner.Credential {
	cred, err := authsigner.DecodeCredential(testKey, newRecord(fields))
	if err != nil {
		panic(err)
	}
	return cred
}

// rotatingCredential also has a previous secret, which is still valid.
func rotatingCredential() *authsigner.Credential {
	return newCredential(map[string]any{
		"previous_private_key": testPreviousSecret, "previous_expires_at": "2100-01-01T00:00:00Z",
	})
}

func newRecord(fields map[string]any) map[string]any {
	record := map[string]any{
		"private_key":   testSecret,
		"business_id":   "6f1f7f4e-7f0a-4a8e-9a5e-0d4a3f7f1b11",
		"business_name": "Zoë's Bakery & Söhne",
		"business_slug": "zoes-bakery",
		"status":        "active",
	}
	maps.Copy(record, fields)
	return record
}

// newVerifier verifies by testClock and knows the one credential of testKey.
func newVerifier(cred *authsigner.Credential) *authsigner.Verifier {
	return &authsigner.Verifier{
		Source: memoryStore{testKey: cred},
		Now:    func() time.Time { return time.Unix(testClock, 0) },
	}
}

// sourceFunc is a CredentialSource.
type sourceFunc func(ctx context.Context, publicKey string) (*authsigner.Credential, error)

func (f sourceFunc) Lookup(ctx context.Context, publicKey string) (*authsigner.Credential, error) {
	return f(ctx, publicKey)
}

// invalidPublicKeys are keys that may never become part of a path or reach a store.
func invalidPublicKeys() []string {
	return []string{
		"", "1234567", strings.Repeat("k", 129), strings.Repeat("k", 4096), "pk_live_/12345678", "pk_live_..12345678",
		"pk_live_../../sys/raw", "pk_live_%2f12345678", "pk_live_%2e%2e%2f", "pk_live_\x0012345678", "pk_live_\x00\x00\x00\x00",
		"pk_live_12345678\n", " pk_live_12345678", "pk_live_12345678 ", "pk_live_zoë123456", "pk\xff_live_12345678",
		`pk_live_\12345678`, "pk_live_1234,5678", "pk_live_12:345678", "pk_live_1@2345678",
		"pk_live_1[2345678", "pk_live_1`2345678", "pk_live_1{2345678", "pk_live_1^2345678",
		"sk_live_5y3kq0w6Jd1hM8rTn2vZbXcLpQfGsUaEiOyRtWxKvNm", "sk_12345678", // private keys
	}
}

// signedRequest is a request as a server sees it, signed at testClock.
func signedRequest(key string, secret authsigner.Secret, method, target string, body []byte) *http.Request {
	r := &http.Request{
		Method:     method,
		RequestURI: target,
		Header: http.Header{
			authsigner.HeaderPublicKey: {key},
			authsigner.HeaderTimestamp: {strconv.FormatInt(testClock, 10)},
			authsigner.HeaderSignature: {authsigner.Sign(secret, testClock, method, target, body)},
		},
		Body:          http.NoBody,
		ContentLength: int64(len(body)),
	}
	if len(body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	return r
}

// get is a GET of meTarget, signed with a secret under testKey.
func get(secret authsigner.Secret) *http.Request {
	return signedRequest(testKey, secret, http.MethodGet, meTarget, nil)
}

// getSignedAt is get(testSecret), signed at another time.
func getSignedAt(at time.Time) *http.Request {
	r := get(testSecret)
	r.Header.Set(authsigner.HeaderTimestamp, strconv.FormatInt(at.Unix(), 10))
	r.Header.Set(authsigner.HeaderSignature, authsigner.Sign(testSecret, at.Unix(), http.MethodGet, meTarget, nil))
	return r
}
