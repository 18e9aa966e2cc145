package docs_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

var update = flag.Bool("update", false, "write the adapted JSON of the Caddyfiles into the pages")

// A block `json adapted:a/b/0` below a Caddyfile must be the part /a/b/0 of the JSON that `gatehouse adapt` returns.
func TestCaddyfilesOnPagesAdaptToTheJSONShown(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, file := range pages(t) {
		var adapted []byte
		all := blocks(t, file)
		for i, b := range all {
			path, isPart := strings.CutPrefix(b.lang, "json adapted:")
			switch {
			case b.lang == "caddyfile":
				adapted = adapt(t, b)
				seen++
			case isPart:
				require.NotNil(t, adapted, "%s:%d: no Caddyfile above it", b.file, b.line)
				got := part(t, adapted, b, path)
				if *update {
					all[i].text = got
					continue
				}
				require.Equal(t, b.text, got, "%s:%d (go test ./docs -run Caddyfiles -update writes it)", b.file, b.line)
			}
		}
		if *update {
			rewrite(t, file, all)
		}
	}
	require.NotZero(t, seen)
}

func TestCaddyfilesOfTheRepositoryAdapt(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"../Caddyfile", "../deploy/Caddyfile"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		adapt(t, block{file: file, line: 1, text: string(text)})
	}
}

// The examples in the Caddyfile's comments, each below an empty comment line, can be used by removing "# ".
func TestCommentedExamplesOfTheCaddyfileAdapt(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../Caddyfile")
	require.NoError(t, err)
	head, body, found := strings.Cut(string(text), "\n{\n")
	require.True(t, found)
	all := head + "\n{\n"
	examples, isExample := 0, false
	for line := range strings.Lines(body) {
		indent, comment, isComment := strings.Cut(line, "#")
		isComment = isComment && strings.TrimSpace(indent) == ""
		switch {
		case isComment && comment == "\n":
			isExample = true
			examples++
		case isComment && isExample:
			line = indent + strings.TrimPrefix(comment, " ")
		case !isComment:
			isExample = false
		}
		all += line
	}
	require.Positive(t, examples)
	adapted := string(adapt(t, block{file: "../Caddyfile with its examples", line: 1, text: all}))
	for _, part := range []string{`"trusted_proxies":`, `"shutdown_delay":`, `"listen":["10.0.0.5:9180"]`, `"assertion":`, `"handler":"gatehouse_jwks"`} {
		assert.Contains(t, adapted, part)
	}
}

// What we recommend for production must not be what check warns of.
func TestCheckFindsNothingInTheRecommendedCaddyfiles(t *testing.T) {
	t.Parallel()
	for _, b := range []block{
		under(t, blocks(t, "../README.md"), "A production Caddyfile", "caddyfile"),
		under(t, blocks(t, "operating.md"), "A Caddyfile, piece by piece", "caddyfile"),
	} {
		file := filepath.Join(t.TempDir(), "Caddyfile")
		require.NoError(t, os.WriteFile(file, []byte(b.text), 0o600))
		out, err := exec.CommandContext(t.Context(), gatewaytest.Binary(t), "check", "--offline", "--config", file).CombinedOutput()
		require.NoError(t, err, "%s", out)
		assert.Equal(t, "0 errors, 0 warnings\n", string(out), "%s:%d", b.file, b.line)
	}
}

// adapt runs `gatehouse adapt`, which must succeed without a warning about the format.
func adapt(t *testing.T, b block) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "Caddyfile")
	require.NoError(t, os.WriteFile(file, []byte(b.text), 0o600))
	cmd := exec.CommandContext(t.Context(), gatewaytest.Binary(t), "adapt", "--config", file, "--adapter", "caddyfile")
	cmd.Dir = "../examples/orders" // whose definition pages use
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	require.NoError(t, cmd.Run(), "%s:%d: %s", b.file, b.line, log.String())
	require.NotContains(t, log.String(), "not formatted", "%s:%d", b.file, b.line)
	return out.Bytes()
}

// part returns the part of a JSON document at a path, indented as on the pages.
func part(t *testing.T, raw []byte, b block, path string) string {
	t.Helper()
	for word := range strings.SplitSeq(path, "/") {
		var (
			object map[string]json.RawMessage
			list   []json.RawMessage
		)
		if i, err := strconv.Atoi(word); err == nil {
			require.NoError(t, json.Unmarshal(raw, &list))
			require.Greater(t, len(list), i, "%s:%d: %s", b.file, b.line, path)
			raw = list[i]
			continue
		}
		require.NoError(t, json.Unmarshal(raw, &object))
		require.Contains(t, object, word, "%s:%d: %s", b.file, b.line, path)
		raw = object[word]
	}
	var buf bytes.Buffer
	require.NoError(t, json.Indent(&buf, raw, "", "  "))
	return buf.String() + "\n"
}

// rewrite writes changed blocks into their page.
func rewrite(t *testing.T, file string, all []block) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	lines := strings.SplitAfter(string(text), "\n")
	old := blocks(t, file)
	for i, b := range slices.Backward(all) {
		if b.text != old[i].text {
			first := b.line // the line below the fence, counted from 0
			lines = slices.Replace(lines, first, first+strings.Count(old[i].text, "\n"), b.text)
		}
	}
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(lines, "")), 0o600))
}
