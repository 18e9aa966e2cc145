package docs_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/openapitest"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// Public also checks that the document is valid OpenAPI 3.1.
func TestOpenAPIExamplesMatchTheirSchemas(t *testing.T) {
	t.Parallel()
	doc, err := openapitest.Public()
	require.NoError(t, err)
	require.NoError(t, doc.Examples())
}

func TestOpenAPIPathsAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	doc, err := openapitest.Public()
	require.NoError(t, err)
	paths := definition.Public().Paths()
	want := make([]string, 0, 2*len(paths))
	for _, path := range paths {
		want = append(want, "GET "+path.Template, "HEAD "+path.Template)
	}
	slices.Sort(want)
	require.Equal(t, want, doc.Operations())
}
