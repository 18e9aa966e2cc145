package mcp_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/mcp"
	"github.com/gatehouse-gateway/gatehouse/internal/demo" //nolint:depguard // the service that the tools are for
	"github.com/gatehouse-gateway/gatehouse/internal/test/connecttest"
)

// asked calls a tool that has to be confirmed, and returns the token.
func asked(t *testing.T, c *sdk.ClientSession, tool string, arguments object) string {
	t.Helper()
	return tokenIn(t, fails(t, c, tool, arguments, "CONFIRMATION_NEEDED", "Nothing was changed", "Ask the user yourself"))
}

func with(arguments object, name string, value any) object {
	arguments = maps.Clone(arguments)
	arguments[name] = value
	return arguments
}

// A token confirms one call of one tool, of the connection that got it, with the same arguments, while the record is as it was.
func TestTokenConfirmsNothingElse(t *testing.T) {
	t.Parallel()
	service := fresh(t, demo.Options{})
	for name, attack := range map[string]func(t *testing.T, s *setup, c *sdk.ClientSession, one, two any) (*sdk.ClientSession, string, object){
		"another connection of the same account": func(t *testing.T, s *setup, c *sdk.ClientSession, one, _ any) (*sdk.ClientSession, string, object) {
			t.Helper()
			s.allow("second", s.owner, "mcp:use")
			return s.connect(modern, "second", nil), "contacts_delete", object{"id": one, "confirm": asked(t, c, "contacts_delete", object{"id": one})}
		},
		"another record": func(t *testing.T, _ *setup, c *sdk.ClientSession, one, two any) (*sdk.ClientSession, string, object) {
			t.Helper()
			return c, "contacts_delete", object{"id": one, "confirm": asked(t, c, "contacts_delete", object{"id": two})}
		},
		"another tool": func(t *testing.T, _ *setup, c *sdk.ClientSession, one, _ any) (*sdk.ClientSession, string, object) {
			t.Helper()
			faq := first(t, call(t, c, "receptionist_faqs_list", nil), "faqs")
			return c, "contacts_delete", object{"id": one, "confirm": asked(t, c, "receptionist_faq_delete", object{"id": faq["id"]})}
		},
		"a changed record": func(t *testing.T, _ *setup, c *sdk.ClientSession, one, _ any) (*sdk.ClientSession, string, object) {
			t.Helper()
			token := asked(t, c, "contacts_delete", object{"id": one})
			call(t, c, "contacts_update", object{"id": one, "last_name": "A good customer"})
			return c, "contacts_delete", object{"id": one, "confirm": token}
		},
		"a made-up token": func(_ *testing.T, _ *setup, c *sdk.ClientSession, one, _ any) (*sdk.ClientSession, string, object) {
			return c, "contacts_delete", object{"id": one, "confirm": strings.Repeat("A", 26)}
		},
		"yes": func(_ *testing.T, _ *setup, c *sdk.ClientSession, one, _ any) (*sdk.ClientSession, string, object) {
			return c, "contacts_delete", object{"id": one, "confirm": "yes"}
		},
		"a changed token": func(t *testing.T, _ *setup, c *sdk.ClientSession, one, _ any) (*sdk.ClientSession, string, object) {
			t.Helper()
			return c, "contacts_delete", object{"id": one, "confirm": asked(t, c, "contacts_delete", object{"id": one}) + "A"}
		},
		"a token in another case": func(t *testing.T, _ *setup, c *sdk.ClientSession, one, _ any) (*sdk.ClientSession, string, object) {
			t.Helper()
			return c, "contacts_delete", object{"id": one, "confirm": strings.ToLower(asked(t, c, "contacts_delete", object{"id": one}))}
		},
		"an old token": func(t *testing.T, s *setup, c *sdk.ClientSession, one, _ any) (*sdk.ClientSession, string, object) {
			t.Helper()
			token := asked(t, c, "contacts_delete", object{"id": one})
			s.redis.FastForward(5*time.Minute + time.Second)
			return c, "contacts_delete", object{"id": one, "confirm": token}
		},
		"the state of a question to the user": func(t *testing.T, s *setup, c *sdk.ClientSession, one, _ any) (*sdk.ClientSession, string, object) {
			t.Helper()
			question := remove(t, asking(s, "bearer"), one, "", "")
			require.True(t, question.NeedsInput())
			return c, "contacts_delete", object{"id": one, "confirm": question.RequestState}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t, service)
			c := s.connect(modern, "bearer", nil)
			one, two := create(t, s, "One "+name), create(t, s, "Two "+name)
			by, tool, arguments := attack(t, s, c, one, two)
			text := fails(t, by, tool, arguments, "CONFIRMATION_NEEDED", "does not belong to this call", "Nothing was changed")
			require.NotEqual(t, arguments["confirm"], tokenIn(t, text), "a new token")
			require.Zero(t, s.upstream.count(http.MethodDelete, ""))
			call(t, c, "contacts_get", object{"id": one})
			// The new token is for this call.
			require.Equal(t, true, call(t, by, tool, with(arguments, "confirm", tokenIn(t, text)))["deleted"])
		})
	}
}

// What the token of a call is not bound to: the order and form of the arguments, and the revision of the protocol.
func TestTokenConfirmsTheSameCallInAnotherForm(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	id := create(t, s, "Reformatted")
	token := asked(t, s.connect(modern, "bearer", nil), "contacts_delete", object{"id": id})
	body := callMessage(legacy, "contacts_delete", object{"id": fmt.Sprintf("%.1f", id), "confirm": token})
	require.Contains(t, s.post("bearer", legacy, body).Text, `"deleted":true`)
}

func TestTokenIsGoodOnce(t *testing.T) {
	t.Parallel()
	s := newSetup(t, fresh(t, demo.Options{}))
	c := s.connect(modern, "bearer", nil)
	area := object{"name": "Twice", "kind": "city"}
	removal := object{"remove": []any{area}}
	call(t, c, "service_areas_set", object{"add": []any{area}})
	before := call(t, c, "business_get", nil)["service_areas"].(object)["service_areas"]
	removal["confirm"] = asked(t, c, "service_areas_set", removal)
	call(t, c, "service_areas_set", removal)
	// The list is as it was when the token was given, but for its version.
	call(t, c, "service_areas_set", object{"add": []any{area}})
	require.Equal(t, before, call(t, c, "business_get", nil)["service_areas"].(object)["service_areas"])
	fails(t, c, "service_areas_set", removal, "CONFIRMATION_NEEDED", "was used before")
	require.Equal(t, before, call(t, c, "business_get", nil)["service_areas"].(object)["service_areas"])
}

func TestRacingCallsUseATokenOnce(t *testing.T) {
	t.Parallel()
	// Both gateways, which share Redis and the data service, get the calls at once.
	s := newSetup(t, shared)
	other := newSetup(t, shared, func(o *mcp.Options) { o.Redis = patient(t, &redis.Options{Addr: s.redis.Addr()}) })
	for range 3 {
		id := create(t, s, "Raced")
		token := asked(t, s.connect(modern, "bearer", nil), "contacts_delete", object{"id": id})
		var mu sync.Mutex
		outcomes := map[string]int{}
		var group sync.WaitGroup
		start := make(chan struct{})
		for i := range 16 {
			gateway := s
			if i%2 == 1 {
				gateway = other
			}
			c := gateway.connect(modern, "bearer", nil)
			group.Go(func() {
				<-start
				res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "contacts_delete", Arguments: object{"id": id, "confirm": token}})
				outcome := "deleted"
				if err != nil || res.IsError {
					outcome = "error"
					for _, code := range []string{"CONFIRMATION_NEEDED", "NOT_FOUND"} {
						if err == nil && strings.Contains(textOf(res), code) {
							outcome = code
						}
					}
				}
				mu.Lock()
				defer mu.Unlock()
				outcomes[outcome]++
			})
		}
		close(start)
		group.Wait()
		require.Equal(t, 1, outcomes["deleted"], "%v", outcomes)
		require.Equal(t, 15, outcomes["CONFIRMATION_NEEDED"]+outcomes["NOT_FOUND"], "%v", outcomes)
	}
	require.Equal(t, 3, s.upstream.count(http.MethodDelete, "")+other.upstream.count(http.MethodDelete, ""))
}

// The record is read again with the second call. What changes between that and the change itself, the version tells.
func TestRecordThatChangesAfterTheTokenIsCheckedStays(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		tool, read, write string
		arguments         func(t *testing.T, c *sdk.ClientSession) object
		change            func(t *testing.T, c *sdk.ClientSession, arguments object)
	}{
		{
			"contacts_delete", "/contacts/", http.MethodDelete,
			func(t *testing.T, c *sdk.ClientSession) object {
				t.Helper()
				return object{"id": call(t, c, "contacts_create", object{"first_name": "Late"})["contact"].(object)["id"]}
			},
			func(t *testing.T, c *sdk.ClientSession, arguments object) {
				t.Helper()
				call(t, c, "contacts_update", object{"id": arguments["id"], "notes": "Has just paid."})
			},
		},
		{
			"receptionist_rules_update", "/receptionist/", http.MethodPatch,
			func(t *testing.T, c *sdk.ClientSession) object {
				t.Helper()
				rules := call(t, c, "receptionist_rules_update", object{"add": []any{object{"when": "x", "then": "y"}}})["receptionist"].(object)["rules"].([]any)
				return object{"remove": []any{rules[len(rules)-1].(object)["id"]}}
			},
			func(t *testing.T, c *sdk.ClientSession, arguments object) {
				t.Helper()
				call(t, c, "receptionist_rules_update", object{"change": []any{object{"id": arguments["remove"].([]any)[0], "then": "call the police"}}})
			},
		},
	} {
		t.Run(test.tool, func(t *testing.T) {
			t.Parallel()
			service := fresh(t, demo.Options{})
			s, other := newSetup(t, service), newSetup(t, service)
			c, rival := s.connect(modern, "bearer", nil), other.connect(modern, "bearer", nil)
			arguments := test.arguments(t, c)
			arguments["confirm"] = asked(t, c, test.tool, arguments)
			before := s.upstream.count(test.write, "")
			var once sync.Once
			s.upstream.breakWith(func(r *http.Request) (*http.Response, error) {
				if r.Method == test.write {
					once.Do(func() { test.change(t, rival, arguments) })
				}
				return nil, nil // is sent on
			})
			fails(t, c, test.tool, arguments, "CHANGED_MEANWHILE", "Nothing was changed")
			require.Equal(t, before+1, s.upstream.count(test.write, ""))
		})
	}
}

// Only what a record or the arguments call for is asked.
func TestOnlyRemovalsAndDeletionsNeedAToken(t *testing.T) {
	t.Parallel()
	s := newSetup(t, fresh(t, demo.Options{}))
	c := s.connect(modern, "bearer", nil)
	area := object{"name": "Asked", "kind": "city"}
	call(t, c, "service_areas_set", object{"add": []any{area}})
	text := fails(t, c, "service_areas_set", object{"remove": []any{area}, "add": []any{object{"name": "Other", "kind": "city"}}}, "CONFIRMATION_NEEDED")
	assert.Contains(t, text, `Remove "Asked, city" from the service areas?`)
	call(t, c, "receptionist_rules_update", object{"add": []any{object{"when": "it \"rains\"", "then": "say so"}}})
	rules := call(t, c, "receptionist_get", nil)["receptionist"].(object)["rules"].([]any)
	text = fails(t, c, "receptionist_rules_update", object{"remove": []any{rules[len(rules)-1].(object)["id"]}}, "CONFIRMATION_NEEDED")
	assert.Contains(t, text, `Remove "it 'rains', say so" from the rules of the AI receptionist?`, "in words, not by its id")
	text = fails(t, c, "receptionist_rules_update", object{"remove": []any{"no-such-rule"}}, "INVALID_ARGUMENTS")
	assert.Contains(t, text, "is not an id of the record's", "nobody is asked about nothing")
	require.Zero(t, len(s.entries())-2, "questions are not in the audit log")

	yes := &user{action: "accept", content: object{"confirm": true}}
	person := s.connect(modern, "bearer", yes.options())
	call(t, person, "service_areas_set", object{"remove": []any{area}})
	require.Len(t, yes.asked, 1)
	assert.Equal(t, `Remove "Asked, city" from the service areas?`, yes.asked[0].Message)
	call(t, person, "service_areas_set", object{"add": []any{area}})
	require.Len(t, yes.asked, 1, "nobody is asked about an addition")
}

// runOf makes the data service one whose automation a1 writes to people or not, and counts the runs.
func runOf(s *setup, writesToPeople any) {
	s.upstream.breakWith(func(r *http.Request) (*http.Response, error) {
		status, body := 200, connecttest.Record("automation", object{"name": "Remind debtors", "writes_to_people": writesToPeople})
		if r.Method == http.MethodPost {
			status, body = 202, connecttest.Record("run", object{"status": "succeeded", "progress": 100})
		}
		return response(status, "application/json", strings.ReplaceAll(body, connecttest.Business, s.owner.BusinessID)), nil
	})
}

func TestRunThatWritesToPeopleNeedsAPersonOrPermission(t *testing.T) {
	t.Parallel()
	arguments := object{"automation_id": "a1", "wait_seconds": 0}
	const tool = "automations_run"
	begin := func(t *testing.T, unasked bool) (*setup, *sdk.ClientSession) {
		t.Helper()
		s := newSetup(t, shared)
		runOf(s, true)
		s.mu.Lock()
		g := s.grants["bearer"]
		g.Unasked = unasked
		s.grants["bearer"] = g
		s.mu.Unlock()
		return s, s.connect(modern, "bearer", nil)
	}
	runs := func(s *setup) int { return s.upstream.count(http.MethodPost, "/runs") }

	t.Run("no person and no permission: refused, and no token", func(t *testing.T) {
		t.Parallel()
		s, c := begin(t, false)
		text := fails(t, c, tool, arguments, "CONFIRMATION_NEEDED", "/settings/connected-apps", "Nothing was changed")
		assert.NotRegexp(t, confirmToken, text)
		fails(t, c, tool, with(arguments, "confirm", "yes"), "CONFIRMATION_NEEDED")
		assert.Zero(t, runs(s))
		entries := s.entries()
		require.Len(t, entries, 2, "an owner sees that the assistant keeps trying")
		assert.Equal(t, "automations_run denied: automation a1 CONFIRMATION_NEEDED", entries[0].Target+" "+entries[0].Outcome+": "+entries[0].Detail)
	})
	t.Run("a token from when there was permission", func(t *testing.T) {
		t.Parallel()
		s, c := begin(t, true)
		token := asked(t, c, tool, arguments)
		s.mu.Lock()
		g := s.grants["bearer"]
		g.Unasked = false
		s.grants["bearer"] = g
		s.mu.Unlock()
		fails(t, c, tool, with(arguments, "confirm", token), "CONFIRMATION_NEEDED", "/settings/connected-apps")
		assert.Zero(t, runs(s))
	})
	t.Run("no person, with permission: two calls", func(t *testing.T) {
		t.Parallel()
		s, c := begin(t, true)
		token := asked(t, c, tool, arguments)
		assert.Zero(t, runs(s))
		fails(t, c, tool, object{"automation_id": "a1", "input": object{"other": true}, "confirm": token}, "CONFIRMATION_NEEDED")
		call(t, c, tool, with(arguments, "confirm", asked(t, c, tool, arguments)))
		assert.Equal(t, 1, runs(s))
		require.Len(t, s.entries(), 1)
		assert.Equal(t, "Ran the automation Remind debtors", s.entries()[0].Sentence)
	})
	t.Run("a person", func(t *testing.T) {
		t.Parallel()
		s, _ := begin(t, false)
		no, yes := &user{action: "decline"}, &user{action: "accept", content: object{"confirm": true}}
		content := call(t, s.connect(modern, "bearer", no.options()), tool, arguments)
		assert.Contains(t, content["message"], "declined")
		assert.Zero(t, runs(s))
		call(t, s.connect(modern, "bearer", yes.options()), tool, arguments)
		assert.Equal(t, 1, runs(s))
		assert.Equal(t, `Start the automation "Remind debtors"? It may write to people outside the business.`, yes.asked[0].Message)
	})
	t.Run("a dry run is free", func(t *testing.T) {
		t.Parallel()
		s, c := begin(t, false)
		call(t, c, tool, with(arguments, "dry_run", true))
		assert.Equal(t, 1, runs(s))
		for _, value := range []any{false, "false", nil} {
			fails(t, c, tool, with(arguments, "dry_run", value), "CONFIRMATION_NEEDED")
		}
		for _, value := range []any{1, "yes", "TRUE", []any{true}} {
			fails(t, c, tool, with(arguments, "dry_run", value), "INVALID_ARGUMENTS")
		}
		// The key of a dry run does not start a real one.
		fails(t, c, tool, with(arguments, "idempotency_key", "the-same-key"), "CONFIRMATION_NEEDED")
		assert.Equal(t, 1, runs(s))
	})
	t.Run("an automation that writes to nobody", func(t *testing.T) {
		t.Parallel()
		s, c := begin(t, false)
		runOf(s, false)
		call(t, c, tool, arguments)
		assert.Equal(t, 1, runs(s))
	})
	t.Run("an automation of which it is not known", func(t *testing.T) {
		t.Parallel()
		s, c := begin(t, false)
		for _, unknown := range []any{nil, connecttest.Absent, "false"} {
			runOf(s, unknown)
			fails(t, c, tool, arguments)
		}
		assert.Zero(t, runs(s))
	})
}
