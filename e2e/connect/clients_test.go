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
)

// driverPatience bounds a whole driver, which is many calls and a process or two, on a machine that is busy with others.
const driverPatience = 8 * time.Minute

// clients is the folder of the clients, once it is known to hold what its lock file says.
var clients = sync.OnceValues(func() (string, error) {
	root, err := gatewaytest.Root()
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

// node is a command of the Node.js that the clients come with, in their folder and with nothing in its environment but
// what it is given. Whatever it starts ends with the test.
func node(ctx context.Context, t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	dir := clientsDir(t)
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "node_modules", ".bin", "node"), args...)
	cmd.Dir = dir
	// not t.TempDir, which is named for the test: a browser's socket in it has a path of 107 bytes at most
	home, err := os.MkdirTemp("", "clients-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(home)) })
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "CLIENT_HOME=" + home, "TMPDIR=" + home, "NO_COLOR=1"}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = patience
	t.Cleanup(func() {
		// one that was killed goes on for a moment, and writes into the folder that is to be removed
		require.Eventually(t, func() bool { return !end(t, home) }, patience, 20*time.Millisecond)
	})
	return cmd
}

// end ends what a client has left behind: clients start browsers as daemons, which no process group holds. They are known
// by the folder in their environment, which is the test's own. It reports whether there were any.
func end(t *testing.T, home string) (found bool) {
	t.Helper()
	environments, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	for _, name := range environments {
		environment, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(environment, []byte(home)) {
			continue // gone, or another's
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		require.NoError(t, err)
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone
		found = true
	}
	return found
}

// stepsOf is what a driver has done, and how long each part took.
type stepsOf struct {
	Steps []struct {
		Name string `json:"name"`
		MS   int    `json:"ms"`
	} `json:"steps"`
	Failed string         `json:"failed"`
	Facts  map[string]any `json:"facts"`
}

// drive runs a driver against a gateway to its end, and fails with what it wrote if one of its steps does.
func drive(t *testing.T, w *world, script string, env ...string) stepsOf {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), driverPatience)
	defer cancel()
	cmd := node(ctx, t, append(w.env(), env...), script)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// no thread of ours may end while the client runs: it would take it along
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Run()
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	var done stepsOf
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

// TestClients drives other people's clients: both generations of the MCP TypeScript SDK, mcp-remote as desktop applications use it,
// the MCP inspector, and a strict OAuth client over HTTPS.
func TestClients(t *testing.T) {
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
