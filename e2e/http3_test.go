package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/qpack"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/quicvarint"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// apiHost is the host that raw requests name.
const apiHost = "api.example.com"

// What RFC 9114 calls the types of frames and streams.
const (
	h3FrameData     = 0x0
	h3FrameHeaders  = 0x1
	h3FrameSettings = 0x4
	h3StreamControl = 0x0
)

// h3Client speaks HTTP/3 frame by frame over QUIC, so that what no client library sends can be sent. It dials anew when
// the server has ended the connection.
type h3Client struct {
	t    *testing.T
	addr string
	tls  *tls.Config
	conn *quic.Conn
}

func newH3Client(t *testing.T, addr string, roots *x509.CertPool) *h3Client {
	t.Helper()
	c := &h3Client{t: t, addr: addr, tls: &tls.Config{RootCAs: roots, ServerName: apiHost, NextProtos: []string{"h3"}}}
	t.Cleanup(c.hangUp)
	return c
}

func (c *h3Client) hangUp() {
	if c.conn != nil {
		_ = c.conn.CloseWithError(0x100, "") // H3_NO_ERROR
		c.conn = nil
	}
}

func (c *h3Client) dial() {
	c.t.Helper()
	if c.conn != nil && c.conn.Context().Err() == nil {
		return
	}
	conn, err := quic.DialAddr(c.t.Context(), c.addr, c.tls, &quic.Config{HandshakeIdleTimeout: patience})
	require.NoError(c.t, err)
	c.conn = conn
	control, err := conn.OpenUniStream()
	require.NoError(c.t, err)
	_, err = control.Write([]byte{h3StreamControl, h3FrameSettings, 0})
	require.NoError(c.t, err)
}

// h3Headers is a frame of headers.
func h3Headers(fields ...field) []byte {
	var block bytes.Buffer
	enc := qpack.NewEncoder(&block)
	for _, f := range fields {
		_ = enc.WriteField(qpack.HeaderField{Name: f.name, Value: f.value}) // into a buffer
	}
	return appendH3Frame(nil, h3FrameHeaders, block.Bytes())
}

// do sends one request on a stream of its own. A stream or connection that the server ends without an answer is status 0.
func (c *h3Client) do(body string, fields ...field) gatewaytest.Answer {
	c.t.Helper()
	request := h3Headers(fields...)
	if body != "" {
		request = appendH3Frame(request, h3FrameData, []byte(body))
	}
	a, err := c.exchange(request, true)
	if err != nil {
		c.hangUp() // whatever the server thinks of this connection, the next request gets another
		return gatewaytest.Answer{}
	}
	return a
}

func appendH3Frame(b []byte, kind uint64, payload []byte) []byte {
	b = quicvarint.Append(b, kind)
	b = quicvarint.Append(b, uint64(len(payload)))
	return append(b, payload...)
}

// exchange sends bytes on a stream, and its end, if the request is whole, and reads the answer.
func (c *h3Client) exchange(request []byte, whole bool) (gatewaytest.Answer, error) {
	c.t.Helper()
	c.dial()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	stream, err := c.conn.OpenStreamSync(ctx)
	if err != nil {
		return gatewaytest.Answer{}, err
	}
	if err := stream.SetDeadline(time.Now().Add(patience)); err != nil {
		return gatewaytest.Answer{}, err
	}
	_, sent := stream.Write(request) // a server that refuses early reads no further, and may have answered
	if whole {
		_ = stream.Close()
	} else {
		defer stream.CancelWrite(0x10c) // H3_REQUEST_CANCELLED
	}
	a, err := readH3Answer(stream)
	stream.CancelRead(0)
	if err != nil {
		return gatewaytest.Answer{}, errors.Join(err, sent)
	}
	return a, nil
}

func readH3Answer(stream io.Reader) (gatewaytest.Answer, error) {
	var (
		a    gatewaytest.Answer
		text strings.Builder
		r    = bufio.NewReader(stream)
	)
	for {
		kind, err := quicvarint.Read(r)
		if errors.Is(err, io.EOF) && a.Status != 0 {
			a.Body = text.String()
			return a, nil
		}
		if err != nil {
			return a, err
		}
		size, err := quicvarint.Read(r)
		if err != nil {
			return a, err
		}
		payload := make([]byte, size)
		if _, err := io.ReadFull(r, payload); err != nil {
			return a, err
		}
		switch kind {
		case h3FrameData:
			text.Write(payload)
		case h3FrameHeaders:
			if a.Status >= http.StatusOK {
				continue // trailers
			}
			if a.Status, a.Header, err = decodeH3Headers(payload); err != nil {
				return a, err
			}
			if a.Status < http.StatusOK {
				a.Status = 0
			}
		}
	}
}

func decodeH3Headers(block []byte) (status int, h http.Header, err error) {
	h = http.Header{}
	next := qpack.NewDecoder().Decode(block)
	for {
		f, err := next()
		if errors.Is(err, io.EOF) {
			return status, h, nil
		}
		if err != nil {
			return 0, nil, err
		}
		if f.Name == ":status" {
			if status, err = strconv.Atoi(f.Value); err != nil {
				return 0, nil, err
			}
			continue
		}
		h.Add(f.Name, f.Value)
	}
}

// sender sends one request as it stands over one of the protocols.
type sender func(method, target string, fields []field) gatewaytest.Answer

const (
	overHTTP1 = "HTTP/1.1"
	overHTTP2 = "HTTP/2"
	overHTTP3 = "HTTP/3"
)

// everywhere starts a gateway that serves the same site in plain text and by HTTPS, and returns ways to send the same
// request to it over HTTP/1.1, HTTP/2 and HTTP/3.
func everywhere(t *testing.T, o gatewaytest.Options) (*gatewaytest.Gateway, map[string]sender) {
	t.Helper()
	g, client := startEverywhere(t, o)
	all := wires(t, g)
	all[overHTTP3] = counted(t, map[string]sender{overHTTP3: func(method, target string, fields []field) gatewaytest.Answer {
		return client.do("", append(h3Request(method, target), lowerCase(fields)...)...)
	}})[overHTTP3]
	return g, all
}

// startEverywhere is everywhere for tests that speak HTTP/3 frame by frame.
func startEverywhere(t *testing.T, o gatewaytest.Options) (*gatewaytest.Gateway, *h3Client) {
	t.Helper()
	secure := gatewaytest.FreeAddr(t)
	_, port, _ := strings.Cut(secure, ":")
	o.Extra += "https://" + apiHost + ":" + port + " {\n\ttls internal\n\t" + o.Site + "\n}\n"
	g := gatewaytest.New(t, o)
	return g, startSecure(t, g, o, secure)
}

// startSecure starts a gateway that serves apiHost by HTTPS, HTTP/3 included, at an address.
func startSecure(t *testing.T, g *gatewaytest.Gateway, o gatewaytest.Options, secure string) *h3Client {
	t.Helper()
	text := o.Caddyfile(g.Addr, strings.TrimPrefix(g.AdminURL, "http://"))
	for from, to := range map[string]string{
		"auto_https off":        "auto_https disable_redirects\n\tskip_install_trust",
		"protocols h1 h2 h2c\n": "protocols h1 h2 h2c h3\n",
	} {
		require.Equal(t, 1, strings.Count(text, from), from)
		text = strings.Replace(text, from, to, 1)
	}
	g.Write(t, text)
	g.Run(t)

	roots := x509.NewCertPool()
	require.Eventually(t, func() bool {
		root, err := os.ReadFile(filepath.Join(g.Dir, "caddy", "pki", "authorities", "local", "root.crt"))
		return err == nil && roots.AppendCertsFromPEM(root)
	}, patience, 20*time.Millisecond)
	// the certificate comes a moment after the port
	require.Eventually(t, func() bool {
		conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: apiHost}}).DialContext(t.Context(), "tcp", secure)
		return err == nil && conn.Close() == nil
	}, patience, 20*time.Millisecond)

	return newH3Client(t, secure, roots)
}

// h3Request are the pseudo-headers of a request over HTTP/3.
func h3Request(method, target string) []field { return pseudo("https", method, target) }

// pseudo are the pseudo-headers of a request over HTTP/2 or HTTP/3.
func pseudo(scheme, method, target string) []field {
	return []field{{":method", method}, {":scheme", scheme}, {":authority", apiHost}, {":path", target}}
}

// lowerCase writes names as HTTP/2 and HTTP/3 do.
func lowerCase(fields []field) []field {
	lower := make([]field, len(fields))
	for i, f := range fields {
		lower[i] = field{strings.ToLower(f.name), f.value}
	}
	return lower
}

// behindOne are options of a gateway that takes the caller's address from a proxy on this machine.
func behindOne(o gatewaytest.Options) gatewaytest.Options {
	o.Servers += trustThisMachine
	return o
}

// roomyLimits are limits that nobody reaches.
const roomyLimits = "limits {\n\t\t\tper_key 1000000\n\t\t\tper_ip 1000000\n\t\t}"

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

// Over HTTP/3 a client that was here before may send a request with its first packet (0-RTT), before the server knows that
// the packet comes from where it says. Whoever writes another's address there must not spend that address's budget, nor
// have one for each address that it can think of: until the address is proved, the answer is 425 (RFC 8470, section 5.2),
// nothing is charged and nothing is looked up.
func TestEarlyDataFromAnUnprovedAddressIsNeitherServedNorCharged(t *testing.T) {
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
