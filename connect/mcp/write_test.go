package mcp_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/audit"
	"github.com/gatehouse-gateway/gatehouse/connect/mcp"
	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
	"github.com/gatehouse-gateway/gatehouse/internal/demo" //nolint:depguard // the service that the tools are for
	"github.com/gatehouse-gateway/gatehouse/internal/test/connecttest"
	"github.com/gatehouse-gateway/gatehouse/internal/test/redistest"
)

func TestRepeatedCallIsExecutedOnce(t *testing.T) {
	t.Parallel()
	eachRevision(t, func(t *testing.T, revision string) {
		t.Helper()
		s := newSetup(t, shared)
		s.allow("second", s.owner, "mcp:use")
		c := s.connect(revision, "bearer", nil)
		arguments := object{"first_name": "Once", "last_name": revision}
		one := call(t, c, "contacts_create", arguments)
		two := call(t, s.connect(revision, "bearer", nil), "contacts_create", arguments)
		require.Equal(t, one["contact"], two["contact"])
		require.Equal(t, true, two["repeated"])
		require.Contains(t, two["repeated_hint"], "Nothing was done now")
		require.NotContains(t, one, "repeated_hint")
		require.Equal(t, one["idempotency_key"], two["idempotency_key"])

		// Another key or another connection makes another contact.
		arguments["idempotency_key"] = "deliberately-" + revision
		three := call(t, c, "contacts_create", arguments)
		require.NotEqual(t, one["contact"].(object)["id"], three["contact"].(object)["id"])
		require.Equal(t, true, call(t, c, "contacts_create", arguments)["repeated"])
		arguments["first_name"] = "Another"
		fails(t, c, "contacts_create", arguments, "IDEMPOTENCY_KEY_REUSED")
		four := call(t, s.connect(revision, "second", nil), "contacts_create", object{"first_name": "Once", "last_name": revision})
		require.Equal(t, false, four["repeated"])
		require.Equal(t, false, call(t, s.connect(revision, "second", nil), "contacts_create", arguments)["repeated"], "the key is its own")

		// A deleted record can be created again.
		confirmed(t, c, "contacts_delete", object{"id": one["contact"].(object)["id"]})
		five := call(t, c, "contacts_create", object{"first_name": "Once", "last_name": revision})
		require.Equal(t, false, five["repeated"])
	})
}

func TestConcurrentIdenticalCallsAreExecutedOnce(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	name := "AtOnce" + rand.Text()[:8]
	c := s.connect(modern, "bearer", nil)
	var ids sync.Map
	var group sync.WaitGroup
	for range 12 {
		group.Go(func() {
			res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "contacts_create", Arguments: object{"first_name": name}})
			if err == nil && !res.IsError {
				ids.Store(res.StructuredContent.(object)["contact"].(object)["id"], true)
			}
		})
	}
	group.Wait()
	n := 0
	ids.Range(func(any, any) bool { n++; return true })
	assert.Equal(t, 1, n)
	assert.Equal(t, 1, found(t, s, name))
}

func TestLostResponseIsReportedAndRetryIsSafe(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	name := "Lost" + rand.Text()[:8]
	c := s.connect(modern, "bearer", nil)
	s.upstream.breakWith(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			return nil, nil
		}
		res, err := http.DefaultTransport.RoundTrip(r)
		if err == nil {
			_ = res.Body.Close()
		}
		return nil, errBroken
	})
	fails(t, c, "contacts_create", object{"first_name": name}, "may or may not have been made", "safe")
	s.upstream.breakWith(nil)
	assert.Equal(t, audit.OutcomeUnknown, s.entries()[0].Outcome)
	assert.Equal(t, true, call(t, c, "contacts_create", object{"first_name": name})["repeated"])
	assert.Equal(t, 1, found(t, s, name))
}

func TestWriteContinuesAfterTheClientDisconnects(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	name := "Unwaited" + rand.Text()[:8]
	c := s.connect(modern, "bearer", nil)
	reached, leave := make(chan struct{}), make(chan struct{})
	s.upstream.breakWith(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPost {
			close(reached)
			<-leave
		}
		return nil, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := c.CallTool(ctx, &sdk.CallToolParams{Name: "contacts_create", Arguments: object{"first_name": name}})
		ended <- err
	}()
	<-reached
	cancel()
	require.Error(t, <-ended)
	close(leave)
	require.Eventually(t, func() bool { return len(s.entries()) == 1 }, patience, tick)
	require.Equal(t, audit.OutcomeOK, s.entries()[0].Outcome)
	s.upstream.breakWith(nil)
	require.Equal(t, 1, found(t, s, name))
}

func TestEveryWriteIsAudited(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	c := s.connect(modern, "bearer", nil)
	id := call(t, c, "contacts_create", object{"first_name": "Audited", "notes": "private words"})["contact"].(object)["id"]
	call(t, c, "contacts_get", object{"id": id})
	fails(t, c, "contacts_update", object{"id": 1, "notes": "private words"})
	fails(t, c, "contacts_update", object{"id": id, "contact_type": "nonsense"})
	entries := s.entries()
	require.Len(t, entries, 2)
	created, failed := entries[0], entries[1]
	require.NotEmpty(t, created.RequestID)
	assert.Regexp(t, `^contact \d+$`, created.Detail)
	assert.Equal(t, audit.Entry{
		Time: created.Time, BusinessID: s.owner.BusinessID, AccountID: s.owner.ID, AccountName: s.owner.Name, GrantID: "grant-bearer",
		ClientName: "Test client", Action: audit.ToolCalled, Target: "contacts_create", Outcome: audit.OutcomeOK, Detail: created.Detail,
		Sentence: "Added the contact Audited", RequestID: created.RequestID,
	}, created)
	assert.Equal(t, audit.OutcomeFailed, failed.Outcome)
	assert.Equal(t, "contact 1 NOT_FOUND", failed.Detail)
}

func TestAutomationReportsProgress(t *testing.T) {
	t.Parallel()
	eachRevision(t, func(t *testing.T, revision string) {
		t.Helper()
		s := newSetup(t, fresh(t, demo.Options{Pace: 60 * time.Millisecond}))
		progress := make(chan float64, 100)
		c := s.connect(revision, "bearer", &sdk.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) { progress <- r.Params.Progress },
		})
		automation := enabled(t, c)
		params := &sdk.CallToolParams{Name: "automations_run", Arguments: object{"automation_id": automation, "wait_seconds": 45}}
		params.SetProgressToken("p1")
		res, err := c.CallTool(t.Context(), params)
		require.NoError(t, err)
		require.False(t, res.IsError, textOf(res))
		content := res.StructuredContent.(object)
		require.Equal(t, true, content["ended"])
		run := content["run"].(object)
		require.Equal(t, "succeeded", run["status"])
		last := <-progress
		for len(progress) > 0 {
			next := <-progress
			require.Greater(t, next, last)
			last = next
		}
		requireRunsAreRepeatable(t, c, automation, run["id"])
	})
}

// requireRunsAreRepeatable requires that the run is returned again, and that another key starts another.
func requireRunsAreRepeatable(t *testing.T, c *sdk.ClientSession, automation string, run any) {
	t.Helper()
	again := call(t, c, "automations_run", object{"automation_id": automation, "wait_seconds": 45})
	require.Equal(t, true, again["repeated"])
	require.Equal(t, run, again["run"].(object)["id"])
	require.Equal(t, "succeeded", again["run"].(object)["status"])
	require.Equal(t, run, call(t, c, "automations_run_get", object{"id": run})["run"].(object)["id"])

	other := call(t, c, "automations_run", object{
		"automation_id": automation, "wait_seconds": 0, "idempotency_key": "a-second-time",
	})
	require.NotEqual(t, run, other["run"].(object)["id"])
	require.Equal(t, false, other["ended"])
	require.Contains(t, other["message"], "automations_run_get")
	require.Eventually(t, func() bool {
		now := call(t, c, "automations_run_get", object{"id": other["run"].(object)["id"]})["run"].(object)
		return now["status"] == "succeeded"
	}, patience, tick)

	fails(t, c, "automations_run", object{"automation_id": "nope"}, "NOT_FOUND")
	fails(t, c, "automations_run", object{"automation_id": automation, "input": object{"nonsense": 1}}, "input")
	fails(t, c, "automations_run_get", object{"id": "nope"}, "NOT_FOUND")
}

// enabled returns an automation that can be run without input, and without asking.
func enabled(t *testing.T, c *sdk.ClientSession) string {
	t.Helper()
	for _, a := range call(t, c, "automations_list", nil)["automations"].([]any) {
		if a := a.(object); a["enabled"] == true && a["writes_to_people"] == false && a["input_schema"].(object)["required"] == nil {
			return a["id"].(string)
		}
	}
	t.Fatal("no automation is enabled")
	return ""
}

func TestFailedRunReportsWhichStepsWereDone(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	step := func(name, status string) object {
		return object{"name": name, "status": status, "message": nil, "started_at": nil, "finished_at": nil}
	}
	s.upstream.breakWith(func(r *http.Request) (*http.Response, error) {
		status, body := 200, connecttest.Record("automation", nil)
		switch {
		case r.Method == http.MethodPost:
			status, body = 202, connecttest.Record("run", nil)
		case strings.Contains(r.URL.Path, "automation-runs"):
			body = connecttest.Record("run", object{
				"status": "failed", "steps": []any{step("Find invoices", "succeeded"), step("Write reminders", "failed")},
				"result": object{"written": 2}, "error": object{"code": "MAILER", "message": "The mail service refused."},
			})
		}
		return response(status, "application/json", strings.ReplaceAll(body, connecttest.Business, s.owner.BusinessID)), nil
	})
	text := s.post("bearer", modern, callMessage(modern, "automations_run", object{"automation_id": "a1"})).Text
	for _, part := range []string{
		"RUN_FAILED", "MAILER: The mail service refused.", "Done: Find invoices. Not done: Write reminders (failed).", `\"written\":2`,
	} {
		assert.Contains(t, text, part)
	}
	entries := s.entries()
	assert.Equal(t, audit.OutcomeFailed, entries[0].Outcome)
	assert.Equal(t, "automation a1, run r1 RUN_FAILED", entries[0].Detail)
	assert.Equal(t, requestlog.OutcomeFailed, s.logged(0).Outcome, "not an error of the caller")
	assert.Equal(t, zap.WarnLevel, s.logged(0).Level)
}

func TestRunIsReportedAsStartedIfPollingFails(t *testing.T) {
	t.Parallel()
	s := newSetup(t, fresh(t, demo.Options{Pace: 100 * time.Millisecond}))
	c := s.connect(legacy, "bearer", nil)
	automation := enabled(t, c)
	s.upstream.breakWith(func(r *http.Request) (*http.Response, error) {
		if strings.Contains(r.URL.Path, "automation-runs") {
			return nil, errBroken
		}
		return nil, nil // is sent on
	})
	content := call(t, c, "automations_run", object{"automation_id": automation})
	assert.Equal(t, false, content["ended"])
	assert.NotEmpty(t, content["run"].(object)["id"])
}

// A read makes one call or several at once. Each must be able to fail without ending the gateway.
func TestPanicDuringAReadFailsOnlyTheCall(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"/contacts", "/business", "/business/hours"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t, shared)
			s.upstream.breakWith(func(r *http.Request) (*http.Response, error) {
				if strings.HasSuffix(r.URL.Path, part) {
					panic("unexpected")
				}
				return nil, nil
			})
			tool := "business_get"
			if part == "/contacts" {
				tool = "contacts_search"
			}
			fails(t, s.connect(modern, "bearer", nil), tool, nil, "INTERNAL")
		})
	}
}

func TestPanicDuringAChangeIsAuditedAsUnknown(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	s.upstream.breakWith(func(*http.Request) (*http.Response, error) { panic("unexpected") })
	text := s.post("bearer", modern, callMessage(modern, "contacts_create", object{"first_name": "Panic"})).Text
	assert.Contains(t, text, "Error INTERNAL")
	assert.NotContains(t, text, "unexpected")
	require.Len(t, s.entries(), 1)
	assert.Equal(t, audit.OutcomeUnknown, s.entries()[0].Outcome)
	assert.Equal(t, "INTERNAL", s.logged(0).Code)
}

// Without Redis, a retry could not be detected and a change could not be audited.
func TestNothingIsChangedWhileRedisIsUnavailable(t *testing.T) {
	t.Parallel()
	s := newSetup(t, shared)
	asking := s.connect(modern, "bearer", (&user{action: "accept", content: object{"confirm": true}}).options())
	c := s.connect(modern, "bearer", nil)
	id := create(t, s, "Before")
	s.redis.Close()
	call(t, c, "contacts_get", object{"id": id})
	nothing := []string{"GATEWAY_UNAVAILABLE", "Nothing was changed"}
	fails(t, c, "contacts_create", object{"first_name": "No Redis"}, nothing...)
	fails(t, asking, "contacts_delete", object{"id": id}, nothing...)
	fails(t, c, "contacts_delete", object{"id": id, "confirm": "a token"}, nothing...)
	fails(t, c, "contacts_update", object{"id": id, "first_name": "After"}, nothing...)
	assert.Equal(t, 1, s.upstream.count(http.MethodPost, ""))
	assert.Zero(t, s.upstream.count(http.MethodDelete, "")+s.upstream.count(http.MethodPatch, ""))
}

// Two calls are the same if the same request is sent upstream.
func TestReformattedCallIsARetry(t *testing.T) {
	t.Parallel()
	s := newSetup(t, fresh(t, demo.Options{}))
	c := s.connect(modern, "bearer", nil)
	automation := enabled(t, c)
	runs := map[any]bool{}
	for _, arguments := range []object{
		{"automation_id": automation, "wait_seconds": 0},
		{"automation_id": automation, "wait_seconds": 1},
		{"automation_id": automation, "wait_seconds": 20},
		{"automation_id": automation},
		{"automation_id": automation, "input": object{}},
		{"automation_id": automation, "input": object{}, "wait_seconds": 0},
	} {
		runs[call(t, c, "automations_run", arguments)["run"].(object)["id"]] = true
	}
	require.Len(t, runs, 1)
	one := call(t, c, "receptionist_faq_upsert", object{"question": "Defaults?", "answer": "Yes."})
	two := call(t, c, "receptionist_faq_upsert", object{"answer": "Yes.", "question": "Defaults?", "enabled": true})
	assert.Equal(t, true, two["repeated"])
	assert.Equal(t, one["faq"], two["faq"])
}

// leaving is a client that disconnects when a hook of the gateway calls wait, which returns when the gateway has noticed.
type leaving struct {
	once             sync.Once
	reached, noticed chan struct{}
}

func newLeaving() *leaving {
	return &leaving{reached: make(chan struct{}), noticed: make(chan struct{})}
}

func (l *leaving) wait() {
	l.once.Do(func() {
		close(l.reached)
		<-l.noticed
	})
}

func (l *leaving) sendAndLeave(s *setup, revision, message string) {
	s.t.Helper()
	ctx, leave := context.WithCancel(s.t.Context())
	left := make(chan error, 1)
	go func() {
		res, err := (&http.Client{Transport: bearer{token: "bearer"}}).Do(s.message(ctx, revision, message))
		if err == nil {
			_ = res.Body.Close()
		}
		left <- err
	}()
	<-l.reached
	leave()
	require.ErrorIs(s.t, <-left, context.Canceled)
	s.mu.Lock()
	first := s.requests[0]
	s.mu.Unlock()
	<-first.Done()
	close(l.noticed)
}

// beforeCommand calls a function before each Redis command about a key, of which key is a part.
func beforeCommand(key string, f func()) redis.Hook {
	return redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if strings.Contains(fmt.Sprint(cmd.Args()...), key) {
			f()
		}
		return next(ctx, cmd)
	})
}

func TestRetryAfterDisconnectIsExecutedOnce(t *testing.T) {
	t.Parallel()
	eachRevision(t, func(t *testing.T, revision string) {
		t.Helper()
		client := newLeaving()
		s := newSetup(t, shared, func(o *mcp.Options) { o.Redis.AddHook(beforeCommand("mcp:calls:", client.wait)) })
		name := rand.Text()
		message := callMessage(revision, "contacts_create", object{"first_name": name})
		client.sendAndLeave(s, revision, message)
		require.Eventually(t, func() bool { return len(s.entries()) == 1 }, patience, tick)
		require.Equal(t, audit.OutcomeOK, s.entries()[0].Outcome)

		require.Contains(t, s.post("bearer", revision, message).Text, `"repeated":true`)
		require.Equal(t, 1, found(t, s, name))
	})
}

func TestCallOfADisconnectedClientIsRateLimited(t *testing.T) {
	t.Parallel()
	eachRevision(t, func(t *testing.T, revision string) {
		t.Helper()
		for _, tool := range []string{"contacts_create", "contacts_delete"} {
			client := newLeaving()
			s := newSetup(t, shared, func(o *mcp.Options) { o.Redis.AddHook(beforeCommand("mcp:{", client.wait)) })
			s.server.SetRate(1)
			s.redis.SetTime(time.Now()) // the clock stands still, so that a slow machine refills nothing
			client.sendAndLeave(s, revision, callMessage(revision, tool, object{}))
			require.Eventually(t, func() bool { return s.logged(0).Tool == tool }, patience, tick)
			assert.Contains(t, s.post("bearer", revision, callMessage(revision, tool, object{})).Text, "RATE_LIMITED", tool)
		}
	})
}

func TestDisconnectIsNotLoggedAsDataServiceFailure(t *testing.T) {
	t.Parallel()
	client, s := newLeaving(), newSetup(t, shared)
	s.upstream.breakWith(func(r *http.Request) (*http.Response, error) {
		client.wait()
		return nil, r.Context().Err()
	})
	client.sendAndLeave(s, modern, callMessage(modern, "contacts_search", object{}))
	require.Eventually(t, func() bool { return s.logged(0).Tool == "contacts_search" }, patience, tick)
	require.Equal(t, zap.InfoLevel, s.logged(0).Level)
	require.Equal(t, requestlog.OutcomeRejected, s.logged(0).Outcome)

	// An outage of the data service is logged as one.
	s.upstream.breakWith(func(*http.Request) (*http.Response, error) { return nil, errBroken })
	assert.Contains(t, s.post("bearer", modern, callMessage(modern, "contacts_search", object{})).Text, "DATA_SERVICE_UNAVAILABLE")
	assert.Equal(t, zap.WarnLevel, s.logged(1).Level)
	assert.Equal(t, requestlog.OutcomeFailed, s.logged(1).Outcome)
	assert.Equal(t, "DATA_SERVICE_UNAVAILABLE", s.logged(1).Code)
	require.ErrorIs(t, s.logged(1).Cause, errBroken)
}

func TestResponseThatWaitsForARunOutlastsTheWriteTimeout(t *testing.T) {
	t.Parallel()
	eachRevision(t, func(t *testing.T, revision string) {
		t.Helper()
		s := newSetup(t, fresh(t, demo.Options{Pace: 1500 * time.Millisecond})) // for each of several items
		automation := enabled(t, s.connect(revision, "bearer", nil))
		server := httptest.NewUnstartedServer(s.protect(s.server.Handler()))
		server.Config.WriteTimeout = 3 * time.Second
		server.Start()
		t.Cleanup(server.Close)
		s.url = server.URL + "/mcp"
		message := callMessage(revision, "automations_run", object{"automation_id": automation, "wait_seconds": 45})
		began := time.Now()
		require.Contains(t, s.post("bearer", revision, message).Text, `"ended":true`)
		require.Greater(t, time.Since(began), server.Config.WriteTimeout)
	})
}

// A change may take several calls to the data service. It must not be made without a response because of them.
func TestResponseToASlowCallOutlastsTheWriteTimeout(t *testing.T) {
	t.Parallel()
	eachRevision(t, func(t *testing.T, revision string) {
		t.Helper()
		s := newSetup(t, fresh(t, demo.Options{}))
		id := create(t, s, "Slow")
		s.upstream.breakWith(func(r *http.Request) (*http.Response, error) {
			select {
			case <-r.Context().Done():
			case <-time.After(4 * time.Second):
			}
			return nil, nil // is sent on
		})
		server := httptest.NewUnstartedServer(s.protect(s.server.Handler()))
		server.Config.WriteTimeout = 3 * time.Second
		server.Start()
		t.Cleanup(server.Close)
		s.url = server.URL + "/mcp"
		began := time.Now()
		got := s.post("bearer", revision, callMessage(revision, "contacts_update", object{"id": id, "first_name": "Slower"}))
		require.Contains(t, got.Text, `"first_name":"Slower"`)
		require.Greater(t, time.Since(began), server.Config.WriteTimeout)
	})
}

// deadlines records the write deadlines of a response.
type deadlines struct {
	*httptest.ResponseRecorder

	left []time.Duration
}

func (d *deadlines) SetWriteDeadline(at time.Time) error {
	d.left = append(d.left, time.Until(at))
	return nil
}

func TestWriteTimeoutBeginsWhenACallHasEnded(t *testing.T) {
	t.Parallel()
	s := newSetup(t, fresh(t, demo.Options{}), func(o *mcp.Options) { o.Timeout = 20 * time.Second })
	for _, timeout := range []time.Duration{0, time.Hour} {
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		ctx := context.WithValue(t.Context(), http.ServerContextKey, &http.Server{WriteTimeout: timeout})
		r := s.message(ctx, modern, callMessage(modern, "contacts_search", object{}))
		r.Header.Set("Authorization", "Bearer bearer")
		s.protect(s.server.Handler()).ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code)
		if timeout == 0 {
			require.Empty(t, w.left, "the server has no limit")
			continue
		}
		require.Len(t, w.left, 2)
		assert.InDelta(t, (timeout + 8*20*time.Second + 2*time.Minute).Seconds(), w.left[0].Seconds(), 20, "not shorter than the server's")
		assert.InDelta(t, timeout.Seconds(), w.left[1].Seconds(), 20)
	}
}

// The audit log and errors name what an ID in the path stands for, whether it is the record or that in which one is created.
func TestRecordsAreNamedByWhatTheirIDStandsFor(t *testing.T) {
	t.Parallel()
	s := newSetup(t, fresh(t, demo.Options{}))
	c := s.connect(modern, "bearer", nil)
	vehicle := object{"type": "vehicles", "fields": object{"plate": "NAMED 1", "make": "Calder"}}
	made := call(t, c, "objects_create", vehicle)["object"].(object)
	at := object{"type": "vehicles", "id": made["id"]}
	call(t, c, "objects_update", object{"type": "vehicles", "id": made["id"], "fields": object{"plate": "NAMED 2"}})
	confirmed(t, c, "objects_delete", at)
	again := call(t, c, "objects_create", vehicle)
	assert.Equal(t, false, again["repeated"], "a deleted object can be created again")
	assert.NotEqual(t, made["id"], again["object"].(object)["id"])
	run := call(t, c, "automations_run", object{"automation_id": "weekly-report", "wait_seconds": 0})["run"].(object)["id"].(string)

	for _, missing := range []struct {
		tool      string
		arguments object
		is        string
	}{
		{"objects_delete", at, "object"},
		{"objects_create", object{"type": "spaceships", "fields": object{}}, "type"},
		{"objects_search", object{"type": "spaceships"}, "type"},
		{"object_type_get", object{"type": "spaceships"}, "object type"},
		{"automations_run", object{"automation_id": "nope"}, "automation"},
		{"automations_run_get", object{"id": "nope"}, "run"},
		{"receptionist_faq_upsert", object{"id": "nope", "answer": "x"}, "faq"},
		{"contacts_delete", object{"id": 1}, "contact"},
	} {
		fails(t, c, missing.tool, missing.arguments, "NOT_FOUND: This business has no such "+missing.is+".")
	}
	var details []string
	for _, e := range s.entries() {
		details = append(details, e.Target+": "+e.Detail)
	}
	id := made["id"].(string)
	assert.Equal(t, []string{
		"objects_create: object " + id, "objects_update: object " + id, "objects_delete: object " + id,
		"objects_create: object " + again["object"].(object)["id"].(string),
		"automations_run: automation weekly-report, run " + run,
		"objects_delete: object vehicles " + id + " NOT_FOUND", "objects_create: type spaceships NOT_FOUND",
		"automations_run: automation nope NOT_FOUND", "receptionist_faq_upsert: faq nope NOT_FOUND", "contacts_delete: contact 1 NOT_FOUND",
	}, details)
}
