// Package definition reads the OpenAPI document of an API and compiles it into an [upstream.API].
//
// A keyword that cannot be enforced is a fault: only titles, descriptions, examples and extensions of other tools are ignored. Extensions of our
// own, in the document or in an OpenAPI Overlay beside it, say what OpenAPI cannot; docs/definition.md describes them.
package definition

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"

	"github.com/gatehouse-gateway/gatehouse/internal/similar"
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
	extRead       = extPrefix + "read"
	extUpstream   = extPrefix + "upstream"
	extEnforce    = extPrefix + "enforce"
	extFrom       = extPrefix + "from"
	extTool       = extPrefix + "tool"
	extArea       = extPrefix + "area"
	extInstruct   = extPrefix + "instructions"
	extUntrusted  = extPrefix + "untrusted"
)

//go:embed public.yaml
var publicText []byte

// Public returns the API of the public contract, whose document is embedded.
func Public() *upstream.API { return public().API }

//nolint:gochecknoglobals // compiled once
var public = sync.OnceValue(func() *Definition {
	d, err := PublicPart(nil, nil, upstream.EnforceAll)
	if err != nil {
		panic(err) // the document is part of the program
	}
	return d
})

// PublicPart returns a part of the public contract: see Options.Only, Options.Except and Options.Enforce. The error is a *LoadError.
func PublicPart(only, except []string, enforce upstream.Enforcement) (*Definition, error) {
	return Load(File{Name: "public.yaml", Text: publicText}, Options{
		Only: only, Except: except, Enforce: enforce, MaxItems: unbounded, byteLengths: true,
	})
}

// File is the text of a file, with its name for messages.
type File struct {
	Name string
	Text []byte
}

// Options say which operations of a document are served, and how.
type Options struct {
	// Name is the name of the definition. It precedes the names of its resources. Default: none.
	Name string

	// Overlays are OpenAPI Overlays, which are applied in their order. Default: none.
	Overlays []File

	// Only and Except are operation IDs and tags that are served, and that are not. Default: everything is served.
	Only, Except []string

	// MaxItems is the maximum number of items of an array without a bound of its own. Default: 1000. Zero means the default.
	MaxItems int

	// Enforce says which deviations of responses pass, for operations without x-gatehouse-enforce. Default: none.
	Enforce upstream.Enforcement

	// Tools compiles the document for assistants: the tenant does not leave, the names of x-gatehouse-untrusted members begin with
	// untrusted_, and every deviation is rejected. Default: for an API.
	Tools bool

	byteLengths bool // maxLength of a parameter counts bytes, as in the public contract from its beginning
}

// Definition is a document that has been compiled.
type Definition struct {
	API *upstream.API

	// Warnings say which parts of the document are left out, and what is not checked.
	Warnings []*FaultError

	Tools []*Tool // of Options.Tools, in the order of the document
	Areas []Area  // of the tools, in the order of the tags

	// Instructions tell assistants what holds for all tools. They are the lines of a list, each with a line feed. Default: "".
	Instructions string

	// Marks say how tools use operations, by their IDs. They are set even if tools are not compiled.
	Marks map[string]Mark

	root       node
	operations []*operationNode
	maxItems   int
}

// Mark says how tools use an operation, according to x-gatehouse-tool.
type Mark struct {
	Tool    bool   // it is a tool, and not only the replace of another one
	People  bool   // a tool writes to people outside the business with it
	Version string // JSON Pointer of the version that If-Match takes, in the response of its path's GET. Default: "", none
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

func faultAt(file string, n node, message string, args ...any) *FaultError {
	return &FaultError{file, n.line(), n.pointer(), fmt.Sprintf(message, args...)}
}

// Error returns file, line, pointer and message.
func (f *FaultError) Error() string {
	return fmt.Sprintf("%s:%d: %s: %s", f.File, f.Line, f.Pointer, f.Message)
}

// LoadError is the error of a document that cannot be served.
type LoadError struct {
	Faults   []*FaultError
	Warnings []*FaultError

	// Except is Options.Except with the operations that have faults. With it, the document loads with Rest operations. It is empty if none
	// would be left, or if there are faults outside of operations.
	Except []string
	Rest   int
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
	for _, file := range o.Overlays {
		overlay, bad := parse(file.Name, file.Text)
		if faults = append(faults, bad...); len(faults) == 0 {
			faults = append(faults, applyOverlay(root, overlay, file.Name)...)
		}
	}
	if len(faults) > 0 {
		return nil, (&compiler{faults: faults}).failed()
	}
	newCompiler := func() *compiler {
		return &compiler{
			document: newDocument(rootNode(root)), file: document.Name, o: o, schemas: map[schemaKey]*upstream.Schema{},
			infos: map[*upstream.Schema]*schemaInfo{}, merged: map[[2]*upstream.Schema]*upstream.Schema{}, seen: map[FaultError]bool{},
			patterns: map[string]*regexp.Regexp{}, memberNodes: map[*yaml.Node]bool{}, stepsLeft: maxSteps,
			faulty: map[*yaml.Node]bool{}, tried: map[*upstream.Schema]int{}, partials: map[*upstream.Schema]*upstream.Schema{},
			broken: map[*upstream.Schema]bool{}, sources: map[*upstream.Source]node{}, businesses: map[string]string{}, pointerResults: map[*upstream.Schema]bool{},
		}
	}
	c := newCompiler()
	selected := c.selection()
	named := len(c.faults) == 0
	base, operations := c.compile(selected)
	if failed := c.failed(); len(failed.Faults) == 0 { // failed has sorted c.warnings
		served := make([]*upstream.Operation, len(operations))
		for i, n := range operations {
			served[i] = n.op
		}
		var leftOut []string
		for _, n := range slices.DeleteFunc(c.operations(), selected) {
			leftOut = append(leftOut, base+n.path, n.get(extUpstream).get("path").text())
		}
		return &Definition{
			API: upstream.NewAPI(o.Name, base, served, leftOut...), Warnings: c.warnings, Tools: c.tools, Areas: c.areas, Instructions: c.instructions(),
			Marks: c.marks(), root: c.root, operations: operations, maxItems: o.MaxItems,
		}, nil
	}
	failed := c.failed()
	except := c.except(selected)
	rest := newCompiler()
	_, others := rest.compile(func(n *operationNode) bool { return selected(n) && !n.named(except) })
	if named && len(rest.faults) == 0 {
		failed.Except, failed.Rest = slices.Concat(o.Except, except), len(others)
	}
	return nil, failed
}

// marks returns Definition.Marks. A tool calls another operation if it has replace.
func (c *compiler) marks() map[string]Mark {
	all := map[string]Mark{}
	for _, n := range c.operations() {
		ext := n.get(extTool)
		for _, id := range []string{n.id, ext.get("replace").text()} {
			if ext.Node != nil && id != "" {
				mark := all[id]
				all[id] = Mark{
					mark.Tool || id == n.id, mark.People || ext.get("risk").Node != nil, cmp.Or(mark.Version, ext.get("version").text()),
				}
			}
		}
	}
	return all
}

const (
	// defaultMaxItems is the default of Options.MaxItems.
	defaultMaxItems = 1000

	// maxListed is the maximum number of faults, and of warnings, that are listed.
	maxListed = 1000

	// maxSteps bounds the work and memory of a compilation: 20 steps for each schema, 50 for two that are
	// merged, and 1 for each of their members.
	maxSteps = 4_000_000
)

// view is what a schema is compiled for: its keywords mean different things in requests and responses.
type view struct {
	tenant  string // of the operation
	request bool   // it is of a request body, and not of a response

	business string // names of members of a body that a service could take for the business, each from plainPath and after \xff
}

type schemaKey struct {
	node *yaml.Node
	view view
}

type compiler struct {
	document

	file           string
	o              Options
	view           view // of what is being compiled
	schemas        map[schemaKey]*upstream.Schema
	infos          map[*upstream.Schema]*schemaInfo
	merged         map[[2]*upstream.Schema]*upstream.Schema
	postponed      []func()           // merges that wait for schemas to be complete
	choices        []*upstream.Schema // choices for decide
	inChoices      int                // the number of choices around the schema that is being finished
	memberNodes    map[*yaml.Node]bool
	patterns       map[string]*regexp.Regexp
	partials       map[*upstream.Schema]*upstream.Schema
	broken         map[*upstream.Schema]bool // stands for something with a fault, and allows anything
	sources        map[*upstream.Source]node
	pointerResults map[*upstream.Schema]bool // the results of pointers
	paths          map[string][][]string     // of servicePaths
	businesses     map[string]string         // view.business by the tenant, without what mappings add
	usesFrom       bool                      // the data service has a member or the records under another name or place
	programs       int                       // the size of all patterns
	tried          map[*upstream.Schema]int
	depth          int // how many schemas that refer to each other are being compiled
	stepsLeft      int // of maxSteps
	seen           map[FaultError]bool
	faulty         map[*yaml.Node]bool // nodes with a fault
	faults         []*FaultError
	warnings       []*FaultError
	tools          []*Tool
	areas          []Area
}

// spend counts steps, and reports whether some are left.
func (c *compiler) spend(steps int) bool {
	if c.stepsLeft -= steps; c.stepsLeft < 0 {
		c.fault(c.root, "the schemas are too large, or allOf combines too many: serve fewer operations of this document")
	}
	return c.stepsLeft >= 0
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

// except returns the operations that have a fault, or refer to something that has one.
func (c *compiler) except(selected func(*operationNode) bool) (ids []string) {
	parents, references := map[*yaml.Node]*yaml.Node{}, map[*yaml.Node][]*yaml.Node{}
	var walk func(*yaml.Node)
	walk = func(n *yaml.Node) {
		if ref := rootNode(n).get("$ref"); ref.Node != nil {
			if target := c.lookup(ref.text()); target.Node != nil {
				references[target.Node] = append(references[target.Node], n)
			}
		}
		for _, child := range n.Content {
			parents[child] = n
			walk(child)
		}
	}
	walk(c.root.Node)
	reaches := map[*yaml.Node]bool{}
	for open := slices.Collect(maps.Keys(c.faulty)); len(open) > 0; {
		n := open[len(open)-1]
		for open = open[:len(open)-1]; n != nil && !reaches[n]; n = parents[n] {
			reaches[n] = true
			open = append(open, references[n]...)
		}
	}
	for _, n := range c.operations() {
		if selected(n) && (reaches[n.Node] || reaches[n.item.get("parameters").Node] || c.faulty[n.item.Node]) {
			ids = append(ids, n.id)
		}
	}
	return ids
}

// selection returns a function that reports whether Only and Except select an operation.
func (c *compiler) selection() func(*operationNode) bool {
	all := c.operations()
	for _, name := range slices.Concat(c.o.Only, c.o.Except) {
		if !slices.ContainsFunc(all, func(n *operationNode) bool { return n.named([]string{name}) }) {
			c.fault(c.root.get("paths"), "only and except: no operation or tag is called %q", name)
		}
	}
	return func(n *operationNode) bool {
		return (len(c.o.Only) == 0 || n.named(c.o.Only)) && !n.named(c.o.Except)
	}
}

// named reports whether a list has the operation's ID or one of its tags.
func (n *operationNode) named(list []string) bool {
	return slices.ContainsFunc(append(n.get("tags").texts(), n.id), func(name string) bool { return slices.Contains(list, name) })
}

// add adds a fault or a warning to a list, once for all references to a value.
func (c *compiler) add(list []*FaultError, n node, message string, args ...any) []*FaultError {
	f := faultAt(cmp.Or(n.in.Anchor, c.file), n, message, args...)
	if len(list) >= maxListed || c.seen[*f] {
		return list
	}
	c.seen[*f] = true
	return append(list, f)
}

// fault adds a fault.
func (c *compiler) fault(n node, message string, args ...any) {
	c.faulty[n.in] = true
	c.faults = c.add(c.faults, n, message, args...)
}

// faultIf adds a fault if something is wrong, and reports whether it is. The arguments are evaluated in any case.
func (c *compiler) faultIf(wrong bool, n node, message string, args ...any) bool {
	if wrong {
		c.fault(n, message, args...)
	}
	return wrong
}

// warn adds a warning.
func (c *compiler) warn(n node, message string, args ...any) {
	c.warnings = c.add(c.warnings, n, message, args...)
}

// isRemark reports whether a member is ignored wherever it stands.
func isRemark(name string) bool {
	return slices.Contains([]string{"title", "summary", "description", "example", "examples", "externalDocs", "$comment", "tags"}, name) ||
		strings.HasPrefix(name, "x-") && !strings.HasPrefix(name, extPrefix)
}

// allowOnly reports a fault for each member of an object that is not in a list.
func (c *compiler) allowOnly(n node, names ...string) {
	if c.faultIf(!n.isObject(), n, "an object is missing") {
		return
	}
	for _, e := range n.entries() {
		if !slices.Contains(names, e.name) && !isRemark(e.name) {
			instead := "must be one of " + strings.Join(names, ", ")
			if slices.Contains(otherKeywords, e.name) { // to rename it would change its meaning
				instead = fmt.Sprintf("an overlay can remove it, with the target $..[?@.%[1]s].%[1]s and remove: true", e.name)
			} else if near := similar.Nearest(e.name, names); near != "" {
				instead = "did you mean " + near + "?"
			}
			c.fault(e.value, "%s cannot be enforced here: %s", e.name, instead)
		}
	}
}

// resolve follows the local references of an object that is not a schema. Members beside $ref are faults.
func (c *compiler) resolve(n node) node {
	for range maxReferences {
		if n.get("$ref").Node == nil {
			return n
		}
		for _, e := range n.entries() {
			if e.name != "$ref" && !isRemark(e.name) {
				c.fault(e.value, "%s would not hold, because OpenAPI ignores members beside $ref: remove it, or write out what is referred to", e.name)
			}
		}
		if n = c.follow(n); n.Node == nil {
			return n
		}
	}
	c.fault(n, circularReference)
	return n.withoutValue()
}

const (
	// maxReferences is the maximum number of references in a row without other members beside them.
	maxReferences = 16

	circularReference = "circular $ref"
)

// follow follows one local reference.
func (c *compiler) follow(n node) node {
	ref := n.get("$ref")
	if !strings.HasPrefix(ref.text(), "#/") {
		c.fault(ref, "%q is not in this document: put a document in several files together with a bundler, such as `redocly bundle`", ref.text())
		return n.withoutValue()
	}
	target := c.lookup(ref.text())
	if c.faultIf(target.Node == nil, ref, "%s is not a value of this document", ref.text()) {
		return n.withoutValue()
	}
	return target
}

// document is a document in which references are followed.
type document struct {
	root          node
	isOpenAPI30   bool                          // OpenAPI 3.0
	positions     map[*yaml.Node]map[string]int // of members, for objects that references lead through: large ones are used often
	hiddenSchemas map[bool]map[*yaml.Node]bool  // see hidden, for responses and for requests
}

func newDocument(root node) document {
	return document{
		root: root, isOpenAPI30: strings.HasPrefix(root.get("openapi").text()+".", "3.0."), positions: map[*yaml.Node]map[string]int{},
		hiddenSchemas: map[bool]map[*yaml.Node]bool{},
	}
}

// lookup returns the value at a reference such as #/components/schemas/Order.
func (d *document) lookup(ref string) node {
	n := d.root
	rest, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return n.withoutValue()
	}
	for name := range strings.SplitSeq(rest, "/") {
		if decoded, err := url.PathUnescape(name); err == nil {
			name = decoded
		}
		name = unescape(name)
		if !n.isObject() {
			n = n.member(name)
			continue
		}
		if d.positions[n.Node] == nil {
			d.positions[n.Node] = make(map[string]int, len(n.Content)/2)
			for i := 0; i+1 < len(n.Content); i += 2 {
				d.positions[n.Node][n.Content[i].Value] = i + 1
			}
		}
		i, ok := d.positions[n.Node][name]
		if !ok {
			return n.withoutValue()
		}
		n = n.child(n.Content[i], name)
	}
	return n
}

// hidden reports whether values of a schema do not occur in this direction: they are readOnly in requests, or writeOnly in responses. The keyword
// may be in the schema, in one that it refers to or that is in its allOf, in the items of an array, or in all alternatives of a choice but null.
func (d *document) hidden(n node, request bool) bool {
	if d.hiddenSchemas[request] == nil {
		d.hiddenSchemas[request] = d.findHidden(hidingKeyword(request))
	}
	return d.hiddenSchemas[request][n.Node]
}

// shown returns the alternatives of a choice that occur in this direction, or all if only null would be left: then the choice itself is hidden.
func (d *document) shown(alternatives []node, request bool) []node {
	shown := slices.DeleteFunc(slices.Clone(alternatives), func(a node) bool { return d.hidden(a, request) })
	if !slices.ContainsFunc(shown, func(a node) bool { return !d.isNull(a) }) {
		return alternatives
	}
	return shown
}

// findHidden returns the schemas that are hidden because of a keyword. Schemas can contain each other in circles, so it begins with those that have
// the keyword, and goes on to those that are hidden because of them.
func (d *document) findHidden(keyword string) map[*yaml.Node]bool {
	type holder struct {
		of   *yaml.Node
		left int // how many of its parts are not hidden
	}
	holders, hidden, found := map[*yaml.Node][]*holder{}, map[*yaml.Node]bool{}, []*yaml.Node(nil)
	hide := func(n *yaml.Node) {
		if !hidden[n] {
			hidden[n], found = true, append(found, n)
		}
	}
	hold := func(n node, parts ...node) {
		h := &holder{n.Node, len(parts)}
		for _, part := range parts {
			if part.Node != nil {
				holders[part.Node] = append(holders[part.Node], h)
			}
		}
	}
	d.root.each(func(n node) {
		ref := n.get("$ref")
		if ref.Node != nil {
			hold(n, d.lookup(ref.text()))
		}
		if d.isOpenAPI30 && ref.Node != nil {
			return // OpenAPI 3.0 ignores members beside $ref
		}
		if n.get(keyword).text() == "true" {
			hide(n.Node)
		}
		hold(n, n.get("items"))
		for _, part := range n.get("allOf").items() {
			hold(n, part)
		}
		for _, choice := range []string{"oneOf", "anyOf"} {
			hold(n, slices.DeleteFunc(n.get(choice).items(), d.isNull)...)
		}
	})
	for len(found) > 0 {
		n := found[0]
		found = found[1:]
		for _, h := range holders[n] {
			if h.left--; h.left == 0 {
				hide(h.of)
			}
		}
	}
	return hidden
}

// hidingKeyword returns the keyword of values that do not occur in requests, or in responses.
func hidingKeyword(request bool) string {
	return map[bool]string{true: "readOnly", false: "writeOnly"}[request]
}

// isNull reports whether a schema allows only null.
func (d *document) isNull(n node) bool {
	for i := 0; i < maxReferences && n.get("$ref").Node != nil; i++ {
		n = d.lookup(n.get("$ref").text())
	}
	constant, values := n.get("const"), n.get("enum").items()
	if len(values) == 1 {
		constant = values[0]
	}
	return n.get("type").text() == "null" || constant.Node != nil && constant.Tag == "!!null"
}

// flag returns a truth value, by default false.
func (c *compiler) flag(n node) bool {
	c.faultIf(n.Node != nil && (n.Tag != "!!bool" || n.Value != "true" && n.Value != "false"), n, "must be true or false")
	return n.text() == "true"
}

// string returns a text, by default "".
func (c *compiler) string(n node) string {
	c.faultIf(n.Node != nil && (n.Kind != yaml.ScalarNode || n.Tag == "!!null" || n.Value == ""), n, "must be a string")
	return n.text()
}

// list returns the elements of an array, by default none.
func (c *compiler) list(n node) []node {
	c.faultIf(n.Node != nil && n.Kind != yaml.SequenceNode, n, "must be a list")
	return n.items()
}

// strings returns the texts of an array, by default none.
func (c *compiler) strings(n node) (all []string) {
	for _, item := range c.list(n) {
		all = append(all, c.string(item))
	}
	return all
}

// members returns the members of an object, by default none.
func (c *compiler) members(n node) []entry {
	c.faultIf(n.Node != nil && n.Kind != yaml.MappingNode, n, "must be an object")
	return n.entries()
}

// node is a value of a document, and where it stands. If there is none, the Node is nil.
type node struct {
	*yaml.Node
	in   *yaml.Node // the value, or the object or array in which it is missing
	path *path
}

// path is a JSON Pointer from its end.
type path struct {
	up   *path
	name string
}

// rootNode returns a value as the root of a document.
func rootNode(value *yaml.Node) node { return node{value, value, nil} }

// child returns a value in n.
func (n node) child(value *yaml.Node, name string) node {
	return node{value, value, &path{n.path, name}}
}

// withoutValue returns the place of n without a value.
func (n node) withoutValue() node { return node{nil, n.in, n.path} }

// pointer returns the JSON Pointer (RFC 6901).
func (n node) pointer() string {
	var names []string
	for p := n.path; p != nil; p = p.up {
		names = append(names, p.name)
	}
	slices.Reverse(names)
	return pointerOf(names...)
}

// line returns the line of the value, or of the object or array in which it is missing.
func (n node) line() int { return max(n.in.Line, 1) }

// each calls visit for the value if it is an object, and for all objects in it.
func (n node) each(visit func(node)) {
	if n.isObject() {
		visit(n)
	}
	for _, e := range n.entries() {
		e.value.each(visit)
	}
	for _, item := range n.items() {
		item.each(visit)
	}
}

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
			all = append(all, n.child(item, strconv.Itoa(i)))
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

// pointerOf returns a JSON Pointer (RFC 6901).
func pointerOf(names ...string) string {
	var pointer jsontext.Pointer
	for _, name := range names {
		pointer = pointer.AppendToken(name)
	}
	return string(pointer)
}

// unescape returns a name that is in a JSON Pointer (RFC 6901, section 3).
func unescape(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
}

// namesIn returns the names in a JSON Pointer.
func namesIn(pointer string) []string {
	return slices.Collect(jsontext.Pointer("/" + strings.TrimPrefix(pointer, "/")).Tokens())
}

// entry is a member of an object.
type entry struct {
	name  string
	value node
}

// entries returns the members of an object in their order.
func (n node) entries() (all []entry) {
	if n.isObject() {
		all = make([]entry, 0, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			name := n.Content[i].Value
			all = append(all, entry{name, n.child(n.Content[i+1], name)})
		}
	}
	return all
}

// get returns a member of an object.
func (n node) get(name string) node {
	if n.isObject() {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == name {
				return n.child(n.Content[i+1], name)
			}
		}
	}
	return node{nil, n.in, &path{n.path, name}}
}

// member returns a member of an object, or an element of an array.
func (n node) member(name string) node {
	items := n.items()
	if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(items) && name == strconv.Itoa(i) {
		return items[i]
	}
	return n.get(name)
}
