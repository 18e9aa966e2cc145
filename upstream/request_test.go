package upstream_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// written returns what a client sends for a request.
func written(t *testing.T, req *http.Request) (string, error) {
	t.Helper()
	ours, theirs := net.Pipe()
	c := &upstream.Client{Dial: func(context.Context) (net.Conn, error) { return ours, nil }}
	sent := make(chan string)
	go func() {
		got := new(bytes.Buffer)
		r := io.TeeReader(theirs, got)
		if parsed, err := http.ReadRequest(bufio.NewReader(r)); err == nil {
			_, _ = io.Copy(io.Discard, parsed.Body)
			_, _ = io.WriteString(theirs, "HTTP/1.1 204 No Content\r\n\r\n")
		}
		_ = theirs.Close()
		sent <- got.String()
	}()
	res, err := c.Exchange(req, time.Time{})
	if err == nil {
		_ = res.Body.Close()
	}
	return <-sent, err
}

func requestWith(t *testing.T, change func(*http.Request)) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://data.internal/api/v1/events?count=10", http.NoBody)
	require.NoError(t, err)
	req.Header = http.Header{"User-Agent": {"Acme/1.0"}, "X-Request-Id": {"1"}, "Accept": {"application/json"}}
	change(req)
	return req
}

func body(text string) io.ReadCloser { return io.NopCloser(strings.NewReader(text)) }

func TestRequestsAreWrittenAsByNetHTTP(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*http.Request){
		"GET":            func(*http.Request) {},
		"escaped path":   func(r *http.Request) { r.URL.Path, r.URL.RawPath = "/a/b c", "/a%2Fb%20c" },
		"no query":       func(r *http.Request) { r.URL.RawQuery = "" },
		"several values": func(r *http.Request) { r.Header["X-A"] = []string{"1", "2", ""} },
		"40 headers": func(r *http.Request) {
			for i := range 40 {
				r.Header.Set(fmt.Sprint("X-", i), "v")
			}
		},
		"8 KiB in a header": func(r *http.Request) { r.Header.Set("X-A", strings.Repeat("a", 8<<10)) },
		"framing in headers": func(r *http.Request) {
			r.Header["Host"], r.Header["Content-Length"] = []string{"evil.example"}, []string{"7"}
			r.Header["Transfer-Encoding"], r.Header["Trailer"] = []string{"chunked"}, []string{"X-Business-Id"}
		},
		"IPv6 with a zone": func(r *http.Request) { r.Host = "[fe80::1%25eth0]:8080" },
		"Close":            func(r *http.Request) { r.Close = true },
		"POST":             func(r *http.Request) { r.Method, r.Body, r.ContentLength = http.MethodPost, body("{}"), 2 },
		"POST of 64 KiB": func(r *http.Request) {
			r.Method, r.Body, r.ContentLength = http.MethodPost, body(strings.Repeat("a", 64<<10)), 64<<10
		},
		"POST without a body": func(r *http.Request) { r.Method = http.MethodPost },
		"DELETE":              func(r *http.Request) { r.Method = http.MethodDelete },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var reference strings.Builder
			require.NoError(t, requestWith(t, change).Write(&reference))
			got, err := written(t, requestWith(t, change))
			require.NoError(t, err)
			want, wantBody, _ := strings.Cut(reference.String(), "\r\n\r\n")
			head, gotBody, _ := strings.Cut(got, "\r\n\r\n")
			require.ElementsMatch(t, strings.Split(want, "\r\n"), strings.Split(head, "\r\n"))
			require.Equal(t, wantBody, gotBody)
		})
	}
}

func TestInvalidRequestsAreNotSent(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*http.Request){
		"method with a space":     func(r *http.Request) { r.Method = "GET /admin" },
		"method with a line feed": func(r *http.Request) { r.Method = "GET\n" },
		"query with a line feed":  func(r *http.Request) { r.URL.RawQuery = "a=b\r\nX-Business-Id: other" },
		"query with a space":      func(r *http.Request) { r.URL.RawQuery = "a=b HTTP/1.1" },
		"absolute form":           func(r *http.Request) { r.URL.Opaque = "//evil.example/" },
		"no host":                 func(r *http.Request) { r.Host = "" },
		"host with a line feed":   func(r *http.Request) { r.Host = "a\r\nX-Business-Id: other" },
		"value with a line feed":  func(r *http.Request) { r.Header["X-A"] = []string{"a\nX-Business-Id: other"} },
		"value with a NUL":        func(r *http.Request) { r.Header["X-A"] = []string{"a\x00"} },
		"name with a colon":       func(r *http.Request) { r.Header["X-A: b\r\nX"] = []string{"a"} },
		"name with a space":       func(r *http.Request) { r.Header["X-A "] = []string{"a"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := written(t, requestWith(t, change))
			require.Error(t, err)
			require.Empty(t, got)
		})
	}
}

// A body that is shorter or longer than announced would make the service wait, or read its rest as another request.
func TestBodyOfAnotherLengthFails(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "1", "123"} {
		_, err := written(t, requestWith(t, func(r *http.Request) { r.Method, r.Body, r.ContentLength = http.MethodPost, body(text), 2 }))
		require.ErrorContains(t, err, "the body has")
	}
	failed := errors.New("failed")
	_, err := written(t, requestWith(t, func(r *http.Request) {
		r.Method, r.Body, r.ContentLength = http.MethodPost, io.NopCloser(iotest.ErrReader(failed)), 2
	}))
	require.ErrorIs(t, err, failed)
}
