// Package porttest reserves ports for servers that tests restart.
package porttest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
)

// Ports from firstPort to lastPort are below those that Linux gives to connections and to servers that listen on port 0, over UDP too.
const firstPort, lastPort = 10000, 32767

// Reserve reserves a free port for a server that listens with SO_REUSEADDR, as Go and Redis do, until the file is closed. A socket
// stays bound to the port of all addresses without listening, so that nobody else gets the port while the server is down.
func Reserve() (int, *os.File, error) {
	for {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		held, err := hold(port)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return 0, nil, fmt.Errorf("reserving a port: %w", err)
		}
		return port, held, nil
	}
}

func hold(port int) (*os.File, error) {
	fd, err := syscall.Socket(syscall.AF_INET6, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	held := os.NewFile(uintptr(fd), "reserved port")
	err = syscall.SetsockoptInt(fd, syscall.IPPROTO_IPV6, syscall.IPV6_V6ONLY, 0) // IPv4 too
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet6{Port: port})
	}
	if err == nil {
		// Set only now, it allows the server, but not another reservation.
		err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	}
	if err != nil {
		_ = held.Close()
		return nil, err
	}
	return held, nil
}
