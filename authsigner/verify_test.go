package authsigner_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

const (
	meTarget   = "/api/v1/me"
	nobodysKey = "pk_live_unknown_to_all"
)

// bodySpy is a request body that records how it is used.
type bodySpy struct {
	io.Reader
	read   int64
	asked  int // the size of the largest buffer
	closed int
}

func (b *bodySpy) Read(p []byte) (int, error) {
	b.asked = max(b.asked, len(p))
	n, err := b.Reader.Read(p)
	b.read += int64(n)
	return n, err
}

func (b *bodySpy) Close() error {
	b.closed++
	return nil
}

// unreadable is a body that must not be read.
func unreadable() io.ReadCloser {
	return io.NopCloser(iotest.ErrReader(errors.New("the body was read")))
}

func TestMissingOrRepeatedHeaderIsNamed(t *testing.T) {
	t.Parallel()
	v := newVerifier(newCredential(nil))
	for _, name := range []string{
		authsigner.HeaderPublicKey, authsigner.HeaderTimestamp, authsigner.HeaderSignature,
	} {
		for what, values := range map[string][]string{
			"absent": nil, "no value": {}, "empty": {""}, "twice": {"a", "a"}, "twice, one empty": {"a", ""}, "twice, empty": {"", ""},
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				r := get(testSecret)
				r.Header[name] = values
				cred, err := v.Verify(r, meTarget)
				require.Nil(t, cred)
				require.ErrorIs(t, err, authsigner.ErrMissingCredentials)
				problem := " is missing"
				if len(values) > 1 {
					problem = " is given more than once"
				}
				require.ErrorContains(t, err, ": "+name+problem)
			})
		}
	}
}

func TestOnlyCanonicalHeaderNamesAreRead(t *testing.T) {
	t.Parallel()
	v := newVerifier(newCredential(nil))
	for _, other := range []string{"x-signature", "X-SIGNATURE", "X_Signature", "X-Signature ", "X-Signature\x00"} {
		r := get(testSecret)
		r.Header[other] = r.Header[authsigner.HeaderSignature]
		_, err := v.Verify(r, meTarget)
		require.NoError(t, err, "%q counted as a second signature", other)
		delete(r.Header, authsigner.HeaderSignature)
		_, err = v.Verify(r, meTarget)
		require.ErrorIs(t, err, authsigner.ErrMissingCredentials, other)
	}
}

func TestVerifierUsesTheWallClockByDefault(t *testing.T) {
	t.Parallel()
	v := &authsigner.Verifier{Source: memoryStore{testKey: newCredential(nil)}}
	for offset, want := range map[time.Duration]error{0: nil, -time.Hour: authsigner.ErrExpired, time.Hour: authsigner.ErrExpired} {
		_, err := v.Verify(getSignedAt(time.Now().Add(offset)), meTarget)
		assert.Equal(t, want, err, offset)
	}
}

func TestMaxSkewCountsWholeSeconds(t *testing.T) {
	t.Parallel()
	for age, want := range map[time.Duration]error{
		300*time.Second + 999*time.Millisecond: nil,
		301 * time.Second:                      authsigner.ErrExpired,
		-300 * time.Second:                     nil,
		-301 * time.Second:                     authsigner.ErrExpired,
	} {
		v := newVerifier(newCredential(nil))
		v.Now = func() time.Time { return time.Unix(testClock, 0).Add(age) }
		_, err := v.Verify(get(testSecret), meTarget)
		assert.Equal(t, want, err, age)
	}
}

func TestInvalidPublicKeysAreNeverLookedUp(t *testing.T) {
	t.Parallel()
	v := newVerifier(nil)
	v.Source = sourceFunc(func(_ context.Context, publicKey string) (*authsigner.Credential, error) {
		t.Errorf("the source was asked for %q", publicKey)
		return nil, authsigner.ErrUnknownKey
	})
	for _, key := range invalidPublicKeys() {
		if key == "" {
			continue // a missing header
		}
		cred, err := v.Verify(signedRequest(key, testSecret, http.MethodPost, meTarget, []byte("a body")), meTarget)
		require.Nil(t, cred)
		assert.Equal(t, authsigner.ErrInvalidCredentials, err, "bare, as for a wrong signature")
	}
}

// The two must agree in all that a caller can observe except the time: the error and how much of the body was read.
func TestUnknownKeyLooksLikeAWrongSignature(t *testing.T) {
	t.Parallel()
	type observed struct {
		err  error
		read int64
	}
	try := func(t *testing.T, size int, declared bool, key string, secret authsigner.Secret, signature string) observed {
		t.Helper()
		v := newVerifier(rotatingCredential())
		v.MaxBody = 1000
		body := &bodySpy{Reader: strings.NewReader(strings.Repeat("b", size))}
		r := signedRequest(key, secret, http.MethodPost, meTarget, nil)
		r.Body, r.ContentLength = body, -1
		if declared {
			r.ContentLength = int64(size)
		}
		if signature != "" {
			r.Header.Set(authsigner.HeaderSignature, signature)
		}
		cred, err := v.Verify(r, meTarget)
		require.Nil(t, cred)
		return observed{err, body.read}
	}
	for _, size := range []int{0, 10, 1000, 1001, 100_000} {
		for _, declared := range []bool{true, false} {
			t.Run(fmt.Sprintf("size=%d,declared=%t", size, declared), func(t *testing.T) {
				t.Parallel()
				want := try(t, size, declared, testKey, "a guess", "")
				assert.Contains(t, []error{authsigner.ErrInvalidCredentials, authsigner.ErrBodyTooLarge}, want.err, "bare")
				assert.Equal(t, want, try(t, size, declared, nobodysKey, testSecret, ""), "unknown key")
				assert.Equal(t, want, try(t, size, declared, "no key", testSecret, ""), "invalid key")
				assert.Equal(t, want, try(t, size, declared, testKey, testSecret, "rubbish"), "malformed signature")
				assert.Equal(t, want, try(t, size, declared, nobodysKey, testSecret, "rubbish"), "unknown key, malformed signature")
			})
		}
	}
}

func TestSourceErrorsAreUnavailableAndReadNoBody(t *testing.T) {
	t.Parallel()
	cause := errors.New("connection refused")
	result := func(cred *authsigner.Credential, err error) sourceFunc {
		return func(context.Context, string) (*authsigner.Credential, error) { return cred, err }
	}
	anothers, err := authsigner.DecodeCredential("pk_live_of_another_business", newRecord(nil))
	require.NoError(t, err)
	_, malformed := authsigner.DecodeCredential(testKey, newRecord(map[string]any{"private_key": ""}))
	for what, test := range map[string]struct {
		source authsigner.CredentialSource
		cause  error
	}{
		"any error":                {result(nil, cause), cause},
		"unavailable":              {result(nil, fmt.Errorf("%w: %w", authsigner.ErrUnavailable, cause)), cause},
		"error and a credential":   {result(newCredential(nil), cause), cause},
		"malformed entry":          {result(nil, malformed), authsigner.ErrMalformedCredential},
		"unavailable and unknown":  {result(nil, errors.Join(authsigner.ErrUnknownKey, authsigner.ErrUnavailable)), authsigner.ErrUnavailable},
		"no credential, no error":  {result(nil, nil), authsigner.ErrUnavailable},
		"another key's credential": {result(anothers, nil), authsigner.ErrUnavailable},
		"no source":                {nil, authsigner.ErrUnavailable},
		"canceled request": {sourceFunc(func(ctx context.Context, _ string) (*authsigner.Credential, error) {
			return nil, ctx.Err()
		}), context.Canceled},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			v := newVerifier(nil)
			v.Source = test.source
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			r := signedRequest(testKey, testSecret, http.MethodPost, meTarget, []byte("a")).WithContext(ctx)
			r.Body = unreadable()
			cred, err := v.Verify(r, meTarget)
			require.Nil(t, cred)
			require.ErrorIs(t, err, authsigner.ErrUnavailable)
			require.ErrorIs(t, err, test.cause)
			require.NotErrorIs(t, err, authsigner.ErrInvalidCredentials)
		})
	}
}

func TestDeclaredBodyOverTheLimitIsRejectedFirst(t *testing.T) {
	t.Parallel()
	v := newVerifier(nil)
	v.Source = sourceFunc(func(context.Context, string) (*authsigner.Credential, error) {
		t.Error("the credential was looked up")
		return nil, authsigner.ErrUnknownKey
	})
	r := signedRequest(testKey, testSecret, http.MethodPost, meTarget, nil)
	r.Body, r.ContentLength = unreadable(), authsigner.DefaultMaxBody+1
	_, err := v.Verify(r, meTarget)
	require.Equal(t, authsigner.ErrBodyTooLarge, err)
}

func TestMaxBodyLimitsBodiesOfUndeclaredLength(t *testing.T) {
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
		spy := &bodySpy{Reader: bytes.NewReader(body)}
		r.Body, r.ContentLength = spy, -1
		_, err := v.Verify(r, meTarget)
		if test.accept {
			assert.NoError(t, err, "%+v", test)
			continue
		}
		assert.Equal(t, authsigner.ErrBodyTooLarge, err, "%+v", test)
		limit := test.limit
		if limit == 0 {
			limit = authsigner.DefaultMaxBody
		}
		assert.LessOrEqual(t, spy.read, max(limit, 0)+512, "%+v: no more is read than shows that it is too much", test)
	}
}

// A thousand callers that each declare a megabyte must not cost a gigabyte.
func TestMemoryGrowsWithArrivedNotDeclaredBytes(t *testing.T) {
	t.Parallel()
	for _, declared := range []int64{authsigner.DefaultMaxBody, -1} {
		r := signedRequest(testKey, testSecret, http.MethodPost, meTarget, nil)
		body := &bodySpy{Reader: strings.NewReader("0123456789")}
		r.Body, r.ContentLength = body, declared
		_, err := newVerifier(newCredential(nil)).Verify(r, meTarget)
		assert.Equal(t, authsigner.ErrInvalidCredentials, err)
		assert.LessOrEqual(t, body.asked, 16<<10)
	}
}

func TestBodyIsRestored(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 511, 512, 513, 8191, 8192, 8193, 100_000, 1 << 20} {
		for _, declared := range []int64{int64(size), -1} {
			for secret, want := range map[authsigner.Secret]error{testSecret: nil, "a guess": authsigner.ErrInvalidCredentials} {
				body := bytes.Repeat([]byte("0123456789abcde"), size/15+1)[:size]
				r := signedRequest(testKey, secret, http.MethodPost, meTarget, body)
				original := &bodySpy{Reader: iotest.HalfReader(bytes.NewReader(body))}
				r.Body, r.ContentLength = original, declared
				_, err := newVerifier(newCredential(nil)).Verify(r, meTarget)
				require.Equal(t, want, err)
				again, err := io.ReadAll(r.Body)
				require.NoError(t, err)
				require.True(t, bytes.Equal(body, again), "%d bytes instead of %d", len(again), size)
				require.Equal(t, declared, r.ContentLength)
				if size == 0 {
					require.Equal(t, http.NoBody, r.Body, "a chunked body without a chunk is forwarded as none")
				} else {
					require.Zero(t, original.closed)
					require.NoError(t, r.Body.Close())
					require.Equal(t, 1, original.closed)
				}
			}
		}
	}
}

func TestBodyThatBreaksOffIsUnreadable(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection reset")
	for what, test := range map[string]struct {
		body      io.Reader
		want, not error
		cause     error
	}{
		"reset":         {io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(broken)), authsigner.ErrBodyUnreadable, authsigner.ErrBodyTooLarge, broken},
		"too short":     {iotest.ErrReader(io.ErrUnexpectedEOF), authsigner.ErrBodyUnreadable, authsigner.ErrBodyTooLarge, io.ErrUnexpectedEOF},
		"read deadline": {iotest.ErrReader(os.ErrDeadlineExceeded), authsigner.ErrBodyUnreadable, authsigner.ErrBodyTooLarge, os.ErrDeadlineExceeded},
		"no progress":   {iotest.ErrReader(nil), authsigner.ErrBodyUnreadable, authsigner.ErrBodyTooLarge, io.ErrNoProgress},
		"http.MaxBytesReader": {
			http.MaxBytesReader(nil, io.NopCloser(strings.NewReader("abcdef")), 3),
			authsigner.ErrBodyTooLarge, authsigner.ErrBodyUnreadable, authsigner.ErrBodyTooLarge,
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := signedRequest(testKey, testSecret, http.MethodPost, meTarget, nil)
			r.Body, r.ContentLength = io.NopCloser(test.body), -1
			cred, err := newVerifier(newCredential(nil)).Verify(r, meTarget)
			require.Nil(t, cred)
			require.ErrorIs(t, err, test.want)
			require.ErrorIs(t, err, test.cause)
			require.NotErrorIs(t, err, test.not)
		})
	}
}

func TestClaimIsVerifiedWithACredential(t *testing.T) {
	t.Parallel()
	body := []byte(`{"a":1}`)
	v := &authsigner.Verifier{Now: func() time.Time { return time.Unix(testClock, 0) }} // without a source
	request := func(key string, secret authsigner.Secret) *http.Request {
		return signedRequest(key, secret, http.MethodPost, meTarget, body)
	}
	cred, inactive := newCredential(nil), newCredential(map[string]any{"status": "inactive"})
	expired := newCredential(map[string]any{"expires_at": time.Unix(testClock, 0).UTC().Format(time.RFC3339)})
	for name, c := range map[string]struct {
		r    *http.Request
		with *authsigner.Credential
		want *authsigner.Credential
		err  error
	}{
		"valid":                         {request(testKey, testSecret), cred, cred, nil},
		"wrong signature":               {request(testKey, "a guess"), cred, nil, authsigner.ErrInvalidCredentials},
		"unknown key":                   {request(testKey, testSecret), nil, nil, authsigner.ErrInvalidCredentials},
		"expired key":                   {request(testKey, testSecret), expired, nil, authsigner.ErrInvalidCredentials},
		"inactive account":              {request(testKey, testSecret), inactive, inactive, authsigner.ErrAccountInactive},
		"the credential of another key": {request(nobodysKey, testSecret), cred, nil, authsigner.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim, err := v.ReadClaim(c.r, meTarget)
			require.NoError(t, err)
			require.Equal(t, c.r.Header.Get(authsigner.HeaderPublicKey), claim.PublicKey)
			got, err := v.VerifyClaim(&claim, c.with)
			require.Same(t, c.want, got)
			require.ErrorIs(t, err, c.err)
			rest, err := io.ReadAll(c.r.Body)
			require.NoError(t, err)
			require.Equal(t, body, rest)
		})
	}
}

func TestClaimIsReadWithTheLimitsOfVerify(t *testing.T) {
	t.Parallel()
	v := newVerifier(nil)
	v.MaxBody = 6
	read := func(change func(r *http.Request)) error {
		r := signedRequest(testKey, testSecret, http.MethodPost, meTarget, []byte(`{"a":1}`))
		change(r)
		_, err := v.ReadClaim(r, meTarget)
		return err
	}
	require.ErrorIs(t, read(func(*http.Request) {}), authsigner.ErrBodyTooLarge)
	require.ErrorIs(t, read(func(r *http.Request) { r.ContentLength = -1 }), authsigner.ErrBodyTooLarge)
	require.ErrorIs(t, read(func(r *http.Request) { r.Header.Del(authsigner.HeaderPublicKey) }), authsigner.ErrMissingCredentials)
	require.ErrorIs(t, read(func(r *http.Request) { r.Header.Set(authsigner.HeaderTimestamp, "1") }), authsigner.ErrExpired)
	require.ErrorIs(t, read(func(r *http.Request) { r.Header.Set(authsigner.HeaderTimestamp, "x") }), authsigner.ErrInvalidCredentials)
}

// A read deadline, as the gateway sets it for body_timeout, ends a body that does not arrive.
func TestReadDeadlineEndsABodyThatIsNotSent(t *testing.T) {
	t.Parallel()
	result := make(chan error, 1)
	v := newVerifier(newCredential(nil))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.NoError(t, http.NewResponseController(w).SetReadDeadline(time.Now().Add(50*time.Millisecond)))
		_, err := v.Verify(r, r.RequestURI)
		result <- err
	}))
	t.Cleanup(server.Close)
	conn, err := net.DialTimeout("tcp", server.Listener.Addr().String(), time.Minute)
	require.NoError(t, err)
	defer conn.Close()
	request := bytes.NewBufferString("POST " + meTarget + " HTTP/1.1\r\nHost: api.example.com\r\nContent-Length: 100\r\n")
	require.NoError(t, signedRequest(testKey, testSecret, http.MethodPost, meTarget, nil).Header.Write(request))
	_, err = conn.Write(append(request.Bytes(), "\r\n"...))
	require.NoError(t, err)
	select {
	case err := <-result:
		require.ErrorIs(t, err, authsigner.ErrBodyUnreadable)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	case <-time.After(time.Minute):
		t.Fatal("Verify does not return")
	}
}

// The credentials are those that DecodeCredential rejects. The attacker knows that a secret is empty, or the dummy secret.
func TestEmptyAndDummySecretsNeverVerify(t *testing.T) {
	t.Parallel()
	later := time.Unix(testClock, 0).Add(time.Hour)
	for what, cred := range map[string]*authsigner.Credential{
		"none empty":                  {PrivateKey: testSecret},
		"empty":                       {},
		"a zero byte":                 {PrivateKey: "\x00"},
		"zero bytes":                  {PrivateKey: authsigner.Secret(strings.Repeat("\x00", 64))},
		"empty previous":              {PrivateKey: testSecret, PreviousExpiresAt: later},
		"previous of zero bytes":      {PrivateKey: testSecret, PreviousPrivateKey: "\x00\x00", PreviousExpiresAt: later},
		"both":                        {PreviousExpiresAt: later},
		"both of zero bytes":          {PrivateKey: "\x00", PreviousPrivateKey: "\x00", PreviousExpiresAt: later},
		"a previous without an end":   {PrivateKey: testSecret, PreviousPrivateKey: testPreviousSecret},
		"empty, but a right previous": {PreviousPrivateKey: testSecret, PreviousExpiresAt: later},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			cred.PublicKey, cred.Status = testKey, authsigner.StatusActive
			v := newVerifier(cred)
			for _, secret := range []string{"", authsigner.DummySecret.Reveal(), testPreviousSecret} {
				for _, key := range []string{testKey, nobodysKey, "no key"} {
					r := signedRequest(key, "any", http.MethodGet, meTarget, nil)
					r.Header.Set(authsigner.HeaderSignature, hmacHex(secret, string(authsigner.SigningString(testClock, http.MethodGet, meTarget, nil))))
					got, err := v.Verify(r, meTarget)
					assert.Equal(t, authsigner.ErrInvalidCredentials, err, "%q signed with %q", key, secret)
					assert.Nil(t, got)
				}
			}
			if cred.PrivateKey == testSecret || cred.PreviousPrivateKey == testSecret {
				_, err := v.Verify(get(testSecret), meTarget)
				require.NoError(t, err, "the secret that is set verifies")
			}
		})
	}
}

// Every byte is tried in every position of a valid signature.
func TestEveryDigitOfTheSignatureCounts(t *testing.T) {
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
				want := authsigner.ErrInvalidCredentials
				if strings.ToLower(digit) == right[place:place+1] {
					want = nil
				}
				if _, err := v.Verify(r, target); err != want { //nolint:errorlint // the error itself, so that it says nothing more
					t.Fatalf("%q in place %d of %s: %v", digit, place, right, err)
				}
			}
		}
	}
}

func TestOnlyActiveAccountsPass(t *testing.T) {
	t.Parallel()
	for _, status := range []authsigner.Status{"inactive", "", "Active", "ACTIVE", "active ", "suspended"} {
		cred := newCredential(nil)
		cred.Status = status
		v := newVerifier(cred)
		got, err := v.Verify(get(testSecret), meTarget)
		require.Equal(t, authsigner.ErrAccountInactive, err)
		require.Same(t, cred, got, "the request counts against the key")
		got, err = v.Verify(get("a guess"), meTarget)
		assert.Equal(t, authsigner.ErrInvalidCredentials, err, "only a caller who can sign learns the status")
		assert.Nil(t, got)
	}
}

// Credentials are immutable. If one is changed all the same, the HMAC states of the old secret must not be used.
func TestSecretReplacedInPlaceIsForgotten(t *testing.T) {
	t.Parallel()
	cred := newCredential(nil)
	v := newVerifier(cred)
	_, err := v.Verify(get(testSecret), meTarget)
	require.NoError(t, err)
	cred.PrivateKey = "the next secret"
	_, err = v.Verify(get(testSecret), meTarget)
	require.Equal(t, authsigner.ErrInvalidCredentials, err)
	_, err = v.Verify(get("the next secret"), meTarget)
	require.NoError(t, err)
}

func TestConcurrentRequestsDoNotAffectEachOther(t *testing.T) {
	t.Parallel()
	v := newVerifier(rotatingCredential())
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
					key, want = nobodysKey, authsigner.ErrInvalidCredentials
				}
				_, err := v.Verify(signedRequest(key, secret, http.MethodPost, target, body), target)
				if !assert.Equal(t, want, err, target) {
					return
				}
			}
		})
	}
	wait.Wait()
}

// Not parallel: it counts the allocations of the process. The lowest of several counts has none of the runtime's.
func TestVerifyDoesNotAllocate(t *testing.T) {
	v := newVerifier(rotatingCredential())
	for _, test := range bodilessRequests() {
		least := 100.0
		for range 5 {
			least = min(least, testing.AllocsPerRun(500, func() { _, _ = v.Verify(test.r, meTarget) }))
		}
		assert.Zero(t, least, test.name)
	}
}

type bodilessRequest struct {
	name string
	r    *http.Request
	want error
}

// bodilessRequests returns a request of each kind for rotatingCredential.
func bodilessRequests() []bodilessRequest {
	malformed := get(testSecret)
	malformed.Header.Set(authsigner.HeaderSignature, "rubbish")
	return []bodilessRequest{
		{"current secret", get(testSecret), nil},
		{"previous secret", get(testPreviousSecret), nil},
		{"wrong signature", get("a guess"), authsigner.ErrInvalidCredentials},
		{"malformed signature", malformed, authsigner.ErrInvalidCredentials},
		{"unknown key", signedRequest(nobodysKey, testSecret, http.MethodGet, meTarget, nil), authsigner.ErrInvalidCredentials},
	}
}

func TestMalformedHeaderIsNamedWhateverTheKey(t *testing.T) {
	t.Parallel()
	const key, timestamp, signature = authsigner.HeaderPublicKey, authsigner.HeaderTimestamp, authsigner.HeaderSignature
	for name, c := range map[string]struct{ header, value, want string }{
		"well-formed":         {signature, strings.Repeat("aB", 32), ""},
		"short key":           {key, "pk_live", key},
		"private key":         {key, "sk_live_0123456789", ""},
		"quoted key":          {key, `"pk_live_0123456789"`, key},
		"no timestamp":        {timestamp, "", timestamp},
		"20 digits":           {timestamp, strings.Repeat("1", 20), ""},
		"21 digits":           {timestamp, strings.Repeat("1", 21), timestamp},
		"signed timestamp":    {timestamp, "+1760000000", timestamp},
		"fraction":            {timestamp, "1760000000.5", timestamp},
		"63 digits":           {signature, strings.Repeat("a", 63), signature},
		"65 digits":           {signature, strings.Repeat("a", 65), signature},
		"not hexadecimal":     {signature, strings.Repeat("g", 64), signature},
		"the first one first": {key, "", key},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := http.Header{key: {"pk_live_0123456789"}, timestamp: {"1760000000"}, signature: {strings.Repeat("0", 64)}}
			h.Set(c.header, c.value)
			require.Equal(t, c.want, authsigner.MalformedHeader(h))
		})
	}
}

// A key that expires while it is cached is rejected with the first request from then on, and like an unknown key.
func TestExpiredKeyLooksLikeAnUnknownKey(t *testing.T) {
	t.Parallel()
	expires := time.Unix(testClock, 0).UTC()
	cred := newCredential(map[string]any{
		"expires_at": expires.Format(time.RFC3339), "status": "inactive",
		"previous_private_key": testPreviousSecret, "previous_expires_at": expires.Add(time.Hour).Format(time.RFC3339),
	})
	v := newVerifier(cred)
	for _, secret := range []authsigner.Secret{testSecret, testPreviousSecret} {
		v.Now = func() time.Time { return expires.Add(-time.Nanosecond) }
		got, err := v.Verify(get(secret), meTarget)
		require.Same(t, cred, got)
		require.Equal(t, authsigner.ErrAccountInactive, err)

		v.Now = func() time.Time { return expires }
		got, err = v.Verify(get(secret), meTarget)
		require.Nil(t, got)
		require.Equal(t, authsigner.ErrInvalidCredentials, err)
		unknown, unknownErr := v.Verify(signedRequest(nobodysKey, secret, http.MethodGet, meTarget, nil), meTarget)
		assert.Equal(t, unknown, got)
		assert.Equal(t, unknownErr, err)
	}
}
