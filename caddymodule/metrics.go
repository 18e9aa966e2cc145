package caddymodule

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gatehouse-gateway/gatehouse/ratelimit"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// metrics are the gateway's own on Caddy's registry, which is a new one for each configuration. Every label takes its
// value from a fixed set: resources of the contract, statuses, codes and verdicts; never a key, a business or an address.
type metrics struct {
	registry *prometheus.Registry

	requests         *prometheus.CounterVec
	duration         *prometheus.HistogramVec
	upstreamDuration *prometheus.HistogramVec
	verdicts         *prometheus.CounterVec
	decisions        *prometheus.CounterVec
	shadow           *prometheus.CounterVec
	answers          *prometheus.CounterVec
	records          *prometheus.CounterVec
	credentialEvents *prometheus.CounterVec
	limiterEvents    *prometheus.CounterVec
}

func newMetrics(registry *prometheus.Registry) (*metrics, error) {
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
	m := &metrics{
		registry: registry,
		requests: counter("requests_total", "API requests by resource, status and error code.", "resource", "status", "code"),
		duration: histogram("request_duration_seconds", "Time to answer an API request.", "resource"),
		upstreamDuration: histogram("upstream_duration_seconds",
			"Time in which the data services answered, retries included.", "resource"),
		verdicts: counter("verdicts_total", "Verdicts on the callers of API requests.", "verdict"),
		decisions: counter("limit_decisions_total",
			"Decisions on rate limits by limit, by who decided (redis, local, memory) and by outcome.", "limit", "by", "outcome"),
		shadow: counter("limit_shadow_total", "Requests let through in shadow mode that a limit would have refused.", "limit"),
		answers: counter("upstream_answers_total",
			"Answers of data services held against the contract, by resource and outcome.", "resource", "outcome"),
		records: counter("upstream_records_total",
			"Records that the gateway had to leave out or put in order, by resource and reason.", "resource", "reason"),
		credentialEvents: counter("credential_events_total",
			"Events of the credential cache and its source.", "event"),
		limiterEvents: counter("limiter_events_total", "Events of the limiter's connection to its store.", "event"),
	}
	return m, errors.Join(m.register(m.requests), m.register(m.duration), m.register(m.upstreamDuration),
		m.register(m.verdicts), m.register(m.decisions), m.register(m.shadow), m.register(m.answers),
		m.register(m.records), m.register(m.credentialEvents), m.register(m.limiterEvents))
}

func (m *metrics) register(c prometheus.Collector) error { return m.registry.Register(c) }

// watch adds the gauges that are read off the app when somebody scrapes.
func (m *metrics) watch(a *App) error {
	gauge := func(name, help string, read func() float64) error {
		return m.register(prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{Namespace: "gatehouse", Name: name, Help: help}, read))
	}
	truth := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	var errs []error
	if a.pooledLimit != nil {
		errs = append(errs, gauge("limits_shared", "1 while the fleet's shared limits are in force, 0 while the store is away.",
			func() float64 { return truth(a.pooledLimit.down() == nil) }))
	}
	if a.credentials != nil {
		errs = append(
			errs,
			gauge("secrets_ready", "1 while the source of credentials answers.",
				func() float64 { return truth(a.credentials.ready() == nil) }),
			gauge("credentials_cached", "Credentials in the cache.",
				func() float64 { return float64(a.credentials.cache.Stats().Credentials) }),
		)
	}
	return errors.Join(errs...)
}

// observe counts an answer.
func (m *metrics) observe(c *call, status int, code string, d time.Duration) {
	resource := resourceName(c)
	m.requests.WithLabelValues(resource, strconv.Itoa(status), code).Inc()
	m.duration.WithLabelValues(resource).Observe(d.Seconds())
	if c.upstreamTime > 0 {
		m.upstreamDuration.WithLabelValues(resource).Observe(c.upstreamTime.Seconds())
	}
	if c.identified {
		m.verdicts.WithLabelValues(verdictName(c)).Inc()
	}
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
