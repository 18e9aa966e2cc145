package cli

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// openTerminal returns both ends of a new terminal.
func openTerminal(t *testing.T) (screen, terminal *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = screen.Close() })
	fd := int(screen.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = terminal.Close() })
	return screen, terminal
}

// A terminal shows what a file gets: no character or line end is split where the response was received in parts.
func TestResponsesInOtherScriptsAreReadableOnATerminal(t *testing.T) {
	t.Setenv("GATEHOUSE_SECRET", "a_private_key")
	text := "x" + strings.Repeat("é", 40_000) + "\r\nend" // a part of an even number of bytes ends in a character
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }))
	t.Cleanup(s.Close)
	screen, terminal := openTerminal(t)
	shown := make(chan string, 1)
	go func() {
		all := bufio.NewReader(screen)
		var text strings.Builder
		for !strings.HasSuffix(text.String(), "end") {
			c, err := all.ReadByte()
			if err != nil {
				break
			}
			_ = text.WriteByte(c)
		}
		shown <- text.String()
	}()
	cmd := &cobra.Command{Use: "sign"}
	configureSign(cmd)
	cmd.SetOut(terminal)
	cmd.SetArgs([]string{"--send", "--key", "pk_live_0123456789", "GET", s.URL + "/orders"})
	require.NoError(t, cmd.Execute())
	_, body, _ := strings.Cut(<-shown, "\r\n\r\n") // the terminal adds the carriage returns
	require.Equal(t, text, body)
}

func TestResponsesDoNotControlTheTerminal(t *testing.T) {
	t.Setenv("GATEHOUSE_SECRET", "a_private_key")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["X-Attack"] = []string{"\u009b2J"} // ESC itself is not sent in a header
		_, _ = w.Write([]byte(attack + "end"))
	}))
	t.Cleanup(s.Close)
	send := func(out io.Writer) {
		cmd := &cobra.Command{Use: "sign"}
		configureSign(cmd)
		cmd.SetOut(out)
		cmd.SetArgs([]string{"--send", "--key", "pk_live_0123456789", "GET", s.URL + "/orders"})
		require.NoError(t, cmd.Execute())
	}
	screen, terminal := openTerminal(t)
	send(terminal)
	shown := make([]byte, 0, 4096)
	for !bytes.Contains(shown, []byte("end")) {
		n, err := screen.Read(shown[len(shown):cap(shown)])
		require.NoError(t, err)
		shown = shown[:len(shown)+n]
	}
	assert.NotContains(t, string(shown), "\x1b")
	assert.NotContains(t, string(shown), "\u009b")
	assert.Contains(t, string(shown), `\u001b]0;attack`)

	var file bytes.Buffer
	send(&file)
	assert.Contains(t, file.String(), attack+"end", "a file gets the response as it is")
}
