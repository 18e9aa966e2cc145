package caddymodule_test

import (
	"bytes"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/caddymodule"
)

// fuzzSecret is what the fuzz tests write wherever a secret can stand.
const fuzzSecret = "canary-secret"

// position is how an error names the place: the file and the line.
var position = regexp.MustCompile(`\bCaddyfile:[0-9]+`)

// adaptation is what a Caddyfile adapts to, or the error.
func adaptation(input []byte) (string, error) {
	raw, _, err := caddyconfig.GetAdapter("caddyfile").Adapt(input, map[string]any{"filename": "Caddyfile"})
	return string(raw), err
}

// FuzzCaddyfile adapts arbitrary Caddyfiles: this ends without a panic, and gives the same JSON twice, or an error.
func FuzzCaddyfile(f *testing.F) {
	files, err := filepath.Glob("testdata/adapt/*.caddyfiletest")
	require.NoError(f, err)
	for _, name := range append(files, "../Caddyfile", "../deploy/Caddyfile") {
		content, err := os.ReadFile(name)
		require.NoError(f, err)
		input, _, _ := strings.Cut(string(content), separator)
		f.Add([]byte(input))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		if bytes.Contains(input, []byte("import")) || bytes.Contains(input, []byte("{$")) || bytes.Contains(input, []byte("tls")) {
			return // reads what is on this machine
		}
		first, err := adaptation(input)
		second, again := adaptation(input)
		if err != nil {
			// of several errors Caddy names any: it goes through a site's matchers in the order of a map
			require.Error(t, again)
			require.Empty(t, first)
			return
		}
		require.NoError(t, again)
		require.True(t, json.Valid([]byte(first)))
		require.Equal(t, first, second)
	})
}

// FuzzDirectives makes Caddyfiles of its input that are nearly right, with every directive and option that we have:
// adapting never panics; what adapts, adapts to the same after it was formatted, unless a token goes on over several lines:
// Caddy's formatter cuts the spaces at the ends of these; an error names the file and the line, and holds no secret, wherever
// one was written and whatever is wrong beside it.
func FuzzDirectives(f *testing.F) {
	f.Add([]byte{})
	for n := range 64 {
		seed := make([]byte, 160)
		for i := range seed {
			seed[i] = byte((i*i*n + 7*i + 31*n) % 251)
		}
		f.Add(seed)
	}
	for _, kind := range []byte{0, 1, 255} {
		f.Add(bytes.Repeat([]byte{kind}, 300))
	}
	f.Fuzz(func(t *testing.T, choices []byte) {
		w := &writer{choices: choices}
		w.file()
		input := w.out.String()
		first, err := adaptation([]byte(input))
		if err != nil {
			require.Regexp(t, position, err.Error(), "%s", input)
			require.NotContains(t, err.Error(), fuzzSecret, "%s", input)
			return
		}
		require.True(t, json.Valid([]byte(first)))
		tokens, err := caddyfile.Tokenize([]byte(input), "Caddyfile")
		require.NoError(t, err)
		if slices.ContainsFunc(tokens, func(token caddyfile.Token) bool { return strings.Contains(token.Text, "\n") }) {
			return
		}
		formatted := caddyfile.Format([]byte(input))
		second, err := adaptation(formatted)
		require.NoError(t, err, "formatted:\n%s", formatted)
		require.JSONEq(t, first, second, "formatted:\n%s", formatted)
		require.Equal(t, string(formatted), string(caddyfile.Format(formatted)), "formatting twice is formatting once")
	})
}

// FuzzAPITarget: of a request target only its origin is cut off, and the base path, byte for byte; what is left is below
// /api/v1 or is not the API's, and only that is matched, verified and counted.
func FuzzAPITarget(f *testing.F) {
	for _, target := range []string{
		"http:/x?://h/api/v1/me", "x?://h/api/v1/me", "http:x://h/api/v1/me", "http:/api/v1/x://h/api/v1/me",
		"/api/v1", "/api/v1/", "/api/v1?x", "/api/v1/events?count=3", "/api/v1x", "/api/v1#x", "http://x/api/v1/me", "http://x?/api/v1/me", "http://x#/api/v1/me", "http://x", "://",
		"//x/api/v1/me", "http://x//api/v1/me", "http:///api/v1/me", "http://a://b/api/v1/me", "*", "", "x:443", "/gw/api/v1/me", "http://x/gw/api/v1/me?/gw/api/v1", "/gw/gw/api/v1", "http://x\n/api/v1/me",
	} {
		f.Add(target, "")
		f.Add(target, "/gw")
	}
	absolute := regexp.MustCompile(`(?s)\A[^:/?#]*://[^/?#]*(/.*)\z`)
	below := regexp.MustCompile(`(?s)\A/api/v1(?:[/?].*)?\z`)
	f.Fuzz(func(t *testing.T, target, basePath string) {
		if basePath != "" && basePath[0] != '/' {
			return // no base path
		}
		want := target
		if !strings.HasPrefix(target, "/") {
			want = ""
			if m := absolute.FindStringSubmatch(target); m != nil {
				want = m[1]
			}
		}
		rest, hasBase := strings.CutPrefix(want, basePath)
		got, counted := caddymodule.APITarget(target, basePath)
		require.Equal(t, want != "" && hasBase && below.MatchString(rest), counted, "%q below %q", target, basePath)
		if !counted {
			return
		}
		require.Equal(t, rest, got)
		if u, err := url.ParseRequestURI(target); err == nil {
			path, query, _ := strings.Cut(want, "?")
			path, err = url.PathUnescape(path)
			require.NoError(t, err)
			require.Equal(t, []string{path, query}, []string{u.Path, u.RawQuery}, "what is signed is what Caddy serves")
		}
		require.True(t, strings.HasSuffix(target, got), "nothing is decoded or cleaned")
		again, counted := caddymodule.APITarget(got, "")
		require.True(t, counted)
		require.Equal(t, got, again)
	})
}

// writer writes Caddyfiles: each choice is a byte of the input, 0 when there is none left.
type writer struct {
	choices []byte
	out     strings.Builder
	depth   int
}

func (w *writer) choose(n int) int {
	if len(w.choices) == 0 {
		return 0
	}
	c := int(w.choices[0])
	w.choices = w.choices[1:]
	return c % n
}

func (w *writer) of(texts ...string) string { return texts[w.choose(len(texts))] }

// mostly is the plain text, and now and then one of the others.
func (w *writer) mostly(plain string, others ...string) string {
	if w.choose(12) != 11 {
		return plain
	}
	return w.of(others...)
}

// line writes one line, its indentation, and sometimes a comment or a surplus token behind it: one more secret where
// secrets stand. Elsewhere a value that is wrong is named, whatever it is.
func (w *writer) line(tokens ...string) {
	surplus := " surplus"
	switch tokens[0] {
	case "auth", "password", "sentinel":
		surplus = " " + fuzzSecret
	}
	w.out.WriteString(strings.Repeat(w.mostly("\t", "  ", ""), w.depth) + strings.Join(tokens, w.mostly(" ", "  ", "\t")) +
		w.mostly("", " # a comment", surplus, " \"\"", " ") + "\n")
}

// block writes a line with a block behind it, whose options are chosen.
func (w *writer) block(head []string, options ...func()) {
	w.out.WriteString(strings.Repeat("\t", w.depth) + strings.Join(head, " "))
	w.out.WriteString(w.mostly(" {\n", " surplus {\n", " {\n\n"))
	w.depth++
	for _, write := range options {
		switch w.choose(8) {
		case 0: // left out
		case 1:
			write()
			write() // given twice
		default:
			write()
		}
	}
	if w.choose(24) == 23 {
		w.line(w.of("frobnicate", "}", "{", "tls", "redis", "timeout"), w.duration())
	}
	w.depth--
	w.out.WriteString(strings.Repeat("\t", w.depth) + "}\n")
}

// option is a line of a name and its values.
func (w *writer) option(name string, values ...func() string) func() {
	return func() {
		tokens := []string{name}
		for _, value := range values {
			tokens = append(tokens, value())
		}
		w.line(tokens...)
	}
}

func (w *writer) duration() string {
	return w.mostly(w.of("50ms", "10s", "1h", "1d"), "0s", "-1s", "soon", `""`, "9223372036854775808s")
}

func (w *writer) number() string {
	return w.mostly(w.of("1", "60", "1000000"), "0", "-1", "many", "99999999999999999999", "1.5")
}

func (w *writer) size() string {
	return w.mostly(w.of("64KiB", "1MB", "8MiB"), "0", "plenty", "99EB", "-1")
}

func (w *writer) name() string {
	return w.mostly(w.of("kv", "gateway/keys", "`quoted`", `"in quotes"`, "{env.NAME}"), `""`, `"a\"b"`, "a{b", "\\")
}

func (w *writer) path() string {
	return w.mostly(w.of("/etc/ssl/ca.pem", "{env.FILE}", "C:\\keys.json", "keys.json"), `""`)
}

func (w *writer) url() string {
	return w.mostly(w.of("redis://redis.internal:6379", "rediss://u:"+fuzzSecret+"@redis.internal", "redis://:"+fuzzSecret+"@[::1]:6379/0", "unix:///run/redis"), "redis://%zz:"+fuzzSecret+"@x", `""`)
}

func (w *writer) secret() string {
	return w.mostly(w.of(fuzzSecret, `"`+fuzzSecret+`"`, "`"+fuzzSecret+"`", "{env.SECRET}", "{file./run/secrets/x}"), `""`, fuzzSecret+" "+fuzzSecret, "")
}

func (w *writer) resource() string {
	return w.mostly(w.of("events", "jobs", "invoices", "contacts"), "status", "me", "widgets", `""`, "Events")
}

func (w *writer) tls() {
	w.block([]string{"tls"}, w.option("ca", w.path), w.option("cert", w.path), w.option("key", w.path), w.option("server_name", w.name))
}

// file writes a whole Caddyfile: the global options and sites.
func (w *writer) file() {
	w.out.WriteString(w.mostly("{\n", "{\n\tdebug\n", "{\n\tadmin off\n"))
	w.depth = 1
	w.app()
	if w.choose(16) == 15 {
		w.app()
	}
	w.depth = 0
	w.out.WriteString("}\n")
	for n := range 1 + w.choose(3) {
		w.site(n)
	}
}

func (w *writer) app() {
	w.block([]string{"gatehouse"},
		func() {
			w.block([]string{"redis", w.url()},
				func() {
					if w.choose(4) == 3 {
						w.line("sentinel", w.name(), w.name(), w.secret())
						return
					}
					w.line("sentinel", w.name())
				},
				w.option("cluster"), w.option("username", w.name), w.option("password", w.secret), w.tls,
				w.option("timeout", w.duration), w.option("dial_timeout", w.duration), w.option("pool_size", w.number))
		},
		func() {
			switch w.choose(8) {
			case 6:
				w.line("credentials", "file", w.path())
			case 7:
				w.line("credentials", w.of("etcd", "", "vault", "file"), w.path())
			default:
				w.block([]string{"credentials", "vault", w.mostly("https://vault.internal:8200", `""`, "")},
					w.auth, w.option("namespace", w.name), w.option("mount", w.name), w.option("path", w.name),
					w.option("version", func() string { return w.mostly("2", "1", "3") }), w.option("timeout", w.duration), w.tls)
			}
		},
		func() {
			w.block([]string{"cache"}, w.option("ttl", w.duration), w.option("negative_ttl", w.duration), w.option("refresh_before", w.duration),
				w.option("stale_if_error", w.duration), w.option("lookup_timeout", w.duration), w.option("max_entries", w.number), w.option("max_lookups", w.number))
		},
		func() {
			w.block([]string{"limits"}, w.option("per_key", w.number), w.option("per_ip", w.number), w.option("in_flight", w.number), w.option("max_local_windows", w.number), w.option("shadow"),
				w.option("algorithm", func() string { return w.mostly("exact", "gcra", "leaky") }),
				w.option("on_outage", func() string { return w.mostly("local", "deny", "allow", "panic") }))
		},
		func() {
			w.block([]string{"assertion", w.path()}, w.option("issuer", w.name), w.option("audience_prefix", w.name),
				w.option("ttl", func() string { return w.mostly("20s", "1m", "2m", "1500ms", "0s") }))
		},
	)
}

func (w *writer) auth() {
	switch w.choose(8) {
	case 0:
		w.line("auth", "token", w.secret())
	case 1:
		w.line("auth", "token_file", w.path())
	case 2:
		w.line("auth", "kubernetes", w.name(), w.path())
	case 3:
		w.line("auth", "cert")
	case 4:
		w.line("auth", w.secret()) // the method was forgotten
	case 5:
		w.line("auth", "approle", w.secret())
	default:
		w.line("auth", "approle", w.name(), w.secret(), w.mostly("", "mount", "mount "+fuzzSecret))
	}
}

func (w *writer) site(n int) {
	head := []string{w.of("api.example.com", "http://", "https://", "localhost:8080", "*.example.com")}
	if n > 0 {
		head = []string{"http://other" + string(rune('a'+n)) + ".example.com"}
	}
	w.block(head,
		w.option("gatehouse_health"),
		func() { w.line("gatehouse_jwks", w.mostly("/keys.json", "keys", "/a /b")) },
		func() {
			if w.choose(4) != 3 {
				w.api()
				return
			}
			w.out.WriteString("\thandle {\n")
			w.depth++
			w.api()
			w.depth--
			w.out.WriteString("\t}\n")
		},
		func() {
			if w.choose(2) == 1 {
				w.block([]string{"gatehouse_errors"}, w.option("docs", w.name))
			}
		},
		func() {
			if w.choose(4) == 3 {
				w.line(w.of("encode", "log", "respond 404", "header -Server", "request_header X-A b"))
			}
		},
	)
}

func (w *writer) api() {
	w.block([]string{"gatehouse_api" + w.mostly("", " /api/*", " *", " @nobody")},
		func() { w.upstream() },
		func() { w.upstream(w.resource()) },
		func() { w.upstream(w.resource(), w.resource()) },
		w.option("base_path", func() string { return w.mostly("/gw", "gw", "/gw/", "/", "/%2f") }),
		w.option("docs", func() string { return w.mostly("https://docs.example.com", `""`) }),
		w.option("max_body", w.size), w.option("body_timeout", w.duration), w.option("timeout", w.duration), w.option("max_response_size", w.size),
		w.option("pass_unknown_fields", w.resource), w.option("allow_missing_tenant"),
		func() {
			w.line("deprecated", w.resource(), w.mostly("2027-01-31", "tomorrow", "2027-01-31T12:00:00Z"),
				w.mostly("", "2027-07-31", "2026-01-01", "https://docs.example.com"), w.mostly("", "https://docs.example.com", "x"))
		},
	)
}

func (w *writer) upstream(resources ...string) {
	head := append([]string{"upstream"}, resources...)
	for range 1 + w.choose(2) {
		head = append(head, w.mostly(w.of("http://data.internal:8080", "https://data.internal", "localhost:8080", "{env.DATA}:80", "[::1]:80"), "data", "ftp://x", `""`, ""))
	}
	if w.choose(2) == 0 {
		w.line(head...)
		return
	}
	w.block(head,
		w.option("health_uri", func() string { return w.mostly("/healthz", "healthz") }),
		w.option("lb_policy", func() string { return w.mostly("round_robin", "no_such_policy") }),
		w.option("header_up", func() string {
			return w.mostly("X-Note note", "Authorization "+fuzzSecret, "X-Business-Id 1", "-X-Request-Id", "X-*", "-Accept*")
		}),
		func() {
			w.block([]string{"transport", "http"}, w.option("dial_timeout", w.duration), w.option("keepalive_idle_conns", w.number))
		})
}
