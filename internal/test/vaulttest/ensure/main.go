// Command ensure builds the tests' Vault server, if it is not built yet, and prints its path:
//
//	GATEHOUSE_VAULTTEST_BIN=$(go run ./internal/test/vaulttest/ensure) go test ./...
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/gatehouse-gateway/gatehouse/internal/test/vaulttest"
)

func main() {
	path, err := vaulttest.Binary(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "vaulttest:", err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stdout, path)
}
