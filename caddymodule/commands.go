package caddymodule

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
)

// registerCommands adds the sub-commands to Caddy's own.
func registerCommands() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "sign",
		Usage: "[--key <public key>] [--secret-env <name>] <method> <url>",
		Short: "Signs a request: prints the headers or a curl command, or sends it",
		Long: `
Prints the three headers of a signed request. With --curl it prints a curl
command instead, and with --send it sends the request and prints the answer.

The private key is read from the environment variable that --secret-env names
(default GATEHOUSE_SECRET), or from --secret-file; it is never an argument.`,
		CobraFunc: configureSign,
	})
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "keys",
		Usage: "issue|rotate|revoke|list|show [--config <path>] [--json]",
		Short: "Issues, rotates, revokes and lists the keys of calling businesses",
		Long: `
Works on the credential source of a configuration (--config, default the
Caddyfile of this folder): Vault or a file. A private key is printed once, when
it is issued or rotated, and cannot be had again.`,
		CobraFunc: configureKeys,
	})
}
