package authsigner_test

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"strconv"
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

// newVerifier verifies by testClock and knows the one credential.
func newVerifier(cred *authsigner.Credential) *authsigner.Verifier {
	return &authsigner.Verifier{
		Source: fixedSource{cred},
		Now:    func() time.Time { return time.Unix(testClock, 0) },
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
		r.Body = readCloser{bytes.NewReader(body)}
	}
	return r
}

type readCloser struct{ io.Reader }

func (readCloser) Close() error { return nil }
