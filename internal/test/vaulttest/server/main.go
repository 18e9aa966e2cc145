// Command server is a real HashiCorp Vault server for the project's tests: the open-source core of Vault as
// a library, with just the engines and sign-in methods that the gateway is used with.
//
// It is a module of its own, so that nothing of Vault's many dependencies becomes one of the product. Its
// version of Vault is the last line under the Mozilla Public License 2.0.
//
// It listens, initialises and unseals itself, prints one line of JSON (see ready) on standard output and
// serves until its standard input is closed or it receives SIGTERM or SIGINT. With -dir it keeps its storage
// in files: a second start over the same directory finds everything again, and unseals itself only if it is
// given the key in VAULTTEST_UNSEAL_KEY. Without -dir the storage is in memory.
//
// Mounted after the first start: KV version 2 at kv/, KV version 1 at kv1/, transit/, and the sign-in methods
// approle, userpass, cert and kubernetes (token is always there).
package main

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	authkubernetes "github.com/hashicorp/vault-plugin-auth-kubernetes"
	"github.com/hashicorp/vault-plugin-secrets-kv"
	authapprole "github.com/hashicorp/vault/builtin/credential/approle"
	authcert "github.com/hashicorp/vault/builtin/credential/cert"
	authuserpass "github.com/hashicorp/vault/builtin/credential/userpass"
	"github.com/hashicorp/vault/builtin/logical/transit"
	"github.com/hashicorp/vault/helper/namespace"
	vaulthttp "github.com/hashicorp/vault/http"
	"github.com/hashicorp/vault/sdk/helper/consts"
	"github.com/hashicorp/vault/sdk/logical"
	"github.com/hashicorp/vault/sdk/physical"
	"github.com/hashicorp/vault/sdk/physical/file"
	"github.com/hashicorp/vault/sdk/physical/inmem"
	"github.com/hashicorp/vault/vault"
)

// options are the command line's.
type options struct {
	listen     string
	dir        string
	defaultTTL time.Duration
	maxTTL     time.Duration
	tlsCert    string
	tlsKey     string
	standby    bool
	logLevel   string
	unsealKey  string
}

// ready is the line that is printed once the server can be called.
type ready struct {
	Address        string   `json:"address"`                   // http(s)://host:port
	StandbyAddress string   `json:"standby_address,omitempty"` // of the second node, with -standby
	RootToken      string   `json:"root_token,omitempty"`      // only when the storage was initialised just now
	UnsealKeys     []string `json:"unseal_keys,omitempty"`     // likewise; hex
	Sealed         bool     `json:"sealed"`
}

func main() {
	var o options
	flag.StringVar(&o.listen, "listen", "127.0.0.1:0", "address to listen on")
	flag.StringVar(&o.dir, "dir", "", "directory of the storage; empty: in memory")
	flag.DurationVar(&o.defaultTTL, "default-lease-ttl", time.Hour, "default time to live of tokens and leases")
	flag.DurationVar(&o.maxTTL, "max-lease-ttl", 24*time.Hour, "longest time to live of tokens and leases")
	flag.StringVar(&o.tlsCert, "tls-cert", "", "PEM certificate chain to serve TLS with; client certificates are asked for")
	flag.StringVar(&o.tlsKey, "tls-key", "", "PEM key of -tls-cert")
	flag.BoolVar(&o.standby, "standby", false, "start a standby node on the same storage too (in memory only)")
	flag.StringVar(&o.logLevel, "log-level", "warn", "what to log on standard error")
	flag.Parse()
	o.unsealKey = os.Getenv("VAULTTEST_UNSEAL_KEY")

	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "vaulttest server:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The one who started the server holds the other end: when that process is gone, so is this one.
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()

	log := hclog.New(&hclog.LoggerOptions{
		Name: "vault", Output: os.Stderr, Level: hclog.LevelFromString(o.logLevel),
	})
	storage, storageType, err := openStorage(o, log)
	if err != nil {
		return err
	}
	active, err := newNode(ctx, o, o.listen, storage, storageType, log)
	if err != nil {
		return err
	}
	defer active.close()
	answer := ready{Address: active.url}

	initialized, err := active.core.Initialized(ctx)
	if err != nil {
		return fmt.Errorf("asking for the state of the storage: %w", err)
	}
	unsealKey, err := hex.DecodeString(o.unsealKey)
	if err != nil {
		return errors.New("VAULTTEST_UNSEAL_KEY is not hexadecimal")
	}
	if !initialized {
		made, err := active.core.Initialize(ctx, &vault.InitParams{
			BarrierConfig:  &vault.SealConfig{SecretShares: 1, SecretThreshold: 1},
			RecoveryConfig: &vault.SealConfig{},
		})
		if err != nil {
			return fmt.Errorf("initialising: %w", err)
		}
		answer.RootToken = made.RootToken
		for _, share := range made.SecretShares {
			answer.UnsealKeys = append(answer.UnsealKeys, hex.EncodeToString(share))
		}
		unsealKey = made.SecretShares[0]
	}
	if len(unsealKey) > 0 {
		if err := active.unseal(ctx, unsealKey); err != nil {
			return err
		}
	}
	if !initialized {
		if err := mount(ctx, active.core, answer.RootToken); err != nil {
			return err
		}
	}
	if o.standby {
		second, err := newNode(ctx, o, "127.0.0.1:0", storage, storageType, log.Named("standby"))
		if err != nil {
			return err
		}
		defer second.close()
		if _, err := second.core.Unseal(unsealKey); err != nil {
			return fmt.Errorf("unsealing the standby: %w", err)
		}
		answer.StandbyAddress = second.url
		go second.serve()
	}
	answer.Sealed = active.core.Sealed()
	go active.serve()
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func openStorage(o options, log hclog.Logger) (physical.Backend, string, error) {
	switch {
	case o.dir != "" && o.standby:
		return nil, "", errors.New("a standby needs the storage in memory")
	case o.dir != "":
		b, err := file.NewFileBackend(map[string]string{"path": o.dir}, log)
		return b, "file", err
	case o.standby:
		b, err := inmem.NewInmemHA(nil, log)
		return b, "inmem_ha", err
	default:
		b, err := inmem.NewInmem(nil, log)
		return b, "inmem", err
	}
}

// node is one Vault core and its listener.
type node struct {
	core     *vault.Core
	listener net.Listener
	server   *http.Server
	url      string
}

func newNode(
	ctx context.Context, o options, listen string, storage physical.Backend, storageType string, log hclog.Logger,
) (*node, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, err
	}
	scheme := "http"
	if o.tlsCert != "" {
		pair, err := tls.LoadX509KeyPair(o.tlsCert, o.tlsKey)
		if err != nil {
			return nil, fmt.Errorf("loading the certificate: %w", err)
		}
		scheme = "https"
		listener = tls.NewListener(listener, &tls.Config{
			MinVersion:   tls.VersionTLS12,
			Certificates: []tls.Certificate{pair},
			NextProtos:   []string{"h2", "http/1.1"},
			// What Vault's own listener does: the cert method looks at the certificate, TLS does not verify it.
			ClientAuth: tls.RequestClientCert,
		})
	}
	url := scheme + "://" + listener.Addr().String()

	credentials := map[string]logical.Factory{
		"approle": authapprole.Factory, "userpass": authuserpass.Factory,
		"cert": authcert.Factory, "kubernetes": authkubernetes.Factory,
	}
	secrets := map[string]logical.Factory{"kv": kv.Factory, "transit": transit.Factory}
	config := &vault.CoreConfig{
		Physical:           storage,
		StorageType:        storageType,
		LogicalBackends:    secrets,
		CredentialBackends: credentials,
		BuiltinRegistry:    registry{consts.PluginTypeCredential: credentials, consts.PluginTypeSecrets: secrets},
		DefaultLeaseTTL:    o.defaultTTL,
		MaxLeaseTTL:        o.maxTTL,
		DisableMlock:       true,
		Logger:             log,
		RedirectAddr:       url,
	}
	if ha, ok := storage.(physical.HABackend); ok && ha.HAEnabled() {
		config.HAPhysical = ha
	}
	core, err := vault.NewCore(config)
	if err != nil {
		_ = listener.Close()
		return nil, fmt.Errorf("making the core: %w", err)
	}
	return &node{
		core: core, listener: listener, url: url,
		server: &http.Server{
			Handler:           vaulthttp.Handler.Handler(&vault.HandlerProperties{Core: core}),
			ReadHeaderTimeout: 10 * time.Second,
			ErrorLog:          log.StandardLogger(nil),
		},
	}, nil
}

// unseal waits until the core has become active too, which takes a moment longer.
func (n *node) unseal(ctx context.Context, key []byte) error {
	if _, err := n.core.Unseal(key); err != nil {
		return fmt.Errorf("unsealing: %w", err)
	}
	for range 1000 {
		if standby, err := n.core.Standby(); err == nil && !standby {
			return nil
		}
		if !pause(ctx, 10*time.Millisecond) {
			return ctx.Err()
		}
	}
	return errors.New("the node did not become active")
}

func (n *node) serve() {
	if err := n.server.Serve(n.listener); !errors.Is(err, http.ErrServerClosed) {
		fmt.Fprintln(os.Stderr, "vaulttest server:", err)
		os.Exit(1)
	}
}

func (n *node) close() {
	_ = n.server.Close()
	_ = n.listener.Close()
	_ = n.core.Shutdown()
}

// mount enables the engines and sign-in methods and waits until KV version 2 takes writes.
func mount(ctx context.Context, core *vault.Core, rootToken string) error {
	call := func(operation logical.Operation, path string, data map[string]any) error {
		answer, err := core.HandleRequest(namespace.RootContext(ctx), &logical.Request{
			Operation: operation, Path: path, ClientToken: rootToken, Data: data,
		})
		if err == nil && answer != nil {
			err = answer.Error()
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", operation, path, err)
		}
		return nil
	}
	for _, m := range []struct{ path, kind, version string }{
		{"sys/mounts/kv", "kv", "2"},
		{"sys/mounts/kv1", "kv", "1"},
		{"sys/mounts/transit", "transit", ""},
		{"sys/auth/approle", "approle", ""},
		{"sys/auth/userpass", "userpass", ""},
		{"sys/auth/cert", "cert", ""},
		{"sys/auth/kubernetes", "kubernetes", ""},
	} {
		data := map[string]any{"type": m.kind}
		if m.version != "" {
			data["options"] = map[string]any{"version": m.version}
		}
		if err := call(logical.UpdateOperation, m.path, data); err != nil {
			return err
		}
	}
	// A new KV version 2 mount refuses requests until it has upgraded its (empty) storage.
	var err error
	for range 500 {
		if err = call(logical.ReadOperation, "kv/config", nil); err == nil {
			return nil
		}
		if !pause(ctx, 10*time.Millisecond) {
			return ctx.Err()
		}
	}
	return err
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// registry tells the core of the compiled-in plugins, and of no others.
type registry map[consts.PluginType]map[string]logical.Factory

func (r registry) Get(name string, kind consts.PluginType) (func() (any, error), bool) {
	factory, ok := r[kind][name]
	return func() (any, error) { return factory, nil }, ok
}

func (r registry) Contains(name string, kind consts.PluginType) bool {
	_, ok := r[kind][name]
	return ok
}

func (r registry) Keys(kind consts.PluginType) []string {
	names := make([]string, 0, len(r[kind]))
	for name := range r[kind] {
		names = append(names, name)
	}
	return names
}

func (r registry) DeprecationStatus(name string, kind consts.PluginType) (consts.DeprecationStatus, bool) {
	return consts.Supported, r.Contains(name, kind)
}
