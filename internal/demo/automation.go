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

// automation is something that a business can have done.
type automation struct {
	ID          string // unique within the business
	BusinessID  string
	Action      string // the code that does it
	Name        string
	Description string
	Enabled     bool
	InputSchema string  // JSON Schema
	LastRun     *string // JSON, by the view
}

func automationFields() []field[automation] {
	type r = automation
	return []field[r]{
		text("id", func(r *r) *string { return &r.ID }),
		text("business_id", func(r *r) *string { return &r.BusinessID }),
		internal(text("action", func(r *r) *string { return &r.Action })),
		text("name", func(r *r) *string { return &r.Name }),
		text("description", func(r *r) *string { return &r.Description }),
		boolean("enabled", func(r *r) *bool { return &r.Enabled }),
		raw("input_schema", func(r *r) *string { return &r.InputSchema }),
	}
}

func automationKind() *kindOf[automation] {
	type r = automation
	return &kindOf[r]{
		one: "automation", many: "automations", what: "automation", table: "connect_automations", key: "name", id: "id",
		fields: append(automationFields(), optRaw("last_run", func(r *r) **string { return &r.LastRun })),
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
	ID           string
	BusinessID   string
	AutomationID string
	Status       string
	Progress     int64 // 0 to 100
	Message      *string
	Steps        string // JSON, a list of step
	Input        string // JSON
	StartedBy    string // an account
	CreatedAt    string
	StartedAt    *string
	FinishedAt   *string
	Result       *string // JSON
	Error        *string // JSON, a runError
	LeaseUntil   *string
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

func runFields() []field[automationRun] {
	type r = automationRun
	return []field[r]{
		text("id", func(r *r) *string { return &r.ID }),
		text("business_id", func(r *r) *string { return &r.BusinessID }),
		text("automation_id", func(r *r) *string { return &r.AutomationID }),
		text("status", func(r *r) *string { return &r.Status }),
		integer("progress", func(r *r) *int64 { return &r.Progress }),
		optText("message", func(r *r) **string { return &r.Message }),
		raw("steps", func(r *r) *string { return &r.Steps }),
		raw("input", func(r *r) *string { return &r.Input }),
		text("started_by", func(r *r) *string { return &r.StartedBy }),
		text("created_at", func(r *r) *string { return &r.CreatedAt }),
		optText("started_at", func(r *r) **string { return &r.StartedAt }),
		optText("finished_at", func(r *r) **string { return &r.FinishedAt }),
		optRaw("result", func(r *r) **string { return &r.Result }),
		optRaw("error", func(r *r) **string { return &r.Error }),
		internal(optText("lease_until", func(r *r) **string { return &r.LeaseUntil })),
	}
}

func runKind() *kindOf[automationRun] {
	return &kindOf[automationRun]{
		one: "run", what: "run", table: "automation_runs", fields: runFields(), id: "id",
	}
}

func automationRoutes(wake func()) []route {
	k, runs := automationKind(), runKind()
	return []route{
		{method: http.MethodGet, path: "automations", serve: func(ctx context.Context, c *connectCall) (int, []byte, error) {
			return k.page(ctx, c, c.parameters())
		}},
		{method: http.MethodPost, path: "automations/{id}/runs", serve: startRun, after: wake},
		{method: http.MethodGet, path: "automation-runs/{id}", serve: runs.get},
	}
}

// startRun queues a run: the service's runner takes it up when it is kept.
func startRun(ctx context.Context, c *connectCall) (int, []byte, error) {
	a, err := automationKind().find(ctx, c, c.path[0])
	if err != nil {
		return 0, nil, err
	}
	in := c.input(false)
	given := in.object("input", false)
	in.end()
	if err := c.problems.err(); err != nil {
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

// compact takes the white space out of a value that has been found to be JSON.
func compact(v jsontext.Value) jsontext.Value {
	v = v.Clone()
	_ = v.Compact()
	return v
}
