package e2e_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// lastRequest ends a conversation: a server that gets as far answers it and closes the connection.
const lastRequest = "GET /healthz HTTP/1.1\r\nHost: last.example.com\r\nConnection: close\r\n\r\n"

// converse sends bytes as they stand over one connection and reads answers until the server closes it. It says if the
// server did so in time. Methods are those of the requests, for answers without a body; GET where there are none.
func converse(t *testing.T, addr, bytes string, methods ...string) (answers []gatewaytest.Answer, closed bool) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	go func() { _, _ = io.WriteString(conn, bytes) }() // a server that refuses early does not read the rest
	r := bufio.NewReader(conn)
	for {
		method := http.MethodGet
		if len(methods) > len(answers) {
			method = methods[len(answers)]
		}
		a, err := readAnswer(r, method)
		if err != nil {
			var ne net.Error
			return answers, !errors.As(err, &ne) || !ne.Timeout()
		}
		if a.Status >= 200 {
			answers = append(answers, a)
		}
	}
}

// readAnswer reads one answer, an informational one too.
func readAnswer(r *bufio.Reader, method string) (gatewaytest.Answer, error) {
	res, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		return gatewaytest.Answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if res.Close {
		res.Header.Set("Connection", "close") // ReadResponse takes it out
	}
	return gatewaytest.Answer{Status: res.StatusCode, Header: res.Header, Body: string(body)}, err
}

// smuggler is a world whose data service knows whether a smuggled request has got through: nothing but a smuggled
// request asks for contacts.
type smuggler struct {
	*world
	data *recorder
	g    *gatewaytest.Gateway
	held int // how often nothing was smuggled
}

// newSmuggler is for bodies that do not come to their end: its gateway waits one second for a body.
func newSmuggler(t *testing.T) *smuggler {
	t.Helper()
	return newSmugglerWith(t, "body_timeout 1s")
}

// newPatientSmuggler is for bodies that do, and are to be served: a second may pass before they have, on a busy machine.
func newPatientSmuggler(t *testing.T) *smuggler {
	t.Helper()
	return newSmugglerWith(t, "")
}

func newSmugglerWith(t *testing.T, api string) *smuggler {
	t.Helper()
	data := &recorder{}
	w := newWorld(t, data)
	s := &smuggler{world: w, data: data, g: gatewaytest.Start(t, w.options(roomyLimits, api))}
	t.Cleanup(func() { t.Logf("%d attempts held", s.held) })
	return s
}

// hidden is a whole, validly signed request: if it is taken for one, the data service sees it.
func (s *smuggler) hidden() string {
	return "GET /api/v1/contacts HTTP/1.1\r\nHost: api.example.com\r\n" + signedLines(s.acme, "GET", "/api/v1/contacts", "") + "\r\n"
}

func (s *smuggler) requireNothingSmuggled(t *testing.T, what string) {
	t.Helper()
	s.data.mu.Lock()
	defer s.data.mu.Unlock()
	for _, r := range s.data.requests {
		require.NotContains(t, r.RequestURI, "contacts", "smuggled by %q", what)
		require.Equal(t, "GET", r.Method)
		require.Zero(t, r.ContentLength)
		require.Empty(t, r.TransferEncoding)
	}
	s.held++
}

// heads are the beginnings of requests that are served without their body being read, served after it was read, and
// refused; what is behind them must be a request to all of them or to none.
func (s *smuggler) heads(body string) map[string]string {
	host := " HTTP/1.1\r\nHost: api.example.com\r\n"
	return map[string]string{
		"unsigned": "GET /api/v1/status" + host,
		"signed":   "GET " + eventsPath + host + signedLines(s.acme, "GET", eventsPath, body),
		"refused":  "GET /api/v1/nothing" + host,
		"post":     "POST /api/v1/status" + host,
	}
}

func TestSmugglingByContentLengthAgainstTransferEncoding(t *testing.T) {
	t.Parallel()
	s := newSmuggler(t)
	hidden := s.hidden()
	// CL.TE: who goes by the length takes the hidden request for body, who goes by the chunks for the next request
	clte := "0\r\n\r\n" + hidden
	// TE.CL: the other way round, as the length covers the first chunk's size only
	size := fmt.Sprintf("%x\r\n", len(hidden))
	tecl := size + hidden + "\r\n0\r\n\r\n"
	for _, line := range framings {
		for _, attack := range []struct {
			body   string
			length int
			signed string // the body as the gateway reads it
		}{{clte, len(clte), ""}, {tecl, len(size), hidden}} {
			for kind, head := range s.heads(attack.signed) {
				request := fmt.Sprintf("%s%s\r\nContent-Length: %d\r\n\r\n%s", head, line, attack.length, attack.body)
				answers, closed := converse(t, s.g.Addr, request+lastRequest)
				require.True(t, closed, "%s: %q", kind, request)
				require.LessOrEqual(t, len(answers), 1, "%s: %q", kind, request)
				s.requireNothingSmuggled(t, request)
			}
		}
	}
	// HTTP/1.0 knows no chunks
	for kind, head := range s.heads("") {
		request := strings.Replace(head, "HTTP/1.1", "HTTP/1.0", 1) + "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\nContent-Length: " +
			strconv.Itoa(len(clte)) + "\r\n\r\n" + clte
		_, closed := converse(t, s.g.Addr, request+lastRequest)
		require.True(t, closed, kind)
		s.requireNothingSmuggled(t, request)
	}
}

func TestSmugglingByTwoContentLengths(t *testing.T) {
	t.Parallel()
	s := newSmuggler(t)
	hidden := s.hidden()
	n := strconv.Itoa(len(hidden))
	for _, lines := range []string{
		"Content-Length: " + n + "\r\nContent-Length: 0", "Content-Length: 0\r\nContent-Length: " + n,
		"Content-Length: 0, " + n, "Content-Length: " + n + ", 0", "Content-Length: " + n + "," + n, "Content-Length: +" + n, "Content-Length: -" + n,
		"Content-Length: 0x" + n, "Content-Length: " + n + ".0", "Content-Length: " + n + "e0", "Content-Length: " + n + "\x00",
		"Content-Length: " + n + " 0", "Content-Length: \x0b" + n, "Content-Length: 18446744073709551616", "Content-Length: 9223372036854775808",
		"Content-Length : " + n, "Content-Length: 1_0", "Content-Length: \uff11\uff10", `Content-Length: "` + n + `"`,
		"Content-Length: 0\rContent-Length: " + n,
	} {
		for kind, head := range s.heads("") {
			// what is behind the headers is a request only to who reads no length
			answers, closed := converse(t, s.g.Addr, head+lines+"\r\n\r\n"+hidden+lastRequest)
			require.True(t, closed, "%s: %q", kind, lines)
			require.Len(t, answers, 1, "%s: %q", kind, lines)
			require.Equal(t, http.StatusBadRequest, answers[0].Status, "%s: %q", kind, lines)
			s.requireNothingSmuggled(t, lines)
		}
	}
}

func TestSmugglingInChunks(t *testing.T) {
	t.Parallel()
	s := newSmuggler(t)
	hidden := s.hidden()
	head := func(body string) string { return s.heads(body)["signed"] + "Transfer-Encoding: chunked\r\n\r\n" }
	// what is served has the body that was signed
	answers, _ := converse(t, s.roomy(t).Addr, head("hello")+"5\r\nhello\r\n0\r\n\r\n"+lastRequest)
	require.Equal(t, http.StatusOK, answers[0].Status, answers[0].Body)
	for _, chunks := range []string{
		"5;a=b\r\nhello\r\n0\r\n\r\n", "5 ; a\r\nhello\r\n0;x\r\n\r\n", "5;a=\"\r\nhello\r\n0\r\n\r\n", "5;" + strings.Repeat("x", 10000) + "\r\nhello\r\n0\r\n\r\n",
		"5\nhello\n0\n\n", "5\r\nhello\n0\r\n\r\n", "5\nhello\r\n0\r\n\r\n", "5;\nhello\r\n0\r\n\r\n", "5;a\nb\r\nhello\r\n0\r\n\r\n", "5\rhello\r0\r\r",
		"0x5\r\nhello\r\n0\r\n\r\n", "+5\r\nhello\r\n0\r\n\r\n", "-5\r\nhello\r\n0\r\n\r\n", " 5\r\nhello\r\n0\r\n\r\n", "5\x00\r\nhello\r\n0\r\n\r\n",
		"5_\r\nhello\r\n0\r\n\r\n", "00000000000000000005\r\nhello\r\n0\r\n\r\n", "10000000000000005\r\nhello\r\n0\r\n\r\n", "fffffffffffffffb\r\nhello\r\n0\r\n\r\n",
		"5\r\nhelloX\r\n0\r\n\r\n", "5\r\nhell\r\n0\r\n\r\n", "\r\n5\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n\r\n0\r\n\r\n", "5\r\nhello\r\n0\r\n", "5\r\nhello\r\n00\r\n\r\n",
		// trailers are no headers
		"5\r\nhello\r\n0\r\nX-Business-Id: " + s.otherID + "\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\nHost: evil\r\n\r\n",
		"5\r\nhello\r\n0\r\n" + strings.Repeat("X-Filler: "+strings.Repeat("x", 1000)+"\r\n", 2000) + "\r\n",
	} {
		for kind, prefix := range map[string]string{
			"signed": head("hello"), "unsigned": s.heads("")["unsigned"] + "Transfer-Encoding: chunked\r\n\r\n",
			"refused": s.heads("")["refused"] + "Transfer-Encoding: chunked\r\n\r\n",
		} {
			answers, closed := converse(t, s.g.Addr, prefix+chunks+hidden+lastRequest)
			require.True(t, closed, "%s %.80q", kind, chunks)
			require.LessOrEqual(t, len(answers), 1, "a connection ends with a chunked request: %s %.80q", kind, chunks)
			if kind == "signed" {
				require.Len(t, answers, 1, "%.80q", chunks)
				require.Contains(t, []int{200, 400, 401, 408}, answers[0].Status, "%.80q: %s", chunks, answers[0].Body)
			}
			s.requireNothingSmuggled(t, chunks)
		}
	}
	// a chunked body that is its own signature's header
	lines := strings.SplitAfter(signedLines(s.acme, "GET", eventsPath, ""), "\r\n")
	answers, _ = converse(t, s.g.Addr, "GET "+eventsPath+" HTTP/1.1\r\nHost: x\r\nTrailer: X-Signature\r\nTransfer-Encoding: chunked\r\n"+lines[0]+lines[1]+
		"\r\n0\r\n"+lines[2]+"\r\n"+lastRequest)
	requireProblem(t, answers[0], http.StatusUnauthorized, "MISSING_CREDENTIALS")
}

func TestBareLineFeedsMakeNoSecondRequest(t *testing.T) {
	t.Parallel()
	s := newSmuggler(t)
	hidden := s.hidden()
	signed := s.heads("")["signed"]
	for _, request := range []string{
		strings.ReplaceAll(signed, "\r\n", "\n") + "Connection: close\n\n",
		strings.ReplaceAll(signed, "\r\n", "\n\r") + "Connection: close\n\r\n\r",
		strings.ReplaceAll(signed, "\r\n", "\r") + "Connection: close\r\r\n\r\n",
		strings.ReplaceAll(signed, "\r\n", "\r\r\n") + "Connection: close\r\r\n\r\r\n",
		signed + "X: a\nContent-Length: 0\nConnection: close\r\n\r\n",
		// the body that was declared, whatever the line ends
		signed + "Content-Length: " + strconv.Itoa(len(hidden)) + "\n\r\n" + hidden,
		signed + "Content-Length: " + strconv.Itoa(len(hidden)) + "\n\n" + hidden,
		signed + "Content-Length: " + strconv.Itoa(len(hidden)+2) + "\r\n\r\n\r\n" + hidden,
		// in the request line
		"GET /api/v1/status\nGET /api/v1/contacts HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"GET /api/v1/status\r\nGET /api/v1/contacts HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"GET /api/v1/status HTTP/1.1\rHost: x\r\nConnection: close\r\n\r\n",
		"GET\t/api/v1/status\tHTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"GET  /api/v1/status  HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"GET /api/v1/status HTTP/1.1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", //nolint:dupword // that is the attack
		"GET /api/v1/status HTTP/9.9\r\nHost: x\r\nConnection: close\r\n\r\n",
		"GET /api/v1/status\r\n\r\n",
		"GET /api/v1/status HTTP/1.1\r\nConnection: close\r\n\r\n",
		"GET /api/v1/status HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n",
		"GET /api/v1/status HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + hidden,
	} {
		answers, closed := converse(t, s.g.Addr, request)
		require.True(t, closed, "%q", request)
		require.LessOrEqual(t, len(answers), 1, "%q", request)
		s.requireNothingSmuggled(t, request)
	}
}

// Behind a refused request: without a body the next one is served, with one the connection ends.
func TestPipeliningBehindARefusedRequest(t *testing.T) {
	t.Parallel()
	s := newPatientSmuggler(t)
	next := s.heads("")["signed"] + "\r\n"
	var pipeline strings.Builder
	const many = 50
	for range many {
		pipeline.WriteString("GET /api/v1/nothing HTTP/1.1\r\nHost: x\r\n\r\n" + next)
	}
	answers, closed := converse(t, s.g.Addr, pipeline.String()+lastRequest)
	require.True(t, closed)
	require.Len(t, answers, 2*many+1)
	ids := map[string]bool{}
	for i, a := range answers[:2*many] {
		if i%2 == 0 {
			requireProblem(t, a, http.StatusNotFound, "NOT_FOUND")
		} else {
			requireJSON(t, a)
		}
		ids[a.Header.Get("X-Request-Id")] = true
	}
	require.Len(t, ids, 2*many, "each its own answer")

	hidden := s.hidden()
	wrong := strings.Replace(signedLines(s.acme, "GET", eventsPath, hidden), "X-Signature: ", "X-Signature: 0", 1)
	for name, head := range map[string]string{
		"no such path":  "GET /api/v1/nothing HTTP/1.1\r\nHost: x\r\n",
		"not the API's": "GET /elsewhere HTTP/1.1\r\nHost: x\r\n",
		"method":        "POST " + eventsPath + " HTTP/1.1\r\nHost: x\r\n",
		"unsigned":      "GET " + eventsPath + " HTTP/1.1\r\nHost: x\r\n",
		"wrong":         "GET " + eventsPath + " HTTP/1.1\r\nHost: x\r\n" + wrong,
	} {
		for _, body := range []string{hidden, hidden + strings.Repeat("x", 300<<10), strings.Repeat("\r\n", 10) + hidden} {
			answers, closed := converse(t, s.g.Addr, head+"Content-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body+next+lastRequest)
			require.True(t, closed, name)
			require.LessOrEqual(t, len(answers), 1, name)
			if len(answers) == 1 {
				require.GreaterOrEqual(t, answers[0].Status, 400, name)
			}
			s.requireNothingSmuggled(t, name)
		}
	}
	// a body that nobody reads, behind an answer that is no refusal: nothing of it is a request, however large it is
	for _, fill := range []int{0, 200 << 10, 256 << 10, 300 << 10, 2 << 20} {
		body := strings.Repeat("x", fill) + hidden + strings.Repeat(hidden, 100)
		answers, closed := converse(t, s.g.Addr, "GET /api/v1/status HTTP/1.1\r\nHost: x\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body+next+lastRequest)
		require.True(t, closed, fill)
		require.Len(t, answers, 1, fill)
		requireJSON(t, answers[0])
		s.requireNothingSmuggled(t, "an unread body")
	}
	// a body that was signed has been read to its end: what is behind it is the next request, and only that
	answers, closed = converse(t, s.g.Addr, "GET "+eventsPath+"?count=x HTTP/1.1\r\nHost: x\r\n"+
		signedLines(s.acme, "GET", eventsPath+"?count=x", hidden)+"Content-Length: "+strconv.Itoa(len(hidden))+"\r\n\r\n"+hidden+next+lastRequest)
	require.True(t, closed)
	require.Len(t, answers, 3)
	requireProblem(t, answers[0], http.StatusBadRequest, "INVALID_PARAMETER")
	requireJSON(t, answers[1])
	s.requireNothingSmuggled(t, "a signed body")
}

// A body on a GET is the caller's right (and signed), and goes no further than the gateway.
func TestABodyOnAGetIsSignedAndGoesNoFurther(t *testing.T) {
	t.Parallel()
	s := newPatientSmuggler(t)
	hidden := s.hidden()
	length := "Content-Length: " + strconv.Itoa(len(hidden)) + "\r\n\r\n"
	for kind, head := range map[string]string{
		"unsigned": s.heads("")["unsigned"], "signed": s.heads(hidden)["signed"],
		"head": "HEAD " + eventsPath + " HTTP/1.1\r\nHost: x\r\n" + signedLines(s.acme, "HEAD", eventsPath, hidden),
	} {
		methods, want := []string{"GET", "GET"}, 2
		switch kind {
		case "head":
			methods[0] = "HEAD"
		case "unsigned":
			want = 1 // nobody has read the body: the connection ends with the answer
		}
		answers, closed := converse(t, s.g.Addr, head+length+hidden+lastRequest, methods...)
		require.True(t, closed)
		require.Len(t, answers, want, kind)
		for _, a := range answers {
			require.Equal(t, http.StatusOK, a.Status, "%s: %s", kind, a.Body)
		}
		s.requireNothingSmuggled(t, kind)
	}
	require.Equal(t, 2, s.data.count())
	// the signature covers it
	answers, _ := converse(t, s.g.Addr, s.heads("")["signed"]+length+hidden+lastRequest)
	requireProblem(t, answers[0], http.StatusUnauthorized, "INVALID_CREDENTIALS")
}

// dialog is one connection of which the test decides when it sends what.
type dialog struct {
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, addr, first string) *dialog {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(conn, first)
	require.NoError(t, err)
	return &dialog{Conn: conn, r: bufio.NewReader(conn)}
}

// refusals are requests that are refused before their body is of interest.
func (s *smuggler) refusals() map[string]struct {
	head   string
	status int
	code   string
} {
	expired := signedAt(s.acme, time.Now().Unix()-1000, "GET", eventsPath, "")
	host := " HTTP/1.1\r\nHost: x\r\n"
	return map[string]struct {
		head   string
		status int
		code   string
	}{
		"no such path":     {"GET /api/v1/nothing" + host + "Content-Length: 50000\r\n", 404, "NOT_FOUND"},
		"outside the API":  {"GET /elsewhere" + host + "Content-Length: 50000\r\n", 404, "NOT_FOUND"},
		"method":           {"POST /api/v1/status" + host + "Content-Length: 50000\r\n", 405, "METHOD_NOT_ALLOWED"},
		"unsigned":         {"GET " + eventsPath + host + "Content-Length: 50000\r\n", 401, "MISSING_CREDENTIALS"},
		"unsigned, chunks": {"GET " + eventsPath + host + "Transfer-Encoding: chunked\r\n", 401, "MISSING_CREDENTIALS"},
		"expired":          {"GET " + eventsPath + host + expired + "Content-Length: 50000\r\n", 401, "REQUEST_EXPIRED"},
		"too large":        {"GET " + eventsPath + host + signedLines(s.acme, "GET", eventsPath, "") + "Content-Length: 1048577\r\n", 413, "BODY_TOO_LARGE"},
	}
}

func signedAt(c gatewaytest.Caller, timestamp int64, method, target, body string) string {
	return fmt.Sprintf("X-Public-Key: %s\r\nX-Timestamp: %d\r\nX-Signature: %s\r\n",
		c.PublicKey, timestamp, authsigner.Sign(c.PrivateKey, timestamp, method, target, []byte(body)))
}

// beforeTheBody is how soon an early refusal must be there, in the best of a few attempts: long before a gateway gives a body
// up (after 10 s by default). A busy machine is no slow gateway.
func beforeTheBody(t *testing.T, what string, try func() time.Duration) {
	t.Helper()
	best := patience
	for range 5 {
		if best = min(best, try()); best < 5*time.Second {
			return
		}
	}
	require.Fail(t, "an answer waits for the body", "%s: %s at best", what, best)
}

// requireHungUp waits until the server has ended the connection.
func requireHungUp(t *testing.T, d *dialog) {
	t.Helper()
	_, err := io.Copy(io.Discard, d.r)
	var ne net.Error
	require.False(t, errors.As(err, &ne) && ne.Timeout(), "the connection is held")
	require.NoError(t, d.Close())
}

// An early refusal comes at once, whether the body is waited for with Expect: 100-continue or trickled in, and the
// connection is given up soon after: whatever comes on it is the rest of a body, and no request.
func TestAnEarlyRefusalNeitherWaitsForTheBodyNorForItsTrickle(t *testing.T) {
	t.Parallel()
	s := newPatientSmuggler(t)
	for name, tc := range s.refusals() {
		for how, first := range map[string]string{"expect": "Expect: 100-continue\r\n\r\n", "nothing": "\r\n", "trickle": "\r\n"} {
			beforeTheBody(t, name+", "+how, func() time.Duration {
				start := time.Now()
				d := dial(t, s.g.Addr, tc.head+first)
				stop := make(chan struct{})
				defer close(stop)
				if how == "trickle" {
					go trickle(d, stop)
				}
				a, err := readAnswer(d.r, "GET")
				took := time.Since(start)
				require.NoError(t, err, "%s, %s", name, how)
				requireProblem(t, a, tc.status, tc.code)
				require.Equal(t, "close", a.Header.Get("Connection"), "%s, %s", name, how)
				requireHungUp(t, d)
				return took
			})
		}
	}
	s.requireNothingSmuggled(t, "an early refusal")
}

// The same over HTTP/2 and HTTP/3, where a request without its body is a stream that stays open.
func TestAnEarlyRefusalOverHTTP2AndHTTP3DoesNotWaitForTheBody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, &recorder{})
	// nobody here waits as long as the gateway would wait for a body
	g, h3 := startEverywhere(t, w.options(roomyLimits, "body_timeout 10m"))
	for name, tc := range map[string]struct {
		method, target string
		fields         []field
		status         int
		code           string
	}{
		"no such path": {"GET", "/api/v1/nothing", nil, 404, "NOT_FOUND"},
		"method":       {"POST", "/api/v1/status", nil, 405, "METHOD_NOT_ALLOWED"},
		"unsigned":     {"GET", eventsPath, nil, 401, "MISSING_CREDENTIALS"},
		"expired": {"GET", eventsPath, []field{
			{"x-public-key", w.acme.PublicKey},
			{"x-timestamp", strconv.FormatInt(time.Now().Unix()-1000, 10)},
			{"x-signature", strings.Repeat("ab", 32)},
		}, 401, "REQUEST_EXPIRED"},
		"too large": {"GET", eventsPath, append(signedFields(w.acme, "GET", eventsPath, ""), field{"content-length", "1048577"}), 413, "BODY_TOO_LARGE"},
	} {
		for _, more := range [][]field{nil, {{"expect", "100-continue"}}} {
			fields := append(slices.Clone(tc.fields), more...)
			if name != "too large" {
				fields = append(fields, field{"content-length", "50000"})
			}
			start := time.Now()
			c := dialH2(t, g.Addr)
			requireProblem(t, c.read(c.open(append(h2Request(tc.method, tc.target), fields...)...)), tc.status, tc.code)
			over2 := time.Since(start)
			start = time.Now()
			a, err := h3.exchange(h3Headers(append(h3Request(tc.method, tc.target), fields...)...), false)
			require.NoError(t, err, name)
			requireProblem(t, a, tc.status, tc.code)
			t.Logf("%s: refused in %s over HTTP/2, in %s over HTTP/3", name, over2, time.Since(start))
		}
	}
}

// HTTP/2 and HTTP/3 frame a body themselves: a Content-Length or Transfer-Encoding that says otherwise makes the request
// malformed (RFC 9113, section 8.1.1; RFC 9114, section 4.1.2), and no body, whatever it holds, is a request.
func TestSmugglingByLengthsThroughHTTP2AndHTTP3(t *testing.T) {
	t.Parallel()
	data := &recorder{}
	s := &smuggler{world: newWorld(t, data), data: data}
	g, h3 := startEverywhere(t, s.options(roomyLimits, "body_timeout 1s"))
	hidden := s.hidden()
	n := strconv.Itoa(len(hidden))
	for _, lines := range [][]field{
		{{"content-length", "0"}},
		{{"content-length", "1"}},
		{{"content-length", strconv.Itoa(len(hidden) + 1)}},
		{{"content-length", n}, {"content-length", "0"}},
		{{"content-length", "0"}, {"content-length", n}},
		{{"content-length", n + ", 0"}},
		{{"content-length", "+" + n}},
		{{"content-length", "-1"}},
		{{"content-length", "18446744073709551617"}},
		{{"transfer-encoding", "chunked"}},
		{{"transfer-encoding", "chunked"}, {"content-length", n}},
		{{"te", "chunked"}},
		{{"x-note", "a\r\n\r\n" + hidden}},
		{{"x-note\r\nContent-Length: 0", "a"}},
		{{"content-length", n + "\r\nTransfer-Encoding: chunked"}},
		{{":path", "/api/v1/contacts"}},
		{{":authority", "evil\r\n\r\n" + hidden}},
	} {
		for _, body := range []string{hidden, "0\r\n\r\n" + hidden, ""} {
			for _, signed := range []string{"", body} {
				fields := append(slices.Clone(lines), signedFields(s.acme, "GET", eventsPath, signed)...)
				for _, a := range []gatewaytest.Answer{
					dialH2(t, g.Addr).do(body, append(h2Request("GET", eventsPath), fields...)...),
					h3.do(body, append(h3Request("GET", eventsPath), fields...)...),
				} {
					require.Contains(t, []int{0, 200, 400, 401, 408}, a.Status, "%v: %s", lines, a.Body)
				}
				s.requireNothingSmuggled(t, fmt.Sprint(lines))
			}
		}
	}
	// in the target and the method as well
	for _, target := range []string{eventsPath + " HTTP/1.1\r\nHost: x\r\n\r\n" + hidden, eventsPath + "\r\n\r\n" + hidden, eventsPath + "?x=\r\n\r\n" + hidden} {
		for _, method := range []string{"GET", "GET " + eventsPath + " HTTP/1.1\r\n\r\nGET", "GET\r\n"} {
			fields := signedFields(s.acme, method, target, "")
			require.NotEqual(t, http.StatusOK, dialH2(t, g.Addr).do("", append(h2Request(method, target), fields...)...).Status, "%q %q", method, target)
			require.NotEqual(t, http.StatusOK, h3.do("", append(h3Request(method, target), fields...)...).Status, "%q %q", method, target)
			s.requireNothingSmuggled(t, method+target)
		}
	}
	require.Equal(t, http.StatusOK, h3.do("", append(h3Request("GET", eventsPath), signedFields(s.acme, "GET", eventsPath, "")...)...).Status, "the others go on")
}

// trickle sends a byte every 50 ms until stop or an error.
func trickle(w io.Writer, stop <-chan struct{}) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			if _, err := io.WriteString(w, "1"); err != nil {
				return
			}
		}
	}
}

func TestARequestThatExpectsToContinueIsToldSoOnlyWhenItsBodyIsWanted(t *testing.T) {
	t.Parallel()
	s := newPatientSmuggler(t)
	const body = "a body"
	d := dial(t, s.g.Addr, s.heads(body)["signed"]+"Expect: 100-continue\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n")
	a, err := readAnswer(d.r, "GET")
	require.NoError(t, err)
	require.Equal(t, http.StatusContinue, a.Status)
	_, err = io.WriteString(d, body+lastRequest)
	require.NoError(t, err)
	a, err = readAnswer(d.r, "GET")
	require.NoError(t, err)
	requireJSON(t, a)
	a, err = readAnswer(d.r, "GET")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, a.Status)
	// a used-up budget refuses before the body, too
	g := s.gateway(t)
	for range 10 {
		require.Equal(t, http.StatusOK, anonymous().Get(t, g.URL, "/api/v1/status").Status)
	}
	beforeTheBody(t, "a used-up budget", func() time.Duration {
		start := time.Now()
		d := dial(t, g.Addr, "GET /api/v1/status HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
		a, err := readAnswer(d.r, "GET")
		require.NoError(t, err)
		requireProblem(t, a, http.StatusTooManyRequests, "RATE_LIMITED")
		return time.Since(start)
	})
	// an expectation that nobody can meet is refused by the server itself, before any handler
	answers, closed := converse(t, s.g.Addr, s.heads("")["signed"]+"Expect: the-unexpected\r\n\r\n"+s.hidden()+lastRequest)
	require.True(t, closed)
	require.Len(t, answers, 1)
	require.Equal(t, http.StatusExpectationFailed, answers[0].Status)
	s.requireNothingSmuggled(t, "an expectation")
}

func TestABodyThatIsTrickledInIsRefusedInTime(t *testing.T) {
	t.Parallel()
	s := newSmuggler(t) // body_timeout 1s
	for name, head := range map[string]string{
		"length":  s.heads("")["signed"] + "Content-Length: 1000\r\n\r\n",
		"chunked": s.heads("")["signed"] + "Transfer-Encoding: chunked\r\n\r\n3e8\r\n",
		"chunks":  s.heads("")["signed"] + "Transfer-Encoding: chunked\r\n\r\n", // a size that never ends
	} {
		for _, more := range []bool{true, false} {
			start := time.Now()
			d := dial(t, s.g.Addr, head)
			stop := make(chan struct{})
			if more {
				go trickle(d, stop)
			}
			a, err := readAnswer(d.r, "GET")
			require.NoError(t, err, name)
			took := time.Since(start)
			requireProblem(t, a, http.StatusRequestTimeout, "REQUEST_TIMEOUT")
			require.Greater(t, took, 900*time.Millisecond, name)
			requireHungUp(t, d)
			close(stop)
		}
	}
	// over HTTP/2 it is a stream that ends
	c := dialH2(t, s.g.Addr)
	id := c.open(append(h2Request("GET", eventsPath), signedFields(s.acme, "GET", eventsPath, "")...)...)
	require.NoError(t, c.framer.WriteData(id, false, []byte("1")))
	a := c.read(id)
	requireProblem(t, a, http.StatusRequestTimeout, "REQUEST_TIMEOUT")
	require.Zero(t, s.data.count())
	// nobody waits for a body that nobody needs
	g := s.roomy(t)
	beforeTheBody(t, "a body that nobody needs", func() time.Duration {
		start := time.Now()
		d := dial(t, g.Addr, "GET /api/v1/status HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n1")
		a, err := readAnswer(d.r, "GET")
		require.NoError(t, err)
		requireJSON(t, a)
		return time.Since(start)
	})
}
