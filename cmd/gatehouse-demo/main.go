// Command gatehouse-demo runs a whole gateway in one process, for trying it out: an embedded store for the rate limits, a
// credential file with fresh keys, and a data service with invented records. Nothing is kept.
package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/file"
	_ "github.com/gatehouse-gateway/gatehouse/caddymodule"
	"github.com/gatehouse-gateway/gatehouse/internal/demo"
	"github.com/gatehouse-gateway/gatehouse/internal/embeddedredis"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

const (
	// pace is how long the automations take for each item, so that an assistant sees them progress.
	pace = 300 * time.Millisecond

	// issuer is who signs the hop assertions.
	issuer = "gatehouse-demo"
)

// command holds the flags.
type command struct {
	listen      string
	redis       string
	noRateLimit bool
}

func main() {
	c := new(command)
	cmd := &cobra.Command{
		Use:   "gatehouse-demo",
		Short: "Runs a whole gateway with embedded stores and a demo data service",
		Long: `Starts the gateway with everything it needs inside one process: a credential
file with fresh keys for the demo businesses, an embedded store for the rate
limits (or a real Redis with --redis), and a data service with invented
records. It prints the keys, and commands to try them, and runs until it is
interrupted. Nothing is kept.`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return c.run(ctx, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.listen, "listen", "localhost:8080", "address to serve on")
	f.StringVar(&c.redis, "redis", "", "URL of a real Redis for the rate limits (default: an embedded store)")
	f.BoolVar(&c.noRateLimit, "no-rate-limit", false, "only report what the limits would refuse")
	if cmd.Execute() != nil { // it has said why
		os.Exit(1)
	}
}

// run serves until ctx is done, and leaves nothing behind.
func (c *command) run(ctx context.Context, out io.Writer) (err error) {
	if err := c.check(ctx); err != nil {
		return err
	}
	var closers []func() error
	defer func() {
		for _, c := range slices.Backward(closers) {
			err = errors.Join(err, c())
		}
	}()
	dir, err := os.MkdirTemp("", "gatehouse-demo-")
	if err != nil {
		return fmt.Errorf("making a folder for the demo's keys: %w", err)
	}
	closers = append(closers, func() error { return os.RemoveAll(dir) })

	assertionKey := filepath.Join(dir, "assertion.pem")
	verify, err := makeAssertionKey(assertionKey)
	if err != nil {
		return err
	}
	data, err := demo.Open(ctx, demo.Memory, demo.Options{Authorize: verify, Pace: pace})
	if err != nil {
		return fmt.Errorf("opening the demo data service: %w", err)
	}
	closers = append(closers, data.Close)
	dataURL, closeData, err := serveLoopback(ctx, data.Handler())
	if err != nil {
		return fmt.Errorf("serving the demo data service: %w", err)
	}
	closers = append(closers, closeData)

	keyFile := filepath.Join(dir, "keys.json")
	keys, err := issueKeys(ctx, keyFile, data)
	if err != nil {
		return err
	}
	redisURL := c.redis
	if redisURL == "" {
		store, err := embeddedredis.Start()
		if err != nil {
			return err
		}
		closers = append(closers, func() error { store.Close(); return nil })
		redisURL = "redis://" + store.Addr()
	}
	config, base, err := c.caddyfile(parts{redis: redisURL, keys: keyFile, assertion: assertionKey, data: dataURL})
	if err != nil {
		return err
	}
	raw, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(config), map[string]any{"filename": "demo"})
	if err != nil {
		return fmt.Errorf("adapting the demo's configuration: %w", err)
	}
	if err := caddy.Load(raw, true); err != nil {
		return fmt.Errorf("starting the gateway: %w", err)
	}
	closers = append(closers, caddy.Stop)
	if err := c.print(out, base, keys); err != nil {
		return err
	}
	<-ctx.Done()
	_, err = fmt.Fprintln(out, "\nstopping")
	return err
}

// check says what would keep the demo from being what its flags ask for. Caddy shares an address with whoever else
// allows it, such as another demo, and a gateway does without a Redis that is away: right in production, puzzling here.
func (c *command) check(ctx context.Context) error {
	host, port, err := net.SplitHostPort(c.listen)
	if err != nil {
		return fmt.Errorf("--listen: %q is not of the form host:port", c.listen)
	}
	hosts := []string{host}
	if host == "localhost" {
		hosts = loopbacks()
	}
	for _, h := range hosts {
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(strings.Trim(h, "[]"), port))
		if err != nil {
			return fmt.Errorf("--listen: %w", err)
		}
		if err := ln.Close(); err != nil {
			return fmt.Errorf("--listen: %w", err)
		}
	}
	if c.redis == "" {
		return nil
	}
	o, err := redis.ParseURL(c.redis)
	if err != nil {
		return fmt.Errorf("--redis: %q is not a URL such as redis://localhost:6379", c.redis)
	}
	client := redis.NewClient(o)
	err = client.Ping(ctx).Err()
	if err := errors.Join(err, client.Close()); err != nil {
		return fmt.Errorf("--redis: %w", err)
	}
	return nil
}

// makeAssertionKey writes a fresh signing key and returns the check that the demo data service makes with it, as a
// platform team's service would with the published keys.
func makeAssertionKey(name string) (func(*http.Request) error, error) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the demo's signing key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding the demo's signing key: %w", err)
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err := os.WriteFile(name, block, 0o600); err != nil {
		return nil, fmt.Errorf("keeping the demo's signing key: %w", err)
	}
	keyID, err := upstream.KeyID(public)
	if err != nil {
		return nil, fmt.Errorf("naming the demo's signing key: %w", err)
	}
	verifiers := map[string]*upstream.AssertionVerifier{}
	for _, res := range upstream.Resources() {
		verifiers[res.Path] = &upstream.AssertionVerifier{
			Issuer: issuer, Audience: res.Name, Keys: upstream.StaticKeys{keyID: public},
		}
	}
	connection := &upstream.AssertionVerifier{
		Issuer: issuer, Audience: upstream.ConnectAudience, Keys: upstream.StaticKeys{keyID: public},
	}
	return func(r *http.Request) error {
		v, ok := verifiers[r.URL.Path]
		if strings.HasPrefix(r.URL.Path, "/connect/v1/") {
			v, ok = connection, true
		}
		if !ok {
			return errors.New("unknown path")
		}
		_, err := v.VerifyRequest(r)
		return err
	}, nil
}

// serveLoopback serves h on a free port of the loopback interface.
func serveLoopback(ctx context.Context, h http.Handler) (string, func() error, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	return "http://" + ln.Addr().String(), func() error {
		err := srv.Close()
		if served := <-done; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	}, nil
}

// issueKeys writes the credential file: a key for every business of the data service, the inactive one's included.
func issueKeys(ctx context.Context, name string, data *demo.Service) ([]*authsigner.Credential, error) {
	store, err := file.Open(name, file.Options{Create: true}) //nolint:contextcheck // it watches for longer than ctx lives
	if err != nil {
		return nil, fmt.Errorf("making the demo's credential file: %w", err)
	}
	defer func() { _ = store.Close() }()
	businesses, err := data.Businesses(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing the demo's businesses: %w", err)
	}
	var keys []*authsigner.Credential
	for _, b := range businesses {
		cred, err := authsigner.Issue(ctx, store, authsigner.IssueOptions{
			BusinessID: b.ID, Name: b.Name, Slug: b.Slug, Test: true,
		})
		if err == nil && b.AccountStatus != demo.AccountActive {
			cred, err = store.Update(ctx, cred.PublicKey, deactivate)
		}
		if err != nil {
			return nil, fmt.Errorf("issuing a key for %s: %w", b.Name, err)
		}
		keys = append(keys, cred)
	}
	return keys, nil
}

// deactivate makes the credential one of an account that is not active.
func deactivate(c *authsigner.Credential) (*authsigner.Credential, error) {
	next := c.Clone()
	next.Status = authsigner.StatusInactive
	return next, nil
}

type parts struct{ redis, keys, assertion, data string }

// caddyfile is the demo's configuration, and the base URL under which it can be reached.
func (c *command) caddyfile(p parts) (string, string, error) {
	host, port, err := net.SplitHostPort(c.listen)
	if err != nil {
		return "", "", fmt.Errorf("--listen: %q is not of the form host:port: %w", c.listen, err)
	}
	bind, shown := host, host
	switch host {
	case "":
		shown = "localhost"
	case "localhost":
		bind = strings.Join(loopbacks(), " ")
	}
	if strings.Contains(shown, ":") {
		shown, bind = "["+shown+"]", "["+bind+"]"
	}
	bindLine := ""
	if bind != "" {
		bindLine = "bind " + bind
	}
	shadow := ""
	if c.noRateLimit {
		shadow = "limits {\n\t\t\tshadow\n\t\t}"
	}
	base := "http://" + net.JoinHostPort(strings.Trim(shown, "[]"), port)
	connection := ""
	if origin := c.issuer(); origin != "" {
		connection = fmt.Sprintf("gatehouse_connect {\n\t\tissuer %s\n\t\tupstream %s\n\t\tmanage_keys\n\t}", origin, p.data)
	}
	return fmt.Sprintf(`{
	admin off
	persist_config off
	auto_https off
	log {
		level ERROR
	}
	servers {
		protocols h1 h2 h2c
	}
	gatehouse {
		redis %q {
			timeout 1s
		}
		credentials file %q
		%s
		assertion %q {
			issuer %s
		}
	}
}

http://:%s {
	%s
	gatehouse_health
	gatehouse_jwks
	%s
	gatehouse_api {
		upstream %s
	}
}
`, p.redis, p.keys, shadow, p.assertion, issuer, port, bindLine, connection, p.data), base, nil
}

// issuer is the origin of the connection server, "" if there is none: people type passwords there, without TLS, and so it
// is for this machine only.
func (c *command) issuer() string {
	host, port, err := net.SplitHostPort(c.listen)
	if err != nil {
		return ""
	}
	ip := net.ParseIP(host)
	switch {
	case host == "" || ip != nil && ip.IsUnspecified():
		host = "localhost"
	case host != "localhost" && !ip.IsLoopback():
		return ""
	}
	return "http://" + strings.TrimSuffix(net.JoinHostPort(host, port), ":80")
}

// loopbacks are the addresses that localhost stands for on this machine.
func loopbacks() []string {
	hosts := []string{"127.0.0.1"}
	if ln, err := net.Listen("tcp", "[::1]:0"); err == nil { //nolint:noctx // asks only if the address exists
		_ = ln.Close()
		hosts = append(hosts, "[::1]")
	}
	return hosts
}

// print says what to do with the demo. The two export lines are for programs as well as for people.
func (c *command) print(out io.Writer, base string, keys []*authsigner.Credential) error {
	var b strings.Builder
	main := keys[0]
	fmt.Fprintf(&b, "Gatehouse is serving the demo on %s\n\n", base)
	fmt.Fprintf(&b, "# 1. The keys of %s. Paste these lines into another shell:\n", main.BusinessName)
	fmt.Fprintf(&b, "export GATEHOUSE_KEY=%s\nexport GATEHOUSE_SECRET=%s\n", main.PublicKey, main.PrivateKey.Reveal())
	fmt.Fprintf(&b, `signed() { t=$(date +%%s); s=$(printf '%%s\nGET\n%%s\n' "$t" "$1" | openssl dgst -sha256 -hmac "$GATEHOUSE_SECRET" | sed 's/^.* //'); curl -sS -i -H "X-Public-Key: $GATEHOUSE_KEY" -H "X-Timestamp: $t" -H "X-Signature: $s" "%s$1"; echo; }`+"\n\n", base)
	b.WriteString("# 2. Signed requests:\n")
	b.WriteString("signed /api/v1/me\nsigned '/api/v1/events?count=2'\nsigned '/api/v1/invoices?status=overdue&per_page=3'\n\n")
	b.WriteString("# 3. A refused one: nobody signed it\n")
	fmt.Fprintf(&b, "curl -sS -i %s/api/v1/contacts; echo\n\n", base)
	b.WriteString("# 4. Into the limit: an address has ten requests a minute without a key (the one above was the first)\n")
	fmt.Fprintf(&b, "for i in $(seq 11); do curl -sS -o /dev/null -w '%%{http_code}\\n' %s/api/v1/status; done\n\n", base)
	if origin := c.issuer(); origin != "" {
		b.WriteString("# 5. An assistant: give it this URL. It opens a page on which you sign in and approve:\n")
		fmt.Fprintf(&b, "#   %s/mcp\n", origin)
		b.WriteString("# Or look at the pages by yourself:\n")
		fmt.Fprintf(&b, "#   %s/settings/connected-apps\n# Sign in as\n", origin)
		for _, a := range demo.Accounts() {
			if a.BusinessID == main.BusinessID {
				fmt.Fprintf(&b, "#   %-36s password %s   (%s)\n", a.Email, a.Password, a.Role)
			}
		}
		b.WriteString("\n")
	}
	if len(keys) > 1 {
		b.WriteString("# The other businesses' keys:\n")
		for _, k := range keys[1:] {
			fmt.Fprintf(&b, "#   %-28s %-9s GATEHOUSE_KEY=%s GATEHOUSE_SECRET=%s\n",
				k.BusinessName, "("+string(k.Status)+")", k.PublicKey, k.PrivateKey.Reveal())
		}
		b.WriteString("\n")
	}
	if c.noRateLimit {
		b.WriteString("The limits only report: nobody is refused.\n")
	}
	b.WriteString("Ctrl-C stops it. Nothing is kept.\n")
	_, err := io.WriteString(out, b.String())
	return err
}
