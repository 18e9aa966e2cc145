package caddymodule

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

var firstSeen = time.Date(2026, 3, 5, 9, 30, 0, 0, time.UTC)

func newDrift() *pooledDrift {
	return &pooledDrift{since: firstSeen, operations: map[string]*operationDrift{}}
}

func TestDriftCountsEachWayToDeviate(t *testing.T) {
	t.Parallel()
	o := newDrift().operation("listOrders")
	o.add([]upstream.Deviation{{Pointer: "/data/*/total", Rule: "type", Count: 2}, {Pointer: "/data/*/margin", Rule: "undocumented", Count: 9}}, firstSeen)
	o.add([]upstream.Deviation{{Pointer: "/data/*/total", Rule: "format", Count: 1}, {Pointer: "/data/*/total", Rule: "type", Count: 3}}, firstSeen.Add(time.Hour))
	o.add([]upstream.Deviation{{Pointer: "/data/*/kind", Rule: "enum", Count: 5, From: "KIND"}}, firstSeen)
	entries, others := o.list()
	require.Zero(t, others)
	require.Equal(t, []DriftEntry{
		{"/data/*/margin", "undocumented", 9, firstSeen, firstSeen, ""},
		{"/data/*/kind", "enum", 5, firstSeen, firstSeen, "KIND"},
		{"/data/*/total", "type", 5, firstSeen, firstSeen.Add(time.Hour), ""},
		{"/data/*/total", "format", 1, firstSeen.Add(time.Hour), firstSeen.Add(time.Hour), ""},
	}, entries)
}

// However a data service deviates, memory is bounded.
func TestDriftIsBounded(t *testing.T) {
	t.Parallel()
	p := newDrift()
	o := p.operation("listOrders")
	for i := range 3 * maxDriftEntries {
		o.add([]upstream.Deviation{{Pointer: fmt.Sprint("/x", i), Rule: "undocumented", Count: 2}}, firstSeen)
	}
	o.add([]upstream.Deviation{{Pointer: "/x0", Rule: "undocumented", Count: 1}}, firstSeen)
	entries, others := o.list()
	require.Len(t, entries, maxDriftEntries)
	require.EqualValues(t, 4*maxDriftEntries, others)
	require.EqualValues(t, 3, entries[0].Count, "those in the list are still counted")

	o = p.operation("getOrder")
	for _, length := range []int{maxDriftPointer, maxDriftPointer + 1} {
		o.add([]upstream.Deviation{{Pointer: "/" + strings.Repeat("x", length-1), Rule: "type", Count: 1}}, firstSeen)
	}
	o.add([]upstream.Deviation{{Pointer: "/y", Rule: "type", Count: 1, From: strings.Repeat("y", maxDriftPointer-1)}}, firstSeen)
	entries, others = o.list()
	require.Len(t, entries, 1)
	require.EqualValues(t, 2, others)

	for i := range 2 * maxDriftTotal / maxDriftEntries {
		o := p.operation(fmt.Sprint("operation", i))
		for j := range maxDriftEntries {
			o.add([]upstream.Deviation{{Pointer: fmt.Sprint("/x", j), Rule: "type", Count: 1}}, firstSeen)
		}
	}
	total := 0
	for _, o := range p.operations {
		entries, _ := o.list()
		total += len(entries)
	}
	require.Equal(t, maxDriftTotal, total)
}

func TestConcurrentResponsesAreAllCounted(t *testing.T) {
	t.Parallel()
	p, m := newDrift(), newMetrics()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			o := &observed{op: new(upstream.Operation), drift: p.operation("listOrders"), deviations: m.deviationsOf("shop/listOrders")}
			for i := range 500 {
				o.passed(nil)
				o.passed([]upstream.Deviation{{Pointer: fmt.Sprint("/x", i%300), Rule: "type", Count: 1}})
				_, _ = o.drift.list()
			}
		})
	}
	wg.Wait()
	entries, sum := p.operation("listOrders").list()
	for _, e := range entries {
		sum += e.Count
	}
	require.EqualValues(t, 8*500, sum)
	require.EqualValues(t, 2*8*500, p.operation("listOrders").responses.Load())
	require.InDelta(t, 8*500, testutil.ToFloat64(m.deviations.WithLabelValues("shop/listOrders", "type")), 0)
	(*observed)(nil).passed(nil) // of an operation of which everything is enforced
}

// observing returns an API that observes a part of the public contract, in a configuration of its own.
func observing(t *testing.T, d *Definition) (api *API, logged *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zapcore.WarnLevel)
	h := &API{Definition: d}
	h.app, h.logger = &App{metrics: newMetrics(), logger: zap.NewNop()}, zap.New(core)
	t.Cleanup(func() { require.NoError(t, h.app.Cleanup()) })
	var err error
	h.api, err = apiOf(d)
	require.NoError(t, err)
	_, err = h.observe()
	require.NoError(t, err)
	return h, logs
}

func TestDriftSurvivesAReloadOfTheSameDefinition(t *testing.T) {
	t.Parallel()
	// The name of the file in the sum keeps the test from others: the public contract has none.
	observe := func(sum string, enforce upstream.Enforcement) *API {
		h, logged := observing(t, &Definition{Only: []string{"listJobs", "getMe"}, Sum: sum + t.Name(), Enforce: enforce})
		require.Equal(t, 1, logged.Len())
		return h
	}
	first := observe("1", upstream.EnforceTenant)
	require.Len(t, first.app.observed, 1, "not what the gateway answers itself")
	first.app.observed[0].passed([]upstream.Deviation{{Pointer: "/jobs/*/margin", Rule: "undocumented", Count: 3}})

	for name, c := range map[string]struct {
		sum     string
		enforce upstream.Enforcement
		kept    int
	}{
		"the same":         {"1", upstream.EnforceTenant, 1},
		"another document": {"2", upstream.EnforceTenant, 0},
		"another step":     {"1", upstream.EnforceMembers, 0},
	} {
		drift := observe(c.sum, c.enforce).app.drift().Operations
		require.Len(t, drift, 1, name)
		require.Len(t, drift[0].Entries, c.kept, name)
		require.Equal(t, "listJobs", drift[0].Label())
		require.Equal(t, c.enforce, drift[0].Enforce)
	}

	second := observe("1", upstream.EnforceTenant)
	require.Same(t, first.app.observed[0].drift, second.app.observed[0].drift)
	key := first.app.acquired[0]
	require.NoError(t, first.app.Cleanup())
	_, exists := resources.References(key)
	require.True(t, exists)
}

func TestDriftOfADefinitionThatIsNotServedIsDropped(t *testing.T) {
	t.Parallel()
	d := &Definition{Only: []string{"listJobs"}, Sum: t.Name(), Enforce: upstream.EnforceTenant}
	first, _ := observing(t, d)
	first.app.observed[0].passed([]upstream.Deviation{{Pointer: "/jobs", Rule: "type", Count: 1}})
	require.NoError(t, first.app.Cleanup())
	second, _ := observing(t, d)
	require.Empty(t, second.app.drift().Operations[0].Entries)
}

func TestOperationsThatAreNotEnforcedWholeAreLogged(t *testing.T) {
	t.Parallel()
	h, logged := observing(t, &Definition{Only: []string{"listJobs", "listEvents", "getStatus"}, Sum: t.Name(), Enforce: upstream.EnforceMembers})
	require.Equal(t, map[string]any{"enforce_tenant": []any{}, "enforce_members": []any{"listJobs", "listEvents"}}, logged.All()[0].ContextMap())
	_, err := h.observe() // on another site
	require.NoError(t, err)
	require.Len(t, h.app.observed, 2)

	h, logged = observing(t, &Definition{Only: []string{"listJobs"}})
	require.Zero(t, logged.Len())
	require.Empty(t, h.app.acquired, "nothing is kept if everything is enforced")
	require.JSONEq(t, `{"operations":[]}`, string(encode(h.app.drift())))
}

func TestDriftAsJSON(t *testing.T) {
	t.Parallel()
	h, _ := observing(t, &Definition{Only: []string{"listJobs"}, Sum: t.Name(), Enforce: upstream.EnforceTenant})
	drift := h.app.observed[0].drift
	drift.of.since = firstSeen
	drift.responses.Add(7)
	require.JSONEq(t, `{"operations":[{"operation":"listJobs","enforce":"tenant","since":"2026-03-05T09:30:00Z","responses":7,"others":0,"entries":[]}]}`,
		string(encode(h.app.drift())))
	drift.add([]upstream.Deviation{{Pointer: "/jobs/*/id", Rule: "format", Count: 2}}, firstSeen)
	require.JSONEq(t, `[{"pointer":"/jobs/*/id","rule":"format","count":2,"first_seen":"2026-03-05T09:30:00Z","last_seen":"2026-03-05T09:30:00Z"}]`,
		string(encode(h.app.drift().Operations[0].Entries)))
}

func TestDriftIsOnlyReadFromTheAdminAPI(t *testing.T) {
	t.Parallel()
	for method, want := range map[string]string{http.MethodGet: "no gateway is configured", http.MethodDelete: errMethodNotAllowed.Error()} {
		err := new(Admin).serveDrift(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), method, AdminDriftPath, nil))
		assert.ErrorContains(t, err, want)
	}
}

func TestLogNamesTheOperationsForWhichDataServicesAreTrusted(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "api.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`openapi: 3.1.0
info: {title: Reports, version: "1"}
servers: [{url: /v1}]
paths:
  /reports/{id}:
    get:
      operationId: getReport
      x-gatehouse-tenant: request
      x-gatehouse-unchecked: [application/pdf]
      parameters: [{name: id, in: path, required: true, schema: {type: string}}]
      responses: {"200": {description: It., content: {application/pdf: {}}}}
    delete:
      operationId: deleteReport
      x-gatehouse-tenant: account
      parameters: [{name: id, in: path, required: true, schema: {type: string}}]
      responses: {"204": {description: Nothing that names a business.}}
  /reports:
    get:
      operationId: listReports
      x-gatehouse-tenant: none
      responses: {"204": {description: None.}}
`), 0o600))
	d, err := loadDefinition(&Definition{Name: "shop", File: file})
	require.NoError(t, err)
	core, logs := observer.New(zapcore.InfoLevel)
	logDefinition(zap.New(core), d)
	require.Equal(t, 2, logs.Len())
	require.Equal(t, []any{"shop/getReport", "shop/deleteReport"}, logs.All()[0].ContextMap()["operations"])
	require.Equal(t, []any{"shop/getReport"}, logs.All()[1].ContextMap()["operations"])
}
