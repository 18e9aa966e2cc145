package processtest

import "syscall"

// diesWithParent makes the kernel kill the process when the test binary ends without having cleaned up (a panic, a timeout, kill -9).
func diesWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
