package redisclient_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/redisclient"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

// The connection server's commands end after two seconds. If they waited as long for a connection, nothing would count that there is none.
func TestCommandsThatGetNoConnectionAreCounted(t *testing.T) {
	t.Parallel()
	o := redistest.Start(t).Options()
	o.PoolSize = 1
	client := redisclient.New(o)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	require.NoError(t, client.Watch(ctx, func(*redis.Tx) error { // it has the only connection
		require.ErrorIs(t, client.Get(ctx, "key").Err(), redis.ErrPoolTimeout)
		return nil
	}, "key"))
	require.EqualValues(t, 1, client.PoolStats().Timeouts)
}
