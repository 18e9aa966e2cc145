//go:build !unix

package upstream

import "net"

// quietSocket is not implemented on this platform, so connections are not reused.
func quietSocket(net.Conn) func() bool { return func() bool { return false } }
