package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/connect/pages"
)

const (
	// maxBusinessKeys is how many keys a business may have by way of the pages. Operators may issue more.
	maxBusinessKeys = 20

	// keyReaders is how many entries of the credential source are read at a time for a list.
	keyReaders = 8
)

// businessKeys lets the owner of a business manage its keys on the pages: those of the credential source whose entry
// names the business, and no others. A list reads every entry of the source, through the gateway's cache: the source
// knows no other order than that of its keys.
type businessKeys struct {
	credentials *pooledCredentials
	redis       *pooledRedis
	logger      *zap.Logger
}

// List implements pages.Keys.
func (k *businessKeys) List(ctx context.Context, businessID string) ([]pages.Key, error) {
	names, err := k.credentials.store.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing keys: %w", err)
	}
	var (
		mu   sync.Mutex
		keys []pages.Key
	)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(keyReaders)
	for _, name := range names {
		g.Go(func() error {
			cred, err := k.credentials.cache.Lookup(ctx, name)
			switch {
			case errors.Is(err, authsigner.ErrUnknownKey), errors.Is(err, authsigner.ErrMalformedCredential):
				return nil // revoked since; or it is nobody's
			case err != nil:
				return fmt.Errorf("reading a key: %w", err)
			case cred.BusinessID != businessID:
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			keys = append(keys, keyOf(cred))
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(keys, func(a, b pages.Key) int { return strings.Compare(a.PublicKey, b.PublicKey) })
	return keys, nil
}

// Issue implements pages.Keys.
func (k *businessKeys) Issue(ctx context.Context, business pages.Business, test bool) (pages.IssuedKey, error) {
	keys, err := k.List(ctx, business.ID)
	if err != nil {
		return pages.IssuedKey{}, err
	}
	if len(keys) >= maxBusinessKeys {
		return pages.IssuedKey{}, pages.ErrTooManyKeys
	}
	cred, err := authsigner.Issue(ctx, k.credentials.store, authsigner.IssueOptions{
		BusinessID: business.ID, Name: business.Name, Slug: business.Slug, Test: test,
	})
	if err != nil {
		return pages.IssuedKey{}, err
	}
	k.changed(ctx, cred.PublicKey)
	return issued(cred), nil
}

// Rotate implements pages.Keys.
func (k *businessKeys) Rotate(ctx context.Context, businessID, publicKey string, grace time.Duration) (pages.IssuedKey, error) {
	if _, err := k.own(ctx, businessID, publicKey); err != nil {
		return pages.IssuedKey{}, err
	}
	cred, err := authsigner.Rotate(ctx, k.credentials.store, publicKey, grace, time.Now())
	switch {
	case errors.Is(err, authsigner.ErrUnknownKey):
		return pages.IssuedKey{}, pages.ErrNoKey
	case errors.Is(err, authsigner.ErrGracePending):
		before, ownErr := k.own(ctx, businessID, publicKey)
		if ownErr != nil {
			return pages.IssuedKey{}, ownErr
		}
		return pages.IssuedKey{}, &pages.GraceError{Until: before.PreviousExpiresAt}
	case err != nil:
		return pages.IssuedKey{}, err
	}
	k.changed(ctx, publicKey)
	return issued(cred), nil
}

// Revoke implements pages.Keys.
func (k *businessKeys) Revoke(ctx context.Context, businessID, publicKey string) error {
	if _, err := k.own(ctx, businessID, publicKey); err != nil {
		return err
	}
	err := authsigner.Revoke(ctx, k.credentials.store, publicKey)
	if errors.Is(err, authsigner.ErrUnknownKey) {
		return pages.ErrNoKey
	}
	if err == nil {
		k.changed(ctx, publicKey)
	}
	return err
}

// own returns the key's credential as the source has it now, and not the cache, if it is the business's.
func (k *businessKeys) own(ctx context.Context, businessID, publicKey string) (*authsigner.Credential, error) {
	if !authsigner.ValidPublicKey(publicKey) {
		return nil, pages.ErrNoKey
	}
	cred, err := k.credentials.store.Lookup(ctx, publicKey)
	switch {
	case errors.Is(err, authsigner.ErrUnknownKey), err == nil && cred.BusinessID != businessID:
		return nil, pages.ErrNoKey
	case err != nil:
		return nil, fmt.Errorf("reading a key: %w", err)
	}
	return cred, nil
}

// changed has this gateway and all others ask anew for a key. Without Redis the others notice when their cache's TTL ends.
func (k *businessKeys) changed(ctx context.Context, publicKey string) {
	k.credentials.cache.Invalidate(publicKey)
	if k.redis == nil {
		return
	}
	if err := publishInvalidation(context.WithoutCancel(ctx), k.redis.client, publicKey); err != nil {
		k.logger.Warn("other gateways could not be told of a changed key: they notice when their cache's TTL ends",
			zap.String("public_key", publicKey), zap.Error(err))
	}
}

func keyOf(cred *authsigner.Credential) pages.Key {
	return pages.Key{
		PublicKey: cred.PublicKey, Test: strings.HasPrefix(cred.PublicKey, "pk_test_"),
		Active: cred.Status == authsigner.StatusActive, PreviousUntil: cred.PreviousExpiresAt, Limit: cred.Limit,
	}
}

func issued(cred *authsigner.Credential) pages.IssuedKey {
	return pages.IssuedKey{Key: keyOf(cred), PrivateKey: pages.PrivateKey(cred.PrivateKey.Reveal())}
}

// Interface guard.
var _ pages.Keys = (*businessKeys)(nil)
