// Command gatehouse is Caddy with the gateway's modules and sub-commands compiled in.
package main

import (
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	"github.com/gatehouse-gateway/gatehouse/caddymodule/cli"
)

func main() {
	cli.Main()
}
