package upstream_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// documented is the business of the page's examples.
const documented = "biz_7f3a9c21"

// page returns docs/data-services.md, and its code blocks: the kind and the text of each.
func page(t *testing.T) (text string, blocks [][2]string) {
	t.Helper()
	page, err := os.ReadFile("../docs/data-services.md")
	require.NoError(t, err)
	for _, b := range regexp.MustCompile("(?s)```([a-z ]+)\n(.*?)```\n").FindAllStringSubmatch(string(page), -1) {
		blocks = append(blocks, [2]string{b[1], b[2]})
	}
	return string(page), blocks
}

// examples are the responses that the page shows as files, by the names of the files.
func examples(t *testing.T) map[string]exchange {
	t.Helper()
	files, err := filepath.Glob("../examples/dataservice/responses/*.json")
	require.NoError(t, err)
	all := map[string]exchange{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var e exchange
		require.NoError(t, json.Unmarshal(text, &e), file)
		all[strings.TrimSuffix(filepath.Base(file), ".json")] = e
	}
	return all
}

// exchange is a request as a data service gets it, such as "GET /api/v1/business", and the response.
type exchange struct {
	Request  string
	Response json.RawMessage
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
	const sloppy = "unfiltered-events"
	checked := func(name string, res *resource, q upstream.Query, response []byte) {
		var dst bytes.Buffer
		report, err := res.check(new(upstream.Contract), &dst, q, documented, response)
		require.NoError(t, err, name)
		if name == sloppy {
			assert.Equal(t, upstream.Report{Records: 2, CrossTenant: 1, Unpublished: 1, Surplus: 1, Reordered: true}, report)
			assert.Equal(t, []string{uuid(0x102), uuid(0x101)}, idsIn(t, "events", dst.String()))
			return
		}
		require.Positive(t, report.Records, name)
		require.Equal(t, upstream.Report{Records: report.Records}, report, name)
	}
	all := examples(t)
	require.Contains(t, all, sloppy)
	for name, e := range all {
		method, target, _ := strings.Cut(e.Request, " ")
		require.Equal(t, http.MethodGet, method)
		res, raw, q := match(t, target)
		require.Equal(t, raw, q.Raw, "data services get clean queries")
		if name != sloppy {
			require.Equal(t, res.Name, name)
		}
		checked(name, res, q, e.Response)
	}
	// The first example on the page belongs to the request at its beginning.
	_, blocks := page(t)
	first := blocks[slices.IndexFunc(blocks, func(b [2]string) bool { return b[0] == "json" })]
	checked("the page", byName("contacts"), query(2, 50), []byte(first[1]))
}

func TestExamplesHaveTheFieldsOfTheContract(t *testing.T) {
	t.Parallel()
	all := examples(t)
	for _, res := range resources() {
		if res.ByGateway {
			continue
		}
		require.Contains(t, all, res.Name)
		for _, name := range allNames("", res.Fields) {
			require.Contains(t, string(all[res.Name].Response), `"`+name[strings.LastIndexByte(name, '.')+1:]+`":`, res.Name)
		}
	}
}

// docs/openapi.yaml is the reference to which the page refers.
func TestReferenceHasTheFieldsOfTheContract(t *testing.T) {
	t.Parallel()
	doc, err := openapi3.NewLoader().LoadFromFile("../docs/openapi.yaml")
	require.NoError(t, err)
	for _, res := range resources() {
		if res.ByGateway {
			continue
		}
		body := doc.Paths.Value("/" + res.Name).Get.Responses.Status(http.StatusOK).Value.Content["application/json"].Schema.Value
		record := body.Properties[res.documented.Records.In].Value
		if record.Items != nil {
			record = record.Items.Value
		}
		requireFields(t, res.Name, res.Fields, record)
	}
}

// requireFields requires that a schema of the document has exactly the fields, with their values.
func requireFields(t *testing.T, path string, fields []field, s *openapi3.Schema) {
	t.Helper()
	require.Len(t, s.Properties, len(fields), path)
	for _, f := range fields {
		at := path + "." + f.Name
		require.Contains(t, s.Properties, f.Name, path)
		p := s.Properties[f.Name].Value
		var values []string
		for _, v := range asArray(p.Extensions["x-extensible-enum"]) {
			value, _ := v.(string)
			values = append(values, value)
		}
		require.Equal(t, f.Values, values, at)
		if len(f.Fields) > 0 {
			requireFields(t, at, f.Fields, p.Items.Value)
		}
	}
}

// The published document does not have internal members, so the page is where data services find them.
func TestInternalMembersAreDocumented(t *testing.T) {
	t.Parallel()
	text, _ := page(t)
	want, rows := map[string][]string{}, map[string][]string{}
	for _, res := range resources() {
		if res.ByGateway {
			continue
		}
		in := res.documented.Body.Property(res.documented.Records.In).Schema
		if in.Items != nil {
			in = in.Items
		}
		for _, p := range in.Properties {
			if p.Internal {
				want[p.Name] = append(want[p.Name], res.Name)
			}
		}
	}
	_, internal, found := strings.Cut(text, "### Internal members")
	require.True(t, found)
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z, ]+) \\|").FindAllStringSubmatch(internal, -1) {
		rows[m[1]] = strings.Split(m[2], ", ")
	}
	for _, all := range []map[string][]string{want, rows} {
		for _, names := range all {
			slices.Sort(names)
		}
	}
	require.Equal(t, want, rows)
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

func TestDocumentedRequestIsTheOneThatArrives(t *testing.T) {
	t.Parallel()
	_, blocks := page(t)
	example := blocks[0]
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
	_, blocks := page(t)
	for _, b := range blocks {
		if b[0] == "go" {
			require.Contains(t, unindented, b[1])
			found = true
		}
	}
	require.True(t, found)
}
