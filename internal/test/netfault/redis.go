package netfault

import (
	"bufio"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2/proto"
)

// RedisProxy is a proxy in front of a Redis server that can lose replies.
type RedisProxy struct {
	loss

	Addr string // to connect to
}

// NewRedisProxy starts a proxy in front of the server at an address. It ends with the test.
func NewRedisProxy(tb testing.TB, server string) *RedisProxy {
	tb.Helper()
	r := &RedisProxy{}
	r.Addr = startProxy(tb, server, r.serve)
	return r
}

// LoseFrom is like Lose, but also loses all later replies.
func (r *RedisProxy) LoseFrom(n int) { r.set(n, true) }

func (r *RedisProxy) serve(client, server net.Conn, _ <-chan struct{}) {
	var copying sync.WaitGroup
	copying.Go(func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	})
	r.pass(client, bufio.NewReader(server))
	_ = client.Close()
	_ = server.Close()
	copying.Wait()
}

// pass forwards replies until one is lost or the connection ends.
func (r *RedisProxy) pass(client io.Writer, server *bufio.Reader) {
	for {
		reply, err := proto.Read(server)
		if err != nil {
			return
		}
		if reply[0] != '>' && r.loses() { // a push message is not a reply
			return
		}
		if _, err := io.WriteString(client, reply); err != nil {
			return
		}
	}
}
