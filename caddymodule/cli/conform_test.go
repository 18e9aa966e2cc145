package cli

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/demo"
	"github.com/gatehouse-gateway/gatehouse/internal/test/porttest"
	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/conform"
)

// runConform runs `gatehouse conform`, and returns what it prints and its exit status.
func runConform(t *testing.T, args ...string) (stdout, stderr, status string) {
	t.Helper()
	cmd := &cobra.Command{Use: "conform", SilenceErrors: true}
	configureConform(cmd)
	var out, errs bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs(args)
	status = "0"
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		status = strings.TrimPrefix(err.Error(), "exiting with status ")
	}
	return out.String(), errs.String(), status
}

// demoService serves the records of the demo to a gateway with a key that keys publishes, and returns the arguments of the command.
func demoService(t *testing.T, keys upstream.KeySource, wrap func(http.Handler) http.Handler) []string {
	t.Helper()
	data, err := demo.Open(t.Context(), demo.Memory, demo.Options{Authorize: func(r *http.Request) error {
		resource, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/api/v1/"), "/")
		_, err := (&upstream.AssertionVerifier{Issuer: "gatehouse", Audience: resource, Keys: keys}).VerifyRequest(r)
		return err
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, data.Close()) })
	server := httptest.NewServer(wrap(data.Handler()))
	t.Cleanup(server.Close)
	all := demo.Businesses()
	return []string{server.URL, "--rate", "1e9", "--business", "A=" + all[0].ID, "--business", "B=" + all[1].ID}
}

// freeAddress returns an address on which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	port, reserved, err := porttest.Reserve()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, reserved.Close()) })
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

func unbroken(h http.Handler) http.Handler { return h }

// ownKey writes a key to a file, and returns the source of its public key.
func ownKey(t *testing.T) (file string, source upstream.KeySource) {
	t.Helper()
	public, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	file = filepath.Join(t.TempDir(), "conform.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), 0o600))
	kid, err := upstream.KeyID(public)
	require.NoError(t, err)
	return file, upstream.StaticKeys{kid: public}
}

func TestConformFindsNothingOnTheDemosDataService(t *testing.T) {
	t.Parallel()
	file, source := ownKey(t)
	args := append(demoService(t, source, unbroken), "--assertion-key", file)
	for seed := range 10 {
		stdout, stderr, status := runConform(t, append(args, "--json", "--seed", strconv.Itoa(seed))...)
		require.Equal(t, "0", status, stdout+stderr)
		var report conform.Report
		require.NoError(t, json.Unmarshal([]byte(stdout), &report))
		require.Empty(t, report.Faults, stdout)
		require.Empty(t, report.Hints, stdout)
		require.Empty(t, report.Skipped, stdout)
	}
}

func TestConformServesTheKeysOfItsAssertions(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	args := demoService(t, &upstream.RemoteKeys{URL: "http://" + address + "/.well-known/gatehouse-jwks.json"}, unbroken)
	stdout, stderr, status := runConform(t, append(args, "--serve-keys", address)...)
	require.Equal(t, "0", status, stdout+stderr)
	require.Contains(t, stdout, " 0 faults")
}

func TestConformSendsThePasswordOfAService(t *testing.T) {
	t.Parallel()
	file, source := ownKey(t)
	args := demoService(t, source, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Password") != "s3cret: x" || r.Header.Get("X-Request-Id") == "none" {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	args = append(args, "--assertion-key", file, "--json")
	stdout, stderr, status := runConform(t, append(args, "--header", "x-password: s3cret: x", "--header", "X-Request-ID: none")...)
	require.Equal(t, "0", status, stdout+stderr)
	require.NotContains(t, stdout+stderr, "s3cret")
	_, _, status = runConform(t, args...)
	require.Equal(t, "1", status)
}

func TestConformExitsWithOneIfThereAreFaultsAndSaysWhatAndHow(t *testing.T) {
	t.Parallel()
	file, source := ownKey(t)
	args := demoService(t, source, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			q.Del("status")
			r.URL.RawQuery = q.Encode()
			h.ServeHTTP(w, r)
		})
	})
	stdout, stderr, status := runConform(t, append(args, "--assertion-key", file)...)
	require.Equal(t, "1", status)
	assert.Empty(t, stderr)
	assert.Contains(t, stdout, "fault filter: listEquipment: GET /api/v1/equipment?")
	assert.Contains(t, stdout, "  fix      Compare the member with the parameter of the same name.\n")
}

func TestConformSaysWhyItCannotAsk(t *testing.T) {
	t.Parallel()
	closed := "http://" + freeAddress(t)
	secret := filepath.Join(t.TempDir(), "no.pem")
	require.NoError(t, os.WriteFile(secret, []byte("not a key"), 0o600))
	for want, args := range map[string][]string{
		"expected one argument":                        {},
		"--business A=ID is required":                  {closed},
		`invalid --business "C=1"`:                     {closed, "--business", "C=1"},
		"connecting to the service":                    {closed, "--business", "A=1"},
		"invalid --header":                             {closed, "--business", "A=1", "--header", "X-Password"},
		"--only is empty":                              {closed, "--business", "A=1", "--only", "", "--write"},
		"--except is empty":                            {closed, "--business", "A=1", "--except", ""},
		"--definition is empty":                        {closed, "--business", "A=1", "--definition", ""},
		"invalid --header X-Password: its placeholder": {closed, "--business", "A=1", "--header", "X-Password: {env.NO_SUCH_VARIABLE}"},
		`invalid --header X-Claims: its placeholder must be {env.NAME} of a variable that is set; write \{ for a brace`: {closed, "--business", "A=1", "--header", "X-Password: 1", "--header", `X-Claims: {"sub":"1"}`},
		"invalid URL of the service":                       {closed + "/api", "--business", "A=1"},
		"invalid businesses":                               {closed, "--business", "A=1", "--business", "B=1"},
		"must be positive":                                 {closed, "--business", "A=1", "--rate", "0"},
		"reading the key: invalid assertion keys":          {closed, "--business", "A=1", "--assertion-key", secret},
		"a name, overlays and max_items need a file":       {closed, "--business", "A=1", "--overlay", "x.yaml"},
		"reading a definition: open missing.openapi.yaml:": {closed, "--business", "A=1", "--definition", "missing.openapi.yaml"},
	} {
		stdout, stderr, status := runConform(t, args...)
		assert.Equal(t, "2", status, want)
		assert.Empty(t, stdout, want)
		assert.Contains(t, stderr, want)
	}
}

func TestHeadersOfConformMayHaveBraces(t *testing.T) {
	t.Parallel()
	cmd := new(cobra.Command)
	c := &conformCommand{
		headers: []string{`X-Claims: \{"sub":"1"}`}, businesses: []string{"A=1"}, options: conform.Options{Rate: 1, Timeout: 1}, total: 1,
	}
	require.NoError(t, c.prepare(cmd))
	require.Equal(t, []string{`{"sub":"1"}`}, c.options.Header["X-Claims"])
}

// A service must get the time to read the key of a file, too.
func TestConformWaitsForEveryKeyThatItServes(t *testing.T) {
	t.Parallel()
	file, _ := ownKey(t)
	for name, c := range map[string]*conformCommand{"a new key": {}, "that of a file": {keyFile: file}} {
		c.keysAddress, c.businesses, c.options, c.total = "localhost:0", []string{"A=1"}, conform.Options{Rate: 1, Timeout: 1}, 1
		require.NoError(t, c.prepare(new(cobra.Command)), name)
		require.Equal(t, 11*time.Second, c.options.KeysAfter, name)
	}
}

// What a gateway lets pass while it observes is a fault of the service all the same.
func TestConformEnforcesEverything(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "api.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: request, paths: {
		/x: {get: {x-gatehouse-enforce: tenant, responses: {"200": {description: "", content: {application/json: {schema: {type: integer}}}}}}}}}`), 0o600))
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`"text"`))
	}))
	t.Cleanup(service.Close)
	out, _, status := runConform(t, service.URL, "--definition", file, "--rate", "1e9", "--business", "A=1")
	require.Equal(t, "1", status)
	require.Contains(t, out, "schema")
}

func TestConformExitsWithTwoIfNoRequestSucceeds(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "api.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: request, paths: {
		/x: {get: {responses: {"200": {description: ""}, "404": {description: ""}}}}}}`), 0o600))
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }))
	t.Cleanup(service.Close)
	out, _, status := runConform(t, service.URL, "--definition", file, "--rate", "1e9", "--business", "A=1")
	require.Equal(t, "2", status)
	require.Contains(t, out, "No request succeeded.")
	require.Contains(t, out, " 0 faults")
}

func TestConformListsWhatItWritesAndNotWhatWritesToPeople(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "api.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`{openapi: 3.1.0, info: {title: x, version: "1"}, x-gatehouse-tenant: request, paths: {
		/notes: {post: {operationId: addNote, responses: {"204": {description: ""}}}},
		/reminders: {post: {operationId: remind, x-gatehouse-tool: {risk: people}, responses: {"204": {description: ""}}}}}}`), 0o600))
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/notes", r.URL.Path)
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(service.Close)
	stdout, stderr, status := runConform(t, service.URL, "--definition", file, "--rate", "1e9", "--business", "A=1", "--write")
	require.Equal(t, "0", status, stdout+stderr)
	require.Equal(t, "writes as business A: addNote (POST /notes)\n", stderr)
	require.Contains(t, stdout, "skipped remind: it writes to people\n")
}
