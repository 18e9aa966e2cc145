package account

import (
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/collate"
	"golang.org/x/text/language"
	"golang.org/x/text/unicode/norm"
)

// FoldAddress returns a key for an email address that is the same for all spellings that an accounts service may treat as equal:
// those that differ only in case, width, accents, compatibility forms, spaces or invisible characters, or that are equal in database
// collations, such as ø and o.
func FoldAddress(email string) string {
	folded := cases.Fold().String(norm.NFKD.String(strings.ToUpper(email))) // dotless i is I in upper case only
	folded = strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.M, unicode.Z, unicode.C, unicode.Other_Default_Ignorable_Code_Point) {
			return -1
		}
		return r
	}, norm.NFKD.String(folded))
	var b collate.Buffer
	return string(collate.New(language.Und, collate.Loose).KeyFromString(&b, folded))
}
