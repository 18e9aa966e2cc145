package caddymodule

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-gateway/gatehouse/internal/clienttls"
	"github.com/gatehouse-gateway/gatehouse/internal/redisclient"
)

// RedisConfig configures the connection to Redis: one server, Sentinels or a Cluster. All strings except those in TLS may contain
// placeholders such as {env.REDIS_PASSWORD} or {file./run/secrets/redis}. They are resolved when the configuration is loaded, so
// the admin API does not show their values.
type RedisConfig struct {
	// URLs are redis://[user[:password]@]host[:port][/db], rediss:// for TLS, or unix:///path[?db=n]. Several are allowed for
	// Cluster nodes and Sentinels; user, password, database and TLS are those of the first. Required.
	URLs []string `json:"urls"`

	// SentinelMaster is the master name. If set, the URLs are those of Sentinels. Default: no Sentinel.
	SentinelMaster string `json:"sentinel_master,omitempty"`

	// SentinelUsername and SentinelPassword authenticate to the Sentinels. Default: no authentication.
	SentinelUsername string `json:"sentinel_username,omitempty"`
	SentinelPassword string `json:"sentinel_password,omitempty"`

	// Cluster means that the URLs are nodes of a Redis Cluster. One is enough to discover the others. Default: false.
	Cluster bool `json:"cluster,omitempty"`

	// Username is the ACL user. Default: the one in the URL, or else Redis's default user.
	Username string `json:"username,omitempty"`

	// Password is the user's password. Default: the one in the URL, or else no password.
	Password string `json:"password,omitempty"`

	// TLS has the TLS settings. If set, TLS is used whatever the URL's scheme is. Default: TLS for rediss URLs only.
	TLS *TLSConfig `json:"tls,omitempty"`

	// Timeout is how long a request waits for its turn, and then how long a round trip to Redis may take, before the gateway
	// decides as configured by on_outage. Default: 50ms. Zero means the default.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// DialTimeout limits opening a connection. Default: 1s. Zero means the default.
	DialTimeout caddy.Duration `json:"dial_timeout,omitempty"`

	// PoolSize is the maximum number of connections to each node. Default: 10 for each CPU. Zero means the default. Maximum:
	// 100,000.
	PoolSize int `json:"pool_size,omitempty"`
}

// maxPoolSize is far above what one gateway can use.
const maxPoolSize = 100_000

// resolved returns a copy with all placeholders replaced.
func (c *RedisConfig) resolved(repl *caddy.Replacer) (*RedisConfig, error) {
	out := *c
	out.URLs = slices.Clone(c.URLs)
	fields := []*string{&out.SentinelMaster, &out.SentinelUsername, &out.SentinelPassword, &out.Username, &out.Password}
	for i := range out.URLs {
		fields = append(fields, &out.URLs[i])
	}
	if err := resolve(repl, fields...); err != nil {
		return nil, err
	}
	return &out, nil
}

// options returns the settings as go-redis options.
func (c *RedisConfig) options() (*redis.UniversalOptions, error) {
	if len(c.URLs) == 0 {
		return nil, errors.New("redis needs at least one URL")
	}
	if c.Cluster && c.SentinelMaster != "" {
		return nil, errors.New("cluster and sentinel cannot be combined")
	}
	if c.PoolSize < 0 || c.PoolSize > maxPoolSize { // go-redis panics
		return nil, fmt.Errorf("invalid redis pool_size %d: must be between 0 and %d", c.PoolSize, maxPoolSize)
	}
	if len(c.URLs) > 1 && !c.Cluster && c.SentinelMaster == "" {
		return nil, errors.New("several URLs need either cluster or sentinel")
	}
	o := &redis.UniversalOptions{
		MasterName: c.SentinelMaster, SentinelUsername: c.SentinelUsername, SentinelPassword: c.SentinelPassword,
		IsClusterMode: c.Cluster, PoolSize: c.PoolSize,
		DialTimeout:     time.Duration(c.DialTimeout),
		DisableIdentity: true, ClientName: "gatehouse",
	}
	if timeout := time.Duration(c.Timeout); timeout > time.Second { // the client's timeouts apply to all commands
		o.ReadTimeout, o.WriteTimeout = timeout, timeout
	}
	for i, u := range c.URLs {
		one, err := redis.ParseURL(u)
		if err != nil {
			// err may quote the URL, which may contain a password
			return nil, fmt.Errorf("invalid redis URL %d: must be of the form redis://[user:password@]host:port[/db]", i+1)
		}
		if query, err := url.Parse(u); err != nil || !slices.Contains([]string{"", "db=" + strconv.Itoa(one.DB)}, query.RawQuery) {
			// go-redis would take its options from there, skip_verify among them
			return nil, fmt.Errorf("invalid redis URL %d: unsupported parameters: only db is allowed; set options in the block", i+1)
		}
		o.Addrs = append(o.Addrs, one.Addr)
		if i == 0 {
			o.Username, o.Password, o.DB, o.TLSConfig = one.Username, one.Password, one.DB, one.TLSConfig
		}
	}
	if c.Cluster && o.DB != 0 {
		return nil, errors.New("invalid redis database: a cluster has only database 0")
	}
	if c.Username != "" {
		o.Username = c.Username
	}
	if c.Password != "" {
		o.Password = c.Password
	}
	if c.TLS != nil {
		cfg, err := clienttls.Config(c.TLS.CA, c.TLS.Cert, c.TLS.Key, c.TLS.ServerName)
		if err != nil {
			return nil, err
		}
		if cfg.ServerName == "" && o.TLSConfig != nil {
			cfg.ServerName = o.TLSConfig.ServerName
		}
		if cfg.ServerName == "" {
			if u, err := url.Parse(c.URLs[0]); err == nil {
				cfg.ServerName = u.Hostname()
			}
		}
		o.TLSConfig = cfg
	}
	return o, nil
}

// pooledRedis is a Redis client shared by configurations.
type pooledRedis struct {
	settings []any // resolved; part of the settings of what uses the client
	client   redis.UniversalClient
}

// OpenRedis sets up the client of Redis, which Cleanup releases. Provision calls it; a command can do so instead.
func (a *App) OpenRedis() error {
	c, err := a.Redis.resolved(caddy.NewReplacer())
	if err != nil {
		return err
	}
	settings := []any{c, c.TLS.authorities()} // before options, so that they are never newer than the client
	o, err := c.options()
	if err != nil {
		return err
	}
	a.redis, err = acquire(a, func() (*pooledRedis, error) {
		return &pooledRedis{settings: settings, client: redisclient.New(o)}, nil
	}, settings...)
	return err
}

// Destruct implements caddy.Destructor: the last configuration has released the client.
func (p *pooledRedis) Destruct() error { return p.client.Close() }
