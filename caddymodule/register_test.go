package caddymodule_test

import (
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/assert"
)

// xcaddy builds a program that only imports the package.
func TestImportingThePackageKeepsCaddysNameAndHelp(t *testing.T) {
	t.Parallel()
	assert.Empty(t, caddy.CustomBinaryName)
	assert.Empty(t, caddy.CustomLongDescription)
}
