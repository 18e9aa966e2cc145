package gatewaytest

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// InheritSocket opens a listening socket at the gateway's address, which the gateway inherits as from a service manager. The gateway must
// not be running, and its site needs "bind fd/3".
func (g *Gateway) InheritSocket(tb testing.TB) {
	tb.Helper()
	ln, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", g.Addr)
	require.NoError(tb, err)
	socket, ok := ln.(*net.TCPListener)
	require.True(tb, ok)
	file, err := socket.File()
	require.NoError(tb, err)
	require.NoError(tb, ln.Close())
	tb.Cleanup(func() { _ = file.Close() })
	g.files = []*os.File{file}
}

// Memory returns the gateway's resident memory in bytes, and its maximum since the start or ResetPeak.
func (g *Gateway) Memory(tb testing.TB) (resident, peak int64) {
	tb.Helper()
	proc, err := procfs.NewProc(g.Pid())
	require.NoError(tb, err)
	status, err := proc.NewStatus()
	require.NoError(tb, err)
	require.Positive(tb, status.VmRSS)
	require.Positive(tb, status.VmHWM)
	return int64(status.VmRSS), int64(status.VmHWM)
}

// ResetPeak resets the peak of Memory.
func (g *Gateway) ResetPeak(tb testing.TB) {
	tb.Helper()
	require.NoError(tb, os.WriteFile(g.proc("clear_refs"), []byte("5"), 0))
}

// Descriptors returns the number of open files and sockets of the gateway.
func (g *Gateway) Descriptors(tb testing.TB) int {
	tb.Helper()
	entries, err := os.ReadDir(g.proc("fd"))
	require.NoError(tb, err)
	return len(entries)
}

// LimitDescriptors sets RLIMIT_NOFILE of the running gateway.
func (g *Gateway) LimitDescriptors(tb testing.TB, n int) {
	tb.Helper()
	limit := &unix.Rlimit{Cur: uint64(n), Max: uint64(n)}
	require.NoError(tb, unix.Prlimit(g.Pid(), unix.RLIMIT_NOFILE, limit, nil))
}

func (g *Gateway) proc(name string) string {
	return filepath.Join(string(filepath.Separator), "proc", strconv.Itoa(g.Pid()), name)
}

// Load reloads the configuration file over the admin API, like Reload without a process.
func (g *Gateway) Load(tb testing.TB) {
	tb.Helper()
	config, err := os.ReadFile(g.Config)
	require.NoError(tb, err)
	req, err := http.NewRequestWithContext(tb.Context(), http.MethodPost, g.AdminURL+"/load", bytes.NewReader(config))
	require.NoError(tb, err)
	req.Header.Set("Content-Type", "text/caddyfile")
	req.Header.Set("Cache-Control", "must-revalidate") // even if it is unchanged
	res, err := onceClient().Do(req)
	require.NoError(tb, err)
	var body bytes.Buffer
	_, err = body.ReadFrom(res.Body)
	require.NoError(tb, err)
	require.NoError(tb, res.Body.Close())
	require.Equal(tb, http.StatusOK, res.StatusCode, fmt.Sprint(body.String()))
	g.AwaitReload(tb)
}

// AwaitReload waits until a reload, successful or not, has closed the admin API's previous socket. The kernel resets the connections
// that wait at it.
func (g *Gateway) AwaitReload(tb testing.TB) {
	tb.Helper()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(g.AdminURL, "http://"))
	require.NoError(tb, err)
	number, err := strconv.Atoi(port)
	require.NoError(tb, err)
	address := fmt.Sprintf(":%04X", number)
	require.Eventually(tb, func() bool {
		sockets, err := os.Open(g.proc("net/tcp")) // see proc_net_tcp(5)
		if err != nil {
			return false
		}
		defer func() { _ = sockets.Close() }()
		listening := 0
		lines := bufio.NewScanner(sockets)
		lines.Scan() // the titles
		for lines.Scan() {
			fields := strings.Fields(lines.Text()) // number, local address, remote address, state
			if len(fields) < 4 || fields[3] != "0A" {
				break // listening sockets come first, and there may be thousands of others
			}
			if strings.HasSuffix(fields[1], address) {
				listening++
			}
		}
		return listening < 2
	}, stopTimeout, pollInterval)
}
