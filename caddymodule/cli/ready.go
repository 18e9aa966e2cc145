package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/gatehouse-gateway/gatehouse/caddymodule"
	"github.com/gatehouse-gateway/gatehouse/internal/cleantext"
)

func registerReady() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "ready",
		Usage: "[--address <interface>] [--config <path> [--adapter <name>]]",
		Short: "Says whether the running gateway can serve signed requests",
		Long: `
Asks the admin API of the running gateway for its readiness, with the cause of
each check that fails: the same state as /readyz. Says so if the gateway runs
another version than this program. The image uses it as its health check.

Exit status: 0 also if the gateway is degraded, 1 if it cannot serve signed
requests or cannot be asked.`,
		CobraFunc: func(cmd *cobra.Command) {
			var admin adminAPI
			admin.addFlags(cmd)
			cmd.Args, cmd.SilenceUsage = cobra.NoArgs, true
			cmd.RunE = func(cmd *cobra.Command, _ []string) error {
				text, err := ready(&admin)
				if err != nil {
					return exit(cmd, 1, err)
				}
				_, err = fmt.Fprint(cmd.OutOrStdout(), text)
				return err
			}
		},
	})
}

// ready returns the state of a gateway that can serve signed requests, for people.
func ready(admin *adminAPI) (string, error) {
	var state struct {
		Status  string            `json:"status"`
		Version string            `json:"version"`
		Checks  map[string]string `json:"checks"`
		Causes  map[string]string `json:"causes"`
	}
	err := admin.get(caddymodule.AdminReadyPath, &state)
	if err != nil && (json.Unmarshal(adminResponse(err), &state) != nil || state.Status == "") {
		return "", err
	}
	var b strings.Builder
	b.WriteString(state.Status + "\n")
	if installed, _ := caddy.Version(); installed != state.Version {
		fmt.Fprintf(&b, "  the gateway runs version %s, and this program is %s: restart the gateway\n", cmp.Or(state.Version, "unknown"), installed)
	}
	for _, name := range slices.Sorted(maps.Keys(state.Checks)) {
		fmt.Fprintf(&b, "  %s: %s", name, state.Checks[name])
		if cause := state.Causes[name]; cause != "" {
			b.WriteString(": " + cause)
		}
		b.WriteString("\n")
	}
	if err != nil {
		return "", fmt.Errorf("the gateway cannot serve signed requests: %s", strings.TrimSuffix(b.String(), "\n"))
	}
	return cleantext.Escape(b.String()), nil
}
