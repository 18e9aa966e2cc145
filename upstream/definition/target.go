package definition

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/theory/jsonpath"
	"github.com/theory/jsonpath/registry"
	"github.com/theory/jsonpath/spec"
	"go.yaml.in/yaml/v3"
)

// Limits of targets. Work is counted in steps of 20 to 100 ns: looking at a value, or a part of selecting or copying one.
const (
	maxTarget = 1000       // bytes
	maxWork   = 50_000_000 // of a whole overlay: 2 to 4 s
)

// locatedNode is a value that a target selects, and where it stands.
type locatedNode struct {
	*yaml.Node
	parent *yaml.Node // nil for the root
	levels int        // objects and arrays around it
}

// children returns the places of all values in an object or array.
func (p locatedNode) children() (all []locatedNode) {
	step := 1
	if p.Kind == yaml.MappingNode {
		step = 2
	}
	for i := step - 1; i < len(p.Content); i += step {
		all = append(all, locatedNode{p.Content[i], p.Node, p.levels + 1})
	}
	return all
}

// target is a JSONPath expression (RFC 9535). A library parses it and evaluates its filters on decoded values. Its segments are evaluated here,
// because the library's work has no bound: here, no segment selects a value twice, so each selects at most all values.
type target struct {
	segments   []*spec.Segment
	conditions map[*spec.FilterSelector]int
	usesRoot   bool // whether filters may refer to the root
}

// For the canonical form of a filter: its texts, and without these, a path that begins with $ and may select more than one value.
var (
	quotedText = regexp.MustCompile(`"(\\.|[^"\\])*"`)
	wideRoot   = regexp.MustCompile(`\$(\[-?[0-9]*\])*(\.\.|\[-?[0-9]*[*?:,])`)
)

// parseTarget parses an expression and refuses what cannot be evaluated in bounded time: functions, two of which are regular expressions, and in
// filters, segments whose work multiplies.
func parseTarget(text string) (*target, error) {
	if len(text) > maxTarget {
		return nil, fmt.Errorf("more than %d bytes", maxTarget)
	}
	path, err := jsonpath.NewParser(jsonpath.WithRegistry(&registry.Registry{})).Parse(text)
	if err != nil {
		return nil, err
	}
	t := &target{path.Query().Segments(), make(map[*spec.FilterSelector]int), strings.Contains(text[1:], "$")}
	for _, segment := range t.segments {
		for _, selector := range segment.Selectors() {
			filter, ok := selector.(*spec.FilterSelector)
			if !ok {
				continue
			}
			steps := quotedText.ReplaceAllString(filter.String(), "") // of @["a"], @[] is left
			if wideRoot.MatchString(steps) {
				return nil, errors.New("in a filter, a path that begins with $ can have only names and indexes")
			}
			if strings.Contains(steps, "..") || strings.Contains(steps, ",") {
				return nil, errors.New("in a filter, .. and lists of names are not possible")
			}
			// Conditions and segments. Each is evaluated at most once for each value in an object or array that is filtered.
			t.conditions[filter] = 1 + strings.Count(steps, "[") + strings.Count(steps, "&&") + strings.Count(steps, "||")
		}
	}
	return t, nil
}

// search evaluates targets on one document.
type search struct {
	root     *yaml.Node
	workLeft int // of maxWork
	decoded  map[*yaml.Node]decodedValue
}

// decodedValue is a value as filters need it.
type decodedValue struct {
	value any
	work  int // the steps that reading all of it takes
}

// find returns the values that a target selects, each once.
func (s *search) find(t *target) ([]locatedNode, error) {
	s.decoded = make(map[*yaml.Node]decodedValue) // the document may have changed
	found := []locatedNode{{Node: s.root}}
	for _, segment := range t.segments {
		if segment.IsDescendant() {
			found = s.descendants(found)
		}
		seen := make(map[*yaml.Node]bool)
		var next []locatedNode
		for _, p := range found {
			for _, selector := range segment.Selectors() {
				children := s.children(p, selector, t)
				s.workLeft -= 3 * len(children)
				for _, child := range children {
					if !seen[child.Node] {
						seen[child.Node] = true
						next = append(next, child)
					}
				}
				if s.workLeft < 0 {
					return nil, errors.New("the actions of this overlay take too long: use .. and filters in fewer of them, or below more names")
				}
			}
		}
		found = next
	}
	return found, nil
}

// descendants returns objects and arrays, with those in them. Nothing can be selected from scalars.
func (s *search) descendants(found []locatedNode) (all []locatedNode) {
	seen := make(map[*yaml.Node]bool)
	var visit func(locatedNode)
	visit = func(p locatedNode) {
		if p.Kind == yaml.ScalarNode || seen[p.Node] {
			return
		}
		seen[p.Node] = true
		all = append(all, p)
		s.workLeft -= len(p.Content)
		for _, child := range p.children() {
			visit(child)
		}
	}
	for _, p := range found {
		visit(p)
	}
	return all
}

// children returns what a selector selects from a value.
func (s *search) children(p locatedNode, selector spec.Selector, t *target) (selected []locatedNode) {
	s.workLeft -= 1 + len(p.Content)
	switch selector := selector.(type) {
	case spec.Name:
		if child := member(p.Node, string(selector)); child != nil {
			return []locatedNode{{child, p.Node, p.levels + 1}}
		}
	case spec.WildcardSelector:
		return p.children()
	case *spec.FilterSelector:
		var root any
		if t.usesRoot {
			root = s.decode(s.root).value
		}
		for _, child := range p.children() {
			value := s.decode(child.Node)
			if s.workLeft -= t.conditions[selector] * value.work; s.workLeft < 0 {
				return nil
			}
			if selector.Eval(value.value, root) {
				selected = append(selected, child)
			}
		}
	default: // an index or a slice
		if p.Kind == yaml.SequenceNode {
			var items []any
			for _, child := range p.children() {
				items = append(items, child)
			}
			for _, item := range selector.Select(items, nil) {
				if child, ok := item.(locatedNode); ok {
					selected = append(selected, child)
				}
			}
		}
	}
	return selected
}

// decode returns a value as filters need it. It decodes each value once.
func (s *search) decode(n *yaml.Node) decodedValue {
	d, ok := s.decoded[n]
	if ok {
		return d
	}
	d.work = 1 + len(n.Value)/64
	switch n.Kind {
	case yaml.MappingNode:
		object := make(map[string]any, len(n.Content)/2)
		for i := 1; i < len(n.Content); i += 2 {
			member := s.decode(n.Content[i])
			object[n.Content[i-1].Value] = member.value
			d.work += member.work
		}
		d.value = object
	case yaml.SequenceNode:
		array := make([]any, len(n.Content))
		for i, child := range n.Content {
			item := s.decode(child)
			array[i] = item.value
			d.work += item.work
		}
		d.value = array
	default:
		if n.ShortTag() == "!!str" || n.Decode(&d.value) != nil {
			d.value = n.Value
		}
	}
	s.decoded[n] = d
	s.workLeft -= 10
	return d
}
