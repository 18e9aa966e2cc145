package e2e_test

import (
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// mutedConn is a socket that receives nothing until a channel is closed, so that the server cannot validate its address.
type mutedConn struct {
	net.PacketConn
	until chan struct{}
}

func (d mutedConn) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := d.PacketConn.ReadFrom(b)
	if err == nil {
		<-d.until
	}
	return n, from, err
}

// Over HTTP/3, a returning client may send a request in its first packet (0-RTT). Until its address is validated, the response is 425
// (RFC 8470, section 5.2), nothing counts against the client IP and nothing is looked up.
func TestEarlyDataIsNotServedBeforeAddressValidation(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	o := w.options("assertion "+writeAssertionKey(t), "")
	o.Site = "gatehouse_connect {\n\t\tissuer https://" + apiHost + "\n\t\tupstream " + w.dataURL + "\n\t}\n\t" + o.Site
	g, first := startEverywhere(t, o)
	first.tls.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	status := h3Request("GET", "/api/v1/status")
	a := first.do("", status...)
	require.Equal(t, http.StatusOK, a.Status)
	require.Equal(t, "9", a.Header.Get("X-RateLimit-Remaining"))
	require.Eventually(t, func() bool {
		_, ok := first.tls.ClientSessionCache.Get(apiHost)
		return ok
	}, patience, 10*time.Millisecond, "the server has sent no session ticket")
	first.closeConn()

	socket, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	require.NoError(t, err)
	until := make(chan struct{})
	unmute := sync.OnceFunc(func() { close(until) })
	transport := &quic.Transport{Conn: mutedConn{socket, until}}
	t.Cleanup(func() {
		unmute()
		require.NoError(t, transport.Close())
		_ = socket.Close()
	})
	to, err := net.ResolveUDPAddr("udp", first.addr)
	require.NoError(t, err)
	conn, err := transport.DialEarly(t.Context(), to, first.tls, &quic.Config{HandshakeIdleTimeout: patience})
	require.NoError(t, err)
	var streams []*quic.Stream
	for _, fields := range [][]field{
		status, append(h3Request("GET", "/api/v1/me"), signedFields(w.acme, "GET", "/api/v1/me", "")...),
		h3Request("GET", "/.well-known/oauth-authorization-server"), // the connection server too
	} {
		stream, err := conn.OpenStream()
		require.NoError(t, err)
		require.NoError(t, stream.SetDeadline(time.Now().Add(2*patience)))
		_, err = stream.Write(h3Headers(fields...))
		require.NoError(t, err)
		require.NoError(t, stream.Close())
		streams = append(streams, stream)
	}
	require.Eventually(t, func() bool { return strings.Count(g.Output(), `"status":425`) == len(streams) }, patience, 10*time.Millisecond,
		"the gateway has not received the requests")
	unmute()
	for i, stream := range streams {
		a, err = readH3Response(stream)
		require.NoError(t, err)
		if i == len(streams)-1 {
			require.Equal(t, http.StatusTooEarly, a.Status)
			require.Contains(t, a.Body, `"error":"invalid_request"`, "in OAuth's own format")
		} else {
			requireProblem(t, a, http.StatusTooEarly, "BAD_REQUEST")
		}
		assert.Empty(t, a.Header.Get("RateLimit"), "the request counted")
	}
	select {
	case <-conn.HandshakeComplete():
	case <-time.After(patience):
		require.Fail(t, "no handshake")
	}
	require.True(t, conn.ConnectionState().Used0RTT)
	second := newH3Client(t, first.addr, nil)
	second.conn = conn
	require.Eventually(t, func() bool { // the server learns of it a moment later
		a, err = second.exchange(h3Headers(status...), true)
		return err == nil && a.Status == http.StatusOK
	}, patience, 10*time.Millisecond)
	assert.Equal(t, "8", a.Header.Get("X-RateLimit-Remaining"), "only two requests count")
}
