package docs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/authsigner/explain"
	"github.com/gatehouse-gateway/gatehouse/docs"
)

const callingPage = "calling.md"

func TestExampleSignatureIsCorrect(t *testing.T) {
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

// program is an example program of the page.
type program struct {
	heading, lang, file string
	command             []string
}

func programs() []program {
	return []program{
		{"Shell", "sh", "call.sh", []string{"sh"}},
		{"Node", "js", "call.mjs", []string{"node"}},
		{"Python", "python", "call.py", []string{"python3"}},
		{"Go", "go", "call.go", []string{"go", "run"}},
		{"PHP", "php", "call.php", []string{"php"}},
	}
}

// write writes the program to a file and returns a function that runs it against a server.
func (p program) write(t *testing.T, server *verifyingServer) func(secret, target string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), p.file)
	code := under(t, blocks(t, callingPage), p.heading, p.lang).text
	require.NoError(t, os.WriteFile(file, []byte(code), 0o600))
	return func(secret, target string) (string, error) {
		args := append(slices.Clone(p.command[1:]), file, target)
		cmd := exec.CommandContext(t.Context(), p.command[0], args...)
		cmd.Env = append(os.Environ(), "GATEHOUSE_URL="+server.URL, "GATEHOUSE_KEY="+server.key, "GATEHOUSE_SECRET="+secret)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}

func TestExampleProgramsSignWhatTheySend(t *testing.T) {
	t.Parallel()
	for _, program := range programs() {
		t.Run(program.heading, func(t *testing.T) {
			t.Parallel()
			server := newVerifyingServer(t)
			run := program.write(t, server)
			for _, target := range []string{
				"/api/v1/me",
				"/api/v1/invoices?status=overdue&per_page=3",
				"/api/v1/equipment?category=Power%20tools&per_page=2",
				"/api/v1/equipment?category=Power+tools",
				"/api/v1/equipment?category=M%C3%BChle%26Sohn%2f%2B",
				"/api/v1/equipment?category=it's",
			} {
				out, err := run(server.secret, target)
				require.NoError(t, err, "%s: %s", target, out)
				assert.Contains(t, out, "business", target)
			}
			require.Len(t, server.verified(), 6)

			out, err := run("another secret", "/api/v1/me")
			require.Error(t, err, "the program fails")
			assert.Contains(t, out, "INVALID_CREDENTIALS")
			out, err = run(server.secret, "/api/v1/lost")
			require.Error(t, err, "the program fails")
			assert.Contains(t, out, `{"title":"There is no such path."}`)
			require.Len(t, server.verified(), 6)

			server.URL += base
			out, err = run(server.secret, "/api/v1/equipment?category=it's")
			require.NoError(t, err, out)
			assert.Contains(t, out, "business")
			require.Len(t, server.verified(), 7)
		})
	}
}

// The second of three pages is rate limited once. A proxy says once that the third is unavailable, without Retry-After.
func TestExampleProgramsFollowPaginationAndRetryAfter(t *testing.T) {
	t.Parallel()
	const list = "/api/v1/invoices?status=overdue"
	for _, program := range programs() {
		t.Run(program.heading, func(t *testing.T) {
			t.Parallel()
			server := newVerifyingServer(t)
			server.pages, server.refuse = 3, map[string]int{list + "&page=2": 429, list + "&page=3": 503}
			out, err := program.write(t, server)(server.secret, list)
			require.NoError(t, err, out)
			assert.Equal(t, []string{list + "&page=1", list + "&page=2", list + "&page=3"}, server.verified())
			assert.Equal(t, 3, strings.Count(out, "total_pages"), out)
			assert.NotContains(t, out, "RATE_LIMITED")
			require.Len(t, server.waited, 2)
			assert.GreaterOrEqual(t, slices.Min(server.waited), time.Second)
		})
	}
}

// A redirect takes the signature to another server.
func TestExampleProgramsFollowNoRedirect(t *testing.T) {
	t.Parallel()
	for _, program := range programs() {
		if program.heading == "Python" { // urllib follows them
			continue
		}
		t.Run(program.heading, func(t *testing.T) {
			t.Parallel()
			server := newVerifyingServer(t)
			redirecting := httptest.NewServer(http.RedirectHandler(server.URL+"/api/v1/me", http.StatusPermanentRedirect))
			t.Cleanup(redirecting.Close)
			out, err := program.write(t, &verifyingServer{Server: redirecting, key: server.key})(server.secret, "/api/v1/me")
			require.Error(t, err, out)
			require.NotContains(t, out, "INVALID_CREDENTIALS")
			require.Empty(t, server.verified())
		})
	}
}

func TestExampleOfAWriteSignsItsBody(t *testing.T) {
	t.Parallel()
	server := newVerifyingServer(t)
	run := func(secret string) string {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", under(t, blocks(t, callingPage), "Writes", "sh").text, "write.sh",
			"POST", "/v1/orders", `{"note":"it's 5 %d\n"}`, "order-7")
		cmd.Env = append(os.Environ(), "GATEHOUSE_URL="+server.URL, "GATEHOUSE_KEY="+server.key, "GATEHOUSE_SECRET="+secret)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	require.Equal(t, `{"business":{}}`, run(server.secret))
	require.Equal(t, []string{"/v1/orders"}, server.verified())
	require.Equal(t, []string{"order-7"}, server.header["Idempotency-Key"])
	require.Equal(t, []string{"application/json"}, server.header["Content-Type"])
	require.Contains(t, run("another secret"), "INVALID_CREDENTIALS")
}

// The codes of writes are those of published documents that have writes.
func TestDocumentedErrorsOfWritesAgreeWithPublishedDocuments(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(callingPage)
	require.NoError(t, err)
	published, err := os.ReadFile("../upstream/definition/testdata/publish/writes.published.yaml")
	require.NoError(t, err)
	var onPage, inDocument []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		onPage = append(onPage, m[1])
	}
	for _, m := range regexp.MustCompile(`code: {type: string, const: ([A-Z_]+)}`).FindAllStringSubmatch(string(published), -1) {
		if !strings.Contains(string(docs.OpenAPI), "const: "+m[1]+"}") {
			inDocument = append(inDocument, m[1])
		}
	}
	require.ElementsMatch(t, inDocument, onPage)
}

// The libraries requests and axios are not tested, because they are no part of Python and Node, nor are Postman and those of Java, .NET and Ruby, for which
// there are no programs.
func TestLibrariesChangeURLsAsDocumented(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, r.RequestURI) }))
	t.Cleanup(server.Close)
	for name, c := range map[string]struct {
		command []string
		want    string
	}{
		"curl":                {[]string{"curl", "-sS", "URL/a/../b?[1-2]"}, "/b?1\n/b?2\n"},
		"curl as on the page": {[]string{"curl", "-sS", "--path-as-is", "--globoff", "URL/a/../b?[1-2]"}, "/a/../b?[1-2]\n"},
		"Node": {[]string{"node", "--input-type=module", "-e", `
			const url = new URL("URL/a/../b?x=%7e'&y=%20");
			process.stdout.write(url.pathname + url.search + "\n" + await (await fetch(url)).text());
			url.searchParams.set("z", "1");
			process.stdout.write(url.search + "\n");`}, "/b?x=%7e%27&y=%20\n/b?x=%7e%27&y=%20\n?x=%7E%27&y=+&z=1\n"},
		"Python": {
			[]string{"python3", "-c", `
import urllib.request, urllib.parse
request = urllib.request.Request("URL/a/../b?x=%7e%2f'")
print(request.selector)
print(urllib.request.urlopen(request).read().decode(), end="")
for target in "/a b", "/a?b=\u00fc":
    try:
        urllib.request.urlopen("URL" + target)
    except Exception as e:
        print(type(e).__name__)
print(urllib.parse.urlencode({"a": "b c"}), urllib.parse.quote("b c"))`},
			"/a/../b?x=%7e%2f'\n/a/../b?x=%7e%2f'\nInvalidURL\nUnicodeEncodeError\na=b+c b%20c\n",
		},
		"PHP": {
			[]string{"php", "-r", `
			foreach ([false, true] as $asIs) {
				$curl = curl_init("URL/a/../b?%7e'");
				curl_setopt($curl, CURLOPT_PATH_AS_IS, $asIs);
				curl_exec($curl);
			}
			echo http_build_query(["a" => "b c", "d" => null]), http_build_query(["a" => "b c"], "", "&", PHP_QUERY_RFC3986);`},
			"/b?%7e'\n/a/../b?%7e'\na=b+ca=b%20c",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := slices.Clone(c.command[1:])
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "URL/", server.URL+"/")
				args[i] = strings.ReplaceAll(args[i], `"URL"`, `"`+server.URL+`"`)
			}
			out, err := exec.CommandContext(t.Context(), c.command[0], args...).CombinedOutput()
			require.NoError(t, err, "%s", out)
			assert.Equal(t, c.want, string(out))
		})
	}
	t.Run("Go", func(t *testing.T) {
		t.Parallel()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/a%2fb/../c d?x=%7e'", nil)
		require.NoError(t, err)
		require.Equal(t, "/a/b/../c d", r.URL.Path)
		require.Equal(t, "/a/b/../c%20d?x=%7e'", r.URL.RequestURI())
		res, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer func() { require.NoError(t, res.Body.Close()) }()
		sent, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		assert.Equal(t, r.URL.RequestURI()+"\n", string(sent))
		assert.Equal(t, "a=b+c&z=", url.Values{"z": {""}, "a": {"b c"}}.Encode())
	})
}

// base is a path below which the server is mounted, too. It is not signed.
const base = "/gw"

// verifyingServer responds with 200 to requests with a valid signature, and with 401 to others.
type verifyingServer struct {
	*httptest.Server
	key, secret string

	pages  int            // of every list, if not 0
	refuse map[string]int // status that a target gets once: 429 with a Retry-After of a second, or another without

	mu      sync.Mutex
	targets []string
	header  http.Header // of the last request
	refused map[string]time.Time
	waited  []time.Duration // until a refused request came again
}

func newVerifyingServer(t *testing.T) *verifyingServer {
	t.Helper()
	s := &verifyingServer{refused: map[string]time.Time{}, key: "pk_test_3f8Zk1q0Tn_w-7Yd", secret: "made_up_8GmYwq3cVn5tB2xKzR7pLd0hJf4sWu6e"}
	verifier := &authsigner.Verifier{Source: s}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		target := strings.TrimPrefix(r.RequestURI, base)
		if _, err := verifier.Verify(r, target); err != nil {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error":"The public key or the signature is not valid.","code":"INVALID_CREDENTIALS","request_id":"1"}`)
			return
		}
		if strings.HasPrefix(target, "/api/v1/lost?") { // an error of the service behind an API of its own
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"title":"There is no such path."}`)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if at, again := s.refused[r.RequestURI]; again {
			s.waited = append(s.waited, time.Since(at))
		} else if status := s.refuse[r.RequestURI]; status > 0 {
			s.refused[r.RequestURI] = time.Now()
			if status == http.StatusTooManyRequests {
				w.Header().Set("Retry-After", "1")
			}
			w.WriteHeader(status)
			fmt.Fprint(w, `{"error":"Too many requests.","code":"RATE_LIMITED","request_id":"1","retry_after":1}`)
			return
		}
		s.targets, s.header = append(s.targets, r.RequestURI), r.Header
		if s.pages > 0 {
			fmt.Fprintf(w, `{"invoices":[],"pagination":{"current_page":%d,"per_page":25,"total_items":60,"total_pages":%d}}`, len(s.targets), s.pages)
			return
		}
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

func TestDocumentedErrorsAgreeWithTheOpenAPIDocument(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(callingPage)
	require.NoError(t, err)
	rows := regexp.MustCompile("(?m)^\\| [0-9x]+ \\| `([A-Z_]+)` \\|").FindAllStringSubmatch(string(page), -1)
	onPage := make([]string, 0, len(rows))
	for _, m := range rows {
		onPage = append(onPage, m[1])
	}
	members := map[string][]string{}
	var document map[string]any
	require.NoError(t, yaml.Unmarshal(docs.OpenAPI, &document))
	for name, schema := range at(t, document, "components", "schemas") {
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

func TestEveryKnownSignatureMistakeIsDocumented(t *testing.T) {
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

// at returns the object at a path below another one.
func at(t *testing.T, v map[string]any, path ...string) map[string]any {
	t.Helper()
	for i, name := range path {
		next, ok := v[name].(map[string]any)
		require.True(t, ok, "%s is missing", strings.Join(path[:i+1], " / "))
		v = next
	}
	return v
}
