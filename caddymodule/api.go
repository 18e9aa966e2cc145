package caddymodule

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"github.com/dustin/go-humanize"

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

// parseAPI reads the composite directive and expands it into the handlers in their only safe order. Syntax:
//
//	gateway_api [<matcher>] {
//	    upstream [<resources...>] <addresses...> {
//	        <options of reverse_proxy>
//	    }
//	    base_path           <path>
//	    docs                <url>
//	    max_body            <size>
//	    body_timeout        <duration>
//	    timeout             <duration>
//	    max_answer          <size>
//	    pass_unknown_fields <resources...>
//	    allow_unmarked
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
		return nil, h.Errf("gateway_api takes a block, and no argument but a matcher: %s", strings.Join(args, " "))
	}
	p := &apiParser{named: map[string]bool{}}
	if err := p.parse(h); err != nil {
		return nil, err
	}
	route, err := p.route(matcher)
	if err != nil {
		return nil, h.WrapErr(err)
	}
	errorRoute, err := errorsRoute(p.edge.Docs)
	if err != nil {
		return nil, h.WrapErr(err)
	}
	return []httpcaddyfile.ConfigValue{
		{Class: "route", Value: route},
		// what Caddy refuses before any route is reached is to have the contract's shape as well
		{Class: "error_route", Value: errorRoute},
	}, nil
}

// apiParser collects the options of a gateway_api block.
type apiParser struct {
	edge     Edge
	caller   Caller
	resource Resource

	routes   caddyhttp.RouteList
	fallback json.RawMessage
	named    map[string]bool
}

func (p *apiParser) parse(h httpcaddyfile.Helper) error {
	order := []string{
		"upstream", "base_path", "docs", "max_body", "body_timeout", "timeout", "max_answer",
		"pass_unknown_fields", "allow_unmarked", "deprecated",
	}
	options := map[string]option{
		"base_path":           stringOption("base_path", &p.edge.BasePath),
		"docs":                stringOption("docs", &p.edge.Docs),
		"max_body":            sizeOption("max_body", &p.caller.MaxBody),
		"body_timeout":        durationOption("body_timeout", &p.caller.BodyTimeout),
		"timeout":             durationOption("timeout", &p.resource.Timeout),
		"max_answer":          sizeOption("max_answer", &p.resource.MaxAnswer),
		"pass_unknown_fields": pathsOption("pass_unknown_fields", &p.resource.PassUnknownFields),
		"allow_unmarked":      flagOption("allow_unmarked", &p.resource.AllowUnmarked),
	}
	seen := map[string]bool{}
	for nesting := h.Nesting(); h.NextBlock(nesting); {
		name := h.Val()
		switch {
		case name == "upstream":
			if err := p.parseUpstream(h); err != nil {
				return err
			}
		case name == "deprecated":
			if err := p.parseDeprecated(h.Dispenser); err != nil {
				return err
			}
		case options[name] == nil:
			return h.Errf("unknown option %q of gateway_api: allowed are %s", name, strings.Join(order, ", "))
		case seen[name]:
			return h.Errf("option %q of gateway_api is given twice", name)
		default:
			if err := options[name](h.Dispenser); err != nil {
				return err
			}
			seen[name] = true
		}
	}
	if err := p.edge.Validate(); err != nil {
		return h.WrapErr(err)
	}
	if err := p.resource.Validate(); err != nil {
		return h.WrapErr(err)
	}
	if p.fallback == nil {
		for _, res := range upstream.Resources() {
			if !res.ByGateway && !p.named[res.Name] {
				return h.Errf("gateway_api: no upstream serves %q: add an upstream without a resource, which serves all that is left", res.Name)
			}
		}
	}
	return nil
}

// parseUpstream reads one upstream: what follows the resources is Caddy's own reverse_proxy.
func (p *apiParser) parseUpstream(h httpcaddyfile.Helper) error {
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
				return h.Errf("upstream: %q is answered by the gateway itself: allowed are %s", t.Text, proxiedNames())
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
	for _, name := range names {
		if p.named[name] {
			return h.Errf("upstream: two upstreams serve %q", name)
		}
		p.named[name] = true
	}
	if len(names) == 0 && p.fallback != nil {
		return h.Err("upstream: there are two upstreams without a resource")
	}

	raw, err := parseProxy(h, tokens)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		p.fallback = raw
		return nil
	}
	paths := make(caddyhttp.MatchPath, 0, len(names))
	for _, name := range names {
		paths = append(paths, apiPrefix+"/"+name)
	}
	matcher, err := json.Marshal(paths)
	if err != nil {
		return h.WrapErr(err)
	}
	p.routes = append(p.routes, caddyhttp.Route{
		MatcherSetsRaw: []caddy.ModuleMap{{"path": matcher}},
		HandlersRaw:    []json.RawMessage{raw},
		Terminal:       true,
	})
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
	if name := protectedHeaderOp(proxy); name != "" {
		return nil, h.Errf("upstream: header_up %s is not allowed: the gateway sets it for every request", name)
	}
	defaults(proxy)
	if err := setTransport(proxy); err != nil {
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

// setTransport puts ours in the place of Caddy's HTTP transport, with the same settings, and has it keep enough idle
// connections, where the operator has not said how many.
func setTransport(proxy *reverseproxy.Handler) error {
	const module = "http"
	transport := new(reverseproxy.HTTPTransport)
	if proxy.TransportRaw != nil {
		var name struct {
			Protocol string `json:"protocol"`
		}
		if err := json.Unmarshal(proxy.TransportRaw, &name); err != nil {
			return fmt.Errorf("reading the transport: %w", err)
		}
		if name.Protocol != module {
			return nil
		}
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
	proxy.TransportRaw = caddyconfig.JSONModuleObject(&Transport{HTTPTransport: transport}, "protocol", transportName, nil)
	return nil
}

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

func (p *apiParser) parseDeprecated(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) < 2 || len(args) > 4 {
		return d.Err("deprecated takes a resource, the date since when, and, if known, the date of its end and a link")
	}
	name := args[0]
	if _, twice := p.resource.Deprecated[name]; twice {
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
			return d.Errf("deprecated: %q is no link such as https://docs.example.com/events", arg)
		}
		if dep.Sunset, err = timeArg(d, "deprecated", arg); err != nil {
			return err
		}
	}
	if p.resource.Deprecated == nil {
		p.resource.Deprecated = map[string]Deprecation{}
	}
	p.resource.Deprecated[name] = dep
	return nil
}

// route is the whole chain as one terminal route.
func (p *apiParser) route(matcher caddy.ModuleMap) (caddyhttp.Route, error) {
	route := caddyhttp.Route{Terminal: true}
	if len(matcher) > 0 {
		route.MatcherSetsRaw = []caddy.ModuleMap{matcher}
	}
	for _, h := range []struct {
		name    string
		handler any
	}{
		{"gateway_edge", &p.edge}, {"gateway_caller", &p.caller}, {"gateway_resource", &p.resource},
	} {
		raw, err := moduleJSON(h.handler, h.name)
		if err != nil {
			return route, err
		}
		route.HandlersRaw = append(route.HandlersRaw, raw)
	}
	last := p.fallback
	if len(p.routes) > 0 {
		routes := p.routes
		if p.fallback != nil {
			routes = append(routes, caddyhttp.Route{HandlersRaw: []json.RawMessage{p.fallback}})
		}
		raw, err := moduleJSON(&caddyhttp.Subroute{Routes: routes}, "subroute")
		if err != nil {
			return route, err
		}
		last = raw
	}
	route.HandlersRaw = append(route.HandlersRaw, last)
	return route, nil
}

func sizeOption(what string, dst *int64) option {
	return func(d *caddyfile.Dispenser) error {
		v, err := oneArg(d, what)
		if err != nil {
			return err
		}
		n, err := humanize.ParseBytes(v)
		if err != nil || n == 0 || n > 1<<40 {
			return d.Errf("%s: %q is no size above zero such as 64KiB or 8MiB", what, v)
		}
		*dst, err = strconv.ParseInt(strconv.FormatUint(n, 10), 10, 64)
		return err
	}
}
