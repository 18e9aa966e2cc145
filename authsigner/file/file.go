// Package file keeps the credentials of the calling businesses in one local JSON file, for development and small
// installations:
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
// The fields are those of authsigner.DecodeCredential. Changes to the file are found within a second, whether it is
// replaced or written in place. A file that is broken as a whole leaves the last good set of keys in force; one
// malformed entry just takes its own key out of service. Both are reported.
//
// Because the file holds secrets, one that everybody on the machine may read or write is refused, as ssh refuses a key,
// and so is one that the group may write.
package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// DefaultPollInterval is how often the file is looked at.
const DefaultPollInterval = time.Second

// ErrPermissions says that too many may read or change the file. It is not used then.
var ErrPermissions = errors.New("too many may read or change the file: use chmod 600, or 640 for a group that may read it")

// Options configure a [Source]. The zero value is every default.
type Options struct {
	// PollInterval is how often the file is looked at for changes. Default 1 s.
	PollInterval time.Duration

	// Create makes an empty file, for its owner alone, if there is none. By default a missing file is an error.
	Create bool

	// OnEvent, if set, is told of what an operator may want to know, one call at a time.
	OnEvent func(Event)
}

// EventKind says what an [Event] is about; a bounded set, good as a metric's label.
type EventKind string

// What a source reports.
const (
	Reloaded  EventKind = "file_reloaded"        // a changed file is in use
	Broken    EventKind = "file_unreadable"      // the file cannot be used as it is now; the last good set stays in force
	Malformed EventKind = "file_malformed_entry" // an entry is no credential, and its key out of service
)

// Event is one thing that happened.
type Event struct {
	Kind EventKind
	Err  error // of Broken and Malformed; names lines, keys and fields, and never values
}

// Source is an authsigner.KeyStore over one file. It is safe for concurrent use, and so is the file: several processes
// may change keys at the same time.
type Source struct {
	path     string
	o        Options
	onChange atomic.Pointer[func([]string)]

	current atomic.Pointer[set]
	broken  atomic.Pointer[brokenError] // nil: what is in the file is in use

	mu      sync.Mutex // held while the file is loaded, and what came of it told
	seen    identity   // of the file when it was last read
	settled bool       // and a later change would show in it
	pending string     // what was wrong at the last look, if it is not reported yet

	cancel context.CancelFunc
	done   chan struct{}
}

var _ authsigner.KeyStore = (*Source)(nil)

// Open reads the file and begins to watch it. A file that is missing, broken as a whole, or open to too many is an
// error; a malformed entry is not.
func Open(path string, o Options) (*Source, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("opening the key file: %w", err)
	}
	if o.PollInterval <= 0 {
		o.PollInterval = DefaultPollInterval
	}
	s := &Source{path: absolute, o: o, done: make(chan struct{})}
	s.current.Store(&set{})
	if o.Create {
		if err := createFile(absolute); err != nil {
			return nil, fmt.Errorf("creating the key file: %w", err)
		}
	}
	if err := s.load(true); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	go s.watch(ctx)
	return s, nil
}

// OnChange sets the function that is told which keys were added, changed or removed, sorted, one call at a time; a
// cache in front invalidates them. It may look keys up and must not change any. There is one such function; nil takes
// it away.
func (s *Source) OnChange(f func(publicKeys []string)) {
	if f == nil {
		s.onChange.Store(nil)
		return
	}
	s.onChange.Store(&f)
}

// Close ends the watching. Keys that were loaded can still be looked up.
func (s *Source) Close() error {
	s.cancel()
	<-s.done
	return nil
}

// Ready says what is wrong with the file, if it cannot be used as it is now, and wraps authsigner.ErrUnavailable.
// Look-ups go on with the last good set all the same.
func (s *Source) Ready() error {
	if broken := s.broken.Load(); broken != nil {
		return unavailable(broken)
	}
	return nil
}

// Lookup returns the credential of publicKey; authsigner.ErrUnknownKey if there is no such entry, and
// authsigner.ErrMalformedCredential, beside authsigner.ErrUnavailable, if there is one that is no credential.
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

// List returns every public key that has an entry, sorted, malformed ones included.
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

// watch looks at the file from time to time: that sees every way of changing it, on every file system.
func (s *Source) watch(ctx context.Context) {
	defer close(s.done)
	ticker := time.NewTicker(s.o.PollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_ = s.load(false) // reported
		}
	}
}

// load reads the file if it may have changed, and puts its keys to use. What is wrong is reported once, and only if it
// was the same at two looks: whoever writes the file in place may not be done yet. The first time it is an error.
func (s *Source) load(first bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, err := identify(s.path); err == nil && s.settled && now == s.seen {
		return nil
	}
	data, now, err := readFile(s.path)
	s.seen, s.settled = now, now.settled(time.Now())
	var next *set
	if err == nil {
		next, err = parseSet(data)
	}
	if err == nil {
		s.use(next, first)
		return nil
	}
	broken := &brokenError{s.path, err}
	if first {
		return broken
	}
	if known := s.broken.Load(); known != nil && known.Error() == broken.Error() {
		return broken
	}
	if s.pending != broken.Error() {
		s.pending, s.settled = broken.Error(), false
		return broken
	}
	s.broken.Store(broken)
	s.event(Event{Kind: Broken, Err: broken})
	return broken
}

// use puts a set to use and tells what has changed.
func (s *Source) use(next *set, first bool) {
	last := s.current.Load()
	mended := s.broken.Swap(nil) != nil
	s.pending = ""
	if !first && !mended && next.hash == last.hash {
		return
	}
	changed := next.differences(last)
	next.keep(last)
	s.current.Store(next)
	if !first {
		s.event(Event{Kind: Reloaded})
	}
	for _, key := range slices.Sorted(maps.Keys(next.malformed)) {
		err := next.malformed[key]
		if old := last.malformed[key]; old == nil || old.Error() != err.Error() {
			s.event(Event{Kind: Malformed, Err: &brokenError{s.path, err}})
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

// brokenError says which file something is wrong with.
type brokenError struct {
	path string
	err  error
}

func (e *brokenError) Error() string { return "the key file " + e.path + ": " + e.err.Error() }
func (e *brokenError) Unwrap() error { return e.err }

func unavailable(err error) error {
	if errors.Is(err, authsigner.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", authsigner.ErrUnavailable, err)
}

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
