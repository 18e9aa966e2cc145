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
	// DefaultAssertionLeeway is by how much the clocks of gateway and data service may differ.
	DefaultAssertionLeeway = 5 * time.Second

	// maxAssertion is how long an assertion can be, in bytes, before it is not even looked at.
	maxAssertion = 4096
)

// KeySource finds the gateway's public keys. The error is ErrUnknownAssertionKey when there certainly is no such key.
type KeySource interface {
	Key(ctx context.Context, kid string) (ed25519.PublicKey, error)
}

// Assertion is what a verified assertion says.
type Assertion struct {
	BusinessID string    // sub: answer for this business and no other
	RequestID  string    // jti: the request's id, unique for each request
	Issuer     string    // iss
	Audience   string    // aud
	KeyID      string    // kid
	IssuedAt   time.Time // iat, UTC
	Expires    time.Time // exp, UTC
}

// AssertionVerifier is for data services written in Go: it holds a request's assertion against what the service
// expects. It is safe for concurrent use.
type AssertionVerifier struct {
	Issuer   string    // required: the gateway's issuer, exactly
	Audience string    // required: the resource that this handler serves ("events"), with the gateway's prefix
	Keys     KeySource // required: a *RemoteKeys or StaticKeys

	// Leeway is by how much the clocks may differ, in either direction. Default: 5 s. Negative: not at all.
	Leeway time.Duration

	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

// VerifyRequest verifies the assertion of a request: there is one X-Gateway-Assertion, VerifyAssertion accepts it, and
// X-Business-Id and X-Request-Id, each given once, say the same. Errors as for VerifyAssertion.
func (v *AssertionVerifier) VerifyRequest(r *http.Request) (Assertion, error) {
	tokens := r.Header.Values(HeaderAssertion)
	if len(tokens) != 1 {
		return Assertion{}, fmt.Errorf("%w: %s must be given once", ErrInvalidAssertion, HeaderAssertion)
	}
	a, err := v.VerifyAssertion(r.Context(), tokens[0])
	if err != nil {
		return Assertion{}, err
	}
	for _, want := range [...][2]string{{HeaderBusinessID, a.BusinessID}, {HeaderRequestID, a.RequestID}} {
		if got := r.Header.Values(want[0]); len(got) != 1 || got[0] != want[1] {
			return Assertion{}, fmt.Errorf("%w: %s is not what is asserted", ErrInvalidAssertion, want[0])
		}
	}
	return a, nil
}

// VerifyAssertion verifies one assertion: a compact JWS with alg EdDSA, typ AssertionType and a known kid; the exact
// issuer and audience; sub and jti not empty; issued neither in the future nor longer than MaxAssertionTTL before its
// end; valid now. The error is ErrInvalidAssertion for whatever is wrong with it, and otherwise the KeySource's, when
// keys cannot be had: a data service answers the first with 401, the second with 503.
func (v *AssertionVerifier) VerifyAssertion(ctx context.Context, token string) (Assertion, error) {
	if v.Issuer == "" || v.Audience == "" || v.Keys == nil {
		return Assertion{}, errors.New("assertion verifier: issuer, audience and keys are required")
	}
	invalid := func(why string) error { return fmt.Errorf("%w: %s", ErrInvalidAssertion, why) }
	if len(token) > maxAssertion {
		return Assertion{}, invalid("too long")
	}
	// go-jose passes over white space and unused bits. There is to be one way only to write an assertion.
	for part := range strings.SplitSeq(token, ".") {
		if _, err := base64.RawURLEncoding.Strict().DecodeString(part); err != nil || strings.ContainsAny(part, "\r\n") {
			return Assertion{}, invalid("no base64url")
		}
	}
	jws, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil || len(jws.Signatures) != 1 {
		return Assertion{}, invalid("no compact JWS with alg EdDSA")
	}
	header := jws.Signatures[0].Protected
	if typ, ok := header.ExtraHeaders[jose.HeaderType].(string); !ok || typ != AssertionType {
		return Assertion{}, invalid("typ is not " + AssertionType)
	}
	if header.KeyID == "" {
		return Assertion{}, invalid("no kid")
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
		IssuedAt *int64 `json:"iat"`
		Begin    *int64 `json:"nbf"`
		Expires  *int64 `json:"exp"`
	}
	if err := json.Unmarshal(payload, &c); err != nil || c.IssuedAt == nil || c.Begin == nil || c.Expires == nil {
		return Assertion{}, invalid("claims are missing or of another kind")
	}
	switch {
	case c.Issuer != v.Issuer:
		return Assertion{}, invalid("another issuer")
	case c.Audience != v.Audience:
		return Assertion{}, invalid("another audience")
	case c.Subject == "" || c.ID == "":
		return Assertion{}, invalid("sub or jti is empty")
	case *c.Expires-*c.IssuedAt > int64(MaxAssertionTTL/time.Second) || *c.Expires <= *c.IssuedAt:
		return Assertion{}, invalid("valid for longer than a minute, or never")
	}
	leeway := v.Leeway
	if leeway == 0 {
		leeway = DefaultAssertionLeeway
	}
	leeway = max(leeway, 0)
	now := time.Now
	if v.Now != nil {
		now = v.Now
	}
	issued, begin, expires := time.Unix(*c.IssuedAt, 0), time.Unix(*c.Begin, 0), time.Unix(*c.Expires, 0)
	switch at := now(); {
	case at.Before(issued.Add(-leeway)), at.Before(begin.Add(-leeway)):
		return Assertion{}, invalid("not valid yet")
	case !at.Before(expires.Add(leeway)):
		return Assertion{}, invalid("expired")
	}
	return Assertion{
		BusinessID: c.Subject, RequestID: c.ID, Issuer: c.Issuer, Audience: c.Audience, KeyID: header.KeyID,
		IssuedAt: issued.UTC(), Expires: expires.UTC(),
	}, nil
}
