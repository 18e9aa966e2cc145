package mcp_test

import (
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/mcp"
	"github.com/gatehouse-gateway/gatehouse/internal/demo" //nolint:depguard // the service that the tools are for
	"github.com/gatehouse-gateway/gatehouse/internal/test/netfault"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

// flow is a change by one call.
type flow struct {
	tool, of  string
	prepare   func(t *testing.T, s *setup, name string) object // returns the arguments
	done      func(t *testing.T, s *setup, name string) int    // how many times it was made
	repeating bool                                             // made again by a second call, without harm
}

// questions returns how many questions are the given one.
func questions(t *testing.T, s *setup, question string) int {
	t.Helper()
	return len(call(t, s.connect(modern, "bearer", nil), "receptionist_faqs_list", object{"query": question})["faqs"].([]any))
}

func flows() []flow {
	return []flow{
		{
			tool:    "contacts_create",
			prepare: func(_ *testing.T, _ *setup, name string) object { return object{"first_name": name} },
			done:    found,
		},
		{
			tool: "contacts_update",
			prepare: func(t *testing.T, s *setup, name string) object {
				t.Helper()
				return object{"id": create(t, s, rand.Text()), "first_name": name}
			},
			done: found, repeating: true,
		},
		{
			tool: "contacts_delete",
			prepare: func(t *testing.T, s *setup, name string) object {
				t.Helper()
				id := create(t, s, name)
				return object{"id": id, "confirm": tokenIn(t, fails(t, s.connect(modern, "bearer", nil), "contacts_delete", object{"id": id}))}
			},
			done: func(t *testing.T, s *setup, name string) int {
				t.Helper()
				return 1 - found(t, s, name)
			},
			repeating: true,
		},
		{
			tool: "receptionist_faq_upsert",
			prepare: func(_ *testing.T, _ *setup, name string) object {
				return object{"question": name, "answer": "Yes."}
			},
			done: questions,
		},
		{
			tool: "receptionist_faq_upsert", of: "with an id",
			prepare: func(t *testing.T, s *setup, name string) object {
				t.Helper()
				return object{"id": newFAQ(t, s, rand.Text())["id"], "question": name}
			},
			done: questions, repeating: true,
		},
		{
			tool: "service_areas_set",
			prepare: func(t *testing.T, s *setup, name string) object {
				t.Helper()
				c, area := s.connect(modern, "bearer", nil), object{"name": name, "kind": "city"}
				call(t, c, "service_areas_set", object{"add": area})
				arguments := object{"remove": []any{area}}
				arguments["confirm"] = asked(t, c, "service_areas_set", arguments)
				return arguments
			},
			done: func(t *testing.T, s *setup, name string) int {
				t.Helper()
				for _, area := range call(t, s.connect(modern, "bearer", nil), "business_get", nil)["service_areas"].(object)["service_areas"].([]any) {
					if area.(object)["name"] == name {
						return 0
					}
				}
				return 1
			},
			repeating: true,
		},
		{
			tool: "automations_run",
			prepare: func(t *testing.T, s *setup, _ string) object {
				t.Helper()
				c := s.connect(modern, "bearer", nil)
				automation := enabled(t, c)
				require.Eventually(t, func() bool { // an earlier run has ended
					for _, a := range call(t, c, "automations_list", nil)["automations"].([]any) {
						if last, ok := a.(object)["last_run"].(object); ok && a.(object)["id"] == automation && last["finished_at"] == nil {
							return false
						}
					}
					return true
				}, patience, tick)
				return object{"automation_id": automation, "wait_seconds": 0}
			},
			done: func(t *testing.T, s *setup, _ string) int {
				t.Helper()
				runs := map[string]bool{}
				for _, e := range s.entries() {
					if _, run, ok := strings.Cut(e.Detail, ", run "); ok {
						runs[run] = true
					}
				}
				return len(runs)
			},
		},
	}
}

// through puts a proxy that loses replies between the server and Redis.
func through(t *testing.T, proxy *netfault.RedisProxy, retries int) func(*mcp.Options) {
	t.Helper()
	return func(o *mcp.Options) {
		client := redis.NewClient(&redis.Options{
			Addr: proxy.Addr, MaxRetries: retries, ReadTimeout: patience, Protocol: 2, DisableIdentity: true,
		})
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		o.Redis, o.Prefix = client, rand.Text()+":"
		log, err := audit.New(audit.Options{Redis: client, Prefix: o.Prefix, Log: o.Log, Timeout: patience})
		require.NoError(t, err)
		o.Audit = log
	}
}

// Each reply of Redis and of the data service is lost in turn. The response, the change and the audit log must agree, and a
// retry must change nothing.
func TestLostReplyNeitherHidesNorDuplicatesAChange(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, f := range flows() {
		for _, retries := range []int{-1, 2} {
			if retries > 0 && f.tool != "contacts_create" {
				continue // go-redis hides the loss from every tool
			}
			t.Run(fmt.Sprintf("%s %s with %d retries", f.tool, f.of, retries), func(t *testing.T) {
				t.Parallel()
				service := fresh(t, demo.Options{})
				begin := func(t *testing.T) (*setup, *netfault.RedisProxy) {
					t.Helper()
					proxy := netfault.NewRedisProxy(t, server.Addr)
					return newSetup(t, service, through(t, proxy, retries)), proxy
				}
				s, proxy := begin(t)
				send := func(arguments object) string {
					return s.post("bearer", modern, callMessage(modern, f.tool, arguments)).Text
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
					entries := len(s.entries())
					if i <= fromRedis {
						proxy.Lose(i)
					} else {
						s.lost.Lose(i - fromRedis)
					}
					text := send(arguments)
					proxy.Lose(0)
					s.lost.Lose(0)
					done := f.done(t, s, name)
					outcomes := map[string]int{}
					for _, e := range s.entries()[entries:] {
						require.Equal(t, f.tool, e.Target)
						outcomes[e.Outcome]++
					}
					where := fmt.Sprintf("reply %d of %d and %d; %v; %s", i, fromRedis, fromService, outcomes, text)
					switch {
					case !strings.Contains(text, "Error "):
						require.Equal(t, 1, done, where)
						require.Equal(t, 1, outcomes[audit.OutcomeOK], where)
						if i <= fromRedis {
							require.NotContains(t, text, `"repeated":true`, where)
						}
					case strings.Contains(text, "Nothing was changed"):
						require.Zero(t, done, where)
						require.Zero(t, outcomes[audit.OutcomeOK], where)
					default:
						require.Contains(t, text, "may or may not", where)
						require.Equal(t, 1, outcomes[audit.OutcomeUnknown], where)
					}
					again := send(arguments)
					if strings.Contains(again, "CONFIRMATION_NEEDED") {
						arguments["confirm"] = tokenIn(t, again)
						again = send(arguments)
					}
					if !f.repeating {
						require.NotContains(t, again, "Error ", where)
					}
					require.Equal(t, 1, f.done(t, s, name), where)
				}
			})
		}
	}
}

// The service executes the first call that reaches it. The assistant does not learn of it, and repeats the call for more than the window.
func TestRepetitionsOfACallWithoutAnOutcomeAreOneCall(t *testing.T) {
	t.Parallel()
	for _, f := range flows() {
		if f.repeating {
			continue
		}
		t.Run(f.tool, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.WithClock())
			s := newSetup(t, fresh(t, demo.Options{}), func(o *mcp.Options) { o.Redis = patient(t, server.Options().Simple()) })
			name := rand.Text()
			c, arguments := s.connect(modern, "bearer", nil), f.prepare(t, s, name)
			lose := func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodGet {
					return nil, nil
				}
				return nil, io.ErrUnexpectedEOF
			}
			s.upstream.breakWith(lose)
			fails(t, c, f.tool, arguments, "may or may not")
			require.NoError(t, server.StepClock(mcp.IdempotencyWindow-time.Minute))
			s.upstream.breakWith(func(r *http.Request) (*http.Response, error) {
				res, err := http.DefaultTransport.RoundTrip(r)
				if err == nil && r.Method != http.MethodGet {
					require.NoError(t, res.Body.Close())
					return lose(r)
				}
				return res, err
			})
			fails(t, c, f.tool, arguments, "may or may not")
			require.NoError(t, server.StepClock(mcp.IdempotencyWindow+time.Minute))
			s.upstream.breakWith(nil)
			require.Equal(t, true, call(t, c, f.tool, arguments)["repeated"])
			require.Equal(t, 1, f.done(t, s, name))
		})
	}
}

// An equal call that adds it must not get the response about a record that does not exist.
func TestRecordCanBeAddedAgainAfterADeletionThatWasNotConfirmed(t *testing.T) {
	t.Parallel()
	del := func(t *testing.T, r *http.Request) *http.Response {
		t.Helper()
		if r.Method != http.MethodDelete {
			return nil
		}
		res, err := http.DefaultTransport.RoundTrip(r)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res
	}
	for name, test := range map[string]struct {
		instead func(t *testing.T, r *http.Request) (*http.Response, error)
		says    string
	}{
		"response lost": {func(t *testing.T, r *http.Request) (*http.Response, error) {
			t.Helper()
			if del(t, r) == nil {
				return nil, nil
			}
			return nil, io.ErrUnexpectedEOF
		}, "may or may not"},
		"deleted by others after the question": {func(t *testing.T, r *http.Request) (*http.Response, error) {
			t.Helper()
			if del(t, r) == nil {
				return nil, nil
			}
			return response(404, "application/json", `{"error":"There is no such contact.","code":"NOT_FOUND"}`), nil
		}, "NOT_FOUND"},
		"refused": {func(_ *testing.T, r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodDelete {
				return nil, nil
			}
			return response(409, "application/json", `{"error":"It has open invoices.","code":"CONFLICT"}`), nil
		}, "CONFLICT"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t, shared)
			contact := object{"first_name": rand.Text()}
			c := s.connect(modern, "bearer", nil)
			id := call(t, c, "contacts_create", contact)["contact"].(object)["id"]
			arguments := object{"id": id}
			arguments["confirm"] = asked(t, c, "contacts_delete", arguments)
			s.upstream.breakWith(func(r *http.Request) (*http.Response, error) { return test.instead(t, r) })
			require.Contains(t, s.post("bearer", modern, callMessage(modern, "contacts_delete", arguments)).Text, test.says)
			s.upstream.breakWith(nil)
			again := call(t, c, "contacts_create", contact)
			assert.Equal(t, name == "refused", again["repeated"])
			assert.Equal(t, 1, found(t, s, contact["first_name"].(string)))
		})
	}
	t.Run("deleted by others before the question", func(t *testing.T) {
		t.Parallel()
		s := newSetup(t, shared)
		s.allow("second", s.owner, "mcp:use")
		contact := object{"first_name": rand.Text()}
		c := s.connect(modern, "bearer", nil)
		id := call(t, c, "contacts_create", contact)["contact"].(object)["id"]
		confirmed(t, s.connect(modern, "second", nil), "contacts_delete", object{"id": id})
		fails(t, c, "contacts_delete", object{"id": id}, "NOT_FOUND")
		require.Equal(t, false, call(t, c, "contacts_create", contact)["repeated"])
	})
}

// If a reply is lost, the user's response must not confirm another deletion or count twice.
func TestLostReplyNeverDeletesWithoutConfirmation(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := netfault.NewRedisProxy(t, server.Addr)
	s := newSetup(t, fresh(t, demo.Options{}), through(t, proxy, -1))
	c := asking(s, "bearer")
	for i := 1; i <= 6; i++ {
		name := rand.Text()
		id := create(t, s, name)
		state := remove(t, c, id, "", "").RequestState
		proxy.Lose(i)
		remove(t, c, id, "decline", state)
		proxy.Lose(0)
		require.Equal(t, 1, found(t, s, name), "reply %d", i)
		if !remove(t, c, id, "accept", state).NeedsInput() { // the refusal was lost, so the question is still open
			continue
		}
		require.Equal(t, 1, found(t, s, name), "reply %d: a question can be answered once", i)
	}
}
