package caddymodule

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

// Transport is Caddy's HTTP transport, with all of its settings, for answers that are read whole.
//
// reverse_proxy hands an answer on as it comes, and where it breaks off in the middle can only give up, which it reports
// with the whole request: its headers, the hop assertion among them, would be in the log. No answer leaves the gateway before
// its end is here; so it is read here, and what goes wrong with it is told to whoever has asked (see ask), and nobody else.
type Transport struct {
	*reverseproxy.HTTPTransport
}

// transportName is what upstreams have for their transport instead of "http".
const transportName = "gateway_http"

// errSwitchedProtocols is an answer that only a request for it could have.
var errSwitchedProtocols = errors.New("the data service has switched protocols, which nobody asked for")

// CaddyModule returns the Caddy module information.
func (Transport) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.reverse_proxy.transport." + transportName,
		New: func() caddy.Module { return &Transport{HTTPTransport: new(reverseproxy.HTTPTransport)} },
	}
}

// maxAnswerHeaders is how many bytes of headers an answer may have, where the operator has not said. net/http would take 10
// MiB, which many times that are in memory.
const maxAnswerHeaders = 64 << 10

// Provision sets our own defaults, and up the rest.
func (t *Transport) Provision(ctx caddy.Context) error {
	if t.MaxResponseHeaderSize == 0 {
		t.MaxResponseHeaderSize = maxAnswerHeaders
	}
	return t.HTTPTransport.Provision(ctx)
}

// RoundTrip implements http.RoundTripper. Answers that nobody is going to read whole, such as those to health checks, are
// left as they are.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.HTTPTransport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	w, ok := req.Context().Value(answerKey{}).(*captureWriter)
	if !ok {
		return res, nil
	}
	if res.StatusCode == http.StatusSwitchingProtocols {
		_ = res.Body.Close()
		return nil, errSwitchedProtocols
	}
	w.receive(res.Body)
	_ = res.Body.Close()
	res.Body, res.Trailer = http.NoBody, nil
	return res, nil
}

// answerKey is the context key under which the transport finds the *captureWriter that an answer is for.
type answerKey struct{}

// receive reads an answer's body to its end, or leaves none and says why in w.failed.
func (w *captureWriter) receive(body io.Reader) {
	w.body.Reset()
	n, err := w.body.ReadFrom(io.LimitReader(body, min(w.limit, largeAnswer)+1))
	if err == nil && n > largeAnswer && n <= w.limit {
		if err = w.takeTurn(); err == nil {
			var more int64
			more, err = w.body.ReadFrom(io.LimitReader(body, w.limit+1-n))
			n += more
		}
	}
	switch {
	case err != nil:
		w.failed = fmt.Errorf("%w: %w", errAnswerBrokenOff, withheld(err))
	case n > w.limit:
		w.failed = errAnswerTooLarge
	default:
		w.whole, w.failed = true, nil
		return
	}
	w.whole = false
	w.body.Reset()
}

// Interface guards
var (
	_ caddy.Provisioner                                = (*Transport)(nil)
	_ caddy.CleanerUpper                               = (*Transport)(nil)
	_ http.RoundTripper                                = (*Transport)(nil)
	_ reverseproxy.TLSTransport                        = (*Transport)(nil)
	_ reverseproxy.H2CTransport                        = (*Transport)(nil)
	_ reverseproxy.RequestHeaderOpsTransport           = (*Transport)(nil)
	_ reverseproxy.ProxyProtocolTransport              = (*Transport)(nil)
	_ reverseproxy.HealthCheckSchemeOverriderTransport = (*Transport)(nil)
)
