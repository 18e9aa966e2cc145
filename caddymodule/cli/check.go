package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/gatehouse-gateway/gatehouse/caddymodule"
	"github.com/gatehouse-gateway/gatehouse/caddymodule/internal/check"
)

// The exit statuses of `gatehouse check`.
const (
	checkClean    = 0 // or only warnings
	checkErrors   = 1
	checkSkipped  = 2 // no errors, but something could not be checked
	checkBadInput = 3
)

// checkCommand holds the flags of `gatehouse check`.
type checkCommand struct {
	config, adapter, business string
	offline, json, sarif      bool
}

func registerCheck() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "check",
		Usage: "[--config <path>] [--adapter <name>] [--envfile <path>] [--business <id>] [--offline] [--json|--sarif]",
		Short: "Finds mistakes in a configuration, and in the stores and services that it uses",
		Long: `
Applies the rules of docs/check.md to a configuration and prints what is wrong,
where, and how to correct it. The default configuration is the Caddyfile in the
current directory. Nothing is changed or started.

First builds everything, as validate does, then asks Redis, Vault and the data
services. With --offline, connects to nothing, and files and environment
variables that the configuration names may be missing.

Exit status: 0 no errors (there may be warnings), 1 errors, 2 no errors but
something could not be checked, 3 the configuration cannot be read.`,
		CobraFunc: configureCheck,
	})
}

func configureCheck(cmd *cobra.Command) {
	c := new(checkCommand)
	cmd.SilenceUsage = true
	f := cmd.Flags()
	f.StringVarP(&c.config, "config", "c", "", "configuration file (default: the Caddyfile in the current directory)")
	f.StringVarP(&c.adapter, "adapter", "a", "", "name of the config adapter to use")
	f.StringSlice("envfile", nil, "environment files to load")
	f.StringVar(&c.business, "business", "", "business for which data services are asked (default: that of a key in the credential file)")
	f.BoolVar(&c.offline, "offline", false, "look at the configuration only")
	f.BoolVar(&c.json, "json", false, "print JSON")
	f.BoolVar(&c.sarif, "sarif", false, "print SARIF 2.1.0, for code scanning")
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return exit(cmd, checkBadInput, err) })
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return exit(cmd, checkBadInput, errors.New("check takes no arguments: name the configuration with --config"))
		case c.json && c.sarif:
			return exit(cmd, checkBadInput, errors.New("--json and --sarif cannot be combined"))
		}
		if err := loadEnvFiles(cmd); err != nil {
			return exit(cmd, checkBadInput, err)
		}
		status, err := c.run(cmd)
		return exit(cmd, status, err)
	}
}

func (c *checkCommand) run(cmd *cobra.Command) (status int, err error) {
	report, err := c.check(cmd.Context(), cmd.ErrOrStderr())
	if err != nil {
		return checkBadInput, err
	}
	out := cmd.OutOrStdout()
	switch {
	case c.json:
		err = report.EncodeJSON(out)
	case c.sarif:
		err = report.EncodeSARIF(out)
	default:
		err = report.Print(out)
	}
	switch {
	case err != nil:
		return checkBadInput, fmt.Errorf("printing the report: %w", err)
	case report.Count(check.SeverityError) > 0:
		return checkErrors, nil
	case len(report.Skipped) > 0:
		return checkSkipped, nil
	}
	return checkClean, nil
}

// check checks the configuration. It discards what Caddy and the modules log meanwhile.
func (c *checkCommand) check(ctx context.Context, progress io.Writer) (check.Report, error) {
	defer muteLogs()()
	o := caddymodule.CheckOptions()
	o.Offline, o.Business, o.Progress = c.offline, c.business, progress
	return check.Run(ctx, c.config, c.adapter, o)
}
