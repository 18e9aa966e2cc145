package netfault

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Link is the network between a client and its server: a proxy that can be slow, and that can be cut.
type Link struct {
	Addr string // to connect to

	requests, replies atomic.Int64 // delay of each read, in nanoseconds
	cut               atomic.Bool
}

// NewLink starts a link to a server's address. It ends with the test.
func NewLink(tb testing.TB, server string) *Link {
	tb.Helper()
	l := &Link{}
	l.Addr = startProxy(tb, server, l.serve)
	return l
}

// Slow delays requests and replies from now on.
func (l *Link) Slow(requests, replies time.Duration) {
	l.requests.Store(int64(requests))
	l.replies.Store(int64(replies))
}

// Cut drops all data. Connections stay open, and new ones are accepted. A connection that has lost data stays silent after
// Restore.
func (l *Link) Cut() { l.cut.Store(true) }

// Restore ends a cut.
func (l *Link) Restore() { l.cut.Store(false) }

func (l *Link) serve(client, server net.Conn, ended <-chan struct{}) {
	var both sync.WaitGroup
	both.Go(func() { l.pump(server, client, &l.requests, ended) })
	both.Go(func() { l.pump(client, server, &l.replies, ended) })
	both.Wait()
}

func (l *Link) pump(to, from net.Conn, delay *atomic.Int64, ended <-chan struct{}) {
	defer func() { _ = to.Close() }() // which ends the other direction too
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if d := time.Duration(delay.Load()); d > 0 {
			select {
			case <-time.After(d):
			case <-ended:
				return
			}
		}
		if l.cut.Load() {
			_, _ = io.Copy(io.Discard, from)
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
