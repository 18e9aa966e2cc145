// Package losttest has proxies that lose replies: the server has executed a request, and the client gets no reply.
package losttest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
)

// Redis is a proxy in front of a Redis server.
type Redis struct {
	server   string
	listener net.Listener
	wait     sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	open    map[net.Conn]struct{}
	replies int  // since Lose
	lose    int  // the reply to lose; 0: none
	rest    bool // also lose all later ones
}

// NewRedis starts a proxy in front of the server at an address. It ends with the test.
func NewRedis(tb testing.TB, server string) *Redis {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	r := &Redis{server: server, listener: listener, open: map[net.Conn]struct{}{}}
	r.wait.Go(r.accept)
	tb.Cleanup(r.close)
	return r
}

// Addr returns the address of the proxy.
func (r *Redis) Addr() string { return r.listener.Addr().String() }

// Lose loses the n-th reply from now on, starting at 1, and closes its connection. 0 loses none. It resets Replies.
func (r *Redis) Lose(n int) { r.set(n, false) }

// LoseFrom is like Lose, but also loses all later replies.
func (r *Redis) LoseFrom(n int) { r.set(n, true) }

func (r *Redis) set(n int, rest bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replies, r.lose, r.rest = 0, n, rest
}

// Replies returns the number of replies since Lose, including lost ones.
func (r *Redis) Replies() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.replies
}

func (r *Redis) close() {
	r.mu.Lock()
	r.closed = true
	_ = r.listener.Close()
	for conn := range r.open {
		_ = conn.Close()
	}
	r.mu.Unlock()
	r.wait.Wait()
}

// hold registers a connection for close. It returns false after close.
func (r *Redis) hold(conn net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.open[conn] = struct{}{}
	}
	return !r.closed
}

func (r *Redis) release(conn net.Conn) {
	_ = conn.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, conn)
}

func (r *Redis) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.wait.Go(func() { r.serve(client) })
	}
}

func (r *Redis) serve(client net.Conn) {
	defer r.release(client)
	server, err := net.Dial("tcp", r.server)
	if err != nil || !r.hold(client) || !r.hold(server) {
		if err == nil {
			_ = server.Close()
		}
		return
	}
	var copying sync.WaitGroup
	copying.Go(func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	})
	r.pass(client, bufio.NewReader(server))
	r.release(client)
	r.release(server)
	copying.Wait()
}

// pass forwards replies until one is lost or the connection ends.
func (r *Redis) pass(client io.Writer, server *bufio.Reader) {
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

func (r *Redis) loses() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replies++
	return r.replies == r.lose || r.rest && r.replies > r.lose
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
