package mcp

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/connect/internal/cleantext"
	"github.com/gatehouse-gateway/gatehouse/connect/scope"
)

// toolsJSON describes the tools. There must be fewer than 40, because some clients show an assistant only the first 40.
//
//go:embed tools.json
var toolsJSON []byte

// newTools returns the tools of the areas by name.
func newTools(areas scope.Areas) (map[string]*tool, error) {
	var all []*tool
	if err := json.Unmarshal(toolsJSON, &all, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("reading tools.json: %w", err)
	}
	functions := map[string]function{}
	for _, area := range []map[string]function{
		businessTools(), contactTools(), conversationTools(), appointmentTools(), receptionistTools(), salesTools(), automationTools(),
		objectTools(),
	} {
		maps.Copy(functions, area)
	}
	tools := map[string]*tool{}
	for _, t := range all {
		if !areas.Everything().Allows(t.Scope) {
			continue
		}
		t.function = functions[t.Name]
		if err := t.prepare(); err != nil {
			return nil, fmt.Errorf("preparing the tool %s: %w", t.Name, err)
		}
		tools[t.Name] = t
	}
	return tools, nil
}

// Arguments of several tools.

type idArguments struct {
	ID string `json:"id" minLength:"1" maxLength:"128" pattern:"^[\\x21-\\x7e]+$"`
}

type deleteArguments struct {
	idArguments
	confirmArgument
}

type versionArgument struct {
	IfVersion int64 `json:"if_version,omitzero" minimum:"1" maximum:"9007199254740991" jsonschema:"The record's version as you read it. If it has changed since, the call fails and nothing is changed. Omit it to overwrite whatever is there."`
}

type keyArgument struct {
	IdempotencyKey string `json:"idempotency_key,omitzero" minLength:"8" maxLength:"100" pattern:"^[\\x21-\\x7e]+$" example:"reminders-2026-03-05-second" jsonschema:"Identifies this call. Normally omit it: the same call with the same arguments within 10 minutes then counts as a retry and returns the first result again. To do the same thing twice on purpose, send a new key of your own."`
}

type confirmArgument struct {
	Confirm bool `json:"confirm,omitzero" default:"false" jsonschema:"Only for clients that cannot ask the user themselves: true means that you have asked the user about this record and they agreed. Omit it at first; the tool says whether it is needed."`
}

const (
	argIfVersion      = "if_version"
	argIdempotencyKey = "idempotency_key"
)

// Parts of results.

type nextCursor struct {
	NextCursor *string `json:"next_cursor" maxLength:"512" jsonschema:"Send it as cursor to get the next page; null at the end."`
}

func next(cursor string) nextCursor {
	if cursor == "" {
		return nextCursor{}
	}
	return nextCursor{&cursor}
}

// idempotencyResult tells whether a call that creates something was a retry.
type idempotencyResult struct {
	Repeated       bool   `json:"repeated" jsonschema:"true: this call was made before, and this is its result."`
	IdempotencyKey string `json:"idempotency_key" maxLength:"100" jsonschema:"Identifies this call. Send it to retry exactly this call."`
}

func (i *idempotency) result() idempotencyResult { return idempotencyResult{i.replayed, i.key} }

// list returns the function of a tool that lists a collection. page makes its result.
func list[T data.Record, F, R any](of func(*data.Client) data.Collection[T, F], page func([]T, nextCursor) R) function {
	return handle(func(ctx context.Context, c *toolCall, filter F) (R, error) {
		found, err := of(c.data()).List(ctx, c.caller, filter)
		return page(found.Items, next(found.Next)), err
	})
}

// get returns the function of a tool that reads the record of a collection with an id. result makes its result.
func get[T data.Record, F, R any](of func(*data.Client) data.Collection[T, F], result func(T) R) function {
	return handle(func(ctx context.Context, c *toolCall, a idArguments) (R, error) {
		record, err := of(c.data()).Get(ctx, c.caller, a.ID)
		return result(record), err
	})
}

// create adds a record to a collection. kind names its records in the audit log.
func create[T data.Record, F any](
	ctx context.Context, c *toolCall, in data.Collection[T, F], kind, key string, p data.Patch,
) (record T, r idempotencyResult, err error) {
	w, i, err := c.idempotentWrite(ctx, key, kind, p)
	if err != nil {
		return record, r, err
	}
	if record, err = in.Create(context.WithoutCancel(ctx), c.caller, w, p); err != nil {
		return record, r, err
	}
	c.target = kind + " " + record.RecordID()
	c.recordCreated(ctx, i, c.target)
	return record, i.result(), nil
}

// deletion is the outcome of a deletion.
type deletion struct {
	Deleted bool   `json:"deleted" jsonschema:"false: the user declined, and nothing was deleted."`
	Message string `json:"message" maxLength:"300"`
}

type deleted struct {
	ID string `json:"id" maxLength:"255"`
	deletion
}

// remove deletes a record of a collection if the user confirms. describe returns what the question calls the record, such as
// `the contact "Ines Halvorsen"`, and its version.
func remove[T data.Record, F any](
	ctx context.Context, c *toolCall, from data.Collection[T, F], kind, id string, confirm bool, describe func(T) (string, int64),
) (deletion, error) {
	found, err := from.Get(ctx, c.caller, id)
	if err != nil {
		return deletion{}, err
	}
	name, version := describe(found)
	c.target = kind + " " + id
	confirmed, err := c.confirm(ctx, confirm, c.target+" version "+strconv.FormatInt(version, 10), "Delete "+name+" for good?")
	switch {
	case err != nil || c.inputRequired != nil:
		return deletion{}, err
	case !confirmed:
		c.declined = true
		return deletion{Message: "The user was asked and declined. Nothing was deleted. Do not ask again unless they bring it up."}, nil
	}
	if err := from.Delete(context.WithoutCancel(ctx), c.caller, newWrite(version), id); err != nil {
		return deletion{}, err
	}
	c.forgetCreated(ctx, c.target)
	return deletion{true, "Deleted."}, nil
}

// quoted returns a record's name for a question to the user, quoted on one line.
func quoted(name string) string { return cleantext.Quote(name, maxName) }

const maxName = 80 // characters

// orObject returns raw, or an empty object if it is empty or null.
func orObject(raw jsontext.Value) jsontext.Value {
	if len(raw) == 0 || string(raw) == "null" {
		return jsontext.Value("{}")
	}
	return raw
}
