package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/explain"
	"github.com/gatehouse-gateway/gatehouse/caddymodule"
	"github.com/gatehouse-gateway/gatehouse/caddymodule/internal/configfile"
	"github.com/gatehouse-gateway/gatehouse/internal/cleantext"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// The exit statuses of `gatehouse explain`.
const (
	explainVerified = iota
	explainMistake
	explainUnknown
	explainBadInput
)

// maxExplained is how long the search for mistakes may take.
const maxExplained = 30 * time.Second

// explainCommand holds the flags of `gatehouse explain`.
type explainCommand struct {
	adminAPI
	secretEnv, secretFile, baseURL, at, id string
	json                                   bool
}

func configureExplain(cmd *cobra.Command) {
	c := new(explainCommand)
	cmd.SilenceUsage = true
	f := cmd.Flags()
	f.StringVar(&c.secretEnv, "secret-env", "GATEHOUSE_SECRET", "name of the environment variable that holds the private key")
	f.StringVar(&c.secretFile, "secret-file", "", "file that holds the private key, or - for standard input (instead of --secret-env)")
	f.StringVar(&c.baseURL, "base-url", "", "URL under which the API is mounted, such as https://example.com/gw")
	f.StringVar(&c.at, "at", "", "when the request was sent, as RFC 3339 or Unix time (default: now, but then an old timestamp is not a mistake)")
	f.StringVar(&c.id, "id", "", "request ID of a denied request, which the running gateway is asked about (instead of a file)")
	c.addFlags(cmd)
	f.Lookup("config").Usage = "configuration file, for the definitions of its APIs and the address of the admin API"
	f.BoolVar(&c.json, "json", false, "print JSON")
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return exit(cmd, explainBadInput, err) })
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if c.id != "" && len(args) == 0 {
			status, err := c.ask(cmd)
			return exit(cmd, status, err)
		}
		if len(args) != 1 || c.id != "" {
			return exit(cmd, explainBadInput, fmt.Errorf("expected one file, or - for standard input, or no argument with --id; got %d arguments", len(args)))
		}
		status, err := c.run(cmd, args[0])
		return exit(cmd, status, err)
	}
}

// escaped writes text from outside for people, with control characters escaped.
type escaped struct{ io.Writer }

// Write implements io.Writer.
func (e escaped) Write(p []byte) (int, error) {
	if _, err := io.WriteString(e.Writer, cleantext.Escape(strings.ReplaceAll(string(p), "\r\n", "\n"))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// exit prints err, if any, and returns the error that ends the process with a status.
func exit(cmd *cobra.Command, status int, err error) error {
	if err != nil {
		cmd.PrintErrln("Error:", cleantext.Escape(err.Error()))
	}
	cmd.SilenceErrors = true
	if status == 1 { // Caddy's exit status for any error, which WrapCommandFuncForCobra does not return
		return errors.New("exiting with status 1")
	}
	return caddycmd.WrapCommandFuncForCobra(func(caddycmd.Flags) (int, error) { return status, nil })(cmd, nil)
}

func (c *explainCommand) run(cmd *cobra.Command, file string) (status int, err error) {
	if file == "-" && c.secretFile == "-" {
		return explainBadInput, errors.New("only one of the request and the private key can be read from standard input")
	}
	secret, err := readSecret(c.secretEnv, c.secretFile, cmd.InOrStdin())
	if err != nil {
		return explainBadInput, err
	}
	if err := checkPrivateKey(secret.Reveal()); err != nil {
		return explainBadInput, err
	}
	capture, err := readCapture(file, cmd.InOrStdin())
	if err != nil {
		return explainBadInput, fmt.Errorf("reading the request: %w", err)
	}
	r, err := explain.Parse(capture)
	if err != nil {
		return explainBadInput, fmt.Errorf("reading the request: %w", err)
	}
	if err := c.complete(&r); err != nil {
		return explainBadInput, err
	}
	bases := []string{definition.Public().Base()}
	if c.config != "" {
		if bases, err = c.bases(); err != nil {
			return explainBadInput, err
		}
	}
	for _, api := range bases {
		if base, _, ok := strings.Cut(r.Target, api+"/"); ok && base != "" && c.baseURL == "" && r.BasePath == "" && !strings.ContainsFunc(base, notInPath) {
			r.BasePath = base
			cmd.PrintErrf("Assuming the API is mounted at %s. If it is not, set --base-url.\n", base)
		}
	}
	attempt := explain.Read(r)
	ctx, cancel := context.WithTimeout(cmd.Context(), maxExplained)
	defer cancel()
	e := explanation{Result: attempt.Explain(ctx, &authsigner.Credential{PublicKey: attempt.PublicKey, PrivateKey: secret}, time.Time{})}
	at, clock := r.At, "the time of --at"
	if at.IsZero() {
		at, clock = time.Now(), "the present time"
	}
	if late, ok := attempt.Behind(at); ok {
		seconds := int64(late / time.Second)
		e.Behind, e.Expired = &seconds, late.Abs() > authsigner.MaxSkew
	}
	if err := c.print(cmd.OutOrStdout(), e, e.text(attempt.ToSign(), clock)); err != nil {
		return explainBadInput, err
	}
	return statusOf(e.Result), nil
}

func notInPath(r rune) bool { return r == '?' || r == ' ' || !strconv.IsPrint(r) }

// readCapture reads a regular file, or standard input if file is "-". It neither waits for the writer of a pipe that is named like a
// file, nor reads a device without end.
func readCapture(file string, stdin io.Reader) ([]byte, error) {
	in := stdin
	if file != "-" {
		f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
			return nil, errors.Join(err, errors.New("it is not a regular file: use - to read standard input"))
		}
		in = f
	}
	return io.ReadAll(io.LimitReader(in, explain.MaxCapture+1)) // Parse reports what is larger
}

// explanation is what `gatehouse explain` prints about a capture.
type explanation struct {
	explain.Result
	Behind  *int64 `json:"timestamp_behind_seconds,omitempty"` // from the timestamp to the time of --at, or to now; negative if it is ahead
	Expired bool   `json:"expired"`                            // the gateway rejects the request at that time
}

// print prints JSON, or text for people.
func (c *explainCommand) print(w io.Writer, v any, text string) error {
	if c.json {
		raw, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("printing the explanation: %w", err)
		}
		text = string(raw) + "\n"
	}
	if _, err := io.WriteString(w, cleantext.Escape(text)); err != nil {
		return fmt.Errorf("printing the explanation: %w", err)
	}
	return nil
}

// checkPrivateKey returns an error if the private key was copied wrongly. The explanation would find the mistake in the request.
func checkPrivateKey(s string) error {
	var what string
	switch {
	case strings.HasPrefix(s, "pk_"):
		what = "begins with pk_, as public keys do"
	case strings.Trim(s, "\"'`") != s:
		what = "begins or ends with a quotation mark"
	default:
		return nil
	}
	return fmt.Errorf("reading the private key: it %s: must be the private key as issued, and nothing else", what)
}

func statusOf(res explain.Result) int {
	switch {
	case res.Verified:
		return explainVerified
	case len(res.Mistakes) > 0:
		return explainMistake
	}
	return explainUnknown
}

// ask asks the admin API of the running gateway about a request that it denied.
func (c *explainCommand) ask(cmd *cobra.Command) (status int, err error) {
	var d caddymodule.ExplainedFailure
	if err := c.get(caddymodule.AdminExplainPath+url.PathEscape(c.id), &d); err != nil {
		return explainBadInput, err
	}
	if err := c.print(cmd.OutOrStdout(), d, failureText(d)); err != nil {
		return explainBadInput, err
	}
	return statusOf(d.Result), nil
}

// failureText returns an explanation for people.
func failureText(d caddymodule.ExplainedFailure) string {
	text := fmt.Sprintf("%s, request %s, key %s: %s\n", d.At.UTC().Format(time.RFC3339), d.RequestID, cmp.Or(d.PublicKey, "none"), d.Reason)
	if d.BodyLeft {
		text += "The request had a body, which is not kept: its signature cannot be explained.\n"
	}
	if d.Reason == "unknown_key" && len(d.Mistakes) == 0 {
		return text + "There is no such key: it was not issued here, or was revoked.\n"
	}
	return text + resultText(d.Result, "")
}

// bases returns the base paths of the APIs in the configuration.
func (c *explainCommand) bases() ([]string, error) {
	cfg, err := configfile.Load(c.config, c.adapter)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the file
	}
	return caddymodule.BasePaths(cfg.Value)
}

// complete adds what the flags say about the request.
func (c *explainCommand) complete(r *explain.Request) error {
	if c.baseURL != "" {
		u, err := url.Parse(c.baseURL)
		if err != nil || u.Host == "" {
			return fmt.Errorf("invalid base URL %q: must be of the form https://host/path", c.baseURL)
		}
		r.Scheme, r.Host, r.BasePath = u.Scheme, u.Host, u.EscapedPath()
	}
	if c.at != "" {
		at, err := parseTime(c.at)
		if err != nil {
			return err
		}
		r.At = at
	}
	return nil
}

func parseTime(s string) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	if seconds, err := strconv.ParseInt(s, 10, 64); err == nil {
		return time.Unix(seconds, 0), nil
	}
	return time.Time{}, fmt.Errorf("invalid time %q: must be RFC 3339 or Unix time, such as 2026-03-05T09:30:00Z", s)
}

// text returns an explanation for people. toSign is the string that should have been signed, and clock what the timestamp was compared to.
func (e explanation) text(toSign, clock string) string {
	text := resultText(e.Result, toSign)
	if e.Behind == nil || !e.Verified {
		return text
	}
	direction := "behind"
	if *e.Behind < 0 {
		direction = "ahead of"
	}
	text += fmt.Sprintf("Its timestamp is %s %s %s", (time.Duration(*e.Behind) * time.Second).Abs(), direction, clock)
	if e.Expired {
		text += ": the gateway would reject the request as expired, because at most\n5 minutes are allowed. To check it for the time when it was sent, set --at"
	}
	return text + ".\n"
}

// resultText returns a result for people. toSign is the string that should have been signed, if it may be shown.
func resultText(res explain.Result, toSign string) string {
	var b strings.Builder
	switch {
	case res.Verified:
		b.WriteString("The signature is correct.\n")
		if toSign != "" {
			b.WriteString("Not checked: whether the public key exists, and whether the API has this method and path.\n")
		}
	case res.Complete && len(res.Mistakes) == 1 && res.Mistakes[0].Code == "wrong_clock":
		b.WriteString("The signature is correct, but:\n")
	case len(res.Mistakes) == 0 && res.Searched:
		b.WriteString("No known mistake explains this signature. Check first that the private key belongs to the public key.\n" +
			"Other causes cannot be found by trying: a private key of another environment, another URL or base path than the one\n" +
			"that was signed (--base-url), or a proxy that changes the request on its way.\n")
	}
	for _, m := range res.Mistakes {
		fmt.Fprintf(&b, "%s\n  %s\n  %s\n", m.Code, m.What, m.Fix)
	}
	if len(res.Mistakes) > 0 && res.Searched && !res.Complete {
		b.WriteString("The signature is also wrong in a way that no known mistake explains.\n")
	}
	if toSign != "" && res.Complete && res.Signed != toSign {
		fmt.Fprintf(&b, "\nString that was signed, %d bytes:\n%s", len(res.Signed), visible(res.Signed))
	}
	if toSign != "" && !res.Verified && res.Signed != toSign {
		fmt.Fprintf(&b, "\nString to sign, %d bytes:\n%s", len(toSign), visible(toSign))
	}
	return b.String()
}

// visible returns text with its control and other invisible characters escaped, one line for each line.
func visible(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		quoted := fmt.Sprintf("%+q", line)
		b.WriteString("  " + strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`) + "\n")
	}
	return b.String()
}
