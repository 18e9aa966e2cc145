package upstream_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// rawService is a data service on raw sockets.
type rawService struct {
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

// serveRaw starts a data service on a Unix socket, because thousands of services would exhaust the ports of the machine.
func serveRaw(tb testing.TB, run script) *rawService {
	tb.Helper()
	dir, err := os.MkdirTemp("", "raw") //nolint:usetesting // a test's own folder may have too long a name for a socket
	require.NoError(tb, err)
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	require.NoError(tb, err)
	s := &rawService{ln: ln, conns: make(chan net.Conn, 1)}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			select {
			case s.conns <- conn:
			default:
			}
			number := int(s.accepted.Add(1)) - 1
			wg.Go(func() { s.serve(conn, number, run) })
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
	defer func() { _ = conn.Close() }()
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
	t.Parallel()
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
			s := serveRaw(t, respond(response, true))
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
	t.Parallel()
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
			s := serveRaw(t, first(response))
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
	t.Parallel()
	s := serveRaw(t, first(sized("honest")))
	c := s.client(t)
	requireGet(t, c, "honest")
	_, err := io.WriteString(<-s.conns, sized("stolen")) // a Unix socket delivers it at once
	require.NoError(t, err)
	requireGet(t, c, "honest")
	require.EqualValues(t, 2, s.accepted.Load())
}

func TestTruncatedResponseIsAnError(t *testing.T) {
	t.Parallel()
	for name, response := range map[string]string{
		"nothing":         "",
		"status line":     "HTTP/1.1 200",
		"header":          "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n",
		"body":            "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nhello",
		"chunk":           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n50\r\nhello",
		"last chunk":      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
		"only 1xx":        "HTTP/1.1 103 Early Hints\r\n\r\n",
		"header too long": "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 70<<10) + "\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveRaw(t, respond(response, false))
			_, _, err := get(t, s.client(t))
			require.Error(t, err)
			assert.Equal(t, name == "header too long", errors.Is(err, upstream.ErrResponseHeaderTooLarge), "%v", err)
			assert.EqualValues(t, 1, s.received.Load(), "a request on a new connection is not retried")
		})
	}
}

// The service closes each connection without notice after a few requests, while the next request is written.
func TestClosedIdleConnectionFailsNoGet(t *testing.T) {
	t.Parallel()
	s := serveRaw(t, func(_, n int, _ string) (string, bool) { return sized("hello"), n < 2 })
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

// The service may have executed a request before it closed the connection.
func TestOnlyGetIsRetried(t *testing.T) {
	t.Parallel()
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
			s := serveRaw(t, func(_, _ int, request string) (string, bool) {
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

func TestOnlyGetReusesConnections(t *testing.T) {
	t.Parallel()
	s := serveRaw(t, func(_, _ int, request string) (string, bool) { return sized(request), true })
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
	t.Parallel()
	const header = "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello"
	for _, test := range []struct{ stalls, response, end string }{
		{"before the header", "", "deadline"},
		{"before the header", "", "context"},
		{"before the header", "", "header timeout"},
		{"in the body", header, "deadline"},
		{"in the body", header, "context"},
	} {
		for _, reused := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, reused %t, %s", test.stalls, reused, test.end), func(t *testing.T) {
				t.Parallel()
				stop, arrived := make(chan struct{}), make(chan struct{}, 1)
				s := serveRaw(t, func(_, n int, _ string) (string, bool) {
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
						<-arrived
						cancel(gone)
					}()
				}
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://x/", http.NoBody)
				require.NoError(t, err)
				res, err := c.Exchange(req, deadline)
				if err == nil {
					_, err = io.ReadAll(res.Body)
					_ = res.Body.Close()
					require.Error(t, err)
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

func TestIdleConnectionsAreBoundedAndEnd(t *testing.T) {
	t.Parallel()
	open := atomic.Int64{}
	s := serveRaw(t, respond(sized("hello"), true))
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
func requireSameAsTransport(tb testing.TB, response string) {
	tb.Helper()
	run := func(conn, n int, _ string) (string, bool) {
		if conn == 0 && n == 0 {
			return response, false
		}
		return sized("honest"), true
	}
	c, reference := serveRaw(tb, run).client(tb), serveRaw(tb, run)
	transport := &http.Transport{
		DisableCompression: true, MaxResponseHeaderBytes: upstream.DefaultMaxResponseHeader,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return reference.dial(ctx) },
	}
	defer transport.CloseIdleConnections()
	require.Equal(tb, outcomeOf(tb, transport), outcomeOf(tb, c), "%q", response)
	require.Equal(tb, outcome{status: 200, body: "honest"}, outcomeOf(tb, c), "after %q", response)
}

func TestClientAgreesWithNetHTTP(t *testing.T) {
	t.Parallel()
	const batches, size = 30, 100
	for batch := range uint64(batches) {
		t.Run(fmt.Sprintf("seeds from %d", batch*size), func(t *testing.T) {
			t.Parallel()
			for seed := batch * size; seed < (batch+1)*size; seed++ {
				requireSameAsTransport(t, hostile(seed))
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
		requireSameAsTransport(t, response)
	})
}
