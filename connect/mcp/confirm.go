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
		`"description":"This cannot be undone.","default":false}},"required":["confirm"]}`
)

// confirm obtains the user's confirmation of an irreversible change. If the client supports elicitation, which takes revision
// 2026-07-28, only the user's response counts. Otherwise the assistant states with the argument confirm (claimed) that the user
// agreed.
//
// subject identifies the record and its version. A response counts only for the subject that the user was asked about. If the
// client has to ask, confirm sets c.inputRequired.
func (c *toolCall) confirm(ctx context.Context, claimed bool, subject, question string) (confirmed bool, err error) {
	params := &sdk.ElicitParams{Mode: "form", Message: question, RequestedSchema: jsontext.Value(confirmationSchema)}
	if !c.canElicit {
		if claimed {
			return true, nil
		}
		return false, &toolError{
			code:    codeConfirm,
			message: "Deleting cannot be undone, and this client cannot ask the user.",
			effect:  nothingDone,
			advice: "Ask the user yourself: \"" + question + "\" If they agree, call again with the same arguments and " +
				"\"confirm\": true. Do not decide for them.",
		}
	}
	if c.elicitResult != nil {
		open, err := c.server.store.ConsumeConfirmation(ctx, c.grant.ID, c.requestState, c.tool.Name+" "+subject)
		if err != nil {
			return false, c.unavailable("The gateway cannot currently read the user's response.", err)
		}
		if open {
			agreed, _ := c.elicitResult.Content[confirmField].(bool)
			return agreed && c.elicitResult.Action == "accept", nil
		}
		params.Message = "This has changed since you were asked, or too much time has passed. " + params.Message
	}
	state, err := c.server.store.CreateConfirmation(ctx, c.grant.ID, c.tool.Name+" "+subject, confirmTimeout)
	if err != nil {
		return false, c.unavailable("The gateway cannot currently ask the user.", err)
	}
	c.inputRequired = &callResult{
		Content:       []textContent{},
		InputRequests: map[string]inputRequest{questionID: {"elicitation/create", params}}, RequestState: state,
	}
	return false, nil
}
