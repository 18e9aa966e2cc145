// Package definition reads the OpenAPI document of an API and compiles it into an [upstream.API].
//
// It compiles what the public contract needs, whose document is public.yaml. What it cannot enforce is a fault: nothing of a document is
// ignored but titles, descriptions and examples. What OpenAPI cannot say is said by extensions:
//
//   - x-gatehouse-tenant: for a document, the internal member of each record that names its business; for a schema, a member that is
//     published and names it too.
//   - x-gatehouse-public: true for an operation: anyone may call it, unsigned.
//   - x-gatehouse-answer for an operation: the gateway responds itself, with an object, or "identity" for the business of the credential.
//   - x-gatehouse-records {in, order, at_most} for a response: the member with the records, the members by which a list is sorted, newest
//     first, and the parameter that bounds its length.
//   - x-gatehouse-page [{request, response}] for a response: what was asked for is what came.
//   - x-gatehouse-visible {member: [value, …]} for a schema of records: others are removed.
//   - x-gatehouse-internal: true for a member: the data service sends it for the gateway; it is not forwarded.
//   - x-gatehouse-clamp: true for a parameter: a number outside its bounds is set to the nearest.
package definition

import (
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

//go:embed public.yaml
var publicText []byte

// Public returns the API of the public contract, whose document is embedded.
func Public() *upstream.API { return public() }

//nolint:gochecknoglobals // compiled once
var public = sync.OnceValue(func() *upstream.API {
	api, err := Load("public.yaml", publicText)
	if err != nil {
		panic(err) // the document is part of the program
	}
	return api
})

// FaultError is something in a document that cannot be enforced.
type FaultError struct {
	File    string
	Line    int    // from 1
	Pointer string // JSON Pointer (RFC 6901) of the value that the message is about
	Message string
}

// Error returns file, line, pointer and message.
func (f *FaultError) Error() string {
	return fmt.Sprintf("%s:%d: %s: %s", f.File, f.Line, f.Pointer, f.Message)
}

// Load compiles an OpenAPI document, in YAML or JSON. The error joins a *FaultError for everything in it that cannot be enforced.
func Load(file string, text []byte) (*upstream.API, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(root.Content) != 1 {
		return nil, fmt.Errorf("%s: no document", file)
	}
	c := &compiler{file: file, root: at(root.Content[0], "")}
	base, resources := c.document()
	if c.faults != nil {
		return nil, errors.Join(c.faults...)
	}
	return upstream.NewAPI(base, resources), nil
}

// node is a value of a document, and where it stands. If there is none, the Node is nil, and the line that of what it is missing in.
type node struct {
	*yaml.Node
	pointer string
	line    int
}

func at(value *yaml.Node, pointer string) node { return node{value, pointer, value.Line} }

// isObject reports whether there is a value, and it is an object.
func (n node) isObject() bool { return n.Node != nil && n.Kind == yaml.MappingNode }

// text returns a scalar, or "".
func (n node) text() string {
	if n.Node == nil || n.Kind != yaml.ScalarNode {
		return ""
	}
	return n.Value
}

// items returns the elements of an array.
func (n node) items() (all []node) {
	if n.Node != nil && n.Kind == yaml.SequenceNode {
		for i, item := range n.Content {
			all = append(all, at(item, fmt.Sprintf("%s/%d", n.pointer, i)))
		}
	}
	return all
}

// texts returns the strings of an array.
func (n node) texts() (all []string) {
	for _, item := range n.items() {
		all = append(all, item.text())
	}
	return all
}

// escape escapes a name in a JSON Pointer (RFC 6901, section 3).
func escape(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

// entry is a member of an object.
type entry struct {
	name  string
	value node
}

// entries returns the members of an object in their order.
func (n node) entries() (all []entry) {
	if n.isObject() {
		for i := 0; i+1 < len(n.Content); i += 2 {
			name := n.Content[i].Value
			all = append(all, entry{name, at(n.Content[i+1], n.pointer+"/"+escape(name))})
		}
	}
	return all
}

// get returns a member of an object.
func (n node) get(name string) node {
	pointer := n.pointer + "/" + escape(name)
	if n.isObject() {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == name {
				return at(n.Content[i+1], pointer)
			}
		}
	}
	return node{nil, pointer, n.line}
}
