package definition

import (
	"errors"
	"fmt"
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

var errWork = errors.New("the actions of this overlay take too long: use .. and filters in fewer of them, or below more names")

// place is a value that a target selects, and where it stands.
type place struct {
	*yaml.Node
	parent *yaml.Node // nil for the root
	levels int        // objects and arrays around it
}

// children returns the places of all values in an object or array.
func (p place) children() (all []place) {
	step := 1
	if p.Kind == yaml.MappingNode {
		step = 2
	}
	for i := step - 1; i < len(p.Content); i += step {
		all = append(all, place{p.Content[i], p.Node, p.levels + 1})
	}
	return all
}

// target is a JSONPath expression (RFC 9535). A library parses it and evaluates its filters on decoded values. Its segments are evaluated here,
// because the library's work has no bound: here, no segment selects a value twice, so each selects at most all values.
type target struct {
	segments   []*spec.Segment
	conditions map[*spec.FilterSelector]int
	rooted     bool // whether filters may refer to the root
}

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
			if filter, ok := selector.(*spec.FilterSelector); ok {
				if t.conditions[filter], err = conditions(filter.LogicalOr); err != nil {
					return nil, err
				}
			}
		}
	}
	return t, nil
}

// conditions counts the conditions of a filter. Each is evaluated at most once for each value in an object or array that is filtered.
func conditions(filter spec.LogicalOr) (n int, err error) {
	for _, and := range filter {
		for _, condition := range and {
			more := 0
			switch c := condition.(type) {
			case *spec.ParenExpr:
				more, err = conditions(c.LogicalOr)
			case *spec.NotParenExpr:
				more, err = conditions(c.LogicalOr)
			case *spec.ExistExpr:
				more, err = steps(c.PathQuery)
			case *spec.NonExistExpr:
				more, err = steps(c.PathQuery)
			}
			if n += 1 + more; err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

// steps counts the conditions in a path of a filter.
func steps(path *spec.PathQuery) (n int, err error) {
	if path.String()[0] == '$' && path.Singular() == nil {
		return 0, errors.New("in a filter, a path that begins with $ can have only names and indexes")
	}
	for _, segment := range path.Segments() {
		if segment.IsDescendant() || len(segment.Selectors()) > 1 {
			return 0, errors.New("in a filter, .. and lists of names are not possible")
		}
		more := 1
		if filter, ok := segment.Selectors()[0].(*spec.FilterSelector); ok {
			if more, err = conditions(filter.LogicalOr); err != nil {
				return 0, err
			}
		}
		n += more
	}
	return n, nil
}

// search evaluates targets on one document.
type search struct {
	root    *yaml.Node
	left    int // of maxWork
	decoded map[*yaml.Node]decoded
}

// decoded is a value as filters need it.
type decoded struct {
	value any
	work  int // the steps that reading all of it takes
}

// find returns the values that a target selects, each once.
func (s *search) find(t *target) ([]place, error) {
	s.decoded = make(map[*yaml.Node]decoded) // the document may have changed
	found := []place{{Node: s.root}}
	for _, segment := range t.segments {
		if segment.IsDescendant() {
			found = s.below(found)
		}
		seen := make(map[*yaml.Node]bool)
		var next []place
		for _, p := range found {
			for _, selector := range segment.Selectors() {
				children := s.children(p, selector, t)
				s.left -= 3 * len(children)
				for _, child := range children {
					if !seen[child.Node] {
						seen[child.Node] = true
						next = append(next, child)
					}
				}
				if s.left < 0 {
					return nil, errWork
				}
			}
		}
		found = next
	}
	return found, nil
}

// below returns objects and arrays, with those in them. Nothing can be selected from scalars.
func (s *search) below(found []place) (all []place) {
	seen := make(map[*yaml.Node]bool)
	var visit func(place)
	visit = func(p place) {
		if p.Kind == yaml.ScalarNode || seen[p.Node] {
			return
		}
		seen[p.Node] = true
		all = append(all, p)
		s.left -= len(p.Content)
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
func (s *search) children(p place, selector spec.Selector, t *target) (selected []place) {
	s.left -= 1 + len(p.Content)
	switch selector := selector.(type) {
	case spec.Name:
		for i := 1; p.Kind == yaml.MappingNode && i < len(p.Content); i += 2 {
			if p.Content[i-1].Value == string(selector) {
				return []place{{p.Content[i], p.Node, p.levels + 1}}
			}
		}
	case spec.WildcardSelector:
		return p.children()
	case *spec.FilterSelector:
		var root any
		if t.rooted {
			root = s.decode(s.root).value
		}
		for _, child := range p.children() {
			value := s.decode(child.Node)
			if s.left -= t.conditions[selector] * value.work; s.left < 0 {
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
				if child, ok := item.(place); ok {
					selected = append(selected, child)
				}
			}
		}
	}
	return selected
}

// decode returns a value as filters need it. It decodes each value once.
func (s *search) decode(n *yaml.Node) decoded {
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
	s.left -= 10
	return d
}
