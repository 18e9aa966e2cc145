package caddymodule

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// Defaults of an upstream with several addresses, unless the operator says otherwise: a GET that fails at one goes
// to the next, and an address that failed is left alone for a while.
const (
	defaultRetries      = 2
	defaultTryDuration  = 5 * time.Second
	defaultFailDuration = 10 * time.Second

	// defaultIdleConns is how many idle connections are kept to each address. All traffic of a gateway goes to a few
	// addresses; with Caddy's own 32, more than 32 requests at a time open and close connections all the while.
	defaultIdleConns = 256
)

// parseAPI reads the directive. Syntax:
//
//	gatehouse_api [<matcher>] {
//	    upstream [<resources...>] <addresses...> {
//	        <options of reverse_proxy>
//	    }
//	    base_path           <path>
//	    docs                <url>
//	    max_body            <size>
//	    body_timeout        <duration>
//	    timeout             <duration>
//	    max_response_size          <size>
//	    pass_unknown_fields <resources...>
//	    allow_missing_tenant
//	    deprecated <resource> <since> [<sunset>] [<link>]
//	}
//
// "upstream" and "deprecated" can be given several times. An upstream without resources serves those that no other
// upstream names.
func parseAPI(h httpcaddyfile.Helper) ([]httpcaddyfile.ConfigValue, error) {
	if !h.Next() {
		return nil, h.ArgErr()
	}
	matcher, err := h.ExtractMatcherSet()
	if err != nil {
		return nil, h.WrapErr(err) // it names no line
	}
	h.Next() // the matcher is gone: onto the directive's name again
	if args := h.RemainingArgs(); len(args) > 0 {
		return nil, h.Errf("gatehouse_api takes a block, and no argument but a matcher: %s", strings.Join(args, " "))
	}
	api := new(API)
	if err := parseAPIBlock(h, api); err != nil {
		return nil, err
	}
	raw, err := moduleJSON(api, apiName)
	if err != nil {
		return nil, h.WrapErr(err)
	}
	route := caddyhttp.Route{HandlersRaw: []json.RawMessage{raw}, Terminal: true}
	if len(matcher) > 0 {
		route.MatcherSetsRaw = []caddy.ModuleMap{matcher}
	}
	errorRoute, err := errorsRoute(api.Docs)
	if err != nil {
		return nil, h.WrapErr(err)
	}
	return []httpcaddyfile.ConfigValue{
		{Class: "route", Value: route},
		// what Caddy refuses before any route is reached is to have the contract's shape as well
		{Class: "error_route", Value: errorRoute},
	}, nil
}

func parseAPIBlock(h httpcaddyfile.Helper, api *API) error {
	order := []string{
		"upstream", "base_path", "docs", "max_body", "body_timeout", "timeout", "max_response_size",
		"pass_unknown_fields", "allow_missing_tenant", "deprecated",
	}
	options := map[string]option{
		"base_path":            stringOption("base_path", &api.BasePath),
		"docs":                 stringOption("docs", &api.Docs),
		"max_body":             sizeOption("max_body", &api.MaxBody),
		"body_timeout":         durationOption("body_timeout", &api.BodyTimeout),
		"timeout":              durationOption("timeout", &api.Timeout),
		"max_response_size":    sizeOption("max_response_size", &api.MaxResponseSize),
		"pass_unknown_fields":  pathsOption("pass_unknown_fields", &api.PassUnknownFields),
		"allow_missing_tenant": flagOption("allow_missing_tenant", &api.AllowMissingTenant),
	}
	seen := map[string]bool{}
	for nesting := h.Nesting(); h.NextBlock(nesting); {
		name := h.Val()
		switch {
		case name == "upstream":
			if err := parseAPIUpstream(h, api); err != nil {
				return err
			}
		case name == "deprecated":
			if err := parseDeprecated(h.Dispenser, api); err != nil {
				return err
			}
		case options[name] == nil:
			return h.Errf("unknown option %q of gatehouse_api: must be one of %s", name, strings.Join(order, ", "))
		case seen[name]:
			return h.Errf("option %q of gatehouse_api is given twice", name)
		default:
			if err := options[name](h.Dispenser); err != nil {
				return err
			}
			seen[name] = true
		}
	}
	if err := api.Validate(); err != nil {
		return h.WrapErr(err)
	}
	return nil
}

// parseAPIUpstream reads one upstream: what follows the resources is Caddy's own reverse_proxy.
func parseAPIUpstream(h httpcaddyfile.Helper, api *API) error {
	segment := h.NextSegment()
	tokens := caddyfile.Segment{segment[0]}
	var names []string
	addresses := false
	line := segment[0].Line
	for i, t := range segment[1:] {
		switch {
		case t.Line != line || t.Text == "{":
			tokens = append(tokens, segment[1+i:]...)
		case !addresses && isResource(t.Text):
			if !isProxied(t.Text) {
				return h.Errf("upstream: the gateway itself responds to %q: must be one of %s", t.Text, proxiedNames())
			}
			names = append(names, t.Text)
			continue
		default:
			addresses = true
			if !strings.ContainsAny(t.Text, ":./{[") && !strings.EqualFold(t.Text, "localhost") {
				return h.Errf("upstream: %q is neither a resource (%s) nor an address such as http://data.internal:8080",
					t.Text, proxiedNames())
			}
			tokens = append(tokens, t)
			continue
		}
		break
	}
	raw, err := parseProxy(h, tokens)
	if err != nil {
		return err
	}
	api.Upstreams = append(api.Upstreams, &APIUpstream{Resources: names, HandlerRaw: raw})
	if _, err := api.served(); err != nil {
		return h.WrapErr(err) // which names the line
	}
	return nil
}

// parseProxy reads an upstream as reverse_proxy does, and gives the handler.
func parseProxy(h httpcaddyfile.Helper, tokens caddyfile.Segment) (json.RawMessage, error) {
	d := caddyfile.NewDispenser(tokens)
	proxy := new(reverseproxy.Handler)
	if err := proxy.UnmarshalCaddyfile(d); err != nil {
		return nil, err
	}
	if err := proxy.FinalizeUnmarshalCaddyfile(h.WithDispenser(d)); err != nil {
		return nil, err
	}
	if len(proxy.Upstreams) == 0 && proxy.DynamicUpstreamsRaw == nil {
		return nil, h.Err("upstream needs at least one address, such as http://data.internal:8080")
	}
	if err := checkProxy(proxy); err != nil {
		return nil, h.Errf("upstream: %v", err)
	}
	defaults(proxy)
	if err := setIdleConns(proxy); err != nil {
		return nil, h.WrapErr(err)
	}
	raw, err := moduleJSON(proxy, "reverse_proxy")
	if err != nil {
		return nil, h.WrapErr(err)
	}
	return raw, nil
}

// defaults makes several addresses stand in for each other, where the operator has not said how.
func defaults(proxy *reverseproxy.Handler) {
	if len(proxy.Upstreams) < 2 {
		return
	}
	if proxy.LoadBalancing == nil {
		proxy.LoadBalancing = new(reverseproxy.LoadBalancing)
	}
	if lb := proxy.LoadBalancing; lb.Retries == 0 && lb.TryDuration == 0 {
		lb.Retries = defaultRetries
		lb.TryDuration = caddy.Duration(defaultTryDuration)
	}
	if proxy.HealthChecks == nil {
		proxy.HealthChecks = new(reverseproxy.HealthChecks)
	}
	if proxy.HealthChecks.Passive == nil {
		proxy.HealthChecks.Passive = &reverseproxy.PassiveHealthChecks{FailDuration: caddy.Duration(defaultFailDuration)}
	}
}

// setIdleConns has the transport keep enough idle connections, where the operator has not said how many.
func setIdleConns(proxy *reverseproxy.Handler) error {
	transport := new(reverseproxy.HTTPTransport)
	if proxy.TransportRaw != nil {
		if err := json.Unmarshal(proxy.TransportRaw, transport); err != nil {
			return fmt.Errorf("reading the transport: %w", err)
		}
	}
	if transport.KeepAlive == nil {
		transport.KeepAlive = new(reverseproxy.KeepAlive)
	}
	if transport.KeepAlive.MaxIdleConnsPerHost == 0 {
		transport.KeepAlive.MaxIdleConnsPerHost = defaultIdleConns
	}
	proxy.TransportRaw = caddyconfig.JSONModuleObject(transport, "protocol", "http", nil)
	return nil
}

// checkProxy reports an option of reverse_proxy that an upstream cannot have: because the response is read whole and
// checked before any of it leaves, because the gateway sets the header itself, or because a request that may have
// reached a data service is repeated only if it is a GET.
func checkProxy(proxy *reverseproxy.Handler) error {
	var (
		lb        reverseproxy.LoadBalancing
		transport struct {
			Protocol      string          `json:"protocol"`
			ProxyProtocol json.RawMessage `json:"proxy_protocol"`
		}
		policy struct {
			Fallback struct {
				Policy string `json:"policy"`
			} `json:"fallback"`
		}
	)
	if proxy.LoadBalancing != nil {
		lb = *proxy.LoadBalancing
	}
	if proxy.TransportRaw != nil {
		if err := json.Unmarshal(proxy.TransportRaw, &transport); err != nil {
			return fmt.Errorf("reading the transport: %w", err)
		}
	}
	if lb.SelectionPolicyRaw != nil {
		if err := json.Unmarshal(lb.SelectionPolicyRaw, &policy); err != nil {
			return fmt.Errorf("reading lb_policy: %w", err)
		}
	}
	fallback := policy.Fallback.Policy
	for _, o := range []struct {
		name  string
		given bool
	}{
		{"circuit_breaker", proxy.CBRaw != nil},
		{"flush_interval", proxy.FlushInterval != 0},
		{"request_buffers", proxy.RequestBuffers != 0},
		{"response_buffers", proxy.ResponseBuffers != 0},
		{"stream_timeout", proxy.StreamTimeout != 0},
		{"stream_close_delay", proxy.StreamCloseDelay != 0},
		{"stream_buffer_size", proxy.StreamBufferSize != 0},
		{"trusted_proxies", len(proxy.TrustedProxies) > 0},
		{"proxy_status_name", proxy.ProxyStatusName != ""},
		{"verbose_logs", proxy.VerboseLogs},
		{"method or rewrite", proxy.Rewrite != nil},
		{"handle_response or replace_status", len(proxy.HandleResponse) > 0},
		{"header_down", proxy.Headers != nil && proxy.Headers.Response != nil},
		{"lb_retry_match", len(lb.RetryMatchRaw) > 0 || len(lb.RetryMatch) > 0},
		{"the fallback " + fallback + " of lb_policy", fallback == "least_conn" || fallback == "random_choose" || fallback == "weighted_round_robin"},
		{"transport " + transport.Protocol, transport.Protocol != "" && transport.Protocol != "http"},
		{"proxy_protocol", transport.ProxyProtocol != nil},
	} {
		if o.given {
			return fmt.Errorf("%s is not supported: %w", o.name, errUpstreamOption)
		}
	}
	if name := protectedHeaderOp(proxy); name != "" {
		return fmt.Errorf("header_up %s is not allowed: the gateway sets it for every request", name)
	}
	return nil
}

// errUpstreamOption says which options there are.
var errUpstreamOption = errors.New("an upstream has reverse_proxy's options for addresses, lb_policy and retries, " +
	"health checks, header_up and transport http")

// protectedHeaderOp names a header of the gateway's own that the proxy was told to change, if there is one.
func protectedHeaderOp(proxy *reverseproxy.Handler) string {
	if proxy.Headers == nil || proxy.Headers.Request == nil {
		return ""
	}
	ops := proxy.Headers.Request
	touched := append([]string(nil), ops.Delete...)
	for name := range ops.Set {
		touched = append(touched, name)
	}
	for name := range ops.Add {
		touched = append(touched, name)
	}
	for name := range ops.Replace {
		touched = append(touched, name)
	}
	for _, name := range touched {
		if isGatewayHeader(name) || strings.Contains(name, "*") {
			return name
		}
	}
	return ""
}

// isGatewayHeader says if a data service takes a header as the gateway's word.
func isGatewayHeader(name string) bool {
	switch http.CanonicalHeaderKey(name) {
	case upstream.HeaderBusinessID, upstream.HeaderRequestID, upstream.HeaderAssertion,
		data.HeaderAccountID, data.HeaderIdempotencyKey, data.HeaderIfMatch:
		return true
	default:
		return false
	}
}

func parseDeprecated(d *caddyfile.Dispenser, api *API) error {
	args := d.RemainingArgs()
	if len(args) < 2 || len(args) > 4 {
		return d.Err("deprecated takes a resource, the date since when, and, if known, the date of its end and a link")
	}
	name := args[0]
	if _, twice := api.Deprecated[name]; twice {
		return d.Errf("deprecated: %q is given twice", name)
	}
	since, err := timeArg(d, "deprecated", args[1])
	if err != nil {
		return err
	}
	dep := Deprecation{Since: since}
	for i, arg := range args[2:] {
		if strings.Contains(arg, "://") {
			if i+3 != len(args) {
				return d.Err("deprecated: the link comes last")
			}
			dep.Link = arg
			continue
		}
		if i != 0 {
			return d.Errf("deprecated: invalid link %q: must be a URL such as https://docs.example.com/events", arg)
		}
		if dep.Sunset, err = timeArg(d, "deprecated", arg); err != nil {
			return err
		}
	}
	if api.Deprecated == nil {
		api.Deprecated = map[string]Deprecation{}
	}
	api.Deprecated[name] = dep
	return nil
}
