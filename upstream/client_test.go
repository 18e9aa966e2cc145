package upstream_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// serveFunc starts a data service.
type serveFunc = func(testing.TB, script) *rawService

// onEveryWire runs a test with data services over cleartext and over TLS.
func onEveryWire(t *testing.T, test func(*testing.T, serveFunc)) {
	t.Helper()
	t.Parallel()
	for name, serve := range map[string]serveFunc{"plain": servePlain, "TLS": serveTLS} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, serve)
		})
	}
}

// rawService is a data service on raw sockets.
type rawService struct {
	secure   bool // over TLS
	ln       net.Listener
	conns    chan net.Conn // the first connections
	accepted atomic.Int64
	received atomic.Int64 // requests
}

// script returns what a service writes for a request such as "GET /path body", with the numbers, from 0, of the connection
// and of the request on it. If ok is false, the connection is closed afterwards.
type script func(conn, n int, request string) (response string, ok bool)

// respond returns a script with one response.
func respond(response string, ok bool) script {
	return func(int, int, string) (string, bool) { return response, ok }
}

// first returns a script with the given response to the first request and "honest" to all others. It closes no connection.
func first(response string) script {
	return func(conn, n int, _ string) (string, bool) {
		if conn == 0 && n == 0 {
			return response, true
		}
		return sized("honest"), true
	}
}

func servePlain(tb testing.TB, run script) *rawService {
	tb.Helper()
	return serveRaw(tb, run, false)
}

func serveTLS(tb testing.TB, run script) *rawService {
	tb.Helper()
	return serveRaw(tb, run, true)
}

// identity is the certificate of data services over TLS.
var identity = sync.OnceValue(func() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), nil)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"data.internal"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
})

// serverTLS and clientTLS resume sessions, which saves most of the time of thousands of handshakes.
var (
	serverTLS = sync.OnceValue(func() *tls.Config { return &tls.Config{Certificates: []tls.Certificate{identity()}} })
	sharedTLS = sync.OnceValue(func() *tls.Config {
		roots := x509.NewCertPool()
		roots.AddCert(identity().Leaf)
		return &tls.Config{
			RootCAs: roots, ServerName: "data.internal", NextProtos: []string{"http/1.1"},
			ClientSessionCache: tls.NewLRUClientSessionCache(0),
		}
	})
)

func clientTLS(context.Context) *tls.Config { return sharedTLS() }

// serveRaw starts a data service.
func serveRaw(tb testing.TB, run script, secure bool) *rawService {
	tb.Helper()
	var s *rawService
	ready := make(chan struct{})
	s = serveSockets(tb, func(number int, conn net.Conn) {
		<-ready
		if secure {
			conn = tls.Server(conn, serverTLS())
		}
		select {
		case s.conns <- conn:
		default:
		}
		s.serve(conn, number, run)
	})
	s.secure = secure
	close(ready)
	return s
}

// serveSockets calls serve with each connection. It listens on a Unix socket, because thousands of services would exhaust the
// ports of the machine.
func serveSockets(tb testing.TB, serve func(number int, socket net.Conn)) *rawService {
	tb.Helper()
	dir, err := os.MkdirTemp("", "raw") //nolint:usetesting // a test's own folder may have too long a name for a socket
	require.NoError(tb, err)
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	require.NoError(tb, err)
	s := &rawService{ln: ln, conns: make(chan net.Conn, 1)}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			socket, err := ln.Accept()
			if err != nil {
				return
			}
			number := int(s.accepted.Add(1)) - 1
			wg.Go(func() {
				defer func() { _ = socket.Close() }()
				serve(number, socket)
			})
		}
	})
	tb.Cleanup(func() {
		_ = ln.Close()
		wg.Wait()
		_ = os.RemoveAll(dir)
	})
	return s
}

func (s *rawService) serve(conn net.Conn, number int, run script) {
	r := bufio.NewReader(conn)
	for n := 0; ; n++ {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		s.received.Add(1)
		response, ok := run(number, n, req.Method+" "+req.URL.Path+" "+string(body))
		if _, err := io.WriteString(conn, response); err != nil || !ok {
			return
		}
	}
}

func (s *rawService) dial(ctx context.Context) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", s.ln.Addr().String())
}

// client is a Client as a RoundTripper, like the Transport that it is compared with.
type client struct{ *upstream.Client }

func (c client) RoundTrip(req *http.Request) (*http.Response, error) {
	deadline, _ := req.Context().Deadline()
	return c.Exchange(req, deadline)
}

func (s *rawService) client(tb testing.TB) client {
	tb.Helper()
	c := client{&upstream.Client{Dial: s.dial}}
	if s.secure {
		c.TLS = clientTLS
	}
	tb.Cleanup(func() { require.NoError(tb, c.Close()) })
	return c
}

// send makes a request and reads the whole response.
func send(tb testing.TB, rt http.RoundTripper, method, path, body string) (status int, text string, err error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	var reader io.Reader = http.NoBody
	if body != "" {
		reader = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://data.internal"+path, reader)
	require.NoError(tb, err)
	req.Header.Set("Accept-Encoding", "identity")
	res, err := rt.RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }()
	content, err := io.ReadAll(res.Body)
	return res.StatusCode, string(content), err
}

func get(tb testing.TB, rt http.RoundTripper) (status int, text string, err error) {
	tb.Helper()
	return send(tb, rt, http.MethodGet, "/", "")
}

// requireGet requires a response with status 200.
func requireGet(tb testing.TB, rt http.RoundTripper, want string) {
	tb.Helper()
	status, body, err := get(tb, rt)
	require.NoError(tb, err)
	require.Equal(tb, http.StatusOK, status)
	require.Equal(tb, want, body)
}

func sized(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

func TestConnectionIsReusedAfterACompleteResponse(t *testing.T) {
	onEveryWire(t, testConnectionIsReusedAfterACompleteResponse)
}

func testConnectionIsReusedAfterACompleteResponse(t *testing.T, serve serveFunc) {
	t.Helper()
	const chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
	for name, response := range map[string]string{
		"length":        sized("hello"),
		"empty":         sized(""),
		"chunked":       chunked + "\r\n5\r\nhello\r\n0\r\n\r\n",
		"trailers":      chunked + "Trailer: X-Late\r\n\r\n5\r\nhello\r\n0\r\nX-Late: 1\r\n\r\n",
		"no content":    "HTTP/1.1 204 No Content\r\n\r\n",
		"informational": "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + sized("hello"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, respond(response, true))
			c := s.client(t)
			for range 5 {
				status, body, err := get(t, c)
				require.NoError(t, err)
				assert.Contains(t, []int{200, 204}, status)
				assert.Contains(t, []string{"", "hello"}, body)
			}
			require.EqualValues(t, 1, s.accepted.Load())
		})
	}
}

// Data beyond the end of a response, or after "Connection: close", must not be read as the next response.
func TestAmbiguousResponseEndsTheConnection(t *testing.T) {
	onEveryWire(t, testAmbiguousResponseEndsTheConnection)
}

func testAmbiguousResponseEndsTheConnection(t *testing.T, serve serveFunc) {
	t.Helper()
	const (
		ok      = "HTTP/1.1 200 OK\r\n"
		chunked = ok + "Transfer-Encoding: chunked\r\n\r\n"
	)
	stolen := sized("stolen")
	for name, response := range map[string]string{
		"surplus":                sized("hello") + stolen,
		"surplus after chunks":   chunked + "5\r\nhello\r\n0\r\n\r\n" + stolen,
		"surplus after nothing":  "HTTP/1.1 204 No Content\r\n\r\n" + stolen,
		"surplus of one byte":    sized("hello") + "\n",
		"a body of 204":          "HTTP/1.1 204 No Content\r\nContent-Length: 6\r\n\r\nstolen",
		"a body of 304":          "HTTP/1.1 304 Not Modified\r\nContent-Length: 6\r\n\r\nstolen",
		"both lengths":           ok + "Content-Length: 60\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" + stolen,
		"connection: close":      ok + "Connection: close\r\nContent-Length: 5\r\n\r\nhello" + stolen,
		"only a close":           ok + "Connection: close\r\nContent-Length: 5\r\n\r\nhello",
		"a chunk of no size":     chunked + "5\r\nhello\r\nx\r\n",
		"HTTP/1.0":               "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello" + stolen,
		"two lengths":            ok + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello" + stolen,
		"a negative length":      ok + "Content-Length: -1\r\n\r\nhello" + stolen,
		"an odd coding":          ok + "Transfer-Encoding: xchunked\r\nContent-Length: 5\r\n\r\nhello" + stolen,
		"a chunk too long":       chunked + "5\r\nhelloX\r\n0\r\n\r\n" + stolen,
		"an endless chunk size":  chunked + strings.Repeat("0", 10000) + "5\r\nhello\r\n0\r\n\r\n" + stolen,
		"switching protocols":    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n" + stolen,
		"too many informational": strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 7) + stolen,
		"not HTTP":               "SSH-2.0-OpenSSH\r\n" + stolen,
		"a status below 100":     "HTTP/1.1 099 Odd\r\n\r\n" + stolen,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, first(response))
			c := s.client(t)
			if _, body, err := get(t, c); err == nil {
				require.NotContains(t, body, "stolen")
			}
			for range 3 {
				requireGet(t, c, "honest")
			}
			require.EqualValues(t, 2, s.accepted.Load(), "the first connection is not used again")
		})
	}
}

func TestIdleConnectionWithSurplusDataIsNotReused(t *testing.T) {
	onEveryWire(t, testIdleConnectionWithSurplusDataIsNotReused)
}

func testIdleConnectionWithSurplusDataIsNotReused(t *testing.T, serve serveFunc) {
	t.Helper()
	s := serve(t, first(sized("honest")))
	c := s.client(t)
	requireGet(t, c, "honest")
	_, err := io.WriteString(<-s.conns, sized("stolen")) // a Unix socket delivers it at once
	require.NoError(t, err)
	requireGet(t, c, "honest")
	require.EqualValues(t, 2, s.accepted.Load())
}

// heldConn is the socket of a service that sends nothing until it is told to.
type heldConn struct {
	net.Conn
	held []byte
	hold bool
}

func (c *heldConn) Write(p []byte) (int, error) {
	if c.hold {
		c.held = append(c.held, p...)
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// A service may send its surplus in a TLS record of its own: with the response in one write, in a part, or at any time before the
// next request. crypto/tls may have read it from the socket, which is then silent.
func TestSurplusRecordsEndTheConnection(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]int{"whole": 0, "all but a byte": 1, "the first bytes": -3, "the header": -5, "the header and a byte": -6} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			t.Run(fmt.Sprintf("%s, %s", name, tls.VersionName(version)), func(t *testing.T) {
				t.Parallel()
				surplusSent := make(chan struct{}, 1)
				s := serveSockets(t, func(number int, socket net.Conn) {
					held := &heldConn{Conn: socket}
					conn := tls.Server(held, &tls.Config{Certificates: []tls.Certificate{identity()}, MinVersion: version, MaxVersion: version})
					r := bufio.NewReader(conn)
					for {
						if _, err := http.ReadRequest(r); err != nil {
							return
						}
						held.hold = number == 0
						_, _ = io.WriteString(conn, sized("honest"))
						if number > 0 {
							continue
						}
						end := len(held.held)
						_, _ = io.WriteString(conn, sized("stolen"))
						if cut < 0 {
							held.held = held.held[:end-cut]
						} else {
							held.held = held.held[:len(held.held)-cut]
						}
						_, _ = socket.Write(held.held)
						select {
						case surplusSent <- struct{}{}:
						default: // a second request
						}
					}
				})
				s.secure = true
				c := s.client(t)
				requireGet(t, c, "honest")
				<-surplusSent
				for range 3 {
					requireGet(t, c, "honest")
				}
				assert.EqualValues(t, 2, s.accepted.Load())
			})
		}
	}
}

// A response that a service sends twice must not become the response to another request, whenever the second one arrives.
func TestConnectionThatCarriedAWriteIsNotReused(t *testing.T) {
	onEveryWire(t, testConnectionThatCarriedAWriteIsNotReused)
}

func testConnectionThatCarriedAWriteIsNotReused(t *testing.T, serve serveFunc) {
	t.Helper()
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			s := serve(t, respond(sized(""), true))
			c := s.client(t)
			for i := range 3 {
				_, _, err := send(t, c, method, "/sign-in", "")
				require.NoError(t, err)
				assert.EqualValues(t, i+1, s.accepted.Load())
				assert.Zero(t, c.Idle())
			}
		})
	}
}

// HTTP/1.1 cannot tell what arrives after the check of an idle connection from the response to the next request. A service that
// echoes the request ID can.
func TestResponseWithAnotherRequestIDIsRejected(t *testing.T) {
	onEveryWire(t, testResponseWithAnotherRequestIDIsRejected)
}

func testResponseWithAnotherRequestIDIsRejected(t *testing.T, serve serveFunc) {
	t.Helper()
	for name, test := range map[string]struct {
		header   string
		rejected bool
	}{
		"none":            {"", false},
		"its own":         {"X-Request-Id: req-1\r\n", false},
		"in another case": {"x-request-id: req-1\r\n", false},
		"another":         {"X-Request-Id: req-2\r\n", true},
		"both":            {"X-Request-Id: req-1\r\nX-Request-Id: req-2\r\n", true},
		"joined":          {"X-Request-Id: req-1, req-2\r\n", true},
		"empty":           {"X-Request-Id:\r\n", true},
	} {
		for _, body := range []string{"hello", ""} {
			t.Run(fmt.Sprintf("%s, body %q", name, body), func(t *testing.T) {
				t.Parallel()
				s := serve(t, respond(fmt.Sprintf("HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s", test.header, len(body), body), true))
				c := s.client(t)
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x/", http.NoBody)
				require.NoError(t, err)
				req.Header.Set("X-Request-Id", "req-1")
				res, err := c.Exchange(req, time.Now().Add(patience))
				if test.rejected {
					require.ErrorIs(t, err, upstream.ErrOtherResponse)
					require.ErrorIs(t, err, upstream.ErrContractViolation)
					require.Zero(t, c.Idle(), "the connection is closed")
					require.EqualValues(t, 1, s.received.Load(), "the request is not repeated")
					return
				}
				require.NoError(t, err)
				got, err := io.ReadAll(res.Body)
				require.NoError(t, err)
				require.NoError(t, res.Body.Close())
				require.Equal(t, body, string(got))
			})
		}
	}
}

func TestUntrustedServiceGetsNoRequest(t *testing.T) {
	t.Parallel()
	other := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	s := serveSockets(t, func(_ int, socket net.Conn) {
		conn := tls.Server(socket, other.TLS)
		n, err := io.Copy(io.Discard, conn)
		assert.Error(t, err)
		assert.Zero(t, n)
	})
	s.secure = true
	_, _, err := get(t, s.client(t))
	require.ErrorIs(t, err, upstream.ErrHandshake)
}

func TestConnectionsAreLimited(t *testing.T) { onEveryWire(t, testConnectionsAreLimited) }

func testConnectionsAreLimited(t *testing.T, serve serveFunc) {
	t.Helper()
	var (
		mu        sync.Mutex
		now, most int
	)
	s := serve(t, func(int, int, string) (string, bool) {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		runtime.Gosched() // others may arrive
		mu.Lock()
		now--
		mu.Unlock()
		return sized("hello"), true
	})
	c := s.client(t)
	c.MaxConns = 3
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for range 5 {
				if i%2 == 0 {
					_, _, err := get(t, c)
					assert.NoError(t, err)
				} else {
					_, _, err := send(t, c, http.MethodPost, "/", "{}")
					assert.NoError(t, err)
				}
				assert.LessOrEqual(t, c.Idle(), 3)
			}
		})
	}
	wg.Wait()
	assert.LessOrEqual(t, most, 3)
}

// The caller may recover. A connection that stays counted would be lost until the next configuration.
func TestPanicTakesNoConnectionAway(t *testing.T) {
	t.Parallel()
	c := &upstream.Client{MaxConns: 1, Dial: func(context.Context) (net.Conn, error) { panic("a canary") }}
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	for range 2 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://data.internal/", http.NoBody)
		require.NoError(t, err)
		require.PanicsWithValue(t, "a canary", func() {
			_, _ = c.Exchange(req, time.Now().Add(time.Second)) //nolint:bodyclose // it panics, and returns nothing
		})
	}
}

// A service that sends a little now and then is not stuck; one that sends nothing is, unless nobody waits.
func TestSilentServiceEndsTheResponseIfAsked(t *testing.T) {
	onEveryWire(t, testSilentServiceEndsTheResponseIfAsked)
}

func testSilentServiceEndsTheResponseIfAsked(t *testing.T, serve serveFunc) {
	t.Helper()
	s := serve(t, func(int, int, string) (string, bool) {
		return "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", true
	})
	c := s.client(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x/", http.NoBody)
	require.NoError(t, err)
	res, err := c.Exchange(req, time.Now().Add(patience))
	require.NoError(t, err)
	defer res.Body.Close()
	body, ok := res.Body.(upstream.PatientBody)
	require.True(t, ok)
	conn := <-s.conns
	asked := 0
	body.SetPatience(10*time.Millisecond, func() bool {
		asked++
		switch asked {
		case 3:
			_, _ = io.WriteString(conn, "wor")
		case 6:
			return false
		}
		return true
	})
	got, err := io.ReadAll(res.Body)
	var network net.Error
	require.ErrorAs(t, err, &network)
	require.True(t, network.Timeout())
	require.Equal(t, "hellowor", string(got))
	require.Equal(t, 6, asked)
}

// A response may end before its patience is set: the connection is another exchange's then.
func TestResponseThatHasEndedChangesNoOtherExchange(t *testing.T) {
	onEveryWire(t, testResponseThatHasEndedChangesNoOtherExchange)
}

func testResponseThatHasEndedChangesNoOtherExchange(t *testing.T, serve serveFunc) {
	t.Helper()
	s := serve(t, func(_, n int, _ string) (string, bool) {
		return []string{sized("hello"), "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"}[n], true
	})
	c := s.client(t)
	exchange := func() *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x/", http.NoBody)
		require.NoError(t, err)
		res, err := c.Exchange(req, time.Now().Add(patience))
		require.NoError(t, err)
		t.Cleanup(func() { _ = res.Body.Close() })
		return res
	}
	ended := exchange() //nolint:bodyclose // exchange does
	_, err := io.ReadAll(ended.Body)
	require.NoError(t, err)
	other := exchange() //nolint:bodyclose // exchange does
	require.EqualValues(t, 1, s.accepted.Load())
	ended.Body.(upstream.PatientBody).SetPatience(time.Millisecond, func() bool { return false })
	conn := <-s.conns
	time.AfterFunc(50*time.Millisecond, func() { _, _ = io.WriteString(conn, "world") })
	got, err := io.ReadAll(other.Body)
	require.NoError(t, err)
	require.Equal(t, "world", string(got))
}

func TestRefusalOfABodyThatIsNotReadArrives(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("x", 8<<20) // more than a socket's buffers
	for name, test := range map[string]struct {
		response string
		status   int
	}{
		"413":         {"HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlarge", 413},
		"503":         {"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 5\r\n\r\nlarge", 503},
		"a success":   {sized("large"), 0},
		"nothing":     {"", 0},
		"half a line": {"HTTP/1.1 41", 0},
	} {
		for wire, secure := range map[string]bool{"plain": false, "TLS": true} {
			t.Run(name+"/"+wire, func(t *testing.T) {
				t.Parallel()
				s := serveSockets(t, func(_ int, socket net.Conn) {
					conn := socket
					if secure {
						conn = tls.Server(socket, serverTLS())
					}
					if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
						_, _ = io.WriteString(conn, test.response) // and closes the socket, with data that is not read
					}
				})
				s.secure = secure
				c := s.client(t)
				status, text, err := send(t, c, http.MethodPost, "/", body)
				require.Equal(t, test.status, status, "%v", err)
				if test.status == 0 {
					require.ErrorContains(t, err, "sending the request")
					return
				}
				require.NoError(t, err)
				require.Equal(t, "large", text)
				require.Zero(t, c.Idle())
			})
		}
	}
}

func TestExchangeWithoutTimeLeavesIdleConnectionsOpen(t *testing.T) {
	onEveryWire(t, testExchangeWithoutTimeLeavesIdleConnectionsOpen)
}

func testExchangeWithoutTimeLeavesIdleConnectionsOpen(t *testing.T, serve serveFunc) {
	t.Helper()
	s := serve(t, respond(sized("hello"), true))
	c := s.client(t)
	requireGet(t, c, "hello")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x/", http.NoBody)
	require.NoError(t, err)
	_, err = c.Exchange(req, time.Now().Add(-time.Millisecond)) //nolint:bodyclose // it fails
	require.ErrorIs(t, err, upstream.ErrNoTimeLeft)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, 1, c.Idle())
	requireGet(t, c, "hello")
	require.EqualValues(t, 1, s.accepted.Load())
}

func TestTruncatedResponseIsAnError(t *testing.T) { onEveryWire(t, testTruncatedResponseIsAnError) }

func testTruncatedResponseIsAnError(t *testing.T, serve serveFunc) {
	t.Helper()
	for name, response := range map[string]string{
		"nothing":         "",
		"status line":     "HTTP/1.1 200",
		"header":          "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n",
		"line of header":  "HTTP/1.1 200 OK\r\nContent-Le",
		"body":            "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nhello",
		"chunk":           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n50\r\nhello",
		"last chunk":      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
		"only 1xx":        "HTTP/1.1 103 Early Hints\r\n\r\n",
		"header too long": "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 70<<10) + "\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, respond(response, false))
			_, _, err := get(t, s.client(t))
			require.Error(t, err)
			assert.Equal(t, name == "header too long", errors.Is(err, upstream.ErrResponseHeaderTooLarge), "%v", err)
			assert.Equal(t, name != "header too long", errors.Is(err, io.ErrUnexpectedEOF), "%v", err)
			assert.EqualValues(t, 1, s.received.Load(), "a request on a new connection is not retried")
		})
	}
}

// The service closes each connection without notice after a few requests, while the next request is written.
func TestClosedIdleConnectionFailsNoGet(t *testing.T) {
	onEveryWire(t, testClosedIdleConnectionFailsNoGet)
}

func testClosedIdleConnectionFailsNoGet(t *testing.T, serve serveFunc) {
	t.Helper()
	s := serve(t, func(_, n int, _ string) (string, bool) { return sized("hello"), n < 2 })
	c := s.client(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				if _, body, err := get(t, c); err != nil || body != "hello" {
					t.Errorf("%q, %v", body, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// A firewall that forgets connections in silence must not cost a timeout for each of them.
func TestConnectionsThatDiedInSilenceFailOneGet(t *testing.T) {
	onEveryWire(t, testConnectionsThatDiedInSilenceFailOneGet)
}

func testConnectionsThatDiedInSilenceFailOneGet(t *testing.T, serve serveFunc) {
	t.Helper()
	const idle = 4
	var together, gets sync.WaitGroup
	together.Add(idle)
	s := serve(t, func(conn, n int, _ string) (string, bool) {
		if conn < idle && n == 0 {
			together.Done()
			together.Wait()
		} else if conn < idle {
			return "", true
		}
		return sized("hello"), true
	})
	c := s.client(t)
	for range idle {
		gets.Go(func() {
			if _, body, err := get(t, c); err != nil || body != "hello" {
				t.Errorf("%q, %v", body, err)
			}
		})
	}
	gets.Wait()
	require.Equal(t, idle, c.Idle())
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://data.internal/", http.NoBody)
	require.NoError(t, err)
	_, err = c.Exchange(req, time.Now().Add(time.Second)) //nolint:bodyclose // it fails
	require.Error(t, err)
	require.Zero(t, c.Idle())
	requireGet(t, c, "hello")
	require.EqualValues(t, idle+1, s.accepted.Load())
}

// The service may have executed a request before it closed the connection.
func TestOnlyGetIsRetried(t *testing.T) { onEveryWire(t, testOnlyGetIsRetried) }

func testOnlyGetIsRetried(t *testing.T, serve serveFunc) {
	t.Helper()
	for name, test := range map[string]struct {
		method, body, response string
		received               int64 // with the request that opens the connection
	}{
		"GET":                     {http.MethodGet, "", "", 3},
		"GET with part of header": {http.MethodGet, "", "HTTP/1.1 200 OK\r\nContent-", 2},
		"POST":                    {http.MethodPost, "{}", "", 2},
		"PUT":                     {http.MethodPut, "{}", "", 2},
		"PATCH":                   {http.MethodPatch, "{}", "", 2},
		"DELETE":                  {http.MethodDelete, "", "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(_, _ int, request string) (string, bool) {
				if strings.Contains(request, "/breaks-off") {
					return test.response, false
				}
				return sized("hello"), true
			})
			c := s.client(t)
			requireGet(t, c, "hello")
			_, _, err := send(t, c, test.method, "/breaks-off", test.body)
			require.Error(t, err)
			assert.Equal(t, test.received, s.received.Load())
		})
	}
}

func TestOnlyGetReusesConnections(t *testing.T) { onEveryWire(t, testOnlyGetReusesConnections) }

func testOnlyGetReusesConnections(t *testing.T, serve serveFunc) {
	t.Helper()
	s := serve(t, func(_, _ int, request string) (string, bool) { return sized(request), true })
	c := s.client(t)
	for i := range 3 {
		requireGet(t, c, "GET / ")
		_, body, err := send(t, c, http.MethodPost, "/things", "{}")
		require.NoError(t, err)
		assert.Equal(t, "POST /things {}", body)
		assert.EqualValues(t, 2+i, s.accepted.Load())
	}
}

func TestDeadlineAndContextEndAnExchange(t *testing.T) {
	onEveryWire(t, testDeadlineAndContextEndAnExchange)
}

func testDeadlineAndContextEndAnExchange(t *testing.T, serve serveFunc) {
	t.Helper()
	const header = "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello"
	for _, test := range []struct{ stalls, response, end string }{
		{"before the header", "", "deadline"},
		{"before the header", "", "context"},
		{"before the header", "", "header timeout"},
		{"in the status line", "HTTP/1.1 2", "deadline"},
		{"in a line of the header", "HTTP/1.1 200 OK\r\nContent-Ty", "deadline"},
		{"in a line of the header", "HTTP/1.1 200 OK\r\nContent-Ty", "header timeout"},
		{"in the body", header, "deadline"},
		{"in the body", header, "context"},
	} {
		for _, reused := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, reused %t, %s", test.stalls, reused, test.end), func(t *testing.T) {
				t.Parallel()
				stop, arrived := make(chan struct{}), make(chan struct{}, 1)
				s := serve(t, func(_, n int, _ string) (string, bool) {
					if reused && n == 0 {
						return sized("hello"), true
					}
					arrived <- struct{}{}
					if test.response == "" {
						<-stop
					}
					return test.response, true
				})
				t.Cleanup(func() { close(stop) })
				c := s.client(t)
				if reused {
					requireGet(t, c, "hello")
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				deadline, gone := time.Now().Add(patience), errors.New("the client is gone")
				switch test.end {
				case "deadline":
					deadline = time.Now().Add(100 * time.Millisecond)
				case "header timeout":
					c.ResponseHeaderTimeout = 50 * time.Millisecond
				default:
					go func() {
						if <-arrived; test.response == "" {
							cancel(gone)
						}
					}()
				}
				began := time.Now()
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://x/", http.NoBody)
				require.NoError(t, err)
				res, err := c.Exchange(req, deadline)
				if err == nil {
					if test.end == "context" {
						cancel(gone)
					}
					_, err = io.ReadAll(res.Body)
					_ = res.Body.Close()
					require.Error(t, err)
					require.Less(t, time.Since(began), patience/2, "it does not wait for the deadline")
					return
				}
				switch test.end {
				case "deadline":
					var network net.Error
					require.ErrorAs(t, err, &network)
					require.True(t, network.Timeout())
				case "header timeout":
					require.ErrorIs(t, err, upstream.ErrResponseHeaderTimeout)
				default:
					require.ErrorIs(t, err, gone)
				}
				require.Less(t, s.received.Load(), int64(3), "it is not retried")
			})
		}
	}
}

// Once the context is done, the connection may be aborted at any time, also in the exchange of another request.
func TestConnectionOfACancelledExchangeIsNotReused(t *testing.T) {
	onEveryWire(t, testConnectionOfACancelledExchangeIsNotReused)
}

func testConnectionOfACancelledExchangeIsNotReused(t *testing.T, serve serveFunc) {
	t.Helper()
	s := serve(t, respond(sized("hello"), true))
	c := s.client(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://x/", http.NoBody)
	require.NoError(t, err)
	res, err := c.Exchange(req, time.Time{})
	require.NoError(t, err)
	cancel()
	body, err := io.ReadAll(res.Body) // it has arrived with the header
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, "hello", string(body))
	require.Zero(t, c.Idle())
}

func TestIdleConnectionsAreBoundedAndEnd(t *testing.T) {
	t.Parallel()
	open := atomic.Int64{}
	s := servePlain(t, respond(sized("hello"), true))
	c := s.client(t)
	c.MaxIdleConns, c.IdleTimeout = 2, 50*time.Millisecond
	dial := c.Dial
	c.Dial = func(ctx context.Context) (net.Conn, error) {
		conn, err := dial(ctx)
		open.Add(1)
		return &countedConn{UnixConn: conn.(*net.UnixConn), open: &open}, err
	}
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() { _, _, _ = get(t, c) })
	}
	wg.Wait()
	require.LessOrEqual(t, open.Load(), int64(2))
	require.Eventually(t, func() bool { return open.Load() == 0 }, patience, time.Millisecond)
	requireGet(t, c, "hello")
	require.NoError(t, c.Close())
	require.Zero(t, open.Load())
	requireGet(t, c, "hello") // a request of the old configuration
	require.Zero(t, open.Load(), "a closed client keeps no connection")
}

type countedConn struct {
	*net.UnixConn
	open *atomic.Int64
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.UnixConn.Close()
}

// hostile returns the output of a data service for a seed: valid and invalid responses.
func hostile(seed uint64) string {
	r := rand.New(rand.NewPCG(seed, 1))
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	body := strings.Repeat("x", r.IntN(40))
	var b strings.Builder
	for range r.IntN(3) {
		b.WriteString(pick("HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n", ""))
	}
	b.WriteString(pick("HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 204 No Content\r\n", "HTTP/1.0 200 OK\r\n", "HTTP/1.1 304 Not Modified\r\n",
		"HTTP/1.1 101 Switching Protocols\r\n", "HTTP/2.0 200 OK\r\n", "HTTP/1.1 2000 OK\r\n", "HTP/1.1 200 OK\r\n", "HTTP/1.1 500\r\n", "\r\n", ""))
	for range r.IntN(4) {
		b.WriteString(pick("Content-Type: application/json\r\n", "Connection: close\r\n", "Connection: keep-alive\r\n", "X : y\r\n", " folded\r\n", "X\x00: y\r\n",
			"Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n", "Transfer-Encoding: identity\r\n", "Content-Length: +5\r\n", "Trailer: Y\r\n", "X: y\n"))
	}
	chunked := r.IntN(2) == 0
	if chunked {
		b.WriteString("Transfer-Encoding: chunked\r\n\r\n")
		b.WriteString(fmt.Sprintf("%x%s\r\n%s\r\n", len(body), pick("", "", ";a=b", " "), body))
		b.WriteString(pick("0\r\n\r\n", "0\r\n\r\n", "0\r\nY: z\r\n\r\n", "0\r\n", "", "00\r\n\r\n", "-1\r\n\r\n"))
	} else {
		length := len(body)
		if r.IntN(4) == 0 {
			length += r.IntN(9) - 4
		}
		b.WriteString(pick(fmt.Sprintf("Content-Length: %d\r\n\r\n", length), fmt.Sprintf("Content-Length: %d\r\n\r\n", length), "\r\n"))
		b.WriteString(body)
	}
	b.WriteString(pick("", "", "", "\r\n", sized("stolen")))
	response := b.String()
	if r.IntN(6) == 0 {
		response = response[:r.IntN(len(response)+1)]
	}
	return response
}

// outcome is how a client interprets a service's output.
type outcome struct {
	failed bool
	status int
	body   string
}

func outcomeOf(tb testing.TB, rt http.RoundTripper) outcome {
	tb.Helper()
	status, body, err := get(tb, rt)
	if err != nil || status <= http.StatusSwitchingProtocols {
		return outcome{failed: true} // net/http returns 101 and statuses below 100; the client rejects them
	}
	return outcome{status: status, body: body}
}

// requireSameAsTransport requires that the client and net/http's Transport interpret the output of a service, which then
// closes the connection, in the same way, and that the next request gets its own response.
func requireSameAsTransport(tb testing.TB, response string, serve serveFunc) {
	tb.Helper()
	run := func(conn, n int, _ string) (string, bool) {
		if conn == 0 && n == 0 {
			return response, false
		}
		return sized("honest"), true
	}
	c, reference := serve(tb, run).client(tb), servePlain(tb, run)
	transport := &http.Transport{
		DisableCompression: true, MaxResponseHeaderBytes: upstream.DefaultMaxResponseHeader,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return reference.dial(ctx) },
	}
	defer transport.CloseIdleConnections()
	require.Equal(tb, outcomeOf(tb, transport), outcomeOf(tb, c), "%q", response)
	require.Equal(tb, outcome{status: 200, body: "honest"}, outcomeOf(tb, c), "after %q", response)
}

func TestClientAgreesWithNetHTTP(t *testing.T) { onEveryWire(t, testClientAgreesWithNetHTTP) }

func testClientAgreesWithNetHTTP(t *testing.T, serve serveFunc) {
	t.Helper()
	const batches, size = 30, 100
	for batch := range uint64(batches) {
		t.Run(fmt.Sprintf("seeds from %d", batch*size), func(t *testing.T) {
			t.Parallel()
			for seed := batch * size; seed < (batch+1)*size; seed++ {
				requireSameAsTransport(t, hostile(seed), serve)
			}
		})
	}
}

func FuzzClient(f *testing.F) {
	for seed := range uint64(50) {
		f.Add(hostile(seed))
	}
	f.Fuzz(func(t *testing.T, response string) {
		if len(response) > 32<<10 {
			return // the two limit headers differently
		}
		requireSameAsTransport(t, response, servePlain)
		requireSameAsTransport(t, response, serveTLS)
	})
}
