//go:build !unix

package upstream

import "net"

// quietSocket cannot look into a socket here, so that no connection is reused.
func quietSocket(net.Conn) func() bool { return func() bool { return false } }
