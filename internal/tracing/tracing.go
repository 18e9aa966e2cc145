// Package tracing adds OpenTelemetry spans to requests that are being traced, which is what Caddy's directive "tracing" decides.
// Without it, or for requests that its sampler drops, spans cost one lookup in the context each.
package tracing

import (
	"context"
	"net/http"
	"slices"

	"go.opentelemetry.io/contrib/propagators/autoprop"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// scope is the instrumentation scope of all spans.
const scope = "github.com/gatehouse-gateway/gatehouse"

// Start starts a child of the span in ctx if that one is recording. Otherwise it returns ctx and a span that does nothing. Names
// are from a small fixed set. Attributes must not hold secrets, query values or personal data.
func Start(ctx context.Context, name string, kind trace.SpanKind) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, noop.Span{}
	}
	return parent.TracerProvider().Tracer(scope).Start(ctx, name, trace.WithSpanKind(kind))
}

// StartRemote is Start with the parent in traceparent (W3C Trace Context), if that is valid, and a link to the span in ctx, as
// OpenTelemetry's conventions for MCP say. Whether the span in ctx is recording decides here too, not the flag in traceparent.
func StartRemote(ctx context.Context, traceparent, name string, kind trace.SpanKind) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, noop.Span{}
	}
	remote := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(),
		propagation.MapCarrier{Traceparent: traceparent}))
	if !remote.IsValid() {
		return Start(ctx, name, kind)
	}
	remote = remote.WithTraceFlags(parent.SpanContext().TraceFlags())
	return parent.TracerProvider().Tracer(scope).Start(trace.ContextWithRemoteSpanContext(ctx, remote), name,
		trace.WithSpanKind(kind), trace.WithLinks(trace.Link{SpanContext: parent.SpanContext()}))
}

// End ends a span. An error becomes its status; the text must be safe to log.
func End(span trace.Span, err error) {
	if err != nil && span.IsRecording() {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// Inject sets Traceparent to the span in ctx, and leaves it unchanged if there is none. Tracestate is left unchanged.
func Inject(ctx context.Context, h http.Header) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	h["Traceparent"] = []string{carrier[Traceparent]}
}

// Traceparent is the name of the header, and of the member of MCP's _meta, that identifies the caller's span.
const Traceparent = "traceparent"

// AcceptsRemote reports whether the environment variable OTEL_PROPAGATORS accepts callers' trace contexts. Default: true.
func AcceptsRemote() bool {
	return slices.Contains(autoprop.NewTextMapPropagator().Fields(), Traceparent)
}
