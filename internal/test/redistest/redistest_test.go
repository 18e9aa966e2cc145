package redistest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMissingRedisIsReported(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := launch(t.TempDir())
	require.ErrorIs(t, err, ErrNoRedis)
}

func TestInvalidDirectiveIsReported(t *testing.T) {
	t.Parallel()
	_, err := launch(t.TempDir(), WithConfig("no-such-directive", "1"))
	require.ErrorContains(t, err, "no-such-directive")
}
