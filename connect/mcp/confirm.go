package mcp

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	questionID   = "confirm"
	confirmField = "confirm"
)

// inputNeeded is a question that the client has to put to the person before the call can go on: revision 2026-07-28 asks
// by answering the call with it, and the client calls again with the person's answer.
type inputNeeded struct {
	question *sdk.ElicitParams
	state    string
}

func (n *inputNeeded) result() *sdk.CallToolResult {
	return &sdk.CallToolResult{
		InputRequests: sdk.InputRequestMap{questionID: n.question}, RequestState: n.state,
	}
}

// answer is what became of a question.
type answer int

const (
	yes answer = iota
	no
	later // the client has to ask: see the inputNeeded
)

// confirm has a person say that what cannot be undone shall be done. Where the client can ask, the person is asked, and
// nothing the assistant says counts for it. Where it cannot, the assistant has to say by the argument confirm that the
// person agreed.
//
// subject is what the answer is about, with the record's version: an answer for another record, or for the record as it
// was before somebody changed it, is no answer.
func (c *call) confirm(ctx context.Context, said bool, subject, question string) (answer, *inputNeeded, error) {
	params := &sdk.ElicitParams{
		Mode:    "form",
		Message: question,
		RequestedSchema: node{
			"type", "object",
			"properties",
			node{
				confirmField, node{
					"type", "boolean", "title", "Delete it",
					"description", "It cannot be brought back.", "default", false,
				},
			},
			"required",
			[]string{confirmField},
		},
	}
	if !c.asks() {
		if said {
			return yes, nil, nil
		}
		return no, nil, &toolError{
			code:     codeConfirm,
			sentence: "Deleting cannot be undone, and this client cannot ask the person.",
			done:     nothingDone,
			next: "Put this question to the person yourself: \"" + question + "\" If they agree, call again with the same " +
				"arguments and \"confirm\": true. Do not decide it for them.",
		}
	}
	if c.request.ProtocolVersion() >= revisionStateless {
		return c.confirmAnew(ctx, subject, params)
	}
	asking, cancel := context.WithTimeout(ctx, c.server.o.ConfirmTimeout)
	defer cancel()
	result, err := c.request.Session.Elicit(asking, params)
	if err != nil {
		return no, nil, &toolError{
			code: codeConfirm, sentence: "The person was asked to confirm this, and no answer came.", done: nothingDone,
			next: "Ask the person whether to try again.", cause: err,
		}
	}
	return answered(result), nil, nil
}

// asks reports whether the client can put questions to the person.
func (c *call) asks() bool {
	capabilities := c.request.ClientCapabilities()
	if capabilities == nil || capabilities.Elicitation == nil {
		return false
	}
	e := capabilities.Elicitation
	return e.Form != nil || e.URL == nil
}

func answered(r *sdk.ElicitResult) answer {
	if ok, _ := r.Content[confirmField].(bool); ok && r.Action == "accept" {
		return yes
	}
	return no
}

// confirmAnew looks for the person's answer in the call, and asks if there is none.
func (c *call) confirmAnew(ctx context.Context, subject string, params *sdk.ElicitParams) (answer, *inputNeeded, error) {
	secret, err := c.server.o.Memory.Secret(ctx)
	if err != nil {
		return no, nil, &toolError{
			code: codeUnavailable, sentence: "The gateway cannot ask the person at the moment.", done: nothingDone,
			next: retrySoon, cause: err,
		}
	}
	if result, ok := c.request.Params.InputResponses[questionID].(*sdk.ElicitResult); ok && result != nil {
		if c.stateHolds(secret, subject, c.request.Params.RequestState) {
			return answered(result), nil, nil
		}
		params.Message = "This has changed since you were asked, or too much time has passed. " + params.Message
	}
	return later, &inputNeeded{question: params, state: c.state(secret, subject, c.server.now())}, nil
}

// state binds a question to the connection, the tool and the record as it is, for the time that a person has to answer.
func (c *call) state(secret []byte, subject string, at time.Time) string {
	stamp := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%q %q %q %s", c.grant.ID, c.tool.name, subject, stamp)
	return stamp + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func (c *call) stateHolds(secret []byte, subject, state string) bool {
	stamp, _, _ := strings.Cut(state, ".")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return false
	}
	at := time.Unix(seconds, 0)
	if age := c.server.now().Sub(at); age < -time.Minute || age > c.server.o.ConfirmTimeout {
		return false
	}
	return hmac.Equal([]byte(state), []byte(c.state(secret, subject, at)))
}
