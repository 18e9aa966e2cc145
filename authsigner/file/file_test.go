package file_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/file"
	"github.com/gatehouse-gateway/gatehouse/internal/test/leaktest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/recordtest"
)

// envHelper makes the test binary run countUp on the file that it names, and exit.
const envHelper = "GATEHOUSE_FILE_TEST_HELPER"

func TestMain(m *testing.M) {
	if path := os.Getenv(envHelper); path != "" {
		countUp(path)
		os.Exit(0)
	}
	leaktest.Main(m)
}

const (
	testKey    = "pk_live_0123456789abcdef"
	otherKey   = "pk_live_another0123456789"
	thirdKey   = "pk_live_third0123456789ab"
	testSecret = "canary-private-key-of-a-business"

	poll     = 10 * time.Millisecond
	patience = time.Minute
	tick     = 5 * time.Millisecond
)

func record(changes map[string]any) map[string]any {
	fields := map[string]any{
		"private_key": testSecret, "business_id": "biz_1", "business_name": "Zoë's Bakery <& Söhne>",
		"business_slug": "zoes-bakery", "status": "active",
	}
	maps.Copy(fields, changes)
	return fields
}

// entries are the fields of each key.
type entries map[string]map[string]any

// content returns a credential file with those keys.
func content(keys entries) string {
	data, err := json.MarshalIndent(map[string]any{"keys": keys}, "", "\t")
	if err != nil {
		panic(err)
	}
	return string(data)
}

func oneKey() string { return content(entries{testKey: record(nil)}) }

// watched is a source with a short poll interval, and its events.
type watched struct {
	*file.Source
	t    *testing.T
	path string

	events  recordtest.Events[file.Event]
	changes recordtest.Events[[]string]
}

func open(t *testing.T, text string) *watched {
	t.Helper()
	w := &watched{t: t, path: filepath.Join(t.TempDir(), "keys.json")}
	w.write(t, text)
	var err error
	w.Source, err = file.OpenWithInterval(w.path, file.Options{OnEvent: w.events.Add}, poll)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	w.OnChange(w.changes.Add)
	return w
}

// replace replaces the file atomically.
func (w *watched) replace(t *testing.T, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(w.path+".new", []byte(text), 0o600))
	require.NoError(t, os.Rename(w.path+".new", w.path))
}

// write writes the file in place. A source that polls twice meanwhile reports it as invalid.
func (w *watched) write(t *testing.T, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(w.path, []byte(text), 0o600))
}

func (w *watched) count(kind file.EventKind) int {
	return w.events.Count(func(e file.Event) bool { return e.Kind == kind })
}

func (w *watched) lastError() string {
	for _, e := range slices.Backward(w.events.All()) {
		if e.Err != nil {
			return e.Err.Error()
		}
	}
	return ""
}

func (w *watched) requireFound(t *testing.T) {
	t.Helper()
	cred, err := w.Lookup(t.Context(), testKey)
	require.NoError(t, err)
	require.Equal(t, testSecret, cred.PrivateKey.Reveal())
}

func (w *watched) requireUnknown(t *testing.T, key string) {
	t.Helper()
	_, err := w.Lookup(t.Context(), key)
	require.ErrorIs(t, err, authsigner.ErrUnknownKey)
	require.NotErrorIs(t, err, authsigner.ErrUnavailable)
}

func (w *watched) eventually(t *testing.T, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, patience, tick)
}

func TestEveryKindOfChangeIsDetected(t *testing.T) {
	t.Parallel()
	another := content(entries{
		testKey: record(map[string]any{"private_key": "another-private-key"}), otherKey: record(nil),
	})
	for name, change := range map[string]func(w *watched){
		"in place": func(w *watched) { w.write(w.t, another) },
		"replaced": func(w *watched) { w.replace(w.t, another) },
		"removed and written": func(w *watched) {
			require.NoError(w.t, os.Remove(w.path))
			w.write(w.t, another)
		},
		"in two steps": func(w *watched) {
			f, err := os.OpenFile(w.path, os.O_WRONLY|os.O_TRUNC, 0o600)
			require.NoError(w.t, err)
			_, err = f.WriteString(another[:len(another)/2])
			require.NoError(w.t, err)
			<-time.After(3 * poll)
			_, err = f.WriteString(another[len(another)/2:])
			require.NoError(w.t, err)
			require.NoError(w.t, f.Close())
		},
		"by another symbolic link": func(w *watched) { // as Kubernetes mounts secrets
			require.NoError(w.t, os.WriteFile(w.path+".v2", []byte(another), 0o600))
			require.NoError(w.t, os.Symlink(w.path+".v2", w.path+".link"))
			require.NoError(w.t, os.Rename(w.path+".link", w.path))
		},
		"with the old time and size": func(w *watched) {
			info, err := os.Stat(w.path)
			require.NoError(w.t, err)
			same := strings.Replace(oneKey(), testSecret, "another-private-key", 1)
			same += strings.Repeat(" ", len(oneKey())-len(same))
			w.write(w.t, same)
			require.NoError(w.t, os.Chtimes(w.path, info.ModTime(), info.ModTime()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := open(t, oneKey())
			w.requireFound(t)
			change(w)
			w.eventually(t, func() bool {
				cred, err := w.Lookup(t.Context(), testKey)
				return err == nil && cred.PrivateKey.Reveal() == "another-private-key"
			})
			w.eventually(t, func() bool { return w.Ready() == nil && len(w.changes.All()) > 0 })
			require.Contains(t, w.changes.All()[0], testKey)
		})
	}
}

func TestOnlyChangedKeysAreReported(t *testing.T) {
	t.Parallel()
	w := open(t, content(entries{testKey: record(nil), otherKey: record(nil)}))
	before, err := w.Lookup(t.Context(), otherKey)
	require.NoError(t, err)
	w.write(t, content(entries{
		thirdKey: record(nil), testKey: record(map[string]any{"status": "inactive"}), otherKey: record(nil),
	}))
	w.eventually(t, func() bool { return len(w.changes.All()) == 1 })
	after, err := w.Lookup(t.Context(), otherKey)
	require.NoError(t, err)
	require.Same(t, before, after, "its HMAC states are kept")

	w.write(t, content(entries{otherKey: record(nil)}))
	w.eventually(t, func() bool { return len(w.changes.All()) == 2 })
	require.Equal(t, [][]string{{testKey, thirdKey}, {testKey, thirdKey}}, w.changes.All())
	w.requireUnknown(t, testKey)

	// Another formatting of the same keys is not a change.
	w.write(t, "\n"+content(entries{otherKey: record(nil)})+"\n\n")
	w.eventually(t, func() bool { return w.count(file.EventReloaded) == 3 })
	require.Len(t, w.changes.All(), 2)
}

func TestInvalidFileKeepsTheLastValidKeys(t *testing.T) {
	t.Parallel()
	text := func(text string) func(w *watched) { return func(w *watched) { w.replace(w.t, text) } }
	chmod := func(mode fs.FileMode) func(w *watched) {
		return func(w *watched) { require.NoError(w.t, os.Chmod(w.path, mode)) }
	}
	for name, try := range map[string]struct {
		spoil func(w *watched)
		want  string
	}{
		"no JSON":         {text("{\n\"keys\": {\n" + testSecret + "\n"), "line 3: invalid JSON"},
		"empty":           {text(""), "invalid JSON"},
		"truncated":       {text(oneKey()[:len(oneKey())/2]), "invalid JSON"},
		"two values":      {text(oneKey() + oneKey()), "invalid JSON"},
		"an array":        {text(`["` + testSecret + `"]`), "line 1: unexpected JSON"},
		"no keys":         {text(`{}`), `missing member "keys"`},
		"null keys":       {text(`{"keys":null}`), `missing member "keys"`},
		"keys a string":   {text(`{"keys":"` + testSecret + `"}`), "line 1"},
		"another member":  {text(`{"keys":{},"` + testSecret + `":1}`), `must be "keys"`},
		"a later format":  {text(`{"format":2,"keys":[],"more":1}`), "the file is of a later version"},
		"a key twice":     {text(`{"keys":{"` + testKey + `":{},` + "\n" + `"` + testKey + `":{}}}`), "line 2: duplicate name"},
		"not UTF-8":       {text(`{"keys":{"` + testKey + "\xff" + `":{}}}`), "invalid JSON"},
		"readable by all": {chmod(0o644), "0644: must be 0600"},
		"group may write": {chmod(0o660), "0660: must be 0600"},
		"removed":         {func(w *watched) { require.NoError(w.t, os.Remove(w.path)) }, "no such file"},
		"a directory": {func(w *watched) {
			require.NoError(w.t, os.Symlink(filepath.Dir(w.path), w.path+".new")) // only a link can replace a file
			require.NoError(w.t, os.Rename(w.path+".new", w.path))
		}, "not a regular file"},
		"a pipe without a writer": {func(w *watched) {
			require.NoError(w.t, syscall.Mkfifo(w.path+".new", 0o600))
			require.NoError(w.t, os.Rename(w.path+".new", w.path))
		}, "not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := open(t, oneKey())
			try.spoil(w)
			w.eventually(t, func() bool { return w.count(file.EventInvalid) == 1 })
			require.Contains(t, w.lastError(), try.want)
			require.Contains(t, w.lastError(), w.path)
			require.NotContains(t, w.lastError(), testSecret)
			require.ErrorContains(t, w.Ready(), try.want)
			require.NotErrorIs(t, w.Ready(), authsigner.ErrUnavailable, "all keys of the last valid file can be used")
			w.requireFound(t)
			<-time.After(5 * poll)
			require.Equal(t, 1, w.count(file.EventInvalid))

			// An invalid file is not overwritten.
			require.ErrorIs(t, w.Delete(t.Context(), testKey), authsigner.ErrUnavailable)

			require.NoError(t, os.RemoveAll(w.path))
			w.write(t, content(entries{otherKey: record(nil)}))
			w.eventually(t, func() bool { _, err := w.Lookup(t.Context(), otherKey); return err == nil })
			require.NoError(t, w.Ready())
			w.requireUnknown(t, testKey)

			// At startup, an invalid file is an error.
			try.spoil(w)
			_, err := file.Open(w.path, file.Options{})
			require.ErrorContains(t, err, try.want)
			assert.NotContains(t, err.Error(), testSecret)
		})
	}
}

func TestMalformedEntryAffectsNoOtherKey(t *testing.T) {
	t.Parallel()
	w := open(t, content(entries{testKey: record(nil), otherKey: record(nil)}))
	w.write(t, content(entries{
		testKey: record(map[string]any{"status": testSecret}), "../../etc": record(nil),
	}))
	w.eventually(t, func() bool { return len(w.changes.All()) == 1 }) // reported after the malformed entries
	require.Equal(t, 2, w.count(file.EventMalformed))
	require.NotContains(t, w.lastError(), testSecret)
	_, err := w.Lookup(t.Context(), testKey)
	require.ErrorIs(t, err, authsigner.ErrMalformedCredential)
	require.ErrorIs(t, err, authsigner.ErrUnavailable)
	require.NotErrorIs(t, err, authsigner.ErrUnknownKey)
	w.requireUnknown(t, otherKey) // the rest of the edit takes effect
	require.NoError(t, w.Ready())
	require.Equal(t, [][]string{{"../../etc", testKey, otherKey}}, w.changes.All())
	keys, err := w.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{testKey}, keys)

	_, err = authsigner.Rotate(t.Context(), w, testKey, 0, time.Now())
	require.ErrorIs(t, err, authsigner.ErrMalformedCredential)
	require.NoError(t, authsigner.Revoke(t.Context(), w, testKey), "it can be removed")
	w.requireUnknown(t, testKey)

	// At startup, it is not an error either.
	w.write(t, `{"keys":{"`+testKey+`":"`+testSecret+`","`+otherKey+`":null}}`)
	again, err := file.Open(w.path, file.Options{})
	require.NoError(t, err)
	defer again.Close()
	_, err = again.Lookup(t.Context(), testKey)
	require.ErrorIs(t, err, authsigner.ErrMalformedCredential)
	assert.NotContains(t, err.Error(), testSecret)
}

// If an entry has the two keys swapped, no error contains the private one.
func TestPrivateKeyAsTheNameOfAnEntryIsNotShown(t *testing.T) {
	t.Parallel()
	const private = "sk_live_put_in_the_wrong_place"
	w := open(t, oneKey())
	w.write(t, content(entries{private: record(nil)}))
	w.eventually(t, func() bool { return w.count(file.EventMalformed) == 1 })
	require.Contains(t, w.lastError(), `entry "sk_…"`)
	require.NotContains(t, w.lastError(), private)
	keys, err := w.List(t.Context())
	require.NoError(t, err)
	require.Empty(t, keys)
}

func TestKeysAreManagedInTheFile(t *testing.T) {
	t.Parallel()
	w := open(t, oneKey())
	ctx := t.Context()
	cred, err := authsigner.DecodeCredential(otherKey, record(map[string]any{"limit": 120}))
	require.NoError(t, err)
	require.NoError(t, w.Create(ctx, cred))
	require.ErrorIs(t, w.Create(ctx, cred), authsigner.ErrKeyExists)
	keys, err := w.List(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{testKey, otherKey}, keys)

	rotated, err := authsigner.Rotate(ctx, w, otherKey, time.Hour, time.Now())
	require.NoError(t, err)
	found, err := w.Lookup(ctx, otherKey)
	require.NoError(t, err, "it takes effect without a poll")
	require.Equal(t, rotated.Record(), found.Record())
	require.Equal(t, testSecret, found.PreviousPrivateKey.Reveal())
	require.Equal(t, 120, found.Limit)

	for _, key := range []string{"pk_live_nobody", "", "../.."} {
		require.ErrorIs(t, w.Delete(ctx, key), authsigner.ErrUnknownKey)
		_, err = w.Update(ctx, key, nil)
		require.ErrorIs(t, err, authsigner.ErrUnknownKey)
	}
	require.ErrorIs(t, w.Create(ctx, &authsigner.Credential{PublicKey: "pk_live_empty"}), authsigner.ErrMalformedCredential)
	_, err = w.Update(ctx, testKey, func(c *authsigner.Credential) error {
		c.PublicKey = otherKey
		return nil
	})
	require.Error(t, err)
	_, err = w.Update(ctx, testKey, func(*authsigner.Credential) error { return fs.ErrClosed })
	require.ErrorIs(t, err, fs.ErrClosed)
	w.requireFound(t)

	require.NoError(t, authsigner.Revoke(ctx, w, testKey))
	w.requireUnknown(t, testKey)

	again, err := file.Open(w.path, file.Options{})
	require.NoError(t, err)
	defer again.Close()
	keys, err = again.List(ctx)
	require.NoError(t, err)
	assert.Equal(t, []string{otherKey}, keys)
}

func TestChangeKeepsOtherFieldsModeAndLink(t *testing.T) {
	t.Parallel()
	w := open(t, content(entries{
		testKey:  record(map[string]any{"comment": "asked for by phone", "limit": 60}),
		otherKey: record(map[string]any{"comment": "a <big> number: 12345678901234567890", "number": json.Number("12345678901234567890")}),
	}))
	require.NoError(t, os.Chmod(w.path, 0o640))
	link := w.path + ".link"
	require.NoError(t, os.Symlink(w.path, link))
	s, err := file.Open(link, file.Options{})
	require.NoError(t, err)
	defer s.Close()
	_, err = authsigner.Rotate(t.Context(), s, testKey, 0, time.Now())
	require.NoError(t, err)

	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.Equal(t, fs.ModeSymlink, info.Mode().Type(), "the link is kept")
	info, err = os.Stat(w.path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o640), info.Mode().Perm())
	text, err := os.ReadFile(w.path)
	require.NoError(t, err)
	for _, want := range []string{`"comment": "asked for by phone"`, `12345678901234567890`, `<big>`, "Zoë's Bakery <& Söhne>"} {
		assert.Contains(t, string(text), want)
	}
	require.Equal(t, 1, strings.Count(string(text), testSecret))
	left, err := filepath.Glob(filepath.Join(filepath.Dir(w.path), ".*"))
	require.NoError(t, err)
	assert.Empty(t, left, "no temporary file is left behind")
}

func TestNewFileIsReadableByItsOwnerOnly(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.json")
	_, err := file.Open(path, file.Options{})
	require.ErrorIs(t, err, fs.ErrNotExist)
	s, err := file.Open(path, file.Options{Create: true})
	require.NoError(t, err)
	defer s.Close()
	_, err = authsigner.Issue(t.Context(), s, authsigner.IssueOptions{BusinessID: "biz_1", BusinessName: "Bakery", BusinessSlug: "bakery"})
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode().Perm())

	_, err = file.Open(filepath.Join(path, "below", "keys.json"), file.Options{Create: true})
	require.Error(t, err)
}

// Otherwise, a gateway could not change its keys once an administrator has.
func TestLockBelongsToTheOwnerOfTheFile(t *testing.T) {
	t.Parallel()
	w := open(t, oneKey())
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(w.path, 12345, 23456))
	}
	require.NoError(t, w.Delete(t.Context(), testKey))
	owners := make(map[[2]uint32]bool)
	for _, path := range []string{w.path, w.path + ".lock"} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
		stat := info.Sys().(*syscall.Stat_t)
		owners[[2]uint32{stat.Uid, stat.Gid}] = true
	}
	require.Len(t, owners, 1)

	other := filepath.Join(t.TempDir(), "other")
	require.NoError(t, os.WriteFile(other, nil, 0o600))
	before, err := os.Stat(other)
	require.NoError(t, err)
	require.NoError(t, os.Remove(w.path+".lock"))
	require.NoError(t, os.Symlink(other, w.path+".lock"))
	_, err = authsigner.Issue(t.Context(), w, authsigner.IssueOptions{BusinessID: "biz_1", BusinessName: "Bakery", BusinessSlug: "bakery"})
	require.NoError(t, err)
	after, err := os.Stat(other)
	require.NoError(t, err)
	require.Equal(t, before.Sys(), after.Sys(), "a link gives nobody another file")
}

// Several processes, with several goroutines each, increment one number.
func TestConcurrentProcessesLoseNoChange(t *testing.T) {
	t.Parallel()
	w := open(t, oneKey())
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), envHelper+"="+w.path)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	wg.Wait()
	w.eventually(t, func() bool {
		cred, err := w.Lookup(t.Context(), testKey)
		return err == nil && cred.Limit == 3*helperGoroutines*helperChanges
	})
}

const helperGoroutines, helperChanges = 2, 10

// countUp, in another process, increments the limit of testKey.
func countUp(path string) {
	check := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	s, err := file.OpenWithInterval(path, file.Options{}, poll)
	check(err)
	var wg sync.WaitGroup
	for range helperGoroutines {
		wg.Go(func() {
			for range helperChanges {
				_, err := s.Update(context.Background(), testKey, func(c *authsigner.Credential) error {
					c.Limit++
					return nil
				})
				check(err)
			}
		})
	}
	wg.Wait()
	check(s.Close())
}

func TestWaitForTheLockEndsWithTheContext(t *testing.T) {
	t.Parallel()
	w := open(t, oneKey())
	inside, leave := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := w.Update(context.WithoutCancel(t.Context()), testKey, func(*authsigner.Credential) error {
			close(inside)
			<-leave
			return nil
		})
		done <- err
	}()
	<-inside
	ctx, cancel := context.WithTimeout(t.Context(), 5*poll)
	defer cancel()
	err := w.Delete(ctx, testKey)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, authsigner.ErrUnknownKey)
	close(leave)
	require.NoError(t, <-done)
	w.requireFound(t)
}

func TestLookupsSucceedWhileTheFileIsReplaced(t *testing.T) {
	t.Parallel()
	w := open(t, oneKey())
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := w.Lookup(ctx, testKey); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for { // at least once, even on a slow machine
		_, err := authsigner.Rotate(t.Context(), w, testKey, 0, time.Now())
		require.NoError(t, err)
		if ctx.Err() != nil {
			break
		}
	}
	wg.Wait()
	require.NotEmpty(t, w.changes.All())
}

// The source and the cache are connected as in the gateway.
func TestRevocationInTheFileReachesTheCache(t *testing.T) {
	t.Parallel()
	w := open(t, oneKey())
	cache, err := authsigner.NewCache(w, authsigner.CacheOptions{TTL: time.Hour})
	require.NoError(t, err)
	defer cache.Close()
	w.OnChange(func(keys []string) {
		for _, key := range keys {
			cache.Invalidate(key)
		}
	})
	_, err = cache.Lookup(t.Context(), testKey)
	require.NoError(t, err)
	_, err = cache.Lookup(t.Context(), otherKey)
	require.ErrorIs(t, err, authsigner.ErrUnknownKey)
	w.write(t, content(entries{otherKey: record(nil)}))
	w.eventually(t, func() bool {
		_, err := cache.Lookup(t.Context(), testKey)
		_, found := cache.Lookup(t.Context(), otherKey)
		return err != nil && found == nil
	})
	w.OnChange(nil)
}
