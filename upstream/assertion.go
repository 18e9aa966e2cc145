package upstream

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// What every assertion has in common.
const (
	// AssertionType is the `typ` of the JWT's header, so that no other token of the same key can be taken for one.
	AssertionType = "gatehouse-assertion+jwt"

	DefaultAssertionTTL = 30 * time.Second
	MaxAssertionTTL     = 60 * time.Second

	// ConnectAudience is the audience of the connection server's calls to a data service, whatever their path.
	ConnectAudience = "connect"

	// DefaultJWKSMaxAge is how long others may keep the published keys. A key that signs must have been published
	// for at least as long.
	DefaultJWKSMaxAge = 5 * time.Minute
)

// AsserterOptions are an Asserter's settings.
type AsserterOptions struct {
	// Issuer is the claim `iss`: the gateway's public origin, say "https://api.example.com". Required.
	Issuer string

	// AudiencePrefix stands before the resource's name in the claim `aud`: with "data/" the audience of /events is
	// "data/events". Default: nothing, the audience is "events".
	AudiencePrefix string

	// Keys are the signing keys. The first one signs; all are published, so that a key can be published before it
	// signs and after it has. At least one, none twice.
	Keys []ed25519.PrivateKey

	// TTL is how long an assertion is valid, in whole seconds. Default: 30 s. At most 60 s.
	TTL time.Duration

	// JWKSMaxAge is for how long readers may cache the published keys. Default: 5 min.
	JWKSMaxAge time.Duration

	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

// Asserter makes hop assertions: short-lived JWTs, signed with Ed25519 (alg EdDSA), by which a data service can tell
// that a request comes from the gateway, for which business, and that it is meant for this service. It is safe for
// concurrent use, and prints as "[asserter]" wherever it is printed.
type Asserter struct {
	key    ed25519.PrivateKey
	head   string            // the JWS header, encoded, with its dot
	claims map[string]string // by audience without the prefix, the claims up to and with it: `{"iss":"…","aud":"events","sub":`
	prefix string
	ttl    time.Duration
	maxAge time.Duration
	now    func() time.Time
	jwks   []byte
	etag   string
}

// NewAsserter checks the options. The error is ErrAssertionKeys for the keys, or says what else is wrong.
func NewAsserter(o AsserterOptions) (*Asserter, error) {
	if o.Issuer == "" {
		return nil, fmt.Errorf("assertion: an issuer is required")
	}
	if o.TTL == 0 {
		o.TTL = DefaultAssertionTTL
	}
	if o.TTL < time.Second || o.TTL > MaxAssertionTTL || o.TTL%time.Second != 0 {
		return nil, fmt.Errorf("assertion: the ttl is %v; it must be whole seconds, 1s to %v", o.TTL, MaxAssertionTTL)
	}
	if o.JWKSMaxAge == 0 {
		o.JWKSMaxAge = DefaultJWKSMaxAge
	}
	if o.JWKSMaxAge < time.Second {
		return nil, fmt.Errorf("assertion: the key set's max age is %v; it must be 1s or more", o.JWKSMaxAge)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if len(o.Keys) == 0 {
		return nil, fmt.Errorf("%w: no key", ErrAssertionKeys)
	}
	a := &Asserter{key: o.Keys[0], prefix: o.AudiencePrefix, ttl: o.TTL, maxAge: o.JWKSMaxAge, now: o.Now}
	var set jose.JSONWebKeySet
	for i, key := range o.Keys {
		if len(key) != ed25519.PrivateKeySize {
			return nil, fmt.Errorf("%w: key %d is no Ed25519 key", ErrAssertionKeys, i+1)
		}
		public, ok := key.Public().(ed25519.PublicKey)
		if !ok {
			return nil, fmt.Errorf("%w: key %d is no Ed25519 key", ErrAssertionKeys, i+1)
		}
		kid, err := KeyID(public)
		if err != nil {
			return nil, err
		}
		if len(set.Key(kid)) > 0 {
			return nil, fmt.Errorf("%w: key %d is there twice", ErrAssertionKeys, i+1)
		}
		set.Keys = append(set.Keys, jose.JSONWebKey{
			Key: public, KeyID: kid, Algorithm: string(jose.EdDSA), Use: "sig",
		})
	}
	var err error
	if a.jwks, err = json.Marshal(set); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAssertionKeys, err)
	}
	sum := sha256.Sum256(a.jwks)
	a.etag = `"` + hex.EncodeToString(sum[:16]) + `"`
	if a.head, err = header(o.Keys[0], set.Keys[0].KeyID); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAssertionKeys, err)
	}
	a.claims = make(map[string]string, len(resources)+1)
	for _, res := range resources {
		if err := a.prepare(o.Issuer, res.Name); err != nil {
			return nil, err
		}
	}
	return a, a.prepare(o.Issuer, ConnectAudience)
}

// prepare makes the claims that do not change for an audience.
func (a *Asserter) prepare(issuer, audience string) error {
	fixed, err := json.Marshal(struct {
		Issuer   string `json:"iss"`
		Audience string `json:"aud"`
	}{issuer, a.prefix + audience})
	if err != nil {
		return fmt.Errorf("assertion: claims: %w", err)
	}
	a.claims[audience] = string(fixed[:len(fixed)-1]) + `,"sub":`
	return nil
}

// header is the JWS header that go-jose writes for a key, encoded, with its dot.
func header(key ed25519.PrivateKey, kid string) (string, error) {
	signer, err := jose.NewSigner(
		jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: key, KeyID: kid}},
		(&jose.SignerOptions{}).WithType(AssertionType))
	if err != nil {
		return "", err
	}
	jws, err := signer.Sign([]byte("{}"))
	if err != nil {
		return "", err
	}
	token, err := jws.CompactSerialize()
	if err != nil {
		return "", err
	}
	return token[:strings.IndexByte(token, '.')+1], nil
}

// Audience is the claim `aud` for a resource.
func (a *Asserter) Audience(res *Resource) string { return a.prefix + res.Name }

// Assert makes the assertion for one request: a compact JWS whose claims are iss, aud (one string), sub (the business's
// id), jti (the request's id), iat, nbf (the same) and exp. The error is ErrIdentity for an unusable id.
//
// It is on every request's way, so that header and fixed claims are made once, by go-jose, and the compact form is put
// together here. BenchmarkAssert on one core of a shared Xeon: 26 µs and 2 allocations, of which the signature alone is 25
// µs; go-jose's signer took 26 µs and 60 allocations more.
func (a *Asserter) Assert(res *Resource, businessID, requestID string) (string, error) {
	if ByName(res.Name) != res {
		return "", fmt.Errorf("assertion: %q is no resource of the table", res.Name)
	}
	return a.assert(res.Name, businessID, requestID)
}

// AssertConnect makes the assertion for one call of the connection server: as Assert, with the audience ConnectAudience.
func (a *Asserter) AssertConnect(businessID, requestID string) (string, error) {
	return a.assert(ConnectAudience, businessID, requestID)
}

func (a *Asserter) assert(audience, businessID, requestID string) (string, error) {
	if !visible(businessID) || !visible(requestID) {
		return "", fmt.Errorf("%w: the business's or the request's id is empty, too long or not visible ASCII", ErrIdentity)
	}
	now := a.now().Unix()
	// Visible ASCII, quoted as in Go, is quoted as in JSON.
	claims := append(make([]byte, 0, 512), a.claims[audience]...)
	claims = append(strconv.AppendQuoteToASCII(claims, businessID), `,"jti":`...)
	claims = append(strconv.AppendQuoteToASCII(claims, requestID), `,"iat":`...)
	claims = append(strconv.AppendInt(claims, now, 10), `,"nbf":`...)
	claims = append(strconv.AppendInt(claims, now, 10), `,"exp":`...)
	claims = append(strconv.AppendInt(claims, now+int64(a.ttl/time.Second), 10), '}')

	b64 := base64.RawURLEncoding
	token := make([]byte, 0, len(a.head)+b64.EncodedLen(len(claims))+1+b64.EncodedLen(ed25519.SignatureSize))
	token = b64.AppendEncode(append(token, a.head...), claims)
	signature := ed25519.Sign(a.key, token)
	return string(b64.AppendEncode(append(token, '.'), signature)), nil
}

// JWKS is the public keys as a JSON Web Key Set (RFC 7517), the signing one first.
func (a *Asserter) JWKS() []byte { return bytes.Clone(a.jwks) }

// ServeHTTP answers GET and HEAD with the JWKS, with an ETag and Cache-Control: public, max-age.
func (a *Asserter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		h.Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusMethodNotAllowed)
		// The connection may be gone; there is nobody to tell.
		_, _ = w.Write([]byte(`{"error":"the key set can only be read","code":"METHOD_NOT_ALLOWED"}`))
		return
	}
	h.Set("Content-Type", "application/jwk-set+json")
	h.Set("Cache-Control", "public, max-age="+strconv.FormatInt(int64(a.maxAge/time.Second), 10))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Etag", a.etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.jwks))
}

// String hides the key.
func (a *Asserter) String() string { return "[asserter]" }

// GoString hides the key.
func (a *Asserter) GoString() string { return a.String() }

// Format hides the key.
func (a *Asserter) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte(a.String())) }

// LogValue hides the key.
func (a *Asserter) LogValue() slog.Value { return slog.StringValue(a.String()) }

// MarshalText hides the key.
func (a *Asserter) MarshalText() ([]byte, error) { return []byte(a.String()), nil }
