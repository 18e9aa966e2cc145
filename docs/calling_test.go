package docs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/explain"
)

const callingPage = "calling.md"

// TestTheExampleSignatureIsTheOneOnThePage runs the command and compares what it prints, and computes the same once more.
func TestTheExampleSignatureIsTheOneOnThePage(t *testing.T) {
	t.Parallel()
	all := blocks(t, callingPage)
	command, want := under(t, all, "Check your signature", "sh"), under(t, all, "Check your signature", "text")
	got, err := exec.CommandContext(t.Context(), "sh", "-euc", command.text).CombinedOutput()
	require.NoError(t, err, "%s", got)
	require.Equal(t, want.text, string(got))

	m := regexp.MustCompile(`^GATEHOUSE_SECRET='(.*)'\nprintf '\S+' 1760000000 GET '(.*)' ''`).FindStringSubmatch(command.text)
	require.NotNil(t, m)
	signature := authsigner.Sign(authsigner.Secret(m[1]), 1760000000, http.MethodGet, m[2], nil)
	require.Equal(t, want.text, signature+" *stdin\n")
}

// TestTheProgramsOnThePageSignWhatTheySend runs each program against a server that verifies.
func TestTheProgramsOnThePageSignWhatTheySend(t *testing.T) {
	t.Parallel()
	for _, program := range []struct {
		heading, lang, file string
		command             []string
	}{
		{"Shell", "sh", "call.sh", []string{"sh"}},
		{"Node", "js", "call.mjs", []string{"node"}},
		{"Go", "go", "call.go", []string{"go", "run"}},
	} {
		t.Run(program.heading, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), program.file)
			code := under(t, blocks(t, callingPage), program.heading, program.lang).text
			require.NoError(t, os.WriteFile(file, []byte(code), 0o600))
			server := newVerifyingServer(t)
			run := func(secret, target string) (string, error) {
				args := append(slices.Clone(program.command[1:]), file, target)
				cmd := exec.CommandContext(t.Context(), program.command[0], args...)
				cmd.Env = append(os.Environ(), "GATEHOUSE_URL="+server.URL, "GATEHOUSE_KEY="+server.key, "GATEHOUSE_SECRET="+secret)
				out, err := cmd.CombinedOutput()
				return string(out), err
			}
			for _, target := range []string{
				"/api/v1/me",
				"/api/v1/invoices?status=overdue&per_page=3",
				"/api/v1/equipment?category=Power%20tools&page=2",
				"/api/v1/equipment?category=Power+tools",
				"/api/v1/equipment?category=M%C3%BChle%26Sohn%2f%2B",
				"/api/v1/equipment?category=it's",
			} {
				out, err := run(server.secret, target)
				require.NoError(t, err, "%s: %s", target, out)
				require.Contains(t, out, "business", target)
			}
			require.Len(t, server.verified(), 6)

			out, err := run("another secret", "/api/v1/me")
			require.Error(t, err, "a refusal is a failure of the program")
			require.Contains(t, out, "INVALID_CREDENTIALS")
			require.Len(t, server.verified(), 6)
		})
	}
}

// verifyingServer answers 200 to what verifies, and 401 to everything else.
type verifyingServer struct {
	*httptest.Server
	key, secret string

	mu      sync.Mutex
	targets []string
}

func newVerifyingServer(t *testing.T) *verifyingServer {
	t.Helper()
	s := &verifyingServer{key: "pk_test_3f8Zk1q0Tn_w-7Yd", secret: "made_up_8GmYwq3cVn5tB2xKzR7pLd0hJf4sWu6e"}
	verifier := &authsigner.Verifier{Source: s}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if _, err := verifier.Verify(r, r.RequestURI); err != nil {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error":"The public key or the signature is not valid.","code":"INVALID_CREDENTIALS","request_id":"1"}`)
			return
		}
		s.mu.Lock()
		s.targets = append(s.targets, r.RequestURI)
		s.mu.Unlock()
		fmt.Fprint(w, `{"business":{}}`)
	}))
	t.Cleanup(s.Close)
	return s
}

// Lookup implements authsigner.CredentialSource.
func (s *verifyingServer) Lookup(_ context.Context, publicKey string) (*authsigner.Credential, error) {
	if publicKey != s.key {
		return nil, authsigner.ErrUnknownKey
	}
	return authsigner.DecodeCredential(publicKey, map[string]any{
		"private_key": s.secret, "business_id": "b1", "business_name": "Fernhollow", "business_slug": "fernhollow",
		"status": "active",
	})
}

func (s *verifyingServer) verified() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.targets
}

// TestTheErrorsOnThePageAreThoseOfTheOpenAPIDocument holds the table of codes, and the bodies that the page shows.
func TestTheErrorsOnThePageAreThoseOfTheOpenAPIDocument(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(callingPage)
	require.NoError(t, err)
	rows := regexp.MustCompile("(?m)^\\| [0-9x]+ \\| `([A-Z_]+)` \\|").FindAllStringSubmatch(string(page), -1)
	onPage := make([]string, 0, len(rows))
	for _, m := range rows {
		onPage = append(onPage, m[1])
	}
	members := map[string][]string{}
	for name, schema := range tree(t).at(t, "components", "schemas") {
		if schema, ok := schema.(map[string]any); ok && strings.HasSuffix(name, "Error") {
			code, _ := at(t, schema, "properties", "code")["const"].(string)
			required, _ := schema["required"].([]any)
			for _, member := range required {
				name, _ := member.(string)
				members[code] = append(members[code], name)
			}
		}
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(members)), onPage)

	shown := 0
	for _, b := range blocks(t, callingPage) {
		if b.lang != "json" {
			continue
		}
		var body map[string]any
		require.NoError(t, json.Unmarshal([]byte(b.text), &body))
		code, _ := body["code"].(string)
		require.ElementsMatch(t, members[code], slices.Collect(maps.Keys(body)))
		shown++
	}
	require.Equal(t, 2, shown)
}

func TestEveryMistakeInASignatureIsOnThePage(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("calling.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(raw), "### If the signature is rejected")
	section, _, _ = strings.Cut(section, "\n## ")
	var onPage []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\|").FindAllStringSubmatch(section, -1) {
		onPage = append(onPage, row[1])
	}
	var known []string
	for _, k := range explain.Kinds() {
		known = append(known, k.Code)
	}
	require.Equal(t, known, onPage)
}
