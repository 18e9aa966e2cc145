package caddymodule

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/vault"
	"github.com/gatehouse-gateway/gatehouse/connect"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

const (
	// probeTimeout limits each probe; after probeQuiet, the command says what it is waiting for.
	probeTimeout = 10 * time.Second
	probeQuiet   = time.Second

	// maxClockDifference is a tenth of the time for which a signature is valid.
	maxClockDifference = 30 * time.Second
	slowVault          = 500 * time.Millisecond

	minRedisVersion = 7
)

// builtConfig is a configuration whose modules have been provisioned, but not started.
type builtConfig struct {
	*checkedConfig

	app      *App
	handlers []caddyhttp.MiddlewareHandler // parallel to gatehouseHandlers

	note func(message string, args ...any) // about something that could not be checked
}

// build provisions a configuration, and returns the error as a [loadError]. Its modules may write to the directory.
func (c *checkedConfig) build(raw json.RawMessage, dir string) (*builtConfig, error) {
	var cfg *caddy.Config
	if err := caddy.StrictUnmarshalJSON(raw, &cfg); err != nil {
		return nil, c.decodeError(err)
	}
	// "tls internal" creates a certificate authority while it is built.
	cfg.StorageRaw = caddyconfig.JSON(map[string]string{"module": "file_system", "root": dir}, nil)
	if cfg.Logging == nil {
		cfg.Logging = new(caddy.Logging)
	}
	// The modules' logs would be about a gateway that starts, which this one does not.
	cfg.Logging.Logs = map[string]*caddy.CustomLog{"default": {BaseLog: caddy.BaseLog{WriterRaw: []byte(`{"output":"discard"}`)}}}
	ctx, err := caddy.ProvisionContext(cfg)
	if err != nil {
		return nil, c.loadFailure(err)
	}
	b := &builtConfig{checkedConfig: c}
	if mod, err := ctx.AppIfConfigured(appName); err == nil {
		b.app, _ = mod.(*App)
	}
	mod, err := ctx.AppIfConfigured("http")
	if err != nil {
		return b, nil //nolint:nilerr // it is not configured
	}
	app, _ := mod.(*caddyhttp.App)
	for _, name := range slices.Sorted(maps.Keys(c.servers)) { // as handlers()
		b.collect(app.Servers[name].Routes, app.Servers[name].Errors)
	}
	return b, nil
}

// collect adds the handlers of routes. Those that Caddy has added, such as redirects to HTTPS, are left out.
func (b *builtConfig) collect(routes caddyhttp.RouteList, errors *caddyhttp.HTTPErrorConfig) {
	for _, route := range routes {
		for _, handler := range route.Handlers {
			switch m := handler.(type) {
			case *API, *Connect:
				b.handlers = append(b.handlers, handler)
			case *caddyhttp.Subroute:
				b.collect(m.Routes, m.Errors)
			}
		}
	}
	if errors != nil {
		b.collect(errors.Routes, nil)
	}
}

// close releases the clients, which Caddy does only for a configuration that runs.
func (b *builtConfig) close() error {
	var errs []error
	for _, h := range b.handlers {
		if h, ok := h.(caddy.CleanerUpper); ok {
			errs = append(errs, h.Cleanup())
		}
	}
	if b.app != nil {
		errs = append(errs, b.app.Cleanup())
	}
	return errors.Join(errs...)
}

// checkLive asks the stores, the data services and the operating system. It says on progress what takes long.
func (b *builtConfig) checkLive(ctx context.Context, progress io.Writer) {
	b.note = func(message string, args ...any) { _, _ = fmt.Fprintf(progress, "Not checked: "+message+"\n", args...) }
	for _, p := range []struct {
		what string
		run  func(context.Context)
	}{
		{"Redis", b.probeRedis},
		{"the credential source", b.probeCredentials},
		{"data services", b.probeDataServices},
		{"listen addresses", b.probeListeners},
	} {
		waiting := time.AfterFunc(probeQuiet, func() { _, _ = fmt.Fprintf(progress, "Checking %s …\n", p.what) })
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		p.run(ctx)
		cancel()
		waiting.Stop()
	}
}

func (b *builtConfig) hasConnect() bool {
	return slices.ContainsFunc(b.gatehouseHandlers, func(h *checkedHandler) bool { return h.connect != nil })
}

func (b *builtConfig) probeRedis(ctx context.Context) {
	if b.app == nil || b.app.redis == nil {
		return
	}
	const pointer = "/apps/gatehouse/redis"
	client := b.app.redis.client
	if err := client.Ping(ctx).Err(); err != nil {
		b.report("GH030", pointer, "Redis does not respond: %v", err)
		return
	}
	if hello, err := client.Do(ctx, "HELLO").Result(); err == nil {
		if helloField(hello, "mode") == "cluster" && !b.app.Redis.Cluster {
			b.report("GH035", pointer, "this Redis is a node of a Cluster, but the option cluster is missing")
			return
		}
		version := helloField(hello, "version")
		if major, err := strconv.Atoi(strings.SplitN(version, ".", 2)[0]); err == nil && major < minRedisVersion {
			b.report("GH032", pointer, "the version of Redis is %s", version)
		}
	}
	if b.app.Redis.Cluster {
		slots, err := client.ClusterSlots(ctx).Result()
		covered := 0
		for _, s := range slots {
			covered += s.End - s.Start + 1
		}
		if err == nil && covered < 16384 {
			b.report("GH035", pointer, "the Cluster serves %d of 16384 slots", covered)
			return // commands fail, depending on the slot of their key
		}
	}
	b.probeRedisCommands(ctx, client)
	// In a Cluster, settings are those of one node; all should be alike.
	info := map[string]string{}
	for _, section := range []string{"memory", "persistence"} {
		text, err := client.Info(ctx, section).Result()
		if err != nil {
			b.note("memory policy and persistence of Redis, because its user may not run INFO")
			return
		}
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			info[name] = value
		}
	}
	if policy := info["maxmemory_policy"]; policy != "" && policy != "noeviction" && info["maxmemory"] != "0" {
		b.report("GH033", pointer, "maxmemory-policy of Redis is %s", policy)
	}
	if b.hasConnect() && info["aof_enabled"] == "0" {
		b.report("GH034", pointer, "Redis stores connections of assistants, and appendonly is no")
	}
}

// probeRedisCommands runs each command that the gateway uses, to find out whether it is permitted. Commands for other types fail on
// the string key without changing it. Keys expire after a second.
func (b *builtConfig) probeRedisCommands(ctx context.Context, client redis.UniversalClient) {
	const pointer = "/apps/gatehouse/redis"
	type command []any
	random := uuid.NewString()
	key := ratelimit.DefaultPrefix + "check:" + random
	commands := []command{
		{"SET", key, "", "PX", 1000},
		{"GET", key},
		{"TIME"},
		{"EVAL", "return redis.call('TIME')", 1, key},
		{"PUBLISH", "gatehouse:check", ""},
	}
	if b.app.Limits.Algorithm == "gcra" {
		commands = append(commands, command{"DEL", "rate:" + key})
	}
	if b.hasConnect() {
		key := connect.DefaultPrefix + "check:" + random
		commands = append(commands, command{"SET", key, "", "PX", 1000})
		for _, name := range []string{"HGETALL", "HLEN", "SMEMBERS", "ZCARD", "PTTL"} {
			commands = append(commands, command{name, key})
		}
		for _, name := range []string{"HGET", "HMGET", "HDEL", "SADD", "SREM", "ZREM", "ZSCORE"} {
			commands = append(commands, command{name, key, "x"})
		}
		commands = append(commands, command{"HSET", key, "x", "x"}, command{"ZADD", key, 1, "x"}, command{"ZRANGE", key, 0, 0},
			command{"ZREMRANGEBYSCORE", key, 0, 0}, command{"EXPIRE", key, 1}, command{"PEXPIRE", key, 1000})
	}
	var denied []string
	try := func(name string, err error) bool {
		switch {
		case err == nil, errors.Is(err, redis.Nil), redis.HasErrorPrefix(err, "WRONGTYPE"):
		case redis.HasErrorPrefix(err, "NOPERM"):
			denied = append(denied, name)
		default:
			b.report("GH030", pointer, "Redis refuses %s: %v", name, err)
			return false
		}
		return true
	}
	for _, c := range commands {
		if !try(fmt.Sprint(c[0]), client.Do(ctx, c...).Err()) {
			return
		}
	}
	if b.hasConnect() {
		_, err := client.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Get(ctx, key).Err() })
		if !try("MULTI", err) {
			return
		}
	}
	sub := client.Subscribe(ctx, invalidationChannel)
	_, err := sub.Receive(ctx)
	_ = sub.Close()
	try("SUBSCRIBE", err)
	if len(denied) > 0 {
		b.report("GH031", pointer, "the user of Redis may not run %s on the gateway's keys", strings.Join(slices.Compact(denied), ", "))
	}
}

// helloField returns a field of the reply to HELLO, which is a map or a list of names and values.
func helloField(reply any, name string) string {
	switch r := reply.(type) {
	case map[any]any:
		return fmt.Sprint(r[name])
	case []any:
		for i := 0; i+1 < len(r); i += 2 {
			if r[i] == name {
				return fmt.Sprint(r[i+1])
			}
		}
	}
	return ""
}

func (b *builtConfig) probeCredentials(ctx context.Context) {
	if b.app == nil || b.app.credentials == nil {
		return
	}
	const pointer = "/apps/gatehouse/credentials"
	manage := slices.ContainsFunc(b.gatehouseHandlers, func(h *checkedHandler) bool { return h.connect != nil && h.connect.ManageKeys })
	source, ok := b.app.credentials.store.(*vault.Source)
	if !ok {
		return
	}
	found, err := source.Inspect(ctx, manage)
	if err != nil {
		b.report("GH040", pointer, "Vault cannot be used: %v", err)
		return
	}
	switch {
	case found.Root:
		b.report("GH042", pointer, "the gateway logs in to Vault with a root token")
	case len(found.Surplus) > 0:
		b.report("GH042", pointer, "the login has capabilities that the gateway does not need: %s", strings.Join(found.Surplus, ", "))
	}
	if len(found.Missing) > 0 {
		b.report("GH041", pointer, "the login lacks capabilities: %s", strings.Join(found.Missing, ", "))
	} else if _, err := source.Lookup(ctx, "pk_live_check0000000"); err != nil && !errors.Is(err, authsigner.ErrUnknownKey) {
		b.report("GH041", pointer, "reading an entry failed: %v", err)
	}
	if found.ClockAhead.Abs() > maxClockDifference {
		b.report("GH043", pointer, "the clocks of Vault and this machine differ by %s", found.ClockAhead.Abs())
	}
	if found.Took > slowVault {
		b.report("GH044", pointer, "Vault took %s to respond", found.Took.Round(time.Millisecond))
	}
}

// checkBusiness is the business for which data services are asked. It has no records.
const checkBusiness = "gatehouse-check"

func (b *builtConfig) probeDataServices(ctx context.Context) {
	seen := map[string]bool{}
	for i, h := range b.gatehouseHandlers {
		switch m := b.handlers[i].(type) {
		case *API:
			for j, u := range m.Upstreams {
				res := upstream.ByName(proxiedNames()[0])
				served, _ := m.served() // it was valid when it was built
				for _, name := range proxiedNames() {
					if cmp.Or(served[name], served[""]) == u {
						res = upstream.ByName(name)
					}
				}
				assert := func(requestID string) (string, error) {
					return b.app.asserter.Assert(res.Name, checkBusiness, requestID)
				}
				b.probeDataService(ctx, h.upstreams[j], u.service, res.Path, assert, seen)
			}
		case *Connect:
			assert := func(requestID string) (string, error) {
				return b.app.asserter.Assert(upstream.ConnectAudience, checkBusiness, requestID)
			}
			b.probeDataService(ctx, h.upstreams[0], m.service, "/connect/v1/check", assert, seen)
		}
	}
}

// probeDataService asks each address of a data service, with a hop assertion if one is configured, and then without, and its
// health_uri.
func (b *builtConfig) probeDataService(
	ctx context.Context, u *checkedUpstream, service *dataService, path string, assert func(string) (string, error), seen map[string]bool,
) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://gatehouse.invalid"+path, http.NoBody)
	if err != nil {
		return // the path is constant
	}
	req = caddyhttp.PrepareRequest(req, caddy.NewReplacer(), discard{}, new(caddyhttp.Server))
	req.RequestURI = req.URL.RequestURI()
	backends, err := service.backends(req, 0)
	if err != nil {
		b.report("GH050", u.pointer, "the addresses of the data service are not known: %v", err)
		return
	}
	for i, backend := range backends {
		at := fmt.Sprintf("%s/upstreams/%d", u.pointer, i)
		ask := func(path string, asserted bool) (int, error) {
			ctx, cancel := context.WithTimeout(ctx, probeTimeout/4)
			defer cancel()
			out := req.Clone(req.Context()) //nolint:contextcheck // it is derived from ctx
			target, err := url.ParseRequestURI(path)
			if err != nil {
				return 0, fmt.Errorf("parsing the path: %w", err)
			}
			out.URL, out.RequestURI = target, path
			id := uuid.NewString()
			out.Header = http.Header{
				"Accept": {"application/json"}, "Accept-Encoding": {"identity"}, "User-Agent": {""},
				upstream.HeaderBusinessID: {checkBusiness}, upstream.HeaderRequestID: {id},
			}
			if asserted && b.app.asserter != nil {
				assertion, err := assert(id)
				if err != nil {
					return 0, err
				}
				out.Header.Set(upstream.HeaderAssertion, assertion)
			}
			deadline, _ := ctx.Deadline()
			return service.exchange(out, deadline, backend, &upstreamResponse{maxSize: upstream.DefaultMaxResponseSize})
		}
		key := backend.dial.Address + path
		if seen[key] {
			continue
		}
		seen[key] = true
		status, err := ask(path, true)
		if err != nil {
			b.report("GH050", at, "the data service at %s does not respond: %v", backend.dial.Address, err)
			continue
		}
		if status >= http.StatusInternalServerError {
			b.report("GH050", at, "the data service at %s responds with %d", backend.dial.Address, status)
		}
		if active := u.HealthChecks.Active; active != nil && strings.HasPrefix(active.URI, "/") && active.Port == 0 && active.Upstream == "" {
			health, err := ask(active.URI, false)
			if err == nil && !caddyhttp.StatusCodeMatches(health, cmp.Or(active.ExpectStatus, 2)) {
				b.report("GH050", u.pointer+"/health_checks/active/uri", "the data service at %s responds with %d to health_uri %s", backend.dial.Address, health, active.URI)
			}
		}
		if b.app.asserter == nil {
			continue
		}
		if status == http.StatusUnauthorized {
			b.report("GH052", at, "the data service at %s responds with 401 to a request with an assertion", backend.dial.Address)
			continue
		}
		// A 404 proves nothing: the data service may not have the path.
		if status, err := ask(path, false); err == nil && status < http.StatusMultipleChoices {
			b.report("GH051", at, "the data service at %s responds with %d to a request without an assertion", backend.dial.Address, status)
		}
	}
}

// probeListeners reports addresses in use, unless a gateway that runs on this machine has them.
func (b *builtConfig) probeListeners(ctx context.Context) {
	running := sync.OnceValue(func() []string { return b.runningAddresses(ctx) })
	for _, s := range b.servers {
		for _, address := range s.Listen {
			a, err := caddy.ParseNetworkAddress(address)
			if err != nil || a.Network != "tcp" {
				continue // only TCP is checked; Caddy replaces the file of a Unix socket
			}
			l, err := new(net.ListenConfig).Listen(ctx, a.Network, a.JoinHostPort(0))
			if err == nil {
				_ = l.Close()
			} else if errors.Is(err, syscall.EADDRINUSE) && !slices.Contains(running(), address) {
				b.report("GH060", s.pointer, "another process listens on %s", address)
			}
		}
	}
}

// runningAddresses returns the addresses of the gateway that runs with the configuration's admin API.
func (b *builtConfig) runningAddresses(ctx context.Context) []string {
	if b.admin.Disabled {
		return nil
	}
	response := make(chan []string, 1)
	go func() { // AdminAPIRequest takes no context
		var addresses []string
		resp, err := caddycmd.AdminAPIRequest(cmp.Or(b.admin.Listen, caddy.DefaultAdminListen), http.MethodGet, "/config/apps/http/servers", nil, nil)
		if err == nil {
			var servers map[string]struct {
				Listen []string `json:"listen"`
			}
			_ = json.NewDecoder(resp.Body).Decode(&servers)
			_ = resp.Body.Close()
			for _, s := range servers {
				addresses = append(addresses, s.Listen...)
			}
		}
		response <- addresses
	}()
	select {
	case addresses := <-response:
		return addresses
	case <-ctx.Done():
		return nil
	}
}
