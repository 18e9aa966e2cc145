package mcp_test

import (
	"context"
	"net/http"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/mcp"
)

// person answers questions.
type person struct {
	action  string
	content object
	asked   []*sdk.ElicitParams
	before  func()
}

func (p *person) options() *sdk.ClientOptions {
	return &sdk.ClientOptions{
		ElicitationHandler: func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			p.asked = append(p.asked, r.Params)
			if p.before != nil {
				p.before()
			}
			return &sdk.ElicitResult{Action: p.action, Content: p.content}, nil
		},
	}
}

func TestDeleteAsksThePersonIfTheClientSupportsElicitation(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	plain := s.connect(modern, "bearer", nil)
	contact := call(t, plain, "contacts_create", object{"first_name": "Tove", "last_name": "In person"})["contact"].(object)
	for _, refusal := range []*person{
		{action: "decline"},
		{action: "cancel"},
		{action: "accept", content: object{"confirm": false}},
	} {
		c := s.connect(modern, "bearer", refusal.options())
		// what the assistant says does not count where the person can be asked
		res := call(t, c, "contacts_delete", object{"id": contact["id"], "confirm": true})
		require.Equal(t, false, res["deleted"], "%+v", refusal)
		require.Len(t, refusal.asked, 1)
		require.Contains(t, refusal.asked[0].Message, "Tove In person")
		entries := s.audit.all()
		require.Equal(t, "denied", entries[len(entries)-1].Outcome)
		call(t, plain, "contacts_get", object{"id": contact["id"]})
	}
	yes := &person{action: "accept", content: object{"confirm": true}}
	require.Equal(t, true,
		call(t, s.connect(modern, "bearer", yes.options()), "contacts_delete", object{"id": contact["id"]})["deleted"])
	require.Contains(t, fails(t, plain, "contacts_get", object{"id": contact["id"]}), "NOT_FOUND")
}

func TestConfirmationOfAChangedRecordDeletesNothing(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	plain := s.connect(modern, "bearer", nil)

	contact := call(t, plain, "contacts_create", object{"first_name": "Before"})["contact"].(object)
	changed := false
	again := &person{action: "accept", content: object{"confirm": true}}
	again.before = func() {
		if !changed {
			changed = true
			call(t, plain, "contacts_update", object{"id": contact["id"], "first_name": "After"})
		}
	}
	// the person is asked anew, about the record as it is
	c := s.connect(modern, "bearer", again.options())
	require.Equal(t, true, call(t, c, "contacts_delete", object{"id": contact["id"]})["deleted"])
	require.Len(t, again.asked, 2)
	require.Contains(t, again.asked[0].Message, "Before")
	require.Contains(t, again.asked[1].Message, "After")
}

func TestConfirmationOfAnotherRecordDeletesNothing(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	s.allow("second", s.owner, "mcp:use")
	plain := s.connect(modern, "bearer", nil)
	one := call(t, plain, "contacts_create", object{"first_name": "One"})["contact"].(object)["id"]
	two := call(t, plain, "contacts_create", object{"first_name": "Two"})["contact"].(object)["id"]
	asking := func(token string) *sdk.ClientSession {
		o := (&person{}).options()
		o.MultiRoundTrip = &sdk.MultiRoundTripOptions{Disabled: true}
		return s.connect(modern, token, o)
	}
	c := asking("bearer")
	yes := sdk.InputResponseMap{"confirm": &sdk.ElicitResult{Action: "accept", Content: object{"confirm": true}}}
	ask := func(c *sdk.ClientSession, id any, answer sdk.InputResponseMap, state string) *sdk.CallToolResult {
		res, err := c.CallTool(t.Context(), &sdk.CallToolParams{
			Name: "contacts_delete", Arguments: object{"id": id}, InputResponses: answer, RequestState: state,
		})
		require.NoError(t, err)
		return res
	}
	question := ask(c, one, nil, "")
	require.True(t, question.NeedsInput())
	require.NotEmpty(t, question.RequestState)
	for name, res := range map[string]*sdk.CallToolResult{
		"another record":     ask(c, two, yes, question.RequestState),
		"another connection": ask(asking("second"), one, yes, question.RequestState),
		"no state":           ask(c, one, yes, ""),
		"a made-up state":    ask(c, one, yes, "9999999999.AAAA"),
		"a changed state":    ask(c, one, yes, question.RequestState+"A"),
	} {
		require.True(t, res.NeedsInput(), name)
	}
	call(t, plain, "contacts_get", object{"id": one})
	call(t, plain, "contacts_get", object{"id": two})
	require.False(t, ask(c, one, yes, question.RequestState).NeedsInput())
	require.Contains(t, fails(t, plain, "contacts_get", object{"id": one}), "NOT_FOUND")
}

// A person who has said no once must not be taken to have said yes by a second answer to the same question.
func TestConfirmationCannotBeReused(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	plain := s.connect(modern, "bearer", nil)
	id := call(t, plain, "contacts_create", object{"first_name": "Asked"})["contact"].(object)["id"]
	o := (&person{}).options()
	o.MultiRoundTrip = &sdk.MultiRoundTripOptions{Disabled: true}
	c := s.connect(modern, "bearer", o)
	answer := func(action string, confirm bool, state string) *sdk.CallToolResult {
		res, err := c.CallTool(t.Context(), &sdk.CallToolParams{
			Name: "contacts_delete", Arguments: object{"id": id}, RequestState: state,
			InputResponses: sdk.InputResponseMap{"confirm": &sdk.ElicitResult{Action: action, Content: object{"confirm": confirm}}},
		})
		require.NoError(t, err)
		return res
	}
	asked, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "contacts_delete", Arguments: object{"id": id}})
	require.NoError(t, err)
	require.True(t, asked.NeedsInput())
	require.Equal(t, false, answer("decline", false, asked.RequestState).StructuredContent.(object)["deleted"])
	again := answer("accept", true, asked.RequestState)
	require.True(t, again.NeedsInput(), "the person is asked anew")
	call(t, plain, "contacts_get", object{"id": id})
	require.Equal(t, true, answer("accept", true, again.RequestState).StructuredContent.(object)["deleted"])
}

// A fleet shares nothing but Redis: what one gateway asks, another takes the answer to.
func TestConfirmationWorksAtAnyGateway(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	other := newSetup(t, shared, func(o *mcp.Options) { o.Redis = patient(t, &redis.Options{Addr: s.redis.Addr()}) })
	id := call(t, s.connect(modern, "bearer", nil), "contacts_create", object{"first_name": "Anywhere"})["contact"].(object)["id"]
	o := (&person{}).options()
	o.MultiRoundTrip = &sdk.MultiRoundTripOptions{Disabled: true}
	asked, err := s.connect(modern, "bearer", o).CallTool(t.Context(), &sdk.CallToolParams{Name: "contacts_delete", Arguments: object{"id": id}})
	require.NoError(t, err)
	require.True(t, asked.NeedsInput())
	res, err := other.connect(modern, "bearer", o).CallTool(t.Context(), &sdk.CallToolParams{
		Name: "contacts_delete", Arguments: object{"id": id}, RequestState: asked.RequestState,
		InputResponses: sdk.InputResponseMap{"confirm": &sdk.ElicitResult{Action: "accept", Content: object{"confirm": true}}},
	})
	require.NoError(t, err)
	require.Equal(t, true, res.StructuredContent.(object)["deleted"])
}

func TestClientsOfOlderRevisionsConfirmByArgument(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	yes := &person{action: "accept", content: object{"confirm": true}}
	c := s.connect(legacy, "bearer", yes.options())
	require.Empty(t, c.ID(), "no session")
	id := call(t, c, "contacts_create", object{"first_name": "Explicit"})["contact"].(object)["id"]
	require.Contains(t, fails(t, c, "contacts_delete", object{"id": id}), "CONFIRMATION_NEEDED")
	require.Equal(t, true, call(t, c, "contacts_delete", object{"id": id, "confirm": true})["deleted"])
	require.Empty(t, yes.asked)
	res := s.post("bearer", legacy, callMessage(legacy, "calendars_list", object{}), func(r *http.Request) {
		r.Header.Set("Mcp-Session-Id", "of a gateway that had sessions")
	})
	require.Equal(t, http.StatusOK, res.StatusCode)
}
