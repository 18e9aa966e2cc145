package pages

import (
	"unicode"
	"unicode/utf8"

	"github.com/gatehouse-gateway/gatehouse/connect/internal/cleantext"
)

// The longest texts of others that a page shows, in characters.
const (
	maxLabel = 64
	maxText  = 500
)

// clean returns text of others as a page shows it: one line of at most that many characters. html/template escapes it.
func clean(s string, most int) string { return cleantext.Line(s, most) }

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
