// Package linktest stands in for the network between a client and its server in tests.
package linktest

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Link is the network between a client and its server: a proxy that can be slow, and that can be cut.
type Link struct {
	Addr string // to connect to

	target            string
	requests, replies atomic.Int64 // delay of each read, in nanoseconds
	cut               atomic.Bool

	mu    sync.Mutex
	ended bool
	open  map[net.Conn]bool
	work  sync.WaitGroup
	over  chan struct{}
}

// Start starts a link to target that ends with the test.
func Start(tb testing.TB, target string) *Link {
	tb.Helper()
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	l := &Link{Addr: listener.Addr().String(), target: target, open: map[net.Conn]bool{}, over: make(chan struct{})}
	l.work.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			l.work.Go(func() { l.carry(in) })
		}
	})
	tb.Cleanup(func() {
		close(l.over)
		_ = listener.Close()
		l.mu.Lock()
		l.ended = true
		for c := range l.open {
			_ = c.Close()
		}
		l.mu.Unlock()
		l.work.Wait()
	})
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

func (l *Link) carry(in net.Conn) {
	out, err := new(net.Dialer).DialContext(context.Background(), "tcp", l.target)
	if err != nil {
		_ = in.Close()
		return
	}
	defer l.keep(in)()
	defer l.keep(out)()
	var both sync.WaitGroup
	both.Go(func() { l.pump(out, in, &l.requests) })
	both.Go(func() { l.pump(in, out, &l.replies) })
	both.Wait()
}

func (l *Link) pump(to, from net.Conn, delay *atomic.Int64) {
	defer func() { _ = to.Close() }() // which ends the other direction too
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if d := time.Duration(delay.Load()); d > 0 {
			select {
			case <-time.After(d):
			case <-l.over:
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

// keep records a connection, and returns a function that closes and removes it.
func (l *Link) keep(c net.Conn) func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[c] = true
	if l.ended {
		_ = c.Close()
	}
	return func() {
		_ = c.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.open, c)
	}
}
