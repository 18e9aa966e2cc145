//go:build !linux

package processtest

import "syscall"

// diesWithParent does nothing here: only the test's cleanup kills the process.
func diesWithParent() *syscall.SysProcAttr { return nil }
