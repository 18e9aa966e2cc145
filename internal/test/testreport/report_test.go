package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func reportOf(t *testing.T, events ...string) (*report, string) {
	t.Helper()
	var out bytes.Buffer
	r := newReport(&out)
	require.NoError(t, r.read(strings.NewReader(strings.Join(events, "\n"))))
	r.summary(1)
	return r, out.String()
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	return lines[len(lines)-1]
}

func TestPassingTestsAreCountedAndTheirOutputIsDropped(t *testing.T) {
	t.Parallel()
	r, out := reportOf(t,
		`{"Action":"start","Package":"p"}`,
		`{"Action":"run","Package":"p","Test":"TestA"}`,
		`{"Action":"output","Package":"p","Test":"TestA","Output":"chatter\n"}`,
		`{"Action":"run","Package":"p","Test":"TestA/sub"}`,
		`{"Action":"pass","Package":"p","Test":"TestA/sub","Elapsed":0.5}`,
		`{"Action":"pass","Package":"p","Test":"TestA","Elapsed":1.5}`,
		`{"Action":"pass","Package":"p","Elapsed":2}`,
	)
	require.True(t, r.ok())
	assert.NotContains(t, out, "chatter")
	assert.Contains(t, out, "1.5s  p.TestA\n")
	assert.Equal(t, "2 passed, 0 failed, 0 skipped", lastLine(out))
}

func TestSkippedTestIsNotASuccess(t *testing.T) {
	t.Parallel()
	r, out := reportOf(t,
		`{"Action":"run","Package":"p","Test":"TestA"}`,
		`{"Action":"pass","Package":"p","Test":"TestA"}`,
		`{"Action":"run","Package":"p","Test":"TestB"}`,
		`{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:3: no server\n"}`,
		`{"Action":"skip","Package":"p","Test":"TestB"}`,
		`{"Action":"pass","Package":"p"}`,
	)
	assert.False(t, r.ok())
	assert.Contains(t, out, "b_test.go:3: no server")
	assert.Equal(t, "1 passed, 0 failed, 1 skipped", lastLine(out))
}

func TestPackageWithoutTestsIsNotSkipped(t *testing.T) {
	t.Parallel()
	r, out := reportOf(t,
		`{"Action":"start","Package":"empty"}`,
		`{"Action":"output","Package":"empty","Output":"?   \tempty\t[no test files]\n"}`,
		`{"Action":"skip","Package":"empty","Elapsed":0}`,
	)
	assert.Zero(t, r.skipped)
	assert.False(t, r.ok(), "nothing ran")
	assert.Contains(t, out, "no test was run")
	assert.Equal(t, "0 passed, 0 failed, 0 skipped", lastLine(out))
}

func TestFailedAssertionIsRepeatedAfterTheOutput(t *testing.T) {
	t.Parallel()
	_, out := reportOf(t,
		`{"Action":"run","Package":"p","Test":"TestA"}`,
		`{"Action":"output","Package":"p","Test":"TestA","Output":"        \tError:      \t1 is not 2\n"}`,
		`{"Action":"output","Package":"p","Test":"TestA","Output":"        \tMessages:   \tdescriptors\n"}`,
		`{"Action":"output","Package":"p","Test":"TestA","Output":"    a log\n"}`,
		`{"Action":"fail","Package":"p","Test":"TestA"}`,
		`{"Action":"fail","Package":"p","Elapsed":0.2}`,
	)
	_, afterLog, _ := strings.Cut(out, "a log\n")
	require.Regexp(t, `^\s+Error:\s+1 is not 2\n\s+Messages:\s+descriptors\n`, afterLog)
}

func TestFailureIsShownWithItsOutput(t *testing.T) {
	t.Parallel()
	r, out := reportOf(t,
		`{"Action":"run","Package":"p","Test":"TestA"}`,
		`{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}`,
		`{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:9: 1 is not 2\n"}`,
		`{"Action":"fail","Package":"p","Test":"TestA"}`,
		`{"Action":"fail","Package":"p","Elapsed":0.2}`,
	)
	assert.False(t, r.ok())
	assert.Contains(t, out, "--- FAIL: p.TestA\n        a_test.go:9: 1 is not 2\n")
	assert.NotContains(t, out, "=== RUN")
	assert.Contains(t, out, "1 of 1 tests failed")
	assert.Equal(t, "0 passed, 1 failed, 0 skipped", lastLine(out))
}

func TestUnfinishedTestHasFailed(t *testing.T) {
	t.Parallel()
	r, out := reportOf(t,
		`{"Action":"run","Package":"p","Test":"TestA"}`,
		`{"Action":"output","Package":"p","Test":"TestA","Output":"panic: boom\n"}`,
		`{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}`,
		`{"Action":"fail","Package":"p"}`,
	)
	assert.False(t, r.ok())
	assert.Contains(t, out, "p.TestA (the test did not finish)\n    panic: boom")
	assert.Equal(t, "0 passed, 1 failed, 0 skipped", lastLine(out))
}

func TestFailureOutsideTestsIsAFailure(t *testing.T) {
	t.Parallel()
	r, out := reportOf(t,
		`{"Action":"run","Package":"p","Test":"TestA"}`,
		`{"Action":"pass","Package":"p","Test":"TestA"}`,
		`{"Action":"output","Package":"p","Output":"found a goroutine left behind\n"}`,
		`{"Action":"fail","Package":"p"}`,
		`{"ImportPath":"q","Action":"build-output","Output":"q/q.go:1: syntax error\n"}`,
		`{"ImportPath":"q","Action":"build-fail"}`,
		`{"Action":"fail","Package":"q","FailedBuild":"q"}`,
	)
	assert.False(t, r.ok())
	assert.Contains(t, out, "found a goroutine left behind")
	assert.Contains(t, out, "q/q.go:1: syntax error")
	assert.Contains(t, out, "q (the package was not built)")
	assert.Equal(t, "1 passed, 2 failed, 0 skipped", lastLine(out))
}

func TestOtherOutputIsPrinted(t *testing.T) {
	t.Parallel()
	_, out := reportOf(t, `warning: something of the toolchain`)
	require.Contains(t, out, "warning: something of the toolchain")
}

// One of the two modules cannot be loaded.
func TestModulesAreTestedByGoTest(t *testing.T) {
	t.Parallel()
	module := func(files map[string]string) string {
		dir := t.TempDir()
		for name, text := range files {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		return dir
	}
	good := module(map[string]string{
		"go.mod":    "module example.org/good\n\ngo 1.26\n",
		"a_test.go": "package good\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) { t.Run(\"sub\", func(t *testing.T) {}) }\n",
	})
	bad := module(map[string]string{"go.mod": "no module file\n"})

	var out, errs bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"-module", good, "--", "-vet=off", "./..."}, &out, &errs), out.String())
	require.Equal(t, "2 passed, 0 failed, 0 skipped", lastLine(out.String()))

	out.Reset()
	require.Equal(t, 1, run(t.Context(), []string{"-module", good, "-module", bad, "--", "-vet=off", "./..."}, &out, &errs))
	require.Equal(t, "2 passed, 1 failed, 0 skipped", lastLine(out.String()))
	require.Contains(t, errs.String(), "unknown directive: no")

	out.Reset()
	require.Equal(t, 2, run(t.Context(), []string{"--", "./..."}, &out, &errs), "without a module")
}

func TestSlowPackagesAreTestedFirst(t *testing.T) {
	t.Parallel()
	module := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(module, "e2e", "connect"), 0o755))
	first := []string{"e2e", "e2e/connect", "elsewhere"}
	for _, test := range []struct{ args, want string }{
		{"-race ./...", "-race ./e2e ./e2e/connect ./..."},
		{"-race ./a", "-race ./a"},
		{"-race", "-race"},
	} {
		assert.Equal(t, strings.Fields(test.want), inOrder(module, first, strings.Fields(test.args)), test.args)
	}
}
