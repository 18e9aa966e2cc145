//go:build !linux

package redistest

import "syscall"

// diesWithParent has no counterpart here: the test's cleanup has to do.
func diesWithParent() *syscall.SysProcAttr { return nil }
