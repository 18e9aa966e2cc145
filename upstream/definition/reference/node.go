package reference

import "go.yaml.in/yaml/v3"

// node is a value of the published document. If there is none, its Node is nil.
type node struct{ *yaml.Node }

type entry struct {
	name  string
	value node
}

// objectOf returns an object with one member.
func objectOf(name string, value node) node {
	out := &yaml.Node{Kind: yaml.MappingNode}
	put(out, name, value)
	return node{out}
}

// entries returns the members of an object.
func (n node) entries() (all []entry) {
	for i := 0; n.isObject() && i+1 < len(n.Content); i += 2 {
		all = append(all, entry{n.Content[i].Value, node{n.Content[i+1]}})
	}
	return all
}

func (n node) get(path ...string) node {
	for _, name := range path {
		found := node{}
		for i := 0; n.isObject() && i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == name {
				found = node{n.Content[i+1]}
			}
		}
		n = found
	}
	return n
}

func (n node) isObject() bool { return n.Node != nil && n.Kind == yaml.MappingNode }

// items returns the items of an array.
func (n node) items() (all []node) {
	if n.Node != nil && n.Kind == yaml.SequenceNode {
		for _, item := range n.Content {
			all = append(all, node{item})
		}
	}
	return all
}

// text returns a scalar as it is written, or "".
func (n node) text() string {
	if n.Node == nil || n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		return ""
	}
	return n.Value
}

func (n node) texts() (all []string) {
	for _, item := range n.items() {
		all = append(all, item.Value)
	}
	return all
}

func (n node) isTrue() bool { return n.text() == "true" }
