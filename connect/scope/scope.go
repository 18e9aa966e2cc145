package scope

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-gateway/gatehouse/internal/cleantext"
	"github.com/gatehouse-gateway/gatehouse/upstream/definition"
)

// Published scopes.
const (
	Read  = "mcp:read"  // read everything
	Write = "mcp:write" // read and write everything
	Use   = "mcp:use"   // read, write and run everything
)

// Verbs. A scope of an area is the area's name, a colon and a verb.
const (
	VerbRead  = "read"
	VerbWrite = "write"
	VerbRun   = "run"
)

// Area is a definition.Area. If its Read, Write or Run is empty, it has no scope for that verb.
type Area definition.Area

// Text returns the approval page's text for verb, or "" if the area has no such scope.
func (a Area) Text(verb string) string {
	switch verb {
	case VerbRead:
		return a.Read
	case VerbWrite:
		return a.Write
	case VerbRun:
		return a.Run
	}
	return ""
}

// Scope returns the area's scope for verb, or "" if it has none.
func (a Area) Scope(verb string) string {
	if a.Text(verb) == "" {
		return ""
	}
	return a.Name + ":" + verb
}

// Areas is a selection of a definition's areas. Scopes of other areas are unknown, and a published scope covers the selected areas
// only. The zero value has no areas.
type Areas struct {
	all *[]Area
	off rights // all rights of the areas that are not selected
}

// New returns a selection of all areas of a definition, which has at most definition.MaxAreas.
func New(list []definition.Area) Areas {
	all := make([]Area, 0, len(list))
	for _, a := range list {
		all = append(all, Area(a))
	}
	return Areas{all: &all}
}

// All returns the selection of all areas of the definition.
func (a Areas) All() Areas { return Areas{all: a.all} }

func (a Areas) areas() []Area {
	if a.all == nil {
		return nil
	}
	return *a.all
}

// Without returns the selection without the named areas. It returns an error for an unknown name, and if no area is left.
func (a Areas) Without(names ...string) (Areas, error) {
	for _, name := range names {
		i := slices.IndexFunc(a.areas(), func(area Area) bool { return area.Name == name })
		if i < 0 {
			var valid []string
			for _, area := range a.areas() {
				valid = append(valid, area.Name)
			}
			return Areas{}, fmt.Errorf("unknown area %q: must be one of %s", name, strings.Join(valid, ", "))
		}
		for v := range Verbs() {
			a.off |= right(i, v)
		}
	}
	if len(a.List()) == 0 {
		return Areas{}, errors.New("no area is left: at least one must remain")
	}
	return a, nil
}

// List returns the selected areas in the definition's order, in which pages show them.
func (a Areas) List() []Area {
	var list []Area
	for i, area := range a.areas() {
		if a.off&right(i, 0) == 0 {
			list = append(list, area)
		}
	}
	return list
}

// Verbs returns the verbs in the order in which pages show them: read, write, run.
func Verbs() []string { return []string{VerbRead, VerbWrite, VerbRun} }

// published returns the published scopes, each of which includes the one before.
func published() []string { return []string{Read, Write, Use} }

// Published returns scopes_supported of the metadata documents: the published scopes that add rights to the one before.
func (a Areas) Published() []string {
	var names []string
	var previous rights
	for _, name := range published() {
		if r := a.rightsOf(name); r != previous {
			names, previous = append(names, name), r
		}
	}
	return names
}

// Default returns the scopes of an authorization request without a scope parameter: mcp:read.
func (a Areas) Default() Set { return a.set([]string{Read}) }

// Everything returns the last scope of Published, which covers all rights in the selected areas. There must be at least one area.
func (a Areas) Everything() Set {
	names := a.Published()
	return a.set(names[len(names)-1:])
}

// UnknownError is the error for an unknown or malformed scope. Its text is valid in an error_description.
type UnknownError struct {
	Name string // as sent
}

// Error implements error.
func (e *UnknownError) Error() string {
	return "unknown scope '" + cleantext.Description(e.Name, 64) + "'"
}

// Set is a set of scopes. It is immutable; the zero Set is empty and allows nothing.
type Set struct {
	names  string // sorted, each once, separated by single spaces
	rights rights
	areas  Areas // that give the names their rights
}

// Parse parses a list of scopes separated by spaces. Order, repetition and additional spaces are ignored; case matters. It
// returns an *UnknownError for an unknown scope.
func (a Areas) Parse(s string) (Set, error) {
	var names []string
	for name := range strings.SplitSeq(s, " ") {
		if name == "" {
			continue
		}
		if a.rightsOf(name) == 0 {
			return Set{}, &UnknownError{Name: name}
		}
		names = append(names, name)
	}
	return a.set(names), nil
}

// set returns the set of names that are known to be valid.
func (a Areas) set(names []string) Set {
	slices.Sort(names)
	names = slices.Compact(names)
	set := Set{names: strings.Join(names, " "), areas: a}
	for _, name := range names {
		set.rights |= a.rightsOf(name)
	}
	return set
}

// String returns the set's canonical form: the names sorted, each once, separated by single spaces.
func (s Set) String() string { return s.names }

// Names returns the names, sorted.
func (s Set) Names() []string { return strings.Fields(s.names) }

// Areas returns the selection of areas for which the set was parsed.
func (s Set) Areas() Areas { return s.areas }

// IsZero reports whether the set is empty.
func (s Set) IsZero() bool { return s.names == "" }

// Allows reports whether the set has all rights of the required scope. Unknown scopes are never allowed.
func (s Set) Allows(required string) bool {
	want := s.areas.rightsOf(required)
	return want != 0 && s.rights&want == want
}

// Contains reports whether the set has all rights of other, so that other does not exceed s when a client refreshes a token
// (RFC 6749, section 6). Every set contains the empty one.
func (s Set) Contains(other Set) bool { return s.rights&other.rights == other.rights }

// Equals reports whether the sets have the same rights.
func (s Set) Equals(other Set) bool { return s.rights == other.rights }

// Runs reports whether the set has the run right of any area.
func (s Set) Runs() bool {
	return slices.ContainsFunc(s.areas.areas(), func(a Area) bool { return s.Includes(a, VerbRun) })
}

// Includes reports whether the set allows the area's scope for verb.
func (s Set) Includes(area Area, verb string) bool { return s.Allows(area.Scope(verb)) }

// Narrow returns the set without the rights for which keep is false. keep is called once for each right of the set, in the order
// of areas and verbs. Without an area's read, its write and run are removed too. Names that keep all their rights stay; others are
// replaced with the largest published scope whose rights are all kept, and scopes of areas.
func (s Set) Narrow(keep func(area Area, verb string) bool) Set {
	var kept rights
	for i, a := range s.areas.areas() {
		var own rights
		for v, verb := range Verbs() {
			if r := right(i, v); s.rights&r != 0 && keep(a, verb) {
				own |= r
			}
		}
		if own&right(i, 0) != 0 {
			kept |= own
		}
	}
	candidates := append(s.Names(), Use, Write, Read)
	own := len(candidates) - len(published())
	for _, a := range s.areas.List() {
		for _, verb := range []string{VerbWrite, VerbRun, VerbRead} { // those that include read first
			candidates = append(candidates, a.Scope(verb))
		}
	}
	var names []string
	var covered rights
	for i, name := range candidates {
		if r := s.areas.rightsOf(name); r&^kept == 0 && (i < own || r&^covered != 0) {
			names = append(names, name)
			covered |= r
		}
	}
	return s.areas.set(names)
}

// Pin encodes an approved set for storage: its names and the area scopes that its published scopes cover. A later version or
// configuration may add areas, which the published scopes would then cover without the user's approval.
func (s Set) Pin() string {
	names := s.Names()
	for _, name := range names {
		if !slices.Contains(published(), name) {
			continue
		}
		for _, a := range s.areas.List() {
			for _, verb := range Verbs() {
				if own := a.Scope(verb); own != "" && s.areas.All().rightsOf(own)&^s.areas.All().rightsOf(name) == 0 {
					names = append(names, own)
				}
			}
		}
	}
	return s.areas.set(names).String()
}

// Unpin decodes Pin's result. A published scope remains only if the pinned area scopes cover it. Unknown names give no rights.
func (a Areas) Unpin(pinned string) Set {
	isWide := func(name string) bool { return slices.Contains(published(), name) }
	own := slices.DeleteFunc(strings.Fields(pinned), isWide)
	approved := a.set(own).rights
	wide := slices.DeleteFunc(strings.Fields(pinned), func(name string) bool { return !isWide(name) || a.rightsOf(name)&^approved != 0 })
	covered := a.set(wide).rights
	own = slices.DeleteFunc(own, func(name string) bool { return a.rightsOf(name)&^covered == 0 })
	return a.set(append(wide, own...))
}

// rights is a bit set with three bits for each area of the definition: read, write, run.
type rights uint64

func right(area, verb int) rights { return 1 << (area*3 + verb) }

// rightsOf returns the rights of a scope in the selected areas, or 0 if there is no such scope.
func (a Areas) rightsOf(name string) rights {
	area, verb, _ := strings.Cut(name, ":")
	covered := slices.Index(published(), name) // index of the last verb that a published scope covers, or -1
	var all rights
	for i, own := range a.areas() {
		if covered < 0 && own.Name != area {
			continue
		}
		for v, each := range Verbs() {
			switch {
			case own.Text(each) == "":
			case v <= covered:
				all |= right(i, v)
			case each == verb:
				all = right(i, 0) | right(i, v)
			}
		}
	}
	return all &^ a.off
}
