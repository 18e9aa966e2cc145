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
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// keysCommand holds the flags that all of `gatehouse keys` share.
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
	f.StringVarP(&c.config, "config", "c", "", "configuration whose credential source is meant (default: the Caddyfile of this folder)")
	f.StringVarP(&c.adapter, "adapter", "a", "", "name of the configuration's adapter")
	f.StringVar(&c.file, "file", "", "credential file to work on, instead of a configuration's source")
	f.BoolVar(&c.json, "json", false, "print JSON")
	f.DurationVar(&c.timeout, "timeout", 30*time.Second, "how long to wait for the credential source")
	cmd.MarkFlagsMutuallyExclusive("config", "file")
	cmd.SilenceUsage = true
	cmd.Args = cobra.NoArgs // a misspelt sub-command is an error, and no reason to print help and succeed
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(c.issue(), c.rotate(), c.revoke(), c.list(), c.show())
}

// keyView is a credential as the command prints it: with the private key only where it has just been made.
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

// statusMalformed stands in a list for an entry that is no credential, which must not hide the others.
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
		Short: "Issues a key pair for a business and prints the private key, once",
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
	f.StringVar(&o.BusinessID, "business-id", "", "the business's id, as the data services know it")
	f.StringVar(&o.Name, "business-name", "", "the business's name")
	f.StringVar(&o.Slug, "business-slug", "", "the business's short name")
	f.IntVar(&o.Limit, "limit", 0, "requests a minute (default: the gateway's)")
	f.BoolVar(&o.Test, "test", false, "mark the key as one for tests: pk_test_…")
	for _, name := range []string{"business-id", "business-name", "business-slug"} {
		_ = cmd.MarkFlagRequired(name) // fails for an unknown flag only
	}
	return cmd
}

func (c *keysCommand) rotate() *cobra.Command {
	var grace time.Duration
	cmd := &cobra.Command{
		Use:   "rotate <public key> [--grace <duration>]",
		Short: "Makes a new private key and prints it, once; the old one stays good for the grace time",
		Args:  cobra.ExactArgs(1),
		RunE: c.with(func(ctx context.Context, out io.Writer, s *openStore, args []string) error {
			cred, err := authsigner.Rotate(ctx, s.store, args[0], grace, time.Now())
			s.announce(ctx, args[0]) // with an error as well: the change may have been made
			if err != nil {
				return fmt.Errorf("rotating the key: %w", err)
			}
			return c.printIssued(out, cred)
		}),
	}
	cmd.Flags().DurationVar(&grace, "grace", 24*time.Hour, "how long the old private key stays good; 0 ends it at once")
	return cmd
}

func (c *keysCommand) revoke() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke <public key>",
		Short: "Deletes a key: the gateways refuse it at once, or when their cache's TTL ends at the latest",
		Args:  cobra.ExactArgs(1),
		RunE: c.with(func(ctx context.Context, out io.Writer, s *openStore, args []string) error {
			err := authsigner.Revoke(ctx, s.store, args[0])
			pushed := s.announce(ctx, args[0]) // with an error as well: the change may have been made
			if err != nil {
				return fmt.Errorf("revoking the key: %w", err)
			}
			if c.json {
				return printJSON(out, map[string]any{"public_key": args[0], "revoked": true, "pushed": pushed})
			}
			note := "running gateways refuse it now"
			if !pushed {
				note = "running gateways refuse it when their cache's TTL ends (no Redis could be told)"
			}
			_, err = fmt.Fprintf(out, "%s is revoked; %s\n", args[0], note)
			return err
		}),
	}
}

func (c *keysCommand) list() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "Lists the public keys and whose they are",
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
					continue // revoked since
				}
				if errors.Is(err, authsigner.ErrMalformedCredential) {
					views = append(views, keyView{PublicKey: name, Status: statusMalformed}) // show says what is wrong
					continue
				}
				if err != nil {
					return fmt.Errorf("reading key %s: %w", name, err)
				}
				views = append(views, viewOf(cred))
			}
			if c.json {
				return printJSON(out, views)
			}
			return printTable(out, views)
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
				return errors.New("that is no public key")
			}
			cred, err := s.store.Lookup(ctx, args[0])
			if err != nil {
				return fmt.Errorf("reading the key: %w", err)
			}
			if c.json {
				return printJSON(out, viewOf(cred))
			}
			return printTable(out, []keyView{viewOf(cred)})
		}),
	}
}

func (c *keysCommand) printIssued(out io.Writer, cred *authsigner.Credential) error {
	v := viewOf(cred)
	v.PrivateKey = cred.PrivateKey.Reveal()
	if c.json {
		return printJSON(out, v)
	}
	_, err := fmt.Fprintf(out, "public key:  %s\nprivate key: %s\n\nKeep the private key now: it is not shown again.\n",
		v.PublicKey, v.PrivateKey)
	if err == nil && v.PreviousExpiresAt != nil {
		_, err = fmt.Fprintf(out, "The previous private key stays good until %s.\n", v.PreviousExpiresAt.Format(time.RFC3339))
	}
	return err
}

func printJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func printTable(out io.Writer, views []keyView) error {
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

// openStore is a credential source opened for a command, and the Redis through which gateways are told of a change.
type openStore struct {
	store CredentialStore
	redis *pooledRedis
}

// announce tells running gateways to ask anew for a key, and says if it could. It does so after the command's deadline too.
func (s *openStore) announce(ctx context.Context, publicKey string) bool {
	if s.redis == nil || !authsigner.ValidPublicKey(publicKey) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keysRedisTimeout)
	defer cancel()
	return publishInvalidation(ctx, s.redis.client, publicKey) == nil
}

// with opens the source, runs f and closes the source again.
func (c *keysCommand) with(f func(context.Context, io.Writer, *openStore, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) (err error) {
		parent := cmd.Context()
		if parent == nil {
			parent = context.Background()
		}
		ctx, cancel := context.WithTimeout(parent, c.timeout)
		defer cancel()
		s, closeStore, err := c.open(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closeStore()) }()
		return f(ctx, cmd.OutOrStdout(), s, args)
	}
}

// open loads the configuration and opens its credential source, without starting anything else of it.
func (c *keysCommand) open(ctx context.Context) (*openStore, func() error, error) {
	caddyCtx, cancel := caddy.NewContext(caddy.Context{Context: ctx})
	app := new(App)
	if c.file != "" {
		raw, err := json.Marshal(map[string]string{"source": "file", "path": c.file})
		if err != nil {
			cancel()
			return nil, nil, fmt.Errorf("encoding the file's name: %w", err)
		}
		app.CredentialsRaw = raw
	} else if err := c.loadApp(app); err != nil {
		cancel()
		return nil, nil, err
	}
	s := new(openStore)
	closeAll := func() error {
		cancel()
		if s.store == nil {
			return s.redis.release()
		}
		return errors.Join(s.store.Close(), s.redis.release())
	}
	source, err := loadSource(caddyCtx, app)
	if err != nil {
		return nil, nil, errors.Join(err, closeAll())
	}
	if f, ok := source.(*FileSource); ok {
		f.create = c.create
	}
	if s.store, err = source.Open(ctx, func(SourceEvent) {}); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("opening the credential source: %w", err), closeAll())
	}
	if app.Redis != nil {
		if s.redis, err = acquireRedis(app.Redis, caddy.NewReplacer()); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("setting up redis: %w", err), closeAll())
		}
	}
	return s, closeAll, nil
}

// loadApp reads the app's settings out of a configuration.
func (c *keysCommand) loadApp(app *App) error {
	raw, name, _, err := caddycmd.LoadConfig(c.config, c.adapter)
	if err != nil {
		return fmt.Errorf("loading the configuration: %w", err)
	}
	if raw == nil {
		return errors.New("no configuration: name one with --config, or a credential file with --file")
	}
	var cfg struct {
		Apps map[string]json.RawMessage `json:"apps"`
	}
	if err := json.Unmarshal(raw, &cfg); err != nil {
		return fmt.Errorf("reading the configuration %s: %w", name, err)
	}
	if cfg.Apps[appName] == nil {
		return fmt.Errorf("the configuration %s has no global option %q", name, appName)
	}
	if err := caddy.StrictUnmarshalJSON(cfg.Apps[appName], app); err != nil {
		return fmt.Errorf("reading the configuration %s: %w", name, err)
	}
	if app.CredentialsRaw == nil {
		return fmt.Errorf("the configuration %s names no credential source: set \"credentials\" in the global option %q", name, appName)
	}
	return nil
}
