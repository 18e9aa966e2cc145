package pages

import (
	"unicode"
	"unicode/utf8"

	"github.com/gatehouse-gateway/gatehouse/connect/internal/cleantext"
)

// Maximum lengths in characters of texts from clients and other services.
const (
	maxLabel = 64
	maxText  = 500
)

// clean returns text on one line, without invisible characters and of at most limit characters. html/template escapes it.
func clean(s string, limit int) string { return cleantext.Line(s, limit) }

// initial returns the letter of a name's badge.
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
