// Package businesskeys lets a business manage its own keys in a credential source that all businesses share.
//
// Credential sources cannot list the keys of one business. Because a key never changes its business, a [Manager] caches the
// owners of keys in Redis, and a list reads only the entries of the business and those whose owner is not cached. Losing the
// cache costs one long list.
//
// A Manager keeps in Redis:
//
//	<prefix>key:<public key>        the ID of its business for 24 h, or "" for 1 min if the entry is not a valid credential
//	<prefix>issuing:<business id>   a lock, 30 s: keys of a business are issued one at a time, so that MaxKeys holds
package businesskeys

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// MaxKeys is the number of keys that a business can have before a [Manager] issues no more. Operators are not limited.
const MaxKeys = 20

const (
	readers     = 8           // concurrent lookups in the credential source for lists
	listTimeout = time.Minute // of a list of all keys
)

// Errors of a [Manager], besides those of package authsigner.
var (
	// ErrTooMany is returned if the business has MaxKeys keys.
	ErrTooMany = errors.New("the business has reached the maximum number of keys")

	// ErrInactive is returned if the business has keys, and all are inactive: it gets no active one, also not by revoking them first.
	ErrInactive = errors.New("all keys of the business are inactive")

	// ErrAlreadyDone is returned if the change was made before and this call changed nothing.
	ErrAlreadyDone = errors.New("already done")
)

// errRevoked is returned for a key of the business that has been revoked.
var errRevoked = fmt.Errorf("%w: it was revoked", authsigner.ErrUnknownKey)

// Options of a [Manager]. All are required.
type Options struct {
	Store authsigner.KeyStore

	// Redis holds the owners of keys and the lock. It may lose them. The caller closes it.
	Redis redis.UniversalClient

	// Prefix begins the name of every key in Redis. It must be the same for all gateways of a fleet.
	Prefix string

	// Invalidate makes all gateways look up a key again. It is called before and after a change, and must work after ctx has
	// ended.
	Invalidate func(ctx context.Context, publicKey string)

	Log *zap.Logger
}

// Manager manages the keys of businesses. Each method acts for one business and treats the keys of others as unknown. It reads
// the source and not a cache of credentials. A Manager is safe for concurrent use.
type Manager struct {
	o       Options
	owners  owners
	readers *semaphore.Weighted

	listing sync.Mutex // held during a list
	mu      sync.Mutex
	next    *list // that has not begun; guarded by mu
}

// New returns a manager. It contacts neither the source nor Redis, and needs no Close.
func New(o Options) (*Manager, error) {
	if o.Store == nil || o.Redis == nil || o.Prefix == "" || o.Invalidate == nil || o.Log == nil {
		return nil, errors.New("business keys: Store, Redis, Prefix, Invalidate and Log are required")
	}
	return &Manager{o: o, owners: owners{redis: o.Redis, prefix: o.Prefix}, readers: semaphore.NewWeighted(readers)}, nil
}

// List returns the credentials of a business, sorted by public key.
func (m *Manager) List(ctx context.Context, businessID string) ([]*authsigner.Credential, error) {
	owners, err := m.listOwners(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for name, owner := range owners {
		if owner == businessID {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	found, err := m.read(ctx, names, owners)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(found, func(cred *authsigner.Credential) bool { return cred.BusinessID != businessID }), nil
}

// list is one list of all keys, for all who came before it began.
type list struct {
	done   chan struct{}
	owners map[string]string // by public key
	err    error
}

// listOwners returns the owners of all keys, by public key. There is one list at a time, and one for all who wait for it, because
// it reads the keys of all businesses. It continues if ctx ends: the next one then has fewer owners to read.
func (m *Manager) listOwners(ctx context.Context) (map[string]string, error) {
	m.mu.Lock()
	next := m.next
	if next == nil {
		next = &list{done: make(chan struct{})}
		m.next = next
		go func() {
			m.listing.Lock()
			defer m.listing.Unlock()
			m.mu.Lock()
			m.next = nil // later callers may have to see later changes
			m.mu.Unlock()
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), listTimeout)
			defer cancel()
			defer close(next.done)
			defer recovered(&next.err)
			next.owners, next.err = m.readOwners(ctx)
		}()
	}
	m.mu.Unlock()
	select {
	case <-next.done:
		return next.owners, next.err
	case <-ctx.Done():
		return nil, fmt.Errorf("listing keys: %w", context.Cause(ctx))
	}
}

// recovered turns a panic of the source into an error: nothing else on these goroutines recovers.
func recovered(err *error) {
	if reason := recover(); reason != nil {
		*err = fmt.Errorf("%w: the source panicked: %v", authsigner.ErrUnavailable, reason)
	}
}

func (m *Manager) readOwners(ctx context.Context) (map[string]string, error) {
	names, err := m.o.Store.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing keys: %w", err)
	}
	owners, err := m.owners.get(ctx, names)
	if err != nil {
		return nil, err
	}
	unknown := slices.DeleteFunc(names, func(name string) bool { _, known := owners[name]; return known })
	found, err := m.read(ctx, unknown, owners)
	for _, cred := range found {
		owners[cred.PublicKey] = cred.BusinessID
	}
	return owners, err
}

// read looks up keys, and caches those owners that differ from the known ones. It leaves out keys that do not exist or belong to no
// business.
func (m *Manager) read(ctx context.Context, names []string, known map[string]string) ([]*authsigner.Credential, error) {
	found := make([]*authsigner.Credential, len(names))
	var g errgroup.Group
	g.SetLimit(readers)
	for i, name := range names {
		g.Go(func() (err error) {
			defer recovered(&err)
			if err := m.readers.Acquire(ctx, 1); err != nil {
				return fmt.Errorf("reading a key: %w", err)
			}
			defer m.readers.Release(1)
			cred, err := m.o.Store.Lookup(ctx, name)
			switch {
			case errors.Is(err, authsigner.ErrUnknownKey):
				return nil // deleted in the meantime: Get needs the owner that Revoke has cached
			case errors.Is(err, authsigner.ErrMalformedCredential):
				cred = &authsigner.Credential{PublicKey: name} // belongs to no business
			case err != nil:
				return fmt.Errorf("reading a key: %w", err)
			}
			found[i] = cred
			return nil
		})
	}
	err := g.Wait()
	found = slices.DeleteFunc(found, func(cred *authsigner.Credential) bool { return cred == nil })
	learned := make(map[string]string)
	for _, cred := range found {
		if owner, ok := known[cred.PublicKey]; !ok || owner != cred.BusinessID {
			learned[cred.PublicKey] = cred.BusinessID
		}
	}
	// Cache what was read even after an error, so that the next list gets further.
	if err := m.owners.set(ctx, learned); err != nil {
		m.o.Log.Warn("caching the owners of keys failed, the next list reads them again", zap.Error(err))
	}
	return found, err
}

// Get returns the credential of a key. It returns authsigner.ErrUnknownKey if the business has no such key.
func (m *Manager) Get(ctx context.Context, businessID, publicKey string) (*authsigner.Credential, error) {
	if !authsigner.ValidPublicKey(publicKey) {
		return nil, authsigner.ErrUnknownKey
	}
	cred, err := m.o.Store.Lookup(ctx, publicKey)
	switch {
	case errors.Is(err, authsigner.ErrUnknownKey):
		owners, err := m.owners.get(ctx, []string{publicKey})
		if err != nil {
			return nil, err
		}
		if owners[publicKey] == businessID {
			return nil, errRevoked
		}
		return nil, authsigner.ErrUnknownKey
	case err != nil:
		return nil, fmt.Errorf("reading a key: %w", err)
	case cred.BusinessID != businessID:
		return nil, authsigner.ErrUnknownKey
	}
	return cred, nil
}

// Issue creates a key pair, only one per o.Attempt, which is required. Its errors include ErrAlreadyDone if the attempt has
// created a key before, even if that is revoked, ErrTooMany, ErrInactive and authsigner.ErrOutcomeUnknown. With ErrAlreadyDone and
// ErrOutcomeUnknown it returns a credential that has only the public key.
func (m *Manager) Issue(ctx context.Context, o authsigner.IssueOptions) (*authsigner.Credential, error) {
	ctx, unlock, err := m.lock(ctx, o.BusinessID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	key := &authsigner.Credential{PublicKey: authsigner.IssuedKey(o.Attempt, o.Test)}
	switch _, err := m.Get(ctx, o.BusinessID, key.PublicKey); {
	case err == nil, errors.Is(err, errRevoked):
		return key, ErrAlreadyDone
	case !errors.Is(err, authsigner.ErrUnknownKey):
		return nil, err
	}
	keys, err := m.List(ctx, o.BusinessID)
	if err != nil {
		return nil, err
	}
	if inactive(keys) {
		return nil, ErrInactive
	}
	if len(keys) >= MaxKeys {
		return nil, ErrTooMany
	}
	cred, err := authsigner.Issue(ctx, m.o.Store, o)
	m.o.Invalidate(ctx, key.PublicKey)
	switch {
	case errors.Is(err, authsigner.ErrKeyExists):
		return key, ErrAlreadyDone
	case err != nil:
		return key, err
	}
	if err := m.owners.set(ctx, map[string]string{key.PublicKey: o.BusinessID}); err != nil {
		m.o.Log.Warn("caching the owner of a new key failed, the next list reads it again", zap.Error(err))
	}
	return cred, nil
}

func inactive(keys []*authsigner.Credential) bool {
	return len(keys) > 0 && !slices.ContainsFunc(keys, func(cred *authsigner.Credential) bool { return cred.Status == authsigner.StatusActive })
}

// Rotate gives a key a new private key, as [authsigner.RotateVersion] does. Its errors include authsigner.ErrUnknownKey,
// ErrAlreadyDone if the key's version is not version, or a grace period has begun or ended since, and authsigner.ErrOutcomeUnknown.
func (m *Manager) Rotate(
	ctx context.Context, businessID, publicKey, version string, grace time.Duration,
) (*authsigner.Credential, error) {
	if _, err := m.Get(ctx, businessID, publicKey); err != nil {
		return nil, err
	}
	m.o.Invalidate(ctx, publicKey)
	defer m.o.Invalidate(ctx, publicKey)
	cred, err := authsigner.RotateVersion(ctx, m.o.Store, publicKey, version, grace, time.Now())
	for _, state := range []error{authsigner.ErrVersionMismatch, authsigner.ErrGracePending, authsigner.ErrNoGrace} {
		if errors.Is(err, state) {
			return nil, ErrAlreadyDone
		}
	}
	return cred, err
}

// Revoke deletes a key. Its errors include ErrAlreadyDone, ErrInactive, authsigner.ErrUnknownKey if the business is not known to have had
// the key, and authsigner.ErrOutcomeUnknown.
//
// It invalidates the key in all gateways before and after the deletion, even if the deletion fails: no gateway uses the key
// again until the source confirms it, even if the source is slow or unavailable.
func (m *Manager) Revoke(ctx context.Context, businessID, publicKey string) error {
	cred, err := m.Get(ctx, businessID, publicKey)
	if errors.Is(err, errRevoked) {
		m.o.Invalidate(ctx, publicKey) // the gateway that revoked it may have failed before this step
		return ErrAlreadyDone
	}
	if err != nil {
		return err
	}
	if cred.Status != authsigner.StatusActive {
		if keys, err := m.List(ctx, businessID); err != nil || inactive(keys) {
			return cmp.Or(err, ErrInactive)
		}
	}
	// A second attempt must find out that the key was revoked, unless Redis's memory is full: revoking is more important.
	if err := m.owners.set(ctx, map[string]string{publicKey: businessID}); err != nil && !redis.IsOOMError(err) {
		return err
	}
	m.o.Invalidate(ctx, publicKey)
	defer m.o.Invalidate(ctx, publicKey)
	err = authsigner.Revoke(ctx, m.o.Store, publicKey)
	if errors.Is(err, authsigner.ErrUnknownKey) {
		return ErrAlreadyDone
	}
	return err
}
