package upstream_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

func TestJWKSCanBeCached(t *testing.T) {
	t.Parallel()
	a := asserter(t, 1, 2)
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
		n := byte(i + 1)
		assert.Equal(t, map[string]string{
			"kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA", "kid": kidOf(t, n),
			"x": base64.RawURLEncoding.EncodeToString(publicKey(n)),
		}, key)
	}

	w = get(http.MethodGet, http.Header{"If-None-Match": {w.Header().Get("Etag")}})
	require.Equal(t, http.StatusNotModified, w.Code)
	require.Zero(t, w.Body.Len())
	require.Zero(t, get(http.MethodHead, http.Header{}).Body.Len())
}

// gateway publishes keys and can be unavailable.
type gateway struct {
	asserter atomic.Pointer[upstream.Asserter]
	down     atomic.Bool
	requests atomic.Int64
	hold     chan struct{} // if set, responses wait for it
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.requests.Add(1)
	if g.hold != nil {
		<-g.hold
	}
	if g.down.Load() {
		http.Error(w, "down", http.StatusBadGateway)
		return
	}
	g.asserter.Load().ServeHTTP(w, r)
}

// remoteKeys are the keys of a gateway with testKey(1). advance sets their clock forward.
func remoteKeys(t *testing.T, g *gateway) (keys *upstream.RemoteKeys, advance func(time.Duration)) {
	t.Helper()
	g.asserter.Store(asserter(t))
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	var offset atomic.Int64
	now := func() time.Time { return testClock().Add(time.Duration(offset.Load())) }
	return &upstream.RemoteKeys{URL: server.URL, Now: now}, func(d time.Duration) { offset.Add(int64(d)) }
}

func TestRemoteKeysAreReadOnceAndFollowARotation(t *testing.T) {
	t.Parallel()
	var g gateway
	keys, advance := remoteKeys(t, &g)
	for range 20 {
		_, err := keys.Key(t.Context(), kidOf(t, 1))
		require.NoError(t, err)
		_, err = keys.Key(t.Context(), "invented")
		require.ErrorIs(t, err, upstream.ErrUnknownAssertionKey)
	}
	require.EqualValues(t, 1, g.requests.Load(), "invented kids cause at most one fetch in ten seconds")

	g.asserter.Store(asserter(t, 2))
	advance(10 * time.Second)
	_, err := keys.Key(t.Context(), kidOf(t, 2))
	require.NoError(t, err)
	require.EqualValues(t, 2, g.requests.Load())
	_, err = keys.Key(t.Context(), kidOf(t, 1))
	require.ErrorIs(t, err, upstream.ErrUnknownAssertionKey, "the retired key")
}

// A key that was replaced because it leaked must not be accepted from keys that no request has refreshed meanwhile.
func TestReplacedKeyIsRefusedAfterAQuietTime(t *testing.T) {
	t.Parallel()
	var g gateway
	keys, advance := remoteKeys(t, &g)
	_, err := keys.Key(t.Context(), kidOf(t, 1))
	require.NoError(t, err)
	g.asserter.Store(asserter(t, 2))
	advance(55 * time.Minute)
	_, err = keys.Key(t.Context(), kidOf(t, 1))
	require.ErrorIs(t, err, upstream.ErrUnknownAssertionKey)
}

func TestRemoteKeysSurviveAnOutageOfAnHour(t *testing.T) {
	t.Parallel()
	var g gateway
	keys, advance := remoteKeys(t, &g)
	key := func() error {
		_, err := keys.Key(t.Context(), kidOf(t, 1))
		return err
	}
	require.NoError(t, key())
	g.down.Store(true)
	for range 11 {
		advance(5 * time.Minute)
		require.NoError(t, key())
	}
	advance(5 * time.Minute)
	require.Eventually(t, func() bool {
		advance(time.Second)
		return key() != nil
	}, patience, time.Millisecond)
	require.NotErrorIs(t, key(), upstream.ErrUnknownAssertionKey, "an outage is not an unknown key")

	v := &upstream.AssertionVerifier{Issuer: issuer, Audience: "events", Keys: keys, Now: testClock}
	_, err := v.VerifyAssertion(t.Context(), assertion(t, asserter(t), "events"))
	require.Error(t, err)
	require.NotErrorIs(t, err, upstream.ErrInvalidAssertion)

	g.down.Store(false)
	advance(10 * time.Second)
	require.NoError(t, key(), "after the outage")
}

func TestConcurrentRequestsShareOneFetch(t *testing.T) {
	t.Parallel()
	g := gateway{hold: make(chan struct{})}
	keys, _ := remoteKeys(t, &g)
	kid := kidOf(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := keys.Key(ctx, kid)
	require.ErrorIs(t, err, context.Canceled, "a caller that has gone does not wait")
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if _, err := keys.Key(context.Background(), kid); err != nil {
				t.Error(err)
			}
		})
	}
	require.Eventually(t, func() bool { return g.requests.Load() == 1 }, patience, time.Millisecond)
	close(g.hold)
	wg.Wait()
	require.EqualValues(t, 1, g.requests.Load())
}

// Of many requests that find no key, some are about to fetch when the first fetch ends.
func TestRequestsBesideAnEndingFetchDoNotFetchAgain(t *testing.T) {
	t.Parallel()
	for range 10 {
		var g gateway
		keys, _ := remoteKeys(t, &g)
		var wg sync.WaitGroup
		for range 5000 {
			wg.Go(func() {
				_, err := keys.Key(t.Context(), "invented")
				assert.ErrorIs(t, err, upstream.ErrUnknownAssertionKey)
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, g.requests.Load(), "fetches in ten seconds")
	}
}

func TestInvalidKeySetIsNotAnUnknownKey(t *testing.T) {
	t.Parallel()
	good := string(jwks(asserter(t)))
	for name, text := range map[string]string{
		"empty": "", "html": "<html>", "no keys": `{"keys":[]}`, "other": `{}`, "huge": good + strings.Repeat(" ", 1<<20),
		"for encryption":  strings.Replace(good, `"sig"`, `"enc"`, 1),
		"other algorithm": strings.Replace(good, `"EdDSA"`, `"ES256"`, 1),
		"no kid":          strings.Replace(good, `"kid"`, `"kix"`, 1),
		"symmetric":       `{"keys":[{"kty":"oct","kid":"a","k":"AQEB"}]}`,
		"redirect":        "", "gone": "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case name == "redirect" && r.URL.Path != "/elsewhere":
					http.Redirect(w, r, "/elsewhere", http.StatusFound)
				case name == "redirect":
					_, _ = w.Write([]byte(good))
				case name == "gone":
					http.Error(w, good, http.StatusGone)
				default:
					_, _ = w.Write([]byte(text))
				}
			}))
			t.Cleanup(server.Close)
			_, err := (&upstream.RemoteKeys{URL: server.URL}).Key(t.Context(), kidOf(t, 1))
			require.Error(t, err)
			require.NotErrorIs(t, err, upstream.ErrUnknownAssertionKey)
		})
	}
	_, err := (&upstream.RemoteKeys{URL: "http://[::1"}).Key(t.Context(), "x")
	require.Error(t, err)
}
