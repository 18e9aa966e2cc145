package authsigner

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"
)

// What issued keys look like: a prefix that says what the key is for, then 24 base62 characters (public) or
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

	// ErrVersionMismatch says that the private key is no longer the one that the change was meant for.
	ErrVersionMismatch = errors.New("the key was rotated since")

	// ErrOutcomeUnknown says that the store's reply to a change was lost, so that the change may or may not have been made,
	// or may still be made. Without it, an error says that nothing was changed.
	ErrOutcomeUnknown = errors.New("whether the key was changed is not known")

	// ErrGracePending says that the secret before the current one is still promised to verify for a while.
	ErrGracePending = errors.New("the key was rotated lately and its previous secret is still valid")
)

// KeyStore is a source whose keys can be managed.
type KeyStore interface {
	CredentialSource

	// List returns every public key, sorted. It says nothing of what their entries hold, and leaves out entries whose
	// name is no public key.
	List(ctx context.Context) ([]string, error)

	// Create stores a new credential, which must satisfy Credential.Validate. ErrKeyExists if there is an entry;
	// ErrOutcomeUnknown.
	Create(ctx context.Context, cred *Credential) error

	// Update replaces the credential of publicKey by what change makes of it. change gets a copy, which it may alter
	// and return, and is called again if somebody else changed the entry meanwhile. The public key stays. It returns
	// what is stored now. ErrUnknownKey, ErrConflict, ErrOutcomeUnknown, or the error of change as it is.
	Update(ctx context.Context, publicKey string, change func(*Credential) (*Credential, error)) (*Credential, error)

	// Delete removes the credential and its history for good. ErrUnknownKey if there is none; ErrOutcomeUnknown.
	Delete(ctx context.Context, publicKey string) error
}

// IssueOptions say whose key to issue.
type IssueOptions struct {
	BusinessID string // required, visible ASCII
	Name       string // the business's name for people, required
	Slug       string // required, visible ASCII
	Limit      int    // requests a minute; 0: the contract's default
	Test       bool   // pk_test_… instead of pk_live_…; the gateway makes no other difference

	// Attempt makes issuing idempotent: the public key is [IssuedKey] of it, so that the store has one key at most for one
	// attempt. A value that nobody else uses. Default: the public key is random.
	Attempt string
}

// IssuedKey is the public key that Issue gives to an attempt.
func IssuedKey(attempt string, test bool) string {
	prefix := prefixPublicLive
	if test {
		prefix = prefixPublicTest
	}
	return prefix + inBase62(sha256.Sum256([]byte("gatehouse key\x00"+attempt)))
}

// Issue makes a new pair of keys for a business, active at once, and stores it. The returned credential is the one
// chance to show the private key to anybody. ErrKeyExists says that this attempt has issued its key before.
func Issue(ctx context.Context, store KeyStore, o IssueOptions) (*Credential, error) {
	if o.Attempt == "" {
		o.Attempt = rand.Text()
	}
	cred := &Credential{
		PublicKey:    IssuedKey(o.Attempt, o.Test),
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
	return RotateVersion(ctx, store, publicKey, "", grace, now)
}

// RotateVersion is Rotate for a key whose [Credential.Version] is version, and otherwise ErrVersionMismatch: repeated, it
// rotates once. An empty version is any.
func RotateVersion(
	ctx context.Context, store KeyStore, publicKey, version string, grace time.Duration, now time.Time,
) (*Credential, error) {
	if grace < 0 {
		return nil, fmt.Errorf("rotating a key: the grace period %s is negative", grace)
	}
	cred, err := store.Update(ctx, publicKey, func(cred *Credential) (*Credential, error) {
		if version != "" && cred.Version() != version {
			return nil, ErrVersionMismatch
		}
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

// Version names the current secret without telling it: 16 hexadecimal characters that change when the key is rotated.
func (c *Credential) Version() string {
	sum := sha256.Sum256([]byte("gatehouse key version\x00" + string(c.PrivateKey)))
	return hex.EncodeToString(sum[:8])
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

// inBase62 writes a seed of 256 bits as a public key's characters, 142 bits: each is as likely as any other.
func inBase62(seed [sha256.Size]byte) string {
	n, base, digit := new(big.Int).SetBytes(seed[:]), big.NewInt(int64(len(base62))), new(big.Int)
	out := make([]byte, publicKeyChars)
	for i := range out {
		n.DivMod(n, base, digit)
		out[i] = base62[digit.Int64()]
	}
	return string(out)
}
