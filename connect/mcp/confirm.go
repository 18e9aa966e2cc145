package mcp

import (
	"context"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	questionID   = "confirm"
	confirmField = "confirm"

	confirmTimeout = 5 * time.Minute

	// confirmationSchema is the requestedSchema of the elicitation.
	confirmationSchema = `{"type":"object","properties":{"confirm":{"type":"boolean","title":"Delete it",` +
		`"description":"It cannot be brought back.","default":false}},"required":["confirm"]}`
)

// inputRequired is a result that asks the client to put a question to the person and to call again with the response
// (MCP 2026-07-28, multi round-trip requests).
type inputRequired struct {
	question *sdk.ElicitParams
	state    string
}

func (n *inputRequired) result() *callResult {
	return &callResult{
		Content:       []textContent{},
		InputRequests: map[string]inputRequest{questionID: {"elicitation/create", n.question}}, RequestState: n.state,
	}
}

// confirmation is the outcome of asking the person to confirm.
type confirmation int

const (
	confirmed confirmation = iota
	declined
	awaiting // the client has to ask: see toolCall.inputRequired
)

// confirm obtains a person's confirmation of an irreversible change. If the client supports elicitation, which takes revision
// 2026-07-28, only the person's response counts. Otherwise the assistant states with the argument confirm (claimed) that the
// person agreed.
//
// subject identifies the record and its version. A response counts only for the subject that the person was asked about.
func (c *toolCall) confirm(ctx context.Context, claimed bool, subject, question string) (confirmation, error) {
	params := &sdk.ElicitParams{Mode: "form", Message: question, RequestedSchema: jsontext.Value(confirmationSchema)}
	if !c.canElicit {
		if claimed {
			return confirmed, nil
		}
		return declined, &toolError{
			code:     codeConfirm,
			sentence: "Deleting cannot be undone, and this client cannot ask the person.",
			done:     nothingDone,
			next: "Put this question to the person yourself: \"" + question + "\" If they agree, call again with the same " +
				"arguments and \"confirm\": true. Do not decide it for them.",
		}
	}
	if c.elicitResult != nil {
		open, err := c.server.store.ConsumeConfirmation(ctx, c.grant.ID, c.requestState, c.tool.name+" "+subject)
		if err != nil {
			return declined, c.unavailable("The gateway cannot read the person's response at the moment.", err)
		}
		if open {
			return confirmationOf(c.elicitResult), nil
		}
		params.Message = "This has changed since you were asked, or too much time has passed. " + params.Message
	}
	state, err := c.server.store.CreateConfirmation(ctx, c.grant.ID, c.tool.name+" "+subject, confirmTimeout)
	if err != nil {
		return declined, c.unavailable("The gateway cannot ask the person at the moment.", err)
	}
	c.inputRequired = &inputRequired{question: params, state: state}
	return awaiting, nil
}

func confirmationOf(r *elicitResult) confirmation {
	if ok, _ := r.Content[confirmField].(bool); ok && r.Action == "accept" {
		return confirmed
	}
	return declined
}
