package connect_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/processtest"
)

// driverPatience is the timeout of a driver, which makes many calls on a busy machine.
const driverPatience = 8 * time.Minute

// clients returns the folder of the clients, once they are installed.
var clients = sync.OnceValues(func() (string, error) {
	root, err := processtest.Root()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "e2e", "connect", "clients")
	_, err = os.Stat(filepath.Join(dir, "node_modules", ".package-lock.json"))
	return dir, err
})

func clientsDir(t *testing.T) string {
	t.Helper()
	dir, err := clients()
	require.NotErrorIs(t, err, fs.ErrNotExist, "the clients are not installed: make clients")
	require.NoError(t, err)
	return dir
}

// node returns a command of the clients' Node.js, in their folder and with only the given environment. Its child processes end with the
// test.
func node(ctx context.Context, t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	dir := clientsDir(t)
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "node_modules", ".bin", "node"), args...)
	cmd.Dir = dir
	// not t.TempDir: the path of a browser's socket has at most 107 bytes
	home, err := os.MkdirTemp("", "clients-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(home)) })
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "CLIENT_HOME=" + home, "TMPDIR=" + home, "NO_COLOR=1"}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = patience
	t.Cleanup(func() {
		// killed processes may still write to the folder for a moment
		require.Eventually(t, func() bool { return !end(t, home) }, patience, 20*time.Millisecond)
	})
	return cmd
}

// end kills processes that a client has left behind, such as browsers that are in no process group. It recognizes them by the test's
// folder in their environment, and reports whether there were any.
func end(t *testing.T, home string) (found bool) {
	t.Helper()
	environments, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	for _, name := range environments {
		environment, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(environment, []byte(home)) {
			continue // ended, or of another test
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		require.NoError(t, err)
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone
		found = true
	}
	return found
}

// report is the output of a driver.
type report struct {
	Steps []struct {
		Name string `json:"name"`
		MS   int    `json:"ms"`
	} `json:"steps"`
	Failed string         `json:"failed"`
	Facts  map[string]any `json:"facts"`
}

// drive runs a driver against a gateway. The test fails with the driver's output if a step fails.
func drive(t *testing.T, w *environment, script string, env ...string) report {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), driverPatience)
	defer cancel()
	cmd := node(ctx, t, append(w.env(), env...), script)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// the client is killed when the thread that started it ends (Pdeathsig)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Run()
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	var done report
	if json.Unmarshal([]byte(lines[len(lines)-1]), &done) == nil {
		for _, s := range done.Steps {
			t.Logf("%6d ms  %s", s.MS, s.Name)
		}
	}
	require.NoError(t, err, "%s\n%s\n%s", script, stdout.String(), stderr.String())
	require.Empty(t, done.Failed)
	require.NotEmpty(t, done.Steps, "%s: %s", script, stdout.String())
	return done
}

// TestThirdPartyClientsConnect drives other people's clients: both generations of the MCP TypeScript SDK, mcp-remote as desktop applications use it,
// the MCP inspector, and a strict OAuth client over HTTPS.
func TestThirdPartyClientsConnect(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script, era string
		options     options
	}{
		"TypeScript SDK 1":             {script: "sdk1.mjs"},
		"TypeScript SDK 2, legacy":     {script: "sdk2.mjs", era: "legacy"},
		"TypeScript SDK 2, auto":       {script: "sdk2.mjs", era: "auto"},
		"TypeScript SDK 2, 2026-07-28": {script: "sdk2.mjs", era: "2026-07-28"},
		"mcp-remote, legacy":           {script: "remote.mjs", era: "legacy"},
		"mcp-remote, auto":             {script: "remote.mjs", era: "auto"},
		"inspector":                    {script: "inspector.mjs"},
		"oauth4webapi":                 {script: "oauth4webapi.mjs", options: options{secure: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, port, _ := strings.Cut(gatewaytest.FreeAddr(t), ":")
			env := []string{"CALLBACK_PORT=" + port} // to which mcp-remote and the inspector have the browser redirected
			if c.era != "" {
				env = append(env, "MCP_ERA="+c.era)
			}
			drive(t, start(t, c.options), c.script, env...)
		})
	}
}
