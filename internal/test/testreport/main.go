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
//	testreport -module DIR [-module DIR ...] [-plain DIR ...] [-slowest N] -- ARGUMENTS OF GO TEST
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
	"sync"
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
	var modules, plain []string
	flags := flag.NewFlagSet("testreport", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Func("module", "the `directory` of a module to test; may be given several times", func(dir string) error {
		modules = append(modules, dir)
		return nil
	})
	flags.Func("plain", "a `directory` whose package is tested without -race, at the same time as the others, in the modules that have it; "+
		"may be given several times", func(dir string) error {
		plain = append(plain, "./"+filepath.ToSlash(filepath.Clean(dir)))
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
		runs, err := runsOf(ctx, dir, plain, flags.Args())
		if err != nil {
			rep.broken(dir, err)
			continue
		}
		var wg sync.WaitGroup
		for _, args := range runs {
			wg.Go(func() {
				if err := testModule(ctx, rep, dir, args, stderr); err != nil {
					rep.broken(dir, err)
				}
			})
		}
		wg.Wait()
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

// runsOf returns the arguments of each go test of a module. If args include "./...", the packages of plain that the module has are
// tested on their own, without the race detector.
func runsOf(ctx context.Context, module string, plain, args []string) ([][]string, error) {
	plain = slices.DeleteFunc(slices.Clone(plain), func(dir string) bool {
		_, err := os.Stat(filepath.Join(module, dir))
		return err != nil
	})
	at := slices.Index(args, "./...")
	if at < 0 || len(plain) == 0 {
		return [][]string{args}, nil
	}
	all, err := list(ctx, module, "./...")
	if err != nil {
		return nil, err
	}
	apart, err := list(ctx, module, plain...)
	if err != nil {
		return nil, err
	}
	others := slices.DeleteFunc(all, func(pkg string) bool { return slices.Contains(apart, pkg) })
	withoutRace := slices.DeleteFunc(slices.Clone(args), isRaceFlag)
	return [][]string{
		slices.Replace(withoutRace, slices.Index(withoutRace, "./..."), slices.Index(withoutRace, "./...")+1, apart...),
		slices.Replace(slices.Clone(args), at, at+1, others...),
	}, nil
}

// isRaceFlag reports whether a flag is -race, or one of the compiler's for -race.
func isRaceFlag(arg string) bool { return strings.Contains(arg, "-race") }

// list returns the import paths of a module's packages.
func list(ctx context.Context, module string, patterns ...string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list"}, patterns...)...)
	cmd.Dir, cmd.Stderr = module, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the packages: %w", err)
	}
	return strings.Fields(string(out)), nil
}

// testModule runs go test in dir and passes its events to rep. It returns only errors that the events do not show: go test could
// not be started, printed something else than events, or failed without a failed package.
func testModule(ctx context.Context, rep *report, dir string, args []string, stderr io.Writer) error {
	failedBefore := rep.failures()
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Dir = dir
	cmd.Stderr = stderr
	if !slices.ContainsFunc(args, isRaceFlag) {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // which only -race needs
	}
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
	case errors.As(err, &exit) && rep.failures() > failedBefore:
		return nil // the events have shown it
	case err != nil:
		return fmt.Errorf("go test: %w", err)
	}
	return nil
}
