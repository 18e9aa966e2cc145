package demo

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// field ties one member of a record to its column and its JSON. A resource is
// a struct and the list of its fields, from which its SELECT, its INSERT and
// its JSON are made, so that the three cannot drift apart, and no request
// pays for reflection.
type field[T any] struct {
	name   string                  // of the column, and of the JSON member
	dest   func(*T) any            // where a row is scanned to
	value  func(*T) any            // what is written to the database
	json   func([]byte, *T) []byte // appends the JSON value
	member string                  // the JSON member's name where it is not the column's
	hidden bool                    // kept in the database, not sent
}

// internal gives f as a field that is kept but not sent.
func internal[T any](f field[T]) field[T] {
	f.hidden = true
	return f
}

// shown gives the fields with the named ones sent that were not.
func shown[T any](fields []field[T], names ...string) []field[T] {
	all := slices.Clone(fields)
	for i := range all {
		if slices.Contains(names, all[i].name) {
			all[i].hidden = false
		}
	}
	return all
}

// embedded gives the fields of a part of a record as fields of the record.
func embedded[T, P any](fields []field[P], part func(*T) *P) []field[T] {
	all := make([]field[T], len(fields))
	for i, f := range fields {
		all[i] = field[T]{
			name:   f.name,
			dest:   func(r *T) any { return f.dest(part(r)) },
			value:  func(r *T) any { return f.value(part(r)) },
			json:   func(b []byte, r *T) []byte { return f.json(b, part(r)) },
			member: f.member,
			hidden: f.hidden,
		}
	}
	return all
}

func text[T any](name string, at func(*T) *string) field[T] {
	return field[T]{
		name:  name,
		dest:  func(r *T) any { return at(r) },
		value: func(r *T) any { return *at(r) },
		json:  func(b []byte, r *T) []byte { return appendString(b, *at(r)) },
	}
}

func optText[T any](name string, at func(*T) **string) field[T] {
	return field[T]{
		name:  name,
		dest:  func(r *T) any { return nullable[string]{at(r)} },
		value: func(r *T) any { return valueOrNil(*at(r)) },
		json: func(b []byte, r *T) []byte {
			if p := *at(r); p != nil {
				return appendString(b, *p)
			}
			return append(b, "null"...)
		},
	}
}

// raw is a text field that holds JSON, which is sent as it is.
func raw[T any](name string, at func(*T) *string) field[T] {
	f := text(name, at)
	f.json = func(b []byte, r *T) []byte { return append(b, *at(r)...) }
	return f
}

// optRaw is raw for what may be missing.
func optRaw[T any](name string, at func(*T) **string) field[T] {
	f := optText(name, at)
	f.json = func(b []byte, r *T) []byte {
		if p := *at(r); p != nil {
			return append(b, *p...)
		}
		return append(b, "null"...)
	}
	return f
}

func integer[T any](name string, at func(*T) *int64) field[T] {
	return field[T]{
		name:  name,
		dest:  func(r *T) any { return at(r) },
		value: func(r *T) any { return *at(r) },
		json:  func(b []byte, r *T) []byte { return strconv.AppendInt(b, *at(r), 10) },
	}
}

func optInteger[T any](name string, at func(*T) **int64) field[T] {
	return field[T]{
		name:  name,
		dest:  func(r *T) any { return nullable[int64]{at(r)} },
		value: func(r *T) any { return valueOrNil(*at(r)) },
		json: func(b []byte, r *T) []byte {
			if p := *at(r); p != nil {
				return strconv.AppendInt(b, *p, 10)
			}
			return append(b, "null"...)
		},
	}
}

func amount[T any](name string, at func(*T) *decimal) field[T] {
	return field[T]{
		name:  name,
		dest:  func(r *T) any { return at(r) },
		value: func(r *T) any { return int64(*at(r)) },
		json:  func(b []byte, r *T) []byte { return appendAmount(b, *at(r)) },
	}
}

func optAmount[T any](name string, at func(*T) **decimal) field[T] {
	return field[T]{
		name: name,
		dest: func(r *T) any { return nullableDecimal{at(r)} },
		value: func(r *T) any {
			if p := *at(r); p != nil {
				return int64(*p)
			}
			return nil
		},
		json: func(b []byte, r *T) []byte {
			if p := *at(r); p != nil {
				return appendAmount(b, *p)
			}
			return append(b, "null"...)
		},
	}
}

func boolean[T any](name string, at func(*T) *bool) field[T] {
	return field[T]{
		name:  name,
		dest:  func(r *T) any { return at(r) },
		value: func(r *T) any { return *at(r) },
		json:  func(b []byte, r *T) []byte { return strconv.AppendBool(b, *at(r)) },
	}
}

func valueOrNil[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

func columns[T any](fields []field[T]) string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return strings.Join(names, ", ")
}

func insertSQL[T any](table string, fields []field[T]) string {
	return "INSERT INTO " + table + " (" + columns(fields) + ") VALUES (?" +
		strings.Repeat(", ?", len(fields)-1) + ")"
}

// destinations gives the scan destinations of the fields in r. They stay good
// for every row that is scanned into the same r.
func destinations[T any](fields []field[T], r *T) []any {
	dest := make([]any, len(fields))
	for i, f := range fields {
		dest[i] = f.dest(r)
	}
	return dest
}

func values[T any](fields []field[T], r *T) []any {
	vals := make([]any, len(fields))
	for i, f := range fields {
		vals[i] = f.value(r)
	}
	return vals
}

// appendRecord appends r as a JSON object of its fields.
func appendRecord[T any](b []byte, fields []field[T], r *T) []byte {
	sep := byte('{')
	for i := range fields {
		f := &fields[i]
		if f.hidden {
			continue
		}
		b = append(b, sep, '"')
		b = append(b, cmp.Or(f.member, f.name)...)
		b = append(b, '"', ':')
		b = f.json(b, r)
		sep = ','
	}
	return append(b, '}')
}

func appendList[T any](b []byte, fields []field[T], records []T) []byte {
	b = append(b, '[')
	for i := range records {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendRecord(b, fields, &records[i])
	}
	return append(b, ']')
}

func appendAmount(b []byte, d decimal) []byte {
	b = append(b, '"')
	b = d.append(b)
	return append(b, '"')
}

func appendString(b []byte, s string) []byte {
	// AppendQuote fails for invalid UTF-8 only, and has appended the string
	// with replacement characters then: what a reader should get.
	b, _ = jsontext.AppendQuote(b, s)
	return b
}
