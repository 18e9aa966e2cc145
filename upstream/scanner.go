package upstream

import (
	"bytes"
	"encoding/binary"
	"fmt"
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

// abort stops reading, because the body, or the value that begins there, is not valid JSON at k.pos.
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
		Kind: ErrContractViolation, Resource: k.op.Resource, Record: k.recordIndex, Expected: fmt.Sprintf("%s (byte %d)", expected, k.brokenAt),
	}
}

// skipSpace skips white space.
func (k *checker) skipSpace() {
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
	k.skipSpace()
	if k.pos == len(k.body) {
		k.abort()
		return 0
	}
	return k.body[k.pos]
}

// next moves to the n-th member or element of an object or array, counted from 0. It returns false after the last one, when it
// has moved past the end, and after abort.
func (k *checker) next(end byte, n int) bool {
	if n > 0 && k.pos+1 < len(k.body) && k.body[k.pos] == ',' && k.body[k.pos+1] > ' ' { // compact JSON
		k.pos++
		return true
	}
	return k.nextOrEnd(end, n)
}

func (k *checker) nextOrEnd(end byte, n int) bool {
	c := k.kind()
	switch {
	case k.broken:
		return false
	case c == end:
		k.pos++
		k.work += workOfValue + n*workOfMember
		return false
	case n == 0:
		return true
	case c == ',':
		k.pos++
		k.skipSpace()
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
	if k.kind() != ':' {
		k.abort()
		return raw
	}
	k.pos++
	k.skipSpace()
	return raw
}

// skip reads a value of any kind and returns its span. depth is that of the surrounding object or array.
func (k *checker) skip(depth int) (v span, err error) {
	first, start := k.kind(), k.pos
	switch first {
	case '{':
		err = k.skipObject(depth + 1)
	case '[':
		if depth == k.maxDepth {
			return span{}, k.tooDeep()
		}
		k.pos++
		for n := 0; err == nil && k.next(']', n); n++ {
			_, err = k.skip(depth + 1)
		}
	default:
		k.scalar(first, start)
	}
	if err == nil && k.broken {
		err = k.notJSON()
	}
	return span{start: start, end: k.pos}, err
}

// skipObject reads an object without a schema. depth is the object's.
func (k *checker) skipObject(depth int) error {
	if depth > k.maxDepth {
		return k.tooDeep()
	}
	start, names := k.pos, k.newNames()
	k.pos++
	for n := 0; k.next('}', n); n++ {
		k.addName(&names, k.name())
		if _, err := k.skip(depth); err != nil {
			return err
		}
	}
	return k.checkDistinct(names, start)
}

// literal reads a number, true, false or null.
func (k *checker) literal() {
	start := k.pos
	k.pos += literalLength(k.body[start:])
	if k.pos > start && (k.pos == len(k.body) || isDelimiter(k.body[k.pos])) {
		return
	}
	for k.pos < len(k.body) && !isDelimiter(k.body[k.pos]) {
		k.pos++
	}
	if k.pos < len(k.body) {
		k.pos = start
	}
	k.abort()
}

func isDelimiter(c byte) bool {
	switch c {
	case ',', ']', '}', ' ', '\t', '\r', '\n':
		return true
	}
	return false
}

const (
	// maxCompared is the maximum number of undocumented names of an object that are compared here. With more, jsontext reads the object again.
	maxCompared = 16

	// maxNames is the approximate maximum number of members in a value that jsontext reads, because it keeps their names in memory.
	maxNames = 1 << 17
)

// names are the undocumented names of an object, which must differ. A documented name that comes twice is noticed by its span.
type names struct {
	base, n      int // they begin at k.names[base]; n is their number
	hasDuplicate bool
}

func (k *checker) newNames() names { return names{base: len(k.names)} }

// addName adds a name, as sent. Its position is before k.pos.
func (k *checker) addName(in *names, raw []byte) {
	if in.n++; in.n > maxCompared || k.broken {
		return
	}
	for _, other := range k.names[in.base:] {
		in.hasDuplicate = in.hasDuplicate || k.sameName(raw, other)
	}
	k.names = append(k.names, raw)
}

// sameName reports whether two names are the same, with escapes or without.
func (k *checker) sameName(a, b []byte) bool {
	if !k.escapes || bytes.IndexByte(a, '\\') < 0 && bytes.IndexByte(b, '\\') < 0 {
		return bytes.Equal(a, b)
	}
	k.escaped, _ = jsontext.AppendUnquote(k.escaped[:0], a) // as validated by (*checker).string
	return bytes.Equal(k.escaped, k.unquote(b))
}

// checkDistinct returns an error if two undocumented names of the object from start to k.pos are equal.
func (k *checker) checkDistinct(in names, start int) error {
	k.names = k.names[:in.base]
	switch {
	case k.broken:
		return k.notJSON()
	case in.hasDuplicate:
		return k.duplicate()
	case in.n <= maxCompared:
		return nil
	}
	value := k.body[start:k.pos]
	if err := k.countWork(8 * len(value)); err != nil {
		return err
	}
	if bytes.Count(value, []byte{':'}) > maxNames {
		return k.violation(ErrContractViolation, "", "fewer undocumented members")
	}
	if !jsontext.Value(value).IsValid() { // its syntax has been read
		return k.duplicate()
	}
	return nil
}

// checkSize returns an error if the result is too large for the body. Missing members become null, so without a limit, a body such as
// `{},{},…` would grow about twentyfold.
func (k *checker) checkSize() error {
	if len(k.out) > 2*len(k.body)+1<<20 {
		return k.violation(ErrContractViolation, "", "a result at most twice the body's size: too many members are missing")
	}
	return nil
}

// consumeName reports whether the next name and its colon are as in the result: compact and without escapes. If they are, consumeName moves
// to the value.
func (k *checker) consumeName(head string) bool {
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

// text decodes the string at v, or returns nil if the value is not a string. The result is valid until the next call of unquote.
func (k *checker) text(v span) []byte {
	if v.isAbsent() || v.result {
		return nil
	}
	raw := k.raw(v)
	if raw[0] != '"' {
		return nil
	}
	return k.unquote(raw)
}
