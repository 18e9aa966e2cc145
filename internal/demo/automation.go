package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
)

// automation is a task that a business can have done in the background.
type automation struct {
	ID          string  `db:"id"` // unique within the business
	BusinessID  string  `db:"business_id"`
	Action      string  `db:"action" json:"-"` // the code that does it
	Name        string  `db:"name"`
	Description string  `db:"description"`
	Enabled     bool    `db:"enabled"`
	InputSchema string  `db:"input_schema,json"` // JSON Schema
	LastRun     *string `db:"last_run,json"`     // JSON, by the view
}

func automationKind() *kindOf[automation] {
	return &kindOf[automation]{
		one: "automation", many: "automations", what: "automation", table: "connect_automations", key: "name", id: "id",
		fields: fieldsOf[automation](),
	}
}

// The states of a run, and of its steps.
const (
	runQueued    = "queued"
	runRunning   = "running"
	runSucceeded = "succeeded"
	runFailed    = "failed"

	stepPending = "pending"
	stepSkipped = "skipped"
)

// automationRun is one run of an automation.
type automationRun struct {
	Sequence     int64
	ID           string  `db:"id"`
	BusinessID   string  `db:"business_id"`
	AutomationID string  `db:"automation_id"`
	Status       string  `db:"status"`
	Progress     int64   `db:"progress"` // 0 to 100
	Message      *string `db:"message"`
	Steps        string  `db:"steps,json"` // JSON, a list of step
	Input        string  `db:"input,json"` // JSON
	StartedBy    string  `db:"started_by"` // an account
	CreatedAt    string  `db:"created_at"`
	StartedAt    *string `db:"started_at"`
	FinishedAt   *string `db:"finished_at"`
	Result       *string `db:"result,json"` // JSON
	Error        *string `db:"error,json"`  // JSON, a runError
	LeaseUntil   *string `db:"lease_until" json:"-"`
}

type step struct {
	Name       string  `json:"name"`
	Status     string  `json:"status"`
	Message    *string `json:"message"`
	StartedAt  *string `json:"started_at"`
	FinishedAt *string `json:"finished_at"`
}

type runError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func runKind() *kindOf[automationRun] {
	return &kindOf[automationRun]{
		one: "run", what: "run", table: "automation_runs", fields: fieldsOf[automationRun](), id: "id",
	}
}

func automationRoutes(wake func()) []route {
	k, runs := automationKind(), runKind()
	return []route{
		{method: http.MethodGet, path: "automations", query: true, serve: func(ctx context.Context, c *connectCall) (int, []byte, error) {
			return k.page(ctx, c, c.parameters())
		}},
		{method: http.MethodPost, path: "automations/{id}/runs", serve: startRun, after: wake},
		{method: http.MethodGet, path: "automation-runs/{id}", serve: runs.get},
	}
}

// startRun queues a run. The runner starts it when the transaction is committed.
func startRun(ctx context.Context, c *connectCall) (int, []byte, error) {
	a, err := automationKind().find(ctx, c, c.path[0])
	if err != nil {
		return 0, nil, err
	}
	in := c.input(false)
	given := in.object("input", false)
	if err := in.done(); err != nil {
		return 0, nil, err
	}
	if err := checkSchema(&c.problems, "input", a.InputSchema, given); err != nil {
		return 0, nil, err
	}
	if err := c.problems.err(); err != nil {
		return 0, nil, err
	}
	if !a.Enabled {
		return 0, nil, conflict("The automation is switched off.", detail{"id", "is not enabled", "automations with enabled: true"})
	}
	var other string
	err = c.tx.QueryRowContext(ctx, "SELECT id FROM automation_runs WHERE business_id = ? AND automation_id = ?"+
		" AND status IN ('queued', 'running')", c.business.ID, a.ID).Scan(&other)
	switch {
	case err == nil:
		return 0, nil, conflict("The automation is running already: wait for that run.",
			detail{"id", "has a run that has not finished", other})
	case !errors.Is(err, sql.ErrNoRows):
		return 0, nil, fmt.Errorf("looking for a run: %w", err)
	}
	steps, err := json.Marshal(plannedSteps(a.Action))
	if err != nil {
		return 0, nil, fmt.Errorf("planning a run: %w", err)
	}
	run := automationRun{
		ID: uuid.NewString(), BusinessID: c.business.ID, AutomationID: a.ID, Status: runQueued, Steps: string(steps),
		Input: string(compact(given)), StartedBy: c.account.ID, CreatedAt: instant(c.now),
	}
	k := runKind()
	if err := insert(ctx, c.tx, k.table, k.fields, []automationRun{run}); err != nil {
		return 0, nil, err
	}
	return http.StatusAccepted, k.answer(&run), nil
}

// compact removes white space from valid JSON.
func compact(v jsontext.Value) jsontext.Value {
	v = v.Clone()
	_ = v.Compact()
	return v
}
