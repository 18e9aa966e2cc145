package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/businesskeys"
	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/pages"
)

// pageKeys implements pages.Keys with the keys of the API.
type pageKeys struct {
	manager *businesskeys.Manager
}

// newPageKeys returns the keys of the app's credential source.
func newPageKeys(app *App, logger *zap.Logger) (*pageKeys, error) {
	manager, err := businesskeys.New(businesskeys.Options{
		Store: app.credentials.store, Redis: app.redis.client, Prefix: audit.DefaultPrefix, Log: logger,
		// Gateways that the message does not reach look the key up when their cache's TTL ends.
		Invalidate: func(ctx context.Context, publicKey string) {
			app.credentials.cache.Invalidate(publicKey)
			if err := publishInvalidation(ctx, app.redis.client, publicKey); err != nil {
				logger.Warn("publishing an invalidation failed, other gateways use the old credential until their cache's TTL ends",
					zap.String("public_key", publicKey), zap.Error(err))
			}
		},
	})
	return &pageKeys{manager}, err
}

// List implements pages.Keys.
func (k *pageKeys) List(ctx context.Context, businessID string) ([]pages.Key, error) {
	creds, err := k.manager.List(ctx, businessID)
	var keys []pages.Key
	for _, cred := range creds {
		keys = append(keys, keyOf(cred))
	}
	return keys, pagesError(err)
}

// Get implements pages.Keys.
func (k *pageKeys) Get(ctx context.Context, businessID, publicKey string) (pages.Key, error) {
	cred, err := k.manager.Get(ctx, businessID, publicKey)
	return keyOf(cred), pagesError(err)
}

// Issue implements pages.Keys.
func (k *pageKeys) Issue(
	ctx context.Context, business account.Business, accountID, attempt string, test bool,
) (pages.IssuedKey, error) {
	return issued(k.manager.Issue(ctx, authsigner.IssueOptions{
		BusinessID: business.BusinessID, BusinessName: business.BusinessName, BusinessSlug: business.BusinessSlug, Test: test, Attempt: attempt,
		CreatedBy: accountID,
	}))
}

// Rotate implements pages.Keys.
func (k *pageKeys) Rotate(
	ctx context.Context, businessID, publicKey, version string, grace time.Duration,
) (pages.IssuedKey, error) {
	if grace == pages.KeepGrace {
		grace = authsigner.KeepGrace
	}
	return issued(k.manager.Rotate(ctx, businessID, publicKey, version, grace))
}

// Revoke implements pages.Keys.
func (k *pageKeys) Revoke(ctx context.Context, businessID, publicKey string) error {
	return pagesError(k.manager.Revoke(ctx, businessID, publicKey))
}

// issued returns the result of a change, with the private key if it succeeded.
func issued(cred *authsigner.Credential, err error) (pages.IssuedKey, error) {
	key := pages.IssuedKey{Key: keyOf(cred)}
	if err == nil {
		key.PrivateKey = pages.PrivateKey(cred.PrivateKey.Reveal())
	}
	return key, pagesError(err)
}

// keyOf returns the key of a credential, or the zero Key if cred is nil.
func keyOf(cred *authsigner.Credential) pages.Key {
	if cred == nil {
		return pages.Key{}
	}
	return pages.Key{
		PublicKey: cred.PublicKey, Version: cred.Version(), Test: strings.HasPrefix(cred.PublicKey, "pk_test_"), CreatedAt: cred.CreatedAt,
		Active: cred.Status == authsigner.StatusActive, PreviousUntil: cred.PreviousExpiresAt, Limit: cred.Limit,
		Name: cred.Name, ExpiresAt: cred.ExpiresAt, Resources: cred.Resources, Write: cred.Write,
	}
}

// pagesError maps an error to those of package pages.
func pagesError(err error) error {
	switch {
	case errors.Is(err, businesskeys.ErrAlreadyDone):
		return pages.ErrAlreadyDone
	case errors.Is(err, businesskeys.ErrTooMany):
		return pages.ErrTooManyKeys
	case errors.Is(err, businesskeys.ErrInactive):
		return pages.ErrInactive
	case errors.Is(err, authsigner.ErrUnknownKey):
		return pages.ErrNoKey
	case errors.Is(err, authsigner.ErrOutcomeUnknown):
		return fmt.Errorf("%w: %w", pages.ErrOutcomeUnknown, err)
	}
	return err
}
