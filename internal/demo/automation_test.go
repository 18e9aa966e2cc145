package demo

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func (c *as) run(id any) map[string]any {
	c.Helper()
	return c.one("automation-runs/"+fmt.Sprint(id), "run")
}

// finished waits for the end of a run.
func (c *as) finished(id any) (run map[string]any) {
	c.Helper()
	require.Eventually(c, func() bool {
		run = c.run(id)
		return run["finished_at"] != nil
	}, patience, 2*time.Millisecond)
	return run
}

func (c *as) start(automation, input string) (id any) {
	c.Helper()
	return c.begin(automation, `{"input":`+input+`}`)
}

func (c *as) begin(automation, body string) (id any) {
	c.Helper()
	w := c.do("POST", "automations/"+automation+"/runs", body)
	require.Equal(c, http.StatusAccepted, w.Code, "%s", w.Body)
	run := record(c, decode(c, w), "run")
	require.Equal(c, runQueued, run["status"])
	return run["id"]
}

// succeeded starts an automation and returns the result of its run.
func (c *as) succeeded(automation, input string) map[string]any {
	c.Helper()
	return record(c, c.ended(c.start(automation, input)), "result")
}

// tried starts a dry run of an automation and returns it.
func (c *as) tried(automation, input string) map[string]any {
	c.Helper()
	return c.ended(c.begin(automation, `{"input":`+input+`,"dry_run":true}`))
}

// ended waits for a run that must succeed.
func (c *as) ended(id any) map[string]any {
	c.Helper()
	run := c.finished(id)
	require.Equal(c, runSucceeded, run["status"], "%v", run)
	require.InDelta(c, 100, run["progress"], 0)
	for _, step := range records(c, run, "steps") {
		require.Equal(c, runSucceeded, step["status"])
		require.NotNil(c, step["finished_at"])
	}
	return run
}

// outbox returns what automations have written, as recipient, subject and body.
func outbox(t testing.TB, s *Service, businessID string) []string {
	t.Helper()
	return texts(t, s, "SELECT recipient || ': ' || subject || char(10) || body FROM outbox WHERE business_id = ? ORDER BY rowid", businessID)
}

func TestRemindersAreWrittenOnceForOverdueInvoices(t *testing.T) {
	t.Parallel()
	var at clock
	s := connected(t, "", Options{Now: at.now})
	c := caller(t, s, owner())
	const overdue = " FROM invoices i JOIN contacts c ON c.id = contact_id WHERE i.business_id = ?1 AND status IN ('sent', 'viewed', 'overdue')" +
		" AND paid_amount < total_amount AND due_at < ?2"
	want := texts(t, s, "SELECT email || ': Reminder: invoice ' || invoice_number"+overdue+" AND email IS NOT NULL ORDER BY due_at, i.id",
		owner().BusinessID, instant(testNow))
	sums := texts(t, s, "SELECT count(*) FILTER (WHERE email IS NULL) || format(' %d.%02d', sum(open) / 100, sum(open) % 100)"+
		" FROM (SELECT email, iif(email IS NULL, 0, total_amount - paid_amount) AS open"+overdue+")", owner().BusinessID, instant(testNow))
	require.NotEmpty(t, want)

	result := c.succeeded("overdue-reminders", `{}`)
	require.InDelta(t, len(want), result["written"], 0)
	require.Equal(t, sums[0], fmt.Sprintf("%v %v", result["skipped_without_address"], result["amount"]))
	messages := outbox(t, s, owner().BusinessID)
	require.Len(t, messages, len(want))
	for i := range want {
		require.True(t, strings.HasPrefix(messages[i], want[i]+"\n"), messages[i])
		assert.Contains(t, messages[i], "Fernhollow")
	}

	at.advance(6 * day)
	later := c.start("overdue-reminders", `{"minimum_days_overdue":6}`)
	result = record(t, c.finished(later), "result")
	require.InDelta(t, 0, result["written"], 0, "nobody is reminded twice in a week")
	require.InDelta(t, len(want), result["skipped_written_recently"], 0)
	require.Len(t, outbox(t, s, owner().BusinessID), len(want))
	require.Empty(t, outbox(t, s, stranger().BusinessID))
	for _, a := range records(t, c.get("automations"), "automations") {
		if a["id"] == "overdue-reminders" {
			require.Equal(t, later, record(t, a, "last_run")["id"])
		}
	}
}

func TestTheOtherAutomationsDoWhatTheySay(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	c := caller(t, s, owner())
	toCome := c.all("appointments?status=scheduled&from="+instant(testNow)+"&to="+instant(testNow.AddDate(0, 0, 7)), 100)
	require.NotEmpty(t, toCome)
	require.InDelta(t, len(toCome), c.succeeded("appointment-confirmations", `{"days_ahead":7}`)["found"], 0)
	require.NotEmpty(t, outbox(t, s, owner().BusinessID))
	require.Positive(t, c.succeeded("estimate-follow-ups", `{"older_than_days":1}`)["found"])
	result := c.succeeded("weekly-report", `{}`)
	require.Len(t, c.all("conversations?since="+instant(testNow.AddDate(0, 0, -7)), 100), int(result["conversations"].(float64)))
	require.Positive(t, result["overdue_invoices"])
	require.Regexp(t, `^\d+\.\d\d$`, result["overdue_amount"])

	// The code has the same defaults as the schemas.
	for _, a := range records(t, c.get("automations"), "automations") {
		defaults := map[string]any{}
		for name, property := range record(t, record(t, a, "input_schema"), "properties") {
			defaults[name] = property.(map[string]any)["default"]
		}
		id := fmt.Sprint(a["id"])
		require.Equal(t, id != "weekly-report", a["writes_to_people"])
		require.Equal(t, a["input_schema"], c.one("automations/"+id, "automation")["input_schema"])
		if id != "weekly-report" {
			require.Equal(t, c.tried(id, asJSON(t, defaults))["result"], c.tried(id, "{}")["result"])
		}
	}
}

func TestADryRunOnlySaysWhatWouldBeDone(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	c := caller(t, s, owner())
	for _, a := range records(t, c.get("automations"), "automations") {
		id := fmt.Sprint(a["id"])
		dry := c.tried(id, "{}")
		require.Equal(t, true, dry["dry_run"])
		require.Empty(t, outbox(t, s, owner().BusinessID))
		if a["writes_to_people"] == false {
			continue
		}
		result := record(t, dry, "result")
		would := result["would_be_written"]
		require.Positive(t, would)
		require.InDelta(t, 0, result["written"], 0)
		require.Len(t, result["messages"], int(would.(float64)))
		said := fmt.Sprintf("%v messages would be written", would)
		require.Contains(t, dry["message"], said)
		steps := records(t, dry, "steps")
		require.Contains(t, steps[1]["message"], said)
		require.Equal(t, "Prepare the messages", steps[1]["name"])
		require.NotRegexp(t, `\d messages written|Write`, asJSON(t, dry))
	}
	for _, a := range records(t, c.get("automations"), "automations") { // a dry run does not stand in the way of a real one
		id := fmt.Sprint(a["id"])
		want := record(t, c.tried(id, "{}"), "result")
		run := c.ended(c.start(id, "{}"))
		require.Equal(t, false, run["dry_run"])
		if result := record(t, run, "result"); a["writes_to_people"] == true {
			require.Equal(t, want["would_be_written"], result["written"])
			require.NotContains(t, result, "would_be_written")
			require.Equal(t, want["messages"], result["messages"])
			require.Contains(t, run["message"], fmt.Sprintf("%v messages written", result["written"]))
		}
	}
	require.NotEmpty(t, outbox(t, s, owner().BusinessID))
}

// gatehouse conform, for one, sends the examples.
func TestTheDocumentedExampleOfARunIsDry(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "connect", "definition.yaml"))
	require.NoError(t, err)
	var document struct {
		Components struct {
			RequestBodies map[string]struct {
				Content map[string]struct{ Example map[string]any }
			} `yaml:"requestBodies"`
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &document))
	require.Equal(t, true, document.Components.RequestBodies["RunStart"].Content["application/json"].Example["dry_run"])
}

func TestRunsThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	s := prepared(t, "", Options{})
	c, other := caller(t, s, owner()), caller(t, s, stranger())
	c.notFound("POST", "automations/no-such/runs", `{}`)
	c.notFound("GET", "automations/no-such", "")
	other.rejected(http.StatusConflict, "CONFLICT", "POST", "automations/estimate-follow-ups/runs", `{}`) // not enabled
	first := c.start("overdue-reminders", `{}`)
	for _, body := range []string{`{}`, `{"dry_run":true}`} {
		require.Contains(t, c.rejected(http.StatusConflict, "CONFLICT", "POST", "automations/overdue-reminders/runs", body)["id"], fmt.Sprint(first))
	}
	c.start("weekly-report", `{}`)
	other.start("overdue-reminders", `{}`)
}

func TestConcurrentStartsBeginOneRun(t *testing.T) {
	t.Parallel()
	s := prepared(t, "", Options{})
	c := caller(t, s, owner())
	started := codes(concurrently(20, func(i int) *httptest.ResponseRecorder {
		return c.do("POST", "automations/overdue-reminders/runs", `{}`, HeaderIdempotencyKey, fmt.Sprint("other", i))
	}))
	assert.Equal(t, append([]int{http.StatusAccepted}, slices.Repeat([]int{http.StatusConflict}, 19)...), started)
	require.Len(t, texts(t, s, "SELECT id FROM automation_runs"), 1)
}

func TestProgressOfARunNeverDecreases(t *testing.T) {
	t.Parallel()
	s := prepared(t, "", Options{})
	looked := make(chan struct{}) // each item waits until the test has looked
	s.runner.rest = func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-looked:
		}
	}
	s.runner.start()
	c := caller(t, s, owner())
	id := c.begin("overdue-reminders", `{"dry_run":true}`)
	last, seen := 0.0, map[any]bool{}
	require.Eventually(t, func() bool {
		run := c.run(id)
		require.GreaterOrEqual(t, run["progress"], last)
		last = run["progress"].(float64)
		seen[run["status"]] = true
		select {
		case looked <- struct{}{}:
		default:
		}
		return run["finished_at"] != nil
	}, patience, time.Millisecond)
	assert.InDelta(t, 100, last, 0)
	assert.True(t, seen[runRunning], "%v", seen)
}

func TestAnInterruptedRunSaysWhatWasDone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "demo.db")
	s := prepared(t, path, Options{})
	items, reached := 0, make(chan struct{})
	s.runner.rest = func(ctx context.Context) {
		if items++; items == 3 { // two are done, and the third has not begun
			close(reached)
			<-ctx.Done()
		}
	}
	s.runner.start()
	c := caller(t, s, owner())
	cut := c.start("appointment-confirmations", `{"days_ahead":14}`)
	waiting := c.start("weekly-report", `{}`)
	<-reached
	require.NoError(t, s.Close())

	s = connected(t, path, Options{})
	c = caller(t, s, owner())
	run := c.run(cut)
	require.Equal(t, runFailed, run["status"])
	failure := record(t, run, "error")
	require.Equal(t, "INTERRUPTED", failure["code"])
	require.Contains(t, failure["message"], `"Write the messages", "Sum up"`)
	require.Contains(t, failure["message"], "2 of ")
	var states []any
	for _, step := range records(t, run, "steps") {
		states = append(states, step["status"])
	}
	require.Equal(t, []any{runSucceeded, runFailed, stepSkipped}, states)
	written := outbox(t, s, owner().BusinessID)
	require.NotEmpty(t, written)
	require.InDelta(t, len(written), record(t, run, "result")["written"], 0)
	require.Less(t, run["progress"], 100.0)

	require.Equal(t, runSucceeded, c.finished(waiting)["status"], "a queued run starts after the restart")
	rest := c.succeeded("appointment-confirmations", `{"days_ahead":14}`)
	require.InDelta(t, len(written), rest["skipped_written_recently"], 0, "nobody gets a second letter")
}

func TestARunThatACrashEndedFailsAtTheNextStart(t *testing.T) {
	t.Parallel()
	s := prepared(t, "", Options{})
	c := caller(t, s, owner())
	id := c.start("overdue-reminders", `{}`)
	execute(t, s, "UPDATE automation_runs SET status = 'running', progress = 40, message = '4 of 10 done'")
	s.runner.start()
	run := c.finished(id)
	require.Equal(t, runFailed, run["status"])
	require.InDelta(t, 40, run["progress"], 0)
	require.Contains(t, record(t, run, "error")["message"], "4 of 10 done")
	c.start("overdue-reminders", `{}`)
}

func TestAFailedRunDoesNotRevealTheCause(t *testing.T) {
	t.Parallel()
	s := connected(t, "", Options{})
	c := caller(t, s, owner())
	execute(t, s, "UPDATE automations SET action = 'no-such' WHERE id = 'weekly-report'")
	run := c.finished(c.start("weekly-report", `{}`))
	require.Equal(t, runFailed, run["status"])
	require.Equal(t, "INTERNAL", record(t, run, "error")["code"])
	require.NotContains(t, fmt.Sprint(run), "no-such")
	c.succeeded("overdue-reminders", `{}`)
}
