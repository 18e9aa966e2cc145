package e2e_test

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// library is the service of docs/first-hour.md.
func library(w http.ResponseWriter, r *http.Request) {
	const kim = `{"id":"b-1","branch_id":7,"title":"Kim","author":"Rudyard Kipling","shelf":"A3"}`
	w.Header().Set("Content-Type", "application/json")
	problem := func(status int, body string) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
	switch r.URL.Path {
	case "/v1/books":
		if r.URL.Query().Get("limit") == "99" {
			w.Header().Set("Retry-After", "7")
			problem(http.StatusTooManyRequests, `{}`)
			return
		}
		if w.Header().Set("Etag", `"7-books-1"`); r.Header.Get("If-None-Match") == `"7-books-1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, "["+kim+"]")
		_ = z.Close()
	case "/v1/books/b-8":
		_, _ = io.WriteString(w, `{"id":"b-8","branch_id":8,"title":"Emma"}`)
	case "/v1/books/broken":
		problem(http.StatusInternalServerError, `{"title":"The database is down.","detail":"10.0.0.7"}`)
	case "/v1/hours":
		_, _ = io.WriteString(w, `{"today":"9 to 17"}`)
	case "/v2/books/b-1":
		_, _ = io.WriteString(w, `{"id":"b-1","branch_id":7,"name":"Kim"}`)
	default:
		problem(http.StatusNotFound, `{"title":"No such book.","trace":"secret"}`)
	}
}

// The files and commands of the page are those of the page, but for addresses. … stands for any text.
func TestFirstHourOfAPlatformTeam(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/first-hour.md")
	require.NoError(t, err)
	w := newEnvironment(t, http.HandlerFunc(library))
	dir := t.TempDir()
	g := gatewaytest.New(t, gatewaytest.Options{})
	adminAddr := strings.TrimPrefix(g.AdminURL, "http://")
	addresses := strings.NewReplacer("http://localhost:8080", g.URL, "http://localhost:8081", w.dataURL, "redis redis://localhost:6379", w.redisLine(),
		"{\n\tgatehouse {", "{\n\tadmin "+adminAddr+"\n\tgatehouse {", "gatehouse reload", "gatehouse reload --address "+adminAddr)
	require.NoError(t, os.Symlink(gatewaytest.Binary(t), filepath.Join(dir, "gatehouse")))
	prelude := "export HOME=" + dir + " PATH=" + dir + ":$PATH\ncd " + dir + "\n"
	sh := func(script string) string {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		out, err := exec.CommandContext(ctx, "sh", "-c", prelude+addresses.Replace(script)).CombinedOutput()
		if _, failed := errors.AsType[*exec.ExitError](err); !failed { // as reload and check may
			require.NoError(t, err)
		}
		return strings.TrimSpace(string(out))
	}
	issue := func(command string) string {
		out := sh(command)
		public, private := regexp.MustCompile(`pk_live_\S+`).FindString(out), regexp.MustCompile(`sk_live_\S+`).FindString(out)
		require.NotEmpty(t, private, out)
		prelude += "export GATEHOUSE_KEY=" + public + " GATEHOUSE_SECRET=" + private + "\n"
		return out
	}
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(addresses.Replace(text)), 0o600))
	}

	text := string(page)
	blocks := regexp.MustCompile("(?s)```(\\w+)\n(.*?)```").FindAllStringSubmatch(text, -1)
	names, commands := []string{"library.openapi.yaml", "library.gatehouse.yaml", "library2.openapi.yaml"}, 0
	for _, block := range blocks { // the gateway needs all of them before the page shows the last
		if block[1] == "yaml" {
			write(names[0], block[2])
			names = names[1:]
		}
	}
	require.Empty(t, names)
	for _, block := range blocks {
		switch block[1] {
		case "text":
			write("Caddyfile", block[2])
			issue("gatehouse keys issue --file keys.json --business-id 7 --business-name Harbour --business-slug harbour")
			require.Contains(t, text, "`gatehouse keys issue --file keys.json --business-id 7 --business-name Harbour --business-slug harbour`")
			g.Write(t, regexp.MustCompile(`\b(keys\.json|library\S*\.yaml)`).ReplaceAllString(addresses.Replace(block[2]), dir+"/$1"))
			g.Run(t)
		case "sh":
			if _, functions, ok := strings.Cut(block[2], "\n"); ok && strings.HasPrefix(functions, "call()") {
				prelude += addresses.Replace(functions)
			}
		case "console":
			for _, part := range strings.Split("\n"+block[2], "\n$ ")[1:] {
				command, want, _ := strings.Cut(strings.TrimSpace(part), "\n")
				pattern := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(want)), "…", `[^\n]*`) + "$")
				run := func(command string) string {
					write("gatehouse.log", g.Output())
					return sh(command)
				}
				if strings.Contains(command, "keys issue") {
					run = issue
				}
				got := run(command)
				// The gateway notices a new key after a moment, and writes the log after the response.
				again := strings.HasPrefix(command, "call ") || strings.Contains(command, "gatehouse.log")
				for deadline := time.Now().Add(patience); again && !pattern.MatchString(got) && time.Now().Before(deadline); {
					got = run(command)
				}
				require.Regexp(t, pattern, got, command)
				commands++
			}
		}
	}
	require.Equal(t, 21, commands)
}
