package caddymodule_test

import (
	"testing"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/stretchr/testify/assert"

	_ "github.com/gatehouse-gateway/gatehouse/caddymodule"
)

// A program that uses the modules gets no commands unless it imports package cli.
func TestImportingTheModulesRegistersNoCommands(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"check", "conform", "explain", "keys", "sign"} {
		assert.NotContains(t, caddycmd.Commands(), name)
	}
}
