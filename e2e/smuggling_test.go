package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// newSmuggler starts a gateway with HTTP/1.1 and HTTP/2. Only a smuggled request reads contacts from its data service. Tests with
// incomplete bodies set body_timeout 1s.
func newSmuggler(t *testing.T, api string) *attack {
	t.Helper()
	s := &attack{data: &recorder{}}
	s.environment = newEnvironment(t, s.data)
	s.g = s.environment.start(t, highLimits, api)
	return s
}

// hidden returns a complete, validly signed request: if it is served, it reaches the data service.
func (s *attack) hidden() string {
	return "GET /api/v1/contacts HTTP/1.1\r\nHost: api.example.com\r\n" + signedLines(s.acme, "GET", "/api/v1/contacts", "") + "\r\n"
}

func (s *attack) requireNothingSmuggled(t *testing.T, what string) {
	t.Helper()
	for _, r := range s.data.all()[s.checked:] {
		s.checked++
		require.NotContains(t, r.RequestURI, "contacts", "smuggled by %q", what)
		if r.RequestURI == searchPath {
			require.Equal(t, "POST", r.Method)
			require.Equal(t, int64(len(strings.ReplaceAll(searchBody, ": ", ":"))), r.ContentLength)
			continue
		}
		require.Equal(t, "GET", r.Method)
		if r.RequestURI == shopPath {
			require.Equal(t, int64(len(shopBody)), r.ContentLength)
			continue
		}
		require.Zero(t, r.ContentLength)
		require.Empty(t, r.TransferEncoding)
	}
}

// heads returns heads of requests that are served without reading their body, served after reading it, and rejected.
func (s *attack) heads(body string) map[string]string {
	host := " HTTP/1.1\r\nHost: api.example.com\r\n"
	return map[string]string{
		"unsigned": "GET /api/v1/status" + host,
		"signed":   "GET " + eventsPath + host + signedLines(s.acme, "GET", eventsPath, body),
		"refused":  "GET /api/v1/nothing" + host,
		"post":     "POST /api/v1/status" + host,
	}
}

func TestSmugglingByContentLength(t *testing.T) {
	t.Parallel()
	s := newSmuggler(t, "body_timeout 1s")
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
			responses, closed := converse(t, s.g.Addr, head+lines+"\r\n\r\n"+hidden+lastRequest)
			require.True(t, closed, "%s: %q", kind, lines)
			require.Len(t, responses, 1, "%s: %q", kind, lines)
			require.Equal(t, http.StatusBadRequest, responses[0].Status, "%s: %q", kind, lines)
			s.requireNothingSmuggled(t, lines)
		}
	}
}

func TestSmugglingByChunkedEncoding(t *testing.T) {
	t.Parallel()
	s := newSmuggler(t, "body_timeout 1s")
	hidden := s.hidden()
	head := func(body string) string { return s.heads(body)["signed"] + "Transfer-Encoding: chunked\r\n\r\n" }
	// a request that is served has the body that was signed
	requireJSON(t, raw(t, s.unlimited(t).Addr, head("hello")+"5\r\nhello\r\n0\r\n\r\n"+lastRequest))
	for _, chunks := range []string{
		"5;a=b\r\nhello\r\n0\r\n\r\n", "5 ; a\r\nhello\r\n0;x\r\n\r\n", "5;a=\"\r\nhello\r\n0\r\n\r\n", "5;" + strings.Repeat("x", 10000) + "\r\nhello\r\n0\r\n\r\n",
		"5\nhello\n0\n\n", "5\r\nhello\n0\r\n\r\n", "5\nhello\r\n0\r\n\r\n", "5;\nhello\r\n0\r\n\r\n", "5;a\nb\r\nhello\r\n0\r\n\r\n", "5\rhello\r0\r\r",
		"0x5\r\nhello\r\n0\r\n\r\n", "+5\r\nhello\r\n0\r\n\r\n", "-5\r\nhello\r\n0\r\n\r\n", " 5\r\nhello\r\n0\r\n\r\n", "5\x00\r\nhello\r\n0\r\n\r\n",
		"5_\r\nhello\r\n0\r\n\r\n", "00000000000000000005\r\nhello\r\n0\r\n\r\n", "10000000000000005\r\nhello\r\n0\r\n\r\n", "fffffffffffffffb\r\nhello\r\n0\r\n\r\n",
		"5\r\nhelloX\r\n0\r\n\r\n", "5\r\nhell\r\n0\r\n\r\n", "\r\n5\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n\r\n0\r\n\r\n", "5\r\nhello\r\n0\r\n", "5\r\nhello\r\n00\r\n\r\n",
		// trailers
		"5\r\nhello\r\n0\r\nX-Business-Id: " + s.otherID + "\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\nHost: evil\r\n\r\n",
		"5\r\nhello\r\n0\r\n" + strings.Repeat("X-Filler: "+strings.Repeat("x", 1000)+"\r\n", 2000) + "\r\n",
	} {
		for kind, prefix := range map[string]string{
			"signed": head("hello"), "unsigned": s.heads("")["unsigned"] + "Transfer-Encoding: chunked\r\n\r\n",
			"refused": s.heads("")["refused"] + "Transfer-Encoding: chunked\r\n\r\n",
		} {
			responses, closed := converse(t, s.g.Addr, prefix+chunks+hidden+lastRequest)
			require.True(t, closed, "%s %.80q", kind, chunks)
			require.LessOrEqual(t, len(responses), 1, "a connection ends with a chunked request: %s %.80q", kind, chunks)
			if kind == "signed" {
				require.Len(t, responses, 1, "%.80q", chunks)
				require.Contains(t, []int{200, 400, 401, 408}, responses[0].Status, "%.80q: %s", chunks, responses[0].Body)
			}
			s.requireNothingSmuggled(t, chunks)
		}
	}
	// the signature in a trailer
	lines := strings.SplitAfter(signedLines(s.acme, "GET", eventsPath, ""), "\r\n")
	a := raw(t, s.g.Addr, "GET "+eventsPath+" HTTP/1.1\r\nHost: x\r\nTrailer: X-Signature\r\nTransfer-Encoding: chunked\r\n"+lines[0]+lines[1]+
		"\r\n0\r\n"+lines[2]+"\r\n"+lastRequest)
	requireProblem(t, a, http.StatusUnauthorized, "MISSING_CREDENTIALS")
}

func TestSmugglingByLineEndings(t *testing.T) {
	t.Parallel()
	s := newSmuggler(t, "body_timeout 1s")
	hidden := s.hidden()
	signed := s.heads("")["signed"]
	for _, request := range []string{
		strings.ReplaceAll(signed, "\r\n", "\n") + "Connection: close\n\n",
		strings.ReplaceAll(signed, "\r\n", "\n\r") + "Connection: close\n\r\n\r",
		strings.ReplaceAll(signed, "\r\n", "\r") + "Connection: close\r\r\n\r\n",
		strings.ReplaceAll(signed, "\r\n", "\r\r\n") + "Connection: close\r\r\n\r\r\n",
		signed + "X: a\nContent-Length: 0\nConnection: close\r\n\r\n",
		// declared bodies
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
	} {
		responses, closed := converse(t, s.g.Addr, request)
		require.True(t, closed, "%q", request)
		require.LessOrEqual(t, len(responses), 1, "%q", request)
		s.requireNothingSmuggled(t, request)
	}
	// after the preface of HTTP/2, the server sends frames
	dial(t, s.g.Addr, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+hidden).requireClosed(t)
	s.requireNothingSmuggled(t, "PRI")
}

// After a rejected request without a body, the next one is served; after one with a body, the connection ends.
func TestPipeliningAfterADeniedRequest(t *testing.T) {
	t.Parallel()
	s := newSmuggler(t, "")
	next := s.heads("")["signed"] + "\r\n"
	var pipeline strings.Builder
	const many = 50
	for range many {
		pipeline.WriteString("GET /api/v1/nothing HTTP/1.1\r\nHost: x\r\n\r\n" + next)
	}
	responses, closed := converse(t, s.g.Addr, pipeline.String()+lastRequest)
	require.True(t, closed)
	require.Len(t, responses, 2*many+1)
	ids := map[string]bool{}
	for i, a := range responses[:2*many] {
		if i%2 == 0 {
			requireProblem(t, a, http.StatusNotFound, "NOT_FOUND")
		} else {
			requireJSON(t, a)
		}
		ids[a.Header.Get("X-Request-Id")] = true
	}
	require.Len(t, ids, 2*many, "each response has its own ID")

	hidden := s.hidden()
	wrong := strings.Replace(signedLines(s.acme, "GET", eventsPath, hidden), "x-signature: ", "x-signature: 0", 1)
	for name, head := range map[string]string{
		"no such path":  "GET /api/v1/nothing HTTP/1.1\r\nHost: x\r\n",
		"not the API's": "GET /elsewhere HTTP/1.1\r\nHost: x\r\n",
		"method":        "POST " + eventsPath + " HTTP/1.1\r\nHost: x\r\n",
		"unsigned":      "GET " + eventsPath + " HTTP/1.1\r\nHost: x\r\n",
		"wrong":         "GET " + eventsPath + " HTTP/1.1\r\nHost: x\r\n" + wrong,
	} {
		for _, body := range []string{hidden, hidden + strings.Repeat("x", 300<<10), strings.Repeat("\r\n", 10) + hidden} {
			responses, closed := converse(t, s.g.Addr, head+"Content-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body+next+lastRequest)
			require.True(t, closed, name)
			require.LessOrEqual(t, len(responses), 1, name)
			if len(responses) == 1 {
				require.GreaterOrEqual(t, responses[0].Status, 400, name)
			}
			s.requireNothingSmuggled(t, name)
		}
	}
	// an unread body after a success
	for _, fill := range []int{0, 200 << 10, 256 << 10, 300 << 10, 2 << 20} {
		body := strings.Repeat("x", fill) + hidden + strings.Repeat(hidden, 100)
		responses, closed := converse(t, s.g.Addr, "GET /api/v1/status HTTP/1.1\r\nHost: x\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body+next+lastRequest)
		require.True(t, closed, fill)
		require.Len(t, responses, 1, fill)
		requireJSON(t, responses[0])
		s.requireNothingSmuggled(t, "an unread body")
	}
	// a signed body has been read completely: the next request follows it
	responses, closed = converse(t, s.g.Addr, "GET "+eventsPath+"?count=x HTTP/1.1\r\nHost: x\r\n"+
		signedLines(s.acme, "GET", eventsPath+"?count=x", hidden)+"Content-Length: "+strconv.Itoa(len(hidden))+"\r\n\r\n"+hidden+next+lastRequest)
	require.True(t, closed)
	require.Len(t, responses, 3)
	requireProblem(t, responses[0], http.StatusBadRequest, "INVALID_PARAMETER")
	requireJSON(t, responses[1])
	s.requireNothingSmuggled(t, "a signed body")
}

func TestGetBodyIsSignedButNotForwarded(t *testing.T) {
	t.Parallel()
	s := newSmuggler(t, "")
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
			want = 1 // the body was not read: the connection ends
		}
		responses, closed := converse(t, s.g.Addr, head+length+hidden+lastRequest, methods...)
		require.True(t, closed)
		require.Len(t, responses, want, kind)
		for _, a := range responses {
			assert.Equal(t, http.StatusOK, a.Status, "%s: %s", kind, a.Body)
		}
		s.requireNothingSmuggled(t, kind)
	}
	require.Equal(t, 2, s.data.count())
	// the signature covers it
	a := raw(t, s.g.Addr, s.heads("")["signed"]+length+hidden+lastRequest)
	requireProblem(t, a, http.StatusUnauthorized, "INVALID_CREDENTIALS")
}

// beforeTheBody requires a response within 5 s, long before body_timeout (10 s), in one of five attempts: the machine may be busy.
func beforeTheBody(t *testing.T, what string, try func()) {
	t.Helper()
	best := patience
	for range 5 {
		start := time.Now()
		try()
		if best = min(best, time.Since(start)); best < 5*time.Second {
			return
		}
	}
	assert.Fail(t, "the response waits for the body", "%s: %s at best", what, best)
}

// trickle sends a byte every 50 ms until stop is called, or there is an error.
func trickle(w io.Writer) (stop func()) {
	done := make(chan struct{})
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				if _, err := io.WriteString(w, "1"); err != nil {
					return
				}
			}
		}
	}()
	return func() { close(done) }
}

// HTTP/2 and HTTP/3 frame bodies themselves: a different Content-Length or Transfer-Encoding makes the request malformed (RFC 9113,
// section 8.1.1; RFC 9114, section 4.1.2).
func TestSmugglingOverHTTP2AndHTTP3(t *testing.T) {
	t.Parallel()
	s := newAttack(t, "", "", "body_timeout 1s")
	g, h3 := s.g, s.h3
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
				for _, a := range []gatewaytest.Response{
					dialH2(t, g.Addr).do(body, append(h2Request("GET", eventsPath), fields...)...),
					h3.do(body, append(h3Request("GET", eventsPath), fields...)...),
				} {
					assert.Contains(t, []int{0, 200, 400, 401, 408}, a.Status, "%v: %s", lines, a.Body)
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
	require.Equal(t, http.StatusOK, h3.do("", append(h3Request("GET", eventsPath), signedFields(s.acme, "GET", eventsPath, "")...)...).Status, "other requests are served")
}

func TestContinueIsSentOnlyForNeededBodies(t *testing.T) {
	t.Parallel()
	s := newSmuggler(t, "")
	const body = "a body"
	c := dial(t, s.g.Addr, s.heads(body)["signed"]+"Expect: 100-continue\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n")
	for i, status := range []int{http.StatusContinue, http.StatusOK, http.StatusOK} {
		a, err := readResponse(c.r, http.MethodGet)
		require.NoError(t, err)
		require.Equal(t, status, a.Status)
		if i == 0 {
			_, err = io.WriteString(c, body+lastRequest)
			require.NoError(t, err)
		}
	}
	// a limited request is denied before its body
	g := s.gateway(t)
	statuses(10, func(int) gatewaytest.Response { return anonymous().Get(t, g.URL, "/api/v1/status") })
	beforeTheBody(t, "a limited request", func() {
		c := dial(t, g.Addr, "GET /api/v1/status HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
		a, err := readResponse(c.r, http.MethodGet)
		require.NoError(t, err)
		requireProblem(t, a, http.StatusTooManyRequests, "RATE_LIMITED")
	})
	// net/http rejects other expectations itself
	responses, closed := converse(t, s.g.Addr, s.heads("")["signed"]+"Expect: the-unexpected\r\n\r\n"+s.hidden()+lastRequest)
	require.True(t, closed)
	require.Len(t, responses, 1)
	require.Equal(t, http.StatusExpectationFailed, responses[0].Status)
	s.requireNothingSmuggled(t, "an expectation")
}

func TestSlowSignedBodyTimesOut(t *testing.T) {
	t.Parallel()
	s := newSmuggler(t, "body_timeout 1s")
	for name, head := range map[string]string{
		"length":  "Content-Length: 1000\r\n\r\n",
		"chunked": "Transfer-Encoding: chunked\r\n\r\n3e8\r\n",
		"chunks":  "Transfer-Encoding: chunked\r\n\r\n", // a size that never ends
	} {
		for _, more := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, more: %t", name, more), func(t *testing.T) {
				t.Parallel()
				start := time.Now()
				c := dial(t, s.g.Addr, s.heads("")["signed"]+head)
				if more {
					defer trickle(c)()
				}
				a, err := readResponse(c.r, http.MethodGet)
				require.NoError(t, err)
				requireProblem(t, a, http.StatusRequestTimeout, "REQUEST_TIMEOUT")
				require.Greater(t, time.Since(start), 900*time.Millisecond)
				c.requireClosed(t)
			})
		}
	}
	c := dialH2(t, s.g.Addr)
	id, err := c.open(false, append(h2Request("GET", eventsPath), signedFields(s.acme, "GET", eventsPath, "")...)...)
	require.NoError(t, err)
	require.NoError(t, c.framer.WriteData(id, false, []byte("1")))
	requireProblem(t, c.read(id), http.StatusRequestTimeout, "REQUEST_TIMEOUT")
	t.Cleanup(func() { require.Zero(t, s.data.count()) })
}
