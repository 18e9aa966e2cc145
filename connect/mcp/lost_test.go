package mcp_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/mcp"
	"github.com/gatehouse-gateway/gatehouse/internal/demo" //nolint:depguard // the service that the tools are for
	"github.com/gatehouse-gateway/gatehouse/internal/test/losttest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

// flow is a change, made by one call.
type flow struct {
	tool      string
	prepare   func(t *testing.T, s *setup, name string) object // returns the arguments
	done      func(t *testing.T, s *setup, name string) int    // how often it was done
	repeating bool                                             // done again by a second call, harmlessly
}

// in returns how many contacts a search finds.
func in(t *testing.T, s *setup, query string) int {
	t.Helper()
	return len(call(t, s.connect(modern, "bearer", nil), "contacts_search", object{"query": query})["contacts"].([]any))
}

func contact(t *testing.T, s *setup, name string) any {
	t.Helper()
	return call(t, s.connect(modern, "bearer", nil), "contacts_create", object{"first_name": name})["contact"].(object)["id"]
}

func flows() []flow {
	return []flow{
		{
			tool:    "contacts_create",
			prepare: func(_ *testing.T, _ *setup, name string) object { return object{"first_name": name} },
			done:    in,
		},
		{
			tool: "contacts_update",
			prepare: func(t *testing.T, s *setup, name string) object {
				t.Helper()
				return object{"id": contact(t, s, rand.Text()), "first_name": name}
			},
			done: in, repeating: true,
		},
		{
			tool: "contacts_delete",
			prepare: func(t *testing.T, s *setup, name string) object {
				t.Helper()
				return object{"id": contact(t, s, name), "confirm": true}
			},
			done: func(t *testing.T, s *setup, name string) int {
				t.Helper()
				return 1 - in(t, s, name)
			},
			repeating: true,
		},
		{
			tool: "automations_run",
			prepare: func(t *testing.T, s *setup, _ string) object {
				t.Helper()
				return object{"automation_id": enabled(t, s.connect(modern, "bearer", nil)), "wait_seconds": 0}
			},
			done: func(t *testing.T, s *setup, _ string) int {
				t.Helper()
				runs := map[string]bool{}
				for _, e := range s.audit.all() {
					if _, run, ok := strings.Cut(e.Detail, ", run "); ok {
						runs[run] = true
					}
				}
				return len(runs)
			},
		},
	}
}

// Whatever reply is lost between the gateway and Redis or the data service: what the assistant was told, what was done and what is
// in the audit log agree, and the same call made again does nothing a second time.
func TestLostReplyNeitherHidesNorDuplicatesAChange(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, f := range flows() {
		for _, retries := range []int{-1, 2} {
			if retries > 0 && f.tool != "contacts_create" {
				continue // go-redis hides the loss, whatever the tool
			}
			t.Run(fmt.Sprintf("%s with %d retries", f.tool, retries), func(t *testing.T) {
				t.Parallel()
				service := fresh(t, demo.Options{})
				begin := func(t *testing.T) (*setup, *losttest.Redis) {
					t.Helper()
					proxy := losttest.NewRedis(t, server.Addr)
					s := newSetup(t, service, func(o *mcp.Options) {
						client := redis.NewClient(&redis.Options{
							Addr: proxy.Addr(), MaxRetries: retries, ReadTimeout: patience, Protocol: 2, DisableIdentity: true,
						})
						t.Cleanup(func() { require.NoError(t, client.Close()) })
						o.Redis, o.Prefix = client, rand.Text()+":"
						log, err := audit.New(audit.Options{Redis: client, Prefix: o.Prefix, Log: o.Log, Timeout: patience})
						require.NoError(t, err)
						o.Audit, o.Limiter = log, mcp.NewLimiter(client, o.Prefix, 1_000_000)
					})
					return s, proxy
				}
				s, proxy := begin(t)
				send := func(arguments object) string {
					return read(t, s.post("bearer", modern, callMessage(modern, f.tool, arguments), nil))
				}
				name := rand.Text()
				arguments := f.prepare(t, s, name)
				proxy.Lose(0)
				s.lost.Lose(0)
				require.NotContains(t, send(arguments), "Error", "nothing is lost")
				fromRedis, fromService := proxy.Replies(), s.lost.Replies()
				require.Positive(t, fromRedis)
				require.Positive(t, fromService)
				for i := 1; i <= fromRedis+fromService; i++ {
					s, proxy = begin(t)
					name = rand.Text()
					arguments = f.prepare(t, s, name)
					entries := len(s.audit.all())
					if i <= fromRedis {
						proxy.Lose(i)
					} else {
						s.lost.Lose(i - fromRedis)
					}
					told := send(arguments)
					proxy.Lose(0)
					s.lost.Lose(0)
					done := f.done(t, s, name)
					outcomes := map[string]int{}
					for _, e := range s.audit.all()[entries:] {
						require.Equal(t, f.tool, e.Target)
						outcomes[e.Outcome]++
					}
					where := fmt.Sprintf("reply %d of %d and %d; %v; %s", i, fromRedis, fromService, outcomes, told)
					switch {
					case !strings.Contains(told, "Error "):
						require.Equal(t, 1, done, where)
						require.Equal(t, 1, outcomes[audit.OutcomeOK], where)
					case strings.Contains(told, "Nothing was changed"):
						require.Zero(t, done, where)
						require.Zero(t, outcomes[audit.OutcomeOK], where)
					default:
						require.Contains(t, told, "not known", where)
						require.Equal(t, 1, outcomes[audit.OutcomeUnknown], where)
					}
					again := send(arguments)
					if !f.repeating {
						require.NotContains(t, again, "Error ", where)
					}
					require.Equal(t, 1, f.done(t, s, name), where)
				}
			})
		}
	}
}

// An answer of the person must not be lost with a reply, so that it counts for another deletion, nor count twice.
func TestLostReplyNeverDeletesWithoutConfirmation(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := losttest.NewRedis(t, server.Addr)
	s := newSetup(t, fresh(t, demo.Options{}), func(o *mcp.Options) {
		client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: -1, ReadTimeout: patience, Protocol: 2, DisableIdentity: true})
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		o.Redis = client
		log, err := audit.New(audit.Options{Redis: client, Log: o.Log, Timeout: patience})
		require.NoError(t, err)
		o.Audit, o.Limiter = log, mcp.NewLimiter(client, "", 1_000_000)
	})
	send := func(id any, answer object, state string) object {
		body := strings.Replace(callMessage(modern, "contacts_delete", object{"id": id}), `"io.modelcontextprotocol/clientCapabilities":{}`,
			`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}`, 1)
		if answer != nil {
			said, err := json.Marshal(object{"confirm": answer})
			require.NoError(t, err)
			body = strings.Replace(body, `"params":{`, `"params":{"requestState":"`+state+`","inputResponses":`+string(said)+`,`, 1)
		}
		res := s.post("bearer", modern, body, nil)
		require.Equal(t, http.StatusOK, res.StatusCode)
		var message struct{ Result object }
		require.NoError(t, json.NewDecoder(res.Body).Decode(&message))
		return message.Result
	}
	yes, no := object{"action": "accept", "content": object{"confirm": true}}, object{"action": "decline"}
	for i := 1; i <= 6; i++ {
		name := rand.Text()
		id := contact(t, s, name)
		state := send(id, nil, "")["requestState"].(string)
		proxy.Lose(i)
		send(id, no, state)
		proxy.Lose(0)
		require.Equal(t, 1, in(t, s, name), "reply %d", i)
		if again := send(id, yes, state); again["structuredContent"] != nil { // the no was lost, and the question is still open
			continue
		}
		require.Equal(t, 1, in(t, s, name), "reply %d: the question is used up", i)
	}
}
