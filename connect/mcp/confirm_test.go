package mcp_test

import (
	"context"
	"net/http"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/mcp"
)

// user answers questions.
type user struct {
	action  string
	content object
	asked   []*sdk.ElicitParams
	before  func()
}

func (u *user) options() *sdk.ClientOptions {
	return &sdk.ClientOptions{
		ElicitationHandler: func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			u.asked = append(u.asked, r.Params)
			if u.before != nil {
				u.before()
			}
			return &sdk.ElicitResult{Action: u.action, Content: u.content}, nil
		},
	}
}

func TestDeleteAsksTheUserIfTheClientSupportsElicitation(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	plain := s.connect(modern, "bearer", nil)
	id := create(t, s, "Tove In person")
	for _, refusal := range []*user{
		{action: "decline"},
		{action: "cancel"},
		{action: "accept", content: object{"confirm": false}},
	} {
		c := s.connect(modern, "bearer", refusal.options())
		// The assistant's confirmation does not count if the client supports elicitation.
		res := call(t, c, "contacts_delete", object{"id": id, "confirm": "yes"})
		require.Equal(t, false, res["deleted"], "%+v", refusal)
		said := map[string]string{"decline": "declined", "cancel": "closed without an answer", "accept": "accepted without ticking"}
		require.Contains(t, res["message"], said[refusal.action])
		require.Len(t, refusal.asked, 1)
		require.Contains(t, refusal.asked[0].Message, "Tove In person")
		entries := s.entries()
		require.Equal(t, "denied", entries[len(entries)-1].Outcome)
		call(t, plain, "contacts_get", object{"id": id})
	}
	yes := &user{action: "accept", content: object{"confirm": true}}
	require.Equal(t, true,
		call(t, s.connect(modern, "bearer", yes.options()), "contacts_delete", object{"id": id})["deleted"])
	fails(t, plain, "contacts_get", object{"id": id}, "NOT_FOUND")
}

func TestConfirmationOfAChangedRecordDeletesNothing(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	plain := s.connect(modern, "bearer", nil)
	id := create(t, s, "Before")
	changed := false
	again := &user{action: "accept", content: object{"confirm": true}}
	again.before = func() {
		if !changed {
			changed = true
			call(t, plain, "contacts_update", object{"id": id, "first_name": "After"})
		}
	}
	// The user is asked again about the changed record.
	c := s.connect(modern, "bearer", again.options())
	assert.Equal(t, true, call(t, c, "contacts_delete", object{"id": id})["deleted"])
	require.Len(t, again.asked, 2)
	assert.Contains(t, again.asked[0].Message, "Before")
	assert.Contains(t, again.asked[1].Message, "After")
}

// asking returns a client that leaves questions to the test.
func asking(s *setup, token string) *sdk.ClientSession {
	s.t.Helper()
	o := (&user{}).options()
	o.MultiRoundTrip = &sdk.MultiRoundTripOptions{Disabled: true}
	return s.connect(modern, token, o)
}

// remove calls contacts_delete, with the response to a question unless the action is "".
func remove(t *testing.T, c *sdk.ClientSession, id any, action, state string) *sdk.CallToolResult {
	t.Helper()
	params := &sdk.CallToolParams{Name: "contacts_delete", Arguments: object{"id": id}, RequestState: state}
	if action != "" {
		params.InputResponses = sdk.InputResponseMap{
			"confirm": &sdk.ElicitResult{Action: action, Content: object{"confirm": action == "accept"}},
		}
	}
	res, err := c.CallTool(t.Context(), params)
	require.NoError(t, err)
	return res
}

func TestConfirmationOfAnotherRecordDeletesNothing(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	s.allow("second", s.owner, "mcp:use")
	one, two := create(t, s, "One"), create(t, s, "Two")
	c := asking(s, "bearer")
	question := remove(t, c, one, "", "")
	require.True(t, question.NeedsInput())
	require.NotEmpty(t, question.RequestState)
	for name, res := range map[string]*sdk.CallToolResult{
		"another record":     remove(t, c, two, "accept", question.RequestState),
		"another connection": remove(t, asking(s, "second"), one, "accept", question.RequestState),
		"no state":           remove(t, c, one, "accept", ""),
		"a made-up state":    remove(t, c, one, "accept", "9999999999.AAAA"),
		"a changed state":    remove(t, c, one, "accept", question.RequestState+"A"),
	} {
		assert.True(t, res.NeedsInput(), name)
	}
	call(t, c, "contacts_get", object{"id": one})
	call(t, c, "contacts_get", object{"id": two})
	require.False(t, remove(t, c, one, "accept", question.RequestState).NeedsInput())
	fails(t, c, "contacts_get", object{"id": one}, "NOT_FOUND")
}

// A fleet only shares Redis, so another gateway must accept the response to a question.
func TestConfirmationWorksAtAnyGateway(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	other := newSetup(t, shared, func(o *mcp.Options) { o.Redis = patient(t, &redis.Options{Addr: s.redis.Addr()}) })
	id := create(t, s, "Anywhere")
	asked := remove(t, asking(s, "bearer"), id, "", "")
	require.True(t, asked.NeedsInput())
	res := remove(t, asking(other, "bearer"), id, "accept", asked.RequestState)
	require.Equal(t, true, res.StructuredContent.(object)["deleted"])
}

func TestClientsOfOlderRevisionsConfirmByArgument(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	yes := &user{action: "accept", content: object{"confirm": true}}
	c := s.connect(legacy, "bearer", yes.options())
	require.Empty(t, c.ID(), "no session")
	id := create(t, s, "Explicit")
	fails(t, c, "contacts_delete", object{"id": id}, "CONFIRMATION_NEEDED")
	require.Equal(t, true, confirmed(t, c, "contacts_delete", object{"id": id})["deleted"])
	require.Empty(t, yes.asked)
	res := s.post("bearer", legacy, callMessage(legacy, "calendars_list", object{}), func(r *http.Request) {
		r.Header.Set("Mcp-Session-Id", "of a gateway that had sessions")
	})
	require.Equal(t, http.StatusOK, res.StatusCode)
}
