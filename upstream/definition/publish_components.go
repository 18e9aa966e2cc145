package definition

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

func (p *publisher) publishSchema(n node) *yaml.Node { return p.schema(n) }

// reference publishes a value where it stands. If it is a reference, it publishes the target as a component.
func (p *publisher) reference(kind string, n node, publish func(node) *yaml.Node) *yaml.Node {
	if ref := n.get("$ref"); ref.Node != nil {
		return reference(p.component(kind, ref.text(), publish))
	}
	return publish(n)
}

// component publishes a value of the definition as a component, once, and returns the reference to it. A component keeps its name. A schema without
// members that are hidden around the reference is a component of its own.
func (p *publisher) component(kind, ref string, publish func(node) *yaml.Node, without ...string) string {
	key, other := kind+ref, ""
	if len(without) > 0 {
		key, other = key+" without "+strings.Join(without, " "), "Part"
	}
	if kind == "schemas" && p.inRequest && p.differs(ref) {
		key, other = key+" in a body", other+"Body"
	}
	name, ok := p.names[key]
	if !ok {
		if name, ok = strings.CutPrefix(ref, "#/components/"+kind+"/"); !ok || unusualCharacters.MatchString(name) {
			name, other = "Shared", other+" " // its place may be one that callers must not see
		}
		if other != "" {
			name = p.unusedName(kind, name+strings.TrimSpace(other), func(string) bool { return false })
		}
		p.names[key] = name
		slot := object()
		put(p.components[kind], name, slot) // before what it refers to, which may be itself
		*slot = *publish(p.target(ref))
	}
	return "#/components/" + kind + "/" + name
}

// hoist makes a response a component, because GET and HEAD and often several operations have it, and returns the reference.
func (p *publisher) hoist(wanted string, response *yaml.Node) *yaml.Node {
	name := p.unusedName("responses", wanted, func(name string) bool { return reflect.DeepEqual(member(p.components["responses"], name), response) })
	put(p.components["responses"], name, response)
	return reference("#/components/responses/" + name)
}

var unusualCharacters = regexp.MustCompile(`[^A-Za-z0-9._-]+`) // characters that names of components do not have

// unusedName returns a name for a component that no other one has, unless same reports that it is equal.
func (p *publisher) unusedName(kind, wanted string, same func(name string) bool) string {
	wanted = unusualCharacters.ReplaceAllString(wanted, "_")
	name := wanted
	for i := 2; !same(name); i++ {
		declared := kind != "responses" && p.root.get("components").get(kind).get(name).Node != nil // responses are never published as declared
		if !declared && member(p.components[kind], name) == nil && !slices.ContainsFunc(p.common.root.get("components").get(kind).entries(),
			func(e entry) bool { return p.commonName(kind, e.name) == name }) {
			break
		}
		name = wanted + strconv.Itoa(i)
	}
	return name
}

// commonName returns the name of a component of published.yaml: another one if the definition has a component of its name.
func (p *publisher) commonName(kind, name string) string {
	for p.root.get("components").get(kind).get(name).Node != nil {
		name = "Gateway" + name
	}
	return name
}

// publishCommon publishes a value of published.yaml, and what it refers to.
func (p *publisher) publishCommon(n node) *yaml.Node {
	out := copyOf(n.Node)
	p.publishReferences(out)
	return out
}

func (p *publisher) publishReferences(n *yaml.Node) {
	n.Value = p.values.Replace(n.Value)
	ref, ok := strings.CutPrefix(n.Value, "#/components/")
	if kind, name, _ := strings.Cut(ref, "/"); ok {
		renamed := p.commonName(kind, name)
		if n.Value = "#/components/" + kind + "/" + renamed; member(p.commonComponents[kind], renamed) == nil {
			slot := object()
			put(p.commonComponents[kind], renamed, slot)
			*slot = *p.publishCommon(p.common.root.get("components").get(kind).get(name))
		}
	}
	for _, child := range n.Content {
		p.publishReferences(child)
	}
}

func (p *publisher) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// target returns what a reference leads to.
func (p *publisher) target(ref string) node {
	target := p.lookup(ref)
	if target.Node == nil {
		p.fail(fmt.Errorf("%s is not a value of the definition", ref))
	}
	return target
}

// resolve follows references.
func (p *publisher) resolve(n node) node {
	for range 16 {
		ref := n.get("$ref")
		if ref.Node == nil {
			return n
		}
		n = p.target(ref.text())
	}
	p.fail(fmt.Errorf("circular $ref at %s", n.pointer()))
	return node{}
}

// noun returns the ID of an operation without its verb: Contacts of listContacts.
func noun(id string) string {
	rest := strings.TrimLeftFunc(id, unicode.IsLower)
	if first, _ := utf8.DecodeRuneInString(rest); unicode.IsUpper(first) {
		return rest
	}
	first, size := utf8.DecodeRuneInString(id)
	return string(unicode.ToUpper(first)) + id[size:]
}

func text(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }

func reference(ref string) *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle, Content: []*yaml.Node{
		text("$ref"), {Kind: yaml.ScalarNode, Tag: "!!str", Value: ref, Style: yaml.DoubleQuotedStyle},
	}}
}

func list(items ...*yaml.Node) *yaml.Node { return &yaml.Node{Kind: yaml.SequenceNode, Content: items} }

// object returns an object with pairs of names and values.
func object(pairs ...any) *yaml.Node {
	out := &yaml.Node{Kind: yaml.MappingNode}
	for i := 0; i+1 < len(pairs); i += 2 {
		name, _ := pairs[i].(string)
		value, _ := pairs[i+1].(*yaml.Node)
		put(out, name, value)
	}
	return out
}

func member(object *yaml.Node, name string) *yaml.Node { return rootNode(object).get(name).Node }

// put sets a member of an object.
func put(object *yaml.Node, name string, value *yaml.Node) {
	for i := 0; i+1 < len(object.Content); i += 2 {
		if object.Content[i].Value == name {
			object.Content[i+1] = value
			return
		}
	}
	object.Content = append(object.Content, text(name), value)
}

func remove(object *yaml.Node, names ...string) {
	for i := len(object.Content) - 2; i >= 0; i -= 2 {
		if slices.Contains(names, object.Content[i].Value) {
			object.Content = slices.Delete(object.Content, i, i+2)
		}
	}
}

// copyPlain copies a text, a number or a truth value, or a list of them. It returns nil for anything else, which could have contents that callers must
// not see.
func copyPlain(n node) *yaml.Node {
	isObject := func(n *yaml.Node) bool { return n.Kind != yaml.ScalarNode }
	if n.isObject() || slices.ContainsFunc(n.Content, isObject) {
		return nil
	}
	return copyOf(n.Node)
}

// copyOf copies a value without comments.
func copyOf(n *yaml.Node) *yaml.Node {
	if n == nil {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"} // the target of a broken reference, which is an error
	}
	if n.Alias != nil {
		return copyOf(n.Alias)
	}
	out := &yaml.Node{Kind: n.Kind, Tag: n.Tag, Value: n.Value, Style: n.Style &^ yaml.FoldedStyle}
	for _, child := range n.Content {
		out.Content = append(out.Content, copyOf(child))
	}
	return out
}

// ambiguousScalar are strings that readers of YAML 1.1 take for truth values or numbers.
var ambiguousScalar = regexp.MustCompile(`^(?i:y|n|yes|no|on|off)$|^[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?$`)

// layOut puts members and items on lines of their own, unless the definition has them on one short line. It returns the length of that line.
func layOut(n *yaml.Node) int {
	if n.Style == 0 && n.Tag == "!!str" && ambiguousScalar.MatchString(n.Value) {
		n.Style = yaml.DoubleQuotedStyle
	}
	length := len(n.Value) + 2
	for _, child := range n.Content {
		length += layOut(child)
	}
	if length > 100 {
		n.Style &^= yaml.FlowStyle
	}
	return length
}
