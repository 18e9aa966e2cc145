package caddymodule

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// drainPatience is the timeout of these tests.
const drainPatience = time.Minute

// startDrain starts a server behind a Drain, and opens a connection that the server has accepted and that sends nothing.
func startDrain(t *testing.T, wait time.Duration) (*Drain, *http.Server, net.Conn, chan error) {
	t.Helper()
	h := &Drain{Wait: caddy.Duration(wait), logger: zap.NewNop()}
	inner, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }),
		ConnState:         h.observe,
		ReadHeaderTimeout: drainPatience,
	}
	ln := h.WrapListener(inner)
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	conn, err := net.DialTimeout("tcp", inner.Addr().String(), drainPatience)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = conn.Close()
		_ = server.Close()
	})
	require.NoError(t, conn.SetDeadline(time.Now().Add(drainPatience)))
	// A connection that has been accepted is not yet the server's to close.
	require.Eventually(t, func() bool {
		known := 0
		h.newConns.Range(func(any, any) bool { known++; return true })
		return known == 1
	}, drainPatience, time.Millisecond)
	require.EqualValues(t, 1, h.waiting.Load())
	return h, server, conn, served
}

func TestDrainRefusesConnectionsAndWaitsForFirstRequests(t *testing.T) {
	t.Parallel()
	h, server, conn, served := startDrain(t, drainPatience)
	done := make(chan error, 1)
	go func() { done <- h.Handle(t.Context(), caddy.Event{}) }()
	require.Eventually(t, func() bool {
		another, err := net.DialTimeout("tcp", conn.RemoteAddr().String(), drainPatience)
		if err == nil {
			_ = another.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	}, drainPatience, time.Millisecond)
	require.Empty(t, done)
	require.Empty(t, served, "the server does not know yet")

	_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	assert.Equal(t, http.StatusNoContent, res.StatusCode)
	require.NoError(t, <-done)
	require.NoError(t, server.Shutdown(t.Context()))
	require.ErrorIs(t, <-served, http.ErrServerClosed)
}

func TestDrainDoesNotWaitForever(t *testing.T) {
	t.Parallel()
	h, server, conn, served := startDrain(t, 20*time.Millisecond)
	require.NoError(t, h.Handle(t.Context(), caddy.Event{}))
	require.NoError(t, server.Close())
	require.ErrorIs(t, <-served, http.ErrServerClosed)
	_, err := conn.Read(make([]byte, 1))
	require.Error(t, err)
	require.Eventually(t, func() bool { return h.waiting.Load() == 0 }, drainPatience, time.Millisecond)
}

func TestDrainClosesAnUnservedListener(t *testing.T) {
	t.Parallel()
	h := &Drain{Wait: caddy.Duration(drainPatience), logger: zap.NewNop()}
	inner, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ln := h.WrapListener(inner)
	require.NoError(t, ln.Close())
	require.NoError(t, ln.Close())
	_, err = ln.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
	require.NoError(t, h.Handle(t.Context(), caddy.Event{}))
}
