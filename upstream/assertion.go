package upstream

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	// AssertionType is the header parameter typ of assertions. It distinguishes them from other tokens of the same key.
	AssertionType = "gatehouse-assertion+jwt"

	// DefaultAssertionTTL is how long an assertion is valid by default.
	DefaultAssertionTTL = 30 * time.Second

	// MaxAssertionTTL is the longest time for which an assertion may be valid.
	MaxAssertionTTL = 60 * time.Second

	// ConnectAudience is the audience of all calls of the connection server to a data service.
	ConnectAudience = "connect"

	// jwksMaxAge is how long the published keys may be cached. A key must be published for at least this time before it signs.
	jwksMaxAge = 5 * time.Minute
)

// AsserterOptions configure an [Asserter].
type AsserterOptions struct {
	// Issuer is the claim iss. Required.
	Issuer string

	// Audiences are the names of the resources for which there are assertions, besides ConnectAudience and those of AddAudiences.
	Audiences []string

	// AudiencePrefix precedes the resource's name in the claim aud: with "data/", the audience of /events is "data/events".
	// Default: no prefix.
	AudiencePrefix string

	// Keys are the signing keys, without duplicates. The first one signs; all are published, so that a key can be published
	// before and after it signs. Required.
	Keys []ed25519.PrivateKey

	// TTL is how long an assertion is valid, in whole seconds, at most 60s. Default: 30s. Zero means the default.
	TTL time.Duration

	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

// Asserter creates hop assertions: short-lived JWTs signed with Ed25519 (alg EdDSA). They prove to a data service that a request
// comes from the gateway, for which business it was authenticated, and that it is for this service. An Asserter is safe for
// concurrent use.
type Asserter struct {
	sign   func(token []byte) []byte // appends the signature; a closure, so that nothing can print the key
	head   string                    // the encoded JWS header and a dot
	claims map[string]string         // by audience without the prefix: the constant claims, `{"iss":"…","aud":"events"`
	issuer string
	prefix string // of audiences
	ttl    time.Duration
	now    func() time.Time
	jwks   []byte
	etag   string
}

// NewAsserter returns an Asserter. The error wraps ErrAssertionKeys if the keys are invalid.
func NewAsserter(o AsserterOptions) (*Asserter, error) {
	if o.Issuer == "" {
		return nil, fmt.Errorf("invalid assertion options: issuer must not be empty")
	}
	o.TTL = cmp.Or(o.TTL, DefaultAssertionTTL)
	if o.TTL < time.Second || o.TTL > MaxAssertionTTL || o.TTL%time.Second != 0 {
		return nil, fmt.Errorf("invalid assertion TTL %q: must be a whole number of seconds from 1s to %v", o.TTL, MaxAssertionTTL)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if len(o.Keys) == 0 {
		return nil, fmt.Errorf("%w: no key", ErrAssertionKeys)
	}
	a := &Asserter{claims: make(map[string]string), issuer: o.Issuer, prefix: o.AudiencePrefix, ttl: o.TTL, now: o.Now}
	key := o.Keys[0]
	a.sign = func(token []byte) []byte {
		signature := ed25519.Sign(key, token)
		return base64.RawURLEncoding.AppendEncode(append(token, '.'), signature)
	}
	var set jose.JSONWebKeySet
	for i, key := range o.Keys {
		if len(key) != ed25519.PrivateKeySize {
			return nil, fmt.Errorf("%w: key %d is not an Ed25519 key", ErrAssertionKeys, i+1)
		}
		public := ed25519.PublicKey(key[ed25519.SeedSize:])
		kid, err := KeyID(public)
		if err != nil {
			return nil, err
		}
		if len(set.Key(kid)) > 0 {
			return nil, fmt.Errorf("%w: key %d is a duplicate", ErrAssertionKeys, i+1)
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
	header := fmt.Sprintf(`{"alg":%q,"kid":%q,"typ":%q}`, jose.EdDSA, set.Keys[0].KeyID, AssertionType)
	a.head = base64.RawURLEncoding.EncodeToString([]byte(header)) + "."
	a.AddAudiences(append([]string{ConnectAudience}, o.Audiences...)...)
	return a, nil
}

// AddAudiences adds names of resources, or other audiences. AudiencePrefix precedes them. It must be called before the first use of the Asserter.
func (a *Asserter) AddAudiences(names ...string) {
	for _, name := range names {
		fixed, _ := json.Marshal(struct { //nolint:errchkjson // of strings
			Issuer   string `json:"iss"`
			Audience string `json:"aud"`
		}{a.issuer, a.prefix + name})
		a.claims[name] = string(fixed[:len(fixed)-1])
	}
}

// Assert returns the assertion for one request: a compact JWS with the claims iss, aud (one string), op (the operation, unless it is
// empty: the ID of the API's, or behind gatehouse_auth the method), sub (the business ID), jti (the request ID), iat, nbf (equal to iat)
// and exp. The audience is the name of a resource, ConnectAudience or one of AddAudiences. The error wraps ErrIdentity if an ID is invalid.
//
// It runs for every request, so the header and constant claims are encoded only once, in NewAsserter and AddAudiences.
func (a *Asserter) Assert(audience, operation, businessID, requestID string) (string, error) {
	fixed, ok := a.claims[audience]
	switch {
	case !ok:
		return "", fmt.Errorf("invalid audience %q of an assertion: must be a resource of the API or %q", audience, ConnectAudience)
	case !isVisibleASCII(businessID) || !isVisibleASCII(requestID):
		return "", fmt.Errorf("%w: business ID and request ID must be 1 to 256 bytes of visible ASCII", ErrIdentity)
	}
	now := a.now().Unix()
	// For visible ASCII, Go and JSON quote alike.
	claims := append(make([]byte, 0, 512), fixed...)
	if operation != "" {
		name, _ := json.Marshal(operation) //nolint:errchkjson // a string
		claims = append(append(claims, `,"op":`...), name...)
	}
	claims = append(claims, `,"sub":`...)
	claims = append(strconv.AppendQuoteToASCII(claims, businessID), `,"jti":`...)
	claims = append(strconv.AppendQuoteToASCII(claims, requestID), `,"iat":`...)
	claims = append(strconv.AppendInt(claims, now, 10), `,"nbf":`...)
	claims = append(strconv.AppendInt(claims, now, 10), `,"exp":`...)
	claims = append(strconv.AppendInt(claims, now+int64(a.ttl/time.Second), 10), '}')

	b64 := base64.RawURLEncoding
	token := make([]byte, 0, len(a.head)+b64.EncodedLen(len(claims))+1+b64.EncodedLen(ed25519.SignatureSize))
	return string(a.sign(b64.AppendEncode(append(token, a.head...), claims))), nil
}

// ServeHTTP serves the public keys as a JSON Web Key Set (RFC 7517), the signing key first, with an ETag and Cache-Control. The
// caller rejects methods other than GET and HEAD.
func (a *Asserter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "application/jwk-set+json")
	h.Set("Cache-Control", "public, max-age="+strconv.FormatInt(int64(jwksMaxAge/time.Second), 10))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Etag", a.etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.jwks))
}
