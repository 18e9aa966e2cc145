// Package cli has the commands of Gatehouse: api, check, conform, explain, keys, ready and sign, which importing it adds to Caddy's, and [Main] of
// the program gatehouse.
package cli

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
)

func init() {
	var first *cobra.Command
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "sign",
		Usage: "[--key <public key>] [--secret-env <name>] <method> <url>",
		Short: "Signs a request: prints the headers or a curl command, or sends it",
		Long: `
Prints the three headers of a signed request. With --curl, prints a curl
command instead. With --send, sends the request and prints the response. With
--explain, prints the string to sign, with its control characters visible.

The request target is signed and sent as curl --path-as-is --globoff sends it.
With --send, the exit status is 0 if the response has a status below 400, 4 for
4xx, 5 for 5xx, and 1 if there is no response.

The private key is read from the environment variable named by --secret-env
(default GATEHOUSE_SECRET) or from --secret-file. It cannot be given as an
argument, because other users of the machine can see arguments.`,
		CobraFunc: func(cmd *cobra.Command) {
			first = cmd
			configureSign(cmd)
		},
	})
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "explain",
		Usage: "[--secret-env <name>] [--base-url <url>] [--at <time>] [--json] <file>|-|--id <request ID>",
		Short: "Explains why the signature of a captured request is wrong",
		Long: `
Reads one captured request: raw HTTP/1.1, also as curl -v prints it, or a curl
command line. Says whether its signature is correct and, if not, which known
mistake it contains and how to correct it; and how old the timestamp is.

A capture is only data: nothing in it is expanded, and no file that it names is
read. The capture must be a regular file of at most 4 MiB.

The private key is read from the environment variable named by --secret-env
(default GATEHOUSE_SECRET) or from --secret-file. Nothing is sent.

With --id, asks the admin API of the running gateway about one of the last 512
requests that it denied for invalid credentials. The gateway searches with the
stored credential and returns the mistake, but nothing that helps to sign.

Exit status: 0 verified, 1 a mistake was found, 2 no known mistake fits,
3 the input cannot be read.`,
		CobraFunc: configureExplain,
	})
	registerCheck()
	registerConform()
	registerAPI()
	registerReady()
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "keys",
		Usage: "issue|update|rotate|revoke|list|show [--config <path>] [--json]",
		Short: "Issues, changes, rotates, revokes and lists the keys of calling businesses",
		Long: `
Manages the keys in the credential source of a configuration: Vault or a file.
The default configuration is the Caddyfile in the current directory.

A private key is printed once, when it is issued or rotated. It cannot be shown
again.`,
		CobraFunc: func(cmd *cobra.Command) {
			configureKeys(cmd)
			root := first.Root()          // the first command has been added to it, and Caddy's before
			if root.Long == programLong { // set by Main
				cmd.GroupID = groupKeys // it has not been added yet
				configureRoot(root)
				explainLoadErrors(root)
			}
		},
	})
}
