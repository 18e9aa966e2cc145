package caddymodule

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/gatehouse-gateway/gatehouse/caddymodule/internal/dataservice"
)

// parseAPI parses the directive. Syntax:
//
//	gatehouse_api [<matcher>] {
//	    definition [[<name>] <file>] { ... }
//	    upstream [<resources...>] <addresses...> {
//	        <options of reverse_proxy>
//	    }
//	    base_path           <path>
//	    docs                <url>
//	    docs_path           <path> [<base URL>]
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
	if api.Definition, err = parseDefinitionFirst(h, apiName); err != nil {
		return nil, err
	}
	if api.api, err = apiOf(api.Definition); err != nil {
		return nil, h.WrapErr(err)
	}
	h.RemainingArgs()
	err = parseBlock(h.Dispenser, apiName,
		option{name: "definition", parse: skip},
		option{name: "upstream", repeatable: true, parse: func(*caddyfile.Dispenser) error { return api.parseUpstream(h) }},
		text("base_path", &api.BasePath),
		text("docs", &api.Docs),
		option{name: "docs_path", parse: api.parseDocsPath},
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
		if api.DocsPath != "" { // the matcher may be for the API's paths
			docs := maps.Clone(matcher)
			delete(docs, "path_regexp")
			docs["path"] = caddyconfig.JSON([]string{api.DocsPath, api.DocsPath + "/" + documentName}, nil)
			route.MatcherSetsRaw = append(route.MatcherSetsRaw, docs)
		}
	}
	// Errors that Caddy raises before any route must have the contract's format too.
	errorRoute := caddyhttp.Route{HandlersRaw: []json.RawMessage{moduleJSON(&Errors{Docs: api.Docs}, errorsName)}}
	return []httpcaddyfile.ConfigValue{
		{Class: "route", Value: route},
		{Class: "error_route", Value: &caddyhttp.Subroute{Routes: caddyhttp.RouteList{errorRoute}}},
	}, nil
}

// parseDefinitionFirst parses the definition, wherever it stands in the block of a directive, because other options name what is in it. It
// returns nil if there is none.
func parseDefinitionFirst(helper httpcaddyfile.Helper, directive string) (found *Definition, err error) {
	for nesting := helper.Nesting(); helper.NextBlock(nesting); {
		if helper.Val() != "definition" {
			if err := skip(helper.Dispenser); err != nil {
				return nil, err
			}
			continue
		}
		if found != nil {
			return nil, helper.Errf("duplicate option %q of %s", "definition", directive)
		}
		if found, err = parseDefinition(helper.Dispenser); err != nil {
			return nil, err
		}
	}
	helper.Reset()
	helper.Next()
	return found, nil
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
	proxied := strings.Join(resourcesOf(h.api), ", ")
	for ; len(addresses) > 0; addresses = addresses[1:] {
		name := addresses[0].Text
		if !slices.Contains(resourcesOf(h.api), name) {
			if slices.Contains(h.api.Resources(false), name) {
				return helper.Errf("upstream: resource %q is served by the gateway itself: must be one of %s", name, proxied)
			}
			break
		}
		u.Resources = append(u.Resources, name)
	}
	for _, t := range addresses {
		if !strings.ContainsAny(t.Text, ":./{[") && !strings.EqualFold(t.Text, "localhost") {
			return helper.Errf("upstream: %q is neither a resource (%s) nor an address such as http://data.internal:8080", t.Text, proxied)
		}
	}
	var err error
	if u.HandlerRaw, err = dataservice.Parse(helper, slices.Concat(segment[:1], addresses, segment[end:])); err != nil {
		return err
	}
	h.Upstreams = append(h.Upstreams, u)
	if _, err := h.served(); err != nil {
		return helper.WrapErr(err)
	}
	return nil
}

func (h *API) parseDocsPath(d *caddyfile.Dispenser) error {
	if d.Args(&h.DocsPath); h.DocsPath == "" {
		return d.Err("docs_path takes a path, optionally followed by the URL of the gateway for callers")
	}
	if d.NextArg() {
		h.DocsBaseURL = d.Val()
	}
	if d.NextArg() {
		return d.Err("docs_path takes at most two arguments")
	}
	return nil
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
