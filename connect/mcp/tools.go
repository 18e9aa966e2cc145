package mcp

import (
	"context"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/connect/internal/cleantext"
)

// allTools returns the tools. There must be fewer than 40, because some clients show an assistant only the first 40.
func allTools() []*tool {
	return slices.Concat(
		businessTools(), contactTools(), conversationTools(), appointmentTools(), receptionistTools(), salesTools(),
		automationTools(), objectTools(),
	)
}

// Arguments of several tools, and their descriptions.

type idArguments struct {
	ID string `json:"id" minLength:"1" maxLength:"128" pattern:"^[\\x21-\\x7e]+$"`
}

type deleteArguments struct {
	idArguments
	confirmArgument
}

type versionArgument struct {
	IfVersion int64 `json:"if_version,omitzero" minimum:"1" maximum:"9007199254740991" jsonschema:"The record's version as you read it. If it has changed since, nothing is done and you are told. Leave it out to overwrite whatever is there."`
}

type keyArgument struct {
	IdempotencyKey string `json:"idempotency_key,omitzero" minLength:"8" maxLength:"100" pattern:"^[\\x21-\\x7e]+$" example:"reminders-2026-03-05-second" jsonschema:"Names this one call. Normally leave it out: the same call with the same arguments within 10 minutes then counts as a repetition and returns the first result again. To do the same thing twice on purpose, send a new key of your own."`
}

type confirmArgument struct {
	Confirm bool `json:"confirm,omitzero" default:"false" jsonschema:"Only for clients that cannot ask the person themselves: true means that you have asked the person about this record and they agreed. Leave it out at first; the tool says whether it is needed."`
}

const aboutCursor = "next_cursor of the previous result, to get the next part. Keep all other arguments the same."

const (
	argIfVersion      = "if_version"
	argIdempotencyKey = "idempotency_key"
)

// listing describes the arguments of a list tool; looksAt is what a query searches, "" if the tool takes none.
func listing(looksAt string) map[string]string {
	described := map[string]string{"cursor": aboutCursor}
	if looksAt != "" {
		described["query"] = "Words to look for in " + looksAt +
			". Every word has to occur, in any order, whatever its case. Leave it out to list everything."
	}
	return described
}

// naming describes the argument id.
func naming(of, from string) map[string]string { return map[string]string{"id": theID(of, from)} }

func theID(of, from string) string { return "The id of the " + of + ", as " + from + " gives it." }

// replacing describes the argument id of an upsert.
func replacing(of, from string) map[string]string {
	return map[string]string{"id": "The id of the " + of + " to replace, as " + from + " gives it. Leave it out to add one."}
}

// Parts of results.

type nextCursor struct {
	NextCursor *string `json:"next_cursor" maxLength:"512" jsonschema:"Send it as cursor to get the next part; null at the end."`
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
	IdempotencyKey string `json:"idempotency_key" maxLength:"100" jsonschema:"Names this call. Send it to repeat exactly this call."`
}

// created records that the call created a record.
func (c *toolCall) created(ctx context.Context, o *idempotency, record string) idempotencyResult {
	c.target = record
	c.recordCreated(detached(ctx), o, record)
	return idempotencyResult{o.replayed, o.key}
}

// deletion is the outcome of a deletion.
type deletion struct {
	Deleted bool   `json:"deleted" jsonschema:"false: the person did not agree, and nothing was deleted."`
	Message string `json:"message" maxLength:"300"`
}

type deleted struct {
	ID string `json:"id" maxLength:"255"`
	deletion
}

// removal describes what a tool deletes.
type removal struct {
	record  string // kind and id
	version int64
	named   string // for people: `the contact "Ines Halvorsen"`
	confirm bool   // the argument
	remove  func(ctx context.Context, w data.Write) error
}

// delete deletes a record if the person confirms.
func (c *toolCall) delete(ctx context.Context, r removal) (deletion, error) {
	c.target = r.record
	decision, err := c.confirm(ctx, r.confirm, r.record+" version "+number(r.version), "Delete "+r.named+" for good?")
	switch {
	case err != nil || decision == awaiting:
		return deletion{}, err
	case decision == declined:
		c.declined = true
		return deletion{Message: "The person was asked and did not agree. Nothing was deleted. Do not ask again unless they bring it up."}, nil
	}
	if err := r.remove(detached(ctx), newWrite(r.version)); err != nil {
		return deletion{}, err
	}
	c.forgetCreated(detached(ctx), r.record)
	return deletion{true, "Deleted."}, nil
}

// quoted returns a record's name for a question to the person, quoted on one line.
func quoted(name string) string { return cleantext.Quote(name, maxName) }

const maxName = 80 // characters

func number(n int64) string { return strconv.FormatInt(n, 10) }

// orObject returns raw, or an empty object if it is empty or null.
func orObject(raw jsontext.Value) jsontext.Value {
	if len(raw) == 0 || string(raw) == "null" {
		return jsontext.Value("{}")
	}
	return raw
}
