package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An admin API that was reloaded in the meantime closes the connection. An input that was read once is empty the second time, and an empty
// configuration would stop all servers.
func TestReloadSendsAConfigurationAgainOnlyIfItCanReadItAgain(t *testing.T) {
	const config = `{"admin":{"listen":"localhost:0"}}`
	for name, c := range map[string]struct {
		args func(file string, pipe *os.File) string
		want []string
	}{
		"a file":         {func(file string, _ *os.File) string { return file }, []string{config, config}},
		"standard input": {func(string, *os.File) string { return "-" }, []string{config}},
		"a pipe":         {func(_ string, pipe *os.File) string { return fmt.Sprint("/dev/fd/", pipe.Fd()) }, []string{config}},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var got []string
			admin := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				assert.NoError(t, err)
				mu.Lock()
				defer mu.Unlock()
				if got = append(got, string(body)); len(got) == 1 {
					panic(http.ErrAbortHandler)
				}
			}))
			t.Cleanup(admin.Close)
			file := filepath.Join(t.TempDir(), "caddy.json")
			require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
			pipe, in, err := os.Pipe()
			require.NoError(t, err)
			_, err = in.WriteString(config)
			require.NoError(t, err)
			require.NoError(t, in.Close())
			stdin := os.Stdin
			os.Stdin = pipe
			t.Cleanup(func() { os.Stdin = stdin; _ = pipe.Close() })

			cmd := &cobra.Command{Use: "reload", SilenceErrors: true, SilenceUsage: true}
			caddycmd.Commands()["reload"].CobraFunc(cmd)
			cmd.RunE = repeatUnanswered(cmd.RunE)
			cmd.SetErr(io.Discard)
			cmd.SetArgs([]string{"--config", c.args(file, pipe), "--address", strings.TrimPrefix(admin.URL, "http://")})
			err = cmd.ExecuteContext(t.Context())
			mu.Lock()
			defer mu.Unlock()
			assert.Equal(t, c.want, got)
			assert.Equal(t, len(c.want) > 1, err == nil, err)
		})
	}
}
