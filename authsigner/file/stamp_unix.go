//go:build unix

package file

import (
	"io/fs"
	"syscall"
)

// stampOf tells this state of a file from others, also from one of the same size within the clock's resolution that has
// replaced it.
func stampOf(info fs.FileInfo) stamp {
	s := stamp{modified: info.ModTime(), size: info.Size()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.inode = sys.Ino
	}
	return s
}
