package caddymodule

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gatehouse-gateway/gatehouse/ratelimit"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// metrics are Gatehouse's Prometheus metrics. There is one set per process, so that counters survive reloads; each
// configuration registers it in its own registry. All label values are from fixed sets, never keys, businesses or addresses.
type metrics struct {
	requests                                *prometheus.CounterVec
	duration                                *prometheus.HistogramVec
	upstreamDuration                        *prometheus.HistogramVec
	authentications                         *prometheus.CounterVec
	decisions                               *prometheus.CounterVec
	shadow                                  *prometheus.CounterVec
	responses                               *prometheus.CounterVec
	records                                 *prometheus.CounterVec
	credentialEvents                        *prometheus.CounterVec
	limiterEvents                           *prometheus.CounterVec
	limiterQueue, limiterWait, limiterTrips *prometheus.Desc

	limitsShared, credentialsReady, credentialsCached *prometheus.Desc
}

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
	const namespace = "gatehouse"
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: name, Help: help,
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, labels)
	}
	gauge := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, nil, nil)
	}
	return &metrics{
		requests: counter("requests_total", "Requests by route, status and error code.", "route", "status", "code"),
		duration: histogram("request_duration_seconds", "Time from the start of a request to the end of its response.", "route"),
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
		limiterEvents:     counter("limiter_events_total", "Events of the limiter: unavailable, shared, data_lost, overloaded, overload_ended.", "event"),
		limiterQueue:      gauge("limiter_queue_length", "Requests waiting for a round trip to Redis."),
		limiterWait:       gauge("limiter_queue_wait_seconds", "Time that requests waited before their round trip to Redis began."),
		limiterTrips:      gauge("limiter_round_trips_total", "Round trips to Redis for requests."),
		limitsShared:      gauge("limits_shared", "1 if Redis enforces the limits of the whole fleet, 0 while Redis is unavailable."),
		credentialsReady:  gauge("credentials_ready", "1 if the credential source is available, otherwise 0."),
		credentialsCached: gauge("credentials_cached", "Number of cached credentials."),
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.requests, m.duration, m.upstreamDuration, m.authentications, m.decisions, m.shadow, m.responses, m.records,
		m.credentialEvents, m.limiterEvents,
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(ch)
	}
	for _, d := range []*prometheus.Desc{m.limiterQueue, m.limiterWait, m.limiterTrips, m.limitsShared, m.credentialsReady, m.credentialsCached} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. The gauges are those of the active app.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(ch)
	}
	a, err := activeApp()
	if err != nil {
		return
	}
	gauge := func(d *prometheus.Desc, value float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value)
	}
	truth := map[bool]float64{true: 1}
	if a.pooledLimit != nil {
		gauge(m.limitsShared, truth[a.pooledLimit.down() == nil])
		stats := a.pooledLimit.limiter.Stats()
		gauge(m.limiterQueue, float64(stats.Queue))
		ch <- prometheus.MustNewConstSummary(m.limiterWait, stats.Waits, stats.Waited.Seconds(), nil)
		ch <- prometheus.MustNewConstMetric(m.limiterTrips, prometheus.CounterValue, float64(stats.RoundTrips))
	}
	if a.credentials != nil {
		gauge(m.credentialsReady, truth[a.credentials.ready() == nil])
		gauge(m.credentialsCached, float64(a.credentials.cache.Stats().Credentials))
	}
}

// request counts a response.
func (m *metrics) request(route string, status int, code string, took time.Duration) {
	m.requests.WithLabelValues(route, strconv.Itoa(status), code).Inc()
	m.duration.WithLabelValues(route).Observe(took.Seconds())
}

// authenticated counts an authentication result.
func (m *metrics) authenticated(result string) { m.authentications.WithLabelValues(result).Inc() }

// called records the duration of an exchange with a data service.
func (m *metrics) called(resource string, took time.Duration) {
	m.upstreamDuration.WithLabelValues(resource).Observe(took.Seconds())
}

// limited counts a rate limit decision.
func (m *metrics) limited(res ratelimit.Result) {
	outcome := "allowed"
	if !res.Allowed {
		outcome = "denied"
	}
	m.decisions.WithLabelValues(res.Tightest().Limit.Name, string(res.By), outcome).Inc()
}

func (m *metrics) shadowed(res ratelimit.Result) {
	m.shadow.WithLabelValues(res.Tightest().Limit.Name).Inc()
}

// checked counts the result of a contract check.
func (m *metrics) checked(resource string, report upstream.Report, err error) {
	outcome := "passed"
	switch {
	case errors.Is(err, upstream.ErrCrossTenantRecord):
		outcome = "cross_tenant"
	case errors.Is(err, upstream.ErrMissingTenant):
		outcome = "missing_tenant"
	case err != nil:
		outcome = "invalid_response"
	}
	m.responses.WithLabelValues(resource, outcome).Inc()
	for _, r := range [...]struct {
		reason string
		n      int
	}{
		{"cross_tenant", report.CrossTenant},
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

// Interface guard.
var _ prometheus.Collector = (*metrics)(nil)
