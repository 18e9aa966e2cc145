package e2e_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
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
	o.Site = "handle /shop/* {\n\t\tgatehouse_auth shop\n\t\trespond hello\n\t}\n\tgatehouse_connect {\n\t\tissuer https://" + apiHost + "\n\t\tupstream " + w.dataURL + "\n\t}\n\t" + o.Site
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

	lookups := func() float64 { return g.Metric(t, "gatehouse_credential_events_total", `event="found"`) }
	looked := lookups()
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
		append(h3Request("GET", "/shop/x"), signedFields(w.acme, "GET", "/shop/x", "")...),
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
	assert.InDelta(t, looked, lookups(), 0, "lookups")
}

// A client that reads too slowly gets a part of the response. On no wire does that end as if it were complete, whether or not the client
// compares Content-Length.
//
//nolint:tparallel // the subtests count the lines of one log
func TestResponseCutOffByTheWriteTimeoutIsAborted(t *testing.T) {
	t.Parallel()
	const target, size = "/api/v1/offerings?per_page=100", 7 << 20 // more than the sockets' buffers hold
	var page strings.Builder
	w := newEnvironment(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		respondWith(http.StatusOK, "application/json", page.String())(w, r)
	}))
	page.WriteString(`{"offerings":[`)
	for i := range 100 {
		if i > 0 {
			page.WriteByte(',')
		}
		fmt.Fprintf(&page, `{"id":"00000000-0000-4000-8000-%012d","business_id":%q,"description":%q}`, i, w.acmeID, strings.Repeat("n", size/100))
	}
	page.WriteString(`],"pagination":{"current_page":1,"per_page":100,"total_items":100,"total_pages":1}}`)
	o := w.options(highLimits, "timeout 1m")
	o.Servers = "timeouts {\n\t\t\twrite 2s\n\t\t}"
	g, h3 := startEverywhere(t, o)
	lines := 0
	awaitEnd := func() { // of the gateway's attempts to write
		lines++
		require.Eventually(t, func() bool { return strings.Count(g.Output(), `"cause":"writing the response: `) == lines }, patience, 10*time.Millisecond)
	}

	t.Run(overHTTP1, func(t *testing.T) {
		conn := dial(t, g.Addr, "GET "+target+" HTTP/1.1\r\nHost: x\r\n"+signedLines(w.acme, "GET", target, "")+"\r\n")
		awaitEnd()
		_, err := readResponse(conn.r, http.MethodGet)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	})
	// With a small window, the server waits for more of it; with a large one, for the socket.
	for _, window := range []uint32{64 << 10, 16 << 20} {
		t.Run(fmt.Sprint(overHTTP2, " with a window of ", window), func(t *testing.T) {
			c := dialH2(t, g.Addr)
			require.NoError(t, c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}))
			id, err := c.open(true, append(h2Request("GET", target), signedFields(w.acme, "GET", target, "")...)...)
			require.NoError(t, err)
			awaitEnd()
			for {
				f, err := c.framer.ReadFrame()
				if window > 1<<20 && err != nil {
					return // the end of the connection
				}
				require.NoError(t, err)
				if data, ok := f.(*http2.DataFrame); ok {
					require.False(t, data.StreamEnded(), "a clean end")
				}
				if _, ok := f.(*http2.RSTStreamFrame); ok && f.Header().StreamID == id {
					return
				}
			}
		})
	}
	t.Run(overHTTP3, func(t *testing.T) {
		h3.dial()
		stream, err := h3.conn.OpenStreamSync(t.Context())
		require.NoError(t, err)
		require.NoError(t, stream.SetDeadline(time.Now().Add(patience)))
		_, err = stream.Write(h3Headers(append(h3Request("GET", target), signedFields(w.acme, "GET", target, "")...)...))
		require.NoError(t, err)
		require.NoError(t, stream.Close())
		awaitEnd()
		_, err = io.Copy(io.Discard, stream)
		var reset *quic.StreamError
		require.ErrorAs(t, err, &reset)
	})
	require.Equal(t, lines, strings.Count(g.Output(), `"msg":"request"`), "one line for each request")
}
