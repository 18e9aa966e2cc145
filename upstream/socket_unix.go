//go:build unix

package upstream

import (
	"net"
	"syscall"
)

// silentSocket returns a function that reports whether a read from conn's socket would block: it has no data, EOF or error. For a
// connection without a socket, it returns false.
func silentSocket(conn net.Conn) func() bool {
	never := func() bool { return false }
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return never
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return never
	}
	var quiet bool
	var one [1]byte
	peek := func(fd uintptr) bool {
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		quiet = err == syscall.EAGAIN || err == syscall.EWOULDBLOCK
		return true
	}
	return func() bool {
		quiet = false
		return raw.Read(peek) == nil && quiet
	}
}
