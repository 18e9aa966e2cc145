package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/caddymodule/internal/configfile"
)

// explainLoadErrors makes Caddy's commands name the file and the line of an error, also of those that occur while modules are
// provisioned.
func explainLoadErrors(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "run", "reload", "adapt", "validate": // start runs run
			run := cmd.RunE
			if cmd.Name() == "reload" {
				run = repeatUnanswered(run)
			}
			cmd.RunE = func(cmd *cobra.Command, args []string) error {
				err := run(cmd, args)
				if failure := located(cmd, err); failure != nil {
					cmd.PrintErrln("Error:", failure)
				}
				return err
			}
		}
	}
}

// loadEnvFiles sets environment variables from the files of --envfile, exactly as Caddy's commands do. Caddy does not export its
// parser, but its command environ does nothing else before it prints the environment, which must not be seen.
func loadEnvFiles(cmd *cobra.Command) error {
	files, err := cmd.Flags().GetStringSlice("envfile")
	if err != nil || len(files) == 0 {
		return err
	}
	environ := new(cobra.Command)
	caddycmd.Commands()["environ"].CobraFunc(environ)
	for _, file := range files {
		if err := environ.Flags().Set("envfile", file); err != nil {
			return fmt.Errorf("reading the env file: %w", err)
		}
	}
	discard, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("reading the env file: %w", err)
	}
	stdout := os.Stdout
	os.Stdout = discard
	defer func() {
		os.Stdout = stdout
		_ = discard.Close()
	}()
	defer muteLogs()() // the caller prints the error
	return environ.RunE(environ, nil)
}

// located returns the failure of a command with its place, or nil if it is not about a module of the configuration.
func located(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	text := strings.TrimPrefix(adminError(err).Error(), "validation: ")
	c, err := configfile.Load(cmd.Flag("config").Value.String(), cmd.Flag("adapter").Value.String())
	if err != nil {
		return nil //nolint:nilerr // the command has reported it
	}
	if failure := c.LoadError(errors.New(text)); failure.Message != text {
		return failure
	}
	return nil
}

// adminError returns the error in a response of the admin API, without Caddy's words and JSON around it.
func adminError(err error) error {
	var body struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(adminResponse(err), &body) != nil || body.Error == "" {
		return err
	}
	return errors.New(body.Error)
}

// adminResponse returns the body of the admin API's response with an error status, which Caddy puts into its error.
func adminResponse(err error) []byte {
	_, response, _ := strings.Cut(err.Error(), "caddy responded with error: HTTP ")
	_, response, _ = strings.Cut(response, ": ") // the status
	return []byte(response)
}

// muteLogs drops what Caddy logs until the returned function is called.
func muteLogs() (unmute func()) {
	_, logger, muted := caddy.BufferedLog()
	return func() {
		muted.FlushTo(zap.NewNop())
		caddy.UnbufferDefaultLogger(logger)
	}
}

// How often and at what interval reload sends a configuration again.
const (
	reloadRepeats  = 20
	reloadInterval = 100 * time.Millisecond
)

// repeatUnanswered repeats the command reload while the admin API closes its connection without a response. Each configuration, also
// one that fails to load, opens a new socket for the admin API, and the kernel then resets the connections that wait at the previous
// one. Loading a configuration twice does no harm. One that is read from a pipe is sent once: the second time, it would be empty.
func repeatUnanswered(reload func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		file := cmd.Flag("config").Value.String()
		if info, err := os.Stat(file); file != "" && (file == "-" || err != nil || !info.Mode().IsRegular()) {
			return reload(cmd, args)
		}
		for range reloadRepeats {
			err := reload(cmd, args)
			if err == nil || !unanswered(err) {
				return err
			}
			cmd.PrintErrln("The admin API closed the connection without a response; sending the configuration again.")
			select {
			case <-cmd.Context().Done():
				return err
			case <-time.After(reloadInterval):
			}
		}
		return reload(cmd, args)
	}
}

// unanswered reports whether Caddy's error, which wraps no cause, is that of a connection that ended before a response.
func unanswered(err error) bool {
	for _, cause := range []error{io.EOF, syscall.ECONNRESET, syscall.EPIPE} {
		if strings.HasSuffix(err.Error(), ": "+cause.Error()) {
			return true
		}
	}
	return false
}
