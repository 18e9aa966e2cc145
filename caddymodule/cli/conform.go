package cli

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
	"golang.org/x/net/http/httpguts"

	"github.com/gatehouse-gateway/gatehouse/caddymodule"
	"github.com/gatehouse-gateway/gatehouse/internal/cleantext"
	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/conform"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// The exit statuses of `gatehouse conform`.
const (
	conformClean    = 0 // or only hints
	conformFaults   = 1
	conformBadInput = 2 // or not everything was asked
)

// conformCommand holds the flags of `gatehouse conform`.
type conformCommand struct {
	flags                apiFlags
	businesses, headers  []string
	keyFile, keysAddress string
	total                time.Duration
	json                 bool
	options              conform.Options
}

func registerConform() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "conform",
		Usage: "--business A=<id> [--business B=<id>] [--definition <file>] [--overlay <file>] [--serve-keys <address>] [--assertion-key <file>] [--header '<name>: <value>'] [--write] [--json] <url>",
		Short: "Tests a data service against the definition of its API, without a gateway",
		Long: `
Makes the requests to a data service that the gateway would make, checks the
responses as the gateway does, and prints all faults at once: the rule, the
request, where in the response, what was expected, what came, and the fix. The
rules are in docs/conform.md. Without --definition, the API is the public
contract, which is built in.

A and B are businesses of a test environment, of which the service has records.
Without B, isolation is not checked. Nothing is written unless --write is given:
then every POST is sent, which creates records of A and may start something, and
only records that were created are changed or deleted. What writes to people
(risk: people of x-gatehouse-tool) is never sent. Nobody else should write at
that time.

To check assertions, the service must know a key: a file, which must not be the
gateway's, or a new one with --serve-keys, which publishes it at
/.well-known/gatehouse-jwks.json on an address meanwhile.

Exit status: 0 no faults (there may be hints), 1 faults, 2 the service was not
tested, or not completely.`,
		CobraFunc: configureConform,
	})
}

func configureConform(cmd *cobra.Command) {
	c := new(conformCommand)
	c.flags.add(cmd)
	f := cmd.Flags()
	f.StringVar(&c.flags.File, "definition", "", "OpenAPI document of the API (default: the public contract)")
	f.StringArrayVar(&c.businesses, "business", nil, "A=`id` and B=id: businesses of which the service has records")
	f.StringArrayVar(&c.headers, "header", nil, "`'Name: value'` of every request, such as a password; {env.NAME} is a variable; may be repeated")
	f.StringVar(&c.keyFile, "assertion-key", "", "`file` with an Ed25519 private key in PEM (PKCS #8) that signs assertions")
	f.StringVar(&c.keysAddress, "serve-keys", "", "`address` on which the public key is published meanwhile, such as localhost:8080")
	f.StringVar(&c.options.Asserter.Issuer, "issuer", "gatehouse", "issuer of assertions, as the gateway's")
	f.StringVar(&c.options.Asserter.AudiencePrefix, "audience-prefix", "", "prefix of the audiences of assertions, as the gateway's")
	f.BoolVar(&c.options.Write, "write", false, "create records, and change and delete those")
	f.BoolVar(&c.options.ShowValues, "show-values", false, "show excerpts of wrong values, and IDs")
	f.BoolVar(&c.json, "json", false, "print JSON")
	f.Float64Var(&c.options.Rate, "rate", 5, "maximum number of requests a second")
	f.DurationVar(&c.options.Timeout, "timeout", conform.DefaultTimeout, "timeout of a request")
	f.DurationVar(&c.total, "max-time", 15*time.Minute, "maximum time for all requests")
	f.Uint64Var(&c.options.Seed, "seed", 0, "number that chooses among records, pages and values")
	cmd.Args = nil
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return exit(cmd, conformBadInput, err) })
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return exit(cmd, conformBadInput, errors.New("expected one argument: the URL of the data service"))
		}
		c.options.URL = args[0]
		status, err := c.run(cmd)
		return exit(cmd, status, err)
	}
}

func (c *conformCommand) run(cmd *cobra.Command) (status int, err error) {
	if err := c.prepare(cmd); err != nil {
		return conformBadInput, err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, c.total)
	defer cancel()
	if c.keysAddress != "" {
		end, err := c.serveKeys(ctx)
		if err != nil {
			return conformBadInput, err
		}
		defer end()
	}
	progress := cmd.ErrOrStderr()
	if c.options.Write {
		who := "business A"
		if c.options.B != "" {
			who = "businesses A and B"
		}
		for _, op := range c.options.Definition.API.Operations() {
			if !op.Read && !op.ByGateway && !c.options.Definition.Marks[op.ID].People {
				_, _ = fmt.Fprintf(progress, "writes as %s: %s (%s %s)\n", who, cleantext.Escape(op.ID), op.Method, cleantext.Escape(op.Path))
			}
		}
	}
	terminal := isTerminal(progress)
	if terminal {
		c.options.Progress = func(n int, operation string) {
			_, _ = fmt.Fprintf(progress, "\r\x1b[K%s: %s", count(n, "request"), cleantext.Escape(operation))
		}
	}
	report, err := conform.Run(ctx, c.options)
	if terminal {
		_, _ = fmt.Fprint(progress, "\r\x1b[K")
	}
	if err != nil {
		return conformBadInput, err
	}
	var out bytes.Buffer
	if c.json {
		err = report.EncodeJSON(&out)
	} else if err = report.Print(&out); err == nil {
		text := cleantext.Escape(out.String())
		out.Reset()
		_, _ = out.WriteString(text)
	}
	if err == nil {
		_, err = out.WriteTo(cmd.OutOrStdout())
	}
	switch {
	case err != nil:
		return conformBadInput, fmt.Errorf("printing the report: %w", err)
	case len(report.Faults) > 0:
		return conformFaults, nil
	case report.Interrupted, report.Succeeded == 0:
		return conformBadInput, nil
	}
	return conformClean, nil
}

// prepare reads the definition, the businesses and the key.
func (c *conformCommand) prepare(cmd *cobra.Command) (err error) {
	if c.options.Rate <= 0 || c.options.Timeout <= 0 || c.total <= 0 {
		return errors.New("--rate, --timeout and --max-time must be positive")
	}
	for _, business := range c.businesses {
		switch label, id, _ := strings.Cut(business, "="); {
		case label == "A" && id != "" && c.options.A == "":
			c.options.A = id
		case label == "B" && id != "" && c.options.B == "":
			c.options.B = id
		default:
			return fmt.Errorf("invalid --business %q: must be A=ID or B=ID, each once", business)
		}
	}
	c.options.Header = http.Header{}
	for _, header := range c.headers {
		name, value, ok := strings.Cut(header, ":")
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return errors.New("invalid --header: must be 'Name: value'")
		}
		value, err := caddy.NewReplacer().ReplaceOrErr(strings.TrimSpace(value), true, true)
		if err != nil || !httpguts.ValidHeaderFieldValue(value) {
			return fmt.Errorf(`invalid --header %s: its placeholder must be {env.NAME} of a variable that is set; write \{ for a brace`, name)
		}
		c.options.Header.Add(name, value)
	}
	if c.options.A == "" {
		return errors.New("--business A=ID is required: a business of which the service has records")
	}
	var failed *definition.LoadError
	if c.options.Definition, err = c.flags.load(cmd, nil); errors.As(err, &failed) {
		return fmt.Errorf("the definition does not load (see gatehouse api check): %w", err)
	} else if err != nil {
		return err
	}
	for _, op := range c.options.Definition.API.Operations() {
		op.Enforce = upstream.EnforceAll // what a gateway would let pass is a fault all the same
	}
	if c.keysAddress != "" {
		c.options.KeysAfter = 11 * time.Second // a service reads keys every 10 seconds at most
	}
	switch {
	case c.keyFile != "":
		text, err := os.ReadFile(c.keyFile)
		if err != nil {
			return fmt.Errorf("reading the key: %w", err)
		}
		if c.options.Asserter.Keys, err = upstream.ParseKeys(text); err != nil {
			return fmt.Errorf("reading the key: %w", err)
		}
	case c.keysAddress != "":
		_, key, err := ed25519.GenerateKey(nil)
		if err != nil {
			return fmt.Errorf("generating a key: %w", err)
		}
		c.options.Asserter.Keys = []ed25519.PrivateKey{key}
	}
	return nil
}

// serveKeys publishes the keys where a gateway does.
func (c *conformCommand) serveKeys(ctx context.Context) (end func(), err error) {
	keys, err := upstream.NewAsserter(c.options.Asserter)
	if err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.keysAddress)
	if err != nil {
		return nil, fmt.Errorf("serving keys: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+caddymodule.JWKSPath, keys)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }() // until it is closed
	return func() { _ = server.Close() }, nil
}

// isTerminal reports whether a writer is a terminal.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
