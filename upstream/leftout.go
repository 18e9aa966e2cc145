package upstream

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// This file keeps the parameters of a path from leading to an operation that is left out. Many services ignore case and an extension in a path.

// destination is where the parameters of a path lead, and the paths to which they must not.
type destination struct {
	mapped  []Part   // at the service; nil: the path of the request
	leftOut []string // in lower case, in the form of path.Match
}

// placeholders matches placeholders such as {id}.
var placeholders = regexp.MustCompile(`(\{[^{}]*\})+`)

// addDestination adds those paths of leftOut to which p, or what it is mapped to, leads with some values of its parameters, but not with all.
func (p *Path) addDestination(template string, mapped []Part, leftOut []string) {
	if mapped != nil {
		template = join(mapped, &Call{BusinessID: "{}"}, Query{pathValues: slices.Repeat([]string{"{}"}, MaxPathParams)})
	}
	template = strings.ToLower(strings.TrimSuffix(template, "/"))
	to, segments, sample := destination{mapped: mapped}, strings.Split(template, "/"), placeholders.ReplaceAllString(template, "~")
	for _, other := range leftOut {
		other = strings.TrimSuffix(other[:strings.IndexAny(other+"?", "?#")], "/")
		other = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `[`, `\[`).Replace(strings.ToLower(other))
		other = placeholders.ReplaceAllString(other, "*")
		parts := strings.Split(other, "/")
		for i := range min(len(parts), len(segments)) {
			if strings.Contains(segments[i], "{") {
				parts[i] = "*"
			}
		}
		both := []string{other, other + ".*"}
		if matchesAny([]string{strings.Join(parts, "/"), strings.Join(parts, "/") + ".*"}, template) && !matchesAny(both, sample) {
			to.leftOut = append(to.leftOut, both...)
		}
	}
	if to.leftOut != nil {
		p.destinations = append(p.destinations, to)
	}
}

// leadsToLeftOut reports whether a target that matches p, or what it is mapped to, is the path of an operation that is left out.
func (p *Path) leadsToLeftOut(target string, values *[MaxPathParams]string) bool {
	for _, to := range p.destinations {
		if to.mapped != nil {
			target = join(to.mapped, &Call{BusinessID: "*"}, Query{pathValues: values[:]})
		}
		if matchesAny(to.leftOut, strings.ToLower(strings.TrimSuffix(target, "/"))) {
			return true
		}
	}
	return false
}

func matchesAny(patterns []string, target string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		matches, _ := path.Match(pattern, target)
		return matches
	})
}
