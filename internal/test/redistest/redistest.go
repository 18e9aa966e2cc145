// Package redistest starts real Redis processes for tests: a single server
// (with ACL users, TLS or any directive of redis.conf), a Cluster, and a master
// with a replica watched by Sentinels.
//
// Every process listens on free loopback ports, keeps its files in the test's
// temporary directory, is ended by the test's cleanup and, on Linux, killed by
// the kernel if the test binary dies before that. A missing redis-server fails
// the test, it never skips it.
package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-gateway/gatehouse/internal/test/certtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/leaktest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/porttest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/processtest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/recordtest"
)

// ErrNoRedis says that redis-server is not installed.
var ErrNoRedis = errors.New("redis-server is not in PATH: install Debian's package redis-server (make test does)")

const (
	loopback     = "127.0.0.1"
	startTimeout = time.Minute // on a busy machine
	pollInterval = 5 * time.Millisecond
	portAttempts = 5
	logTail      = 4 << 10 // bytes that a failure shows
)

// Option changes how a server is started.
type Option func(*settings)

type settings struct {
	directives []string
	users      []user
	ca         *certtest.CA // nil without TLS
	cert, key  string       // paths
	sentinel   bool
	clock      bool
	loading    bool // wait until it replies LOADING, not until it has loaded
	port       int
}

type user struct{ name, password, rules string }

// WithConfig adds a directive of redis.conf, for example
// WithConfig("maxmemory", "10mb").
func WithConfig(name string, values ...string) Option {
	return func(s *settings) { s.directives = append(s.directives, name+" "+strings.Join(values, " ")) }
}

// WithUser adds an ACL user and switches the default user off. rules are in
// Redis's ACL syntax, for example "~gh:* +@all"; the user is on and has the
// password in any case. The first user added is the one Server.Client and
// Server.URL use.
func WithUser(name, password, rules string) Option {
	return func(s *settings) { s.users = append(s.users, user{name, password, rules}) }
}

// WithTLS makes the server speak TLS only, with a certificate for 127.0.0.1 and
// localhost of its own authority (Server.CA).
func WithTLS(tb testing.TB) Option {
	tb.Helper()
	ca := certtest.NewCA(tb)
	cert, key := ca.ServerCert(tb)
	return func(s *settings) { s.ca, s.cert, s.key = ca, cert, key }
}

// Server is one redis-server process. Its methods may be called from several
// goroutines, but stopping and starting is for one at a time.
type Server struct {
	// Addr is the server's "127.0.0.1:port"; it survives restarts.
	Addr string
	// Dir holds the configuration and whatever Redis writes.
	Dir string
	// CA is the authority behind a server with TLS, else nil.
	CA *certtest.CA

	settings settings
	log      recordtest.Output
	busPort  int // of a Cluster node
	// Its reserved ports, closed by the test's cleanup or by the garbage collector.
	reserved []*os.File

	process atomic.Pointer[processtest.Process] // nil while it is stopped
}

// Start starts a server and waits until it responds. It ends with the test.
func Start(tb testing.TB, options ...Option) *Server {
	tb.Helper()
	s, err := launch(tb.TempDir(), options...)
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	tb.Cleanup(func() { s.cleanup(tb) })
	return s
}

// Main is a TestMain that starts one server for all tests of a package, runs the tests, and checks that they leave no goroutine.
func Main(m *testing.M, shared **Server) { os.Exit(runWith(m, shared)) }

func runWith(m *testing.M, shared **Server) int {
	dir, err := os.MkdirTemp("", "redistest")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		*shared, err = launch(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := (*shared).Kill(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return leaktest.Check(code)
}

// launch is Start for callers without a test. The caller has to Kill the server
// and to remove dir.
func launch(dir string, options ...Option) (*Server, error) {
	s := &Server{Dir: dir}
	for _, o := range options {
		o(&s.settings)
	}
	s.CA = s.settings.ca
	var err error
	for range portAttempts {
		// Where it cannot be reserved, a free port may be taken by someone else before Redis binds it.
		var held *os.File
		if s.settings.port, held, err = porttest.Reserve(); err != nil {
			return nil, err
		}
		s.reserved = append(s.reserved, held)
		s.Addr = net.JoinHostPort(loopback, strconv.Itoa(s.settings.port))
		if err = s.run(); err == nil || !strings.Contains(err.Error(), "Address already in use") {
			break
		}
	}
	return s, err
}

// URL is the server's address for redis.ParseURL, with the first user's
// credentials.
func (s *Server) URL() string {
	u := url.URL{Scheme: "redis", Host: s.Addr}
	if s.CA != nil {
		u.Scheme = "rediss"
	}
	if len(s.settings.users) > 0 {
		u.User = url.UserPassword(s.settings.users[0].name, s.settings.users[0].password)
	}
	return u.String()
}

// Options are client options for this server. Timeouts are long, because the machine may be busy: go-redis would send a command again
// after three seconds.
func (s *Server) Options() *redis.UniversalOptions {
	o := &redis.UniversalOptions{
		Addrs:       []string{s.Addr},
		DialTimeout: startTimeout, ReadTimeout: startTimeout, WriteTimeout: startTimeout,
	}
	if s.CA != nil {
		o.TLSConfig = s.CA.ClientTLS()
	}
	if len(s.settings.users) > 0 {
		o.Username, o.Password = s.settings.users[0].name, s.settings.users[0].password
	}
	return o
}

// Client returns a plain client for the test itself. It is closed with the test.
func (s *Server) Client(tb testing.TB) *redis.Client {
	tb.Helper()
	c := redis.NewClient(s.Options().Simple())
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// command runs a command and returns its reply.
func (s *Server) command(ctx context.Context, args ...any) (string, error) {
	c := redis.NewClient(s.Options().Simple())
	defer func() { _ = c.Close() }()
	reply, err := c.Do(ctx, args...).Text()
	if err != nil {
		return "", fmt.Errorf("running %v on %s: %w", args, s.Addr, err)
	}
	return reply, nil
}

// SetFull makes the server refuse commands that may take memory, as it does when it has reached its maxmemory, or no longer.
func (s *Server) SetFull(ctx context.Context, full bool) error {
	limit := "0"
	if full {
		limit = "1" // byte
	}
	_, err := s.command(ctx, "CONFIG", "SET", "maxmemory", limit)
	return err
}

// Stop ends the server with SIGTERM, as an orderly shutdown does, and waits.
func (s *Server) Stop() error { return s.end(syscall.SIGTERM) }

// Kill ends the server with SIGKILL and waits.
func (s *Server) Kill() error { return s.end(syscall.SIGKILL) }

// Pause stops the process with SIGSTOP: the kernel still accepts connections
// for it, but nothing responds.
func (s *Server) Pause() error { return s.signal(syscall.SIGSTOP) }

// Resume continues a paused process.
func (s *Server) Resume() error { return s.signal(syscall.SIGCONT) }

// Restart starts a stopped or killed server again at its old address. Nothing
// is persisted by default: it is empty then.
func (s *Server) Restart() error {
	if s.Pid() != 0 {
		return fmt.Errorf("server %s is still running", s.Addr)
	}
	return s.run()
}

// Pid is the process id, 0 when the server is not running.
func (s *Server) Pid() int {
	if p := s.process.Load(); p != nil {
		return p.Pid()
	}
	return 0
}

func (s *Server) signal(sig syscall.Signal) error {
	p := s.process.Load()
	if p == nil {
		return fmt.Errorf("server %s is not running", s.Addr)
	}
	return p.Signal(sig)
}

func (s *Server) end(sig syscall.Signal) error {
	p := s.process.Load()
	if p == nil {
		return fmt.Errorf("server %s is not running", s.Addr)
	}
	if err := p.End(sig); err != nil {
		return fmt.Errorf("ending server %s: %w", s.Addr, err)
	}
	s.process.Store(nil)
	return nil
}

func (s *Server) cleanup(tb testing.TB) {
	tb.Helper()
	if s.Pid() != 0 {
		if err := s.Kill(); err != nil {
			tb.Errorf("redistest: %v", err)
		}
	}
	for _, held := range s.reserved {
		_ = held.Close()
	}
	if tb.Failed() {
		tb.Logf("redistest: end of the log of %s:\n%s", s.Addr, s.log.Tail(logTail))
	}
}

// run writes the configuration, starts the process and waits until it responds.
func (s *Server) run() error {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return ErrNoRedis
	}
	conf := filepath.Join(s.Dir, "redis.conf")
	// Sentinel keeps its state in its own configuration file: it is written once.
	if _, err := os.Stat(conf); err != nil || !s.settings.sentinel {
		if err := os.WriteFile(conf, s.config(), 0o600); err != nil {
			return fmt.Errorf("writing the configuration: %w", err)
		}
	}
	args := []string{conf}
	if s.settings.sentinel {
		args = append(args, "--sentinel")
	}
	cmd := exec.Command(binary, args...)
	cmd.Dir = s.Dir
	if s.settings.clock {
		env, err := s.makeClock()
		if err != nil {
			return err
		}
		cmd.Env = append(os.Environ(), env...)
	}
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	p, err := processtest.Start(cmd)
	if err != nil {
		return err
	}
	if err := s.awaitReply(p.Done()); err != nil {
		p.Kill()
		return fmt.Errorf("starting redis-server on %s: %w\n%s", s.Addr, err, s.log.Tail(logTail))
	}
	s.process.Store(p)
	return nil
}

func (s *Server) awaitReply(exited <-chan struct{}) error {
	o := s.Options().Simple()
	o.MaxRetries = -1
	client := redis.NewClient(o)
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		err := client.Ping(ctx).Err()
		if s.settings.loading && redis.IsLoadingError(err) || err == nil || strings.HasPrefix(err.Error(), "NOPERM") {
			return nil
		}
		select {
		case <-exited:
			return errors.New("the process ended")
		case <-ctx.Done():
			return fmt.Errorf("no reply within %v: %w", startTimeout, err)
		case <-time.After(pollInterval):
		}
	}
}

func (s *Server) config() []byte {
	var b bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("bind %s", loopback)
	line("dir %q", s.Dir)
	line("daemonize no")
	if s.CA != nil {
		line("port 0")
		line("tls-port %d", s.settings.port)
		line("tls-cert-file %q", s.settings.cert)
		line("tls-key-file %q", s.settings.key)
		line("tls-ca-cert-file %q", s.CA.Path)
		line("tls-auth-clients no")
	} else {
		line("port %d", s.settings.port)
	}
	if !s.settings.sentinel {
		line(`save ""`)
		line("appendonly no")
	}
	for _, d := range s.settings.directives {
		line("%s", d)
	}
	if len(s.settings.users) > 0 {
		line("user default off")
	}
	for _, u := range s.settings.users {
		line("user %s on >%s %s", u.name, u.password, u.rules)
	}
	return b.Bytes()
}
