// Package cleantext makes the text of strangers safe to show. It removes the characters that a person does not see and that an assistant
// reads, or escapes those that a terminal obeys.
package cleantext

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// The most nonspacing and enclosing marks in a row. Four are enough for the text of every living script: a syllable of Burmese and a
// letter of the Hebrew Bible have as many.
const maxMarks = 4

// Text returns s without invisible characters. It removes:
//
//   - control characters except line feed and tab
//   - every Default_Ignorable_Code_Point (Unicode Standard Annex 44) such as soft hyphens, zero width spaces, bidirectional
//     controls, invisible operators, variation selectors, tags and fillers
//   - interlinear annotation characters, noncharacters, private use characters and the object replacement character
//   - the fifth and every further nonspacing or enclosing mark in a row
//
// A joiner (U+200C, U+200D) stays where it has an effect: a single one after a virama, between a letter of a script that uses
// joiners and a visible character, or between two emoji. A line or paragraph separator becomes a line feed, invalid UTF-8
// U+FFFD. Other text is unchanged, and Text(Text(s)) is Text(s).
func Text(s string) string {
	if ordinary(s) {
		return s
	}
	return string(clean(s))
}

// Line returns s as [Text] on one line, of at most limit characters and an ellipsis in place of the rest. White space is
// trimmed and each run of it is a single space; a mark at the beginning is removed.
func Line(s string, limit int) string {
	if !ordinary(s) {
		s = string(clean(s))
	}
	out := make([]byte, 0, min(len(s), 4*limit))
	space := false
	n := 0
	for _, r := range s {
		switch {
		case blank(r):
			space = n > 0
			continue
		case n == 0 && (joiner(r) || unicode.Is(unicode.M, r)):
			continue
		}
		if n++; space {
			n++
		}
		if n > limit {
			return strings.TrimRight(string(out), "\u200c\u200d") + "…"
		}
		if space {
			out = append(out, ' ')
			space = false
		}
		out = utf8.AppendRune(out, r)
	}
	return string(out)
}

// Quote returns s as a [Line] in quotation marks. Quotation marks within s become apostrophes, so that a name cannot end the
// quotation and continue the sentence that it is quoted in.
func Quote(s string, limit int) string {
	return `"` + strings.Map(func(r rune) rune {
		switch r {
		case '"', '\u02ba', '\u02dd', '\u02ee', '\u05f4', '\u201c', '\u201d', '\u201e', '\u201f', '\u2033', '\u2036', '\u275d',
			'\u275e', '\u2760', '\u301d', '\u301e', '\u301f', '\U0001f676', '\U0001f677', '\U0001f678', '\uff02':
			return '\''
		}
		return r
	}, Line(s, limit)) + `"`
}

// Description makes a caller's text valid in an error_description (RFC 6749, section 5.2): of at most limit bytes, with a question
// mark for each that is not allowed, and "..." in place of the rest.
func Description(s string, limit int) string {
	out := []byte(s[:min(len(s), limit)])
	for i, c := range out {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			out[i] = '?'
		}
	}
	if len(s) > limit {
		return string(out) + "..."
	}
	return string(out)
}

// Escape escapes control characters and other invisible ones, which a terminal might obey, but not line feeds. It keeps JSON valid.
func Escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r == '\n' || strconv.IsPrint(r) {
			_, _ = b.WriteRune(r) // a builder does not fail
			continue
		}
		for _, u := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, u)
		}
	}
	return b.String()
}

// ordinary reports whether all characters of a text are [common].
func ordinary(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !common(r) })
}

// common reports whether r is one of the most frequent visible characters that are not marks. Most texts have no others.
func common(r rune) bool {
	return r >= ' ' && r < 0x7f || r == '\n' || r == '\t' ||
		r >= 0xa0 && r < 0x300 && r != 0xad || // Latin
		r >= 0x370 && r < 0x483 || // Greek, Cyrillic
		r >= 0x4e00 && r < 0xa000 || r >= 0xac00 && r < 0xd7a4 // Han, Hangul
}

// clean is [Text] of any text. What it keeps depends only on what it kept before, so that it is idempotent.
func clean(s string) []byte {
	out := make([]byte, 0, len(s))
	var (
		base   rune   // last character that is neither a mark nor a joiner; 0 after white space
		last   rune   // last character that is not a joiner
		held   rune   // joiner that the next character decides about
		joined = true // no joiner may follow
		marks  int
	)
	for _, r := range strings.ToValidUTF8(s, "\ufffd") {
		mark := false
		switch {
		case common(r):
			marks = 0
		case joiner(r):
			if !joined {
				held, joined = r, true
			}
			continue
		case r == '\u2028' || r == '\u2029':
			r, marks = '\n', 0
		case unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector):
			continue
		case unicode.IsLetter(r):
			marks = 0
		case unicode.In(r, unicode.Mn, unicode.Me):
			if marks++; marks > maxMarks {
				joined = true // it may be there because of this mark
				continue
			}
			mark = true
		case hidden(r):
			continue
		default:
			mark, marks = unicode.Is(unicode.Mc, r), 0
		}
		if held != 0 && joins(base, last, r) {
			out = utf8.AppendRune(out, held)
		}
		out = utf8.AppendRune(out, r)
		last, held, joined = r, 0, false
		switch {
		case mark:
		case blank(r):
			base = 0
		default:
			base = r
		}
	}
	if held != 0 && virama(last) {
		out = utf8.AppendRune(out, held)
	}
	return out
}

// hidden reports whether r, which is neither a letter nor a mark, is invisible or a private use character.
func hidden(r rune) bool {
	switch {
	case r == '\ufffc', r == '\U0001d159': // object replacement character, musical null notehead
		return true
	case unicode.Is(unicode.Prepended_Concatenation_Mark, r): // format characters that are visible
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Noncharacter_Code_Point)
}

// blank reports whether r is white space or the blank pattern of Braille.
func blank(r rune) bool { return unicode.IsSpace(r) || r == '\u2800' }

func joiner(r rune) bool { return r == '\u200c' || r == '\u200d' }

// joins reports whether a joiner between last and next has a visible effect (RFC 5892, appendix A, extended by emoji, Bengali and
// Khmer).
func joins(base, last, next rune) bool {
	return virama(last) || emoji(last) && emoji(next) || !blank(next) && joining(base)
}

func virama(r rune) bool { return norm.NFC.PropertiesString(string(r)).CCC() == 9 }

// emoji reports whether r is in one of the blocks that emoji are in. The Braille patterns are between them.
func emoji(r rune) bool {
	return r >= 0x2190 && r < 0x2800 || r >= 0x2900 && r < 0x2c00 || r >= 0x1f000 && r < 0x1fb00
}

// joining reports whether r is a letter of a script in which joiners select the forms of letters.
func joining(r rune) bool {
	return unicode.IsLetter(r) && unicode.In(r, unicode.Adlam, unicode.Arabic, unicode.Bengali, unicode.Devanagari,
		unicode.Gujarati, unicode.Gurmukhi, unicode.Hanifi_Rohingya, unicode.Kannada, unicode.Khmer, unicode.Malayalam,
		unicode.Mandaic, unicode.Mongolian, unicode.Nko, unicode.Oriya, unicode.Phags_Pa, unicode.Sinhala, unicode.Sogdian,
		unicode.Syriac, unicode.Tamil, unicode.Telugu)
}
