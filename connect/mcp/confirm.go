package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/connect/internal/cleantext"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

const (
	questionID   = "confirm"
	confirmField = "confirm"

	confirmTimeout = 5 * time.Minute

	// confirmationSchema is the requestedSchema of the elicitation.
	confirmationSchema = `{"type":"object","properties":{"confirm":{"type":"boolean","title":"Do it",` +
		`"description":"This cannot be undone.","default":false}},"required":["confirm"]}`

	maxName = 80 // characters of a name in a question
)

// confirm reports whether the call may do what it is for. If it cannot be undone, a person is asked first: by the client, which takes
// elicitation and revision 2026-07-28, or else by the assistant, in two calls. The first one gets a token, which the second one
// has to send. A token is good once and for five minutes, for the same connection, tool and arguments, and only while the record is
// as it was. It guards against slips; an assistant that was talked into something has the token, too.
func (c *toolCall) confirm(ctx context.Context) (bool, error) {
	t := c.tool
	if !t.asks() {
		return true, nil
	}
	needed, err := c.needsConfirmation(ctx)
	if err != nil || !needed {
		return err == nil, err
	}
	question := c.question()
	subject := c.subject()
	params := &sdk.ElicitParams{Mode: "form", Message: question, RequestedSchema: jsontext.Value(confirmationSchema)}
	switch {
	case !c.canElicit && t.People && !c.grant.Unasked:
		return false, &toolError{
			code:    codeConfirm,
			message: "This writes to people outside the business, and this client cannot ask the user.",
			effect:  nothingDone,
			advice:  c.server.whereAllowed() + " Tell the user, and do not call again before.",
		}
	case !c.canElicit:
		return c.confirmByToken(ctx, question, subject)
	case c.elicitResult != nil:
		open, err := c.server.store.ConsumeConfirmation(ctx, c.grant.ID, c.requestState, subject)
		if err != nil {
			return false, c.unavailable("The gateway cannot currently read the user's response.", err)
		}
		if open {
			agreed, _ := c.elicitResult.Content[confirmField].(bool)
			c.declined = !agreed || c.elicitResult.Action != "accept"
			return !c.declined, nil
		}
		params.Message = "This has changed since you were asked, or too much time has passed. " + params.Message
	}
	state, err := c.server.store.CreateConfirmation(ctx, c.grant.ID, subject, confirmTimeout)
	if err != nil {
		return false, c.unavailable("The gateway cannot currently ask the user.", err)
	}
	c.inputRequired = &callResult{
		Content:       []textContent{},
		InputRequests: map[string]inputRequest{questionID: {"elicitation/create", params}}, RequestState: state,
	}
	return false, nil
}

// confirmByToken takes the token of an earlier call, or returns an error with one. It is none of the state of an elicitation.
func (c *toolCall) confirmByToken(ctx context.Context, question, subject string) (bool, error) {
	subject = "token " + subject
	message := "This cannot be undone, and this client cannot ask the user."
	if sent := c.args.text(argConfirm); sent != "" {
		open, err := c.server.store.ConsumeConfirmation(ctx, c.grant.ID, sent, subject)
		if err != nil {
			return false, c.unavailable("The gateway cannot currently check the confirmation.", err)
		}
		if open {
			return true, nil
		}
		message = "The confirm token does not belong to this call, was used before or is older than 5 minutes, or the record has changed since."
	}
	token, err := c.server.store.CreateConfirmation(ctx, c.grant.ID, subject, confirmTimeout)
	if err != nil {
		return false, c.unavailable("The gateway cannot currently check confirmations.", err)
	}
	return false, &toolError{
		code: codeConfirm, message: message, effect: nothingDone,
		advice: "Ask the user yourself: \"" + question + "\" If they agree, call again within 5 minutes with the same arguments and " +
			"\"confirm\": \"" + token + "\". Do not decide for them.",
	}
}

// needsConfirmation reads the record, and reports whether a person has to be asked.
func (c *toolCall) needsConfirmation(ctx context.Context) (bool, error) {
	says := c.tool.Confirm
	if says == nil {
		return true, nil
	}
	isArgument := says.If != "" && c.tool.takes(says.If)
	switch value := string(c.args.all[says.If]); {
	case says.Unless != "" && string(c.args.all[says.Unless]) == "true",
		isArgument && (value == "" || value == "[]" || value == "false"):
		return false, nil
	case says.Read == nil:
		return true, nil
	}
	path := []string{}
	for _, p := range says.Read.PathParams {
		path = append(path, c.args.text(c.tool.argument(p.Name)))
	}
	response, err := c.call(ctx, data.Request{Operation: says.Read, Path: path})
	if err != nil {
		return false, err
	}
	c.record = inner(says.Read, response)
	if version := plain(memberAt(response, c.tool.Version)); c.tool.Version != nil && version != "" && version != "null" {
		c.ifMatch = strconv.Quote(version)
	}
	if says.If != "" && !isArgument { // a member of the record; only false means no
		return string(memberOf(c.record, says.If)) != "false", nil
	}
	return true, c.checkRemoved(says.If)
}

// takes reports whether a tool has an argument.
func (t *tool) takes(name string) bool {
	return t.arguments.Body.Kinds[0].Schema.Property(name) != nil
}

// argument returns the name of the argument for a parameter.
func (t *tool) argument(parameter string) string {
	if name, ok := t.Arguments[parameter]; ok {
		return name
	}
	return parameter
}

// subject identifies what a confirmation is for: the tool, its arguments and the record as it was.
func (c *toolCall) subject() string {
	all := map[string]jsontext.Value{}
	for name, value := range c.args.all {
		if name != argConfirm && name != argIdempotencyKey {
			all[name] = value
		}
	}
	digest := sha256.Sum256([]byte(c.tool.Name + "\n" + string(canonical(object(all))) + "\n" + string(canonical(c.record))))
	return base64.RawURLEncoding.EncodeToString(digest[:])
}

// canonical returns JSON with sorted members.
func canonical(v jsontext.Value) jsontext.Value {
	sorted := v.Clone()
	if sorted.Format(jsontext.ReorderRawObjects(true)) != nil {
		return v
	}
	return sorted
}

// question says what would be done.
func (c *toolCall) question() string {
	text := c.tool.about
	if says := c.tool.Confirm; says != nil && says.Text != "" {
		text = c.fill(says.Text, c.record, true)
	}
	switch {
	case c.tool.Kind == definition.KindDelete:
		return "Delete " + text + " for good?"
	case c.tool.Kind == definition.KindRun && c.tool.People:
		return "Start " + text + "? It may write to people outside the business."
	case c.tool.Kind == definition.KindRun:
		return "Start " + text + "?"
	case c.tool.Confirm != nil && c.tool.takes(c.tool.Confirm.If):
		value := c.args.all[c.tool.Confirm.If]
		if value.Kind() != jsontext.KindBeginArray {
			return "Change " + text + ": " + c.tool.Confirm.If + " " + quoted(plain(value)) + "?"
		}
		return "Remove " + c.named(value) + " from " + text + "?"
	}
	return "Change " + text + "?"
}

// named describes values that are to go: by what the record says of them, if they are IDs.
func (c *toolCall) named(v jsontext.Value) string {
	var items []jsontext.Value
	if json.Unmarshal(v, &items) != nil {
		items = []jsontext.Value{v}
	}
	for i, item := range items {
		if known, _ := c.itemWithID(item); known != nil {
			items[i] = known
		}
	}
	names := make([]string, 0, len(items))
	for _, item := range items {
		names = append(names, quoted(inWords(item)))
	}
	return strings.Join(names, ", ")
}

// itemWithID returns the item with an ID in the lists of the record, or nil, and the IDs of all items.
func (c *toolCall) itemWithID(id jsontext.Value) (item jsontext.Value, ids []string) {
	var members map[string]jsontext.Value
	_ = json.Unmarshal(c.record, &members)
	for _, list := range members {
		var items []jsontext.Value
		if json.Unmarshal(list, &items) != nil {
			continue
		}
		for _, one := range items {
			of := memberOf(one, "id")
			if of == nil {
				continue
			}
			ids = append(ids, plain(of))
			if string(of) == string(id) {
				item = one
			}
		}
	}
	return item, ids
}

// checkRemoved returns an error if an argument with IDs of what is to be removed has one that the record does not have: nobody is asked
// about that.
func (c *toolCall) checkRemoved(argument string) error {
	var removed []jsontext.Value
	_ = json.Unmarshal(c.args.all[argument], &removed) // if it is a list
	for i, id := range removed {
		if item, ids := c.itemWithID(id); item == nil && ids != nil && id.Kind() != jsontext.KindBeginObject {
			failed := c.badArgument(fmt.Sprintf("%s[%d]", argument, i), "is not an id of the record's")
			failed.violations[0].Allowed = strings.Join(ids, ", ")
			return failed
		}
	}
	return nil
}

// inWords returns the texts in a value, without IDs.
func inWords(v jsontext.Value) string {
	var members map[string]jsontext.Value
	if json.Unmarshal(v, &members) != nil {
		return plain(v)
	}
	var texts []string
	d := jsontext.NewDecoder(strings.NewReader(string(v)))
	if _, err := d.ReadToken(); err != nil {
		return ""
	}
	for d.PeekKind() == jsontext.KindString {
		token, err := d.ReadToken()
		if err != nil {
			break
		}
		name := token.String()
		value, err := d.ReadValue()
		if err != nil {
			break
		}
		if value.Kind() == jsontext.KindString && name != "id" {
			texts = append(texts, plain(value))
		}
	}
	return strings.Join(texts, ", ")
}

// quoted returns a record's name, quoted on one line.
func quoted(name string) string { return cleantext.Quote(name, maxName) }

// placeholders are members in braces, in a row.
var (
	placeholders = regexp.MustCompile(`\{[^{}]*\}(?:[ ,]*\{[^{}]*\})*`)
	placeholder  = regexp.MustCompile(`\{([^{}]*)\}`)
)

// fill returns a text of the definition with the members of a record, or arguments, for what is in braces. What is absent drops out.
// Values are quoted, if quotes is set, and cleaned: they must not look like words of ours.
func (c *toolCall) fill(text string, record jsontext.Value, quotes bool) string {
	var members map[string]jsontext.Value
	_ = json.Unmarshal(record, &members)
	filled := placeholders.ReplaceAllStringFunc(text, func(row string) string {
		var b strings.Builder
		end := 0
		for _, at := range placeholder.FindAllStringSubmatchIndex(row, -1) {
			value, ok := members[row[at[2]:at[3]]]
			if !ok {
				value = c.args.all[c.tool.argument(row[at[2]:at[3]])]
			}
			if name := plain(value); name != "" && name != "null" {
				if b.Len() > 0 {
					b.WriteString(row[end:at[0]])
				}
				b.WriteString(name)
			}
			end = at[1]
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
