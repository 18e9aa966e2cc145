package mcp

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	questionID   = "confirm"
	confirmField = "confirm"

	// agreement is the schema of the person's answer.
	agreement = `{"type":"object","properties":{"confirm":{"type":"boolean","title":"Delete it",` +
		`"description":"It cannot be brought back.","default":false}},"required":["confirm"]}`
)

// inputNeeded is a question that the client has to put to the person before the call can go on: revision 2026-07-28 asks
// by responding with it, and the client calls again with the person's answer (MCP 2026-07-28, multi round-trip requests).
type inputNeeded struct {
	question *sdk.ElicitParams
	state    string
}

func (n *inputNeeded) result() *callResult {
	return &callResult{
		Content:       []textContent{},
		InputRequests: map[string]inputRequest{questionID: {"elicitation/create", n.question}}, RequestState: n.state,
	}
}

// answer is what became of a question.
type answer int

const (
	yes answer = iota
	no
	later // the client has to ask: see toolCall.input
)

// confirm has a person say that what cannot be undone shall be done. Where the client can ask, which takes revision
// 2026-07-28, the person is asked, and nothing the assistant says counts for it. Where it cannot, the assistant has to say by
// the argument confirm that the person agreed.
//
// subject is what the answer is about, with the record's version: an answer for another record, or for the record as it
// was before somebody changed it, is no answer.
func (c *toolCall) confirm(ctx context.Context, said bool, subject, question string) (answer, error) {
	params := &sdk.ElicitParams{Mode: "form", Message: question, RequestedSchema: jsontext.Value(agreement)}
	if !c.asks {
		if said {
			return yes, nil
		}
		return no, &toolError{
			code:     codeConfirm,
			sentence: "Deleting cannot be undone, and this client cannot ask the person.",
			done:     nothingDone,
			next: "Put this question to the person yourself: \"" + question + "\" If they agree, call again with the same " +
				"arguments and \"confirm\": true. Do not decide it for them.",
		}
	}
	if c.response != nil {
		asked, err := c.server.store.Answered(ctx, c.grant.ID, c.state, c.tool.name+" "+subject)
		if err != nil {
			return no, c.unavailable("The gateway cannot look the person's answer up at the moment.", err)
		}
		if asked {
			return answered(c.response), nil
		}
		params.Message = "This has changed since you were asked, or too much time has passed. " + params.Message
	}
	state, err := c.server.store.Ask(ctx, c.grant.ID, c.tool.name+" "+subject, c.server.o.ConfirmTimeout)
	if err != nil {
		return no, c.unavailable("The gateway cannot ask the person at the moment.", err)
	}
	c.input = &inputNeeded{question: params, state: state}
	return later, nil
}

func answered(r *elicited) answer {
	if ok, _ := r.Content[confirmField].(bool); ok && r.Action == "accept" {
		return yes
	}
	return no
}
