package ratelimit

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnsyncedRequestsAreTracked(t *testing.T) {
	t.Parallel()
	var s syncState
	for range 5 {
		s.allowed()
	}
	require.EqualValues(t, 5, s.unsynced(0))
	s.confirm(3, 0)
	require.EqualValues(t, 2, s.unsynced(0))
	s.allowed()
	require.EqualValues(t, 3, s.unsynced(0))
	s.confirm(9, 0)
	require.Zero(t, s.unsynced(0), "Redis may have run a call whose reply was lost")

	require.EqualValues(t, 6, s.unsynced(1), "each of them may be lost")
	s.confirm(6, 0)
	require.EqualValues(t, 6, s.unsynced(1), "a reply of the earlier epoch")
	s.confirm(2, 1)
	require.EqualValues(t, 4, s.unsynced(1))
}
