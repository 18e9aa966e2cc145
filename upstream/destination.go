package upstream

import (
	"math"
	"path"
	"regexp"
	"slices"
	"strings"
)

// This file keeps the parameters of a path from leading to an operation that is left out, or that needs other rights. Many services ignore case and an
// extension in a path.

// place is a path to which parameters of other paths must not lead.
type place struct {
	patterns [2]string  // in lower case, in the form of path.Match: without an extension, and with one
	op       *Operation // nil: it is left out
}

// destination is where the parameters of a path lead.
type destination struct {
	op     *Operation // that is mapped to another path at the service; nil: the path of the request
	sample string     // in lower case, with ~ for each parameter
}

// search looks for a place to which a text leads: a path or, when loading, a template.
type search struct {
	of   *Path
	to   destination
	text string // in lower case
	left int    // how many nodes and places it may still look at
}

// placeholders matches placeholders such as {id}.
var placeholders = regexp.MustCompile(`(\{[^{}]*\})+`)

// addPlace adds a template without a query, a fragment, and a slash at its end.
func (a *API) addPlace(template string, op *Operation) {
	template = strings.ToLower(strings.TrimSuffix(template[:strings.IndexAny(template+"?", "?#")], "/"))
	pattern := placeholders.ReplaceAllString(strings.NewReplacer(`\`, `\\`, `*`, `\*`, `[`, `\[`).Replace(template), "*")
	n := a.places.add(strings.Split(template, "/"))
	n.places = append(n.places, place{[2]string{pattern, pattern + ".*"}, op})
}

// addDestination adds a destination of p, if places are possible there.
func (a *API) addDestination(p *Path, template string, op *Operation) {
	s := search{of: p, text: strings.ToLower(strings.TrimSuffix(template, "/")), left: 1000} // among more, one is likely
	s.to = destination{op, placeholders.ReplaceAllString(s.text, "~")}
	if s.to.sample != s.text && s.reaches(&a.places, s.text) {
		p.destinations = append(p.destinations, s.to)
	}
}

// leadsElsewhere reports whether a path that matches p, or what it is mapped to, is that of an operation that is left out, or that needs other rights.
func (a *API) leadsElsewhere(p *Path, path string, values *[MaxPathParams]string) bool {
	for _, to := range p.destinations {
		at := path
		if to.op != nil {
			at = join(to.op.Mapping.Path, &Call{BusinessID: "*"}, Query{pathValues: values[:]})
		}
		s := search{of: p, to: to, text: strings.ToLower(strings.TrimSuffix(at, "/")), left: math.MaxInt}
		if s.reaches(&a.places, s.text) {
			return true
		}
	}
	return false
}

// reaches reports whether there is such a place below n, or too many nodes and places to tell. rest is what the text has from there.
func (s *search) reaches(n *node, rest string) bool {
	if s.left--; s.left < 0 {
		return true
	}
	segment, rest, more := strings.Cut(rest, "/")
	below := func(next *node) bool {
		return next != nil && (more && s.reaches(next, rest) || !more && slices.ContainsFunc(next.places, s.leadsTo))
	}
	if strings.Contains(segment, "{") {
		for _, next := range n.literal {
			if below(next) {
				return true
			}
		}
	}
	for i := range segment { // without an extension
		if segment[i] == '.' && !more && below(n.literal[segment[:i]]) {
			return true
		}
	}
	return below(n.literal[segment]) || below(n.parameter)
}

// leadsTo reports whether some values of the parameters, but not all, lead to a place, and the text does, unless it is a template.
func (s *search) leadsTo(at place) bool {
	if s.left--; s.left < 0 {
		return true
	}
	own := s.to.op
	if own == nil && at.op != nil {
		own = s.of.Operation(at.op.Method)
	}
	matches := func(text string) bool {
		return slices.ContainsFunc(at.patterns[:], func(pattern string) bool { found, _ := path.Match(pattern, text); return found })
	}
	elsewhere := at.op == nil || own != nil && own.Method == at.op.Method && own.Rights != at.op.Rights
	return elsewhere && !matches(s.to.sample) && (strings.Contains(s.text, "{") || matches(s.text))
}
