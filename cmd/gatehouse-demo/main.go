// Command gatehouse-demo runs a whole gateway in one process, for trying it out: an embedded store for the rate limits, a
// credential file with fresh keys, and a data service with invented records or, with --protect, your own service. Nothing is kept.
package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"embed"
	"encoding/csv"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/template"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"golang.org/x/net/http/httpguts"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/file"
	"github.com/gatehouse-gateway/gatehouse/caddymodule"
	"github.com/gatehouse-gateway/gatehouse/internal/cleantext"
	"github.com/gatehouse-gateway/gatehouse/internal/demo"
	"github.com/gatehouse-gateway/gatehouse/internal/embeddedredis"
	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition/reference"
)

const (
	pace   = 300 * time.Millisecond // how long the automations take for each item, so that an assistant sees them progress
	issuer = "gatehouse-demo"       // who signs the hop assertions

	service = "service" // the name of the API of a protected service, in keys, logs and metrics
)

func main() {
	caddymodule.RedirectLibraryLogs()
	v := &view{Issuer: issuer, Docs: "/docs"}
	cmd := &cobra.Command{
		Use:   "gatehouse-demo",
		Short: "Runs a whole gateway with embedded stores and a demo data service",
		Long: `Starts the gateway with everything it needs inside one process: a credential
file with fresh keys for the demo businesses, an embedded store for the rate
limits (or a real Redis with --redis), and a data service with invented
records. It prints the keys, and commands to try them, and runs until it is
interrupted. Nothing is kept.

With --protect, it runs the directive gatehouse_auth in front of a service of
your own instead. With --definition and --upstream, it serves your own API from
its OpenAPI document, and logs what it removes from responses and rejects, and
why: names and rules, no values.`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			for _, name := range []string{"only", "except", "business"} { // of a variable that is not set
				if f := cmd.Flag(name); f.Changed && strings.Trim(f.Value.String(), "[]") == "" {
					return fmt.Errorf("--%s is empty", name)
				}
			}
			return v.run(ctx, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&v.listen, "listen", "localhost:8080", "address to serve on")
	f.StringVar(&v.Redis, "redis", "", "URL of a real Redis for the rate limits (default: an embedded store)")
	f.StringVar(&v.Protect, "protect", "", "URL of your own service, such as http://localhost:3000, to protect instead of serving the demo")
	f.StringVar(&v.File, "definition", "", "`file` of the OpenAPI document of your own API, to serve instead of the demo's")
	f.StringArrayVar(&v.Overlays, "overlay", nil, "`file` of an OpenAPI Overlay of the definition; may be repeated")
	f.StringSliceVar(&v.Only, "only", nil, "operation IDs and tags of the definition that are served (default: all)")
	f.StringSliceVar(&v.Except, "except", nil, "operation IDs and tags of the definition that are not served")
	f.StringVar(&v.Upstream, "upstream", "", "URL of the service behind the definition, such as http://localhost:3000")
	f.StringArrayVar(&v.Headers, "header", nil, "`'Name: value'` that the service behind the definition expects, such as a password; {env.NAME} is a variable; may be repeated")
	f.StringVar(&v.Business, "business", "", "`ID` of a business in your own service, for the first key (default: one of the demo's)")
	f.BoolVar(&v.NoRateLimit, "no-rate-limit", false, "only report which requests the limits would deny")
	cmd.SilenceErrors = true
	if err := cmd.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", cleantext.Escape(err.Error()))
		os.Exit(1)
	}
}

// run serves until ctx is done, and leaves nothing behind.
func (v *view) run(ctx context.Context, out io.Writer) (err error) {
	if err := v.setAddress(ctx); err != nil {
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

	v.Assertion, v.Keys = filepath.Join(dir, "assertion.pem"), filepath.Join(dir, "keys.json")
	verify, err := makeAssertionKey(v.Assertion)
	if err != nil {
		return err
	}
	if v.own() == "" {
		data, err := demo.Open(ctx, demo.Memory, demo.Options{Authorize: verify, Pace: pace})
		if err != nil {
			return fmt.Errorf("opening the demo data service: %w", err)
		}
		closers = append(closers, data.Close)
		var closeData func() error
		if v.Data, closeData, err = serveLoopback(ctx, data.Handler()); err != nil {
			return fmt.Errorf("serving the demo data service: %w", err)
		}
		closers = append(closers, closeData)
	}
	keys, err := v.issueKeys(ctx)
	if err != nil {
		return err
	}
	v.Main, v.Others = keys[0], keys[1:]
	for _, a := range demo.Accounts() {
		if a.BusinessID == v.Main.BusinessID {
			v.Accounts = append(v.Accounts, a)
		}
	}
	if v.Redis == "" {
		store, err := embeddedredis.Start()
		if err != nil {
			return err
		}
		closers = append(closers, func() error { store.Close(); return nil })
		v.Redis = "redis://" + store.Addr()
	}
	config, err := v.fill("Caddyfile.tmpl")
	if err != nil {
		return err
	}
	raw, _, err := caddyconfig.GetAdapter("caddyfile").Adapt(config, map[string]any{"filename": "demo"})
	if err != nil {
		return fmt.Errorf("adapting the demo's configuration: %w", err)
	}
	if err := caddy.Load(raw, true); err != nil {
		return fmt.Errorf("starting the gateway: %w", err)
	}
	closers = append(closers, caddy.Stop)
	welcome, err := v.fill(v.welcome())
	if err != nil {
		return err
	}
	if _, err := out.Write(welcome); err != nil {
		return err
	}
	<-ctx.Done()
	_, err = fmt.Fprintln(out, "\nstopping")
	return err
}

// welcome returns the name of the template of what is printed.
func (v *view) welcome() string {
	switch {
	case v.File != "":
		return "definition.tmpl"
	case v.Protect != "":
		return "protect.tmpl"
	}
	return "welcome.tmpl"
}

// own returns the URL of the service that is served instead of the demo's, or "".
func (v *view) own() string { return cmp.Or(v.Protect, v.Upstream) }

// define loads the definition of an API of one's own, and makes a signed command for each of its operations.
func (v *view) define() error {
	switch {
	case v.File == "" && v.Upstream == "" && len(v.Overlays)+len(v.Only)+len(v.Except)+len(v.Headers) == 0:
		return nil
	case v.File == "" || v.Upstream == "":
		return errors.New("--definition and --upstream belong together: the document, and the URL of the service behind it")
	case v.Protect != "":
		return errors.New("--protect cannot be combined with --definition and --upstream: it does not check responses")
	}
	for _, header := range v.Headers {
		name, value, ok := strings.Cut(header, ":")
		if value = strings.TrimSpace(value); !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) || strings.Contains(value, "`") {
			return fmt.Errorf("--header: invalid header %q: must be of the form 'X-Password: secret'", name)
		}
		v.HeaderUp = append(v.HeaderUp, "header_up "+name+" `"+value+"`")
	}
	d := caddymodule.Definition{File: v.File, Overlays: v.Overlays, Only: v.Only, Except: v.Except}
	loaded, err := d.Load()
	if failed, ok := errors.AsType[*definition.LoadError](err); ok && len(failed.Except) > 0 {
		var names bytes.Buffer // as the flag reads them
		list := csv.NewWriter(&names)
		_ = list.Write(failed.Except) // to memory
		list.Flush()
		return fmt.Errorf("%w\n\nWithout these operations, the rest loads (%d):\n\n  --except %s", err, failed.Rest, quote(strings.TrimSpace(names.String())))
	}
	if err != nil {
		return err //nolint:wrapcheck // it says what was wrong
	}
	if base := loaded.API.Base(); strings.HasPrefix(v.Docs+"/", base+"/") {
		v.Docs = ""
	}
	published, err := loaded.PublishedDocument(definition.PublishOptions{})
	if err != nil {
		return err //nolint:wrapcheck // as above
	}
	v.Requests = reference.Requests(published)
	methods := []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	slices.SortStableFunc(v.Requests, func(a, b reference.Request) int {
		return cmp.Compare(slices.Index(methods, a.Method), slices.Index(methods, b.Method))
	})
	return nil
}

// check returns an error if the address is in use, Redis is unavailable or there is no service to protect. A gateway starts anyway, because Caddy can share an
// address with another process and an unavailable Redis does not prevent startup; in a demo, that would be confusing.
func (v *view) check(ctx context.Context) error {
	for h := range strings.SplitSeq(v.Bind, " ") {
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(strings.Trim(h, "[]"), v.Port))
		if err == nil {
			err = ln.Close()
		}
		if err != nil {
			return fmt.Errorf("--listen: %w", err)
		}
	}
	if v.Business != "" && v.own() == "" {
		return errors.New("--business is a business of your own service: it needs --upstream or --protect")
	}
	if err := v.define(); err != nil {
		return err
	}
	if err := v.checkOwn(ctx, "--protect", &v.Protect); err != nil {
		return err
	}
	if err := v.checkOwn(ctx, "--upstream", &v.Upstream); err != nil {
		return err
	}
	if v.Redis == "" {
		return nil
	}
	o, err := redis.ParseURL(v.Redis)
	if err != nil {
		return fmt.Errorf("--redis: invalid URL %q: must be one such as redis://localhost:6379", v.Redis)
	}
	client := redis.NewClient(o)
	err = client.Ping(ctx).Err()
	if err := errors.Join(err, client.Close()); err != nil {
		return fmt.Errorf("--redis: %w", err)
	}
	return nil
}

// checkOwn returns an error if a service of one's own is not one, or does not accept connections.
func (v *view) checkOwn(ctx context.Context, flag string, service *string) error {
	if *service == "" {
		return nil
	}
	u, err := url.Parse(*service)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || strings.Trim(u.RequestURI(), "/") != "" {
		return fmt.Errorf("%s: invalid URL %q: must be one such as http://localhost:3000, without a path", flag, *service)
	}
	*service = u.Scheme + "://" + net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]))
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(*service, u.Scheme+"://"))
	if err != nil {
		return fmt.Errorf("%s: start your service first: %w", flag, err)
	}
	return conn.Close()
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
	audiences := map[string]string{}
	for _, op := range definition.Public().Operations() {
		audiences[op.Path] = op.Resource
	}
	return func(r *http.Request) error {
		audience := audiences[r.URL.Path]
		if strings.HasPrefix(r.URL.Path, "/connect/v1/") {
			audience = upstream.ConnectAudience
		}
		if audience == "" {
			return errors.New("unknown path")
		}
		v := &upstream.AssertionVerifier{Issuer: issuer, Audience: audience, Keys: upstream.StaticKeys{keyID: public}}
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
	go func() { _ = srv.Serve(ln) }() // ends when it is closed
	return "http://" + ln.Addr().String(), srv.Close, nil
}

// issueKeys writes the credential file: a key for every business of the data service, the inactive one's included. For a service of one's
// own, the first may write.
func (v *view) issueKeys(ctx context.Context) ([]*authsigner.Credential, error) {
	store, err := file.Open(v.Keys, file.Options{Create: true}) //nolint:contextcheck // it watches for longer than ctx lives
	if err != nil {
		return nil, fmt.Errorf("making the demo's credential file: %w", err)
	}
	defer func() { _ = store.Close() }()
	var keys []*authsigner.Credential
	for _, b := range demo.Businesses() {
		o := authsigner.IssueOptions{BusinessID: b.ID, BusinessName: b.Name, BusinessSlug: b.Slug, Test: true}
		if v.own() != "" {
			if o.Write = keys == nil; o.Write && v.Business != "" {
				o.BusinessID, o.BusinessName = v.Business, "business "+v.Business
			}
		}
		if v.Protect != "" {
			o.Resources = []string{service}
		}
		cred, err := authsigner.Issue(ctx, store, o)
		if err == nil && b.AccountStatus != demo.AccountActive {
			cred, err = store.Update(ctx, cred.PublicKey, func(c *authsigner.Credential) error {
				c.Status = authsigner.StatusInactive
				return nil
			})
		}
		if err != nil {
			return nil, fmt.Errorf("issuing a key for %s: %w", b.Name, err)
		}
		keys = append(keys, cred)
	}
	return keys, nil
}

// view holds the flags, and what the templates show.
type view struct {
	listen                       string
	Redis, Keys, Assertion, Data string // of the stores, files and services
	Issuer                       string
	Bind, Port                   string
	Base                         string // the URL under which the demo can be reached
	Origin                       string // of the connection server; "": there is none
	NoRateLimit                  bool
	Protect, Upstream            string // the URL of the service to protect, or behind a definition; both "": the demo's API is served
	Business                     string // the first key's in that service; "": the demo's
	File                         string // of the definition
	Overlays, Only, Except       []string
	Headers, HeaderUp            []string
	Requests                     []reference.Request // one to each operation of the definition, reads first
	Docs                         string              // the path of the reference; "": all paths are of the API

	Main     *authsigner.Credential
	Others   []*authsigner.Credential
	Accounts []demo.Account
}

//go:embed *.tmpl
var templates embed.FS

// fill returns a template with the view's values.
func (v *view) fill(name string) ([]byte, error) {
	var b bytes.Buffer
	t, err := template.New(name).Funcs(template.FuncMap{
		"quote": quote,
	}).ParseFS(templates, name)
	if err == nil {
		err = t.Execute(&b, v)
	}
	if err != nil {
		return nil, fmt.Errorf("filling %s: %w", name, err)
	}
	return b.Bytes(), nil
}

// quote returns a text as one word of a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// setAddress sets what follows from the address to serve on, and checks that it can be used.
func (v *view) setAddress(ctx context.Context) error {
	host, port, err := net.SplitHostPort(v.listen)
	if err != nil {
		return fmt.Errorf("--listen: %q is not of the form host:port: %w", v.listen, err)
	}
	v.Port, v.Bind = port, host
	switch {
	case host == "":
		host = "localhost"
	case host == "localhost":
		v.Bind = strings.Join(loopbacks(), " ")
	case strings.Contains(host, ":"):
		v.Bind = "[" + host + "]"
	}
	// People type passwords into the connection server's pages, without TLS: it is for this machine only.
	ip := net.ParseIP(host)
	if ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	v.Base = "http://" + net.JoinHostPort(host, port)
	if host == "localhost" || ip.IsLoopback() {
		v.Origin = "http://" + strings.TrimSuffix(net.JoinHostPort(host, port), ":80")
	}
	return v.check(ctx)
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
