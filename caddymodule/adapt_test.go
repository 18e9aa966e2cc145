package caddymodule_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	"github.com/stretchr/testify/require"

	_ "github.com/gatehouse-gateway/gatehouse/caddymodule"
)

var update = flag.Bool("update", false, "write what the Caddyfiles adapt to into testdata/adapt")

const separator = "----------\n"

// Each directive and option adapts to the JSON in its golden file.
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
			got, err := adapt(t, input)
			require.NoError(t, err)
			if *update {
				require.NoError(t, os.WriteFile(name, []byte(input+separator+got), 0o600))
				return
			}
			require.Equal(t, want, got)
		})
	}
}

const errorsFile = "testdata/adapt/errors.txt"

// invalid is an invalid Caddyfile of errorsFile.
type invalid struct {
	input string
	want  string // the line and the error
	lines string // of the case
}

// errorCases returns the cases of a section of errorsFile. It begins with a Caddyfile, in which each case replaces CASE, and a blank
// line. Each case ends with a line that has the error.
func errorCases(section string) (caddyfile string, cases []invalid) {
	caddyfile, rest, _ := strings.Cut(section, "\n\n")
	var lines string
	for line := range strings.Lines(rest) {
		want, ends := strings.CutPrefix(line, "=>")
		if !ends {
			lines += line
			continue
		}
		cases = append(cases, invalid{strings.Replace(caddyfile+"\n", "CASE\n", lines, 1), strings.TrimSpace(want), lines})
		lines = ""
	}
	return caddyfile, cases
}

// Each invalid directive and option has its error, with the line.
func TestAdaptErrors(t *testing.T) {
	content, err := os.ReadFile(errorsFile)
	require.NoError(t, err)
	sections := strings.Split(string(content), separator)
	at := regexp.MustCompile(`^parsing caddyfile tokens for '[^']*': (.*), at Caddyfile:(\d+)$`)
	for i, section := range sections {
		caddyfile, cases := errorCases(section)
		sections[i] = caddyfile + "\n\n"
		for _, c := range cases {
			got := ""
			t.Run(c.lines, func(t *testing.T) {
				_, err := adapt(t, c.input)
				require.Error(t, err)
				m := at.FindStringSubmatch(err.Error())
				require.NotNil(t, m, err)
				got = m[2] + ": " + m[1]
				require.True(t, *update || c.want == got, "want %s\n got %s", c.want, got)
			})
			sections[i] += c.lines + "=> " + got + "\n"
		}
	}
	if *update {
		require.NoError(t, os.WriteFile(errorsFile, []byte(strings.Join(sections, separator)), 0o600))
	}
}

// adapt returns indented JSON.
func adapt(t *testing.T, input string) (string, error) {
	t.Helper()
	raw, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(input), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		return "", err
	}
	for _, w := range warnings {
		if !strings.Contains(w.Message, "not formatted") {
			t.Errorf("warning: %s", w.Message)
		}
	}
	var buf bytes.Buffer
	require.NoError(t, json.Indent(&buf, raw, "", "\t"))
	return buf.String() + "\n", nil
}
