package reference

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/template"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

//go:embed samples
var sampleFiles embed.FS

// language is a language of the samples. Its name is that of its template.
type language struct{ Name, Title string }

func languages() []language {
	return []language{{"shell", "Shell"}, {"python", "Python"}, {"javascript", "JavaScript"}, {"php", "PHP"}}
}

// Request is an example of a request to the API.
type Request struct {
	Method, Target, Body string   // the target with the base path
	Headers              []Header // without those of the signature; in printable ASCII
	Signed               bool
	Download             bool // the response may be something else than JSON
}

// Header is a header of a request.
type Header struct {
	Name, Value string
	New         bool // each request needs another value, which may be any text: an Idempotency-Key
}

// Requests returns an example of a request for each operation of a published document, in its order.
func Requests(published *yaml.Node) []Request { return read(published).requests }

type sample struct{ Language, Code string }

//nolint:gochecknoglobals // parsed once
var programs = sync.OnceValue(func() *template.Template {
	// A text of the document must not end the literal that it is in. Values in double quotes are printable ASCII only.
	escape := func(pairs ...string) func(string) string { return strings.NewReplacer(pairs...).Replace }
	return template.Must(template.New("").Funcs(template.FuncMap{
		"shell": escape(`'`, `'\''`), "python": escape(`\`, `\\`, `'`, `\'`), "php": escape(`\`, `\\`, `'`, `\'`),
		"javascript": escape(`\`, `\\`, "`", "\\`", "$", `\$`), "quoted": strconv.Quote,
	}).ParseFS(sampleFiles, "samples/*"))
})

// samples returns programs that send a request.
func samples(r Request) (all []sample) {
	for _, l := range languages() {
		var code bytes.Buffer
		_ = programs().ExecuteTemplate(&code, l.Name, r) // it cannot fail: the templates are part of the program, and show all requests
		all = append(all, sample{l.Name, strings.TrimSpace(code.String())})
	}
	return all
}

// request returns an example of a request for an operation.
func (p *page) request(method, path string, parameters []node, body node, signed bool) Request {
	r := Request{Method: method, Signed: signed}
	escape := func(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }
	header := func(name, value string) {
		printable := func(c rune) rune {
			if c < ' ' || c > '~' {
				return '_'
			}
			return c
		}
		isKey := strings.EqualFold(name, "Idempotency-Key") && value == anyText
		if value == anyText && strings.HasSuffix(strings.ToLower(name), "-match") {
			value = `"the-ETag-of-the-GET"` // the quotation marks are part of a tag
		}
		r.Headers = append(r.Headers, Header{strings.Map(printable, name), strings.Map(printable, value), isKey})
	}
	content := body.get("content").entries()
	if i := slices.IndexFunc(content, func(e entry) bool { return e.name == "application/json" }); i > 0 {
		content = content[i:]
	}
	if len(content) > 0 {
		header("Content-Type", content[0].name)
		r.Body = p.exampleText(content[0].value, content[0].value.get("schema"), true)
	}
	segments, query, values := strings.Split(p.base+path, "/"), []string(nil), map[string]string{}
	for _, parameter := range parameters {
		name, value := parameter.get("name").text(), p.example(parameter, parameter.get("schema"), true)
		text, separator := value.Value, ","
		if value.Kind == yaml.SequenceNode {
			var texts []string
			for _, item := range value.Content {
				texts = append(texts, escape(item.Value))
			}
			if parameter.get("explode").text() != "false" {
				separator = "&" + escape(name) + "="
			}
			text = strings.Join(texts, separator)
		} else if parameter.get("in").text() != "header" {
			text = escape(text)
		}
		required := parameter.get("required").isTrue()
		switch parameter.get("in").text() {
		case "path":
			values["{"+name+"}"] = text
		case "query":
			if required {
				query = append(query, escape(name)+"="+text)
			}
		case "header":
			if required || strings.EqualFold(name, "Idempotency-Key") {
				header(name, text)
			}
		}
	}
	for i, segment := range segments {
		literal := url.URL{Path: segment, RawPath: segment} // paths match byte for byte: what may stand in one is not escaped
		segments[i] = cmp.Or(values[segment], literal.EscapedPath())
	}
	r.Target = strings.Join(segments, "/")
	if len(query) > 0 {
		r.Target += "?" + strings.Join(query, "&")
	}
	return r
}

// example returns an example for a parameter, a body or a response: the document's, or one made from the schema.
func (p *page) example(n, schema node, sent bool) node {
	if example := n.get("example"); example.Node != nil {
		return example
	}
	for _, e := range n.get("examples").entries() {
		if value := p.resolve(e.value).get("value"); value.Node != nil {
			return value
		}
	}
	p.budget = maxExample
	return p.made(p.shape(schema), sent, 0)
}

func (p *page) exampleText(n, schema node, sent bool) string {
	return toJSON(p.example(n, schema, sent), 0)
}

func put(object *yaml.Node, name string, value node) {
	object.Content = append(object.Content, scalar("!!str", name).Node, value.Node)
}

func scalar(tag, value string) node {
	return node{&yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}}
}

// made returns an example for a schema. What callers send has only the required members, or the first one if none is required.
func (p *page) made(s *shape, sent bool, depth int) node {
	for _, name := range []string{"example", "examples", "default", "const", "enum", "x-extensible-enum"} {
		value, list := s.keywords[name], name == "examples" || strings.Contains(name, "enum")
		if items := value.items(); list && len(items) > 0 {
			value = items[p.variant%len(items)]
		}
		if value.Node != nil && (list || p.variant == 0 || name == "const") && p.fits(value, s) {
			return value
		}
	}
	types, null := s.types()
	p.budget--
	switch {
	case p.budget < 0 || depth > maxNesting:
		return scalar("!!null", "null")
	case len(s.choices) > 0:
		return p.made(s.chosen(p), sent, depth+1)
	case slices.Contains(types, "object") || len(s.members) > 0:
		out := &yaml.Node{Kind: yaml.MappingNode}
		for i, m := range s.members {
			if slices.Contains(s.required, m.name) || depth < 4 && p.budget > 0 && (!sent || i == 0 && len(s.required) == 0) {
				put(out, m.name, p.made(p.shape(m.value), sent, depth+1))
			}
		}
		return node{out}
	case slices.Contains(types, "array"):
		out := &yaml.Node{Kind: yaml.SequenceNode}
		items, variant := 0, p.variant
		if _, _ = fmt.Sscan(s.keywords["minItems"].text(), &items); depth < 4 {
			items = max(items, 1)
		}
		for ; items > 0 && (p.budget > 0 || len(out.Content) == 0); items-- {
			if s.keywords["uniqueItems"].isTrue() {
				p.variant = variant + len(out.Content)
			}
			out.Content = append(out.Content, p.made(p.shape(s.keywords["items"]), sent, depth+1).Node)
		}
		p.variant = variant
		return node{out}
	case slices.Contains(types, "integer"), slices.Contains(types, "number"):
		for i, bound := range []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"} {
			n := s.keywords[bound]
			apart := (i/2 + p.variant) * (1 - i%2*2)
			if value, err := strconv.ParseFloat(n.text(), 64); err == nil && apart == 0 {
				return n // with all of its digits
			} else if err == nil {
				return scalar("!!float", strconv.FormatFloat(value+float64(apart), 'f', -1, 64))
			}
		}
		return scalar("!!int", strconv.Itoa(1+p.variant))
	case slices.Contains(types, "boolean"):
		return scalar("!!bool", strconv.FormatBool(p.variant%2 == 0))
	case null && len(types) == 0:
		return scalar("!!null", "null")
	}
	return scalar("!!str", s.madeText(p.variant))
}

// fits reports whether a value has the members and the constants of a schema. An example of one of its parts need not.
func (p *page) fits(value node, s *shape) bool {
	same := func(other node) bool { return other.Value == value.Value && toJSON(other, 0) == toJSON(value, 0) }
	for _, m := range s.members {
		member := value.get(m.name)
		if member.Node == nil && value.isObject() && slices.Contains(s.required, m.name) || member.Node != nil && !p.fits(member, p.shape(m.value)) {
			return false
		}
	}
	constant, enum := s.keywords["const"], s.keywords["enum"].items()
	return (constant.Node == nil || same(constant)) && (len(enum) == 0 || slices.ContainsFunc(enum, same))
}

// anyText is the example of a text for which nothing must hold.
const anyText = "example"

// maxVaried is the number of characters of which one differs in variants of a text.
const maxVaried = 40 // more than a UUID has

// unicodeEscape matches the escape of ECMA-262 that RE2 writes as \x{XXXX}.
var unicodeEscape = regexp.MustCompile(`\\u([0-9A-Fa-f]{4})`)

// madeText returns a text that a schema allows, or nearly. Variants differ in a digit near the end, if one can be there.
func (s *shape) madeText(variant int) string {
	ofFormat := map[string]string{
		"uuid": "3b0f7a9e-58c1-4e0f-9b55-2f1f3f6d7c01", "date": "2027-01-31", "date-time": "2027-01-31T12:00:00Z", "time": "12:00:00Z",
		"email": "office@business.example", "uri": "https://business.example/",
	}[s.keywords["format"].text()]
	expression := unicodeEscape.ReplaceAllString(s.keywords["pattern"].text(), `\x{$1}`)
	pattern, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return cmp.Or(ofFormat, anyText)
	}
	var low, high int
	_, _ = fmt.Sscan(s.keywords["minLength"].text(), &low)
	_, _ = fmt.Sscan(s.keywords["maxLength"].text(), &high)
	low = min(low, maxExample)
	matches := regexp.MustCompile(expression).MatchString
	words := []string{anyText, strings.Repeat("example-", low/8+1)[:max(low, 1)]}
	if ofFormat != "" {
		words = []string{ofFormat}
	}
	made := matching(pattern, 1)
	for _, text := range append(words, made, matching(pattern, low)) {
		if n := utf8.RuneCountInString(text); n >= low && (high == 0 || n <= high) && matches(text) {
			made = text
			break
		}
	}
	for i := len(made) - 1; variant > 0 && i >= max(0, len(made)-maxVaried); i-- {
		other := made[:i] + strconv.Itoa((variant+1)%10) + made[i+1:]
		if made[i] < utf8.RuneSelf && matches(other) && (ofFormat == "" || made[i] == '7') { // a digit of a format that can be any other one
			return other
		}
	}
	return made
}

// matching returns a text that a regular expression matches. It repeats n times what may be repeated.
func matching(pattern *syntax.Regexp, n int) (text string) {
	switch pattern.Op {
	case syntax.OpLiteral:
		return string(pattern.Rune)
	case syntax.OpCharClass:
		class := regexp.MustCompile(pattern.String())
		if i := strings.IndexFunc("1aAé", func(c rune) bool { return class.MatchString(string(c)) }); i >= 0 {
			return string([]rune("1aAé")[i])
		}
		return string(pattern.Rune[:1])
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return "a"
	case syntax.OpAlternate, syntax.OpCapture:
		return matching(pattern.Sub[0], n)
	case syntax.OpPlus, syntax.OpStar:
		return strings.Repeat(matching(pattern.Sub[0], 1), min(n, maxExample))
	case syntax.OpRepeat:
		return strings.Repeat(matching(pattern.Sub[0], n), pattern.Min)
	case syntax.OpConcat:
		for _, part := range pattern.Sub {
			text += matching(part, n)
		}
	}
	return text
}

// maxExample limits the values and the characters of an example that is made from a schema: schemas can contain themselves more than once.
const maxExample = 500

// maxLine is the length up to which an object or an array stands on one line.
const maxLine = 44

// toJSON returns a value as JSON text. depth is how deep the text is indented.
func toJSON(n node, depth int) string {
	switch {
	case n.Node == nil:
		return "null"
	case n.Kind == yaml.ScalarNode:
		if tag := n.ShortTag(); (tag == "!!int" || tag == "!!float" || tag == "!!bool" || tag == "!!null") && json.Valid([]byte(n.Value)) {
			return n.Value
		}
		return quote(n.Value)
	}
	var parts []string
	for _, item := range n.items() {
		parts = append(parts, toJSON(item, depth+1))
	}
	for _, e := range n.entries() {
		parts = append(parts, quote(e.name)+": "+toJSON(e.value, depth+1))
	}
	brackets := "[]"
	if n.Kind == yaml.MappingNode {
		brackets = "{}"
	}
	line := brackets[:1] + strings.Join(parts, ", ") + brackets[1:]
	if len(parts) == 0 || utf8.RuneCountInString(line)+2*depth <= maxLine && !strings.Contains(line, "\n") {
		return line
	}
	indent := "\n" + strings.Repeat("  ", depth)
	return brackets[:1] + indent + "  " + strings.Join(parts, ","+indent+"  ") + indent + brackets[1:]
}

// plain returns a text as it is, and another value in JSON.
func plain(n node) string {
	if n.ShortTag() == "!!str" {
		return n.Value
	}
	return toJSON(n, 0)
}

// quote returns a JSON string. What does not print is escaped: it could change how a program reads.
func quote(s string) string {
	quoted, _ := jsontext.AppendQuote(nil, strings.ToValidUTF8(s, "\ufffd")) // valid UTF-8 can always be quoted
	var printed strings.Builder
	for _, c := range string(quoted) {
		if unicode.IsPrint(c) || c > 0xffff {
			printed.WriteRune(c)
		} else {
			fmt.Fprintf(&printed, `\u%04x`, c)
		}
	}
	return printed.String()
}
