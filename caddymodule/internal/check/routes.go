package check

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/rewrite"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/caddymodule/internal/configfile"
	"github.com/gatehouse-gateway/gatehouse/connect"
	"github.com/gatehouse-gateway/gatehouse/connect/pages"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// sampleRequests returns requests that a handler must serve, or nil if it is not a Gatehouse handler with certain paths.
func (d Defaults) sampleRequests(handler any) (samples []string) {
	text := func(name string) string { s, _ := configfile.Member(handler, name).(string); return s }
	switch text("handler") {
	case apiName:
		for _, res := range upstream.Resources() {
			samples = append(samples, "GET "+text("base_path")+res.Path)
		}
	case healthName:
		samples = []string{"GET /healthz", "GET /readyz"}
	case jwksName:
		if samples = []string{"GET " + text("path")}; text("path") == "" {
			samples = []string{"GET " + d.JWKSPath}
		}
	case connectName:
		samples = []string{
			"POST " + connect.MCPPath, "GET /.well-known/oauth-protected-resource" + connect.MCPPath, "GET /.well-known/oauth-protected-resource",
			"GET /.well-known/oauth-authorization-server", "GET /.well-known/openid-configuration", "POST /oauth/register", "GET /oauth/authorize", "POST /oauth/token",
			"POST /oauth/revoke", "POST " + pages.ApprovePath, "GET " + pages.SignInPath, "POST " + pages.SignOutPath,
			"GET " + pages.SettingsPath, "GET " + pages.ConnectionsPath, "GET " + pages.ActivityPath, "GET " + pages.AssetsPrefix + "x",
		}
		if manage, _ := configfile.Member(handler, "manage_keys").(bool); manage {
			samples = append(samples, "GET "+pages.KeysPath)
		}
	}
	return samples
}

// blocker is a handler or matcher that prevents a request from reaching a Gatehouse handler, or breaks it on the way.
type blocker struct {
	rule     string
	key      string // the pointer of what it is
	pointer  string // of what the finding is about
	what     string
	samples  []string
	handlers []string
}

// checkRoutes sends sample requests for each Gatehouse handler through the routes.
func (c *checker) checkRoutes(parent context.Context) {
	ctx, cancel := caddy.NewContext(caddy.Context{Context: parent})
	defer cancel()
	var found []*blocker
	for _, h := range c.placed {
		if h.IsError {
			continue
		}
		var missed []*blocker
		samples := c.defaults.sampleRequests(h.Value)
		for _, sample := range samples {
			if o := c.send(ctx, h, sample); o != nil { //nolint:contextcheck // it is derived from parent
				missed = append(missed, o)
			}
		}
		if h.Name == healthName && len(missed) < len(samples) {
			continue // one of the checks may be private
		}
		for _, o := range missed {
			i := slices.IndexFunc(found, func(other *blocker) bool { return other.rule == o.rule && other.key == o.key })
			if i < 0 {
				i, found = len(found), append(found, o)
			}
			for list, value := range map[*[]string]string{&found[i].samples: o.samples[0], &found[i].handlers: h.Name} {
				if !slices.Contains(*list, value) {
					*list = append(*list, value)
				}
			}
		}
	}
	for _, o := range found {
		samples, handlers := andMore(o.samples), strings.Join(o.handlers, " and ")
		switch o.rule {
		case "GH003":
			c.report(o.rule, o.pointer, "the matcher %s excludes %s, which %s must serve", o.what, samples, handlers)
		case "GH004":
			c.report(o.rule, o.pointer, "%s takes %s, which %s must serve", o.what, samples, handlers)
		default:
			c.report(o.rule, o.pointer, "%s: this affects %s", o.what, samples)
		}
	}
}

// send returns what keeps a request from the handler at each host of its site, or what breaks it on the way, or nil.
func (c *checker) send(ctx caddy.Context, h configfile.Handler, sample string) (missed *blocker) {
	hosts := configfile.HostsOf(h.Site)
	for _, host := range h.Hosts { // a site *.example.com may have routes for some of its hosts
		if slices.ContainsFunc(hosts, func(site string) bool { return hostMatches(site, host) }) {
			hosts = append(slices.Clip(hosts), host)
		}
	}
	if hosts == nil {
		hosts = []string{"gatehouse.invalid"}
	}
	method, path, _ := strings.Cut(sample, " ")
	for _, host := range hosts {
		if strings.Contains(host, "{") {
			return nil
		}
		r, err := http.NewRequestWithContext(ctx, method, "http://"+strings.ReplaceAll(host, "*", "gatehouse")+path, http.NoBody)
		if err != nil {
			return nil // not a host that a request can name
		}
		r.RequestURI = path
		repl := caddy.NewReplacer()
		for _, name := range sentHeaders(h.Name) {
			r.Header.Set(name, "sent")
		}
		w := &walk{checker: c, ctx: ctx, repl: repl, handler: h, sample: sample}
		w.r = caddyhttp.PrepareRequest(r, repl, nil, new(caddyhttp.Server))
		w.routes("/apps/http/servers/"+h.Server+"/routes", w.server("routes"))
		if w.reached {
			return w.broken
		}
		if w.missed == nil {
			return nil
		}
		if missed == nil {
			missed = w.missed
		}
	}
	return missed
}

// walk is the way of a request through the routes of a server. What cannot be evaluated here, such as an address of a client, is
// assumed to lead to the handler.
type walk struct {
	*checker

	ctx     caddy.Context
	repl    *caddy.Replacer
	r       *http.Request
	handler configfile.Handler
	sample  string
	reached bool
	missed  *blocker // the first
	broken  *blocker // the first
}

func (w *walk) miss(rule, key, pointer, what string) {
	if w.missed == nil {
		w.missed = &blocker{rule: rule, key: key, pointer: pointer, what: what, samples: []string{w.sample}}
	}
}

// sentHeaders returns the headers that callers of a handler authenticate with.
func sentHeaders(handler string) []string {
	switch handler {
	case apiName:
		return []string{authsigner.HeaderPublicKey, authsigner.HeaderTimestamp, authsigner.HeaderSignature}
	case connectName:
		return []string{"Authorization"}
	}
	return nil
}

// inspect looks for changes to a request or response that the handler does not work with.
func (w *walk) inspect(pointer, name string, step any) {
	names := sentHeaders(w.handler.Name)
	breaks := func(what string, args ...any) {
		if w.broken == nil && names != nil {
			w.broken = &blocker{rule: "GH022", key: pointer, pointer: pointer, what: fmt.Sprintf(what, args...), samples: []string{w.sample}}
		}
	}
	switch name {
	case "templates":
		breaks("templates evaluates responses, which contain names that clients choose")
	case "authentication":
		breaks("basic_auth asks for a password, but callers send signatures or tokens")
	case "headers":
		if m, ok := w.load("http.handlers.headers", step).(*headers.Handler); ok && m.Request != nil {
			m.Request.ApplyToRequest(w.r)
		}
		for _, header := range names {
			if values := w.r.Header[header]; len(values) != 1 || values[0] != "sent" {
				breaks("request_header changes %s, with which callers authenticate", header)
			}
		}
	case "rewrite":
		method, path := w.r.Method, w.r.URL.Path
		if m, ok := w.load("http.handlers.rewrite", step).(*rewrite.Rewrite); ok {
			m.Rewrite(w.r, w.repl)
		}
		if w.r.Method != method {
			breaks("the method becomes %s", w.r.Method)
		} else if w.r.URL.Path != path && w.handler.Name == connectName {
			breaks("the path becomes %s, and gatehouse_connect serves only paths as clients send them", w.r.URL.Path)
		}
	}
}

// routes reports whether the request ends in a list of routes.
func (w *walk) routes(pointer string, list any) bool {
	routes, _ := list.([]any)
	groups := map[string]int{} // the index of the route that the request took
	for i, route := range routes {
		at := fmt.Sprintf("%s/%d", pointer, i)
		leads := strings.HasPrefix(w.handler.Pointer, at+"/")
		group, _ := configfile.Member(route, "group").(string)
		if other, taken := groups[group]; group != "" && taken {
			if leads {
				at := fmt.Sprintf("%s/%d", pointer, other)
				w.miss("GH004", at, at, "the route with the matcher "+describeMatchers(configfile.Member(routes[other], "match")))
			}
			continue
		}
		sets := configfile.Member(route, "match")
		switch w.matches(sets) {
		case no:
			if leads {
				w.miss("GH003", at, w.handler.Pointer, describeMatchers(sets))
			}
			continue
		case unknown:
			if !leads {
				continue
			}
		}
		groups[group] = i
		steps, _ := configfile.Member(route, "handle").([]any)
		for j, step := range steps {
			if w.handle(fmt.Sprintf("%s/handle/%d", at, j), step) {
				return true
			}
		}
		if terminal, _ := configfile.Member(route, "terminal").(bool); terminal {
			w.miss("GH004", at, at, "the route with the matcher "+describeMatchers(sets))
			return true
		}
	}
	return false
}

// handle reports whether the request ends in a handler.
func (w *walk) handle(pointer string, step any) bool {
	name, _ := configfile.Member(step, "handler").(string)
	if name == w.handler.Name && slices.Contains(w.defaults.sampleRequests(step), w.sample) {
		w.reached = true
		return true
	}
	switch name {
	case "subroute":
		return w.routes(pointer+"/routes", configfile.Member(step, "routes"))
	case "invoke":
		named, _ := configfile.Member(step, "name").(string)
		route := configfile.Member(w.server("named_routes"), named)
		return w.routes(pointer, []any{route})
	case "reverse_proxy":
		if responses, _ := configfile.Member(step, "handle_response").([]any); len(responses) > 0 {
			return false // as forward_auth, which responds only if it refuses
		}
	case "file_server":
		if pass, _ := configfile.Member(step, "pass_thru").(bool); pass {
			return false
		}
	case "static_response":
		name = "respond"
		if location := configfile.Member(step, "headers", "Location"); location != nil {
			name = "redir"
		} else if abort, _ := configfile.Member(step, "abort").(bool); abort {
			name = "abort"
		}
	case "error", "metrics", apiName, errorsName:
	default:
		w.inspect(pointer, name, step)
		return false
	}
	w.miss("GH004", pointer, pointer, name)
	return true
}

// server returns a setting of the handler's server.
func (w *walk) server(name string) any {
	return configfile.Member(w.Value, "apps", "http", "servers", w.handler.Server, name)
}

// load returns a module of Caddy with settings, or nil.
func (w *walk) load(id string, settings any) any {
	if m, ok := settings.(map[string]any); ok {
		m = maps.Clone(m)
		delete(m, "handler")
		settings = m
	}
	raw, _ := json.Marshal(settings) //nolint:errchkjson // it was decoded from JSON
	mod, err := w.ctx.LoadModuleByID(id, raw)
	if err != nil {
		return nil // a finding of the loader
	}
	return mod
}

// matchResult is the result of matchers.
type matchResult int

const (
	no matchResult = iota
	unknown
	yes
)

// matches evaluates sets of matchers.
func (w *walk) matches(sets any) matchResult {
	list, _ := sets.([]any)
	if len(list) == 0 {
		return yes
	}
	result := no
	for _, set := range list {
		matchers, _ := set.(map[string]any)
		all := yes
		for name, settings := range matchers {
			all = min(all, w.match(name, settings))
		}
		result = max(result, all)
	}
	return result
}

func (w *walk) match(name string, settings any) matchResult {
	switch name {
	case "not":
		return yes - w.matches(settings)
	case "host", "path":
		if strings.Contains(fmt.Sprint(settings), "{") {
			return unknown
		}
	case "method", "path_regexp":
	default:
		return unknown
	}
	m, ok := w.load("http.matchers."+name, settings).(caddyhttp.RequestMatcherWithError)
	if !ok {
		return unknown
	}
	switch matched, err := m.MatchWithError(w.r); {
	case err != nil:
		return unknown
	case matched:
		return yes
	}
	return no
}

// describeMatchers returns matchers as a Caddyfile has them.
func describeMatchers(value any) string {
	var words []string
	switch v := value.(type) {
	case []any:
		for _, one := range v {
			words = append(words, describeMatchers(one))
		}
	case map[string]any:
		if pattern, ok := v["pattern"]; ok {
			return fmt.Sprint(pattern)
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			words = append(words, name+" "+describeMatchers(v[name]))
		}
	default:
		words = []string{fmt.Sprint(v)}
	}
	return strings.Join(words, " ")
}

func andMore(list []string) string {
	if len(list) == 1 {
		return list[0]
	}
	return fmt.Sprintf("%s and %s", list[0], plural(len(list)-1, "other request"))
}
