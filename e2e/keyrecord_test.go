package e2e_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/file"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// addKey adds a key to the credential file of a gateway that has not started.
func (w *environment) addKey(t *testing.T, o authsigner.IssueOptions) gatewaytest.Caller {
	t.Helper()
	store, err := file.Open(w.keyFile, file.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	o.BusinessID, o.BusinessName, o.BusinessSlug = w.acmeID, "Fernhollow", "fernhollow"
	cred, err := authsigner.Issue(t.Context(), store, o)
	require.NoError(t, err)
	return gatewaytest.Caller{PublicKey: cred.PublicKey, PrivateKey: cred.PrivateKey}
}

// The caller sees what the caller of an unknown key sees. The operator sees why.
func TestExpiredKeyIsUnknownToItsCaller(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	expired := w.addKey(t, authsigner.IssueOptions{ExpiresAt: time.Now().Add(-time.Second)})
	unknown := gatewaytest.Caller{PublicKey: "pk_live_nobody_has_this_one", PrivateKey: expired.PrivateKey}
	g := w.unlimited(t)
	for _, target := range []string{"/api/v1/me", "/api/v1/jobs", "/api/v1/status", "/api/v1/nothing"} {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
			t.Run(method+" "+target, func(t *testing.T) {
				t.Parallel()
				a, b := expired.Do(t, method, g.URL, target, nil), unknown.Do(t, method, g.URL, target, nil)
				require.Equal(t, b.Status, a.Status)
				id := a.Header.Get("X-Request-Id")
				require.Equal(t, strings.ReplaceAll(b.Body, b.Header.Get("X-Request-Id"), id), a.Body)
				for _, h := range []http.Header{a.Header, b.Header} {
					for _, own := range []string{"X-Request-Id", "Date", "X-Ratelimit-Reset", "X-Ratelimit-Remaining", "Ratelimit"} {
						require.Contains(t, h, own)
						delete(h, own) // of each request
					}
				}
				require.Equal(t, b.Header, a.Header)
			})
		}
	}
	t.Run("the operator sees why", func(t *testing.T) {
		t.Parallel()
		a := expired.Get(t, g.URL, "/api/v1/me")
		p := requireProblem(t, a, http.StatusUnauthorized, "INVALID_CREDENTIALS")
		line := logLineOf(t, g, p.RequestID)
		require.Equal(t, "expired_key", line.Reason)
		require.Equal(t, expired.PublicKey, line.Claimed)
		require.Empty(t, line.PublicKey)
		o := cli(t, nil, "explain", "--id", p.RequestID, "--address", strings.TrimPrefix(g.AdminURL, "http://"))
		assert.Equal(t, 1, o.code, o.stderr)
		assert.Contains(t, o.stdout, "key_expired")
	})
}

func TestKeyCallsOnlyItsResources(t *testing.T) {
	t.Parallel()
	data := &recorder{}
	w := newEnvironment(t, data)
	key := w.addKey(t, authsigner.IssueOptions{Resources: []string{"events"}})
	g := w.unlimited(t)
	for _, res := range definition.Public().Operations() {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			a := requireDocumented(t, key.Do(t, method, g.URL, res.Path+"?page=x&count=3", nil))
			switch {
			case res.Resource == "events" || res.ByGateway:
				require.Equal(t, http.StatusOK, a.Status, res.Path)
			case method == http.MethodHead:
				require.Equal(t, http.StatusForbidden, a.Status, res.Path)
			default:
				requireProblem(t, a, http.StatusForbidden, "FORBIDDEN")
			}
		}
	}
	data.mu.Lock()
	defer data.mu.Unlock()
	require.Len(t, data.requests, 2)
	for _, r := range data.requests {
		assert.Contains(t, r.URL.Path, "events")
	}
	require.Equal(t, http.StatusNotFound, key.Get(t, g.URL, "/api/v1/nothing").Status)
	require.Equal(t, http.StatusMethodNotAllowed, key.Do(t, http.MethodPost, g.URL, "/api/v1/jobs", nil).Status)
	key.PrivateKey = "another"
	requireProblem(t, key.Get(t, g.URL, "/api/v1/jobs"), http.StatusUnauthorized, "INVALID_CREDENTIALS")
}

func TestForbiddenRequestCountsAgainstTheKey(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	key := w.addKey(t, authsigner.IssueOptions{Resources: []string{"events"}, Limit: 2})
	g := w.gateway(t)
	for range 2 {
		requireProblem(t, key.Get(t, g.URL, "/api/v1/jobs"), http.StatusForbidden, "FORBIDDEN")
	}
	requireProblem(t, key.Get(t, g.URL, "/api/v1/jobs"), http.StatusTooManyRequests, "RATE_LIMITED")
}

// keyRecord is what `gatehouse keys show --json` prints.
type keyRecord struct {
	issued

	Name      string    `json:"name"`
	Resources []string  `json:"resources"`
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by"`
	ExpiresAt time.Time `json:"expires_at"`
}

func TestKeysUpdateChangesWhatIsGivenAndNothingElse(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "keys.json")
	k := keysCLI{source: []string{"--file", name}, env: []string{"USER=zoe"}}
	key := k.issue(t, "--name", "Till", "--expires", "90d", "--resources", "jobs,contacts,jobs", "--limit", "5")
	info, err := os.Stat(name)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "the file was created for its owner alone")
	show := func() keyRecord {
		t.Helper()
		var v keyRecord
		k.json(t, &v, "show", key.PublicKey)
		return v
	}
	want := show()
	require.Equal(t, "Till", want.Name)
	require.Equal(t, 5, want.Limit)
	require.Equal(t, []string{"contacts", "jobs"}, want.Resources)
	require.Equal(t, "zoe", want.CreatedBy)
	require.WithinDuration(t, want.CreatedAt, time.Now(), time.Minute)
	require.WithinDuration(t, want.ExpiresAt, time.Now().Add(90*24*time.Hour), time.Minute)

	expiry := time.Date(2100, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, change := range []struct {
		args   []string
		expect func()
	}{
		{[]string{"--status", "inactive"}, func() { want.Status = "inactive" }},
		{[]string{"--status", "active"}, func() { want.Status = "active" }},
		{[]string{"--limit", "7"}, func() { want.Limit = 7 }},
		{[]string{"--limit", "default"}, func() { want.Limit = 0 }},
		{[]string{"--name", "Kiosk & Söhne"}, func() { want.Name = "Kiosk & Söhne" }},
		{[]string{"--name", ""}, func() { want.Name = "" }},
		{[]string{"--expires", "2100-01-02T04:04:05+01:00"}, func() { want.ExpiresAt = expiry }},
		{[]string{"--expires", "never"}, func() { want.ExpiresAt = time.Time{} }},
		{[]string{"--resources", "events"}, func() { want.Resources = []string{"events"} }},
		{[]string{"--resources", "all"}, func() { want.Resources = nil }},
		{[]string{"--limit", "9", "--name", "Till", "--resources", "jobs"}, func() {
			want.Limit, want.Name, want.Resources = 9, "Till", []string{"jobs"}
		}},
	} {
		var printed keyRecord
		k.json(t, &printed, append([]string{"update", key.PublicKey}, change.args...)...)
		change.expect()
		assert.Equal(t, want, printed, change.args)
		assert.Equal(t, want, show(), change.args)
	}

	var rotated keyRecord
	k.json(t, &rotated, "rotate", key.PublicKey, "--grace", "0")
	require.NotEqual(t, key.PrivateKey, rotated.PrivateKey)
	rotated.PrivateKey = ""
	require.Equal(t, want, rotated, "rotation keeps the fields")
	list := k.run(t, "list").requireOK(t).stdout
	for _, part := range []string{"Till", "active", "9/min", want.CreatedAt.Format(time.RFC3339), "never"} {
		assert.Contains(t, list, part)
	}
}

func TestKeysErrorsAreNotRepeated(t *testing.T) {
	t.Parallel()
	name := newKeyFile(t)
	require.NoError(t, os.WriteFile(name, []byte(`{"keys": {"pk_live_written_by_hand": {"private_key": "x"}}}`), 0o600))
	for want, args := range map[string][]string{
		"reading the key pk_live_written_by_hand: entry \"pk_live_written_by_hand\": malformed credential: business_id is missing or empty": {"show", "pk_live_written_by_hand"},
		"rotating the key pk_live_written_by_hand: malformed credential: business_id is missing or empty":                                   {"rotate", "pk_live_written_by_hand"},
		"updating the key pk_live_written_by_hand: malformed credential: business_id is missing or empty":                                   {"update", "pk_live_written_by_hand", "--limit", "5"},
		"reading the key pk_live_nobody_has_this_one: unknown key":                                                                          {"show", "pk_live_nobody_has_this_one"},
		"rotating the key pk_live_nobody_has_this_one: unknown key":                                                                         {"rotate", "pk_live_nobody_has_this_one"},
		"revoking the key pk_live_nobody_has_this_one: unknown key":                                                                         {"revoke", "pk_live_nobody_has_this_one"},
		"issuing a key: malformed credential: business_slug contains characters other than visible ASCII":                                   {"issue", "--business-id=1", "--business-name=A", "--business-slug=a b"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			o := cli(t, nil, append(append([]string{"keys"}, args...), "--file", name, "--json")...)
			o.requireError(t)
			require.Equal(t, "Error: "+want, strings.TrimSpace(o.stderr))
		})
	}
}

func TestRunningGatewayTakesUpAnUpdate(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t, nil)
	g := w.unlimited(t)
	k := keysCLI{source: []string{"--config", g.Config, "--adapter", "caddyfile"}}
	v := k.issue(t)
	waitForStatus(t, http.StatusOK, v.caller(), g)
	var updated keyRecord
	k.json(t, &updated, "update", v.PublicKey, "--status", "inactive")
	requireProblem(t, waitForStatus(t, http.StatusForbidden, v.caller(), g), http.StatusForbidden, "ACCOUNT_INACTIVE")
	k.json(t, &updated, "update", v.PublicKey, "--status", "active", "--resources", "events")
	waitForStatus(t, http.StatusOK, v.caller(), g)
	requireProblem(t, v.caller().Get(t, g.URL, "/api/v1/jobs"), http.StatusForbidden, "FORBIDDEN")
}
