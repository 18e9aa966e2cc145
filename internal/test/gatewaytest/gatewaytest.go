// Package gatewaytest runs the gatehouse binary for tests, on free loopback ports.
//
// The binary is built once for each test process. A gateway's output is recorded, and the gateway ends with its test.
package gatewaytest

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/porttest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/processtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/recordtest"
)

// Generous timeouts, because the machine may be slow or busy.
const (
	startTimeout   = time.Minute
	stopTimeout    = time.Minute
	requestTimeout = 2 * time.Minute
	pollInterval   = 10 * time.Millisecond
)

// product is the main package of the gatehouse binary.
const product = "./cmd/gatehouse"

// builds are the builds of this test process.
var builds sync.Map // of func() (string, error), by main package and tags or commit

// Binary returns the path of the gatehouse binary: in the directory GATEHOUSE_TEST_BINARIES, which `make unit` sets, or built now.
func Binary(tb testing.TB) string {
	tb.Helper()
	return build(tb, product, "")
}

// Program returns the path of the binary of another main package, such as ./cmd/gatehouse-demo.
func Program(tb testing.TB, mainPackage string) string {
	tb.Helper()
	return build(tb, mainPackage, "")
}

func build(tb testing.TB, mainPackage, tags string) string {
	tb.Helper()
	return buildOnce(tb, [2]string{mainPackage, tags}, func() (string, error) { return buildBinary(mainPackage, tags) })
}

func buildOnce(tb testing.TB, key [2]string, build func() (string, error)) string {
	tb.Helper()
	once, _ := builds.LoadOrStore(key, sync.OnceValues(build))
	built, ok := once.(func() (string, error))
	require.True(tb, ok)
	path, err := built()
	require.NoError(tb, err)
	return path
}

// buildBinary builds a main package with GOTAGS and further tags.
func buildBinary(mainPackage, tags string) (string, error) {
	name := filepath.Base(mainPackage)
	if tags != "" {
		name += "-" + tags
	}
	if built := os.Getenv(envBinaries); built != "" {
		path := filepath.Join(built, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	root, err := processtest.Root()
	if err != nil {
		return "", err
	}
	// go build leaves the file alone if nothing has changed; the name holds the process, as several may build at once
	dir := filepath.Join(root, ".cache", "bin", "built")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making the folder for the binary: %w", err)
	}
	path := filepath.Join(dir, name)
	return path, compile(root, mainPackage, tags, path)
}

// compile builds a main package of a copy of the repository, with GOTAGS and further tags.
func compile(root, mainPackage, tags, path string) error {
	tmp := fmt.Sprintf("%s.%d", path, os.Getpid())
	cmd := exec.CommandContext(context.Background(), "go", "build", "-trimpath", "-buildvcs=false", "-tags="+os.Getenv("GOTAGS")+","+tags,
		"-ldflags=-s -w", "-o", tmp, mainPackage)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", mainPackage, err, out)
	}
	// a running binary may be replaced, not overwritten
	return os.Rename(tmp, path)
}

// BinaryOf returns the path of the gatehouse binary of a commit, which is built once for the repository.
func BinaryOf(tb testing.TB, commit string) string {
	tb.Helper()
	return buildOnce(tb, [2]string{product, commit}, func() (string, error) { return buildCommit(commit) })
}

func buildCommit(commit string) (path string, err error) {
	root, err := processtest.Root()
	if err != nil {
		return "", err
	}
	path = filepath.Join(root, ".cache", "bin", "gatehouse-"+commit)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	source, err := os.MkdirTemp("", "gatehouse-"+commit)
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(source) }()
	archive := filepath.Join(source, "source.tar")
	for _, command := range [][]string{
		{"git", "-C", root, "archive", "--output", archive, commit}, // not in a shallow clone
		{"tar", "-xf", archive, "-C", source},
		{"mkdir", "-p", filepath.Dir(path)},
	} {
		if out, err := exec.CommandContext(context.Background(), command[0], command[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%v: %w\n%s", command, err, out)
		}
	}
	return path, compile(source, product, "", path)
}

// Gateway is one running gateway process.
type Gateway struct {
	// URL is the site: http://127.0.0.1:port.
	URL string
	// Addr is the site's host:port, for raw connections.
	Addr string
	// AdminURL is Caddy's admin API.
	AdminURL string
	// Config is the file that the gateway was started with; a test may rewrite it and Reload.
	Config string
	// Dir is the gateway's folder.
	Dir string
	// Binary is run. Default: the one that is tested.
	Binary string

	process *processtest.Process // the last run
	out     recordtest.Output
	env     []string
	tags    string     // further build tags
	files   []*os.File // from descriptor 3 on
}

// Options are the parts of a gateway's Caddyfile.
type Options struct {
	// Global is put into the global options, with the block "gatehouse { … }".
	Global string
	// Servers is put into the global option servers.
	Servers string
	// Host is the site's scheme and host. Default: http:// and any host, as a gateway behind a load balancer has it.
	Host string
	// Site is put into the site.
	Site string
	// Extra is put after the site.
	Extra string
	// CA allows sites with "tls internal", whose certificates are of Caddy's own authority (Roots), and HTTP/3.
	CA bool
	// Env are further variables of the process's environment.
	Env []string
	// Tags are further build tags.
	Tags string
}

// Caddyfile is the configuration for these options and ports.
func (o Options) Caddyfile(addr, admin string) string {
	_, port, _ := net.SplitHostPort(addr)
	https, protocols, host := "auto_https off", "h1 h2 h2c", o.Host
	if o.CA {
		https, protocols = "auto_https disable_redirects\n\tskip_install_trust", protocols+" h3"
	}
	if host == "" {
		host = "http://"
	}
	return fmt.Sprintf(`{
	admin %s
	persist_config off
	%s
	grace_period 5s
	servers {
		protocols %s
		listener_wrappers {
			gatehouse_drain
		}
		%s
	}
	%s
}

%s:%s {
	%s
}

%s
`, admin, https, protocols, o.Servers, o.Global, host, port, o.Site, o.Extra)
}

// CAFile is the certificate of Caddy's own authority.
func (g *Gateway) CAFile() string {
	return filepath.Join(g.Dir, "caddy", "pki", "authorities", "local", "root.crt")
}

// Roots waits until a site of Options.CA at addr has its certificate, and returns its authority.
func (g *Gateway) Roots(tb testing.TB, addr, serverName string) *x509.CertPool {
	tb.Helper()
	roots := x509.NewCertPool()
	require.Eventually(tb, func() bool { // the port is open before the certificate exists
		root, err := os.ReadFile(g.CAFile())
		if err != nil || !roots.AppendCertsFromPEM(root) {
			return false
		}
		dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: serverName}}
		conn, err := dialer.DialContext(tb.Context(), "tcp", addr)
		return err == nil && conn.Close() == nil
	}, startTimeout, 2*pollInterval)
	return roots
}

// Start starts a gateway and waits until it serves.
func Start(tb testing.TB, o Options) *Gateway {
	tb.Helper()
	g := New(tb, o)
	g.Run(tb)
	return g
}

// New prepares a gateway without starting it.
func New(tb testing.TB, o Options) *Gateway {
	tb.Helper()
	g := &Gateway{Addr: FreeAddr(tb), Dir: tb.TempDir(), env: o.Env, tags: o.Tags}
	admin := FreeAddr(tb)
	g.URL, g.AdminURL = "http://"+g.Addr, "http://"+admin
	g.Config = filepath.Join(g.Dir, "Caddyfile")
	g.Write(tb, o.Caddyfile(g.Addr, admin))
	return g
}

// WaitForRedis gives the Redis of a Caddyfile that has no options a timeout which a busy machine does not exceed, as it does the default of
// 50 ms: then, writes get 503.
func WaitForRedis(caddyfile string) string {
	return regexp.MustCompile(`(?m)^(\s*redis redis://\S+)$`).ReplaceAllString(caddyfile, "$1 {\n\t\t\ttimeout 5s\n\t\t}")
}

// Write replaces the configuration file.
func (g *Gateway) Write(tb testing.TB, caddyfile string) {
	tb.Helper()
	require.NoError(tb, os.WriteFile(g.Config, []byte(caddyfile), 0o600))
}

// Run starts the process and waits until it serves. A gateway that was stopped or killed may be run again.
func (g *Gateway) Run(tb testing.TB) {
	tb.Helper()
	path := g.Binary
	if path == "" {
		path = build(tb, product, g.tags)
	}
	// not the test's context: the process is to be stopped in order when the test ends
	cmd := exec.CommandContext(context.Background(), path, "run", "--config", g.Config, "--adapter", "caddyfile")
	cmd.Env = append(os.Environ(), append(g.env, "XDG_DATA_HOME="+g.Dir, "XDG_CONFIG_HOME="+g.Dir)...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &g.out, &g.out, g.files
	var err error
	g.process, err = processtest.Start(cmd)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		g.Stop(tb)
		if tb.Failed() {
			tb.Logf("what the gateway %s wrote:\n%s", g.Addr, g.out.Tail(16<<10))
		}
	})
	g.await(tb, "serve", func() error {
		conn, err := net.DialTimeout("tcp", g.Addr, time.Second)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	// The site may be served before metrics and readiness have started. The admin API shows a configuration once all of it has.
	g.await(tb, "show its configuration", func() error {
		req, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, g.AdminURL+"/config/", http.NoBody)
		if err != nil {
			return err
		}
		res, err := onceClient().Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = res.Body.Close() }()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", res.StatusCode)
		}
		return nil
	})
}

// await retries until a started gateway can do something.
func (g *Gateway) await(tb testing.TB, what string, try func() error) {
	tb.Helper()
	deadline := time.Now().Add(startTimeout)
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-g.process.Done():
			require.FailNow(tb, "the gateway did not start", "%s", g.out.String())
		case <-time.After(pollInterval):
		}
		if time.Now().After(deadline) {
			require.FailNow(tb, "the gateway does not "+what, "%v\n%s", err, g.out.String())
		}
	}
}

// onceClient makes a connection for each request, as a reload closes idle connections to the admin API, possibly when a POST is sent.
func onceClient() *http.Client {
	return &http.Client{Timeout: startTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
}

// Stop stops the gateway with SIGTERM, and with SIGKILL if it does not end.
func (g *Gateway) Stop(tb testing.TB) {
	tb.Helper()
	if g.process == nil {
		return
	}
	if err := g.process.End(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		tb.Errorf("stopping the gateway: %v", err)
	}
}

// Kill ends the gateway at once.
func (g *Gateway) Kill(tb testing.TB) {
	tb.Helper()
	require.NoError(tb, g.process.End(syscall.SIGKILL))
}

// Signal sends the gateway a signal.
func (g *Gateway) Signal(tb testing.TB, sig os.Signal) {
	tb.Helper()
	require.NoError(tb, g.process.Signal(sig))
}

// ExitCode waits for the gateway's end and returns its exit code, -1 if a signal ended it.
func (g *Gateway) ExitCode(tb testing.TB) int {
	tb.Helper()
	require.Eventually(tb, g.Ended, stopTimeout, pollInterval, "the gateway has not ended")
	return g.process.State().ExitCode()
}

// Pid is the process's id.
func (g *Gateway) Pid() int { return g.process.Pid() }

// Ended reports whether the process has ended.
func (g *Gateway) Ended() bool { return g.process.Ended() }

// Output returns the gateway's output so far, mostly logs.
func (g *Gateway) Output() string { return g.out.String() }

// Reload reloads the configuration file with `gatehouse reload`.
func (g *Gateway) Reload(tb testing.TB) {
	tb.Helper()
	out, err := Command(tb, nil, "reload", "--config", g.Config, "--adapter", "caddyfile",
		"--address", strings.TrimPrefix(g.AdminURL, "http://"), "--force")
	require.NoError(tb, err, "%s", out)
	g.AwaitReload(tb)
}

// Command runs the binary with other arguments and returns its output.
func Command(tb testing.TB, env []string, args ...string) (string, error) {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), Binary(tb), args...)
	dir := tb.TempDir()
	cmd.Env = append(os.Environ(), append(env, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// FreeAddr returns a loopback address on which nothing listens, and which no other test gets until this one ends: two gateways could listen
// on one port (SO_REUSEPORT), and each would get half of the requests.
func FreeAddr(tb testing.TB) string {
	tb.Helper()
	port, held, err := porttest.Reserve()
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = held.Close() })
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// Response is a response, read to its end.
type Response struct {
	Status  int
	Header  http.Header
	Body    string
	Request *http.Request
}

// Caller signs and sends requests as a calling business.
type Caller struct {
	PublicKey  string
	PrivateKey authsigner.Secret
	// Client sends. Default: one without redirects.
	Client *http.Client
}

// Get sends a signed GET. target is the request target, sent as is.
func (c Caller) Get(tb testing.TB, base, target string) Response {
	tb.Helper()
	return c.Do(tb, http.MethodGet, base, target, nil)
}

// Do sends a signed request. target is the request target, signed and sent as is.
func (c Caller) Do(tb testing.TB, method, base, target string, body []byte) Response {
	tb.Helper()
	a, err := c.Try(tb.Context(), method, base, target, body)
	require.NoError(tb, err)
	return a
}

// Try is Do for goroutines and for requests that may fail.
func (c Caller) Try(ctx context.Context, method, base, target string, body []byte) (Response, error) {
	now := time.Now().Unix()
	header := http.Header{}
	if c.PublicKey != "" {
		header[authsigner.HeaderPublicKey] = []string{c.PublicKey}
		header[authsigner.HeaderTimestamp] = []string{strconv.FormatInt(now, 10)}
		header[authsigner.HeaderSignature] = []string{authsigner.Sign(c.PrivateKey, now, method, target, body)}
	}
	return c.Send(ctx, method, base, target, header, body)
}

// Send sends a request with exactly these headers.
func (c Caller) Send(ctx context.Context, method, base, target string, header http.Header, body []byte) (Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, base, bytes.NewReader(body))
	if err != nil {
		return Response{}, fmt.Errorf("building the request: %w", err)
	}
	req.URL.Opaque = target // net/http would encode a path again
	req.Header = header
	client := c.Client
	if client == nil {
		client = &http.Client{
			Timeout:       requestTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	res, err := client.Do(req)
	if err != nil {
		return Response{}, err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return Response{}, fmt.Errorf("reading the response: %w", err)
	}
	return Response{Status: res.StatusCode, Header: res.Header, Body: string(b), Request: req}, nil
}

// Metric returns the sum of a metric's series whose labels contain all parts.
func (g *Gateway) Metric(tb testing.TB, name string, parts ...string) float64 {
	tb.Helper()
	sum := 0.0
	for line := range strings.Lines(Caller{}.Get(tb, g.AdminURL, "/metrics").Body) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, _, _ := strings.Cut(series, "{"); n != name {
			continue
		}
		if slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(series, p) }) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		require.NoError(tb, err, line)
		sum += v
	}
	return sum
}

// Everything returns all that operators can see of the gateway: log, metrics, probes, arguments and admin API.
func (g *Gateway) Everything(tb testing.TB) string {
	tb.Helper()
	var b strings.Builder
	for _, path := range []string{
		"/config/", "/metrics", "/gatehouse/ready", "/gatehouse/drift", "/reverse_proxy/upstreams", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2", "/debug/vars",
	} {
		a := Caller{}.Get(tb, g.AdminURL, path)
		require.Equal(tb, http.StatusOK, a.Status, path)
		b.WriteString(a.Body)
	}
	arguments, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", g.Pid()))
	require.NoError(tb, err)
	b.Write(arguments)
	for _, path := range []string{"/healthz", "/readyz"} {
		b.WriteString(Caller{}.Get(tb, g.URL, path).Body)
	}
	b.WriteString(g.Output())
	return b.String()
}

// RequireNowhere fails the test if a text contains one of the canaries.
func RequireNowhere(tb testing.TB, text string, canaries ...string) {
	tb.Helper()
	for _, c := range canaries {
		require.NotEmpty(tb, c)
		if i := strings.Index(text, c); i >= 0 {
			require.Fail(tb, "a canary has leaked", "%q in …%s…", c, text[max(0, i-200):min(len(text), i+200)])
		}
	}
}
