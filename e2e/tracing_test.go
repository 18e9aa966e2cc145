package e2e_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

const (
	callerTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	callerSpan   = "00f067aa0ba902b7"
	callerParent = "00-" + callerTrace + "-" + callerSpan + "-01"
)

// traceCollector receives spans as an OpenTelemetry collector does (OTLP over HTTP).
type traceCollector struct {
	*httptest.Server

	mu    sync.Mutex
	spans []*tracepb.Span
}

func startCollector(t *testing.T) *traceCollector {
	t.Helper()
	c := new(traceCollector)
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		export := new(collector.ExportTraceServiceRequest)
		if err != nil || proto.Unmarshal(body, export) != nil {
			panic(http.ErrAbortHandler)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, resource := range export.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				c.spans = append(c.spans, scope.GetSpans()...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// environment makes a gateway send its spans here.
func (c *traceCollector) environment(more ...string) []string {
	return append(more, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL, "OTEL_BSP_SCHEDULE_DELAY=50")
}

// request returns the spans of the request with this ID, and of every trace that its spans belong to, by name.
func (c *traceCollector) request(t *testing.T, id string) map[string]*tracepb.Span {
	t.Helper()
	var found map[string]*tracepb.Span
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		found = map[string]*tracepb.Span{}
		var server *tracepb.Span
		for _, s := range c.spans {
			if attributes(s)["gatehouse.request_id"] == id {
				server = s
			}
		}
		if server == nil {
			return false
		}
		under := map[string]bool{string(server.GetSpanId()): true}
		for grown := true; grown; {
			grown = false
			for _, s := range c.spans {
				linked := len(s.GetLinks()) > 0 && under[string(s.GetLinks()[0].GetSpanId())]
				if !under[string(s.GetSpanId())] && (under[string(s.GetParentSpanId())] || linked) {
					under[string(s.GetSpanId())], grown = true, true
				}
			}
		}
		for _, s := range c.spans {
			if under[string(s.GetSpanId())] {
				found[s.GetName()] = s
			}
		}
		return true
	}, patience, 20*time.Millisecond, "no span of request %s", id)
	return found
}

func attributes(s *tracepb.Span) map[string]string {
	m := map[string]string{}
	for _, a := range s.GetAttributes() {
		switch v := a.GetValue(); {
		case v.GetStringValue() != "":
			m[a.GetKey()] = v.GetStringValue()
		default:
			m[a.GetKey()] = fmt.Sprint(v.GetIntValue(), v.GetBoolValue())
		}
	}
	return m
}

// startTraced starts a gateway with the API and the connection server behind Caddy's directive tracing.
func startTraced(t *testing.T, w *environment, c *traceCollector, environment ...string) *gatewaytest.Gateway {
	t.Helper()
	o := w.options(highLimits+"\n\t\tcache {\n\t\t\tttl 24h\n\t\t}", "")
	o.Env = c.environment(environment...)
	o.Site = "tracing {\n\t\tspan gateway\n\t}\n\t" + o.Site
	return w.startConnect(t, o)
}

// Each step of a request is a span below Caddy's, and the data service continues the trace.
func TestSpansOfAPIRequests(t *testing.T) {
	t.Parallel()
	data := new(recorder)
	data.setResponse(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/events" {
			aborts(w, r)
		}
		respondWith(http.StatusOK, "application/json", `{"events":[]}`)(w, r)
	})
	w, c := newEnvironment(t, data), startCollector(t)
	g := startTraced(t, w, c)

	h := headerOf(signedFields(w.acme, "GET", "/api/v1/events?count=7", ""))
	h.Set("Traceparent", callerParent)
	a := send(t, g, "/api/v1/events?count=7", h)
	require.Equal(t, http.StatusOK, a.Status, a.Body)
	spans := c.request(t, a.Header.Get("X-Request-Id"))
	for name, parent := range map[string]string{
		"authenticate": "gateway", "credential lookup": "authenticate", "rate limit": "gateway", "GET": "gateway", "check response": "gateway",
	} {
		assert.Contains(t, spans, name)
		assert.Equal(t, spans[parent].GetSpanId(), spans[name].GetParentSpanId(), name)
		assert.Equal(t, callerTrace, hex.EncodeToString(spans[name].GetTraceId()), name)
	}
	require.Equal(t, callerSpan, hex.EncodeToString(spans["gateway"].GetParentSpanId()))
	require.Equal(t, "api listEvents", attributes(spans["gateway"])["gatehouse.route"]+" "+attributes(spans["gateway"])["gatehouse.operation"])
	require.Equal(t, "verified", attributes(spans["authenticate"])["gatehouse.authentication"])
	require.Equal(t, "redis", attributes(spans["rate limit"])["db.system.name"])
	exchange := attributes(spans["GET"])
	require.Equal(t, w.dataURL+"/api/v1/events", exchange["url.full"])
	require.Equal(t, "200 false", exchange["http.response.status_code"])
	require.Equal(t, tracepb.Span_SPAN_KIND_CLIENT, spans["GET"].GetKind())
	require.Equal(t, "00-"+callerTrace+"-"+hex.EncodeToString(spans["GET"].GetSpanId())+"-01", data.last(t).Header.Get("Traceparent"))

	t.Run("a credential in the cache is not looked up", func(t *testing.T) {
		t.Parallel()
		require.Eventually(t, func() bool { // the gateway empties its cache once it has subscribed to changes of keys
			again := w.acme.Get(t, g.URL, "/api/v1/events")
			return c.request(t, again.Header.Get("X-Request-Id"))["credential lookup"] == nil
		}, patience, 10*time.Millisecond)
	})
	t.Run("a failure is an error of its span", func(t *testing.T) {
		t.Parallel()
		failed := w.acme.Get(t, g.URL, "/api/v1/jobs")
		require.Equal(t, http.StatusBadGateway, failed.Status)
		spans := c.request(t, failed.Header.Get("X-Request-Id"))
		assert.Equal(t, tracepb.Status_STATUS_CODE_ERROR, spans["GET"].GetStatus().GetCode())
		assert.Equal(t, "UPSTREAM_FAILED", attributes(spans["gateway"])["gatehouse.error_code"])
	})
	t.Run("spans hold no secrets", func(t *testing.T) {
		t.Parallel()
		denied := send(t, g, "/api/v1/contacts?status=canary", invalidSignature("pk_live_nobody_has_this_one"))
		require.Equal(t, "invalid", attributes(c.request(t, denied.Header.Get("X-Request-Id"))["authenticate"])["gatehouse.authentication"])
		c.mu.Lock()
		defer c.mu.Unlock()
		gatewaytest.RequireNowhere(t, fmt.Sprint(c.spans), w.acme.PrivateKey.Reveal(), h.Get("X-Signature"), strings.Repeat("ab", 32),
			"pk_live_nobody_has_this_one")
	})
}

// A caller's sampling decision counts only as far as OTEL_PROPAGATORS and OTEL_TRACES_SAMPLER let it.
func TestCallersSamplingDecision(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		environment []string
		traceparent string
		sampled     bool
		continued   bool // the caller's trace
	}{
		"sampled by default":                  {nil, "", true, false},
		"the caller's decision counts":        {nil, "00-" + callerTrace + "-" + callerSpan + "-00", false, true},
		"callers' contexts are ignored":       {[]string{"OTEL_PROPAGATORS=none"}, "00-" + callerTrace + "-" + callerSpan + "-00", true, false},
		"the caller cannot force a trace":     {[]string{"OTEL_PROPAGATORS=none", "OTEL_TRACES_SAMPLER=always_off"}, callerParent, false, false},
		"the sampler can ignore the decision": {[]string{"OTEL_TRACES_SAMPLER=always_off"}, callerParent, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := new(recorder)
			w, c := newEnvironment(t, data), startCollector(t)
			g := startTraced(t, w, c, tt.environment...)
			h := headerOf(signedFields(w.acme, "GET", "/api/v1/events", ""))
			if tt.traceparent != "" {
				h.Set("Traceparent", tt.traceparent)
			}
			a := send(t, g, "/api/v1/events", h)
			require.Equal(t, http.StatusOK, a.Status, a.Body)
			forwarded := data.last(t).Header.Get("Traceparent")
			require.Equal(t, tt.continued, strings.HasPrefix(forwarded, "00-"+callerTrace), forwarded)
			require.NotContains(t, forwarded, callerSpan, "the data service's parent is the gateway's span")
			flags := "-00"
			if tt.sampled {
				flags = "-01"
				c.request(t, a.Header.Get("X-Request-Id"))
			}
			require.True(t, strings.HasSuffix(forwarded, flags), forwarded)
			g.Stop(t) // exports what is left
			c.mu.Lock()
			defer c.mu.Unlock()
			require.Equal(t, tt.sampled, len(c.spans) > 0)
		})
	}
}

// A tool call is a span with the calls to the data service below it. Its parent can be named in MCP's _meta.
//
//nolint:tparallel // each reads the spans since the last
func TestSpansOfToolCalls(t *testing.T) {
	t.Parallel()
	w, c := newEnvironment(t, nil), startCollector(t)
	follows, ignores := startTraced(t, w, c), startTraced(t, w, c, "OTEL_PROPAGATORS=none")
	for _, tt := range []struct {
		name      string
		g         *gatewaytest.Gateway
		meta      string
		continued bool
	}{
		{"without _meta", follows, `{}`, false},
		{"with the client's span", follows, `{"traceparent":"` + callerParent + `"}`, true},
		{"with a malformed traceparent", follows, `{"traceparent":"00-x"}`, false},
		{"with another type", follows, `{"traceparent":17}`, false},
		{"callers' contexts are ignored", ignores, `{"traceparent":"` + callerParent + `"}`, false},
	} {
		t.Run(tt.name, func(t *testing.T) { //nolint:paralleltest // as above
			a := approved(t, w.owner(t, tt.g), "mcp:read")
			c.mu.Lock()
			c.spans = nil
			c.mu.Unlock()
			status, response, err := a.post(t.Context(), onceClient(), "2025-11-25", "contacts_get", `{"name":"contacts_get","arguments":{"id":999999999},"_meta":`+tt.meta+`}`)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, status)
			require.Contains(t, response, `"isError":true`)

			var call *tracepb.Span
			require.Eventually(t, func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				below := 0
				for _, s := range c.spans {
					if s.GetName() == "tools/call contacts_get" {
						call = s
					}
				}
				for _, s := range c.spans {
					if bytes.Equal(s.GetParentSpanId(), call.GetSpanId()) && s.GetName() == "GET" {
						below++
					}
				}
				return call != nil && below > 0
			}, patience, 20*time.Millisecond, "a tool call with calls to the data service below it")
			require.Equal(t, tracepb.Span_SPAN_KIND_SERVER, call.GetKind())
			require.Equal(t, "contacts_get", attributes(call)["gen_ai.tool.name"])
			require.Equal(t, "tool_error", attributes(call)["error.type"])
			if tt.continued {
				require.Equal(t, callerTrace, hex.EncodeToString(call.GetTraceId()))
				require.Equal(t, callerSpan, hex.EncodeToString(call.GetParentSpanId()))
				require.Len(t, call.GetLinks(), 1, "the HTTP request's span")
			} else {
				require.NotEqual(t, callerTrace, hex.EncodeToString(call.GetTraceId()))
				require.Empty(t, call.GetLinks())
			}
		})
	}
}
