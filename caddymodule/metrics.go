package caddymodule

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/gatehouse-gateway/gatehouse/ratelimit"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// metrics are Gatehouse's Prometheus metrics. There is one set per process, so that counters survive reloads; each
// configuration registers it in its own registry. All label values are from fixed sets, never keys, businesses or addresses.
type metrics struct {
	prometheus.Collector // of all metrics

	requests         *prometheus.CounterVec
	duration         *prometheus.HistogramVec
	upstreamDuration *prometheus.HistogramVec
	authentications  *prometheus.CounterVec
	decisions        *prometheus.CounterVec
	shadow           *prometheus.CounterVec
	responses        *prometheus.CounterVec
	records          *prometheus.CounterVec
	credentialEvents *prometheus.CounterVec
	limiterEvents    *prometheus.CounterVec
}

const metricsNamespace = "gatehouse"

//nolint:gochecknoglobals // counters must outlive configurations, and Caddy's registries do not
var sharedMetrics = sync.OnceValue(newMetrics)

// registerMetrics registers the metrics in a configuration's registry and returns them.
func registerMetrics(registry *prometheus.Registry) (*metrics, error) {
	m := sharedMetrics()
	var already prometheus.AlreadyRegisteredError
	if err := registry.Register(m); err != nil && !errors.As(err, &already) {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	return m, nil
}

func newMetrics() *metrics {
	registry := prometheus.NewRegistry()
	registry.MustRegister(newGauges())
	factory := promauto.With(registry)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return factory.NewCounterVec(prometheus.CounterOpts{Namespace: metricsNamespace, Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return factory.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: metricsNamespace, Name: name, Help: help,
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, labels)
	}
	return &metrics{
		Collector: registry,
		requests:  counter("requests_total", "Requests by route, status and error code.", "route", "status", "code"),
		duration:  histogram("request_duration_seconds", "Time from the start of a request to the end of its response.", "route"),
		upstreamDuration: histogram("upstream_duration_seconds",
			"Duration of exchanges with data services, including retries.", "resource"),
		authentications: counter("authentications_total", "API requests by authentication result.", "result"),
		decisions: counter("limit_decisions_total",
			"Rate limit decisions by limit, decider (redis, local, memory) and outcome.", "limit", "by", "outcome"),
		shadow: counter("limit_shadow_total", "Requests over a limit that were allowed in shadow mode.", "limit"),
		responses: counter("upstream_responses_total",
			"Responses of data services by resource and outcome of the contract check.", "resource", "outcome"),
		records: counter("upstream_records_total",
			"Records of data services that the gateway removed or reordered, by resource and reason.", "resource", "reason"),
		credentialEvents: counter("credential_events_total",
			"Events of the credential cache and the credential source.", "event"),
		limiterEvents: counter("limiter_events_total", "Events of the limiter: unavailable, shared, data_lost, overloaded, overload_ended.", "event"),
	}
}

// gauges are the metrics of the active app's state.
type gauges struct {
	limitsShared, limiterQueue, limiterWait, limiterTrips, credentialsReady, credentialsCached *prometheus.Desc
}

func newGauges() *gauges {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(metricsNamespace, "", name), help, nil, nil)
	}
	return &gauges{
		limitsShared:      desc("limits_shared", "1 if Redis enforces the limits of the whole fleet, 0 while Redis is unavailable."),
		limiterQueue:      desc("limiter_queue_length", "Requests waiting for a round trip to Redis."),
		limiterWait:       desc("limiter_queue_wait_seconds", "Time that requests waited before their round trip to Redis began."),
		limiterTrips:      desc("limiter_round_trips_total", "Round trips to Redis for requests."),
		credentialsReady:  desc("credentials_ready", "1 if the credential source is available, otherwise 0."),
		credentialsCached: desc("credentials_cached", "Number of cached credentials."),
	}
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.limitsShared, g.limiterQueue, g.limiterWait, g.limiterTrips, g.credentialsReady, g.credentialsCached} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	a := activeApp()
	if a == nil {
		return
	}
	gauge := func(d *prometheus.Desc, value float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value)
	}
	truth := map[bool]float64{true: 1}
	if a.limiter != nil {
		stats := a.limiter.Stats()
		gauge(g.limitsShared, truth[a.limiter.down() == nil])
		gauge(g.limiterQueue, float64(stats.Queue))
		ch <- prometheus.MustNewConstSummary(g.limiterWait, stats.Waits, stats.Waited.Seconds(), nil)
		ch <- prometheus.MustNewConstMetric(g.limiterTrips, prometheus.CounterValue, float64(stats.RoundTrips))
	}
	if a.credentials != nil {
		gauge(g.credentialsReady, truth[a.credentials.store.Ready() == nil])
		gauge(g.credentialsCached, float64(a.credentials.cache.Stats().Credentials))
	}
}

// request counts a response.
func (m *metrics) request(route string, status int, code string, took time.Duration) {
	m.requests.WithLabelValues(route, strconv.Itoa(status), code).Inc()
	m.duration.WithLabelValues(route).Observe(took.Seconds())
}

// limited counts a rate limit decision.
func (m *metrics) limited(res ratelimit.Result) {
	outcome := "allowed"
	if !res.Allowed {
		outcome = "refused"
	}
	m.decisions.WithLabelValues(res.Tightest().Limit.Name, string(res.By), outcome).Inc()
}

// checked counts the result of a contract check.
func (m *metrics) checked(resource string, report upstream.Report, err error) {
	outcome := "passed"
	switch {
	case errors.Is(err, upstream.ErrCrossTenantRecord):
		outcome = "foreign_record"
	case errors.Is(err, upstream.ErrMissingTenant):
		outcome = "unmarked_record"
	case err != nil:
		outcome = "not_contract"
	}
	m.responses.WithLabelValues(resource, outcome).Inc()
	for _, r := range [...]struct {
		reason string
		n      int
	}{
		{"foreign", report.CrossTenant},
		{"unpublished", report.Unpublished},
		{"surplus", report.Surplus},
	} {
		if r.n > 0 {
			m.records.WithLabelValues(resource, r.reason).Add(float64(r.n))
		}
	}
	if report.Reordered {
		m.records.WithLabelValues(resource, "unordered").Inc()
	}
}
