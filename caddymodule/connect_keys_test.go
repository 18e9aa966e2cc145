package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/file"
	"github.com/gatehouse-gateway/gatehouse/authsigner/vault"
	"github.com/gatehouse-gateway/gatehouse/connect/pages"
	"github.com/gatehouse-gateway/gatehouse/internal/test/losttest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/vaulttest"
)

// countedStore is a credential file that counts lookups. afterDelete, if set, is the reply to a deletion that was made.
type countedStore struct {
	authsigner.KeyStore

	mu          sync.Mutex
	looked      map[string]int
	malformed   string // a key
	afterDelete error
}

func newStore(t *testing.T) *countedStore {
	t.Helper()
	source, err := file.Open(filepath.Join(t.TempDir(), "keys.json"), file.Options{Create: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, source.Close()) })
	return &countedStore{KeyStore: source, looked: map[string]int{}}
}

func (s *countedStore) Lookup(ctx context.Context, publicKey string) (*authsigner.Credential, error) {
	s.mu.Lock()
	s.looked[publicKey]++
	s.mu.Unlock()
	if publicKey == s.malformed {
		return nil, fmt.Errorf("%w: %w", authsigner.ErrUnavailable, authsigner.ErrMalformedCredential)
	}
	return s.KeyStore.Lookup(ctx, publicKey)
}

func (s *countedStore) Delete(ctx context.Context, publicKey string) error {
	return errors.Join(s.KeyStore.Delete(ctx, publicKey), s.afterDelete)
}

// lookups returns how often each key was looked up since the last call.
func (s *countedStore) lookups() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	looked := s.looked
	s.looked = make(map[string]int)
	return looked
}

// issueKeys issues keys as operators do, without the pages.
func issueKeys(t *testing.T, store authsigner.KeyStore, business string, n int) []string {
	t.Helper()
	var issued []string
	for range n {
		cred, err := authsigner.Issue(t.Context(), store, authsigner.IssueOptions{BusinessID: business, BusinessName: business, BusinessSlug: business})
		require.NoError(t, err)
		issued = append(issued, cred.PublicKey)
	}
	slices.Sort(issued)
	return issued
}

// newBusinessKeys is a gateway's keys page over a store and a Redis.
func newBusinessKeys(t *testing.T, store authsigner.KeyStore, client redis.UniversalClient) *businessKeys {
	t.Helper()
	cache, err := authsigner.NewCache(store, authsigner.CacheOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cache.Close()) })
	return &businessKeys{store: store, cache: cache, redis: client, logger: zap.NewNop()}
}

func publicKeys(keys []pages.Key) []string {
	var names []string
	for _, k := range keys {
		names = append(names, k.PublicKey)
	}
	return names
}

const acme = "biz_acme"

func TestListingKeysReadsKeysOfOtherBusinessesOnce(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	store := newStore(t)
	own := issueKeys(t, store, acme, 3)
	issueKeys(t, store, "biz_other", 50)
	k := newBusinessKeys(t, store, client)
	list := func(k *businessKeys) []string {
		keys, err := k.List(t.Context(), acme)
		require.NoError(t, err)
		return publicKeys(keys)
	}
	require.Equal(t, own, list(k))
	require.Len(t, store.lookups(), 53, "it is not known whose any of them is")

	require.Equal(t, own, list(k))
	require.Len(t, store.lookups(), 3)
	require.Equal(t, own, list(newBusinessKeys(t, store, client)), "another gateway, or one that was started anew")
	require.Len(t, store.lookups(), 3)

	added := issueKeys(t, store, acme, 1)
	issueKeys(t, store, "biz_other", 1)
	require.ElementsMatch(t, append(added, own...), list(k), "what operators add is found")
	require.Len(t, store.lookups(), 5)

	_, err := k.Get(t.Context(), acme, own[0])
	require.NoError(t, err)
	require.Len(t, store.lookups(), 1, "a page about one key reads that one")
	require.NoError(t, store.KeyStore.Delete(t.Context(), own[0]))
	require.NotContains(t, list(k), own[0])

	ttl, err := client.TTL(t.Context(), ownerKey(own[1])).Result()
	require.NoError(t, err)
	require.Positive(t, ttl, "nothing is kept for good")
}

func TestMalformedEntryIsListedOnceItIsValid(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	store := newStore(t)
	name := issueKeys(t, store, acme, 1)[0]
	store.malformed = name
	k := newBusinessKeys(t, store, client)
	for range 2 {
		keys, err := k.List(t.Context(), acme)
		require.NoError(t, err)
		require.Empty(t, keys)
	}
	require.Equal(t, map[string]int{name: 1}, store.lookups())
	ttl, err := client.TTL(t.Context(), ownerKey(name)).Result()
	require.NoError(t, err)
	require.LessOrEqual(t, ttl, time.Minute)
	require.NoError(t, client.Del(t.Context(), ownerKey(name)).Err()) // the minute is over
	store.malformed = ""
	keys, err := k.List(t.Context(), acme)
	require.NoError(t, err)
	require.Equal(t, []string{name}, publicKeys(keys))
}

func TestConcurrentIssuesDoNotExceedTheMaximum(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	store := newStore(t)
	issueKeys(t, store, acme, maxBusinessKeys-2)
	gateways := []*businessKeys{newBusinessKeys(t, store, client), newBusinessKeys(t, store, client)}
	var group sync.WaitGroup
	results := make(chan error, 12)
	for i := range cap(results) {
		group.Go(func() {
			_, err := gateways[i%2].Issue(t.Context(), pages.Business{ID: acme, Name: "Acme", Slug: "acme"}, "account_1", fmt.Sprint("attempt ", i), false)
			results <- err
		})
	}
	group.Wait()
	close(results)
	issued := 0
	for err := range results {
		if err == nil {
			issued++
			continue
		}
		require.ErrorIs(t, err, pages.ErrTooManyKeys)
	}
	require.Equal(t, 2, issued)
	names, err := store.List(t.Context())
	require.NoError(t, err)
	require.Len(t, names, maxBusinessKeys)
	held, err := client.Exists(t.Context(), "gatehouse:connect:issuing:"+acme).Result()
	require.NoError(t, err)
	require.Zero(t, held)
}

// A source that responds late, or whose reply is lost, leaves it open whether a key is revoked: no gateway goes on with what
// it has.
func TestRevocationOfUnknownOutcomeReachesEveryGateway(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	store := newStore(t)
	key := issueKeys(t, store, acme, 1)[0]
	here, there := newBusinessKeys(t, store, client), newBusinessKeys(t, store, client)
	listen := listenForInvalidations(client, there.cache, func(string, error) {})
	t.Cleanup(listen.stop)
	require.Eventually(t, func() bool {
		n, err := client.PubSubNumSub(t.Context(), invalidationChannel).Result()
		return err == nil && n[invalidationChannel] == 1
	}, time.Minute, time.Millisecond)
	for _, k := range []*businessKeys{here, there} {
		_, err := k.cache.Lookup(t.Context(), key)
		require.NoError(t, err)
	}

	store.afterDelete = authsigner.ErrOutcomeUnknown
	require.ErrorIs(t, here.Revoke(t.Context(), acme, key), pages.ErrOutcomeUnknown)
	_, err := here.cache.Lookup(t.Context(), key)
	require.ErrorIs(t, err, authsigner.ErrUnknownKey)
	require.Eventually(t, func() bool {
		_, err := there.cache.Lookup(t.Context(), key)
		return errors.Is(err, authsigner.ErrUnknownKey)
	}, time.Minute, time.Millisecond)

	for _, k := range []*businessKeys{here, there} {
		require.ErrorIs(t, k.Revoke(t.Context(), acme, key), pages.ErrAlreadyDone)
		require.ErrorIs(t, k.Revoke(t.Context(), "biz_other", key), pages.ErrNoKey, "it was another's")
		require.ErrorIs(t, k.Revoke(t.Context(), acme, "pk_live_never_there"), pages.ErrNoKey)
	}
}

func TestRevokedKeyIsNotIssuedAgainByTheSameForm(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	k := newBusinessKeys(t, newStore(t), client)
	issue := func() (pages.IssuedKey, error) {
		return k.Issue(t.Context(), pages.Business{ID: acme, Name: "Acme", Slug: "acme"}, "account_1", "attempt", false)
	}
	issued, err := issue()
	require.NoError(t, err)
	require.NoError(t, k.Revoke(t.Context(), acme, issued.PublicKey))
	again, err := issue()
	require.ErrorIs(t, err, pages.ErrAlreadyDone)
	require.Equal(t, issued.PublicKey, again.PublicKey)
	require.Empty(t, again.PrivateKey.Reveal())
	_, err = k.Get(t.Context(), acme, issued.PublicKey)
	require.ErrorIs(t, err, pages.ErrNoKey)
}

// replyLoser is a server of package losttest.
type replyLoser interface {
	Lose(n int)
	Replies() int
}

// loseEachReply calls changes with n = 1, 2, …, until none of them receives n replies. lose runs a change whose n-th reply is
// lost, and which must succeed nevertheless.
func loseEachReply(t *testing.T, l replyLoser, changes func(n int, lose func(change func() error))) {
	t.Helper()
	for n, lost := 1, true; lost; n++ {
		require.Less(t, n, 30)
		lost = false
		changes(n, func(change func() error) {
			l.Lose(n)
			err := change()
			lost = lost || l.Replies() >= n
			l.Lose(0)
			require.NoError(t, err, "reply %d", n)
		})
	}
}

// Whichever reply of Vault is lost, each change is made once, and what the pages are told is so.
func TestLostVaultReplyNeitherRepeatsNorHidesAChange(t *testing.T) {
	t.Parallel()
	server := vaulttest.Start(t, vaulttest.Options{})
	target, err := url.Parse(server.Addr)
	require.NoError(t, err)
	lossy := losttest.NewHandler(&httputil.ReverseProxy{
		Transport: &http.Transport{DisableKeepAlives: true},
		Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(target) },
	})
	proxy := httptest.NewServer(lossy)
	t.Cleanup(proxy.Close)
	store, err := vault.New(t.Context(), vault.Options{
		Address: proxy.URL, Auth: vault.Auth{Token: authsigner.Secret(server.RootToken)}, Timeout: time.Minute,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.Eventually(t, func() bool { return store.Ready() == nil }, time.Minute, time.Millisecond)
	k := newBusinessKeys(t, store, redistest.Start(t).Client(t))
	ctx, business := t.Context(), pages.Business{ID: acme, Name: "Acme", Slug: "acme"}
	loseEachReply(t, lossy, func(n int, lose func(change func() error)) {
		attempt := fmt.Sprint("attempt ", n)
		var issued, rotated pages.IssuedKey
		lose(func() (err error) { issued, err = k.Issue(ctx, business, "account_1", attempt, true); return err })
		found, err := store.Lookup(ctx, issued.PublicKey)
		require.NoError(t, err)
		require.Equal(t, issued.PrivateKey.Reveal(), found.PrivateKey.Reveal())
		_, err = k.Issue(ctx, business, "account_1", attempt, true)
		require.ErrorIs(t, err, pages.ErrAlreadyDone)

		lose(func() (err error) {
			rotated, err = k.Rotate(ctx, acme, issued.PublicKey, issued.Version, time.Hour)
			return err
		})
		found, err = store.Lookup(ctx, issued.PublicKey)
		require.NoError(t, err)
		require.Equal(t, rotated.PrivateKey.Reveal(), found.PrivateKey.Reveal())
		require.Equal(t, issued.PrivateKey.Reveal(), found.PreviousPrivateKey.Reveal())
		_, err = k.Rotate(ctx, acme, issued.PublicKey, issued.Version, time.Hour)
		require.ErrorIs(t, err, pages.ErrAlreadyDone)

		lose(func() error {
			keys, err := k.List(ctx, acme)
			if err == nil {
				require.Equal(t, []string{issued.PublicKey}, publicKeys(keys))
			}
			return err
		})
		lose(func() error { return k.Revoke(ctx, acme, issued.PublicKey) })
		require.ErrorIs(t, k.Revoke(ctx, acme, issued.PublicKey), pages.ErrAlreadyDone)
		_, err = store.Lookup(ctx, issued.PublicKey)
		require.ErrorIs(t, err, authsigner.ErrUnknownKey)
	})
}

// Whichever reply of Redis is lost, each change is made once.
func TestLostRedisReplyPreventsNoChangeOfKeys(t *testing.T) {
	t.Parallel()
	lossy := losttest.NewRedis(t, redistest.Start(t).Options().Addrs[0])
	client := redis.NewClient(&redis.Options{Addr: lossy.Addr()})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	store := newStore(t)
	other := issueKeys(t, store, "biz_other", 1)
	k := newBusinessKeys(t, store, client)
	ctx := t.Context()
	loseEachReply(t, lossy, func(n int, lose func(change func() error)) {
		var issued pages.IssuedKey
		lose(func() (err error) {
			issued, err = k.Issue(ctx, pages.Business{ID: acme, Name: "Acme", Slug: "acme"}, "account_1", fmt.Sprint("attempt ", n), false)
			return err
		})
		lose(func() error {
			keys, err := k.List(ctx, acme)
			require.Equal(t, []string{issued.PublicKey}, publicKeys(keys))
			return err
		})
		lose(func() error {
			_, err := k.Rotate(ctx, acme, issued.PublicKey, issued.Version, 0)
			return err
		})
		lose(func() error { return k.Revoke(ctx, acme, issued.PublicKey) })
		require.ErrorIs(t, k.Revoke(ctx, acme, issued.PublicKey), pages.ErrAlreadyDone)
		names, err := store.List(ctx)
		require.NoError(t, err)
		require.Equal(t, other, names)
	})
}

func TestKeyOfThePagesHasItsAccountAndKeepsWhatTheOperatorHasSet(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	k := newBusinessKeys(t, store, redistest.Start(t).Client(t))
	issued, err := k.Issue(t.Context(), pages.Business{ID: acme, Name: "Acme", Slug: "acme"}, "account_1", "attempt", false)
	require.NoError(t, err)
	cred, err := store.Update(t.Context(), issued.PublicKey, func(cred *authsigner.Credential) error {
		require.Equal(t, "account_1", cred.CreatedBy)
		require.WithinDuration(t, time.Now(), cred.CreatedAt, time.Minute)
		cred.Name, cred.Limit, cred.Resources, cred.ExpiresAt = "Till", 5, []string{"jobs"}, time.Now().Add(time.Hour).UTC()
		return nil
	})
	require.NoError(t, err)
	want := cred.Record()
	rotated, err := k.Rotate(t.Context(), acme, issued.PublicKey, issued.Version, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"jobs"}, rotated.Resources)
	want["private_key"] = rotated.PrivateKey.Reveal()
	cred, err = store.Lookup(t.Context(), issued.PublicKey)
	require.NoError(t, err)
	require.Equal(t, want, cred.Record())
}
