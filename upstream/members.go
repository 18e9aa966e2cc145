package upstream

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// members reads the object before the decoder: where the value of each member of p stands. seen has a bit for each
// member that is there. A value that is not of its kind is noted in k.fault, the first one only, and read over; the
// error is for what is wrong whatever becomes of the record. guess, if there is one, remembers which member came at
// which position.
func (k *checker) members(p *plan, spans []span, guess []uint8) (seen uint64, err error) {
	if err := k.token(); err != nil {
		return 0, err
	}
	for at := 0; k.dec.PeekKind() != '}'; at++ {
		raw, err := k.rawName()
		if err != nil {
			return 0, err
		}
		i, known := -1, false
		if at < len(guess) {
			i = int(guess[at])
			known = string(raw[1:len(raw)-1]) == p.members[i].name
		}
		if !known {
			if i, known = p.index[string(k.unquote(raw))]; !known {
				if err := k.unknown(p, raw); err != nil {
					return 0, err
				}
				continue
			}
			if at < len(guess) {
				guess[at] = uint8(i)
			}
		}
		seen |= 1 << i
		if spans[i], err = k.value(&p.members[i]); err != nil {
			return 0, err
		}
	}
	return seen, k.token()
}

// name reads a member's name, without quotes and escapes. It is valid until the next call of the checker.
func (k *checker) name() ([]byte, error) {
	raw, err := k.rawName()
	if err != nil {
		return nil, err
	}
	return k.unquote(raw), nil
}

// rawName reads a member's name as it was sent.
func (k *checker) rawName() ([]byte, error) {
	if k.dec.PeekKind() != '"' {
		// Not ReadValue: it would read a whole array in the name's place before saying that this is no name.
		_, err := k.dec.ReadToken()
		return nil, k.syntax(err)
	}
	raw, err := k.dec.ReadValue()
	if err != nil {
		return nil, k.syntax(err)
	}
	return raw, nil
}

// unquote returns what a JSON string stands for. It is valid until the next call of unquote.
func (k *checker) unquote(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	// The decoder has accepted the string, so there is nothing left to fail.
	k.unquoted, _ = jsontext.AppendUnquote(k.unquoted[:0], raw)
	return k.unquoted
}

// text returns what the string at s stands for, nil when there is no string. It is valid until the next call of
// unquote.
func (k *checker) text(s span) []byte {
	if s.end == 0 || s.scratch || k.body[s.start] != '"' {
		return nil
	}
	return k.unquote(k.body[s.start:s.end])
}

// raw reads a value that is neither an object nor an array, and says where it stands.
func (k *checker) raw() (span, error) {
	v, err := k.dec.ReadValue()
	if err != nil {
		return span{}, k.syntax(err)
	}
	end := int(k.dec.InputOffset())
	return span{start: end - len(v), end: end}, nil
}

// value reads the value of a member.
func (k *checker) value(m *member) (span, error) {
	kind := k.dec.PeekKind()
	switch {
	case kind == '[' && m.kind == KindTexts:
		return k.texts(m)
	case kind == '[' && m.kind == KindObjects:
		return k.objects(m)
	case kind == '[' || kind == '{':
		k.wrong(m)
		_, err := k.skip()
		return span{}, err
	}
	s, err := k.raw()
	if err != nil {
		return span{}, err
	}
	if kind == 'n' {
		if m.required {
			k.wrong(m)
		}
		return span{}, nil
	}
	if !k.is(m.kind, kind, s) {
		k.wrong(m)
	}
	return s, nil
}

// wrong notes that a member is not of its kind.
func (k *checker) wrong(m *member) {
	if k.fault == nil {
		k.fault = m
	}
}

// is reports whether a value that is neither null nor object nor array is of a kind.
func (k *checker) is(want Kind, kind jsontext.Kind, s span) bool {
	if kind != '"' {
		switch want {
		case KindInteger, KindKey, KindBusiness:
			return kind == '0' && isInteger(k.body[s.start:s.end])
		case KindBool:
			return kind == 't' || kind == 'f'
		default:
			return false
		}
	}
	switch want {
	case KindText:
		return true
	case KindKey, KindBusiness:
		return s.end-s.start > len(`""`)
	case KindUUID:
		return isUUID(k.text(s))
	case KindDecimal:
		return isDecimal(k.text(s))
	case KindInstant:
		_, ok := parseInstant(k.text(s))
		return ok
	case KindDate:
		_, ok := parseDate(k.text(s))
		return ok
	case KindTime:
		return isTime(k.text(s))
	default:
		return false
	}
}

// texts reads an array of strings and states it anew in the scratch.
func (k *checker) texts(m *member) (span, error) {
	if err := k.token(); err != nil {
		return span{}, err
	}
	start := len(k.scratch)
	k.scratch = append(k.scratch, '[')
	for n := 0; k.dec.PeekKind() != ']'; n++ {
		if k.dec.PeekKind() != '"' {
			k.wrong(m)
			if _, err := k.skip(); err != nil {
				return span{}, err
			}
			continue
		}
		s, err := k.raw()
		if err != nil {
			return span{}, err
		}
		if n > 0 {
			k.scratch = append(k.scratch, ',')
		}
		k.scratch = append(k.scratch, k.body[s.start:s.end]...)
	}
	k.scratch = append(k.scratch, ']')
	return span{start: start, end: len(k.scratch), scratch: true}, k.token()
}

// maxNested is the most members that an object within a record has.
const maxNested = 8

// objects reads an array of objects and states it anew in the scratch, with its documented members only.
func (k *checker) objects(m *member) (span, error) {
	if err := k.token(); err != nil {
		return span{}, err
	}
	start := len(k.scratch)
	k.scratch = append(k.scratch, '[')
	for n := 0; k.dec.PeekKind() != ']'; n++ {
		if k.dec.PeekKind() != '{' {
			k.wrong(m)
			if _, err := k.skip(); err != nil {
				return span{}, err
			}
			continue
		}
		var spans [maxNested]span
		if _, err := k.members(m.nested, spans[:], nil); err != nil {
			return span{}, err
		}
		if n > 0 {
			k.scratch = append(k.scratch, ',')
		}
		for i := range m.nested.members {
			k.scratch = append(k.scratch, m.nested.members[i].head...)
			k.scratch = k.appendSpan(k.scratch, spans[i])
		}
		k.scratch = append(k.scratch, '}')
	}
	k.scratch = append(k.scratch, ']')
	return span{start: start, end: len(k.scratch), scratch: true}, k.token()
}

// unknown reads over a member that p does not have, or keeps it if the operator says so.
func (k *checker) unknown(p *plan, rawName []byte) error {
	if !k.pass || p != k.plan {
		_, err := k.skip()
		return err
	}
	before := len(k.extra)
	k.extra = append(append(append(k.extra, ','), rawName...), ':')
	known := p.similar(k.unquote(rawName))
	s, err := k.skip()
	if err != nil {
		return err
	}
	if known {
		k.extra = k.extra[:before]
		return nil
	}
	// Compact. It was read once already, so that there is nothing left to fail.
	if k.extra, err = jsontext.AppendFormat(k.extra, k.body[s.start:s.end]); err != nil {
		return k.syntax(err)
	}
	return nil
}

// similar reports whether a name differs from a known one by its case at most. Readers that match names without
// regard to case would take one for the other.
func (p *plan) similar(name []byte) bool {
	for i := range p.members {
		if strings.EqualFold(p.members[i].name, string(name)) {
			return true
		}
	}
	return false
}

// skip reads over a value of any kind, token by token, so that its depth costs no stack.
func (k *checker) skip() (span, error) {
	if kind := k.dec.PeekKind(); kind != '{' && kind != '[' {
		return k.raw()
	}
	depth := k.dec.StackDepth()
	start := -1
	for {
		if err := k.token(); err != nil {
			return span{}, err
		}
		if start < 0 {
			start = int(k.dec.InputOffset()) - 1
		}
		switch d := k.dec.StackDepth(); {
		case d > MaxDepth:
			return span{}, k.refuse(ErrNotContract, "", "objects and arrays at most 64 deep")
		case d <= depth:
			return span{start: start, end: int(k.dec.InputOffset())}, nil
		}
	}
}
