//go:build !unix

package upstream

import "net"

// silentSocket is not implemented on this platform, so connections are not reused.
func silentSocket(net.Conn) func() bool { return func() bool { return false } }
