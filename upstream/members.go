package upstream

import (
	"bytes"
	"encoding/binary"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// The reading of an answer: one pass over its bytes, which finds the documented members and makes sure on the way that
// what it reads is JSON. Where it is not, the reader breaks off: every loop ends, and what has read says so by an error.
// What the byte offset and the cause are is then found by the library, see (*checker).valid.

// survey looks at the whole body for what would make each string of it worth a second look.
func (k *checker) survey() {
	k.broken = !utf8.Valid(k.body)
	k.escapes = bytes.IndexByte(k.body, '\\') >= 0
	k.controls = hasControl(k.body)
}

// hasControl reports whether any byte is below 0x20, eight of them at a time. A compact answer has none.
func hasControl(b []byte) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
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

// breakOff ends the reading: this is not JSON.
func (k *checker) breakOff() {
	k.broken, k.pos = true, len(k.body)
}

// notJSON is the error of a reading that has broken off.
func (k *checker) notJSON() error {
	return k.refuse(ErrNotContract, "", "valid JSON in UTF-8")
}

// space moves to the next byte that is no white space.
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

// kind moves to the next value and returns its first byte, 0 at the end of the body.
func (k *checker) kind() byte {
	k.space()
	if k.pos == len(k.body) {
		return 0
	}
	return k.body[k.pos]
}

// next moves to the next member or element, the n-th of its object or array counted from 0, or behind the end of the
// object or array, which it reports by false. So it does when the reading breaks off.
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
		k.breakOff()
		return false
	}
}

// string moves behind the string that begins here and returns it as it was sent, quotes included; an empty one when
// there is none.
func (k *checker) string() []byte {
	start := k.pos
	if start == len(k.body) || k.body[start] != '"' {
		return k.noString()
	}
	for i := start + 1; ; {
		n := bytes.IndexByte(k.body[i:], '"')
		if n < 0 {
			return k.noString()
		}
		i += n
		// The quote ends the string unless an odd number of backslashes stands before it.
		backslashes := 0
		for k.escapes && k.body[i-1-backslashes] == '\\' {
			backslashes++
		}
		i++
		if backslashes%2 == 0 {
			k.pos = i
			break
		}
	}
	raw := k.body[start:k.pos]
	if k.controls && hasControl(raw) {
		return k.noString()
	}
	if k.escapes && bytes.IndexByte(raw, '\\') >= 0 {
		var err error
		if k.escaped, err = jsontext.AppendUnquote(k.escaped[:0], raw); err != nil {
			return k.noString()
		}
	}
	return raw
}

func (k *checker) noString() []byte {
	k.breakOff()
	return []byte(`""`)
}

// name moves to the value of the member whose name begins here, and returns the name as it was sent.
func (k *checker) name() []byte {
	raw := k.string()
	k.colon()
	return raw
}

// colon moves from the end of a name to the member's value.
func (k *checker) colon() {
	if k.kind() != ':' {
		k.breakOff()
		return
	}
	k.pos++
	k.space()
}

// skip moves behind a value of any kind within an object or array at a depth, and says where it stands.
func (k *checker) skip(depth int) (span, error) {
	first, start := k.kind(), k.pos
	switch first {
	case '"':
		k.string()
	case '{', '[':
		if err := k.within(depth); err != nil {
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

// within moves behind the object or array that begins here, in one at a depth. It counts brackets; whoever calls it asks
// the library whether what is between them is JSON.
func (k *checker) within(depth int) error {
	for within := depth; k.pos < len(k.body); {
		switch k.body[k.pos] {
		case '"':
			k.string()
			continue
		case '{', '[':
			if within++; within > MaxDepth {
				return k.tooDeep()
			}
		case '}', ']':
			within--
		}
		k.pos++
		if within == depth {
			return nil
		}
	}
	k.breakOff()
	return nil
}

// literal moves behind a number, true, false or null.
func (k *checker) literal() {
	start := k.pos
	for k.pos < len(k.body) {
		switch k.body[k.pos] {
		case ',', ']', '}', ' ', '\t', '\r', '\n':
			if !isLiteral(k.body[start:k.pos]) {
				k.breakOff()
			}
			return
		}
		k.pos++
	}
	k.breakOff() // the document is an object: something stands behind every literal
}

// maxNames is about how many members a value may have that is asked for names that are there twice: the decoder keeps a
// map of them.
const maxNames = 1 << 17

// distinct is nil when every name from start to k.pos is there once in its object. It asks the decoder, and is for what
// the tables do not know: names that they do know are compared by their bit.
func (k *checker) distinct(start int) error {
	value := k.body[start:k.pos]
	switch {
	case bytes.Count(value, []byte{':'}) > maxNames:
		return k.refuse(ErrNotContract, "", "fewer members that are not documented")
	case !jsontext.Value(value).IsValid():
		return k.twice()
	default:
		return nil
	}
}

// grown is nil as long as what stands in the answer and in the scratch is in proportion to the body. Missing members
// become null: without a bound, `{},{},…` would make of every three bytes twenty times as many.
func (k *checker) grown(answer int) error {
	if answer+len(k.scratch) > 2*len(k.body)+1<<20 {
		return k.refuse(ErrNotContract, "", "an answer that missing members do not make more than twice as large")
	}
	return nil
}

// members reads the object that begins here, which is at a depth: where the value of each member of p stands. seen has a
// bit for each member that is there. A value that is not of its kind is noted in k.fault, the first one only, and read
// over; the error is for what is wrong whatever becomes of the record.
func (k *checker) members(p *plan, spans []span, depth int) (seen uint64, err error) {
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
			return 0, k.twice()
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

// member moves to the value of the member that begins here, the at-th of its object, and says which of p's it is: -1
// for none of them, whose name raw is as it was sent.
func (k *checker) member(p *plan, at int, guess []int) (i int, raw []byte) {
	guessing := at < len(guess)
	if guessing && k.named(p.members[guess[at]].name) {
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

// named reports whether the name that begins here is the given one, written without escapes, and moves to its value.
func (k *checker) named(name string) bool {
	start := k.pos + 1
	end := start + len(name)
	if end >= len(k.body) || k.body[start-1] != '"' || k.body[end] != '"' || string(k.body[start:end]) != name {
		return false
	}
	k.pos = end + 1
	k.colon()
	return true
}

// unquote returns what a JSON string stands for. It is valid until the next call of unquote.
func (k *checker) unquote(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	// (*checker).string has read it, so there is nothing left to fail.
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

// value reads the value of a member of an object at a depth.
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
		k.wrong(m)
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
			k.wrong(m)
		}
		return span{}, nil
	}
	s := span{start: start, end: k.pos}
	if !k.is(m.kind, first, s) {
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

// is reports whether a value that is neither null nor object nor array, and begins with first, is of a kind.
func (k *checker) is(want Kind, first byte, s span) bool {
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

// texts reads an array of strings, which is at a depth, and states it anew in the scratch.
func (k *checker) texts(m *member, depth int) (span, error) {
	k.pos++
	start := len(k.scratch)
	k.scratch = append(k.scratch, '[')
	for n := 0; k.next(']', n); n++ {
		if k.kind() != '"' {
			k.wrong(m)
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

// maxNested is the most members that an object within a record has.
const maxNested = 8

// objects reads an array of objects, which is at a depth, and states it anew in the scratch, with its documented
// members only.
func (k *checker) objects(m *member, depth int) (span, error) {
	k.pos++
	start := len(k.scratch)
	k.scratch = append(k.scratch, '[')
	for n := 0; k.next(']', n); n++ {
		if k.kind() != '{' {
			k.wrong(m)
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
		if err := k.grown(0); err != nil {
			return span{}, err
		}
	}
	if k.broken {
		return span{}, k.notJSON()
	}
	k.scratch = append(k.scratch, ']')
	return span{start: start, end: len(k.scratch), scratch: true}, nil
}

// unknown reads over a member that p does not have, or keeps it if the operator says so. depth is its object's.
func (k *checker) unknown(p *plan, rawName []byte, depth int) error {
	s, err := k.skip(depth)
	if err != nil || !k.pass || p != k.plan || p.similar(k.unquote(rawName)) {
		return err
	}
	k.extra = append(append(append(k.extra, ','), rawName...), ':')
	// Compact. It has been read as JSON, so there is nothing left to fail.
	k.extra, err = jsontext.AppendFormat(k.extra, k.body[s.start:s.end])
	return err
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

// tooDeep reports whether objects and arrays are nested deeper than MaxDepth. It may be given what is not JSON: up to
// where that shows it counts as the decoder does, and the decoder goes no further.
func tooDeep(body []byte) bool {
	depth, inString := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > MaxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}
