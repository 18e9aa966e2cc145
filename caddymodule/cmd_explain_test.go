package caddymodule

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/explain"
)

// runExplain runs `gatehouse explain` with a private key in a file, and returns what it prints and its exit status.
func runExplain(t *testing.T, capture string, args ...string) (stdout, stderr, status string) {
	t.Helper()
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	require.NoError(t, os.WriteFile(secret, []byte("a private key\n"), 0o600))
	cmd := &cobra.Command{Use: "explain"}
	configureExplain(cmd)
	var out, errs bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetIn(strings.NewReader(capture))
	cmd.SetArgs(append([]string{"--secret-file", secret}, args...))
	status = "exiting with status 0"
	if err := cmd.Execute(); err != nil {
		status = err.Error()
	}
	return out.String(), errs.String(), strings.TrimPrefix(status, "exiting with status ")
}

// captured is a GET of target that is signed for signed.
func captured(target, signed string) string {
	return "GET " + target + " HTTP/1.1\nHost: api.example.com\nX-Public-Key: pk_live_0123456789\nX-Timestamp: 1760000000\nX-Signature: " +
		authsigner.Sign("a private key", 1760000000, "GET", signed, nil) + "\n\n"
}

func TestExplainExitStatusSaysWhatWasFound(t *testing.T) {
	t.Parallel()
	const me = "/api/v1/me"
	for name, c := range map[string]struct {
		capture string
		args    []string
		status  string
		prints  string
	}{
		"verified":           {captured(me, me), []string{"-"}, "0", "The signature is correct."},
		"below a base path":  {captured("/gw"+me, me), []string{"--base-url", "https://api.example.com/gw", "-"}, "0", "The signature is correct."},
		"a mistake":          {captured(me+"?a=1", me), []string{"-"}, "1", "path_query_missing"},
		"expired":            {captured(me, me), []string{"--at", "2025-10-09T09:00:00Z", "-"}, "1", "6m40s behind"},
		"expired, Unix time": {captured(me, me), []string{"--at", "1760000400", "-"}, "1", "6m40s behind"},
		"nothing known":      {captured(me, "/something/else"), []string{"-"}, "2", "No known mistake"},
		"not a request":      {"hello", []string{"-"}, "3", "Error: reading the request: not a captured request"},
		"empty":              {"", []string{"-"}, "3", "it is empty"},
		"no such file":       {"", []string{filepath.Join(t.TempDir(), "missing")}, "3", "no such file"},
		"no file":            {"", nil, "3", "got 0 arguments"},
		"unknown flag":       {"", []string{"--nope", "-"}, "3", "unknown flag"},
		"invalid time":       {captured(me, me), []string{"--at", "noon", "-"}, "3", `invalid time "noon"`},
		"invalid base URL":   {captured(me, me), []string{"--base-url", "gw", "-"}, "3", `invalid base URL "gw"`},
		"two standard inputs": {
			captured(me, me),
			[]string{"--secret-file", "-", "-"},
			"3",
			"only one of the request and the private key",
		},
		"base path guessed": {captured("/gw"+me, me), []string{"-"}, "0", "Assuming the API is mounted at /gw."},
		"base path signed":  {captured("/gw"+me, "/gw"+me), []string{"-"}, "1", "path_base"},
		"not checked":       {captured(me, me), []string{"-"}, "0", "Not checked: whether the public key exists"},
		"causes":            {captured(me, "/something/else"), []string{"-"}, "2", "a private key of another environment"},
		"secret missing":    {captured(me, me), []string{"--secret-file", "", "--secret-env", "GATEHOUSE_NO_SUCH_VARIABLE", "-"}, "3", "no private key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stdout, stderr, status := runExplain(t, c.capture, c.args...)
			require.Equal(t, c.status, status, stdout+stderr)
			require.Contains(t, stdout+stderr, c.prints)
			require.NotContains(t, stdout+stderr, "a private key\n")
			if status == "3" {
				require.Empty(t, stdout)
			}
		})
	}
}

func TestExplainShowsBothStrings(t *testing.T) {
	t.Parallel()
	stdout, _, status := runExplain(t, captured("/api/v1/jobs?page=2", "/api/v1/jobs"), "-")
	assert.Equal(t, "1", status)
	assert.Equal(t, `path_query_missing
  The signed path has no query string.
  Sign the path with its query string, as it is sent.

String that was signed, 28 bytes:
  1760000000\n
  GET\n
  /api/v1/jobs\n

String to sign, 35 bytes:
  1760000000\n
  GET\n
  /api/v1/jobs?page=2\n
`, stdout)
}

func TestExplainPrintsOnlyJSON(t *testing.T) {
	t.Parallel()
	stdout, stderr, status := runExplain(t, captured("/api/v1/jobs?page=2", "/api/v1/jobs"), "--json", "-")
	require.Equal(t, "1", status)
	require.Empty(t, stderr)
	var res explain.Result
	require.NoError(t, json.Unmarshal([]byte(stdout), &res))
	require.True(t, res.Complete)
	assert.Equal(t, "path_query_missing", res.Mistakes[0].Code)
}

// A mistake in the private key that the command itself reads would otherwise be explained as one of the request.
func TestExplainRefusesAPrivateKeyThatWasCopiedWrongly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ secret, prints string }{
		"public key":    {"pk_live_0123456789", "begins with pk_"},
		"quotes":        {`"a private key"`, "quotation mark"},
		"one quote":     {"a private key'", "quotation mark"},
		"leading space": {" a private key", "white space"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "copied")
			require.NoError(t, os.WriteFile(file, []byte(c.secret), 0o600))
			stdout, stderr, status := runExplain(t, captured("/api/v1/me", "/api/v1/me"), "--secret-file", file, "-")
			assert.Equal(t, "3", status)
			assert.Empty(t, stdout)
			assert.Contains(t, stderr, c.prints)
			assert.NotContains(t, stderr, c.secret)
		})
	}
}

// Without a signature, or a timestamp that was signed, nothing is said about how the signature was computed.
func TestExplainDoesNotJudgeASignatureThatIsMissing(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"X-Signature", "X-Timestamp"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			capture := strings.Replace(captured("/api/v1/me", "/api/v1/me"), name, strings.ReplaceAll(name, "-", "_"), 1)
			stdout, _, status := runExplain(t, capture, "-")
			assert.Equal(t, "1", status)
			assert.Contains(t, stdout, "The header "+name+" is missing or empty, but ")
			assert.NotContains(t, stdout, "no known mistake")
		})
	}
}
