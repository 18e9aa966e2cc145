package ratelimit

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSomeCheckpointOutlivesEveryWindow: windows differ in length, and synced requests expire before newer ones.
func TestSomeCheckpointOutlivesEveryWindow(t *testing.T) {
	t.Parallel()
	var c checkpoints
	list := func() (until []int64) {
		c.visit(func(one checkpoint) bool {
			until = append(until, one.until)
			return true
		})
		return until
	}
	idOf := func(until int64) counterID { return counterID{byte(until), byte(until >> 8)} }
	add := func(until int64) { c.add("node", checkpoint{id: idOf(until), until: until}) }
	check := func() {
		intact := make(map[counterID]bool)
		for _, until := range list() {
			intact[idOf(until)] = true
		}
		c.markChecked(intact)
	}
	require.True(t, c.empty())
	for _, until := range []int64{100, 30, 70, 50} {
		add(until)
	}
	require.Equal(t, []int64{100, 30, 70, 50}, list())
	check()
	require.Equal(t, []int64{100, 70, 50}, list(), "a checkpoint that expires before a newer one is not needed")
	add(60)
	require.Equal(t, []int64{100, 70, 50, 60}, list())
	check()
	require.Equal(t, []int64{100, 70, 60}, list())
	c.add("node", checkpoint{id: idOf(90), until: 90, resent: true})
	check()
	require.Equal(t, []int64{100, 70, 60, 90}, list(), "what was resent may have been stored before the others")
	add(200)
	c.markChecked(nil)
	require.Equal(t, []int64{100, 70, 60, 90, 200}, list(), "a checkpoint that was not checked must stay")
	check()
	require.Equal(t, []int64{200}, list())
	for until := int64(1000); until > 900; until-- {
		add(until)
		require.LessOrEqual(t, len(list()), 2*maxCheckpoints)
	}
	require.Contains(t, list(), int64(1000))
	check()
	require.LessOrEqual(t, len(list()), maxCheckpoints)
	require.Contains(t, list(), int64(1000))
	c.visit(func(checkpoint) bool { return false })
	require.True(t, c.empty())
}
