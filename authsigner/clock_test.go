package authsigner_test

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// TestTheClockIsSteppedByTenMinutesBothWays: the clock of this process cannot be moved in a test, so that its field is,
// without the monotonic part that hides such steps from the cache. While it is wrong nobody with a right clock can
// sign; nothing else happens, and when it is right again so is everything.
func TestTheClockIsSteppedByTenMinutesBothWays(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]time.Duration{"ahead": 10 * time.Minute, "back": -10 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src := newFakeSource(testKey)
			var offset atomic.Int64
			now := func() time.Time { return time.Now().Round(0).Add(time.Duration(offset.Load())) }
			withCache(t, src, authsigner.CacheOptions{Now: now}, func(b bubble) {
				v := &authsigner.Verifier{Source: b.Cache, Now: now}
				signedAt := func(at time.Time) error {
					r := signedRequest(testKey, testSecret, http.MethodGet, meTarget, nil)
					r.Header[authsigner.HeaderTimestamp] = []string{strconv.FormatInt(at.Unix(), 10)}
					r.Header[authsigner.HeaderSignature] = []string{authsigner.Sign(testSecret, at.Unix(), http.MethodGet, meTarget, nil)}
					_, err := v.Verify(r.WithContext(b.Context()), meTarget)
					return err
				}
				require.NoError(b, signedAt(time.Now()))

				offset.Store(int64(step))
				require.ErrorIs(b, signedAt(time.Now()), authsigner.ErrExpired)
				require.NoError(b, signedAt(now()), "whose clock is as wrong is served")
				src.set(func() { src.down = errSourceDown })
				require.NoError(b, signedAt(now()), "an outage of the source is survived")

				offset.Store(0)
				require.NoError(b, signedAt(time.Now()))
				require.ErrorIs(b, signedAt(time.Now().Add(step)), authsigner.ErrExpired)
				src.set(func() { src.down = nil })
				src.remove(testKey)
				pass(2 * time.Minute)
				require.ErrorIs(b, signedAt(time.Now()), authsigner.ErrInvalidCredentials, "a revoked key is refused in time")
			})
		})
	}
}
