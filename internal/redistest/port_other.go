//go:build !linux

package redistest

import "os"

// ReservePort finds a free port. It cannot be kept here: somebody else may take it.
func ReservePort() (int, *os.File, error) {
	port, err := freePort()
	return port, nil, err
}
