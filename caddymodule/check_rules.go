package caddymodule

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
)

// rules returns all rules by ID. docs/check.md lists them.
func rules() []rule {
	return []rule{
		{
			id: "GH001", severity: severityError,
			title:   "The configuration cannot be loaded",
			example: "`timeout never`", fix: "Correct it: docs/directives describes each option",
		},
		{
			id: "GH002", severity: severityError,
			title:   "The issuer of `gatehouse_connect` is not a host of its site",
			example: "`issuer https://auth.example.com` on the site `api.example.com`",
			fix:     "Set issuer to the site's public origin, or add its host to the site's addresses",
			static:  checkIssuer,
		},
		{
			id: "GH003", severity: severityError,
			title:   "A matcher excludes requests that a handler of the gateway must serve",
			example: "`handle /api/v1/` around `gatehouse_api`",
			fix:     "Write a matcher with a star, such as /api/v1* or /mcp*, or none; if the API is mounted below another path, set base_path to that",
			static:  checkReachable,
		},
		{
			id: "GH004", severity: severityError,
			title:   "Another handler responds to requests that a handler of the gateway must serve",
			example: "`respond \"Hello\"` on the API's site",
			fix:     "Give it a matcher that excludes them, or move it to another site",
			static:  checkShadow,
		},
		{
			id: "GH005", severity: severityError,
			title:   "The server's write timeout is not longer than that of a handler",
			example: "`write 10s` with the default `timeout` of `gatehouse_api`",
			fix:     "Set write in the timeouts of servers to more than the handler's timeout",
			static:  checkWriteTimeout,
		},
		{
			id: "GH006", severity: severityWarning,
			title:   "The server's timeout for bodies has no effect, because the API sets its own",
			example: "`read_body 5s` with the default `body_timeout`",
			fix:     "Set body_timeout of gatehouse_api instead",
			static:  checkReadTimeout,
		},
		{
			id: "GH007", severity: severityError,
			title:   "Too many addresses are trusted proxies, so callers can choose their client IP",
			example: "`trusted_proxies static 0.0.0.0/0`",
			fix:     "Name only the addresses of your own load balancers",
			static:  checkTrustedRanges,
		},
		{
			id: "GH008", severity: severityError,
			title:   "Trusted proxies without `trusted_proxies_strict`, so callers can choose their client IP",
			example: "`trusted_proxies static 10.0.0.0/8` alone",
			fix:     "Add trusted_proxies_strict to servers",
			static:  checkStrictProxies,
		},
		{
			id: "GH009", severity: severityWarning,
			title:   "No site responds to requests for other hosts: Caddy sends an empty 200",
			example: "`api.example.com` as the only site",
			fix:     "Add a site with gatehouse_errors that has the same port and no host, such as :8080, or http:// and https://",
			static:  checkCatchAll,
		},
		{
			id: "GH010", severity: severityWarning,
			title:   "Reloads may drop connections that have just been accepted",
			example: "`servers` without the listener wrapper `gatehouse_drain`",
			fix:     "Add gatehouse_drain to the listener_wrappers of servers",
			static:  checkDrain,
		},
		{
			id: "GH011", severity: severityError,
			title:   "The admin API, which can change everything, is reachable from other machines",
			example: "`admin :2019`",
			fix:     "Use a loopback address or a Unix socket for admin, and do not proxy to it",
			static:  checkAdmin,
		},
		{
			id: "GH012", severity: severityError,
			title:   "A secret is part of the configuration, which the admin API and `gatehouse adapt` show",
			example: "`password {$REDIS_PASSWORD}`",
			fix:     "Write {file./path} or {env.NAME}, which are resolved when the gateway starts",
			static:  checkSecrets,
		},
		{
			id: "GH013", severity: severityWarning,
			title:   "Traffic to another machine is not encrypted",
			example: "`redis redis://redis.internal:6379`",
			fix:     "Use TLS: rediss:// for Redis, https:// for Vault and data services, unless you trust everybody on the network between the machines",
			static:  func(c *checkedConfig, r report) { checkPlaintext(c, r, false) },
		},
		{
			id: "GH014", severity: severityError,
			title:   "Traffic to a public address is not encrypted",
			example: "`credentials vault http://203.0.113.7:8200`",
			fix:     "Use TLS: rediss:// for Redis, https:// for Vault and data services",
			static:  func(c *checkedConfig, r report) { checkPlaintext(c, r, true) },
		},
		{
			id: "GH015", severity: severityError,
			title:   "The certificate of a data service is not verified",
			example: "`tls_insecure_skip_verify`",
			fix:     "Name the certificate authority with tls_trust_pool, and the name in the certificate with tls_server_name",
			static:  checkVerification,
		},
		{
			id: "GH016", severity: severityWarning,
			title:   "A data service on another machine cannot verify that requests come from the gateway",
			example: "`upstream http://data.internal:8080` without `assertion`",
			fix:     "Set assertion in the global option gatehouse, unless only gateways can reach the data service",
			static:  checkAssertion,
		},
		{
			id: "GH017", severity: severityError,
			title:   "Error responses have a success status",
			example: "`handle_errors { respond \"Sorry\" 200 }`",
			fix:     "Remove the status, or use gatehouse_errors",
			static:  checkErrorStatus,
		},
		{
			id: "GH018", severity: severityError,
			title:   "An access log contains signatures, which are valid for 5 minutes, and query values",
			example: "`log` on the API's site",
			fix:     "Remove log, since the gateway logs each request, or filter request>uri and request>headers>X-Signature as docs/operating.md shows",
			static:  checkAccessLogs,
		},
		{
			id: "GH019", severity: severityWarning,
			title:   "There are no rate limits while Redis is unavailable",
			example: "`on_outage allow`",
			fix:     "Use on_outage local, which enforces the limits on each gateway",
			static: func(c *checkedConfig, r report) {
				if c.app != nil && c.app.Limits.OnOutage == "allow" {
					r("/apps/gatehouse/limits/on_outage", "on_outage is allow")
				}
			},
		},
		{
			id: "GH020", severity: severityWarning,
			title:   "Rate limits are not enforced",
			example: "`shadow`",
			fix:     "Remove shadow when you have seen which callers the limits affect",
			static: func(c *checkedConfig, r report) {
				if c.app != nil && c.app.Limits.Shadow {
					r("/apps/gatehouse/limits/shadow", "limits are in shadow mode")
				}
			},
		},
		{
			id: "GH021", severity: severityWarning,
			title:   "The gateway does not detect records of other businesses",
			example: "`allow_missing_tenant`",
			fix:     "Let data services send the tenant field, and remove allow_missing_tenant",
			static: func(c *checkedConfig, r report) {
				for _, h := range c.apis {
					if h.module.AllowMissingTenant {
						r(h.pointer+"/allow_missing_tenant", "records without a tenant field are accepted")
					}
				}
			},
		},
		{
			id: "GH030", severity: severityError,
			title:   "Redis does not respond, or refuses commands",
			example: "Redis is not running, read-only or out of memory",
			fix:     "Start Redis, and correct its address, TLS, user or password",
		},
		{
			id: "GH031", severity: severityError,
			title:   "The user of Redis may not run a command that the gateway uses",
			example: "an ACL without `+@scripting`",
			fix:     "Give the user the permissions that docs/operating.md lists, or docs/connect.md if gatehouse_connect is used",
		},
		{
			id: "GH032", severity: severityWarning,
			title:   "The version of Redis is older than those that are tested",
			example: "Redis 6",
			fix:     "Use Redis 7 or newer",
		},
		{
			id: "GH033", severity: severityError,
			title:   "Redis may evict keys, which loses limits and connections of assistants",
			example: "`maxmemory-policy allkeys-lru`",
			fix:     "Set maxmemory-policy noeviction",
		},
		{
			id: "GH034", severity: severityError,
			title:   "Connections of assistants are lost when Redis restarts",
			example: "`appendonly no` with `gatehouse_connect`",
			fix:     "Set appendonly yes and appendfsync everysec, or stricter, in Redis",
		},
		{
			id: "GH035", severity: severityError,
			title:   "The Redis Cluster does not serve all keys, or the option `cluster` is missing",
			example: "a Cluster without `cluster`",
			fix:     "Add the option cluster to redis, or repair the Cluster",
		},
		{
			id: "GH040", severity: severityError,
			title:   "Vault does not respond, or refuses the login",
			example: "a secret id that has expired",
			fix:     "Correct the address or the login of credentials vault",
		},
		{
			id: "GH041", severity: severityError,
			title:   "The policy in Vault is too narrow",
			example: "a policy for another path",
			fix:     "Give the login the policy deploy/vault-policy.hcl, or deploy/vault-policy-operator.hcl for manage_keys, for this mount and path",
		},
		{
			id: "GH042", severity: severityWarning,
			title:   "The policy in Vault is too wide",
			example: "a root token",
			fix:     "Give the login the policy deploy/vault-policy.hcl only",
		},
		{
			id: "GH043", severity: severityWarning,
			title:   "The clocks of Vault and of this machine differ",
			example: "a difference of a minute",
			fix:     "Synchronise the clocks: signatures are valid for 5 minutes around the gateway's clock",
		},
		{
			id: "GH044", severity: severityWarning,
			title:   "Vault responds slowly, which delays requests whose key is not cached",
			example: "more than half a second",
			fix:     "Move Vault nearer, or find out why it is slow",
		},
		{
			id: "GH045", severity: severityError,
			title:   "A record in the credential file is malformed: its key cannot be used",
			example: "a record without `private_key`",
			fix:     "Correct the field that the message names, or revoke the key",
		},
		{
			id: "GH050", severity: severityError,
			title:   "A data service does not respond, or responds with an error",
			example: "a name that does not resolve",
			fix:     "Correct the address or TLS settings of upstream, or start the data service",
		},
		{
			id: "GH051", severity: severityError,
			title:   "A data service responds to requests that carry no assertion, so others can read its records",
			example: "a data service that ignores `X-Gateway-Assertion`",
			fix:     "Let the data service verify the assertion as docs/data-services.md describes",
		},
		{
			id: "GH052", severity: severityError,
			title:   "A data service rejects the gateway's assertion",
			example: "another issuer than the data service expects",
			fix:     "Compare issuer, audience_prefix, keys and clocks on both sides",
		},
		{
			id: "GH060", severity: severityError,
			title:   "Another process listens on an address of the configuration",
			example: "a web server on port 443",
			fix:     "Stop the other process, or use another address",
		},
	}
}

func checkIssuer(c *checkedConfig, r report) {
	for _, h := range c.connect {
		u, err := url.Parse(h.module.Issuer)
		if err != nil || u.Hostname() == "" || strings.Contains(h.module.Issuer, "{") || h.hosts == nil {
			continue // an invalid one cannot be loaded; placeholders are not resolved; the site serves all hosts
		}
		if !slices.ContainsFunc(h.hosts, func(site string) bool { return hostMatches(site, u.Hostname()) }) {
			r(h.pointer+"/issuer", "the issuer %s is not served by its site, whose hosts are %s", h.module.Issuer, strings.Join(h.hosts, ", "))
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

// timeouts calls f with each handler's timeout.
func (c *checkedConfig) timeouts(f func(h placedHandler, timeout time.Duration)) {
	for _, h := range c.apis {
		f(h.placedHandler, cmp.Or(time.Duration(h.module.Timeout), defaultUpstreamTimeout))
	}
	for _, h := range c.connect {
		f(h.placedHandler, cmp.Or(time.Duration(h.module.Timeout), data.DefaultTimeout))
	}
}

func checkWriteTimeout(c *checkedConfig, r report) {
	c.timeouts(func(h placedHandler, timeout time.Duration) {
		s := c.servers[h.server]
		if write := time.Duration(s.WriteTimeout); write > 0 && write <= timeout {
			r(s.pointer+"/write_timeout", "responses may take %s, but the timeout of %s is %s", write, h.name, timeout)
		}
	})
}

func checkReadTimeout(c *checkedConfig, r report) {
	for _, h := range c.apis {
		s := c.servers[h.server]
		own := cmp.Or(time.Duration(h.module.BodyTimeout), defaultBodyTimeout)
		if read := time.Duration(s.ReadTimeout); read > 0 && read < own {
			r(s.pointer+"/read_timeout", "read_body is %s, but gatehouse_api waits %s for a body", read, own)
		}
	}
}

func checkTrustedRanges(c *checkedConfig, r report) {
	for _, s := range c.servers {
		var proxies struct {
			Source string   `json:"source"`
			Ranges []string `json:"ranges"`
		}
		if json.Unmarshal(s.TrustedProxies, &proxies) != nil || proxies.Source != "static" {
			continue
		}
		for _, text := range proxies.Ranges {
			p, err := netip.ParsePrefix(text)
			if err != nil || p.Addr().IsPrivate() || p.Addr().IsLoopback() || p.Addr().IsLinkLocalUnicast() {
				continue
			}
			if p.Addr().Is4() && p.Bits() < 8 || p.Addr().Is6() && p.Bits() < 16 {
				r(s.pointer+"/trusted_proxies", "%s is trusted", text)
			}
		}
	}
}

func checkStrictProxies(c *checkedConfig, r report) {
	for _, s := range c.servers {
		if s.TrustedProxies != nil && s.TrustedProxiesStrict == 0 {
			r(s.pointer+"/trusted_proxies", "the client IP is the first address in X-Forwarded-For, which callers can set")
		}
	}
}

// ours returns the servers that have handlers of ours for callers.
func (c *checkedConfig) ours() []*checkedServer {
	var found []*checkedServer
	for _, h := range c.placed {
		s := c.servers[h.server]
		if (h.name == apiName || h.name == "gatehouse_connect") && !slices.Contains(found, s) {
			found = append(found, s)
		}
	}
	return found
}

func checkCatchAll(c *checkedConfig, r report) {
	for _, s := range c.ours() {
		site := ""
		for _, h := range c.placed {
			if h.isError || c.servers[h.server] != s {
				continue
			}
			if h.hosts == nil {
				site = ""
				break
			}
			site = cmp.Or(site, fmt.Sprintf("%s/%d", h.routes[0].pointer, h.routes[0].index))
		}
		if site != "" {
			r(site, "requests to %s for other hosts have no site", strings.Join(s.Listen, ", "))
		}
	}
}

func checkDrain(c *checkedConfig, r report) {
	for _, s := range c.ours() {
		wrapped := false
		for _, w := range s.ListenerWrappers {
			wrapped = wrapped || w.Wrapper == "gatehouse_drain"
		}
		if !wrapped {
			r(s.pointer, "the server on %s has no listener wrapper gatehouse_drain", strings.Join(s.Listen, ", "))
		}
	}
}

func checkAdmin(c *checkedConfig, r report) {
	if c.admin.Disabled {
		return
	}
	listen := cmp.Or(c.admin.Listen, caddy.DefaultAdminListen)
	if !strings.Contains(listen, "{") && !isLocal(listen) {
		r("/admin/listen", "the admin API listens on %s", listen)
	}
	for _, h := range c.placed {
		if h.name != "reverse_proxy" {
			continue
		}
		raw, _ := json.Marshal(h.value) //nolint:errchkjson // it was decoded from JSON
		for i, u := range upstreamOf(h.pointer, raw).Upstreams {
			if sameAddress(u.Dial, listen) {
				r(fmt.Sprintf("%s/upstreams/%d", h.pointer, i), "a site passes requests on to the admin API at %s", listen)
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

func checkSecrets(c *checkedConfig, r report) {
	literal := func(pointer, what, value string) {
		if value != "" && !strings.Contains(value, "{") {
			r(pointer, "%s is in the configuration as plain text, directly or through {$…}", what)
		}
	}
	if c.app == nil {
		return
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
	if c.vault != nil && c.vault.Auth != nil {
		literal("/apps/gatehouse/credentials/auth/token", "the token for Vault", c.vault.Auth.Token)
		literal("/apps/gatehouse/credentials/auth/secret_id", "the secret id for Vault", c.vault.Auth.SecretID)
	}
}

// remote calls f for each address on another machine.
func (c *checkedConfig) remote(f func(pointer, what, address string, plain bool)) {
	add := func(pointer, what, address string, plain bool) {
		if !strings.Contains(address, "{") && !isLocal(address) {
			f(pointer, what, address, plain)
		}
	}
	if c.app != nil && c.app.Redis != nil {
		for _, text := range c.app.Redis.URLs {
			if u, err := url.Parse(text); err == nil && u.Scheme != "unix" {
				add("/apps/gatehouse/redis", "Redis", u.Host, u.Scheme == "redis" && c.app.Redis.TLS == nil)
			}
		}
	}
	if c.vault != nil {
		if u, err := url.Parse(c.vault.Address); err == nil {
			add("/apps/gatehouse/credentials", "Vault", u.Host, u.Scheme == "http")
		}
	}
	for _, s := range c.upstreams() {
		for i, u := range s.Upstreams {
			add(fmt.Sprintf("%s/upstreams/%d", s.pointer, i), "the data service", u.Dial, s.Transport.TLS == nil)
		}
		if s.DynamicUpstreams != nil {
			f(s.pointer, "the data service", "dynamic addresses", s.Transport.TLS == nil)
		}
	}
}

func checkPlaintext(c *checkedConfig, r report, public bool) {
	c.remote(func(pointer, what, address string, plain bool) {
		if plain && isPublic(address) == public {
			r(pointer, "%s at %s is used without TLS", what, address)
		}
	})
}

func checkVerification(c *checkedConfig, r report) {
	for _, u := range c.upstreams() {
		if u.Transport.TLS != nil && u.Transport.TLS.InsecureSkipVerify {
			r(u.pointer+"/transport/tls/insecure_skip_verify", "tls_insecure_skip_verify accepts any certificate")
		}
	}
}

func checkAssertion(c *checkedConfig, r report) {
	if c.app == nil || c.app.Assertion != nil {
		return
	}
	var (
		first     string
		addresses []string
	)
	c.remote(func(pointer, what, address string, _ bool) {
		if what == "the data service" && !slices.Contains(addresses, address) {
			first = cmp.Or(first, pointer)
			addresses = append(addresses, address)
		}
	})
	if first != "" {
		r(first, "requests to %s carry no assertion", strings.Join(addresses, ", "))
	}
}

func checkErrorStatus(c *checkedConfig, r report) {
	for _, h := range c.placed {
		if !h.isError || h.name != "static_response" {
			continue
		}
		if status := fmt.Sprint(h.value["status_code"]); len(status) == 3 && status[0] == '2' {
			r(h.pointer, "error responses have the status %s", status)
		}
	}
}

func checkAccessLogs(c *checkedConfig, r report) {
	for _, s := range c.ours() {
		if s.Logs == nil {
			continue
		}
		if s.Logs.ShouldLogCredentials {
			r(s.pointer+"/logs/should_log_credentials", "log_credentials writes all headers to access logs")
			continue
		}
		names := s.Logs.LoggerNames
		if len(names) == 0 {
			names = map[string][]string{"": {s.Logs.DefaultLoggerName}}
		}
		for _, host := range slices.Sorted(maps.Keys(names)) {
			if slices.ContainsFunc(names[host], func(name string) bool {
				return !c.filtersSignatures(strings.TrimSuffix("http.log.access."+name, "."))
			}) {
				r(s.pointer+"/logs/logger_names/"+host, "the access log does not remove signatures and query values")
				break
			}
		}
	}
}

// filtersSignatures reports whether each log that gets the entries of a logger removes signatures and query values.
func (c *checkedConfig) filtersSignatures(logger string) bool {
	has := func(prefixes []string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return p == logger || strings.HasPrefix(logger, p+".") })
	}
	logs := maps.Clone(c.logs)
	if logs["default"] == nil { // Caddy adds one
		if logs == nil {
			logs = map[string]*caddy.CustomLog{}
		}
		logs["default"] = new(caddy.CustomLog)
	}
	for _, l := range logs {
		if len(l.Include) > 0 && !has(l.Include) || has(l.Exclude) {
			continue
		}
		var (
			encoder struct {
				Format string                     `json:"format"`
				Fields map[string]json.RawMessage `json:"fields"`
			}
			writer struct {
				Output string `json:"output"`
			}
		)
		_ = json.Unmarshal(l.EncoderRaw, &encoder)
		_ = json.Unmarshal(l.WriterRaw, &writer)
		filters := func(field string) bool {
			return encoder.Fields[field] != nil || encoder.Fields["request"] != nil
		}
		headers := filters("request>headers") || filters("request>headers>X-Signature")
		if writer.Output != "discard" && (encoder.Format != "filter" || !headers || !filters("request>uri")) {
			return false
		}
	}
	return true
}
