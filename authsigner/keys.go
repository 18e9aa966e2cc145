package authsigner

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"time"
)

// The format of issued keys: a prefix, then 24 base62 characters (public) or 32 random bytes in base64url (private).
const (
	prefixPublicLive  = "pk_live_"
	prefixPublicTest  = "pk_test_"
	prefixPrivateLive = PrivateKeyPrefix + "live_"
	prefixPrivateTest = PrivateKeyPrefix + "test_"

	publicKeyChars  = 24
	privateKeyBytes = 32
	base62          = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// Errors of a [KeyStore] and of the functions that use it, in addition to ErrUnknownKey and ErrUnavailable.
var (
	// ErrKeyExists means that a key to be created already exists.
	ErrKeyExists = errors.New("the key already exists")

	// ErrConflict means that the key was changed concurrently, too often to retry.
	ErrConflict = errors.New("the key was changed concurrently")

	// ErrVersionMismatch means that the key was rotated since its version was read.
	ErrVersionMismatch = errors.New("the key was rotated in the meantime")

	// ErrOutcomeUnknown means that the store's response to a change was lost: the change may have been made, or may still be
	// made. All other errors mean that nothing was changed.
	ErrOutcomeUnknown = errors.New("it is unknown whether the key was changed")

	// ErrGracePending means that the grace period of the previous private key has not ended.
	ErrGracePending = errors.New("the grace period of the last rotation has not ended")

	// ErrNoGrace means that a rotation cannot keep a grace period, because none is in progress.
	ErrNoGrace = errors.New("no grace period is in progress")
)

// KeyStore is a credential source whose keys can be managed.
type KeyStore interface {
	CredentialSource

	// List returns all public keys, sorted. Their entries may be malformed. Entries without a valid public key are omitted.
	List(ctx context.Context) ([]string, error)

	// Create stores a new credential, which must satisfy Credential.Validate. Errors include ErrKeyExists and
	// ErrOutcomeUnknown.
	Create(ctx context.Context, cred *Credential) error

	// Update stores the credential of publicKey as change has modified it, and returns it. change gets a copy, must not change
	// the public key, and is called again after a concurrent change. Errors include ErrUnknownKey, ErrConflict and
	// ErrOutcomeUnknown; an error of change is returned unwrapped.
	Update(ctx context.Context, publicKey string, change func(*Credential) error) (*Credential, error)

	// Delete permanently removes the credential and its history. Errors include ErrUnknownKey and ErrOutcomeUnknown.
	Delete(ctx context.Context, publicKey string) error
}

// IssueOptions are the options of [Issue].
type IssueOptions struct {
	BusinessID   string // visible ASCII; required
	BusinessName string // required
	BusinessSlug string // visible ASCII; required
	Test         bool   // issue pk_test_… instead of pk_live_…; the gateway treats both alike

	// Optional fields of the [Credential].
	Limit     int
	Name      string
	CreatedBy string
	ExpiresAt time.Time
	Resources []string
	Write     bool

	CreatedAt time.Time // default: now

	// Attempt is a unique value that makes issuing idempotent: the public key is IssuedKey(Attempt, Test), so an attempt issues
	// at most one key. Default: a random value.
	Attempt string
}

// IssuedKey returns the public key that Issue gives to an attempt.
func IssuedKey(attempt string, test bool) string {
	prefix := prefixPublicLive
	if test {
		prefix = prefixPublicTest
	}
	return prefix + inBase62(sha256.Sum256([]byte("gatehouse key\x00"+attempt)))
}

// Issue creates and stores an active key pair for a business. The private key should be shown only from the returned credential.
// ErrKeyExists means that the same attempt has issued its key before.
func Issue(ctx context.Context, store KeyStore, o IssueOptions) (*Credential, error) {
	o.Attempt = cmp.Or(o.Attempt, rand.Text())
	if o.CreatedAt.IsZero() {
		o.CreatedAt = time.Now()
	}
	cred := &Credential{
		PublicKey:    IssuedKey(o.Attempt, o.Test),
		PrivateKey:   newPrivateKey(o.Test),
		BusinessID:   o.BusinessID,
		BusinessName: o.BusinessName,
		BusinessSlug: o.BusinessSlug,
		Status:       StatusActive,
		Limit:        o.Limit,
		Name:         o.Name,
		CreatedAt:    o.CreatedAt.UTC().Truncate(time.Second),
		CreatedBy:    o.CreatedBy,
		ExpiresAt:    o.ExpiresAt.UTC(),
		Resources:    slices.Clone(o.Resources),
		Write:        o.Write,
	}
	if err := cred.Validate(); err != nil {
		return nil, fmt.Errorf("issuing a key: %w", err)
	}
	if err := store.Create(ctx, cred); err != nil {
		return nil, fmt.Errorf("issuing a key: %w", err)
	}
	return cred, nil
}

// KeepGrace instead of a grace period replaces only the newest private key, for example because nobody has seen it. The previous one
// remains valid for its grace period.
const KeepGrace time.Duration = math.MinInt64

// Rotate replaces the private key of a key pair and returns the new credential. The old private key remains valid until now+grace.
// If grace is 0, all older private keys become invalid immediately; use this if one has leaked.
//
// Only two private keys can be valid. A rotation with a grace period fails with ErrGracePending while the previous one is valid,
// because it would shorten that grace period. One with [KeepGrace] fails with ErrNoGrace otherwise.
func Rotate(ctx context.Context, store KeyStore, publicKey string, grace time.Duration, now time.Time) (*Credential, error) {
	return RotateVersion(ctx, store, publicKey, "", grace, now)
}

// RotateVersion is like [Rotate], but fails with ErrVersionMismatch unless version is the key's [Credential.Version] or empty. It
// is idempotent: repeated with the same version, it rotates once.
func RotateVersion(
	ctx context.Context, store KeyStore, publicKey, version string, grace time.Duration, now time.Time,
) (*Credential, error) {
	if grace < 0 && grace != KeepGrace {
		return nil, fmt.Errorf("rotating the key %s: invalid grace period %s: must not be negative", publicKey, grace)
	}
	cred, err := store.Update(ctx, publicKey, func(cred *Credential) error {
		if version != "" && cred.Version() != version {
			return ErrVersionMismatch
		}
		pending := cred.PreviousPrivateKey != "" && now.Before(cred.PreviousExpiresAt)
		switch {
		case grace > 0 && pending:
			return fmt.Errorf("%w: the old private key is valid until %s, or until a rotation without grace period", ErrGracePending, cred.PreviousExpiresAt.UTC().Format(time.RFC3339))
		case grace > 0:
			cred.PreviousPrivateKey, cred.PreviousExpiresAt = cred.PrivateKey, now.Add(grace).UTC()
		case grace == 0:
			cred.PreviousPrivateKey, cred.PreviousExpiresAt = "", time.Time{}
		case !pending:
			return fmt.Errorf("%w: the newest private key is the only one", ErrNoGrace)
		}
		cred.PrivateKey = newPrivateKey(strings.HasPrefix(publicKey, prefixPublicTest))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("rotating the key %s: %w", publicKey, err)
	}
	return cred, nil
}

// Version identifies the current private key without revealing it. It has 16 hexadecimal characters.
func (c *Credential) Version() string {
	sum := sha256.Sum256([]byte("gatehouse key version\x00" + string(c.PrivateKey)))
	return hex.EncodeToString(sum[:8])
}

// Revoke deletes a key. Caches use its credential until their TTL ends, or until [Cache.Invalidate] is called.
func Revoke(ctx context.Context, store KeyStore, publicKey string) error {
	if err := store.Delete(ctx, publicKey); err != nil {
		return fmt.Errorf("revoking the key %s: %w", publicKey, err)
	}
	return nil
}

func newPrivateKey(test bool) Secret {
	prefix := prefixPrivateLive
	if test {
		prefix = prefixPrivateTest
	}
	var random [privateKeyBytes]byte
	_, _ = rand.Read(random[:]) // never returns an error
	return Secret(prefix + base64.RawURLEncoding.EncodeToString(random[:]))
}

// inBase62 converts a seed of 256 bits to uniformly distributed characters with 142 bits.
func inBase62(seed [sha256.Size]byte) string {
	n, base, digit := new(big.Int).SetBytes(seed[:]), big.NewInt(int64(len(base62))), new(big.Int)
	out := make([]byte, publicKeyChars)
	for i := range out {
		n.DivMod(n, base, digit)
		out[i] = base62[digit.Int64()]
	}
	return string(out)
}
