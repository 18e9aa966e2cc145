package definition

import (
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const maxActions = 1000

// applyOverlay applies document, an OpenAPI Overlay 1.0, or 1.1 without copy, to the document root. Both come from parse. Every name and value that
// comes from the overlay gets its file as Anchor. Faults have the overlay's lines. After one, the document must not be used.
func applyOverlay(root, document *yaml.Node, file string) []*FaultError {
	o := overlay{search: search{root: root, workLeft: maxWork}, file: file}
	return o.apply(rootNode(document))
}

type overlay struct {
	search

	file   string
	size   extent // an upper bound of the document's size
	faults []*FaultError
	done   bool // too many faults, or a limit reached

	replaces bool // updates replace texts, numbers, true, false and null (since 1.1)
}

func (o *overlay) apply(top node) []*FaultError {
	o.size = measure(o.root)
	o.allowOnly(top, "overlay", "info", "extends", "actions")
	info := top.get("info")
	o.allowOnly(info, "title", "version", "description")
	for _, text := range []node{info.get("title"), info.get("version")} {
		if info.isObject() && text.text() == "" {
			o.fault(text, "must be a non-empty string")
		}
	}
	if version := top.get("overlay"); !regexp.MustCompile(`^1\.[01]\.\d+$`).MatchString(version.text()) {
		o.fault(version, "the version of the Overlay Specification must be 1.0.0 or 1.1.0, not %q", version.text())
	}
	o.replaces = strings.HasPrefix(top.get("overlay").text(), "1.1.")
	actions := top.get("actions")
	if n := len(actions.items()); n == 0 || n > maxActions {
		o.fault(actions, "there must be 1 to %d actions, not %d", maxActions, n)
		return o.faults
	}
	for _, action := range actions.items() {
		if !o.done {
			o.action(action)
		}
	}
	return o.faults
}

func (o *overlay) fault(n node, message string, args ...any) {
	if o.done = o.done || len(o.faults) == maxFaults; !o.done {
		o.faults = append(o.faults, faultAt(o.file, n, message, args...))
	}
}

// allowOnly reports members of an object that are not in a list, except extensions (x-).
func (o *overlay) allowOnly(n node, names ...string) {
	if !n.isObject() {
		o.fault(n, "an object is missing")
	}
	for _, e := range n.entries() {
		if !slices.Contains(names, e.name) && (!strings.HasPrefix(e.name, "x-") || strings.HasPrefix(e.name, extPrefix)) {
			o.fault(e.value, "%s is not possible here: must be one of %s", e.name, strings.Join(names, ", "))
		}
	}
}

// action applies one action, unless it has a fault.
func (o *overlay) action(action node) {
	before := len(o.faults)
	if o.allowOnly(action, "target", "description", "update", "remove"); !action.isObject() {
		return
	}
	expression, update, remove := action.get("target"), action.get("update"), action.get("remove")
	if remove.Node != nil && remove.ShortTag() != "!!bool" {
		o.fault(remove, "must be true or false")
	} else if (update.Node != nil) == (remove.text() == "true") {
		o.fault(action, "an action must have either update or remove: true")
	}
	path, err := parseTarget(expression.text())
	if err != nil {
		o.fault(expression, "invalid target %.100q: %v", expression.text(), err)
	}
	if o.done || len(o.faults) > before {
		return
	}
	places, err := o.find(path)
	switch {
	case err != nil:
		o.fault(expression, "%v", err)
		o.done = true
	case len(places) == 0:
		o.fault(expression, "%s selects nothing", expression.text())
	case update.Node == nil:
		o.remove(expression, places)
	case o.fits(update, places):
		for _, p := range places {
			if len(o.faults) == before { // the others would fail as well
				o.update(p.Node, update, expression)
			}
		}
	}
}

// remove takes values out of the objects and arrays in which they are.
func (o *overlay) remove(expression node, places []locatedNode) {
	removed, parents := make(map[*yaml.Node]bool), make(map[*yaml.Node]bool)
	for _, p := range places {
		if p.parent == nil {
			o.fault(expression, "the whole document cannot be removed")
			return
		}
		removed[p.Node], parents[p.parent] = true, true
	}
	for parent := range parents {
		step := 1
		if parent.Kind == yaml.MappingNode {
			step = 2
		}
		kept := parent.Content[:0]
		for i := 0; i < len(parent.Content); i += step {
			if entry := parent.Content[i : i+step]; !removed[entry[step-1]] { // a value, with its name if it has one
				kept = append(kept, entry...)
			}
		}
		parent.Content = kept
	}
}

// extent is the size of a value.
type extent struct{ nodes, text, levels int }

func measure(n *yaml.Node) extent {
	e := extent{nodes: 1, text: len(n.Value)}
	for _, child := range n.Content {
		c := measure(child)
		e = extent{e.nodes + c.nodes, e.text + c.text, max(e.levels, c.levels)}
	}
	if n.Kind != yaml.ScalarNode {
		e.levels++
	}
	return e
}

// fits reports whether the document stays within its limits with an update in all of these places. It counts as if the update replaced nothing.
func (o *overlay) fits(update node, places []locatedNode) bool {
	more, levels := measure(update.Node), 0
	for _, p := range places {
		if p.Kind == yaml.SequenceNode && update.Kind != yaml.SequenceNode {
			p.levels++
		}
		levels = max(levels, p.levels+more.levels)
	}
	nodes, text := more.nodes*len(places), more.text*len(places)
	if o.size.nodes+nodes > maxNodes || o.size.text+text > maxText {
		o.size = measure(o.root) // without what was replaced or removed
		o.workLeft -= o.size.nodes / 2
	}
	o.size.nodes += nodes
	o.size.text += text
	if o.size.nodes > maxNodes || o.size.text > maxText || levels > maxLevels {
		o.fault(update, "with this update in %d places, the document has more than %d names and values, %d bytes or %d levels",
			len(places), maxNodes, maxText, maxLevels)
		o.done = true
		return false
	}
	return true
}

// update merges an update into an object, or appends it to an array.
func (o *overlay) update(old *yaml.Node, update, expression node) {
	switch {
	case old.Kind == yaml.SequenceNode && update.Kind == yaml.SequenceNode:
		for _, item := range update.Content {
			old.Content = append(old.Content, o.copy(item))
		}
	case old.Kind == yaml.SequenceNode:
		old.Content = append(old.Content, o.copy(update.Node))
	case old.Kind == yaml.ScalarNode && update.Kind == yaml.ScalarNode && o.replaces:
		*old = *o.copy(update.Node)
	case old.Kind == yaml.ScalarNode:
		o.fault(expression, "%s selects a value that is not an object or array (from line %d): select what it is in", expression.text(), old.Line)
	case update.Kind != yaml.MappingNode:
		o.fault(update, "an object (from line %d) can only be updated with an object", old.Line)
	default:
		o.merge(old, update, expression)
	}
}

// merge merges an object into another: objects in both are merged as well, arrays in both joined, and texts, numbers, true, false and null
// replaced.
func (o *overlay) merge(old *yaml.Node, update, expression node) {
	positions := make(map[string]int, len(old.Content)/2)
	for i := 0; i < len(old.Content); i += 2 {
		positions[old.Content[i].Value] = i + 1
	}
	o.workLeft -= 2 * len(old.Content)
	for i, e := range update.entries() {
		position, ok := positions[e.name]
		switch {
		case !ok:
			old.Content = append(old.Content, o.copy(update.Content[2*i]), o.copy(e.value.Node))
		case old.Content[position].Kind == yaml.ScalarNode:
			old.Content[position] = o.copy(e.value.Node)
		case old.Content[position].Kind != e.value.Kind:
			o.fault(e.value, "%s is an object or array (from line %d) that this cannot replace: remove it first", e.name, old.Content[position].Line)
		default:
			o.update(old.Content[position], e.value, expression)
		}
	}
}

// copy returns a copy of a value of the overlay.
func (o *overlay) copy(n *yaml.Node) *yaml.Node {
	c := *n
	c.Content = make([]*yaml.Node, len(n.Content))
	o.workLeft -= 5
	for i, child := range n.Content {
		c.Content[i] = o.copy(child)
	}
	c.Anchor = o.file
	return &c
}
