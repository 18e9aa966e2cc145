package upstream

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	// assertionLeeway is the allowed difference between the clocks of gateway and data service, in either direction.
	assertionLeeway = 5 * time.Second

	// maxAssertion is the maximum length of an assertion in bytes.
	maxAssertion = 4096
)

// KeySource provides the gateway's public keys. Key returns ErrUnknownAssertionKey if the key does not exist.
type KeySource interface {
	Key(ctx context.Context, kid string) (ed25519.PublicKey, error)
}

// Assertion holds what a verified assertion says about the request.
type Assertion struct {
	BusinessID string // the only business whose data may be returned
	RequestID  string // unique for each request
	Operation  string // the ID of the API's operation; behind gatehouse_auth the method; empty in the account calls of the connection server
}

// AssertionVerifier verifies hop assertions in data services. It is safe for concurrent use.
type AssertionVerifier struct {
	Issuer   string    // the gateway's issuer; required
	Audience string    // the gateway's audience prefix and the resource's name, such as "events"; required
	Keys     KeySource // a *RemoteKeys or StaticKeys; required

	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

// VerifyRequest verifies the assertion of a request: it must have exactly one X-Gateway-Assertion, which VerifyAssertion accepts,
// and exactly one X-Business-Id and X-Request-Id with the asserted values. Errors are those of VerifyAssertion.
func (v *AssertionVerifier) VerifyRequest(r *http.Request) (Assertion, error) {
	tokens := r.Header.Values(HeaderAssertion)
	if len(tokens) != 1 {
		return Assertion{}, fmt.Errorf("%w: %s must be given exactly once", ErrInvalidAssertion, HeaderAssertion)
	}
	a, err := v.VerifyAssertion(r.Context(), tokens[0])
	if err != nil {
		return Assertion{}, err
	}
	for _, want := range [...][2]string{{HeaderBusinessID, a.BusinessID}, {HeaderRequestID, a.RequestID}} {
		if got := r.Header.Values(want[0]); len(got) != 1 || got[0] != want[1] {
			return Assertion{}, fmt.Errorf("%w: %s does not match the assertion", ErrInvalidAssertion, want[0])
		}
	}
	return a, nil
}

// VerifyAssertion verifies an assertion: it must be a compact JWS with alg EdDSA, typ AssertionType and a known kid; issuer and
// audience must match; sub and jti must not be empty; it must be valid now, if the clocks differ by at most five seconds, and
// for at most MaxAssertionTTL. The error wraps ErrInvalidAssertion if the assertion is invalid; a data service should respond
// with 401. Otherwise it is the error of the KeySource, for which a data service should respond with 503.
func (v *AssertionVerifier) VerifyAssertion(ctx context.Context, token string) (Assertion, error) {
	if v.Issuer == "" || v.Audience == "" || v.Keys == nil {
		return Assertion{}, errors.New("assertion verifier: issuer, audience and keys are required")
	}
	invalid := func(why string) error { return fmt.Errorf("%w: %s", ErrInvalidAssertion, why) }
	if len(token) > maxAssertion {
		return Assertion{}, invalid("too long")
	}
	// go-jose accepts white space and unused bits; the strict decoding makes the encoding unique.
	for part := range strings.SplitSeq(token, ".") {
		if _, err := base64.RawURLEncoding.Strict().DecodeString(part); err != nil || strings.ContainsAny(part, "\r\n") {
			return Assertion{}, invalid("not base64url")
		}
	}
	jws, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil || len(jws.Signatures) != 1 {
		return Assertion{}, invalid("not a compact JWS with alg EdDSA")
	}
	header := jws.Signatures[0].Protected
	if typ, ok := header.ExtraHeaders[jose.HeaderType].(string); !ok || typ != AssertionType {
		return Assertion{}, invalid("typ is not " + AssertionType)
	}
	if header.KeyID == "" {
		return Assertion{}, invalid("missing kid")
	}
	key, err := v.Keys.Key(ctx, header.KeyID)
	if errors.Is(err, ErrUnknownAssertionKey) {
		return Assertion{}, invalid("unknown kid")
	}
	if err != nil {
		return Assertion{}, fmt.Errorf("looking up assertion key: %w", err)
	}
	payload, err := jws.Verify(key)
	if err != nil {
		return Assertion{}, invalid("wrong signature")
	}
	var c struct {
		Issuer   string `json:"iss"`
		Audience string `json:"aud"`
		Subject  string `json:"sub"`
		ID       string `json:"jti"`
		Op       string `json:"op"`
		IssuedAt *int64 `json:"iat"`
		Begin    *int64 `json:"nbf"`
		Expires  *int64 `json:"exp"`
	}
	if err := json.Unmarshal(payload, &c); err != nil || c.IssuedAt == nil || c.Begin == nil || c.Expires == nil {
		return Assertion{}, invalid("missing or malformed claims")
	}
	switch {
	case c.Issuer != v.Issuer:
		return Assertion{}, invalid("wrong issuer")
	case c.Audience != v.Audience:
		return Assertion{}, invalid("wrong audience")
	case c.Subject == "" || c.ID == "":
		return Assertion{}, invalid("sub or jti is empty")
	case *c.Expires-*c.IssuedAt > int64(MaxAssertionTTL/time.Second) || *c.Expires <= *c.IssuedAt:
		return Assertion{}, invalid("exp must be after iat, by at most a minute")
	}
	now := time.Now
	if v.Now != nil {
		now = v.Now
	}
	switch at := now(); {
	case at.Add(assertionLeeway).Before(time.Unix(max(*c.IssuedAt, *c.Begin), 0)):
		return Assertion{}, invalid("not valid yet")
	case !at.Add(-assertionLeeway).Before(time.Unix(*c.Expires, 0)):
		return Assertion{}, invalid("expired")
	}
	return Assertion{BusinessID: c.Subject, RequestID: c.ID, Operation: c.Op}, nil
}
