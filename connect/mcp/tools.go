package mcp

import (
	"context"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/connect/internal/cleantext"
)

// allTools are the tools, 39 at most: some clients send an assistant the first 40 only.
func allTools() []*tool {
	return slices.Concat(
		businessTools(), contactTools(), conversationTools(), appointmentTools(), receptionistTools(), salesTools(),
		automationTools(), objectTools(),
	)
}

// Arguments that several tools have, and their descriptions.

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
	IdempotencyKey string `json:"idempotency_key,omitzero" minLength:"8" maxLength:"100" pattern:"^[\\x21-\\x7e]+$" example:"reminders-2026-03-05-second" jsonschema:"Names this one call. Leave it out normally: the same call with the same arguments within 10 minutes is then taken for a repetition and gives the first result again. To do the same thing deliberately twice, give a key of your own that you have not used before."`
}

type confirmArgument struct {
	Confirm bool `json:"confirm,omitzero" default:"false" jsonschema:"Only for clients that cannot ask the person themselves: true says that you have asked the person about this very record and they agreed. Leave it out at first; the tool says whether it is needed."`
}

const aboutCursor = "next_cursor of the answer before, to get the next part. Keep all other arguments the same."

const (
	ifVersion      = "if_version"
	idempotencyKey = "idempotency_key"
)

// listing describes the arguments of a tool that lists; looksAt is what a query looks at, "" if it takes none.
func listing(looksAt string) map[string]string {
	described := map[string]string{"cursor": aboutCursor}
	if looksAt != "" {
		described["query"] = "Words to look for, in " + looksAt +
			". Every word has to occur, in any order, whatever its case. Leave it out to list everything."
	}
	return described
}

// naming describes the argument id of a tool.
func naming(of, from string) map[string]string { return map[string]string{"id": theID(of, from)} }

func theID(of, from string) string { return "The id of the " + of + ", as " + from + " gives it." }

// replacing describes the argument id of a tool that adds or replaces.
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

// repetition says of a call that adds something whether it was made before.
type repetition struct {
	Repeated       bool   `json:"repeated" jsonschema:"true: this call was made before, and this is what came of it then."`
	IdempotencyKey string `json:"idempotency_key" maxLength:"100" jsonschema:"Names this call. Send it to repeat the call with certainty."`
}

// added records that the call has made a record.
func (c *toolCall) added(ctx context.Context, o *once, record string) repetition {
	c.target = record
	c.remember(write(ctx), o, record)
	return repetition{o.replayed, o.shown}
}

// deletion is what came of a deletion.
type deletion struct {
	Deleted bool   `json:"deleted" jsonschema:"false: the person did not agree, and nothing was deleted."`
	Message string `json:"message" maxLength:"300"`
}

type deleted struct {
	ID string `json:"id" maxLength:"255"`
	deletion
}

// removal is a deletion as a tool describes it.
type removal struct {
	record  string // kind and id
	version int64
	named   string // for people: `the contact "Ines Halvorsen"`
	confirm bool   // what the assistant says
	remove  func(ctx context.Context, w data.Write) error
}

// delete has the person confirm and then deletes.
func (c *toolCall) delete(ctx context.Context, r removal) (deletion, error) {
	c.target = r.record
	// The person's answer is about the record as it is.
	said, err := c.confirm(ctx, r.confirm, r.record+" version "+number(r.version), "Delete "+r.named+" for good?")
	switch {
	case err != nil || said == later:
		return deletion{}, err
	case said == no:
		c.refused = true
		return deletion{Message: "The person was asked and did not agree. Nothing was deleted. Do not ask again unless they bring it up."}, nil
	}
	if err := r.remove(write(ctx), fresh(r.version)); err != nil {
		return deletion{}, err
	}
	c.forget(write(ctx), r.record)
	return deletion{true, "Deleted."}, nil
}

// quoted returns a name for a question to the person: quoted on one line, at most 80 characters of it.
func quoted(name string) string { return cleantext.Quote(name, maxName) }

// maxName is how many characters of a name are quoted.
const maxName = 80

func number(n int64) string { return strconv.FormatInt(n, 10) }

// orObject is raw JSON, or an empty object.
func orObject(raw jsontext.Value) jsontext.Value {
	if len(raw) == 0 || string(raw) == "null" {
		return jsontext.Value("{}")
	}
	return raw
}
