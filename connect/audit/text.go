package audit

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// cleanText returns s as valid UTF-8 without control and formatting characters, which would let what a client says of
// itself rewrite the lines around it, cut to at most bound bytes.
func cleanText(s string, bound int) string {
	if len(s) > 4*bound { // no need to walk through what is cut off in any case
		s = s[:4*bound]
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029':
			return -1
		default:
			return r
		}
	}, s)
	if len(s) <= bound {
		return s
	}
	s = s[:bound-len("…")]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + "…"
}
