package demo

import (
	"cmp"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// field ties a field of a record's struct to its column and its JSON member. The struct tag db names the column. The
// member has the same name unless the tag json gives another one; json:"-" keeps a column out of responses.
type field[T any] struct {
	name   string
	member string
	hidden bool
	option string // "json": text that is JSON; "optional": empty text is null
	index  []int
}

// fieldsOf returns the fields of T that have a column.
func fieldsOf[T any]() (all []field[T]) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		column, option, _ := strings.Cut(f.Tag.Get("db"), ",")
		if column == "" {
			continue
		}
		member := f.Tag.Get("json")
		hidden := member == "-"
		if hidden {
			member = column
		}
		all = append(all, field[T]{column, cmp.Or(member, column), hidden, option, f.Index})
	}
	return all
}

// shown returns the fields with the named ones included in responses.
func shown[T any](fields []field[T], names ...string) []field[T] {
	for i := range fields {
		if slices.Contains(names, fields[i].name) {
			fields[i].hidden = false
		}
	}
	return fields
}

func (f *field[T]) of(r *T) reflect.Value { return reflect.ValueOf(r).Elem().FieldByIndex(f.index) }

// value returns what is written to the database.
func (f *field[T]) value(r *T) any { return f.of(r).Interface() }

// dest returns the destination of a Scan.
func (f *field[T]) dest(r *T) any {
	switch p := f.of(r).Addr().Interface().(type) {
	case **string:
		return nullable[string]{p}
	case **int64:
		return nullable[int64]{p}
	case **decimal:
		return nullableDecimal{p}
	default:
		return p
	}
}

// json appends the member's value.
func (f *field[T]) json(b []byte, r *T) []byte {
	switch p := f.of(r).Addr().Interface().(type) {
	case *string:
		return f.text(b, *p)
	case **string:
		if *p != nil {
			return f.text(b, **p)
		}
	case *int64:
		return strconv.AppendInt(b, *p, 10)
	case **int64:
		if *p != nil {
			return strconv.AppendInt(b, **p, 10)
		}
	case *decimal:
		return appendAmount(b, *p)
	case **decimal:
		if *p != nil {
			return appendAmount(b, **p)
		}
	case *bool:
		return strconv.AppendBool(b, *p)
	}
	return append(b, "null"...)
}

func (f *field[T]) text(b []byte, s string) []byte {
	switch {
	case f.option == "json":
		return append(b, s...)
	case f.option == "optional" && s == "":
		return append(b, "null"...)
	default:
		return appendString(b, s)
	}
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
	for i := range fields {
		dest[i] = fields[i].dest(r)
	}
	return dest
}

func values[T any](fields []field[T], r *T) []any {
	vals := make([]any, len(fields))
	for i := range fields {
		vals[i] = fields[i].value(r)
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
		b = append(b, f.member...)
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
