// Package porttest reserves ports for servers that tests restart.
package porttest

import (
	"fmt"
	"os"
	"syscall"
)

// Reserve reserves a free port of the loopback interface for a server that listens with SO_REUSEADDR, as Redis does, until
// the file is closed. A socket stays bound to the port without listening, so the kernel does not assign the port to any other
// process while the server is down.
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
