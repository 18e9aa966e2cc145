package caddymodule

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
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
			title:   "The issuer of `gatehouse_connect` is not a host or port of its site",
			example: "`issuer https://auth.example.com` on the site `api.example.com`",
			fix:     "Set issuer to the site's public origin, or add it to the site's addresses",
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
			title:   "An option has no effect",
			example: "`read_body 5s` with the default `body_timeout`; `client_ip_headers` without `trusted_proxies`",
			fix:     "Remove it, or correct what the message names",
			static:  checkIneffective,
		},
		{
			id: "GH007", severity: severityError,
			title:   "Too many addresses are trusted proxies, so callers can choose their client IP",
			example: "`trusted_proxies static 0.0.0.0/0`, or `allow` of `proxy_protocol` with it",
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
			title:   "Reloads may drop requests, or connections that have just been accepted",
			example: "`servers` without the listener wrapper `gatehouse_drain`; `grace_period 5s`",
			fix:     "Add gatehouse_drain to the listener_wrappers of servers, and set grace_period to more than the timeouts of handlers",
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
			title:   "A log contains signatures, which are valid for 5 minutes, query values, or TLS keys",
			example: "`log` on the API's site",
			fix:     "Remove it, since the gateway logs each request, or filter request>uri and request>headers>X-Signature as docs/operating.md shows",
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
			id: "GH022", severity: severityError,
			title:   "A handler in front of the gateway's breaks requests or responses",
			example: "`templates` or `request_header -X-Signature` on the API's site",
			fix:     "Remove it, or give it a matcher that excludes them",
			static:  checkBroken,
		},
		{
			id: "GH023", severity: severityWarning,
			title:   "Callers of the API can read the gateway's metrics",
			example: "`metrics /metrics` on the API's site",
			fix:     "Serve metrics on another port that callers cannot reach, or to the addresses of remote_ip only",
			static:  checkMetrics,
		},
		{
			id: "GH024", severity: severityWarning,
			title:   "Signatures, tokens and records travel unencrypted",
			example: "`http://api.example.com` beside `https://api.example.com`",
			fix:     "Use an https address and automatic HTTPS or tls; if a load balancer terminates TLS, name it with trusted_proxies",
			static:  checkSiteTLS,
		},
		{
			id: "GH025", severity: severityError,
			title:   "The certificate of a site is missing, has expired, or is not for its hosts or not trusted",
			example: "`tls cert.pem key.pem` with a certificate for another name",
			fix:     "Replace the certificate, or let Caddy obtain one",
			static:  checkCertificates,
		},
		{
			id: "GH026", severity: severityWarning,
			title:   "Other users of this machine, or callers, can read or replace a file with a secret",
			example: "`assertion key.pem` with the permissions 0644",
			fix:     "Set its permissions to 0600, or to 0640 if a group must read it, and keep it out of directories that are served",
			static:  checkSecretFiles,
		},
		{
			id: "GH027", severity: severityError,
			title:   "The gateway is its own data service",
			example: "`upstream https://api.example.com` on the site `api.example.com`",
			fix:     "Name the address of the data service",
			static:  checkLoop,
		},
		{
			id: "GH028", severity: severityError,
			title:   "Health checks take a working data service out of use",
			example: "`unhealthy_status 4xx`, which callers can cause",
			fix:     "Count only statuses of 500 and above as unhealthy, and ask a path that responds with 200 to requests without an assertion",
			static:  checkHealthChecks,
		},
		{
			id: "GH029", severity: severityWarning,
			title:   "The log lacks the causes of failed requests, and changes by assistants and owners",
			example: "`log { level ERROR }` in the global options",
			fix:     "Let a log with the level INFO have an output",
			static:  checkDefaultLog,
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
			static:  func(c *checkedConfig, r report) { checkRecords(c, r, true) },
		},
		{
			id: "GH046", severity: severityWarning,
			title:   "A record in the credential file has expired, or has members that the gateway ignores",
			example: "`ressources`, which leaves the key unrestricted",
			fix:     "Correct or remove the member, or revoke the key",
			static:  func(c *checkedConfig, r report) { checkRecords(c, r, false) },
		},
		{
			id: "GH047", severity: severityWarning,
			title:   "A revoked key may keep working for long",
			example: "`ttl 24h` in `cache`",
			fix:     "Use a ttl of at most 5m, and a stale_if_error of at most 24h",
			static:  checkCache,
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
		} else if listen := c.servers[h.server].Listen; u.Port() != "" && !isLocal(u.Host) && !slices.ContainsFunc(listen, func(a string) bool { return strings.HasSuffix(a, ":"+u.Port()) }) {
			r(h.pointer+"/issuer", "the issuer %s is not served by its site, which listens on %s", h.module.Issuer, strings.Join(listen, ", "))
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

func checkIneffective(c *checkedConfig, r report) {
	for _, h := range c.apis {
		s := c.servers[h.server]
		own := cmp.Or(time.Duration(h.module.BodyTimeout), defaultBodyTimeout)
		if read := time.Duration(s.ReadTimeout); read > 0 && read < own {
			r(s.pointer+"/read_timeout", "read_body is %s, but gatehouse_api sets its own: body_timeout is %s", read, own)
		}
	}
	for _, s := range c.ours() {
		if s.ClientIPHeaders != nil && s.TrustedProxies == nil {
			r(s.pointer+"/client_ip_headers", "client_ip_headers has no effect without trusted_proxies")
		}
		for i, w := range s.ListenerWrappers {
			if w.Wrapper == "proxy_protocol" && w.Allow == nil {
				r(fmt.Sprintf("%s/listener_wrappers/%d/proxy_protocol", s.pointer, i), "proxy_protocol ignores all addresses without allow, which names the load balancers")
			}
		}
	}
	services := func(h placedHandler, timeout time.Duration, upstreams []checkedUpstream) {
		for _, u := range upstreams {
			for pointer, value := range map[string]caddy.Duration{
				"/load_balancing/try_duration": u.LoadBalancing.TryDuration, "/transport/dial_timeout": u.Transport.DialTimeout,
			} {
				if name := directivesOf(path.Base(pointer))[0]; time.Duration(value) > timeout {
					r(u.pointer+pointer, "%s is %s, but %s ends requests after its timeout of %s", name, time.Duration(value), h.name, timeout)
				}
			}
			if active := u.HealthChecks.Active; active != nil && active.URI == "" && active.Path == "" {
				r(u.pointer+"/health_checks", "options of active health checks have no effect without health_uri")
			}
		}
	}
	for _, h := range c.apis {
		services(h.placedHandler, cmp.Or(time.Duration(h.module.Timeout), defaultUpstreamTimeout), h.upstreams)
	}
	for _, h := range c.connect {
		services(h.placedHandler, cmp.Or(time.Duration(h.module.Timeout), data.DefaultTimeout), h.upstreams)
	}
	if c.global == nil {
		return
	}
	n := 0
	for _, option := range c.global.children {
		if option.name != "servers" {
			continue
		}
		if len(option.args) > 0 && !slices.ContainsFunc(slices.Collect(maps.Values(c.servers)), func(s *checkedServer) bool { return slices.Contains(s.Listen, option.args[0]) }) {
			r(fmt.Sprintf("/servers/%d", n), "servers %s has no effect: no site listens on exactly this address", option.args[0])
		}
		n++
	}
}

func checkTrustedRanges(c *checkedConfig, r report) {
	for _, s := range c.servers {
		var proxies struct {
			Source string   `json:"source"`
			Ranges []string `json:"ranges"`
		}
		ranges := map[string][]string{}
		if json.Unmarshal(s.TrustedProxies, &proxies) == nil && proxies.Source == "static" {
			ranges[s.pointer+"/trusted_proxies"] = proxies.Ranges
		}
		for i, w := range s.ListenerWrappers {
			ranges[fmt.Sprintf("%s/listener_wrappers/%d/allow", s.pointer, i)] = w.Allow
		}
		checkRanges(ranges, r)
	}
}

func checkRanges(ranges map[string][]string, r report) {
	for pointer, list := range ranges {
		for _, text := range list {
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
				r(pointer, "%s is trusted", text)
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

// public returns those of our servers that have sites for other machines.
func (c *checkedConfig) public() []*checkedServer {
	return slices.DeleteFunc(c.ours(), func(s *checkedServer) bool {
		return !slices.ContainsFunc(c.placed, func(h placedHandler) bool { return c.servers[h.server] == s && !isDevelopment(h.hosts) }) ||
			!slices.ContainsFunc(s.Listen, func(address string) bool { return !isLocal(address) })
	})
}

// isDevelopment reports whether a site is only for this machine.
func isDevelopment(hosts []string) bool {
	return hosts != nil && !slices.ContainsFunc(hosts, func(host string) bool { return !isLocal(host) })
}

func checkCatchAll(c *checkedConfig, r report) {
	for _, s := range c.public() {
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
	for _, s := range c.public() {
		wrapped := false
		for _, w := range s.ListenerWrappers {
			wrapped = wrapped || w.Wrapper == "gatehouse_drain"
		}
		if !wrapped {
			r(s.pointer, "the server on %s has no listener wrapper gatehouse_drain", strings.Join(s.Listen, ", "))
		}
	}
	c.timeouts(func(h placedHandler, timeout time.Duration) {
		if c.gracePeriod > 0 && c.gracePeriod <= timeout {
			r("/apps/http/grace_period", "reloads end responses after %s, but the timeout of %s is %s", c.gracePeriod, h.name, timeout)
		}
	})
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
	for _, u := range c.upstreams() {
		for _, name := range []string{"Authorization", "Cookie", "X-Api-Key"} {
			literal(u.pointer+"/headers/request/set/"+name, "the header "+name+" for the data service", u.Headers.Request.Set.Get(name))
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
	for _, h := range c.placed {
		if value, _ := h.value["value"].(string); h.name == "log_append" && loggedSecret.MatchString(value) {
			r(h.pointer, "log_append adds %s to log entries", value)
		}
	}
	for _, s := range c.ours() {
		for i, p := range s.TLSConnectionPolicies {
			if p.InsecureSecretsLog != "" {
				r(fmt.Sprintf("%s/tls_connection_policies/%d/insecure_secrets_log", s.pointer, i), "insecure_secrets_log writes keys that decrypt all traffic")
			}
		}
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
			served := func(h placedHandler) bool {
				return strings.HasPrefix(h.name, "gatehouse_") && (host == "" || h.hosts == nil && host == "*" || slices.Contains(h.hosts, host))
			}
			if slices.ContainsFunc(c.placed, served) && slices.ContainsFunc(names[host], func(name string) bool {
				return !c.filtersSignatures(strings.TrimSuffix("http.log.access."+name, "."))
			}) {
				r(s.pointer+"/logs/logger_names/"+host, "the access log does not remove signatures and query values")
				break
			}
		}
	}
}

// loggedSecret matches placeholders of what logs must not contain.
var loggedSecret = regexp.MustCompile(`(?i)\{http\.request\.(header\.(X-Signature|Authorization|Cookie)|(orig_)?uri(\.query.*)?|(orig_)?uri\.prefixed_query)\}`)

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

func checkDefaultLog(c *checkedConfig, r report) {
	for _, l := range c.logs {
		var writer struct{ Output string }
		_ = json.Unmarshal(l.WriterRaw, &writer) // Caddy's loader reports errors
		// A level that is a placeholder is not known here.
		if writer.Output != "discard" && !slices.Contains([]string{"WARN", "ERROR", "PANIC", "FATAL"}, strings.ToUpper(l.Level)) {
			return
		}
	}
	if c.logs["default"] != nil {
		r("/logging/logs/default", "no log has messages of the level INFO")
	}
}

func checkCache(c *checkedConfig, r report) {
	if c.app == nil {
		return
	}
	for name, o := range map[string]struct{ value, most time.Duration }{
		"ttl":            {time.Duration(c.app.Cache.TTL), 5 * time.Minute},
		"stale_if_error": {time.Duration(c.app.Cache.StaleIfError), 24 * time.Hour},
	} {
		if o.value > o.most {
			r("/apps/gatehouse/cache/"+name, "%s is %s", name, o.value)
		}
	}
}

func checkMetrics(c *checkedConfig, r report) {
	for _, h := range c.placed {
		if h.name != "metrics" || !slices.Contains(c.public(), c.servers[h.server]) {
			continue
		}
		site, _ := json.Marshal(h.routes[0].list[h.routes[0].index]) //nolint:errchkjson // it was decoded from JSON
		if !bytes.Contains(site, []byte(`_ip":{"ranges"`)) && !bytes.Contains(site, []byte(`"authentication"`)) {
			r(h.pointer, "the site of metrics is reachable by callers of the API")
		}
	}
}

func checkSiteTLS(c *checkedConfig, r report) {
	for _, s := range c.public() {
		onlyHTTP := !slices.ContainsFunc(s.Listen, func(a string) bool { return !strings.HasSuffix(a, fmt.Sprintf(":%d", c.httpPort)) })
		encrypted := s.TLSConnectionPolicies != nil
		var ours placedHandler
		for _, h := range c.placed {
			if c.servers[h.server] != s {
				continue
			}
			if slices.ContainsFunc(h.hosts, func(host string) bool { return !slices.Contains(s.AutomaticHTTPS.Skip, host) }) {
				encrypted = encrypted || !onlyHTTP && !s.AutomaticHTTPS.Disable
			}
			if h.name == apiName || h.name == "gatehouse_connect" {
				ours = h
			}
		}
		if !encrypted && s.TrustedProxies == nil && !slices.ContainsFunc(s.ListenerWrappers, func(w listenerWrapper) bool { return w.Wrapper == "proxy_protocol" }) {
			r(ours.pointer, "the server on %s does not use TLS", strings.Join(s.Listen, ", "))
		}
	}
}

func checkLoop(c *checkedConfig, r report) {
	serves := func(h placedHandler, dial string) bool {
		to, err := caddy.ParseNetworkAddress(dial)
		return err == nil && (h.name == apiName || h.name == "gatehouse_connect") && slices.ContainsFunc(c.servers[h.server].Listen, func(listen string) bool {
			own, err := caddy.ParseNetworkAddress(listen)
			return h.hosts == nil && sameAddress(dial, listen) || err == nil && own.StartPort == to.StartPort &&
				slices.ContainsFunc(h.hosts, func(host string) bool { return hostMatches(host, to.Host) })
		})
	}
	for _, u := range c.upstreams() {
		for i, to := range u.Upstreams {
			if slices.ContainsFunc(c.placed, func(h placedHandler) bool { return serves(h, to.Dial) }) {
				r(fmt.Sprintf("%s/upstreams/%d", u.pointer, i), "this gateway itself serves %s", to.Dial)
			}
		}
	}
}

func checkHealthChecks(c *checkedConfig, r report) {
	for _, u := range c.upstreams() {
		for _, status := range u.HealthChecks.Passive.UnhealthyStatus {
			text := strconv.Itoa(status)
			if status == 4 {
				text = "4xx"
			}
			if status == 4 || status/100 == 4 {
				r(u.pointer+"/health_checks/passive/unhealthy_status", "a request to which the data service responds with %s makes it unhealthy", text)
			}
		}
		active := u.HealthChecks.Active
		if active == nil {
			continue
		}
		if active.URI != "" && !strings.HasPrefix(active.URI, "/") {
			r(u.pointer+"/health_checks/active/uri", "health_uri %s must be a path such as /healthz", active.URI)
		} else if strings.HasPrefix(active.URI, apiPrefix+"/") && (active.ExpectStatus == 0 || active.ExpectStatus/100 == 2 || active.ExpectStatus == 2) && c.app != nil && c.app.Assertion != nil {
			r(u.pointer+"/health_checks/active/uri", "health checks carry no assertion, without which the data service must not respond to %s", active.URI)
		}
	}
}
