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
	// runLease is how long a run may go without progress before its process is considered dead.
	runLease = 30 * time.Second

	// sweepEvery is how often the runner looks for abandoned runs.
	sweepEvery = 5 * time.Second
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
	return &runner{st: st, now: now, rest: resting(pace), log: log, wake: make(chan struct{}, 1)}
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
		if err := r.sweep(ctx); err != nil && ctx.Err() == nil {
			r.log.LogAttrs(ctx, slog.LevelError, "looking for abandoned runs failed", slog.Any("error", err))
		}
		for ctx.Err() == nil {
			found, err := r.next(ctx)
			if err != nil && ctx.Err() == nil {
				r.log.LogAttrs(ctx, slog.LevelError, "an automation's run could not be done", slog.Any("error", err))
			}
			if !found || err != nil {
				break
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

// sweep fails the runs whose process died.
func (r *runner) sweep(ctx context.Context) error {
	const abandoned = " FROM automation_runs WHERE status = 'running' AND lease_until < ?"
	if found, err := r.any(ctx, "SELECT EXISTS (SELECT 1"+abandoned+")", instant(r.now())); err != nil || !found {
		return err
	}
	k := runKind()
	return r.st.write(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, "SELECT "+columns(k.fields)+abandoned, instant(r.now()))
		if err != nil {
			return fmt.Errorf("reading abandoned runs: %w", err)
		}
		runs, err := collect(rows, k.fields, 0)
		if err != nil {
			return fmt.Errorf("reading abandoned runs: %w", err)
		}
		for i := range runs {
			e := execution{runner: r, run: &runs[i]}
			if err := e.load(); err != nil {
				return err
			}
			e.interrupted()
			if err := e.save(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
}

// any evaluates a query for true or false. It is asked before a write, so that an idle runner does not write.
func (r *runner) any(ctx context.Context, query string, args ...any) (yes bool, err error) {
	err = r.st.read(ctx, func(tx *sql.Tx) error { return tx.QueryRowContext(ctx, query, args...).Scan(&yes) })
	if err != nil {
		return false, fmt.Errorf("looking for runs: %w", err)
	}
	return yes, nil
}

// next executes the oldest queued run, if there is one.
func (r *runner) next(ctx context.Context) (found bool, err error) {
	if found, err := r.any(ctx, "SELECT EXISTS (SELECT 1 FROM automation_runs WHERE status = 'queued')"); err != nil || !found {
		return false, err
	}
	e := &execution{runner: r, run: new(automationRun)}
	k := runKind()
	var action string
	err = r.st.write(ctx, func(tx *sql.Tx) error {
		now := r.now()
		err := tx.QueryRowContext(ctx, "UPDATE automation_runs SET status = 'running', started_at = ?, lease_until = ?"+
			" WHERE sequence = (SELECT min(sequence) FROM automation_runs WHERE status = 'queued') RETURNING "+columns(k.fields),
			instant(now), instant(now.Add(runLease))).Scan(destinations(k.fields, e.run)...)
		if err != nil {
			return err
		}
		if err := e.load(); err != nil {
			return err
		}
		if e.business, err = findBusiness(ctx, tx, e.run.BusinessID); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, "SELECT action FROM automations WHERE business_id = ? AND id = ?",
			e.run.BusinessID, e.run.AutomationID).Scan(&action)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("taking up a run: %w", err)
	}
	do, ok := actions()[action]
	if ok {
		err = do.do(ctx, e)
	} else {
		err = fmt.Errorf("there is no action %q", action)
	}
	switch {
	case err == nil:
		e.succeeded()
	case ctx.Err() != nil:
		e.interrupted()
	default:
		r.log.LogAttrs(ctx, slog.LevelError, "an automation's run failed", slog.String("run", e.run.ID), slog.Any("error", err))
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
	run      *automationRun
	business connectBusiness
	steps    []step
	at       int // the step that is running
	result   any // what was done so far
}

func (e *execution) load() error {
	if err := json.Unmarshal([]byte(e.run.Steps), &e.steps); err != nil {
		return fmt.Errorf("reading the steps of a run: %w", err)
	}
	for e.at < len(e.steps)-1 && e.steps[e.at].FinishedAt != nil {
		e.at++
	}
	return nil
}

// save stores the run.
func (e *execution) save(ctx context.Context, tx *sql.Tx) error {
	steps, err := json.Marshal(e.steps)
	if err != nil {
		return fmt.Errorf("writing the steps of a run: %w", err)
	}
	e.run.Steps = string(steps)
	if e.result != nil {
		result, err := json.Marshal(e.result)
		if err != nil {
			return fmt.Errorf("writing the result of a run: %w", err)
		}
		e.run.Result = new(string(result))
	}
	e.run.LeaseUntil = at(e.now().Add(runLease))
	// Only a running one: another process may have ended this run after its lease.
	r := e.run
	done, err := tx.ExecContext(ctx, "UPDATE automation_runs SET status = ?, progress = ?, message = ?, steps = ?, finished_at = ?,"+
		" result = ?, error = ?, lease_until = ? WHERE id = ? AND status = 'running'",
		r.Status, r.Progress, r.Message, r.Steps, r.FinishedAt, r.Result, r.Error, r.LeaseUntil, r.ID)
	if err != nil {
		return fmt.Errorf("writing a run: %w", err)
	}
	if n, err := done.RowsAffected(); err != nil || n != 1 {
		return errors.Join(errRunEnded, err)
	}
	return nil
}

// begin ends the previous step and begins the named one.
func (e *execution) begin(ctx context.Context, name string, progress int64) error {
	for i := range e.steps {
		s := &e.steps[i]
		if s.Name == name {
			e.at, s.Status, s.StartedAt = i, runRunning, at(e.now())
			break
		}
		e.endStep(s, runSucceeded)
	}
	return e.tell(ctx, progress, "", nil)
}

// tell stores the progress in one transaction with what do writes.
func (e *execution) tell(ctx context.Context, progress int64, message string, do func(tx *sql.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.run.Progress = max(e.run.Progress, progress)
	if message != "" {
		e.run.Message, e.steps[e.at].Message = &message, &message
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

// resting returns a function that waits for the pace, or until the context is done.
func resting(pace time.Duration) func(context.Context) {
	return func(ctx context.Context) {
		if pace <= 0 {
			return
		}
		timer := time.NewTimer(pace)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
}

func (e *execution) endStep(s *step, status string) {
	if s.FinishedAt == nil {
		s.Status, s.FinishedAt = status, at(e.now())
	}
}

func (e *execution) succeeded() {
	for i := range e.steps {
		e.endStep(&e.steps[i], runSucceeded)
	}
	e.run.Status, e.run.Progress, e.run.FinishedAt = runSucceeded, 100, at(e.now())
}

func (e *execution) failed(code, message string) {
	for i := range e.steps {
		if s := &e.steps[i]; s.StartedAt == nil {
			s.Status = stepSkipped
		} else {
			e.endStep(s, runFailed)
		}
	}
	text, err := json.Marshal(runError{code, message})
	if err != nil { // never for texts
		text = []byte(`{}`)
	}
	e.run.Status, e.run.FinishedAt, e.run.Error = runFailed, at(e.now()), new(string(text))
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
	if m := e.run.Message; m != nil {
		message += " Last it was: " + *m + "."
	}
	e.failed("INTERRUPTED", message+" Start the automation again for the rest.")
}
