package caddymodule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

func TestLastRequestReleasesTheClientsOfAReplacedConfiguration(t *testing.T) {
	t.Parallel()
	a := &App{Redis: &RedisConfig{URLs: []string{"redis://127.0.0.1:1/7"}}, logger: zap.NewNop()} // refuses connections
	require.NoError(t, a.OpenRedis())
	open := func() bool {
		_, exists := resources.References(a.acquired[0])
		return exists
	}
	a.users.Add(2)
	require.NoError(t, a.Cleanup())
	require.True(t, open())
	a.userEnded()
	require.True(t, open())
	a.userEnded()
	require.Eventually(t, func() bool { return !open() }, time.Minute, time.Millisecond)
	a.users.Add(1) // of a connection that was not yet closed
	a.userEnded()
}
