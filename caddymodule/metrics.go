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

// metrics are the gateway's own, one set for the process: they go on counting over reloads, and are in Caddy's registry
// whichever configuration that belongs to. Every label takes its value from a fixed set: resources of the contract,
// statuses, codes and results; never a key, a business or an address.
type metrics struct {
	requests                                *prometheus.CounterVec
	duration                                *prometheus.HistogramVec
	upstreamDuration                        *prometheus.HistogramVec
	authentications                         *prometheus.CounterVec
	decisions                               *prometheus.CounterVec
	shadow                                  *prometheus.CounterVec
	answers                                 *prometheus.CounterVec
	records                                 *prometheus.CounterVec
	credentialEvents                        *prometheus.CounterVec
	limiterEvents                           *prometheus.CounterVec
	limiterQueue, limiterWait, limiterTrips *prometheus.Desc

	limitsShared, credentialsReady, credentialsCached *prometheus.Desc
}

// sharedMetrics is the set.
//
//nolint:gochecknoglobals // a registry of Caddy's lives as long as a configuration, the process's counters longer
var sharedMetrics = sync.OnceValue(newMetrics)

// registerMetrics puts the set into a configuration's registry, once, and returns it.
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
		requests: counter("requests_total", "Requests by route, status and the contract's error code.", "route", "status", "code"),
		duration: histogram("request_duration_seconds", "Time to respond to a request.", "route"),
		upstreamDuration: histogram("upstream_duration_seconds",
			"Time in which the data services answered, retries included.", "resource"),
		authentications: counter("authentications_total", "API requests by result of authentication.", "result"),
		decisions: counter("limit_decisions_total",
			"Decisions on rate limits by limit, by who decided (redis, local, memory) and by outcome.", "limit", "by", "outcome"),
		shadow: counter("limit_shadow_total", "Requests let through in shadow mode that a limit would have refused.", "limit"),
		answers: counter("upstream_responses_total",
			"Answers of data services held against the contract, by resource and outcome.", "resource", "outcome"),
		records: counter("upstream_records_total",
			"Records that the gateway had to leave out or put in order, by resource and reason.", "resource", "reason"),
		credentialEvents: counter("credential_events_total",
			"Events of the credential cache and its source.", "event"),
		limiterEvents:     counter("limiter_events_total", "Events of the limiter: unavailable, shared, data_lost, overloaded, overload_ended.", "event"),
		limiterQueue:      gauge("limiter_queue_length", "Requests that wait for a round trip to Redis."),
		limiterWait:       gauge("limiter_queue_wait_seconds", "Time that requests have waited for a round trip to Redis to begin."),
		limiterTrips:      gauge("limiter_round_trips_total", "Round trips to Redis for requests."),
		limitsShared:      gauge("limits_shared", "1 while the fleet's shared limits are in force, 0 while the store is away."),
		credentialsReady:  gauge("credentials_ready", "1 while the source of credentials answers."),
		credentialsCached: gauge("credentials_cached", "Credentials in the cache."),
	}
}

func (m *metrics) counted() []prometheus.Collector {
	return []prometheus.Collector{
		m.requests, m.duration, m.upstreamDuration, m.authentications, m.decisions, m.shadow, m.answers, m.records,
		m.credentialEvents, m.limiterEvents,
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.counted() {
		c.Describe(ch)
	}
	for _, d := range []*prometheus.Desc{m.limiterQueue, m.limiterWait, m.limiterTrips, m.limitsShared, m.credentialsReady, m.credentialsCached} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. The gauges are read off the app in force.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.counted() {
		c.Collect(ch)
	}
	a, err := appInForce()
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

// authenticated counts the result of authentication of an API request.
func (m *metrics) authenticated(result string) { m.authentications.WithLabelValues(result).Inc() }

// called counts a call to a data service.
func (m *metrics) called(resource string, took time.Duration) {
	m.upstreamDuration.WithLabelValues(resource).Observe(took.Seconds())
}

// limited counts a decision on a limit.
func (m *metrics) limited(res ratelimit.Result) {
	outcome := "allowed"
	if !res.Allowed {
		outcome = "refused"
	}
	m.decisions.WithLabelValues(res.Tightest().Limit.Name, string(res.By), outcome).Inc()
}

func (m *metrics) shadowed(res ratelimit.Result) {
	m.shadow.WithLabelValues(res.Tightest().Limit.Name).Inc()
}

// checked counts what became of a data service's answer.
func (m *metrics) checked(resource string, report upstream.Report, err error) {
	outcome := "passed"
	switch {
	case errors.Is(err, upstream.ErrForeignRecord):
		outcome = "foreign_record"
	case errors.Is(err, upstream.ErrUnmarkedRecord):
		outcome = "unmarked_record"
	case err != nil:
		outcome = "not_contract"
	}
	m.answers.WithLabelValues(resource, outcome).Inc()
	for _, r := range [...]struct {
		reason string
		n      int
	}{
		{"foreign", report.Foreign},
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
