package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/internal/cleantext"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// handlers returns the implementations of tools that a definition cannot describe, by definition.Tool.Handler.
func handlers() map[string]handler {
	number := func(name string, least, most int, description string) upstream.Property {
		s := &upstream.Schema{Types: upstream.TypeInteger, Rules: upstream.NewRules()}
		s.Rules.Min, s.Rules.Max = strconv.Itoa(least), strconv.Itoa(most)
		return upstream.Property{Name: name, Schema: s, Description: description}
	}
	return map[string]handler{
		"automations_run": {
			arguments: []upstream.Property{number(argWait, 0, 45, "How long to wait for the end of the run. Default: 20.")},
			run:       runAutomation,
			result:    map[string]any{"ended": typed("boolean"), "message": typed("string")},
		},
		"conversations_get": {
			arguments: []upstream.Property{
				number(argMessageLimit, 1, 200, "Default: 50."),
				{Name: argMessageCursor, Schema: textOf(0, 10), Description: "next_message_cursor of the result before."},
			},
			run: conversation,
			result: map[string]any{
				"messages":            map[string]any{"type": "array", "items": typed("object")},
				"next_message_cursor": map[string]any{"type": []string{"string", "null"}},
			},
		},
	}
}

const (
	argWait          = "wait_seconds"
	argMessageLimit  = "message_limit"
	argMessageCursor = "message_cursor"
)

// number returns an integer argument for the gateway, or the default initial.
func (a *arguments) number(name string, initial int) int {
	n, _ := strconv.Atoi(cmp.Or(a.text(name), strconv.Itoa(initial))) // it has been checked
	return n
}

// conversation returns a conversation with one page of its messages.
func conversation(ctx context.Context, c *toolCall) (jsontext.Value, error) {
	from, err := strconv.Atoi(cmp.Or(strings.TrimPrefix(c.args.text(argMessageCursor), "m"), "0"))
	if err != nil || from < 0 {
		return nil, c.tool.badArguments(data.Detail{Field: argMessageCursor, Problem: "is not one of this tool's"})
	}
	response, err := c.call(ctx, data.Request{Operation: c.tool.Operation})
	if err != nil {
		return nil, err
	}
	var found struct {
		Conversation struct {
			Messages []jsontext.Value `json:"messages"`
			Others   jsontext.Value   `json:",embed"` //nolint:revive // an option of this library's
		} `json:"conversation"`
	}
	if err := json.Unmarshal(response, &found); err != nil {
		return nil, fmt.Errorf("reading a conversation: %w", err)
	}
	all := found.Conversation.Messages
	from = min(from, len(all))
	to := min(from+c.args.number(argMessageLimit, 50), len(all))
	var next *string
	if to < len(all) {
		next = new("m" + strconv.Itoa(to))
	}
	return encode(struct {
		Conversation jsontext.Value   `json:"conversation"`
		Messages     []jsontext.Value `json:"messages"`
		Next         *string          `json:"next_message_cursor"`
	}{found.Conversation.Others, all[from:to], next}), nil
}

const (
	initialPollInterval = 200 * time.Millisecond
	maxPollInterval     = 2 * time.Second
)

// run is an automation run of the data service, with the members that the gateway uses.
type run struct {
	ID       string `json:"id"`
	Status   string `json:"status"`
	DryRun   bool   `json:"dry_run"`
	Progress int    `json:"progress"`
	Message  string `json:"message"`
	Steps    []struct {
		Name   string `json:"name"`
		Status string `json:"status"`
	} `json:"steps"`
	Error *struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`

	raw jsontext.Value
}

const runFailed = "failed"

func (r *run) ended() bool { return r.Status == "succeeded" || r.Status == runFailed }

// readRun reads the run in a response.
func readRun(response jsontext.Value) (*run, error) {
	r := &run{raw: at(response, "run")}
	if err := json.Unmarshal(r.raw, r); err != nil {
		return nil, fmt.Errorf("reading a run: %w", err)
	}
	return r, nil
}

// runAutomation starts a run and waits for its end, at most for the argument wait_seconds.
func runAutomation(ctx context.Context, c *toolCall) (jsontext.Value, error) {
	wait := time.Duration(c.args.number(argWait, 20)) * time.Second
	response, i, err := c.sendOnce(ctx)
	if err != nil {
		return nil, err
	}
	r, err := readRun(response)
	if err != nil {
		return nil, err
	}
	if i.replayed || wait > 0 {
		r = c.follow(ctx, r, wait)
	}
	c.done(c.record)
	c.target = fmt.Sprintf("automation %s, run %s", strings.Join(c.args.path, " "), r.ID)
	if r.DryRun {
		c.target, c.sentence = fmt.Sprintf("automation %s, dry run %s", strings.Join(c.args.path, " "), r.ID), ""
	}
	message := "The run has ended."
	if !r.ended() {
		message = "The run was started and has not ended. Poll it with automations_run_get and the run's id; do not start it again."
	}
	content := i.appendTo(with(with(with(nil, "run", r.raw), "ended", r.ended()), "message", message))
	if r.Status == runFailed {
		return nil, failedRun(r, content)
	}
	return content, nil
}

// failedRun returns the error for a failed run, with the steps that were and were not done.
func failedRun(r *run, content jsontext.Value) *toolError {
	var did, not []string
	for _, s := range r.Steps {
		if s.Status == "succeeded" {
			did = append(did, cleantext.Line(s.Name, maxName))
		} else {
			not = append(not, cleantext.Line(s.Name, maxName)+" ("+s.Status+")")
		}
	}
	failed := &toolError{
		code: codeRunFailed, message: "The automation was started and failed.",
		effect: fmt.Sprintf("Done: %s. Not done: %s.", cmp.Or(strings.Join(did, ", "), "nothing"), cmp.Or(strings.Join(not, ", "), "nothing")),
		advice: "Tell the user what was and was not done. To run it again, if they want that, send a new idempotency_key of your own: " +
			"what was done before may then be done again.",
		cause: errors.New("the automation's run failed"),
		data:  content,
	}
	if r.Error != nil {
		failed.message += " " + cleantext.Line(r.Error.Code, maxName) + ": " + cleantext.Line(r.Error.Message, 500)
	}
	return failed
}

// follow polls a run, at least once, until it ends, wait is over or the server stops, and sends progress notifications. If polling
// fails, it returns the run as last seen.
func (c *toolCall) follow(ctx context.Context, r *run, wait time.Duration) *run {
	all := c.server.o.Definition.API.Operations()
	i := slices.IndexFunc(all, func(op *upstream.Operation) bool { return op.ID == "getRun" })
	if i < 0 {
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, max(wait, time.Second))
	defer cancel()
	c.progress(r)
	pause := time.NewTimer(initialPollInterval)
	defer pause.Stop()
	// The first poll has no pause, because the response to a retried call has the run as it was when it started.
	for between := initialPollInterval; ; between = min(between*3/2, maxPollInterval) {
		response, err := c.call(ctx, data.Request{Operation: all[i], Path: []string{r.ID}})
		var seen *run
		if err == nil {
			seen, err = readRun(response)
		}
		if err != nil {
			if ctx.Err() == nil {
				c.server.o.Log.Warn("polling a run failed", zap.String("run_id", r.ID), zap.String("request_id", c.requestID), zap.Error(err))
			}
			return r
		}
		r = seen
		c.progress(r)
		if r.ended() || wait <= 0 {
			return r
		}
		pause.Reset(between)
		select {
		case <-ctx.Done():
			return r
		case <-c.server.o.Stopping:
			return r
		case <-pause.C:
		}
	}
}

type progressParams struct {
	Token    jsontext.Value `json:"progressToken"`
	Progress float64        `json:"progress"`
	Total    int            `json:"total"`
	Message  string         `json:"message"`
}

// progress sends a progress notification if the client asked for it and something is new. Values must increase (MCP, progress), so
// that of a new message without progress is slightly above the last one.
func (c *toolCall) progress(r *run) {
	if c.progressToken == nil {
		return
	}
	p := progressParams{c.progressToken, float64(r.Progress), 100, cmp.Or(r.Message, r.Status)}
	if last := c.lastProgress; last != nil && p.Progress <= last.Progress {
		p.Progress = last.Progress + (100-last.Progress)/1000
		if p.Message == last.Message || p.Progress <= last.Progress {
			return
		}
	}
	c.lastProgress = &p
	if err := c.stream.notify(message{Version: "2.0", Method: "notifications/progress", Params: encode(p)}); err != nil {
		c.server.o.Log.Debug("progress not sent", zap.String("request_id", c.requestID), zap.Error(err))
	}
}
