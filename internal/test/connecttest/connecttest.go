// Package connecttest has the embedded definition of the connection server for tests of packages that package connect imports.
package connecttest

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/scope"
	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// loaded is the embedded definition, compiled once, because that takes long under the race detector. Tests run in the folder of
// their package, which must be one below package connect.
var loaded = sync.OnceValues(func() (*definition.Definition, error) {
	text, err := os.ReadFile("../definition.yaml")
	if err != nil {
		return nil, fmt.Errorf("reading the definition: %w", err)
	}
	return definition.Load(definition.File{Name: "connect/definition.yaml", Text: text}, definition.Options{Tools: true})
})

// Definition returns the embedded definition.
func Definition(t testing.TB) *definition.Definition {
	t.Helper()
	d, err := loaded()
	require.NoError(t, err)
	return d
}

// Areas returns the areas of the embedded definition.
func Areas(t testing.TB) scope.Areas {
	t.Helper()
	return scope.New(Definition(t).Areas)
}

// Operation returns an operation of the embedded definition.
func Operation(t testing.TB, id string) *upstream.Operation {
	t.Helper()
	for _, op := range Definition(t).API.Operations() {
		if op.ID == id {
			return op
		}
	}
	t.Fatalf("no operation has the ID %s", id)
	return nil
}
