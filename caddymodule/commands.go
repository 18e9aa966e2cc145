package caddymodule

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
)

func registerCommands() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "sign",
		Usage: "[--key <public key>] [--secret-env <name>] <method> <url>",
		Short: "Signs a request: prints the headers or a curl command, or sends it",
		Long: `
Prints the three headers of a signed request. With --curl, prints a curl
command instead. With --send, sends the request and prints the response.

The private key is read from the environment variable named by --secret-env
(default GATEHOUSE_SECRET) or from --secret-file. It cannot be given as an
argument, because other users of the machine can see arguments.`,
		CobraFunc: configureSign,
	})
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "keys",
		Usage: "issue|rotate|revoke|list|show [--config <path>] [--json]",
		Short: "Issues, rotates, revokes and lists the keys of calling businesses",
		Long: `
Manages the keys in the credential source of a configuration: Vault or a file.
The default configuration is the Caddyfile in the current directory.

A private key is printed once, when it is issued or rotated. It cannot be shown
again.`,
		CobraFunc: configureKeys,
	})
}
