package upstream

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// This file reads a response's body in one pass. The pass finds the documented members and checks the JSON syntax. A syntax
// error ends all loops; see (*checker).abort. FuzzCheck compares the result with one that is read with jsontext;
// docs/performance.md says what the scanner gains.

// scan checks the UTF-8 of the body, and whether any string can contain escapes or control characters.
func (k *checker) scan() {
	k.broken = false
	if !utf8.Valid(k.body) {
		for !k.broken {
			r, size := utf8.DecodeRune(k.body[k.pos:])
			if r == utf8.RuneError && size == 1 {
				k.abort()
			} else {
				k.pos += size
			}
		}
	}
	k.escapes = bytes.IndexByte(k.body, '\\') >= 0
	k.controls = hasControl(k.body)
}

// hasControl reports whether any byte is below 0x20. It checks many bytes at a time.
func hasControl(b []byte) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; len(b) >= 32; b = b[32:] {
		w, x := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
		y, z := binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:])
		if ((w-ones*' ')&^w|(x-ones*' ')&^x|(y-ones*' ')&^y|(z-ones*' ')&^z)&highs != 0 {
			return true
		}
	}
	for ; len(b) >= 8; b = b[8:] {
		x := binary.LittleEndian.Uint64(b)
		if (x-ones*' ')&^x&highs != 0 {
			return true
		}
	}
	for _, c := range b {
		if c < ' ' {
			return true
		}
	}
	return false
}

// abort stops reading, because the body is not valid JSON at k.pos, or the value that begins there is not.
func (k *checker) abort() {
	if !k.broken {
		k.broken, k.brokenAt, k.pos = true, k.pos, len(k.body)
	}
}

// notJSON returns the error after abort.
func (k *checker) notJSON() error {
	expected := "valid JSON in UTF-8"
	if k.brokenAt == len(k.body) {
		expected = "a complete JSON document"
	}
	return &ContractError{
		Kind: ErrContractViolation, Resource: k.res.Name, Record: k.at, Expected: fmt.Sprintf("%s (byte %d)", expected, k.brokenAt),
	}
}

// space skips white space.
func (k *checker) space() {
	for k.pos < len(k.body) {
		switch k.body[k.pos] {
		case ' ', '\t', '\r', '\n':
			k.pos++
		default:
			return
		}
	}
}

// kind moves to the next value and returns its first byte. At the end of the body it aborts.
func (k *checker) kind() byte {
	if k.pos < len(k.body) && k.body[k.pos] > ' ' {
		return k.body[k.pos] // compact JSON
	}
	return k.kindAfterSpace()
}

func (k *checker) kindAfterSpace() byte {
	k.space()
	if k.pos == len(k.body) {
		k.abort()
		return 0
	}
	return k.body[k.pos]
}

// next moves to the n-th member or element of an object or array, counted from 0. It returns false after the last one, when it
// has moved past the end, and after abort.
func (k *checker) next(end byte, n int) bool {
	c := k.kind()
	switch {
	case k.broken:
		return false
	case c == end:
		k.pos++
		return false
	case n == 0:
		return true
	case c == ',':
		k.pos++
		k.space()
		return true
	default:
		k.abort()
		return false
	}
}

// string reads a string and returns it as sent, with its quotes. If there is no valid string, it aborts and returns `""`.
func (k *checker) string() []byte {
	start := k.pos
	if start == len(k.body) || k.body[start] != '"' {
		return k.noString()
	}
	end := start + 1
	for {
		n := bytes.IndexByte(k.body[end:], '"')
		if n < 0 {
			k.pos = len(k.body)
			return k.noString()
		}
		end += n
		// An odd number of backslashes before the quote escapes it.
		backslashes := 0
		for k.escapes && k.body[end-1-backslashes] == '\\' {
			backslashes++
		}
		end++
		if backslashes%2 == 0 {
			break
		}
	}
	raw := k.body[start:end]
	if k.controls && hasControl(raw) {
		return k.noString()
	}
	if k.escapes && bytes.IndexByte(raw, '\\') >= 0 {
		var err error
		if k.escaped, err = jsontext.AppendUnquote(k.escaped[:0], raw); err != nil {
			return k.noString()
		}
	}
	k.pos = end
	return raw
}

func (k *checker) noString() []byte {
	k.abort()
	return []byte(`""`)
}

// name reads a member's name and its colon, and returns the name as sent.
func (k *checker) name() []byte {
	raw := k.string()
	k.colon()
	return raw
}

// colon reads the colon between a name and its value.
func (k *checker) colon() {
	if k.kind() != ':' {
		k.abort()
		return
	}
	k.pos++
	k.space()
}

// skip reads a value of any kind and returns its span. depth is that of the surrounding object or array.
func (k *checker) skip(depth int) (span, error) {
	first, start := k.kind(), k.pos
	switch first {
	case '"':
		k.string()
	case '{', '[':
		if err := k.skipNested(depth); err != nil {
			return span{}, err
		}
		if k.broken {
			break
		}
		if err := k.distinct(start); err != nil {
			return span{}, err
		}
	default:
		k.literal()
	}
	if k.broken {
		return span{}, k.notJSON()
	}
	return span{start: start, end: k.pos}, nil
}

// skipNested skips an object or array by counting brackets. The caller must validate its content with the library. depth is that
// of the surrounding object or array.
func (k *checker) skipNested(depth int) error {
	for nested := depth; k.pos < len(k.body); {
		switch k.body[k.pos] {
		case '"':
			k.string()
			continue
		case '{', '[':
			if nested++; nested > maxDepth {
				return k.tooDeep()
			}
		case '}', ']':
			nested--
		}
		k.pos++
		if nested == depth {
			return nil
		}
	}
	k.abort()
	return nil
}

// literal reads a number, true, false or null.
func (k *checker) literal() {
	start := k.pos
	for k.pos < len(k.body) {
		switch k.body[k.pos] {
		case ',', ']', '}', ' ', '\t', '\r', '\n':
			if !isLiteral(k.body[start:k.pos]) {
				k.pos = start
				k.abort()
			}
			return
		}
		k.pos++
	}
	k.abort() // the outermost value is an object, so a literal cannot be last
}

// maxNames is the approximate number of members of a value that distinct checks, because the decoder keeps their names in a map.
const maxNames = 1 << 17

// distinct returns an error if the value from start to k.pos is not valid JSON or has duplicate names. It is for values with
// undocumented members; duplicates of documented ones are found by their bit in seen.
func (k *checker) distinct(start int) error {
	value := k.body[start:k.pos]
	switch {
	case bytes.Count(value, []byte{':'}) > maxNames:
		return k.violation(ErrContractViolation, "", "fewer undocumented members")
	case jsontext.Value(value).IsValid():
		return nil
	case jsontext.Value(value).IsValid(jsontext.AllowDuplicateNames(true)):
		return k.duplicate()
	default:
		k.pos = start
		k.abort()
		return k.notJSON()
	}
}

// checkSize returns an error if the result and the scratch are too large for the body. Missing members become null, so without a
// limit, a body such as `{},{},…` would grow about twentyfold.
func (k *checker) checkSize(result int) error {
	if result+len(k.scratch) > 2*len(k.body)+1<<20 {
		return k.violation(ErrContractViolation, "", "a result at most twice the body's size: too many members are missing")
	}
	return nil
}

// members reads an object at the given depth and stores the spans of p's members. seen has a bit for each member of p in the
// object. The first value of the wrong kind is recorded in k.invalid and is not an error here, because the record may be
// removed.
func (k *checker) members(p *schema, spans []span, depth int) (seen uint64, err error) {
	start, unknown := k.pos, false
	guess := k.guess[p.guess : p.guess+len(p.members)]
	k.pos++
	for at := 0; k.next('}', at); at++ {
		i, raw := k.member(p, at, guess)
		if i < 0 {
			unknown = true
			if err := k.unknown(p, raw, depth); err != nil {
				return 0, err
			}
			continue
		}
		if seen&(1<<i) != 0 {
			return 0, k.duplicate()
		}
		seen |= 1 << i
		if spans[i], err = k.value(&p.members[i], depth); err != nil {
			return 0, err
		}
	}
	switch {
	case k.broken:
		return 0, k.notJSON()
	case unknown:
		return seen, k.distinct(start)
	default:
		return seen, nil
	}
}

// member reads the name of the at-th member of an object and returns its index in p. If p does not have it, i is -1 and raw is
// the name as sent.
func (k *checker) member(p *schema, at int, guess []int) (i int, raw []byte) {
	guessing := at < len(guess)
	if guessing && k.named(p.members[guess[at]].head[1:]) {
		return guess[at], nil
	}
	raw = k.name()
	i, known := p.index[string(k.unquote(raw))]
	if !known {
		return -1, raw
	}
	if guessing {
		guess[at] = i
	}
	return i, nil
}

// named reports whether the next name and its colon are as in the result: compact and without escapes. If they are, named moves
// to the value.
func (k *checker) named(head string) bool {
	end := k.pos + len(head)
	if end > len(k.body) || string(k.body[k.pos:end]) != head {
		return false
	}
	k.pos = end
	return true
}

// unquote decodes a JSON string. The result is valid until the next call of unquote.
func (k *checker) unquote(raw []byte) []byte {
	if !k.escapes || bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	// It cannot fail, because (*checker).string has validated it.
	k.unquoted, _ = jsontext.AppendUnquote(k.unquoted[:0], raw)
	return k.unquoted
}

// text decodes the string at s, or returns nil if the value is not a string. The result is valid until the next call of unquote.
func (k *checker) text(s span) []byte {
	if s.end == 0 || s.scratch || k.body[s.start] != '"' {
		return nil
	}
	return k.unquote(k.body[s.start:s.end])
}

// value reads the value of a member. depth is that of the object.
func (k *checker) value(m *member, depth int) (span, error) {
	first, start := k.kind(), k.pos
	switch {
	case first == '"':
		k.string()
	case first == '[' && m.kind == KindTexts:
		return k.texts(m, depth+1)
	case first == '[' && m.kind == KindObjects:
		return k.objects(m, depth+1)
	case first == '[' || first == '{':
		k.noteInvalid(m)
		_, err := k.skip(depth)
		return span{}, err
	default:
		k.literal()
	}
	if k.broken {
		return span{}, k.notJSON()
	}
	if first == 'n' {
		if m.required {
			k.noteInvalid(m)
		}
		return span{}, nil
	}
	s := span{start: start, end: k.pos}
	if !k.hasKind(m.kind, first, s) {
		k.noteInvalid(m)
	}
	return s, nil
}

// noteInvalid records the first member with a value of the wrong kind.
func (k *checker) noteInvalid(m *member) {
	if k.invalid == nil {
		k.invalid = m
	}
}

// hasKind reports whether a scalar other than null has a kind. first is its first byte.
func (k *checker) hasKind(want Kind, first byte, s span) bool {
	if first != '"' {
		switch want {
		case KindInteger, KindKey, KindBusiness:
			return isInteger(k.body[s.start:s.end])
		case KindBool:
			return first == 't' || first == 'f'
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

// texts reads an array of strings and writes it to the scratch. depth is the array's.
func (k *checker) texts(m *member, depth int) (span, error) {
	k.pos++
	start := len(k.scratch)
	k.scratch = append(k.scratch, '[')
	for n := 0; k.next(']', n); n++ {
		if k.kind() != '"' {
			k.noteInvalid(m)
			if _, err := k.skip(depth); err != nil {
				return span{}, err
			}
			continue
		}
		if n > 0 {
			k.scratch = append(k.scratch, ',')
		}
		k.scratch = append(k.scratch, k.string()...)
	}
	if k.broken {
		return span{}, k.notJSON()
	}
	k.scratch = append(k.scratch, ']')
	return span{start: start, end: len(k.scratch), scratch: true}, nil
}

// maxNested is the maximum number of documented members of an object within a record.
const maxNested = 8

// objects reads an array of objects and writes it to the scratch with only the documented members. depth is the array's.
func (k *checker) objects(m *member, depth int) (span, error) {
	k.pos++
	start := len(k.scratch)
	k.scratch = append(k.scratch, '[')
	for n := 0; k.next(']', n); n++ {
		if k.kind() != '{' {
			k.noteInvalid(m)
			if _, err := k.skip(depth); err != nil {
				return span{}, err
			}
			continue
		}
		var spans [maxNested]span
		if _, err := k.members(m.nested, spans[:], depth+1); err != nil {
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
		if err := k.checkSize(0); err != nil {
			return span{}, err
		}
	}
	if k.broken {
		return span{}, k.notJSON()
	}
	k.scratch = append(k.scratch, ']')
	return span{start: start, end: len(k.scratch), scratch: true}, nil
}

// unknown skips the value of an undocumented member, or keeps it as configured. depth is that of the object.
func (k *checker) unknown(p *schema, rawName []byte, depth int) error {
	s, err := k.skip(depth)
	if err != nil || !k.pass || p != k.schema || p.similar(k.unquote(rawName)) {
		return err
	}
	k.extra = append(append(append(k.extra, ','), rawName...), ':')
	// Compacts the value. It cannot fail, because the value has been validated.
	k.extra, err = jsontext.AppendFormat(k.extra, k.body[s.start:s.end])
	return err
}

// similar reports whether a name equals a known one, ignoring case. Case-insensitive readers would confuse the two.
func (p *schema) similar(name []byte) bool {
	for i := range p.members {
		if strings.EqualFold(p.members[i].name, string(name)) {
			return true
		}
	}
	return false
}
