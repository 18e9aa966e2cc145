package ratelimit

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSomeCanaryLastsAsLongAsAnyWindow, whatever is stored in between: windows differ in length, and what Redis is told after
// an outage leaves before what it has heard last.
func TestSomeCanaryLastsAsLongAsAnyWindow(t *testing.T) {
	t.Parallel()
	var c canaries
	list := func() (until []int64) {
		c.visit(func(one canary) bool {
			until = append(until, one.until)
			return true
		})
		return until
	}
	add := func(until int64) { c.add("node", canary{id: id{byte(until), byte(until >> 8)}, until: until}) }
	look := func() {
		found := make(map[id]bool)
		c.visit(func(one canary) bool {
			found[one.id] = true
			return true
		})
		c.seen(found)
	}
	require.True(t, c.none())
	for _, until := range []int64{100, 30, 70, 50} {
		add(until)
	}
	require.Equal(t, []int64{100, 30, 70, 50}, list())
	look()
	require.Equal(t, []int64{100, 70, 50}, list(), "what leaves before something newer is not needed")
	add(60)
	require.Equal(t, []int64{100, 70, 50, 60}, list())
	look()
	require.Equal(t, []int64{100, 70, 60}, list())
	add(200)
	c.seen(nil)
	require.Equal(t, []int64{100, 70, 60, 200}, list(), "what a look has not found stays")
	look()
	require.Equal(t, []int64{200}, list())
	for until := int64(1000); until > 900; until-- {
		add(until)
		require.LessOrEqual(t, len(list()), 2*maxCanaries)
	}
	require.Contains(t, list(), int64(1000))
	look()
	require.LessOrEqual(t, len(list()), maxCanaries)
	require.Contains(t, list(), int64(1000))
	c.visit(func(canary) bool { return false })
	require.True(t, c.none())
}
