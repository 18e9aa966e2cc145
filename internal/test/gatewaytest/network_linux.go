package gatewaytest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Variables of a test process in its own network namespace: the test, and the directory of its parent's binaries.
const (
	envNetwork  = "GATEHOUSE_TEST_NETWORK"
	envBinaries = "GATEHOUSE_TEST_BINARIES"
)

// networkUnusable is the message of the inner test if its namespace is unusable.
const networkUnusable = "no usable network namespace"

// networkNeeds is the message of a failure.
const networkNeeds = "this test needs a network namespace of its own: run it as root (CAP_SYS_ADMIN), or where unprivileged user " +
	"namespaces are allowed (sysctl user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns=0), or with sudo " +
	"that asks for no password"

// InOwnNetwork runs the calling top-level test again, in a process in a new network namespace, and reports whether this is that process.
// The test returns at once if it is not:
//
//	func TestX(t *testing.T) {
//		if !gatewaytest.InOwnNetwork(t, "net.ipv4.tcp_migrate_req=1") {
//			return
//		}
//
// The namespace has only the loopback interface, and the sysctl settings (name=value), which do not affect other namespaces. The outer test
// logs the output of the inner one and fails with it. It also fails if no namespace can be created.
func InOwnNetwork(t *testing.T, settings ...string) bool {
	t.Helper()
	if os.Getenv(envNetwork) == t.Name() {
		require.NoError(t, enterNetwork(settings), networkUnusable)
		return true
	}
	args := []string{"-test.run=^" + regexp.QuoteMeta(t.Name()) + "$", "-test.v", "-test.count=1"}
	if deadline, ok := t.Deadline(); ok {
		args = append(args, "-test.timeout="+time.Until(deadline).String())
	}
	env := []string{envNetwork + "=" + t.Name(), envBinaries + "=" + filepath.Dir(Binary(t))}
	var (
		out bytes.Buffer
		err error
	)
	for _, command := range networkCommands(t.Context(), args, env) {
		out.Reset()
		command.Stdout, command.Stderr = &out, &out
		if err = command.Start(); err != nil {
			continue // the next way
		}
		if err = command.Wait(); !strings.Contains(out.String(), networkUnusable) {
			break
		}
	}
	// prefixed, so that the inner test is not counted as another test
	for line := range strings.Lines(out.String()) {
		t.Log("| " + strings.TrimSuffix(line, "\n"))
	}
	require.NoError(t, err, networkNeeds)
	require.Contains(t, out.String(), "--- PASS: "+t.Name(), "the test has not run")
	return false
}

// networkCommands returns the commands to try in order to run this test binary in a new network namespace.
func networkCommands(ctx context.Context, args, env []string) []*exec.Cmd {
	plain := exec.CommandContext(ctx, os.Args[0], args...)
	plain.Env = append(os.Environ(), env...)
	plain.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWNET}
	if os.Geteuid() == 0 {
		return []*exec.Cmd{plain}
	}
	plain.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
	plain.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	plain.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}

	keep := []string{"-n", "env", "PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	sudo := exec.CommandContext(ctx, "sudo", append(append(append(keep, env...), "unshare", "--net", os.Args[0]), args...)...)
	sudo.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return []*exec.Cmd{plain, sudo}
}

// enterNetwork sets up a new namespace.
func enterNetwork(settings []string) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bringing the loopback interface up: %w", err)
	}
	defer func() { _ = unix.Close(socket) }()
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("bringing the loopback interface up: %w", err)
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("bringing the loopback interface up: %w", err)
	}
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		file := filepath.Join(string(filepath.Separator), "proc", "sys", filepath.FromSlash(strings.ReplaceAll(name, ".", "/")))
		if err := os.WriteFile(file, []byte(value), 0); err != nil {
			return fmt.Errorf("setting %s (net.ipv4.tcp_migrate_req needs Linux 5.14 or newer): %w", s, err)
		}
	}
	return nil
}
