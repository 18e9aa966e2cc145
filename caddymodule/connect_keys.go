package caddymodule

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/connect"
	"github.com/gatehouse-gateway/gatehouse/connect/pages"
)

const (
	// maxBusinessKeys is the number of keys that a business can have before the pages refuse to issue more. Operators are
	// not limited.
	maxBusinessKeys = 20

	// keyReaders is the number of concurrent lookups in the credential source for a list.
	keyReaders = 8

	// keyOwnerTTL is how long the owner of a key is cached; invalidKeyTTL, that an entry is not a valid credential.
	keyOwnerTTL   = 24 * time.Hour
	invalidKeyTTL = time.Minute

	// issuingTTL expires the lock of a gateway that died. It is longer than the deadline that the pages set.
	issuingTTL   = 30 * time.Second
	issuingRetry = 50 * time.Millisecond

	keysRedisTimeout = 3 * time.Second
)

// errRevoked means that the key belonged to the business and has been revoked.
var errRevoked = fmt.Errorf("%w: it was revoked", pages.ErrNoKey)

// businessKeys implements the keys page: the owner of a business manages the credentials with the ID of that business. It
// keeps in Redis:
//
//	{prefix}key:{public key}        the ID of its business, or "" if the entry is not a valid credential
//	{prefix}issuing:{business id}   a lock: keys of a business are issued one at a time, so that maxBusinessKeys holds
//
// Credential sources cannot list the keys of one business. Because a key never changes its business, a list reads only the
// entries of the business and those whose owner is not cached.
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
	for i, name := range names {
		if owner, known := owners[name]; known && owner != businessID {
			continue
		}
		g.Go(func() error {
			cred, err := k.store.Lookup(ctx, name)
			switch {
			case errors.Is(err, authsigner.ErrUnknownKey), errors.Is(err, authsigner.ErrMalformedCredential):
				cred = new(authsigner.Credential) // deleted in the meantime, or it belongs to no business
			case err != nil:
				return fmt.Errorf("reading a key: %w", err)
			}
			found[i] = cred
			return nil
		})
	}
	err = g.Wait()
	var keys []pages.Key
	learned := make(map[string]string)
	for i, cred := range found {
		if cred == nil {
			continue
		}
		if owner, known := owners[names[i]]; !known || owner != cred.BusinessID {
			learned[names[i]] = cred.BusinessID
		}
		if cred.BusinessID == businessID {
			keys = append(keys, keyOf(cred))
		}
	}
	// Cache what was read even after an error, so that the next list gets further.
	if err := k.cacheOwners(ctx, learned); err != nil {
		k.logger.Warn("caching the owners of keys failed, the next list reads them again", zap.Error(err))
	}
	if err != nil {
		return nil, err
	}
	return keys, nil
}

// Get implements pages.Keys.
func (k *businessKeys) Get(ctx context.Context, businessID, publicKey string) (pages.Key, error) {
	cred, err := k.ownCredential(ctx, businessID, publicKey)
	if err != nil {
		return pages.Key{}, err
	}
	return keyOf(cred), nil
}

// Issue implements pages.Keys.
func (k *businessKeys) Issue(
	ctx context.Context, business pages.Business, accountID, attempt string, test bool,
) (pages.IssuedKey, error) {
	unlock, err := k.lock(ctx, business.ID)
	if err != nil {
		return pages.IssuedKey{}, err
	}
	defer unlock()
	publicKey := authsigner.IssuedKey(attempt, test)
	switch _, err := k.ownCredential(ctx, business.ID, publicKey); {
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
		BusinessID: business.ID, BusinessName: business.Name, BusinessSlug: business.Slug, Test: test, Attempt: attempt,
		CreatedBy: accountID,
	})
	k.invalidate(ctx, publicKey)
	if err != nil {
		return pages.IssuedKey{Key: pages.Key{PublicKey: publicKey}}, pagesError(err)
	}
	if err := k.cacheOwners(ctx, map[string]string{publicKey: business.ID}); err != nil {
		k.logger.Warn("caching the owner of a new key failed, the next list reads it again", zap.Error(err))
	}
	return issued(cred), nil
}

// Rotate implements pages.Keys.
func (k *businessKeys) Rotate(
	ctx context.Context, businessID, publicKey, version string, grace time.Duration,
) (pages.IssuedKey, error) {
	if _, err := k.ownCredential(ctx, businessID, publicKey); err != nil {
		return pages.IssuedKey{}, err
	}
	k.invalidate(ctx, publicKey)
	defer k.invalidate(ctx, publicKey)
	cred, err := authsigner.RotateVersion(ctx, k.store, publicKey, version, grace, time.Now())
	if errors.Is(err, authsigner.ErrGracePending) {
		before, err := k.ownCredential(ctx, businessID, publicKey)
		if err != nil {
			return pages.IssuedKey{}, err
		}
		return pages.IssuedKey{Key: keyOf(before)}, pages.ErrGracePending
	}
	if err != nil {
		return pages.IssuedKey{}, pagesError(err)
	}
	return issued(cred), nil
}

// Revoke implements pages.Keys. It invalidates the key in all gateways before and after the deletion, even if the deletion
// fails: no gateway uses the key again until the source confirms it, even if the source is slow or unavailable.
func (k *businessKeys) Revoke(ctx context.Context, businessID, publicKey string) error {
	_, err := k.ownCredential(ctx, businessID, publicKey)
	if errors.Is(err, errRevoked) {
		k.invalidate(ctx, publicKey) // the gateway that revoked it may have failed before this step
		return pages.ErrAlreadyDone
	}
	if err != nil {
		return err
	}
	// A second attempt must find out that the key was revoked.
	if err := k.cacheOwners(ctx, map[string]string{publicKey: businessID}); err != nil {
		return err
	}
	k.invalidate(ctx, publicKey)
	defer k.invalidate(ctx, publicKey)
	err = authsigner.Revoke(ctx, k.store, publicKey)
	if errors.Is(err, authsigner.ErrUnknownKey) {
		return pages.ErrAlreadyDone
	}
	return pagesError(err)
}

// ownCredential returns the credential of a key of the business, read from the source and not from the cache.
func (k *businessKeys) ownCredential(ctx context.Context, businessID, publicKey string) (*authsigner.Credential, error) {
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

// owners returns the cached owners of keys.
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
		return nil, fmt.Errorf("reading the owners of keys: %w", err)
	}
	owners := make(map[string]string)
	for i, reply := range replies {
		owner, err := reply.Result()
		switch {
		case err == nil:
			owners[names[i]] = owner
		case !errors.Is(err, redis.Nil):
			return nil, fmt.Errorf("reading the owners of keys: %w", err)
		}
	}
	return owners, nil
}

// cacheOwners stores the owners of keys, by public key.
func (k *businessKeys) cacheOwners(ctx context.Context, owners map[string]string) error {
	if len(owners) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keysRedisTimeout)
	defer cancel()
	_, err := k.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for name, owner := range owners {
			ttl := keyOwnerTTL
			if owner == "" {
				ttl = invalidKeyTTL
			}
			p.Set(ctx, ownerKey(name), owner, ttl)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("caching the owners of keys: %w", err)
	}
	return nil
}

// lock waits until no other gateway or request issues a key for the business.
func (k *businessKeys) lock(ctx context.Context, businessID string) (unlock func(), err error) {
	key, mine := connect.DefaultPrefix+"issuing:"+businessID, rand.Text()
	for {
		began := time.Now()
		// The reply of SETNX may have been lost: GET shows whether the lock is ours.
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
					return // it has expired, and another request may hold the lock now
				}
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keysRedisTimeout)
				defer cancel()
				if err := k.redis.Del(ctx, key).Err(); err != nil {
					k.logger.Warn("releasing the lock for issuing keys failed, it expires by itself", zap.Duration("in", issuingTTL), zap.Error(err))
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

// invalidate makes all gateways look up a key again. Those that the message does not reach do so when their cache's TTL ends.
func (k *businessKeys) invalidate(ctx context.Context, publicKey string) {
	k.cache.Invalidate(publicKey)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keysRedisTimeout)
	defer cancel()
	if err := publishInvalidation(ctx, k.redis, publicKey); err != nil {
		k.logger.Warn("publishing an invalidation failed, other gateways use the old credential until their cache's TTL ends",
			zap.String("public_key", publicKey), zap.Error(err))
	}
}

func ownerKey(publicKey string) string { return connect.DefaultPrefix + "key:" + publicKey }

// pagesError maps an error of a change to the errors of package pages.
func pagesError(err error) error {
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
		Name: cred.Name, ExpiresAt: cred.ExpiresAt, Resources: cred.Resources,
	}
}

func issued(cred *authsigner.Credential) pages.IssuedKey {
	return pages.IssuedKey{Key: keyOf(cred), PrivateKey: pages.PrivateKey(cred.PrivateKey.Reveal())}
}
