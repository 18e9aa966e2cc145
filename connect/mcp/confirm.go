package mcp

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/internal/cleantext"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

const (
	questionID   = "confirm"
	confirmField = "confirm"

	confirmTimeout = 5 * time.Minute
	maxName        = 80  // characters of a name in a question or result
	maxSent        = 600 // characters of what is sent to people, in a question
)

// confirm reports whether the call may proceed. If it needs confirmation, the user is asked first: by the client, if it supports
// elicitation in revision 2026-07-28, or else by the assistant, in two calls. The first one returns a token, which the second one has to
// send. A token is valid once and for confirmTimeout, for the same connection, tool and arguments, while the record is unchanged. It
// prevents mistakes, but not misuse by an assistant that follows injected instructions, because the assistant has the token.
func (c *toolCall) confirm(ctx context.Context) (bool, error) {
	t := c.tool
	if !t.asks() {
		return true, nil
	}
	needed, err := c.needsConfirmation(ctx)
	if err != nil || !needed {
		return err == nil, err
	}
	if !c.canElicit && t.People && (!c.grant.Unasked || t.Kind != definition.KindRun) { // the owner's permission covers runs only
		advice := "Tell the user that this takes a client that can ask them, and do not call again."
		if t.Kind == definition.KindRun {
			advice = c.server.whereAllowed() + " Tell the user, and do not call again before."
		}
		const message = "This writes to people outside the business, and this client cannot ask the user."
		return false, &toolError{code: codeConfirm, message: message, effect: nothingDone, advice: advice, cause: errUnasked}
	}
	store, subject, token, answered := c.server.store, c.subject(), c.requestState, c.elicitResult != nil
	if !c.canElicit { // an elicitation's state is not valid as a token
		subject, token = "token "+subject, c.args.text(argConfirm)
		answered = token != ""
	}
	if answered {
		open, err := store.ConsumeConfirmation(ctx, c.grant.ID, token, subject)
		switch {
		case err != nil:
			return false, c.unavailable("The gateway cannot currently check the confirmation.", err)
		case open && c.canElicit:
			agreed, _ := c.elicitResult.Content[confirmField].(bool)
			switch action := c.elicitResult.Action; {
			case action == "cancel":
				c.declined = "The question was closed without an answer. Nothing was changed. Ask the user whether they still want this."
			case action == "accept" && !agreed: // some programs do not show the form, and accept with its defaults
				c.declined = "The question was accepted without ticking \"Do it\". Nothing was changed. Ask the user whether they want this."
			case action != "accept":
				c.declined = "The user was asked and declined. Nothing was changed. Do not ask again unless they bring it up."
			}
			return c.declined == "", nil
		case open:
			return true, nil
		}
	}
	if token, err = store.CreateConfirmation(ctx, c.grant.ID, subject, confirmTimeout); err != nil {
		return false, c.unavailable("The gateway cannot currently ask for a confirmation.", err)
	}
	if c.canElicit {
		c.elicit(token, answered)
		return false, nil
	}
	return false, c.confirmByToken(token, answered)
}

// elicit sets the call's result to an elicitation request. again is set if an earlier response is no longer valid.
func (c *toolCall) elicit(state string, again bool) {
	question := c.question()
	if again {
		question = "This has changed since you were asked, or too much time has passed. " + question
	}
	agrees := map[string]any{"type": "boolean", "title": "Do it", "default": false}
	if final := c.tool.final(); final != "" {
		agrees["description"] = final
	}
	params := &sdk.ElicitParams{Mode: "form", Message: question, RequestedSchema: encode(map[string]any{
		"type": "object", "properties": map[string]any{confirmField: agrees}, "required": []string{confirmField},
	})}
	c.inputRequired = &callResult{
		Content:       []textContent{},
		InputRequests: map[string]inputRequest{questionID: {"elicitation/create", params}}, RequestState: state,
	}
}

// confirmByToken returns the error with the token for the assistant's next call. again is set if this call's token is invalid.
func (c *toolCall) confirmByToken(token string, again bool) *toolError {
	message := strings.TrimSpace(c.tool.final() + " The user must agree first, and this client cannot ask them.")
	if again {
		message = "The confirm token does not belong to this call, was used before or is older than 5 minutes, or the record has changed since."
	}
	return &toolError{
		code: codeConfirm, message: message, effect: nothingDone,
		advice: "Ask the user yourself: \"" + c.question() + "\" If they agree, call again within 5 minutes with the same arguments and " +
			"\"confirm\": \"" + token + "\". Do not decide for them.",
	}
}

// needsConfirmation reports whether the user must be asked. It reads the record that the question names.
func (c *toolCall) needsConfirmation(ctx context.Context) (bool, error) {
	says := c.tool.Confirm
	if says == nil {
		return true, nil
	}
	isArgument := says.If != "" && c.tool.takes(says.If)
	switch value := string(c.given(says.If)); {
	case says.Unless != "" && string(c.args.all[says.Unless]) == "true",
		isArgument && (value == "" || value == "[]" || value == "false"):
		return false, nil
	case says.Read == nil:
		return true, nil
	}
	path := []string{}
	for _, p := range says.Read.PathParams {
		value, given := c.args.all[c.tool.argument(p.Name)]
		if !given { // a record would be created
			return true, nil
		}
		path = append(path, plain(value))
	}
	r := data.Request{Operation: says.Read, Path: path}
	if says.Read == c.tool.Read && c.tool.changes().Forwards("If-Match") {
		r.ETag = &c.ifMatch // so that the user confirms the version that is changed
	}
	response, err := c.call(ctx, r)
	if err != nil {
		return false, err
	}
	if c.record = inner(says.Read, response); says.Read == c.tool.Read || c.tool.Read == nil { // else it may have a version of its own
		c.ifMatch = cmp.Or(c.versionIn(response), c.ifMatch)
	}
	if says.If != "" && !isArgument { // a member of the record: false means no confirmation
		return string(at(c.record, says.If)) != "false", nil
	}
	return true, c.checkRemoved(says.If)
}

// given returns an argument, or its default if it is absent.
func (c *toolCall) given(name string) jsontext.Value {
	value := c.args.all[name]
	if p := c.tool.arguments.Body.Kinds[0].Schema.Property(name); value == nil && p != nil {
		value = p.Default
	}
	return value
}

// takes reports whether a tool has an argument with a name.
func (t *tool) takes(name string) bool {
	return t.arguments.Body.Kinds[0].Schema.Property(name) != nil
}

// argument returns the name of the argument for a path or query parameter.
func (t *tool) argument(parameter string) string {
	return cmp.Or(t.Arguments[parameter], parameter)
}

// subject identifies what a confirmation is for: the tool, its arguments and the record as it was read.
func (c *toolCall) subject() string {
	all := maps.Clone(c.args.all)
	maps.DeleteFunc(all, func(name string, _ jsontext.Value) bool {
		return (name == argConfirm || name == argIdempotencyKey) && c.args.own[name] != nil
	})
	return hash(c.tool.Name + "\n" + string(canonical(encode(all))) + "\n" + string(canonical(c.record)))
}

// final returns a sentence about an effect that cannot be undone, or "" if there is none.
func (t *tool) final() string {
	switch {
	case t.Kind == definition.KindDelete:
		return "This cannot be undone."
	case t.People:
		return "What is sent to people cannot be taken back."
	}
	return ""
}

// question returns the question for the user, such as: Delete the contact "Zoe Ek" for good?
func (c *toolCall) question() string {
	says, verb, ending := cmp.Or(c.tool.Confirm, new(definition.Confirm)), "Change ", "?"
	switch {
	case c.tool.Kind == definition.KindDelete:
		verb, ending = "Delete ", " for good?"
	case c.tool.Kind == definition.KindRun:
		verb = "Start "
	case c.adds():
		verb = "Add "
	}
	if c.tool.People {
		ending += " It may write to people outside the business."
		sent := map[string]jsontext.Value{}
		for _, s := range c.tool.slots {
			value, given := c.args.all[s.argument]
			if s.body != "" {
				value, given = c.args.body[s.body]
			}
			if given && !s.path {
				sent[s.argument] = value
			}
		}
		text := string(encode(sent))
		if len(sent) > 0 {
			ending += " With: " + cleantext.Quote(text, maxSent)
		}
		if n := utf8.RuneCountInString(text) - maxSent; n > 0 {
			ending += fmt.Sprintf(" (%d more characters)", n)
		}
	}
	text := c.fill(says.Text, c.record, true)
	if says.Text == "" {
		text = c.unnamed()
	}
	value := c.given(says.If)
	switch isList := value.Kind() == jsontext.KindBeginArray; {
	case says.If == "" || !c.tool.takes(says.If):
	case isList && verb == "Change ":
		verb, text = "Remove ", c.named(value)+" from "+text
	case isList:
		text += ": " + says.If + " " + c.named(value)
	default:
		text += ": " + says.If + " " + quoted(plain(value))
	}
	return verb + text + c.args.emptied("empty") + ending
}

// adds reports whether the call creates a record.
func (c *toolCall) adds() bool {
	return c.tool.Kind == definition.KindCreate || c.tool.upserts() && c.args.all[c.tool.changed()] == nil
}

// unnamed names what the call is about by the path, if the definition has no text: animal "17", or visits of animal "17".
func (c *toolCall) unnamed() string {
	op, text := c.tool.changes(), c.tool.about
	if c.adds() {
		op = c.tool.Operation
		text = "to " + spaced(joinedName(op))
	}
	n := len(op.PathParams)
	if n == 0 {
		return text
	}
	named := spaced(collectionOf(op)) + " " + quoted(c.args.path[n-1])
	switch {
	case strings.HasSuffix(path.Base(op.Path), "}"):
		return named
	case c.adds():
		return text + " of " + named
	}
	return spaced(joinedName(op)) + " of " + named
}

// named lists values of an argument. IDs of the record's items are replaced with the texts of these items.
func (c *toolCall) named(v jsontext.Value) string {
	var values []jsontext.Value
	_ = json.Unmarshal(v, &values) // it is a list
	known := c.items()
	names := make([]string, 0, len(values))
	for _, value := range values {
		if item, ok := known[plain(value)]; ok {
			value = item
		}
		names = append(names, quoted(inWords(value)))
	}
	return strings.Join(names, ", ")
}

// items returns the items with an ID in the record's arrays, by ID.
func (c *toolCall) items() map[string]jsontext.Value {
	known := map[string]jsontext.Value{}
	for _, list := range members(c.record) {
		var items []jsontext.Value
		_ = json.Unmarshal(list, &items) // if it is a list
		for _, item := range items {
			if id := at(item, argID); id != nil {
				known[plain(id)] = item
			}
		}
	}
	return known
}

// checkRemoved returns an error if an argument lists the ID of an item to remove that the record does not have. The user is not asked
// in that case.
func (c *toolCall) checkRemoved(argument string) error {
	known := c.items()
	var removed []jsontext.Value
	_ = json.Unmarshal(c.given(argument), &removed) // if it is a list
	for i, id := range removed {
		if _, ok := known[plain(id)]; !ok && len(known) > 0 && id.Kind() != jsontext.KindBeginObject {
			return c.tool.badArguments(data.Detail{
				Field: fmt.Sprintf("%s[%d]", argument, i), Problem: "is not an id of the record's",
				Allowed: some(slices.Sorted(maps.Keys(known))),
			})
		}
	}
	return nil
}

// inWords returns the texts in an object, without its ID and text from outside, or else its ID. It returns a scalar as text.
func inWords(v jsontext.Value) string {
	if v.Kind() != jsontext.KindBeginObject {
		return plain(v)
	}
	var texts []string
	for name, value := range members(v) {
		if value.Kind() == jsontext.KindString && name != argID && !strings.HasPrefix(name, "untrusted_") {
			texts = append(texts, plain(value))
		}
	}
	return cmp.Or(strings.Join(texts, ", "), plain(at(v, argID)))
}

// quoted returns a name from a record in quotes, as one line of at most maxName characters.
func quoted(name string) string { return cleantext.Quote(name, maxName) }

// placeholders matches consecutive placeholders, such as "{first_name} {last_name}", and placeholder one of them.
var (
	placeholders = regexp.MustCompile(`\{[^{}]*\}(?:[ ,]*\{[^{}]*\})*`)
	placeholder  = regexp.MustCompile(`\{([^{}]*)\}`)
)

// fill replaces the placeholders in a text of the definition with members of the record or path arguments. Absent ones are dropped.
// Values are cleaned, and quoted if quotes is set, so that they cannot be mistaken for the text itself.
func (c *toolCall) fill(text string, record jsontext.Value, quotes bool) string {
	filled := placeholders.ReplaceAllStringFunc(text, func(row string) string {
		var b strings.Builder
		end := 0
		for _, found := range placeholder.FindAllStringSubmatchIndex(row, -1) {
			member := row[found[2]:found[3]]
			value := at(record, member)
			if value == nil && strings.Contains(c.tool.Operation.Path, "{"+member+"}") { // other arguments may differ from the record
				value = c.args.all[c.tool.argument(member)]
			}
			if text := plain(value); text != "" && text != "null" {
				if b.Len() > 0 {
					b.WriteString(row[end:found[0]])
				}
				b.WriteString(text)
			}
			end = found[1]
		}
		if b.Len() == 0 {
			return ""
		}
		if quotes {
			return quoted(b.String())
		}
		return cleantext.Line(b.String(), maxName)
	})
	return strings.TrimSpace(filled)
}
