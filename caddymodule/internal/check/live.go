package check

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// Live is what live checks use of a configuration that has been built.
type Live struct {
	// Redis is nil if it is not configured.
	Redis redis.UniversalClient

	// Channel is the Redis channel for revoked keys.
	Channel string

	// Vault is nil if credentials are stored elsewhere.
	Vault *vault.Source

	// Services are the data services of each handler, in the order of the configuration.
	Services [][]Service
}

// Service is a data service.
type Service struct {
	// Path is what to ask for.
	Path string

	// Assert returns a hop assertion. It is nil if none are configured.
	Assert func(businessID, requestID string) (string, error)

	// Backends returns the backends to which a request may go.
	Backends func(*http.Request) ([]Backend, error)
}

// Backend is one server of a data service.
type Backend struct {
	Address string // host and port, or the path of a socket

	// Send sends a request there and returns the status of the response.
	Send func(r *http.Request, deadline time.Time) (status int, err error)
}

// liveChecker asks the stores, the data services and the operating system.
type liveChecker struct {
	*checker
	Live

	progress io.Writer
}

// note says what could not be checked.
func (l *liveChecker) note(message string, args ...any) {
	_, _ = fmt.Fprintf(l.progress, "Not checked: "+message+"\n", args...)
}

// checkLive builds the configuration, and checks what it uses. It says on progress what takes long.
func (c *checker) checkLive(ctx context.Context, dir string, o Options) (err error) {
	built, err := c.build(c.Raw, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, built.close()) }()
	l := &liveChecker{c, o.Live(built.app, built.handlers), o.Progress}
	for _, p := range []struct {
		what string
		run  func(context.Context)
	}{
		{"Redis", l.probeRedis},
		{"the credential source", l.probeCredentials},
		{"data services", l.probeDataServices},
		{"listen addresses", l.probeListeners},
	} {
		waiting := time.AfterFunc(probeQuiet, func() { _, _ = fmt.Fprintf(o.Progress, "Checking %s …\n", p.what) })
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		p.run(ctx)
		cancel()
		waiting.Stop()
	}
	return nil
}

func (l *liveChecker) hasConnect() bool {
	return slices.ContainsFunc(l.handlers, func(h *handlerConfig) bool { return h.connect != nil })
}

func (l *liveChecker) probeRedis(ctx context.Context) {
	client := l.Redis
	if client == nil {
		return
	}
	const pointer = "/apps/gatehouse/redis"
	if err := client.Ping(ctx).Err(); err != nil {
		l.report("GH030", pointer, "Redis does not respond: %v", err)
		return
	}
	if hello, err := client.Do(ctx, "HELLO").Result(); err == nil {
		if helloField(hello, "mode") == "cluster" && !l.app.Redis.Cluster {
			l.report("GH035", pointer, "this Redis is a node of a Cluster, but the option cluster is missing")
			return
		}
		version := helloField(hello, "version")
		if major, err := strconv.Atoi(strings.SplitN(version, ".", 2)[0]); err == nil && major < minRedisVersion {
			l.report("GH032", pointer, "the version of Redis is %s", version)
		}
	}
	if l.app.Redis.Cluster {
		slots, err := client.ClusterSlots(ctx).Result()
		covered := 0
		for _, s := range slots {
			covered += s.End - s.Start + 1
		}
		if err == nil && covered < 16384 {
			l.report("GH035", pointer, "the Cluster serves %d of 16384 slots", covered)
			return // commands fail, depending on the slot of their key
		}
	}
	l.probeRedisCommands(ctx, client)
	// In a Cluster, settings are those of one node; all should be alike.
	info := map[string]string{}
	for _, section := range []string{"memory", "persistence"} {
		text, err := client.Info(ctx, section).Result()
		if err != nil {
			l.note("memory policy and persistence of Redis, because its user may not run INFO")
			return
		}
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			info[name] = value
		}
	}
	if policy := info["maxmemory_policy"]; policy != "" && policy != "noeviction" && info["maxmemory"] != "0" {
		l.report("GH033", pointer, "maxmemory-policy of Redis is %s", policy)
	}
	if l.hasConnect() && info["aof_enabled"] == "0" {
		l.report("GH034", pointer, "Redis stores connections of assistants, and appendonly is no")
	}
}

// probeRedisCommands runs each command that the gateway uses, to find out whether it is permitted. Commands for other types fail on
// the string key without changing it. Keys expire after a second.
func (l *liveChecker) probeRedisCommands(ctx context.Context, client redis.UniversalClient) {
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
	if l.app.Limits.Algorithm == "gcra" {
		commands = append(commands, command{"DEL", "rate:" + key})
	}
	if l.hasConnect() {
		key := connect.Prefix + "check:" + random
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
			l.report("GH030", pointer, "Redis refuses %s: %v", name, err)
			return false
		}
		return true
	}
	for _, c := range commands {
		if !try(fmt.Sprint(c[0]), client.Do(ctx, c...).Err()) {
			return
		}
	}
	if l.hasConnect() {
		_, err := client.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Get(ctx, key).Err() })
		if !try("MULTI", err) {
			return
		}
	}
	sub := client.Subscribe(ctx, l.Channel)
	_, err := sub.Receive(ctx)
	_ = sub.Close()
	try("SUBSCRIBE", err)
	if len(denied) > 0 {
		l.report("GH031", pointer, "the user of Redis may not run %s on the gateway's keys", strings.Join(slices.Compact(denied), ", "))
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

func (l *liveChecker) probeCredentials(ctx context.Context) {
	source := l.Vault
	if source == nil {
		return
	}
	const pointer = "/apps/gatehouse/credentials"
	manage := slices.ContainsFunc(l.handlers, func(h *handlerConfig) bool { return h.connect != nil && h.connect.ManageKeys })
	found, err := source.Inspect(ctx, manage)
	if err != nil {
		l.report("GH040", pointer, "Vault cannot be used: %v", err)
		return
	}
	switch {
	case found.Root:
		l.report("GH042", pointer, "the gateway logs in to Vault with a root token")
	case len(found.Surplus) > 0:
		l.report("GH042", pointer, "the login has capabilities that the gateway does not need: %s", strings.Join(found.Surplus, ", "))
	}
	if len(found.Missing) > 0 {
		l.report("GH041", pointer, "the login lacks capabilities: %s", strings.Join(found.Missing, ", "))
	} else if _, err := source.Lookup(ctx, "pk_live_check0000000"); err != nil && !errors.Is(err, authsigner.ErrUnknownKey) {
		l.report("GH041", pointer, "reading an entry failed: %v", err)
	}
	if found.ClockAhead.Abs() > maxClockDifference {
		l.report("GH043", pointer, "the clocks of Vault and this machine differ by %s", found.ClockAhead.Abs())
	}
	if found.Took > slowVault {
		l.report("GH044", pointer, "Vault took %s to respond", found.Took.Round(time.Millisecond))
	}
}

// checkBusiness is the business for which data services are asked. It has no records.
const checkBusiness = "gatehouse-check"

func (l *liveChecker) probeDataServices(ctx context.Context) {
	seen := map[string]bool{}
	for i, services := range l.Services {
		for j, service := range services {
			l.probeDataService(ctx, l.handlers[i].upstreams[j], service, seen)
		}
	}
}

// probeDataService asks each address of a data service, with a hop assertion if one is configured, and then without, and its
// health_uri.
func (l *liveChecker) probeDataService(ctx context.Context, u *serviceConfig, service Service, seen map[string]bool) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://gatehouse.invalid"+service.Path, http.NoBody)
	if err != nil {
		return // the path is constant
	}
	req = caddyhttp.PrepareRequest(req, caddy.NewReplacer(), nil, new(caddyhttp.Server))
	req.RequestURI = req.URL.RequestURI()
	backends, err := service.Backends(req)
	if err != nil {
		l.report("GH050", u.pointer, "the addresses of the data service are not known: %v", err)
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
			if asserted && service.Assert != nil {
				assertion, err := service.Assert(checkBusiness, id)
				if err != nil {
					return 0, err
				}
				out.Header.Set(upstream.HeaderAssertion, assertion)
			}
			deadline, _ := ctx.Deadline()
			return backend.Send(out, deadline)
		}
		key := backend.Address + service.Path
		if seen[key] {
			continue
		}
		seen[key] = true
		status, err := ask(service.Path, true)
		if err != nil {
			l.report("GH050", at, "the data service at %s does not respond: %v", backend.Address, err)
			continue
		}
		if status >= http.StatusInternalServerError {
			l.report("GH050", at, "the data service at %s responds with %d", backend.Address, status)
		}
		if active := u.HealthChecks.Active; active != nil && strings.HasPrefix(active.URI, "/") && active.Port == 0 && active.Upstream == "" {
			health, err := ask(active.URI, false)
			if err == nil && !caddyhttp.StatusCodeMatches(health, cmp.Or(active.ExpectStatus, 2)) {
				l.report("GH050", u.pointer+"/health_checks/active/uri", "the data service at %s responds with %d to health_uri %s", backend.Address, health, active.URI)
			}
		}
		if service.Assert == nil {
			continue
		}
		if status == http.StatusUnauthorized {
			l.report("GH052", at, "the data service at %s responds with 401 to a request with an assertion", backend.Address)
			continue
		}
		// A 404 proves nothing: the data service may not have the path.
		if status, err := ask(service.Path, false); err == nil && status < http.StatusMultipleChoices {
			l.report("GH051", at, "the data service at %s responds with %d to a request without an assertion", backend.Address, status)
		}
	}
}

// probeListeners reports addresses in use, unless a gateway that runs on this machine has them.
func (l *liveChecker) probeListeners(ctx context.Context) {
	running := sync.OnceValue(func() []string { return l.runningAddresses(ctx) })
	for _, s := range l.servers {
		for _, address := range s.Listen {
			a, err := caddy.ParseNetworkAddress(address)
			if err != nil || a.Network != "tcp" {
				continue // only TCP is checked; Caddy replaces the file of a Unix socket
			}
			listener, err := new(net.ListenConfig).Listen(ctx, a.Network, a.JoinHostPort(0))
			if err == nil {
				_ = listener.Close()
			} else if errors.Is(err, syscall.EADDRINUSE) && !slices.Contains(running(), address) {
				l.report("GH060", s.pointer, "another process listens on %s", address)
			}
		}
	}
}

// runningAddresses returns the addresses of the gateway that runs with the configuration's admin API.
func (l *liveChecker) runningAddresses(ctx context.Context) []string {
	if l.admin.Disabled {
		return nil
	}
	response := make(chan []string, 1)
	go func() { // AdminAPIRequest takes no context
		var addresses []string
		resp, err := caddycmd.AdminAPIRequest(cmp.Or(l.admin.Listen, caddy.DefaultAdminListen), http.MethodGet, "/config/apps/http/servers", nil, nil)
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
