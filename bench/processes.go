package main

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/file"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// processes are the processes that the benchmark has started.
type processes struct{ cmds []*exec.Cmd }

// start starts a command, which the kernel kills if this process ends.
func (p *processes) start(ctx context.Context, out io.Writer, env []string, name string, args ...string) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = out, os.Stderr, env
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", filepath.Base(name), err)
	}
	p.cmds = append(p.cmds, cmd)
	return cmd, nil
}

func (p *processes) stop() {
	for _, cmd := range p.cmds {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // fails because it was killed
	}
}

func build(ctx context.Context, binary string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags="+os.Getenv("GOTAGS"), "-o", binary, "./cmd/gatehouse")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building the binary (run this in the repository's root): %w", err)
	}
	return nil
}

// server is Gatehouse or plain Caddy.
type server struct {
	name, global, site string   // the last two are parts of its Caddyfile
	protocol           string   // of plain Caddy's requests to the data service; "" for Gatehouse, which is the only other
	env                []string // in addition to this process's

	base, admin string
	pid         int
}

// start starts everything that the benchmark needs, up to what is compared.
func (b *bench) start(ctx context.Context, p *processes, dir string) error {
	ca := filepath.Join(dir, "ca.pem")
	data, err := startUpstream(ctx, p, b.upstream, ca)
	if err != nil {
		return err
	}
	gateway, binary := "", filepath.Join(dir, "gatehouse")
	if !b.clients {
		if gateway, err = b.prepare(ctx, p, dir, binary); err != nil {
			return err
		}
	}
	for scheme := range strings.SplitSeq(b.schemes, ",") {
		address, ok := data[scheme]
		if !ok {
			return fmt.Errorf("invalid scheme %q: must be http or https", scheme)
		}
		first := len(b.variants)
		if b.clients {
			err = b.addClients(ctx, scheme, address, ca)
		} else {
			for _, s := range b.servers(scheme, address, ca, gateway) {
				err = errors.Join(err, b.startServer(ctx, p, dir, binary, s))
			}
		}
		if err != nil {
			return err
		}
		for other := first; other < len(b.variants)-1; other++ {
			b.pairs = append(b.pairs, [2]int{len(b.variants) - 1, other})
		}
	}
	return nil
}

// prepare builds the binary, starts Redis, and returns Gatehouse's global options.
func (b *bench) prepare(ctx context.Context, p *processes, dir, binary string) (string, error) {
	fmt.Println("building the binary")
	if err := build(ctx, binary); err != nil {
		return "", err
	}
	redisPort, err := freePort(ctx)
	if err != nil {
		return "", err
	}
	if _, err := p.start(ctx, io.Discard, environment(), "redis-server", "--port", redisPort, "--bind", "127.0.0.1",
		"--save", "", "--appendonly", "no", "--dir", dir); err != nil {
		return "", err
	}
	keys := filepath.Join(dir, "keys.json")
	if b.credential, err = issueKey(ctx, keys); err != nil {
		return "", err
	}
	assertion := ""
	if b.assertion {
		name := filepath.Join(dir, "hop.pem")
		if err := writeKey(name); err != nil {
			return "", err
		}
		assertion = "assertion " + name
	}
	return fmt.Sprintf(`gatehouse {
		redis redis://127.0.0.1:%s
		credentials file %s
		limits {
			per_key 16000000
			in_flight 1024
		}
		%s
	}`, redisPort, keys, assertion), nil
}

// servers returns the servers that are compared over a scheme, the one that is compared to the others last.
func (b *bench) servers(scheme, address, ca, gateway string) []*server {
	data := func(options string) string {
		if scheme == "https" {
			return address + " {\n transport http {\n tls_trust_pool file " + ca + "\n" + options + "\n}\n}"
		}
		return address
	}
	api := "gatehouse_api {\n upstream " + data("") + "\n}"
	if b.tracing != "" {
		spans := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
		return []*server{
			{name: "untraced-" + scheme, global: gateway, site: api},
			{
				name: "traced-" + scheme, global: gateway, site: "@sampled vars_regexp {uuid} " + b.tracing + "\n tracing @sampled\n" + api,
				env: []string{"OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "OTEL_EXPORTER_OTLP_ENDPOINT=" + spans.URL},
			},
		}
	}
	plain := func(name, protocol, options string) *server {
		return &server{name: name, protocol: protocol, site: "reverse_proxy " + data(options)}
	}
	ours := &server{name: "gatehouse-" + scheme, global: gateway, site: api}
	if scheme == "http" {
		return []*server{plain("plain-http", "HTTP/1.1", ""), ours}
	}
	return []*server{
		plain("plain-https-h2", "HTTP/2.0", ""),
		plain("plain-https-h1", "HTTP/1.1", fmt.Sprintf("versions 1.1\n keepalive_idle_conns_per_host %d", upstream.DefaultMaxIdleConns)),
		ours,
	}
}

// startServer starts a server, waits until it does what it should, and adds it to the variants.
func (b *bench) startServer(ctx context.Context, p *processes, dir, binary string, s *server) error {
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	admin, err := freePort(ctx)
	if err != nil {
		return err
	}
	s.base, s.admin = "http://127.0.0.1:"+port, "http://127.0.0.1:"+admin
	config := filepath.Join(dir, s.name+".caddyfile")
	text := fmt.Sprintf(`{
		admin 127.0.0.1:%s
		persist_config off
		auto_https off
		log {
			level ERROR
		}
		%s
	}
	%s {
		%s
	}`, admin, s.global, s.base, s.site)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return fmt.Errorf("writing a configuration: %w", err)
	}
	env := append(environment("XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir), s.env...)
	cmd, err := p.start(ctx, io.Discard, env, binary, "run", "--config", config, "--adapter", "caddyfile")
	if err != nil {
		return err
	}
	s.pid = cmd.Process.Pid
	b.last = s
	b.variants = append(b.variants, variant{s.name, func(ctx context.Context, connections int, duration time.Duration) (result, error) {
		return b.load(ctx, s, connections, duration)
	}})
	return b.check(ctx, s)
}

// startUpstream starts the data service and returns its addresses by scheme. It writes the file ca.
func startUpstream(ctx context.Context, p *processes, kind, ca string) (map[string]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the executable: %w", err)
	}
	r, w := io.Pipe()
	if _, err := p.start(ctx, w, environment(upstreamEnv+"="+kind), self, ca); err != nil {
		return nil, err
	}
	lines := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(r).ReadString('\n')
		lines <- strings.TrimSpace(line)
		_, _ = io.Copy(io.Discard, r) // ends with the process
	}()
	select {
	case line := <-lines:
		plain, secure, ok := strings.Cut(line, " ")
		if !ok {
			return nil, errors.New("the data service exited at startup")
		}
		return map[string]string{"http": "http://" + plain, "https": "https://" + secure}, nil
	case <-time.After(20 * time.Second):
		return nil, errors.New("the data service did not start in time")
	}
}

func issueKey(ctx context.Context, name string) (*authsigner.Credential, error) {
	store, err := file.Open(name, file.Options{Create: true}) //nolint:contextcheck // the file is watched until Close
	if err != nil {
		return nil, fmt.Errorf("creating a credential file: %w", err)
	}
	defer func() { _ = store.Close() }()
	who := business()
	return authsigner.Issue(ctx, store, authsigner.IssueOptions{
		BusinessID: who.ID, BusinessName: who.Name, BusinessSlug: who.Slug, Test: true,
	})
}

func writeKey(name string) error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return fmt.Errorf("generating a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encoding a key: %w", err)
	}
	return os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
}

// freePort returns an unused port.
func freePort(ctx context.Context) (string, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("finding a free port: %w", err)
	}
	defer func() { _ = ln.Close() }()
	addr, _ := ln.Addr().(*net.TCPAddr)
	return strconv.Itoa(addr.Port), nil
}
