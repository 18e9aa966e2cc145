package reference

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
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

// Request is an example of a request.
type Request struct {
	Method, Target, Body string   // the target with the base path
	Headers              []Header // besides the signature's, of printable ASCII
	Signed               bool
}

// Header is a header of a request.
type Header struct{ Name, Value string }

// Requests returns an example of a request for each operation of a published document in YAML, in its order.
func Requests(published []byte) ([]Request, error) {
	p, err := read(published)
	if err != nil {
		return nil, err
	}
	return p.requests, nil
}

type sample struct{ Language, Code string }

// samples returns programs that send a request.
func (p *page) samples(r Request) (all []sample, err error) {
	if p.programs == nil {
		// A text of the document must not end the literal that it is in. Literals in double quotes are of printable ASCII.
		escape := func(pairs ...string) func(string) string { return strings.NewReplacer(pairs...).Replace }
		p.programs, err = template.New("").Funcs(template.FuncMap{
			"shell": escape(`'`, `'\''`), "python": escape(`\`, `\\`, `'`, `\'`), "php": escape(`\`, `\\`, `'`, `\'`),
			"javascript": escape(`\`, `\\`, "`", "\\`", "$", `\$`), "quoted": strconv.Quote,
		}).ParseFS(sampleFiles, "samples/*")
		if err != nil {
			return nil, fmt.Errorf("parsing the samples: %w", err)
		}
	}
	for _, l := range languages() {
		var code bytes.Buffer
		if err := p.programs.ExecuteTemplate(&code, l.Name, r); err != nil {
			return nil, fmt.Errorf("rendering a sample: %w", err)
		}
		all = append(all, sample{l.Name, strings.TrimSpace(code.String())})
	}
	return all, nil
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
		r.Headers = append(r.Headers, Header{strings.Map(printable, name), strings.Map(printable, value)})
	}
	content := body.get("content").entries()
	if i := slices.IndexFunc(content, func(e entry) bool { return e.name == "application/json" }); i > 0 {
		content = content[i:]
	}
	if len(content) > 0 {
		header("Content-Type", content[0].name)
		r.Body = p.exampleText(content[0].value, content[0].value.get("schema"), caller)
	}
	segments, query := strings.Split(p.base+path, "/"), []string(nil)
	for i, segment := range segments {
		if !strings.HasPrefix(segment, "{") {
			segments[i] = escape(segment)
		}
	}
	for _, parameter := range parameters {
		name, value := parameter.get("name").text(), p.example(parameter, parameter.get("schema"), caller)
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
			for i := range segments {
				if segments[i] == "{"+name+"}" {
					segments[i] = text
				}
			}
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
	r.Target = strings.Join(segments, "/")
	if len(query) > 0 {
		r.Target += "?" + strings.Join(query, "&")
	}
	return r
}

// example returns an example of what has a schema: the document's, or one made from the schema.
func (p *page) example(n, schema node, from side) *yaml.Node {
	examples := n.get("examples").entries()
	if example := n.get("example"); example.Node != nil {
		return p.sent(example, schema, from, 0)
	} else if len(examples) > 0 && p.resolve(examples[0].value).get("value").Node != nil {
		return p.sent(p.resolve(examples[0].value).get("value"), schema, from, 0)
	}
	p.budget = maxExample
	return p.made(schema, from, 0)
}

func (p *page) exampleText(n, schema node, from side) string {
	return toJSON(node{p.example(n, schema, from)}, 0)
}

// sent returns an example without members that a side does not send.
func (p *page) sent(value, schema node, from side, depth int) *yaml.Node {
	if value.Kind == yaml.ScalarNode || depth > maxNesting {
		return value.Node
	}
	s := p.shape(schema)
	out := &yaml.Node{Kind: value.Kind}
	for _, item := range value.items() {
		out.Content = append(out.Content, p.sent(item, s.keywords["items"], from, depth+1))
	}
	for _, e := range value.entries() {
		i := slices.IndexFunc(s.members, func(m entry) bool { return m.name == e.name })
		switch {
		case i < 0:
			put(out, e.name, e.value.Node)
		case !s.members[i].value.get(string(from)).isTrue():
			put(out, e.name, p.sent(e.value, s.members[i].value, from, depth+1))
		}
	}
	return out
}

func put(object *yaml.Node, name string, value *yaml.Node) {
	object.Content = append(object.Content, scalar("!!str", name), value)
}

func scalar(tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}

// made returns an example for a schema. What callers send has only the members that they must send, or one.
func (p *page) made(schema node, from side, depth int) *yaml.Node {
	s := p.shape(schema)
	for _, name := range []string{"example", "examples", "const", "default", "enum", "x-extensible-enum"} {
		value := s.keywords[name]
		if items := value.items(); len(items) > 0 && (name == "examples" || strings.Contains(name, "enum")) {
			value = items[0]
		}
		if value.Node != nil {
			return p.sent(value, schema, from, 0)
		}
	}
	types, null := s.types()
	object := slices.Contains(types, "object") || len(s.members) > 0
	p.budget--
	switch {
	case p.budget < 0 || depth > maxNesting:
		return scalar("!!null", "null")
	case len(s.choices) > 0 && !object:
		return p.made(s.choices[0], from, depth+1)
	case object:
		out := &yaml.Node{Kind: yaml.MappingNode}
		members := s.seenBy(from)
		for i, m := range members {
			if slices.Contains(s.required, m.name) || depth < 4 && p.budget > 0 && (from == gateway || i == 0 && len(s.required) == 0) {
				put(out, m.name, p.made(m.value, from, depth+1))
			}
		}
		if len(s.choices) > 0 {
			for _, e := range (node{p.made(s.choices[0], from, depth+1)}).entries() {
				if (node{out}).get(e.name).Node == nil {
					put(out, e.name, e.value.Node)
				}
			}
		}
		return out
	case slices.Contains(types, "array"):
		out := &yaml.Node{Kind: yaml.SequenceNode}
		if depth < 4 || s.keywords["minItems"].text() > "0" {
			out.Content = append(out.Content, p.made(s.keywords["items"], from, depth+1))
		}
		return out
	case slices.Contains(types, "integer"), slices.Contains(types, "number"):
		for _, bound := range []string{"minimum", "maximum"} {
			if n := s.keywords[bound]; n.Node != nil {
				return n.Node
			}
		}
		return scalar("!!int", "1")
	case slices.Contains(types, "boolean"):
		return scalar("!!bool", "true")
	case null && len(types) == 0:
		return scalar("!!null", "null")
	}
	return scalar("!!str", s.madeText())
}

// madeText returns a text that a schema allows, or "example" if none is found.
func (s *shape) madeText() string {
	if text := map[string]string{
		"uuid": "3b0f7a9e-58c1-4e0f-9b55-2f1f3f6d7c01", "date": "2027-01-31", "date-time": "2027-01-31T12:00:00Z", "time": "12:00:00Z",
		"email": "office@business.example", "uri": "https://business.example/",
	}[s.keywords["format"].text()]; text != "" && s.keywords["pattern"].Node == nil {
		return text
	}
	pattern, err := regexp.Compile(s.keywords["pattern"].text())
	var low, high int
	_, _ = fmt.Sscan(s.keywords["minLength"].text(), &low)
	_, _ = fmt.Sscan(s.keywords["maxLength"].text(), &high)
	for _, text := range []string{
		"example", "2027-01-31T12:00:00Z", "2027-01-31", "12:00", "12.50", "1", "a", "A", "EUR", "DE", "A1", "A-1", "a-1", "US", "+12025550143",
		"#336699", "1.0.0", "3b0f7a9e-58c1-4e0f-9b55-2f1f3f6d7c01", "https://business.example/", "0123456789abcdef",
	} {
		if low > len(text) && low < 1024 {
			text = strings.Repeat(text, low/len(text)+1)[:low]
		}
		if high > 0 && high < len(text) {
			text = text[:high]
		}
		if err == nil && pattern.MatchString(text) {
			return text
		}
	}
	return "example"
}

// maxExample is how many values an example that is made from a schema has at most. Schemas can refer to themselves more than once.
const maxExample = 500

// maxLine is the length up to which an object or an array stands on one line.
const maxLine = 44

// toJSON returns a value in JSON, at a depth of an indented text.
func toJSON(n node, depth int) string {
	switch n.Kind {
	case yaml.ScalarNode:
		if tag := n.ShortTag(); (tag == "!!int" || tag == "!!float" || tag == "!!bool" || tag == "!!null") && json.Valid([]byte(n.Value)) {
			return n.Value
		}
		return quote(n.Value)
	case yaml.SequenceNode, yaml.MappingNode:
	default:
		return "null"
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
	quoted, _ := jsontext.AppendQuote(nil, strings.ToValidUTF8(s, "\ufffd")) // a valid text has always an encoding
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
