package conform_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream/conform"
)

func TestRulesAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/conform.md")
	require.NoError(t, err)
	for _, rule := range conform.Rules() {
		kind := "fault"
		if rule.Hint {
			kind = "hint"
		}
		assert.Contains(t, string(page), fmt.Sprintf("| `%s` | %s | %s |\n", rule.Name, rule.What, kind))
	}
}
