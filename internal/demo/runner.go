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

const (
	runLease   = 30 * time.Second // how long a run may go without progress before its process is considered dead
	sweepEvery = 5 * time.Second  // how often the runner looks for abandoned runs
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

// errRunEnded says that another process has ended the run.
var errRunEnded = errors.New("the run has been ended already")

// runner executes the runs of automations in the background, one at a time. Queue and progress are in the database:
// queued runs survive a restart, interrupted ones are marked as failed.
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
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	for {
		for _, next := range []func(context.Context) (found bool, err error){r.sweep, r.next} {
			for ctx.Err() == nil {
				found, err := next(ctx)
				if err != nil && ctx.Err() == nil {
					r.log.LogAttrs(ctx, slog.LevelError, "running automations failed", slog.Any("error", err))
				}
				if !found || err != nil {
					break
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-sweep.C:
		}
	}
}

// take finds the first run that meets a condition, and changes it with do.
func (r *runner) take(ctx context.Context, condition string, args []any, do func(tx *sql.Tx, e *execution) error) (found bool, err error) {
	e := &execution{runner: r}
	err = r.st.write(ctx, func(tx *sql.Tx) error {
		var steps string
		if err := tx.QueryRowContext(ctx, "SELECT id, business_id, automation_id, status, progress, message, steps, input"+
			" FROM automation_runs WHERE "+condition+
			" ORDER BY sequence LIMIT 1", args...).
			Scan(&e.id, &e.businessID, &e.automationID, &e.status, &e.progress, &e.message, &steps, &e.input); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(steps), &e.steps); err != nil {
			return err
		}
		return do(tx, e)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// sweep fails a run whose process died.
func (r *runner) sweep(ctx context.Context) (found bool, err error) {
	return r.take(ctx, "status = 'running' AND lease_until < ?", []any{instant(r.now())}, func(tx *sql.Tx, e *execution) error {
		e.interrupted()
		return e.save(ctx, tx)
	})
}

// next executes the oldest queued run.
func (r *runner) next(ctx context.Context) (found bool, err error) {
	var e *execution
	var do, zone string
	found, err = r.take(ctx, "status = 'queued'", nil, func(tx *sql.Tx, taken *execution) error {
		e = taken
		now := r.now()
		if _, err := tx.ExecContext(ctx, "UPDATE automation_runs SET status = 'running', started_at = ?, lease_until = ? WHERE id = ?",
			instant(now), instant(now.Add(runLease)), e.id); err != nil {
			return err
		}
		e.status = runRunning
		return tx.QueryRowContext(ctx, "SELECT b.name, b.time_zone, action FROM automations a JOIN businesses b ON b.id = a.business_id"+
			" WHERE a.business_id = ? AND a.id = ?", e.businessID, e.automationID).Scan(&e.businessName, &zone, &do)
	})
	if err != nil || !found {
		return false, err
	}
	action, ok := actions()[do]
	if e.zone, err = time.LoadLocation(zone); !ok {
		err = fmt.Errorf("there is no action %q", do)
	}
	if err == nil {
		err = action.do(ctx, e)
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
	id, businessID, automationID, input string
	businessName                        string
	zone                                *time.Location // of the business

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
	// Only a running one: another process may have ended this run after its lease.
	done, err := tx.ExecContext(ctx, "UPDATE automation_runs SET status = ?, progress = ?, message = ?, finished_at = ?, lease_until = ?,"+
		" steps = ?, result = coalesce(nullif(?, 'null'), result), error = nullif(?, 'null') WHERE id = ? AND status = 'running'",
		e.status, e.progress, e.message, e.finishedAt, instant(e.now().Add(runLease)), texts[0], texts[1], texts[2], e.id)
	if err != nil {
		return fmt.Errorf("writing a run: %w", err)
	}
	if n, err := done.RowsAffected(); err != nil || n != 1 {
		return errors.Join(errRunEnded, err)
	}
	return nil
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
