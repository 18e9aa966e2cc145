package caddymodule

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/dustin/go-humanize"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// option is one option of a block. When parse is called, the dispenser's current token is the option's name.
type option struct {
	name       string
	parse      func(d *caddyfile.Dispenser) error
	repeatable bool
}

// parseBlock parses a block of options. Unknown options are errors, and so are duplicate ones that are not repeatable.
func parseBlock(d *caddyfile.Dispenser, what string, options ...option) error {
	seen := make(map[string]bool, len(options))
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		name := d.Val()
		i := slices.IndexFunc(options, func(o option) bool { return o.name == name })
		switch {
		case i < 0:
			var names []string
			for _, o := range options {
				names = append(names, o.name)
			}
			return d.Errf("unknown option %q of %s: must be one of %s", name, what, strings.Join(names, ", "))
		case seen[name] && !options[i].repeatable:
			return d.Errf("duplicate option %q of %s", name, what)
		}
		seen[name] = true
		if err := options[i].parse(d); err != nil {
			return err
		}
	}
	return nil
}

// noBlock returns an error if a block follows.
func noBlock(d *caddyfile.Dispenser, what string) error {
	if d.NextBlock(d.Nesting()) {
		return d.Errf("%s takes no block", what)
	}
	return nil
}

// onlyMatcher returns an error if a directive has arguments. Its matcher has been removed.
func onlyMatcher(d *caddyfile.Dispenser) error {
	name := d.Val()
	if args := d.RemainingArgs(); len(args) > 0 {
		return d.Errf("%s takes no arguments except a matcher, got: %s", name, strings.Join(args, " "))
	}
	return nil
}

// oneArg parses exactly one argument.
func oneArg(d *caddyfile.Dispenser, what string) (string, error) {
	args := d.RemainingArgs()
	if len(args) != 1 {
		return "", d.Errf("%s takes exactly one argument, got %d", what, len(args))
	}
	return args[0], nil
}

// block returns an option that takes no arguments, only a block.
func block(name string, options ...option) option {
	return option{name: name, parse: func(d *caddyfile.Dispenser) error {
		if d.CountRemainingArgs() > 0 {
			return d.Errf("%s takes no arguments, only a block", name)
		}
		return parseBlock(d, name, options...)
	}}
}

// value returns an option with one argument. parse reports whether the argument is valid.
func value[T any](name, valid string, dst *T, parse func(v string) (T, bool)) option {
	return option{name: name, parse: func(d *caddyfile.Dispenser) error {
		v, err := oneArg(d, name)
		if err != nil {
			return err
		}
		parsed, ok := parse(v)
		if !ok {
			return d.Errf("invalid %s %q: must be %s", name, v, valid)
		}
		*dst = parsed
		return nil
	}}
}

func duration(name string, dst *caddy.Duration) option {
	return value(name, "a positive duration such as 50ms, 10s or 1h", dst, func(v string) (caddy.Duration, bool) {
		d, err := caddy.ParseDuration(v)
		return caddy.Duration(d), err == nil && d > 0
	})
}

func number(name string, dst *int) option {
	return value(name, "a positive whole number", dst, func(v string) (int, bool) {
		n, err := strconv.Atoi(v)
		return n, err == nil && n > 0
	})
}

func size(name string, dst *int64) option {
	return value(name, "a positive size such as 64KiB or 8MiB", dst, func(v string) (int64, bool) {
		n, err := humanize.ParseBytes(v)
		return int64(n), err == nil && n > 0 && n <= 1<<40 //nolint:gosec // G115: at most 1<<40
	})
}

func choice(name string, dst *string, allowed ...string) option {
	return value(name, "one of "+strings.Join(allowed, ", "), dst, func(v string) (string, bool) {
		return v, slices.Contains(allowed, v)
	})
}

func text(name string, dst *string) option {
	return option{name: name, parse: func(d *caddyfile.Dispenser) error {
		v, err := oneArg(d, name)
		if err == nil && v == "" {
			err = d.Errf("%s must not be empty", name)
		}
		*dst = v
		return err
	}}
}

func texts(name string, dst *[]string) option {
	return option{name: name, parse: func(d *caddyfile.Dispenser) error {
		if *dst = d.RemainingArgs(); len(*dst) == 0 {
			return d.Errf("%s needs at least one argument", name)
		}
		return nil
	}}
}

func flag(name string, dst *bool) option {
	return option{name: name, parse: func(d *caddyfile.Dispenser) error {
		if d.CountRemainingArgs() > 0 {
			return d.Errf("%s takes no arguments", name)
		}
		*dst = true
		return nil
	}}
}

func tlsFiles(dst **TLSConfig) option {
	return option{name: "tls", parse: func(d *caddyfile.Dispenser) error {
		c := new(TLSConfig)
		*dst = c
		return block("tls",
			text("ca", &c.CA),
			text("cert", &c.Cert),
			text("key", &c.Key),
			text("server_name", &c.ServerName),
		).parse(d)
	}}
}

// parseAppOption parses the global option. Syntax:
//
//	gatehouse {
//	    redis <urls...> {
//	        sentinel <master> [<username> <password>]
//	        cluster
//	        username <name>
//	        password <password>
//	        tls {
//	            ca          <file>
//	            cert        <file>
//	            key         <file>
//	            server_name <name>
//	        }
//	        timeout      <duration>
//	        dial_timeout <duration>
//	        pool_size    <n>
//	    }
//	    credentials vault <address> { ... }
//	    credentials file <path>
//	    cache {
//	        ttl            <duration>
//	        negative_ttl   <duration>
//	        refresh_before <duration>
//	        stale_if_error <duration>
//	        lookup_timeout <duration>
//	        max_entries    <n>
//	        max_lookups    <n>
//	    }
//	    limits {
//	        per_key   <n>
//	        per_ip    <n>
//	        algorithm exact|gcra
//	        on_outage local|deny|allow
//	        in_flight <n>
//	        max_local_windows <n>
//	        allow_replayed_writes
//	        shadow
//	    }
//	    assertion <key files...> {
//	        issuer          <name>
//	        audience_prefix <text>
//	        ttl             <duration>
//	    }
//	}
func parseAppOption(d *caddyfile.Dispenser, existing any) (any, error) {
	d.Next() // consume the option's name
	if existing != nil {
		return nil, d.Errf("duplicate global option %q", AppName)
	}
	if d.CountRemainingArgs() > 0 {
		return nil, d.Errf("the global option %q takes no arguments, only a block", AppName)
	}
	a := new(App)
	err := parseBlock(d, AppName,
		option{name: "redis", parse: a.parseRedis},
		option{name: "credentials", parse: a.parseCredentials},
		block("cache",
			duration("ttl", &a.Cache.TTL),
			duration("negative_ttl", &a.Cache.NegativeTTL),
			duration("refresh_before", &a.Cache.RefreshBefore),
			duration("stale_if_error", &a.Cache.StaleIfError),
			duration("lookup_timeout", &a.Cache.LookupTimeout),
			number("max_entries", &a.Cache.MaxEntries),
			number("max_lookups", &a.Cache.MaxLookups),
		),
		block("limits",
			number("per_key", &a.Limits.PerKey),
			number("per_ip", &a.Limits.PerIP),
			choice("algorithm", &a.Limits.Algorithm, "exact", "gcra"),
			choice("on_outage", &a.Limits.OnOutage, "local", "deny", "allow"),
			number("in_flight", &a.Limits.InFlight),
			number("max_local_windows", &a.Limits.MaxLocalWindows),
			flag("shadow", &a.Limits.Shadow),
			flag("allow_replayed_writes", &a.Limits.AllowReplayedWrites),
		),
		option{name: "assertion", parse: a.parseAssertion},
	)
	if err != nil {
		return nil, err
	}
	return httpcaddyfile.App{Name: AppName, Value: caddyconfig.JSON(a, nil)}, nil
}

func (a *App) parseRedis(d *caddyfile.Dispenser) error {
	c := &RedisConfig{URLs: d.RemainingArgs()}
	a.Redis = c
	if len(c.URLs) == 0 {
		return d.Err("redis needs at least one address, such as redis://redis.internal:6379")
	}
	return parseBlock(d, "redis",
		option{name: "sentinel", parse: c.parseSentinel},
		flag("cluster", &c.Cluster),
		text("username", &c.Username),
		text("password", &c.Password),
		tlsFiles(&c.TLS),
		duration("timeout", &c.Timeout),
		duration("dial_timeout", &c.DialTimeout),
		number("pool_size", &c.PoolSize),
	)
}

func (c *RedisConfig) parseSentinel(d *caddyfile.Dispenser) error {
	switch args := d.RemainingArgs(); len(args) {
	case 3:
		c.SentinelUsername, c.SentinelPassword = args[1], args[2]
		fallthrough
	case 1:
		c.SentinelMaster = args[0]
		return nil
	}
	return d.Err("sentinel takes a master name, optionally followed by a username and a password")
}

func (a *App) parseCredentials(d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return d.Errf("credentials needs a source: must be one of %s", strings.Join(credentialSources(), ", "))
	}
	kind := d.Val()
	if _, err := caddy.GetModule(credentialsNamespace + "." + kind); err != nil {
		return d.Errf("credentials: unknown source %q: must be one of %s", kind, strings.Join(credentialSources(), ", "))
	}
	mod, err := caddyfile.UnmarshalModule(d, credentialsNamespace+"."+kind)
	if err != nil {
		return err
	}
	a.CredentialsRaw = caddyconfig.JSONModuleObject(mod, "source", kind, nil)
	return nil
}

func (a *App) parseAssertion(d *caddyfile.Dispenser) error {
	c := &AssertionConfig{KeyFiles: d.RemainingArgs()}
	a.Assertion = c
	if len(c.KeyFiles) == 0 {
		return d.Err("assertion needs at least one file with an Ed25519 private key in PEM form")
	}
	return parseBlock(d, "assertion",
		text("issuer", &c.Issuer),
		text("audience_prefix", &c.AudiencePrefix),
		option{name: "ttl", parse: c.parseTTL},
	)
}

func (c *AssertionConfig) parseTTL(d *caddyfile.Dispenser) error {
	if err := duration(d.Val(), &c.TTL).parse(d); err != nil {
		return err
	}
	if ttl := time.Duration(c.TTL); ttl > upstream.MaxAssertionTTL || ttl%time.Second != 0 {
		return d.Errf("invalid ttl %q: must be a whole number of seconds from 1s to %s", ttl, upstream.MaxAssertionTTL)
	}
	return nil
}

// credentialSources returns the names of the registered credential sources.
func credentialSources() []string {
	var names []string
	for _, m := range caddy.GetModules(credentialsNamespace) {
		names = append(names, m.ID.Name())
	}
	return names
}
