package upstream_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// documented is the business of the page's examples.
const documented = "biz_7f3a9c21"

// section is a part of docs/data-services.md with its code blocks.
type section struct {
	text   string
	blocks [][2]string // the kind and the text
}

// sections splits the page at its headings of level 3. The path of a resource is such a heading; "" is the page's beginning.
func sections(t *testing.T) map[string]section {
	t.Helper()
	page, err := os.ReadFile("../docs/data-services.md")
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)```([a-z ]+)\n(.*?)```\n")
	all := map[string]section{}
	for i, text := range strings.Split(string(page), "\n### ") {
		heading, _, _ := strings.Cut(text, "\n")
		if i == 0 {
			heading = ""
		}
		s := section{text: text}
		for _, b := range block.FindAllStringSubmatch(text, -1) {
			s.blocks = append(s.blocks, [2]string{b[1], b[2]})
		}
		all[strings.Trim(heading, "`")] = s
	}
	return all
}

// match is the resource of a target, its query and the clean one.
func match(t *testing.T, target string) (*resource, string, upstream.Query) {
	t.Helper()
	m, ok := definition.Public().Match(target)
	require.True(t, ok, target)
	res := byName(m.Path.Operations[0].Resource)
	q, err := res.Operation.CleanQuery(m)
	require.NoError(t, err)
	return res, m.Query, q
}

func TestDocumentedResponsesMeetTheContract(t *testing.T) {
	t.Parallel()
	for heading, section := range sections(t) {
		// The first example belongs to the request at the beginning of the page.
		res, q := byName("contacts"), query(2, 50)
		for _, b := range section.blocks {
			kind, text := b[0], b[1]
			if kind == "http" {
				var raw string
				res, raw, q = match(t, strings.Fields(text)[1])
				require.Equal(t, raw, q.Raw, "data services get clean queries")
			}
			if kind != "json" && kind != "json sloppy" {
				continue
			}
			var dst bytes.Buffer
			report, err := res.check(new(upstream.Contract), &dst, q, documented, []byte(text))
			require.NoError(t, err, heading)
			if kind == "json" {
				require.Positive(t, report.Records, heading)
				require.Equal(t, upstream.Report{Records: report.Records}, report, heading)
				continue
			}
			assert.Equal(t, upstream.Report{Records: 2, CrossTenant: 1, Unpublished: 1, Surplus: 1, Reordered: true}, report)
			assert.Equal(t, []string{uuid(0x102), uuid(0x101)}, idsIn(t, "events", dst.String()))
		}
	}
}

func TestDocumentedFieldsAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	all := sections(t)
	row := regexp.MustCompile("(?m)^\\| *`([^`]+)` *\\|[^|]*\\|([^|]*)\\|")
	for _, res := range resources() {
		if res.ByGateway {
			continue
		}
		t.Run(res.Name, func(t *testing.T) {
			t.Parallel()
			section, example := all[res.Path], ""
			for _, b := range section.blocks {
				if b[0] == "json" {
					example = b[1]
				}
			}
			require.NotEmpty(t, example)
			rows := map[string]string{} // the third cell by the name of the field
			for _, r := range row.FindAllStringSubmatch(section.text, -1) {
				rows[r[1]] = r[2]
			}
			for _, name := range allNames("", res.Fields) {
				require.Contains(t, rows, name)
				require.Contains(t, example, `"`+name[strings.LastIndexByte(name, '.')+1:]+`":`)
				for _, value := range valuesOf(res.Fields, name) {
					assert.Contains(t, rows[name], "`"+value+"`", name)
				}
			}
		})
	}
}

// allNames are the names of fields and, with a dot, of those within them.
func allNames(prefix string, fields []field) []string {
	names := make([]string, 0, len(fields))
	for _, f := range fields {
		names = append(names, prefix+f.Name)
		names = append(names, allNames(prefix+f.Name+".", f.Fields)...)
	}
	return names
}

// valuesOf are the documented values of a field, which may be within another.
func valuesOf(fields []field, name string) []string {
	head, rest, nested := strings.Cut(name, ".")
	for _, f := range fields {
		if f.Name == head && nested {
			return valuesOf(f.Fields, rest)
		}
		if f.Name == head {
			return f.Values
		}
	}
	return nil
}

func TestDocumentedRequestIsTheOneThatArrives(t *testing.T) {
	t.Parallel()
	example := sections(t)[""].blocks[0]
	require.Equal(t, "http", example[0])
	lines := strings.Split(strings.TrimSpace(example[1]), "\n")
	shown := http.Header{}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ": ")
		shown.Add(name, value)
	}
	r := httptest.NewRequest(http.MethodGet, "/api/v1/contacts?status=active&per_page=50&page=2", http.NoBody)
	for _, name := range []string{"User-Agent", "Accept-Language", "Traceparent"} {
		r.Header.Set(name, shown.Get(name))
	}
	res, _, q := match(t, r.RequestURI)
	call := upstream.NewCall(r, res.Operation, q, documented, shown.Get("X-Request-Id"))
	out, err := call.NewRequest(t.Context(), shown.Get("X-Gateway-Assertion"))
	require.NoError(t, err)
	require.Equal(t, lines[0], out.Method+" "+out.URL.RequestURI()+" HTTP/1.1")
	for _, name := range []string{"Host", "Via", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host"} {
		shown.Del(name) // added by the server and the reverse proxy
	}
	require.Equal(t, shown, out.Header)
}

func TestDocumentedGoCodeIsTheExample(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile("../examples/dataservice/main.go")
	require.NoError(t, err)
	unindented := strings.ReplaceAll("\n"+string(example), "\n\t", "\n")
	found := false
	for _, section := range sections(t) {
		for _, b := range section.blocks {
			if b[0] == "go" {
				require.Contains(t, unindented, b[1])
				found = true
			}
		}
	}
	require.True(t, found)
}
