package vaulttest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/gatehouse-gateway/gatehouse/internal/test/processtest"
)

// EnvBinary is the environment variable with the path of the server's binary.
const EnvBinary = "GATEHOUSE_VAULTTEST_BIN"

// Binary returns the path of the server's binary: that of EnvBinary if it is set, or else the one in the
// repository's .cache/bin, which is built first if its sources or the Go version are not those it was built from.
// Concurrent callers wait for the build.
func Binary(ctx context.Context) (string, error) {
	if path := os.Getenv(EnvBinary); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s: %w", EnvBinary, err)
		}
		return path, nil
	}
	root, err := processtest.Root()
	if err != nil {
		return "", err
	}
	source := filepath.Join(root, "internal", "test", "vaulttest", "server")
	hash, err := hashSources(source)
	if err != nil {
		return "", err
	}
	folder := filepath.Join(root, ".cache", "bin")
	path := filepath.Join(folder, "vaulttest-"+hash)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(folder, "vaulttest.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close() // and so unlocks
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("waiting for another build: %w", err)
	}
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return path, build(ctx, source, path)
}

func build(ctx context.Context, source, path string) error {
	temporary := path + ".new"
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", temporary, ".")
	cmd.Dir = source
	// The flags of the outer build are not for this module.
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the Vault server: %w\n%s", err, out)
	}
	return os.Rename(temporary, path)
}

func hashSources(dir string) (string, error) {
	sources, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return "", err
	}
	sources = append(sources, filepath.Join(dir, "go.mod"), filepath.Join(dir, "go.sum"))
	h := sha256.New()
	fmt.Fprintf(h, "%s %s/%s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, source := range sources {
		content, err := os.ReadFile(source)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n", filepath.Base(source), len(content))
		h.Write(content)
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}
