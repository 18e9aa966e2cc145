package authsigner_test

import (
	"context"
	"encoding/base64"
	"errors"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// memoryStore is a KeyStore.
type memoryStore map[string]*authsigner.Credential

func (m memoryStore) Lookup(_ context.Context, key string) (*authsigner.Credential, error) {
	if cred := m[key]; cred != nil {
		return cred, nil
	}
	return nil, authsigner.ErrUnknownKey
}

func (m memoryStore) List(context.Context) ([]string, error) {
	return slices.Sorted(maps.Keys(m)), nil
}

func (m memoryStore) Create(_ context.Context, cred *authsigner.Credential) error {
	if m[cred.PublicKey] != nil {
		return authsigner.ErrKeyExists
	}
	m[cred.PublicKey] = cred
	return nil
}

func (m memoryStore) Update(
	ctx context.Context, key string, change func(*authsigner.Credential) error,
) (*authsigner.Credential, error) {
	cred, err := m.Lookup(ctx, key)
	if err != nil {
		return nil, err
	}
	if cred, _, err = authsigner.UpdateRecord(key, cred.Record(), change); err != nil {
		return nil, err
	}
	m[key] = cred
	return cred, nil
}

func (m memoryStore) Delete(ctx context.Context, key string) error {
	_, err := m.Lookup(ctx, key)
	delete(m, key)
	return err
}

var testBusiness = authsigner.IssueOptions{BusinessID: "biz_1", BusinessName: "Zoë's Bakery", BusinessSlug: "zoes-bakery", Limit: 120}

// issue returns a store with a new key.
func issue(t *testing.T) (memoryStore, *authsigner.Credential) {
	t.Helper()
	store := memoryStore{}
	issued, err := authsigner.Issue(t.Context(), store, testBusiness)
	require.NoError(t, err)
	return store, issued
}

func TestIssuedKeysHaveTheDocumentedForm(t *testing.T) {
	t.Parallel()
	for kind, test := range map[string]bool{"live": false, "test": true} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			store, o := memoryStore{}, testBusiness
			o.Test = test
			cred, err := authsigner.Issue(t.Context(), store, o)
			require.NoError(t, err)
			require.Regexp(t, `^pk_`+kind+`_[A-Za-z0-9]{24}$`, cred.PublicKey)
			require.Regexp(t, `^sk_`+kind+`_[A-Za-z0-9_-]{43}$`, cred.PrivateKey.Reveal())
			random, err := base64.RawURLEncoding.DecodeString(cred.PrivateKey.Reveal()[len("sk_live_"):])
			require.NoError(t, err)
			require.Len(t, random, 32)
			require.True(t, authsigner.ValidPublicKey(cred.PublicKey))
			require.Equal(t, authsigner.StatusActive, cred.Status)
			require.Equal(t, 120, cred.Limit)
			require.Same(t, cred, store[cred.PublicKey])

			rotated, err := authsigner.Rotate(t.Context(), store, cred.PublicKey, 0, time.Now())
			require.NoError(t, err)
			assert.Regexp(t, `^sk_`+kind+`_[A-Za-z0-9_-]{43}$`, rotated.PrivateKey.Reveal())
		})
	}
}

func TestIssuedKeysAreRandom(t *testing.T) {
	t.Parallel()
	store := memoryStore{}
	seen := map[rune]int{}
	secrets := map[string]bool{}
	for range 2000 {
		cred, err := authsigner.Issue(t.Context(), store, testBusiness)
		require.NoError(t, err)
		for _, c := range cred.PublicKey[len("pk_live_"):] {
			seen[c]++
		}
		secrets[cred.PrivateKey.Reveal()] = true
	}
	require.Len(t, secrets, 2000)
	require.Len(t, store, 2000)
	require.Len(t, seen, 62)
	// 48,000 characters of an alphabet of 62: 774 of each expected, with a standard deviation of 27.6; allowed are eight.
	for c, n := range seen {
		assert.InDelta(t, 774, n, 221, string(c))
	}
}

func TestNoKeyIsIssuedForAnIncompleteBusiness(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*authsigner.IssueOptions){
		"no id":               func(o *authsigner.IssueOptions) { o.BusinessID = "" },
		"no name":             func(o *authsigner.IssueOptions) { o.BusinessName = "" },
		"no slug":             func(o *authsigner.IssueOptions) { o.BusinessSlug = "" },
		"negative limit":      func(o *authsigner.IssueOptions) { o.Limit = -1 },
		"id with a line feed": func(o *authsigner.IssueOptions) { o.BusinessID = "a\r\nX-Forged: b" },
	} {
		store, o := memoryStore{}, testBusiness
		spoil(&o)
		_, err := authsigner.Issue(t.Context(), store, o)
		assert.ErrorIs(t, err, authsigner.ErrMalformedCredential, name)
		assert.Empty(t, store, name)
	}
}

func TestRotatedSecretIsValidForItsGraceOnly(t *testing.T) {
	t.Parallel()
	store, issued := issue(t)
	now := time.Unix(testClock, 0)
	rotated, err := authsigner.Rotate(t.Context(), store, issued.PublicKey, time.Hour, now)
	require.NoError(t, err)
	require.NotEqual(t, issued.PrivateKey, rotated.PrivateKey)
	require.Equal(t, issued.PrivateKey, rotated.PreviousPrivateKey)
	require.Equal(t, now.Add(time.Hour).UTC(), rotated.PreviousExpiresAt)
	require.Equal(t, issued.BusinessID, rotated.BusinessID)
	require.Equal(t, issued.Limit, rotated.Limit)

	for _, try := range []struct {
		secret authsigner.Secret
		after  time.Duration
		want   error
	}{
		{issued.PrivateKey, 0, nil},
		{issued.PrivateKey, time.Hour - time.Second, nil},
		{issued.PrivateKey, time.Hour, authsigner.ErrInvalidCredentials},
		{rotated.PrivateKey, 0, nil},
		{rotated.PrivateKey, time.Hour, nil},
	} {
		at := now.Add(try.after)
		v := &authsigner.Verifier{Source: store, Now: func() time.Time { return at }}
		r := signedRequest(issued.PublicKey, try.secret, "GET", meTarget, nil)
		r.Header.Set(authsigner.HeaderTimestamp, strconv.FormatInt(at.Unix(), 10))
		r.Header.Set(authsigner.HeaderSignature, authsigner.Sign(try.secret, at.Unix(), "GET", meTarget, nil))
		_, err := v.Verify(r, meTarget)
		assert.Equal(t, try.want, err)
	}
}

func TestRotationEndsAnEarlierGraceOnlyWithoutAGrace(t *testing.T) {
	t.Parallel()
	store, issued := issue(t)
	now := time.Unix(testClock, 0)
	first, err := authsigner.Rotate(t.Context(), store, issued.PublicKey, time.Hour, now)
	require.NoError(t, err)

	_, err = authsigner.Rotate(t.Context(), store, issued.PublicKey, time.Hour, now.Add(time.Hour-time.Second))
	require.ErrorIs(t, err, authsigner.ErrGracePending)
	require.Same(t, first, store[issued.PublicKey])
	for _, secret := range []authsigner.Secret{issued.PrivateKey, first.PrivateKey} {
		assert.NotContains(t, err.Error(), secret.Reveal())
	}

	second, err := authsigner.Rotate(t.Context(), store, issued.PublicKey, time.Hour, now.Add(time.Hour))
	require.NoError(t, err)
	require.Equal(t, first.PrivateKey, second.PreviousPrivateKey)

	third, err := authsigner.Rotate(t.Context(), store, issued.PublicKey, 0, now.Add(time.Hour))
	require.NoError(t, err)
	assert.Empty(t, third.PreviousPrivateKey)
	assert.True(t, third.PreviousExpiresAt.IsZero())
}

// The newest private key may be in nobody's hands, because the response with it was lost, while the one before is in use.
func TestRotationThatKeepsTheGraceReplacesTheNewestOnly(t *testing.T) {
	t.Parallel()
	store, issued := issue(t)
	now := time.Unix(testClock, 0)
	_, err := authsigner.Rotate(t.Context(), store, issued.PublicKey, authsigner.KeepGrace, now)
	require.ErrorIs(t, err, authsigner.ErrNoGrace)
	require.Same(t, issued, store[issued.PublicKey], "the only private key is not replaced")

	unseen, err := authsigner.Rotate(t.Context(), store, issued.PublicKey, time.Hour, now)
	require.NoError(t, err)
	replaced, err := authsigner.RotateVersion(t.Context(), store, issued.PublicKey, unseen.Version(), authsigner.KeepGrace, now.Add(time.Minute))
	require.NoError(t, err)
	assert.NotEqual(t, unseen.PrivateKey, replaced.PrivateKey)
	assert.Equal(t, issued.PrivateKey, replaced.PreviousPrivateKey)
	assert.Equal(t, unseen.PreviousExpiresAt, replaced.PreviousExpiresAt)

	_, err = authsigner.Rotate(t.Context(), store, issued.PublicKey, authsigner.KeepGrace, now.Add(time.Hour))
	require.ErrorIs(t, err, authsigner.ErrNoGrace)
	require.Equal(t, replaced, store[issued.PublicKey])
}

func TestRevokedKeyIsUnknown(t *testing.T) {
	t.Parallel()
	store, issued := issue(t)
	require.NoError(t, authsigner.Revoke(t.Context(), store, issued.PublicKey))
	require.Empty(t, store)
	_, err := authsigner.Rotate(t.Context(), store, issued.PublicKey, time.Hour, time.Now())
	require.ErrorIs(t, err, authsigner.ErrUnknownKey)
	require.ErrorIs(t, authsigner.Revoke(t.Context(), store, issued.PublicKey), authsigner.ErrUnknownKey)
}

func TestRotationKeepsTheOtherFields(t *testing.T) {
	t.Parallel()
	store, o := memoryStore{}, testBusiness
	o.Name, o.CreatedBy, o.ExpiresAt, o.Resources = "Till", "zoe", time.Now().Add(time.Hour).UTC(), []string{"jobs"}
	issued, err := authsigner.Issue(t.Context(), store, o)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), issued.CreatedAt, time.Minute)
	want := issued.Record()
	rotated, err := authsigner.Rotate(t.Context(), store, issued.PublicKey, 0, time.Now())
	require.NoError(t, err)
	want["private_key"] = rotated.PrivateKey.Reveal()
	require.Equal(t, want, rotated.Record())
}

func TestNegativeGraceIsAnError(t *testing.T) {
	t.Parallel()
	store, issued := issue(t)
	_, err := authsigner.Rotate(t.Context(), store, issued.PublicKey, -time.Second, time.Now())
	require.Error(t, err)
	assert.Same(t, issued, store[issued.PublicKey])
}

func TestStoreErrorHasNoSecret(t *testing.T) {
	t.Parallel()
	full := errors.New("disk full")
	_, err := authsigner.Issue(t.Context(), brokenStore{memoryStore{}, full}, testBusiness)
	require.ErrorIs(t, err, full)
	assert.NotContains(t, err.Error(), "sk_")
}

type brokenStore struct {
	memoryStore
	err error
}

func (b brokenStore) Create(context.Context, *authsigner.Credential) error { return b.err }

func TestUpdatedRecordKeepsUnknownFields(t *testing.T) {
	t.Parallel()
	old := newRecord(everyOptionalField())
	old["previous_private_key"], old["previous_expires_at"] = testPreviousSecret, "2100-01-01T00:00:00Z"
	old["comment"], old["ticket"] = "asked for by phone", 17
	cred, record, err := authsigner.UpdateRecord(testKey, old, func(c *authsigner.Credential) error {
		c.PrivateKey, c.PreviousPrivateKey, c.Limit, c.Name, c.CreatedBy, c.Resources, c.Write = "next", "", 0, "", "", nil, false
		c.CreatedAt, c.ExpiresAt = time.Time{}, time.Time{}
		return nil
	})
	require.NoError(t, err)
	want := cred.Record()
	require.Len(t, want, 6)
	want["comment"], want["ticket"] = "asked for by phone", 17
	require.Equal(t, want, record)
}

func TestUpdatedRecordKeepsItsKeyAndIsValid(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		record map[string]any
		change func(*authsigner.Credential) error
		want   error
	}{
		"malformed record": {map[string]any{"status": "x"}, func(*authsigner.Credential) error { return nil }, authsigner.ErrUnavailable},
		"error of change":  {nil, func(*authsigner.Credential) error { return refused }, refused},
		"invalid change":   {nil, func(c *authsigner.Credential) error { c.Status = "x"; return nil }, authsigner.ErrMalformedCredential},
		"another key":      {nil, func(c *authsigner.Credential) error { c.PublicKey = otherKey; return nil }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := authsigner.UpdateRecord(testKey, newRecord(c.record), c.change)
			require.Error(t, err)
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
			}
		})
	}
}

func TestRepeatedFormIssuesOneKey(t *testing.T) {
	t.Parallel()
	store, o := memoryStore{}, testBusiness
	o.Attempt = "form 1"
	issued, err := authsigner.Issue(t.Context(), store, o)
	require.NoError(t, err)
	require.Equal(t, authsigner.IssuedKey("form 1", false), issued.PublicKey)
	_, err = authsigner.Issue(t.Context(), store, o)
	require.ErrorIs(t, err, authsigner.ErrKeyExists)
	o.Attempt = "form 2"
	_, err = authsigner.Issue(t.Context(), store, o)
	require.NoError(t, err)
	require.Len(t, store, 2)
}

func TestRotateVersionRotatesOnce(t *testing.T) {
	t.Parallel()
	store, issued := issue(t)
	version := issued.Version()
	require.Regexp(t, `^[0-9a-f]{16}$`, version)
	rotated, err := authsigner.RotateVersion(t.Context(), store, issued.PublicKey, version, 0, time.Now())
	require.NoError(t, err)
	require.NotEqual(t, version, rotated.Version())
	_, err = authsigner.RotateVersion(t.Context(), store, issued.PublicKey, version, 0, time.Now())
	require.ErrorIs(t, err, authsigner.ErrVersionMismatch)
	assert.Equal(t, rotated.PrivateKey, store[issued.PublicKey].PrivateKey)
}
