package caddymodule_test

import (
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/stretchr/testify/require"
)

// xcaddy builds a program that only imports the package.
func TestImportingThePackageKeepsCaddysNameAndHelp(t *testing.T) {
	t.Parallel()
	require.Empty(t, caddy.CustomBinaryName)
	require.Empty(t, caddy.CustomLongDescription)
}
