package businesskeys_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/businesskeys"
	"github.com/gatehouse-gateway/gatehouse/authsigner/file"
	"github.com/gatehouse-gateway/gatehouse/authsigner/vault"
	"github.com/gatehouse-gateway/gatehouse/internal/test/netfault"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/vaulttest"
)

// countedStore is a credential file that counts lookups.
type countedStore struct {
	authsigner.KeyStore

	mu        sync.Mutex
	looked    map[string]int
	malformed string // a key
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

// lookups returns how often each key was looked up since the last call.
func (s *countedStore) lookups() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	looked := s.looked
	s.looked = make(map[string]int)
	return looked
}

// panickingStore panics, as a defect would.
type panickingStore struct {
	authsigner.KeyStore

	list, lookup bool
}

func (s *panickingStore) List(ctx context.Context) ([]string, error) {
	if s.list {
		panic("a canary")
	}
	return s.KeyStore.List(ctx)
}

func (s *panickingStore) Lookup(ctx context.Context, publicKey string) (*authsigner.Credential, error) {
	if s.lookup {
		panic("a canary")
	}
	return s.KeyStore.Lookup(ctx, publicKey)
}

// Nothing else recovers there: it would end the gateway because somebody opens a page.
func TestPanicOfTheSourceFailsTheListOnly(t *testing.T) {
	t.Parallel()
	store := &panickingStore{KeyStore: newStore(t), list: true}
	keys := issueKeys(t, store.KeyStore, "acme", 1)
	m := newManager(t, store, redistest.Start(t).Client(t))
	for range 2 {
		_, err := m.List(t.Context(), "acme")
		require.ErrorIs(t, err, authsigner.ErrUnavailable)
		store.list, store.lookup = false, true
	}
	store.lookup = false
	listed, err := m.List(t.Context(), "acme")
	require.NoError(t, err)
	require.Equal(t, keys, publicKeys(listed))
}

// issueKeys issues keys as operators do, without a manager.
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

const prefix = "test:"

// newManager returns a gateway's manager on a store and a Redis.
func newManager(t *testing.T, store authsigner.KeyStore, client redis.UniversalClient) *businesskeys.Manager {
	t.Helper()
	m, err := businesskeys.New(businesskeys.Options{
		Store: store, Redis: client, Prefix: prefix, Invalidate: func(context.Context, string) {}, Log: zap.NewNop(),
	})
	require.NoError(t, err)
	return m
}

// acmeKey are the options of a key that an account of acme issues.
func acmeKey(attempt string) authsigner.IssueOptions {
	return authsigner.IssueOptions{
		BusinessID: acme, BusinessName: "Acme", BusinessSlug: "acme", CreatedBy: "account_1", Attempt: attempt,
	}
}

func publicKeys(creds []*authsigner.Credential) []string {
	var names []string
	for _, cred := range creds {
		names = append(names, cred.PublicKey)
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
	m := newManager(t, store, client)
	list := func(m *businesskeys.Manager) []string {
		keys, err := m.List(t.Context(), acme)
		require.NoError(t, err)
		return publicKeys(keys)
	}
	require.Equal(t, own, list(m))
	require.Len(t, store.lookups(), 53, "it is not known whose any of them is")

	require.Equal(t, own, list(m))
	require.Len(t, store.lookups(), 3)
	require.Equal(t, own, list(newManager(t, store, client)), "another gateway, or one that was restarted")
	require.Len(t, store.lookups(), 3)

	added := issueKeys(t, store, acme, 1)
	issueKeys(t, store, "biz_other", 1)
	require.ElementsMatch(t, append(added, own...), list(m), "what operators add is found")
	require.Len(t, store.lookups(), 5)

	_, err := m.Get(t.Context(), acme, own[0])
	require.NoError(t, err)
	require.Len(t, store.lookups(), 1, "a page about one key reads that one")
	require.NoError(t, store.KeyStore.Delete(t.Context(), own[0]))
	require.NotContains(t, list(m), own[0])

	ttl, err := client.TTL(t.Context(), prefix+"key:"+own[1]).Result()
	require.NoError(t, err)
	assert.Positive(t, ttl, "nothing is kept for good")
}

// crowdedStore counts concurrent lookups, and holds back its first list until those who list have arrived.
type crowdedStore struct {
	*countedStore

	arrived                       chan struct{}
	waiting, lists, looking, most atomic.Int32
}

func (s *crowdedStore) List(ctx context.Context) ([]string, error) {
	if s.lists.Add(1) == 1 {
		select {
		case <-s.arrived:
		case <-time.After(time.Minute):
		}
	}
	return s.KeyStore.List(ctx)
}

func (s *crowdedStore) Lookup(ctx context.Context, publicKey string) (*authsigner.Credential, error) {
	defer s.looking.Add(-1)
	for now := s.looking.Add(1); ; {
		if most := s.most.Load(); most >= now || s.most.CompareAndSwap(most, now) {
			break
		}
	}
	return s.countedStore.Lookup(ctx, publicKey)
}

// waitingContext reports when something waits for its end.
type waitingContext struct {
	context.Context

	waiting func()
}

func (c waitingContext) Done() <-chan struct{} {
	c.waiting()
	return c.Context.Done()
}

func TestOwnersWhoListKeysAtOnceShareTheWork(t *testing.T) {
	t.Parallel()
	const callers, others = 50, 100
	store := &crowdedStore{countedStore: newStore(t), arrived: make(chan struct{})}
	arrive := func() {
		if store.waiting.Add(1) == callers {
			close(store.arrived)
		}
	}
	own := issueKeys(t, store, acme, 3)
	other := issueKeys(t, store, "biz_other", others)
	m := newManager(t, store, redistest.Start(t).Client(t))
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			keys, err := m.List(waitingContext{t.Context(), sync.OnceFunc(arrive)}, acme)
			assert.NoError(t, err)
			assert.Equal(t, own, publicKeys(keys))
		})
	}
	group.Wait()
	require.LessOrEqual(t, store.lists.Load(), int32(2), "that of the first, and one for those who came while it was made")
	require.LessOrEqual(t, store.most.Load(), int32(8), "for all of them")
	looked := store.lookups()
	for _, name := range other {
		require.Equal(t, 1, looked[name])
	}
}

func TestListThatNobodyWaitsForContinues(t *testing.T) {
	t.Parallel()
	store := &crowdedStore{countedStore: newStore(t), arrived: make(chan struct{})}
	own, other := issueKeys(t, store, acme, 3), issueKeys(t, store, "biz_other", 1)
	m := newManager(t, store, redistest.Start(t).Client(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := m.List(ctx, acme)
	require.ErrorIs(t, err, context.Canceled)
	close(store.arrived)
	keys, err := m.List(t.Context(), acme)
	require.NoError(t, err)
	require.Equal(t, own, publicKeys(keys))
	require.Equal(t, 1, store.lookups()[other[0]], "of the first list")
}

func TestMalformedEntryIsListedOnceItIsValid(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	store := newStore(t)
	name := issueKeys(t, store, acme, 1)[0]
	store.malformed = name
	m := newManager(t, store, client)
	for range 2 {
		keys, err := m.List(t.Context(), acme)
		require.NoError(t, err)
		assert.Empty(t, keys)
	}
	require.Equal(t, map[string]int{name: 1}, store.lookups())
	ttl, err := client.TTL(t.Context(), prefix+"key:"+name).Result()
	require.NoError(t, err)
	require.LessOrEqual(t, ttl, time.Minute)
	require.NoError(t, client.Del(t.Context(), prefix+"key:"+name).Err()) // the minute is over
	store.malformed = ""
	keys, err := m.List(t.Context(), acme)
	require.NoError(t, err)
	assert.Equal(t, []string{name}, publicKeys(keys))
}

func TestConcurrentIssuesDoNotExceedTheMaximum(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	store := newStore(t)
	issueKeys(t, store, acme, businesskeys.MaxKeys-2)
	gateways := []*businesskeys.Manager{newManager(t, store, client), newManager(t, store, client)}
	var group sync.WaitGroup
	results := make(chan error, 12)
	for i := range cap(results) {
		group.Go(func() {
			_, err := gateways[i%2].Issue(t.Context(), acmeKey(fmt.Sprint("attempt ", i)))
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
		require.ErrorIs(t, err, businesskeys.ErrTooMany)
	}
	require.Equal(t, 2, issued)
	names, err := store.List(t.Context())
	require.NoError(t, err)
	require.Len(t, names, businesskeys.MaxKeys)
	held, err := client.Exists(t.Context(), prefix+"issuing:"+acme).Result()
	require.NoError(t, err)
	assert.Zero(t, held)
}

// blockingStore is a credential source whose lists wait.
type blockingStore struct {
	authsigner.KeyStore

	listing, release chan struct{}
}

func (s *blockingStore) List(ctx context.Context) ([]string, error) {
	close(s.listing)
	<-s.release
	return s.KeyStore.List(ctx)
}

// lossy loses the reply of the first command with a name.
type lossy struct {
	name string
	lost atomic.Bool
}

func (*lossy) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*lossy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l *lossy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == l.name && !l.lost.Swap(true) {
			err = io.ErrUnexpectedEOF
			cmd.SetErr(err)
		}
		return err
	}
}

func TestLockWhoseReplyWasLostIsReleased(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"set", "get"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redistest.Start(t).Client(t)
			client.AddHook(&lossy{name: name})
			_, err := newManager(t, newStore(t), client).Issue(t.Context(), acmeKey("first"))
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			held, err := client.Exists(t.Context(), prefix+"issuing:"+acme).Result()
			require.NoError(t, err)
			assert.Zero(t, held)
		})
	}
}

func TestExpiredLockIsNotReleasedForItsNextHolder(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithClock())
	client, store := server.Client(t), newStore(t)
	begin := func(attempt string) (held *blockingStore, done chan error) {
		blocking := &blockingStore{KeyStore: store, listing: make(chan struct{}), release: make(chan struct{})}
		m := newManager(t, blocking, client)
		done = make(chan error, 1)
		go func() {
			_, err := m.Issue(t.Context(), acmeKey(attempt))
			done <- err
		}()
		select {
		case <-blocking.listing: // it has the lock
		case err := <-done:
			require.NoError(t, err)
		}
		return blocking, done
	}
	lock := func() int64 {
		n, err := client.Exists(t.Context(), prefix+"issuing:"+acme).Result()
		require.NoError(t, err)
		return n
	}
	first, firstDone := begin("first")
	require.NoError(t, server.StepClock(31*time.Second))
	second, secondDone := begin("second")
	close(first.release)
	require.NoError(t, <-firstDone)
	require.EqualValues(t, 1, lock(), "the second holder's")
	close(second.release)
	require.NoError(t, <-secondDone)
	assert.Zero(t, lock())
}

func TestRevokedKeyIsNotIssuedAgainByTheSameForm(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	m := newManager(t, newStore(t), client)
	issue := func() (*authsigner.Credential, error) {
		return m.Issue(t.Context(), acmeKey("attempt"))
	}
	issued, err := issue()
	require.NoError(t, err)
	require.NoError(t, m.Revoke(t.Context(), acme, issued.PublicKey))
	again, err := issue()
	require.ErrorIs(t, err, businesskeys.ErrAlreadyDone)
	require.Equal(t, issued.PublicKey, again.PublicKey)
	require.Empty(t, again.PrivateKey.Reveal())
	_, err = m.Get(t.Context(), acme, issued.PublicKey)
	require.ErrorIs(t, err, authsigner.ErrUnknownKey)
}

// An operator stops a business by making its keys inactive. Its owner, who may still sign in, gets no active one beside them, nor in their
// place.
func TestInactiveBusinessGetsNoActiveKey(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	m := newManager(t, store, redistest.Start(t).Client(t))
	issue := func(attempt string) (*authsigner.Credential, error) { return m.Issue(t.Context(), acmeKey(attempt)) }
	set := func(key string, status authsigner.Status) {
		_, err := store.Update(t.Context(), key, func(cred *authsigner.Credential) error {
			cred.Status = status
			return nil
		})
		require.NoError(t, err)
	}
	first, err := issue("first")
	require.NoError(t, err)
	set(first.PublicKey, authsigner.StatusInactive)
	_, err = issue("second")
	require.ErrorIs(t, err, businesskeys.ErrInactive)
	require.ErrorIs(t, m.Revoke(t.Context(), acme, first.PublicKey), businesskeys.ErrInactive, "it could issue one then")
	_, err = issue("second")
	require.ErrorIs(t, err, businesskeys.ErrInactive)
	_, err = issue("first")
	require.ErrorIs(t, err, businesskeys.ErrAlreadyDone)
	rotated, err := m.Rotate(t.Context(), acme, first.PublicKey, first.Version(), 0)
	require.NoError(t, err)
	require.Equal(t, authsigner.StatusInactive, rotated.Status)

	set(first.PublicKey, authsigner.StatusActive)
	second, err := issue("second")
	require.NoError(t, err)
	set(first.PublicKey, authsigner.StatusInactive)
	require.NoError(t, m.Revoke(t.Context(), acme, first.PublicKey), "another one is active")
	require.NoError(t, m.Revoke(t.Context(), acme, second.PublicKey))
	_, err = issue("third")
	require.NoError(t, err)
}

// revokingStore revokes the key before the first lookup of a list.
type revokingStore struct {
	authsigner.KeyStore

	once   sync.Once
	revoke func()
}

func (s *revokingStore) Lookup(ctx context.Context, publicKey string) (*authsigner.Credential, error) {
	s.once.Do(s.revoke)
	return s.KeyStore.Lookup(ctx, publicKey)
}

func TestListDuringARevocationDoesNotForgetIt(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	store := newStore(t)
	m := newManager(t, store, client)
	issued, err := m.Issue(t.Context(), acmeKey("attempt"))
	require.NoError(t, err)
	listing := newManager(t, &revokingStore{KeyStore: store, revoke: func() {
		require.NoError(t, m.Revoke(t.Context(), acme, issued.PublicKey))
	}}, client)
	keys, err := listing.List(t.Context(), acme)
	require.NoError(t, err)
	require.Empty(t, keys)
	require.ErrorIs(t, m.Revoke(t.Context(), acme, issued.PublicKey), businesskeys.ErrAlreadyDone)
	_, err = m.Issue(t.Context(), acmeKey("attempt"))
	require.ErrorIs(t, err, businesskeys.ErrAlreadyDone)
}

// Whichever reply of Vault is lost, each change is made once, and what the pages are told is so.
func TestLostVaultReplyNeitherRepeatsNorHidesAChange(t *testing.T) {
	t.Parallel()
	server := vaulttest.Start(t, vaulttest.Options{})
	target, err := url.Parse(server.Addr)
	require.NoError(t, err)
	lossy := netfault.NewHandler(&httputil.ReverseProxy{
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
	m := newManager(t, store, redistest.Start(t).Client(t))
	ctx := t.Context()
	for n, lose := range netfault.LoseEach(t, lossy) {
		attempt := fmt.Sprint("attempt ", n)
		var issued, rotated *authsigner.Credential
		lose(func() (err error) { issued, err = m.Issue(ctx, acmeKey(attempt)); return err })
		found, err := store.Lookup(ctx, issued.PublicKey)
		require.NoError(t, err)
		require.Equal(t, issued.PrivateKey.Reveal(), found.PrivateKey.Reveal())
		_, err = m.Issue(ctx, acmeKey(attempt))
		require.ErrorIs(t, err, businesskeys.ErrAlreadyDone)

		lose(func() (err error) {
			rotated, err = m.Rotate(ctx, acme, issued.PublicKey, issued.Version(), time.Hour)
			return err
		})
		found, err = store.Lookup(ctx, issued.PublicKey)
		require.NoError(t, err)
		require.Equal(t, rotated.PrivateKey.Reveal(), found.PrivateKey.Reveal())
		require.Equal(t, issued.PrivateKey.Reveal(), found.PreviousPrivateKey.Reveal())
		_, err = m.Rotate(ctx, acme, issued.PublicKey, issued.Version(), time.Hour)
		require.ErrorIs(t, err, businesskeys.ErrAlreadyDone)

		lose(func() error {
			keys, err := m.List(ctx, acme)
			if err == nil {
				require.Equal(t, []string{issued.PublicKey}, publicKeys(keys))
			}
			return err
		})
		lose(func() error { return m.Revoke(ctx, acme, issued.PublicKey) })
		require.ErrorIs(t, m.Revoke(ctx, acme, issued.PublicKey), businesskeys.ErrAlreadyDone)
		_, err = store.Lookup(ctx, issued.PublicKey)
		require.ErrorIs(t, err, authsigner.ErrUnknownKey)
	}
}

// Whichever reply of Redis is lost, each change is made once.
func TestLostRedisReplyPreventsNoChangeOfKeys(t *testing.T) {
	t.Parallel()
	lossy := netfault.NewRedisProxy(t, redistest.Start(t).Options().Addrs[0])
	client := redis.NewClient(&redis.Options{Addr: lossy.Addr})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	store := newStore(t)
	other := issueKeys(t, store, "biz_other", 1)
	m := newManager(t, store, client)
	ctx := t.Context()
	for n, lose := range netfault.LoseEach(t, lossy) {
		var issued *authsigner.Credential
		lose(func() (err error) {
			issued, err = m.Issue(ctx, acmeKey(fmt.Sprint("attempt ", n)))
			return err
		})
		lose(func() error {
			keys, err := m.List(ctx, acme)
			require.Equal(t, []string{issued.PublicKey}, publicKeys(keys))
			return err
		})
		lose(func() error {
			_, err := m.Rotate(ctx, acme, issued.PublicKey, issued.Version(), 0)
			return err
		})
		lose(func() error { return m.Revoke(ctx, acme, issued.PublicKey) })
		require.ErrorIs(t, m.Revoke(ctx, acme, issued.PublicKey), businesskeys.ErrAlreadyDone)
		names, err := store.List(ctx)
		require.NoError(t, err)
		require.Equal(t, other, names)
	}
}

func TestRotationKeepsAccountAndWhatTheOperatorHasSet(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	m := newManager(t, store, redistest.Start(t).Client(t))
	issued, err := m.Issue(t.Context(), acmeKey("attempt"))
	require.NoError(t, err)
	cred, err := store.Update(t.Context(), issued.PublicKey, func(cred *authsigner.Credential) error {
		require.Equal(t, "account_1", cred.CreatedBy)
		require.WithinDuration(t, time.Now(), cred.CreatedAt, time.Minute)
		cred.Name, cred.Limit, cred.Resources, cred.ExpiresAt = "Till", 5, []string{"jobs"}, time.Now().Add(time.Hour).UTC()
		return nil
	})
	require.NoError(t, err)
	want := cred.Record()
	rotated, err := m.Rotate(t.Context(), acme, issued.PublicKey, issued.Version(), 0)
	require.NoError(t, err)
	require.Equal(t, []string{"jobs"}, rotated.Resources)
	want["private_key"] = rotated.PrivateKey.Reveal()
	cred, err = store.Lookup(t.Context(), issued.PublicKey)
	require.NoError(t, err)
	assert.Equal(t, want, cred.Record())
}

func TestKeysCanBeRevokedWhileRedisIsFull(t *testing.T) {
	t.Parallel()
	server, store := redistest.Start(t), newStore(t)
	key := issueKeys(t, store, acme, 1)[0]
	m := newManager(t, store, server.Client(t))
	require.NoError(t, server.SetFull(t.Context(), true))
	require.NoError(t, m.Revoke(t.Context(), acme, key))
	_, err := store.KeyStore.Lookup(t.Context(), key)
	require.ErrorIs(t, err, authsigner.ErrUnknownKey)
	require.ErrorIs(t, m.Revoke(t.Context(), acme, key), authsigner.ErrUnknownKey, "the owner could not be stored")
}
