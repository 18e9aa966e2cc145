package caddymodule

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// connectTransport sends the connection server's calls to the data service with a hop assertion. It is safe for concurrent
// use.
type connectTransport struct {
	service  *dataService
	metrics  *resourceMetrics
	asserter *upstream.Asserter // nil: no assertion
	maxSize  int64              // of a response, in bytes

	// server is empty. Caddy's selection policies and replacer need one in the request's context.
	server caddyhttp.Server
}

// RoundTrip implements http.RoundTripper. The request's context must have a deadline. The response is read whole.
func (t *connectTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer func() { _ = r.Body.Close() }()
	}
	out := r.Clone(r.Context()) // http.RoundTripper must not modify the request
	out.RequestURI = r.URL.RequestURI()
	out.Header.Set("Accept-Encoding", "identity")
	out.Header.Set("Via", viaCaddy(1))
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header.Set("User-Agent", "") // keeps net/http from sending its own
	}
	out.Header.Del(upstream.HeaderAssertion)
	if t.asserter != nil {
		business, request := out.Header.Get(upstream.HeaderBusinessID), out.Header.Get(upstream.HeaderRequestID)
		if business == "" || request == "" {
			return nil, errors.New("missing business ID or request ID for the hop assertion")
		}
		assertion, err := t.asserter.Assert(upstream.ConnectAudience, business, request)
		if err != nil {
			return nil, fmt.Errorf("signing the hop assertion: %w", err)
		}
		out.Header.Set(upstream.HeaderAssertion, assertion)
	}
	if out.Context().Value(caddy.ReplacerCtxKey) == nil { // not part of a request to this server
		out = caddyhttp.PrepareRequest(out, caddy.NewReplacer(), discard{}, &t.server)
	}
	res := &upstreamResponse{maxSize: t.maxSize}
	deadline, _ := r.Context().Deadline()
	start := time.Now()
	err := t.service.do(out, deadline, res)
	took := time.Since(start)
	observe(r.Context(), t.metrics.duration, took)
	requestlog.From(r.Context()).Add(func(f *requestlog.Fields) {
		f.Upstream += took
		f.UpstreamAddress = res.address
	})
	if err != nil {
		return nil, err
	}
	return &http.Response{
		Status: strconv.Itoa(res.status) + " " + http.StatusText(res.status), StatusCode: res.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: res.header, Body: io.NopCloser(bytes.NewReader(res.body.Bytes())), ContentLength: int64(res.body.Len()), Request: r,
	}, nil
}
