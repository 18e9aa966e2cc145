package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/load"
	"github.com/gatehouse-gateway/gatehouse/internal/test/processtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/recordtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

// demoProcess is a running gatehouse-demo.
type demoProcess struct {
	*processtest.Process

	temp   string // its folder for temporary files
	url    string
	stdout recordtest.Output
	stderr recordtest.Output
	began  time.Time
}

// startDemo starts the demo on a free port, and waits until it has printed everything.
func startDemo(t *testing.T, flags ...string) *demoProcess {
	t.Helper()
	return startDemoOn(t, gatewaytest.FreeAddr(t), flags...)
}

func startDemoOn(t *testing.T, addr string, flags ...string) *demoProcess {
	t.Helper()
	d := &demoProcess{temp: t.TempDir(), url: "http://" + addr, began: time.Now()}
	// not the test's context: the process is to be stopped in order when the test ends
	cmd := exec.CommandContext(context.Background(), gatewaytest.Program(t, "./cmd/gatehouse-demo"), append([]string{"--listen", addr}, flags...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + d.temp, "HOME=" + d.temp}
	cmd.Stdout, cmd.Stderr = &d.stdout, &d.stderr
	var err error
	d.Process, err = processtest.Start(cmd)
	require.NoError(t, err)
	t.Cleanup(func() {
		d.Kill()
		if t.Failed() {
			t.Logf("what the demo wrote:\n%s\n%s", d.stdout.String(), d.stderr.String())
		}
	})
	require.Eventually(t, func() bool {
		return d.Ended() || strings.Contains(d.stdout.String(), "Ctrl-C stops it")
	}, 3*patience, 10*time.Millisecond) // it fills a database
	require.Contains(t, d.stdout.String(), "Ctrl-C stops it", "stderr: %s", d.stderr.String())
	return d
}

// line is the first line of the output that begins with prefix, without it.
func (d *demoProcess) line(t *testing.T, prefix string) string {
	t.Helper()
	for l := range strings.Lines(d.stdout.String()) {
		if rest, ok := strings.CutPrefix(l, prefix); ok {
			return strings.TrimSuffix(rest, "\n")
		}
	}
	require.Fail(t, "no such line in the output", "%q in\n%s", prefix, d.stdout.String())
	return ""
}

func (d *demoProcess) caller(t *testing.T) gatewaytest.Caller {
	t.Helper()
	return gatewaytest.Caller{
		PublicKey:  d.line(t, "export GATEHOUSE_KEY="),
		PrivateKey: authsigner.Secret(d.line(t, "export GATEHOUSE_SECRET=")),
	}
}

// pasted returns the part of the output that prepares a shell.
func (d *demoProcess) pasted(t *testing.T) (script string) {
	t.Helper()
	for _, prefix := range []string{"export GATEHOUSE_KEY=", "export GATEHOUSE_SECRET=", "signed()"} {
		script += prefix + d.line(t, prefix) + "\n"
	}
	return script
}

// shell runs a script with sh and only PATH in its environment.
func shell(t *testing.T, script string) string {
	t.Helper()
	return shellOf(t, "sh", script)
}

// shells are those into which people paste what a demo prints. zsh does not split expansions into words.
func shells() []string { return []string{"sh", "zsh"} }

func shellOf(t *testing.T, program, script string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, "-eu", "-c", script)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s\n%s\n%s", script, out, stderr.String())
	require.Empty(t, stderr.String(), script)
	return string(out)
}

// requireHTTP reads what `curl -i` printed.
func requireHTTP(t *testing.T, out string, status int) gatewaytest.Response {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(strings.NewReader(out)), nil)
	require.NoError(t, err, "%s", out)
	defer func() { require.NoError(t, res.Body.Close()) }()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, status, res.StatusCode, "%s", out)
	return gatewaytest.Response{Status: res.StatusCode, Header: res.Header, Body: string(body)}
}

//nolint:tparallel // the subtests share a demo, which the last one stops
func TestDemo(t *testing.T) {
	t.Parallel()
	d := startDemo(t)
	t.Run("serves within five seconds", func(t *testing.T) {
		requireJSON(t, d.caller(t).Get(t, d.url, "/api/v1/events?count=2"))
		// Processor time, because other tests use the processors too.
		took := processorTime(t, d.Pid())
		t.Logf("figure: the first response after %s of processor time, %s by the clock", took, time.Since(d.began).Round(time.Millisecond))
		assert.Less(t, took, 5*time.Second)
		assert.Equal(t, 1, strings.Count(d.stdout.String(), "export GATEHOUSE_KEY="))
		assert.Equal(t, 1, strings.Count(d.stdout.String(), "export GATEHOUSE_SECRET="))
		assert.Contains(t, d.stdout.String(), d.url)
		assert.NotContains(t, d.stderr.String(), "warning about the definition", "nobody can change it")
		assert.Equal(t, http.StatusOK, anonymous().Get(t, d.url, "/readyz").Status)
		assert.Equal(t, http.StatusOK, anonymous().Get(t, d.url, "/.well-known/gatehouse-jwks.json").Status)
	})
	t.Run("prints commands that work", func(t *testing.T) { requireCommandsWork(t, d) })
	t.Run("logs denied requests", func(t *testing.T) {
		a := anonymous().Get(t, d.url, "/api/v1/me")
		assert.GreaterOrEqual(t, a.Status, http.StatusBadRequest)
		require.Eventually(t, func() bool { return strings.Contains(d.stderr.String(), a.Header.Get("X-Request-Id")) }, patience, 10*time.Millisecond)
		assert.NotContains(t, d.stdout.String(), a.Header.Get("X-Request-Id"))
	})
	t.Run("enforces limits", func(t *testing.T) {
		counts := statuses(65, func(int) gatewaytest.Response { return d.caller(t).Get(t, d.url, "/api/v1/me") })
		assert.LessOrEqual(t, counts[http.StatusOK], load.KeyLimit)
		assert.Equal(t, 65, counts[http.StatusOK]+counts[http.StatusTooManyRequests])
	})
	t.Run("leaves no files or processes", func(t *testing.T) { requireLeavesNothing(t, d, syscall.SIGINT) })
}

//nolint:tparallel // the subtests share a demo, which the last one stops
func TestDemoWithoutRateLimitOnLocalhost(t *testing.T) {
	t.Parallel()
	_, port, err := net.SplitHostPort(gatewaytest.FreeAddr(t))
	require.NoError(t, err)
	d := startDemoOn(t, "localhost:"+port, "--no-rate-limit")
	t.Run("only reports limits", func(t *testing.T) {
		assert.Contains(t, d.stdout.String(), "over a limit are reported, not denied")
		assert.Equal(t, map[int]int{200: 15}, statuses(15, func(int) gatewaytest.Response { return anonymous().Get(t, d.url, "/api/v1/status") }))
		assert.Equal(t, map[int]int{200: 65}, statuses(65, func(int) gatewaytest.Response { return d.caller(t).Get(t, d.url, "/api/v1/me") }))
	})
	t.Run("listens on IPv4 and IPv6", func(t *testing.T) {
		require.Contains(t, d.stdout.String(), "http://localhost:"+port)
		hosts := []string{"127.0.0.1", "localhost"}
		if ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "[::1]:0"); err == nil {
			require.NoError(t, ln.Close())
			hosts = append(hosts, "[::1]")
		}
		for _, host := range hosts {
			assert.Equal(t, http.StatusOK, d.caller(t).Get(t, "http://"+host+":"+port, "/api/v1/me").Status, host)
		}
	})
	t.Run("has its own URL in the reference", func(t *testing.T) {
		page := anonymous().Get(t, d.url, "/docs")
		assert.Contains(t, page.Body, "export GATEHOUSE_URL=http://localhost:"+port)
		assert.NotContains(t, page.Body, "https://api.example.com")
	})
	t.Run("reports its address as in use", func(t *testing.T) { // two demos on one port would each get half of the requests
		demoCLI(t, "--listen", "localhost:"+port).requireError(t, "address already in use")
		for range 5 {
			assert.Equal(t, http.StatusOK, d.caller(t).Get(t, d.url, "/api/v1/me").Status)
		}
	})
	t.Run("leaves no files or processes", func(t *testing.T) { requireLeavesNothing(t, d, syscall.SIGTERM) })
}

// processorTime returns the processor time of a process.
func processorTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	_, after, ok := strings.Cut(string(stat), ") ") // the name of the program is before it
	require.True(t, ok)
	fields := strings.Fields(after)
	var used time.Duration
	for _, field := range fields[11:13] { // utime and stime, of proc(5), in hundredths of a second
		ticks, err := strconv.Atoi(field)
		require.NoError(t, err)
		used += time.Duration(ticks) * 10 * time.Millisecond
	}
	return used
}

// requireCommandsWork runs the commands that a demo has printed, before any other unsigned request.
func requireCommandsWork(t *testing.T, d *demoProcess) {
	t.Helper()
	ready := d.pasted(t)
	commands := 0
	for l := range strings.Lines(d.stdout.String()) {
		l = strings.TrimSpace(l)
		switch {
		case strings.HasPrefix(l, "signed "):
			requireJSON(t, requireHTTP(t, shell(t, ready+l), http.StatusOK))
		case strings.HasPrefix(l, "curl "):
			requireProblem(t, requireHTTP(t, shell(t, l), http.StatusUnauthorized), http.StatusUnauthorized, "MISSING_CREDENTIALS")
		case strings.HasPrefix(l, "for "):
			codes := strings.Fields(shell(t, l))
			require.Equal(t, strings.Fields("200 200 200 200 200 200 200 200 200 429 429"), codes, "the unsigned request before it was the first of ten")
		default:
			continue
		}
		commands++
	}
	require.Equal(t, 5, commands)
	// the shell function signs any path, with the private key in the environment
	requireHTTP(t, shell(t, ready+"signed '/api/v1/contacts?per_page=1&status=active'"), http.StatusOK)
	requireHTTP(t, shell(t, ready+"GATEHOUSE_SECRET=another\nsigned /api/v1/me"), http.StatusUnauthorized)
	// the other businesses
	found := regexp.MustCompile(`\((active|inactive)\) +GATEHOUSE_KEY=(\S+) GATEHOUSE_SECRET=(\S+)`).FindAllStringSubmatch(d.stdout.String(), -1)
	require.Len(t, found, 2)
	for _, m := range found {
		a := gatewaytest.Caller{PublicKey: m[2], PrivateKey: authsigner.Secret(m[3])}.Get(t, d.url, "/api/v1/me")
		if m[1] == "inactive" {
			requireProblem(t, a, http.StatusForbidden, "ACCOUNT_INACTIVE")
			continue
		}
		requireJSON(t, a)
	}
}

// requireLeavesNothing stops a demo with a signal.
func requireLeavesNothing(t *testing.T, d *demoProcess, signal syscall.Signal) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(d.temp, "gatehouse-demo-*"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	children, err := os.ReadFile("/proc/" + strconv.Itoa(d.Pid()) + "/task/" + strconv.Itoa(d.Pid()) + "/children")
	require.NoError(t, err)
	require.Empty(t, string(children), "child processes")

	require.NoError(t, d.End(signal))
	require.Equal(t, 0, d.State().ExitCode(), "%s: %s", signal, d.stderr.String())
	left, err := filepath.Glob(filepath.Join(d.temp, "gatehouse*"))
	require.NoError(t, err)
	require.Empty(t, left)
	_, err = net.DialTimeout("tcp", strings.TrimPrefix(d.url, "http://"), time.Second)
	require.Error(t, err)
}

func TestDemosOnOneRedisShareLimits(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	a, b := startDemo(t, "--redis", redis.URL()), startDemo(t, "--redis", redis.URL())
	require.Equal(t, map[int]int{http.StatusOK: 10, http.StatusTooManyRequests: 4}, statuses(14, func(i int) gatewaytest.Response {
		return anonymous().Get(t, []string{a.url, b.url}[i%2], "/api/v1/status")
	}))
	keys, err := redis.Client(t).Keys(t.Context(), "gatehouse:*").Result()
	require.NoError(t, err)
	assert.NotEmpty(t, keys)
}

// demoCLI runs a demo that ends by itself.
func demoCLI(t *testing.T, args ...string) outcome {
	t.Helper()
	o, err := tryCLI(t.Context(), t.TempDir(), gatewaytest.Program(t, "./cmd/gatehouse-demo"), nil, args...)
	require.NoError(t, err)
	return o
}

func TestDemoFlagErrors(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ args, words []string }{
		"no port":           {[]string{"--listen", "127.0.0.1"}, []string{"--listen", "host:port"}},
		"not a number":      {[]string{"--listen", "127.0.0.1:http!"}, []string{"http!"}},
		"port out of range": {[]string{"--listen", "127.0.0.1:99999"}, []string{"port"}},
		"not a Redis URL":   {[]string{"--listen", "127.0.0.1:0", "--redis", "nonsense"}, []string{"redis://"}},
		"unreachable Redis": {[]string{"--listen", gatewaytest.FreeAddr(t), "--redis", "redis://127.0.0.1:1"}, []string{"redis", "127.0.0.1:1"}},
		"no operations":     {[]string{"--listen", "127.0.0.1:0", "--only", ""}, []string{"--only is empty"}},
		"nothing of it":     {[]string{"--listen", "127.0.0.1:0", "--business", "17"}, []string{"--business", "--upstream", "--protect"}},
		"an argument":       {[]string{"please"}, []string{"please"}},
		"an unknown flag":   {[]string{"--port", "80"}, []string{"--port"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			demoCLI(t, tc.args...).requireError(t, tc.words...)
		})
	}
}

// If the document names no base path, all paths are those of the API, and the reference has none.
func TestDemoServesADefinitionWithoutABasePath(t *testing.T) {
	t.Parallel()
	service := &recorder{}
	service.setResponse(respondWith(200, "application/json", `{"open":true}`))
	w := newEnvironment(t, service)
	file := filepath.Join(t.TempDir(), "openapi.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`{openapi: 3.1.0, info: {title: Hours, version: "1"}, servers: [{url: "https://hours.example"}], x-gatehouse-tenant: none, paths: {
		/hours: {get: {responses: {"200": {description: "", content: {application/json: {schema: {type: object, properties: {open: {type: boolean}}}}}}}}}}}`), 0o600))
	d := startDemo(t, "--definition", file, "--upstream", w.dataURL)
	require.NotContains(t, d.stdout.String(), "/docs")
	requireHTTP(t, shell(t, d.pasted(t)+"signed GET '/hours'"+d.line(t, "signed GET '/hours'")), http.StatusOK)
}

// A definition and service of one's own: each command that is printed works, and the log says what was removed and rejected, without values.
func TestDemoServesOnesOwnDefinition(t *testing.T) {
	t.Parallel()
	service := &recorder{}
	service.setResponse(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v1/orders/recent":
			respondWith(200, "application/json", `{"id":"o-1","account":"18","total":"1","stolen":"s3cret"}`)(w, r)
		case r.Method == http.MethodPost && r.URL.Path == "/v1/orders":
			respondWith(201, "application/json", goodOrder)(w, r)
		case r.URL.Path == "/v1/news" && r.Method == http.MethodGet:
			respondWith(200, "application/json", `[{"title":"Open","author":"s3cret","s3cret name":1}]`)(w, r)
		case strings.HasSuffix(r.URL.Path, "/invoice"):
			respondWith(200, "application/pdf", "%PDF")(w, r)
		case r.URL.Path == "/v1/orders/search":
			respondWith(200, "application/json", `[]`)(w, r)
		case r.URL.Path == "/v1/orders":
			respondWith(200, "application/json", `{"data":[]}`)(w, r)
		case r.Method == http.MethodGet || r.Method == http.MethodPatch:
			w.Header().Set("Location", "/s3cret")
			respondWith(200, "application/json", strings.Replace(goodOrder, "o-1", strings.TrimPrefix(r.URL.Path, "/v1/orders/"), 1))(w, r)
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	})
	w := newEnvironment(t, service)
	dir, err := filepath.Abs("testdata/shop")
	require.NoError(t, err)
	flags := []string{"--definition", dir + "/openapi.yaml", "--overlay", dir + "/overlay.yaml", "--upstream", w.dataURL}
	var d *demoProcess
	for _, program := range shells() {
		d = startDemo(t, append(flags, "--except", "deleteOrder", "--business", "17", "--header", "X-Password: pass \"word\"")...)
		pasted := d.pasted(t)
		var statuses []string
		for line := range strings.Lines(d.stdout.String()) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "signed ") || strings.HasPrefix(line, "curl ") {
				statuses = append(statuses, strings.Fields(shellOf(t, program, pasted+line))[1])
			}
		}
		short := shellOf(t, program, pasted+"signed GET /v1/orders 2>&1")
		require.True(t, strings.HasPrefix(short, "HTTP/1.1 200"), "%s, without a body: %s", program, short)
		require.Equal(t, strings.Fields("200 502 200 200 200 201 204 200 204 200 204 401"), statuses, program)
		reads, writes, ok := strings.Cut(d.stdout.String(), "# These may change or delete something in your service:\nsigned POST")
		require.True(t, ok)
		require.NotContains(t, reads, "signed DELETE")
		require.NotContains(t, writes, "signed GET")
	}
	require.Eventually(t, func() bool {
		log := d.stderr.String()
		return strings.Contains(log, "/0/author") && strings.Contains(log, "is removed: it is not documented") &&
			strings.Contains(log, "the header Location is removed") && strings.Contains(log, "cross-tenant record: orders")
	}, patience, 10*time.Millisecond, d.stderr.String())
	require.NotContains(t, d.stderr.String(), "s3cret")
	require.Equal(t, `pass "word"`, service.last(t).Header.Get("X-Password"))
	for name, tc := range map[string]struct{ args, words []string }{
		"no service":                     {flags[:2], []string{"--definition", "--upstream"}},
		"no definition":                  {flags[4:], []string{"--definition", "--upstream"}},
		"both ways":                      {append(flags, "--protect", w.dataURL), []string{"--protect"}},
		"a header without a value":       {append(flags[:6:6], "--except", "deleteOrder", "--header", "X-Password"), []string{"--header", "X-Password: secret"}},
		"a service that is not there":    {append(flags[:5:5], "http://127.0.0.1:1", "--except", "deleteOrder"), []string{"--upstream", "start your service first"}},
		"an operation that is not there": {append(flags[:6:6], "--only", "listOrder"), []string{dir + "/openapi.yaml:", "no operation or tag is called \"listOrder\""}},
		"no such file":                   {append([]string{"--definition", "none.yaml"}, flags[4:]...), []string{"none.yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			demoCLI(t, append(tc.args, "--listen", gatewaytest.FreeAddr(t))...).requireError(t, tc.words...)
		})
	}
}
