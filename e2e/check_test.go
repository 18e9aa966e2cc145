package e2e_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// The addresses of the gateway that runs with a configuration are in order; those that another process has are not.
func TestCheckOfRunningGateway(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	g := w.unlimited(t)
	res := cli(t, nil, "check", "--config", g.Config)
	require.Equal(t, 0, res.code, res.stdout+res.stderr)
	require.NotContains(t, res.stdout, "GH060")
	require.NotContains(t, res.stdout+res.stderr, `"level"`, "what modules log is not part of the output")

	other := strings.Replace(configOf(t, g), "admin ", "admin localhost:1\n\t#", 1)
	path := filepath.Join(t.TempDir(), "Caddyfile")
	require.NoError(t, os.WriteFile(path, []byte(other), 0o600))
	res = cli(t, nil, "check", "--config", path)
	assert.Equal(t, 1, res.code, res.stdout+res.stderr)
	assert.Contains(t, res.stdout, "GH060")
}

// Each command that loads a configuration names the line of an error that occurs while modules are provisioned.
func TestCommandsNameTheLineOfLoadingErrors(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	g := w.unlimited(t)
	wrong := strings.Replace(configOf(t, g), "gatehouse_api {", "gatehouse_jwks\n\tgatehouse_api {", 1)
	before, _, found := strings.Cut(wrong, "gatehouse_jwks")
	require.True(t, found)
	line := 1 + strings.Count(before, "\n")
	path := filepath.Join(t.TempDir(), "Caddyfile")
	require.NoError(t, os.WriteFile(path, []byte(wrong), 0o600))
	want := "Error: " + path + ":" + strconv.Itoa(line) + ": gatehouse_jwks has no keys to publish"
	for name, args := range map[string][]string{
		"validate": {"validate"},
		"adapt":    {"adapt", "--validate"},
		"run":      {"run"},
		"reload":   {"reload", "--address", strings.TrimPrefix(g.AdminURL, "http://")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := gatewaytest.Command(t, nil, append(args, "--config", path)...)
			require.Error(t, err)
			require.Contains(t, out, want)
		})
	}
}

func configOf(t *testing.T, g *gatewaytest.Gateway) string {
	t.Helper()
	config, err := os.ReadFile(g.Config)
	require.NoError(t, err)
	return string(config)
}
