package file

import (
	"context"
	"errors"
	"fmt"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// Create stores a new credential; see authsigner.KeyStore.
func (s *Source) Create(ctx context.Context, cred *authsigner.Credential) error {
	if err := cred.Validate(); err != nil {
		return fmt.Errorf("creating %s: %w", cred.PublicKey, err)
	}
	err := s.change(ctx, func(d document) error {
		if _, ok := d.Keys[cred.PublicKey]; ok {
			return authsigner.ErrKeyExists
		}
		return d.put(cred.PublicKey, cred.Record())
	})
	if err != nil {
		return fmt.Errorf("creating %s: %w", cred.PublicKey, err)
	}
	return nil
}

// Update replaces the credential by what change makes of it; see authsigner.KeyStore. Nobody else changes the file
// meanwhile, so that change is called once.
func (s *Source) Update(
	ctx context.Context, publicKey string, change func(*authsigner.Credential) (*authsigner.Credential, error),
) (*authsigner.Credential, error) {
	var stored *authsigner.Credential
	var refused error
	err := s.change(ctx, func(d document) error {
		if _, ok := d.Keys[publicKey]; !ok {
			return authsigner.ErrUnknownKey
		}
		fields, err := d.record(publicKey)
		if err != nil {
			return unavailable(err)
		}
		cred, err := authsigner.DecodeCredential(publicKey, fields)
		if err != nil {
			return unavailable(err)
		}
		next, err := change(cred)
		if err != nil {
			refused = err
			return err
		}
		if next.PublicKey != publicKey {
			return errors.New("the public key cannot be changed")
		}
		if stored, err = authsigner.DecodeCredential(publicKey, next.Record()); err != nil {
			return err
		}
		return d.put(publicKey, authsigner.MergeRecord(fields, stored))
	})
	switch {
	case refused != nil:
		return nil, refused
	case err != nil:
		return nil, fmt.Errorf("changing %s: %w", publicKey, err)
	}
	return stored, nil
}

// Delete removes the credential; authsigner.ErrUnknownKey if there is none.
func (s *Source) Delete(ctx context.Context, publicKey string) error {
	err := s.change(ctx, func(d document) error {
		if _, ok := d.Keys[publicKey]; !ok {
			return authsigner.ErrUnknownKey
		}
		delete(d.Keys, publicKey)
		return nil
	})
	if err != nil {
		return fmt.Errorf("deleting %s: %w", publicKey, err)
	}
	return nil
}

// change changes the file as it is now, under the lock, and puts the result to use. Entries that are not concerned stay
// as they are written, malformed ones too; a file that is broken as a whole is left for whoever broke it.
func (s *Source) change(ctx context.Context, change func(document) error) error {
	unlock, err := lock(ctx, s.path)
	if err != nil {
		return unavailable(err)
	}
	defer unlock()
	data, _, err := readFile(s.path)
	if s.o.Create && isMissing(err) {
		data, err = []byte(`{"keys":{}}`), nil
	}
	if err != nil {
		return unavailable(&brokenError{s.path, err})
	}
	d, err := parseDocument(data)
	if err != nil {
		return unavailable(&brokenError{s.path, err})
	}
	if err := change(d); err != nil {
		return err
	}
	if data, err = d.bytes(); err != nil {
		return err
	}
	if err := writeFile(s.path, data); err != nil {
		return unavailable(fmt.Errorf("writing the key file: %w", err))
	}
	_ = s.load(false) // reported; the change is made, and the next look at the file finds it
	return nil
}
