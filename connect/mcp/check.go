package mcp

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	gschema "github.com/google/jsonschema-go/jsonschema"
)

// check returns an error if a value violates the schema of its type. It inspects the Go value, which is much faster than
// validating its JSON (docs/performance.md).
type check func(v reflect.Value) error

// checkOf returns the check for the schema s that schemaOf derived from t, or nil if every value of t is valid.
func checkOf(s *gschema.Schema, t reflect.Type) (check, error) {
	switch t {
	case reflect.TypeFor[time.Time]():
		return nil, nil
	case reflect.TypeFor[jsontext.Value]():
		return checkObject, nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		of, err := checkOf(s, t.Elem())
		return of.orNil(), err
	case reflect.Slice:
		of, err := checkOf(s.Items, t.Elem())
		return of.ofAll(orZero(s.MaxItems)), err
	case reflect.Struct:
		return checkStruct(s, t)
	case reflect.String:
		return checkString(s)
	case reflect.Int, reflect.Int64, reflect.Float64:
		return checkNumber(s), nil
	case reflect.Bool:
		return nil, nil
	}
	return nil, fmt.Errorf("%s cannot be checked", t)
}

func orZero(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

func checkObject(v reflect.Value) error {
	if raw := jsontext.Value(v.Bytes()); raw.Kind() != jsontext.KindBeginObject {
		return errors.New("is not an object")
	}
	return nil
}

func (c check) orNil() check {
	if c == nil {
		return nil
	}
	return func(v reflect.Value) error {
		if v.IsNil() {
			return nil
		}
		return c(v.Elem())
	}
}

func (c check) ofAll(most int) check {
	return func(v reflect.Value) error {
		if v.Len() > most {
			return fmt.Errorf("has %d entries of at most %d", v.Len(), most)
		}
		for i := range v.Len() {
			if c == nil {
				break
			}
			if err := c(v.Index(i)); err != nil {
				return fmt.Errorf("[%d]: %w", i, err)
			}
		}
		return nil
	}
}

func checkStruct(s *gschema.Schema, t reflect.Type) (check, error) {
	type member struct {
		name     string
		index    []int
		omitZero bool
		check    check
	}
	var members []member
	for _, f := range reflect.VisibleFields(t) {
		name := memberName(f)
		if s.Properties[name] == nil || f.Anonymous {
			continue
		}
		c, err := checkOf(s.Properties[name], f.Type)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if c != nil {
			members = append(members, member{name, f.Index, strings.Contains(f.Tag.Get("json"), ",omitzero"), c})
		}
	}
	return func(v reflect.Value) error {
		for _, m := range members {
			of := v.FieldByIndex(m.index)
			if m.omitZero && of.IsZero() {
				continue
			}
			if err := m.check(of); err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
		}
		return nil
	}, nil
}

func checkString(s *gschema.Schema) (check, error) {
	pattern, err := regexp.Compile(s.Pattern)
	if err != nil {
		return nil, err
	}
	least, most := orZero(s.MinLength), orZero(s.MaxLength)
	return func(v reflect.Value) error {
		text := v.String()
		switch {
		case len(text) < least, most > 0 && len(text) > most && utf8.RuneCountInString(text) > most:
			return fmt.Errorf("has %d characters, of %d to %d", utf8.RuneCountInString(text), least, most)
		case s.Enum != nil && !slices.Contains(s.Enum, any(text)):
			return errors.New("is not one of the allowed values")
		case s.Pattern != "" && !pattern.MatchString(text):
			return errors.New("has the wrong form")
		}
		return nil
	}, nil
}

func checkNumber(s *gschema.Schema) check {
	return func(v reflect.Value) error {
		n := v.Convert(reflect.TypeFor[float64]()).Float()
		if s.Minimum != nil && n < *s.Minimum || s.Maximum != nil && n > *s.Maximum ||
			s.ExclusiveMinimum != nil && n <= *s.ExclusiveMinimum {
			return fmt.Errorf("%v is out of range", n)
		}
		return nil
	}
}
