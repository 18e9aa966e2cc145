package cli

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/gatehouse-gateway/gatehouse/caddymodule"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// The groups of commands in `gatehouse help`.
const (
	groupRun           = "run"
	groupConfiguration = "configuration"
	groupKeys          = "keys"
	groupServer        = "server"
	groupAbout         = "about"
)

// programLong is the description of the program gatehouse.
const programLong = `Gatehouse is an API gateway. It verifies signed requests, enforces rate limits
across a fleet, checks responses against the API's contract, and connects AI
assistants. It is configured by a Caddyfile and runs on the Caddy server.`

const rootExample = `  gatehouse check --config Caddyfile
  gatehouse run --config Caddyfile
  gatehouse keys issue --business-id 3b0f7a9e --business-name Fernhollow --business-slug fernhollow
  gatehouse sign --send GET https://api.example.com%s/me
  gatehouse explain request.txt`

const rootFooter = `{{if not .HasParent}}
Documentation:
  Operating Gatehouse   https://github.com/gatehouse-gateway/gatehouse/blob/main/docs/operating.md
  Directives            https://github.com/gatehouse-gateway/gatehouse/tree/main/docs/directives
  Calling the API       https://github.com/gatehouse-gateway/gatehouse/blob/main/docs/calling.md
{{end}}`

// Main is the main function of the program gatehouse: Caddy's, with help of its own, errors that name the place in a
// configuration, and the log lines of libraries in Caddy's log. A program that only imports this package, such as one that xcaddy
// builds, is Caddy with more modules and commands.
func Main() {
	caddymodule.RedirectLibraryLogs()
	caddy.CustomBinaryName = cmp.Or(caddy.CustomBinaryName, "gatehouse") // -ldflags may have set it
	caddy.CustomLongDescription = programLong
	// Loading a configuration asks the authority of each certificate file for an OCSP response, through this client. Without a timeout, one
	// that does not answer holds it back.
	http.DefaultClient.Timeout = 10 * time.Second
	caddycmd.Main()
}

// configureRoot replaces Caddy's help by ours. Caddy does not export its root command; that of a command that has been added to it
// is the same. Commands that are registered later, by other plugins, are listed as additional ones.
func configureRoot(root *cobra.Command) {
	for _, name := range []string{"upgrade", "add-package", "remove-package"} {
		remove(root, name) // they replace the binary by one from Caddy's build server, without Gatehouse
	}
	remove(root, "completion") // Caddy's does not know the values of flags; cobra's does
	root.InitDefaultCompletionCmd()
	root.Example = fmt.Sprintf(rootExample, definition.Public().Base())
	root.SetHelpTemplate(new(cobra.Command).HelpTemplate() + rootFooter)
	root.DisableAutoGenTag = true // no date in manual pages
	root.AddGroup(
		&cobra.Group{ID: groupRun, Title: "Run the gateway:"},
		&cobra.Group{ID: groupConfiguration, Title: "Check and convert configurations:"},
		&cobra.Group{ID: groupKeys, Title: "Keys and signatures:"},
		&cobra.Group{ID: groupServer, Title: "Other tools of the Caddy server:"},
		&cobra.Group{ID: groupAbout, Title: "About this program:"},
	)
	root.SetHelpCommandGroupID(groupAbout)
	for _, c := range []struct{ name, group, short string }{
		{"run", groupRun, "Runs the gateway until it is stopped"},
		{"start", groupRun, "Starts the gateway in the background"},
		{"stop", groupRun, "Stops a gateway that was started"},
		{"ready", groupRun, ""},
		{"reload", groupRun, "Changes the configuration of the running gateway"},

		{"api", groupConfiguration, ""},
		{"adapt", groupConfiguration, "Prints a Caddyfile as JSON"},
		{"check", groupConfiguration, ""},
		{"conform", groupConfiguration, ""},
		{"fmt", groupConfiguration, "Formats a Caddyfile"},
		{"validate", groupConfiguration, "Says whether a configuration is valid"},

		{"explain", groupKeys, ""},
		{"sign", groupKeys, ""},

		{"file-server", groupServer, ""},
		{"hash-password", groupServer, ""},
		{"respond", groupServer, ""},
		{"reverse-proxy", groupServer, ""},
		{"storage", groupServer, "Exports and imports the stored certificates"},
		{"trust", groupServer, ""},
		{"untrust", groupServer, ""},

		{"build-info", groupAbout, ""},
		{"completion", groupAbout, "Prints the completion script of a shell"},
		{"environ", groupAbout, ""},
		{"list-modules", groupAbout, "Lists the installed modules"},
		{"manpage", groupAbout, "Writes the manual pages of all commands"},
		{"version", groupAbout, ""},
	} {
		if cmd := child(root, c.name); cmd != nil {
			cmd.GroupID = c.group
			if c.short != "" {
				cmd.Short = c.short
			}
		}
	}
	if cmd := child(root, "manpage"); cmd != nil {
		configureManpage(cmd)
	}
	root.InitDefaultHelpCmd()
	configureHelp(child(root, "help"))
	for _, cmd := range root.Commands() {
		if cmd.HasSubCommands() {
			requireSubcommand(cmd)
		}
	}
}

// requireSubcommand makes a missing or unknown sub-command an error. Cobra prints help and exits with 0.
func requireSubcommand(cmd *cobra.Command) {
	cmd.Args = cobra.NoArgs
	cmd.SilenceUsage = true
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var names []string
		for _, sub := range cmd.Commands() {
			names = append(names, sub.Name())
		}
		return fmt.Errorf("missing sub-command: must be one of %s; see %s --help", strings.Join(names, ", "), cmd.CommandPath())
	}
}

// configureHelp makes help for an unknown command an error. Cobra exits with 0.
func configureHelp(help *cobra.Command) {
	show := help.Run
	help.Run = nil
	help.RunE = func(cmd *cobra.Command, args []string) error {
		if _, rest, err := cmd.Root().Find(args); err != nil || len(rest) > 0 {
			return fmt.Errorf("unknown command %q: see %s help", strings.Join(args, " "), cmd.Root().Name())
		}
		show(cmd, args)
		return nil
	}
}

// configureManpage replaces Caddy's command, whose pages have Caddy's title.
func configureManpage(cmd *cobra.Command) {
	cmd.Long = "Writes the manual pages of all commands into a directory, in section 8 (system administration)."
	cmd.Args = cobra.NoArgs
	_ = cmd.MarkFlagRequired("directory")
	_ = cmd.MarkFlagDirname("directory")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir := cmd.Flag("directory").Value.String()
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // manual pages are for everybody
			return fmt.Errorf("creating the directory: %w", err)
		}
		escape(cmd.Root())
		header := &doc.GenManHeader{Section: "8", Source: cmd.Root().Name(), Manual: "Gatehouse"}
		if err := doc.GenManTree(cmd.Root(), header, dir); err != nil {
			return fmt.Errorf("writing the manual pages: %w", err)
		}
		return nil
	}
}

// escape keeps placeholders such as <public key> in synopses from being dropped as HTML.
func escape(cmd *cobra.Command) {
	cmd.Use = strings.ReplaceAll(cmd.Use, "<", `\<`)
	for _, c := range cmd.Commands() {
		escape(c)
	}
}

func child(root *cobra.Command, name string) *cobra.Command {
	for _, cmd := range root.Commands() {
		if cmd.Name() == name {
			return cmd
		}
	}
	return nil
}

func remove(root *cobra.Command, name string) {
	if cmd := child(root, name); cmd != nil {
		root.RemoveCommand(cmd)
	}
	delete(caddycmd.Commands(), name)
}

// notEmpty returns an error if a flag was given without a value, as by a variable that is not set: it must not mean the default.
func notEmpty(cmd *cobra.Command, flags ...string) error {
	for _, name := range flags {
		if f := cmd.Flag(name); f != nil && f.Changed && strings.Trim(f.Value.String(), "[]") == "" {
			return fmt.Errorf("--%s is empty", name)
		}
	}
	return nil
}
