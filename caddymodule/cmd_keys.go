package caddymodule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// keysCommand holds the flags shared by the subcommands of `gatehouse keys`.
type keysCommand struct {
	config, adapter string
	file            string
	json            bool
	timeout         time.Duration
	create          bool // a credential file, if there is none
}

func configureKeys(cmd *cobra.Command) {
	c := new(keysCommand)
	f := cmd.PersistentFlags()
	f.StringVarP(&c.config, "config", "c", "", "configuration file whose credential source to use (default: the Caddyfile in the current directory)")
	f.StringVarP(&c.adapter, "adapter", "a", "", "name of the config adapter to use")
	f.StringVar(&c.file, "file", "", "credential file to use, instead of a configuration")
	f.BoolVar(&c.json, "json", false, "print JSON")
	f.DurationVar(&c.timeout, "timeout", 30*time.Second, "timeout of the whole command")
	cmd.MarkFlagsMutuallyExclusive("config", "file")
	cmd.SilenceUsage = true
	cmd.Args = cobra.NoArgs // without it, a misspelled subcommand would print help and exit with 0
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(c.issue(), c.rotate(), c.revoke(), c.list(), c.show())
}

// keyView is a credential as the commands print it. PrivateKey is set only for a key that was just issued or rotated.
type keyView struct {
	PublicKey         string            `json:"public_key"`
	PrivateKey        string            `json:"private_key,omitempty"`
	BusinessID        string            `json:"business_id"`
	BusinessName      string            `json:"business_name"`
	BusinessSlug      string            `json:"business_slug"`
	Status            authsigner.Status `json:"status"`
	Limit             int               `json:"limit,omitempty"`
	PreviousExpiresAt *time.Time        `json:"previous_expires_at,omitempty"`
}

// statusMalformed marks an entry that is not a valid credential, so that one bad entry does not break the list.
const statusMalformed authsigner.Status = "malformed"

func viewOf(c *authsigner.Credential) keyView {
	v := keyView{
		PublicKey: c.PublicKey, BusinessID: c.BusinessID, BusinessName: c.BusinessName, BusinessSlug: c.BusinessSlug,
		Status: c.Status, Limit: c.Limit,
	}
	if !c.PreviousExpiresAt.IsZero() {
		v.PreviousExpiresAt = &c.PreviousExpiresAt
	}
	return v
}

func (c *keysCommand) issue() *cobra.Command {
	var o authsigner.IssueOptions
	cmd := &cobra.Command{
		Use:   "issue --business-id <id> --business-name <name> --business-slug <slug>",
		Short: "Issues a key pair for a business and prints the private key once",
		Args:  cobra.NoArgs,
		RunE: c.with(func(ctx context.Context, out io.Writer, s *openStore, _ []string) error {
			cred, err := authsigner.Issue(ctx, s.store, o)
			if err != nil {
				return fmt.Errorf("issuing a key: %w", err)
			}
			s.announce(ctx, cred.PublicKey)
			return c.printIssued(out, cred)
		}),
	}
	cmd.PreRun = func(*cobra.Command, []string) { c.create = true }
	f := cmd.Flags()
	f.StringVar(&o.BusinessID, "business-id", "", "ID of the business, as in the data services' records")
	f.StringVar(&o.Name, "business-name", "", "name of the business")
	f.StringVar(&o.Slug, "business-slug", "", "short name of the business")
	f.IntVar(&o.Limit, "limit", 0, "requests per minute (default: the gateway's per_key limit)")
	f.BoolVar(&o.Test, "test", false, "issue a test key: pk_test_…")
	for _, name := range []string{"business-id", "business-name", "business-slug"} {
		_ = cmd.MarkFlagRequired(name) // cannot fail: the flag exists
	}
	return cmd
}

func (c *keysCommand) rotate() *cobra.Command {
	var grace time.Duration
	cmd := &cobra.Command{
		Use:   "rotate <public key> [--grace <duration>]",
		Short: "Makes a new private key and prints it once; the old one stays valid for the grace period",
		Args:  cobra.ExactArgs(1),
		RunE: c.with(func(ctx context.Context, out io.Writer, s *openStore, args []string) error {
			cred, err := authsigner.Rotate(ctx, s.store, args[0], grace, time.Now())
			s.announce(ctx, args[0]) // even after an error, because the change may have been made
			if err != nil {
				return fmt.Errorf("rotating the key: %w", err)
			}
			return c.printIssued(out, cred)
		}),
	}
	cmd.Flags().DurationVar(&grace, "grace", 24*time.Hour, "how long the old private key stays valid; 0 invalidates it immediately")
	return cmd
}

func (c *keysCommand) revoke() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke <public key>",
		Short: "Deletes a key: gateways reject it immediately, or when their cache's TTL ends at the latest",
		Args:  cobra.ExactArgs(1),
		RunE: c.with(func(ctx context.Context, out io.Writer, s *openStore, args []string) error {
			err := authsigner.Revoke(ctx, s.store, args[0])
			pushed := s.announce(ctx, args[0]) // even after an error, because the change may have been made
			if err != nil {
				return fmt.Errorf("revoking the key: %w", err)
			}
			if c.json {
				return printJSON(out, map[string]any{"public_key": args[0], "revoked": true, "pushed": pushed})
			}
			note := "running gateways reject it now"
			if !pushed {
				note = "running gateways reject it when their cache's TTL ends (they could not be notified through Redis)"
			}
			_, err = fmt.Fprintf(out, "%s is revoked; %s\n", args[0], note)
			return err
		}),
	}
}

func (c *keysCommand) list() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "Lists the public keys and their businesses",
		Args:  cobra.NoArgs,
		RunE: c.with(func(ctx context.Context, out io.Writer, s *openStore, _ []string) error {
			names, err := s.store.List(ctx)
			if err != nil {
				return fmt.Errorf("listing keys: %w", err)
			}
			views := make([]keyView, 0, len(names))
			for _, name := range names {
				cred, err := s.store.Lookup(ctx, name)
				if errors.Is(err, authsigner.ErrUnknownKey) {
					continue // revoked in the meantime
				}
				if errors.Is(err, authsigner.ErrMalformedCredential) {
					views = append(views, keyView{PublicKey: name, Status: statusMalformed}) // "keys show" prints the reason
					continue
				}
				if err != nil {
					return fmt.Errorf("reading key %s: %w", name, err)
				}
				views = append(views, viewOf(cred))
			}
			return c.print(out, views, views...)
		}),
	}
}

func (c *keysCommand) show() *cobra.Command {
	return &cobra.Command{
		Use:   "show <public key>",
		Short: "Shows a key's record without its private key",
		Args:  cobra.ExactArgs(1),
		RunE: c.with(func(ctx context.Context, out io.Writer, s *openStore, args []string) error {
			if !authsigner.ValidPublicKey(args[0]) {
				return fmt.Errorf("invalid public key %q: must be 8 to 128 letters, digits, hyphens or underscores", args[0])
			}
			cred, err := s.store.Lookup(ctx, args[0])
			if err != nil {
				return fmt.Errorf("reading the key: %w", err)
			}
			return c.print(out, viewOf(cred), viewOf(cred))
		}),
	}
}

func (c *keysCommand) printIssued(out io.Writer, cred *authsigner.Credential) error {
	v := viewOf(cred)
	v.PrivateKey = cred.PrivateKey.Reveal()
	if c.json {
		return printJSON(out, v)
	}
	_, err := fmt.Fprintf(out, "public key:  %s\nprivate key: %s\n\nStore the private key now: it is not shown again.\n",
		v.PublicKey, v.PrivateKey)
	if err == nil && v.PreviousExpiresAt != nil {
		_, err = fmt.Fprintf(out, "The previous private key stays valid until %s.\n", v.PreviousExpiresAt.Format(time.RFC3339))
	}
	return err
}

func printJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// print prints v with --json, and otherwise a table of views.
func (c *keysCommand) print(out io.Writer, v any, views ...keyView) error {
	if c.json {
		return printJSON(out, v)
	}
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "PUBLIC KEY\tSTATUS\tLIMIT\tBUSINESS\tID\tOLD KEY UNTIL")
	for _, v := range views {
		limit, until := "default", "-"
		if v.Limit > 0 {
			limit = fmt.Sprintf("%d/min", v.Limit)
		}
		if v.PreviousExpiresAt != nil {
			until = v.PreviousExpiresAt.Format(time.RFC3339)
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", v.PublicKey, v.Status, limit, v.BusinessName, v.BusinessID, until)
	}
	return w.Flush()
}

// openStore is the open credential source of a command, and the Redis through which it notifies gateways of changes.
type openStore struct {
	store CredentialStore
	redis *pooledRedis // nil: there is none
}

// announce makes running gateways look up a key again, and reports whether it could notify them. It works after the command's
// deadline too.
func (s *openStore) announce(ctx context.Context, publicKey string) bool {
	if s.redis == nil || !authsigner.ValidPublicKey(publicKey) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keysRedisTimeout)
	defer cancel()
	return publishInvalidation(ctx, s.redis.client, publicKey) == nil
}

// with loads the configuration, without starting it, opens its credential source, and runs f.
func (c *keysCommand) with(f func(context.Context, io.Writer, *openStore, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) (err error) {
		parent := cmd.Context()
		if parent == nil {
			parent = context.Background()
		}
		ctx, cancel := context.WithTimeout(parent, c.timeout)
		defer cancel()
		caddyCtx, cancelConfig := caddy.NewContext(caddy.Context{Context: ctx})
		defer cancelConfig()
		app, err := c.loadApp()
		if err != nil {
			return err
		}
		source, err := loadSource(caddyCtx, app)
		if err != nil {
			return err
		}
		if f, ok := source.(*FileSource); ok {
			f.create = c.create
		}
		store, err := source.Open(ctx, func(SourceEvent) {})
		if err != nil {
			return fmt.Errorf("opening the credential source: %w", err)
		}
		defer func() { err = errors.Join(err, store.Close(), app.Cleanup()) }()
		if app.Redis != nil {
			if err := app.acquireRedis(); err != nil {
				return fmt.Errorf("setting up redis: %w", err)
			}
		}
		return f(ctx, cmd.OutOrStdout(), &openStore{store: store, redis: app.redis}, args)
	}
}

// loadApp returns the app's settings in the configuration.
func (c *keysCommand) loadApp() (*App, error) {
	app := new(App)
	if c.file != "" {
		app.CredentialsRaw = caddyconfig.JSONModuleObject(&FileSource{Path: c.file}, "source", "file", nil)
		return app, nil
	}
	raw, name, _, err := caddycmd.LoadConfig(c.config, c.adapter)
	if err != nil {
		return nil, fmt.Errorf("loading the configuration: %w", err)
	}
	if raw == nil {
		return nil, errors.New("no configuration found: set --config or --file")
	}
	var cfg struct {
		Apps map[string]json.RawMessage `json:"apps"`
	}
	if err := json.Unmarshal(raw, &cfg); err != nil {
		return nil, fmt.Errorf("reading the configuration %s: %w", name, err)
	}
	if cfg.Apps[appName] == nil {
		return nil, fmt.Errorf("the configuration %s has no global option %q", name, appName)
	}
	if err := caddy.StrictUnmarshalJSON(cfg.Apps[appName], app); err != nil {
		return nil, fmt.Errorf("reading the configuration %s: %w", name, err)
	}
	if app.CredentialsRaw == nil {
		return nil, fmt.Errorf("the configuration %s has no credential source: set \"credentials\" in the global option %q", name, appName)
	}
	return app, nil
}
