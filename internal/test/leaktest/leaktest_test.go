package leaktest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Not parallel: other tests' goroutines would be found.
func TestAGoroutineThatIsLeftIsFoundAndOneThatEndsByItselfIsNot(t *testing.T) {
	end := make(chan struct{})
	go func() { <-end }()
	require.ErrorContains(t, find(0), "TestAGoroutineThatIsLeftIsFound")
	time.AfterFunc(time.Second, func() { close(end) }) // which is longer than goleak looks for it
	require.NoError(t, find(patience))
	require.Equal(t, 2, Check(2), "of tests that failed nothing else is said")
	require.Zero(t, Check(0))
}
