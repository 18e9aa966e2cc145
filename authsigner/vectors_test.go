package authsigner_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// The credential of most vectors.
const (
	vectorKey      = "pk_live_3f8Zk1q0Tn_w-7Yd"
	vectorSecret   = "made_up_8GmYwq3cVn5tB2xKzR7pLd0hJf4sWu6e"
	vectorPrevious = "made_up_Qe1rT9yU3iO5pA7sD2fG4hJ6kL8zX0cV"
)

func readVectors(tb testing.TB) []vector {
	tb.Helper()
	raw, err := os.ReadFile("testdata/vectors.json")
	require.NoError(tb, err)
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	var file struct {
		Description    string   `json:"description"`
		MaxSkewSeconds int      `json:"max_skew_seconds"`
		MaxBodyBytes   int      `json:"max_body_bytes"`
		Vectors        []vector `json:"vectors"`
	}
	require.NoError(tb, decoder.Decode(&file))
	require.EqualValues(tb, authsigner.MaxSkew/time.Second, file.MaxSkewSeconds)
	require.EqualValues(tb, authsigner.DefaultMaxBody, file.MaxBodyBytes)
	return file.Vectors
}

func TestVectorsCoverEveryResult(t *testing.T) {
	t.Parallel()
	names, results := map[string]bool{}, map[string]int{}
	for _, v := range readVectors(t) {
		assert.False(t, names[v.Name], "two vectors are named %q", v.Name)
		names[v.Name] = true
		results[v.Result]++
	}
	require.GreaterOrEqual(t, len(names), 223)
	for _, result := range []string{
		resultOK, resultMissing, resultExpired, resultInvalid, resultInactive, resultTooLarge,
	} {
		assert.GreaterOrEqual(t, results[result], 3, result)
	}
	require.Len(t, results, 6)
}

// A request that must be rejected differs from a valid one only as its name and its field "signed" say.
func TestVectorsAreSignedAsTheySay(t *testing.T) {
	t.Parallel()
	for _, v := range readVectors(t) {
		if strings.HasPrefix(v.Name, "signature: ") && v.Signature == "" && v.Signed == nil {
			continue // the signature itself is malformed
		}
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			signed := map[string]string{"method": v.Method, "target": v.Target, "body": string(v.body())}
			if v.Credential != nil {
				signed["private_key"], signed["previous_private_key"] = v.Credential.PrivateKey, v.Credential.PreviousPrivateKey
			}
			signature := ""
			for _, h := range v.Headers {
				switch http.CanonicalHeaderKey(h[0]) {
				case authsigner.HeaderTimestamp:
					signed["timestamp"] = h[1]
				case authsigner.HeaderSignature:
					signature = strings.ToLower(h[1])
				}
			}
			for part, value := range v.Signed {
				require.NotEqual(t, signed[part], value, "%q must be left out if it is what was sent", part)
				signed[part] = value
			}
			secret := signed["private_key"]
			if v.SignedWith != "" {
				secret = signed[v.SignedWith]
			}
			message := signed["timestamp"] + "\n" + signed["method"] + "\n" + signed["target"] + "\n" + signed["body"]
			right := hmacHex(secret, message)
			if signature != "" {
				require.Equal(t, right, signature)
			}
			require.Equal(t, v.Result == resultOK || v.Result == resultInactive, v.Signature != "")
			if v.Signature == "" {
				return
			}
			require.Equal(t, right, v.Signature)
			if v.BodyRepeat == 0 {
				require.Equal(t, message, v.SigningString+string(decodeBase64(v.SigningBase64)))
			}
			seconds, err := strconv.ParseInt(signed["timestamp"], 10, 64)
			require.NoError(t, err)
			if signed["timestamp"] == strconv.FormatInt(seconds, 10) { // Sign never writes leading zeros
				require.Equal(t, message, string(authsigner.SigningString(seconds, v.Method, v.Target, v.body())))
				require.Equal(t, right, authsigner.Sign(authsigner.Secret(secret), seconds, v.Method, v.Target, v.body()))
			}
		})
	}
}

// Tests in e2e send the vectors over the wire.
func TestVectorsAgreeWithVerifyAndTheReference(t *testing.T) {
	t.Parallel()
	for _, v := range readVectors(t) {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, v.Result, referenceResult(&v))
			assert.Equal(t, v.Result, v.verify(t, v.request()))
		})
	}
}

// request is the vector as net/http would deliver it.
func (v *vector) request() *http.Request {
	r := &http.Request{Method: v.Method, RequestURI: v.Target, Header: http.Header{}, Body: http.NoBody}
	for _, h := range v.Headers {
		r.Header.Add(h[0], h[1])
	}
	if body := v.body(); len(body) > 0 {
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	return r
}

// verifier verifies at the vector's clock and knows its credential. It never asks for an invalid public key.
func (v *vector) verifier() *authsigner.Verifier {
	return &authsigner.Verifier{
		Now: func() time.Time { return time.Unix(v.Clock, v.ClockNanoseconds) },
		Source: sourceFunc(func(_ context.Context, publicKey string) (*authsigner.Credential, error) {
			c := v.Credential
			switch {
			case !referencePublicKey.MatchString(publicKey):
				return nil, fmt.Errorf("the source was asked for %q", publicKey)
			case c == nil || c.PublicKey != publicKey:
				return nil, fmt.Errorf("reading the vector: %w", authsigner.ErrUnknownKey)
			}
			cred := &authsigner.Credential{
				PublicKey:          c.PublicKey,
				PrivateKey:         authsigner.Secret(c.PrivateKey),
				PreviousPrivateKey: authsigner.Secret(c.PreviousPrivateKey),
				BusinessID:         "1",
				Status:             authsigner.Status(c.Status),
			}
			var err error
			if c.PreviousExpiresAt != "" {
				cred.PreviousExpiresAt, err = time.Parse(time.RFC3339, c.PreviousExpiresAt)
			}
			return cred, err
		}),
	}
}

// verify returns the result for r, after which the body must still be readable.
func (v *vector) verify(t *testing.T, r *http.Request) string {
	t.Helper()
	cred, err := v.verifier().Verify(r, v.Target)
	result := resultOf(t, cred, err)
	if result == resultInvalid {
		require.Equal(t, authsigner.ErrInvalidCredentials, err, "the bare error discloses nothing")
	}
	if result != resultTooLarge {
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.Equal(t, string(v.body()), string(body))
	}
	return result
}

// resultOf names what Verify returned. A credential must be returned if and only if the signature was right.
func resultOf(t *testing.T, cred *authsigner.Credential, err error) string {
	t.Helper()
	result := "no result: " + fmt.Sprint(err)
	for name, sentinel := range map[string]error{
		resultMissing: authsigner.ErrMissingCredentials, resultExpired: authsigner.ErrExpired,
		resultInvalid: authsigner.ErrInvalidCredentials, resultInactive: authsigner.ErrAccountInactive,
		resultTooLarge: authsigner.ErrBodyTooLarge, resultOK: nil,
	} {
		if errors.Is(err, sentinel) {
			result = name
		}
	}
	if (cred != nil) != (result == resultOK || result == resultInactive) {
		t.Errorf("result %s and credential %v", result, cred)
	}
	return result
}
