package explain

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/md5"  //nolint:gosec // to recognise signatures of callers who use it by mistake; nothing is accepted by it
	"crypto/sha1" //nolint:gosec // likewise
	"crypto/sha256"
	"crypto/sha3"
	"crypto/sha512"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// apiPrefix is the beginning of every signed path.
const apiPrefix = "/api/v1"

const (
	// minSecretPart is the minimum length in bytes of a part of a private key that is tried. A shorter part could be guessed,
	// and a request signed with the guess would then be explained.
	minSecretPart = 16

	// bodyHashes is how many of the hash functions are tried on the body.
	bodyHashes = 7

	// maxLeftOut is the number of parameters up to which the query is tried without each of them. The API has fewer.
	maxLeftOut = 8
)

// newSearch returns the search for one attempt.
func newSearch(a *Attempt, cred *authsigner.Credential, now time.Time) *search {
	timestamps, milliseconds := a.timestamps()
	return &search{
		attempt: a,
		right: parts{
			timestamp: a.Timestamp, method: a.Method, target: a.signedTarget(), body: string(a.Body),
			publicKey: a.PublicKey, host: a.Host, secret: cred.PrivateKey.Reveal(),
			join:   func(p *parts) string { return strings.Join(p.list(), "\n") },
			encode: func(s string) string { return s },
			sum:    hmacOf(sha256.New),
		},
		dims: [][]variant{
			a.algorithms(), a.secrets(cred, now), timestamps, a.methods(), a.targets(), a.bodies(), a.joins(), encodings(),
		},
		alone: milliseconds,
	}
}

// list returns the parts in the order in which they are signed.
func (p *parts) list() []string { return []string{p.timestamp, p.method, p.target, p.body} }

// signedTarget returns the target without the path under which the gateway is mounted.
func (a *Attempt) signedTarget() string {
	if rest, ok := strings.CutPrefix(a.Target, a.BasePath); ok && strings.HasPrefix(rest, "/") {
		return rest
	}
	return a.Target
}

// texts builds the variants of one text part. Those that are equal to the right one, or to an earlier one, are left out.
type texts struct {
	right    string
	seen     map[string]bool
	set      func(p *parts, s string)
	variants []variant
}

func newTexts(right string, set func(p *parts, s string)) *texts {
	return &texts{right: right, seen: map[string]bool{right: true}, set: set}
}

func (t *texts) add(s, code string, arguments ...any) {
	if t.seen[s] {
		return
	}
	t.seen[s] = true
	t.variants = append(t.variants, variant{code, arguments, func(p *parts) { t.set(p, s) }})
}

// timestamps returns other timestamps, and apart from them the many with each possible millisecond or time zone.
func (a *Attempt) timestamps() (some, milliseconds []variant) {
	t := newTexts(a.Timestamp, func(p *parts, s string) { p.timestamp = s })
	at, _, _ := instant(a.Timestamp)
	if at.IsZero() {
		return nil, nil
	}
	add := func(s string) { t.add(s, "timestamp_other", strconv.Quote(s)) }
	seconds := at.Unix()
	add(strconv.FormatInt(seconds, 10))
	for off := int64(1); off <= 3; off++ { // the clock was read twice
		add(strconv.FormatInt(seconds+off, 10))
		add(strconv.FormatInt(seconds-off, 10))
	}
	add(strconv.FormatInt(at.UnixMilli(), 10))
	add(strconv.FormatInt(at.UnixMicro(), 10))
	add(strconv.FormatInt(at.UnixNano(), 10))
	add(strconv.FormatInt(seconds, 10) + ".0")
	utc := at.UTC()
	for _, layout := range timestampLayouts() {
		add(utc.Format(layout))
	}
	add(utc.Format("2006-01-02T15:04:05.000Z"))
	some = t.variants
	for milli := range int64(1000) { // the header was rounded, the signed timestamp was not
		add(strconv.FormatInt(seconds*1000+milli, 10))
	}
	const quarter = 15 * 60
	for zone := int64(1); zone <= 14*4; zone++ { // local time taken for UTC
		add(strconv.FormatInt(seconds+zone*quarter, 10))
		add(strconv.FormatInt(seconds-zone*quarter, 10))
	}
	return some, t.variants[len(some):]
}

func (a *Attempt) methods() []variant {
	t := newTexts(a.Method, func(p *parts, s string) { p.method = s })
	lower := strings.ToLower(a.Method)
	t.add(lower, "method_case", strconv.Quote(lower))
	if lower != "" {
		title := strings.ToUpper(lower[:1]) + lower[1:]
		t.add(title, "method_case", strconv.Quote(title))
	}
	for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
		t.add(m, "method_other", strconv.Quote(m))
	}
	return t.variants
}

// defaultPorts are the ports that URLs and the Host header leave out.
func defaultPorts() map[string]string { return map[string]string{"https": ":443", "http": ":80"} }

func (a *Attempt) targets() []variant {
	right := a.signedTarget()
	t := newTexts(right, func(p *parts, s string) { p.target = s })
	path, query, hasQuery := strings.Cut(right, "?")

	t.add(a.Target, "path_base")
	for _, target := range []string{right, a.Target} {
		for _, scheme := range []string{a.Scheme, "https", "http"} {
			if scheme != "" && a.Host != "" {
				t.add(scheme+"://"+a.Host+target, "path_origin", "scheme and host")
				t.add(scheme+"://"+a.Host+defaultPorts()[scheme]+target, "path_origin", "scheme, host and port")
			}
		}
		if a.Host != "" {
			host, _, _ := strings.Cut(a.Host, ":")
			t.add(a.Host+target, "path_origin", "the host")
			t.add(host+target, "path_origin", "the host")
			t.add("//"+a.Host+target, "path_origin", "the host")
		}
	}
	if rest, ok := strings.CutPrefix(right, apiPrefix); ok {
		t.add(rest, "path_prefix_missing")
		t.add("/v1"+rest, "path_prefix_missing")
	}
	if hasQuery {
		t.add(path, "path_query_missing")
		t.add(path+"?", "path_query_missing")
	} else {
		t.add(right+"?", "path_fragment", "a question mark")
	}
	t.add(strings.TrimPrefix(right, "/"), "path_slash", "it begins without one")
	with := func(path string) string {
		if hasQuery {
			return path + "?" + query
		}
		return path
	}
	t.add(with(path+"/"), "path_slash", "it has another one at its end")
	t.add(with(strings.TrimSuffix(path, "/")), "path_slash", "it has none at its end")
	t.add("/"+right, "path_slash", "it begins with two")

	if s, err := url.PathUnescape(right); err == nil {
		t.add(s, "path_decoded")
	}
	if s, err := url.QueryUnescape(right); err == nil {
		t.add(s, "path_decoded")
	}
	t.add(hexCase(right, strings.ToLower), "path_encoded", "lower-case hex digits in escapes")
	t.add(hexCase(right, strings.ToUpper), "path_encoded", "upper-case hex digits in escapes")
	t.add(strings.ReplaceAll(right, "%20", "+"), "path_encoded", "+ for a space")
	t.add(strings.ReplaceAll(right, "+", "%20"), "path_encoded", "%20 for +")
	t.add(strings.ReplaceAll(right, "+", "%2B"), "path_encoded", "%2B for +")
	t.add(strings.ReplaceAll(right, "%2C", ","), "path_encoded", "commas not escaped")
	for _, e := range escapes() {
		if s, ok := e.encode(right); ok {
			t.add(s, "path_encoded", e.name)
		}
	}
	t.add(url.QueryEscape(right), "path_encoded", "the whole path escaped as a value")
	t.add(strings.ToLower(right), "path_case", "lower")
	t.add(strings.ToUpper(right), "path_case", "upper")
	t.add((&url.URL{Path: path, RawQuery: query, ForceQuery: hasQuery && query == ""}).RequestURI(), "path_encoded", "encoded twice")
	t.add(strings.ReplaceAll(right, "%", "%25"), "path_encoded", "encoded twice")

	if hasQuery {
		pairs := strings.Split(query, "&")
		sorted := slices.Sorted(slices.Values(pairs))
		t.add(path+"?"+strings.Join(sorted, "&"), "query_order")
		byName := slices.Clone(pairs)
		slices.SortStableFunc(byName, func(x, y string) int {
			a, _, _ := strings.Cut(x, "=")
			b, _, _ := strings.Cut(y, "=")
			return cmp.Compare(a, b)
		})
		t.add(path+"?"+strings.Join(byName, "&"), "query_order")
		slices.Reverse(sorted)
		t.add(path+"?"+strings.Join(sorted, "&"), "query_order")
		if len(pairs) <= 4 {
			permute(pairs, func(p []string) { t.add(path+"?"+strings.Join(p, "&"), "query_order") })
		}
		if values, err := url.ParseQuery(query); err == nil {
			t.add(path+"?"+values.Encode(), "query_encoded", "sorted, with + for a space")
			t.add(path+"?"+strings.ReplaceAll(values.Encode(), "+", "%20"), "query_encoded", "sorted, with %20 for a space")
		}
		var kept []string
		for _, p := range pairs {
			if _, value, _ := strings.Cut(p, "="); value != "" {
				kept = append(kept, p)
			}
		}
		t.add(path+"?"+strings.Join(kept, "&"), "query_encoded", "without empty values")
		t.add(path+"?"+strings.ReplaceAll(query, "&", "&amp;"), "query_encoded", "&amp; for &")
		if len(pairs) <= maxLeftOut {
			for i, p := range pairs {
				name, _, _ := strings.Cut(p, "=")
				rest := strings.Join(slices.Delete(slices.Clone(pairs), i, i+1), "&")
				if rest != "" {
					rest = "?" + rest
				}
				what := "without " + strconv.Quote(clip(name))
				if slices.Contains(pairs[i+1:], p) {
					what = "with the repeated " + strconv.Quote(clip(name)) + " only once"
				}
				t.add(path+rest, "query_encoded", what)
			}
		}
		t.add(path+query, "query_encoded", "without the question mark")
		t.add(path+"\n"+query, "query_encoded", "a line feed for the question mark")
	}
	return t.variants
}

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
func (e escape) encode(target string) (string, bool) {
	path, query, hasQuery := strings.Cut(target, "?")
	segments := strings.Split(path, "/")
	for i, s := range segments {
		decoded, err := url.PathUnescape(s)
		if err != nil {
			return "", false
		}
		segments[i] = e.text(decoded, false)
	}
	out := strings.Join(segments, "/")
	if !hasQuery {
		return out, true
	}
	pairs := strings.Split(query, "&")
	for i, p := range pairs {
		name, value, hasValue := strings.Cut(p, "=")
		n, err1 := url.QueryUnescape(name)
		v, err2 := url.QueryUnescape(value)
		if err1 != nil || err2 != nil {
			return "", false
		}
		pairs[i] = e.text(n, e.plus)
		if hasValue {
			pairs[i] += "=" + e.text(v, e.plus)
		}
	}
	return out + "?" + strings.Join(pairs, "&"), true
}

// hexCase changes the hex digits of percent escapes.
func hexCase(s string, to func(string) string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			b.WriteString("%" + to(s[i+1:i+3]))
			i += 2
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// permute calls f with all orders of s.
func permute(s []string, f func([]string)) {
	var step func(k int)
	step = func(k int) {
		if k == len(s) {
			f(s)
			return
		}
		for i := k; i < len(s); i++ {
			s[k], s[i] = s[i], s[k]
			step(k + 1)
			s[k], s[i] = s[i], s[k]
		}
	}
	step(0)
}

func (a *Attempt) bodies() []variant {
	t := newTexts(string(a.Body), func(p *parts, s string) { p.body = s })
	body := string(a.Body)
	if body == "" {
		for _, s := range []string{"{}", "null", "[]", `""`, "undefined", "None", "b''"} {
			t.add(s, "body_other", s)
		}
	} else {
		t.add("", "body_missing")
		for _, end := range []string{"\n", "\r\n"} {
			t.add(body+end, "body_newline")
			t.add(strings.TrimSuffix(body, end), "body_newline")
		}
		t.add(strings.ReplaceAll(body, "\r\n", "\n"), "body_encoded", "LF for CR LF")
		t.add(strings.ReplaceAll(body, "\n", "\r\n"), "body_encoded", "CR LF for LF")
		t.add(strings.NewReplacer("\r", "", "\n", "").Replace(body), "body_newline")
		for _, s := range reserialized(a.Body) {
			t.add(s, "body_encoded", "re-serialized JSON")
		}
	}
	for _, h := range hashes()[:bodyHashes] {
		sum := hashed(h.new, body)
		t.add(hex.EncodeToString(sum), "body_hashed", h.name+" in hex")
		t.add(base64.StdEncoding.EncodeToString(sum), "body_hashed", h.name+" in base64")
	}
	t.add(base64.StdEncoding.EncodeToString(a.Body), "body_encoded", "base64")
	return t.variants
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

// spaced writes JSON as Python's json.dumps does, with a space after each comma and colon.
func spaced(compact string) string {
	var b strings.Builder
	inString := false
	for i := 0; i < len(compact); i++ {
		c := compact[i]
		b.WriteByte(c)
		switch {
		case c == '\\' && inString && i+1 < len(compact):
			i++
			b.WriteByte(compact[i])
		case c == '"':
			inString = !inString
		case !inString && (c == ',' || c == ':'):
			b.WriteByte(' ')
		}
	}
	return b.String()
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

// joins returns other ways to put the parts together.
func (a *Attempt) joins() []variant {
	var all []variant
	add := func(join func(p *parts) string, code string, arguments ...any) {
		all = append(all, variant{code, arguments, func(p *parts) { p.join = join }})
	}
	with := func(separator string) func(p *parts) string {
		return func(p *parts) string { return strings.Join(p.list(), separator) }
	}
	lines := with("\n")
	add(func(p *parts) string { return lines(p) + "\n" }, "newline_extra", "end")
	add(func(p *parts) string { return lines(p) + "\r\n" }, "newline_extra", "end")
	add(func(p *parts) string { return "\n" + lines(p) }, "newline_extra", "beginning")
	add(func(p *parts) string { return "\ufeff" + lines(p) }, "part_extra", "a byte order mark")
	add(with("\r\n"), "newline_crlf")
	add(func(p *parts) string { return with("\r\n")(p) + "\r\n" }, "newline_crlf")
	add(with(`\n`), "newline_escaped")
	add(with(""), "newline_missing", "nothing")
	for _, separator := range []string{" ", ".", ":", "|", ",", ";", "&", "-", "+", "\r", "\t", "_", "/", "#", "~"} {
		name := strconv.Quote(separator)
		add(with(separator), "newline_missing", name)
		add(func(p *parts) string { return strings.Join(p.list()[:3], separator) + p.body }, "newline_missing", name)
	}
	names := []string{"timestamp", "method", "path", "body"}
	add(func(p *parts) string { return strings.Join(p.list()[:3], "\n") }, "part_missing", "the body and the line feed before it")
	add(func(p *parts) string { return strings.Join(p.list()[:3], "\n") + p.body }, "part_missing", "the line feed before the body")
	for i, name := range names[:3] {
		without := func(p *parts) []string { return slices.Delete(p.list(), i, i+1) }
		add(func(p *parts) string { return strings.Join(without(p), "\n") }, "part_missing", "the "+name)
		add(func(p *parts) string { return strings.TrimSuffix(strings.Join(without(p), "\n"), "\n") }, "part_missing",
			"the "+name+" and the last line feed")
	}
	for i, name := range names {
		what := "everything but the " + name
		if i == 3 && len(a.Body) == 0 {
			what = "every part, and is empty"
		}
		add(func(p *parts) string { return p.list()[i] }, "part_missing", what)
	}
	order := []string{"0", "1", "2", "3"}
	permute(order, func(o []string) {
		var indexes []int
		var text []string
		for _, s := range o {
			i := int(s[0] - '0')
			indexes, text = append(indexes, i), append(text, names[i])
		}
		pick := func(p *parts) (out []string) {
			for _, i := range indexes {
				out = append(out, p.list()[i])
			}
			return out
		}
		if slices.IsSorted(indexes) {
			return
		}
		add(func(p *parts) string { return strings.Join(pick(p), "\n") }, "part_order", strings.Join(text, ", "))
		if indexes[3] == 3 {
			add(func(p *parts) string { return strings.Join(pick(p)[:3], "\n") }, "part_order", strings.Join(text[:3], ", "))
		}
	})
	for _, extra := range []struct {
		name string
		part func(p *parts) string
	}{
		{"the public key", func(p *parts) string { return p.publicKey }},
		{"the host", func(p *parts) string { return p.host }},
	} {
		for i := range 5 {
			add(func(p *parts) string { return strings.Join(slices.Insert(p.list(), i, extra.part(p)), "\n") }, "part_extra", extra.name)
		}
		add(func(p *parts) string { return strings.Join(append(p.list()[:3], extra.part(p)), "\n") }, "part_extra", extra.name)
	}
	add(func(p *parts) string {
		return p.timestamp + "\n" + p.method + " " + p.target + "\n" + p.body
	}, "newline_missing", "a space after the method")
	add(func(p *parts) string {
		return p.timestamp + "\n" + p.method + " " + p.target + " HTTP/1.1\n" + p.body
	}, "newline_missing", "a request line")
	add(func(p *parts) string { return p.timestamp + "." + p.body }, "part_missing", "method and path")
	for _, number := range []bool{true, false} {
		quoted := func(p *parts) []string {
			list := p.list()
			for i, s := range list {
				if i > 0 || !number {
					quoted, _ := jsontext.AppendQuote(nil, s) // fails for invalid UTF-8 only
					list[i] = string(quoted)
				}
			}
			return list
		}
		add(func(p *parts) string { return "[" + strings.Join(quoted(p), ",") + "]" }, "newline_missing", "JSON")
		add(func(p *parts) string { return "[" + strings.Join(quoted(p), ", ") + "]" }, "newline_missing", "JSON")
		add(func(p *parts) string {
			q := quoted(p)
			return `{"timestamp":` + q[0] + `,"method":` + q[1] + `,"path":` + q[2] + `,"body":` + q[3] + "}"
		}, "newline_missing", "JSON")
	}
	return all
}

func (a *Attempt) secrets(cred *authsigner.Credential, now time.Time) []variant {
	secret := cred.PrivateKey.Reveal()
	t := newTexts(secret, func(p *parts, s string) { p.secret = s })
	all := []variant{}
	if previous := cred.PreviousPrivateKey.Reveal(); previous != "" {
		if now.IsZero() || now.Before(cred.PreviousExpiresAt) {
			// still valid, and so no mistake
			all = append(all, variant{apply: func(p *parts) { p.secret = previous }})
			t.seen[previous] = true
		}
		t.add(previous, "secret_previous")
	}
	t.add(cred.PublicKey, "secret_public_key")
	t.add(a.PublicKey, "secret_public_key")
	t.add("", "secret_empty")
	for _, w := range []struct{ what, secret string }{
		{"a line feed at its end", secret + "\n"},
		{"CR LF at its end", secret + "\r\n"},
		{"a carriage return at its end", secret + "\r"},
		{"a space at its end", secret + " "},
		{"a space at its beginning", " " + secret},
		{"a byte order mark", "\ufeff" + secret},
		{"its white space removed", strings.TrimSpace(secret)},
	} {
		t.add(w.secret, "secret_whitespace", w.what)
	}
	for _, quote := range []string{`"`, "'", "`"} {
		t.add(quote+secret+quote, "secret_quotes")
	}
	t.add(strings.Trim(secret, "\"'`"), "secret_quotes")
	_, rest, _ := strings.Cut(secret, "_")
	_, random, _ := strings.Cut(rest, "_") // sk_live_ is the prefix of issued keys, and the rest may have more underscores
	for _, part := range []string{random, rest} {
		if len(part) >= minSecretPart {
			t.add(part, "secret_truncated", "its prefix is missing")
		}
	}
	t.add(secret[:max(0, len(secret)-1)], "secret_truncated", "its last character is missing")
	for _, text := range []string{secret, random} {
		t.add(string(decodeHex(text)), "secret_decoded", "hex")
		t.add(string(decodeBase64(text)), "secret_decoded", "base64")
		if b, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(strings.ToUpper(text)); err == nil && len(b) >= minSecretPart {
			t.add(string(b), "secret_decoded", "base32")
		}
	}
	for _, w := range []struct{ what, secret string }{
		{"the public key and a colon before it", cred.PublicKey + ":" + secret},
		{"a colon and the public key after it", secret + ":" + cred.PublicKey},
		{"the public key before it", cred.PublicKey + secret},
		{"the public key after it", secret + cred.PublicKey},
		{"an ampersand at its end", secret + "&"}, // as OAuth 1.0 without a token does
	} {
		t.add(w.secret, "secret_extra", w.what)
	}
	t.add(hex.EncodeToString([]byte(secret)), "secret_encoded", "hex")
	t.add(base64.StdEncoding.EncodeToString([]byte(secret)), "secret_encoded", "base64")
	t.add(strings.ToUpper(secret), "secret_encoded", "upper case")
	t.add(strings.ToLower(secret), "secret_encoded", "lower case")
	sum := hashed(sha256.New, secret)
	t.add(string(sum), "secret_hashed", "SHA-256")
	t.add(hex.EncodeToString(sum), "secret_hashed", "SHA-256 in hex")
	return append(all, t.variants...)
}

func hmacOf(h func() hash.Hash) func(secret, message string) []byte {
	return func(secret, message string) []byte {
		m := hmac.New(h, []byte(secret))
		_, _ = m.Write([]byte(message))
		return m.Sum(nil)
	}
}

func hashed(h func() hash.Hash, s string) []byte {
	m := h()
	_, _ = m.Write([]byte(s))
	return m.Sum(nil)
}

// namedHash is a hash function that callers use.
type namedHash struct {
	name string
	new  func() hash.Hash
}

func hashes() []namedHash {
	return []namedHash{
		{"SHA-256", sha256.New},
		{"SHA-1", sha1.New},
		{"SHA-512", sha512.New},
		{"SHA-384", sha512.New384},
		{"SHA-512/256", sha512.New512_256},
		{"SHA3-256", func() hash.Hash { return sha3.New256() }},
		{"MD5", md5.New},
		{"SHA-224", sha256.New224},
		{"SHA3-224", func() hash.Hash { return sha3.New224() }},
		{"SHA3-512", func() hash.Hash { return sha3.New512() }},
	}
}

// algorithms returns other algorithms whose result has the signature's length.
func (a *Attempt) algorithms() []variant {
	var all []variant
	add := func(sum func(secret, message string) []byte, code string, arguments ...any) {
		all = append(all, variant{code, arguments, func(p *parts) { p.sum = sum }})
	}
	for _, h := range hashes() {
		if h.new().Size() != a.size {
			continue
		}
		if h.name != "SHA-256" {
			add(hmacOf(h.new), "algorithm", "HMAC-"+strings.Replace(h.name, "SHA-", "SHA", 1))
		}
		add(func(secret, message string) []byte { return hmacOf(h.new)(message, secret) }, "algorithm_arguments")
		for _, join := range []func(secret, message string) string{
			func(_, message string) string { return message },
			func(secret, message string) string { return secret + message },
			func(secret, message string) string { return message + secret },
			func(secret, message string) string { return secret + "\n" + message },
			func(secret, message string) string { return message + "\n" + secret },
		} {
			add(func(secret, message string) []byte { return hashed(h.new, join(secret, message)) }, "algorithm", "a plain "+h.name+" hash")
		}
	}
	if a.size == sha256.Size {
		for _, h := range []namedHash{{"SHA512", sha512.New}, {"SHA384", sha512.New384}} {
			add(func(secret, message string) []byte { return hmacOf(h.new)(secret, message)[:a.size] }, "algorithm", "a truncated HMAC-"+h.name)
		}
		add(func(secret, message string) []byte {
			return hmacOf(sha256.New)(secret, string(hashed(sha256.New, message)))
		}, "algorithm", "HMAC-SHA256 of a hash")
		add(func(secret, message string) []byte {
			return hmacOf(sha256.New)(secret, hex.EncodeToString(hashed(sha256.New, message)))
		}, "algorithm", "HMAC-SHA256 of a hash")
		add(func(secret, message string) []byte {
			return hmacOf(sha256.New)(secret, string(hmacOf(sha256.New)(secret, message)))
		}, "algorithm", "HMAC-SHA256 applied twice")
		add(func(secret, message string) []byte {
			return hmacOf(sha256.New)(string(hmacOf(sha256.New)(secret, a.Timestamp)), message)
		}, "algorithm", "HMAC-SHA256 with a key derived from the private key and the timestamp")
	}
	truncated := func(secret, message string) []byte { return hmacOf(sha256.New)(secret, message)[:a.size] }
	switch {
	case a.unpaddedSize > 0:
		add(truncated, "") // Read has found it
		add(func(secret, message string) []byte {
			if a.isUnpadded(hmacOf(sha256.New)(secret, message)) {
				return append(bytes.Clone(a.digest), make([]byte, a.size-len(a.digest))...)
			}
			return nil
		}, "signature_encoding", "hexadecimal digits without leading zeros")
	case a.size < sha256.Size:
		add(truncated, "signature_truncated")
	}
	return all
}

// encodings returns other encodings of the text.
func encodings() []variant {
	wide := func(order binary.AppendByteOrder) func(string) string {
		return func(s string) string {
			var b []byte
			for _, u := range utf16.Encode([]rune(s)) {
				b = order.AppendUint16(b, u)
			}
			return string(b)
		}
	}
	set := func(encode func(string) string) variant {
		return variant{"text_utf16", []any{"The string and the key were"}, func(p *parts) { p.encode = encode }}
	}
	little, big := wide(binary.LittleEndian), wide(binary.BigEndian)
	message := variant{"text_utf16", []any{"The string was"}, func(p *parts) { join := p.join; p.join = func(p *parts) string { return little(join(p)) } }}
	return []variant{set(little), set(big), message}
}

func isHex(s string) bool {
	return s != "" && strings.Trim(strings.ToLower(s), "0123456789abcdef") == ""
}

func decodeHex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) < digestKept {
		return nil
	}
	return b
}

// decodeBase64 decodes the standard and the URL alphabet, with and without padding and line feeds.
func decodeBase64(s string) []byte {
	s = strings.TrimRight(strings.NewReplacer("\n", "", "\r", "", "-", "+", "_", "/").Replace(s), "=")
	b, err := base64.RawStdEncoding.DecodeString(s)
	if err != nil || len(b) < 16 {
		return nil
	}
	return b
}

func hasHashSize(b []byte) bool {
	return slices.ContainsFunc(hashes(), func(h namedHash) bool { return h.new().Size() == len(b) })
}

// decodeForm decodes a signature that is written neither in hexadecimal digits alone nor in base64, and names the form.
func decodeForm(text string) (digest []byte, form string) {
	if inner := strings.Trim(strings.TrimPrefix(text, "b"), `"'`); len(inner) < len(text)-1 {
		for _, digest := range [][]byte{decodeHex(inner), decodeBase64(inner)} {
			if hasHashSize(digest) {
				return digest, "text in quotation marks"
			}
		}
	}
	if digest := decodeHex(strings.NewReplacer("-", "", ":", "", " ", "").Replace(text)); hasHashSize(digest) && len(text) == 3*len(digest)-1 {
		return digest, "digits with separators"
	}
	if twice := decodeHex(text); twice != nil {
		if digest := decodeHex(string(twice)); hasHashSize(digest) {
			return digest, "the hexadecimal digits of hexadecimal digits"
		}
		if digest := decodeBase64(string(twice)); hasHashSize(digest) {
			return digest, "the hexadecimal digits of base64"
		}
	}
	for _, number := range strings.FieldsFunc(strings.Trim(text, "[]{}()"), func(r rune) bool { return r == ',' || r == ' ' }) {
		n, err := strconv.Atoi(number)
		if err != nil || n < -128 || n > 255 {
			return nil, ""
		}
		digest = append(digest, byte(n)) // -128 to -1 are the signed bytes of Java
	}
	if !hasHashSize(digest) {
		return nil, ""
	}
	return digest, "decimal numbers"
}

// signExtended are the digits of a negative byte, as Java's Integer.toHexString writes them.
func signExtended(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if i+7 < len(text) && strings.EqualFold(text[i:i+6], "ffffff") && text[i+6] > '7' {
			b.WriteString(text[i+6 : i+8])
			i += 7
			continue
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// isUnpadded reports whether the attempt's digits are those of sum without leading zeros: of the whole number, or of each byte.
func (a *Attempt) isUnpadded(sum []byte) bool {
	var each strings.Builder
	for _, b := range sum {
		each.WriteString(strconv.FormatUint(uint64(b), 16))
	}
	for _, text := range []string{each.String(), strings.TrimLeft(hex.EncodeToString(sum), "0")} {
		if len(text) == a.unpaddedSize && text[:digestKept] == a.unpadded {
			return true
		}
	}
	return false
}
