package docs_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// The demo must print each line of the README's block, in order. … matches any text, and localhost:8080 the address.
func TestREADMEShowsTheOutputOfTheDemo(t *testing.T) {
	t.Parallel()
	shown := under(t, blocks(t, "../README.md"), "Gatehouse", "text")
	var printed, stderr string
	var err error
	for range 5 {
		// Another process may bind the port before the demo does.
		addr := gatewaytest.FreeAddr(t)
		printed, stderr, err = runDemo(t, addr)
		printed = strings.ReplaceAll(printed, addr, "localhost:8080")
		if err == nil || !strings.Contains(stderr, "address already in use") {
			break
		}
	}
	require.NoError(t, err, stderr)

	rest := printed
	for line := range strings.Lines(shown.text) {
		pattern := "(?m)^" + strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(line)), "…", ".*") + "$"
		at := regexp.MustCompile(pattern).FindStringIndex(rest)
		require.NotNil(t, at, "the demo does not print %q in this order:\n%s", line, printed)
		rest = rest[at[1]:]
	}
}

// runDemo runs the demo until it has printed how to stop it. It returns its output and the error of the process.
func runDemo(t *testing.T, addr string) (printed, logged string, err error) {
	t.Helper()
	// Long, because the machine may be slow.
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, gatewaytest.Program(t, "./cmd/gatehouse-demo"), "--listen", addr)
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+t.TempDir(), "XDG_CONFIG_HOME="+t.TempDir())
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var stdout strings.Builder
	for scanner := bufio.NewScanner(out); scanner.Scan(); {
		stdout.WriteString(scanner.Text() + "\n")
		if strings.HasPrefix(scanner.Text(), "Ctrl-C") {
			require.NoError(t, cmd.Process.Signal(os.Interrupt))
		}
	}
	err = cmd.Wait()
	return stdout.String(), stderr.String(), err
}

func TestDocumentedMetricsAreThoseOfTheSource(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("operating.md")
	require.NoError(t, err)
	source, err := os.ReadFile("../caddymodule/metrics.go")
	require.NoError(t, err)
	names := func(text []byte, pattern string) []string {
		seen := map[string]bool{}
		var all []string
		for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(text, -1) {
			if name := string(m[1]); !seen[name] {
				seen[name] = true
				all = append(all, name)
			}
		}
		return all
	}
	want := names(source, `(?:counter|histogram|gauge|desc)\("([a-z_]+)"`)
	require.NotEmpty(t, want)
	assert.ElementsMatch(t, want, names(page, "(?m)^\\| `gatehouse_([a-z_]+)` \\|"))
}
