package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience bounds what is waited for, on a machine that is busy with other things, too.
const patience = time.Minute

// finished waits for the end of a run.
func finished(t testing.TB, c *as, id any) (run map[string]any) {
	t.Helper()
	require.Eventually(t, func() bool {
		run = record(t, c.get("automation-runs/"+fmt.Sprint(id)), "run")
		return run["finished_at"] != nil
	}, patience, 2*time.Millisecond)
	return run
}

func start(t testing.TB, c *as, automation, input string) map[string]any {
	t.Helper()
	w := c.do("POST", "automations/"+automation+"/runs", `{"input":`+input+`}`)
	require.Equal(t, http.StatusAccepted, w.Code, "%s", w.Body)
	run := record(t, decode(t, w), "run")
	require.Equal(t, runQueued, run["status"])
	return run
}

// outbox gives what automations have written, by recipient and subject.
func outbox(t testing.TB, s *Service, businessID string) []string {
	t.Helper()
	return texts(t, s.store, "SELECT recipient || ': ' || subject || char(10) || body FROM outbox WHERE business_id = ? ORDER BY rowid", businessID)
}

func TestRemindersAreWrittenOnceForOverdueInvoices(t *testing.T) {
	t.Parallel()
	var at clock
	s := connected(t, "", Options{Now: at.now})
	c := caller(t, s, owner())
	// What is overdue, from the records themselves.
	want, without := map[string]string{}, 0
	var open int64
	for _, status := range []string{"sent", "viewed", "overdue"} {
		for _, i := range c.all("invoices?status="+status, 100) {
			if due, ok := i["due_at"].(string); !ok || due >= instant(testNow) {
				continue
			}
			contact := record(t, c.get("contacts/"+jsonID(i["contact_id"])), "contact")
			if contact["email"] == nil {
				without++
				continue
			}
			want[fmt.Sprint(i["invoice_number"])] = fmt.Sprint(contact["email"])
			open += hundredths(t, i["total_amount"]) - hundredths(t, i["paid_amount"])
		}
	}
	require.NotEmpty(t, want)

	dry := finished(t, c, start(t, c, "overdue-reminders", `{"dry_run":true}`)["id"])
	require.Equal(t, runSucceeded, dry["status"], "%v", dry)
	require.Empty(t, outbox(t, s, owner().BusinessID))
	require.InDelta(t, len(want), record(t, dry, "result")["written"], 0)

	run := finished(t, c, start(t, c, "overdue-reminders", `{}`)["id"])
	require.Equal(t, runSucceeded, run["status"])
	require.InDelta(t, 100, run["progress"], 0)
	require.Equal(t, owner().ID, run["started_by"])
	result := record(t, run, "result")
	require.InDelta(t, len(want), result["written"], 0)
	require.InDelta(t, without, result["skipped_without_address"], 0)
	require.Equal(t, amount(open), result["amount"])
	for _, step := range records(t, run, "steps") {
		require.Equal(t, runSucceeded, step["status"])
		require.NotNil(t, step["finished_at"])
	}
	messages := outbox(t, s, owner().BusinessID)
	require.Len(t, messages, len(want))
	for number, address := range want {
		require.True(t, slices.ContainsFunc(messages, func(m string) bool {
			return strings.HasPrefix(m, address+": Reminder: invoice "+number) && strings.Contains(m, "Fernhollow")
		}), number)
	}

	at.advance(6 * day)
	later := finished(t, c, start(t, c, "overdue-reminders", `{"minimum_days_overdue":6}`)["id"])
	require.InDelta(t, 0, record(t, later, "result")["written"], 0, "nobody is reminded twice in a week")
	require.InDelta(t, len(want), record(t, later, "result")["skipped_written_recently"], 0)
	require.Len(t, outbox(t, s, owner().BusinessID), len(want))
	require.Empty(t, outbox(t, s, stranger().BusinessID))

	last := records(t, c.get("automations"), "automations")
	i := slices.IndexFunc(last, func(a map[string]any) bool { return a["id"] == "overdue-reminders" })
	require.Equal(t, map[string]any{"id": later["id"], "status": runSucceeded, "finished_at": later["finished_at"]}, last[i]["last_run"])
}

func hundredths(t testing.TB, v any) int64 {
	t.Helper()
	var whole, cents int64
	_, err := fmt.Sscanf(fmt.Sprint(v), "%d.%d", &whole, &cents)
	require.NoError(t, err)
	return whole*100 + cents
}

func TestTheOtherAutomationsDoWhatTheySay(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	c := caller(t, s, owner())
	asked := finished(t, c, start(t, c, "appointment-confirmations", `{"days_ahead":7}`)["id"])
	require.Equal(t, runSucceeded, asked["status"])
	toCome := c.all("appointments?status=scheduled&from="+instant(testNow)+"&to="+instant(testNow.AddDate(0, 0, 7)), 100)
	require.NotEmpty(t, toCome)
	require.InDelta(t, len(toCome), record(t, asked, "result")["found"], 0)
	require.NotEmpty(t, outbox(t, s, owner().BusinessID))

	followed := finished(t, c, start(t, c, "estimate-follow-ups", `{"older_than_days":1}`)["id"])
	require.Equal(t, runSucceeded, followed["status"], "%v", followed)

	report := finished(t, c, start(t, c, "weekly-report", `{}`)["id"])
	result := record(t, report, "result")
	require.Len(t, c.all("conversations?since="+instant(testNow.AddDate(0, 0, -7)), 100), int(result["conversations"].(float64)))
	require.Positive(t, result["overdue_invoices"])
	require.Regexp(t, `^\d+\.\d\d$`, result["overdue_amount"])
}

func TestRunsThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	s := prepared(t, "", Options{}) // nothing is taken up
	c := caller(t, s, owner())
	path := "automations/overdue-reminders/runs"
	c.refused(http.StatusNotFound, "NOT_FOUND", "POST", "automations/no-such/runs", `{}`)
	caller(t, s, stranger()).refused(http.StatusConflict, "CONFLICT", "POST", "automations/estimate-follow-ups/runs", `{}`)
	first := start(t, c, "overdue-reminders", `{}`)
	require.Contains(t, c.refused(http.StatusConflict, "CONFLICT", "POST", path, `{}`)["id"], fmt.Sprint(first["id"]))
	start(t, c, "weekly-report", `{}`) // another one may wait meanwhile
	start(t, caller(t, s, stranger()), "overdue-reminders", `{}`)
}

func TestConcurrentStartsBeginOneRun(t *testing.T) {
	t.Parallel()
	s := prepared(t, filepath.Join(t.TempDir(), "demo.db"), Options{}) // nothing is taken up
	c := caller(t, s, owner())
	for name, key := range map[string]func(int) string{
		"weekly-report": func(int) string { return "same" }, "overdue-reminders": func(i int) string { return fmt.Sprint("other", i) },
	} {
		var codes [20]int
		var group sync.WaitGroup
		for i := range codes {
			group.Go(func() { codes[i] = c.do("POST", "automations/"+name+"/runs", `{}`, HeaderIdempotencyKey, key(i)).Code })
		}
		group.Wait()
		slices.Sort(codes[:])
		require.Equal(t, http.StatusAccepted, codes[0])
		if name == "weekly-report" {
			require.Equal(t, http.StatusAccepted, codes[19], "all are told of the one run")
		} else {
			require.Equal(t, http.StatusConflict, codes[1])
		}
		require.Len(t, texts(t, s.store, "SELECT id FROM automation_runs WHERE automation_id = ?", name), 1)
	}
}

func TestProgressOfARunNeverDecreases(t *testing.T) {
	t.Parallel()
	s := prepared(t, "", Options{})
	looked := make(chan struct{}) // the items wait until somebody has looked
	s.runner.rest = func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-looked:
		}
	}
	s.runner.start()
	c := caller(t, s, owner())
	id := start(t, c, "overdue-reminders", `{"dry_run":true}`)["id"]
	last, seen := 0.0, map[any]bool{}
	require.Eventually(t, func() bool {
		run := record(t, c.get("automation-runs/"+fmt.Sprint(id)), "run")
		defer func() {
			select {
			case looked <- struct{}{}:
			default:
			}
		}()
		now := run["progress"].(float64)
		require.GreaterOrEqual(t, now, last)
		last = now
		seen[run["status"]] = true
		running := 0
		for _, s := range records(t, run, "steps") {
			if s["status"] == runRunning {
				running++
			}
		}
		require.LessOrEqual(t, running, 1)
		return run["finished_at"] != nil
	}, patience, time.Millisecond)
	require.InDelta(t, 100, last, 0)
	require.True(t, seen[runRunning], "%v", seen)
}

func TestAnInterruptedRunSaysWhatWasDone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "demo.db")
	s := prepared(t, path, Options{})
	items, reached := 0, make(chan struct{})
	s.runner.rest = func(ctx context.Context) {
		if items++; items == 3 { // two are done, and the third is not begun
			close(reached)
			<-ctx.Done()
		}
	}
	s.runner.start()
	c := caller(t, s, owner())
	cut := start(t, c, "appointment-confirmations", `{"days_ahead":14}`)["id"]
	waiting := start(t, c, "weekly-report", `{}`)["id"]
	<-reached
	require.NoError(t, s.Close())

	s = connected(t, path, Options{})
	c = caller(t, s, owner())
	run := record(t, c.get("automation-runs/"+fmt.Sprint(cut)), "run")
	require.Equal(t, runFailed, run["status"])
	require.Equal(t, "INTERRUPTED", record(t, run, "error")["code"])
	require.Contains(t, record(t, run, "error")["message"], `"Write the messages", "Sum up"`)
	require.NotNil(t, run["finished_at"])
	states := []any{}
	for _, step := range records(t, run, "steps") {
		states = append(states, step["status"])
	}
	require.Equal(t, []any{runSucceeded, runFailed, stepSkipped}, states)
	require.Contains(t, record(t, run, "error")["message"], "2 of ")
	written := outbox(t, s, owner().BusinessID)
	require.NotEmpty(t, written)
	require.InDelta(t, len(written), record(t, run, "result")["written"], 0, "it says what was done, no more and no less")
	require.Less(t, run["progress"], 100.0)

	require.Equal(t, runSucceeded, finished(t, c, waiting)["status"], "what waited is done after the restart")
	rest := finished(t, c, start(t, c, "appointment-confirmations", `{"days_ahead":14}`)["id"])
	require.InDelta(t, len(written), record(t, rest, "result")["skipped_written_recently"], 0, "and the rest without a second letter to anybody")
}

func TestARunOfADeadProcessFailsAfterItsLease(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "demo.db")
	var at clock
	s := connected(t, path, Options{Now: at.now})
	steps, err := json.Marshal(plannedSteps("overdue-reminders"))
	require.NoError(t, err)
	execute(t, s, `INSERT INTO automation_runs (id, business_id, automation_id, status, progress, message, steps, input, started_by, created_at, started_at, lease_until)
		VALUES ('dead', ?, 'overdue-reminders', 'running', 40, '4 of 10 done', ?, '{}', ?, ?, ?, ?)`,
		owner().BusinessID, string(steps), owner().ID, instant(testNow), instant(testNow), instant(testNow.Add(runLease)))
	require.NoError(t, s.Close())

	s = connected(t, path, Options{Now: at.now})
	c := caller(t, s, owner())
	s.runner.wakeUp()
	finished(t, c, start(t, c, "weekly-report", `{}`)["id"])
	require.Equal(t, runRunning, record(t, c.get("automation-runs/dead"), "run")["status"], "it may be another process's yet")
	at.advance(runLease + time.Second)
	s.runner.wakeUp()
	run := finished(t, c, "dead")
	require.Equal(t, runFailed, run["status"])
	require.InDelta(t, 40, run["progress"], 0)
	require.Contains(t, record(t, run, "error")["message"], "4 of 10 done")
	start(t, c, "overdue-reminders", `{}`) // the way is free again
}

func TestARunEndedElsewhereWritesNothingMore(t *testing.T) {
	t.Parallel()
	s := prepared(t, "", Options{})
	items, ended, swept := 0, make(chan struct{}), make(chan struct{})
	s.runner.rest = func(context.Context) {
		if items++; items == 2 { // another process ends it while this one is stuck
			close(swept)
			<-ended
		}
	}
	s.runner.start()
	c := caller(t, s, owner())
	id := start(t, c, "appointment-confirmations", `{"days_ahead":14}`)["id"]
	<-swept
	written := outbox(t, s, owner().BusinessID)
	execute(t, s, `UPDATE automation_runs SET status = 'failed', finished_at = ?, error = '{"code":"INTERRUPTED","message":"elsewhere"}' WHERE id = ?`,
		instant(testNow), id)
	before := c.get("automation-runs/" + fmt.Sprint(id))
	close(ended)
	finished(t, c, start(t, c, "weekly-report", `{}`)["id"]) // the runner has gone on
	require.Equal(t, before, c.get("automation-runs/"+fmt.Sprint(id)))
	require.Equal(t, written, outbox(t, s, owner().BusinessID))
}

func TestInputDefaultsAreThoseOfTheSchemas(t *testing.T) {
	t.Parallel()
	e := &execution{input: "{}"}
	in, err := e.mailingInput()
	require.NoError(t, err)
	text, err := json.Marshal(in)
	require.NoError(t, err)
	var defaults map[string]any
	require.NoError(t, json.Unmarshal(text, &defaults))
	seen := map[string]any{}
	for _, a := range records(t, sharedCaller(t).get("automations"), "automations") {
		for name, property := range record(t, record(t, a, "input_schema"), "properties") {
			seen[name] = property.(map[string]any)["default"]
		}
	}
	require.Equal(t, defaults, seen)
}

func TestAFailedRunDoesNotRevealTheCause(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	c := caller(t, s, owner())
	execute(t, s, "UPDATE automations SET action = 'no-such' WHERE id = 'weekly-report'")
	run := finished(t, c, start(t, c, "weekly-report", `{}`)["id"])
	require.Equal(t, runFailed, run["status"])
	require.Equal(t, "INTERNAL", record(t, run, "error")["code"])
	require.NotContains(t, fmt.Sprint(run), "no-such")
	execute(t, s, "UPDATE businesses SET time_zone = 'Nowhere/Land'")
	run = finished(t, c, start(t, c, "appointment-confirmations", `{}`)["id"])
	require.Equal(t, runFailed, run["status"])
	finished(t, c, start(t, c, "overdue-reminders", `{}`)["id"]) // the runner goes on
}
