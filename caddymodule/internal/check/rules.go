package check

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/gatehouse-gateway/gatehouse/caddymodule/internal/configfile"
	"github.com/gatehouse-gateway/gatehouse/docs"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// rules returns all rules, in the order of the table in docs/check.md, which is the only place that has their texts.
func rules() []rule {
	toURL := strings.NewReplacer("docs/", "https://github.com/gatehouse-gateway/gatehouse/blob/main/docs/")
	var all []rule
	for line := range strings.Lines(docs.Check) {
		if cells := strings.Split(strings.Trim(line, "| \n"), " | "); strings.HasPrefix(cells[0], "GH") {
			all = append(all, rule{id: cells[0], severity: cells[1], title: cells[2], fix: toURL.Replace(html.UnescapeString(cells[4]))})
		}
	}
	return all
}

// checkStatic applies the rules that need only the configuration, and files that it names.
func (c *checker) checkStatic(ctx context.Context) {
	c.checkIssuer()
	c.checkRoutes(ctx)
	c.checkTimeouts()
	c.checkIneffective()
	c.checkTrustedProxies()
	c.checkCatchAll()
	c.checkServerTimeouts()
	c.checkDrain()
	c.checkAdmin()
	c.checkSecrets()
	c.checkRemote()
	c.checkErrorStatus()
	c.checkErrorRoutes()
	c.checkEncode()
	c.checkAccessLogs()
	c.checkDefaultLog()
	c.checkWeakened()
	c.checkSiteTLS()
	c.checkLoop()
	c.checkHealthChecks()
	c.checkConnections()
	c.checkAudiences()
	c.checkCertificates()
	c.checkSecretFiles()
	c.checkRecords()
}

func (c *checker) checkIssuer() {
	for _, h := range c.handlers {
		if h.connect == nil || h.Hosts == nil {
			continue // the site serves all hosts
		}
		issuer := h.connect.Issuer
		u, err := url.Parse(issuer)
		if err != nil || u.Hostname() == "" || strings.Contains(issuer, "{") {
			continue // an invalid one cannot be loaded; placeholders are not resolved
		}
		listen := c.servers[h.Server].Listen
		if !slices.ContainsFunc(h.Hosts, func(site string) bool { return hostMatches(site, u.Hostname()) }) {
			c.report("GH002", h.Pointer+"/issuer", "the issuer %s is not served by its site, whose hosts are %s", issuer, strings.Join(h.Hosts, ", "))
		} else if u.Port() != "" && !isLocal(u.Host) && !slices.ContainsFunc(listen, func(a string) bool { return strings.HasSuffix(a, ":"+u.Port()) }) {
			c.report("GH002", h.Pointer+"/issuer", "the issuer %s is not served by its site, which listens on %s", issuer, strings.Join(listen, ", "))
		}
	}
}

// hostMatches reports whether a host is that of a site, which may begin with a wildcard for one label.
func hostMatches(site, host string) bool {
	if parent, ok := strings.CutPrefix(site, "*."); ok {
		_, host, _ = strings.Cut(host, ".")
		site = parent
	}
	return strings.EqualFold(site, host) || strings.Contains(site, "{")
}

func (c *checker) checkTimeouts() {
	grace := time.Duration(c.http.GracePeriod)
	for _, h := range c.handlers {
		s := c.servers[h.Server]
		if write := time.Duration(s.WriteTimeout); write > 0 && write <= h.timeout {
			c.report("GH005", s.pointer+"/write_timeout", "responses may take %s, but the timeout of %s is %s", write, h.Name, h.timeout)
		}
		if grace > 0 && grace <= h.timeout {
			c.report("GH010", "/apps/http/grace_period", "reloads end responses after %s, but the timeout of %s is %s", grace, h.Name, h.timeout)
		}
	}
}

func (c *checker) checkIneffective() {
	for _, h := range c.handlers {
		s := c.servers[h.Server]
		if h.api != nil {
			own := cmp.Or(time.Duration(h.api.BodyTimeout), c.defaults.BodyTimeout)
			if read := time.Duration(s.ReadTimeout); read > 0 && read < own {
				c.report("GH006", s.pointer+"/read_timeout", "read_body is %s, but gatehouse_api sets its own: body_timeout is %s", read, own)
			}
		}
		for _, u := range h.upstreams {
			for _, o := range []struct {
				name, pointer string
				value         caddy.Duration
			}{
				{"lb_try_duration", "/load_balancing/try_duration", u.LoadBalancing.TryDuration},
				{"dial_timeout", "/transport/dial_timeout", u.transport.DialTimeout},
			} {
				if value := time.Duration(o.value); h.timeout > 0 && value > h.timeout {
					c.report("GH006", u.pointer+o.pointer, "%s is %s, but %s ends requests after its timeout of %s", o.name, value, h.Name, h.timeout)
				}
			}
			if active := u.HealthChecks.Active; active != nil && active.URI == "" && active.Path == "" { //nolint:staticcheck // SA1019: JSON configurations may have it
				c.report("GH006", u.pointer+"/health_checks", "options of active health checks have no effect without health_uri")
			}
		}
	}
	for _, s := range c.gatehouseServers() {
		if s.ClientIPHeaders != nil && !s.trustsProxies() {
			c.report("GH006", s.pointer+"/client_ip_headers", "client_ip_headers has no effect without trusted_proxies")
		}
		if i := slices.IndexFunc(s.wrappers, isProxyProtocol); i >= 0 {
			pointer := fmt.Sprintf("%s/listener_wrappers/%d/proxy_protocol", s.pointer, i)
			if s.wrappers[i].Allow == nil && !s.wrappers[i].usesAll() {
				c.report("GH006", pointer, "proxy_protocol ignores all addresses without allow, which names the load balancers")
			}
			if c.servesTLS(s) && !slices.ContainsFunc(s.wrappers[i:], func(w listenerWrapper) bool { return w.Wrapper == "tls" }) {
				c.report("GH070", pointer, "proxy_protocol reads its header from inside TLS, because no tls follows it")
			}
		}
	}
	var listen []string
	for _, s := range c.servers {
		listen = append(listen, s.Listen...)
	}
	for i, args := range c.GlobalOptions("servers") {
		if len(args) > 0 && !slices.Contains(listen, args[0]) {
			c.report("GH006", fmt.Sprintf("/servers/%d", i), "servers %s has no effect: no site listens on exactly this address", args[0])
		}
	}
}

func isProxyProtocol(w listenerWrapper) bool { return w.Wrapper == "proxy_protocol" }

// usesAll reports whether a proxy_protocol believes the header of each address that it does not deny.
func (w listenerWrapper) usesAll() bool {
	return isProxyProtocol(w) && (strings.EqualFold(w.Fallback, "use") || strings.EqualFold(w.Fallback, "require"))
}

// trustsProxies reports whether a server takes the client IP from headers, of proxies that trusted_proxies names or of all on a Unix socket.
func (s *serverConfig) trustsProxies() bool {
	return s.TrustedProxiesRaw != nil || s.TrustedProxiesUnix
}

func (c *checker) checkTrustedProxies() {
	for _, s := range c.servers {
		var proxies struct {
			Source string   `json:"source"`
			Ranges []string `json:"ranges"`
		}
		pointer := s.pointer + "/trusted_proxies"
		if json.Unmarshal(s.TrustedProxiesRaw, &proxies) == nil && proxies.Source == "static" {
			c.checkRanges(pointer, proxies.Ranges)
		}
		if s.TrustedProxiesRaw == nil {
			pointer += "_unix"
		}
		if s.trustsProxies() && s.TrustedProxiesStrict == 0 {
			c.report("GH008", pointer, "the client IP is the first address in X-Forwarded-For, which callers can set")
		}
		for i, w := range s.wrappers {
			c.checkRanges(fmt.Sprintf("%s/listener_wrappers/%d/allow", s.pointer, i), w.Allow)
			if w.usesAll() && slices.ContainsFunc(s.Listen, func(address string) bool { return !isLocal(address) }) {
				c.report("GH007", fmt.Sprintf("%s/listener_wrappers/%d/fallback_policy", s.pointer, i), "fallback_policy %s trusts every address", w.Fallback)
			}
		}
	}
}

func (c *checker) checkRanges(pointer string, ranges []string) {
	for _, text := range ranges {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			continue // a finding of the loader, or a single address
		}
		shortest := 8
		if p.Addr().Is6() && !p.Addr().IsPrivate() && !p.Addr().IsLinkLocalUnicast() {
			shortest = 16
		} else if p.Addr().Is6() {
			shortest = 7 // fc00::/7
		}
		if p.Bits() < shortest {
			c.report("GH007", pointer, "%s is trusted", text)
		}
	}
}

// gatehouseServers returns the servers that have Gatehouse handlers for callers.
func (c *checker) gatehouseServers() []*serverConfig {
	var found []*serverConfig
	for _, h := range c.handlers {
		if s := c.servers[h.Server]; !slices.Contains(found, s) {
			found = append(found, s)
		}
	}
	return found
}

// public returns those of our servers that have sites for other machines.
func (c *checker) public() []*serverConfig {
	return slices.DeleteFunc(c.gatehouseServers(), func(s *serverConfig) bool {
		return !slices.ContainsFunc(c.placed, func(h configfile.Handler) bool { return c.servers[h.Server] == s && !isDevelopment(h.Hosts) }) ||
			!slices.ContainsFunc(s.Listen, func(address string) bool { return !isLocal(address) })
	})
}

// isDevelopment reports whether a site is only for this machine.
func isDevelopment(hosts []string) bool {
	return hosts != nil && !slices.ContainsFunc(hosts, func(host string) bool { return !isLocal(host) })
}

func (c *checker) checkCatchAll() {
	for _, s := range c.public() {
		site := ""
		for _, h := range c.placed {
			if h.IsError || c.servers[h.Server] != s {
				continue
			}
			if h.Hosts == nil {
				site = ""
				break
			}
			site = cmp.Or(site, h.Way[0].Pointer)
		}
		if site != "" {
			c.report("GH009", site, "no site responds to requests to %s for other hosts", strings.Join(s.Listen, ", "))
		}
	}
}

// checkServerTimeouts looks for timeouts without which slow clients keep connections for minutes, or for ever.
func (c *checker) checkServerTimeouts() {
	for _, s := range c.public() {
		var missing []string
		for _, o := range []struct {
			name  string
			value caddy.Duration
		}{{"read_header", s.ReadHeaderTimeout}, {"read_body", s.ReadTimeout}, {"write", s.WriteTimeout}, {"idle", s.IdleTimeout}} {
			streams := o.name == "write" && slices.ContainsFunc(c.handlers, func(h *handlerConfig) bool { return h.Name == authName && c.servers[h.Server] == s })
			if o.value <= 0 && !streams {
				missing = append(missing, o.name)
			}
		}
		if missing != nil {
			c.report("GH061", s.pointer, "the server on %s has no timeouts for %s", strings.Join(s.Listen, ", "), strings.Join(missing, ", "))
		}
	}
}

func (c *checker) checkDrain() {
	for _, s := range c.public() {
		if !slices.ContainsFunc(s.wrappers, func(w listenerWrapper) bool { return w.Wrapper == drainName }) {
			c.report("GH010", s.pointer, "the server on %s has no listener wrapper gatehouse_drain", strings.Join(s.Listen, ", "))
		}
	}
}

func (c *checker) checkAdmin() {
	if c.admin.Disabled {
		return
	}
	listen, mode, _ := strings.Cut(cmp.Or(c.admin.Listen, caddy.DefaultAdminListen), "|") // of a socket
	if !strings.Contains(listen, "{") && !isLocal(listen) {
		c.report("GH011", "/admin/listen", "the admin API listens on %s", listen)
	}
	if mode != "" && !strings.HasSuffix(mode, "0") {
		c.report("GH011", "/admin/listen", "the admin API listens on %s, whose mode %s lets other users connect", listen, mode)
	}
	services := maps.Clone(c.proxies)
	for _, s := range c.upstreams() {
		services[s.pointer] = s
	}
	for pointer, service := range services {
		for i, u := range service.Upstreams {
			if sameAddress(u.Dial, listen) {
				c.report("GH011", fmt.Sprintf("%s/upstreams/%d", pointer, i), "a site passes requests on to the admin API at %s", listen)
			}
		}
	}
}

// isLocal reports whether only this machine can reach an address: a network address or a URL's host and port.
func isLocal(address string) bool {
	a, err := caddy.ParseNetworkAddress(address)
	if err != nil {
		return false
	}
	if a.IsUnixNetwork() || a.IsFdNetwork() {
		return true
	}
	host := strings.ToLower(strings.Trim(a.Host, "[]"))
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.IsLoopback()
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// isEveryAddress reports whether a server with this listen address accepts connections to all addresses of the machine.
func isEveryAddress(listen string) bool {
	a, err := caddy.ParseNetworkAddress(listen)
	if err != nil || a.IsUnixNetwork() || a.IsFdNetwork() {
		return false
	}
	ip, err := netip.ParseAddr(strings.Trim(a.Host, "[]"))
	return a.Host == "" || err == nil && ip.IsUnspecified()
}

func sameAddress(a, b string) bool {
	x, err := caddy.ParseNetworkAddress(a)
	y, err2 := caddy.ParseNetworkAddress(b)
	if err != nil || err2 != nil || x.Network != y.Network {
		return false
	}
	return x.StartPort == y.StartPort && (x.Host == y.Host || !x.IsUnixNetwork() && isLocal(a) && (isLocal(b) || y.Host == ""))
}

// isPublic reports whether an address is a public IP.
func isPublic(address string) bool {
	a, err := caddy.ParseNetworkAddress(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(strings.Trim(a.Host, "[]"))
	shared := netip.MustParsePrefix("100.64.0.0/10") // RFC 6598
	return err == nil && ip.IsGlobalUnicast() && !ip.IsPrivate() && !shared.Contains(ip.Unmap())
}

// placeholder matches what Caddy replaces: braces that are not escaped.
var placeholder = regexp.MustCompile(`(^|[^\\])\{[^{}]*\}`)

func (c *checker) checkSecrets() {
	if c.app == nil {
		return
	}
	literal := func(pointer, what, value string) {
		if value != "" && !placeholder.MatchString(value) {
			c.report("GH012", pointer, "%s is in the configuration as plain text, directly or through {$…}", what)
		}
	}
	if redis := c.app.Redis; redis != nil {
		literal("/apps/gatehouse/redis/password", "the password of Redis", redis.Password)
		literal("/apps/gatehouse/redis/sentinel_password", "the password of the Sentinels", redis.SentinelPassword)
		for _, text := range redis.URLs {
			if u, err := url.Parse(text); err == nil && u.User != nil {
				password, _ := u.User.Password()
				literal("/apps/gatehouse/redis", "the password in the URL of Redis", password)
			}
		}
	}
	for _, u := range c.upstreams() {
		for _, name := range []string{"Authorization", "Cookie", "X-Api-Key"} {
			literal(u.pointer+"/headers/request/set/"+name, "the header "+name+" for the data service", u.Headers.Request.Set.Get(name))
		}
	}
	if c.vault != nil {
		literal("/apps/gatehouse/credentials/auth/token", "the token for Vault", c.vault.Auth.Token)
		literal("/apps/gatehouse/credentials/auth/secret_id", "the SecretID for Vault", c.vault.Auth.SecretID)
	}
}

// checkRemote looks at the traffic to each address on another machine.
func (c *checker) checkRemote() {
	check := func(pointer, what, address string, plain bool) {
		switch {
		case !plain:
		case isPublic(address):
			c.report("GH014", pointer, "%s at %s is used without TLS", what, address)
		default:
			c.report("GH013", pointer, "%s at %s is used without TLS", what, address)
		}
	}
	isRemote := func(address string) bool { return !strings.Contains(address, "{") && !isLocal(address) }
	if c.app != nil && c.app.Redis != nil {
		for _, text := range c.app.Redis.URLs {
			if u, err := url.Parse(text); err == nil && u.Scheme != "unix" && isRemote(u.Host) {
				check("/apps/gatehouse/redis", "Redis", u.Host, u.Scheme == "redis" && c.app.Redis.TLS == nil)
			}
		}
	}
	if c.vault != nil {
		if u, err := url.Parse(c.vault.Address); err == nil && isRemote(u.Host) {
			check("/apps/gatehouse/credentials", "Vault", u.Host, u.Scheme == "http")
		}
	}
	var (
		first    string // the pointer of the first
		services []string
	)
	for _, s := range c.upstreams() {
		service := func(pointer, address string) {
			check(pointer, "the data service", address, s.transport.TLS == nil)
			first = cmp.Or(first, pointer)
			if !slices.Contains(services, address) {
				services = append(services, address)
			}
		}
		for i, u := range s.Upstreams {
			if isRemote(u.Dial) {
				service(fmt.Sprintf("%s/upstreams/%d", s.pointer, i), u.Dial)
			}
		}
		if s.DynamicUpstreamsRaw != nil {
			service(s.pointer, "dynamic addresses")
		}
		if t := s.transport.TLS; t != nil && t.InsecureSkipVerify {
			c.report("GH015", s.pointer+"/transport/tls/insecure_skip_verify", "tls_insecure_skip_verify accepts any certificate")
		}
	}
	if first != "" && c.app != nil && c.app.Assertion == nil {
		c.report("GH016", first, "requests to %s carry no assertion", strings.Join(services, ", "))
	}
}

func (c *checker) checkErrorStatus() {
	for _, h := range c.placed {
		if !h.IsError || h.Name != "static_response" {
			continue
		}
		if status := fmt.Sprint(h.Value["status_code"]); len(status) == 3 && status[0] == '2' {
			c.report("GH017", h.Pointer, "error responses have the status %s", status)
		}
	}
}

// checkErrorRoutes looks for errors that nothing responds to. Caddy leaves out the error route of a gatehouse_api that is in a block.
func (c *checker) checkErrorRoutes() {
	for _, h := range c.placed {
		responds := func(other configfile.Handler) bool {
			return other.IsError && other.Server == h.Server && (configfile.HostsOf(other.Way[0].Value) == nil || sameSite(other, h))
		}
		list := h.Way[:len(h.Way)-1] // the routes around this one, or around the one that invokes it by its name
		if path.Base(path.Dir(h.Way[len(list)].Pointer)) == "named_routes" {
			list = list[:len(list)-1]
		}
		isInFront := func(own *handlerConfig) bool {
			return len(own.Way) > len(list) && slices.EqualFunc(own.Way[:len(list)], list, func(a, b configfile.Route) bool { return a.Pointer == b.Pointer })
		}
		const why = "gatehouse_api is in a block, and the site has no handle_errors"
		if h.IsError || slices.ContainsFunc(c.placed, responds) {
			continue
		}
		for _, own := range c.handlers {
			if own.api == nil || !sameSite(own.Handler, h) {
				continue
			}
			if h.Name == "error" {
				c.report("GH066", h.Pointer, "the response to this error has no body: "+why)
			} else if h.Name == proxyName && isForwardAuth(h.Value) && isInFront(own) && configfile.Member(h.Way[len(h.Way)-1].Value, "match") == nil {
				c.report("GH066", h.Pointer, "if the service of forward_auth fails, the response has no body, and the log gets the request's signature and query: "+why)
			}
		}
	}
}

// checkEncode looks for encode in front of an API with If-Match. It appends the encoding to entity tags, but removes it from If-None-Match only.
func (c *checker) checkEncode() {
	for _, e := range c.placed {
		usesTags := func(h *handlerConfig) bool {
			if h.api == nil || !sameSite(h.Handler, e) {
				return false
			}
			api := c.defaults.API(h.Value)
			return api != nil && slices.ContainsFunc(api.Operations(), func(op *upstream.Operation) bool { return op.Forwards("If-Match") })
		}
		restores := func(h configfile.Handler) bool {
			return sameSite(h, e) && configfile.Member(h.Value, "request", "replace", "If-Match") != nil
		}
		own := e.Way[len(e.Way)-1].Value // with the matcher of encode, or only the hosts of the site
		if e.Name == "encode" && (len(e.Way) == 1 || configfile.Member(own, "match") == nil) && slices.ContainsFunc(c.handlers, usesTags) && !slices.ContainsFunc(c.placed, restores) {
			c.report("GH073", e.Pointer, "encode changes the ETag of large responses, so that If-Match with it fails with 412")
		}
	}
}

func (c *checker) checkAccessLogs() {
	for _, h := range c.placed {
		if value, _ := h.Value["value"].(string); h.Name == "log_append" && loggedSecret.MatchString(value) {
			c.report("GH018", h.Pointer, "log_append adds %s to log entries", value)
		}
	}
	for _, s := range c.gatehouseServers() {
		for i, p := range s.TLSConnPolicies {
			if p.InsecureSecretsLog != "" {
				c.report("GH018", fmt.Sprintf("%s/tls_connection_policies/%d/insecure_secrets_log", s.pointer, i), "insecure_secrets_log writes keys that decrypt all traffic")
			}
		}
		if s.Logs == nil {
			continue
		}
		if s.Logs.ShouldLogCredentials {
			c.report("GH018", s.pointer+"/logs/should_log_credentials", "log_credentials writes all headers to access logs")
			continue
		}
		names := map[string]caddyhttp.StringArray{}
		maps.Copy(names, s.Logs.LoggerNames)
		isUnnamed := func(host string) bool { return names[host] == nil && !slices.Contains(s.Logs.SkipHosts, host) }
		if !s.Logs.SkipUnmappedHosts {
			names[""] = caddyhttp.StringArray{s.Logs.DefaultLoggerName}
		}
		for _, host := range slices.Sorted(maps.Keys(names)) {
			served := func(h configfile.Handler) bool {
				return c.servers[h.Server] == s && strings.HasPrefix(h.Name, "gatehouse_") && (host == "" && slices.ContainsFunc(h.Hosts, isUnnamed) ||
					h.Hosts == nil && (host == "*" || host == "") || slices.Contains(h.Hosts, host))
			}
			if slices.ContainsFunc(c.placed, served) && slices.ContainsFunc(names[host], func(name string) bool {
				return !c.filters(strings.TrimSuffix("http.log.access."+name, "."), "request>headers>X-Signature")
			}) {
				of := ""
				if host == "" && len(s.Logs.LoggerNames) > 0 {
					of = " of the hosts that have none of their own"
				}
				c.report("GH018", s.pointer+"/logs/logger_names/"+host, "the access log%s does not remove signatures and query values", of)
				break
			}
		}
	}
	for _, h := range c.handlers {
		if h.Name == authName && h.upstreams != nil && !c.filters("http.handlers."+proxyName, "request>headers", "error") {
			c.report("GH072", h.Pointer, "the log gets queries and headers, such as the assertion, of requests behind gatehouse_auth whose responses are aborted, and parts of responses in error")
			break
		}
	}
}

// loggedSecret matches placeholders of what logs must not contain.
var loggedSecret = regexp.MustCompile(`(?i)\{http\.request\.(header\.(X-Signature|Authorization|Cookie)|(orig_)?uri(\.query.*)?|(orig_)?uri\.prefixed_query)\}`)

// filters reports whether each log that gets the entries of a logger removes query values and a header, or all of them, and filters other
// fields.
func (c *checker) filters(logger, header string, others ...string) bool {
	has := func(prefixes []string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return p == logger || strings.HasPrefix(logger, p+".") })
	}
	logs := map[string]*caddy.CustomLog{"default": {}} // Caddy adds it
	maps.Copy(logs, c.logs)
	for _, l := range logs {
		if len(l.Include) > 0 && !has(l.Include) || has(l.Exclude) {
			continue
		}
		var encoder struct {
			Format string                     `json:"format"`
			Fields map[string]json.RawMessage `json:"fields"`
		}
		_ = json.Unmarshal(l.EncoderRaw, &encoder)
		filters := func(field string) bool {
			return encoder.Fields[field] != nil || encoder.Fields["request"] != nil
		}
		var uri struct {
			Filter string `json:"filter"`
		}
		_ = json.Unmarshal(encoder.Fields["request>uri"], &uri)
		hidden := encoder.Fields["request"] != nil || slices.Contains([]string{"delete", "replace", "hash", "regexp", "multi_regexp"}, uri.Filter) // query hides named values only
		isLogged := func(field string) bool { return encoder.Fields[field] == nil }
		if !isDiscarded(l) && (encoder.Format != "filter" || !filters("request>headers") && !filters(header) || !hidden || slices.ContainsFunc(others, isLogged)) {
			return false
		}
	}
	return true
}

func isDiscarded(l *caddy.CustomLog) bool {
	var writer struct {
		Output string `json:"output"`
	}
	_ = json.Unmarshal(l.WriterRaw, &writer) // Caddy's loader reports errors
	return writer.Output == "discard"
}

func (c *checker) checkDefaultLog() {
	for _, l := range c.logs {
		// A level that is a placeholder is not known here.
		if !isDiscarded(l) && !slices.Contains([]string{"WARN", "ERROR", "PANIC", "FATAL"}, strings.ToUpper(l.Level)) {
			return
		}
	}
	if c.logs["default"] != nil {
		c.report("GH029", "/logging/logs/default", "no log has an output for level INFO")
	}
}

// checkWeakened looks for options that turn a protection off.
func (c *checker) checkWeakened() {
	for _, h := range c.handlers {
		if h.api != nil && h.api.AllowMissingTenant {
			c.report("GH021", h.Pointer+"/allow_missing_tenant", "records without a tenant field are accepted")
		}
		if h.api == nil {
			continue
		}
		if api := c.defaults.API(h.Value); api != nil {
			observed := slices.DeleteFunc(api.Operations(), func(op *upstream.Operation) bool { return op.Enforce == upstream.EnforceAll })
			if len(observed) > 0 {
				c.report("GH065", h.Pointer+"/definition/enforce", "the responses of %d operations, such as %s, may deviate", len(observed), observed[0].ID)
			}
		}
	}
	if c.app == nil {
		return
	}
	if c.app.Limits.OnOutage == "allow" {
		c.report("GH019", "/apps/gatehouse/limits/on_outage", "on_outage is allow")
	}
	if c.app.Limits.Shadow {
		c.report("GH020", "/apps/gatehouse/limits/shadow", "limits are in shadow mode")
	}
	if c.app.Limits.AllowReplayedWrites {
		c.report("GH067", "/apps/gatehouse/limits/allow_replayed_writes", "somebody who has recorded a signed write can repeat it when Redis does not decide")
	} else if c.app.Limits.Algorithm == string(ratelimit.GCRA) && slices.ContainsFunc(c.handlers, func(h *handlerConfig) bool { return h.Name == authName }) {
		c.report("GH067", "/apps/gatehouse/limits/algorithm", "algorithm gcra does not know which signed writes were received before: gatehouse_auth responds to each signed write with 503")
	}
	for name, o := range map[string]struct{ value, most time.Duration }{
		"ttl":            {time.Duration(c.app.Cache.TTL), 5 * time.Minute},
		"stale_if_error": {time.Duration(c.app.Cache.StaleIfError), 24 * time.Hour},
	} {
		if o.value > o.most {
			c.report("GH047", "/apps/gatehouse/cache/"+name, "%s is %s", name, o.value)
		}
	}
}

// servesTLS reports whether a server uses TLS, be it by automatic HTTPS.
func (c *checker) servesTLS(s *serverConfig) bool {
	port := fmt.Sprintf(":%d", cmp.Or(c.http.HTTPPort, caddyhttp.DefaultHTTPPort))
	onlyHTTP := !slices.ContainsFunc(s.Listen, func(a string) bool { return !strings.HasSuffix(a, port) })
	return s.TLSConnPolicies != nil || !onlyHTTP && !s.AutoHTTPS.Disabled && slices.ContainsFunc(c.placed, func(h configfile.Handler) bool {
		return c.servers[h.Server] == s && slices.ContainsFunc(h.Hosts, func(host string) bool { return !slices.Contains(s.AutoHTTPS.Skip, host) })
	})
}

func (c *checker) checkSiteTLS() {
	for _, s := range c.public() {
		if s.TrustedProxiesRaw != nil || slices.ContainsFunc(s.wrappers, isProxyProtocol) || c.servesTLS(s) {
			continue
		}
		for _, h := range slices.Backward(c.handlers) {
			if c.servers[h.Server] == s {
				c.report("GH024", h.Pointer, "the server on %s does not use TLS", strings.Join(s.Listen, ", "))
				break
			}
		}
	}
}

func (c *checker) checkLoop() {
	for _, u := range c.upstreams() {
		for i, to := range u.Upstreams {
			if slices.ContainsFunc(c.handlers, func(h *handlerConfig) bool { return c.serves(h, to.Dial) }) {
				c.report("GH027", fmt.Sprintf("%s/upstreams/%d", u.pointer, i), "this gateway itself serves %s", to.Dial)
			}
		}
	}
}

// serves reports whether requests to an address reach the handler's site.
func (c *checker) serves(h *handlerConfig, dial string) bool {
	to, err := caddy.ParseNetworkAddress(dial)
	return err == nil && slices.ContainsFunc(c.servers[h.Server].Listen, func(listen string) bool {
		own, err := caddy.ParseNetworkAddress(listen)
		return h.Hosts == nil && sameAddress(dial, listen) || err == nil && own.StartPort == to.StartPort &&
			slices.ContainsFunc(h.Hosts, func(host string) bool { return hostMatches(host, to.Host) })
	})
}

func (c *checker) checkHealthChecks() {
	for _, u := range c.upstreams() {
		for _, status := range u.HealthChecks.Passive.UnhealthyStatus {
			text := strconv.Itoa(status)
			if status == 4 {
				text = "4xx"
			}
			if status == 4 || status/100 == 4 {
				c.report("GH028", u.pointer+"/health_checks/passive/unhealthy_status", "a request to which the data service responds with %s makes it unhealthy", text)
			}
		}
		active := u.HealthChecks.Active
		if active == nil {
			continue
		}
		if active.URI != "" && !strings.HasPrefix(active.URI, "/") {
			c.report("GH028", u.pointer+"/health_checks/active/uri", "health_uri %s must be a path such as /healthz", active.URI)
		} else if c.servesBelow(active.URI) && (active.ExpectStatus == 0 || active.ExpectStatus/100 == 2 || active.ExpectStatus == 2) && c.app != nil && c.app.Assertion != nil {
			c.report("GH028", u.pointer+"/health_checks/active/uri", "health checks carry no assertion, without which the data service must not respond to %s", active.URI)
		}
	}
}

func (c *checker) checkConnections() {
	inFlight := c.defaults.InFlight
	if c.app != nil {
		inFlight = cmp.Or(c.app.Limits.InFlight, inFlight)
	}
	for _, u := range c.upstreams() {
		if u.DynamicUpstreamsRaw != nil { // each has so many, and how many there are is not known
			continue
		}
		if n := u.transport.MaxConnsPerHost * max(1, len(u.Upstreams)); n > 0 && n <= inFlight {
			c.report("GH069", u.pointer+"/transport/max_conns_per_host", "the data service has at most %d connections, and one key may have %d calls in progress", n, inFlight)
		}
	}
}

// checkAudiences looks for services with the same assertions, each of which can use those that it gets at the other.
func (c *checker) checkAudiences() {
	if c.app == nil || c.app.Assertion == nil {
		return
	}
	first := map[string]*handlerConfig{}
	for _, h := range c.handlers {
		if h.Name != authName || len(h.upstreams) == 0 {
			continue
		}
		audience, _ := h.Value["audience"].(string)
		name, _ := h.Value["name"].(string)
		audience = cmp.Or(audience, name, "auth")
		other := first[audience]
		if other == nil {
			first[audience] = h
		} else if !slices.ContainsFunc(slices.Concat(h.upstreams, other.upstreams), func(s *serviceConfig) bool { return s.Upstreams == nil }) && // not dynamic
			!slices.ContainsFunc(h.upstreams, func(s *serviceConfig) bool { return slices.ContainsFunc(other.upstreams, s.sharesAddress) }) {
			c.report("GH075", h.Pointer, "assertions for this service have the audience %s, as those for another service", audience)
		}
	}
}

// servesBelow reports whether a path is below the base path of an API.
func (c *checker) servesBelow(path string) bool {
	return slices.ContainsFunc(c.handlers, func(h *handlerConfig) bool {
		if h.api == nil {
			return false
		}
		api := c.defaults.API(h.Value)
		return api != nil && strings.HasPrefix(path, api.Base()+"/")
	})
}
