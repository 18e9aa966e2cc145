package caddymodule

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

// revocable is a source with one key, until that is revoked.
type revocable struct {
	revoked atomic.Bool
	lookups atomic.Int32
}

const revocableKey = "pk_live_0123456789abcdef"

func (s *revocable) Lookup(_ context.Context, publicKey string) (*authsigner.Credential, error) {
	s.lookups.Add(1)
	if publicKey != revocableKey || s.revoked.Load() {
		return nil, authsigner.ErrUnknownKey
	}
	return &authsigner.Credential{PublicKey: publicKey, PrivateKey: "made up", Status: authsigner.StatusActive}, nil
}

// Redis sends a message to current subscribers only, so any credential that was cached before may have been revoked.
func TestRevocationMissedByTheSubscriptionTakesEffect(t *testing.T) {
	t.Parallel()
	const patience = time.Minute
	for name, subscribed := range map[string]bool{"before the first subscription": false, "between two subscriptions": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			admin := server.Client(t)
			var closed atomic.Bool // to new connections
			closed.Store(!subscribed)
			options := server.Options().Simple()
			options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				for closed.Load() {
					select {
					case <-ctx.Done():
						return nil, ctx.Err()
					case <-time.After(time.Millisecond):
					}
				}
				return new(net.Dialer).DialContext(ctx, network, addr)
			}
			options.DialTimeout = patience
			client := redis.NewClient(options)
			t.Cleanup(func() { _ = client.Close() })
			listeners := func() int64 {
				n, err := admin.PubSubNumSub(t.Context(), invalidationChannel).Result()
				require.NoError(t, err)
				return n[invalidationChannel]
			}

			source := new(revocable)
			cache, err := authsigner.NewCache(source, authsigner.CacheOptions{TTL: time.Hour})
			require.NoError(t, err)
			defer func() { require.NoError(t, cache.Close()) }()
			_, err = cache.Lookup(t.Context(), revocableKey)
			require.NoError(t, err)
			l := listenForInvalidations(client, cache, func(string, error) {})
			defer l.stop()
			if subscribed {
				// Redis knows of the subscription before the gateway has invalidated what was cached until then.
				require.Eventually(t, func() bool {
					_, err := cache.Lookup(t.Context(), revocableKey)
					return err == nil && source.lookups.Load() == 2
				}, patience, time.Millisecond)
				closed.Store(true)
				require.NoError(t, admin.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
				require.Eventually(t, func() bool { return listeners() == 0 }, patience, time.Millisecond)
			}

			_, err = cache.Lookup(t.Context(), revocableKey)
			require.NoError(t, err)
			source.revoked.Store(true)
			require.NoError(t, publishInvalidation(t.Context(), admin, revocableKey))
			_, err = cache.Lookup(t.Context(), revocableKey)
			require.NoError(t, err, "nobody listened")
			closed.Store(false)
			require.Eventually(t, func() bool {
				_, err := cache.Lookup(t.Context(), revocableKey)
				return err != nil
			}, patience, time.Millisecond)
			_, err = cache.Lookup(t.Context(), revocableKey)
			require.ErrorIs(t, err, authsigner.ErrUnknownKey)
		})
	}
}
