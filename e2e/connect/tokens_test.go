package connect_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestToolsCostFewTokens counts the tokens that a model reads, by the larger count of two public tokenizers.
func TestToolsCostFewTokens(t *testing.T) {
	t.Parallel()
	facts := drive(t, newEnvironment(t), "tokens.mjs").Facts
	for what, most := range map[string]float64{
		"list":                     8000,
		"list for models":          5200, // names, descriptions and input schemas
		"25 invoices":              2300,
		"25 appointments":          2800,
		"25 contacts":              2300,
		"25 conversations":         2800,
		"25 estimates":             2300,
		"25 jobs":                  2300,
		"open invoices of Zoe":     1500, // in two calls
		"open invoices of Octavia": 1500,
	} {
		n, ok := facts[what].(float64)
		require.True(t, ok, what)
		t.Logf("%s: %.0f of %.0f tokens", what, n, most)
		assert.Positive(t, n, what)
		assert.LessOrEqual(t, n, most, what)
	}
}
