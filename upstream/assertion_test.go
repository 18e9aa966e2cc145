package upstream_test

import (
	"bytes"
	"context"
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
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

const issuer = "https://api.example.com"

// testKey is a key that is the same in every run.
func testKey(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
}

func publicKey(n byte) ed25519.PublicKey {
	return ed25519.PublicKey(testKey(n)[ed25519.SeedSize:])
}

func testClock() time.Time { return time.Date(2026, 3, 5, 14, 30, 0, 0, time.UTC) }

func asserter(t *testing.T, change func(*upstream.AsserterOptions)) *upstream.Asserter {
	t.Helper()
	o := upstream.AsserterOptions{Issuer: issuer, Keys: []ed25519.PrivateKey{testKey(1)}, Now: testClock}
	if change != nil {
		change(&o)
	}
	a, err := upstream.NewAsserter(o)
	require.NoError(t, err)
	return a
}

func verifier(t *testing.T, a *upstream.Asserter, audience string) *upstream.AssertionVerifier {
	t.Helper()
	keys, err := upstream.ParseJWKS(a.JWKS())
	require.NoError(t, err)
	return &upstream.AssertionVerifier{Issuer: issuer, Audience: audience, Keys: keys, Now: testClock}
}

func assert(t *testing.T, a *upstream.Asserter, resource string) string {
	t.Helper()
	token, err := a.Assert(upstream.ByName(resource), mine, "req-1")
	require.NoError(t, err)
	return token
}

func TestAnAssertionSaysWhatWasAuthenticated(t *testing.T) {
	t.Parallel()
	a := asserter(t, nil)
	got, err := verifier(t, a, "events").VerifyAssertion(t.Context(), assert(t, a, "events"))
	require.NoError(t, err)
	kid, err := upstream.KeyID(publicKey(1))
	require.NoError(t, err)
	require.Equal(t, upstream.Assertion{
		BusinessID: mine, RequestID: "req-1", Issuer: issuer, Audience: "events", KeyID: kid,
		IssuedAt: testClock(), Expires: testClock().Add(30 * time.Second),
	}, got)
}

// What is meant for the connection server's calls is good for no resource, and the other way round.
func TestTheConnectionServersCallsHaveAnAudienceOfTheirOwn(t *testing.T) {
	t.Parallel()
	a := asserter(t, nil)
	token, err := a.AssertConnect("-", "req-1")
	require.NoError(t, err)
	got, err := verifier(t, a, upstream.ConnectAudience).VerifyAssertion(t.Context(), token)
	require.NoError(t, err)
	require.Equal(t, "-", got.BusinessID)
	require.Equal(t, "connect", got.Audience)
	_, err = verifier(t, a, "events").VerifyAssertion(t.Context(), token)
	require.ErrorIs(t, err, upstream.ErrInvalidAssertion)
	_, err = verifier(t, a, upstream.ConnectAudience).VerifyAssertion(t.Context(), assert(t, a, "events"))
	require.ErrorIs(t, err, upstream.ErrInvalidAssertion)
	_, err = a.AssertConnect("", "req-1")
	require.ErrorIs(t, err, upstream.ErrIdentity)
}

// A generic JWT library with nothing of ours but the documented rules.
func TestAGenericJWTLibraryAcceptsTheAssertion(t *testing.T) {
	t.Parallel()
	a := asserter(t, func(o *upstream.AsserterOptions) {
		o.AudiencePrefix, o.Issuer = `data/"ä\`, `https://api.example.com/"ä\`
	})
	parsed, err := jwt.ParseSigned(mustAssert(t, a, "jobs", `b"\7<&>`, `r"\7`), []jose.SignatureAlgorithm{jose.EdDSA})
	require.NoError(t, err)
	require.Len(t, parsed.Headers, 1)
	require.Equal(t, upstream.AssertionType, parsed.Headers[0].ExtraHeaders[jose.HeaderType])
	var set jose.JSONWebKeySet
	require.NoError(t, json.Unmarshal(a.JWKS(), &set))
	require.Len(t, set.Key(parsed.Headers[0].KeyID), 1)
	var claims jwt.Claims
	require.NoError(t, parsed.Claims(set.Key(parsed.Headers[0].KeyID)[0].Key, &claims))
	require.NoError(t, claims.ValidateWithLeeway(jwt.Expected{
		Issuer: `https://api.example.com/"ä\`, Subject: `b"\7<&>`, ID: `r"\7`, AnyAudience: jwt.Audience{`data/"ä\jobs`}, Time: testClock(),
	}, 0))
	require.Equal(t, testClock(), claims.IssuedAt.Time().UTC())
	require.Equal(t, testClock(), claims.NotBefore.Time().UTC())
	require.Equal(t, testClock().Add(30*time.Second), claims.Expiry.Time().UTC())
	require.Equal(t, `data/"ä\jobs`, a.Audience(upstream.ByName("jobs")))
}

func mustAssert(t *testing.T, a *upstream.Asserter, resource, business, request string) string {
	t.Helper()
	token, err := a.Assert(upstream.ByName(resource), business, request)
	require.NoError(t, err)
	return token
}

func TestTheKeyIDIsTheThumbprintOfRFC8037(t *testing.T) {
	t.Parallel()
	// RFC 8037, appendix A.3.
	x, err := base64.RawURLEncoding.DecodeString("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")
	require.NoError(t, err)
	kid, err := upstream.KeyID(x)
	require.NoError(t, err)
	require.Equal(t, "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k", kid)
}

func TestForgedOrMisdirectedAssertionsDoNotVerify(t *testing.T) {
	t.Parallel()
	a := asserter(t, nil)
	v := verifier(t, a, "events")
	good := assert(t, a, "events")
	parts := strings.Split(good, ".")
	encode := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	kid, err := upstream.KeyID(publicKey(1))
	require.NoError(t, err)
	sign := func(key any, alg jose.SignatureAlgorithm, kid, typ string, claims any) string {
		o := &jose.SignerOptions{}
		if typ != "" {
			o = o.WithType(jose.ContentType(typ))
		}
		if kid != "" {
			o = o.WithHeader("kid", kid)
		}
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, o)
		require.NoError(t, err)
		payload, err := json.Marshal(claims)
		require.NoError(t, err)
		jws, err := signer.Sign(payload)
		require.NoError(t, err)
		token, err := jws.CompactSerialize()
		require.NoError(t, err)
		return token
	}
	now := testClock().Unix()
	claims := func(name string, value any) map[string]any {
		c := map[string]any{
			"iss": issuer, "aud": "events", "sub": mine, "jti": "req-1", "iat": now, "nbf": now, "exp": now + 30,
		}
		if c[name] = value; value == nil {
			delete(c, name)
		}
		return c
	}
	ours := func(name string, value any) string {
		return sign(testKey(1), jose.EdDSA, kid, upstream.AssertionType, claims(name, value))
	}
	_, err = v.VerifyAssertion(t.Context(), ours("x", "unknown claims do not matter"))
	require.NoError(t, err)

	public := publicKey(1)
	tokens := map[string]string{
		"empty": "", "dots": "..", "text": "token", "two parts": parts[0] + "." + parts[1], "four parts": good + ".x",
		"space": " " + good, "line break": good + "\n", "bearer": "Bearer " + good, "padding": good + "==",
		"unused bits":  good[:len(good)-1] + string(good[len(good)-1]+1),
		"no signature": parts[0] + "." + parts[1] + ".", "short signature": good[:len(good)-4],
		"other payload":            parts[0] + "." + encode(`{"sub":"biz_9c1e"}`) + "." + parts[2],
		"other header":             encode(`{"alg":"EdDSA","kid":"`+kid+`","typ":"JWT"}`) + "." + parts[1] + "." + parts[2],
		"alg none":                 encode(`{"alg":"none","typ":"`+upstream.AssertionType+`","kid":"`+kid+`"}`) + "." + parts[1] + ".",
		"alg in json":              `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`,
		"HMAC with the public key": sign([]byte(public), jose.HS256, kid, upstream.AssertionType, claims("", nil)),
		"another key":              sign(testKey(2), jose.EdDSA, kid, upstream.AssertionType, claims("", nil)),
		"unknown kid":              sign(testKey(2), jose.EdDSA, "other", upstream.AssertionType, claims("", nil)),
		"no kid":                   sign(testKey(1), jose.EdDSA, "", upstream.AssertionType, claims("", nil)),
		"no typ":                   sign(testKey(1), jose.EdDSA, kid, "", claims("", nil)),
		"another typ":              sign(testKey(1), jose.EdDSA, kid, "at+jwt", claims("", nil)),
		"another issuer":           ours("iss", "https://api.example.com/"),
		"no issuer":                ours("iss", nil),
		"another audience":         ours("aud", "invoices"),
		"many audiences":           ours("aud", []string{"events", "invoices"}),
		"no audience":              ours("aud", nil),
		"no subject":               ours("sub", nil),
		"subject a number":         ours("sub", 7),
		"no id":                    ours("jti", ""),
		"no iat":                   ours("iat", nil),
		"no nbf":                   ours("nbf", nil),
		"no exp":                   ours("exp", nil),
		"exp a string":             ours("exp", "1900000000"),
		"exp a fraction":           ours("exp", 1.5),
		"expired":                  ours("exp", now-5),
		"valid for hours":          ours("exp", now+3600),
		"never valid":              ours("exp", now),
		"issued later":             ours("iat", now+6),
		"not yet valid":            ours("nbf", now+6),
		"too long":                 ours("x", strings.Repeat("x", 5000)),
	}
	for name, token := range tokens {
		got, err := v.VerifyAssertion(t.Context(), token)
		require.ErrorIs(t, err, upstream.ErrInvalidAssertion, name)
		require.Zero(t, got, name)
		require.NotContains(t, err.Error(), theirs, name)
	}
}

func TestClocksMayDifferByTheLeewayAndNoMore(t *testing.T) {
	t.Parallel()
	a := asserter(t, func(o *upstream.AsserterOptions) { o.TTL = upstream.MaxAssertionTTL })
	token := assert(t, a, "events")
	for _, c := range []struct {
		offset, leeway time.Duration
		ok             bool
	}{
		{0, -1, true},
		{59 * time.Second, -1, true},
		{60 * time.Second, -1, false},
		{-time.Second, -1, false},
		{-5 * time.Second, 0, true},
		{-6 * time.Second, 0, false},
		{64 * time.Second, 0, true},
		{65 * time.Second, 0, false},
		{-time.Minute, time.Minute, true},
		{2*time.Minute - 1, time.Minute, true},
		{2 * time.Minute, time.Minute, false},
	} {
		v := verifier(t, a, "events")
		v.Leeway = c.leeway
		v.Now = func() time.Time { return testClock().Add(c.offset) }
		_, err := v.VerifyAssertion(t.Context(), token)
		require.Equal(t, c.ok, err == nil, "%v %v: %v", c.offset, c.leeway, err)
	}
}

func TestARequestsHeadersMustSayWhatIsAsserted(t *testing.T) {
	t.Parallel()
	a := asserter(t, nil)
	v := verifier(t, a, "events")
	token := assert(t, a, "events")
	request := func(change func(http.Header)) *http.Request {
		r := httptest.NewRequest(http.MethodGet, "/api/v1/events", http.NoBody)
		r.Header = http.Header{
			"X-Gateway-Assertion": {token}, "X-Business-Id": {mine}, "X-Request-Id": {"req-1"},
		}
		change(r.Header)
		return r
	}
	got, err := v.VerifyRequest(request(func(http.Header) {}))
	require.NoError(t, err)
	require.Equal(t, mine, got.BusinessID)
	for name, change := range map[string]func(http.Header){
		"no assertion":     func(h http.Header) { h.Del("X-Gateway-Assertion") },
		"two assertions":   func(h http.Header) { h.Add("X-Gateway-Assertion", token) },
		"broken assertion": func(h http.Header) { h.Set("X-Gateway-Assertion", token[1:]) },
		"another business": func(h http.Header) { h.Set("X-Business-Id", theirs) },
		"two businesses":   func(h http.Header) { h.Add("X-Business-Id", theirs) },
		"no business":      func(h http.Header) { h.Del("X-Business-Id") },
		"another request":  func(h http.Header) { h.Set("X-Request-Id", "req-2") },
		"no request":       func(h http.Header) { h.Del("X-Request-Id") },
	} {
		_, err := v.VerifyRequest(request(change))
		require.ErrorIs(t, err, upstream.ErrInvalidAssertion, name)
	}
}

func TestAVerifierThatExpectsNothingVerifiesNothing(t *testing.T) {
	t.Parallel()
	a := asserter(t, nil)
	token := assert(t, a, "events")
	for _, change := range []func(*upstream.AssertionVerifier){
		func(v *upstream.AssertionVerifier) { v.Issuer = "" },
		func(v *upstream.AssertionVerifier) { v.Audience = "" },
		func(v *upstream.AssertionVerifier) { v.Keys = nil },
	} {
		v := verifier(t, a, "events")
		change(v)
		_, err := v.VerifyAssertion(t.Context(), token)
		require.Error(t, err)
	}
}

func TestKeysRotateWithoutARefusedRequest(t *testing.T) {
	t.Parallel()
	keys := func(ns ...byte) func(*upstream.AsserterOptions) {
		return func(o *upstream.AsserterOptions) {
			o.Keys = nil
			for _, n := range ns {
				o.Keys = append(o.Keys, testKey(n))
			}
		}
	}
	// Published beside the old key, then signing, then alone. Readers may be one step behind or ahead.
	steps := []*upstream.Asserter{asserter(t, keys(1)), asserter(t, keys(1, 2)), asserter(t, keys(2, 1)), asserter(t, keys(2))}
	for i := range steps[1:] {
		for _, pair := range [][2]int{{i, i}, {i, i + 1}, {i + 1, i}, {i + 1, i + 1}} {
			_, err := verifier(t, steps[pair[1]], "jobs").VerifyAssertion(t.Context(), assert(t, steps[pair[0]], "jobs"))
			require.NoError(t, err, pair)
		}
	}
	_, err := verifier(t, steps[3], "jobs").VerifyAssertion(t.Context(), assert(t, steps[0], "jobs"))
	require.ErrorIs(t, err, upstream.ErrInvalidAssertion, "the retired key")
}

func TestSettingsOfAnAsserterThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*upstream.AsserterOptions){
		"no issuer":     func(o *upstream.AsserterOptions) { o.Issuer = "" },
		"no key":        func(o *upstream.AsserterOptions) { o.Keys = nil },
		"a nil key":     func(o *upstream.AsserterOptions) { o.Keys = []ed25519.PrivateKey{nil} },
		"a short key":   func(o *upstream.AsserterOptions) { o.Keys[0] = o.Keys[0][:32] },
		"a key twice":   func(o *upstream.AsserterOptions) { o.Keys = append(o.Keys, o.Keys[0]) },
		"61 seconds":    func(o *upstream.AsserterOptions) { o.TTL = 61 * time.Second },
		"negative":      func(o *upstream.AsserterOptions) { o.TTL = -time.Second },
		"half a second": func(o *upstream.AsserterOptions) { o.TTL = 1500 * time.Millisecond },
		"max age":       func(o *upstream.AsserterOptions) { o.JWKSMaxAge = time.Millisecond },
	} {
		o := upstream.AsserterOptions{Issuer: issuer, Keys: []ed25519.PrivateKey{testKey(1)}}
		change(&o)
		_, err := upstream.NewAsserter(o)
		require.Error(t, err, name)
	}
	a := asserter(t, nil)
	for _, bad := range []string{"", "a b", "ä", "a\n", strings.Repeat("a", 257)} {
		_, err := a.Assert(upstream.ByName("jobs"), bad, "req")
		require.ErrorIs(t, err, upstream.ErrIdentity)
		_, err = a.Assert(upstream.ByName("jobs"), mine, bad)
		require.ErrorIs(t, err, upstream.ErrIdentity)
	}
	_, err := a.Assert(&upstream.Resource{Name: "events"}, mine, "req")
	require.Error(t, err, "no resource of the table")
}

func TestThePrivateKeyIsInNothingThatIsPrinted(t *testing.T) {
	t.Parallel()
	a := asserter(t, nil)
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "asserter", a)
	text, err := json.Marshal(map[string]any{"asserter": a})
	require.NoError(t, err)
	for _, s := range []string{
		fmt.Sprint(a), fmt.Sprintf("%v %+v %#v %s %x %q %d", a, a, a, a, a, a, a), log.String(), string(text), a.GoString(), string(a.JWKS()),
	} {
		require.NotContains(t, s, "1 1 1 1")
		require.NotContains(t, s, "01010101")
		require.NotContains(t, s, "AQEBAQ")
		require.NotContains(t, s, `"d":`)
	}
	require.Equal(t, "[asserter]", fmt.Sprint(a))
}

func pemOf(t *testing.T, kind string, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func TestOnlyEd25519KeysOfPKCS8AreRead(t *testing.T) {
	t.Parallel()
	one, two := pemOf(t, "PRIVATE KEY", testKey(1)), pemOf(t, "PRIVATE KEY", testKey(2))
	keys, err := upstream.ParseKeys(append(append([]byte("# signs from May on\n"), one...), two...))
	require.NoError(t, err)
	require.Equal(t, []ed25519.PrivateKey{testKey(1), testKey(2)}, keys)

	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	for name, text := range map[string][]byte{
		"empty": nil, "text": []byte("key"), "EC": pemOf(t, "PRIVATE KEY", ec), "other type": pemOf(t, "EC PRIVATE KEY", testKey(1)),
		"encrypted": pemOf(t, "ENCRYPTED PRIVATE KEY", testKey(1)), "public": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY"}),
		"broken": bytes.Replace(one, []byte("MC4"), []byte("MC5"), 1), "cut off": one[:40], "second is EC": append(bytes.Clone(one), pemOf(t, "PRIVATE KEY", ec)...),
	} {
		keys, err := upstream.ParseKeys(text)
		require.ErrorIs(t, err, upstream.ErrAssertionKeys, name)
		require.Nil(t, keys, name)
		require.NotContains(t, err.Error(), "MC4", name)
	}
}

func TestThePublishedKeysCanBeCached(t *testing.T) {
	t.Parallel()
	a := asserter(t, func(o *upstream.AsserterOptions) { o.Keys = append(o.Keys, testKey(2)) })
	get := func(method string, header http.Header) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "/keys", http.NoBody)
		r.Header = header
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		return w
	}
	w := get(http.MethodGet, http.Header{})
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "application/jwk-set+json", w.Header().Get("Content-Type"))
	require.Equal(t, "public, max-age=300", w.Header().Get("Cache-Control"))
	var set struct{ Keys []map[string]string }
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &set))
	require.Len(t, set.Keys, 2)
	for i, key := range set.Keys {
		public := publicKey(byte(i + 1))
		kid, err := upstream.KeyID(public)
		require.NoError(t, err)
		require.Equal(t, map[string]string{
			"kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA", "kid": kid,
			"x": base64.RawURLEncoding.EncodeToString(public),
		}, key)
	}
	require.Equal(t, w.Body.Bytes(), a.JWKS())
	w = get(http.MethodGet, http.Header{"If-None-Match": {w.Header().Get("Etag")}})
	require.Equal(t, http.StatusNotModified, w.Code)
	require.Zero(t, w.Body.Len())
	require.Zero(t, get(http.MethodHead, http.Header{}).Body.Len())
	w = get(http.MethodPost, http.Header{})
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	require.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
	require.True(t, json.Valid(w.Body.Bytes()))
}

func TestAKeySetWithoutAUsableKeyIsRefused(t *testing.T) {
	t.Parallel()
	good := string(asserter(t, nil).JWKS())
	for name, text := range map[string]string{
		"empty": "", "html": "<html>", "no keys": `{"keys":[]}`, "other": `{}`,
		"for encryption":  strings.Replace(good, `"sig"`, `"enc"`, 1),
		"other algorithm": strings.Replace(good, `"EdDSA"`, `"ES256"`, 1),
		"no kid":          strings.Replace(good, `"kid"`, `"kix"`, 1),
		"symmetric":       `{"keys":[{"kty":"oct","kid":"a","k":"AQEB"}]}`,
	} {
		_, err := upstream.ParseJWKS([]byte(text))
		require.ErrorIs(t, err, upstream.ErrAssertionKeys, name)
	}
	_, err := upstream.StaticKeys{}.Key(context.Background(), "x")
	require.ErrorIs(t, err, upstream.ErrUnknownAssertionKey)
}
