package netfault

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
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
		reply, err := readReply(server, nil)
		if err != nil {
			return
		}
		if reply[0] != '>' && r.loses() { // a push message is not a reply
			return
		}
		if _, err := client.Write(reply); err != nil {
			return
		}
	}
}

// readReply appends the next reply in RESP2 or RESP3 to buffer.
func readReply(from *bufio.Reader, buffer []byte) ([]byte, error) {
	line, err := from.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 {
		return nil, fmt.Errorf("not a reply: %q", line)
	}
	buffer = append(buffer, line...)
	count := func() (int, error) { return strconv.Atoi(string(line[1 : len(line)-2])) }
	parts := 0
	switch line[0] {
	case '$', '=', '!':
		n, err := count()
		if err != nil || n < 0 {
			return buffer, err
		}
		start := len(buffer)
		buffer = append(buffer, make([]byte, n+2)...)
		_, err = io.ReadFull(from, buffer[start:])
		return buffer, err
	case '*', '~', '>':
		parts, err = count()
	case '%':
		parts, err = count()
		parts *= 2
	}
	for ; err == nil && parts > 0; parts-- {
		buffer, err = readReply(from, buffer)
	}
	return buffer, err
}
