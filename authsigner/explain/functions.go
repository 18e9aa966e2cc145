package explain

import (
	"bytes"
	"crypto"
	_ "crypto/md5"    //nolint:gosec // to recognise signatures of callers who use it by mistake; nothing is accepted by it
	_ "crypto/sha1"   //nolint:gosec // likewise
	_ "crypto/sha256" // so that crypto.Hash knows it, like the others
	_ "crypto/sha3"   // likewise
	_ "crypto/sha512" // likewise
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/unicode"
)

// hashes returns the hash functions that callers use, by name.
func hashes() map[string]crypto.Hash {
	all := map[string]crypto.Hash{}
	for _, h := range []crypto.Hash{
		crypto.SHA256, crypto.SHA1, crypto.SHA512, crypto.SHA384, crypto.SHA512_256, crypto.SHA3_256, crypto.MD5, crypto.SHA224,
		crypto.SHA3_224, crypto.SHA3_512,
	} {
		all[h.String()] = h
	}
	return all
}

// functions returns the functions of formats, see search.expand.
func functions() map[string]func(string) string {
	all := map[string]func(string) string{
		"lower": strings.ToLower, "upper": strings.ToUpper, "json": strconv.Quote, "trim": strings.TrimSpace,
		"title": func(s string) string {
			return strings.ToUpper(s[:min(1, len(s))]) + strings.ToLower(s[min(1, len(s)):])
		},
		"cut":           func(s string) string { return s[:max(0, len(s)-1)] },
		"cut line feed": func(s string) string { return strings.TrimSuffix(strings.TrimSuffix(s, "\n"), "\r") },
		"slash":         func(s string) string { return strings.TrimSuffix(s, "/") },
		"before %":      func(s string) string { before, _, _ := strings.Cut(s, "%"); return before },
		"words":         func(s string) string { return strings.Join(strings.Fields(s), " ") },
		"base64":        func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
		"unpadded":      func(s string) string { return strings.TrimRight(s, "=") },
		"hex":           func(s string) string { return hex.EncodeToString([]byte(s)) },
		"from hex":      func(s string) string { return string(decodeHex(s)) },
		"from base64":   func(s string) string { return string(decodeBase64(s)) },
		"UTF-16LE":      func(s string) string { return encoded(unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM), s) },
		"UTF-16BE":      func(s string) string { return encoded(unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM), s) },
		"decoded":       pathUnescape,
		"query decoded": queryUnescape,
		"lower escapes": func(s string) string { return anEscape.ReplaceAllStringFunc(s, strings.ToLower) },
		"upper escapes": func(s string) string { return anEscape.ReplaceAllStringFunc(s, strings.ToUpper) },
		"as a value":    func(s string) string { return escape("-_.!~*'()", s) },
		"as a path":     func(s string) string { return escape("-_.~/", s) },
		"as a form":     url.QueryEscape,
		"object":        object,
		"compact":       func(s string) string { return rewritten(s, json.Compact) },
		"sorted":        func(s string) string { return rewritten(s, sorted) },
		"spaced":        spaced,
		"ascii":         ascii,
		"indented by 2": func(s string) string {
			return rewritten(s, func(b *bytes.Buffer, text []byte) error { return json.Indent(b, text, "", "  ") })
		},
		"indented by 4": func(s string) string {
			return rewritten(s, func(b *bytes.Buffer, text []byte) error { return json.Indent(b, text, "", "    ") })
		},
	}
	// What the functions of several languages leave as it is, besides letters and digits; after a space, if they write + for a
	// space in the query.
	for name, unescaped := range map[string]string{
		"encodeURIComponent": "-_.!~*'()", "encodeURI": "-_.!~*'();/?:@&=+$,#", "RFC 3986": "-_.~", "quote": "-_.~/", "urlencode": " -_.~",
		"URLEncoder": " -_.*", "PHP": " -_.",
	} {
		all[name] = func(target string) string {
			return encode(strings.TrimPrefix(unescaped, " "), unescaped[0] == ' ', target)
		}
	}
	return all
}

func escape(unescaped, s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(unescaped, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// encode decodes the segments of a path, and the names and values of its query, and escapes them again.
func encode(unescaped string, plus bool, target string) string {
	path, _, _ := strings.Cut(target, "?")
	query := queryPart.ReplaceAllStringFunc(target[len(path):], func(s string) string { return escape(unescaped, queryUnescape(s)) })
	if plus {
		query = strings.ReplaceAll(query, "%20", "+")
	}
	return pathPart.ReplaceAllStringFunc(path, func(s string) string { return escape(unescaped, pathUnescape(s)) }) + query
}

func pathUnescape(s string) string {
	if out, err := url.PathUnescape(s); err == nil {
		return out
	}
	return s
}

func queryUnescape(s string) string { return pathUnescape(strings.ReplaceAll(s, "+", "%20")) }

var (
	anEscape  = regexp.MustCompile(`%..`)
	pathPart  = regexp.MustCompile(`[^/]+`)
	queryPart = regexp.MustCompile(`[^?&=]+`)
	jsonToken = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[,:]`)
)

// object returns the parameters of a query as JSON.
func object(query string) string {
	var members []string
	for p := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(p, "=")
		if value = queryUnescape(value); !isDigits(value) {
			value = strconv.Quote(value)
		}
		members = append(members, strconv.Quote(queryUnescape(name))+":"+value)
	}
	return "{" + strings.Join(members, ",") + "}"
}

// rewritten returns what convert writes of JSON, or s if it is not JSON.
func rewritten(s string, convert func(b *bytes.Buffer, text []byte) error) string {
	var b bytes.Buffer
	if convert(&b, []byte(s)) != nil {
		return s
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// sorted writes JSON without white space and with its members sorted.
func sorted(b *bytes.Buffer, text []byte) error {
	d, e := json.NewDecoder(bytes.NewReader(text)), json.NewEncoder(b)
	d.UseNumber()
	e.SetEscapeHTML(false)
	var v any
	return errors.Join(d.Decode(&v), e.Encode(v))
}

// spaced writes JSON as Python's json.dumps does, with a space after each comma and colon.
func spaced(s string) string {
	return jsonToken.ReplaceAllStringFunc(s, func(token string) string {
		if token == "," || token == ":" {
			token += " "
		}
		return token
	})
}

// ascii escapes all other characters as \uXXXX.
func ascii(s string) string {
	var b strings.Builder
	for _, u := range utf16.Encode([]rune(s)) {
		if u < 0x80 {
			b.WriteByte(byte(u))
		} else {
			fmt.Fprintf(&b, `\u%04x`, u)
		}
	}
	return b.String()
}

func encoded(e encoding.Encoding, s string) string {
	out, _ := e.NewEncoder().String(s)
	return out
}
