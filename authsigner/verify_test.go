package authsigner_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

const meTarget = "/api/v1/me"

// sourceFunc is a CredentialSource out of a function.
type sourceFunc func(ctx context.Context, publicKey string) (*authsigner.Credential, error)

func (f sourceFunc) Lookup(ctx context.Context, publicKey string) (*authsigner.Credential, error) {
	return f(ctx, publicKey)
}

// unread fails the test if anybody reads it.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}

func (unread) Close() error { return nil }

func TestAMissingOrRepeatedHeaderIsNamed(t *testing.T) {
	t.Parallel()
	v := newVerifier(newCredential(nil))
	for _, name := range []string{
		authsigner.HeaderPublicKey, authsigner.HeaderTimestamp, authsigner.HeaderSignature,
	} {
		for what, values := range map[string][]string{
			"absent": nil, "no value": {}, "empty": {""}, "twice": {"a", "a"}, "twice, one empty": {"a", ""}, "twice, empty": {"", ""},
		} {
			r := signedRequest(testKey, testSecret, http.MethodGet, meTarget, nil)
			r.Header[name] = values
			cred, err := v.Verify(r, meTarget)
			require.Nil(t, cred)
			require.ErrorIs(t, err, authsigner.ErrMissingCredentials, what)
			var missing *authsigner.HeaderError
			require.ErrorAs(t, err, &missing)
			require.Equal(t, name, missing.Header)
			require.Equal(t, len(values) > 1, missing.Repeated)
			require.Contains(t, err.Error(), name)
		}
	}
}

func TestASpellingThatNetHTTPDoesNotUseIsNotRead(t *testing.T) {
	t.Parallel()
	v := newVerifier(newCredential(nil))
	for _, other := range []string{"x-signature", "X-SIGNATURE", "X_Signature", "X-Signature ", "X-Signature\x00"} {
		r := signedRequest(testKey, testSecret, http.MethodGet, meTarget, nil)
		signature := r.Header[authsigner.HeaderSignature]
		r.Header[other] = signature
		_, err := v.Verify(r, meTarget)
		require.NoError(t, err, "another header must not count as a second signature")
		delete(r.Header, authsigner.HeaderSignature)
		_, err = v.Verify(r, meTarget)
		require.ErrorIs(t, err, authsigner.ErrMissingCredentials, other)
	}
}

func TestTheClockIsTheWallClockByDefault(t *testing.T) {
	t.Parallel()
	v := &authsigner.Verifier{Source: fixedSource{newCredential(nil)}}
	verify := func(at time.Time) error {
		r := signedRequest(testKey, testSecret, http.MethodGet, meTarget, nil)
		r.Header.Set(authsigner.HeaderTimestamp, strconv.FormatInt(at.Unix(), 10))
		r.Header.Set(authsigner.HeaderSignature, authsigner.Sign(testSecret, at.Unix(), http.MethodGet, meTarget, nil))
		_, err := v.Verify(r, meTarget)
		return err
	}
	require.NoError(t, verify(time.Now()))
	require.ErrorIs(t, verify(time.Now().Add(-time.Hour)), authsigner.ErrExpired)
	require.ErrorIs(t, verify(time.Now().Add(time.Hour)), authsigner.ErrExpired)
}

func TestTheSkewCanBeSetInWholeSeconds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		skew   time.Duration
		age    time.Duration
		accept bool
	}{
		{0, 300 * time.Second, true},
		{0, 300*time.Second + 999*time.Millisecond, true},
		{0, 301 * time.Second, false},
		{time.Minute, 60 * time.Second, true},
		{time.Minute, 61 * time.Second, false},
		{time.Minute, -60 * time.Second, true},
		{time.Minute, -61 * time.Second, false},
		{90*time.Second + time.Millisecond, 90 * time.Second, true},
		{90*time.Second + time.Millisecond, 91 * time.Second, false},
		{time.Nanosecond, 0, true},
		{time.Nanosecond, time.Second, false},
		{-1, 0, false},
	} {
		v := newVerifier(newCredential(nil))
		v.MaxSkew = test.skew
		v.Now = func() time.Time { return time.Unix(testClock, 0).Add(test.age) }
		_, err := v.Verify(signedRequest(testKey, testSecret, http.MethodGet, meTarget, nil), meTarget)
		if test.accept {
			require.NoError(t, err, "%+v", test)
		} else {
			require.ErrorIs(t, err, authsigner.ErrExpired, "%+v", test)
		}
	}
}

func TestAKeyThatIsNoneIsNeverLookedUp(t *testing.T) {
	t.Parallel()
	v := newVerifier(nil)
	v.Source = sourceFunc(func(_ context.Context, publicKey string) (*authsigner.Credential, error) {
		t.Errorf("the source was asked for %q", publicKey)
		return nil, authsigner.ErrUnknownKey
	})
	for _, key := range []string{
		"short", "pk_live_../../sys/unseal", "pk_live_%2e%2e", "pk_live_0123456789 ", "pk_live_\x00123456", strings.Repeat("a", 129),
	} {
		body := []byte("a body")
		r := signedRequest(key, testSecret, http.MethodPost, meTarget, body)
		cred, err := v.Verify(r, meTarget)
		require.Nil(t, cred)
		require.Equal(t, authsigner.ErrInvalidCredentials, err, "bare, as for a wrong signature")
	}
}

// TestAnUnknownKeyLooksLikeAWrongSignature compares everything that can be seen but the time: the error itself and
// how much of the body was read.
func TestAnUnknownKeyLooksLikeAWrongSignature(t *testing.T) {
	t.Parallel()
	cred := newCredential(map[string]any{
		"previous_private_key": testPreviousSecret, "previous_expires_at": "2100-01-01T00:00:00Z",
	})
	bodies := map[string]int{"none": 0, "small": 10, "as large as allowed": 1000, "too large": 1001, "far too large": 100_000}
	for what, size := range bodies {
		for _, declared := range []bool{true, false} {
			type seen struct {
				err  error
				read int64
			}
			try := func(key string, secret authsigner.Secret, change func(http.Header)) seen {
				v := newVerifier(cred)
				v.MaxBody = 1000
				body := &countingReader{r: strings.NewReader(strings.Repeat("b", size))}
				r := signedRequest(key, secret, http.MethodPost, meTarget, nil)
				r.Body, r.ContentLength = readCloser{body}, -1
				if declared {
					r.ContentLength = int64(size)
				}
				change(r.Header)
				got, err := v.Verify(r, meTarget)
				require.Nil(t, got)
				return seen{err, body.n}
			}
			nothing := func(http.Header) {}
			wrong := try(testKey, "a guess", nothing)
			require.Contains(t, []error{authsigner.ErrInvalidCredentials, authsigner.ErrBodyTooLarge}, wrong.err, "bare")
			require.Equal(t, wrong, try("pk_live_unknown_to_all", testSecret, nothing), "unknown key, %s", what)
			require.Equal(t, wrong, try("no key", testSecret, nothing), "a key that is none, %s", what)
			require.Equal(t, wrong, try(testKey, testSecret, func(h http.Header) {
				h.Set(authsigner.HeaderSignature, "rubbish")
			}), "a signature that is none, %s", what)
			require.Equal(t, wrong, try("pk_live_unknown_to_all", testSecret, func(h http.Header) {
				h.Set(authsigner.HeaderSignature, "rubbish")
			}), "both, %s", what)
		}
	}
}

func TestASourceThatIsOutIsNeitherARefusalNorABodyRead(t *testing.T) {
	t.Parallel()
	cause := errors.New("connection refused")
	for what, test := range map[string]struct {
		source authsigner.CredentialSource
		cause  error
	}{
		"some error": {sourceFunc(func(context.Context, string) (*authsigner.Credential, error) {
			return nil, cause
		}), cause},
		"unavailable": {sourceFunc(func(context.Context, string) (*authsigner.Credential, error) {
			return nil, fmt.Errorf("%w: %w", authsigner.ErrUnavailable, cause)
		}), cause},
		"an error and a credential": {sourceFunc(func(context.Context, string) (*authsigner.Credential, error) {
			return newCredential(nil), cause
		}), cause},
		"a malformed entry": {sourceFunc(func(_ context.Context, key string) (*authsigner.Credential, error) {
			return authsigner.DecodeCredential(key, newRecord(map[string]any{"private_key": ""}))
		}), authsigner.ErrMalformedCredential},
		"the caller is gone": {sourceFunc(func(ctx context.Context, _ string) (*authsigner.Credential, error) {
			return nil, ctx.Err()
		}), context.Canceled},
		"an outage that also says unknown": {sourceFunc(func(context.Context, string) (*authsigner.Credential, error) {
			return nil, errors.Join(authsigner.ErrUnknownKey, authsigner.ErrUnavailable)
		}), authsigner.ErrUnavailable},
		"no answer": {sourceFunc(func(context.Context, string) (*authsigner.Credential, error) {
			return nil, nil
		}), authsigner.ErrUnavailable},
		"another key's credential": {sourceFunc(func(context.Context, string) (*authsigner.Credential, error) {
			return authsigner.DecodeCredential("pk_live_of_another_business", newRecord(nil))
		}), authsigner.ErrUnavailable},
		"no source": {nil, authsigner.ErrUnavailable},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			v := newVerifier(nil)
			v.Source = test.source
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			r := signedRequest(testKey, testSecret, http.MethodPost, meTarget, []byte("a")).WithContext(ctx)
			r.Body = unread{t}
			cred, err := v.Verify(r, meTarget)
			require.Nil(t, cred)
			require.ErrorIs(t, err, authsigner.ErrUnavailable)
			require.ErrorIs(t, err, test.cause)
			require.NotErrorIs(t, err, authsigner.ErrInvalidCredentials)
		})
	}
}

func TestADeclaredBodyOverTheLimitIsRefusedBeforeAnythingIsDone(t *testing.T) {
	t.Parallel()
	v := &authsigner.Verifier{
		Now: func() time.Time { return time.Unix(testClock, 0) },
		Source: sourceFunc(func(context.Context, string) (*authsigner.Credential, error) {
			t.Error("the credential was looked up")
			return nil, authsigner.ErrUnknownKey
		}),
	}
	r := signedRequest(testKey, testSecret, http.MethodPost, meTarget, nil)
	r.Body, r.ContentLength = unread{t}, authsigner.DefaultMaxBody+1
	_, err := v.Verify(r, meTarget)
	require.Equal(t, authsigner.ErrBodyTooLarge, err)
}

func TestTheBodyLimitHoldsForBodiesOfUndeclaredLength(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		limit  int64
		size   int
		accept bool
	}{
		{0, 1 << 20, true},
		{0, 1<<20 + 1, false},
		{0, 8 << 20, false},
		{10, 10, true},
		{10, 11, false},
		{1, 1, true},
		{-1, 0, true},
		{-1, 1, false},
		{1<<63 - 1, 3 << 20, true},
	} {
		v := newVerifier(newCredential(nil))
		v.MaxBody = test.limit
		body := bytes.Repeat([]byte("a"), test.size)
		r := signedRequest(testKey, testSecret, http.MethodPost, meTarget, body)
		counted := &countingReader{r: bytes.NewReader(body)}
		r.Body, r.ContentLength = readCloser{counted}, -1
		_, err := v.Verify(r, meTarget)
		if test.accept {
			require.NoError(t, err, "%+v", test)
			continue
		}
		require.ErrorIs(t, err, authsigner.ErrBodyTooLarge, "%+v", test)
		limit := test.limit
		if limit == 0 {
			limit = authsigner.DefaultMaxBody
		}
		require.LessOrEqual(t, counted.n, max(limit, 0)+512, "no more is read than shows that it is too much")
	}
}

// countingReader counts what is read and remembers the most that was asked for at once.
type countingReader struct {
	r     io.Reader
	n     int64
	asked int
}

func (c *countingReader) Read(p []byte) (int, error) {
	c.asked = max(c.asked, len(p))
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// TestMemoryGrowsWithWhatArrivesNotWithWhatIsDeclared is about a thousand callers who declare a megabyte each.
func TestMemoryGrowsWithWhatArrivesNotWithWhatIsDeclared(t *testing.T) {
	t.Parallel()
	for _, declared := range []int64{authsigner.DefaultMaxBody, -1} {
		v := newVerifier(newCredential(nil))
		r := signedRequest(testKey, testSecret, http.MethodPost, meTarget, nil)
		body := &countingReader{r: strings.NewReader("0123456789")}
		r.Body, r.ContentLength = readCloser{body}, declared
		_, err := v.Verify(r, meTarget)
		require.ErrorIs(t, err, authsigner.ErrInvalidCredentials)
		require.LessOrEqual(t, body.asked, 16<<10)
	}
}

func TestTheBodyIsThereAgainForWhoeverComesNext(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 511, 512, 513, 8191, 8192, 8193, 100_000, 1 << 20} {
		for _, declared := range []bool{true, false} {
			for _, secret := range []authsigner.Secret{testSecret, "a guess"} {
				body := bytes.Repeat([]byte("0123456789abcde"), size/15+1)[:size]
				r := signedRequest(testKey, secret, http.MethodPost, meTarget, body)
				original := &closeCounter{Reader: iotestOneByteAtFirst(body)}
				r.Body, r.ContentLength = original, -1
				if declared {
					r.ContentLength = int64(size)
				}
				before := r.ContentLength
				_, err := newVerifier(newCredential(nil)).Verify(r, meTarget)
				if secret == testSecret {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, authsigner.ErrInvalidCredentials)
				}
				again, err := io.ReadAll(r.Body)
				require.NoError(t, err)
				require.True(t, bytes.Equal(body, again))
				require.Equal(t, before, r.ContentLength)
				if size == 0 {
					require.Equal(t, http.NoBody, r.Body, "nothing is sent on for a chunked body without a chunk")
				} else {
					require.Zero(t, original.closed)
					require.NoError(t, r.Body.Close())
					require.Equal(t, 1, original.closed, "closing it closes the connection's body")
				}
			}
		}
	}
}

type closeCounter struct {
	io.Reader
	closed int
}

func (c *closeCounter) Close() error {
	c.closed++
	return nil
}

// iotestOneByteAtFirst makes reads fall on odd boundaries.
func iotestOneByteAtFirst(body []byte) io.Reader {
	if len(body) == 0 {
		return bytes.NewReader(nil)
	}
	return io.MultiReader(bytes.NewReader(body[:1]), bytes.NewReader(body[1:]))
}

func TestABodyThatBreaksOffIsSaidToBeUnreadable(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection reset")
	for what, test := range map[string]struct {
		body io.Reader
		want []error
		not  error
	}{
		"reset":          {io.MultiReader(strings.NewReader("abc"), failingReader{broken}), []error{authsigner.ErrBodyUnreadable, broken}, authsigner.ErrBodyTooLarge},
		"too short":      {failingReader{io.ErrUnexpectedEOF}, []error{authsigner.ErrBodyUnreadable, io.ErrUnexpectedEOF}, authsigner.ErrBodyTooLarge},
		"read deadline":  {failingReader{os.ErrDeadlineExceeded}, []error{authsigner.ErrBodyUnreadable, os.ErrDeadlineExceeded}, authsigner.ErrBodyTooLarge},
		"never anything": {failingReader{nil}, []error{authsigner.ErrBodyUnreadable, io.ErrNoProgress}, authsigner.ErrBodyTooLarge},
		"another's limit": {
			http.MaxBytesReader(nil, io.NopCloser(strings.NewReader("abcdef")), 3),
			[]error{authsigner.ErrBodyTooLarge},
			authsigner.ErrBodyUnreadable,
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := signedRequest(testKey, testSecret, http.MethodPost, meTarget, nil)
			r.Body, r.ContentLength = readCloser{test.body}, -1
			cred, err := newVerifier(newCredential(nil)).Verify(r, meTarget)
			require.Nil(t, cred)
			for _, want := range test.want {
				require.ErrorIs(t, err, want)
			}
			require.NotErrorIs(t, err, test.not)
		})
	}
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

// tricklingReader hands out a byte at a time and moves the clock on by a second with each.
type tricklingReader struct {
	left  int
	clock *time.Time
}

func (r *tricklingReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	r.left--
	*r.clock = r.clock.Add(time.Second)
	p[0] = 'a'
	return 1, nil
}

func TestABodyThatTricklesInIsGivenUp(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		timeout time.Duration
		size    int
		accept  bool
	}{
		{10 * time.Second, 10, true},
		{10 * time.Second, 11, false},
		{10 * time.Second, 1000, false},
		{0, 1000, true},
	} {
		clock := time.Unix(testClock, 0)
		v := newVerifier(newCredential(nil))
		v.BodyTimeout = test.timeout
		v.Now = func() time.Time { return clock }
		r := signedRequest(testKey, testSecret, http.MethodPost, meTarget, bytes.Repeat([]byte("a"), test.size))
		trickle := &tricklingReader{left: test.size, clock: &clock}
		r.Body = readCloser{trickle}
		_, err := v.Verify(r, meTarget)
		if test.accept {
			require.NoError(t, err, "%+v", test)
			continue
		}
		require.ErrorIs(t, err, authsigner.ErrBodyUnreadable)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, test.size-11, trickle.left)
	}
}

// TestAnEmptySecretNeverVerifies hands the verifier credentials that no decoder would let through.
func TestAnEmptySecretNeverVerifies(t *testing.T) {
	t.Parallel()
	emptySum := func() string { // what a caller who knows that the secret is empty would send
		h := hmac.New(sha256.New, nil)
		h.Write(authsigner.SigningString(testClock, http.MethodGet, meTarget, nil))
		return hex.EncodeToString(h.Sum(nil))
	}()
	later := time.Unix(testClock, 0).Add(time.Hour)
	for what, cred := range map[string]*authsigner.Credential{
		"empty":                       {},
		"a zero byte":                 {PrivateKey: "\x00"},
		"zero bytes":                  {PrivateKey: authsigner.Secret(strings.Repeat("\x00", 64))},
		"empty previous":              {PrivateKey: testSecret, PreviousExpiresAt: later},
		"previous of zero bytes":      {PrivateKey: testSecret, PreviousPrivateKey: "\x00\x00", PreviousExpiresAt: later},
		"both":                        {PreviousExpiresAt: later},
		"both of zero bytes":          {PrivateKey: "\x00", PreviousPrivateKey: "\x00", PreviousExpiresAt: later},
		"a previous without an end":   {PrivateKey: testSecret, PreviousPrivateKey: "\x00"},
		"empty, but a right previous": {PreviousPrivateKey: testSecret, PreviousExpiresAt: later},
	} {
		cred.PublicKey, cred.Status = testKey, authsigner.StatusActive
		r := signedRequest(testKey, testSecret, http.MethodGet, meTarget, nil)
		r.Header.Set(authsigner.HeaderSignature, emptySum)
		got, err := newVerifier(cred).Verify(r, meTarget)
		require.Equal(t, authsigner.ErrInvalidCredentials, err, what)
		require.Nil(t, got)
	}
	r := signedRequest(testKey, testSecret, http.MethodGet, meTarget, nil)
	_, err := newVerifier(&authsigner.Credential{
		PublicKey: testKey, PreviousPrivateKey: testSecret, PreviousExpiresAt: later, Status: authsigner.StatusActive,
	}).Verify(r, meTarget)
	require.NoError(t, err, "the one secret that is there does")
}

// TestNoOtherDigitStandsForTheRightOne puts every byte in every place of a right signature: but for the digit itself,
// in either case, none is accepted.
func TestNoOtherDigitStandsForTheRightOne(t *testing.T) {
	t.Parallel()
	v := newVerifier(newCredential(nil))
	for page := range 2 {
		target := "/api/v1/jobs?page=" + strconv.Itoa(page)
		r := signedRequest(testKey, testSecret, http.MethodGet, target, nil)
		right := r.Header.Get(authsigner.HeaderSignature)
		for place := range right {
			for c := range 256 {
				digit := string([]byte{byte(c)})
				r.Header[authsigner.HeaderSignature] = []string{right[:place] + digit + right[place+1:]}
				_, err := v.Verify(r, target)
				if strings.ToLower(digit) == right[place:place+1] {
					require.NoError(t, err)
				} else if err != authsigner.ErrInvalidCredentials { //nolint:errorlint // bare
					t.Fatalf("%q in place %d of %s: %v", digit, place, right, err)
				}
			}
		}
	}
}

// TestTheDummySecretVerifiesNothing is about a caller who has read the source.
func TestTheDummySecretVerifiesNothing(t *testing.T) {
	t.Parallel()
	later := time.Unix(testClock, 0).Add(time.Hour)
	for _, cred := range []*authsigner.Credential{
		newCredential(nil),
		{PublicKey: testKey, Status: authsigner.StatusActive},
		{PublicKey: testKey, PreviousPrivateKey: testPreviousSecret, PreviousExpiresAt: later, Status: authsigner.StatusActive},
	} {
		for _, key := range []string{testKey, "pk_live_unknown_to_all", "no key"} {
			r := signedRequest(key, authsigner.DummySecret, http.MethodGet, meTarget, nil)
			got, err := newVerifier(cred).Verify(r, meTarget)
			require.Equal(t, authsigner.ErrInvalidCredentials, err)
			require.Nil(t, got)
		}
	}
}

func TestThePreviousSecretWithoutAnEndNeverVerifies(t *testing.T) {
	t.Parallel()
	v := newVerifier(&authsigner.Credential{
		PublicKey: testKey, PrivateKey: testSecret, PreviousPrivateKey: testPreviousSecret, Status: authsigner.StatusActive,
	})
	_, err := v.Verify(signedRequest(testKey, testPreviousSecret, http.MethodGet, meTarget, nil), meTarget)
	require.Equal(t, authsigner.ErrInvalidCredentials, err)
}

func TestAnAccountThatIsNotActiveIsInactive(t *testing.T) {
	t.Parallel()
	for _, status := range []authsigner.Status{"inactive", "", "Active", "ACTIVE", "active ", "suspended"} {
		cred := newCredential(nil).Clone()
		cred.Status = status
		got, err := newVerifier(cred).Verify(signedRequest(testKey, testSecret, http.MethodGet, meTarget, nil), meTarget)
		require.Equal(t, authsigner.ErrAccountInactive, err)
		require.Same(t, cred, got, "the signature was right: the budget is the key's")
		got, err = newVerifier(cred).Verify(signedRequest(testKey, "a guess", http.MethodGet, meTarget, nil), meTarget)
		require.Equal(t, authsigner.ErrInvalidCredentials, err, "the account's state is for those who can sign")
		require.Nil(t, got)
	}
}

// TestASecretThatWasReplacedInPlaceIsForgotten breaks the rule that credentials are immutable; the old secret must
// not live on in the ready states.
func TestASecretThatWasReplacedInPlaceIsForgotten(t *testing.T) {
	t.Parallel()
	cred := newCredential(nil)
	v := newVerifier(cred)
	old := signedRequest(testKey, testSecret, http.MethodGet, meTarget, nil)
	_, err := v.Verify(old, meTarget)
	require.NoError(t, err)
	cred.PrivateKey = "the next secret"
	_, err = v.Verify(old, meTarget)
	require.Equal(t, authsigner.ErrInvalidCredentials, err)
	_, err = v.Verify(signedRequest(testKey, "the next secret", http.MethodGet, meTarget, nil), meTarget)
	require.NoError(t, err)
}

// TestOneCredentialServesConcurrentRequests lets requests of all kinds share the ready states: no verdict may depend
// on another request.
func TestOneCredentialServesConcurrentRequests(t *testing.T) {
	t.Parallel()
	cred := newCredential(map[string]any{
		"previous_private_key": testPreviousSecret, "previous_expires_at": "2100-01-01T00:00:00Z",
	})
	v := newVerifier(cred)
	var wait sync.WaitGroup
	for worker := range 16 {
		wait.Go(func() {
			for i := range 200 {
				target := fmt.Sprintf("/api/v1/contacts?page=%d&worker=%d%s", i, worker, strings.Repeat("&x", i*worker))
				body := []byte(strings.Repeat("b", i*worker%700))
				secret, key, want := authsigner.Secret(testSecret), testKey, error(nil)
				switch (i + worker) % 4 {
				case 1:
					secret = testPreviousSecret
				case 2:
					secret, want = "a guess", authsigner.ErrInvalidCredentials
				case 3:
					key, want = "pk_live_unknown_to_all", authsigner.ErrInvalidCredentials
				}
				_, err := v.Verify(signedRequest(key, secret, http.MethodPost, target, body), target)
				if err != want { //nolint:errorlint // bare
					t.Errorf("%s: %v instead of %v", target, err, want)
					return
				}
			}
		})
	}
	wait.Wait()
}

// TestVerificationOfACachedCredentialAllocatesNothing is not parallel because it counts the process's allocations;
// the least of several runs is free of what else goes on in it.
func TestVerificationOfACachedCredentialAllocatesNothing(t *testing.T) {
	cred := newCredential(map[string]any{
		"previous_private_key": testPreviousSecret, "previous_expires_at": "2100-01-01T00:00:00Z",
	})
	v := newVerifier(cred)
	stranger := signedRequest("pk_live_unknown_to_all", testSecret, http.MethodGet, benchTarget, nil)
	malformed := signedRequest(testKey, testSecret, http.MethodGet, benchTarget, nil)
	malformed.Header.Set(authsigner.HeaderSignature, "rubbish")
	for what, r := range map[string]*http.Request{
		"current secret":      signedRequest(testKey, testSecret, http.MethodGet, benchTarget, nil),
		"previous secret":     signedRequest(testKey, testPreviousSecret, http.MethodGet, benchTarget, nil),
		"wrong signature":     signedRequest(testKey, "a guess", http.MethodGet, benchTarget, nil),
		"malformed signature": malformed,
		"unknown key":         stranger,
	} {
		least := 100.0
		for range 5 {
			least = min(least, testing.AllocsPerRun(500, func() { _, _ = v.Verify(r, benchTarget) }))
		}
		require.Zero(t, least, what)
	}
}

// TestABodyThatIsNotSentIsNotWaitedFor is the adapter's part of BodyTimeout, shown over a real connection: a read
// deadline ends a body that does not come, and Verify says so.
func TestABodyThatIsNotSentIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	verdicts := make(chan error, 1)
	v := newVerifier(newCredential(nil))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			t.Error(err)
		}
		_, err := v.Verify(r, r.RequestURI)
		verdicts <- err
		w.WriteHeader(http.StatusRequestTimeout)
	}))
	t.Cleanup(server.Close)
	stalled, stop := io.Pipe()
	gone := make(chan struct{})
	t.Cleanup(func() {
		_ = stop.Close()
		<-gone
	})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+meTarget, stalled)
	require.NoError(t, err)
	r.ContentLength = 100
	r.Header = signedRequest(testKey, testSecret, http.MethodPost, meTarget, nil).Header
	go func() {
		defer close(gone)
		response, err := server.Client().Do(r)
		if err == nil {
			_ = response.Body.Close()
		}
	}()
	select {
	case err := <-verdicts:
		require.ErrorIs(t, err, authsigner.ErrBodyUnreadable)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	case <-time.After(time.Minute):
		t.Fatal("the verdict does not come")
	}
}
