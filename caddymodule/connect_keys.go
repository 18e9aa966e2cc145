package caddymodule

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/connect"
	"github.com/gatehouse-gateway/gatehouse/connect/pages"
)

const (
	// maxBusinessKeys is how many keys a business may have by way of the pages. Operators may issue more.
	maxBusinessKeys = 20

	// keyReaders is how many entries of the credential source are read at a time for a list.
	keyReaders = 8

	// keyOwnerTTL is how long it is remembered whose a key is; and keyNobodyTTL, that an entry is not a credential.
	keyOwnerTTL  = 24 * time.Hour
	keyNobodyTTL = time.Minute

	// issuingTTL ends the lock of a gateway that died. It outlives the deadline that the pages set.
	issuingTTL   = 30 * time.Second
	issuingRetry = 50 * time.Millisecond

	keysRedisTimeout = 3 * time.Second
)

// errRevoked says that the business had the key, and that it is gone.
var errRevoked = fmt.Errorf("%w: it was revoked", pages.ErrNoKey)

// businessKeys lets the owner of a business manage its keys on the pages: those of the credential source whose entry
// names the business, and no others. In Redis:
//
//	{prefix}key:{public key}        the id of its business, "" if the entry is not a credential; for a day or a minute
//	{prefix}issuing:{business id}   a lock: one key at a time is issued for a business, so that the bound holds
//
// A source cannot be asked for the keys of one business. So a list reads the entries of the business and those that no
// gateway has read within a day, and of all others just the names: a key never changes its business.
type businessKeys struct {
	store  authsigner.KeyStore
	cache  *authsigner.Cache
	redis  redis.UniversalClient
	logger *zap.Logger
}

// List implements pages.Keys.
func (k *businessKeys) List(ctx context.Context, businessID string) ([]pages.Key, error) {
	names, err := k.store.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing keys: %w", err)
	}
	owners, err := k.owners(ctx, names)
	if err != nil {
		return nil, err
	}
	found := make([]*authsigner.Credential, len(names))
	var g errgroup.Group
	g.SetLimit(keyReaders)
	learned, mu := make(map[string]string), sync.Mutex{}
	for i, name := range names {
		owner, known := owners[name]
		if known && owner != businessID {
			continue
		}
		g.Go(func() error {
			cred, err := k.store.Lookup(ctx, name)
			switch {
			case errors.Is(err, authsigner.ErrUnknownKey), errors.Is(err, authsigner.ErrMalformedCredential):
				cred = new(authsigner.Credential) // deleted by hand; or it is nobody's
			case err != nil:
				return fmt.Errorf("reading a key: %w", err)
			}
			if !known || cred.BusinessID != owner {
				mu.Lock()
				defer mu.Unlock()
				learned[name] = cred.BusinessID
			}
			found[i] = cred
			return nil
		})
	}
	err = g.Wait()
	// What was read is remembered even if not all was, so that the next list gets further.
	if err := k.remember(ctx, learned); err != nil {
		k.logger.Warn("keys are read again for the next list", zap.Error(err))
	}
	if err != nil {
		return nil, err
	}
	var keys []pages.Key
	for _, cred := range found {
		if cred != nil && cred.BusinessID == businessID {
			keys = append(keys, keyOf(cred))
		}
	}
	return keys, nil
}

// Get implements pages.Keys.
func (k *businessKeys) Get(ctx context.Context, businessID, publicKey string) (pages.Key, error) {
	cred, err := k.own(ctx, businessID, publicKey)
	if err != nil {
		return pages.Key{}, err
	}
	return keyOf(cred), nil
}

// Issue implements pages.Keys.
func (k *businessKeys) Issue(ctx context.Context, business pages.Business, attempt string, test bool) (pages.IssuedKey, error) {
	unlock, err := k.lock(ctx, business.ID)
	if err != nil {
		return pages.IssuedKey{}, err
	}
	defer unlock()
	publicKey := authsigner.IssuedKey(attempt, test)
	switch _, err := k.own(ctx, business.ID, publicKey); {
	case err == nil, errors.Is(err, errRevoked):
		return pages.IssuedKey{Key: pages.Key{PublicKey: publicKey}}, pages.ErrAlreadyDone
	case !errors.Is(err, pages.ErrNoKey):
		return pages.IssuedKey{}, err
	}
	keys, err := k.List(ctx, business.ID)
	if err != nil {
		return pages.IssuedKey{}, err
	}
	if len(keys) >= maxBusinessKeys {
		return pages.IssuedKey{}, pages.ErrTooManyKeys
	}
	cred, err := authsigner.Issue(ctx, k.store, authsigner.IssueOptions{
		BusinessID: business.ID, Name: business.Name, Slug: business.Slug, Test: test, Attempt: attempt,
	})
	k.invalidate(ctx, publicKey)
	if err != nil {
		return pages.IssuedKey{Key: pages.Key{PublicKey: publicKey}}, outcome(err)
	}
	if err := k.remember(ctx, map[string]string{publicKey: business.ID}); err != nil {
		k.logger.Warn("the next list reads the new key again", zap.Error(err))
	}
	return issued(cred), nil
}

// Rotate implements pages.Keys.
func (k *businessKeys) Rotate(
	ctx context.Context, businessID, publicKey, version string, grace time.Duration,
) (pages.IssuedKey, error) {
	if _, err := k.own(ctx, businessID, publicKey); err != nil {
		return pages.IssuedKey{}, err
	}
	k.invalidate(ctx, publicKey)
	defer k.invalidate(ctx, publicKey)
	cred, err := authsigner.RotateVersion(ctx, k.store, publicKey, version, grace, time.Now())
	if errors.Is(err, authsigner.ErrGracePending) {
		before, err := k.own(ctx, businessID, publicKey)
		if err != nil {
			return pages.IssuedKey{}, err
		}
		return pages.IssuedKey{}, &pages.GraceError{Until: before.PreviousExpiresAt}
	}
	if err != nil {
		return pages.IssuedKey{}, outcome(err)
	}
	return issued(cred), nil
}

// Revoke implements pages.Keys. It has the gateways forget the key before it is deleted and afterwards, whatever the source
// says: then none uses it again before the source has confirmed it, also if the source is slow or unavailable.
func (k *businessKeys) Revoke(ctx context.Context, businessID, publicKey string) error {
	_, err := k.own(ctx, businessID, publicKey)
	if errors.Is(err, errRevoked) {
		k.invalidate(ctx, publicKey) // the gateway that revoked it may not have got that far
		return pages.ErrAlreadyDone
	}
	if err != nil {
		return err
	}
	// Whoever revokes it again is told that it is gone.
	if err := k.remember(ctx, map[string]string{publicKey: businessID}); err != nil {
		return err
	}
	k.invalidate(ctx, publicKey)
	defer k.invalidate(ctx, publicKey)
	err = authsigner.Revoke(ctx, k.store, publicKey)
	if errors.Is(err, authsigner.ErrUnknownKey) {
		return pages.ErrAlreadyDone
	}
	return outcome(err)
}

// own returns the key's credential as the source has it now, and not the cache, if it is the business's.
func (k *businessKeys) own(ctx context.Context, businessID, publicKey string) (*authsigner.Credential, error) {
	if !authsigner.ValidPublicKey(publicKey) {
		return nil, pages.ErrNoKey
	}
	cred, err := k.store.Lookup(ctx, publicKey)
	switch {
	case errors.Is(err, authsigner.ErrUnknownKey):
		owners, err := k.owners(ctx, []string{publicKey})
		if err != nil {
			return nil, err
		}
		if owners[publicKey] == businessID {
			return nil, errRevoked
		}
		return nil, pages.ErrNoKey
	case err != nil:
		return nil, fmt.Errorf("reading a key: %w", err)
	case cred.BusinessID != businessID:
		return nil, pages.ErrNoKey
	}
	return cred, nil
}

// owners returns whose the keys are, as far as that is remembered.
func (k *businessKeys) owners(ctx context.Context, names []string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, keysRedisTimeout)
	defer cancel()
	replies := make([]*redis.StringCmd, len(names))
	_, err := k.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, name := range names {
			replies[i] = p.Get(ctx, ownerKey(name))
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("reading whose keys these are: %w", err)
	}
	owners := make(map[string]string)
	for i, reply := range replies {
		owner, err := reply.Result()
		switch {
		case err == nil:
			owners[names[i]] = owner
		case !errors.Is(err, redis.Nil):
			return nil, fmt.Errorf("reading whose keys these are: %w", err)
		}
	}
	return owners, nil
}

// remember stores whose keys are, by public key.
func (k *businessKeys) remember(ctx context.Context, owners map[string]string) error {
	if len(owners) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keysRedisTimeout)
	defer cancel()
	_, err := k.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for name, owner := range owners {
			ttl := keyOwnerTTL
			if owner == "" {
				ttl = keyNobodyTTL
			}
			p.Set(ctx, ownerKey(name), owner, ttl)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("remembering whose keys these are: %w", err)
	}
	return nil
}

// lock waits until no other gateway or request issues a key for the business.
func (k *businessKeys) lock(ctx context.Context, businessID string) (unlock func(), err error) {
	key, mine := connect.DefaultPrefix+"issuing:"+businessID, rand.Text()
	for {
		began := time.Now()
		// GET tells our own lock, whose reply was lost, from another's.
		if err := k.redis.SetNX(ctx, key, mine, issuingTTL).Err(); err != nil {
			return nil, fmt.Errorf("waiting to issue a key: %w", err)
		}
		holder, err := k.redis.Get(ctx, key).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("waiting to issue a key: %w", err)
		}
		if holder == mine {
			return func() {
				if time.Since(began) >= issuingTTL {
					return // it has ended, and the next may be another's
				}
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keysRedisTimeout)
				defer cancel()
				if err := k.redis.Del(ctx, key).Err(); err != nil {
					k.logger.Warn("keys of a business cannot be issued until a lock ends", zap.Duration("in", issuingTTL), zap.Error(err))
				}
			}, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting to issue a key: %w", context.Cause(ctx))
		case <-time.After(issuingRetry):
		}
	}
}

// invalidate has this gateway and all others ask anew for a key. Those that Redis does not reach notice when their cache's TTL
// ends.
func (k *businessKeys) invalidate(ctx context.Context, publicKey string) {
	k.cache.Invalidate(publicKey)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keysRedisTimeout)
	defer cancel()
	if err := publishInvalidation(ctx, k.redis, publicKey); err != nil {
		k.logger.Warn("other gateways could not be told of a changed key: they notice when their cache's TTL ends",
			zap.String("public_key", publicKey), zap.Error(err))
	}
}

func ownerKey(publicKey string) string { return connect.DefaultPrefix + "key:" + publicKey }

// outcome says in the words of the pages how a change ended.
func outcome(err error) error {
	switch {
	case errors.Is(err, authsigner.ErrKeyExists), errors.Is(err, authsigner.ErrVersionMismatch):
		return pages.ErrAlreadyDone
	case errors.Is(err, authsigner.ErrUnknownKey):
		return pages.ErrNoKey
	case errors.Is(err, authsigner.ErrOutcomeUnknown):
		return fmt.Errorf("%w: %w", pages.ErrOutcomeUnknown, err)
	}
	return err
}

func keyOf(cred *authsigner.Credential) pages.Key {
	return pages.Key{
		PublicKey: cred.PublicKey, Version: cred.Version(), Test: strings.HasPrefix(cred.PublicKey, "pk_test_"),
		Active: cred.Status == authsigner.StatusActive, PreviousUntil: cred.PreviousExpiresAt, Limit: cred.Limit,
	}
}

func issued(cred *authsigner.Credential) pages.IssuedKey {
	return pages.IssuedKey{Key: keyOf(cred), PrivateKey: pages.PrivateKey(cred.PrivateKey.Reveal())}
}

// Interface guard.
var _ pages.Keys = (*businessKeys)(nil)
