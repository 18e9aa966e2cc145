package upstream_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

func TestConnectionServerHasItsOwnAudience(t *testing.T) {
	t.Parallel()
	a := asserter(t)
	token, err := a.Assert(upstream.ConnectAudience, "", "-", "req-1")
	require.NoError(t, err)
	got, err := verifier(t, "connect").VerifyAssertion(t.Context(), token)
	require.NoError(t, err)
	require.Equal(t, upstream.Assertion{BusinessID: "-", RequestID: "req-1"}, got)
	_, err = verifier(t, "events").VerifyAssertion(t.Context(), token)
	require.ErrorIs(t, err, upstream.ErrInvalidAssertion)
	_, err = verifier(t, upstream.ConnectAudience).VerifyAssertion(t.Context(), assertion(t, a, "events"))
	require.ErrorIs(t, err, upstream.ErrInvalidAssertion)
}

func TestGenericJWTLibraryAcceptsAssertions(t *testing.T) {
	t.Parallel()
	a, err := upstream.NewAsserter(upstream.AsserterOptions{
		Audiences: audiences(), Issuer: `https://api.example.com/"ä\`, AudiencePrefix: `data/"ä\`, Keys: []ed25519.PrivateKey{testKey(1)}, Now: testClock,
	})
	require.NoError(t, err)
	token, err := a.Assert("jobs", "", `b"\7<&>`, `r"\7`)
	require.NoError(t, err)
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.EdDSA})
	require.NoError(t, err)
	require.Len(t, parsed.Headers, 1)
	require.Equal(t, upstream.AssertionType, parsed.Headers[0].ExtraHeaders[jose.HeaderType])
	var set jose.JSONWebKeySet
	require.NoError(t, json.Unmarshal(jwks(a), &set))
	require.Len(t, set.Key(parsed.Headers[0].KeyID), 1)
	var claims jwt.Claims
	require.NoError(t, parsed.Claims(set.Key(parsed.Headers[0].KeyID)[0].Key, &claims))
	now := testClock()
	require.Equal(t, jwt.Claims{
		Issuer: `https://api.example.com/"ä\`, Subject: `b"\7<&>`, ID: `r"\7`, Audience: jwt.Audience{`data/"ä\jobs`},
		IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(30 * time.Second)),
	}, claims)
}

func TestKeyIDIsTheThumbprintOfRFC8037(t *testing.T) {
	t.Parallel()
	// RFC 8037, appendix A.3.
	x, err := base64.RawURLEncoding.DecodeString("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")
	require.NoError(t, err)
	kid, err := upstream.KeyID(x)
	require.NoError(t, err)
	assert.Equal(t, "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k", kid)
}

// sign makes a token with another library. Empty headers are left out.
func sign(t *testing.T, key any, alg jose.SignatureAlgorithm, kid, typ string, claims map[string]any) string {
	t.Helper()
	o := &jose.SignerOptions{}
	if typ != "" {
		o = o.WithType(jose.ContentType(typ))
	}
	if kid != "" {
		o = o.WithHeader("kid", kid)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, o)
	require.NoError(t, err)
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	require.NoError(t, err)
	return token
}

func TestForgedOrMisdirectedAssertionsAreInvalid(t *testing.T) {
	t.Parallel()
	a := asserter(t)
	v := verifier(t, "events")
	good := assertion(t, a, "events")
	parts := strings.Split(good, ".")
	header, payload, signature := parts[0], parts[1], parts[2]
	encode := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	kid, typ, now := kidOf(t, 1), upstream.AssertionType, testClock().Unix()
	// Each case changes one of the valid claims; nil removes it.
	claims := func(name string, value any) map[string]any {
		c := map[string]any{
			"iss": issuer, "aud": "events", "sub": mine, "jti": "req-1", "iat": now, "nbf": now, "exp": now + 30,
		}
		if c[name] = value; value == nil {
			delete(c, name)
		}
		return c
	}
	valid := claims("", nil)
	with := func(name string, value any) string {
		return sign(t, testKey(1), jose.EdDSA, kid, typ, claims(name, value))
	}
	_, err := v.VerifyAssertion(t.Context(), with("x", "unknown claims do not matter"))
	require.NoError(t, err)

	for name, token := range map[string]string{
		"empty": "", "dots": "..", "text": "token", "two parts": header + "." + payload, "four parts": good + ".x",
		"space": " " + good, "line break": good + "\n", "bearer": "Bearer " + good, "padding": good + "==",
		"unused bits":  good[:len(good)-1] + string(good[len(good)-1]+1),
		"no signature": header + "." + payload + ".", "short signature": good[:len(good)-4],
		"other payload":            header + "." + encode(`{"sub":"biz_9c1e"}`) + "." + signature,
		"other header":             encode(`{"alg":"EdDSA","kid":"`+kid+`","typ":"JWT"}`) + "." + payload + "." + signature,
		"alg none":                 encode(`{"alg":"none","typ":"`+typ+`","kid":"`+kid+`"}`) + "." + payload + ".",
		"JSON serialization":       `{"payload":"` + payload + `","protected":"` + header + `","signature":"` + signature + `"}`,
		"HMAC with the public key": sign(t, []byte(publicKey(1)), jose.HS256, kid, typ, valid),
		"another key":              sign(t, testKey(2), jose.EdDSA, kid, typ, valid),
		"unknown kid":              sign(t, testKey(2), jose.EdDSA, "other", typ, valid),
		"no kid":                   sign(t, testKey(1), jose.EdDSA, "", typ, valid),
		"no typ":                   sign(t, testKey(1), jose.EdDSA, kid, "", valid),
		"another typ":              sign(t, testKey(1), jose.EdDSA, kid, "at+jwt", valid),
		"another issuer":           with("iss", "https://api.example.com/"),
		"no issuer":                with("iss", nil),
		"another audience":         with("aud", "invoices"),
		"many audiences":           with("aud", []string{"events", "invoices"}),
		"no audience":              with("aud", nil),
		"no subject":               with("sub", nil),
		"subject a number":         with("sub", 7),
		"no id":                    with("jti", ""),
		"no iat":                   with("iat", nil),
		"no nbf":                   with("nbf", nil),
		"no exp":                   with("exp", nil),
		"exp a string":             with("exp", "1900000000"),
		"exp a fraction":           with("exp", 1.5),
		"expired":                  with("exp", now-5),
		"valid for hours":          with("exp", now+3600),
		"never valid":              with("exp", now),
		"issued later":             with("iat", now+6),
		"not yet valid":            with("nbf", now+6),
		"too long":                 with("x", strings.Repeat("x", 5000)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := v.VerifyAssertion(t.Context(), token)
			require.ErrorIs(t, err, upstream.ErrInvalidAssertion)
			assert.Zero(t, got)
			assert.NotContains(t, err.Error(), theirs)
		})
	}
}

func TestAssertionWithOneChangedCharacterIsInvalid(t *testing.T) {
	t.Parallel()
	v, good := verifier(t, "events"), assertion(t, asserter(t), "events")
	for i := range good {
		for _, c := range []byte{good[i] + 1, ' '} { // the last character of the signature has unused bits
			token := good[:i] + string(c) + good[i+1:]
			_, err := v.VerifyAssertion(t.Context(), token)
			require.ErrorIs(t, err, upstream.ErrInvalidAssertion, token)
		}
	}
}

func TestClocksMayDifferByFiveSeconds(t *testing.T) {
	t.Parallel()
	a, err := upstream.NewAsserter(upstream.AsserterOptions{
		Audiences: audiences(), Issuer: issuer, Keys: []ed25519.PrivateKey{testKey(1)}, Now: testClock, TTL: upstream.MaxAssertionTTL,
	})
	require.NoError(t, err)
	token, v := assertion(t, a, "events"), verifier(t, "events")
	for _, c := range []struct {
		offset time.Duration
		ok     bool
	}{
		{-5*time.Second - 1, false}, {-5 * time.Second, true}, {0, true}, {65*time.Second - 1, true}, {65 * time.Second, false},
	} {
		v.Now = func() time.Time { return testClock().Add(c.offset) }
		_, err := v.VerifyAssertion(t.Context(), token)
		assert.Equal(t, c.ok, err == nil, "offset %v: %v", c.offset, err)
	}
}

func TestHeadersMustAgreeWithTheAssertion(t *testing.T) {
	t.Parallel()
	a := asserter(t)
	token := assertion(t, a, "events")
	for name, change := range map[string]func(http.Header){
		"":                 func(http.Header) {},
		"no assertion":     func(h http.Header) { h.Del("X-Gateway-Assertion") },
		"two assertions":   func(h http.Header) { h.Add("X-Gateway-Assertion", token) },
		"broken assertion": func(h http.Header) { h.Set("X-Gateway-Assertion", token[1:]) },
		"another business": func(h http.Header) { h.Set("X-Business-Id", theirs) },
		"two businesses":   func(h http.Header) { h.Add("X-Business-Id", theirs) },
		"no business":      func(h http.Header) { h.Del("X-Business-Id") },
		"another request":  func(h http.Header) { h.Set("X-Request-Id", "req-2") },
		"no request":       func(h http.Header) { h.Del("X-Request-Id") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(http.MethodGet, "/api/v1/events", http.NoBody)
			r.Header = http.Header{"X-Gateway-Assertion": {token}, "X-Business-Id": {mine}, "X-Request-Id": {"req-1"}}
			change(r.Header)
			got, err := verifier(t, "events").VerifyRequest(r)
			if name == "" {
				require.NoError(t, err)
				require.Equal(t, mine, got.BusinessID)
				return
			}
			require.ErrorIs(t, err, upstream.ErrInvalidAssertion)
		})
	}
}

func TestIncompleteVerifierVerifiesNothing(t *testing.T) {
	t.Parallel()
	a := asserter(t)
	for name, change := range map[string]func(*upstream.AssertionVerifier){
		"no issuer":   func(v *upstream.AssertionVerifier) { v.Issuer = "" },
		"no audience": func(v *upstream.AssertionVerifier) { v.Audience = "" },
		"no keys":     func(v *upstream.AssertionVerifier) { v.Keys = nil },
	} {
		v := verifier(t, "events")
		change(v)
		_, err := v.VerifyAssertion(t.Context(), assertion(t, a, "events"))
		require.Error(t, err, name)
	}
}

func TestKeysRotateWithoutRejectedRequests(t *testing.T) {
	t.Parallel()
	// Key 2 is published beside key 1, then signs, then is alone. Data services may be one step behind or ahead.
	steps := [][]byte{{1}, {1, 2}, {2, 1}, {2}}
	verify := func(signed, known int) error {
		token := assertion(t, asserter(t, steps[signed]...), "jobs")
		_, err := verifier(t, "jobs", steps[known]...).VerifyAssertion(t.Context(), token)
		return err
	}
	for i := range steps[1:] {
		for _, pair := range [][2]int{{i, i}, {i, i + 1}, {i + 1, i}, {i + 1, i + 1}} {
			require.NoError(t, verify(pair[0], pair[1]), pair)
		}
	}
	require.ErrorIs(t, verify(0, 3), upstream.ErrInvalidAssertion, "the retired key")
}

func TestInvalidAsserterOptionsAreRejected(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*upstream.AsserterOptions){
		"no issuer":           func(o *upstream.AsserterOptions) { o.Issuer = "" },
		"no key":              func(o *upstream.AsserterOptions) { o.Keys = nil },
		"a nil key":           func(o *upstream.AsserterOptions) { o.Keys = []ed25519.PrivateKey{nil} },
		"a short key":         func(o *upstream.AsserterOptions) { o.Keys[0] = o.Keys[0][:32] },
		"a key twice":         func(o *upstream.AsserterOptions) { o.Keys = append(o.Keys, o.Keys[0]) },
		"TTL of 61 seconds":   func(o *upstream.AsserterOptions) { o.TTL = 61 * time.Second },
		"negative TTL":        func(o *upstream.AsserterOptions) { o.TTL = -time.Second },
		"TTL with a fraction": func(o *upstream.AsserterOptions) { o.TTL = 1500 * time.Millisecond },
	} {
		o := upstream.AsserterOptions{Issuer: issuer, Keys: []ed25519.PrivateKey{testKey(1)}}
		change(&o)
		_, err := upstream.NewAsserter(o)
		require.Error(t, err, name)
	}
}

func TestInvalidIdentityIsNotAsserted(t *testing.T) {
	t.Parallel()
	a := asserter(t)
	for _, bad := range []string{"", "a b", "ä", "a\n", strings.Repeat("a", 257)} {
		_, err := a.Assert("jobs", "", bad, "req")
		require.ErrorIs(t, err, upstream.ErrIdentity, "business %q", bad)
		_, err = a.Assert("jobs", "", mine, bad)
		require.ErrorIs(t, err, upstream.ErrIdentity, "request %q", bad)
	}
	_, err := a.Assert("Events", "", mine, "req")
	require.ErrorContains(t, err, `invalid audience "Events"`)
}

func TestPrivateKeyIsNeverPrinted(t *testing.T) {
	t.Parallel()
	a := asserter(t)
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "asserter", a)
	text, err := json.Marshal(map[string]any{"asserter": a})
	require.NoError(t, err)
	for _, s := range []string{fmt.Sprint(a), fmt.Sprintf("%v %+v %#v", a, a, a), log.String(), string(text)} {
		for _, key := range []string{"1 1 1 1", "01010101", "AQEBAQ", `"d":`} {
			assert.NotContains(t, s, key)
		}
	}
	require.NotContains(t, string(jwks(a)), `"d":`)
}

func pemOf(t *testing.T, kind string, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func TestOnlyEd25519KeysInPKCS8AreRead(t *testing.T) {
	t.Parallel()
	one, two := pemOf(t, "PRIVATE KEY", testKey(1)), pemOf(t, "PRIVATE KEY", testKey(2))
	keys, err := upstream.ParseKeys(slices.Concat([]byte("# signs from May on\n"), one, two))
	require.NoError(t, err)
	require.Equal(t, []ed25519.PrivateKey{testKey(1), testKey(2)}, keys)

	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	for name, text := range map[string][]byte{
		"empty": nil, "text": []byte("key"), "EC": pemOf(t, "PRIVATE KEY", ec), "other type": pemOf(t, "EC PRIVATE KEY", testKey(1)),
		"encrypted": pemOf(t, "ENCRYPTED PRIVATE KEY", testKey(1)), "public": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY"}),
		"broken": bytes.Replace(one, []byte("MC4"), []byte("MC5"), 1), "cut off": one[:40], "second is EC": slices.Concat(one, pemOf(t, "PRIVATE KEY", ec)),
	} {
		keys, err := upstream.ParseKeys(text)
		require.ErrorIs(t, err, upstream.ErrAssertionKeys, name)
		require.Nil(t, keys, name)
		assert.NotContains(t, err.Error(), "MC4", name)
	}
}

func BenchmarkAssert(b *testing.B) {
	a := asserter(b)
	b.Run("ed25519 alone", func(b *testing.B) {
		key, message := testKey(1), make([]byte, 300)
		b.ReportAllocs()
		for b.Loop() {
			ed25519.Sign(key, message)
		}
	})
	b.Run("assert", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := a.Assert("events", "", mine, "req-01j9z3"); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("verify", func(b *testing.B) {
		token, v := assertion(b, a, "events"), verifier(b, "events")
		b.ReportAllocs()
		for b.Loop() {
			if _, err := v.VerifyAssertion(b.Context(), token); err != nil {
				b.Fatal(err)
			}
		}
	})
}
