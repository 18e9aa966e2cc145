package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// The files on the page load as they stand, and the Caddyfile that names them adapts.
func TestDefinitionOnItsPageLoads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	names := []string{}
	for _, b := range blocks(t, "definition.md") {
		switch name, isFile := strings.CutPrefix(strings.SplitN(b.text, "\n", 2)[0], "# "); {
		case b.lang == "yaml" && isFile:
			names = append(names, name)
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(b.text), 0o600))
		case b.lang == "text":
			names = append(names, "Caddyfile")
			require.NoError(t, os.WriteFile(filepath.Join(dir, "Caddyfile"), []byte(b.text), 0o600))
		}
	}
	require.Equal(t, []string{"shop.openapi.yaml", "shop.gatehouse.yaml", "Caddyfile"}, names)
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), gatewaytest.Binary(t), args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	list := run("api", "check", "shop.openapi.yaml", "--overlay", "shop.gatehouse.yaml", "--list", "--name", "shop")
	require.Contains(t, list, "account of /orders/*")
	require.NotContains(t, run("adapt", "--config", "Caddyfile", "--adapter", "caddyfile"), "not formatted")
	published := run("api", "publish", "shop.openapi.yaml", "--overlay", "shop.gatehouse.yaml")
	require.NotContains(t, published, "account:")
}
