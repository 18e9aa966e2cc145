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
	"github.com/stretchr/testify/require"
)

// deaf is a socket on which nothing is heard until it is allowed. What a QUIC client sends meanwhile proves nothing of
// where it is: whoever can write an address into a packet could have sent it.
type deaf struct {
	net.PacketConn
	until chan struct{}
}

func (d deaf) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := d.PacketConn.ReadFrom(b)
	if err == nil {
		<-d.until
	}
	return n, from, err
}

// Over HTTP/3 a returning client may send a request with its first packet (0-RTT), before the server knows that the packet comes
// from where it says. Until the address is proved, the response is 425 (RFC 8470, section 5.2), nothing counts against the
// address and nothing is looked up.
func TestEarlyDataIsNotServedBeforeAddressValidation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
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
	}, patience, 10*time.Millisecond, "the server has sent no ticket")
	first.hangUp()

	socket, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	require.NoError(t, err)
	until := make(chan struct{})
	hear := sync.OnceFunc(func() { close(until) })
	transport := &quic.Transport{Conn: deaf{socket, until}}
	t.Cleanup(func() {
		hear()
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
		h3Request("GET", "/.well-known/oauth-authorization-server"), // and the connection server as the API
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
		"the gateway has had the requests, from an address that nobody has proved")
	hear()
	for i, stream := range streams {
		a, err = readH3Answer(stream)
		require.NoError(t, err)
		if i == len(streams)-1 {
			require.Equal(t, http.StatusTooEarly, a.Status)
			require.Contains(t, a.Body, `"error":"invalid_request"`, "in OAuth's own format")
		} else {
			requireProblem(t, a, http.StatusTooEarly, "BAD_REQUEST")
		}
		require.Empty(t, a.Header.Get("RateLimit"), "nobody is charged")
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
	require.Equal(t, "8", a.Header.Get("X-RateLimit-Remaining"), "the second that counts")
}
