package upstream

import (
	"bytes"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxText is the largest MaxLength of a parameter.
const MaxText = 128

// Query is a query returned by CleanQuery.
type Query struct {
	Raw     string         // the query for the data service, without the '?'; empty if the resource has no parameters
	Numbers [MaxParams]int // the values of the parameters that are numbers, by their index in Params
}

// CleanQuery parses a raw query and returns its canonical form: the resource's parameters, each once, in the order of Params;
// numbers always present and within their bounds; RFC 3986 unreserved characters unencoded, and everything else as upper case
// %XX. Unknown parameters are removed, even if their encoding is invalid.
//
// The error is a *ParameterError if a known parameter is given twice (its name may be encoded), has an invalid
// percent-encoding, is not a whole number (`-?[0-9]+`, of any length) where one is required, or is text that is not UTF-8,
// contains a control character or is longer than MaxLength bytes. '+' is decoded as a space; ';' is an ordinary character.
//
// CleanQuery is idempotent. It runs in linear time and does not allocate if the query is canonical already.
func (r *Resource) CleanQuery(raw string) (Query, error) {
	var q Query
	if len(r.Params) == 0 {
		return q, nil
	}
	var values [MaxParams]string
	var given [MaxParams]bool
	for rest := raw; rest != ""; {
		var pair string
		pair, rest, _ = strings.Cut(rest, "&")
		name, value, _ := strings.Cut(pair, "=")
		i := r.paramIndex(name)
		if i < 0 {
			continue
		}
		if given[i] {
			return Query{}, badParam(r.Params[i].Name, "must be given only once")
		}
		given[i], values[i] = true, value
	}

	// Large enough for the longest query, so that it stays on the stack: two filters of MaxText encoded bytes.
	var room [1024]byte
	clean := room[:0]
	for i := range r.Params {
		p := &r.Params[i]
		if p.MaxLength > 0 {
			var decoded [MaxText]byte
			text, err := cleanText(decoded[:0], p, values[i])
			if err != nil {
				return Query{}, err
			}
			if len(text) > 0 {
				clean = appendEscaped(appendParam(clean, p.Name), text)
			}
			continue
		}
		n := p.Default
		if given[i] {
			var err error
			if n, err = cleanInteger(p, values[i]); err != nil {
				return Query{}, err
			}
		}
		q.Numbers[i] = n
		clean = strconv.AppendInt(appendParam(clean, p.Name), int64(n), 10)
	}
	if q.Raw = raw; string(clean) != raw {
		q.Raw = string(clean)
	}
	return q, nil
}

func badParam(name, reason string) error {
	return &ParameterError{Parameter: name, Reason: name + " " + reason}
}

// paramIndex returns the index of the parameter with an encoded name, or -1.
func (r *Resource) paramIndex(encoded string) int {
	name, err := url.QueryUnescape(encoded)
	if err != nil {
		return -1
	}
	return slices.IndexFunc(r.Params, func(p Param) bool { return p.Name == name })
}

// malformed is the reason why a parameter cannot be decoded.
const malformed = "contains invalid percent-encoding"

// cleanInteger parses `-?[0-9]+` and clamps it to the bounds of the parameter.
func cleanInteger(p *Param, value string) (int, error) {
	text, err := url.QueryUnescape(value)
	if err != nil {
		return 0, badParam(p.Name, malformed)
	}
	digits, negative := strings.CutPrefix(text, "-")
	if !isDigits(digits) {
		return 0, badParam(p.Name, "must be a whole number")
	}
	n, _ := strconv.Atoi(digits) // the largest int if the number is even larger
	if negative {
		n = -n
	}
	return min(max(n, p.Min), p.Max), nil
}

// cleanText appends the decoded value to buf.
func cleanText(buf []byte, p *Param, value string) ([]byte, error) {
	for i := 0; i < len(value); i++ {
		c := value[i]
		switch c {
		case '+':
			c = ' '
		case '%':
			if i+2 >= len(value) {
				return nil, badParam(p.Name, malformed)
			}
			high, ok1 := unhex(value[i+1])
			low, ok2 := unhex(value[i+2])
			if !ok1 || !ok2 {
				return nil, badParam(p.Name, malformed)
			}
			c, i = high<<4|low, i+2
		}
		if len(buf) == p.MaxLength {
			return nil, badParam(p.Name, "must be at most "+strconv.Itoa(p.MaxLength)+" bytes long")
		}
		buf = append(buf, c)
	}
	switch {
	case !utf8.Valid(buf):
		return nil, badParam(p.Name, "must be valid UTF-8")
	case bytes.ContainsFunc(buf, unicode.IsControl):
		return nil, badParam(p.Name, "must not contain control characters")
	default:
		return buf, nil
	}
}

// unhex returns the value of a hexadecimal digit.
func unhex(c byte) (value byte, ok bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	default:
		return 0, false
	}
}

// appendParam starts the next parameter: "&name=".
func appendParam(dst []byte, name string) []byte {
	if len(dst) > 0 {
		dst = append(dst, '&')
	}
	return append(append(dst, name...), '=')
}

// appendEscaped percent-encodes everything except RFC 3986's unreserved characters. A space becomes %20, because not all parsers
// decode '+'.
func appendEscaped(dst, text []byte) []byte {
	const hex = "0123456789ABCDEF"
	for _, c := range text {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~' {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', hex[c>>4], hex[c&15])
		}
	}
	return dst
}
