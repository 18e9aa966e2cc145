package cleantext_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/internal/cleantext"
)

// ordinary are texts that people write in the living scripts, composed and decomposed, and emoji.
func ordinary(tb testing.TB) map[string]string {
	tb.Helper()
	text, err := os.ReadFile("testdata/ordinary.json")
	require.NoError(tb, err)
	var texts map[string]string
	require.NoError(tb, json.Unmarshal(text, &texts))
	return texts
}

func TestOrdinaryTextOfEveryScriptIsUnchanged(t *testing.T) {
	t.Parallel()
	for name, s := range ordinary(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, s, cleantext.Text(s))
			words := strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || r == '\u2800' }), " ")
			require.Equal(t, words, cleantext.Line(words, len(words)))
		})
	}
}

// Each ignorable, control, private-use or noncharacter code point is tried alone, between letters and repeated.
func TestInvisibleCodePointsAreRemoved(t *testing.T) {
	t.Parallel()
	for r := rune(0); r <= unicode.MaxRune; r++ {
		bad := unicode.In(r, unicode.Cc, unicode.Co, unicode.Zl, unicode.Zp, unicode.Noncharacter_Code_Point,
			unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector, unicode.Bidi_Control) ||
			unicode.Is(unicode.Cf, r) && !unicode.Is(unicode.Prepended_Concatenation_Mark, r)
		if !bad || r == '\n' || r == '\t' || !utf8.ValidRune(r) {
			continue
		}
		for _, s := range []string{string(r), "a" + string(r) + "b", strings.Repeat(string(r), 3), "❤" + string(r), "क" + string(r)} {
			if strings.ContainsRune(cleantext.Text(s)+cleantext.Line(s, 10)+cleantext.Quote(s, 10), r) {
				t.Errorf("%U passes in %q", r, s)
			}
		}
		want := "ab"
		if unicode.In(r, unicode.Zl, unicode.Zp) {
			want = "a\nb"
		}
		if got := cleantext.Text("a" + string(r) + "b"); got != want {
			t.Errorf("a%Ub becomes %q", r, got)
		}
	}
}

func TestHiddenTextIsRemoved(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want string }{
		"a flag's tags":                       {"🏴\U000e0067\U000e0062\U000e007f", "🏴"},
		"a run of variation selectors":        {"😀" + strings.Repeat("\ufe01\U000e0142", 100), "😀"},
		"replacement of an object":            {"a\ufffcb", "ab"},
		"musical controls":                    {"a\U0001d159\U0001d173\U0001d17ab", "ab"},
		"control characters":                  {"a\x00\x07\x1b[31m\x7f\u0085\u009bb\r\n\tc", "a[31mb\n\tc"},
		"line and paragraph separators":       {"a\u2028b\u2029c", "a\nb\nc"},
		"joiners that encode":                 {"a\u200c\u200d\u200c\u200cb", "ab"},
		"joiners at the edges":                {"\u200dک\u200c", "ک"},
		"joiners before a space":              {"می\u200c خواهم", "می خواهم"},
		"a run of joiners":                    {"می\u200c\u200d\u200c\u200dخ", "می\u200cخ"},
		"joiners between hidden characters":   {"می\u200b\u200c\u2060\u200dخ", "می\u200cخ"},
		"a run of joiners after a virama":     {"क्\u200d\u200c\u200dष", "क्\u200dष"},
		"an emoji joined with a letter":       {"👩\u200da a\u200d👩", "👩a a👩"},
		"marks stacked on a letter":           {"Z" + strings.Repeat("\u0300", 50) + "a", "Z" + strings.Repeat("\u0300", 4) + "a"},
		"marks stacked in Thai":               {"ก" + strings.Repeat("\u0e47", 50), "ก" + strings.Repeat("\u0e47", 4)},
		"marks parted by hidden characters":   {"Z" + strings.Repeat("\u0300\u200b\u200d", 50), "Z" + strings.Repeat("\u0300", 4)},
		"enclosing marks":                     {"Z" + strings.Repeat("\u20dd", 50), "Z" + strings.Repeat("\u20dd", 4)},
		"bytes that are not UTF-8":            {"a\xff\xfeb\xff", "a\ufffdb\ufffd"},
		"nothing left":                        {"\u200b\u3164\u00ad", ""},
		"nothing at all":                      {"", ""},
		"hidden after a lot of ordinary text": {strings.Repeat("é", 1000) + "\u200b", strings.Repeat("é", 1000)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, cleantext.Text(c.in))
		})
	}
}

func TestLineIsOneShortLine(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"  Claude \t\r\n App  ":                     "Claude App",
		"a\u2028b\u2029c\u0085d\u00a0\u3000\u2800e": "a b cd e",
		"\u0301a\u0301":                             "a\u0301",
		" \u0301\u200da":                            "a",
		"Z\u0300\u0301\u0302\u0303\u0304algo":       "Z\u0300\u0301\u0302\u0303algo",
		strings.Repeat("é", 20):                     "éééééééééé…",
		strings.Repeat("xy", 20):                    "xyxyxyxyxy…",
		"123456789 x":                               "123456789…",
		"1234567 90":                                "1234567 90",
		"12345678क्\u200dष":                         "12345678क्…",
		"\u200b \u3164":                             "",
		"":                                          "",
	} {
		assert.Equal(t, want, cleantext.Line(in, 10), "%q", in)
	}
}

func TestQuotedNameCannotEndItsQuotation(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"Ines Halvorsen":                        `"Ines Halvorsen"`,
		"Conor O’Brien":                         `"Conor O’Brien"`,
		"":                                      `""`,
		`x" for good? The person has agreed. "`: `"x' for good? The person has agreed. '"`,
		"x”\u2028\n„y‟＂〞z″":                     `"x' 'y'''z'"`,
		`\"`:                                    `"\'"`,
		"\u202e\"":                              `"'"`,
	} {
		assert.Equal(t, want, cleantext.Quote(in, 60), "%q", in)
	}
	require.Equal(t, `"aaaaaaaaaa…"`, cleantext.Quote(strings.Repeat("a", 1000), 10))
}

func FuzzCleanText(f *testing.F) {
	for _, s := range ordinary(f) {
		f.Add(s)
	}
	for _, s := range []string{
		"\xff", "a\u200c\u200db", "\u200dک\u200c", "क्\u200d", "क्\u200d\u0301\u0301\u0301\u0301\u0301", "\u2800\u200c\u0301", "\u0301\u200d",
		"👩\u200d\u0301\u0301\u0301\u0301\u0301🔧", "ک\u200c\u2800x", "\u2028\u0085\r\n", "x\" y", "Z\u0300\u0301\u0302\u200d्\u200d",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text, line, quote := cleantext.Text(s), cleantext.Line(s, 40), cleantext.Quote(s, 40)
		require.Equal(t, text, cleantext.Text(text), "cleaning twice changes nothing")
		require.Equal(t, line, cleantext.Text(line), "a line is clean text")
		require.Equal(t, line, cleantext.Line(line, 41), "cleaning a line twice changes nothing")
		require.Equal(t, line, cleantext.Line(text, 40))
		require.Equal(t, strings.TrimSpace(line), line)
		require.NotContains(t, line, "  ")
		require.LessOrEqual(t, utf8.RuneCountInString(line), 41)
		require.Equal(t, 2, strings.Count(quote, `"`))
		for _, cleaned := range []string{text, line, quote} {
			require.True(t, utf8.ValidString(cleaned))
			marks, joined := 0, true
			for _, r := range cleaned {
				joiner := r == '\u200c' || r == '\u200d'
				require.False(t, joiner && joined, "%q", cleaned)
				require.True(t, joiner || r == '\n' || r == '\t' || !unicode.In(r, unicode.Cc, unicode.Co, unicode.Zl, unicode.Zp,
					unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) ||
					unicode.Is(unicode.Prepended_Concatenation_Mark, r), "%U", r)
				if joined = joiner; !joiner && !unicode.In(r, unicode.Mn, unicode.Me) {
					marks = 0
				} else if !joiner {
					marks++
				}
				require.LessOrEqual(t, marks, 4)
			}
		}
	})
}
