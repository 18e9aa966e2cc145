package mcp_test

import (
	"context"
	"net/http"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
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

func TestDeletingAsksThePersonWhereTheClientCan(t *testing.T) {
	t.Parallel()
	eachEra(t, func(t *testing.T, era string) {
		t.Helper()
		s := newSetup(t, shared)
		plain := s.connect(era, "bearer", nil)
		contact := call(t, plain, "contacts_create", object{"first_name": "Tove", "last_name": "In " + era})["contact"].(object)
		for _, refusal := range []*person{
			{action: "decline"},
			{action: "cancel"},
			{action: "accept", content: object{"confirm": false}},
		} {
			c := s.connect(era, "bearer", refusal.options())
			// what the assistant says does not count where the person can be asked
			res := call(t, c, "contacts_delete", object{"id": contact["id"], "confirm": true})
			require.Equal(t, false, res["deleted"], "%+v", refusal)
			require.Len(t, refusal.asked, 1)
			require.Contains(t, refusal.asked[0].Message, "Tove In "+era)
			entries := s.trail.all()
			require.Equal(t, "refused", entries[len(entries)-1].Outcome)
			call(t, plain, "contacts_get", object{"id": contact["id"]})
		}
		yes := &person{action: "accept", content: object{"confirm": true}}
		require.Equal(t, true,
			call(t, s.connect(era, "bearer", yes.options()), "contacts_delete", object{"id": contact["id"]})["deleted"])
		require.Contains(t, fails(t, plain, "contacts_get", object{"id": contact["id"]}), "NOT_FOUND")
	})
}

func TestARecordThatChangesWhileThePersonThinksIsNotDeletedUnseen(t *testing.T) {
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
	// without sessions the person is asked anew, about the record as it is
	c := s.connect(modern, "bearer", again.options())
	require.Equal(t, true, call(t, c, "contacts_delete", object{"id": contact["id"]})["deleted"])
	require.Len(t, again.asked, 2)
	require.Contains(t, again.asked[0].Message, "Before")
	require.Contains(t, again.asked[1].Message, "After")

	// with a session the data service refuses
	contact = call(t, plain, "contacts_create", object{"first_name": "Before too"})["contact"].(object)
	changed = false
	old := &person{action: "accept", content: object{"confirm": true}}
	old.before = func() { call(t, plain, "contacts_update", object{"id": contact["id"], "first_name": "After"}) }
	require.Contains(t, fails(t, s.connect(legacy, "bearer", old.options()), "contacts_delete",
		object{"id": contact["id"]}), "CHANGED_MEANWHILE")
	call(t, plain, "contacts_get", object{"id": contact["id"]})
}

func TestAnAnswerToAnotherQuestionIsNone(t *testing.T) {
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

func TestASessionThatIsNotHereIsServedWithoutQuestions(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	yes := &person{action: "accept", content: object{"confirm": true}}
	c := s.connect(legacy, "bearer", yes.options())
	require.NotEmpty(t, c.ID())
	contact := call(t, c, "contacts_create", object{"first_name": "Lost"})["contact"].(object)["id"]

	elsewhere := s.post("bearer", legacy, callMessage(legacy, "calendars_list", object{}), func(r *http.Request) {
		r.Header.Set("Mcp-Session-Id", "a session of another gateway")
	})
	require.Equal(t, http.StatusOK, elsewhere.StatusCode)

	// the gateway forgets its sessions, as at a restart
	require.NoError(t, s.server.Close())
	require.Eventually(t, func() bool {
		// not a call that is answered without looking at the session: of one that is just ending, this is told so
		res := s.post("bearer", legacy, `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{}}`, func(r *http.Request) {
			r.Header.Set("Mcp-Session-Id", c.ID())
		})
		return res.StatusCode == http.StatusOK
	}, patience, tick)
	require.Contains(t, fails(t, c, "contacts_delete", object{"id": contact}), "CONFIRMATION_NEEDED")
	require.Empty(t, yes.asked)
	require.Equal(t, true, call(t, c, "contacts_delete", object{"id": contact, "confirm": true})["deleted"])
}

func TestASessionThatItsClientEndedIsOver(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	c := s.connect(legacy, "bearer", (&person{}).options())
	id := c.ID()
	require.NotEmpty(t, id)
	require.NoError(t, c.Close())
	res := s.post("bearer", legacy, callMessage(legacy, "calendars_list", object{}), func(r *http.Request) {
		r.Header.Set("Mcp-Session-Id", id)
	})
	require.Equal(t, http.StatusNotFound, res.StatusCode)
}

func TestAnotherConnectionsSessionIsNotUsed(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	s.allow("narrow", s.other, "mcp:read")
	c := s.connect(legacy, "bearer", (&person{}).options())
	res := s.post("narrow", legacy, callMessage(legacy, "business_get", object{}), func(r *http.Request) {
		r.Header.Set("Mcp-Session-Id", c.ID())
	})
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Contains(t, read(t, res), s.other.BusinessID)
	res = s.post("narrow", legacy, callMessage(legacy, "contacts_create", object{"first_name": "X"}), func(r *http.Request) {
		r.Header.Set("Mcp-Session-Id", c.ID())
	})
	require.Equal(t, http.StatusForbidden, res.StatusCode)
}

func TestSessionsAreBoundedAndStepUpReachesThem(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	s.allow("steps", s.owner, "mcp:read")
	c := s.connect(legacy, "steps", (&person{}).options())
	_, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "contacts_create", Arguments: object{"first_name": "X"}})
	require.Error(t, err)
	s.allow("steps", s.owner, "mcp:read contacts:write")
	c = s.connect(legacy, "steps", (&person{}).options())
	call(t, c, "contacts_create", object{"first_name": "Stepped up"})

	held := 0
	for range 20 {
		if s.connect(legacy, "steps", (&person{}).options()).ID() != "" {
			held++
		}
	}
	require.Less(t, held, 20)
	require.Positive(t, held)

	none := newSetup(t, shared, func(o *mcp.Options) { o.MaxSessions = -1 })
	require.Empty(t, none.connect(legacy, "bearer", (&person{}).options()).ID())
}
