package caddymodule

import (
	"encoding/json"
	"fmt"
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

// option parses one option of a block. The dispenser's current token is the option's name.
type option func(d *caddyfile.Dispenser) error

// parseBlock parses a block of options. Unknown and duplicate options are errors.
func parseBlock(d *caddyfile.Dispenser, what string, options map[string]option, order []string) error {
	seen := make(map[string]bool, len(options))
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		name := d.Val()
		parse, ok := options[name]
		if !ok {
			return d.Errf("unknown option %q of %s: must be one of %s", name, what, strings.Join(order, ", "))
		}
		if seen[name] {
			return d.Errf("duplicate option %q of %s", name, what)
		}
		seen[name] = true
		if err := parse(d); err != nil {
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

// oneArg parses exactly one argument.
func oneArg(d *caddyfile.Dispenser, what string) (string, error) {
	args := d.RemainingArgs()
	if len(args) != 1 {
		return "", d.Errf("%s takes exactly one argument, got %d", what, len(args))
	}
	return args[0], nil
}

// argOption returns an option with one argument, which it passes to set.
func argOption(what string, set func(d *caddyfile.Dispenser, v string) error) option {
	return func(d *caddyfile.Dispenser) error {
		v, err := oneArg(d, what)
		if err != nil {
			return err
		}
		return set(d, v)
	}
}

func stringOption(what string, dst *string) option {
	return argOption(what, func(d *caddyfile.Dispenser, v string) error {
		if v == "" {
			return d.Errf("%s must not be empty", what)
		}
		*dst = v
		return nil
	})
}

func durationOption(what string, dst *caddy.Duration) option {
	return argOption(what, func(d *caddyfile.Dispenser, v string) error {
		dur, err := caddy.ParseDuration(v)
		if err != nil || dur <= 0 {
			return d.Errf("invalid %s %q: must be a positive duration such as 50ms, 10s or 1h", what, v)
		}
		*dst = caddy.Duration(dur)
		return nil
	})
}

func intOption(what string, dst *int) option {
	return argOption(what, func(d *caddyfile.Dispenser, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n <= 0 {
			return d.Errf("invalid %s %q: must be a positive whole number", what, v)
		}
		*dst = n
		return nil
	})
}

func sizeOption(what string, dst *int64) option {
	return argOption(what, func(d *caddyfile.Dispenser, v string) error {
		n, err := humanize.ParseBytes(v)
		if err != nil || n == 0 || n > 1<<40 {
			return d.Errf("invalid %s %q: must be a positive size such as 64KiB or 8MiB", what, v)
		}
		*dst = int64(n)
		return nil
	})
}

func flagOption(what string, dst *bool) option {
	return func(d *caddyfile.Dispenser) error {
		if d.CountRemainingArgs() > 0 {
			return d.Errf("%s takes no arguments", what)
		}
		*dst = true
		return nil
	}
}

func choiceOption(what string, dst *string, allowed ...string) option {
	return argOption(what, func(d *caddyfile.Dispenser, v string) error {
		if !slices.Contains(allowed, v) {
			return d.Errf("invalid %s %q: must be one of %s", what, v, strings.Join(allowed, ", "))
		}
		*dst = v
		return nil
	})
}

func pathsOption(what string, dst *[]string) option {
	return func(d *caddyfile.Dispenser) error {
		args := d.RemainingArgs()
		if len(args) == 0 {
			return d.Errf("%s needs at least one argument", what)
		}
		*dst = args
		return nil
	}
}

func timeArg(d *caddyfile.Dispenser, what, v string) (time.Time, error) {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, v); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, d.Errf("%s: invalid date %q: must be a date such as 2027-01-31 or a time such as 2027-01-31T12:00:00Z", what, v)
}

func tlsOption(what string, dst **TLSConfig) option {
	return func(d *caddyfile.Dispenser) error {
		if d.CountRemainingArgs() > 0 {
			return d.Errf("%s takes no arguments, only a block", what)
		}
		c := new(TLSConfig)
		err := parseBlock(d, what, map[string]option{
			"ca":          stringOption("ca", &c.CA),
			"cert":        stringOption("cert", &c.Cert),
			"key":         stringOption("key", &c.Key),
			"server_name": stringOption("server_name", &c.ServerName),
		}, []string{"ca", "cert", "key", "server_name"})
		*dst = c
		return err
	}
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
//	        load_timeout   <duration>
//	        max_entries    <n>
//	    }
//	    limits {
//	        per_key   <n>
//	        per_ip    <n>
//	        algorithm exact|gcra
//	        on_outage local|deny|allow
//	        shadow
//	    }
//	    assertion <key files...> {
//	        issuer          <name>
//	        audience_prefix <text>
//	        lifetime        <duration>
//	    }
//	}
func parseAppOption(d *caddyfile.Dispenser, existing any) (any, error) {
	d.Next() // consume the option's name
	if existing != nil {
		return nil, d.Errf("duplicate global option %q", appName)
	}
	a := new(App)
	if d.CountRemainingArgs() > 0 {
		return nil, d.Errf("the global option %q takes no arguments, only a block", appName)
	}
	err := parseBlock(d, appName, map[string]option{
		"redis":       a.parseRedis,
		"credentials": a.parseCredentials,
		"cache":       a.parseCache,
		"limits":      a.parseLimits,
		"assertion":   a.parseAssertion,
	}, []string{"redis", "credentials", "cache", "limits", "assertion"})
	if err != nil {
		return nil, err
	}
	return httpcaddyfile.App{Name: appName, Value: caddyconfig.JSON(a, nil)}, nil
}

func (a *App) parseRedis(d *caddyfile.Dispenser) error {
	c := &RedisConfig{URLs: d.RemainingArgs()}
	if len(c.URLs) == 0 {
		return d.Err("redis needs at least one address, such as redis://redis.internal:6379")
	}
	err := parseBlock(d, "redis", map[string]option{
		"sentinel": func(d *caddyfile.Dispenser) error {
			args := d.RemainingArgs()
			switch len(args) {
			case 3:
				c.SentinelUsername, c.SentinelPassword = args[1], args[2]
				fallthrough
			case 1:
				c.SentinelMaster = args[0]
				return nil
			}
			return d.Err("sentinel takes a master name, optionally followed by a username and a password")
		},
		"cluster":      flagOption("cluster", &c.Cluster),
		"username":     stringOption("username", &c.Username),
		"password":     stringOption("password", &c.Password),
		"tls":          tlsOption("tls", &c.TLS),
		"timeout":      durationOption("timeout", &c.Timeout),
		"dial_timeout": durationOption("dial_timeout", &c.DialTimeout),
		"pool_size":    intOption("pool_size", &c.PoolSize),
	}, []string{"sentinel", "cluster", "username", "password", "tls", "timeout", "dial_timeout", "pool_size"})
	a.Redis = c
	return err
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

func (a *App) parseCache(d *caddyfile.Dispenser) error {
	if d.CountRemainingArgs() > 0 {
		return d.Err("cache takes no arguments, only a block")
	}
	c := &a.Cache
	return parseBlock(d, "cache", map[string]option{
		"ttl":            durationOption("ttl", &c.TTL),
		"negative_ttl":   durationOption("negative_ttl", &c.NegativeTTL),
		"refresh_before": durationOption("refresh_before", &c.RefreshBefore),
		"stale_if_error": durationOption("stale_if_error", &c.StaleIfError),
		"load_timeout":   durationOption("load_timeout", &c.LoadTimeout),
		"max_entries":    intOption("max_entries", &c.MaxEntries),
	}, []string{"ttl", "negative_ttl", "refresh_before", "stale_if_error", "load_timeout", "max_entries"})
}

func (a *App) parseLimits(d *caddyfile.Dispenser) error {
	if d.CountRemainingArgs() > 0 {
		return d.Err("limits takes no arguments, only a block")
	}
	c := &a.Limits
	return parseBlock(d, "limits", map[string]option{
		"per_key":   intOption("per_key", &c.PerKey),
		"per_ip":    intOption("per_ip", &c.PerIP),
		"algorithm": choiceOption("algorithm", &c.Algorithm, "exact", "gcra"),
		"on_outage": choiceOption("on_outage", &c.OnOutage, "local", "deny", "allow"),
		"shadow":    flagOption("shadow", &c.Shadow),
	}, []string{"per_key", "per_ip", "algorithm", "on_outage", "shadow"})
}

func (a *App) parseAssertion(d *caddyfile.Dispenser) error {
	c := &AssertionConfig{KeyFiles: d.RemainingArgs()}
	if len(c.KeyFiles) == 0 {
		return d.Err("assertion needs at least one file with an Ed25519 private key in PEM form")
	}
	err := parseBlock(d, "assertion", map[string]option{
		"issuer":          stringOption("issuer", &c.Issuer),
		"audience_prefix": stringOption("audience_prefix", &c.AudiencePrefix),
		"lifetime": func(d *caddyfile.Dispenser) error {
			if err := durationOption("lifetime", &c.Lifetime)(d); err != nil {
				return err
			}
			if l := time.Duration(c.Lifetime); l > upstream.MaxAssertionTTL || l%time.Second != 0 {
				return d.Errf("invalid lifetime %q: must be a whole number of seconds from 1s to %s", l, upstream.MaxAssertionTTL)
			}
			return nil
		},
	}, []string{"issuer", "audience_prefix", "lifetime"})
	a.Assertion = c
	return err
}

// credentialSources returns the names of the registered credential sources.
func credentialSources() []string {
	var names []string
	for _, m := range caddy.GetModules(credentialsNamespace) {
		names = append(names, m.ID.Name())
	}
	return names
}

// moduleJSON encodes a handler module.
func moduleJSON(handler any, name string) (json.RawMessage, error) {
	var warnings []caddyconfig.Warning
	raw := caddyconfig.JSONModuleObject(handler, "handler", name, &warnings)
	if len(warnings) > 0 {
		return nil, fmt.Errorf("encoding %s: %s", name, warnings[0].Message)
	}
	return raw, nil
}
