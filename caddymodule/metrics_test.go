package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// increase() over a counter that begins at 1 is 0, so an alert on a series that does not exist before could not fire on the
// first event.
func TestSeriesExistBeforeTheirFirstEvent(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	operation, resource, connect := m.operation("api", "events"), m.resource("events"), m.connect([]string{"contacts_get"})
	deviations := m.deviationsOf("events")
	series := func() int { return testutil.CollectAndCount(m) }
	before := series()
	for _, status := range []int{200, 204, 404, 503} {
		operation.count(t.Context(), status, "", time.Second)
	}
	require.Equal(t, before+3, series(), "only gatehouse_requests_total has new series")
	before = series()
	for _, err := range []error{
		nil, upstream.ErrCrossTenantRecord, upstream.ErrMissingTenant, upstream.ErrContractViolation, errors.New("x"),
	} {
		resource.checked(err)
	}
	resource.removed(upstream.Report{CrossTenant: 1, Unpublished: 1, Surplus: 1, Reordered: true})
	for _, rule := range upstream.DeviationRules() {
		deviations.WithLabelValues(rule).Inc()
	}
	observe(t.Context(), m.upstreamDuration.WithLabelValues("events"), time.Second)
	for _, outcome := range requestlog.Outcomes() {
		connect.count(t.Context(), &requestlog.Fields{Tool: "contacts_get", Outcome: outcome})
	}
	for _, outcome := range requestlog.SignIns() {
		connect.count(t.Context(), &requestlog.Fields{SignIn: outcome})
	}
	_, unverified := ratelimit.ForUnverified("key", netip.Addr{})
	for _, limit := range []ratelimit.Limit{ratelimit.KeyLimit(1), ratelimit.IPLimit(1), unverified[0].Limit, unverified[1].Limit} {
		for _, by := range []ratelimit.Decider{ratelimit.ByRedis, ratelimit.ByLocal, ratelimit.ByMemory} {
			for _, allowed := range []bool{true, false} {
				m.limited(ratelimit.Result{Allowed: allowed, By: by, States: []ratelimit.State{{Limit: limit}}})
			}
		}
		m.shadow.WithLabelValues(limit.Name).Inc()
	}
	credential := &authsigner.Credential{}
	for _, req := range []*signedRequest{
		{credential: credential},
		{authErr: authsigner.ErrAccountInactive},
		{authErr: authsigner.ErrMissingCredentials},
		{authErr: authsigner.ErrExpired},
		{authErr: authsigner.ErrInvalidCredentials},
		{authErr: authsigner.ErrUnavailable},
		{authErr: authsigner.ErrBodyUnreadable},
	} {
		m.authentications.WithLabelValues(req.authResult()).Inc()
	}
	require.Equal(t, before, series())
}

// TestEventsHaveSeries compares the events that are pre-initialised to the constants of the packages that report them.
func TestEventsHaveSeries(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	for _, c := range []struct {
		file, kind string
		counter    *prometheus.CounterVec
	}{
		{"../authsigner/cache.go", "CacheEventKind", m.credentialEvents},
		{"../authsigner/vault/vault.go", "EventKind", m.credentialEvents},
		{"../authsigner/file/file.go", "EventKind", m.credentialEvents},
		{"../ratelimit/options.go", "EventKind", m.limiterEvents},
	} {
		source, err := os.ReadFile(c.file)
		require.NoError(t, err)
		kinds := regexp.MustCompile(`\b`+c.kind+` = "([a-z_]+)"`).FindAllSubmatch(source, -1)
		require.NotEmpty(t, kinds, c.file)
		before := testutil.CollectAndCount(c.counter)
		for _, kind := range kinds {
			c.counter.WithLabelValues(string(kind[1]))
		}
		assert.Equal(t, before, testutil.CollectAndCount(c.counter), c.file)
	}
}

// automations_run waits for up to a minute, and calls of the connection server may take 15 s.
func TestHistogramsOfCallsReachTheirLongestDurations(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	m.connect([]string{"automations_run"})
	m.resource("connect")
	for name, of := range map[string]prometheus.Collector{"tools": m.toolDuration, "data services": m.upstreamDuration} {
		buckets := collect(t, of)[0].GetHistogram().GetBucket()
		require.GreaterOrEqual(t, len(buckets), 2, name)
		assert.Equal(t, []float64{30, 60}, []float64{buckets[len(buckets)-2].GetUpperBound(), buckets[len(buckets)-1].GetUpperBound()}, name)
	}
}

func TestOnlySampledTracesAreExemplars(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flags trace.TraceFlags
		want  int
	}{"sampled": {trace.FlagsSampled, 1}, "not sampled": {0, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMetrics()
			span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: c.flags})
			m.operation("api", "events").count(trace.ContextWithSpanContext(context.Background(), span), 200, "", time.Millisecond)
			exemplars := 0
			for _, of := range collect(t, m.duration) {
				for _, bucket := range of.GetHistogram().GetBucket() {
					if e := bucket.GetExemplar(); e != nil {
						exemplars++
						require.Equal(t, span.TraceID().String(), e.GetLabel()[0].GetValue())
					}
				}
			}
			require.Equal(t, c.want, exemplars)
		})
	}
}

func collect(t *testing.T, c prometheus.Collector) []*dto.Metric {
	t.Helper()
	ch := make(chan prometheus.Metric, 100)
	c.Collect(ch)
	close(ch)
	var all []*dto.Metric
	for metric := range ch {
		out := new(dto.Metric)
		require.NoError(t, metric.Write(out))
		all = append(all, out)
	}
	return all
}

// A data service that asks to come back later keeps the contract, and must not set off the alert on invalid responses.
func TestUnavailableDataServiceIsNotAnInvalidResponse(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	resource := m.resource("events")
	for _, err := range []error{upstream.ErrUpstreamUnavailable, data.ErrUnavailable, data.ErrTimeout} {
		resource.checked(err)
	}
	assert.InDelta(t, 3, testutil.ToFloat64(m.responses.WithLabelValues("events", "unavailable")), 0)
	assert.Zero(t, testutil.ToFloat64(m.responses.WithLabelValues("events", "invalid_response")))
}

// A request for a record that does not exist must not set off the alert on invalid responses.
func TestRefusedRequestIsNotAnInvalidResponse(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"a status that is not documented":        &upstream.StatusError{Status: 404},
		"a documented 429":                       &upstream.StatusError{Status: 429},
		"the only record, which may not be seen": fmt.Errorf("%w: getEvent", upstream.ErrNotVisible),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMetrics()
			m.resource("events").checked(err)
			assert.InDelta(t, 1, testutil.ToFloat64(m.responses.WithLabelValues("events", "passed")), 0)
			assert.Zero(t, testutil.ToFloat64(m.responses.WithLabelValues("events", "invalid_response")))
		})
	}
}
