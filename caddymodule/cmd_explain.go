package caddymodule

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/explain"
)

// The exit statuses of `gatehouse explain`.
const (
	explainVerified = iota
	explainMistake
	explainUnknown
	explainBadInput
)

// maxCapture is the maximum size of a captured request in bytes.
const maxCapture = 32 << 20

// explainCommand holds the flags of `gatehouse explain`.
type explainCommand struct {
	secretEnv, secretFile, baseURL, at string
	id, address, config, adapter       string
	json                               bool
}

func configureExplain(cmd *cobra.Command) {
	c := new(explainCommand)
	cmd.SilenceUsage = true
	f := cmd.Flags()
	f.StringVar(&c.secretEnv, "secret-env", "GATEHOUSE_SECRET", "name of the environment variable that holds the private key")
	f.StringVar(&c.secretFile, "secret-file", "", "file that holds the private key, or - for standard input (instead of --secret-env)")
	f.StringVar(&c.baseURL, "base-url", "", "URL under which the API is mounted, such as https://example.com/gw")
	f.StringVar(&c.at, "at", "", "when the request was sent, as RFC 3339 or Unix time (default: what the capture says; otherwise the age is not checked)")
	f.StringVar(&c.id, "id", "", "request ID of a denied request, which the running gateway is asked about (instead of a file)")
	f.StringVar(&c.address, "address", "", "address of the running gateway's admin API (default: that of --config, or localhost:2019)")
	f.StringVarP(&c.config, "config", "c", "", "configuration file that has the address of the admin API")
	f.StringVarP(&c.adapter, "adapter", "a", "", "name of the config adapter to use")
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

// exit prints err, if any, and returns the error that ends the process with a status.
func exit(cmd *cobra.Command, status int, err error) error {
	if err != nil {
		cmd.PrintErrln("Error:", err)
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
	in := cmd.InOrStdin()
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return explainBadInput, fmt.Errorf("reading the request: %w", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	capture, err := io.ReadAll(io.LimitReader(in, maxCapture+1))
	if err != nil {
		return explainBadInput, fmt.Errorf("reading the request: %w", err)
	}
	if len(capture) > maxCapture {
		return explainBadInput, fmt.Errorf("reading the request: larger than %d bytes", maxCapture)
	}
	r, err := explain.Parse(capture, os.Getenv)
	if err != nil {
		return explainBadInput, fmt.Errorf("reading the request: %w", err)
	}
	if err := c.complete(&r); err != nil {
		return explainBadInput, err
	}
	if r.Skipped > 0 {
		cmd.PrintErrf("The capture has %d signed requests: this is about the last one.\n", r.Skipped+1)
	}
	if base, _, ok := strings.Cut(r.Target, "/api/v1/"); ok && base != "" && c.baseURL == "" && !strings.Contains(base, "?") {
		r.BasePath = base
		cmd.PrintErrf("Assuming the API is mounted at %s. If it is not, set --base-url.\n", base)
	}
	attempt := explain.Read(r)
	res := attempt.Explain(cmd.Context(), &authsigner.Credential{PublicKey: attempt.PublicKey, PrivateKey: secret}, time.Time{})
	out := cmd.OutOrStdout()
	if c.json {
		err = json.NewEncoder(out).Encode(res)
	} else {
		err = printExplanation(out, res, attempt.ToSign())
	}
	if err != nil {
		return explainBadInput, fmt.Errorf("printing the explanation: %w", err)
	}
	return statusOf(res), nil
}

// checkPrivateKey returns an error if the private key was copied wrongly. The explanation would find the mistake in the request.
func checkPrivateKey(s string) error {
	var what string
	switch {
	case strings.HasPrefix(s, "pk_"):
		what = "begins with pk_, as public keys do"
	case strings.TrimSpace(s) != s:
		what = "begins or ends with white space"
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
	address, err := caddycmd.DetermineAdminAPIAddress(c.address, nil, c.config, c.adapter)
	if err != nil {
		return explainBadInput, fmt.Errorf("finding the admin API: %w", err)
	}
	resp, err := caddycmd.AdminAPIRequest(address, http.MethodGet, adminExplainPath+url.PathEscape(c.id), nil, nil)
	if err != nil {
		return explainBadInput, fmt.Errorf("asking the gateway: %w", adminError(err))
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxCapture))
	if err != nil {
		return explainBadInput, fmt.Errorf("asking the gateway: %w", err)
	}
	var d explainedFailure
	if err := json.Unmarshal(body, &d); err != nil {
		return explainBadInput, fmt.Errorf("asking the gateway: %w", err)
	}
	out := cmd.OutOrStdout()
	if c.json {
		_, err = out.Write(body)
	} else {
		err = d.print(out)
	}
	if err != nil {
		return explainBadInput, fmt.Errorf("printing the explanation: %w", err)
	}
	return statusOf(d.Result), nil
}

// print prints an explanation for people.
func (d *explainedFailure) print(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "%s, request %s, key %s: %s\n", d.At.UTC().Format(time.RFC3339), d.RequestID, cmp.Or(d.PublicKey, "none"), d.Reason); err != nil {
		return err
	}
	if d.BodyLeft {
		if _, err := fmt.Fprintln(w, "The request had a body, which is not kept: its signature cannot be explained."); err != nil {
			return err
		}
	}
	if d.Reason == "unknown_key" && len(d.Mistakes) == 0 {
		_, err := fmt.Fprintln(w, "There is no such key: it was not issued here, or was revoked.")
		return err
	}
	return printExplanation(w, d.Result, "")
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

// printExplanation prints a result for people. toSign is the string that should have been signed.
func printExplanation(w io.Writer, res explain.Result, toSign string) error {
	var b strings.Builder
	switch {
	case res.Verified:
		b.WriteString("The signature is correct.\n")
		if toSign != "" {
			b.WriteString("Not checked: whether the public key exists, and the method. The API serves only GET and HEAD.\n")
		}
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
	if toSign != "" && !res.Verified {
		fmt.Fprintf(&b, "\nString to sign, %d bytes:\n%s", len(toSign), visible(toSign))
	}
	_, err := io.WriteString(w, b.String())
	return err
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
