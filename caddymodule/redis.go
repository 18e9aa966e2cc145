package caddymodule

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gatehouse-gateway/gatehouse/ratelimit"
)

// RedisConfig says how to reach Redis: one server, a Sentinel set or a Cluster.
// Every string may hold placeholders such as {env.REDIS_PASSWORD} or {file./run/secrets/redis}, which are resolved when
// the configuration is loaded and so stay out of what the admin API shows.
type RedisConfig struct {
	// URLs are redis://[user[:password]@]host[:port][/db], rediss:// for TLS, or unix:///path. Several belong to the
	// nodes of a Cluster or to Sentinels; user, password, database and TLS are taken from the first.
	URLs []string `json:"urls"`

	// SentinelMaster is the name of the master set; the URLs are then those of Sentinels. Default: no Sentinel.
	SentinelMaster string `json:"sentinel_master,omitempty"`

	// SentinelUsername and SentinelPassword authenticate to the Sentinels. Default: none.
	SentinelUsername string `json:"sentinel_username,omitempty"`
	SentinelPassword string `json:"sentinel_password,omitempty"`

	// Cluster says that the URLs are nodes of a Redis Cluster. One URL is enough to find the others. Default: false.
	Cluster bool `json:"cluster,omitempty"`

	// Username is an ACL user. Default: the URL's, else the default user.
	Username string `json:"username,omitempty"`

	// Password is that user's. Default: the URL's, else none.
	Password string `json:"password,omitempty"`

	// TLS settings; their presence turns TLS on, whatever the URL's scheme. Default: the scheme's.
	TLS *TLSConfig `json:"tls,omitempty"`

	// Timeout is how long a request waits for Redis before the gateway decides by itself. Default: 50ms.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// DialTimeout bounds the making of a connection. Default: 1s.
	DialTimeout caddy.Duration `json:"dial_timeout,omitempty"`

	// PoolSize is the number of connections to each node. Default: 10 for each CPU.
	PoolSize int `json:"pool_size,omitempty"`
}

// TLSConfig is how to trust a store, and how to be trusted by it. All fields are paths or plain names.
type TLSConfig struct {
	// CA is a PEM file of the authorities to trust. Default: the system's.
	CA string `json:"ca,omitempty"`

	// Cert and Key are PEM files of a client certificate. Default: none.
	Cert string `json:"cert,omitempty"`
	Key  string `json:"key,omitempty"`

	// ServerName is the name to expect in the server's certificate. Default: the address's host.
	ServerName string `json:"server_name,omitempty"`
}

// resolved returns a copy with every placeholder replaced.
func (c *RedisConfig) resolved(repl *caddy.Replacer) (*RedisConfig, error) {
	out := *c
	out.URLs = make([]string, len(c.URLs))
	copy(out.URLs, c.URLs)
	fields := []*string{&out.SentinelMaster, &out.SentinelUsername, &out.SentinelPassword, &out.Username, &out.Password}
	for i := range out.URLs {
		fields = append(fields, &out.URLs[i])
	}
	if err := resolve(repl, fields...); err != nil {
		return nil, err
	}
	return &out, nil
}

// resolve replaces the placeholders in each field. One that has no value is an error that names the placeholder.
func resolve(repl *caddy.Replacer, fields ...*string) error {
	for _, f := range fields {
		v, err := repl.ReplaceOrErr(*f, true, true)
		if err != nil {
			return fmt.Errorf("resolving a placeholder: %w", err)
		}
		*f = v
	}
	return nil
}

// options are go-redis's for these settings.
func (c *RedisConfig) options() (*redis.UniversalOptions, error) {
	if len(c.URLs) == 0 {
		return nil, errors.New("no address: redis needs at least one URL")
	}
	if c.Cluster && c.SentinelMaster != "" {
		return nil, errors.New("cluster and sentinel exclude each other")
	}
	if len(c.URLs) > 1 && !c.Cluster && c.SentinelMaster == "" {
		return nil, errors.New("several addresses need either cluster or sentinel")
	}
	o := &redis.UniversalOptions{
		MasterName: c.SentinelMaster, SentinelUsername: c.SentinelUsername, SentinelPassword: c.SentinelPassword,
		IsClusterMode: c.Cluster, PoolSize: c.PoolSize,
		DialTimeout:     time.Duration(c.DialTimeout),
		DisableIdentity: true, ClientName: "gatehouse",
	}
	if timeout := time.Duration(c.Timeout); timeout > time.Second { // the client's own patience, which is for all commands
		o.ReadTimeout, o.WriteTimeout = timeout, timeout
	}
	ratelimit.TuneClient(o)
	for i, u := range c.URLs {
		one, err := redis.ParseURL(u)
		if err != nil {
			// the parser's error may quote the URL, and with it a password
			return nil, fmt.Errorf("address %d of redis is no URL of the form redis://[user:password@]host:port[/db]", i+1)
		}
		o.Addrs = append(o.Addrs, one.Addr)
		if i == 0 {
			o.Username, o.Password, o.DB, o.TLSConfig = one.Username, one.Password, one.DB, one.TLSConfig
		}
	}
	if c.Cluster && o.DB != 0 {
		return nil, errors.New("a redis cluster has no database but 0")
	}
	if c.Username != "" {
		o.Username = c.Username
	}
	if c.Password != "" {
		o.Password = c.Password
	}
	if c.TLS != nil {
		cfg, err := c.TLS.config()
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

func (t *TLSConfig) config() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("reading the certificate authorities: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("reading the certificate authorities: %s holds no PEM certificate", t.CA)
		}
	}
	if (t.Cert == "") != (t.Key == "") {
		return nil, errors.New("a client certificate needs both cert and key")
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("reading the client certificate: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// pools share what must survive a reload, each under a key of its whole resolved settings.
//
//nolint:gochecknoglobals // Caddy's own way to share clients between two configurations while one replaces the other
var (
	redisPool       = caddy.NewUsagePool()
	credentialsPool = caddy.NewUsagePool()
	limiterPool     = caddy.NewUsagePool()
)

// poolKey makes a key of settings that may hold secrets: it can be compared, not read.
func poolKey(parts ...any) (string, error) {
	b, err := json.Marshal(parts)
	if err != nil {
		return "", fmt.Errorf("encoding settings: %w", err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// pooledRedis is a Redis client that several configurations may hold.
type pooledRedis struct {
	key    string
	client redis.UniversalClient
	addrs  []string
}

func acquireRedis(c *RedisConfig, repl *caddy.Replacer) (*pooledRedis, error) {
	c, err := c.resolved(repl)
	if err != nil {
		return nil, err
	}
	o, err := c.options()
	if err != nil {
		return nil, err
	}
	key, err := poolKey(c)
	if err != nil {
		return nil, err
	}
	v, _, err := redisPool.LoadOrNew(key, func() (caddy.Destructor, error) {
		return &pooledRedis{key: key, client: redis.NewUniversalClient(o), addrs: o.Addrs}, nil
	})
	if err != nil {
		return nil, err
	}
	p, _ := v.(*pooledRedis)
	return p, nil
}

// Destruct closes the client when the last configuration has let go of it.
func (p *pooledRedis) Destruct() error { return p.client.Close() }

func (p *pooledRedis) release() error {
	if p == nil {
		return nil
	}
	_, err := redisPool.Delete(p.key)
	return err
}

// Interface guard.
var _ caddy.Destructor = (*pooledRedis)(nil)
