package caddymodule

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/clientip"
)

const lookupsPerIP = authsigner.DefaultMaxLookups / 8

func TestLookupsOfOneClientIPAreLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lookup = 100 * time.Millisecond
		l := newLookupLimiter(CacheConfig{})
		var wg sync.WaitGroup
		var mu sync.Mutex
		running, most, done := 0, 0, 0
		count := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			running += n
			most = max(most, running)
			done += max(0, n)
		}
		for range 10 * lookupsPerIP {
			wg.Go(func() {
				release, err := l.acquire(t.Context(), netip.MustParseAddr("192.0.2.1"))
				if err != nil {
					return
				}
				defer release()
				count(1)
				<-time.After(lookup)
				count(-1)
			})
		}
		synctest.Wait()
		began := time.Now()
		release, err := l.acquire(t.Context(), netip.MustParseAddr("192.0.2.2"))
		require.NoError(t, err)
		require.Zero(t, time.Since(began), "another client IP does not wait")
		release()
		release() // a second time does nothing
		wg.Wait()
		require.Equal(t, lookupsPerIP, most)
		require.Equal(t, 10*lookupsPerIP, done)
		require.Equal(t, 10*lookup, time.Since(began))
		require.Empty(t, l.byIP)
	})
}

func TestLookupsOfOneClientIPFollowMaxLookups(t *testing.T) {
	t.Parallel()
	for maximum, share := range map[int]int64{0: lookupsPerIP, 256: 32, 4: 1} {
		assert.Equal(t, share, newLookupLimiter(CacheConfig{MaxLookups: maximum}).perIP, "max_lookups %d", maximum)
	}
}

func TestWaitingForALookupIsLimited(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end  time.Duration // of the request
		took time.Duration
		err  error
	}{
		"the timeout ends":     {end: time.Hour, took: 2 * time.Second, err: context.DeadlineExceeded},
		"the request is ended": {end: time.Second, took: time.Second, err: context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLookupLimiter(CacheConfig{})
				var release [lookupsPerIP]func()
				for i := range release {
					var err error
					release[i], err = l.acquire(t.Context(), netip.MustParseAddr("192.0.2.1"))
					require.NoError(t, err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				defer time.AfterFunc(test.end, cancel).Stop()
				began := time.Now()
				_, err := l.acquire(ctx, netip.MustParseAddr("192.0.2.1"))
				require.ErrorIs(t, err, authsigner.ErrUnavailable)
				require.ErrorIs(t, err, test.err)
				require.NotErrorIs(t, err, authsigner.ErrUnknownKey)
				require.Equal(t, test.took, time.Since(began))

				release[0]()
				again, err := l.acquire(t.Context(), netip.MustParseAddr("192.0.2.1"))
				require.NoError(t, err)
				again()
				for _, r := range release {
					r()
				}
				require.Empty(t, l.byIP)
			})
		})
	}
}

// A hoster gives a whole /48 to one customer.
func TestLookupsOfANetworkLeaveRoom(t *testing.T) {
	t.Parallel()
	l := newLookupLimiter(CacheConfig{LookupTimeout: caddy.Duration(10 * time.Millisecond)})
	held := 0
	for i := range 6 * lookupsPerIP {
		release, err := l.acquire(t.Context(), netip.MustParseAddr(fmt.Sprintf("2001:db8:7:%x::1", i)))
		if err != nil {
			require.ErrorIs(t, err, authsigner.ErrUnavailable)
			continue
		}
		t.Cleanup(release)
		held++
	}
	require.Equal(t, clientip.NetworkTimes*lookupsPerIP, held)
	release, err := l.acquire(t.Context(), netip.MustParseAddr("2001:db8:8::1"))
	require.NoError(t, err)
	release()
}
