package e2e_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// The addresses of the gateway that runs with a configuration are in order; those that another process has are not.
func TestCheckOfRunningGateway(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	g := w.unlimited(t)
	res := cli(t, nil, "check", "--config", g.Config)
	require.Equal(t, 0, res.code, res.stdout+res.stderr)
	require.NotContains(t, res.stdout, "GH060")
	require.NotContains(t, res.stdout+res.stderr, `"level"`, "what modules log is not part of the output")

	other := strings.Replace(configOf(t, g), "admin ", "admin localhost:1\n\t#", 1)
	path := filepath.Join(t.TempDir(), "Caddyfile")
	require.NoError(t, os.WriteFile(path, []byte(other), 0o600))
	res = cli(t, nil, "check", "--config", path)
	assert.Equal(t, 1, res.code, res.stdout+res.stderr)
	assert.Contains(t, res.stdout, "GH060")
}

// Each command that loads a configuration names the line of an error that occurs while modules are provisioned.
func TestCommandsNameTheLineOfLoadingErrors(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	g := w.unlimited(t)
	wrong := strings.Replace(configOf(t, g), "gatehouse_api {", "gatehouse_jwks\n\tgatehouse_api {", 1)
	before, _, found := strings.Cut(wrong, "gatehouse_jwks")
	require.True(t, found)
	line := 1 + strings.Count(before, "\n")
	path := filepath.Join(t.TempDir(), "Caddyfile")
	require.NoError(t, os.WriteFile(path, []byte(wrong), 0o600))
	want := "Error: " + path + ":" + strconv.Itoa(line) + ": gatehouse_jwks has no keys to publish"
	for name, args := range map[string][]string{
		"validate": {"validate"},
		"adapt":    {"adapt", "--validate"},
		"run":      {"run"},
		"reload":   {"reload", "--address", strings.TrimPrefix(g.AdminURL, "http://")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := gatewaytest.Command(t, nil, append(args, "--config", path)...)
			require.Error(t, err)
			require.Contains(t, out, want)
		})
	}
}

// Caddy opens a new socket for its admin API with each configuration, also one that fails to load, and connections that wait at the
// previous one end without a response.
func TestReloadIsRepeatedUntilTheAdminAPIResponds(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "Caddyfile")
	require.NoError(t, os.WriteFile(path, []byte("http:// {\n\tgatehouse_jwks\n}\n"), 0o600))
	respond := func(status int, body string) func(net.Conn) {
		return func(conn net.Conn) {
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 %d Status\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
		}
	}
	end := func(net.Conn) {}
	reset := func(conn net.Conn) {
		tcp, ok := conn.(*net.TCPConn)
		assert.True(t, ok)
		assert.NoError(t, tcp.SetLinger(0))
	}
	for name, c := range map[string]struct {
		responses []func(net.Conn) // of one connection each; the last one's is repeated
		sent      int              // number of requests
		fails     string
	}{
		"loaded at once":     {[]func(net.Conn){respond(200, "")}, 1, ""},
		"loaded after all":   {[]func(net.Conn){end, reset, end, respond(200, "")}, 4, ""},
		"wrong after all":    {[]func(net.Conn){reset, respond(400, `{"error":"loading config: it is wrong"}`)}, 2, "it is wrong"},
		"never any response": {[]func(net.Conn){reset}, 21, "connection reset by peer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			sent := make(chan int, 1)
			go func() {
				n := 0
				defer func() { sent <- n }()
				for {
					conn, err := ln.Accept()
					if err != nil {
						return
					}
					req, err := http.ReadRequest(bufio.NewReader(conn))
					if assert.NoError(t, err) {
						_, err = io.Copy(io.Discard, req.Body)
						assert.NoError(t, err)
					}
					c.responses[min(n, len(c.responses)-1)](conn)
					n++
					_ = conn.Close()
				}
			}()
			out, err := gatewaytest.Command(t, nil, "reload", "--config", path, "--address", ln.Addr().String())
			require.NoError(t, ln.Close())
			assert.Equal(t, c.sent, <-sent, out)
			if c.fails == "" {
				assert.NoError(t, err, out)
				return
			}
			assert.Error(t, err)
			assert.Contains(t, out, c.fails)
		})
	}
}

// Reloads of wrong configurations at the same time name the line too, although each replaces the socket that the others connect to.
func TestReloadsAtTheSameTimeNameTheLine(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	g := w.unlimited(t)
	path := filepath.Join(t.TempDir(), "Caddyfile")
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(configOf(t, g), "gatehouse_api {", "gatehouse_jwks\n\tgatehouse_api {", 1)), 0o600))
	var reloads sync.WaitGroup
	for range 3 {
		reloads.Go(func() {
			for range 8 {
				out, err := gatewaytest.Command(t, nil, "reload", "--address", strings.TrimPrefix(g.AdminURL, "http://"), "--config", path)
				assert.Error(t, err)
				assert.Contains(t, out, "Error: "+path+":")
			}
		})
	}
	reloads.Wait()
}

func configOf(t *testing.T, g *gatewaytest.Gateway) string {
	t.Helper()
	config, err := os.ReadFile(g.Config)
	require.NoError(t, err)
	return string(config)
}
