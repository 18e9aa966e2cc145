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

// Defaults of upstreams.
const (
	// With several addresses, a failed GET is retried at another one, and a failed address is avoided for a while.
	defaultRetries      = 2
	defaultTryDuration  = 5 * time.Second
	defaultFailDuration = 10 * time.Second

	// defaultIdleConns is the number of idle connections to keep for each address. Caddy's default is 32; above 32
	// concurrent requests, connections would be opened and closed all the time.
	defaultIdleConns = 256
)

// parseAPI parses the directive. Syntax:
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
//	    max_response_size   <size>
//	    pass_unknown_fields <resources...>
//	    allow_missing_tenant
//	    deprecated <resource> <since> [<sunset>] [<link>]
//	}
//
// "upstream" and "deprecated" may be repeated. An upstream without resources serves all resources that no other upstream
// names.
func parseAPI(h httpcaddyfile.Helper) ([]httpcaddyfile.ConfigValue, error) {
	if !h.Next() {
		return nil, h.ArgErr()
	}
	matcher, err := h.ExtractMatcherSet()
	if err != nil {
		return nil, h.WrapErr(err) // adds file and line
	}
	h.Next() // ExtractMatcherSet has reset the dispenser: consume the directive name again
	if args := h.RemainingArgs(); len(args) > 0 {
		return nil, h.Errf("gatehouse_api takes no arguments except a matcher, got: %s", strings.Join(args, " "))
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
		// errors that Caddy raises before any route must have the contract's format too
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
			return h.Errf("duplicate option %q of gatehouse_api", name)
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

// parseAPIUpstream parses one upstream. After the resources, the syntax is that of reverse_proxy.
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
				return h.Errf("upstream: resource %q is served by the gateway itself: must be one of %s", t.Text, proxiedNames())
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
		return h.WrapErr(err)
	}
	return nil
}

// parseProxy parses the tokens of an upstream as a reverse_proxy handler and returns its JSON.
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
	setRetryDefaults(proxy)
	if err := setIdleConns(proxy); err != nil {
		return nil, h.WrapErr(err)
	}
	raw, err := moduleJSON(proxy, "reverse_proxy")
	if err != nil {
		return nil, h.WrapErr(err)
	}
	return raw, nil
}

// setRetryDefaults enables retries and passive health checks for an upstream with several addresses, unless configured.
func setRetryDefaults(proxy *reverseproxy.Handler) {
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

// setIdleConns sets the transport's number of idle connections, unless configured.
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

// checkProxy returns an error if an option of reverse_proxy is not supported: because responses are buffered and checked
// before they are sent, because the gateway sets the header itself, or because a request that may have reached a data
// service is retried only if it is a GET.
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
		return fmt.Errorf("header_up %s is not allowed: only the gateway may set its identity headers", name)
	}
	return nil
}

var errUpstreamOption = errors.New("must be one of reverse_proxy's options for addresses, lb_policy, retries, " +
	"health checks, header_up or transport http")

// protectedHeaderOp returns the name of a header that header_up changes and only the gateway may set, or "".
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

// isGatewayHeader reports whether data services trust a header as set by the gateway.
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
		return d.Err("deprecated takes a resource and a date, optionally followed by a sunset date and a link")
	}
	name := args[0]
	if _, twice := api.Deprecated[name]; twice {
		return d.Errf("deprecated: duplicate resource %q", name)
	}
	since, err := timeArg(d, "deprecated", args[1])
	if err != nil {
		return err
	}
	dep := Deprecation{Since: since}
	for i, arg := range args[2:] {
		if strings.Contains(arg, "://") {
			if i+3 != len(args) {
				return d.Err("deprecated: the link must be the last argument")
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
