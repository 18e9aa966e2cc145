package cli

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// runSign runs `gatehouse sign`, and returns what it prints.
func runSign(t *testing.T, stdin string, args ...string) (stdout string, err error) {
	t.Helper()
	cmd := &cobra.Command{Use: "sign", SilenceErrors: true}
	configureSign(cmd)
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetArgs(append(args, "--timestamp", "1760000000", "GET", "https://a/api/v1/me"))
	err = cmd.Execute()
	return out.String(), err
}

// A private key with a line feed inside signs, and the gateway then rejects every request.
func TestKeysWithWhiteSpaceOrControlCharactersAreNotUsed(t *testing.T) {
	want, err := runSign(t, "a_private_key", "--key", "pk_live_0123456789", "--secret-file", "-")
	require.NoError(t, err)
	for name, key := range map[string]string{
		"line feed inside": "a_private\n_key", "carriage return inside": "a_private\r_key", "space inside": "a_private _key", "tab inside": "a_private\t_key",
		"NUL inside": "a_private\x00_key", "escape inside": "a_private\x1b_key", "C1 control inside": "a_private\u009b_key", "DEL at the end": "a_private_key\x7f",
		"leading space": " a_private_key", "trailing space": "a_private_key ", "line feed at the beginning": "\na_private_key", "two line feeds at the end": "a_private_key\n\n",
		"non-breaking space": "a_private_key\u00a0", "byte order mark": "\ufeffa_private_key", "space of no width": "a_private\u200b_key",
		"two keys": "a_private_key\nanother_key\n",
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "secret")
			require.NoError(t, os.WriteFile(file, []byte(key), 0o600))
			if !strings.Contains(key, "\x00") { // a variable cannot hold it
				t.Setenv("GATEHOUSE_SECRET", key)
			}
			for source, c := range map[string]struct {
				stdin string
				args  []string
			}{
				"file": {"", []string{"--secret-file", file}}, "standard input": {key, []string{"--secret-file", "-"}}, "variable": {"", nil},
			} {
				if source == "variable" && strings.Contains(key, "\x00") {
					continue
				}
				stdout, err := runSign(t, c.stdin, append(c.args, "--key", "pk_live_0123456789")...)
				require.ErrorContains(t, err, "must be the key as issued", source)
				assert.Empty(t, stdout, source)
				assert.NotContains(t, err.Error(), "a_private", source)
			}
			_, stderr, status := runExplain(t, captured("/api/v1/me", "/api/v1/me"), "--secret-file", file, "-")
			assert.Equal(t, "3", status)
			assert.Contains(t, stderr, "must be the key as issued")
			_, err := runSign(t, "a_private_key", "--secret-file", "-", "--key", key)
			assert.ErrorContains(t, err, "reading the public key")
		})
	}
	for name, text := range map[string]string{"line feed": "a_private_key\n", "CR LF": "a_private_key\r\n"} {
		t.Run("one "+name+" at the end of a file", func(t *testing.T) {
			got, err := runSign(t, text, "--key", "pk_live_0123456789", "--secret-file", "-")
			require.NoError(t, err)
			assert.Equal(t, want, got)
		})
	}
	t.Run("line feed at the end of a variable", func(t *testing.T) {
		t.Setenv("GATEHOUSE_SECRET", "a_private_key\n")
		_, err := runSign(t, "", "--key", "pk_live_0123456789")
		assert.ErrorContains(t, err, "must be the key as issued")
	})
}

func TestFurtherHeadersAreSent(t *testing.T) {
	t.Setenv("GATEHOUSE_SECRET", "a_private_key")
	var got []http.Header
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = append(got, r.Header) }))
	t.Cleanup(s.Close)
	send := func(args ...string) (string, error) {
		cmd := &cobra.Command{Use: "sign", SilenceErrors: true}
		configureSign(cmd)
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetArgs(append(args, "--key", "pk_live_0123456789", "POST", s.URL+"/orders"))
		err := cmd.Execute()
		return out.String(), err
	}
	for _, args := range [][]string{
		{"--data", "{}", "--header", "idempotency-key: it's 1", "--header", "If-Match:\"a\""},
		{"--data", "{}", "--header", "content-type: application/merge-patch+json"},
		{"--data", "a=b"},
	} {
		_, err := send(append(args, "--send")...)
		require.NoError(t, err)
		command, err := send(append(args, "--curl")...)
		require.NoError(t, err)
		printed, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput()
		require.NoError(t, err, "%s", printed)
	}
	require.Len(t, got, 6)
	for i, want := range []map[string][]string{
		{"Content-Type": {"application/json"}, "Idempotency-Key": {"it's 1"}, "If-Match": {`"a"`}},
		{"Content-Type": {"application/merge-patch+json"}, "Idempotency-Key": nil},
	} {
		for name, values := range want {
			assert.Equal(t, values, got[2*i][name], "--send %d", i)
			assert.Equal(t, values, got[2*i+1][name], "--curl %d", i)
		}
	}
	require.Empty(t, got[4]["Content-Type"], "a body that is not JSON has no type of its own")
	for header, want := range map[string]string{
		"a": "must be of the form", "a b: c": "must be of the form", "a: b\nc: d": "must be of the form", "x-signature: 1": "part of the signature",
		"If-Match: 1": "--header needs --send or --curl",
	} {
		_, err := send("--header", header)
		require.ErrorContains(t, err, want, header)
	}
}

// attack is what a terminal might obey, in a line of HTTP, Redis or JSON.
const attack = "\x1b]0;attack\x07"

// Vault's errors are printed.
func TestErrorsOfStoresDoNotControlTheTerminal(t *testing.T) {
	vault := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"errors":["\u001b]0;attack\u0007"]}`))
	}))
	t.Cleanup(vault.Close)
	path := filepath.Join(t.TempDir(), "caddy.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"apps":{"gatehouse":{"credentials":{"source":"vault","address":"`+vault.URL+`","auth":{"method":"token","token":"t"}}}}}`), 0o600))
	cmd := &cobra.Command{Use: "keys"}
	configureKeys(cmd)
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs([]string{"list", "--config", path})
	require.Error(t, cmd.Execute())
	assert.Contains(t, out.String(), `\u001b]0;attack`)
	assert.NotContains(t, out.String(), "\x1b")
}

// A relative path in a configuration is that of the directory in which the command runs: no gateway may read the file that it creates.
func TestIssuingAKeySaysThatItCreatesTheCredentialFile(t *testing.T) {
	t.Chdir(t.TempDir())
	dir, err := os.Getwd()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "caddy.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"apps":{"gatehouse":{"credentials":{"source":"file","path":"keys.json"}}}}`), 0o600))
	for _, want := range []string{"Created the credential file " + filepath.Join(dir, "keys.json") + "\n", ""} {
		cmd := &cobra.Command{Use: "keys"}
		configureKeys(cmd)
		var out, errs bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(&errs)
		cmd.SetArgs([]string{"issue", "--config", path, "--business-id", "1", "--business-name", "A", "--business-slug", "a"})
		require.NoError(t, cmd.Execute())
		assert.Equal(t, want, errs.String())
	}
}
