package data_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/internal/test/connecttest"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// raw writes bytes for a response and then closes the connection, or leaves it open until the test ends.
func raw(t *testing.T, response string, open bool) http.HandlerFunc {
	t.Helper()
	ended := t.Context().Done()
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, response)
		if open {
			<-ended
		}
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	var followed atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		followed.Add(1)
		respond(200, connecttest.Record("contact", nil))(w, r)
	}))
	t.Cleanup(elsewhere.Close)
	for _, status := range []int{300, 301, 302, 303, 304, 305, 307, 308} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Location", elsewhere.URL+r.URL.Path)
				w.WriteHeader(status)
			})
			_, err := call(t, c, "getContact", "7")
			require.ErrorIs(t, err, upstream.ErrContractViolation)
			_, err = call(t, c, "updateContact", "7")
			require.True(t, requireError(t, err, upstream.ErrContractViolation).Uncertain)
			assert.Zero(t, followed.Load())
		})
	}
}

func TestTruncatedResponseIsRejected(t *testing.T) {
	t.Parallel()
	body := connecttest.Record("job", nil)
	const json = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	length := func(n int) string { return json + "Content-Length: " + strconv.Itoa(n) + "\r\n\r\n" }
	for name, test := range map[string]struct {
		response string
		want     error
	}{
		"as it should be":          {length(len(body)) + body, nil},
		"shorter than its length":  {length(len(body)+1) + body, data.ErrUnavailable},
		"longer than its length":   {length(len(body)-1) + body, upstream.ErrContractViolation},
		"two lengths":              {json + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n" + body, data.ErrUnavailable},
		"a length that is not one": {json + "Content-Length: -1\r\n\r\n" + body, data.ErrUnavailable},
		"chunks without an end":    {json + "Transfer-Encoding: chunked\r\n\r\n" + strconv.FormatInt(int64(len(body)), 16) + "\r\n" + body + "\r\n", data.ErrUnavailable},
		"an incomplete head":       {"HTTP/1.1 200 OK\r\nContent-Ty", data.ErrUnavailable},
		"no HTTP":                  {"220 mail.example ESMTP\r\n", data.ErrUnavailable},
		"early hints before it":    {"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + length(len(body)) + body, nil},
		"nothing but 1xx":          {strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 1000), data.ErrUnavailable},
		"1xx without bound":        {strings.Repeat("HTTP/1.1 103 Early Hints\r\nX-Padding: "+strings.Repeat("x", 1000)+"\r\n\r\n", 20_000), data.ErrUnavailable},
		"no content":               {"HTTP/1.1 204 No Content\r\n\r\n", upstream.ErrContractViolation},
		"a part":                   {"HTTP/1.1 206 Partial Content\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n" + body[:10], upstream.ErrContractViolation},
		"two types":                {"HTTP/1.1 200 OK\r\nContent-Type: text/html, application/json\r\n\r\n" + body, upstream.ErrContractViolation},
		"a head of 11 MiB":         {"HTTP/1.1 200 OK\r\nX-Padding: " + strings.Repeat("x", 11<<20) + "\r\n\r\n", data.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := serve(t, raw(t, test.response, false))
			job, err := call(t, c, "getJob", "a")
			require.ErrorIs(t, err, test.want)
			assert.Equal(t, test.want == nil, strings.Contains(string(job), `"id":"a"`))
		})
	}
}

func TestSwitchingProtocolsEndsTheCall(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, raw(t, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", true), func(o *data.Options) {
		o.Timeout = time.Hour // nothing but the status ends the call
	})
	_, err := call(t, c, "updateContact", "7")
	require.True(t, requireError(t, err, upstream.ErrContractViolation).Uncertain)
}

func TestCompressedResponseIsNotDecompressed(t *testing.T) {
	t.Parallel()
	compressed := func(text string) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, err := io.WriteString(z, text)
		require.NoError(t, err)
		require.NoError(t, z.Close())
		return b.Bytes()
	}
	// Concatenated gzip streams are one stream (RFC 1952, section 2.2). Compressing all 64 MiB would take seconds.
	var small bytes.Buffer
	small.Write(compressed(`{"calendars":[],"next_cursor":null,"x":"`))
	small.Write(bytes.Repeat(compressed(strings.Repeat("x", 1<<20)), 64))
	small.Write(compressed(`"}`))
	require.Less(t, small.Len(), data.MaxResponseSize)
	accepted := make(chan string, 1)
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		accepted <- strings.Join(r.Header.Values("Accept-Encoding"), ",")
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(small.Bytes())
	})
	_, err := call(t, c, "listCalendars")
	require.ErrorIs(t, err, upstream.ErrContractViolation)
	assert.Equal(t, "identity", <-accepted)
}

func TestRetryAfterIsBounded(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]time.Duration{
		"7": 7 * time.Second, "3600": time.Hour, "3601": time.Hour, "999999999": time.Hour,
		"10000000000":         time.Hour, // in nanoseconds more than an int64
		"9223372036854775807": time.Hour,
		"0":                   time.Second, "-5": 0, "-9223372036854775808": 0, "1.5": 0, "soon": 0, "": 0, "+7 s": 0,
		"Wed, 21 Oct 2015 07:28:00 GMT": time.Second, "Thu, 21 Oct 9999 07:28:00 GMT": time.Hour,
	} {
		c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", header)
			respond(429, `{"error":"x","code":"BUSY"}`)(w, r)
		})
		_, err := call(t, c, "getJob", "a")
		assert.Equal(t, want, requireError(t, err, data.ErrBusy).RetryAfter, "%q", header)
	}
}
