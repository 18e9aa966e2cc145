package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/businesskeys"
	"github.com/gatehouse-gateway/gatehouse/authsigner/file"
	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/pages"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

// lateStore is a credential file. afterDelete, if set, is the reply to a deletion that was made.
type lateStore struct {
	CredentialStore

	afterDelete error
}

func (s *lateStore) Delete(ctx context.Context, publicKey string) error {
	return errors.Join(s.CredentialStore.Delete(ctx, publicKey), s.afterDelete)
}

func newLateStore(t *testing.T) *lateStore {
	t.Helper()
	source, err := file.Open(filepath.Join(t.TempDir(), "keys.json"), file.Options{Create: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, source.Close()) })
	return &lateStore{CredentialStore: source}
}

// newKeys returns a gateway's keys for the pages, and its cache.
func newKeys(t *testing.T, store CredentialStore, client redis.UniversalClient) (*pageKeys, *authsigner.Cache) {
	t.Helper()
	cache, err := authsigner.NewCache(store, authsigner.CacheOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cache.Close()) })
	app := &App{credentials: &pooledCredentials{store: store, cache: cache}, redis: &pooledRedis{client: client}}
	keys, err := newPageKeys(app, zap.NewNop())
	require.NoError(t, err)
	return keys, cache
}

func acme() account.Business {
	return account.Business{BusinessID: "biz_acme", BusinessName: "Acme", BusinessSlug: "acme"}
}

// A source that responds late, or whose reply is lost, leaves it open whether a key is revoked: no gateway goes on with what
// it has.
func TestRevocationOfUnknownOutcomeReachesEveryGateway(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	store := newLateStore(t)
	here, cacheHere := newKeys(t, store, client)
	there, cacheThere := newKeys(t, store, client)
	issued, err := here.Issue(t.Context(), acme(), "account_1", "attempt", false)
	require.NoError(t, err)
	key := issued.PublicKey
	listen := listenForInvalidations(client, cacheThere, func(string, error) {})
	t.Cleanup(listen.stop)
	require.Eventually(t, func() bool {
		n, err := client.PubSubNumSub(t.Context(), invalidationChannel).Result()
		return err == nil && n[invalidationChannel] == 1
	}, time.Minute, time.Millisecond)
	for _, cache := range []*authsigner.Cache{cacheHere, cacheThere} {
		_, err := cache.Lookup(t.Context(), key)
		require.NoError(t, err)
	}

	store.afterDelete = authsigner.ErrOutcomeUnknown
	require.ErrorIs(t, here.Revoke(t.Context(), "biz_acme", key), pages.ErrOutcomeUnknown)
	_, err = cacheHere.Lookup(t.Context(), key)
	require.ErrorIs(t, err, authsigner.ErrUnknownKey)
	require.Eventually(t, func() bool {
		_, err := cacheThere.Lookup(t.Context(), key)
		return errors.Is(err, authsigner.ErrUnknownKey)
	}, time.Minute, time.Millisecond)

	for _, k := range []*pageKeys{here, there} {
		require.ErrorIs(t, k.Revoke(t.Context(), "biz_acme", key), pages.ErrAlreadyDone)
		require.ErrorIs(t, k.Revoke(t.Context(), "biz_other", key), pages.ErrNoKey, "it was another's")
		require.ErrorIs(t, k.Revoke(t.Context(), "biz_acme", "pk_live_never_there"), pages.ErrNoKey)
	}
}

func TestFailedChangeOfKeysRevealsNoPrivateKey(t *testing.T) {
	t.Parallel()
	keys, _ := newKeys(t, newLateStore(t), redistest.Start(t).Client(t))
	first, err := keys.Issue(t.Context(), acme(), "account_1", "attempt", false)
	require.NoError(t, err)
	again, err := keys.Issue(t.Context(), acme(), "account_1", "attempt", false)
	require.ErrorIs(t, err, pages.ErrAlreadyDone)
	require.Equal(t, first.PublicKey, again.PublicKey)
	require.Empty(t, again.PrivateKey.Reveal())

	_, err = keys.Rotate(t.Context(), "biz_acme", first.PublicKey, first.Version, pages.KeepGrace)
	require.ErrorIs(t, err, pages.ErrAlreadyDone, "no older one would work")
	rotated, err := keys.Rotate(t.Context(), "biz_acme", first.PublicKey, first.Version, time.Hour)
	require.NoError(t, err)
	pending, err := keys.Rotate(t.Context(), "biz_acme", first.PublicKey, rotated.Version, time.Hour)
	require.ErrorIs(t, err, pages.ErrAlreadyDone)
	require.Empty(t, pending.PrivateKey.Reveal())
	replaced, err := keys.Rotate(t.Context(), "biz_acme", first.PublicKey, rotated.Version, pages.KeepGrace)
	require.NoError(t, err)
	require.NotEqual(t, rotated.PrivateKey.Reveal(), replaced.PrivateKey.Reveal())
	require.Equal(t, rotated.PreviousUntil, replaced.PreviousUntil)

	for i := range businesskeys.MaxKeys - 1 {
		_, err := keys.Issue(t.Context(), acme(), "account_1", fmt.Sprint(i), false)
		require.NoError(t, err)
	}
	_, err = keys.Issue(t.Context(), acme(), "account_1", "one more", false)
	require.ErrorIs(t, err, pages.ErrTooManyKeys)
}
