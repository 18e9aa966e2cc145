package caddymodule

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// errNoIdentity says that a call of the connection server lacks what the hop assertion is about.
var errNoIdentity = errors.New("the call names no business or no request")

// proxyTransport makes the connection server's calls through Caddy's reverse_proxy, so that they have all of its options:
// several addresses, health checks, retries, TLS. It puts the hop assertion on. It is safe for concurrent use.
type proxyTransport struct {
	proxy     caddyhttp.MiddlewareHandler
	asserter  *upstream.Asserter // nil: no assertion
	maxAnswer int64

	// reverse_proxy asks its server how much to log; these calls belong to none of the configured ones.
	server caddyhttp.Server
}

// RoundTrip implements http.RoundTripper. The answer is read whole.
func (t *proxyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer func() { _ = r.Body.Close() }()
	}
	// http.RoundTripper: the request is not to be changed
	out := r.Clone(r.Context())
	out.RequestURI = r.URL.RequestURI()
	out.Header.Set("Accept-Encoding", "identity")
	out.Header.Del(upstream.HeaderAssertion)
	if t.asserter != nil {
		business, request := out.Header.Get(upstream.HeaderBusinessID), out.Header.Get(upstream.HeaderRequestID)
		if business == "" || request == "" {
			return nil, errNoIdentity
		}
		assertion, err := t.asserter.AssertConnect(business, request)
		if err != nil {
			return nil, fmt.Errorf("signing the hop assertion: %w", err)
		}
		out.Header.Set(upstream.HeaderAssertion, assertion)
	}

	w := new(captureWriter)
	w.reset(r.Context(), t.maxAnswer, nil)
	out = caddyhttp.PrepareRequest(out, caddy.NewReplacer(), w, &t.server)
	if err := ask(caddyhttp.HandlerFunc(t.serve), w, out); err != nil {
		return nil, err
	}
	if w.status == 0 {
		return nil, errAnswerBrokenOff
	}
	return &http.Response{
		Status: strconv.Itoa(w.status) + " " + http.StatusText(w.status), StatusCode: w.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: io.NopCloser(bytes.NewReader(w.body.Bytes())), ContentLength: int64(w.body.Len()), Request: r,
	}, nil
}

func (t *proxyTransport) serve(w http.ResponseWriter, r *http.Request) error {
	return t.proxy.ServeHTTP(w, r, caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error {
		return errAnswerBrokenOff // reverse_proxy answers every request
	}))
}

// Interface guard.
var _ http.RoundTripper = (*proxyTransport)(nil)
