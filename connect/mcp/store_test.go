package mcp_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/mcp"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

// busiest is the number of calls that a connection can make within [mcp.IdempotencyWindow]: ten minutes at its rate, and a burst.
const busiest = 11 * 120

// adds makes the calls from first to before end, each of which creates a contact, and returns their keys.
func adds(t *testing.T, m *mcp.Store, first, end int) []string {
	t.Helper()
	var keys []string
	for i := first; i < end; i++ {
		key, err := m.Key(t.Context(), "g", "contacts", fmt.Sprint("call ", i))
		require.NoError(t, err)
		_, err = m.RecordCreated(t.Context(), "g", "contacts", fmt.Sprint("call ", i), key, fmt.Sprint("contact ", i))
		require.NoError(t, err)
		keys = append(keys, key)
	}
	return keys
}

func TestIdempotencyKeysOfABusyConnectionSurviveTheWindow(t *testing.T) {
	t.Parallel()
	m := mcp.NewStore(patient(t, redistest.Start(t).Options().Simple()), "")
	keys := adds(t, m, 0, busiest)
	require.Equal(t, keys, adds(t, m, 0, busiest))
}

func TestOnlyExpiredIdempotencyKeysAreRemoved(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	client := patient(t, &redis.Options{Addr: server.Addr()})
	m := mcp.NewStore(client, "")
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	server.SetTime(now)
	size := func() int64 {
		keys := server.Keys()
		require.Len(t, keys, 1)
		n, err := client.HLen(t.Context(), keys[0]).Result()
		require.NoError(t, err)
		return n
	}
	old := adds(t, m, 0, busiest)
	server.SetTime(now.Add(mcp.IdempotencyWindow / 2))
	recent := adds(t, m, busiest, 3*busiest/2)
	server.SetTime(now.Add(mcp.IdempotencyWindow + time.Second))
	later := adds(t, m, 3*busiest/2, 5*busiest/2)
	assert.Less(t, size(), int64(4*busiest))
	assert.Equal(t, recent, adds(t, m, busiest, 3*busiest/2))
	assert.Equal(t, later, adds(t, m, 3*busiest/2, 5*busiest/2))
	assert.NotEqual(t, old[0], adds(t, m, 0, 1)[0])
	// A created record can still be removed from the store, so that it can be created again.
	require.NoError(t, m.ForgetCreated(t.Context(), "g", "contacts", fmt.Sprint("contact ", busiest)))
	assert.NotEqual(t, recent[0], adds(t, m, busiest, busiest+1)[0])
}

// A replica that is promoted may have an earlier clock.
func TestIdempotencyKeysSurviveAClockThatStepsBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithClock())
	m := mcp.NewStore(patient(t, server.Options().Simple()), "")
	keys := adds(t, m, 0, 3)
	for _, back := range []time.Duration{time.Second, 2 * time.Minute, mcp.IdempotencyWindow - time.Minute} {
		require.NoError(t, server.StepClock(-back))
		require.Equal(t, keys, adds(t, m, 0, 3), "by %v", back)
	}
	other := adds(t, m, 3, 4)
	require.NotContains(t, keys, other[0])
	require.Equal(t, keys, adds(t, m, 0, 3), "pruned in between")
	require.NoError(t, server.StepClock(-2*mcp.IdempotencyWindow))
	require.NotEqual(t, keys, adds(t, m, 0, 3), "a key is not kept for longer than two windows")
}

func TestForgettingARecordKeepsTheKeyOfALaterCall(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	m := mcp.NewStore(patient(t, &redis.Options{Addr: server.Addr()}), "")
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	server.SetTime(now)
	key := func() string {
		key, err := m.Key(t.Context(), "g", "contacts", "call")
		require.NoError(t, err)
		return key
	}
	created := func(key, record string) {
		known, err := m.RecordCreated(t.Context(), "g", "contacts", "call", key, record)
		require.NoError(t, err)
		require.False(t, known)
		known, err = m.RecordCreated(t.Context(), "g", "contacts", "call", key, record)
		require.NoError(t, err)
		require.True(t, known, "a retry")
	}
	forget := func(record string) { require.NoError(t, m.ForgetCreated(t.Context(), "g", "contacts", record)) }
	first := key()
	created(first, "contact 1")
	server.SetTime(now.Add(mcp.IdempotencyWindow + time.Second))
	second := key()
	require.NotEqual(t, first, second)
	forget("contact 1")
	require.Equal(t, second, key(), "a retry of the second call")
	created(second, "contact 2")
	forget("contact 2")
	require.NotEqual(t, second, key())
}

// A business can have 100 connections, each with a hash for every area.
func TestExpiredCallsTakeNoMemoryWhileOthersAreMade(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithClock())
	client := patient(t, server.Options().Simple())
	m := mcp.NewStore(client, "")
	step := func(d time.Duration) { require.NoError(t, server.StepClock(d)) }
	size := func() int64 {
		keys := client.Keys(t.Context(), "*").Val()
		require.Len(t, keys, 1)
		return client.HLen(t.Context(), keys[0]).Val()
	}
	adds(t, m, 0, busiest)
	require.GreaterOrEqual(t, size(), int64(2*busiest))
	step(mcp.IdempotencyWindow - time.Minute)
	recent := adds(t, m, busiest, busiest+1)
	step(mcp.IdempotencyWindow + time.Minute)
	adds(t, m, busiest+1, busiest+2)
	require.LessOrEqual(t, size(), int64(6), "two calls, their records, an attempt, and when it was pruned")
	require.Equal(t, recent, adds(t, m, busiest, busiest+1))
}
