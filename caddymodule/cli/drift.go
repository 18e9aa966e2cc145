package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/gatehouse-gateway/gatehouse/caddymodule"
	"github.com/gatehouse-gateway/gatehouse/internal/cleantext"
)

// maxDriftColumn is the maximum number of characters of a name or pointer in a table.
const maxDriftColumn = 80

// driftCommand holds the flags of `gatehouse api drift`.
type driftCommand struct {
	adminAPI
	operation string
	json      bool
}

func apiDriftCommand() *cobra.Command {
	c := new(driftCommand)
	cmd := &cobra.Command{
		Use:   "drift",
		Short: "Lists how responses have deviated from their definitions and passed",
		Long: `
Asks the admin API of the running gateway how the responses of data services have
deviated from the definition, for the operations of which not everything is
enforced: enforce tenant or enforce members of gatehouse_api, or
x-gatehouse-enforce. docs/observe.md says what to do about it.

Pointers are JSON Pointers, with * for each item of a list and for names that
are not identifiers. No value of a response is kept. The numbers are those of one
gateway, from its start or from the reload that changed the definition or its
option enforce: ask each of a fleet.

Exit status: 0 also if there are deviations, 1 the gateway cannot be asked.`,
		Args: cobra.NoArgs, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := c.run()
			if err != nil {
				return exit(cmd, 1, err)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), cleantext.Escape(text))
			return err
		},
	}
	c.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&c.operation, "operation", "", "`ID` of the only operation to list, such as listOrders or shop/listOrders")
	f.BoolVar(&c.json, "json", false, "print JSON")
	return cmd
}

// run returns what is printed.
func (c *driftCommand) run() (string, error) {
	var d caddymodule.Drift
	if err := c.get(caddymodule.AdminDriftPath, &d); err != nil {
		return "", err
	}
	if c.operation != "" {
		d.Operations = slices.DeleteFunc(d.Operations, func(o caddymodule.OperationDrift) bool { return c.operation != o.Operation && c.operation != o.Label() })
		if len(d.Operations) == 0 {
			return "", fmt.Errorf("operation %q does not exist, or everything of it is enforced", c.operation)
		}
	}
	if !c.json {
		return driftText(d), nil
	}
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return "", fmt.Errorf("printing the drift: %w", err)
	}
	return string(text) + "\n", nil
}

// driftText returns a table for each operation.
func driftText(d caddymodule.Drift) string {
	if len(d.Operations) == 0 {
		return "Everything is enforced: no response may deviate from its definition.\n"
	}
	var b strings.Builder
	for i, o := range d.Operations {
		if i > 0 {
			b.WriteString("\n")
		}
		with := "without"
		if len(o.Entries) > 0 || o.Others > 0 {
			with = "with"
		}
		fmt.Fprintf(&b, "%s, enforce %s: %s of this gateway since %s, %s deviations\n",
			column(o.Label()), o.Enforce, count(int(o.Responses), "response"), o.Since.Format(time.RFC3339), with)
		isMapped := slices.ContainsFunc(o.Entries, func(e caddymodule.DriftEntry) bool { return e.From != "" })
		from := func(text string) string {
			if isMapped {
				return "\t" + column(text)
			}
			return ""
		}
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for i, e := range o.Entries {
			if i == 0 {
				_, _ = fmt.Fprintln(w, "  COUNT\tRULE\tPOINTER"+from("FROM")+"\tFIRST SEEN\tLAST SEEN")
			}
			_, _ = fmt.Fprintf(w, "  %d\t%s\t%s%s\t%s\t%s\n", e.Count, column(e.Rule), column(e.Pointer), from(e.From), e.FirstSeen.Format(time.RFC3339), e.LastSeen.Format(time.RFC3339))
		}
		_ = w.Flush() // a builder does not fail
		if o.Others > 0 {
			fmt.Fprintf(&b, "  and %s that did not fit into the list\n", count(int(o.Others), "other"))
		}
	}
	return b.String()
}

// column returns a text without control characters, shortened in the middle.
func column(s string) string {
	s = oneLine(s)
	if runes := []rune(s); len(runes) > maxDriftColumn {
		return string(runes[:maxDriftColumn/2]) + "…" + string(runes[len(runes)-maxDriftColumn/2+1:])
	}
	return s
}
