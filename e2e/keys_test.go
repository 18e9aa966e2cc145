package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// outcome is the output and the exit code of a command.
type outcome struct {
	stdout, stderr string
	code           int
}

// cli runs the binary with only the given environment.
func cli(t *testing.T, env []string, args ...string) outcome {
	t.Helper()
	o, err := tryCLI(t.Context(), t.TempDir(), gatewaytest.Binary(t), env, args...)
	require.NoError(t, err)
	return o
}

// tryCLI is cli for goroutines.
func tryCLI(ctx context.Context, dir, binary string, env []string, args ...string) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir}, env...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	o := outcome{stdout: stdout.String(), stderr: stderr.String(), code: cmd.ProcessState.ExitCode()}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && ctx.Err() == nil {
		err = nil // see the exit code
	}
	return o, err
}

// requireOK requires exit code 0.
func (o outcome) requireOK(t *testing.T) outcome {
	t.Helper()
	require.Zero(t, o.code, "%s%s", o.stdout, o.stderr)
	return o
}

// requireError requires another exit code, nothing on standard output, and an error line that contains the words.
func (o outcome) requireError(t *testing.T, words ...string) {
	t.Helper()
	require.Positive(t, o.code, "%s%s", o.stdout, o.stderr)
	require.Empty(t, o.stdout)
	line := errorLine(o.stderr)
	require.NotEmpty(t, line, "stderr: %s", o.stderr)
	for _, word := range words {
		require.Contains(t, strings.ToLower(line), strings.ToLower(word))
	}
	require.NotContains(t, o.stderr, "goroutine ", "an error is no stack trace")
}

// errorLine returns the last error line, in plain text or, as from `gatehouse run`, in JSON.
func errorLine(stderr string) string {
	line := ""
	for l := range strings.Lines(stderr) {
		if strings.HasPrefix(l, "Error: ") || strings.HasPrefix(l, `{"level":"error"`) {
			line = strings.TrimSpace(l)
		}
	}
	return line
}

// issued is what `gatehouse keys issue --json` and `rotate --json` print.
type issued struct {
	PublicKey         string    `json:"public_key"`
	PrivateKey        string    `json:"private_key"`
	BusinessID        string    `json:"business_id"`
	BusinessName      string    `json:"business_name"`
	BusinessSlug      string    `json:"business_slug"`
	Status            string    `json:"status"`
	Limit             int       `json:"limit"`
	PreviousExpiresAt time.Time `json:"previous_expires_at"`
}

func (i issued) caller() gatewaytest.Caller {
	return gatewaytest.Caller{PublicKey: i.PublicKey, PrivateKey: authsigner.Secret(i.PrivateKey)}
}

// keysCLI runs `gatehouse keys` with --json against one source.
type keysCLI struct {
	source []string // --file F or --config F
	env    []string
}

func (k keysCLI) run(t *testing.T, args ...string) outcome {
	t.Helper()
	return cli(t, k.env, append(append([]string{"keys"}, args...), k.source...)...)
}

func (k keysCLI) json(t *testing.T, v any, args ...string) outcome {
	t.Helper()
	o := k.run(t, append(args, "--json")...).requireOK(t)
	require.NoError(t, json.Unmarshal([]byte(o.stdout), v), "%s", o.stdout)
	if k.source[0] == "--file" { // or else Caddy logs that it reads a configuration
		require.Empty(t, o.stderr)
	}
	return o
}

func (k keysCLI) issue(t *testing.T, more ...string) issued {
	t.Helper()
	var v issued
	k.json(t, &v, append([]string{
		"issue", "--business-id", "7a1e61f4-3d43-4ab0-9f8a-0f7e9c2a5b01", "--business-name", "Blue Door Plumbing", "--business-slug", "blue-door",
	}, more...)...)
	require.True(t, authsigner.ValidPublicKey(v.PublicKey))
	require.NotEmpty(t, v.PrivateKey)
	return v
}

// newKeyFile is an empty credential file.
func newKeyFile(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "keys.json")
	require.NoError(t, os.WriteFile(name, []byte(`{"keys":{}}`), 0o600))
	return name
}

func TestKeysCommandsPrintAPrivateKeyOnce(t *testing.T) {
	t.Parallel()
	k := keysCLI{source: []string{"--file", newKeyFile(t)}}
	first := k.issue(t, "--limit", "120", "--test")
	require.True(t, strings.HasPrefix(first.PublicKey, "pk_test_"), first.PublicKey)
	require.Equal(t, "active", first.Status)
	require.Equal(t, 120, first.Limit)

	o := k.run(t, "issue", "--business-id", "2", "--business-name", "Ünïcode & Söhne", "--business-slug", "soehne").requireOK(t)
	require.Empty(t, o.stderr)
	require.Contains(t, o.stdout, "public key:  pk_live_")
	_, rest, _ := strings.Cut(o.stdout, "private key: ")
	second, _, _ := strings.Cut(rest, "\n")
	require.NotEmpty(t, second)
	require.Equal(t, 1, strings.Count(o.stdout, second))
	require.Contains(t, o.stdout, "not shown again")

	var rotated issued
	o = k.json(t, &rotated, "rotate", first.PublicKey, "--grace", "1h")
	require.Equal(t, first.PublicKey, rotated.PublicKey)
	require.NotEqual(t, first.PrivateKey, rotated.PrivateKey)
	require.Equal(t, 1, strings.Count(o.stdout, rotated.PrivateKey))
	require.WithinDuration(t, time.Now().Add(time.Hour), rotated.PreviousExpiresAt, time.Minute)
	gatewaytest.RequireNowhere(t, o.stdout+o.stderr, first.PrivateKey)
	unseen := rotated
	k.json(t, &rotated, "rotate", first.PublicKey, "--grace", "keep")
	require.NotEqual(t, unseen.PrivateKey, rotated.PrivateKey)
	require.Equal(t, unseen.PreviousExpiresAt, rotated.PreviousExpiresAt)

	for _, args := range [][]string{
		{"list"},
		{"list", "--json"},
		{"show", first.PublicKey},
		{"show", first.PublicKey, "--json"},
		{"rotate", first.PublicKey, "--grace", "0"},
		{"revoke", first.PublicKey},
	} {
		o := k.run(t, args...).requireOK(t)
		gatewaytest.RequireNowhere(t, o.stdout+o.stderr, first.PrivateKey, rotated.PrivateKey, second)
		assert.Contains(t, o.stdout, first.PublicKey)
	}
	var list []issued
	k.json(t, &list, "list")
	require.Len(t, list, 1)
	assert.Equal(t, "Ünïcode & Söhne", list[0].BusinessName)
	assert.Empty(t, list[0].PrivateKey)
}

func TestMalformedCredentialHidesNoOther(t *testing.T) {
	t.Parallel()
	name := newKeyFile(t)
	k := keysCLI{source: []string{"--file", name}}
	good := k.issue(t)
	raw, err := os.ReadFile(name)
	require.NoError(t, err)
	broken := strings.Replace(string(raw), `"keys": {`, `"keys": {"pk_live_somebody_wrote_by_hand": {"private_key": "canary-of-a-broken-entry"},`, 1)
	require.NoError(t, os.WriteFile(name, []byte(broken), 0o600))

	o := k.run(t, "list", "--json").requireOK(t)
	var list []issued
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &list))
	require.Len(t, list, 2)
	statuses := map[string]string{}
	for _, v := range list {
		statuses[v.PublicKey] = v.Status
	}
	require.Equal(t, map[string]string{good.PublicKey: "active", "pk_live_somebody_wrote_by_hand": "malformed"}, statuses)
	o = k.run(t, "show", "pk_live_somebody_wrote_by_hand")
	o.requireError(t, "malformed")
	gatewaytest.RequireNowhere(t, o.stderr, "canary-of-a-broken-entry")
	// it can be revoked
	k.run(t, "revoke", "pk_live_somebody_wrote_by_hand").requireOK(t)
	k.json(t, &list, "list")
	require.Len(t, list, 1)
}

func TestKeysCommandErrors(t *testing.T) {
	t.Parallel()
	name := newKeyFile(t)
	dir := filepath.Dir(name)
	write := func(file, content string, mode os.FileMode) string {
		file = filepath.Join(dir, file)
		require.NoError(t, os.WriteFile(file, []byte(content), mode))
		require.NoError(t, os.Chmod(file, mode))
		return file
	}
	k := keysCLI{source: []string{"--file", name}}
	key := k.issue(t)
	k.run(t, "rotate", key.PublicKey, "--grace", "2d").requireOK(t)
	noSecrets := write("NoSecrets", "{\n\tgatehouse {\n\t\tredis redis://127.0.0.1:1\n\t}\n}\n", 0o600)
	noGateway := write("NoGateway", "http://:1 {\n\trespond hi\n}\n", 0o600)
	issue := []string{"issue", "--business-id", "1", "--business-name", "A", "--business-slug", "a"}
	update := []string{"update", key.PublicKey}
	for name, tc := range map[string]struct {
		args  []string
		words []string
	}{
		"a private key":                  {[]string{"show", "sk_live_canary7Q2x", "--file", name}, []string{"expected the public key"}},
		"an invalid public key":          {[]string{"show", "../../etc/passwd", "--file", name}, []string{"invalid public key"}},
		"revoke takes one key":           {[]string{"revoke", "--file", name}, []string{"arg"}},
		"rotate within the grace":        {[]string{"rotate", key.PublicKey, "--file", name}, []string{"grace period"}},
		"a negative grace":               {[]string{"rotate", key.PublicKey, "--grace", "-1h", "--file", name}, []string{"negative"}},
		"a grace without a unit":         {[]string{"rotate", key.PublicKey, "--grace", "5", "--file", name}, []string{"--grace"}},
		"no business":                    {[]string{"issue", "--file", name}, []string{"business-id", "required"}},
		"an empty business id":           {append([]string{"issue", "--file", name}, "--business-id=", "--business-name=A", "--business-slug=a"), []string{"business_id"}},
		"a negative limit":               {append(issue, "--limit", "-1", "--file", name), []string{"limit"}},
		"an unknown sub-command":         {[]string{"delete", key.PublicKey, "--file", name}, []string{"delete"}},
		"an unknown flag":                {[]string{"list", "--file", name, "--secret"}, []string{"--secret"}},
		"update, nothing to change":      {append(update, "--file", name), []string{"at least one of", "status", "limit", "name", "expires", "resources"}},
		"update, limit of zero":          {append(update, "--limit", "0", "--file", name), []string{"--limit", "from 1 to", "default"}},
		"issue, limit of zero":           {append(issue, "--limit", "0", "--file", name), []string{"--limit", "from 1 to", "default"}},
		"update, limit too large":        {append(update, "--limit", "16777216", "--file", name), []string{"--limit", "from 1 to"}},
		"update, unknown status":         {append(update, "--status", "off", "--file", name), []string{"status", "active or inactive"}},
		"update, unknown resource":       {append(update, "--resources", "jobs,job", "--file", name), []string{`"job"`, "all", "jobs"}},
		"update, all beside another":     {append(update, "--resources", "all,jobs", "--file", name), []string{"all", "cannot be combined"}},
		"update, no resource":            {append(update, "--resources", "", "--file", name), []string{"--resources", "all"}},
		"update, resource of no service": {append(update, "--resources", "me", "--file", name), []string{`"me"`}},
		"update, expiry in the past":     {append(update, "--expires", "2020-01-01T00:00:00Z", "--file", name), []string{"--expires", "future", "90d", "never"}},
		"update, expiry without a unit":  {append(update, "--expires", "90", "--file", name), []string{"--expires", "90d"}},
		"update, name with a line feed":  {append(update, "--name", "a\nb", "--file", name), []string{"name", "control characters"}},
		"update, no key":                 {[]string{"update", "--limit", "5", "--file", name}, []string{"0 arguments", "one public key"}},
		"update, malformed key":          {[]string{"update", "x", "--limit", "5", "--file", name}, []string{"invalid public key"}},
		"both file and configuration":    {[]string{"list", "--file", name, "--config", "x"}, []string{"config", "file"}},
		"no file there":                  {[]string{"list", "--file", name + "x"}, []string{"no such file"}},
		"not JSON":                       {[]string{"list", "--file", write("text", "hello", 0o600)}, []string{"invalid JSON"}},
		"readable by others":             {[]string{"list", "--file", write("open", `{"keys":{}}`, 0o644)}, []string{"must be 0600"}},
		"no configuration there":         {[]string{"list", "--config", filepath.Join(dir, "none")}, []string{"no such file"}},
		"no credential source in it":     {[]string{"list", "--config", noSecrets, "--adapter", "caddyfile"}, []string{"credentials"}},
		"no gateway in it":               {[]string{"list", "--config", noGateway, "--adapter", "caddyfile"}, []string{"gateway"}},
		"neither file nor Caddyfile":     {[]string{"list"}, []string{"--config", "--file"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := cli(t, nil, append([]string{"keys"}, tc.args...)...)
			o.requireError(t, tc.words...)
			gatewaytest.RequireNowhere(t, o.stderr, key.PrivateKey, "canary7Q2x")
		})
	}
}

// pollAddresses gives each waitForStatus its own client IP.
var pollAddresses atomic.Uint32

// waitForStatus waits until a caller gets a response with this status. It uses its own client IP, because unverified requests count
// against it.
func waitForStatus(t *testing.T, status int, c gatewaytest.Caller, g *gatewaytest.Gateway) gatewaytest.Response {
	t.Helper()
	n := pollAddresses.Add(1)
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1, byte(n>>8), byte(n))}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	defer transport.CloseIdleConnections()
	c.Client = &http.Client{Transport: transport, Timeout: patience}
	var a gatewaytest.Response
	require.Eventually(t, func() bool {
		var err error
		a, err = c.Try(t.Context(), http.MethodGet, g.URL, "/api/v1/me", nil)
		return err == nil && a.Status == status
	}, patience, 350*time.Millisecond, "no %d", status) // at most 60 a minute
	return a
}
