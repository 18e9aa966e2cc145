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

// What many arguments and answers have in common.

func limitArgument() node {
	return integer(1, 100).with("default", 25, "description", "How many to return at most.")
}

func cursorArgument() node {
	return node{
		"type", "string", "minLength", 1, "maxLength", 512, "pattern", "^[\\x21-\\x7e]+$",
		"description", "next_cursor of the answer before, to get the next part. Keep all other arguments the same.",
	}
}

func queryArgument(looksAt string) node {
	return text(200).because("Words to look for, in " + looksAt +
		". Every word has to occur, in any order, whatever its case. Leave it out to list everything.")
}

func idText() node {
	return node{"type", "string", "minLength", 1, "maxLength", 128, "pattern", "^[\\x21-\\x7e]+$"}
}

func idArgument(of, from string) node {
	return idText().because("The id of the " + of + ", as " + from + " gives it.")
}

func replacedArgument(of, from string) node {
	return idText().because("The id of the " + of + " to replace, as " + from + " gives it. Leave it out to add one.")
}

func versionArgument() node {
	return integer(1, 1<<53-1).because("The record's version as you read it. If it has changed since, nothing is done and you " +
		"are told. Leave it out to overwrite whatever is there.")
}

func confirmArgument() node {
	return boolean().with("default", false, "description", "Only for clients that cannot ask the person themselves: true says "+
		"that you have asked the person about this very record and they agreed. Leave it out at first; the tool says whether "+
		"it is needed.")
}

func nextCursor() node {
	return node{
		"type",
		[]string{"string", "null"},
		"maxLength", 512,
		"description", "Send it as cursor to get the next part; null at the end.",
	}
}

func id() node         { return node{"type", "string", "maxLength", 255} }
func contactID() node  { return integer(1, 1<<53-1) }
func version() node    { return integer(0, 1<<53-1).because("For if_version.") }
func free(n int) node  { return node{"type", "string", "maxLength", n} }
func words(n int) node { return free(n).orNull() }
func money() node {
	return node{"type", []string{"string", "null"}, "maxLength", 32}.example("9471.88")
}
func whenever() node { return instant().orNull() }

// part is the schema of a part of a list.
func part(name string, item node) node {
	return object(must(name, list(item, 100)), must("next_cursor", nextCursor()))
}

func deleted(what node) node {
	return object(
		must("deleted", boolean().because("false: the person did not agree, and nothing was deleted.")),
		must("id", what),
		must("message", free(300)),
	)
}

// listed is what a list tool answers.
func listed[T any](name string, page data.Page[T], err error) (*outcome, error) {
	if err != nil {
		return nil, err
	}
	return &outcome{value: pageValue(name, page.Items, page.Next)}, nil
}

func pageValue(name string, items any, next string) node {
	var cursor any
	if next != "" {
		cursor = next
	}
	return node{name, items, "next_cursor", cursor}
}

// found is what a tool answers that reads one record.
func found(name string, record any, err error) (*outcome, error) {
	if err != nil {
		return nil, err
	}
	return &outcome{value: node{name, record}}, nil
}

// done is what a tool answers that changed one record.
func done(name string, record any, target string, err error) (*outcome, error) {
	if err != nil {
		return nil, err
	}
	return &outcome{value: node{name, record}, target: target}, nil
}

// added is the schema of what a tool answers that adds one record.
func added(name string, record node) node {
	return object(
		must(name, record),
		must("repeated", boolean().because("true: this call was made before, and this is what came of it then.")),
		must("idempotency_key", free(100).because("Names this call. Send it to repeat the call with certainty.")),
	)
}

func (c *toolCall) added(ctx context.Context, name string, record any, o *once, target string) *outcome {
	c.remember(write(ctx), o, target)
	return &outcome{
		value: node{name, record, "repeated", o.replayed, "idempotency_key", o.shown}, target: target,
	}
}

type listArguments struct {
	Query  string `json:"query"`
	Limit  int    `json:"limit"`
	Cursor string `json:"cursor"`
}

func (a listArguments) list() data.List     { return data.List{Limit: a.Limit, Cursor: a.Cursor} }
func (a listArguments) search() data.Search { return data.Search{Query: a.Query, List: a.list()} }

type idArguments struct {
	ID string `json:"id"`
}

// removal is a deletion as a tool describes it.
type removal struct {
	id      any
	record  string // kind and id
	version int64
	named   string // for people: `the contact "Ines Halvorsen"`
	confirm bool   // what the assistant says
	remove  func(ctx context.Context, w data.Write) error
}

// delete has the person confirm and then deletes.
func (c *toolCall) delete(ctx context.Context, r removal) (*outcome, error) {
	question := "Delete " + r.named + " for good?"
	// The person's answer is about the record as it is.
	subject := r.record + " version " + number(r.version)
	said, input, err := c.confirm(ctx, r.confirm, subject, question)
	if err != nil {
		return nil, err
	}
	switch said {
	case later:
		return &outcome{input: input}, nil
	case no:
		return &outcome{
			value: node{
				"deleted", false, "id", r.id,
				"message", "The person was asked and did not agree. Nothing was deleted. Do not ask again unless they bring it up.",
			},
			target: r.record, refused: true,
		}, nil
	case yes:
	}
	if err := r.remove(write(ctx), fresh(r.version)); err != nil {
		return nil, err
	}
	c.forget(write(ctx), r.record)
	return &outcome{
		value: node{"deleted", true, "id", r.id, "message", "Deleted."}, target: r.record,
	}, nil
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
