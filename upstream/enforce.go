package upstream

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Enforcement says which deviations of responses from the definition pass.
//
// Some rules hold in every step: all checks of requests, the checks of tenant and visibility, the removal of internal and writeOnly members,
// sizes, JSON's syntax and depth, media types, status codes and headers. The records must be where the definition says, and values that have
// a Conversion must be convertible.
type Enforcement uint8

// The steps of enforcement, from the strictest.
const (
	EnforceAll     Enforcement = iota // no deviation passes
	EnforceMembers                    // possible values, formats, patterns, lengths, bounds and numbers of items, members and records may deviate
	EnforceTenant                     // all deviations pass, and undocumented members are kept
)

// Deviation is a way in which a response deviated from the definition and passed. It has no values in it.
type Deviation struct {
	Pointer string `json:"pointer"` // JSON Pointer of the member; * stands for each item of an array, and for a name that may be a value
	Rule    string `json:"rule"`    // such as "type", "format" or "undocumented"
	Count   int    `json:"count"`   // how often, in this response

	From string `json:"from,omitempty"` // where the data service has the member or what it is in, if that is another place
}

// Enforcements returns the names of the steps, from the most permissive.
func Enforcements() []string { return []string{"tenant", "members", "all"} }

// String returns the name of the step.
func (e Enforcement) String() string { return Enforcements()[EnforceTenant-min(e, EnforceTenant)] }

// MarshalText implements encoding.TextMarshaler.
func (e Enforcement) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (e *Enforcement) UnmarshalText(text []byte) error {
	for step := range EnforceTenant + 1 {
		if step.String() == string(text) {
			*e = step
			return nil
		}
	}
	return fmt.Errorf("invalid enforce %q: must be one of %s", text, strings.Join(Enforcements(), ", "))
}

// The rules of Deviation.
const (
	ruleAlways = "" // a rule that is always enforced

	ruleType         = "type"
	ruleMissing      = "missing"
	ruleUndocumented = "undocumented"
	ruleEnum         = "enum"
	ruleFormat       = "format"
	rulePattern      = "pattern"
	ruleLength       = "length"
	ruleBounds       = "bounds"  // of a number
	ruleItems        = "items"   // their number, or duplicates
	ruleMembers      = "members" // their number
	ruleChoice       = "choice"  // no alternative fits
	ruleRecords      = "records" // more than were asked for
	ruleRecord       = "record"  // not the one that was asked for
	rulePage         = "page"    // not the one that was asked for
	ruleOrder        = "order"   // a record does not say when it was created
)

// DeviationRules returns all rules of deviations.
func DeviationRules() []string {
	return append([]string{ruleType, ruleMissing, ruleUndocumented, ruleChoice, ruleRecord, rulePage, ruleOrder}, softRules...)
}

// softRules are the rules that EnforceMembers does not enforce.
//
//nolint:gochecknoglobals // a constant
var softRules = []string{ruleEnum, ruleFormat, rulePattern, ruleLength, ruleBounds, ruleItems, ruleMembers, ruleRecords}

// passes reports whether a value that breaks a rule passes. While alternatives of a choice are tried, none does.
func (k *checker) passes(rule string) bool {
	return k.enforce != EnforceAll && rule != ruleAlways && !k.trying && (k.enforce == EnforceTenant || slices.Contains(softRules, rule))
}

// tolerate reports whether something that breaks a rule passes, and lists it. With allViolations, it lists what was expected, and reading goes on.
func (k *checker) tolerate(rule, name, expected string) bool {
	if k.allViolations {
		k.addViolation(nil, name, expected)
		return true
	}
	if !k.passes(rule) {
		return false
	}
	k.addToList(rule, name)
	return true
}

// addToList lists the rule of a deviation, or the reason of a violation, unless many are listed already. name is the member's, if it is one.
func (k *checker) addToList(rule, name string) {
	if n := len(k.listed); n < maxViolations {
		if k.listed = append(k.listed, Violation{Reason: rule}); name != "" {
			prefixPointers(k.listed[n:], name)
		}
	}
}

// completePointers completes the pointers of what was listed for the n-th item of an array: k.listed[listed:]. They get the item's index, and those of
// deviations get *. In responses, equal ones of the array's items, k.listed[listedBefore:], become one, with the index of the first.
func (k *checker) completePointers(listedBefore, listed, n int) {
	index := strconv.Itoa(n)
	if k.enforce != EnforceAll {
		index = "*"
	}
	if prefixPointers(k.listed[listed:], index); !k.isRequest {
		k.listed = k.merge(k.listed[:listed], listedBefore, k.listed[listed:])
	}
}

// merge appends more to all, whose array it may share. A violation that all[from:] has already is not appended, but counted there. With EnforceAll, it
// may be in another item of the array that all pointers lead into.
func (k *checker) merge(all []Violation, from int, more []Violation) []Violation {
	place := func(v Violation) string {
		if k.enforce == EnforceAll {
			return v.Pointer[1+strings.IndexByte(v.Pointer[1:]+"/", '/'):]
		}
		return v.Pointer
	}
	for _, v := range more {
		v.Times = max(v.Times, 1)
		if i := slices.IndexFunc(all[from:], func(o Violation) bool { return place(o) == place(v) && o.Reason == v.Reason }); i >= 0 {
			all[from+i].Times += v.Times
		} else {
			all = append(all, v)
		}
	}
	return all
}

// deviations returns what passed.
func (k *checker) deviations() (all []Deviation) {
	if k.enforce == EnforceAll {
		return nil
	}
	for _, v := range k.merge(k.listed[:0], 0, k.listed) {
		all = append(all, Deviation{v.Pointer, v.Reason, v.Times, v.From})
	}
	return all
}

// ruleOf returns the rule that an invalid scalar breaks.
func (k *checker) ruleOf(s *Schema, first byte, v span) string {
	t := typeOf(first)
	switch {
	case k.enforce == EnforceAll, s.Withheld, k.mustProve(s):
		return ruleAlways
	case s.Refused != "", t&s.Types == 0, t == TypeInteger|TypeNumber && s.Types&TypeNumber == 0 && !isInteger(k.raw(v)):
		return ruleType
	case t == TypeString && !s.Format.valid(k.text(v)):
		return ruleFormat
	case t == TypeString && s.Rules.Enum != nil && !s.Rules.hasText(k.text(v)), t == TypeBoolean, t == TypeNull:
		return ruleEnum
	case t == TypeString && s.Rules.checkLengthAndEnum(k.text(v)) != "":
		return ruleLength
	case t == TypeString:
		return rulePattern
	case s.Rules.Enum != nil && !s.Rules.hasNumber(k.raw(v)):
		return ruleEnum
	default:
		return ruleBounds
	}
}

// ruleUnlessGuarded returns a rule that an object or array breaks, or ruleAlways if the tenant is checked or something is removed in such values.
func (k *checker) ruleUnlessGuarded(s *Schema, rule string) string {
	if s.guarded || k.hides {
		return ruleAlways
	}
	return rule
}

// guard marks the schemas of responses in whose values a tenant is checked or something is removed, at any depth.
func guard(operations []*Operation) {
	parents := map[*Schema][]*Schema{}
	var guarded, owned, filtered []*Schema
	var visit func(s, parent *Schema)
	visit = func(s, parent *Schema) {
		if s == nil {
			return
		}
		all, seen := parents[s]
		if parents[s] = append(all, parent); seen {
			return
		}
		isInternal := func(p Property) bool { return p.Internal }
		if s.Tenant != "" || s.Visible != "" || s.Withheld || s.Concealed != nil || slices.ContainsFunc(s.Properties, isInternal) {
			guarded = append(guarded, s)
		}
		if s.Tenant != "" {
			owned = append(owned, s)
		}
		if s.Visible != "" {
			filtered = append(filtered, s)
		}
		s.Parts(func(part *Schema) { visit(part, s) })
	}
	for _, op := range operations {
		for i := range op.Responses {
			visit(op.Responses[i].Body, nil)
		}
	}
	mark := func(all []*Schema, flag func(*Schema) *bool) {
		for len(all) > 0 {
			s := all[0]
			if all = all[1:]; s != nil && !*flag(s) {
				*flag(s) = true
				all = append(all, parents[s]...)
			}
		}
	}
	mark(guarded, func(s *Schema) *bool { return &s.guarded })
	mark(owned, func(s *Schema) *bool { return &s.hasTenant })
	mark(filtered, func(s *Schema) *bool { return &s.filters })
	withhold(parents)
	for s := range parents {
		if s.from != nil {
			s.from.tree.markHidden(false)
		}
	}
}

// withhold keeps what is meant for one alternative of a choice from passing as a deviation of another. Below guarded choices, a member that has the
// name of an internal or guarded one anywhere in the definition passes neither as undocumented nor with another type. This removes more than
// necessary, but not much.
func withhold(all map[*Schema][]*Schema) {
	hiddenNames, anyWithheld := map[string]bool{}, false // in lower case, with the data service's names
	choices := map[*Schema]bool{}                        // whether an alternative of a guarded choice is Withheld
	for s := range all {
		if anyWithheld = anyWithheld || s.Withheld; s.Choice != nil && s.guarded {
			choices[s] = slices.ContainsFunc(s.Choice.Alternatives, func(a *Schema) bool { return a.Withheld })
		}
		for i := range s.Properties {
			if p := &s.Properties[i]; p.Internal || p.Schema.guarded {
				hiddenNames[strings.ToLower(p.Name)], hiddenNames[strings.ToLower(p.serviceName())] = true, true
			}
		}
	}
	seen, guarded := map[*Schema]bool{}, map[*Schema]bool{}
	var reserve func(s *Schema)
	reserve = func(s *Schema) {
		if s == nil || seen[s] {
			return
		}
		seen[s], s.reservedNames = true, hiddenNames
		s.Additional.guard(anyWithheld, guarded)
		for i := range s.Properties {
			p := &s.Properties[i]
			if hiddenNames[strings.ToLower(p.Name)] || hiddenNames[strings.ToLower(p.serviceName())] {
				p.Schema.guard(anyWithheld, guarded)
			}
		}
		s.Parts(reserve)
	}
	for s, withheld := range choices {
		s.guard(withheld, guarded)
		reserve(s)
	}
}

// guard marks a schema as guarded, with its items, further members and alternatives, but not its properties. With withheld, all are Withheld, too.
func (s *Schema) guard(withheld bool, done map[*Schema]bool) {
	if s == nil || done[s] && (s.Withheld || !withheld) {
		return
	}
	done[s], s.guarded, s.Withheld = true, true, s.Withheld || withheld
	s.Items.guard(withheld, done)
	s.Additional.guard(withheld, done)
	if s.Choice != nil {
		for _, alternative := range s.Choice.Alternatives {
			alternative.guard(withheld, done)
		}
	}
}

// serviceName returns the name of the data service's member that the property is or that it is inside of.
func (p *Property) serviceName() string {
	if p.From != nil && p.From.Names != nil {
		return p.From.Names[0]
	}
	return p.Name
}
