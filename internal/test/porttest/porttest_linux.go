// Package porttest keeps ports for the servers that tests start, stop and start again.
package porttest

import (
	"fmt"
	"os"
	"syscall"
)

// Reserve finds a free port of the loopback interface and keeps it for a server that listens with SO_REUSEADDR, as
// Redis does, until the file is closed: a socket of ours stays bound to it and never listens. The kernel gives such a
// port to nobody who asks for any, neither to listen nor to connect from, also while the server is down. So nobody is
// taken for the server in its place, and it finds its port free when it comes back.
func Reserve() (int, *os.File, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, fmt.Errorf("reserving a port: %w", err)
	}
	held := os.NewFile(uintptr(fd), "reserved port")
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		_ = held.Close()
		return 0, nil, fmt.Errorf("reserving a port: %w", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		_ = held.Close()
		return 0, nil, fmt.Errorf("reserving a port: %w", err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		_ = held.Close()
		return 0, nil, fmt.Errorf("reserving a port: %w", err)
	}
	addr, ok := name.(*syscall.SockaddrInet4)
	if !ok {
		_ = held.Close()
		return 0, nil, fmt.Errorf("reserving a port: unexpected address %v", name)
	}
	return addr.Port, held, nil
}
