package explain

import (
	"cmp"
	"crypto"
	"crypto/sha256"
	_ "embed" // of variants.txt
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

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
	s := &search{
		attempt: a,
		right: parts{
			timestamp: a.Timestamp, method: a.Method, target: a.signedTarget(), body: string(a.Body),
			publicKey: a.PublicKey, scheme: cmp.Or(a.Scheme, "https"), host: a.Host, base: a.BasePath, secret: cred.PrivateKey.Reveal(),
			shape: rightShape, separator: "\n",
			text:   func(s string) string { return s },
			encode: func(s string) string { return s },
			sum:    hmacOf(sha256.New),
		},
	}
	formats := readFormats()
	for _, dim := range []struct {
		part func(p *parts) *string // that is different, if it is a text
		add  func(d *dimension)
	}{
		{nil, a.addAlgorithms},
		{func(p *parts) *string { return &p.secret }, func(d *dimension) { a.addSecrets(d, cred, now) }},
		{func(p *parts) *string { return &p.timestamp }, a.addTimestamps},
		{func(p *parts) *string { return &p.method }, func(d *dimension) { d.addFormats("method") }},
		{func(p *parts) *string { return &p.target }, a.addTargets},
		{func(p *parts) *string { return &p.target }, addEncodings},
		{func(p *parts) *string { return &p.target }, a.addStarts},
		{func(p *parts) *string { return &p.body }, a.addBodies},
		{nil, addShapes},
		{nil, addSeparators},
		{nil, addChanges},
	} {
		s.dims = append(s.dims, s.right.variants(formats, dim.part, dim.add))
	}
	return s
}

// rightShape is the shape of the string to sign.
const rightShape = "$timestamp\n$method\n$target\n$body"

// message returns the signed string.
func (p *parts) message() string {
	if p.shape == rightShape {
		return p.text(p.timestamp + p.separator + p.method + p.separator + p.target + p.separator + p.body)
	}
	return p.text(p.expand(p.shape))
}

// shape returns what makes a format that of the signed string.
func shape(format string) func(*parts) {
	format = strings.ReplaceAll(format, "\n", "${newline}")
	return func(p *parts) { p.shape = format }
}

// expand replaces the names of parts in a format. Quotation marks, as in ${"method"}, quote the part as in JSON.
func (p *parts) expand(format string) string {
	return os.Expand(format, func(name string) string {
		if unquoted := strings.Trim(name, `"`); unquoted != name {
			return strconv.Quote(p.named(unquoted))
		}
		return p.named(name)
	})
}

// named returns the part that a format calls by a name.
func (p *parts) named(name string) string {
	path, query, _ := strings.Cut(p.target, "?")
	switch name {
	case "timestamp":
		return p.timestamp
	case "method":
		return p.method
	case "target":
		return p.target
	case "body":
		return p.body
	case "newline":
		return p.separator
	case "public_key":
		return p.publicKey
	case "secret":
		return p.secret
	case "scheme":
		return p.scheme
	case "host":
		return p.host
	case "hostname":
		hostname, _, _ := strings.Cut(p.host, ":")
		return hostname
	case "base":
		return p.base
	case "path":
		return path
	case "query":
		return query
	case "mark":
		return p.target[len(path):]
	case "get":
		return strings.ToLower(p.method)
	case "Get":
		return title(strings.ToLower(p.method))
	case "nothing":
		return ""
	case "$":
		return "$"
	}
	panic("unknown part of a request: " + name)
}

// signedTarget returns the target without the path under which the gateway is mounted.
func (a *Attempt) signedTarget() string {
	if rest, ok := strings.CutPrefix(a.Target, a.BasePath); ok && strings.HasPrefix(rest, "/") {
		return rest
	}
	return a.Target
}

// dimension collects the variants of one part of signing. If the part is a text, those are left out that give the right one, or the
// same as an earlier one.
type dimension struct {
	right    parts
	formats  map[string][]format    // of variants.txt, by section
	part     func(p *parts) *string // nil if it is not a text
	seen     map[string]bool        // texts
	rarity   int                    // of the variants that are added next
	variants []variant
}

// variants returns the variants that add adds.
func (p *parts) variants(formats map[string][]format, part func(*parts) *string, add func(*dimension)) []variant {
	d := &dimension{right: *p, formats: formats, part: part, seen: map[string]bool{}}
	if part != nil {
		d.seen[*part(p)] = true
	}
	add(d)
	return d.variants
}

func (d *dimension) apply(apply func(p *parts), code string, arguments ...any) {
	if d.part != nil {
		p := d.right
		apply(&p)
		if !d.isNew(*d.part(&p)) {
			return
		}
	}
	d.variants = append(d.variants, variant{code, arguments, apply, d.rarity})
}

// isNew reports whether a text is neither the right one nor that of an earlier variant, and remembers it.
func (d *dimension) isNew(text string) bool {
	if d.seen[text] {
		return false
	}
	d.seen[text] = true
	return true
}

// add adds a text.
func (d *dimension) add(s, code string, arguments ...any) {
	if d.isNew(s) {
		d.variants = append(d.variants, variant{code, arguments, func(p *parts) { *d.part(p) = s }, d.rarity})
	}
}

// addAll adds texts that are named by themselves.
func (d *dimension) addAll(code string, all ...string) {
	for _, s := range all {
		d.add(s, code, strconv.Quote(s))
	}
}

// change adds a change of the text.
func (d *dimension) change(change func(string) string, code string, arguments ...any) {
	right := *d.part(&d.right)
	changed := change(right)
	d.apply(func(p *parts) {
		if s := d.part(p); *s == right {
			*s = changed
		} else {
			*s = change(*s)
		}
	}, code, arguments...)
}

// format is one of the formats of a line of variants.txt.
type format struct {
	rarity             int
	code, detail, text string
}

//go:embed variants.txt
var document string

// readFormats returns the formats of variants.txt, by section.
func readFormats() map[string][]format {
	lists, sections, section := map[string][]string{}, map[string][]format{}, ""
	for line := range strings.Lines(document) {
		line = strings.TrimSuffix(line, "\n")
		fields := strings.Split(line, "\t")
		switch {
		case line == "", line[0] == '#':
		case line[0] == '[':
			section = strings.Trim(line, "[]")
		case line[0] == '$':
			lists[fields[0]] = fields[1:]
		default:
			for _, line := range listed([]string{line}, lists) {
				fields := strings.Split(line, "\t")
				rarity := slices.Index([]string{"common", "rare", "alone"}, fields[0])
				for _, field := range fields[3:] {
					text, err := strconv.Unquote(`"` + strings.ReplaceAll(field, `"`, `\"`) + `"`)
					if err != nil || rarity < 0 {
						panic("invalid line in variants.txt: " + line)
					}
					sections[section] = append(sections[section], format{rarity, fields[1], fields[2], text})
				}
			}
		}
	}
	return sections
}

// listed returns lines once for each text of the lists that they contain.
func listed(lines []string, lists map[string][]string) []string {
	for name, texts := range lists {
		if strings.Contains(lines[0], name) {
			var all []string
			for _, line := range lines {
				for _, text := range texts {
					all = append(all, strings.ReplaceAll(line, name, text))
				}
			}
			lines = all
		}
	}
	return lines
}

// addFormats adds the texts of a section of variants.txt.
func (d *dimension) addFormats(section string) {
	d.addEach(section, func(format string) func(*parts) {
		return func(p *parts) { *d.part(p) = p.expand(format) }
	})
}

// addEach adds a section of variants.txt. apply returns what each format does.
func (d *dimension) addEach(section string, apply func(format string) func(*parts)) {
	for _, f := range d.formats[section] {
		d.rarity = f.rarity
		apply := apply(f.text)
		switch f.detail {
		case "":
			d.apply(apply, f.code)
		case `"`:
			text := f.text
			if d.part != nil {
				p := d.right
				apply(&p)
				text = *d.part(&p)
			}
			d.apply(apply, f.code, strconv.Quote(text))
		default:
			d.apply(apply, f.code, f.detail)
		}
	}
}

// addTimestamps adds other timestamps. The many with each possible second, millisecond or time zone are not part of pairs.
func (a *Attempt) addTimestamps(d *dimension) {
	at, _, _ := parseTimestamp(a.Timestamp)
	if at.IsZero() {
		return
	}
	add := func(all ...string) { d.addAll("timestamp_other", all...) }
	seconds := at.Unix()
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	add(number(seconds), number(seconds+1), number(seconds-1), number(at.UnixMilli()))
	utc := at.UTC()
	add(utc.Format("2006-01-02T15:04:05.000Z"), utc.Format(time.RFC3339))
	d.rarity = rare
	add(number(at.UnixMicro()), number(at.UnixNano()), number(seconds)+".0", strconv.Quote(number(seconds)), "")
	d.addFormats("timestamp")
	for _, layout := range append(timestampLayouts(), time.UnixDate, "2006-01-02T15:04:05-07:00", "20060102", "20060102150405",
		"Mon Jan 02 2006 15:04:05 GMT-0700 (Coordinated Universal Time)") {
		add(utc.Format(layout))
	}
	d.rarity = alone
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
}

func title(s string) string { return strings.ToUpper(s[:min(1, len(s))]) + s[min(1, len(s)):] }

// addTargets adds other paths and other parameters.
func (a *Attempt) addTargets(d *dimension) {
	right := d.right.target
	for _, v := range d.right.variants(d.formats, d.part, addEncodings) {
		p := d.right
		v.apply(&p)
		d.seen[p.target] = true
	}
	path, query, hasQuery := strings.Cut(right, "?")
	if hasQuery {
		d.addFormats("query")
		addQueries(d, path, query)
	} else {
		d.addFormats("no query")
	}
	d.rarity = rare
	d.add(strings.TrimSuffix(path, "/")+right[len(path):], "path_slash", "it has none at its end")
	d.add(strings.Replace(right, apiPrefix, apiPrefix+"/", 1), "path_slash", "it has two after /api/v1")
	d.addFormats("target")
	d.rarity = alone
	d.add(strings.Replace(right, apiPrefix, "/api/v2", 1), "path_other", "that of another version")
	d.add(strings.Replace(right, apiPrefix, "/api", 1), "path_other", "without the version")
}

// addQueries adds targets with another query.
func addQueries(d *dimension, path, query string) {
	add := func(query, code string, arguments ...any) {
		if query != "" {
			query = "?" + query
		}
		d.add(path+query, code, arguments...)
	}
	join := func(pairs []string) string { return strings.Join(pairs, "&") }
	pairs := strings.Split(query, "&")
	sorted := slices.Sorted(slices.Values(pairs))
	d.rarity = common
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
	d.rarity = rare
	if len(pairs) <= maxPermuted {
		permute(pairs, func(p []string) { add(join(p), "query_order") })
	}
	add(strings.ReplaceAll(query, "&", "&amp;"), "query_encoded", "&amp; for &")
	d.rarity = alone
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
		d.add(path+"?"+object, "query_encoded", "as an object")
		d.add(path+object, "query_encoded", "as an object")
	}
	for _, pair := range [][2]string{{"[]=", "="}, {"=", "[]="}, {"&", ";"}, {"==", "="}} {
		from, to := pair[0], pair[1]
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

// addStarts adds other beginnings of the path.
func (a *Attempt) addStarts(d *dimension) {
	without := func(cut, code string, arguments ...any) {
		d.change(func(s string) string { return strings.TrimPrefix(s, cut) }, code, arguments...)
	}
	d.change(func(s string) string { return a.BasePath + s }, "path_base")
	without(apiPrefix, "path_prefix_missing")
	without("/", "path_slash", "it begins without one")
	d.rarity = rare
	without("/api", "path_prefix_missing")
	without(apiPrefix+"/", "path_prefix_missing")
	without("/api/", "path_prefix_missing")
	if a.Host != "" {
		d.addFormats("host")
	}
	d.addFormats("start")
}

// addEncodings adds ways to encode the target otherwise.
func addEncodings(d *dimension) {
	replace := func(from, to string) func(string) string {
		return func(s string) string { return strings.ReplaceAll(s, from, to) }
	}
	d.change(pathUnescape, "path_decoded")
	d.change(queryUnescape, "path_decoded")
	d.change(func(s string) string { return anEscape.ReplaceAllStringFunc(s, strings.ToLower) }, "path_encoded", "lower-case hex digits in escapes")
	d.rarity = rare
	d.change(func(s string) string { return anEscape.ReplaceAllStringFunc(s, strings.ToUpper) }, "path_encoded", "upper-case hex digits in escapes")
	d.rarity = common
	d.change(replace("%20", "+"), "path_encoded", "+ for a space")
	d.change(replace("+", "%20"), "path_encoded", "%20 for +")
	d.rarity = rare
	d.change(replace("+", "%2B"), "path_encoded", "%2B for +")
	d.change(replace("%20", "%2B"), "path_encoded", "%2B for a space")
	d.change(replace("%20", ""), "path_encoded", "without spaces")
	d.change(replace("%2C", ","), "path_encoded", "commas not escaped")
	for _, e := range escapes() {
		d.rarity = common
		d.change(e.encode, "path_encoded", e.name)
		d.rarity = rare
		d.change(func(s string) string { return anEscape.ReplaceAllStringFunc(e.encode(s), strings.ToLower) }, "path_encoded", e.name+", with lower-case hex digits")
	}
	d.change(url.QueryEscape, "path_encoded", "the whole path escaped as a value")
	d.change(func(s string) string { return escape{unescaped: "-_.~/"}.text(s, false) }, "path_encoded", "the whole path escaped")
	d.change(func(s string) string {
		path, query, _ := strings.Cut(s, "?")
		return strings.TrimSuffix(path+"?"+escapes()[0].text(query, false), "?")
	}, "path_encoded", "the whole query escaped as a value")
	d.change(strings.ToLower, "path_case", "lower")
	d.change(strings.ToUpper, "path_case", "upper")
	d.change(func(s string) string {
		path, query, hasQuery := strings.Cut(s, "?")
		return (&url.URL{Path: path, RawQuery: query, ForceQuery: hasQuery && query == ""}).RequestURI()
	}, "path_encoded", "encoded twice")
	d.change(replace("%", "%25"), "path_encoded", "encoded twice")
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
		d.rarity = alone
		d.change(func(s string) string { return form.change(pathUnescape(s)) }, "path_decoded")
		for _, e := range escapes() {
			d.change(func(s string) string { return e.encodeAs(s, form.change) }, "path_encoded", "its characters in "+form.name)
		}
	}
}

// permute calls f with all orders of s.
func permute[T any](s []T, f func([]T)) {
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

func (a *Attempt) addBodies(d *dimension) {
	body := string(a.Body)
	if body == "" {
		d.addFormats("no body")
	} else {
		d.add("", "body_missing")
		for _, end := range []string{"\n", "\r\n"} {
			d.add(body+end, "body_newline")
			d.add(strings.TrimSuffix(body, end), "body_newline")
		}
		d.add(strings.ReplaceAll(body, "\r\n", "\n"), "body_encoded", "LF for CR LF")
		d.add(strings.ReplaceAll(body, "\n", "\r\n"), "body_encoded", "CR LF for LF")
		d.add(strings.NewReplacer("\r", "", "\n", "").Replace(body), "body_newline")
		for _, s := range reserialized(a.Body) {
			d.add(s, "body_encoded", "re-serialized JSON")
		}
	}
	for i, h := range hashes()[:bodyHashes] {
		d.rarity = min(i, rare)
		sum := hashed(h, body)
		d.add(hex.EncodeToString(sum), "body_hashed", h.String()+" in hex")
		d.add(base64.StdEncoding.EncodeToString(sum), "body_hashed", h.String()+" in base64")
		d.add(strings.ToUpper(hex.EncodeToString(sum)), "body_hashed", h.String()+" in upper-case hex")
	}
	d.rarity = rare
	d.add(base64.StdEncoding.EncodeToString(a.Body), "body_encoded", "base64")
	d.addFormats("body")
	if _, query, _ := strings.Cut(a.Target, "?"); query != "" {
		d.add(query, "body_other", "the query")
		d.add("?"+query, "body_other", "the query")
		for _, e := range escapes() {
			d.add(e.encode("?" + query)[1:], "body_other", "the query")
		}
		for _, object := range objects(query) {
			d.add(object, "body_other", "the query as JSON")
		}
	}
}

// addShapes adds other ways to put the parts together.
func addShapes(d *dimension) {
	d.addEach("shape", shape)
	d.rarity = rare
	bodyOnly := "everything but the body"
	if d.right.body == "" {
		bodyOnly = "every part, and is empty"
	}
	d.apply(shape("$body"), "part_missing", bodyOnly)
	names, order := []string{"timestamp", "method", "path", "body"}, []int{0, 1, 2, 3}
	lines := strings.Split(rightShape, "\n")
	permute(order, func(order []int) {
		if slices.IsSorted(order) {
			return
		}
		var text, shapes []string
		for _, i := range order {
			text, shapes = append(text, names[i]), append(shapes, lines[i])
		}
		d.apply(shape(strings.Join(shapes, "\n")), "part_order", strings.Join(text, ", "))
		if order[3] == 3 {
			d.apply(shape(strings.Join(shapes[:3], "\n")), "part_order", strings.Join(text[:3], ", "))
		}
	})
	for _, extra := range [][2]string{{"$public_key", "the public key"}, {"$host", "the host"}, {"$secret", "the private key"}} {
		part, name := extra[0], extra[1]
		d.apply(shape(part+rightShape), "part_extra", name)
		d.apply(shape(rightShape+part), "part_extra", name)
		for i := range 5 {
			d.apply(shape(strings.Join(slices.Insert(slices.Clone(lines), i, part), "\n")), "part_extra", name)
		}
		d.apply(shape(strings.Join(append(lines[:3:3], part), "\n")), "part_extra", name)
	}
	d.rarity = alone
	addJSON(d)
	for names := range strings.FieldsSeq("timestamp,method,path,body timestamp,method,path, timestamp,,path,body timestamp,,path, " +
		"ts,method,path,body ts,method,path, ts,,path,body ts,,path, timestamp,,target, timestamp,method,url,body timestamp,,url, ts,,url, t,,p, t,,P, TIMESTAMP,METHOD,PATH,BODY TIMESTAMP,,PATH, TS,,PATH,") {
		for _, form := range []string{"$$%s", "$${%s}", "{%s}", "#{%s}", "{{%s}}"} {
			lines := strings.Split(names, ",")
			for i, name := range lines {
				if name != "" {
					lines[i] = fmt.Sprintf(form, name)
				}
			}
			lines[1] = cmp.Or(lines[1], "$method")
			for _, separator := range []string{"\n", `\n`} {
				d.apply(shape(strings.Join(lines, separator)), "part_missing", "the values: its variables were not replaced")
			}
		}
	}
}

// addJSON adds the parts as a JSON array, or as an object with its members in any order.
func addJSON(d *dimension) {
	spaced := strings.NewReplacer(":", ": ", ",", ", ")
	escapes := []*strings.Replacer{strings.NewReplacer(), strings.NewReplacer("/", `\/`), strings.NewReplacer("&", `\u0026`)}
	add := func(compact string) {
		for _, shape := range []string{compact, spaced.Replace(compact)} {
			for _, escape := range escapes {
				d.apply(func(p *parts) { p.shape, p.text = shape, escape.Replace }, "newline_missing", "JSON")
			}
		}
	}
	for _, number := range []string{"$timestamp", `${"timestamp"}`} {
		for _, end := range []string{`,${"body"}]`, ",null]", "]"} {
			add("[" + number + `,${"method"},${"target"}` + end)
		}
		for _, path := range []string{"path", "url"} {
			for _, body := range []string{`"body":${"body"}`, `"body":null`, ""} {
				members := []string{`"timestamp":` + number, `"method":${"method"}`, `"` + path + `":${"target"}`, body}
				permute(members, func(order []string) {
					add("{" + strings.Trim(strings.ReplaceAll(strings.Join(order, ","), ",,", ","), ",") + "}")
				})
			}
		}
	}
}

// addSeparators adds what programs write instead of line feeds. With each, a program may join three parts if there is no body.
func addSeparators(d *dimension) {
	withoutBody := shape("$timestamp\n$method\n$target")
	for _, three := range []bool{false, true} {
		separator := func(separator string) func(*parts) {
			return func(p *parts) {
				p.separator = separator
				if three && p.body == "" && p.shape == rightShape {
					withoutBody(p)
				}
			}
		}
		d.addEach("separator", separator)
		d.rarity = common
		d.apply(separator(""), "newline_missing", "nothing")
		d.rarity = alone
		for s := range strings.FieldsSeq(". : | , & ; - + _ / # ~ ^ $ @ = * :: || -- ?") {
			for _, spaced := range []string{s + " ", " " + s + " "} {
				d.apply(separator(spaced), "newline_missing", strconv.Quote(spaced))
			}
		}
	}
}

// addChanges adds what programs do to the whole signed string.
func addChanges(d *dimension) {
	change := func(change func(string) string, code string, arguments ...any) {
		d.apply(func(p *parts) { p.text = change }, code, arguments...)
	}
	d.addEach("text", func(format string) func(*parts) {
		before, after, _ := strings.Cut(format, "$text")
		return func(p *parts) {
			p.text = func(s string) string { return before + s + after }
		}
	})
	d.rarity = common
	change(func(s string) string { return strings.ReplaceAll(s, "/", `\/`) }, "text_encoded", `written with \/ for /`)
	d.rarity = rare
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
		change(e.change, "text_encoded", e.what)
	}
	change(utf16Text(binary.BigEndian), "text_utf16", "The string was")
	change(func(s string) string { return utf16Text(binary.BigEndian)("\ufeff" + s) }, "text_utf16", "The string was")
	d.rarity = common
	change(utf16Text(binary.LittleEndian), "text_utf16", "The string was")
	for i, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		d.rarity = i
		d.apply(func(p *parts) { p.encode = utf16Text(order) }, "text_utf16", "The string and the key were")
	}
	d.rarity = alone
	for _, indent := range []string{" ", "  ", "   ", "    ", "      ", "        ", "          ", "            ", "\t", "\t\t", "\t\t\t"} {
		for _, first := range []string{"", indent, "\n" + indent} {
			for _, end := range []string{"", "\n", "\n" + indent, "\n" + indent[:len(indent)/2], "\n" + indent[min(2, len(indent)):]} {
				for _, trimmed := range []string{"", " \t", " \t\n"} {
					change(func(s string) string {
						return strings.TrimRight(first+strings.ReplaceAll(s, "\n", "\n"+indent), trimmed) + end
					}, "part_extra", "the white space before its lines")
				}
			}
		}
	}
}

func (a *Attempt) addSecrets(d *dimension, cred *authsigner.Credential, now time.Time) {
	secret := d.right.secret
	if previous := cred.PreviousPrivateKey.Reveal(); previous != "" {
		if now.IsZero() || now.Before(cred.PreviousExpiresAt) {
			d.add(previous, "") // still valid, and so no mistake
		}
		d.add(previous, "secret_previous")
	}
	d.add(cred.PublicKey, "secret_public_key")
	d.add(a.PublicKey, "secret_public_key")
	d.add("", "secret_empty")
	_, rest, _ := strings.Cut(secret, "_")
	_, random, _ := strings.Cut(rest, "_") // sk_live_ is the prefix of issued keys, and the rest may have more underscores
	part := func(part, what string) {
		if len(part) >= minSecretPart {
			d.add(part, "secret_truncated", what)
		}
	}
	part(random, "its prefix is missing")
	for _, text := range []string{secret, random} {
		d.rarity = common
		d.add(string(decodeHex(text)), "secret_decoded", "hex")
		d.add(string(decodeBase64(text)), "secret_decoded", "base64")
		d.add(string(decodeBase64(lenientBase64(text, "-_"))), "secret_decoded", "base64")
		d.add(string(decodeBase64(lenientBase64(text, ""))), "secret_decoded", "base64")
		if b := decodeBase32(text); len(b) >= minSecretPart {
			d.add(string(b), "secret_decoded", "base32")
		}
		for _, h := range []crypto.Hash{crypto.SHA256, crypto.MD5, crypto.SHA512, crypto.SHA1} {
			d.add(hex.EncodeToString(hashed(h, text)), "secret_hashed", h.String()+" in hex")
			d.add(string(hashed(h, text)), "secret_hashed", h.String())
			d.rarity = rare
		}
		for _, text := range []string{text, text + "\n"} {
			encoded := base64.StdEncoding.EncodeToString([]byte(text))
			d.add(encoded, "secret_encoded", "base64")
			d.add(encoded+"\n", "secret_encoded", "base64")
			d.add(strings.TrimRight(encoded, "="), "secret_encoded", "base64")
			d.add(hex.EncodeToString([]byte(text)), "secret_encoded", "hex")
			d.add(strings.ToUpper(hex.EncodeToString([]byte(text))), "secret_encoded", "hex")
		}
	}
	d.addFormats("secret")
	d.rarity = rare
	d.add(strings.TrimSpace(secret), "secret_whitespace", "its white space removed")
	d.add(strings.Trim(secret, "\"'`"), "secret_quotes", "its quotation marks removed")
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
	d.add("sk_test_"+random, "secret_extra", "the prefix sk_test_")
	d.add("pk_live_"+random, "secret_extra", "the prefix pk_live_")
	d.add(strings.ToUpper(secret), "secret_encoded", "upper case")
	d.add(strings.ToLower(secret), "secret_encoded", "lower case")
	d.add(utf16Text(binary.LittleEndian)(secret), "secret_encoded", "UTF-16")
	d.add(utf16Text(binary.BigEndian)(secret), "secret_encoded", "UTF-16")
	d.add(strconv.Quote(secret), "secret_quotes", "quotation marks")
	d.addFormats("placeholder")
}
