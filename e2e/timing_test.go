package e2e_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/vaulttest"
)

// The statistic is the probability that a sample of one kind takes longer than one of the other (Mann-Whitney U divided by the number
// of pairs): 0.5 if the kinds cannot be distinguished, 0 or 1 if every sample shows it. It is robust to outliers; noise alone leaves it
// within 0.04 of 0.5 for 1,000 samples of each kind. Two kinds differ only if it is off by 0.2 and the medians differ by a fifth, in
// the same direction in each of three runs, while two samples of the same kind do not differ. So the test works on busy machines and
// under the race detector.
const (
	timingRuns   = 3
	timingBound  = 0.2
	timingRatio  = 1.2
	timingSample = 1000
)

// timed is one kind of attempt; try returns how long one takes.
type timed struct {
	name string
	try  func() time.Duration
}

// timing is the outcome of one run.
type timing struct {
	chance  float64 // that a sample of a takes longer than one of b
	control float64 // the same for two sets of samples of a
	medianA time.Duration
	medianB time.Duration
}

func (m timing) String() string {
	return fmt.Sprintf("chance %.3f, control %.3f, medians %s and %s", m.chance, m.control, m.medianA, m.medianB)
}

// direction returns 1 if a takes longer than b, -1 if b does, and 0 if this run does not distinguish them.
func (m timing) direction() int {
	ratio := float64(m.medianA) / float64(m.medianB)
	switch noisy := math.Abs(m.control-0.5) > timingBound/2; {
	case noisy:
		return 0
	case m.chance > 0.5+timingBound && ratio > timingRatio:
		return 1
	case m.chance < 0.5-timingBound && ratio < 1/timingRatio:
		return -1
	default:
		return 0
	}
}

// compare takes n samples of a, of a again and of b in random order, so that other load affects all three alike.
func compare(a, b timed, n int) timing {
	kinds := [3]func() time.Duration{a.try, a.try, b.try}
	samples := [3][]time.Duration{}
	for range n / 10 { // warm
		for _, try := range kinds {
			try()
		}
	}
	for range n {
		for _, k := range rand.Perm(len(kinds)) {
			samples[k] = append(samples[k], kinds[k]())
		}
	}
	return timing{
		chance: chanceOfLonger(samples[0], samples[2]), control: chanceOfLonger(samples[0], samples[1]),
		medianA: median(samples[0]), medianB: median(samples[2]),
	}
}

// chanceOfLonger returns the probability that one of a is longer than one of b; equal ones count half.
func chanceOfLonger(a, b []time.Duration) float64 {
	sorted := slices.Sorted(slices.Values(b))
	sum := 0.0
	for _, d := range a {
		shorter, _ := slices.BinarySearch(sorted, d)
		notLonger, _ := slices.BinarySearch(sorted, d+1)
		sum += float64(shorter+notLonger) / 2
	}
	return sum / float64(len(a)) / float64(len(b))
}

func median(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

// distinguishes reports whether the times of a and b differ in the same direction in each run. It stops at the first run without
// a difference.
func distinguishes(t *testing.T, a, b timed, n int) bool {
	t.Helper()
	before := 0
	for run := range timingRuns {
		m := compare(a, b, n)
		t.Logf("%s against %s, run %d, %d samples of each: %s", a.name, b.name, run+1, n, m)
		now := m.direction()
		if now == 0 || now == -before {
			return false
		}
		before = now
	}
	return true
}

// requireDistinguished requires that a known leak is found within ten minutes, as a busy machine may hide it.
func requireDistinguished(t *testing.T, a, b timed, n int) {
	t.Helper()
	for began := time.Now(); time.Since(began) < 10*time.Minute; {
		if distinguishes(t, a, b, n) {
			return
		}
	}
	require.Fail(t, "the method does not find a leak", "%s against %s", a.name, b.name)
}

// oneKey is a source of one credential.
type oneKey struct {
	cred *authsigner.Credential
	// ask, if set, is called for every unknown key.
	ask func(ctx context.Context)
}

func (s oneKey) Lookup(ctx context.Context, publicKey string) (*authsigner.Credential, error) {
	if publicKey == s.cred.PublicKey {
		return s.cred, nil
	}
	if s.ask != nil {
		s.ask(ctx)
	}
	return nil, authsigner.ErrUnknownKey
}

const (
	timedKey   = "pk_live_of_the_timing_test"
	unknownKey = "pk_live_nobody_has_this_1x"
)

func timedCredential(t *testing.T) *authsigner.Credential {
	t.Helper()
	cred, err := authsigner.DecodeCredential(timedKey, map[string]any{
		"private_key": "made_up_for_the_timing_test", "business_id": "1", "business_name": "n", "business_slug": "s", "status": "active",
		"previous_private_key": "made_up_before_it", "previous_expires_at": time.Now().Add(time.Hour).Format(time.RFC3339),
	})
	require.NoError(t, err)
	return cred
}

// guesses returns wrong signatures of one request: wrong in the first byte, in the last, and in all.
func guesses(secret authsigner.Secret, now int64, target string) (first, last, all string) {
	right := authsigner.Sign(secret, now, "GET", target, nil)
	flip := func(i int) string {
		raw, _ := hex.DecodeString(right)
		raw[i] ^= 0xff
		return hex.EncodeToString(raw)
	}
	return flip(0), flip(sha256.Size - 1), strings.Repeat("5a", sha256.Size)
}

// verification times ten verifications of one request, as one is too short.
func verification(t *testing.T, name string, verify func(r *http.Request, target string) error, key, signature string, now int64) timed {
	t.Helper()
	r := &http.Request{Method: http.MethodGet, RequestURI: eventsPath, Body: http.NoBody, Header: http.Header{
		authsigner.HeaderPublicKey: {key}, authsigner.HeaderTimestamp: {strconv.FormatInt(now, 10)}, authsigner.HeaderSignature: {signature},
	}}
	require.ErrorIs(t, verify(r, eventsPath), authsigner.ErrInvalidCredentials)
	return timed{name, func() time.Duration {
		start := time.Now()
		for range 10 {
			_ = verify(r, eventsPath)
		}
		return time.Since(start)
	}}
}

// leaky returns a verifier with timing leaks: it returns early for unknown keys and compares byte by byte.
func leaky(cred *authsigner.Credential) func(r *http.Request, target string) error {
	return func(r *http.Request, target string) error {
		if r.Header.Get(authsigner.HeaderPublicKey) != cred.PublicKey {
			return authsigner.ErrInvalidCredentials
		}
		h := hmac.New(sha256.New, []byte(cred.PrivateKey.Reveal()))
		_, _ = io.WriteString(h, r.Header.Get(authsigner.HeaderTimestamp)+"\n"+r.Method+"\n"+target+"\n")
		sum, claimed := h.Sum(nil), r.Header.Get(authsigner.HeaderSignature)
		for i := range sum {
			if !bytes.HasPrefix([]byte(claimed), []byte(hex.EncodeToString(sum[:i+1]))) {
				return authsigner.ErrInvalidCredentials
			}
		}
		return nil
	}
}

// Once a key's absence is cached, times distinguish neither an unknown key from a wrong signature or an expired key, nor a signature that is wrong in its
// first byte from one that is wrong in its last. The same method finds the leaks of leaky.
func TestTimingDoesNotRevealKeysOrSignatures(t *testing.T) {
	cred := timedCredential(t)
	now := time.Now().Unix()
	first, last, all := guesses(cred.PrivateKey, now, eventsPath)
	verifier := func(cred *authsigner.Credential) func(r *http.Request, target string) error {
		cache, err := authsigner.NewCache(oneKey{cred: cred}, authsigner.CacheOptions{TTL: time.Hour, NegativeTTL: time.Hour, StaleIfError: 2 * time.Hour})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, cache.Close()) })
		v := &authsigner.Verifier{Source: cache, Now: func() time.Time { return time.Unix(now, 0) }}
		return func(r *http.Request, target string) error {
			_, err := v.Verify(r, target)
			return err
		}
	}
	sound := verifier(cred)
	for what, verify := range map[string]func(r *http.Request, target string) error{"the verifier": sound, "a leaky verifier": leaky(cred)} {
		wrong := verification(t, what+": wrong signature", verify, timedKey, all, now)
		unknown := verification(t, what+": unknown key", verify, unknownKey, all, now)
		atFirst := verification(t, what+": wrong in its first byte", verify, timedKey, first, now)
		atLast := verification(t, what+": wrong in its last byte", verify, timedKey, last, now)
		if what == "a leaky verifier" {
			requireDistinguished(t, wrong, unknown, timingSample/4)
			requireDistinguished(t, atFirst, atLast, timingSample/4)
			continue
		}
		require.False(t, distinguishes(t, wrong, unknown, timingSample), "the time reveals an unknown key")
		require.False(t, distinguishes(t, atFirst, atLast, timingSample), "the time reveals the first wrong byte")

		old, err := authsigner.DecodeCredential(cred.PublicKey, cred.Record())
		require.NoError(t, err)
		old.ExpiresAt = time.Unix(now-1, 0)
		expired := verification(t, what+": expired key", verifier(old), timedKey, authsigner.Sign(cred.PrivateKey, now, "GET", eventsPath, nil), now)
		assert.False(t, distinguishes(t, expired, unknown, timingSample), "the time reveals an expired key")
	}
}

// exchangeTimer sends requests over one kept connection and times each response.
type exchangeTimer struct {
	t *testing.T
	*rawConn
	from *clientIPs
}

func (e *exchangeTimer) kind(name, key string, signature func(now int64) string) timed {
	return timed{name, func() time.Duration {
		now := time.Now().Unix()
		request := "GET " + eventsPath + " HTTP/1.1\r\nHost: x\r\n" +
			linesOf(e.from.from(withSignature(key, strconv.FormatInt(now, 10), signature(now)))) + "\r\n"
		require.NoError(e.t, e.SetDeadline(time.Now().Add(patience)))
		start := time.Now()
		_, err := io.WriteString(e, request)
		require.NoError(e.t, err)
		a, err := readResponse(e.r, "GET")
		took := time.Since(start)
		require.NoError(e.t, err)
		require.Equal(e.t, http.StatusUnauthorized, a.Status, a.Body)
		return took
	}}
}

// The same over the wire, with a real Vault. The method finds the leak of a second server, which asks its store for every unknown key.
func TestTimingOverTheWireDoesNotRevealKeysOrSignatures(t *testing.T) {
	w := newVaultEnvironment(t, vaulttest.Options{})
	o := w.options("")
	o.Servers = trustLoopback
	g := gatewaytest.Start(t, o)
	requireReady(t, g)
	key := w.keys.issue(t)
	require.Equal(t, http.StatusOK, key.caller().Get(t, g.URL, "/api/v1/me").Status)
	cred := &authsigner.Credential{PublicKey: key.PublicKey, PrivateKey: authsigner.Secret(key.PrivateKey)}

	store := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(store.Close)
	verifier := &authsigner.Verifier{Source: oneKey{cred: cred, ask: func(ctx context.Context) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, store.URL, http.NoBody)
		if err != nil {
			return
		}
		if res, err := store.Client().Do(req); err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
	}}}
	leak := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := verifier.Verify(r, r.RequestURI); err != nil {
			http.Error(w, "refused", http.StatusUnauthorized)
		}
	}))
	t.Cleanup(leak.Close)

	unknown := "pk_live_" + strings.Repeat("x", len(key.PublicKey)-len("pk_live_"))
	kinds := func(what, addr string) (wrong, stranger, atFirst, atLast timed) {
		e := &exchangeTimer{t, dial(t, addr, ""), new(clientIPs)}
		guess := func(which int) func(now int64) string {
			return func(now int64) string {
				first, last, all := guesses(cred.PrivateKey, now, eventsPath)
				return [...]string{first, last, all}[which]
			}
		}
		return e.kind(what+": wrong signature", key.PublicKey, guess(2)), e.kind(what+": unknown key", unknown, guess(2)),
			e.kind(what+": wrong in its first byte", key.PublicKey, guess(0)), e.kind(what+": wrong in its last byte", key.PublicKey, guess(1))
	}
	wrong, stranger, atFirst, atLast := kinds("the gateway", g.Addr)
	require.False(t, distinguishes(t, wrong, stranger, timingSample), "the time reveals an unknown key")
	require.False(t, distinguishes(t, atFirst, atLast, timingSample), "the time reveals the first wrong byte")
	wrong, stranger, _, _ = kinds("a server that asks its store", strings.TrimPrefix(leak.URL, "http://"))
	requireDistinguished(t, wrong, stranger, timingSample/4)
}
