// Command gatehouse is Caddy with the gateway's modules and sub-commands compiled in.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/gatehouse-gateway/gatehouse/caddymodule"
)

func main() {
	caddycmd.Main()
}
