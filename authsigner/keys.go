package authsigner

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"time"
)

// KeyStore is a source whose credentials can be managed.
type KeyStore interface {
	CredentialSource

	// List returns all public keys, sorted.
	List(ctx context.Context) ([]string, error)

	// Create adds a credential. It wraps ErrKeyExists if there is one with that public key.
	Create(ctx context.Context, c *Credential) error

	// Update replaces a credential by what change makes of a copy of it, and returns the new one. Where the store can
	// tell that somebody else has written meanwhile, it fails with ErrConflict and has written nothing. It wraps
	// ErrUnknownKey if there is no such credential.
	Update(ctx context.Context, publicKey string, change func(*Credential) (*Credential, error)) (*Credential, error)

	// Delete removes a credential for good. It wraps ErrUnknownKey if there is none.
	Delete(ctx context.Context, publicKey string) error
}

// What managing keys can fail with, beside what looking them up can.
var (
	// ErrKeyExists says that a credential with this public key is there already.
	ErrKeyExists = errors.New("the public key exists already")

	// ErrConflict says that somebody else has changed the credential at the same time; nothing was written.
	ErrConflict = errors.New("the credential was changed at the same time")

	// ErrGraceRunning says that the secret before the last rotation is still good, so that another rotation would
	// end it before its time.
	ErrGraceRunning = errors.New("the private key before the last rotation is still good")
)

// IssueOptions say for whom a key is issued.
type IssueOptions struct {
	BusinessID, BusinessName, BusinessSlug string

	// Limit in requests a minute. Default: 0, the gateway's.
	Limit int

	// Test makes a pk_test_ key instead of a pk_live_ one. Nothing else differs.
	Test bool

	// Inactive issues the key of an account that is not active.
	Inactive bool
}

// The random parts of issued keys, in bytes before their encoding: 144 bits name a key, 256 bits sign.
const (
	publicKeyBytes  = 18
	privateKeyBytes = 32
)

// Issue makes a key pair, keeps it in store and returns it. It is the only time, beside Rotate, that the private key is
// to be shown. It wraps ErrMalformedCredential if the options are not a credential's.
func Issue(ctx context.Context, store KeyStore, o IssueOptions) (*Credential, error) {
	kind := "live_"
	if o.Test {
		kind = "test_"
	}
	status := StatusActive
	if o.Inactive {
		status = StatusInactive
	}
	c := &Credential{
		PublicKey: "pk_" + kind + random(publicKeyBytes), PrivateKey: Secret("sk_" + kind + random(privateKeyBytes)),
		BusinessID: o.BusinessID, BusinessName: o.BusinessName, BusinessSlug: o.BusinessSlug,
		Status: status, Limit: o.Limit,
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if err := store.Create(ctx, c); err != nil {
		return nil, fmt.Errorf("keeping the credential: %w", err)
	}
	return c, nil
}

// Rotate gives a public key a new private key. The one before stays good for the grace time, to the whole second; with
// a grace of 0 it ends at once. A rotation within the grace time of the last one is ErrGraceRunning, as only one
// previous secret is kept, unless grace is 0: that is for a private key that has leaked, and ends both.
func Rotate(ctx context.Context, store KeyStore, publicKey string, grace time.Duration, now time.Time) (*Credential, error) {
	if grace < 0 {
		return nil, errors.New("the grace time is negative")
	}
	if !ValidPublicKey(publicKey) {
		return nil, ErrUnknownKey
	}
	return store.Update(ctx, publicKey, func(c *Credential) (*Credential, error) {
		if grace > 0 && c.PreviousPrivateKey != "" && now.Before(c.PreviousExpiresAt) {
			return nil, fmt.Errorf("%w until %s", ErrGraceRunning, c.PreviousExpiresAt.Format(time.RFC3339))
		}
		next := c.Clone()
		next.PreviousPrivateKey, next.PreviousExpiresAt = "", time.Time{}
		if grace > 0 {
			next.PreviousPrivateKey = c.PrivateKey
			next.PreviousExpiresAt = now.Add(grace).UTC().Truncate(time.Second)
		}
		kind := "live_"
		if len(publicKey) > 8 && publicKey[:8] == "pk_test_" {
			kind = "test_"
		}
		next.PrivateKey = Secret("sk_" + kind + random(privateKeyBytes))
		return next, next.Validate()
	})
}

// Revoke deletes a credential. Gateways refuse it when they next ask for it: at once when they are told, and when
// their cache's TTL is over at the latest.
func Revoke(ctx context.Context, store KeyStore, publicKey string) error {
	if !ValidPublicKey(publicKey) {
		return ErrUnknownKey
	}
	return store.Delete(ctx, publicKey)
}

// random is n random bytes in URL-safe base64.
func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails (crypto/rand)
	return base64.RawURLEncoding.EncodeToString(b)
}
