package check

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/vault"
	"github.com/gatehouse-gateway/gatehouse/connect/audit"
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

// liveChecker asks the stores, the data services and the operating system.
type liveChecker struct {
	*checker
	Live
}

// checkLive builds the configuration, and checks what it uses. It says on progress what takes long.
func (c *checker) checkLive(ctx context.Context, dir string, o Options) (err error) {
	built, err := c.build(c.Raw, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, built.close()) }()
	c.business = cmp.Or(o.Business, c.business)
	l := &liveChecker{c, o.Live(built.app, built.handlers)}
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

// hasWrites reports whether a gatehouse_api has signed writes.
func (l *liveChecker) hasWrites() bool {
	return slices.ContainsFunc(l.handlers, func(h *handlerConfig) bool {
		if h.api == nil {
			return false
		}
		api := l.defaults.API(h.Value)
		return api != nil && slices.ContainsFunc(api.Operations(), func(op *upstream.Operation) bool { return !op.Read && !op.Public })
	})
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
	if hello, err := client.Do(ctx, "HELLO").Result(); err != nil {
		l.skip("the version of Redis", "%v", err)
	} else {
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
		if err != nil {
			l.skip("the slots of the Redis Cluster", "%v", err)
		} else if covered < 16384 {
			l.report("GH035", pointer, "the Cluster serves %d of 16384 slots", covered)
			return // commands fail, depending on the slot of their key
		}
	}
	l.probeRedisCommands(ctx, client)
	if now, err := client.Time(ctx).Result(); err == nil && time.Until(now).Abs() > maxClockDifference {
		l.report("GH043", pointer, "the clocks of Redis and this machine differ by %s", time.Until(now).Abs().Round(time.Second))
	}
	// In a Cluster, settings are those of one node; all should be alike.
	info := map[string]string{}
	for _, section := range []string{"memory", "persistence"} {
		text, err := client.Info(ctx, section).Result()
		if redis.HasErrorPrefix(err, "NOPERM") {
			err = errors.New("its user may not run INFO, which +info permits")
		}
		if err != nil {
			l.skip("memory policy and persistence of Redis", "%v", err)
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
	if info["aof_enabled"] != "0" {
		return
	}
	switch {
	case l.hasConnect():
		l.report("GH034", pointer, "Redis stores connections of assistants, and appendonly is no")
	case l.hasWrites():
		l.report("GH034", pointer, "Redis stores which signed writes were accepted, and appendonly is no")
	case slices.ContainsFunc(l.handlers, func(h *handlerConfig) bool { return h.Name == authName }):
		l.report("GH067", pointer, "somebody who has recorded a signed write to a gatehouse_auth can repeat it when Redis has restarted, because appendonly is no")
	}
}

// probeRedisCommands runs each command that the gateway uses, to find out whether it is permitted. Commands for other types fail on
// the string key without changing it. Keys expire after a second.
func (l *liveChecker) probeRedisCommands(ctx context.Context, client redis.UniversalClient) {
	const pointer = "/apps/gatehouse/redis"
	const ratePrefix = "rate:" // of redis_rate
	type command []any
	random := uuid.NewString()
	key := ratelimit.DefaultPrefix + "check:" + random
	commands := []command{
		{"SET", key, "", "PX", 1000},
		{"GET", key},
		{"TIME"},
		{"EVAL", "return redis.call('TIME')", 1, key},
		{"PUBLISH", "gatehouse:check", ""},
		{"DEL", key},
	}
	gcra := func(key string) []command {
		return []command{{"GET", ratePrefix + key}, {"EVAL", "return redis.call('TIME')", 1, ratePrefix + key}}
	}
	if l.app.Limits.Algorithm == string(ratelimit.GCRA) {
		commands = append(commands, gcra(key)...)
	}
	if l.hasConnect() {
		key := audit.DefaultPrefix + "check:" + random
		commands = append(commands, command{"SET", key, "", "PX", 1000})
		for _, name := range []string{"HGETALL", "HLEN", "HRANDFIELD", "SMEMBERS", "ZCARD", "PTTL"} {
			commands = append(commands, command{name, key})
		}
		for _, name := range []string{"HGET", "HMGET", "HDEL", "SADD", "SREM", "ZREM", "ZSCORE"} {
			commands = append(commands, command{name, key, "x"})
		}
		commands = append(commands, command{"HSET", key, "x", "x"}, command{"HSETNX", key, "x", "x"}, command{"HINCRBY", key, "x", 1},
			command{"ZADD", key, 1, "x"}, command{"ZRANGE", key, 0, 0}, command{"ZREMRANGEBYSCORE", key, 0, 0},
			command{"LPUSH", key, "x"}, command{"LRANGE", key, 0, 0}, command{"LREM", key, 0, "x"}, command{"LTRIM", key, 0, 0},
			command{"XADD", key, "*", "x", "x"}, command{"XREVRANGE", key, "+", "-", "COUNT", 1}, command{"XTRIM", key, "MAXLEN", 0},
			command{"EXPIRE", key, 1}, command{"PEXPIRE", key, 1000}, command{"GETEX", key, "PX", 1000}, command{"DEL", key})
		commands = append(commands, gcra(key)...)
	}
	var denied []string
	try := func(name string, err error) bool {
		switch {
		case err == nil, errors.Is(err, redis.Nil), redis.HasErrorPrefix(err, "WRONGTYPE"):
		case redis.HasErrorPrefix(err, "NOPERM") && !slices.Contains(denied, name):
			denied = append(denied, name)
		case redis.HasErrorPrefix(err, "NOPERM"):
		default:
			l.report("GH030", pointer, "Redis refuses %s: %v", name, err)
			return false
		}
		return true
	}
	for _, c := range commands {
		name := fmt.Sprint(c[0])
		if slices.ContainsFunc(c, func(arg any) bool { return strings.HasPrefix(fmt.Sprint(arg), ratePrefix) }) {
			name += " for " + ratePrefix + "gatehouse:*"
		}
		if !try(name, client.Do(ctx, c...).Err()) {
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
		l.report("GH031", pointer, "the user of Redis may not run %s on the gateway's keys", strings.Join(denied, ", "))
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
		l.report("GH040", pointer, "asking Vault failed: %v", err)
		return
	}
	switch {
	case found.Hidden:
		l.skip("the capabilities of the login to Vault", "it may not ask for them: let its policy update sys/capabilities-self")
	case found.Root:
		l.report("GH042", pointer, "the gateway logs in to Vault with a root token")
	case len(found.Surplus) > 0:
		l.report("GH042", pointer, "the login has capabilities that the gateway does not need: %s", strings.Join(found.Surplus, ", "))
	}
	if len(found.Missing) > 0 {
		l.report("GH041", pointer, "the login lacks capabilities: %s", strings.Join(found.Missing, ", "))
	} else if _, err := source.Lookup(ctx, "pk_live_check0000000"); err != nil && !errors.Is(err, authsigner.ErrUnknownKey) {
		l.report("GH041", pointer, "reading an entry failed: %v", err)
	} else if _, err := source.Lookup(ctx, "check0000000"); errors.Is(err, authsigner.ErrDenied) {
		l.report("GH049", pointer, "Vault denies the entry of the key check0000000, and not that of pk_live_check0000000")
	}
	if found.ClockAhead.Abs() > maxClockDifference {
		l.report("GH043", pointer, "the clocks of Vault and this machine differ by %s", found.ClockAhead.Abs())
	}
	if found.Took > slowVault {
		l.report("GH044", pointer, "Vault took %s to respond", found.Took.Round(time.Millisecond))
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
			switch {
			case err == nil:
				_ = listener.Close()
			case !errors.Is(err, syscall.EADDRINUSE):
				l.skip("the listen address "+address, "%v", err)
			case !slices.Contains(running(), address):
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
