package caddymodule

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// call is what the handlers know of one API request. The edge makes it, the others fill it in, and only the
// goroutine that serves the request touches it. It travels in the request's context under a key of this package,
// so that neither a header nor a placeholder can read or forge it.
type call struct {
	id    string
	start time.Time

	// target is the request target as it came over the wire, from /api/v1 on: what was signed.
	target string
	// counted says that the target lies under /api/v1, and so the request is charged to somebody's budget.
	counted bool
	// resource is what the target names, or nil if the table has no such path.
	resource *upstream.Resource
	rawQuery string

	addr netip.Addr
	// credential is set if and only if the request's signature verified.
	credential *authsigner.Credential
	// verdict is what kept the request from being verified, or from being served to a verified caller.
	verdict error
	limit   ratelimit.Result
	// identified says that gateway_caller has run: nothing that needs a caller is served without it.
	identified bool

	verifyTime, limitTime, upstreamTime time.Duration
}

type callKey struct{}

var errNoCall = errors.New("the request did not come through gateway_edge: use the gateway_api directive, " +
	"or put the handler first in the route")

// callOf returns the call that the edge put into ctx.
func callOf(ctx context.Context) (*call, error) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return nil, errNoCall
	}
	return c, nil
}

// wireTarget returns the request target as the client sent it, whatever rewrite handlers did to the request since.
func wireTarget(r *http.Request) string {
	if orig, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request); ok {
		return orig.RequestURI
	}
	return r.RequestURI
}

// clientAddr is the caller's address as Caddy determined it: the peer's, or what a trusted proxy says.
// The zero Addr stands for a peer without an IP (a Unix socket that is not trusted).
func clientAddr(ctx context.Context) netip.Addr {
	s, _ := caddyhttp.GetVar(ctx, caddyhttp.ClientIPVarKey).(string)
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr()
	}
	a, _ := netip.ParseAddr(s)
	return a
}
