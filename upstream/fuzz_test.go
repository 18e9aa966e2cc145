package upstream_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// The fuzz tests compare the package with slow implementations of the documented rules on other parsers: net/url, math/big,
// regexp and encoding/json. Their seeds are in testdata/fuzz.

// FuzzTarget reads a text as a target, and as the query of a resource.
func FuzzTarget(f *testing.F) {
	f.Fuzz(func(t *testing.T, resource uint8, text string) {
		rs := resources()
		res := rs[int(resource)%len(rs)]
		fuzzMatch(t, text)
		fuzzMatch(t, res.Path+"?"+text)
		fuzzCleanQuery(t, res, text)
	})
}

func fuzzMatch(t *testing.T, target string) {
	t.Helper()
	m, ok := definition.Public().Match(target)
	var want *resource
	for _, r := range resources() {
		if target == r.Path || strings.HasPrefix(target, r.Path+"?") && !strings.Contains(target, "#") {
			want = r
		}
	}
	require.Equal(t, want != nil, ok)
	if !ok {
		require.Nil(t, m.Path)
		return
	}
	require.Same(t, want.Operation, m.Path.Operation(http.MethodGet))
	if target != want.Path {
		require.Equal(t, target, want.Path+"?"+m.Query)
	}
}

func fuzzCleanQuery(t *testing.T, res *resource, raw string) {
	t.Helper()
	q, err := res.CleanQuery(raw)
	want, bad := readQuery(res, raw)
	if bad != nil {
		var perr *upstream.ParameterError
		require.ErrorAs(t, err, &perr)
		require.Contains(t, bad, perr.Parameter)
		require.True(t, strings.HasPrefix(err.Error(), perr.Parameter+" "))
		require.Zero(t, q)
		return
	}
	require.NoError(t, err)
	again, err := res.CleanQuery(q.Raw)
	require.NoError(t, err)
	q.Ignored = ""
	require.Equal(t, q, again, "clean(clean(q)) = clean(q)")

	// The standard library reads the intended values from the forwarded query, and each name once.
	got, err := url.ParseQuery(q.Raw)
	require.NoError(t, err)
	require.Equal(t, want, got)
	for _, values := range got {
		require.Len(t, values, 1)
	}
	require.Len(t, got, strings.Count(q.Raw, "="))
	for i := range len(q.Raw) {
		require.True(t, q.Raw[i] > ' ' && q.Raw[i] < 0x7f && q.Raw[i] != '+' && q.Raw[i] != '#' && q.Raw[i] != ';', "%q", q.Raw)
	}
}

// readQuery implements the documented rules a second time. bad are the invalid parameters.
func readQuery(res *resource, raw string) (want url.Values, bad []string) {
	given := map[string][]string{}
	for pair := range strings.SplitSeq(raw, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if name, err := url.QueryUnescape(name); err == nil && name != "" {
			given[name] = append(given[name], value)
		}
	}
	want = url.Values{}
	bounds := map[string][2]int64{"page": {1, 2147483647}, "per_page": {25, 100}, "count": {10, 100}} // the default and the maximum
	for _, param := range res.Params {
		p := param.Name
		bound, number := bounds[p]
		values := given[p]
		if len(values) == 0 {
			if number {
				want.Set(p, strconv.FormatInt(bound[0], 10))
			}
			continue
		}
		value, err := url.QueryUnescape(values[0])
		switch {
		case len(values) > 1 || err != nil:
			bad = append(bad, p)
		case number && !regexp.MustCompile(`\A-?[0-9]+\z`).MatchString(value):
			bad = append(bad, p)
		case number:
			n, _ := new(big.Int).SetString(value, 10)
			if n.Sign() < 1 {
				n.SetInt64(1)
			}
			if n.Cmp(big.NewInt(bound[1])) > 0 {
				n.SetInt64(bound[1])
			}
			want.Set(p, n.String())
		case !utf8.ValidString(value) || len(value) > 128 || strings.ContainsFunc(value, unicode.IsControl):
			bad = append(bad, p)
		case value != "":
			want.Set(p, value)
		}
	}
	return want, bad
}

func FuzzHeaders(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		h := http.Header{}
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
			h[name] = append(h[name], value)
		}
		for name, values := range forwarded(t, h) {
			require.Contains(t, []string{"Accept-Language", "User-Agent", "Traceparent", "Tracestate"}, name)
			require.Len(t, values, 1)
			require.LessOrEqual(t, len(values[0]), 512)
			require.Regexp(t, `\A[\t -~]*\z`, values[0])
			require.Equal(t, h[name], values)
		}
	})
}

// The settings of FuzzCheck, as bits.
const (
	allowMissingTenant = 1 << iota
	passUnknown
)

func FuzzCheck(f *testing.F) {
	f.Fuzz(func(t *testing.T, resource, size, flags uint8, body []byte) {
		fuzzCheck(t, served(resource), size, flags, body)
	})
}

// FuzzCheckRecords generates nearly valid responses, which random bytes would not be.
func FuzzCheckRecords(f *testing.F) {
	f.Fuzz(func(t *testing.T, resource, size, flags uint8, choices []byte) {
		res := served(resource)
		g := generator{choices: choices}
		fuzzCheck(t, res, size, flags, []byte(g.response(res, int(size%100)+1)))
	})
}

// served returns one of the resources that have an upstream.
func served(n uint8) *resource {
	rs := slices.DeleteFunc(resources(), func(r *resource) bool { return r.ByGateway })
	return rs[int(n)%len(rs)]
}

// generator generates responses. Each choice is a byte of the input, or 0 at its end.
type generator struct{ choices []byte }

func (g *generator) choose(n int) int {
	if len(g.choices) == 0 {
		return 0
	}
	c := int(g.choices[0])
	g.choices = g.choices[1:]
	return c % n
}

func (g *generator) of(texts ...string) string { return texts[g.choose(len(texts))] }

// rarely returns one of the strange texts once in 16 times, and otherwise the plain one.
func (g *generator) rarely(plain string, strange ...string) string {
	if g.choose(16) != 15 {
		return plain
	}
	return g.of(strange...)
}

func (g *generator) response(res *resource, perPage int) string {
	var content string
	if res.List == "" {
		content = g.record(res)
	} else {
		rs := make([]string, g.choose(5))
		for i := range rs {
			rs[i] = g.record(res)
		}
		content = "[" + strings.Join(rs, g.rarely(",", " , ", ",null,", ",,")) + "]"
	}
	members := []string{quoted(res.List+res.Object) + ":" + content} // one of them is empty
	if res.Envelope != "" {
		members = append(members, `"pagination":{"current_page":`+g.rarely("1", "2", "null", `"1"`, "1.0")+`,"per_page":`+
			strconv.Itoa(perPage)+g.rarely("", "0", ".5")+`,"total_pages":`+g.rarely("7", "-1", "-0")+`,"total_items":3}`)
	}
	members = append(members, g.unknown()...)
	if g.choose(2) == 1 {
		slices.Reverse(members)
	}
	return g.rarely("{", " {\n\t", "[{") + strings.Join(members, ",") + g.rarely("}", " } ", "}}", "")
}

// unknown returns members that the contract does not define.
func (g *generator) unknown() []string {
	return strings.Fields(g.rarely("", `"x":1`, `"x":{"a":[1,"]"],"b":null}`, `"x":1 "x":2`, `"x":{"y":1,"y":1}`, `"X":"\u0000\""`,
		`"BUSINESS_ID":"`+theirs+`"`, `"\u0078":[]`, `"":{}`, `"Id":7`, `"x":[[[[]]]]`))
}

func (g *generator) record(res *resource) string {
	var members []string
	member := func(name, value string) {
		switch g.choose(16) {
		case 14:
			members = append(members, quoted(name)+" : "+value)
		case 15:
			members = append(members, g.of(fmt.Sprintf(`"\u00%x%s":%s`, name[0], name[1:], value), quoted(name)+":null",
				quoted(name)+":"+value+","+quoted(name)+":"+value, quoted(strings.ToUpper(name))+":"+value, quoted("y")+":1"))
		default:
			members = append(members, quoted(name)+":"+value)
		}
	}
	for _, f := range res.Fields {
		member(f.Name, g.value(f))
	}
	member("business_id", g.rarely(quoted(mine), quoted(theirs), "null", "7", "{}", `"biz\u005f7f3a"`, `""`))
	if res.Name == "events" {
		member("status", g.of(`"published"`, `"published"`, `"draft"`, `"archived"`, `"publi\u0073hed"`, "null", "1"))
		member("published_at", g.value(field{Kind: kindInstant}))
		member("created_at", g.value(field{Kind: kindInstant}))
	}
	members = append(members, g.unknown()...)
	if g.choose(4) == 1 {
		slices.Reverse(members)
	}
	return "{" + strings.Join(members, ",") + "}"
}

func (g *generator) value(f field) string {
	if g.choose(16) == 15 {
		return g.of("null", "null", "true", "0", "-1", "1.5", `""`, `"x"`, "[]", "{}", "[null]", `["a"]`, `[{"a":1}]`, `{"id":1}`, "NaN",
			`"2026-03-05T14:30:00+01:00"`, `"12"`, "1e400", `"\ud800"`, "12345678901234567890")
	}
	switch f.Kind {
	case kindKey:
		return g.of("7", `"k"`, `"\u006b"`)
	case kindUUID:
		return uuid(g.choose(256))
	case kindInteger:
		return g.of("0", "42", "-7")
	case kindBool:
		return g.of("true", "false")
	case kindDecimal:
		return g.of(`"9471.88"`, `"-0.5"`, `"3"`)
	case kindInstant:
		return g.of(instant(0), instant(g.choose(256)), `"2026-03-05T14:30:00.25Z"`, `"2026-03-05T14:30:00+00:00"`, "null")
	case kindDate:
		return `"2024-02-29"`
	case kindTime:
		return g.of(`"00:00"`, `"23:59"`)
	case kindTexts:
		return g.of("[]", `["a","\u00e4"]`, `[ "a" , "b" ]`)
	case kindBusiness:
		return quoted(mine)
	case kindObjects:
		var rs []string
		for range g.choose(3) {
			var members []string
			for _, n := range f.Fields {
				members = append(members, quoted(n.Name)+":"+g.value(n))
			}
			members = append(members, g.unknown()...)
			rs = append(rs, "{"+strings.Join(members, ",")+"}")
		}
		return "[" + strings.Join(rs, ",") + "]"
	default:
		return g.of(`"text"`, `"a \"quoted\\\" text\\"`, `"ä\u0000\/"`, `""`, "null")
	}
}

func fuzzCheck(t *testing.T, res *resource, size, flags uint8, body []byte) {
	t.Helper()
	q := query(1, int(size%100)+1)
	if res.Envelope == "" {
		q = query(int(size%100) + 1)
	}
	c := upstream.Contract{AllowMissingTenant: flags&allowMissingTenant != 0}
	if flags&passUnknown != 0 {
		c.PassUnknownFields = map[string]bool{res.Name: true}
	}
	var dst bytes.Buffer
	report, err := res.check(&c, &dst, q, mine, body)
	requireLibraryAgrees(t, body, err)
	listed, _ := c.Violations(res.Operation, res.documented, q, mine, body)
	require.Equal(t, err != nil && !errors.Is(err, upstream.ErrNotVisible) || report.CrossTenant > 0 || report.Reordered || report.Surplus > 0, len(listed) > 0, "%v: %v: %q", err, listed, body)
	if err != nil {
		require.ErrorIs(t, err, upstream.ErrContractViolation)
		require.Zero(t, dst.Len())
		if errors.Is(err, upstream.ErrCrossTenantRecord) {
			require.Positive(t, report.CrossTenant)
		}
		return
	}
	checkResult(t, &c, res, q, report, body, dst.Bytes())
}

// requireLibraryAgrees requires that an accepted body is valid JSON for jsontext, with each name once in its object, and that
// valid JSON was not rejected as invalid JSON.
func requireLibraryAgrees(t *testing.T, body []byte, err error) {
	t.Helper()
	if err == nil {
		require.True(t, jsontext.Value(body).IsValid(), "accepted invalid JSON: %q", body)
		return
	}
	if v := jsontext.Value(body); v.IsValid() {
		for _, text := range []string{"valid JSON", "complete JSON", "nothing after", "each member name once"} {
			require.NotContains(t, err.Error(), text, "%q", body)
		}
	}
}

// checkResult compares the result with the body, both as encoding/json reads them.
func checkResult(t *testing.T, c *upstream.Contract, res *resource, q upstream.Query, report upstream.Report, body, result []byte) {
	t.Helper()
	require.True(t, utf8.Valid(result))
	var compact bytes.Buffer
	require.NoError(t, json.Compact(&compact, result))
	require.Equal(t, compact.String(), string(result))

	sent, got := decode(t, body), decode(t, result)
	content := res.List + res.Object // one of them is empty
	members := []string{content}
	if res.Envelope != "" {
		members = append(members, "pagination")
		for _, name := range []string{"current_page", "per_page", "total_items", "total_pages"} {
			require.Equal(t, asObject(sent["pagination"])[name], asObject(got["pagination"])[name])
		}
		require.Len(t, got["pagination"], 4)
	}
	require.ElementsMatch(t, members, slices.Collect(maps.Keys(got)))

	var in, out []any
	if res.List != "" {
		in, out = asArray(sent[content]), asArray(got[content])
	} else {
		in, out = []any{sent[content]}, []any{got[content]}
	}
	require.Len(t, out, report.Records)
	if res.Envelope != "" {
		require.LessOrEqual(t, len(out), q.Numbers[res.AtMost])
	}
	if res.Name == "events" {
		require.LessOrEqual(t, len(out), q.Numbers[res.AtMost])
	}

	// The records that belong to the result, in order.
	var want []map[string]any
	for _, r := range in {
		r := asObject(r)
		owner := r["business_id"]
		if res.Object != "" && owner == nil {
			owner = r["id"]
		}
		switch {
		case owner == nil && c.AllowMissingTenant:
		case owner == mine:
		default:
			require.Equal(t, "events", res.Name, "a cross-tenant record in an accepted list")
			continue
		}
		if res.Name == "events" && r["status"] != "published" {
			continue
		}
		want = append(want, r)
	}
	slices.SortStableFunc(want, func(a, b map[string]any) int { return createdAt(t, res, b).Compare(createdAt(t, res, a)) })
	if res.Name == "events" && len(want) > q.Numbers[res.AtMost] {
		want = want[:q.Numbers[res.AtMost]]
	}
	require.Len(t, out, len(want))
	for i := range want {
		checkRecord(t, c, res, want[i], asObject(out[i]))
	}
}

func checkRecord(t *testing.T, c *upstream.Contract, res *resource, sent, got map[string]any) {
	t.Helper()
	known := map[string]bool{}
	for _, f := range res.Fields {
		known[f.Name] = true
		require.Contains(t, got, f.Name)
		value := sent[f.Name]
		if rs, ok := value.([]any); ok && f.Kind == kindObjects {
			nested := make([]any, len(rs))
			for i, r := range rs {
				o := map[string]any{}
				for _, n := range f.Fields {
					o[n.Name] = asObject(r)[n.Name]
				}
				nested[i] = o
			}
			value = nested
		}
		require.Equal(t, value, got[f.Name], f.Name)
	}
	require.NotNil(t, got["id"])
	for name := range got {
		if known[name] {
			continue
		}
		require.True(t, c.PassUnknownFields[res.Name], "%q is not documented", name)
		require.NotEqual(t, "business_id", strings.ToLower(name))
		require.Equal(t, sent[name], got[name])
		if res.Name == "events" {
			require.NotContains(t, []string{"status", "published_at", "created_at"}, strings.ToLower(name))
		}
	}
}

func createdAt(t *testing.T, res *resource, r map[string]any) time.Time {
	t.Helper()
	names := []string{"created_at"}
	switch res.Name {
	case "contacts":
		names = []string{"date_created"}
	case "events":
		names = []string{"published_at", "created_at"}
	}
	for _, name := range names {
		if text, ok := r[name].(string); ok {
			at, err := time.Parse(time.RFC3339Nano, text)
			require.NoError(t, err)
			return at
		}
	}
	return time.Time{}.AddDate(-1, 0, 0)
}
