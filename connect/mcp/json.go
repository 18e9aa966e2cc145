package mcp

import (
	"bytes"
	"iter"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// encode returns v as JSON, with the members of maps sorted. v must not contain invalid JSON.
func encode(v any) jsontext.Value {
	encoded, _ := json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	return encoded
}

// canonical returns JSON with the members of objects sorted, or v if it is invalid.
func canonical(v jsontext.Value) jsontext.Value {
	sorted := v.Clone()
	if sorted.Format(jsontext.ReorderRawObjects(true)) != nil {
		return v
	}
	return sorted
}

// plain returns the text of a string without quotes, and other values as JSON.
func plain(v jsontext.Value) string {
	if v.Kind() == jsontext.KindString {
		text, _ := jsontext.AppendUnquote(nil, v)
		return string(text)
	}
	return string(v)
}

// members returns the members of an object in order, up to the first syntax error. Other values have none.
func members(v jsontext.Value) iter.Seq2[string, jsontext.Value] {
	return func(yield func(string, jsontext.Value) bool) {
		if v.Kind() != jsontext.KindBeginObject {
			return
		}
		d := jsontext.NewDecoder(bytes.NewReader(v))
		_, err := d.ReadToken()
		for err == nil && d.PeekKind() == jsontext.KindString {
			name, _ := d.ReadToken()
			label := name.String() // the next read overwrites it
			var value jsontext.Value
			if value, err = d.ReadValue(); err == nil && !yield(label, value) {
				return
			}
		}
	}
}

// at returns the value at a path of member names and array indexes, or nil.
func at(v jsontext.Value, path ...string) jsontext.Value {
	for _, name := range path {
		var members map[string]jsontext.Value
		var items []jsontext.Value
		i, err := strconv.ParseUint(name, 10, 31)
		switch {
		case v.Kind() == jsontext.KindBeginObject && json.Unmarshal(v, &members) == nil:
			v = members[name]
		case err == nil && json.Unmarshal(v, &items) == nil && int(i) < len(items):
			v = items[i]
		default:
			return nil
		}
	}
	return v
}

// with returns an object with a member added or replaced. A value that is not an object becomes the member "result" of one; nil does not.
func with(v jsontext.Value, name string, member any) jsontext.Value {
	if v != nil && v.Kind() != jsontext.KindBeginObject {
		v = encode(map[string]jsontext.Value{"result": v})
	}
	return append(appendMember(appendOthers(jsontext.Value("{"), v, name), name, encode(member)), '}')
}

// appendOthers appends the members of an object without one, and without its closing brace.
func appendOthers(out, v jsontext.Value, without string) jsontext.Value {
	for name, value := range members(v) {
		if name != without {
			out = appendMember(out, name, value)
		}
	}
	return out
}

// appendMember appends a member to an object without its closing brace.
func appendMember(out jsontext.Value, name string, member jsontext.Value) jsontext.Value {
	if len(out) > 1 {
		out = append(out, ',')
	}
	out, _ = jsontext.AppendQuote(out, name)
	return append(append(out, ':'), member...)
}
