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

// server is one of the two servers that are compared.
type server struct {
	name  string
	base  string
	admin string
	pid   int
}

// bench is a running benchmark.
type bench struct {
	options
	plain, gatehouse server
	credential       *authsigner.Credential
}

func start(ctx context.Context, p *processes, o options, dir, binary string) (*bench, error) {
	b := &bench{options: o}
	redisPort, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := p.start(ctx, io.Discard, environment(), "redis-server", "--port", redisPort, "--bind", "127.0.0.1",
		"--save", "", "--appendonly", "no", "--dir", dir); err != nil {
		return nil, err
	}
	data, err := startUpstream(ctx, p, o.upstream)
	if err != nil {
		return nil, err
	}
	keys := filepath.Join(dir, "keys.json")
	if b.credential, err = issueKey(ctx, keys); err != nil {
		return nil, err
	}
	assertion := ""
	if o.assertion {
		name := filepath.Join(dir, "hop.pem")
		if err := writeKey(name); err != nil {
			return nil, err
		}
		assertion = "assertion " + name
	}
	gateway := fmt.Sprintf("gatehouse {\n\t\tredis redis://127.0.0.1:%s\n\t\tcredentials file %s\n\t\tlimits {\n\t\t\tper_key 16000000\n\t\t}\n\t\t%s\n\t}",
		redisPort, keys, assertion)
	api := "gatehouse_api {\n\t\tupstream " + data + "\n\t}"
	if o.tracing != "" {
		spans := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
		env := []string{
			"OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "OTEL_EXPORTER_OTLP_ENDPOINT=" + spans.URL,
		}
		if b.plain, err = startServer(ctx, p, dir, binary, "untraced", gateway, api); err != nil {
			return nil, err
		}
		b.gatehouse, err = startServer(ctx, p, dir, binary, "traced", gateway, "@sampled vars_regexp {uuid} "+o.tracing+"\n\ttracing @sampled\n\t"+api, env...)
		return b, err
	}
	if b.plain, err = startServer(ctx, p, dir, binary, "plain", "", "reverse_proxy "+data); err != nil {
		return nil, err
	}
	b.gatehouse, err = startServer(ctx, p, dir, binary, "gatehouse", gateway, api)
	return b, err
}

func startServer(ctx context.Context, p *processes, dir, binary, name, global, site string, env ...string) (server, error) {
	port, err := freePort(ctx)
	if err != nil {
		return server{}, err
	}
	admin, err := freePort(ctx)
	if err != nil {
		return server{}, err
	}
	config := filepath.Join(dir, name+".caddyfile")
	text := fmt.Sprintf("{\n\tadmin 127.0.0.1:%s\n\tpersist_config off\n\tauto_https off\n\tlog {\n\t\tlevel ERROR\n\t}\n\t%s\n}\n\nhttp://127.0.0.1:%s {\n\t%s\n}\n",
		admin, global, port, site)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return server{}, fmt.Errorf("writing a configuration: %w", err)
	}
	env = append(environment("XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir), env...)
	cmd, err := p.start(ctx, io.Discard, env, binary, "run", "--config", config, "--adapter", "caddyfile")
	if err != nil {
		return server{}, err
	}
	s := server{name: name, base: "http://127.0.0.1:" + port, admin: "http://127.0.0.1:" + admin, pid: cmd.Process.Pid}
	return s, s.wait(ctx)
}

// wait waits until the server responds.
func (s *server) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+"/api/v1/status", nil)
		if err != nil {
			return fmt.Errorf("building a request: %w", err)
		}
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			return res.Body.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s did not start: %w", s.name, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func startUpstream(ctx context.Context, p *processes, kind string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding the executable: %w", err)
	}
	r, w := io.Pipe()
	if _, err := p.start(ctx, w, environment(upstreamEnv+"="+kind), self); err != nil {
		return "", err
	}
	lines := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(r).ReadString('\n')
		lines <- strings.TrimSpace(line)
		_, _ = io.Copy(io.Discard, r) // ends with the process
	}()
	select {
	case line := <-lines:
		if line == "" {
			return "", errors.New("the data service exited at startup")
		}
		return line, nil
	case <-time.After(20 * time.Second):
		return "", errors.New("the data service did not start in time")
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
