package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/explain"
)

// runExplain runs `gatehouse explain` with a private key in a file, and returns what it prints and its exit status.
func runExplain(t *testing.T, capture string, args ...string) (stdout, stderr, status string) {
	t.Helper()
	return runExplainOn(t, strings.NewReader(capture), args...)
}

func runExplainOn(t *testing.T, stdin io.Reader, args ...string) (stdout, stderr, status string) {
	t.Helper()
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	require.NoError(t, os.WriteFile(secret, []byte("a_private_key\n"), 0o600))
	cmd := &cobra.Command{Use: "explain"}
	configureExplain(cmd)
	var out, errs bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetIn(stdin)
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
		authsigner.Sign("a_private_key", 1760000000, "GET", signed, nil) + "\n\n"
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
			require.NotContains(t, stdout+stderr, "a_private_key\n")
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
		"quotes":        {`"a_private_key"`, "quotation mark"},
		"one quote":     {"a_private_key'", "quotation mark"},
		"leading space": {" a_private_key", "white space"},
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

// A capture that a stranger sent is data: nothing of the reader's machine gets into the output, no other file is read, nothing waits,
// and the terminal obeys nothing in it.
func TestExplainTreatsACaptureAsData(t *testing.T) {
	const canary = "canary-of-the-environment"
	t.Setenv("GATEHOUSE_CANARY", canary)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, []byte("canary-of-a-file"), 0o600))
	fifo := filepath.Join(dir, "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	headers := " -H 'X-Public-Key: pk_live_0123456789' -H 'X-Timestamp: 1760000000' -H 'X-Signature: " + strings.Repeat("5a", 32) + "' "
	const escapes = "\x1b[31m\x1b]0;title\x07\u009b31m\x7f\r\u202e\xff\x00"
	raw := "GET /api/v1/me?" + escapes + " HTTP/1.1\nHost: a\nX-Public-Key: pk_live_0123456789\nX-Timestamp: 1760000000\nX-Signature: " + strings.Repeat("5a", 32) + "\n\n"
	for name, capture := range map[string]string{
		"variable":                          "curl" + headers + "\"https://a/$GATEHOUSE_CANARY\"",
		"variable in braces":                "curl" + headers + "https://a/${GATEHOUSE_CANARY}",
		"variable with a default":           "curl" + headers + "https://a/${NONE:-$GATEHOUSE_CANARY}",
		"variable as the timestamp":         "curl -H \"X-Timestamp: $GATEHOUSE_CANARY\" https://a/",
		"variable in a header's name":       "curl -H \"$GATEHOUSE_CANARY-Signature: x\" https://a/",
		"file as the body":                  "curl" + headers + "-d @" + file + " https://a/",
		"file as the body, in an option":    "curl" + headers + "--data-binary=@" + file + " https://a/",
		"file with headers":                 "curl -H @" + file + " https://a/",
		"FIFO as the body":                  "curl" + headers + "-d @" + fifo + " https://a/",
		"device without end":                "curl" + headers + "--data-binary @/dev/zero https://a/",
		"pattern of file names":             "curl" + headers + dir + "/*",
		"command":                           "curl" + headers + "https://a/$(cat " + file + ")",
		"process substitution":              "curl" + headers + "<(true)",
		"process substitution as an URL":    "curl <(true) https://a/" + headers,
		"process substitution of output":    "curl" + headers + "https://a/ >(true)",
		"escapes in a curl command":         "curl" + headers + "'https://a/api/v1/me?" + escapes + "'",
		"escapes in the base path":          "curl" + headers + "'https://a/" + escapes + "/api/v1/me'",
		"escapes in the timestamp":          "curl -H 'X-Public-Key: pk_live_0123456789' -H 'X-Timestamp: " + escapes + "' -H 'X-Signature: x' https://a/",
		"escapes in a header's name":        "curl -H 'X-Timestamp" + escapes + ": 1' https://a/",
		"escapes in an option":              "curl '-" + escapes + "' https://a/",
		"escapes in raw HTTP":               raw,
		"escapes in a body":                 strings.Replace(raw, "GET", "POST", 1) + escapes,
		"escapes instead of a capture":      escapes,
		"printing of a capture that is cut": raw[:40],
	} {
		t.Run(name, func(t *testing.T) {
			for _, args := range [][]string{{"-"}, {"--json", "-"}} {
				stdout, stderr, status := runExplain(t, capture, args...)
				assert.NotContains(t, stdout+stderr, "canary")
				for _, r := range stdout + stderr {
					require.True(t, r == '\n' || strconv.IsPrint(r), "%q in %q", r, stdout+stderr)
				}
				if args[0] == "--json" && status != "3" {
					assert.True(t, json.Valid([]byte(stdout)), stdout)
				}
			}
		})
	}
	for name, path := range map[string]string{"FIFO": fifo, "device": "/dev/zero", "directory": dir} {
		t.Run(name+" instead of a file", func(t *testing.T) {
			stdout, stderr, status := runExplain(t, "", path)
			assert.Equal(t, "3", status)
			assert.Empty(t, stdout)
			assert.Contains(t, stderr, "not a regular file")
		})
	}
	t.Run("input without end", func(t *testing.T) {
		zero, err := os.Open("/dev/zero")
		require.NoError(t, err)
		defer func() { _ = zero.Close() }()
		stdout, stderr, status := runExplainOn(t, zero, "-")
		assert.Equal(t, "3", status)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, "larger than")
	})
}

// A correct request that the gateway would reject as expired is not just called correct.
func TestExplainSaysHowOldACorrectRequestIs(t *testing.T) {
	t.Parallel()
	at := func(ago time.Duration) string {
		now := time.Now().Add(-ago).Unix()
		return strings.NewReplacer("1760000000", strconv.FormatInt(now, 10), authsigner.Sign("a_private_key", 1760000000, "GET", "/api/v1/me", nil),
			authsigner.Sign("a_private_key", now, "GET", "/api/v1/me", nil)).Replace(captured("/api/v1/me", "/api/v1/me"))
	}
	signedThen := captured("/api/v1/me", "/api/v1/me")
	for name, c := range map[string]struct {
		capture func() string // the subtest may begin minutes later
		args    []string
		status  string
		prints  []string
		behind  time.Duration
		expired bool
	}{
		"now":                    {func() string { return at(0) }, nil, "0", []string{"The signature is correct.", "behind the present time.\n"}, 0, false},
		"ten minutes late":       {func() string { return at(10 * time.Minute) }, nil, "0", []string{"The signature is correct.", "behind the present time", "would reject the request as expired"}, 10 * time.Minute, true},
		"ten minutes early":      {func() string { return at(-10 * time.Minute) }, nil, "0", []string{"ahead of the present time", "would reject the request as expired"}, -10 * time.Minute, true},
		"--at, in time":          {func() string { return signedThen }, []string{"--at", "1760000012"}, "0", []string{"Its timestamp is 12s behind the time of --at.\n"}, 12 * time.Second, false},
		"--at, ten minutes late": {func() string { return signedThen }, []string{"--at", "1760000600"}, "1", []string{"The signature is correct, but:", "10m0s behind", "rejects the request as expired"}, 10 * time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			capture := c.capture()
			stdout, stderr, status := runExplain(t, capture, append(c.args, "-")...)
			require.Equal(t, c.status, status, stdout+stderr)
			for _, part := range c.prints {
				assert.Contains(t, stdout, part)
			}
			stdout, _, _ = runExplain(t, capture, append(c.args, "--json", "-")...)
			var printed struct {
				Behind  *int64 `json:"timestamp_behind_seconds"`
				Expired bool   `json:"expired"`
			}
			require.NoError(t, json.Unmarshal([]byte(stdout), &printed))
			require.NotNil(t, printed.Behind)
			assert.InDelta(t, c.behind.Seconds(), *printed.Behind, 60)
			assert.Equal(t, c.expired, printed.Expired)
		})
	}
}
