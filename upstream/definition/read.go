package definition

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// Limits of a document, also after overlays. yaml.v3 reads the worst 4 MiB found in 2 s and 800 MB.
const (
	maxText   = 4 << 20 // bytes
	maxNodes  = 400_000 // names and values
	maxLevels = 64      // objects and arrays inside each other
	maxName   = 1024    // bytes
	maxFaults = 100     // how many are listed
	maxTags   = 100     // %TAG directives: yaml.v3 compares each with all others
)

// parse reads a document with one value, in YAML or JSON, and returns the value. All scalars have the tag !!str, !!int, !!float, !!bool or
// !!null, and names have !!str, also where they look like numbers (200). No value has an Anchor: it is the file of values from overlays.
func parse(file string, text []byte) (*yaml.Node, []*FaultError) {
	r := reader{file: file}
	if root := r.read(bytes.TrimPrefix(text, []byte("\ufeff"))); root != nil {
		r.value(rootNode(root), 0)
		if r.faults == nil {
			return root, nil
		}
	}
	return nil, r.faults
}

type reader struct {
	file   string
	nodes  int
	faults []*FaultError
}

// isFull reports whether reading ends because of too many faults or values.
func (r *reader) isFull() bool { return len(r.faults) >= maxFaults || r.nodes > maxNodes }

func (r *reader) fault(n node, message string, args ...any) {
	r.faults = append(r.faults, faultAt(r.file, n, message, args...))
}

// atLine returns a place in a line, for faults of the text itself.
func atLine(line int) node { return rootNode(&yaml.Node{Line: line}) }

// read returns the value of a text, or nil after a fault.
func (r *reader) read(text []byte) *yaml.Node {
	valid := bytes.IndexFunc(bytes.ToValidUTF8(text[:min(len(text), maxText)], []byte{0}), func(c rune) bool { return c == 0 })
	switch {
	case len(text) > maxText:
		r.fault(atLine(1), "the document has %d bytes: at most %d are possible", len(text), maxText)
		return nil
	case valid >= 0:
		r.fault(atLine(1+bytes.Count(text[:valid], []byte("\n"))), "the text is not valid UTF-8")
		return nil
	case jsontext.Value(text).IsValid(jsontext.AllowDuplicateNames(true)): // yaml.v3 refuses \/, escaped surrogates and long names
		j := jsonReader{Decoder: jsontext.NewDecoder(bytes.NewBuffer(text), jsontext.AllowDuplicateNames(true)), text: text, line: 1}
		return j.value()
	case bytes.Count(text, []byte("%TAG")) > maxTags:
		r.fault(atLine(1), "%%TAG occurs more than %d times", maxTags)
		return nil
	}
	var document, second yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	err := decoder.Decode(&document)
	if errors.Is(err, io.EOF) {
		r.fault(atLine(1), "the document is empty")
		return nil
	}
	if err == nil {
		err = decoder.Decode(&second)
	}
	if errors.Is(err, io.EOF) {
		return document.Content[0]
	}
	if err == nil {
		r.fault(atLine(second.Line), "a second document begins here: one is possible")
		return nil
	}
	line, message := 1, strings.TrimPrefix(err.Error(), "yaml: ")
	if n, err := fmt.Sscanf(message, "line %d: ", &line); n != 1 || err != nil {
		at := max(0, bytes.IndexFunc(text, isControl))
		line = 1 + bytes.Count(text[:at], []byte("\n"))
	} else if _, message, _ = strings.Cut(message, ": "); strings.HasPrefix(message, "did not find expected") {
		line = min(line+1, 1+bytes.Count(bytes.TrimSpace(text), []byte("\n"))) // yaml.v3 counts the lines of a parser's errors from 0
	}
	r.fault(atLine(line), "invalid YAML: %s", message)
	return nil
}

// value checks a value and all values in it, and sets tags. levels is the number of objects and arrays around it.
func (r *reader) value(n node, levels int) {
	if r.isFull() {
		return
	}
	r.nodes++
	n.Anchor = ""
	tag := n.ShortTag()
	switch {
	case r.isFull():
		r.fault(n, "the document has more than %d names and values", maxNodes)
	case n.Kind == yaml.AliasNode:
		r.fault(n, "an alias is not possible: write the value itself, as yq 'explode(.)' does, or yq -y . of Debian and Ubuntu, or $ref")
	case n.Style&yaml.TaggedStyle != 0 && (n.Kind != yaml.ScalarNode || tag != "!!str"):
		r.fault(n, "the tag %s is not possible: only !!str is", tag)
	case tag == "!!timestamp" || tag == "!!merge":
		n.Tag = "!!str" // as in YAML 1.2
	case n.Kind != yaml.ScalarNode && levels >= maxLevels:
		r.fault(n, "more than %d objects and arrays are inside each other", maxLevels)
	case n.Kind == yaml.SequenceNode:
		for i, item := range n.Content {
			r.value(n.child(item, strconv.Itoa(i)), levels+1)
		}
	case n.Kind == yaml.MappingNode:
		r.object(n, levels)
	}
}

func (r *reader) object(n node, levels int) {
	lines := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content) && !r.isFull(); i += 2 {
		name := n.child(n.Content[i], n.Content[i].Value)
		switch first := lines[name.Value]; {
		case name.Kind == yaml.MappingNode || name.Kind == yaml.SequenceNode || name.Value == "" && name.Style == 0:
			r.fault(node{name.Node, name.Node, n.path}, "member names must be strings")
		case len(name.Value) > maxName:
			r.fault(node{name.Node, name.Node, n.path}, "a name has %d bytes: at most %d are possible", len(name.Value), maxName)
		case first != 0:
			r.fault(name, "duplicate member %s: first in line %d", name.Value, first)
		case name.ShortTag() == "!!merge":
			r.fault(name, "<< is not possible: write the members themselves")
		default:
			lines[name.Value] = name.Line
			r.value(name, levels+1)
			name.Tag = "!!str"
			r.value(n.child(n.Content[i+1], name.Value), levels+1)
		}
	}
}

// isControl reports whether yaml.v3 refuses a character with an error that names no line.
func isControl(c rune) bool {
	return unicode.IsControl(c) && !strings.ContainsRune("\t\n\r\u0085", c) || c == 0xFFFE || c == 0xFFFF
}

// jsonReader reads a JSON text that is known to be valid.
type jsonReader struct {
	*jsontext.Decoder
	text []byte
	end  int64 // of the last token
	line int
}

func (j *jsonReader) value() *yaml.Node {
	token, _ := j.ReadToken()
	j.line += bytes.Count(j.text[j.end:j.InputOffset()], []byte("\n"))
	j.end = j.InputOffset()
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: token.String(), Line: j.line}
	switch token.Kind() {
	case '"':
		n.Tag, n.Style = "!!str", yaml.DoubleQuotedStyle
	case '{', '[':
		n.Kind, n.Tag, n.Value = yaml.MappingNode, "!!map", ""
		if token.Kind() == '[' {
			n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		}
		for kind := j.PeekKind(); kind != '}' && kind != ']' && kind != 0; kind = j.PeekKind() {
			n.Content = append(n.Content, j.value())
		}
		_, _ = j.ReadToken()
	default:
		n.Tag = n.ShortTag()
	}
	return n
}
