package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/net/http/httpguts"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// signCommand holds the flags of `gatehouse sign`.
type signCommand struct {
	key, secretEnv, secretFile, basePath string
	data, dataFile                       string
	headers                              []string
	curl, send, explain                  bool
	timestamp                            int64
	timeout                              time.Duration
}

func configureSign(cmd *cobra.Command) {
	c := new(signCommand)
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != 2 {
			return fmt.Errorf("expected a method and a URL, got %d arguments", len(args))
		}
		return nil
	}
	cmd.SilenceUsage = true
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return signMethods(), cobra.ShellCompDirectiveNoFileComp
	}
	f := cmd.Flags()
	f.StringVar(&c.key, "key", "", "public key (default: $GATEHOUSE_KEY)")
	f.StringVar(&c.secretEnv, "secret-env", "GATEHOUSE_SECRET", "name of the environment variable that holds the private key")
	f.StringVar(&c.secretFile, "secret-file", "", "file that holds the private key, or - for standard input (instead of --secret-env)")
	f.StringVar(&c.basePath, "base-path", "", "path under which the gateway is mounted, which is not signed")
	f.StringVar(&c.data, "data", "", "request body")
	f.StringVar(&c.dataFile, "data-file", "", "file that holds the request body (instead of --data)")
	f.StringArrayVar(&c.headers, "header", nil, "additional header, such as \"Idempotency-Key: 1\"; may be repeated")
	f.BoolVar(&c.curl, "curl", false, "print a curl command instead of the headers")
	f.BoolVar(&c.send, "send", false, "send the request and print the response instead of the headers")
	f.BoolVar(&c.explain, "explain", false, "print the string to sign byte for byte, the headers and the request")
	f.Int64Var(&c.timestamp, "timestamp", 0, "Unix time to sign for (default: now)")
	f.DurationVar(&c.timeout, "timeout", 30*time.Second, "how long to wait for the response with --send")
	cmd.MarkFlagsMutuallyExclusive("curl", "send", "explain")
	cmd.MarkFlagsMutuallyExclusive("data", "data-file")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return c.run(cmd, args[0], args[1]) }
}

func (c *signCommand) run(cmd *cobra.Command, method, rawURL string) error {
	if c.key = cmp.Or(c.key, os.Getenv("GATEHOUSE_KEY")); c.key == "" {
		return errors.New("no public key: set --key or GATEHOUSE_KEY")
	}
	if err := checkKey("public key", c.key); err != nil {
		return err
	}
	secret, err := readSecret(c.secretEnv, c.secretFile, cmd.InOrStdin())
	if err != nil {
		return err
	}
	body := []byte(c.data)
	if c.dataFile != "" {
		if body, err = os.ReadFile(c.dataFile); err != nil {
			return fmt.Errorf("reading the request body: %w", err)
		}
	}
	if method = strings.ToUpper(method); !slices.Contains(signMethods(), method) {
		return fmt.Errorf("unknown method %q: must be one of %s", method, strings.Join(signMethods(), ", "))
	}
	further, err := c.further(body)
	if err != nil {
		return err
	}
	if len(c.headers) > 0 && !c.send && !c.curl {
		return errors.New("--header needs --send or --curl: only the signature's headers are printed")
	}
	u, target, err := curlTarget(rawURL, c.basePath)
	if err != nil {
		return err
	}
	if c.send {
		return c.sendRequest(cmd, secret, method, u, body, further)
	}
	ts := cmp.Or(c.timestamp, time.Now().Unix())
	headers := []string{
		authsigner.HeaderPublicKey + ": " + c.key,
		authsigner.HeaderTimestamp + ": " + strconv.FormatInt(ts, 10),
		authsigner.HeaderSignature + ": " + authsigner.Sign(secret, ts, method, target, body),
	}
	out := cmd.OutOrStdout()
	switch {
	case c.explain:
		toSign := string(authsigner.SigningString(ts, method, target, body))
		_, err = fmt.Fprintf(out, "String to sign, %d bytes:\n%s\nHeaders:\n  %s\n\nRequest:\n  %s %s\n", len(toSign), visible(toSign),
			strings.Join(headers, "\n  "), method, rawURL)
		return err
	case !c.curl:
		_, err = fmt.Fprintln(out, strings.Join(headers, "\n"))
		return err
	}
	// curl must send the target as it was signed: it must not resolve dot segments or expand brackets
	line := []string{"curl -sS --path-as-is --globoff"}
	switch {
	case method == http.MethodHead:
		line = append(line, "--head")
	case method != http.MethodGet || len(body) > 0:
		line = append(line, "-X "+shellQuote(method))
	}
	for _, h := range append(headers, further...) {
		line = append(line, "-H "+shellQuote(h))
	}
	switch {
	case c.dataFile != "":
		line = append(line, "--data-binary "+shellQuote("@"+c.dataFile))
	case len(body) > 0:
		line = append(line, "--data-raw "+shellQuote(c.data))
	}
	_, err = fmt.Fprintln(out, strings.Join(append(line, shellQuote(rawURL)), " "))
	return err
}

// further returns the headers that are not signed. A body that is JSON is sent as such, unless another type is given.
func (c *signCommand) further(body []byte) (all []string, err error) {
	typed := false
	for _, header := range c.headers {
		name, value, ok := strings.Cut(header, ":")
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, fmt.Errorf("invalid header %q: must be of the form Name: value", header)
		}
		name = http.CanonicalHeaderKey(name)
		if name == authsigner.HeaderPublicKey || name == authsigner.HeaderTimestamp || name == authsigner.HeaderSignature {
			return nil, fmt.Errorf("invalid header %q: it is part of the signature", header)
		}
		typed = typed || name == "Content-Type"
		all = append(all, name+": "+strings.TrimSpace(value))
	}
	if !typed && json.Valid(body) {
		all = append(all, "Content-Type: application/json")
	}
	return all, nil
}

// maxSecretFile is the maximum size in bytes of a file that holds a private key.
const maxSecretFile = 64 << 10

// readSecret reads the private key from an environment variable, or from a file if one is given ("-" for standard input), without the
// line feed at the file's end. It is never an argument, because other users of the machine can see arguments. A key that was copied
// wrongly would sign, and each of its signatures would be wrong.
func readSecret(env, file string, stdin io.Reader) (authsigner.Secret, error) {
	if file == "" {
		s := os.Getenv(env)
		if s == "" {
			return "", fmt.Errorf("no private key: the environment variable %s is empty (set it, or use --secret-env or --secret-file)", env)
		}
		return authsigner.Secret(s), checkKey("private key", s)
	}
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", fmt.Errorf("reading the private key: %w", err)
		}
		defer func() { _ = f.Close() }()
		stdin = f
	}
	b, err := io.ReadAll(io.LimitReader(stdin, maxSecretFile))
	if err != nil {
		return "", fmt.Errorf("reading the private key: %w", err)
	}
	s := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	if s == "" {
		return "", errors.New("reading the private key: the file is empty")
	}
	return authsigner.Secret(s), checkKey("private key", s)
}

// checkKey returns an error if a key holds white space, or a control or another invisible character. It does not quote the key.
func checkKey(name, s string) error {
	i := strings.IndexFunc(s, func(r rune) bool { return r == ' ' || !unicode.IsPrint(r) })
	if i < 0 {
		return nil
	}
	r, _ := utf8.DecodeRuneInString(s[i:])
	return fmt.Errorf("reading the %s: byte %d of %d is %U, white space or a control character: must be the key as issued, and nothing else",
		name, i+1, len(s), r)
}

// sendRequest sends the request with authsigner.Transport and prints the response, on a terminal with control characters escaped. The
// error ends the process with exit status 4 or 5 if the response has a status of 4xx or 5xx.
func (c *signCommand) sendRequest(cmd *cobra.Command, secret authsigner.Secret, method string, u *url.URL, body []byte, headers []string) error {
	req, err := http.NewRequestWithContext(cmd.Context(), method, "", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("building the request: %w", err)
	}
	req.URL = u
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		req.Header.Add(name, value)
	}
	t := &authsigner.Transport{PublicKey: c.key, PrivateKey: secret, BasePath: c.basePath}
	if c.timestamp != 0 {
		t.Now = func() time.Time { return time.Unix(c.timestamp, 0) }
	}
	client := &http.Client{
		Transport: t, Timeout: c.timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := client.Do(req)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // without the URL, which has no host here
	}
	if err != nil {
		return fmt.Errorf("sending the request: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	var header bytes.Buffer
	_ = res.Header.Write(&header) // a buffer does not fail
	out := cmd.OutOrStdout()
	if isTerminal(out) {
		out = escaped{out}
	}
	_, printErr := fmt.Fprintf(out, "%s %s\n%s\n", res.Proto, res.Status, &header)
	lines := bufio.NewReader(res.Body)
	for err == nil && printErr == nil { // escaping must not see parts of characters
		var line []byte
		line, err = lines.ReadBytes('\n')
		_, printErr = out.Write(line)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	} else if err != nil {
		err = fmt.Errorf("reading the response: %w", err)
	}
	_, _ = fmt.Fprintln(out)
	if err = errors.Join(err, printErr); err == nil && res.StatusCode >= http.StatusBadRequest {
		return exit(cmd, res.StatusCode/100, nil)
	}
	return err
}

func signMethods() []string {
	return []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
		http.MethodTrace,
	}
}

// curlTarget returns the request target that `curl --path-as-is --globoff` sends for rawURL, without the base path, and a URL for
// which net/http sends the same. Nothing is normalised; curl encodes only bytes of the path that are not ASCII.
func curlTarget(rawURL, basePath string) (u *url.URL, signed string, err error) {
	invalid := fmt.Errorf("invalid URL %q: must be of the form https://host/path", rawURL)
	if strings.ContainsFunc(rawURL, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return nil, "", fmt.Errorf("invalid URL %q: must not contain spaces or control characters (write %%20 for a space)", rawURL)
	}
	scheme, rest, _ := strings.Cut(rawURL, "://")
	rest, _, _ = strings.Cut(rest, "#")
	end := strings.IndexAny(rest+"/", "/?")
	if u, err = url.Parse(scheme + "://" + rest[:end]); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, "", invalid
	}
	path, query, hasQuery := strings.Cut(rest[end:], "?")
	var target strings.Builder
	for _, b := range []byte(cmp.Or(path, "/")) {
		if b < utf8.RuneSelf {
			_ = target.WriteByte(b) // never fails
		} else {
			fmt.Fprintf(&target, "%%%02x", b)
		}
	}
	if hasQuery {
		target.WriteString("?" + query)
	}
	u.Opaque = target.String()
	if strings.HasPrefix(u.Opaque, "//") { // net/http would take it for a host
		if u, err = url.Parse(u.Scheme + "://" + u.Host + u.Opaque); err != nil || u.RequestURI() != target.String() {
			return nil, "", invalid
		}
	}
	signed, ok := strings.CutPrefix(target.String(), strings.TrimRight(basePath, "/"))
	if !ok || !strings.HasPrefix(signed, "/") {
		return nil, "", fmt.Errorf("the URL's path does not begin with the base path %q", basePath)
	}
	return u, signed, nil
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
