package cli

import (
	"bytes"
	"os"
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
