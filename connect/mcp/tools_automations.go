package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/connect/internal/cleantext"
)

const (
	initialPollInterval = 200 * time.Millisecond
	maxPollInterval     = 2 * time.Second
)

type automationPage struct {
	Automations []data.Automation `json:"automations" maxItems:"100"`
	nextCursor
}

type runResult struct {
	Run data.Run `json:"run"`
}

type runArguments struct {
	AutomationID string         `json:"automation_id" minLength:"1" maxLength:"128" pattern:"^[\\x21-\\x7e]+$" example:"overdue-reminders"`
	Input        jsontext.Value `json:"input,omitzero" example:"{\"minimum_days_overdue\":7}" jsonschema:"Must match the automation's input_schema. Default: {}."`
	WaitSeconds  int            `json:"wait_seconds,omitzero" minimum:"0" maximum:"60" default:"20" jsonschema:"How long to wait for the run to end. 0 returns as soon as it has started."`
	keyArgument
}

type startedRun struct {
	Run     data.Run `json:"run"`
	Ended   bool     `json:"ended" jsonschema:"false: it is still running; poll it with automations_run_get."`
	Message string   `json:"message" maxLength:"500"`
	idempotencyResult
}

func withoutNullResult(r data.Run) data.Run {
	if r.Result.Kind() == jsontext.KindNull {
		r.Result = nil
	}
	return r
}

func automationTools() map[string]function {
	return map[string]function{
		"automations_list": handle(func(ctx context.Context, c *toolCall, l data.List) (automationPage, error) {
			page, err := c.data().Automations().List(ctx, c.caller, l)
			for i := range page.Items {
				page.Items[i].InputSchema = orObject(page.Items[i].InputSchema)
			}
			return automationPage{page.Items, next(page.Next)}, err
		}),
		"automations_run_get": handle(func(ctx context.Context, c *toolCall, a idArguments) (runResult, error) {
			run, err := c.data().Run(ctx, c.caller, a.ID)
			return runResult{withoutNullResult(run)}, err
		}),
		"automations_run": handle(runAutomation),
	}
}

func runAutomation(ctx context.Context, c *toolCall, a runArguments) (startedRun, error) {
	input := orObject(a.Input)
	w, o, err := c.idempotentWrite(ctx, a.IdempotencyKey, a.AutomationID, input)
	if err != nil {
		return startedRun{}, err
	}
	wait := time.Duration(a.WaitSeconds) * time.Second
	c.stream.extendDeadline(wait)
	run, err := c.data().StartRun(context.WithoutCancel(ctx), c.caller, w, a.AutomationID, input)
	if err != nil {
		return startedRun{}, err
	}
	if o.replayed || wait > 0 {
		run = c.follow(ctx, run, wait)
	}
	c.target = fmt.Sprintf("automation %s, run %s", a.AutomationID, run.ID)
	if run.Status == data.RunFailed {
		return startedRun{}, failedRun(run, o)
	}
	message := "The run has ended."
	if !run.Ended() {
		message = "The run was started and has not ended. Poll it with automations_run_get and the run's id; do not start it again."
	}
	return startedRun{withoutNullResult(run), run.Ended(), message, o.result()}, nil
}

// failedRun returns the error of a failed run, with the steps that were and were not done.
func failedRun(run data.Run, o *idempotency) *toolError {
	var did, not []string
	for _, s := range run.Steps {
		name := cleantext.Line(s.Name, maxName)
		if s.Status == "succeeded" {
			did = append(did, name)
		} else {
			not = append(not, name+" ("+string(s.Status)+")")
		}
	}
	failed := &toolError{
		code: codeRunFailed, message: "The automation was started and failed.",
		effect: fmt.Sprintf("Done: %s. Not done: %s.", cmp.Or(strings.Join(did, ", "), "nothing"),
			cmp.Or(strings.Join(not, ", "), "nothing")),
		advice: "Tell the user what was and was not done. To run it again, if they want that, send a new idempotency_key of your own: " +
			"what was done before may then be done again.",
		cause: errors.New("the automation's run failed"),
		data:  startedRun{Run: withoutNullResult(run), Ended: true, idempotencyResult: o.result()},
	}
	if run.Error != nil {
		failed.message += " " + cleantext.Line(run.Error.Code, maxName) + ": " + cleantext.Line(run.Error.Message, 500)
	}
	return failed
}

// follow polls a run until it ends, for at most wait, and sends progress notifications. If polling fails, it returns the run
// as last seen.
func (c *toolCall) follow(ctx context.Context, run data.Run, wait time.Duration) data.Run {
	ctx, cancel := context.WithTimeout(ctx, max(wait, time.Second))
	defer cancel()
	c.progress(run)
	pause := time.NewTimer(initialPollInterval)
	defer pause.Stop()
	// Poll once without a pause: the response to a retried call holds the run as it was when it started.
	for between := initialPollInterval; ; between = min(between*3/2, maxPollInterval) {
		seen, err := c.data().Run(ctx, c.caller, run.ID)
		switch {
		case err != nil && ctx.Err() == nil:
			c.server.log.Warn("polling a run failed", zap.String("run_id", run.ID),
				zap.String("request_id", c.requestID), zap.Error(err))
			return run
		case err != nil:
			return run
		case seen.Progress > run.Progress || seen.Status != run.Status:
			c.progress(seen)
		}
		run = seen
		if run.Ended() || wait <= 0 {
			return run
		}
		pause.Reset(between)
		select {
		case <-ctx.Done():
			return run
		case <-pause.C:
		}
	}
}

// progress sends a progress notification if the client asked for it.
func (c *toolCall) progress(run data.Run) {
	if c.progressToken == nil {
		return
	}
	message := string(run.Status)
	if run.Message != nil && *run.Message != "" {
		message = *run.Message
	}
	type params struct {
		Token    jsontext.Value `json:"progressToken"`
		Progress int            `json:"progress"`
		Total    int            `json:"total"`
		Message  string         `json:"message"`
	}
	err := c.stream.notify(struct {
		Version string `json:"jsonrpc"`
		Method  string `json:"method"`
		Params  params `json:"params"`
	}{"2.0", "notifications/progress", params{c.progressToken, run.Progress, 100, message}})
	if err != nil {
		if e := c.server.log.Check(zap.DebugLevel, "progress not sent"); e != nil {
			e.Write(zap.String("request_id", c.requestID), zap.Error(err))
		}
	}
}
