package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// event is one line of `go test -json`, as `go doc test2json` describes it. Of a build, only ImportPath, Action
// (build-output, build-fail) and Output are set.
type event struct {
	Action      string
	Package     string
	ImportPath  string
	Test        string
	Elapsed     float64 // seconds
	Output      string
	FailedBuild string
}

// test names one test within all modules; an empty name stands for the package outside of its tests.
type test struct{ pkg, name string }

func (t test) String() string {
	if t.name == "" {
		return t.pkg
	}
	return t.pkg + "." + t.name
}

type timing struct {
	test
	took time.Duration
}

// report collects events, and the output of tests that have not passed.
type report struct {
	out                     io.Writer
	passed, failed, skipped int

	running map[test]bool
	output  map[test]*strings.Builder
	// perPackage counts the finished tests of a package, failedIn its failed ones.
	perPackage, failedIn map[string]int

	failures, skips []test
	timings         []timing
}

func newReport(out io.Writer) *report {
	return &report{
		out:        out,
		running:    map[test]bool{},
		output:     map[test]*strings.Builder{},
		perPackage: map[string]int{},
		failedIn:   map[string]int{},
	}
}

// read reads the events of one go test. It prints other lines unchanged.
func (r *report) read(events io.Reader) error {
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil || e.Action == "" {
				fmt.Fprintf(r.out, "%s", line)
			} else {
				r.add(e)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading events: %w", err)
		}
	}
}

func (r *report) add(e event) {
	t := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "run":
		r.running[t] = true
	case "output":
		if r.output[t] == nil {
			r.output[t] = new(strings.Builder)
		}
		r.output[t].WriteString(e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.packageDone(e)
		} else {
			r.testDone(t, e)
		}
	}
}

func (r *report) testDone(t test, e event) {
	delete(r.running, t)
	r.perPackage[t.pkg]++
	r.timings = append(r.timings, timing{t, seconds(e.Elapsed)})
	switch e.Action {
	case "pass":
		r.passed++
	case "fail":
		r.fail(t, "")
	case "skip":
		r.skipped++
		r.skips = append(r.skips, t)
		r.show("SKIP", t, "")
	}
	delete(r.output, t)
}

func (r *report) packageDone(e event) {
	pkg := test{pkg: e.Package}
	for t := range r.running {
		if t.pkg == e.Package {
			// The process ended within the test: a panic, a timeout, os.Exit.
			delete(r.running, t)
			r.perPackage[t.pkg]++
			r.fail(t, "the test did not finish")
			delete(r.output, t)
		}
	}
	if e.Action == "fail" {
		why := "the package failed outside of its tests"
		if e.FailedBuild != "" {
			why = "the package was not built"
		}
		if r.failedIn[e.Package] == 0 {
			r.fail(pkg, why)
		} else {
			// The output of a panic or a timeout may belong to the package instead of a test.
			r.show("FAIL", pkg, "the output outside of its tests")
		}
	}
	delete(r.output, pkg)
	switch n := r.perPackage[e.Package]; {
	case e.Action == "fail":
		fmt.Fprintf(r.out, "FAIL  %-9s %s  %d of %d tests failed\n", seconds(e.Elapsed), e.Package, r.failedIn[e.Package], n)
	case n > 0:
		fmt.Fprintf(r.out, "ok    %-9s %s  %d tests\n", seconds(e.Elapsed), e.Package, n)
	}
}

func (r *report) fail(t test, why string) {
	r.failed++
	r.failedIn[t.pkg]++
	r.failures = append(r.failures, t)
	r.show("FAIL", t, why)
}

// broken counts a module whose tests could not be run as one failure.
func (r *report) broken(module string, err error) {
	t := test{pkg: module}
	r.failed++
	r.failures = append(r.failures, t)
	fmt.Fprintf(r.out, "--- FAIL: %s: %v\n", t, err)
}

func (r *report) show(result string, t test, why string) {
	text := ""
	if b := r.output[t]; b != nil {
		text = b.String()
	}
	if t.name == "" && strings.TrimSpace(text) == "" && why == "the output outside of its tests" {
		return
	}
	fmt.Fprintf(r.out, "--- %s: %s", result, t)
	if why != "" {
		fmt.Fprintf(r.out, " (%s)", why)
	}
	fmt.Fprintln(r.out)
	var assertions []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "=== ") {
			continue
		}
		line = strings.TrimSuffix(line, "\n")
		fmt.Fprintf(r.out, "    %s\n", line)
		if label := strings.TrimSpace(line); strings.HasPrefix(label, "Error:") || strings.HasPrefix(label, "Messages:") {
			assertions = append(assertions, line)
		}
	}
	// Long logs of servers may follow a failed assertion, so it is printed again after them.
	for _, line := range assertions {
		fmt.Fprintf(r.out, "    %s\n", line)
	}
}

func (r *report) ok() bool { return r.failed == 0 && r.skipped == 0 && r.passed > 0 }

// summary prints the slowest tests, what failed and was skipped by name, and the counts as the last line.
func (r *report) summary(slowest int) {
	slices.SortFunc(r.timings, func(a, b timing) int {
		return cmp.Or(cmp.Compare(b.took, a.took), cmp.Compare(a.String(), b.String()))
	})
	fmt.Fprintln(r.out)
	if n := min(slowest, len(r.timings)); n > 0 {
		fmt.Fprintln(r.out, "slowest:")
		for _, t := range r.timings[:n] {
			fmt.Fprintf(r.out, "  %9s  %s\n", t.took, t.test)
		}
	}
	list := func(title string, tests []test) {
		if len(tests) == 0 {
			return
		}
		fmt.Fprintln(r.out, title)
		for _, t := range tests {
			fmt.Fprintf(r.out, "  %s\n", t)
		}
	}
	list("failed:", r.failures)
	list("skipped, which no test may be:", r.skips)
	if r.passed+r.failed+r.skipped == 0 {
		fmt.Fprintln(r.out, "no test was run")
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(10 * time.Millisecond)
}
