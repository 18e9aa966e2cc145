package authsigner

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"
)

// The three headers of a signed request, each exactly once.
const (
	HeaderPublicKey = "X-Public-Key"
	HeaderTimestamp = "X-Timestamp"
	HeaderSignature = "X-Signature"
)

// MaxSkew is the maximum difference between a request's timestamp and the clock, in either direction. Exactly MaxSkew is accepted.
const MaxSkew = 5 * time.Minute

// DefaultMaxBody is the default of Verifier.MaxBody: 1 MiB.
const DefaultMaxBody int64 = 1 << 20

const (
	// maxTimestampDigits is the maximum length of a timestamp. It allows milliseconds to nanoseconds, so that a caller with the
	// wrong unit gets ErrExpired instead of ErrInvalidCredentials.
	maxTimestampDigits = 20

	// farFuture is the Unix time from which timestamps are not parsed further, to avoid overflow.
	farFuture = 1 << 40

	// dummySecret is the HMAC key used for unknown keys. Its results are discarded, so it need not be secret.
	dummySecret = Secret("computed for an unknown key, never accepted")

	// firstScratch is the initial capacity of scratch.head in bytes.
	firstScratch = 512

	// keptScratch is the largest capacity of scratch.head that is reused, in bytes.
	keptScratch = 8 << 10

	// firstRead is the maximum number of bytes allocated for a body before any of it has arrived.
	firstRead = 8 << 10
)

// Verifier verifies signed requests. It is safe for concurrent use. Its fields must not be changed after the first use, and it
// must not be copied.
type Verifier struct {
	// Source provides the credentials; usually a Cache. Required for Verify.
	Source CredentialSource

	// MaxBody is the maximum size of a body in bytes. Default: 1 MiB. Zero means the default, and a negative value allows only
	// empty bodies. The time in which a body must arrive is not limited here; use http.ResponseController.SetReadDeadline.
	MaxBody int64

	// Now is the clock. Default: time.Now.
	Now func() time.Time

	dummy   macs      // of dummySecret
	scratch sync.Pool // of *scratch
}

// scratch holds the buffers of a verification.
type scratch struct {
	head    []byte // timestamp LF METHOD LF target LF
	sum     [sha256.Size]byte
	claimed [sha256.Size]byte
}

// Verify authenticates r. target is the request target as sent, from /api/v1 on, including the query; in a plain http.Server, it
// is r.RequestURI.
//
// The checks and their errors, in this order:
//
//  1. each of the three headers is given exactly once and not empty: ErrMissingCredentials;
//  2. the timestamp has 1 to 20 ASCII digits: ErrInvalidCredentials;
//     it differs from the clock by at most MaxSkew: ErrExpired;
//  3. Content-Length is at most MaxBody: ErrBodyTooLarge;
//  4. the credential is looked up: ErrUnavailable for all errors except ErrUnknownKey;
//  5. the body is read: ErrBodyTooLarge, ErrBodyUnreadable;
//  6. the key has not expired, and the signature matches the current private key, or the previous one until it expires:
//     ErrInvalidCredentials;
//  7. the account is active: ErrAccountInactive.
//
// The credential is returned if the signature is valid, so also with ErrAccountInactive.
//
// An unknown key cannot be distinguished from a wrong signature. From step 3 on, unknown and expired keys, malformed keys and
// malformed signatures are processed like a wrong signature: the body is read, and two HMACs are always computed. The lookup precedes the
// body, so that no bodies are buffered while the source is unavailable. The source must be equally fast for known and unknown
// keys, as [Cache] is.
//
// Afterwards, r.Body is the complete body again, unless reading it failed. Nothing else of r is modified.
func (v *Verifier) Verify(r *http.Request, target string) (*Credential, error) {
	c, err := v.readHeaders(r, target)
	if err != nil {
		return nil, err
	}
	cred, err := v.lookUp(r.Context(), c.PublicKey)
	if err != nil {
		return nil, err
	}
	if c.body, err = v.ReadBody(r); err != nil {
		return nil, err
	}
	return v.VerifyClaim(&c, cred)
}

// Claim is what a request claims: the public key of its sender, and a signature that has not been verified.
type Claim struct {
	PublicKey string // as sent; it may be invalid

	timestamp, signature, method, target string
	body                                 []byte
	at                                   time.Time // when the timestamp was checked
}

// Body is the request's body. It must not be changed.
func (c *Claim) Body() []byte { return c.body }

// ReadClaim makes the checks of Verify that do not depend on the key, 1 to 3 and 5, with the same errors. Together with VerifyClaim
// it replaces Verify for servers that look up credentials themselves: because the body is read first, neither a slow one nor
// "Expect: 100-continue" shows how long the lookup takes.
func (v *Verifier) ReadClaim(r *http.Request, target string) (Claim, error) {
	c, err := v.readHeaders(r, target)
	if err != nil {
		return Claim{}, err
	}
	if c.body, err = v.ReadBody(r); err != nil {
		return Claim{}, err
	}
	return c, nil
}

// VerifyClaim makes the other checks of Verify, 6 and 7, with the credential of c.PublicKey, or nil if the key is unknown. It takes
// equally long for every credential. Its results are those of Verify.
func (v *Verifier) VerifyClaim(c *Claim, cred *Credential) (*Credential, error) {
	if cred != nil && cred.PublicKey != c.PublicKey {
		return nil, errOtherKey
	}
	if cred != nil && cred.Expired(c.at) {
		cred = nil // processed like an unknown key
	}
	if !v.authentic(cred, c) {
		return nil, ErrInvalidCredentials
	}
	if cred.Status != StatusActive {
		return cred, ErrAccountInactive
	}
	return cred, nil
}

// readHeaders makes the checks 1 to 3 of Verify.
func (v *Verifier) readHeaders(r *http.Request, target string) (c Claim, err error) {
	c.at, c.method, c.target = v.now(), r.Method, target
	if c.PublicKey, err = soleHeader(r.Header, HeaderPublicKey); err != nil {
		return Claim{}, err
	}
	if c.timestamp, err = soleHeader(r.Header, HeaderTimestamp); err != nil {
		return Claim{}, err
	}
	if c.signature, err = soleHeader(r.Header, HeaderSignature); err != nil {
		return Claim{}, err
	}
	if err := checkTimestamp(c.timestamp, c.at); err != nil {
		return Claim{}, err
	}
	if r.ContentLength > v.maxBody() {
		return Claim{}, ErrBodyTooLarge
	}
	return c, nil
}

// MalformedHeader returns the name of the first of the three headers that is malformed, or "" if all have a valid form. The result
// does not depend on any key, so callers may see it. A private key in place of the public key is well-formed: it is an unknown key.
func MalformedHeader(h http.Header) string {
	var digest [sha256.Size]byte
	timestamp := h.Get(HeaderTimestamp)
	switch {
	case !wellFormedKey(h.Get(HeaderPublicKey)):
		return HeaderPublicKey
	case timestamp == "" || len(timestamp) > maxTimestampDigits || strings.Trim(timestamp, "0123456789") != "":
		return HeaderTimestamp
	case decodeSignature(&digest, h.Get(HeaderSignature)) == 0:
		return HeaderSignature
	}
	return ""
}

// soleHeader returns the value of a header that must be given exactly once and not be empty.
func soleHeader(h http.Header, name string) (string, error) {
	values := h[name]
	if len(values) > 1 {
		return "", fmt.Errorf("%w: %s is given more than once", ErrMissingCredentials, name)
	}
	if len(values) == 0 || values[0] == "" {
		return "", fmt.Errorf("%w: %s is missing", ErrMissingCredentials, name)
	}
	return values[0], nil
}

func (v *Verifier) now() time.Time {
	if v.Now == nil {
		return time.Now()
	}
	return v.Now()
}

func (v *Verifier) maxBody() int64 {
	if v.MaxBody == 0 {
		return DefaultMaxBody
	}
	return max(v.MaxBody, 0)
}

// checkTimestamp compares whole seconds, because the timestamp has no fraction.
func checkTimestamp(timestamp string, now time.Time) error {
	if len(timestamp) > maxTimestampDigits {
		return ErrInvalidCredentials
	}
	var seconds int64
	for i := range len(timestamp) {
		digit := timestamp[i] - '0'
		if digit > 9 {
			return ErrInvalidCredentials
		}
		if seconds < farFuture { // avoids overflow
			seconds = seconds*10 + int64(digit)
		}
	}
	allowed := int64(MaxSkew / time.Second)
	if age := now.Unix() - seconds; age > allowed || age < -allowed {
		return ErrExpired
	}
	return nil
}

// lookUp returns a nil credential for a key that does not exist.
func (v *Verifier) lookUp(ctx context.Context, publicKey string) (*Credential, error) {
	if !ValidPublicKey(publicKey) {
		return nil, nil // processed like a wrong signature
	}
	if v.Source == nil {
		return nil, fmt.Errorf("looking up the credential: %w: Verifier.Source is nil", ErrUnavailable)
	}
	cred, err := checkedLookup(ctx, v.Source, publicKey)
	switch {
	case errors.Is(err, ErrUnknownKey):
		return nil, nil // as above
	case err != nil:
		return nil, fmt.Errorf("looking up the credential: %w", err)
	}
	return cred, nil
}

// errOtherKey means that a source returned the credential of another key than the one that was looked up.
var errOtherKey = fmt.Errorf("%w: the source returned the credential of another key", ErrUnavailable)

// checkedLookup calls a source and checks what it returns. Its error is ErrUnknownKey, or wraps ErrUnavailable and not ErrUnknownKey.
// Verifier and Cache both need it, because each accepts any source: a Cache must not store a wrong result, and a Verifier must not
// accept one.
func checkedLookup(ctx context.Context, source CredentialSource, publicKey string) (*Credential, error) {
	cred, err := source.Lookup(ctx, publicKey)
	switch {
	case err == nil && cred == nil:
		return nil, fmt.Errorf("%w: the source returned neither a credential nor an error", ErrUnavailable)
	case err == nil && cred.PublicKey != publicKey:
		return nil, errOtherKey
	case err == nil:
		return cred, nil
	case errors.Is(err, ErrUnknownKey) && !errors.Is(err, ErrUnavailable):
		return nil, ErrUnknownKey
	case errors.Is(err, ErrUnknownKey):
		return nil, fmt.Errorf("%w: %s", ErrUnavailable, err.Error()) // not wrapped: an outage must not deny the key
	case errors.Is(err, ErrUnavailable):
		return nil, err
	default:
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
}

// ReadBody reads the body of a request and restores it. The error is that of Verify's check 5. The buffer grows with the data that has
// arrived, not with Content-Length. bytes.Buffer and io.ReadAll allocate more for a body of a known length, and never return if a reader
// makes no progress.
func (v *Verifier) ReadBody(r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	limit := min(v.maxBody(), math.MaxInt-1)
	// One extra byte lets Read return io.EOF without growing the buffer.
	body := make([]byte, 0, min(max(r.ContentLength, 0), firstRead)+1)
	for idle := 0; ; {
		if len(body) == cap(body) {
			size := min(2*int64(len(body))+512, limit+1)
			if declared := r.ContentLength; declared >= int64(len(body)) {
				size = min(size, declared+1)
			}
			body = append(make([]byte, 0, size), body...)
		}
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if int64(len(body)) > limit {
			return nil, ErrBodyTooLarge
		}
		if err == io.EOF { // not errors.Is: a wrapped EOF is a failure
			break
		}
		if err != nil {
			if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
				return nil, fmt.Errorf("%w: %w", ErrBodyTooLarge, err)
			}
			return nil, fmt.Errorf("%w: %w", ErrBodyUnreadable, err)
		}
		if idle++; n > 0 {
			idle = 0
		} else if idle == 100 {
			return nil, fmt.Errorf("%w: %w", ErrBodyUnreadable, io.ErrNoProgress)
		}
	}
	if len(body) == 0 {
		r.Body = http.NoBody
		return nil, nil
	}
	r.Body = &bufferedBody{Reader: bytes.NewReader(body), Closer: r.Body}
	return body, nil
}

// bufferedBody is a restored body. Close closes the original one.
type bufferedBody struct {
	io.Reader
	io.Closer
}

// authentic reports whether the claim's signature is valid for the credential. It does the same work for every credential,
// including nil, and every signature, and does not branch on secrets or values derived from them.
func (v *Verifier) authentic(cred *Credential, c *Claim) bool {
	s, _ := v.scratch.Get().(*scratch)
	if s == nil {
		s = &scratch{head: make([]byte, 0, firstScratch)}
	}
	// The signing string is unambiguous only if no part except the last contains a line feed. net/http ensures this, but
	// other callers may not.
	acceptable := decodeSignature(&s.claimed, c.signature)
	if strings.Contains(c.method, "\n") || strings.Contains(c.target, "\n") {
		acceptable = 0
	}
	head := s.head[:0]
	head = append(head, c.timestamp...)
	head = append(head, '\n')
	head = append(head, c.method...)
	head = append(head, '\n')
	head = append(head, c.target...)
	head = append(head, '\n')

	type key struct {
		macs       *macs
		secret     Secret
		acceptable int // 1 if a match with this secret counts
	}
	current := key{&v.dummy, dummySecret, 0}
	if cred != nil && cred.PrivateKey.usable() {
		current = key{&cred.current, cred.PrivateKey, 1}
	}
	previous := key{current.macs, current.secret, 0}
	if cred != nil && c.at.Before(cred.PreviousExpiresAt) && cred.PreviousPrivateKey.usable() {
		previous = key{&cred.previous, cred.PreviousPrivateKey, 1}
	}
	matched := 0
	for _, k := range [...]key{current, previous} {
		m := k.macs.get(k.secret)
		sum := m.sum(s.sum[:0], head, c.body)
		matched |= k.acceptable & subtle.ConstantTimeCompare(sum, s.claimed[:])
		k.macs.put(m)
	}

	if cap(head) <= keptScratch {
		s.head = head
	}
	v.scratch.Put(s)
	return matched&acceptable == 1
}

// decodeSignature decodes 64 hex digits of either case. It returns 1, or 0 if the signature is malformed.
func decodeSignature(dst *[sha256.Size]byte, signature string) int {
	var digits [2 * sha256.Size]byte // on the stack
	if len(signature) != len(digits) {
		return 0
	}
	copy(digits[:], signature)
	if _, err := hex.Decode(dst[:], digits[:]); err != nil {
		return 0
	}
	return 1
}
