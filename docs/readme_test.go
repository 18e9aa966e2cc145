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

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// TestTheREADMEShowsWhatTheDemoPrints runs the demo and looks for each line of the README's block in what it prints, in
// order. The README's … stands for anything, and its port for the one that was free.
func TestTheREADMEShowsWhatTheDemoPrints(t *testing.T) {
	t.Parallel()
	shown := under(t, blocks(t, "../README.md"), "Gatehouse", "text")
	var printed, complaint string
	var err error
	for range 5 {
		// Somebody may take the port before the demo does, which then says so.
		addr := gatewaytest.FreeAddr(t)
		printed, complaint, err = runDemo(t, addr)
		printed = strings.ReplaceAll(printed, addr, "localhost:8080")
		if err == nil || !strings.Contains(complaint, "address already in use") {
			break
		}
	}
	require.NoError(t, err, complaint)

	rest := printed
	for line := range strings.Lines(shown.text) {
		pattern := "(?m)^" + strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(line)), "…", ".*") + "$"
		at := regexp.MustCompile(pattern).FindStringIndex(rest)
		require.NotNil(t, at, "the demo does not print %q any more, or not there:\n%s", line, printed)
		rest = rest[at[1]:]
	}
}

// runDemo runs the demo until it has said how to stop it, and gives what it printed on standard output and on standard
// error, and how it ended.
func runDemo(t *testing.T, addr string) (printed, complaint string, err error) {
	t.Helper()
	// How long its start takes depends on what else the machine does; somebody is to be told if it hangs.
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, gatewaytest.Demo(t), "--listen", addr)
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

// TestTheMetricsOnThePageAreTheGateways holds the table against the source.
func TestTheMetricsOnThePageAreTheGateways(t *testing.T) {
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
	require.ElementsMatch(t, want, names(page, "(?m)^\\| `gatehouse_([a-z_]+)` \\|"))
}
