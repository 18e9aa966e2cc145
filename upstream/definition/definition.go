// Package definition reads the OpenAPI document of an API and compiles it into an [upstream.API].
//
// What cannot be enforced is a fault: nothing of a document is ignored but titles, descriptions, examples and what other tools add. What
// OpenAPI cannot say is said by extensions, in the document or in an OpenAPI Overlay beside it; docs/definition.md describes them.
package definition

import (
	"cmp"
	_ "embed"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// The names of the extensions.
const (
	extPrefix     = "x-gatehouse-"
	extTenant     = extPrefix + "tenant"
	extPublic     = extPrefix + "public"
	extAnswer     = extPrefix + "answer"
	extRecords    = extPrefix + "records"
	extPage       = extPrefix + "page"
	extVisible    = extPrefix + "visible"
	extInternal   = extPrefix + "internal"
	extClamp      = extPrefix + "clamp"
	extUnchecked  = extPrefix + "unchecked"
	extDeprecated = extPrefix + "deprecated"
)

//go:embed public.yaml
var publicText []byte

// Public returns the API of the public contract, whose document is embedded.
func Public() *upstream.API { return public().API }

//nolint:gochecknoglobals // compiled once
var public = sync.OnceValue(func() *Definition {
	d, err := Load(File{Name: "public.yaml", Text: publicText}, Options{MaxItems: unbounded, byteLengths: true})
	if err != nil {
		panic(err) // the document is part of the program
	}
	return d
})

// File is the text of a file, and how messages name it.
type File struct {
	Name string
	Text []byte
}

// Options say what of a document is served, and how.
type Options struct {
	// Name is the definition's, which precedes the names of its resources. Default: none.
	Name string

	// Overlays are OpenAPI Overlays, which are applied in their order. Default: none.
	Overlays []File

	// Only and Except are operation IDs and tags: what is served, and what is not. Default: everything is served.
	Only, Except []string

	// MaxItems is the maximum number of items of an array without a bound of its own. Default: 1000. Zero means the default.
	MaxItems int

	byteLengths bool // maxLength of a parameter counts bytes, as in the public contract from its beginning
}

// Definition is a document that has been compiled.
type Definition struct {
	API *upstream.API

	// Warnings are what a platform should know: what is left out of the document, and what is not checked.
	Warnings []*FaultError

	root node
}

// Published returns the document that callers read: see Publish.
func (d *Definition) Published() ([]byte, error) {
	served := map[string]bool{}
	for _, p := range d.API.Paths() {
		for _, op := range p.Operations {
			served[op.Method+" "+p.Template] = true
		}
	}
	return Publish(d.root.Node, func(method, path string) bool { return served[method+" "+path] })
}

// PublicDefinition returns the definition of the public contract.
func PublicDefinition() *Definition { return public() }

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

// LoadError is the error of a document that cannot be served.
type LoadError struct {
	Faults   []*FaultError
	Warnings []*FaultError

	// Except are the operations that have faults. The rest loads without them. It is empty if nothing would be left, or faults are elsewhere.
	Except []string
}

// Error returns a line for each fault.
func (e *LoadError) Error() string {
	lines := make([]string, 0, len(e.Faults))
	for _, f := range e.Faults {
		lines = append(lines, f.Error())
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the faults.
func (e *LoadError) Unwrap() (all []error) {
	for _, f := range e.Faults {
		all = append(all, f)
	}
	return all
}

// Load compiles an OpenAPI document, 3.1 or 3.0, in YAML or JSON. The error is a *LoadError with everything that cannot be enforced.
func Load(document File, o Options) (*Definition, error) {
	o.MaxItems = cmp.Or(o.MaxItems, defaultMaxItems)
	root, faults := parse(document.Name, document.Text)
	origin := map[*yaml.Node]string{}
	for _, file := range o.Overlays {
		overlay, bad := parse(file.Name, file.Text)
		if faults = append(faults, bad...); len(faults) == 0 {
			faults = append(faults, applyOverlay(root, overlay, file.Name, origin)...)
		}
	}
	if len(faults) > 0 {
		c := &compiler{}
		for _, f := range faults {
			c.faults = append(c.faults, f.(*FaultError)) //nolint:errcheck,forcetypeassert // all are
		}
		return nil, c.failed()
	}
	newCompiler := func() *compiler {
		return &compiler{
			file: document.Name, origin: origin, root: at(root, ""), o: o, schemas: map[schemaKey]*upstream.Schema{},
			about: map[*upstream.Schema]*about{}, merged: map[[2]*upstream.Schema]*upstream.Schema{}, seen: map[FaultError]bool{},
		}
	}
	c := newCompiler()
	selected := c.selection()
	base, operations := c.document(selected)
	if c.failed(); len(c.faults) == 0 { // sorted
		return &Definition{upstream.NewAPI(o.Name, base, operations), c.warnings, c.root}, nil
	}
	failed := c.failed()
	// Which operations can be served, each on its own?
	all := c.operations()
	for _, n := range all {
		if !selected(n) {
			continue
		}
		alone := newCompiler()
		if alone.document(func(other *operationNode) bool { return other.Node == n.Node }); len(alone.faults) > 0 {
			failed.Except = append(failed.Except, n.id)
		}
	}
	rest := newCompiler()
	if rest.document(func(n *operationNode) bool { return selected(n) && !slices.Contains(failed.Except, n.id) }); len(rest.faults) > 0 {
		failed.Except = nil
	}
	return nil, failed
}

// defaultMaxItems is the default of Options.MaxItems.
const defaultMaxItems = 1000

type schemaKey struct {
	node   *yaml.Node
	tenant string
}

type compiler struct {
	file     string
	origin   map[*yaml.Node]string // the overlays' files, of what they wrote
	root     node
	o        Options
	old      bool   // OpenAPI 3.0
	tenant   string // of the operation that is compiled
	schemas  map[schemaKey]*upstream.Schema
	about    map[*upstream.Schema]*about
	merged   map[[2]*upstream.Schema]*upstream.Schema
	choices  []*upstream.Schema // to be decided
	later    []func()           // what can be said of schemas when they are complete
	checks   []func()           // what can be said after that
	seen     map[FaultError]bool
	faults   []*FaultError
	warnings []*FaultError
}

// failed returns the error of a document with faults.
func (c *compiler) failed() *LoadError {
	for _, list := range [][]*FaultError{c.faults, c.warnings} {
		slices.SortStableFunc(list, func(a, b *FaultError) int {
			return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
		})
	}
	return &LoadError{Faults: c.faults, Warnings: c.warnings}
}

// selection returns which operations Only and Except leave.
func (c *compiler) selection() func(*operationNode) bool {
	all := c.operations()
	names := func(list []string, n *operationNode) bool {
		return slices.Contains(list, n.id) || slices.ContainsFunc(n.tags(), func(tag string) bool { return slices.Contains(list, tag) })
	}
	for _, name := range slices.Concat(c.o.Only, c.o.Except) {
		if !slices.ContainsFunc(all, func(n *operationNode) bool { return names([]string{name}, n) }) {
			c.fault(c.root.get("paths"), "only and except: there is no operation and no tag %q", name)
		}
	}
	return func(n *operationNode) bool {
		return (len(c.o.Only) == 0 || names(c.o.Only, n)) && !names(c.o.Except, n)
	}
}

func (c *compiler) message(n node, message string, args ...any) (f *FaultError, isNew bool) {
	f = &FaultError{cmp.Or(c.origin[n.Node], c.file), n.line, n.pointer, fmt.Sprintf(message, args...)}
	isNew = !c.seen[*f]
	c.seen[*f] = true
	return f, isNew
}

// fault adds a fault, once for all references to a value.
func (c *compiler) fault(n node, message string, args ...any) {
	if f, isNew := c.message(n, message, args...); isNew {
		c.faults = append(c.faults, f)
	}
}

// warn adds a warning.
func (c *compiler) warn(n node, message string, args ...any) {
	if f, isNew := c.message(n, message, args...); isNew {
		c.warnings = append(c.warnings, f)
	}
}

// isRemark reports whether a member is read over wherever it stands.
func isRemark(name string) bool {
	return slices.Contains([]string{"title", "summary", "description", "example", "examples", "externalDocs", "$comment", "tags"}, name) ||
		strings.HasPrefix(name, "x-") && !strings.HasPrefix(name, extPrefix)
}

// only reports a fault for each member of an object that is not in a list.
func (c *compiler) only(n node, names ...string) {
	if !n.isObject() {
		c.fault(n, "an object is missing")
		return
	}
	for _, e := range n.entries() {
		if !slices.Contains(names, e.name) && !isRemark(e.name) {
			c.fault(e.value, "%s cannot be enforced here: possible are %s", e.name, strings.Join(names, ", "))
		}
	}
}

// resolve follows the local reference of an object that is no schema, and has nothing beside it.
func (c *compiler) resolve(n node) node {
	if n.get("$ref").Node != nil {
		c.only(n, "$ref")
	}
	return c.follow(n)
}

// follow follows a local reference. Members beside it are the caller's.
func (c *compiler) follow(n node) node {
	for range 16 {
		ref := n.get("$ref")
		if ref.Node == nil {
			return n
		}
		rest, ok := strings.CutPrefix(ref.text(), "#/")
		if !ok {
			c.fault(ref, "%q is not in this document: put a document in several files together with a bundler, such as `redocly bundle`", ref.text())
			return node{nil, n.pointer, n.line}
		}
		target := c.root
		for name := range strings.SplitSeq(rest, "/") {
			if decoded, err := url.PathUnescape(name); err == nil {
				name = decoded
			}
			target = target.member(strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~"))
		}
		if target.Node == nil {
			c.fault(ref, "%s is not a value of this document", ref.text())
			return node{nil, n.pointer, n.line}
		}
		n = target
	}
	c.fault(n, "the references lead in a circle")
	return node{nil, n.pointer, n.line}
}

// flag returns a truth value, by default false.
func (c *compiler) flag(n node) bool {
	if n.Node != nil && n.text() != "true" && n.text() != "false" {
		c.fault(n, "must be true or false")
	}
	return n.text() == "true"
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

// member returns a member of an object, or an element of an array.
func (n node) member(name string) node {
	for i, item := range n.items() {
		if name == fmt.Sprint(i) {
			return item
		}
	}
	return n.get(name)
}
