package file

import (
	"context"
	"fmt"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// Create implements authsigner.KeyStore.
func (s *Source) Create(ctx context.Context, cred *authsigner.Credential) error {
	if err := cred.Validate(); err != nil {
		return err
	}
	return s.change(ctx, func(d document) error {
		if _, ok := d.Keys[cred.PublicKey]; ok {
			return authsigner.ErrKeyExists
		}
		return d.put(cred.PublicKey, cred.Record())
	})
}

// Update implements authsigner.KeyStore. It locks the file, so change is called only once.
func (s *Source) Update(
	ctx context.Context, publicKey string, change func(*authsigner.Credential) error,
) (stored *authsigner.Credential, err error) {
	err = s.change(ctx, func(d document) error {
		if _, ok := d.Keys[publicKey]; !ok {
			return authsigner.ErrUnknownKey
		}
		fields, err := d.record(publicKey)
		if err != nil {
			return unavailable(err)
		}
		if stored, fields, err = authsigner.UpdateRecord(publicKey, fields, change); err != nil {
			return err
		}
		return d.put(publicKey, fields)
	})
	if err != nil {
		return nil, err
	}
	return stored, nil
}

// Delete implements authsigner.KeyStore.
func (s *Source) Delete(ctx context.Context, publicKey string) error {
	return s.change(ctx, func(d document) error {
		if _, ok := d.Keys[publicKey]; !ok {
			return authsigner.ErrUnknownKey
		}
		delete(d.Keys, publicKey)
		return nil
	})
}

// change locks the file, applies change to its current content, and loads the result. It preserves all other entries, including
// malformed ones. It fails if the file is invalid.
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
		return unavailable(&fileError{s.path, err})
	}
	d, err := parseDocument(data)
	if err != nil {
		return unavailable(&fileError{s.path, err})
	}
	if err := change(d); err != nil {
		return err
	}
	if data, err = d.bytes(); err != nil {
		return err
	}
	if err := writeFile(s.path, data); err != nil {
		return unavailable(fmt.Errorf("writing the credential file: %w", err))
	}
	_ = s.load(false) // after an error, watch tries again
	return nil
}
