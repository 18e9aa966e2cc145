package explain

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
)

// escapes returns the functions of several languages: which characters, besides letters and digits, each leaves as it is, and whether
// it writes + for a space in the query.
func escapes() []escape {
	return []escape{
		{"as encodeURIComponent does", "-_.!~*'()", false},
		{"as encodeURI does", "-_.!~*'();/?:@&=+$,#", false},
		{"as RFC 3986 does", "-_.~", false},
		{"as Python's quote does", "-_.~/", false},
		{"as Python's urlencode does", "-_.~", true},
		{"as Java's URLEncoder does", "-_.*", true},
		{"as PHP's urlencode does", "-_.", true},
	}
}

type escape struct {
	name, unescaped string
	plus            bool
}

func (e escape) text(s string, plus bool) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte(e.unescaped, c) >= 0:
			b.WriteByte(c)
		case c == ' ' && plus:
			b.WriteByte('+')
		default:
			b.WriteString("%" + strings.ToUpper(hex.EncodeToString([]byte{c})))
		}
	}
	return b.String()
}

// encode decodes the segments of the path, and the names and values of the query, and escapes them again.
func (e escape) encode(target string) string {
	return e.encodeAs(target, func(s string) string { return s })
}

// encodeAs is like encode. It changes the decoded text before it is escaped.
func (e escape) encodeAs(target string, change func(string) string) string {
	path, query, hasQuery := strings.Cut(target, "?")
	segments := strings.Split(path, "/")
	for i, s := range segments {
		segments[i] = e.text(change(pathUnescape(s)), false)
	}
	out := strings.Join(segments, "/")
	if !hasQuery {
		return out
	}
	pairs := strings.Split(query, "&")
	for i, p := range pairs {
		name, value, hasValue := strings.Cut(p, "=")
		pairs[i] = e.text(change(queryUnescape(name)), e.plus)
		if hasValue {
			pairs[i] += "=" + e.text(change(queryUnescape(value)), e.plus)
		}
	}
	return out + "?" + strings.Join(pairs, "&")
}

func pathUnescape(s string) string { return recode(url.PathUnescape, s) }

func queryUnescape(s string) string { return recode(url.QueryUnescape, s) }

// recode returns what convert makes of s, or s itself if it fails.
func recode(convert func(string) (string, error), s string) string {
	if out, err := convert(s); err == nil {
		return out
	}
	return s
}

func asciiOnly(s string) string {
	return strings.Map(func(r rune) rune {
		if r > unicode.MaxASCII {
			return '?'
		}
		return r
	}, s)
}

// anEscape is a percent escape.
var anEscape = regexp.MustCompile(`%..`)

// objects returns the parameters of a query as JSON, and as a Python dictionary.
func objects(query string) (all []string) {
	for _, quoted := range []bool{false, true} {
		var members []string
		for p := range strings.SplitSeq(query, "&") {
			name, value, _ := strings.Cut(p, "=")
			value = queryUnescape(value)
			if quoted || !isDigits(value) {
				value = strconv.Quote(value)
			}
			members = append(members, strconv.Quote(queryUnescape(name))+":"+value)
		}
		object := "{" + strings.Join(members, ",") + "}"
		all = append(all, object, spaced(object), strings.ReplaceAll(spaced(object), `"`, "'"))
	}
	return all
}

// reserialized returns the ways in which common libraries write the same JSON.
func reserialized(body []byte) []string {
	var compact bytes.Buffer
	if json.Compact(&compact, body) != nil {
		return nil
	}
	kept := compact.String()
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	var plain bytes.Buffer
	e := json.NewEncoder(&plain)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil
	}
	sorted := strings.TrimSuffix(plain.String(), "\n")
	var all []string
	for _, s := range []string{kept, sorted} {
		all = append(all, s, spaced(s), ascii(s), ascii(spaced(s)), strings.ReplaceAll(s, "/", `\/`), ascii(strings.ReplaceAll(s, "/", `\/`)))
		for _, indent := range []string{"  ", "    ", "\t"} {
			var b bytes.Buffer
			if json.Indent(&b, []byte(s), "", indent) == nil {
				all = append(all, b.String())
			}
		}
	}
	return all
}

// jsonToken is a string, or what is between values.
var jsonToken = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[,:]`)

// spaced writes JSON as Python's json.dumps does, with a space after each comma and colon.
func spaced(compact string) string {
	return jsonToken.ReplaceAllStringFunc(compact, func(token string) string {
		if token == "," || token == ":" {
			token += " "
		}
		return token
	})
}

// ascii escapes all other characters as \uXXXX.
func ascii(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r < 0x80 {
			b.WriteRune(r)
			continue
		}
		for _, u := range utf16.Encode([]rune{r}) {
			b.WriteString(`\u` + hex.EncodeToString(binary.BigEndian.AppendUint16(nil, u)))
		}
	}
	return b.String()
}

func utf16Text(order binary.AppendByteOrder) func(string) string {
	return func(s string) string {
		var b []byte
		for _, u := range utf16.Encode([]rune(s)) {
			b = order.AppendUint16(b, u)
		}
		return string(b)
	}
}
