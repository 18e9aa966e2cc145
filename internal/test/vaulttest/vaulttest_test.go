package vaulttest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/vaulttest"
)

func TestPersistentServerKeepsSecretsAcrossRestarts(t *testing.T) {
	t.Parallel()
	s := vaulttest.Start(t, vaulttest.Options{Persistent: true})
	_, err := s.Client(t).KVv2("kv").Put(t.Context(), "a", map[string]any{"b": "c"})
	require.NoError(t, err)
	_, err = s.Client(t).Logical().WriteWithContext(t.Context(), "kv1/a", map[string]any{"b": "c"})
	require.NoError(t, err)

	s.Kill(t)
	_, err = s.Client(t).KVv2("kv").Get(t.Context(), "a")
	require.Error(t, err)

	s.Restart(t)
	got, err := s.Client(t).KVv2("kv").Get(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, map[string]any{"b": "c"}, got.Data)

	s.RestartSealed(t)
	_, err = s.Client(t).KVv2("kv").Get(t.Context(), "a")
	require.Error(t, err)
	s.Unseal(t)
	_, err = s.Client(t).KVv2("kv").Get(t.Context(), "a")
	require.NoError(t, err)
}

func TestPausedServerDoesNotRespondUntilResumed(t *testing.T) {
	t.Parallel()
	s := vaulttest.Start(t, vaulttest.Options{TLS: true})
	s.Pause(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := s.Client(t).Sys().HealthWithContext(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	s.Resume(t)
	_, err = s.Client(t).Sys().HealthWithContext(t.Context())
	require.NoError(t, err)
}

func TestSealedServerRejectsRequestsUntilUnsealed(t *testing.T) {
	t.Parallel()
	s := vaulttest.Start(t, vaulttest.Options{})
	s.Seal(t)
	_, err := s.Client(t).Logical().ReadWithContext(t.Context(), "kv/config")
	require.ErrorContains(t, err, "sealed")
	s.Unseal(t)
	_, err = s.Client(t).Logical().ReadWithContext(t.Context(), "kv/config")
	require.NoError(t, err)
}

func TestStandbyRedirectsToTheActiveNode(t *testing.T) {
	t.Parallel()
	s := vaulttest.Start(t, vaulttest.Options{Standby: true})
	client := s.Client(t)
	require.NoError(t, client.SetAddress(s.StandbyAddr))
	health, err := client.Sys().HealthWithContext(t.Context())
	require.NoError(t, err)
	require.True(t, health.Standby)
	_, err = client.Logical().ReadWithContext(t.Context(), "kv/config")
	require.NoError(t, err)
}
