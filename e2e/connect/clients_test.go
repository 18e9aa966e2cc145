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

func TestFirstTypeScriptSDK(t *testing.T) {
	t.Parallel()
	drive(t, newWorld(t), "sdk1.mjs")
}

func TestSecondTypeScriptSDK(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "auto", "2026-07-28"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			drive(t, newWorld(t), "sdk2.mjs", "MCP_ERA="+era)
		})
	}
}

func TestDesktopApplicationThroughMCPRemote(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "auto"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			drive(t, newWorld(t), "remote.mjs", "MCP_ERA="+era, callbackPort(t))
		})
	}
}

func TestInspectorAcceptsTheTools(t *testing.T) {
	t.Parallel()
	drive(t, newWorld(t), "inspector.mjs", callbackPort(t))
}

// callbackPort tells a driver the port that its client is to be sent back to.
func callbackPort(t *testing.T) string {
	t.Helper()
	_, port, _ := strings.Cut(gatewaytest.FreeAddr(t), ":")
	return "CALLBACK_PORT=" + port
}

func TestStrictOAuthClientOverHTTPS(t *testing.T) {
	t.Parallel()
	drive(t, start(t, options{secure: true}), "oauth4webapi.mjs")
}
