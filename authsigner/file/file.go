// Package file is a credential source in a local JSON file, for development and small installations.
//
//	source, err := file.Open("keys.json", file.Options{})
//
// The file has an entry for each public key, with the fields of [authsigner.DecodeCredential]:
//
//	{
//	  "keys": {
//	    "pk_live_…": {
//	      "private_key": "sk_live_…",
//	      "business_id": "biz_1",
//	      "business_name": "Zoë's Bakery",
//	      "business_slug": "zoes-bakery",
//	      "status": "active"
//	    }
//	  }
//	}
//
// It must not be accessible to others or writable by its group: 0600, or 0640 to let a group read it.
//
// Changes are noticed within a second, whether the file is replaced or written in place. If the file becomes invalid, the last
// valid set of keys stays in use. A malformed entry affects only its own key. Both are reported to [Options.OnEvent].
package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// pollInterval is the interval of checks for changes.
const pollInterval = time.Second

// Options configure a [Source]. The zero value has all defaults.
type Options struct {
	// Create creates an empty file with mode 0600 if the file does not exist. Default: a missing file is an error.
	Create bool

	// OnEvent, if set, is called for each event, one call at a time.
	OnEvent func(Event)
}

// EventKind is the kind of an [Event]: one of a fixed set, suitable as a metric label.
type EventKind string

// The kinds of events.
const (
	EventReloaded  EventKind = "file_reloaded"        // a changed file was loaded
	EventInvalid   EventKind = "file_unreadable"      // the file is invalid; the last valid set of keys stays in use
	EventMalformed EventKind = "file_malformed_entry" // an entry is malformed; its key cannot be used
)

// Event is an event of a [Source].
type Event struct {
	Kind EventKind
	Err  error // for EventInvalid and EventMalformed; contains line numbers, keys and field names, but no values
}

// Source is an authsigner.KeyStore in a file. It is safe for concurrent use, also by several processes.
type Source struct {
	path     string
	o        Options
	onChange atomic.Pointer[func([]string)]

	current atomic.Pointer[set]
	invalid atomic.Pointer[fileError] // why the file's current content is not in use; nil if it is

	mu      sync.Mutex // held while the file is loaded and events are reported
	seen    identity   // of the file when it was last read
	stable  bool       // seen.stable at that time
	pending string     // an error that is not reported yet

	cancel context.CancelFunc
	done   chan struct{}
}

var _ authsigner.KeyStore = (*Source)(nil)

// Open loads the file and watches it for changes, once a second. It returns an error if the file is missing, is invalid or has
// unsafe permissions, but not for malformed entries.
func Open(path string, o Options) (*Source, error) { return open(path, o, pollInterval) }

func open(path string, o Options, interval time.Duration) (*Source, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("opening the credential file: %w", err)
	}
	s := &Source{path: absolute, o: o, done: make(chan struct{})}
	s.current.Store(&set{})
	if o.Create {
		if err := createFile(absolute); err != nil {
			return nil, fmt.Errorf("creating the credential file: %w", err)
		}
	}
	if err := s.load(true); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go s.watch(ctx, interval)
	return s, nil
}

// OnChange sets the function that is called with the sorted keys that were added, changed or removed, one call at a time, for
// example to invalidate a cache. f may look up keys but must not change any. It replaces the previous function; nil removes it.
func (s *Source) OnChange(f func(publicKeys []string)) {
	if f == nil {
		s.onChange.Store(nil)
		return
	}
	s.onChange.Store(&f)
}

// Close stops watching the file. Loaded keys can still be looked up.
func (s *Source) Close() error {
	s.cancel()
	<-s.done
	return nil
}

// Ready returns an error if the file is invalid. It does not wrap authsigner.ErrUnavailable: lookups use the last valid set of keys.
func (s *Source) Ready() error {
	if err := s.invalid.Load(); err != nil {
		return err
	}
	return nil
}

// Lookup implements authsigner.CredentialSource. For a malformed entry, the error wraps both authsigner.ErrMalformedCredential and
// authsigner.ErrUnavailable.
func (s *Source) Lookup(_ context.Context, publicKey string) (*authsigner.Credential, error) {
	current := s.current.Load()
	if cred := current.creds[publicKey]; cred != nil {
		return cred, nil
	}
	if err := current.malformed[publicKey]; err != nil {
		return nil, unavailable(err)
	}
	return nil, authsigner.ErrUnknownKey
}

// List implements authsigner.KeyStore. It includes malformed entries.
func (s *Source) List(context.Context) ([]string, error) {
	current := s.current.Load()
	keys := slices.Collect(maps.Keys(current.creds))
	for key := range current.malformed {
		if authsigner.ValidPublicKey(key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys, nil
}

// watch polls the file, which notices all changes on all file systems.
func (s *Source) watch(ctx context.Context, interval time.Duration) {
	defer close(s.done)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_ = s.load(false) // load reports the error
		}
	}
}

// load reads the file if it may have changed, and uses its keys. It reports an error once, and only if two attempts in a row find
// the same error, because a process may be writing the file in place. On the first load, errors are only returned.
func (s *Source) load(first bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if info, err := os.Stat(s.path); err == nil && s.stable && identityOf(info) == s.seen {
		return nil
	}
	data, now, err := readFile(s.path)
	s.seen, s.stable = now, now.stable(time.Now())
	var next *set
	if err == nil {
		next, err = parseSet(data)
	}
	if err == nil {
		s.use(next, first)
		return nil
	}
	failed := &fileError{s.path, err}
	if first {
		return failed
	}
	if known := s.invalid.Load(); known != nil && known.Error() == failed.Error() {
		return failed
	}
	if s.pending != failed.Error() {
		s.pending, s.stable = failed.Error(), false
		return failed
	}
	s.invalid.Store(failed)
	s.event(Event{Kind: EventInvalid, Err: failed})
	return failed
}

// use replaces the current set and reports the changes.
func (s *Source) use(next *set, first bool) {
	last := s.current.Load()
	fixed := s.invalid.Swap(nil) != nil
	s.pending = ""
	if !first && !fixed && next.hash == last.hash {
		return
	}
	changed := next.reuse(last)
	s.current.Store(next)
	if !first {
		s.event(Event{Kind: EventReloaded})
	}
	for _, key := range slices.Sorted(maps.Keys(next.malformed)) {
		err := next.malformed[key]
		if old := last.malformed[key]; old == nil || old.Error() != err.Error() {
			s.event(Event{Kind: EventMalformed, Err: &fileError{s.path, err}})
		}
	}
	if f := s.onChange.Load(); f != nil && !first && len(changed) > 0 {
		(*f)(changed)
	}
}

func (s *Source) event(e Event) {
	if s.o.OnEvent != nil {
		s.o.OnEvent(e)
	}
}

// fileError adds the path to an error.
type fileError struct {
	path string
	err  error
}

func (e *fileError) Error() string { return "reading credential file " + e.path + ": " + e.err.Error() }
func (e *fileError) Unwrap() error { return e.err }

func unavailable(err error) error {
	if errors.Is(err, authsigner.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", authsigner.ErrUnavailable, err)
}

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
