package audit_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/audit"
)

// abandon backdates the pending entries.
func abandon(t *testing.T, client redis.UniversalClient, ago time.Duration) {
	t.Helper()
	key := prefix(t) + "audit:{biz_1}:pending"
	pending, err := client.HGetAll(t.Context(), key).Result()
	require.NoError(t, err)
	require.NotEmpty(t, pending)
	for id, value := range pending {
		var begun int64
		_, err := fmt.Sscan(value, &begun)
		require.NoError(t, err)
		old := fmt.Sprint(begun - ago.Milliseconds())
		require.NoError(t, client.HSet(t.Context(), key, id, old+value[len(old):]).Err())
	}
}

func TestResolvedChangeIsListed(t *testing.T) {
	t.Parallel()
	log, logs := newLog(t, shared.Client(t))
	ctx := t.Context()
	issued, err := log.Begin(ctx, entry(audit.KeyIssued, ""))
	require.NoError(t, err)
	dropped, err := log.Begin(ctx, entry(audit.ConnectionDenied, "other"))
	require.NoError(t, err)
	require.Empty(t, listed(t, log))
	issued.Target = "pk_live_1"
	issued.Resolve(ctx, audit.OutcomeOK)
	issued.Resolve(ctx, audit.OutcomeFailed)
	issued.Drop(ctx)
	dropped.Drop(ctx)
	dropped.Resolve(ctx, audit.OutcomeOK)
	assert.Equal(t, []string{"key.issued pk_live_1 ok"}, listed(t, log), "the first end counts")
	assert.Equal(t, 1, logs.FilterMessage("audit").Len())
}

func TestUnresolvedChangeBecomesUnknown(t *testing.T) {
	t.Parallel()
	client := shared.Client(t)
	log, logs := newLog(t, client)
	ctx := t.Context()
	_, err := log.Begin(ctx, entry(audit.KeyIssued, "of a gateway that died"))
	require.NoError(t, err)
	_, err = log.Begin(ctx, entry(audit.ToolCalled, "contacts_delete"))
	require.NoError(t, err)
	abandon(t, client, audit.ResolveWithin-time.Minute)
	require.Empty(t, listed(t, log), "it may still be under way")
	abandon(t, client, 2*time.Minute)
	require.ElementsMatch(t, []string{"key.issued of a gateway that died unknown", "tool.called contacts_delete unknown"}, listed(t, log))
	require.Len(t, listed(t, log), 2, "once each")
	require.Equal(t, 2, logs.FilterMessage("audit").Len())
	entries, _ := list(t, log, "", 0)
	for _, e := range entries {
		assert.WithinDuration(t, time.Now().Add(-audit.ResolveWithin-time.Minute), e.Time, 30*time.Second, "the time is that of Begin")
	}
}

// again is a hook that runs every script twice, as go-redis does after a reply is lost.
type again struct{ redis.Hook }

func (again) DialHook(next redis.DialHook) redis.DialHook { return next }

func (again) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := next(ctx, cmd); err != nil || cmd.Name() != "evalsha" {
			return err
		}
		return next(ctx, cmd)
	}
}

func (again) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestLostReplyNeitherDuplicatesNorLosesAnEntry(t *testing.T) {
	t.Parallel()
	client := shared.Client(t)
	client.AddHook(again{})
	log, _ := newLog(t, client)
	ctx := t.Context()
	var want []string
	for i := range 5 {
		c, err := log.Begin(ctx, entry(audit.KeyIssued, fmt.Sprint(i)))
		require.NoError(t, err)
		c.Resolve(ctx, audit.OutcomeOK)
		d, err := log.Begin(ctx, entry(audit.KeyIssued, "dropped"))
		require.NoError(t, err)
		d.Drop(ctx)
		require.NoError(t, log.Record(ctx, entry(audit.ToolCalled, fmt.Sprint(i))))
		want = append(want, fmt.Sprintf("key.issued %d ok", i), fmt.Sprintf("tool.called %d ok", i))
	}
	require.ElementsMatch(t, want, listed(t, log))
}

func TestBeginFailsIfTheEntryIsNotStored(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		entry       audit.Entry
		unavailable bool
		want        error
	}{
		"Redis unavailable": {entry(audit.KeyIssued, "x"), true, audit.ErrUnavailable},
		"no business":       {audit.Entry{Action: audit.KeyIssued}, false, audit.ErrInvalidEntry},
		"unknown action":    {entry("key.stolen", ""), false, audit.ErrInvalidEntry},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := shared.Client(t)
			if test.unavailable {
				require.NoError(t, client.Close())
			}
			log, _ := newLog(t, client)
			_, err := log.Begin(t.Context(), test.entry)
			require.ErrorIs(t, err, test.want)
		})
	}
}

func TestToolCallsDoNotDisplaceOtherEntries(t *testing.T) {
	t.Parallel()
	client := shared.Client(t)
	log, _ := newLog(t, client, func(o *audit.Options) { o.MaxEntries = 100 })
	record(t, log, audit.KeyIssued, "pk_live_1")
	for range 1000 {
		record(t, log, audit.ToolCalled, "contacts_update")
	}
	entries, _ := list(t, log, "", 10, audit.KeyIssued)
	require.Len(t, entries, 1)
	// Redis trims by nodes of a hundred entries.
	length, err := client.XLen(t.Context(), prefix(t)+"audit:{biz_1}:tools").Result()
	require.NoError(t, err)
	assert.GreaterOrEqual(t, length, int64(100))
	assert.Less(t, length, int64(300))
}
