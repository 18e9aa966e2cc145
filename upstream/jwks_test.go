package upstream_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// patience bounds what a test waits for. It is long because other tests want the processors too.
const patience = time.Minute

// gateway publishes the keys of one Asserter after another, and can be down.
type gateway struct {
	*httptest.Server
	asserter atomic.Pointer[upstream.Asserter]
	down     atomic.Bool
	asked    atomic.Int64
	hold     chan struct{} // when set, answers wait for it
}

func newGateway(t *testing.T, a *upstream.Asserter) *gateway {
	t.Helper()
	g := &gateway{}
	g.asserter.Store(a)
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.asked.Add(1)
		if g.hold != nil {
			<-g.hold
		}
		if g.down.Load() {
			http.Error(w, "down", http.StatusBadGateway)
			return
		}
		g.asserter.Load().ServeHTTP(w, r)
	}))
	t.Cleanup(g.Close)
	return g
}

// clock is a clock that a test sets.
type clock struct{ offset atomic.Int64 }

func (c *clock) now() time.Time          { return testClock().Add(time.Duration(c.offset.Load())) }
func (c *clock) advance(d time.Duration) { c.offset.Add(int64(d)) }

func kidOf(t *testing.T, n byte) string {
	t.Helper()
	kid, err := upstream.KeyID(publicKey(n))
	require.NoError(t, err)
	return kid
}

func TestRemoteKeysAreReadOnceAndFollowARotation(t *testing.T) {
	t.Parallel()
	g := newGateway(t, asserter(t, nil))
	var c clock
	keys := &upstream.RemoteKeys{URL: g.URL, Now: c.now}
	for range 20 {
		_, err := keys.Key(t.Context(), kidOf(t, 1))
		require.NoError(t, err)
	}
	require.EqualValues(t, 1, g.asked.Load())

	// Unknown kids, which anyone can invent, do not make it ask more often than every ten seconds.
	for range 20 {
		_, err := keys.Key(t.Context(), "invented")
		require.ErrorIs(t, err, upstream.ErrUnknownAssertionKey)
	}
	require.EqualValues(t, 1, g.asked.Load())

	g.asserter.Store(asserter(t, func(o *upstream.AsserterOptions) { o.Keys[0] = testKey(2) }))
	c.advance(10 * time.Second)
	_, err := keys.Key(t.Context(), kidOf(t, 2))
	require.NoError(t, err, "a new kid is looked for at once")
	require.EqualValues(t, 2, g.asked.Load())
	_, err = keys.Key(t.Context(), kidOf(t, 1))
	require.ErrorIs(t, err, upstream.ErrUnknownAssertionKey, "the retired key is gone")
}

func TestRemoteKeysGoOnForAnHourWithoutTheGateway(t *testing.T) {
	t.Parallel()
	g := newGateway(t, asserter(t, nil))
	var c clock
	keys := &upstream.RemoteKeys{URL: g.URL, Now: c.now}
	_, err := keys.Key(t.Context(), kidOf(t, 1))
	require.NoError(t, err)
	g.down.Store(true)
	for range 11 {
		c.advance(5 * time.Minute)
		_, err := keys.Key(t.Context(), kidOf(t, 1))
		require.NoError(t, err)
	}
	c.advance(5 * time.Minute)
	require.Eventually(t, func() bool {
		_, err := keys.Key(t.Context(), kidOf(t, 1))
		c.advance(time.Second)
		return err != nil
	}, patience, time.Millisecond)
	_, err = keys.Key(t.Context(), kidOf(t, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, upstream.ErrUnknownAssertionKey, "an outage is never taken for an unknown key")

	v := &upstream.AssertionVerifier{Issuer: issuer, Audience: "events", Keys: keys, Now: testClock}
	_, err = v.VerifyAssertion(t.Context(), assert(t, asserter(t, nil), "events"))
	require.Error(t, err)
	require.NotErrorIs(t, err, upstream.ErrInvalidAssertion)

	g.down.Store(false)
	c.advance(10 * time.Second)
	_, err = keys.Key(t.Context(), kidOf(t, 1))
	require.NoError(t, err, "back without a restart")
}

func TestManyRequestsWaitForOneReading(t *testing.T) {
	t.Parallel()
	g := newGateway(t, asserter(t, nil))
	g.hold = make(chan struct{})
	keys := &upstream.RemoteKeys{URL: g.URL, Now: testClock}
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
	require.Eventually(t, func() bool { return g.asked.Load() == 1 }, patience, time.Millisecond)
	close(g.hold)
	wg.Wait()
	require.EqualValues(t, 1, g.asked.Load())
}

func TestRemoteKeysRefuseWhatIsNoKeySet(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]http.HandlerFunc{
		"html":     func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"huge":     func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(strings.Repeat(" ", 1<<20))) },
		"redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
		"gone":     http.NotFound,
	} {
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		_, err := (&upstream.RemoteKeys{URL: server.URL}).Key(t.Context(), "x")
		require.Error(t, err, name)
		require.NotErrorIs(t, err, upstream.ErrUnknownAssertionKey, name)
	}
	_, err := (&upstream.RemoteKeys{URL: "http://[::1"}).Key(t.Context(), "x")
	require.Error(t, err)
}
