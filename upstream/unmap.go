package upstream

import (
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// unmapper converts a checked request body to the data service's names and values. Bodies are small and rarely mapped, so this is a pass of
// its own.
type unmapper struct {
	body       *jsontext.Decoder // reads without errors, because the body has been checked
	violations []Violation
}

// value appends the next value to dst, converted to the data service's form.
func (u *unmapper) value(dst []byte, s *Schema) []byte {
	first := byte(u.body.PeekKind())
	for s.Choice != nil { // in a choice that the type does not decide, nothing is mapped: see package definition
		fits := func(alternative *Schema) bool { return alternative.Types&typeOf(first) != 0 }
		i := slices.IndexFunc(s.Choice.Alternatives, fits)
		if i < 0 || slices.ContainsFunc(s.Choice.Alternatives[i+1:], fits) {
			return append(dst, u.raw()...)
		}
		s = s.Choice.Alternatives[i]
	}
	switch {
	case first == '[' && s.Items != nil:
		dst = append(dst, '[')
		u.token()
		for i := 0; u.body.PeekKind() != jsontext.KindEndArray; i++ {
			if i > 0 {
				dst = append(dst, ',')
			}
			listed := len(u.violations)
			dst = u.value(dst, s.Items)
			prefixPointers(u.violations[listed:], strconv.Itoa(i))
		}
		u.token()
		return append(dst, ']')
	case first == '{' && !s.free:
		return u.object(dst, s)
	default:
		return append(dst, u.raw()...)
	}
}

// raw reads a value, which is valid until the next one is read.
func (u *unmapper) raw() jsontext.Value {
	raw, _ := u.body.ReadValue()
	return raw
}

// token reads a token, and returns the text of a name.
func (u *unmapper) token() string {
	token, _ := u.body.ReadToken()
	return token.String()
}

// object appends an object.
func (u *unmapper) object(dst []byte, s *Schema) []byte {
	start := len(dst)
	slots := len(s.Properties)
	if s.from != nil {
		slots = s.from.slots
	}
	values := make([][]byte, slots)
	further := u.members(s, s, 0, values)
	if s.from != nil {
		dst = appendBranch(dst, &s.from.tree, values)
	} else {
		for i, value := range values {
			if value != nil {
				dst = append(append(dst, s.Properties[i].head...), value...)
			}
		}
	}
	if dst = append(dst, further...); len(dst) == start {
		dst = append(dst, ',')
	}
	dst[start] = '{' // instead of the first comma
	return append(dst, '}')
}

// members reads an object: frame, or a part of it whose properties begin at slot first. It sets their values, and returns further members.
func (u *unmapper) members(frame, s *Schema, first int, values [][]byte) (further []byte) {
	u.token()
	for u.body.PeekKind() != jsontext.KindEndObject {
		name := u.token()
		p, listed := s.Property(name), len(u.violations)
		switch part := frame.part(first + s.index[name]); {
		case p == nil:
			further = append(append(further, ','), label(name)...)
			further = u.value(further, s.Additional)
			name = cutName(name)
		case part != nil && u.body.PeekKind() == jsontext.KindBeginObject:
			u.members(frame, p.Schema, part.first, values)
		case part != nil: // null, and so are all of its members
			u.token()
			frame.setNull(part, values)
		case p.From != nil && p.From.converts():
			converted, expected := p.convertBack(nil, u.raw())
			if values[first+s.index[name]] = converted; expected != "" && listed < maxViolations {
				u.violations = append(u.violations, Violation{Reason: "expected " + expected})
			}
		default:
			values[first+s.index[name]] = u.value(nil, p.Schema)
		}
		prefixPointers(u.violations[listed:], name)
	}
	u.token()
	return further
}

// setNull sets all members of a part to null, except those that a body must not have.
func (s *Schema) setNull(p *part, values [][]byte) {
	for i, member := range p.property.Schema.Properties {
		switch inner := s.part(p.first + i); {
		case inner != nil:
			s.setNull(inner, values)
		case member.Schema.Refused == "":
			values[p.first+i] = []byte("null")
		}
	}
}

// part returns the part of s with a slot, or nil.
func (s *Schema) part(slot int) *part {
	if s.from != nil {
		for i := range s.from.parts {
			if s.from.parts[i].slot == slot {
				return &s.from.parts[i]
			}
		}
	}
	return nil
}

// appendBranch appends the members of an object of the data service, each after a comma.
func appendBranch(dst []byte, b *branch, values [][]byte) []byte {
	for _, child := range b.children {
		for _, t := range child.targets {
			if value := values[t.slot]; value != nil {
				dst = append(append(append(dst, ','), child.label...), value...)
			}
		}
		before := len(dst)
		dst = append(append(dst, ','), child.label...)
		inner := len(dst)
		if dst = appendBranch(dst, child, values); len(dst) == inner {
			dst = dst[:before]
			continue
		}
		dst[inner] = '{' // instead of the first comma
		dst = append(dst, '}')
	}
	return dst
}
