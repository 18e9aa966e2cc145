package audit_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

// patience limits each wait.
const patience = time.Minute

// shared is the Redis of all tests, in which each has its own prefix.
var shared *redistest.Server

func TestMain(m *testing.M) { redistest.Main(m, &shared) }

func prefix(t *testing.T) string {
	t.Helper()
	return "test:" + t.Name() + ":"
}

// newLog returns an audit log and what it writes to the process log.
func newLog(t *testing.T, client redis.UniversalClient, changes ...func(*audit.Options)) (*audit.Log, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	o := audit.Options{Redis: client, Prefix: prefix(t), Log: zap.New(core), Timeout: patience}
	for _, change := range changes {
		change(&o)
	}
	log, err := audit.New(o)
	require.NoError(t, err)
	return log, logs
}

func entry(action, target string) audit.Entry {
	return audit.Entry{BusinessID: "biz_1", AccountID: "acc_1", AccountName: "Ada", Action: action, Target: target}
}

func record(t *testing.T, log *audit.Log, action, target string) {
	t.Helper()
	require.NoError(t, log.Record(t.Context(), entry(action, target)))
}

// list returns a page of the log of biz_1.
func list(t *testing.T, log *audit.Log, cursor string, limit int, actions ...string) (entries []audit.Entry, next string) {
	t.Helper()
	entries, next, err := log.List(t.Context(), "biz_1", cursor, limit, actions...)
	require.NoError(t, err)
	return entries, next
}

// listed returns the first page of the log of biz_1 as "action target outcome".
func listed(t *testing.T, log *audit.Log) []string {
	t.Helper()
	entries, _ := list(t, log, "", 100)
	texts := make([]string, len(entries))
	for i, e := range entries {
		texts[i] = e.Action + " " + e.Target + " " + e.Outcome
	}
	return texts
}

func TestEntryRoundTrip(t *testing.T) {
	t.Parallel()
	log, logs := newLog(t, shared.Client(t))
	in := audit.Entry{
		BusinessID: "biz_1", AccountID: "acc_1", AccountName: "Ada Okafor", GrantID: "gr_1",
		ClientName: "Assistant", Action: audit.ToolCalled, Target: "contacts_update", Outcome: audit.OutcomeFailed,
		Detail: "The service did not respond.", RequestID: "req-1",
	}
	require.NoError(t, log.Record(t.Context(), in))
	require.NoError(t, log.Record(t.Context(), audit.Entry{BusinessID: "biz_1", Action: audit.SessionEnded}))
	entries, next := list(t, log, "", 0)
	require.Empty(t, next)
	require.Len(t, entries, 2)
	require.WithinDuration(t, time.Now(), entries[1].Time, time.Hour)
	in.Time = entries[1].Time
	require.Equal(t, in, entries[1])
	require.Equal(t, audit.SessionEnded, entries[0].Action, "the newest is first")
	require.Equal(t, audit.OutcomeOK, entries[0].Outcome)

	line := logs.FilterMessage("audit").All()[0].ContextMap()
	for name, want := range map[string]string{
		"business": "biz_1", "account_id": "acc_1", "account_name": "Ada Okafor", "grant_id": "gr_1",
		"client_name": "Assistant", "action": "tool.called", "target": "contacts_update", "outcome": "failed",
		"detail": "The service did not respond.", "request_id": "req-1",
	} {
		assert.Equal(t, want, line[name])
	}
}

func TestListReturnsOnlyTheBusinesssEntries(t *testing.T) {
	t.Parallel()
	log, _ := newLog(t, shared.Client(t))
	record(t, log, audit.KeyIssued, "pk_live_1")
	for _, other := range []string{"biz_2", "biz_", "biz_1 ", "*", "", "biz_1\x00"} {
		entries, _, err := log.List(t.Context(), other, "", 10)
		require.NoError(t, err)
		assert.Empty(t, entries, other)
	}
}

func TestPaginationReturnsEachEntryOnce(t *testing.T) {
	t.Parallel()
	log, _ := newLog(t, shared.Client(t))
	var want, seen []string
	for i := range 57 {
		record(t, log, audit.ToolCalled, fmt.Sprint(i))
		want = append([]string{fmt.Sprint(i)}, want...)
	}
	for cursor, more := "", true; more; more = cursor != "" {
		var entries []audit.Entry
		entries, cursor = list(t, log, cursor, 10)
		require.LessOrEqual(t, len(entries), 10)
		for _, e := range entries {
			seen = append(seen, e.Target)
		}
		record(t, log, audit.ToolCalled, "does not move older entries")
	}
	require.Equal(t, want, seen)
	for limit, want := range map[int]int{-1: 1, 0: 25, 1: 1, 1000: 63} {
		entries, _ := list(t, log, "", limit)
		require.Len(t, entries, want, limit)
	}
}

func TestListReturnsEntriesOfTheActionsGiven(t *testing.T) {
	t.Parallel()
	log, _ := newLog(t, shared.Client(t))
	for i := range 1100 { // more than one read covers
		action := audit.ToolCalled
		switch i % 100 {
		case 7:
			action = audit.KeyIssued
		case 8:
			action = audit.KeyRevoked
		}
		record(t, log, action, fmt.Sprint(i))
	}
	var seen []string
	for cursor, more := "", true; more; more = cursor != "" {
		var entries []audit.Entry
		entries, cursor = list(t, log, cursor, 5, audit.KeyIssued, audit.KeyRevoked)
		require.True(t, len(entries) == 5 || cursor == "")
		for _, e := range entries {
			require.Contains(t, []string{audit.KeyIssued, audit.KeyRevoked}, e.Action)
			seen = append(seen, e.Target)
		}
	}
	require.Len(t, seen, 22)
	require.Equal(t, "1008", seen[0])
	require.Equal(t, "7", seen[21])
	entries, next := list(t, log, "", 5, audit.ConnectionDenied)
	require.Empty(t, entries)
	require.Empty(t, next)
	entries, next = list(t, log, "", 22, audit.KeyIssued, audit.KeyRevoked)
	require.Len(t, entries, 22)
	assert.Empty(t, next, "a full last page has no cursor")
}

func TestInvalidCursorIsRejected(t *testing.T) {
	t.Parallel()
	log, _ := newLog(t, shared.Client(t))
	for _, cursor := range []string{
		"+", "-", "x", "1", "1-", "-1", "1-1", "1-1 ", "(1-1", "1-1\n", "1-1-1", "1-1.", "1-1.x", "1-1.-1", "1-1.+1", "1-1.999", "1-1.1 ", "1-1.2-2.", "1-1.2-2",
		"1.", ".1", "0-0.1", "00-0.30", strings.Repeat("9", 20) + "-1.1", "1-" + strings.Repeat("9", 20) + ".1", "$",
	} {
		_, _, err := log.List(t.Context(), "biz_1", cursor, 10)
		require.ErrorIs(t, err, audit.ErrBadCursor, cursor)
	}
	_, _, err := log.List(t.Context(), "biz_1", "1-1.1", 10)
	require.NoError(t, err)
}

func TestEntryAgeIsLimited(t *testing.T) {
	t.Parallel()
	for name, read := range map[string]bool{"when the log is read": true, "when another entry is added": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := shared.Client(t)
			log, _ := newLog(t, client, func(o *audit.Options) { o.MaxAge = time.Hour })
			ctx := t.Context()
			key := prefix(t) + "audit:{biz_1}:tool.called"
			for i := range 250 {
				id := strconv.FormatInt(time.Now().Add(-2*time.Hour).UnixMilli(), 10) + "-" + strconv.Itoa(i)
				require.NoError(t, client.XAdd(ctx, &redis.XAddArgs{Stream: key, ID: id, Values: []string{"entry", "{}"}}).Err())
			}
			if read {
				require.Empty(t, listed(t, log), "too old to be shown")
			}
			record(t, log, audit.ToolCalled, "new")
			length, err := client.XLen(ctx, key).Result()
			require.NoError(t, err)
			require.EqualValues(t, 1, length)
			left, err := client.PTTL(ctx, key).Result()
			require.NoError(t, err)
			assert.Greater(t, left, 50*time.Minute, "the log of a business that is gone goes as well")
			assert.LessOrEqual(t, left, time.Hour)
		})
	}
}

// Operators shorten the client IPs of log lines by the field's name.
func TestClientIPsOfSignInsHaveTheFieldOfClientIPs(t *testing.T) {
	t.Parallel()
	log, logs := newLog(t, shared.Client(t))
	for _, action := range []string{audit.SessionStarted, audit.SessionDenied, audit.SessionEnded} {
		require.NoError(t, log.Record(t.Context(), audit.Entry{BusinessID: "biz_1", Action: action, Target: "192.0.2.7"}))
	}
	lines := logs.FilterMessage("audit").All()
	require.Len(t, lines, 3)
	for i, name := range []string{"client_ip", "client_ip", "target"} {
		assert.Equal(t, "192.0.2.7", lines[i].ContextMap()[name])
	}
}

func TestEntryInALaterFormatIsListed(t *testing.T) {
	t.Parallel()
	client := shared.Client(t)
	log, _ := newLog(t, client)
	record(t, log, audit.KeyIssued, "pk_1")
	require.NoError(t, client.XAdd(t.Context(), &redis.XAddArgs{
		Stream: prefix(t) + "audit:{biz_1}:" + audit.KeyIssued, Values: []string{"entry", `{"format":2,"action":["key.issued"]}`},
	}).Err())
	require.Equal(t, []string{"Recorded by a later version of the gateway  ", "key.issued pk_1 ok"}, listed(t, log))
}

func TestProcessLogHasEntriesThatRedisLost(t *testing.T) {
	t.Parallel()
	client := shared.Client(t)
	require.NoError(t, client.Close())
	log, logs := newLog(t, client)
	err := log.Record(t.Context(), entry(audit.KeyRevoked, "pk_live_1"))
	require.ErrorIs(t, err, audit.ErrUnavailable)
	require.Equal(t, "pk_live_1", logs.FilterMessage("audit").All()[0].ContextMap()["target"])
	require.Equal(t, 1, logs.FilterMessage("audit entry not stored").FilterLevelExact(zapcore.ErrorLevel).Len())
	_, _, err = log.List(t.Context(), "biz_1", "", 10)
	require.ErrorIs(t, err, audit.ErrUnavailable)
}

func TestRecordIgnoresCancellation(t *testing.T) {
	t.Parallel()
	log, _ := newLog(t, shared.Client(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, log.Record(ctx, entry(audit.KeyIssued, "pk_live_1")))
	require.Len(t, listed(t, log), 1)
}

func TestEntryWithoutBusinessIsOnlyLogged(t *testing.T) {
	t.Parallel()
	client := shared.Client(t)
	log, logs := newLog(t, client)
	require.NoError(t, log.Record(t.Context(), audit.Entry{Action: audit.SessionDenied, Outcome: audit.OutcomeDenied}))
	require.Equal(t, 1, logs.FilterMessage("audit").Len())
	keys, err := client.Keys(t.Context(), prefix(t)+"*").Result()
	require.NoError(t, err)
	assert.Empty(t, keys)
}

func TestOnlyKnownActionsAndOutcomesAreRecorded(t *testing.T) {
	t.Parallel()
	log, logs := newLog(t, shared.Client(t))
	ctx := t.Context()
	require.ErrorIs(t, log.Record(ctx, entry("", "x")), audit.ErrInvalidEntry)
	require.ErrorIs(t, log.Record(ctx, entry("key.stolen", "x")), audit.ErrInvalidEntry)
	e := entry(audit.KeyIssued, "x")
	e.Outcome = "perhaps"
	require.ErrorIs(t, log.Record(ctx, e), audit.ErrInvalidEntry)
	assert.Equal(t, 3, logs.FilterMessage("audit").Len(), "the log has them")
	assert.Empty(t, listed(t, log))
}

func TestTextsAreLimitedAndCleaned(t *testing.T) {
	t.Parallel()
	log, logs := newLog(t, shared.Client(t))
	ctx := t.Context()
	e := entry(audit.ToolCalled, strings.Repeat("ä", 4000))
	e.ClientName = "Evil\n{\"level\":\"error\"}\x1b[31m\u202eName\u2028\u200b\xff"
	e.Detail = strings.Repeat("d", 100_000)
	require.NoError(t, log.Record(ctx, e))
	entries, _ := list(t, log, "", 10)
	got := entries[0]
	assert.Equal(t, "Evil {\"level\":\"error\"}[31mName \uFFFD", got.ClientName)
	assert.LessOrEqual(t, utf8.RuneCountInString(got.Target), 257)
	require.True(t, strings.HasSuffix(got.Target, "ä…"))
	assert.LessOrEqual(t, utf8.RuneCountInString(got.Detail), 1025)
	assert.Equal(t, got.ClientName, logs.FilterMessage("audit").All()[0].ContextMap()["client_name"])
}

func TestAuditLogWorksOnEveryRedis(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]func(t *testing.T) redis.UniversalClient{
		"embedded": func(t *testing.T) redis.UniversalClient {
			t.Helper()
			c := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
			t.Cleanup(func() { _ = c.Close() })
			return c
		},
		"cluster": func(t *testing.T) redis.UniversalClient {
			t.Helper()
			// a slow node must not be considered failed
			return redistest.StartCluster(t).Client(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log, _ := newLog(t, client(t))
			ctx := t.Context()
			for i := range 10 {
				e := entry(audit.ToolCalled, fmt.Sprint(i))
				e.BusinessID = fmt.Sprintf("biz_%d{x", i%5)
				require.NoError(t, log.Record(ctx, e))
			}
			for i := range 5 {
				next := ""
				for _, want := range []int{5 + i, i} {
					entries, cursor, err := log.List(ctx, fmt.Sprintf("biz_%d{x", i), next, 1)
					require.NoError(t, err)
					require.Equal(t, fmt.Sprint(want), entries[0].Target)
					next = cursor
				}
				assert.Empty(t, next)
			}
		})
	}
}
