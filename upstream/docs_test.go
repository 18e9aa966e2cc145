package upstream_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// The business of the page's examples.
const documented = "biz_7f3a9c21"

var block = regexp.MustCompile("(?s)```([a-z ]+)\n(.*?)```\n")

// platformPage is docs/data-services.md.
func platformPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/data-services.md")
	require.NoError(t, err)
	return string(text)
}

func TestTheExamplesForPlatformTeamsMeetTheContract(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for section := range strings.SplitSeq(platformPage(t), "\n### ") {
		var res *upstream.Resource
		var q upstream.Query
		for _, b := range block.FindAllStringSubmatch(section, -1) {
			switch kind, text := b[1], b[2]; kind {
			case "http":
				line, _, _ := strings.Cut(text, "\n")
				target := strings.TrimSuffix(strings.TrimPrefix(line, "GET "), " HTTP/1.1")
				found, raw, ok := upstream.Match(target)
				require.True(t, ok, target)
				clean, err := found.CleanQuery(raw)
				require.NoError(t, err)
				require.Equal(t, raw, clean.Raw, "what arrives is clean")
				res, q = found, clean
			case "json", "json sloppy":
				if res == nil { // the general example, which belongs to the request above it
					res = upstream.ByName("contacts")
					q = upstream.Query{Page: 2, PerPage: 50}
				}
				var dst bytes.Buffer
				report, err := (&upstream.Contract{}).Check(&dst, res, q, documented, []byte(text))
				require.NoError(t, err, res.Name)
				if kind == "json" {
					require.Equal(t, upstream.Report{Records: report.Records}, report, res.Name)
					require.Positive(t, report.Records)
					seen[res.Name]++
					continue
				}
				require.Equal(t, upstream.Report{Records: 2, CrossTenant: 1, Unpublished: 1, Surplus: 1, Reordered: true}, report)
				require.Equal(t, []string{
					`"0190f3a2-7c4b-7d11-9e55-000000000102"`, `"0190f3a2-7c4b-7d11-9e55-000000000101"`,
				}, ids(t, "events", dst.String()))
			}
		}
	}
	for _, res := range upstream.Resources() {
		if !res.ByGateway {
			require.Positive(t, seen[res.Name], "no example for %s", res.Name)
		}
	}
}

func TestTheExamplesForPlatformTeamsHaveAllFields(t *testing.T) {
	t.Parallel()
	for _, section := range strings.Split(platformPage(t), "\n### ")[1:] {
		name, _, _ := strings.Cut(strings.TrimPrefix(section, "`/api/v1/"), "`")
		res := upstream.ByName(name)
		if res == nil {
			continue
		}
		for _, b := range block.FindAllStringSubmatch(section, -1) {
			if b[1] == "json" {
				for _, field := range allNames("", res.Fields) {
					require.Contains(t, b[2], `"`+field[strings.LastIndexByte(field, '.')+1:]+`":`, name)
				}
			}
		}
	}
}

// The request that the page shows is the one that PrepareRequest makes.
func TestThePageForPlatformTeamsShowsTheRequestThatArrives(t *testing.T) {
	t.Parallel()
	example := block.FindStringSubmatch(platformPage(t))
	require.Equal(t, "http", example[1])
	lines := strings.Split(strings.TrimSpace(example[2]), "\n")
	shown := http.Header{}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ": ")
		shown.Add(name, value)
	}
	r := httptest.NewRequest(http.MethodGet, "http://api.example.com/api/v1/contacts?status=active&per_page=50&page=2", http.NoBody)
	for _, name := range []string{"User-Agent", "Accept-Language", "Traceparent"} {
		r.Header.Set(name, shown.Get(name))
	}
	res, raw, ok := upstream.Match(r.RequestURI[len("http://api.example.com"):])
	require.True(t, ok)
	q, err := res.CleanQuery(raw)
	require.NoError(t, err)
	out, err := upstream.PrepareRequest(r, res, q, upstream.Identity{
		BusinessID: documented, RequestID: shown.Get("X-Request-Id"), Assertion: shown.Get("X-Gateway-Assertion"),
	})
	require.NoError(t, err)
	require.Equal(t, lines[0], out.Method+" "+out.URL.RequestURI()+" HTTP/1.1")
	for _, name := range []string{"Host", "Via", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host"} {
		shown.Del(name) // the server's and the reverse proxy's
	}
	require.Equal(t, shown, out.Header)
}

// The Go code of the page is that of the package's example, which is compiled and run.
func TestTheGoCodeForPlatformTeamsRuns(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	unindented := strings.ReplaceAll("\n"+string(example), "\n\t", "\n")
	found := false
	for _, b := range block.FindAllStringSubmatch(platformPage(t), -1) {
		if b[1] == "go" {
			require.Contains(t, unindented, b[2])
			found = true
		}
	}
	require.True(t, found)
}
