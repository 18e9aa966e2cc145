package similar_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/similar"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"maxLenght": "maxLength", "MAXLENGTH": "maxLength", "minlength": "minLength", "unpaid": "", "pait": "paid", "": "", "other": "",
		strings.Repeat("maxLength", 10): "",
	} {
		require.Equal(t, want, similar.Nearest(text, []string{"maxLength", "minLength", "paid"}), text)
	}
}
