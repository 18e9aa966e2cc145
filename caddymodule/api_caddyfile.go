package caddymodule

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/upstream"
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
	if err := onlyMatcher(h.Dispenser); err != nil {
		return nil, err
	}
	api := new(API)
	err = parseBlock(h.Dispenser, apiName,
		option{name: "upstream", repeatable: true, parse: func(*caddyfile.Dispenser) error { return api.parseUpstream(h) }},
		text("base_path", &api.BasePath),
		text("docs", &api.Docs),
		size("max_body", &api.MaxBody),
		duration("body_timeout", &api.BodyTimeout),
		duration("timeout", &api.Timeout),
		size("max_response_size", &api.MaxResponseSize),
		texts("pass_unknown_fields", &api.PassUnknownFields),
		flag("allow_missing_tenant", &api.AllowMissingTenant),
		option{name: "deprecated", repeatable: true, parse: api.parseDeprecated},
	)
	if err != nil {
		return nil, err
	}
	if err := api.Validate(); err != nil {
		h.Reset()
		h.Next() // the error is about the directive, not about the end of its block
		return nil, h.WrapErr(err)
	}
	route := caddyhttp.Route{HandlersRaw: []json.RawMessage{moduleJSON(api, apiName)}, Terminal: true}
	if len(matcher) > 0 {
		route.MatcherSetsRaw = []caddy.ModuleMap{matcher}
	}
	// Errors that Caddy raises before any route must have the contract's format too.
	errorRoute := caddyhttp.Route{HandlersRaw: []json.RawMessage{moduleJSON(&Errors{Docs: api.Docs}, errorsName)}}
	return []httpcaddyfile.ConfigValue{
		{Class: "route", Value: route},
		{Class: "error_route", Value: &caddyhttp.Subroute{Routes: caddyhttp.RouteList{errorRoute}}},
	}, nil
}

// moduleJSON encodes a handler module.
func moduleJSON(handler any, name string) json.RawMessage {
	return caddyconfig.JSONModuleObject(handler, "handler", name, nil)
}

// parseUpstream parses one upstream. After the resources, the syntax is that of reverse_proxy.
func (h *API) parseUpstream(helper httpcaddyfile.Helper) error {
	segment := helper.NextSegment()
	end := 1 // of the arguments
	for end < len(segment) && segment[end].Line == segment[0].Line && segment[end].Text != "{" {
		end++
	}
	u := new(APIUpstream)
	addresses := segment[1:end]
	proxied := strings.Join(ProxiedNames(), ", ")
	for ; len(addresses) > 0; addresses = addresses[1:] {
		res := upstream.ByName(addresses[0].Text)
		if res == nil {
			break
		}
		if res.ByGateway {
			return helper.Errf("upstream: resource %q is served by the gateway itself: must be one of %s", res.Name, proxied)
		}
		u.Resources = append(u.Resources, res.Name)
	}
	for _, t := range addresses {
		if !strings.ContainsAny(t.Text, ":./{[") && !strings.EqualFold(t.Text, "localhost") {
			return helper.Errf("upstream: %q is neither a resource (%s) nor an address such as http://data.internal:8080", t.Text, proxied)
		}
	}
	var err error
	if u.HandlerRaw, err = parseProxy(helper, slices.Concat(segment[:1], addresses, segment[end:])); err != nil {
		return err
	}
	h.Upstreams = append(h.Upstreams, u)
	if _, err := h.served(); err != nil {
		return helper.WrapErr(err)
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
	return moduleJSON(proxy, "reverse_proxy"), nil
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
		return fmt.Errorf("header_up %s is not allowed: only the gateway may set identity headers, and signatures are not forwarded", name)
	}
	return checkAddresses(proxy)
}

// checkAddresses rejects addresses that are taken from the request: its caller could choose who gets the request and its assertion.
func checkAddresses(proxy *reverseproxy.Handler) error {
	addresses := []string{string(proxy.DynamicUpstreamsRaw)}
	for _, u := range proxy.Upstreams {
		addresses = append(addresses, u.Dial)
	}
	if proxy.DynamicUpstreams != nil { // the configuration has been loaded
		loaded, err := json.Marshal(proxy.DynamicUpstreams)
		if err != nil {
			return fmt.Errorf("reading dynamic upstreams: %w", err)
		}
		addresses = append(addresses, string(loaded))
	}
	for _, a := range addresses {
		if strings.Contains(a, "{http.request.") {
			return fmt.Errorf("invalid address %s: must not contain placeholders of the request", a)
		}
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
	gatewayOnly := []string{
		upstream.HeaderBusinessID, upstream.HeaderRequestID, upstream.HeaderAssertion,
		authsigner.HeaderPublicKey, authsigner.HeaderTimestamp, authsigner.HeaderSignature,
		data.HeaderAccountID, data.HeaderIdempotencyKey, data.HeaderIfMatch,
	}
	ops := proxy.Headers.Request
	touched := slices.Concat(ops.Delete, slices.Collect(maps.Keys(ops.Set)), slices.Collect(maps.Keys(ops.Add)),
		slices.Collect(maps.Keys(ops.Replace)))
	for _, name := range touched {
		if slices.Contains(gatewayOnly, http.CanonicalHeaderKey(name)) || strings.Contains(name, "*") {
			return name
		}
	}
	return ""
}

func (h *API) parseDeprecated(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) < 2 || len(args) > 4 {
		return d.Err("deprecated takes a resource and a date, optionally followed by a sunset date and a link")
	}
	name := args[0]
	if _, twice := h.Deprecated[name]; twice {
		return d.Errf("deprecated: duplicate resource %q", name)
	}
	since, err := dateArg(d, args[1])
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
		if dep.Sunset, err = dateArg(d, arg); err != nil {
			return err
		}
	}
	if h.Deprecated == nil {
		h.Deprecated = map[string]Deprecation{}
	}
	h.Deprecated[name] = dep
	return nil
}

func dateArg(d *caddyfile.Dispenser, v string) (time.Time, error) {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, v); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, d.Errf("deprecated: invalid date %q: must be a date such as 2027-01-31 or a time such as 2027-01-31T12:00:00Z", v)
}
