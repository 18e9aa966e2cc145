package cli_test

import (
	"testing"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/stretchr/testify/assert"

	_ "github.com/gatehouse-gateway/gatehouse/caddymodule/cli"
)

// xcaddy builds a program that only imports the package: Caddy, with more modules and commands.
func TestImportingThePackageAddsCommandsAndKeepsCaddysNameAndHelp(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"check", "conform", "explain", "keys", "sign"} {
		assert.Contains(t, caddycmd.Commands(), name)
	}
	_, err := caddy.GetModule("gatehouse")
	assert.NoError(t, err)
	assert.Empty(t, caddy.CustomBinaryName)
	assert.Empty(t, caddy.CustomLongDescription)
}
