package mcp

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	fast "github.com/go-json-experiment/json"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
)

// TestTheQuickCheckLetsNothingPassThatTheSchemaRefuses takes answers that meet each tool's schema and spoils them at every
// place in every way that a data service could: the quick check and the schema have to say the same, but for what the
// quick check leaves to the schema.
func TestTheQuickCheckLetsNothingPassThatTheSchemaRefuses(t *testing.T) {
	t.Parallel()
	var without []string
	for _, tool := range allTools() {
		require.NoError(t, tool.prepare())
		if tool.quick == nil {
			without = append(without, tool.name)
			continue
		}
		t.Run(tool.name, func(t *testing.T) {
			t.Parallel()
			good := example(t, tool.output, true)
			for _, v := range []any{good, example(t, tool.output, false)} {
				written := inJSON(t, v)
				require.NoError(t, tool.output.Validate(reread(t, written)), "%s", written)
				require.True(t, tool.quick.fits(written), "the quick check does not know a good answer: %s", written)
			}
			spoilt := 0
			spoil(good, func() {
				written := inJSON(t, good)
				if err := tool.output.Validate(reread(t, written)); err != nil {
					spoilt++
					require.False(t, tool.quick.fits(written), "%v: %s", err, written)
				}
			})
			require.Greater(t, spoilt, 20)
		})
	}
	// their schemas have limits with fractions
	require.Equal(t, []string{"business_get", "service_areas_set"}, without)
}

func TestTheQuickCheckLetsNoMemberPassTwice(t *testing.T) {
	t.Parallel()
	schema, err := compile("x", object(must("a", boolean()), must("b", free(5))))
	require.NoError(t, err)
	sh := shapeOf(schema)
	require.True(t, sh.fits([]byte(`{"a":true,"b":"x"}`)))
	for _, s := range []string{
		`{"a":true,"a":true,"b":"x"}`, `{"a":true,"b":"x","\u0061":false}`, `{"a":true,"b":"x"`, `{"a":true`, `{`, ``, `nonsense`,
		`{"a":true,"b":"\ud800"}`, `{"a":true,"b":"xxxxx\u0078"}`,
	} {
		require.False(t, sh.fits([]byte(s)), s)
	}
	require.True(t, sh.fits([]byte(`{"a":true,"b":"xxxx\u0078"}`)), "five characters")
}

func TestASchemaWithKeywordsThatTheQuickCheckDoesNotKnowIsLeftToTheSchema(t *testing.T) {
	t.Parallel()
	for _, n := range []node{
		{"not", node{"type", "string"}},
		{"anyOf", []any{node{"type", "string"}}},
		{"type", "array", "uniqueItems", true},
		{"type", "array", "prefixItems", []any{node{"type", "string"}}},
		{"type", "object", "additionalProperties", node{"type", "string"}},
		{"type", "object", "minProperties", 1},
		{"type", "object", "required", []any{"nowhere"}},
		{"type", "number", "exclusiveMinimum", 0},
		{"type", "number", "minimum", 0.5},
		{"type", "number", "multipleOf", 2},
		{"type", "number", "maximum", 1e30},
		{"const", 1},
		{"enum", []any{1}},
		object(must("deep", list(node{"not", node{}}, 5))),
	} {
		schema, err := compile("x", n)
		require.NoError(t, err)
		require.Nil(t, shapeOf(schema), "%v", n)
	}
}

// example is a value that meets a schema: as full as it may be, or as empty.
func example(t *testing.T, s *jsonschema.Schema, full bool) any {
	t.Helper()
	types := s.Types.ToStrings()
	switch {
	case s.Enum != nil:
		return s.Enum.Values[0]
	case !full && slices.Contains(types, "null"):
		return nil
	case slices.Contains(types, "object"):
		o := map[string]any{}
		for name, of := range s.Properties {
			if full || slices.Contains(s.Required, name) {
				o[name] = example(t, of, full)
			}
		}
		return o
	case slices.Contains(types, "array"):
		if !full {
			return []any{}
		}
		if s.Items2020 == nil {
			return []any{"anything"}
		}
		return []any{example(t, s.Items2020, full), example(t, s.Items2020, full)}
	case slices.Contains(types, "boolean"):
		return true
	case slices.Contains(types, "integer"), slices.Contains(types, "number"):
		if s.Minimum != nil {
			return json.Number(s.Minimum.RatString())
		}
		return json.Number("7")
	}
	for _, text := range []string{"2026-03-05T14:30:00.25+01:00", "09:00", "A text with an \"\u00e9\" and\na line", "a-name", "monday", ""} {
		if s.Validate(text) == nil {
			return text
		}
	}
	require.FailNow(t, "no example", "%s", s.Location)
	return nil
}

// spoil calls try for each change of something in v, which is undone after it.
func spoil(v any, try func()) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			was := v[name]
			delete(v, name)
			try()
			for _, other := range others() {
				v[name] = other
				try()
			}
			v[name] = was
			spoil(was, try)
		}
		v["one_more"] = 1
		try()
		delete(v, "one_more")
	case []any:
		for i, was := range v {
			for _, other := range others() {
				v[i] = other
				try()
			}
			v[i] = was
			spoil(was, try)
		}
	}
}

// others are values that stand in for a good one.
func others() []any {
	many := make([]any, 101)
	for i := range many {
		many[i] = map[string]any{}
	}
	return []any{
		nil, true, false, json.Number("0"), json.Number("-1"), json.Number("1.0"), json.Number("1.5"), json.Number("1e3"),
		json.Number("9007199254740992"), json.Number("9223372036854775808"), json.Number("1e400"), "", "x", "25:00",
		"2026-02-30T00:00:00Z", "2026-03-05T14:30:00Z", "yesterday", strings.Repeat("é", 33), strings.Repeat("é", 20_001),
		[]any{},
		[]any{nil},
		many,
		map[string]any{},
		map[string]any{"id": "x"},
	}
}

func inJSON(t *testing.T, v any) []byte {
	t.Helper()
	written, err := json.Marshal(v)
	require.NoError(t, err)
	return written
}

func reread(t *testing.T, written []byte) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(string(written)))
	require.NoError(t, err)
	return v
}

// manyContacts is the tool that lists contacts, and an answer of it with 25.
func manyContacts(tb testing.TB) (*tool, *outcome) {
	tb.Helper()
	tools := contactTools()
	at := slices.IndexFunc(tools, func(t *tool) bool { return t.name == "contacts_search" })
	require.NoError(tb, tools[at].prepare())
	contacts := make([]data.Contact, 25)
	for i := range contacts {
		when := time.Date(2026, 3, 5, 14, 30, 0, 0, time.UTC)
		contacts[i] = data.Contact{
			ID: 10_403 + int64(i), FirstName: "Ines", LastName: new("Halvorsen"), Email: new("ines@example.com"),
			PhoneNumber: new("6085550123"), CountryCode: new("+1"), ContactType: "customer", ContactStatus: "active",
			Notes: new("Gate on the north side sticks."), DateCreated: when, DateModified: when, Version: 1,
		}
	}
	return tools[at], &outcome{value: pageValue("contacts", contacts, "")}
}

// BenchmarkOutputCheck holds 25 contacts to the tool's schema, by its shape and by the schema itself, with what each needs.
func BenchmarkOutputCheck(b *testing.B) {
	tool, o := manyContacts(b)
	written, err := fast.Marshal(o.value)
	require.NoError(b, err)
	for _, quick := range []bool{true, false} {
		b.Run(fmt.Sprintf("quick=%t", quick), func(b *testing.B) {
			if !quick {
				tool.quick = nil
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := tool.checkOutput(written); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
