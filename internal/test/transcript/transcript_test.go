package transcript

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// echo responds with JSON that contains the request's body, or with a stream of two events.
func echo(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/stream" {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "event: message\ndata: {\"n\":1}\n\ndata: {\"n\":2}\n\n")
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"method":%q,"path":%q,"body":%q,"token":"t-17","n":1.0}`, r.Method, r.URL.Path, body)
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func TestTranscripts(t *testing.T) {
	t.Parallel()
	RunAll(t, "testdata/*.txtar", echo(t), map[string]string{"host": "api.example.com"})
}

func TestRequestsArePrepared(t *testing.T) {
	t.Parallel()
	all, err := parse([]byte("-- request --\nPOST /p HTTP/1.1\nHost: a\n\nhello\n-- response --\nHTTP/1.1 200 OK\n\n" +
		`{"body": "HELLO", "...": ""}`))
	require.NoError(t, err)
	require.NoError(t, all[0].replay(echo(t), nil, func(request string) string { return strings.Replace(request, "hello", "HELLO", 1) }))
}

func TestDifferenceIsReported(t *testing.T) {
	t.Parallel()
	addr := echo(t)

	const body = `{"method":"POST","path":"/p","body":"hello","token":"t-17","n":1.0}`
	for name, test := range map[string]struct{ response, want string }{
		"equal":               {"HTTP/1.1 200 OK\n\n" + body, ""},
		"body not compared":   {"HTTP/1.1 200 OK\n", ""},
		"status":              {"HTTP/1.1 404 Not Found\n", "status"},
		"header":              {"HTTP/1.1 200 OK\nContent-Type: text/html\n", "header Content-Type"},
		"header present":      {"HTTP/1.1 200 OK\nContent-Type:\n", "header Content-Type"},
		"header absent":       {"HTTP/1.1 200 OK\nLocation: /\n", "header Location"},
		"empty body":          {"HTTP/1.1 200 OK\n\n", "got"},
		"value":               {"HTTP/1.1 200 OK\n\n" + `{"method":"GET","...":""}`, "body.method"},
		"number":              {"HTTP/1.1 200 OK\n\n" + `{"n":2,"...":""}`, "body.n"},
		"type":                {"HTTP/1.1 200 OK\n\n" + `{"n":"1","...":""}`, "body.n"},
		"member missing":      {"HTTP/1.1 200 OK\n\n" + `{"x":1,"...":""}`, "body.x is missing"},
		"member not expected": {"HTTP/1.1 200 OK\n\n" + `{"n":1.0}`, "is not expected"},
		"variable":            {"HTTP/1.1 200 OK\n\n" + `{"token":"t-${known}","...":""}`, "body.token"},
		"number as variable":  {"HTTP/1.1 200 OK\n\n" + `{"n":"${known}","...":""}`, "body.n"},
		"one response only":   {"HTTP/1.1 200 OK\n\n" + body + "\n-- response --\nHTTP/1.1 200 OK\n", "reading response 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, err := parse([]byte("-- request --\n" + "POST /p HTTP/1.1\nHost: a\nConnection: close\n\nhello\n-- response --\n" + test.response))
			require.NoError(t, err)
			err = all[0].replay(addr, map[string]string{"known": "18"})
			if test.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.want)
			}
		})
	}
	t.Run("variable without a value", func(t *testing.T) {
		t.Parallel()
		require.ErrorContains(t, exchange{request: "GET /${x} HTTP/1.1\n\n"}.replay(addr, nil), "has no value")
	})
	for lines, ok := range map[string]bool{
		"...": true, "a\n...\nc": true, "a\nb\n...\nc\n...": true, "a\n...\nx": false, "...\nb": false, "a\nb": false, "a\nb\nc\nd": false,
	} {
		err := compareLines(strings.Split(lines, "\n"), []string{"a", "b", "c"}, nil)
		assert.Equal(t, ok, err == nil, "%q: %v", lines, err)
	}
	for name, file := range map[string]string{
		"no request": "text", "response first": "-- response --\nHTTP/1.1 200 OK\n", "other section": "-- x --\n",
		"no response": "-- request --\nGET / HTTP/1.1\n", "no response to the first": "-- request --\nGET / HTTP/1.1\n-- request --\nGET / HTTP/1.1\n-- response --\nHTTP/1.1 200 OK\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := parse([]byte(file))
			require.Error(t, err)
		})
	}
}

func TestDataAfterTheLastResponseIsReported(t *testing.T) {
	t.Parallel()
	const response = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
	for sent, want := range map[string]string{response: "", response + response: "after the last response"} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = ln.Close() })
		go func() {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			_, _ = io.WriteString(conn, sent)
			_ = conn.Close()
		}()
		err = exchange{request: "GET / HTTP/1.1\nHost: a\n\n", responses: []string{"HTTP/1.1 200 OK\n"}}.replay(ln.Addr().String(), nil)
		if want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
}
