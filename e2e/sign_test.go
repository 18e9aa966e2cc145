package e2e_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// lineServer is an HTTP server that does not parse the request target: net/http's rejects some that curl sends.
type lineServer struct {
	url string

	mu    sync.Mutex
	lines []string // of the head of the last request
}

func newLineServer(t *testing.T) *lineServer {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &lineServer{url: "http://" + l.Addr().String()}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			head := ""
			for buf := make([]byte, 4096); !strings.Contains(head, "\r\n\r\n"); {
				n, err := c.Read(buf)
				head += string(buf[:n])
				if err != nil {
					break
				}
			}
			s.mu.Lock()
			s.lines = strings.Split(head, "\r\n")
			s.mu.Unlock()
			_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
			_ = c.Close()
		}
	})
	return s
}

// last returns the target of the last request, and requires that its signature is for that target.
func (s *lineServer) last(t *testing.T, key gatewaytest.Caller) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	target := strings.TrimSuffix(strings.TrimPrefix(s.lines[0], "GET "), " HTTP/1.1")
	header := http.Header{}
	for _, l := range s.lines[1:] {
		if name, value, ok := strings.Cut(l, ": "); ok {
			header.Add(name, value)
		}
	}
	timestamp, err := strconv.ParseInt(header.Get(authsigner.HeaderTimestamp), 10, 64)
	require.NoError(t, err)
	require.Equal(t, authsigner.Sign(key.PrivateKey, timestamp, http.MethodGet, target, nil), header.Get(authsigner.HeaderSignature), target)
	return target
}

func TestSignSendsAndSignsTheTargetThatCurlSends(t *testing.T) {
	t.Parallel()
	key := gatewaytest.Caller{PublicKey: "pk_test_3f8Zk1q0Tn_w-7Yd", PrivateKey: "made_up_8GmYwq3cVn5tB2xKzR7pLd0hJf4sWu6e"}
	env := []string{"GATEHOUSE_KEY=" + key.PublicKey, "GATEHOUSE_SECRET=" + key.PrivateKey.Reveal()}
	for i, rest := range []string{
		"/api/v1/me", "", "/", "?x=1", "#fragment", "/api/v1/me?", "/api/v1/me?#", "/api/v1/me?a?b#c", "/api/v1/../v1/./me", "//api//v1/me",
		"/api/v1/jobs?status[]=a&b={c,d}[1-3]", "/api/v1/jobs[1]{x}", "/api/v1/jobs?status=it's\"<>|^`\\", "/a\"<>|^`\\b", "/%zz?%", "/a%00b",
		"/api/v1/equipment?category=M%C3%BChle%26Sohn%2f%2B+x", "/api/v1/equipment?category=Mühle", "/Mühle/é%20é", "/\xff?\xff", "/'+,;=@:!*()~",
	} {
		t.Run(fmt.Sprintf("%d %q", i, rest), func(t *testing.T) {
			t.Parallel()
			s := newLineServer(t)
			shell(t, cli(t, env, "sign", "--curl", "GET", s.url+rest).requireOK(t).stdout)
			sent := s.last(t, key)
			cli(t, env, "sign", "--send", "GET", s.url+rest).requireOK(t)
			require.Equal(t, sent, s.last(t, key))
		})
	}
	for name, rest := range map[string]string{
		"space": "/a b", "space in the query": "/a?b c", "tab": "/a\tb", "line feed": "/a\nb", "delete": "/a\x7fb", "backslash in the host": "\\x",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newLineServer(t)
			err := exec.CommandContext(t.Context(), "curl", "-sS", "--path-as-is", "--globoff", s.url+rest).Run()
			require.EqualError(t, err, "exit status 3", "curl rejects the URL")
			for _, how := range [][]string{{"sign"}, {"sign", "--send"}, {"sign", "--curl"}} {
				cli(t, env, append(how, "GET", s.url+rest)...).requireError(t, "invalid URL")
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			require.Empty(t, s.lines)
		})
	}
}

func TestSignSendExitsWithTheClassOfAnErrorStatus(t *testing.T) {
	t.Parallel()
	data := &recorder{}
	w := newEnvironment(t, data)
	g := w.unlimited(t)
	env := []string{"GATEHOUSE_KEY=" + w.acme.PublicKey, "GATEHOUSE_SECRET=" + w.acme.PrivateKey.Reveal()}
	data.setResponse(respondWith(200, "application/json", `[]`))
	for target, want := range map[string]struct{ status, code int }{
		"/api/v1/me":             {200, 0},
		"/api/v1/nothing":        {404, 4},
		"/api/v1/events?count=x": {400, 4},
		"/api/v1/jobs":           {502, 5},
	} {
		o := cli(t, env, "sign", "--send", "GET", g.URL+target)
		assert.Equal(t, want.code, o.code, target)
		assert.Contains(t, o.stdout, fmt.Sprintf("HTTP/1.1 %d ", want.status), target)
		assert.Contains(t, o.stdout, "\n{", "the body is printed")
		assert.Empty(t, o.stderr, target)
	}
	redirect := httptest.NewServer(http.RedirectHandler(g.URL+"/api/v1/me", http.StatusFound))
	t.Cleanup(redirect.Close)
	o := cli(t, env, "sign", "--send", "GET", redirect.URL+"/api/v1/me").requireOK(t)
	require.Contains(t, o.stdout, "302 Found", "as with curl, a redirect is not followed")
	cli(t, env, "sign", "--send", "GET", "http://"+gatewaytest.FreeAddr(t)+"/api/v1/me").requireError(t, "sending the request: dial tcp 127.0.0.1", "refused")
}

func TestSignRejectsAnUnknownMethod(t *testing.T) {
	t.Parallel()
	env := []string{"GATEHOUSE_KEY=pk_live_any_other", "GATEHOUSE_SECRET=x"}
	for _, method := range []string{"FETCH", "GETT", "", "GET /", "G\nET"} {
		cli(t, env, "sign", method, "https://api.example.com/api/v1/me").requireError(t, "unknown method", "GET, HEAD, POST")
	}
	cli(t, env, "sign", "head", "https://api.example.com/api/v1/me").requireOK(t)
}
