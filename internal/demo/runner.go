package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
)

// The states of a run, and of its steps.
const (
	runQueued    = "queued"
	runRunning   = "running"
	runSucceeded = "succeeded"
	runFailed    = "failed"
	stepPending  = "pending"
	stepSkipped  = "skipped"
)

// runner executes the runs of automations in the background, one at a time. Queue and progress are in the database:
// queued runs survive a restart, interrupted ones are marked as failed. It expects to be the database's only runner.
type runner struct {
	st   *store
	now  func() time.Time
	rest func(context.Context) // between two items
	log  *slog.Logger

	wake chan struct{} // of one place: there is something to do
	stop context.CancelFunc
	done sync.WaitGroup
}

func newRunner(st *store, now func() time.Time, pace time.Duration, log *slog.Logger) *runner {
	rest := func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-time.After(pace):
		}
	}
	return &runner{st: st, now: now, rest: rest, log: log, wake: make(chan struct{}, 1)}
}

// start starts the runner. end must be called afterwards.
func (r *runner) start() {
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	r.done.Go(func() { r.work(ctx) })
}

// end finishes the current item, marks its run as interrupted and waits until that is stored. It may be called twice,
// or without start.
func (r *runner) end() {
	if r.stop != nil {
		r.stop()
	}
	r.done.Wait()
}

// wakeUp makes the runner look for queued runs.
func (r *runner) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *runner) work(ctx context.Context) {
	r.repeat(ctx, r.interrupt)
	for {
		r.repeat(ctx, r.next)
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
	}
}

// repeat calls do until it finds no run.
func (r *runner) repeat(ctx context.Context, do func(context.Context) (found bool, err error)) {
	for ctx.Err() == nil {
		found, err := do(ctx)
		if err != nil && ctx.Err() == nil {
			r.log.LogAttrs(ctx, slog.LevelError, "running automations failed", slog.Any("error", err))
		}
		if !found || err != nil {
			return
		}
	}
}

// take finds the first run with a status, and changes it with do.
func (r *runner) take(ctx context.Context, status string, do func(tx *sql.Tx, e *execution) error) (found bool, err error) {
	e := &execution{runner: r}
	err = r.st.write(ctx, func(tx *sql.Tx) error {
		var steps, zone string
		if err := tx.QueryRowContext(ctx, "SELECT r.id, r.business_id, action, status, progress, message, steps, input, dry_run, b.name, time_zone"+
			" FROM automation_runs r JOIN automations a ON a.business_id = r.business_id AND a.id = automation_id"+
			" JOIN businesses b ON b.id = r.business_id WHERE status = ? ORDER BY sequence LIMIT 1", status).
			Scan(&e.id, &e.businessID, &e.action, &e.status, &e.progress, &e.message, &steps, &e.input, &e.dryRun, &e.businessName, &zone); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(steps), &e.steps); err != nil {
			return err
		}
		if e.zone, err = time.LoadLocation(zone); err != nil {
			return err
		}
		return do(tx, e)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// interrupt fails a run that a crash has interrupted.
func (r *runner) interrupt(ctx context.Context) (found bool, err error) {
	return r.take(ctx, runRunning, func(tx *sql.Tx, e *execution) error {
		e.interrupted()
		return e.save(ctx, tx)
	})
}

// next executes the oldest queued run.
func (r *runner) next(ctx context.Context) (found bool, err error) {
	var e *execution
	found, err = r.take(ctx, runQueued, func(tx *sql.Tx, taken *execution) error {
		e = taken
		e.status = runRunning
		_, err := tx.ExecContext(ctx, "UPDATE automation_runs SET status = ?, started_at = ? WHERE id = ?", e.status, instant(r.now()), e.id)
		return err
	})
	if err != nil || !found {
		return false, err
	}
	if action, ok := actions()[e.action]; ok {
		err = action.do(ctx, e)
	} else {
		err = fmt.Errorf("there is no action %q", e.action)
	}
	switch {
	case err == nil:
		e.succeeded()
	case ctx.Err() != nil:
		e.interrupted()
	default:
		r.log.LogAttrs(ctx, slog.LevelError, "an automation's run failed", slog.String("run", e.id), slog.Any("error", err))
		e.failed("INTERNAL", "Something went wrong in the data service. What was done until then is kept.")
	}
	// Stored even if the service is stopping.
	keep := context.WithoutCancel(ctx)
	if err := r.st.write(keep, func(tx *sql.Tx) error { return e.save(keep, tx) }); err != nil {
		return true, fmt.Errorf("ending a run: %w", err)
	}
	return true, nil
}

// execution is a run in progress.
type execution struct {
	*runner
	id, businessID, action, input string
	dryRun                        bool // writes to nobody and changes nothing
	businessName                  string
	zone                          *time.Location // of the business

	status     string
	progress   int64 // 0 to 100
	message    *string
	steps      []step
	at         int // the step that is running
	result     any // what was done so far
	failure    *runError
	finishedAt *string
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

// save stores the run.
func (e *execution) save(ctx context.Context, tx *sql.Tx) error {
	var texts [3]string
	for i, v := range []any{e.steps, e.result, e.failure} {
		text, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("writing a run: %w", err)
		}
		texts[i] = string(text)
	}
	_, err := tx.ExecContext(ctx, "UPDATE automation_runs SET status = ?, progress = ?, message = ?, finished_at = ?,"+
		" steps = ?, result = coalesce(nullif(?, 'null'), result), error = nullif(?, 'null') WHERE id = ?",
		e.status, e.progress, e.message, e.finishedAt, texts[0], texts[1], texts[2], e.id)
	return err
}

// begin ends the steps before and begins the given one.
func (e *execution) begin(ctx context.Context, step int, progress int64) error {
	e.endSteps(e.steps[:step], runSucceeded)
	e.at, e.steps[step].Status, e.steps[step].StartedAt = step, runRunning, e.present()
	return e.tell(ctx, progress, "", nil)
}

func (e *execution) present() *string { return new(instant(e.now())) }

// tell stores the progress in one transaction with what do writes.
func (e *execution) tell(ctx context.Context, progress int64, message string, do func(tx *sql.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.progress = max(e.progress, progress)
	if message != "" {
		e.message, e.steps[e.at].Message = &message, &message
	}
	// An item that has begun is finished, even if the service is stopping.
	keep := context.WithoutCancel(ctx)
	return e.st.write(keep, func(tx *sql.Tx) error {
		if do != nil {
			if err := do(tx); err != nil {
				return err
			}
		}
		return e.save(keep, tx)
	})
}

// endSteps ends the given steps that have not ended yet.
func (e *execution) endSteps(steps []step, status string) {
	for i := range steps {
		switch s := &steps[i]; {
		case status == runFailed && s.StartedAt == nil:
			s.Status = stepSkipped
		case s.FinishedAt == nil:
			s.Status, s.FinishedAt = status, e.present()
		}
	}
}

func (e *execution) succeeded() {
	e.endSteps(e.steps, runSucceeded)
	e.status, e.progress, e.finishedAt = runSucceeded, 100, e.present()
}

func (e *execution) failed(code, message string) {
	e.endSteps(e.steps, runFailed)
	e.status, e.finishedAt, e.failure = runFailed, e.present(), &runError{code, message}
}

// interrupted fails the run and says which steps are missing.
func (e *execution) interrupted() {
	var open []string
	for _, s := range e.steps {
		if s.FinishedAt == nil {
			open = append(open, fmt.Sprintf("%q", s.Name))
		}
	}
	message := "The service was stopped in the middle of the run. What was done is kept; not finished: " + strings.Join(open, ", ") + "."
	if e.message != nil {
		message += " Last it was: " + *e.message + "."
	}
	e.failed("INTERRUPTED", message+" Start the automation again for the rest.")
}
