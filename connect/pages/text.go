package pages

import (
	"unicode"
	"unicode/utf8"
)

// Maximum lengths in characters of texts from clients and other services, which pages show after cleantext.Line.
const (
	maxLabel = 64
	maxText  = 500
)

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

// lowerFirst returns a sentence as it continues another one.
func lowerFirst(sentence string) string {
	r, n := utf8.DecodeRuneInString(sentence)
	return string(unicode.ToLower(r)) + sentence[n:]
}
