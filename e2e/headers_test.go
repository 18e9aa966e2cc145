package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// field is one header line, or pseudo-header, as it goes over the wire.
type field struct{ name, value string }

// h2Conn speaks HTTP/2 frame by frame, so that what no client library sends can be sent.
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
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	c := &h2Conn{t: t, conn: conn, framer: http2.NewFramer(conn, conn), next: 1}
	c.enc = hpack.NewEncoder(&c.block)
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.framer.AllowIllegalWrites = true
	_, err = io.WriteString(conn, http2.ClientPreface)
	require.NoError(t, err)
	require.NoError(t, c.framer.WriteSettings())
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	return c
}

// do sends one request on a stream of its own. A stream or connection that the server ends without an answer is status 0.
func (c *h2Conn) do(body string, fields ...field) gatewaytest.Answer {
	c.t.Helper()
	require.NoError(c.t, c.conn.SetDeadline(time.Now().Add(patience)))
	id := c.next
	c.next += 2
	c.block.Reset()
	for _, f := range fields {
		require.NoError(c.t, c.enc.WriteField(hpack.HeaderField{Name: f.name, Value: f.value}))
	}
	const frame = 16 << 10
	rest := c.block.Bytes()
	part := rest[:min(frame, len(rest))]
	rest = rest[len(part):]
	err := c.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: id, BlockFragment: part, EndStream: body == "", EndHeaders: len(rest) == 0,
	})
	for err == nil && len(rest) > 0 {
		part, rest = rest[:min(frame, len(rest))], rest[min(frame, len(rest)):]
		err = c.framer.WriteContinuation(id, len(rest) == 0, part)
	}
	if err == nil && body != "" {
		err = c.framer.WriteData(id, true, []byte(body))
	}
	if err != nil {
		return gatewaytest.Answer{} // the server has closed the connection in the middle
	}
	return c.read(id)
}

// open sends the headers of a request whose body is to follow.
func (c *h2Conn) open(fields ...field) uint32 {
	c.t.Helper()
	id := c.next
	c.next += 2
	c.block.Reset()
	for _, f := range fields {
		require.NoError(c.t, c.enc.WriteField(hpack.HeaderField{Name: f.name, Value: f.value}))
	}
	require.NoError(c.t, c.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: id, BlockFragment: c.block.Bytes(), EndHeaders: true,
	}))
	return id
}

func (c *h2Conn) read(id uint32) gatewaytest.Answer {
	var (
		a    gatewaytest.Answer
		text strings.Builder
	)
	for {
		f, err := c.framer.ReadFrame()
		if err != nil {
			return gatewaytest.Answer{}
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = c.framer.WriteSettingsAck()
			}
		case *http2.GoAwayFrame:
			return gatewaytest.Answer{}
		case *http2.RSTStreamFrame:
			if f.StreamID == id {
				return gatewaytest.Answer{}
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
			if a.Status < 200 {
				continue
			}
			if f.StreamEnded() {
				return a
			}
		case *http2.DataFrame:
			if f.StreamID != id {
				continue
			}
			text.Write(f.Data())
			if f.StreamEnded() {
				a.Body = text.String()
				return a
			}
		}
	}
}

// h2Request are the pseudo-headers of a request in plain text.
func h2Request(method, target string) []field { return pseudo("http", method, target) }

// signedFields are the three headers of a signed request.
func signedFields(c gatewaytest.Caller, method, target, body string) []field {
	now := time.Now().Unix()
	return []field{
		{"x-public-key", c.PublicKey},
		{"x-timestamp", strconv.FormatInt(now, 10)},
		{"x-signature", authsigner.Sign(c.PrivateKey, now, method, target, []byte(body))},
	}
}

// wires send the same request over HTTP/1.1 and HTTP/2: fields are what is under test.
func wires(t *testing.T, g *gatewaytest.Gateway) map[string]sender {
	t.Helper()
	return counted(t, map[string]sender{
		overHTTP1: func(method, target string, fields []field) gatewaytest.Answer {
			var b strings.Builder
			fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, target, apiHost)
			for _, f := range fields {
				fmt.Fprintf(&b, "%s: %s\r\n", f.name, f.value)
			}
			answers, _ := converse(t, g.Addr, b.String()+"\r\n"+lastRequest)
			if len(answers) == 0 {
				return gatewaytest.Answer{}
			}
			return answers[0]
		},
		overHTTP2: func(method, target string, fields []field) gatewaytest.Answer {
			return dialH2(t, g.Addr).do("", append(h2Request(method, target), lowerCase(fields)...)...)
		},
	})
}

// counted has the test say at its end how many requests went over each wire.
func counted(t *testing.T, all map[string]sender) map[string]sender {
	t.Helper()
	for protocol, send := range all {
		n := new(atomic.Int64)
		all[protocol] = func(method, target string, fields []field) gatewaytest.Answer {
			n.Add(1)
			return send(method, target, fields)
		}
		t.Cleanup(func() { t.Logf("%d requests over %s", n.Load(), protocol) })
	}
	return all
}

const eventsPath = "/api/v1/events"

// relied are the headers that the gateway sets towards a data service or a caller, or relies on itself, and those by which
// other software tells who is calling.
var relied = []string{
	"X-Business-Id", "X-Request-Id", "X-Gateway-Assertion", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Via",
	"X-Public-Key", "X-Timestamp", "X-Signature", "Host", "Accept", "Accept-Encoding", "Accept-Language", "User-Agent", "Traceparent", "Tracestate",
	"Content-Length", "Transfer-Encoding", "Content-Type", "Expect", "Te", "Trailer", "Upgrade", "Connection", "Keep-Alive", "Proxy-Connection",
	"Date", "Cache-Control", "Retry-After", "RateLimit", "RateLimit-Policy", "X-RateLimit-Remaining", "X-Content-Type-Options",
	"Authorization", "Cookie", "Forwarded", "X-Real-Ip", "X-Business_Id", "x_business_id",
}

// nominations name every header of relied alone, in a list, repeated, and in the headers that are Connection's kin.
func nominations() [][]field {
	var all [][]field
	for _, name := range relied {
		all = append(all,
			[]field{{"Connection", name}},
			[]field{{"connection", "keep-alive, " + strings.ToLower(name)}},
			[]field{{"Connection", "close"}, {"Connection", name}},
			[]field{{"Connection", name}, {"Connection", name + "," + name}, {"CONNECTION", "\t" + strings.ToUpper(name) + " ,"}},
			[]field{{"Proxy-Connection", name}, {"Keep-Alive", name}, {"Connection", "Keep-Alive"}},
		)
	}
	return append(all,
		[]field{{"Connection", strings.Join(relied, ",")}},
		[]field{{"Connection", " ,, " + strings.Join(relied, " ,\t") + ","}},
		[]field{{"Connection", strings.Repeat("X-Business-Id,", 500)}},
		[]field{{"Connection", "*"}},
		[]field{{"Connection", "Upgrade, X-Business-Id"}, {"Upgrade", "websocket"}, {"Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="}, {"Sec-WebSocket-Version", "13"}},
		[]field{{"Connection", "Upgrade, HTTP2-Settings, X-Forwarded-For"}, {"Upgrade", "h2c"}, {"HTTP2-Settings", "AAMAAABkAAQAoAAAAAIAAAAA"}},
	)
}

// Hop-by-hop nomination: what Connection names, a proxy takes away. None of the gateway's own may go that way, nor what
// it relies on to know who is calling.
func TestNominatedHopByHopHeadersStayWhereTheGatewayPutThem(t *testing.T) {
	t.Parallel()
	data := &recorder{}
	w := newWorld(t, data)
	_, send := everywhere(t, w.options(roomyLimits+"\n\t\tassertion "+writeAssertionKey(t), ""))
	for i, n := range nominations() {
		forged := append([]field{{"X-Business-Id", w.otherID}, {"X-Gateway-Assertion", "forged"}, {"X-Forwarded-For", "198.51.100.1"}}, n...)
		before := data.count()
		a := send[overHTTP1]("GET", eventsPath, append(forged, signedFields(w.acme, "GET", eventsPath, "")...))
		require.Equal(t, http.StatusOK, a.Status, "%v: %s", n, a.Body)
		require.Equal(t, before+1, data.count())
		got := data.last(t)
		requireGatewaysWord(t, w, overHTTP1, got, a)
		require.NotEmpty(t, got.Header.Get("X-Gateway-Assertion"), "%v", n)
		require.NotEqual(t, "forged", got.Header.Get("X-Gateway-Assertion"))
		// the answer keeps what is the gateway's, too, and the business has paid
		require.Contains(t, a.Header.Get("RateLimit-Policy"), `"key"`, "%v", n)
		for _, name := range []string{"Date", "Cache-Control", "RateLimit", "X-RateLimit-Remaining", "X-Content-Type-Options"} {
			require.NotEmpty(t, a.Header.Get(name), "%v: %s", n, name)
		}
		// who cannot sign gets nowhere by it either
		if i%4 != 0 { // sixty such requests a minute have an answer
			continue
		}
		a = send[overHTTP1]("GET", eventsPath, append(forged, field{"X-Public-Key", w.acme.PublicKey}))
		requireProblem(t, a, http.StatusUnauthorized, "MISSING_CREDENTIALS")
		require.Equal(t, before+1, data.count())
	}
	// HTTP/2 and HTTP/3 have no such headers: a request with one is malformed (RFC 9113, section 8.2.2; RFC 9114, section 4.2)
	for _, protocol := range []string{overHTTP2, overHTTP3} {
		for _, header := range []string{"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "te"} {
			for _, value := range []string{"x-business-id", "x-forwarded-for, x-request-id", strings.Join(relied, ","), "chunked", "trailers"} {
				before := data.count()
				a := send[protocol]("GET", eventsPath, append([]field{{header, value}, {header, value}}, signedFields(w.acme, "GET", eventsPath, "")...))
				if a.Status == http.StatusOK {
					requireGatewaysWord(t, w, protocol, data.last(t), a)
					require.NotEmpty(t, data.last(t).Header.Get("X-Gateway-Assertion"))
					continue
				}
				require.Contains(t, []int{0, http.StatusBadRequest}, a.Status, "%s %s: %s", protocol, header, value)
				require.Equal(t, before, data.count())
			}
		}
		require.Equal(t, http.StatusOK, send[protocol]("GET", eventsPath, signedFields(w.acme, "GET", eventsPath, "")).Status, "the others go on")
	}
}

// The other way round: what a data service nominates takes nothing from the answer that the gateway gives.
func TestADataServiceCannotNominateHeadersOfTheAnswerAway(t *testing.T) {
	t.Parallel()
	data := &recorder{}
	w := newWorld(t, data)
	_, all := everywhere(t, w.options(roomyLimits, ""))
	data.will(func(rw http.ResponseWriter, _ *http.Request) {
		h := rw.Header()
		h["Connection"] = []string{strings.Join(relied, ", "), "close"}
		h.Set("Keep-Alive", "X-Request-Id")
		h.Set("X-Request-Id", "forged")
		h.Set("RateLimit-Policy", "forged")
		h.Set("Retry-After", "7")
		h.Set("Trailer", "X-Request-Id")
		h.Set("Content-Type", "application/json")
		_, _ = io.WriteString(rw, `{"events":[]}`)
		h.Set(http.TrailerPrefix+"X-Request-Id", "forged")
	})
	for protocol, send := range all {
		a := send("GET", eventsPath, signedFields(w.acme, "GET", eventsPath, ""))
		requireJSON(t, a)
		require.Len(t, a.Header["X-Request-Id"], 1, protocol)
		require.Contains(t, a.Header.Get("RateLimit-Policy"), `"key"`)
		require.Equal(t, "nosniff", a.Header.Get("X-Content-Type-Options"))
		require.Equal(t, "no-store", a.Header.Get("Cache-Control"))
		require.Empty(t, a.Header.Get("Retry-After"))
		requireNowhere(t, fmt.Sprint(a.Header, a.Body), "forged")
	}
}

// Behind a proxy whose word counts, a caller cannot have that word taken away: who pays stays the address that it names.
func TestNominatingXForwardedForChangesNothingAboutWhoPays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	_, send := everywhere(t, behindOne(w.options("", "")))
	for protocol, addresses := range map[string]string{overHTTP1: "203.0.113.1", overHTTP2: "203.0.113.2", overHTTP3: "203.0.113.3"} {
		statuses := map[int]int{}
		for i := range 20 {
			fields := []field{{"X-Forwarded-For", fmt.Sprintf("198.51.100.%d, %s", i, addresses)}}
			if protocol == overHTTP1 {
				fields = append(fields, []field{
					{"Connection", "X-Forwarded-For"},
					{"Connection", "close, x-forwarded-for, X-Real-Ip"},
					{"Connection", "X-Forwarded-For, X-Forwarded-For"},
					{"Keep-Alive", "X-Forwarded-For"},
				}[i%4])
			}
			statuses[send[protocol]("GET", "/api/v1/status", fields).Status]++
		}
		require.Equal(t, map[int]int{http.StatusOK: 10, http.StatusTooManyRequests: 10}, statuses, protocol)
	}
}

// requireGatewaysWord holds what a data service got to what the gateway alone says.
func requireGatewaysWord(t *testing.T, w *world, protocol string, got *http.Request, a gatewaytest.Answer) {
	t.Helper()
	scheme := map[string]string{overHTTP1: "http", overHTTP2: "http", overHTTP3: "https"}[protocol]
	require.Equal(t, []string{w.acmeID}, got.Header["X-Business-Id"])
	require.Equal(t, a.Header["X-Request-Id"], got.Header["X-Request-Id"])
	require.Equal(t, []string{"127.0.0.1"}, got.Header["X-Forwarded-For"])
	require.Equal(t, []string{scheme}, got.Header["X-Forwarded-Proto"])
	require.Equal(t, []string{apiHost}, got.Header["X-Forwarded-Host"])
	require.Equal(t, []string{"application/json"}, got.Header["Accept"])
	require.Equal(t, []string{"identity"}, got.Header["Accept-Encoding"])
	require.Equal(t, "GET", got.Method)
	require.Equal(t, eventsPath+"?count=10", got.RequestURI)
	require.Zero(t, got.ContentLength)
	allowed := []string{
		"Accept", "Accept-Encoding", "Accept-Language", "User-Agent", "Via", "X-Business-Id", "X-Request-Id", "X-Gateway-Assertion",
		"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Traceparent", "Tracestate",
	}
	for name := range got.Header {
		require.Contains(t, allowed, name)
	}
}

// Forged identity, addresses and overrides, in every spelling, over each protocol.
func TestForgedHeadersNeverReachADataServiceNorChangeTheRequest(t *testing.T) {
	t.Parallel()
	data := &recorder{}
	w := newWorld(t, data)
	g, all := everywhere(t, w.options(roomyLimits, ""))
	forged := []field{
		{"X-Business-Id", w.otherID},
		{"X-Business-Id", w.otherID},
		{"X_Business_Id", w.otherID},
		{"X-Business_Id", w.otherID},
		{"X.Business.Id", w.otherID},
		{"X-Business-ID-", w.otherID},
		{"X-Business-Name", "forged"},
		{"X-Request-Id", "forged"},
		{"X_Request_Id", "forged"},
		{"X-Gateway-Assertion", "forged"},
		{"X_Gateway_Assertion", "forged"},
		{"Authorization", "Bearer canary"},
		{"Proxy-Authorization", "Basic canary"},
		{"Cookie", "session=canary"},
		{"X-Forwarded-For", "198.51.100.1"},
		{"X-Forwarded-For", "198.51.100.2, 127.0.0.1"},
		{"X_Forwarded_For", "198.51.100.3"},
		{"X-Forwarded-Host", "evil.example.com"},
		{"X-Forwarded-Proto", "https"},
		{"X-Forwarded-Port", "443"},
		{"X-Forwarded-Prefix", "/admin"},
		{"X-Forwarded-Server", "evil"},
		{"Forwarded", `for=198.51.100.1;host=evil.example.com;proto=https`},
		{"X-Real-Ip", "198.51.100.1"},
		{"True-Client-Ip", "198.51.100.1"},
		{"Cf-Connecting-Ip", "198.51.100.1"},
		{"X-Client-Ip", "198.51.100.1"},
		{"X-Cluster-Client-Ip", "198.51.100.1"},
		{"Client-Ip", "198.51.100.1"},
		{"Via", "1.1 evil"},
		{"X-Http-Method-Override", "DELETE"},
		{"X-Http-Method", "DELETE"},
		{"X-Method-Override", "DELETE"},
		{"X-Original-Url", "/admin"},
		{"X-Rewrite-Url", "/admin"},
		{"X-Original-Uri", "/admin"},
		{"X-Accel-Redirect", "/admin"},
		{"X-Sendfile", "/etc/passwd"},
		{"Accept", "text/html"},
		{"Accept-Encoding", "gzip, br"},
		{"Range", "bytes=0-1"},
		{"If-None-Match", "*"},
		{"If-Modified-Since", "Sat, 01 Jan 2050 00:00:00 GMT"},
		{"Content-Type", "text/html"},
		{"Content-Encoding", "gzip"},
		{"Destination", "http://evil.example.com/"},
		{"Max-Forwards", "0"},
		{"Early-Data", "1"},
		{"Priority", "u=0"},
		{"Origin", "https://evil.example.com"},
		{"Referer", "https://evil.example.com/?secret=canary"},
		{"Sec-Fetch-Site", "cross-site"},
		{"Traceparent", "00-zz-zz-00"},
		{"Accept-Language", "de"},
		{"User-Agent", "agent/1"},
	}
	for protocol, send := range all {
		before := data.count()
		a := send("GET", eventsPath, append(forged, signedFields(w.acme, "GET", eventsPath, "")...))
		require.Equal(t, http.StatusOK, a.Status, "%s: %s", protocol, a.Body)
		require.Equal(t, before+1, data.count())
		got := data.last(t)
		requireGatewaysWord(t, w, protocol, got, a)
		requireNowhere(t, fmt.Sprint(got.Header), "forged", "canary", "evil", w.otherID, "198.51.100", "DELETE")
		require.NotContains(t, got.Header, "Traceparent", "it is malformed")
		require.Equal(t, "de", got.Header.Get("Accept-Language"))

		// an override makes no GET of another method
		for _, method := range []string{"POST", "DELETE"} {
			a = send(method, eventsPath, append([]field{{"X-Http-Method-Override", "GET"}, {"X-Http-Method", "GET"}, {"X-Method-Override", "GET"}},
				signedFields(w.acme, method, eventsPath, "")...))
			requireProblem(t, a, http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED")
			a = send(method, "/api/v1/me", append([]field{{"X-Http-Method-Override", "GET"}}, signedFields(w.acme, "GET", "/api/v1/me", "")...))
			requireProblem(t, a, http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED")
		}
		require.Equal(t, before+1, data.count())
	}
	requireNowhere(t, g.Output(), "canary")
}

// The three headers in spellings that other software takes for them, and given more than once.
func TestSigningHeadersCountExactlyOnceAndInTheirOwnSpelling(t *testing.T) {
	t.Parallel()
	data := &recorder{}
	w := newWorld(t, data)
	_, all := everywhere(t, behindOne(w.options(roomyLimits, "")))
	var from visitors
	for protocol, over := range all {
		send := func(method, target string, fields []field) gatewaytest.Answer {
			return over(method, target, from.from(fields))
		}
		good := func() []field { return signedFields(w.acme, "GET", eventsPath, "") }
		require.Equal(t, http.StatusOK, send("GET", eventsPath, good()).Status, protocol)
		before := data.count()
		for i, name := range []string{"X-Public-Key", "X-Timestamp", "X-Signature"} {
			for _, other := range []string{
				strings.ReplaceAll(name, "-", "_"), strings.ReplaceAll(name, "-", "."), strings.Replace(name, "-", "_", 1),
				name + "-", "X-" + name, strings.TrimPrefix(name, "X-"),
			} {
				fields := good()
				fields[i].name = other
				a := send("GET", eventsPath, fields)
				requireProblem(t, a, http.StatusUnauthorized, "MISSING_CREDENTIALS")
				// beside the right one, another spelling is another header and changes nothing
				require.Equal(t, http.StatusOK, send("GET", eventsPath, append(good(), field{other, "rubbish"})).Status, "%s %s", protocol, other)
				before++
			}
			for _, second := range []string{good()[i].value, "", "rubbish"} {
				a := send("GET", eventsPath, append(good(), field{name, second}))
				requireProblem(t, a, http.StatusUnauthorized, "MISSING_CREDENTIALS")
				a = send("GET", eventsPath, append([]field{{strings.ToLower(name), second}}, good()...))
				requireProblem(t, a, http.StatusUnauthorized, "MISSING_CREDENTIALS")
			}
			fields := good()
			fields[i].value += ", " + fields[i].value // a list is no way to give a header twice
			requireProblem(t, send("GET", eventsPath, fields), http.StatusUnauthorized, "INVALID_CREDENTIALS")
		}
		require.Equal(t, before, data.count(), protocol)
	}
}

// CR, LF and NUL in names and values: either the request is refused, or what is after them is part of no other header.
func TestControlCharactersInHeadersSplitNothing(t *testing.T) {
	t.Parallel()
	data := &recorder{}
	w := newWorld(t, data)
	_, all := everywhere(t, w.options(roomyLimits, ""))
	for protocol, send := range all {
		for _, f := range []field{
			{"X-Note", "a\r\n"},
			{"X-Note", "a\nX-Business-Id: " + w.otherID},
			{"X-Note", "a\rX-Business-Id: " + w.otherID},
			{"X-Note", "a\x00b"},
			{"X-Note", "a\x01\x1f\x7fb"},
			{"X-Note\x00", "a"},
			{"X-Note\n", "a"},
			{"X Note", "a"},
			{"X-Note ", "a"},
			{"X-Business-Id\x00", w.otherID},
			{"X-Business-Id ", w.otherID},
			{" X-Business-Id", w.otherID},
			{"X-Business-Id\t", w.otherID},
			{"X-Business-Id\r", w.otherID},
			{"", w.otherID},
			{":method", "DELETE"},
			{":path", "/admin"},
			{"Host", "evil.example.com"},
			{"User-Agent", "a\x00b"},
			{"Accept-Language", "de\nX-Business-Id: " + w.otherID},
		} {
			before := data.count()
			a := send("GET", eventsPath, append([]field{f}, signedFields(w.acme, "GET", eventsPath, "")...))
			if a.Status != http.StatusOK {
				require.Equal(t, before, data.count(), "%s %q: %d", protocol, f, a.Status)
				// 401: the line's end was the headers' end, and those of the signature are no headers any more
				require.Contains(t, []int{0, http.StatusBadRequest, http.StatusUnauthorized}, a.Status, "%s %q: %s", protocol, f, a.Body)
				continue
			}
			got := data.last(t)
			require.Equal(t, []string{w.acmeID}, got.Header["X-Business-Id"], "%s %q", protocol, f)
			require.Equal(t, eventsPath+"?count=10", got.RequestURI)
			requireNowhere(t, fmt.Sprint(got.Header), w.otherID, "evil")
		}
		// in the signing headers themselves
		for i := range 3 {
			for _, bad := range []string{"\x00", "\r", "\n", "\x7f", "\x01"} {
				for _, place := range []func(v string) string{
					func(v string) string { return v + bad },
					func(v string) string { return bad + v },
					func(v string) string { return v[:4] + bad + v[4:] },
				} {
					fields := signedFields(w.acme, "GET", eventsPath, "")
					fields[i].value = place(fields[i].value)
					before := data.count()
					a := send("GET", eventsPath, fields)
					if a.Status == http.StatusOK {
						// a bare LF ends a header line of HTTP/1.1, and an empty line ends them all: the value was whole
						require.Equal(t, "HTTP/1.1", protocol)
						require.Equal(t, "\n", bad)
						continue
					}
					require.Contains(t, []int{0, http.StatusBadRequest, http.StatusUnauthorized}, a.Status, "%s %q", protocol, fields[i])
					require.Equal(t, before, data.count())
				}
			}
		}
	}
}

func TestAFoldedHeaderIsOneHeader(t *testing.T) {
	t.Parallel()
	data := &recorder{}
	w := newWorld(t, data)
	g := w.roomy(t)
	head := "GET " + eventsPath + " HTTP/1.1\r\nHost: api.example.com\r\n"
	for _, folded := range []string{
		"X-Note: a\r\n X-Business-Id: " + w.otherID + "\r\n",
		"X-Note: a\r\n\tX-Business-Id: " + w.otherID + "\r\n",
		"X-Note:\r\n X-Business-Id: " + w.otherID + "\r\n",
		"Connection: close,\r\n X-Business-Id\r\n",
		"X-Business-Id:\r\n " + w.otherID + "\r\n",
		"X-Note: a\r\n \r\n",
	} {
		before := data.count()
		answers, _ := converse(t, g.Addr, head+folded+signedLines(w.acme, "GET", eventsPath, "")+"\r\n"+lastRequest)
		require.NotEmpty(t, answers, "%q", folded)
		if answers[0].Status == http.StatusOK {
			requireGatewaysWord(t, w, overHTTP1, data.last(t), answers[0])
			continue
		}
		require.Equal(t, http.StatusBadRequest, answers[0].Status)
		require.Equal(t, before, data.count())
	}
	// a folded signature is not a signature
	lines := signedLines(w.acme, "GET", eventsPath, "")
	at := len(lines) - 2 - 32
	before := data.count()
	answers, _ := converse(t, g.Addr, head+lines[:at]+"\r\n "+lines[at:]+"\r\n"+lastRequest)
	require.NotEmpty(t, answers)
	require.Contains(t, []int{http.StatusBadRequest, http.StatusUnauthorized}, answers[0].Status)
	// and the first line of the headers continues nothing
	answers, _ = converse(t, g.Addr, "GET "+eventsPath+" HTTP/1.1\r\n Host: x\r\n"+lines+"\r\n"+lastRequest)
	require.NotEmpty(t, answers)
	require.Equal(t, http.StatusBadRequest, answers[0].Status)
	require.Equal(t, before, data.count())
}

// Headers are read up to some 16 KiB and left behind; more than that net/http refuses itself (431), before any handler.
func TestAThousandHeadersAndAMegabyteOfThem(t *testing.T) {
	t.Parallel()
	data := &recorder{}
	w := newWorld(t, data)
	g, all := everywhere(t, w.options(roomyLimits, ""))
	fill := func(n int, name func(i int) string, value string) []field {
		fields := make([]field, n, n+3)
		for i := range fields {
			fields[i] = field{name(i), value}
		}
		return fields
	}
	numbered := func(i int) string { return "X-F-" + strconv.Itoa(i) }
	identity := func(int) string { return "X-Business-Id" }
	for protocol, send := range all {
		for name, tc := range map[string]struct {
			fields []field
			served bool
		}{
			"a hundred":          {fill(100, numbered, "v"), true},
			"a hundred the same": {fill(100, identity, w.otherID), true},
			// HTTP/2 counts 32 bytes more for each
			"a thousand":           {fill(1000, numbered, "v"), protocol == "HTTP/1.1"},
			"a thousand the same":  {fill(1000, identity, "2"), protocol == "HTTP/1.1"},
			"a megabyte in one":    {[]field{{"X-F", strings.Repeat("x", 1<<20)}}, false},
			"a megabyte of a name": {[]field{{strings.Repeat("x", 1<<20), "v"}}, false},
			"a megabyte in many":   {fill(200, numbered, strings.Repeat("x", 5000)), false},
		} {
			before := data.count()
			a := send("GET", eventsPath, append(tc.fields, signedFields(w.acme, "GET", eventsPath, "")...))
			if tc.served {
				require.Equal(t, http.StatusOK, a.Status, "%s, %s", protocol, name)
				require.Equal(t, before+1, data.count())
				requireGatewaysWord(t, w, protocol, data.last(t), a)
				continue
			}
			require.Contains(t, []int{0, http.StatusRequestHeaderFieldsTooLarge}, a.Status, "%s, %s", protocol, name)
			require.Equal(t, before, data.count(), "%s, %s", protocol, name)
		}
		require.Equal(t, http.StatusOK, w.acme.Get(t, g.URL, eventsPath).Status, "the others go on")
	}
}
