package check

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/rewrite"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/caddymodule/internal/configfile"
	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/connect/oauth"
	"github.com/gatehouse-gateway/gatehouse/connect/pages"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// sampleRequests returns requests that a handler must serve, or nil if it is not a Gatehouse handler with certain paths.
func (d Defaults) sampleRequests(handler any) (samples []string) {
	text := func(name string) string { s, _ := configfile.Member(handler, name).(string); return s }
	switch text("handler") {
	case apiName:
		if api := d.API(handler); api != nil {
			for _, op := range api.Operations() {
				samples = append(samples, op.Method+" "+text("base_path")+op.Sample())
			}
		}
	case healthName:
		samples = []string{"GET /healthz", "GET /readyz"}
	case jwksName:
		if samples = []string{"GET " + text("path")}; text("path") == "" {
			samples = []string{"GET " + d.JWKSPath}
		}
	case connectName:
		samples = []string{
			"POST " + oauth.ResourcePath, "GET /.well-known/oauth-protected-resource" + oauth.ResourcePath, "GET /.well-known/oauth-protected-resource",
			"GET /.well-known/oauth-authorization-server", "GET /.well-known/openid-configuration", "POST /oauth/register", "GET /oauth/authorize", "POST /oauth/token",
			"POST /oauth/revoke", "POST " + pages.ApprovePath, "GET " + pages.SignInPath, "POST " + pages.SignOutPath,
			"GET " + pages.SettingsPath, "GET " + pages.ConnectionsPath, "GET " + pages.ActivityPath, "GET " + pages.AssetsPrefix + "x",
		}
		if manage, _ := configfile.Member(handler, "manage_keys").(bool); manage {
			samples = append(samples, "GET "+pages.KeysPath)
		}
		if home, _ := configfile.Member(handler, "home_page").(bool); home {
			samples = append(samples, "GET "+pages.HomePath)
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
		own, others := 0, 0 // the samples that reach the handler, or another handler with the same name
		samples := c.defaults.sampleRequests(h.Value)
		for _, sample := range samples {
			w := c.send(ctx, h, sample) //nolint:contextcheck // it is derived from parent
			if w == nil {
				continue
			}
			blocker := w.broken
			switch w.reached {
			case "":
				blocker = w.missed
			case h.Pointer:
				own++
			default:
				others++
			}
			if blocker != nil {
				missed = append(missed, blocker)
			}
		}
		if own == 0 && others > 0 {
			c.report("GH004", h.Pointer, "%s gets no requests: another %s of its site serves the same paths", h.Name, h.Name)
		}
		if h.Name == healthName && len(missed) < len(samples) {
			continue // one of the checks may be private
		}
		if h.Name == apiName && missed == nil {
			c.checkStripped(ctx, h) //nolint:contextcheck // it is derived from parent
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
			c.report(o.rule, o.pointer, "%s responds to %s, which %s must serve", o.what, samples, handlers)
		default:
			c.report(o.rule, o.pointer, "%s: this affects %s", o.what, samples)
		}
	}
	c.addProtected(ctx)   //nolint:contextcheck // it is derived from parent
	c.checkProxies(ctx)   //nolint:contextcheck // it is derived from parent
	c.checkProtected(ctx) //nolint:contextcheck // it is derived from parent
	c.checkMetrics(ctx)   //nolint:contextcheck // it is derived from parent
}

// addProtected adds the services behind each gatehouse_auth to its upstreams.
func (c *checker) addProtected(ctx caddy.Context) {
	for _, auth := range c.handlers {
		for _, h := range c.placed {
			if auth.Name != authName || h.Name != proxyName || isForwardAuth(h.Value) || !sameSite(auth.Handler, h) {
				continue
			}
			ways, _ := c.reaching(ctx, h, append(c.leading(auth.Handler), c.leading(h)...))
			if slices.ContainsFunc(ways, func(w *walk) bool { return w.auth == auth.Pointer }) {
				auth.upstreams = append(auth.upstreams, c.proxies[h.Pointer])
			}
		}
	}
}

// checkProtected sends requests that match the matchers in front of each gatehouse_auth through the routes.
func (c *checker) checkProtected(ctx caddy.Context) {
	for _, h := range c.placed {
		if h.Name != authName || h.IsError {
			continue
		}
		base, _ := h.Value["base_path"].(string)
		samples := append(c.leading(h), "GET "+base+"/gatehouse")
		for _, other := range c.placed {
			if slices.Contains([]string{authName, "rewrite"}, other.Name) && sameSite(other, h) {
				samples = append(samples, c.leading(other)...)
			}
		}
		ways, blocker := c.reaching(ctx, h, samples)
		if len(ways) == 0 {
			if blocker != nil {
				c.report("GH004", h.Pointer, "gatehouse_auth gets no requests: %s responds to them", blocker.what)
			}
			continue
		}
		if i := slices.IndexFunc(ways, func(w *walk) bool { return w.broken != nil }); i >= 0 {
			c.report("GH022", ways[i].broken.pointer, "%s: this affects gatehouse_auth", ways[i].broken.what)
		}
		isBelow := false
		for _, w := range ways {
			_, path, _ := strings.Cut(w.sample, " ")
			rest, ok := strings.CutPrefix(path, base)
			if !ok || !strings.HasPrefix(rest, "/") {
				continue
			}
			isBelow = true
			if resource, _, _ := strings.Cut(rest[1:], "/"); !strings.HasSuffix(w.r.URL.Path, rest) {
				c.report("GH063", h.Pointer, "a rewrite in front of gatehouse_auth changes %s to %s, but keys are checked for the resource %s", path, w.r.URL.Path, resource)
				break
			}
		}
		if !isBelow {
			c.report("GH003", h.Pointer, "gatehouse_auth gets only requests such as %s, which are not below its base_path %s", ways[0].sample, base)
		}
	}
}

// reaching returns the ways of those samples that reach a handler. If it is not known which do, matchers on the way match. If none does,
// it returns what takes the first.
func (c *checker) reaching(ctx caddy.Context, h configfile.Handler, samples []string) (ways []*walk, missed *blocker) {
	for _, anyway := range []bool{false, true} {
		for _, sample := range samples {
			for _, w := range c.ways(ctx, h, sample, anyway) {
				if w.end == h.Pointer {
					ways = append(ways, w)
				}
				missed = cmp.Or(missed, w.missed)
			}
		}
		if len(ways) > 0 {
			break
		}
	}
	return ways, missed
}

// checkStripped looks for prefixes that are removed from paths in front of a gatehouse_api, which serves paths as clients send and
// sign them.
func (c *checker) checkStripped(ctx caddy.Context, h configfile.Handler) {
	base, _ := h.Value["base_path"].(string)
	api := c.defaults.API(h.Value)
	if api == nil {
		return
	}
	for _, rewriting := range c.placed {
		prefix, _ := rewriting.Value["strip_path_prefix"].(string)
		prefix = "/" + strings.Trim(prefix, "/")
		block := rewriting.Pointer[:strings.LastIndex(rewriting.Pointer, "/routes/")+1]
		if rewriting.Name != "rewrite" || prefix == "/" || strings.Contains(prefix, "{") || !strings.HasPrefix(h.Pointer, block) ||
			strings.HasPrefix(base+api.Base()+"/", prefix+"/") { // it is the beginning of the API's own paths
			continue
		}
		path := base + api.Operations()[0].Sample()
		w := c.send(ctx, h, "GET "+prefix+path)
		if w != nil && w.end == h.Pointer && w.r.URL.Path == path {
			c.report("GH022", rewriting.Pointer, "%s is removed from paths, but gatehouse_api serves and verifies them as they are sent: GET %s gets 404 without base_path %s",
				prefix, prefix+path, prefix+base)
		}
	}
}

// checkMetrics sends requests of callers to each metrics handler on their servers, and to those on other servers whose sites have hosts
// but listen on all addresses: a client chooses its Host header. That a site without hosts does so is plain to see.
func (c *checker) checkMetrics(ctx caddy.Context) {
	for _, h := range c.placed {
		s := c.servers[h.Server]
		everywhere := !slices.Contains(c.gatehouseServers(), s) && h.Hosts != nil && slices.ContainsFunc(s.Listen, isEveryAddress)
		if h.Name != metricsName || !everywhere && !slices.Contains(c.public(), s) {
			continue
		}
		samples := c.leading(h)
		ways, _ := c.reaching(ctx, h, samples[:max(1, len(samples)-1)]) // only those that the matchers name, if they name any
		switch open := slices.ContainsFunc(ways, func(w *walk) bool { return !w.authenticated }); {
		case open && everywhere:
			c.report("GH023", h.Pointer, "the site of metrics listens on all addresses of this machine: %s is only compared with the Host header, which clients choose", strings.Join(h.Hosts, ", "))
		case open:
			c.report("GH023", h.Pointer, "the site of metrics is reachable by callers of the API")
		}
	}
}

// identityHeaders returns the headers by which data services know for whom a request is: ours, and those that the definition of an API maps
// if a reverse_proxy has the address of one of its upstreams.
func (c *checker) identityHeaders(proxy *serviceConfig) []string {
	names := []string{upstream.HeaderBusinessID}
	for _, h := range c.handlers {
		if h.connect != nil && !slices.Contains(names, data.HeaderAccountID) {
			names = append(names, data.HeaderAccountID)
		}
		if h.api == nil || !slices.ContainsFunc(h.upstreams, proxy.sharesAddress) {
			continue
		}
		api := c.defaults.API(h.Value)
		if api == nil {
			continue
		}
		for _, op := range api.Operations() {
			if op.Mapping == nil {
				continue
			}
			for _, v := range op.Mapping.Headers {
				if v.NamesBusiness() && !slices.Contains(names, v.Name) {
					names = append(names, v.Name)
				}
			}
		}
	}
	return names
}

// sharesAddress reports whether another service has one of the addresses.
func (s *serviceConfig) sharesAddress(other *serviceConfig) bool {
	return slices.ContainsFunc(s.Upstreams, func(u *reverseproxy.Upstream) bool {
		return slices.ContainsFunc(other.Upstreams, func(o *reverseproxy.Upstream) bool { return sameAddress(u.Dial, o.Dial) })
	})
}

// checkProxies looks for proxied routes that pass on identity headers of callers: those of sites that have a Gatehouse handler for
// callers, and those to data services.
func (c *checker) checkProxies(ctx caddy.Context) {
	for _, h := range c.placed {
		if h.Name != proxyName || isForwardAuth(h.Value) {
			continue
		}
		var to []string
		for _, u := range c.proxies[h.Pointer].Upstreams {
			to = append(to, u.Dial)
		}
		beside := slices.ContainsFunc(c.placed, func(own configfile.Handler) bool {
			return slices.Contains([]string{apiName, authName, connectName}, own.Name) && sameSite(own, h)
		})
		if !beside && !slices.ContainsFunc(c.upstreams(), c.proxies[h.Pointer].sharesAddress) {
			continue
		}
		passed, lost, templates := c.forwarded(ctx, h)
		service := cmp.Or(strings.Join(to, ", "), "dynamic addresses")
		if passed != nil {
			c.report("GH062", h.Pointer, "requests to %s pass on %s as callers send it", service, strings.Join(passed, " and "))
		}
		if lost {
			c.report("GH022", h.Pointer, "request_header removes or replaces the X-Business-Id that gatehouse_auth has set for %s", service)
		}
		if templates != "" {
			c.report("GH022", templates, "templates evaluates responses of %s, which contain what its customers write", service)
		}
	}
}

// sameSite reports whether handlers serve the same host, or the same port if they have no hosts.
func sameSite(a, b configfile.Handler) bool {
	hosts := configfile.HostsOf(b.Way[0].Value)
	if hosts == nil && configfile.HostsOf(a.Way[0].Value) == nil {
		return a.Server == b.Server
	}
	return slices.ContainsFunc(configfile.HostsOf(a.Way[0].Value), func(host string) bool { return slices.Contains(hosts, host) })
}

// forwarded returns the identity headers of callers that a reverse_proxy passes on, whether it passes on none that gatehouse_auth has set,
// and the pointer of the templates that evaluate its responses behind one.
func (c *checker) forwarded(ctx caddy.Context, h configfile.Handler) (passed []string, lost bool, templates string) {
	ways, _ := c.reaching(ctx, h, c.leading(h))
	for _, auth := range c.placed {
		if auth.Name != authName || !sameSite(auth, h) {
			continue
		}
		for _, sample := range c.leading(auth) {
			ways = append(ways, slices.DeleteFunc(c.ways(ctx, h, sample, false), func(w *walk) bool { return w.end != h.Pointer })...)
		}
	}
	// The site may send the business elsewhere, such as in another header or in the path.
	elsewhere := strings.Contains(strings.ToLower(fmt.Sprint(h.Way[min(1, len(h.Way)-1)].Value)), strings.ToLower("request.header."+upstream.HeaderBusinessID))
	for _, w := range ways {
		if w.auth != "" && !w.anyway {
			values, isSent := w.r.Header[upstream.HeaderBusinessID]
			isAsserted := !isSent && c.app != nil && c.app.Assertion != nil
			lost = lost || strings.Join(values, "") == "" && !isAsserted && !elsewhere
		}
		w.inspect(h.Pointer, "headers", map[string]any{"request": configfile.Member(h.Value, "headers", "request")})
		templates = cmp.Or(templates, w.templates)
		if w.authenticated {
			continue
		}
		for _, name := range c.identityHeaders(c.proxies[h.Pointer]) {
			isSent := func(value string) bool { return strings.Contains(value, sentValue) }
			if slices.ContainsFunc(w.r.Header[name], isSent) && !slices.Contains(passed, name) {
				passed = append(passed, name)
			}
		}
	}
	return passed, lost, templates
}

// leading returns requests that match the matchers of the routes that lead to a handler, as far as these name methods and paths.
func (c *checker) leading(h configfile.Handler) (samples []string) {
	method, paths := http.MethodGet, []string(nil)
	for _, route := range h.Way {
		sets, _ := configfile.Member(route.Value, "match").([]any)
		for _, set := range sets {
			if methods, _ := configfile.Member(set, "method").([]any); len(methods) > 0 {
				method = fmt.Sprint(methods[0])
			}
			patterns, _ := configfile.Member(set, "path").([]any)
			for _, pattern := range patterns {
				path := "/" + strings.TrimPrefix(strings.ReplaceAll(fmt.Sprint(pattern), "*", "gatehouse"), "/")
				if !strings.ContainsAny(path, "{? ") {
					paths = append(paths, path)
				}
			}
		}
	}
	for _, path := range append(paths, "/gatehouse") {
		samples = append(samples, method+" "+path)
	}
	return samples
}

// isForwardAuth reports whether a reverse_proxy is a forward_auth, which responds only if it refuses a request.
func isForwardAuth(step any) bool {
	responses, _ := configfile.Member(step, "handle_response").([]any)
	return configfile.Member(step, "rewrite", "method") == http.MethodGet && slices.ContainsFunc(responses, isAccepted)
}

// isAccepted reports whether routes for responses let requests pass that a forward_auth accepts.
func isAccepted(response any) bool {
	statuses, _ := configfile.Member(response, "match", "status_code").([]any)
	accepted := slices.ContainsFunc(statuses, func(status any) bool {
		code, _ := status.(float64)
		return code == 2 || code >= 200 && code < 300
	})
	each(response, "", func(_ string, value any) {
		accepted = accepted && configfile.Member(value, "handler") != "copy_response"
	})
	return accepted
}

// send returns the way of a request for a handler at the host of its site where it reaches the handler, or else where it reaches
// another handler with the same name, or else at the first. It returns nil if no request can name the hosts.
func (c *checker) send(ctx caddy.Context, h configfile.Handler, sample string) (best *walk) {
	for _, w := range c.ways(ctx, h, sample, false) {
		if w.end == h.Pointer {
			return w
		}
		if best == nil || best.reached == "" && w.reached != "" {
			best = w
		}
	}
	return best
}

// ways sends a request for a handler to each host of its site. If anyway is set, matchers on the way to the handler match.
func (c *checker) ways(ctx caddy.Context, h configfile.Handler, sample string, anyway bool) (all []*walk) {
	hosts := configfile.HostsOf(h.Way[0].Value)
	for _, host := range h.Hosts { // a site *.example.com may have routes for some of its hosts
		if slices.ContainsFunc(hosts, func(site string) bool { return hostMatches(site, host) }) {
			hosts = append(slices.Clip(hosts), host)
		}
	}
	const other = "gatehouse.invalid"
	if hosts == nil {
		hosts = []string{other}
	}
	method, path, _ := strings.Cut(sample, " ")
	for _, host := range hosts {
		if host = caddy.NewReplacer().ReplaceKnown(host, ""); host == "" || strings.Contains(host, "{") {
			host = other // of the site, whose matcher is not evaluated either
		}
		r, err := http.NewRequestWithContext(ctx, method, "http://"+strings.ReplaceAll(host, "*", "gatehouse")+path, http.NoBody)
		if err != nil {
			return nil // not a host that a request can name
		}
		r.RequestURI = path
		repl := caddy.NewReplacer()
		for _, name := range sentHeaders(h.Name) {
			r.Header.Set(name, sentValue)
		}
		if proxy := c.proxies[h.Pointer]; proxy != nil {
			for _, name := range c.identityHeaders(proxy) {
				r.Header.Set(name, sentValue)
			}
		}
		w := &walk{checker: c, ctx: ctx, repl: repl, handler: h, sample: sample, anyway: anyway}
		w.r = caddyhttp.PrepareRequest(r, repl, nil, new(caddyhttp.Server))
		w.routes("/apps/http/servers/"+h.Server+"/routes", w.server("routes"))
		if h.IsError {
			w.end = ""
			w.routes("/apps/http/servers/"+h.Server+"/errors/routes", configfile.Member(w.server("errors"), "routes"))
		}
		all = append(all, w)
	}
	return all
}

// maxInvoked is the number of named routes that a request may take. One that invokes itself has no end.
const maxInvoked = 100

// walk is the way of a request through the routes of a server. What cannot be evaluated here, such as an address of a client, is
// assumed to lead to the handler.
type walk struct {
	*checker

	ctx     caddy.Context
	repl    *caddy.Replacer
	r       *http.Request
	handler configfile.Handler
	sample  string
	anyway  bool     // matchers on the way to the handler match
	missed  *blocker // the first
	broken  *blocker // the first

	invoked       int    // named routes
	end           string // the pointer of the handler that ended it; "" if none did
	reached       string // the same, if a handler with the wanted name serves the sample
	authenticated bool   // by another handler than gatehouse_auth
	auth          string // the pointer of the gatehouse_auth that authenticated it
	templates     string // the pointer of the templates behind it
}

func (w *walk) miss(rule, key, pointer, what string) {
	if w.missed == nil {
		w.missed = &blocker{rule: rule, key: key, pointer: pointer, what: what, samples: []string{w.sample}}
	}
}

const (
	// sentValue is the value of headers that sample requests have.
	sentValue = "sent-by-gatehouse-check"

	// verifiedValue is that of the business's ID behind gatehouse_auth.
	verifiedValue = "verified-by-gatehouse-auth"
)

// sentHeaders returns the headers that callers of a handler authenticate with, or that they may forge.
func sentHeaders(handler string) []string {
	switch handler {
	case proxyName:
		return []string{upstream.HeaderBusinessID, data.HeaderAccountID}
	case apiName, authName:
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
		if w.auth != "" {
			w.templates = cmp.Or(w.templates, pointer)
		}
	case "intercept":
		for i, list := range configfile.ResponseRoutes(pointer, step) {
			if configfile.Member(step, "handle_response", strconv.Itoa(i), "match", "headers") != nil {
				continue // of responses of services, such as X-Accel-Redirect
			}
			status := fmt.Sprint(configfile.Member(step, "handle_response", strconv.Itoa(i), "status_code"))
			inner := *w // with a request of its own
			inner.r = w.r.Clone(w.r.Context())
			if inner.routes(list.Pointer, list.Value) || len(status) == 3 && status < "300" {
				breaks("intercept replaces responses of the gateway, or their status")
			}
		}
	case authName:
		w.auth = pointer
		for _, header := range sentHeaders(proxyName) {
			w.r.Header.Del(header)
		}
		w.r.Header.Set(upstream.HeaderBusinessID, verifiedValue)
		breaks("gatehouse_auth in front lets only signed requests through, and removes their signatures")
	case "authentication":
		w.authenticated = true
		breaks("basic_auth asks for a password, but callers send signatures or tokens")
	case "headers":
		m, ok := w.load("http.handlers.headers", step).(*headers.Handler)
		if ok && m.Request != nil {
			m.Request.ApplyToRequest(w.r)
		}
		if ok && m.Response != nil {
			if changed := w.changedHeaders(m.Response); changed != nil {
				breaks("header replaces or removes %s of the gateway's responses", strings.Join(changed, ", "))
			}
		}
		for _, header := range names {
			if values := w.r.Header[header]; len(values) != 1 || values[0] != sentValue {
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

// responseHeaders are headers of the responses of some handlers, and what their values must match when they are sent.
var responseHeaders = []struct { //nolint:gochecknoglobals // constant
	name, value string
	must        *regexp.Regexp
	handlers    []string
}{
	{"Cache-Control", "private", regexp.MustCompile(`(?i)\b(private|no-store)\b`), []string{apiName, authName, connectName}},
	{"Vary", authsigner.HeaderPublicKey, regexp.MustCompile(`(?i)` + authsigner.HeaderPublicKey + `|\*`), []string{apiName, authName}},
	{"Content-Type", sentValue, regexp.MustCompile(sentValue), []string{apiName, connectName}},
	{"Content-Security-Policy", sentValue, regexp.MustCompile(sentValue), []string{connectName}},
	{"Referrer-Policy", "same-origin", regexp.MustCompile(`^(same-origin|strict-origin.*)$`), []string{connectName}}, // with no-referrer, forms fail
	{"Set-Cookie", sentValue, regexp.MustCompile(sentValue), []string{connectName}},
	{"X-Frame-Options", "DENY", regexp.MustCompile(`(?i)^(DENY|SAMEORIGIN)$`), []string{connectName}},
}

// decided matches a Cache-Control that gatehouse_auth takes for the decision of the service.
var decided = regexp.MustCompile(`(?i)\b(public|s-maxage)\b`)

// changedHeaders returns the headers of the handler's responses that a header directive changes so that they must not be sent. A deletion
// in its block defers the whole block until a response is written.
func (w *walk) changedHeaders(ops *headers.RespHeaderOps) (names []string) {
	sent := http.Header{}
	if !ops.Deferred && ops.Require == nil {
		ops.ApplyTo(sent, w.repl)
		value := strings.Join(sent["Cache-Control"], ", ")
		if w.handler.Name == authName && decided.MatchString(value) && !responseHeaders[0].must.MatchString(value) {
			return []string{"Cache-Control"}
		}
		return nil
	}
	for _, h := range responseHeaders {
		sent.Set(h.name, h.value)
	}
	if ops.Require != nil && !ops.Require.Match(http.StatusOK, sent) {
		return nil
	}
	ops.ApplyTo(sent, w.repl)
	for _, h := range responseHeaders {
		isCaching := h.name == "Cache-Control" || h.name == "Vary"
		if slices.Contains(h.handlers, w.handler.Name) && !h.must.MatchString(strings.Join(sent[h.name], ", ")) && !(isCaching && w.isForAll()) {
			names = append(names, h.name)
		}
	}
	return names
}

// isForAll reports whether the response to the sample is the same for everybody.
func (w *walk) isForAll() bool {
	_, path, _ := strings.Cut(w.sample, " ")
	if w.handler.Name != apiName {
		return w.handler.Name == connectName && (strings.HasPrefix(path, "/.well-known/") || strings.HasPrefix(path, pages.AssetsPrefix))
	}
	base, _ := w.handler.Value["base_path"].(string)
	api := w.defaults.API(w.handler.Value)
	return api != nil && slices.ContainsFunc(api.Operations(), func(op *upstream.Operation) bool {
		return op.Public && w.sample == op.Method+" "+base+op.Sample()
	})
}

// routes reports whether the request ends in a list of routes.
func (w *walk) routes(pointer string, list any) bool {
	routes, _ := list.([]any)
	groups := map[string]configfile.Route{} // the route that the request took
	for i, route := range routes {
		if w.route(configfile.Route{Pointer: fmt.Sprintf("%s/%d", pointer, i), Value: route}, groups) {
			return true
		}
	}
	return false
}

// route reports whether the request ends in a route.
func (w *walk) route(route configfile.Route, groups map[string]configfile.Route) bool {
	leads := slices.ContainsFunc(w.handler.Way, func(r configfile.Route) bool { return r.Pointer == route.Pointer })
	group, _ := configfile.Member(route.Value, "group").(string)
	if other, taken := groups[group]; group != "" && taken {
		if leads {
			w.miss("GH004", other.Pointer, other.Pointer, "the route with the matcher "+describeMatchers(configfile.Member(other.Value, "match")))
		}
		return false
	}
	sets := configfile.Member(route.Value, "match")
	result := w.matches(sets)
	if (w.anyway && result != never || result == unknown) && w.isOnTheWay(sets) {
		result = yes
	}
	if result <= no && leads {
		w.miss("GH003", route.Pointer, w.handler.Pointer, describeMatchers(sets))
	}
	if result <= no || result == unknown && !leads {
		return false
	}
	groups[group] = route
	steps, _ := configfile.Member(route.Value, "handle").([]any)
	for i, step := range steps {
		if w.handle(fmt.Sprintf("%s/handle/%d", route.Pointer, i), step) {
			return true
		}
	}
	terminal, _ := configfile.Member(route.Value, "terminal").(bool)
	if terminal {
		w.miss("GH004", route.Pointer, route.Pointer, "the route with the matcher "+describeMatchers(sets))
	}
	return terminal
}

// handle reports whether the request ends in a handler.
func (w *walk) handle(pointer string, step any) bool {
	name, _ := configfile.Member(step, "handler").(string)
	if name == w.handler.Name && slices.Contains(w.defaults.sampleRequests(step), w.sample) {
		w.reached, w.end = pointer, pointer
		return true
	}
	if pointer == w.handler.Pointer {
		w.end = pointer
		return true
	}
	for i, list := range configfile.ResponseRoutes(pointer, step) {
		if slices.ContainsFunc(w.handler.Way, func(r configfile.Route) bool { return strings.HasPrefix(r.Pointer, list.Pointer+"/") }) {
			w.authenticated = w.authenticated || isForwardAuth(step) && isAccepted(configfile.Member(step, "handle_response", strconv.Itoa(i)))
			return w.routes(list.Pointer, list.Value) // which get the request as it came to this handler
		}
	}
	switch name {
	case "subroute":
		return w.routes(pointer+"/routes", configfile.Member(step, "routes"))
	case "invoke":
		named, _ := configfile.Member(step, "name").(string)
		if w.invoked++; w.invoked > maxInvoked {
			return false
		}
		return w.route(w.NamedRoute(w.handler.Server, named), map[string]configfile.Route{})
	case proxyName:
		if isForwardAuth(step) {
			w.authenticated = true
			return false
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
	case "error", "copy_response", metricsName, apiName, errorsName:
	default:
		w.inspect(pointer, name, step)
		return false
	}
	w.miss("GH004", pointer, pointer, name)
	w.end = pointer
	return true
}

// isOnTheWay reports whether matchers are those of a route that leads to the handler.
func (w *walk) isOnTheWay(sets any) bool {
	return slices.ContainsFunc(w.handler.Way, func(r configfile.Route) bool {
		own := configfile.Member(r.Value, "match")
		return own != nil && reflect.DeepEqual(own, sets)
	})
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
	never matchResult = iota - 1 // even if matchers on the way to the handler match
	no
	unknown
	yes
)

// matches evaluates sets of matchers.
func (w *walk) matches(sets any) matchResult {
	list, _ := sets.([]any)
	if len(list) == 0 {
		return yes
	}
	result := never
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
	case "remote_ip", "client_ip":
		if w.handler.Name == metricsName {
			return never // for the address of a caller
		}
		return unknown
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
