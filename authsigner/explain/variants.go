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
	"fmt"
	"hash"
	"math/big"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/unicode/norm"

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

	// maxPermuted is the number of parameters up to which every order and every selection of them is tried.
	maxPermuted = 4
)

// newSearch returns the search for one attempt.
func newSearch(a *Attempt, cred *authsigner.Credential, now time.Time) *search {
	return &search{
		attempt: a,
		right: parts{
			timestamp: a.Timestamp, method: a.Method, target: a.signedTarget(), body: string(a.Body),
			publicKey: a.PublicKey, host: a.Host, secret: cred.PrivateKey.Reveal(),
			shape: rightShape, separator: "\n",
			text:   func(s string) string { return s },
			encode: func(s string) string { return s },
			sum:    hmacOf(sha256.New),
		},
		dims: [][]variant{
			a.algorithms(), a.secrets(cred, now), a.timestamps(), a.methods(), a.targets(), a.encodings(), a.starts(), a.bodies(), a.shapes(), separators(),
			changes(),
		},
	}
}

// rightShape is the shape of the string to sign.
const rightShape = "%[1]s\n%[2]s\n%[3]s\n%[4]s"

// message returns the signed string. The verbs of its shape are: 1 timestamp, 2 method, 3 target, 4 body, 5 public key, 6 host,
// 7 path, 8 query, 9 private key.
func (p *parts) message() string {
	if p.shape == rightShape {
		return p.text(p.timestamp + p.separator + p.method + p.separator + p.target + p.separator + p.body)
	}
	shape := strings.ReplaceAll(p.shape, "\n", strings.ReplaceAll(p.separator, "%", "%%"))
	path, query, _ := strings.Cut(p.target, "?")
	return p.text(fmt.Sprintf(shape, p.timestamp, p.method, p.target, p.body, p.publicKey, p.host, path, query, p.secret))
}

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
	rarity   int // of the variants that are added next
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
	t.variants = append(t.variants, variant{code, arguments, func(p *parts) { t.set(p, s) }, t.rarity})
}

// addAll adds texts that are named by themselves.
func (t *texts) addAll(code string, all ...string) {
	for _, s := range all {
		t.add(s, code, strconv.Quote(s))
	}
}

// empties are what programs make of a value that is not set.
func empties() []string {
	return []string{"undefined", "null", "None", "nil", "NULL", "<nil>", "false", "[object Object]"}
}

// timestamps returns other timestamps. The many with each possible second, millisecond or time zone are not part of pairs.
func (a *Attempt) timestamps() []variant {
	t := newTexts(a.Timestamp, func(p *parts, s string) { p.timestamp = s })
	at, _, _ := instant(a.Timestamp)
	if at.IsZero() {
		return nil
	}
	add := func(all ...string) { t.addAll("timestamp_other", all...) }
	seconds := at.Unix()
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	add(number(seconds), number(seconds+1), number(seconds-1), number(at.UnixMilli()))
	utc := at.UTC()
	add(utc.Format("2006-01-02T15:04:05.000Z"), utc.Format(time.RFC3339))
	t.rarity = rare
	add(number(at.UnixMicro()), number(at.UnixNano()), number(seconds)+".0", strconv.Quote(number(seconds)), "")
	add(empties()...)
	for _, layout := range append(timestampLayouts(), time.UnixDate, "2006-01-02T15:04:05-07:00", "20060102", "20060102150405",
		"Mon Jan 02 2006 15:04:05 GMT-0700 (Coordinated Universal Time)") {
		add(utc.Format(layout))
	}
	t.rarity = alone
	for _, format := range []string{"%v", "%E"} {
		add(fmt.Sprintf(format, float64(seconds)))
	}
	add(strings.ToUpper(fmt.Sprint(float64(seconds))), strconv.FormatInt(seconds, 16), "NaN", "0")
	add(regexp.MustCompile(`(\d)(\d{3})(\d{3})(\d{3})$`).ReplaceAllString(number(seconds), "$1,$2,$3,$4"))
	for milli := range int64(1000) { // the header was rounded, the signed timestamp was not
		exact := time.UnixMilli(seconds*1000 + milli).UTC()
		add(number(seconds*1000+milli), fmt.Sprintf("%d.%03d", seconds, milli), exact.Format("2006-01-02T15:04:05.000Z"))
		add(strings.TrimRight(fmt.Sprintf("%d.%03d", seconds, milli), "0"))
	}
	for off := range int64(15 * 60) { // the clock was read twice, or a signature was kept
		add(number(seconds-off), number(seconds+off))
	}
	const quarter = 15 * 60
	for zone := int64(1); zone <= 14*4; zone++ { // local time taken for UTC
		add(number(seconds+zone*quarter), number(seconds-zone*quarter))
	}
	add(number(seconds-24*3600), number(seconds+24*3600))
	return t.variants
}

func (a *Attempt) methods() []variant {
	t := newTexts(a.Method, func(p *parts, s string) { p.method = s })
	lower := strings.ToLower(a.Method)
	t.add(lower, "method_case", strconv.Quote(lower))
	t.add(title(lower), "method_case", strconv.Quote(title(lower)))
	t.rarity = rare
	t.addAll("method_other", http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodOptions, "", a.Method+" ")
	t.addAll("method_other", empties()...)
	for _, format := range []string{"Method.%s", "HTTPMethod.%s", "HttpMethod.%s", "http.Method%s", "'%s'", `"%s"`, "b'%s'", ":%s"} {
		t.addAll("method_other", fmt.Sprintf(format, a.Method), fmt.Sprintf(format, lower), fmt.Sprintf(format, title(lower)))
	}
	return t.variants
}

func title(s string) string { return strings.ToUpper(s[:min(1, len(s))]) + s[min(1, len(s)):] }

// defaultPorts are the ports that URLs and the Host header leave out.
func defaultPorts() map[string]string { return map[string]string{"https": ":443", "http": ":80"} }

// targets returns other paths and other parameters.
func (a *Attempt) targets() []variant {
	right := a.signedTarget()
	t := newTexts(right, func(p *parts, s string) { p.target = s })
	path, query, hasQuery := strings.Cut(right, "?")
	mark := right[len(path):] // with the question mark
	for _, v := range a.encodings() {
		p := parts{target: right}
		v.apply(&p)
		t.seen[p.target] = true
	}
	if hasQuery {
		t.add(path, "path_query_missing")
		a.queries(t, path, query)
	}
	t.rarity = rare
	t.add(path+"?", "path_fragment", `"?"`)
	t.add(path+"/"+mark, "path_slash", "it has another one at its end")
	t.add(path+"/", "path_slash", "it has another one at its end, and no query")
	t.add(strings.TrimSuffix(path, "/")+mark, "path_slash", "it has none at its end")
	t.add(strings.Replace(right, apiPrefix, apiPrefix+"/", 1), "path_slash", "it has two after /api/v1")
	for _, end := range append(empties(), "{}") {
		t.add(path+"?"+end, "path_fragment", strconv.Quote("?"+end))
		t.add(path+end, "path_fragment", strconv.Quote(end))
	}
	t.addAll("path_other", empties()...)
	for _, format := range []string{"b'%s'", "'%s'", `"%s"`} {
		t.add(fmt.Sprintf(format, right), "path_encoded", "in quotation marks")
	}
	for _, end := range []string{".json", "#", " HTTP/1.1", " ", "&"} {
		t.add(right+end, "path_fragment", strconv.Quote(end))
	}
	t.rarity = alone
	extraParameters(t, path, query)
	for _, other := range []string{"status", "me", "business", "contacts", "equipment", "estimates", "invoices", "jobs", "offerings", "events", ""} {
		t.add(strings.TrimSuffix(apiPrefix+"/"+other, "/"), "path_other", "that of another request")
		t.add(strings.TrimSuffix(apiPrefix+"/"+other, "/")+mark, "path_other", "that of another request")
	}
	t.add(strings.Replace(right, apiPrefix, "/api/v2", 1), "path_other", "that of another version")
	t.add(strings.Replace(right, apiPrefix, "/api", 1), "path_other", "without the version")
	return t.variants
}

// queries adds targets with another query.
func (a *Attempt) queries(t *texts, path, query string) {
	add := func(query, code string, arguments ...any) {
		if query != "" {
			query = "?" + query
		}
		t.add(path+query, code, arguments...)
	}
	join := func(pairs []string) string { return strings.Join(pairs, "&") }
	pairs := strings.Split(query, "&")
	sorted := slices.Sorted(slices.Values(pairs))
	add(join(sorted), "query_order")
	if values, err := url.ParseQuery(query); err == nil {
		add(values.Encode(), "query_encoded", "sorted, with + for a space")
		add(strings.ReplaceAll(values.Encode(), "+", "%20"), "query_encoded", "sorted, with %20 for a space")
	}
	kept := slices.DeleteFunc(slices.Clone(pairs), func(p string) bool { return p == "" || strings.HasSuffix(p, "=") || !strings.Contains(p, "=") })
	add(join(kept), "query_encoded", "without empty values")
	if len(pairs) <= maxLeftOut {
		for i, p := range pairs {
			name, _, _ := strings.Cut(p, "=")
			what := "without " + strconv.Quote(clip(name))
			if slices.Contains(pairs[i+1:], p) {
				what = "with the repeated " + strconv.Quote(clip(name)) + " only once"
			}
			add(join(slices.Delete(slices.Clone(pairs), i, i+1)), "query_encoded", what)
		}
	}
	slices.Reverse(sorted)
	add(join(sorted), "query_order")
	t.rarity = rare
	byName := slices.Clone(pairs)
	slices.SortStableFunc(byName, func(x, y string) int {
		a, _, _ := strings.Cut(x, "=")
		b, _, _ := strings.Cut(y, "=")
		return cmp.Compare(a, b)
	})
	add(join(byName), "query_order")
	if len(pairs) <= maxPermuted {
		permute(pairs, func(p []string) { add(join(p), "query_order") })
	}
	add(strings.ReplaceAll(query, "&", "&amp;"), "query_encoded", "&amp; for &")
	add("?"+query, "query_encoded", "with two question marks")
	add(query+"?"+query, "query_encoded", "twice")
	add(query+"&"+query, "query_encoded", "twice")
	t.add(path+query, "query_encoded", "without the question mark")
	t.add(path+"\n"+query, "query_encoded", "a line feed for the question mark")
	t.add(query, "query_encoded", "without the path")
	t.add("?"+query, "query_encoded", "without the path")
	t.rarity = alone
	if len(pairs) <= maxPermuted {
		for subset := range 1 << len(pairs) {
			var kept []string
			for i, p := range pairs {
				if subset>>i&1 == 1 {
					kept = append(kept, p)
				}
			}
			add(join(kept), "query_encoded", "without several parameters")
		}
	}
	for _, object := range objects(query) {
		t.add(path+"?"+object, "query_encoded", "as an object")
		t.add(path+object, "query_encoded", "as an object")
	}
	for from, to := range map[string]string{"[]=": "=", "=": "[]=", "&": ";", "==": "="} {
		add(strings.ReplaceAll(query, from, to), "query_encoded", fmt.Sprintf("%q for %q", to, from))
	}
	add(strings.NewReplacer("=", "", "&", "").Replace(query), "query_encoded", "without separators")
	for i, p := range pairs {
		name, value, _ := strings.Cut(p, "=")
		if n, err := strconv.Atoi(value); err == nil && i < maxPermuted {
			for _, other := range []string{strconv.Itoa(n - 1), strconv.Itoa(n + 1), "0", "1", value + ".0", "'" + value + "'", `"` + value + `"`, "%5B" + value + "%5D"} {
				changed := slices.Clone(pairs)
				changed[i] = name + "=" + other
				add(join(changed), "query_encoded", "with another "+strconv.Quote(clip(name)))
			}
		}
	}
}

// extraParameters adds targets with a parameter that was not sent, because its value is not set, or is the default.
func extraParameters(t *texts, path, query string) {
	for _, name := range []string{"page", "per_page", "status", "type", "category", "payment_status", "count"} {
		for _, value := range append(empties(), "", "1", "2", "3", "10", "25", "50", "100") {
			what := "with " + strconv.Quote(name) + ", which was not sent"
			t.add(path+"?"+strings.Trim(query+"&"+name+"="+value, "&"), "query_encoded", what)
			t.add(path+"?"+strings.Trim(name+"="+value+"&"+query, "&"), "query_encoded", what)
		}
	}
}

// starts returns other beginnings of the path.
func (a *Attempt) starts() []variant {
	var all []variant
	seen := map[string]bool{"": true}
	add := func(cut, start string, rarity int, code string, arguments ...any) {
		if seen[cut+">"+start] {
			return
		}
		seen[cut+">"+start] = true
		all = append(all, variant{code, arguments, func(p *parts) {
			if rest, ok := strings.CutPrefix(p.target, cut); ok {
				p.target = start + rest
			}
		}, rarity})
	}
	if a.BasePath != "" {
		add("", a.BasePath, common, "path_base")
	}
	add(apiPrefix, "", common, "path_prefix_missing")
	add("/", "", common, "path_slash", "it begins without one")
	add("/api", "", rare, "path_prefix_missing")
	add(apiPrefix+"/", "", rare, "path_prefix_missing")
	add("/api/", "", rare, "path_prefix_missing")
	add("", "/", rare, "path_slash", "it begins with two")
	if a.Host != "" {
		host, _, _ := strings.Cut(a.Host, ":")
		for i, scheme := range []string{cmp.Or(a.Scheme, "https"), "https", "http"} {
			for _, base := range []string{"", a.BasePath, "/"} {
				add("", scheme+"://"+a.Host+base, min(i, rare), "path_origin", "scheme and host")
				add("", scheme+"://"+a.Host+defaultPorts()[scheme]+base, rare, "path_origin", "scheme, host and port")
			}
		}
		add("", a.Host, common, "path_origin", "the host")
		add("", host, rare, "path_origin", "the host")
		add("", "//"+a.Host, rare, "path_origin", "the host")
	}
	for _, local := range []string{"localhost", "localhost:8080", "localhost:3000", "localhost:8000", "127.0.0.1:8080"} {
		add("", "http://"+local, alone, "path_origin", "another host, "+local)
	}
	for _, name := range append(empties(), "{{baseUrl}}", "{{base_url}}", "{{url}}", "{{host}}", "${BASE_URL}", "$BASE_URL") {
		add("", name, alone, "path_origin", strconv.Quote(name)+" in place of scheme and host")
	}
	return all
}

// encodings returns ways to encode a target otherwise.
func (a *Attempt) encodings() []variant {
	right := a.signedTarget()
	seen := map[string]bool{right: true}
	var all []variant
	add := func(rarity int, change func(string) string, code string, arguments ...any) {
		s := change(right)
		if seen[s] {
			return
		}
		seen[s] = true
		all = append(all, variant{code, arguments, func(p *parts) {
			if p.target == right {
				p.target = s
			} else {
				p.target = change(p.target)
			}
		}, rarity})
	}
	replace := func(from, to string) func(string) string {
		return func(s string) string { return strings.ReplaceAll(s, from, to) }
	}
	add(common, pathUnescape, "path_decoded")
	add(common, queryUnescape, "path_decoded")
	add(common, func(s string) string { return hexCase(s, strings.ToLower) }, "path_encoded", "lower-case hex digits in escapes")
	add(rare, func(s string) string { return hexCase(s, strings.ToUpper) }, "path_encoded", "upper-case hex digits in escapes")
	add(common, replace("%20", "+"), "path_encoded", "+ for a space")
	add(common, replace("+", "%20"), "path_encoded", "%20 for +")
	add(rare, replace("+", "%2B"), "path_encoded", "%2B for +")
	add(rare, replace("%20", "%2B"), "path_encoded", "%2B for a space")
	add(rare, replace("%20", ""), "path_encoded", "without spaces")
	add(rare, replace("%2C", ","), "path_encoded", "commas not escaped")
	for _, e := range escapes() {
		add(common, e.encode, "path_encoded", e.name)
		add(rare, func(s string) string { return hexCase(e.encode(s), strings.ToLower) }, "path_encoded", e.name+", with lower-case hex digits")
	}
	add(rare, url.QueryEscape, "path_encoded", "the whole path escaped as a value")
	add(rare, func(s string) string { return escape{unescaped: "-_.~/"}.text(s, false) }, "path_encoded", "the whole path escaped")
	add(rare, func(s string) string {
		path, query, _ := strings.Cut(s, "?")
		return strings.TrimSuffix(path+"?"+escapes()[0].text(query, false), "?")
	}, "path_encoded", "the whole query escaped as a value")
	add(rare, strings.ToLower, "path_case", "lower")
	add(rare, strings.ToUpper, "path_case", "upper")
	add(rare, func(s string) string {
		path, query, hasQuery := strings.Cut(s, "?")
		return (&url.URL{Path: path, RawQuery: query, ForceQuery: hasQuery && query == ""}).RequestURI()
	}, "path_encoded", "encoded twice")
	add(rare, replace("%", "%25"), "path_encoded", "encoded twice")
	for _, form := range []struct {
		name   string
		change func(string) string
	}{
		{"NFD", norm.NFD.String},
		{"NFC", norm.NFC.String},
		{"ISO 8859-1", func(s string) string { return recode(charmap.ISO8859_1.NewEncoder().String, s) }},
		{"UTF-8, encoded twice", func(s string) string { return recode(charmap.Windows1252.NewDecoder().String, s) }},
		{"ASCII", asciiOnly},
	} {
		add(alone, func(s string) string { return form.change(pathUnescape(s)) }, "path_decoded")
		for _, e := range escapes() {
			add(alone, func(s string) string { return e.encodeAs(s, form.change) }, "path_encoded", "its characters in "+form.name)
		}
	}
	return all
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
		for _, s := range []string{"{}", "null", "undefined", "None"} {
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
	for i, h := range hashes()[:bodyHashes] {
		t.rarity = min(i, rare)
		sum := hashed(h.new, body)
		t.add(hex.EncodeToString(sum), "body_hashed", h.name+" in hex")
		t.add(base64.StdEncoding.EncodeToString(sum), "body_hashed", h.name+" in base64")
		t.add(strings.ToUpper(hex.EncodeToString(sum)), "body_hashed", h.name+" in upper-case hex")
	}
	t.rarity = rare
	t.add(base64.StdEncoding.EncodeToString(a.Body), "body_encoded", "base64")
	for _, s := range append(empties(), "{}", "[]", `""`, "''", "b''", "Array", " ", "0", "UNSIGNED-PAYLOAD") {
		t.add(s, "body_other", s)
	}
	if _, query, _ := strings.Cut(a.Target, "?"); query != "" {
		t.add(query, "body_other", "the query")
		t.add("?"+query, "body_other", "the query")
		for _, e := range escapes() {
			t.add(e.encode("?" + query)[1:], "body_other", "the query")
		}
		for _, object := range objects(query) {
			t.add(object, "body_other", "the query as JSON")
		}
	}
	return t.variants
}

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

// shapes returns other ways to put the parts together.
func (a *Attempt) shapes() []variant {
	var all []variant
	add := func(rarity int, shape, code string, arguments ...any) {
		all = append(all, variant{code, arguments, func(p *parts) { p.shape = shape }, rarity})
	}
	json := func(compact string) {
		for _, shape := range []string{compact, strings.NewReplacer(":", ": ", ",", ", ").Replace(compact)} {
			for _, escape := range []*strings.Replacer{strings.NewReplacer(), strings.NewReplacer("/", `\/`), strings.NewReplacer("&", `\u0026`)} {
				apply := func(p *parts) { p.shape, p.text = shape, escape.Replace }
				all = append(all, variant{"newline_missing", []any{"JSON"}, apply, alone})
			}
		}
	}
	const everything = "everything but the "
	empty := "everything but the body"
	if len(a.Body) == 0 {
		empty = "every part, and is empty"
	}
	for _, s := range []struct {
		rarity              int
		shape, code, detail string
	}{
		{common, "%[1]s\n%[2]s\n%[3]s", "part_missing", "the body and the line feed before it"},
		{common, "%[1]s\n%[2]s\n%[3]s%[4]s", "part_missing", "the line feed before the body"},
		{common, "%[2]s\n%[3]s\n%[4]s", "part_missing", "the timestamp"},
		{common, "%[2]s\n%[3]s", "part_missing", "the timestamp and the last line feed"},
		{common, "%[1]s\n%[3]s\n%[4]s", "part_missing", "the method"},
		{common, "%[1]s\n%[3]s", "part_missing", "the method and the last line feed"},
		{rare, "%[1]s\n%[2]s\n%[4]s", "part_missing", "the path"},
		{rare, "%[1]s\n%[2]s", "part_missing", "the path and the last line feed"},
		{rare, "%[1]s\n%[4]s", "part_missing", "method and path"},
		{rare, "%[1]s", "part_missing", everything + "timestamp"},
		{rare, "%[2]s", "part_missing", everything + "method"},
		{rare, "%[3]s", "part_missing", everything + "path"},
		{rare, "%[8]s", "part_missing", everything + "query"},
		{rare, "%[4]s", "part_missing", empty},
		{rare, "%[1]s%[5]s", "part_missing", "method, path and body, and has the public key"},
		{rare, "%[5]s%[1]s", "part_missing", "method, path and body, and has the public key"},
		{rare, "%[5]s\n%[1]s", "part_missing", "method, path and body, and has the public key"},
		{rare, "%[8]s&timestamp=%[1]s", "part_missing", "method, path and body"},

		{common, "%[1]s\n%[2]s %[3]s\n%[4]s", "newline_missing", "a space after the method"},
		{common, "%[1]s\n%[2]s %[3]s", "newline_missing", "a space after the method"},
		{rare, "%[1]s %[2]s\n%[3]s\n%[4]s", "newline_missing", "a space after the timestamp"},
		{rare, "%[1]s\n%[2]s\n%[3]s %[4]s", "newline_missing", "a space after the path"},
		{rare, "%[1]s\n%[2]s %[3]s HTTP/1.1\n%[4]s", "newline_missing", "a request line"},
		{rare, "%[1]s\n%[2]s %[3]s HTTP/1.1", "newline_missing", "a request line"},
		{rare, "%[2]s %[3]s\n%[1]s\n%[4]s", "part_order", "method, path, timestamp, body"},
		{rare, "%[2]s %[3]s\n%[1]s", "part_order", "method, path, timestamp"},
		{rare, `['%[1]s', '%[2]s', '%[3]s', '%[4]s']`, "newline_missing", "a list"},
		{rare, `[%[1]s, '%[2]s', '%[3]s', '%[4]s']`, "newline_missing", "a list"},
		{rare, `('%[1]s', '%[2]s', '%[3]s', '%[4]s')`, "newline_missing", "a tuple"},
		{rare, `(%[1]s, '%[2]s', '%[3]s', '%[4]s')`, "newline_missing", "a tuple"},
		{rare, `[%[1]s %[2]s %[3]s %[4]s]`, "newline_missing", "a list"},
		{rare, `[%[1]s, %[2]s, %[3]s, %[4]s]`, "newline_missing", "a list"},
		{rare, "%[1]q\n%[2]q\n%[3]q\n%[4]q", "part_extra", "quotation marks"},
		{rare, "%%!s(int64=%[1]s)\n%[2]s\n%[3]s\n%[4]s", "timestamp_other", "a number formatted as a string"},
		{rare, "%%!s(int=%[1]s)\n%[2]s\n%[3]s\n%[4]s", "timestamp_other", "a number formatted as a string"},
		{rare, "%%!d(string=%[1]s)\n%[2]s\n%[3]s\n%[4]s", "timestamp_other", "a string formatted as a number"},
		{rare, "Optional(%[1]s)\n%[2]s\n%[3]s\n%[4]s", "timestamp_other", "Optional(…)"},
		{rare, "<%[1]s>\n<%[2]s>\n<%[3]s>\n<%[4]s>", "part_extra", "angle brackets"},
		{rare, "timestamp:%[1]s\nmethod:%[2]s\npath:%[3]s\nbody:%[4]s", "part_extra", "the names of the parts"},
		{rare, "timestamp: %[1]s\nmethod: %[2]s\npath: %[3]s\nbody: %[4]s", "part_extra", "the names of the parts"},
		{rare, "timestamp=%[1]s\nmethod=%[2]s\npath=%[3]s\nbody=%[4]s", "part_extra", "the names of the parts"},
		{rare, "timestamp=%[1]s&method=%[2]s&path=%[3]s&body=%[4]s", "part_extra", "the names of the parts"},
		{rare, "%[1]s.%[4]s", "part_missing", "method and path"},
		{rare, "v0:%[1]s:%[4]s", "part_missing", "method and path"},
		{rare, "v1\n%[1]s\n%[2]s\n%[3]s\n%[4]s", "part_extra", "a version"},
		{rare, "HMAC-SHA256\n%[1]s\n%[2]s\n%[3]s\n%[4]s", "part_extra", "the name of the algorithm"},
		{rare, "%[1]s\n%[2]s\n%[3]s\napplication/json\n%[4]s", "part_extra", "the content type"},
		{rare, "%[1]s\n%[2]s\n%[7]s\n%[8]s\n%[4]s", "query_encoded", "a line feed for the question mark"},
		{rare, "%[1]s\n%[2]s\n%[8]s\n%[7]s\n%[4]s", "query_encoded", "on a line of its own"},
		{rare, "%[1]s\n%[2]s\n%[7]s %[8]s\n%[4]s", "query_encoded", "a space for the question mark"},
		{rare, "%[1]s\n\n%[2]s\n%[3]s\n%[4]s", "newline_extra", "after the timestamp"},
		{rare, "\ufffd\n%[2]s\n%[3]s\n%[4]s", "timestamp_other", "a number converted to a character"},
	} {
		add(s.rarity, s.shape, s.code, s.detail)
	}
	for _, number := range []string{"%[1]s", "%[1]q"} {
		for _, end := range []string{",%[4]q]", ",null]", "]"} {
			json("[" + number + ",%[2]q,%[3]q" + end)
		}
		for _, path := range []string{"path", "url"} {
			for _, body := range []string{`"body":%[4]q`, `"body":null`, ""} {
				members := []string{`"timestamp":` + number, `"method":%[2]q`, `"` + path + `":%[3]q`, body}
				permute(members, func(order []string) {
					json("{" + strings.Trim(strings.ReplaceAll(strings.Join(order, ","), ",,", ","), ",") + "}")
				})
			}
		}
	}
	names, order := []string{"timestamp", "method", "path", "body"}, []string{"1", "2", "3", "4"}
	permute(order, func(o []string) {
		if slices.IsSorted(o) {
			return
		}
		var text []string
		for _, s := range o {
			text = append(text, names[s[0]-'1'])
		}
		shape := "%[" + strings.Join(o, "]s\n%[") + "]s"
		add(rare, shape, "part_order", strings.Join(text, ", "))
		if rest, ok := strings.CutSuffix(shape, "\n%[4]s"); ok {
			add(rare, rest, "part_order", strings.Join(text[:3], ", "))
		}
	})
	for verb, name := range map[string]string{"%[5]s": "the public key", "%[6]s": "the host", "%[9]s": "the private key"} {
		add(rare, verb+rightShape, "part_extra", name)
		add(rare, rightShape+verb, "part_extra", name)
		lines := strings.Split(rightShape, "\n")
		for i := range 5 {
			add(rare, strings.Join(slices.Insert(slices.Clone(lines), i, verb), "\n"), "part_extra", name)
		}
		add(rare, strings.Join(append(lines[:3:3], verb), "\n"), "part_extra", name)
	}
	for names := range strings.FieldsSeq("timestamp,method,path,body timestamp,method,path, timestamp,,path,body timestamp,,path, " +
		"ts,method,path,body ts,method,path, ts,,path,body ts,,path, timestamp,,target, timestamp,method,url,body timestamp,,url, ts,,url, t,,p, t,,P, TIMESTAMP,METHOD,PATH,BODY TIMESTAMP,,PATH, TS,,PATH,") {
		for _, form := range []string{"$%s", "${%s}", "{%s}", "#{%s}", "{{%s}}"} {
			lines := strings.Split(names, ",")
			for i, name := range lines {
				if name != "" {
					lines[i] = fmt.Sprintf(form, name)
				}
			}
			lines[1] = cmp.Or(lines[1], "%[2]s")
			for _, separator := range []string{"\n", `\n`} {
				// The first verb prints nothing. It shows fmt that the arguments are indexed.
				add(alone, "%.0[1]s"+strings.Join(lines, separator), "part_missing", "the values: its variables were not replaced")
			}
		}
	}
	return all
}

// separators returns what programs write instead of line feeds.
func separators() []variant {
	var all []variant
	add := func(rarity int, separator, code string, arguments ...any) {
		for _, trim := range []bool{false, true} {
			all = append(all, variant{code, arguments, func(p *parts) {
				p.separator = separator
				if trim && p.body == "" && p.shape == rightShape { // a program that joins three parts
					p.shape = "%[1]s\n%[2]s\n%[3]s"
				}
			}, rarity})
		}
	}
	add(common, "\r\n", "newline_crlf")
	for i, s := range []string{`\n`, `\r\n`, `\\n`, `/n`, "`n", `%n`, "%0A", "%0a", "%0D%0A", `\x0a`, `\x0A`, `\u000a`, `\u000A`, `\012`, "0x0A", "0A", "LF", " LF ", "&#10;", "<br>", "<br/>", "^J"} {
		add(min(i, rare), s, "newline_escaped", strconv.Quote(s))
	}
	add(common, "", "newline_missing", "nothing")
	for i, s := range strings.Split(". : | , & ; - + _ / # ~ ^ $ @ = * :: || -- ?", " ") {
		add(min(i/3, alone), s, "newline_missing", strconv.Quote(s))
		add(alone, s+" ", "newline_missing", strconv.Quote(s+" "))
		add(alone, " "+s+" ", "newline_missing", strconv.Quote(" "+s+" "))
	}
	for _, s := range []string{" ", "\r", "\t", "\n\r", "\x00", "\x1e", "\x1f", "\u0085", "\u2028", " \n", "\n "} {
		add(rare, s, "newline_missing", strconv.Quote(s))
	}
	add(rare, "\n\n", "newline_extra", "after each part")
	return all
}

// changes returns what programs do to the whole signed string.
func changes() []variant {
	var all []variant
	add := func(rarity int, change func(string) string, code string, arguments ...any) {
		all = append(all, variant{code, arguments, func(p *parts) { p.text = change }, rarity})
	}
	around := func(before, after string) func(string) string {
		return func(s string) string { return before + s + after }
	}
	add(common, around("", "\n"), "newline_extra", "at its end")
	add(common, around("\n", ""), "newline_extra", "at its beginning")
	add(common, func(s string) string { return strings.ReplaceAll(s, "/", `\/`) }, "text_encoded", `written with \/ for /`)
	add(rare, around("", "\r\n"), "newline_extra", "at its end")
	add(rare, around("", "\n\n"), "newline_extra", "at its end")
	add(rare, around("\n", "\n"), "newline_extra", "at its beginning and at its end")
	add(rare, around("\n", "\n\n"), "newline_extra", "at its beginning and at its end")
	for _, quote := range []string{`"`, "'", "`"} {
		add(rare, around(quote, quote), "part_extra", "quotation marks")
	}
	for _, option := range []string{"-e", "-n", "-ne", "-en"} {
		add(rare, around(option+" ", "\n"), "part_extra", "echo's option "+option)
		add(rare, around(option+" ", ""), "part_extra", "echo's option "+option)
	}
	add(rare, around("\ufeff", ""), "part_extra", "a byte order mark")
	add(rare, around("", " "), "part_extra", "a space at its end")
	add(rare, around("", "\x00"), "part_extra", "a zero byte at its end")
	for _, e := range []struct {
		what   string
		change func(string) string
	}{
		{"written in lower case", strings.ToLower},
		{"written in upper case", strings.ToUpper},
		{"encoded in base64", func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }},
		{"encoded in hex", func(s string) string { return hex.EncodeToString([]byte(s)) }},
		{"percent-encoded", func(s string) string { return escapes()[0].text(s, false) }},
		{"percent-encoded", func(s string) string { return escapes()[1].text(s, false) }},
		{"percent-encoded", func(s string) string { return escape{unescaped: "-_.~/"}.text(s, false) }},
		{"percent-encoded", url.QueryEscape},
		{"quoted as in JSON", strconv.Quote},
		{"quoted as in JSON", func(s string) string { return strings.ReplaceAll(strconv.Quote(s), "/", `\/`) }},
		{"quoted as in JSON", func(s string) string { return strings.ReplaceAll(strconv.Quote(s), "&", `\u0026`) }},
		{"written as a Python literal", func(s string) string { return "'" + strings.ReplaceAll(s, "\n", `\n`) + "'" }},
		{"written as a Python literal", func(s string) string { return "b'" + strings.ReplaceAll(s, "\n", `\n`) + "'" }},
		{"written as numbers", func(s string) string { return fmt.Sprint([]byte(s)) }},
		{"split into words", func(s string) string { return strings.Join(strings.Fields(s), " ") }},
		{"split into words", func(s string) string { return strings.Join(strings.Fields(s), " ") + "\n" }},
		{"freed of its white space", func(s string) string { return strings.Join(strings.Fields(s), "") }},
		{"used as a format of printf", func(s string) string { return fmt.Sprintf(s, []any{}...) }},
		{"cut at its first percent sign", func(s string) string { before, _, _ := strings.Cut(s, "%"); return before }},
		{"reversed", func(s string) string { b := []byte(s); slices.Reverse(b); return string(b) }},
	} {
		add(rare, e.change, "text_encoded", e.what)
	}
	add(common, utf16Text(binary.LittleEndian), "text_utf16", "The string was")
	add(rare, utf16Text(binary.BigEndian), "text_utf16", "The string was")
	add(rare, func(s string) string { return utf16Text(binary.BigEndian)("\ufeff" + s) }, "text_utf16", "The string was")
	for i, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		all = append(all, variant{"text_utf16", []any{"The string and the key were"}, func(p *parts) { p.encode = utf16Text(order) }, i})
	}
	for _, indent := range []string{" ", "  ", "   ", "    ", "      ", "        ", "          ", "            ", "\t", "\t\t", "\t\t\t"} {
		for _, first := range []string{"", indent, "\n" + indent} {
			for _, end := range []string{"", "\n", "\n" + indent, "\n" + indent[:len(indent)/2], "\n" + indent[min(2, len(indent)):]} {
				indented := func(s string) string { return first + strings.ReplaceAll(s, "\n", "\n"+indent) }
				add(alone, func(s string) string { return indented(s) + end }, "part_extra", "the white space before its lines")
				add(alone, func(s string) string { return strings.TrimRight(indented(s), " \t") + end }, "part_extra", "the white space before its lines")
				add(alone, func(s string) string { return strings.TrimRight(indented(s), " \t\n") + end }, "part_extra", "the white space before its lines")
			}
		}
	}
	return all
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
	t.add(secret+"\n", "secret_whitespace", "a line feed at its end")
	t.add(`"`+secret+`"`, "secret_quotes", "quotation marks")
	_, rest, _ := strings.Cut(secret, "_")
	_, random, _ := strings.Cut(rest, "_") // sk_live_ is the prefix of issued keys, and the rest may have more underscores
	part := func(part, what string) {
		if len(part) >= minSecretPart {
			t.add(part, "secret_truncated", what)
		}
	}
	part(random, "its prefix is missing")
	for _, text := range []string{secret, random} {
		t.rarity = common
		t.add(string(decodeHex(text)), "secret_decoded", "hex")
		t.add(string(decodeBase64(text)), "secret_decoded", "base64")
		t.add(string(decodeBase64(lenientBase64(text, "-_"))), "secret_decoded", "base64")
		t.add(string(decodeBase64(lenientBase64(text, ""))), "secret_decoded", "base64")
		if b := decodeBase32(text); len(b) >= minSecretPart {
			t.add(string(b), "secret_decoded", "base32")
		}
		for _, h := range []namedHash{{"SHA-256", sha256.New}, {"MD5", md5.New}, {"SHA-512", sha512.New}, {"SHA-1", sha1.New}} {
			t.add(hex.EncodeToString(hashed(h.new, text)), "secret_hashed", h.name+" in hex")
			t.add(string(hashed(h.new, text)), "secret_hashed", h.name)
			t.rarity = rare
		}
		for _, text := range []string{text, text + "\n"} {
			encoded := base64.StdEncoding.EncodeToString([]byte(text))
			t.add(encoded, "secret_encoded", "base64")
			t.add(encoded+"\n", "secret_encoded", "base64")
			t.add(strings.TrimRight(encoded, "="), "secret_encoded", "base64")
			t.add(hex.EncodeToString([]byte(text)), "secret_encoded", "hex")
			t.add(strings.ToUpper(hex.EncodeToString([]byte(text))), "secret_encoded", "hex")
		}
	}
	t.rarity = rare
	for _, w := range []struct{ code, what, before, after string }{
		{"secret_whitespace", "CR LF at its end", "", "\r\n"},
		{"secret_whitespace", "a carriage return at its end", "", "\r"},
		{"secret_whitespace", "a space at its end", "", " "},
		{"secret_whitespace", "a tab at its end", "", "\t"},
		{"secret_whitespace", "a non-breaking space at its end", "", "\u00a0"},
		{"secret_whitespace", "a space of no width at its end", "", "\u200b"},
		{"secret_whitespace", "two line feeds at its end", "", "\n\n"},
		{"secret_whitespace", "a space at its beginning", " ", ""},
		{"secret_whitespace", "a line feed at its beginning", "\n", ""},
		{"secret_whitespace", "a byte order mark", "\ufeff", ""},
		{"secret_quotes", "quotation marks", "'", "'"},
		{"secret_quotes", "quotation marks", "`", "`"},
		{"secret_quotes", "quotation marks", "\u201c", "\u201d"},
		{"secret_quotes", "quotation marks", `"`, ""},
		{"secret_quotes", "quotation marks", "", `"`},
		{"secret_quotes", "quotation marks", "", `",`},
		{"secret_quotes", "quotation marks", "'", ""},
		{"secret_quotes", "quotation marks", "", "'"},
		{"secret_quotes", "quotation marks", `\"`, `\"`},
		{"secret_quotes", "quotation marks", `"`, "\"\n"},
		{"secret_quotes", "quotation marks", "b'", "'"},
		{"secret_extra", "a comma at its end", "", ","},
		{"secret_extra", "a semicolon at its end", "", ";"},
		{"secret_extra", "a full stop at its end", "", "."},
		{"secret_extra", "a backslash and n at its end", "", `\n`},
		{"secret_extra", "a zero byte at its end", "", "\x00"},
		{"secret_extra", "an ampersand at its end", "", "&"}, // as OAuth 1.0 without a token does
		{"secret_extra", "angle brackets around it", "<", ">"},
		{"secret_extra", "Optional around it", `Optional("`, `")`},
		{"secret_extra", "an equals sign before it", "=", ""},
		{"secret_extra", "the name of its variable before it", "GATEHOUSE_SECRET=", ""},
		{"secret_extra", "the name of its variable before it", "SECRET=", ""},
		{"secret_extra", "AWS4 before it", "AWS4", ""},
		{"secret_extra", "Bearer before it", "Bearer ", ""},
		{"secret_extra", "its prefix twice", "sk_live_", ""},
		{"secret_extra", "itself once more", secret, ""},
		{"secret_extra", "itself once more", secret + "\n", ""},
		{"secret_extra", "the public key and a colon before it", cred.PublicKey + ":", ""},
		{"secret_extra", "a colon and the public key after it", "", ":" + cred.PublicKey},
		{"secret_extra", "the public key before it", cred.PublicKey, ""},
		{"secret_extra", "the public key after it", "", cred.PublicKey},
		{"secret_extra", "the timestamp before it", a.Timestamp, ""},
		{"secret_extra", "the timestamp after it", "", a.Timestamp},
	} {
		t.add(w.before+secret+w.after, w.code, w.what)
	}
	t.add(strings.TrimSpace(secret), "secret_whitespace", "its white space removed")
	t.add(strings.Trim(secret, "\"'`"), "secret_quotes", "its quotation marks removed")
	part(rest, "its prefix is missing")
	part("_"+random, "its prefix is missing")
	part("sk_"+random, "a part of its prefix is missing")
	part(secret[:max(0, len(secret)-1)], "its last character is missing")
	part(secret[min(1, len(secret)):], "its first character is missing")
	for _, length := range []int{16, 24, 32} {
		if length < len(random) {
			part(random[:length], "the first "+strconv.Itoa(length)+" bytes after its prefix")
		}
		if prefix := len(secret) - len(random); length < len(secret) && length-prefix >= minSecretPart {
			part(secret[:length], "its first "+strconv.Itoa(length)+" bytes")
		}
	}
	t.add("sk_test_"+random, "secret_extra", "the prefix sk_test_")
	t.add("pk_live_"+random, "secret_extra", "the prefix pk_live_")
	t.add(strings.ToUpper(secret), "secret_encoded", "upper case")
	t.add(strings.ToLower(secret), "secret_encoded", "lower case")
	t.add(utf16Text(binary.LittleEndian)(secret), "secret_encoded", "UTF-16")
	t.add(utf16Text(binary.BigEndian)(secret), "secret_encoded", "UTF-16")
	t.add(strconv.Quote(secret), "secret_quotes", "quotation marks")
	t.rarity = alone
	for _, name := range []string{"GATEHOUSE_SECRET", "SECRET", "secret", "SECRET_KEY", "secret_key", "PRIVATE_KEY", "private_key", "API_SECRET", "api_secret", "KEY", "key", "SK", "API_KEY"} {
		t.addAll("secret_placeholder", name, "$"+name, "${"+name+"}", "%"+name+"%", "{{"+name+"}}", "{"+name+"}", "process.env."+name, "<"+name+">")
	}
	t.addAll("secret_placeholder", "-r", "-hex", "-binary", "-sha256", "YOUR_SECRET", "your_secret", "changeme", "sk_live_", "sk_live_…",
		"sk_live_...", "[redacted]", "**********", "0", "true", "sk", "live")
	t.addAll("secret_placeholder", empties()...)
	return append(all, t.variants...)
}

// lenientBase64 returns what decoders keep that ignore characters outside their alphabet, and text after the last whole byte.
func lenientBase64(s, more string) string {
	s = strings.Map(func(r rune) rune {
		if r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("+/"+more, r) {
			return -1
		}
		return r
	}, s)
	if len(s)%4 == 1 {
		s = s[:len(s)-1]
	}
	return s
}

// hmacOf returns a function that computes HMACs. It is not for concurrent use, because it keeps the state of the last key.
func hmacOf(h func() hash.Hash) func(secret, message string) []byte {
	var m hash.Hash
	var last string
	return func(secret, message string) []byte {
		if m == nil || secret != last {
			m, last = hmac.New(h, []byte(secret)), secret
		}
		m.Reset()
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
	add := func(rarity int, sum func(secret, message string) []byte, code string, arguments ...any) {
		all = append(all, variant{code, arguments, func(p *parts) { p.sum = sum }, rarity})
	}
	hmac256 := hmacOf(sha256.New)
	for _, h := range hashes() {
		if h.new().Size() != a.size {
			continue
		}
		sum := func(s string) []byte { return hashed(h.new, s) }
		if h.name != "SHA-256" {
			add(common, hmacOf(h.new), "algorithm", "HMAC-"+strings.Replace(h.name, "SHA-", "SHA", 1))
		}
		rarity := min(len(all), rare) // of mistakes with a hash function that is not the usual one of this size
		add(rarity, func(secret, message string) []byte { return hmacOf(h.new)(message, secret) }, "algorithm_arguments")
		for i, join := range []func(secret, message string) string{
			func(_, message string) string { return message },
			func(secret, message string) string { return secret + message },
			func(secret, message string) string { return message + secret },
			func(secret, message string) string { return secret + "\n" + message },
			func(secret, message string) string { return message + "\n" + secret },
			func(secret, message string) string { return secret + ":" + message },
			func(secret, message string) string { return message + ":" + secret },
			func(secret, message string) string { return secret + "|" + message },
			func(secret, message string) string { return message + "|" + secret },
			func(secret, message string) string { return secret + message + secret },
		} {
			add(max(rarity, min(i/3, rare)), func(secret, message string) []byte { return sum(join(secret, message)) }, "algorithm", "a plain "+h.name+" hash")
		}
		add(rare, func(secret, message string) []byte { return sum(string(sum(secret + message))) }, "algorithm", "a plain "+h.name+" hash, applied twice")
		add(rare, func(_, message string) []byte { return sum(hex.EncodeToString(sum(message))) }, "algorithm", "a plain "+h.name+" hash, applied twice")
		add(rare, func(secret, message string) []byte { return sum(string(hmac256(secret, message))) }, "algorithm", h.name+" of the HMAC")
		add(rare, func(secret, message string) []byte { return sum(hex.EncodeToString(hmac256(secret, message))) }, "algorithm", h.name+" of the HMAC")
	}
	if a.size == sha256.Size {
		for _, h := range []namedHash{{"SHA512", sha512.New}, {"SHA384", sha512.New384}} {
			sum := hmacOf(h.new)
			add(rare, func(secret, message string) []byte { return sum(secret, message)[:a.size] }, "algorithm", "a truncated HMAC-"+h.name)
		}
		for _, encode := range []func([]byte) string{func(b []byte) string { return string(b) }, hex.EncodeToString, base64.StdEncoding.EncodeToString} {
			for _, h := range []namedHash{{"SHA-256", sha256.New}, {"MD5", md5.New}, {"SHA-1", sha1.New}} {
				add(rare, func(secret, message string) []byte { return hmac256(secret, encode(hashed(h.new, message))) }, "algorithm", "HMAC-SHA256 of a hash")
			}
			add(rare, func(secret, message string) []byte { return hmac256(secret, encode(hmac256(secret, message))) }, "algorithm", "HMAC-SHA256 applied twice")
			at, _, _ := instant(a.Timestamp)
			for name, text := range map[string]string{"timestamp": a.Timestamp, "public key": a.PublicKey, "date": at.UTC().Format("20060102")} {
				add(rare, func(secret, message string) []byte { return hmac256(encode(hmac256(secret, text)), message) },
					"algorithm", "HMAC-SHA256 with a key derived from the private key and the "+name)
			}
		}
		for _, change := range []struct {
			what string
			of   func(b []byte) []byte
		}{
			{"the bytes in reverse order", func(b []byte) []byte { slices.Reverse(b); return b }},
			{"the digits in reverse order", func(b []byte) []byte {
				digits := []byte(hex.EncodeToString(b))
				slices.Reverse(digits)
				return decodeHex(string(digits))
			}},
			{"bytes swapped in pairs", func(b []byte) []byte { return reorder(b, 2) }},
			{"words in the other byte order", func(b []byte) []byte { return reorder(b, 4) }},
		} {
			add(rare, func(secret, message string) []byte { return change.of(hmac256(secret, message)) }, "signature_encoding", change.what)
		}
	}
	truncated := func(secret, message string) []byte { return hmac256(secret, message)[:a.size] }
	switch {
	case a.unpaddedSize > 0:
		add(common, truncated, "") // Read has found it
		add(common, func(secret, message string) []byte {
			if a.isUnpadded(hmac256(secret, message)) {
				return append(bytes.Clone(a.digest), make([]byte, a.size-len(a.digest))...)
			}
			return nil
		}, "signature_encoding", "hexadecimal digits without leading zeros")
	case a.size < sha256.Size:
		add(common, truncated, "signature_truncated")
		add(rare, func(secret, message string) []byte { return hmac256(secret, message)[sha256.Size-a.size:] }, "signature_truncated")
	}
	return all
}

// reorder reverses the bytes of each word of n bytes.
func reorder(b []byte, n int) []byte {
	for word := range slices.Chunk(b, n) {
		slices.Reverse(word)
	}
	return b
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
	unquoted := strings.Trim(strings.TrimPrefix(text, "b"), `"'`)
	literal, _ := strconv.Unquote(`"` + strings.NewReplacer(`"`, `\"`, `\'`, "'").Replace(unquoted) + `"`)
	plain := pathUnescape(text)
	latin, err := charmap.ISO8859_1.NewEncoder().Bytes(decodeHex(text))
	for _, c := range []struct {
		form    string
		applies bool
		digests [][]byte
	}{
		{"text in quotation marks", len(unquoted) < len(text)-1, [][]byte{decodeHex(unquoted), decodeBase64(unquoted), []byte(literal)}},
		{"percent-encoded text", plain != text, [][]byte{decodeHex(plain), decodeBase64(plain), []byte(plain)}},
		{"digits with separators", len(text)%3 == 2 && strings.ContainsAny(text, "-: "), [][]byte{decodeHex(strings.NewReplacer("-", "", ":", "", " ", "").Replace(text))}},
		{"the hexadecimal digits of hexadecimal digits", true, [][]byte{decodeHex(string(decodeHex(text)))}},
		{"the hexadecimal digits of base64", true, [][]byte{decodeBase64(string(decodeHex(text)))}},
		{"the hexadecimal digits of text", err == nil && len(latin) < len(text)/2, [][]byte{latin}},
		{"base32", text == strings.ToUpper(text), [][]byte{decodeBase32(text)}},
		{"a decimal number", isDigits(text) && len(text) > 2*sha256.Size && len(text) < 80, [][]byte{decodeDecimal(text)}},
		{"decimal numbers", true, [][]byte{decodeNumbers(text)}},
	} {
		for _, digest := range c.digests {
			if c.applies && hasHashSize(digest) {
				return digest, c.form
			}
		}
	}
	return nil, ""
}

func decodeBase32(text string) []byte {
	b, _ := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(strings.TrimRight(strings.ToUpper(text), "="))
	return b
}

func decodeDecimal(text string) []byte {
	n, ok := new(big.Int).SetString(text, 10)
	if !ok || n.BitLen() > 8*sha256.Size {
		return nil
	}
	return n.FillBytes(make([]byte, sha256.Size))
}

func decodeNumbers(text string) (digest []byte) {
	text = text[strings.LastIndex(text, "[")+1:]
	for _, number := range strings.FieldsFunc(strings.Trim(text, "]{}()"), func(r rune) bool { return r == ',' || r == ' ' }) {
		n, err := strconv.Atoi(number)
		if err != nil || n < -128 || n > 255 {
			return nil
		}
		digest = append(digest, byte(n)) // -128 to -1 are the signed bytes of Java
	}
	return digest
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
