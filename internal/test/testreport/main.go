// Command testreport runs `go test -json` in several modules and prints a line for each package, the output of failed tests, the
// slowest tests, and as the last line exactly
//
//	N passed, N failed, N skipped
//
// Tests, subtests, examples and the seeds of fuzz tests count one each. A package that failed outside of its tests (it
// did not compile, TestMain failed, a data race after the last test) counts as one failed test. The exit status is 0
// only if nothing failed, nothing was skipped and at least one test ran.
//
// Usage:
//
//	testreport -module DIR [-module DIR ...] [-first DIR ...] [-slowest N] -- ARGUMENTS OF GO TEST
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var modules, first []string
	flags := flag.NewFlagSet("testreport", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Func("module", "the `directory` of a module to test; may be given several times", func(dir string) error {
		modules = append(modules, dir)
		return nil
	})
	flags.Func("first", "a `directory` whose package is to be tested before the others, in the modules that have it; may be given several times",
		func(dir string) error {
			first = append(first, dir)
			return nil
		})
	slowest := flags.Int("slowest", 10, "how many of the slowest tests to list")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if len(modules) == 0 {
		fmt.Fprintln(stderr, "testreport: at least one -module DIR is needed")
		return 2
	}

	rep := newReport(stdout)
	for _, dir := range modules {
		if err := testModule(ctx, rep, dir, inOrder(dir, first, flags.Args()), stderr); err != nil {
			rep.broken(dir, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	rep.summary(*slowest)
	if !rep.ok() {
		return 1
	}
	return 0
}

// inOrder inserts the packages of first that a module has before the packages of args, if those include "./...". go test starts
// packages in the order of its arguments, and runs a repeated one once.
func inOrder(module string, first, args []string) []string {
	at := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "./") })
	if at < 0 || !slices.Contains(args, "./...") {
		return args
	}
	var there []string
	for _, dir := range first {
		if _, err := os.Stat(filepath.Join(module, dir)); err == nil {
			there = append(there, "./"+filepath.ToSlash(filepath.Clean(dir)))
		}
	}
	return slices.Insert(slices.Clone(args), at, there...)
}

// testModule runs go test in dir and passes its events to rep. It returns only errors that the events do not show: go test could
// not be started, printed something else than events, or failed without a failed package.
func testModule(ctx context.Context, rep *report, dir string, args []string, stderr io.Writer) error {
	failedBefore := rep.failed
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Dir = dir
	cmd.Stderr = stderr
	// go test passes an interrupt on to the tests, which then stop the servers they started.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	events, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("opening the output of go test: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting go test: %w", err)
	}
	readErr := rep.read(events)
	err = cmd.Wait()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted: %w", context.Cause(ctx))
	case readErr != nil:
		return fmt.Errorf("reading the output of go test in %s: %w", filepath.Base(dir), readErr)
	case errors.As(err, &exit) && rep.failed > failedBefore:
		return nil // the events have shown it
	case err != nil:
		return fmt.Errorf("go test: %w", err)
	}
	return nil
}
