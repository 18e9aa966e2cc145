package embeddedredis_test

import (
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/embeddedredis"
	"github.com/gatehouse-gateway/gatehouse/internal/test/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Check(m.Run())) }

func TestKeysExpire(t *testing.T) {
	t.Parallel()
	server, err := embeddedredis.Start()
	require.NoError(t, err)
	t.Cleanup(server.Close)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	require.NoError(t, client.Set(t.Context(), "short", 1, 50*time.Millisecond).Err())
	require.NoError(t, client.Set(t.Context(), "long", 1, time.Hour).Err())
	require.Eventually(t, func() bool { return client.Exists(t.Context(), "short").Val() == 0 }, time.Minute, 10*time.Millisecond)
	assert.Equal(t, int64(1), client.Exists(t.Context(), "long").Val())
}
