// Package file keeps credentials in one local JSON file, for development and small installs:
//
//	{"keys": {"pk_live_…": {"private_key": "…", "business_id": "…", …}}}
//
// The records are those of authsigner.DecodeCredential. A change to the file is noticed by looking at it once a second,
// whether it was written in place or replaced; what cannot be read leaves the last good state in force.
package file

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// Defaults and bounds.
const (
	DefaultPollInterval = time.Second
	maxFileBytes        = 64 << 20
)

// ErrPermissions says that others than the owner and the group can read or write the file. As with an SSH key, it is
// not used then.
var ErrPermissions = errors.New("the credential file can be read or written by everybody: chmod o-rwx")

// Options configure a Source. The zero value is every default.
type Options struct {
	// PollInterval is how often the file is looked at. Default 1 s.
	PollInterval time.Duration

	// Create makes an empty file if there is none. Default: a missing file is an error.
	Create bool

	// OnEvent, if set, is told of what an operator may want to know. It is called from the watching goroutine.
	OnEvent func(Event)
}

// EventKind says what an Event is about.
type EventKind string

// What a Source reports.
const (
	Reloaded EventKind = "file_reloaded"   // a changed file was read
	Broken   EventKind = "file_unreadable" // a changed file cannot be used; the last good state stays in force
)

// Event is one thing that happened.
type Event struct {
	Kind EventKind
	Err  error // of Broken; names fields and never values
}

// Source is an authsigner.KeyStore over one file. It is safe for concurrent use; several processes may change the file
// through it, one at a time.
type Source struct {
	path    string
	options Options
	state   atomic.Pointer[state]
	broken  atomic.Pointer[error]
	changed atomic.Pointer[func([]string)]
	stop    chan struct{}
	done    chan struct{}
	once    sync.Once
}

// state is the file as it was last read. It is never changed.
type state struct {
	stamp   stamp
	records map[string]json.RawMessage
	creds   map[string]*authsigner.Credential
	bad     map[string]error
}

// stamp tells two states of a file apart.
type stamp struct {
	modified time.Time
	size     int64
	inode    uint64
}

// Open reads the file and begins to watch it. A file that is missing, is no JSON of the documented form, or can be read
// by everybody is an error; a single entry that is malformed is not: its key just does not verify. Close it when it is
// no longer needed.
func Open(path string, o Options) (*Source, error) {
	if o.PollInterval <= 0 {
		o.PollInterval = DefaultPollInterval
	}
	s := &Source{path: path, options: o, stop: make(chan struct{}), done: make(chan struct{})}
	if o.Create {
		if err := s.createEmpty(); err != nil {
			return nil, err
		}
	}
	first, err := read(path)
	if err != nil {
		return nil, err
	}
	s.state.Store(first)
	go s.watch()
	return s, nil
}

func (s *Source) createEmpty() error {
	f, err := os.OpenFile(s.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("creating the credential file: %w", err)
	}
	_, err = f.WriteString("{\"keys\": {}}\n")
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("creating the credential file: %w", err)
	}
	return nil
}

// Lookup returns the credential of publicKey: authsigner.ErrUnknownKey if the file has no such entry, and
// authsigner.ErrMalformedCredential if it has one that is no credential.
func (s *Source) Lookup(_ context.Context, publicKey string) (*authsigner.Credential, error) {
	st := s.state.Load()
	if c, ok := st.creds[publicKey]; ok {
		return c, nil
	}
	if err, ok := st.bad[publicKey]; ok {
		return nil, err
	}
	return nil, authsigner.ErrUnknownKey
}

// List returns all public keys, sorted, those with malformed entries included.
func (s *Source) List(context.Context) ([]string, error) {
	st, err := read(s.path)
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(st.records)), nil
}

// Ready says why the file as it stands cannot be used, or nil. The last good state is in force meanwhile.
func (s *Source) Ready() error {
	if err := s.broken.Load(); err != nil {
		return *err
	}
	return nil
}

// OnChange sets the function that is told which keys were added, changed or removed. There is one at a time; nil takes
// it away.
func (s *Source) OnChange(f func(publicKeys []string)) {
	if f == nil {
		s.changed.Store(nil)
		return
	}
	s.changed.Store(&f)
}

// Close ends the watching. Look-ups go on working with the last state.
func (s *Source) Close() error {
	s.once.Do(func() { close(s.stop) })
	<-s.done
	return nil
}

// Create implements authsigner.KeyStore.
func (s *Source) Create(_ context.Context, c *authsigner.Credential) error {
	if err := c.Validate(); err != nil {
		return err
	}
	return s.write(func(st *state) error {
		if _, ok := st.records[c.PublicKey]; ok {
			return authsigner.ErrKeyExists
		}
		return st.put(c)
	})
}

// Update implements authsigner.KeyStore. Another process waits, so that there is no conflict.
func (s *Source) Update(_ context.Context, publicKey string,
	change func(*authsigner.Credential) (*authsigner.Credential, error),
) (*authsigner.Credential, error) {
	var next *authsigner.Credential
	err := s.write(func(st *state) error {
		if err, ok := st.bad[publicKey]; ok {
			return err
		}
		c, ok := st.creds[publicKey]
		if !ok {
			return authsigner.ErrUnknownKey
		}
		var err error
		if next, err = change(c.Clone()); err != nil {
			return err
		}
		if next.PublicKey != publicKey {
			return errors.New("an update must not change the public key")
		}
		if err := next.Validate(); err != nil {
			return err
		}
		return st.put(next)
	})
	if err != nil {
		return nil, err
	}
	return next, nil
}

// Delete implements authsigner.KeyStore.
func (s *Source) Delete(_ context.Context, publicKey string) error {
	return s.write(func(st *state) error {
		if _, ok := st.records[publicKey]; !ok {
			return authsigner.ErrUnknownKey
		}
		delete(st.records, publicKey)
		return nil
	})
}

// put replaces a record. The records of other keys stay as they were written, unknown fields included.
func (st *state) put(c *authsigner.Credential) error {
	raw, err := json.Marshal(c.Record())
	if err != nil {
		return fmt.Errorf("encoding the credential: %w", err)
	}
	st.records[c.PublicKey] = raw
	return nil
}

// write changes the file under a lock that processes share: it is read anew, changed, and replaced in one step, so that
// a reader sees the old or the new, and a crash leaves one of them.
func (s *Source) write(change func(*state) error) (err error) {
	lock, err := os.OpenFile(s.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("locking the credential file: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()      // which also unlocks
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil { //nolint:gosec // G115: a descriptor fits an int
		return fmt.Errorf("locking the credential file: %w", err)
	}
	st, err := read(s.path)
	if err != nil {
		return err
	}
	if err := change(st); err != nil {
		return err
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(map[string]any{"keys": st.records}); err != nil {
		return fmt.Errorf("encoding the credential file: %w", err)
	}
	if err := replace(s.path, buf.Bytes()); err != nil {
		return fmt.Errorf("writing the credential file: %w", err)
	}
	s.reload()
	return nil
}

// replace writes a new file beside the old one and puts it in its place.
func replace(path string, content []byte) (err error) {
	mode := fs.FileMode(0o600)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	// through a link the file that it points to is replaced, and not the link
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path = resolved
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name()) // best effort: the error that counts is err
		}
	}()
	_, err = tmp.Write(content)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (s *Source) watch() {
	defer close(s.done)
	tick := time.NewTicker(s.options.PollInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
			if info, err := os.Stat(s.path); err != nil || stampOf(info) != s.state.Load().stamp {
				s.reload()
			} else if s.broken.Swap(nil) != nil {
				s.report(Event{Kind: Reloaded}) // what was wrong has been put back as it was
			}
		}
	}
}

// reload takes the file as it stands, if it can be used.
func (s *Source) reload() {
	next, err := read(s.path)
	if err != nil {
		if s.broken.Swap(&err) == nil { // once for each time that it breaks
			s.report(Event{Kind: Broken, Err: err})
		}
		return
	}
	s.broken.Store(nil)
	previous := s.state.Swap(next)
	keys := difference(previous.records, next.records)
	if len(keys) == 0 {
		return
	}
	s.report(Event{Kind: Reloaded})
	if f := s.changed.Load(); f != nil {
		(*f)(keys)
	}
}

func (s *Source) report(e Event) {
	if s.options.OnEvent != nil {
		s.options.OnEvent(e)
	}
}

// difference lists the keys that are not the same in both.
func difference(a, b map[string]json.RawMessage) []string {
	var keys []string
	for k, v := range a {
		if w, ok := b[k]; !ok || !bytes.Equal(v, w) {
			keys = append(keys, k)
		}
	}
	for k := range b {
		if _, ok := a[k]; !ok {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

// read reads and decodes the file.
func read(path string) (*state, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the credential file: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading the credential file: %w", err)
	}
	if info.Mode().Perm()&0o007 != 0 {
		return nil, fmt.Errorf("%s: %w", path, ErrPermissions)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading the credential file: %w", err)
	}
	if len(raw) > maxFileBytes {
		return nil, fmt.Errorf("reading the credential file: it is larger than %d bytes", maxFileBytes)
	}
	st := &state{stamp: stampOf(info), creds: map[string]*authsigner.Credential{}, bad: map[string]error{}}
	if st.records, err = decode(raw); err != nil {
		return nil, err
	}
	for key, record := range st.records {
		c, err := decodeRecord(key, record)
		if err != nil {
			st.bad[key] = err
			continue
		}
		st.creds[key] = c
	}
	return st, nil
}

// decode reads the file's outer form. The errors of encoding/json can quote what they stumble over, so that none of
// them is passed on.
func decode(raw []byte) (map[string]json.RawMessage, error) {
	var doc struct {
		Keys map[string]json.RawMessage `json:"keys"`
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&doc); err != nil {
		return nil, fmt.Errorf(`reading the credential file: around byte %d it is not JSON of the form {"keys": {"pk_live_…": {…}}}`,
			dec.InputOffset())
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("reading the credential file: there is something behind the JSON object")
	}
	if doc.Keys == nil {
		return nil, errors.New(`reading the credential file: it has no "keys"`)
	}
	// in one form, so that only what it says makes a record another
	for key, record := range doc.Keys {
		var buf bytes.Buffer
		if err := json.Compact(&buf, record); err != nil {
			return nil, errors.New("reading the credential file: a record is no JSON")
		}
		doc.Keys[key] = buf.Bytes()
	}
	return doc.Keys, nil
}

func decodeRecord(key string, raw json.RawMessage) (*authsigner.Credential, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var data map[string]any
	if err := dec.Decode(&data); err != nil || data == nil {
		return nil, fmt.Errorf("%w: the record is not a JSON object", authsigner.ErrMalformedCredential)
	}
	return authsigner.DecodeCredential(key, data)
}

// Interface guard
var _ authsigner.KeyStore = (*Source)(nil)
