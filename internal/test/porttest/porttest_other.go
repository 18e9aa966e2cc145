//go:build !linux

// Package porttest reserves ports for servers that tests restart.
package porttest

import (
	"fmt"
	"net"
	"os"
)

// Reserve returns a free port of the loopback interface. On this system, another process may bind it.
func Reserve() (int, *os.File, error) {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return 0, nil, fmt.Errorf("reserving a port: %w", err)
	}
	defer func() { _ = l.Close() }()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, nil, fmt.Errorf("reserving a port: unexpected address %v", l.Addr())
	}
	return addr.Port, nil, nil
}
