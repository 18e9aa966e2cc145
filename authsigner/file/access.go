package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

const (
	// maxFile is the largest file that is read, in bytes: about 100 000 keys.
	maxFile = 64 << 20

	// raceWindow is how long after a change a second one might not change the modification time.
	raceWindow = 2 * time.Second

	// lockRetry is the interval of attempts to lock.
	lockRetry = 10 * time.Millisecond
)

// identity identifies a version of a file.
type identity struct {
	inode    uint64
	size     int64
	modified time.Time
	mode     fs.FileMode
}

func identityOf(info fs.FileInfo) identity {
	id := identity{size: info.Size(), modified: info.ModTime(), mode: info.Mode()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		id.inode = stat.Ino
	}
	return id
}

// stable reports whether any later change will change the identity.
func (id identity) stable(now time.Time) bool {
	age := now.Sub(id.modified)
	return age > raceWindow || age < -raceWindow
}

// readFile reads the file if its permissions are safe for secrets.
func readFile(path string) ([]byte, identity, error) {
	// O_NONBLOCK avoids blocking on a named pipe.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, identity{}, withoutPath(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, identity{}, withoutPath(err)
	}
	id := identityOf(info)
	switch {
	case !info.Mode().IsRegular():
		return nil, id, errors.New("not a regular file")
	case info.Mode().Perm()&0o027 != 0:
		return nil, id, fmt.Errorf("permissions are %#o: must be 0600, or 0640 to let a group read the file", info.Mode().Perm())
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, id, withoutPath(err)
	case len(data) > maxFile:
		return nil, id, fmt.Errorf("larger than %d bytes", maxFile)
	}
	return data, id, nil
}

// createFile creates a file without keys, unless the file exists.
func createFile(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString("{\n  \"keys\": {}\n}\n"); err != nil {
		return err
	}
	return f.Close()
}

// writeFile replaces the file atomically.
func writeFile(path string, data []byte) error {
	// keep symbolic links
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails after the rename
	defer f.Close()
	if err := keepAccess(f, path); err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	if err := syncDir(dir); err != nil { // the change is visible, but a crash may undo it
		return fmt.Errorf("%w: %w", authsigner.ErrOutcomeUnknown, err)
	}
	return nil
}

// keepAccess gives the new file the owner, group and mode of the one that it replaces, so that the gateway can still read the file
// after an administrator has changed it.
func keepAccess(f *os.File, path string) error {
	info, err := os.Stat(path)
	if isMissing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := keepOwner(f, info); err != nil {
		return err
	}
	return f.Chmod(info.Mode().Perm() & 0o640)
}

// keepOwner gives a file the owner and group of another one.
func keepOwner(f *os.File, of fs.FileInfo) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	now, ok := info.Sys().(*syscall.Stat_t)
	want, wanted := of.Sys().(*syscall.Stat_t)
	if ok && wanted && (now.Uid != want.Uid || now.Gid != want.Gid) {
		if err := f.Chown(int(want.Uid), int(want.Gid)); err != nil {
			return fmt.Errorf("keeping the file's owner: %w", err)
		}
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// lock prevents other processes from changing the file until unlock is called. It locks a separate file, because changes replace
// the credential file.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	f, err := openLock(path)
	if err != nil {
		return nil, err
	}
	ticker := time.NewTicker(lockRetry)
	defer ticker.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = f.Close()
			return nil, fmt.Errorf("locking %s: %w", f.Name(), err)
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("waiting for the lock of the credential file: %w", context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// openLock opens the lock of the file at path. A new lock gets the file's owner, because the gateway could not lock one of an
// administrator. An existing one stays as it is: the gateway may have put a link to another file in its place.
func openLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return os.OpenFile(path+".lock", os.O_RDWR, 0)
	}
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err == nil {
		err = keepOwner(f, info)
	}
	if err != nil && !isMissing(err) {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// withoutPath removes the path from err, because callers add it.
func withoutPath(err error) error {
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", failed.Op, failed.Err)
	}
	return err
}
