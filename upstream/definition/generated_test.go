package definition_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/upstream"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// This file makes definitions, answers of data services and bodies of requests from a seed. naive_test.go says what must become of them.

// tenantID is the authenticated business, and maxItems the bound of lists without one of their own.
const (
	tenantID = "7001"
	maxItems = 6
)

// Markers of what must never leave. Only texts without other rules are marked.
const (
	markText, markForeign, markHidden, markInternal, markUndeclared = "text-", "FOREIGN-", "HIDDEN-", "INTERNAL-", "UNDECLARED-"
)

// Two sets of names: schemas that hold at once have different ones, because their types would contradict each other.
var (
	someNames  = []string{"name", "note", "total", "Item", "a/b", `q"q`}
	otherNames = []string{"state", "size", "tags", "m~n", "straße", "id2"}

	patterns = []string{"^[a-z]{2,5}$", "^A", "[0-9]+", "^(open|paid)$", "^.{0,3}$"}

	texts = []string{
		"", "a", "ab", "abc", "open", "paid", "Apple", "A", "Zürich", "日本語", "x y", "line\nbreak", `"quoted\"`, "</script>", "12", "\x7f\u2028", "\U0001F600",
		strings.Repeat("long", 20), "2026-13-01", "2026-03-05T14:30:00", "25:00", "1.", "not@", "://", "0190f3a2",
	}
	texts30 = []string{"", "a", "ab", "abc", "open", "paid", "Apple", "A", "Zürich", "日本語", "x y", "12", "2026-13-01", "noon"}

	formatted = map[string][]string{
		"uuid": {"0190f3a2-7c4b-7d11-9e55-00000000000A"}, "date": {"2026-03-05", "2024-02-29"}, "date-time": {"2026-03-05T14:30:00+02:00", "2026-03-05T14:30:00.5Z"},
		"time": {"14:30:00Z", "23:59:59.25-01:30"}, "email": {"a@b.example"}, "uri": {"https://example.com/a?b", "urn:x"},
		"utc-date-time": {"2026-03-05T14:30:00Z", "2025-01-01T00:00:00.125+00:00", "2026-03-05T14:30:00.000001Z"}, "time-of-day": {"09:05"}, "decimal": {"-12.50", "3"},
	}

	numbers = []string{
		"0", "-0", "1.0", "1E+05", "1", "2", "3", "4", "5", "6", "7", "9", "10", "12", "-1", "-7", "1.5", "4.0", "4.5", "-2.5", "1e2", "4E+0", "0.1", "2147483647", "2147483648", "-2147483648",
		"-2147483649", "900000000000000001", "900000000000000002", "999999999999999999", "1000000000000000000", "1e400", "-1e400", "0.1000000000000000000001",
	}
	// immoderate are numbers that a response may have, and some that a request only just may.
	immoderate = []string{
		"1e308", "-1e308", "1.1e308", "9e307", "1e309", "1e99999", "1e-308", "1e-400", "0e400", "0e99999", "-0.0", "1e0005", "0.1e308", "0.1e309", "100e306", "100e307", "1e+2",
		strings.Repeat("1", 64), strings.Repeat("1", 65), "0." + strings.Repeat("0", 62), "0." + strings.Repeat("0", 63), "123456789012345678", "-123456789012345678", "1234567890123456789",
	}

	numbers30 = []string{"0", "1", "2", "3", "4", "5", "6", "7", "9", "10", "12", "-1", "-7", "1.5", "4.5", "-2.5", "2147483647", "2147483648"}
)

// maker makes documents.
type maker struct {
	*rand.Rand
	old        bool   // OpenAPI 3.0, and only what kin-openapi supports too
	components object // the schemas
	maps, free bool   // somewhere, an object may have any names, or any JSON
	inside     int    // alternatives of choices
	direct     bool   // the next object is an alternative, or has its name in several: they have the same visibility
	unique     int

	request bool // bodies of requests are made
	greedy  bool // with members that callers may not set
}

func (m *maker) chance(percent int) bool { return m.IntN(100) < percent }

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func reference(name string) object { return object{"$ref": "#/components/schemas/" + name} }

// schema makes a schema. tried is how many alternatives are tried around it.
func (m *maker) schema(depth, tried int, names []string) object {
	switch n := m.IntN(100); {
	case depth <= 0 || n < 45:
		return m.scalar()
	case n < 60:
		return m.object(depth-1, tried, names, m.owned(20))
	case n < 72:
		return m.array(m.schema(depth-1, tried, names))
	case n < 77:
		return m.freeOrMap(depth, tried)
	case n < 86:
		return m.allOf(depth, tried)
	case n < 95:
		return m.choice(depth, tried)
	case tried > 1 || m.components["Node"] == nil: // a choice that is tried may not contain itself, and nothing has no end
		return reference("Money")
	default:
		return reference(pick(m.Rand, "Node", "Money"))
	}
}

func (m *maker) owned(percent int) bool { return !m.old && m.chance(percent) }

// nullable lets a schema be null, in one of the ways to say so.
func (m *maker) nullable(s object) object {
	t, single := s["type"].(string)
	switch {
	case !m.chance(25):
	case single && !m.old && m.chance(70):
		s["type"] = []string{t, "null"}
	case single || !m.old && s["$ref"] == nil:
		s["nullable"] = true
	case !m.old:
		return object{pick(m.Rand, "oneOf", "anyOf"): []any{s, object{"type": "null"}}}
	}
	return s
}

// oneSided makes some schemas readOnly or writeOnly, in one of the ways to say so.
func (m *maker) oneSided(s object) object {
	if !m.chance(12) {
		return s
	}
	side := pick(m.Rand, "readOnly", "readOnly", "writeOnly")
	component := func(s object) object {
		m.unique++
		name := "Sided" + strconv.Itoa(m.unique)
		m.components[name] = s
		return reference(name)
	}
	flagged := func(s object) object { return with(s, side, true) }
	switch n := m.IntN(9); {
	case n < 3 && s["$ref"] == nil, m.old && s["$ref"] == nil:
		return flagged(s)
	case m.old:
		return s
	case n < 4:
		return flagged(component(s))
	case n < 5:
		return component(flagged(s))
	case n < 6:
		return object{"allOf": []any{s, object{side: true}}}
	case n < 7:
		return object{"allOf": []any{flagged(component(s))}}
	case n < 8:
		return object{pick(m.Rand, "oneOf", "anyOf"): []any{flagged(component(object{"type": pick[any](m.Rand, "string", []string{"string", "null"})})), object{"type": pick(m.Rand, "null", "boolean")}}}
	default:
		return object{"type": "array", "items": component(flagged(s))}
	}
}

func with(s object, keyword string, value any) object {
	s = maps.Clone(s)
	s[keyword] = value
	return s
}

func (m *maker) scalar() object {
	s := object{}
	switch m.IntN(10) {
	case 0, 1, 2:
		return object{"type": "string"}
	case 3:
		s["type"] = "string"
		if s["format"] = pick(m.Rand, slices.Sorted(maps.Keys(formatted))...); m.old { // kin-openapi checks no others on its own
			s["format"] = pick(m.Rand, "date", "date-time")
		}
	case 4:
		if s["type"] = "string"; m.chance(50) {
			s["minLength"] = m.IntN(3)
		}
		if m.chance(50) {
			s["maxLength"] = 3 + m.IntN(4)
		}
		if m.chance(50) {
			s["pattern"] = pick(m.Rand, patterns...)
		}
	case 5:
		s["enum"] = pick[any](m.Rand, []string{"open", "paid", "Apple"}, []string{"open", "ab"}, []any{1, 4, 10}, []any{1.5, 4})
		if _, text := s["enum"].([]string); text {
			s["type"] = "string"
		} else {
			s["type"] = "number"
		}
		if m.chance(20) && !m.old { // kin-openapi has const only in 3.1
			return object{"const": pick[any](m.Rand, "open", 4, true)}
		}
		if m.chance(20) {
			delete(s, "enum")
			s["x-extensible-enum"] = []string{"open", "paid"}
		}
	case 6, 7:
		return m.number(pick(m.Rand, "integer", "number"))
	case 8:
		s["type"] = "boolean"
	case 9:
		if s["type"] = "string"; !m.old {
			s["type"] = pick(m.Rand, []string{"string", "integer"}, []string{"boolean", "number"}, []string{"integer", "null"}, []string{"null"})
		}
	}
	return s
}

// number makes bounds that leave 4.
func (m *maker) number(kind string) object {
	s := object{"type": kind}
	for _, bound := range []struct {
		name, exclusive string
		value           float64
	}{{"minimum", "exclusiveMinimum", pick(m.Rand, -2.5, 0, 1, 3)}, {"maximum", "exclusiveMaximum", pick(m.Rand, 4.5, 5, 7, 10)}} {
		switch {
		case m.chance(40):
		case m.chance(60):
			s[bound.name] = bound.value
		case m.old:
			s[bound.name], s[bound.exclusive] = bound.value, true
		default:
			s[bound.exclusive] = bound.value
		}
	}
	if kind == "integer" && m.chance(20) {
		s["format"] = "int32"
	}
	if m.old {
		delete(s, "format") // kin-openapi's int32 is the same, but its message needs an int64
	}
	return s
}

func (m *maker) array(items object) object {
	s := object{"type": "array", "items": items}
	if m.chance(20) {
		s["minItems"] = m.IntN(3)
	}
	if m.chance(30) {
		s["maxItems"] = 2 + m.IntN(3)
	}
	kind, _ := items["type"].(string)
	if m.chance(25) && (!m.old || !slices.Contains([]string{"", "object", "array"}, kind)) { // here, undeclared members do not count
		s["uniqueItems"] = true
	}
	return s
}

// object makes an object with members of its own, which is a record if it is owned.
func (m *maker) object(depth, tried int, names []string, owned bool) object {
	properties, required, direct := object{}, []string{}, m.direct
	m.direct = false
	for range 1 + m.IntN(4) {
		name, s := pick(m.Rand, names...), m.oneSided(m.nullable(m.schema(depth, tried, names)))
		if t := s["type"]; m.inside > 0 && (t == nil || t == "object" || t == "array" || s["items"] != nil || s["properties"] != nil) {
			m.unique++ // no other alternative has it
			name += strconv.Itoa(m.unique)
		}
		if properties[name] = s; m.chance(50) {
			required = append(required, name)
		}
	}
	s := object{"type": "object", "properties": properties}
	if owned {
		properties["business_id"] = pick(m.Rand, object{"type": "string"}, object{"type": []string{"string", "integer"}}, object{"type": []string{"string", "null"}},
			object{"type": []string{"string", "integer"}, "x-gatehouse-internal": true}, object{"type": "string", "readOnly": true})
		if m.chance(60) {
			required = append(required, "business_id")
		}
	}
	if m.owned(15) {
		properties["secret"] = object{"type": "string", "x-gatehouse-internal": true}
		if m.chance(30) {
			required = append(required, "secret")
		}
	}
	if m.owned(10) {
		properties["token"] = object{"type": "string", "writeOnly": true}
	}
	s["required"] = required
	if !direct && m.owned(10) {
		m.visible(s, m.values())
	}
	if m.chance(15) {
		s["minProperties"] = m.IntN(3)
	}
	if m.chance(15) {
		s["maxProperties"] = 4 + m.IntN(6)
	}
	if m.owned(15) { // kin-openapi refuses what is removed
		s["additionalProperties"] = false
	}
	slices.Sort(s["required"].([]string))
	s["required"] = slices.Compact(s["required"].([]string))
	return s
}

// values makes the values with which an object may be seen.
func (m *maker) values() []string {
	return pick(m.Rand, []string{"shown"}, []string{"shown", "public"})
}

func (m *maker) visible(s object, values []string) {
	s["properties"].(object)["visibility"] = object{"type": "string"}
	if m.chance(40) {
		s["properties"].(object)["visibility"] = object{"type": "string", "x-gatehouse-internal": true}
	}
	s["x-gatehouse-visible"] = object{"visibility": values}
	s["required"] = append(s["required"].([]string), "visibility")
}

// share gives alternatives a member of the same name, with objects of which some are removed if they may not be seen, and others have no visibility.
func (m *maker) share(alternatives []any, tried int) {
	owned, values, within := m.owned(40), m.values(), m.IntN(4)
	for _, alternative := range alternatives {
		m.direct = true
		s := m.object(0, tried, someNames, owned)
		if m.chance(60) {
			m.visible(s, values)
		}
		switch within {
		case 0, 1:
			s = m.array(s)
		case 2:
			s = object{"type": "object", "properties": object{"in": s}, "required": []string{"in"}[m.IntN(2):]}
		}
		of := alternative.(object)
		if of["properties"].(object)["shared"] = s; m.chance(60) {
			of["required"] = append(of["required"].([]string), "shared")
		}
	}
}

func (m *maker) freeOrMap(depth, tried int) object {
	m.maps = true
	if m.chance(30) {
		m.free = true
		if m.old { // kin-openapi finds that {} does not allow null
			return object{"type": "object", "additionalProperties": true}
		}
		return object{"type": "object", "additionalProperties": pick[any](m.Rand, true, object{})}
	}
	s := object{"type": "object"}
	if m.chance(50) {
		s = m.object(0, tried, someNames, false)
	}
	s["additionalProperties"] = m.oneSided(m.nullable(m.schema(depth-1, tried, otherNames)))
	return s
}

// allOf makes two schemas that hold at once, often with a member that both have.
func (m *maker) allOf(depth, tried int) object {
	a, b := m.object(depth-1, tried, someNames, m.owned(15)), m.object(depth-1, tried, otherNames, m.owned(15))
	if m.chance(60) {
		m.unique++
		name := "both" + strconv.Itoa(m.unique)
		one, other := m.number("number"), m.number("integer")
		switch m.IntN(3) {
		case 0:
			one, other = m.object(depth-1, tried, someNames, m.owned(40)), m.object(depth-1, tried, otherNames, m.owned(40))
		case 1:
			one, other = m.array(m.object(0, tried, someNames, m.owned(40))), m.array(m.object(0, tried, otherNames, m.owned(40)))
			if m.old {
				delete(one, "uniqueItems")
				delete(other, "uniqueItems")
			}
		}
		if m.chance(20) {
			one = with(one, pick(m.Rand, "readOnly", "writeOnly"), true)
		}
		a["properties"].(object)[name], b["properties"].(object)[name] = one, other
	}
	if tried == 1 && m.chance(15) { // two choices at once
		m.inside++
		either := func(names ...string) (both []any) {
			for range 2 {
				m.direct = true
				both = append(both, m.object(0, 4, names, false))
			}
			return both
		}
		a["anyOf"], b["anyOf"] = either("p", "q"), either("r", "s")
		m.inside--
	}
	if m.owned(15) { // a's members are further members for b
		b["additionalProperties"] = object{"type": "string"}
		delete(a, "additionalProperties")
		delete(a, "anyOf")
		delete(b, "anyOf")
		for name := range a["properties"].(object) {
			if slices.Contains(someNames, name) || m.inside > 0 && !slices.Contains([]string{"business_id", "secret", "token", "visibility"}, name) && b["properties"].(object)[name] == nil {
				a["properties"].(object)[name] = object{"type": "string"}
			}
		}
		m.maps = true
	}
	if m.chance(40) {
		m.unique++
		name := "Part" + strconv.Itoa(m.unique)
		m.components[name] = a
		a = reference(name)
		if !m.old && m.chance(50) { // 3.1: what stands beside a reference holds
			maps.Copy(b, a)
			return b
		}
	}
	return object{"allOf": []any{a, b}}
}

// choice makes one of several, which a discriminator, a constant, the type or nothing decides.
func (m *maker) choice(depth, tried int) object {
	m.inside++
	defer func() { m.inside-- }()
	n, keyword := 2+m.IntN(2), pick(m.Rand, "oneOf", "anyOf")
	s, owned := object{}, m.owned(20)
	var alternatives []any
	decision, seen, values := m.IntN(4), m.owned(15), m.values()
	if tried*n > 8 {
		decision = m.IntN(3)
	}
	for i := range n {
		m.direct = true
		if decision == 3 {
			keyword = "anyOf" // for kin-openapi, several of oneOf may not fit
			alternatives = append(alternatives, m.object(depth-1, tried*n, someNames, owned))
			if seen {
				m.visible(alternatives[i].(object), values)
			}
			continue
		}
		if decision == 2 {
			m.direct = false
			break
		}
		alternative, kind := m.object(depth-1, tried, someNames, owned), object{"type": "string", "enum": []string{fmt.Sprintf("k%d", i)}}
		if decision == 0 && m.chance(50) {
			kind = object{"type": "string"}
		}
		alternative["properties"].(object)["kind"] = kind
		alternative["required"] = append(alternative["required"].([]string), "kind")
		if seen {
			m.visible(alternative, values)
		}
		if decision == 0 {
			m.unique++
			name := fmt.Sprintf("Alternative%d", m.unique)
			m.components[name] = alternative
			alternative = reference(name)
			if s["discriminator"] == nil {
				s["discriminator"] = object{"propertyName": "kind", "mapping": object{}}
			}
			s["discriminator"].(object)["mapping"].(object)[fmt.Sprintf("k%d", i)] = pick(m.Rand, alternative["$ref"].(string), name)
		}
		alternatives = append(alternatives, alternative)
	}
	switch {
	case decision == 2:
		all := []any{object{"type": "string"}, m.number("number"), object{"type": "boolean"}, m.array(m.schema(depth-1, tried, someNames)), m.object(depth-1, tried, someNames, owned)}
		if !m.old {
			all = append(all, object{"type": "null"})
		}
		m.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		alternatives = all[:n]
	case decision == 3 && m.chance(30):
		alternatives = []any{m.scalar(), m.scalar()}
	case decision == 3 && m.owned(70):
		m.share(alternatives, tried*n)
	case m.chance(40):
		siblings := m.object(0, tried, otherNames, m.owned(20))
		maps.Copy(s, siblings)
	}
	s[keyword] = alternatives
	return s
}

// reply is a response that a document describes, or the body of a request if it has a method.
type reply struct {
	method, media string

	path, target string
	status       int
	in           string
	order        []string
	list, is     bool
	atMost       bool
	schema       object

	op  *upstream.Operation
	res *upstream.DocumentedResponse
	q   upstream.Query
}

const perPage = 4

// document makes a document, and says which answers and bodies it has.
func (m *maker) document() (object, []*reply, []*reply) {
	m.components = object{}
	m.components["Money"] = object{"type": "object", "required": []string{"amount"}, "properties": object{"amount": object{"type": "string", "format": "decimal"}, "currency": object{"type": "string"}}}
	if m.old {
		m.components["Money"] = object{"type": "object", "required": []string{"amount"}, "properties": object{"amount": object{"type": "number"}, "currency": object{"type": "string"}}}
	}
	node := m.object(1, 1, someNames, m.owned(40))
	properties := node["properties"].(object)
	properties["next"], properties["children"] = reference("Node"), m.array(reference("Node"))
	if !m.old {
		properties["next"] = pick(m.Rand, reference("Node"), object{"oneOf": []any{reference("Node"), object{"type": "null"}}}, object{"$ref": "#/components/schemas/Node", "x-gatehouse-internal": true})
	}
	delete(properties["children"].(object), "minItems") // without an end
	m.components["Node"] = node
	doc := object{"openapi": pick(m.Rand, "3.1.0", "3.1.1"), "info": object{"title": "x", "version": "1"}, "x-gatehouse-tenant": "business_id"}
	if m.old {
		doc["openapi"], doc["x-gatehouse-tenant"] = "3.0.3", "none"
	}
	var answers []*reply
	paths := object{}
	add := func(a *reply, schema object, records object) {
		a.schema, a.path = schema, strings.ReplaceAll(strings.Split(a.target, "?")[0], "/ID", "/{id}")
		parameters := []any{object{"name": "per_page", "in": "query", "schema": object{"type": "integer", "minimum": 1, "maximum": 9, "default": 3}}}
		if strings.Contains(a.path, "{") {
			parameters = append(parameters, object{"name": "id", "in": "path", "required": true, "schema": object{"type": "string"}})
		}
		operation, _ := paths[a.path].(object)
		if operation == nil {
			operation = object{"get": object{"parameters": parameters, "responses": object{}}}
			paths[a.path] = operation
		}
		response := object{"description": "", "content": object{"application/json": object{"schema": schema}}}
		if records != nil {
			response["x-gatehouse-records"] = records
		}
		operation["get"].(object)["responses"].(object)[strconv.Itoa(a.status)] = response
		answers = append(answers, a)
	}
	if m.old {
		add(&reply{target: "/misc", status: 200}, m.object(3, 1, someNames, false), nil)
	} else {
		m.records(add)
		misc := m.object(3, 1, someNames, m.chance(50))
		misc["properties"].(object)["own"] = m.object(2, 1, otherNames, true)
		add(&reply{target: "/misc", status: 200}, pick(m.Rand, misc, m.array(misc), object{"oneOf": []any{misc, object{"type": "string"}}}), nil)
	}
	bodies := []*reply{{method: http.MethodPost, media: "application/json"}, {method: http.MethodPut, media: "application/json"}, {method: http.MethodPatch, media: "application/merge-patch+json"}}
	writes := object{}
	for _, b := range bodies {
		if b.path, b.target = "/writes", "/writes"; m.old {
			b.schema = m.object(3, 1, someNames, false)
		} else {
			b.schema = pick(m.Rand, m.object(3, 1, someNames, true), m.object(3, 1, someNames, true), reference("Thing"), reference("Node"), m.allOf(3, 1), m.choice(3, 1), m.freeOrMap(3, 1), m.array(m.object(2, 1, someNames, true)))
		}
		writes[strings.ToLower(b.method)] = object{
			"requestBody": object{"required": true, "content": object{b.media: object{"schema": b.schema}}}, "responses": object{"204": object{"description": ""}},
		}
	}
	paths["/writes"] = writes
	doc["components"], doc["paths"] = object{"schemas": m.components}, paths
	return doc, answers, bodies
}

// records adds a list of records, one record, and an answer that is an error.
func (m *maker) records(add func(a *reply, schema object, records object)) {
	record := m.object(3, 1, someNames, true)
	record["properties"].(object)["id"] = object{"type": "string"}
	record["required"] = append(record["required"].([]string), "id")
	list := &reply{target: "/things?per_page=" + strconv.Itoa(perPage), status: 200, list: true, atMost: m.chance(60)}
	for _, name := range []string{"at", "updated"}[:m.IntN(3)] {
		record["properties"].(object)[name] = m.nullable(object{"type": "string", "format": "utc-date-time"})
		list.order = append(list.order, name)
	}
	if m.chance(50) && record["x-gatehouse-visible"] == nil {
		m.visible(record, m.values())
	}
	m.components["Thing"] = record
	wrap := func(a *reply, s object) object {
		if m.chance(30) {
			return s
		}
		a.in = pick(m.Rand, "things", "a thing")
		body := m.object(1, 1, someNames, m.chance(10))
		body["properties"].(object)[a.in] = s
		if m.chance(70) {
			body["required"] = append(body["required"].([]string), a.in)
		}
		return body
	}
	things := m.array(reference("Thing"))
	schema, at := wrap(list, things), object{}
	if list.atMost {
		at["at_most"] = "per_page"
	}
	if list.order != nil {
		at["order"] = list.order
	}
	if list.in != "" {
		at["in"] = list.in
		m.nullable(things)
	}
	add(list, schema, at)
	one, at := &reply{target: "/things/ID", status: 200, is: m.chance(50)}, object{}
	schema = wrap(one, reference("Thing"))
	if one.in != "" {
		at["in"] = one.in
	}
	if one.is {
		at["is"] = object{"id": "id"}
	}
	add(one, schema, at)
	add(&reply{target: "/things/ID", status: 404}, m.object(2, 1, someNames, m.chance(40)), nil)
}

// compiledFrom compiles the document and finds the answers in it.
func compiledFrom(doc object, answers []*reply, most int) (text []byte, err error) {
	if text, err = json.Marshal(doc); err != nil {
		return nil, err
	}
	d, err := definition.Load(definition.File{Name: "generated.json", Text: text}, definition.Options{MaxItems: most})
	if err != nil {
		return text, err
	}
	for _, a := range answers {
		m, _ := d.API.Match(a.target)
		if a.op = m.Path.Operation(cmp.Or(a.method, http.MethodGet)); a.method != "" {
			continue
		}
		if a.q, err = a.op.CleanQuery(m); err != nil {
			return text, err
		}
		if a.res, err = a.op.CheckHeader(a.status, http.Header{"Content-Type": {"application/json"}}, false); err != nil {
			return text, err
		}
	}
	return text, nil
}

// wire is an object as it is sent: its members have an order, and a name can stand twice.
type wire struct {
	members        []member
	owned, visible bool // the schema declares a tenant or a visibility
}

type member struct {
	name  string
	value any    // *wire, *[]any, string, json.Number, bool, raw or nil
	as    string // how the name is written; empty: as usual
}

// raw is JSON.
type raw string

func (w *wire) find(name string) *member {
	for i := range w.members {
		if w.members[i].name == name {
			return &w.members[i]
		}
	}
	return nil
}

// sample makes a value that is valid where the texts and numbers at hand allow it.
func (m *maker) sample(d *naive, schemas []object, depth int) any {
	if !slices.ContainsFunc(schemas, func(s object) bool { return !d.null(s) }) && m.chance(15) {
		return nil
	}
	parts := d.parts(schemas)
	if i := slices.IndexFunc(parts, isChoice); i >= 0 {
		all, choice := d.alternatives(parts, i)
		all = slices.DeleteFunc(all, func(schemas []object) bool { return schemas[i+1]["type"] == "null" })
		if len(all) == 0 {
			return nil
		}
		n := m.IntN(len(all))
		value := m.sample(d, all[n], depth)
		if w, ok := value.(*wire); ok && choice["discriminator"] != nil && w.find("kind") != nil {
			w.find("kind").value = fmt.Sprintf("k%d", n)
		}
		return value
	}
	kinds := slices.DeleteFunc([]any{"", json.Number("4"), true, []any(nil), object(nil)}, func(v any) bool {
		return slices.ContainsFunc(parts, func(s object) bool { return !typed(s, v, true) })
	})
	if len(kinds) == 0 || len(parts) == 0 {
		return m.anything(2)
	}
	fits := func(v any) bool { return !d.judge(parts, v, false).invalid }
	switch kind := pick(m.Rand, kinds...).(type) {
	case string:
		if text := fmt.Sprintf("%s%d", markText, m.IntN(100)); fits(text) {
			return text
		}
		for _, list := range [][]string{m.possible(parts), formatted[format(parts)], texts} {
			if list = slices.DeleteFunc(slices.Clone(list), func(s string) bool { return !fits(s) }); len(list) > 0 {
				return pick(m.Rand, list...)
			}
		}
		return "abc"
	case json.Number:
		for range 30 {
			if n := json.Number(pick(m.Rand, m.numbers()...)); fits(n) {
				return n
			}
		}
		return kind
	case []any:
		least, most, items := 0, 3, []object(nil)
		for _, s := range parts {
			if n, ok := s["minItems"]; ok {
				least = max(least, integer(n))
			}
			if n, ok := s["maxItems"]; ok {
				most = min(most, integer(n))
			}
			if of, ok := s["items"].(object); ok {
				items = append(items, of)
			}
		}
		if depth <= 0 {
			most = least
		}
		list := make([]any, 0, 3)
		for n := least + m.IntN(max(most-least, 0)+1); len(list) < n; {
			list = append(list, m.sample(d, items, depth-1))
		}
		return &list
	case object:
		return m.sampleObject(d, parts, depth)
	}
	return m.chance(50)
}

func (m *maker) numbers() []string {
	if m.old {
		return numbers30
	}
	return numbers
}

func (m *maker) possible(parts []object) (list []string) {
	for _, s := range parts {
		for _, value := range possible(s) {
			if text, ok := value.(string); ok {
				list = append(list, text)
			}
		}
	}
	return list
}

func format(parts []object) string {
	for _, s := range parts {
		if name := fmtName(s["format"]); name != "" {
			return name
		}
	}
	return ""
}

func (m *maker) sampleObject(d *naive, parts []object, depth int) *wire {
	w, names := &wire{}, map[string]bool{}
	needed := isRequired(parts)
	for _, s := range parts {
		properties, _ := s["properties"].(object)
		for name := range properties {
			names[name] = true
		}
		w.visible = w.visible || s["x-gatehouse-visible"] != nil
	}
	w.owned = names["business_id"]
	for _, name := range slices.Sorted(maps.Keys(names)) {
		schemas := d.properties(parts, name)
		var value any
		switch {
		case d.request && !m.greedy && d.refuses(schemas):
			continue
		case name == "business_id":
			value = pick[any](m.Rand, tenantID, tenantID, json.Number(tenantID))
		case name == "visibility":
			value = "shown"
		case name == "secret" || name == "token":
			value = fmt.Sprintf("%s%d", markInternal, m.IntN(100))
		case !needed[name] && m.chance(map[bool]int{true: 95, false: 35}[depth <= 0]):
			continue
		case flagged(schemas, "x-gatehouse-internal") && depth <= 0:
			continue
		default:
			value = m.sample(d, schemas, depth-1)
		}
		w.members = append(w.members, member{name: name, value: value})
	}
	if further, keep := d.additional(parts); keep {
		for i := range m.IntN(3) {
			w.members = append(w.members, member{name: fmt.Sprintf("%s %d", pick(m.Rand, "free", "größe", ""), i), value: m.sample(d, further, depth-1)})
		}
	}
	m.Shuffle(len(w.members), func(i, j int) { w.members[i], w.members[j] = w.members[j], w.members[i] })
	return w
}

// anything makes any JSON.
func (m *maker) anything(depth int) any {
	switch n := m.IntN(8); {
	case n == 0 && depth > 0:
		return &[]any{m.anything(depth - 1), m.anything(depth - 1)}
	case n == 1 && depth > 0:
		return &wire{members: []member{{name: "name", value: m.anything(depth - 1)}, {name: "x", value: m.anything(depth - 1)}}}
	case n == 2:
		return nil
	case n == 3:
		return m.chance(50)
	case n < 6:
		return json.Number(pick(m.Rand, m.numbers()...))
	case m.old:
		return pick(m.Rand, texts30...)
	default:
		return pick(m.Rand, append(formatted[pick(m.Rand, slices.Sorted(maps.Keys(formatted))...)], texts...)...)
	}
}

// places are all values of an answer, and how each is set.
type locatedNode struct {
	value any
	set   func(any)
}

func places(value any, set func(any), all []locatedNode) []locatedNode {
	all = append(all, locatedNode{value, set})
	switch v := value.(type) {
	case *wire:
		for i := range v.members {
			all = places(v.members[i].value, func(to any) { v.members[i].value = to }, all)
		}
	case *[]any:
		for i := range *v {
			all = places((*v)[i], func(to any) { (*v)[i] = to }, all)
		}
	}
	return all
}

// clone returns a copy that is not known to be a record.
func clone(value any) any {
	switch v := value.(type) {
	case *wire:
		c := &wire{}
		for _, own := range v.members {
			c.members = append(c.members, member{own.name, clone(own.value), own.as})
		}
		return c
	case *[]any:
		c := make([]any, len(*v))
		for i := range c {
			c[i] = clone((*v)[i])
		}
		return &c
	}
	return value
}

// mark replaces the texts of a record without rules.
func mark(value any, with string) {
	for _, p := range places(value, func(any) {}, nil) {
		if text, ok := p.value.(string); ok && strings.HasPrefix(text, markText) {
			p.set(with + text)
		}
	}
}

// mutate changes a value somewhere. The last time, it may mark a record: nothing of it is copied then.
func (m *maker) mutate(value any, set func(any), last bool) {
	all := places(value, set, nil)
	one := all[m.IntN(len(all))]
	var objects []*wire
	for _, p := range all {
		if w, ok := p.value.(*wire); ok && len(w.members) > 0 {
			objects = append(objects, w)
		}
	}
	if len(objects) == 0 {
		one.set(m.anything(1))
		return
	}
	w, other := objects[m.IntN(len(objects))], objects[m.IntN(len(objects))]
	i := m.IntN(len(w.members))
	own := &w.members[i]
	add := func(name string, value any) {
		w.members = slices.Insert(w.members, m.IntN(len(w.members)+1), member{name: name, value: value})
	}
	undeclared := func() any {
		return pick[any](m.Rand, markUndeclared+"x", &wire{members: []member{{name: "business_id", value: markUndeclared}, {name: "x", value: markUndeclared}}}, &[]any{markUndeclared}, json.Number("66600066"), nil)
	}
	if m.request && m.chance(40) {
		m.mutateRequest(all, one, w)
		return
	}
	kind := m.IntN(map[bool]int{true: 20, false: 13}[last])
	if m.old && kind > 6 { // other rules than those of schemas
		kind = m.IntN(7)
	}
	switch kind {
	case 0:
		one.set(nil)
	case 1:
		one.set(m.anything(2))
	case 2:
		one.set(pick[any](m.Rand, json.Number(pick(m.Rand, m.numbers()...)), pick(m.Rand, texts30...)))
	case 3:
		w.members = slices.Delete(w.members, i, i+1)
	case 4: // a member of another object, or of another alternative
		if name := pick(m.Rand, other.members...); w.find(name.name) == nil {
			add(name.name, clone(name.value))
		}
	case 5: // a discriminator or a constant that lies
		for _, w := range objects {
			if kind := w.find("kind"); kind != nil {
				kind.value = pick[any](m.Rand, "k0", "k1", "k2", "k9", nil, json.Number("1"))
			}
		}
	case 6: // another number of items
		for _, p := range all {
			if list, ok := p.value.(*[]any); ok && len(*list) > 0 && m.chance(50) {
				p.set(pick[any](m.Rand, &[]any{}, func() any { l := slices.Concat(*list, []any{clone((*list)[0])}); return &l }(), func() any { l := slices.Repeat(*list, 5); return &l }()))
				return
			}
		}
	case 7, 8:
		add(pick(m.Rand, "zz", "__proto__", "NAME", "Total", "Business_ID", "x-y", ""), undeclared())
	case 9: // a name that differs in case only
		if m.chance(50) {
			own.name = strings.ToUpper(own.name)
		} else {
			add(strings.ToUpper(own.name), undeclared())
		}
	case 10:
		add(own.name, clone(own.value)) // twice
	case 11:
		add(pick(m.Rand, "secret", "token"), markInternal)
	case 12: // 65 levels, or 49
		var deep any = "x"
		for range pick(m.Rand, 45, 61) + m.IntN(6) {
			deep = &[]any{deep}
		}
		add("zz", deep)
	default: // a record of another business, without one, or one that may not be seen
		if i := slices.IndexFunc(objects, func(w *wire) bool { return w.find("shared") != nil }); i >= 0 && m.chance(60) {
			inside := places(objects[i].find("shared").value, nil, nil)
			objects = nil
			for _, p := range inside {
				if w, ok := p.value.(*wire); ok && len(w.members) > 0 {
					objects = append(objects, w)
				}
			}
		}
		records := slices.DeleteFunc(slices.Clone(objects), func(w *wire) bool { return !w.owned && !w.visible })
		if len(records) == 0 {
			return
		}
		w := records[m.IntN(len(records))]
		if id := w.find("business_id"); w.owned && id != nil && (!w.visible || m.chance(50)) {
			id.value = pick[any](m.Rand, markForeign+"1", markForeign+"1", json.Number("66600066"), tenantID+" ", "", nil, true, json.Number("7001.0"), &wire{}, &[]any{tenantID})
			mark(w, markForeign)
		} else if visibility := w.find("visibility"); w.visible && visibility != nil {
			visibility.value = pick[any](m.Rand, "hidden", "hidden", "hidden", "SHOWN", nil, json.Number("1"), &wire{})
			mark(w, markHidden)
		}
	}
}

// mutateRequest changes a value in a way that only matters for requests: one is a place in it, and w an object with members.
func (m *maker) mutateRequest(all []locatedNode, one locatedNode, w *wire) {
	own := &w.members[m.IntN(len(w.members))]
	kind := m.IntN(9)
	if m.old && kind > 2 {
		kind = m.IntN(3)
	}
	switch kind {
	case 0: // null for everything
		for i := range w.members {
			w.members[i].value = nil
		}
	case 1, 2: // another nesting
		switch v := one.value.(type) {
		case *wire:
			if len(v.members) > 0 && m.chance(60) {
				one.set(v.members[0].value)
				return
			}
		case *[]any:
			if len(*v) > 0 && m.chance(60) {
				one.set((*v)[0])
				return
			}
		}
		one.set(pick[any](m.Rand, &[]any{one.value}, &wire{members: []member{{name: own.name, value: one.value}}}))
	case 3: // a member twice, with other escapes
		w.members = append(w.members, member{own.name, clone(own.value), escaped(own.name)})
	case 4: // a member of something else, or many
		for i := range pick(m.Rand, 0, 0, 0, 0, 60) {
			w.members = append(w.members, member{name: "many" + strconv.Itoa(i), value: i%2 == 0})
		}
		name := pick(m.Rand, slices.Concat(someNames, otherNames, []string{"kind", "p", "r", "id", "amount", "children", "visibility", "business_id", strings.Repeat("long", 30), strings.Repeat("ü", 50)})...)
		w.members = append(w.members, member{name: name, value: m.anything(1)})
	case 5: // a name that differs in case only, by Unicode too
		fold := strings.NewReplacer("s", "ſ", "k", "K", "e", "E", "a", "A", "o", "O")
		if name := fold.Replace(own.name); m.chance(50) {
			own.name = name
		} else {
			w.members = append(w.members, member{name: name, value: clone(own.value)})
		}
	case 6, 7: // another notation
		if numbers := slices.DeleteFunc(slices.Clone(all), func(p locatedNode) bool { _, ok := p.value.(json.Number); return !ok }); len(numbers) > 0 {
			one = pick(m.Rand, numbers...)
		}
		one.set(json.Number(pick(m.Rand, immoderate...)))
	default: // half of a character
		half := pick(m.Rand, `"\ud800"`, `"\uDC00\uD800"`, `"\ud83d\ude00"`, `"x\ud800\u0041"`, "\"\xff\"", "\"\xed\xa0\x80\"")
		if m.chance(70) {
			one.set(raw(half))
		} else {
			own.as = half
		}
	}
}

// escaped returns a string as JSON in which all characters are escaped.
func escaped(s string) string {
	b := []byte{'"'}
	for _, unit := range utf16.Encode([]rune(s)) {
		b = fmt.Appendf(b, `\u%04x`, unit)
	}
	return string(append(b, '"'))
}

// encode writes a value, sometimes with white space and escapes.
func (m *maker) encode(b *bytes.Buffer, value any, loose bool) {
	space := func() {
		if loose {
			b.WriteString(pick(m.Rand, "", "", " ", "\n\t", "\r"))
		}
	}
	text := func(s string) {
		quoted, _ := json.Marshal(s)
		if r := []rune(s); loose && len(r) > 0 && r[0] < 0x10000 && m.chance(20) {
			rest, _ := json.Marshal(string(r[1:]))
			quoted = fmt.Appendf(nil, `"\u%04X%s`, r[0], rest[1:])
		} else if loose && m.chance(10) {
			quoted = []byte(escaped(s))
		}
		b.Write(quoted)
	}
	space()
	switch v := value.(type) {
	case *wire:
		b.WriteByte('{')
		for i, own := range v.members {
			if i > 0 {
				b.WriteByte(',')
			}
			space()
			if own.as != "" {
				b.WriteString(own.as)
			} else {
				text(own.name)
			}
			space()
			b.WriteByte(':')
			m.encode(b, own.value, loose)
		}
		b.WriteByte('}')
	case *[]any:
		b.WriteByte('[')
		for i, item := range *v {
			if i > 0 {
				b.WriteByte(',')
			}
			m.encode(b, item, loose)
		}
		b.WriteByte(']')
	case string:
		text(v)
	default:
		_, _ = fmt.Fprint(b, map[bool]any{true: "null", false: v}[v == nil])
	}
	space()
}

// body makes an answer or the body of a request: every fourth answer and every third body is as it should be. If broken, its text was changed.
func (m *maker) body(d *naive, a *reply) (body []byte, broken bool) {
	value := m.sample(d, []object{a.schema}, 5)
	if w, ok := value.(*wire); ok && a.method == http.MethodPatch {
		w.members = slices.DeleteFunc(w.members, func(member) bool { return m.chance(40) })
	}
	for n := m.IntN(map[bool]int{true: 3, false: 4}[m.request]); n > 0; n-- {
		m.mutate(value, func(to any) { value = to }, n == 1)
	}
	var b bytes.Buffer
	m.encode(&b, value, m.chance(30))
	body = b.Bytes()
	if broken = !m.old && m.chance(5); broken && len(body) > 0 {
		if i := m.IntN(len(body)); m.chance(50) {
			body = body[:i]
		} else {
			body[i] = byte(m.Uint32())
		}
	}
	return body, broken
}

// generated runs a test for GATEHOUSE_DEFINITION_SEEDS seeds, by default 200, each with a definition: GATEHOUSE_DEFINITION_SEED selects one.
func generated(t *testing.T, run func(t *testing.T, seed uint64, r *rand.Rand)) {
	t.Helper()
	if seed, err := strconv.ParseUint(os.Getenv("GATEHOUSE_DEFINITION_SEED"), 10, 64); err == nil {
		run(t, seed, rand.New(rand.NewPCG(seed, 25)))
		return
	}
	seeds, err := strconv.ParseUint(cmp.Or(os.Getenv("GATEHOUSE_DEFINITION_SEEDS"), "200"), 10, 64)
	require.NoError(t, err)
	for seed := range seeds {
		run(t, seed, rand.New(rand.NewPCG(seed, 25)))
	}
}

// document is a document that has been compiled.
func (m *maker) loaded(t *testing.T, seed uint64) (d *naive, text []byte, answers, bodies []*reply) {
	t.Helper()
	made, answers, bodies := m.document()
	most := maxItems
	if m.old {
		most = 1000 // kin-openapi has no bound of its own
	}
	text, err := compiledFrom(made, slices.Concat(answers, bodies), most)
	if err != nil {
		t.Fatalf("GATEHOUSE_DEFINITION_SEED=%d: %v\n%s", seed, err, text)
	}
	doc := decode(text).(object)
	for _, a := range answers {
		response := doc["paths"].(object)[a.path].(object)["get"].(object)["responses"].(object)[strconv.Itoa(a.status)].(object)
		a.schema = response["content"].(object)["application/json"].(object)["schema"].(object)
	}
	for _, b := range bodies {
		body := doc["paths"].(object)[b.path].(object)[strings.ToLower(b.method)].(object)["requestBody"].(object)
		b.schema = body["content"].(object)[b.media].(object)["schema"].(object)
	}
	return &naive{schemas: doc["components"].(object)["schemas"].(object)}, text, answers, bodies
}

func TestMutatedAnswersNeverLetAnythingOut(t *testing.T) {
	t.Parallel()
	var total, accepted, changed, kept int
	contract := new(upstream.Contract)
	generated(t, func(t *testing.T, seed uint64, r *rand.Rand) {
		t.Helper()
		m := &maker{Rand: r}
		d, text, answers, _ := m.loaded(t, seed)
		defer func() { kept += d.kept }()
		for range 50 {
			a := answers[r.IntN(len(answers))]
			body, broken := m.body(d, a)
			total++
			var out bytes.Buffer
			report, err := contract.Check(&out, a.op, a.res, a.q, tenantID, body)
			listed, _ := contract.Violations(a.op, a.res, a.q, tenantID, body)
			want, ok := d.expected(a, body)
			fail := func(what string) {
				t.Helper()
				text = d.excerpt(a)
				wanted, _ := json.Marshal(want)
				t.Fatalf("GATEHOUSE_DEFINITION_SEED=%d: %s: %s %d\n%s\n%s\nbecame, with the error %v:\n%s\nexpected: %v\n%s", seed, what, a.path, a.status, text, body, err, out.Bytes(), ok, wanted)
			}
			if (err == nil) != ok {
				fail("accepted or rejected")
			}
			// The order of what is inside a record that may not be seen does not matter.
			deviates := report.CrossTenant > 0 || !errors.Is(err, upstream.ErrNotVisible) && (err != nil || report.Reordered || report.Surplus > 0)
			if deviates != (len(listed) > 0) {
				fail(fmt.Sprintf("listed %v", listed))
			}
			if err != nil {
				continue
			}
			accepted++
			got := decode(out.Bytes())
			if !reflect.DeepEqual(want, got) {
				fail("another result")
			}
			if !reflect.DeepEqual(got, decode(body)) {
				changed++
			}
			if !d.declares([]object{a.schema}, got) {
				fail("an undeclared member")
			}
			for _, marker := range []string{markForeign, markHidden, markInternal, markUndeclared, "66600066"} {
				allowed := m.free || m.maps && (broken || marker == markInternal || marker == markUndeclared || marker == "66600066")
				if !allowed && bytes.Contains(out.Bytes(), []byte(marker)) {
					fail("a leak of " + marker)
				}
			}
		}
	})
	t.Logf("%d answers, %d accepted, %d of them changed, %d times an alternative did not show what another one removed", total, accepted, changed, kept)
	if os.Getenv("GATEHOUSE_DEFINITION_SEED") == "" {
		require.Greater(t, accepted, total/4, "most answers are refused: they test little")
		require.Greater(t, changed, total/10, "too little is removed")
		if total >= 10_000 { // in `make unraced`; fewer need not have one
			require.Positive(t, kept, "no alternative had what another one removed")
		}
	}
}

// OpenAPI 3.0, with what kin-openapi supports as this gateway does. See what m.old excludes.
func TestAnswersAreValidForAnotherLibraryToo(t *testing.T) {
	t.Parallel()
	var both, neither int
	contract := new(upstream.Contract)
	generated(t, func(t *testing.T, seed uint64, r *rand.Rand) {
		t.Helper()
		m := &maker{Rand: r, old: true}
		d, text, answers, _ := m.loaded(t, seed)
		doc, err := openapi3.NewLoader().LoadFromData(text)
		require.NoError(t, err)
		a := answers[0]
		schema := doc.Paths.Value(a.path).Get.Responses.Value("200").Value.Content["application/json"].Schema.Value
		for range 20 {
			body, _ := m.body(d, a)
			var out bytes.Buffer
			_, err := contract.Check(&out, a.op, a.res, a.q, tenantID, body)
			var value any
			require.NoError(t, json.Unmarshal(body, &value))
			other := schema.VisitJSON(value, openapi3.EnableFormatValidation(), openapi3.VisitAsResponse())
			switch {
			case err != nil && other != nil:
				neither++
			case err == nil && other == nil:
				both++
			case err == nil && !reflect.DeepEqual(decode(body), decode(out.Bytes())): // what is missing became null
			default:
				t.Fatalf("GATEHOUSE_DEFINITION_SEED=%d: %v\nkin-openapi: %v\n%s\n%s", seed, err, other, text, body)
			}
		}
	})
	if os.Getenv("GATEHOUSE_DEFINITION_SEED") == "" {
		require.Positive(t, both)
		require.Positive(t, neither)
	}
}

// Bodies of requests: what is accepted is what the caller sent, and documented; what is refused says where and why.
func TestMutatedBodiesNeverLetAnythingIn(t *testing.T) {
	t.Parallel()
	var total, accepted int
	contract := new(upstream.Contract)
	generated(t, func(t *testing.T, seed uint64, r *rand.Rand) {
		t.Helper()
		m := &maker{Rand: r, request: true}
		d, _, _, bodies := m.loaded(t, seed)
		d.request = true
		for range 50 {
			a := bodies[r.IntN(len(bodies))]
			as := a
			if m.greedy = m.chance(10); m.chance(5) {
				as = bodies[r.IntN(len(bodies))]
			}
			body, _ := m.body(d, as)
			total++
			out, err := checkedBody(contract, a, body)
			want, ok := d.accepted(a, body)
			fail := func(what string) {
				t.Helper()
				wanted, _ := json.Marshal(want)
				t.Fatalf("GATEHOUSE_DEFINITION_SEED=%d: %s: %s\n%s\n%s\nbecame, with %v %q:\n%s\nexpected: %v\n%s", seed, what, a.method, d.excerpt(a), body, err, violations(err), out, ok, wanted)
			}
			if (err == nil) != ok {
				fail("accepted or refused")
			}
			if err != nil {
				if why := badViolations(err, body); why != "" {
					fail(why)
				}
				continue
			}
			accepted++
			again, err := checkedBody(contract, a, out)
			switch got := decode(out); {
			case !reflect.DeepEqual(want, got):
				fail("another value than that of the rules")
			case !reflect.DeepEqual(decode(body), got):
				fail("another value than the caller's")
			case !jsontext.Value(out).IsValid():
				fail("a duplicate name")
			case !d.declares([]object{a.schema}, got):
				fail("an undeclared member, or another business")
			case err != nil || !bytes.Equal(out, again):
				fail("another body when it is checked again")
			}
		}
	})
	t.Logf("%d bodies, %d accepted", total, accepted)
	if os.Getenv("GATEHOUSE_DEFINITION_SEED") == "" {
		require.Greater(t, accepted, total/4, "most bodies are refused: they test little")
		require.Greater(t, total-accepted, total/4, "few bodies are refused: they test little")
	}
}

func checkedBody(contract *upstream.Contract, a *reply, body []byte) ([]byte, error) {
	var out bytes.Buffer
	_, err := contract.CheckBody(&out, a.op, http.Header{"Content-Type": {a.media}}, tenantID, body)
	return out.Bytes(), err
}

var (
	pointers = regexp.MustCompile(`^(/([^~/]|~0|~1)*)*$`)
	reasons  = regexp.MustCompile(`^(is required|is read-only|is not a documented member|is not your own business|is given twice|` +
		`is too (small|large|short|long)|is not one of the possible values|does not have the required form|expected .+)$`)
)

// badViolations says what is wrong with the violations of a body, if anything.
func badViolations(err error, body []byte) string {
	var invalid *upstream.BodyError
	if !errors.As(err, &invalid) || len(invalid.Violations) == 0 || len(invalid.Violations) > 50 {
		return "not 1 to 50 violations"
	}
	var value any
	valid := jsontext.Value(body).IsValid()
	if valid {
		value = decode(body)
	}
	for _, v := range invalid.Violations {
		switch {
		case !pointers.MatchString(v.Pointer):
			return "no JSON Pointer: " + v.Pointer
		case !reasons.MatchString(v.Reason):
			return "another reason"
		case valid && !exists(value, v):
			return "nothing is there: " + v.Pointer
		}
		for _, marker := range []string{markText, markForeign, markHidden, markInternal, markUndeclared, "66600066"} {
			if strings.Contains(v.Reason, marker) {
				return "a value in a reason"
			}
		}
	}
	return ""
}

// exists reports whether a violation is about a value, or about a member that is missing.
func exists(value any, v upstream.Violation) bool {
	if v.Pointer == "" {
		return v.Reason != "is required"
	}
	names := strings.Split(v.Pointer[1:], "/")
	for i, name := range names {
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		last := i == len(names)-1
		switch in := value.(type) {
		case object:
			if start, cut := strings.CutSuffix(name, "…"); cut {
				return slices.ContainsFunc(slices.Collect(maps.Keys(in)), func(name string) bool { return strings.HasPrefix(name, start) && len(start) > 60 })
			}
			next, ok := in[name]
			if !ok || last && v.Reason == "is required" {
				return !ok && last && v.Reason == "is required"
			}
			value = next
		case []any:
			at, err := strconv.Atoi(name)
			if err != nil || at >= len(in) || strconv.Itoa(at) != name {
				return false
			}
			value = in[at]
		default:
			return false
		}
	}
	return v.Reason != "is required"
}

// OpenAPI 3.0, as in TestAnswersAreValidForAnotherLibraryToo. The other library lets undocumented members pass, and read-only ones that are null.
func TestBodiesAreValidForAnotherLibraryToo(t *testing.T) {
	t.Parallel()
	var both, neither, loose int
	contract := new(upstream.Contract)
	generated(t, func(t *testing.T, seed uint64, r *rand.Rand) {
		t.Helper()
		m := &maker{Rand: r, old: true, request: true}
		d, text, _, bodies := m.loaded(t, seed)
		d.request, d.other = true, true
		doc, err := openapi3.NewLoader().LoadFromData(text)
		require.NoError(t, err)
		a := bodies[0]
		schema := doc.Paths.Value(a.path).Post.RequestBody.Value.Content[a.media].Schema.Value
		for range 20 {
			m.greedy = m.chance(20)
			body, _ := m.body(d, a)
			_, err := checkedBody(contract, a, body)
			var value any
			require.NoError(t, json.Unmarshal(body, &value))
			other := schema.VisitJSON(value, openapi3.EnableFormatValidation(), openapi3.VisitAsRequest())
			switch {
			case err != nil && other != nil:
				neither++
			case err == nil && other == nil:
				both++
			case err != nil && !d.judge([]object{a.schema}, decode(body), false).invalid:
				loose++
			default:
				t.Fatalf("GATEHOUSE_DEFINITION_SEED=%d: %v %q\nkin-openapi: %v\n%s\n%s", seed, err, violations(err), other, d.excerpt(a), body)
			}
		}
	})
	t.Logf("%d valid, %d invalid, %d for the gateway only", both, neither, loose)
	if os.Getenv("GATEHOUSE_DEFINITION_SEED") == "" {
		require.Greater(t, both, neither/10)
		require.Greater(t, neither, both/10)
	}
}
