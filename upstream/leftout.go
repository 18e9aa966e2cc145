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

// leftOutPattern returns the segments of the pattern for a path that is left out, without a query, a fragment, and a slash at its end.
func leftOutPattern(target string) []string {
	target = strings.ToLower(strings.TrimSuffix(target[:strings.IndexAny(target+"?", "?#")], "/"))
	target = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `[`, `\[`).Replace(target)
	return strings.Split(placeholders.ReplaceAllString(target, "*"), "/")
}

// addDestination adds those patterns of leftOut to which p, or what it is mapped to, leads with some values of its parameters, but not with all.
func (p *Path) addDestination(template string, mapped []Part, leftOut [][]string) {
	if mapped != nil {
		template = join(mapped, &Call{BusinessID: "{}"}, Query{pathValues: slices.Repeat([]string{"{}"}, MaxPathParams)})
	}
	template = strings.ToLower(strings.TrimSuffix(template, "/"))
	to, segments, sample := destination{mapped: mapped}, strings.Split(template, "/"), placeholders.ReplaceAllString(template, "~")
	for _, parts := range leftOut {
		possible := sample != template && len(parts) == len(segments)
		for i := 0; possible && i < len(parts); i++ {
			possible = strings.Contains(segments[i], "{") || matches(parts[i], segments[i]) || matches(parts[i]+".*", segments[i])
		}
		if !possible {
			continue
		}
		if pattern := strings.Join(parts, "/"); !matches(pattern, sample) && !matches(pattern+".*", sample) {
			to.leftOut = append(to.leftOut, pattern, pattern+".*")
		}
	}
	if to.leftOut != nil {
		p.destinations = append(p.destinations, to)
	}
}

// leadsToLeftOut reports whether a target that matches p, or what it is mapped to, is the path of an operation that is left out.
func (p *Path) leadsToLeftOut(target string, values *[MaxPathParams]string) bool {
	for _, to := range p.destinations {
		at := target
		if to.mapped != nil {
			at = join(to.mapped, &Call{BusinessID: "*"}, Query{pathValues: values[:]})
		}
		lower := strings.ToLower(strings.TrimSuffix(at, "/"))
		if slices.ContainsFunc(to.leftOut, func(pattern string) bool { return matches(pattern, lower) }) {
			return true
		}
	}
	return false
}

func matches(pattern, text string) bool {
	found, _ := path.Match(pattern, text)
	return found
}
