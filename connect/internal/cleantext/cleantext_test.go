package cleantext_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/gatehouse-gateway/gatehouse/connect/internal/cleantext"
)

// samples are ordinary texts: what people write in the living scripts, composed and decomposed, and emoji.
func samples() map[string]string {
	return map[string]string{
		"English":                    "Gate on the north side sticks; call \"Bob\" <bob@example.com> & pay $5.\n\tThen: 100% done ~ ok",
		"French":                     "Où est l’été ? «\u00a0Ça coûte 12\u202f€\u00a0» — œuvre",
		"German":                     "Größe, Straße, „Anführung“, Ärger",
		"Vietnamese":                 "Tiếng Việt: Nguyễn Thị Ngọc Ánh",
		"Vietnamese, decomposed":     "Tie\u0302\u0301ng Vie\u0323\u0302t",
		"Lithuanian, decomposed":     "i\u0328\u0307\u0303",
		"Greek, polytonic":           "τῷ λόγῳ· ᾧτινι",
		"Greek, decomposed":          "ω\u0314\u0342\u0345",
		"Russian":                    "Съешь ещё этих мягких французских булок, й",
		"Ukrainian, decomposed":      "Киi\u0308в",
		"Hebrew":                     "שלום עולם, צה״ל",
		"Hebrew, with all its marks": "בְּרֵאשִׁ֖ית בָּרָ֣א אֱלֹהִ֑ים שָּׁ֖ם",
		"Arabic":                     "مرحبا بالعالم، السَّلَامُ عَلَيْكُمْ",
		"Arabic number sign":         "\u0600١٢٣",
		"Persian":                    "می\u200cخواهم کتاب\u200cها را ببینم؛ ه\u200d.ق",
		"Urdu":                       "یہ ایک جملہ ہے۔",
		"Syriac":                     "ܫܠܡܐ ܥܠܡܐ",
		"Hindi":                      "नमस्ते दुनिया, क्षत्रिय, हिंदी में",
		"Hindi, with joiners":        "क्\u200dष क्\u200cष",
		"Marathi":                    "दर्\u200dया",
		"Bengali":                    "র\u200d্যাব, বাংলা ভাষা",
		"Punjabi":                    "ਸਤਿ ਸ੍ਰੀ ਅਕਾਲ",
		"Gujarati":                   "નમસ્તે",
		"Tamil":                      "வணக்கம் உலகம்",
		"Telugu":                     "నమస్కారం, క్\u200cష",
		"Kannada":                    "ನಮಸ್ಕಾರ, ರ್\u200dಕ",
		"Malayalam, old chillu":      "അവന്\u200d വന്നു, അവള്\u200d",
		"Sinhala":                    "ශ්\u200dරී ලංකාව",
		"Thai":                       "ภาษาไทย น้ำผึ้ง ที่นี่",
		"Lao":                        "ສະບາຍດີ ນ້ຳ",
		"Khmer":                      "សួស្តី ស្ត្រី ប៉\u200cី",
		"Burmese":                    "မြန်မာဘာသာ လျှော့် ကျွန်ုပ်",
		"Tibetan":                    "བོད་སྐད། བསྒྲུབས། ཨོཾ་མ་ཎི་པདྨེ་ཧཱུྃ།",
		"Georgian":                   "გამარჯობა",
		"Armenian":                   "Բարեւ ձեզ",
		"Amharic":                    "ሰላም ለዓለም",
		"Cherokee":                   "ᎣᏏᏲ",
		"N'Ko":                       "ߒߞߏ ߛߓߍ",
		"Mongolian":                  "ᠮᠣᠩᠭᠣᠯ",
		"Chinese":                    "你好，世界。「助手」　全角",
		"Japanese":                   "こんにちは、世界。カタカナ、ガ",
		"Japanese, decomposed":       "か\u3099き\u3099は\u309a",
		"Korean":                     "안녕하세요 세계",
		"Korean, decomposed":         "\u1112\u1161\u11ab\u1100\u1173\u11af",
		"Javanese":                   "ꦲꦏ꧀ꦱꦫꦗꦮ",
		"Balinese":                   "ᬅᬓ᭄ᬱᬭᬩᬮᬶ",
		"Adlam":                      "𞤀𞤣𞤤𞤢𞤥",
		"Braille":                    "⠓⠑⠇⠇⠕⠀⠺⠕⠗⠇⠙",
		"mathematics":                "∀x∈ℝ: √(x²) = |x| ≤ 10⁻³, x\u0304",
		"phonetics":                  "ˈt̪ʰɛ̃ˑst",
		"music and symbols":          "♩♪♫ © ® ™ § ¶ € £ ¥ ₹ ½ ° …",
		"emoji":                      "😀 👍🏽 🎉 🇨🇦 ☎ ❤ ✂",
		"emoji, joined":              "👩\u200d🔧 👨\u200d👩\u200d👧\u200d👦 🏳\u200d🌈 🧑🏽\u200d🚀 ❤\u200d🔥 👁\u200d🗨 🙂\u200d↔ 🏃🏽\u200d♀\u200d➡",
		"keycap":                     "1\u20e3",
		"lines":                      "one\ntwo\n\n\tthree",
		"replacement character":      "caf\ufffd",
	}
}

func TestOrdinaryTextOfEveryScriptIsUnchanged(t *testing.T) {
	t.Parallel()
	for name, s := range samples() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, s, cleantext.Text(s))
			quoted, err := json.Marshal(map[string]string{s: s})
			require.NoError(t, err)
			require.Equal(t, string(quoted), string(cleantext.JSON(quoted)))
		})
	}
}

// TestNoCharacterThatIsNotVisiblePasses goes through all code points: alone, in the midst of Latin letters and in a run of
// its own, one that Unicode has as ignorable, a control, private or no character never passes.
func TestNoCharacterThatIsNotVisiblePasses(t *testing.T) {
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
	}
}

func TestWhatIsHiddenIsRemoved(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want string }{
		"tags":                                {"Hi\U000e0064\U000e0065\U000e006c", "Hi"},
		"a flag's tags":                       {"🏴\U000e0067\U000e0062\U000e007f", "🏴"},
		"variation selectors":                 {"❤\ufe0f a\ufe00\ufe01\U000e0100\U000e01ef", "❤ a"},
		"a run of variation selectors":        {"😀" + strings.Repeat("\ufe01\U000e0142", 100), "😀"},
		"Mongolian selectors":                 {"ᠮ\u180b\u180c\u180d\u180e\u180fᠣ", "ᠮᠣ"},
		"invisible operators":                 {"a\u2061\u2062\u2063\u2064b", "ab"},
		"soft hyphen":                         {"co\u00adoperate", "cooperate"},
		"zero width space and word joiner":    {"a\u200bb\u2060c\ufeffd", "abcd"},
		"bidirectional controls":              {"\u202aa\u202e\u202cb\u2066\u2067\u2068\u2069\u200e\u200f\u061c", "ab"},
		"Hangul fillers":                      {"a\u115f\u1160\u3164\uffa0b", "ab"},
		"combining grapheme joiner":           {"a\u034fb", "ab"},
		"Khmer inherent vowels":               {"ក\u17b4\u17b5", "ក"},
		"interlinear annotation":              {"a\ufff9b\ufffac\ufffb", "abc"},
		"replacement of an object":            {"a\ufffcb", "ab"},
		"noncharacters":                       {"a\ufdd0\uffff\U0010ffffb", "ab"},
		"private use":                         {"a\ue000\U000f0000\U00100000b", "ab"},
		"reserved for ignorable characters":   {"a\u2065\ufff0\U000e0fffb", "ab"},
		"musical controls":                    {"a\U0001d159\U0001d173\U0001d17ab", "ab"},
		"shorthand controls":                  {"a\U0001bca0\U0001bca3b", "ab"},
		"control characters":                  {"a\x00\x07\x1b[31m\x7f\u0085\u009bb\r\n\tc", "a[31mb\n\tc"},
		"line and paragraph separators":       {"a\u2028b\u2029c", "a\nb\nc"},
		"joiners between Latin letters":       {"a\u200cb\u200dc", "abc"},
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

func TestALineIsOneLine(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"  Claude \t\r\n App  ":                     "Claude App",
		"a\u2028b\u2029c\u0085d\u00a0\u3000\u2800e": "a b cd e",
		"\u0301a\u0301":                             "a\u0301",
		" \u0301\u200da":                            "a",
		"Z\u0300\u0301\u0302algo":                   "Z\u0300\u0301algo",
		strings.Repeat("é", 20):                     "éééééééééé…",
		strings.Repeat("xy", 20):                    "xyxyxyxyxy…",
		"123456789 x":                               "123456789…",
		"1234567 90":                                "1234567 90",
		"12345678क्\u200dष":                         "12345678क्…",
		"\u200b \u3164":                             "",
		"":                                          "",
	} {
		require.Equal(t, want, cleantext.Line(in, 10), "%q", in)
	}
}

func TestAQuotedNameCannotEndItsQuotation(t *testing.T) {
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
		require.Equal(t, want, cleantext.Quote(in, 60), "%q", in)
	}
	require.Equal(t, `"aaaaaaaaaa…"`, cleantext.Quote(strings.Repeat("a", 1000), 10))
}

func TestEveryStringOfJSONIsCleaned(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"a":"b","n":[1,null,true]}`:            `{"a":"b","n":[1,null,true]}`,
		"{\"a\u200b\":\"b\u202e\"}":              `{"a":"b"}`,
		`{"a":"b\u202e","c":"\udb40\udc41"}`:     `{"a":"b","c":""}`,
		`["\u0000\b\f\r\n\t\"\\\/é\u00e9"]`:      `["\n\t\"\\/éé"]`,
		"[\"\x7f\"]":                             `[""]`,
		`{"a":1,"a\u200b":2}`:                    `{"a":1,"a":2}`,
		`{"deep":[{"er":["x\u00ad\"y\u00ad"]}]}`: `{"deep":[{"er":["x\"y"]}]}`,
		`["\\u200b"]`:                            `["\\u200b"]`,
		`["\u2028"]`:                             `["\n"]`,
		// what is not JSON is not made JSON
		"[\"\u200b":         "[\"\u200b",
		`["\ud800\u200b"]`:  `["\ud800\u200b"]`,
		"[\"\xff\u200b\"]":  "[\"\xff\u200b\"]",
		"\u200b[1]":         "\u200b[1]",
		`["a\u200b" "b\q"]`: `["a" "b\q"]`,
		`"\`:                `"\`,
		``:                  ``,
	} {
		require.Equal(t, want, string(cleantext.JSON([]byte(in))), "%q", in)
	}
}

func FuzzCleanText(f *testing.F) {
	for _, s := range samples() {
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
		quoted, err := json.Marshal([]string{strings.ToValidUTF8(s, "\ufffd")})
		require.NoError(t, err)
		cleaned := cleantext.JSON(quoted)
		var back []string
		require.NoError(t, json.Unmarshal(cleaned, &back))
		require.Equal(t, []string{text}, back)
		require.Equal(t, string(cleaned), string(cleantext.JSON(cleaned)))
	})
}
