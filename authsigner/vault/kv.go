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
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/vault/api"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// updateAttempts is how often Update starts over when somebody else changed the entry meanwhile.
const updateAttempts = 5

// entry is what is stored for a key.
type entry struct {
	fields  map[string]any // nil: nothing, or deleted
	version int            // KV version 2: of the latest version, 0 if there is none at all
}

// Lookup reads the credential of publicKey. The error wraps authsigner.ErrUnknownKey if Vault says that there is no
// such entry, or that its latest version was deleted or destroyed; authsigner.ErrMalformedCredential, beside
// authsigner.ErrUnavailable, if there is one that is no credential; and authsigner.ErrUnavailable for everything else.
func (s *Source) Lookup(ctx context.Context, publicKey string) (*authsigner.Credential, error) {
	cred, _, err := s.lookup(ctx, publicKey)
	return cred, err
}

func (s *Source) lookup(ctx context.Context, publicKey string) (*authsigner.Credential, entry, error) {
	if !authsigner.ValidPublicKey(publicKey) {
		return nil, entry{}, authsigner.ErrUnknownKey
	}
	var found entry
	err := s.with(ctx, func(current *session) (err error) {
		found, err = s.read(ctx, current, publicKey)
		return err
	})
	if err != nil {
		return nil, entry{}, keylessError{fmt.Errorf("reading a credential: %w", err), publicKey}
	}
	if found.fields == nil {
		return nil, found, fmt.Errorf("reading a credential: %w", authsigner.ErrUnknownKey)
	}
	cred, err := authsigner.DecodeCredential(publicKey, found.fields)
	if err != nil {
		return nil, found, keylessError{fmt.Errorf("reading a credential: %w", unavailable(err)), publicKey}
	}
	return cred, found, nil
}

// List returns every public key that has an entry, sorted. With KV version 2 that includes entries whose latest version
// was deleted by hand; Lookup says ErrUnknownKey of them.
func (s *Source) List(ctx context.Context) ([]string, error) {
	var keys []string
	err := s.with(ctx, func(current *session) error {
		answer, err := s.get(ctx, current, s.path(current, "metadata", ""), url.Values{"list": {"true"}})
		if err != nil {
			return err
		}
		keys = nil
		if answer.missing {
			return nil
		}
		names, _ := answer.Data["keys"].([]any)
		for _, name := range names {
			// A name that ends in a slash is a folder.
			if key, _ := name.(string); authsigner.ValidPublicKey(key) {
				keys = append(keys, key)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing keys: %w", err)
	}
	slices.Sort(keys)
	return keys, nil
}

// Create stores a new credential. authsigner.ErrKeyExists if there is an entry, be it one that was deleted by hand.
func (s *Source) Create(ctx context.Context, cred *authsigner.Credential) error {
	if err := cred.Validate(); err != nil {
		return fmt.Errorf("creating %s: %w", cred.PublicKey, err)
	}
	err := s.with(ctx, func(current *session) error {
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
	if err != nil {
		return fmt.Errorf("creating %s: %w", cred.PublicKey, err)
	}
	return nil
}

// Update replaces the credential by what change makes of it; see authsigner.KeyStore.
func (s *Source) Update(
	ctx context.Context, publicKey string, change func(*authsigner.Credential) (*authsigner.Credential, error),
) (*authsigner.Credential, error) {
	for range updateAttempts {
		cred, found, err := s.lookup(ctx, publicKey)
		if err != nil {
			return nil, err
		}
		next, err := change(cred.Clone())
		if err != nil {
			return nil, err
		}
		if next.PublicKey != publicKey {
			return nil, fmt.Errorf("changing %s: the public key cannot be changed", publicKey)
		}
		// What is stored is what a look-up would find.
		stored, err := authsigner.DecodeCredential(publicKey, next.Record())
		if err != nil {
			return nil, fmt.Errorf("changing %s: %w", publicKey, err)
		}
		record := authsigner.MergeRecord(found.fields, stored)
		err = s.with(ctx, func(current *session) error {
			return s.write(ctx, current, publicKey, record, found.version)
		})
		if err == nil {
			return stored, nil
		}
		if !errors.Is(err, authsigner.ErrConflict) {
			return nil, fmt.Errorf("changing %s: %w", publicKey, err)
		}
	}
	return nil, fmt.Errorf("changing %s: %w", publicKey, authsigner.ErrConflict)
}

// Delete removes the entry, with KV version 2 all its versions and its metadata. authsigner.ErrUnknownKey if there is
// nothing at all.
func (s *Source) Delete(ctx context.Context, publicKey string) error {
	if !authsigner.ValidPublicKey(publicKey) {
		return authsigner.ErrUnknownKey
	}
	err := s.with(ctx, func(current *session) error {
		found, err := s.read(ctx, current, publicKey)
		if err != nil {
			return err
		}
		if found.fields == nil && found.version == 0 {
			return authsigner.ErrUnknownKey
		}
		return s.remove(ctx, current, publicKey)
	})
	if err != nil {
		return fmt.Errorf("deleting %s: %w", publicKey, err)
	}
	return nil
}

// path joins mount, the part of KV version 2's API, and the entry's name, none for the folder.
func (s *Source) path(current *session, part, publicKey string) string {
	var b strings.Builder
	b.WriteString(s.o.Mount)
	if current.version == 2 {
		b.WriteString("/" + part)
	}
	b.WriteString("/" + s.o.Path)
	if publicKey != "" {
		b.WriteString("/" + publicKey)
	}
	return b.String()
}

// with runs a request with the current session, and once more with a new one if Vault refused it: the token may have
// been revoked, or its role may have got other policies. Errors come back as the package documents them.
func (s *Source) with(ctx context.Context, request func(*session) error) error {
	current, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	err = request(current)
	if statusOf(err) == http.StatusForbidden {
		if next := s.replace(ctx, current, readable(err)); next != nil {
			err = request(next)
		}
	}
	switch {
	case err == nil, errors.Is(err, authsigner.ErrUnknownKey), errors.Is(err, authsigner.ErrKeyExists),
		errors.Is(err, authsigner.ErrConflict):
		s.last.Store(&outcome{at: time.Now()})
		return err
	}
	err = unavailable(readable(err))
	if !errors.Is(context.Cause(ctx), context.Canceled) { // whoever asked has gone: that says nothing of Vault
		s.last.Store(&outcome{at: time.Now(), err: err})
	}
	return err
}

// read reads an entry. One that does not exist is no error.
func (s *Source) read(ctx context.Context, current *session, publicKey string) (entry, error) {
	answer, err := s.get(ctx, current, s.path(current, "data", publicKey), nil)
	if err != nil {
		return entry{}, err
	}
	found := entry{fields: answer.Data}
	if current.version == 2 {
		found.fields, _ = answer.Data["data"].(map[string]any)
		if found.version, err = versionOf(answer); err != nil {
			return entry{}, err
		}
	}
	switch {
	case answer.missing:
		found.fields = nil
	case found.fields == nil:
		return entry{}, errors.New("the answer is not one of the KV engine's")
	}
	return found, nil
}

// versionOf returns the version that KV version 2 says an entry has, and 0 where it says nothing.
func versionOf(a answer) (int, error) {
	metadata, ok := a.Data["metadata"].(map[string]any)
	if !ok && a.missing {
		return 0, nil
	}
	number, _ := metadata["version"].(json.Number)
	version, err := strconv.Atoi(number.String())
	if err != nil || version <= 0 {
		return 0, errors.New("the answer does not tell the entry's version")
	}
	return version, nil
}

// write stores an entry, with KV version 2 only if its latest version is still that; ErrConflict otherwise. If the reply is
// lost, it writes the same again, which with KV version 2 stores it once: the second write finds the first one's version.
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
	// A bad request is what Vault says if another version is there. Is it, and is it ours?
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

// remove deletes an entry. If the reply is lost, it deletes the entry again.
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

// sameRecord compares what was read with what was written. JSON knows fewer types than Go.
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

// answer is what Vault answered to a GET.
type answer struct {
	Data     map[string]any `json:"data"`
	Errors   *[]string      `json:"errors"`
	Warnings []string       `json:"warnings"`

	missing bool // 404, and truly so
}

// get reads from Vault. A 404 is taken for "there is no such thing" only if Vault itself said so of the entry: not if it
// says that nothing is mounted there or that the path is not one of the engine's, and not if it came from whatever else
// may be answering in Vault's place.
func (s *Source) get(ctx context.Context, current *session, path string, query url.Values) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	response, err := current.client.Logical().ReadRawWithDataWithContext(ctx, path, query)
	if response != nil {
		defer response.Body.Close()
	}
	if err != nil && statusOf(err) != http.StatusNotFound {
		return answer{}, err
	}
	parsed, parseErr := parse(response)
	if err == nil {
		return parsed, parseErr
	}
	if parseErr != nil || !parsed.saysMissing() {
		return answer{}, err
	}
	parsed.missing = true
	return parsed, nil
}

func parse(response *api.Response) (answer, error) {
	var a answer
	if err := response.DecodeJSON(&a); err != nil {
		if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return a, errors.New("the answer is not JSON of Vault's") // the cause would quote it
		}
		return a, err
	}
	return a, nil
}

// saysMissing tells a 404 about the entry from any other: KV answers {"errors":[]} where there has never been one, and
// the metadata of the latest version where that has been deleted or destroyed.
func (a answer) saysMissing() bool {
	if len(a.Warnings) > 0 {
		return false
	}
	if metadata, ok := a.Data["metadata"].(map[string]any); ok {
		deleted, _ := metadata["deletion_time"].(string)
		return a.Data["data"] == nil && (deleted != "" || metadata["destroyed"] == true)
	}
	return a.Data == nil && a.Errors != nil && len(*a.Errors) == 0
}
