package upstream

import (
	"net"
	"os"
)

// recordConn is the socket of a TLS connection. crypto/tls may have read more from it than the end of a response; recordConn
// finds out whether it has, without waiting for data.
type recordConn struct {
	net.Conn
	header      [5]byte // of the current record (RFC 8446, section 5.1)
	got         int     // bytes of header
	rest        int     // bytes that are missing at the end of the current record
	nonBlocking bool    // reads fail instead of waiting for data
}

// Read implements io.Reader. It follows the boundaries of records.
func (c *recordConn) Read(p []byte) (int, error) {
	if c.nonBlocking {
		return 0, os.ErrDeadlineExceeded // which crypto/tls does not take for the end of the connection
	}
	n, err := c.Conn.Read(p)
	for p = p[:n]; len(p) > 0; {
		if c.rest > 0 {
			skip := min(c.rest, len(p))
			c.rest -= skip
			p = p[skip:]
			continue
		}
		k := copy(c.header[c.got:], p)
		p = p[k:]
		if c.got += k; c.got == len(c.header) {
			c.got, c.rest = 0, int(c.header[3])<<8|int(c.header[4])
		}
	}
	return n, err
}

// isQuiet reports whether conn, the TLS connection on c, holds no data that the service has sent. Session tickets and key updates
// that it has read but not yet processed are processed; they are not data.
func (c *recordConn) isQuiet(conn net.Conn) bool {
	if c.got > 0 || c.rest > 0 {
		return false // a part of a record
	}
	c.nonBlocking = true
	defer func() { c.nonBlocking = false }()
	var one [1]byte
	n, err := conn.Read(one[:])
	return n == 0 && timedOut(err)
}
