package e2e_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/fcgi"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// streamed is a response whose body the caller reads. It is closed when the test ends.
type streamed struct {
	status int
	header http.Header
	length int64
	body   io.Reader
}

func (c wireCaller) stream(t *testing.T, method, target, body string) streamed {
	t.Helper()
	res, err := c.tryStream(t, method, target, body)
	require.NoError(t, err)
	return res
}

func (c wireCaller) tryStream(t *testing.T, method, target, body string) (streamed, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, c.url+target, strings.NewReader(body))
	require.NoError(t, err)
	req.Header = headerOf(signedFields(c.Caller, method, target, body))
	res, err := c.Client.Do(req)
	if err != nil {
		return streamed{}, err
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return streamed{res.StatusCode, res.Header, res.ContentLength, res.Body}, nil
}

//nolint:tparallel // the subtests share a gateway, whose memory is measured
func TestProtectedResponsesPassAsTheyCome(t *testing.T) {
	t.Parallel()
	const large, maxBody = 96 << 20, 64 << 10
	p := protect(t, highLimits, "header Set-Cookie outer=1\n\tabort /gone", "max_body 64KiB", "")
	proceed := make(chan struct{})
	p.data.setResponse(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/events":
			w.Header().Set("Content-Type", "text/event-stream")
			for range 3 {
				_, _ = io.WriteString(w, "data: x\n\n")
				_ = http.NewResponseController(w).Flush()
				<-proceed
			}
		case "/broken":
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "short")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case "/upload":
			got, _ := io.ReadAll(r.Body)
			_, _ = fmt.Fprintf(w, "%d of %d", len(got), r.ContentLength)
		default:
			w.Header().Set("X-Request-Id", "the service's own")
			w.Header().Set("RateLimit", "the service's own")
			w.Header().Set("X-RateLimit-Limit", "1")
			w.Header().Set("Set-Cookie", "inner=1")
			w.Header().Set("Content-Length", strconv.Itoa(large))
			_, _ = io.CopyN(w, zeros{}, large)
		}
	})
	for wire, c := range p.callersFrom(t, "127.0.0.1") {
		c.PublicKey, c.PrivateKey = p.writes.PublicKey, p.writes.PrivateKey
		t.Run(wire, func(t *testing.T) {
			t.Run("events one by one", func(t *testing.T) {
				r := bufio.NewReader(c.stream(t, "GET", "/events", "").body)
				for range 3 {
					line, err := r.ReadString('\n')
					require.NoError(t, err)
					require.Equal(t, "data: x\n", line)
					_, err = r.ReadString('\n')
					require.NoError(t, err)
					proceed <- struct{}{}
				}
				_, err := r.ReadByte()
				require.Equal(t, io.EOF, err)
			})
			t.Run("a large download", func(t *testing.T) {
				p.g.ResetPeak(t)
				_, before := p.g.Memory(t)
				res := c.stream(t, "GET", "/large", "")
				n, err := io.Copy(io.Discard, res.body)
				require.NoError(t, err)
				require.Equal(t, int64(large), n)
				require.Len(t, res.header["X-Request-Id"], 1)
				require.NotEqual(t, "the service's own", res.header.Get("X-Request-Id"))
				require.Len(t, res.header["Ratelimit"], 1)
				require.Equal(t, []string{"1000000"}, res.header["X-Ratelimit-Limit"])
				require.Equal(t, []string{"outer=1", "inner=1"}, res.header["Set-Cookie"], "other headers are joined, as without the gateway")
				_, after := p.g.Memory(t)
				require.Less(t, after-before, int64(64<<20), "it must not be held")
			})
			t.Run("HEAD", func(t *testing.T) {
				res := c.stream(t, "HEAD", "/large", "")
				require.Equal(t, http.StatusOK, res.status)
				require.Equal(t, int64(large), res.length)
				body, err := io.ReadAll(res.body)
				require.NoError(t, err)
				require.Empty(t, body)
			})
			t.Run("an upload of max_body", func(t *testing.T) {
				target := "/upload?" + wire[5:6]
				body, err := io.ReadAll(c.stream(t, "POST", target, strings.Repeat("x", maxBody)).body)
				require.NoError(t, err)
				require.Equal(t, "65536 of 65536", string(body))
			})
			t.Run("an upload above max_body", func(t *testing.T) {
				n := p.data.count()
				res := c.stream(t, "POST", "/upload", strings.Repeat("x", maxBody+1))
				require.Equal(t, http.StatusRequestEntityTooLarge, res.status)
				require.Equal(t, n, p.data.count())
			})
			t.Run("an aborted response is aborted", func(t *testing.T) {
				lines := strings.Count(p.g.Output(), "abort Handler")
				res, err := c.tryStream(t, "GET", "/broken", "")
				if err == nil { // over HTTP/3, the end of the stream may overtake the headers
					_, err = io.ReadAll(res.body)
				}
				require.Error(t, err)
				require.Eventually(t, func() bool { return strings.Count(p.g.Output(), "abort Handler") > lines }, patience, 10*time.Millisecond)
			})
			t.Run("a handler that aborts sends no status", func(t *testing.T) {
				for range 5 { // over HTTP/3, the end of the stream may overtake the headers
					_, err := c.tryStream(t, "GET", "/gone", "")
					require.Error(t, err)
				}
			})
		})
	}
}

// A cache in front of the gateway does not know that signatures are credentials. It would serve a response to other businesses, and to
// requests without a signature.
//
//nolint:tparallel // the subtests share a data service
func TestProtectedResponsesAreKeptFromSharedCaches(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "report.pdf"), []byte("a report"), 0o600))
	p := newProtected(t)
	p.serve(t, gatewaytest.Options{
		Global: p.options(highLimits, "").Global,
		Site: "gatehouse_auth shop\n\thandle /report* {\n\t\troot * " + dir + "\n\t\tfile_server\n\t}\n\t" +
			"handle /respond* {\n\t\trespond hello\n\t}\n\thandle {\n\t\treverse_proxy " + strings.TrimPrefix(p.dataURL, "http://") + "\n\t}",
	})
	p.data.setResponse(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		w.Header()["Cache-Control"] = query["c"]
		for _, name := range query["also"] {
			w.Header()[name] = []string{"max-age=60"}
		}
		w.Header().Set("Vary", "Accept")
		if query.Has("status") {
			status, _ := strconv.Atoi(query.Get("status"))
			w.WriteHeader(status)
		}
	})
	for _, test := range []struct {
		name, method, target string
		status               int
		want                 []string
	}{
		{"of a file", "GET", "/report.pdf", 200, []string{"private"}},
		{"of a file without its body", "HEAD", "/report.pdf", 200, []string{"private"}},
		{"of a handler", "GET", "/respond", 200, []string{"private"}},
		{"of a service", "GET", "/x", 200, []string{"private"}},
		{"without a body", "GET", "/x?status=204", 204, []string{"private"}},
		{"not modified", "GET", "/x?status=304&c=no-cache", 304, []string{"no-cache", "private"}},
		{"with an age", "GET", "/x?c=max-age%3D60&c=no-transform", 200, []string{"max-age=60", "no-transform", "private"}},
		{"private in part", "GET", "/x?c=private%3D%22Set-Cookie%22", 200, []string{`private="Set-Cookie"`, "private"}},
		{"private", "GET", "/x?c=max-age%3D5%2C+Private", 200, []string{"max-age=5, Private"}},
		{"no-store", "GET", "/x?c=no-store", 200, []string{"no-store"}},
		{"public", "GET", "/x?c=public%2C+max-age%3D60", 200, []string{"public, max-age=60"}},
		{"for shared caches", "GET", "/x?c=s-maxage%3D60", 200, []string{"s-maxage=60"}},
		{"must-revalidate", "GET", "/x?c=max-age%3D60%2Cmust-revalidate", 200, []string{"max-age=60,must-revalidate", "private"}},
		{"for CDNs", "GET", "/x?also=Cdn-Cache-Control&also=Cloudflare-Cdn-Cache-Control&also=X-Accel-Expires", 200, []string{"private"}},
		{"for CDNs beside no-store", "GET", "/x?c=no-store&also=Surrogate-Control", 200, []string{"no-store"}},
		{"an error of the gateway", "GET", "/reports.pdf", 404, []string{"no-store"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for wire, send := range p.over {
				a := send(test.method, test.target, signedFields(p.reads, test.method, test.target, ""))
				require.Equal(t, test.status, a.Status, "%s: %s", wire, a.Body)
				assert.Equal(t, test.want, a.Header["Cache-Control"], wire)
				assert.Contains(t, a.Header["Vary"], "X-Public-Key", wire)
				assert.Empty(t, slices.Concat(a.Header["Cdn-Cache-Control"], a.Header["Cloudflare-Cdn-Cache-Control"], a.Header["Surrogate-Control"], a.Header["X-Accel-Expires"]), wire)
				if strings.HasPrefix(test.target, "/x") {
					assert.Contains(t, a.Header["Vary"], "Accept", wire)
				}
			}
		})
	}
}

// serveBytes is the address of a service that responds to everything with the same bytes.
func serveBytes(t *testing.T, response string) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() { // ends with its listener
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { // ends with the gateway's connection
				_, _ = conn.Read(make([]byte, 1))
				_, _ = io.WriteString(conn, response)
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			}()
		}
	}()
	return listener.Addr().String()
}

// net/http and FastCGI quote what they do not understand, which may be a record: a script's output among its headers, for example.
func TestResponsesBehindAProtectedRouteAreNotLogged(t *testing.T) {
	t.Parallel()
	const line = "no address for canary@example.com\r\n"
	record := func(kind byte, content string) string {
		return string([]byte{1, kind, 0, 1, 0, byte(len(content)), 0, 0}) + content
	}
	for name, service := range map[string]struct{ proxy, response string }{
		"HTTP":                   {"reverse_proxy ", "HTTP/1.1 200 OK\r\n" + line + "\r\n"},
		"not HTTP":               {"reverse_proxy ", line},
		"FastCGI":                {"php_fastcgi ", record(6, line+"\r\n") + record(6, "") + record(3, "\x00\x00\x00\x00\x00\x00\x00\x00")},
		"after a quotation mark": {"reverse_proxy ", "HTTP/1.1 200 OK\r\nX: \"\r\n" + line + "\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(root, "index.php"), nil, 0o600))
			p := newProtected(t)
			behind := "root * " + root + "\n\t\t" + service.proxy + serveBytes(t, service.response)
			o := p.options(highLimits, "")
			o.Site = "handle /open {\n\t\t" + behind + "\n\t}\n\thandle {\n\t\tgatehouse_auth shop\n\t\t" + behind + "\n\t}\n\thandle_errors {\n\t\tgatehouse_errors\n\t}"
			g := gatewaytest.Start(t, o)
			requireProblem(t, p.reads.Get(t, g.URL, "/orders"), http.StatusBadGateway, "UPSTREAM_FAILED")
			requireProblem(t, anonymous().Get(t, g.URL, "/open"), http.StatusBadGateway, "UPSTREAM_FAILED")
			requireLogged(t, g, `"route":"shop","operation":"any","status":502`)
			requireLogged(t, g, `"route":"errors","operation":"none","status":502`)
			gatewaytest.RequireNowhere(t, g.Everything(t), "canary")
			assert.Contains(t, g.Output(), "malformed", "the cause is still known")
		})
	}
}

// Caddy logs a request whose response is aborted. Any caller of an event stream can cause that. A service can have it log what it sent: in a
// trailer, or in response to a health check.
func TestDocumentedFilterKeepsProtectedRequestsOutOfTheLog(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/directives/gatehouse_auth.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "\n## The log\n")
	_, filter, ok := strings.Cut(section, "```caddyfile\n{\n")
	require.True(t, ok)
	filter, _, _ = strings.Cut(filter, "\n}\n")
	for _, global := range []string{"", filter} {
		p := newProtected(t)
		p.data.setResponse(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "short")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})
		o := p.options(highLimits+"\n\t\tassertion "+writeAssertionKey(t), "")
		o.Global = global + "\n\t" + o.Global
		o.Site = "gatehouse_auth shop\n\treverse_proxy /trailer " + serveBytes(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\ncanary-trailer\r\n\r\n") +
			"\n\treverse_proxy /checked " + serveBytes(t, "HTTP/1.1 200 OK\r\ncanary-health\r\n\r\n") + " {\n\t\thealth_uri /health\n\t}" +
			"\n\treverse_proxy " + strings.TrimPrefix(p.dataURL, "http://") + " {\n\t\theader_up X-Password canary-password\n\t}"
		g := gatewaytest.Start(t, o)
		const target = "/orders?name=canary-query"
		raw(t, g.Addr, "GET "+target+" HTTP/1.1\r\nHost: x\r\nX-Canary: canary-header\r\n"+linesOf(signedFields(p.reads, "GET", target, ""))+"\r\n"+lastRequest)
		requireLogged(t, g, "aborting with incomplete response")
		requireLogged(t, g, `"route":"shop","operation":"any","status":200`)
		_, err = p.reads.Try(t.Context(), http.MethodGet, g.URL, "/trailer", nil)
		require.Error(t, err)
		requireLogged(t, g, "reading: malformed MIME header")
		requireLogged(t, g, `"logger":"http.handlers.reverse_proxy.health_checker.active"`)
		if global == "" {
			for _, canary := range []string{"canary-query", "canary-trailer", "canary-health"} {
				require.Contains(t, g.Output(), canary, "or this test shows nothing")
			}
			continue
		}
		gatewaytest.RequireNowhere(t, g.Output(), "canary", p.data.last(t).Header.Get("X-Gateway-Assertion"))
		require.Contains(t, g.Output(), "/health\\\": net/http: HTTP/1.x transport connection broken: malformed", "the cause is still known")
	}
}

// Any caller could cause alerts otherwise.
func TestCallerThatLeavesBeforeItsTurnIsNoServerError(t *testing.T) {
	t.Parallel()
	p := protect(t, "limits {\n\t\t\tin_flight 1\n\t\t}", "", "", "")
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	p.data.setResponse(func(http.ResponseWriter, *http.Request) { <-stop })
	go func() { _, _ = p.reads.Try(t.Context(), http.MethodGet, p.g.URL, "/first", nil) }()
	require.Eventually(t, func() bool { return p.data.count() == 1 }, patience, time.Millisecond)
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // it would wait for 5 s
		defer cancel()
		_, err := p.reads.Try(ctx, http.MethodGet, p.g.URL, "/second", nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		return strings.Contains(p.g.Output(), `"code":"CLIENT_CLOSED_REQUEST"`) || strings.Contains(p.g.Output(), `"status":500`)
	}, patience, 10*time.Millisecond)
	require.NotContains(t, p.g.Output(), `"status":500`)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// What is behind the directive reads requests by itself. None of it gets a second request, another business or another length of a body.
func TestNothingIsSmuggledBehindAProtectedRoute(t *testing.T) {
	t.Parallel()
	site := func(name string) string {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("a file"), 0o600))
		return "root * " + dir + "\n\t"
	}
	scripts := &recorder{}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() { _ = fcgi.Serve(listener, scripts) }() // ends with its listener
	for name, behind := range map[string]string{
		"reverse_proxy": "",
		"file_server":   site("orders") + "file_server",
		"php_fastcgi":   site("index.php") + "php_fastcgi " + listener.Addr().String(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := protect(t, highLimits, "", "body_timeout 1s", behind)
			service := p.data
			if name == "php_fastcgi" {
				service = scripts
			}
			service.setResponse(respondWith(http.StatusOK, "text/plain", "hello"))
			hidden := "GET /hidden HTTP/1.1\r\nHost: x\r\n" + linesOf(signedFields(p.reads, "GET", "/hidden", "")) + "\r\n"
			size := fmt.Sprintf("%x\r\n", len(hidden))
			clte, tecl := "0\r\n\r\n"+hidden, size+hidden+"\r\n0\r\n\r\n"
			lines := append(foldedFramings(len(hidden)), framings...)
			for _, signed := range []string{"", hidden, clte, tecl} { // as if this were the body
				head := "GET /orders HTTP/1.1\r\nHost: x\r\n" + linesOf(signedFields(p.reads, "GET", "/orders", signed))
				for _, line := range lines {
					for _, length := range []string{"", fmt.Sprint("\r\nContent-Length: ", len(size)), fmt.Sprint("\r\nContent-Length: ", len(clte))} {
						request := head + line + length + "\r\n\r\n" + tecl
						responses, closed := converse(t, p.g.Addr, request)
						require.True(t, closed, "%q", request)
						require.LessOrEqual(t, len(responses), 1, "%q", request)
					}
				}
			}
			for _, r := range service.all() {
				require.NotContains(t, r.RequestURI, "hidden")
				require.Equal(t, []string{p.business}, r.Header["X-Business-Id"])
			}
			if name == "file_server" {
				return
			}
			t.Run("a chunked body has a length", func(t *testing.T) {
				service.setResponse(func(w http.ResponseWriter, r *http.Request) {
					got, _ := io.ReadAll(r.Body)
					_, _ = fmt.Fprintf(w, "%s of %d", got, r.ContentLength)
				})
				a := raw(t, p.g.Addr, "POST /orders HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nX_Business_Id: 18\r\nx-business_id: 18\r\nProxy: http://evil.example\r\n"+
					linesOf(signedFields(p.writes, "POST", "/orders", "body"))+"\r\n4\r\nbody\r\n0\r\n\r\n"+lastRequest)
				require.Equal(t, http.StatusOK, a.Status, a.Body)
				assert.Equal(t, "body of 4", a.Body)
				got := service.last(t)
				assert.Equal(t, []string{p.business}, got.Header["X-Business-Id"])
				assert.NotContains(t, fmt.Sprint(got.Header), "evil")
				for name, values := range got.Header { // the ID of the request may end with these digits
					assert.NotContains(t, values, "18", name)
				}
			})
		})
	}
}

// The page's commands, with free ports.
func TestProtectingARouteInTwoMinutes(t *testing.T) {
	t.Parallel()
	service := &recorder{}
	service.setResponse(respondWith(http.StatusOK, "text/plain", "hello"))
	w := newEnvironment(t, service)
	page, err := os.ReadFile("../docs/directives/gatehouse_auth.md")
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(page), "## Protect any route in two minutes\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n## ")
	g := gatewaytest.New(t, gatewaytest.Options{})
	section = strings.NewReplacer(
		"localhost:6379", w.redis.Addr, "localhost:3000", strings.TrimPrefix(w.dataURL, "http://"), "http://localhost:8080", g.URL,
	).Replace(section)
	var blocks []string
	for i, part := range strings.Split(section, "```") {
		if i%2 == 1 {
			_, text, _ := strings.Cut(part, "\n")
			blocks = append(blocks, text)
		}
	}
	require.Len(t, blocks, 3, "a Caddyfile and two scripts")

	dir := t.TempDir()
	require.NoError(t, os.Symlink(gatewaytest.Binary(t), filepath.Join(dir, "gatehouse")))
	run := func(script string) string {
		return shell(t, "export HOME="+dir+" PATH="+dir+":$PATH\ncd "+dir+"\n"+script)
	}
	// the admin API of each test has a port of its own
	caddyfile := "{\n\tadmin " + strings.TrimPrefix(g.AdminURL, "http://") + "\n" + strings.TrimPrefix(blocks[0], "{\n")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "Caddyfile"), []byte(caddyfile), 0o600))
	issue, start, _ := strings.Cut(blocks[1], "\n")
	require.Equal(t, "gatehouse run\n", start)
	printed := run(issue + " 2>log") // it says that it uses the Caddyfile
	var public, private string
	for word := range strings.FieldsSeq(printed) {
		switch {
		case strings.HasPrefix(word, "pk_live_"):
			public = word
		case strings.HasPrefix(word, "sk_live_"):
			private = word
		}
	}
	require.NotEmpty(t, public, printed)
	require.NotEmpty(t, private, printed)
	g.Write(t, strings.Replace(caddyfile, "keys.json", filepath.Join(dir, "keys.json"), 1))
	g.Run(t)

	script := strings.NewReplacer("pk_live_…", public, "sk_live_…", private).Replace(blocks[2])
	var results []string
	for line := range strings.Lines(script) {
		if !strings.HasPrefix(line, "export") {
			results = append(results, run(strings.Split(script, "\n")[0]+"\n"+strings.Replace(line, "curl", "curl -sS", 1)))
		}
	}
	require.Len(t, results, 3)
	assert.Contains(t, results[0], "200 OK")
	assert.Contains(t, results[1], "200 OK")
	assert.Contains(t, results[2], "401 Unauthorized")
	all := service.all()
	require.Len(t, all, 2)
	for i, target := range []string{"GET /orders/5", "POST /orders"} {
		assert.Equal(t, target, all[i].Method+" "+all[i].RequestURI)
		assert.Equal(t, "17", all[i].Header.Get("X-Business-Id"))
	}
}

// The commands that gatehouse-demo prints, in front of a service of one's own.
func TestDemoProtectsAService(t *testing.T) {
	t.Parallel()
	service := &recorder{}
	service.setResponse(respondWith(http.StatusOK, "text/plain", "hello"))
	w := newEnvironment(t, service)
	for i, program := range shells() {
		d := startDemo(t, "--protect", w.dataURL)
		pasted := d.pasted(t)
		var statuses []int
		for line := range strings.Lines(d.stdout.String()) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "signed ") || strings.HasPrefix(line, "curl ") || strings.HasPrefix(line, "(GATEHOUSE") {
				out := shellOf(t, program, pasted+line)
				status, err := strconv.Atoi(strings.Fields(out)[1])
				require.NoError(t, err)
				statuses = append(statuses, status)
			}
		}
		require.Equal(t, []int{200, 200, 401, 403}, statuses, program)
		all := service.all()
		require.Len(t, all, 2*(i+1))
		all = all[2*i:]
		require.Equal(t, "POST", all[1].Method)
		for _, r := range all {
			require.Equal(t, d.line(t, "#   X-Business-Id        the business of the key: ")[:36], r.Header.Get("X-Business-Id"))
			_, claims, _ := strings.Cut(r.Header.Get("X-Gateway-Assertion"), ".")
			claims, _, _ = strings.Cut(claims, ".")
			text, err := base64.RawURLEncoding.DecodeString(claims)
			require.NoError(t, err)
			require.Contains(t, string(text), `"aud":"service"`)
			require.Contains(t, string(text), `"op":"`+r.Method+`"`, "the assertion of a read is not valid for a write")
		}
	}
	for _, url := range []string{"localhost:3000", "http://x/path", "ftp://x", "http://a:b@x"} {
		demoCLI(t, "--listen", "127.0.0.1:0", "--protect", url).requireError(t, "--protect", "http://localhost:3000")
	}
	demoCLI(t, "--listen", gatewaytest.FreeAddr(t), "--protect", "http://127.0.0.1:1").requireError(t, "--protect", "start your service first")
}
