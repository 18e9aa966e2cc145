package authsigner

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"
)

// What issued keys look like: a prefix that says what the key is for, then 24 base62 characters (public; 142 bits) or
// 32 random bytes as 43 characters of base64url without padding (private).
const (
	prefixPublicLive  = "pk_live_"
	prefixPublicTest  = "pk_test_"
	prefixPrivateLive = "sk_live_"
	prefixPrivateTest = "sk_test_"

	publicKeyChars  = 24
	privateKeyBytes = 32
	base62          = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// What a [KeyStore] and the functions over it say beside ErrUnknownKey and ErrUnavailable.
var (
	// ErrKeyExists says that a key to be created is there already.
	ErrKeyExists = errors.New("the key exists already")

	// ErrConflict says that somebody else kept changing the same key.
	ErrConflict = errors.New("the key was changed by somebody else at the same time")

	// ErrGracePending says that the secret before the current one is still promised to verify for a while.
	ErrGracePending = errors.New("the key was rotated lately and its previous secret is still valid")
)

// KeyStore is a source whose keys can be managed.
type KeyStore interface {
	CredentialSource

	// List returns every public key, sorted. It says nothing of what their entries hold, and leaves out entries whose
	// name is no public key.
	List(ctx context.Context) ([]string, error)

	// Create stores a new credential, which must satisfy Credential.Validate. ErrKeyExists if there is an entry.
	Create(ctx context.Context, cred *Credential) error

	// Update replaces the credential of publicKey by what change makes of it. change gets a copy, which it may alter
	// and return, and is called again if somebody else changed the entry meanwhile. The public key stays. It returns
	// what is stored now. ErrUnknownKey, ErrConflict, or the error of change as it is.
	Update(ctx context.Context, publicKey string, change func(*Credential) (*Credential, error)) (*Credential, error)

	// Delete removes the credential and its history for good. ErrUnknownKey if there is none.
	Delete(ctx context.Context, publicKey string) error
}

// IssueOptions say whose key to issue.
type IssueOptions struct {
	BusinessID string // required, visible ASCII
	Name       string // the business's name for people, required
	Slug       string // required, visible ASCII
	Limit      int    // requests a minute; 0: the contract's default
	Test       bool   // pk_test_… instead of pk_live_…; the gateway makes no other difference
}

// Issue makes a new pair of keys for a business, active at once, and stores it. The returned credential is the one
// chance to show the private key to anybody.
func Issue(ctx context.Context, store KeyStore, o IssueOptions) (*Credential, error) {
	prefix := prefixPublicLive
	if o.Test {
		prefix = prefixPublicTest
	}
	cred := &Credential{
		PublicKey:    prefix + randomBase62(publicKeyChars),
		PrivateKey:   newPrivateKey(o.Test),
		BusinessID:   o.BusinessID,
		BusinessName: o.Name,
		BusinessSlug: o.Slug,
		Status:       StatusActive,
		Limit:        o.Limit,
	}
	if err := cred.Validate(); err != nil {
		return nil, fmt.Errorf("issuing a key: %w", err)
	}
	if err := store.Create(ctx, cred); err != nil {
		return nil, fmt.Errorf("issuing a key: %w", err)
	}
	return cred, nil
}

// Rotate gives the key a new secret, which is in the returned credential. The one that was current until now goes on
// verifying until now+grace, or, if grace is 0, stops at once together with any before it: that is for a secret that
// has leaked.
//
// Only two secrets can be valid. While the one before the current is, a rotation with grace would cut short what its
// holder was promised, and is refused with ErrGracePending.
func Rotate(ctx context.Context, store KeyStore, publicKey string, grace time.Duration, now time.Time) (*Credential, error) {
	if grace < 0 {
		return nil, fmt.Errorf("rotating a key: the grace period %s is negative", grace)
	}
	cred, err := store.Update(ctx, publicKey, func(cred *Credential) (*Credential, error) {
		if grace > 0 && cred.PreviousPrivateKey != "" && now.Before(cred.PreviousExpiresAt) {
			return nil, fmt.Errorf("%w: until %s", ErrGracePending, cred.PreviousExpiresAt.UTC().Format(time.RFC3339))
		}
		next := cred.Clone()
		next.PreviousPrivateKey, next.PreviousExpiresAt = "", time.Time{}
		if grace > 0 {
			next.PreviousPrivateKey, next.PreviousExpiresAt = cred.PrivateKey, now.Add(grace).UTC()
		}
		next.PrivateKey = newPrivateKey(strings.HasPrefix(publicKey, prefixPublicTest))
		return next, nil
	})
	if err != nil {
		return nil, fmt.Errorf("rotating a key: %w", err)
	}
	return cred, nil
}

// Revoke removes the key with all its secrets. Gateways notice within their cache's TTL, or at once if they are told.
func Revoke(ctx context.Context, store KeyStore, publicKey string) error {
	if err := store.Delete(ctx, publicKey); err != nil {
		return fmt.Errorf("revoking a key: %w", err)
	}
	return nil
}

// MergeRecord returns the record of cred for a store that is to replace the entry old by it: with those fields of old
// that a credential does not have, which are somebody's notes, and none of the others.
func MergeRecord(old map[string]any, cred *Credential) map[string]any {
	merged := cred.Record()
	for name, value := range old {
		switch name {
		case fieldPrivateKey, fieldPreviousPrivateKey, fieldPreviousExpiresAt, fieldBusinessID, fieldBusinessName,
			fieldBusinessSlug, fieldStatus, fieldLimit:
		default:
			merged[name] = value
		}
	}
	return merged
}

func newPrivateKey(test bool) Secret {
	prefix := prefixPrivateLive
	if test {
		prefix = prefixPrivateTest
	}
	var random [privateKeyBytes]byte
	_, _ = rand.Read(random[:]) // never fails: it ends the process instead
	return Secret(prefix + base64.RawURLEncoding.EncodeToString(random[:]))
}

// randomBase62 draws each character with the same probability: bytes past the last multiple of 62 are thrown away.
func randomBase62(n int) string {
	out := make([]byte, 0, n)
	var random [64]byte
	for len(out) < n {
		_, _ = rand.Read(random[:])
		for _, b := range random {
			if int(b) < 256/len(base62)*len(base62) && len(out) < n {
				out = append(out, base62[int(b)%len(base62)])
			}
		}
	}
	return string(out)
}
