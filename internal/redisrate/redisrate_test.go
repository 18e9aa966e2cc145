package redisrate_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/redisrate"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

// between is a hook that is called after each command.
type between func()

func (between) DialHook(next redis.DialHook) redis.DialHook { return next }

func (between) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (f between) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		f()
		return err
	}
}

// A caller whose limit is used up would get a whole one, if another request came between two commands of the first that notices the step.
func TestNobodyGainsRequestsWhileAClockStepIsCorrected(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithClock())
	limit := redis_rate.PerMinute(10)
	others := redisrate.New(server.Client(t))
	for range limit.Burst {
		r, err := others.Allow(t.Context(), "key", limit)
		require.NoError(t, err)
		require.Equal(t, 1, r.Allowed)
	}
	require.NoError(t, server.StepClock(-10*time.Minute))
	client := server.Client(t)
	require.NoError(t, client.Ping(t.Context()).Err()) // connects
	client.AddHook(between(func() {
		r, err := others.Allow(t.Context(), "key", limit)
		assert.NoError(t, err)
		assert.Zero(t, r.Allowed)
	}))
	r, err := redisrate.New(client).Allow(t.Context(), "key", limit)
	require.NoError(t, err)
	require.Zero(t, r.Allowed)
	require.Equal(t, 6*time.Second, r.RetryAfter)
	require.LessOrEqual(t, r.ResetAfter, time.Minute)

	r, err = others.Allow(t.Context(), "key", limit)
	require.NoError(t, err)
	require.Zero(t, r.Allowed)
	require.NoError(t, server.StepClock(-10*time.Minute+7*time.Second))
	r, err = others.Allow(t.Context(), "key", limit)
	require.NoError(t, err)
	require.Equal(t, 1, r.Allowed, "requests are allowed again one after the other")
}
