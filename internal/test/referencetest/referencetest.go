// Package referencetest runs the requests that the reference for callers shows.
package referencetest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// Languages are those in which the page has each request.
func Languages() []string { return []string{"shell", "python", "javascript", "php"} }

// Sample is a request in one language.
type Sample struct{ Operation, Language, Code string }

// Samples returns all requests of a page in their order.
func Samples(tb testing.TB, page string) (samples []Sample) {
	tb.Helper()
	root, err := html.Parse(strings.NewReader(page))
	require.NoError(tb, err)
	var operation string
	for n := range root.Descendants() {
		for _, a := range n.Attr {
			language, isSample := strings.CutPrefix(a.Val, "sample ")
			switch {
			case n.Data == "h3" && a.Key == "id":
				operation = a.Val
			case a.Key == "class" && isSample:
				samples = append(samples, Sample{operation, language, n.FirstChild.FirstChild.Data})
			}
		}
	}
	return samples
}

// Run runs a request as a caller would, and returns what it prints. The error says that the program has failed.
func (s Sample) Run(tb testing.TB, url string, c gatewaytest.Caller) (string, error) {
	tb.Helper()
	command := map[string][]string{
		"shell": {"sh", "-eu", "example.sh"}, "python": {"python3", "example.py"}, "javascript": {"node", "example.mjs"}, "php": {"php", "example.php"},
	}[s.Language]
	require.NotEmpty(tb, command, s.Language)
	folder := tb.TempDir()
	require.NoError(tb, os.WriteFile(filepath.Join(folder, command[len(command)-1]), []byte(s.Code), 0o600))
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "GATEHOUSE_URL="+url, "GATEHOUSE_KEY="+c.PublicKey, "GATEHOUSE_SECRET="+c.PrivateKey.Reveal())
	out, err := cmd.CombinedOutput()
	return string(out), err //nolint:wrapcheck // the caller shows the output
}
