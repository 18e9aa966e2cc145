package caddymodule_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/caddymodule"
)

// fuzzSecret is what the fuzz tests write wherever a secret can stand.
const fuzzSecret = "canary-secret"

// position is how an error names the place: the file and the line.
var position = regexp.MustCompile(`\bCaddyfile:[0-9]+`)

// adaptation is what a Caddyfile adapts to, or the error.
func adaptation(input []byte) (string, error) {
	raw, _, err := caddyconfig.GetAdapter("caddyfile").Adapt(input, map[string]any{"filename": "Caddyfile"})
	return string(raw), err
}

// goldenInputs returns the Caddyfiles of the golden files.
func goldenInputs(f *testing.F) []string {
	f.Helper()
	files, err := filepath.Glob("testdata/adapt/*.caddyfiletest")
	require.NoError(f, err)
	var inputs []string
	for _, name := range files {
		content, err := os.ReadFile(name)
		require.NoError(f, err)
		input, _, _ := strings.Cut(string(content), separator)
		inputs = append(inputs, input)
	}
	require.NotEmpty(f, inputs)
	return inputs
}

// FuzzDirectives makes mistakes in the golden Caddyfiles, which have every directive and option that we have. What adapts still
// adapts to the same after it was formatted; an error names the file and the line, and holds no secret, whatever is wrong beside it.
func FuzzDirectives(f *testing.F) {
	inputs := goldenInputs(f)
	f.Add(byte(0), []byte{})
	for n := range 256 {
		mistakes := make([]byte, 3*(1+n%3))
		for i := range mistakes {
			mistakes[i] = byte((i*i*n + 7*i + 31*n) % 251)
		}
		f.Add(byte(n), mistakes)
	}
	f.Fuzz(func(t *testing.T, file byte, mistakes []byte) {
		lines := strings.Split(withSecrets(inputs[int(file)%len(inputs)]), "\n")
		for m := range slices.Chunk(mistakes, 3) {
			if len(m) == 3 {
				line := &lines[int(m[0])%len(lines)]
				*line = withMistake(*line, m[1], m[2])
			}
		}
		input := strings.Join(lines, "\n")
		first, err := adaptation([]byte(input))
		if err != nil {
			require.Regexp(t, position, err.Error(), "%s", input)
			require.NotContains(t, err.Error(), fuzzSecret, "%s", input)
			return
		}
		require.True(t, json.Valid([]byte(first)))
		formatted := caddyfile.Format([]byte(input))
		second, err := adaptation(formatted)
		require.NoError(t, err, "formatted:\n%s", formatted)
		require.JSONEq(t, first, second, "formatted:\n%s", formatted)
		require.Equal(t, string(formatted), string(caddyfile.Format(formatted)), "formatting twice is formatting once")
	})
}

// withSecrets writes fuzzSecret wherever a Caddyfile has a secret.
func withSecrets(input string) string {
	input = regexp.MustCompile(`(?m)(\t(?:password|auth (?:token|approle \S+)|sentinel \S+ \S+|header_up \w\S+)) \S+$`).ReplaceAllString(input, "$1 "+fuzzSecret)
	return regexp.MustCompile(`(rediss?://)(?:\S+@)?`).ReplaceAllString(input, "${1}u:"+fuzzSecret+"@")
}

// withMistake changes an argument of a line, or the number of its arguments, or repeats the line, or adds an unknown option.
func withMistake(line string, kind, choice byte) string {
	words := strings.Fields(line)
	if len(words) == 0 || words[0] == "{" || words[0] == "}" {
		return line
	}
	opens := words[len(words)-1] == "{"
	last := len(words) // of the arguments
	if opens {
		last--
	}
	surplus := "surplus"
	if strings.Contains(line, fuzzSecret) {
		surplus = fuzzSecret // elsewhere, errors quote what is wrong
	}
	wrong := []string{
		`""`, "0", "-1", "soon", "99999999999999999999", "1.5", "9223372036854775808s", "99EB", `"a\"b"`, "a{b", "\\", "`a b`", "{env.NAME}", "C:\\x", "/a", "//",
		"/%2f", "*", "@nobody", "ftp://x", "events", "status", "2026-01-01", "2m", "1500ms", "X-*", "-X-Request-Id", "vault", "cert",
	}
	if words[0] == "redis" {
		wrong = append(wrong, "redis://%zz:"+fuzzSecret+"@x")
	}
	switch at := 1 + int(choice)%max(1, last-1); kind % 6 {
	case 0, 1:
		if last > 1 {
			words[at] = wrong[int(choice)%len(wrong)]
		}
	case 2:
		words = slices.Insert(words, last, surplus)
	case 3:
		if last > 1 {
			words = slices.Delete(words, at, at+1)
		}
	case 4:
		if !opens {
			words = append(words, append([]string{"\n"}, words...)...)
		}
	case 5:
		if !opens {
			words = append(words, "\nfrobnicate 1")
		}
	}
	return strings.Join(words, " ")
}

// FuzzAPITarget: of a request target only its origin is cut off, and the base path, byte for byte; what is left is below
// /api/v1 or is not the API's, and only that is matched, verified and counted.
func FuzzAPITarget(f *testing.F) {
	for _, target := range []string{
		"/api/v1", "/api/v1/", "/api/v1?x", "/api/v1/events?count=3", "/api/v1x", "/api/v1#x", "http://x/api/v1/me", "http://x?/api/v1/me", "http://x#/api/v1/me", "http://x", "://",
		"//x/api/v1/me", "http://x//api/v1/me", "http:///api/v1/me", "http://a://b/api/v1/me", "*", "", "x:443", "/gw/api/v1/me", "http://x/gw/api/v1/me?/gw/api/v1", "/gw/gw/api/v1", "http://x\n/api/v1/me",
	} {
		f.Add(target, "")
		f.Add(target, "/gw")
	}
	authority := regexp.MustCompile(`(?s)\A[^/?#]*(/.*)\z`)
	below := regexp.MustCompile(`(?s)\A/api/v1(?:[/?].*)?\z`)
	f.Fuzz(func(t *testing.T, target, basePath string) {
		if basePath != "" && basePath[0] != '/' {
			return // no base path
		}
		want := target
		if !strings.HasPrefix(target, "/") {
			want = ""
			if _, after, ok := strings.Cut(target, "://"); ok {
				if m := authority.FindStringSubmatch(after); m != nil {
					want = m[1]
				}
			}
		}
		rest, hasBase := strings.CutPrefix(want, basePath)
		got, counted := caddymodule.APITarget(target, basePath)
		require.Equal(t, want != "" && hasBase && below.MatchString(rest), counted, "%q below %q", target, basePath)
		if !counted {
			return
		}
		require.Equal(t, rest, got)
		require.True(t, strings.HasSuffix(target, got), "nothing is decoded or cleaned")
		again, counted := caddymodule.APITarget(got, "")
		require.True(t, counted)
		require.Equal(t, got, again)
	})
}
