package authsigner

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
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

// The defaults of [Verifier], which are the public contract's numbers.
const (
	// DefaultMaxSkew is how far a timestamp may be from the server's clock on either side; exactly 300 s is accepted.
	DefaultMaxSkew = 5 * time.Minute

	// DefaultMaxBody is how many bytes of body may be signed: 1 MiB.
	DefaultMaxBody int64 = 1 << 20
)

const (
	// maxTimestampDigits is how long a timestamp may be and still be one. It holds nanoseconds and whatever fits
	// into 64 bits, so that a caller with the wrong unit learns that its clock, not its signature, is the matter.
	maxTimestampDigits = 20

	// farFuture stands for every instant beyond it, in Unix seconds: 34,800 years after 1970.
	farFuture = 1 << 40

	// dummySecret keys the signatures that are computed for keys that do not exist. What comes of it is thrown
	// away whatever it is, so that it need not be a secret.
	dummySecret = Secret("computed for an unknown key, never accepted")

	// firstScratch is room for the signing heads of nearly all requests, in bytes.
	firstScratch = 512

	// keptScratch is the largest signing head, in bytes, whose buffer is kept for the next request.
	keptScratch = 8 << 10

	// firstRead is the most that is set aside for a body before any of it has arrived, in bytes.
	firstRead = 8 << 10
)

// Verifier verifies signed requests. Only Source is needed; the zero value of every other field is its default. It is
// safe for concurrent use, its fields are not changed after the first use, and it must not be copied.
//
// The verification of a body-less request whose credential is cached allocates nothing and, although it computes two
// HMACs, takes about as long as one out of crypto/hmac with its key schedule: 1.4 µs against 1.4 µs (and 512 bytes in
// 6 allocations) on one core of a 2-core Xeon, go1.26; a wrong signature and an unknown key take the same. Measured by
//
//	go test -run '^$' -bench 'BareHMAC|Verify/' -count 5 -cpu 1 ./authsigner
type Verifier struct {
	// Source finds the credentials; usually a Cache.
	Source CredentialSource

	// MaxSkew is how far the timestamp may be from the clock, on either side, counted in whole seconds.
	// Default DefaultMaxSkew. Negative: nothing is accepted.
	MaxSkew time.Duration

	// MaxBody is how many bytes a body may have. Default DefaultMaxBody. Negative: only an empty one is accepted.
	MaxBody int64

	// BodyTimeout bounds the time from the first read of the body to its end, looked at whenever a part of it
	// arrives: a body that trickles in is given up. One that does not arrive at all can only be given up by whoever
	// holds the connection, with http.ResponseController.SetReadDeadline. Default: no bound.
	BodyTimeout time.Duration

	// Now is the server's clock. Default time.Now.
	Now func() time.Time

	dummy   macs      // of dummySecret
	scratch sync.Pool // of *scratch
}

// scratch is what a verification needs beside the HMAC states.
type scratch struct {
	head    []byte // timestamp LF METHOD LF target LF
	sum     [sha256.Size]byte
	claimed [sha256.Size]byte
}

// Verify says whose request r is. The target is the request target exactly as it came over the wire, from /api/v1 on,
// query string included; behind a plain http.Server that is r.RequestURI.
//
// The checks, in this order, and the error of each:
//
//  1. each of the three headers exactly once and not empty: ErrMissingCredentials (a *HeaderError);
//  2. the timestamp is 1 to 20 ASCII digits: ErrInvalidCredentials;
//     it is at most MaxSkew from the clock, either side, in whole seconds: ErrExpired;
//  3. the declared body is not over MaxBody: ErrBodyTooLarge, nothing is looked up or read;
//  4. the credential is looked up: any answer but a credential or ErrUnknownKey is ErrUnavailable, wrapping the cause;
//  5. the body is read: ErrBodyTooLarge, ErrBodyUnreadable;
//  6. the signature is that of the current secret, or of the previous one until it ends: ErrInvalidCredentials;
//  7. the account is active: ErrAccountInactive.
//
// A credential is returned only if its signature verified: (cred, nil), or (cred, ErrAccountInactive).
//
// An unknown key cannot be told from a wrong signature. From step 3 on, a key that does not exist, a key that is none
// (ValidPublicKey; it is never looked up) and a signature that is none take the way of a well-formed wrong one: the
// body is read, or refused as too large, in the same manner, and two signatures are computed in any case, the second
// for the previous secret or else for nothing. The look-up comes before the body, so that nothing is buffered while,
// or because, the credentials are out of reach; and what is buffered grows with what has arrived, never with what has
// been declared. Whether the source itself answers equally fast for known and unknown keys is the source's matter:
// the Cache remembers both.
//
// On return r.Body is again the whole body, whatever the verdict, unless reading it failed. Nothing else of r is
// changed; ContentLength stays -1 for a chunked body.
func (v *Verifier) Verify(r *http.Request, target string) (*Credential, error) {
	publicKey, err := soleHeader(r.Header, HeaderPublicKey)
	if err != nil {
		return nil, err
	}
	timestamp, err := soleHeader(r.Header, HeaderTimestamp)
	if err != nil {
		return nil, err
	}
	signature, err := soleHeader(r.Header, HeaderSignature)
	if err != nil {
		return nil, err
	}

	now := v.now()
	if err := v.checkTimestamp(timestamp, now); err != nil {
		return nil, err
	}
	if r.ContentLength > v.maxBody() {
		return nil, ErrBodyTooLarge
	}
	cred, err := v.lookUp(r.Context(), publicKey)
	if err != nil {
		return nil, err
	}
	body, err := v.readBody(r)
	if err != nil {
		return nil, err
	}
	if !v.authentic(cred, now, timestamp, r.Method, target, body, signature) {
		return nil, ErrInvalidCredentials
	}
	if cred.Status != StatusActive {
		return cred, ErrAccountInactive
	}
	return cred, nil
}

// soleHeader returns the value of the header if it is there exactly once and not empty. Only the canonical name is
// looked at: net/http canonicalises what arrives, and X_Public_Key is another header.
func soleHeader(h http.Header, name string) (string, error) {
	values := h[name]
	if len(values) > 1 {
		return "", &HeaderError{Header: name, Repeated: true}
	}
	if len(values) == 0 || values[0] == "" {
		return "", &HeaderError{Header: name}
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

// checkTimestamp compares whole seconds: the caller has dropped the fraction of its clock, so the server drops that
// of its own, or else 300 s would be more than 300 s for all but an instant of the last second.
func (v *Verifier) checkTimestamp(timestamp string, now time.Time) error {
	if len(timestamp) > maxTimestampDigits {
		return ErrInvalidCredentials
	}
	var seconds int64
	for i := range len(timestamp) {
		digit := timestamp[i] - '0'
		if digit > 9 {
			return ErrInvalidCredentials
		}
		if seconds < farFuture { // and so never overflows
			seconds = seconds*10 + int64(digit)
		}
	}
	skew := v.MaxSkew
	if skew == 0 {
		skew = DefaultMaxSkew
	}
	allowed := int64(skew / time.Second)
	if age := now.Unix() - seconds; skew < 0 || age > allowed || age < -allowed {
		return ErrExpired
	}
	return nil
}

// lookUp returns a nil credential for a key that does not exist.
func (v *Verifier) lookUp(ctx context.Context, publicKey string) (*Credential, error) {
	if !ValidPublicKey(publicKey) {
		return nil, nil // no error here: it takes the way of a wrong signature
	}
	if v.Source == nil {
		return nil, fmt.Errorf("looking up the credential: %w: no source is configured", ErrUnavailable)
	}
	cred, err := v.Source.Lookup(ctx, publicKey)
	switch {
	case err == nil && cred == nil:
		return nil, fmt.Errorf("looking up the credential: %w: the source answered nothing", ErrUnavailable)
	case err == nil && cred.PublicKey != publicKey:
		return nil, fmt.Errorf("looking up the credential: %w: the source answered with another key's", ErrUnavailable)
	case err == nil:
		return cred, nil
	case errors.Is(err, ErrUnavailable): // first: an outage that also says unknown is an outage
		return nil, fmt.Errorf("looking up the credential: %w", err)
	case errors.Is(err, ErrUnknownKey):
		return nil, nil // as above
	default:
		return nil, fmt.Errorf("looking up the credential: %w: %w", ErrUnavailable, err)
	}
}

// readBody reads the whole body and puts it back.
func (v *Verifier) readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	limit := min(v.maxBody(), math.MaxInt-1)
	start := v.now()
	// One byte more than is expected, so that the end is seen without growing.
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
		if err == io.EOF { // itself; one that is wrapped is a failure
			break
		}
		if err != nil {
			if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
				return nil, fmt.Errorf("%w: %w", ErrBodyTooLarge, err)
			}
			return nil, fmt.Errorf("%w: %w", ErrBodyUnreadable, err)
		}
		if v.BodyTimeout > 0 && v.now().Sub(start) > v.BodyTimeout {
			return nil, fmt.Errorf("%w: %w", ErrBodyUnreadable, os.ErrDeadlineExceeded)
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

// bufferedBody is a body that has been read, closed as the original one.
type bufferedBody struct {
	io.Reader
	io.Closer
}

// authentic reports whether the signature is one of the credential's. It does the same work in the same order for
// every credential, nil included, and every signature; nothing branches on a secret or on what was computed from it.
func (v *Verifier) authentic(
	cred *Credential, now time.Time, timestamp, method, target string, body []byte, signature string,
) bool {
	s, _ := v.scratch.Get().(*scratch)
	if s == nil {
		s = &scratch{head: make([]byte, 0, firstScratch)}
	}
	// The signing string is unambiguous because only its last part may hold a line feed. net/http never delivers
	// another one; whoever calls this without it must not gain by that.
	acceptable := decodeSignature(&s.claimed, signature)
	if strings.Contains(method, "\n") || strings.Contains(target, "\n") {
		acceptable = 0
	}
	head := s.head[:0]
	head = append(head, timestamp...)
	head = append(head, '\n')
	head = append(head, method...)
	head = append(head, '\n')
	head = append(head, target...)
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
	if cred != nil && now.Before(cred.PreviousExpiresAt) && cred.PreviousPrivateKey.usable() {
		previous = key{&cred.previous, cred.PreviousPrivateKey, 1}
	}
	matched := 0
	for _, k := range [...]key{current, previous} {
		m := k.macs.take(k.secret)
		sum := m.sum(s.sum[:0], head, body)
		matched |= k.acceptable & subtle.ConstantTimeCompare(sum, s.claimed[:])
		k.macs.giveBack(m)
	}

	if cap(head) <= keptScratch {
		s.head = head
	}
	v.scratch.Put(s)
	return matched&acceptable == 1
}

// decodeSignature decodes 64 hex digits of either case and returns 1, or 0 if the signature is anything else.
func decodeSignature(dst *[sha256.Size]byte, signature string) int {
	if len(signature) != 2*sha256.Size {
		return 0
	}
	for i := range dst {
		high, low := hexDigit(signature[2*i]), hexDigit(signature[2*i+1])
		if high > 15 || low > 15 {
			return 0
		}
		dst[i] = high<<4 | low
	}
	return 1
}

// hexDigit returns the value of a hex digit, and more than 15 for anything else.
func hexDigit(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return 0xff
}
