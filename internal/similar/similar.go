// Package similar finds what a misspelt name was meant to be.
package similar

import "strings"

// Nearest returns the candidate that differs least from a text, or "" if none is similar. One that the text ends with is often its
// opposite: unpaid is not paid.
func Nearest(text string, candidates []string) string {
	best, found := 1+len(text)/3, ""
	for _, c := range candidates {
		opposite := len(c) < len(text) && strings.HasSuffix(strings.ToLower(text), strings.ToLower(c))
		if n := distance(strings.ToLower(text), strings.ToLower(c)); n <= best && text != "" && text != c && !opposite {
			best, found = n-1, c
		}
	}
	return found
}

// distance returns how many bytes have to be added, removed or changed (Levenshtein), or a large number for long texts.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
