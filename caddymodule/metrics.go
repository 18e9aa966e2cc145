package caddymodule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.opentelemetry.io/otel/trace"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/file"
	"github.com/gatehouse-gateway/gatehouse/authsigner/vault"
	"github.com/gatehouse-gateway/gatehouse/connect/account"
	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// metrics are Gatehouse's Prometheus metrics. There is one set per process, so that counters survive reloads; each
// configuration registers it in its own registry. All label values are from fixed sets, never keys, businesses or addresses.
//
// Every series whose labels are known exists before its first event: increase() over a counter that begins at 1 is 0.
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
	deviations       *prometheus.CounterVec
	credentialEvents *prometheus.CounterVec
	limiterEvents    *prometheus.CounterVec
	toolCalls        *prometheus.CounterVec
	toolDuration     *prometheus.HistogramVec
	signIns          *prometheus.CounterVec
}

const metricsNamespace = "gatehouse"

//nolint:gochecknoglobals // counters must outlive configurations, and Caddy's registries do not
var sharedMetrics = sync.OnceValue(newMetrics)

// registerMetrics registers the metrics in a configuration's registry and returns them.
func registerMetrics(registry *prometheus.Registry) (*metrics, error) {
	m := sharedMetrics()
	err := registry.Register(m)
	if _, already := errors.AsType[prometheus.AlreadyRegisteredError](err); err != nil && !already {
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
	buckets := []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	callBuckets := slices.Concat(buckets, []float64{30, 60}) // a tool may wait for a minute, and its calls take more than 10 s
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return factory.NewHistogramVec(prometheus.HistogramOpts{Namespace: metricsNamespace, Name: name, Help: help, Buckets: buckets}, labels)
	}
	m := &metrics{
		Collector: registry,
		requests:  counter("requests_total", "Requests by route, operation, status and error code.", "route", "operation", "status", "code"),
		duration: histogram("request_duration_seconds",
			"Time from the start of a request to the end of its response, by route, operation and status class.",
			buckets, "route", "operation", "status_class"),
		upstreamDuration: histogram("upstream_duration_seconds",
			"Duration of exchanges with data services, including retries.", callBuckets, "resource"),
		authentications: counter("authentications_total", "API requests by authentication result.", "result"),
		decisions: counter("limit_decisions_total",
			"Rate limit decisions by limit, decider (redis, local, memory) and outcome.", "limit", "by", "outcome"),
		shadow: counter("limit_shadow_total", "Requests over a limit that were allowed in shadow mode.", "limit"),
		responses: counter("upstream_responses_total",
			"Responses of data services by resource and outcome of the contract check.", "resource", "outcome"),
		records: counter("upstream_records_total",
			"Records of data services that the gateway removed or reordered, by resource and reason.", "resource", "reason"),
		deviations: counter("api_deviations_total",
			"Deviations of data services' responses that passed, by operation and rule.", "operation", "rule"),
		credentialEvents: counter("credential_events_total",
			"Events of the credential cache and the credential source.", "event"),
		limiterEvents: counter("limiter_events_total", "Events of the limiter: unavailable, shared, data_lost, overloaded, overload_ended.", "event"),
		toolCalls:     counter("tool_calls_total", "MCP tool calls by tool and outcome.", "tool", "outcome"),
		toolDuration:  histogram("tool_duration_seconds", "Duration of MCP tool calls.", callBuckets, "tool"),
		signIns:       counter("sign_ins_total", "Sign-ins on the connection server's pages by outcome.", "outcome"),
	}
	for _, result := range []string{"verified", "missing", "expired", "invalid", "inactive", "unavailable", "unreadable"} {
		m.authentications.WithLabelValues(result)
	}
	for _, limit := range []string{ratelimit.PolicyKey, ratelimit.PolicyIP, ratelimit.PolicyUnverifiedKey, ratelimit.PolicyUnverifiedIP} {
		m.shadow.WithLabelValues(limit)
		for _, by := range []ratelimit.Decider{ratelimit.ByRedis, ratelimit.ByLocal, ratelimit.ByMemory} {
			for _, outcome := range []string{"allowed", "denied"} {
				m.decisions.WithLabelValues(limit, string(by), outcome)
			}
		}
	}
	for _, event := range []authsigner.CacheEventKind{
		authsigner.CacheFound, authsigner.CacheUnknown, authsigner.CacheMalformed, authsigner.CacheFailed, authsigner.CacheStale,
		authsigner.CacheSkipped, authsigner.CacheUnavailable, authsigner.CacheAvailable,
	} {
		m.credentialEvents.WithLabelValues(string(event))
	}
	for _, event := range []vault.EventKind{
		vault.EventLogin, vault.EventLoginFailed, vault.EventRenewed, vault.EventRenewalFailed, vault.EventDenied,
	} {
		m.credentialEvents.WithLabelValues(string(event))
	}
	for _, event := range []file.EventKind{file.EventReloaded, file.EventInvalid, file.EventMalformed} {
		m.credentialEvents.WithLabelValues(string(event))
	}
	m.credentialEvents.WithLabelValues(eventFileChanged)
	m.credentialEvents.WithLabelValues(eventInvalidationLost)
	for _, event := range []ratelimit.EventKind{
		ratelimit.EventUnavailable, ratelimit.EventShared, ratelimit.EventDataLost, ratelimit.EventOverloaded, ratelimit.EventOverloadEnded,
	} {
		m.limiterEvents.WithLabelValues(string(event))
	}
	return m
}

// gauges are the metrics of the process and of the active app's state.
type gauges struct {
	descs []*prometheus.Desc

	buildInfo, ready, limitsShared, limiterQueue, limiterWait, limiterTrips, credentialsReady, credentialFileValid, credentialsCached,
	redisConnections, redisTimeouts, upstreamConnections, upstreamAddresses *prometheus.Desc
}

func newGauges() *gauges {
	g := new(gauges)
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		d := prometheus.NewDesc(prometheus.BuildFQName(metricsNamespace, "", name), help, labels, nil)
		g.descs = append(g.descs, d)
		return d
	}
	g.buildInfo = desc("build_info", "Always 1; the labels are the versions of Gatehouse and Go.", "version", "goversion")
	g.ready = desc("ready", "1 if /readyz responds with 200, otherwise 0.")
	g.limitsShared = desc("limits_shared", "1 if Redis enforces the limits of the whole fleet, 0 while Redis is unavailable.")
	g.limiterQueue = desc("limiter_queue_length", "Requests waiting for a round trip to Redis.")
	g.limiterWait = desc("limiter_queue_wait_seconds", "Time that requests waited before their round trip to Redis began.")
	g.limiterTrips = desc("limiter_round_trips_total", "Round trips to Redis for requests.")
	g.credentialsReady = desc("credentials_ready", "1 if the credential source is available, otherwise 0.")
	g.credentialFileValid = desc("credential_file_valid",
		"1 if the credential file is valid; 0 while the gateway uses the keys of the last valid one.")
	g.credentialsCached = desc("credentials_cached", "Number of cached credentials.")
	g.redisConnections = desc("redis_connections", "Connections to Redis by state: idle, in_use.", "state")
	g.redisTimeouts = desc("redis_pool_timeouts_total", "Commands that got no connection to Redis in time, because all were in use.")
	g.upstreamConnections = desc("upstream_connections", "Connections to data services by state: idle, in_use.", "state")
	g.upstreamAddresses = desc("upstream_addresses", "Static addresses of data services by state: available, avoided.", "state")
	return g
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range g.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(g.buildInfo, 1, cmp.Or(caddy.CustomVersion, "unknown"), runtime.Version())
	a := activeApp()
	if a == nil {
		return
	}
	truth := map[bool]float64{true: 1}
	gauge(g.ready, truth[a.readiness().httpStatus() == http.StatusOK])
	if a.redis != nil {
		stats := a.redis.client.PoolStats()
		gauge(g.redisConnections, float64(stats.IdleConns), "idle")
		gauge(g.redisConnections, float64(stats.TotalConns)-float64(stats.IdleConns), "in_use")
		ch <- prometheus.MustNewConstMetric(g.redisTimeouts, prometheus.CounterValue, float64(stats.Timeouts))
	}
	if len(a.services) > 0 {
		var idle, inUse, available, avoided int
		for _, s := range a.services {
			i, u := s.Connections()
			idle, inUse = idle+i, inUse+u
			can, no := s.Availability()
			available, avoided = available+can, avoided+no
		}
		gauge(g.upstreamConnections, float64(idle), "idle")
		gauge(g.upstreamConnections, float64(inUse), "in_use")
		gauge(g.upstreamAddresses, float64(available), "available")
		gauge(g.upstreamAddresses, float64(avoided), "avoided")
	}
	if a.limiter != nil {
		stats := a.limiter.Stats()
		gauge(g.limitsShared, truth[a.limiter.down() == nil])
		gauge(g.limiterQueue, float64(stats.Queue))
		ch <- prometheus.MustNewConstSummary(g.limiterWait, stats.Waits, stats.Waited.Seconds(), nil)
		ch <- prometheus.MustNewConstMetric(g.limiterTrips, prometheus.CounterValue, float64(stats.RoundTrips))
	}
	if a.credentials != nil {
		err := a.credentials.store.Ready()
		gauge(g.credentialsReady, truth[!errors.Is(err, authsigner.ErrUnavailable)])
		if _, isFile := a.credentials.store.(*file.Source); isFile {
			gauge(g.credentialFileValid, truth[err == nil])
		}
		gauge(g.credentialsCached, float64(a.credentials.cache.Len()))
	}
}

// observe adds a duration to a histogram, with the trace as exemplar if the context's span is sampled.
func observe(ctx context.Context, to prometheus.Observer, d time.Duration) {
	if span := trace.SpanContextFromContext(ctx); span.IsSampled() {
		if to, ok := to.(prometheus.ExemplarObserver); ok {
			to.ObserveWithExemplar(d.Seconds(), prometheus.Labels{"trace_id": span.TraceID().String()})
			return
		}
	}
	to.Observe(d.Seconds())
}

// operationMetrics are the metrics of one operation, looked up once.
type operationMetrics struct {
	requests *prometheus.CounterVec // by status and code
	ok       prometheus.Counter     // status 200 without a code
	duration prometheus.ObserverVec // by status class
	classes  [6]prometheus.Observer // of duration, by the first digit of the status; nil for those that are rare
}

func (m *metrics) operation(route, name string) *operationMetrics {
	of := prometheus.Labels{"route": route, "operation": name}
	o := &operationMetrics{requests: m.requests.MustCurryWith(of), duration: m.duration.MustCurryWith(of)}
	o.ok = o.requests.WithLabelValues("200", "")
	for _, class := range []int{2, 3, 4, 5} {
		o.classes[class] = o.duration.WithLabelValues(statusClass(class))
	}
	return o
}

func statusClass(firstDigit int) string { return strconv.Itoa(firstDigit) + "xx" }

// count counts a response.
func (o *operationMetrics) count(ctx context.Context, status int, code string, took time.Duration) {
	if status == http.StatusOK && code == "" {
		o.ok.Inc()
	} else {
		o.requests.WithLabelValues(strconv.Itoa(status), code).Inc()
	}
	class := status / 100
	if class < len(o.classes) && o.classes[class] != nil {
		observe(ctx, o.classes[class], took)
	} else {
		observe(ctx, o.duration.WithLabelValues(statusClass(class)), took)
	}
}

// connectMetrics are the metrics of the connection server, looked up once.
type connectMetrics struct {
	calls    *prometheus.CounterVec         // by tool and outcome
	duration map[string]prometheus.Observer // by tool
	signIns  *prometheus.CounterVec         // by outcome
}

func (m *metrics) connect(tools []string) *connectMetrics {
	c := &connectMetrics{calls: m.toolCalls, duration: map[string]prometheus.Observer{}, signIns: m.signIns}
	for _, tool := range tools {
		c.duration[tool] = m.toolDuration.WithLabelValues(tool)
		for _, outcome := range requestlog.Outcomes() {
			c.calls.WithLabelValues(tool, outcome)
		}
	}
	for _, outcome := range requestlog.SignIns() {
		c.signIns.WithLabelValues(outcome)
	}
	return c
}

// count counts what a request did.
func (c *connectMetrics) count(ctx context.Context, f *requestlog.Fields) {
	if duration := c.duration[f.Tool]; duration != nil {
		c.calls.WithLabelValues(f.Tool, f.Outcome).Inc()
		observe(ctx, duration, f.ToolTime)
	}
	if f.SignIn != "" {
		c.signIns.WithLabelValues(f.SignIn).Inc()
	}
}

// observeCall records the duration of a call to a data service.
func (m *metrics) observeCall(ctx context.Context, resource string, took time.Duration) {
	observe(ctx, m.upstreamDuration.WithLabelValues(resource), took)
}

// limited counts a rate limit decision.
func (m *metrics) limited(res ratelimit.Result) {
	outcome := "allowed"
	if !res.Allowed {
		outcome = "denied"
	}
	m.decisions.WithLabelValues(res.Tightest().Limit.Name, string(res.By), outcome).Inc()
}

// resourceMetrics are the metrics of a data service's responses for one resource, looked up once.
type resourceMetrics struct {
	responses, records *prometheus.CounterVec // by outcome; by reason
	passed             prometheus.Counter
}

func (m *metrics) resource(name string) *resourceMetrics {
	of := prometheus.Labels{"resource": name}
	r := &resourceMetrics{
		responses: m.responses.MustCurryWith(of), records: m.records.MustCurryWith(of),
	}
	m.upstreamDuration.With(of)
	r.passed = r.responses.WithLabelValues("passed")
	for _, outcome := range []string{"cross_tenant", "missing_tenant", "invalid_response", "unavailable"} {
		r.responses.WithLabelValues(outcome)
	}
	if name == upstream.ConnectAudience {
		r.responses.WithLabelValues("wrong_account")
	}
	for _, reason := range []string{"cross_tenant", "unpublished", "surplus", "unordered"} {
		r.records.WithLabelValues(reason)
	}
	return r
}

// deviationsOf returns the deviations of an operation's responses, by rule.
func (m *metrics) deviationsOf(operation string) *prometheus.CounterVec {
	deviations := m.deviations.MustCurryWith(prometheus.Labels{"operation": operation})
	for _, rule := range upstream.DeviationRules() {
		deviations.WithLabelValues(rule)
	}
	return deviations
}

// isRefusal reports whether a response keeps the contract although the caller gets an error of the gateway: a record that does not exist
// or may not be seen, and other statuses from 400 to 499 that need not be documented.
func isRefusal(err error) bool {
	_, ok := errors.AsType[*upstream.StatusError](err)
	return ok || errors.Is(err, upstream.ErrNotVisible)
}

// checked counts the result of checking a response.
func (r *resourceMetrics) checked(err error) {
	switch {
	case err == nil, isRefusal(err):
		r.passed.Inc()
	case errors.Is(err, upstream.ErrCrossTenantRecord):
		r.responses.WithLabelValues("cross_tenant").Inc()
	case errors.Is(err, account.ErrWrongAccount):
		r.responses.WithLabelValues("wrong_account").Inc()
	case errors.Is(err, upstream.ErrMissingTenant):
		r.responses.WithLabelValues("missing_tenant").Inc()
	case errors.Is(err, upstream.ErrUpstreamUnavailable):
		r.responses.WithLabelValues("unavailable").Inc()
	default:
		r.responses.WithLabelValues("invalid_response").Inc()
	}
}

// removed counts the records that a check removed from a response, and whether it put the others in order.
func (r *resourceMetrics) removed(report upstream.Report) {
	for _, removed := range [...]struct {
		reason string
		n      int
	}{
		{"cross_tenant", report.CrossTenant},
		{"unpublished", report.Unpublished},
		{"surplus", report.Surplus},
	} {
		if removed.n > 0 {
			r.records.WithLabelValues(removed.reason).Add(float64(removed.n))
		}
	}
	if report.Reordered {
		r.records.WithLabelValues("unordered").Inc()
	}
}
