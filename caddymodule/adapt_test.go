package caddymodule_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	"github.com/stretchr/testify/require"

	_ "github.com/gatehouse-gateway/gatehouse/caddymodule"
)

var update = flag.Bool("update", false, "write what the Caddyfiles adapt to into testdata/adapt")

const separator = "----------\n"

// Each directive and option, valid and invalid, adapts to the JSON or the error in its golden file.
func TestAdaptGoldenFiles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/adapt/*.caddyfiletest")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".caddyfiletest"), func(t *testing.T) {
			t.Parallel()
			content, err := os.ReadFile(name)
			require.NoError(t, err)
			input, want, ok := strings.Cut(string(content), separator)
			require.True(t, ok || *update, "%s has no line %q", name, separator)
			got := adapt(t, input)
			if *update {
				require.NoError(t, os.WriteFile(name, []byte(input+separator+got), 0o600))
				return
			}
			require.Equal(t, want, got)
			isError := strings.HasPrefix(got, "error: ")
			require.Equal(t, strings.HasPrefix(filepath.Base(name), "bad_"), isError, "only files named bad_* fail to adapt")
		})
	}
}

// adapt returns indented JSON, or "error: " and the message.
func adapt(t *testing.T, input string) string {
	t.Helper()
	raw, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(input), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	for _, w := range warnings {
		if !strings.Contains(w.Message, "not formatted") {
			t.Errorf("warning: %s", w.Message)
		}
	}
	var buf bytes.Buffer
	require.NoError(t, json.Indent(&buf, raw, "", "\t"))
	return buf.String() + "\n"
}
