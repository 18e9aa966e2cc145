package vault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/vault/api"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// errOtherVersion means that the path is not one of the KV engine's, or has another meaning. A login reads its version again.
var errOtherVersion = errors.New("the KV engine may have another version")

// updateAttempts is the number of attempts of Update after concurrent changes.
const updateAttempts = 5

// entry is the stored secret of a key.
type entry struct {
	fields  map[string]any // nil if it does not exist or was deleted
	version int            // KV version 2: number of the latest version, 0 if there is none
}

// Lookup implements authsigner.CredentialSource. The error wraps authsigner.ErrUnknownKey if the entry does not exist, or if its
// latest version was deleted or destroyed; authsigner.ErrMalformedCredential and authsigner.ErrUnavailable if the entry is
// malformed; and authsigner.ErrUnavailable in all other cases.
func (s *Source) Lookup(ctx context.Context, publicKey string) (*authsigner.Credential, error) {
	found, err := s.find(ctx, publicKey)
	if err != nil {
		return nil, err
	}
	cred, err := authsigner.DecodeCredential(publicKey, found.fields)
	if err != nil {
		return nil, keylessError{unavailable(err), publicKey}
	}
	return cred, nil
}

// find returns an existing entry. Its errors are those of Lookup.
func (s *Source) find(ctx context.Context, publicKey string) (entry, error) {
	if !authsigner.ValidPublicKey(publicKey) {
		return entry{}, authsigner.ErrUnknownKey
	}
	var found entry
	err := s.with(ctx, func(current *session) (err error) {
		found, err = s.read(ctx, current, publicKey)
		if statusOf(err) == http.StatusForbidden && s.readsOthers(ctx, current, publicKey) {
			return fmt.Errorf("%w: %s", authsigner.ErrDenied, readable(err).Error()) // not wrapped: a new login would not help
		}
		return err
	})
	switch {
	case err != nil:
		return entry{}, keylessError{err, publicKey}
	case found.fields == nil:
		return entry{}, authsigner.ErrUnknownKey
	}
	s.found.Store(&publicKey)
	return found, nil
}

// readsOthers reports whether a session may read another entry than that of publicKey: of the key that was found last, or else of one
// that need not exist. Then a 403 is due to the policy and about the key, which a caller may have invented.
func (s *Source) readsOthers(ctx context.Context, current *session, publicKey string) bool {
	other := probedKey
	if found := s.found.Load(); found != nil && *found != publicKey {
		other = *found
	}
	if other == publicKey {
		return false
	}
	_, err := s.read(ctx, current, other)
	return err == nil
}

// List implements authsigner.KeyStore. With KV version 2, it includes entries whose latest version was deleted by hand, for which
// Lookup returns ErrUnknownKey.
func (s *Source) List(ctx context.Context) ([]string, error) {
	var keys []string
	err := s.with(ctx, func(current *session) error {
		res, err := s.get(ctx, current, s.path(current, "metadata", ""), url.Values{"list": {"true"}})
		if err != nil {
			return err
		}
		keys = nil
		if res.missing {
			return nil
		}
		names, _ := res.Data["keys"].([]any)
		for _, name := range names {
			// names of folders end in a slash and are not valid keys
			if key, _ := name.(string); authsigner.ValidPublicKey(key) {
				keys = append(keys, key)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(keys)
	return keys, nil
}

// Create implements authsigner.KeyStore. ErrKeyExists includes entries that were deleted by hand.
func (s *Source) Create(ctx context.Context, cred *authsigner.Credential) error {
	if err := cred.Validate(); err != nil {
		return err
	}
	return s.with(ctx, func(current *session) error {
		if current.version == 1 {
			found, err := s.read(ctx, current, cred.PublicKey)
			if err != nil {
				return err
			}
			if found.fields != nil {
				return authsigner.ErrKeyExists
			}
		}
		err := s.write(ctx, current, cred.PublicKey, cred.Record(), 0)
		if errors.Is(err, authsigner.ErrConflict) {
			return authsigner.ErrKeyExists
		}
		return err
	})
}

// Update implements authsigner.KeyStore.
func (s *Source) Update(
	ctx context.Context, publicKey string, change func(*authsigner.Credential) error,
) (*authsigner.Credential, error) {
	for range updateAttempts {
		found, err := s.find(ctx, publicKey)
		if err != nil {
			return nil, err
		}
		stored, record, err := authsigner.UpdateRecord(publicKey, found.fields, change)
		if err != nil {
			return nil, err
		}
		err = s.with(ctx, func(current *session) error {
			return s.write(ctx, current, publicKey, record, found.version)
		})
		if err == nil {
			return stored, nil
		}
		if !errors.Is(err, authsigner.ErrConflict) {
			return nil, err
		}
	}
	return nil, authsigner.ErrConflict
}

// Delete implements authsigner.KeyStore. With KV version 2, it removes all versions and the metadata.
func (s *Source) Delete(ctx context.Context, publicKey string) error {
	if !authsigner.ValidPublicKey(publicKey) {
		return authsigner.ErrUnknownKey
	}
	return s.with(ctx, func(current *session) error {
		found, err := s.read(ctx, current, publicKey)
		if err != nil {
			return err
		}
		if found.fields == nil && found.version == 0 {
			return authsigner.ErrUnknownKey
		}
		return s.remove(ctx, current, publicKey)
	})
}

// path returns the API path of a key, or of the folder if publicKey is empty. part is "data" or "metadata", used by KV version 2.
func (s *Source) path(current *session, part, publicKey string) string {
	if current.version == 1 {
		part = ""
	}
	return path.Join(s.o.Mount, part, s.o.Path, publicKey)
}

// with runs a request with the current session. If Vault responds with 403, it retries once with a new session, because the token
// may have been revoked or the role's policies may have changed; likewise if the KV engine may have got another version. ErrDenied is not a
// failure of Vault.
func (s *Source) with(ctx context.Context, request func(*session) error) error {
	current, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	err = request(current)
	if statusOf(err) == http.StatusForbidden || errors.Is(err, errOtherVersion) {
		if next := s.replace(ctx, current, readable(err)); next != nil {
			err = request(next)
		}
	}
	switch {
	case err == nil, errors.Is(err, authsigner.ErrUnknownKey), errors.Is(err, authsigner.ErrKeyExists),
		errors.Is(err, authsigner.ErrConflict), errors.Is(err, authsigner.ErrDenied):
		s.failed.Store(nil)
		return err
	}
	err = unavailable(readable(err))
	if !errors.Is(context.Cause(ctx), context.Canceled) { // a canceled request is not a failure of Vault
		s.failed.Store(&err)
	}
	return err
}

// read reads an entry. A missing entry is not an error.
func (s *Source) read(ctx context.Context, current *session, publicKey string) (entry, error) {
	res, err := s.get(ctx, current, s.path(current, "data", publicKey), nil)
	if err != nil {
		return entry{}, err
	}
	found := entry{fields: res.Data}
	if current.version == 2 {
		found.fields, _ = res.Data["data"].(map[string]any)
		if found.version, err = versionOf(res); err != nil {
			return entry{}, err
		}
	}
	switch {
	case res.missing:
		found.fields = nil
		if current.version == 2 && found.version == 0 {
			err = s.checkVersion(ctx, current)
		}
	case found.fields == nil:
		return entry{}, errors.New("the response is not from a KV engine")
	}
	return found, err
}

// checkVersion returns an error if the KV engine no longer has the session's version 2: version 1 responds to its paths as if no entry had
// ever existed. While the version is right, it asks Vault once a second, and for each lookup that is in progress then: none may return
// "unknown" before.
func (s *Source) checkVersion(ctx context.Context, current *session) error {
	if last := current.checked.Load(); last != nil && time.Since(*last) < time.Second {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	began := time.Now()
	version, err := engineVersion(ctx, current.client, s.o.Mount, 0)
	switch {
	case err == nil && version != current.version:
		return errOtherVersion
	case err != nil && statusOf(err) != http.StatusForbidden:
		return err
	}
	current.checked.Store(&began)
	return nil
}

// versionOf returns the version of an entry in KV version 2, or 0 if the entry has never existed.
func versionOf(a response) (int, error) {
	metadata, ok := a.Data["metadata"].(map[string]any)
	if !ok && a.missing {
		return 0, nil
	}
	number, _ := metadata["version"].(json.Number)
	version, err := strconv.Atoi(number.String())
	if err != nil || version <= 0 {
		return 0, errors.New("the response has no version of the entry")
	}
	return version, nil
}

// write stores an entry. With KV version 2, it returns ErrConflict unless version is the latest version. If the response is lost, it
// writes again; with KV version 2, the entry is stored only once, because the second write conflicts with the first.
func (s *Source) write(
	ctx context.Context, current *session, publicKey string, record map[string]any, version int,
) error {
	path, body := s.path(current, "data", publicKey), record
	if current.version == 2 {
		body = map[string]any{"options": map[string]any{"cas": version}, "data": record}
	}
	err := s.put(ctx, current, path, body)
	lost := replyLost(err)
	if lost {
		err = s.put(ctx, current, path, body)
	}
	if err == nil || !lost && (statusOf(err) != http.StatusBadRequest || current.version == 1) {
		return err
	}
	// Vault responds with 400 to a version conflict. Check whether there is one, and whether our first write caused it.
	now, readErr := s.read(ctx, current, publicKey)
	switch {
	case readErr == nil && lost && sameRecord(now.fields, record):
		return nil
	case readErr == nil && now.version != version:
		return authsigner.ErrConflict
	case lost:
		return fmt.Errorf("%w: %w", authsigner.ErrOutcomeUnknown, err)
	}
	return err
}

// remove deletes an entry. If the response is lost, it tries again.
func (s *Source) remove(ctx context.Context, current *session, publicKey string) error {
	path := s.path(current, "metadata", publicKey)
	err := s.delete(ctx, current, path)
	if !replyLost(err) {
		return err
	}
	if err = s.delete(ctx, current, path); err != nil {
		return fmt.Errorf("%w: %w", authsigner.ErrOutcomeUnknown, err)
	}
	return nil
}

// sameRecord compares the JSON encodings, because the Go types of read and written values may differ.
func sameRecord(read, written map[string]any) bool {
	a, errA := json.Marshal(read)
	b, errB := json.Marshal(written)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

func (s *Source) put(ctx context.Context, current *session, path string, body map[string]any) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	_, err := current.client.Logical().WriteWithContext(ctx, path, body)
	return err
}

func (s *Source) delete(ctx context.Context, current *session, path string) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	_, err := current.client.Logical().DeleteWithContext(ctx, path)
	return err
}

// response is a response of Vault to a GET.
type response struct {
	Data     map[string]any `json:"data"`
	Errors   *[]string      `json:"errors"`
	Warnings []string       `json:"warnings"`

	missing bool // the entry does not exist
}

// get reads from Vault. It sets missing only for a 404 by which the KV engine reports that the entry does not exist. A 404 because of
// a wrong mount or path, or from another server, is an error.
func (s *Source) get(ctx context.Context, current *session, path string, query url.Values) (response, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	raw, err := current.client.Logical().ReadRawWithDataWithContext(ctx, path, query)
	if raw != nil {
		defer raw.Body.Close()
	}
	if err != nil && statusOf(err) != http.StatusNotFound {
		return response{}, err
	}
	parsed, parseErr := parse(raw)
	if err == nil {
		return parsed, parseErr
	}
	if parseErr == nil && len(parsed.Warnings) > 0 {
		return response{}, fmt.Errorf("%w: %w", errOtherVersion, err)
	}
	if parseErr != nil || !parsed.saysMissing() {
		return response{}, err
	}
	parsed.missing = true
	return parsed, nil
}

func parse(raw *api.Response) (response, error) {
	var a response
	if err := raw.DecodeJSON(&a); err != nil {
		if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return a, errors.New("the response is not JSON from Vault") // err would quote it
		}
		return a, err
	}
	return a, nil
}

// saysMissing reports whether a 404 is about the entry. The KV engine responds with {"errors":[]} if it has never existed, and with
// the metadata of the latest version if that was deleted or destroyed.
func (a response) saysMissing() bool {
	if len(a.Warnings) > 0 {
		return false
	}
	if metadata, ok := a.Data["metadata"].(map[string]any); ok {
		deleted, _ := metadata["deletion_time"].(string)
		return a.Data["data"] == nil && (deleted != "" || metadata["destroyed"] == true)
	}
	return a.Data == nil && a.Errors != nil && len(*a.Errors) == 0
}
