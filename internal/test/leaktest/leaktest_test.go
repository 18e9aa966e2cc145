package leaktest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Not parallel, because it would find the goroutines of other tests.
func TestLeakedGoroutineIsFound(t *testing.T) {
	end := make(chan struct{})
	go func() { <-end }()
	require.ErrorContains(t, find(0), "TestLeakedGoroutineIsFound")
	time.AfterFunc(time.Second, func() { close(end) }) // longer than goleak waits
	require.NoError(t, find(patience))
	assert.Equal(t, 2, Check(2), "the tests had failed")
	assert.Zero(t, Check(0))
}
