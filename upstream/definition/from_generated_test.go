package definition_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// mappedSchema is a random schema, and mappedMember a member, with where the data service has it.
type mappedSchema struct {
	kind    string // a type, "map" or "choice" (an object or a string)
	null    bool
	members []*mappedMember
	items   *mappedSchema
	visible bool
	split   bool // into an allOf
}

type mappedMember struct {
	name     string
	schema   *mappedSchema
	names    []string
	pointer  bool
	as       string // a conversion, "values" or "parameter"
	hidden   string // writeOnly or x-gatehouse-internal
	part     bool
	own      bool // an object at whose place pointers begin
	required bool
}

// TestRandomMappings compares random definitions whose members are elsewhere with the same without, for what a naive implementation maps.
func TestRandomMappings(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 11))
	loaded, passed, foreign, bodies := 0, 0, 0, 0
	for range 400 {
		g := mappingGenerator{r, new(int), r.IntN(3) == 0}
		root := g.object(0, framed)
		root.visible = false
		mapped, err := g.load(root, true, upstream.EnforceAll, true)
		if withBody := err == nil; !withBody {
			mapped, err = g.load(root, true, upstream.EnforceAll, false)
		} else if g.bodies(t, mapped, root) {
			bodies++
		}
		if err != nil {
			continue
		}
		loaded++
		without, err := g.load(root, false, upstream.EnforceAll, false)
		require.NoError(t, err)
		observed, err := g.load(root, true, upstream.EnforceTenant, false)
		require.NoError(t, err)
		for range 20 {
			sent, repeated := g.sent(root)
			ours, _ := json.Marshal(root.value(decodeNumbers(t, sent)))
			got, gotErr := g.check(t, mapped, sent)
			want, wantErr := g.check(t, without, ours)
			about := fmt.Sprintf("%s\n%s\n%s\n%v\n%v", g.text(root, true, false), sent, ours, wantErr, gotErr)
			if repeated {
				require.Error(t, gotErr, about)
				continue
			}
			require.Equal(t, wantErr == nil, gotErr == nil, about)
			if gotErr == nil {
				require.JSONEq(t, string(want), string(got), about)
				passed++
			}
			all, allErr := g.check(t, observed, sent)
			require.NotContains(t, string(all)+string(got), "secret", about)
			if foreign += map[bool]int{true: 1}[errors.Is(gotErr, upstream.ErrCrossTenantRecord)]; gotErr == nil || errors.Is(gotErr, upstream.ErrCrossTenantRecord) {
				require.Equal(t, gotErr == nil, allErr == nil, "%s %v", about, allErr)
			}
		}
	}
	t.Log(loaded, passed, foreign, bodies)
	require.Greater(t, min(loaded*10, passed, foreign*3, bodies*20), 2000)
}

type mappingGenerator struct {
	*rand.Rand
	places   *int
	prefixes bool // members may be at places that lead to others
}

func (g mappingGenerator) one(n int) bool { return g.IntN(n) == 0 }

// Where pointers begin that are in an object: at it, at one that it is a part of, or it has none.
const (
	framed = iota
	inPart
	copyPlain
)

func (g mappingGenerator) object(depth, in int) *mappedSchema {
	s := &mappedSchema{kind: "object", split: g.one(6), visible: in != inPart && g.one(6)}
	pointers := in == inPart || in == framed && g.one(2)
	for i := range 1 + g.IntN(4) {
		m := &mappedMember{name: string(rune('a'+i)) + strconv.Itoa(depth), required: g.one(4)}
		switch depth, n := depth+1, g.IntN(12); {
		case depth > 3 || n < 6:
			m.schema = &mappedSchema{kind: []string{"string", "integer", "boolean", "number"}[g.IntN(4)], null: g.one(4)}
		case n == 6:
			m.schema = &mappedSchema{kind: "array", items: g.object(depth, framed)}
		case n == 7:
			m.schema = &mappedSchema{kind: "map", items: g.object(depth, framed)}
		case n == 8 && in != inPart:
			m.schema = &mappedSchema{kind: "choice", items: g.object(depth, in)} // pointers of a hidden one begin where those of its object do
			m.schema.items.visible = false
		case n < 11 && pointers:
			m.part, m.schema = true, g.object(depth, inPart)
			m.schema.null = g.one(3)
		case g.one(2):
			m.own, m.schema = true, g.object(depth, framed)
		case in == inPart:
			m.schema = &mappedSchema{kind: "array", items: g.object(depth, framed)}
		default:
			m.schema = g.object(depth, copyPlain)
		}
		if m.hidden = []string{"writeOnly", "x-gatehouse-internal"}[g.IntN(2)]; !g.one(6) {
			m.hidden = ""
		}
		s.members = append(s.members, m)
	}
	if depth == 0 || g.one(3) {
		s.members = append(s.members, &mappedMember{name: "account", schema: &mappedSchema{kind: "string"}, hidden: []string{"", "x-gatehouse-internal"}[g.IntN(2)]})
	}
	if s.visible {
		s.members = append(s.members, &mappedMember{name: "st", schema: &mappedSchema{kind: "string"}, as: "values", names: []string{"state"}, required: true})
	}
	for i, m := range s.members {
		conversions := map[string][]string{"string": {"cents", "unix", "string", "values"}, "number": {"cents", "number"}, "integer": {"number", "parameter"}}[m.schema.kind]
		if m.schema.kind == "integer" && in == copyPlain {
			conversions = conversions[:1] // a parameter would make it a part
		}
		switch {
		case m.part || m.names != nil:
			continue
		case in == inPart || pointers && g.one(2):
			*g.places++
			m.pointer, m.names = true, []string{"p" + strconv.Itoa(g.IntN(3)), "q" + strconv.Itoa(*g.places)}[g.IntN(2):]
			if g.prefixes && m.hidden == "" && g.one(4) {
				m.names = m.names[:1]
			} else if g.one(3) && (g.prefixes || len(m.names) > 1) {
				m.names = append(m.names, "a/~b")
			}
			fallthrough
		case m.own || g.one(2):
			if m.names == nil {
				m.names = []string{"their" + strconv.Itoa(i)}
			}
			if len(conversions) > 0 && m.name != "account" && g.one(2) {
				m.as = conversions[g.IntN(len(conversions))]
			}
		}
	}
	return s
}

// text returns a definition, with or without where the members are.
func (g mappingGenerator) text(root *mappedSchema, from, body bool) string {
	operation := map[string]any{
		"parameters": []any{map[string]any{"name": "page", "in": "query", "schema": map[string]any{"type": "integer", "default": 1}}},
		"responses":  map[string]any{"200": map[string]any{"description": "", "content": map[string]any{"application/json": map[string]any{"schema": root.document(from)}}}},
	}
	if body {
		operation["requestBody"] = map[string]any{"content": map[string]any{"application/json": map[string]any{"schema": root.document(from)}}}
	}
	text, _ := json.Marshal(map[string]any{
		"openapi": "3.1.0", "info": map[string]any{"title": "x", "version": "1"}, "x-gatehouse-tenant": "account",
		"paths": map[string]any{"/a": map[string]any{"post": operation}},
	})
	return string(text)
}

func (g mappingGenerator) load(root *mappedSchema, from bool, enforce upstream.Enforcement, body bool) (*definition.Definition, error) {
	return load(g.text(root, from, body), definition.Options{Enforce: enforce})
}

func (s *mappedSchema) document(from bool) map[string]any {
	switch s.kind {
	case "array":
		return map[string]any{"type": "array", "maxItems": 9, "items": s.items.document(from)}
	case "map":
		return map[string]any{"type": "object", "additionalProperties": s.items.document(from)}
	case "choice":
		return map[string]any{"oneOf": []any{s.items.document(from), map[string]any{"type": "string"}}}
	}
	types := []string{s.kind}
	if s.null {
		types = append(types, "null")
	}
	if s.kind != "object" {
		return map[string]any{"type": types}
	}
	halves := [2]map[string]any{{}, {}}
	required := []string{}
	for i, m := range s.members {
		p := m.schema.document(from)
		if m.hidden != "" {
			p[m.hidden] = true
		}
		switch m.as {
		case "cents":
			if m.schema.kind == "string" {
				p["format"] = "decimal"
			}
		case "unix":
			p["format"] = "utc-date-time"
		}
		switch place := (&mappedMember{names: m.names, pointer: m.pointer}).place(); {
		case !from:
		case m.as == "parameter":
			p["x-gatehouse-from"] = map[string]any{"parameter": "page"}
		case m.as == "values":
			p["x-gatehouse-from"] = map[string]any{"member": place, "values": map[string]any{"O": "open", "C": "closed&\"", "7": "old"}}
		case m.as != "":
			p["x-gatehouse-from"] = map[string]any{"member": place, "as": m.as}
		case m.names != nil:
			p["x-gatehouse-from"] = place
		}
		if halves[i%2][m.name] = p; m.required {
			required = append(required, m.name)
		}
	}
	if maps.Copy(halves[0], map[string]any{}); !s.split {
		maps.Copy(halves[0], halves[1])
	}
	whole := map[string]any{"type": types, "properties": halves[0], "required": required}
	if s.visible {
		whole["x-gatehouse-visible"] = map[string]any{"st": []string{"open", "closed&\""}}
	}
	if s.split && len(halves[1]) > 0 {
		return map[string]any{"allOf": []any{whole, map[string]any{"type": types, "properties": halves[1]}}}
	}
	return whole
}

func (m *mappedMember) place() string {
	if !m.pointer {
		return strings.Join(m.names, "")
	}
	text := ""
	for _, name := range m.names {
		text += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
	}
	return text
}

// sent returns what the data service may send, and whether a name is in it twice.
func (g mappingGenerator) sent(root *mappedSchema) (text []byte, repeated bool) {
	value := g.theirs(root, false)
	return g.encode(value, &repeated), repeated
}

func (g mappingGenerator) theirs(s *mappedSchema, hidden bool) any {
	if g.one(60) && !hidden {
		return []any{nil, "x", json.Number("5"), map[string]any{}, []any{}, true}[g.IntN(6)]
	}
	switch s.kind {
	case "array":
		all := []any{}
		for range g.IntN(3) {
			all = append(all, g.theirs(s.items, hidden))
		}
		return all
	case "map":
		all := map[string]any{}
		for range g.IntN(3) {
			all["k"+strconv.Itoa(g.IntN(5))] = g.theirs(s.items, hidden)
		}
		return all
	case "choice":
		if g.one(3) {
			return "text"
		}
		return g.theirs(s.items, hidden)
	case "object":
		own := map[string]any{}
		if !hidden && g.one(8) {
			own["undocumented"] = map[string]any{"a": []any{"x"}}
		}
		g.fill(own, s, hidden)
		return own
	case "integer", "number":
		return json.Number([]string{"1", "-7", "0"}[g.IntN(3)])
	case "boolean":
		return true
	}
	return "text"
}

func (g mappingGenerator) fill(frame map[string]any, s *mappedSchema, hidden bool) {
	for _, m := range s.members {
		hidden := hidden || m.hidden != ""
		if m.part {
			g.fill(frame, m.schema, hidden)
			continue
		}
		if g.one(12) || m.as == "parameter" {
			continue
		}
		v := g.theirs(m.schema, hidden)
		switch {
		case m.name == "account":
			v = []any{"17", "17", "17", json.Number("17"), "17", "17", "17", "17", "17", "18"}[g.IntN(10)]
		case m.as == "values":
			v = []any{"O", "C", "O", json.Number("7"), "X"}[g.IntN(4+g.IntN(4)/3)]
		case m.as == "cents" || m.as == "unix" || m.as == "string" || m.as == "number":
			v = []any{json.Number("1205"), "99", json.Number("-5"), json.Number("0"), "\n"}[g.IntN(4+g.IntN(8)/7)]
		case hidden && m.schema.kind == "string":
			v = "secret"
		}
		if g.one(40) {
			v = nil
		}
		at, names := frame, m.names
		if names == nil {
			names = []string{m.name}
		}
		for _, name := range names[:len(names)-1] {
			next, ok := at[name].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[name] = next
			}
			at = next
		}
		at[names[len(names)-1]] = v
	}
}

// encode returns JSON with members in any order, escapes and white space.
func (g mappingGenerator) encode(v any, repeated *bool) []byte {
	switch v := v.(type) {
	case map[string]any:
		names := slices.Sorted(maps.Keys(v))
		g.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		if len(names) > 0 && g.one(150) {
			names, *repeated = append(names, names[0]), true
		}
		text := []byte("{")
		for i, name := range names {
			if i > 0 {
				text = append(text, []string{",", " , "}[g.IntN(2)]...)
			}
			quoted := strconv.Quote(name)
			if g.one(10) {
				quoted = fmt.Sprintf(`"\u%04x%s"`, name[0], name[1:])
			}
			text = append(append(append(text, quoted...), ':'), g.encode(v[name], repeated)...)
		}
		return append(text, '}')
	case []any:
		text := []byte("[")
		for i, item := range v {
			if i > 0 {
				text = append(text, ',')
			}
			text = append(text, g.encode(item, repeated)...)
		}
		return append(text, ']')
	}
	text, _ := json.Marshal(v)
	return text
}

func decodeNumbers(t *testing.T, text []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	require.NoError(t, d.Decode(&v), string(text))
	return v
}

// value maps what the data service sends.
func (s *mappedSchema) value(v any) any {
	switch of := v.(type) {
	case map[string]any:
		switch s.kind {
		case "choice":
			return s.items.value(v)
		case "object":
			return s.published(of, of)
		case "map":
			all := map[string]any{}
			for name, item := range of {
				all[name] = s.items.value(item)
			}
			return all
		}
	case []any:
		if s.kind == "array" {
			all := []any{}
			for _, item := range of {
				all = append(all, s.items.value(item))
			}
			return all
		}
	}
	return v
}

func (s *mappedSchema) published(frame, own map[string]any) map[string]any {
	all := map[string]any{}
	for _, m := range s.members {
		switch {
		case m.hidden == "writeOnly" && m.name != "account":
			if _, ok := memberAt(any(frame), m.names); ok && m.pointer && !m.part && own == nil {
				all["-"] = true // the object is there
			}
			continue
		case m.part:
			if part := m.schema.published(frame, nil); len(part) > 0 {
				delete(part, "-")
				all[m.name] = part
			}
			continue
		case m.as == "parameter":
			all[m.name] = json.Number("1")
			continue
		}
		names := m.names
		if names == nil {
			names = []string{m.name}
		}
		if v, ok := memberAt(any(frame), names); ok {
			all[m.name] = m.schema.value(m.converted(v))
		}
	}
	return all
}

func (m *mappedMember) converted(v any) any {
	text, isText := v.(string)
	number, isNumber := v.(json.Number)
	if text += string(number); v == nil || m.as == "" {
		return v
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch invalid := []any{map[string]any{"a": 1}}; { // where a text or a number must be
	case !isText && !isNumber, err != nil && m.as != "string" && m.as != "values":
		return invalid
	case m.as == "values":
		if ours, ok := map[string]string{"O": "open", "C": "closed&\"", "7": "old"}[text]; ok {
			return ours
		}
		return invalid
	case m.as == "string":
		return text
	case m.as == "number":
		return json.Number(text)
	case m.as == "unix":
		return time.Unix(n, 0).UTC().Format(time.RFC3339)
	}
	cents := fmt.Sprintf("%d.%02d", n/100, n%100)
	if n < 0 {
		cents = fmt.Sprintf("-%d.%02d", -n/100, -n%100)
	}
	if m.schema.kind == "number" {
		return json.Number(cents)
	}
	return cents
}

func (g mappingGenerator) check(t *testing.T, d *definition.Definition, body []byte) ([]byte, error) {
	t.Helper()
	op, q := operationOf(t, d, http.MethodPost, "/a")
	var out bytes.Buffer
	_, err := new(upstream.Contract).Check(&out, op, &op.Responses[0], q, "17", body)
	return out.Bytes(), err
}

// bodies checks that a body reaches the data service so that the same is read from it again, and that the service's names are refused.
func (g mappingGenerator) bodies(t *testing.T, d *definition.Definition, root *mappedSchema) bool {
	t.Helper()
	op, _ := operationOf(t, d, http.MethodPost, "/a")
	sent := func(v any) (any, error) {
		text, _ := json.Marshal(v)
		var out bytes.Buffer
		if _, err := new(upstream.Contract).CheckBody(&out, op, http.Header{"Content-Type": {"application/json"}}, "17", text); err != nil {
			return nil, err
		}
		return decodeNumbers(t, out.Bytes()), nil
	}
	body := root.ours()
	theirs, err := sent(body)
	if err != nil {
		return false
	}
	if g.prefixes || strings.Contains(g.text(root, true, false), `"parameter"`) {
		return false
	}
	text, _ := json.Marshal(theirs)
	if back, err := g.check(t, d, text); err == nil {
		want, _ := json.Marshal(body)
		require.JSONEq(t, string(want), string(back), "%s\n%s", g.text(root, true, true), text)
	}
	for _, m := range root.members {
		for _, name := range m.names {
			if !slices.ContainsFunc(root.members, func(o *mappedMember) bool { return o.name == name }) {
				wrong := maps.Clone(body.(map[string]any))
				wrong[name] = "x"
				_, err := sent(wrong)
				require.Error(t, err)
			}
		}
	}
	return true
}

// ours returns a valid body.
func (s *mappedSchema) ours() any {
	switch s.kind {
	case "array":
		return []any{s.items.ours()}
	case "map":
		return map[string]any{"k": s.items.ours()}
	case "choice":
		return s.items.ours()
	case "object":
		all := map[string]any{}
		for _, m := range s.members {
			value, ok := map[string]any{"cents": "12.05", "unix": "2023-11-14T22:13:20Z", "string": "7", "values": "open", "number": json.Number("5")}[m.as]
			switch {
			case m.hidden != "":
				continue
			case m.as == "cents" && m.schema.kind == "number":
				value = json.Number("12.05")
			case m.name == "account":
				value = "17"
			case !ok:
				value = m.schema.ours()
			}
			if part, isObject := value.(map[string]any); !m.part || isObject && len(part) > 0 {
				all[m.name] = value
			}
		}
		return all
	case "integer", "number":
		return json.Number("3")
	case "boolean":
		return false
	}
	return "text"
}
