package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-gateway/gatehouse/caddymodule"
	"github.com/gatehouse-gateway/gatehouse/connect/mcp"
	"github.com/gatehouse-gateway/gatehouse/internal/cleantext"
	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition/reference"
)

func registerAPI() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "api",
		Usage: "check|publish|docs|drift [<file>] [--overlay <file>] [--only <names>] [--except <names>]",
		Short: "Checks the OpenAPI document of an API, prints the one for callers, and lists deviations from it",
		Long: `
Works on the definition of an API: an OpenAPI document, 3.1 or 3.0, in YAML or
JSON, and OpenAPI Overlays beside it. Without a file, it is the public contract,
which is built in. Nothing is fetched or changed. drift asks the running gateway.`,
		CobraFunc: func(cmd *cobra.Command) {
			cmd.AddCommand(apiCheckCommand(), apiPublishCommand(), apiDocsCommand(), apiDriftCommand())
			requireSubcommand(cmd)
		},
	})
}

// apiFlags are the flags of all commands.
type apiFlags struct{ caddymodule.Definition }

func (a *apiFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&a.Overlays, "overlay", nil, "`file` of an OpenAPI Overlay; may be repeated")
	f.StringSliceVar(&a.Only, "only", nil, "operation IDs and tags that are served (default: all)")
	f.StringSliceVar(&a.Except, "except", nil, "operation IDs and tags that are not served")
	f.StringVar(&a.Name, "name", "", "name of the API, as in the Caddyfile (default: none)")
	f.IntVar(&a.MaxItems, "max-items", 0, "maximum number of items of an array without a maximum (default: 1000)")
	cmd.Args = cobra.MaximumNArgs(1)
	cmd.SilenceUsage = true
}

// load returns the definition of the arguments, or that of the public contract.
func (a *apiFlags) load(cmd *cobra.Command, args []string) (*definition.Definition, error) {
	if err := notEmpty(cmd, "definition", "only", "except"); err != nil {
		return nil, err
	}
	if len(args) > 0 {
		if a.File = args[0]; a.File == "" {
			return nil, errors.New("the name of the document is empty")
		}
	}
	return a.Load() //nolint:wrapcheck // it says what was wrong
}

func apiCheckCommand() *cobra.Command {
	var (
		flags apiFlags
		list  bool
	)
	cmd := &cobra.Command{
		Use:   "check [<file>]",
		Short: "Finds what cannot be enforced, with file, line and JSON Pointer",
		Long: `
Compiles a definition as the gateway does when it loads its configuration. What
cannot be enforced is printed, all at once, and the line "except" with which the
rest would load; then warnings: what is left out, and what is not checked. If an
operation that is served has x-gatehouse-tool, the tools are compiled, too.
https://github.com/gatehouse-gateway/gatehouse/blob/main/docs/frameworks.md has
overlays for what generated documents leave open.

With --list, prints what is served, to whom, and what keeps businesses apart,
and the warnings on standard error. The list does not show headers and queries
for the service, members that callers do not see, visibility, and tools.

Exit status: 0 the definition loads, 1 it does not, or not with its tools.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := flags.load(cmd, args)
			out := cmd.OutOrStdout()
			kind, message, tools, directive := "error", "the definition does not load", "", "gatehouse_api"
			if err == nil && slices.ContainsFunc(d.API.Operations(), func(op *upstream.Operation) bool { return d.Marks[op.ID].Tool }) {
				kind, message, directive = "error of a tool", "the definition loads for gatehouse_api, but not for gatehouse_connect", "gatehouse_connect"
				var tooled *definition.Definition
				if tooled, err = flags.LoadTools(); err == nil {
					if err = mcp.Check(tooled); err != nil {
						return exit(cmd, 1, fmt.Errorf("%s:\n%w", message, err))
					}
					tools = count(len(tooled.Tools), "tool") + ", "
				}
			}
			var failed *definition.LoadError
			switch {
			case errors.As(err, &failed):
				printFaults(out, failed.Faults, kind)
				printFaults(out, failed.Warnings, "warning")
				if len(failed.Except) > 0 {
					_, _ = fmt.Fprintf(out, "\nThe rest loads (%s). Put this line into the block of the definition of %s; the flag --except has commas:\n\n  except %s\n",
						count(failed.Rest, "operation"), directive, tokens(failed.Except))
				}
				return exit(cmd, 1, fmt.Errorf("%s: %s", message, count(len(failed.Faults), "error")))
			case err != nil:
				return exit(cmd, 1, err)
			}
			warnings := out
			if list {
				warnings = cmd.ErrOrStderr()
			}
			printFaults(warnings, d.Warnings, "warning")
			if _, err := d.PublishedDocument(definition.PublishOptions{}); err != nil {
				_, _ = fmt.Fprintf(warnings, "%s: warning: it does not load with docs_path: %s\n", oneLine(flags.File), oneLine(err.Error()))
			}
			if list {
				return printOperations(out, d.API)
			}
			_, err = fmt.Fprintf(out, "The definition loads: %s below %s, %s%s.\n", count(len(d.API.Operations()), "operation"),
				d.API.Base()+"/", tools, count(len(d.Warnings), "warning"))
			return err
		},
	}
	flags.add(cmd)
	cmd.Flags().TextVar(&flags.Enforce, "enforce", upstream.EnforceAll, "`step` of enforcement, as in the Caddyfile: tenant, members or all")
	complete(cmd, "enforce", upstream.Enforcements()...)
	cmd.Flags().BoolVar(&list, "list", false, "print what is served, to whom, and what keeps businesses apart")
	return cmd
}

func apiPublishCommand() *cobra.Command {
	return apiPrintCommand("publish [<file>]", "Prints the OpenAPI document that callers read", `
Prints the published document in YAML: the operations that are served, with what
the gateway enforces of them, and what is the same for every API: signatures,
errors, rate limits. Nothing internal is in it.

What code adds to a generated document is in it, and callers get it. Keep it in
your repository, and let CI fail when it changes without a review:

  gatehouse api publish <file> | diff published.yaml -

To find breaking changes, compare two of them:

  oasdiff breaking old.yaml new.yaml`, definition.Encode)
}

func apiDocsCommand() *cobra.Command {
	return apiPrintCommand("docs [<file>]", "Prints the reference for callers, an HTML page", `
Prints the reference of the published document: one HTML page without scripts,
which loads nothing. It has operations, fields, errors, limits and, for each
operation, signed requests in shell, Python, JavaScript and PHP.

The gateway serves it too: see docs_path of gatehouse_api.`, func(published *yaml.Node) ([]byte, error) { return reference.Render(published, "") })
}

// apiPrintCommand returns a command that prints what is made of the published document.
func apiPrintCommand(use, short, long string, render func(published *yaml.Node) ([]byte, error)) *cobra.Command {
	var flags apiFlags
	var publish definition.PublishOptions
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long,
		RunE: func(cmd *cobra.Command, args []string) error {
			var published *yaml.Node
			var text []byte
			d, err := flags.load(cmd, args)
			if err == nil {
				published, err = d.PublishedDocument(publish)
			}
			if err == nil {
				text, err = render(published)
			}
			if err != nil {
				return exit(cmd, 1, err)
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&publish.BaseURL, "base-url", "", "`URL` of the gateway for callers, without the base path (default: https://api.example.com, an example)")
	cmd.Flags().IntVar(&publish.PerKey, "per-key", 0, "`limit` of a key, in requests a minute, as in the Caddyfile (default: 60)")
	cmd.Flags().IntVar(&publish.PerIP, "per-ip", 0, "`limit` of a client IP, in requests a minute, as in the Caddyfile (default: 10)")
	return cmd
}

// oneLine returns a text without control characters.
func oneLine(s string) string { return strings.ReplaceAll(cleantext.Escape(s), "\n", `\n`) }

// tokens returns names as they stand in a Caddyfile.
func tokens(names []string) string {
	var all []string
	for _, name := range names {
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-") != "" {
			name = `"` + strings.ReplaceAll(name, `"`, `\"`) + `"`
		}
		all = append(all, oneLine(name))
	}
	return strings.Join(all, " ")
}

func printFaults(out io.Writer, faults []*definition.FaultError, kind string) {
	for _, f := range faults {
		_, _ = fmt.Fprintf(out, "%s:%d: %s: %s (%s)\n", oneLine(f.File), f.Line, kind, oneLine(f.Message), oneLine(f.Pointer))
	}
}

// count returns a number with a noun.
func count(n int, noun string) string { return fmt.Sprint(n, " ", english.PluralWord(n, noun, "")) }

// printOperations prints a table of what is served.
func printOperations(out io.Writer, api *upstream.API) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "OPERATION\tREQUEST\tRESOURCE\tCALLERS\tLIMIT\tBUSINESSES ARE KEPT APART BY")
	for _, op := range api.Operations() {
		callers, limit := "signed", "per_key"
		switch {
		case op.Public:
			callers, limit = "anyone", "per_ip"
		case !op.Read:
			callers = "signed, may write"
		}
		_, _ = fmt.Fprintf(w, "%s\t%s %s\t%s\t%s\t%s\t%s\n", cell(op.ID), op.Method, cell(op.Path+servicePath(op)), cell(op.Resource),
			callers, limit, cell(tenantRule(op)))
	}
	return w.Flush() //nolint:wrapcheck // of the standard output
}

// cell returns a text of a document so that it cannot look like several columns, or move those that follow off the screen.
func cell(s string) string { return oneLine(cleantext.Line(s, 200)) }

// servicePath returns the path at the data service, with an arrow, if it is another one.
func servicePath(op *upstream.Operation) string {
	if op.Mapping == nil || op.Mapping.Path == nil {
		return ""
	}
	text := []byte(" → ")
	for _, p := range op.Mapping.Path {
		switch {
		case p.Business:
			text = append(text, "{business}"...)
		case p.PathParam > 0:
			text = append(text, "{"+op.PathParams[p.PathParam-1].Name+"}"...)
		default:
			text = append(text, p.Literal...)
		}
	}
	return string(text)
}

// tenantRule says what keeps businesses apart.
func tenantRule(op *upstream.Operation) string {
	var rule string
	switch {
	case op.ByGateway && op.StaticBody != nil:
		rule = "nothing: all callers get the same response"
	case op.ByGateway:
		rule = "the key: the gateway responds with the key's business"
	case op.TrustsService():
		if rule = "the data service alone, which is told the business"; !op.Mapping.NamesBusiness() {
			rule += " in X-Business-Id only"
		}
	case op.Tenant == upstream.TenantNone:
		rule = "nothing: the operation has no tenant"
	default:
		if rule = op.Tenant + " of " + strings.Join(tenantPlaces(op), ", "); op.TenantInside {
			rule += ", not of every record"
		}
	}
	if op.Unchecked() {
		rule += "; some media types are not checked"
	}
	if op.Enforce != upstream.EnforceAll {
		rule += "; enforce " + op.Enforce.String()
	}
	return rule
}

// tenantPlaces returns pointers to the objects of successful responses whose tenant is checked, without those inside them. Any item of a list or map
// is *.
func tenantPlaces(op *upstream.Operation) (places []string) {
	const most = 4
	without := map[*upstream.Schema]bool{} // nothing was found in them, or they are around the current one
	var find func(s *upstream.Schema, pointer string)
	find = func(s *upstream.Schema, pointer string) {
		switch found := len(places); {
		case s == nil || without[s] || found > most:
		case s.Tenant != "":
			changed := func(p upstream.Property) bool {
				return (p.Name == s.Tenant || p.Name == s.AlsoTenant) && p.From != nil && p.From.Values != nil
			}
			if pointer = cmp.Or(map[string]string{"": "the response", "/*": "every item"}[pointer], pointer); slices.ContainsFunc(s.Properties, changed) {
				pointer += " (values changed)"
			}
			if !slices.Contains(places, pointer) {
				places = append(places, pointer)
			}
		default:
			without[s] = true
			find(s.Items, pointer+"/*")
			find(s.Additional, pointer+"/*")
			for _, p := range s.Properties {
				if !p.Internal {
					find(p.Schema, pointer+"/"+p.Name)
				}
			}
			if s.Choice != nil {
				for _, a := range s.Choice.Alternatives {
					find(a, pointer)
				}
			}
			without[s] = len(places) == found
		}
	}
	for _, r := range op.Responses {
		if r.Succeeds() {
			find(r.Body, "")
		}
	}
	if len(places) > most {
		places[most], places = "…", places[:most+1]
	}
	return places
}
