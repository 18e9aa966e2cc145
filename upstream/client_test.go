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

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// rawService is a data service over raw sockets: for each connection it calls serve with a reader of requests.
type rawService struct {
	ln       net.Listener
	accepted atomic.Int64
	received atomic.Int64 // requests
}

// serveRaw starts a data service. script is called for each request with its number on the connection, from 0 on, and
// returns what is written; ok is false to close the connection after that.
func serveRaw(tb testing.TB, script func(conn, request int, head string) (response string, ok bool)) *rawService {
	tb.Helper()
	s := &rawService{ln: listen(tb)}
	ln := s.ln
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			number := int(s.accepted.Add(1)) - 1
			wg.Go(func() {
				defer func() { _ = conn.Close() }()
				r := bufio.NewReader(conn)
				for i := 0; ; i++ {
					head, err := readHead(r)
					if err != nil {
						return
					}
					s.received.Add(1)
					response, ok := script(number, i, head)
					if _, err := io.WriteString(conn, response); err != nil || !ok {
						return
					}
				}
			})
		}
	})
	tb.Cleanup(func() {
		_ = ln.Close()
		wg.Wait()
	})
	return s
}

// listen listens on a Unix socket: thousands of services would use up the ports of this machine for a minute.
func listen(tb testing.TB) net.Listener {
	tb.Helper()
	dir, err := os.MkdirTemp("", "raw") //nolint:usetesting // a test's own folder may have too long a name for a socket
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	require.NoError(tb, err)
	return ln
}

func (s *rawService) dial(ctx context.Context) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", s.ln.Addr().String())
}

// readHead reads a request without a body, or with one of a declared length.
func readHead(r *bufio.Reader) (string, error) {
	req, err := http.ReadRequest(r)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(req.Body)
	return req.Method + " " + req.URL.Path + " " + string(body), err
}

func (s *rawService) client(tb testing.TB) *upstream.Client {
	tb.Helper()
	c := &upstream.Client{Dial: s.dial}
	tb.Cleanup(func() { require.NoError(tb, c.Close()) })
	return c
}

// clientPatience bounds what these tests wait for.
const clientPatience = 20 * time.Second

// get makes a request and reads the whole response.
func get(tb testing.TB, rt http.RoundTripper, method, path, body string) (status int, text string, err error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), clientPatience)
	defer cancel()
	var reader io.Reader = http.NoBody
	if body != "" {
		reader = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://data.internal"+path, reader)
	require.NoError(tb, err)
	res, err := rt.RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }()
	content, err := io.ReadAll(res.Body)
	return res.StatusCode, string(content), err
}

func sized(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

func TestAConnectionIsReusedAfterACompleteResponse(t *testing.T) {
	t.Parallel()
	for name, response := range map[string]string{
		"length":        sized("hello"),
		"empty":         sized(""),
		"chunked":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		"trailers":      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Late\r\n\r\n5\r\nhello\r\n0\r\nX-Late: 1\r\n\r\n",
		"no content":    "HTTP/1.1 204 No Content\r\n\r\n",
		"informational": "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + sized("hello"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveRaw(t, func(int, int, string) (string, bool) { return response, true })
			c := s.client(t)
			for range 5 {
				status, body, err := get(t, c, http.MethodGet, "/", "")
				require.NoError(t, err)
				require.Contains(t, []int{200, 204}, status)
				require.Contains(t, []string{"", "hello"}, body)
			}
			require.EqualValues(t, 1, s.accepted.Load())
		})
	}
}

// What a service sends beyond a response, or after having said that it closes, must not be read as the next response.
func TestNothingUnclearIsTakenForTheNextResponse(t *testing.T) {
	t.Parallel()
	stolen := sized("stolen")
	for name, response := range map[string]string{
		"surplus":                sized("hello") + stolen,
		"surplus after chunks":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" + stolen,
		"surplus after nothing":  "HTTP/1.1 204 No Content\r\n\r\n" + stolen,
		"surplus of one byte":    sized("hello") + "\n",
		"a body of 204":          "HTTP/1.1 204 No Content\r\nContent-Length: 6\r\n\r\nstolen",
		"a body of 304":          "HTTP/1.1 304 Not Modified\r\nContent-Length: 6\r\n\r\nstolen",
		"both lengths":           "HTTP/1.1 200 OK\r\nContent-Length: 60\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" + stolen,
		"connection: close":      "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello" + stolen,
		"only a close":           "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
		"a chunk of no size":     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nx\r\n",
		"HTTP/1.0":               "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello" + stolen,
		"two lengths":            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello" + stolen,
		"a negative length":      "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nhello" + stolen,
		"an odd coding":          "HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\nContent-Length: 5\r\n\r\nhello" + stolen,
		"a chunk too long":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n0\r\n\r\n" + stolen,
		"an endless chunk size":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("0", 10000) + "5\r\nhello\r\n0\r\n\r\n" + stolen,
		"switching protocols":    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n" + stolen,
		"too many informational": strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 7) + stolen,
		"not HTTP":               "SSH-2.0-OpenSSH\r\n" + stolen,
		"a status below 100":     "HTTP/1.1 099 Odd\r\n\r\n" + stolen,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveRaw(t, func(conn, request int, _ string) (string, bool) {
				if conn == 0 && request == 0 {
					return response, true // and keeps the connection
				}
				return sized("honest"), true
			})
			c := s.client(t)
			_, body, err := get(t, c, http.MethodGet, "/first", "")
			if err == nil {
				require.NotContains(t, body, "stolen")
			}
			for range 3 {
				status, body, err := get(t, c, http.MethodGet, "/next", "")
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, status)
				require.Equal(t, "honest", body)
			}
			require.EqualValues(t, 2, s.accepted.Load(), "the first connection is not used again")
		})
	}
}

// Surplus that arrives later, on an idle connection.
func TestAnIdleConnectionOnWhichAnythingArrivesIsNotReused(t *testing.T) {
	t.Parallel()
	sent := make(chan struct{})
	s := &rawService{ln: listen(t)}
	ln := s.ln
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for number := 0; ; number++ {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				r := bufio.NewReader(conn)
				for i := 0; ; i++ {
					if _, err := readHead(r); err != nil {
						return
					}
					_, _ = io.WriteString(conn, sized("honest"))
					if number == 0 && i == 0 {
						<-sent
						_, _ = io.WriteString(conn, sized("stolen"))
						sent <- struct{}{}
					}
				}
			}()
		}
	}()
	c := s.client(t)
	_, body, err := get(t, c, http.MethodGet, "/", "")
	require.NoError(t, err)
	require.Equal(t, "honest", body)
	sent <- struct{}{}
	<-sent // on this machine, what is written has arrived
	_, body, err = get(t, c, http.MethodGet, "/", "")
	require.NoError(t, err)
	require.Equal(t, "honest", body)
}

func TestAResponseThatBreaksOffIsAnError(t *testing.T) {
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
			s := serveRaw(t, func(int, int, string) (string, bool) { return response, false })
			_, _, err := get(t, s.client(t), http.MethodGet, "/", "")
			require.Error(t, err)
			if name == "header too long" {
				require.ErrorIs(t, err, upstream.ErrResponseHeaderTooLarge)
			}
			require.EqualValues(t, 1, s.received.Load(), "it was a new connection: the request is not sent again")
		})
	}
}

// The service closes each connection after a few requests, at the moment in which the next one is written: no GET fails.
func TestAConnectionThatTheServiceClosesMeanwhileFailsNoGet(t *testing.T) {
	t.Parallel()
	s := serveRaw(t, func(_, request int, _ string) (string, bool) {
		return sized("hello"), request < 2 // it does not say so
	})
	c := s.client(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				_, body, err := get(t, c, http.MethodGet, "/", "")
				if err != nil || body != "hello" {
					t.Errorf("%q, %v", body, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// A service that takes a request and breaks off has perhaps done what it was asked.
func TestOnlyAGetIsEverSentTwice(t *testing.T) {
	t.Parallel()
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			s := serveRaw(t, func(_, _ int, head string) (string, bool) {
				if strings.Contains(head, "/warm") {
					return sized("hello"), true
				}
				return "", false
			})
			c := s.client(t)
			_, _, err := get(t, c, http.MethodGet, "/warm", "")
			require.NoError(t, err)
			body := ""
			if method != http.MethodGet && method != http.MethodDelete {
				body = "{}"
			}
			_, _, err = get(t, c, method, "/breaks-off", body)
			require.Error(t, err)
			want := int64(2) // with the one that warmed the connection
			if method == http.MethodGet {
				want = 3
			}
			require.Equal(t, want, s.received.Load())
		})
	}
}

func TestAGetIsNotSentAgainOnceItsResponseHasBegun(t *testing.T) {
	t.Parallel()
	s := serveRaw(t, func(_, request int, _ string) (string, bool) {
		if request == 0 {
			return sized("hello"), true
		}
		return "HTTP/1.1 200 OK\r\nContent-", false
	})
	c := s.client(t)
	_, _, err := get(t, c, http.MethodGet, "/", "")
	require.NoError(t, err)
	_, _, err = get(t, c, http.MethodGet, "/", "")
	require.Error(t, err)
	require.EqualValues(t, 2, s.received.Load())
}

func TestARequestThatIsNoGetHasAConnectionOfItsOwn(t *testing.T) {
	t.Parallel()
	s := serveRaw(t, func(_, _ int, head string) (string, bool) { return sized(head), true })
	c := s.client(t)
	for i := range 3 {
		_, _, err := get(t, c, http.MethodGet, "/", "")
		require.NoError(t, err)
		_, body, err := get(t, c, http.MethodPost, "/things", "{}")
		require.NoError(t, err)
		require.Equal(t, "POST /things {}", body)
		require.EqualValues(t, 2+i, s.accepted.Load())
	}
}

func TestTheDeadlineAndTheContextEndAnExchange(t *testing.T) {
	t.Parallel()
	for name, response := range map[string]string{"before the header": "", "in the body": "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello"} {
		for _, reused := range []bool{false, true} {
			for _, how := range []string{"deadline", "context", "header timeout"} {
				if how == "header timeout" && response != "" {
					continue
				}
				t.Run(fmt.Sprintf("%s, reused %t, %s", name, reused, how), func(t *testing.T) {
					t.Parallel()
					stop := make(chan struct{})
					arrived := make(chan struct{}, 1)
					s := serveRaw(t, func(_, _ int, head string) (string, bool) {
						if strings.Contains(head, "/warm") {
							return sized("hello"), true
						}
						arrived <- struct{}{}
						if response == "" {
							<-stop
						}
						return response, true
					})
					t.Cleanup(func() { close(stop) })
					c := s.client(t)
					if reused {
						_, _, err := get(t, c, http.MethodGet, "/warm", "")
						require.NoError(t, err)
					}
					if how == "header timeout" {
						c.ResponseHeaderTimeout = 50 * time.Millisecond
					}
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://x/", http.NoBody)
					require.NoError(t, err)
					deadline, cause := time.Now().Add(time.Minute), errors.New("the client is gone")
					switch how {
					case "deadline":
						deadline = time.Now().Add(100 * time.Millisecond)
					case "context":
						go func() {
							<-arrived
							cancel(cause)
						}()
					}
					res, err := c.Exchange(req, deadline)
					if err == nil {
						_, err = io.ReadAll(res.Body)
						_ = res.Body.Close()
						require.Error(t, err)
						return
					}
					switch how {
					case "context":
						require.ErrorIs(t, err, cause)
					case "deadline":
						var network net.Error
						require.ErrorAs(t, err, &network)
						require.True(t, network.Timeout())
					default:
						require.ErrorIs(t, err, upstream.ErrResponseHeaderTimeout)
					}
					require.Less(t, s.received.Load(), int64(3), "it is not sent again")
				})
			}
		}
	}
}

func TestIdleConnectionsAreBoundedAndEnd(t *testing.T) {
	t.Parallel()
	open := atomic.Int64{}
	s := serveRaw(t, func(int, int, string) (string, bool) { return sized("hello"), true })
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
		wg.Go(func() { _, _, _ = get(t, c, http.MethodGet, "/", "") })
	}
	wg.Wait()
	require.LessOrEqual(t, open.Load(), int64(2))
	require.Eventually(t, func() bool { return open.Load() == 0 }, clientPatience, time.Millisecond)
	_, _, err := get(t, c, http.MethodGet, "/", "")
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.EqualValues(t, 0, open.Load())
	_, _, err = get(t, c, http.MethodGet, "/", "")
	require.NoError(t, err, "what is under way when the configuration ends is served")
	require.EqualValues(t, 0, open.Load(), "and keeps no connection")
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

// hostile makes a data service's output of a seed: responses, proper and broken, in pieces.
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

// outcome is what a client makes of a service's output.
type outcome struct {
	failed bool
	status int
	body   string
}

func outcomeOf(tb testing.TB, rt http.RoundTripper) outcome {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), clientPatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://data.internal/", http.NoBody)
	require.NoError(tb, err)
	req.Header.Set("Accept-Encoding", "identity")
	res, err := rt.RoundTrip(req)
	if err != nil {
		return outcome{failed: true}
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode == http.StatusSwitchingProtocols || res.StatusCode < http.StatusContinue {
		return outcome{failed: true} // the gateway refuses both; net/http has the second as a response
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return outcome{failed: true}
	}
	return outcome{status: res.StatusCode, body: string(body)}
}

// requireSameAsTransport holds the client equal to net/http's Transport for one output of a service, sent at once, after
// which the service closes the connection; and the next request gets its own response.
func requireSameAsTransport(tb testing.TB, response string) {
	tb.Helper()
	serve := func() *rawService {
		return serveRaw(tb, func(conn, request int, _ string) (string, bool) {
			if conn == 0 && request == 0 {
				return response, false
			}
			return sized("honest"), true
		})
	}
	one, other := serve(), serve()
	c := one.client(tb)
	transport := &http.Transport{DisableCompression: true, MaxResponseHeaderBytes: upstream.DefaultMaxResponseHeader, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return other.dial(ctx)
	}}
	defer transport.CloseIdleConnections()
	require.Equal(tb, outcomeOf(tb, transport), outcomeOf(tb, c), "%q", response)
	require.Equal(tb, outcome{status: 200, body: "honest"}, outcomeOf(tb, c), "after %q", response)
}

func TestAHostileServiceGetsNoOtherResultThanFromNetHTTP(t *testing.T) {
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

// FuzzClient: whatever a service sends, the client makes of it what net/http's Transport does, and takes none of it for
// the response to the next request.
func FuzzClient(f *testing.F) {
	for seed := range uint64(50) {
		f.Add(hostile(seed))
	}
	f.Fuzz(func(t *testing.T, response string) {
		if len(response) > 32<<10 {
			return // bounds on headers differ by what is buffered
		}
		requireSameAsTransport(t, response)
	})
}
