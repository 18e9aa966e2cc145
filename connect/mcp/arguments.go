package mcp

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/internal/similar"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// arguments holds the valid arguments of a call.
type arguments struct {
	all   map[string]jsontext.Value
	own   map[string]jsontext.Value // those for the gateway, which are not sent to the data service
	path  []string                  // the values of the path parameters
	query string                    // encoded
	body  map[string]jsontext.Value // its members, or the body as "*"; nil: no body

	cleared []string // the argument clear: names of arguments whose members of the body are null
}

// text returns the text of an argument for the gateway, or "" if it is absent.
func (a *arguments) text(name string) string { return plain(a.own[name]) }

// checker checks arguments against their schema.
//
//nolint:gochecknoglobals // it has no state but a pool
var checker = new(upstream.Contract)

// readArguments checks the arguments of a call. Its error lists up to maxDetails violations.
func (t *tool) readArguments(raw jsontext.Value) (*arguments, *toolError) {
	input := t.arguments.Body.Kinds[0].Schema
	sent := raw
	if raw.IsValid() && !tooDeep(raw, maxLenient) {
		sent = lenient(input, raw)
	}
	var out bytes.Buffer
	if _, err := checker.CheckBody(&out, t.arguments, http.Header{"Content-Type": {"application/json"}}, "-", sent); err != nil {
		return nil, t.invalid(err, input, sent)
	}
	a := &arguments{}
	if err := json.Unmarshal(out.Bytes(), &a.all); err != nil {
		return nil, newToolError(err, t)
	}
	a.own = maps.Clone(a.all)
	var query []string
	if t.Operation.Body != nil {
		a.body = map[string]jsontext.Value{}
	}
	for _, s := range t.slots {
		value, given := a.all[s.argument]
		delete(a.own, s.argument)
		switch {
		case s.path:
			a.path = append(a.path, plain(value))
		case !given:
		case s.query != nil:
			parameters, ok := queryOf(s.query, value)
			if !ok {
				return nil, t.badArguments(data.Detail{Field: s.argument, Problem: "has an item that is empty or has a comma"})
			}
			query = append(query, parameters...)
		case s.body != "":
			a.body[s.body] = value
		}
	}
	a.query = strings.Join(query, "&")
	_ = json.Unmarshal(a.own[argClear], &a.cleared) // it has been checked
	for _, name := range a.cleared {
		if _, given := a.all[name]; given {
			return nil, t.badArguments(data.Detail{Field: argClear, Problem: "names " + name + ", which also has a value"})
		}
		a.body[t.clears[name]] = jsontext.Value("null")
	}
	return a, nil
}

// noChange returns the error for a change of nothing.
func (t *tool) noChange() *toolError {
	d := data.Detail{Field: "the call", Problem: "contains no change"}
	if len(t.clears) > 0 {
		d.Problem += ": what to empty has to be named in " + argClear
	}
	return t.badArguments(d)
}

// emptied names what the call clears, after a verb, as a part of a sentence.
func (a *arguments) emptied(verb string) string {
	if len(a.cleared) == 0 {
		return ""
	}
	return " and " + verb + " " + strings.Join(a.cleared, ", ")
}

// queryOf returns the encoded query parameters for an argument, or false if an item cannot be in a list that is separated by commas.
func queryOf(p *upstream.Param, v jsontext.Value) (all []string, ok bool) {
	items := []jsontext.Value{v}
	if p.Array {
		_ = json.Unmarshal(v, &items) // it has been checked
	}
	list := p.Array && !p.Exploded
	for _, item := range items {
		text := plain(item)
		if list && (text == "" || strings.Contains(text, ",")) {
			return nil, false
		}
		all = append(all, url.QueryEscape(text))
	}
	if list {
		all = []string{strings.Join(all, ",")}
	}
	for i := range all {
		all[i] = url.QueryEscape(p.Name) + "=" + all[i]
	}
	return all, true
}

// maxLenient is the depth up to which lenient changes JSON: it parses each level again, and deeper arguments are invalid.
const maxLenient = 64

// lenient returns arguments with harmless mistakes of models corrected: a number, boolean, object or array in quotes, a number for a
// string, one value for an array, 3.0 for 3, and null for an optional member.
func lenient(s *upstream.Schema, v jsontext.Value) jsontext.Value {
	kind := v.Kind()
	allows := func(t upstream.Types) bool { return s.Types&t != 0 }
	if s.Choice != nil || s.FreeJSON() {
		if text := jsontext.Value(strings.TrimSpace(plain(v))); kind == jsontext.KindString && !allows(upstream.TypeString) && text.IsValid() && !tooDeep(text, maxLenient) {
			return text
		}
		return v
	}
	switch kind {
	case jsontext.KindString:
		if bare, ok := strings.CutPrefix(plain(v), "untrusted_"); ok && s.Rules != nil { // the name of an untrusted field in results
			isValue := func(text string) bool {
				_, found := slices.BinarySearch(s.Rules.Enum, `"`+text)
				return found
			}
			if isValue(bare) && !isValue(plain(v)) {
				return encode(bare)
			}
		}
		text := jsontext.Value(strings.TrimSpace(plain(v)))
		list := s.Types&^upstream.TypeNull == upstream.TypeArray // this may be an item of it
		if allows(upstream.TypeString) || !text.IsValid() || tooDeep(text, maxLenient) {
			break
		}
		switch text.Kind() {
		case jsontext.KindNumber, jsontext.KindTrue, jsontext.KindFalse:
			if !list {
				return lenient(s, text)
			}
		case jsontext.KindBeginObject, jsontext.KindBeginArray:
			return lenient(s, text)
		}
	case jsontext.KindNumber:
		if n, ok := whole(string(v)); ok && allows(upstream.TypeInteger|upstream.TypeNumber) {
			return strconv.AppendInt(nil, n, 10)
		}
		if allows(upstream.TypeString) && !allows(upstream.TypeInteger|upstream.TypeNumber) {
			return jsontext.Value(strconv.Quote(string(v)))
		}
	case jsontext.KindBeginObject:
		if allows(upstream.TypeObject) {
			return lenientObject(s, v)
		}
	case jsontext.KindBeginArray:
		var items []jsontext.Value
		if !allows(upstream.TypeArray) || s.Items == nil || json.Unmarshal(v, &items) != nil {
			break
		}
		for i := range items {
			items[i] = lenient(s.Items, items[i])
		}
		if list, err := json.Marshal(items); err == nil {
			return list
		}
	}
	// Not for an array of arrays: with a recursive schema, this would not end.
	if allows(upstream.TypeArray) && s.Items != nil && s.Items.Types&^upstream.TypeNull != upstream.TypeArray && s.Types&^upstream.TypeNull == upstream.TypeArray && kind != jsontext.KindBeginArray && kind != jsontext.KindNull {
		return slices.Concat(jsontext.Value("["), lenient(s.Items, v), jsontext.Value("]"))
	}
	return v
}

// whole returns the value of a JSON number that is an integer below 2^53, such as 3, 3.0 or 0.3e1.
func whole(number string) (int64, bool) {
	const most = 40 // characters; bounds the memory for the exact value, with the check of the size
	f, err := strconv.ParseFloat(number, 64)
	mantissa, _, _ := strings.Cut(strings.ToLower(number), "e")
	switch {
	case err != nil || len(number) > most || math.Abs(f) >= 1<<53:
		return 0, false
	case math.Abs(f) < 1:
		return 0, !strings.ContainsAny(mantissa, "123456789")
	}
	n, ok := new(big.Rat).SetString(number)
	if !ok || !n.IsInt() {
		return 0, false
	}
	return n.Num().Int64(), true
}

// lenientObject applies lenient to the members of an object.
func lenientObject(s *upstream.Schema, v jsontext.Value) jsontext.Value {
	out := jsontext.Value{'{'}
	for name, member := range members(v) {
		if p := s.Property(name); p != nil {
			if member.Kind() == jsontext.KindNull && p.Schema.Types&upstream.TypeNull == 0 && !p.Required {
				continue
			}
			member = lenient(p.Schema, member)
		} else if s.Additional != nil {
			member = lenient(s.Additional, member)
		}
		out = appendMember(out, name, member)
	}
	return append(out, '}')
}

// invalid returns the error for arguments that violate the schema.
func (t *tool) invalid(err error, input *upstream.Schema, sent jsontext.Value) *toolError {
	body, ok := errors.AsType[*upstream.BodyError](err)
	if !ok {
		return newToolError(err, t)
	}
	failed := t.badArguments()
	for _, v := range body.Violations[:min(len(body.Violations), maxDetails)] {
		d := detail(input, v, sent)
		if strings.HasPrefix(d.Problem, unknownArgument) && d.Allowed == "" {
			failed.advice = "The arguments of " + t.Name + " are: " + strings.Join(t.names, ", ") + ". " + correctAndCall
		}
		failed.violations = append(failed.violations, d)
	}
	failed.cause = t.argumentsError(failed.violations)
	return failed
}

const (
	maxDetails      = 20
	unknownArgument = "is not an argument"
)

// detail describes a violation for the assistant.
func detail(input *upstream.Schema, v upstream.Violation, sent jsontext.Value) data.Detail {
	path := slices.Collect(jsontext.Pointer(v.Pointer).Tokens())
	d := data.Detail{Field: cmp.Or(pathString(path), "the call"), Problem: v.Reason}
	var around *upstream.Schema
	var p *upstream.Property
	s := input
	for _, name := range path {
		around, p = s, nil
		switch {
		case s == nil:
		case s.Items != nil:
			s = s.Items
		default:
			if p = s.Property(name); p == nil {
				s = s.Additional
			} else {
				s = p.Schema
			}
		}
	}
	if v.Reason == upstream.Undocumented && around != nil {
		members, _ := shapeOf(around, around.Types, maxShown-1, true)["properties"].(map[string]any)
		names := slices.Sorted(maps.Keys(members))
		if d.Problem = unknownArgument + didYouMean(path[len(path)-1], names); len(path) > 1 {
			d.Allowed = some(names)
		}
		return d
	}
	if allowed, ok := strings.CutPrefix(v.Reason, "expected "); ok {
		d.Problem, d.Allowed = "is not valid", allowed
	}
	if around != nil && around.Choice != nil && path[len(path)-1] == around.Choice.Discriminator {
		d.Allowed = some(slices.Sorted(maps.Keys(around.Choice.Values)))
	}
	if s == nil {
		return d
	}
	if _, texts := enumOf(s); texts != nil && v.Reason != "is required" {
		d.Problem, d.Allowed = "is not one of the possible values"+didYouMean(plain(at(sent, path...)), texts), some(texts)
		return d
	}
	if s.Choice != nil && d.Allowed != "" {
		d.Allowed = "one of " + string(encode(alternatives(s.Choice, maxShown-1)))
	}
	if r := s.Rules; r != nil && d.Allowed == "" {
		switch v.Reason {
		case "is too long", "is too short":
			d.Allowed = limits(strconv.Itoa(r.MinLength), strings.TrimPrefix(strconv.Itoa(r.MaxLength), "-1")) + " characters"
		case "is too small", "is too large":
			if d.Allowed = limits(r.Min, r.Max); r.MinOpen || r.MaxOpen {
				d.Allowed += ", exclusive"
			}
		case "does not have the required form":
			for _, pattern := range r.Patterns {
				d.Allowed = strings.TrimPrefix(d.Allowed+" and ", " and ") + "text that matches " + pattern.String()
			}
		}
	}
	if p != nil && p.Description != "" && v.Reason != "is required" {
		d.Allowed = strings.TrimPrefix(d.Allowed+"; "+p.Description, "; ")
	}
	return d
}

// some lists the first of the possible values.
func some(values []string) string {
	const most = 20
	if more := len(values) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(values[:most], ", "), more)
	}
	return strings.Join(values, ", ")
}

// limits describes a range. One of its bounds may be missing.
func limits(least, most string) string {
	switch {
	case most == "":
		return least + " or more"
	case least == "":
		return most + " or less"
	case least == most:
		return least
	}
	return least + " to " + most
}

// didYouMean returns a suggestion to append to a problem, or "" if no possible value is similar to the text.
func didYouMean(text string, possible []string) string {
	if near := similar.Nearest(text, possible); near != "" {
		return ": did you mean " + near + "?"
	}
	return ""
}

// pathString formats a path of members and items, such as rules[2].when.
func pathString(path []string) string {
	var b strings.Builder
	for i, p := range path {
		if len(p) > 100 {
			p = strings.ToValidUTF8(p[:100], "") + "…"
		}
		switch {
		case i > 0 && strings.Trim(p, "0123456789") == "" && p != "":
			b.WriteString("[" + p + "]")
		case i > 0:
			b.WriteString("." + p)
		default:
			b.WriteString(p)
		}
	}
	return b.String()
}
