package pages

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// The longest texts of others that a page shows, in characters.
const (
	maxLabel = 64
	maxText  = 500
)

// clean makes what others say of themselves fit to be shown beside what we say: one line of no more characters than most,
// without anything that is invisible, changes the direction of the text around it, or piles up over other lines.
// html/template does the rest.
func clean(s string, most int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	var b strings.Builder
	var n, marks int
	var space bool
	for _, r := range s {
		switch {
		case unicode.IsSpace(r) || blank(r):
			space = b.Len() > 0
			continue
		case unicode.IsControl(r), unicode.In(r, unicode.Cf, unicode.Co, unicode.Cs):
			continue
		case unicode.Is(unicode.M, r):
			if marks++; marks > 2 {
				continue
			}
		default:
			marks = 0
		}
		if space {
			b.WriteByte(' ')
			n++
			space = false
		}
		if n >= most {
			return strings.TrimRight(b.String(), " ") + "…"
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}

// blank reports whether r is a letter or symbol that shows nothing.
func blank(r rune) bool {
	switch r {
	case '\u115F', '\u1160', '\u2800', '\u3164', '\uFFA0', '\u034F', '\u17B4', '\u17B5':
		return true
	}
	return unicode.In(r, unicode.Zl, unicode.Zp, unicode.Zs)
}

// initial is the letter that stands for a name in its badge.
func initial(name string) string {
	for _, r := range name {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return string(unicode.ToUpper(r))
		}
	}
	r, _ := utf8.DecodeRuneInString(name)
	if r == utf8.RuneError {
		return "?"
	}
	return string(r)
}
