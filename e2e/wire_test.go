package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/quic-go/qpack"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/quicvarint"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// This file sends requests byte for byte over each protocol, including those that no client library sends.

const (
	// apiHost is the host that raw requests name.
	apiHost    = "api.example.com"
	eventsPath = "/api/v1/events"
	// lastRequest ends a conversation: the server responds to it and closes the connection.
	lastRequest = "GET /healthz HTTP/1.1\r\nHost: last.example.com\r\nConnection: close\r\n\r\n"
)

// field is one header or pseudo-header as sent.
type field struct{ name, value string }

// signedFields are the headers of a signed request.
func signedFields(c gatewaytest.Caller, method, target, body string) []field {
	return signedAt(c, time.Now(), method, target, body)
}

// signedAt are the headers of a request that was signed at a given time.
func signedAt(c gatewaytest.Caller, at time.Time, method, target, body string) []field {
	return []field{
		{"x-public-key", c.PublicKey},
		{"x-timestamp", strconv.FormatInt(at.Unix(), 10)},
		{"x-signature", authsigner.Sign(c.PrivateKey, at.Unix(), method, target, []byte(body))},
	}
}

// signedLines are the headers of a signed request as HTTP/1.1 has them.
func signedLines(c gatewaytest.Caller, method, target, body string) string {
	return linesOf(signedFields(c, method, target, body))
}

func linesOf(fields []field) string {
	var b strings.Builder
	for _, f := range fields {
		fmt.Fprintf(&b, "%s: %s\r\n", f.name, f.value)
	}
	return b.String()
}

func headerOf(fields []field) http.Header {
	h := http.Header{}
	for _, f := range fields {
		h.Add(f.name, f.value)
	}
	return h
}

// lowerCase writes names as HTTP/2 and HTTP/3 do.
func lowerCase(fields []field) []field {
	lower := make([]field, len(fields))
	for i, f := range fields {
		lower[i] = field{strings.ToLower(f.name), f.value}
	}
	return lower
}

// h2Request are the pseudo-headers of a request in plain text.
func h2Request(method, target string) []field { return pseudo("http", method, apiHost, target) }

// h3Request are the pseudo-headers of a request over HTTP/3.
func h3Request(method, target string) []field { return pseudo("https", method, apiHost, target) }

func pseudo(scheme, method, host, target string) []field {
	return []field{{":method", method}, {":scheme", scheme}, {":authority", host}, {":path", target}}
}

// rawConn is a connection for raw bytes.
type rawConn struct {
	net.Conn
	r *bufio.Reader
}

// dial opens a connection and sends the first bytes.
func dial(t *testing.T, addr, first string) *rawConn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(conn, first)
	require.NoError(t, err)
	return &rawConn{Conn: conn, r: bufio.NewReader(conn)}
}

// requireClosed waits until the server has ended the connection.
func (c *rawConn) requireClosed(t *testing.T) {
	t.Helper()
	_, err := io.Copy(io.Discard, c.r)
	require.False(t, isTimeout(err), "the connection is still open")
	require.NoError(t, c.Close())
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// readResponse reads one response, an informational one too.
func readResponse(r *bufio.Reader, method string) (gatewaytest.Response, error) {
	res, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		return gatewaytest.Response{}, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if res.Close {
		res.Header.Set("Connection", "close") // ReadResponse removes it
	}
	return gatewaytest.Response{Status: res.StatusCode, Header: res.Header, Body: string(body)}, err
}

// converse sends bytes over one connection and reads responses until the server closes it. It reports whether the server did so
// in time; what is not a response fails the test. Methods are those of the requests; GET where there are none.
func converse(t *testing.T, addr, bytes string, methods ...string) (responses []gatewaytest.Response, closed bool) {
	t.Helper()
	conn := dial(t, addr, "")
	defer func() { _ = conn.Close() }()
	go func() { _, _ = io.WriteString(conn, bytes) }() // a server that refuses early does not read the rest
	for {
		method := http.MethodGet
		if len(methods) > len(responses) {
			method = methods[len(responses)]
		}
		a, err := readResponse(conn.r, method)
		if isTimeout(err) {
			return responses, false
		}
		if err != nil {
			rest, _ := conn.r.Peek(conn.r.Buffered())
			require.True(t, endsConnection(err), "%v, before %q, after %q", err, rest, bytes)
			return responses, true
		}
		if a.Status >= http.StatusOK {
			responses = append(responses, a)
		}
	}
}

// endsConnection reports whether an error means that the server has closed the connection.
func endsConnection(err error) bool {
	return slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE}, func(end error) bool { return errors.Is(err, end) })
}

// h2Conn speaks HTTP/2 frame by frame.
type h2Conn struct {
	t      *testing.T
	conn   net.Conn
	framer *http2.Framer
	block  bytes.Buffer
	enc    *hpack.Encoder
	next   uint32
}

func dialH2(t *testing.T, addr string) *h2Conn {
	t.Helper()
	conn := dial(t, addr, http2.ClientPreface)
	c := &h2Conn{t: t, conn: conn, framer: http2.NewFramer(conn, conn), next: 1}
	c.enc = hpack.NewEncoder(&c.block)
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.framer.AllowIllegalWrites = true
	const window = 16 << 20 // larger than all responses on the connection
	require.NoError(t, c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}))
	require.NoError(t, c.framer.WriteWindowUpdate(0, window))
	return c
}

// do sends one request on a stream of its own. The status is 0 if the server ends the stream or connection without a response.
func (c *h2Conn) do(body string, fields ...field) gatewaytest.Response {
	c.t.Helper()
	id, err := c.open(body == "", fields...)
	if err == nil && body != "" {
		err = c.framer.WriteData(id, true, []byte(body))
	}
	if err != nil {
		return gatewaytest.Response{} // the server has closed the connection in the middle
	}
	return c.read(id)
}

// open sends the headers of a request, and its end if it is whole.
func (c *h2Conn) open(whole bool, fields ...field) (id uint32, err error) {
	c.t.Helper()
	require.NoError(c.t, c.conn.SetDeadline(time.Now().Add(patience)))
	id = c.next
	c.next += 2
	c.block.Reset()
	for _, f := range fields {
		require.NoError(c.t, c.enc.WriteField(hpack.HeaderField{Name: f.name, Value: f.value}))
	}
	const frame = 16 << 10
	part, rest := c.block.Next(frame), c.block.Bytes()
	err = c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: part, EndStream: whole, EndHeaders: len(rest) == 0})
	for err == nil && len(rest) > 0 {
		part, rest = rest[:min(frame, len(rest))], rest[min(frame, len(rest)):]
		err = c.framer.WriteContinuation(id, len(rest) == 0, part)
	}
	return id, err
}

// fill sends as much of a body as the server takes, and returns how many bytes that is.
func (c *h2Conn) fill(id uint32) (sent int) {
	c.t.Helper()
	const initial = 64<<10 - 1 // RFC 9113, section 6.9.2
	connection, stream := initial, initial
	var ping [8]byte
	for {
		require.Less(c.t, sent, 16<<20, "the body is read")
		require.NoError(c.t, c.framer.WritePing(false, ping))
		for answered := false; !answered; { // and before that come the windows of what the server has read
			f, err := c.framer.ReadFrame()
			require.NoError(c.t, err)
			switch f := f.(type) {
			case *http2.SettingsFrame:
				if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
					stream = int(v)
				}
			case *http2.WindowUpdateFrame:
				if f.StreamID == 0 {
					connection += int(f.Increment)
				} else {
					stream += int(f.Increment)
				}
			case *http2.PingFrame:
				answered = f.IsAck()
			}
		}
		rest := min(connection, stream) - sent
		if rest == 0 {
			return sent
		}
		for ; rest > 0; rest = min(connection, stream) - sent {
			data := make([]byte, min(rest, 16<<10))
			require.NoError(c.t, c.framer.WriteData(id, false, data))
			sent += len(data)
		}
	}
}

func (c *h2Conn) read(id uint32) (a gatewaytest.Response) {
	for {
		f, err := c.framer.ReadFrame()
		if err != nil {
			return gatewaytest.Response{}
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = c.framer.WriteSettingsAck()
			}
		case *http2.GoAwayFrame:
			return gatewaytest.Response{}
		case *http2.RSTStreamFrame:
			if f.StreamID == id {
				return gatewaytest.Response{}
			}
		case *http2.MetaHeadersFrame:
			if f.StreamID != id {
				continue
			}
			a.Header = http.Header{}
			for _, h := range f.RegularFields() {
				a.Header.Add(h.Name, h.Value)
			}
			a.Status, _ = strconv.Atoi(f.PseudoValue("status"))
			if a.Status >= http.StatusOK && f.StreamEnded() {
				return a
			}
		case *http2.DataFrame:
			if f.StreamID != id {
				continue
			}
			a.Body += string(f.Data())
			if f.StreamEnded() {
				return a
			}
		}
	}
}

// The types of frames and streams of RFC 9114.
const (
	h3FrameData     = 0x0
	h3FrameHeaders  = 0x1
	h3FrameSettings = 0x4
	h3StreamControl = 0x0
)

// h3Client speaks HTTP/3 frame by frame over QUIC. It dials anew when the server has ended the connection.
type h3Client struct {
	t    *testing.T
	addr string
	tls  *tls.Config
	conn *quic.Conn
}

func newH3Client(t *testing.T, addr string, roots *x509.CertPool) *h3Client {
	t.Helper()
	c := &h3Client{t: t, addr: addr, tls: &tls.Config{RootCAs: roots, ServerName: apiHost, NextProtos: []string{"h3"}}}
	t.Cleanup(c.closeConn)
	return c
}

func (c *h3Client) closeConn() {
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

func appendH3Frame(b []byte, kind uint64, payload []byte) []byte {
	b = quicvarint.Append(b, kind)
	b = quicvarint.Append(b, uint64(len(payload)))
	return append(b, payload...)
}

// do sends one request on a stream of its own. The status is 0 if the server ends the stream or connection without a response.
func (c *h3Client) do(body string, fields ...field) gatewaytest.Response {
	c.t.Helper()
	request := h3Headers(fields...)
	if body != "" {
		request = appendH3Frame(request, h3FrameData, []byte(body))
	}
	a, err := c.exchange(request, true)
	if err != nil {
		c.closeConn() // the next request uses another connection
		return gatewaytest.Response{}
	}
	return a
}

// exchange sends bytes on a stream, and its end if the request is whole, and reads the response.
func (c *h3Client) exchange(request []byte, whole bool) (gatewaytest.Response, error) {
	c.t.Helper()
	c.dial()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	stream, err := c.conn.OpenStreamSync(ctx)
	if err != nil {
		return gatewaytest.Response{}, err
	}
	if err := stream.SetDeadline(time.Now().Add(patience)); err != nil {
		return gatewaytest.Response{}, err
	}
	_, sent := stream.Write(request) // a server that refuses early reads no further, and may have responded
	if whole {
		_ = stream.Close()
	} else {
		defer stream.CancelWrite(0x10c) // H3_REQUEST_CANCELLED
	}
	a, err := readH3Response(stream)
	stream.CancelRead(0)
	if err != nil {
		return gatewaytest.Response{}, errors.Join(err, sent)
	}
	return a, nil
}

func readH3Response(stream io.Reader) (a gatewaytest.Response, err error) {
	r := bufio.NewReader(stream)
	for {
		kind, err := quicvarint.Read(r)
		if errors.Is(err, io.EOF) && a.Status != 0 {
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
		switch {
		case kind == h3FrameData:
			a.Body += string(payload)
		case kind == h3FrameHeaders && a.Status == 0: // or else they are trailers
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
		switch {
		case errors.Is(err, io.EOF):
			status, err = strconv.Atoi(h.Get(":status"))
			delete(h, ":status")
			return status, h, err
		case err != nil:
			return 0, nil, err
		}
		h.Add(f.Name, f.Value)
	}
}

// sender sends one request as is over one of the protocols.
type sender func(method, target string, fields []field) gatewaytest.Response

const (
	overHTTP1 = "HTTP/1.1"
	overHTTP2 = "HTTP/2"
	overHTTP3 = "HTTP/3"
)

// wires send the same request over HTTP/1.1 and HTTP/2, and over HTTP/3 if there is a client. The test logs how many.
func wires(t *testing.T, g *gatewaytest.Gateway, h3 *h3Client) map[string]sender {
	t.Helper()
	all := map[string]sender{
		overHTTP1: func(method, target string, fields []field) gatewaytest.Response {
			return raw(t, g.Addr, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", method, target, apiHost, linesOf(fields))+lastRequest, method)
		},
		overHTTP2: func(method, target string, fields []field) gatewaytest.Response {
			return dialH2(t, g.Addr).do("", append(h2Request(method, target), lowerCase(fields)...)...)
		},
	}
	if h3 != nil {
		all[overHTTP3] = func(method, target string, fields []field) gatewaytest.Response {
			return h3.do("", append(h3Request(method, target), lowerCase(fields)...)...)
		}
	}
	for protocol, send := range all {
		n := new(atomic.Int64)
		all[protocol] = func(method, target string, fields []field) gatewaytest.Response {
			n.Add(1)
			return send(method, target, fields)
		}
		t.Cleanup(func() { t.Logf("%d requests over %s", n.Load(), protocol) })
	}
	return all
}

// raw sends bytes and returns the first response; its status is 0 if there is none. Methods are those of converse.
func raw(t *testing.T, addr, request string, methods ...string) gatewaytest.Response {
	t.Helper()
	responses, _ := converse(t, addr, request, methods...)
	return append(responses, gatewaytest.Response{})[0]
}

// attack is a gateway under attack, with a data service that records the requests that reach it.
type attack struct {
	*environment
	clientIPs
	data *recorder
	g    *gatewaytest.Gateway
	h3   *h3Client
	over map[string]sender

	checked int // requests of data that requireNothingSmuggled has seen
}

// newAttack starts a gateway that serves the same site in plain text and by HTTPS. servers, app and api are put into the
// options of the same names.
func newAttack(t *testing.T, servers, app, api string) *attack {
	t.Helper()
	a := &attack{data: &recorder{}}
	a.environment = newEnvironment(t, a.data)
	o := a.options(highLimits+"\n\t\t"+app, api)
	o.Servers = servers
	a.serve(t, o)
	return a
}

func (s *attack) serve(t *testing.T, o gatewaytest.Options) {
	t.Helper()
	s.g, s.h3 = startEverywhere(t, o)
	s.over = wires(t, s.g, s.h3)
}

// startEverywhere starts a gateway that serves the same site in plain text and by HTTPS for apiHost.
func startEverywhere(t *testing.T, o gatewaytest.Options) (*gatewaytest.Gateway, *h3Client) {
	t.Helper()
	secure := gatewaytest.FreeAddr(t)
	_, port, _ := net.SplitHostPort(secure)
	o.CA = true
	o.Extra += "https://" + apiHost + ":" + port + " {\n\ttls internal\n\t" + o.Site + "\n}\n"
	g := gatewaytest.Start(t, o)
	return g, newH3Client(t, secure, g.Roots(t, secure, apiHost))
}
