package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/spf13/cobra"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/caddymodule"
	"github.com/gatehouse-gateway/gatehouse/caddymodule/internal/configfile"
	"github.com/gatehouse-gateway/gatehouse/ratelimit"
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
	f.StringSlice("envfile", nil, "environment files to load")
	f.StringVar(&c.file, "file", "", "credential file to use, instead of a configuration")
	f.BoolVar(&c.json, "json", false, "print JSON")
	f.DurationVar(&c.timeout, "timeout", 30*time.Second, "timeout of the whole command")
	cmd.MarkFlagsMutuallyExclusive("config", "file")
	complete(cmd, "adapter", "caddyfile")
	cmd.AddCommand(c.issue(), c.update(), c.rotate(), c.revoke(), c.list(), c.show())
	requireSubcommand(cmd)
}

// keyView is a credential as the commands print it. PrivateKey is set only for a key that was just issued or rotated.
type keyView struct {
	PublicKey         string            `json:"public_key"`
	PrivateKey        string            `json:"private_key,omitempty"`
	Name              string            `json:"name,omitempty"`
	BusinessID        string            `json:"business_id"`
	BusinessName      string            `json:"business_name"`
	BusinessSlug      string            `json:"business_slug"`
	Status            authsigner.Status `json:"status"`
	Limit             int               `json:"limit,omitempty"`
	Resources         []string          `json:"resources,omitempty"`
	Write             bool              `json:"write,omitempty"`
	CreatedAt         time.Time         `json:"created_at,omitzero"`
	CreatedBy         string            `json:"created_by,omitempty"`
	ExpiresAt         time.Time         `json:"expires_at,omitzero"`
	PreviousExpiresAt time.Time         `json:"previous_expires_at,omitzero"`
	Invalidated       *bool             `json:"invalidated,omitempty"` // of a changed key: gateways were notified through Redis

	note string // printed at the end
}

// statusMalformed marks an entry that is not a valid credential, so that one bad entry does not break the list.
const statusMalformed authsigner.Status = "malformed"

func viewOf(c *authsigner.Credential) keyView {
	return keyView{
		PublicKey: c.PublicKey, Name: c.Name, BusinessID: c.BusinessID, BusinessName: c.BusinessName, BusinessSlug: c.BusinessSlug,
		Status: c.Status, Limit: c.Limit, Resources: c.Resources, Write: c.Write, CreatedAt: c.CreatedAt, CreatedBy: c.CreatedBy,
		ExpiresAt: c.ExpiresAt, PreviousExpiresAt: c.PreviousExpiresAt,
	}
}

// keyFields are the flags for the optional fields of a credential. The zero values mean the gateway's limit, no expiry, all
// resources of the API without a name, and reading only.
type keyFields struct {
	name      string
	limit     int
	expires   time.Time
	resources []string
	write     bool
}

func (k *keyFields) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&k.name, "name", "", "display name of the key")
	f.Func("limit", "`requests` per minute, or default for the gateway's per_key limit", k.parseLimit)
	f.Func("expires", "`time` when the key expires: RFC 3339, or a duration from now such as 90d, or never", k.parseExpiry)
	f.Func("resources", "comma-separated `names` that the key may call: resources, APIs with a name (shop), resources of such APIs (shop/orders); or all, for the API without a name", k.parseResources)
	f.BoolVar(&k.write, "write", false, "let the key change data, and not only read")
	complete(cmd, "limit", "default")
	complete(cmd, "expires", "30d", "90d", "365d", "never")
	_ = cmd.RegisterFlagCompletionFunc("resources", completeResources) // cannot fail: the flag exists
}

// The values of the flags of keyFields that reset a field.
const (
	valueDefault = "default"
	valueNever   = "never"
	valueAll     = "all"
)

func (k *keyFields) parseLimit(s string) error {
	if s == valueDefault {
		k.limit = 0
		return nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > ratelimit.MaxRequests {
		return fmt.Errorf("must be from 1 to %d requests per minute, or %s", ratelimit.MaxRequests, valueDefault)
	}
	k.limit = n
	return nil
}

func (k *keyFields) parseExpiry(s string) error {
	if s == valueNever {
		k.expires = time.Time{}
		return nil
	}
	now := time.Now()
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		var d time.Duration
		d, err = caddy.ParseDuration(s)
		at = now.Add(d).Truncate(time.Second)
	}
	if err != nil || !at.After(now) {
		return fmt.Errorf("must be a time in the future (2027-01-31T00:00:00Z), a duration from now (90d, 12h), or %s", valueNever)
	}
	k.expires = at.UTC()
	return nil
}

func (k *keyFields) parseResources(s string) error {
	if s == valueAll {
		k.resources = nil
		return nil
	}
	names := strings.Split(s, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	slices.Sort(names)
	k.resources = slices.Compact(names)
	return nil
}

// checkResources returns an error if a name is neither a resource of the built-in API nor below one of the given named APIs.
func checkResources(names, resources, apis []string) error {
	known := slices.Concat(resources, apis)
	for _, name := range names {
		api, resource, of := strings.Cut(name, "/")
		if slices.Contains(known, name) || of && resource != "" && !strings.Contains(resource, "/") && slices.Contains(apis, api) {
			continue
		}
		if name == valueAll {
			return fmt.Errorf("--resources: %s cannot be combined with other names: name the resources instead, some of %s", valueAll, strings.Join(known, ","))
		}
		hint := ""
		if len(apis) == 0 {
			hint = "; to name an API of a configuration, use --config"
		}
		return fmt.Errorf("--resources: unknown resource %q: must be %s, or some of %s%s", name, valueAll, strings.Join(known, ","), hint)
	}
	return nil
}

// complete sets the values that shells suggest for a flag.
func complete(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // cannot fail: the flag exists
}

// completeResources suggests the next name of a list.
func completeResources(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	list := typed[:strings.LastIndex(typed, ",")+1]
	names, _, _ := caddymodule.KeyNames(nil) // of the built-in API
	if list == "" {
		names = append(names, valueAll)
	}
	for i := range names {
		names[i] = list + names[i]
	}
	return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

func (c *keysCommand) issue() *cobra.Command {
	var (
		o      authsigner.IssueOptions
		fields keyFields
	)
	cmd := &cobra.Command{
		Use:   "issue --business-id <id> --business-name <name> --business-slug <slug>",
		Short: "Issues a key pair for a business and prints the private key once",
		Args:  cobra.NoArgs,
		RunE: c.with(func(ctx context.Context, out io.Writer, s *openStore, _ []string) error {
			if err := checkResources(fields.resources, s.resources, s.apis); err != nil {
				return err
			}
			o.Name, o.Limit, o.ExpiresAt, o.Resources, o.Write = fields.name, fields.limit, fields.expires, fields.resources, fields.write
			o.CreatedBy = cmp.Or(o.CreatedBy, os.Getenv("USER"))
			cred, err := authsigner.Issue(ctx, s.store, o)
			if err != nil {
				return err
			}
			s.invalidate(ctx, cred.PublicKey)
			return c.printIssued(out, viewOf(cred), cred.PrivateKey)
		}),
	}
	cmd.PreRun = func(*cobra.Command, []string) { c.create = true }
	f := cmd.Flags()
	f.StringVar(&o.BusinessID, "business-id", "", "ID of the business, as in the data services' records")
	f.StringVar(&o.BusinessName, "business-name", "", "name of the business")
	f.StringVar(&o.BusinessSlug, "business-slug", "", "short name of the business")
	f.StringVar(&o.CreatedBy, "created-by", "", "who issues the key (default: $USER)")
	f.BoolVar(&o.Test, "test", false, "issue a test key: pk_test_…")
	fields.register(cmd)
	for _, name := range []string{"business-id", "business-name", "business-slug"} {
		_ = cmd.MarkFlagRequired(name) // cannot fail: the flag exists
	}
	return cmd
}

func (c *keysCommand) update() *cobra.Command {
	var (
		fields keyFields
		status string
	)
	cmd := &cobra.Command{
		Use:   "update <public key>",
		Short: "Changes the status, limit, name, expiry, allowed resources or right to write of a key",
		Args:  onePublicKey,
	}
	fields.register(cmd)
	statuses := []string{string(authsigner.StatusActive), string(authsigner.StatusInactive)}
	cmd.Flags().StringVar(&status, "status", "", "active or inactive")
	complete(cmd, "status", statuses...)
	cmd.MarkFlagsOneRequired("status", "limit", "name", "expires", "resources", "write")
	cmd.RunE = c.with(func(ctx context.Context, out io.Writer, s *openStore, args []string) error {
		set := cmd.Flags().Changed
		if set("status") && !slices.Contains(statuses, status) {
			return fmt.Errorf("invalid status %q: must be %s", status, strings.Join(statuses, " or "))
		}
		if err := checkResources(fields.resources, s.resources, s.apis); err != nil {
			return err
		}
		cred, err := s.store.Update(ctx, args[0], func(cred *authsigner.Credential) error {
			if set("status") {
				cred.Status = authsigner.Status(status)
			}
			if set("limit") {
				cred.Limit = fields.limit
			}
			if set("name") {
				cred.Name = fields.name
			}
			if set("expires") {
				cred.ExpiresAt = fields.expires
			}
			if set("resources") {
				cred.Resources = fields.resources
			}
			if set("write") {
				cred.Write = fields.write
			}
			return nil
		})
		invalidated := s.invalidate(ctx, args[0]) // even after an error, because the change may have been made
		if err != nil {
			return fmt.Errorf("updating the key %s: %w", args[0], err)
		}
		return c.printRecord(out, s.changed(cred, invalidated))
	})
	return cmd
}

// onePublicKey is the cobra.PositionalArgs of commands about one key.
func onePublicKey(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("expected one public key, got %d arguments", len(args))
	}
	if strings.HasPrefix(args[0], authsigner.PrivateKeyPrefix) {
		return fmt.Errorf("expected the public key, which begins with pk_, and got a private one, which begins with %s", authsigner.PrivateKeyPrefix)
	}
	if !authsigner.ValidPublicKey(args[0]) {
		return fmt.Errorf("invalid public key %q: must be 8 to 128 letters, digits, hyphens or underscores", args[0])
	}
	return nil
}

func (c *keysCommand) rotate() *cobra.Command {
	grace := 24 * time.Hour
	cmd := &cobra.Command{
		Use:   "rotate <public key> [--grace <duration>]",
		Short: "Generates a new private key and prints it once; the old one stays valid for the grace period",
		Args:  onePublicKey,
		RunE: c.with(func(ctx context.Context, out io.Writer, s *openStore, args []string) error {
			cred, err := authsigner.Rotate(ctx, s.store, args[0], grace, time.Now())
			invalidated := s.invalidate(ctx, args[0]) // even after an error, because the change may have been made
			if err != nil {
				return err
			}
			return c.printIssued(out, s.changed(cred, invalidated), cred.PrivateKey)
		}),
	}
	cmd.Flags().Func("grace", "`duration` for which the old private key stays valid, such as 12h or 2d; 0 invalidates it immediately; "+
		"keep replaces only the newest private key during the grace period of the last rotation (default 24h)",
		func(s string) (err error) {
			grace = authsigner.KeepGrace
			if s != "keep" {
				grace, err = caddy.ParseDuration(s)
			}
			return err
		})
	return cmd
}

func (c *keysCommand) revoke() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke <public key>",
		Short: "Deletes a key: gateways reject it immediately if Redis can notify them, otherwise when their cache's TTL ends",
		Args:  onePublicKey,
		RunE: c.with(func(ctx context.Context, out io.Writer, s *openStore, args []string) error {
			err := authsigner.Revoke(ctx, s.store, args[0])
			invalidated := s.invalidate(ctx, args[0]) // even after an error, because the change may have been made
			if err != nil {
				return err
			}
			if c.json {
				return printJSON(out, map[string]any{"public_key": args[0], "revoked": true, "invalidated": invalidated})
			}
			_, err = fmt.Fprintf(out, "%s is revoked. %s.\n", args[0], cmp.Or(s.note(invalidated), "Running gateways reject it now"))
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
					return fmt.Errorf("reading the key %s: %w", name, err)
				}
				views = append(views, viewOf(cred))
			}
			return c.printList(out, views)
		}),
	}
}

func (c *keysCommand) show() *cobra.Command {
	return &cobra.Command{
		Use:   "show <public key>",
		Short: "Shows a key's record without its private key",
		Args:  onePublicKey,
		RunE: c.with(func(ctx context.Context, out io.Writer, s *openStore, args []string) error {
			cred, err := s.store.Lookup(ctx, args[0])
			if err != nil {
				return fmt.Errorf("reading the key %s: %w", args[0], err)
			}
			return c.printRecord(out, viewOf(cred))
		}),
	}
}

func (c *keysCommand) printIssued(out io.Writer, v keyView, privateKey authsigner.Secret) error {
	v.PrivateKey = privateKey.Reveal()
	if c.json {
		return printJSON(out, v)
	}
	_, err := fmt.Fprintf(out, "public key:  %s\nprivate key: %s\n\nStore the private key now: it is not shown again.\n",
		v.PublicKey, v.PrivateKey)
	if err == nil && !v.PreviousExpiresAt.IsZero() {
		_, err = fmt.Fprintf(out, "The previous private key stays valid until %s.\n", v.PreviousExpiresAt.Format(time.RFC3339))
	}
	if err != nil {
		return err
	}
	return v.printNote(out)
}

// printNote prints the note of a changed key, if it has one.
func (v keyView) printNote(out io.Writer) error {
	if v.note == "" {
		return nil
	}
	_, err := fmt.Fprintf(out, "\n%s.\n", v.note)
	return err
}

func printJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printList prints a table of keys.
func (c *keysCommand) printList(out io.Writer, views []keyView) error {
	if c.json {
		return printJSON(out, views)
	}
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "PUBLIC KEY\tNAME\tSTATUS\tLIMIT\tCREATED\tEXPIRES\tBUSINESS\tID\tOLD KEY UNTIL")
	for _, v := range views {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", v.PublicKey, cmp.Or(v.Name, "-"), v.Status, v.limit(),
			timeOr(v.CreatedAt, "-"), v.expiry(), v.BusinessName, v.BusinessID, timeOr(v.PreviousExpiresAt, "-"))
	}
	return w.Flush()
}

// printRecord prints a key with all of its fields, except for private keys.
func (c *keysCommand) printRecord(out io.Writer, v keyView) error {
	if c.json {
		return printJSON(out, v)
	}
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	for _, row := range [][2]string{
		{"public key", v.PublicKey},
		{"name", cmp.Or(v.Name, "-")},
		{"status", string(v.Status)},
		{"limit", v.limit()},
		{"resources", cmp.Or(strings.Join(v.Resources, ","), valueAll+" of the API without a name")},
		{"may", map[bool]string{false: "read", true: "read and write"}[v.Write]},
		{"expires", v.expiry()},
		{"business", v.BusinessName},
		{"business id", v.BusinessID},
		{"business slug", v.BusinessSlug},
		{"created", timeOr(v.CreatedAt, "-")},
		{"created by", cmp.Or(v.CreatedBy, "-")},
		{"old key until", timeOr(v.PreviousExpiresAt, "-")},
	} {
		_, _ = fmt.Fprintf(w, "%s:\t%s\n", row[0], row[1])
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return v.printNote(out)
}

func (v keyView) limit() string {
	if v.Limit == 0 {
		return valueDefault
	}
	return fmt.Sprintf("%d/min", v.Limit)
}

func (v keyView) expiry() string {
	if !v.ExpiresAt.IsZero() && !time.Now().Before(v.ExpiresAt) {
		return v.ExpiresAt.Format(time.RFC3339) + " (expired)"
	}
	return timeOr(v.ExpiresAt, valueNever)
}

func timeOr(t time.Time, unset string) string {
	if t.IsZero() {
		return unset
	}
	return t.Format(time.RFC3339)
}

// openStore is the open credential source of a command.
type openStore struct {
	store caddymodule.CredentialStore
	app   *caddymodule.App // notifies gateways of changes
	file  bool             // store is a file, which gateways read again when it changes

	resources, apis []string // that keys may name, see caddymodule.KeyNames
}

// invalidate makes running gateways look up a key again, and reports whether it could notify them. It works after the command's
// deadline too.
func (s *openStore) invalidate(ctx context.Context, publicKey string) bool {
	return authsigner.ValidPublicKey(publicKey) && s.app.Invalidate(ctx, publicKey)
}

// changed returns the view of a changed key.
func (s *openStore) changed(cred *authsigner.Credential, invalidated bool) keyView {
	v := viewOf(cred)
	v.Invalidated, v.note = &invalidated, s.note(invalidated)
	return v
}

// note says when a change becomes effective, or is empty if it is already.
func (s *openStore) note(invalidated bool) string {
	switch {
	case invalidated:
		return ""
	case s.file:
		return "Running gateways use the change within about a second, when they have read the file again"
	default:
		return "Running gateways use the old record until their cache's TTL ends: they could not be notified through Redis"
	}
}

// with loads the configuration, without starting it, opens its credential source, and runs f. Its output is escaped, because it has text
// from Vault and Redis.
func (c *keysCommand) with(f func(context.Context, io.Writer, *openStore, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) (err error) {
		defer func() {
			if err != nil {
				err = exit(cmd, 1, err)
			}
		}()
		ctx, cancel := context.WithTimeout(cmd.Context(), c.timeout)
		defer cancel()
		caddyCtx, cancelConfig := caddy.NewContext(caddy.Context{Context: ctx})
		defer cancelConfig()
		if err := cmp.Or(notEmpty(cmd, "file"), loadEnvFiles(cmd)); err != nil {
			return err
		}
		app, cfg, err := c.loadApp()
		if err != nil {
			return err
		}
		source, err := app.LoadCredentialSource(caddyCtx)
		if err != nil && cfg != nil {
			return cfg.LoadError(fmt.Errorf("loading %s app module: %w", caddymodule.AppName, err))
		}
		if err != nil {
			return err
		}
		fileSource, isFile := source.(*caddymodule.FileSource)
		created := ""
		if isFile {
			fileSource.Create = c.create
			if _, err := os.Stat(fileSource.Path); c.create && cfg != nil && errors.Is(err, fs.ErrNotExist) {
				created, _ = filepath.Abs(fileSource.Path) // a relative path may not be that of a gateway
			}
		}
		store, err := source.Open(ctx, func(caddymodule.SourceEvent) {})
		if err != nil {
			return fmt.Errorf("opening the credential source: %w", err)
		}
		if created != "" {
			cmd.PrintErrln("Created the credential file", created)
		}
		defer func() { err = errors.Join(err, store.Close(), app.Cleanup()) }()
		if app.Redis != nil {
			if err := app.OpenRedis(); err != nil {
				return fmt.Errorf("setting up redis: %w", err)
			}
		}
		s := &openStore{store: store, app: app, file: isFile}
		var config any
		if cfg != nil {
			config = cfg.Value
		}
		if s.resources, s.apis, err = caddymodule.KeyNames(config); err != nil {
			return err
		}
		err = f(ctx, escaped{cmd.OutOrStdout()}, s, args)
		if errors.Is(err, authsigner.ErrMalformedCredential) { // sources add that they are unavailable, which misleads here
			err = errors.New(strings.Replace(err.Error(), authsigner.ErrUnavailable.Error()+": ", "", 1))
		}
		return err
	}
}

// loadApp returns the app's settings, and the configuration that they are from, or nil with --file.
func (c *keysCommand) loadApp() (*caddymodule.App, *configfile.Config, error) {
	app := new(caddymodule.App)
	if c.file != "" {
		app.CredentialsRaw = caddyconfig.JSONModuleObject(&caddymodule.FileSource{Path: c.file}, "source", "file", nil)
		return app, nil, nil
	}
	loaded, err := configfile.Load(c.config, c.adapter)
	if errors.Is(err, configfile.ErrNotFound) {
		return nil, nil, fmt.Errorf("%w; or set --file", err)
	}
	if err != nil {
		return nil, nil, err
	}
	var cfg struct {
		Apps map[string]json.RawMessage `json:"apps"`
	}
	if err := json.Unmarshal(loaded.Raw, &cfg); err != nil {
		return nil, nil, fmt.Errorf("reading the configuration %s: %w", loaded.File, err)
	}
	if cfg.Apps[caddymodule.AppName] == nil {
		return nil, nil, fmt.Errorf("the configuration %s has no global option %q", loaded.File, caddymodule.AppName)
	}
	if err := caddy.StrictUnmarshalJSON(cfg.Apps[caddymodule.AppName], app); err != nil {
		return nil, nil, fmt.Errorf("reading the configuration %s: %w", loaded.File, err)
	}
	if app.CredentialsRaw == nil {
		return nil, nil, fmt.Errorf("the configuration %s has no credential source: set \"credentials\" in the global option %q", loaded.File, caddymodule.AppName)
	}
	return app, loaded, nil
}
