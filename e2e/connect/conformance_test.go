package connect_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// suite is the conformance suite's command.
const suite = "node_modules/@modelcontextprotocol/conformance/dist/index.js"

// check is one of the suite's findings.
type check struct {
	ID, Name, Status, ErrorMessage string
	Details                        json.RawMessage
}

// resultsIn reads the checks of each scenario that the suite has saved in folders whose names begin with role.
func resultsIn(t *testing.T, dir, role string) map[string][]check {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, role+"-*", "checks.json"))
	require.NoError(t, err)
	stamp := regexp.MustCompile(`-\d{4}-\d\d-\d\dT.*$`)
	found := make(map[string][]check)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		var checks []check
		require.NoError(t, json.Unmarshal(text, &checks), f)
		name := strings.TrimPrefix(stamp.ReplaceAllString(filepath.Base(filepath.Dir(f)), ""), role+"-")
		found[name] = append(found[name], checks...)
	}
	return found
}

// failures returns the failed checks of a scenario, and the warnings.
func failures(checks []check) (failed, warned []string) {
	for _, c := range checks {
		text := fmt.Sprintf("%s: %s %s", c.ID, c.ErrorMessage, c.Details)
		switch c.Status {
		case "FAILURE":
			failed = append(failed, text[:min(len(text), 2000)])
		case "WARNING":
			warned = append(warned, text[:min(len(text), 500)])
		}
	}
	return failed, warned
}

// required returns the server scenarios that a revision requires, from the suite.
func required(t *testing.T, revision string) []string {
	t.Helper()
	out, err := node(t.Context(), t, nil, suite, "list", "--requirements", revision).Output()
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(out), "Server scenarios (test against a server):\n")
	require.True(t, ok, "%s", out)
	rest, _, ok = strings.Cut(rest, "\n\n")
	require.True(t, ok, "%s", out)
	var names []string
	for line := range strings.Lines(rest) {
		names = append(names, strings.TrimPrefix(strings.TrimSpace(line), "- "))
	}
	require.Greater(t, len(names), 20)
	return names
}

//nolint:tparallel // the suite loads the machine itself
func TestServerConformance(t *testing.T) {
	t.Parallel()
	w, connect := conformanceEnvironment(t)
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			names := required(t, revision)
			connect(t) // the suite would come close to the limit of one connection
			results := t.TempDir()
			ctx, cancel := context.WithTimeout(t.Context(), driverPatience)
			defer cancel()
			cmd := node(ctx, t, nil, suite, "server", "--url", w.url+"/mcp", "--requirements", revision, "--output-dir", results)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			exit := cmd.Run()
			found := resultsIn(t, results, "server")
			passed := 0
			for _, name := range names {
				failed, warned := failures(found[name])
				for _, text := range warned {
					t.Logf("warning: %s: %s", name, text)
				}
				switch {
				case len(found[name]) == 0:
					t.Errorf("%s: the suite reports no check", name)
				case len(failed) > 0:
					t.Errorf("%s: %s", name, strings.Join(failed, "\n"))
				default:
					passed++
				}
			}
			for name, checks := range found {
				if failed, _ := failures(checks); len(failed) > 0 && !slices.Contains(names, name) {
					t.Logf("not scored: %s: %s", name, failed[0])
				}
			}
			t.Logf("%d of %d scored scenarios pass", passed, len(names))
			require.NoError(t, exit, "%s\n%s", tail(out.String()), w.Output())
			assert.False(t, t.Failed(), "%s\n%s", tail(out.String()), w.Output())
		})
	}
}

func tail(s string) string { return s[max(0, len(s)-8<<10):] }

// conformanceEnvironment starts a gateway whose MCP server also has the suite's fixture tools, behind a proxy that adds the access token of the
// latest connection made by connect, because the suite cannot sign in.
func conformanceEnvironment(t *testing.T) (w *environment, connect func(*testing.T)) {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, nil, 0o600))
	w = start(t, options{tags: "conformance", token: token})
	return w, func(t *testing.T) {
		t.Helper()
		granted, _ := drive(t, w, "token.mjs").Facts["access token"].(string)
		require.NotEmpty(t, granted)
		require.NoError(t, os.WriteFile(token, []byte(granted), 0o600))
	}
}

func TestAuthorizationServerConformance(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	_, port, err := net.SplitHostPort(gatewaytest.FreeAddr(t))
	require.NoError(t, err)
	body := fmt.Sprintf(`{"client_name":"Conformance","redirect_uris":["http://127.0.0.1:%s/callback"],`+
		`"grant_types":["authorization_code"],"response_types":["code"],"token_endpoint_auth_method":"none"}`, port)
	res, err := client().Post(w.url+"/oauth/register", "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer func() { require.NoError(t, res.Body.Close()) }()
	require.Equal(t, http.StatusCreated, res.StatusCode)
	var registered struct {
		ClientID string `json:"client_id"`
	}
	require.NoError(t, json.NewDecoder(res.Body).Decode(&registered))

	results := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), driverPatience)
	defer cancel()
	cmd := node(ctx, t, nil, suite, "authorization", "--url", w.url, "--client-id", registered.ClientID, "--port", port,
		"--resource", w.url+"/mcp", "--output-dir", results)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	require.NoError(t, cmd.Start())
	var out strings.Builder
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		out.WriteString(lines.Text() + "\n")
		if strings.HasPrefix(lines.Text(), w.url+"/oauth/authorize?") {
			person, err := node(ctx, t, w.env(), "person.mjs", lines.Text()).CombinedOutput()
			require.NoError(t, err, "%s", person)
		}
	}
	require.NoError(t, cmd.Wait(), "%s%s", out.String(), stderr.String())
	found := resultsIn(t, results, "authorization-server")
	for _, name := range []string{"authorization-server-metadata-endpoint", "authorization-code-grant"} {
		require.NotEmpty(t, found[name], "%v\n%s", found, out.String())
		for _, c := range found[name] {
			assert.Equal(t, "SUCCESS", c.Status, "%s: %s", c.ID, c.ErrorMessage)
		}
	}
}
