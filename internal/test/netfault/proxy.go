// Package netfault has proxies that disturb the network between a client and its server: a Link is slow or drops data, and a
// RedisProxy or a Handler loses replies to requests that the server has executed.
package netfault

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy forwards TCP connections to a server, and ends with the test.
type proxy struct {
	serve serveFunc
	ended chan struct{}

	work sync.WaitGroup
	mu   sync.Mutex
	open map[net.Conn]bool // nil after the end
}

// serveFunc forwards the data of two connections. It closes both when one ends. ended is closed at the end of the test.
type serveFunc func(client, server net.Conn, ended <-chan struct{})

// startProxy returns the address of a new proxy.
func startProxy(tb testing.TB, server string, serve serveFunc) (addr string) {
	tb.Helper()
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	p := &proxy{serve: serve, ended: make(chan struct{}), open: map[net.Conn]bool{}}
	p.work.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.work.Go(func() { p.carry(client, server) })
		}
	})
	tb.Cleanup(func() {
		close(p.ended)
		_ = listener.Close()
		p.mu.Lock()
		for conn := range p.open {
			_ = conn.Close()
		}
		p.open = nil
		p.mu.Unlock()
		p.work.Wait()
	})
	return listener.Addr().String()
}

func (p *proxy) carry(client net.Conn, addr string) {
	defer client.Close()
	server, err := new(net.Dialer).DialContext(context.Background(), "tcp", addr)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	if p.open == nil {
		p.mu.Unlock()
		return
	}
	p.open[client], p.open[server] = true, true
	p.mu.Unlock()
	p.serve(client, server, p.ended)
	p.mu.Lock()
	delete(p.open, client)
	delete(p.open, server)
	p.mu.Unlock()
}
