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
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
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

// One business with many calls that wait must not keep Redis busy for all others.
func TestStepsLookAtFewPendingEntries(t *testing.T) {
	t.Parallel()
	client := shared.Client(t)
	log, _ := newLog(t, client)
	ctx := t.Context()
	_, err := log.Begin(ctx, entry(audit.KeyIssued, "first"))
	require.NoError(t, err)
	abandon(t, client, audit.ResolveWithin+time.Minute)
	key := prefix(t) + "audit:{biz_1}:pending"
	pending, err := client.HVals(ctx, key).Result()
	require.NoError(t, err)
	const more = 1500
	for i := range more {
		require.NoError(t, client.HSet(ctx, key, fmt.Sprint("more", i), pending[0]).Err())
	}
	_, err = log.Begin(ctx, entry(audit.KeyIssued, "last"))
	require.NoError(t, err)
	require.InDelta(t, more+2-16, client.HLen(ctx, key).Val(), 1, "the last one may be among the 16")
	for range 2 {
		listed(t, log)
	}
	require.EqualValues(t, 1, client.HLen(ctx, key).Val())
}

// again runs every script twice, as go-redis does after a reply is lost.
func again(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if err := next(ctx, cmd); err != nil || cmd.Name() != "evalsha" {
		return err
	}
	return next(ctx, cmd)
}

func TestLostReplyNeitherDuplicatesNorLosesAnEntry(t *testing.T) {
	t.Parallel()
	client := shared.Client(t)
	client.AddHook(redistest.Hook(again))
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

// kinds are all kinds of entries: each action, denied or not.
func kinds() (all []audit.Entry) {
	for _, action := range []string{
		audit.ConnectionApproved, audit.ConnectionDenied, audit.ConnectionStarted, audit.ConnectionRevoked, audit.KeyIssued, audit.KeyRotated,
		audit.KeyRevoked, audit.SessionStarted, audit.SessionDenied, audit.SessionEnded, audit.ToolCalled, audit.ConnectionChanged,
	} {
		for _, outcome := range []string{audit.OutcomeOK, audit.OutcomeDenied} {
			e := entry(action, "")
			e.Outcome = outcome
			all = append(all, e)
		}
	}
	return all
}

// A member may deny authorization requests, sign in and out, or try what only owners may, as often as he likes.
func TestNoKindOfEntryDisplacesAnother(t *testing.T) {
	t.Parallel()
	for _, flood := range kinds() {
		t.Run(flood.Action+" "+flood.Outcome, func(t *testing.T) {
			t.Parallel()
			client := shared.Client(t)
			log, _ := newLog(t, client, func(o *audit.Options) { o.MaxEntries = 100 })
			for _, e := range kinds() {
				e.Target = "first"
				require.NoError(t, log.Record(t.Context(), e))
			}
			for range 400 {
				require.NoError(t, log.Record(t.Context(), flood))
			}
			remaining := map[string]bool{}
			for cursor, more := "", true; more; more = cursor != "" {
				var entries []audit.Entry
				entries, cursor = list(t, log, cursor, 100)
				for _, e := range entries {
					if e.Target == "first" {
						remaining[e.Action+" "+e.Outcome] = true
					}
				}
			}
			for _, e := range kinds() {
				kind := e.Action + " " + e.Outcome
				if kind == flood.Action+" "+flood.Outcome {
					assert.NotContains(t, remaining, kind, "the number of entries is limited")
				} else {
					assert.Contains(t, remaining, kind)
				}
			}
			total := int64(0)
			keys, err := client.Keys(t.Context(), prefix(t)+"*").Result()
			require.NoError(t, err)
			for _, key := range keys {
				length, err := client.XLen(t.Context(), key).Result()
				require.NoError(t, err)
				total += length
			}
			assert.Less(t, total, int64(len(kinds())+300), "Redis trims by nodes of a hundred entries")
		})
	}
}

// A fleet runs two versions during an upgrade, and an earlier one after a rollback.
func TestPendingEntryOfALaterVersionIsLeftToIt(t *testing.T) {
	t.Parallel()
	client := shared.Client(t)
	log, _ := newLog(t, client)
	pending := prefix(t) + "audit:{biz_1}:pending"
	begun := time.Now().Add(-audit.ResolveWithin - time.Minute).UnixMilli()
	later := fmt.Sprintf(`%d {"action":"key.lent","target":"b","outcome":"unknown"}`, begun)
	require.NoError(t, client.HSet(t.Context(), pending,
		"1", fmt.Sprintf(`%d {"action":"key.revoked","target":"a","outcome":"unknown"}`, begun), "2", later).Err())
	require.Equal(t, []string{"key.revoked a unknown"}, listed(t, log))
	values, err := client.HVals(t.Context(), pending).Result()
	require.NoError(t, err)
	require.Equal(t, []string{later}, values)
}

func TestEntriesOfDifferentKindsAreInOrder(t *testing.T) {
	t.Parallel()
	log, _ := newLog(t, shared.Client(t))
	var want []string
	for i := range 40 {
		e := kinds()[i%len(kinds())]
		e.Target = fmt.Sprint(i)
		require.NoError(t, log.Record(t.Context(), e))
		want = append([]string{fmt.Sprintf("%s %d %s", e.Action, i, e.Outcome)}, want...)
	}
	require.Equal(t, want, listed(t, log))
}

// Access has to end also while Redis's memory is full, and no change is made without an entry.
func TestChangesThatEndAccessAreRecordedInAFullRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	log, _ := newLog(t, server.Client(t))
	ctx := t.Context()
	record(t, log, audit.KeyIssued, "before")
	require.NoError(t, server.SetFull(ctx, true))
	var want []string
	for _, action := range []string{audit.ConnectionRevoked, audit.ConnectionDenied, audit.KeyRevoked, audit.SessionEnded} {
		c, err := log.Begin(ctx, entry(action, "now"))
		require.NoError(t, err, action)
		c.Resolve(ctx, audit.OutcomeOK)
		dropped, err := log.Begin(ctx, entry(action, "dropped"))
		require.NoError(t, err, action)
		dropped.Drop(ctx)
		want = append(want, action+" now ok")
	}
	for _, action := range []string{
		audit.ConnectionApproved, audit.ConnectionStarted, audit.ConnectionChanged, audit.KeyIssued, audit.KeyRotated, audit.SessionStarted,
		audit.ToolCalled,
	} {
		_, err := log.Begin(ctx, entry(action, "now"))
		assert.ErrorIs(t, err, audit.ErrUnavailable, action)
	}
	assert.ElementsMatch(t, append(want, "key.issued before ok"), listed(t, log))
}
